"""A run whose database has tasks that carry collectives and parts of operators: against its text,
and against its own totals.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import nbprof
from tests.parity.test_ascend_databases import TORCH, UNSTATED, ordered
from tests.support import ascend_db, msprof
from tests.support.frames import WITHOUT_NOTES, public

BASE = "ascend_pytorch_profiler_0.db"
CARRIER = 3 * 10**9
"""Numbers of tasks that carry others; above them those of parts."""
NO_CONNECTION = "4294967295"
KINDS = ("connection", "time", "parts", "schedule")
"""What shows that a task carries a collective."""


def _text(db: sqlite3.Connection, value: str) -> int:
    """The id of a text, a new one where it has none."""
    found = db.execute("select id from STRING_IDS where value = ?", [value]).fetchone()
    if found is None:
        (number,) = db.execute("select max(id) + 1 from STRING_IDS").fetchone()
        db.execute("insert into STRING_IDS values (?, ?)", [number, value])
        return int(number)
    return int(found[0])


def _insert(db: sqlite3.Connection, rows: Iterable[list[Any]]) -> None:
    db.executemany(f"insert into TASK values ({', '.join('?' * 11)})", rows)


def carry(path: Path, kind: str) -> Path:
    """Adds a carrier for each collective, as long as it and a little more, and one for each matrix
    product.
    """
    with sqlite3.connect(path) as db:
        core, cpu = _text(db, "AI_CORE"), _text(db, "AI_CPU")
        none = msprof.NONE
        ops = db.execute(
            "select startNs, endNs, connectionId, opId from COMMUNICATION_OP"
        ).fetchall()
        db.execute(
            "create table COMMUNICATION_SCHEDULE_TASK_INFO (name, globalTaskId, taskType, opType)"
        )
        for i, (start, end, connection, _) in enumerate(ops):
            connection = none if kind in ("time", "parts") else connection
            # What has parts need not end with the collective.
            late = 40_000 if kind == "parts" else 1_500
            typed = cpu if kind == "schedule" else core
            row = [
                start - 2_000,
                end + late,
                0,
                connection,
                CARRIER + i,
                1000,
                typed,
                none,
                4,
                800 + i,
                none,
            ]
            _insert(db, [row])
            if kind == "parts":
                part = [
                    start + 100,
                    end - 100,
                    0,
                    none,
                    CARRIER + 100 + i,
                    1000,
                    _text(db, "SDMA"),
                    0,
                    4,
                    800 + i,
                    none,
                ]
                _insert(db, [part])
            if kind == "schedule":
                names = [
                    _text(db, "RunAicpuRpcSrvLaunch"),
                    CARRIER + i,
                    _text(db, "HCCL_AI_CPU"),
                    _text(db, "N/A"),
                ]
                db.execute(
                    "insert into COMMUNICATION_SCHEDULE_TASK_INFO values (?, ?, ?, ?)", names
                )
        products = db.execute(
            "select t.startNs, t.endNs, t.connectionId, t.streamId, t.taskId, t.globalTaskId from TASK t "
            "join COMPUTE_TASK_INFO i using (globalTaskId) join STRING_IDS s on s.id = i.opType where s.value = 'MatMulV2'"
        ).fetchall()
        for i, (start, end, connection, stream, task, number) in enumerate(products):
            db.execute("update TASK set contextId = 0 where globalTaskId = ?", [number])
            row = [
                start,
                end,
                0,
                connection,
                CARRIER + 200 + i,
                1000,
                core,
                none,
                stream,
                task,
                none,
            ]
            _insert(db, [row])
    return path


def _covered(spans: Iterable[tuple[Decimal, Decimal]]) -> Decimal:
    """µs that at least one span covers."""
    total, reach = Decimal(0), Decimal(0)
    for start, end in sorted(spans):
        total += max(Decimal(0), end - max(start, reach))
        reach = max(reach, end)
    return total


def totals(tasks: list[msprof.Task]) -> dict[str, float]:
    """The totals that the exporter states of a run of one step, in µs."""
    spans = {
        shared: [(t.start, t.start + t.length) for t in tasks if (t.stream is None) == shared]
        for shared in (False, True)
    }
    computing, communication = _covered(spans[False]), _covered(spans[True])
    exposed = _covered([*spans[False], *spans[True]]) - computing
    return {
        "computing": float(computing),
        "communication": float(communication),
        "communication_not_overlapped": float(exposed),
    }


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """The text and the database of a run of one step, and its totals."""
    tasks, _ = msprof.training(4)
    folder, tables = tmp_path_factory.mktemp(request.param), ascend_db.text_tables(tasks)
    text = msprof.torch_npu(folder / "text" / TORCH, tasks, steps=1, **tables)
    out = folder / "base" / TORCH / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (out.parent / "profiler_info_0.json").write_bytes((text / "profiler_info_0.json").read_bytes())
    carry(ascend_db.main(out / BASE, tasks, steps=1), request.param)
    return nbprof.load(text), nbprof.load(out.parent), totals(tasks)


def _without_carriers(frame: pd.DataFrame) -> pd.DataFrame:
    """What the text of a run has: its exporter writes no carriers, so that parts are nested in
    nothing.
    """
    names = r"AI_CORE|AI_CPU|SDMA|RunAicpuRpcSrvLaunch"
    columns = [name for name in ("name", "slice") if name in frame]
    for name in columns:
        frame = frame[~frame[name].astype(str).str.fullmatch(names)]
    return frame.drop(columns=["depth", "self_us", "percent"], errors="ignore").reset_index(
        drop=True
    )


def test_every_frame_is_that_of_the_text(pair):
    text, base, _ = pair
    compared = 0
    for frame in WITHOUT_NOTES:
        if frame in ("trace.tracks", "trace.lanes"):
            # The stream of the carriers has a track and lanes.
            continue
        a, b = (
            public(p, frame).drop(columns=UNSTATED.get(frame, []), errors="ignore")
            for p in (text, base)
        )
        if frame.startswith("trace."):
            a, b = (ordered(_without_carriers(each)) for each in (a, b))
        pd.testing.assert_frame_equal(a, b, obj=frame)
        compared += len(a) > 0
    assert compared > 25


def test_both_forms_have_the_totals_of_the_run(pair):
    *forms, stated = pair
    for p in forms:
        (step,) = p.steps.frame.to_dict("records")
        assert step["device_compute_ms"] * 1000 == pytest.approx(stated["computing"])
        assert step["device_collectives_ms"] * 1000 == pytest.approx(
            stated["communication_not_overlapped"]
        )
        assert p.kernels.frame["total_us"].sum() == pytest.approx(stated["computing"])
        assert p.ascend.op_types.frame["total_us"].sum() == pytest.approx(stated["computing"])
        collectives = p.run.activity.collectives.frame()["event"].to_numpy()
        length = p.run.trace.events.duration[collectives].sum() / 1e6
        assert length == pytest.approx(stated["communication"])


def test_the_receipt_says_what_is_not_counted(pair):
    _, base, _ = pair
    counted = re.findall(r"(\d+) tasks with the type of a kernel .* only carry", str(base.receipt))
    assert counted == ["8"]


def test_a_kernel_without_an_operator_counts(tmp_path):
    """A task that carries nothing ran on the cores, whatever the tables leave out."""
    tasks, _ = msprof.training(2)
    path = ascend_db.main(tmp_path / BASE, tasks, steps=1)
    with sqlite3.connect(path) as db:
        end = int(db.execute("select max(endNs) from TASK").fetchone()[0]) + 50_000
        row = [
            end,
            end + 70_000,
            0,
            9_000,
            CARRIER,
            1000,
            _text(db, "AI_CORE"),
            msprof.NONE,
            2,
            900,
            2,
        ]
        _insert(db, [row])
    p = nbprof.load(path)
    assert p.kernels.frame["total_us"].sum() == pytest.approx(totals(tasks)["computing"] + 70)
    assert "only carry" not in str(p.receipt)


def test_what_the_operators_list_counts_whatever_unit_ran_it(tmp_path):
    """At the lowest level operators have no type, and their tasks may have that of another unit."""
    tasks, _ = msprof.training(2)
    path = ascend_db.main(tmp_path / BASE, tasks, steps=1)
    with sqlite3.connect(path) as db:
        none, unit = _text(db, "N/A"), _text(db, "STARS_COMMON")
        db.execute("update COMPUTE_TASK_INFO set taskType = ?, opType = ?", [none, none])
        listed = "select globalTaskId from COMPUTE_TASK_INFO"
        db.execute(f"update TASK set taskType = ? where globalTaskId in ({listed})", [unit])
    p = nbprof.load(path)
    assert p.kernels.frame["total_us"].sum() == pytest.approx(totals(tasks)["computing"])
    assert p.kernels.frame["occurrences"].sum() == 6
