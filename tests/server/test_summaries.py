"""What the list of runs tells of runs that nobody has opened: analysed one at a time, in the
background, and remembered.
"""

from __future__ import annotations

import asyncio
import json
import os

import numpy as np
import pandas as pd
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.compare.compare import STEP, by_step
from nbprof.analysis.compare.welch import effective_size
from nbprof.analysis.steps.bare import BareSteps
from nbprof.server import process, summaries, summary
from tests.analysis.test_bare import recorded_profile
from tests.server.conftest import place, until
from tests.support.xspace import training_run

FACTS = ("framework", "steps", "step_ms", "verdict", "known")


@pytest.fixture(autouse=True)
def cached(monkeypatch, tmp_path):
    monkeypatch.setenv("NBPROF_CACHE", "1")
    monkeypatch.setenv("NBPROF_CACHE_DIR", str(tmp_path / "cache"))


async def test_runs_are_analysed_in_the_background_and_then_known_at_once(
    jp_root_dir, listed, extension, profile
):
    from nbprof.profiles.load import load

    place(jp_root_dir / "logs" / "plugins" / "profile" / "r2", "host.xplane.pb", training_run(9))
    answer = await listed("logs")
    here = load(profile).overview
    run = answer.runs["logs/host-a.xplane.pb"]
    assert (run["steps"], run["step_ms"], run["framework"], run["known"]) == (
        here["steps"],
        here["step_time_ms"],
        here["framework"],
        True,
    )
    assert run["verdict"] == f"{here['verdict']}: {here['verdict_text']}"
    assert not answer.first["logs/host-a.xplane.pb"]["known"]
    process = extension.summaries.process
    assert process is not None
    process.end("the test ends it.")
    again = await listed("logs")
    assert again.first == answer.runs
    assert extension.summaries.process is None, "nothing was analysed again"
    # Neither does another server: it is in the cache.
    extension.summaries._facts.clear()
    assert (await listed("logs")).first == answer.runs
    assert extension.summaries.process is None


async def test_a_run_that_changed_is_analysed_anew_and_one_that_moved_is_not(
    profile, listed, extension
):
    (before,) = (await listed("logs")).runs.values()
    profile.rename(profile.with_name("other.xplane.pb"))
    (moved,) = (await listed("logs")).first.values()
    assert {name: moved[name] for name in FACTS} == {name: before[name] for name in FACTS}
    profile.write_bytes(training_run(11))
    answer = await listed("logs")
    assert not answer.first["logs/host-a.xplane.pb"]["known"]
    assert answer.runs["logs/host-a.xplane.pb"]["steps"] > before["steps"]


async def test_what_was_opened_is_known_to_the_list(profile, listed, open_profile, extension):
    _, reply = await open_profile("logs/host-a.xplane.pb")
    assert reply.payload is not None
    (run,) = (await listed("logs")).first.values()
    assert run["known"]
    assert run["verdict"]
    assert extension.summaries.process is None


async def test_a_broken_run_is_a_problem_and_the_others_are_analysed(
    profile, jp_root_dir, listed, extension
):
    place(jp_root_dir / "logs", "broken.xplane.pb", b"\xff" * 64)
    place(jp_root_dir / "logs", "empty.xplane.pb", b"")
    answer = await listed("logs")
    assert answer.runs["logs/host-a.xplane.pb"]["known"]
    assert answer.problems.keys() == {"logs/broken.xplane.pb", "logs/empty.xplane.pb"}
    for message in answer.problems.values():
        assert message.endswith(".")
        assert str(jp_root_dir) not in message
    assert set(answer.paths) == {
        "logs/host-a.xplane.pb",
        "logs/broken.xplane.pb",
        "logs/empty.xplane.pb",
    }
    extension.summaries.process.end("the test ends it.")
    again = await listed("logs")
    assert again.problems == answer.problems
    assert extension.summaries.process is None, "what cannot be read is not tried again and again"


async def test_without_a_cache_the_server_itself_remembers(profile, listed, extension, monkeypatch):
    monkeypatch.setenv("NBPROF_CACHE", "0")
    assert not next(iter((await listed("logs")).first.values()))["known"]
    assert next(iter((await listed("logs")).first.values()))["known"]


