"""Columns of SQLite databases against the standard library."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from nbprof.core import sqlite as core_sqlite
from nbprof.core.errors import ReadError
from nbprof.core.files import Buffer
from nbprof.core.sqlite import Database, floats, integers, tables_named, texts

EDGES = [
    0,
    1,
    -1,
    127,
    128,
    -128,
    -129,
    2**15,
    -(2**15),
    2**23,
    2**31 - 1,
    -(2**31),
    2**47,
    -(2**47),
    2**62,
    2**63 - 1,
    -(2**63),
]


def database(path: Path) -> Database:
    return Database(Buffer.of(path.read_bytes()), path.name)


def fill(path: Path, page: int, encoding: str, rows: int, seed: int) -> None:
    rng = random.Random(seed)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA page_size={page}")
        db.execute(f"PRAGMA encoding='{encoding}'")
        db.execute(
            "CREATE TABLE numbers (id INTEGER PRIMARY KEY, -- the row's number, (so)\n a INT NOT NULL, b BIGINT, [c d] REAL, e)"
        )
        db.execute(
            "CREATE TABLE \"words\" (k INTEGER, 'text' VARCHAR(10, 2) DEFAULT 'a,b', raw BLOB, PRIMARY KEY (k))"
        )
        db.execute("CREATE TABLE other (name TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID")
        db.execute("CREATE TABLE empty (x, y)")
        db.execute("CREATE VIEW seen AS SELECT a FROM numbers")
        db.execute("CREATE INDEX by_b ON numbers (b)")
        for i in range(rows):
            value = rng.choice([*EDGES, rng.randrange(-(2**40), 2**40)])
            real = rng.choice([None, 0.5, -1e300, 3.0])
            db.execute(
                "INSERT INTO numbers VALUES (?,?,?,?,?)",
                (i * 3 + 1, value, rng.choice([None, i]), real, rng.choice([None, i, "x", 2.5])),
            )
            word = rng.choice(["", "kernel", "é" * 70, "long " * rng.choice([30, 300, 3000]), None])
            db.execute(
                "INSERT INTO words VALUES (?,?,?)",
                (i, word, rng.choice([None, b"\0\1", bytes(200)])),
            )
        db.execute("DELETE FROM numbers WHERE id % 7 = 1")
        db.execute("ALTER TABLE numbers ADD COLUMN later INTEGER")
        db.execute("INSERT INTO numbers (a, later) VALUES (5, 6)")


@pytest.mark.parametrize(
    ("page", "encoding", "rows"),
    [(512, "UTF-8", 500), (4096, "UTF-16le", 300), (65536, "UTF-16be", 200), (1024, "UTF-8", 1)],
)
def test_every_value_is_that_of_the_standard_library(
    tmp_path: Path, page: int, encoding: str, rows: int
) -> None:
    path = tmp_path / "a.sqlite"
    fill(path, page, encoding, rows, page)
    ours = database(path)
    assert sorted(ours.tables) == ["empty", "numbers", "words"]
    with sqlite3.connect(path) as db:
        for name in ours.tables:
            read = ours.read(name)
            cursor = db.execute(f"SELECT * FROM {name} ORDER BY rowid")
            assert list(read) == [column[0] for column in cursor.description]
            rows_ = cursor.fetchall()
            assert ours.count(name) == len(rows_)
            for i, (column, values) in enumerate(read.items()):
                found = [
                    None if isinstance(v, float) and np.isnan(v) else v for v in values.tolist()
                ]
                assert found == [row[i] for row in rows_], (name, column)
    assert {
        str(column.dtype) for column in ours.read("numbers", "id", "a", "b", "later").values()
    } == {"int64"}
    assert ours.read("numbers", "c d", "missing").keys() == {"c d"}
    assert ours.read("missing") == {}
    assert (ours.count("missing"), "numbers" in ours, "missing" in ours) == (0, True, False)
    assert {"numbers", "words"} <= tables_named(path.read_bytes())


def test_columns_as_numbers_and_texts() -> None:
    masked = np.ma.MaskedArray(np.array([1, 2]), [False, True])
    mixed = np.array([1, None, "x", 2.5], object)
    assert integers(masked).tolist() == [1, -1]
    assert integers(mixed).tolist() == [1, -1, -1, -1]
    assert integers(np.array([2.0, np.nan, 1e300])).tolist() == [2, -1, -1]
    np.testing.assert_array_equal(floats(masked), [1, np.nan])
    np.testing.assert_array_equal(floats(mixed), [1, np.nan, np.nan, 2.5])
    assert texts(mixed) == ["1", "", "x", "2.5"]
    assert tables_named(b"CREATE TABLE a (b)") == set()


@pytest.mark.parametrize("chunk", [512, core_sqlite._ROWS])
def test_rows_of_one_layout_and_of_others_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    path = tmp_path / "a.sqlite"
    rng = random.Random(3)
    words = ["op", "x" * 90]
    rows = [
        (
            i * 9**7 + 1,
            10**9 + i,
            rng.choice([0, 1]),
            rng.choice([None, 7]),
            i / 3,
            rng.choice(words),
            rng.choice([b"ab", "ab"]),
        )
        for i in range(3000)
    ]
    rows[1500:1503] = [
        (-5, None, "text", 2.5, 3, "é" * 5000, None),
        (2**62, -1, -1, -1, None, None, b""),
        (0, 0, 0, 0, 0.0, "", ""),
    ]
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c, d REAL, e, f)")
        db.executemany("INSERT INTO t VALUES (?,?,?,?,?,?,?)", rows)
        db.execute("CREATE TABLE behind (z)")
        db.execute("INSERT INTO behind VALUES (zeroblob(9000))")
        rows = db.execute("SELECT * FROM t ORDER BY id").fetchall()
    monkeypatch.setattr(core_sqlite, "_ROWS", chunk)
    read = database(path).read("t")
    for i, (name, column) in enumerate(read.items()):
        found = [None if isinstance(v, float) and np.isnan(v) else v for v in column.tolist()]
        assert found == [row[i] for row in rows], name


def test_a_damaged_database_is_read_or_an_error_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    fill(path, 512, "UTF-8", 60, 1)
    whole = path.read_bytes()
    rng = random.Random(2)
    errors: list[str] = []
    for i in range(400):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 3, 20])):
            data[rng.randrange(16, len(data))] = rng.choice(
                [0, 1, 5, 13, 127, 128, 255, rng.randrange(256)]
            )
        if i % 10 == 0:
            del data[rng.randrange(len(data)) :]
        try:
            ours = Database(Buffer.of(bytes(data)), "a.sqlite")
            for name in ours.tables:
                ours.read(name)
        except ReadError as error:
            errors.append(str(error))
    assert 50 < len(errors) < 400
    assert all("a.sqlite" in text and "again" in text for text in errors)


def test_a_database_that_is_cut_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    fill(path, 512, "UTF-8", 60, 1)
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(ReadError, match=r"truncated: [\d,]+ of its [\d,]+ pages are present"):
        database(path)
