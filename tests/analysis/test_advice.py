"""Advice for TensorFlow and JAX: which rule speaks when, and code that is code."""

from __future__ import annotations

import ast
import textwrap

import numpy as np
import pandas as pd
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.activity.unit import MARKED
from nbprof.analysis.advice import checks
from nbprof.analysis.advice import tf_data as tf_data_advice
from nbprof.analysis.advice.advice import advice
from nbprof.analysis.advice.evidence import Evidence
from nbprof.analysis.input import input_pipeline
from nbprof.analysis.input.tf_data import NODES, PIPELINES
from nbprof.analysis.ops.torch_runtime import Runtime
from nbprof.frameworks.register import JAX, titled
from nbprof.profiles.load import load
from tests.support.build import profile
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, xspace

FUNCTIONS = pd.DataFrame(
    {
        "function": ["train_function"],
        "calls": [9],
        "tracings": [1],
        "self_us": [900.0],
        "expensive_percent": [0.0],
        "expensive_ms_per_step": [5.0],
    }
)
KERNELS = pd.DataFrame(
    {
        "kernel": ["k"],
        "op": ["dense/MatMul"],
        "total_us": [900.0],
        "op_tensor_core_eligible": [True],
        "uses_tensor_core": [False],
    }
)
OWN_LOOP = FUNCTIONS.assign(function=["my_step"])


def found(
    parts=None,
    functions=FUNCTIONS,
    kernels=None,
    pipelines=None,
    nodes=None,
    runtime=None,
    evidence=None,
    **facts,
):
    """The advice on steps of 100 ms with some parts in ms, by rule."""
    shares = dict.fromkeys(CATEGORIES, 0.0) | (parts or {})
    shares["host_compute"] += 100.0 - sum(shares.values())
    rows = [
        {"category": c, "mean_ms": v, "percent": v}
        for c, v in ({"step_time": 100.0} | shares).items()
    ]
    overview = {
        "step_time_ms": 100.0,
        "framework": "TensorFlow",
        "devices": 1,
        "steps": 10,
        "tf_functions": functions,
        "compute_16bit_percent": None,
        "eager_host_percent": None,
        "eager_device_percent": None,
        "outside_compilation_percent": None,
        "peak_memory_bytes": None,
        "memory_capacity_bytes": None,
        "device_idle_percent": None,
        **facts,
    }
    kernels = KERNELS.head(0) if kernels is None else kernels
    pipelines = pd.DataFrame(columns=PIPELINES) if pipelines is None else pipelines
    nodes = pd.DataFrame(columns=NODES) if nodes is None else nodes
    return advice(
        overview, pd.DataFrame(rows), pipelines, nodes, kernels, runtime, evidence
    ).set_index("rule")


def code(fix):
    """What is left of a diff when it is applied, as Python that can be parsed."""
    lines = [line[1:] for line in fix.splitlines() if not line.startswith(("-", "+%%nbprof"))]
    lines_of_code = textwrap.dedent("\n".join(lines))
    for tail in ("", "\n    pass"):
        try:
            return ast.parse(lines_of_code + tail)
        except SyntaxError as error:
            last = error
    raise AssertionError(f"{last}: {lines_of_code}")


EVERYTHING = {
    "input_outside_tf_data": {"parts": {"input": 50.0}},
    "kernel_launch": {"parts": {"kernel_launch": 50.0}},
    "mixed_precision": {"parts": {"device_compute": 50.0}, "compute_16bit_percent": 9.9},
    "tensor_cores": {"parts": {"device_compute": 50.0}, "kernels": KERNELS},
    "eager": {"eager_host_percent": 10.1},
    "tf_function": {"functions": FUNCTIONS.assign(expensive_percent=20.0)},
    "outside_compilation": {"outside_compilation_percent": 5.1, "parts": {"device_compute": 50.0}},
    "collectives": {"parts": {"device_collectives": 50.0}},
    "output": {"parts": {"output": 50.0}},
    "other": {"parts": {"other": 50.0}},
}


def test_a_program_of_no_framework_gets_no_code_of_one():
    """Those of which Nsight Systems or rocprofv3 tells only kernels."""
    assert len(found({"kernel_launch": 40.0, "other": 30.0}))
    for framework in ("HIP", "CUDA"):
        assert not len(found({"kernel_launch": 40.0, "other": 30.0}, framework=framework))


