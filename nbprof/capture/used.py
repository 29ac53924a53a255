"""Which frameworks the variables of a notebook lead to that a cell's code names: ``train()`` to the
model in that function.

Types and code are looked at. Nothing is called, and no attribute is computed.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

from nbprof.capture.probe.reads import globals_in, names_in
from nbprof.frameworks.register import RECORDED

_ROOTS = {
    package: name
    for name, framework in RECORDED.items()
    for package in (*framework.packages, *framework.uses)
} | {"keras": "keras"}
"""Frameworks by the packages that their objects are of."""
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]")
"""Functions that may name every framework that there is."""
_READ = re.compile(r"(?<![.\w])[^\W\d]\w*\b(?!\s*=(?!=))")
"""A variable, rather than an attribute or what is set; cells have magics, which no parser of Python
takes.
"""
_NAME = re.compile(r"[^\W\d]\w*")
_DEEPEST = 5
"""So many steps from a name of the cell to an object of a framework: through functions, modules,
containers and attributes.
"""
_MOST = 1000
_FIRST = 8
"""Items of a container that are looked at, as they are mostly of one kind."""


def of_type(kind: type) -> str:
    """The framework of a class, or of the first that it is derived from; Keras is ``keras``, and ""
    is none.
    """
    return next(filter(None, (of_module(str(one.__module__)) for one in kind.__mro__)), "")


def led_to(code: str, namespace: Mapping[str, Any]) -> set[str]:
    """The frameworks, as `of_type` has them, that the names in a cell's code lead to."""
    return _Walk().variables(_READ.findall(code), set(_NAME.findall(code)), namespace, _DEEPEST)


def of_module(name: str) -> str:
    """The framework of a module by its name, as of a class."""
    return _ROOTS.get(name.partition(".")[0], "")


class _Walk:
    """From objects to the frameworks that they are of or hold; each is looked at once, and not more
    than `_MOST`.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def variables(
        self, read: Iterable[str], named: set[str], namespace: Mapping[str, Any], depth: int
    ) -> set[str]:
        """The frameworks of the variables that are read; a module of the user's stands for what it
        has under a name: ``mine.train()``.
        """
        found: set[str] = set()
        for value in [namespace[name] for name in set(read) & set(namespace)]:
            if not isinstance(value, ModuleType):
                found |= self._value(value, depth)
            elif framework := of_module(value.__name__):
                found.add(framework)
            elif self._new(value, depth):
                found |= self.variables(named, named, vars(value), depth - 1)
        return found

    def _new(self, value: Any, depth: int) -> bool:
        if depth <= 0 or id(value) in self._seen or len(self._seen) >= _MOST:
            return False
        self._seen.add(id(value))
        return True

    def _values(self, values: Iterable[Any], depth: int) -> set[str]:
        return set[str]().union(*(self._value(value, depth) for value in values))

    def _value(self, value: Any, depth: int) -> set[str]:
        kind = value if isinstance(value, type) else type(value)
        if framework := of_type(kind):
            return {framework}
        if str(kind.__module__).partition(".")[0] == "nbprof" or not self._new(value, depth):
            return set()
        if isinstance(value, FunctionType):
            return self._function(value, depth - 1)
        if isinstance(value, MethodType):
            return self._values((value.__self__, value.__func__), depth)
        if isinstance(value, functools.partial):
            return self._values((value.func, *value.args, *value.keywords.values()), depth)
        if kind in (list, tuple, set, frozenset, dict):
            return self._values(
                list(islice(value.values() if kind is dict else value, _FIRST)), depth - 1
            )
        held = (
            object.__getattribute__(value, "__dict__")
            if kind is not value and kind.__dictoffset__
            else {}
        )
        methods = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
        return self._values([*held.values(), *methods], depth - 1)

    def _function(self, value: FunctionType, depth: int) -> set[str]:
        if framework := of_module(str(value.__globals__.get("__name__"))):
            return {framework}
        closed = []
        for cell in value.__closure__ or ():
            # What is not set yet.
            with contextlib.suppress(ValueError):
                closed.append(cell.cell_contents)
        found = self._values(closed, depth)
        if not _INSTALLED.search(value.__code__.co_filename):
            found |= self.variables(
                globals_in(value.__code__), names_in(value.__code__), value.__globals__, depth
            )
        return found
