"""Times of the iterations of the recorded cell's loops.

`nbprof.capture.loop_code` rewrites ``for x in items:`` into ``for x in __nbprof_loop__(7,
__nbprof_iter__(items)):``. The loop runs over an iterator of C then: while iterations are long, one
item is handed out at a time, and the time is noted in between; while they are short, many are
handed out at once, so that a loop of millions costs a few ns more per iteration. The items come
straight from the program's iterator: no frame of nbprof is on the stack meanwhile, no item is
referred to here, and the iterator is released when it would be without nbprof.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import operator
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from dis import opname
from functools import partial
from itertools import chain, compress, islice, repeat
from types import CodeType, FrameType, FunctionType, GeneratorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple

from nbprof.capture import steps
from nbprof.core.cells import stem

if TYPE_CHECKING:
    from nbprof.core.loop_times import LoopTimes

LOOP, ITER, MAP, WHILE_LOOP, OVER, DEFINED = (
    f"__nbprof_{name}__" for name in ("loop", "iter", "map", "while", "over", "defined")
)
ASYNC_LOOP, CAME = (f"__nbprof_{name}__" for name in ("async_loop", "came"))
"""Names that the rewritten code calls. They are builtins: the program's namespace is unchanged."""

_MAX_ITERATIONS = 100_000
"""Iterations of a loop whose times are noted, as many as `nbprof.core.loop_times` stores."""
_SHORT_NS = 20_000
"""Iterations that take less on average are handed out many at a time: they are not work units."""
_SHORT_RUNS, _RUN_NS, _TINY_RUN_NS = 16, 400_000, 2_000_000
"""After so many executions that are shorter on average a loop is not followed any more.

A loop that is entered often and takes less than the first limit each time is part of a unit of
work; the second limit is for loops of short iterations.
"""
_SAMPLE_SIZE = 128
"""Iterations over which the mean is computed."""
_CHUNK_NS, _LARGEST_CHUNK = 10_000_000, 1 << 20
_SINGLE_TURN = ((),)

_clock = time.perf_counter_ns


@dataclass(frozen=True)
class Site:
    """A loop in the code.

    Parameters
    ----------
    line : int
        The line of its head in the cell.
    text : str
        Its head.
    kind : str
        One of `nbprof.core.loop_times.KINDS`.
    number : int
        The execution count of its cell; 0 of the recorded one.
    """

    line: int
    text: str
    kind: str
    number: int = 0


_sites: dict[int, Site] = {}
_numbers = itertools.count(1)


def add_site(site: Site) -> int:
    """Let a loop be recorded; returns the number that the rewritten code calls it by."""
    number = next(_numbers)
    _sites[number] = site
    return number


class _Counts:
    """Counts and times of one loop on one thread."""

    def __init__(self, site: Site, file: str) -> None:
        self.site = site
        self.file = file
        self.thread = threading.get_native_id()
        self.asked, self.got, self.ended = array("q"), array("q"), array("q")
        self.running: _Run | None = None
        self.overlaps = False
        self.inside: dict[_Counts, int] = {}
        self.count = self.total = self.wait = self.runs = 0
        self.exact = True

    def clear(self) -> None:
        """Forget iterations before the window; running loops go on to fill the same arrays."""
        for column in (self.asked, self.got, self.ended):
            del column[:]
        self.inside = {}
        self.count = self.total = self.wait = self.runs = 0
        self.exact = True
        self.overlaps = False

    def is_short(self) -> bool:
        """Return whether the loop is entered often for little work, not worth the cost."""
        mean = self.total / self.runs
        return mean < _RUN_NS or (mean < _TINY_RUN_NS and self.total < _SHORT_NS * self.count)

    def note(self, asked: int, got: int, ended: int) -> None:
        """An iteration has ended."""
        self.count += 1
        self.wait += got - asked
        if len(self.asked) < _MAX_ITERATIONS:
            self.asked.append(asked)
            self.got.append(got)
            self.ended.append(ended)