@pytest.mark.parametrize(
    "kept", [[], {"steps": "many"}, {"steps": 1, "step_ms": "x"}, {"steps": 1, "verdict": 3}, "x"]
)
async def test_what_is_no_summary_in_the_cache_is_not_believed(
    profile, listed, extension, monkeypatch, kept
):
    from nbprof.server import summary

    monkeypatch.setattr(summary.Folder, "noted", lambda *_: kept)
    (run,) = (await listed("logs")).first.values()
    assert run["known"] is False


class TestOff:
    @pytest.fixture
    def options(self):
        return {"analysed": 0}

    async def test_an_administrator_can_have_nothing_analysed(self, profile, listed, extension):
        answer = await listed("logs")
        assert not answer.runs["logs/host-a.xplane.pb"]["known"]
        assert extension.summaries.process is None
        assert not answer.problems


async def test_nothing_of_a_run_that_nobody_opened_fills_the_cache(profile, listed):
    from nbprof import cache

    assert next(iter((await listed("logs")).runs.values()))["known"]
    assert cache.info().bytes == 0


STAND_IN = """
import os, sys, time
sys.path.append(sys.argv[1])
from nbprof.server import pipes
requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
held = []
while (message := pipes.read(requests)) is not None:
    head, _ = message
    if head["do"] == "open":
        continue
    with open(os.path.join(head["root"], "asked"), "a") as log:
        log.write(f"{os.path.basename(head['path'])} {os.getpid()} {os.getpriority(os.PRIO_PROCESS, 0)}\\n")
    word = open(head["path"]).read()
    if "large" in word:
        held.append(b"x" * 300_000_000)
    if "slow" in word or "large" in word:
        continue
    if "crash" in word:
        os._exit(3)
    facts = b'{"steps": 1, "unit": "step", "times_ms": [], "spread": [], "bare": []}'
    pipes.write(answers, {"is": "done", "id": head["id"]}, facts)
"""


