"""Reads a stretch of the list of events: all at once where it is sound, in ever smaller pieces and
at last event by event where not. Without the compiled reader all of it is read event by event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from nbprof.formats.chrome import loose
from nbprof.formats.chrome.part import LooseEvent, Part, part_of
from nbprof.formats.chrome.scan import Scanned, scan
from nbprof.native import library
from nbprof.native.chrome import Uneven

# A stretch of so few bytes is not worth splitting further.
_SMALL = 1 << 14
# How far the end of a broken event is looked for.
_LOOK_AHEAD = 1 << 26
# What may follow the end of the list: the end of the text, of the object around it, or another of
# its keys.
_BEHIND_LIST = re.compile(
    rb'[ \t\r\n]*(?:$|\}[ \t\r\n]*$|,[ \t\r\n]*(?:$|"[^"\n]*(?:$|"[ \t\r\n]*(?::|$))))'
)


@dataclass
class Trouble:
    """What could not be read: events that were skipped and entries that are none, with the byte of
    the first; and where the text is truncated.
    """

    broken: int = 0
    broken_at: int = -1
    strange: int = 0
    truncated_at: int = -1

    def skip(self, index: int) -> None:
        """Counts an event that is left out."""
        self.add(Trouble(1, index))

    def add(self, other: Trouble) -> None:
        """Takes over what another stretch met."""
        self.broken += other.broken
        self.strange += other.strange
        if self.broken_at < 0:
            self.broken_at = other.broken_at
        if self.truncated_at < 0:
            self.truncated_at = other.truncated_at


@dataclass
class Stretch:
    """The events of a stretch, how many bytes of it were used, and whether the list was closed
    there.
    """

    parts: list[Part] = field(default_factory=list)
    used: int = 0
    closed: bool = False
    trouble: Trouble = field(default_factory=Trouble)


def read_stretch(data: bytes, base: int, *, final: bool) -> Stretch:
    """Reads a stretch that begins in the list of events, outside of events.

    Parameters
    ----------
    data : bytes
    base : int
        The byte of the file at which it begins.
    final : bool
        No more text follows; what is half there is counted as cut.
    """
    result = Stretch()
    if library.load().library is None:
        _one_by_one(data, base, result, final=final)
    else:
        _read(data, base, result, final=final)
    return result


def _read(data: bytes, base: int, result: Stretch, *, final: bool) -> None:
    """Adds the events of a stretch; `result.used` grows by what was used of it."""
    try:
        done = scan(data, base)
        if done.closed and _BEHIND_LIST.match(data, done.end) is None:
            raise Uneven
        trouble = Trouble()
        part = _mended(done, data, base, trouble)
    except Uneven:
        part = None
    if part is not None:
        result.parts.append(part)
        result.trouble.add(trouble)
        result.used += done.end
        result.closed = done.closed
        return
    middle = loose.next_event(data, len(data) // 2) if len(data) > _SMALL else -1
    if middle <= 0 or data[middle] != 0x7B:
        _one_by_one(data, base, result, final=final)
        return
    before = result.used
    _read(data[:middle], base, result, final=False)
    used = result.used - before
    if result.closed:
        return
    if used == 0:
        _one_by_one(data, base, result, final=final)
    else:
        _read(data[used:], base + used, result, final=final)


def _mended(done: Scanned, data: bytes, base: int, trouble: Trouble) -> Part:
    """The part with the events that failed the checks read by themselves, or left out.

    Raises
    ------
    Uneven
        One of them is not what it seemed: a quote too many in it, and another one far behind, hide
        whole events between them.
    """
    if not len(done.again):
        return done.part
    read: list[LooseEvent] = []
    rows: list[int] = []
    keep = np.ones(len(done.part), bool)
    for row in done.again.tolist():
        start, end = done.events[row].tolist()
        inner = data[start:end]
        try:
            event, stop = loose.event(inner, 0, base + start)
        except loose.Broken:
            stop = -1
        if stop != len(inner) and loose.next_event(inner, 1, anything=True) >= 0:
            raise Uneven
        if stop != len(inner):
            trouble.skip(base + start)
            keep[row] = False
            continue
        read.append(event)
        rows.append(row)
    part = done.part.replaced(np.array(rows, np.int64), part_of(read)) if rows else done.part
    return part if keep.all() else part.only(keep)


def _one_by_one(data: bytes, base: int, result: Stretch, *, final: bool) -> None:
    events, used, closed = loose_events(data, base, result.trouble, final=final)
    if events:
        result.parts.append(part_of(events))
    result.used += used
    result.closed = closed


def loose_events(
    data: bytes, base: int, trouble: Trouble, *, final: bool
) -> tuple[list[LooseEvent], int, bool]:
    """Events one by one, with repairs: what was read, the byte behind it, and whether the list was
    closed there.
    """
    events: list[LooseEvent] = []
    pos = 0
    while True:
        pos = loose.after_space(data, pos, commas=True)
        if pos >= len(data):
            return events, pos, False
        try:
            if data[pos] == 0x7B:
                event, pos = loose.event(data, pos, base)
                # XLA ends its lists with an empty event.
                if event.fields or event.args or event.times:
                    events.append(event)
            elif data[pos] == 0x5D:
                if _BEHIND_LIST.match(data, pos + 1) is None:
                    raise loose.Broken(pos)
                return events, pos + 1, True
            else:
                pos = loose.entry_end(data, pos)
                trouble.strange += 1
        except loose.Broken as error:
            near = len(data) - pos < _LOOK_AHEAD
            after = loose.next_event(data, pos)
            if not final and near and (error.truncated or after < 0):
                return events, pos, False
            if after < 0 and error.truncated:
                trouble.truncated_at = base + pos
            else:
                trouble.skip(base + pos)
            if after < 0:
                return events, len(data), False
            # A bracket that closes nothing is itself what reading goes on behind.
            pos = max(after, pos + 1)
