"""The payload of the page as compact bytes and back: the counterpart of js/lib/codec.ts.

The container: length of the header (4 bytes, little endian), header (UTF-8 JSON), zero padding to a
multiple of 8, then the arrays, each aligned to 8. A saved payload is compressed by gzip, an answer
to a waiting page is not; the first two bytes distinguish them. In the header an array is `{"$":
[dtype, offset, length]}`. A compressed payload may have a fourth element of the words `"delta"`
(first differences are stored) and `"planes"` (first bytes of all elements, then second bytes …, if
gzip compresses that better); its arrays are sorted by type, and equal ones are stored once.

As text it is in base 85, which is a sixteenth shorter than base 64: the alphabet of RFC 1924
without characters that have a meaning in HTML.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.errors import ReadError
from nbprof.core.plain_json import scalar
from nbprof.display.payload import Codes, Part

Array = npt.NDArray[Any]

_TYPES = {"f8": "<f8", "f4": "<f4", "i4": "<i4", "u4": "<u4", "u2": "<u2", "u1": "<u1"}
_PLAIN = (str, int, bool, type(None))
"""Types that JSON holds unchanged: most values of a payload."""
_CODES = {np.dtype(dtype): code for code, dtype in _TYPES.items()} | {np.dtype(np.bool_): "u1"}
_DTYPES = {code: np.dtype(dtype) for code, dtype in _TYPES.items()}
_ORDER = {code: i for i, code in enumerate(_TYPES)}
_KEEP_BITS = 32
_GZIP = b"\x1f\x8b"
_UNSIGNED = tuple((dtype, int(np.iinfo(dtype).max)) for dtype in (np.uint8, np.uint16, np.uint32))
_LEAST_PLANES = 256
"""Bytes from which an array is compressed both ways to choose the better one."""
_FROM_HTML = bytes.maketrans(b".,:[", b"<&$`")
_RFC_1924 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
LETTERS = _RFC_1924.translate(str.maketrans("<&$`", ".,:["))
"""The 85 letters of `to_text`, by their value."""


@dataclass(frozen=True)
class Delta:
    """An integer array to store as first differences: gzip compresses rising values far better."""

    values: Array


class Coded(Part):
    """A text column, dictionary coded: row i holds `values[codes[i]]`. Missing text is ""."""

    codes: Codes
    values: list[str]


def pack(payload: Part | dict[str, Any]) -> bytes:
    """The payload as bytes that are small enough for a notebook.

    Parameters
    ----------
    payload : Part or dict
        JSON values, numpy arrays, parts and `Delta`. NaN outside an array becomes null.

    Raises
    ------
    ValueError
        A value that the container cannot hold; the message has its path.
    """
    # Level 8 takes twice as long for a hundredth, level 9 four times as long.
    return gzip.compress(_contain(payload, _Writer(packed=True)), 7, mtime=0)


def to_text(data: bytes) -> str:
    """Bytes as text without characters that a page or JSON would escape."""
    spare = -len(data) % 4
    words = np.frombuffer(data + bytes(spare), ">u4").astype(np.uint32)
    digits = np.empty((len(words), 5), np.uint8)
    for digit in range(4, -1, -1):
        words, digits[:, digit] = np.divmod(words, 85)
    text = np.frombuffer(LETTERS.encode(), np.uint8)[digits].tobytes().decode()
    return text[: len(text) - spare]


def from_text(text: str) -> bytes:
    """The bytes of `to_text`."""
    return base64.b85decode(text.encode().translate(_FROM_HTML))


def contain(payload: Part | dict[str, Any]) -> bytes:
    """The same without gzip: for an answer on this machine, compression would only cost time.

    Raises
    ------
    ValueError
        As `pack`.
    """
    return _contain(payload, _Writer())


def _contain(payload: Part | dict[str, Any], writer: _Writer) -> bytes:
    plain = writer.plain(payload, "")
    arrays = writer.arrays()
    header = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate in foreign text is not UTF-8; it becomes "?".
    text = header.encode("utf-8", "replace")
    if struct.pack("<I", len(text)).startswith(_GZIP):
        # A header of this length would look like gzip.
        text += b" "
    head = struct.pack("<I", len(text)) + text
    return head + bytes(-len(head) % 8) + arrays


def unpack(data: bytes) -> dict[str, Any]:
    """The payload that `pack` or `contain` wrote, arrays as numpy arrays.

    Raises
    ------
    ReadError
        The bytes are not such a container.
    """
    try:
        body = gzip.decompress(data) if data[:2] == _GZIP else data
    except (OSError, EOFError, ValueError) as error:
        raise ReadError(f"this is not packed profile data ({error})") from error
    if len(body) < 4:
        raise ReadError("the packed profile data ends before its header", offset=len(body))
    (length,) = struct.unpack_from("<I", body)
    if 4 + length > len(body):
        subject = "the header" if body is not data else "this is not packed profile data: a header"
        raise ReadError(
            f"{subject} claims {length:,} bytes, {len(body) - 4:,} are present", offset=4
        )
    try:
        header = json.loads(body[4 : 4 + length])
    except ValueError as error:
        raise ReadError(
            f"the header of the packed profile data is not JSON ({error})", offset=4
        ) from error
    start = 4 + length + (-(4 + length) % 8)
    payload: dict[str, Any] = _rich(header, body, start)
    return payload


def coded(texts: Iterable[object]) -> Coded:
    """A text column as codes into its distinct values, in order of first appearance; missing text
    becomes "".
    """
    values: dict[str, int] = {}
    codes = [values.setdefault(_text(text), len(values)) for text in texts]
    return Coded(codes=smallest(np.array(codes, np.int64)), values=list(values))


def smallest(values: Array) -> Array:
    """The narrowest unsigned array that holds these non-negative integers."""
    top = int(values.max()) if len(values) else 0
    if len(values) and values.dtype.kind != "u" and int(values.min()) < 0:
        raise ValueError("a negative number among codes or counts")
    for dtype, limit in _UNSIGNED:
        if top <= limit:
            return values.astype(dtype)
    raise ValueError(f"{top:,} does not fit into 32 bits")


def short(values: Iterable[float] | Array) -> npt.NDArray[np.float64]:
    """float64 rounded to 32 bits of mantissa (relative error < 2e-10) for better compression."""
    exact = np.array(values, np.float64)
    mantissa, exponent = np.frexp(exact)
    scale = float(1 << _KEEP_BITS)
    rounded: npt.NDArray[np.float64] = np.ldexp(np.round(mantissa * scale) / scale, exponent)
    # Integers (bytes, counts) stay exact whatever their size.
    integral = exact == np.trunc(exact)
    rounded[integral] = exact[integral]
    return rounded


def numbers(values: Iterable[Any] | Array) -> Array:
    """A number column in the smallest exact type, missing values as NaN."""
    exact = np.array(values, np.float64)
    if (
        len(exact)
        and np.isfinite(exact).all()
        and (exact >= 0).all()
        and (exact == np.trunc(exact)).all()
        and exact.max() < 2**32
    ):
        return smallest(exact)
    exact[~np.isfinite(exact)] = np.nan
    with np.errstate(over="ignore"):
        narrow = exact.astype(np.float32)
    if np.array_equal(narrow.astype(np.float64), exact, equal_nan=True):
        return narrow
    return exact


class _Writer:
    def __init__(self, *, packed: bool = False) -> None:
        self._packed = packed
        self._arrays: list[tuple[list[Any], bytes]] = []

    def plain(self, value: Any, path: str) -> Any:
        if isinstance(value, (dict, Part)):
            if isinstance(value, dict) and "$" in value:
                raise ValueError(f'{path or "payload"}: a key "$" would be mistaken for an array')
            fields: dict[str, Any] = {}
            for key, item in value.items():
                if type(item) not in _PLAIN:
                    item = self.plain(item, f"{path}.{key}".lstrip("."))
                fields[str(key)] = item
            return fields
        if isinstance(value, (list, tuple)):
            items: list[Any] = []
            for index, item in enumerate(value):
                if type(item) not in _PLAIN:
                    item = self.plain(item, f"{path}[{index}]")
                items.append(item)
            return items
        if isinstance(value, Delta):
            return {"$": self._store(_differences(value.values, path), path, "delta")}
        if isinstance(value, np.ndarray):
            return {"$": self._store(value, path)}
        return _scalar(value, path)

    def _store(self, values: Array, path: str, coding: str = "") -> list[Any]:
        code = _type_of(values, path)
        data = values.astype(_DTYPES[code], copy=False).tobytes()
        if self._packed and len(data) >= _LEAST_PLANES and (size := _DTYPES[code].itemsize) > 1:
            planes = np.frombuffer(data, np.uint8).reshape(-1, size).T.tobytes()
            # A fast level is enough for the comparison.
            if len(zlib.compress(planes, 3)) < len(zlib.compress(data, 3)):
                data, coding = planes, f"{coding} planes".strip()
        reference = [code, 0, len(values), *([coding] if coding else [])]
        self._arrays.append((reference, data))
        return reference

    def arrays(self) -> bytes:
        """The bytes of all arrays; sets their offsets in the references that `plain` returned."""
        if self._packed:
            # Gzip compresses similar data better: arrays of one type side by side.
            self._arrays.sort(key=lambda array: (_ORDER[array[0][0]], array[0][3:]))
        offsets: dict[bytes, int] = {}
        end = 0
        for reference, data in self._arrays:
            reference[1] = offsets.setdefault(data, end)
            if reference[1] == end:
                end += len(data) + -len(data) % 8
        return b"".join(data + bytes(-len(data) % 8) for data in offsets)


def _type_of(values: Array, path: str) -> str:
    if values.ndim != 1:
        raise ValueError(
            f"{path}: an array of {values.ndim} dimensions; only columns can be packed"
        )
    code = _CODES.get(values.dtype) or f"{values.dtype.kind}{values.dtype.itemsize}"
    if code not in _TYPES:
        raise ValueError(
            f"{path}: arrays of {values.dtype} cannot be packed; use one of {', '.join(_TYPES)}"
        )
    return code


def _differences(values: Array, path: str) -> Array:
    wide = values.astype(np.int64)
    steps = wide.copy()
    steps[1:] -= wide[:-1]
    if len(wide) == 0 or (wide.min() >= 0 and steps.min() >= 0 and wide.max() < 2**32):
        return steps.astype(np.uint32)
    limits = np.iinfo(np.int32)
    if min(wide.min(), steps.min()) < limits.min or max(wide.max(), steps.max()) > limits.max:
        raise ValueError(f"{path}: values that do not fit into 32 bits")
    return steps.astype(np.int32)


def _scalar(value: Any, path: str) -> Any:
    try:
        return scalar(value)
    except TypeError:
        raise ValueError(f"{path}: a {type(value).__name__} cannot be packed") from None


def _rich(value: Any, body: bytes, start: int) -> Any:
    if isinstance(value, list):
        return [_rich(item, body, start) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: _rich(item, body, start) for key, item in value.items()}
    code, offset, length, *rest = value["$"]
    dtype = np.dtype(_TYPES[code])
    begin = start + offset
    if begin + length * dtype.itemsize > len(body):
        raise ReadError("an array reaches past the end of the packed profile data", offset=begin)
    coding = rest[0].split() if rest else []
    if "planes" in coding:
        body, begin = (
            np.frombuffer(body, np.uint8, length * dtype.itemsize, begin)
            .reshape(dtype.itemsize, length)
            .T.tobytes(),
            0,
        )
    array: Array = np.frombuffer(body, dtype, length, begin)
    return np.cumsum(array, dtype=dtype) if "delta" in coding else array


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or value != value or type(value).__name__ == "NAType":
        return ""
    return str(value)
