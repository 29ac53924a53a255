"""The figures of a profile that a gate holds, each known or with the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nbprof.activity.unit import KINDS as KINDS_OF_UNITS
from nbprof.activity.unit import Unit, best
from nbprof.analysis import contention
from nbprof.analysis.compare.compare import STEP, by_step
from nbprof.analysis.compare.repeats import Repeat, repeat
from nbprof.analysis.device_time.use import costs
from nbprof.analysis.steps.per_step import Count, counts
from nbprof.core.errors import NbprofError
from nbprof.core.units import size_text
from nbprof.run.run import Run

DISTURBED = 0.05
"""Part of the cores that others took, while threads waited for one: less than for a verdict (20 %),
since 5 % of a step count here.
"""


class Kind(NamedTuple):
    """How a figure is called, with fields of `Unit.fill`, and how its values are written."""

    called: str
    text: Callable[[float], str]

    def title(self, unit: Unit) -> str:
        """How it is called where it is given per such a unit."""
        # A recording that is the only unit has the start of the program in it.
        return unit.fill(self.called).removesuffix(" after warm-up" if unit.whole else "")


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"


def _size(value: float) -> str:
    return size_text(round(value))


KINDS: dict[str, Kind] = {
    "kernels": Kind("kernels {per}", _plain),
    "launches": Kind("kernel launches {per}", _plain),
    "syncs": Kind("waits of the host for the device {per}", _plain),
    "recompiles": Kind("compilations after warm-up", _plain),
    "pageable_copies": Kind("copies from or to pageable memory {per}", _plain),
    "collective_bytes": Kind("bytes in collectives {per}", _size),
    "flops": Kind("FLOPs {per}", lambda value: f"{value:.6g}"),
    "peak_memory": Kind("peak memory", _size),
    "dropped": Kind("dropped events", _plain),
}
"""The figures that have a limit, by the names of the methods of
`nbprof.gate.expect.Expectation`.
"""


OF_UNITS = (
    "kernels",
    "launches",
    "syncs",
    "recompiles",
    "pageable_copies",
    "collective_bytes",
    "flops",
)
"""Those of them that are given per unit of work."""


class Figure(NamedTuple):
    """A figure of all repeats: the largest.

    Attributes
    ----------
    value : float or None
    unknown : str
        Why it is not known, or may be larger; '' where it is certain.
    """

    value: float | None
    unknown: str


def figure(runs: Sequence[Run], name: str) -> Figure:
    """A figure by its name in `KINDS`: the largest of the repeats, certain where it is certain in
    each.
    """
    values, reasons = [], []
    for run in runs:
        found = _READ[name](run)
        if found.value is not None:
            values.append(found.value)
        # Events that are missing only make a count smaller: one over its limit stays over it.
        if reason := found.unknown or ("" if name == "dropped" else doubt(run)):
            reasons.append(reason)
    return Figure(max(values, default=None), next(iter(reasons), ""))


def unit_of(runs: Sequence[Run]) -> Unit:
    """What figures of some repeats are given per; of repeats that differ in it the best, and
    `other_units` says so.
    """
    return best([Unit.of(run.overview) for run in runs])


def other_units(runs: Sequence[Run], kind: str = "") -> str:
    """Why figures per unit of some repeats cannot be compared, with each other or with those of a
    baseline; '' if they can.

    Parameters
    ----------
    runs : sequence of Run
    kind : str
        The kind of unit that a baseline is of.
    """
    kinds = {Unit.of(run.overview).kind for run in runs}
    if len(kinds) > 1:
        return (
            "some of the profiles are given"
            f" {' and some '.join(Unit(one).per for one in KINDS_OF_UNITS if one in kinds)}"
        )
    if kind and kinds and kind not in kinds:
        return (
            f"figures of the baseline are {Unit(kind).per}, those of the profile"
            f" {Unit(kinds.pop()).per}"
        )
    return ""


def doubt(run: Run) -> str:
    """Why no figure of a recording is certain: what its receipt warns of; '' if of nothing."""
    elsewhere = {note.text for note in run.between_hosts}
    warnings = [
        line.text.rstrip(".")
        for line in run.receipt.lines
        if line.level == "warning" and line.text not in elsewhere
    ]
    more = f" (and {len(warnings) - 1} more in its receipt)" if len(warnings) > 1 else ""
    return f"the recording is in doubt: {warnings[0]}{more}" if warnings else ""


def repeats(runs: Sequence[Run]) -> tuple[list[Repeat], str]:
    """The step times of each repeat that other processes did not disturb, and why times are not
    certain.

    A baseline that was recorded on a busy machine would let any slowdown pass on a quiet one, and
    the other way round.
    """
    times = [by_step(run.steps)[STEP] for run in runs]
    if not all(len(each) for each in times):
        return (
            [],
            (
                "no steps were found, so step time is unknown: mark them with nbprof.steps() or"
                " nbprof.step()"
            ),
        )
    if reason := next((reason for run in runs if (reason := doubt(run))), ""):
        return [], reason
    busy = [disturbed(run) for run in runs]
    found = [repeat(each) for each, other in zip(times, busy, strict=True) if not other]
    if 2 * len(found) < len(runs):
        # What is left has been disturbed too, only by less.
        first = next(text for text in busy if text).rstrip(".")
        return (
            [],
            (
                f"other processes interfered with {len(runs) - len(found)} of {len(runs)}"
                f" recordings: {first[:1].lower()}{first[1:]}"
            ),
        )
    return found, ""


def disturbed(run: Run) -> str:
    """What other processes took while a run was recorded; '' if little, or if it is not known."""
    return (
        contention.sentence(run.capture.contention, DISTURBED, run.activity.unit)
        if run.capture is not None
        else ""
    )


def _of_steps(name: str) -> Callable[[Run], Count]:
    def read(run: Run) -> Count:
        try:
            collectives = run.device_time.each_collective()
            found: dict[str, Count] = run.memo.get(
                "gate_counts", lambda: counts(run.activity, run.steps, collectives)
            )
        except NbprofError as error:
            # Of hosts that were read apart.
            return Count(None, str(error).rstrip("."))
        return found[name]

    return read


def _flops(run: Run) -> Count:
    """Those of compiled programs in the whole recording, over its steps, as `compare` has the time
    of ops.
    """
    if not len(run.steps):
        return Count(None, "no steps were found")
    try:
        found = costs(run.activity)["flops"]
    except NbprofError as error:
        return Count(None, str(error).rstrip("."))
    return (
        Count(None, "no op of a compiled program that ran on a device has FLOPs")
        if found is None
        else Count(found / len(run.steps))
    )


def _peak_memory(run: Run) -> Count:
    value = run.overview["peak_memory_bytes"]
    if value is not None:
        return Count(float(value))
    reason = run.missing.get("memory", "no allocations were recorded").rstrip(".")
    return Count(None, f"{reason[:1].lower()}{reason[1:]}")


_READ: dict[str, Callable[[Run], Count]] = {
    **{
        name: _of_steps(name)
        for name in (
            "kernels",
            "launches",
            "syncs",
            "recompiles",
            "pageable_copies",
            "collective_bytes",
        )
    },
    "flops": _flops,
    "peak_memory": _peak_memory,
    "dropped": lambda run: Count(float(run.receipt.dropped)),
}
