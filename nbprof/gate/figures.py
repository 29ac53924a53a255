"""The figures of a profile that a gate checks, each known or with the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nbprof.activity.unit import KINDS as KINDS_OF_UNITS
from nbprof.activity.unit import Unit, best
from nbprof.analysis import contention
from nbprof.analysis.compare.compare import STEP, by_step, why_not_bare
from nbprof.analysis.compare.repeats import Repeat, repeat
from nbprof.analysis.device_time.use import costs
from nbprof.analysis.steps.per_step import Count, counts
from nbprof.core.errors import NbprofError
from nbprof.core.units import size_text
from nbprof.run.run import Run

DISTURBED = 0.05
"""Fraction of the cores that other processes may take while threads wait for one: less than for a
verdict (20 %), since 5 % of a step count here.
"""


class Kind(NamedTuple):
    """A figure that has a limit.

    Attributes
    ----------
    template : str
        Its name, with fields of `Unit.fill`.
    text : callable
        Formats its values.
    """

    template: str
    text: Callable[[float], str]

    def title(self, unit: Unit) -> str:
        """Its name when it is given per a unit."""
        title = unit.fill(self.template)
        # A recording that is the only unit includes the start of the program.
        return title.removesuffix(" after warm-up") if unit.is_recording else title


def _number_text(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"


def _size(value: float) -> str:
    return size_text(round(value))


KINDS: dict[str, Kind] = {
    "kernels": Kind("kernels {per}", _number_text),
    "launches": Kind("kernel launches {per}", _number_text),
    "syncs": Kind("waits of the host for the device {per}", _number_text),
    "recompiles": Kind("compilations after warm-up", _number_text),
    "pageable_copies": Kind("copies from or to pageable memory {per}", _number_text),
    "collective_bytes": Kind("bytes in collectives {per}", _size),
    "flops": Kind("FLOPs {per}", lambda value: f"{value:.6g}"),
    "peak_memory": Kind("peak memory", _size),
    "dropped": Kind("dropped events", _number_text),
}
"""The figures that have a limit, by the methods of `nbprof.gate.expect.Expectation`."""


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
        Why it is unknown or may be larger; '' if it is certain.
    """

    value: float | None
    unknown: str


def figure(runs: Sequence[Run], name: str) -> Figure:
    """The largest value of the repeats, by a name in `KINDS`; certain if it is certain in each."""
    values, reasons = [], []
    for run in runs:
        count = _READ[name](run)
        if count.value is not None:
            values.append(count.value)
        reason = count.unknown
        if not reason and name != "dropped":
            # Missing events only make a count smaller: one over its limit stays over it.
            reason = doubt(run)
        if reason:
            reasons.append(reason)
    return Figure(max(values, default=None), next(iter(reasons), ""))


def unit_of(runs: Sequence[Run]) -> Unit:
    """The unit that figures of repeats are given per: the best, if they differ (`other_units`)."""
    return best([Unit.of(run.overview) for run in runs])


def other_units(runs: Sequence[Run], kind: str = "") -> str:
    """Why figures per unit of repeats cannot be compared with each other or with a baseline.

    Parameters
    ----------
    runs : sequence of Run
    kind : str
        The kind of unit of the baseline.

    Returns
    -------
    str
        '' if they can be compared.
    """
    kinds = {Unit.of(run.overview).kind for run in runs}
    if len(kinds) > 1:
        units = [Unit(unit).per for unit in KINDS_OF_UNITS if unit in kinds]
        return f"some of the profiles are given {' and some '.join(units)}"
    if kind and kinds and kind not in kinds:
        return (
            f"figures of the baseline are {Unit(kind).per}, those of the profile"
            f" {Unit(kinds.pop()).per}"
        )
    return ""


def doubt(run: Run) -> str:
    """Why no figure of a recording is certain: the warnings of its receipt; '' without any."""
    between_hosts = set(run.between_hosts)
    warnings = [
        note for note in run.receipt.lines if note.level == "warning" and note not in between_hosts
    ]
    if not warnings:
        return ""
    reason = f"the recording is in doubt: {warnings[0].text.rstrip('.')}"
    if len(warnings) > 1:
        reason += f" (and {len(warnings) - 1} more in its receipt)"
    return reason