def test_a_batch_that_is_made_in_the_loop_is_made_elsewhere():
    """To copy it to the device earlier would not make it any sooner."""
    row = found({"input": 30.0}, framework="JAX").loc["input_ahead"]
    assert row["gain_ms_per_step"] == 30.0
    assert "device_put" not in row["fix"]
    assert "threads" in row["title"]


@pytest.mark.parametrize("rule", EVERYTHING)
@pytest.mark.parametrize("framework", ["TensorFlow", "JAX"])
@pytest.mark.parametrize("functions", [FUNCTIONS, OWN_LOOP])
def test_each_rule_has_evidence_a_view_and_code(rule, framework, functions):
    asked = {"functions": functions, **EVERYTHING[rule], "framework": framework}
    name = "input_ahead" if (rule, framework) == ("input_outside_tf_data", "JAX") else rule
    row = found(**asked).loc[name]
    assert "**" in row["evidence"]
    assert row["view"] in ("overview", "input", "ops", "kernels", "memory", "trace")
    assert row["link"]
    # To look again is a line of options in place of the cell's first.
    assert (
        code(row["fix"]).body
        if rule != "other"
        else row["fix"].startswith("-%%nbprof\n+%%nbprof --python")
    )
    if framework == "JAX" and rule != "tf_function":
        text = " ".join(row[["title", "evidence", "fix"]])
        for word in ("tf.", "Keras", "keras", "TensorFlow", "model.fit", "model.compile"):
            assert word not in text, word
    elif functions is OWN_LOOP and rule not in ("mixed_precision", "tensor_cores"):
        for word in ("model.fit", "model.compile", "Keras"):
            assert word not in row["fix"], "the loop is the user's own"


@pytest.mark.parametrize(
    ("name", "capability", "architecture", "says"),
    [
        ("Pascal GPU (sm_61)", "6.1", "Pascal", None),
        ("Tesla T4", "7.5", "Turing", "float16"),
        ("A100", "8.0", "Ampere", "bfloat16"),
        ("AMD GPU (gfx94x)", "9.4", None, "bfloat16"),
    ],
)
@pytest.mark.parametrize("framework", ["TensorFlow", "JAX"])
def test_precision_is_what_the_device_can_do(name, capability, architecture, says, framework):
    """Nothing has Tensor Cores before Volta, bfloat16 and TF32 before Ampere, or Tensor Cores at
    all at AMD.
    """
    device = {
        "name": name,
        "kind": "GPU",
        "compute_capability": capability,
        "architecture": architecture,
        "count": 1,
    }
    findings = found(
        {"device_compute": 50.0},
        OWN_LOOP,
        KERNELS,
        compute_16bit_percent=0.0,
        environment={"devices": [device]},
        framework=framework,
    )
    if says is None:
        assert findings.empty
        return
    assert f".{says}" in findings.loc["mixed_precision", "fix"]
    words = " ".join(findings[["title", "evidence"]].to_numpy().ravel())
    assert ("Tensor Cores" in words, "matrix cores" in words) == (
        architecture is not None,
        architecture is None,
    )
    if name == "Tesla T4":
        assert "tensor_cores" not in findings.index, (
            "numbers of 32 bits cannot use them: it is the same change"
        )
        assert "could run on Tensor Cores" in findings.loc["mixed_precision", "evidence"]
        assert findings.loc["mixed_precision", "gain_ms_per_step"] == 50.0
        return
    assert ("tensorfloat32" in findings.loc["tensor_cores", "fix"]) == (
        framework == "JAX" and name == "A100"
    )


def test_a_pipeline_of_a_device_says_nothing_of_the_one_that_feeds_it():
    """`Iterator::Prefetch::Generator` is TensorFlow's own, no Python generator of the user's."""
    nodes = pd.DataFrame(
        {
            "host": "h", "pipeline": "Device:0", "iterator": ["Prefetch", "Generator"], "self_ms": [1.0, 90.0], "total_ms": [91.0, 90.0],
            "long_name": ["Iterator::Prefetch", "Iterator::Prefetch::Generator"], "id": ["1", "2"], "parent": [None, "1"], "calls": 9,
        }
    )  # fmt: skip
    assert found({"input": 50.0}, nodes=nodes).empty
    text, fix = tf_data_advice.advice("Iterator::Prefetch::Generator", 7000.0)
    assert "host pipeline" in text
    assert fix == ""


