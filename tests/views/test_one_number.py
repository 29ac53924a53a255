"""One page, one number: what a dashboard says twice is the same in both places, or is called by
another name.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import nbprof
from nbprof.core.units import scale_bytes
from nbprof.display import wording
from nbprof.display.payload import Part
from nbprof.tools.common import unit_in
from tests.support.profiles import ROOT

DATA = Path(__file__).parents[1] / "data"


# One of each framework and device; `NBPROF_ALL_PROFILES=1` takes all that are there, which needs a
# minute.
REAL = (
    "tf-gpu/rtx5000-cnn-batch8",
    "tf-cpu/prefetch-example",
    "jax/tpu-v6e-inference",
    "kineto/mi300-ddp-resnet18",
    "ascend/msprof-op-run",
)


def _profiles():
    own = [*DATA.glob("xspace/*"), *DATA.glob("ascend/*.zip"), *DATA.glob("*/*.json.gz")]
    groups = ("tf-gpu", "tf-cpu", "jax", "kineto", "ascend")
    every = [path for group in groups for path in (ROOT / group).glob("*") if path.is_dir()]
    return sorted(own) + sorted(
        every
        if os.environ.get("NBPROF_ALL_PROFILES")
        else [path for name in REAL if (path := ROOT / name).exists()]
    )


@pytest.fixture(
    scope="module", params=_profiles(), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def payload(request):
    return nbprof.load(request.param).payload()


def _figures(value, tab=""):
    """All figures of a payload by tab; of parts that are alike (allocators, programs) each list by
    itself.
    """
    if isinstance(value, (dict, Part)):
        if {"key", "label", "value", "unit"} <= set(value):
            yield tab, value
            return
        for key, each in value.items():
            yield from _figures(each, tab or key)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _figures(each, tab)


def test_figures_of_one_name_are_one_number(payload):
    found = defaultdict(dict)
    for tab, figure in _figures(payload):
        # Memory has a set of figures for each allocator and program, which are chosen between.
        if tab not in ("memory", "memory_viewer", "allocator"):
            found[figure["label"]].setdefault(tab, []).append((figure["value"], figure["unit"]))
    # A rate and its part of the peak have units that tell them apart.
    several = {
        label: {one for ones in tabs.values() for one in ones}
        for label, tabs in found.items()
        if len(tabs) > 1
    }
    for label, values in several.items():
        units = [unit for _, unit in values]
        assert len(units) == len(set(units)), (label, found[label])


def _overview(payload):
    return {figure["key"]: figure for figure in payload["overview"]["figures"]}


def test_steps_are_counted_once(payload):
    steps, said = (
        payload["steps"],
        [line["text"] for line in payload["overview"]["confidence"]["evidence"]],
    )
    unit = unit_in(payload.meta)
    if not len(steps["step"]) or len(steps["hosts"]) > 1 or unit.is_recording:
        pytest.skip("no steps of one host")
    recorded = len(steps["step"])
    counted = recorded - int(np.sum(steps.get("warmup", 0)))
    (line,) = [
        text
        for text in said
        if re.fullmatch(
            rf"(Only )?[\d,]+ {unit.noun}s?( counted of [\d,]+)?(: capture 10 or more)?", text
        )
    ]
    told = [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", line.partition(":")[0])]
    assert told == ([counted] if counted == recorded else [counted, recorded])
    if payload["meta"]["facts"][0].endswith(("step", "steps")):
        assert payload["meta"]["facts"][0] == wording.plural(recorded, "step")


def test_parts_of_the_step_are_those_of_its_chart(payload):
    steps, figures = payload["steps"], _overview(payload)
    if not len(steps["step"]):
        pytest.skip("no steps")
    used = np.asarray(steps.get("warmup", np.zeros(len(steps["step"]))) == 0)
    time = np.asarray(steps["step_time_ms"])[used]
    assert figures["step_time"]["value"] == pytest.approx(time.mean(), rel=1e-6)
    for key in ("input", "host_compute"):
        if key in figures and figures[key]["value"] is not None and key in steps["categories"]:
            parts = np.nan_to_num(np.asarray(steps["categories"][key])[used])
            assert figures[key]["value"] == pytest.approx(
                100 * parts.sum() / time.sum(), rel=1e-6, abs=1e-9
            ), key
    share = [figure["value"] for figure in payload["input"]["share"] if figure["key"] == "input"]
    check = [
        one["percent"]
        for one in payload["overview"]["checks"]
        if one["label"] == "Waiting for input"
    ]
    assert set(share + check) <= {figures["input"]["value"]}


def test_the_recording_is_as_long_as_its_trace(payload):
    trace = payload["trace"]
    if not trace["end"] or payload["meta"]["facts"][0].endswith("snapshot"):
        pytest.skip("no trace")
    assert wording.duration(trace["end"] * trace["tick_ns"] / 1e9) in payload["meta"]["facts"]


def test_input_work_adds_up(payload):
    part = payload["input"]
    ops = np.asarray(part["ops"]["data"].get("self_ms", []), np.float64)
    if not len(ops):
        pytest.skip("no input ops")
    assert part["total_ms"] == pytest.approx(ops.sum(), rel=1e-6)
    assert part["total_ms"] == pytest.approx(
        sum(row["time_ms"] for row in part["categories"]), rel=1e-6
    )


def test_no_pipeline_is_told_to_do_what_it_does(payload):
    notes = [
        node["note"] for pipeline in payload["input"]["pipelines"] for node in pipeline["nodes"]
    ]
    names = payload["input"]["ops"]["data"]["op"]["values"] if notes else []
    serial = any(name.rpartition("::")[2].partition("[")[0] in ("Map", "MapV2") for name in names)
    if serial or not any(re.match(r"\d+ threads", note) for note in notes):
        pytest.skip("nothing runs on several threads, or some of it on one")
    assert not any("in parallel" in row["advice"] for row in payload["input"]["categories"])


def test_kernels_add_up(payload):
    table = payload["kernels"]["table"]
    if not table["rows"]:
        pytest.skip("no kernels")
    time = np.asarray(table["data"]["total_us"], np.float64).sum() / 1000
    (shown,) = [
        figure["value"]
        for figure in payload["kernels"]["figures"]
        if figure["key"] == "kernel_time"
    ]
    assert shown == pytest.approx(time, rel=1e-6)
    assert payload["kernels"]["top"]["ms"] == pytest.approx(time, rel=1e-6)


def _counted(steps):
    return np.asarray(steps.get("warmup", np.zeros(len(steps["step"]))) == 0)


def test_a_device_is_as_busy_in_its_steps_as_the_overview_says(payload):
    """Overview counts kernels and copies of the steps in averages; Device time has the same parts,
    step by step.
    """
    steps, part, busy = (
        payload["steps"],
        payload["device_time"],
        _overview(payload).get("device_busy"),
    )
    one = len(part["devices"]) == 1 and len(steps["hosts"]) == 1
    if not one or len(part["windows"]) != 1 + len(steps["step"]) or busy["value"] is None:
        pytest.skip("not the steps of one device")
    parts = np.asarray(part["parts_ms"], np.float64).reshape(len(part["windows"]), 4)[1:][
        _counted(steps)
    ]
    assert busy["value"] == pytest.approx(100 * parts[:, :3].sum() / parts.sum(), rel=2e-3)


def test_each_share_of_a_device_says_what_it_is_of(payload):
    """These differ: of steps or of the recording, with copies or without."""
    notes = {
        figure["key"]: figure["note"]
        for _, figure in _figures(payload)
        if figure["value"] is not None
    }
    assert "copies" in notes.get("device_busy", "copies")
    assert notes.get("in_use", "kernels only").startswith("kernels only")
    for key in ("compute", "idle"):
        assert notes.get(key, "from first to last work").endswith("from first to last work")


def test_kernels_are_counted_once(payload):
    part = payload["kernels"]
    if not part["table"]["rows"]:
        pytest.skip("no kernels")
    (shown,) = [figure["value"] for figure in part["figures"] if figure["key"] == "kernels"]
    (tab,) = [tab["count"] for tab in payload["meta"]["tabs"] if tab["id"] == "kernels"]
    named = [one for one in part["top"]["parts"] if one["kind"] == "rank"]
    others = [
        int(one["label"].split()[0].replace(",", ""))
        for one in part["top"]["parts"]
        if one["kind"] == "others"
    ]
    assert shown == tab == part["by_name"]["rows"] == len(named) + sum(others)


def test_memory_is_counted_once(payload):
    if not payload["memory"]["ids"]:
        pytest.skip("no memory")
    for one in payload["memory"]["ids"]:
        count = next(figure for figure in one["figures"] if figure["key"] == "allocations")
        freed = int(count["note"].split()[0].replace(",", ""))
        ops, live = one["ops"], one["peak"]
        if ops["rows"] and "ops_left_out" not in one:
            assert np.asarray(ops["data"]["allocations"]).sum() == count["value"]
            assert np.asarray(ops["data"]["deallocations"]).sum() == freed
        assert np.asarray(live["data"]["allocated_bytes"], np.float64).sum() == pytest.approx(
            one["peak_bytes"]
        )
        peak = next(figure for figure in one["figures"] if figure["key"] == "peak")
        assert peak["value"] == pytest.approx(scale_bytes(one["peak_bytes"])[0])
    peaks = [wording.size(one["peak_bytes"]) for one in payload["memory"]["ids"]]
    for peak in set(peaks):
        names = [
            one["memory_id"]
            for one, other in zip(payload["memory"]["ids"], peaks, strict=True)
            if other == peak
        ]
        if all(name.isdigit() for name in names):
            assert names == sorted(names, key=int)


def test_devices_are_counted_once(payload):
    facts = [
        int(found[1]) for fact in payload["meta"]["facts"] if (found := re.match(r"(\d+) × ", fact))
    ]
    said = payload["device_time"]["statement"]
    if not facts or not said:
        pytest.skip("one device, or none that worked")
    known = re.match(r"The (?:(\d+|one) of )?(\d+) devices", said)
    assert known is not None, said
    assert int(known[2]) == facts[0]
    assert len(payload["device_time"]["devices"]) == (
        facts[0] if known[1] is None else 1 if known[1] == "one" else int(known[1])
    )


def test_peak_memory_is_that_of_an_allocator(payload):
    peak = _overview(payload)["peak_memory"]["value"]
    known = [one["peak_bytes"] for one in payload["memory"]["ids"]]
    if peak is None or not known:
        pytest.skip("no memory")
    assert peak in [scale_bytes(value)[0] for value in known]
