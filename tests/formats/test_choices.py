"""What is read of several files is chosen by their clocks and names, and every choice is a line of
the receipt.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nbprof.profiles.load import load
from nbprof.sources import locate
from nbprof.sources.runs_table import runs
from tests.support.kineto import Kineto
from tests.support.xspace import MS, PlaneWriter, xspace

BASE = 1_700_000_000
DAY = 86_400


def trace(
    at_s: float | None = 0.0, *, base: bool = True, rank: int | None = None, world: int = 2
) -> bytes:
    """One step, recorded so many seconds after `BASE`; without a clock where that is None. No two
    are the same, byte for byte.
    """
    trace.count += 1
    facts = (
        {}
        if rank is None
        else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
    )
    if at_s is not None and base:
        facts["baseTimeNanoseconds"] = BASE * 10**9
    file = Kineto(**facts)
    start = 0.0 if at_s is None else at_s * 1e6 + (0.0 if base else BASE * 1e6)
    file.step(0, start, 1000)
    op = file.op("aten::mm", start + 10, 20)
    file.launched("gemm", start + 12, start + 40, 100 + trace.count, op)
    return file.encode()


trace.count = 0


def write(path: Path, data: bytes, copied: float = BASE + 100 * DAY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (copied, copied))
    return path


def files(tmp_path):
    return [
        sorted(Path(file.label).relative_to(tmp_path).as_posix() for file in run.files)
        for run in locate.runs(tmp_path)
    ]


@pytest.mark.parametrize("base", [True, False])
def test_runs_are_in_the_order_of_their_own_clocks(tmp_path, base):
    # The oldest was copied last.
    for number in range(3):
        write(
            tmp_path / f"run{number}.pt.trace.json",
            trace(number * DAY, base=base),
            BASE + (10 - number) * DAY,
        )
    table = runs(tmp_path)
    assert table["run"].tolist() == ["run2", "run1", "run0"]
    assert table["modified"].astype("int64").diff().dropna().tolist() == [-DAY * 10**9] * 2
    p = load(tmp_path)
    assert p.run.source.name == "run2"
    note = "run2 is the newest of 3 runs here, by when they were recorded. nbprof.runs lists them, and run= opens another."
    assert note in str(p.receipt)
    assert "is the newest" not in str(load(tmp_path, run="run1").receipt)


def test_the_order_is_said_where_not_all_have_a_clock(tmp_path):
    write(tmp_path / "a.pt.trace.json", trace(None), BASE + DAY)
    write(tmp_path / "b.pt.trace.json", trace(0.0), BASE + 2 * DAY)
    assert (
        "is the newest of 2 runs here, by when their files were last changed, because not all have a"
        in str(load(tmp_path).receipt)
    )


def test_a_single_run_is_no_choice(tmp_path):
    write(tmp_path / "a.pt.trace.json", trace())
    assert "newest" not in str(load(tmp_path).receipt)


def test_runs_of_tensorboard_are_in_the_order_of_their_names(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event("dense/MatMul:MatMul", 0, MS)])
    for number, name in enumerate(["2024_05_02_10_00_00", "2024_05_01_10_00_00"]):
        write(
            tmp_path / "plugins/profile" / name / "host.xplane.pb",
            xspace(host),
            BASE + number * DAY,
        )
    assert runs(tmp_path)["run"].tolist() == ["2024_05_02_10_00_00", "2024_05_01_10_00_00"]


@pytest.mark.parametrize(
    "folders",
    [
        ["rank0", "rank1"],
        ["rank_0", "rank_1", "rank_2"],
        ["gpu-0", "gpu-1"],
        ["job.rank00", "job.rank01"],
    ],
)
def test_ranks_by_folder_are_one_run(tmp_path, folders):
    for number, folder in enumerate(folders):
        write(tmp_path / folder / "trace.json", trace(0.1 * number))
    p = load(tmp_path)
    assert p.hosts == [f"{folder}/trace" for folder in folders]
    assert (
        "are read as the ranks of one run by the numbers of ranks in their names and times that are the same."
        in str(p.receipt)
    )
    assert len(runs(tmp_path)) == 1
    assert load(tmp_path / folders[1] / "trace.json").hosts == ["trace"]


def test_ranks_by_folder_state_their_ranks(tmp_path):
    for rank in range(2):
        write(tmp_path / f"rank{rank}" / "trace.json", trace(rank=rank))
    p = load(tmp_path)
    assert p.hosts == ["rank 0", "rank 1"]
    # The files say so themselves.
    assert "are read as the ranks" not in str(p.receipt)


def test_cycles_of_ranks_by_folder_are_runs_of_their_own(tmp_path):
    for rank in range(2):
        for cycle in range(2):
            time = (BASE + 3600 * cycle + rank) * 1000
            write(tmp_path / f"rank{rank}" / f"host_{rank}7.{time}.pt.trace.json", trace())
    assert [len(run) for run in files(tmp_path)] == [2, 2]


def test_nodes_of_several_ranks(tmp_path):
    for node in range(2):
        for rank in range(2):
            write(tmp_path / f"node{node}" / f"rank{rank}.json", trace(rank))
    assert [len(run) for run in files(tmp_path)] == [4]


@pytest.mark.parametrize(
    ("second", "at"),
    [("rank1", 2 * DAY), ("rank0_again", 0.0), ("other", 0.0), ("job.rank1", 0.0)],
)
def test_folders_that_are_no_ranks_of_one_run(tmp_path, second, at):
    write(tmp_path / "rank0" / "trace.json", trace())
    write(tmp_path / second / "trace.json", trace(at))
    assert sorted(files(tmp_path)) == sorted([["rank0/trace.json"], [f"{second}/trace.json"]])
    assert set(runs(tmp_path)["run"]) == {"rank0/trace", f"{second}/trace"}


@pytest.mark.parametrize(
    "pattern",
    [
        "dp0_pp0_tp{}_dcp0_ep{}_rank{}.1700000000000000000.pt.trace.json",
        "dp0_pp0_tp{}_dcp0_ep{}_rank{}.pt.trace.json",
        "1700000000.123-TP-{}.trace.json",
        "1700000000.123-TP-{}-DP-0-EP-{}.trace.json",
    ],
)
def test_names_with_places_along_axes_of_parallelism(tmp_path, pattern):
    for rank in range(4):
        write(tmp_path / pattern.format(rank, rank, rank), trace(0.1 * rank))
    (run,) = locate.runs(tmp_path)
    assert [file.name for file in run.files] == [
        pattern.format(rank, rank, rank) for rank in range(4)
    ]
    assert "are read as the ranks of one run by the numbers" in str(load(tmp_path).receipt)


@pytest.mark.parametrize("at", [3600.0, None])
def test_settings_in_names_are_no_ranks(tmp_path, at):
    # Two runs, of 4 and of 8 ranks of tensor parallelism.
    write(tmp_path / "tp4.pt.trace.json", trace(None if at is None else 0.0))
    write(tmp_path / "tp8.pt.trace.json", trace(at))
    assert len(locate.runs(tmp_path)) == 2


def test_an_older_file_is_no_rank_of_a_job(tmp_path):
    write(tmp_path / "rank0.pt.trace.json", trace(3 * DAY))
    write(tmp_path / "rank1.pt.trace.json", trace(3 * DAY + 1))
    write(tmp_path / "rank2.pt.trace.json", trace(0.0))
    assert files(tmp_path) == [
        ["rank0.pt.trace.json", "rank1.pt.trace.json"],
        ["rank2.pt.trace.json"],
    ]


def test_an_older_file_in_the_folder_of_a_run_is_no_host_of_it(tmp_path):
    for number in range(2):
        write(tmp_path / "plugins/profile/run" / f"h{number}.trace.json", trace(2 * number * DAY))
    assert [len(run) for run in files(tmp_path)] == [1, 1]


def test_files_without_a_clock_are_joined_and_the_doubt_is_said(tmp_path):
    write(tmp_path / "rank0.pt.trace.json", trace(None), BASE)
    write(tmp_path / "rank1.pt.trace.json", trace(None), BASE + 3 * DAY)
    said = str(load(tmp_path).receipt)
    assert (
        "are read as the ranks of one run by the numbers of ranks in their names, though the files were last changed 3 days apart"
        in said
    )


def test_many_ranks_by_folder_have_the_names_of_their_folders(tmp_path):
    for number in range(10):
        write(tmp_path / f"rank{number}" / "trace.json", trace(0.01 * number))
    assert sorted(load(tmp_path).hosts) == sorted(f"rank{number}/trace" for number in range(10))
