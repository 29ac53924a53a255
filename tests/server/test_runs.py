"""The list of runs: what is found where, what is not looked at, and what is told when."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import threading
from concurrent.futures.thread import _threads_queues as waited_for

import pytest

from nbprof.core.files import LocalFile
from nbprof.core.unfinished import SCRATCH, mark
from nbprof.server import complete_run, listing
from nbprof.server import runs as finding
from nbprof.server.on_disk import OnDisk, Problem
from nbprof.sources import detect, locate
from nbprof.sources.budget import Budget
from tests.server.conftest import place, torch_trace
from tests.support import msprof
from tests.support.xspace import training_run


@pytest.fixture
def options():
    """Nothing is analysed here; that is for test_summaries.py."""
    return {"analysed": 0}


async def test_it_finds_run_folders_and_loose_files(jp_root_dir, listed):
    place(
        jp_root_dir / "logs" / "train" / "plugins" / "profile" / "2024_05_01_10_00_00",
        "host-a.xplane.pb",
    )
    place(
        jp_root_dir / "logs" / "train" / "plugins" / "profile" / "2024_05_01_10_00_00",
        "host-b.xplane.pb",
    )
    place(jp_root_dir / "loose", "a.xplane.pb")
    place(jp_root_dir / "loose", "b.xplane.pb")
    place(jp_root_dir / "torch", "w.pt.trace.json", torch_trace())
    place(jp_root_dir / "torch2", "w.pt.trace.json.gz", gzip.compress(torch_trace()))
    place(jp_root_dir / "notes", "data.json", b'{"a": 1}')
    answer = await listed("")
    assert answer.paths == [
        "logs/train/plugins/profile/2024_05_01_10_00_00",
        "loose/a.xplane.pb",
        "loose/b.xplane.pb",
        "torch/w.pt.trace.json",
        "torch2/w.pt.trace.json.gz",
    ]
    run = answer.first["logs/train/plugins/profile/2024_05_01_10_00_00"]
    assert (run["name"], run["hosts"], run["kind"], run["known"]) == (
        "2024_05_01_10_00_00",
        2,
        "xplane",
        False,
    )
    assert run["bytes"] == 2 * len(training_run(4))
    assert run["modified"].endswith("Z")
    torch = answer.first["torch2/w.pt.trace.json.gz"]
    assert (torch["kind"], torch["framework"], torch["hosts"]) == ("trace", "PyTorch", 1)
    assert not answer.problems
    assert {"listed": True} in answer.lines


async def test_what_nbprof_wrote_beside_a_run_is_told_at_once(jp_root_dir, listed):
    folder = jp_root_dir / "nbprof-results" / "plugins" / "profile" / "2024_05_01_10_00_00"
    place(folder, "host-a.xplane.pb")
    told = {
        "framework": "TensorFlow 2.21.0",
        "steps_marked": 17,
        "label": "run 3",
        "notes": ["slow start"],
        "warnings": ["w"],
    }
    place(folder, "nbprof.json", json.dumps(told).encode())
    (run,) = (await listed("nbprof-results")).first.values()
    assert (run["framework"], run["steps"], run["label"], run["notes"]) == (
        "TensorFlow 2.21.0",
        17,
        "run 3",
        ["w", "slow start"],
    )


@pytest.mark.parametrize(
    "sidecar", [b"", b"[]", b"{", b"[" * 100_000, b'{"framework": 3, "notes": 4}', b"\xff"]
)
async def test_a_broken_sidecar_is_none(jp_root_dir, listed, sidecar):
    folder = jp_root_dir / "plugins" / "profile" / "r"
    place(folder, "host-a.xplane.pb")
    place(folder, "nbprof.json", sidecar)
    (run,) = (await listed("plugins")).first.values()
    assert (run["path"], run["framework"]) == ("plugins/profile/r", None)


async def test_ranks_in_one_folder_are_a_run_only_where_the_folder_opens_as_it(jp_root_dir, listed):
    for rank in range(2):
        place(jp_root_dir / "one", f"rank{rank}.pt.trace.json", torch_trace())
        place(jp_root_dir / "two", f"rank{rank}.1700000000000.pt.trace.json", torch_trace())
        place(jp_root_dir / "two", f"rank{rank}.1700009000000.pt.trace.json", torch_trace())
        place(jp_root_dir / "above", f"rank{rank}.pt.trace.json", torch_trace())
    place(jp_root_dir / "above" / "below", "c.xplane.pb")
    answer = await listed("one", "two", "above/below", "above")
    assert answer.runs["one"]["hosts"] == 2
    assert [path for path in answer.paths if path.startswith("two")] == [
        f"two/rank{rank}.{time}.pt.trace.json"
        for rank in range(2)
        for time in (1700000000000, 1700009000000)
    ]
    assert [path for path in answer.paths if path.startswith("above")] == [
        "above/below/c.xplane.pb",
        "above/rank0.pt.trace.json",
        "above/rank1.pt.trace.json",
    ]


async def test_every_run_that_is_listed_opens(jp_root_dir, listed, open_profile):
    place(jp_root_dir / "logs" / "plugins" / "profile" / "r1", "host-a.xplane.pb")
    place(jp_root_dir / "loose", "a.xplane.pb")
    for rank in range(2):
        place(jp_root_dir / "ranks", f"rank{rank}.pt.trace.json", torch_trace())
    answer = await listed("")
    assert len(answer.paths) == 3
    for path in answer.paths:
        _, reply = await open_profile(path)
        assert reply.payload is not None, reply.message


async def test_hidden_and_linked_out_are_not_looked_at(jp_root_dir, tmp_path, listed, extension):
    outside = tmp_path / "outside"
    place(outside, "secret.xplane.pb")
    place(jp_root_dir / ".hidden", "a.xplane.pb")
    place(jp_root_dir / "logs", ".b.xplane.pb")
    (jp_root_dir / "folder").symlink_to(outside)
    (jp_root_dir / "logs" / "file.xplane.pb").symlink_to(outside / "secret.xplane.pb")
    (jp_root_dir / "seen").symlink_to(jp_root_dir / ".hidden")
    answer = await listed("")
    assert not answer.runs
    assert answer.problems.keys() == {"logs/file.xplane.pb"}
    assert "points outside the folder that Jupyter serves" in answer.problems["logs/file.xplane.pb"]
    extension.follow_links = True
    assert (await listed("")).paths == ["folder/secret.xplane.pb", "logs/file.xplane.pb"]


async def test_links_that_lead_in_circles_end(jp_root_dir, listed):
    place(jp_root_dir / "logs" / "a", "a.xplane.pb")
    (jp_root_dir / "logs" / "a" / "up").symlink_to(jp_root_dir / "logs")
    (jp_root_dir / "logs" / "top").symlink_to(jp_root_dir)
    (jp_root_dir / "logs" / "itself").symlink_to(jp_root_dir / "logs" / "itself")
    (jp_root_dir / "logs" / "again").symlink_to(jp_root_dir / "logs" / "a")
    place(jp_root_dir / "elsewhere", "b.xplane.pb")
    (jp_root_dir / "logs" / "other").symlink_to(jp_root_dir / "elsewhere")
    assert (await listed("logs")).paths == ["logs/a/a.xplane.pb", "logs/other/b.xplane.pb"]
    # Both at once: each run once, under the path without a link.
    assert (await listed("", "logs")).paths == ["elsewhere/b.xplane.pb", "logs/a/a.xplane.pb"]


async def test_what_is_not_there_is_a_problem_and_no_end(jp_root_dir, listed):
    place(jp_root_dir / "logs", "a.xplane.pb")
    os.mkfifo(jp_root_dir / "pipe")
    answer = await listed(
        "gone", "../out", "pipe", "logs", ".hid", "a\0b", "logs/a.xplane.pb/below"
    )
    assert answer.paths == ["logs/a.xplane.pb"]
    assert len(answer.problems) == 6
    assert all(message.endswith(".") for message in answer.problems.values())
    assert not any(str(jp_root_dir) in message for message in answer.problems.values())


async def test_a_folder_that_may_not_be_read_is_a_problem(jp_root_dir, listed, monkeypatch):
    place(jp_root_dir / "logs", "a.xplane.pb")
    (jp_root_dir / "logs" / "locked").mkdir()
    look = finding._Here.look

    def refuse(here):
        # As the system does to all but root.
        if here.real.name == "locked":
            raise PermissionError(13, "Permission denied")
        look(here)

    monkeypatch.setattr(finding._Here, "look", refuse)
    answer = await listed("logs")
    assert answer.paths == ["logs/a.xplane.pb"]
    assert "permissions" in answer.problems["logs/locked"]


async def test_what_vanishes_while_it_is_listed_is_left_out(jp_root_dir, listed, monkeypatch):
    place(jp_root_dir / "logs" / "a", "a.xplane.pb")
    gone = place(jp_root_dir / "logs" / "b", "b.trace.json", torch_trace())
    look = finding._Here.look

    def look_and_lose(here):
        look(here)
        if here.real.name == "logs":
            gone.unlink()
            gone.parent.rmdir()

    monkeypatch.setattr(finding._Here, "look", look_and_lose)
    answer = await listed("logs")
    assert answer.paths == ["logs/a/a.xplane.pb"]
    assert not answer.problems


async def test_a_text_that_calls_itself_a_trace_is_a_problem_with_its_path(jp_root_dir, listed):
    place(jp_root_dir / "logs", "a.trace.json", b"no JSON at all")
    place(jp_root_dir / "logs", "b.xplane.pb")
    answer = await listed("logs")
    assert answer.paths == ["logs/b.xplane.pb"]
    assert "not a profile" in answer.problems["logs/a.trace.json"]


async def test_depth_and_python_environments(jp_root_dir, listed):
    place(jp_root_dir / "a" / "b" / "c", "x.xplane.pb")
    place(jp_root_dir / "env", "pyvenv.cfg", b"")
    place(jp_root_dir / "env" / "lib", "y.xplane.pb")
    assert (await listed("")).paths == ["a/b/c/x.xplane.pb"]
    assert (await listed("", depth=2)).paths == []
    assert (await listed("a/b", depth=1)).paths == ["a/b/c/x.xplane.pb"]
    assert (await listed("a/b/c/x.xplane.pb")).paths == ["a/b/c/x.xplane.pb"]


async def test_many_runs_and_files_are_listed_in_pieces(jp_root_dir, listed):
    for i in range(500):
        place(jp_root_dir / "logs" / "plugins" / "profile" / f"run{i}", "host.xplane.pb", b"")
    for i in range(1000):
        (jp_root_dir / "logs" / f"note{i}.txt").touch()
    answer = await listed("logs")
    assert len(answer.first) == 500


async def test_more_than_is_looked_at_is_told(jp_root_dir, listed, monkeypatch):
    for i in range(30):
        place(jp_root_dir / "logs" / f"d{i:02}", "a.xplane.pb", b"")
    monkeypatch.setattr(finding, "MOST_RUNS", 10)
    answer = await listed("logs")
    assert len(answer.first) == 10
    assert any("more than 10 runs" in message for message in answer.problems.values())
    monkeypatch.setattr(finding, "MOST_RUNS", 1000)
    monkeypatch.setattr(finding, "MOST_FILES", 40)
    answer = await listed("logs")
    assert 0 < len(answer.first) < 30
    assert any("more than 40 files" in message for message in answer.problems.values())


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"folders": "logs"},
        {"folders": [1]},
        {"folders": ["a"] * 101},
        {"folders": [], "depth": -1},
        {"folders": [], "depth": True},
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(post, request_):
    status, body = await post("runs", request_)
    assert status == 400
    assert json.loads(body)["message"].endswith(".")


class Slow:
    """A disk on which looking into a folder takes until the test lets it."""

    def __init__(self, monkeypatch, name):
        self.go, self.reached, self.looked = threading.Event(), threading.Event(), []
        look = finding._Here.look

        def slow(here):
            self.looked.append(here.real.name)
            if here.real.name == name:
                self.reached.set()
                assert self.go.wait(120)
            look(here)

        monkeypatch.setattr(finding._Here, "look", slow)


@pytest.fixture
def connected(jp_auth_header, http_server, http_server_port, jp_base_url):
    """A connection that asks for the runs of a folder, and reads as they come."""

    async def connected(folder):
        reader, writer = await asyncio.open_connection("127.0.0.1", http_server_port[1])
        body = json.dumps({"folders": [folder]}).encode()
        headers = {"Host": "127.0.0.1", "Content-Length": len(body), **jp_auth_header}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"POST {jp_base_url}nbprof/api/runs HTTP/1.1\r\n{head}\r\n".encode() + body)
        return reader, writer

    return connected


async def test_a_slow_disk_keeps_neither_the_server_nor_the_first_runs_waiting(
    jp_root_dir, connected, jp_fetch, monkeypatch
):
    place(jp_root_dir / "logs" / "a", "a.xplane.pb")
    place(jp_root_dir / "logs" / "b", "b.xplane.pb")
    disk = Slow(monkeypatch, "b")
    reader, writer = await connected("logs")
    await reader.readuntil(b"logs/a/a.xplane.pb")
    assert (await jp_fetch("api", "status")).code == 200
    assert not disk.go.is_set()
    disk.go.set()
    await reader.readuntil(b"logs/b/b.xplane.pb")
    await reader.readuntil(b'"done"')
    writer.close()


async def test_nobody_looks_on_when_nobody_listens(jp_root_dir, connected, monkeypatch):
    for name in "abcdef":
        place(jp_root_dir / "logs" / name, f"{name}.xplane.pb")
    disk = Slow(monkeypatch, "b")
    stopped, ended = threading.Event(), threading.Event()
    stop, search = listing._Walk.stop, listing._Walk._search
    monkeypatch.setattr(listing._Walk, "stop", lambda walk: (stop(walk), stopped.set()))
    monkeypatch.setattr(listing._Walk, "_search", lambda walk: (search(walk), ended.set()))
    reader, writer = await connected("logs")
    await reader.readuntil(b"logs/a/a.xplane.pb")
    # Where it is stopped before, it does not come to b.
    assert await asyncio.to_thread(disk.reached.wait, 120)
    writer.close()
    assert await asyncio.to_thread(stopped.wait, 120)
    disk.go.set()
    assert await asyncio.to_thread(ended.wait, 120)
    assert disk.looked == ["logs", "a", "b"]


async def test_output_of_ascend_is_listed_and_opens(jp_root_dir, listed, open_profile):
    tasks, marks = msprof.training(4)
    msprof.prof(jp_root_dir / "tf" / "PROF_000001_20250109084754000_ABC", tasks, marks)
    for rank, time in enumerate(("20250109084754000", "20250109084755000")):
        msprof.torch_npu(jp_root_dir / "torch" / f"host_{rank}_{time}_ascend_pt", tasks, rank=rank)
    (jp_root_dir / "raw" / "PROF_000001_20250109084754000_ABC" / "device_0").mkdir(parents=True)
    answer = await listed("")
    assert answer.paths == ["tf/PROF_000001_20250109084754000_ABC", "torch"]
    one, two = (answer.first[path] for path in answer.paths)
    assert (one["format"], one["hosts"], one["kind"]) == ("msprof", 1, "trace")
    assert (two["framework"], two["hosts"]) == ("PyTorch", 2)
    assert list(answer.problems) == ["raw/PROF_000001_20250109084754000_ABC"]
    assert "msprof --export=on" in next(iter(answer.problems.values()))
    for path in answer.paths:
        _, reply = await open_profile(path)
        assert reply.payload is not None


class Clock:
    """Seconds that pass by themselves, some at each look."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def heads_read(monkeypatch):
    read = []
    head = LocalFile.head
    monkeypatch.setattr(
        LocalFile, "head", lambda file, count: (read.append(file.name), head(file, count))[1]
    )
    return read


