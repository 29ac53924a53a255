"""Kernels of torch.compile go by the lines and ATen ops that inductor made them of."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

import nbprof
from tests.data.record import HERE
from tests.support.graphs import Graphed
from tests.support.kineto import Kineto

RECORDED = HERE / "torch" / "compiled"
TRACES = "inductor_provenance_tracking_kernel_stack_traces"
NODES = "inductor_provenance_tracking_node_mappings"


def lines(calls: list[tuple[str, int]]) -> str:
    return json.dumps(
        {
            f"{name}:{i}": [f'  File "/srv/app/net.py", line {line}, in forward\n']
            for i, (name, line) in enumerate(calls, 1)
        }
    )


def run(k: Kineto, at: float, *called: str, graph: str = "fabc", captured: bool = False) -> float:
    """One run of a compiled graph on a GPU: an allocation, then the calls, each with a kernel."""
    k.note(f"## Call CompiledFxGraph {graph} ##", at, 10 + 30 * len(called))
    k.op("aten::empty_strided", at + 1, 3)
    for i, name in enumerate(called):
        begin = at + 10 + 30 * i
        op = k.op(name, begin, 20)
        if name.startswith("aten"):
            op = k.op("aten::cublas", begin + 1, 15)
        call = k.call("cuLaunchKernel", begin + 5, 4, op)
        if not captured:
            k.kernel(name.replace("aten::", "gemm_"), begin + 12, 10, call)
    return at + 20 + 30 * len(called)


def sources(tmp_path, k: Kineto, **beside: str):
    (tmp_path / "run.pt.trace.json").write_bytes(k.encode())
    for name, text in beside.items():
        (tmp_path / f"{name}.json").write_text(text)
    frame = nbprof.load(tmp_path / "run.pt.trace.json").kernels.frame
    said = (
        frame[["source", "aten_ops"]]
        .astype(object)
        .where(frame[["source", "aten_ops"]].notna(), None)
    )
    return {
        kernel: said[frame["kernel"] == kernel].values.tolist()
        for kernel in frame["kernel"].unique()
    }


def test_a_recorded_run():
    p = nbprof.load(RECORDED)
    table = p.torch_ops.by("source").set_index("op")
    assert set(table.loc["aten::addmm", "source"]) == {"net.py:14", "net.py:16"}
    forward = table.loc["graph_0_cpp_fused_add_mul_relu_threshold_backward_0"]
    assert (forward["source"], forward["aten_ops"], forward["calls"]) == (
        "net.py:15, net.py:14", "aten::add, aten::mul, aten::relu, aten::le", 3
    )  # fmt: skip
    backward = table.loc["graph_0_cpp_fused_sum_2"]
    assert (backward["source"], pd.isna(backward["aten_ops"])) == ("net.py:14", True), (
        "inductor does not name the nodes of the backward pass"
    )
    for op, calls in (("aten::mm", {"net.py:14": 3, "net.py:16": 6}),):
        assert table.loc[op].set_index("source")["calls"].to_dict() == calls
    assert "Op time is attributed: 95.7 % to an nn.Module, 100 % to a line of code." in str(
        p.receipt
    )
    whole = p.torch_ops.frame["host_self_us"].sum()
    assert p.torch_ops.by("source")["host_self_us"].sum() == pytest.approx(whole)


def test_without_the_files_the_line_is_where_the_function_begins(tmp_path):
    shutil.copy(RECORDED / "cpu.pt.trace.json.gz", tmp_path)
    table = nbprof.load(tmp_path).torch_ops.by("source").set_index("op")
    assert table.loc["aten::addmm", "source"] == "net.py:13"
    assert table["aten_ops"].isna().all()


def test_kernels_of_several_graphs_with_the_same_names(tmp_path):
    k = Kineto()
    at = run(k, 0, "triton_poi_fused_add_0", "aten::mm", "triton_poi_fused_add_0")
    at = run(k, at, "triton_poi_fused_add_0", "triton_red_fused_sum_1", graph="fdef")
    first = [("triton_poi_fused_add_0", 1), ("extern_kernels.mm", 2), ("triton_poi_fused_add_0", 3)]
    second = [("triton_poi_fused_add_0", 4), ("triton_red_fused_sum_1", 5)]
    nodes = {
        "cppCodeToPost": {
            "triton_poi_fused_add_0:1": ["add_2"],
            "triton_red_fused_sum_1:2": ["sum_1", "mul"],
        }
    }
    found = sources(
        tmp_path,
        k,
        **{
            f"{TRACES}_0": lines(first),
            f"{TRACES}_1": lines(second),
            f"{NODES}_1": json.dumps(nodes),
        },
    )
    assert found == {
        "triton_poi_fused_add_0": [
            ["/srv/app/net.py:1, /srv/app/net.py:3, /srv/app/net.py:4", "aten::add"]
        ],
        "gemm_mm": [["/srv/app/net.py:2", None]],
        "triton_red_fused_sum_1": [["/srv/app/net.py:5", "aten::mul, aten::sum"]],
    }


def test_ops_of_the_place_not_of_the_name_and_in_their_namespace(tmp_path):
    """Places compiled to the same code share a kernel, which is named by the ops of the first: relu
    is clamp_min and maximum with 0.
    """
    k = Kineto()
    run(k, 0, "triton_poi_fused_clamp_min_1", "aten::mm")
    calls = [("triton_poi_fused_clamp_min_1", 28), ("extern_kernels.mm", 29)]
    nodes = {"cppCodeToPost": {"triton_poi_fused_clamp_min_1:1": ["full_default", "maximum", "convert_element_type_2", "arg1_1"],
                               "extern_kernels.mm:2": ["mm"]}}  # fmt: skip
    found = sources(tmp_path, k, **{TRACES: lines(calls), NODES: json.dumps(nodes)})
    assert found["triton_poi_fused_clamp_min_1"] == [
        ["/srv/app/net.py:28", "aten::full, aten::maximum, prims::convert_element_type"]
    ]


def test_of_graphs_that_call_the_same_what_they_share_is_said(tmp_path):
    k = Kineto()
    run(k, 0, "triton_poi_fused_add_0", "aten::mm")
    one = [("triton_poi_fused_add_0", 1), ("extern_kernels.mm", 2)]
    found = sources(
        tmp_path,
        k,
        **{f"{TRACES}_0": lines(one), f"{TRACES}_1": lines([one[0], ("extern_kernels.mm", 9)])},
    )
    assert found == {
        "triton_poi_fused_add_0": [["/srv/app/net.py:1", None]],
        "gemm_mm": [[None, None]],
    }


def test_calls_in_another_order_are_of_another_graph(tmp_path):
    k = Kineto()
    run(k, 0, "aten::mm", "triton_poi_fused_add_0")
    found = sources(
        tmp_path, k, **{TRACES: lines([("triton_poi_fused_add_0", 1), ("extern_kernels.mm", 2)])}
    )
    # The name of a fused kernel is enough where it means one thing; that of a library call is not.
    assert found == {
        "triton_poi_fused_add_0": [["/srv/app/net.py:1", None]],
        "gemm_mm": [[None, None]],
    }


def test_a_compiled_graph_that_was_captured(tmp_path):
    k = Graphed()
    k.call("cudaStreamBeginCapture", 0, 2)
    k.at = run(k, 10, "triton_poi_fused_add_0", "aten::mm", captured=True)
    k.call("cudaStreamEndCapture", k.at, 2)
    for replay in range(3):
        launch = k.call("cudaGraphLaunch", k.at + 100 * replay + 10, 5)
        for node, name in enumerate(("triton_poi_fused_add_0", "gemm_mm"), 1):
            given = {"graph id": 4, "graph node id": (4 << 32) + node}
            k.kernel(name, k.at + 100 * replay + 20 * node, 10, launch, **given)
    found = sources(
        tmp_path, k, **{TRACES: lines([("triton_poi_fused_add_0", 1), ("extern_kernels.mm", 2)])}
    )
    assert found == {
        "triton_poi_fused_add_0": [["/srv/app/net.py:1", None]],
        "gemm_mm": [["/srv/app/net.py:2", None]],
    }
    receipt = str(nbprof.load(tmp_path / "run.pt.trace.json").receipt)
    assert (
        "Kernel time is attributed: 100 % to an op, 0 % to an nn.Module, 100 % to a line of code."
        in receipt
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    k = Kineto()
    run(k, 0, "aten::mm")
    sources(tmp_path, k, **{TRACES: "{"})
    assert f"! {TRACES}.json next to the trace is not valid inductor output" in str(
        nbprof.load(tmp_path / "run.pt.trace.json").receipt
    )
