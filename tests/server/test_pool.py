"""Processes that are slow, large, killed or not needed: with a stand-in that does what its file
says.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from nbprof.server import process
from nbprof.server.pool import Opened
from nbprof.server.process import Progress
from tests.server.conftest import until

STAND_IN = """
import os, sys, threading, time
sys.path.append(sys.argv[1])
from nbprof.server import pipes
requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
held = []

def handle(head, body):
    def send(what, data=b"", **more):
        pipes.write(answers, {"is": what, "id": head["id"], **more}, data)
    path = head.get("path", "")
    word = open(path + "/word" if head["do"] == "find" else path).read() if path else body.decode()
    send("progress", text="Reading it")
    if "large" in word:
        held.append(b"x" * 300_000_000)
    if "crash" in word:
        os._exit(3)
    if "slow" in word or "large" in word:
        return
    send("done", word.encode())

while (message := pipes.read(requests)) is not None:
    handle(*message)
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(process, "_START", STAND_IN)


@pytest.fixture
def place(jp_root_dir):
    """Makes a file that says how reading it goes."""

    def place(name, word):
        from nbprof.server.paths import resolve

        (jp_root_dir / name).write_text(word)
        return resolve(str(jp_root_dir), name)

    return place


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def started(pool, place, told=None):
    """An opening that is under way."""
    told = [] if told is None else told
    task = asyncio.create_task(pool.open(place, told.append))
    await until(lambda: "Reading it" in told)
    return task


async def test_cancelling_ends_the_work(extension, place):
    task = await started(extension.pool, place("a", "slow"))
    (running,) = extension.pool.processes
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: gone(running.pid))
    assert not extension.pool.opened


async def test_cancelling_one_of_two_leaves_the_other(extension, place):
    where = place("a", "slow")
    one = await started(extension.pool, where)
    two = await started(extension.pool, where)
    (running,) = extension.pool.processes
    one.cancel()
    await asyncio.wait([one])
    assert running.alive
    two.cancel()
    await asyncio.wait([two])
    await until(lambda: gone(running.pid))


async def test_closing_the_connection_ends_the_work(
    extension, place, jp_auth_header, http_server_port, jp_base_url
):
    place("a", "slow")
    reader, writer = await asyncio.open_connection("127.0.0.1", http_server_port[1])
    body = json.dumps({"path": "a"}).encode()
    headers = {"Host": "127.0.0.1", "Content-Length": len(body), **jp_auth_header}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"POST {jp_base_url}nbprof/api/open HTTP/1.1\r\n{head}\r\n".encode() + body)
    await reader.readuntil(b"Reading it")
    (running,) = extension.pool.processes
    writer.close()
    await until(lambda: gone(running.pid))
    assert not extension.pool.opened


@pytest.fixture
def listening(http_server):
    return http_server


test_closing_the_connection_ends_the_work = pytest.mark.usefixtures("listening")(
    test_closing_the_connection_ends_the_work
)


@pytest.fixture
def folder(jp_root_dir):
    """Makes a folder that says how looking through it goes."""

    def folder(word):
        from nbprof.server.paths import resolve

        (jp_root_dir / "logs").mkdir()
        (jp_root_dir / "logs" / "word").write_text(word)
        return resolve(str(jp_root_dir), "logs")

    return folder


async def test_a_folder_that_nobody_waits_for_is_not_looked_through(extension, folder):
    told = []
    task = asyncio.create_task(extension.pool.look(folder("slow"), "", told.append))
    await until(lambda: "Reading it" in told)
    (running,) = extension.pool.processes
    task.cancel()
    await asyncio.wait([task])
    await until(lambda: gone(running.pid))
    assert not extension.pool.processes


async def test_the_process_that_looked_is_the_one_that_reads(extension, folder, place):
    found = json.dumps({"run": "a", "files": ["b"], "runs": []})
    where = folder(found)
    assert (await extension.pool.look(where, "", lambda _: None)).files == ("b",)
    assert extension.pool.files_of(where, "a") == ("b",)
    (looked,) = extension.pool.processes
    await extension.pool.open(place("quick", "quick"), lambda _: None)
    assert extension.pool.processes == [looked]


async def test_a_process_that_ends_by_itself_is_told(open_profile, place):
    place("a", "crash")
    _, reply = await open_profile("a")
    assert reply.payload is None
    assert reply.message.startswith("a: ")
    assert "code 3" in reply.message


async def test_a_killed_process_is_replaced_at_the_next_question(extension, place, post):
    where = place("a", "quick")
    assert await extension.pool.open(where, lambda _: None) == b"quick"
    (first,) = extension.pool.processes
    os.kill(first.pid, signal.SIGKILL)
    await first.ended.wait()
    status, body = await post(
        "ask", {"path": "a", "version": where.version, "request": {"ask": "x"}}
    )
    assert status == 200
    assert json.loads(body) == {"ask": "x"}
    (second,) = extension.pool.processes
    assert second.pid != first.pid


