"""Find the arrays that an object keeps alive, and the references that lead to them."""

from __future__ import annotations

import gc
import inspect
import re
import sys
import time
from collections.abc import Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any
from weakref import ref

from nbprof.capture.variables.arrays import Block, Blocks, reader_of

_LEAVES = (
    BuiltinFunctionType,
    CodeType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
    WrapperDescriptorType,
    bool,
    bytes,
    complex,
    float,
    int,
    range,
    ref,
    slice,
    str,
    type,
    type(None),
    type(Ellipsis),
    type(NotImplemented),
)
"""Types whose objects are not looked into. Modules and classes are shared by all."""
_KERNEL = frozenset(
    ("IPython", "ipykernel", "jupyter_client", "nbprof", "tornado", "traitlets", "zmq")
)
"""Packages whose objects are not looked into: each of a kernel refers to all variables."""
_LEAF, _PLAIN, _FUNCTION, _FRAME, _ARRAY = range(5)
_MODULES = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")
_TRACEBACKS = re.compile(r" → (?:traceback|frame)(?= →)")
_LOOK = 4096
"""Objects after which the clock is looked at."""


class Search:
    """Searches one object after another.

    Parameters
    ----------
    namespaces : set of int
        Ids of dicts that are not looked into: the globals of modules.
    limit_s : float
        Seconds for all searches together.

    Attributes
    ----------
    complete : bool
        False if time ran out, and objects were not looked into.
    """

    def __init__(self, namespaces: set[int], limit_s: float) -> None:
        self._namespaces = namespaces
        self._until = time.perf_counter() + limit_s
        self._roles: dict[type, int] = {}
        self._readers: dict[type, Blocks] = {}
        self.complete = True

    def reach(self, root: Any) -> Reach:
        """The arrays that an object reaches."""
        reach = Reach(self, root)
        if self._role(type(root)) == _LEAF:
            return reach
        seen = {id(root), id(reach), id(reach.levels), *self._namespaces}
        level = reach.levels[0]
        while level:
            following: list[Any] = []
            # Already now, since an array that is reach is of the last level.
            for start in range(0, len(level), _LOOK):
                if time.perf_counter() > self._until:
                    self.complete = False
                    return reach
                self._look_into(level[start : start + _LOOK], seen, reach, following)
            reach.levels.append(following)
            level = following
        return reach

    def _look_into(
        self, objects: list[Any], seen: set[int], reach: Reach, following: list[Any]
    ) -> None:
        """Add the objects that others refer to and that are new."""
        roles = self._roles
        for referent in self.referents(objects, reach):
            role = roles.get(type(referent))
            if role is None:
                role = self._role(type(referent))
            if role == _LEAF:
                continue
            number = id(referent)
            if number not in seen:
                seen.add(number)
                following.append(referent)

    def referents(self, objects: list[Any], reach: Reach | None = None) -> list[Any]:
        """All referents of objects; the memory of arrays among these is added to `reach`."""
        roles = self._roles
        plain = [each for each in objects if roles[type(each)] == _PLAIN]
        result = gc.get_referents(*plain)
        if len(plain) == len(objects):
            return result
        for each in objects:
            role = roles[type(each)]
            if role == _FUNCTION:
                result += _of_function(each)
            elif role == _FRAME:
                result += _local(each).values()
            elif role == _ARRAY:
                if reach is not None:
                    self._add(each, reach)
                result += _of_array(each)
        return result

    def _add(self, array: Any, reach: Reach) -> None:
        # Some tensors have no memory of their own, others are deleted meanwhile.
        try:
            for block in self._readers[type(array)](array):
                reach.add(block, array)
        except Exception:
            reach.unknown += 1

    def _role(self, kind: type) -> int:
        role = self._roles.get(kind)
        if role is None:
            role = self._roles[kind] = self._new_role(kind)
        return role

    def _new_role(self, kind: type) -> int:
        reader = reader_of(kind)
        if reader is not None:
            self._readers[kind] = reader
            return _ARRAY
        if kind.__module__.partition(".")[0] in _KERNEL:
            return _LEAF
        if issubclass(kind, _LEAVES):
            return _LEAF
        if issubclass(kind, FrameType):
            return _FRAME
        if issubclass(kind, FunctionType):
            return _FUNCTION
        return _PLAIN