class TestProcess:
    @pytest.fixture(autouse=True)
    def stand_in(self, monkeypatch):
        monkeypatch.setattr(process, "_START", STAND_IN)

    @pytest.fixture
    def options(self):
        return {"memory": 400_000_000}

    @pytest.fixture
    def asked(self, jp_root_dir):
        def asked():
            try:
                return [line.split() for line in (jp_root_dir / "asked").read_text().splitlines()]
            except FileNotFoundError:
                return []

        return asked

    def made(self, folder, **words):
        for i, (name, word) in enumerate(words.items()):
            file = place(folder, f"{name}.xplane.pb", word.encode())
            os.utime(file, (1_700_000_000 + i,) * 2)

    async def test_one_process_gives_way_and_begins_with_the_newest(
        self, jp_root_dir, listed, asked, extension
    ):
        self.made(jp_root_dir / "logs", a="x", b="y", c="z")
        assert all(run["known"] for run in (await listed("logs")).runs.values())
        assert [name for name, *_ in asked()] == ["c.xplane.pb", "b.xplane.pb", "a.xplane.pb"]
        assert {pid for _, pid, _ in asked()} == {str(extension.summaries.process.pid)}
        assert {nice for *_, nice in asked()} == {"19"}

    async def test_a_run_that_ends_the_process_is_a_problem_and_the_next_has_another(
        self, jp_root_dir, listed, asked
    ):
        self.made(jp_root_dir / "logs", a="x", b="crash")
        answer = await listed("logs")
        assert answer.runs["logs/a.xplane.pb"]["known"]
        assert "code 3" in answer.problems["logs/b.xplane.pb"]
        assert len({pid for _, pid, _ in asked()}) == 2

    async def test_a_run_that_needs_too_much_memory_is_told(self, jp_root_dir, listed, extension):
        self.made(jp_root_dir / "logs", a="x", b="large")
        answer = await listed("logs")
        assert answer.runs["logs/a.xplane.pb"]["known"]
        assert "190.73 MiB of memory" in answer.problems["logs/b.xplane.pb"]

    async def test_it_ends_when_nobody_listens(
        self,
        jp_root_dir,
        extension,
        asked,
        jp_auth_header,
        http_server,
        http_server_port,
        jp_base_url,
    ):
        self.made(jp_root_dir / "logs", a="slow", b="x")
        body = json.dumps({"folders": ["logs"]}).encode()
        headers = {"Host": "127.0.0.1", "Content-Length": len(body), **jp_auth_header}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        both = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", http_server_port[1])
            writer.write(
                f"POST {jp_base_url}nbprof/api/runs HTTP/1.1\r\n{head}\r\n".encode() + body
            )
            await reader.readuntil(b'"listed"')
            both.append(writer)
        await until(lambda: [name for name, *_ in asked()] == ["b.xplane.pb", "a.xplane.pb"])
        # The second request may join later than the first one began.
        await until(lambda: [one.waiting for one in extension.summaries._asked.values()] == [2])
        running = extension.summaries.process
        both[0].close()
        # The other still waits for the same.
        await until(lambda: [one.waiting for one in extension.summaries._asked.values()] == [1])
        assert running.alive
        both[1].close()
        await running.ended.wait()
        assert extension.summaries.process is None
        assert len(asked()) == 2

    async def test_it_waits_while_a_profile_is_opened(self, jp_root_dir, listed, extension, asked):
        self.made(jp_root_dir / "logs", a="x")
        place(jp_root_dir, "opened.xplane.pb", b"slow")
        from nbprof.server.paths import resolve

        where = resolve(str(jp_root_dir), "opened.xplane.pb")
        opening = asyncio.create_task(extension.pool.open(where, lambda _: None))
        await until(lambda: extension.pool.processes)
        listing = asyncio.create_task(listed("logs"))
        await until(lambda: extension.summaries._asked)
        await asyncio.sleep(2 * summaries._LOOK_S)
        assert not asked()
        opening.cancel()
        assert all(run["known"] for run in (await listing).runs.values())

    async def test_an_unused_process_is_let_go(self, jp_root_dir, listed, extension, monkeypatch):
        monkeypatch.setattr(summaries, "_IDLE_S", 0.01)
        self.made(jp_root_dir / "logs", a="x")
        await listed("logs")
        await until(lambda: extension.summaries.process is None)

    async def test_the_server_ends_it(self, jp_root_dir, listed, extension, asked):
        self.made(jp_root_dir / "logs", a="x")
        await listed("logs")
        running = extension.summaries.process
        await extension.stop_extension()
        await running.ended.wait()


def test_the_sidebar_calls_noise_what_a_comparison_calls_noise():
    """Its numbers are those of the comparison: deviation, steps, and what they are worth."""
    times = np.array([10.0, 12.0, 9.0, 11.0, 10.5, 12.5, 9.5, 11.5, 10.2])
    steps = pd.DataFrame(
        {
            "host": "a",
            "step": range(9),
            "step_time_ms": times,
            "start_ms": np.arange(9.0),
            "counted": True,
        }
    )
    steps[[f"{name}_ms" for name in CATEGORIES]] = 0.0
    deviation, count, worth = summary.spread(by_step(steps)[STEP])
    assert (deviation, count, worth) == (pytest.approx(times.std(ddof=1)), 9, effective_size(times))
    assert summary.spread(times[:1]) == []


def test_the_sidebar_has_the_steps_without_the_profiler(tmp_path):
    for bare_ms in (0.9, 0.8):
        folder = tmp_path / str(bare_ms)
        folder.mkdir()
        run = recorded_profile(folder, bare_ms).run
        facts = summary.facts_of(run)
        assert summary.fits(facts)
        mean, deviation, count, _ = facts["bare"]
        assert (mean, count) == (pytest.approx(bare_ms, rel=0.01), 20)
        assert 0 < deviation < 0.05 * mean
        assert facts["step_ms"] == pytest.approx(1.0)
    run.memo.values["bare_steps"] = BareSteps(reason="every step was recorded")
    assert summary.facts_of(run)["bare"] == []
    assert not summary.fits({**facts, "bare": [1.0]})
