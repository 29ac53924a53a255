"""The allocator's history replayed: against the states of the model that wrote it, and against
PyTorch's own sums.
"""

import io
import pickle
import random

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.analysis import notes
from nbprof.analysis.allocator import allocator
from nbprof.analysis.allocator import oom as allocator_oom
from nbprof.analysis.allocator.stacks import NO_STACK, Stacks
from nbprof.analysis.allocator.state import Replay
from nbprof.formats.torch_snapshot import memory as torch_memory
from nbprof.formats.torch_snapshot import snapshot as torch_snapshot
from tests.support.caching_allocator import (
    ACTIVATION,
    BIG,
    LOGGED,
    MIB,
    WEIGHT,
    Allocator,
    OutOfMemory,
    fragmented,
    frame,
    snapshot,
)
from tests.support.profiles import real


def read(taken) -> torch_snapshot.Snapshot:
    return torch_memory.snapshot_from(io.BytesIO(pickle.dumps(taken)).read)


def replayed(*devices, settings=None):
    taken = read(snapshot(*devices, settings=settings))
    return (
        taken,
        [Replay(taken, device.device) for device in devices],
        Stacks(taken.frames, taken.stacks),
    )


def worked(seed: int, *, expandable: bool = False, most: int = 0):
    """A device that was busy for a while, and its segments as they were at some moments, by the
    number of entries until then.
    """
    rng = random.Random(seed)
    device = Allocator(400 * MIB, expandable=expandable, most=most)
    live, pending, states = [], [], []
    total = 0
    for i in range(500):
        before = len(device.trace)
        chance = rng.random()
        try:
            if chance < 0.5:
                size = rng.choice([100, 5000, 700_000, 3 * MIB + 7, 9 * MIB, 30 * MIB])
                live.append(
                    device.alloc(size, rng.choice([WEIGHT, LOGGED]), stream=rng.choice([0, 0, 7]))
                )
            elif live and chance < 0.9:
                block = live.pop(rng.randrange(len(live)))
                later = rng.random() < 0.2
                device.free(block, pending=later)
                pending += [block] * later
            elif pending:
                device.done(pending.pop())
            elif chance > 0.97:
                device.empty_cache()
        except OutOfMemory:
            for block in live[:10]:
                device.free(block)
            live = live[10:]
        total += max(0, len(device.trace) - before)
        if i % 25 == 0:
            states.append((len(device.trace), device.described()))
    return device, states


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_state_of_any_moment_is_that_of_then(seed, expandable):
    device, states = worked(seed, expandable=expandable)
    _, (replay,), _ = replayed(device)
    levels = replay.levels()
    for count, segments in states:
        state = replay.state_after(count)
        blocks = [block for segment in segments for block in segment["blocks"]]
        got = state.blocks[["address", "size", "requested", "state"]].to_numpy().tolist()
        assert [[a, s, r, torch_snapshot.STATES[k]] for a, s, r, k in got] == [
            [b["address"], b["size"], b["requested_size"], b["state"]] for b in blocks
        ]
        assert state.segments[["address", "size", "stream"]].to_numpy().tolist() == [
            [s["address"], s["total_size"], s["stream"]] for s in segments
        ]
        assert state.doubts == 0
        if not count:
            continue
        assert levels["reserved"][count - 1] == sum(s["total_size"] for s in segments)
        assert levels["allocated"][count - 1] == sum(
            b["requested_size"] for b in blocks if b["state"] == "active_allocated"
        )
        assert levels["active"][count - 1] == sum(
            b["requested_size"] for b in blocks if b["state"] != "inactive"
        )


def test_a_history_that_lost_its_begin_is_replayed_from_its_end():
    whole, states = worked(1)
    _, (full,), _ = replayed(whole)
    kept = 200
    whole.trace[:] = whole.trace[-kept:]
    taken, (part,), _ = replayed(whole)
    lost = full.count - kept
    for name, run in part.levels().items():
        assert run.tolist() == full.levels()[name][lost:].tolist()
    assert part.before()["reserved"] == full.levels()["reserved"][lost - 1]
    for count, segments in states:
        if count >= lost:
            got = part.state_after(count - lost).blocks
            used = got[got["state"] != torch_snapshot.INACTIVE]
            want = [
                (b["address"], b["requested_size"])
                for s in segments
                for b in s["blocks"]
                if b["state"] != "inactive"
            ]
            assert [
                tuple(row) for row in used[["address", "requested"]].to_numpy().tolist()
            ] == want
    assert [note.key for note in allocator.notes_on(taken, [part])] == [
        "allocation_history_starts_late"
    ]
    assert allocator.notes_on(read(snapshot(worked(1)[0])), [full]) == []


