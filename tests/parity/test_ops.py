"""Time by op against XProf 2.24.2 and against what TensorFlow 2.3/2.4 itself wrote: every row,
every column, in their order.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.tools.overview import payload as overview_tab
from tests.parity.deviations import known
from tests.parity.peer import GUIDE, GUIDE_NAMES, NAMES, XPROF, guide, profile, same, xprof

TOOL = "framework_op_stats"
COLUMNS = {
    "rank": "rank",
    "type": "type",
    "operation": "op",
    "occurrences": "occurrences",
    "total_time": "total_us",
    "avg_time": "avg_us",
    "total_self_time": "self_us",
    "avg_self_time": "avg_self_us",
}
SHARES = {
    "device": ("device_total_self_time_percent", "device_cumulative_total_self_time_percent"),
    "host": ("host_total_self_time_percent", "Host_cumulative_total_self_time_percent"),
}
RATES = {
    "measured_flop_rate": ("flops_per_second", 1e9),
    "model_flop_rate": (
        "flops_per_second",
        1e9,
    ),  # Model FLOPs are those of the device in these files.
    "measured_memory_bw": ("bytes_per_second", 2**30),
    "operational_intensity": ("operational_intensity", 1.0),
}
JAX = [name for name in NAMES if name.startswith("jax/")]
JAX_GPU = [name for name in JAX if "tpu" not in name]
TPU = "jax/tpu-v6e-inference"


def shares(theirs, ours, what, kinds=SHARES):
    for where, keys in kinds.items():
        rows = (ours["where"] == where).to_numpy()
        for key, column in zip(keys, ("self_fraction", "cumulative_fraction"), strict=True):
            same(ours.loc[rows, column], theirs.loc[rows, key], f"{what} {key}", absolute=1e-15)
            assert not theirs.loc[~rows, key].any(), "the other side has no share of this one"


@pytest.mark.parametrize("idle", [True, False], ids=["with idle", "without"])
@pytest.mark.parametrize("name", NAMES)
def test_as_xprof_has_its_rows_in_its_order(name, idle):
    theirs = xprof(name, TOOL)[0 if idle else 1]
    ours = profile(name).ops.as_xprof(with_idle=idle)
    sides = [key for keys in SHARES.values() for key in keys]
    compared = {
        "host_or_device",
        "eager",
        "bound_by",
        "gpu_tensorcore_utilization",
        *COLUMNS,
        *sides,
        *RATES,
    }
    assert set(theirs.columns) <= compared, "every column is compared"
    same(ours["where"], theirs["host_or_device"].str.lower(), f"{name} side")
    for key, column in COLUMNS.items():
        same(ours[column], theirs[key], f"{name} {column}", absolute=1e-12)
    same(np.where(ours["eager"], "Eager", "Function"), theirs["eager"], f"{name} eager")
    shares(theirs, ours, name)
    for key, (column, unit) in RATES.items():
        same(
            ours.get(column, pd.Series(0.0, ours.index)) / unit,
            theirs[key],
            f"{name} {column}",
            absolute=1e-12,
        )
    if len(ours):
        same(
            ours.get("bound_by", pd.Series("Unknown", ours.index)),
            theirs["bound_by"],
            f"{name} bound by",
        )
    if "gpu_tensorcore_utilization" in theirs:
        fraction = ours.get("tensor_core_fraction", pd.Series(0.0, ours.index))
        same(fraction, theirs["gpu_tensorcore_utilization"], f"{name} Tensor Cores")


@pytest.mark.parametrize("name", NAMES)
def test_the_frame_is_xprofs_but_for_what_is_known(name):
    theirs, ours = xprof(name, TOOL)[1], profile(name).ops.frame
    for where in ("device", "host"):
        mine = ours[ours["where"] == where].reset_index(drop=True)
        other = theirs[theirs["host_or_device"].str.lower() == where].reset_index(drop=True)
        if known(TOOL, f"{where} rows", XPROF, name):
            assert len(mine) != len(other), "the deviation is gone: strike it off the table"
            continue
        for key, column in COLUMNS.items():
            if column != "rank":
                same(mine[column], other[key], f"{name} {where} {column}", absolute=1e-12)
        shares(other, mine, f"{name} {where}", {where: SHARES[where]})
        for key, (column, unit) in RATES.items():
            if not known(TOOL, column, XPROF, name):
                same(
                    mine.get(column, pd.Series(0.0, mine.index)).fillna(0.0) / unit,
                    other[key],
                    f"{name} {column}",
                    absolute=1e-12,
                )
        if "gpu_tensorcore_utilization" in other and "tensor_core_fraction" in mine:
            same(
                mine["tensor_core_fraction"].fillna(0.0),
                other["gpu_tensorcore_utilization"],
                f"{name} Tensor Cores",
            )


@pytest.mark.parametrize("name", [name for name in NAMES if known(TOOL, "host rows", XPROF, name)])
def test_calls_that_name_an_op_are_no_ops(name):
    p = profile(name)
    theirs = xprof(name, TOOL)[1]
    theirs = theirs[theirs["host_or_device"] == "Host"].set_index("operation")
    ours = p.ops.frame[p.ops.frame["where"] == "host"].set_index("op")
    # All that takes time and fits in XProf's 500 rows is in both, with the same times.
    timed = theirs[(theirs["total_time"] > 0) & (theirs.index != "XlaModule")]
    mine = ours[ours["self_us"] > 0].head(len(timed))
    assert sorted(mine.index) == sorted(timed.index)
    for key, column in (
        ("total_time", "total_us"),
        ("total_self_time", "self_us"),
        ("type", "type"),
    ):
        same(mine[column], timed.loc[mine.index, key], f"{name} {column}")
    tagged = p.run.activity.tagged_calls.frame()
    calls = np.bincount(tagged["op"], minlength=len(p.run.activity.ops.values))
    more = dict(zip(p.run.activity.ops.values, calls, strict=True))
    # What XProf has beside these are those calls.
    for op, count in theirs["occurrences"].items():
        assert count == more.get(op, 0) + (
            ours.loc[op, "occurrences"] if op in ours.index else 0
        ), op
    assert len(tagged)


def test_no_row_is_cut():
    frame = profile("tf-gpu/v100x8-collectives").ops.frame
    assert (frame["where"] == "host").sum() > 499


@pytest.mark.parametrize("name", JAX_GPU)
def test_rates_of_a_gpu_are_xprofs_but_for_what_it_miscounts(name):
    p = profile(name)
    theirs, ours = p.ops.as_xprof(), p.ops.frame
    device = p.run.activity.device_ops.frame()
    kernels = p.run.activity.op_parts.frame()["xprof_runs"].to_numpy()[device["part"].to_numpy()]
    miscounted = set(p.run.activity.ops.values[device["op"].to_numpy()[kernels != 1]])
    theirs, ours = (frame[frame["where"] == "device"].set_index("op") for frame in (theirs, ours))
    assert list(theirs.index) == list(ours.index)
    differing = set()
    for column in ("flops_per_second", "bytes_per_second"):
        for op, mine in ours[column].items():
            other = theirs.loc[op, column]
            if op not in miscounted:
                assert mine == pytest.approx(other, rel=1e-9), op
            elif mine != pytest.approx(other, rel=1e-9):
                differing.add(op)
    # Matrix products by cuBLAS's older interface, and a convolution that is two kernels.
    assert differing == {"mi300-jax08_attention": {"jit(matmul)/dot_general"}, "mi300-jax_conv_minimal_08": {
        "jit(forward_3d_conv)/conv_general_dilated"}}.get(name.split("/")[1], set())  # fmt: skip


def test_a_tpus_rates_are_xprofs_where_the_bytes_were_moved():
    theirs, ours = xprof(TPU, TOOL)[1], profile(TPU).ops.frame
    other = theirs[theirs["host_or_device"] == "Device"].reset_index(drop=True)
    same(ours["flops_per_second"] / 1e9, other["measured_flop_rate"], "FLOP/s", absolute=1e-12)
    moved = ours["bytes_per_second"].notna()
    same(ours.loc[moved, "bytes_per_second"] / 2**30, other.loc[moved, "measured_memory_bw"], "B/s")
    same(ours.loc[moved, "bound_by"], other.loc[moved, "bound_by"], "bound by")
    # What is left out begins a copy, or finds it done, in a few nanoseconds; XProf has it at a
    # million times what the memory can do.
    assert all(op.startswith("copy-") for op in ours.loc[~moved, "op"])
    assert (ours.loc[~moved, "avg_us"] < 0.01).all()
    assert (other.loc[~moved, "measured_memory_bw"] > 1e5 * 1637.99).all()
    assert (ours.loc[~moved, "bound_by"] == "").all()


@pytest.mark.parametrize("name", JAX)
def test_top_ops_of_the_overview(name):
    theirs = xprof(name, "overview_page")[0]
    p = profile(name)
    ours = p.ops.as_xprof()
    ours = ours[ours["where"] == "device"].head(10).reset_index(drop=True)
    columns = {
        "selfTimePercent",
        "cumulativeTimePercent",
        "category",
        "operation",
        "flopRate",
        "tcEligibility",
        "tcUtilization",
    }
    assert set(theirs.columns) <= columns, "every column is compared"
    same(ours["op"], theirs["operation"], f"{name} op")
    same(ours["type"], theirs["category"], f"{name} type")
    same(ours["self_fraction"], theirs["selfTimePercent"], f"{name} share", absolute=1e-15)
    same(ours["cumulative_fraction"], theirs["cumulativeTimePercent"], f"{name} running share")
    same(ours["flops_per_second"] / 1e9, theirs["flopRate"], f"{name} FLOP/s", absolute=1e-12)
    if "tcEligibility" in theirs:
        kernels = (
            p.kernels.as_xprof()
            .groupby("op")[["op_tensor_core_eligible", "uses_tensor_core"]]
            .any()
        )
        mine = kernels.reindex(ours["op"]).fillna(False).astype(bool)
        same(mine["op_tensor_core_eligible"], theirs["tcEligibility"], f"{name} eligible")
        same(mine["uses_tensor_core"], theirs["tcUtilization"], f"{name} Tensor Cores")
    # The overview's own table is made of the same rows.
    top = p.overview["top_ops"].head(len(theirs))
    same(top["op"], theirs["operation"], f"{name} overview")
    same(top["type"], theirs["category"], f"{name} overview type")
    shown = overview_tab.payload(p.run)["top_ops"]["data"]["type"]
    same(
        pd.Series(shown["values"])[shown["codes"][: len(theirs)]],
        theirs["category"],
        f"{name} type on screen",
    )
    same(top["percent"] / 100, theirs["selfTimePercent"], f"{name} overview share", absolute=1e-9)


def guide_rows(name: str, table: str) -> pd.DataFrame:
    """A table of TensorFlow's own; its JSON leaves out what is 0, empty or false."""
    rows = pd.DataFrame(guide(name, "tensorflow_stats")[table]["tf_stats_record"])
    for column in ("op_type", "op_name"):
        rows[column] = rows[column].fillna("") if column in rows else ""
    for column in ("rank", "occurrences", *(c for c in rows if c.endswith(("_us", "_fraction")))):
        rows[column] = pd.to_numeric(rows[column]).fillna(0) if column in rows else 0
    rows["is_eager"] = rows["is_eager"].fillna(False).astype(bool) if "is_eager" in rows else False
    return rows


