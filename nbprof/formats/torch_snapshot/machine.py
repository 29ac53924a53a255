"""Moves the entries and blocks of an allocator snapshot to columns while its pickle is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nbprof.core.errors import ReadError
from nbprof.formats.torch_snapshot.plain_pickle import Unpickler
from nbprof.formats.torch_snapshot.snapshot import (
    ACTIONS,
    ALLOCATED,
    INACTIVE,
    OTHER,
    PENDING,
    UNKNOWN,
    Int64s,
)

MAX_FRAMES = 512
"""Frames of a stack that are read, the innermost."""
_STATE = {
    "inactive": INACTIVE,
    "active_allocated": ALLOCATED,
    "active_pending_free": PENDING,
    "active_awaiting_free": PENDING,
}
_ACTION = {name: code for code, name in enumerate(ACTIONS)}
_ENTRY_NUMBERS = {
    "address": "addr",
    "size": "size",
    "stream": "stream",
    "time_us": "time_us",
    "device_free": "device_free",
}
_BLOCK_NUMBERS = {"address": "address", "size": "size", "requested": "requested_size"}
LIMITS = np.iinfo(np.int64)
_CODE = object()
"""The only key of the dict of a frame that has its code."""


@dataclass
class Columns:
    """Rows of one kind as columns of int64, `UNKNOWN` where the file has none."""

    names: tuple[str, ...]
    parts: list[dict[str, Int64s]] = field(default_factory=list)
    count: int = 0

    def add(self, columns: dict[str, Int64s], count: int) -> None:
        """Appends rows."""
        self.parts.append(columns)
        self.count += count

    def joined(self) -> dict[str, Int64s]:
        """Each column in one piece; this object is empty afterwards."""
        empty = np.zeros(0, np.int64)
        columns = {}
        for name in self.names:
            columns[name] = np.concatenate([empty, *(part.pop(name) for part in self.parts)])
        self.parts.clear()
        return columns


@dataclass
class Rows:
    """The first item of a list whose dicts were moved to columns: `count` rows from `first` on."""

    columns: Columns
    first: int
    count: int


class _Stack:
    """The only item of a list of frames that has its code."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