@pytest.mark.parametrize("expandable", [False, True])
def test_the_parts_of_the_memory_add_up(expandable):
    device, _ = worked(3, expandable=expandable)
    _, (replay,), stacks = replayed(device)
    figures = allocator.measures(replay.end())
    assert figures["reserved_bytes"] == device.reserved
    assert (
        figures["reserved_bytes"]
        == figures["allocated_bytes"] + figures["pending_bytes"] + figures["inactive_bytes"]
    )
    assert figures["inactive_bytes"] == figures["releasable_bytes"] + figures["stranded_bytes"]
    assert 0 < figures["fragmentation_percent"] < 100
    rows = allocator.segments([replay], stacks)
    assert (
        rows["size_bytes"]
        == rows["allocated_bytes"] + rows["pending_bytes"] + rows["inactive_bytes"]
    ).all()
    assert (
        rows["stranded_bytes"].sum()
        == figures["stranded_bytes"]
        == allocator.stranded_by_block(replay.end()).sum()
    )
    assert (
        allocator.holders(replay.end(), stacks)["bytes"].sum()
        == figures["allocated_bytes"] + figures["pending_bytes"]
    )
    # What is releasable is what the allocator gives back when it is told to.
    before = device.reserved
    device.empty_cache()
    assert before - device.reserved == figures["releasable_bytes"]


def test_sums_are_those_of_pytorch():
    viz = pytest.importorskip("torch.cuda._memory_viz")
    device = fragmented()
    taken = snapshot(device)
    _, (replay,), _ = replayed(device)
    figures = allocator.measures(replay.end())
    told = viz.segsum(taken)
    assert f"segments: {figures['segments']}\n" in told
    assert f"total_reserved: {viz.Bytes(figures['reserved_bytes'])}\n" in told
    # It counts what was asked for as allocated, and rounding as free.
    assert (
        f"total_allocated: {viz.Bytes(figures['allocated_bytes'] - figures['rounding_bytes'])}\n"
        in told
    )
    free = figures["inactive_bytes"] + figures["rounding_bytes"]
    assert (
        f"total_free: {viz.Bytes(free)} ({100 * figures['rounding_bytes'] / free:.1f}% internal)\n"
        in told
    )
    lines = viz.trace(taken).splitlines()
    assert f"{len(device.trace)} entries" in lines
    oom = allocator_oom.frame([replay], Stacks([], [()] * 10), {}).iloc[-1]
    assert (
        f"raise OutOfMemoryError # {viz.Bytes(oom['asked_bytes'])} requested, {viz.Bytes(oom['device_free_bytes'])} free in CUDA"
        in lines
    )


def test_who_keeps_free_memory_from_being_given_back():
    _, (replay,), stacks = replayed(fragmented())
    rows = allocator.pinning(replay.end(), stacks)
    first = rows.iloc[0]
    assert first["location"] == "metrics.py:7 append"
    assert (rows["alone_bytes"] <= rows["pinned_bytes"]).all()
    figures = allocator.measures(replay.end())
    assert rows["alone_bytes"].sum() <= figures["stranded_bytes"] <= rows["pinned_bytes"].sum()
    # Without these blocks that much is released.
    device = fragmented()
    for segment in device.segments:
        for block in [b for b in segment.blocks if b.frames == LOGGED]:
            device.free(block)
    before = device.reserved
    device.empty_cache()
    in_full_segments = sum(
        int(s["total_size"])
        for s in fragmented().described()
        if all(b["frames"] == LOGGED for b in s["blocks"])
    )
    assert before - device.reserved - first["alone_bytes"] >= in_full_segments
    assert before - device.reserved > first["alone_bytes"]


