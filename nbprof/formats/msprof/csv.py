"""Reads the CSV files of Ascend's profilers into typed columns: exact times, ids without
placeholder numbers.

What the exporters and the hands after them leave in such files is expected: times with a TAB behind
or quotes around, lines that end in LF and CRLF in one file, rows shorter or longer than the header,
texts where numbers are due, several headers in one file. Each is counted, and costs itself only.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s
from nbprof.formats.msprof import decimals, notes
from nbprof.formats.msprof.columns import Column, columns, header_of, kind_of, words

NONE_32, NONE_64 = 4294967295, 2**63 - 1
"""What ids hold that mean none: 2^32 - 1, and all from 2^63 - 1 on (2^64 - 1, also after a round
trip through a float).
"""
_WRAP_US = Decimal(2**64) / 1000
"""What a difference of -1 ns becomes, in µs, where it was unsigned: 18446744073709551.616 less
it.
"""
_NA = ["N/A", "", "NA", "NaN", "nan", "null", "None", "n/a"]
LONGEST_US = 2**61 // 10**6
"""26 days. A moment, what is added to it for another begin, and a duration are ps that int64 holds
together.
"""
MOST_BYTES = 2**53
"""What float64 counts exactly."""
_MORE = 8
_MEASURED = ("_us", "_ms", "_bytes", "_percent", "_ratio", "_per_second", "_cycles")
"""What a name ends in that is a number whatever the file holds."""
_LARGE = 1 << 25


@dataclass(eq=False)
class Section:
    """The rows under one header of a file.

    Attributes
    ----------
    kind : str
        Which table it is, '' where its header is not known.
    header : list of str
    frame : DataFrame
        Time columns count ps from `base_ns`.
    base_ns : int
        0 where the table has no times.
    doubts : list of Note
        Each text ends a sentence that begins with the file's name.
    """

    kind: str
    header: list[str]
    frame: pd.DataFrame
    base_ns: int
    doubts: list[Note] = field(default_factory=list)


def read(data: bytes) -> list[Section]:
    """The tables of one file, mostly one."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    return [_section(part) for part in _parts(data)]


def _parts(data: bytes) -> list[bytes]:
    """A file cut where another header begins: people put such files one behind the other."""
    first = data.split(b",", 1)[0].strip()
    if not first or not words(first.decode("utf-8", "replace"))[0]:
        return [data]
    parts, begin = [], 0
    for match in re.finditer(rb"\n(?=%b,)" % re.escape(first), data):
        if kind_of(header_of(data[match.end() : match.end() + 8192])):
            parts.append(data[begin : match.end()])
            begin = match.end()
    return [*parts, data[begin:]]


def _section(data: bytes) -> Section:
    header = header_of(data[:65536])
    kind = kind_of(header)
    doubts: list[Note] = []
    specs = columns(kind, header)
    end = data.find(b"\n")
    body = data[end + 1 :] if end >= 0 else b""
    raw = _rows(body, specs, doubts)
    if raw is None:
        empty = pd.DataFrame({spec.name: [] for spec in specs})
        return Section(kind, header, empty, 0, doubts)
    result: dict[str, object] = {}
    times: dict[str, tuple[Int64s, Int64s, npt.NDArray[np.bool_]]] = {}
    for index, spec in enumerate(specs):
        column = raw[index]
        if spec.kind == "time":
            times[spec.name] = _times(column, spec, doubts)
            result[spec.name] = None
        elif spec.kind == "id":
            result[spec.name] = _ids(column, spec.name, doubts)
        elif spec.kind == "text" or _holds_texts(column, spec):
            result[spec.name] = _texts(column)
        else:
            result[spec.name] = _numbers(column, spec, doubts)
    every = [np.zeros(0, np.int64), *(us[good] for us, _, good in times.values())]
    base = int(min((us.min() for us in every if len(us)), default=0))
    for name, (us, frac, good) in times.items():
        far = good & (us - base > LONGEST_US)
        if far.any():
            doubts.append(notes.far_times(name, int(far.sum())))
            good = good & ~far
        ps = (np.where(good, us, base) - base) * 1_000_000 + frac
        result[name] = pd.arrays.IntegerArray(np.where(good, ps, 0), ~good)
    frame = pd.DataFrame(result, copy=False)
    return Section(kind, header, frame, base * 1000, doubts)


