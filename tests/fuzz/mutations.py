"""Ways to damage a file: its bytes, a tree of JSON, a table, the fields of a protobuf message, and
the archives around it.
"""

from __future__ import annotations

import bz2
import copy
import csv
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

from tests.support.xspace import chunk, varint

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x2C, 0x5B, 0x5D, 0x7B, 0x7D, 0x30, 0x2D)
NUMBERS: tuple[Any, ...] = (
    *(
        0,
        -1,
        1,
        2**31,
        2**32 - 1,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63),
        -(2**64),
        10**30,
        10**400,
    ),
    *(0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
)
TEXTS: tuple[Any, ...] = (
    "",
    " ",
    "0",
    "-1",
    "NaN",
    "1e999",
    "0x7fffffff",
    "None",
    "null",
    "\x00",
    "\ud800",
    "a" * 5000,
    "µ\u202e",
    "[",
    "%s",
)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": None},
    [[1, 2], []],
    {"a": {"b": [1]}},
)
CELLS = (
    *(
        "",
        "N/A",
        "NaN",
        "inf",
        "-inf",
        "-1",
        "0",
        "1e308",
        "1e999",
        "18446744073709551615",
        "9" * 40,
        "0x10",
        "1,2",
        '"',
        '"a',
        "\t12\t",
    ),
    *(
        "text",
        "\x00",
        "µ",
        "1.5",
        "2026-01-01",
        "True",
        " ",
        "4294967295",
        "-9223372036854775808",
        "1e-320",
        ";;",
        "a" * 3000,
        "1_000",
    ),
)


