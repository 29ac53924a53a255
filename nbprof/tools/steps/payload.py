"""The step-time graph: every step with its categories."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.unit import STEP, Unit
from nbprof.analysis.steps import step_count
from nbprof.analysis.steps.bare import FEWEST
from nbprof.analysis.steps.boundaries import boundaries
from nbprof.analysis.steps.step_rows import turns
from nbprof.analysis.steps.warmup import about_crowded, crowded
from nbprof.display import wording
from nbprof.display.categories import CATEGORIES
from nbprof.display.codec import coded, short
from nbprof.tools.common import framework_of, unit_of, unknown, without_work
from nbprof.tools.parts import Empty
from nbprof.tools.steps.parts import Boundary, Clock, Steps
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from nbprof.run.run import Run

Flags = npt.NDArray[np.bool_]

NO_STEPS = Empty(
    title="No steps found, so step time is unknown.",
    text=(
        "No step markers were found. %%nbprof marks the steps of model.fit automatically; mark"
        " those of your own loop:"
    ),
    code="import nbprof\n\nfor batch in ds:\n    with nbprof.step():\n        train_step(batch)",
)

NO_WORK = Empty(
    title="The recording contains no work.",
    text="No op, kernel, copy or allocation was recorded, so there is nothing to analyse.",
)

_NUMBER = re.compile(r"[\s_#:]*\d+\Z")
"""The number behind the name of a step, with what separates them."""

MOST_ROWS = 12_000
"""Steps of several hosts that a report holds one by one; of more it has the mean over the hosts."""
MOST_CLOCKED = 2_000
"""Steps of the clock that are drawn."""
_FEWEST = 3
"""Steps of which one is called typical."""


def no_steps(run: Run) -> Empty:
    """Why there are no steps, and what marks them."""
    if run.capture is None and (plain := unknown(run, "steps", NO_STEPS.title)):
        return plain
    if without_work(run):
        return NO_WORK
    words = framework_of(run).words
    hint = words.mark_steps
    if run.capture is not None and words.mark_steps_in_cell is not None:
        hint = words.mark_steps_in_cell
    if hint is None:
        return NO_STEPS
    return Empty(title=hint.title, text=hint.text, code=hint.code)


def payload(run: Run) -> Steps:
    """Times by step and category; a category that was not recorded is absent."""
    every, steps, unit = run.steps, run.steps, unit_of(run)
    merged = len(steps) > MOST_ROWS and steps["host"].nunique() > 1
    if merged:
        steps = _over_hosts(steps)
    hosts = coded([] if merged else steps["host"].tolist())
    names = [str(name) if isinstance(name, str) else "" for name in steps["name"]]
    part = Steps(
        empty=no_steps(run) if steps.empty else None,
        step=steps["step"].to_numpy(np.int32),
        name=names,
        start_ms=_times(steps, "start_ms"),
        step_time_ms=_times(steps, "step_time_ms"),
        categories={c.key: _times(steps, c.column) for c in recorded(steps)},
        prefix=prefix(names),
        hosts=hosts.values,
        noun=None if unit.kind == STEP else unit.noun,
        typical=_typical(steps),
    )
    if not (counted := steps["counted"].astype(bool)).all():
        part.warmup = (~counted).to_numpy().astype(np.uint8)
        part.left_out = _left_out(every, unit)
    recorded_ones = []
    if run.capture is not None:
        recorded_ones = run.capture.boundaries
    if bounds := boundaries(steps, recorded_ones, unit):
        part.boundaries = [Boundary(row=bound.row, text=bound.text) for bound in bounds]
    if merged:
        mean = f"Each {unit.noun} is the mean of {every['host'].nunique():,} hosts."
        part.left_out = " ".join([part.left_out or "", mean]).strip()
    if len(hosts.values) > 1 or (len(run.hosts) > 1 and len(steps)):
        part.count = step_count.format_count(every, len(run.hosts), unit)
    if len(hosts.values) > 1:
        part.host = hosts.codes.astype(np.uint16)
    part.clock = _clock(run)
    return part


def _clock(run: Run) -> Clock | None:
    """The steps by the wall clock; None where all were recorded, or a few were not."""
    times, measured = run.step_times, run.bare_steps
    if times is None:
        return None
    recorded = times.recorded
    bare = len(recorded) - int(recorded.sum())
    if bare < FEWEST or bare == len(recorded):
        return None
    ms = (times.end - times.start) / 1e6
    # Peaks remain.
    size = -(-len(ms) // MOST_CLOCKED)
    first = np.arange(0, len(ms), size)
    longest = np.maximum.reduceat(ms, first)
    scope = f"{wording.plural(times.count, 'step')}, {len(recorded) - bare:,} recorded"
    if times.count > len(recorded):
        scope += f", the first {len(recorded):,} timed"
    if not measured.reason:
        median, low, high = (
            wording.number(value, 2)
            for value in (measured.median_ms, measured.low_ms, measured.high_ms)
        )
        time = f"{median} ms [{low}, {high}]"
        if measured.note:
            scope += f"; without recording a step takes {time}: {measured.note}"
        else:
            scope += f"; without recording the median is {time}"
    return Clock(
        step=(first + 1).astype(np.int32),
        start_s=times.start[first] / 1e9,
        ms=longest,
        recorded=np.maximum.reduceat(recorded.astype(np.uint8), first),
        scope=scope,
    )


def nothing(title: str, text: str) -> Steps:
    """The part without steps, which says why there are none."""
    none = np.zeros(0, np.float64)
    return Steps(
        empty=Empty(title=title, text=text),
        step=np.zeros(0, np.int32),
        name=[],
        start_ms=none,
        step_time_ms=none,
        categories={},
        prefix="",
        hosts=[],
    )


def _over_hosts(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per step of the job: the mean of its hosts, of those where it counts if it counts on
    any.

    Numbers are labels and may repeat on a host: the first, second … step of a number on each host
    are one step.
    """
    keys = ["turn", "step"]
    steps = steps.assign(turn=turns(steps))
    counted = steps["counted"].astype(bool)
    used = steps[counted | ~counted.groupby([steps[key] for key in keys]).transform("any")]
    by_number = used.groupby(keys, sort=True)
    means = by_number.first()
    times = ["step_time_ms", *(c.column for c in CATEGORIES)]
    means[times] = by_number[times].mean()
    means["start_ms"] = by_number["start_ms"].min()
    return means.reset_index().drop(columns="turn")


