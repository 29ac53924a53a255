"""``async for`` loops of cells: their iterations are recorded, and the program behaves as without a
recording.
"""

from __future__ import annotations

import asyncio
import traceback

import pytest

from tests.capture.loop_cells import counts, loop_at, run_plain, run_recorded

HELPERS = """
import asyncio, gc, sys, weakref
class Boom(Exception):
    pass
class Items:
    def __init__(self, n, fails=-1):
        self.n, self.i, self.fails = n, 0, fails
        log.append("made")
    def __aiter__(self):
        log.append("aiter")
        return self
    async def __anext__(self):
        log.append(("next", self.i))
        await asyncio.sleep(0)
        if self.i == self.fails:
            raise Boom("input")
        if self.i == self.n:
            raise StopAsyncIteration
        self.i += 1
        return self.i
    def __del__(self):
        log.append("gone")
class NoIterator:
    def __aiter__(self):
        return 3
class NoAwaitable:
    def __aiter__(self):
        return self
    def __anext__(self):
        return 3
class Fails:
    def __aiter__(self):
        raise Boom("aiter")
class Sync(Items):
    def __anext__(self):
        raise Boom("sync")
async def gen(n):
    try:
        for i in range(n):
            await asyncio.sleep(0)
            yield i
    finally:
        log.append("closed")
"""

PROGRAMS = {
    "all": "async for x in Items(3):\n        log.append(x)\n    else:\n        log.append('else')",
    "generator": "async for x in gen(3):\n        log.append(x)",
    "break": "async for x in Items(5):\n        log.append(x)\n        if x == 2:\n            break\n    else:\n        log.append('else')",
    "break of a generator": "async for x in gen(5):\n        if x == 2:\n            break\n    log.append('after')\n    await asyncio.sleep(0.01)",
    "continue": "async for x in Items(3):\n        if x == 2:\n            continue\n        log.append(x)",
    "return": "async for x in Items(5):\n        if x == 2:\n            return x",
    "error": "async for x in Items(5):\n        if x == 2:\n            raise Boom(x)",
    "caught": "try:\n        async for x in Items(5):\n            if x == 2:\n                raise Boom(x)\n    except Boom:\n        log.append('caught')",
    "input fails": "async for x in Items(5, 2):\n        log.append(x)",
    "no iterable": "async for x in 3:\n        pass",
    "no iterator": "async for x in NoIterator():\n        pass",
    "no awaitable": "async for x in NoAwaitable():\n        pass",
    "aiter fails": "async for x in Fails():\n        pass",
    "anext fails": "async for x in Sync(2):\n        pass",
    "nested": "async for x in Items(3):\n        async for y in gen(x):\n            log.append((x, y))",
    "target": "async for (a, b), *c in pairs():\n        log.append((a, b, c))",
    "recursive": "async def walk(n):\n        async for x in gen(n):\n            await walk(x)\n            log.append((n, x))\n    await walk(4)",
    "tasks": "async def walk(n):\n        async for x in Items(3):\n            log.append((n, x))\n    await asyncio.gather(walk(1), walk(2))",
}
BEFORE = "    async def pairs():\n        yield (1, 2), 3, 4\n        yield (5, 6), 7\n"


def outcome(text: str, run) -> tuple:
    log: list = []
    names = {"log": log, "run": asyncio.run}
    run("1", HELPERS, names)
    error = None
    try:
        run("2", text, names)
        log.append(("result", names.get("result")))
    except Exception as caught:
        error = type(caught).__name__, str(caught)
        shown = [
            frame.name
            for frame in traceback.extract_tb(caught.__traceback__)
            if "/ipykernel_" in frame.filename
        ]
        log.append(("frames", shown))
    return log, error


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_is_the_same(name):
    text = f"async def main():\n{BEFORE}    {PROGRAMS[name]}\nresult = run(main())\n"
    assert outcome(text, run_recorded) == outcome(text, run_plain)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("all", 3),
        ("generator", 3),
        ("break", 2),
        ("continue", 3),
        ("return", 2),
        ("error", 1),
        ("input fails", 2),
    ],
)
def test_complete_iterations_are_counted(name, count):
    text = f"async def main():\n    {PROGRAMS[name]}\nrun(main())\n"
    names = {"log": [], "run": asyncio.run}
    run_plain("1", HELPERS, names)
    try:
        found = run_recorded("2", text, names)
    except names["Boom"]:
        found = run_recorded.taken
    assert counts(found) == {2: count}


def test_the_wait_for_an_item_is_that():
    text = (
        "import asyncio, time\nasync def slow():\n    for i in range(4):\n        await asyncio.sleep(0.02)\n        yield i\n"
        "async def main():\n    async for x in slow():\n        time.sleep(0.01)\nasyncio.run(main())\n"
    )
    loop = loop_at(run_recorded("1", text, {}), 7)
    assert loop.text == "async for x in slow():"
    assert loop.count == 4
    assert 4 * 20e6 <= loop.wait_ns <= loop.total_ns - 4 * 10e6
