"""A rule, tab or piece of evidence that raises is left out, with a message that names it.

A bug in one part of the analysis must not hide the results of the others. Outside of `collecting`,
for example in a test of one function, exceptions propagate.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from nbprof.core.errors import NbprofError

T = TypeVar("T")

LOG = logging.getLogger("nbprof.guard")
LOG.addHandler(logging.NullHandler())
"""Gets the traceback of each failure, at level DEBUG."""

_PACKAGE = Path(__file__).parents[1]


class FrameError(NbprofError):
    """A frame could not be computed because of a bug; the message names it."""


class Failures:
    """The failures of one run.

    Parameters
    ----------
    tell : callable
        Called once with the message of each failure.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.sentences: list[str] = []
        self._tell = tell

    def add(self, sentence: str) -> None:
        """Record a failure."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)
            self._tell(sentence)


_FAILURES: ContextVar[Failures | None] = ContextVar("nbprof_failures", default=None)


@contextmanager
def collecting(failures: Failures) -> Iterator[None]:
    """Within the block, failures are recorded instead of ending the analysis."""
    token = _FAILURES.set(failures)
    try:
        yield
    finally:
        _FAILURES.reset(token)


def guarded(part: str, compute: Callable[[], T], otherwise: Callable[[str], T]) -> T:
    """The value of `compute`; if it fails, that of `otherwise`, called with the message.

    Parameters
    ----------
    part : str
        Subject of the message: "The rule `straggler`".
    compute, otherwise : callable

    Raises
    ------
    NbprofError
        Raised by `compute` on purpose, with a message to the user.
    """
    failures = _FAILURES.get()
    try:
        return compute()
    except FrameError as error:
        if failures is None:
            raise
        sentence = f"{part} is left out: {error}"
        failures.add(sentence)
        return otherwise(sentence)
    except (NbprofError, MemoryError):
        raise
    except Exception as error:
        if failures is None:
            raise
        LOG.debug("%s failed", part, exc_info=error)
        sentence = f"{part} is left out: {reason(error)}"
        failures.add(sentence)
        return otherwise(sentence)


@contextmanager
def named(frame: str) -> Iterator[None]:
    """Raise unexpected exceptions as a `FrameError` that names the frame."""
    try:
        yield
    except (NbprofError, MemoryError):
        raise
    except Exception as error:
        LOG.debug("%s failed", frame, exc_info=error)
        raise FrameError(f"{frame} could not be computed. {reason(error)}") from error


def reason(error: Exception) -> str:
    """Type, text and location of an exception, with the remedy."""
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    last = (own_frames or frames)[-1] if frames else None
    location = ""
    if last is not None:
        path = Path(last.filename)
        name = path.relative_to(_PACKAGE.parent).as_posix() if own_frames else path.name
        location = f" ({name}, line {last.lineno})"
    text = " ".join(str(error).split())[:200]
    description = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return (
        f"{description}{location}. This is a bug in nbprof; please report it with this line."
        " Everything that does not depend on it is unaffected."
    )
