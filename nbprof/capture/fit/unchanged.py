"""Objects of Keras are as they were before, whatever was built or replaced in them."""

from __future__ import annotations

import contextlib
import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

_CONTAINERS: tuple[type, ...] = (OrderedDict, dict, list, set)
"""In the order in which a container is looked for: with the methods of these classes, as those of
Keras' own subclasses report each change to a layer.
"""


@contextlib.contextmanager
def unchanged(*roots: Any) -> Iterator[None]:
    """Put back attributes and containers of `roots`, of all that they hold, and Python's `random`.

    Keras builds layers, metrics and optimizers as it traces them, which creates variables, counts
    names and draws seeds. Values of arrays are not looked at: tracing changes none.
    """
    state = random.getstate()
    saved = list(_saved(roots))
    try:
        yield
    finally:
        for value, content in saved:
            _put_back(value, content)
        random.setstate(state)


def _saved(roots: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Objects with a copy of their attributes, and containers with one of their content."""
    seen: set[int] = set()
    rest = list(roots)
    while rest:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, tuple):
            rest.extend(value)
            continue
        if isinstance(value, _CONTAINERS):
            content = _content(value)
            yield value, content
            rest.extend(content)
        if _is_of_keras(value):
            attributes = vars(value)
            yield attributes, list(attributes.items())
            rest.extend(attributes.values())


def _is_of_keras(value: Any) -> bool:
    """True for what Keras may change: an object of one of its classes, or of a subclass."""
    kind = type(value)
    if issubclass(kind, type) or not hasattr(value, "__dict__"):
        return False
    return any(
        base.__module__.partition(".")[0] in ("keras", "_thread") and base is not object
        for base in kind.__mro__
    )


def _content(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.items())
    return list(value)


def _put_back(value: Any, content: list[Any]) -> None:
    now = _content(value)
    if len(now) == len(content) and all(map(_is_same, now, content)):
        return
    for kind in _CONTAINERS:
        if isinstance(value, kind):
            methods: Any = kind
            methods.clear(value)
            if kind is list:
                methods.extend(value, content)
            else:
                methods.update(value, content)
            return


def _is_same(value: Any, other: Any) -> bool:
    """Of two values; of two pairs of a dictionary, key and value."""
    if value is other:
        return True
    if type(value) is tuple and type(other) is tuple and len(value) == len(other):
        return all(a is b for a, b in zip(value, other, strict=True))
    return False
