"""Transposed chunks: the fields of many messages, those of one place side by side, and a state machine that says in which order they come.

The machine writes the records from their last byte to their first. A byte of its transitions decides where it goes next; which states
follow without a further byte is the same each time, so these paths are worked out once, and only the bytes are walked one by one. All the
rest is done for many states at once: sizes, from the innermost messages outward, then places, then bytes.

The format is that of `riegeli/chunk_encoding/transpose_decoder.cc` in https://github.com/google/riegeli.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer
from nbprof.core.trace import Int64s
from nbprof.formats.xspace.riegeli.packed import unpack, unpacked, unpacked_size

_NO_OP, _NO_PROTO, _START_OF_SUBMESSAGE, _START_OF_MESSAGE = range(4)
# Kinds of states: what they write. A field has a tag and bytes of a known number, a text says its own length.
_NOTHING, _MESSAGE, _BEGIN, _END, _FIELD, _TEXT, _RAW = range(7)
_SUBMESSAGE = 6
_INLINE = 10
_LENGTHS = {wire.VARINT: 0, wire.FIXED64: 8, wire.FIXED32: 4}
# Bytes of transitions, and states that are worked on at once.
_WINDOW = 1 << 17
_MOST_STATES = 1 << 20
# Riegeli nests messages up to 100 deep, and takes what is deeper for a text.
_DEEPEST = 128
_WRONG = "its state machine makes no sense"


@dataclass
class _Machine:
    """The states, and by state what is written and where it comes from."""

    next: list[int]
    implicit: list[bool]
    first: int
    kind: npt.NDArray[np.int8]
    head: list[bytes]
    """The tag; for a small number with its value."""
    count: Int64s
    """Bytes of a field behind its tag."""
    varint: npt.NDArray[np.bool_]
    buffer: Int64s


def untransposed(data: memoryview, records: int, decoded: int, limit: int) -> tuple[Buffer, Int64s]:
    """The records of a chunk, one after the other, and where each ends.

    Parameters
    ----------
    data : memoryview
        Content of the chunk.
    records, decoded : int
        How many records there are, and how many bytes they have.
    limit : int
        What a part of it may unpack to.

    Raises
    ------
    ReadError
        It is damaged.
    """
    kind = data[0]
    size, at = wire.read_varint(data, 1, len(data))
    if at + size > len(data):
        raise ReadError("its header runs over its end")
    header = _Header(unpacked(kind, data[at : at + size], limit))
    at += size
    buckets = header.number()
    buffers = header.number()
    spans = []
    for length in header.numbers(buckets):
        if at + length > len(data):
            raise ReadError("a part of it runs over its end")
        spans.append(data[at : at + length])
        at += length
    lengths = header.numbers(buffers)
    pool, places = _pool(kind, spans, lengths, decoded + 5 * records)
    machine = _machine(header, buffers)
    transitions = unpacked(kind, data[at:], _most(records, decoded))
    work = _Work(machine, pool, places, records, decoded)
    work.run(bytes(transitions))
    return work.out, work.ends()


class _Header:
    """The numbers of a header, one after the other."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        value, self.at = wire.read_varint(self.data, self.at, len(self.data))
        if value > _LIMIT:
            raise ReadError(_WRONG)
        return value

    def numbers(self, count: int) -> list[int]:
        if count > len(self.data) - self.at:
            raise ReadError(_WRONG)
        return [self.number() for _ in range(count)]

    def bytes(self, count: int) -> bytes:
        part = bytes(self.data[self.at : self.at + count])
        if len(part) < count:
            raise ReadError(_WRONG)
        self.at += count
        return part


_LIMIT = 1 << 40


def _most(records: int, decoded: int) -> int:
    """States that records of so many bytes are made by: each writes a byte, or belongs to one that does, or leads to it."""
    return 4 * (decoded + records) + 1024


