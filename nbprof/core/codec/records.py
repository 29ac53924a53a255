"""Dataclasses that can be stored: a stored name only ever becomes one of these classes."""

from __future__ import annotations

from typing import Any

_CLASSES: dict[str, type[Any]] = {}


def record(cls: type[Any]) -> type[Any]:
    """Let a dataclass be stored by the fields that its constructor takes; usable as a decorator."""
    _CLASSES[record_name(cls)] = cls
    return cls


def record_name(cls: type[Any]) -> str:
    """Name under which a class is stored."""
    return f"{cls.__module__}.{cls.__qualname__}"


def record_class(name: str) -> type[Any] | None:
    """The class of a name; None unless it was registered by `record`."""
    return _CLASSES.get(name)
