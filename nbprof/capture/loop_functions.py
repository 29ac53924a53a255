"""Functions of earlier cells and of the person's modules that the recorded cell calls: their loops
are recorded as well.

A function is left alone unless it is certain that nothing but plain calls can reach it: no code of
a cell or module uses it as a value, nothing decorated calls it, and no object but the namespaces of
the notebook and of modules refers to it. ``torch.compile``, ``jax.jit`` and the like never see
rewritten code then.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nbprof.capture import user_modules
from nbprof.capture.loop_code import Cell, Definition, Text, Uses, uses_of
from nbprof.core.cells import stem

_MOST_CELLS = 300
_MOST_CHARACTERS = 100_000
_WORD = re.compile(r"[^\W\d]\w*")
_REFERENCES = 2
"""Of what only a namespace refers to: that one, and the argument of `sys.getrefcount`."""

_Namespace = Mapping[str, Any]

_parsed: dict[str, tuple[str, Cell | None]] = {}


@dataclass(frozen=True)
class _Found:
    """A function of an earlier cell or of a module, how its code uses names, and where it finds
    them.
    """

    name: str
    function: FunctionType
    cell: Cell
    definition: Definition
    uses: Uses
    namespace: _Namespace


class Earlier:
    """The functions of earlier cells and of modules that a cell reaches.

    Parameters
    ----------
    cell : Cell
        The one to be recorded.
    namespace : mapping
        The notebook's variables.
    numbers : mapping
        Execution counts of cells, by their files.
    """

    def __init__(
        self, cell: Cell, namespace: Mapping[str, Any], numbers: Mapping[str, int]
    ) -> None:
        self._cell = cell
        self._namespace = namespace
        self._numbers = numbers
        self._own = {each.node.name for each in cell.definitions}
        self._found: dict[int, _Found] = {}
        self._classes: set[int] = set()
        self._distributes = cell.distributes
        self._modules = user_modules.loaded()

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
        waiting: list[tuple[Uses, _Namespace]] = [(uses, self._namespace)]
        while waiting:
            uses, namespace = waiting.pop()
            for name in sorted(uses.called | uses.held):
                if name not in namespace or (namespace is self._namespace and name in self._own):
                    continue
                for found in self._at(name, uses, namespace):
                    if id(found.function) not in self._found and not self._distributes:
                        self._found[id(found.function)] = found
                        # Code of modules is sent by its name, so that other processes import it as
                        # it is.
                        self._distributes = (
                            found.namespace is self._namespace and found.cell.distributes
                        )
                        waiting.append((found.uses, found.namespace))

    def _at(self, name: str, uses: Uses, namespace: _Namespace) -> Iterator[_Found]:
        """The functions behind a variable: it, or the methods of a class or of the object's class,
        or what is called of a module.
        """
        kind = type(namespace[name])
        if kind is FunctionType:
            if name in uses.called and sys.getrefcount(namespace[name]) <= self._references(
                namespace[name]
            ):
                yield from self._of(name, namespace[name])
            return
        if kind is ModuleType:
            module = namespace[name]
            if module in self._modules:
                for attribute in sorted(uses.called & vars(module).keys()):
                    yield from self._at(attribute, uses, vars(module))
            return
        found = namespace[name] if kind is type else kind
        if type(found) is not type or id(found) in self._classes or not self._is_known(found):
            return
        self._classes.add(id(found))
        for method in list(vars(found)):
            if (
                type(vars(found)[method]) is FunctionType
                and sys.getrefcount(vars(found)[method]) <= _REFERENCES
            ):
                yield from self._of(method, vars(found)[method])

    def _is_known(self, kind: type) -> bool:
        """Whether a class is of a cell or of a module of the person's."""
        return kind.__module__ == "__main__" or sys.modules.get(kind.__module__) in self._modules

    def _references(self, function: FunctionType) -> int:
        """References that a function of a cell or a module has at most, where only namespaces refer
        to it.
        """
        if function.__globals__ is self._namespace:
            return _REFERENCES
        spaces = {
            id(space): space for space in (self._namespace, *map(vars, self._modules))
        }.values()
        # One is the argument of `sys.getrefcount`, one that of this method, which has ended when
        # they are counted.
        return 1 + sum(value is function for space in spaces for value in list(space.values()))

    def _of(self, name: str, function: FunctionType) -> Iterator[_Found]:
        code = function.__code__
        if code.co_name != name:
            return
        namespace = function.__globals__
        if namespace is self._namespace:
            cell = self._read(code.co_filename)
        else:
            cell = self._read_module(sys.modules.get(str(namespace.get("__name__"))), function)
        for each in cell.definitions if cell is not None else ():
            node = each.node
            if (
                node.name == name
                and node.lineno == code.co_firstlineno
                and (node.lineno, node.col_offset) in cell.plain
            ):  # type: ignore[union-attr]
                yield _Found(name, function, cell, each, uses_of(node), namespace)  # type: ignore[arg-type]

    def _read(self, file: str) -> Cell | None:
        """The cell that a file stands for, with its text as it ran."""
        if not (stem(file) or file in self._numbers):
            return None
        return self._parse(file)

    def _read_module(self, module: ModuleType | None, function: FunctionType) -> Cell | None:
        """The module that a function is of, if its text is that of the function."""
        if module not in self._modules or vars(module) is not function.__globals__:
            return None
        file = function.__code__.co_filename
        cell = self._parse(file) if file == module.__file__ else None
        return cell if cell is not None and cell.has(function.__code__) else None

    def _parse(self, file: str) -> Cell | None:
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
        """Names of the functions that any cell or module uses as values, whether it is reached or
        not.
        """
        names = {each.name for each in self._found.values()} | self._own
        files = [file for file in list(linecache.cache) if stem(file) or file in self._numbers]
        held = self._held_in(files[-_MOST_CELLS:], names) if names else set()
        of_modules = [
            each for each in self._found.values() if each.namespace is not self._namespace
        ]
        if of_modules:
            names = {each.name for each in of_modules}
            # Who uses them names their module, if only to import it.
            modules = {str(each.namespace["__name__"]).rpartition(".")[2] for each in of_modules}
            defining = [each.function.__code__.co_filename for each in of_modules]
            others = [str(module.__file__) for module in self._modules]
            held |= self._held_in(defining, names) | self._held_in(others, names, modules)
        return held

    def _held_in(
        self, files: list[str], names: set[str], modules: set[str] | None = None
    ) -> set[str]:
        """Names that files use as values, if the files have one of some names, and one of some
        modules where these are given.
        """
        held: set[str] = set()
        for file in files:
            text = "".join(linecache.getlines(file))
            if modules is not None and not any(name in text for name in modules):
                continue
            if any(name in text for name in names) and not names.isdisjoint(_WORD.findall(text)):
                cell = self._parse(file)
                held |= cell.uses.held if cell is not None else names
        return held
