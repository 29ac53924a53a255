"""PyTorch's ops apart by shapes, stacks and modules: against `key_averages()` of the same run, and
against sums made the plain way.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbprof.core.errors import NbprofError
from nbprof.profiles.load import load
from tests.parity.peer import same
from tests.support.kineto import Kineto, profile
from tests.support.profiles import real

DATA = Path(__file__).parents[1] / "data" / "torch"
NUMBERS = ("calls", "host_self_us", "host_total_us")
THEIRS = ("count", "self_us", "total_us")


@pytest.fixture(params=["2.13", "2.15"])
def folder(request) -> Path:
    """Recordings of a version of PyTorch."""
    return DATA / {"2.13": ""}.get(request.param, request.param)


def said(folder: Path, name: str) -> pd.DataFrame:
    """A stored table of `key_averages()`, without the row for what lies in no op."""
    table = pd.DataFrame(json.loads((folder / f"cpu_ops.{name}.json").read_text()))
    return table[table["key"] != "[memory]"]


def test_each_row_is_that_of_key_averages(folder):
    ours = load(folder / "cpu_ops.pt.trace.json.gz").torch_ops.frame.set_index("op").sort_index()
    theirs = said(folder, "key_averages").set_index("key").sort_index()
    assert ours.index.tolist() == theirs.index.tolist()
    assert (ours["kind"] == "annotation").tolist() == theirs["annotation"].tolist()
    for mine, other in zip(NUMBERS, THEIRS, strict=True):
        same(ours[mine], theirs[other].tolist(), mine, absolute=0.1)


def test_rows_by_shape_are_those_of_key_averages(folder):
    ours = load(folder / "cpu_ops.pt.trace.json.gz").torch_ops.by("shapes")
    ours["input_shapes"] = ours["input_shapes"].fillna("[]")
    theirs = said(folder, "by_shape").rename(columns={"key": "op", "shapes": "input_shapes"})
    assert theirs["input_shapes"].nunique() > 20
    keys = ["op", "input_shapes"]
    both = ours.merge(theirs, on=keys, how="outer", indicator=True)
    assert both["_merge"].eq("both").all(), both[both["_merge"] != "both"]
    for mine, other in zip(NUMBERS, THEIRS, strict=True):
        same(both[mine], both[other].tolist(), mine, absolute=0.1)


def test_modules_are_a_tree_in_the_order_of_their_calls():
    table = load(DATA / "modules.pt.trace.json.gz").torch_ops.modules
    inner = "Net_0/Sequential_0"
    assert table["module"].tolist() == [
        "Net_0", inner, f"{inner}/Conv1d_0", f"{inner}/ReLU_0", f"{inner}/Flatten_0", "Net_0/Linear_0", "Net_0/Linear_1",
    ]  # fmt: skip
    assert table["depth"].tolist() == [0, 1, 2, 2, 2, 1, 1]
    assert (table["calls"] == 2).all()
    assert table["device_total_us"].isna().all()
    host = table.set_index("module")
    children = host.loc[[inner, "Net_0/Linear_0", "Net_0/Linear_1"], "host_total_us"].sum()
    assert host.loc["Net_0", "host_self_us"] == pytest.approx(
        host.loc["Net_0", "host_total_us"] - children
    )
    # Each layer has a backward pass; that of a module includes those in it, and what its own
    # forward method computes (relu).
    assert (table["backward_host_us"] > 0).all()
    assert (
        host.loc["Net_0", "backward_host_us"]
        > host.loc[[inner, "Net_0/Linear_0", "Net_0/Linear_1"], "backward_host_us"].sum()
    )


def test_ops_of_the_backward_pass_stand_with_their_module():
    table = (
        load(DATA / "modules.pt.trace.json.gz").torch_ops.by("module").set_index(["op", "module"])
    )
    assert (
        table.loc[("aten::convolution_backward", "Net_0/Sequential_0/Conv1d_0"), "calls"].item()
        == 2
    )
    # Of the first layer the gradient of the weights and of the input, of the last one both too;
    # twice.
    of = table.loc["aten::mm"]["calls"]
    assert of.to_dict() == {"Net_0/Linear_0": 4, "Net_0/Linear_1": 4}
    assert "Net_0/Linear_1" in table.loc["AddmmBackward0"].index


def test_stacks_are_those_of_the_code():
    table = load(DATA / "modules.pt.trace.json.gz").torch_ops.by("stack")
    stack = table[table["op"] == "aten::addmm"]["call_stack"]
    assert len(stack) == 2
    for text in stack:
        lines = text.split("\n")
        assert lines[0] == "<built-in function linear>"
        assert lines[-1] == "<string>(17): <module>"
        assert [line for line in lines if line.startswith("nn.Module: ")][-1] == "nn.Module: Net_0"


@pytest.mark.parametrize("key", ["op", "shapes", "stack", "module"])
def test_each_way_has_all_of_the_time(key):
    p = load(DATA / "modules.pt.trace.json.gz")
    whole, apart = p.torch_ops.frame, p.torch_ops.by(key)
    assert apart["calls"].sum() == whole["calls"].sum()
    assert apart["host_self_us"].sum() == pytest.approx(whole["host_self_us"].sum())
    assert apart["host_self_fraction"].sum() == pytest.approx(1)


def gpu(tmp_path: Path):
    """Two layers: the inner op of each launches; then their backward ops, on a thread of their own,
    and an op that calls itself.
    """
    k = Kineto()
    k.step(1, 0, 1000)
    for i, name in enumerate(("Net_0", "Linear_0")):
        k.add(f"nn.Module: {name}", "python_function", 10 + i, 200 - 2 * i)
    k.add("train.py(7): step", "python_function", 5, 500)
    outer = k.op(
        "aten::linear",
        20,
        100,
        **{"Sequence number": 3, "Fwd thread id": 0, "Input Dims": [[2, 3], [3, 3]]},
    )
    assert outer
    inner = k.op(
        "aten::addmm",
        30,
        50,
        **{"Sequence number": 3, "Fwd thread id": 0, "Input Dims": [[3], [2, 3], [3, 3]]},
    )
    k.launched("gemm", 40, 60, 25, op=inner)
    k.op("LinearBackward0", 600, 90, tid=9, **{"Sequence number": 3, "Fwd thread id": 1})
    below = k.op("aten::mm", 610, 40, tid=9)
    k.launched("gemm_t", 620, 640, 70, op=below, tid=9)
    k.op("aten::to", 800, 60)
    k.op("aten::to", 810, 40)
    copy = k.op("aten::_to_copy", 820, 10)
    k.launched("copy_kernel", 822, 850, 5, op=copy)
    return profile(tmp_path, k)


def test_device_time_goes_to_the_op_that_launched_and_to_those_around(tmp_path):
    p = gpu(tmp_path)
    table = p.torch_ops.frame.set_index("op")
    assert table.index[0] == "aten::mm"
    assert table.loc["aten::addmm", ["device_self_us", "device_total_us"]].tolist() == [25, 25]
    assert table.loc["aten::linear", ["device_self_us", "device_total_us"]].tolist() == [0, 25]
    assert table.loc["LinearBackward0", ["device_self_us", "device_total_us"]].tolist() == [0, 70]
    assert table.loc["ProfilerStep#1", "device_total_us"] == 30
    assert table["device_self_us"].sum() == 100
    # The call that launches is taken off the op.
    assert table.loc["aten::addmm", "host_self_us"] == pytest.approx(
        50 - table.loc["cudaLaunchKernel", "host_avg_us"]
    )
    assert table.loc["cudaLaunchKernel", "kind"] == "runtime"


def test_an_op_that_only_calls_itself_counts_once(tmp_path):
    row = gpu(tmp_path).torch_ops.frame.set_index("op").loc["aten::to"]
    assert (row["calls"], row["host_total_us"], row["host_self_us"], row["device_total_us"]) == (
        1,
        60,
        50,
        5,
    )


def test_the_backward_pass_goes_to_the_innermost_op_of_its_number(tmp_path):
    p = gpu(tmp_path)
    by_module = p.torch_ops.by("module").set_index("op")["module"]
    assert by_module["aten::mm"] == by_module["aten::addmm"] == "Net_0/Linear_0"
    assert by_module["aten::_to_copy"] is None
    modules = p.torch_ops.modules.set_index("name")
    assert modules.loc["Linear_0", ["device_self_us", "backward_device_us"]].tolist() == [25, 70]
    assert modules.loc[
        "Net_0", ["device_self_us", "device_total_us", "backward_device_us"]
    ].tolist() == [0, 25, 70]
    stack = p.torch_ops.by("stack").set_index("op")["call_stack"]
    assert stack["aten::mm"] == "nn.Module: Linear_0\nnn.Module: Net_0\ntrain.py(7): step"


def test_without_stacks_and_shapes_the_key_is_none(tmp_path):
    k = Kineto()
    k.step(1, 0, 100)
    k.op("aten::mm", 10, 20)
    p = profile(tmp_path, k)
    for key, column in (("shapes", "input_shapes"), ("stack", "call_stack"), ("module", "module")):
        assert p.torch_ops.by(key)[column].tolist() == [None, None]
    assert p.torch_ops.modules.empty
    with pytest.raises(
        NbprofError, match=r"by 'op', 'shapes', 'stack', 'module', 'source', not by 'file'"
    ):
        p.torch_ops.by("file")


def test_other_frameworks_have_none():
    p = load(DATA.parent / "xspace" / "jax_cpu.xplane.pb")
    assert p.torch_ops.frame.empty
    assert p.torch_ops.modules.empty


@pytest.mark.parametrize(
    "name",
    [
        "kineto/mi300-ddp-resnet18/train_resnet18.json.gz",
        "kineto/h100-bert/h100_bert.pt.trace.json.gz",
    ],
)
def test_modules_of_real_profiles_add_up(name):
    p = load(real(name))
    table = p.torch_ops.modules
    top = table[table["depth"] == 0]
    assert top["device_total_us"].sum() == pytest.approx(table["device_self_us"].sum())
    ops = p.torch_ops.by("module")
    inside = ops[ops["module"].notna()]
    assert np.isclose(
        inside["device_self_us"].sum(),
        top["device_total_us"].sum() + top["backward_device_us"].sum(),
    )
    assert ops["device_self_us"].sum() == pytest.approx(p.torch_ops.frame["device_self_us"].sum())
