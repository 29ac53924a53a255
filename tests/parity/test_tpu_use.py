"""How far a TPU is used: held against XProf's overview and roofline on a real one, and counted by
hand on made ones.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.tools import dashboard as payload
from nbprof.tools.overview import payload as page
from tests.parity.deviations import known
from tests.parity.peer import XPROF, profile, xprof
from tests.support.build import profile as made
from tests.support.xspace import MS, PlaneWriter, xspace

TOOL, TPU = "overview_page", "jax/tpu-v6e-inference"


def test_idle_time_of_a_tpu_is_xprofs():
    theirs, ours = xprof(TPU, TOOL)[0].attrs, profile(TPU).overview
    assert f"{100 - ours['device_duty_cycle_percent']:.1f}%" == theirs["device_idle_time_percent"]
    assert ours["host_idle_percent"] is None, "no op ran on the host"
    assert theirs["host_idle_time_percent"] == "100.0%"
    assert known(TOOL, "host_idle_time_percent", XPROF, TPU)


def test_the_duty_cycle_of_xprof_begins_before_the_first_op():
    theirs, run = xprof(TPU, TOOL)[0].attrs, profile(TPU).run
    events, lanes = run.trace.events, run.trace.lanes
    device, line = (lanes[name].to_numpy()[events.lane] for name in ("device", "line"))
    frame = pd.DataFrame(
        {"device": device, "start": events.start, "end": events.start + events.duration}
    )
    of_any, of_ops = (
        frame[rows].groupby("device").agg({"start": "min", "end": "max"})
        for rows in (device >= 0, line == "XLA Ops")
    )
    whole, from_first_op = (float((one["end"] - one["start"]).sum()) for one in (of_any, of_ops))
    busy = from_first_op * run.overview["device_duty_cycle_percent"] / 100
    assert whole - busy == pytest.approx(float(theirs["idle_time_high_confidence_ps"]), rel=1e-5)
    assert f"{100 * busy / whole:.1f}%" == theirs["device_duty_cycle_percent"] == "86.5%"
    assert known(TOOL, "device_duty_cycle_percent", XPROF, TPU)


def test_the_use_of_a_tpu_is_that_of_xprofs_roofline():
    (total, *_), ours = xprof(TPU, "roofline_model")[0].to_dict("records"), profile(TPU).overview
    assert (total["step"], total["operation"]) == ("Total", "Program")
    assert ours["flops_per_second"] / 1e9 == pytest.approx(
        float(total["measured_flop_rate"]), rel=1e-6
    )
    assert ours["memory_bytes_per_second"] / 2**30 == pytest.approx(
        float(total["hbm_bw"]), rel=1e-6
    )
    assert ours["flops_utilization_percent"] / 100 == pytest.approx(
        float(total["compute_efficiency"]), rel=1e-6
    )
    assert ours["memory_bandwidth_utilization_percent"] / 100 == pytest.approx(
        float(total["max_mem_bw_utilization"]), rel=1e-4
    )
    assert ours["roofline_percent"] / 100 == pytest.approx(
        float(total["roofline_efficiency"]), rel=1e-4
    )
    for key in (
        "flop_rate_utilization_relative_to_roofline",
        "memory_bw_utilization_relative_to_hw_limit",
    ):
        assert xprof(TPU, TOOL)[0].attrs[key] == "0.0%"


def test_counters_that_were_not_recorded_are_absent():
    theirs, ours = xprof(TPU, TOOL)[0].attrs, profile(TPU).overview
    assert f"{ours['mxu_utilization_percent']:.1f}%" == theirs["mxu_utilization_percent"], (
        "the file states 0"
    )
    assert ours["hbm_utilization_percent"] is None
    assert theirs["hbm_utilization_percent"] == "0.0%"


def test_the_tiles_of_a_tpu_have_what_it_computed_and_moved():
    shown = {one["key"]: one for one in page.figures(profile(TPU).run)}
    assert list(shown)[2:5] == ["device_busy", "flops_utilization", "memory_bandwidth"]
    assert shown["flops_utilization"]["note"] == "0.004 of 918 TFLOP/s per device; MXU counter 0.0%"
    assert shown["memory_bandwidth"]["value"] == pytest.approx(4.34787, abs=1e-4)
    assert shown["memory_bandwidth"]["note"] == "71.22 of 1,638 GB/s per device"


def test_a_wait_of_busy_cores_is_explained():
    p = profile(TPU)
    busy, waits = p.overview["device_busy_percent"], p.overview["input_percent"]
    assert busy + waits > 100
    assert p.overview["verdict_detail"].endswith(
        " so that time counts as busy (100% of step time)."
    )
    assert (
        page.figures(p.run)[2]["note"] == "of step time, mean of 4 devices; copies and infeed count"
    )


def test_a_tpu_has_no_tab_of_gpu_kernels_unless_it_is_asked_for():
    run = profile(TPU).run
    whole = payload.dashboard(run)
    assert "kernels" not in [tab["id"] for tab in whole["meta"]["tabs"]]
    shown = {check["view"] for check in whole["overview"]["checks"]} - {"overview"}
    assert shown <= {tab["id"] for tab in whole["meta"]["tabs"]}, (
        "no check leads to a tab that is not there"
    )
    asked = payload.dashboard(run, views=["kernels"])
    assert [tab["id"] for tab in asked["meta"]["tabs"]] == ["kernels"]
    assert (
        asked["kernels"]["empty"]["text"]
        == "The devices of this profile are TPUs; GPU kernels are recorded only on GPUs."
    )
    for name in ("tf-cpu/prefetch-example", "jax/gtx1080ti-reactant"):
        assert "kernels" in [
            tab["id"] for tab in payload.dashboard(profile(name).run)["meta"]["tabs"]
        ], f"{name} names a GPU"


def test_the_ops_of_a_tpu_that_take_most_have_their_flop_rate():
    top = page.payload(profile(TPU).run)["top_ops"]
    keys = [column["key"] for column in top["columns"]]
    assert "gflops_per_second" in keys
    ops = profile(TPU).hlo.frame
    adds = ops[ops["category"] == "loop fusion"]
    names = top["data"]["op"]["values"]
    at = [names[code] for code in top["data"]["op"]["codes"].tolist()].index("jit(f)/jit(main)/add")
    assert top["data"]["gflops_per_second"][at] == pytest.approx(
        adds["flops"].sum() / (1000 * adds["total_us"].sum()), rel=1e-6
    )


def tpu(**peaks):
    """A loop of 8 of 10 ms that runs an op of 4 GFLOP and 2 MB twice, 3 ms each; the loop states
    the sum of both; then an op at the end.
    """
    plane = PlaneWriter("/device:TPU:0", peaks)
    for name, flops, moved in (
        ("while.1", 8 * 10**9, 4 * 10**6),
        ("fusion.1", 4 * 10**9, 2 * 10**6),
        ("copy.1", 0, 0),
    ):
        stats = {"flops": flops, "bytes_accessed": moved, "hlo_category": name.partition(".")[0]}
        plane.stated(f"%{name} = f32[8] {name.partition('.')[0]}(f32[8] %x)", **stats)
    name = {n.partition(" ")[0][1:]: n for n in plane.events}
    spans = (("while.1", 0, 8), ("fusion.1", 1, 4), ("fusion.1", 4, 7), ("copy.1", 9, 10))
    plane.line("XLA Ops", [plane.event(name[n], a * MS, (b - a) * MS) for n, a, b in spans])
    return plane


def test_what_a_loop_runs_counts_once(tmp_path):
    peaks = {"peak_teraflops_per_second": 4.0, "peak_hbm_bw_gigabytes_per_second": 1.0}
    counters = PlaneWriter(
        "/host:CPU", {"matrix_unit_utilization_percent": 12.5, "hbm_utilization_percent": 30.0}
    )
    o = made(tmp_path, xspace(tpu(**peaks), counters)).overview
    assert o["device_duty_cycle_percent"] == pytest.approx(90.0)
    assert o["flops_per_second"] == pytest.approx(8e9 / 0.010)
    assert o["flops_utilization_percent"] == pytest.approx(20.0)
    assert o["memory_bandwidth_utilization_percent"] == pytest.approx(40.0)
    assert o["roofline_percent"] == pytest.approx(40.0)
    assert (o["mxu_utilization_percent"], o["hbm_utilization_percent"]) == (12.5, 30.0)


def test_without_peaks_there_are_rates_and_no_shares(tmp_path):
    o = made(tmp_path, xspace(tpu())).overview
    assert o["flops_per_second"] == pytest.approx(8e11)
    keys = (
        "flops_utilization_percent",
        "memory_bandwidth_utilization_percent",
        "roofline_percent",
        "mxu_utilization_percent",
    )
    assert [o[key] for key in keys] == [None] * 4


def test_a_cpu_has_none_of_it():
    o = profile("tf-cpu/prefetch-example").overview
    assert o["flops_per_second"] is None
    assert o["device_duty_cycle_percent"] is None
    assert o["host_idle_percent"] > 0


def test_the_time_of_the_top_ops_beside_that_of_a_step_is_of_one_device():
    p = profile(TPU)
    top = page.payload(p.run)["top_ops"]
    shown, summed = (
        np.asarray(top["data"]["ms_per_step"]),
        p.overview["top_ops"]["ms_per_step"].to_numpy(float),
    )
    assert shown == pytest.approx(summed / 4)
    assert summed[:4].sum() > 3 * p.overview["step_time_ms"]
    # The first step, left out of the average, is six times as long.
    assert shown.sum() < p.steps.frame["step_time_ms"].mean()
    assert "mean of 4 devices" in next(
        head["help"] for head in top["columns"] if head["key"] == "ms_per_step"
    )
