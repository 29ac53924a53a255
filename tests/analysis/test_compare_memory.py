"""Memory of two runs: by role, and by the stack that allocated it."""

from __future__ import annotations

import pandas as pd
import pytest

from nbprof.analysis.compare import memory
from nbprof.analysis.compare.compare import SideMemory
from nbprof.core.memory_roles import RESERVED
from nbprof.schema import frames

MIB = 1 << 20


def roles(name, sizes):
    rows = pd.DataFrame({"role": list(sizes), "bytes": list(sizes.values())})
    rows = rows.assign(memory_id="GPU 0", device=0, percent=0.0, blocks=1)
    return frames.typed(name, rows)


def peak(**sizes):
    named = {role.replace("_", " "): size * MIB for role, size in sizes.items()}
    return SideMemory(peak=roles("memory.roles", named), has_allocations=True)


def snapshot(sizes, blocks=()):
    named = {role: size * MIB for role, size in sizes.items()}
    columns = ["device", "stack", "location", "blocks", "bytes"]
    return SideMemory(
        snapshot=roles("allocator.roles", named), stacks=pd.DataFrame(blocks, columns=columns)
    )


def test_what_grew_most_comes_first():
    rows = memory.roles(
        peak(parameters=8, activations=10, inputs=1),
        peak(parameters=8, activations=30, gradients=8),
    )
    assert rows["role"].tolist() == ["activations", "gradients", "inputs", "parameters"]
    assert (rows["change_bytes"] // MIB).tolist() == [20, 8, -1, 0]
    # A role that a run does not have takes no memory in it.
    assert (rows["before_bytes"] // MIB).tolist() == [10, 0, 1, 8]
    assert set(rows["moment"]) == {"peak"}
    assert set(rows["reason"]) == {""}
    assert memory.missing(peak(inputs=1), peak(inputs=2)) == ""


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (SideMemory(), "allocations were not recorded"),
        (SideMemory(has_allocations=True), "the use of the recorded allocations is unknown"),
        (SideMemory(failure="memory.roles failed."), "memory.roles failed."),
    ],
)
def test_a_run_without_roles_has_a_reason_and_no_bytes(other, why):
    rows = memory.roles(peak(parameters=8), other)
    assert rows["before_bytes"].tolist() == [8 * MIB]
    assert rows[["after_bytes", "change_bytes"]].isna().all(axis=None)
    assert rows["reason"].tolist() == [f"after: {why}"]
    assert memory.missing(peak(parameters=8), other) == f"After: {why.rstrip('.')}."
    assert memory.missing(other, peak(parameters=8)) == f"Before: {why.rstrip('.')}."


def test_what_is_reserved_may_be_unknown_alone():
    rows = memory.roles(peak(inputs=1), peak(**{"inputs": 1, RESERVED: 4})).set_index("role")
    assert pd.isna(rows.loc[RESERVED, "before_bytes"])
    assert pd.isna(rows.loc[RESERVED, "change_bytes"])
    assert rows.loc[RESERVED, "after_bytes"] == 4 * MIB
    assert rows.loc[RESERVED, "reason"] == "before: its allocator does not state it"
    assert rows.loc["inputs", "reason"] == ""


def test_snapshots_are_compared_where_more_runs_have_them():
    first, second = snapshot({"parameters": 4}), snapshot({"parameters": 4, RESERVED: 2})
    rows = memory.roles(first, second).set_index("role")
    assert set(rows["moment"]) == {"snapshot"}
    # Nothing is left of what the first has reserved.
    assert rows.loc[RESERVED, "before_bytes"] == 0
    assert rows.loc[RESERVED, "change_bytes"] == 2 * MIB
    mixed = memory.roles(first, peak(parameters=8))
    assert set(mixed["moment"]) == {"peak"}
    assert set(mixed["reason"]) == {"before: allocations were not recorded"}
    assert memory.missing_snapshot(first, peak(parameters=8)) == (
        "After: there is no snapshot of PyTorch's allocator."
    )
    assert memory.missing_snapshot(first, second) == ""
    assert memory.missing_snapshot(peak(inputs=1), peak(inputs=1)) == ""


def test_plans_of_compiled_programs_are_compared_where_no_roles_are_known_at_the_peak():
    def planned(**sizes):
        named = {role: size * MIB for role, size in sizes.items()}
        return SideMemory(plan=roles("memory.roles", named), has_allocations=True)

    rows = memory.roles(planned(arguments=4, temporaries=9), planned(arguments=4, temporaries=3))
    assert rows["role"].tolist() == ["temporaries", "arguments"]
    assert rows["change_bytes"].tolist() == [-6 * MIB, 0]
    assert set(rows["moment"]) == {"plan"}
    # Roles of another kind: not compared with those of an allocator.
    mixed = memory.roles(planned(arguments=4), peak(parameters=4))
    assert set(mixed["role"]) == {"parameters"}
    assert mixed["before_bytes"].isna().all()
    alone = memory.roles(planned(arguments=4), SideMemory())
    assert alone["reason"].tolist() == ["after: no compiled program has a plan of its memory"]


def test_runs_of_which_nothing_is_known_have_no_rows():
    rows = memory.roles(SideMemory(), SideMemory())
    assert rows.columns.tolist() == frames.names("comparison.memory")
    assert not len(rows)
    assert memory.missing(SideMemory(), SideMemory()) == ""
    assert memory.missing(SideMemory(), SideMemory(failure="a bug.")) == "After: a bug."
    assert memory.stacks(SideMemory(), snapshot({"unknown": 1})).empty


def test_stacks_are_matched_by_their_frames_and_else_by_their_functions():
    before = [
        (0, "a.py:3 keep", "a.py:3 keep", 1, 10),
        (0, "11.py:4 step\n11.py:9 <module>", "11.py:4 step", 2, 20),
        (0, "a.py:7 twice", "a.py:7 twice", 1, 5),
        (0, "a.py:8 twice", "a.py:8 twice", 1, 5),
        (0, "a.py:1 gone", "a.py:1 gone", 3, 30),
        (1, "a.py:3 keep", "a.py:3 keep", 1, 7),
    ]
    after = [
        (0, "a.py:3 keep", "a.py:3 keep", 5, 50),
        (0, "22.py:5 step\n22.py:12 <module>", "22.py:5 step", 3, 35),
        (0, "a.py:17 twice", "a.py:17 twice", 1, 5),
        (0, "a.py:18 twice", "a.py:18 twice", 1, 6),
        (1, "a.py:3 keep", "a.py:3 keep", 1, 7),
    ]
    rows = memory.stacks(snapshot({"unknown": 1}, before), snapshot({"unknown": 1}, after))
    assert rows["change_bytes"].tolist() == [40, -30, 15, 6, 5, -5, -5, 0]
    assert rows["change_bytes"].sum() == 103 - 77
    by_location = rows.set_index(["device", "location"])
    assert by_location.loc[(0, "a.py:3 keep"), "state"] == "both"
    assert by_location.loc[(1, "a.py:3 keep"), "change_bytes"] == 0
    moved = by_location.loc[(0, "22.py:5 step")]
    assert moved["state"] == "moved"
    assert moved["before_stack"].startswith("11.py:4 step")
    assert (moved["before_blocks"], moved["after_blocks"]) == (2, 3)
    # Two that could be either are not guessed.
    assert set(rows[rows["location"].str.endswith("twice")]["state"]) == {"new", "gone"}
    gone = by_location.loc[(0, "a.py:1 gone")]
    assert (gone["state"], gone["after_bytes"], gone["after_blocks"]) == ("gone", 0, 0)
    assert gone["stack"] == "a.py:1 gone"
