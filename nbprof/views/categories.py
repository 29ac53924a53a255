"""The categories of step time and their colours: those of `nbprof.screen.categories`, at hand for the views."""

from nbprof.screen.categories import (
    BY_KEY,
    CATEGORIES,
    DEVICE,
    FRAGMENTATION,
    FREE,
    HEAP,
    HOST,
    OTHER,
    STACK,
    Category,
    mix,
    ranked,
)

__all__ = [
    "BY_KEY",
    "CATEGORIES",
    "DEVICE",
    "FRAGMENTATION",
    "FREE",
    "HEAP",
    "HOST",
    "OTHER",
    "STACK",
    "Category",
    "mix",
    "ranked",
]