def empty_traces(folder, count):
    folder.mkdir(parents=True)
    for i in range(count):
        (folder / f"t{i:05}.trace.json").touch()


def test_very_many_empty_traces_are_no_runs(tmp_path, monkeypatch):
    """Those whose heads are not read are known by their size."""
    empty_traces(tmp_path / "logs", 300)
    place(tmp_path / "logs", "a.pt.trace.json", torch_trace())
    monkeypatch.setattr(detect, "CHEAP_LOOKS", 20)
    read = heads_read(monkeypatch)
    found = list(finding.Search(tmp_path).below("", tmp_path))
    assert [run.path for run in found if isinstance(run, OnDisk)] == ["logs/a.pt.trace.json"]
    assert len(set(read)) <= 20 + 1
    problems = [problem for problem in found if isinstance(problem, Problem)]
    assert len(problems) == 51
    assert "is empty" in problems[0].message
    assert "the others are not listed" in problems[-1].message


def test_work_grows_with_the_number_of_files_and_not_with_its_square(tmp_path, monkeypatch):
    """Counted by how often a name is made printable, which each comparison of a file with the
    others did.
    """
    counts = []
    for count in (200, 400):
        empty_traces(tmp_path / f"logs{count}", count)
        calls = []
        printable = finding.printable
        with monkeypatch.context() as patch:
            patch.setattr(
                finding,
                "printable",
                lambda name: (calls.append(name), printable(name))[1],  # noqa: B023
            )  # noqa: B023, RUF100
            assert list(
                finding.Search(tmp_path / f"logs{count}").below("", tmp_path / f"logs{count}")
            )
        counts.append(len(calls))
    assert counts[1] < 3 * counts[0]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"entries": 100}, "more than 100 files"),
        ({"bytes": 1000}, "more than 1,000 B had to be read"),
        ({"seconds": 50, "clock": Clock(1)}, "took longer than 50 s"),
    ],
)
def test_a_list_is_bounded_in_entries_bytes_and_time_and_says_so(
    tmp_path, monkeypatch, budget, said
):
    for i in range(200):
        place(tmp_path / "logs", f"t{i:03}.pt.trace.json", torch_trace())
    read = heads_read(monkeypatch)
    search = finding.Search(tmp_path)
    search.budget = Budget(**budget)
    found = list(search.below("", tmp_path))
    assert len(set(read)) < 200
    assert not search.complete
    (problem,) = [one for one in found if isinstance(one, Problem)]
    assert said in problem.message
    assert "the others were not examined" in problem.message


