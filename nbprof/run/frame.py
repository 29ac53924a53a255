"""How a frame of a run is declared: computed once when it is first needed, guarded, cached on disk,
and combined over hosts.

A frame is a method of a family (a subclass of `Frames` in `nbprof/run/frames`) with a decorator
that says how long its value lives and where it comes from:

- `@cached`: computed once per run, and forgotten with it;
- `@frame`: it follows from the files alone, so the cache on disk stores it;
- `@frame(combine=...)`: the same, and where hosts are read separately, it is combined from theirs.

Everything else follows from the declaration: workers compute the combined frames listed in
`FRAMES` and send them back, and a frame that fails raises an error that names it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from nbprof.core import guard
from nbprof.core.garbage import collection_paused
from nbprof.core.guard import Failures
from nbprof.core.strings import python_strings

if TYPE_CHECKING:
    from nbprof.run.cache.run_cache import RunCache
    from nbprof.run.source import RunSource

T = TypeVar("T")
R = TypeVar("R", bound="Frames")


class Phase(str, Enum):
    """When the hosts of a run that are read separately compute a frame, and which of them do."""

    FIRST = "first"
    """All hosts, when the run is opened: the overview needs it."""
    REST = "rest"
    """All hosts, when it is first needed."""
    TYPICAL = "some"
    """Some hosts from the fastest to the slowest."""
    PROGRAMS = "programs"
    """The hosts that are the first with a compiled program."""
    LARGEST = "largest"
    """The host with the highest peak of memory."""


class Memo:
    """Values computed for a run, each once, even if two threads request it at the same time.

    Parameters
    ----------
    source : RunSource
        It counts how long the analysis took.
    run_cache : RunCache, optional
        The cache on disk; none by default.
    failures : Failures, optional
        Collects the parts of the analysis that fail; by default, a failure ends the analysis.
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

    def forget(self, *names: str) -> None:
        """Have values computed again: what they follow from has changed."""
        with self._lock:
            for name in names:
                self.values.pop(name, None)

    def persisted(self, name: str, compute: Callable[[], T]) -> T:
        """The value of that name from the cache on disk, else computed and stored there.

        Nothing is stored after a part of the analysis failed, as the value may lack that part.
        """
        if self.run_cache is None:
            return compute()
        return self.run_cache.value(name, compute, lambda: not self.failures.sentences)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds the time of a computation, nested ones included once, to that of the analysis."""
        if self._timing:
            yield
            return
        self._timing, began = True, time.perf_counter()
        try:
            with python_strings(), collection_paused():
                yield
        finally:
            self._timing = False
            if self._source.analysed_s is not None:
                self._source.analysed_s += time.perf_counter() - began


class Hosts(Protocol):
    """The values of several hosts that were read separately, in groups."""

    @property
    def groups(self) -> list[list[str]]:
        """The names of the hosts in each group."""

    @property
    def clock_offsets_ms(self) -> list[float]:
        """How long after the clock of the run that of each group begins."""

    def values(self, name: str) -> list[Any]:
        """The value of that name of each group."""

    def reading(self, phase: Phase) -> Hosts:
        """The hosts that computed the frames of a phase, which are read now if needed."""


Combine = Callable[[list[T], Hosts], T]
"""Makes the value of a run from the values of its groups of hosts."""


class Frames:
    """A class whose methods can be declared as frames.

    Attributes
    ----------
    memo : Memo
    parts : Hosts, optional
        The hosts, of a run whose hosts were read separately.
    prefix : str
        What the names of its frames begin with in `memo`, in the cache and in `FRAMES`.
    """

    memo: Memo
    parts: Hosts | None = None
    prefix = ""


class Group(Frames, Generic[R]):
    """The frames of one family, such as `run.allocator`. It holds no values itself: `run` does.

    Parameters
    ----------
    run : R
        A run with the frames that the family needs.
    """

    def __init__(self, run: R) -> None:
        self.run = run
        self.memo = run.memo
        self.parts = run.parts


class Frame(Generic[T]):
    """A value that is computed once per run, when it is first needed.

    Parameters
    ----------
    compute : callable
        Computes it.
    stored : bool
        It follows from the files alone, so the cache on disk may store it.
    combine : Combine, optional
        Makes it from the values of hosts that were read separately.
    phase : Phase
        When these hosts compute it.
    """

    def __init__(
        self,
        compute: Callable[[Any], T],
        *,
        stored: bool,
        combine: Combine[T] | None = None,
        phase: Phase = Phase.FIRST,
    ) -> None:
        self.name = compute.__name__
        self.compute = compute
        self.stored = stored
        self.combine = combine
        self.phase = phase
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Frames], name: str) -> None:
        self.owner = owner
        FRAMES[owner.prefix + name] = self

    def __get__(self, frames: Frames, owner: type[Frames]) -> T:
        return frames.memo.get(frames.prefix + self.name, lambda: self._value(frames))

    def of_run(self, run: Frames) -> T:
        """The frame of a run, also if it is declared in one of its groups."""
        frames = self.owner(run) if issubclass(self.owner, Group) else run
        return self.__get__(frames, self.owner)

    def of_hosts(self, hosts: Hosts) -> T:
        """The frame of a run from those of its hosts.

        Raises
        ------
        TypeError
            It is declared without `combine`.
        """
        if self.combine is None:
            raise TypeError(f"the frame {self.name} is not combined over hosts")
        return self.combine(hosts.values(self.owner.prefix + self.name), hosts)

    def _value(self, frames: Frames) -> T:
        if not self.stored:
            return self.compute(frames)
        return frames.memo.persisted(frames.prefix + self.name, lambda: self._from_files(frames))

    def _from_files(self, frames: Frames) -> T:
        if frames.parts is None or self.combine is None:
            return self.compute(frames)
        return self.of_hosts(frames.parts.reading(self.phase))


FRAMES: dict[str, Frame[Any]] = {}
"""Every declared frame, by its name in the cache."""


def combined_frames(*phases: str) -> dict[str, Frame[Any]]:
    """The frames that hosts compute in some phases, by name."""
    return {
        name: frame
        for name, frame in FRAMES.items()
        if frame.combine is not None and frame.phase in phases
    }


def cached(compute: Callable[[Any], T]) -> Frame[T]:
    """Declares a frame that is computed once per run and not stored."""
    return Frame(compute, stored=False)


@overload
def frame(compute: Callable[[Any], T], /) -> Frame[T]: ...


@overload
def frame(
    *, combine: Combine[T], phase: Phase = Phase.FIRST
) -> Callable[[Callable[[Any], T]], Frame[T]]: ...


def frame(
    compute: Callable[[Any], T] | None = None,
    /,
    *,
    combine: Combine[T] | None = None,
    phase: Phase = Phase.FIRST,
) -> Frame[T] | Callable[[Callable[[Any], T]], Frame[T]]:
    """Declares a frame that follows from the files alone, so that the cache on disk stores it.

    Parameters
    ----------
    combine : callable, optional
        Makes the frame of the run from those of hosts that were read separately.
    phase : Phase
        When these hosts compute it, and which of them.
    """
    if compute is not None:
        return Frame(compute, stored=True)
    return lambda method: Frame(method, stored=True, combine=combine, phase=phase)