@pytest.mark.parametrize(
    ("chain", "missing"),
    [
        (["Root", "Prefetch", "Map"], False),
        (["Prefetch", "Map"], False),
        (["Model", "MaxIntraOpParallelism", "Prefetch", "Map"], False),
        (["Root", "FiniteTake", "ParallelMapV2", "Batch"], False),
        (["Root", "Map", "Prefetch"], True),
        (["Model", "MaxIntraOpParallelism", "Map"], True),
    ],
)
def test_a_prefetch_is_missing_where_none_ends_the_pipeline(chain, missing):
    names = ["::".join(["Iterator", *chain[: i + 1]]) for i in range(len(chain))]
    ids = [str(i) for i in range(len(chain))]
    nodes = pd.DataFrame(
        {
            "host": "h",
            "pipeline": "Host:0",
            "iterator": chain,
            "long_name": names,
            "id": ids,
            "parent": [None, *ids[:-1]],
        }
    )
    nodes = nodes.assign(
        self_ms=50.0,
        total_ms=50.0,
        calls=10,
        bottleneck=[True] + [False] * (len(chain) - 1),
        note="",
        blocking=True,
    )
    pipelines = pd.DataFrame(
        {
            "host": ["h"],
            "pipeline": ["Host:0"],
            "bottleneck": [chain[0]],
            "advice": ["x"],
            "fix": [""],
            "max_us": [9e3],
        }
    )
    assert (
        "prefetch_missing" in found({"input": 50.0}, nodes=nodes, pipelines=pipelines).index
    ) == missing


def test_arrays_given_to_fit_have_no_map_to_run_in_parallel():
    """The pipeline is Keras's own, and its Map no map of the user's."""
    chain = ["Root", "Prefetch", "ParallelMapV2", "Zip[0]", "FlatMap", "Prefetch", "Map"]
    names = ["::".join(["Iterator", *chain[: i + 1]]) for i in range(len(chain))]
    nodes = pd.DataFrame(
        {
            "host": "h",
            "pipeline": "Host:0",
            "iterator": chain,
            "long_name": names,
            "id": names,
            "parent": [None, *names[:-1]],
        }
    )
    nodes = nodes.assign(
        self_ms=50.0,
        total_ms=50.0,
        calls=10,
        bottleneck=[False] * 6 + [True],
        note="1 thread",
        blocking=True,
    )
    pipelines = pd.DataFrame(
        {
            "host": ["h"],
            "pipeline": ["Host:0"],
            "bottleneck": ["Map"],
            "advice": ["x"],
            "fix": [""],
            "max_us": [9e3],
        }
    )
    findings = found({"input": 50.0}, nodes=nodes, pipelines=pipelines)
    assert findings.index.tolist() == ["input_outside_tf_data"]
    assert "model.fit(ds)" in findings["fix"].iloc[0]


def test_one_slow_call_is_no_program_that_waits():
    pipelines = pd.DataFrame(
        {
            "host": ["h"], "pipeline": ["Host:0"], "max_us": [837.8], "bottleneck": ["Prefetch"], "bottleneck_us": [780.0],
            "advice": ["**Faster**."], "calls": [21], "slow_calls": [15],
        }
    )  # fmt: skip
    waits = tf_data_advice.summary(pipelines, input_percent=20.0)
    assert waits["statement"].startswith(
        "The slowest call of pipeline Host:0 of h took 837.8 µs; calls up to 50 µs"
    )
    assert tf_data_advice.summary(pipelines)["statement"] == waits["statement"], (
        "without steps the calls are all that is known"
    )
    summary = tf_data_advice.summary(pipelines, input_percent=0.4)
    assert summary["input_bound"], "by TensorFlow Profiler's rule"
    assert (
        "15 of its 21 calls over 50 µs, yet only 0.4% of step time is spent waiting for input"
        in summary["statement"]
    )
    assert "step breakdown" in summary["next_step"]


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"parts": {"input": 4.99}}, "input_outside_tf_data"),
        ({"parts": {"kernel_launch": 2.99}}, "kernel_launch"),
        ({"parts": {"device_compute": 50.0}, "compute_16bit_percent": 10.0}, "mixed_precision"),
        ({"eager_host_percent": 10.0}, "eager"),
        ({"functions": FUNCTIONS.assign(expensive_percent=19.9)}, "tf_function"),
        (
            {"functions": FUNCTIONS.assign(expensive_percent=99.0, expensive_ms_per_step=0.0)},
            "tf_function",
        ),
        ({"outside_compilation_percent": 5.0}, "outside_compilation"),
        ({"parts": {"device_collectives": 2.99}}, "collectives"),
        ({"parts": {"other": 14.99}}, "other"),
    ],
)
def test_below_its_bound_a_rule_is_silent(asked, rule):
    assert rule not in found(**asked).index


