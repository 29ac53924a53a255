"""A first collective that waits seconds for ranks whose profilers started later is warm-up: in no
figure, and said.
"""

from __future__ import annotations

import pytest

from tests.support.kineto import Kineto, profile

STEPS, STEP_US, BEGIN, REDUCE_US = 6, 2_000.0, 500.0, 300.0


def rank(
    number: int, first_us: float = REDUCE_US, *, steps: int = STEPS, later: float = REDUCE_US
) -> Kineto:
    """Steps of a matrix product and a reduction over ranks on a stream of its own; the first
    reduction may take longer.
    """
    k = Kineto(distributedInfo={"backend": "nccl", "rank": number, "world_size": 2})
    begin = BEGIN + 10 * number
    for step in range(steps):
        reduce_us = first_us if step == 0 else later if step == 3 else REDUCE_US
        length = STEP_US + reduce_us - REDUCE_US
        k.step(step, begin, length)
        k.launched("gemm", begin + 10, begin + 30, 1_000, k.op("aten::mm", begin + 8, 12))
        op = k.op("c10d::allreduce_", begin + 30, 12)
        stated = {
            "Collective name": "allreduce",
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "Group size": 2,
            "dtype": "Float",
            "Seq": step,
        }
        k.launched(
            "ncclDevKernel_AllReduce_Sum_f32",
            begin + 32,
            begin + 1_040,
            reduce_us,
            op,
            stream=20,
            **stated,
        )
        begin += length
    return k


def top_op(p) -> str:
    return str(p.overview["top_ops"]["op"].iloc[0])


def test_the_wait_is_in_no_figure(tmp_path):
    p = profile(tmp_path, rank(0, 2_900_000.0), rank(1))
    steps = p.steps.frame
    assert steps["warmup"].tolist() == [True, True] + [False] * 10
    assert p.overview["step_time_ms"] == pytest.approx(2.0)
    assert top_op(p) == "aten::mm"
    by_name = p.kernels.by_name().set_index("kernel")
    assert by_name["total_us"].sum() == pytest.approx(2 * STEPS * (1_000 + REDUCE_US))
    stragglers = p.device_time.stragglers
    assert not stragglers["straggler"].any()
    said = (
        "The first collective (ncclDevKernel_AllReduce_Sum_f32; 1 on rank 0, GPU 0, stream 20) waited 2,899.70 ms at the start of the "
        "recording for ranks that came later"
    )
    assert said in str(p.receipt)
    assert "2,899.70 ms are left out of all figures" in str(p.receipt)


def test_few_steps_do_not_have_it_in_their_average(tmp_path):
    p = profile(tmp_path, rank(0, 2_900_000.0, steps=4))
    assert p.steps.frame["warmup"].tolist() == [True, False, False, False]
    assert p.overview["step_time_ms"] == pytest.approx(2.0)
    assert top_op(p) == "aten::mm"


@pytest.mark.parametrize(
    "given", [{"first_us": 50_000.0}, {"first_us": 3 * REDUCE_US}, {"later": 2_900_000.0}]
)
def test_other_waits_are_the_program_s(tmp_path, given):
    p = profile(tmp_path, rank(0, **given))
    longest = max(given.values())
    total = p.kernels.by_name().set_index("kernel")["total_us"]
    assert total["ncclDevKernel_AllReduce_Sum_f32"] == pytest.approx(
        longest + (STEPS - 1) * REDUCE_US
    )
    assert "first_collectives" not in set(p.receipt.notes["key"])


def test_a_program_that_always_waits_so_long_is_left_as_it_is(tmp_path):
    k = rank(0)
    for event in k.events:
        if event["name"].startswith("nccl"):
            event["dur"] = 1_900_000.0
            event["ts"] += 2_000_000.0 * event["args"]["Seq"]
    p = profile(tmp_path, k)
    assert "first_collectives" not in set(p.receipt.notes["key"])
