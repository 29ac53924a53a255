"""A column of a public frame, and shorthands for the common kinds."""

from __future__ import annotations

from typing import NamedTuple


class Col(NamedTuple):
    """One column of a public frame.

    Attributes
    ----------
    name, dtype, unit : str
        `unit` is '' where the values have none. Missing values are NA, never 0.
    label : str
        Column header on screen.
    help : str
        One sentence of meaning.
    kind : str
        How it is shown: text, code, number, bytes, percent (0…100) or bool.
    digits : int or None
        Decimals on screen.
    """

    name: str
    dtype: str
    unit: str
    label: str
    help: str
    kind: str = "number"
    digits: int | None = None


def text(name: str, label: str, help: str, kind: str = "text") -> Col:
    """Text; with kind "code", names from the profile."""
    return Col(name, "object", "", label, help, kind, None)


def count(name: str, label: str, help: str, dtype: str = "int64") -> Col:
    """Whole numbers; "Int64" where some may be missing."""
    return Col(name, dtype, "", label, help, "number", 0)


def size(name: str, label: str, help: str, dtype: str = "int64") -> Col:
    """Bytes."""
    return Col(name, dtype, "bytes", label, help, "bytes", None)


def ms(name: str, label: str, help: str, digits: int = 2) -> Col:
    """Milliseconds."""
    return Col(name, "float64", "ms", label, help, "number", digits)


def us(name: str, label: str, help: str) -> Col:
    """Microseconds."""
    return Col(name, "float64", "us", label, help, "number", 1)


def percent(name: str, label: str, help: str) -> Col:
    """Shares from 0 to 100."""
    return Col(name, "float64", "percent", label, help, "percent", 1)


def part(name: str, label: str, help: str) -> Col:
    """Shares from 0 to 1, shown in percent."""
    return Col(name, "float64", "fraction", label, help, "percent", 1)


def rate(name: str, unit: str, label: str, help: str) -> Col:
    """A rate: an amount per second, or per unit of something else."""
    return Col(name, "float64", unit, label, help, "number", 1)


def flag(name: str, label: str, help: str) -> Col:
    """Yes or no."""
    return Col(name, "bool", "", label, help, "bool", None)
