"""What is said of the input, in words that other views do not contradict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from nbprof import load
from nbprof.analysis.advice import tf_data
from nbprof.analysis.advice.checks import UNTRACED, input_statement
from nbprof.analysis.input import input_pipeline
from nbprof.frameworks.register import JAX, TENSORFLOW, titled
from nbprof.sources.recording import CaptureInfo
from nbprof.tools.memory import payload as memory
from nbprof.tools.overview.payload import figures as key_figures
from tests.support import hlo
from tests.support.build import profile
from tests.support.hlo_memory import small
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, xspace

DATA = Path(__file__).parents[1] / "data" / "xspace"


def test_a_wait_for_copies_from_the_hosts_memory_is_no_lack_of_recorded_input_work():
    p = load(real("jax/tpu-v6e-inference"))
    assert "copied from host memory" in p.overview["verdict_detail"]
    assert "copied from host memory" in p.input_pipeline.summary["next_step"]


def test_where_input_was_not_traced_the_next_step_is_to_time_it():
    p = load(real("jax/mi300-jax_conv_minimal_08"))
    assert p.input_pipeline.summary["statement"] == UNTRACED
    assert "nbprof.steps(data)" in p.input_pipeline.summary["next_step"]


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        (0.0, "no step time"),
        (0.04, "less than 0.1% of step time"),
        (0.05, "only 0.1% of step time"),
        (4.9, "only 4.9% of step time"),
    ],
)
def test_a_little_input_is_not_said_to_be_nothing(percent, said):
    assert input_statement(percent, 0.0) == f"Not input-bound: {said} is spent waiting for input."


@pytest.mark.parametrize(("percent", "other"), [(12.0, 0.0), (49.3, 0.0), (61.0, 0.0), (1.0, 40.0)])
def test_what_bounds_the_run_is_said_by_the_verdict_alone(percent, other):
    said = input_statement(percent, other)
    assert "bound" not in said
    assert f"{percent if percent > 5 else other:.1f}%" in said


def test_a_run_that_is_bound_by_the_host_is_not_called_input_bound(tmp_path):
    """Its first step is warm-up; averaged with the others, it waits for input."""
    shutil.copy(DATA / "tf_cpu.xplane.pb", tmp_path)
    (tmp_path / "nbprof.json").write_text(json.dumps(CaptureInfo(options={"warmup": 0}).to_dict()))
    p = load(tmp_path)
    assert (p.input_pipeline.summary["level"], p.tf_data.summary["input_bound"]) == ("high", True)
    told = [
        p.input_pipeline.summary["statement"],
        p.tf_data.summary["statement"],
        *p.overview["checks"]["statement"],
    ]
    assert [text for text in told if "input-bound" in text] == []


def test_the_host_of_jax_works_on_no_ops():
    p = load(real("findings/D8-copies/jax_conv_minimal_legacy"))
    assert not (p.ops.frame["where"] == "host").any()
    assert (
        "prepares and dispatches programs while the device is idle" in p.overview["verdict_detail"]
    )


def test_a_figure_of_steps_is_one_of_the_recording_where_there_are_none():
    figures = {one["key"]: one for one in key_figures(load(real("jax/gtx1080ti-reactant")).run)}
    assert all(figures[key]["value"] is not None for key in ("step_time", "device_busy"))
    assert "no steps" not in {one["note"] for one in figures.values()}


def test_jax_is_not_asked_for_allocations_of_the_cpu(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event("PjitFunction(step)", 0, MS)])
    p = profile(tmp_path, xspace(host, hlo.metadata_plane(**{"jit_step(8)": (8, small())})))
    assert p.overview["framework"] == "JAX"
    told = memory.payload(p.run)["empty"]
    assert told["text"].endswith(
        "not for the CPU. The tab Program memory shows what its compiled programs need."
    )
    assert not told["code"]


@pytest.mark.parametrize(
    ("name", "traced"),
    [
        ("xspace/jax_loop.xplane.pb", False),
        ("torch/modules.pt.trace.json.gz", False),
        ("kineto/cpu_train.pt.trace.json.gz", True),
        ("xspace/tf_cpu.xplane.pb", True),
    ],
)
def test_a_wait_that_could_not_be_recorded_is_unknown_and_not_0(name, traced):
    p = load(Path(__file__).parents[1] / "data" / name)
    figure = next(f for f in p.payload(0)["overview"]["figures"] if f["key"] == "input")
    check = p.overview["checks"].set_index("check").loc["input"]
    if traced:
        assert p.overview["input_percent"] == pytest.approx(
            p.input_pipeline.summary["input_percent"]
        )
        assert figure["value"] > 0
        assert check["level"] != "unknown"
    else:
        assert p.overview["input_percent"] is None
        assert p.input_pipeline.summary["mean_percent"] is None
        assert (figure["value"], figure["note"]) == (None, "input was not traced")
        assert (check["level"], check["statement"]) == ("unknown", UNTRACED)


@pytest.mark.parametrize(
    ("ran", "budget", "told"),
    [("DecodeJpeg", 1000, True), ("RandomUniform", 1000, False), ("DecodeJpeg", "None", False)],
)
def test_what_each_epoch_makes_anew_is_told_by_turns_of_repeat_and_by_ops_of_the_pipeline(
    tmp_path, ran, budget, told
):
    host, main, pool, maps = PlaneWriter("/host:CPU"), [], [], []
    of_root = {"id": 10, "parent_id": 0, "ram_budget_megabytes": budget}
    of_map = {"parent_id": 11, "parallelism": 8, "shapes": "[64,64] []", "types": "float int64"}
    for step in range(6):
        at = 10 * step * MS
        main.append(host.event("train", at, 10 * MS, step_num=step, _r=1))
        main.append(host.event("IteratorGetNext", at, 8 * MS))
        # What the step does is random as well, but it makes no elements.
        main.append(host.event("dropout/RandomUniform:RandomUniform", at + 8 * MS, MS))
        pool.append(host.event("Iterator::Root", at, 8 * MS, **of_root))
        pool.append(host.event("Iterator::Root::Repeat", at, 8 * MS, id=11, parent_id=10))
        pool.append(
            host.event(
                f"Iterator::Root::Repeat[{step // 2}]::ParallelMapV2",
                at,
                7 * MS,
                id=20 + step // 2,
                **of_map,
            )
        )
        maps.append(host.event(f"{ran}:{ran}", at, 6 * MS))
    host.line("python", main, line_id=1)
    host.line("tf_data_iterator_get_next/-8790653038117343132", pool, line_id=2)
    host.line("tf_data_private_threadpool/5331651722632834991", maps, line_id=3)
    advice = profile(tmp_path, xspace(host)).advice.set_index("rule")
    assert ("cache_missing" in advice.index) is told
    if told:
        said = "In each of **3** epochs ParallelMapV2 produces **2** elements, at most **32.0 KiB** (half of the free memory was **953.67 MiB**)"
        assert said in advice.loc["cache_missing", "evidence"]


@pytest.mark.parametrize("marked", [True, False])
def test_copies_into_the_memory_of_xla_on_the_cpu_are_input_while_no_op_runs(tmp_path, marked):
    host, main, pool = PlaneWriter("/host:CPU"), [], []
    for step in range(4):
        at = 10 * step * MS
        if marked:
            main.append(host.event("train", at, 10 * MS, step_num=step, _r=1))
        main.append(host.event("PjitFunction(step)", at, MS // 10))
        pool.append(host.event("H2D Dispatch", at + MS, 5 * MS))
        for name, begin, length in (("dot", 4, 4), ("add", 8, 1)):
            run = {
                "hlo_op": name,
                "hlo_module": "jit_step",
                "program_id": 8,
                "run_id": step,
                "device_ordinal": 0,
            }
            pool.append(host.event(name, at + begin * MS, length * MS, **run))
        pool.append(
            host.event("ThunkExecutor::Execute (wait for completion)", at + 9 * MS, MS // 2)
        )
    host.line("python", main, line_id=1)
    host.line("tf_XLAPjRtCpuClient/-2327038832903291846", pool, line_id=2)
    p = profile(tmp_path, xspace(host, hlo.metadata_plane(**{"jit_step(8)": (8, small())})))
    used = p.steps.frame[p.steps.frame["counted"]]
    assert used[["step_time_ms", "input_ms", "host_to_device_ms"]].to_numpy().tolist() == [
        [10.0, 3.0, 3.0]
    ] * (4 if marked else 3)
    assert used["other_ms"].to_numpy() == pytest.approx(1.4)
    assert p.advice.set_index("rule").loc["arrays_copied", "gain_ms_per_step"] == pytest.approx(3.0)


def test_the_flat_map_of_a_generator_is_told_what_helps_the_generator():
    name = "Iterator::Root::Prefetch::FlatMap"
    names = ["Iterator::Root", name, f"{name}::FromTensor", f"{name}[0]::Generator"]
    assert tf_data.over_generator(name, names)
    assert not tf_data.over_generator(name, [*names[:3], f"{name}[0]::TFRecord"])
    text, fix = tf_data.advice(name, 900.0, of_generator=True)
    assert "A Python generator produces one element at a time" in text
    assert "from_generator" in fix
    assert "flat_map" in tf_data.advice(name, 900.0)[1]


@pytest.mark.parametrize(("framework", "said"), [("JAX", "grain"), ("TensorFlow", "use tf.data")])
def test_what_helps_input_of_no_known_kind_suits_the_framework(framework, said):
    table = pd.DataFrame(
        {"op": ["nbprof.steps: next item"], "category": ["other"], "self_ms": [8.0]}
    )
    told = input_pipeline.categories(table, titled(framework)).set_index("category")["advice"]
    assert said in told["other"]


WAIT = "nbprof.steps: next item"
READ = ["preprocessing", "demanded_file_read", "advanced_file_read"]


@pytest.mark.parametrize(
    ("ops", "unknown"),
    [
        ([], [*READ, "enqueue", "other"]),
        ([(WAIT, "other")], [*READ, "enqueue"]),
        ([(WAIT, "other"), ("Iterator::Root::Map", "preprocessing")], ["enqueue"]),
        (
            [("TransferToDevice", "enqueue"), ("Iterator::Root::TFRecord", "demanded_file_read")],
            ["other"],
        ),
    ],
)
def test_of_kinds_of_work_that_jax_does_not_record_the_time_is_missing(ops, unknown):
    table = pd.DataFrame(
        {
            "op": [op for op, _ in ops],
            "category": [kind for _, kind in ops],
            "self_ms": [8.0] * len(ops),
        }
    )
    five = input_pipeline.categories(table, JAX).set_index("category")
    assert sorted(five.index[five["time_ms"].isna()]) == sorted(unknown)
    assert five.loc[unknown, ["percent"]].isna().all(axis=None)
    assert five["time_ms"].sum() == 8.0 * len(ops)
    assert set(input_pipeline.unrecorded(table, JAX)) == set(unknown)
    assert input_pipeline.categories(table, TENSORFLOW)["time_ms"].notna().all()


def test_the_tab_says_why_the_time_of_a_kind_of_work_is_missing(tmp_path):
    host = PlaneWriter("/host:CPU")
    main = [host.event("train", i * 10 * MS, 10 * MS, step_num=i, _r=1) for i in range(4)]
    main += [
        host.event(WAIT, i * 10 * MS, 3 * MS, _ipl_stage_id=1, _ipl_stage_cat="unknown")
        for i in range(4)
    ]
    main += [host.event("PjitFunction(step)", i * 10 * MS + 4 * MS, MS) for i in range(4)]
    host.line("python", main, line_id=7)
    p = profile(tmp_path, xspace(host))
    part = p.payload()["input"]
    known = {
        one["key"]: (one["time_ms"], one["per_step_ms"], one["percent"])
        for one in part["categories"]
    }
    assert known == {
        "other": (12.0, 3.0, 100.0),
        **dict.fromkeys([*READ, "enqueue"], (None, None, None)),
    }
    assert [text.split(". ")[0] for text in part["missing"]] == [
        "Data preprocessing, Reading files on demand, Reading files in advance: not recorded",
        "Enqueuing data: not recorded",
    ]
    assert p.input_pipeline.summary["copy_percent"] is None


def pipeline(asks: int, works: int):
    """Steps of 100 parts, of which `asks` ask for a batch and the pipeline works for `works` of
    these.
    """
    host, main, pool = PlaneWriter("/host:CPU"), [], []
    for step in range(6):
        at, part = 100 * step * MS, MS
        main.append(host.event("train", at, 100 * part, step_num=step, _r=1))
        main.append(host.event("IteratorGetNext", at, asks * part))
        main.append(host.event("dense/MatMul:MatMul", at + asks * part, (100 - asks) * part))
        pool.append(host.event("Iterator::Root", at, works * part, id=11, parent_id=0))
        pool.append(
            host.event("Iterator::Root::Map", at, works * part - part // 2, id=12, parent_id=11)
        )
    host.line("python", main, line_id=1)
    host.line("tf_data_iterator_get_next", pool, line_id=2)
    return xspace(host)


@pytest.mark.parametrize(
    ("asks", "works", "kind"),
    [
        (40, 38, tf_data.PIPELINE),
        (40, 4, tf_data.ELSEWHERE),
        (40, 9, tf_data.PIPELINE),
        (4, 4, tf_data.HARDLY),
    ],
)
def test_all_that_speaks_of_the_input_gives_one_answer(tmp_path, asks, works, kind):
    p = profile(tmp_path, pipeline(asks, works))
    why = p.run.tf_data.cause
    assert why.kind == kind
    part = p.payload()["input"]
    helps = {
        row["category"]: row["advice"] for row in p.input_pipeline.categories.to_dict("records")
    }
    assert {row["key"]: row["advice"] for row in part["categories"]} == helps
    (drawn,) = part["pipelines"]
    marked = [node["name"] for node in drawn["nodes"] if node["bottleneck"]]
    rules = set(p.advice["rule"])
    if kind == tf_data.PIPELINE:
        assert helps["preprocessing"].startswith("map in parallel")
        assert marked == ["Map"]
        assert "map_serial" in rules
        assert "single thread" in p.tf_data.summary["next_step"]
        return
    assert not any(helps.values())
    assert (drawn["advice"], drawn["fix"], marked) == (why.text, [], [])
    assert part["bottleneck"].sum() == 0
    assert not rules & {"map_serial", "input_bottleneck", "prefetch_missing", "cache_missing"}
    if kind == tf_data.ELSEWHERE:
        assert part["next_step"] == p.tf_data.summary["next_step"] == why.text
        assert (
            why.text
            == "The step waits 40.00 ms for input, but the calls of tf.data take only 4.00 ms: the rest is not their work."
        )
    else:
        assert part["next_step"] == "The input keeps up: look at the rest of the step."
        assert "hardly wait" in p.tf_data.summary["statement"]


@pytest.mark.parametrize(
    ("waits", "device", "kind", "part"),
    [
        (
            tf_data.Waits(100.0, 10.0, 1.99),
            True,
            tf_data.ELSEWHERE,
            "the rest is copying batches to the device",
        ),
        (tf_data.Waits(100.0, 10.0, 2.0), True, tf_data.PIPELINE, ""),
        (
            tf_data.Waits(100.0, 6.0, 5.0, 4.9),
            True,
            tf_data.ELSEWHERE,
            "returns its element within 4.90 ms",
        ),
        (tf_data.Waits(100.0, 6.0, 5.0, 5.0), True, tf_data.PIPELINE, ""),
        (tf_data.Waits(100.0, 4.9), True, tf_data.HARDLY, "Only 4.9% of step time"),
        (
            tf_data.Waits(100.0, 4.9, 4.9, hidden=True),
            True,
            tf_data.HARDLY,
            "The calls of tf.data take only 4.90 ms of 100.00 ms per step",
        ),
        (tf_data.Waits(100.0, 4.9, 5.0, hidden=True), True, tf_data.UNKNOWN, ""),
        (tf_data.Waits(100.0, 4.9, hidden=True), True, tf_data.UNKNOWN, ""),
        (tf_data.Waits(100.0, 50.0), True, tf_data.UNKNOWN, ""),
        (tf_data.Waits(100.0, float("nan"), 5.0), True, tf_data.UNKNOWN, ""),
        (tf_data.Waits(0.0, 0.0, 0.0), True, tf_data.UNKNOWN, ""),
    ],
)
def test_what_steps_wait_for(waits, device, kind, part):
    why = tf_data.cause(waits, device)
    assert why.kind == kind
    assert part in why.text
    assert bool(why.text) == why.excuses