class _Run:
    """One execution of a loop.

    Attributes
    ----------
    asked, got : int
        When the current iteration asked for its item and got it; 0 if it has not.
    over_at : int
        When the condition of a `while` became false; 0 before.
    ticks : iterator or None
        While iterations are handed out many at a time, as many values as are left of them.
    skipped : int
        Iterations of the chunk that had been handed out when the window began.
    """

    __slots__ = (
        "asked",
        "began",
        "chunk",
        "counts",
        "got",
        "handed",
        "number",
        "over_at",
        "parent",
        "recorder",
        "running",
        "skipped",
        "ticks",
    )

    def __init__(
        self, recorder: Recorder, number: int, counts: _Counts, parent: _Run | None
    ) -> None:
        self.recorder = recorder
        self.number = number
        self.counts = counts
        self.parent = parent
        self.began = self.asked = _clock()
        self.got = self.over_at = self.chunk = self.skipped = 0
        self.ticks: Iterator[Any] | None = None
        self.running = True

    def __eq__(self, other: object) -> bool:
        """The item has come: `iter` compares each one with the value that would end it."""
        __tracebackhide__ = True
        self.got = _clock()
        return False

    __hash__ = object.__hash__

    def taken(self) -> int:
        """The number of iterations of the current chunk that have been handed out."""
        if self.ticks is not None:
            return self.chunk - operator.length_hint(self.ticks)
        return 0

    def note(self, now: int) -> None:
        """The current iteration has ended."""
        if self.asked >= self.recorder.since and self.recorder.on:
            self.counts.note(self.asked, self.got, now)

    def note_chunk(self, complete: int) -> None:
        """A number of iterations of the chunk have ended."""
        if self.recorder.on:
            self.counts.count += max(complete - self.skipped, 0)
        self.ticks, self.skipped = None, 0

    def leave(self) -> None:
        """The loop is left before its iterator is exhausted, by the frame that drops the iterator.

        The last iteration is complete after `break` and `return`, but not after an exception.
        """
        now = _clock()
        name = _instruction_of_caller()
        jumped = name.startswith(("POP_", "END_FOR")) and self.counts.site.kind != "comprehension"
        complete = jumped and not self.over_at
        if self.ticks is not None:
            taken = self.taken()
            if not complete and name != "FOR_ITER":
                taken -= 1
            self.note_chunk(taken)
        elif self.got and complete:
            self.note(now)
        self.end(self.over_at or now)

    def end(self, now: int) -> None:
        """The loop has ended."""
        self.running = False
        counts = self.counts
        if counts.running is self:
            counts.running = None
        if self.recorder.on:
            self.add_time(now, counts)
            counts.runs += 1
            if counts.runs % _SHORT_RUNS == 0 and counts.is_short():
                counts.exact = False
                self.recorder.through.add(self.number)
        innermost = _innermost.get(None)
        while innermost is not None and innermost is not self:
            innermost = innermost.parent
        if innermost is self:
            _innermost.set(self.parent)

    def add_time(self, now: int, counts: _Counts) -> None:
        """Count the time in the loop."""
        took = max(now - max(self.began, self.recorder.since), 0)
        counts.total += took
        if self.parent is not None:
            around = self.parent.counts
            counts.inside[around] = counts.inside.get(around, 0) + took


_innermost: ContextVar[_Run | None] = ContextVar("nbprof_loop")
"""The innermost loop that runs in this thread or task."""


def _instruction_of_caller() -> str:
    """The instruction of the frame that closes the generator which calls `_Run.leave`."""
    frame: FrameType | None = sys._getframe(2).f_back
    if frame is None or frame.f_lasti < 0:
        return ""
    return opname[frame.f_code.co_code[frame.f_lasti]]


_followed = False


def follow() -> None:
    """The loops of a cell are rewritten: loops that a recording lacks did not run."""
    global _followed
    _followed = True