class Times(NamedTuple):
    """Step times of the repeats of a run.

    Attributes
    ----------
    recorded : list of Repeat
        Of the steps in averages.
    reason : str
        Why they are uncertain; '' if they are not.
    bare : list of Repeat
        Of the steps that ran without the profiler, of those repeats that have some.
    bare_reason : str
        Why there are none; '' if there are.
    """

    recorded: list[Repeat]
    reason: str
    bare: list[Repeat]
    bare_reason: str

    @property
    def value(self) -> float | None:
        """The mean bare step in ms, else the mean recorded one; None if neither is known."""
        means = [repeat.mean for repeat in self.bare or self.recorded]
        return sum(means) / len(means) if means else None


def repeats(runs: Sequence[Run]) -> Times:
    """Step times of the repeats that other processes did not disturb.

    A baseline that was recorded on a busy machine would let any slowdown pass on a quiet one, and
    the other way round.
    """
    times = [by_step(run.steps)[STEP] for run in runs]
    if not all(map(len, times)):
        return _unknown(
            "no steps were found, so step time is unknown: mark them with nbprof.steps() or"
            " nbprof.step()"
        )
    reason = next(filter(None, map(doubt, runs)), "")
    if reason:
        return _unknown(reason)
    recorded, bare = [], []
    disturbances, without_bare = [], []
    for run, step_times in zip(runs, times, strict=True):
        disturbance = disturbed(run)
        if disturbance:
            disturbances.append(disturbance)
            continue
        recorded.append(repeat(step_times))
        bare_reason = why_not_bare(run.bare_steps, Unit.of(run.overview))
        if bare_reason:
            without_bare.append(bare_reason)
        else:
            bare.append(repeat(run.bare_steps.durations_ms))
    if 2 * len(recorded) < len(runs):
        # The others have been disturbed as well, only by less.
        return _unknown(
            f"other processes interfered with {len(disturbances)} of {len(runs)} recordings:"
            f" {_clause(disturbances[0])}"
        )
    return Times(recorded, "", bare, "" if bare else without_bare[0])


def _unknown(reason: str) -> Times:
    return Times([], reason, [], reason)


def disturbed(run: Run) -> str:
    """What other processes took during the recording; '' if little, or if it is unknown."""
    if run.capture is None:
        return ""
    return contention.sentence(run.capture.contention, DISTURBED, run.activity.unit)


def _clause(sentence: str) -> str:
    """A sentence as a clause: without its full stop, and in lower case."""
    return f"{sentence[:1].lower()}{sentence[1:]}".rstrip(".")


def _per_step(name: str) -> Callable[[Run], Count]:
    def read(run: Run) -> Count:
        try:
            collectives = run.device_time.each_collective()
            by_name: dict[str, Count] = run.memo.get(
                "gate_counts", lambda: counts(run.activity, run.steps, collectives)
            )
        except NbprofError as error:
            # Not available for hosts that were read separately.
            return Count(None, str(error).rstrip("."))
        return by_name[name]

    return read


def _flops(run: Run) -> Count:
    """FLOPs of compiled programs in the recording per step, as `compare` has the time of ops."""
    if not len(run.steps):
        return Count(None, "no steps were found")
    try:
        flops = costs(run.activity)["flops"]
    except NbprofError as error:
        return Count(None, str(error).rstrip("."))
    if flops is None:
        return Count(None, "no op of a compiled program that ran on a device has FLOPs")
    return Count(flops / len(run.steps))


def _peak_memory(run: Run) -> Count:
    value = run.overview["peak_memory_bytes"]
    if value is not None:
        return Count(float(value))
    return Count(None, _clause(run.missing.get("memory", "no allocations were recorded")))


_READ: dict[str, Callable[[Run], Count]] = {
    "kernels": _per_step("kernels"),
    "launches": _per_step("launches"),
    "syncs": _per_step("syncs"),
    "recompiles": _per_step("recompiles"),
    "pageable_copies": _per_step("pageable_copies"),
    "collective_bytes": _per_step("collective_bytes"),
    "flops": _flops,
    "peak_memory": _peak_memory,
    "dropped": lambda run: Count(float(run.receipt.dropped)),
}
