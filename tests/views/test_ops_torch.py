"""PyTorch's ops by module and by shapes, as the view Ops has them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.run.run import Run
from nbprof.schema import frames
from nbprof.tools import dashboard as payload
from nbprof.tools.ops import payload as ops
from nbprof.tools.torch_ops import ops_torch
from tests.support.profiles import real
from tests.support.replaced import check
from tests.views import fake

TREE = [
    # name, depth, device, backward, host, backward host
    ("Net_0", 0, 100.0, 200.0, 50.0, 20.0),
    ("Block_0", 1, 60.0, 120.0, 30.0, 12.0),
    ("Conv_0", 2, 50.0, 110.0, 20.0, 8.0),
    ("ReLU_0", 2, 10.0, 10.0, 10.0, 4.0),
    ("Block_1", 1, 40.0, 80.0, 20.0, 8.0),
    ("Conv_1", 2, 39.0, 79.0, 19.0, 7.0),
    ("ReLU_1", 2, 1.0, 1.0, 1.0, 1.0),
    ("Loss_0", 0, 4.0, 6.0, 5.0, 1.0),
]


def modules(*, device: bool = True) -> pd.DataFrame:
    frame = pd.DataFrame(
        TREE,
        columns=[
            "name",
            "depth",
            "device_total_us",
            "backward_device_us",
            "host_total_us",
            "backward_host_us",
        ],
    )
    path, paths = [], []
    for name, depth, *_ in TREE:
        path = [*path[:depth], name]
        paths.append("/".join(path))
    frame = frame.assign(
        module=paths,
        calls=1,
        host_self_us=frame["host_total_us"],
        device_self_us=frame["device_total_us"],
    )
    frame = frame[frames.names("torch_ops.modules")]
    if not device:
        frame[["device_total_us", "backward_device_us", "device_self_us"]] = np.nan
    return frame


def shapes(rows: int) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "op": [f"aten::op{i}" for i in range(rows)],
            "kind": "op",
            "calls": 2,
            "host_self_us": np.arange(rows, 0, -1.0),
            "host_total_us": np.arange(rows, 0, -1.0) * 2,
            "device_self_us": np.arange(rows, 0, -1.0) * 10,
            "device_total_us": np.arange(rows, 0, -1.0) * 10,
            "input_shapes": [None if i == 1 else f"[[{i}, 4]]" for i in range(rows)],
        }
    )
    return frame.reindex(columns=[*frames.names("torch_ops.frame"), "input_shapes"])


def shaped(frame: pd.DataFrame) -> Run:
    """A run with these ops by their shapes."""
    run = fake.run()
    check("torch_ops_by_shapes", frame, run.torch_ops_by("shapes"))
    run.memo.values["torch_ops_by_shapes"] = frame
    return run


def test_the_modules_are_a_tree_with_their_part_of_all_time():
    part = ops_torch.modules(fake.run(torch_modules=modules()))
    assert part["data"]["_depth"].tolist() == [0, 1, 2, 2, 1, 2, 2, 0]
    assert part["data"]["percent"] == pytest.approx(
        100 * np.array([300, 180, 160, 20, 120, 118, 2, 10]) / 310
    )
    assert [head["key"] for head in part["columns"]] == [
        *(
            "name",
            "percent",
            "calls",
            "device_total_us",
            "backward_device_us",
            "host_total_us",
            "backward_host_us",
            "module",
        )
    ]
    assert all(head["help"] for head in part["columns"])


def test_without_a_device_the_time_is_the_hosts():
    part = ops_torch.modules(fake.run(torch_modules=modules(device=False)))
    assert part["data"]["percent"] == pytest.approx(
        100 * np.array([70, 42, 28, 14, 28, 26, 2, 6]) / 76
    )
    assert [head["key"] for head in part["columns"]] == [
        "name",
        "percent",
        "calls",
        "host_total_us",
        "backward_host_us",
        "module",
    ]
    assert part["columns"][1]["label"] == "Host %"


@pytest.mark.parametrize("most", range(1, 9))
def test_modules_that_are_left_out_are_in_sums_below_those_around_them(most):
    whole = modules()
    kept = ops_torch.largest_modules(whole, most)
    depth = kept["depth"].tolist()
    for name in ("device_total_us", "backward_device_us", "host_total_us", "backward_host_us"):
        # The outermost rows add up as before, and those in a row to no more than it.
        assert kept[name][kept["depth"] == 0].sum() == whole[name][whole["depth"] == 0].sum()
        for row in range(len(kept) - 1):
            inner = [
                at
                for at in range(row + 1, len(kept))
                if depth[at] == depth[row] + 1 and min(depth[row + 1 : at + 1]) > depth[row]
            ]
            assert kept[name][inner].sum() <= kept[name][row]
    assert all(deeper - level <= 1 for level, deeper in pairwise(depth))
    named = kept[kept["module"] != ""]
    assert set(named["module"]) <= set(whole["module"])
    assert len(named) >= most
    if most == 4:
        assert kept["name"].tolist() == [
            "Net_0",
            "Block_0",
            "Conv_0",
            "(1 more with less time)",
            "Block_1",
            *kept["name"][5:],
        ]


def test_ops_by_shape_end_in_the_sum_of_those_that_are_left_out(monkeypatch):
    monkeypatch.setattr(ops_torch, "MOST_SHAPES", 3)
    run = shaped(shapes(5))
    part = ops_torch.shapes(run)
    assert part["rows"] == 4
    assert part["data"]["device_self_us"].tolist() == [50, 40, 30, 30]
    assert part["data"]["calls"].tolist() == [2, 2, 2, 4]
    assert part["data"]["percent"].sum() == pytest.approx(100)
    names = part["data"]["op"]
    assert names["values"][names["codes"][3]] == "(2 more with less time)"
    assert [note.key for note in ops_torch.omissions(run)] == ["omitted_shapes"]


def test_nothing_is_there_where_nothing_was_recorded():
    part = ops.payload(fake.run())
    assert (part["modules"], part["shapes"]) == (None, None)
    none = shapes(4).assign(input_shapes=None)
    assert ops.payload(shaped(none))["shapes"] is None
    assert ops_torch.omissions(fake.run()) == []


def test_annotations_and_runtime_calls_have_no_shapes():
    frame = shapes(3)
    frame.loc[0, "kind"] = "annotation"
    assert ops_torch.shapes(shaped(frame))["rows"] == 2


@pytest.mark.parametrize("name", ["mi300-ddp-resnet18", "h100-bert"])
def test_real_profiles_have_both(name):
    profile = nbprof.load(real(f"kineto/{name}"))
    part = payload.dashboard(profile.run, views=["ops"])["ops"]
    frame = profile.torch_ops.modules
    assert part["modules"]["rows"] == len(frame)
    assert part["modules"]["data"]["device_total_us"] == pytest.approx(frame["device_total_us"])
    assert part["modules"]["data"]["percent"][0] == pytest.approx(100)
    by = profile.torch_ops.by("shapes")
    assert part["shapes"]["data"]["host_self_us"].sum() == pytest.approx(
        by.loc[by["kind"] == "op", "host_self_us"].sum()
    )
    assert np.isfinite(part["shapes"]["data"]["_at_ms"][0])