class Recorder:
    """Notes the iterations of the loops of a recording.

    Attributes
    ----------
    on : bool
        True while iterations are noted.
    since : int
        When the window began, on the clock that loops use.
    through : set of int
        The loops that are not followed any more.
    """

    def __init__(self) -> None:
        self.on = False
        self.since = 0
        self.through: set[int] = set()
        self._code_ended = 0
        self._offset = 0
        self._counts: dict[tuple[int, int], _Counts] = {}

    def start(self) -> None:
        """Follow the loops that begin from now on."""
        global _recorder
        self.on = True
        self.begin_window()
        _recorder = self
        functions.begin()

    def begin_window(self) -> None:
        """Count from now on; an iteration that is running does not count."""
        self.since = _clock()
        self._offset = time.time_ns() - self.since
        self._code_ended = 0
        self.through = set()
        for counts in list(self._counts.values()):
            counts.clear()
            run = counts.running
            if run is not None:
                run.skipped = run.taken()

    def code_begins(self) -> None:
        """The cell begins to run: the window excludes setting up the recording."""
        if not any(counts.running for counts in list(self._counts.values())):
            self.since = _clock()

    def leave_out(self, took_ns: int) -> None:
        """Exclude time before the first loop that nbprof took, as to rewrite code of a magic."""
        if not self._counts:
            self.since = min(self.since + took_ns, _clock())

    def code_ends(self) -> None:
        """The cell has run: a loop that an exception left is over, even if a traceback holds it."""
        self._code_ended = _clock()

    def stop(self) -> None:
        """Follow no loop any more."""
        global _recorder, _followed
        self.on = False
        if _recorder is self:
            _recorder = None
            _followed = False
            functions.end()
        self._counts = {}

    def enter(self, number: int, site: Site, frame: FrameType) -> _Run | None:
        """A loop begins; None if it is not followed, since it already runs on this thread."""
        parent = _innermost.get(None)
        while parent is not None and not (parent.running and parent.recorder is self):
            parent = parent.parent
        key = number, threading.get_ident()
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = _Counts(site, frame.f_code.co_filename)
        elif counts.running is not None:
            around = parent
            while around is not None and around.counts is not counts:
                around = around.parent
            counts.overlaps |= around is None
            return None
        run = counts.running = _Run(self, number, counts, parent)
        _innermost.set(run)
        return run

    def snapshot(self) -> Snapshot:
        """The loops and their iterations since the window began."""
        end = self._code_ended or _clock()
        index: dict[_Counts, int] = {}
        for counts in list(self._counts.values()):
            if counts.count or counts.total or counts.running:
                index[counts] = len(index)
        loops = [_totals(counts, index, end) for counts in index]
        columns = []
        last = end
        for counts in index:
            ended = counts.ended[:]
            columns.append((counts.asked[:], counts.got[:], ended))
            # Other threads may run on.
            last = max([last, *ended[-1:]])
        return Snapshot(
            self.since + self._offset, last + self._offset, self._offset, loops, columns, _followed
        )


class _LoopTotals(NamedTuple):
    """A loop at one moment: the fields of `nbprof.core.loop_times.Loop`."""

    cell: str
    site: Site
    thread: int
    iterations: int | None
    total_ns: int
    wait_ns: int
    inside: dict[int, int]
    overlaps: bool


@dataclass(frozen=True)
class Snapshot:
    """The loops of a window.

    Parameters
    ----------
    begin_ns, end_ns : int
        The window, in ns since 1970.
    offset : int
        Added to a noted time to convert it to ns since 1970.
    loops : list of _LoopTotals
    columns : list of tuple of array
        When the iterations of each loop asked for their items, got them and ended.
    followed : bool
        The loops of a cell were rewritten, so that loops which are missing here did not run.
    """

    begin_ns: int
    end_ns: int
    offset: int
    loops: list[_LoopTotals]
    columns: list[tuple[array[int], array[int], array[int]]]
    followed: bool = False

    def times(self) -> LoopTimes | None:
        """The times as a recording stores them; None if no loop ran and no cell was followed."""
        # Late, for it imports numpy, and a cell may be recorded that does not.
        import numpy as np

        from nbprof.core.loop_times import MOST, Loop, LoopTimes

        if not self.loops and not self.followed:
            return None
        rows, remaining = [0] * len(self.loops), MOST
        for i in sorted(range(len(self.loops)), key=lambda i: -self.loops[i].total_ns):
            # The last column is filled last.
            rows[i] = min(len(self.columns[i][-1]), remaining)
            remaining -= rows[i]
        noted = []
        for number in range(3):
            parts = [np.zeros(0, np.int64)]
            for columns, count in zip(self.columns, rows, strict=True):
                parts.append(np.array(columns[number][:count], np.int64))
            noted.append(np.concatenate(parts) + self.offset)
        loops = []
        for loop in self.loops:
            site = loop.site
            loops.append(Loop(loop.cell, site.number, site.line, site.text, site.kind, *loop[2:]))
        loop_index = np.repeat(np.arange(len(loops), dtype=np.int32), rows)
        return LoopTimes(self.begin_ns, self.end_ns, loops, loop_index, *noted)


