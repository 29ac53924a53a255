"""The container of a payload: those of `nbprof.screen.codec`, at hand for the views."""

from nbprof.screen.codec import (
    Array,
    Delta,
    coded,
    contain,
    numbers,
    pack,
    short,
    smallest,
    unpack,
)

__all__ = [
    "Array",
    "Delta",
    "coded",
    "contain",
    "numbers",
    "pack",
    "short",
    "smallest",
    "unpack",
]
