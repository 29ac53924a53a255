"""Advice on loaders with workers whose number is not what steps wait for."""

from __future__ import annotations

from nbprof.analysis.advice.checks import INPUT_HIGH, INPUT_MODERATE
from nbprof.analysis.advice.facts import INPUT, AdviceRule, Facts
from nbprof.analysis.rule import (
    ABOUT,
    OURS,
    PYTORCH,
    TORCH_GUIDE,
    UP_TO,
    Found,
    Rule,
    Shown,
    Threshold,
)
from nbprof.display import wording

SLOW_ITEMS, PICKLE = "loader_slow_items", "loader_pickle"
"""Names of rules."""
_WAIT = Threshold(
    "≥ {moderate:g} % of step time waited for it (high from {high:g} %)",
    moderate=INPUT_MODERATE,
    high=INPUT_HIGH,
)
_PICKLED = Threshold(
    f"{_WAIT.text}, ≥ {{megabytes:g}} million bytes per batch", **_WAIT.numbers, megabytes=1.0
)

_AS_READY = (
    "-loader = DataLoader(dataset, batch_size=n, num_workers=2)\n"
    "+loader = DataLoader(dataset, batch_size=n, num_workers=2, in_order=False)  # in the order in"
    " which they are ready"
)
_CHEAPER = (
    " class Items(Dataset):\n"
    "     def __getitem__(self, i):\n"
    "-        return decode(self.paths[i])\n"
    "+        return self.decoded[i]  # what takes long is decoded once, before training"
)
_KEEP = (
    "-loader = DataLoader(dataset, batch_size=n, num_workers=2)\n"
    "+loader = DataLoader(dataset, batch_size=n, num_workers=2, persistent_workers=True)"
)
_TENSORS = (
    " def collate(items):\n"
    "     images, labels = zip(*items)\n"
    "-    return np.stack(images), list(labels)\n"
    "+    return torch.from_numpy(np.stack(images)), torch.tensor(labels)"
)


def _of_step(facts: Facts, limit: Threshold, time_ms: float) -> float | None:
    """A wait of the loop as a part of the wait for input in a step; None if it is too small."""
    time_ms = min(time_ms, facts.mean["input"])
    if not facts.waits_for_input(limit) or facts.percent_of_step(time_ms) < limit["moderate"]:
        return None
    return time_ms


def _slow_items(facts: Facts, limit: Threshold) -> Found | None:
    loop = facts.evidence.loop
    if loop is None or loop.held is None:
        return None
    time_ms = _of_step(facts, limit, loop.held.ms)
    if time_ms is None:
        return None
    items = loop.held.items
    share = 100 * time_ms / facts.mean["input"]
    text = (
        f"One item in **{items.one_in:,}** takes long and holds its batch: item {items.item} took"
        f" **{wording.millis(items.longest_ms)}**, half of all items up to"
        f" **{wording.millis(items.median_ms)}**. {facts.unit.the.capitalize()} waits"
        f" **{wording.millis(time_ms)}** for such items, **{share:.0f}%** of its wait for input."
    )
    fix = _CHEAPER
    if loop.workers > 1:
        fix = _AS_READY.replace("num_workers=2", f"num_workers={loop.workers}")
    severity = limit.severity(facts.percent_of_step(time_ms))
    return Found(text, severity=severity, gain_ms=time_ms, fix=fix)


def _restarts(facts: Facts, limit: Threshold) -> Found | None:
    loop = facts.evidence.loop
    if loop is None or loop.restarts is None:
        return None
    time_ms = _of_step(facts, limit, loop.restarts.ms)
    if time_ms is None:
        return None
    times = wording.plural(loop.restarts.count, "time")
    text = (
        f"The workers of the DataLoader ended and started anew **{times}**, and each time the loop"
        f" waited **{wording.millis(loop.restarts.start_ms)}** for them to start:"
        f" **{wording.millis(time_ms)}** {facts.unit.per}."
    )
    fix = _KEEP.replace("num_workers=2", f"num_workers={loop.workers}")
    severity = limit.severity(facts.percent_of_step(time_ms))
    return Found(text, severity=severity, gain_ms=time_ms, fix=fix)


def _pickled(facts: Facts, limit: Threshold) -> Found | None:
    loop = facts.evidence.loop
    if loop is None or loop.received is None:
        return None
    if loop.received.batch_bytes < 1e6 * limit["megabytes"]:
        return None
    time_ms = _of_step(facts, limit, loop.received.ms)
    if time_ms is None:
        return None
    text = (
        f"**{wording.size(loop.received.batch_bytes)}** per batch come from the workers pickled,"
        f" through a pipe: {facts.unit.the} receives them for **{wording.millis(time_ms)}**."
        " Tensors are handed over in shared memory; NumPy arrays, lists and strings that"
        " collate_fn returns are not."
    )
    severity = limit.severity(facts.percent_of_step(time_ms))
    return Found(text, severity=severity, gain_ms=time_ms)


RULES: tuple[AdviceRule, ...] = (
    Rule(
        SLOW_ITEMS,
        _slow_items,
        threshold=_WAIT,
        source=OURS,
        target=INPUT,
        applies=PYTORCH,
        looks_at="Steps that wait for batches with the few items that take much longer than others",
        title="Make slow items cheaper, or take batches as they are ready",
        fix=_AS_READY,
        refuted_by="{the} takes as long without these items",
        gain_is=UP_TO,
        saves=("input",),
        done=Shown("No slow items, or batches in the order in which they are ready"),
    ),
    Rule(
        "loader_restarts",
        _restarts,
        threshold=_WAIT,
        source=TORCH_GUIDE,
        target=INPUT,
        applies=PYTORCH,
        looks_at="Iterations over a DataLoader, after the first, that wait for workers to start",
        title="Keep the workers of the DataLoader between epochs",
        fix=_KEEP,
        refuted_by="{the} takes as long with persistent_workers=True",
        gain_is=ABOUT,
        saves=("input",),
        done=Shown("Workers that stay: `persistent_workers=True`"),
    ),
    Rule(
        PICKLE,
        _pickled,
        threshold=_PICKLED,
        source=OURS,
        target=INPUT,
        applies=PYTORCH,
        looks_at="Steps that receive pickled batches from the workers of a DataLoader",
        title="Return tensors from collate_fn",
        fix=_TENSORS,
        refuted_by="{the} takes as long with batches of tensors",
        gain_is=UP_TO,
        saves=("input",),
        done=Shown("Batches of tensors, which come in shared memory"),
    ),
)
