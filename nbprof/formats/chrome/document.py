"""Walks a Chrome trace from its first byte to its last: the facts around the events, and the events
stretch by stretch.

Only a window of the text is in memory at a time. Stretches are read in threads, while the next ones
are unpacked.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from nbprof.core.errors import ReadError
from nbprof.core.quiet import thread_pool
from nbprof.formats.chrome import loose
from nbprof.formats.chrome.loose import Broken
from nbprof.formats.chrome.part import Part
from nbprof.formats.chrome.stretch import Stretch, Trouble, read_stretch
from nbprof.formats.chrome.values import text

# Long enough that two threads seldom wait for one another, short enough that a few of them cost
# little memory.
STRETCH = 1 << 22
# From here on any object is taken for an event when a place to cut is looked for.
_LONG = 1 << 23
# A fact of the producer larger than this is kept as the text that it is.
_LARGE = 1 << 22
_LIST = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
# Most of a stretch's time is numpy's, which lets other threads run.
_THREADS = min(4, os.cpu_count() or 1)


class Window:
    """The stretch of a text that is in memory: `data`, which begins at byte `base` of the whole."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._data = b""
        self._offset = 0
        self.base = 0
        self.ended = False

    @property
    def data(self) -> bytes:
        """The text from where reading is."""
        if self._offset:
            self._data, self._offset = self._data[self._offset :], 0
        return self._data

    def __len__(self) -> int:
        return len(self._data) - self._offset

    def more(self, want: int = 0) -> bool:
        """Reads on until the window has doubled, or `want` bytes have come; False at the end of the
        text.
        """
        if self.ended:
            return False
        parts, size, want = [self.data], 0, want or max(len(self), 1)
        while size < want:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.ended = True
                break
            parts.append(chunk)
            size += len(chunk)
        self._data = b"".join(parts)
        return size > 0

    def forget(self, count: int) -> None:
        """Goes on by some bytes."""
        self._offset += count
        self.base += count

    def restore(self, data: bytes) -> None:
        """Puts bytes back in front."""
        self._data = data + self.data
        self.base -= len(data)

    def skip_spaces(self, *, commas: bool = False) -> bytes:
        """Goes to the next byte that is no space; returns it, b"" at the end."""
        while True:
            self.forget(loose.after_space(self._data, self._offset, commas=commas) - self._offset)
            if len(self):
                return self._data[self._offset : self._offset + 1]
            if not self.more():
                return b""

    def event_after(self, count: int) -> int:
        """How many bytes it is to the first place behind `count` where an event seems to begin; -1
        if there is none.
        """
        if len(self) <= count:
            return -1
        offset = loose.next_event(self._data, self._offset + count, anything=count >= _LONG)
        return offset - self._offset if offset >= 0 else -1

    def take(self, count: int) -> bytes:
        """The next bytes; goes on behind them."""
        result = self._data[self._offset : self._offset + count]
        self.forget(count)
        return result


@dataclass
class Document:
    """What a trace holds: parts with its events, the metadata, and what could not be read.

    `lists` counts its lists of events; `open_list` tells that only the closing bracket of the last
    is missing.
    """

    parts: list[Part] = field(default_factory=list)
    metadata: dict[str, object] = field(default_factory=dict)
    trouble: Trouble = field(default_factory=Trouble)
    open_list: bool = False
    lists: int = 0
    bad_metadata: int = -1


def walk(chunks: Iterator[bytes]) -> Document:
    """Reads a whole trace.

    Raises
    ------
    ReadError
        It is no JSON, or has no list of events.
    """
    window = Window(chunks)
    result = Document()
    while len(window) < 3 and window.more():
        pass
    if window.data.startswith(b"\xef\xbb\xbf"):
        window.forget(3)
    first = window.skip_spaces()
    if first == b"":
        raise ReadError(
            "it contains only whitespace: the profiler was stopped before it wrote anything."
        )
    if first == b"[":
        window.forget(1)
        _events(window, result)
    elif first == b"{":
        window.forget(1)
        _top(window, result)
        if not result.lists:
            _no_events(result)
    else:
        raise ReadError(
            f"this is not a JSON trace: it starts with {first!r}, not with {{ or [.",
            offset=window.base,
        )
    return result