def _typical(steps: pd.DataFrame) -> int | None:
    """The row of a step of median length among those that count; of an even number the shorter of
    the two. None of fewer than three.
    """
    rows = np.flatnonzero(steps["counted"].to_numpy(bool))
    if len(rows) < _FEWEST:
        return None
    order = rows[np.argsort(floats(steps["step_time_ms"])[rows], kind="stable")]
    return int(order[(len(order) - 1) // 2])


def recorded(steps: pd.DataFrame) -> list[Any]:
    """The categories that the producer recorded, in stack order."""
    return [c for c in CATEGORIES if steps.empty or steps[c.column].notna().any()]


def prefix(names: list[str]) -> str:
    """The common text before the number of all step names: "train" for "train 500", "train 501";
    else "".
    """
    head: str | None = None
    for name in names:
        match = _NUMBER.search(name)
        if match is None or head not in (None, name[: match.start()]):
            return ""
        head = name[: match.start()]
    return head or ""


def _times(steps: pd.DataFrame, key: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return short(floats(steps[key]))


def _of_each(chosen: Flags, steps: pd.DataFrame) -> int:
    """The number of chosen steps; for several hosts that of the host with the most."""
    return max(Counter(steps["host"].to_numpy(object)[chosen].tolist()).values(), default=0)


def _named(rows: Flags, steps: pd.DataFrame, unit: Unit) -> str:
    """The step by its number, if the hosts have one in common; else ""."""
    numbers = steps.loc[rows, "step"].unique()
    if len(numbers) != 1 or numbers[0] < 0:
        return ""
    return f"{unit.noun} {int(numbers[0])}"


def _left_out(steps: pd.DataFrame, unit: Unit) -> str:
    """A sentence on the steps that averages exclude."""
    warm, recorder_lost, incomplete, counted = (
        steps[name].to_numpy(np.bool_) for name in ("warmup", "lost", "cut", "counted")
    )
    kind = steps["kind"].to_numpy(object)
    main = kind == kind[counted][0]
    parts = []
    if first := _of_each(warm & main, steps):
        name = _named(warm & main, steps, unit) or f"the first {first} {unit.plural}"
        parts.append(f"{name} (warm-up)")
    for name, count in Counter(kind[~main].tolist()).most_common():
        parts.append(f"{count} {name} {unit.plural}")
    of_kind = ~warm & main
    lost = recorder_lost & of_kind
    truncated = incomplete & of_kind & ~lost
    full = crowded(steps).to_numpy(np.bool_) & of_kind & ~lost & ~truncated & ~counted
    early, late = _at_the_ends(truncated, counted, steps["host"].to_numpy(object))
    groups = (
        ("", lost & ~counted, "the recorder lost device work"),
        ("the first", early, "start not recorded"),
        ("another", truncated & ~early & ~late, "between two loops"),
        ("the last", late, "cut off by the end of the recording"),
    )
    for position, rows, reason in groups:
        if rows.any():
            parts.append(f"{_excluded(position, rows, steps, unit)} ({reason})")
    if full.any():
        parts.append(about_crowded(steps, unit))
    return f"Averages exclude {' and '.join(parts)}."


def _at_the_ends(truncated: Flags, counted: Flags, host: npt.NDArray[Any]) -> tuple[Flags, Flags]:
    """Of each host the truncated steps before its first step that counts, and those behind its
    last.
    """
    early, late = np.zeros((2, len(truncated)), np.bool_)
    for name in dict.fromkeys(host.tolist()):
        rows = np.flatnonzero(host == name)
        before = np.cumsum(counted[rows])
        early[rows] = truncated[rows] & (before == 0) & (before[-1] > 0)
        late[rows] = truncated[rows] & ~early[rows] & (before == before[-1])
    return early, late


def _excluded(position: str, rows: Flags, steps: pd.DataFrame, unit: Unit) -> str:
    """`step 7`, or `the last 2 steps`, with the host if the steps of only one are excluded."""
    count = _of_each(rows, steps)
    noun = wording.plural(count, unit.noun, unit.plural)
    if count == 1 and position:
        noun = unit.noun
    text = _named(rows, steps, unit) or f"{position} {noun}".lstrip()
    hosts = steps.loc[rows, "host"].unique().tolist()
    if len(hosts) == 1 and steps["host"].nunique() > 1:
        text += f" of {hosts[0]}"
    return text
