"""A cost that nobody knows is no cost of 0: it is in no share, rate or sum of waste, and how much
of the time it is stands beside them.
"""

from __future__ import annotations

import numpy as np
import pytest

import nbprof
from nbprof.tools.op_profile import static
from tests.support import hlo_programs
from tests.support.build import profile
from tests.support.hlo import metadata_plane
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, chunk, xspace

GPU = {
    "device_vendor": "Nvidia", "compute_cap_major": 8, "compute_cap_minor": 0, "core_count": 108, "clock_rate": 1_410_000,
    "memory_bandwidth": 1555 * 10**9,
}  # fmt: skip
SIZE = 4096
TEXT = f"""HloModule jit_f
ENTRY e {{
  a = f32[{SIZE},{SIZE}] parameter(0)
  dot.1 = f32[{SIZE},{SIZE}] dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT call.2 = f32[{SIZE},{SIZE}] custom-call(dot.1), custom_call_target="te_fused_attn_backward_ffi"
}}"""
DETAIL = "regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:128,1,1"


def mixed(steps=3):
    """Steps of 10 ms: a matrix product of 2 ms, then 6 ms in a call of which nothing is known."""
    gpu = PlaneWriter("/device:GPU:0", dict(GPU))
    said = {"hlo_module": "jit_f", "program_id": 3, "kernel_details": DETAIL, "tf_op": "XlaModule:"}
    events = []
    for i in range(steps):
        events.append(
            gpu.event(
                "gemm",
                10 * i * MS,
                2 * MS,
                hlo_op="dot.1",
                group_id=i,
                correlation_id=2 * i + 1,
                **said,
            )
        )
        events.append(
            gpu.event(
                "flash",
                (10 * i + 2) * MS,
                6 * MS,
                hlo_op="call.2",
                group_id=i,
                correlation_id=2 * i + 2,
                **said,
            )
        )
    gpu.line("Stream #7(Compute)", events, line_id=7)
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [
            host.event("train", 10 * i * MS, 8 * MS, step_num=i, group_id=i, _r=1)
            for i in range(steps)
        ],
        line_id=1,
    )
    return xspace(gpu, host, metadata_plane(jit_f=(3, hlo_programs.program(TEXT))))


@pytest.fixture
def p(tmp_path):
    return profile(tmp_path, mixed())


def used(p):
    """Of the peak FLOP rate, the product while it runs."""
    return 2 * SIZE**3 / 2e-3 / p.roofline.peaks.flops_per_second


def test_numbers_of_the_op_are_missing(p):
    call = p.hlo.frame.set_index("op").loc["call.2"]
    assert (
        call[
            [
                "flops",
                "bytes",
                "flops_per_second",
                "bytes_per_second",
                "memory_bytes_per_second",
                "operational_intensity",
            ]
        ]
        .isna()
        .all()
    )
    assert call["bound_by"] == ""
    point = p.roofline.frame.set_index("op").loc["call.2"]
    assert (
        point[["roof_fraction", "compute_fraction", "bandwidth_fraction", "roof_flops_per_second"]]
        .isna()
        .all()
    )
    ops = p.ops.frame.set_index("op").loc["call.2"]
    assert ops[["flops_per_second", "bytes_per_second"]].isna().all()


def test_xprofs_numbers_stay(p):
    call = p.hlo.as_xprof().set_index("op").loc["call.2"]
    assert call[["flops", "bytes", "flops_per_second"]].tolist() == [0, 0, 0]
    assert call["bound_by"] == "Unknown"
    dot = p.hlo.as_xprof().set_index("op").loc["dot.1"]
    assert dot["flops"] == 3 * 2 * SIZE**3
    assert p.ops.as_xprof().set_index("op").loc["call.2", "flops_per_second"] == 0


