"""`nbprof.profile()` in the ranks of a job: the ranks are the hosts of one run."""

from __future__ import annotations

import pytest

import nbprof
from nbprof.analysis.device_time.device_time import rank_of
from tests.support.programs import Program

RANK = """
import os, sys, time
from pathlib import Path
import nbprof
from nbprof.analysis.device_time.device_time import rank_of

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])

def reached(what, by):
    (folder / f"{what}{rank}").touch()
    while not (folder / f"{what}{by}").exists():
        time.sleep(0.01)

def train(count, **options):
    with nbprof.profile(logdir=str(folder / "logs"), backend="python", **options) as run:
        for _ in nbprof.steps(range(count)):
            time.sleep(0.002)
        if rank == 1 and count == 7:
            raise ValueError("bad batch")
    return run

"""


@pytest.fixture
def ranks(tmp_path):
    """Runs a program in two ranks of a job."""

    def run(code):
        programs = [
            Program(
                RANK + code,
                (str(tmp_path),),
                environment={"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            )
            for rank in range(2)
        ]
        ended = [program.wait() for program in programs]
        assert [each.returncode for each in ended] == [0, 0], ended
        # What only the ranks needed is gone.
        assert not list((tmp_path / "logs").glob(".job-*"))
        return ended

    return run


def ranks_of(profile):
    return list(map(rank_of, profile.hosts))


def runs(tmp_path):
    return [nbprof.load(path) for path in sorted((tmp_path / "logs/plugins/profile").iterdir())]


def test_the_first_blocks_are_one_run_and_the_second_ones_another(ranks, tmp_path):
    ended = ranks(
        """
reached("began", 1 - rank)
first = train(5)
print(*map(rank_of, first.hosts), len(first.steps.frame))
# Rank 0 is in its second block, or has ended it, when rank 1 begins its own.
reached("second", 0)
second = train(6)
print(*map(rank_of, second.hosts), len(second.steps.frame))
reached("over", 1 - rank)
"""
    )
    for rank, each in enumerate(ended):
        # The block has its own rank, whatever the others have written by then.
        assert each.stdout.splitlines() == [f"{rank} 5", f"{rank} 6"]
    first, second = runs(tmp_path)
    for profile, steps in ((first, 5), (second, 6)):
        assert ranks_of(profile) == [0, 1]
        assert not len(profile.pods.missing)
        assert [len(profile.rank(rank).steps.frame) for rank in range(2)] == [steps, steps]


def test_a_rank_that_begins_when_the_other_has_ended_is_in_its_run(ranks, tmp_path):
    ranks(
        """
if rank == 1:
    reached("waits", 0)
train(5)
if rank == 0:
    reached("waits", 1)
reached("over", 1 - rank)
"""
    )
    (profile,) = runs(tmp_path)
    assert ranks_of(profile) == [0, 1]


def test_a_block_of_the_first_rank_alone_is_a_run_that_names_the_missing_one(ranks, tmp_path):
    ranks(
        """
if rank == 0:
    train(5)
"""
    )
    (profile,) = runs(tmp_path)
    assert ranks_of(profile) == [0]
    assert list(profile.pods.missing["host"]) == ["rank 1"]


def test_a_block_that_fails_in_a_rank_is_named(ranks, tmp_path):
    ranks(
        """
try:
    train(7)
except ValueError:
    pass
reached("over", 1 - rank)
"""
    )
    (profile,) = runs(tmp_path)
    assert ranks_of(profile) == [0, 1]
    assert "block of rank 1 failed after 7 complete steps: ValueError" in profile.text()
    (reason,) = profile.pods.missing["reason"]
    assert reason == "Its block failed after 7 complete steps: ValueError: bad batch."


def test_windows_of_a_block_are_runs_of_each_rank(ranks, tmp_path):
    ranks('train(8, steps="2:3", every=4)')
    assert all(len(profile.hosts) == 1 for profile in runs(tmp_path))
    assert len(runs(tmp_path)) == 4
