"""Large XSpace files out of a small recorded one, written field by field.

Every event of the seed is repeated, replica by replica, on its own line: later by the span of the
seed, with correlation, group and step numbers of its own. Of the op and kernel names, one in ten is
new in every replica, so that the tables of names and strings grow as they do in a long recording.
All else (stats, their order, unknown fields) is kept byte by byte.

The events of a line become a template once: constant bytes with gaps for numbers. A replica is the
template with numpy filling all gaps at once; numbers are written as short as they are, and the
lengths around them follow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
MASK = (1 << 64) - 1
GAP_PS = 1_000_000
"""Between two replicas."""
SHARE = 10
"""One name in so many is new in every replica."""
SUFFIX = "_{:05d}"
NUMBER_WIDTH = 7
NONE, LINEAR, TABLE, STAT_LENGTH, EVENT_LENGTH = range(5)
SHIFTED = {
    "correlation_id",
    "group_id",
    "step_num",
    "element_id",
    "step_id",
    "request_id",
    "run_id",
    "launch_id",
    "id",
    "_p",
    "_c",
}
"""Stats that number things of one step or launch; all others mean the same thing in every
replica.
"""
FROM_ZERO = {"group_id", "step_num"}
"""Numbers of which 0 is one like any other; elsewhere it means none."""
PAIRS = ("_p", "_c")
TEXTS = {"tf_op", "hlo_op", "annotation", "name", "long_name", "level 0"}
"""Stats that name an op."""
THRESHOLDS = np.array([1 << 7 * k for k in range(1, 10)], np.uint64)


def varint(value: int) -> bytes:
    value &= MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def chunk(number: int, data: bytes) -> bytes:
    return varint(number << 3 | LENGTH) + varint(len(data)) + data


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & MASK, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes, bytes]]:
    """(number, wire type, value or content, the field's own bytes) of a message."""
    at = 0
    while at < len(data):
        start = at
        tag, at = read_varint(data, at)
        value: int | bytes
        if tag & 7 == VARINT:
            value, at = read_varint(data, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(tag & 7, -1)
            if size < 0:
                size, at = read_varint(data, at)
            value = data[at : at + size]
            at += size
        yield tag >> 3, tag & 7, value, data[start:at]


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def one(data: bytes, number: int, default: int | bytes = 0) -> int | bytes:
    """The value of a field that occurs once."""
    return next((value for n, _, value, _ in fields(data) if n == number), default)


@lru_cache(1 << 16)
def chosen(name: str) -> bool:
    """One name in `SHARE`, the same ones wherever they are written."""
    return hashlib.blake2b(name.encode(), digest_size=4).digest()[0] % SHARE == 0


@lru_cache(1 << 16)
def grown(text: str, device: bool = False) -> str | None:
    """A name with a place for the replica's number, for one op or kernel in `SHARE`; None for names
    that stay.
    """
    if text.startswith(("Iterator", "Memcpy", "Memset")):
        return None
    if device and re.search(r"[<(]", text):
        cut = re.search(r"[<(]", text)
        base = text[: cut.start()] if cut else text
    elif "::" in text or not re.search(r"[/:]|[._]\d+$", text):
        return None
    else:
        # XLA on CPUs marks the end of an op with an event of its own.
        begin = len("end: ") if text.startswith("end: ") else 0
        base = text[: begin + len(text[begin:].split(":")[0])]
    if not base or not chosen(base.removeprefix("end: ")):
        return None
    return base + "\0" + text[len(base) :]


@dataclass
class Template:
    """Events of one line: constant bytes with gaps for numbers."""

    pieces: list[bytes] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    base: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    """Where the message of a length ends: token -> token behind it."""
    patches: list[int] = field(default_factory=list)
    numbers: list[tuple[int, int, int]] = field(default_factory=list)
    pending: bytearray = field(default_factory=bytearray)
    size: int = 0
    events: int = 0

    def const(self, data: bytes) -> None:
        self.pending += data

    def digits(self) -> None:
        """Place for the replica's number as text."""
        self.pending += b"_"
        self.patches.append(self.size + len(self.pending))
        self.pending += b"00000"

    def number(self, base: int, step: int) -> None:
        """A number as text of fixed width, which counts on."""
        self.numbers.append((self.size + len(self.pending), base, step))
        self.pending += b"0" * NUMBER_WIDTH

    def hole(self, kind: int, base: int = 0, step: int = 0) -> int:
        self.pieces.append(bytes(self.pending))
        self.size += len(self.pending)
        self.pending.clear()
        self.kinds.append(kind)
        self.base.append(base & MASK)
        self.step.append(step & MASK)
        return len(self.kinds) - 1

    def close(self, token: int) -> None:
        if self.pending:
            self.hole(NONE)
        self.ends[token] = len(self.kinds)

    def freeze(self) -> None:
        self.blob = np.frombuffer(b"".join(self.pieces), np.uint8).copy()
        self.const_length = np.array([len(p) for p in self.pieces], np.int64)
        self.const_start = np.cumsum(self.const_length) - self.const_length
        self.token_of_byte = np.repeat(np.arange(len(self.pieces)), self.const_length)
        self.kind = np.array(self.kinds, np.uint8)
        self.base_value, self.step_value = (
            np.array(self.base, np.uint64),
            np.array(self.step, np.uint64),
        )
        self.table = np.flatnonzero(self.kind == TABLE)
        self.table_index = self.base_value[self.table].astype(np.int64)
        ends = np.zeros(len(self.kinds), np.int64)
        ends[list(self.ends)] = list(self.ends.values())
        self.lengths = [
            (np.flatnonzero(self.kind == k), ends[self.kind == k])
            for k in (STAT_LENGTH, EVENT_LENGTH)
        ]
        self.patch = np.array(self.patches, np.int64)
        self.fillers = self.kind != NONE

    def render(self, replica: int, table: np.ndarray) -> bytes:
        """The bytes of one replica; `table` are the numbers of growing names and strings in it."""
        for k, digit in enumerate(f"{replica:05d}"[-5:]):
            self.blob[self.patch + k] = ord(digit)
        for at, base, step in self.numbers:
            self.blob[at : at + NUMBER_WIDTH] = np.frombuffer(
                f"{base + step * replica:0{NUMBER_WIDTH}d}".encode(), np.uint8
            )
        value = self.base_value + self.step_value * np.uint64(replica)
        value[self.table] = table[self.table_index]
        size = np.searchsorted(THRESHOLDS, value, side="right") + 1
        size[~self.fillers] = 0
        for tokens, _ in self.lengths:
            size[tokens] = 0
        # The innermost lengths first: those around them depend on how many bytes they take.
        for tokens, ends in self.lengths:
            place = np.concatenate([[0], np.cumsum(self.const_length + size)])
            value[tokens] = (place[ends] - place[tokens + 1]).astype(np.uint64)
            size[tokens] = np.searchsorted(THRESHOLDS, value[tokens], side="right") + 1
        place = np.concatenate([[0], np.cumsum(self.const_length + size)])
        out = np.empty(int(place[-1]), np.uint8)
        move = place[:-1] - self.const_start
        out[np.arange(len(self.blob)) + move[self.token_of_byte]] = self.blob
        at = place[:-1] + self.const_length
        for k in range(int(size.max(initial=0))):
            rows = np.flatnonzero(size > k)
            byte = (value[rows] >> np.uint64(7 * k)) & np.uint64(0x7F)
            out[at[rows] + k] = byte.astype(np.uint8) | np.where(
                size[rows] > k + 1, 0x80, 0
            ).astype(np.uint8)
        return out.tobytes()


class PlaneSeed:
    """One plane of the seed, its lines as templates."""

    def __init__(self, data: bytes) -> None:
        self.rest = [(n, wire, value, raw) for n, wire, value, raw in fields(data)]
        self.name = bytes(one(data, 2, b"")).decode()
        self.device = self.name.startswith("/device:")
        self.metas: dict[int, dict[int, bytes]] = {4: {}, 5: {}}
        for number, _, value, _ in self.rest:
            if number in (4, 5):
                content = bytes(one(bytes(value), 2, b""))
                self.metas[number][int(one(bytes(value), 1)) or int(one(content, 1))] = content
        self.names = {
            number: {i: bytes(one(m, 2, b"")).decode() for i, m in table.items()}
            for number, table in self.metas.items()
        }
        self.lines = [bytes(value) for n, _, value, _ in self.rest if n == 3]
        self.growing: list[tuple[int, int, str]] = []
        """(4 for an event name or 5 for a string, its number in the seed, its text with a place for
        the replica).
        """
        self.slot: dict[tuple[int, int], int] = {}

    def times(self) -> Iterator[tuple[int, int]]:
        """Begin and end of all events, ps."""
        for line in self.lines:
            origin = signed(int(one(line, 3))) * 1000
            for number, _, event, _ in fields(line):
                if number == 4:
                    found = {n: int(v) for n, w, v, _ in fields(bytes(event)) if w == VARINT}
                    if 5 not in found:
                        start = origin + signed(found.get(2, 0))
                        yield start, start + found.get(3, 0)

    def ids(self) -> Iterator[tuple[str, int]]:
        """Name and value of the stats that get new numbers."""
        for line in self.lines:
            for number, _, event, _ in fields(line):
                if number == 4:
                    for n, _, stat, _ in fields(bytes(event)):
                        if n == 4:
                            name = self.names[5].get(int(one(bytes(stat), 1)), "")
                            if name in SHIFTED:
                                yield from (
                                    (name, int(v))
                                    for k, _, v, _ in fields(bytes(stat))
                                    if k in (3, 4)
                                )

    def growth(self, number: int, ident: int, steps: int) -> int | None:
        """The slot of a name (4) or string (5) that is new in every replica; None for one that
        stays.
        """
        if (number, ident) in self.slot:
            return self.slot[number, ident]
        text = self.names[number].get(ident, "")
        pattern = (
            f"\1{text}"
            if self.device and text.isdigit() and number == 4 and steps
            else grown(text, self.device)
        )
        if pattern is None:
            return None
        self.slot[number, ident] = len(self.growing)
        self.growing.append((number, ident, pattern))
        return self.slot[number, ident]

    def templates(self, shift_ps: int, steps: dict[str, int]) -> None:
        self.line_templates = [self.template(line, shift_ps, steps) for line in self.lines]

    def template(self, line: bytes, shift_ps: int, steps: dict[str, int]) -> Template:
        out = Template()
        for number, _, value, _ in fields(line):
            if number != 4:
                continue
            out.events += 1
            event = bytes(value)
            ident = int(one(event, 1))
            iterator = self.names[4].get(ident, "").startswith("Iterator")
            numbers = {n for n, _, _, _ in fields(event)}
            out.const(b"\x22")
            whole = out.hole(EVENT_LENGTH)
            for n, wire, content, raw in fields(event):
                if n == 1 and wire == VARINT:
                    out.const(b"\x08")
                    slot = self.growth(4, ident, steps.get("group_id", 0))
                    out.const(raw[1:]) if slot is None else out.hole(TABLE, slot)
                    if not numbers & {2, 5}:
                        out.const(b"\x10")
                        out.hole(LINEAR, 0, shift_ps)
                elif n == 2 and wire == VARINT:
                    out.const(b"\x10")
                    out.hole(LINEAR, int(content), shift_ps)
                elif n == 4 and wire == LENGTH:
                    self.stat(out, bytes(content), raw, steps, iterator)
                else:
                    out.const(raw)
            out.close(whole)
        out.freeze()
        return out

    def stat(
        self, out: Template, stat: bytes, raw: bytes, steps: dict[str, int], iterator: bool
    ) -> None:
        name = self.names[5].get(int(one(stat, 1)), "")
        parts = list(fields(stat))
        value = next(((n, v) for n, _, v, _ in parts if n != 1), None)
        slot = pattern = None
        shift = 0
        step = (
            re.fullmatch(rb"(.*?)(\d+)", bytes(value[1]))
            if value and value[0] == 5 and name == "step_name"
            else None
        )
        if (
            value
            and value[0] in (3, 4)
            and name in steps
            and (value[1] or name in FROM_ZERO)
            and not (iterator and name == "id")
        ):
            shift = steps[name]
        elif value and value[0] == 7 and name in TEXTS:
            slot = self.growth(5, int(value[1]), 0)
        elif value and value[0] == 5 and name in TEXTS:
            pattern = grown(bytes(value[1]).decode("utf-8", "replace"))
        if not shift and slot is None and pattern is None and step is None:
            out.const(raw)
            return
        out.const(b"\x22")
        token = out.hole(STAT_LENGTH)
        for n, _, content, field_bytes in parts:
            if n == 1:
                out.const(field_bytes)
            elif slot is not None:
                out.const(b"\x38")
                out.hole(TABLE, slot)
            elif step is not None:
                out.const(b"\x2a" + varint(len(step[1]) + NUMBER_WIDTH) + step[1])
                out.number(int(step[2]), steps.get("step_num", steps.get("group_id", 1)))
            elif pattern is not None:
                before, after = pattern.split("\0")
                size = len(before.encode()) + 6 + len(after.encode())
                out.const(b"\x2a" + varint(size) + before.encode())
                out.digits()
                out.const(after.encode())
            else:
                out.const(varint(n << 3))
                out.hole(LINEAR, int(content), shift)
        out.close(token)

    def write(
        self, replicas: int, shift_ps: int, steps: dict[str, int]
    ) -> tuple[list[bytes], int, dict[int, int]]:
        """The plane's content in pieces, its events, and how many names (4) and strings (5) were
        added.
        """
        next_id = {n: max(table, default=0) + 1 for n, table in self.metas.items()}
        added: dict[int, list[bytes]] = {4: [], 5: []}
        tables = np.zeros((replicas, len(self.growing)), np.uint64)
        for replica in range(replicas):
            for slot, (number, ident, pattern) in enumerate(self.growing):
                if replica == 0 and pattern[0] == "\1":
                    tables[0, slot] = ident
                    continue
                if pattern[0] == "\1":
                    text = str(int(pattern[1:]) + replica * steps["group_id"])
                else:
                    text = pattern.replace("\0", SUFFIX.format(replica))
                new = next_id[number]
                next_id[number] += 1
                tables[replica, slot] = new
                body = varint(8) + varint(new) + chunk(2, text.encode())
                body += b"".join(
                    raw for n, _, _, raw in fields(self.metas[number][ident]) if n not in (1, 2)
                )
                added[number].append(chunk(number, varint(8) + varint(new) + chunk(2, body)))
        out: list[bytes] = []
        events = line_no = 0
        ordered = sorted(self.rest, key=lambda f: f[0])
        for i, (number, _, value, raw) in enumerate(ordered):
            if number == 3:
                head = b""
                for n, _, v, field_bytes in fields(bytes(value)):
                    if n == 9:
                        head += varint(9 << 3) + varint(int(v) + (replicas - 1) * shift_ps)
                    elif n != 4:
                        head += field_bytes
                template = self.line_templates[line_no]
                parts = (
                    [template.render(r, tables[r]) for r in range(replicas)]
                    if template.events
                    else []
                )
                line_no += 1
                events += template.events * replicas
                out += [
                    varint(3 << 3 | LENGTH) + varint(len(head) + sum(map(len, parts))) + head,
                    *parts,
                ]
            elif (
                number == 6 and self.names[5].get(int(one(bytes(value), 1))) == "profile_stop_time"
            ):
                stop = [(n, int(v)) for n, w, v, _ in fields(bytes(value)) if w == VARINT]
                later = (replicas - 1) * (shift_ps // 1000)
                out.append(
                    chunk(
                        6,
                        b"".join(
                            varint(n << 3) + varint(v + (later if n != 1 else 0)) for n, v in stop
                        ),
                    )
                )
            else:
                out.append(raw)
            if number in added and (i + 1 == len(ordered) or ordered[i + 1][0] != number):
                out += added[number]
        return out, events, {n: len(table) for n, table in added.items()}


def replicate(seed: Path, target: Path, events: int) -> dict[str, int]:
    """Writes about `events` events, whole replicas of the seed; tells what was written."""
    top = [(number, value, raw) for number, _, value, raw in fields(seed.read_bytes())]
    planes = [PlaneSeed(bytes(value)) for number, value, _ in top if number == 1]
    times = [span for plane in planes for span in plane.times()]
    begin, end = min(t[0] for t in times), max(t[1] for t in times)
    # Whole nanoseconds: plane stats are written in them.
    shift_ps = -(-(end - begin + GAP_PS) // 1000) * 1000
    ids: dict[str, list[int]] = {}
    for plane in planes:
        for name, value in plane.ids():
            ids.setdefault(name, []).append(value if name in PAIRS else signed(value))
    steps = {
        name: max(values) - min(values) + 1 for name, values in ids.items() if name not in PAIRS
    }
    # Producer and consumer meet by number. Counters of a thread, low halves of a word, move on;
    # hashes take any shift.
    low = max((v & 0xFFFFFFFF for name in PAIRS for v in ids.get(name, [])), default=0)
    steps |= {
        name: low + 1 if low < 1 << 31 else 0x9E3779B97F4A7C15 for name in PAIRS if name in ids
    }
    for plane in planes:
        plane.templates(shift_ps, steps)
    seeded = sum(t.events for plane in planes for t in plane.line_templates)
    replicas = max(1, round(events / seeded))
    written = {
        "events": 0,
        "replicas": replicas,
        "seed_events": seeded,
        "names": 0,
        "strings": 0,
        "planes": 0,
        "lines": 0,
    }
    waiting = iter(planes)
    with target.open("wb") as file:
        for number, _, raw in top:
            if number != 1:
                file.write(raw)
                continue
            plane = next(waiting)
            parts, count, added = plane.write(replicas, shift_ps, steps)
            file.write(varint(1 << 3 | LENGTH) + varint(sum(map(len, parts))))
            file.writelines(parts)
            written["events"] += count
            written["names"] += len(plane.metas[4]) + added[4]
            written["strings"] += len(plane.metas[5]) + added[5]
            written["planes"] += 1
            written["lines"] += len(plane.lines)
    return written | {"bytes": target.stat().st_size}