def _pool(kind: int, spans: list[memoryview], lengths: list[int], most: int) -> tuple[Buffer, Int64s]:
    """All buffers one after the other, and where each begins; the last place is the end."""
    sizes = [unpacked_size(kind, span)[0] for span in spans]
    if sum(lengths) != sum(sizes) or sum(sizes) > most:
        raise ReadError("its parts are not as long as it says")
    pool, at = Buffer(sum(sizes)), 0
    for span, size in zip(spans, sizes, strict=True):
        unpack(kind, span, pool.data[at : at + size])
        at += size
    return pool, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _machine(header: _Header, buffers: int) -> _Machine:
    states = header.number()
    tags, following = header.numbers(states), header.numbers(states)
    subtypes = iter(header.bytes(sum(tag >= 8 and tag & 7 == wire.VARINT for tag in tags)))
    kinds, heads, counts = [_NOTHING] * states, [b""] * states, [0] * states
    varint, sources = [False] * states, [-1] * states
    for at, tag in enumerate(tags):
        if tag in (_NO_OP, _START_OF_MESSAGE, _START_OF_SUBMESSAGE):
            kinds[at] = {_NO_OP: _NOTHING, _START_OF_MESSAGE: _MESSAGE, _START_OF_SUBMESSAGE: _BEGIN}[tag]
            continue
        if tag == _NO_PROTO:
            kinds[at], sources[at] = _RAW, header.number()
            continue
        wire_type = tag & 7
        if wire_type == _SUBMESSAGE:
            kinds[at], heads[at] = _END, wire.write_varint(tag - _SUBMESSAGE + wire.LENGTH)
        elif wire_type == wire.LENGTH:
            kinds[at], heads[at], sources[at] = _TEXT, wire.write_varint(tag), header.number()
        elif wire_type in _LENGTHS:
            kinds[at], heads[at] = _FIELD, wire.write_varint(tag)
            subtype = next(subtypes) if wire_type == wire.VARINT else 0
            if subtype >= _INLINE:
                heads[at] += bytes((subtype - _INLINE,))
            else:
                varint[at] = wire_type == wire.VARINT
                counts[at], sources[at] = _LENGTHS[wire_type] or subtype + 1, header.number()
            if subtype >= _INLINE + 128:
                raise ReadError(_WRONG)
        elif wire_type in (wire.GROUP, wire.GROUP_END):
            kinds[at], heads[at] = _FIELD, wire.write_varint(tag)
        else:
            raise ReadError(_WRONG)
        if tag < 8 or tag >> 32:
            raise ReadError(_WRONG)
    first = header.number()
    implicit = [number >= states for number in following]
    following = [number - states if number >= states else number for number in following]
    if first >= states or max(following, default=0) >= states or max(sources, default=0) >= buffers or header.at != len(header.data):
        raise ReadError(_WRONG)
    kind = np.array(kinds, np.int8)
    return _Machine(following, implicit, first, kind, heads, np.array(counts, np.int64), np.array(varint), np.array(sources, np.int64))


