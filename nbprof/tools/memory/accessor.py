"""`p.memory`: allocators, their timeline, and what was alive at any moment."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.core.strings import python_strings
from nbprof.schema import frames
from nbprof.tools.accessor import View

if TYPE_CHECKING:
    from bokeh.model import Model


class Memory(View):
    """Memory by allocator, as in the memory profile of the TensorFlow guide.

    Sources: the events MemoryAllocation and MemoryDeallocation that the allocators of TensorFlow,
    JAX and XLA write, and `[memory]` of PyTorch. Each states the allocator after it: stack
    (reserved) and heap bytes in use, bytes free, and fragmentation, which is the part of the free
    bytes outside the largest free block. What an allocator does not report is NA, never 0; XProf
    shows 0 there. If the bytes in use are not stated (PyTorch before 1.11), they are summed from
    the blocks, from the smallest start that never goes below 0.

    - In use is stack and heap together. The peak is its maximum; the last one of equal maxima, as
      in XProf.
    - A deallocation has the op, region, type and shape of the block at its address. A second
      allocation at a live address does not change whose block it is.
    - `step` is the number that `p.steps` has; XProf shows the recorder's id of the step. An event
      outside any step gets the step after the last one that its allocator saw, as in XProf; NA if
      no such step is listed.
    - The lifetime peak is the largest that was stated or seen. XProf takes the last that was
      stated, in the order of the file, which can be below the peak in the profile.
    - Times count from the start of the profile; XProf's from the start of the host's lines.
    """

    def _there(self) -> bool:
        return len(self._profile.run.memory_summary) > 0

    def _table(self) -> pd.DataFrame | None:
        return self.summary

    @property
    def summary(self) -> pd.DataFrame:
        """One row per allocator, largest peak first: counts, capacity (in use and free at the
        peak), lifetime peak, the peak in parts.
        """
        from nbprof.analysis.memory import memory

        run = self._profile.run
        rows = run.memory_summary.rename(columns={"peak_group": "group", "peak_host": "host"})
        summary = (
            memory.numbered(rows, run.steps, run.hosts)
            .drop(columns=["host", "group"])
            .rename(columns={"step": "peak_step"})
        )
        return _with_na(summary, "memory.summary")

    @property
    def timeline(self) -> pd.DataFrame:
        """Allocations and deallocations in time order, each with the allocator's state after it."""
        from nbprof.analysis.memory import memory

        timeline: pd.DataFrame = self._profile.run.memory_timeline
        return _with_na(timeline.drop(columns=memory.INTERNAL), "memory.timeline")

    @property
    def peak(self) -> pd.DataFrame:
        """Blocks alive at the peak of each allocator, largest first; equal ones are one row with
        their number.

        Blocks of the step of the peak are listed one by one, as in the guide; the rest of the heap
        is one row, `unused preallocated device memory` (what TensorFlow holds from earlier:
        weights, and what it set aside). The rows add up to the bytes in use. PyTorch's blocks are
        followed from the begin of the recording; there the rest is `allocated before the
        recording`. A block that an event of another step freed is not alive; XProf looks at the
        step's own events, so that its rows can add up to less. Of equal peaks XProf shows the time
        of one and the blocks of another's step; here both are of one moment.
        """
        peak: pd.DataFrame = self._profile.run.memory_peak
        return peak.copy()

    @property
    def ops(self) -> pd.DataFrame:
        """Bytes that each op itself allocated and freed, largest increase first; events in no op
        are a row with an empty op.

        An event counts for the innermost op around it, a deallocation too. The increase is what
        PyTorch's `key_averages()` calls self memory usage, and its TensorBoard plugin self size
        increase.
        """
        ops: pd.DataFrame = self._profile.run.memory_ops
        return ops.copy()

    @property
    def roles(self) -> pd.DataFrame:
        """Memory by role at the peak of each allocator of PyTorch and TensorFlow, most first.

        Roles of memory in use add up to its bytes exactly; what no source proves is `unknown`.
        Sources: the parameters, buffers and optimizer state of the program's own objects, and of
        PyTorch the gradients, where nbprof recorded it, by their addresses; in any trace the ops in
        which a block was allocated and freed. Of PyTorch, allocated in an optimizer's step and kept
        is its state; allocated by the backward pass and there while an optimizer steps, or freed by
        `zero_grad`, or of TensorFlow by an op of the optimizer, is a gradient; freed by the
        backward pass, or the result of an op that has a gradient, is an activation; allocated and
        freed in one op or one pass is temporary. Keys and values in a cache of transformers are its
        KV cache, after each token of `generate` and at the end.
        Of tensors that were there before the recording it has the bytes of their storage, without
        what the allocator rounds up.

        Of TensorFlow on a GPU, a recording says which op allocated a block, but rarely which one
        freed it. There a block of a layer that is in use when the backward pass has begun is an
        activation, and gradients are only the results of ops that compute those of filters and
        biases; of other products, such as those of dense layers, the role is unknown. An op that
        assigns to a variable may give it new memory: the old one counts until it is freed.

        Where nothing proves a role of an allocator's memory, as of JAX, the rows are of compiled
        programs: arguments, outputs, constants and temporaries at the peak that the compiler
        planned, which add up to it. Results that take the memory of arguments are arguments.
        """
        from nbprof.analysis.memory import modules

        run = self._profile.run
        roles: pd.DataFrame = run.memory_roles
        if not len(roles):
            return modules.roles(run.programs.memory_modules)
        return roles.copy()

    @property
    def roles_reason(self) -> str:
        """Why `roles` is empty: allocations were not recorded, or nothing says what they are used
        for. An empty text where it has rows.
        """
        from nbprof.core.memory_roles import NOT_RECORDED, USE_UNKNOWN

        if len(self.roles):
            return ""
        return USE_UNKNOWN if self._there() else NOT_RECORDED

    @property
    def roles_over_time(self) -> pd.DataFrame:
        """Bytes of each role at no more than 1,000 moments of each allocator, the peak among them.

        As `timeline`, it is in the events of each host: of many, ask `p.rank(0).memory`.
        """
        rows: pd.DataFrame = self._profile.run.memory_roles_over_time
        return rows.copy()

    @property
    def host(self) -> pd.DataFrame:
        """Host memory of the recorded process and of its children over the whole cell, recorded
        steps or not: about ten samples a second, of a long cell fewer; where samples were dropped,
        those with most memory are kept.

        Only of recordings by nbprof; children are known on Linux. Resident memory of forked
        processes contains what they still share with their parent: the sum over processes is an
        upper bound, that of `proportional_bytes` is not. What a framework reserves on a device is
        no part of it.
        """
        samples: pd.DataFrame = self._profile.run.host_memory
        return samples.copy()

    @property
    def host_processes(self) -> pd.DataFrame:
        """Host memory by process, most first; all processes together first where there are several.

        Growth per step is of the longest row of steps that ran without a profiler, without the
        first fifth of them: of 12 equal parts, the least memory in no file and not shared, and the
        median of the slopes between any two of them. It is NA where no 20 such steps ran, or
        too few samples were taken in them.
        """
        processes: pd.DataFrame = self._profile.run.host_processes
        return processes.copy()

    @property
    def unfreed(self) -> pd.DataFrame:
        """Blocks that steps leave behind, by role, op and line: allocated in a step before the last
        one and never freed; those of most steps first.

        What a single step leaves (`steps` is 1) is made once, such as the state of an optimizer;
        what each step leaves is a leak, or something that the program collects.

        The line is that of the cell where lines were recorded, the innermost of your code
        where a stack was sampled during one of these allocations, and else the first of the
        function where PyTorch recorded Python's calls. `line_source` says which, or why none
        is known: allocations of other threads than the cell's and the backward pass's have no
        line.
        """
        unfreed: pd.DataFrame = self._profile.run.memory_unfreed
        return unfreed.copy()

    @property
    def variables(self) -> pd.DataFrame:
        """Variables, outputs, tracebacks, modules and threads that keep arrays alive in this kernel
        now, not when it was recorded, by device, most memory first.

        `freed_bytes` is what nothing else in the table reaches, `held_by` the references that lead
        to the largest array, `remedy` the statement that lets go of it. Views of one memory count
        once. Empty for a profile that this process has not recorded; `%nbprof memory` needs none.
        """
        origin = self._profile.run.origin
        if origin is None:
            return frames.empty("memory.variables")
        held: pd.DataFrame = origin.variables()
        return held

    @python_strings()
    def at(
        self, time_ms: float, memory_id: str | None = None, *, whole: bool = False
    ) -> pd.DataFrame:
        """Blocks alive at any moment, in the columns of `peak`.

        Parameters
        ----------
        time_ms : float
            After the start of the profile, as in `timeline`. Before an allocator's first event
            nothing is known about it: it has no rows.
        memory_id : str, optional
            Only this allocator; by default all, ordered by name.
        whole : bool
            Blocks of earlier steps one by one as well, as far as the recording goes back; the guide
            has them in the row of unused memory.

        Raises
        ------
        NbprofError
            No such allocator, or `time_ms` is not a number.
        """
        from nbprof.analysis.memory import alive as memory_alive

        rows = self._profile.run.memory_timeline
        try:
            known_time = not math.isnan(time_ms)
        except TypeError:
            known_time = False
        if not known_time:
            raise NbprofError(
                "time_ms must be a number of milliseconds since the start of the profile"
            )
        allocators = sorted(rows["memory_id"].unique())
        if memory_id is not None and memory_id not in allocators:
            raise NbprofError(
                f"there is no allocator {memory_id!r} in this run; it has"
                f" {', '.join(allocators) or 'none'}"
            )
        return memory_alive.blocks_at(rows, time_ms, memory_id, from_start=whole)

    def figure(self, **options: Any) -> Model:
        """A Bokeh figure: stack, heap and free over time, fragmentation on the right axis."""
        return self._figure("memory", **options)


def _with_na(rows: pd.DataFrame, frame: str) -> pd.DataFrame:
    """The rows with those types of the schema that can say NA: what one allocator states another
    may not.
    """
    return rows.astype(
        {name: kind for name, kind in frames.dtypes(frame).items() if kind == "Int64"}
    )