def test_the_tree_says_how_much_is_unknown_and_wastes_none_of_it(p):
    tree = p.op_profile.frame.set_index("name")
    assert (
        tree.loc["call.2", ["flops_utilization", "bandwidth_utilization", "wasted_us"]].isna().all()
    )
    assert tree["unknown_fraction"].to_dict() == pytest.approx(
        {"All programs": 0.75, "jit_f": 0.75, "custom-call": 1, "call.2": 1, "dot": 0, "dot.1": 0}
    )
    assert tree.loc["All programs", "flops_utilization"] == pytest.approx(used(p))
    assert tree.loc["All programs", "wasted_us"] == pytest.approx(tree.loc["dot.1", "wasted_us"])
    assert tree.loc["custom-call", ["flops_utilization", "wasted_us"]].isna().all()
    with_idle = p.op_profile.tree(idle=True).set_index("name")
    assert with_idle.loc["All programs", "unknown_fraction"] == pytest.approx(0.75)
    assert np.isnan(with_idle.loc["IDLE", "unknown_fraction"])


def test_totals_leave_the_time_out(p):
    total = p.roofline.total
    # 28 ms from the first op to the end of the last, of which 18 in calls.
    assert total["compute_fraction"] == pytest.approx(used(p) * 6 / (28 - 18))
    assert total["unknown_fraction"] == pytest.approx(0.75)
    told = p.overview
    assert told["flops_utilization_percent"] == pytest.approx(100 * total["compute_fraction"])
    assert told["unknown_cost_percent"] == pytest.approx(75)
    steps = p.roofline.steps
    assert steps["unknown_fraction"].tolist() == pytest.approx([0.75] * 3)
    busy = steps["step_time_ms"] - 6
    assert steps["compute_fraction"].tolist() == pytest.approx((used(p) * 2 / busy).tolist())


def test_what_is_said(p):
    part = p.payload()["op_profile"]
    assert "**dot.1** wastes the most" in part["statement"]
    assert "The cost of ops that take **75.0%** of the time is unknown." in part["statement"]
    notes = [one["note"] for one in part["figures"]] + [
        one["note"] for one in p.payload()["hlo"]["figures"]
    ]
    assert sum("cost unknown for 75.0% of op time" in note for note in notes) == 6
    assert part["ops"]["unknown_us"].tolist() == pytest.approx([18_000, 0])
    assert " 75.0%" in repr(p.op_profile)
    assert ">unknown<" in static.html(p.payload())


def test_where_nothing_is_known_there_is_no_figure(tmp_path):
    call = "%kernel.1 = f32[8] custom-call(%y)"
    tpu = PlaneWriter(
        "/device:TPU:0",
        {"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0},
    )
    # The recorder counts the body of the kernel once, however often it runs, and no bytes.
    tpu.line(
        "XLA Ops",
        [tpu.event(call, i * MS, MS // 2, flops=10**9, bytes_accessed=0) for i in range(3)],
        line_id=1,
    )
    stated = {"program_id": 7, "symbol_id": 1, "hlo_category": "custom-call"}
    tpu.event_extra[call] = b"".join(
        chunk(5, tpu.stat(key, value)) for key, value in stated.items()
    )
    p = profile(tmp_path, xspace(tpu))
    assert p.hlo.frame[["flops", "bytes"]].isna().all(axis=None)
    assert p.hlo.frame["bound_by"].tolist() == [""]
    assert np.isnan(p.roofline.total["roof_fraction"])
    assert p.overview["flops_utilization_percent"] is None
    assert p.overview["unknown_cost_percent"] == 100
    part = p.payload()["op_profile"]
    assert "wastes" not in part["statement"]
    assert [one["value"] for one in part["figures"][1:]] == [None, None, None]


def test_attention_of_transformer_engine_wastes_nothing():
    p = profile_of("findings/D9-D10-custom-calls")
    calls = p.hlo.frame[p.hlo.frame["op"].str.startswith("te_fused")]
    assert len(calls) == 4
    assert calls[["flops", "bytes"]].isna().all(axis=None)
    root = p.op_profile.frame.iloc[0]
    assert root["unknown_fraction"] == pytest.approx(calls["self_fraction"].sum())
    assert "te_fused" not in p.payload()["op_profile"]["statement"]


def test_a_kernel_of_pallas_without_estimate_is_bound_by_nothing():
    p = profile_of("findings/D5-program-id")
    assert p.hlo.frame["bound_by"].tolist() == [""]
    assert p.hlo.frame["bytes_per_second"].isna().all()


def profile_of(name):
    return nbprof.load(next(real(name).glob("*.xplane.pb")))
