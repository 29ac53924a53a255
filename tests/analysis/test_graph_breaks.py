"""What graph breaks of `torch.compile` cost in each step, by the regions in a trace."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from nbprof import load
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


def test_a_break_in_some_steps_costs_less_per_step(tmp_path):
    events = steps(4)
    events += [each for each in step(4000) if each["name"] not in ("CompiledFunction",)]
    [row] = profile(tmp_path / "a", events, compilations()).graph_breaks.to_dict("records")
    assert row["per_step"] == pytest.approx(0.8)
    assert row["ms_per_step"] == pytest.approx(0.16)


def test_graphs_of_a_function_that_the_break_calls_are_of_the_break(tmp_path):
    events = []
    for number in range(5):
        at = 1000 * number
        events += step(at)
        # Called in the line that breaks: 100 to 200 is without it 100 to 165 and 168 to 300.
        events += [region("7/0", at + 162, at + 169), event("CompiledFunction", at + 165, at + 168)]
    [row] = profile(tmp_path / "a", events, compilations()).graph_breaks.to_dict("records")
    assert row["per_step"] == 2
    assert row["ms_per_step"] == pytest.approx(0.2 - 0.003)


@pytest.mark.parametrize(
    ("more", "compiles"),
    [
        # The ops of a graph run one by one: where it ends is unknown.
        ({"compiled": "aten::linear"}, {}),
        # What is compiled there is a cost of its own.
        ({"compiling": True}, {}),
        # The graph is another one's.
        ({}, {"number": "4/0"}),
        ({}, {"number": ""}),
    ],
)
def test_a_cost_that_is_not_known_is_missing(tmp_path, more, compiles):
    found = profile(tmp_path / "a", steps(**more), compilations(**compiles))
    [row] = found.graph_breaks.to_dict("records")
    assert row["where"] == f"a/train.py:{LINE}"
    assert np.isnan([row[name] for name in ("per_step", "ops_per_step", "ms_per_step")]).all()
    assert "graph_breaks" not in set(found.advice["rule"])


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
    notes = " ".join(found.payload().overview.compiles.notes)
    assert f"most at train.py:{LINE}" in notes


def test_without_compilations_there_are_no_rows(tmp_path):
    assert not len(profile(tmp_path / "a", steps(), {}).graph_breaks)


PROGRAM = """
import nbprof, torch

def step(x):
    y = torch.relu(x @ x)
    print("", end="")
    return torch.sigmoid(y).sum()

compiled = torch.compile(step, backend="aot_eager")
x = torch.ones(8, 8, requires_grad=True)
with nbprof.profile() as p:
    for _ in range(8):
        with nbprof.step():
            compiled(x).backward()
row = p.graph_breaks.iloc[0]
assert len(p.graph_breaks) == 1, p.graph_breaks
assert row["function"] == "step", row
assert "print" in row["reason"], row
assert row["per_step"] == 1, row
assert row["ops_per_step"] == 0, row
assert 0 < row["ms_per_step"] < p.steps.frame["step_time_ms"].max(), row
"""


def test_a_real_break(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
