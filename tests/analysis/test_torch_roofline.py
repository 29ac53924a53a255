"""PyTorch's ops under the roof: which op device work counts for, what is unknown, peaks by
precision, and a model's FLOPs by step.
"""

from __future__ import annotations

import numpy as np
import pytest

import nbprof
from nbprof.display import codec
from nbprof.profiles.report.static import static_html
from nbprof.tools import dashboard
from nbprof.tools.hlo import payload
from tests.support.kineto import BACKWARD, Kineto, profile

A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "computeMajor": 8,
    "computeMinor": 0,
    "numSms": 108,
    "totalGlobalMem": 80 << 30,
}
TENSOR, SIMT, PLAIN = (
    "ampere_bf16_s16816gemm_bf16_128x128",
    "ampere_sgemm_128x64_nn",
    "vectorized_elementwise_kernel",
)
M = 1024


def made(dims, kind="c10::BFloat16", values=None):
    """What is recorded of inputs of one type; a number has no dimensions."""
    strides = [[int(np.prod(shape[i + 1 :])) for i in range(len(shape))] for shape in dims]
    types = [kind if shape else "Scalar" for shape in dims]
    return {
        "Input Dims": dims,
        "Input Strides": strides,
        "types": types,
        "Concrete Inputs": values or ["" if shape else "1" for shape in dims],
    }


MM = made([[M, M], [M, M]])


def run(folder, *events, steps=1, device=A100):
    """Steps of 1 ms with what `events` add to each, at its begin."""
    trace = Kineto(deviceProperties=[device])
    for i in range(steps):
        trace.step(i, 1000 * i, 1000)
        for add in events:
            add(trace, 1000.0 * i)
    return profile(folder, trace)


def op(name, at=0, kernel=TENSOR, took=100, said=MM, inner="", tid=100, **more):
    """An op with a kernel, launched by it or by an op in it."""

    def add(trace, begin):
        outer = trace.op(name, begin + at, 50, tid, **said, **more)
        by = trace.op(inner, begin + at + 1, 48, tid, **MM) if inner else outer
        trace.launched(kernel, begin + at + 2, begin + at + 60, took, by, tid)

    return add


def rows(p):
    return p.roofline.frame.set_index("op")


def test_a_product_counts_where_it_is_launched_and_once(tmp_path):
    linear = made([[M, M], [M, M], [M]])
    p = run(tmp_path, op("aten::linear", said=linear, inner="aten::mm"))
    frame = rows(p)
    assert frame.index.tolist() == ["aten::mm"]
    assert frame.loc["aten::mm", "flops"] == 2 * M**3
    assert frame.loc["aten::mm", "bytes"] == 3 * M * M * 2
    assert frame.loc["aten::mm", "input_shapes"] == "[[1024, 1024], [1024, 1024]]"
    assert p.roofline.total["model_flops"] == 2 * M**3


def test_attention_counts_outside_where_its_heads_are_not_padded(tmp_path):
    shapes = made([[1, 4, M, 60]] * 3)
    padded = made([[1, M, 4, 64]] * 3)

    def add(trace, begin):
        trace.op("aten::_scaled_dot_product_flash_attention", begin, 50, **shapes)
        by = trace.op("aten::_flash_attention_forward", begin + 1, 40, **padded)
        trace.launched("flash_fwd_kernel<bf16>", begin + 2, begin + 60, 100, by)

    p = run(tmp_path, add)
    assert rows(p)["flops"].to_dict() == {
        "aten::_scaled_dot_product_flash_attention": 4 * 4 * M * M * 60
    }


def test_the_peak_is_that_of_the_precision(tmp_path):
    single = made([[M, M], [M, M]], "float")
    p = run(
        tmp_path,
        op("aten::mm"),
        op(
            "aten::addmm",
            200,
            "ampere_tf32_s1688gemm_tf32",
            said=made([[M], [M, M], [M, M], [], []], "float"),
        ),
        op("aten::bmm", 400, SIMT, said=made([[1, M, M], [1, M, M]], "float")),
        op("aten::mul", 600, PLAIN, said=single),
    )
    frame = rows(p)
    assert frame["precision"].to_dict() == {
        "aten::mm": "bfloat16",
        "aten::addmm": "tf32",
        "aten::bmm": "float32",
        "aten::mul": "float32",
    }
    rate = 2 * M**3 / 100e-6
    for name, peak in (("aten::mm", 312e12), ("aten::addmm", 156e12), ("aten::bmm", 19.5e12)):
        assert frame.loc[name, "compute_fraction"] == pytest.approx(rate / peak)
    assert frame.loc["aten::mul", "bandwidth_fraction"] == pytest.approx(
        3 * M * M * 4 / 100e-6 / 2.039e12
    )
    assert frame.loc["aten::mul", "bound_by"] == "HBM"
    assert p.roofline.peaks.flops_per_second == 312e12
    # A given peak is one for all.
    given = p.roofline(peak_flops=1e15).frame.set_index("op")
    assert given["compute_fraction"]["aten::bmm"] == pytest.approx(rate / 1e15)
    step = p.roofline.steps.iloc[0]
    assert step["model_flops"] == 3 * 2 * M**3
    seconds = step["step_time_ms"] / 1e3
    assert step["mfu_fraction"] == pytest.approx(
        2 * M**3 * (1 / 312e12 + 1 / 156e12 + 1 / 19.5e12) / seconds
    )


