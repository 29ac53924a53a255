"""Many who page through one profile at once, while others open theirs: all are answered, and right,
and none waits for ever.

How long it takes is for benchmarks/server.py to say.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from nbprof.display import codec
from nbprof.server import process
from tests.server.conftest import place
from tests.support.xspace import training_run

CLIENTS, REQUESTS = 20, 4


@pytest.fixture
def options():
    return {"profiles": 2, "memory": 2 << 30, "ahead": False}


@pytest.fixture
def large(jp_root_dir):
    return place(jp_root_dir / "logs", "large.xplane.pb", training_run(150))


@pytest.fixture
def here(large):
    """The timeline that the server's process has, in this process."""
    from nbprof.profiles.load import load

    profile = load(large)
    profile.run.timeline.answer({"ask": "open"})
    return profile.run.timeline


def questions(timeline, client):
    """Tiles of all rows, each client at other places and zooms."""
    told = timeline.answer({"ask": "open"})
    lanes = [[lane["id"], 0, 9] for lane in told["lanes"] if lane["kind"] != "counter"]
    for i in range(REQUESTS):
        level = 12 + (client + i) % 6
        last = int(told["end_ns"] / (512 * 2.0**level))
        at = (client * 7 + i) % (last + 1)
        yield {"ask": "tiles", "level": level, "want": [[*lane, at, at + 1] for lane in lanes]}


def same(a, b):
    assert a.keys() == b.keys()
    for key in a:
        if isinstance(a[key], dict):
            same(a[key], b[key])
        elif key != "spent_ms":
            np.testing.assert_array_equal(a[key], b[key])


async def test_all_are_answered_right_and_none_is_starved(
    jp_root_dir, large, here, open_profile, post, extension
):
    _, reply = await open_profile("logs/large.xplane.pb")
    assert reply.payload is not None
    (reading,) = extension.pool.processes
    done = [0] * CLIENTS
    when_the_first_was_done = []

    async def client(number):
        for question in questions(here, number):
            status, body = await post(
                "ask",
                {"path": "logs/large.xplane.pb", "version": reply.version, "request": question},
            )
            assert status == 200
            answer = codec.unpack(body)
            assert answer["ok"]
            same(answer, codec.unpack(codec.pack(here.answer(question))))
            done[number] += 1
            assert reading.alive, "the profile that everybody uses makes no room for others"
            if done[number] == REQUESTS:
                when_the_first_was_done.append(list(done))

    async def other():
        place(jp_root_dir / "logs", "other.xplane.pb", training_run(20))
        _, opened = await open_profile("logs/other.xplane.pb")
        assert opened.payload is not None, opened.message
        assert len(extension.pool.processes) <= 2
        assert sum(one.memory() for one in extension.pool.processes) <= extension.memory

    await asyncio.gather(other(), *(client(number) for number in range(CLIENTS)))
    assert done == [REQUESTS] * CLIENTS
    # They take turns: nobody was done before all the others had been answered at least half of
    # theirs.
    assert min(when_the_first_was_done[0]) >= REQUESTS // 2, when_the_first_was_done[0]


async def test_more_than_can_wait_are_told_so_and_the_others_are_answered(
    large, open_profile, post, extension, monkeypatch
):
    # The client has ten requests under way at a time.
    monkeypatch.setattr(process, "_MOST_WAITING", 1)
    _, reply = await open_profile("logs/large.xplane.pb")
    question = {
        "path": "logs/large.xplane.pb",
        "version": reply.version,
        "request": {"ask": "open"},
    }
    answers = await asyncio.gather(*(post("ask", question) for _ in range(60)))
    assert {status for status, _ in answers} == {200, 503}
    assert all(b"Try again in a moment." in body for status, body in answers if status == 503)
    assert (await post("ask", question))[0] == 200
