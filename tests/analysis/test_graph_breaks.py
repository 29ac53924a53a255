"""What graph breaks of `torch.compile` cost in each step, by the regions in a trace."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from nbprof import load
from nbprof.analysis.compiles import breaks, regions
from nbprof.core import compile_times
from nbprof.core.compile_times import Compilation, packed

PLANTED = "step"
LINE = 12


def event(name, start, end, thread=1, cat="cpu_op", **args):
    """An event of PyTorch's profiler; times in µs."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": end - start, "args": args,
    }  # fmt: skip


def region(number, start, end):
    return event(f"Torch-Compiled Region: {number}", start, end)


def step(at, compiled="CompiledFunction", compiling=False):
    """A step of 1,000 µs with a break of 200 µs in which two ops run, one with another inside."""
    events = [
        event("ProfilerStep#1", at, at + 1000, cat="user_annotation"),
        region("0/0", at + 10, at + 900),
        event("Pregraph bytecode", at + 12, at + 14),
        event(compiled, at + 20, at + 100),
        event("aten::relu", at + 30, at + 60),
        event("aten::item", at + 120, at + 160),
        event("aten::_local_scalar_dense", at + 130, at + 150),
        event("aten::mul", at + 170, at + 180),
        # On another thread.
        event("aten::add", at + 190, at + 195, thread=2),
        event("TorchDynamo Cache Lookup", at + 200, at + 250),
        region("1/0", at + 260, at + 890),
        event("Pregraph bytecode", at + 270, at + 280),
        event(compiled, at + 300, at + 880),
        event("aten::mm", at + 310, at + 700),
        # The backward pass is in no region.
        event("CompiledFunctionBackward", at + 910, at + 950),
    ]
    if compiling:
        events.append(event("_compile.compile_inner (dynamo_timed)", at + 205, at + 245))
    return events


def compilations(**more):
    """The function, and what was compiled behind its break."""
    resumed = {"function": f"torch_dynamo_resume_in_{PLANTED}_at_{LINE}", "number": "1/0"}
    file = {"file": "a/train.py", "line": 7}
    rows = [
        Compilation("torch", PLANTED, **file, number="0/0", state="first", breaks=f"a/train.py:{LINE}: No print."),
        Compilation("torch", **file, state="first", start_ns=1, **{**resumed, **more}),
    ]  # fmt: skip
    return packed(rows, 0, 0)


def profile(folder, events, compiles):
    """A recording of these events."""
    folder.mkdir()
    trace = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}
    (folder / "host.pt.trace.json").write_text(json.dumps(trace))
    capture = {"backend": "torch", "compiles": compiles, "options": {"warmup": 0}}
    (folder / "nbprof.json").write_text(json.dumps(capture))
    return load(folder)


def steps(count=5, **more):
    return [each for number in range(count) for each in step(1000 * number, **more)]


@pytest.mark.parametrize("compiled", ["CompiledFunction", "## Call CompiledFxGraph fabc ##"])
def test_time_and_ops_between_two_graphs(tmp_path, compiled):
    rows = profile(tmp_path / "a", steps(compiled=compiled), compilations()).graph_breaks
    [row] = rows.to_dict("records")
    assert (row["function"], row["where"]) == (PLANTED, f"a/train.py:{LINE}")
    assert row["reason"] == "No print."
    assert row["per_step"] == 1
    assert row["ms_per_step"] == pytest.approx(0.2)
    assert row["ops_per_step"] == 2
    assert np.isnan(row["kernels_per_step"])
    assert row["cost_reason"] == ""


def test_a_break_in_some_steps_costs_less_per_step(tmp_path):
    events = steps(4)
    events += [each for each in step(4000) if not each["name"].endswith(": 1/0")]
    [row] = profile(tmp_path / "a", events, compilations()).graph_breaks.to_dict("records")
    assert row["per_step"] == pytest.approx(0.8)
    assert row["ms_per_step"] == pytest.approx(0.16)


def called(at, *, breaks):
    """A function that the statement which breaks calls, with a break of 4 µs or none."""
    events = [
        region("7/0", at + 150, at + 169),
        event("Pregraph bytecode", at + 151, at + 152),
        event("CompiledFunction", at + 153, at + 155),
    ]
    if breaks:
        events += [
            event("aten::neg", at + 156, at + 157),
            region("8/0", at + 158, at + 168),
            event("CompiledFunction", at + 159, at + 160),
        ]
    return events


def test_the_graph_of_a_function_that_the_break_calls_is_no_part_of_it(tmp_path):
    events = [each for at in range(0, 5000, 1000) for each in step(at) + called(at, breaks=False)]
    [row] = profile(tmp_path / "a", events, compilations()).graph_breaks.to_dict("records")
    assert row["per_step"] == 1
    assert row["ms_per_step"] == pytest.approx(0.2 - 0.002)


