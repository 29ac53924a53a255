"""How many examples the slowest property tests draw."""

from __future__ import annotations

import os


def fewer_in_ci(count: int) -> int:
    """A third where CI draws the same ones each time; all of them in `make fuzz`, which draws others each time."""
    return count // 3 if os.environ.get("CI") else count
