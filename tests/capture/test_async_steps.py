"""``nbprof.steps`` over what ``async for`` runs over: the same items, ends and exceptions, and each
iteration a step.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest

import nbprof
from nbprof.capture import clock as clocks
from nbprof.capture.clock import StepClock
from nbprof.capture.steps import steps


class Batches:
    """An asynchronous iterator that says whether it was closed."""

    def __init__(self, count: int = 6, fails_at: int = -1) -> None:
        self.count, self.fails_at, self.given, self.closed = count, fails_at, 0, False

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        if self.given == self.fails_at:
            raise OSError("no such batch")
        if self.given == self.count:
            raise StopAsyncIteration
        self.given += 1
        return self.given - 1

    async def aclose(self):
        self.closed = True


async def generated(count: int = 6):
    for number in range(count):
        await asyncio.sleep(0)
        yield number


async def passed_on(items):
    async for item in items:
        yield item


async def fails(number):
    await asyncio.sleep(0)
    if number == 3:
        raise ValueError("bad batch")


async def runs_to_its_end():
    async for number in steps(generated()):
        await fails(number * 0)


async def runs_an_iterator():
    async for _ in steps(Batches()):
        pass


async def fails_in_the_body():
    async for number in steps(generated()):
        if number == 3:
            raise ValueError("bad batch")


async def fails_where_it_awaits():
    async for number in steps(Batches()):
        await fails(number)


async def fails_in_the_input():
    async for _ in steps(Batches(fails_at=3)):
        pass


async def breaks():
    async for number in steps(generated()):
        if number == 2:
            break


async def returns():
    async for number in steps(Batches()):
        if number == 2:
            return


async def continues():
    async for number in steps(Batches()):
        if number:
            continue


async def closes():
    kept = steps(Batches())
    async for number in kept:
        if number == 2:
            break
    await kept.aclose()


async def breaks_around_a_generator():
    async for number in passed_on(steps(generated())):
        if number == 2:
            break
    await asyncio.sleep(0.01)


async def is_cancelled():
    async def loop():
        async for number in steps(Batches()):
            if number == 3:
                await asyncio.sleep(10)

    task = asyncio.create_task(loop())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture
def clock():
    clock = StepClock()
    clocks.set_current(clock)
    yield clock
    clocks.set_current(None)


@pytest.mark.parametrize(
    ("loop", "seen"),
    [
        (runs_to_its_end, 6),
        (runs_an_iterator, 6),
        (fails_in_the_body, 3),
        (fails_where_it_awaits, 3),
        (fails_in_the_input, 3),
        (breaks, 3),
        (returns, 3),
        (continues, 6),
        (closes, 3),
        (breaks_around_a_generator, 3),
        (is_cancelled, 3),
    ],
)
def test_each_complete_iteration_is_a_step(clock, loop, seen):
    with suppress(ValueError, OSError):
        asyncio.run(loop())
    gc.collect()
    assert clock.seen == seen
    assert not clock.in_step
    assert (clock.failed_at > 0) == (loop.__name__.startswith("fails") or loop is is_cancelled)
    assert clock.fault == ""


@pytest.mark.parametrize(
    ("loop", "error"), [(fails_in_the_body, "bad batch"), (fails_in_the_input, "no such batch")]
)
def test_an_exception_passes_as_it_is(clock, loop, error):
    with pytest.raises((ValueError, OSError), match=error):
        asyncio.run(loop())


def test_items_are_the_same_and_closing_reaches_the_iterable():
    async def loop():
        assert [item async for item in steps(generated(4))] == [0, 1, 2, 3]
        batches = Batches(2)
        marked = steps(batches)
        assert aiter(marked) is marked
        assert [item async for item in marked] == [0, 1]
        with pytest.raises(StopAsyncIteration):
            await anext(marked)
        await marked.aclose()
        assert batches.closed
        await steps(aiter(Iterable())).aclose()

    class Iterable:
        def __aiter__(self):
            return self

        async def __anext__(self):
            raise StopAsyncIteration

    asyncio.run(loop())


def test_the_wait_for_an_item_is_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def slow():
        for number in range(5):
            await asyncio.sleep(0.03)
            yield number

    async def loop():
        total = 0
        async for number in nbprof.steps(slow()):
            total += sum(range(100 * number))

    with nbprof.profile(backend="python") as p:
        asyncio.run(loop())
    frame = p.steps.frame
    assert len(frame) == 5
    assert (frame["input_ms"] > 25).all()
    assert p.overview["verdict"] == "Input-bound"


def test_what_can_be_iterated_over_in_both_ways_is_a_plain_loop():
    class Both:
        def __iter__(self):
            return iter([1, 2])

        def __aiter__(self):
            return generated()

    assert list(steps(Both())) == [1, 2]
