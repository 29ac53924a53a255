"""XSpace as the protobuf library reads it, and what a Trace of it must hold; the schema is built
from its definition.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from nbprof.core.trace import BYTES, DOUBLE, INT, TEXT, UINT, Trace
from nbprof.formats.times import LONGEST_PS
from nbprof.formats.xspace.names import program_idents

_TYPES = {"int64": 3, "uint64": 4, "double": 1, "string": 9, "bytes": 12}

_DEFINITION = """\
XSpace: planes 1 XPlane*, errors 2 string*, warnings 3 string*, hostnames 4 string*
XPlane: id 1 int64, name 2 string, lines 3 XLine*, event_metadata 4 XPlane.EventMetadataEntry*,
    stat_metadata 5 XPlane.StatMetadataEntry*, stats 6 XStat*
XPlane.EventMetadataEntry: key 1 int64, value 2 XEventMetadata
XPlane.StatMetadataEntry: key 1 int64, value 2 XStatMetadata
XLine: id 1 int64, display_id 10 int64, name 2 string, display_name 11 string, timestamp_ns 3
    int64, duration_ps 9 int64, events 4 XEvent*
XEvent: metadata_id 1 int64, offset_ps 2 int64 data, num_occurrences 5 int64 data, duration_ps 3
    int64, stats 4 XStat*
XStat: metadata_id 1 int64, double_value 2 double value, uint64_value 3 uint64 value,
    int64_value 4 int64 value, str_value 5 string value, bytes_value 6 bytes value, ref_value 7
    uint64 value
XEventMetadata: id 1 int64, name 2 string, display_name 4 string, metadata 3 bytes, stats 5
    XStat*, child_id 6 int64*