def test_opening_a_folder_is_bounded_and_says_so(tmp_path):
    for i in range(200):
        place(tmp_path / "logs", f"t{i:03}.pt.trace.json", torch_trace())
    files = locate.find(tmp_path, options=locate.OpenOptions(budget=lambda: Budget(entries=100)))
    assert "incomplete_search" in {note.key for note in files.notes}


def test_a_search_that_nobody_waits_for_reads_nothing_more(tmp_path, monkeypatch):
    for i in range(200):
        place(tmp_path / "logs", f"t{i:03}.pt.trace.json", torch_trace())
    read = heads_read(monkeypatch)
    list(finding.Search(tmp_path, stop=lambda: len(set(read)) >= 5).below("", tmp_path))
    assert len(set(read)) <= 6


async def test_a_search_does_not_keep_a_server_from_ending(
    jp_root_dir, connected, monkeypatch, extension
):
    """Threads of an executor are waited for when a process ends, whatever they do; and a server
    that ends says so to all.
    """
    (jp_root_dir / "logs").mkdir()
    goes_on, began, threads, stops = threading.Event(), threading.Event(), [], []

    def below(search, shown, real):
        threads.append(threading.current_thread())
        began.set()
        goes_on.wait(60)
        stops.append(search.stop())
        return iter(())

    monkeypatch.setattr(finding.Search, "below", below)
    _, writer = await connected("logs")
    await asyncio.to_thread(began.wait, 60)
    try:
        assert threads[0].daemon
        assert threads[0] not in waited_for
        await extension.stop_extension()
    finally:
        goes_on.set()
    await asyncio.to_thread(threads[0].join, 60)
    assert stops == [True]
    writer.close()


