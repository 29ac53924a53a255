"""The payload: its declared types, and what the tabs hold."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.display.categories import CATEGORIES
from nbprof.profiles.load import load
from nbprof.run.source import facts
from nbprof.sources.recording import CaptureInfo
from nbprof.tools import dashboard as payload
from nbprof.tools.input import payload as inputs
from nbprof.tools.kernels import payload as kernels
from nbprof.tools.memory import payload as memory
from nbprof.tools.ops import payload as ops
from nbprof.tools.overview import payload as overview
from nbprof.tools.overview.text import means
from nbprof.tools.steps import payload as steps
from nbprof.tools.trace import payload as trace
from tests.support.payloads import check
from tests.support.profiles import real
from tests.views import fake

OWN = Path(__file__).parents[1] / "data" / "xspace"
TWIN = (Path(__file__).parents[2] / "js" / "lib" / "payload.ts").read_text(encoding="utf-8")


RUNS = {
    "gpu": fake.run(),
    "cpu": fake.run(device=False),
    "no steps": fake.run(steps=0),
    "nothing": fake.threaded([(0, 1000)]),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("views", [None, ["overview"]], ids=["all", "overview only"])
def test_every_part_has_its_declared_types(run, views):
    whole = payload.dashboard(run, views)
    check(whole, "Payload")
    assert codec.unpack(codec.pack(whole)).keys() == whole.keys()


@pytest.mark.parametrize("path", ["tf_slow", "jax_cpu"])
def test_the_first_picture_says_what_the_whole_says(path):
    run = load(OWN / f"{path}.xplane.pb").run
    early, whole = payload.early(run), payload.dashboard(run)
    check(early, "Payload")
    later = (
        "advice",
        "no_advice",
        "code",
        "ranges",
        "checks",
        "run",
        "figures",
        "top_ops",
        "top_ops_where",
    )
    assert set(early["overview"]) == set(whole["overview"])
    parts = (early["overview"], early["steps"]), (whole["overview"], whole["steps"])
    said, again = (
        [{key: value for key, value in part.items() if key not in later} for part in each]
        for each in parts
    )
    assert codec.pack({"parts": said}) == codec.pack({"parts": again})
    assert len(early["overview"]["figures"]) >= 3
    assert all(figure in whole["overview"]["figures"] for figure in early["overview"]["figures"])
    assert early["overview"]["top_ops"]["rows"] == 0
    assert early["overview"]["run"] == [
        row for row in whole["overview"]["run"] if row[0] != "Warnings"
    ]
    assert all(line in whole["meta"]["receipt"] for line in early["meta"]["receipt"])
    assert whole["overview"]["advice"]
    assert "pending" not in whole["meta"]
    assert {key for key in whole["meta"] if early["meta"][key] != whole["meta"][key]} <= {
        "tabs",
        "receipt",
        "footer",
    }


def test_a_run_that_begins_elsewhere_has_no_first_picture():
    assert payload.early(RUNS["no steps"]) is None
    assert payload.early(RUNS["gpu"]) is not None
    failed = fake.run()
    failed.capture = CaptureInfo(error="OutOfMemoryError", out_of_memory=True, cell_failed=True)
    assert payload.early(failed) is None


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_tables_have_full_columns(run):
    whole = payload.dashboard(run)
    tables = [
        whole["overview"]["top_ops"],
        whole["input"]["ops"],
        whole["ops"]["table"],
        whole["kernels"]["table"],
    ]
    for table in tables + [one[key] for one in whole["memory"]["ids"] for key in ("peak", "ops")]:
        # What only serves to find a row's place in the trace has no head, so nothing shows it.
        assert [column["key"] for column in table["columns"]] == [
            key for key in table["data"] if not key.startswith("_")
        ]
        for column in table["columns"]:
            assert column["help"].endswith(".")
            data = table["data"][column["key"]]
            assert isinstance(data, codec.Coded) == (column["kind"] in ("text", "code"))
            assert len(data.codes if isinstance(data, codec.Coded) else data) == table["rows"]
    assert set(ops.COLUMNS) == {
        "rank",
        "where",
        "type",
        "op",
        "occurrences",
        "total_us",
        "avg_us",
        "self_us",
        "avg_self_us",
        "eager",
    }


def test_categories_are_those_of_the_twin_in_stack_order():
    assert re.findall(r'key: "(\w+)", css: "\w+", label: "([\w ]+)"', TWIN) == [
        (c.key, c.label) for c in CATEGORIES
    ]


def test_a_category_that_was_not_recorded_is_absent_and_a_measured_zero_is_not():
    part = steps.payload(fake.run())
    assert "compile" not in part["categories"]
    assert part["categories"]["device_collectives"].tolist() == [0.0] * 8
    assert part["prefix"] == "train"
    assert part["step"].tolist() == list(range(500, 508))
    assert "warmup" not in part


def test_warm_up_steps_are_marked_and_left_out_of_the_means():
    run = fake.run()
    run.steps["warmup"] = [True] + [False] * 7
    run.steps["counted"] = ~run.steps["warmup"]
    run.steps["compile_ms"] = [800.0] + [0.0] * 7
    run.steps.loc[0, "step_time_ms"] = 808.0
    whole = payload.dashboard(run)
    assert whole["steps"]["warmup"].tolist() == [1] + [0] * 7
    assert whole["steps"]["left_out"] == "Averages exclude step 500 (warm-up)."
    assert {category.key: ms for category, ms, _ in means(whole)}["compile"] == 0.0


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["train 1", "train 2"], "train"),
        (["1", "2"], ""),
        (["a 1", "b 2"], ""),
        ([], ""),
        (["epoch#3_7"], "epoch#3"),
    ],
)
def test_the_prefix_is_what_all_step_names_share(names, prefix):
    assert steps.prefix(names) == prefix


def test_figures_say_why_they_are_missing():
    figures = {figure["key"]: figure for figure in overview.figures(fake.run(steps=0))}
    assert figures["step_time"]["value"] is None
    assert figures["step_time"]["note"] == "no steps"
    cpu = [figure["key"] for figure in overview.figures(fake.run(device=False))]
    assert cpu == ["step_time", "input", "host_compute", "steps_per_second", "eager", "peak_memory"]


def test_figures_carry_the_numbers_of_the_frames():
    figures = {figure["key"]: figure for figure in overview.figures(fake.run())}
    assert figures["step_time"]["value"] == 8.15625
    assert figures["step_time"]["spread"] == "± 0.44"
    assert figures["step_time"]["note"] == "median 8.00, p95 9.25, range 8.00–9.25"
    assert figures["input"]["hot"]
    assert figures["input"]["note"] == "4.16 ms per step"
    assert (round(figures["peak_memory"]["value"], 2), figures["peak_memory"]["unit"]) == (
        11.81,
        "MiB",
    )
    assert figures["peak_memory"]["note"] == "of 16.00 GiB (0.1%)"


def test_a_fix_is_a_diff():
    lines = overview.fix_lines("-old\n+new(\n+    a)\n same\nbare")
    assert [(line["kind"], line["text"]) for line in lines] == [
        ("removed", "old"),
        ("added", "new("),
        ("added", "    a)"),
        ("same", "same"),
        ("same", "bare"),
    ]
    assert overview.fix_lines(np.nan) == overview.fix_lines("") == []


def test_kernel_figures_follow_the_time_and_the_launches():
    part = kernels.payload(fake.run())
    values = {figure["key"]: figure["value"] for figure in part["figures"]}
    times = {"kernel_time": 12.0, "kernels": 2, "median_kernel": 250.0}
    # 8 ms of a kernel of 64 blocks for 40 multiprocessors and 4 ms of one of 1 block, in steps of
    # 65.25 ms.
    in_use = {
        "in_use": pytest.approx(1200 / 65.25),
        "sm_efficiency": pytest.approx(100 * (8 + 4 / 40) / 65.25),
    }
    assert values == {
        **times,
        "tensor_cores_used": 0.0,
        "tensor_cores_unused": pytest.approx(200 / 3),
        **in_use,
        "occupancy": 75.0,
    }
    assert part["top"]["ms"] == 12.0
    assert [share["percent"] for share in part["top"]["parts"]] == pytest.approx([200 / 3, 100 / 3])
    table = part["table"]["data"]
    assert table["block"]["values"] == ["8×8×1", "1024×1×1"]
    assert table["shared_bytes"].tolist() == [4352, 0]
    assert table["occupancy_percent"].tolist() == [62.5, 100.0]


def test_kernels_without_steps_are_no_mean_over_steps():
    notes = [
        next(
            one["note"]
            for one in kernels.payload(fake.run(steps=steps))["figures"]
            if one["key"] == "in_use"
        )
        for steps in (8, 0)
    ]
    assert notes == [
        "kernels only, mean over the steps",
        "kernels only, from the first to the last",
    ]


def test_an_amd_gpu_has_compute_units_and_no_number_of_cudas():
    group = {"compute_capability": "9.4", "cores": 304}
    assert (
        overview._device({**group, "name": "AMD Instinct MI300X"})
        == "AMD Instinct MI300X, 304 compute units"
    )
    assert (
        overview._device({**group, "name": "AMD GPU (gfx94x)", "count": 8})
        == "8 × AMD GPU (gfx94x), 304 compute units"
    )
    assert (
        overview._device({"compute_capability": "7.5", "cores": 40, "name": "Tesla T4"})
        == "Tesla T4 (sm_75), 40 multiprocessors"
    )


def test_kernels_of_a_device_that_states_less_are_missing_not_zero():
    full = fake.run().kernels
    unknown = dict.fromkeys(
        ("static_shared_bytes", "dynamic_shared_bytes"), pd.array([pd.NA] * len(full), "Int64")
    )
    unknown["uses_tensor_core"] = pd.array([pd.NA] * len(full), "boolean")
    part = kernels.payload(fake.run(kernels=full.assign(**unknown, block="", grid="")))
    assert np.isnan(part["table"]["data"]["shared_bytes"]).all()
    assert part["table"]["data"]["block"]["values"] == [""]
    assert [figure["value"] for figure in part["figures"][3:5]] == [None, None]


def test_the_bottleneck_of_a_pipeline_is_marked_in_the_table():
    part = payload.dashboard(fake.run())["input"]
    assert part["bottleneck"].tolist() == [1, 0, 0]
    assert part["total_ms"] == 33.25
    assert part["per_step_ms"] == 4.15625
    pipeline = part["pipelines"][0]
    assert [node["parent"] for node in pipeline["nodes"]] == [None, "11", "12"]
    for graph in (pipeline, *pipeline["slowest"]):
        own = [node["self_ms"] for node in graph["nodes"]]
        assert [node["percent"] for node in graph["nodes"]] == pytest.approx(
            [100 * one / sum(own) for one in own]
        )
        assert graph["critical_ms"] == pytest.approx(
            sum(node["self_ms"] for node in graph["nodes"] if node["critical"])
        )
    assert part["ops"]["data"]["us_per_call"].tolist() == [3156.25, 500.0, 500.0]


def test_all_pipelines_and_their_calls_are_listed(monkeypatch):
    run = fake.run()
    part = payload.dashboard(run)["input"]
    assert "pipeline_table" not in part, "of one pipeline the graph says all"
    calls = part["call_table"]
    assert calls["rows"] == len(run.tf_data.calls) > 1
    assert calls["data"]["start_ms"] == pytest.approx(run.tf_data.calls["start_ms"].to_numpy())
    assert part["pipelines"][0]["nodes"][0]["start_ms"] == run.tf_data.nodes["start_ms"].iloc[0]
    second = run.tf_data.pipelines.assign(pipeline="Host:1")
    both = SimpleNamespace(
        pipelines=pd.concat([run.tf_data.pipelines, second]), calls=run.tf_data.calls
    )
    several = inputs._pipeline_table(SimpleNamespace(tf_data=both))
    check(several, "Table")
    assert several["rows"] == 2
    monkeypatch.setattr(inputs, "MOST_LISTED", 1)
    assert payload.dashboard(run)["input"]["call_table"]["rows"] == len(run.tf_data.pipelines)


def test_idle_is_in_the_totals_only():
    part = ops.payload(fake.run())
    assert "IDLE" not in part["table"]["data"]["op"]["values"]
    # From the first op of each thread and of the GPU to the last one: 61.25, 57.75 and 59 ms.
    assert part["totals"] == {
        "device_us": 12_000.0,
        "device_idle_us": 47_000.0,
        "host_us": 37_250.0,
        "host_idle_us": 119_000.0 - 37_250.0,
    }


def test_rows_beyond_the_limit_are_left_out_with_a_line_in_the_receipt(monkeypatch):
    monkeypatch.setattr(ops, "MOST_ROWS", 1)
    whole = payload.dashboard(fake.run())
    assert whole["ops"]["table"]["data"]["rank"].tolist() == [1, 3]
    assert (
        whole["meta"]["receipt"][-1]["text"]
        == "The table of ops omits the 4 with the least self time; p.ops.frame has all."
    )
    assert whole["ops"]["totals"]["host_us"] == 37_250.0


def memory_ops():
    """More ops than a view lists on the first of two allocators."""
    count = 250
    taken = np.arange(1, count + 1, dtype=np.int64)[::-1] * 1024
    return pd.DataFrame(
        {
            "memory_id": "GPU_0_bfc",
            "op": [f"op{i}" for i in range(count - 1)] + [""],
            "allocations": np.ones(count, np.int64),
            "allocated_bytes": taken,
            "deallocations": np.zeros(count, np.int64),
            "freed_bytes": np.zeros(count, np.int64),
            "increase_bytes": taken,
        }
    )


def test_memory_comes_with_the_largest_peak_first_and_its_step():
    part = memory.payload(fake.run(memory_ops=memory_ops()))
    assert [one["memory_id"] for one in part["ids"]] == ["GPU_0_bfc", "cpu"]
    first = part["ids"][0]
    assert first["peak_step"] == 502
    assert first["heap_bytes"].max() == 12_386_304
    assert first["peak"]["data"]["percent"][0] == 50.0
    assert first["allocation"].tolist() == [1, 0] * 20
    assert first["ops"]["rows"] == memory.MOST_OPS
    assert first["ops"]["data"]["allocated_bytes"][:2].tolist() == [250 * 1024, 249 * 1024]
    assert part["ids"][1]["ops"]["rows"] == 0


@pytest.mark.parametrize("count", [999, 1000, 1001, 1999, 2650, 12_345])
def test_sampling_keeps_every_box_and_the_first_of_the_largest(count):
    values = np.random.default_rng(count).integers(0, 50, count).astype(np.float64)
    kept = memory.sample(values)
    assert len(kept) == min(count, 1000)
    assert (np.diff(kept) > 0).all()
    assert np.argmax(values) in kept
    if count > 1000:
        width = count // 1000
        edges = np.cumsum(
            [0] + [width] * (1000 * (width + 1) - count) + [width + 1] * (count - 1000 * width)
        )
        assert edges[-1] == count
        assert kept.tolist() == [
            low + values[low:high].argmax() for low, high in itertools.pairwise(edges)
        ]


def test_the_trace_keeps_all_step_markers_every_lane_and_the_parents():
    part = trace.payload(fake.traced(steps=100), limit=400)
    assert part["total"] == 100 * 42
    assert 350 <= part["shown"] <= 400
    lanes = {lane["name"]: lane for lane in part["lanes"]}
    assert list(lanes)[:2] == ["Steps", "Stream 19"]
    marks = lanes["Steps"]
    assert (marks["events"], len(marks["start"].values)) == (100, 100)
    thread = next(lane for lane in part["lanes"] if lane["kind"] == "host")
    assert thread["events"] == 100 * 21
    # All parents are longer than all children: they stay, and so do some children.
    assert (thread["depth"] == 0).sum() == 100
    assert (thread["depth"] == 1).sum() > 0
    assert len(lanes["Stream 19"]["duration"]) > 100


def test_trace_times_are_ticks_from_the_start_of_the_profile():
    part = codec.unpack(codec.pack(trace.payload(fake.traced())))
    assert part["tick_ns"] == 1
    assert part["end"] == 64_000_000
    marks = part["lanes"][0]
    assert marks["start"].tolist() == [8_000_000 * i for i in range(8)]
    assert set(marks["duration"]) == {8_000_000}
    assert marks["process"] == "GPU 0"
    assert "never used" not in part["names"]
    kernel = part["lanes"][1]
    assert {part["names"][code] for code in kernel["name_code"]} == {"wgrad_alg0", fake.HOSTILE}


def test_names_that_tell_a_category_have_its_colour():
    part = trace.payload(fake.run())
    category = {
        name: int(part["category"][part["names"].index(name)])
        for name in ("MemcpyDToD", "cuLaunchKernel", "IteratorGetNext", "train")
    }
    keys = ["", *(each.key for each in CATEGORIES)]
    assert {name: keys[at] for name, at in category.items()} == {
        "MemcpyDToD": "device_to_device",
        "cuLaunchKernel": "kernel_launch",
        "IteratorGetNext": "input",
        "train": "",
    }


def test_nested_slices_stay_nested_in_ticks():
    part = codec.unpack(codec.pack(trace.payload(fake.traced())))
    thread = part["lanes"][2]
    ends = thread["start"].astype(np.int64) + thread["duration"]
    outer = thread["depth"] == 0
    for start, end in zip(thread["start"][~outer], ends[~outer], strict=True):
        assert ((thread["start"][outer] <= start) & (ends[outer] >= end)).any()
    assert (thread["inside"] <= thread["duration"]).all()
    assert len(thread["inside"]) == len(thread["start"])


def test_long_profiles_take_longer_ticks():
    part = trace.payload(fake.traced(steps=2, stretch=1000))
    # The last slice begins at 13.7 s and takes 0.2 ms: 7 ns are the least of which 2^31 reach so
    # far.
    assert part["tick_ns"] == 7
    assert part["end"] * 7 == pytest.approx(13_700_200_000, abs=8)


def test_views_choose_the_tabs_and_leave_out_the_other_data():
    run = fake.run()
    full = payload.dashboard(run)
    whole = payload.dashboard(run, ["trace", "overview"])
    assert [tab["id"] for tab in whole["meta"]["tabs"]] == ["overview", "trace"]
    assert whole["ops"]["table"]["rows"] == 0
    assert whole["memory"]["empty"]["title"] == "Not in this report"
    assert codec.pack(payload.select(full, ["trace", "overview"])) == codec.pack(whole)
    assert codec.pack(payload.select(full, None)) == codec.pack(full)


def test_an_unknown_view_is_named():
    with pytest.raises(NbprofError, match="unknown view 'kernel'; the views are overview, input"):
        payload.chosen(["kernel"])
    assert payload.chosen("ops, overview, steps") == ["overview", "input", "ops"]


def test_the_typical_step_is_the_one_of_median_length_that_counts():
    run = fake.run()
    run.steps["step_time_ms"] = [9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    run.steps["counted"] = [False] + [True] * 7
    assert steps.payload(run)["typical"] == 4
    assert "typical" not in steps.payload(fake.run(steps=2))


def test_the_tab_that_the_verdict_points_to_is_flagged():
    def flags(bound, **kinds):
        run = fake.run(**kinds)
        run.first_answer["bound"] = bound
        return {
            tab["id"]: tab["flag"] for tab in payload.dashboard(run)["meta"]["tabs"] if tab["flag"]
        }

    assert flags("input") == {"input": "input"}
    assert flags("device_compute") == {"kernels": "device_compute"}
    none = fake.run().kernels.iloc[:0]
    assert flags("device_compute", kernels=none) == {"ops": "device_compute"}
    assert flags("host_compute") == {"ops": "host_compute"}
    assert flags(None) == {}

    # A table without such ops is no place to go to; every event is in the trace.
    of = fake.run().ops.groupby("where")
    assert flags("host_compute", ops=of.get_group("device")) == {"trace": "host_compute"}
    assert flags("device_compute", ops=of.get_group("host"), kernels=none) == {
        "trace": "device_compute"
    }


@pytest.mark.parametrize("recorded", ["jax_cpu", "jax_loop"])
def test_what_ran_in_compiled_programs_is_followed_up_in_the_op_profile(recorded):
    whole = payload.dashboard(load(f"tests/data/xspace/{recorded}.xplane.pb").run, events=0)
    assert {tab["id"]: tab["flag"] for tab in whole["meta"]["tabs"] if tab["flag"]} == {
        "op_profile": "host_compute"
    }
    assert "ops" not in {check["view"] for check in whole["overview"]["checks"]}


def capture(**facts):
    return CaptureInfo(
        "tensorflow",
        "",
        "2026-11-21T14:02:31",
        1.0,
        0,
        0,
        **{"cell_failed": False, "error": "", "label": "run 3", **facts},
    )


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({}, None, ""),
        ({"steps": 0}, "no_steps", "No steps found"),
        ({"capture": capture(error="CUPTI is not there.")}, "failed", "finished without an error"),
        (
            {
                "capture": capture(
                    cell_failed=True,
                    error="cell failed in step 3, after 2 complete steps: ValueError: no",
                )
            },
            "partial",
            "The cell failed in step 3, after 2 complete steps: ValueError: no.",
        ),
        (
            {
                "capture": capture(
                    cell_failed=True,
                    error="fit was ended by an exception in step 5, after 4 complete steps",
                )
            },
            "partial",
            "Fit was ended by an exception in step 5, after 4 complete steps.Recorded up to that point",
        ),
        (
            {"capture": capture(cell_failed=True, error="cell failed: ValueError: too lo…")},
            "partial",
            "The cell failed: ValueError: too lo…Recorded up to that point",
        ),
        (
            {"capture": capture(cell_failed=True), "steps": 0},
            "partial",
            "The cell stopped with an error.Recorded up to that point: no steps.",
        ),
    ],
)
def test_one_notice_at_a_time_the_gravest_first(changes, kind, words):
    run = fake.run(steps=changes.get("steps", 8))
    run.capture = changes.get("capture")
    notice = payload.dashboard(run)["meta"]["notice"]
    assert (notice and notice["kind"]) == kind
    assert kind is None or words in notice["title"] + notice["text"]


def test_dropped_events_make_the_profile_partial():
    run = fake.run()
    run.receipt.skip("were dropped by the recorder", 766, key="test")
    assert payload.dashboard(run)["meta"]["notice"]["title"] == "766 of 943 events were dropped."


def test_a_run_of_a_file_has_the_name_of_the_file_and_says_what_it_was_when_it_was_recorded():
    run = fake.run()
    run.capture, run.source.name = capture(), "with prefetch"
    meta = payload.dashboard(run)["meta"]
    assert (meta["label"], meta["facts"][-1]) == ("with prefetch", "run 3")
    # In the process that has recorded it.
    run.source.name = "run 3"
    assert "run 3" not in payload.dashboard(run)["meta"]["facts"]


def test_header_facts():
    assert payload.dashboard(fake.run())["meta"]["facts"] == [
        "8 steps",
        "65 ms",
        "Tesla T4",
        "14:02:31",
    ]
    several = pd.concat([fake.run().devices] * 8, ignore_index=True)
    assert payload.facts(fake.run(devices=several))[2] == "8 × Tesla T4"
    assert payload.facts(fake.run(steps=1, device=False))[::2] == ["1 step", "CPU"]


def test_of_very_many_hosts_the_facts_name_the_first():
    run = fake.run()
    found = [
        dict(
            facts(run.source, None, run.overview, run.devices, [f"host{i}" for i in range(count)])
        )["Host"]
        for count in (2, 1024)
    ]
    assert found[0] == "host0, host1"
    assert found[1].endswith("host6, host7 and 1,016 more")


def test_a_profile_of_jax_is_told_of_jaxs_own_markers():
    told = steps.no_steps(
        load(Path(__file__).parents[1] / "data" / "xspace" / "jax_cpu.xplane.pb").run
    )
    assert "StepTraceAnnotation" in told["code"]
    assert "model.fit" not in told["text"]


def test_a_cell_of_pytorch_is_told_of_optimizers():
    run = fake.run(steps=0)
    run.capture, run.first_answer["framework"] = capture(), "PyTorch 2.13.0"
    told = steps.no_steps(run)
    assert "model.fit" not in told["text"]
    assert "torch.optim" in told["text"]
    assert "nbprof.steps(loader)" in told["code"]
    assert "prof.step()" not in told["code"], "a cell that nbprof records has no prof"


def test_the_length_of_a_recording_is_told_once():
    run = fake.run()
    told = dict(facts(run.source, capture(), run.overview, run.devices, ["host"]))
    assert told["Captured"] == "2026-11-21 14:02:31"


def test_versions_are_told_once():
    facts = {
        "environment": {"versions": {"TensorFlow": "2.21.0", "CUDA": "12.4"}},
        "run_facts": [("Framework", "TensorFlow 2.21.0")],
    }
    assert overview._facts(facts)[-1] == ("Versions", "CUDA 12.4")


def test_advice_that_opens_the_trace_says_where_its_evidence_is():
    run = load(real("tf-gpu/rtx5000-cnn-batch64")).run
    targets = {
        item["link"]: item["target"]
        for item in overview.payload(run)["advice"]
        if item["view"] == "trace"
    }
    assert targets == {"Trace: copies to the device": {"kind": "name", "name": "MemcpyH2D"}}
    found = run.timeline.answer({"ask": "locate", **targets["Trace: copies to the device"]})
    assert found["found"]
    assert found["slice"]["name"] == "MemcpyH2D"


def test_advice_about_waiting_goes_to_the_longest_idle_gap():
    run = fake.run()
    assert overview._target(run, "other") == {"kind": "gap"}
    assert overview._target(run, "collectives") is None


def test_rings_of_ops_are_of_a_side_without_idle_time_and_with_it():
    part = ops.payload(fake.run())
    assert [(ring["where"], ring["by"]) for ring in part["rings"]] == [
        (w, b) for w in ("device", "host") for b in ("op", "type")
    ]
    host = part["rings"][3]
    totals = part["totals"]
    assert host["ms"] == pytest.approx(totals["host_us"] / 1000)
    assert host["with_idle"]["ms"] == pytest.approx(
        (totals["host_us"] + totals["host_idle_us"]) / 1000
    )
    assert [one["label"] for one in host["parts"]] == ["Dataset", "_Send"]
    assert [one["kind"] for one in host["with_idle"]["parts"]] == ["rank", "rank", "idle"]
    for ring in part["rings"]:
        for shares in (ring["parts"], ring["with_idle"]["parts"]):
            assert sum(one["percent"] for one in shares) == pytest.approx(100)
    assert [one["kind"] for one in part["rings"][0]["with_idle"]["parts"]] == [
        "rank",
        "rank",
        "idle",
    ]


def test_shares_of_ops_are_those_of_the_frame():
    run = fake.run()
    data = ops.payload(run)["table"]["data"]
    assert data["self_percent"].tolist() == pytest.approx((100 * run.ops["self_fraction"]).tolist())
    assert data["cumulative_percent"].tolist() == pytest.approx(
        (100 * run.ops["cumulative_fraction"]).tolist()
    )
    assert data["rank"].tolist() == run.ops["rank"].tolist()