def _totals(counts: _Counts, index: dict[_Counts, int], end: int) -> _LoopTotals:
    """The totals of a loop; one that is still running is counted up to now."""
    total, time_inside, exact = counts.total, dict(counts.inside), counts.exact
    run = counts.running
    if run is not None:
        took = max(end - max(run.began, run.recorder.since), 0)
        total += took
        exact = exact and run.ticks is None
        if run.parent is not None:
            time_inside[run.parent.counts] = time_inside.get(run.parent.counts, 0) + took
    parents = {index[around]: ns for around, ns in time_inside.items() if around in index}
    return _LoopTotals(
        cell=stem(counts.file) or counts.file,
        site=counts.site,
        thread=counts.thread,
        iterations=counts.count if exact else None,
        total_ns=total,
        wait_ns=counts.wait,
        inside=parents,
        overlaps=counts.overlaps,
    )


_recorder: Recorder | None = None


def leave_out(took_ns: int) -> None:
    """Exclude time that nbprof took from the current recording, if there is one."""
    if _recorder is not None:
        _recorder.leave_out(took_ns)


def active() -> bool:
    """Return whether loops are being recorded."""
    return _recorder is not None


# Functions that the rewritten code calls.


def _loop(number: int, iterator: Iterator[Any]) -> Iterator[Any]:
    """Return the iterator of a `for` loop or a comprehension in place of `iterator`."""
    __tracebackhide__ = True
    recorder, site = _recorder, _sites.get(number)
    if recorder is None or site is None or number in recorder.through:
        if _is_plain(iterator):
            return iterator
        return iter(partial(next, iterator), _NEVER)
    run = None
    # The program's loop runs in any case.
    with contextlib.suppress(Exception):
        run = recorder.enter(number, site, sys._getframe(1)) if not _marks_steps(iterator) else None
    several = iterator if _is_plain(iterator) else iter(partial(next, iterator), _NEVER)
    if run is None:
        return several
    return chain.from_iterable(_items(run, iter(partial(next, iterator), run), several))


def _while(number: int) -> Iterator[tuple[()]]:
    """Return the iterator of a rewritten `while` loop, whose condition is in its body."""
    __tracebackhide__ = True
    recorder, site = _recorder, _sites.get(number)
    if recorder is None or site is None or number in recorder.through:
        return repeat(())
    try:
        run = recorder.enter(number, site, sys._getframe(1))
    except Exception:
        run = None
    if run is None:
        return repeat(())
    return chain.from_iterable(_turns(run))


def _over(number: int) -> None:
    """The condition of a `while` loop is false."""
    run = _innermost.get(None)
    while run is not None and run.number != number:
        run = run.parent
    if run is not None:
        run.over_at = _clock()


def _async_loop(number: int, items: Any) -> Any:
    """Return the iterable of an `async for` loop in place of `items`."""
    __tracebackhide__ = True
    recorder, site = _recorder, _sites.get(number)
    is_async_iterable = hasattr(type(items), "__aiter__") and not isinstance(
        items, steps.AsyncSteps
    )
    if recorder is None or site is None or number in recorder.through or not is_async_iterable:
        return items
    return _AsyncIterable(items, partial(recorder.enter, number, site))


