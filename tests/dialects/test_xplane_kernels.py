"""GPU kernels of XSpace files that are broken, bare or of another generation: what is stated is
told, the rest is absent.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.dialects.xplane.kernels import launch_details, launch_details_in_xprof
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace

SHAPE = "regs:32 static_shared:16 dynamic_shared:1024 grid:4,1,1 block:128,1,1 occ_pct:75"
US = 1_000_000


def run(*kernels, **stats) -> bytes:
    """A GPU of compute capability 7.5 with kernels of a µs each: (name, stats)."""
    gpu = PlaneWriter(
        "/device:GPU:0",
        {"device_vendor": "Nvidia", "compute_cap_major": 7, "compute_cap_minor": 5, **stats},
    )
    gpu.line(
        "Stream #7(Compute)",
        [
            gpu.event(name, i * MS, given.pop("duration", US), **given)
            for i, (name, given) in enumerate(kernels)
        ],
    )
    return xspace(gpu)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SHAPE, (32, 16, 1024, "128,1,1", "4,1,1", 75.0)),
        ("regs:8 shm:512 grid:1,2,3 block:4,5,6", (8, 512, 0, "4,5,6", "1,2,3", None)),
        (
            " grid:4,64,1 block:256,1,1 private_mem:0 group_mem:8704 occ_pct:0",
            (None, 8704, 0, "256,1,1", "4,64,1", None),
        ),
        ("registers:8\nstatic_shared_memory:1\ndynamic_shared_memory:2", (8, 1, 2, "", "", None)),
        (
            "regs:x static_shared: grid:1,2 block:a,b,c occ_pct:high",
            (None, None, None, "", "", None),
        ),
        (
            "regs:-1 static_shared:99999999999999999999 occ_pct:nan",
            (None, None, None, "", "", None),
        ),
        ("regs:² block:1,²,1 grid:,, occ_pct:inf", (None, None, None, "", "", None)),
        ("regs:0 dynamic_shared:7", (None, None, 7, "", "", None)),
        ("what:ever ::: regs", (None, None, None, "", "", None)),
        ("", (None, None, None, "", "", None)),
    ],
)
def test_launch_details_of_every_generation(text, expected):
    assert tuple(launch_details(text).values()) == expected


def test_launch_details_as_xprof_reads_them():
    assert tuple(launch_details_in_xprof("regs:8 shm:512 grid:1,2,3 block:4,5,6").values()) == (
        8,
        0,
        0,
        0,
        "4,5,6",
        "1,2,3",
    )
    assert tuple(launch_details_in_xprof("group_mem:8704").values()) == (
        0,
        0,
        0,
        0,
        "1,1,1",
        "1,1,1",
    )


def test_broken_details_leave_a_kernel_with_its_times(tmp_path):
    p = profile(
        tmp_path,
        run(("a", {"kernel_details": "regs:x grid:?"}), ("a", {"kernel_details": "more nonsense"})),
    )
    (row,) = p.kernels.frame.to_dict("records")
    assert (row["kernel"], row["occurrences"], row["total_us"], row["block"], row["grid"]) == (
        "a",
        2,
        2.0,
        "",
        "",
    )
    assert (
        p.kernels.frame[
            ["registers", "static_shared_bytes", "occupancy_percent", "occupancy_source"]
        ]
        .isna()
        .all(axis=None)
    )
    p.payload()
    assert len(p.kernels.as_xprof()) == 1


def test_events_without_details_are_no_kernels(tmp_path):
    p = profile(
        tmp_path, run(("a", {}), ("b", {"kernel_details": ""}), ("c", {"kernel_details": SHAPE}))
    )
    assert p.kernels.frame["kernel"].tolist() == ["c"]


def test_kernels_of_no_time_are_left_out(tmp_path):
    given = [{"kernel_details": SHAPE, "duration": d} for d in (0, 999, 1000, 1999)]
    kernels = profile(tmp_path, run(*(("a", g) for g in given))).kernels.frame
    assert kernels["occurrences"].tolist() == [2]
    assert kernels[["total_us", "avg_us", "min_us", "max_us"]].to_numpy().tolist() == [
        [0.002, 0.001, 0.001, 0.001]
    ]


def test_kernels_without_an_op(tmp_path):
    p = profile(
        tmp_path,
        run(
            ("volta_h884gemm_64x64_ldg8_nn", {"kernel_details": SHAPE}),
            ("relu", {"kernel_details": SHAPE}),
        ),
    )
    table = p.kernels.frame.set_index("kernel")
    assert table["op"].tolist() == ["", ""]
    eligible = table["op_tensor_core_eligible"]
    assert eligible["volta_h884gemm_64x64_ldg8_nn"]
    assert eligible["relu"] is pd.NA
    (row,) = p.kernels.by_op().to_dict("records")
    assert (
        row["op"],
        row["kernels"],
        row["occurrences"],
        row["percent"],
        row["tensor_core_percent"],
    ) == ("", 2, 2, 100.0, 50.0)
    assert not p.kernels.as_xprof()["op_tensor_core_eligible"].any(), "XProf goes by the op"


def test_a_name_that_does_not_tell_leaves_it_open(tmp_path):
    op = {"tf_op": "jit(f)/dot_general:dot_general"}
    p = profile(
        tmp_path,
        run(
            ("gemm_fusion_dot_1", {"kernel_details": SHAPE, "duration": 3 * US, **op}),
            ("volta_sgemm_128x64_nt", {"kernel_details": SHAPE, **op}),
        ),
    )
    frame = p.kernels.frame
    assert frame["uses_tensor_core"].isna().tolist() == [True, False]
    assert frame["op_tensor_core_eligible"].all()
    assert p.kernels.by_name()["tensor_core_percent"].isna().tolist() == [True, False]
    assert p.kernels.by_op()["tensor_core_percent"].tolist() == [0.0], (
        "of the time of kernels whose names tell"
    )
    figures = {f["key"]: f for f in p.payload()["kernels"]["figures"]}
    assert figures["tensor_cores_unused"]["value"] == pytest.approx(25.0), (
        "what is not known is not missed"
    )
    assert "75" in figures["tensor_cores_used"]["note"]


def test_occupancy_is_recorded_or_computed_and_said(tmp_path):
    theoretical = {
        "kernel_details": "regs:64 static_shared:0 dynamic_shared:0 grid:1,1,1 block:256,1,1"
    }
    p = profile(
        tmp_path,
        run(
            ("stat", {**theoretical, "theoretical_occupancy_pct": 12.5, "duration": 3 * US}),
            ("text", {"kernel_details": SHAPE, "duration": 2 * US}),
            ("none", theoretical),
        ),
    )
    table = p.kernels.frame.set_index("kernel")[["occupancy_percent", "occupancy_source"]]
    assert table.to_numpy().tolist() == [
        [12.5, "recorded"],
        [75.0, "recorded"],
        [100.0, "computed"],
    ]
    assert p.kernels.as_xprof()["occupancy_percent"].tolist() == [0.0, 75.0, 0.0], (
        "XProf reads the text alone"
    )
    assert p.kernels.by_op()["occupancy_percent"].tolist() == [
        pytest.approx((3 * 12.5 + 2 * 75 + 100) / 6)
    ]
    figures = {f["key"]: f for f in p.payload()["kernels"]["figures"]}
    assert figures["occupancy"]["value"] == pytest.approx((3 * 12.5 + 2 * 75 + 100) / 6)
    assert "16.7% of it is computed" in figures["occupancy"]["note"]


def test_occupancy_of_amd_is_not_computed_by_nvidias_limits(tmp_path):
    data = run(
        ("a", {"kernel_details": SHAPE.replace(" occ_pct:75", "")}),
        device_vendor="AMD",
        compute_cap_major=9,
        compute_cap_minor=0,
    )
    assert profile(tmp_path, data).kernels.frame["occupancy_percent"].isna().all()


def test_rows_of_equal_time_are_in_the_order_of_their_numbers(tmp_path):
    shapes = [SHAPE.replace("grid:4,1,1", f"grid:{g},1,1") for g in (10, 9, 100)]
    p = profile(
        tmp_path,
        run(*(("a", {"kernel_details": s}) for s in shapes), ("B", {"kernel_details": SHAPE})),
    )
    for table in (p.kernels.frame, p.kernels.as_xprof()):
        assert table["kernel"].tolist() == ["B", "a", "a", "a"]
        assert table["grid"].tolist() == ["4,1,1", "9,1,1", "10,1,1", "100,1,1"]
        assert table["rank"].tolist() == [1, 2, 3, 4]


def test_as_xprof_has_a_thousand_rows(tmp_path):
    p = profile(tmp_path, run(*((f"k{i}", {"kernel_details": SHAPE}) for i in range(1003))))
    assert len(p.kernels.frame) == 1003
    assert len(p.kernels.as_xprof()) == 1000
    assert np.array_equal(p.kernels.as_xprof()["rank"], np.arange(1, 1001))
