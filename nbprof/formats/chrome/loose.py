"""Reads one JSON value at a time, tolerating the invalid JSON that profilers write.

Quotes inside names, lone backslashes, `N/A`, `inf`, commas too many: what has one sensible reading
gets it. It is the slow path for the few events that the columns of `scan` refuse, and for the
metadata around the events.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nbprof.core.trace import TEXT
from nbprof.formats.chrome.part import LooseEvent
from nbprof.formats.chrome.values import Scalar, is_nothing, picoseconds, scalar, text

_SPACE = re.compile(rb"[ \t\r\n]*")
_SPACE_COMMA = re.compile(rb"[ \t\r\n,]*")
_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"', re.S)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_WORD = re.compile(rb'[^\s,\]\[}{":]+')
# What follows a string in an object: the end of the object, or the next key.
_GOES_ON = re.compile(rb'[ \t\r\n]*(?:\}|,[ \t\r\n]*(?:\}|"(?:[^"\\]|\\.)*?"[ \t\r\n]*:))', re.S)
_MARK = re.compile(rb'["{}\[\]]')
_FIRST_KEYS = rb"ph|name|cat|pid|tid|ts|dur|args|id|s|bp|tts|tdur|cname|id2|scope|bind_id"
_NEXT_EVENT = re.compile(rb'[,}\]][ \t\r\n]*(\{[ \t\r\n]*"(?:' + _FIRST_KEYS + rb')"[ \t\r\n]*:)')
_NEXT_OBJECT = re.compile(rb'[,}\]][ \t\r\n]*(\{[ \t\r\n]*"[^"\\]{0,40}"[ \t\r\n]*:)')
_LAST_EVENT = re.compile(rb'\}[ \t\r\n,]*(\])[ \t\r\n]*(?:,[ \t\r\n]*"[^"\n]*"[ \t\r\n]*:|\}|$)')
TIME_FIELDS = ("ts", "dur")
# Fields that are texts even where a number is written.
WORD_FIELDS = ("ph", "name", "cat", "pid", "tid")


class Broken(Exception):  # noqa: N818 — never leaves the reader
    """The text stops making sense at a byte; `truncated` where it just ends."""

    def __init__(self, offset: int, *, truncated: bool = False) -> None:
        super().__init__(offset)
        self.offset = offset
        self.truncated = truncated


def quoted(data: bytes, offset: int) -> tuple[bytes, int]:
    """The content of a string that is the value of a key, and the byte behind it; quotes within are
    met by what follows.
    """
    strict = _STRING.match(data, offset)
    if strict and _GOES_ON.match(data, strict.end()):
        return strict[1], strict.end()
    quote = data.find(b'"', offset + 1)
    # A name does not run over lines, so a quote that was never closed costs its own line only.
    line = data.find(b"\n", offset)
    limit = len(data) if line < 0 else line + 1
    while 0 <= quote < limit:
        if _GOES_ON.match(data, quote + 1):
            # A quote that was never closed must not take other events with it.
            if _NEXT_OBJECT.search(data, offset, quote):
                raise Broken(offset)
            return data[offset + 1 : quote], quote + 1
        quote = data.find(b'"', quote + 1)
    if strict is None:
        raise Broken(offset, truncated=True)
    raise Broken(strict.end(), truncated=after_space(data, strict.end()) == len(data))


def skip(data: bytes, offset: int) -> int:
    """The byte behind a list or an object, whatever is in it.

    Raises
    ------
    Broken
    """
    stack = bytearray()
    pos = offset
    while True:
        mark = _MARK.search(data, pos)
        if mark is None:
            raise Broken(len(data), truncated=True)
        pos, sign = mark.end(), mark[0][0]
        if sign == 0x22:
            match = _STRING.match(data, mark.start())
            if match is None:
                raise Broken(mark.start(), truncated=True)
            pos = match.end()
        elif sign in b"{[":
            stack.append(sign + 2)
        else:
            if not stack or stack.pop() != sign:
                raise Broken(mark.start())
            if not stack:
                return pos


def value(data: bytes, offset: int) -> tuple[Scalar | None, int]:
    """The value of a key: (kind, value) or None for null, and the byte behind it. Lists and objects
    are their text as written.
    """
    if offset >= len(data):
        raise Broken(offset, truncated=True)
    first = data[offset]
    if first == 0x22:
        raw, end = quoted(data, offset)
        return (TEXT, text(raw)), end
    if first in b"{[":
        end = skip(data, offset)
        return (TEXT, data[offset:end].decode("utf-8", "replace")), end
    raw, end = word(data, offset)
    return scalar(raw), end


def value_end(data: bytes, offset: int) -> int:
    """The byte behind a value."""
    if data[offset] == 0x22:
        return quoted(data, offset)[1]
    if data[offset] in b"{[":
        return skip(data, offset)
    return word(data, offset)[1]


def entry_end(data: bytes, offset: int) -> int:
    """The byte behind an entry of a list."""
    if data[offset] != 0x22:
        end = value_end(data, offset)
    else:
        match = _STRING.match(data, offset)
        if match is None:
            raise Broken(offset, truncated=True)
        end = match.end()
    behind = after_space(data, end)
    if behind < len(data) and data[behind] not in b",]}":
        raise Broken(behind)
    return end


def word(data: bytes, offset: int) -> tuple[bytes, int]:
    """A word without quotes, and the byte behind it."""
    match = _WORD.match(data, offset)
    if match is None:
        raise Broken(offset)
    if match.end() == len(data):
        raise Broken(offset, truncated=True)
    return match[0], match.end()


def members(data: bytes, offset: int, take: Callable[[str, int], int]) -> int:
    """Walks the object that begins at a byte; returns the byte behind it.

    Parameters
    ----------
    take : callable
        Called with each key and where its value begins; returns where the value ends.

    Raises
    ------
    Broken
    """
    pos = offset + 1
    while True:
        pos = after_space(data, pos, commas=True)
        if pos >= len(data):
            raise Broken(pos, truncated=True)
        if data[pos] == 0x7D:
            return pos + 1
        name, pos = key(data, pos)
        pos = after_space(data, take(name, pos))
        if pos >= len(data):
            raise Broken(pos, truncated=True)
        if data[pos] not in b",}":
            raise Broken(pos)


def key(data: bytes, offset: int) -> tuple[str, int]:
    """The key at a byte, and where its value begins."""
    match = _STRING.match(data, offset)
    if match is None:
        raise Broken(offset, truncated=data[offset] == 0x22)
    colon = _COLON.match(data, match.end())
    if colon is None:
        raise Broken(match.end(), truncated=after_space(data, match.end()) == len(data))
    return text(match[1]), colon.end()


def after_space(data: bytes, offset: int, *, commas: bool = False) -> int:
    """The first byte that is no space (and no comma)."""
    match = (_SPACE_COMMA if commas else _SPACE).match(data, offset)
    assert match is not None
    return match.end()


def event(data: bytes, offset: int, base: int = 0) -> tuple[LooseEvent, int]:
    """The event that begins at a byte, and the byte behind it.

    Parameters
    ----------
    data : bytes
    offset : int
        Where its `{` is.
    base : int
        The byte of the file at which `data` begins.

    Raises
    ------
    Broken
        It can't be read, even with repairs.
    """
    result = LooseEvent(base + offset)

    def arg(name: str, pos: int) -> int:
        result.args[name], end = value(data, pos)
        return end

    def field(name: str, pos: int) -> int:
        first = data[pos : pos + 1]
        if name == "args" and first == b"{":
            result.args = {}
            return members(data, pos, arg)
        if name in TIME_FIELDS:
            return _time(data, pos, name, result)
        if name == "ph" and first == b'"':
            # One letter has no quotes within.
            end = entry_end(data, pos)
            result.fields[name] = (TEXT, text(data[pos + 1 : end - 1]))
        elif name in WORD_FIELDS and first not in (b'"', b"{", b"["):
            raw, end = word(data, pos)
            result.fields[name] = None
            if not is_nothing(raw):
                result.fields[name] = (TEXT, raw.decode("utf-8", "replace"))
        else:
            result.fields[name], end = value(data, pos)
        return end

    return result, members(data, offset, field)


def _time(data: bytes, pos: int, key: str, event: LooseEvent) -> int:
    event.times.pop(key, None)
    if data[pos : pos + 1] == b'"':
        raw, end = quoted(data, pos)
    elif data[pos : pos + 1] in (b"{", b"["):
        raw, end = b"", skip(data, pos)
    else:
        raw, end = word(data, pos)
        if is_nothing(raw):
            return end
    event.times[key] = picoseconds(raw)
    return end


def next_event(data: bytes, offset: int, *, anything: bool = False) -> int:
    """Where reading can go on behind a broken event: the next `{` of an event, or the `]` behind
    the last; -1 if neither.

    Parameters
    ----------
    data : bytes
    offset : int
    anything : bool
        Any object counts as an event, also one that begins with a key that events don't have.
    """
    after = (_NEXT_OBJECT if anything else _NEXT_EVENT).search(data, offset)
    last = _LAST_EVENT.search(data, offset, after.start(1) if after else len(data))
    boundary = last or after
    return boundary.start(1) if boundary else -1