def test_a_graph_of_a_called_function_that_is_not_seen_leaves_the_cost_unknown(tmp_path):
    events = []
    for at in range(0, 5000, 1000):
        inside = [each for each in called(at, breaks=False) if each["name"] != "CompiledFunction"]
        events += step(at) + inside
    [row] = profile(tmp_path / "a", events, compilations()).graph_breaks.to_dict("records")
    assert row["per_step"] == 1
    assert np.isnan(row["ms_per_step"])


def test_the_break_of_a_function_that_the_break_calls_is_one_of_its_own(tmp_path):
    more = Compilation(
        *("torch", "torch_dynamo_resume_in_inner_at_3", "a/other.py", 3), number="8/0", start_ns=2
    )
    compiles = compilations()
    compiles["rows"] += packed([more], 0, 0)["rows"]
    events = [each for at in range(0, 5000, 1000) for each in step(at) + called(at, breaks=True)]
    rows = profile(tmp_path / "a", events, compiles).graph_breaks
    assert list(rows["where"]) == [f"a/train.py:{LINE}", "a/other.py:3"]
    assert list(rows["per_step"]) == [1, 1]
    assert list(rows["ms_per_step"]) == pytest.approx([0.2 - 0.002 - 0.004 - 0.001, 0.004])
    assert list(rows["ops_per_step"]) == [2, 1]


@pytest.mark.parametrize(("has_graph", "ms"), [(False, [0.16, 0.04]), (True, [np.nan, np.nan])])
def test_a_part_between_two_breaks_without_a_graph(tmp_path, has_graph, ms):
    """Its region calls none, so that Python runs in all of it; unless there is one unseen."""
    more = Compilation(
        *("torch", f"torch_dynamo_resume_in_{PLANTED}_at_9", "a/train.py", 9), number="3/0"
    )
    compiles = compilations()
    compiles["rows"] += packed([more], 0, 0)["rows"]
    events = []
    for at in range(0, 5000, 1000):
        events += [*step(at), region("3/0", at + 140, at + 890)]
        if has_graph:
            events.append(event("Pregraph bytecode", at + 142, at + 143))
    rows = profile(tmp_path / "a", events, compiles).graph_breaks
    assert sorted(rows["where"]) == [f"a/train.py:{LINE}", "a/train.py:9"]
    assert list(rows["per_step"]) == [1, 1]
    np.testing.assert_allclose(rows["ms_per_step"], ms)


@pytest.mark.parametrize(
    ("more", "compiles", "per_step", "reason"),
    [
        # The ops of a graph run one by one: where it ends is unknown.
        ({"compiled": "aten::linear"}, {}, 1, regions.NO_GRAPH),
        # What is compiled there is a cost of its own.
        ({"compiling": True}, {}, np.nan, regions.COMPILING),
        # The graph is another one's.
        ({}, {"number": "4/0"}, np.nan, regions.NOT_SEEN),
        ({}, {"number": ""}, np.nan, regions.NOT_SEEN),
    ],
)
def test_a_cost_that_is_not_known_is_missing(tmp_path, more, compiles, per_step, reason):
    found = profile(tmp_path / "a", steps(**more), compilations(**compiles))
    [row] = found.graph_breaks.to_dict("records")
    assert row["where"] == f"a/train.py:{LINE}"
    assert np.isnan([row[name] for name in ("ops_per_step", "ms_per_step")]).all()
    np.testing.assert_equal(row["per_step"], per_step)
    assert row["cost_reason"] == reason
    card = found.payload().overview.graph_breaks
    assert card.table.cell("cost_reason", 0) == reason
    assert "graph_breaks" not in set(found.advice["rule"])


def test_a_break_between_steps_has_no_cost(tmp_path):
    events = steps()
    for each in events:
        if each["name"].startswith("ProfilerStep"):
            each["dur"] = 5
    [row] = profile(tmp_path / "a", events, compilations()).graph_breaks.to_dict("records")
    assert np.isnan([row["per_step"], row["ms_per_step"]]).all()
    assert row["cost_reason"] == regions.NOT_COUNTED


def test_without_steps_or_with_several_hosts_no_cost_is_known(tmp_path):
    recorded, cells = compile_times.unpacked(compilations()), {}
    found = profile(tmp_path / "a", steps(), compilations())
    known = (found.run.activity, found.run.trace)
    [row] = breaks.frame(recorded, cells, *known, found.run.steps.head(0)).to_dict("records")
    assert row["cost_reason"] == "No step counts in averages."
    [row] = breaks.frame(recorded, cells, None, None, found.run.steps).to_dict("records")
    assert row["cost_reason"] == "Costs are known in the trace of a single process alone."


