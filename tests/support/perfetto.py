"""Writes small Perfetto traces with Perfetto's own protobufs, and the same as a Chrome trace in
JSON.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass, field
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from nbprof.core.trace import DOUBLE, TEXT, UINT, Trace
from nbprof.formats.perfetto import perfetto
from tests.support.chrome import Memory, document

CLEARED, NEEDS = 1, 2
TYPES = pb.TrackEvent.Type


def read(data: bytes, name: str = "host.pftrace", **options: Any) -> Trace:
    return perfetto.read([Memory(data, name)], **options)


class Recording:
    """One file; every method adds a packet and returns it."""

    def __init__(self, sequence: int = 7) -> None:
        self.trace = pb.Trace()
        self.sequence = sequence

    def bytes(self) -> bytes:
        return self.trace.SerializeToString()

    def packet(self, time: int | None = None, sequence: int | None = None, flags: int = 0) -> Any:
        packet = self.trace.packet.add()
        if time is not None:
            packet.timestamp = time
        packet.trusted_packet_sequence_id = self.sequence if sequence is None else sequence
        if flags:
            packet.sequence_flags = flags
        return packet

    def track(self, uuid: int, name: str = "", parent: int = 0, **facts: Any) -> Any:
        """`facts`: process=(pid, name), thread=(pid, tid, name), counter={...}."""
        track = self.packet().track_descriptor
        track.uuid = uuid
        if name:
            track.name = name
        if parent:
            track.parent_uuid = parent
        if "process" in facts:
            track.process.pid, track.process.process_name = facts["process"]
        if "thread" in facts:
            track.thread.pid, track.thread.tid, track.thread.thread_name = facts["thread"]
        if "counter" in facts:
            track.counter.SetInParent()
            for key, value in facts["counter"].items():
                setattr(track.counter, key, value)
        return track

    def event(
        self,
        kind: str,
        time: int,
        track: int,
        name: str = "",
        *,
        flags: int = 0,
        sequence: int | None = None,
        **args: Any,
    ) -> Any:
        """`kind` is `begin`, `end`, `instant` or `counter`."""
        event = self.packet(time, sequence, flags).track_event
        event.type = getattr(
            pb.TrackEvent,
            {"counter": "TYPE_COUNTER", "instant": "TYPE_INSTANT"}.get(
                kind, f"TYPE_SLICE_{kind.upper()}"
            ),
        )
        event.track_uuid = track
        if name:
            event.name = name
        for key, value in args.items():
            annotate(event.debug_annotations.add(), value).name = key
        return event


def annotate(one: Any, value: Any) -> Any:
    """Gives an annotation a value, as the SDK does."""
    if isinstance(value, bool):
        one.bool_value = value
    elif isinstance(value, int):
        if value >= 1 << 63:
            one.uint_value = value
        else:
            one.int_value = value
    elif isinstance(value, float):
        one.double_value = value
    elif isinstance(value, str):
        one.string_value = value
    elif isinstance(value, dict):
        for key, inner in value.items():
            annotate(one.dict_entries.add(), inner).name = key
    else:
        for inner in value:
            annotate(one.array_values.add(), inner)
    return one


@dataclass
class Interner:
    """The ids of one state of a sequence."""

    idents: dict[tuple[str, str], int] = field(default_factory=dict)

    def ident(self, packet: Any, table: str, text: str) -> int:
        key = (table, text)
        if key not in self.idents:
            self.idents[key] = len(self.idents) + 1
            entry = getattr(packet.interned_data, table).add()
            entry.iid = self.idents[key]
            if table == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return self.idents[key]


@dataclass
class Slice:
    """One slice of the story that both files tell."""

    thread: int
    name: str
    start: int
    duration: int | None
    category: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    flow: int = 0
    phase: str = ""
    depth: int = 0


@dataclass
class Story:
    """What happened: slices by thread, properly nested, and samples of counters of the process."""

    threads: dict[int, str]
    slices: list[Slice]
    counters: list[tuple[str, int, float]]

    @classmethod
    def random(cls, rng: random.Random, count: int = 300) -> Story:
        threads = {101 + i: f"worker {i}" for i in range(rng.randrange(1, 5))}
        slices: list[Slice] = []
        for thread in threads:
            cls._fill(rng, thread, 10_000, 10_000 + 1000 * count, 0, slices, count // len(threads))
        for ident in range(1, rng.randrange(2, 12)):
            ends = sorted(rng.sample([s for s in slices if s.duration], 3), key=lambda s: s.start)
            if ends[0].start < ends[1].start < ends[2].start and not any(s.flow for s in ends):
                for one, phase in zip(ends, "stf", strict=True):
                    one.flow, one.phase = ident, phase
        counters = [
            (f"series {i % 3}", 10_000 + 977 * i, rng.choice((i, i / 4, -i))) for i in range(30)
        ]
        return cls(threads, slices, counters)

    @classmethod
    def _fill(
        cls,
        rng: random.Random,
        thread: int,
        low: int,
        high: int,
        depth: int,
        out: list[Slice],
        count: int,
    ) -> None:
        at = low
        while at < high and count > 0 and depth < 6:
            start = at + rng.randrange(0, max((high - at) // 4, 1))
            end = rng.randrange(start, high + 1)
            args: dict[str, Any] = {}
            if rng.random() < 0.5:
                keys = rng.sample(
                    ["n", "big", "f", "text", "flag", "shape", "neg", "repeated"],
                    rng.randrange(1, 4),
                )
                values = {
                    "n": rng.randrange(1 << rng.randrange(1, 60)), "big": (1 << 63) + rng.randrange(100), "f": rng.random(), "flag": True,
                    "text": f"value {rng.randrange(9)} µ", "shape": [[8, rng.randrange(9)], [3], ["x", 1.5]], "neg": -rng.randrange(1, 1 << 40),
                    "repeated": rng.choice(("a", "b")),
                }  # fmt: skip
                args = {key: values[key] for key in keys}
            is_mark = rng.random() < 0.1
            category = rng.choice(("", "net", "disk", "net,disk"))
            out.append(
                Slice(
                    thread,
                    f"op {rng.randrange(20)}",
                    start,
                    None if is_mark else end - start,
                    category,
                    args,
                    depth=depth,
                )
            )
            count -= 1
            if not is_mark:
                if rng.random() < 0.6:
                    before = len(out)
                    cls._fill(rng, thread, start, end, depth + 1, out, count // 2)
                    count -= len(out) - before
                at = end
            else:
                at = start + 1

    def json(self) -> str:
        """As a Chrome trace."""
        head = [
            {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "args": {"name": "trainer"}}
        ]
        head += [
            {"ph": "M", "name": "thread_name", "pid": 100, "tid": tid, "args": {"name": name}}
            for tid, name in self.threads.items()
        ]
        events: list[dict[str, Any]] = []
        for one in sorted(self.slices, key=lambda s: s.start):
            event: dict[str, Any] = {
                "ph": "i" if one.duration is None else "X",
                "name": one.name,
                "pid": 100,
                "tid": one.thread,
            }
            event["ts"] = one.start / 1000
            if one.duration is not None:
                event["dur"] = one.duration / 1000
            if one.category:
                event["cat"] = one.category
            if one.args:
                event["args"] = one.args
            events.append(event)
            if one.flow:
                here = {
                    "ph": one.phase,
                    "id": one.flow,
                    "pid": 100,
                    "tid": one.thread,
                    "ts": one.start / 1000,
                    "cat": "flow",
                    "name": "flow",
                }
                events.append({**here, "bp": "e"})
        samples = [
            {"ph": "C", "name": name, "pid": 100, "ts": at / 1000, "args": {"value": value}}
            for name, at, value in self.counters
        ]
        return json.dumps(document(*head, *events, *samples))

    def perfetto(
        self, rng: random.Random, *, interned: bool, forget: bool = False, compressed: bool = False
    ) -> bytes:
        """As a Perfetto trace.

        With `interned`, texts have ids on a sequence of each thread, which `forget` clears every
        now and then; `compressed` as the tracing service does.
        """
        out = Recording()
        tracks = {tid: rng.getrandbits(64) for tid in self.threads}
        out.track(5, process=(100, "trainer"))
        for tid, name in self.threads.items():
            out.track(tracks[tid], parent=5, thread=(100, tid, name))
        series = {
            name: i + 10 for i, name in enumerate(dict.fromkeys(name for name, *_ in self.counters))
        }
        for name, uuid in series.items():
            out.track(uuid, name, parent=5, counter={})
        states: dict[int, Interner] = {}
        for time, kind, one in sorted(self._points(), key=lambda p: p[0]):
            sequence = one.thread if interned else None
            if not interned:
                args = one.args if kind != "end" else {}
                event = out.event(
                    kind, time, tracks[one.thread], one.name if kind != "end" else "", **args
                )
                if kind != "end":
                    event.categories.extend([c for c in one.category.split(",") if c])
            else:
                event = self._interned(
                    out,
                    kind,
                    time,
                    one,
                    tracks[one.thread],
                    states,
                    forget=forget and rng.random() < 0.05,
                )
            if one.flow and kind == "begin":
                (event.terminating_flow_ids if one.phase == "f" else event.flow_ids).append(
                    one.flow
                )
            assert sequence is None or event is not None
        for name, at, value in self.counters:
            event = out.event("counter", at, series[name])
            if isinstance(value, int):
                event.counter_value = value
            else:
                event.double_counter_value = value
        return deflated(out.trace, rng) if compressed else out.bytes()

    def _points(self) -> list[tuple[int, str, Slice]]:
        """Begins, ends and marks, those of a thread in their order."""
        out: list[tuple[int, str, Slice]] = []
        open_: list[Slice] = []

        def close(depth: int, thread: int) -> None:
            while open_ and (open_[-1].depth >= depth or open_[-1].thread != thread):
                one = open_.pop()
                out.append((one.start + (one.duration or 0), "end", one))

        for one in self.slices:
            close(one.depth, one.thread)
            if one.duration is None:
                out.append((one.start, "instant", one))
            else:
                out.append((one.start, "begin", one))
                open_.append(one)
        close(0, -1)
        return out

    @staticmethod
    def _interned(
        out: Recording,
        kind: str,
        time: int,
        one: Slice,
        track: int,
        states: dict[int, Interner],
        *,
        forget: bool,
    ) -> Any:
        event = out.event(kind, time, track, flags=NEEDS, sequence=one.thread)
        packet = out.trace.packet[-1]
        if one.thread not in states or forget:
            states[one.thread] = Interner()
            packet.sequence_flags = CLEARED | NEEDS
            packet.trace_packet_defaults.track_event_defaults.track_uuid = track
        event.ClearField("track_uuid")
        if kind == "end":
            return event
        ids = states[one.thread]
        event.name_iid = ids.ident(packet, "event_names", one.name)
        event.category_iids.extend(
            [ids.ident(packet, "event_categories", c) for c in one.category.split(",") if c]
        )
        for key, value in one.args.items():
            annotation = event.debug_annotations.add()
            if isinstance(value, str):
                annotation.string_value_iid = ids.ident(
                    packet, "debug_annotation_string_values", value
                )
            else:
                annotate(annotation, value)
            annotation.name_iid = ids.ident(packet, "debug_annotation_names", key)
        return event


def every_kind() -> Recording:
    """A packet of each kind that is read, and of old kinds that are not."""
    out = Recording()
    head = out.packet(flags=CLEARED)
    head.trace_packet_defaults.timestamp_clock_id = 64
    head.trace_packet_defaults.track_event_defaults.extra_counter_track_uuids.append(4)
    head.interned_data.gpu_specifications.add(iid=1, name="Compute", category=2)
    head.interned_data.gpu_counter_descriptors.add(iid=6, gpu_id=2).counter_descriptor.specs.add(
        counter_id=3, name="clock"
    )
    head.interned_data.source_locations.add(iid=1, file_name="train.py", line_number=3)
    shot = out.packet().clock_snapshot
    for clock, time in ((6, 1 << 40), (3, 1 << 39), (1, 1_700_000_000 * 10**9)):
        shot.clocks.add(clock_id=clock, timestamp=time)
    shot.clocks.add(clock_id=64, timestamp=1 << 30, is_incremental=True, unit_multiplier_ns=1000)
    out.packet().process_tree.processes.add(pid=7, ppid=1).cmdline.append("python")
    out.track(1, process=(7, "server"))
    out.track(2, parent=1, thread=(7, 8, "main"))
    out.track(3, "memory", parent=1, counter={"unit_multiplier": 1024, "is_incremental": True})
    out.track(4, "load", parent=2, counter={})
    for i in range(6):
        for kind in ("begin", "end"):
            event = out.event(
                kind, 3 + i, 2, "work", shape={"in": [8, {"a": i}], "of": {"b": "x"}}, n=i
            )
            event.extra_counter_values.append(i)
            event.flow_ids.append(5)
            event.source_location_iid = 1
        out.event("counter", 5, 3).counter_value = i
        out.event("counter", 5, 4).double_counter_value = i / 2
    old = out.packet(sequence=9, flags=CLEARED).thread_descriptor
    old.pid, old.tid, old.thread_name, old.reference_timestamp_us = 7, 9, "old", 1 << 29
    for i, phase in enumerate("XBEbneSTFstfIp"):
        event = out.packet(sequence=9, flags=NEEDS).track_event
        event.timestamp_delta_us, event.name = i, f"old {i // 3}"
        event.legacy_event.phase, event.legacy_event.unscoped_id, event.legacy_event.duration_us = (
            ord(phase),
            4,
            2,
        )
        event.legacy_event.bind_id, event.legacy_event.flow_direction = 3, 1 + i % 3
    for i in range(3):
        event = out.packet(100 + i, flags=NEEDS).gpu_render_stage_event
        event.event_id, event.duration, event.hw_queue_iid, event.stage_iid, event.gpu_id = (
            i + 1,
            50,
            1,
            1,
            i % 2,
        )
        event.launch.grid_size.x, event.launch.workgroup_size.x = 64, 128
        event.extra_data.add(name="shader", value="a")
        sample = out.packet(100 + i, flags=NEEDS).gpu_counter_event
        sample.counter_descriptor_iid = 6
        sample.counters.add(counter_id=3, int_value=i)
    out.packet().gpu_render_stage_event.specifications.hw_queue.add(name="queue")
    out.packet().trace_stats.buffer_stats.add(chunks_overwritten=2)
    out.packet().ftrace_events.cpu = 1
    return out


def deflated(trace: Any, rng: random.Random) -> bytes:
    """The packets of a trace, most of them compressed in blocks."""
    out = pb.Trace()
    at = 0
    while at < len(trace.packet):
        count = rng.randrange(1, 60)
        inner = pb.Trace(packet=trace.packet[at : at + count])
        at += count
        if rng.random() < 0.8:
            out.packet.add().compressed_packets = zlib.compress(inner.SerializeToString())
        else:
            out.packet.extend(inner.packet)
    return out.SerializeToString()


def events_of(trace: Trace) -> list[dict[str, Any]]:
    """The events as plain values: lane, name, times, depth and args."""
    events, lanes = trace.events, trace.lanes
    out = [
        {
            **{
                column: str(lanes[column].iloc[lane])
                for column in ("process", "thread", "pid", "tid")
            },
            "name": str(trace.names[name]),
            "start": start,
            "duration": duration,
            "depth": depth,
            "args": {},
        }
        for lane, name, start, duration, depth in zip(
            *(
                c.tolist()
                for c in (events.lane, events.name, events.start, events.duration, events.depth)
            ),
            strict=True,
        )
    ]
    for key in trace.args:
        column = trace.args[key]
        doubles = column.floats().tolist()
        for i, (event, kind, value) in enumerate(
            zip(column.event.tolist(), column.kinds.tolist(), column.values.tolist(), strict=True)
        ):
            plain: Any = value & ((1 << 64) - 1) if kind == UINT else value
            if kind == TEXT:
                plain = trace.strings[value]
            elif kind == DOUBLE:
                plain = doubles[i]
            out[event]["args"][key] = plain
    return out
