"""Ops under the roof of the device: memories on the chip, steps one by one, and peaks that a person
gives.
"""

from __future__ import annotations

import numpy as np
import pytest

import nbprof
from nbprof.activity.given_peaks import checked
from nbprof.analysis.ops import ops
from nbprof.capture.options import Options
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.dialects.device_peaks import on_chip_bytes_per_second
from nbprof.notebook.options_line import UsageError, choices
from nbprof.sources.recording import CaptureInfo
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, chunk, number, xspace

PEAKS = {
    "device_type_string": "TPU v9", "peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0,
    "peak_vmem_rd_bw_gigabytes_per_second": 20000.0, "peak_vmem_wr_bw_gigabytes_per_second": 10000.0,
    "peak_cmem_rd_bw_gigabytes_per_second": 0.0,
}  # fmt: skip
READ, WRITE = 1, 2
HBM, CMEM, VMEM = 1, 2, 3
LONG = [("fusion.1", 1), ("dot.2", 4), ("lookup.3", 6)]


def moved(*each):
    """`memory_access_breakdown`: bytes by (read or write, memory)."""
    return b"".join(
        chunk(1, number(1, way) + number(2, memory) + number(3, count))
        for way, memory, count in each
    )


def tpu(steps=2, cores=1, peaks=PEAKS):
    """Steps of 10 ms, each with a fusion of 1 ms, a product of 2 ms and a lookup of 1 ms in the
    vector memory; then one op after them.
    """
    planes = []
    for core in range(cores):
        plane = PlaneWriter(f"/device:TPU:{core}", dict(peaks))
        facts = {
            "fusion.1": (
                10**9,
                moved((READ, HBM, 3 * 10**8), (WRITE, HBM, 10**8), (WRITE, VMEM, 10**9)),
            ),
            "dot.2": (10**11, moved((READ, HBM, 10**8), (READ, CMEM, 10**8))),
            "lookup.3": (0, moved((READ, VMEM, 10**10), (READ, 9, 10**12))),
        }
        named = {}
        for symbol, (op, (flops, memory)) in enumerate(facts.items(), 1):
            named[op] = f"%{op} = f32[8]{{0}} fusion(f32[8]{{0}} %p)"
            stats = {
                "program_id": 7,
                "symbol_id": symbol,
                "hlo_category": "loop fusion",
                "bytes_accessed": 10**8,
            }
            plane.stated(named[op], flops=flops, memory_access_breakdown=memory, **stats)
        runs = [
            plane.event(named[op], (10 * i + at) * MS, (2 if op == "dot.2" else 1) * MS)
            for i in range(steps)
            for op, at in LONG
        ]
        runs.append(plane.event(named["dot.2"], (10 * steps + 1) * MS, 2 * MS))
        plane.line(
            "Steps",
            [plane.event(str(5 + i), 10 * i * MS, 10 * MS) for i in range(steps)],
            line_id=1,
        )
        plane.line("XLA Ops", runs, line_id=3)
        planes.append(plane)
    return xspace(*planes)


def test_ops_may_be_bound_by_memory_on_the_chip(tmp_path):
    p = profile(tmp_path, tpu())
    frame = p.roofline.frame.set_index("op")
    assert frame["bound_by"].to_dict() == {
        "fusion.1": "HBM",
        "dot.2": "Compute",
        "lookup.3": "VMEM Read",
    }
    assert frame.loc[
        "fusion.1", ["bytes_per_second", "vmem_write_bytes_per_second"]
    ].tolist() == pytest.approx([4e11, 1e12])
    assert frame.loc["lookup.3", "vmem_read_bytes_per_second"] == pytest.approx(1e13)
    assert frame.loc["lookup.3", "roof_fraction"] == pytest.approx(0.5)
    assert frame.loc["lookup.3", "bandwidth_fraction"] == 0, (
        "nothing of it is in the main memory; an unknown one counts nowhere"
    )
    assert frame.loc["dot.2", "cmem_read_bytes_per_second"] == pytest.approx(5e10), (
        "known, though its peak is not"
    )
    assert p.hlo.frame.set_index("op")["bound_by"].to_dict() == frame["bound_by"].to_dict()
    assert p.roofline.peaks.on_chip == {"vmem_read": 2e13, "vmem_write": 1e13}
    assert p.devices["vmem_read_bytes_per_second"].tolist() == [2e13]
    assert p.devices["cmem_read_bytes_per_second"].isna().all(), "stated as 0: it has none"
    # 2 x 10 GB in 24 ms, of 20 TB/s.
    assert p.roofline.total["roof_fraction"] == pytest.approx(
        3e11 / p.roofline.total["time_us"] * 1e6 / 1e14, rel=0.02
    )


