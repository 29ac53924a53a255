"""Iterations of inference engines: steps are the annotations in the file, and sums those of the raw
file.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.analysis.serving import part_of
from nbprof.dialects.gpu.engines import Iteration, annotated
from nbprof.schema.serving import PARTS
from tests.support.kineto import Kineto, load, profile
from tests.support.serving import LAYER, Engine, serve, sglang, vllm
from tests.support.serving import PARTS as PART_OF

HERE = Path(__file__).parents[1] / "data" / "torch"
FORMS = [
    (annotate, graphs, overlap)
    for annotate in (vllm, sglang)
    for graphs, overlap in ((False, False), (True, False), (True, True), (False, True))
]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("execute_context_2(40)_generation_0(0)", Iteration("prefill", 2, 2, 40, 0, 0)),
        ("execute_context_0(0)_generation_64(64)", Iteration("decode", 64, 0, 0, 64, 64)),
        ("execute_context_1(512)_generation_3(6)", Iteration("mixed", 4, 1, 512, 3, 6)),
        ("execute_context_0(0)_generation_0(0)", Iteration("idle", 0, 0, 0, 0, 0)),
        (
            "execute_1025_context_1(sq1024sk1024sqsq9sqsk9)_generation_1(sq1sk300sqsq1sqsk300)",
            Iteration("mixed", 2, 1, 1024, 1, 1),
        ),
        ("execute_new_2_cached_0", Iteration("prefill", 2, 2, -1, 0, 0)),
        ("execute_new_1_cached_3", Iteration("", 4)),
        ("step[EXTEND bs=4 toks=100]", Iteration("prefill", 4, 4, 100, 0, 0)),
        ("step[DECODE bs=64]", Iteration("decode", 64, 0, 0, 64, 64)),
        (
            "step[DECODE bs=64 g_sq=64 g_sk=900 g_sqsq=64 g_sqsk=900]",
            Iteration("decode", 64, 0, 0, 64, 64),
        ),
        ("step[TARGET_VERIFY bs=8]", Iteration("decode", 8, 0, 0, 8, -1)),
        ("step[MIXED bs=5]", Iteration("mixed", 5)),
        (
            "step[MIXED bs=5 c=1 g=4 c_sq=100 c_sk=100 g_sq=4 g_sk=99]",
            Iteration("mixed", 5, 1, 100, 4, 4),
        ),
        ("step[IDLE bs=0]", Iteration("idle", 0, 0, 0, 0, 0)),
        ("draft step[DECODE bs=8]", None),
        ("step[DRAFT_EXTEND bs=8]", None),
        ("execute_context", None),
        (f"execute_context_1({'1' * 5000})_generation_0(0)", None),
        (f"step[DECODE bs={'9' * 5000}]", None),
        ("execute_context_menu_item", None),
        ("ProfilerStep#3", None),
    ],
)
def test_an_annotation_says_what_it_says_and_no_more(name, said):
    assert annotated(name) == said


def raw(k: Kineto) -> tuple[list[str], list[dict[str, float]], list[list[tuple[float, float]]]]:
    """Names of the annotations, and by iteration the device time by part and the spans of its work,
    by the file alone.

    Work belongs to the last annotation that began before its launch; the copies of SGLang's batch
    to the one that begins after it.
    """
    events = json.loads(k.encode())["traceEvents"]
    notes = sorted((e["ts"], e["name"]) for e in events if e["cat"] == "user_annotation")
    begins = [begin for begin, _ in notes]
    calls = {e["args"]["correlation"]: e["ts"] for e in events if e["cat"] == "cuda_runtime"}
    sums: list[dict[str, float]] = [defaultdict(float) for _ in notes]
    spans: list[list[tuple[float, float]]] = [[] for _ in notes]
    for e in events:
        if e["cat"] not in ("kernel", "gpu_memcpy"):
            continue
        at = (
            int(np.searchsorted(begins, calls[e["args"]["correlation"]], side="right"))
            - 1
            + ("HtoD" in e["name"])
        )
        if at < 0:
            continue
        sums[at][PART_OF.get(e["name"], "copies")] += e["dur"] / 1000
        spans[at].append((e["ts"], e["ts"] + e["dur"]))
    return [name for _, name in notes], sums, spans


@pytest.mark.parametrize(("annotate", "graphs", "overlap"), FORMS)
def test_steps_are_the_annotations_and_sums_those_of_the_file(tmp_path, annotate, graphs, overlap):
    k = serve(Engine(annotate, graphs=graphs, overlap=overlap))
    names, sums, spans = raw(k)
    p = profile(tmp_path, k)
    rows = p.serving.frame
    assert rows["name"].tolist() == names
    assert p.steps.frame["step"].tolist() == rows["step"].tolist() == list(range(10))
    kinds = ["prefill", *["decode"] * 3, "mixed", *["decode"] * 5]
    assert rows["kind"].tolist() == kinds
    assert p.steps.frame["name"].tolist() == [f"{kind} {i}" for i, kind in enumerate(kinds)]
    np.testing.assert_allclose(p.steps.frame["step_time_ms"], rows["time_ms"])
    first = 1 if annotate is sglang else 0
    for part in PARTS:
        # What was launched before the first annotation is of no iteration.
        expected = [one.get(part, 0.0) for one in sums]
        np.testing.assert_allclose(
            rows[f"{part}_ms"][first:], expected[first:], atol=1e-9, err_msg=part
        )
    ends = [max(end for _, end in one) for one in spans]
    begins = [min(begin for begin, _ in one) for one in spans]
    gaps = [max(begin - max(ends[:i]), 0) / 1000 for i, begin in enumerate(begins) if i]
    np.testing.assert_allclose(rows["gap_ms"], [np.nan, *gaps], atol=1e-9)
    # It ends with its last work, or, where the device has long done it, with the last launch.
    stop = rows["start_ms"] + rows["time_ms"] + min(e["ts"] for e in k.events) / 1000
    assert (stop >= np.array(ends) / 1000 - 1e-9).all()
    if overlap:
        np.testing.assert_allclose(stop[1:4], np.array(ends[1:4]) / 1000, atol=1e-9)
    assert not rows["cut"].any()


@pytest.mark.parametrize("annotate", [vllm, sglang])
def test_kinds_are_summed_apart(tmp_path, annotate):
    p = profile(tmp_path, serve(Engine(annotate)))
    rows, summary = p.serving.frame, p.serving.summary.set_index("kind")
    assert summary.index.tolist() == ["prefill", "mixed", "decode"]
    assert summary["iterations"].tolist() == [1, 1, 8]
    decode = rows[rows["kind"] == "decode"]
    times = decode["time_ms"].to_numpy()
    assert summary.loc["decode", "median_ms"] == np.median(times)
    assert summary.loc["decode", "p99_ms"] == pytest.approx(np.percentile(times, 99))
    assert summary["percent"].sum() == pytest.approx(100)
    assert summary.loc["decode", ["prefill_tokens", "decode_tokens"]].tolist() == [0, 13]
    assert summary.loc["decode", "tokens_per_s"] == pytest.approx(13 / times.sum() * 1000)
    assert decode["token_ms"].tolist() == decode["time_ms"].tolist()
    assert pd.isna(summary.loc["prefill", "token_ms"])
    # SGLang does not say how many tokens of a mixed batch are whose.
    mixed = summary.loc["mixed", ["prefill_tokens", "decode_tokens", "tokens_per_s", "token_ms"]]
    assert mixed.isna().all() if annotate is sglang else mixed.tolist()[:2] == [25, 1]
    assert summary.loc["mixed", "requests"] == 2
    parts = p.serving.parts.set_index(["kind", "part"])
    assert parts.loc[("decode", "attention"), "total_ms"] == pytest.approx(
        decode["attention_ms"].sum()
    )
    assert parts.groupby("kind")["percent"].sum().tolist() == pytest.approx([100] * 3)


def test_the_average_is_of_one_kind_and_nothing_warms_up(tmp_path):
    p = profile(tmp_path, serve(Engine()))
    steps = p.steps.frame
    assert not steps["warmup"].any()
    assert steps.loc[steps["counted"], "kind"].unique().tolist() == ["decode"]
    assert "10 iterations of an inference engine, by its annotations." in str(p.receipt)


@pytest.mark.parametrize(("annotate", "graphs", "overlap"), FORMS)
def test_an_engine_gets_no_advice_on_training(tmp_path, annotate, graphs, overlap):
    p = profile(tmp_path, serve(Engine(annotate, graphs=graphs, overlap=overlap)))
    assert p.advice.empty
    assert "DataLoader:" not in str(p.receipt)


def test_an_iteration_that_the_recording_cut_off_is_in_no_sum(tmp_path):
    k = serve(Engine())
    last = max(e["args"]["correlation"] for e in k.events if e["cat"] == "kernel") - len(LAYER)
    k.events = [e for e in k.events if e["cat"] != "kernel" or e["args"]["correlation"] <= last]
    p = profile(tmp_path, k)
    assert p.serving.frame["cut"].tolist() == [False] * 9 + [True]
    assert p.serving.summary["iterations"].sum() == 9


def test_old_annotations_leave_open_who_decodes(tmp_path):
    k = Engine(overlap=True)
    for name in ("execute_new_1_cached_0", "execute_new_0_cached_1", "execute_new_1_cached_1"):
        k.iteration(decode=(1, 1), name=name)
    p = profile(tmp_path, k)
    rows = p.serving.frame
    assert [kind if isinstance(kind, str) else None for kind in rows["kind"]] == [
        "prefill",
        None,
        None,
    ]
    assert rows["requests"].tolist() == [1, 1, 2]
    assert rows[["decode_tokens", "token_ms"]][1:].isna().all(axis=None)
    assert p.steps.frame["name"].tolist() == ["prefill 0", "iteration 1", "iteration 2"]
    summary = p.serving.summary
    assert summary["iterations"].tolist() == [1, 2]
    assert pd.isna(summary["kind"].iloc[1])


def test_batches_of_python_calls_have_the_kind_of_the_pass_in_them(tmp_path):
    k = Kineto()
    for i, mode in enumerate(("extend", "decode", "decode", "idle")):
        at = 100.0 * i
        k.add("sglang/srt/managers/scheduler.py(2046): run_batch", "python_function", at, 60)
        k.add(
            f"sglang/srt/model_executor/model_runner.py(1800): forward_{mode}",
            "python_function",
            at + 5,
            40,
        )
        k.launched("nvjet_hsh", at + 10, at + 15, 20, k.op("aten::mm", at + 9, 5))
    p = profile(tmp_path, k)
    assert p.serving.frame["kind"].tolist() == ["prefill", "decode", "decode", "idle"]
    assert p.serving.frame["requests"].isna().all()
    assert p.serving.summary[["requests", "decode_tokens", "tokens_per_s"]].isna().all(axis=None)
    assert p.serving.frame["gemm_ms"].tolist() == pytest.approx([0.02] * 4)


def test_a_step_of_a_trainer_holds_iterations_and_stays_the_step(tmp_path):
    def rollout(mark):
        k = Engine(overlap=True)
        for i in range(2):
            begin = k.at - 1
            k.iteration(prefill=(1, 4))
            k.iteration(decode=(1, 1))
            mark(k, i, begin)
        return k

    stepped = profile(tmp_path, rollout(lambda k, i, begin: k.step(i, begin, k.at - begin)))
    assert stepped.steps.frame["name"].tolist() == ["ProfilerStep#0", "ProfilerStep#1"]
    assert stepped.serving.frame.empty
    trained = profile(
        tmp_path, rollout(lambda k, _, begin: k.note("Optimizer.step#AdamW.step", k.at - 5, 3))
    )
    assert len(trained.steps.frame) == 2
    assert trained.serving.frame.empty


def test_the_profilers_own_steps_may_go_with_the_iterations(tmp_path):
    k = Engine(overlap=True)
    for i in range(4):
        begin = k.at - 1
        k.iteration(decode=(1, 1))
        k.step(i, begin, k.at - begin - 1)
    assert profile(tmp_path, k).serving.frame["kind"].tolist() == ["decode"] * 4


def test_of_annotations_in_each_other_the_outer_one_counts(tmp_path):
    k = Engine(sglang, overlap=True)
    for _ in range(3):
        begin = k.at - 1
        k.iteration(decode=(2, 2))
        k.note(
            "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk9sqsq2sqsk9)",
            begin,
            k.at - begin - 30,
        )
    rows = profile(tmp_path, k).serving.frame
    assert rows["name"].str.startswith("execute_2").tolist() == [True] * 3
    assert rows["requests"].tolist() == [2, 2, 2]


def test_ranks_have_iterations_of_their_own(tmp_path):
    ranks = [serve(Engine(distributedInfo={"rank": i, "world_size": 2})) for i in range(2)]
    p = profile(tmp_path, *ranks)
    assert p.serving.frame.groupby("host").size().tolist() == [10, 10]
    assert p.serving.summary["iterations"].tolist() == [2, 2, 16]


def test_ranks_that_are_read_apart_have_what_they_have_together(tmp_path):
    folder = tmp_path / "ranks"
    folder.mkdir()
    for i in range(3):
        k = serve(
            Engine(
                overlap=i == 1,
                distributedInfo={"rank": i, "world_size": 3},
                baseTimeNanoseconds=10**18 + 10**6 * i,
            )
        )
        (folder / f"rank{i}.1623143089861.pt.trace.json").write_bytes(k.encode())
    apart, joint = nbprof.load(folder, executor=1), nbprof.load(folder)
    for name in ("frame", "summary", "parts"):
        pd.testing.assert_frame_equal(getattr(apart.serving, name), getattr(joint.serving, name))
    assert len(joint.serving.frame) == 30
    assert not apart.steps.frame["warmup"].any()
    assert apart.advice.equals(joint.advice)
    assert apart.payload()["input"]["empty"]["title"] == "No input pipeline in this run"


def test_a_toy_engine_that_ran_on_the_cpu():
    path = HERE / "engine.pt.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    notes = sorted(
        (e["ts"], e["name"], e["dur"])
        for e in events
        if e.get("cat") == "user_annotation" and e["name"].startswith("execute_")
    )
    sampled = [e["ts"] + e["dur"] for e in events if e.get("name") == "aten::multinomial"]
    p = load(path)
    rows = p.serving.frame
    assert rows["name"].tolist() == [name for _, name, _ in notes]
    assert rows["kind"].tolist() == ["prefill", *["decode"] * 5]
    assert rows["prefill_tokens"].tolist() == [12, 0, 0, 0, 0, 0]
    # Sampling, which is behind the annotation, is part of the iteration.
    assert (
        rows["time_ms"]
        >= [(end - begin) / 1000 for (begin, *_), end in zip(notes, sorted(sampled), strict=True)]
    ).all()
    assert (
        rows["time_ms"].to_numpy()[:-1] <= np.diff([begin for begin, *_ in notes]) / 1000 + 1e-6
    ).all()
    assert rows[["gap_ms", "busy_ms", *(f"{part}_ms" for part in PARTS)]].isna().all(axis=None)
    assert p.serving.parts.empty
    assert p.advice.empty


def test_the_tab_has_a_table_by_kind_and_one_by_part(tmp_path):
    p = profile(tmp_path, serve(Engine(graphs=True)))
    part = p.payload()["input"]
    assert part["empty"]["title"] == "No input pipeline in this run"
    assert part["statement"] == ""
    kinds, parts = part["serving"]["kinds"], part["serving"]["parts"]
    assert kinds["rows"] == 3
    assert [column["key"] for column in parts["columns"]] == ["part", "prefill", "mixed", "decode"]
    expected = p.serving.parts.query("kind == 'decode'").set_index("part")["mean_ms"]
    assert parts["rows"] == len(expected) == 8
    np.testing.assert_allclose(parts["data"]["decode"], [expected[key] for key in PARTS], rtol=1e-6)
    assert "serving" not in profile(tmp_path, Kineto()).payload()["input"]
    # Kernels of a replay that no op is known for are no ops of the iteration, which holds
    # everything.
    assert not p.ops.frame["op"].str.startswith("execute_").any()
    assert set(p.overview["checks"]["check"]) == {
        "output",
        "device_collectives",
        "kernel_launch",
        "all_others",
        "precision",
    }


def test_parts_by_kernel_then_by_op():
    assert (
        part_of("void at::native::vectorized_elementwise_kernel<4>", "vllm::rotary_embedding")
        == "attention"
    )
    assert part_of("ampere_bf16_s16816gemm_bf16_128x64", "aten::mm") == "gemm"
    assert part_of("some_kernel", "aten::addmm", product=True) == "gemm"
    assert (
        part_of("void at::native::distribution_elementwise_grid_stride_kernel", "aten::normal_")
        == "other"
    )
    assert part_of("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu") == "moe"
    assert part_of("void vllm::moe::topkGatingSoftmax<8, 256>") == "moe"
    assert part_of("void at::native::upsample_nearest2d_out_frame") == "other"
    assert part_of("BatchDecodeWithPagedKVCacheKernel") == "attention"


def test_another_program_has_none(tmp_path):
    k = Kineto()
    k.note("step[forward]", 0, 10)
    k.note("execute_context_manager", 20, 10)
    p = profile(tmp_path, k)
    assert p.serving.frame.empty
    assert p.serving.summary.empty
    assert p.serving.parts.empty
    assert "No annotations of an inference engine" in repr(p.serving)
