"""GPU kernel stats against XProf 2.24.2 and against what TensorFlow 2.3/2.4 itself wrote: every
row, every column, in their order.
"""

from __future__ import annotations

import pandas as pd
import pytest

from nbprof.dialects.tensorcores import op_is_eligible_in_xprof
from tests.parity.deviations import known
from tests.parity.peer import GUIDE, GUIDE_NAMES, NAMES, XPROF, guide, profile, same, xprof

COLUMNS = {
    "rank": "rank",
    "kernel_name": "kernel",
    "registers_per_thread": "registers",
    "block_dim": "block",
    "grid_dim": "grid",
    "occupancy_pct": "occupancy_percent",
    "is_op_tensor_core_eligible": "op_tensor_core_eligible",
    "is_kernel_using_tensor_core": "uses_tensor_core",
    "op_name": "op",
    "occurrences": "occurrences",
    "total_duration_us": "total_us",
    "avg_duration_us": "avg_us",
    "min_duration_us": "min_us",
    "max_duration_us": "max_us",
}
GPU = [
    name
    for name in NAMES
    if name.startswith("tf-gpu/") or (name.startswith("jax/") and "tpu" not in name)
]
GUIDE_GPU = [name for name in GUIDE_NAMES if name.startswith("tf-gpu/")]


@pytest.mark.parametrize("name", NAMES)
def test_as_xprof_has_its_rows_in_its_order(name):
    theirs = xprof(name, "kernel_stats")[0]
    ours = profile(name).kernels.as_xprof()
    assert len(ours) == len(theirs)
    if not len(theirs):
        return
    assert set(theirs.columns) == {*COLUMNS, "shmem_bytes"}, "every column is compared"
    for key, column in COLUMNS.items():
        same(ours[column], theirs[key], f"{name} {column}")
    same(
        ours["static_shared_bytes"] + ours["dynamic_shared_bytes"],
        theirs["shmem_bytes"],
        f"{name} shared memory",
    )


@pytest.mark.parametrize("name", GPU)
def test_the_frame_is_xprofs_but_for_what_is_known(name):
    """Our own rows, added up to kernels, against XProf's."""
    theirs, ours = xprof(name, "kernel_stats")[0], profile(name).kernels.frame
    keys = {"kernel_name": "kernel", "block_dim": "block", "grid_dim": "grid"}
    added = {"occurrences": "occurrences", "total_duration_us": "total_us"}
    mine = ours.groupby(list(keys.values()), sort=True)[list(added.values())].sum().reset_index()
    other = theirs.groupby(list(keys), sort=True)[list(added)].sum().reset_index()
    for key, column in {**keys, **added}.items():
        same(mine[column], other[key], f"{name} {column}")
    # What else differs is in the table of deviations.
    for key, column in {
        "min_duration_us": ("min_us", "min"),
        "max_duration_us": ("max_us", "max"),
    }.items():
        mine = ours.groupby(list(keys.values()), sort=True)[column[0]].agg(column[1])
        same(mine, theirs.groupby(list(keys), sort=True)[key].agg(column[1]), f"{name} {column[0]}")
    ops = ours.groupby("kernel")["op"].agg(set)
    for kernel, op in zip(theirs["kernel_name"], theirs["op_name"], strict=True):
        assert op in ops[kernel] or known("kernel_stats", "op", XPROF, name), (kernel, op)
    # A kernel that XProf knows to use Tensor Cores, or an op that it takes for eligible, is so for
    # us.
    uses, could = (
        ours[ours[c].fillna(False).astype(bool)]
        for c in ("uses_tensor_core", "op_tensor_core_eligible")
    )
    assert set(theirs.loc[theirs["is_kernel_using_tensor_core"], "kernel_name"]) <= set(
        uses["kernel"]
    )
    assert set(theirs.loc[theirs["is_op_tensor_core_eligible"], "kernel_name"]) <= set(
        could["kernel"]
    )
    stated = theirs.loc[theirs["occupancy_pct"] > 0, ["kernel_name", "occupancy_pct"]]
    recorded = ours[ours["occupancy_source"] == "recorded"]
    assert sorted(map(tuple, stated.to_numpy().tolist())) == sorted(
        map(tuple, recorded[["kernel", "occupancy_percent"]].to_numpy().tolist())
    )


def guide_rows(name: str) -> pd.DataFrame:
    reports = pd.DataFrame(guide(name, "kernel_stats")["reports"])
    for flag in ("is_op_tensor_core_eligible", "is_kernel_using_tensor_core"):
        reports[flag] = reports[flag].fillna(False).astype(bool) if flag in reports else False
    for count in ("total_duration_ns", "min_duration_ns", "max_duration_ns", "occurrences"):
        reports[count] = reports[count].astype("int64")
    reports["op_name"] = reports["op_name"].fillna("") if "op_name" in reports else ""
    return reports


