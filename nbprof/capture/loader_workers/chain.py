"""The transforms of a dataset: found in its attributes, timed while a batch is made.

Nothing of the person's is replaced for longer than a timed batch, nor by objects of another class:
a call of an object is timed through its class. Plain functions, which have no class of their own,
stand behind a wrapper for that time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Protocol

from nbprof.capture.loader_workers.stages import TRANSFORM, Stage, Times, stage_of

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)
_PARTS = ("transforms", "transform", "target_transform")
"""Attributes of transforms that consist of others."""
_MOST_OBJECTS, _MOST_ITEMS, _DEEPEST = 500, 200, 8


class Timing(Protocol):
    """Takes the times of transforms, as `Stages` does."""

    def times(self, stage: Stage) -> Times | None:
        """The times of a stage."""

    def run(
        self, times: Times, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call something and count its time."""


class _TimedFunction:
    """In place of a plain function; where it is pickled or copied, the function is."""

    def __init__(self, stages: Timing, times: Times, function: Any) -> None:
        self._stages, self._times, self._function = stages, times, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return self._stages.run(self._times, self._function, args, kwargs)

    def __reduce__(self) -> Any:
        return _itself, (self._function,)


def _itself(function: Any) -> Any:
    return function


class Chain:
    """The transforms of one dataset.

    Parameters
    ----------
    dataset : object
    stages : Timing
        Where their times go.
    datasets : tuple of type
        Classes of datasets: those within the dataset are searched as well.
    """

    def __init__(self, dataset: Any, stages: Timing, datasets: tuple[type, ...]) -> None:
        self._stages = stages
        self._datasets = datasets
        self._objects: dict[type, dict[int, Times]] = {}
        """By class, the times of its objects by their id."""
        self._functions: list[tuple[Any, Any, Any, Any]] = []
        """Container, key, the function and its wrapper."""
        self._undo: list[Callable[[], object]] = []
        self._objects_seen: list[Any] = []
        """Objects whose ids are in use."""
        self._seen: set[int] = set()
        self._names: dict[str, int] = {}
        self._search(dataset, 0)

    def __len__(self) -> int:
        return len(self._functions) + sum(map(len, self._objects.values()))

    def _search(self, dataset: Any, depth: int) -> None:
        """Find the transforms in the attributes of a dataset and of those within it."""
        if not self._is_new(dataset, depth):
            return
        attributes = _attributes(dataset)
        for name, value in list(attributes.items()):
            if isinstance(value, self._datasets):
                self._search(value, depth + 1)
            elif isinstance(value, (list, tuple, dict)):
                self._search_collection(attributes, name, depth + 1)
            else:
                self._add(attributes, name, value, depth + 1)

    def _search_collection(self, container: Any, key: Any, depth: int) -> None:
        values = container[key]
        if not self._is_new(values, depth) or not 0 < len(values) <= _MOST_ITEMS:
            return
        for index, value in _items(values):
            if isinstance(value, self._datasets):
                self._search(value, depth + 1)
            elif not isinstance(value, (list, tuple, dict)):
                # A function in a tuple cannot stand behind a wrapper.
                parent = None if isinstance(values, tuple) else values
                self._add(parent, index, value, depth + 1)

    def _is_new(self, thing: Any, depth: int) -> bool:
        if depth > _DEEPEST or id(thing) in self._seen or len(self._seen) >= _MOST_OBJECTS:
            return False
        self._seen.add(id(thing))
        self._objects_seen.append(thing)
        return True

    def _add(self, container: Any, key: Any, value: Any, depth: int) -> None:
        """Add a transform, or what it consists of."""
        if not callable(value) or isinstance(value, type):
            return
        if isinstance(value, _FUNCTIONS):
            self._add_function(container, key, value)
            return
        if not self._is_new(value, depth):
            return
        attributes = _attributes(value)
        parts = [name for name in _PARTS if name in attributes]
        if _is_sequence_of_modules(value):
            attributes, parts = {"modules": attributes["_modules"]}, ["modules"]
        for name in parts:
            inner = _attributes(attributes[name]).get("_modules")
            if isinstance(inner, dict) and type(attributes[name]).__name__ == "ModuleList":
                self._search_collection({"modules": inner}, "modules", depth + 1)
            elif isinstance(attributes[name], (list, tuple, dict)):
                self._search_collection(attributes, name, depth + 1)
            else:
                self._add(attributes, name, attributes[name], depth + 1)
        if not parts:
            self._add_object(value)

    def _add_function(self, container: Any, key: Any, function: Any) -> None:
        inner = function
        while isinstance(inner, functools.partial):
            inner = inner.func
        times = self._stages.times(self._numbered(stage_of(TRANSFORM, inner)))
        if times is None or container is None:
            return
        timed = _TimedFunction(self._stages, times, function)
        functools.update_wrapper(timed, inner)
        self._functions.append((container, key, function, timed))

    def _add_object(self, value: Any) -> None:
        # Only what is called through a function of Python can be timed through its class.
        if not isinstance(type(value).__call__, FunctionType):
            return
        methods: tuple[str, ...] = ("__call__",)
        if "_modules" in _attributes(value):
            methods = ("forward", "__call__")
        times = self._stages.times(self._numbered(stage_of(TRANSFORM, value, *methods)))
        if times is not None:
            self._objects.setdefault(type(value), {})[id(value)] = times

    def _numbered(self, stage: Stage) -> Stage:
        """The stage with a number in its name where others have the same name."""
        count = self._names[stage.name] = self._names.get(stage.name, 0) + 1
        return stage if count == 1 else stage._replace(name=f"{stage.name} #{count}")

    def install(self) -> None:
        """Time calls from now on, until `remove`."""
        for owner, times_of in self._objects.items():
            self._install_class(owner, times_of)
        for container, key, function, timed in self._functions:
            if _value(container, key) is function:
                container[key] = timed
                self._undo.append(functools.partial(_put_back, container, key, timed, function))

    def _install_class(self, owner: type, times_of: dict[int, Times]) -> None:
        inherits = "__call__" not in vars(owner)
        original: Any = owner.__call__
        run = self._stages.run

        @functools.wraps(original)
        def call(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            times = times_of.get(id(self_))
            if times is None:
                return original(self_, *args, **kwargs)
            return run(times, original, (self_, *args), kwargs)

        try:
            type.__setattr__(owner, "__call__", call)
        except TypeError:
            return
        self._undo.append(functools.partial(_restore_class, owner, call, original, inherits))

    def remove(self) -> None:
        """Leave everything as it was."""
        while self._undo:
            self._undo.pop()()


def _restore_class(owner: type, call: Any, original: Any, inherits: bool) -> None:
    if vars(owner).get("__call__") is not call:
        return
    if inherits:
        del owner.__call__
    else:
        type.__setattr__(owner, "__call__", original)


def _put_back(container: Any, key: Any, timed: Any, function: Any) -> None:
    # Unless the person's code has set it meanwhile.
    if _value(container, key) is timed:
        container[key] = function


def _value(container: Any, key: Any) -> Any:
    try:
        return container[key]
    except (LookupError, TypeError):
        return None


def _attributes(thing: Any) -> dict[str, Any]:
    """The attributes of an object, without running code of its class."""
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


def _is_sequence_of_modules(thing: Any) -> bool:
    return type(thing).__name__ == "Sequential" and "_modules" in _attributes(thing)


def _items(values: Any) -> Iterator[tuple[Any, Any]]:
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    return iter(list(pairs))