async def test_ranks_in_folders_are_one_run_as_everywhere(jp_root_dir, listed, open_profile):
    for rank in range(2):
        place(jp_root_dir / "job" / f"rank{rank}", "trace.json", torch_trace())
        place(jp_root_dir / "other" / f"rank{rank}", "trace.json", torch_trace())
        place(jp_root_dir / "runs" / f"run{rank}", "trace.json", torch_trace())
    place(jp_root_dir / "other", "w.pt.trace.json", torch_trace())
    answer = await listed("")
    assert answer.paths == [
        "job",
        "other/rank0/trace.json",
        "other/rank1/trace.json",
        "other/w.pt.trace.json",
    ] + [f"runs/run{number}/trace.json" for number in range(2)]
    assert answer.first["job"]["hosts"] == len(locate.runs(jp_root_dir / "job")[0].files) == 2
    assert [len(run.files) for run in locate.runs(jp_root_dir / "runs")] == [1, 1]
    _, reply = await open_profile("job")
    assert reply.payload is not None, reply.message


def test_what_belongs_to_a_run_of_ranks_in_folders(tmp_path):
    for rank in range(2):
        place(tmp_path / "job" / f"rank{rank}", "trace.json", torch_trace())
    found = complete_run.complete_run(str(tmp_path), "job")
    assert found.names == ("rank0/trace.json", "rank1/trace.json")
    assert not found.alone


@pytest.mark.parametrize("written", [False, True])
async def test_a_recording_whose_process_died_is_named(jp_root_dir, listed, written):
    folder = jp_root_dir / "logs" / f"{SCRATCH}1"
    folder.mkdir(parents=True)
    mark(folder, {"pid": 2**22 + 1, "notebook": "train.ipynb"})
    running = jp_root_dir / "logs" / f"{SCRATCH}2"
    running.mkdir()
    mark(running, {})
    if written:
        place(folder, "a.xplane.pb")
    answer = await listed("")
    assert not answer.paths
    (problem,) = answer.problems.items()
    assert problem[0] == "logs"
    assert (
        "in train.ipynb was not finished: its process, 4194305, ended before the recording did"
        in problem[1]
    )
    assert (
        "nbprof.load of its logdir opens" if written else "so there is nothing to read"
    ) in problem[1]
