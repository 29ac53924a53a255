"""Which files are hosts or ranks of one run, and which are runs one after the other."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbprof
from nbprof.formats.hosts import hosts_missing
from nbprof.formats.register import stem
from nbprof.sources import locate
from tests.support.places import gz, space, trace, write

RUN = "plugins/profile"
MS = 1_700_000_000_000


def found(root):
    """The runs, oldest first, each as the names of its files."""
    return [[piece.name for piece in run.files] for run in reversed(locate.runs(root))]


def torch(worker: str, at_s: float, digits: int = 13, packed: bool = False) -> str:
    return f"{worker}.{int((MS / 1000 + at_s) * 10 ** (digits - 10))}.pt.trace.json" + (
        ".gz" if packed else ""
    )


@pytest.mark.parametrize("digits", [13, 16, 19])
def test_traces_of_one_worker_are_runs_one_after_the_other(tmp_path, digits):
    files = [torch("host_123", second, digits) for second in (0, 1, 5)]
    write(tmp_path, {name: trace() for name in files}, at=99)
    assert found(tmp_path) == [[name] for name in files]
    newest = locate.find(tmp_path)
    assert newest.name == stem(files[-1])
    # The time in the name is when it was recorded; a copy has another.
    assert newest.modified == pytest.approx(MS / 1000 + 5)


def test_ranks_that_say_so_are_one_run(tmp_path):
    write(
        tmp_path,
        {torch(f"node{r // 2}_{5000 + 7 * r}", 40 * r): trace(rank=r, world=4) for r in range(4)},
    )
    run = locate.find(tmp_path)
    assert len(run.files) == 4
    assert run.name == tmp_path.name
    assert not [note for note in run.notes if note.level == "warning"]


def test_ranks_of_two_jobs_are_two_runs(tmp_path):
    write(tmp_path, {torch(f"a_{r}1111", r): trace(rank=r, world=2) for r in range(2)})
    write(tmp_path, {torch(f"b_{r}2222", 3 + r): trace(rank=r, world=8) for r in range(2)})
    assert [len(run) for run in found(tmp_path)] == [2, 2]
    assert all(name.startswith("a_") for name in found(tmp_path)[0])


def test_cycles_of_several_ranks_are_successive_runs(tmp_path):
    cycles = [[torch(f"h_{r}9999", 100 * cycle + 90 * r) for r in range(3)] for cycle in range(4)]
    write(
        tmp_path, {name: trace(rank=r, world=3) for cycle in cycles for r, name in enumerate(cycle)}
    )
    # Rank 2 writes its first after rank 0 has written its second.
    assert found(tmp_path) == cycles


def test_a_rank_that_missed_a_cycle_costs_only_that(tmp_path):
    write(
        tmp_path,
        {
            torch(f"h_{r}9999", 100 * cycle + r): trace(rank=r, world=2)
            for r, cycle in [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
        },
    )
    assert [len(run) for run in found(tmp_path)] == [1, 2, 2]


def test_workers_named_by_rank_are_one_run_without_saying_so(tmp_path):
    write(tmp_path, {torch(f"worker{r}", 100 * r): trace() for r in range(3)})
    assert [len(run) for run in found(tmp_path)] == [3]


def test_processes_without_a_rank_are_one_run_only_when_near(tmp_path):
    write(tmp_path / "near", {torch("host_10001", 0): trace(), torch("host_10002", 3): trace()})
    write(tmp_path / "far", {torch("host_10001", 0): trace(), torch("host_10002", 600): trace()})
    assert [len(run) for run in found(tmp_path / "near")] == [2]
    assert [len(run) for run in found(tmp_path / "far")] == [1, 1]


def test_ranks_by_name_of_any_producer(tmp_path):
    write(
        tmp_path,
        {
            f"step{step}_rank-{r}.json.gz": gz(trace(f"op{step}{r}"))
            for step in (100, 200)
            for r in range(2)
        },
        at=99,
    )
    assert found(tmp_path) == [
        [f"step{step}_rank-{r}.json.gz" for r in range(2)] for step in (100, 200)
    ]
    p = nbprof.load(tmp_path, run="step100")
    assert p.hosts == ["step100_rank-0", "step100_rank-1"]


def test_a_rank_that_is_missing_by_the_names_of_the_others(tmp_path):
    write(tmp_path, {f"rank{r}.json": trace(f"op{r}") for r in (0, 1, 3)}, at=99)
    assert any(
        "rank2" in note.text and note.level == "warning"
        for note in nbprof.load(tmp_path).receipt.lines
    )


def test_ten_ranks_are_in_the_order_of_their_numbers(tmp_path):
    write(tmp_path, {f"rank{r}.json": trace(f"op{r}") for r in range(12)}, at=99)
    assert found(tmp_path) == [[f"rank{r}.json" for r in range(12)]]


def test_other_traces_are_runs_of_their_own(tmp_path):
    write(tmp_path, {"before.json": trace("a"), "after.json": trace("b")}, at=99)
    assert sorted(found(tmp_path)) == [["after.json"], ["before.json"]]
    assert locate.find(tmp_path, "before").files[0].name == "before.json"


def test_ranks_that_are_missing_are_said_once(tmp_path):
    write(tmp_path, {torch(f"h_{r}9999", r): trace(rank=r, world=128) for r in (0, 5)})
    for at in (tmp_path, tmp_path / torch("h_09999", 0)):
        assert sum("128 ranks" in note.text for note in nbprof.load(at).receipt.lines) == 1


def test_a_trace_of_pytorch_beside_an_xspace_of_its_name_is_a_run(tmp_path):
    files = {"h.xplane.pb": space(), "h.pt.trace.json": trace("a")}
    write(tmp_path, files, at=99)
    assert sorted(found(tmp_path)) == [["h.pt.trace.json"], ["h.xplane.pb"]]
    assert "same_recording" not in set(nbprof.load(tmp_path).receipt.notes["key"])


def test_the_json_beside_an_xspace_is_named_and_left(tmp_path):
    files = {
        "h.xplane.pb": space(),
        "h.trace.json.gz": gz(trace(exporter=True)),
        "perfetto_trace.json.gz": gz(trace(exporter=True)),
    }
    write(tmp_path, {f"{RUN}/r/{name}": data for name, data in files.items()})
    assert found(tmp_path) == [["h.xplane.pb"]]
    p = nbprof.load(tmp_path)
    assert "same_recording" in set(p.receipt.notes["key"])
    # Named, it is read, and the better one is offered.
    one = locate.find(tmp_path / RUN / "r" / "h.trace.json.gz")
    assert one.format == "chrome"
    assert [note.key for note in one.notes] == ["complete_recording_beside"]


def test_a_trace_of_torch_beside_an_xspace_is_a_run_of_its_own(tmp_path):
    write(tmp_path, {"h.xplane.pb": space(), torch("w", 0): trace()})
    assert sorted(map(len, found(tmp_path))) == [1, 1]
    assert {run.format for run in locate.runs(tmp_path)} == {"xspace", "chrome"}


def test_hosts_of_a_run_folder_that_kept_only_json(tmp_path):
    names = {
        f"{RUN}/2024/{host}.trace.json.gz": gz(trace(host, exporter=True))
        for host in ("alpha", "beta")
    }
    write(tmp_path, {**names, f"{RUN}/2024/perfetto_trace.json.gz": gz(trace(exporter=True))})
    for at in (tmp_path, tmp_path / RUN / "2024"):
        run = locate.find(at)
        assert (run.name, [piece.name for piece in run.files]) == (
            "2024",
            ["alpha.trace.json.gz", "beta.trace.json.gz"],
        )


def test_a_recording_of_nbprof_is_named_after_its_folder(tmp_path):
    write(
        tmp_path,
        {f"{RUN}/2024_05/host.pt.trace.json.gz": gz(trace()), f"{RUN}/2024_05/nbprof.json": b"{}"},
    )
    assert locate.find(tmp_path).name == "2024_05"


def test_many_cycles_are_as_many_runs(tmp_path):
    names = [torch("w", second) for second in range(3000)]
    write(tmp_path, {name: trace() for name in names})
    assert found(tmp_path) == [[name] for name in names]


@pytest.mark.parametrize(
    ("names", "lacking"),
    [
        (["h0", "h1", "h2"], []),
        (["h0", "h2"], ["h1"]),
        (["h1", "h2", "h4"], ["h3"]),
        (["w-08", "w-10", "w-09"], []),
        (["w-00", "w-01", "w-03", "w-10"], []),
        (["h_6003", "h_6005"], []),
        (["10.0.0.1", "10.0.0.3", "10.0.0.2", "10.0.0.5"], ["10.0.0.4"]),
        (["a0b1", "a1b0"], []),
        (["only"], []),
        (["a", "b"], []),
        ([], []),
    ],
)
def test_a_gap_in_a_series_of_hosts(names, lacking):
    assert hosts_missing(names) == lacking


@settings(max_examples=60, deadline=None)
@given(
    ranks=st.integers(1, 5),
    cycles=st.integers(1, 6),
    late=st.lists(st.floats(0, 50), min_size=30, max_size=30),
    order=st.randoms(),
)
def test_every_file_is_in_one_run_and_no_rank_twice(tmp_path_factory, ranks, cycles, late, order):
    root = tmp_path_factory.mktemp("logs")
    names = {}
    for cycle in range(cycles):
        for rank in range(ranks):
            names[torch(f"h_{rank}7777", 200 * cycle + late[cycle * 5 + rank])] = (rank, cycle)
    listed = list(names)
    order.shuffle(listed)
    for name in listed:
        (root / name).write_bytes(trace(rank=names[name][0], world=ranks) if ranks > 1 else trace())
        os.utime(root / name, (99, 99))
    runs = found(root)
    assert [[names[name] for name in run] for run in runs] == [
        [(rank, cycle) for rank in range(ranks)] for cycle in range(cycles)
    ]