GUIDE_COLUMNS = {
    "rank": "rank",
    "op_type": "type",
    "op_name": "op",
    "occurrences": "occurrences",
    "total_time_in_us": "total_us",
    "avg_time_in_us": "avg_us",
    "total_self_time_in_us": "self_us",
    "avg_self_time_in_us": "avg_self_us",
    "is_eager": "eager",
}
GUIDE_SHARES = {
    where: (
        f"{where}_total_self_time_as_fraction",
        f"{where}_cumulative_total_self_time_as_fraction",
    )
    for where in ("device", "host")
}


@pytest.mark.parametrize("table", ["with_idle", "without_idle"])
@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_the_frame_is_the_guides(name, table):
    theirs = guide_rows(name, table)
    ours = profile(name).ops.with_idle if table == "with_idle" else profile(name).ops.frame
    shown = {
        *GUIDE_COLUMNS,
        *(key for keys in GUIDE_SHARES.values() for key in keys),
        "host_or_device",
        "bound_by",
    }
    assert set(theirs.columns) <= shown, "every column is compared"
    assert set(theirs["bound_by"]) == {"Unknown"}
    if known("tensorflow_stats", "op", GUIDE, name):
        dashed = theirs["op_name"].str.contains("-") & theirs["op_name"].str.contains(":")
        assert dashed.any(), "the deviation is gone: strike it off the table"
        theirs["op_type"] = theirs["op_type"].where(
            ~dashed, theirs["op_name"].str.rpartition(":")[2]
        )
        theirs["op_name"] = theirs["op_name"].where(
            ~dashed, theirs["op_name"].str.partition(":")[0]
        )
    same(ours["where"], theirs["host_or_device"].str.lower(), f"{name} side")
    idle_overflows = known("tensorflow_stats", "idle", GUIDE, name) and table == "with_idle"
    for key, column in GUIDE_COLUMNS.items():
        mine = ours[column].fillna(0) if column.startswith("avg") else ours[column]
        if idle_overflows and column in ("total_us", "self_us"):
            device = (ours["where"] == "device").to_numpy()
            assert theirs.loc[device, key].tolist() == [pytest.approx(2**63 / 1e6)]
            assert mine[device].tolist() == [0.0]
            mine, other = mine[~device], theirs.loc[~device, key]
        else:
            other = theirs[key]
        same(mine, other, f"{name} {column}", absolute=1e-9)
    if not idle_overflows:
        for where, keys in GUIDE_SHARES.items():
            rows = (ours["where"] == where).to_numpy()
            for key, column in zip(keys, ("self_fraction", "cumulative_fraction"), strict=True):
                if key in theirs:
                    same(
                        ours.loc[rows, column],
                        theirs.loc[rows, key],
                        f"{name} {key}",
                        absolute=1e-12,
                    )
