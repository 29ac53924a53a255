"""Puts the entries, blocks, frames and stacks of an allocator snapshot into columns while its
pickle is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from nbprof.formats.torch_snapshot import records as torch_records
from nbprof.formats.torch_snapshot.plain_pickle import PART, Dict, List, Unpickler
from nbprof.formats.torch_snapshot.snapshot import (
    ACTIONS,
    ALLOCATED,
    INACTIVE,
    OTHER,
    PENDING,
    UNKNOWN,
    Int64s,
)

_STATE = {
    "inactive": INACTIVE,
    "active_allocated": ALLOCATED,
    "active_pending_free": PENDING,
    "active_awaiting_free": PENDING,
}
_ACTION = {name: code for code, name in enumerate(ACTIONS)}

_ENTRY = (
    "action",
    "addr",
    "size",
    "stream",
    "time_us",
    "device_free",
    "pool_id",
    "category",
    "frames",
)
_BLOCK = ("address", "size", "requested_size", "state", "category", "frames")
_TAKEN = -2
_SHAPES, _TRIES = 64, 100_000
LIMITS = np.iinfo(np.int64)


@dataclass
class Columns:
    """Rows of one kind as columns of int64, `UNKNOWN` where the file has none."""

    names: tuple[str, ...]
    parts: dict[str, list[Int64s]] = field(default_factory=dict)
    count: int = 0

    def add(self, columns: dict[str, Sequence[int] | Int64s], count: int) -> None:
        """Puts rows behind those that are there."""
        for name in self.names:
            self.parts.setdefault(name, []).append(np.asarray(columns[name], np.int64))
        self.count += count

    def whole(self) -> dict[str, Int64s]:
        """Each column in one piece."""
        out = {}
        for name in self.names:
            # One column at a time is there twice.
            parts = self.parts.pop(name, [])
            out[name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
            parts.clear()
        return out


class _Frame:
    """A frame that was put away."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


class _Stack:
    """A list of frames that was put away."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


class _Gone:
    """What the memo has of a record that was put away."""

    __slots__ = ()


_GONE = _Gone()


class Rows:
    """Rows of a list that were put away: (first, count) of each batch."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[tuple[int, int]] = []


