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
    Side,
    batch_size,
    comparable,
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
        What speaks for (True) or against comparing the two, or is not known.
    """

    kind: str
    headline: str
    detail: str
    difference: Difference
    evidence: list[tuple[bool, str]]


def verdict(before: Side, after: Side, categories: pd.DataFrame) -> Verdict:
    """The answer, from the steps that averages are of.

    A change is **real** if the 95 % interval of Welch leaves 0 out. Two things can make that
    interval say too much or too little, and count where they change the verdict:

    - **memory**: steps that follow one another resemble one another (a drift, a neighbour on the
      machine). The interval is then made with the effective number of steps,
      `nbprof.analysis.compare.welch.effective_size`; if it has 0 in it, the change may be chance
      ("serial").
    - **outliers**: a few slow steps widen the interval or make the difference alone. The means
      without the fastest and the slowest fifth are compared as well (Yuen), and for a handful of
      steps whether all of one run lie below all of the other (the extreme case of Mann and Whitney,
      Annals of Mathematical Statistics 18 (1947) 50): if only these differ, the typical step has
      changed ("typical"); if only the whole means differ, the change lies in a part of the steps
      ("some").

    What is not real is "chance" where it is 5 % of a step or more, so that longer recordings may
    tell, and "none" below. With one step on a side nothing is known of its spread ("unknown"); the
    same times are the same steps ("same").
    """
    a, b = (of_side[STEP] for of_side in times(before, after))
    unit = unit_of(before, after)
    kind, difference = _judge(a, b)
    digits = digits_of(a, b)
    taken = ""
    if len(a) and len(b):
        least = _MENTION * max(float(a.mean()), float(b.mean()))
        taken = cores.sentence(before, after, categories, least, real=kind != "unknown")
    return Verdict(
        kind,
        _headline(kind, before, after, a, b, digits),
        f"{_detail(kind, categories, a, b, digits, unit)} {taken}".strip(),
        difference,
        [
            *_steps_evidence(kind, difference, a, b, digits, unit),
            *_alike(before, after),
            *_compute(categories, before, after, digits),
        ],
    )


def _judge(a: Floats, b: Floats) -> tuple[str, Difference]:
    plain = welch(a, b)
    if same_steps(a, b):
        return "same", plain
    if not plain.known:
        return "unknown", plain
    sizes = effective_size(a), effective_size(b)
    serial = welch(a, b, sizes=sizes)
    typical = trimmed(a, b, sizes=sizes)
    if not plain.real:
        if typical.real:
            return "typical", typical
        if apart(a, b) and sizes == (len(a), len(b)):
            return "typical", plain
        return ("chance" if abs(plain.change) >= _MENTION * float(a.mean()) else "none"), plain
    if not serial.real:
        return "serial", serial
    same_way = typical.real and (typical.change > 0) == (plain.change > 0)
    return ("real" if same_way else "some"), plain


def apart(a: Floats, b: Floats) -> bool:
    """Whether all of one series lies below all of the other, which is less likely than 5 % if both
    are drawn from the same.
    """
    clear = bool(a.max() < b.min() or b.max() < a.min())
    return clear and 2 / math.comb(len(a) + len(b), len(a)) < 1 - LEVEL


def digits_of(a: Floats, b: Floats) -> int:
    """Decimals of step times in ms: two, more where steps are shorter than a millisecond."""
    means = [float(times.mean()) for times in (a, b) if len(times)]
    shortest = min(means, default=1.0)
    return 2 if shortest >= 1 else 3 if shortest >= 0.1 else 4


def _change(value: float, digits: int) -> str:
    return wording.rise(wording.millis(value, digits), value)


def _give_or_take(difference: Difference, digits: int) -> str:
    """A change and the half of its confidence interval."""
    change, margin = _change(difference.change, digits), wording.millis(difference.margin, digits)
    number, _, unit = change.rpartition(" ")
    return f"{number if margin.endswith(f' {unit}') else change} ± {margin}"


def signed(value: float, digits: int) -> str:
    """A change with its sign, a true minus."""
    text = f"{abs(value):,.{digits}f}"
    return (
        text if not any(c in "123456789" for c in text) else f"+{text}" if value > 0 else f"−{text}"
    )


def _headline(kind: str, before: Side, after: Side, a: Floats, b: Floats, digits: int) -> str:
    unit = unit_of(before, after)
    if not comparable(before, after):
        first, second = (
            f"{side.label} is given {_given(Unit.of(side.overview))}" for side in (before, after)
        )
        return f"Times cannot be compared: {first}, {second}"
    without = [side.label for side, times in ((before, a), (after, b)) if not len(times)]
    if without:
        return (
            f"Step times cannot be compared: {' and '.join(without)}"
            f" {'has' if len(without) == 1 else 'have'} no steps"
        )
    was, now = (wording.millis(float(t.mean()), digits) for t in (a, b))
    if kind == "same":
        return (
            "No difference: both"
            f" {'are the same recording' if unit.whole else f'have the same {unit.plural}'} of"
            f" {now}"
        )
    if kind == "none":
        return f"No significant difference: {unit.a} takes {now}, before {was}"
    if kind == "typical":
        middle = [float(np.median(t)) for t in (a, b)]
        word = "faster" if middle[1] < middle[0] else "slower"
        return (
            f"The typical {unit.noun} is {word}: {wording.millis(middle[1], digits)} instead of"
            f" {wording.millis(middle[0], digits)}"
        )
    doubt = ", not statistically significant" if kind in ("serial", "chance") else ""
    return (
        f"{_how_much(float(a.mean()), float(b.mean()))} ({now} vs"
        f" {was}{'' if unit.whole else f' {unit.per}'}){doubt}"
    )


def _given(unit: Unit) -> str:
    return "as one recording" if unit.whole else unit.per


def _how_much(before: float, after: float) -> str:
    ratio = max(before, after) / min(before, after)
    word = "faster" if after < before else "slower"
    if ratio >= _FACTOR:
        return f"{ratio:,.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}× {word}"
    return f"{100 * abs(after - before) / before:.1f}% {word}"


def _detail(
    kind: str, categories: pd.DataFrame, a: Floats, b: Floats, digits: int, unit: Unit
) -> str:
    if not len(a) or not len(b):
        return (
            "Mark steps with nbprof.steps() or the framework's step markers. Ops and kernels are"
            " compared below."
        )
    if kind == "same":
        return "It is the same recording, or a copy of it."
    rows = categories.set_index("category")
    step = max(float(a.mean()), float(b.mean()))
    parts = rows.drop(STEP)
    parts = parts[parts["change_ms"].abs() >= _MENTION * step]
    if kind != "unknown":
        # A change that may be chance is not stated; with single steps, every change may be.
        parts = parts[parts["real"].fillna(False).astype(bool)]
    told = []
    for fell in (True, False):
        side = parts[(parts["change_ms"] < 0) == fell]
        if len(side):
            name = str(side["change_ms"].abs().idxmax())
            told.append(_told(name, side.loc[name], digits))
    told.sort(key=lambda each: -each[0])
    sentences = [text for _, text, _ in told]
    now = float(b.mean())
    shares = {name: float(rows["after_ms"].get(name, np.nan)) / now for name in _AVOIDABLE}
    shares = {name: share for name, share in shares.items() if share >= _MENTION}
    if shares:
        largest = max(shares, key=shares.__getitem__)
        share = f"{100 * shares[largest]:.0f}% of {unit.time}"
        again = len(told) == 1 and told[0][1].lower().startswith(label(largest))
        subject = (
            f"That is {'still' if told[0][2] else 'now'} the largest avoidable part"
            if again
            else ""
        )
        sentences.append(
            f"{subject or f'The largest avoidable part is now {label(largest)}'}: {share}."
        )
    return " ".join(sentences)


def label(category: str) -> str:
    """The name of a category within a sentence."""
    return _LABELS.get(category, category.replace("_", " "))


def _told(name: str, row: Any, digits: int) -> tuple[float, str, bool]:
    """How much a category changed, a sentence about it, and whether it fell."""
    was, now = float(row["before_ms"]), float(row["after_ms"])
    text = label(name)
    text = text[0].upper() + text[1:]
    verb = "fell" if row["change_ms"] < 0 else "rose"
    return (
        abs(float(row["change_ms"])),
        f"{text} {verb} from {wording.millis_two(was, now, ' to ', digits)}.",
        verb == "fell",
    )


def _typical_steps(a: Floats, b: Floats, digits: int) -> str:
    """`Median 34.61 ms before, 35.02 ms after; p95 38.85 ms before, 39.10 ms after`."""
    middle = [wording.millis(float(np.median(times)), digits) for times in (a, b)]
    changes = [
        wording.millis(float(np.percentile(times, 95, method="inverted_cdf")), digits)
        for times in (a, b)
    ]
    return (
        f"Median {middle[0]} before, {middle[1]} after; p95 {changes[0]} before, {changes[1]} after"
    )


def _steps_evidence(
    kind: str, difference: Difference, a: Floats, b: Floats, digits: int, unit: Unit
) -> list[tuple[bool, str]]:
    if not len(a) or not len(b):
        return []
    if unit.whole:
        text = (
            f"Difference {_change(difference.change, digits)} of the durations: one recording each"
            " cannot show the spread"
        )
        return [
            (False, text),
            (False, "The recordings are not divided into steps and may differ in content"),
        ]
    evidence: list[tuple[bool, str]] = []
    count = (
        f"{len(a):,} {unit.plural} each"
        if len(a) == len(b)
        else f"{len(a):,} and {len(b):,} {unit.plural}"
    )
    subject = (
        f"Difference in the typical {unit.noun}"
        if kind == "typical" and difference.real
        else "Difference"
    )
    if difference.known:
        evidence.append(
            (difference.real, f"{subject} {_give_or_take(difference, digits)} (95%), {count}")
        )
    else:
        evidence.append(
            (
                False,
                (
                    f"Difference {_change(difference.change, digits)}; a single {unit.noun} cannot show"
                    " the spread"
                ),
            )
        )
    evidence.append((True, _typical_steps(a, b, digits)))
    if kind == "serial":
        worth = [effective_size(times) for times in (a, b)]
        r = max(
            autocorrelation(each) for each, n in zip((a, b), worth, strict=True) if n < len(each)
        )
        least = min(worth)
        text = (
            f"Consecutive {unit.plural} are correlated ({r:.2f}): equivalent to {least:.0f}"
            " independent ones"
        )
        evidence.append((False, f"{text}; record longer, or several times"))
    if kind == "typical" and not difference.real:
        word = "slower" if a.max() < b.min() else "faster"
        evidence.append(
            (
                True,
                (
                    f"Every {unit.noun} after is {word} than every {unit.noun} before; outliers"
                    " widen the confidence interval of the mean"
                ),
            )
        )
    elif kind == "typical":
        mean = welch(a, b)
        text = (
            f"A few slow {unit.plural} hide the difference in the mean:"
            f" {_give_or_take(mean, digits)}"
        )
        evidence.append((False, text))
    if kind == "some":
        middle = trimmed(a, b)
        text = f"Without the fastest and slowest 20%: {_give_or_take(middle, digits)}"
        evidence.append((False, text))
    few = [(n, side_name) for n, side_name in ((len(a), "before"), (len(b), "after")) if n < ENOUGH]
    if few and kind != "same":
        text = ", ".join(f"{wording.plural(n, unit.noun)} {side_name}" for n, side_name in few)
        evidence.append((False, f"Only {text}: record {ENOUGH} or more"))
    elif len(a) != len(b):
        evidence.append(
            (False, f"The number of {unit.plural} differs: {len(a):,} before, {len(b):,} after")
        )
    return evidence


def _alike(before: Side, after: Side) -> list[tuple[bool, str]]:
    """What the runs have in common, what differs and what is unknown."""
    same: list[str] = []
    unknown: list[str] = []
    evidence: list[tuple[bool, str]] = []
    for name, a, b in [*_facts(before, after), *_versions(before, after)]:
        if a and b and a != b:
            evidence.append(
                (
                    False,
                    (
                        f"{name[0].upper()}{name[1:]} differs: {wording.cut(a, _LONGEST)} before,"
                        f" {wording.cut(b, _LONGEST)} after"
                    ),
                )
            )
        elif a and b:
            same.append(name)
        else:
            unknown.append(name)
    lines = [(True, f"Same {wording.listed(same)}")] if same else []
    half = [side.overview.get("compute_16bit_percent") for side in (before, after)]
    if half[0] is not None and half[1] is not None and abs(half[0] - half[1]) > _PRECISION_POINTS:
        evidence.append(
            (
                False,
                f"The share of 16-bit compute differs: {half[0]:.0f}% before, {half[1]:.0f}% after",
            )
        )
    kinds = [_kind(side) for side in (before, after)]
    if kinds[0] and kinds[1] and kinds[0] != kinds[1]:
        evidence.append(
            (
                False,
                (
                    f"The kinds of steps differ: {wording.cut(kinds[0], _LONGEST)} before,"
                    f" {wording.cut(kinds[1], _LONGEST)} after"
                ),
            )
        )
    units = [Unit.of(side.overview) for side in (before, after)]
    if units[0].kind != units[1].kind and comparable(before, after):
        evidence.append((False, f"Times are {units[0].per} before, {units[1].per} after"))
    for side, side_name in ((before, "before"), (after, "after")):
        if side.dropped:
            evidence.append(
                (
                    False,
                    (
                        f"{wording.plural(side.dropped, 'event')}"
                        f" {'was' if side.dropped == 1 else 'were'} dropped {side_name}"
                    ),
                )
            )
        if probe := side.overview.get("probe"):
            evidence.append(
                (
                    probe["measured_ms"] is not None,
                    f"{side_name.capitalize()}: {str(probe['text']).rstrip('.')}",
                )
            )
        if side.failed:
            evidence.append((False, f'The "{side_name}" cell failed, so its recording is partial'))
    if not per_step(before, after):
        evidence.append(
            (
                False,
                (
                    "Ops and kernels are compared by their time in the whole profile, and the"
                    " profiles may differ in length"
                ),
            )
        )
    if unknown:
        text = wording.listed(unknown)
        evidence.append(
            (
                False,
                (
                    f"{text[0].upper()}{text[1:]} {'was' if len(unknown) == 1 else 'were'} not"
                    " recorded: make sure they match"
                ),
            )
        )
    return lines + evidence


def _facts(before: Side, after: Side) -> list[tuple[str, str, str]]:
    """(name, before, after) of what should be the same; '' if unknown."""
    sides = before, after
    rows = [
        ("device", [_devices(side) for side in sides]),
        ("framework", [_framework(side) for side in sides]),
        ("number of hosts", [str(side.overview.get("hosts") or "") for side in sides]),
        ("batch size", [f"{size:g}" if (size := batch_size(side)) > 0 else "" for side in sides]),
        ("precision", [side.precision for side in sides]),
    ]
    figures = [(name, a, b) for name, (a, b) in rows]
    # One host each goes without saying.
    figures = [row for row in figures if row[0] != "number of hosts" or row[1:] != ("1", "1")]
    names = [
        ", ".join(
            sorted(
                _host(name) for name in (side.overview.get("environment") or {}).get("hosts") or []
            )
        )
        for side in sides
    ]
    if names[0] and names[1] and names[0] != names[1] and figures[0][1] == figures[0][2]:
        figures.append(("host", names[0], names[1]))
    return figures


def _host(name: object) -> str:
    # PyTorch names trace files by host, process and time of writing.
    return re.sub(r"(_\d+)?\.\d{10,}\Z", "", str(name))


def _versions(before: Side, after: Side) -> list[tuple[str, str, str]]:
    """Versions of the same software that differ."""
    a, b = (
        (side.overview.get("environment") or {}).get("versions") or {} for side in (before, after)
    )
    return [
        (f"version of {name}", str(a[name]), str(b[name]))
        for name in a
        if name in b and a[name] != b[name]
    ]


def _devices(side: Side) -> str:
    kind = str(side.overview.get("device_kind") or "")
    count = int(side.overview.get("devices") or 0)
    return f"{count} × {kind}" if count > 1 else kind


def _framework(side: Side) -> str:
    return str(side.overview.get("framework") or "")


def _kind(side: Side) -> str:
    used = side.steps[side.steps["counted"].astype(bool)] if len(side.steps) else side.steps
    return str(used["kind"].iloc[0]) if len(used) and "kind" in used.columns else ""


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
    return [
        (
            False,
            (
                f"Device compute changed too ({_change(change, digits)}): other kernels, another"
                " model or another batch"
            ),
        )
    ]


def record(verdict: Verdict, before: Side, after: Side) -> dict[str, Any]:
    """The row of `Comparison.verdict`."""
    a, b = (of_side[STEP] for of_side in times(before, after))
    means = [float(each.mean()) if len(each) else np.nan for each in (a, b)]
    return {
        "verdict": verdict.kind,
        "headline": verdict.headline,
        "detail": verdict.detail,
        "before_ms": means[0],
        "after_ms": means[1],
        "change_ms": verdict.difference.change,
        "margin_ms": verdict.difference.margin,
        "speedup": means[0] / means[1] if means[1] > 0 else np.nan,
        "before_steps": len(a),
        "after_steps": len(b),
    }