@pytest.mark.parametrize("expandable", [False, True])
def test_why_memory_ran_out_by_fragmentation(expandable):
    taken, (replay,), stacks = replayed(fragmented(expandable=expandable))
    ooms = allocator_oom.frame([replay], stacks, taken.settings)
    last = ooms.iloc[-1]
    assert (last["asked_bytes"], last["cause"]) == (64 * MIB, "fragmentation")
    assert last["largest_usable_bytes"] < 64 * MIB < last["stranded_bytes"]
    assert last["location"] == "model.py:48 attention"
    for part in (
        "64.00 MiB requested at model.py:48 attention could not be allocated",
        "stranded in",
        "allocated at metrics.py:7 append",
        "largest free block",
    ):
        assert part in last["explanation"]
    assert ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in last["remedy"]) != expandable
    assert "is already on" in last["remedy"] or not expandable
    # Before that the memory was simply full; pages of 20 MiB leave some of it over.
    if not expandable:
        assert ooms["cause"].iloc[0] == "full"
        assert "smaller batch" in ooms["remedy"].iloc[0]


def test_why_memory_ran_out_otherwise():
    device = Allocator(100 * MIB)
    block = device.alloc(60 * MIB, ACTIVATION, stream=7)
    device.alloc(20 * MIB, WEIGHT)
    device.free(block)
    # Kept for the other stream by a block in the same segment.
    device.alloc(30 * MIB, WEIGHT, stream=7)
    with pytest.raises(OutOfMemory):
        device.alloc(25 * MIB, BIG)
    device.trace[-1]["device_free"] = 0
    limited = Allocator(50 * MIB, device=1)
    with pytest.raises(OutOfMemory):
        limited.alloc(60 * MIB, BIG)
    limited.trace[-1]["device_free"] = 500 * MIB
    taken, replays, stacks = replayed(device, limited)
    ooms = allocator_oom.frame(replays, stacks, taken.settings).set_index("device")
    assert ooms["cause"].to_dict() == {0: "other stream or pool", 1: "limit"}
    assert "belongs to another stream or pool" in ooms["explanation"][0]
    assert "set_per_process_memory_fraction" in ooms["remedy"][1]


def test_private_pools_streams_and_devices_stay_apart():
    first, second = Allocator(), Allocator(device=3)
    first.alloc(4 * MIB, WEIGHT, pool=(0, 2))
    first.alloc(4 * MIB, WEIGHT, stream=9)
    second.alloc(100, WEIGHT)
    taken, replays, stacks = replayed(first, second)
    rows = allocator.segments(replays, stacks)
    assert rows["pool"].tolist() == ["0, 2", "default", "default"]
    assert rows["stream"].tolist() == [0, 9, 0]
    assert rows["device"].tolist() == [0, 0, 3]
    assert rows["kind"].tolist() == ["large", "large", "small"]
    summary = allocator.summary([replays[0]])
    assert summary["private_pool_bytes"].tolist() == [20 * MIB]
    del taken


def test_the_line_of_the_program():
    frames = [
        ("c10::cuda::alloc", "Allocator.cpp", 5),
        ("linear", "/opt/lib/python3.11/site-packages/torch/nn/functional.py", 9),
        ("step", "/srv/ann/train.py", 31),
        ("main", "/srv/ann/train.py", 90),
        ("", "", 0),
    ]
    stacks = Stacks(frames, [(), (0, 1, 2, 3), (0, 1), (0,), (4,)])
    assert list(stacks.locations(np.arange(4))) == [
        NO_STACK,
        "train.py:31 step",
        "functional.py:9 linear",
        "Allocator.cpp:5 c10::cuda::alloc",
    ]
    assert stacks.text(1) == "functional.py:9 linear\ntrain.py:31 step\ntrain.py:90 main"
    deep = Stacks([("f", "/a.py", 1)], [(0,) * 200])
    assert deep.text(0).endswith("and 176 more")


def test_a_snapshot_without_history():
    taken = snapshot(fragmented())
    del taken["device_traces"]
    got = read(taken)
    replay = Replay(got, 0)
    assert replay.count == 0
    assert allocator.summary([replay])["reserved_bytes"].tolist() == [
        sum(s["total_size"] for s in taken["segments"])
    ]
    assert allocator.notes_on(got, [replay]) == [notes.no_allocation_history("torch.cuda")]
    assert len(allocator.timeline([replay], Stacks(got.frames, got.stacks))) == 0


