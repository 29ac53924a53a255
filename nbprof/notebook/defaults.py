"""Default options: those of the environment, overridden by those of ``%nbprof defaults``.

Both are lines of options as they follow ``%%nbprof``. JupyterLab's settings come as the kernel's
environment variable, so nbprof need not be imported for them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence

VARIABLE = "NBPROF_OPTIONS"

_chosen: list[str] = []
_instead: list[list[str]] = []


def words() -> list[str]:
    """The options that hold, as words; the later one of two that contradict each other counts.

    Raises
    ------
    ValueError
        The variable holds a quote that does not end.
    """
    return [*_outside(), *_chosen]


def chosen() -> list[str]:
    """Those of ``%nbprof defaults`` alone."""
    return list(_chosen)


def choose(words: Sequence[str]) -> None:
    """Set those of ``%nbprof defaults``, which were checked."""
    _chosen[:] = words


@contextlib.contextmanager
def instead(words: Sequence[str] | None) -> Iterator[None]:
    """In the block, use these words, which the button passes, instead of the environment.

    None changes nothing.
    """
    if words is None:
        yield
        return
    _instead.append(list(words))
    try:
        yield
    finally:
        _instead.pop()


def _outside() -> list[str]:
    if _instead:
        return _instead[-1]
    text = os.environ.get(VARIABLE, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(
            f"the environment variable {VARIABLE} cannot be read ({error}): {text}"
        ) from None


def line(words: Sequence[str]) -> str:
    """Words as a line that can be typed."""
    return shlex.join(words)
