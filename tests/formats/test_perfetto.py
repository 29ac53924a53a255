"""Perfetto's protobuf traces, packet by packet: what each means, and what is said of what is lost
or damaged.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import nbprof
from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.wire import FIXED32, FIXED64, VARINT
from nbprof.formats.perfetto import fields as perfetto_fields
from nbprof.formats.perfetto.perfetto import _PACKET
from nbprof.formats.perfetto.slices import pair
from nbprof.formats.xspace.split import event_starts, spans
from nbprof.sources.sniff import HEAD, recognise
from tests.support import xspace
from tests.support.notes import numbers, of_key
from tests.support.perfetto import CLEARED, NEEDS, Recording, Story, events_of, every_kind, pb, read
from tests.support.profiles import ROOT
from tests.support.xspace import chunk, number

DATA = Path(__file__).parents[1] / "data"


def rows(trace: Any) -> list[tuple[str, str, int, int]]:
    """Thread, name, start and duration in ns."""
    return [
        (e["thread"], e["name"], e["start"] // 1000, e["duration"] // 1000)
        for e in events_of(trace)
    ]


def counts(trace: Any, key: str) -> list[int]:
    return numbers(trace.receipt, key)


def thread(out: Recording, uuid: int = 1, tid: int = 8) -> int:
    out.track(uuid, thread=(7, tid, f"thread {tid}"))
    return uuid


def test_ends_close_the_last_open_begin_and_what_has_no_other_half_is_said() -> None:
    out = Recording()
    one = thread(out)
    out.event("end", 90, one)
    out.event("begin", 100, one, "outer")
    out.event("begin", 110, one, "inner")
    out.event("end", 150, one, late=1)
    out.event("end", 200, one)
    out.event("end", 210, one)
    out.event("begin", 300, one, "open")
    out.event("instant", 400, one, "mark")
    trace = read(out.bytes())
    assert rows(trace) == [
        ("thread 8", n, s, d)
        for n, s, d in [("outer", 0, 100), ("inner", 10, 40), ("open", 200, 100), ("mark", 300, 0)]
    ]
    assert [e["args"] for e in events_of(trace)] == [{}, {"late": 1}, {}, {"ph": "i"}]
    assert counts(trace, "ends_without_begin") == [2]
    assert counts(trace, "open_slices") == [1]


@pytest.mark.parametrize("seed", range(20))
def test_pairs_are_those_of_a_stack(seed: int, without_library) -> None:
    rng = Random(seed)
    count = rng.randrange(1, 300)
    track = np.array([rng.randrange(4) for _ in range(count)], np.int32)
    time = np.array([rng.randrange(50) for _ in range(count)], np.int64)
    begins = np.array([rng.random() < rng.choice((0.3, 0.5, 0.8)) for _ in range(count)])
    ends = ~begins & np.array([rng.random() < 0.9 for _ in range(count)])
    others = np.flatnonzero(~begins & ~ends).tolist()
    stacks: dict[int, list[int]] = {}
    expected, lost = set(), set()
    for i in sorted(set(range(count)) - set(others), key=lambda i: (time[i], i)):
        stack = stacks.setdefault(int(track[i]), [])
        if begins[i]:
            stack.append(i)
        elif stack:
            expected.add((stack.pop(), i))
        else:
            lost.add(i)
    found = pair(track, time, begins, ends)
    assert [(i, j) for i, j in enumerate(found.tolist()) if begins[i] and j >= 0] == sorted(
        expected
    )
    assert all(found[j] == i for i, j in expected)
    none = set(np.flatnonzero(found < 0).tolist())
    assert none == lost | {i for stack in stacks.values() for i in stack} | set(others)
    without_library()
    assert pair(track, time, begins, ends).tolist() == found.tolist()


def test_events_whose_names_were_lost_are_left_out_until_the_state_begins_anew() -> None:
    out = Recording()
    one = thread(out)

    def named(time: int, flags: int, name: str = "", dropped: int = 0) -> None:
        event = out.event("instant", time, one, flags=flags)
        event.name_iid = 3
        packet = out.trace.packet[-1]
        packet.previous_packet_dropped = dropped
        if name:
            packet.interned_data.event_names.add(iid=3, name=name)

    named(10, NEEDS)
    named(20, CLEARED | NEEDS, "first")
    named(30, NEEDS)
    named(40, NEEDS, dropped=1)
    named(50, NEEDS)
    named(60, CLEARED | NEEDS, "second", dropped=1)
    named(70, NEEDS)
    # Another sequence has names of its own.
    out.event("instant", 80, one, sequence=9).name_iid = 3
    trace = read(out.bytes())
    assert [(n, s) for _, n, s, _ in rows(trace)] == [
        ("first", 0),
        ("first", 10),
        ("second", 40),
        ("second", 50),
        ("name 3", 60),
    ]
    assert counts(trace, "lost_names") == [3]
    assert counts(trace, "lost_packets") == [2]
    assert counts(trace, "unnamed_events") == [1]


def snapshot(out: Recording, **clocks: int) -> Any:
    found = out.packet().clock_snapshot
    for key, time in clocks.items():
        number, *rest = key.split("_")[1:]
        clock = found.clocks.add(clock_id=int(number), timestamp=time)
        if rest:
            clock.is_incremental, clock.unit_multiplier_ns = True, int(rest[0])
    return found


def test_times_of_other_clocks_are_moved_by_the_snapshot_before_them() -> None:
    out = Recording()
    one = thread(out)
    snapshot(out, c_6=1_000_000, c_3=400_000, c_1=1_700_000_000_000_000_000)
    snapshot(out, c_6=2_000_000, c_3=1_500_000)

    def at(time: int, clock: int, **more: Any) -> None:
        out.event("instant", time, one, f"{clock} at {time}", **more)
        out.trace.packet[-1].timestamp_clock_id = clock

    at(1_000_000, 6)
    at(400_005, 3)
    at(1_500_007, 3)
    at(1_700_000_000_000_000_009, 1)
    at(5, 99)
    trace = read(out.bytes())
    times = {name: start for _, name, start, _ in rows(trace)}
    assert times == {
        "6 at 1000000": 0,
        "3 at 400005": 5,
        "3 at 1500007": 1_000_007,
        "1 at 1700000000000000009": 9,
    }
    assert counts(trace, "events_without_time") == [1]
    assert trace.epoch_ns == 1_700_000_000_000_000_000


def test_without_snapshots_the_only_clock_in_use_is_that_of_the_trace() -> None:
    def lost(*clocks: int) -> list[int]:
        out = Recording()
        one = thread(out)
        for clock in clocks:
            out.event("instant", 10 + clock, one, str(clock))
            out.trace.packet[-1].timestamp_clock_id = clock
        return counts(read(out.bytes()), "events_without_time")

    assert lost(3, 3) == []
    assert lost(6, 3, 3) == [2]


def test_the_first_and_the_last_time_of_a_clock() -> None:
    out = Recording()
    one = thread(out)
    for time in (0, 5, 1 << 62, (1 << 64) - 1):
        out.event("instant", time, one, f"{time}")
    trace = read(out.bytes())
    assert [name for _, name, *_ in rows(trace)] == ["0", "5"]
    assert counts(trace, "events_without_time") == [2]


def test_clocks_of_a_sequence_count_on_from_their_snapshot() -> None:
    out = Recording()
    one = thread(out)
    for sequence, base in ((7, 1000), (8, 5000)):
        out.sequence = sequence
        packet = out.packet(flags=CLEARED)
        packet.trace_packet_defaults.timestamp_clock_id = 64
        packet.trace_packet_defaults.track_event_defaults.track_uuid = one
        snapshot(out, c_6=base * 1000, c_64_1000=base)
    for sequence, steps in ((7, (1, 2, 3)), (8, (10, 20))):
        for step in steps:
            out.event(
                "instant", step, one, f"{sequence}", flags=NEEDS, sequence=sequence
            ).ClearField("track_uuid")
    out.sequence = 7
    snapshot(out, c_6=9_000_000, c_64_1000=9000)
    out.event("instant", 4, one, "7", sequence=7)
    trace = read(out.bytes())
    assert [(n, s + trace.epoch_ns) for _, n, s, _ in rows(trace)] == [
        ("7", 1_001_000), ("7", 1_003_000), ("7", 1_006_000), ("8", 5_010_000), ("8", 5_030_000), ("7", 9_004_000),
    ]  # fmt: skip


def test_events_of_old_recorders_are_counted_and_not_read() -> None:
    out = Recording()
    main = thread(out)
    out.event("instant", 10, main, "mark")
    event = out.packet().track_event
    event.timestamp_absolute_us, event.name, event.type = 1100, "alone", pb.TrackEvent.TYPE_INSTANT
    event = out.packet(20).track_event
    event.name, event.legacy_event.phase, event.legacy_event.unscoped_id = "async", ord("b"), 1
    trace = read(out.bytes())
    assert [name for _, name, *_ in rows(trace)] == ["mark"]
    assert counts(trace, "events_without_time") == [1]
    assert counts(trace, "unread_event_types") == [1]


def test_tracks_are_named_by_themselves_and_by_what_they_are_in() -> None:
    out = Recording()
    out.track(1, process=(7, "server"))
    out.track(2, parent=1, thread=(7, 8, "main"))
    out.track(3, "requests", parent=1)
    out.track(4, "requests", parent=1)
    out.track(5, "group")
    out.track(6, "row", parent=5)
    out.track(9, parent=1)
    for uuid, start, end in (
        (2, 0, 10),
        (3, 0, 10),
        (4, 20, 30),
        (4, 5, 8),
        (6, 0, 5),
        (9, 0, 4),
        (0, 0, 4),
        (2**63 + 5, 0, 3),
    ):
        out.event("begin", 1000 + start, uuid, f"on {uuid}")
        out.event("end", 1000 + end, uuid)
    tree = out.packet().process_tree
    tree.processes.add(pid=7, ppid=1).cmdline.extend(["/usr/bin/other", "--flag"])
    tree.threads.add(tid=8, tgid=7, name="other")
    trace = read(out.bytes())
    lanes = trace.lanes[["process", "thread", "pid", "tid", "events"]].to_numpy().tolist()
    assert lanes == [
        ["server", "main", "7", "8", 1],
        ["server", "requests", "7", "requests", 1],
        ["server", "requests 2", "7", "requests 2", 2],
        ["server", "on 9", "7", "on 9", 1],
        ["group", "row", "group", "row", 1],
        ["Tracks", "Default track", "Tracks", "Default track", 1],
        ["Tracks", f"on {2**63 + 5}", "Tracks", f"on {2**63 + 5}", 1],
    ]


def test_tracks_of_one_name_share_a_lane_where_they_do_not_overlap() -> None:
    out = Recording()
    out.track(1, process=(7, "server"))
    for i in range(50):
        out.track(100 + i, "requests", parent=1)
        out.event("begin", 1000 + 10 * i, 100 + i, "request")
        out.event("end", 1000 + 10 * i + (9 if i % 2 else 15), 100 + i)
    trace = read(out.bytes())
    assert trace.lanes[["thread", "events"]].to_numpy().tolist() == [
        ["requests", 25],
        ["requests 2", 25],
    ]
    assert int(trace.events.depth.max()) == 0


def test_names_of_processes_out_of_the_tree_of_the_system() -> None:
    out = Recording()
    tree = out.packet().process_tree
    tree.processes.add(pid=7, ppid=1).cmdline.extend(["/usr/bin/python", "train.py"])
    tree.threads.add(tid=8, tgid=7, name="loader")
    out.track(1, thread=(7, 8, ""))
    out.event("instant", 10, 1, "mark")
    assert read(out.bytes()).lanes[["process", "thread"]].to_numpy().tolist() == [
        ["/usr/bin/python", "loader"]
    ]


def test_annotations_nest() -> None:
    out = Recording()
    one = thread(out)
    args = {
        "shape": {"in": {"dims": [8, 64], "of": "x"}, "n": 2},
        "list": [{"a": 1, "b": [True]}, "c"],
        "plain": 1.5,
    }
    event = out.event("instant", 10, one, "mark", **args)
    event.debug_annotations.add(name="at").pointer_value = 0xABC
    event.debug_annotations.add(name="json").legacy_json_value = '{"a":1}'
    event.debug_annotations.add(name="old").nested_value.int_value = 4
    event.debug_annotations.add(name_iid=77).int_value = 5
    event.source_location.file_name, event.source_location.line_number = "train.py", 12
    trace = read(out.bytes())
    (found,) = events_of(trace)
    assert found["args"] == {
        "shape.in.dims": "[8, 64]", "shape.in.of": "x", "shape.n": 2, "list": '[{"a": 1, "b": [true]}, "c"]', "plain": 1.5, "at": "0xabc",
        "json": '{"a":1}', "(name lost)": 5, "ph": "i",
    }  # fmt: skip
    assert counts(trace, "damaged_annotations") == [1]
    assert counts(trace, "unread_event_fields") == [1]


def test_counters_of_their_own_and_those_that_slices_carry() -> None:
    out = Recording()
    out.track(1, process=(7, "server"))
    out.track(2, parent=1, thread=(7, 8, "main"))
    out.track(3, "memory", parent=1, counter={"unit_multiplier": 1024})
    out.track(4, "added", parent=2, counter={"is_incremental": True})
    out.track(5, "load", parent=1, counter={})
    out.track(6, parent=2, counter={"type": 1})
    out.event("counter", 1000, 3).counter_value = 2
    out.event("counter", 2000, 3).double_counter_value = 1.5
    out.event("counter", 3000, 3)
    packet = out.packet(flags=CLEARED)
    packet.trace_packet_defaults.track_event_defaults.extra_counter_track_uuids.extend([4, 6])
    for kind, time, value in (("begin", 1000, 5), ("end", 1500, 7)):
        out.event(kind, time, 2, "work").extra_counter_values.extend([value, 1])
    event = out.event("instant", 1700, 2, "mark")
    event.extra_double_counter_track_uuids.append(5)
    event.extra_double_counter_values.extend([0.25, 9])
    trace = read(out.bytes())
    found = trace.counters[["series", "time", "value"]].to_numpy().tolist()
    assert found == [
        ["added", 0, 5.0],
        ["added", 500_000, 12.0],
        ["load", 700_000, 0.25],
        ["memory", 0, 2048.0],
        ["memory", 1_000_000, 1536.0],
    ]
    assert trace.lanes["thread"].iloc[trace.counters["lane"].iloc[0]] == "main"
    assert counts(trace, "counters_without_value") == [1]
    assert counts(trace, "counters_without_track") == [1]
    assert counts(trace, "thread_time_samples") == [2]


def test_a_flow_begins_goes_on_and_ends() -> None:
    out = Recording()
    one, two = thread(out, 1, 8), thread(out, 2, 9)
    for i, (track, flows, ends) in enumerate(
        [(1, [5, 2**63 + 1], []), (2, [5], []), (1, [], [5]), (2, [5], []), (2, [], [2**63 + 1])]
    ):
        event = out.event("begin", 100 * i, track, f"s{i}")
        event.flow_ids.extend(flows)
        event.terminating_flow_ids.extend(ends)
        out.event("end", 100 * i + 50, track)
    event = out.event("instant", 990, one, "old")
    event.flow_ids_old.append(77)
    trace = read(out.bytes())
    points = sorted(
        zip(
            trace.flows.id.tolist(),
            trace.flows.time.tolist(),
            trace.flows.phase.tolist(),
            strict=True,
        )
    )
    assert points == [
        (-2, 0, 0),
        (-2, 400_000, 2),
        (5, 0, 0),
        (5, 100_000, 1),
        (5, 200_000, 2),
        (5, 300_000, 0),
        (77, 990_000, 0),
    ]
    assert two == 2


def test_work_of_gpus_is_on_the_lanes_of_their_queues() -> None:
    out = Recording()
    packet = out.packet(flags=CLEARED)
    for iid, name, category in ((1, "Compute 0", 0), (2, "dispatch", 2), (3, "draw", 1)):
        packet.interned_data.gpu_specifications.add(iid=iid, name=name, category=category)
    packet.interned_data.event_names.add(iid=9, name="sgemm")
    for at, stage, gpu, named in ((1000, 2, 0, True), (2000, 3, 1, False)):
        packet = out.packet(at, flags=NEEDS)
        event = packet.gpu_render_stage_event
        event.event_id, event.duration, event.hw_queue_iid, event.stage_iid, event.gpu_id = (
            at,
            500,
            1,
            stage,
            gpu,
        )
        event.extra_data.add(name="shader", value="a.frag")
        if named:
            event.name_iid = 9
            (
                event.launch.grid_size.x,
                event.launch.workgroup_size.x,
                event.launch.workgroup_size.y,
            ) = 64, 128, 2
    event = out.packet(3000).gpu_render_stage_event
    event.event_id, event.duration, event.hw_queue_id, event.stage_id = 3, 10, 0, 0
    event = out.packet(4000).gpu_render_stage_event
    event.event_id, event.duration, event.hw_queue_id, event.stage_id, event.name = (
        4,
        10,
        5,
        6,
        "named",
    )
    trace = read(out.bytes())
    found = [
        (e["process"], e["thread"], e["name"], e["start"] // 1000, e["duration"] // 1000)
        for e in events_of(trace)
    ]
    assert found == [
        ("GPU 0", "Compute 0", "sgemm", 0, 500), ("GPU 0", "queue 0", "render stage 0", 2000, 10), ("GPU 0", "queue 5", "named", 3000, 10),
        ("GPU 1", "Compute 0", "draw", 1000, 500),
    ]  # fmt: skip
    first = events_of(trace)[0]["args"]
    assert first == {
        "cat": "gpu_render_stage", "device": 0, "stage": "dispatch", "stage category": "compute", "event id": 1000, "shader": "a.frag",
        "grid": "[64, 1, 1]", "block": "[128, 2, 1]",
    }  # fmt: skip


def test_a_sample_of_a_gpu_counter_tells_of_the_time_before_it() -> None:
    out = Recording()
    event = out.packet(1000).gpu_counter_event
    event.gpu_id = 1
    event.counter_descriptor.specs.add(counter_id=3, name="busy")
    event.counters.add(counter_id=3, int_value=0)
    out.packet(2000).gpu_counter_event.counters.add(counter_id=3, int_value=50)
    out.packet(3000).gpu_counter_event.counters.add(counter_id=3, double_value=70.5)
    out.packet(3000).gpu_counter_event.counters.add(counter_id=4, double_value=1)
    packet = out.packet(flags=CLEARED)
    described = packet.interned_data.gpu_counter_descriptors.add(iid=6, gpu_id=2)
    described.counter_descriptor.specs.add(counter_id=3, name="clock")
    for at in (1000, 1500):
        event = out.packet(at, flags=NEEDS).gpu_counter_event
        event.counter_descriptor_iid = 6
        event.counters.add(counter_id=3, int_value=at)
    for at, gpu in ((2000, 1), (3000, 1)):
        out.trace.packet[
            [p.timestamp for p in out.trace.packet].index(at)
        ].gpu_counter_event.gpu_id = gpu
    trace = read(out.bytes())
    process = trace.lanes["process"].to_numpy()
    found = [
        (process[c.lane], c.series, c.time // 1000, c.value) for c in trace.counters.itertuples()
    ]
    assert found == [
        ("GPU 1", "busy", 0, 50.0),
        ("GPU 1", "busy", 1000, 70.5),
        ("GPU 2", "clock", 0, 1500.0),
    ]
    assert counts(trace, "undescribed_counters") == [1]


def test_what_is_not_read_is_counted_and_what_the_recorder_lost_is_said() -> None:
    out = Recording()
    out.event("instant", 10, thread(out), "mark")
    for _ in range(3):
        out.packet().ftrace_events.event.add(timestamp=5, pid=1).sched_switch.next_pid = 7
    out.packet(11).vulkan_api_event.vk_queue_submit.pid = 4
    out.packet().trace_stats.buffer_stats.add(chunks_overwritten=2)
    out.packet().trace_stats.buffer_stats.add(chunks_overwritten=5, trace_writer_packet_loss=1)
    trace = read(out.bytes())
    (note,) = of_key(trace.receipt, "unread_packets")
    assert note.text == "Packets that are not read: ftrace (scheduling) 3, Vulkan calls 1."
    assert counts(trace, "overwritten_chunks") == [5]
    assert counts(trace, "writer_losses") == [1]


def test_packets_and_fields_of_any_other_kind_are_counted() -> None:
    out = Recording()
    one = thread(out)
    for at in (10, 20):
        event = out.event("instant", at, one, "mark")
        event.log_message.body_iid = 1
    event.callstack_iid = 3
    out.track(5, "load", counter={})
    sample = out.event("counter", 30, 5, unit="ms")
    sample.counter_value = 1
    sample.flow_ids.append(4)
    out.packet().journald_event.message = "hello"
    for kind in ("trace_uuid", "system_info", "trace_config"):
        getattr(out.packet(), kind).SetInParent()
    stats = out.packet().trace_stats
    stats.buffer_stats.add(oversized_packets_dropped=3)
    stats.final_flush_outcome = 2
    trace = read(out.bytes())
    assert counts(trace, "unread_packets") == [132, 1]
    assert counts(trace, "unread_event_fields") == [3]
    assert counts(trace, "details_without_slice") == [1, 1]
    assert counts(trace, "oversized_packets") == [3]
    assert of_key(trace.receipt, "failed_flush")


def test_what_is_left_out_of_the_packets_of_gpus_is_said() -> None:
    out = Recording()
    for at in (1000, 2000):
        event = out.packet(at).gpu_counter_event
        event.counter_descriptor.specs.add(counter_id=3, name="busy")
        event.counters.add(counter_id=3, int_value=at)
        event.counters.add(counter_id=3)
    stage = out.packet(3000).gpu_render_stage_event
    stage.event_id, stage.duration = 1, 10
    stage.extra_data.add(name="abcd", value="efgh")
    trace = read(out.bytes().replace(b"\x0a\x04abcd", b"\x0a\x74abcd"))
    assert trace.counters["value"].tolist() == [2000.0]
    assert counts(trace, "counters_without_value") == [2]
    assert counts(trace, "first_counter_samples") == [1]
    assert counts(trace, "damaged_descriptions") == [1]


def story(seed: int = 1, **way: bool) -> bytes:
    rng = Random(seed)
    return Story.random(rng, 400).perfetto(rng, interned=True, **way)


def test_a_file_that_was_cut_off_is_read_to_there() -> None:
    data = story()
    whole = len(read(data).events)
    for at in (len(data) - 1, len(data) // 2, len(data) // 2 + 3):
        trace = read(data[:at])
        assert 0 < len(trace.events) <= whole
        assert of_key(trace.receipt, "file_read_in_part")
    # A group that does not end, which protobuf no longer has.
    assert len(read(data + b"\x0b" + b"\x08\x01" * 20).events) == whole
    with pytest.raises(
        ReadError, match=r"/run/host\.pftrace, byte 0: its first packet is incomplete"
    ):
        read(data[:20])


def test_a_damaged_packet_costs_itself() -> None:
    out = Recording()
    one = thread(out)
    for i in range(200):
        out.event("instant", 1000 + i, one, f"mark {i % 7}")
    packets = [p.SerializeToString() for p in out.trace.packet]
    # A length in the event that runs over its end.
    hurt = packets[50].replace(b"\xba\x01\x06", b"\xba\x01\x7f")
    assert hurt != packets[50]
    packets[50] = hurt
    packets[60] = b"\xff" * 30
    packets[70] = b""
    data = b"".join(b"\x0a" + bytes([len(p)]) + p for p in packets)
    trace = read(data)
    assert len(trace.events) == 197
    assert counts(trace, "damaged_packets") == [2]


def test_compressed_packets_that_are_damaged_or_too_many() -> None:
    out = Recording()
    out.event("instant", 10, thread(out), "mark")
    sound = zlib.compress(out.bytes())
    packed = pb.Trace()
    packed.packet.add().compressed_packets = sound
    packed.packet.add().compressed_packets = sound[:-2]
    packed.packet.add().compressed_packets = b"no deflate"
    trace = read(packed.SerializeToString())
    assert counts(trace, "damaged_compression") == [2]
    assert len(trace.events) == 2
    bomb = pb.Trace()
    bomb.packet.add().compressed_packets = zlib.compress(bytes(40 << 20), 9)
    with pytest.raises(ReadError, match="decompresses to more than"):
        read(bomb.SerializeToString())
    with pytest.raises(ReadError, match="decompresses to more than 50 B"):
        read(packed.SerializeToString(), limit_bytes=50)
    alone = pb.Trace()
    alone.packet.add().compressed_packets = b"no deflate"
    with pytest.raises(ReadError, match="cannot be unpacked"):
        read(alone.SerializeToString())


@pytest.mark.parametrize("seed", range(6))
def test_fields_without_the_library_are_the_same(seed: int, without_library) -> None:
    rng = Random(seed)
    data = Story.random(rng, 700).perfetto(rng, interned=rng.random() < 0.5)
    # Tags that have no rule: of a packet, and of its event.
    event = chunk(11, number(9, 3) + number(5000, 1))
    data += 2 * chunk(1, number(8, 7) + number(98, 1) + number(98, 2) + event)
    data += chunk(1, number(8, 7) + number(300, 1)) + chunk(1, number(8, 7) + number(8, 5))
    buf = wire.buffer(data)
    (starts,), _ = event_starts(buf, [(0, len(data))], 0x0A)
    start, end = spans(buf, starts)
    # Some that are not valid, each in its own way.
    for at in rng.sample(range(len(start)), 45):
        buf[rng.randrange(int(start[at]), int(end[at]))] = rng.choice((0xFF, 0x07, 0x00, 0x0B))

    def found() -> dict[str, Any]:
        fields = perfetto_fields.read(buf, start, end, _PACKET)
        out: dict[str, Any] = {"bad": fields.bad.tolist(), "unread": fields.unread}
        for path in ((8,), (11, 10), (11, 11), (11, 30), (11, 6, 3), (53, 11)):
            out[f"number {path}"] = fields.number(*path).tolist()
        for path in ((10,), (13,), (58,), (11, 9), (42,)):
            out[f"small {path}"] = fields.small(*path).tolist()
        for path in ((11, 4), (11, 23), (11, 22), (12,), (60,)):
            out[f"spans {path}"] = [column.tolist() for column in fields.spans(*path)]
        for path in ((8,), (11,), (11, 11), (11, 30), (12,), (53,), (99,)):
            out[f"has {path}"] = fields.has(*path).tolist()
        out["ids"] = [column.tolist() for column in fields.numbers(11, 3)]
        for kind in (FIXED64, FIXED32, VARINT):
            out[f"flows {kind}"] = [column.tolist() for column in fields.numbers(11, 47, kind=kind)]
        return out

    compiled = found()
    without_library()
    assert found() == compiled
    assert sum(compiled["bad"]) > 3
    assert {98, 300} <= set(compiled["unread"])


def test_perfetto_and_xspace_are_told_apart() -> None:
    files = [p for p in (DATA / "xspace").iterdir() if p.name.endswith(".pb")]
    files += [p for p in ROOT.rglob("*.xplane.pb") if "bad" not in p.parts] if ROOT.is_dir() else []
    assert files
    for path in files:
        with path.open("rb") as file:
            head = file.read(HEAD)
        assert recognise(head, "x").format == recognise(head, path.name).format == "xspace", path
    for head in (xspace.training_run(2), xspace.gpu_run()):
        assert recognise(head, "x.pftrace").format == "xspace"
    listed = Recording()
    for i in range(50):
        listed.trace.packet.add().ftrace_events.event.add(
            timestamp=i, pid=1
        ).sched_switch.next_pid = 7
    for way in ({}, {"forget": True}, {"compressed": True}):
        data = story(2, **way)
        for name in ("x", "host.xplane.pb", "a.pftrace", "trace.perfetto-trace"):
            assert (recognise(data[:HEAD], name).format, recognise(data[:HEAD], name).sure) == (
                "perfetto",
                True,
            ), (way, name)
        assert recognise(gzip.compress(data), "a.pftrace.gz").packed == "gzip"
    assert recognise(listed.bytes(), "kernel.pftrace").format == "perfetto"


def test_a_trace_is_opened_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "server.pftrace.gz").write_bytes(gzip.compress(story()))
    assert nbprof.runs(tmp_path)[["run", "format"]].to_numpy().tolist() == [["server", "perfetto"]]
    profile = nbprof.load(tmp_path)
    assert len(profile.trace.events()) == len(read(story()).events)
    assert "plain trace" in profile.run.activity.missing["steps"]


def test_what_is_exported_beside_an_xspace_is_no_run_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(xspace.training_run(2))
    (folder / "host.perfetto-trace").write_bytes(story())
    (folder / "other.pftrace").write_bytes(story())
    assert sorted(nbprof.runs(tmp_path)["format"]) == ["perfetto", "xspace"]
    assert "host.perfetto-trace next to it is the same recording" in str(
        nbprof.load(tmp_path, run="run").receipt
    )


def test_slices_in_the_categories_of_kineto_are_read_as_such(tmp_path: Path) -> None:
    out = Recording()
    host, stream = thread(out, 1, 8), 2
    out.track(stream, "stream 7", process=(0, "GPU 0"))
    for step in range(3):
        at = 1000 + 1000 * step
        for name, category, track, start, length, args in (
            (f"ProfilerStep#{step}", "user_annotation", host, 0, 900, {}),
            ("aten::mm", "cpu_op", host, 100, 300, {"External id": step + 1}),
            (
                "cudaLaunchKernel",
                "cuda_runtime",
                host,
                200,
                100,
                {"External id": step + 1, "correlation": step + 1},
            ),
            (
                "sgemm",
                "kernel",
                stream,
                500,
                300,
                {
                    "correlation": step + 1,
                    "device": 0,
                    "stream": 7,
                    "grid": [4, 1, 1],
                    "block": [64, 1, 1],
                },
            ),
        ):
            for kind, time in (("begin", at + start), ("end", at + start + length)):
                event = out.event(
                    kind,
                    time * 1000,
                    track,
                    name if kind == "begin" else "",
                    **(args if kind == "begin" else {}),
                )
                if kind == "begin":
                    event.categories.append(category)
    data = sorted(out.trace.packet, key=lambda p: p.timestamp)
    (tmp_path / "run.pftrace").write_bytes(pb.Trace(packet=data).SerializeToString())
    profile = nbprof.load(tmp_path / "run.pftrace")
    assert len(profile.run.activity.kernels) == 3
    assert [str(one) for one in profile.kernels.by_name()["kernel"]] == ["sgemm"]
    assert len(profile.steps.frame) >= 2


def test_a_trace_with_queues_of_gpus_is_none_of_the_cpu_only(tmp_path: Path) -> None:
    (tmp_path / "run.perfetto-trace").write_bytes(every_kind().bytes())
    profile = nbprof.load(tmp_path / "run.perfetto-trace")
    lanes = profile.run.trace.lanes
    assert lanes.loc[lanes["kind"] == "device", ["device", "thread"]].to_numpy().tolist() == [
        [0, "Compute"],
        [1, "Compute"],
        [2, "counters"],
    ]
    assert profile.run.activity.devices["device"].tolist() == [0, 1]
    assert "· CPU" not in str(profile)
    # The stage is one of compute, so that it is a kernel; which steps and ops there are is not
    # told.
    assert profile.kernels.by_name()[["kernel", "occurrences"]].to_numpy().tolist() == [
        ["Compute", 3]
    ]
    row = profile.kernels.frame.iloc[0]
    assert (row["grid"], row["block"], row["occurrences"]) == ("64,1,1", "128,1,1", 3)
    assert profile.kernels.frame["uses_tensor_core"].isna().all()
    assert "kernels" not in profile.run.missing
    assert [tab["id"] for tab in profile.payload()["meta"]["tabs"]] == [
        "trace",
        "overview",
        "kernels",
        "device_time",
    ]


def test_stages_that_are_not_called_compute_are_no_kernels(tmp_path: Path) -> None:
    out = Recording()
    head = out.packet(flags=CLEARED)
    head.interned_data.gpu_specifications.add(iid=1, name="draw", category=1)
    head.interned_data.gpu_specifications.add(iid=2, name="other")
    for at, stage in ((1000, 1), (2000, 2)):
        event = out.packet(at, flags=NEEDS).gpu_render_stage_event
        event.event_id, event.duration, event.hw_queue_iid, event.stage_iid = at, 500, 2, stage
    (tmp_path / "run.pftrace").write_bytes(out.bytes())
    profile = nbprof.load(tmp_path / "run.pftrace")
    assert profile.kernels.frame.empty
    assert "GPU queue activity" in profile.run.missing["kernels"]
    assert [tab["id"] for tab in profile.payload()["meta"]["tabs"]] == ["trace", "overview"]
