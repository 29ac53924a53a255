"""Which op of the forward pass one of the backward pass belongs to."""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.analysis.ops import torch_ops
from nbprof.dialects.gpu.ops import _last_before
from tests.support.kineto import BACKWARD, Kineto, load, profile
from tests.support.profiles import real


def test_the_last_of_the_same_key_that_is_no_later() -> None:
    keys, times = np.array([0, 0, 0, 2, 2]), np.array([5, 10, 10, 0, 7])
    wanted, before = np.array([0, 0, 0, 0, 1, 2, 2, 3]), np.array([4, 5, 10, 99, 50, 6, 7, 1])
    assert _last_before(keys, times, wanted, before).tolist() == [-1, 0, 2, 2, -1, 3, 4, -1]


def test_keys_and_times_of_any_size() -> None:
    rng = np.random.default_rng(1)
    keys = np.sort(rng.integers(0, 5, 60))
    times = rng.integers(0, 2**62, 60)
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    wanted, before = (
        rng.integers(0, 7, 80),
        np.concatenate([rng.integers(0, 2**62, 60), times[:20]]),
    )
    expected = [
        max((i for i in range(60) if keys[i] == w and times[i] <= b), default=-1)
        for w, b in zip(wanted.tolist(), before.tolist(), strict=True)
    ]
    assert _last_before(keys, times, wanted, before).tolist() == expected


def test_an_op_with_a_number_of_its_own_within_one_of_the_backward_pass(tmp_path) -> None:
    file = Kineto()
    for i, name in enumerate(("aten::a", "aten::b")):
        file.op(name, 10 * i, 5, **{"Sequence number": i, "Fwd thread id": 0})
    file.op("BackwardA", 100, 50, tid=BACKWARD, **{"Sequence number": 0, "Fwd thread id": 1})
    file.op("aten::inner", 105, 5, tid=BACKWARD)
    file.op("BackwardB", 120, 20, tid=BACKWARD, **{"Sequence number": 1, "Fwd thread id": 1})
    activity = profile(tmp_path, file).run.activity
    table = activity.torch_ops.frame()
    names = activity.ops.values[table["op"]]
    forward = {
        str(name): str(names[at]) if at >= 0 else ""
        for name, at in zip(names, table["forward"].tolist(), strict=True)
    }
    assert forward == {
        "aten::a": "",
        "aten::b": "",
        "BackwardA": "aten::a",
        "aten::inner": "aten::a",
        "BackwardB": "aten::b",
    }


def test_runs_of_an_op_in_itself_are_one_where_there_is_one(tmp_path) -> None:
    file = Kineto()
    file.op("aten::one", 0, 100)
    file.op("aten::one", 10, 20)
    file.op("aten::two", 200, 100)
    file.op("aten::two", 210, 20)
    file.op("aten::two", 240, 30)
    rows = torch_ops.frame(profile(tmp_path, file).run.activity).set_index("op")
    assert rows["calls"].to_dict() == {"aten::one": 1, "aten::two": 3}
    assert rows["host_self_us"].to_dict() == {"aten::one": 100, "aten::two": 100}
    # The inner runs count in the total of those around, and in their own.
    assert rows["host_total_us"].to_dict() == {"aten::one": 100, "aten::two": 150}


def test_only_the_runs_of_an_op_outside_of_compiled_regions_are_eager(tmp_path):
    k = Kineto()
    k.step(0, 0, 200)
    k.op("Torch-Compiled Region: 0/0", 10, 90)
    k.launched("gemm", 22, 30, 90, op=k.op("aten::mm", 20, 40))
    k.launched("gemm", 112, 130, 10, op=k.op("aten::mm", 110, 10))
    p = profile(tmp_path, k)
    assert p.overview["eager_device_percent"] == pytest.approx(10.0)
    assert p.overview["eager_host_percent"] == pytest.approx(10.0)
    # Its row says of the op that some of it was.
    assert p.ops.frame.set_index(["where", "op"]).loc[("device", "aten::mm"), "eager"]


def test_a_real_compiled_model_is_not_called_eager():
    p = load(real("findings/D6-compiled-called-eager/profile_trace_rank_0.json.gz"))
    assert p.overview["eager_device_percent"] == pytest.approx(11.9, abs=0.1)
    assert p.overview["eager_host_percent"] == pytest.approx(11.6, abs=0.1)
