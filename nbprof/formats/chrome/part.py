"""The events of one stretch of a Chrome trace as columns, before they have lanes and a common
clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import TEXT, Int32s, Int64s
from nbprof.formats.chrome.values import Scalar

ABSENT, GOOD, BAD = 0, 1, 2
"""State of a time: not there, read, or there but no number or beyond every calendar."""

TEXT_FIELDS = ("name", "cat", "pid", "tid")


@dataclass
class Rows:
    """The values of one key: `event` int32[k] ascending, `kind` uint8[k], `value` int64[k] (TEXT: a
    code into the part's texts).

    Where there are only texts and small integers, `value` may be int32.
    """

    event: Int32s
    kind: npt.NDArray[np.uint8]
    value: npt.NDArray[np.signedinteger[Any]]

    def __len__(self) -> int:
        return len(self.event)


@dataclass
class Times:
    """Times of events: whole ns, the ps beyond them (0..999), and the state of each."""

    ns: Int64s
    ps: npt.NDArray[np.int16]
    state: npt.NDArray[np.uint8]

    @classmethod
    def none(cls, count: int) -> Times:
        """No times for a number of events."""
        return cls(np.zeros(count, np.int64), np.zeros(count, np.int16), np.zeros(count, np.uint8))

    def only(self, keep: npt.NDArray[np.bool_]) -> Times:
        """Those of some events."""
        return Times(self.ns[keep], self.ps[keep], self.state[keep])

    def put(self, row: int, total: int | None) -> None:
        """Sets one time, in ps; None where it is no time."""
        if total is None:
            self.state[row] = BAD
        else:
            self.ns[row], self.ps[row] = divmod(total, 1000)
            self.state[row] = GOOD


@dataclass
class Part:
    """Events of one stretch of the file, in its order.

    Attributes
    ----------
    offset : int64[n]
        The byte at which each event begins.
    phase : uint8[n]
        The letter of `ph`; 0 where there is none, 255 where it is not one ASCII letter.
    text : dict of str to int32[n]
        `name`, `cat`, `pid` and `tid` as codes into `texts`; -1 where absent.
    start, length : Times
        `ts` and `dur`.
    top, args : dict of str to Rows
        The other fields of the events, and their args.
    rounded : int
        Times with digits below a picosecond.
    """

    offset: Int64s
    phase: npt.NDArray[np.uint8]
    text: dict[str, Int32s]
    start: Times
    length: Times
    top: dict[str, Rows]
    args: dict[str, Rows]
    texts: Sequence[str]
    rounded: int = 0

    def __len__(self) -> int:
        return len(self.offset)

    def only(self, keep: npt.NDArray[np.bool_]) -> Part:
        """The part without some of its events."""
        position = np.cumsum(keep, dtype=np.int32) - np.int32(1)

        def rows(group: dict[str, Rows]) -> dict[str, Rows]:
            kept_rows = {key: keep[r.event] for key, r in group.items()}
            return {
                key: Rows(position[r.event[k]], r.kind[k], r.value[k])
                for (key, r), k in zip(group.items(), kept_rows.values(), strict=True)
            }

        return Part(
            self.offset[keep],
            self.phase[keep],
            {name: column[keep] for name, column in self.text.items()},
            self.start.only(keep),
            self.length.only(keep),
            rows(self.top),
            rows(self.args),
            self.texts,
            self.rounded,
        )

    def replaced(self, index: Int64s, other: Part) -> Part:
        """The part with some of its events (which have no rows) taken from another part."""
        shift = len(self.texts)
        for name, column in self.text.items():
            new = other.text[name]
            column[index] = np.where(new >= 0, new + shift, -1)
        self.phase[index] = other.phase
        for rows, theirs in ((self.start, other.start), (self.length, other.length)):
            rows.ns[index], rows.ps[index], rows.state[index] = theirs.ns, theirs.ps, theirs.state
        for group, more in ((self.top, other.top), (self.args, other.args)):
            for key, r in more.items():
                value = np.where(r.kind == TEXT, r.value + shift, r.value)
                new_rows = Rows(index[r.event].astype(np.int32), r.kind, value)
                both = joined([group[key], new_rows]) if key in group else new_rows
                order = np.argsort(both.event, kind="stable")
                group[key] = Rows(both.event[order], both.kind[order], both.value[order])
        self.texts = [*self.texts, *other.texts]
        self.rounded += other.rounded
        return self


@dataclass
class LooseEvent:
    """One event that was read by itself: its fields and args as (kind, value), texts as str."""

    offset: int
    fields: dict[str, Scalar | None] = field(default_factory=dict)
    args: dict[str, Scalar | None] = field(default_factory=dict)
    times: dict[str, tuple[int, bool] | None] = field(default_factory=dict)


class Texts(dict[str, int]):
    """Numbers texts in the order in which they come."""

    def __missing__(self, key: str) -> int:
        self[key] = code = len(self)
        return code


def part_of(events: Sequence[LooseEvent]) -> Part:
    """Columns of events that were read one by one."""
    count = len(events)
    texts = Texts()
    phase = np.zeros(count, np.uint8)
    text = {name: np.full(count, -1, np.int32) for name in TEXT_FIELDS}
    start, length = Times.none(count), Times.none(count)
    top: dict[str, list[tuple[int, int, int]]] = {}
    args: dict[str, list[tuple[int, int, int]]] = {}
    rounded = 0
    for row, event in enumerate(events):
        for key, value in event.fields.items():
            if value is None:
                continue
            if key == "ph":
                letter = value[1]
                if isinstance(letter, str) and len(letter) == 1 and letter.isascii():
                    phase[row] = ord(letter)
                else:
                    phase[row] = 255
            elif key in text:
                text[key][row] = texts[str(value[1])]
            else:
                top.setdefault(key, []).append(_row(row, value, texts))
        for key, value in event.args.items():
            if value is not None:
                args.setdefault(key, []).append(_row(row, value, texts))
        for key, time in event.times.items():
            (start if key == "ts" else length).put(row, None if time is None else time[0])
            rounded += time is not None and time[1]
    return Part(
        np.array([e.offset for e in events], np.int64),
        phase,
        text,
        start,
        length,
        {k: rows_of(v) for k, v in top.items()},
        {k: rows_of(v) for k, v in args.items()},
        list(texts),
        rounded,
    )


def _row(row: int, value: Scalar, texts: Texts) -> tuple[int, int, int]:
    kind, text = value
    return (row, kind, texts[text]) if isinstance(text, str) else (row, kind, text)


def rows_of(rows: Sequence[tuple[int, int, int]]) -> Rows:
    """Rows of (event, kind, value)."""
    event, kind, value = zip(*rows, strict=True) if rows else ((), (), ())
    return Rows(np.array(event, np.int32), np.array(kind, np.uint8), np.array(value, np.int64))


def join(parts: Sequence[Part], texts: Texts) -> Part:
    """Several parts as one, with their texts numbered in `texts`.

    Takes the rows out of the parts as it goes, so that they are not in memory twice.
    """
    maps = [np.array([texts[t] for t in p.texts] + [-1], np.int32) for p in parts]
    offsets = np.cumsum([0, *(len(p) for p in parts)])

    def rows(kind: str) -> dict[str, Rows]:
        groups: list[dict[str, Rows]] = [getattr(part, kind) for part in parts]
        result: dict[str, Rows] = {}
        for key in list(dict.fromkeys(key for group in groups for key in group)):
            pieces: list[Rows] = []
            for group, table, offset in zip(groups, maps, offsets.tolist(), strict=False):
                r = group.pop(key, None)
                if r is not None:
                    pieces.append(Rows(r.event + np.int32(offset), r.kind, _recoded(r, table)))
            result[key] = joined(pieces)
        return result

    return Part(
        offset=_cat([p.offset for p in parts], np.int64),
        phase=_cat([p.phase for p in parts], np.uint8),
        text={
            name: _cat([m[p.text[name]] for p, m in zip(parts, maps, strict=True)], np.int32)
            for name in TEXT_FIELDS
        },
        start=_times([p.start for p in parts]),
        length=_times([p.length for p in parts]),
        top=rows("top"),
        args=rows("args"),
        texts=(),
        rounded=sum(p.rounded for p in parts),
    )


def joined(group: Sequence[Rows]) -> Rows:
    """Rows one after another."""
    if len(group) == 1:
        return group[0]
    return Rows(
        *(np.concatenate([getattr(r, name) for r in group]) for name in ("event", "kind", "value"))
    )


def _recoded(rows: Rows, table: Int32s) -> npt.NDArray[np.signedinteger[Any]]:
    is_text = rows.kind == TEXT
    if not is_text.any():
        return rows.value
    if is_text.all():
        codes: Int32s = table[rows.value]
        return codes
    result = rows.value.copy()
    result[is_text] = table[rows.value[is_text]]
    return result


def _cat(arrays: Sequence[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)


def _times(group: Sequence[Times]) -> Times:
    return Times(
        *(
            _cat([getattr(t, name) for t in group], dtype)
            for name, dtype in (("ns", np.int64), ("ps", np.int16), ("state", np.uint8))
        )
    )
