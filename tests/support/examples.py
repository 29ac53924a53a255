"""How many examples the slowest property tests draw."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """All of them in `make fuzz`, which draws others each time; a third in `make test`, which draws
    the same.
    """
    return count // 3 if settings.default.derandomize else count
