"""Memory profile against XProf 2.24.2 and against what TensorFlow 2.3/2.4 itself wrote: allocators,
peaks, blocks alive, timelines.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.memory import memory
from nbprof.analysis.memory.alive import UNUSED, at_peak
from nbprof.tools.memory.payload import sample
from tests.parity.deviations import known
from tests.parity.peer import GUIDE, GUIDE_NAMES, NAMES, XPROF, guide, profile, same
from tests.support.profiles import expected, real
from tests.support.xspace_proto import parse

STATE = {
    "stackReservedBytes": "stack_bytes",
    "heapAllocatedBytes": "heap_bytes",
    "freeMemoryBytes": "free_bytes",
    "fragmentation": "fragmentation",
    "peakBytesInUse": "lifetime_peak_bytes",
}
BLOCK = {
    "tfOpName": "op",
    "allocationBytes": "allocated_bytes",
    "requestedBytes": "requested_bytes",
    "regionType": "region_type",
    "dataType": "data_type",
    "tensorShape": "shape",
}


def answers(name: str, peer: str) -> dict[str, Any]:
    """By allocator."""
    data = (
        expected(name, XPROF, "memory_profile") if peer == XPROF else guide(name, "memory_profile")
    )
    assert int(data["numHosts"]) == 1
    by_id = dict(data.get("memoryProfilePerAllocator", {}))
    assert sorted(by_id) == sorted(data.get("memoryIds", []))
    return by_id


def events(snapshots: list[dict[str, Any]]) -> pd.DataFrame:
    """Snapshots as a frame, one row each: the state of the allocator, and what the event says of
    its block.
    """
    flat = [
        {"time": s["timeOffsetPs"], **s["aggregationStats"], **s["activityMetadata"]}
        for s in snapshots
    ]
    out = pd.DataFrame(flat)
    numbers = [
        "time",
        "address",
        "stepId",
        "requestedBytes",
        "allocationBytes",
        *(k for k in STATE if k != "fragmentation"),
    ]
    return out.astype(dict.fromkeys(numbers, "int64")) if len(out) else out


def events_of(timeline: pd.DataFrame, memory_id: object) -> pd.DataFrame:
    """The events of one allocator."""
    return timeline.iloc[np.flatnonzero(timeline["memory_id"].to_numpy(object) == memory_id)]


def begins(name: str) -> dict[int, int]:
    """ps between the start of the profile and the begin of each lane's line, as the protobuf
    library reads the file.
    """
    (path,) = real(name).glob("*.xplane.pb")
    space = parse(path.read_bytes())
    stamps = [line.timestamp_ns for plane in space.planes for line in plane.lines if line.events]
    first = min(s for s in stamps if s >= 0)
    trace = profile(name).run.trace
    (host,) = (plane for plane in space.planes if plane.name == "/host:CPU")
    by_id = {line.id: (line.timestamp_ns - first) * 1000 for line in host.lines}
    on_host = trace.lanes[trace.lanes["plane_name"] == "/host:CPU"]
    return {
        int(lane): by_id[int(line)]
        for lane, line in zip(on_host["lane"], on_host["line_id"], strict=True)
    }


def rows(name: str) -> pd.DataFrame:
    """Our timeline with what the analyses alone see; where lines begin at different moments on
    XProf's clock.

    XProf counts the time of an event from the begin of its line, so that events of different
    threads come in a wrong order there.
    """
    run = profile(name).run
    if known("memory_profile", "time_ms", XPROF, name) is None:
        return run.memory_timeline
    lanes = begins(name)
    a = run.activity.allocations
    begin = np.array([lanes[int(lane)] for lane in run.trace.events.lane[a["event"].to_numpy()]])
    table = (
        a.assign(time=a["time"] - begin)
        .sort_values("event", kind="stable")
        .sort_values("time", kind="stable", ignore_index=True)
    )
    made = run.activity
    seen = SimpleNamespace(
        allocations=table,
        texts=made.texts,
        ops=made.ops,
        memory_capacity={},
        memory_added_up=made.memory_added_up,
    )
    return memory.timeline(seen)


def ours(name: str, ident: str) -> pd.DataFrame:
    """The timeline of an allocator."""
    return events_of(rows(name), ident)


def peaks(name: str) -> pd.DataFrame:
    """Blocks alive at the peaks of that timeline."""
    table = rows(name)
    return at_peak(table, memory.summary(table))


def same_events(mine: pd.DataFrame, theirs: pd.DataFrame, what: str, sizes: bool = True) -> None:
    same(mine["event"].str.upper(), theirs["memoryActivity"], f"{what} event")
    same(mine["group"], theirs["stepId"], f"{what} step")
    same(mine["address"], theirs["address"], f"{what} address")
    for key, column in STATE.items():
        same(
            mine[column].fillna(0),
            theirs[key],
            f"{what} {column}",
            rel=1e-5 if key == "fragmentation" else 0,
        )
    for key, column in BLOCK.items():
        other = theirs[key]
        if column == "allocated_bytes":
            # Ours are negative where a block is freed.
            other = other.where(theirs["memoryActivity"] == "ALLOCATION", -other)
        stated = (
            theirs[key] > 0
            if key.endswith("Bytes") and not sizes
            else np.ones(len(theirs), np.bool_)
        )
        same(
            mine[column].fillna(0)[np.asarray(stated)],
            other[np.asarray(stated)],
            f"{what} {column}",
        )


def shift(name: str, peer: str) -> float:
    """How many ps our clock is before the peer's, which counts from the begin of the host's lines:
    one number for all events.
    """
    found = set()
    for ident, theirs in answers(name, peer).items():
        peak = memory.summary(rows(name)).set_index("memory_id").loc[ident, "peak_time_ms"]
        found.add(round(peak * 1e9) - int(theirs["profileSummary"]["peakStatsTimePs"]))
    assert max(found) - min(found) <= 1
    return min(found)


@pytest.mark.parametrize(
    ("name", "peer"), [*((n, XPROF) for n in NAMES), *((n, GUIDE) for n in GUIDE_NAMES)]
)
def test_allocators_and_their_peaks(name, peer):
    theirs = answers(name, peer)
    table = memory.summary(rows(name)).set_index("memory_id")
    assert sorted(table.index) == sorted(theirs)
    assert table["peak_bytes"].is_monotonic_decreasing
    for ident, answer in theirs.items():
        row, total = table.loc[ident], answer["profileSummary"]
        peak = total["peakStats"]
        assert row["peak_bytes"] == int(peak["peakBytesInUse"])
        assert row["peak_stack_bytes"] == int(peak["stackReservedBytes"])
        assert row["peak_heap_bytes"] == int(peak["heapAllocatedBytes"])
        assert row["peak_free_bytes"] == int(peak["freeMemoryBytes"])
        assert row["peak_fragmentation"] == pytest.approx(peak["fragmentation"], rel=1e-5)
        assert row["capacity_bytes"] == int(total["memoryCapacity"])
        lifetime = int(total["peakBytesUsageLifetime"])
        if known("memory_profile", "lifetime_peak_bytes", peer, name):
            assert row["lifetime_peak_bytes"] >= max(lifetime, int(peak["peakBytesInUse"]))
        else:
            assert row["lifetime_peak_bytes"] == lifetime
        assert round(row["peak_time_ms"] * 1e9) - int(total["peakStatsTimePs"]) == pytest.approx(
            shift(name, peer), abs=1
        )


def test_the_lifetime_peak_is_no_lower_than_a_peak_that_was_seen():
    theirs = answers("tf-gpu/v100x8-collectives", XPROF)["GPU_4_bfc"]["profileSummary"]
    table = profile("tf-gpu/v100x8-collectives").memory.summary.set_index("memory_id")
    assert (
        int(theirs["peakBytesUsageLifetime"])
        < int(theirs["peakStats"]["peakBytesInUse"])
        == 6208853760
    )
    assert table.loc["GPU_4_bfc", "lifetime_peak_bytes"] == 6208853760
    tpu = profile("jax/tpu-v6e-inference").memory.summary
    assert (tpu["lifetime_peak_bytes"] >= tpu["peak_bytes"]).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_sampled_timeline(name):
    """XProf's sampled timeline, event by event, with ops and steps as it repairs them."""
    for ident, answer in answers(name, XPROF).items():
        theirs = events(answer["sampledTimelineSnapshots"])
        full = ours(name, ident)
        mine = full.iloc[sample(full["in_use_bytes"].to_numpy(np.float64))]
        same_events(
            mine,
            theirs,
            f"{name} {ident}",
            sizes=known("memory_profile", "allocated_bytes", XPROF, name) is None,
        )
        clock = np.round(mine["time_ms"].to_numpy() * 1e9) - theirs["time"].to_numpy()
        assert np.abs(clock - shift(name, XPROF)).max() <= 1


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_the_timeline_of_the_guide(name):
    """TensorFlow 2.3/2.4 wrote all events where they were few, else the 1,000 with the most bytes
    in use.
    """
    for ident, answer in answers(name, GUIDE).items():
        theirs = events(answer["memoryProfileSnapshots"])
        full = ours(name, ident)
        if len(full) <= 1000:
            mine = full
        else:
            assert (
                -theirs["heapAllocatedBytes"] - theirs["stackReservedBytes"]
            ).is_monotonic_increasing
            at = np.round(full["time_ms"] * 1e9).astype("int64") - int(shift(name, GUIDE))
            mine = full.assign(at=at).merge(
                theirs.assign(place=np.arange(len(theirs)))[
                    ["time", "address", "memoryActivity", "place"]
                ],
                left_on=["at", "address"],
                right_on=["time", "address"],
            )
            mine = mine[mine["event"].str.upper() == mine["memoryActivity"]].sort_values(
                "place", ignore_index=True
            )
            least = full["in_use_bytes"].nlargest(1000).min()
            assert theirs["heapAllocatedBytes"].min() == least
        same_events(mine, theirs, f"{name} {ident}")