def _came(number: int) -> None:
    """The item of an `async for` loop has come."""
    run = _innermost.get(None)
    while run is not None and run.number != number:
        run = run.parent
    if run is not None and not run.got:
        run.got = _clock()


class _AsyncIterable:
    """Asynchronous iterable whose loop is followed from its beginning.

    Parameters
    ----------
    items : asynchronous iterable
        Of the program.
    enter : callable
        Returns the run of the loop in a frame.
    """

    __slots__ = ("_enter", "_items")

    def __init__(self, items: Any, enter: Callable[[FrameType], _Run | None]) -> None:
        self._items = items
        self._enter = enter

    def __aiter__(self) -> Any:
        __tracebackhide__ = True
        iterator = type(self._items).__aiter__(self._items)
        run = None
        # The program's loop runs in any case, and raises itself if this is not an iterator.
        if hasattr(type(iterator), "__anext__"):
            with contextlib.suppress(Exception):
                run = self._enter(sys._getframe(1))
        return _AsyncItems(iterator, run) if run is not None else iterator


class _AsyncItems:
    """The iterator of an `async for` loop; notes when the loop asks for items and drops it.

    It returns the awaitables of the program's iterator: no frame of nbprof is on the stack while
    the loop waits.
    """

    __slots__ = ("_iterator", "_next", "_run")

    def __init__(self, iterator: Any, run: _Run) -> None:
        self._iterator = iterator
        self._next = type(iterator).__anext__
        self._run = run

    def __aiter__(self) -> _AsyncItems:
        return self

    def __anext__(self) -> Any:
        __tracebackhide__ = True
        run, now = self._run, _clock()
        if run.got:
            run.note(now)
        run.asked, run.got = now, 0
        return self._next(self._iterator)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            run, now = self._run, _clock()
            frame = sys._getframe(1)
            # The last iteration is complete after `break` and `return`, not after an exception.
            if (
                run.got
                and frame.f_lasti >= 0
                and opname[frame.f_code.co_code[frame.f_lasti]].startswith("POP_")
            ):
                run.note(now)
            run.end(now)