def test_a_function_that_xla_compiled_is_not_run_op_by_op():
    """With jit_compile=True it is called as one eager op, which has all of its time."""
    calls = pd.DataFrame({"type": ["__inference_step_72", "Dataset"], "percent": [24.0, 76.0]})
    more = {"eager_host_percent": 24.0, "eager_device_percent": 0.0, "top_ops_where": "host"}
    parts = {"other": 1.0}
    assert "eager" in found(parts, OWN_LOOP, top_ops=calls.assign(type="MatMul"), **more).index
    assert "eager" not in found(parts, OWN_LOOP, top_ops=calls, **more).index
    assert (
        "eager" in found(parts, OWN_LOOP, top_ops=calls.assign(percent=[10.0, 90.0]), **more).index
    )


@pytest.mark.parametrize("framework", ["TensorFlow", "JAX", "PyTorch"])
@pytest.mark.parametrize(
    ("half", "says"),
    [
        (0.0, "**None** of device"),
        (0.04, "**None** of"),
        (0.05, "Less than **1%** of"),
        (1.0, "Only **1%** of"),
    ],
)
def test_none_is_not_said_to_be_only_a_part(half, says, framework):
    device = {
        "name": "A100",
        "kind": "GPU",
        "compute_capability": "8.0",
        "architecture": "Ampere",
        "count": 1,
    }
    findings = found(
        {"device_compute": 50.0},
        OWN_LOOP,
        KERNELS,
        compute_16bit_percent=half,
        environment={"devices": [device]},
        framework=framework,
    )
    assert findings.loc["mixed_precision", "evidence"].startswith(says)
    rows = checks.checks(
        {}, {"compute_16bit_percent": half}, pd.DataFrame(), tf_data=False, framework=JAX
    ).set_index("check")
    assert rows.loc["precision", "statement"].startswith(
        "None of device" if half < 0.05 else f"Only {half:.1f}% of device"
    )


@pytest.mark.parametrize(
    ("share", "severity"), [(5.0, "medium"), (19.99, "medium"), (20.0, "high")]
)
def test_severity_of_input_follows_the_checks(share, severity):
    assert found({"input": share}).loc["input_outside_tf_data", "severity"] == severity


def test_unexplained_time_may_be_input_that_was_not_recorded():
    assert "nbprof.steps(batches)" in found({"other": 40.0}).loc["other", "evidence"]
    assert (
        "nbprof.steps(batches)" not in found({"other": 40.0, "input": 6.0}).loc["other", "evidence"]
    )


def test_no_gain_is_the_whole_step():
    """What is left of a step is no figure of it where hardly anything is, or where hardly anything
    was recorded.
    """
    recorded = Evidence(python_calls=True)
    assert found({"other": 90.0}, evidence=recorded).loc["other", "gain_ms_per_step"] == 90.0
    assert np.isnan(found({"other": 90.1}, evidence=recorded).loc["other", "gain_ms_per_step"])
    assert np.isnan(
        found({"other": 95.0}, runtime=Runtime(), evidence=recorded).loc[
            "other", "gain_ms_per_step"
        ]
    )
    assert np.isnan(found({"other": 50.0}).loc["other", "gain_ms_per_step"]), (
        "to record again saves nothing"
    )
    both = found({"output": 99.5, "device_collectives": 0.5})
    assert both.index[0] == "output", "it is the first all the same"
    assert np.isnan(both.loc["output", "gain_ms_per_step"])
    assert found({"output": 98.9}).loc["output", "gain_ms_per_step"] == pytest.approx(98.9)


def test_a_step_of_which_nothing_is_known_is_not_said_to_become_faster():
    p = load(real("findings/D13-small"))
    assert "faster" not in p.overview["verdict_detail"]
    assert p.advice.set_index("rule").loc[["other"], "gain_ms_per_step"].isna().all()


def test_at_most_five_findings_the_largest_gain_first():
    parts = {
        "input": 20.0,
        "kernel_launch": 19.0,
        "device_collectives": 18.0,
        "output": 17.0,
        "other": 16.0,
    }
    all_of_it = found(parts, peak_memory_bytes=95, memory_capacity_bytes=100)
    assert all_of_it.index.tolist() == [
        "input_outside_tf_data",
        "kernel_launch",
        "collectives",
        "output",
        "other",
    ]
    assert all_of_it["gain_ms_per_step"].dropna().is_monotonic_decreasing
    assert all_of_it["gain_ms_per_step"].isna().tolist() == [False] * 4 + [True]


