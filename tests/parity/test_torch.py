"""Ops and memory of PyTorch against `torch.profiler`'s own table, `key_averages()`, of the same
run: a stored one, and one recorded here.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbprof.profiles.load import load
from nbprof.profiles.profile import Profile
from nbprof.schema.frames import SCHEMA
from tests.data.record import KEY_AVERAGES
from tests.parity.peer import same
from tests.support import programs

STORED = Path(__file__).parents[1] / "data" / "torch"
# What it says of allocator events that lie in no op.
OUTSIDE = "[memory]"


@pytest.fixture(scope="module", params=["stored", "stored-2.15", "live"])
def run(request, tmp_path_factory) -> tuple[Profile, pd.DataFrame]:
    """Our profile of a run, and the table that PyTorch printed of it."""
    folder = STORED / request.param.removeprefix("stored").removeprefix("-")
    if request.param == "live":
        folder = tmp_path_factory.mktemp("torch")
        programs.run(KEY_AVERAGES, folder / "run", needs="torch")
    table = next(folder.glob("*.key_averages.json"))
    said = pd.DataFrame(json.loads(table.read_text()))
    return load(
        next(folder.glob(f"{table.name.partition('.')[0]}.pt.trace.json*"))
    ), said.set_index("key").sort_index()


def ours(p: Profile) -> pd.DataFrame:
    table = p.ops.frame
    assert set(table["where"]) == {"host"}
    return table.set_index("op").sort_index()


def test_every_op_has_its_count_and_its_times(run):
    p, said = run
    table, ops = ours(p), said[~said["annotation"] & (said.index != OUTSIDE)]
    assert len(ops) > 40
    assert table.index.tolist() == ops.index.tolist()
    same(table["occurrences"], ops["count"].tolist(), "count")
    # The file has whole nanoseconds.
    for column in ("self_us", "total_us"):
        same(table[column], ops[column].tolist(), column, absolute=1e-3 * float(ops["count"].max()))
    same(table["avg_us"], (ops["total_us"] / ops["count"]).tolist(), "average", absolute=1e-3)


def test_the_shares_are_of_the_time_in_ops(run):
    p, said = run
    table, ops = ours(p), said[~said["annotation"] & (said.index != OUTSIDE)]
    same(
        table["self_fraction"],
        (ops["self_us"] / ops["self_us"].sum()).tolist(),
        "share",
        rel=1e-4,
        absolute=1e-6,
    )


def test_what_is_no_op_is_an_annotation_of_the_program(run):
    p, said = run
    notes = said[said["annotation"]]
    assert "forward" in notes.index
    names = p.run.trace.names.tolist()
    assert set(notes.index) <= set(names)
    for name, row in notes.iterrows():
        events = p.trace.events(name=str(name))
        events = events[events["name"] == name]
        assert len(events) == row["count"]
        assert events["duration_us"].sum() == pytest.approx(row["total_us"], abs=1e-3 * len(events))


def test_every_byte_counts_for_the_op_that_took_it_or_gave_it_back(run):
    p, said = run
    rows = p.run.activity.allocations
    signed = np.where(rows["allocation"], rows["allocated"], -rows["allocated"])
    by_op = (
        pd.Series(signed, p.run.activity.ops.values[rows["op"].to_numpy(np.int64)])
        .groupby(level=0)
        .sum()
    )
    assert len(rows) > 50
    ops = said[~said["annotation"] & (said.index != OUTSIDE)]["self_bytes"]
    assert (ops != 0).sum() > 5
    assert {op: int(size) for op, size in by_op.items() if op and size} == {
        op: int(size) for op, size in ops.items() if size
    }
    # In annotations, and outside of all.
    assert by_op.get("", 0) == said["self_bytes"].sum() - ops.sum()


def test_the_increase_of_each_op_is_its_self_memory(run):
    p, said = run
    ops = said[~said["annotation"] & (said.index != OUTSIDE)]["self_bytes"]
    frame = p.memory.ops
    mine = frame[frame["op"] != ""].groupby("op")["increase_bytes"].sum()
    assert mine[mine != 0].to_dict() == ops[ops != 0].to_dict()
    assert frame["increase_bytes"].is_monotonic_decreasing
    assert (frame["allocated_bytes"] - frame["freed_bytes"] == frame["increase_bytes"]).all()
    timeline = p.memory.timeline
    assert frame["allocations"].sum() == (timeline["event"] == "allocation").sum()
    assert frame["increase_bytes"].sum() == timeline["allocated_bytes"].sum()
    assert [c.name for c in SCHEMA["memory.ops"]] == list(frame.columns)


def test_the_timeline_has_every_allocation_with_its_op(run):
    p, _ = run
    timeline, rows = p.memory.timeline, p.run.activity.allocations
    taken = timeline[timeline["event"] == "allocation"].groupby("op")["allocated_bytes"].sum()
    mine = rows[rows["allocation"]]
    by_op = (
        pd.Series(
            mine["allocated"].to_numpy(), p.run.activity.ops.values[mine["op"].to_numpy(np.int64)]
        )
        .groupby(level=0)
        .sum()
    )
    assert taken.to_dict() == by_op.to_dict()
    assert timeline["allocated_bytes"].sum() == int(
        np.where(rows["allocation"], rows["allocated"], -rows["allocated"]).sum()
    )
    held = timeline["in_use_bytes"].to_numpy()
    assert np.array_equal(np.diff(held), timeline["allocated_bytes"].to_numpy()[1:]), (
        "bytes in use go by what is taken and given back"
    )