XStatMetadata: id 1 int64, name 2 string, description 3 string
"""
"""Messages with the name, number and type of each field, `*` where it is repeated, and its oneof."""


def _schema() -> dict[str, list[tuple[str, int, str, bool, str]]]:
    """Message -> (name, number, type or message, repeated, oneof)."""
    schema = {}
    for definition in _DEFINITION.replace("\n    ", " ").splitlines():
        message, _, fields = definition.partition(": ")
        parts = [[*field.split(), ""] for field in fields.split(", ")]
        schema[message] = [
            (name, int(number), kind.rstrip("*"), kind.endswith("*"), oneof)
            for name, number, kind, oneof, *_ in parts
        ]
    return schema


SCHEMA = _schema()


@cache
def _message() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="xspace_of_tests.proto", package="xspace_of_tests", syntax="proto3"
    )
    for name, fields in SCHEMA.items():
        parent, _, own = name.rpartition(".")
        holder = (
            next(m for m in file.message_type if m.name == parent).nested_type
            if parent
            else file.message_type
        )
        message = holder.add(name=own)
        message.options.map_entry = bool(parent)
        for field_name, number, kind, repeated, oneof in fields:
            field = message.field.add(
                name=field_name,
                number=number,
                label=3 if repeated else 1,
                type=_TYPES.get(kind, 11),
            )
            if kind not in _TYPES:
                field.type_name = f".xspace_of_tests.{kind}"
            if oneof:
                if not message.oneof_decl:
                    message.oneof_decl.add(name=oneof)
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("xspace_of_tests.XSpace"))


def parse(data: bytes) -> Any | None:
    """The message, or None where the protobuf library rejects the bytes."""
    message = _message()()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return message


def sets_map_entries_aside(space: Any) -> bool:
    """The library keeps a map entry that has an unknown field as an unknown field of the plane;
    other languages keep the entry.
    """
    return any(
        f.field_number in (4, 5) and f.wire_type == 2
        for plane in space.planes
        for f in UnknownFieldSet(plane)
    )


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _stat(stat: Any, names: dict[int, str]) -> tuple[str, int, Any]:
    name = names.get(stat.metadata_id) or f"stat {stat.metadata_id}"
    which = stat.WhichOneof("value")
    if which is None:
        return (name, 0, None)
    value = getattr(stat, which)
    if which == "ref_value":
        return name, TEXT, names.get(_signed(value), "")
    kind = {
        "double_value": DOUBLE,
        "uint64_value": UINT,
        "int64_value": INT,
        "str_value": TEXT,
        "bytes_value": BYTES,
    }[which]
    return name, kind, np.float64(value).tobytes() if kind == DOUBLE else value


def _fact(stat: Any, names: dict[int, str]) -> tuple[str, Any]:
    name, kind, value = _stat(stat, names)
    return name, np.frombuffer(value)[0].item() if kind == DOUBLE else value


def expected(space: Any) -> dict[str, Any]:
    """What must be in the Trace of a single file, event by event, with names instead of codes."""
    stamps = [
        line.timestamp_ns for plane in space.planes for line in plane.lines if len(line.events)
    ]
    absolute = 10**18 if max(stamps, default=0) >= 10**18 else 4 * 10**15
    epoch = min((s for s in stamps if s >= absolute), default=0)
    out: dict[str, Any] = {
        "lanes": [],
        "planes": [],
        "aggregated": [],
        "wild": 0,
        "modules": [],
        "name_args": [],
        "more": [],
    }
    for plane in space.planes:
        names = {key: meta.name for key, meta in plane.stat_metadata.items()}
        facts = dict(_fact(stat, names) for stat in plane.stats)
        out["planes"].append((plane.id, plane.name, _plain(facts)))
        modules: list[tuple[str, int, object, bytes]] = []
        for key, meta in plane.event_metadata.items():
            stated = dict(_fact(stat, names) for stat in meta.stats).get("program_id")
            for stat in meta.stats:
                fact, value = _fact(stat, names)
                if fact == "Hlo Proto" and isinstance(value, bytes):
                    modules.append((meta.name, key, stated, value))
            constants = dict(
                f
                for f in (_fact(stat, names) for stat in meta.stats)
                if not (f[0] == "Hlo Proto" and isinstance(f[1], bytes))
            )
            children = [
                plane.event_metadata[c].name for c in meta.child_id if c in plane.event_metadata
            ]
            out["name_args"].append(
                (
                    meta.name,
                    meta.display_name or meta.name,
                    _plain(constants),
                    meta.metadata,
                    children,
                )
            )
        idents = program_idents(one[:3] for one in modules)
        out["modules"] += [
            (name, ident, data) for (name, _, _, data), ident in zip(modules, idents, strict=True)
        ]
        lanes: dict[int, tuple[Any, ...]] = {}
        for line in plane.lines:
            stated = (
                plane.name,
                line.display_name or line.name,
                line.id,
                line.name,
                line.display_id,
                line.duration_ps,
            )
            *_, events = lanes.setdefault(line.id, (*stated, []))
            base = (line.timestamp_ns - (epoch if line.timestamp_ns >= absolute else 0)) * 1000
            for event in line.events:
                known = plane.event_metadata.get(event.metadata_id)
                name = known.name if known is not None else f"event {event.metadata_id}"
                if event.WhichOneof("data") == "num_occurrences":
                    out["aggregated"].append(
                        (plane.name, line.id, name, event.num_occurrences, event.duration_ps)
                    )
                    continue
                start = base + event.offset_ps
                if (
                    abs(base) > LONGEST_PS
                    or abs(event.offset_ps) > LONGEST_PS
                    or abs(start) > LONGEST_PS
                    or abs(event.duration_ps) > LONGEST_PS
                ):
                    out["wild"] += 1
                    continue
                stats = [s for s in (_stat(stat, names) for stat in event.stats) if s[1]]
                events.append((start, max(event.duration_ps, 0), name, _by_name(stats)))
        for *stated, events in lanes.values():
            events.sort(key=lambda e: (e[0], -e[1]))
            out["lanes"].append((tuple(stated), events))
    # Where an event began before the clock did, times count from that event.
    starts = [event[0] for _, events in out["lanes"] for event in events]
    low = min(starts, default=0)
    if low < 0 and max(starts) - low <= LONGEST_PS:
        out["lanes"] = [
            (stated, [(event[0] - low, *event[1:]) for event in events])
            for stated, events in out["lanes"]
        ]
    return out


def actual(trace: Trace) -> dict[str, Any]:
    """The same of a Trace."""
    events = trace.events
    stats: list[list[Any]] = [[] for _ in range(len(events))]
    for name, column in trace.args.items():
        assert (column.event[1:] >= column.event[:-1]).all()
        for event, kind, value in zip(
            column.event.tolist(), column.kinds.tolist(), column.values.tolist(), strict=True
        ):
            if kind == TEXT:
                value = trace.strings[value]
            elif kind == BYTES:
                value = trace.blobs[value]
            elif kind == UINT:
                value = value % 2**64
            elif kind == DOUBLE:
                value = np.int64(value).tobytes()
            stats[event].append((name, kind, value))
    lanes: list[list[Any]] = [[] for _ in range(len(trace.lanes))]
    columns = (
        events.lane.tolist(),
        events.start.tolist(),
        events.duration.tolist(),
        events.name.tolist(),
    )
    for at, (lane, start, duration, name) in enumerate(zip(*columns, strict=True)):
        lanes[lane].append((start, duration, trace.names[name], _by_name(stats[at])))
    table = trace.lanes
    rows = [
        tuple(row)
        for row in table[
            ["process", "thread", "line_id", "line", "display_id", "duration"]
        ].itertuples(index=False)
    ]
    constants: list[dict[str, Any]] = [{} for _ in trace.names]
    for name, by_code in trace.name_args.items():
        for code, value in by_code.items():
            constants[code][name] = value
    opaque: Any = trace.metadata.get("event_metadata", {})
    children: Any = trace.metadata.get("event_children", {})
    unnamed = len(trace.names)
    gone = trace.aggregated
    return {
        "lanes": list(zip(rows, lanes, strict=True)),
        "planes": [(plane.ident, plane.name, _plain(plane.stats)) for plane in trace.planes],
        "aggregated": [
            (
                table["process"][lane],
                int(table["line_id"][lane]),
                trace.names[name],
                count,
                duration,
            )
            for lane, name, count, duration in gone.itertuples(index=False)
        ],
        "wild": trace.receipt.dropped,
        "modules": [(m.name, m.ident, m.data) for m in trace.modules],
        "name_args": [
            (
                trace.names[c],
                trace.display[c],
                _plain(constants[c]),
                opaque.get(c, b""),
                [trace.names[k] for k in children.get(c, [])],
            )
            for c in range(unnamed)
        ],
    }


def _by_name(stats: list[Any]) -> list[Any]:
    # An event that has one stat twice keeps both; in which order is not part of the contract.
    return sorted(stats, key=repr)


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    return {k: repr(facts[k]) if isinstance(facts[k], float) else facts[k] for k in sorted(facts)}


def differences(space: Any, trace: Trace) -> list[str]:
    """What a Trace holds otherwise than the protobuf library; empty where they agree."""
    one, two = expected(space), actual(trace)
    found = []
    # Names of events that the plane does not name come behind those of the planes before and after
    # it.
    ours = [
        row
        for row in two["name_args"]
        if not (row[0].startswith("event ") and row[0][6:].lstrip("-").isdigit())
    ]
    theirs = [
        row
        for row in one["name_args"]
        if not (row[0].startswith("event ") and row[0][6:].lstrip("-").isdigit())
    ]
    # The library gives map entries in no order.
    if sorted(map(repr, ours)) != sorted(map(repr, theirs)):
        found.append(
            f"names: {first_difference(sorted(map(repr, theirs)), sorted(map(repr, ours)))}"
        )
    if sorted(map(repr, one["modules"])) != sorted(map(repr, two["modules"])):
        found.append("modules")
    for key in ("planes", "wild"):
        if one[key] != two[key]:
            found.append(f"{key}: {one[key]!r} and {two[key]!r}"[:500])
    if sorted(map(repr, one["aggregated"])) != sorted(map(repr, two["aggregated"])):
        found.append(f"aggregated: {one['aggregated']} and {two['aggregated']}"[:500])
    if [stated for stated, _ in one["lanes"]] != [stated for stated, _ in two["lanes"]]:
        found.append(
            f"lanes: {first_difference([stated for stated, _ in one['lanes']], [stated for stated, _ in two['lanes']])}"
        )
    for (stated, mine), (_, other) in zip(one["lanes"], two["lanes"], strict=False):
        if mine != other:
            found.append(f"{stated}: {first_difference(mine, other)}")
    return found


def first_difference(one: list[Any], two: list[Any]) -> str:
    for at, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return f"item {at}: {a!r} and {b!r}"[:600]
    return f"{len(one)} and {len(two)} items"