def test_what_has_no_formula_is_unknown_and_no_waste(tmp_path):
    p = run(
        tmp_path,
        op("aten::mm"),
        op("triton_poi_fused_add_0", 200, "triton_poi_fused_add_0", 300, made([[M, M]])),
        op("aten::mm", 600, took=100, said=made([[M, 7], [9, M]])),
    )
    frame = p.roofline.frame
    assert frame["op"].tolist() == ["triton_poi_fused_add_0", "aten::mm", "aten::mm"]
    lost = frame[frame["flops"].isna()]
    assert lost["occurrences"].tolist() == [1, 1]
    assert (
        lost[["bytes", "flops_per_second", "bytes_per_second", "roof_fraction", "wasted_us"]]
        .isna()
        .all(axis=None)
    )
    known = frame[frame["flops"].notna()].iloc[0]
    assert known["wasted_us"] == pytest.approx(100 * (1 - known["roof_fraction"]))
    assert p.roofline.total["unknown_fraction"] == pytest.approx(400 / 500)
    assert p.roofline.steps["unknown_fraction"].tolist() == pytest.approx([0.8])
    # 640 µs from the first begin to the last end, of which 400 are unknown.
    assert p.roofline.total["flops_per_second"] == pytest.approx(2 * M**3 / 300e-6)


def test_a_step_whose_products_are_all_unknown_has_no_model_flops(tmp_path):
    p = run(
        tmp_path, op("aten::add", kernel=PLAIN, said=made([[M], [M], []])), op("my::attention", 200)
    )
    step = p.roofline.steps.iloc[0]
    assert np.isnan(step["model_flops"])
    assert np.isnan(step["mfu_fraction"])
    figure = next(one for one in payload.payload(p.run)["figures"] if one["key"] == "mfu")
    assert figure["value"] is None
    assert figure["note"].startswith("no matrix product of known cost")


def test_time_beside_known_work_is_not_taken_away(tmp_path):
    """A collective of 400 µs, the first 100 of which run beside a product."""

    def collective(trace, begin):
        by = trace.op("nccl:all_reduce", begin + 52, 6, **made([[M]]))
        trace.launched(
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", begin + 53, begin + 60, 400, by, stream=9
        )

    p = run(tmp_path, op("aten::mm"), collective)
    frame = rows(p)
    assert frame.loc["nccl:all_reduce", "category"] == "communication"
    assert p.roofline.total["flops_per_second"] == pytest.approx(2 * M**3 / 100e-6)
    assert p.roofline.total["unknown_fraction"] == pytest.approx(0.8)


def test_copies_within_the_device_are_held_against_its_memory_and_those_to_the_host_are_not(
    tmp_path,
):
    def copy(trace, begin):
        by = trace.op(
            "aten::copy_", begin, 20, **made([[M, M], [M, M], []], values=["", "", "False"])
        )
        trace.copy(
            "Memcpy DtoD (Device -> Device)",
            begin + 60,
            10,
            trace.call("cudaMemcpyAsync", begin + 1, 1, by),
        )
        to_host = trace.op(
            "aten::copy_", begin + 30, 20, **made([[M, M], [M, M], []], values=["", "", "False"])
        )
        trace.copy(
            "Memcpy DtoH (Device -> Pinned)",
            begin + 80,
            10,
            trace.call("cudaMemcpyAsync", begin + 31, 1, to_host),
        )

    frame = run(tmp_path, copy).roofline.frame.set_index("category")
    assert frame.loc["copy", "bandwidth_fraction"] == pytest.approx(
        2 * M * M * 2 / 10e-6 / 2.039e12
    )
    assert np.isnan(frame.loc["host transfer", "bytes_per_second"])