def test_an_op_near_no_peak_waits(tmp_path):
    """40 % of HBM, 50 % of compute and of VMEM: each is nearest to a peak, and bound by none of
    them.
    """
    p = profile(tmp_path, tpu())
    frame = p.roofline.frame.set_index("op")
    assert set(frame["bound"]) == set(p.hlo.frame["bound"]) == {"Latency"}
    assert "bound" not in p.hlo.as_xprof()
    # Under lower roofs they are near.
    lower = p.roofline(peak_flops=8e13, peak_bytes=6e11).frame.set_index("op")
    assert lower["bound"].to_dict() == {
        "fusion.1": "HBM",
        "dot.2": "Compute",
        "lookup.3": "Latency",
    }
    # Nobody knows without a peak.
    assert set(nbprof.load("tests/data/xspace/jax_cpu.xplane.pb").roofline.frame["bound"]) == {""}


@pytest.mark.parametrize(("fraction", "bound"), [(0.6, "HBM"), (0.5999, "Latency"), (1.2, "HBM")])
def test_near_begins_at_60_percent_of_the_peak(fraction, bound):
    assert ops.bound(np.array(["HBM", ""], object), np.array([fraction, fraction])).tolist() == [
        bound,
        "",
    ]


@pytest.mark.parametrize("cores", [1, 2])
def test_steps_one_by_one(tmp_path, cores):
    p = profile(tmp_path, tpu(3, cores))
    steps = p.roofline.steps
    assert steps["step"].tolist() == [5, 6, 7]
    # Of one device: 1 + 100 GFLOP in 10 ms; the op after the steps is in none.
    assert steps["flops_per_second"].tolist() == pytest.approx([1.01e13] * 3)
    assert steps["bytes_per_second"].tolist() == pytest.approx([5e10] * 3)
    assert steps["compute_fraction"].tolist() == pytest.approx([0.101] * 3)
    assert steps["bound_by"].tolist() == ["Compute"] * 3
    assert steps["roof_fraction"].tolist() == pytest.approx([0.101] * 3)
    half = p.roofline(peak_flops=2e14).steps
    assert half["compute_fraction"].tolist() == pytest.approx([0.0505] * 3)


def test_a_peak_that_is_no_number_is_refused_in_a_sentence(tmp_path):
    p = profile(tmp_path, tpu(0))
    for bad in ("312T", -1, 0, float("nan")):
        with pytest.raises(
            NbprofError, match=r"peak_flops is .*; expected a rate per second above 0"
        ):
            p.roofline(peak_flops=bad)


def test_steps_of_ops_that_ran_in_none(tmp_path):
    p = profile(tmp_path, tpu(0))
    assert p.roofline.steps.empty
    assert len(p.roofline.frame) == 1