async def test_a_process_killed_while_it_answers_is_told(extension, place):
    where = place("a", "quick")
    await extension.pool.open(where, lambda _: None)
    question = asyncio.create_task(extension.pool.ask(where, b"slow"))
    (running,) = extension.pool.processes
    await until(lambda: running.busy)
    os.kill(running.pid, signal.SIGKILL)
    with pytest.raises(process.EndedError, match=r"^a: .* ended unexpectedly"):
        await question


async def test_a_question_that_nobody_waits_for_leaves_the_process(extension, place):
    where = place("a", "quick")
    await extension.pool.open(where, lambda _: None)
    question = asyncio.create_task(extension.pool.ask(where, b"slow"))
    (running,) = extension.pool.processes
    await until(lambda: running.busy)
    question.cancel()
    await asyncio.wait([question])
    assert await extension.pool.ask(where, b"quick") == b"quick"
    assert extension.pool.processes == [running]


async def test_the_server_stops_its_processes(extension, place):
    task = await started(extension.pool, place("a", "slow"))
    await extension.pool.open(place("b", "quick"), lambda _: None)
    extension.pool.ready()
    running = extension.pool.processes
    assert len(running) == 3
    await extension.stop_extension()
    await until(lambda: all(gone(one.pid) for one in running))
    await asyncio.wait([task])


class TestLimits:
    @pytest.fixture
    def options(self):
        return {
            "profiles": 2,
            "memory": 200_000_000,
            "open_s": 600.0,
            "ask_s": 0.2,
            "idle_s": 600.0,
        }

    async def test_a_profile_that_needs_too_much_memory_is_stopped(
        self, extension, open_profile, place
    ):
        place("a", "large")
        _, reply = await open_profile("a")
        assert "190.73 MiB of memory" in reply.message
        assert "c.NbprofServer.memory" in reply.message
        assert not extension.pool.processes

    async def test_unused_profiles_make_room_in_memory_first(self, extension, place):
        where = place("a", "quick")
        await extension.pool.open(where, lambda _: None)
        (unused,) = extension.pool.processes
        task = await started(extension.pool, place("b", "large"))
        await until(lambda: gone(unused.pid))
        await asyncio.wait([task])

    async def test_the_profile_that_was_not_used_for_the_longest_time_makes_room(
        self, extension, place
    ):
        first, second, third = (place(name, name) for name in ("one", "two", "three"))
        await extension.pool.open(first, lambda _: None)
        await extension.pool.open(second, lambda _: None)
        await extension.pool.ask(first, b"x")
        await extension.pool.open(third, lambda _: None)
        assert {one.place.browser_path for one in extension.pool.opened} == {"one", "three"}
        assert len(extension.pool.processes) == 2
        # It is opened again when it is asked, and nobody notices.
        assert await extension.pool.ask(second, b"y") == b"y"
        assert len(extension.pool.processes) == 2

    async def test_who_comes_when_all_are_busy_waits_and_is_told(self, extension, place):
        busy = [await started(extension.pool, place(name, "slow")) for name in ("one", "two")]
        told = []
        third = asyncio.create_task(extension.pool.open(place("three", "quick"), told.append))
        await until(lambda: any(text.startswith("Waiting") for text in told))
        assert len(extension.pool.processes) == 2
        busy[0].cancel()
        assert await third == b"quick"
        busy[1].cancel()

    async def test_an_answer_that_takes_too_long_is_stopped(self, extension, place, post):
        where = place("a", "quick")
        await extension.pool.open(where, lambda _: None)
        status, body = await post(
            "ask", {"path": "a", "version": where.version, "request": {"ask": "slow"}}
        )
        assert status == 500
        assert json.loads(body)["message"].startswith("a: it took longer than")
        assert not extension.pool.processes


class TestIdle:
    @pytest.fixture
    def options(self):
        return {"idle_s": 0.05}

    async def test_what_is_not_used_is_let_go(self, extension, place):
        await extension.pool.open(place("a", "quick"), lambda _: None)
        extension.pool.ready()
        running = extension.pool.processes
        assert len(running) == 2
        await until(lambda: all(gone(one.pid) for one in running))
        assert not extension.pool.opened


def test_who_comes_later_is_shown_the_first_picture_once():
    one = Opened(place=None)
    told: list[str] = []
    one.tells.append(told.append)
    one.tell(Progress("Analysing it", None, b"picture"))
    assert one.picture is not None
    assert one.picture.picture == b"picture"
    assert (one.progress, getattr(one.progress, "picture", b"")) == ("Analysing it", b"")
    assert [one.picture for one in told] == [b"picture"]
