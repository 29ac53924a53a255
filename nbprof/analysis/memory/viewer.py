"""Memory of a compiled program: its working set from instruction to instruction, and the buffers
that are alive at the peak.

XLA plans the memory of a program when it compiles it. The plan is played back here: the heap's own
events in their order, above what lives as long as the program runs (parameters, results,
constants). Rules and formulas: XProf 2.24's memory viewer, whose numbers these are; the padding is
that of https://openxla.org/xla/tiled_layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.figures import ratio
from nbprof.analysis.table import positions
from nbprof.core.errors import ReadError
from nbprof.core.wire import Int64s
from nbprof.display import wording
from nbprof.hlo import buffers as hlo_buffers
from nbprof.hlo.buffers import FREE, SHARE, Assignment, HeapTrace
from nbprof.hlo.hlo import EMPTY, Program
from nbprof.hlo.shapes import Shape
from nbprof.schema import frames

TIMELINE = frames.names("memory_viewer[module].timeline")
AT_PEAK = frames.names("memory_viewer[module].at_peak")
PARAMETER, OUTPUT, CONSTANT, THREAD_LOCAL, TEMPORARY = (
    "Parameter",
    "Output",
    "Constant",
    "Thread-local",
    "Temporary",
)


@dataclass
class View:
    """The memory of a program in one memory space.

    Attributes
    ----------
    space : int
        The memory space: 0 is the device's main memory.
    timeline : DataFrame
        A row a program point: `position`, the `instruction` that the heap is at then,
        `allocated_bytes`, and `unpadded_bytes`, what the values would take without padding. A last
        row holds what is left at the end. Both frames are built when they are needed, from
        `timeline_columns` and `buffers_at_peak`: the list of programs needs the figures alone.
    at_peak : DataFrame
        Buffers alive at the peak: those that live throughout first, then the temporary ones in
        program order. `start` and `end` are program points, 0 and the number of points of those
        that live throughout; `end` is not in it.
    peak_bytes, peak_unpadded_bytes, peak_position : int
        `peak_position` is -1 where the program has no heap.
    parameter_bytes, output_bytes, throughout_bytes, not_reusable_bytes, total_bytes : int
        Of allocations: of parameters; of what may be a result; of all that lives throughout; of
        thread-local ones and tuples, which nothing else may use; of all but thread-local ones.
    notes : list of str
        Events that could not be followed.
    """

    space: int
    timeline_columns: dict[str, Any]
    buffers_at_peak: list[tuple[Any, ...]]
    peak_bytes: int = 0
    peak_unpadded_bytes: int = 0
    peak_position: int = -1
    parameter_bytes: int = 0
    output_bytes: int = 0
    throughout_bytes: int = 0
    not_reusable_bytes: int = 0
    total_bytes: int = 0
    notes: list[str] = field(default_factory=list)

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """A row a program point."""
        return pd.DataFrame({name: self.timeline_columns[name] for name in TIMELINE})

    @cached_property
    def at_peak(self) -> pd.DataFrame:
        """The buffers alive at the peak."""
        return pd.DataFrame(self.buffers_at_peak, columns=AT_PEAK)

    def bytes_at_peak(self, category: str) -> int:
        """Bytes of the buffers of a category that are alive at the peak, which all add up to."""
        kind, size = AT_PEAK.index("category"), AT_PEAK.index("size_bytes")
        return sum(row[size] for row in self.buffers_at_peak if row[kind] == category)


def spaces(assignment: Assignment) -> list[int]:
    """The memory spaces that a program uses, the device's main memory first."""
    return sorted({0, *np.unique(assignment.allocations.colour).tolist()})


def view(program: Program, space: int = 0, assignment: Assignment | None = None) -> View:
    """The memory of a program.

    Parameters
    ----------
    program : Program
    space : int
        The memory space ("colour").
    assignment : Assignment, optional
        Read from the program when left out.

    Raises
    ------
    ReadError
        The program has no buffer assignment, or it is damaged.
    """
    assignment = assignment or hlo_buffers.read(program)
    if assignment is None:
        raise ReadError(no_assignment(program.name))
    try:
        return _Player(program, assignment, space).view()
    except OverflowError as error:
        raise ReadError(
            f"the compiled program {program.name} has impossible sizes; its buffer assignment is"
            " damaged"
        ) from error


def no_assignment(name: str) -> str:
    """The error message for a program without a buffer assignment."""
    return (
        f"the compiled program {name} has no buffer assignment: only its code was recorded. "
        "Record it with a newer jaxlib or TensorFlow to see its memory."
    )


