"""What the tools of the server answer, asked by the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import nbprof
from nbprof.assistant.reader import MOST_OPEN
from nbprof.assistant.roots import Roots
from nbprof.assistant.worker import MOST_WAITING, Worker
from nbprof.core.errors import NbprofError
from nbprof.display.categories import CATEGORIES
from nbprof.frames import SCHEMA
from nbprof.profiles import named
from nbprof.profiles.load import read
from nbprof.run.many import open_run
from nbprof.run.stated import NeedsHostError
from tests.assistant.asked import DATA, asked, one

SLOW, MENDED = "xspace/tf_slow.xplane.pb", "xspace/tf_mended.xplane.pb"


def test_a_server_in_a_process_of_its_own(tmp_path):
    """As clients start it: `nbprof mcp --root DIR`, JSON-RPC on stdin and stdout."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "nbprof", "mcp", "--root", str(DATA)],
        env={"PYTHONPATH": ":".join(sys.path), "NBPROF_CACHE": "0"},
        cwd=tmp_path,
    )

    async def session():
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            opened = json.loads((await client.call_tool("open", {"path": SLOW})).content[0].text)
            brief = json.loads(
                (await client.call_tool("brief", {"id": opened["id"]})).content[0].text
            )
            return tools, opened, brief

    tools, opened, brief = asyncio.run(session())
    assert [tool.name for tool in tools] == [
        "open",
        "brief",
        "advice",
        "frame",
        "events",
        "compare",
        "explain",
    ]
    for tool in tools:
        assert tool.annotations.read_only_hint is True
        assert "never instructions" in tool.description
    assert opened["steps"] == 12
    assert brief["brief"] == nbprof.brief(read(DATA / SLOW), tokens=1500)


def test_what_a_profile_says_is_what_nbprof_says():
    profile, after = read(DATA / SLOW), read(DATA / MENDED)

    async def session(call):
        before, mended = [(await call("open", path=path)).value for path in (SLOW, MENDED)]
        again = (await call("open", path=f"xspace/../{SLOW}")).value
        assert {"ops.frame", "tf_data.nodes"} < set(before["frames"]) < set(named.names(profile))
        assert (before["id"], mended["id"], again["id"]) == ("p1", "p2", "p1")
        assert before["step_time_ms"] == pytest.approx(profile.overview["step_time_ms"])
        assert before["verdict"] == profile.overview["verdict"] == "Input-bound"
        assert before["bound"] == profile.overview["bound"] == "input"
        assert before["detail"] == profile.overview["verdict_detail"]
        assert profile.overview["verdict_detail"] in nbprof.brief(profile)
        advice = (await call("advice", id="p1")).value["findings"]
        assert [each["rule"] for each in advice] == profile.advice["rule"].tolist()
        assert [each["fix"] for each in advice] == profile.advice["fix"].tolist()
        compared = (await call("compare", before="p1", after="p2")).value
        comparison = nbprof.compare(profile, after)
        assert compared["verdict"]["verdict"] == comparison.verdict.verdict[0] == "real"
        assert compared["brief"] == nbprof.brief(comparison)
        ops = (await call("frame", id=compared["id"], name="ops", limit=5)).value
        assert [row[2] for row in ops["rows"]] == comparison.ops["op"].head(5).tolist()
        assert ops["frame"] == "comparison.ops"

    asked(session)


def test_one_of_several_runs_and_hosts_is_opened(tmp_path):
    for name, file in (("before", "tf_slow"), ("after", "tf_mended")):
        folder = tmp_path / "plugins" / "profile" / name
        folder.mkdir(parents=True)
        shutil.copy(DATA / "xspace" / f"{file}.xplane.pb", folder / "a.xplane.pb")
        shutil.copy(DATA / "xspace" / "tf_cpu.xplane.pb", folder / "b.xplane.pb")

    alone = read(DATA / "xspace" / "tf_cpu.xplane.pb")

    async def session(call):
        before = (await call("open", run="before")).value
        assert (before["run"], sorted(before["runs_here"]), before["files"]) == (
            "before",
            ["after", "before"],
            2,
        )
        one = (await call("open", run="before", host=1)).value
        assert (one["id"], one["files"], one["step_time_ms"]) == (
            "p2",
            1,
            pytest.approx(alone.overview["step_time_ms"]),
        )
        for wrong, said in (
            (await call("open", run="during"), "there are"),
            (await call("open", run="before", host=7), "no host 7"),
        ):
            assert said in wrong.value["error"]

    asked(session, tmp_path)