def test_what_ran_again_for_the_backward_pass_is_not_of_the_model(tmp_path):
    def backward(trace, begin):
        trace.op(
            "CheckpointFunctionBackward",
            begin + 200,
            400,
            BACKWARD,
            **{"Sequence number": 7, "Fwd thread id": 1},
        )
        again = trace.op(
            "aten::mm",
            begin + 210,
            40,
            BACKWARD,
            **MM,
            **{"Sequence number": 9, "Fwd thread id": 0},
        )
        trace.launched(TENSOR, begin + 212, begin + 300, 100, again, BACKWARD)
        trace.op(
            "MmBackward0", begin + 260, 200, BACKWARD, **{"Sequence number": 9, "Fwd thread id": 1}
        )
        for i in range(2):
            by = trace.op("aten::mm", begin + 270 + 50 * i, 40, BACKWARD, **MM)
            trace.launched(TENSOR, begin + 272 + 50 * i, begin + 410 + 110 * i, 100, by, BACKWARD)

    p = run(tmp_path, op("aten::mm", **{"Sequence number": 7, "Fwd thread id": 0}), backward)
    step = p.roofline.steps.iloc[0]
    assert step["model_flops"] == 3 * 2 * M**3
    assert step["recomputed_flops"] == 2 * M**3
    assert p.roofline.total["recomputed_flops"] == 2 * M**3


def test_a_device_that_no_data_sheet_is_known_of(tmp_path):
    p = run(tmp_path, op("aten::mm"), device={**A100, "name": "GPU of tomorrow"})
    frame = rows(p)
    assert frame.loc["aten::mm", "flops_per_second"] == pytest.approx(2 * M**3 / 100e-6)
    assert frame[["roof_fraction", "wasted_us"]].isna().all(axis=None)
    assert np.isnan(p.roofline.steps["mfu_fraction"].iloc[0])
    assert p.roofline.missing.startswith(
        "The peak FLOP/s and memory bandwidth of GPU of tomorrow are unknown: pass"
    )
    (figure,) = [one for one in payload.payload(p.run)["figures"] if one["key"] == "mfu"]
    assert figure["note"] == "peaks unknown"


def test_without_shapes_there_is_no_roofline_and_it_says_how(tmp_path):
    p = run(tmp_path, op("aten::mm", said={}))
    assert not payload.has(p.run)
    assert p.roofline.frame.empty
    assert "record_shapes=True" in p.roofline.missing
    assert "record_shapes=True" in repr(p.roofline)


def test_the_tab(tmp_path):
    p = run(
        tmp_path,
        op("aten::mm"),
        op("aten::add", 200, PLAIN, said=made([[M], [M], []])),
        op("my::op", 400),
        steps=3,
    )
    whole = dashboard.dashboard(p.run)
    codec.pack(whole)
    assert {"id": "hlo", "label": "Roofline", "count": None, "flag": None} in whole["meta"]["tabs"]
    part = whole["hlo"]
    assert part["table"]["rows"] == 3
    figures = {one["key"]: one for one in part["figures"]}
    assert figures["self_time"]["note"].startswith("3 ops")
    assert figures["mfu"]["value"] == pytest.approx(100 * p.roofline.steps["mfu_fraction"].mean())
    assert "cost unknown for" in figures["mfu"]["note"]
    shapes = part["table"]["data"]["input_shapes"]
    assert "[[1024], [1024]]" in [shapes["values"][code] for code in shapes["codes"]], (
        "without what is no tensor"
    )
    html = static_html(whole)
    assert "Top ops under the roofline" in html
    assert "aten::mm" in html


def test_hosts_that_are_read_apart_add_up(tmp_path):
    one, two = Kineto(deviceProperties=[A100]), Kineto(deviceProperties=[A100])
    for trace, length in ((one, 100), (two, 300)):
        trace.step(0, 0, 1000)
        op("aten::mm", took=length)(trace, 0.0)
        op("my::op", 500)(trace, 0.0)
    for i, trace in enumerate((one, two)):
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (folder / f"host{i}.1.pt.trace.json").write_bytes(trace.encode())
    together, apart = nbprof.load(folder), nbprof.load(folder, executor=1)
    frame = rows(together)
    assert frame.loc["aten::mm", "occurrences"] == 2
    assert frame.loc["aten::mm", "flops_per_second"] == pytest.approx(2 * 2 * M**3 / 400e-6)
    assert rows(apart).equals(frame)
    assert apart.roofline.total == pytest.approx(together.roofline.total)
    assert apart.roofline.steps.equals(together.roofline.steps)