class _Player:
    """Replays the heap's events."""

    def __init__(self, program: Program, assignment: Assignment, space: int) -> None:
        self._program = program
        self._plan = assignment
        self._space = space
        self._notes: list[str] = []
        self._rows = positions(assignment.buffers.ident.tolist())
        self._unpadded: dict[int, int] = {}
        self._unknown = self._newer = 0

    def view(self) -> View:
        allocations = self._plan.allocations
        here = allocations.colour == self._space
        throughout = (
            here
            & ((allocations.parameter >= 0) | allocations.live_out | allocations.constant)
            & ~allocations.thread_local
        )
        fixed = np.flatnonzero(throughout)
        base = sum(allocations.size[fixed].tolist())
        trace = self._trace()
        played = self._play(trace) if trace is not None else _Played()
        at_peak = [*self._fixed(fixed, len(played.allocated)), *self._alive(played)]
        timeline = {
            "position": np.arange(len(played.allocated), dtype=np.int64),
            "instruction": played.names,
            "allocated_bytes": np.array(
                [value + base for value in played.allocated.tolist()], np.int64
            ),
            "unpadded_bytes": np.array(
                [value + base for value in played.unpadded.tolist()], np.int64
            ),
        }
        if self._unknown:
            self._notes.append(
                f"{self._unknown:,} heap events refer to buffers that the file does not list; they"
                " are ignored."
            )
        if self._newer:
            title = wording.plural(
                self._newer, "buffer has an element type", "buffers have element types"
            )
            self._notes.append(
                f"{title} unknown to this version of nbprof: padding is unknown there and counted"
                " as 0."
            )
        size = allocations.size
        not_reusable = allocations.thread_local | allocations.tuple_
        return View(
            self._space,
            timeline,
            at_peak,
            peak_bytes=played.peak + base,
            peak_unpadded_bytes=played.peak_unpadded + base,
            peak_position=played.position,
            parameter_bytes=int(size[here & (allocations.parameter >= 0)].sum()),
            output_bytes=int(size[here & allocations.live_out].sum()),
            throughout_bytes=base,
            not_reusable_bytes=int(size[here & not_reusable].sum()),
            total_bytes=int(size[here & ~allocations.thread_local].sum()),
            notes=self._notes,
        )

    def _trace(self) -> HeapTrace | None:
        """The heap of a temporary allocation of this space; if none can be identified, the one with
        most of this space's buffers.
        """
        allocations = self._plan.allocations
        temporary = ~(
            (allocations.parameter >= 0)
            | allocations.live_out
            | allocations.constant
            | allocations.thread_local
            | allocations.tuple_
        )
        temporaries = set(
            allocations.index[temporary & (allocations.colour == self._space)].tolist()
        )
        for trace in self._plan.traces:
            if trace.allocation in temporaries:
                return trace
        colour = dict(
            zip(self._plan.buffers.ident.tolist(), self._plan.buffers.colour.tolist(), strict=True)
        )
        best, largest = None, 0
        for trace in self._plan.traces:
            ids, counts = np.unique(trace.buffer, return_counts=True)
            count = sum(
                n
                for ident, n in zip(ids.tolist(), counts.tolist(), strict=True)
                if colour.get(ident) == self._space
            )
            if count > largest:
                best, largest = trace, count
        return best

    def _play(self, trace: HeapTrace) -> _Played:
        size = self._plan.buffers.size.tolist()
        rows = self._rows
        # Buffers may share memory: it is counted once, from the first of them to the last, under
        # the first one's ident.
        root_of: dict[int, int] = {}
        users: dict[int, int] = {}
        open_span: dict[int, int] = {}
        who: list[int] = []
        start: list[int] = []
        end: list[int] = []
        now = bare = peak = peak_bare = 0
        position = -1
        allocated: list[int] = []
        unpadded: list[int] = []
        codes: list[int] = []
        columns = (trace.kind, trace.buffer, trace.shared, trace.instruction)
        for kind, ident, other, code in zip(*(column.tolist() for column in columns), strict=True):
            if ident not in rows or (kind == SHARE and other not in rows):
                self._unknown += 1
                continue
            count = len(allocated)
            allocated.append(now)
            unpadded.append(bare)
            codes.append(code)
            if kind == FREE:
                root = root_of.get(ident, ident)
                users[root] = users.get(root, 0) - 1
                if users[root] == 0:
                    now -= size[rows[root]]
                    bare -= self._bare(rows[root])
                    end[open_span.pop(root)] = count
                continue
            root = root_of.get(other, other) if kind == SHARE else ident
            root_of[ident] = root
            users[root] = users.get(root, 0) + 1 if kind == SHARE else 1
            if users[root] != 1:
                continue
            now += size[rows[root]]
            bare += self._bare(rows[root])
            # Memory that was given back and taken up again is the second one's from here on.
            open_span[root] = len(who)
            who.append(ident)
            start.append(count)
            end.append(-1)
            if now > peak:
                peak, peak_bare, position = now, bare, count
        names = [trace.names[code] if code >= 0 else "" for code in codes]
        ends = np.array(end, np.int64)
        return _Played(
            np.array([*allocated, now], np.int64),
            np.array([*unpadded, bare], np.int64),
            [*names, ""],
            peak,
            peak_bare,
            position,
            np.array([rows[ident] for ident in who], np.int64),
            np.array(start, np.int64),
            np.where(ends < 0, len(allocated), ends),
            np.array([rows[root_of[ident]] for ident in who], np.int64),
        )

    def _bare(self, row: int) -> int:
        """Bytes of a buffer's value without padding; of a tuple's table of its parts 8 bytes a
        part.
        """
        if row not in self._unpadded:
            shape = self._shape(row)
            if shape.is_tuple or shape.is_known:
                self._unpadded[row] = 8 * len(shape.parts) if shape.is_tuple else shape.bytes
            else:
                self._unpadded[row] = int(self._plan.buffers.size[row])
                self._newer += 1
        return self._unpadded[row]

    def _shape(self, row: int) -> Shape:
        position = int(self._plan.buffers.instruction[row])
        if position < 0:
            return EMPTY
        try:
            return self._program.shape(position).part_at(self._plan.buffers.index.get(row, ()))
        except IndexError:
            return EMPTY

    def _alive(self, played: _Played) -> Iterator[tuple[object, ...]]:
        """The temporary buffers alive at the peak."""
        if played.position < 0:
            return
        at_peak = (played.start <= played.position) & (played.end > played.position)
        home = dict(
            zip(
                self._plan.assigned.buffer.tolist(),
                self._plan.assigned.allocation.tolist(),
                strict=True,
            )
        )
        for span in np.flatnonzero(at_peak).tolist():
            row = int(played.row[span])
            size = int(self._plan.buffers.size[played.root[span]])
            allocation = home.get(row, -1)
            index = int(self._plan.allocations.index[allocation]) if allocation >= 0 else -1
            yield self._buffer_row(
                row, TEMPORARY, size, index, int(played.start[span]), int(played.end[span])
            )

    def _fixed(self, fixed: Int64s, points: int) -> Iterator[tuple[object, ...]]:
        """Allocations that live as long as the program runs: one row each, named after the largest
        buffer in it.
        """
        plan = self._plan
        owner, buffer = plan.assigned.allocation, plan.assigned.buffer
        assigned = np.flatnonzero(buffer >= 0)
        # The largest first; of several as large the first in the file.
        order = assigned[
            np.lexsort(
                (np.arange(len(assigned)), -plan.buffers.size[buffer[assigned]], owner[assigned])
            )
        ]
        first = {int(owner[row]): int(buffer[row]) for row in reversed(order.tolist())}
        for allocation in fixed.tolist():
            size, index = (
                int(plan.allocations.size[allocation]),
                int(plan.allocations.index[allocation]),
            )
            yield self._buffer_row(
                first.get(allocation, -1), self._category(allocation), size, index, 0, points
            )

    def _category(self, allocation: int) -> str:
        plan = self._plan.allocations
        if plan.parameter[allocation] >= 0:
            return PARAMETER
        if plan.live_out[allocation]:
            return OUTPUT
        if plan.thread_local[allocation]:
            return THREAD_LOCAL
        return CONSTANT if plan.constant[allocation] else TEMPORARY

    def _buffer_row(
        self, row: int, category: str, size: int, allocation: int, start: int, end: int
    ) -> tuple[object, ...]:
        if row < 0:
            return "", category, size, size, 1.0, "", "", allocation, start, end, "", "", -1
        shape, bare = self._shape(row), self._bare(row)
        position = int(self._plan.buffers.instruction[row])
        name = opcode = op = source = ""
        if position >= 0:
            instruction = self._program.instruction(position)
            name, opcode, op = instruction.name, instruction.opcode, instruction.op_name
            if instruction.source_file:
                source = f"{instruction.source_file}:{instruction.source_line}"
        index = self._plan.buffers.index.get(row, ())
        label = name + "".join(f"{{{number}}}" for number in index)
        return (
            label,
            category,
            size,
            bare,
            ratio(size, bare),
            str(shape),
            op,
            allocation,
            start,
            end,
            opcode,
            source,
            int(self._plan.buffers.ident[row]),
        )


@dataclass
class _Played:
    """The result of the heap's events: the heap before each and after the last, its peak, and the
    spans in which memory was taken.

    A span has the row of the buffer that it belongs to, its first program point, the one at which
    it is given back (not in it), and the row of the buffer whose size it has.
    """

    allocated: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    unpadded: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    names: list[str] = field(default_factory=list)
    peak: int = 0
    peak_unpadded: int = 0
    position: int = -1
    row: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    start: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    end: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    root: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
