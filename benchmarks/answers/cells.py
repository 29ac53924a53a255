"""What a cell of the benchmark is: a text that a person runs, and what is true of it.

The truth is stated beside the text and follows from how the text is written, never from what
nbprof says of it. A cell leaves the seconds of its units, by its own clock, in `seconds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

COMPUTE = frozenset(("Compute-bound",))
OVERHEAD = frozenset(("Overhead-bound",))
PYTHON = frozenset(("Python-bound",))
INPUT = frozenset(("Input-bound",))
CONTENDED = frozenset(("Contended",))
COMPILE = frozenset(("Compile-bound",))
VERDICTS = COMPUTE | OVERHEAD | PYTHON | INPUT | CONTENDED | COMPILE
"""Words that a verdict about a program on a CPU can have."""

KINDS = ("step", "iteration", "call", "recording")

Units = Mapping[str, tuple[int, ...]]
"""Accepted kinds of units, with the counts that are right for each; the first one is the best."""


def loop(count: int, *others: int) -> Units:
    """Iterations of a loop, which may be called steps; `others` are counts that are right, too."""
    return MappingProxyType({"iteration": (count, *others), "step": (count, *others)})


def calls(count: int) -> Units:
    """Calls of the same model or function, outside any loop that can be seen."""
    return MappingProxyType({"call": (count,)})


RECORDING: Units = MappingProxyType({"recording": (1,)})
"""Nothing repeats, or nothing of which the repeats say anything."""


def either(*units: Units) -> Units:
    """Units of which any is right."""
    merged: dict[str, tuple[int, ...]] = {}
    for each in units:
        for kind, counts in each.items():
            merged[kind] = (*merged.get(kind, ()), *counts)
    return MappingProxyType(merged)


@dataclass(frozen=True)
class Cell:
    """One cell, and what is true of it.

    Parameters
    ----------
    name : str
        Framework and what is special, as in `torch/inference loop`.
    text : str
        The cell below its first line `%%nbprof`, or with that line where another magic comes first.
    units : mapping
        Accepted kinds of units and their counts.
    bound : frozenset of str
        Accepted words of the verdict; empty where none is judged.
    setup : tuple of str
        Cells that run before, unrecorded.
    named : tuple of str
        The function or line that takes most time: parts of its name or text, any of which is right;
        empty where Python does not bound the cell.
    modules : mapping
        Files beside the notebook, by name.
    environment : mapping
        Environment variables of the process.
    needs : tuple of str
        Packages without which the cell is left out.
    fails : bool
        Whether it ends with an exception.
    unseen : bool
        Whether it was set aside: written without looking at what nbprof says.
    """

    name: str
    text: str
    units: Units
    bound: frozenset[str]
    setup: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    fails: bool = False
    unseen: bool = False

    @property
    def framework(self) -> str:
        return self.name.split("/")[0]

    @property
    def control(self) -> bool:
        """Whether no loop may be claimed."""
        return not {"step", "iteration"} & set(self.units)

    @property
    def counted(self) -> bool:
        """Whether there is something to count: the recording is not the only unit."""
        return set(self.units) != {"recording"}

    @property
    def source(self) -> str:
        """The cell as it is run: its profile is left in `p`."""
        return self.under(MAGIC)

    def under(self, magic: str) -> str:
        """The cell with its first line."""
        text = self.text.strip("\n")
        if "%%nbprof" in text:
            return text.replace("%%nbprof", magic) + "\n"
        return f"{magic}\n{text}\n"


MAGIC = "%%nbprof -q -o p"
"""The first line of a cell whose files are not kept."""

CELLS: dict[str, Cell] = {}


def add(*cells: Cell) -> None:
    """Registers cells.

    Raises
    ------
    ValueError
        The name is taken.
    """
    for cell in cells:
        if cell.name in CELLS:
            raise ValueError(f"two cells are called {cell.name}")
        CELLS[cell.name] = cell
