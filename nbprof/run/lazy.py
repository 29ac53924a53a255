"""Frames that are computed on first access: the building blocks of a `Run` and its groups of
frames.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from nbprof.core import guard
from nbprof.core.guard import Failures
from nbprof.core.strings import python_strings

if TYPE_CHECKING:
    from nbprof.run.cache.run_cache import RunCache
    from nbprof.run.run import Run
    from nbprof.run.source import RunSource

T = TypeVar("T")

FIRST, REST, SOME, PROGRAMS, LARGEST = "first", "rest", "some", "programs", "largest"
"""When a frame is made of hosts that are read apart: with the answer, when it is asked for, or of
some of the hosts alone: from the fastest to the slowest, those that are the first with a compiled
program, or the one with the highest peak of memory."""


class Memo:
    """Values computed for a run, each once, even if two threads request it at the same time.

    Parameters
    ----------
    source : RunSource
        It counts how long the analysis took.
    run_cache : RunCache, optional
        What the disk has of the run; no cache when left out.
    failures : Failures, optional
        Where parts of the analysis that fail are noted; they end it when left out.
    """

    def __init__(
        self, source: RunSource, run_cache: RunCache | None = None, failures: Failures | None = None
    ) -> None:
        self.run_cache = run_cache
        self.failures = failures or Failures(lambda _: None)
        self.values: dict[str, Any] = {}
        self._source = source
        self._lock = threading.RLock()
        self._timing = False

    def get(self, name: str, compute: Callable[[], T]) -> T:
        """The value of that name, computed on first access."""
        with self._lock:
            if name not in self.values:
                with (
                    self._timed(),
                    guard.collecting(self.failures),
                    guard.named(f"The part {name.strip('_')} of the analysis"),
                ):
                    self.values[name] = compute()
            value: T = self.values[name]
            return value

    def persisted(self, name: str, compute: Callable[[], T]) -> T:
        """The value of that name out of the cache on disk, which keeps it otherwise; not what may
        lack a part that failed.
        """
        if self.run_cache is None:
            return compute()
        return self.run_cache.value(name, compute, lambda: not self.failures.sentences)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds the time of a computation, once where several are nested, to how long the analysis
        took.
        """
        if self._timing:
            yield
            return
        self._timing, began = True, time.perf_counter()
        try:
            with python_strings():
                yield
        finally:
            self._timing = False
            if self._source.analysed_s is not None:
                self._source.analysed_s += time.perf_counter() - began


class Hosts(Protocol):
    """What is known of each of several hosts that were read apart."""

    @property
    def groups(self) -> list[list[str]]:
        """The names of those that were read together."""

    @property
    def late_ms(self) -> list[float]:
        """By how much the clock of each group begins after that of the run: what its times are
        moved by.
        """

    def values(self, name: str) -> list[Any]:
        """The value of that name of each group."""

    def reading(self, when: str) -> Hosts:
        """Those of which values of that kind are read."""


class Frames:
    """Has methods that `cached`, `persisted` or `of_hosts` made frames of.

    Attributes
    ----------
    memo : Memo
    parts : Hosts, optional
        Of a run whose hosts were read apart.
    prefix : str
        What the names of its frames begin with in `memo` and in the cache.
    """

    memo: Memo
    parts: Hosts | None = None
    prefix = ""


class Group(Frames):
    """The frames of one family, such as `run.allocator`. It is made when it is asked for and holds
    no values itself: `run` has them.

    Parameters
    ----------
    run : Run
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.memo = run.memo
        self.parts = run.parts


class cached(Generic[T]):  # noqa: N801 -- a decorator
    """A frame that is computed once per run."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, frames: Frames, owner: type[Frames]) -> T:
        return frames.memo.get(frames.prefix + self.name, lambda: self._make(frames))

    def _make(self, frames: Frames) -> T:
        return self.compute(frames)


class persisted(cached[T]):  # noqa: N801 -- a decorator
    """A frame that follows from the files alone and is kept in the cache: when they are opened
    again, it is there.
    """

    def _make(self, frames: Frames) -> T:
        return frames.memo.persisted(frames.prefix + self.name, lambda: self._value(frames))

    def _value(self, frames: Frames) -> T:
        return self.compute(frames)


class combined(persisted[T]):  # noqa: N801 -- a decorator
    """A frame that follows from what each host recorded: where hosts were read apart, it is
    combined of theirs, and else computed.
    """

    def __init__(
        self, compute: Callable[[Any], T], combine: Callable[[list[T], Hosts], T], when: str
    ) -> None:
        super().__init__(compute)
        self.combine = combine
        self.when = when

    def _value(self, frames: Frames) -> T:
        if frames.parts is None:
            return self.compute(frames)
        hosts = frames.parts.reading(self.when)
        return self.combine(hosts.values(frames.prefix + self.name), hosts)


def of_hosts(
    combine: Callable[[list[T], Hosts], T], when: str = FIRST
) -> Callable[[Callable[[Any], T]], combined[T]]:
    """Makes a frame `combined`; `combine` is given that of each host."""
    return lambda compute: combined(compute, combine, when)
