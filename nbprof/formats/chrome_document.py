"""Walks a Chrome trace from its first byte to its last: the facts around the events, and the events stretch by stretch.

Only a window of the text is in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbprof.errors import ReadError
from nbprof.formats import chrome_loose as loose
from nbprof.formats.chrome_loose import Broken
from nbprof.formats.chrome_part import LooseEvent, Part, part_of
from nbprof.formats.chrome_values import text

# A fact of the producer larger than this is kept as the text that it is.
_LARGE = 1 << 22
# How far the end of a broken event is looked for.
_LOOK_AHEAD = 1 << 26


class Window:
    """The stretch of a text that is in memory: `data`, which begins at byte `base` of the whole."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.data = b""
        self.base = 0
        self.ended = False

    def more(self) -> bool:
        """Reads on until the window has doubled; False at the end of the text."""
        if self.ended:
            return False
        parts, size, want = [self.data], 0, max(len(self.data), 1)
        while size < want:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.ended = True
                break
            parts.append(chunk)
            size += len(chunk)
        self.data = b"".join(parts)
        return size > 0

    def forget(self, count: int) -> None:
        """Drops the first bytes."""
        self.data = self.data[count:]
        self.base += count


@dataclass
class Document:
    """What a trace holds: parts with its events, the metadata, and what could not be read.

    `broken` and `strange` count events that were skipped and list entries that are no events, with the byte of the first; `cut` is the
    byte at which the text ends too early, `open_list` tells that only the closing bracket is missing.
    """

    parts: list[Part] = field(default_factory=list)
    metadata: dict[str, object] = field(default_factory=dict)
    broken: int = 0
    broken_at: int = -1
    strange: int = 0
    cut: int = -1
    open_list: bool = False
    lists: int = 0
    bad_metadata: int = -1

    def skip(self, at: int) -> None:
        """Counts an event that is left out."""
        self.broken += 1
        if self.broken_at < 0:
            self.broken_at = at


def walk(chunks: Iterator[bytes]) -> Document:
    """Reads a whole trace.

    Raises
    ------
    ReadError
        It is no JSON, or has no list of events.
    """
    window = Window(chunks)
    out = Document()
    while len(window.data) < 3 and window.more():
        pass
    if window.data.startswith(b"\xef\xbb\xbf"):
        window.forget(3)
    first = _next_byte(window)
    if first == b"":
        raise ReadError("nothing but spaces is in it: the profiler was stopped before it wrote anything.")
    if first == b"[":
        window.forget(1)
        _events(window, out)
    elif first == b"{":
        window.forget(1)
        _top(window, out)
        if not out.lists:
            _no_events(out)
    else:
        raise ReadError(f"this is no trace in JSON: it begins with {first!r}, not with {{ or [.", offset=window.base)
    return out


def _no_events(out: Document) -> None:
    if out.cut >= 0:
        raise ReadError("the file ends before its list of events begins: record it again, or copy it again.", offset=out.cut)
    keys = ", ".join(list(out.metadata)[:8]) or "nothing"
    raise ReadError(f"it is JSON but no trace: it has no list called traceEvents (it has {keys}).")


def _next_byte(window: Window, *, commas: bool = False) -> bytes:
    """Goes to the next byte that is no space; b"" at the end."""
    while True:
        at = loose.after_space(window.data, 0, commas=commas)
        window.forget(at)
        if window.data:
            return window.data[:1]
        if not window.more():
            return b""


def _top(window: Window, out: Document) -> None:
    """The members of the outermost object."""
    while True:
        first = _next_byte(window, commas=True)
        if first == b"}":
            window.forget(1)
            return
        if first == b"":
            out.cut = window.base
            return
        try:
            name, at = loose.key(window.data, 0)
            if at >= len(window.data):
                raise Broken(at, cut=True)
            if name == "traceEvents" and window.data[at] == 0x5B:
                window.forget(at + 1)
                _events(window, out)
                continue
            end = loose.after_space(window.data, _value_end(window.data, at))
            if end == len(window.data):
                raise Broken(end, cut=True)
        except Broken as error:
            if window.more():
                continue
            if error.cut:
                out.cut = window.base + error.at
                return
            out.bad_metadata = window.base + error.at
            if out.lists:
                return
            at = window.data.find(b'"traceEvents"')
            if at < 0:
                return
            window.forget(at)
            continue
        out.metadata[name] = _fact(window.data[at:end].rstrip())
        window.forget(end)


def _value_end(data: bytes, at: int) -> int:
    if data[at] == 0x22:
        return loose.quoted(data, at)[1]
    if data[at] in b"{[":
        return loose.skip(data, at)
    return loose.word(data, at)[1]


def _fact(raw: bytes) -> object:
    if len(raw) <= _LARGE:
        try:
            return json.loads(raw.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            pass
    return text(raw[1:-1]) if raw[:1] == b'"' else raw.decode("utf-8", "replace")


def _events(window: Window, out: Document) -> None:
    """The list of events, from behind its `[` to behind its `]`."""
    out.lists += 1
    while True:
        events, at, closed = loose_events(window.data, window.base, out, final=window.ended)
        if events:
            out.parts.append(part_of(events))
        window.forget(at)
        if closed:
            return
        if not window.more() and window.ended and not window.data:
            if out.cut < 0:
                out.open_list = True
            return


def loose_events(data: bytes, base: int, out: Document, *, final: bool) -> tuple[list[LooseEvent], int, bool]:
    """Events one by one, with repairs: what was read, the byte behind it, and whether the list was closed there.

    Parameters
    ----------
    final : bool
        No more text follows; what is half there is counted as cut.
    """
    found: list[LooseEvent] = []
    pos = 0
    while True:
        pos = loose.after_space(data, pos, commas=True)
        if pos >= len(data):
            return found, pos, False
        try:
            if data[pos] == 0x7B:
                event, pos = loose.event(data, pos, base)
                # XLA ends its lists with an empty event.
                if event.fields or event.args or event.times:
                    found.append(event)
            elif data[pos] == 0x5D:
                return found, pos + 1, True
            else:
                pos = _value_end(data, pos)
                out.strange += 1
        except Broken as error:
            if not final and (error.cut or (len(data) - pos < _LOOK_AHEAD and loose.next_event(data, pos) < 0)):
                return found, pos, False
            after = loose.next_event(data, pos)
            if after < 0:
                if error.cut:
                    out.cut = base + pos
                else:
                    out.skip(base + pos)
                return found, len(data), False
            out.skip(base + pos)
            pos = after