def test_the_bottleneck_of_a_pipeline_comes_with_its_code(tmp_path):
    host = PlaneWriter("/host:CPU")
    main, pool = [], []
    for i in range(8):
        start = i * 10 * MS
        main.append(host.event("train", start, 10 * MS, step_num=i, _r=1))
        main.append(host.event("IteratorGetNext", start, 8 * MS))
        main.append(host.event("dense/MatMul:MatMul", start + 8 * MS, 2 * MS))
        pool.append(host.event("Iterator::Root", start, 8 * MS, id=1))
        pool.append(host.event("Iterator::Root::TFRecord", start, 7 * MS, id=2, parent_id=1))
    host.line("python", main, line_id=1)
    host.line("pool", pool, line_id=2)
    row = profile(tmp_path, xspace(host)).advice.set_index("rule").loc["input_bottleneck"]
    assert "interleave" in row["fix"]
    assert code(row["fix"])
    assert "**TFRecord** takes **56.0 ms** of the **64.0 ms**" in row["evidence"]


KINDS = [
    *(
        [
            "TFRecordDataset",
            "TFRecord",
            "SSTable",
            "RecordIO",
            "Spanner",
            "TFColumn",
            "SleepwalkRemoteDataset",
            "TextLine",
            "StitchedTimelineDataset",
        ]
    ),
    *(
        [
            "DateKeyDataset",
            "CapacitorProto",
            "LMDB",
            "ExternalDataset",
            "PearModel",
            "FixedLengthRecordV2",
            "FromTensor",
            "TensorSlice",
            "Generator",
        ]
    ),
    *(
        [
            "SyntheticDatasetOp",
            "DataServiceV2",
            "GuzzlerDataGuzzlerRemoteDataset",
            "ReverbDataset",
            "DatasetSampleGame",
            "Courier",
        ]
    ),
    *(
        [
            "ReverbEpisodeDataset",
            "Map",
            "Interleave",
            "Filter",
            "BatchV2",
            "Unbatch",
            "ParallelMapV2",
            "ParallelInterleaveV4",
            "MapAndBatch",
            "Prefetch",
        ]
    ),
    *(
        [
            "ParseExampleV2",
            "LegacyParallelInterleaveV2",
            "ParallelBatch",
            "PaddedBatchV2",
            "FlatMap[3]",
            "ShuffleV3",
            "Cache",
            "Scan",
            "Zip[0]",
            "Root",
            "Never",
        ]
    ),
]
UNKNOWN = "no specific advice"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"parallelism": 4, "deterministic": "true", "buffer_size": 2, "cycle_length": 8},
        {"parallelism": 4, "autotune": "true"},
    ],
)
def test_every_kind_of_iterator_has_advice(kind, params):
    text, fix = tf_data_advice.advice(f"Iterator::Root::{kind}", 60.0, params)
    assert f"**{kind.partition('[')[0]}**" in text
    assert "**60.0 µs**" in text
    assert (UNKNOWN in text) is (kind in ("Never", "TFRecordDataset"))
    assert not fix or code(fix)


@pytest.mark.parametrize(
    ("kind", "params", "says"),
    [
        ("Map", {}, "ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)"),
        ("Interleave", {}, "files.interleave(read, num_parallel_calls=tf.data.AUTOTUNE)"),
        ("MapAndBatch", {"parallelism": 1}, "num_parallel_calls=tf.data.AUTOTUNE"),
        ("ParallelMapV2", {"parallelism": 4}, "-ds = ds.map(fn, num_parallel_calls=4)"),
        (
            "ParallelMapV2",
            {"parallelism": 4, "autotune": "true", "deterministic": "true"},
            "deterministic=False",
        ),
        ("ParallelBatch", {"parallelism": 2}, "-ds = ds.batch(n, num_parallel_calls=2)"),
        ("Prefetch", {"buffer_size": 1}, "-ds = ds.prefetch(1)"),
        ("TextLine", {}, "tf.data.TextLineDataset, num_parallel_calls"),
        ("DataService", {}, "WorkerServer"),
        ("Courier", {}, "prefetch"),
    ],
)
def test_the_code_fits_the_iterator_and_what_it_states(kind, params, says):
    assert says in tf_data_advice.advice(f"Iterator::Root::{kind}", 60.0, params)[1]