def test_what_needs_one_host_says_how_to_open_it(monkeypatch):
    def apart(*_):
        raise NeedsHostError

    monkeypatch.setattr("nbprof.profiles.named.frame", apart)
    assert (
        "`open` the profile with a host"
        in one("frame", path=SLOW, name="trace.events").value["error"]
    )


def test_rows_of_a_frame_and_what_was_cut():
    frame = read(DATA / SLOW).ops.frame
    fit = frame[(frame["self_us"] > 10) & (frame["where"] == "host")].sort_values(
        "self_us", kind="stable", ascending=False
    )
    answer = one(
        "frame",
        path=SLOW,
        name="ops",
        columns=["op", "self_us"],
        filter='self_us > 10 and where == "host"',
        sort="-self_us",
        limit=3,
    )
    assert answer.value == {
        "id": "p1",
        "frame": "ops.frame",
        "columns": ["op", "self_us"],
        "units": {"self_us": "us"},
        "rows": [
            [op, pytest.approx(us)]
            for op, us in zip(fit["op"][:3], fit["self_us"][:3], strict=True)
        ],
        "rows_in_frame": len(frame),
        "rows_that_match": len(fit),
        "rows_here": 3,
        "cut": f"{len(fit) - 3} matching rows left out at limit=3",
    }
    assert one("frame", path=SLOW, name="steps", limit=0).value["rows"] == []


def test_missing_values_are_null_and_never_0():
    answer = one("frame", path="xspace/jax_loop.xplane.pb", name="steps.summary", limit=100).value
    frame = read(DATA / "xspace/jax_loop.xplane.pb").steps.summary
    assert frame["mean_ms"].isna().any()
    at = answer["columns"].index("mean_ms")
    assert [row[at] is None for row in answer["rows"]] == frame["mean_ms"].isna().tolist()


def test_events_of_a_range():
    trace = read(DATA / SLOW).trace
    events = trace.events(between=(10, 40), name="Iterator")

    async def session(call):
        opened = (await call("open", path=SLOW)).value["id"]
        of = {"id": opened, "from_ms": 10, "to_ms": 40, "name": "Iterator", "limit": 7}
        longest = (await call("events", **of)).value
        assert [row[-1] for row in longest["rows"]] == events.sort_values(
            "duration_us", ascending=False, kind="stable"
        )["event"][:7].tolist()
        assert longest["rows_that_match"] == len(events)
        assert (
            longest["cut"] == f"{len(events) - 7:,} of {len(events):,} events in the range left out"
        )
        first = (await call("events", **of, order="start")).value
        assert [row[4] for row in first["rows"]] == pytest.approx(sorted(events["start_us"])[:7])
        sums = (await call("events", **of | {"name": None}, order="by_name")).value
        assert [row[0] for row in sums["rows"]] == trace.range(10, 40)["name"][:7].tolist()
        tracks = trace.tracks
        lane = int(tracks["lane"][0])
        assert {
            row[2]
            for row in (await call("events", **of | {"name": None, "lane": lane})).value["rows"]
        } == {tracks["name"][0]}

    asked(session)


@pytest.mark.parametrize(
    ("term", "kind", "name"),
    [
        ("self_us", "column", "self_us"),
        ("kernels.by_name", "frame", "kernels.by_name"),
        ("steps", "frame", "steps.frame"),
        ("map_serial", "rule of advice", "map_serial"),
        ("Kernel launch", "category of step time", "kernel_launch"),
        ("roofline", "tab", "hlo"),
        ("memory_viewer[module].at_peak", "frame", "memory_viewer[module].at_peak"),
    ],
)
def test_a_term_is_explained(term, kind, name):
    meanings = one("explain", term=term).value["meanings"]
    found = [each for each in meanings if (each["kind"], each["name"]) == (kind, name)]
    assert found, meanings
    assert all(each.get("meaning") or each.get("what_to_do") for each in found)


def test_every_frame_column_and_category_is_explained():
    from nbprof.assistant.explain import explain

    for frame, columns in SCHEMA.items():
        (meaning,) = [
            each
            for each in explain(frame)["meanings"]
            if each["kind"] == "frame" and each["name"] == frame
        ]
        assert list(meaning["columns"])[: len(columns)] == [col.name for col in columns]
        # Keys of a dict have no docstring of their own.
        assert meaning["meaning"] or frame.startswith(("overview.", "input_pipeline.summary")), (
            frame
        )
    for category in CATEGORIES:
        assert explain(category.label)["meanings"][0]["name"] == category.key


