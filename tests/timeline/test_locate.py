"""Where things of other views are in the trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from nbprof import load
from nbprof.run.run import Run
from nbprof.timeline.find import Finder
from nbprof.timeline.locate import Locator
from nbprof.timeline.slices import Slices
from nbprof.timeline.tracks import tracks
from tests.support.build import profile
from tests.support.examples import examples
from tests.support.made import Made, runs
from tests.support.profiles import real
from tests.support.xspace import gpu_run, training_run


def locator(run: Run) -> Locator:
    slices = Slices(tracks(run))
    return Locator(run, slices, Finder(run.trace, slices))


def _holds(found: dict[str, Any]) -> None:
    """A range around a slice has it whole, with room."""
    start, end = (
        found["slice"]["start_ns"],
        found["slice"]["start_ns"] + found["slice"]["duration_ns"],
    )
    assert found["from"] <= start <= end <= found["to"]
    assert found["from"] < found["to"]


@settings(max_examples=examples(100))
@given(runs())
def test_every_row_of_a_table_is_found_by_its_longest_call(made: Made) -> None:
    run = made.profile().run
    find = locator(run)
    longest = run.kernels.groupby("kernel")["max_us"].max() if len(run.kernels) else {}
    for name, most in dict(longest).items():
        found = find.locate({"kind": "kernel", "name": name})
        assert found["slice"]["name"] == name
        assert found["slice"]["duration_ns"] // 1 == most * 1000
        _holds(found)
    for row in run.ops.itertuples():
        found = find.locate({"kind": "op", "name": row.op, "where": row.where})
        assert found["found"]
        side = (
            run.activity.device_ops.frame()
            if row.where == "device"
            else run.activity.host_ops.frame()
        )
        calls = [
            end - start
            for op, start, end in zip(side["op"], side["start"], side["end"], strict=True)
            if run.activity.ops.values[op] == row.op
        ]
        assert found["slice"]["duration_ns"] * 1000 == pytest.approx(max(calls))
        _holds(found)
    for row in run.input_ops.itertuples():
        found = find.locate({"kind": "input", "name": row.op})
        assert found["found"]
        assert found["slice"]["duration_ns"] <= row.total_ms * 1e6 + 1e-6
        _holds(found)


@settings(max_examples=examples(100))
@given(runs())
def test_every_step_is_found_by_its_number_and_by_its_time(made: Made) -> None:
    run = made.profile().run
    find = locator(run)
    for row in run.steps.itertuples():
        found = find.locate({"kind": "step", "step": row.step, "time_ms": row.start_ms})
        start = row.start_ms * 1e6
        assert found["found"]
        assert found["from"] <= start
        assert found["to"] >= start + row.step_time_ms * 1e6 - 1e-6
        assert str(row.name) in found["text"]


@settings(max_examples=examples(100))
@given(runs())
def test_the_peak_of_memory_is_the_call_that_reached_it(made: Made) -> None:
    run = made.profile().run
    find = locator(run)
    for row in run.memory_summary.itertuples():
        found = find.locate({"kind": "memory_peak", "name": row.memory_id})
        if row.peak_bytes != row.peak_bytes:
            assert not found["found"]
            continue
        event = found["slice"]["event"]
        assert found["slice"]["start_ns"] == pytest.approx(row.peak_time_ms * 1e6)
        assert run.trace.arg("bytes_allocated")[event] == row.peak_bytes
        _holds(found)
    whole = find.locate({"kind": "memory_peak"})
    assert whole["found"] == bool(len(run.memory_summary))


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    find = locator(profile(tmp_path, training_run(5)).run)
    for target in (
        {"kind": "op", "name": "nothing"},
        {"kind": "op", "name": ""},
        {"kind": "kernel", "name": "<script>"},
        {"kind": "input", "name": "x (host to device)"},
        {"kind": "function", "name": "f"},
        {"kind": "step", "step": 10**12},
        {"kind": "step", "host": "elsewhere"},
        {"kind": "gap"},
        {"kind": "memory_peak", "name": "no"},
        {"kind": "name", "name": "q" * 20_000},
        {"kind": "op", "name": "dense/MatMul", "host": "elsewhere"},
    ):
        found = find.locate(target)
        assert (found["found"], found["slice"], found["from"]) == (False, None, 0.0)
        assert found["text"].endswith(".")
        assert len(found["text"]) < 300


def test_an_op_is_found_on_its_host_and_device(tmp_path: Path) -> None:
    run = profile(tmp_path, gpu_run()).run
    find = locator(run)
    op = run.ops[run.ops["where"] == "device"]["op"].iloc[0]
    host = run.hosts[0]
    for device in ("0", 0, "GPU 0"):
        assert find.locate({"kind": "op", "name": op, "host": host, "device": device})["found"]
    assert not find.locate({"kind": "op", "name": op, "device": "GPU 1"})["found"]


@pytest.mark.parametrize("kind", ["op", "input"])
def test_the_first_thing_that_is_asked_of_a_profile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("NBPROF_CACHE", "0")
    data = gpu_run() if kind == "op" else training_run(5)
    known = profile(tmp_path, data).run
    name = (known.ops if kind == "op" else known.input_ops)["op"].iloc[0]
    # Read anew: no table has been made yet.
    found = locator(profile(tmp_path, data).run).locate({"kind": kind, "name": name})
    assert found["found"]
    assert found["text"].split(": ")[-1].startswith(("the only call", "the longest of"))
    pd.testing.assert_frame_equal(profile(tmp_path, data).run.longest_calls, known.longest_calls)


def test_of_several_rows_of_a_name_the_one_is_found_that_is_meant() -> None:
    run = load(real("kineto/v100-resnet50-workers0")).run
    find = locator(run)
    longest = run.longest_launches
    assert run.kernels["kernel"].duplicated().any()
    for kernel, at_ms, for_ms in zip(
        run.kernels["kernel"], longest["at_ms"].round(6), longest["for_ms"], strict=True
    ):
        found = find.locate({"kind": "kernel", "name": kernel, "time_ms": at_ms})
        assert found["slice"]["duration_ns"] == pytest.approx(for_ms * 1e6, abs=1)
    op = run.ops.iloc[0]
    assert find.locate({"kind": "op", "name": op["op"], "time_ms": 1e18})["found"]


def test_a_name_is_found_whole_before_as_a_part(tmp_path: Path) -> None:
    run = profile(tmp_path, training_run(5)).run
    find = locator(run)
    whole = find.locate({"kind": "name", "name": "Iterator::Root"})
    assert whole["slice"]["name"] == "Iterator::Root"
    part = find.locate({"kind": "name", "name": "iterator::roo"})
    durations = run.trace.events.duration[
        [("Iterator::Roo" in n) for n in run.trace.names[run.trace.events.name]]
    ]
    assert part["slice"]["duration_ns"] == durations.max() / 1000


@pytest.mark.parametrize(
    "name",
    [
        "tf-gpu/rtx5000-cnn-batch64",
        "kineto/v100-resnet50-workers0",
        "jax/tpu-v6e-inference",
        "tf-cpu/prefetch-example",
    ],
)
def test_all_rows_of_a_real_profile_are_found(name: str) -> None:
    run = load(real(name)).run
    find = locator(run)
    for kind, table, column in (
        ("op", run.ops, "op"),
        ("kernel", run.kernels, "kernel"),
        ("input", run.input_ops, "op"),
    ):
        missed = [
            text
            for text in (table[column].unique() if len(table) else [])
            if not find.locate({"kind": kind, "name": text})["found"]
        ]
        assert missed == []
    for row in run.kernels.head(50).itertuples():
        found = find.locate({"kind": "kernel", "name": row.kernel})
        assert found["slice"]["duration_ns"] // 1 == pytest.approx(
            run.kernels[run.kernels["kernel"] == row.kernel]["max_us"].max() * 1000
        )
    for row in run.steps.head(20).itertuples():
        found = find.locate(
            {"kind": "step", "step": row.step, "host": row.host, "time_ms": row.start_ms}
        )
        assert found["from"] <= row.start_ms * 1e6 - find._slices.tracks.origin / 1000
    assert np.isfinite([find.locate({"kind": "gap"})[k] for k in ("from", "to")]).all()


def test_a_jump_goes_to_the_call_that_is_longest_by_the_clock_of_the_table() -> None:
    """A TPU counts its ops by its own clock; the longest by the clock of the trace is another."""
    run = load(real("jax/tpu-v6e-inference")).run
    find, longest = locator(run), run.longest_calls.set_index(["where", "op"])
    for op, differs in (("copy-done.2", True), ("copy-done.1", False)):
        at, took = longest.loc[("device", op), ["at_ms", "for_ms"]]
        for target in ({"time_ms": round(at, 6)}, {}):
            found = find.locate({"kind": "op", "name": op, "where": "device", **target})
            assert found["slice"]["name"] == op
            assert found["slice"]["start_ns"] == pytest.approx(at * 1e6, abs=1)
            assert run.trace.arg("device_duration_ps")[found["slice"]["event"]] == pytest.approx(
                took * 1e9, abs=1
            )
            assert (abs(found["slice"]["duration_ns"] - took * 1e6) > 1e6) == differs
            assert ("by the device's own clock, 194.14 ms; " in found["text"]) == differs
