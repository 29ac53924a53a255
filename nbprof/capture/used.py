"""Frameworks that the variables in a cell's code lead to: ``train()`` to the model it uses.

Only types and code are inspected: nothing is called, and no attribute is computed.
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

_FRAMEWORKS: dict[str, str] = {"keras": "keras"}
"""Frameworks by the packages of their objects."""
for _name, _framework in RECORDED.items():
    _FRAMEWORKS |= dict.fromkeys((*_framework.packages, *_framework.uses), _name)
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]")
"""Files whose functions may name any framework."""
_READ = re.compile(r"(?<![.\w])[^\W\d]\w*\b(?!\s*=(?!=))")
"""A variable that is read, not an attribute or an assignment; Python cannot parse cells with
magics.
"""
_NAME = re.compile(r"[^\W\d]\w*")
_MAX_DEPTH = 5
"""References from a name of the cell to an object of a framework: through functions, modules,
containers and attributes.
"""
_MAX_OBJECTS = 1000
_FIRST_ITEMS = 8
"""Items of a container that are inspected, as they are mostly of one kind."""


def of_type(kind: type) -> str:
    """The framework of a class or of its first base class with one; "" if it has none.

    Keras is ``keras``.
    """
    for base in kind.__mro__:
        framework = of_module(str(base.__module__))
        if framework:
            return framework
    return ""


def led_to(code: str, namespace: Mapping[str, Any]) -> set[str]:
    """The frameworks, as in `of_type`, that the names in a cell's code lead to."""
    return _Walk().variables(_READ.findall(code), set(_NAME.findall(code)), namespace, _MAX_DEPTH)


def of_module(name: str) -> str:
    """The framework of a module by its name, as in `of_type`."""
    return _FRAMEWORKS.get(name.partition(".")[0], "")


class _Walk:
    """Walks from objects to their frameworks; each is visited once, at most `_MAX_OBJECTS`."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def variables(
        self, read: Iterable[str], named: set[str], namespace: Mapping[str, Any], depth: int
    ) -> set[str]:
        """The frameworks of variables; of a module of the user's, those of the named attributes."""
        frameworks: set[str] = set()
        for name in set(read) & set(namespace):
            value = namespace[name]
            if not isinstance(value, ModuleType):
                frameworks |= self._value(value, depth)
            elif of_module(value.__name__):
                frameworks.add(of_module(value.__name__))
            elif self._is_new(value, depth):
                frameworks |= self.variables(named, named, vars(value), depth - 1)
        return frameworks

    def _is_new(self, value: Any, depth: int) -> bool:
        if depth <= 0 or id(value) in self._seen or len(self._seen) >= _MAX_OBJECTS:
            return False
        self._seen.add(id(value))
        return True

    def _values(self, values: Iterable[Any], depth: int) -> set[str]:
        frameworks: set[str] = set()
        for value in values:
            frameworks |= self._value(value, depth)
        return frameworks

    def _value(self, value: Any, depth: int) -> set[str]:
        kind = value if isinstance(value, type) else type(value)
        framework = of_type(kind)
        if framework:
            return {framework}
        if str(kind.__module__).partition(".")[0] == "nbprof" or not self._is_new(value, depth):
            return set()
        if isinstance(value, FunctionType):
            return self._function(value, depth - 1)
        if isinstance(value, MethodType):
            return self._values((value.__self__, value.__func__), depth)
        if isinstance(value, functools.partial):
            return self._values((value.func, *value.args, *value.keywords.values()), depth)
        if kind in (list, tuple, set, frozenset, dict):
            items = value.values() if kind is dict else value
            return self._values(list(islice(items, _FIRST_ITEMS)), depth - 1)
        parts = []
        if kind is not value and kind.__dictoffset__:
            parts += object.__getattribute__(value, "__dict__").values()
        parts += [member for member in vars(kind).values() if isinstance(member, FunctionType)]
        return self._values(parts, depth - 1)

    def _function(self, value: FunctionType, depth: int) -> set[str]:
        framework = of_module(str(value.__globals__.get("__name__")))
        if framework:
            return {framework}
        closed = []
        for cell in value.__closure__ or ():
            # A cell may be empty.
            with contextlib.suppress(ValueError):
                closed.append(cell.cell_contents)
        frameworks = self._values(closed, depth)
        if not _INSTALLED.search(value.__code__.co_filename):
            frameworks |= self.variables(
                globals_in(value.__code__), names_in(value.__code__), value.__globals__, depth
            )
        return frameworks
