"""Blocks alive at a moment, against a walk through the events; and what allocators leave out or get
wrong.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.analysis import notes
from nbprof.analysis.memory import alive as memory_alive
from nbprof.analysis.memory import memory
from nbprof.core.errors import NbprofError
from nbprof.profiles.load import load
from nbprof.tools.memory import payload as memory_view
from tests.support.build import profile
from tests.support.examples import examples
from tests.support.kineto import Kineto
from tests.support.kineto import profile as torch_profile
from tests.support.xspace import MS, PlaneWriter, xspace

EVENTS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 5), st.integers(0, 3)),
    min_size=1,
    max_size=40,
)


def walked(rows: pd.DataFrame, last: int, step: int | None) -> dict[int, int]:
    """Address and bytes of the blocks alive behind an event."""
    alive = {}
    for address, event, size, of in zip(
        *(rows[c].iloc[: last + 1] for c in ("address", "event", "allocated_bytes", "group")),
        strict=True,
    ):
        alive.pop(address, None)
        if event == "allocation":
            alive[address] = (size, of)
    return {a: s for a, (s, of) in alive.items() if step is None or of == step}


def frame(events) -> pd.DataFrame:
    """A timeline of one allocator: (allocation, address, size, step)."""
    heap = np.cumsum([s if a else -s for a, _, s, _ in events])
    heap = heap - min(0, heap.min())
    count = len(events)
    return pd.DataFrame(
        {
            "memory_id": "m",
            "time_ms": np.arange(count, dtype=float),
            "event": ["allocation" if e[0] else "deallocation" for e in events],
            "requested_bytes": [e[2] for e in events],
            "allocated_bytes": [e[2] if e[0] else -e[2] for e in events],
            "op": [f"op{e[2]}" for e in events],
            "group": [e[3] for e in events],
            "region_type": "",
            "data_type": "",
            "shape": "",
            "stack_bytes": 0,
            "heap_bytes": heap,
            "free_bytes": 100 - heap,
            "fragmentation": 0.0,
            "in_use_bytes": heap,
            "order": np.arange(count),
            "address": [e[1] for e in events],
            "lifetime_peak_bytes": int(heap.max()),
            "capacity_bytes": pd.array([None] * count, "Int64"),
        }
    )


@settings(max_examples=examples(100))
@given(events=EVENTS, whole=st.booleans())
def test_blocks_at_every_moment_are_those_of_a_walk(events, whole):
    rows = frame(events)
    for last in range(len(events)):
        table = memory_alive.blocks_at(rows, float(last), "m", from_start=whole)
        told = table[~table["op"].isin([memory_alive.UNUSED, memory_alive.EARLIER])]
        alive = walked(rows, last, None if whole else rows["group"].iloc[last])
        assert sorted(np.repeat(told["allocated_bytes"], told["occurrences"]).tolist()) == sorted(
            alive.values()
        )
        rest = table["allocated_bytes"][
            table["op"].isin([memory_alive.UNUSED, memory_alive.EARLIER])
        ].sum()
        assert rest == max(rows["heap_bytes"].iloc[last] - sum(alive.values()), 0)


@settings(max_examples=examples(60))
@given(events=EVENTS, most=st.integers(0, 10), data=st.data())
def test_moments_tell_the_same_as_one_at_a_time(events, most, data):
    rows = frame(events)
    at = np.array(sorted(data.draw(st.sets(st.integers(0, len(events) - 1), min_size=1))), np.int64)
    found = memory_alive.moments(rows, at, most)
    assert sorted(found.events.tolist()) == at.tolist()
    for slot, position in enumerate(found.events.tolist()):
        now = found.moment <= slot
        count = np.bincount(
            found.block[now], weights=found.change[now], minlength=len(found.blocks)
        )
        told = np.repeat(found.blocks["allocated_bytes"], count.astype(int)).tolist()
        alive = sorted(walked(rows, position, rows["group"].iloc[position]).values())
        assert len(told) + found.smaller_count[slot] == len(alive)
        assert sum(told) + found.smaller_bytes[slot] == sum(alive)
        if not found.smaller_count.any():
            assert sorted(told) == alive
    # As part of a timeline that has the events of another allocator as well.
    both = pd.concat(
        [rows.assign(memory_id="other", address=64, allocated_bytes=1), rows], ignore_index=True
    )
    again = memory_alive.moments(both, at, most, np.arange(len(rows), len(both)))
    pd.testing.assert_frame_equal(again.blocks, found.blocks)
    assert all(
        np.array_equal(a, b) for a, b in zip(again, found, strict=True) if isinstance(a, np.ndarray)
    )


def test_the_payload_tells_what_is_alive_at_every_drawn_point(tmp_path):
    p = profile(
        tmp_path,
        allocations(
            [
                (True, 64 * (i % 5), 100 + i % 3) if i % 2 else (False, 64 * ((i * 3) % 5), 100)
                for i in range(60)
            ]
        ),
    )
    part = memory_view.payload(p.run)["ids"][0]
    moments, points = part["moments"], part["time_ms"]
    blocks = moments["blocks"]["data"]["allocated_bytes"]
    for slot, point in enumerate(moments["point"].values.tolist()):
        now = moments["moment"].values <= slot
        count = np.bincount(
            moments["block"][now], weights=moments["change"][now], minlength=len(blocks)
        )
        table = p.memory.at(float(points[point]))
        told = table[table["op"] != moments["rest"]]
        assert (count * blocks).sum() == (told["allocated_bytes"] * told["occurrences"]).sum()
        rest = table.loc[table["op"] == moments["rest"], "allocated_bytes"].sum()
        assert (
            max(
                part["heap_bytes"][point] - (count * blocks).sum() - moments["smaller_bytes"][slot],
                0,
            )
            == rest
        )


FULL = {
    "bytes_reserved": 0,
    "bytes_available": 10_000,
    "fragmentation": 0.5,
    "peak_bytes_in_use": 5000,
}


def allocations(events, drop=(), name="GPU_0_bfc", begin=1000, **more) -> bytes:
    """Events (allocation, address, size) of one allocator that has `begin` bytes in use before the
    first, without the stats in `drop`.
    """
    host = PlaneWriter("/host:CPU")
    made, heap = [], begin
    for i, (allocation, address, size) in enumerate(events):
        heap += size if allocation else -size
        stats = {
            "allocator_name": name,
            "bytes_allocated": heap,
            "addr": address,
            "requested_bytes": size - 1,
            "allocation_bytes": size,
            **FULL,
            **(
                {"tf_op": f"op{size}:Add", "region_type": "output", "data_type": 1, "shape": "[2]"}
                if allocation
                else {"data_type": 0}
            ),
            **more,
        }
        given = {k: v for k, v in stats.items() if k not in drop}
        made.append(
            host.event(
                "MemoryAllocation" if allocation else "MemoryDeallocation", i * MS, 0, **given
            )
        )
    host.line("t", made)
    return xspace(host)


SOME = [(True, 64, 100), (True, 128, 300), (False, 64, 100), (True, 64, 200)]


def test_the_view_shows_no_data_type_where_none_is_known(tmp_path):
    p = profile(tmp_path, allocations(SOME, bytes_reserved=500))
    assert set(p.memory.peak["data_type"]) == {"INVALID", "float"}, "as TensorFlow calls it"
    one = memory_view.payload(p.run)["ids"][0]
    for column in (
        one["peak"]["data"]["data_type"],
        one["moments"]["blocks"]["data"]["data_type"],
        one["data_type"],
    ):
        assert {column["values"][code] for code in column["codes"]} - {""} == {"float"}


def test_a_block_that_was_there_before_the_recording(tmp_path):
    p = profile(tmp_path, allocations([(False, 512, 400), *SOME, (False, 1024, 50)]))
    timeline = p.memory.timeline
    assert (timeline["in_use_bytes"] >= 0).all()
    first = timeline.iloc[0]
    assert (first["event"], first["op"], first["region_type"], first["shape"]) == (
        "deallocation",
        "",
        "",
        "",
    ), "nothing is known of it"
    row = p.memory.summary.iloc[0]
    assert (row["peak_bytes"], row["allocations"], row["deallocations"]) == (1100, 3, 3)
    peak = p.memory.peak.set_index("op")["allocated_bytes"]
    assert peak.to_dict() == {memory_alive.UNUSED: 600, "op300": 300, "op200": 200}


def test_two_allocations_at_one_address(tmp_path):
    p = profile(
        tmp_path, allocations([(True, 64, 100), (True, 64, 300), (False, 64, 300)], begin=0)
    )
    assert p.memory.timeline["op"].tolist() == ["op100", "op300", "op100"], (
        "the first at an address is the one that is freed"
    )
    peak = p.memory.peak
    assert (peak["allocated_bytes"] * peak["occurrences"]).sum() == 400
    assert peak.set_index("op")["allocated_bytes"].to_dict() == {
        "op300": 300,
        memory_alive.UNUSED: 100,
    }


def test_of_equal_peaks_the_last_counts(tmp_path):
    p = profile(
        tmp_path,
        allocations(
            [(True, 64, 100), (False, 64, 100), (True, 128, 100), (False, 128, 100)], begin=0
        ),
    )
    row = p.memory.summary.iloc[0]
    assert (row["peak_bytes"], row["peak_time_ms"]) == (100, 2.0)
    assert len(p.memory.peak) == 1


def test_events_without_any_stat(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("t", [host.event("MemoryAllocation", 0, 0), host.event("MemoryDeallocation", MS, 0)])
    p = profile(tmp_path, xspace(host))
    timeline = p.memory.timeline
    for column in (
        "requested_bytes",
        "allocated_bytes",
        "stack_bytes",
        "heap_bytes",
        "free_bytes",
        "fragmentation",
        "in_use_bytes",
    ):
        assert timeline[column].isna().all(), column
    row = p.memory.summary.iloc[0]
    assert (row["allocations"], row["deallocations"]) == (1, 1)
    assert (
        row[
            [
                "capacity_bytes",
                "peak_bytes",
                "peak_time_ms",
                "peak_heap_bytes",
                "lifetime_peak_bytes",
            ]
        ]
        .isna()
        .all()
    )
    assert not len(p.memory.peak)
    assert not len(p.memory.at(0.5))
    assert "peak_memory_bytes" not in p.overview or p.overview["peak_memory_bytes"] is None
    p.payload()
    p.text()


def test_an_allocator_with_a_stack_only(tmp_path):
    drop = (
        "bytes_allocated",
        "allocation_bytes",
        "requested_bytes",
        "bytes_available",
        "fragmentation",
        "peak_bytes_in_use",
        "addr",
    )
    p = profile(tmp_path, allocations(SOME, drop=drop, bytes_reserved=4096))
    timeline = p.memory.timeline
    assert timeline["in_use_bytes"].tolist() == [4096] * 4
    assert timeline["heap_bytes"].isna().all()
    row = p.memory.summary.iloc[0]
    assert (row["peak_bytes"], row["peak_stack_bytes"]) == (4096, 4096)
    assert (
        row[["capacity_bytes", "peak_heap_bytes", "peak_free_bytes", "peak_fragmentation"]]
        .isna()
        .all()
    )
    assert p.memory.peak["op"].tolist() == ["stack"]
    p.payload()


@pytest.mark.parametrize(
    ("stat", "column", "said"),
    [
        ("fragmentation", "fragmentation", "fragmentation"),
        ("bytes_reserved", "stack_bytes", "stack"),
        ("bytes_available", "free_bytes", "free bytes"),
        ("requested_bytes", "requested_bytes", "bytes requested"),
        ("peak_bytes_in_use", None, "peak of the whole run"),
    ],
)
def test_what_an_allocator_does_not_state_is_absent_and_said(tmp_path, stat, column, said):
    p = profile(tmp_path, allocations(SOME, drop=(stat,)))
    if column:
        assert p.memory.timeline[column].isna().all()
    assert p.memory.summary["peak_bytes"].tolist() == [1500]
    assert any(
        "GPU_0_bfc" in n.text and f"do not include {said}" in n.text for n in p.receipt.lines
    )
    whole = profile(tmp_path, allocations(SOME))
    assert "empty_memory_columns" not in set(whole.receipt.notes["key"])
    p.payload()


def test_bytes_in_use_are_added_up_where_none_are_stated(tmp_path):
    p = profile(tmp_path, allocations([(False, 512, 400), *SOME], drop=("bytes_allocated",)))
    assert p.memory.timeline["heap_bytes"].tolist() == [0, 100, 400, 300, 500]
    assert p.memory.summary["peak_bytes"].tolist() == [500]


def test_a_negative_number_of_bytes_is_none(tmp_path):
    p = profile(tmp_path, allocations(SOME, bytes_available=-5))
    assert p.memory.timeline["free_bytes"].isna().all()
    assert p.memory.summary["capacity_bytes"].isna().all()


def test_a_deallocation_without_a_size_has_that_of_its_block(tmp_path):
    data = allocations(SOME)
    host = PlaneWriter("/host:CPU")
    common = {"allocator_name": "0", "bytes_allocated": 100, **FULL, "addr": 64}
    host.line(
        "t",
        [
            host.event(
                "MemoryAllocation", 0, 0, requested_bytes=90, allocation_bytes=100, **common
            ),
            host.event("MemoryDeallocation", MS, 0, **common),
            host.event("MemoryDeallocation", 2 * MS, 0, **common),
        ],
    )
    p = profile(tmp_path, xspace(host))
    (by_op,) = p.memory.ops.to_dict("records")
    assert (by_op["allocations"], by_op["allocated_bytes"], by_op["deallocations"]) == (1, 100, 2)
    assert pd.isna(by_op["freed_bytes"]), "one of the two sizes is unknown"
    timeline = p.memory.timeline
    assert timeline["allocated_bytes"].iloc[:2].tolist() == [100, -100]
    assert timeline["requested_bytes"].iloc[1] == 90
    assert timeline["allocated_bytes"].isna().tolist() == [False, False, True], (
        "of the last nothing is known"
    )
    assert profile(tmp_path, data).run.memory_timeline["allocated_bytes"].dtype == np.int64, (
        "plain where all is stated"
    )


def test_what_ops_free_is_counted_where_only_the_block_states_its_size(tmp_path):
    host = PlaneWriter("/host:CPU")
    common = {"allocator_name": "0", "bytes_allocated": 100, **FULL, "addr": 64}
    taken = host.event("MemoryAllocation", 0, 0, requested_bytes=90, allocation_bytes=100, **common)
    host.line("t", [taken, host.event("MemoryDeallocation", MS, 0, **common)])
    p = profile(tmp_path, xspace(host))
    (by_op,) = p.memory.ops.to_dict("records")
    assert (by_op["deallocations"], by_op["freed_bytes"], by_op["increase_bytes"]) == (1, 100, 0)
    assert p.memory.summary["deallocations"].tolist() == [1]


def test_allocators_of_one_peak_are_in_the_order_of_their_names(tmp_path):
    host = PlaneWriter("/host:CPU")
    peaks = {
        "1": 5 * 2**30 + 9,
        "2": 5 * 2**30 + 8,
        "10": 5 * 2**30 + 7,
        "0": 5 * 2**30,
        "3": 2**30,
    }
    made = [
        host.event(
            "MemoryAllocation",
            MS,
            0,
            allocator_name=name,
            bytes_allocated=size,
            requested_bytes=size,
            allocation_bytes=size,
            addr=64,
        )
        for name, size in peaks.items()
    ]
    host.line("t", made)
    part = memory_view.payload(profile(tmp_path, xspace(host)).run)
    assert [one["memory_id"] for one in part["ids"]] == ["0", "1", "2", "10", "3"]


def test_a_moment_can_be_asked_for(tmp_path):
    p = profile(tmp_path, allocations(SOME))
    assert not len(p.memory.at(-1))
    assert p.memory.at(0.5).set_index("op")["allocated_bytes"].to_dict() == {
        memory_alive.UNUSED: 1000,
        "op100": 100,
    }
    assert p.memory.at(1e9)["allocated_bytes"].sum() == 1500
    assert p.memory.at(1e9, whole=True)["op"].tolist()[0] == memory_alive.EARLIER
    pd.testing.assert_frame_equal(p.memory.at(3.0), p.memory.peak)
    with pytest.raises(NbprofError, match="it has GPU_0_bfc"):
        p.memory.at(1.0, "GPU_1_bfc")
    with pytest.raises(NbprofError, match="number of milliseconds"):
        p.memory.at(float("nan"))


def test_pytorch_is_followed_from_the_begin_of_the_recording(tmp_path):
    k = Kineto()
    k.op("aten::mm", 0, 100)
    for i, (size, address) in enumerate(
        [(100, 1), (300, 2), (-100, 1), (-50, 9), (200, 1), (200, 1)]
    ):
        k.memory(
            10 + i,
            size,
            address,
            1000 + sum([100, 300, -100, -50, 200, 200][: i + 1]),
            reserved=4096,
            device=0,
        )
    p = torch_profile(tmp_path, k)
    timeline = p.memory.timeline
    assert (timeline["in_use_bytes"] >= 0).all()
    assert timeline["in_use_bytes"].tolist() == [1100, 1400, 1300, 1250, 1450, 1650]
    assert timeline[["stack_bytes", "requested_bytes", "fragmentation"]].isna().all(axis=None)
    table = p.memory.at(timeline["time_ms"].iloc[4])
    assert (
        table.set_index("op")["allocated_bytes"].to_dict()
        == {memory_alive.EARLIER: 950, "aten::mm": 300}
        or len(table) == 3
    )
    assert (table["allocated_bytes"] * table["occurrences"]).sum() == 1450
    assert any("do not include stack, fragmentation" in n.text for n in p.receipt.lines)


def test_notes_name_the_kinds_of_allocators_once():
    one = frame([(True, 1, 5, 0), (False, 1, 5, 0)])
    bare = one.assign(fragmentation=np.nan)
    rows = pd.concat(
        [bare.assign(memory_id=f"cpu{i}") for i in range(3)] + [one], ignore_index=True
    )
    assert memory.notes_on(rows) == [
        notes.empty_memory_columns(["cpu0", "cpu1", "cpu2"], ["fragmentation"])
    ]
    assert memory.notes_on(one) == []


@pytest.mark.parametrize("time", ["x", None, float("nan")])
def test_a_moment_that_is_no_number_is_one_sentence(time):
    memory = load(Path(__file__).parents[1] / "data" / "torch" / "cpu_ops.pt.trace.json.gz").memory
    with pytest.raises(NbprofError, match="time_ms must be a number"):
        memory.at(time)