def _no_events(document: Document) -> None:
    if document.trouble.truncated_at >= 0:
        raise ReadError(
            "the file ends before its event list: record or copy it again.",
            offset=document.trouble.truncated_at,
        )
    keys = ", ".join(list(document.metadata)[:8]) or "nothing"
    raise ReadError(
        f"it is JSON, but not a trace: it has no list called traceEvents (it has {keys})."
    )


def _top(window: Window, document: Document) -> None:
    """The members of the outermost object."""
    while True:
        first = window.skip_spaces(commas=True)
        if first == b"}":
            window.forget(1)
            return
        if first == b"":
            document.trouble.truncated_at = (
                window.base if document.trouble.truncated_at < 0 else document.trouble.truncated_at
            )
            return
        try:
            name, offset = loose.key(window.data, 0)
            if offset >= len(window.data):
                raise Broken(offset, truncated=True)
            if name == "traceEvents" and window.data[offset] == 0x5B:
                window.forget(offset + 1)
                _events(window, document)
                continue
            end = loose.after_space(window.data, loose.value_end(window.data, offset))
            if end == len(window.data):
                raise Broken(end, truncated=True)
        except Broken as error:
            if window.more():
                continue
            if error.truncated:
                document.trouble.truncated_at = window.base + error.offset
                return
            document.bad_metadata = window.base + error.offset
            if document.lists:
                return
            match = _LIST.search(window.data, 1)
            if match is None:
                return
            window.forget(match.start())
            continue
        document.metadata[name] = _fact(window.data[offset:end].rstrip())
        window.forget(end)


def _fact(raw: bytes) -> object:
    if len(raw) <= _LARGE:
        try:
            return json.loads(raw.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            pass
    return text(raw[1:-1]) if raw[:1] == b'"' else raw.decode("utf-8", "replace")


def _events(window: Window, document: Document) -> None:
    """The list of events, from behind its `[` to behind its `]`."""
    document.lists += 1
    size = STRETCH
    with thread_pool(_THREADS) as pool:
        pending: deque[tuple[bytes, Future[Stretch]]] = deque()
        while True:
            while len(pending) <= _THREADS:
                block = _next_stretch(window, size)
                if not block:
                    break
                final = window.ended and not len(window)
                pending.append(
                    (block, pool.submit(read_stretch, block, window.base - len(block), final=final))
                )
            if not pending:
                document.open_list = document.trouble.truncated_at < 0
                return
            block, future = pending.popleft()
            done = future.result()
            document.parts += done.parts
            document.trouble.add(done.trouble)
            rest = block[done.used :]
            size = STRETCH
            if not done.closed and not rest:
                continue
            # The stretches behind were cut at the wrong place, or are no events.
            for _, other in pending:
                other.cancel()
            window.restore(rest + b"".join(b for b, _ in pending))
            pending.clear()
            if done.closed:
                return
            if window.ended and len(window) == len(rest):
                # It was told that nothing follows, and left this: it can't do any better.
                document.open_list = document.trouble.truncated_at < 0
                window.forget(len(rest))
                return
            size = max(STRETCH, 2 * len(rest))


def _next_stretch(window: Window, size: int) -> bytes:
    """Takes at least so many bytes from the window, up to where an event seems to begin; all that
    is left at the end.
    """
    while True:
        # Spaces without end are no reason to fill the memory.
        window.skip_spaces(commas=True)
        while len(window) < size and window.more(max(size, 4 * STRETCH)):
            pass
        boundary = window.event_after(size)
        if boundary > 0:
            return window.take(boundary)
        if window.ended:
            return window.take(len(window))
        size += max(STRETCH, size // 2)