def test_words_of_docstrings_are_found_and_others_are_not():
    assert "Welch" in one("explain", term="Welch").value["said_of_it"][0]
    answer = one("explain", term="kernel_lunch")
    assert answer.failed
    assert "kernel launch" in answer.value["error"]


def test_a_profile_that_was_not_asked_for_longest_is_closed():
    async def session(call):
        for host in range(5):
            assert (await call("open", path="xspace", host=host)).value["id"] == f"p{host + 1}"
        for after in range(2, 6):
            assert (await call("compare", before="p1", after=f"p{after}")).value[
                "id"
            ] == f"c{after + 4}"
        assert after + 4 == MOST_OPEN + 1
        assert "nothing is open as 'p2'" in (await call("brief", id="p2")).value["error"]
        assert not (await call("brief", id="p1")).failed

    asked(session)


def test_a_call_that_takes_long_is_answered_and_the_work_does_not_pile_up():
    release, began, ran = threading.Event(), threading.Event(), []

    def slow():
        began.set()
        release.wait()
        ran.append("slow")
        return "done"

    async def session():
        worker = Worker(0.05)
        with pytest.raises(NbprofError, match="continues: call again"):
            await worker.run(slow)
        assert began.is_set()
        with pytest.raises(NbprofError, match="dropped"):
            await worker.run(lambda: ran.append("dropped"))
        worker.seconds = 60
        waiting = [
            asyncio.ensure_future(worker.run(lambda at=at: ran.append(at)))
            for at in range(MOST_WAITING - 1)
        ]
        await asyncio.sleep(0)
        # The dropped one still has its place until the thread comes by it.
        with pytest.raises(NbprofError, match="calls are already waiting"):
            await worker.run(lambda: ran.append("refused"))
        release.set()
        await asyncio.gather(*waiting)
        assert ran == ["slow", *range(MOST_WAITING - 1)]
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        assert await worker.run(lambda: 5) == 5

    asyncio.run(session())


def test_what_was_opened_after_its_call_had_ended_is_there_for_the_next(monkeypatch):
    release, times = threading.Event(), []

    def slow(files, capture):
        times.append(files.name)
        release.wait()
        return open_run(files, capture)

    monkeypatch.setattr("nbprof.assistant.reader.open_run", slow)

    async def session(call):
        assert "continues: call again" in (await call("open", path=SLOW)).value["error"]
        release.set()
        while (answer := await call("open", path=SLOW)).failed:
            assert "call again" in answer.text
        assert answer.value["id"] == "p1"
        assert times == ["tf_slow"]

    asked(session, seconds=0.3)


def test_calls_at_the_same_time_are_answered_one_by_one():
    async def session(call):
        opened = await asyncio.gather(
            *(call("open", path=path) for path in (SLOW, MENDED, SLOW, MENDED))
        )
        assert sorted(each.value["id"] for each in opened) == ["p1", "p1", "p2", "p2"]
        frames = await asyncio.gather(
            *(
                call("frame", id=f"p{1 + at % 2}", name="steps", limit=1)
                for at in range(MOST_WAITING)
            )
        )
        assert [each.value["rows_in_frame"] for each in frames] == [12] * MOST_WAITING

    asked(session)


def test_a_fault_of_nbprof_is_told_without_its_text(monkeypatch, capsys):
    def fault(*_):
        raise TypeError("secret of the machine")

    monkeypatch.setattr("nbprof.assistant.reader.Reader.explain", fault)
    answer = one("explain", term="ops")
    assert answer.failed
    assert answer.value == {
        "error": "nbprof failed with TypeError; the server's stderr has the traceback."
    }
    assert "secret of the machine" in capsys.readouterr().err


def test_without_the_sdk_a_sentence_says_what_to_install(monkeypatch):
    from click.testing import CliRunner

    from nbprof.cli.mcp import command

    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    result = CliRunner().invoke(command)
    assert isinstance(result.exception, NbprofError)
    assert 'pip install "nbprof[mcp]"' in str(result.exception)


def test_a_root_that_is_not_there_is_said(tmp_path):
    with pytest.raises(NbprofError, match="no such folder"):
        Roots([tmp_path / "absent"])


def test_a_client_that_has_gone_leaves_no_traceback():
    command = [sys.executable, "-m", "nbprof", "mcp", "--root", str(DATA)]
    hello = {
        "protocolVersion": "2025-03-26",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        # Who is killed leaves both pipes.
        server.stdout.close()
        server.stdin.write(f"{json.dumps(asked)}\n".encode())
        server.stdin.close()
        assert server.stderr.read() == b""
        assert server.wait() == 141
