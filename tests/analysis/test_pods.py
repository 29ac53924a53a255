"""Several hosts beside each other: planted stragglers are found, and where nothing is wrong nothing
is.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.advice import evidence
from nbprof.analysis.pods import clocks, collectives, memory, outliers, stragglers
from nbprof.analysis.pods.chance import deviation, of_others, tail
from nbprof.analysis.pods.compare import compare
from nbprof.analysis.pods.own_time import OwnTime, own_time
from nbprof.analysis.pods.sums import COLUMNS, MOST, OTHERS, a_step, by_host
from nbprof.profiles.load import load
from nbprof.schema.frames import empty
from nbprof.tools.pods import findings
from tests.support import pods
from tests.support.examples import examples
from tests.support.kineto import Kineto, profile

SEEDS = range(examples(24))
CAUSE = {
    "kernel": "kernel",
    "clock": "every_kernel",
    "once": "host_compute",
    "input": "input",
    "host": "host_compute",
}


@cache
def tables_of(plant: str | None, seed: int, ranks: int, jitter: float):
    job, planted = pods.simulate(ranks, 20, plant, seed, jitter=jitter)
    return pods.tables(job), planted


@cache
def found(plant: str | None, seed: int, ranks: int = 8, jitter: float = 0.02):
    """Stragglers and outliers of a job, without collectives, which take as long again."""
    made, planted = tables_of(plant, seed, ranks, jitter)
    own = own_time(made["steps"], made["pods"], made["overlap"], made["each"])
    table = a_step(made["by_host"], made["steps"])
    apart = clocks.clocks(made["hosts"], made["each"], made["pods"], made["steps"])
    late = stragglers.stragglers(
        own, made["each"], made["steps"], table, apart, made["devices"], memory.none()
    )
    ranks_of = made["each"][["host", "rank"]]
    return {
        "stragglers": late,
        "outliers": outliers.outliers(table, own.measured, ranks_of),
        "own": own,
    }, planted


def groups_of(plant: str | None, seed: int, jitter: float = 0.02):
    made, planted = tables_of(plant, seed, 8, jitter)
    return collectives.by_group(made["each"], 20, 5.0), planted


@pytest.fixture(scope="module", params=["kineto", "xspace"])
def read(request, tmp_path_factory):
    """A job as it is written, read and compared; its second straggler is a victim, since it shares
    a group with the first.
    """
    folder = tmp_path_factory.mktemp(request.param) / "job"
    planted = pods.write(folder, 4, 12, "kernel", 3, form=request.param)
    return request.param, load(folder), planted


def test_what_is_written_is_read(read):
    form, p, planted = read
    assert len(p.hosts) == 4
    assert len(p.steps.frame) == 48
    assert (
        p.pods.frame.groupby("worker")["device_compute_ms"].mean().idxmax()
        == p.hosts[planted.ranks[0]]
    )
    groups = p.device_time.each_collective.groupby("match")["host"].size().value_counts().to_dict()
    assert groups == ({4: 12, 2: 24} if form == "kineto" else {4: 12})
    # Clocks are seconds apart.
    assert p.steps.frame.groupby("host")["start_ms"].min().std() > 1000


def test_a_straggler_is_read_from_files(read):
    _, p, planted = read
    first = p.pods.stragglers.iloc[0]
    (slow,) = planted.ranks
    assert p.pods.stragglers["straggler"].sum() == 1
    assert (first["host"], first["by"], first["steps"], first["slowest_in"]) == (
        p.hosts[slow],
        "collectives",
        12,
        12,
    )
    # The kernel takes 2.4 ms and 1.3 times as long.
    assert first["excess_ms"] == pytest.approx(0.72, abs=0.1)
    # All the others wait for it.
    assert first["cost_ms"] == pytest.approx(3 * 0.72, rel=0.15)
    assert first["cause"] == "kernel"
    assert first["why"].startswith(f"{pods.GEMM}: 3.")
    outliers = p.pods.outliers
    assert set(outliers["host"]) == {p.hosts[slow]}
    assert outliers.set_index(["kind", "name"]).loc[
        ("kernel", pods.GEMM), "ratio"
    ] == pytest.approx(1.3, abs=0.05)


def test_all_tabs_name_the_same_straggler(read):
    _, p, planted = read
    whole = p.device_time.stragglers
    late = whole[whole["straggler"]]
    assert late[late["step"].isna()]["host"].tolist() == [p.hosts[rank] for rank in planted.ranks]
    assert set(late["host"]) == set(p.pods.stragglers.loc[p.pods.stragglers["straggler"], "host"])
    assert late["step"].notna().sum() >= 10, "it is the one waited for in almost each of 12 steps"


def test_who_is_late_by_chance_is_no_straggler_in_any_tab(tmp_path):
    """Equal ranks: in each collective one of them is the last, and waiting for it is more than 1 %
    of a step.
    """
    pods.write(tmp_path / "job", 4, 12, None, 3)
    p = load(tmp_path / "job")
    assert not p.pods.stragglers["straggler"].any()
    rows = p.device_time.stragglers
    assert rows["waited_for"].any()
    assert not rows["straggler"].any()
    assert rows["straggler"].notna().all()
    assert "straggler" not in set(p.advice["rule"])


def test_tables_are_those_of_files(tmp_path):
    job, _ = pods.simulate(4, 6, "link", 1)
    pods.write(tmp_path / "job", 4, 6, "link", 1)
    p = load(tmp_path / "job")
    made, real = (
        compare(**pods.tables(job)),
        {
            name: getattr(p.pods, name)
            for name in ("stragglers", "what_if", "collectives", "clocks")
        },
    )
    for name, frame in real.items():
        pd.testing.assert_frame_equal(
            made[name], frame, rtol=1e-3, atol=2e-3, obj=name, check_column_type=False
        )


@pytest.mark.parametrize("plant", CAUSE)
def test_planted_stragglers_are_found_whatever_the_seed(plant):
    # Another way to be slow all the time is as easy to find; what is tested of it is the reason.
    for seed in SEEDS if plant in ("kernel", "once", "input") else range(5):
        frames, planted = found(plant, seed)
        rows = frames["stragglers"]
        late = rows[rows["straggler"]]
        assert late["rank"].tolist() == list(planted.ranks), f"seed {seed}"
        assert late["cause"].tolist() == [CAUSE[plant]], f"seed {seed}: {late['why'].tolist()}"
        assert (rows["chance"] > 0).all()
        if plant == "once":
            assert late[["worst_step", "pauses"]].to_numpy().tolist() == [[planted.step, 1]]
        assert set(frames["outliers"]["rank"]) <= set(planted.ranks), f"seed {seed}"
        assert plant == "once" or len(frames["outliers"]), f"seed {seed}"


def test_a_slow_link_is_found_whatever_the_seed():
    for seed in SEEDS:
        frames, planted = found("link", seed)
        groups, _ = groups_of("link", seed)
        assert groups[groups["slow"]]["members"].tolist() == ["{}-{}".format(*planted.ranks)], (
            f"seed {seed}"
        )
        # Its ranks are late for the others, but it is not they that are slow.
        assert not frames["stragglers"]["straggler"].any(), f"seed {seed}"
        assert not len(frames["outliers"]), f"seed {seed}"


@pytest.mark.parametrize("jitter", [0.01, 0.03])
def test_where_nothing_is_wrong_nothing_is_found(jitter):
    for seed in SEEDS:
        for ranks in (2, 8) if seed < 5 else (8,):
            frames, _ = found(None, seed, ranks, jitter)
            assert not frames["stragglers"]["straggler"].any(), f"seed {seed}"
            assert not len(frames["outliers"]), f"seed {seed}"
        # The most that varies is the hardest case of groups.
        assert jitter < 0.03 or not groups_of(None, seed, jitter)[0]["slow"].any(), f"seed {seed}"


def test_equal_hosts_have_no_straggler():
    one = pods.simulate(2, 20, None, 1)[0][0]
    frames = compare(**pods.tables([pods.Rank(number, one.steps, one.did) for number in range(8)]))
    rows = frames["stragglers"]
    assert not rows["straggler"].any()
    assert (rows["excess_ms"].abs() < 1e-9).all()
    assert (rows[["slowest_in", "last_in", "cost_ms", "saved_ms"]] == 0).all(axis=None)
    assert not len(frames["outliers"])


def test_what_a_job_would_take_is_what_it_takes_without_the_straggler():
    for plant in CAUSE:
        taken = []
        for seed in range(5):
            taken.append(found(plant, seed)[0]["stragglers"]["step_time_ms"].min())
        without = [found(None, seed)[0]["own"].measured for seed in range(5)]
        assert np.mean(taken) == pytest.approx(np.mean(without), rel=0.01), plant


def test_what_a_job_would_take_without_the_network():
    for plant in (None, "link", "kernel"):
        job, _ = pods.simulate(8, 20, plant, 5)
        then = compare(**pods.tables(job))["what_if"].set_index("what").loc["network_free"]
        # The gather of a slow pair takes four times as long as others, and all wait for it.
        own = pods.BASE[pods.REDUCE] + pods.BASE[pods.GATHER] * (4 if plant == "link" else 1)
        assert then["saved_ms"] == pytest.approx(own / 1e3, rel=0.12), plant
        assert then["how"] == "about"


def test_two_slow_ranks_are_both_found():
    tables = pods.tables(pods.simulate(16, 20, None, 2)[0])
    slow = tables["overlap"]["rank"].isin([4, 9])
    # These computed half a millisecond longer, and waited less.
    tables["overlap"].loc[slow, "exposed_communication_ms"] -= 0.5
    rows = compare(**tables)["stragglers"]
    assert sorted(rows[rows["straggler"]]["rank"]) == [4, 9]


def made(beyond: np.ndarray, step: float = 100.0) -> pd.DataFrame:
    """Stragglers of ranks that are behind by so many ms, by step and rank, in a job in which all
    wait for the last one.
    """
    steps, ranks = beyond.shape
    own = step + beyond
    whole = np.broadcast_to(own.max(axis=1, keepdims=True) + 5, own.shape)
    who = pd.DataFrame(
        {"host": [f"rank {r}" for r in range(ranks)], "rank": range(ranks), "device": 0}
    )
    silent = empty("steps.frame")
    times = OwnTime(
        who,
        np.array(range(steps), object),
        whole,
        own,
        whole - own,
        whole - own - 5,
        silent[["host", "start_ms"]].assign(number=0),
        "collectives",
    )
    return stragglers.stragglers(
        times,
        pd.DataFrame(),
        silent,
        pd.DataFrame(),
        empty("pods.clocks"),
        pd.DataFrame(),
        memory.none(),
    )


def test_pauses_of_any_rank_are_not_those_of_one():
    noise = np.random.default_rng(1).normal(0, 1, (20, 8))
    one, several = noise.copy(), noise.copy()
    one[5, 3] += 60
    several[[5, 11, 17], [3, 0, 6]] += 60
    rows = made(one)
    assert rows[rows["straggler"]][
        ["rank", "pattern", "pauses", "worst_step"]
    ].to_numpy().tolist() == [[3, "pauses", 1, 5]]
    # Three ranks that paused once each are none of them the straggler of the job; what they did is
    # still there to be read.
    rows = made(several)
    assert not rows["straggler"].any()
    assert sorted(rows[rows["pauses"] == 1]["rank"]) == [0, 3, 6]


def test_steps_that_resemble_their_neighbours_count_less():
    for seed in SEEDS:
        noise = np.random.default_rng(seed).normal(0, 3, (20, 8))
        for step in range(1, 20):
            noise[step] = 0.8 * noise[step - 1] + 0.6 * noise[step]
        assert not made(noise)["straggler"].any(), f"seed {seed}"
        noise[:, 5] += 30
        rows = made(noise)
        assert rows[rows["straggler"]]["rank"].tolist() == [5], f"seed {seed}"


def test_a_rank_that_is_a_little_slow_is_no_straggler():
    beyond = np.zeros((50, 8))
    beyond[:, 2] = 0.9
    rows = made(beyond)
    # Not by chance, but less than 1 % of the step.
    assert rows["chance"].min() < 1e-6
    assert not rows["straggler"].any()
    beyond[:, 2] = 1.5
    assert made(beyond)["straggler"].sum() == 1


def test_hosts_that_count_their_steps_from_elsewhere_are_compared():
    job, planted = pods.simulate(4, 20, "once", 3)
    tables = pods.tables(job)
    (slow,) = planted.ranks
    ahead = {f"rank {slow}": 7, f"rank {(slow + 1) % 4}": -100}
    for name in ("steps", "overlap", "each"):
        tables[name]["step"] += tables[name]["host"].map(ahead).fillna(0).astype("int64")
    rows = compare(**tables)["stragglers"]
    assert (rows["steps"] == 20).all()
    assert rows[rows["straggler"]][["rank", "worst_step", "cause"]].to_numpy().tolist() == [
        [slow, planted.step, "host_compute"]
    ]


def test_recordings_of_different_length_are_compared():
    tables = pods.tables(pods.simulate(4, 20, "kernel", 2)[0])
    short = {
        name: table[(table["host"] != "rank 3") | (table["step"] < 15)]
        for name, table in tables.items()
        if "step" in table
    }
    rows = compare(**tables | short)["stragglers"].set_index("host")
    assert rows["steps"].to_dict() == {"rank 0": 20, "rank 1": 20, "rank 2": 20, "rank 3": 15}
    assert rows["straggler"].to_dict() == {
        "rank 0": False,
        "rank 1": False,
        "rank 2": True,
        "rank 3": False,
    }


def test_a_collective_that_was_not_recorded_makes_nobody_slow():
    tables = pods.tables(pods.simulate(4, 20, None, 2)[0])
    each, overlap = tables["each"], tables["overlap"]
    lost = (each["rank"] == 1) & (each["step"] == 7) & (each["collective"] == "all_reduce")
    (time,) = each[lost]["time_us"]
    tables["each"] = each[~lost]
    overlap.loc[(overlap["rank"] == 1) & (overlap["step"] == 7), "exposed_communication_ms"] -= (
        time / 1e3
    )
    rows = compare(**tables)["stragglers"].set_index("rank")
    assert rows["steps"].to_dict() == {0: 20, 1: 19, 2: 20, 3: 20}
    assert (rows["pauses"] == 0).all()
    # Of two ranks that differ in a step, neither is known to be right.
    pair = {
        name: table[table["host"].isin(["rank 0", "rank 1"])]
        for name, table in tables.items()
        if "host" in table
    }
    assert compare(**tables | pair | {"hosts": ["rank 0", "rank 1"]})["stragglers"][
        "steps"
    ].tolist() == [19, 19]
    # Where all ranks have fewer in some steps, as when gradients are accumulated, these steps
    # count.
    tables["each"] = each[each["step"] % 4 == 3]
    assert (compare(**tables)["stragglers"]["steps"] == 20).all()


def test_waiting_that_is_not_known_is_not_zero():
    tables = pods.tables(pods.simulate(4, 20, "kernel", 2)[0])
    tables["each"] = tables["each"].assign(match=-1)
    frames = compare(**tables)
    rows, then = frames["stragglers"], frames["what_if"].set_index("what")
    # Who is slow is told without matching calls; what the others waited is not.
    assert rows["straggler"].tolist() == [True, False, False, False]
    assert rows["cost_ms"].isna().all()
    assert rows["last_in"].isna().all()
    assert np.isnan(then.loc["network_free", "step_time_ms"])
    assert "could not be matched" in then.loc["network_free", "reason"]
    assert not len(frames["collectives"])


def test_hosts_that_do_not_communicate_are_compared_by_whole_steps():
    tables = pods.tables(pods.simulate(4, 20, None, 2)[0])
    late = tables["steps"]["host"] == "rank 2"
    for name in ("steps", "pods"):
        tables[name].loc[late, ["step_time_ms", "input_ms"]] += 1.0
    silent = tables["overlap"].assign(communication_ms=0.0, exposed_communication_ms=0.0)
    frames = compare(**tables | {"overlap": silent, "each": tables["each"].iloc[:0]})
    rows = frames["stragglers"]
    assert set(rows["by"]) == {"steps"}
    assert rows[rows["straggler"]]["host"].tolist() == ["rank 2"]
    assert rows["cause"].iloc[0] == "input"
    assert rows[["cost_ms", "saved_ms", "step_time_ms"]].isna().all(axis=None)
    found = evidence.straggler(rows)
    assert found is not None
    assert not found.waited_for
    assert found.saved_ms == rows["excess_ms"].iloc[0] == pytest.approx(1, abs=0.1)
    said = findings._straggler(rows.iloc[0].to_dict(), several=False, measured=10.0)
    assert "whether the others wait for it is unknown" in said
    assert "delays the others" not in said
    then = frames["what_if"].set_index("what")
    assert then.loc["network_free", "reason"].startswith("No communication was recorded")
    # It may be that nobody waits for it.
    assert then.loc["slowest_host", ["which", "how"]].tolist() == ["rank 2", "at most"]
    assert then.loc["slowest_host", "saved_ms"] == pytest.approx(1, abs=0.1)
    apart = frames["clocks"]
    assert set(apart["by"]) == {"steps"}
    # Hosts that do not wait for each other need not begin a step at once.
    assert (apart["residual_ms"] >= tables["steps"]["step_time_ms"].median()).all()


def test_a_rank_that_never_communicates_is_not_compared():
    tables = pods.tables(pods.simulate(4, 20, None, 2)[0])
    alone = tables["overlap"]["rank"] == 3
    tables["overlap"].loc[alone, ["communication_ms", "exposed_communication_ms"]] = 0.0
    tables["each"] = tables["each"][tables["each"]["rank"] != 3]
    assert sorted(compare(**tables)["stragglers"]["rank"]) == [0, 1, 2]


def test_clocks_are_those_of_the_hosts():
    job, _ = pods.simulate(8, 20, None, 4)
    frame = compare(**pods.tables(job))["clocks"].set_index("host")
    # The true time at which all leave: the last collective of the first step.
    ends = [rank.did[0][pods.REDUCE][1] / 1e3 for rank in job]
    assert (frame["offset_ms"] - (np.array(ends) - ends[0])).abs().max() < 0.02
    assert (frame["residual_ms"] < 0.01).all()
    assert (frame["residual_ms"] > 0).all()
    assert frame["offset_ms"].abs().max() > 1000


def test_clocks_go_on_through_groups():
    tables = pods.tables(pods.simulate(4, 20, None, 4)[0])
    each = tables["each"]
    whole = compare(**tables)["clocks"]
    # Ranks 0 and 1, 1 and 2: the clock of 2 is known by that of 1. Nothing is known of 3.
    chain = each["collective"] == "all_gather"
    ring = (each["collective"] == "all_reduce") & each["rank"].isin([1, 2])
    first = chain & each["rank"].isin([0, 1])
    tables["each"] = each[first | ring]
    frame = compare(**tables)["clocks"]
    assert frame["by"].tolist() == ["collectives"] * 3 + [""]
    assert frame["offset_ms"].tolist()[:3] == pytest.approx(
        whole["offset_ms"].tolist()[:3], abs=0.02
    )
    assert frame.loc[3, ["offset_ms", "drift_ppm", "residual_ms"]].isna().all()


def test_nothing_is_claimed_below_the_residual_of_a_clock():
    tables = pods.tables(pods.simulate(4, 20, "kernel", 2)[0])
    assert compare(**tables)["stragglers"]["straggler"].any()
    # Ranks that leave a collective by up to 2 ms apart.
    each = tables["each"]
    tables["each"] = each.assign(
        start_ms=each["start_ms"] + np.random.default_rng(0).uniform(0, 2, len(each))
    )
    frames = compare(**tables)
    assert frames["clocks"]["offset_ms"].isna().all()
    assert not frames["stragglers"]["straggler"].any()


def test_of_several_groups_of_one_name_each_is_told():
    tables = pods.tables(pods.simulate(8, 20, "link", 1)[0])
    tables["each"] = tables["each"].assign(process_group="")
    groups = compare(**tables)["collectives"]
    assert sorted(groups["members"]) == ["0-1", "0-7", "2-3", "4-5", "6-7"]
    assert groups["slow"].sum() == 1


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("mesh_tp", "Collectives of **mesh_tp** (ranks 2-3) take longer"),
        ("", "Collectives among ranks **2-3** take longer"),
    ],
)
def test_a_slow_group_is_called_as_the_program_calls_it(description, said):
    tables, planted = tables_of("link", 1, 8, 0.02)
    each = tables["each"]
    pair = each["host"].isin([f"rank {number}" for number in planted.ranks]) & (
        each["group_size"] == 2
    )
    made = each.assign(description=np.where(pair, description, "default_pg"))
    frames = compare(**tables | {"each": made})
    lines = findings._what_if(frames["what_if"], frames["collectives"])
    members = "-".join(str(number) for number in planted.ranks)
    assert [line for line in lines if line.startswith(said.replace("2-3", members))], lines


LISTED = [
    {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cpu:gloo,cuda:nccl",
        "pg_size": 4,
        "ranks": [0, 1, 2, 3],
    },
    {
        "pg_name": "1",
        "pg_desc": "undefined",
        "backend_config": "cuda:nccl",
        "pg_size": 2,
        "ranks": [0, 1],
    },
    {
        "pg_name": "2",
        "pg_desc": "mesh_tp",
        "backend_config": "cuda:nccl",
        "pg_size": 2,
        "ranks": [2, 3],
    },
]


def full(folder, plant, part, everywhere, seed=0):
    """A job whose slow host, or all of them, spend a part of their host time on freeing device
    memory; the planted fault and the cause.
    """
    found, planted = pods.simulate(4, 20, plant, seed)
    for rank in found:
        file = pods.kineto(rank, 4)
        for did in rank.did:
            begin, end = did["host"]
            if everywhere or rank.number in planted.ranks:
                length = part * (100 if everywhere else end - begin)
                # Two threads at once: the time is that in which at least one call runs.
                file.call("cudaFree", begin + 1, round(length, 3))
                file.call("cudaMalloc", begin + 1, round(length / 2, 3), tid=99)
        (folder / f"rank{rank.number}.1700000000000.pt.trace.json").write_bytes(file.encode())
    return planted


@pytest.mark.parametrize(
    ("plant", "part", "everywhere", "expected"),
    [
        ("host", 0.7, False, "memory"),
        ("once", 0.7, False, "memory"),
        ("host", 0.2, False, "host_compute"),
        ("host", 0.7, True, "host_compute"),
        ("kernel", 0.7, False, "kernel"),
    ],
)
@pytest.mark.parametrize("executor", [None, 1])
def test_a_host_that_frees_memory_all_the_time_is_told_from_one_that_computes(
    tmp_path, plant, part, everywhere, expected, executor
):
    planted = full(tmp_path, plant, part, everywhere)
    rows = load(tmp_path, executor=executor).pods.stragglers
    late = rows[rows["straggler"]]
    assert late["rank"].tolist() == list(planted.ranks)
    assert late["cause"].tolist() == [expected], late["why"].tolist()
    if expected == "memory":
        assert (
            late["why"]
            .iloc[0]
            .startswith("Driver calls that allocate or free device memory, mostly cudaFree: ")
        )
        of_step = [
            did["host"][1] - did["host"][0]
            for did in pods.simulate(4, 20, plant, 0)[0][planted.ranks[0]].did
        ]
        time = np.mean(of_step) if plant == "host" else of_step[planted.step]
        assert late["cause_ms"].iloc[0] == pytest.approx(part * time / 1e3, rel=0.02)
        assert "2 calls" in late["why"].iloc[0]


def test_calls_for_memory_make_nobody_a_straggler():
    for seed in SEEDS:
        tables = pods.tables(pods.simulate(8, 20, None, seed)[0])
        first = tables["steps"][tables["steps"]["host"] == "rank 3"]
        calls = first[["host", "group"]].assign(name="cudaFree", calls=4, ms=1.5)
        rows = compare(**tables | {"memory_calls": calls})["stragglers"]
        assert not rows["straggler"].any(), f"seed {seed}"
        assert set(rows["cause"]) == {""}


@pytest.mark.parametrize("executor", [None, 1])
def test_groups_are_called_as_the_program_calls_them(tmp_path, executor):
    for rank in pods.simulate(4, 12, None, 1)[0]:
        file = pods.kineto(rank, 4)
        file.metadata["distributedInfo"]["pg_config"] = LISTED
        (tmp_path / f"rank{rank.number}.1700000000000.pt.trace.json").write_bytes(file.encode())
    groups = load(tmp_path, executor=executor).pods.collectives.set_index("members")
    # PyTorch calls "undefined" what the program has no word for.
    assert groups["description"].to_dict() == {"0-3": "default_pg", "0-1": "", "2-3": "mesh_tp"}
    assert groups["process_group"].to_dict() == {"0-3": "0", "0-1": "1", "2-3": "2"}


def described(file, text, listed):
    """A trace whose collectives of all ranks state what their group is called."""
    for event in file.events:
        if event.get("args", {}).get("Process Group Name") == "0":
            event["args"]["Process Group Description"] = text
    file.metadata["distributedInfo"]["pg_config"] = listed
    return file


@pytest.mark.parametrize(
    ("text", "listed", "expected"),
    [
        ("mesh_dp", LISTED, "mesh_dp"),
        ("undefined", LISTED, "default_pg"),
        ("undefined", [], ""),
        ("", [{"pg_name": "0", "backend_config": "cuda:nccl", "ranks": []}], ""),
        ("", {"0": "damaged"}, ""),
        ("", [7, None, {"pg_desc": 3, "pg_name": "0"}], ""),
    ],
)
def test_what_a_collective_states_of_its_group_comes_first(tmp_path, text, listed, expected):
    for rank in pods.simulate(2, 12, None, 1)[0]:
        data = described(pods.kineto(rank, 2), text, listed).encode()
        (tmp_path / f"rank{rank.number}.1700000000000.pt.trace.json").write_bytes(data)
    p = load(tmp_path)
    each = p.device_time.each_collective
    assert set(each.loc[each["process_group"] == "0", "description"]) == {expected}
    groups = p.pods.collectives
    assert groups.loc[groups["process_group"] == "0", "description"].tolist() == [expected]


def test_hosts_that_are_read_alone_give_what_they_give_together(tmp_path):
    pods.write(tmp_path / "job", 4, 12, "kernel", 1)
    together = load(tmp_path / "job").run
    want = together.pod_frames.frames
    alone = []
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        (file,) = (tmp_path / "job").glob(f"rank000{number}*")
        alone.append(load(file.rename(tmp_path / str(number) / file.name)).run)
    sums = pd.concat([run.pod_frames.sums for run in alone], ignore_index=True)
    pd.testing.assert_frame_equal(sums, together.pod_frames.sums, check_column_type=False)
    assert list(sums.columns) == COLUMNS
    assert not sums["name"].str.startswith("nccl").any()
    assert (
        sums.set_index(["host", "kind", "name"]).loc[("rank 1", "kernel", pods.GEMM), "occurrences"]
        == 12
    )
    # Which steps and collectives are the same is told by all hosts, the rest by each.
    steps, overlap, devices = (
        pd.concat([get(run) for run in alone], ignore_index=True)
        for get in (
            lambda run: run.steps,
            lambda run: run.device_time.frames["device_overlap"],
            lambda run: run.devices,
        )
    )
    each = together.device_time.each_collective()
    for name, frame in compare(
        together.hosts, steps, together.pods, overlap, each, sums, devices, memory.none()
    ).items():
        pd.testing.assert_frame_equal(
            frame, want[name], obj=name, rtol=1e-9, check_column_type=False
        )
    assert want["stragglers"]["straggler"].sum() == 1


def test_names_beyond_the_most_are_one_row(tmp_path):
    file = Kineto(distributedInfo={"rank": 0})
    file.step(0, 0, 10_000)
    for i in range(MOST + 20):
        file.kernel(f"k{i}", 10 + 10 * i, 1 + i / 1000)
    # Outside of the step.
    file.kernel("later", 20_000, 5000)
    run = profile(tmp_path, file).run
    sums = by_host(run.activity, run.trace.events.start, run._host_ops[0], run.steps)
    kernels = sums[sums["kind"] == "kernel"]
    assert len(kernels) == MOST + 1
    assert kernels["occurrences"].sum() == MOST + 20
    assert kernels[kernels["name"] == OTHERS]["occurrences"].tolist() == [20]
    steps = pd.DataFrame({"host": ["rank 0", "b"], "counted": True})
    other = pd.DataFrame(
        {"host": "b", "where": "device", "kind": "kernel", "name": ["new"], "self_ps": 10**12}
    )
    table = a_step(pd.concat([sums, other]), steps).loc[("device", "kernel")]
    # A name that is not among the most of a host took at most as long as the least of them; a host
    # with few names did not run it.
    assert table.loc["new", "rank 0"] == pytest.approx(kernels["self_ps"].iloc[MOST - 1] / 1e9)
    assert table.loc["k319", "b"] == 0


def test_medians_of_the_others():
    values = np.array(
        [[1.0, 2.0, 3.0, 10.0], [5.0, np.nan, 7.0, 9.0], [1.0, np.nan, np.nan, np.nan]]
    )
    wanted = [[3, 3, 2, 2], [8, np.nan, 7, 6], [np.nan] * 4]
    np.testing.assert_array_equal(of_others(values), wanted)
    assert deviation(values)[0, 0] == pytest.approx(1.4826 * 1)


def test_tails_of_the_binomial_distribution():
    assert tail(0, 5, 0.5) == 1
    assert tail(5, 5, 0.5) == pytest.approx(1 / 32)
    assert tail(2, 3, 0.25) == pytest.approx(3 * 0.25**2 * 0.75 + 0.25**3)
    assert tail(1, 1, 1.0) == 1


def test_a_single_host_has_nothing_to_be_compared_with():
    tables = pods.tables(pods.simulate(2, 5)[0][:1])
    assert own_time(tables["steps"], tables["pods"], tables["overlap"], tables["each"]) is None
    assert all(not len(frame) for frame in compare(**tables).values())


def gloo_ranks(folder, slow, seed=0, *, gloo=True):
    """Four ranks on the CPU, whose steps end together: a rank that is slow, or None.

    Each computes in an op, does something that is not recorded, and waits for a collective on
    another thread, which ends when all have come. Times are in µs.
    """
    random = np.random.default_rng(seed)
    files = [Kineto() for _ in range(4)]
    begin = 1_000.0
    for number in range(20):
        ops = random.normal(4_000, 300, 4)
        rest = np.abs(random.normal(1_000, 200, 4))
        if slow is not None:
            rest[slow] += 10_000
        end = begin + (ops + rest).max() + 500
        for rank, file in enumerate(files):
            file.step(number, begin, end - begin)
            file.op("aten::mm", begin + rest[rank], ops[rank])
            # It begins while the thread of the step is still in the op.
            came = begin + rest[rank] + ops[rank]
            if gloo:
                file.note("gloo:all_reduce", came - 500, end - came + 500, tid=7)
        begin = end + 10
    for rank, file in enumerate(files):
        (folder / f"rank{rank}.1700000000000.pt.trace.json").write_bytes(file.encode())
    return load(folder, executor=None)


def test_a_slow_rank_among_ranks_of_gloo_is_named(tmp_path):
    p = gloo_ranks(tmp_path, 2)
    rows = p.pods.stragglers
    assert set(rows["by"]) == {"collectives"}
    assert rows[rows["straggler"]]["rank"].tolist() == [2]
    late = rows.iloc[0]
    assert late["slowest_in"] == late["steps"] >= 18
    assert late["excess_ms"] == pytest.approx(10, abs=0.5)
    assert late["saved_ms"] == pytest.approx(10, abs=1)
    # 1 ms is what the others do beside ops; they wait in the rest, which is no cause.
    assert late["cause"] == "other"
    assert late["cause_ms"] == pytest.approx(10, abs=0.5)
    said = str(p.advice.set_index("rule").loc["straggler", "evidence"])
    assert "wait for **" in said
    assert late["host"] in said


@pytest.mark.parametrize("seed", range(5))
def test_equal_ranks_of_gloo_have_no_straggler(tmp_path, seed):
    rows = gloo_ranks(tmp_path, None, seed).pods.stragglers
    assert set(rows["by"]) == {"collectives"}
    assert not rows["straggler"].any()


def test_without_calls_of_gloo_steps_that_end_together_tell_nothing(tmp_path):
    rows = gloo_ranks(tmp_path, 2, gloo=False).pods.stragglers
    assert set(rows["by"]) == {"steps"}
    assert not rows["straggler"].any()
