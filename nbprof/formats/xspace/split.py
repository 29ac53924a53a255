"""Where the events of a line begin: the chain of lengths, followed from many places at once.

Each event says only how long it is, so its place follows from all events before it. Lines are
therefore cut into segments; in each, a place that looks like an event is guessed, and all chains of
the file are followed in lockstep. A guess is believed only when the chain of the segment before it
arrives on the chain that the guess began, so the result is exactly that of a walk from the front.
That works out nearly always: events and their stats carry the same tag, and a chain of stats runs
into the chain of events.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.trace import Int64s

EVENT_TAG = 0x22
# A line lies in a plane of a space.
_DEPTH = 2
# Shorter lines are walked, and all lines of a file that is no longer: a Python loop is faster than
# the calls of a lockstep.
_ALONE = 1 << 11
_TOGETHER = 1 << 22
_SEGMENT = 1 << 12
_EVENT = 45
_WINDOW = 256

Other = tuple[int, int, int, int]


def event_starts(
    buf: wire.Bytes,
    lines: Sequence[tuple[int, int]],
    tag: int = EVENT_TAG,
    first: int | None = 0x08,
) -> tuple[list[Int64s], list[list[Other]]]:
    """The byte of the tag of every event (field 4) of each line, in order, and the fields that are
    no event.

    Parameters
    ----------
    buf : uint8[n + PADDING]
    lines : (start, stop) of the content of each line
    tag : int
        That of events; other messages that hold a long row of messages have another.
    first : int, optional
        How nearly all events begin; None where they do so in several ways.

    Returns
    -------
    starts : int64[events] for each line
    others : for each line its other fields: (number, wire type, value or start, end), as
    `wire.fields` gives them

    Raises
    ------
    ReadError
        A field does not fit its line.
    """
    starts: list[Int64s] = [np.zeros(0, np.int64)] * len(lines)
    other_fields: list[list[Other]] = [[] for _ in lines]
    long = [i for i, (start, stop) in enumerate(lines) if stop - start > _ALONE]
    if sum(lines[i][1] - lines[i][0] for i in long) < _TOGETHER:
        long = []
    chains = _Chains(buf, [lines[i] for i in long], tag, first) if long else None
    alone = set(range(len(lines))) - set(long)
    for i in alone:
        starts[i] = _walk(
            buf[lines[i][0] : lines[i][1]].tobytes(), lines[i][0], other_fields[i], tag
        )
    if chains is not None:
        for i in long:
            starts[i] = chains.stitch(*lines[i], other_fields[i])
    return starts, other_fields


def spans(buf: wire.Bytes, starts: Int64s) -> tuple[Int64s, Int64s]:
    """Start and end of the content of the events whose tags are at `starts`."""
    length = buf[starts + 1].astype(np.int64)
    content = starts + 2
    long = np.flatnonzero(length >= 0x80)
    if len(long):
        length[long], content[long] = wire.varints(buf, starts[long] + 1)
    length += content
    return content, length


def _walk(data: bytes, base: int, other_fields: list[Other], tag: int = EVENT_TAG) -> Int64s:
    """Event tags of a line, one after the other; `base` is where it begins."""
    starts: list[int] = []
    add_start = starts.append
    pos, end = 0, len(data)
    # There a tag has two bytes behind it.
    plain = end - 2
    while pos < end:
        # Nearly every field of a line is an event: its tag, and a length of one byte or two.
        if data[pos] == tag and pos < plain:
            after = pos + 2 + data[pos + 1]
            if data[pos + 1] >= 0x80:
                # A third byte of length is for the general reader.
                after = after - 0x7F + (data[pos + 2] << 7) if data[pos + 2] < 0x80 else end + 1
            if after <= end:
                add_start(pos)
                pos = after
                continue
        try:
            number, kind, value, after = wire.read_field(data, pos, end, _DEPTH)
        except ReadError as error:
            raise ReadError(error.reason, offset=base + (error.offset or 0)) from None
        if (number, kind) == (tag >> 3, wire.LENGTH):
            add_start(pos)
        else:
            other_fields.append(
                (number, kind, value if kind == wire.VARINT else value + base, after + base)
            )
        pos = after
    return np.array(starts, np.int64) + base


class _Chains:
    """The chains of lengths of many lines from guessed places; `stitch` puts together those that
    are true.
    """

    def __init__(
        self,
        buf: wire.Bytes,
        lines: Sequence[tuple[int, int]],
        tag: int = EVENT_TAG,
        first: int | None = 0x08,
    ) -> None:
        self.buf, self.tag, self.begin = buf, tag, first
        # Tag and first length byte as one number, at any byte.
        self.pairs: npt.NDArray[np.uint16] = np.ndarray((len(buf) - 1,), "<u2", buf, 0, (1,))
        total = sum(stop - start for start, stop in lines)
        segment = max(_SEGMENT, int((_EVENT * total) ** 0.5))
        near = [np.arange(start, stop, segment, dtype=np.int64) for start, stop in lines]
        stop = np.repeat([stop for _, stop in lines], [len(n) for n in near])
        self.guesses, self.stops = self._guess(np.concatenate(near), stop)
        self._follow()

    def _guess(self, near: Int64s, stop: Int64s) -> tuple[Int64s, Int64s]:
        """A likely event tag at or soon after each place: two fields in a row look like one that
        begins with an id.
        """
        # The field behind the last place looked at begins at most 257 bytes further on.
        safe = len(self.buf) - _WINDOW - 260
        keep = (near < stop - _WINDOW) & (near < safe)
        near, stop = near[keep], stop[keep]
        row, column = np.nonzero(self.buf[near[:, None] + np.arange(_WINDOW)] == self.tag)
        index = near[row] + column
        after = index + 2 + self.buf[index + 1]
        likely = self.buf[after] == self.tag
        if self.begin is not None:
            likely &= (self.buf[index + 2] == self.begin) & (self.buf[after + 2] == self.begin)
        row, index = row[likely], index[likely]
        first = np.flatnonzero(np.diff(row, prepend=-1))
        return index[first], stop[row[first]]

    def _follow(self) -> None:
        """Fills `chain` (event places, chain by chain), `first` (where each chain begins in it) and
        `ends` (where each stopped).
        """
        buf, pairs = self.buf, self.pairs
        count = len(self.guesses)
        limit = np.minimum(np.append(self.guesses[1:], len(buf)), self.stops)
        limit[limit < self.guesses] = self.stops[limit < self.guesses]
        selected, pos = np.arange(count), self.guesses
        ends = self.guesses.copy()
        lengths = np.zeros(count, np.int64)
        rounds: list[tuple[Int64s, Int64s]] = []
        while len(selected):
            pair = pairs[pos]
            plain = (pair & 0x80FF) == self.tag
            after = pos + (pair >> 8)
            after += 2
            if not plain.all():
                # Two bytes of length; anything else ends the chain, and is looked at when the chain
                # is known to be true.
                odd = np.flatnonzero(~plain)
                second = buf[pos[odd] + 2].astype(np.int64)
                medium = ((pair[odd] & 0xFF) == self.tag) & (second < 0x80)
                after[odd] = np.where(medium, after[odd] - 0x80 + (second << 7) + 1, len(buf))
            rounds.append((selected, pos))
            on = after < limit
            if on.all():
                pos = after
                continue
            off = ~on
            over = after[off] > self.stops[selected[off]]
            ends[selected[off]] = np.where(over, pos[off], after[off])
            lengths[selected[off]] = len(rounds) - over
            selected, pos, limit = selected[on], after[on], limit[on]
        first = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=first[1:])
        # One place more: the last, wrong step of a chain lands where the next chain begins and is
        # overwritten by it.
        chain = np.empty(int(first[-1]) + 1, np.int64)
        for turn, (who, places) in enumerate(rounds):
            if turn + 1 == len(rounds) or len(rounds[turn + 1][0]) != len(who):
                keep = turn < lengths[who]
                who, places = who[keep], places[keep]
            chain[first[who] + turn] = places
        self.chain, self.first, self.ends = chain[:-1], first, ends

    def stitch(self, start: int, stop: int, other_fields: list[Other]) -> Int64s:
        """The events of one line: from true chain to true chain, and step by step where there is
        none.
        """
        parts: list[Int64s] = []
        loose: list[int] = []
        pos = start
        k = int(np.searchsorted(self.guesses, start))
        while pos < stop:
            while k < len(self.guesses) and self.ends[k] <= pos:
                k += 1
            if k < len(self.guesses) and pos >= self.guesses[k]:
                part_chain = self.chain[self.first[k] : self.first[k + 1]]
                index = int(np.searchsorted(part_chain, pos))
                if index < len(part_chain) and part_chain[index] == pos:
                    parts += [np.array(loose, np.int64), part_chain[index:]]
                    loose = []
                    pos = int(self.ends[k])
                    k += 1
                    continue
            pair = int(self.pairs[pos])
            if pair & 0x80FF == self.tag and pos + 2 + (pair >> 8) <= stop:
                loose.append(pos)
                pos += 2 + (pair >> 8)
                continue
            number, kind, value, after = wire.read_field(self.buf.data, pos, stop, _DEPTH)
            if (number, kind) == (self.tag >> 3, wire.LENGTH):
                loose.append(pos)
            else:
                other_fields.append((number, kind, value, after))
            pos = after
        parts.append(np.array(loose, np.int64))
        return np.concatenate(parts)
