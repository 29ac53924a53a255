"""Columns of SQLite databases as arrays, decoded from the pages many rows at a time.

Recorders export tables of millions of rows, and the standard library creates a Python object per
value: the 1.2 million events of `benchmarks/decode_nsys.py` take 0.4 s of CPU time here, and over
1 s to be fetched as tuples by `sqlite3` alone. Only the b-trees of ordinary tables are read
(https://www.sqlite.org/fileformat2.html). A damaged database is a `ReadError` that names the page,
and nothing outside the file is accessed.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from nbprof.core.distinct import Bytes, Int64s, distinct
from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer

MAGIC = b"SQLite format 3\0"
_LEAF, _INTERIOR = 0x0D, 0x05
_DEEPEST = 40
_MOST_PAGES = 64
_ROWS = 1 << 14
"""Rows that are decoded at a time, so that intermediate arrays stay in the processor's cache."""
_ENCODINGS = {0: "utf-8", 1: "utf-8", 2: "utf-16-le", 3: "utf-16-be"}
_TABLE = re.compile(rb"CREATE TABLE\s+(?:IF NOT EXISTS\s+)?[\"'`\[]?(\w{1,80})", re.IGNORECASE)
_NAME = re.compile(r"\s*(?:\"([^\"]*)\"|`([^`]*)`|\[([^\]]*)\]|'([^']*)'|(\w+))")
_CONSTRAINTS = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN")
_PRIMARY_KEY = re.compile(
    r"\s*(?:CONSTRAINT\s+\w+\s+)?PRIMARY\s+KEY\s*\(\s*[\"`\[]?(\w+)[\"`\]]?\s*\)", re.IGNORECASE
)
_INTEGER = re.compile(r"\s*INTEGER\b", re.IGNORECASE)
_INTEGER_PRIMARY_KEY = re.compile(
    r"\s*INTEGER\b.*\bPRIMARY\s+KEY\b(?!\s+DESC)", re.IGNORECASE | re.DOTALL
)

Column = npt.NDArray[Any]
"""int64, masked if some rows are NULL; float64 with NaN for NULL; or objects (str, bytes, None) if
there are texts or blobs.
"""

