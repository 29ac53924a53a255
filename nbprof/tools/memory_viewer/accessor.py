"""`p.memory_viewer`: the memory of the compiled programs, as the compiler planned it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.memory import viewer as memory_viewer
from nbprof.core.errors import NbprofError, ReadError
from nbprof.hlo import buffers as hlo_buffers
from nbprof.hlo.hlo import Program
from nbprof.tools.accessor import ShownByMarimo, View
from nbprof.tools.plot import displayed

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.hlo.buffers import Assignment
    from nbprof.tools.accessor import Shown

_TOLD = 8
"""Buffers that the plain text names."""


class ModuleMemory(ShownByMarimo):
    """The memory of one compiled program in one memory space; get one from
    `p.memory_viewer[module]`.

    In a notebook it displays as the tab of the dashboard, with this program and memory space
    chosen.

    Attributes
    ----------
    module : str
    space : int
        The memory space: 0 is the device's main memory, 1 a faster one where the device has it.
    """

    def __init__(
        self, profile: Shown, module: str, program: Program, assignment: Assignment, space: int = 0
    ) -> None:
        self._profile = profile
        self.module = module
        self.space = space
        self._program = program
        self._assignment = assignment

    @cached_property
    def _view(self) -> memory_viewer.View:
        return memory_viewer.view(self._program, self.space, self._assignment)

    @property
    def spaces(self) -> list[int]:
        """The memory spaces that the program uses; 0 is the device's main memory and comes
        first.
        """
        return memory_viewer.spaces(self._assignment)

    def in_space(self, space: int) -> ModuleMemory:
        """The same program in another memory space.

        Raises
        ------
        NbprofError
            It uses no such memory space.
        """
        if space not in self.spaces:
            raise NbprofError(
                f"{self.module} uses no memory space {space!r}; it uses"
                f" {', '.join(map(str, self.spaces))}"
            )
        return ModuleMemory(self._profile, self.module, self._program, self._assignment, int(space))

    @property
    def timeline(self) -> pd.DataFrame:
        """The working set: a row a program point, and a last one for what is left at the end; empty
        where the program has no heap.
        """
        return self._view.timeline.copy()

    @property
    def at_peak(self) -> pd.DataFrame:
        """Buffers alive at the peak: those that live throughout first, then the temporary ones in
        program order. Sizes in bytes.
        """
        return self._view.at_peak.copy()

    @property
    def summary(self) -> dict[str, Any]:
        """Its figures, in bytes but for `peak_position`, a program point (-1 where it has no heap).

        `peak_bytes`, `peak_unpadded_bytes`, `peak_position`, `parameter_bytes`, `output_bytes`,
        `throughout_bytes`, `not_reusable_bytes` (of single threads and tuples), `total_bytes` (all
        but that of single threads).
        """
        keys = (
            "peak_bytes",
            "peak_unpadded_bytes",
            "peak_position",
            "parameter_bytes",
            "output_bytes",
            "throughout_bytes",
        )
        return {
            key: getattr(self._view, key) for key in (*keys, "not_reusable_bytes", "total_bytes")
        }

    @property
    def notes(self) -> list[str]:
        """One sentence for each part of the program that could not be followed; empty if everything
        could.
        """
        return list(self._view.notes)

    @property
    def peak_bytes(self) -> int:
        """The most memory that the program holds at one time in this memory space."""
        return self._view.peak_bytes

    @property
    def peak_unpadded_bytes(self) -> int:
        """Bytes of the values alive at that point without padding to tiles."""
        return self._view.peak_unpadded_bytes

    def text(self) -> str:
        """A few lines: the peak with and without padding, its parts, and the largest buffers."""
        from nbprof.tools.memory_viewer import payload as drawn

        return drawn.text(self.module, self._view, _TOLD)

    def figure(self, **options: Any) -> Model:
        """A Bokeh figure: the working set over program points, and below it the lifetimes of the
        largest buffers of the peak.
        """
        from nbprof.tools.memory_viewer import figure as memory_viewer_figure

        return displayed(memory_viewer_figure.figure(self.module, self._view, **options), self)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        from nbprof.tools.memory_viewer import payload as drawn

        payload, run = self._profile.payload(), self._profile.run
        part = drawn.opened_at(run, payload.memory_viewer, self.module, self.space)
        data, about = self._profile.mimebundle(
            views=["memory_viewer"], payload=replace(payload, memory_viewer=part), drawn=False
        )
        return {**data, "text/plain": self.text()}, about

    def __repr__(self) -> str:
        return self.text()


class MemoryViewer(View, Mapping[str, ModuleMemory]):
    """Memory of the compiled XLA programs, as XProf's memory viewer shows it: a mapping from a
    program's name to its memory.

    XLA plans the memory of a program when it compiles it, and the profile has the plan: which
    buffers there are, and in which order its heap gives them out and takes them back. The plan is
    played back. What lives as long as the program runs (parameters, results, constants) is always
    there; the temporary buffers come and go from instruction to instruction.

    - A program goes by its name with its ident, as XProf writes it:
      `p.memory_viewer["jit_step(8)"]`. Without the ident it is found where only one has that name.
    - The timeline has one row per program point: the memory before the event of the heap, and the
      instruction at which it happens.
    - The peak is the largest of these, the first of equal ones. `at_peak` lists what is alive then.
      The event that makes it is `peak_position`; the timeline shows it in the row after that one.
    - Unpadded is what the values take: elements by bytes of an element, 8 bytes a part for a
      tuple's table of its parts. Padding is what their layout adds: on a TPU dimensions are rounded
      up to tiles, such as 8 by 128. `padding_ratio` is the one by the other.
    - Buffers that share memory count once, from the first of them to the last.
    - The memory of single threads is not in it.

    Sources: the buffer assignment and heap simulator trace in the HLO protos of the profile; rules
    of XProf 2.24.2, whose numbers these are; https://openxla.org/xla/tiled_layout.
    """

    def __init__(self, profile: Shown) -> None:
        super().__init__(profile, "memory_viewer")

    @property
    def modules(self) -> pd.DataFrame:
        """One row per compiled program, the largest peak first. One with unknown memory is listed,
        too, and says why (`note`).

        A program that several machines recorded is one row; different ones with the same name are
        distinguished by their machine. `time_ms` is the self time of its ops on all devices
        together.
        """
        frame: pd.DataFrame = self._profile.run.programs.memory_modules
        return frame.copy()

    def __getitem__(self, module: str) -> ModuleMemory:
        """The memory of a program in the device's main memory; `.in_space(1)` has another.

        Raises
        ------
        NbprofError
            No such program (a KeyError too), or the file has no buffer assignment of it,
            or that is damaged, or it was not read.
        """
        programs = self._profile.run.programs.compiled
        name = memory_modules.choose(module, programs)
        if not programs[name].module.read:
            raise NbprofError(f"{name} is {memory_modules.NOT_READ} ({programs[name].hosts[0]})")
        try:
            program = Program(programs[name].module.data)
            assignment = hlo_buffers.read(program)
        except ReadError as error:
            raise ReadError(
                f"the compiled program {name} is damaged in the profile ({error}); record again"
            ) from error
        if assignment is None:
            raise ReadError(memory_viewer.no_assignment(name))
        return ModuleMemory(self._profile, name, program, assignment)

    def __iter__(self) -> Iterator[str]:
        frame = self._profile.run.programs.memory_modules
        return iter(frame.loc[frame["peak_bytes"].notna(), "module"].tolist())

    def __len__(self) -> int:
        return int(self._profile.run.programs.memory_modules["peak_bytes"].notna().sum())

    def __contains__(self, module: object) -> bool:
        return module in set(self)

    def __repr__(self) -> str:
        from nbprof.tools.memory_viewer import payload as drawn

        return drawn.listed(self._profile.run.programs.memory_modules)