class Machine(Unpickler):
    """Puts entries, blocks, frames and stacks away as they come."""

    def __init__(self, read: Any) -> None:
        super().__init__(read)
        self.entries = Columns(
            (
                "action",
                "address",
                "size",
                "stream",
                "time_us",
                "device_free",
                "pool",
                "pool_b",
                "category",
                "stack",
            )
        )
        self.blocks = Columns(("address", "size", "requested", "state", "category", "stack"))
        self.frames: dict[tuple[str, str, int], int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.categories: dict[str, int] = {}
        self.strange = 0
        self.deep = 0
        self._frame_of: list[_Frame] = []
        self._stack_of: list[_Stack] = []
        self._by_bytes: dict[bytes, _Stack] = {}
        self._shapes: list[torch_records.Shape] = []
        self._known: set[bytes] = set()
        self._tries = 0
        self._values = torch_records.Values(self.memo)
        self.stack_code(())

    # Records as a whole.

    def begin_dict(self) -> None:
        """An empty dict, or the records that begin here."""
        data, at = self.data, self.at - 1
        for place, shape in enumerate(self._shapes):
            found = shape.match(data, at)
            if found is not None:
                if place:
                    self._shapes.insert(0, self._shapes.pop(place))
                self._records(shape, found)
                return
        if len(self._shapes) < _SHAPES and self._tries < _TRIES:
            self._tries += 1
            learned = torch_records.learn(data, at, self.memo)
            if (
                learned is not None
                and learned[0] not in self._known
                and {"action", "state"} & set(learned[1].keys)
            ):
                self._known.add(learned[0])
                self._shapes.insert(0, learned[1])
                self.begin_dict()
                return
        super().begin_dict()

    def _records(self, shape: torch_records.Shape, found: re.Match[bytes]) -> None:
        """Reads records of one shape, as many as follow each other."""
        data, match, values = self.data, shape.match, self._values
        push, remember, known = self.stack.append, self.memo.append, self._by_bytes.get
        itself, frames = shape.itself, shape.frames
        # Lists of frames, and texts and pairs of numbers that have a slot of their own.
        slots = [(place, place == frames) for place in shape.remembered]
        stack = self._stack_of[0]
        enough = len(data) - PART // 16
        following: re.Match[bytes] | None = found
        while following is not None:
            groups = following.groups()
            if frames >= 0:
                raw = groups[frames]
                stack = known(raw) or self._matched(raw)
            if itself:
                remember(_GONE)
            for place, is_frames in slots:
                remember(stack if is_frames else values[groups[place]])
            push((shape, groups, stack.code))
            at = following.end()
            following = match(data, at) if at < enough or self.ended else None
        self.at = at

    def _matched(self, raw: bytes) -> _Stack:
        memo = self.memo
        codes = [
            self.frame_code(memo[slot]) for slot in torch_records.slots(raw) if slot < len(memo)
        ]
        out = self._by_bytes[raw] = self._stack_of[self.stack_code(tuple(codes))]
        return out

    # What was made opcode by opcode.

    def extend(self, target: List, items: list[Any]) -> None:
        """Puts items into a list, or away where they are records or frames."""
        first = items[0] if items else None
        kind = "entries" if first is _GONE else self._kind(first)
        if target.rows is None and kind:
            if len(target):
                raise self.wrong("a list mixes records with other values", 1)
            target.rows = [] if kind == "frames" else Rows(kind)
        rows = target.rows
        if rows is None:
            super().extend(target, items)
        elif isinstance(rows, list):
            rows += [self.frame_code(item) for item in items]
        else:
            self._put_away(rows, items)

    def _kind(self, item: Any) -> str:
        if type(item) is tuple and item and type(item[0]) is torch_records.Shape:
            keys: Any = item[0].keys
        elif type(item) is Dict:
            keys = item
        else:
            return "frames" if type(item) is _Frame else ""
        if "action" in keys:
            return "entries"
        if "state" in keys and "size" in keys:
            return "blocks"
        return "frames" if "filename" in keys and "name" in keys else ""

    def _put_away(self, rows: Rows, items: list[Any]) -> None:
        columns = self.entries if rows.kind == "entries" else self.blocks
        names = _ENTRY if rows.kind == "entries" else _BLOCK
        first = columns.count
        for shape, run in groupby(items, _shape_of):
            members = list(run)
            if shape is not None:
                parts = list(zip(*(item[1] for item in members), strict=True))
                values: dict[str, Any] = {
                    key: self._column(shape.kinds[i], parts[i])
                    for i, key in enumerate(shape.keys)
                    if key in names and shape.kinds[i] != torch_records.FRAMES
                }
                values["frames"] = self._frames_of(shape, parts, members)
            else:
                values = self._of_dicts(members, names)
            columns.add(self._typed(rows.kind, values, len(members)), len(members))
        rows.parts.append((first, len(items)))

    def _column(self, kind: int, raw: tuple[bytes, ...]) -> list[Any] | Int64s:
        found = torch_records.numbers(raw) if kind == torch_records.SCALAR else None
        return self._values.of(raw) if found is None else found

    def _frames_of(
        self, shape: torch_records.Shape, parts: list[tuple[bytes, ...]], members: list[Any]
    ) -> list[int]:
        """The stack of each record: its own, or one that another record has, which is recalled."""
        if shape.frames >= 0 or "frames" not in shape.keys:
            return [item[2] for item in members]
        raw = parts[shape.keys.index("frames")]
        codes = {one: self.list_of_frames(self._values[one]) for one in set(raw)}
        return [codes[one] for one in raw]

    def _of_dicts(self, items: list[Any], names: tuple[str, ...]) -> dict[str, list[Any]]:
        out: dict[str, list[Any]] = {name: [] for name in names}
        for item in items:
            if type(item) is not Dict or item.at == _TAKEN:
                raise self.wrong("a list of records has another value in it, or a record twice", 1)
            history = item.get("history")
            if type(history) is List and history and type(history[0]) is Dict:
                item.setdefault("requested_size", history[0].get("real_size"))
                item.setdefault("frames", history[0].get("frames"))
            for name in names:
                out[name].append(item.get(name))
            out["frames"][-1] = self.list_of_frames(item.get("frames"))
            self.held -= 2 * len(item)
            if item.at >= 0:
                self.memo[item.at] = _GONE
            item.at = _TAKEN
        return out

    def list_of_frames(self, frames: Any) -> int:
        """The code of the stack that a list is."""
        if type(frames) is _Stack:
            return frames.code
        if type(frames) is not List or not isinstance(frames.rows, list):
            return 0
        code = self.stack_code(tuple(frames.rows))
        if frames.at >= 0:
            self.memo[frames.at] = self._stack_of[code]
        return code

    def frame_code(self, item: Any) -> int:
        """The code of a frame, a new one where it was not seen before."""
        if type(item) is _Frame:
            return item.code
        if type(item) is not Dict:
            raise self.wrong("a stack contains something other than a frame", 1)
        line = item.get("line")
        key = (
            text_of(item.get("name")),
            text_of(item.get("filename")),
            line if type(line) is int and 0 <= line < 1 << 31 else 0,
        )
        code = self.frames.setdefault(key, len(self.frames))
        if code == len(self._frame_of):
            self._frame_of.append(_Frame(code))
        self.held -= 2 * len(item)
        if item.at >= 0:
            self.memo[item.at] = self._frame_of[code]
        return code

    def stack_code(self, frames: tuple[int, ...]) -> int:
        """The code of a stack."""
        if len(frames) > torch_records.MOST_FRAMES:
            self.deep += 1
            frames = frames[: torch_records.MOST_FRAMES]
        code = self.stacks.setdefault(frames, len(self.stacks))
        if code == len(self._stack_of):
            self._stack_of.append(_Stack(code))
            self.hold(len(frames))
        return code

    # Columns.

    def _typed(
        self, kind: str, values: dict[str, Any], count: int
    ) -> dict[str, Sequence[int] | Int64s]:
        none = [None] * count
        pool = values.get("pool_id", none)
        out: dict[str, Sequence[int] | Int64s] = {
            "size": self.integers(values.get("size", none)),
            "category": [UNKNOWN if not isinstance(v, str) else self.categories.setdefault(v, len(self.categories)) for v in
                         values.get("category", none)],
            "stack": values["frames"],
        }  # fmt: skip
        if kind == "blocks":
            out["address"] = self.integers(values.get("address", none))
            out["requested"] = self.integers(values.get("requested_size", none))
            out["state"] = [
                _STATE.get(v, INACTIVE) if isinstance(v, str) else INACTIVE
                for v in values.get("state", none)
            ]
            return out
        out["address"] = self.integers(values.get("addr", none))
        out["action"] = [
            _ACTION.get(v, OTHER) if isinstance(v, str) else OTHER
            for v in values.get("action", none)
        ]
        out["stream"], out["time_us"] = (
            self.integers(values.get("stream", none)),
            self.integers(values.get("time_us", none)),
        )
        out["device_free"] = self.integers(values.get("device_free", none))
        out["pool"], out["pool_b"] = self.pools(pool)
        return out

    def integers(self, values: Sequence[Any]) -> Sequence[int] | Int64s:
        """Numbers that fit; what is none is unknown, and counted."""
        if isinstance(values, np.ndarray):
            return values
        if not set(map(type, values)) <= {int, type(None)}:
            return self._some(values)
        try:
            return np.array([UNKNOWN if v is None else v for v in values], np.int64)
        except OverflowError:
            return self._some(values)

    def _some(self, values: Sequence[Any]) -> list[int]:
        out = [v if type(v) is int and LIMITS.min <= v <= LIMITS.max else UNKNOWN for v in values]
        self.strange += sum(
            new == UNKNOWN and old is not None and old != UNKNOWN
            for new, old in zip(out, values, strict=True)
        )
        return out

    def pools(self, values: Sequence[Any]) -> tuple[list[int], list[int]]:
        """Both numbers of the ids of pools."""
        if (
            len(values)
            and type(values[0]) is tuple
            and isinstance(values, list)
            and values.count(values[0]) == len(values) > 1
        ):
            # Nearly everything is in one pool.
            first, second = self.pools(values[:1])
            return first * len(values), second * len(values)
        known = [
            (
                v
                if type(v) is tuple
                and len(v) == 2
                and all(type(n) is int and 0 <= n < 1 << 62 for n in v)
                else (UNKNOWN,) * 2
            )
            for v in values
        ]
        return [v[0] for v in known], [v[1] for v in known]

    def remains(self) -> Any:
        """The outermost container of a file that was cut short, with what is whole put into it."""
        levels = [*self.marks, self.stack]
        for depth in range(len(levels) - 1, 0, -1):
            items, below = levels[depth], levels[depth - 1]
            target = below[-1] if below else None
            # The only item of a list is put into it without a mark.
            while (
                type(target) is Dict
                and len(items) % 2
                and len(items) > 1
                and type(items[-1]) is List
                and type(items[-2]) is List
            ):
                self.extend(items[-2], [items.pop()])
            if type(target) is List:
                # The last one may be half made; so may be what is in it.
                whole = [
                    item
                    for item in items
                    if self._kind(item)
                    or type(item) is List
                    or (type(item) is Dict and "blocks" in item)
                ]
                kinds = {self._kind(item) for item in whole}
                if len(kinds) == 1 and (
                    target.rows is None or kinds == {getattr(target.rows, "kind", "frames")}
                ):
                    self.extend(target, whole)
            elif type(target) is Dict and {"segments", "device_traces"} & {
                k for k in items[::2] if isinstance(k, str)
            }:
                self.put_items(target, items[: len(items) // 2 * 2])
            elif type(target) is Dict:
                below.pop()
        return levels[0][0] if levels[0] else None


def text_of(value: Any) -> str:
    """A value that should be a text; the empty one where it is none."""
    return value if isinstance(value, str) else ""


def _shape_of(item: Any) -> torch_records.Shape | None:
    if type(item) is tuple and item:
        first: Any = item[0]
        return first if type(first) is torch_records.Shape else None
    return None