def test_autotuned_and_free_of_order_there_is_nothing_to_set():
    text, fix = tf_data_advice.advice(
        "Iterator::Root::ParallelMapV2",
        60.0,
        {"parallelism": 4, "autotune": "true", "deterministic": "false"},
    )
    assert fix == ""
    assert "4 threads already" in text


def test_notes_say_what_an_iterator_states():
    assert (
        tf_data_advice.note({"parallelism": 4, "batch_size": 64}, "Iterator::Root::MapAndBatch")
        == "4 threads, batch 64"
    )
    assert tf_data_advice.note({}, "Iterator::Root::Map") == "1 thread"
    assert tf_data_advice.note({"buffer_size": -1}, "Iterator::Root::Prefetch") == ""
    assert (
        tf_data_advice.note({"cycle_length": "8"}, "Iterator::Root::ParallelInterleaveV4")
        == "cycle 8"
    )


def test_where_only_copies_were_recorded_they_are_what_to_look_at():
    """The breakdown shows them, so that the next step does not say that nothing is there."""
    p = load(real("kineto/a100-nccl-ranks/sampled_rank-0.json.gz"))
    summary = p.input_pipeline.summary
    percent = summary["breakdown"].set_index("category")["percent"]
    assert percent["enqueue"] == 100.0
    assert summary["next_step"].startswith(
        "Only copies to the device were recorded as input work. From pinned memory"
    )


@pytest.mark.parametrize(
    ("framework", "word"),
    [("PyTorch", "pin_memory"), ("JAX", "jax.device_put"), ("TensorFlow", "prefetch_to_device")],
)
def test_what_helps_copies_is_told_in_the_frameworks_words(framework, word):
    assert word in input_pipeline._next_step("both", 5.0, 5.0, titled(framework).words, MARKED)
    assert input_pipeline._next_step("both", 0.0, 0.0, titled(framework).words, MARKED).startswith(
        "No input work was recorded. The work of "
    )
    assert "See below" in input_pipeline._next_step(
        "both", 6.0, 5.0, titled(framework).words, MARKED
    )


def test_without_steps_there_is_no_advice(tmp_path):
    gpu, host = PlaneWriter("/device:GPU:0"), PlaneWriter("/host:CPU")
    gpu.line(
        "Stream #1(Compute)",
        [gpu.event("k", 0, MS, correlation_id=1, kernel_details="regs:1 grid:1,1,1 block:1,1,1")],
        line_id=1,
    )
    host.line("main", [host.event("PjitFunction(f)", 0, MS), host.event("jit_f", 0, MS)], line_id=2)
    p = profile(tmp_path, xspace(gpu, host))
    assert p.overview["framework"] == "JAX"
    assert p.advice.empty
    text = " ".join(
        [
            str(p.receipt),
            p.overview["verdict_detail"],
            *p.overview["checks"]["statement"],
            p.input_pipeline.summary["next_step"],
        ]
    )
    for word in ("Keras", "model.fit", "tf.function"):
        assert word not in text
    assert "nbprof.steps" in text
    assert np.isnan(p.overview["checks"].set_index("check").loc["input", "percent"])


@pytest.mark.parametrize(("kind", "view"), [("GPU", "kernels"), ("TPU", "ops")])
def test_precision_leads_to_a_view_that_the_device_has(kind, view):
    device = {
        "name": "A100" if kind == "GPU" else "TPU v5",
        "kind": kind,
        "compute_capability": "8.0",
        "architecture": "Ampere",
        "count": 1,
    }
    findings = found(
        {"device_compute": 50.0},
        OWN_LOOP,
        KERNELS,
        compute_16bit_percent=0.0,
        environment={"devices": [device]},
        framework="JAX",
    )
    assert findings.loc["mixed_precision", "view"] == view


def test_time_in_no_op_is_looked_at_in_three_steps_where_they_can_be_counted():
    def fix(**more):
        return found({"other": 40.0}, **more).loc["other", "fix"]

    assert fix(steps=4) == "-%%nbprof\n+%%nbprof --python"
    assert fix(steps=5) == "-%%nbprof\n+%%nbprof --python --steps 3:5"
    assert fix(steps=5, runtime=Runtime()) == "-%%nbprof\n+%%nbprof --stacks --steps 3:5"
    # Steps of JAX are found when the recording is read.
    assert fix(steps=5, framework="JAX") == "-%%nbprof\n+%%nbprof --python"