@pytest.mark.parametrize(
    ("name", "peer"), [*((n, XPROF) for n in NAMES), *((n, GUIDE) for n in GUIDE_NAMES)]
)
def test_blocks_alive_at_the_peak(name, peer):
    table = peaks(name)
    for ident, answer in answers(name, peer).items():
        mine = table[table["memory_id"] == ident]
        full, found = ours(name, ident), []
        snapshots = answer["memoryProfileSnapshots"]
        for active in answer["activeAllocations"]:
            snapshot, special = int(active["snapshotIndex"]), int(active["specialIndex"])
            if special >= 0:
                block = answer["specialAllocations"][special]
                block = {
                    **block,
                    "tfOpName": block["tfOpName"].replace("preallocated/unknown", UNUSED),
                }
            elif peer == GUIDE:
                # An index into all events in time order, of which the file has only some.
                event = full.iloc[snapshot]
                block = {key: event[column] for key, column in BLOCK.items()}
            else:
                block = snapshots[snapshot]["activityMetadata"]
            sizes = {key: int(block[key]) for key in BLOCK if key.endswith("Bytes")}
            found.append(
                {
                    **{column: sizes.get(key, block[key]) for key, column in BLOCK.items()},
                    "occurrences": int(active["numOccurrences"]),
                }
            )
        theirs = pd.DataFrame(found, columns=[*BLOCK.values(), "occurrences"])
        used = full["in_use_bytes"].max()
        assert (mine["allocated_bytes"] * mine["occurrences"]).sum() == used, "the rows add up"
        if (theirs["allocated_bytes"] * theirs["occurrences"]).sum() != used:
            # The peer counts a block twice whose deallocation belongs to another step, and so too
            # little as unused.
            assert known("memory_profile", "unused preallocated device memory", peer, name)
            mine, theirs = (
                f.assign(
                    **{
                        c: f[c].where(f["op"] != UNUSED, 0)
                        for c in ("allocated_bytes", "requested_bytes")
                    }
                )
                for f in (mine, theirs)
            )
            mine, theirs = (
                f.sort_values(["allocated_bytes", "op"], kind="stable", ascending=[False, True])
                for f in (mine, theirs)
            )
        elif theirs["op"].tolist() == [UNUSED] and len(mine) > 1:
            # The peer shows the time of one peak and looks for the blocks of another's step: it
            # finds none.
            assert known("memory_profile", "peak", peer, name)
            continue
        for column in theirs:
            same(mine[column], theirs[column], f"{name} {ident} {column}")


