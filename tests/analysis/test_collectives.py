"""Collectives of several ranks: what they took themselves, who waited for whom, and what cannot be
matched.
"""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.analysis.device_time.collectives import bus_factor, kind_of
from tests.support.kineto import load, profile
from tests.support.profiles import real
from tests.support.ranks import job

# Rank 1 is late by 300 µs in the first collective of step 0, rank 0 by 50 in the second; in step 1
# rank 2 by 1,000.
ARRIVALS = (
    ((1000, 2050), (1000,)),
    ((1300, 2000), (1000,)),
    ((1000, 2000), (2000,)),
)


@pytest.mark.parametrize("sequence", [True, False])
def test_waiting_is_what_goes_beyond_the_shortest(tmp_path, sequence):
    p = profile(tmp_path, *job(ARRIVALS, sequence=sequence))
    each = p.device_time.each_collective
    assert len(each) == 9
    assert each["real_us"].tolist() == pytest.approx([100] * 9)
    waits = each.pivot_table(index="rank", columns="match", values="wait_us").to_numpy()
    assert sorted(waits.sum(axis=0)) == pytest.approx([100, 600, 2000])
    by_rank = each.groupby("rank")["wait_us"].sum()
    assert by_rank.to_dict() == pytest.approx({0: 300 + 0 + 1000, 1: 0 + 50 + 1000, 2: 300 + 50})
    assert each[each["last"]].groupby("rank").size().to_dict() == {0: 1, 1: 1, 2: 1}


def test_clocks_that_differ_change_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    same = profile(tmp_path / "a", *job(ARRIVALS)).device_time.collectives
    apart = profile(
        tmp_path / "b", *job(ARRIVALS, skew=(0, 5_000_000, -300_000 + 1e6))
    ).device_time.collectives
    for column in ("wait_ms", "real_us", "bus_gb_per_second"):
        assert apart[column].tolist() == pytest.approx(same[column].tolist())


def test_bandwidth_is_that_of_the_tests_of_nccl(tmp_path):
    (row,) = profile(tmp_path, *job(ARRIVALS)).device_time.collectives.to_dict("records")
    size = 2 * (1 << 20)
    assert (
        row["collective"],
        row["bytes"],
        row["group_size"],
        row["collectives"],
        row["calls"],
    ) == ("all_reduce", size, 3, 3, 9)
    assert row["algorithm_gb_per_second"] == pytest.approx(size / 100e-6 / 1e9)
    assert row["bus_gb_per_second"] == pytest.approx(size / 100e-6 / 1e9 * 2 * 2 / 3)
    assert row["wait_percent"] == pytest.approx(100 * 2700 / (2700 + 900))


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 1.75),
        ("all_gather", 0.875),
        ("reduce_scatter", 0.875),
        ("all_to_all", 0.875),
        ("broadcast", 1),
        ("reduce", 1),
    ],
)
def test_bus_factors_of_eight_ranks(kind, factor):
    assert bus_factor(kind, np.array([8.0, np.nan])).tolist() == pytest.approx(
        [factor, np.nan], nan_ok=True
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "all_reduce",
        ),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "sendrecv"),
        ("_allgather_base", "all_gather"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("%all-reduce.3 = f32[8] all-reduce(f32[8] %x)", "all_reduce"),
        ("mine", "mine"),
    ],
)
def test_names_of_all_recorders_are_one(name, kind):
    assert kind_of(name) == kind


def test_who_is_waited_for_in_modern_kernels_is_found(tmp_path):
    # HTA looks for names that begin with ncclKernel, which NCCL stopped using in 2.19.
    rows = profile(tmp_path, *job(ARRIVALS)).device_time.stragglers
    assert rows[rows["step"].isna() & rows["waited_for"]]["rank"].tolist() == [2]
    assert not rows["straggler"].any(), "in two steps anyone may be the last"
    by_step = rows[rows["step"].notna() & rows["waited_for"]]
    assert dict(zip(by_step["step"], by_step["rank"], strict=True)) == {0: 1, 1: 2}
    assert rows[rows["step"].notna()].set_index(["step", "rank"])[
        "cost_ms"
    ].to_dict() == pytest.approx(
        {(0, 0): 0.05, (0, 1): 0.3, (0, 2): 0, (1, 0): 0, (1, 1): 0, (1, 2): 1.0}
    )


def test_one_rank_alone_tells_no_waiting_and_no_bandwidth(tmp_path):
    p = profile(tmp_path, job(ARRIVALS)[0])
    (row,) = p.device_time.collectives.to_dict("records")
    assert row["calls"] == 3
    assert np.isnan(row["wait_ms"])
    assert np.isnan(row["algorithm_gb_per_second"])
    assert not len(p.device_time.stragglers)


def test_ranks_of_different_length_are_compared_where_they_can_be(tmp_path):
    short = (ARRIVALS[0], ARRIVALS[1], (ARRIVALS[2][0],))
    p = profile(tmp_path, *job(short, sequence=False))
    each = p.device_time.each_collective
    # The steps that all have are matched among all, the others among those that have them.
    assert each.groupby("match")["rank"].size().to_dict() == {0: 3, 1: 3, 2: 2}
    assert "different_step_counts" in set(p.receipt.notes["key"])
    assert "from 1 (rank 2) to 2" in str(p.receipt)


def test_a_step_with_different_numbers_of_collectives_is_not_guessed(tmp_path):
    uneven = (((1000, 2000),), ((1000,),))
    p = profile(tmp_path, *job(uneven, sequence=False))
    assert (p.device_time.each_collective["match"] == -1).all()
    assert "unmatched_collectives" in set(p.receipt.notes["key"])
    (tmp_path / "numbered").mkdir()
    numbered = profile(tmp_path / "numbered", *job(uneven)).device_time.each_collective
    # Where they are numbered the first one is known to be the same.
    assert numbered["match"].tolist() == [0, -1, 0]


def test_two_files_of_one_rank_are_said_and_not_compared(tmp_path):
    files = job(ARRIVALS[:2])
    files[1].metadata["distributedInfo"]["rank"] = 0
    p = profile(tmp_path, *files)
    assert (p.device_time.each_collective["match"] == -1).all()
    assert p.device_time.frame["rank"].dropna().unique().tolist() == [0]
    assert "Several files have rank 0" in str(p.receipt)
    assert "repeated_ranks" in set(p.receipt.notes["key"])


def test_recorded_ranks_of_a_large_job():
    paths = [real(f"kineto/a100-nccl-ranks/sampled_rank-{rank}.json.gz") for rank in (0, 1)]
    each = load(*paths).device_time.each_collective
    assert each.groupby("match").size().tolist() == [2] * 10
    by = each.set_index(["match", "rank"])["time_us"]
    for match in range(10):
        ours = each[each["match"] == match].set_index("rank")
        assert ours["real_us"].tolist() == [min(by[match, 0], by[match, 1])] * 2
        assert ours["wait_us"].tolist() == [
            by[match, r] - min(by[match, 0], by[match, 1]) for r in (0, 1)
        ]