@pytest.mark.parametrize("traces", [None, [[]], [[], []]])
def test_without_a_history_no_peak_is_known(traces):
    device = Allocator(400 * MIB)
    device.alloc(3 * MIB, WEIGHT)
    taken = snapshot(device)
    if traces is None:
        del taken["device_traces"]
    else:
        taken["device_traces"] = traces
    got = read(taken)
    row = allocator.summary([Replay(got, 0)]).iloc[0]
    assert (
        row[["peak_allocated_bytes", "peak_reserved_bytes", "peak_ms", "before_bytes", "ooms"]]
        .isna()
        .all()
    )
    assert (row["reserved_bytes"], row["allocated_bytes"]) == (20 * MIB, 3 * MIB)
    assert allocator.notes_on(got, [Replay(got, 0)]) == [notes.no_allocation_history("torch.cuda")]


def test_a_real_snapshot_without_a_history():
    p = nbprof.load(real("findings/D11-no-history/dump_snapshot.pickle"))
    row = p.allocator.summary.iloc[0]
    assert row[["peak_allocated_bytes", "peak_reserved_bytes", "before_bytes", "ooms"]].isna().all()
    assert row[["reserved_bytes", "allocated_bytes"]].tolist() == [11276386304, 10728102400]
    assert "The snapshot has no history" in str(p.receipt)


def test_a_history_that_contradicts_itself_is_no_error():
    rng = random.Random(5)
    for _ in range(8):
        device = fragmented()
        rng.shuffle(device.trace)
        for entry in device.trace:
            if rng.random() < 0.2:
                entry["size"] = rng.choice([-5, 0, 2**62, entry["size"]])
            if rng.random() < 0.1 and "addr" in entry:
                entry["addr"] = rng.choice([0, -7, 2**62, entry["addr"] + 3])
        taken, (replay,), stacks = replayed(device)
        for count in (0, 50, 219):
            state = replay.state_after(count)
            assert (state.blocks["size"] > 0).all()
        allocator_oom.frame([replay], stacks, taken.settings)
        allocator.summary([replay])
        assert isinstance(allocator.timeline([replay], stacks), pd.DataFrame)


def test_frames_follow_their_contract(tmp_path):
    import nbprof
    from nbprof.schema.frames import empty
    from tests.support.frames import below

    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(snapshot(fragmented(), frame_device())))
    face = nbprof.load(path).allocator
    for name, columns in below("allocator.").items():
        rows = getattr(face, name)
        assert list(rows.columns) == [c.name for c in columns], name
        for col in columns:
            kind = rows[col.name].dtype
            assert (kind == col.dtype) or (
                col.dtype == "object" and kind in (object, "string", "str")
            ), (name, col.name, kind)
        assert list(empty(f"allocator.{name}").columns) == list(rows.columns)
    assert len(face.at(1.0)) > 50
    assert len(face.at(1e9)) == len(face.blocks[face.blocks["device"] == 0])
    with pytest.raises(nbprof.NbprofError, match="no device"):
        face.at(1.0, device=7)
    with pytest.raises(nbprof.NbprofError, match="number"):
        face.at("x")
    assert "Out of memory: 64.00 MiB requested at" in repr(face)


def frame_device() -> Allocator:
    out = Allocator(device=1)
    out.alloc(3 * MIB, [frame("f", "/srv/ann/a.py", 1)])
    return out


def described(*blocks, expandable=False, large=True, size=20 * MIB, address=1 << 30):
    """A segment with blocks of these states, sizes and stacks, one behind the other."""
    listed, at = [], address
    for state, length, stack in blocks:
        asked = 0 if state == "inactive" else length - 100
        listed.append(
            {
                "address": at,
                "size": length,
                "requested_size": asked,
                "state": state,
                "frames": stack,
            }
        )
        at += length
    assert at <= address + size
    kind = {
        "segment_type": "large" if large else "small",
        "is_expandable": expandable,
        "segment_pool_id": (0, 0),
        "stream": 0,
    }
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "frames": [],
        "blocks": listed,
        **kind,
    }


PINNED = ["blocks", "bytes", "pinned_bytes", "alone_bytes", "segments", "largest_hole_bytes"]
USED, FREE, LATER = "active_allocated", "inactive", "active_pending_free"


