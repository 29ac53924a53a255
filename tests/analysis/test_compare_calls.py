"""The calls of two runs as one tree: sampled functions with intervals over steps, ops and kernels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.compare import call_tree, compare
from nbprof.analysis.compare.call_tree import CallTree
from nbprof.analysis.compare.welch import welch
from nbprof.analysis.ops import op_tree
from nbprof.analysis.python import Python
from nbprof.profiles.report import comparison as report
from nbprof.schema import frames
from nbprof.tools.compare import payload
from tests.analysis.test_compare import side, steps
from tests.analysis.test_python import BASE, CELL, MS, samples

PERIOD = 10
STEP = 50
TRAIN = ("/project/train.py", "train", 10, 12, "")
LOAD = ("/usr/lib/python3/dist-packages/numpy/random.py", "load", 1, 2, "")
SAVE = ("/project/train.py", "save", 30, 31, "")
CELL_LINE = (CELL, "<module>", 1, 2, "")


def recorded(of_steps, cell=CELL_LINE, train=TRAIN, load=LOAD):
    """Steps of five samples each: how many of them are in `load`, and in `save`; the others are in
    `train` itself.
    """
    rows = []
    for step, (loads, saves) in enumerate(of_steps):
        inner = [[load]] * loads + [[SAVE]] * saves
        inner += [[]] * (5 - len(inner))
        for i, calls in enumerate(inner):
            rows.append((1 + 5 * step + i, [cell, train, *calls], 0, 10))
    return samples(rows)


def bounds(count, origin=0):
    start = BASE + (origin + np.arange(count) * STEP) * MS
    return start, start + STEP * MS


def tree_of(of_steps, **more):
    python = Python(recorded(of_steps, **more), {"42": more.pop("cell_number", 3)})
    return call_tree.of_python(python, bounds(len(of_steps)))


def row(table, name):
    (found,) = table[table["name"] == name].to_dict("records")
    return found


BEFORE = [(1, 1), (2, 0), (1, 1), (2, 0), (1, 0), (2, 1)]
AFTER = [(4, 0), (3, 0), (4, 0), (4, 0), (3, 0), (4, 0)]


def test_functions_have_their_time_per_step_and_the_interval_of_welch_over_steps():
    table = call_tree.compared(tree_of(BEFORE), tree_of(AFTER))
    load = row(table, "load")
    loads = [np.array([n * PERIOD for n, _ in each], float) for each in (BEFORE, AFTER)]
    expected = welch(*loads)
    assert load["before_total_ms"] == load["before_self_ms"] == pytest.approx(loads[0].mean())
    assert load["after_total_ms"] == pytest.approx(loads[1].mean())
    assert load["change_ms"] == load["self_change_ms"] == pytest.approx(expected.change)
    # Degrees of freedom are rounded down.
    assert expected.margin <= load["margin_ms"] <= 1.1 * expected.margin
    assert load["real"] is True
    assert load["state"] == "both"
    train = row(table, "train")
    assert (train["before_total_ms"], train["after_total_ms"]) == (STEP, STEP)
    selves = [np.array([STEP - PERIOD * (a + b) for a, b in each]) for each in (BEFORE, AFTER)]
    assert train["self_change_ms"] == pytest.approx(selves[1].mean() - selves[0].mean())
    # All steps take as long: nothing varies, and nothing is known of chance.
    assert train["change_ms"] == 0
    assert pd.isna(train["real"])
    assert table["parent"].tolist() == [-1, 0, *[1] * (len(table) - 2)]


def test_a_function_that_is_gone_has_no_time_after_and_too_few_samples_no_interval():
    save = row(call_tree.compared(tree_of(BEFORE), tree_of(AFTER)), "save")
    assert save["state"] == "gone"
    assert np.isnan(save["after_total_ms"])
    assert save["change_ms"] == pytest.approx(-3 * PERIOD / 6)
    # Three samples.
    assert np.isnan(save["margin_ms"])
    assert pd.isna(save["real"])
    new = row(call_tree.compared(tree_of(AFTER), tree_of(BEFORE)), "save")
    assert (new["state"], new["change_ms"]) == ("new", -save["change_ms"])


def test_fewer_than_five_steps_have_no_interval():
    table = call_tree.compared(tree_of(BEFORE[:4]), tree_of(AFTER))
    assert table["margin_ms"].isna().all()
    assert row(table, "load")["change_ms"] > 0


def test_a_function_is_the_same_in_another_cell_folder_and_line():
    moved = {
        "cell": (CELL, "<module>", 1, 5, ""),
        "train": ("/srv/b/project/train.py", "train", 14, 16, ""),
        "load": ("/opt/venv/lib/python3.12/site-packages/numpy/random.py", "load", 3, 4, ""),
    }
    python = Python(recorded(BEFORE, **moved), {"42": 8})
    table = call_tree.compared(tree_of(BEFORE), call_tree.of_python(python, bounds(len(BEFORE))))
    assert set(table["state"]) == {"both"}
    assert row(table, "<module>")["file"] == "Cell [8]"
    assert row(table, "train")["line"] == 14


def test_time_between_steps_counts_for_none():
    python = Python(recorded(BEFORE), {})
    start, end = bounds(len(BEFORE))
    half = call_tree.of_python(python, (start, start + (end - start) // 2))
    assert half.total_ms.max() == pytest.approx(STEP / 2)
    later = call_tree.of_python(python, (start + 10**12, end + 10**12))
    assert later.total_ms.sum() == 0


def test_without_steps_times_are_those_of_the_recording():
    python = Python(recorded(BEFORE), {})
    tree = call_tree.of_python(python, None)
    assert tree.total_ms.max() == pytest.approx(STEP * len(BEFORE))
    assert tree.self_ms.sum() == pytest.approx(python.tree["self_ms"].sum())
    assert call_tree.compared(tree, tree)["margin_ms"].isna().all()


OPS = pd.DataFrame(
    [
        ("device", "MatMul", "model_1/dense_1/MatMul", 100.0, 2),
        ("device", "MemcpyH2D", "copy", 30.0, 2),
        ("host", "Dataset", "Iterator::Root", 50.0, 2),
        ("device", "IDLE", "IDLE", 500.0, 2),
    ],
    columns=["where", "type", "op", "self_us", "occurrences"],
)
KERNELS = pd.DataFrame(
    [("gemm", "model_1/dense_1/MatMul", None, 80.0), ("lone", None, None, 5.0)],
    columns=["kernel", "op", "module", "total_us"],
)
NO_MODULES = pd.DataFrame({"module": []})


def test_ops_are_a_tree_of_scopes_ops_and_kernels_that_adds_up():
    tree = op_tree.frame(OPS, KERNELS, NO_MODULES)
    assert tree.columns.tolist() == frames.names("ops.tree")
    assert tree["where"].tolist() == ["device"] * 7 + ["host"]
    assert tree["name"].tolist()[:4] == ["model_1", "dense_1", "model_1/dense_1/MatMul", "gemm"]
    assert tree["kind"].tolist()[:4] == ["module", "module", "op", "kernel"]
    assert tree["total_us"].tolist()[:4] == [100, 100, 100, 80]
    assert row(tree, "model_1/dense_1/MatMul")["self_us"] == pytest.approx(20)
    # A kernel of no op has an op of its name, as in the table of ops.
    outermost = tree[tree["depth"] == 0].groupby("where")["total_us"].sum()
    assert outermost.to_dict() == {"device": 135, "host": 50}


def test_modules_of_pytorch_take_the_place_of_scopes():
    by_module = pd.DataFrame(
        [
            ("aten::mm", "op", "Net_0/Linear_0", 10.0, 60.0),
            ("aten::mm", "op", "Net_0/Linear_1", 10.0, 50.0),
            ("aten::copy_", "op", None, 3.0, 7.0),
            ("ProfilerStep#1", "annotation", None, 900.0, 0.0),
        ],
        columns=["op", "kind", "module", "host_self_us", "device_self_us"],
    )
    kernels = pd.DataFrame(
        [("gemm", "aten::mm", "Net/Linear", 90.0)], columns=["kernel", "op", "module", "total_us"]
    )
    tree = op_tree.frame(OPS, kernels, by_module)
    device = tree[tree["where"] == "device"]
    assert device["name"].tolist() == ["Net", "Linear", "aten::mm", "gemm", "aten::copy_"]
    assert device["self_us"].tolist() == [0, 0, 20, 90, 7]
    host = tree[tree["where"] == "host"]
    assert host.loc[host["depth"] == 0, "total_us"].sum() == pytest.approx(23)


def test_ops_of_a_model_that_was_built_again_are_the_same_where_one_is_left():
    after = OPS.assign(op=[name.replace("_1/", "_2/") for name in OPS["op"]])
    kernels = KERNELS.assign(op=["model_2/dense_2/MatMul", None])
    trees = [
        call_tree.of_ops(op_tree.frame(ops, of_ops, NO_MODULES), "device", scale)
        for ops, of_ops, scale in ((OPS, KERNELS, 0.5), (after, kernels, 0.25))
    ]
    table = call_tree.compared(*trees)
    assert set(table["state"]) == {"both"}
    assert table["name"].tolist()[:4] == ["model_2", "dense_2", "MatMul", "gemm"]
    assert row(table, "gemm")["change_ms"] == pytest.approx((80 / 4 - 80 / 2) / 1000)
    assert table["margin_ms"].isna().all()


def test_copies_of_a_name_are_never_guessed():
    first = CallTree(
        np.array([-1, -1], np.int32),
        [call_tree.Frame("dense_1"), call_tree.Frame("dense_2")],
        [("op", "dense_1"), ("op", "dense_2")],
        np.ones(2),
        np.ones(2),
        np.full(2, np.nan),
        np.full(2, np.nan),
        np.zeros(2, np.int64),
        has_copy_numbers=True,
    )
    second = CallTree(**{**vars(first), "keys": [("op", "dense_3"), ("op", "dense_4")]})
    assert sorted(call_tree.compared(first, second)["state"]) == ["gone", "gone", "new", "new"]


def sampled(of_steps, label):
    count = len(of_steps)
    frame = steps([float(STEP)] * count)
    tree = tree_of(of_steps)
    return side(label, frame=frame, python=lambda _: tree)


def test_the_tab_has_the_tree_and_the_static_page_a_table():
    sides = [sampled(BEFORE, "a"), sampled(AFTER, "b")]
    pair = payload.pair(sides, 0, 1)
    (tree,) = pair.calls
    assert (tree.id, tree.per_step, tree.left_out) == ("python", True, 0)
    assert tree.calls.data["_parent"].tolist()[:2] == [-1, 0]
    names = [tree.calls.cell("name", i) for i in range(tree.calls.rows)]
    chance = dict(zip(names, tree.calls.data["_chance"].tolist(), strict=True))
    assert (chance["load"], chance["train"], chance["save"]) == (0, 0, 1)
    page = report._calls(pair, tree)
    assert "calls that changed most" in page
    assert page.index("load") < page.index("save")
    assert ">gone<" in page


def test_it_says_why_functions_of_two_runs_are_not_compared():
    sides = [sampled(BEFORE, "a"), side("b", [5.0] * 6)]
    pair = payload.pair(sides, 0, 1)
    assert (pair.calls, pair.calls_reason) == ([], "b: Python was not sampled")
    assert compare.python(*sides).empty
    assert payload.pair([sides[1], sides[1]], 0, 1).calls_reason == ""


def test_calls_that_cannot_be_seen_are_not_sent(monkeypatch):
    monkeypatch.setattr(payload, "MOST_FRAMES", 3)
    table = call_tree.compared(tree_of(BEFORE), tree_of(AFTER))
    drawn = payload.largest(table)
    assert drawn["name"].tolist() == ["<module>", "train", "load"]
    assert drawn["parent"].tolist() == [-1, 0, 1]
