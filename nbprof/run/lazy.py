"""Frames that are computed when first asked for, and kept: what a `Run` is made of."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nbprof.run.source import RunSource

if TYPE_CHECKING:
    from nbprof.run.cache.run_cache import Shelf

T = TypeVar("T")


class Lazy:
    """Has frames that are each computed once, out of the cache where that has them.

    Parameters
    ----------
    source : RunSource
    shelf : Shelf, optional
        What the cache has of the profile; no cache when left out.
    """

    def __init__(self, source: RunSource, shelf: Shelf | None = None) -> None:
        self.source = source
        self._shelf = shelf
        self._cache: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._timing = False

    def kept(self, name: str, compute: Callable[[], T]) -> T:
        """A value that follows from the files alone, out of the cache where that has it; `compute` makes it otherwise."""
        return compute() if self._shelf is None else self._shelf.value(name, compute)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds the time of a computation, once where several are nested, to how long the analysis took."""
        if self._timing or self.source.analysed_s is None:
            yield
            return
        self._timing, began = True, time.perf_counter()
        try:
            yield
        finally:
            self._timing = False
            self.source.analysed_s += time.perf_counter() - began


class Cached(Generic[T]):
    """A frame that is computed once, also when two threads ask for it at a time."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, run: Lazy, owner: type[Lazy]) -> T:
        with run._lock:
            if self.name not in run._cache:
                with run._timed():
                    run._cache[self.name] = self._make(run)
            value: T = run._cache[self.name]
            return value

    def _make(self, run: Lazy) -> T:
        return self.compute(run)


class Kept(Cached[T]):
    """A frame that follows from the files alone: when they are opened again, it is there."""

    def _make(self, run: Lazy) -> T:
        return run.kept(self.name, lambda: self.compute(run))