class _Work:
    """Runs the machine."""

    def __init__(self, machine: _Machine, pool: Buffer, places: Int64s, records: int, decoded: int) -> None:
        self.machine = machine
        self.pool = pool.array
        self.at: list[int] = places[:-1].tolist()
        """By buffer how far it has been read, and where it ends."""
        self.stop: list[int] = places[1:].tolist()
        self.raw = len(self.at) - 1
        self.records, self.decoded = records, decoded
        self.out = Buffer(decoded)
        self.written = 0
        self.limits: list[Int64s] = []
        self.open: list[tuple[int, int]] = []
        """Messages that have ended (for it goes backward), and not begun: what was written then, and the state."""
        self.tag_size = np.array([len(head) for head in machine.head], np.int64)
        # A path is known by four times its first state, and how many steps are taken from there without a byte.
        self.after: list[int | None] = [None] * (4 * len(machine.next) + 4 * 64)
        self.path_at = np.zeros(len(self.after), np.int64)
        self.path_size = np.zeros(len(self.after), np.int64)
        self.paths: list[int] = []
        self.states = _most(records, decoded)

    def run(self, transitions: bytes) -> None:
        """All of it."""
        key = 4 * self.machine.first
        base = self._path(key)
        self._walked([key])
        after, path = self.after, self._path
        for begin in range(0, len(transitions), _WINDOW):
            keys: list[int] = []
            note = keys.append
            for byte in transitions[begin : begin + _WINDOW]:
                key = base + byte
                note(key)
                known = after[key]
                base = path(key) if known is None else known
            self._walked(keys)
        if self.open or self.written != self.decoded:
            raise ReadError(_WRONG)

    def ends(self) -> Int64s:
        """Where each record ends."""
        limits = np.concatenate([np.zeros(1, np.int64), *self.limits])
        if len(limits) != self.records + 1 or limits[-1] != self.decoded:
            raise ReadError(_WRONG)
        return self.decoded - limits[-2::-1]

    def _path(self, key: int) -> int:
        """Works out the path of a key; returns what a byte is added to behind it."""
        following, implicit = self.machine.next, self.machine.implicit
        state, steps = divmod(key, 4)
        if state >= len(following):
            raise ReadError(_WRONG)
        steps += implicit[state]
        self.path_at[key] = len(self.paths)
        self.paths.append(state)
        free = 0
        while steps:
            state = following[state]
            self.paths.append(state)
            if implicit[state]:
                free += 1
                # Round in a circle, for ever.
                if free > len(following):
                    raise ReadError(_WRONG)
            else:
                steps, free = steps - 1, 0
        self.path_size[key] = len(self.paths) - self.path_at[key]
        if len(self.paths) > _MOST_STATES + 4 * len(self.after):
            raise ReadError(_WRONG)
        base = self.after[key] = 4 * following[state]
        return base

    def _walked(self, keys: list[int]) -> None:
        """Does what the states of some paths do."""
        at = np.array(keys, np.int64)
        sizes = self.path_size[at]
        self.states -= int(sizes.sum())
        if self.states < 0:
            raise ReadError(_WRONG)
        paths = np.array(self.paths, np.int32)
        upto = np.cumsum(sizes)
        first = 0
        while first < len(at):
            # As many as are worked on at once, and one at least.
            last = max(int(np.searchsorted(upto, (upto[first - 1] if first else 0) + _MOST_STATES, "right")), first + 1)
            size = sizes[first:last]
            inner = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
            self._step(paths[np.repeat(self.path_at[at[first:last]], size) + inner])
            first = last

    def _step(self, state: npt.NDArray[np.int32]) -> None:
        machine = self.machine
        kind = machine.kind[state]
        size = (self.tag_size + machine.count)[state]
        size[kind == _END] = 0
        source = self._sources(state, kind, size)
        begins, ends, lengths = self._messages(state, kind, size)
        reached = np.cumsum(size)
        reached += self.written
        place = self.decoded - reached
        if len(place) and place[-1] < 0:
            raise ReadError(_WRONG)
        self.limits.append(reached[(kind == _MESSAGE) | (kind == _RAW)])
        self.written = int(reached[-1]) if len(reached) else self.written
        self._write(state, kind, place, source)
        self._write_lengths(place[begins], ends, lengths)
        for row in np.flatnonzero((kind == _TEXT) | (kind == _RAW)).tolist():
            # What is long is moved as one piece.
            to, start = int(place[row]), int(source[row])
            head = len(machine.head[state[row]])
            count = int(size[row]) - head
            self.out.array[to + head : to + head + count] = self.pool[start : start + count]

    def _sources(self, state: npt.NDArray[np.int32], kind: npt.NDArray[np.int8], size: Int64s) -> Int64s:
        """Where the bytes of each state come from; adds the sizes of texts and raw records to `size`."""
        machine = self.machine
        buffer = machine.buffer[state]
        source = np.zeros(len(state), np.int64)
        rows = np.flatnonzero(buffer >= 0)
        raw: dict[int, int] = {}
        for row in rows[kind[rows] == _RAW].tolist():
            raw[row], self.at[self.raw] = self._length(self.raw)
        rows = rows[np.argsort(buffer[rows].astype(np.uint16 if len(self.at) <= 1 << 16 else np.int64), kind="stable")]
        for mine in np.split(rows, np.flatnonzero(np.diff(buffer[rows])) + 1) if len(rows) else ():
            which = int(buffer[mine[0]])
            at = self.at[which]
            if (kind[mine] == _FIELD).all():
                count = machine.count[state[mine]]
                upto = np.cumsum(count)
                source[mine] = at + upto - count
                at += int(upto[-1])
            else:
                for row in mine.tolist():
                    source[row] = at
                    if kind[row] == _TEXT:
                        self.at[which] = at
                        length, behind = self._length(which)
                        at = behind + length
                        size[row] += at - int(source[row])
                    else:
                        length = raw.get(row, 0)
                        at += length or int(machine.count[state[row]])
                        size[row] += length
            if at > self.stop[which]:
                raise ReadError(_WRONG)
            self.at[which] = at
        return source

    def _length(self, which: int) -> tuple[int, int]:
        """The number that comes next in a buffer, and the place behind it."""
        at = self.at[which]
        if at >= self.stop[which]:
            raise ReadError(_WRONG)
        first = int(self.pool[at])
        return (first, at + 1) if first < 0x80 else wire.read_varint(self.pool.data, at, self.stop[which])

    def _messages(self, state: npt.NDArray[np.int32], kind: npt.NDArray[np.int8], size: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Of each message that begins its row, the state that ended it, and its length; adds tag and length to `size`."""
        begin, end = kind == _BEGIN, kind == _END
        depth = np.cumsum(end.astype(np.int32) - begin.astype(np.int32)) + len(self.open)
        if len(depth) and (int(depth.min()) < 0 or int(depth.max()) > _DEEPEST or (depth[(kind == _MESSAGE) | (kind == _RAW)] != 0).any()):
            raise ReadError(_WRONG)
        level = depth + begin
        rows = np.flatnonzero(begin | end)
        rows = rows[np.argsort(level[rows].astype(np.uint8), kind="stable")]
        edges = np.searchsorted(level[rows], np.arange(_DEEPEST + 2))
        found: list[tuple[Int64s, Int64s, Int64s]] = []
        opened: dict[int, int] = {}
        for deep in range(_DEEPEST, 0, -1):
            mine = rows[edges[deep] : edges[deep + 1]]
            if not len(mine):
                continue
            # At one level they end and begin by turns; only the first may have ended before.
            upto = np.cumsum(size)
            earlier = mine[:1] if begin[mine[0]] else mine[:0]
            starts, stops = mine[len(earlier) + 1 :: 2], mine[len(earlier) :: 2]
            if len(stops) > len(starts):
                opened[deep] = int(stops[-1])
            length = upto[starts] - upto[stops[: len(starts)]]
            ended = state[stops[: len(starts)]].astype(np.int64)
            if len(earlier):
                then, by = self.open[deep - 1]
                length = np.concatenate([upto[earlier] + self.written - then, length])
                ended = np.concatenate([np.array([by], np.int64), ended])
                starts = np.concatenate([earlier, starts])
            if len(length) and int(length.max()) >> 32:
                raise ReadError(_WRONG)
            size[starts] = self.tag_size[ended] + 1
            for bits in (7, 14, 21, 28):
                size[starts] += length >> bits > 0
            found.append((starts, ended, length))
        last = int(depth[-1]) if len(depth) else len(self.open)
        if opened:
            upto = np.cumsum(size) + self.written
            now = {deep: (int(upto[row]), int(state[row])) for deep, row in opened.items()}
        else:
            now = {}
        self.open = [now.get(deep) or self.open[deep - 1] for deep in range(1, last + 1)]
        if not found:
            none = np.zeros(0, np.int64)
            return none, none, none
        return tuple(np.concatenate(part) for part in zip(*found, strict=True))  # type: ignore[return-value]

    def _write(self, state: npt.NDArray[np.int32], kind: npt.NDArray[np.int8], place: Int64s, source: Int64s) -> None:
        """Tags, and what is short and of a known length."""
        machine, out, pool = self.machine, self.out.array, self.pool
        rows = np.flatnonzero((kind == _FIELD) | (kind == _TEXT))
        rows = rows[np.argsort(state[rows].astype(np.uint16 if len(machine.next) <= 1 << 16 else np.int32), kind="stable")]
        for mine in np.split(rows, np.flatnonzero(np.diff(state[rows])) + 1) if len(rows) else ():
            which = int(state[mine[0]])
            to = place[mine]
            for byte in machine.head[which]:
                out[to] = byte
                to += 1
            count = int(machine.count[which])
            start = source[mine] if count else to
            for i in range(count):
                value = pool[start]
                # The bits that say that a number goes on are left out.
                out[to] = value | 0x80 if machine.varint[which] and i + 1 < count else value
                to += 1
                start += 1

    def _write_lengths(self, place: Int64s, ended: Int64s, length: Int64s) -> None:
        """In front of each message its tag and its length."""
        out = self.out.array
        to = place.copy()
        for which in np.unique(ended).tolist():
            mine = np.flatnonzero(ended == which)
            for byte in self.machine.head[which]:
                out[to[mine]] = byte
                to[mine] += 1
        rows = np.arange(len(to))
        while len(rows):
            left = length[rows] >> 7
            more = left > 0
            out[to[rows]] = (length[rows] & 0x7F | more.astype(np.int64) << 7).astype(np.uint8)
            to[rows] += 1
            length[rows] = left
            rows = rows[more]