class _Never:
    """Equals nothing, without asking what it is compared with."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


_NEVER = _Never()


def _marks_steps(iterator: Any) -> bool:
    """Return whether it is the iterator of `nbprof.steps`, which marks its iterations."""
    return type(iterator) is GeneratorType and iterator.gi_code is steps._rounds.__code__


_PLAIN = ("builtins", "itertools", "_collections", "collections")


def _is_plain(iterator: Any) -> bool:
    """Return whether it is an iterator of Python itself, whose ``iter()`` has no effects.

    A loop calls ``iter()`` on its iterable. The program's iterable has been asked for its iterator
    already, and may count that, or have no such method.
    """
    kind = type(iterator)
    return kind.__module__ in _PLAIN and isinstance(
        kind.__dict__.get("__next__"), WrapperDescriptorType
    )


def _next_chunk(chunk: int, mean: float) -> int:
    """The number of short iterations to hand out next, after `chunk` that took `mean` ns each."""
    return max(min(2 * chunk, int(_CHUNK_NS / (mean or 1)), _LARGEST_CHUNK), _SAMPLE_SIZE)


def _items(run: _Run, single: Iterator[Any], several: Iterator[Any]) -> Iterator[Iterator[Any]]:
    """Hand out the items of a loop; `single` notes in the run when each of them comes."""
    __tracebackhide__ = True
    recorder = run.recorder
    checked, turns = run.began, 0
    now = run.began
    try:
        while recorder.on:
            run.asked, run.got = now, 0
            yield islice(single, 1)
            now = _clock()
            if not run.got:
                run.end(now)
                return
            run.note(now)
            turns += 1
            if turns < _SAMPLE_SIZE:
                continue
            mean, chunk = (now - checked) / turns, turns
            while mean < _SHORT_NS and recorder.on:
                run.chunk = chunk = _next_chunk(chunk, mean)
                run.ticks = repeat(True, chunk)
                begun = now
                yield compress(islice(several, chunk), run.ticks)
                now, taken = _clock(), run.taken()
                run.note_chunk(taken)
                if taken < chunk:
                    run.end(now)
                    return
                mean = (now - begun) / chunk
            checked, turns = now, 0
        run.end(now)
        yield several
    except BaseException:
        run.leave()
        raise


def _turns(run: _Run) -> Iterator[Iterator[tuple[()]]]:
    """The turns of a `while` loop."""
    __tracebackhide__ = True
    recorder = run.recorder
    checked, turns = run.began, 0
    now = run.began
    try:
        while recorder.on:
            run.asked = run.got = now
            yield _SINGLE_TURN  # type: ignore[misc]
            now = _clock()
            run.note(now)
            turns += 1
            if turns < _SAMPLE_SIZE:
                continue
            mean, chunk = (now - checked) / turns, turns
            while mean < _SHORT_NS and recorder.on:
                run.chunk = chunk = _next_chunk(chunk, mean)
                run.ticks = ticks = repeat((), chunk)
                begun = now
                yield ticks
                now = _clock()
                run.note_chunk(chunk)
                mean = (now - begun) / chunk
            checked, turns = now, 0
        run.end(now)
        yield repeat(())
    except BaseException:
        run.leave()
        raise


# Functions whose code is rewritten while a recording runs.


class Functions:
    """Puts rewritten code into functions for the time of a recording, and the original back."""

    def __init__(self) -> None:
        self._planned: list[tuple[FunctionType, CodeType]] = []
        self._changed: list[tuple[FunctionType, CodeType, CodeType]] = []
        self._variants: dict[int, Callable[[Any], list[tuple[FunctionType, CodeType]]]] = {}

    def plan(self, changes: list[tuple[FunctionType, CodeType]]) -> None:
        """Change these functions while a recording runs, which may have begun."""
        if _recorder is not None:
            for function, code in changes:
                self._change(function, code)
        else:
            self._planned += changes

    def forget(self) -> None:
        """Another cell is to be recorded: nothing is planned for it yet."""
        self._planned = []
        self._variants = {}

    def add_variant(self, find: Callable[[Any], list[tuple[FunctionType, CodeType]]]) -> int:
        """`find` gives the changes for a function or class as soon as it is defined."""
        number = next(_numbers)
        self._variants[number] = find
        return number

    def defined(self, number: int, defined: Any) -> None:
        """A function or a class was defined."""
        find = self._variants.get(number)
        if find is not None:
            self.plan(find(defined))

    def begin(self) -> None:
        """A recording begins."""
        planned, self._planned = self._planned, []
        for function, code in planned:
            self._change(function, code)

    def end(self) -> None:
        """The recording has ended."""
        changed, self._changed = self._changed, []
        for function, original, code in reversed(changed):
            # The program may have changed it itself.
            if function.__code__ is code:
                function.__code__ = original

    def _change(self, function: FunctionType, code: CodeType) -> None:
        original = function.__code__
        try:
            function.__code__ = code
        except (TypeError, ValueError):
            return
        self._changed.append((function, original, code))


functions = Functions()


def _defined(number: int) -> Callable[[Any], Any]:
    """Decorates what the cell defines; returns it as it is."""

    def register(defined: Any) -> Any:
        # The program's function is defined in any case.
        with contextlib.suppress(Exception):
            functions.defined(number, defined)
        return defined

    return register


_BUILTINS: dict[str, object] = {
    LOOP: _loop,
    ITER: iter,
    MAP: map,
    WHILE_LOOP: _while,
    OVER: _over,
    DEFINED: _defined,
    ASYNC_LOOP: _async_loop,
    CAME: _came,
}


def install() -> None:
    """Define the builtins that the rewritten code calls; they stay, for it may run later."""
    for name, function in _BUILTINS.items():
        setattr(builtins, name, function)


def _forget_in_child() -> None:
    global _recorder
    if _recorder is not None:
        _recorder.on = False
        _recorder = None
        functions.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
