"""Loops in functions of earlier cells and of the user's modules that the recorded cell calls.

A function is rewritten only if it is certain that nothing but plain calls can reach it: no code of
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

from nbprof.capture import loops, user_modules
from nbprof.capture.loop_code import Cell, Definition, Text, Uses, rewritten, uses_of
from nbprof.core.cells import stem

_MAX_CELLS = 300
_MAX_CHARACTERS = 100_000
_WORD = re.compile(r"[^\W\d]\w*")
_REFERENCES = 2
"""References to an object in a namespace only: that one, and the argument of `sys.getrefcount`."""

_Namespace = Mapping[str, Any]

_parsed: dict[str, tuple[str, Cell | None]] = {}


@dataclass(frozen=True)
class _Reached:
    """A function of an earlier cell or of a module.

    Parameters
    ----------
    name : str
    function : function
    cell : Cell
        The code of the cell or module.
    definition : Definition
    uses : Uses
        Names that its code uses.
    namespace : mapping
        Its globals.
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
        self._defined = {definition.node.name for definition in cell.definitions}
        self._reached: dict[int, _Reached] = {}
        self._classes: set[int] = set()
        self._distributes = cell.distributes
        self._modules = user_modules.loaded()

    def plan(self) -> list[tuple[FunctionType, CodeType]] | None:
        """The rewritten code of those functions; None if no function may be rewritten at all.

        Afterwards, definitions of the cell that other code uses as values are not plain any more.
        """
        self._reach(self._cell.uses)
        if self._distributes:
            return None
        held = self._held_elsewhere()
        plain = list(self._reached.values())
        while True:
            uses = Uses()
            uses.held |= held
            uses.add(self._cell.settle(uses.held))
            for entry in plain:
                uses.add(entry.uses)
            more = set(uses.held)
            remaining = []
            for entry in plain:
                if entry.name in uses.held:
                    # Functions that it calls may be compiled with it.
                    more |= entry.uses.called
                else:
                    remaining.append(entry)
            if len(remaining) == len(plain) and more == held:
                break
            held, plain = more, remaining
        changes = []
        for entry in plain:
            changes += entry.cell.changes(entry.function)
        return changes

    def _reach(self, uses: Uses) -> None:
        """Find the functions that these names lead to, directly and indirectly."""
        waiting: list[tuple[Uses, _Namespace]] = [(uses, self._namespace)]
        while waiting:
            uses, namespace = waiting.pop()
            for name in sorted(uses.called | uses.held):
                in_cell = namespace is self._namespace and name in self._defined
                if name not in namespace or in_cell:
                    continue
                for entry in self._functions_behind(name, uses, namespace):
                    if id(entry.function) not in self._reached and not self._distributes:
                        self._reached[id(entry.function)] = entry
                        # Other processes import code of modules by its name, unchanged.
                        self._distributes = (
                            entry.namespace is self._namespace and entry.cell.distributes
                        )
                        waiting.append((entry.uses, entry.namespace))

    def _functions_behind(self, name: str, uses: Uses, namespace: _Namespace) -> Iterator[_Reached]:
        """The functions behind a variable.

        Its value, the methods of a class or of the class of an object, or the called functions of a
        module.
        """
        kind = type(namespace[name])
        if kind is FunctionType:
            if name in uses.called and sys.getrefcount(namespace[name]) <= self._references(
                namespace[name]
            ):
                yield from self._definitions_of(name, namespace[name])
            return
        if kind is ModuleType:
            module = namespace[name]
            if module in self._modules:
                for attribute in sorted(uses.called & vars(module).keys()):
                    yield from self._functions_behind(attribute, uses, vars(module))
            return
        cls = namespace[name] if kind is type else kind
        if type(cls) is not type or id(cls) in self._classes or not self._is_users(cls):
            return
        self._classes.add(id(cls))
        for method in list(vars(cls)):
            if (
                type(vars(cls)[method]) is FunctionType
                and sys.getrefcount(vars(cls)[method]) <= _REFERENCES
            ):
                yield from self._definitions_of(method, vars(cls)[method])

    def _is_users(self, cls: type) -> bool:
        """Return whether a class is of a cell or of a module of the user's."""
        return cls.__module__ == "__main__" or sys.modules.get(cls.__module__) in self._modules

    def _references(self, function: FunctionType) -> int:
        """Maximum number of references to a function that only namespaces refer to."""
        if function.__globals__ is self._namespace:
            return _REFERENCES
        namespaces = {id(self._namespace): self._namespace}
        for module in self._modules:
            namespaces[id(vars(module))] = vars(module)
        # One is the argument of `sys.getrefcount`; that of this method is gone by then.
        count = 1
        for namespace in namespaces.values():
            count += sum(value is function for value in list(namespace.values()))
        return count

    def _definitions_of(self, name: str, function: FunctionType) -> Iterator[_Reached]:
        code = function.__code__
        if code.co_name != name:
            return
        namespace = function.__globals__
        if namespace is self._namespace:
            cell = self._read(code.co_filename)
        else:
            cell = self._read_module(sys.modules.get(str(namespace.get("__name__"))), function)
        if cell is None:
            return
        for definition in cell.definitions:
            node = definition.node
            if node.name != name or node.lineno != code.co_firstlineno:
                continue
            if (node.lineno, node.col_offset) in cell.plain:
                yield _Reached(name, function, cell, definition, uses_of(node), namespace)

    def _read(self, file: str) -> Cell | None:
        """The cell of a file name, with its text as it ran."""
        if not (stem(file) or file in self._numbers):
            return None
        return self._parse(file)

    def _read_module(self, module: ModuleType | None, function: FunctionType) -> Cell | None:
        """The module of a function, if its text is that of the function."""
        if module not in self._modules or vars(module) is not function.__globals__:
            return None
        file = function.__code__.co_filename
        cell = self._parse(file) if file == module.__file__ else None
        return cell if cell is not None and cell.has(function.__code__) else None

    def _parse(self, file: str) -> Cell | None:
        text = "".join(linecache.getlines(file))
        entry = _parsed.get(file)
        if entry is None or entry[0] != text:
            cell = None
            if 0 < len(text) <= _MAX_CHARACTERS:
                try:
                    cell = Cell(ast.parse(text), Text(text, number=self._numbers.get(file, 0)))
                except (SyntaxError, ValueError, RecursionError):
                    cell = None
            while len(_parsed) >= _MAX_CELLS:
                del _parsed[next(iter(_parsed))]
            entry = _parsed[file] = text, cell
        return entry[1]

    def _held_elsewhere(self) -> set[str]:
        """Names of functions that any cell or module uses as values, even if it is not reached."""
        reached = self._reached.values()
        names = {entry.name for entry in reached} | self._defined
        files = [file for file in list(linecache.cache) if stem(file) or file in self._numbers]
        held = self._held_in(files[-_MAX_CELLS:], names) if names else set()
        of_modules = [entry for entry in reached if entry.namespace is not self._namespace]
        if of_modules:
            names, modules, defining = set(), set(), []
            for entry in of_modules:
                names.add(entry.name)
                # Code that uses them names their module, if only to import it.
                modules.add(str(entry.namespace["__name__"]).rpartition(".")[2])
                defining.append(entry.function.__code__.co_filename)
            module_files = [str(module.__file__) for module in self._modules]
            held |= self._held_in(defining, names) | self._held_in(module_files, names, modules)
        return held

    def _held_in(
        self, files: list[str], names: set[str], modules: set[str] | None = None
    ) -> set[str]:
        """Names that files use as values.

        Only files that contain one of the names, and one of the modules if given, are read.
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


def followed(
    tree: ast.Module, text: Text, namespace: Mapping[str, Any], numbers: Mapping[str, int]
) -> ast.Module:
    """Code that is about to be recorded, with its loops rewritten, so that each iteration is known.

    Functions that it calls are rewritten as well, while a recording runs.

    Parameters
    ----------
    tree : ast.Module
        It is not changed.
    text : Text
    namespace : mapping
        The variables that the code finds.
    numbers : mapping
        Execution counts of cells, by their files.
    """
    loops.install()
    if not loops.active():
        loops.functions.forget()
    cell = Cell(tree, text)
    changes = Earlier(cell, namespace, numbers).plan()
    if changes:
        loops.functions.plan(changes)
    changed = rewritten(cell, functions=changes is not None)
    loops.follow()
    return changed
