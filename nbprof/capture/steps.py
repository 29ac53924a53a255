"""Mark the steps of your own loop: ``nbprof.step`` and ``nbprof.steps``."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import contextmanager, suppress
from dis import get_instructions, opname
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import FrameType, TracebackType
from typing import Any, NamedTuple, TypeVar, overload

from nbprof.capture.clock import LOOP, WAIT, Marker, Span, StepClock, current

T = TypeVar("T")


def input_of(iterable: Iterable[T]) -> Iterable[T]:
    """The iterable of `steps`; `nbprof.capture.probe` replaces this function."""
    return iterable


class Root:
    """One marker of a step, from ``nbprof.step``, ``nbprof.steps`` or a trainer's callback.

    Parameters
    ----------
    name : str
    number : int, optional
        Of the step in the trace; that of the clock when left out.
    origin : str
        How the receipt says that the step was found.
    """

    def __init__(self, name: str, number: int | None, origin: str) -> None:
        self.name = name
        self.clock = current()
        self.marker: Marker | None = None
        self.number = number or 0
        self.thread = threading.get_ident()
        self._safely(lambda clock: self._open(clock, number, origin))

    def waiting(self) -> Waiting:
        """A context manager around a wait of the step."""
        return Waiting(self.clock)

    def close(self, outcome: str) -> None:
        """End it as ``done``, ``failed`` or ``unused`` (there was nothing left to do)."""
        self._safely(lambda clock: self._close(clock, outcome))

    def _open(self, clock: StepClock, number: int | None, origin: str) -> None:
        counted = clock.root_begins(origin=origin)
        if not counted:
            return
        self.number = counted if number is None else number
        open_marker = clock.open_marker
        if open_marker is not None:
            self.marker = open_marker(self.name, self.number)

    def _close(self, clock: StepClock, outcome: str) -> None:
        if not clock.alive:
            return
        if self.marker is not None:
            # A marker of the framework inside this one is a step already: two roots would be two
            # steps.
            if outcome == "done" and not clock.holds_framework(self.thread):
                self.marker.close(self.number)
            else:
                self.marker.close(None)
        clock.root_ends(self.name, outcome, self.thread)

    def _safely(self, act: Callable[[StepClock], None]) -> None:
        if self.clock is None:
            return
        try:
            act(self.clock)
        except Exception as error:
            # A fault in the marking must not break the user's loop.
            self.clock.fault = f"{type(error).__name__}: {error}"
            self.clock.abandon()


class Waiting:
    """Counts and marks the time of a block as time that the step waits for input."""

    def __init__(self, clock: StepClock | None, name: str = WAIT) -> None:
        self._name = name
        self._clock: StepClock | None = None
        self._counting: Any = None
        if clock is not None and clock.alive:
            self._clock, self._counting = clock, clock.waits.waiting()
        self._span: Span | None = None

    def __enter__(self) -> None:
        if self._clock is None or self._counting is None:
            return
        open_wait = self._clock.open_wait
        if open_wait is not None:
            with suppress(Exception):
                self._span = open_wait(self._name)
        self._counting.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._counting is not None:
            # The exception that ends the wait does not matter here.
            self._counting.__exit__(None, None, None)
        if self._span is not None:
            with suppress(Exception):
                self._span.close()


# Instructions that drop a loop's iterator without an exception: break and return, and those that
# rebind or delete its name.
_DROPS = ("POP_", "END_FOR", "DELETE_", "STORE_")
_YIELDS = ("YIELD_VALUE", "RESUME")
_ASKS = "FOR_ITER"
# Instructions that close a loop's iterator without running the user's code after the loop.
_NOTHING_RUNS = ("CACHE", "END_FOR", "EXTENDED_ARG", "LOAD_", "NOP", "POP_", "PRECALL", "PUSH_NULL")


class _Loop(NamedTuple):
    """The loop that asked for an item, without references: its frame holds the iterator.

    Parameters
    ----------
    frames : set of int
        The frames that ask, by identity: generators that pass the item on, and the loop itself;
        none if no `for` asks.
    asked : int
        Offset of the instruction of the loop's frame.
    handled : int
        The exception that was being handled when the round began, by identity.
    """

    frames: set[int]
    asked: int
    handled: int


_NO_LOOP = _Loop(set(), -1, 0)


def _loop(frame: FrameType | None) -> _Loop:
    frames = set()
    while frame is not None:
        frames.add(id(frame))
        if not frame.f_code.co_flags & CO_GENERATOR:
            handled = id(sys.exc_info()[1])
            if _instruction(frame) == _ASKS:
                return _Loop(frames, frame.f_lasti, handled)
            return _Loop(set(), -1, handled)
        frame = frame.f_back
    return _NO_LOOP


def _instruction(frame: FrameType) -> str:
    if frame.f_lasti < 0:
        return ""
    return opname[frame.f_code.co_code[frame.f_lasti]]


def _left(
    frame: FrameType | None, loop: _Loop, error: BaseException | None, referenced: bool
) -> str:
    """Return how the last round of a loop ended: ``done``, ``failed`` or, if unknown, ``unused``.

    A generator is closed in the same way by break and by an exception that passes through its loop.
    They differ in the instruction of the loop's frame: an exception leaves it at the one that
    raised. At the head of the loop, `islice`, for example, stopped. A frame that is not of the loop
    closes the generator for other reasons.

    A generator that is `referenced` while it is closed is closed by a call; an exception caused
    that if `error` is being handled and was not when the round began. After the loop, the round
    ended there only if nothing ran in between.
    """
    caller = frame
    while frame is not None:
        name = _instruction(frame)
        if name not in _YIELDS:
            called = referenced and frame is caller
            if called and error is not None and id(error) != loop.handled:
                return "failed"
            if id(frame) not in loop.frames or name == _ASKS or name.startswith(_DROPS):
                return "done"
            after, at_once = _after_loop(frame, loop.asked)
            if at_once or (called and not after):
                return "done"
            return "unused" if called else "failed"
        frame = frame.f_back
    return "done"


def _after_loop(frame: FrameType, asked: int) -> tuple[bool, bool]:
    """Return whether a frame has left its loop, and whether it only calls ``close`` since.

    The loop asks for items at the instruction `asked`.
    """
    code = list(get_instructions(frame.f_code))
    end = None
    for instruction in code:
        if instruction.offset == asked and instruction.opname == _ASKS:
            end = instruction.argval
    if end is None or frame.f_lasti < end:
        return False, False
    closes, runs = False, False
    for instruction in code:
        if end <= instruction.offset < frame.f_lasti:
            closes = closes or instruction.argval == "close"
            runs = runs or not instruction.opname.startswith(_NOTHING_RUNS)
    return True, closes and not runs


@contextmanager
def step(name: str = "train", step_num: int | None = None) -> Iterator[None]:
    """Mark one step of your own loop, so that step times and their breakdown are known.

    It does nothing unless nbprof is recording. A step inside another one is part of the outer one.

    Parameters
    ----------
    name : str
        What the step is called: ``train``, ``test`` or ``predict`` are usual.
    step_num : int, optional
        Your number of the step; by default steps are counted from 1 within the cell.

    Examples
    --------
    >>> import nbprof
    >>> for batch in [1, 2]:
    ...     with nbprof.step():
    ...         pass
    """
    root = Root(name, step_num, "marked by nbprof.step")
    try:
        yield
    except BaseException:
        root.close("failed")
        raise
    root.close("done")


@overload
def steps(iterable: Iterable[T], name: str = "train") -> Generator[T, None, None]: ...


@overload
def steps(iterable: AsyncIterable[T], name: str = "train") -> AsyncIterator[T]: ...


def steps(iterable: Any, name: str = "train") -> Generator[T, None, None] | AsyncIterator[T]:
    """Yield from `iterable`, making each iteration of the loop a step.

    The wait for the next item counts in its step, as input.

    Loops on several threads are each counted; steps are numbered by when they began.

    If a loop is left early, its last iteration ends when the iterator is dropped, as after `break`,
    or closed right after the loop. If other code runs before ``close()``, its end is unknown, and
    it is not a step.

    Parameters
    ----------
    iterable : iterable or asynchronous iterable
        What your loop runs over: batches, a data loader, a range. What ``async for`` runs over
        gives an asynchronous iterator.
    name : str
        What the steps are called.

    Examples
    --------
    >>> import nbprof
    >>> for batch in nbprof.steps([1, 2]):
    ...     pass
    """
    if isinstance(iterable, AsyncIterable) and not isinstance(iterable, Iterable):
        return AsyncSteps(iterable, name)
    generators: list[weakref.ref[Any]] = []
    rounds = _rounds(iterable, name, generators)
    # Cleared before a generator that nobody refers to any more is closed.
    generators.append(weakref.ref(rounds))
    return rounds


def _rounds(
    iterable: Iterable[T], name: str, generators: list[weakref.ref[Any]]
) -> Generator[T, None, None]:
    iterator = iter(input_of(iterable))
    clock = current()
    if clock is not None:
        clock.bounds(LOOP)
    while True:
        root = Root(name, None, "marked by nbprof.steps")
        loop = _loop(sys._getframe(1)) if root.clock is not None else _NO_LOOP
        try:
            with root.waiting():
                item = next(iterator)
        except StopIteration:
            root.close("unused")
            return
        except BaseException:
            root.close("failed")
            raise
        try:
            yield item
        except GeneratorExit as left:
            root.close(_left(sys._getframe(1), loop, left.__context__, generators[0]() is not None))
            raise
        except BaseException:
            root.close("failed")
            raise
        root.close("done")


class AsyncSteps(AsyncIterator[T]):
    """The items of an asynchronous iterable; each iteration of the loop over them is a step.

    No asynchronous generator: Python closes one some time after the loop was left, and this one
    when it drops it.

    Parameters
    ----------
    iterable : asynchronous iterable
    name : str
        What the steps are called.
    """

    def __init__(self, iterable: AsyncIterable[T], name: str) -> None:
        self._iterator = aiter(iterable)
        clock = current()
        if clock is not None:
            clock.bounds(LOOP)
        self._name = name
        self._root: Root | None = None
        self._loop = 0
        """The identity of the frame of the loop; 0 where something else asks for the items."""

    def __aiter__(self) -> AsyncSteps[T]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, T]:
        frame = sys._getframe(1)
        self._loop = 0
        if _instruction(frame) == "GET_ANEXT":
            self._loop = id(frame)
        return self._next()

    async def _next(self) -> T:
        __tracebackhide__ = True
        self._close("done")
        root = Root(self._name, None, "marked by nbprof.steps")
        try:
            with root.waiting():
                item = await anext(self._iterator)
        except StopAsyncIteration:
            root.close("unused")
            raise
        except BaseException:
            root.close("failed")
            raise
        self._root = root
        return item

    async def aclose(self) -> None:
        """Close the iterable, if it can be closed; the step that runs ends here."""
        __tracebackhide__ = True
        self._close("done")
        close = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()

    def __del__(self) -> None:
        if self._root is not None:
            with suppress(Exception):
                self._close(self._left(sys._getframe(1)))

    def _close(self, outcome: str) -> None:
        root, self._root = self._root, None
        if root is not None:
            root.close(outcome)

    def _left(self, frame: FrameType) -> str:
        """The end of the last round, by the instruction of the frame that drops the iterator."""
        if not self._loop:
            return "unused"
        if id(frame) != self._loop:
            return "done"
        name = _instruction(frame)
        # A generator that is closed where it has passed an item on: the loop around it was left.
        closed = name in _YIELDS and frame.f_code.co_flags & CO_ASYNC_GENERATOR
        return "done" if name.startswith(_DROPS) or closed else "failed"
