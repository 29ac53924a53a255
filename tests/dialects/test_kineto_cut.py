"""A last step that the recording broke off: told by the ops that it lacks, on the CPU too, and left
out of averages.
"""

from __future__ import annotations

import pytest

from tests.support.kineto import Kineto, profile

TRAINING = [
    "aten::conv2d",
    "aten::relu",
    "aten::linear",
    "aten::mse_loss",
    "Backward",
    "Optimizer.step#SGD.step",
]


def loop(*steps: list[str], rank: int | None = None) -> Kineto:
    """Steps of 100 µs; the last ends 10 µs behind its last op."""
    k = (
        Kineto()
        if rank is None
        else Kineto(distributedInfo={"backend": "gloo", "rank": rank, "world_size": 2})
    )
    for i, names in enumerate(steps):
        begin = 100.0 * i
        k.step(i, begin, 100 if i < len(steps) - 1 else 10 + 15 * len(names))
        for j, name in enumerate(names):
            k.op(name, begin + 15 * j, 10)
    return k


def cut(p) -> list[bool]:
    return p.run.steps["cut"].tolist()


@pytest.mark.parametrize("ops", [1, 3, 5])
def test_a_step_that_broke_off_on_the_cpu_is_left_out(tmp_path, ops):
    p = profile(tmp_path, loop(TRAINING, TRAINING, TRAINING, TRAINING[:ops]))
    assert cut(p) == [False, False, False, True]
    mean = p.steps.summary.set_index("category").loc["step_time", "mean_ms"]
    assert mean == pytest.approx(0.1)
    what = (
        f"it ran the first {ops} of the previous step's 6 ops"
        if ops > 1
        else "it ran only the first op of the previous step"
    )
    assert (
        f"The last step was cut off by the end of the recording ({what}): shown, but not averaged."
        in str(p.receipt)
    )


@pytest.mark.parametrize(("ops", "missing"), [(4, True), (5, False)])
def test_of_one_step_before_it_a_fifth_must_be_missing(tmp_path, ops, missing):
    assert cut(profile(tmp_path, loop(TRAINING, TRAINING[:ops]))) == [False, missing]


def test_of_several_ranks_the_one_is_named(tmp_path):
    p = profile(
        tmp_path, loop(*[TRAINING] * 4, rank=0), loop(*[TRAINING] * 3, TRAINING[:4], rank=1)
    )
    steps = p.run.steps
    assert steps.loc[steps["cut"], ["host", "step"]].values.tolist() == [["rank 1", 3]]
    assert (
        "The last step of rank 1 was cut off by the end of the recording (it ran the first 4 of the previous step's 6 ops)"
        in str(p.receipt)
    )
    assert (
        p.payload()["steps"]["left_out"]
        == "Averages exclude step 3 of rank 1 (cut off by the end of the recording)."
    )
    assert p.steps.summary.set_index("category").loc["step_time", "max_ms"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "steps",
    [
        [TRAINING] * 4,
        # A check behind every second step: the last step is as the one before that.
        [TRAINING, [*TRAINING, "aten::eq"], TRAINING, [*TRAINING, "aten::eq"], TRAINING],
        # Other ops are another step, not less of the same.
        [TRAINING, TRAINING, TRAINING, ["aten::relu", "aten::linear"]],
        # One step before it may have had a check.
        [[*TRAINING, "aten::eq"], TRAINING],
        [TRAINING],
    ],
)
def test_whole_steps_are_counted(tmp_path, steps):
    assert not any(cut(profile(tmp_path, loop(*steps))))


def test_what_lies_inside_an_op_does_not_count(tmp_path):
    k = Kineto()
    for i in range(3):
        k.step(i, 100 * i, 100)
        k.op("outer", 100 * i + 5, 80)
        for j in range(4 if i < 2 else 2):
            k.op("inner", 100 * i + 10 + 10 * j, 5)
    assert not any(cut(profile(tmp_path, k)))