def of_bytes(data: bytes, rng: Random) -> bytes:
    """Some bytes changed, taken out, put in, doubled or moved."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8, 40))):
        at = rng.randrange(len(out) + 1)
        way = rng.randrange(8)
        if way == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif way == 1 and at < len(out):
            out[at] = rng.choice((*INTERESTING, rng.randrange(256)))
        elif way == 2:
            del out[at : at + rng.choice((1, 2, 4, 16, 200))]
        elif way == 3:
            out[at:at] = bytes(
                rng.choice((*INTERESTING, rng.randrange(256)))
                for _ in range(rng.choice((1, 1, 2, 8)))
            )
        elif way == 4:
            out[at:at] = out[
                (begin := rng.randrange(len(out) + 1)) : begin + rng.choice((1, 4, 30, 300))
            ]
        elif way == 5:
            part = out[(begin := rng.randrange(len(out) + 1)) : begin + rng.choice((1, 4, 30, 300))]
            out[at : at + len(part)] = part
        elif way == 6 and at < len(out):
            out[at : at + 4] = rng.choice(
                (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\x80\x80\x80\x80")
            )
        elif way == 7 and rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def of_tree(tree: Any, rng: Random) -> Any:
    """A tree of JSON, or of a pickle, with some values of other types, and keys and items taken
    out, doubled or moved.
    """
    out = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2, 3, 10))):
        places = list(_places(out, rng))
        if not places:
            break
        inside, key = rng.choice(places)
        way = rng.randrange(7)
        if way == 0:
            inside[key] = odd(rng)
        elif way == 1:
            del inside[key]
        elif way == 2:
            other, its = rng.choice(places)
            inside[key] = copy.deepcopy(other[its])
        elif way == 3 and isinstance(inside, dict):
            inside[
                rng.choice(
                    (
                        "",
                        "ts",
                        "dur",
                        "args",
                        "pid",
                        "name",
                        key * 2 if isinstance(key, str) else key,
                    )
                )
            ] = inside.pop(key)
        elif way == 3:
            inside.insert(key, copy.deepcopy(inside[rng.randrange(len(inside))]))
        elif (
            way == 4 and isinstance(inside[key], (int, float)) and not isinstance(inside[key], bool)
        ):
            inside[key] = rng.choice(
                (
                    -inside[key],
                    inside[key] * 10**9,
                    str(inside[key]),
                    _half(inside[key]),
                    [inside[key]],
                )
            )
        elif way == 4 and isinstance(inside[key], str):
            inside[key] = of_bytes(inside[key].encode("utf-8", "surrogatepass"), rng).decode(
                "utf-8", "replace"
            )
        elif way == 5:
            inside[key] = _deep(rng)
        elif way == 6 and isinstance(inside, list):
            rng.shuffle(inside)
    return out


def _half(number: float) -> Any:
    try:
        return number + 0.5
    except OverflowError:
        return -number


def odd(rng: Random) -> Any:
    """A value that hardly anybody expects."""
    return copy.deepcopy(rng.choice(rng.choice((NUMBERS, TEXTS, OTHERS))))


def _deep(rng: Random) -> Any:
    out: Any = odd(rng)
    for _ in range(rng.choice((3, 30, 150))):
        out = [out] if rng.random() < 0.5 else {"a": out}
    return out


def _places(tree: Any, rng: Random) -> list[tuple[Any, Any]]:
    """Containers of a tree with a key of each: all of a small one, ways into a large one
    otherwise.
    """
    out: list[tuple[Any, Any]] = []
    for _ in range(12):
        at = tree
        while isinstance(at, (dict, list)) and at:
            key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            out.append((at, key))
            at = at[key]
    return out


def doubled_keys(text: str, rng: Random) -> str:
    """JSON with a key that is there twice, which no tree can have."""
    at = [i for i, c in enumerate(text) if c == "{"]
    if not at:
        return text
    where = rng.choice(at) + 1
    key = rng.choice(("ts", "dur", "name", "ph", "pid", "args", "traceEvents", "id"))
    return f'{text[:where]}"{key}":{rng.choice(("1", "null", "[]", chr(34) * 2, "{}", "-5", "1e400"))},{text[where:]}'


def of_table(data: bytes, rng: Random) -> bytes:
    """A table in CSV: cells, columns and rows changed, taken out, doubled or shuffled, then perhaps
    its bytes.
    """
    rows = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"))))
    for _ in range(rng.choice((1, 1, 2, 4))):
        rows = [row for row in rows if row] or [[""]]
        way, width = rng.randrange(12), max(len(rows[0]), 1)
        at, row = rng.randrange(width), rng.randrange(len(rows))
        if way == 0:
            for _ in range(rng.choice((1, 3, 20))):
                line = rows[rng.randrange(len(rows))]
                if line:
                    line[rng.randrange(len(line))] = rng.choice(CELLS)
        elif way == 1:
            rows = [line[:at] + line[at + 1 :] for line in rows]
        elif way == 2:
            rows = [line[: at + 1] + line[at:] for line in rows]
        elif way == 3:
            order = rng.sample(range(width), width)
            rows = [[line[i] for i in order if i < len(line)] for line in rows]
        elif way == 4:
            cell = rng.choice(CELLS)
            rows[1:] = [[*line[:at], cell, *line[at + 1 :]] for line in rows[1:]]
        elif way == 5:
            other = rng.randrange(width)
            for line in rows[1:]:
                if max(at, other) < len(line):
                    line[at], line[other] = line[other], line[at]
        elif way == 6:
            rows = rows[:1] if rng.random() < 0.5 else rows[: row + 1]
        elif way == 7:
            rows = [rows[0], *rng.choices(rows, k=len(rows))]
        elif way == 8:
            rows.insert(row, rows[rng.randrange(len(rows))])
        elif way == 9:
            rows = rows[1:] if rng.random() < 0.5 else []
        elif way == 10:
            rows[row] = (
                rows[row][:at] if rng.random() < 0.5 else rows[row] + ["1"] * rng.choice((1, 30))
            )
        else:
            rows[0] = [
                c
                if rng.random() > 0.2
                else rng.choice((c.lower(), c.split("(")[0], c.replace("us", "ms"), "", "x"))
                for c in rows[0]
            ]
    out = io.StringIO()
    csv.writer(out, lineterminator=rng.choice(("\n", "\n", "\r\n", "\r"))).writerows(rows)
    made = out.getvalue().encode("utf-8", "replace")
    return of_bytes(made, rng) if rng.random() < 0.25 else made


def of_message(data: bytes, rng: Random, depth: int = 0) -> bytes:
    """A protobuf message with one of its fields, at any depth, changed, doubled, moved, of another
    number or wire type.
    """
    fields = _fields(data)
    if not fields:
        return of_bytes(data, rng)
    at = rng.randrange(len(fields))
    number, wire, value = fields[at]
    raw = [_field(*one) for one in fields]
    if wire == 2 and depth < 7 and rng.random() < 0.8:
        raw[at] = _field(number, 2, of_message(value, rng, depth + 1))
        return b"".join(raw)
    way = rng.randrange(8)
    if way == 0:
        del raw[at]
    elif way == 1:
        raw.insert(rng.randrange(len(raw) + 1), raw[at])
    elif way == 2:
        other = rng.randrange(len(raw))
        raw[at], raw[other] = raw[other], raw[at]
    elif way == 3:
        raw[at] = _field(
            rng.choice((number + 1, max(number - 1, 1), 0, 1, 2, 3, 4, 15, 16, 2**29 - 1)),
            wire,
            value,
        )
    elif way == 4:
        raw[at] = varint(number << 3) + varint(
            rng.choice((0, 1, 2**31, 2**32, 2**62, 2**63, 2**64 - 1, -1, rng.randrange(2**40)))
        )
    elif way == 5:
        raw[at] = chunk(
            number,
            rng.choice(
                (b"", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"a" * 300, b"None", b"\0", bytes(9))
            ),
        )
    elif way == 6:
        raw[at] = varint(number << 3 | rng.choice((1, 3, 4, 5, 6, 7))) + bytes(
            rng.randrange(256) for _ in range(rng.choice((0, 4, 8)))
        )
    else:
        raw[at] = (
            varint(number << 3 | 2)
            + varint(rng.choice((0, 1, len(value) + 1, 2**31 - 1, 2**31, 2**35, 2**63)))
            + value
        )
    return b"".join(raw)


def _fields(data: bytes) -> list[tuple[int, int, bytes]]:
    """Number, wire type and value of each field; empty where it is no message."""
    out, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if not number or wire not in (0, 1, 2, 5) or at > len(data):
            return []
        if wire == 0:
            begin = at
            _, at = _varint(data, at)
        elif wire == 2:
            length, begin = _varint(data, at)
            at = begin + length
        else:
            begin, at = at, at + (8 if wire == 1 else 4)
        if at > len(data):
            return []
        out.append((number, wire, data[begin:at]))
    return out


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at
    return 0, len(data) + 1


def _field(number: int, wire: int, value: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(value)) if wire == 2 else b"") + value


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 6, mtime=0),
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
}
ARCHIVES = ("zip", "tar", "tar.gz", "tar.bz2", "tar.xz")


def archive(files: dict[str, bytes], kind: str) -> bytes:
    """Files as a zip or tar."""
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in files.items():
                made.writestr(
                    zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED
                )
        return out.getvalue()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    packing = kind.rpartition(".")[2]
    return PACKERS[packing](out.getvalue()) if packing in PACKERS else out.getvalue()


def perhaps(
    damage: Callable[[bytes, Random], bytes], data: bytes, rng: Random, chance: float
) -> bytes:
    """Damaged with that probability."""
    return damage(data, rng) if rng.random() < chance else data


def bomb(rng: Random) -> tuple[str, bytes]:
    """A small file that unpacks to 100 MB and more: name and bytes."""
    name, begin, fill = rng.choice(
        (
            ("a.pt.trace.json", b'{"traceEvents":[', b" "),
            ("a.pt.trace.json", b'{"traceEvents":[{"ph":"X","name":"', b"a"),
            ("a.pt.trace.json", b'{"traceEvents":[', b"["),
            ("a.trace.json", b'{"a":"', b"x"),
            ("a.trace.json", b"[", b'{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1},'),
            ("a.xplane.pb", b"\x0a\x03\x12\x01a", b"\x0a\x03\x12\x01a"),
            ("a.xplane.pb", b"\x0a\xff\xff\xff\x7f", b"\0"),
            ("a.pickle", b"\x80\x04}\x94(\x8c\x08segments\x94]\x94", b"]\x94"),
            ("op_summary_20260101000000.csv", b"Op Name,Task Type,Task Duration(us)\n", b"a,b,1\n"),
        )
    )
    data = begin + fill * (100 * 10**6 // len(fill))
    kind = rng.choice(
        ("gz", "gz", "xz", "bz2", "zip", "tar.gz", "tar.xz", "zip of gz", "tar of gz", "gz of gz")
    )
    if kind in PACKERS:
        return f"{name}.{kind}", PACKERS[kind](data)
    if " of " in kind:
        inner = gzip.compress(data, 6, mtime=0)
        outer = kind.partition(" ")[0]
        return (
            (f"{name}.gz.gz", gzip.compress(inner, mtime=0))
            if outer == "gz"
            else (f"a.{outer}", archive({f"{name}.gz": inner}, outer))
        )
    return f"a.{kind}", archive({name: data}, kind)
