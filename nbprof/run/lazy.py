"""Frames that are computed on first access: the building blocks of a `Run` and its groups of frames."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from nbprof.run.cache.run_cache import RunCache
    from nbprof.run.run import Run
    from nbprof.run.source import RunSource

T = TypeVar("T")


class Memo:
    """Values computed for a run, each once, even if two threads request it at the same time.

    Parameters
    ----------
    source : RunSource
        It counts how long the analysis took.
    run_cache : RunCache, optional
        What the disk has of the run; no cache when left out.
    """

    def __init__(self, source: RunSource, run_cache: RunCache | None = None) -> None:
        self.run_cache = run_cache
        self.values: dict[str, Any] = {}
        self._source = source
        self._lock = threading.RLock()
        self._timing = False

    def get(self, name: str, compute: Callable[[], T]) -> T:
        """The value of that name, computed on first access."""
        with self._lock:
            if name not in self.values:
                with self._timed():
                    self.values[name] = compute()
            value: T = self.values[name]
            return value

    def persisted(self, name: str, compute: Callable[[], T]) -> T:
        """The value of that name out of the cache on disk, which keeps it otherwise."""
        return compute() if self.run_cache is None else self.run_cache.value(name, compute)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds the time of a computation, once where several are nested, to how long the analysis took."""
        if self._timing or self._source.analysed_s is None:
            yield
            return
        self._timing, began = True, time.perf_counter()
        try:
            yield
        finally:
            self._timing = False
            self._source.analysed_s += time.perf_counter() - began


class Frames:
    """Has methods that `cached` or `persisted` made frames of.

    Attributes
    ----------
    memo : Memo
    prefix : str
        What the names of its frames begin with in `memo` and in the cache.
    """

    memo: Memo
    prefix = ""


class Group(Frames):
    """The frames of one family, such as `run.allocator`. It is made when it is asked for and holds no values itself: `run` has them.

    Parameters
    ----------
    run : Run
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.memo = run.memo


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
    """A frame that follows from the files alone and is kept in the cache: when they are opened again, it is there."""

    def _make(self, frames: Frames) -> T:
        return frames.memo.persisted(frames.prefix + self.name, lambda: self.compute(frames))