@pytest.mark.parametrize("name", NAMES)
def test_times_count_from_the_start_of_the_profile(name):
    """Where lines begin at different moments, an event is at that of its line and XProf's offset
    together.
    """
    table = profile(name).memory.timeline
    assert table["time_ms"].is_monotonic_increasing
    if not len(table):
        return
    lanes, clock = begins(name), rows(name)
    lane = profile(name).run.trace.events.lane[clock["order"].to_numpy()]
    begin = np.array([lanes[int(one)] for one in lane])
    differ = known("memory_profile", "time_ms", XPROF, name) is not None
    assert (len(set(begin.tolist())) > 1) == differ
    if differ:
        again = clock.assign(time_ms=clock["time_ms"] + begin / 1e9).sort_values(
            ["time_ms", "order"], kind="stable"
        )
        assert again["time_ms"].to_numpy() == pytest.approx(table["time_ms"].to_numpy())


@pytest.mark.parametrize("name", NAMES)
def test_any_moment_adds_up_as_the_peak_does(name):
    p = profile(name)
    summary = p.memory.summary
    for row in summary.to_dict("records"):
        ident = row["memory_id"]
        full = events_of(p.run.memory_timeline, ident)
        table = p.memory.peak
        pd.testing.assert_frame_equal(
            p.memory.at(row["peak_time_ms"], ident),
            table[table["memory_id"] == ident].reset_index(drop=True),
        )
        for at in np.linspace(0, len(full) - 1, 7).astype(int):
            moment = full["time_ms"].iloc[at]
            last = full.iloc[np.searchsorted(full["time_ms"], moment, side="right") - 1]
            table = p.memory.at(float(moment), ident)
            assert (table["allocated_bytes"] * table["occurrences"]).sum() == last["in_use_bytes"]
        assert not len(p.memory.at(float(full["time_ms"].iloc[0]) - 1e-3, ident))


def test_a_deallocation_without_a_size_has_that_of_its_block():
    name = "jax/tpu-v6e-inference"
    table = profile(name).memory.timeline
    freed = table[table["event"] == "deallocation"]
    assert (freed["allocated_bytes"] < 0).all()
    for ident, group in table.groupby("memory_id"):
        # Heap after each event is the heap before with the block.
        assert (
            group["heap_bytes"].diff().iloc[1:] == group["allocated_bytes"].iloc[1:]
        ).mean() > 0.5, ident
        theirs = events(answers(name, XPROF)[ident]["sampledTimelineSnapshots"])
        assert (
            theirs.loc[theirs["memoryActivity"] == "DEALLOCATION", "allocationBytes"] == 0
        ).all()