@pytest.mark.parametrize("name", GUIDE_GPU)
def test_the_frame_is_the_guides_as_far_as_it_could_read(name):
    """The tools of that time read neither grid nor block nor registers of their own files: their
    rows are kernel x op.
    """
    theirs, ours = guide_rows(name), profile(name).kernels.frame
    columns = {
        "name",
        "block_dim",
        "grid_dim",
        "total_duration_ns",
        "min_duration_ns",
        "max_duration_ns",
        "op_name",
        "occurrences",
    }
    assert set(theirs.columns) <= {
        *columns,
        "is_op_tensor_core_eligible",
        "is_kernel_using_tensor_core",
    }, "every column is compared"
    assert all(d == [1, 1, 1] for column in ("block_dim", "grid_dim") for d in theirs[column])
    keys = ["kernel", "op", "op_tensor_core_eligible", "uses_tensor_core"]
    mine = ours.groupby(keys, sort=False).agg(
        occurrences=("occurrences", "sum"),
        total=("total_us", "sum"),
        least=("min_us", "min"),
        most=("max_us", "max"),
    )
    mine = mine.reset_index().assign(total=lambda f: f["total"].round(3))
    # Of rows with equal time and kernel those of ops that were not taken for eligible come first.
    mine["could"] = [op_is_eligible_in_xprof(op) for op in mine["op"]]
    mine = mine.sort_values(
        ["total", "kernel", "could", "op"], ascending=[False, True, True, True], ignore_index=True
    )
    same(mine["kernel"], theirs["name"], f"{name} kernel")
    names = theirs["op_name"]
    if known("kernel_stats", "op", GUIDE, name):
        names = names.where(~names.str.contains("-"), names.str.partition(":")[0])
    same(mine["op"], names, f"{name} op")
    same(mine["occurrences"], theirs["occurrences"], f"{name} occurrences")
    for column, key in (
        ("total", "total_duration_ns"),
        ("least", "min_duration_ns"),
        ("most", "max_duration_ns"),
    ):
        same(mine[column], theirs[key] / 1000, f"{name} {column}")
    for column, key in (
        ("uses_tensor_core", "is_kernel_using_tensor_core"),
        ("op_tensor_core_eligible", "is_op_tensor_core_eligible"),
    ):
        if known("kernel_stats", column, GUIDE, name):
            assert not (theirs[key] & ~mine[column]).any(), "we know of more, never of fewer"
        else:
            same(mine[column], theirs[key], f"{name} {column}")


@pytest.mark.parametrize("name", GUIDE_GPU)
def test_eligible_ops_that_have_another_name(name):
    theirs, ours = guide_rows(name), profile(name).kernels.frame
    more = set(ours.loc[ours["op_tensor_core_eligible"], "op"]) - set(
        theirs.loc[theirs["is_op_tensor_core_eligible"], "op_name"]
    )
    types = profile(name).ops.frame.set_index("op")["type"]
    assert all(types[op] in ("_FusedConv2D", "MatMul") for op in more), more
    assert bool(more) == bool(known("kernel_stats", "op_tensor_core_eligible", GUIDE, name))


def test_turing_kernels_of_the_884_shape_use_tensor_cores():
    for name in ("tf-gpu/rtx5000-cnn-batch64", "tf-gpu/rtx5000-cnn-batch512"):
        theirs, ours = guide_rows(name), profile(name).kernels.frame
        more = set(ours.loc[ours["uses_tensor_core"], "kernel"]) - set(
            theirs.loc[theirs["is_kernel_using_tensor_core"], "name"]
        )
        assert more
        assert all("s884" in kernel for kernel in more)


def test_shared_memory_of_old_and_amd_files_is_read():
    old, amd = (
        profile(n).kernels.frame for n in ("tf-gpu/rtx5000-cnn-batch8", "jax/mi300-jax08_attention")
    )
    assert (
        old.set_index("kernel").loc["volta_sgemm_128x64_nt", "static_shared_bytes"].eq(12288).all()
    )
    products = amd[amd["kernel"].str.startswith("Cijk_")]
    assert products["static_shared_bytes"].between(8192, 65536).all()
    assert amd["registers"].isna().all(), "not recorded, so absent rather than 0"


@pytest.mark.parametrize("name", GPU)
def test_kernels_added_up_by_name_and_by_op(name):
    face = profile(name).kernels
    frame = face.frame
    for grouped, key, other in ((face.by_name(), "kernel", "ops"), (face.by_op(), "op", "kernels")):
        assert grouped[key].is_unique
        assert set(grouped[key]) == set(frame[key])
        assert grouped["total_us"].is_monotonic_decreasing
        assert grouped["total_us"].sum() == pytest.approx(frame["total_us"].sum())
        assert grouped["occurrences"].sum() == frame["occurrences"].sum()
        assert grouped["percent"].sum() == pytest.approx(100)
        assert (grouped["avg_us"] * grouped["occurrences"]).sum() == pytest.approx(
            frame["total_us"].sum()
        )
        assert (grouped["min_us"] <= grouped["avg_us"] + 1e-9).all()
        assert (grouped["avg_us"] <= grouped["max_us"] + 1e-9).all()
        assert grouped[other].ge(1).all()
        used = frame.loc[frame["uses_tensor_core"].fillna(False).astype(bool), "total_us"].sum()
        assert (
            grouped["tensor_core_percent"].fillna(0) * grouped["total_us"]
        ).sum() / 100 == pytest.approx(used)
