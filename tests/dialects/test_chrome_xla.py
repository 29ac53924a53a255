"""Chrome traces that are not PyTorch's."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from nbprof.profiles.load import load as load_xspace
from tests.support.kineto import load, profile
from tests.support.profiles import real
from tests.support.xspace import gpu_run

DATA = Path(__file__).parents[1] / "data"


def test_what_jax_exports_reads_like_what_it_recorded():
    exported, recorded = (
        load(DATA / "chrome" / "jax_cpu.trace.json.gz"),
        load_xspace(DATA / "xspace" / "jax_cpu.xplane.pb"),
    )
    columns = ["step", "name", "step_time_ms", "host_compute_ms", "other_ms", "kind"]
    pd.testing.assert_frame_equal(
        exported.steps.frame[columns], recorded.steps.frame[columns], atol=1e-5
    )
    assert exported.overview["framework"] == recorded.overview["framework"] == "JAX"
    assert "xla_export" in set(exported.receipt.notes["key"])


def gpu_export():
    """`tests.support.xspace.gpu_run` as XLA's exporter writes it: every arg a text."""
    detail = "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75"
    events = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {
            "ph": "M",
            "pid": 1,
            "tid": 7,
            "name": "thread_name",
            "args": {"name": "Stream #7(Compute)"},
        },
        {"ph": "M", "pid": 1, "tid": 8, "name": "thread_name", "args": {"name": "Steps"}},
        {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "M", "pid": 701, "tid": 1, "name": "thread_name", "args": {"name": "python"}},
    ]

    def add(pid, tid, name, ts, dur, **args):
        events.append(
            {
                "ph": "X",
                "pid": pid,
                "tid": tid,
                "ts": ts,
                "dur": dur,
                "name": name,
                "args": {"group_id": "1", **args},
            }
        )

    add(1, 7, "MemcpyHToD", 0, 1000, correlation_id="1")
    add(
        1,
        7,
        "sgemm",
        3000,
        2000,
        correlation_id="2",
        kernel_details=detail,
        tf_op="dense/MatMul:MatMul",
    )
    add(
        1,
        7,
        "volta_h884gemm_fp16",
        5000,
        2000,
        correlation_id="3",
        kernel_details=detail,
        tf_op="dense/MatMul:MatMul",
    )
    add(1, 7, "MemcpyDToH", 7000, 1000, correlation_id="4")
    add(1, 8, "1", 0, 8000, step_name="train 5")
    add(701, 1, "train", 0, 10000, step_num="5")
    add(701, 1, "ExecutorState::Process", 1000, 2000)
    return json.dumps(
        {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": events}
    ).encode()


def test_a_gpu_export_has_the_figures_of_the_file_beside_it(tmp_path):
    exported = profile(tmp_path, gpu_export())
    (tmp_path / "b.xplane.pb").write_bytes(gpu_run())
    recorded = load_xspace(tmp_path / "b.xplane.pb")
    for mine, theirs in (
        (exported.steps.frame, recorded.steps.frame),
        (exported.ops.frame, recorded.ops.frame),
        (exported.kernels.frame, recorded.kernels.frame),
    ):
        pd.testing.assert_frame_equal(
            mine.drop(columns="host", errors="ignore"), theirs.drop(columns="host", errors="ignore")
        )


def test_ops_are_those_of_long_names_and_annotations(tmp_path):
    """As TensorFlow 2.4 exports them: a short name in place of the op's, and kernels that state no
    op, but what they were annotated with.
    """
    exported = json.loads(gpu_export())
    for event in exported["traceEvents"]:
        if "tf_op" in event.get("args", {}):
            event["args"]["annotation"] = event["args"].pop("tf_op") + "#edge_name=copy#"
    host = {"ph": "X", "pid": 701, "tid": 1, "group_id": "1"}
    exported["traceEvents"] += [
        {**host, "ts": 1200, "dur": 300, "name": "Mul", "args": {"long_name": "Adam/mul:Mul"}},
        {**host, "ts": 1600, "dur": 200, "name": "Mul", "args": {"long_name": "loss/mul:Mul"}},
        {
            "ph": "X",
            "pid": 1,
            "tid": 7,
            "ts": 7000,
            "dur": 1,
            "name": "MemcpyDToH",
            "args": {"annotation": "#edge_name=copy#"},
        },
    ]
    p = profile(tmp_path, json.dumps(exported).encode())
    ops = p.ops.frame.set_index(["where", "op"])
    assert ops.index.tolist() == [
        ("device", "dense/MatMul"),
        ("host", "Adam/mul"),
        ("host", "loss/mul"),
    ]
    assert ops["type"].tolist() == ["MatMul", "Mul", "Mul"]
    assert ops["total_us"].tolist() == [4000.0, 300.0, 200.0]
    assert set(p.trace.events()["name"]) >= {"Adam/mul:Mul", "loss/mul:Mul"}


def test_the_ops_of_a_real_export_are_those_of_the_file_beside_it():
    folder = real("findings/D2-tf-trace-json")
    exported, recorded = (
        load(folder / "sandor.trace.json.gz").ops.frame,
        load_xspace(folder / "sandor.xplane.pb").ops.frame,
    )
    columns = ["where", "type", "op", "occurrences", "total_us", "self_us", "eager"]
    assert len(recorded) == 95
    pd.testing.assert_frame_equal(exported[columns], recorded[columns])


def test_any_other_trace_is_shown_and_every_view_says_why_it_is_empty(tmp_path):
    events = [
        {"ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 10, "name": "draw", "cat": "gpu"},
        {"ph": "B", "pid": 1, "tid": 2, "ts": 6, "name": "wait"},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 9},
    ]
    p = profile(tmp_path, json.dumps(events).encode())
    assert p.trace.events()["name"].tolist() == ["draw", "wait"]
    payload = p.payload()
    assert payload["trace"]["empty"] is None
    for view in ("steps", "input", "ops", "kernels", "memory"):
        assert "plain trace" in payload[view]["empty"]["text"], view
    # None of these tabs is offered, and the trace comes first; the overview says what the file is.
    assert [tab["id"] for tab in payload["meta"]["tabs"]] == ["trace", "overview"]
    assert payload["meta"]["facts"][0] == "2 events"
    assert payload["meta"]["notice"] is None
    assert payload["overview"]["verdict"]["word"] == "Plain trace"
    assert ("Holds", "2 events on 2 lanes of 1 process") in payload["overview"]["run"]
    # Nothing says that it ran on a CPU alone.
    assert p.overview["device_kind"] is None
    assert p.advice.empty
    assert p.text()