def _rows(body: bytes, specs: list[Column], doubts: list[Note]) -> pd.DataFrame | None:
    """The rows as pandas reads them, columns by number; None where there is none."""
    width = len(specs)
    if len(body) <= _LARGE:
        _ragged(body, width, doubts)
    types: dict[int, str] = {}
    for i, spec in enumerate(specs):
        # An unsigned number that wrapped around has more digits than a float64 holds.
        wraps = spec.kind == "number" and spec.name.startswith("reduce_")
        if spec.kind == "text":
            types[i] = "category"
        elif spec.kind == "time" or wraps:
            types[i] = "str"
    options: dict[str, Any] = {
        "header": None,
        "names": range(width + _MORE),
        "index_col": False,
        "na_values": _NA,
        "keep_default_na": False,
        "low_memory": False,
        "encoding_errors": "replace",
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            raw: pd.DataFrame = pd.read_csv(
                io.BytesIO(body), dtype=types, on_bad_lines="warn", **options
            )
        except pd.errors.EmptyDataError:
            return None
        except pd.errors.ParserError:
            # A quote that is never closed takes the rest of the file; taken for a letter, it costs
            # its own row.
            doubts.append(notes.unclosed_quote())
            raw = pd.read_csv(
                io.BytesIO(body), on_bad_lines="skip", quoting=csv.QUOTE_NONE, **options
            )
    lost = sum(str(warning.message).count("expected") for warning in caught)
    if lost:
        doubts.append(notes.overlong_rows(lost))
    if len(body) > _LARGE:
        long = raw[range(width, width + _MORE)].notna().any(axis=1)
        if long.any():
            doubts.append(notes.long_rows(int(long.sum())))
    return raw


def _ragged(body: bytes, width: int, doubts: list[Note]) -> None:
    """Tells of rows that have more or fewer cells than the header, and of line ends of two
    kinds.
    """
    data = np.frombuffer(body, np.uint8)
    odd = np.logical_xor.accumulate(data == 0x22)
    ends = np.flatnonzero((data == 0x0A) & ~odd)
    bounds = np.concatenate([[0], ends + 1, [len(data)]])
    commas = np.concatenate([[0], np.cumsum((data == 0x2C) & ~odd)])
    cells = commas[bounds[1:]] - commas[bounds[:-1]] + 1
    filled = np.diff(bounds) > 2
    short, long = filled & (cells < width), filled & (cells > width)
    if short.any():
        doubts.append(notes.short_rows(int(short.sum())))
    if long.any():
        doubts.append(notes.long_rows(int(long.sum())))
    returns = int((data[ends[ends > 0] - 1] == 0x0D).sum())
    if 0 < returns < len(ends):
        doubts.append(notes.mixed_line_endings())


def _holds_texts(column: pd.Series, spec: Column) -> bool:
    """True if most values of a column that may hold anything are no numbers."""
    if spec.name.endswith(_MEASURED) or column.dtype.kind in "biuf":
        return False
    present = _bare(column.dropna().head(1000))
    numbers = pd.to_numeric(present, errors="coerce").count()
    return bool(2 * numbers <= len(present) > 0)


def _bare(column: pd.Series) -> pd.Series:
    return column.astype(str).str.strip(' \t\r\n"')


def _floats(
    column: pd.Series, name: str, doubts: list[Note], none: tuple[str, ...] = ()
) -> npt.NDArray[np.float64]:
    """Numbers, NaN where there is none; a text where a number is due is counted."""
    if column.dtype.kind in "biuf":
        return column.to_numpy(np.float64)
    text = _bare(column.astype(object).where(column.notna(), ""))
    result = pd.to_numeric(text, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = np.isnan(result) & ~text.isin([*_NA, *none]).to_numpy()
    if bad.any():
        example = str(text[bad].iloc[0])[:40]
        if not example.isprintable():
            example = "?"
        doubts.append(notes.texts_for_numbers(name, int(bad.sum()), example))
    return result


def _exact(text: str, value: float) -> Decimal:
    """A number as it is written; where pandas reads it and `decimal` does not, as pandas does."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal(value)


def _numbers(column: pd.Series, spec: Column, doubts: list[Note]) -> npt.NDArray[np.float64]:
    result = _floats(column, spec.name, doubts)
    if spec.name.endswith("_us"):
        under = result > float(_WRAP_US) / 2
        if under.any():
            # As text, for a float64 of this size keeps steps of 4 µs.
            texts = _bare(column.astype(object)[under])
            exact = map(_exact, texts, result[under].tolist())
            result = result.copy()
            result[under] = [float(abs(number - _WRAP_US)) for number in exact]
            doubts.append(notes.unsigned_differences(spec.name, int(under.sum())))
    infinite = np.isinf(result)
    if infinite.any():
        result = np.where(infinite, np.nan, result)
        doubts.append(notes.infinite_values(spec.name, int(infinite.sum())))
    if spec.scale != 1.0:
        with np.errstate(over="ignore"):
            result = result * spec.scale
    for unit, limit, much in (("_us", LONGEST_US, "26 days"), ("_bytes", MOST_BYTES, "8 PiB")):
        if not spec.name.endswith(unit):
            continue
        beyond = np.abs(result) > limit
        if beyond.any():
            result = np.where(beyond, np.nan, result)
            doubts.append(notes.impossible_values(spec.name, int(beyond.sum()), much))
    return result


def _ids(column: pd.Series, name: str, doubts: list[Note]) -> pd.arrays.IntegerArray:
    if column.dtype.kind == "i":
        values = column.to_numpy(np.int64)
        none = (values == NONE_32) | (values < 0)
    else:
        numbers = _floats(column, name, doubts, ("host", "Host"))
        with np.errstate(invalid="ignore"):
            none = np.isnan(numbers) | (numbers == NONE_32) | (numbers >= NONE_64) | (numbers < 0)
        values = np.where(none, 0, numbers).astype(np.int64)
    return pd.arrays.IntegerArray(np.where(none, 0, values), none)


def _texts(column: pd.Series) -> pd.Categorical:
    """Texts, each kept once, without the TABs and quotes around them that keep spreadsheets from
    reading them as numbers.
    """
    coded = column.array
    if not isinstance(coded, pd.Categorical):
        coded = pd.Categorical(column.where(column.isna(), column.astype(str)))
    bare = [str(text).strip(' \t\r\n"') for text in coded.categories]
    present = [None if text in _NA else text for text in bare]
    codes, names = pd.factorize(np.array(present, object))
    categories = pd.Index(names, dtype=object)
    return pd.Categorical.from_codes(np.append(codes, -1)[coded.codes], categories=categories)


def _lines(values: Sequence[object]) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """Cells as the lines of one text, padded; and where each begins and ends in it."""
    lines = "\n".join(map(str, values))
    if lines.count("\n") != len(values) - 1:
        lines = "\n".join(str(value).replace("\n", " ") for value in values)
    text = lines.replace('"', " ").encode("ascii", "replace")
    data = np.frombuffer(text + b"\n" + b"\0" * (decimals.PADDING + 8), np.uint8)
    ends = np.flatnonzero(data == 0x0A)[: len(values)]
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(values) else np.zeros(0, np.int64)
    blank = data[starts] == 0x20
    # Quotes around a value have become spaces.
    while blank.any():
        starts = starts + blank
        blank = data[starts] == 0x20
    return data, starts, ends


def _times(
    column: pd.Series, spec: Column, doubts: list[Note]
) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Decimal µs as whole µs and ps behind them; float64 would keep no more than a quarter of a µs
    of a date.
    """
    values = column.astype(object).where(column.notna(), "").tolist()
    data, starts, ends = _lines(values)
    read = decimals.decimals(data, decimals.words(data), starts)
    empty = starts >= ends
    # A point without digits behind it is a whole number.
    bare_point = (
        ~read.good
        & (read.digits > 0)
        & (read.digits <= 16)
        & (read.decimals == 0)
        & (data[starts + read.digits] == 0x2E)
    )
    bare_point &= data[np.minimum(starts + read.digits + 1, len(data) - 1)] <= 0x20
    good = (
        (read.good & (data[read.end] <= 0x20) | bare_point)
        & ~read.negative
        & ~empty
        & (read.digits <= 16)
    )
    ps = (
        read.part * 10 ** np.maximum(6 - read.decimals, 0) // 10 ** np.maximum(read.decimals - 6, 0)
    )
    us = read.integer
    if spec.scale < 1.0:
        ps = us % 1000 * 1000 + ps // 1000
        us = us // 1000
    elif spec.scale > 1.0:
        # ms: a point and six digits are whole ns.
        us, ps = us * 1000 + ps // 1000, ps % 1000 * 1000
    rounded = ~good & ~empty & (read.digits > 0)
    bad = ~good & ~empty & ~rounded
    if rounded.any():
        example = str(values[int(np.flatnonzero(rounded)[0])]).strip()[:24]
        doubts.append(notes.rounded_times(spec.name, int(rounded.sum()), example))
    if bad.any():
        doubts.append(notes.texts_for_times(spec.name, int(bad.sum())))
    # A moment of 0 is one that the exporter did not know.
    good &= (us != 0) | (ps != 0)
    return np.where(good, us, 0), np.where(good, ps, 0), good
