"""Memory by role in traces of a GPU, whose allocator states its totals."""

from __future__ import annotations

import pytest

import nbprof
from nbprof.analysis.memory.roles import column
from nbprof.core.memory_roles import IN_USE, TENSORS
from tests.support.kineto import Kineto, profile
from tests.support.profiles import real

KIB = 1024
EARLIER = 100 * KIB
RESERVED = 1000 * KIB
STEPS = 3
WEIGHT, WORKSPACE, STATE = 1 << 20, 2 << 20, 3 << 20
ACTIVATION, SCRATCH, GRADIENT, INNER = (16 + i << 20 for i in range(4))


class Training(Kineto):
    """Three steps whose blocks are known. `workspace` is never freed, as those of cuBLAS."""

    def __init__(self, **metadata):
        super().__init__(**metadata)
        self.total = EARLIER
        for step in range(STEPS):
            self.one(step, 1000.0 * step)

    def block(self, ts, size, address):
        self.total += size
        self.memory(ts, size, address, self.total, RESERVED, device=0)

    def one(self, step, at):
        self.step(step, at, 1000)
        self.op("aten::addmm", at + 10, 100, **{"Sequence number": step, "Fwd thread id": 0})
        if not step:
            self.block(at + 15, 64 * KIB, WORKSPACE)
        self.block(at + 20, 8 * KIB, SCRATCH)
        self.block(at + 30, 16 * KIB, ACTIVATION)
        self.block(at + 40, -8 * KIB, SCRATCH)
        self.op(
            "autograd::engine::evaluate_function: AddmmBackward0",
            at + 200,
            200,
            **{"Sequence number": step, "Fwd thread id": 1},
        )
        self.block(at + 210, 4 * KIB, GRADIENT)
        self.block(at + 220, 2 * KIB, INNER)
        self.block(at + 230, -2 * KIB, INNER)
        self.block(at + 240, -16 * KIB, ACTIVATION)
        self.note("Optimizer.step#SGD.step", at + 500, 100)
        if not step:
            self.block(at + 510, 32 * KIB, STATE)
        if step < STEPS - 1:
            self.note("Optimizer.zero_grad#SGD.zero_grad", at + 700, 50)
            self.block(at + 710, -4 * KIB, GRADIENT)


def moments(p):
    """Bytes by role after each event."""
    rows = p.memory.roles_over_time
    used = [column(role) for role in IN_USE]
    assert rows[used].sum(axis=1).tolist() == p.memory.timeline["in_use_bytes"].tolist()
    assert (rows[used] >= 0).all(axis=None)
    return rows


def test_roles_by_the_ops_around(tmp_path):
    p = profile(tmp_path, Training())
    rows = moments(p)
    assert rows["optimizer_state_bytes"].iloc[-1] == 32 * KIB
    assert rows["activations_bytes"].max() == 16 * KIB
    assert rows["temporaries_bytes"].max() == 8 * KIB
    # That of the last step, which nothing frees, is as those before.
    assert rows["gradients_bytes"].iloc[-1] == 4 * KIB
    # The workspace has an op with a gradient, but no step frees it, and none makes another.
    assert rows["unknown_bytes"].iloc[-1] == EARLIER + 64 * KIB
    assert rows["reserved_not_allocated_bytes"].iloc[-1] == RESERVED - EARLIER - 100 * KIB
    peak = p.memory.roles.set_index("role")["bytes"]
    assert peak.sum() == RESERVED
    assert peak["reserved, not allocated"] == RESERVED - p.memory.summary["peak_bytes"].iloc[0]
    assert p.memory.unfreed[["role", "steps", "bytes"]].to_numpy().tolist() == [
        ["unknown", 1, 64 * KIB],
        ["optimizer state", 1, 32 * KIB],
    ]


def known(*tensors, gradients=(), sets=()):
    return {TENSORS: {"tensors": [*tensors], "gradients": [*gradients], "sets": [*sets]}}


