"""Host, device and group of the events of a trace, each column computed when first needed."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.activity.unit import MARKED, NONE, Unit
from nbprof.core.factorize import heads, starting
from nbprof.core.trace import Int32s, Trace
from nbprof.dialects.iterations import Placed as Iterations
from nbprof.dialects.iterations import Spans, computed_items
from nbprof.dialects.iterations import placed as placed_iterations
from nbprof.dialects.lookups import host_of_lanes
from nbprof.dialects.xplane import ahead, units
from nbprof.dialects.xplane.grouping import Groups, group, of_callers
from nbprof.dialects.xplane.programs import EAGER_OP, ProgramSteps, find

Flags = npt.NDArray[np.bool_]
_WAITING = 0.05
"""Part of the time of a loop that it waits for its items, from which on the wait is a part of its
steps.
"""


class Placed:
    """A trace whose lanes have kinds, with its events placed.

    Parameters
    ----------
    trace : Trace
    gpu_planes : list of int
        Planes of GPUs, by their number in `trace.planes`.
    """

    def __init__(self, trace: Trace, gpu_planes: list[int]) -> None:
        self.trace = trace
        self.gpu_planes = gpu_planes
        self.lane_kind = trace.lanes["kind"].to_numpy()
        self.unusable: Flags = np.zeros(len(trace.events), np.bool_)
        """bool[events]: work on devices without a time that can be."""

    @cached_property
    def host(self) -> Int32s:
        """int32[events]: index into `trace.hosts`."""
        return host_of_lanes(self.trace)[self.trace.events.lane]

    @cached_property
    def device(self) -> Int32s:
        """int32[events]: ordinal of the device, -1 on a host."""
        return np.asarray(
            self.trace.lanes["device"].to_numpy(np.int32)[self.trace.events.lane], np.int32
        )

    @cached_property
    def on_host(self) -> Flags:
        """bool[events]: on a host thread."""
        return np.asarray((self.lane_kind == "host")[self.trace.events.lane], np.bool_)

    @cached_property
    def on_gpu(self) -> Flags:
        """bool[events]: recorded on a GPU, not derived from what was."""
        lanes = self.trace.lanes
        of_lane = (self.lane_kind == "device") & lanes["plane"].isin(self.gpu_planes).to_numpy()
        return np.asarray(of_lane[self.trace.events.lane] & ~self.unusable, np.bool_)

    @cached_property
    def groups(self) -> Groups:
        """The step that each event belongs to, by the marks in the file, as XProf has it."""
        return group(self.trace, self.trace.names)

    @cached_property
    def marked_group(self) -> Int32s:
        """int32[events]: the marked step that each event belongs to; -1 for none."""
        return of_callers(self.trace, self.groups, self.host.astype(np.int64))

    @cached_property
    def program_steps(self) -> ProgramSteps | None:
        """Steps by runs of compiled programs, unmarked or with later ends than marked; or None."""
        return self._units[0]

    @property
    def unit(self) -> Unit:
        """The unit of the steps."""
        return self._units[1]

    @cached_property
    def _units(self) -> tuple[ProgramSteps | None, Unit]:
        arguments = self.trace, self.groups, self.host, self.lane_kind
        program_steps, dispatched = find(*arguments), ahead.find(*arguments)
        steps = dispatched if program_steps is None else program_steps.with_hosts(dispatched)
        iterations = self.iterations
        if iterations is not None and dispatched is None and not self._marked:
            if not _same_loop(program_steps, iterations):
                return units.of_iterations(self.trace, self.groups, iterations), iterations.unit
            steps = from_the_loop(program_steps, iterations)
        if steps is not None or self.trace.units == NONE or self._marked:
            return steps, MARKED
        return units.find(*arguments)

    @cached_property
    def iterations(self) -> Iterations | None:
        """Iterations of a notebook's loop that were recorded next to the trace."""
        return placed_iterations(self.trace)

    @cached_property
    def waits_of_iterations(self) -> bool:
        """True if the units are iterations that wait for items."""
        iterations = self.iterations
        if iterations is None or self.unit is not iterations.unit or not iterations.waits:
            return False
        return not iterations.compute_items(self._products)

    @cached_property
    def computed_items(self) -> Flags:
        """bool[events]: waits of `nbprof.steps` for items, if the program computes them there."""
        waits = self.on_host & self.named(act.NEXT_ITEM)[self.trace.events.name]
        rows = np.flatnonzero(waits)
        if not len(rows):
            return waits
        return waits & computed_items(self.trace, rows, self._products)

    @cached_property
    def _products(self) -> Spans:
        """Matrix products, convolutions and attention that the host called."""
        # Late, as most profiles have no loop that waits.
        from nbprof.dialects.xplane import product_calls

        rows = product_calls.find(self.trace, np.flatnonzero(self.on_host))
        return Spans.of_rows(self.trace, rows)

    @property
    def _marked(self) -> bool:
        """True if the file marks a step; runs of eager ops and of CPU functions do not count."""
        in_step = self.groups.group >= 0
        on_device = (self.lane_kind == "steps")[self.trace.events.lane] | self.on_gpu
        if (in_step & on_device).any():
            return True
        mended = np.zeros(0, np.int64)
        if "step_name" in self.trace.args:
            mended = self.trace.text_arg("step_name")[in_step]
        texts = [*self.groups.names.values(), *self.trace.texts(np.unique(mended))]
        named = any(text and not text.isdigit() and not text.startswith(EAGER_OP) for text in texts)
        return named or bool(
            np.isin(
                np.flatnonzero(self.named("train", "test", "TraceContext")),
                self.trace.events.name[in_step],
            ).any()
        )

    @cached_property
    def step_group(self) -> Int32s:
        """int32[events]: the marked or found step of each event, -1 for none."""
        if self.program_steps is None:
            return self.marked_group
        return self.program_steps.assign(self.trace, self.groups.group, self.host)

    @cached_property
    def empty_text(self) -> int:
        """Code of the empty text in `trace.strings`, whose texts are unique; -2 if it has none."""
        strings = self.trace.strings
        return strings.index("") if "" in strings else -2

    def named(self, *starts: str) -> Flags:
        """bool[names]: whether a name starts with one of the texts."""
        return starting(self._heads, *starts)

    @cached_property
    def _heads(self) -> npt.NDArray[np.str_]:
        return heads(self.trace.names)


def from_the_loop(
    program_steps: ProgramSteps | None, iterations: Iterations
) -> ProgramSteps | None:
    """The same steps, the first beginning with its iteration: earlier host work is part of it."""
    if program_steps is None:
        return None
    begin = program_steps.table["begin"].to_numpy(np.int64).copy()
    first = int(begin.argmin())
    if iterations.start[0] <= begin[first] < iterations.end[0]:
        begin[first] = iterations.start[0]
    return replace(program_steps, table=program_steps.table.assign(begin=begin))


def _same_loop(program_steps: ProgramSteps | None, iterations: Iterations) -> bool:
    """True if runs of a program are those of a loop: they are more exact, by the device's end.

    They do not tell how long the loop waits for its items, where that is a part of it worth
    knowing.
    """
    waited = (iterations.item - iterations.start).sum() / max(
        int((iterations.end - iterations.start).sum()), 1
    )
    if program_steps is None or (iterations.waits and waited >= _WAITING):
        return False
    programs = program_steps.table["name"].str.rpartition(" ")[0].value_counts()
    # An iteration that was interrupted may have run its program.
    return 0 <= int(programs.iloc[0]) - len(iterations.start) <= 1