# Bytes of a value by its serial type: 0 to 11, and texts and blobs of up to 121 bytes.
_SIZES = np.array(
    [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((i - 12) // 2 for i in range(12, 256))], np.int64
)
# Bits to shift a word of eight bytes by, so that only those of the number are left.
_SHIFTS = np.where(np.arange(256) < 12, 64 - 8 * _SIZES, 0)
_REAL, _ONE = 7, 9
_NULL = np.array(None, object)


def tables_named(head: bytes) -> set[str]:
    """Names of tables in the first bytes of a database, maybe not all; none for other files."""
    if not head.startswith(MAGIC):
        return set()
    # Without zeros, UTF-16 reads like UTF-8.
    return {name.decode() for name in _TABLE.findall(head.replace(b"\0", b""))}


def stated_bytes(head: bytes) -> int:
    """Size of a database according to its header; 0 if it is not valid, or for other files."""
    if not head.startswith(MAGIC) or len(head) < 100 or head[24:28] != head[92:96]:
        # The count of pages is only valid if the last writer has updated it.
        return 0
    return _page_size(head) * int.from_bytes(head[28:32], "big")


def _page_size(head: bytes) -> int:
    """Bytes of a page; 1 stands for 65,536, which the two bytes cannot hold."""
    size = int.from_bytes(head[16:18], "big")
    return 65536 if size == 1 else size


def schema(file: BinaryIO) -> bytes:
    """Pages after the first one that declare the tables of a database, for `tables_named`.

    They may be anywhere in the file.
    """
    file.seek(0)
    size = _page_size(file.read(108))
    content = b""
    numbers = [1]
    for _ in range(_MOST_PAGES):
        if not numbers or size < 512:
            break
        number = numbers.pop(0)
        file.seek((number - 1) * size)
        page = file.read(size)
        header = 100 if number == 1 else 0
        if page[header : header + 1] == bytes([_INTERIOR]):
            count = int.from_bytes(page[header + 3 : header + 5], "big")
            cells = page[header + 12 : header + 12 + 2 * min(count, _MOST_PAGES)]
            for (offset,) in struct.iter_unpack(">H", cells[: len(cells) // 2 * 2]):
                numbers.append(int.from_bytes(page[offset : offset + 4], "big") or 1)
            numbers.append(int.from_bytes(page[header + 8 : header + 12], "big") or 1)
        elif number > 1:
            content += page
    return content


@dataclass(frozen=True)
class Table:
    """A table: its columns in order, the index of the one that is the rowid (-1: none), and its
    first page.
    """

    name: str
    columns: tuple[str, ...]
    rowid: int
    root: int


class Database:
    """An SQLite database in memory.

    Parameters
    ----------
    buffer : Buffer
    label : str
        Name in errors.

    Raises
    ------
    ReadError
        It is damaged, or not a database.

    Attributes
    ----------
    tables : dict of str to Table
        Ordinary tables by name.
    """

    def __init__(self, buffer: Buffer, label: str) -> None:
        self._buffer = buffer
        self._bytes: Bytes = buffer.array
        self._size = buffer.size
        self.label = label
        head = bytes(buffer.data[:100])
        if not head.startswith(MAGIC) or len(head) < 100:
            raise self._damaged("its header is missing")
        self._page = _page_size(head)
        if self._page < 512 or self._page & (self._page - 1):
            raise self._damaged(f"it declares pages of {self._page:,} bytes")
        self._usable = self._page - head[20]
        if self._usable < 480:
            raise self._damaged("its header is damaged")
        self._pages = self._size // self._page
        declared = stated_bytes(head) // self._page
        if declared > self._pages:
            raise ReadError(
                f"this SQLite database is truncated: {self._pages:,} of its {declared:,} pages are"
                " present. Copy or export it again.",
                path=label,
            )
        self._text = _ENCODINGS.get(int.from_bytes(head[56:60], "big"), "utf-8")
        self._rows_of: dict[int, Int64s] = {}
        self.tables = self._schema()

    def __contains__(self, table: object) -> bool:
        return table in self.tables

    def count(self, table: str) -> int:
        """Number of rows of a table; 0 if there is no table of that name."""
        if table not in self.tables:
            return 0
        return len(self._cells(self.tables[table].root))

    def read(self, table: str, *columns: str) -> dict[str, Column]:
        """Columns of a table by name, all by default; without those that it does not have.

        Empty if there is no such table.
        """
        if table not in self.tables:
            return {}
        declaration = self.tables[table]
        places = {name.lower(): i for i, name in enumerate(declaration.columns)}
        names = [name for name in columns or declaration.columns if name.lower() in places]
        index_of = {name: places[name.lower()] for name in names}
        return self._read(declaration, index_of)

    def _schema(self) -> dict[str, Table]:
        master = Table("sqlite_master", ("type", "name", "tbl_name", "rootpage", "sql"), -1, 1)
        rows = self._read(master, {name: i for i, name in enumerate(master.columns)})
        tables = {}
        for kind, name, root, sql in zip(
            *(rows[key].tolist() for key in ("type", "name", "rootpage", "sql")), strict=True
        ):
            # A virtual table has no page; one without rowids is another kind of tree.
            if (
                kind != "table"
                or not isinstance(sql, str)
                or not isinstance(name, str)
                or not isinstance(root, int)
                or root < 1
            ):
                continue
            if re.search(r"\)[^)]*\bWITHOUT\s+ROWID\b[^)]*\Z", sql, re.IGNORECASE):
                continue
            columns, rowid = _columns(sql)
            tables[name] = Table(name, columns, rowid, root)
        return tables

    def _damaged(self, reason: str) -> ReadError:
        return ReadError(
            f"this SQLite database is damaged: {reason}. Copy or export it again.", path=self.label
        )

    def _u16(self, offset: Int64s) -> Int64s:
        return (self._bytes[offset].astype(np.int64) << 8) | self._bytes[offset + 1]

    def _u32(self, offset: Int64s) -> Int64s:
        return (self._u16(offset) << 16) | self._u16(offset + 2)

    def _cells(self, root: int) -> Int64s:
        """Offsets of the rows of a table, in their order."""
        if root not in self._rows_of:
            self._rows_of[root] = self._walk(root)
        return self._rows_of[root]

    def _walk(self, root: int) -> Int64s:
        seen = np.zeros(self._pages + 1, np.bool_)
        level = np.array([root], np.int64)
        leaves: list[Int64s] = []
        for _ in range(_DEEPEST):
            if level.min() < 1 or level.max() > self._pages:
                raise self._damaged("a page of it is outside the file")
            if seen[level].any() or len(np.unique(level)) < len(level):
                raise self._damaged(f"page {int(level[0]):,} is in a tree twice")
            seen[level] = True
            base = (level - 1) * self._page
            head = base + np.where(level == 1, 100, 0)
            kind = self._bytes[head]
            if not np.isin(kind, (_LEAF, _INTERIOR)).all():
                bad = int(level[~np.isin(kind, (_LEAF, _INTERIOR))][0])
                raise self._damaged(f"page {bad:,} is not of a table")
            count = self._u16(head + 3)
            inner = kind == _INTERIOR
            first = head + np.where(inner, 12, 8)
            if (first - base + 2 * count > self._page).any():
                raise self._damaged(f"page {int(level[0]):,} declares more rows than fit in it")
            page = np.repeat(np.arange(len(level)), count)
            index = np.arange(len(page)) - np.repeat(np.cumsum(count) - count, count)
            cell = base[page] + self._u16(first[page] + 2 * index)
            if len(cell) and int(cell.max()) >= self._size:
                raise self._damaged("a row of it is outside the file")
            if not inner.any():
                leaves.append(cell)
                break
            # All leaves should have the same depth; a tree in which they have not is read as well.
            leaves.append(cell[~inner[page]])
            below = np.concatenate([self._u32(cell[inner[page]]), self._u32(head[inner] + 8)])
            order = np.lexsort(
                (
                    np.concatenate([index[inner[page]], count[inner]]),
                    np.concatenate([page[inner[page]], np.flatnonzero(inner)]),
                )
            )
            level = below[order]
        else:
            raise self._damaged("one of its trees does not end")
        return np.concatenate(leaves)

    def _varint(self, data: Bytes, offset: Int64s) -> tuple[Int64s, Int64s]:
        """Numbers of 1 to 9 bytes, and their ends."""
        byte = data[offset]
        value = byte.astype(np.int64)
        end = offset + 1
        long = np.flatnonzero(byte >= 0x80)
        if len(long):
            value[long] &= 0x7F
            for i in range(1, 9):
                byte = data[np.minimum(end[long], len(data) - 1)]
                end[long] += 1
                if i == 8:
                    value[long] = (value[long] << 8) | byte
                    break
                value[long] = (value[long] << 7) | (byte & 0x7F)
                long = long[byte >= 0x80]
                if not len(long):
                    break
        return value, end

    def _read(self, table: Table, index_of: dict[str, int]) -> dict[str, Column]:
        cells = self._cells(table.root)
        parts = {name: _Values(len(cells)) for name in index_of}
        rowid = np.zeros(len(cells), np.int64) if table.rowid in index_of.values() else None
        rows, total = np.arange(len(cells)), 0
        for low in range(0, len(cells), _ROWS):
            batch = slice(low, low + _ROWS)
            total += self._lockstep(cells[batch], rows[batch], table.name, index_of, parts, rowid)
            self._fit(total, table.name)
        columns = {name: values.column() for name, values in parts.items()}
        for name, index in index_of.items():
            if rowid is not None and index == table.rowid:
                columns[name] = rowid
        return columns

    def _fit(self, length: int, table: str) -> None:
        """Refuse rows that overlap each other: they could claim any amount of memory."""
        if not 0 <= length <= self._size:
            raise self._damaged(f"rows of {table} are longer than the file")

    def _lockstep(
        self,
        cells: Int64s,
        rows: Int64s,
        table: str,
        index_of: dict[str, int],
        parts: dict[str, _Values],
        rowid: Int64s | None,
    ) -> int:
        """Decode rows of any layout, one column of all rows at a time; returns their bytes."""
        length, start = self._varint(self._bytes, cells)
        number, start = self._varint(self._bytes, start)
        if rowid is not None:
            rowid[rows] = number
        total = int(length.sum())
        for count in (int(length.min()), int(length.max()), total):
            self._fit(count, table)
        over = length > self._usable - 35
        if not over.any():
            self._records(self._bytes, start, length, index_of, parts, _together(rows))
            return total
        if not over.all():
            self._records(self._bytes, start[~over], length[~over], index_of, parts, rows[~over])
        data, starts = self._overflowing(start[over], length[over], table)
        self._records(data, starts, length[over], index_of, parts, rows[over])
        return total

    def _overflowing(self, start: Int64s, length: Int64s, table: str) -> tuple[Bytes, Int64s]:
        """Rows that continue on overflow pages, joined, and the begin of each."""
        usable = self._usable
        least = (usable - 12) * 32 // 255 - 23
        joined = bytearray(8)
        starts = []
        data = self._buffer.data
        for begin, size in zip(start.tolist(), length.tolist(), strict=True):
            local = least + (size - least) % (usable - 4)
            if local > usable - 35:
                local = least
            starts.append(len(joined))
            end = len(joined) + size
            joined += data[begin : begin + local]
            page = int.from_bytes(data[begin + local : begin + local + 4], "big")
            while len(joined) < end:
                if not 1 <= page <= self._pages:
                    raise self._damaged(f"a row of {table} is continued outside the file")
                base = (page - 1) * self._page
                joined += data[base + 4 : base + 4 + min(usable - 4, end - len(joined))]
                page = int.from_bytes(data[base : base + 4], "big")
        joined += bytes(16)
        return np.frombuffer(bytes(joined), np.uint8), np.array(starts, np.int64)

    def _records(
        self,
        data: Bytes,
        start: Int64s,
        length: Int64s,
        index_of: dict[str, int],
        parts: dict[str, _Values],
        rows: Int64s | slice,
    ) -> None:
        """Decode the values of some records."""
        if not len(start) or not index_of:
            return
        last = max(index_of.values()) + 1
        if int((start + length).max()) > len(data):
            raise self._damaged("a row of it is outside the file")
        head, first = self._varint(data, start)
        if (head < 1).any() or (head > length).any():
            raise self._damaged("the header of a row is damaged")
        width = int(min(last, (head - (first - start)).max(initial=0)))
        # A row has fewer values than the table has columns if columns were added later.
        types: npt.NDArray[Any] = np.zeros((0, len(start)), np.uint8)
        if width:
            types = np.ascontiguousarray(_windows(data, first, width).T)
        if int(head.min()) - int((first - start).max()) < width:
            types = np.where(first + np.arange(width)[:, None] < start + head, types, np.uint8(0))
        if (types >= 0x80).any():
            types = self._wide_types(data, first, start + head, last)
        end = start + head
        ends: dict[int, tuple[Int64s, int, int]] = {}
        used = set(index_of.values())
        for index, column in enumerate(types):
            low, high = int(column.min()), int(column.max())
            if high >= len(_SIZES):
                end = end + np.where(
                    column < 12, _SIZES[np.minimum(column, 11)], (column - 12) // 2
                )
            elif low < high:
                end = end + _SIZES[column]
            elif _SIZES[low]:
                end = end + _SIZES[low]
            if index in used:
                ends[index] = end, low, high
        if (end > start + length).any():
            raise self._damaged("a row ends before its values do")
        view = np.ndarray((len(data) - 7,), ">i8", data, 0, (1,))
        for name, index in index_of.items():
            if index in ends:
                stop, low, high = ends[index]
                # The last byte of a number is the lowest. Texts follow below.
                begin = stop - 8
                if high >= 12:
                    begin = np.where(types[index] < 12, begin, 0)
                numbers = view[begin].astype(np.int64)
                parts[name].put(rows, numbers, types[index], low, high)
                if high >= 12:
                    parts[name].put_texts(rows, data, stop, types[index], self._text)
            else:
                parts[name].nulls(rows)

    def _wide_types(self, data: Bytes, offset: Int64s, end: Int64s, columns: int) -> Int64s:
        """Serial types of one or more bytes: long texts have larger ones."""
        types = np.zeros((columns, len(offset)), np.int64)
        for i in range(columns):
            value, after = self._varint(data, np.minimum(offset, len(data) - 1))
            here = offset < end
            types[i] = np.where(here, value, 0)
            offset = np.where(here, after, offset)
        if (types < 0).any() or (types > 2 * len(data)).any():
            raise self._damaged("the header of a row is damaged")
        return types


def _windows(data: Bytes, offset: Int64s, width: int) -> Bytes:
    """uint8[n, width]: bytes from each offset on; the last byte of the data is repeated."""
    room = len(data) - width
    if room < 0 or int(offset.max()) > room:
        few: Bytes = data[np.minimum(offset[:, None] + np.arange(width), len(data) - 1)]
        return few
    view = np.ndarray((room + 1,), np.dtype((np.void, width)), data, 0, (1,))
    rows: Bytes = view[offset].view(np.uint8)
    return rows.reshape(len(offset), width)


def _together(rows: Int64s) -> Int64s | slice:
    """Ascending rows as a slice if they are consecutive, which is faster to assign to."""
    if not len(rows) or int(rows[-1]) - int(rows[0]) != len(rows) - 1:
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


class _Values:
    """The values of one column while rows are decoded."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._numbers: Int64s = np.zeros(count, np.int64)
        self._null: npt.NDArray[np.bool_] | None = None
        self._real: npt.NDArray[np.bool_] | None = None
        self._texts: npt.NDArray[np.object_] | None = None

    def nulls(self, rows: Int64s | slice) -> None:
        """Store NULL in some rows."""
        self._null = self._flags(self._null)
        self._null[rows] = True

    def _flags(self, flags: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
        return np.zeros(self._count, np.bool_) if flags is None else flags

    def put(
        self, rows: Int64s | slice, ending: Int64s, types: npt.NDArray[Any], low: int, high: int
    ) -> None:
        """Store numbers, given the eight bytes that end with each, of serial types from `low` to
        `high`.
        """
        if high == 0:
            self.nulls(rows)
            return
        if low == high:
            shift = _SHIFTS[min(low, 12)]
        elif high < 256:
            shift = _SHIFTS[types]
        else:
            shift = _SHIFTS[np.minimum(types, 12)]
        value = ending
        if low != high or shift:
            value = (ending << shift) >> shift
        if low <= _ONE <= high:
            value += types == _ONE
        self._numbers[rows] = value
        if low == 0:
            self._null = self._flags(self._null)
            self._null[rows] = types == 0
        if low <= _REAL <= high and (types == _REAL).any():
            self._real = self._flags(self._real)
            self._real[rows] = types == _REAL

    def put_texts(
        self, rows: Int64s | slice, data: Bytes, end: Int64s, types: npt.NDArray[Any], text: str
    ) -> None:
        """Store texts and blobs, given the ends of the values; equal ones become one object."""
        if self._texts is None:
            self._texts = np.full(self._count, None, object)
        text_rows = np.flatnonzero(types >= 12)
        kind = types[text_rows].astype(np.int64)
        length = (kind - 12) // 2
        codes, distinct_values = distinct(data, end[text_rows] - length, length)
        values = np.array(
            [*(str(value, text, "replace") for value in distinct_values), None], object
        )[codes]
        if (blob := kind & 1 == 0).any():
            values[blob] = np.array([*distinct_values, None], object)[codes[blob]]
        if isinstance(rows, slice):
            self._texts[rows][text_rows] = values
        else:
            self._texts[rows[text_rows]] = values

    def column(self) -> Column:
        """The values as one array."""
        null, numbers = self._null, self._numbers
        reals = numbers.view(np.float64)
        if self._texts is not None:
            values = self._texts
            other = no_value(values)
            if null is not None:
                other &= ~null
            is_real = self._flags(self._real)
            for i in np.flatnonzero(other).tolist():
                values[i] = float(reals[i]) if is_real[i] else int(numbers[i])
            return values
        if self._real is not None:
            combined = np.where(self._real, reals, numbers.astype(np.float64))
            if null is not None:
                combined[null] = np.nan
            return combined
        if null is not None:
            return np.ma.MaskedArray(numbers, null)
        return numbers


def no_value(column: Column) -> npt.NDArray[np.bool_]:
    """Rows that are NULL, as a mask."""
    if column.dtype == np.float64:
        return np.isnan(column)
    if column.dtype == object:
        return np.asarray(column == _NULL, np.bool_)
    return np.ma.getmaskarray(column)


def integers(column: Column, missing: int = -1) -> Int64s:
    """The integers of a column; `missing` for NULL and for values of other types."""
    if column.dtype == np.int64:
        return np.ma.filled(column, missing)
    if column.dtype == np.float64:
        good = np.isfinite(column) & (np.abs(column) < 2**63)
        return np.where(good, np.where(good, column, 0).astype(np.int64), missing)
    return np.array(
        [value if isinstance(value, int) else missing for value in column.tolist()], np.int64
    )


def floats(column: Column) -> npt.NDArray[np.float64]:
    """The numbers of a column; NaN for NULL and for values of other types."""
    if column.dtype == np.int64:
        return np.ma.filled(np.ma.asarray(column).astype(np.float64), np.nan)
    if column.dtype == np.float64:
        return column
    return np.array(
        [value if isinstance(value, (int, float)) else np.nan for value in column.tolist()],
        np.float64,
    )


def texts(column: Column) -> list[str]:
    """The texts of a column; numbers are formatted, '' for NULL."""
    return ["" if value is None else str(value) for value in column.tolist()]


def _columns(sql: str) -> tuple[tuple[str, ...], int]:
    """Names of the columns of a CREATE TABLE statement, and the index of the rowid among them."""
    names: list[str] = []
    is_integer: dict[str, bool] = {}
    rowid, key = -1, ""
    for part in _definitions(sql):
        match = _NAME.match(part)
        if match is None:
            continue
        name = next(group for group in match.groups() if group is not None)
        if match[5] and name.upper() in _CONSTRAINTS:
            single = _PRIMARY_KEY.match(part)
            if single is not None:
                key = single[1].lower()
            continue
        declaration = part[match.end() :]
        if _INTEGER_PRIMARY_KEY.match(declaration):
            rowid = len(names)
        is_integer.setdefault(name.lower(), _INTEGER.match(declaration) is not None)
        names.append(name)
    if rowid < 0 and is_integer.get(key):
        rowid = [name.lower() for name in names].index(key)
    return tuple(names), rowid


_QUOTES = {'"': '"', "'": "'", "`": "`", "[": "]"}
"""The end of a quoted name, by its begin."""


def _definitions(sql: str) -> list[str]:
    """The column definitions and constraints of a CREATE TABLE statement."""
    text = re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)
    body = text[text.find("(") + 1 :]
    parts, depth, begin, quote = [], 0, 0, ""
    for index, letter in enumerate(body):
        if quote:
            if letter == quote:
                quote = ""
        elif letter in _QUOTES:
            quote = _QUOTES[letter]
        elif letter == "(":
            depth += 1
        elif letter == ")" and depth:
            depth -= 1
        elif letter in ",)" and not depth:
            parts.append(body[begin:index])
            begin = index + 1
            if letter == ")":
                break
    return parts