class Machine(Unpickler):
    """Moves entries and blocks to columns batch by batch, so that they are never all dicts."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        super().__init__(read)
        self.entries = Columns(("action", *_ENTRY_NUMBERS, "pool", "pool_b", "category", "stack"))
        self.blocks = Columns((*_BLOCK_NUMBERS, "state", "category", "stack"))
        self.frames: dict[tuple[str, str, int], int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.categories: dict[str, int] = {}
        self.invalid = 0
        self.deep = 0
        self._stack_items: list[_Stack] = []
        self._stack(())

    def batch(self, rows: list[Any]) -> None:
        """Moves the dicts of a list to columns, where they are entries or blocks."""
        start = 0
        while start < len(rows) and type(rows[start]) is Rows:
            start += 1
        if start == len(rows):
            return
        columns = self._columns_for(rows[start])
        if columns is None:
            return
        dicts = rows[start:]
        if set(map(type, dicts)) != {dict} or not all(dicts):
            raise self._twice()
        if len(set(map(id, dicts))) < len(dicts):
            raise self._twice()
        first = columns.count
        if columns is self.entries:
            columns.add(self._entries_of(dicts), len(dicts))
        else:
            columns.add(self._blocks_of(dicts), len(dicts))
        for item in dicts:
            # The memo of the pickle holds it to the end.
            item.clear()
        del rows[start:]
        if rows and rows[-1].columns is columns and rows[-1].first + rows[-1].count == first:
            rows[-1].count += len(dicts)
        else:
            rows.append(Rows(columns, first, len(dicts)))

    def rows_of(self, rows: Any, columns: Columns) -> Iterator[tuple[int, int]]:
        """First row and count of each run of rows that a list was moved to."""
        if type(rows) is list:
            self.batch(rows)
            if {} in rows:
                raise self._twice()
            for item in rows:
                if type(item) is Rows and item.columns is columns:
                    yield item.first, item.count

    def close(self, items: list[Any], inner: list[Any]) -> None:
        """Puts the complete values of a truncated file into their containers."""
        if not items:
            return
        target = items[-1]
        if type(target) is list:
            # The last value may be incomplete.
            target += [item for item in inner if self._is_complete(item)]
            self.batch(target)
        elif type(target) is dict:
            # A list with a single item gets it without a mark.
            while len(inner) > 1 and len(inner) % 2 and type(inner[-1]) is type(inner[-2]) is list:
                inner[-2].append(inner.pop())
            names = [key for key in inner[::2] if isinstance(key, str)]
            if "segments" in names or "device_traces" in names:
                target.update(zip(names, inner[1::2], strict=False))
            else:
                items.pop()

    def _is_complete(self, item: Any) -> bool:
        if type(item) is dict:
            return self._columns_for(item) is not None or "blocks" in item
        return type(item) in (list, Rows)

    def _columns_for(self, item: Any) -> Columns | None:
        if type(item) is dict:
            if "action" in item:
                return self.entries
            if "state" in item and "size" in item:
                return self.blocks
        return None

    def _twice(self) -> ReadError:
        return self.opcodes.damaged("a list of records has another value in it, or a record twice")

    # Stacks.

    def _stack_code(self, frames: Any) -> int:
        """The code of the stack in a list of frames, which is emptied."""
        if type(frames) is not list or not frames:
            return 0
        if type(frames[0]) is not _Stack:
            if set(map(type, frames)) != {dict}:
                self.invalid += 1
                return 0
            codes = tuple(map(self._frame_code, frames))
            frames[:] = [self._stack(codes)]
        code: int = frames[0].code
        return code

    def _stack(self, frames: tuple[int, ...]) -> _Stack:
        if len(frames) > MAX_FRAMES:
            self.deep += 1
            frames = frames[:MAX_FRAMES]
        code = self.stacks.setdefault(frames, len(self.stacks))
        if code == len(self._stack_items):
            self._stack_items.append(_Stack(code))
        return self._stack_items[code]

    def _frame_code(self, frame: dict[Any, Any]) -> int:
        code: int | None = frame.get(_CODE)
        if code is None:
            line = frame.get("line")
            if type(line) is not int or not 0 <= line < 1 << 31:
                line = 0
            key = (text_of(frame.get("name")), text_of(frame.get("filename")), line)
            code = self.frames.setdefault(key, len(self.frames))
            frame.clear()
            frame[_CODE] = code
        return code

    # Columns.

    def _entries_of(self, dicts: list[dict[str, Any]]) -> dict[str, Int64s]:
        columns = self._numbers_of(dicts, _ENTRY_NUMBERS)
        columns["action"] = codes_of(dicts, "action", _ACTION, OTHER)
        columns["pool"], columns["pool_b"] = self.pools(dicts, "pool_id")
        return columns

    def _blocks_of(self, dicts: list[dict[str, Any]]) -> dict[str, Int64s]:
        for item in dicts:
            history = item.get("history")
            if type(history) is list and history and type(history[0]) is dict:
                item.setdefault("requested_size", history[0].get("real_size"))
                item.setdefault("frames", history[0].get("frames"))
        columns = self._numbers_of(dicts, _BLOCK_NUMBERS)
        columns["state"] = codes_of(dicts, "state", _STATE, INACTIVE)
        return columns

    def _numbers_of(self, dicts: list[dict[str, Any]], keys: dict[str, str]) -> dict[str, Int64s]:
        columns = self.integers(dicts, keys)
        categories = map(self._category_code, _values(dicts, "category"))
        columns["category"] = np.fromiter(categories, np.int64, len(dicts))
        columns["stack"] = self.stack_codes(dicts)
        return columns

    def stack_codes(self, dicts: list[dict[str, Any]]) -> Int64s:
        """The codes of the stacks in dicts."""
        codes = map(self._stack_code, _values(dicts, "frames"))
        return np.fromiter(codes, np.int64, len(dicts))

    def _category_code(self, category: Any) -> int:
        if not isinstance(category, str):
            return UNKNOWN
        return self.categories.setdefault(text_of(category), len(self.categories))

    def integers(self, dicts: list[dict[str, Any]], keys: dict[str, str]) -> dict[str, Int64s]:
        """Columns of numbers, by their keys in dicts."""
        return {name: self._integers(_values(dicts, key)) for name, key in keys.items()}

    def _integers(self, values: Sequence[Any]) -> Int64s:
        """Numbers that fit; others are unknown, and counted."""
        if set(map(type, values)) <= {int, type(None)}:
            numbers = [UNKNOWN if value is None else value for value in values]
            try:
                return np.array(numbers, np.int64)
            except OverflowError:
                pass
        numbers = []
        for value in values:
            if type(value) is int and LIMITS.min <= value <= LIMITS.max:
                numbers.append(value)
            else:
                numbers.append(UNKNOWN)
                self.invalid += value is not None
        return np.array(numbers, np.int64)

    def pools(self, dicts: list[dict[str, Any]], key: str) -> tuple[Int64s, Int64s]:
        """Both numbers of the ids of pools."""
        pairs = np.array(list(map(_pool, _values(dicts, key))), np.int64).reshape(-1, 2)
        return pairs[:, 0].copy(), pairs[:, 1].copy()


def text_of(value: Any) -> str:
    """A value that should be a text; the empty one where it is none."""
    if not isinstance(value, str):
        return ""
    # A pickle may hold half of a character, which no file of UTF-8 can.
    if value.isascii():
        return value
    return value.encode("utf-8", "replace").decode()


def _pool(value: Any) -> tuple[int, int]:
    if type(value) is tuple and len(value) == 2:
        first, second = value
        if type(first) is type(second) is int and 0 <= first < 1 << 62 and 0 <= second < 1 << 62:
            return first, second
    return UNKNOWN, UNKNOWN


def _values(dicts: list[dict[str, Any]], key: str) -> list[Any]:
    return [item.get(key) for item in dicts]


def codes_of(dicts: list[dict[str, Any]], key: str, codes: dict[str, int], default: int) -> Int64s:
    """A column of texts as codes; the default for another text, or none."""
    texts = [value if isinstance(value, str) else "" for value in _values(dicts, key)]
    return np.array([codes.get(text, default) for text in texts], np.int64)