def test_figures_of_a_moment():
    taken = read(
        {
            "segments": [
                described(
                    (USED, 4 * MIB, WEIGHT),
                    (FREE, 6 * MIB, []),
                    (LATER, MIB, BIG),
                    (FREE, 9 * MIB, []),
                ),
                described((FREE, 20 * MIB, []), address=2 << 30),
                described((USED, 20 * MIB, WEIGHT), address=3 << 30),
                described((USED, 2 * MIB, LOGGED), (FREE, 18 * MIB, []), address=4 << 30),
            ],
            "device_traces": [],
        }
    )
    replay, stacks = Replay(taken, 0), Stacks(taken.frames, taken.stacks)
    assert allocator.measures(replay.end()) == {
        "reserved_bytes": 80 * MIB,
        "allocated_bytes": 26 * MIB,
        "pending_bytes": MIB,
        "inactive_bytes": 53 * MIB,
        "rounding_bytes": 400,
        "releasable_bytes": 20 * MIB,
        "stranded_bytes": 33 * MIB,
        "fragmentation_percent": pytest.approx(100 * 33 / 80),
        "largest_free_bytes": 20 * MIB,
        "outside_largest_percent": pytest.approx(100 * 33 / 53),
        "segments": 4,
        "stranded_segments": 2,
        "private_pool_bytes": 0,
    }
    rows = allocator.pinning(replay.end(), stacks).set_index("location")
    logged, weight = rows.loc["metrics.py:7 append"], rows.loc["model.py:12 build"]
    # The first segment is kept by two, the last one by one alone; in a full segment nothing is.
    assert len(rows) == 3
    assert logged[PINNED].tolist() == [1, 2 * MIB, 18 * MIB, 18 * MIB, 1, 18 * MIB]
    assert weight[PINNED].tolist() == [1, 4 * MIB, 15 * MIB, 0, 1, 9 * MIB]


@pytest.mark.parametrize(("used", "released"), [(20 * MIB, 40 * MIB), (20 * MIB + 512, 20 * MIB)])
def test_pages_of_expandable_segments_are_given_back_one_by_one(used, released):
    segment = described(
        (USED, used, WEIGHT), (FREE, 60 * MIB - used, []), expandable=True, size=60 * MIB
    )
    replay = Replay(read({"segments": [segment], "device_traces": []}), 0)
    assert allocator.measures(replay.end())["releasable_bytes"] == released


@pytest.mark.parametrize(
    ("asked", "segment"),
    [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 1, 20), (10 * MIB, 10), (10 * MIB + 1, 12)],
)
def test_what_is_asked_of_the_device(asked, segment):
    assert allocator_oom._segment(asked) == segment * MIB


@pytest.mark.parametrize(
    ("asked", "elsewhere", "stranded", "room", "cause"),
    [
        (30, 0, 0, 30, "limit"),
        (30, 30, 0, 29, "other stream or pool"),
        (30, 29, 30, 29, "fragmentation"),
        (30, 29, 20, 10, "fragmentation"),
        (29, 0, 20, 9, "full"),
        (30, 29, 19, 10, "full"),
    ],
)
def test_causes_at_their_borders(asked, elsewhere, stranded, room, cause):
    assert allocator_oom._cause(asked * MIB, elsewhere * MIB, stranded * MIB, room * MIB) == cause


