"""Reads a stretch of events all at once: numpy finds the strings, brackets, keys and numbers of
thousands of events together.

The stretch is checked as it is read: what stands between two values, before a key and behind a
number has to be what JSON has there. Events that fail are named, to be read one by one with repairs
(`loose`); a stretch whose quotes or brackets don't pair up is refused as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import DOUBLE, INT, TEXT, UINT, Int32s, Int64s
from nbprof.formats.chrome import loose
from nbprof.formats.chrome.digits import POWERS, Decimals, after_spaces, decimals, distinct, gaps
from nbprof.formats.chrome.part import BAD, GOOD, TEXT_FIELDS, Part, Rows, Times
from nbprof.formats.chrome.tokens import (
    CLOSE_OBJECT,
    COMMA,
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    Bools,
    Keys,
    Level,
    Tokens,
    Uneven,
    keys_of,
    tokens,
)
from nbprof.formats.chrome.values import FARTHEST_US, picoseconds, scalar, text

_TRUE, _NULL, _FALSE = (np.uint64(int.from_bytes(w, "little")) for w in (b"true", b"null", b"fals"))
_NO_VALUE = 0


@dataclass
class Scanned:
    """A part, which of its events are to be read again by themselves, and where its events and its
    list end.

    `events` int64[n, 2] are the first byte of each event and the byte behind it; `end` is the byte
    behind the last one, or behind the bracket that closes the list if `closed`.
    """

    part: Part
    again: Int64s
    events: Int64s
    end: int
    closed: bool


def scan(data: bytes, base: int = 0) -> Scanned:
    """The events of a stretch that begins in the list of events, outside of any event, and ends
    there.

    Parameters
    ----------
    data : bytes
    base : int
        The byte of the file at which it begins.

    Raises
    ------
    Uneven
        It can't be read in one go.
    """
    token_table = tokens(data)
    events = token_table.level(1)
    if not len(events.opens):
        raise Uneven
    if (token_table.sign[events.opens] != OPEN_OBJECT).any() or (
        (token_table.sign == QUOTE) & (token_table.depth == 0)
    ).any():
        raise Uneven
    starts, ends = token_table.offset[events.opens], token_table.offset[events.closes] + 1
    limit = token_table.closed_at if token_table.closed_at >= 0 else len(data)
    _check_between(token_table, starts, ends, limit)
    bad = np.zeros(len(starts), bool)
    keys, inner, deep = keys_of(token_table, events, bad)
    reader = _Reader(token_table, data, keys, inner, deep, bad)
    part = reader.part(len(starts))
    part.offset = starts + base
    # XLA ends its lists with an empty event.
    empty = np.bincount(keys.event, minlength=len(starts)) == 0
    if (empty & ~bad).any():
        keep = ~empty | bad
        part, starts, ends, bad = part.only(keep), starts[keep], ends[keep], bad[keep]
    end = limit + 1 if token_table.closed_at >= 0 else len(data)
    return Scanned(
        part, np.flatnonzero(bad), np.stack([starts, ends], axis=1), end, token_table.closed_at >= 0
    )


def _check_between(token_table: Tokens, starts: Int64s, ends: Int64s, limit: int) -> None:
    """Between events there are spaces and commas only."""
    starts_, until = np.concatenate([[0], ends]), np.concatenate([starts, [limit]])
    fits, _ = gaps(token_table.text, token_table.word, starts_, until)
    odd = np.flatnonzero(~fits)
    starts_, until = starts_[odd], until[odd]
    for _ in range(4):
        starts_ = after_spaces(token_table.text, token_table.word, starts_)
        starts_ += (token_table.text[starts_] == COMMA) & (starts_ < until)
    if (starts_ < until).any():
        raise Uneven


class _Reader:
    """Turns the keys of a stretch into the columns of a part."""

    def __init__(
        self, token_table: Tokens, data: bytes, keys: Keys, inner: Level, deep: Level, bad: Bools
    ) -> None:
        self.found, self.data, self.keys, self.bad = token_table, data, keys, bad
        self.inner, self.deep = inner, deep
        self.kind = np.zeros(len(keys.offset), np.uint8)
        self.value = np.zeros(len(keys.offset), np.int64)
        self.is_args = np.zeros(len(keys.offset), bool)
        self.texts: list[str] = []
        self.rounded: list[npt.NDArray[np.int32]] = []
        """Events with a rounded time."""

    def part(self, count: int) -> Part:
        """The columns of all events; those marked bad are not to be used."""
        keys, nothing = self.keys, np.zeros(0, np.int64)
        names, code = self._names()
        # Keys by name, in order.
        order = np.argsort(code.astype(np.uint16) if len(names) < 1 << 16 else code, kind="stable")
        edges = [0, *np.cumsum(np.bincount(code, minlength=len(names))).tolist()]
        rows_of = [order[low:high] for low, high in pairwise(edges)]
        fields = {
            name: rows for (name, is_arg), rows in zip(names, rows_of, strict=True) if not is_arg
        }
        is_time, is_phase = np.zeros(len(code), bool), np.zeros(len(code), bool)
        for name in loose.TIME_FIELDS:
            is_time[fields.get(name, nothing)] = True
        is_phase[fields.get("ph", nothing)] = True
        args = fields.get("args", nothing)
        self.is_args[args] = keys.first[args] == OPEN_OBJECT
        self._containers()
        strings = self._strings()
        start, length = Times.none(count), Times.none(count)
        numbers, decimal = self._numbers(is_time)
        self._words()
        self._check_after()
        for name, times in (("ts", start), ("dur", length)):
            self._times(times, fields.get(name), numbers, decimal)
        phase = self._phase(fields.get("ph"), count)
        self._number_texts(np.concatenate([fields.get("pid", nothing), fields.get("tid", nothing)]))
        self._text_values(strings & ~is_time & ~is_phase)
        columns = {name: self._text_field(fields.get(name), count) for name in TEXT_FIELDS}
        top, inner = self._groups(names, order, edges)
        rounded = sum(int((~self.bad[event]).sum()) for event in self.rounded)
        return Part(
            np.zeros(count, np.int64),
            phase,
            columns,
            start,
            length,
            top,
            inner,
            self.texts,
            rounded,
        )

    def _names(self) -> tuple[list[tuple[str, bool]], Int32s]:
        """The keys there are, (name, whether of args), and the code into them by key; marks events
        that have one twice.
        """
        keys, token_table = self.keys, self.found
        start, end = token_table.offset[keys.opens] + 1, token_table.offset[keys.closes]
        code, first = distinct(token_table.word, start, end)
        code = code * 2 + keys.is_arg
        names: list[tuple[str, bool]] = []
        for index, stop in zip(start[first].tolist(), end[first].tolist(), strict=True):
            raw = self.data[index:stop]
            names += [(text(raw), False), (text(raw), True)]
            if b"\\" in raw:
                # The same name may be written in two ways.
                self.bad[keys.event[(code >> 1) == len(names) // 2 - 1]] = True
        return names, code

    def _containers(self) -> None:
        """Lists and objects as values: their text as written."""
        keys, token_table = self.keys, self.found
        for level, chosen in ((self.inner, ~keys.is_arg), (self.deep, keys.is_arg)):
            rows = np.flatnonzero(
                chosen & ((keys.first == OPEN_OBJECT) | (keys.first == OPEN_LIST))
            )
            token = keys.closes[rows] + 1
            close = level.closes[level.number[token] - 1]
            keys.end[rows] = token_table.offset[close] + 1
            keys.after[rows] = close + 1
            self.kind[rows] = TEXT

    def _strings(self) -> Bools:
        """Strings as values; tells which keys have one."""
        keys, token_table = self.keys, self.found
        is_string: Bools = keys.first == QUOTE
        rows = np.flatnonzero(is_string)
        # The value's own quotes are the next two tokens, unless the event is marked already.
        close = np.minimum(keys.closes[rows] + 2, len(token_table.offset) - 1)
        keys.end[rows] = token_table.offset[close] + 1
        keys.after[rows] = close + 1
        self.kind[rows] = TEXT
        return is_string

    def _numbers(self, is_time: Bools) -> tuple[Int64s, Decimals]:
        """Numbers, among them times that are written as strings: the keys that have one, and the
        numbers.
        """
        keys, token_table = self.keys, self.found
        quoted = is_time & (keys.first == QUOTE)
        is_number = ((keys.first - np.uint8(0x30)) <= 9) | (keys.first == 0x2D)
        rows = np.flatnonzero(is_number | quoted)
        is_quoted = quoted[rows]
        read = decimals(token_table.text, token_table.word, keys.offset[rows] + is_quoted)
        value = read.integer.copy()
        kind = np.full(len(rows), INT, np.uint8)
        points = np.flatnonzero((read.decimals > 0) & ~is_time[rows])
        kind[points] = DOUBLE
        # A quotient of two integers below 2^53 is the nearest double.
        near = read.digits[points] + read.decimals[points] <= 15
        some = points[near]
        scale = POWERS[read.decimals[some]]
        value[some] = ((read.integer[some] * scale + read.part[some]) / scale).view(np.int64)
        minus = np.flatnonzero(read.negative)
        value[minus] = np.where(
            kind[minus] == DOUBLE, (-value[minus].view(np.float64)).view(np.int64), -value[minus]
        )
        bare = rows
        if is_quoted.any():
            # In quotes there is nothing but the number.
            read.good &= ~is_quoted | (read.end == keys.end[rows] - 1)
            outside = np.flatnonzero(~is_quoted)
            bare, kind, value = rows[outside], kind[outside], value[outside]
            keys.end[bare] = read.end[outside]
        else:
            keys.end[bare] = read.end
        keys.after[bare] = keys.closes[bare] + 1
        self.kind[bare] = kind
        self.value[bare] = value
        hard = ~read.good
        hard[points[~near]] = True
        for row in rows[hard & ~is_quoted].tolist():
            self._word(row)
        return rows, read

    def _word(self, row: int) -> None:
        """A value without quotes that is no plain number, by itself."""
        keys = self.keys
        try:
            raw, end = loose.word(self.data[keys.offset[row] : keys.offset[row] + 400], 0)
        except loose.Broken:
            self.bad[keys.event[row]] = True
            return
        decoded = scalar(raw)
        keys.end[row] = keys.offset[row] + end
        keys.after[row] = keys.closes[row] + 1
        if decoded is None:
            self.kind[row] = _NO_VALUE
        elif isinstance(decoded[1], str):
            self.kind[row], self.value[row] = TEXT, len(self.texts)
            self.texts.append(decoded[1])
        else:
            self.kind[row], self.value[row] = decoded

    def _words(self) -> None:
        """Words: true, false, null, and what is no JSON."""
        keys, token_table = self.keys, self.found
        first = keys.first
        number = ((first - np.uint8(0x30)) <= 9) | (first == 0x2D)
        rows = np.flatnonzero(
            ~number & (first != QUOTE) & (first != OPEN_OBJECT) & (first != OPEN_LIST)
        )
        four = token_table.word[keys.offset[rows]] & np.uint64(0xFFFFFFFF)
        is_false = (four == _FALSE) & (token_table.text[keys.offset[rows] + 4] == 0x65)
        is_true, is_null = four == _TRUE, four == _NULL
        is_word = is_false | is_true | is_null
        self.kind[rows] = np.where(is_null, _NO_VALUE, INT)
        self.value[rows] = is_true
        keys.end[rows] = keys.offset[rows] + 4 + is_false
        keys.after[rows] = keys.closes[rows] + 1
        for row in rows[~is_word].tolist():
            self._word(row)

    def _check_after(self) -> None:
        """Behind a value comes the end of the object, or a comma and the next key."""
        keys, token_table = self.keys, self.found
        after = np.minimum(keys.after, len(token_table.offset) - 1)
        fits, comma = gaps(token_table.text, token_table.word, keys.end, token_table.offset[after])
        next_sign = token_table.sign[after]
        fits &= (next_sign == CLOSE_OBJECT) | (comma & (next_sign == QUOTE))
        self.bad[keys.event[np.flatnonzero(~fits)]] = True

    def _times(self, times: Times, rows: Int64s | None, numbers: Int64s, read: Decimals) -> None:
        """Times of one field, exactly."""
        if rows is None or not len(rows):
            return
        keys = self.keys
        position = np.searchsorted(numbers, rows)
        is_number = (
            (position < len(numbers))
            & (numbers[np.minimum(position, max(len(numbers) - 1, 0))] == rows)
            if len(numbers)
            else position < 0
        )
        chosen = position[is_number]
        event = keys.event[rows[is_number]]
        places, good = read.decimals[chosen], read.good[chosen]
        below = read.part[chosen]
        many = np.flatnonzero(places > 6)
        if len(many):
            part = below[many]
            scale = POWERS[places[many] - 6]
            below[many] = np.where(good[many], (part + scale // 2) // scale, 0)
            self.rounded.append(event[many[good[many] & (part % scale != 0)]])
        below *= POWERS[6 - np.minimum(places, 6)]
        complete = read.integer[chosen]
        fits = good & (complete < FARTHEST_US)
        if not fits.all():
            complete, below = np.where(fits, complete, 0), np.where(fits, below, 0)
        ns = below // 1000
        ps = below - ns * 1000
        ns += complete * 1000
        minus = np.flatnonzero(read.negative[chosen])
        if len(minus):
            ns[minus] = -ns[minus] - (ps[minus] > 0)
            ps[minus] = -ps[minus] % 1000
        times.ns[event], times.ps[event] = ns, ps
        times.state[event] = np.where(fits, GOOD, BAD) if not fits.all() else GOOD
        not_numbers = np.concatenate([rows[~is_number], rows[is_number][~good]])
        for row in not_numbers.tolist():
            self._time(times, row)

    def _time(self, times: Times, row: int) -> None:
        """One time that is no plain decimal: with an exponent, very long, or none at all."""
        keys = self.keys
        event = int(keys.event[row])
        raw = self.data[keys.offset[row] : keys.end[row]]
        if self.kind[row] == _NO_VALUE:
            times.state[event] = 0
            return
        exact = None if raw[:1] in (b"{", b"[") else picoseconds(raw.strip(b'"'))
        times.put(event, None if exact is None else exact[0])
        if exact is not None and exact[1]:
            self.rounded.append(keys.event[row : row + 1])

    def _phase(self, rows: Int64s | None, count: int) -> npt.NDArray[np.uint8]:
        result = np.zeros(count, np.uint8)
        if rows is None:
            return result
        keys, token_table = self.keys, self.found
        letter = token_table.text[keys.offset[rows] + 1]
        single = (
            (keys.first[rows] == QUOTE)
            & (keys.end[rows] - keys.offset[rows] == 3)
            & (letter < 0x80)
        )
        result[keys.event[rows]] = np.where(single, letter, 255)
        # An escape, or a number: rare enough to be read by itself.
        self.bad[keys.event[rows[~single]]] = True
        return result

    def _number_texts(self, rows: Int64s) -> None:
        """Pid and tid are texts even where they are written as numbers."""
        rows = rows[(self.kind[rows] != TEXT) & (self.kind[rows] != _NO_VALUE)]
        self._put_texts(rows, self.keys.offset[rows], self.keys.end[rows], quoted=False)

    def _text_values(self, strings: Bools) -> None:
        """Texts of strings, and of lists and objects as they are written."""
        keys = self.keys
        rows = np.flatnonzero(strings)
        self._put_texts(rows, keys.offset[rows] + 1, keys.end[rows] - 1, quoted=True)
        rows = np.flatnonzero((keys.first == OPEN_OBJECT) | (keys.first == OPEN_LIST))
        rows = rows[~self.is_args[rows]]
        self._put_texts(rows, keys.offset[rows], keys.end[rows], quoted=False)

    def _put_texts(self, rows: Int64s, start: Int64s, end: Int64s, *, quoted: bool) -> None:
        good = end >= start
        if not good.all():
            rows, start, end = rows[good], start[good], end[good]
        code, first = distinct(self.found.word, start, end)
        self.value[rows] = code + len(self.texts)
        self.kind[rows] = TEXT
        spans = zip(start[first].tolist(), end[first].tolist(), strict=True)
        data = self.data
        if quoted:
            self.texts += [text(data[a:b]) for a, b in spans]
        else:
            self.texts += [data[a:b].decode("utf-8", "replace") for a, b in spans]

    def _text_field(self, rows: Int64s | None, count: int) -> Int32s:
        result = np.full(count, -1, np.int32)
        if rows is None:
            return result
        is_text = self.kind[rows] == TEXT
        result[self.keys.event[rows[is_text]]] = self.value[rows[is_text]]
        other = rows[~is_text]
        self.bad[self.keys.event[other[self.kind[other] != _NO_VALUE]]] = True
        return result

    def _groups(
        self, names: list[tuple[str, bool]], order: Int64s, edges: list[int]
    ) -> tuple[dict[str, Rows], dict[str, Rows]]:
        """Rows by key; of the fields, those that have no column of their own. Events that have a
        key twice are marked.
        """
        event = self.keys.event[order]
        twice = event[1:] == event[:-1]
        # There another key begins.
        twice[[edge - 1 for edge in edges if 0 < edge < len(event)]] = False
        self.bad[event[1:][np.flatnonzero(twice)]] = True
        top: dict[str, Rows] = {}
        args: dict[str, Rows] = {}
        field_names = (*TEXT_FIELDS, *loose.TIME_FIELDS, "ph")
        for (name, is_arg), low, high in zip(names, edges[:-1], edges[1:], strict=True):
            if high == low or (not is_arg and name in field_names):
                continue
            rows = order[low:high]
            # A view would keep the columns of all keys in memory for the sake of one.
            arg_rows = Rows(event[low:high].copy(), self.kind[rows], self.value[rows])
            left_out = (arg_rows.kind == _NO_VALUE) | self.bad[arg_rows.event]
            if not is_arg and name == "args":
                left_out |= self.is_args[rows]
            if left_out.any():
                arg_rows = _without(arg_rows, left_out)
            if len(arg_rows):
                (args if is_arg else top)[name] = _narrow(arg_rows)
        return top, args


def _narrow(rows: Rows) -> Rows:
    """The same rows, in half the space if their values let it."""
    small = rows.value.astype(np.int32)
    fits = (
        bool((small == rows.value).all())
        and not ((rows.kind == DOUBLE) | (rows.kind == UINT)).any()
    )
    return Rows(rows.event, rows.kind, small) if fits else rows


def _without(rows: Rows, result: Bools) -> Rows:
    return Rows(rows.event[~result], rows.kind[~result], rows.value[~result])
