"""Is the second run faster, is that more than chance, and may the two be compared at all? The
sentences of a comparison.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.unit import Unit
from nbprof.analysis.compare import cores
from nbprof.analysis.compare.compare import (
    STEP,
    Compared,
    Side,
    batch_size,
    comparable,
    compared,
    per_step,
    same_steps,
    times,
    unit_of,
)
from nbprof.analysis.compare.welch import (
    LEVEL,
    Difference,
    Floats,
    autocorrelation,
    effective_size,
    trimmed,
    welch,
)
from nbprof.analysis.figures import mean, ratio
from nbprof.display import wording

ENOUGH = 10
"""Steps needed to know the spread of a run well enough."""
_FACTOR = 1.1
"""From this ratio on, a change is stated as a factor, below it as a percentage."""
_MENTION = 0.05
"""A category is mentioned if it changed by this fraction of a step."""
_PRECISION_POINTS = 25.0
_SAME_COMPUTE = 0.02
_LONGEST = 60

TITLES = {
    "real": "The change is real",
    "some": "The change is real for some steps",
    "typical": "The typical step has changed",
    "serial": "The change may be chance",
    "chance": "The change may be chance",
    "none": "No significant change",
    "same": "Nothing changed",
    "unknown": "Unknown whether the change is real",
}
CHANGED = ("real", "some", "typical")
"""Kinds of verdicts that state a change."""
_LABELS = {
    "input": "waiting for input",
    "device_to_device": "copies between devices",
    "device_collectives": "communication",
    "output": "copies to the host",
    "compile": "compilation",
    "other": "unrecorded time",
}
_AVOIDABLE = (
    "input",
    "kernel_launch",
    "output",
    "compile",
    "device_collectives",
    "device_to_device",
    "other",
)


class Verdict(NamedTuple):
    """The result of a comparison.

    Attributes
    ----------
    kind : str
        A key of `TITLES`.
    headline, detail : str
        Sentences.
    difference : Difference
        Of the mean step time, ms; of the typical step where `kind` is "typical".
    evidence : list of (bool, str)
        Facts for (True) or against comparing the two, or unknown ones.
    """

    kind: str
    headline: str
    detail: str
    difference: Difference
    evidence: list[tuple[bool, str]]


def verdict(before: Side, after: Side, categories: pd.DataFrame) -> Verdict:
    """The verdict, from the steps that ran without the profiler, or from those in the averages.

    Bare steps are compared where both runs have them (`nbprof.analysis.compare.compare.compared`).

    A change is **real** if the 95 % interval of Welch excludes 0. Two effects can make that
    interval too narrow or too wide, and count if they change the verdict:

    - **memory**: consecutive steps resemble each other (a drift, a neighbour on the machine). The
      interval is then computed with the effective number of steps,
      `nbprof.analysis.compare.welch.effective_size`; if it includes 0, the change may be chance
      ("serial").
    - **outliers**: a few slow steps widen the interval or are the only difference. The means
      without the fastest and the slowest fifth are compared as well (Yuen), and for a handful of
      steps whether all of one run are below all of the other (the extreme case of Mann and Whitney,
      Annals of Mathematical Statistics 18 (1947) 50): if only these differ, the typical step has
      changed ("typical"); if only the full means differ, a part of the steps has changed ("some").

    A change that is not real is "chance" if it is 5 % of a step or more, so that longer recordings
    may decide, and "none" below. With one step on a side its spread is unknown ("unknown"); equal
    times are the same steps ("same").
    """
    steps = compared(before, after)
    a, b = steps.before, steps.after
    unit = unit_of(before, after)
    kind, difference = _judge(a, b)
    digits = digits_of(a, b)
    detail = _detail(kind, categories, steps, digits, unit)
    # Parts of steps are of the recording, whose change may not be one of the program.
    if len(a) and len(b) and not (steps.is_bare and kind not in CHANGED):
        least = _MENTION * max(float(a.mean()), float(b.mean()))
        taken = cores.sentence(before, after, categories, least, real=kind != "unknown")
        detail = f"{detail} {taken}".strip()
    return Verdict(
        kind,
        _headline(kind, before, after, steps, digits),
        detail,
        difference,
        [
            *_steps_evidence(kind, difference, steps, digits, unit),
            *_recorded_evidence(kind, difference, before, after, steps),
            *_alike(before, after),
            *_compute(categories, before, after, digits),
        ],
    )


def _judge(a: Floats, b: Floats) -> tuple[str, Difference]:
    plain = welch(a, b)
    if same_steps(a, b):
        return "same", plain
    if not plain.has_interval:
        return "unknown", plain
    sizes = effective_size(a), effective_size(b)
    serial = welch(a, b, sizes=sizes)
    typical = trimmed(a, b, sizes=sizes)
    if not plain.real:
        if typical.real:
            return "typical", typical
        if disjoint(a, b) and sizes == (len(a), len(b)):
            return "typical", plain
        if abs(plain.change) >= _MENTION * float(a.mean()):
            return "chance", plain
        return "none", plain
    if not serial.real:
        return "serial", serial
    if typical.real and (typical.change > 0) == (plain.change > 0):
        return "real", plain
    return "some", plain


def disjoint(a: Floats, b: Floats) -> bool:
    """True if all of one series is below all of the other, which is less likely than 5 % if both
    are drawn from the same.
    """
    clear = bool(a.max() < b.min() or b.max() < a.min())
    return clear and 2 / math.comb(len(a) + len(b), len(a)) < 1 - LEVEL


def digits_of(a: Floats, b: Floats) -> int:
    """Decimals of step times in ms: two, more if steps are shorter than a millisecond."""
    shortest = np.fmin(mean(a), mean(b))
    if shortest < 0.1:
        return 4
    return 3 if shortest < 1 else 2


def _change(value: float, digits: int) -> str:
    return wording.rise(wording.millis(value, digits), value)


def _give_or_take(difference: Difference, digits: int) -> str:
    """A change and the half of its confidence interval."""
    change, margin = _change(difference.change, digits), wording.millis(difference.margin, digits)
    number, _, unit = change.rpartition(" ")
    if margin.endswith(f" {unit}"):
        change = number
    return f"{change} ± {margin}"


def signed(value: float, digits: int) -> str:
    """A change with its sign, a true minus."""
    text = f"{abs(value):,.{digits}f}"
    if not any(digit in "123456789" for digit in text):
        return text
    return f"+{text}" if value > 0 else f"−{text}"


def _headline(kind: str, before: Side, after: Side, steps: Compared, digits: int) -> str:
    a, b = steps.before, steps.after
    unit = unit_of(before, after)
    if not comparable(before, after):
        texts = (f"{side.label} is given {_unit_text(side)}" for side in (before, after))
        return f"Times cannot be compared: {', '.join(texts)}"
    without = [side.label for side, times in ((before, a), (after, b)) if not len(times)]
    if without:
        have = "has" if len(without) == 1 else "have"
        return f"Step times cannot be compared: {' and '.join(without)} {have} no steps"
    was, now = (wording.millis(float(times.mean()), digits) for times in (a, b))
    if kind == "same":
        same = "are the same recording" if unit.is_recording else f"have the same {unit.plural}"
        return f"No difference: both {same} of {now}"
    if kind == "none":
        where = "without recording, " if steps.is_bare else ""
        return f"No significant difference: {where}{unit.a} takes {now}, before {was}"
    if kind == "typical":
        median_before, median_after = float(np.median(a)), float(np.median(b))
        word = "faster" if median_after < median_before else "slower"
        return (
            f"The typical {unit.noun} is {word}: {wording.millis(median_after, digits)} instead of"
            f" {wording.millis(median_before, digits)}{_without_recording(steps)}"
        )
    doubt = ", not statistically significant" if kind in ("serial", "chance") else ""
    per = "" if unit.is_recording else f" {unit.per}{_without_recording(steps)}"
    if not steps.is_bare and _bare_of_one(before, after):
        per = f" per recorded {unit.noun}"
    return f"{_speedup(float(a.mean()), float(b.mean()))} ({now} vs {was}{per}){doubt}"


def _bare_of_one(before: Side, after: Side) -> bool:
    return not before.bare.reason or not after.bare.reason


def _without_recording(steps: Compared) -> str:
    return " without recording" if steps.is_bare else ""


def _unit_text(side: Side) -> str:
    unit = Unit.of(side.overview)
    return "as one recording" if unit.is_recording else unit.per


def _speedup(before: float, after: float) -> str:
    factor = max(before, after) / min(before, after)
    word = "faster" if after < before else "slower"
    if factor < _FACTOR:
        return f"{100 * abs(after - before) / before:.1f}% {word}"
    if factor < 10:
        return f"{factor:.2f}× {word}"
    if factor < 100:
        return f"{factor:.1f}× {word}"
    return f"{factor:,.0f}× {word}"


def _detail(kind: str, categories: pd.DataFrame, steps: Compared, digits: int, unit: Unit) -> str:
    if not len(steps.before) or not len(steps.after):
        return (
            "Mark steps with nbprof.steps() or the framework's step markers. Ops and kernels are"
            " compared below."
        )
    if kind == "same":
        return "It is the same recording, or a copy of it."
    rows = categories.set_index("category")
    recorded_ms = rows.loc[STEP, ["before_ms", "after_ms"]].to_numpy(np.float64)
    parts = rows.drop(STEP)
    if steps.is_bare and kind not in CHANGED:
        # They changed in the recordings alone.
        parts = parts.iloc[:0]
    parts = parts[parts["change_ms"].abs() >= _MENTION * recorded_ms.max()]
    if kind != "unknown":
        # A change that may be chance is not stated; with single steps, every change may be.
        parts = parts[parts["real"].fillna(False).astype(bool)]
    # The category that fell most and the one that rose most, the larger change first.
    changed = []
    for side in (parts[parts["change_ms"] < 0], parts[~(parts["change_ms"] < 0)]):
        if len(side):
            changed.append(str(side["change_ms"].abs().idxmax()))
    changed.sort(key=lambda name: -abs(float(parts["change_ms"][name])))
    sentences = [_category_change(name, parts.loc[name], digits) for name in changed]
    shares = rows["after_ms"].reindex(_AVOIDABLE) / recorded_ms[1]
    if (shares >= _MENTION).any():
        largest = str(shares.idxmax())
        subject = f"The largest avoidable part is now {label(largest)}"
        if len(changed) == 1 and sentences[0].lower().startswith(label(largest)):
            word = "still" if parts["change_ms"][changed[0]] < 0 else "now"
            subject = f"That is {word} the largest avoidable part"
        sentences.append(f"{subject}: {100 * shares[largest]:.0f}% of {unit.time}.")
    if steps.is_bare and sentences:
        sentences[0] = f"While recorded: {sentences[0][0].lower()}{sentences[0][1:]}"
    return " ".join(sentences)


def label(category: str) -> str:
    """The name of a category within a sentence."""
    return _LABELS.get(category, category.replace("_", " "))


def _category_change(name: str, row: Any, digits: int) -> str:
    """The change of a category, as a sentence."""
    was, now = float(row["before_ms"]), float(row["after_ms"])
    text = label(name)
    verb = "fell" if row["change_ms"] < 0 else "rose"
    times = wording.millis_two(was, now, " to ", digits)
    return f"{text[0].upper()}{text[1:]} {verb} from {times}."


def _typical_steps(a: Floats, b: Floats, digits: int) -> str:
    """`Median 34.61 ms before, 35.02 ms after; p95 38.85 ms before, 39.10 ms after`."""
    medians, p95s = [], []
    for series in (a, b):
        p95 = float(np.percentile(series, 95, method="inverted_cdf"))
        medians.append(wording.millis(float(np.median(series)), digits))
        p95s.append(wording.millis(p95, digits))
    return f"Median {medians[0]} before, {medians[1]} after; p95 {p95s[0]} before, {p95s[1]} after"


def _steps_evidence(
    kind: str, difference: Difference, steps: Compared, digits: int, unit: Unit
) -> list[tuple[bool, str]]:
    a, b = steps.before, steps.after
    if not len(a) or not len(b):
        return []
    if unit.is_recording:
        text = (
            f"Difference {_change(difference.change, digits)} of the durations: one recording each"
            " cannot show the spread"
        )
        return [
            (False, text),
            (False, "The recordings are not divided into steps and may differ in content"),
        ]
    evidence = [
        _difference_evidence(kind, difference, steps, digits, unit),
        (True, _typical_steps(a, b, digits)),
    ]
    if kind == "serial":
        evidence.append((False, _correlated(a, b, unit)))
    if kind == "typical" and not difference.real:
        word = "slower" if a.max() < b.min() else "faster"
        text = (
            f"Every {unit.noun} after is {word} than every {unit.noun} before; outliers widen the"
            " confidence interval of the mean"
        )
        evidence.append((True, text))
    elif kind == "typical":
        text = (
            f"A few slow {unit.plural} hide the difference in the mean:"
            f" {_give_or_take(welch(a, b), digits)}"
        )
        evidence.append((False, text))
    if kind == "some":
        text = f"Without the fastest and slowest 20%: {_give_or_take(trimmed(a, b), digits)}"
        evidence.append((False, text))
    few = [(n, name) for n, name in ((len(a), "before"), (len(b), "after")) if n < ENOUGH]
    if few and kind != "same":
        text = ", ".join(f"{wording.plural(n, unit.noun)} {name}" for n, name in few)
        verb = "run" if steps.is_bare else "record"
        evidence.append((False, f"Only {text}: {verb} {ENOUGH} or more"))
    elif len(a) != len(b) and not steps.is_bare:
        text = f"The number of {unit.plural} differs: {len(a):,} before, {len(b):,} after"
        evidence.append((False, text))
    return evidence


def _difference_evidence(
    kind: str, difference: Difference, steps: Compared, digits: int, unit: Unit
) -> tuple[bool, str]:
    a, b = steps.before, steps.after
    if not difference.has_interval:
        change = _change(difference.change, digits)
        return False, f"Difference {change}; a single {unit.noun} cannot show the spread"
    count = f"{len(a):,} and {len(b):,} {unit.plural}"
    if len(a) == len(b):
        count = f"{len(a):,} {unit.plural} each"
    subject = "Difference"
    if kind == "typical" and difference.real:
        subject = f"Difference in the typical {unit.noun}"
    text = f"{subject} {_give_or_take(difference, digits)} (95%), {count}"
    return difference.real, f"{text}{_without_recording(steps)}"


def _recorded_evidence(
    kind: str, difference: Difference, before: Side, after: Side, steps: Compared
) -> list[tuple[bool, str]]:
    """The recorded steps beside the bare ones that were compared, or why those were not."""
    evidence = []
    if steps.is_bare:
        evidence += _recorded_beside(kind, difference, before, after)
    elif _bare_of_one(before, after):
        text = f"Compared are recorded steps, for bare ones of both are not known: {steps.reason}"
        evidence.append((False, text))
    differing = []
    for name, option in before.options.items():
        of_after = after.options.get(name, option)
        if of_after != option:
            differing.append(f"{name} {option} before, {of_after} after")
    if differing:
        effect = "which change how long recorded steps take"
        if steps.is_bare:
            effect = "which bear on recorded steps only"
        text = f"Options of the recording differ, {effect}: {wording.listed(differing)}"
        evidence.append((steps.is_bare, text))
    return evidence


def _recorded_beside(
    kind: str, difference: Difference, before: Side, after: Side
) -> list[tuple[bool, str]]:
    """The change of the recorded steps; it supports that of the bare ones if it is like it."""
    of_before, of_after = times(before, after)
    a, b = of_before[STEP], of_after[STEP]
    if not len(a) or not len(b):
        return []
    recorded, digits = welch(a, b), digits_of(a, b)
    text = f"While recorded: {wording.millis_two(mean(a), mean(b), ' before, ', digits)} after"
    if recorded.has_interval:
        text += f" ({_give_or_take(recorded, digits)})"
    slowdowns = before.bare.slowdown, after.bare.slowdown
    if slowdowns[0] is not None and slowdowns[1] is not None:
        text += f"; recording took {slowdowns[0]:.2f} and {slowdowns[1]:.2f} times as long"
    alike = recorded.real == (kind in CHANGED)
    if alike and recorded.real:
        alike = (recorded.change > 0) == (difference.change > 0)
    return [(alike, text)]


def _correlated(a: Floats, b: Floats, unit: Unit) -> str:
    sizes = effective_size(a), effective_size(b)
    correlations = []
    for step_times, size in zip((a, b), sizes, strict=True):
        if size < len(step_times):
            correlations.append(autocorrelation(step_times))
    correlation, least = max(correlations), min(sizes)
    return (
        f"Consecutive {unit.plural} are correlated ({correlation:.2f}): equivalent to {least:.0f}"
        " independent ones; record longer, or several times"
    )


def _alike(before: Side, after: Side) -> list[tuple[bool, str]]:
    """The evidence on the conditions of the runs: equal, different and unknown ones."""
    same: list[str] = []
    unknown: list[str] = []
    evidence: list[tuple[bool, str]] = []
    for name, a, b in [*_facts(before, after), *_versions(before, after)]:
        if a and b and a != b:
            evidence.append((False, _differs(f"{name[0].upper()}{name[1:]} differs", a, b)))
        elif a and b:
            same.append(name)
        else:
            unknown.append(name)
    if same:
        evidence.insert(0, (True, f"Same {wording.listed(same)}"))
    evidence += _different_work(before, after)
    evidence += [*_recording_evidence(before, "before"), *_recording_evidence(after, "after")]
    if not per_step(before, after):
        text = (
            "Ops and kernels are compared by their time in the whole profile, and the profiles may"
            " differ in length"
        )
        evidence.append((False, text))
    if unknown:
        text, verb = wording.listed(unknown), "was" if len(unknown) == 1 else "were"
        text = f"{text[0].upper()}{text[1:]} {verb} not recorded: make sure they match"
        evidence.append((False, text))
    return evidence


def _differs(text: str, a: str, b: str) -> str:
    return (
        f"{text}: {wording.shortened(a, _LONGEST)} before, {wording.shortened(b, _LONGEST)} after"
    )


def _different_work(before: Side, after: Side) -> list[tuple[bool, str]]:
    """Differences in precision, kinds of steps and units."""
    evidence: list[tuple[bool, str]] = []
    half = [side.overview.get("compute_16bit_percent") for side in (before, after)]
    if half[0] is not None and half[1] is not None and abs(half[0] - half[1]) > _PRECISION_POINTS:
        text = f"The share of 16-bit compute differs: {half[0]:.0f}% before, {half[1]:.0f}% after"
        evidence.append((False, text))
    kinds = _kind(before), _kind(after)
    if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
        evidence.append((False, _differs("The kinds of steps differ", *kinds)))
    units = Unit.of(before.overview), Unit.of(after.overview)
    if units[0].kind != units[1].kind and comparable(before, after):
        evidence.append((False, f"Times are {units[0].per} before, {units[1].per} after"))
    return evidence


def _recording_evidence(side: Side, name: str) -> list[tuple[bool, str]]:
    """Facts about one recording: dropped events, a probe, a failed cell; `name` is "before" or
    "after".
    """
    evidence: list[tuple[bool, str]] = []
    if side.dropped:
        verb = "was" if side.dropped == 1 else "were"
        text = f"{wording.plural(side.dropped, 'event')} {verb} dropped {name}"
        evidence.append((False, text))
    probe = side.overview.get("probe")
    if probe:
        text = f"{name.capitalize()}: {str(probe['text']).rstrip('.')}"
        evidence.append((probe["measured_ms"] is not None, text))
    if side.failed:
        evidence.append((False, f'The "{name}" cell failed, so its recording is partial'))
    return evidence


def _facts(before: Side, after: Side) -> list[tuple[str, str, str]]:
    """(name, before, after) of conditions that should be the same; '' if unknown."""
    facts = [
        ("device", _devices(before), _devices(after)),
        ("framework", _framework(before), _framework(after)),
        ("number of hosts", _host_count(before), _host_count(after)),
        ("batch size", _batch_size(before), _batch_size(after)),
        ("precision", before.precision, after.precision),
    ]
    # One host each is not worth a line.
    facts = [fact for fact in facts if fact != ("number of hosts", "1", "1")]
    names = _host_names(before), _host_names(after)
    if names[0] and names[1] and names[0] != names[1] and _devices(before) == _devices(after):
        facts.append(("host", *names))
    return facts


def _host_count(side: Side) -> str:
    return str(side.overview.get("hosts") or "")


def _batch_size(side: Side) -> str:
    size = batch_size(side)
    return f"{size:g}" if size > 0 else ""


def _environment(side: Side) -> dict[str, Any]:
    return side.overview.get("environment") or {}


def _host_names(side: Side) -> str:
    return ", ".join(sorted(_host(name) for name in _environment(side).get("hosts") or []))


def _host(name: object) -> str:
    # PyTorch names trace files by host, process and time of writing.
    return re.sub(r"(_\d+)?\.\d{10,}\Z", "", str(name))


def _versions(before: Side, after: Side) -> list[tuple[str, str, str]]:
    """Versions of the same software that differ."""
    a, b = (_environment(side).get("versions") or {} for side in (before, after))
    differing = []
    for name, version in a.items():
        if name in b and b[name] != version:
            differing.append((f"version of {name}", str(version), str(b[name])))
    return differing


def _devices(side: Side) -> str:
    kind = str(side.overview.get("device_kind") or "")
    count = int(side.overview.get("devices") or 0)
    return f"{count} × {kind}" if count > 1 else kind


def _framework(side: Side) -> str:
    return str(side.overview.get("framework") or "")


def _kind(side: Side) -> str:
    if not len(side.steps) or "kind" not in side.steps.columns:
        return ""
    kinds = side.steps["kind"][side.steps["counted"].astype(bool)]
    return str(kinds.iloc[0]) if len(kinds) else ""


def _compute(
    categories: pd.DataFrame, before: Side, after: Side, digits: int
) -> list[tuple[bool, str]]:
    """Device compute as a control: the same model at the same batch size on the same device
    computes for the same time.
    """
    row = categories[categories["category"] == "device_compute"].to_dict("records")[0]
    was, change = float(row["before_ms"]), float(row["change_ms"])
    if not was > 0 or np.isnan(change) or _devices(before) != _devices(after):
        return []
    if abs(change) <= _SAME_COMPUTE * was:
        return [(True, f"Device compute is unchanged ({_change(change, digits)})")]
    if row["real"] is pd.NA or not bool(row["real"]):
        return []
    text = (
        f"Device compute changed too ({_change(change, digits)}): other kernels, another model or"
        " another batch"
    )
    return [(False, text)]


def record(verdict: Verdict, before: Side, after: Side) -> dict[str, Any]:
    """The row of `Comparison.verdict`."""
    steps = compared(before, after)
    a, b = steps.before, steps.after
    recorded = [mean(side[STEP]) for side in times(before, after)]
    return {
        "verdict": verdict.kind,
        "headline": verdict.headline,
        "detail": verdict.detail,
        "before_ms": mean(a),
        "after_ms": mean(b),
        "change_ms": verdict.difference.change,
        "margin_ms": verdict.difference.margin,
        "speedup": ratio(mean(a), mean(b)),
        "before_steps": len(a),
        "after_steps": len(b),
        "steps_are": steps.kind,
        "recorded_before_ms": recorded[0],
        "recorded_after_ms": recorded[1],
        "recorded_reason": steps.reason,
    }
