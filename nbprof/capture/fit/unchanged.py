"""Objects of Keras are as they were before, whatever was built or replaced in them."""

from __future__ import annotations

import contextlib
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

_CONTAINERS: tuple[type, ...] = (OrderedDict, dict, list, set)
"""In the order in which a container is looked for: with the methods of these classes, as those of
Keras' own subclasses report each change to a layer.
"""
_LISTS = "tensorflow.python.trackable.data_structures"
_PROXY_STATE = (
    "_self_last_wrapped_dict_snapshot",
    "_self_external_modification",
    "_self_non_string_key",
    "_self_unconditional_checkpoint_dependencies",
    "_self_unconditional_dependency_names",
)
"""What TensorFlow notes of a dictionary that is an attribute, in its proxy of it."""


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
        for put_back in saved:
            put_back()
        random.setstate(state)


def _saved(roots: Iterable[Any]) -> Iterator[Callable[[], None]]:
    """Functions that put back attributes of objects, and the content of containers."""
    seen: set[int] = set()
    rest = list(roots)
    while rest:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, tuple):
            rest.extend(value)
        elif hasattr(type(value), "__wrapped__"):
            attributes = {
                name: getattr(value, name) for name in _PROXY_STATE if hasattr(value, name)
            }
            yield partial(_set, value, attributes)
            rest.extend([value.__wrapped__, *attributes.values()])
        elif isinstance(value, _CONTAINERS) and not _is_of(value, "tensorflow"):
            content = _content(value)
            yield partial(_put_back, value, content)
            rest.extend(content)
        if _is_of(value, "keras", "tensorflow", "_thread"):
            attributes = vars(value)
            yield partial(_put_back, attributes, list(attributes.items()))
            rest.extend(attributes.values())


def _is_of(value: Any, *packages: str) -> bool:
    """True for an object of a class of the packages, or of a subclass.

    Of TensorFlow, only its lists and dictionaries that are attributes of other objects.
    """
    kind = type(value)
    if issubclass(kind, type) or not hasattr(value, "__dict__"):
        return False
    if kind.__module__.startswith("tensorflow.") and kind.__module__ != _LISTS:
        return False
    return any(
        base.__module__.partition(".")[0] in packages and base is not object
        for base in kind.__mro__
    )


def _set(value: Any, attributes: dict[str, Any]) -> None:
    for name, attribute in attributes.items():
        setattr(value, name, attribute)


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