@pytest.mark.parametrize(("asked", "usable"), [(MIB, 3 * MIB // 2), (MIB + 1, 5 * MIB)])
def test_small_requests_use_small_segments(asked, usable):
    small = described((USED, MIB // 2, WEIGHT), (FREE, 3 * MIB // 2, []), large=False, size=2 * MIB)
    large = described((USED, 15 * MIB, WEIGHT), (FREE, 5 * MIB, []), address=2 << 30)
    oom = {
        "action": "oom",
        "size": asked,
        "stream": 0,
        "device_free": 0,
        "frames": [],
        "time_us": 1,
    }
    taken = read({"segments": [small, large], "device_traces": [[oom]]})
    rows = allocator_oom.frame([Replay(taken, 0)], Stacks(taken.frames, taken.stacks), {})
    assert rows["largest_usable_bytes"].tolist() == [usable]
    assert rows["largest_free_bytes"].tolist() == [5 * MIB]


@pytest.mark.parametrize(
    ("asked", "size"), [(10 * MIB, 11 * MIB), (10 * MIB - 512, 10 * MIB - 512)]
)
def test_a_rest_of_at_most_a_mebibyte_stays_with_its_block(asked, size):
    device = Allocator()
    first = device.alloc(9 * MIB, WEIGHT)
    second = device.alloc(asked, LOGGED)
    device.free(first)
    device.free(second)
    replay = Replay(read(snapshot(device)), 0)
    # Before both were freed: at the end nothing tells their sizes.
    blocks = replay.state_after(replay.count - 4).blocks
    assert blocks[blocks["state"] != torch_snapshot.INACTIVE]["size"].tolist() == [9 * MIB, size]


def test_a_snapshot_beside_a_trace_belongs_to_it(tmp_path):
    import nbprof
    from tests.support.kineto import Kineto

    trace = Kineto()
    trace.op("aten::mm", 10, 5)
    folder = tmp_path / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    (folder / "host_1.1700000000000.pt.trace.json").write_bytes(trace.encode())
    (folder / "host_1.1700000000000.memory_snapshot.pickle").write_bytes(
        pickle.dumps(snapshot(fragmented()))
    )
    p = nbprof.load(tmp_path)
    assert p.run.source.file.endswith(".json")
    assert len(p.allocator.segments) == 25
    (folder / "host_1.1700000000000.memory_snapshot.pickle").write_bytes(
        pickle.dumps({"segments": [print]})
    )
    p = nbprof.load(tmp_path)
    assert len(p.allocator.segments) == 0
    assert any("asks for builtins.print" in line.text for line in p.run.receipt.lines)


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_the_peak_counts_what_was_held_before_the_first_entry(kept):
    device = Allocator()
    blocks = [device.alloc(size * MIB, WEIGHT) for size in (30, 50, 40)]
    for block in blocks[:2]:
        device.free(block)
    device.empty_cache()
    # A history that holds its last entries alone: frees and what is given back.
    frees = [entry for entry in device.trace if "free" in entry["action"]]
    device.trace = frees[-kept:]
    _, (replay,), _ = replayed(device)
    (row,) = allocator.summary([replay]).to_dict("records")
    first = replay.state_after(0)
    used = first.blocks[first.blocks["state"] == torch_snapshot.ALLOCATED]
    assert (
        row["peak_reserved_bytes"]
        == first.segments["size"].sum()
        > replay.end().segments["size"].sum()
    )
    assert row["peak_allocated_bytes"] == used["requested"].sum()
    assert row["peak_ms"] == 0


def _optimizer(function: str) -> list[dict]:
    return [
        frame(function, "/opt/site-packages/torch/optim/adam.py", 100),
        frame("step", "/opt/site-packages/torch/optim/adam.py", 200),
        frame("main", "/srv/ann/train.py", 95),
    ]


def test_roles_follow_from_stacks_and_add_up(tmp_path):
    device = Allocator()
    device.alloc(3 * MIB, WEIGHT)
    device.alloc(5 * MIB, _optimizer("_init_group"))
    device.alloc(7 * MIB, _optimizer("_single_tensor_adam"))
    device.free(device.alloc(2 * MIB, _optimizer("_single_tensor_adam")))
    device.alloc(11 * MIB, [frame("torch::autograd::AccumulateGrad::apply(x)", "", 0)])
    device.alloc(13 * MIB, ACTIVATION)
    # A step that may be running when the snapshot is taken.
    device.alloc(17 * MIB, _optimizer("_multi_tensor_adam"))
    path = tmp_path / "roles.pickle"
    path.write_bytes(pickle.dumps(snapshot(device)))
    rows = nbprof.load(path).allocator.roles.set_index("role")
    # From 10 MiB on, segments are as large as the request, in steps of 2 MiB; a rest of 1 MiB stays.
    sizes = {role: size / MIB for role, size in rows["bytes"].items()}
    assert sizes["parameters"] == 3
    assert sizes["optimizer state"] == 5 + 7
    assert sizes["gradients"] == 12
    assert sizes["unknown"] == 14 + 18
    assert rows["bytes"].sum() == device.reserved
    assert rows["percent"].sum() == pytest.approx(100)
    assert rows["blocks"].dropna().sum() == 6


def test_a_snapshot_without_stacks_has_no_roles():
    p = nbprof.load(real("findings/D11-no-history/dump_snapshot.pickle"))
    rows = p.allocator.roles
    assert rows["role"].tolist() == ["unknown", "reserved, not allocated"]
    (whole,) = p.allocator.summary.to_dict("records")
    assert rows["bytes"].tolist() == [whole["allocated_bytes"], whole["inactive_bytes"]]