def test_tensors_that_were_there_before_are_part_of_what_was_in_use(tmp_path):
    stated = known(
        ["parameters", "cuda", 0, WEIGHT, 60 * KIB],
        ["buffers", "cuda", 1, WEIGHT, 60 * KIB],
        ["optimizer state", "cuda", 0, WORKSPACE, 64 * KIB],
    )
    rows = moments(profile(tmp_path, Training(**stated)))
    assert set(rows["parameters_bytes"]) == {60 * KIB}
    # Of another device.
    assert rows["buffers_bytes"].max() == 0
    # What the program says counts more than the ops around.
    assert rows["optimizer_state_bytes"].iloc[-1] == 96 * KIB
    assert rows["unknown_bytes"].iloc[-1] == EARLIER - 60 * KIB


def test_tensors_that_the_allocator_does_not_count_have_no_role(tmp_path):
    stated = known(["parameters", "cuda", 0, WEIGHT, EARLIER + 1])
    rows = moments(profile(tmp_path, Training(**stated)))
    assert rows["parameters_bytes"].max() == 0
    assert rows["activations_bytes"].max() == 16 * KIB


@pytest.mark.parametrize(
    "stated",
    [
        7,
        [],
        {"tensors": 3, "gradients": "x", "sets": None},
        {"tensors": [None, [], ["parameters"], ["nothing", "cuda", 0, 1, 2], [[], {}, 0, 1, 2]]},
        {"tensors": [["parameters", "cuda", 0, "1", 2], ["parameters", "cuda", 0, 1 << 70, 2]]},
        {"tensors": [["parameters", [], 0, 1, 2], ["parameters", "cuda", -1, -1, -1]]},
        {"gradients": [[0, 9], [None, 0], [1 << 80, 0], 5], "sets": [[["cuda", 0, 1]], 4, [None]]},
    ],
)
def test_statements_that_are_damaged_say_nothing(tmp_path, stated):
    plain = moments(profile(tmp_path, Training()))
    folder = tmp_path / "damaged"
    folder.mkdir()
    damaged = profile(folder, Training(**{TENSORS: stated}))
    assert moments(damaged).equals(plain)


def test_a_closure_of_an_optimizer_makes_no_state(tmp_path):
    """As in L-BFGS, whose step runs forward and backward passes."""
    k = Kineto()
    total = 0
    for step in range(3):
        at = 1000.0 * step
        k.step(step, at, 1000)
        k.note("Optimizer.step#LBFGS.step", at + 10, 900)
        k.op("aten::addmm", at + 20, 100, **{"Sequence number": step, "Fwd thread id": 0})
        total += KIB
        k.memory(at + 30, KIB, (1 + step) << 20, total, 0, device=0)
        k.op(
            "autograd::engine::evaluate_function: AddmmBackward0",
            at + 200,
            200,
            **{"Sequence number": step, "Fwd thread id": 1},
        )
    p = profile(tmp_path, k)
    assert p.memory.roles["role"].tolist() == ["activations"]


def test_roles_of_a_real_gpu():
    rows = nbprof.load(real("kineto/h100-bert")).memory
    for memory_id, peak in rows.roles.groupby("memory_id"):
        (summary,) = rows.summary[rows.summary["memory_id"] == memory_id].to_dict("records")
        in_use = peak[peak["role"].isin(IN_USE)]["bytes"].sum()
        assert in_use == summary["peak_bytes"]


def test_other_allocators_have_none(tmp_path):
    p = profile(tmp_path, Training())
    assert p.memory.roles["memory_id"].unique().tolist() == ["GPU 0"]
    bare = Kineto()
    bare.step(0, 0.0, 100)
    bare.memory(10.0, KIB, WEIGHT, KIB, 0, device=0)
    folder = tmp_path / "bare"
    folder.mkdir()
    p = profile(folder, bare)
    assert len(p.memory.timeline) == 1
    assert p.memory.roles.empty
    assert p.memory.roles_over_time.empty
    assert p.memory.unfreed.empty
