"""A remedy names a cause that the profile shows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.activity.unit import CALL, MARKED, RECORDING, Unit
from nbprof.analysis.advice import keras_code
from nbprof.analysis.contention import sentence
from nbprof.core.receipt import Receipt
from nbprof.dialects.iterations import Placed
from nbprof.sources.recording import CaptureInfo
from nbprof.tools import dashboard
from tests.fuzz.values import jax_loop
from tests.support import kineto
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace
from tests.views import fake


def notice(run):
    return dashboard.dashboard(run)["meta"]["notice"]


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        (
            ["left out: duration of more than a week."],
            "3 events left out: duration of more than a week.",
        ),
        (
            ["left out: no time (ts).", "left out: no valid phase (ph)."],
            "3 events left out: no time (ts), and 1 more reason in the receipt.",
        ),
        (
            ["left out: the interned names they refer to were lost during recording."],
            "were lost during recording. Use a larger recorder buffer or a shorter recording to keep more.",
        ),
    ],
)
def test_dropped_events_have_the_remedy_of_their_cause(reasons, text):
    run = fake.run()
    for count, reason in zip((3, 1), reasons, strict=False):
        run.receipt.skip(reason, count, key="test")
    told = notice(run)
    assert told["text"].endswith(text)
    assert "code" not in told
    assert "fewer steps" not in told["text"]


def test_one_event_is_no_events():
    assert str(Receipt(events=1)).startswith("1 event read, 0 dropped")
    run = fake.run()
    run.receipt.skip("left out: no time (ts).", key="test")
    assert notice(run)["title"].endswith("was dropped.")


@pytest.mark.parametrize(
    ("unit", "timed", "faster"),
    [
        (Unit(), "steps", "faster steps"),
        (Unit(CALL), "calls", "faster calls"),
        (Unit(RECORDING), "the recording", "a shorter recording"),
    ],
)
def test_other_processes_slow_what_the_figures_are_of(unit, timed, faster):
    measured = {"cores": 2.0, "own_cores": 1.0, "other_cores": 1.0, "waited_percent": 40.0}
    assert sentence(measured, unit=unit).endswith(f"expect {faster} on an idle machine.")
    del measured["waited_percent"]
    assert sentence(measured, unit=unit).endswith(f"{timed} may be faster on an idle machine.")


def test_steps_inside_others_are_hidden_by_no_device_where_there_is_none(tmp_path):
    k = kineto.Kineto()
    for i in range(6):
        k.step(i, 1000.0 * i, 900.0)
        k.op("aten::mm", 1000.0 * i + 10, 300)
    k.step(6, 6000.0, 0.0)
    told = str(kineto.profile(tmp_path, k).receipt)
    assert "A step ended no later than the previous one, or as soon as it began" in told
    assert "device" not in next(line for line in told.splitlines() if "no later" in line)


def device_only_tpu(folder):
    plane = PlaneWriter("/device:TPU:0")
    fusion = "%fusion.1 = f32[8,8]{1,0} fusion(f32[8,8]{1,0} %p0)"
    plane.line(
        "Steps",
        [plane.event(str(i), 10 * i * MS, 10 * MS, group_id=i) for i in range(12)],
        line_id=1,
    )
    plane.line("XLA Ops", [plane.event(fusion, 10 * i * MS, 3 * MS) for i in range(12)], line_id=3)
    return profile(folder, xspace(plane))


def device_only_torch(folder):
    k = kineto.Kineto()
    for i in range(20):
        k.kernel("gemm", 100.0 * i, 30, correlation=i + 1)
    return kineto.profile(folder, k)


@pytest.mark.parametrize(
    ("made", "how"),
    [(device_only_tpu, "host_tracer_level"), (device_only_torch, "ProfilerActivity.CPU")],
)
def test_where_only_devices_were_recorded_the_host_is_to_be_recorded(tmp_path, made, how):
    found = made(tmp_path).advice.set_index("rule").loc["other"]
    assert found["title"] == "Record the host as well"
    assert how in found["evidence"]
    assert not found["fix"]
    assert pd.isna(found["gain_ms_per_step"])


def test_a_truncated_file_may_have_had_a_host(tmp_path):
    data = jax_loop()
    p = profile(tmp_path, data[: len(data) * 9 // 10])
    assert "file_read_in_part" in set(p.receipt.notes["key"])
    assert "other" not in set(p.advice["rule"])


def test_where_calls_of_the_host_were_recorded_python_is_to_be(tmp_path):
    k = kineto.Kineto()
    for i in range(20):
        k.step(i, 1000.0 * i, 1000.0)
        k.launched("gemm", 1000.0 * i + 10, 1000.0 * i + 20, 30.0)
    found = kineto.profile(tmp_path, k).advice.set_index("rule").loc["other"]
    assert found["title"] == "Record the Python calls outside ops"
    assert "with_stack=True" in found["fix"]


def waits_for_loader(folder, note):
    k = kineto.Kineto()
    for i in range(12):
        k.step(i, 1000.0 * i, 1000.0)
        k.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1000.0 * i, 600)
        k.op("aten::mm", 1000.0 * i + 610, 300)
    path = folder / "host0.pt.trace.json"
    path.write_bytes(k.encode())
    known = CaptureInfo(framework="PyTorch 2.9.0, Keras 3.15.1").to_dict()
    # As recordings of earlier versions have them.
    known["notes"] = [note] if note else []
    (folder / "nbprof.json").write_text(json.dumps(known))
    return nbprof.load(folder)


@pytest.mark.parametrize(
    "note", ["steps: batches of Keras", "steps: 3 runs of train, 12 batches of Keras"]
)
def test_keras_users_get_code_of_keras(tmp_path, note):
    p = waits_for_loader(tmp_path, note)
    fix = p.advice.set_index("rule").loc["loader_in_process", "fix"]
    assert "keras.utils.PyDataset" in fix
    assert "DataLoader" not in fix
    part = dashboard.dashboard(p.run)["input"]
    assert "PyDataset" in next(
        one["advice"] for one in part["categories"] if one["key"] == "demanded_file_read"
    )


@pytest.mark.parametrize("note", ["", "steps: calls of an optimizer"])
def test_who_only_imported_keras_keeps_the_loader(tmp_path, note):
    p = waits_for_loader(tmp_path, note)
    assert "+loader = DataLoader(" in p.advice.set_index("rule").loc["loader_in_process", "fix"]


def test_all_fixes_of_keras_replace_a_loader():
    rows = pd.DataFrame(
        {"rule": [*keras_code._FIXES, "loader_workers", "other"], "title": "t", "evidence": "e"}
    )
    rows["fix"] = [
        *["-loader = DataLoader(d)\n+loader = DataLoader(e)"] * len(keras_code._FIXES),
        "-a()\n+b()",
        "DataLoader(x)",
    ]
    steps = pd.DataFrame({"kind": ["train"], "start_ms": [0.0], "step_time_ms": [1.0]})
    found = keras_code.in_keras(rows, steps, None)
    assert found["fix"].tolist()[-2:] == rows["fix"].tolist()[-2:], (
        "other code, and other rules, are left"
    )
    assert all("keras" in fix or "model.fit" in fix for fix in found["fix"].tolist()[:-2])


GAPS = "On average 9 ms pass, mostly in **4** of the gaps: validation, checkpoints or logging, for example."


@pytest.mark.parametrize(
    ("kind", "offset_ms", "title"),
    [
        # Each iteration begins 3 ms before the first of its two steps.
        ("predict", -3.0, "Call predict once, for all data"),
        ("test", -3.0, "Call evaluate once, for all data"),
        ("train", -3.0, "Do less between steps"),
        # Its steps are those of another loop: iterations begin within them.
        ("predict", 0.5, "Do less between steps"),
    ],
)
def test_a_call_of_keras_in_each_iteration_is_named(kind, offset_ms, title):
    begin = np.arange(6) * 10.0
    steps = pd.DataFrame(
        {
            "kind": kind,
            "start_ms": np.sort(np.concatenate([begin, begin + 1.5])),
            "step_time_ms": 1.0,
        }
    )
    start = ((begin + offset_ms) * 1e9).astype(np.int64)
    iterations = Placed(start, start, start + 10**9, True, MARKED)
    findings = pd.DataFrame(
        {
            "rule": ["periodic", "between_steps"],
            "title": ["Do less in every 2nd step", "Do less between steps"],
            "evidence": ["e", GAPS],
            "fix": ["a", "b"],
            "refuted_by": ["c", "d"],
        }
    )
    result = keras_code.in_keras(findings, steps, iterations)
    between = result.set_index("rule").loc["between_steps"]
    assert between["title"] == title
    named = title.startswith("Call")
    assert ("validation" in between["evidence"]) is not named
    assert ("in each call of" in between["evidence"]) is named
    assert ("periodic" in set(result["rule"])) is not named
    # Without a loop, nothing says how often it was called.
    assert keras_code.in_keras(findings, steps, None)["evidence"].tolist() == ["e", GAPS]
