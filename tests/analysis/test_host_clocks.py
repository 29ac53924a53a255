"""Hosts whose clocks are seconds apart: what is said of the run is what is said where they
agree.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis import notes
from nbprof.analysis.ops.torch_runtime import runtime
from nbprof.analysis.pods import clocks
from nbprof.analysis.steps.pods import HostSteps, align, frame
from nbprof.profiles.load import load
from nbprof.tools import header
from tests.support import pods

RANKS = 3


@pytest.fixture(
    scope="module",
    params=[("kineto", None), ("kineto", 1), ("xspace", None), ("xspace", 1)],
    ids=str,
)
def both(request, tmp_path_factory):
    """The same job by clocks that agree, and by clocks that are up to ten seconds apart."""
    form, workers = request.param
    out = []
    for apart_s in (0.0, 5.0):
        folder = tmp_path_factory.mktemp(form) / "job"
        pods.write(
            folder, RANKS if form == "xspace" else 4, 12, "kernel", 3, form=form, apart_s=apart_s
        )
        out.append(load(folder, executor=workers))
    return out


def test_the_recording_is_as_long_as_that_of_the_longest_host(both):
    agree, apart = both
    assert apart.pods.clocks["offset_ms"].abs().max() > 1000
    if agree.hosts[0] == "rank 0":
        # The clocks of the others count from when their machines began.
        assert header.seconds(apart.run) == pytest.approx(header.seconds(agree.run), rel=1e-3)
    alone = [apart.rank(number).run.recorded_s for number in range(len(apart.hosts))]
    assert header.seconds(apart.run) == pytest.approx(max(alone), rel=1e-9)
    of_each = [
        apart.rank(number).overview["environment"]["duration_s"]
        for number in range(len(apart.hosts))
    ]
    assert apart.overview["environment"]["duration_s"] == pytest.approx(max(of_each), rel=1e-9)


def test_every_step_is_compared_with_the_same_step(both):
    agree, apart = (
        p.pods.frame.sort_values(["step", "worker"]).reset_index(drop=True) for p in both
    )
    assert agree["step"].tolist() == apart["step"].tolist()
    assert agree["worker"].tolist() == apart["worker"].tolist()
    assert np.allclose(agree["step_time_ms"], apart["step_time_ms"], atol=1e-4)


def test_a_trace_of_several_hosts_says_by_which_clock_they_are_drawn(tmp_path):
    pods.write(tmp_path / "job", 2, 4, None, 3, apart_s=5.0)
    p = load(tmp_path / "job")
    said = "Each host is drawn by its own clock; p.pods.clocks shows the differences."
    assert said in p.payload()["trace"]["notes"]
    assert said in p.run.timeline.answer({"ask": "open"})["notes"]
    assert said not in p.rank(0).payload()["trace"]["notes"]


def test_work_of_warm_up_on_one_host_is_not_work_in_steps(tmp_path):
    found = []
    for apart_s in (0.0, 5.0):
        pods.write(tmp_path / str(apart_s), 2, 8, None, 3, apart_s=apart_s)
        run = load(tmp_path / str(apart_s)).run
        late = run.steps.groupby("host")["start_ms"].rank() > 3
        found.append(runtime(run.activity, run.steps.assign(counted=late)).loader_ms)
    assert found[0] > 0
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def steps(host: str, begin: float, first: int) -> pd.DataFrame:
    rows = {
        "host": host,
        "group": np.arange(10),
        "step": first + np.arange(10),
        "start_ms": begin + 100.0 * np.arange(10),
    }
    times = {
        "step_time_ms": 100.0,
        "name": "train",
        **{f"{category}_ms": 1.0 for category in _CATEGORIES},
    }
    return pd.DataFrame({**rows, **times})


_CATEGORIES = [
    *(
        "device_compute",
        "device_to_device",
        "device_collectives",
        "host_compute",
        "kernel_launch",
        "input",
        "output",
        "compile",
        "other",
    ),
]


@pytest.mark.parametrize(
    ("ahead_ms", "first"), [(0.0, 0), (30.0, 0), (300.0, 0), (-400.0, 0), (0.0, 3)]
)
def test_the_residual_of_a_clock_told_by_steps_holds_whichever_of_time_and_number_is_right(
    ahead_ms, first
):
    """Clocks are `ahead_ms` apart and hosts count alike, or the second counts from `first`."""
    both = pd.concat([steps("a", 0.0, 0), steps("b", ahead_ms, first)], ignore_index=True)
    compared, _ = frame(both, pd.DataFrame())
    found = clocks.clocks(["a", "b"], pd.DataFrame(), compared, both).set_index("host")
    assert found.loc["b", "by"] == "steps"
    assert abs(found.loc["b", "offset_ms"] - ahead_ms) <= found.loc["b", "residual_ms"]
    assert found.loc["b", "residual_ms"] < 100 * (1 + abs(round(ahead_ms / 100)) + first) + 1


def test_that_steps_are_matched_by_time_is_said_with_its_condition_unless_clocks_are_known():
    hosts = [
        HostSteps(name, begin := np.arange(3) * 10.0, begin + 9, np.arange(first, first + 3))
        for name, first in (("a", 5), ("b", 0))
    ]
    for has_offsets in (False, True):
        assert align(hosts, has_offsets=has_offsets).notes == [
            notes.steps_matched_by_time("step 0 of b", "step 5 of a", has_offsets)
        ]


@pytest.mark.parametrize("steps", [6, 12])
def test_hosts_of_two_runs_have_no_offset(tmp_path, steps):
    """Their collectives state no numbers, and are as many."""
    said = []
    for seed in range(3):
        first, second = (tmp_path / f"{seed} {more}" for more in (0, 1))
        pods.write(first, 4, steps, seed=seed, form="xspace")
        pods.write(second, 4, steps, seed=seed + 100, form="xspace")
        (first / "host0001.xplane.pb").write_bytes((second / "host0001.xplane.pb").read_bytes())
        told = load([first / "host0000.xplane.pb", first / "host0001.xplane.pb"]).pods.clocks
        said.append((told["by"] != "").any())
        assert told["reason"].str.startswith("Its collectives have no sequence number").all() == (
            not said[-1]
        )
        assert told[["offset_ms", "residual_ms"]].isna().all(axis=None) == (not said[-1])
    assert not any(said)


def numbered(count: int, steps: int, seed: int) -> pd.DataFrame:
    """The collectives of a job by the clock of its machine: `count` a step, which end after times
    that vary by 2 %.
    """
    chance = np.random.default_rng(seed)
    takes = np.linspace(0.5, 3.0, count) * (1 + 0.02 * chance.standard_normal((steps, count)))
    place = np.arange(steps * count)
    rows = {
        "match": place,
        "sequence": place,
        "step": place // count,
        "collective": "all_reduce",
        "time_us": 100.0,
    }
    return pd.DataFrame({**rows, "start_ms": np.cumsum(takes)})


def two_hosts(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    chance = np.random.default_rng(3)
    both = [
        one.assign(host="a"),
        other.assign(
            host="b", start_ms=other["start_ms"] + 700 + chance.uniform(0, 0.004, len(other))
        ),
    ]
    told = clocks.clocks(
        ["a", "b"], pd.concat(both, ignore_index=True), pd.DataFrame(), pd.DataFrame()
    )
    return told.set_index("host")


@pytest.mark.parametrize(("count", "steps"), [(1, 12), (2, 8), (10, 3)])
def test_equal_numbers_tell_a_clock_only_where_times_show_one_job(count, steps):
    one, other = numbered(count, steps, 0), numbered(count, steps, 1)
    same, alien = two_hosts(one, one), two_hosts(one, other)
    assert same.loc["b", "offset_ms"] == pytest.approx(700, abs=0.01)
    assert (same["reason"] == "").all()
    assert alien[["offset_ms", "drift_ppm", "residual_ms"]].isna().all(axis=None)
    assert alien["reason"].str.contains("times do not show that they are the same").all()
    # What ranks are apart by when they leave a collective still bounds what is said of stragglers.
    assert alien[clocks.LEAVING].max() > 10 * same[clocks.LEAVING].max()


@pytest.mark.parametrize("executor", [None, 1])
def test_a_rank_of_another_job_has_no_offset_and_costs_the_others_none(tmp_path, executor):
    first, second = tmp_path / "job", tmp_path / "other"
    pods.write(first, 4, 12, seed=0)
    pods.write(second, 4, 12, seed=100)
    whole = load(first, executor=executor).pods.clocks.set_index("host")
    alien = sorted(second.iterdir())[1]
    (first / alien.name).write_bytes(alien.read_bytes())
    told = load(first, executor=executor).pods.clocks.set_index("host")
    assert told.index[told["offset_ms"].isna()].tolist() == ["rank 1"]
    assert told.loc["rank 1", "reason"].startswith(
        "Its collectives have the sequence numbers of those of other hosts"
    )
    rest = ["rank 0", "rank 2", "rank 3"]
    assert told.loc[rest, "offset_ms"].tolist() == pytest.approx(
        whole.loc[rest, "offset_ms"].tolist(), abs=0.01
    )
    assert (told.loc[rest, "residual_ms"] < 0.01).all()


def test_steps_of_a_short_job_are_compared_by_the_numbers_of_its_collectives(tmp_path):
    """Too short for its clocks to be told, and these are several steps apart."""
    pods.write(tmp_path / "job", 4, 4, seed=1, apart_s=0.01)
    p = load(tmp_path / "job")
    assert p.pods.clocks["offset_ms"].isna().all()
    begins = p.steps.frame.groupby("host")["start_ms"].min()
    assert begins.max() - begins.min() > p.steps.frame["step_time_ms"].max()
    assert p.pods.summary["step"].tolist() == [0, 1, 2, 3]
    assert (p.pods.summary["workers"] == 4).all()


def test_hosts_of_one_run_have_an_offset_without_numbers(tmp_path):
    for seed in range(3):
        pods.write(tmp_path / str(seed), 4, 12, seed=seed, form="xspace")
        told = load(tmp_path / str(seed)).pods.clocks
        assert (told["by"] == "collectives").all()
        assert (told["residual_ms"] < 0.01).all()
        assert (told["reason"] == "").all()
