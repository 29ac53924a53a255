"""Functions of earlier cells that the recorded cell calls: their loops are recorded as well.

A function is left alone unless it is certain that nothing but plain calls can reach it: no code of
a cell uses it as a value, no decorated function or module calls it, and no object but the notebook's
namespace refers to it. ``torch.compile``, ``jax.jit`` and the like never see rewritten code then.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from nbprof.capture.loop_code import Cell, Definition, Text, Uses, uses_of
from nbprof.core.cells import stem

_MOST_CELLS = 300
_MOST_CHARACTERS = 100_000
_WORD = re.compile(r"[^\W\d]\w*")
_REFERENCES = 2
"""Of what only a namespace refers to: that one, and the argument of `sys.getrefcount`."""

_parsed: dict[str, tuple[str, Cell | None]] = {}


@dataclass(frozen=True)
class _Found:
    """A function of an earlier cell, and how its code uses names."""

    name: str
    function: FunctionType
    cell: Cell
    definition: Definition
    uses: Uses


class Earlier:
    """The functions of earlier cells that a cell reaches.

    Parameters
    ----------
    cell : Cell
        The one to be recorded.
    namespace : mapping
        The notebook's variables.
    numbers : mapping
        Execution counts of cells, by their files.
    """

    def __init__(self, cell: Cell, namespace: Mapping[str, Any], numbers: Mapping[str, int]) -> None:
        self._cell = cell
        self._namespace = namespace
        self._numbers = numbers
        self._own = {each.node.name for each in cell.definitions}
        self._found: dict[int, _Found] = {}
        self._classes: set[int] = set()
        self._distributes = cell.distributes

    def plan(self) -> list[tuple[FunctionType, CodeType]] | None:
        """The rewritten code of those functions; None where no function may be rewritten at all.

        Definitions of the cell itself that other code uses as values stop being plain by this.
        """
        self._reach(self._cell.uses)
        if self._distributes:
            return None
        held = self._held_elsewhere()
        found = list(self._found.values())
        while True:
            uses = Uses()
            uses.held |= held
            uses.add(self._cell.settle(uses.held))
            for each in found:
                uses.add(each.uses)
            kept = [each for each in found if each.name not in uses.held]
            dropped = [each for each in found if each.name in uses.held]
            # What a dropped one calls may be compiled with it.
            more = uses.held.union(*(each.uses.called for each in dropped))
            if not dropped and more == held:
                break
            held, found = more, kept
        changes = []
        for each in found:
            changes += each.cell.changes(each.function)
        return changes

    def _reach(self, uses: Uses) -> None:
        """Find what these names lead to, and what that leads to."""
        waiting = [uses]
        while waiting:
            uses = waiting.pop()
            for name in sorted(uses.called | uses.held):
                if name in self._own or name not in self._namespace:
                    continue
                for found in self._at(name, name in uses.called):
                    if id(found.function) not in self._found and not self._distributes:
                        self._found[id(found.function)] = found
                        self._distributes = found.cell.distributes
                        waiting.append(found.uses)

    def _at(self, name: str, called: bool) -> Iterator[_Found]:
        """The functions behind a variable: it, or the methods of a class, or of the object's class."""
        kind = type(self._namespace[name])
        if kind is FunctionType:
            if called and sys.getrefcount(self._namespace[name]) <= _REFERENCES:
                yield from self._of(name, self._namespace[name])
            return
        found = self._namespace[name] if kind is type else kind
        if type(found) is not type or found.__module__ != "__main__" or id(found) in self._classes:
            return
        self._classes.add(id(found))
        for method in list(vars(found)):
            if type(vars(found)[method]) is FunctionType and sys.getrefcount(vars(found)[method]) <= _REFERENCES:
                yield from self._of(method, vars(found)[method])

    def _of(self, name: str, function: FunctionType) -> Iterator[_Found]:
        code = function.__code__
        if function.__globals__ is not self._namespace or code.co_name != name:
            return
        cell = self._read(code.co_filename)
        for each in cell.definitions if cell is not None else ():
            node = each.node
            if node.name == name and node.lineno == code.co_firstlineno and (node.lineno, node.col_offset) in cell.plain:  # type: ignore[union-attr]
                yield _Found(name, function, cell, each, uses_of(node))  # type: ignore[arg-type]

    def _read(self, file: str) -> Cell | None:
        """The cell that a file stands for, with its text as it ran."""
        if not (stem(file) or file in self._numbers):
            return None
        text = "".join(linecache.getlines(file))
        known = _parsed.get(file)
        if known is None or known[0] != text:
            cell = None
            if 0 < len(text) <= _MOST_CHARACTERS:
                try:
                    cell = Cell(ast.parse(text), Text(text, number=self._numbers.get(file, 0)))
                except (SyntaxError, ValueError, RecursionError):
                    cell = None
            while len(_parsed) >= _MOST_CELLS:
                del _parsed[next(iter(_parsed))]
            known = _parsed[file] = text, cell
        return known[1]

    def _held_elsewhere(self) -> set[str]:
        """Names of the functions that any cell uses as values, whether it is reached or not."""
        names = {each.name for each in self._found.values()} | self._own
        held: set[str] = set()
        files = [file for file in list(linecache.cache) if stem(file) or file in self._numbers]
        for file in files[-_MOST_CELLS:] if names else ():
            text = "".join(linecache.getlines(file))
            if not names.isdisjoint(_WORD.findall(text)):
                cell = self._read(file)
                held |= cell.uses.held if cell is not None else names
        return held
