"""The databases of Ascend's profilers as columns: numbers as the file has them, texts through its
own tables of texts and enumerations.

Tables, columns and units: "Profile Data File Reference (DB)" of msprof,
https://gitcode.com/Ascend/msprof/blob/master/docs/en/user_guide/profile_data_file_references_db.md,
and "Data in ascend_pytorch_profiler_{Rank_ID}.db",
https://www.hiascend.com/document/detail/en/canncommercial/850/devaids/profiling/atlasprofiling_16_1145.html:
times are ns since 1970, memory is bytes, bandwidth bytes/s, frequency MHz. Versions differ in what
tables and columns there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import sqlite
from nbprof.core.errors import ReadError
from nbprof.core.files import SourceFile
from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.chrome.part import Texts

NONE = np.iinfo(np.int64).min
"""A number that a row does not have."""
ABSENT = (NONE, -1, 0xFFFF_FFFF, 2**63 - 1)
"""What ids hold that mean none."""
TASK = "startNs endNs deviceId connectionId globalTaskId taskType contextId streamId taskId modelId"
CALLS = "startNs endNs type globalTid connectionId name"
"""Columns of the longest tables, which rows and events are made of: all are taken out of the file
at once.
"""
_LATEST_NS = 1 << 62
_LONGEST = 20
# Ids are looked up in a table that has at most so many places for each, and so many more.
_GAPS, _SMALL = 4, 1 << 16
_LEVELS = {20000: "acl", 15000: "model", 10000: "node", 5500: "communication", 5000: "runtime"}
_LEVELS |= {50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx"}


class Strings:
    """Texts by id.

    Parameters
    ----------
    ids : int64[n]
    values : object[n]
    """

    def __init__(self, ids: Int64s, values: npt.NDArray[np.object_]) -> None:
        order = np.argsort(ids, kind="stable")
        self._ids, self._values = ids[order], values[order]

    def texts(self, ids: Int64s) -> list[str | None]:
        """The text of each id; the id itself where the file has none for it, None where there is no
        id.
        """
        rows = np.searchsorted(self._ids, ids)
        result: list[str | None] = []
        for ident, row in zip(ids.tolist(), rows.tolist(), strict=True):
            text = None
            if row < len(self._ids) and self._ids[row] == ident:
                text = self._values[row]
            if text is None and ident >= 0:
                text = str(ident)
            result.append(text)
        return result

    def category(self, ids: Int64s) -> pd.Categorical:
        """The texts of ids, each kept once, without the quotes and blanks around them; N/A is
        none.
        """
        used, inverse = used_of(ids)
        return category(self.texts(used), inverse)

    def codes(self, ids: Int64s, texts: Texts, otherwise: str | None = None) -> Int32s:
        """The texts of ids as codes of `texts`; -1, or that of another text, where there is
        none.
        """
        used, inverse = used_of(ids)
        table = []
        for text in self.texts(used):
            if text is None:
                text = otherwise
            table.append(-1 if text is None else texts[text])
        return np.array(table or [-1], np.int32)[inverse.ravel()]


def category(values: list[str | None], inverse: Int64s) -> pd.Categorical:
    """Texts by the place of each row among `values`."""
    bare = [(text or "").strip(' \t\r\n"') for text in values]
    present = [None if text in ("", "N/A") else text for text in bare]
    codes, names = pd.factorize(np.array(present, object))
    categories = pd.Index(names, dtype=object)
    return pd.Categorical.from_codes(np.append(codes, -1)[inverse.ravel()], categories=categories)


class Database:
    """A database of Ascend's profilers.

    Raises
    ------
    ReadError
        The file could not be read, or is not a database.
    """

    def __init__(self, file: SourceFile) -> None:
        self.name = file.name
        self.damaged: dict[str, str] = {}
        self._cache: dict[str, dict[tuple[str, str], npt.NDArray[Any]]] = {}
        self._file = sqlite.Database(file.read(), file.label)

    @property
    def tables(self) -> list[str]:
        """Names of its tables, without those that SQLite keeps for itself."""
        return [name for name in self._file.tables if not name.startswith("sqlite_")]

    def columns(self, table: str) -> tuple[str, ...]:
        """Names of the columns of a table."""
        if table not in self._file.tables:
            return ()
        return self._file.tables[table].columns

    def read(
        self, table: str, ints: str = "", floats: str = "", texts: str = ""
    ) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table, named with blanks between; what the table lacks has no values, and a
        damaged table has no rows.
        """
        kinds = dict.fromkeys(ints.split(), "int")
        kinds |= dict.fromkeys(floats.split(), "float")
        kinds |= dict.fromkeys(texts.split(), "text")
        # The same columns are read for the rows of a table and again for its events.
        cached = self._cache.setdefault(table, {})
        missing = [item for item in kinds.items() if item not in cached]
        if missing:
            columns = self._read_columns(table, [name for name, _ in missing])
            any_column = next(iter((*columns.values(), *cached.values())), None)
            count = self._count(table) if any_column is None else len(any_column)
            for name, kind in missing:
                typed, none = _TYPED[kind]
                if name in columns:
                    cached[name, kind] = typed(columns[name])
                else:
                    cached[name, kind] = np.full(count, none, np.array(none).dtype)
        return {name: cached[name, kind] for name, kind in kinds.items()}

    def raw(self, table: str) -> dict[str, npt.NDArray[Any]]:
        """All columns of a table as they are."""
        return {name: _plain_values(c) for name, c in self._read_columns(table, []).items()}

    def _read_columns(self, table: str, names: list[str]) -> dict[str, sqlite.Column]:
        if table in self.damaged or (names and not set(names) & set(self.columns(table))):
            return {}
        try:
            return self._file.read(table, *names)
        except ReadError as error:
            self.damaged[table] = error.reason
            return {}

    def _count(self, table: str) -> int:
        try:
            return 0 if table in self.damaged else self._file.count(table)
        except ReadError as error:
            self.damaged[table] = error.reason
            return 0

    @cached_property
    def strings(self) -> Strings:
        """The texts that ids of other tables mean."""
        names = self.read("STRING_IDS", "id", texts="value")
        return Strings(names["id"], names["value"])

    def enum(self, table: str) -> Strings:
        """The texts of an enumeration; without it the numbers stand for themselves."""
        names = self.read(table, "id", texts="name")
        return Strings(names["id"], names["name"])

    @cached_property
    def levels(self) -> dict[int, str]:
        """The level of a call, or what wrote an event, by its number."""
        names = self.read("ENUM_API_TYPE", "id", texts="name")
        result = dict(_LEVELS)
        for number, name in zip(names["id"].tolist(), names["name"], strict=True):
            if name:
                result[number] = name
        return result

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Facts about the machine, in the form of the JSON files next to the tables."""
        result: dict[str, Any] = {}
        metadata = self.read("META_DATA", texts="name value")
        for name, value in zip(metadata["name"], metadata["value"], strict=True):
            result[str(name)] = _decoded(value)
        chips = self.read("NPU_INFO", "id", texts="name")
        for ident, name in zip(chips["id"].tolist(), chips["name"], strict=True):
            if ident >= 0:
                result.setdefault("DeviceInfo", []).append({"id": ident, "name": name})
        return result

    @cached_property
    def task_infos(self) -> Int64s:
        """The row of each task in COMPUTE_TASK_INFO, -1 where it has none."""
        return first_of(
            self.read("COMPUTE_TASK_INFO", "globalTaskId")["globalTaskId"],
            self.read("TASK", TASK)["globalTaskId"],
        )

    @cached_property
    def task_names(self) -> Int64s:
        """Name of each task, as the id of a text: an operator, a part of a collective, else its
        type.
        """
        task = self.read("TASK", TASK)
        schedule = self.read("COMMUNICATION_SCHEDULE_TASK_INFO", "name globalTaskId")
        info = self.read("COMPUTE_TASK_INFO", "name")
        parts = self.read("COMMUNICATION_TASK_INFO", "name globalTaskId timestampNs")
        of_schedule = first_of(schedule["globalTaskId"], task["globalTaskId"])
        result = np.where(of_schedule >= 0, taken(schedule["name"], of_schedule), task["taskType"])
        of_info = self.task_infos
        result = np.where(of_info >= 0, taken(info["name"], of_info), result)
        row, _ = row_of(task, parts["globalTaskId"], parts["timestampNs"])
        there = row >= 0
        result[row[there]] = parts["name"][there]
        return result

    @cached_property
    def device(self) -> int:
        """The only device of the recording, -1 where it has several or states none."""
        tables = ("RANK_DEVICE_MAP", "TASK")
        ids = np.concatenate([self.read(table, "deviceId")["deviceId"] for table in tables])
        devices = np.unique(ids[ids >= 0])
        return int(devices[0]) if len(devices) == 1 else -1


def _decoded(value: object) -> object:
    try:
        return json.loads(str(value))
    except (ValueError, RecursionError):
        return value


def _integers(column: sqlite.Column) -> Int64s:
    """Whole numbers, also those that are written as texts."""
    if column.dtype != object:
        return sqlite.integers(column, NONE)
    return np.fromiter(map(_integer, column.tolist()), np.int64, len(column))


def _integer(value: object) -> int:
    if isinstance(value, str):
        text = value.strip()
        if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > _LONGEST:
            return NONE
        value = int(text)
    if isinstance(value, (int, float)) and abs(value) < 1 << 63:
        return int(value)
    return NONE


def _floats(column: sqlite.Column) -> npt.NDArray[np.float64]:
    """Numbers, also those that are written as texts."""
    if column.dtype != object:
        return np.asarray(sqlite.floats(column), np.float64)
    values = [value if isinstance(value, (int, float, str)) else None for value in column]
    numbers = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce")
    return np.asarray(numbers.to_numpy(np.float64, na_value=np.nan))


def _texts(column: sqlite.Column) -> npt.NDArray[np.object_]:
    """Texts, None where there is none."""
    texts = [None if value is None else str(value) for value in column.tolist()]
    return np.array([*texts, None], object)[:-1]


_TYPED: dict[str, tuple[Callable[[sqlite.Column], npt.NDArray[Any]], object]] = {
    "int": (_integers, NONE),
    "float": (_floats, np.nan),
    "text": (_texts, None),
}


def _plain_values(column: sqlite.Column) -> npt.NDArray[Any]:
    """A column as it is, bytes in hexadecimal."""
    if column.dtype.kind == "f":
        return column
    values = [value.hex() if isinstance(value, bytes) else value for value in column.tolist()]
    return np.array([*values, None], object)[:-1]


def used_of(values: Int64s) -> tuple[Int64s, Int64s]:
    """The values that occur, in the order in which they come, and the place of each row's among
    them: by hashing, which sorts nothing.
    """
    codes, used = pd.factorize(values)
    return np.asarray(used, np.int64), codes.astype(np.int64)


def tuples_of(*columns: Int64s) -> tuple[list[tuple[int, ...]], Int64s]:
    """The same of rows of several columns."""
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        used, code = used_of(column)
        _, group = used_of(group * max(len(used), 1) + code)
    first = np.full(int(group.max(initial=-1)) + 1, 0)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), group


def moments(values: Int64s) -> Int64s:
    """Times in ns, `NONE` for those that no clock shows."""
    return np.where((values > 0) & (values < _LATEST_NS), values, NONE)


def is_set(values: Int64s) -> npt.NDArray[np.bool_]:
    """Mask of ids that are set."""
    result = np.ones(len(values), np.bool_)
    for none in ABSENT:
        result &= values != none
    return result


def first_of(ids: Int64s, keys: Int64s) -> Int64s:
    """The first row with each of some ids, -1 where there is none."""
    if not len(ids) or not len(keys):
        return np.full(len(keys), -1)
    places = _places(ids)
    if places is not None:
        return places.first_rows(keys)
    ids_index = pd.Index(ids)
    if ids_index.is_unique:
        return ids_index.get_indexer(pd.Index(keys)).astype(np.int64)
    first = np.flatnonzero(~ids_index.duplicated())
    positions = ids_index[first].get_indexer(pd.Index(keys))
    return np.where(positions >= 0, first[positions], -1)


class _Places(NamedTuple):
    """First index of each id, in a table from the lowest id on: ids that recorders count have few
    gaps.
    """

    low: int
    first: Int32s

    def first_rows(self, ids: Int64s) -> Int64s:
        """The first row of each id, -1 where there is none."""
        # Ids below the lowest wrap around: all others fall on the last slot, which is unused.
        slot = np.minimum(
            (ids - np.int64(self.low)).view(np.uint64), np.uint64(len(self.first) - 1)
        )
        return self.first[slot.view(np.int64)].astype(np.int64)


def _places(ids: Int64s) -> _Places | None:
    """The places of ids; None where these lie too far apart for a table."""
    low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
    if high - low > _GAPS * len(ids) + _SMALL:
        return None
    first = np.full(high - low + 2, -1, np.int32)
    first[(ids - low)[::-1]] = np.arange(len(ids) - 1, -1, -1, dtype=np.int32)
    return _Places(low, first)


def _again(ids: Int64s) -> npt.NDArray[np.bool_]:
    """Mask of rows whose id occurs before."""
    places = _places(ids)
    if places is None:
        return np.asarray(pd.Index(ids).duplicated())
    return places.first_rows(ids) < np.arange(len(ids))


def taken(column: Int64s, rows: Int64s) -> Int64s:
    """The values of rows, `NONE` for the row -1."""
    result = np.full(len(rows), NONE)
    there = rows >= 0
    result[there] = column[rows[there]]
    return result


def among(values: Int64s, members: Int64s) -> npt.NDArray[np.bool_]:
    """Mask of values that are among others."""
    places = _places(members)
    if places is not None:
        return places.first_rows(values) >= 0
    return np.asarray(pd.Index(values).isin(members), np.bool_)


def row_of(tasks: Mapping[str, Int64s], ids: Int64s, times: Int64s) -> tuple[Int64s, int]:
    """The row of the task that each of some details is of, -1 where that is not known; and of how
    many it is not.

    A number of a task may be given out anew: then the time of the detail, which newer versions
    state, tells which task it is of.

    Parameters
    ----------
    tasks : mapping
        `globalTaskId`, `startNs` and `endNs`.
    ids, times : int64[k]
    """
    result = first_of(tasks["globalTaskId"], ids)
    if not len(ids):
        return result, 0
    twice = _again(tasks["globalTaskId"])
    if not twice.any():
        return result, 0
    again = np.flatnonzero(among(ids, tasks["globalTaskId"][twice]))
    result[again] = -1
    rows = np.flatnonzero(among(tasks["globalTaskId"], ids[again]))
    left = pd.DataFrame({"id": ids[again], "time": times[again], "at": again}).sort_values(
        "time", kind="stable"
    )
    right = pd.DataFrame(
        {"id": tasks["globalTaskId"][rows], "time": tasks["startNs"][rows], "row": rows}
    ).sort_values("time", kind="stable")
    near = pd.merge_asof(left, right, on="time", by="id").dropna(subset=["row"])
    row = near["row"].to_numpy(np.int64)
    is_within = near["time"].to_numpy(np.int64) <= tasks["endNs"][row]
    result[near["at"].to_numpy(np.int64)[is_within]] = row[is_within]
    return result, int((result[again] < 0).sum())