def test_given_peaks_count_in_every_view(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(tpu())
    stated = nbprof.load(path)
    given = nbprof.load(path, peaks={"flops": 50e12, "bytes": 2e12, "cmem_read": 1e11})
    assert given.roofline.peaks.given
    assert not stated.roofline.peaks.given
    assert given.roofline.peaks.ridge_point == 25
    assert given.roofline.peaks.on_chip["cmem_read"] == 1e11
    own, theirs = (p.op_profile.frame.set_index("name") for p in (given, stated))
    assert own.loc["dot.2", "flops_utilization"] == pytest.approx(
        2 * theirs.loc["dot.2", "flops_utilization"]
    )
    assert given.overview["flops_utilization_percent"] == pytest.approx(
        2 * stated.overview["flops_utilization_percent"]
    )
    assert given.hlo.frame.set_index("op").loc["dot.2", "bound_by"] == "Compute"
    assert "Device peaks given by the user" in str(given.receipt)
    # They are of this profile, not of the file: without them it is as before, whatever the cache
    # keeps.
    assert nbprof.load(path).roofline.peaks == stated.roofline.peaks


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"flop": 1e12}, "there is no peak 'flop'; the peaks are flops, bytes"),
        ({"flops": 0}, "the peak 'flops' is 0; expected a rate per second above 0"),
        ({"flops": 10**400}, "the peak .flops. is 1000"),
        ({"flops": -1.0}, "above 0"),
        ({"bytes": float("nan")}, "above 0"),
        ({"bytes": float("inf")}, "above 0"),
        ({"bytes": "2 TB"}, "the peak 'bytes' is '2 TB'"),
        ({"bytes": True}, "above 0"),
        ([1e12, 2e12], "peaks are given by name"),
        (312e12, "peaks are given by name"),
        ("flops", "the peak 'flops' is ''"),
        ("flops=312Q", "is '312Q'"),
        ("flops=1.2.3", "is '1.2.3'"),
        ("x" * 500, "…"),
    ],
)
def test_peaks_that_make_no_sense_are_told(bad, said):
    with pytest.raises(NbprofError, match=said.replace("(", r"\(")) as error:
        checked(bad)
    assert len(str(error.value)) < 300
    with pytest.raises(CaptureError):
        Options(peaks=bad)


def test_peaks_as_typed(monkeypatch):
    assert checked("flops=312T,bytes=2.0e12 vmem_read=20T") == {
        "flops": 312e12,
        "bytes": 2e12,
        "vmem_read": 2e13,
    }
    assert checked(None) == checked("") == {}
    options, _ = choices(["--peaks", "flops=1.5P"])
    assert options.peaks == {"flops": 1.5e15}
    assert choices([])[0].peaks is None
    assert choices(["--peaks", "flops=1T", "--peaks", "auto"])[0].peaks is None
    with pytest.raises(UsageError, match="no peak 'speed'"):
        choices(["--peaks", "speed=1"])
    assert CaptureInfo(options={"peaks": {"bytes": 2e12}}).peaks == {"bytes": 2e12}
    assert CaptureInfo(options={"peaks": {"bytes": "much"}}).peaks == {}, (
        "what stands beside a file is foreign"
    )


def test_shared_memory_of_gpus():
    stats = {
        "device_vendor": "Nvidia",
        "compute_cap_major": 8,
        "compute_cap_minor": 0,
        "core_count": 100,
        "clock_rate": 1_000_000,
    }
    assert on_chip_bytes_per_second(stats) == {"shared_memory": 100 * 128e9}
    for more, wide in (
        ({"compute_cap_major": 3}, 256),
        ({"compute_cap_major": 2}, 64),
        ({"device_vendor": "AMD", "compute_cap_major": 9}, 128),
    ):
        assert on_chip_bytes_per_second(stats | more) == {"shared_memory": 100 * wide * 1e9}
    assert (
        on_chip_bytes_per_second(
            stats | {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 5}
        )["shared_memory"]
        == 256e11
    )
    assert on_chip_bytes_per_second({k: v for k, v in stats.items() if k != "clock_rate"}) == {}


def test_the_figure_has_the_memories_on_the_chip(tmp_path):
    from bokeh.models import Legend

    p = profile(tmp_path, tpu())
    shown = [
        item.label.value
        for legend in p.roofline.figure().select({"type": Legend})
        for item in legend.items
    ]
    assert shown == ["VMEM Read", "VMEM Write"]