class Reach:
    """The arrays that an object reaches.

    Attributes
    ----------
    levels : list of list
        All objects on the way, by their distance from it.
    blocks : dict
        Memory by its key.
    graphs : int
        Tensors whose graph of autograd is kept, with what it saved for the backward pass.
    unknown : int
        Arrays whose memory is unknown.
    """

    def __init__(self, search: Search, root: Any) -> None:
        self._search = search
        self.levels: list[list[Any]] = [[root]]
        self.blocks: dict[tuple[Any, ...], Block] = {}
        self._arrays: dict[tuple[Any, ...], tuple[Any, int]] = {}
        self.graphs = self.unknown = 0

    def add(self, block: Block, array: Any) -> None:
        """Memory was reach in an array of the level that is looked into."""
        if block.key not in self.blocks:
            self.blocks[block.key] = block
            self._arrays[block.key] = (array, len(self.levels) - 1)
        if getattr(array, "grad_fn", None) is not None:
            self.graphs += 1

    def chain(self, key: tuple[Any, ...]) -> str:
        """The references from the object to the array of a block: `.layers[0].weight`."""
        target, depth = self._arrays[key]
        steps: list[Any] = [target]
        for level in reversed(self.levels[:depth]):
            parent = self._parent(level, steps[0])
            if parent is None:
                break
            steps.insert(0, parent)
        return _words(steps)

    def _parent(self, level: list[Any], child: Any) -> Any:
        candidates = level
        if len(level) > _LOOK:
            held = {id(each) for each in gc.get_referrers(child)}
            candidates = [each for each in level if id(each) in held]
        for each in candidates:
            if any(referent is child for referent in self._search.referents([each])):
                return each
            # Once somebody has asked for it, an object refers to a dict of its attributes.
            if any(value is child for value in _dict(each).values()):
                return each
        return None


def _of_function(function: Any) -> Iterator[Any]:
    """Referents of a function, except for the globals of its module."""
    for part in (function.__closure__, function.__defaults__, function.__kwdefaults__):
        if part is not None:
            yield part
    if vars(function):
        yield vars(function)


def _local(frame: FrameType) -> dict[str, Any]:
    """The local variables of a function; of other code they are those of its module."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return {}
    variables = frame.f_locals
    result = dict(variables)
    if type(variables) is dict:
        # Until Python 3.13 the frame keeps this copy, and with it what is deleted meanwhile.
        variables.clear()
    return result


def _of_array(array: Any) -> Iterator[Any]:
    """Referents of an array besides its memory."""
    attributes = getattr(array, "__dict__", None)
    if attributes:
        yield attributes
    if getattr(array, "is_leaf", False) is True:
        # A property that warns of other tensors.
        gradient = getattr(array, "grad", None)
        if gradient is not None:
            yield gradient
    hooks = getattr(array, "_backward_hooks", None)
    if hooks:
        yield hooks
    if getattr(getattr(array, "dtype", None), "hasobject", False) is True:
        # NumPy does not tell the garbage collector of them.
        yield from gc.get_referents(array.tolist())


def _words(steps: list[Any]) -> str:
    """A chain of references in the words of Python."""
    text, index = "", 0
    while index < len(steps) - 1:
        parent, child = steps[index], steps[index + 1]
        if index + 2 < len(steps) and isinstance(child, dict) and _dict(parent) is child:
            text += f".{_key(child, steps[index + 2])}"
            index += 2
            continue
        text += _link(parent, child)
        index += 1
    # As they are written in Python.
    text = _MODULES.sub(r".\1", text)
    return _TRACEBACKS.sub("", text)


def _link(parent: Any, child: Any) -> str:
    if isinstance(parent, dict):
        key = _key(parent, child)
        if isinstance(key, (str, int)):
            return f"[{key!r}]"
        return f" → {type(key).__name__}"
    if isinstance(parent, list):
        return _index(list.__iter__(parent), child)
    if isinstance(parent, tuple):
        return _index(tuple.__iter__(parent), child)
    if isinstance(parent, FrameType):
        name = _key(_local(parent), child)
        return f" → {parent.f_code.co_name}, line {parent.f_lineno}: {name}"
    if isinstance(parent, FunctionType):
        return _of_closure(parent, child)
    if type(parent).__name__ == "cell":
        return ""
    if reader_of(type(parent)) is not None:
        if getattr(getattr(parent, "dtype", None), "hasobject", False) is True:
            return _index(iter(parent.flat), child)
        if child is getattr(parent, "grad", None):
            return ".grad"
    for name, value in _attributes(parent):
        if value is child:
            return f".{name}"
    return f" → {type(child).__name__}"


def _index(items: Iterator[Any], child: Any) -> str:
    """The place of a child; another thread may have taken it away meanwhile."""
    return next((f"[{index}]" for index, each in enumerate(items) if each is child), "[…]")


def _dict(value: Any) -> dict[str, Any]:
    """The attributes of an object that has a dict; no `__getattr__` is called."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    if isinstance(attributes, dict):
        return attributes
    return {}


def _attributes(parent: Any) -> Iterator[tuple[str, Any]]:
    """Attributes that are stored in an object itself; no property is called."""
    yield from _dict(parent).items()
    for kind in type(parent).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        if isinstance(slots, str):
            slots = (slots,)
        for name in slots:
            descriptor = kind.__dict__.get(name)
            if isinstance(descriptor, MemberDescriptorType):
                try:
                    yield name, descriptor.__get__(parent)
                except AttributeError:
                    continue


def _of_closure(function: Any, child: Any) -> str:
    return (
        f" → closure of {function.__name__}"
        if child is function.__closure__
        else (f" → defaults of {function.__name__}")
    )


def _key(mapping: Any, child: Any) -> Any:
    """The key of a value, or the key that this is."""
    return next((key for key, value in dict.items(mapping) if value is child), child)


def namespaces() -> set[int]:
    """Ids of the globals of all modules."""
    # Code may put anything there, also None.
    modules: list[Any] = list(sys.modules.values())
    return {id(vars(module)) for module in modules if isinstance(module, ModuleType)}
