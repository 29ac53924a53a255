"""Damaged databases of Ascend's profilers: their bytes, and what SQLite itself would let anybody
write into their tables.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz import mutations
from tests.support import ascend_db, msprof

_FOLDER = "x_ascend_pt/ASCEND_PROFILER_OUTPUT/"
_BASE = "ascend_pytorch_profiler_0.db"
_ODD = (
    *(
        0,
        1,
        -1,
        2**31,
        2**32 - 1,
        2**53 + 1,
        2**62,
        2**63 - 1,
        -(2**63),
        0.5,
        1e300,
        float("inf"),
        None,
        "",
        "x",
        "N/A",
        "12",
        "1e9",
    ),
    *("9" * 30, b"\0\xff", "\x1b[31m<b>", "a" * 6000),
)


@cache
def _whole(form: str) -> bytes:
    tasks = msprof.training(3)[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        if form == "analysis":
            return ascend_db.analysis(path).read_bytes()
        more = {"steps": 2} if form == "torch" else {}
        return ascend_db.main(
            path, tasks, memory=True, counters=True, page=512 if form == "small" else 4096, **more
        ).read_bytes()


def draw(rng: Random) -> dict[str, bytes]:
    """One database alone, or beside the other and beside text."""
    data = _whole(rng.choice(("torch", "torch", "msprof", "small", "analysis")))
    way = rng.randrange(10)
    if way >= 4:
        data = _by_sql(data, rng)
    if way < 5:
        data = mutations.of_bytes(data, rng) if rng.random() < 0.4 else _pages(data, rng)
    name = rng.choice((_BASE, "msprof_20250109084754.db", "analysis.db", "any.db"))
    if rng.random() < 0.6:
        return {name: data}
    out = {_FOLDER + name: data}
    if rng.random() < 0.5:
        out[_FOLDER + "analysis.db"] = _whole("analysis")
    if rng.random() < 0.3:
        out[_FOLDER + "kernel_details.csv"] = msprof.op_summary(msprof.training(3)[0], age="torch")
    if rng.random() < 0.3:
        out[_FOLDER + "trace_view.json"] = msprof.timeline(msprof.training(3)[0], torch=2)
    return out if len(out) > 1 else {name: data}


def _pages(data: bytes, rng: Random) -> bytes:
    """Bytes of the headers of pages changed, which lead to others."""
    out = bytearray(data)
    size = 512 if data[16:18] == b"\x02\0" else 4096
    for _ in range(rng.choice((1, 2, 6, 30))):
        page = rng.randrange(max(len(out) // size, 1)) * size
        at = (
            page
            + (100 if not page else 0)
            + rng.choice((0, 3, 4, 8, 11, rng.randrange(40), rng.randrange(size - 101)))
        )
        out[at] = rng.choice((0, 1, 2, 5, 13, 127, 128, 255, rng.randrange(256)))
    return bytes(out)


def _by_sql(data: bytes, rng: Random) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        path.write_bytes(data)
        base = sqlite3.connect(path)
        base.execute("pragma journal_mode=off")
        base.execute("pragma synchronous=off")
        names = [
            row[0] for row in base.execute("select name from sqlite_master where type = 'table'")
        ]
        for _ in range(rng.choice((1, 2, 5, 15))):
            table = rng.choice(names)
            try:
                columns = [row[1] for row in base.execute(f"pragma table_info({table})")] or [
                    "rowid"
                ]
            except sqlite3.Error:
                # A column more may have been called as another is.
                break
            column, value = rng.choice(columns), rng.choice(_ODD)
            few = f"where rowid % {rng.choice((1, 2, 5))} = 0"
            statement, values = rng.choice(
                (
                    (f"update {table} set {column} = ? {few}", (value,)),
                    (f"update {table} set {column} = ? {few}", (value,)),
                    (f"update {table} set {column} = ? {few}", (rng.choice((0, 1, 7, 99, -5)),)),
                    (f"insert into {table} ({column}) values (?)", (value,)),
                    (f"insert into {table} select * from {table}", ()),
                    (f"delete from {table} {few}", ()),
                    (f"alter table {table} drop column {column}", ()),
                    (
                        f"alter table {table} rename column {column} to {rng.choice(('a', 'startNs', 'timestampNs', 'deviceId'))}",
                        (),
                    ),
                    (f"alter table {table} add column late default 'x'", ()),
                    (f"drop table {table}", ()),
                )
            )
            try:
                base.execute(statement, values)
            except (sqlite3.Error, OverflowError):
                continue
        with contextlib.suppress(sqlite3.Error):
            base.commit()
        base.close()
        return path.read_bytes()