def earlier(**more):
    """As `compilations`, of before the recording."""
    rows = [Compilation(**row) for row in compilations(**more)["rows"]]
    behind = dataclasses.replace(rows[1], line=LINE, breaks=rows[0].breaks, start_ns=0)
    return packed([], 0, 0, [behind])


def test_a_break_of_a_function_that_was_compiled_before(tmp_path):
    found = profile(tmp_path / "a", steps(), earlier())
    [row] = found.graph_breaks.to_dict("records")
    assert (row["function"], row["where"]) == (PLANTED, f"a/train.py:{LINE}")
    assert row["reason"] == "No print."
    assert row["ms_per_step"] == pytest.approx(0.2)
    assert not len(found.compiles)
    assert "graph_breaks" in set(found.advice["rule"])


def test_what_was_compiled_before_and_did_not_run_has_no_row(tmp_path):
    assert not len(profile(tmp_path / "a", steps(), earlier(number="5/0")).graph_breaks)
    # After `torch._dynamo.reset`, the number is another function's.
    both = earlier() | {"rows": packed([Compilation("torch", "f", number="1/0")], 0, 0)["rows"]}
    assert not len(profile(tmp_path / "b", steps(), both).graph_breaks)


def test_two_graphs_of_one_region_are_no_break(tmp_path):
    events = [each for each in steps() if each["name"] != "Torch-Compiled Region: 1/0"]
    [row] = profile(tmp_path / "a", events, compilations()).graph_breaks.to_dict("records")
    assert np.isnan(row["ms_per_step"])


def test_the_finding_and_the_card_name_the_line(tmp_path):
    found = profile(tmp_path / "a", steps(), compilations())
    text = found.advice.set_index("rule").loc["graph_breaks", "evidence"]
    assert f"**{PLANTED}** breaks at **train.py:{LINE}**" in text
    assert "**0.20 ms** per step" in text
    assert "No print." in text
    card = found.payload().overview.graph_breaks
    assert card.table.cell("where", 0).endswith(f"train.py:{LINE}")
    assert card.table.cell("ms_per_step", 0) == pytest.approx(0.2)
    assert "cost_reason" not in [head.key for head in card.table.columns]


def test_without_compilations_there_are_no_rows(tmp_path):
    assert not len(profile(tmp_path / "a", steps(), {}).graph_breaks)


def test_graph_breaks_are_cut_between_lines():
    lines = [f"a/train.py:{number}: {'x' * 100}" for number in range(100)]
    text = compile_times.listed([*lines, lines[0]])
    *shown, last = text.splitlines()
    assert shown == lines[: len(shown)]
    assert last == f"and {100 - len(shown)} more"
    assert 0.95 * compile_times.LONGEST_BREAKS < len(text) <= compile_times.LONGEST_BREAKS
    assert compile_times.listed([*lines[:3], lines[0]]) == "\n".join(lines[:3])
    row = Compilation("torch", breaks=text)
    assert compile_times.unpacked(packed([row], 0, 0)).rows == (row,)
    longer = Compilation("torch", breaks=f"{text}{'x' * 100}")
    assert not compile_times.unpacked(packed([longer], 0, 0)).rows


PROGRAM = """
import nbprof, torch

def inner(y):
    z = y + 1
    print("", end="")
    return z * 2

def step(x):
    y = torch.relu(x @ x)
    print("", end="")
    y = inner(y)
    return torch.sigmoid(y).sum()

compiled = torch.compile(step, backend="aot_eager")
x = torch.ones(8, 8, requires_grad=True)

def cell():
    with nbprof.profile(save=False) as p:
        for _ in range(8):
            with nbprof.step():
                compiled(x).backward()
    return p

p, again = cell(), cell()
assert len(p.compiles) and not len(again.compiles), again.compiles
for each in (p, again):
    rows = each.graph_breaks.set_index("where").sort_index()
    assert [where.rpartition(":")[2] for where in rows.index] == ["11", "12", "6"], rows
    assert list(rows["function"]) == ["step", "step", "inner"], rows
    assert rows["reason"].str.contains("print").all(), rows
    assert rows["reason"].iloc[1].startswith("in inner, line 6: "), rows
    assert (rows["per_step"] == 1).all(), rows
    assert (rows["ops_per_step"] == 0).all(), rows
    assert (rows["ms_per_step"] > 0).all(), rows
    assert rows["ms_per_step"].sum() < each.steps.frame["step_time_ms"].max(), rows
"""


def test_real_breaks_of_this_cell_and_of_an_earlier_one(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
