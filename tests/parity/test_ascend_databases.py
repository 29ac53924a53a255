"""Databases of Ascend's profilers against the CSV and JSON of the same run, frame by frame, and
against sums by SQL.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import nbprof
from tests.support import ascend_db, msprof
from tests.support.frames import WITHOUT_NOTES, public

TORCH, PROF = "h_1_20250109084754000_ascend_pt", "PROF_000001_20250109084754000_A"

UNSTATED: dict[str, list[str]] = {
    # Where the files are.
    "runs": ["path"],
    # The text has no model of the chip.
    "devices": ["name"],
    "kernels.devices": ["name"],
    # A database has no size of groups, and no table of op types: these are summed up of the ops.
    "device_time.collectives": ["group_size"],
    "device_time.each_collective": ["group_size"],
    "ascend.op_types.frame": ["source"],
    # Text has its own waits, and zeros for the blocks of collectives, which run on none;
    # kernel_details has HCCL for COMMUNICATION.
    "ascend.ops.frame": ["reported_wait_us", "block_num", "mix_block_num", "task_type"],
}
"""Columns that only one of the two states."""
_TABLES: dict[str, set[str]] = {
    "op_summary": {
        "step_id",
        "wait_us",
        "hf32_eligible",
        "event",
        "block_num",
        "mix_block_num",
        "task_type",
    },
    "api_statistic": {"device_id"},
    "communication": {"wait_ratio", "synchronization_ratio"},
}


@cache
def pair(name: str, tmp: Path) -> tuple[Any, Any]:
    tasks, _ = msprof.training(4)
    if name == "torch_npu":
        text = msprof.torch_npu(
            tmp / "text" / TORCH, tasks, **ascend_db.text_tables(tasks, steps=2, memory=True)
        )
        return nbprof.load(text), nbprof.load(
            ascend_db.torch_npu(tmp / "base" / TORCH, tasks, memory=True)
        )
    more = ascend_db.text_tables(tasks, memory=True)
    text = msprof.prof(
        tmp / "text" / PROF,
        tasks,
        files=("op_statistic", "msprof"),
        op_summary=msprof.op_summary(tasks, age="2026"),
        **more,
    )
    return nbprof.load(text), nbprof.load(ascend_db.prof(tmp / "base" / PROF, tasks, memory=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ascend")


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Without the numbers that depend on the order of lanes in a file, and without samples of
    memory, which the text has in its tables.
    """
    numbers = [
        name
        for name in ("track", "event", "lane")
        if name in frame and frame[name].dtype.kind == "i"
    ]
    numbered = frame.drop(columns=numbers)
    kept = numbered[
        ~numbered.astype(str).apply(lambda column: column.str.contains("NPU MEM")).any(axis=1)
    ]
    return kept.sort_values(list(kept.columns[:6]), kind="stable", ignore_index=True)


@pytest.mark.parametrize("name", ["torch_npu", "msprof"])
def test_every_frame_is_that_of_the_text(folder, name):
    text, base = pair(name, folder)
    assert base.run.devices["name"].tolist() == ["Ascend910B4"]
    compared = 0
    for frame in WITHOUT_NOTES:
        a, b = (
            public(p, frame).drop(columns=UNSTATED.get(frame, []), errors="ignore")
            for p in (text, base)
        )
        if frame.startswith("trace."):
            a, b = ordered(a), ordered(b)
        pd.testing.assert_frame_equal(a, b, obj=frame)
        compared += len(a) > 0
    assert compared > 30


@pytest.mark.parametrize("name", ["torch_npu", "msprof"])
def test_every_table_is_that_of_the_text(folder, name):
    text, base = pair(name, folder)
    assert set(text.ascend.kinds) - set(base.ascend.kinds) == {"op_statistic"}
    for kind in set(text.ascend.kinds) - {"op_statistic"}:
        a, b = (
            p.ascend.table(kind).drop(columns=_TABLES.get(kind, ()), errors="ignore")
            for p in (text, base)
        )
        pd.testing.assert_frame_equal(a, b[a.columns], obj=kind, check_dtype=False)
        assert set(a.columns) == set(b.columns)


def test_sums_are_those_of_sql(folder):
    _, base = pair("torch_npu", folder)
    with sqlite3.connect(next((folder / "base").rglob("ascend_pytorch_profiler_0.db"))) as db:
        kernels = db.execute(
            "select s.value, count(*), sum(t.endNs - t.startNs) / 1e3 from TASK t join COMPUTE_TASK_INFO i using (globalTaskId) "
            "join STRING_IDS s on s.id = i.opType group by s.value"
        ).fetchall()
        collectives = db.execute(
            "select count(*), sum(endNs - startNs) / 1e3 from COMMUNICATION_OP"
        ).fetchone()
        calls = db.execute("select count(*), sum(endNs - startNs) / 1e3 from CANN_API").fetchone()
        (copied,) = db.execute("select sum(size) from MEMCPY_INFO").fetchone()
        pmu = db.execute(
            "select sum(p.value) from TASK_PMU_INFO p join STRING_IDS s on s.id = p.name where s.value = 'aic_mac_ratio'"
        ).fetchone()
    frame = base.kernels.frame.set_index("kernel")
    assert {name: (int(row.occurrences), row.total_us) for name, row in frame.iterrows()} == {
        n: (c, us) for n, c, us in kernels
    }
    ops = base.ascend.table("op_summary")
    each = ops[ops["task_type"] == "COMMUNICATION"]
    assert (len(each), each["duration_us"].sum()) == collectives
    assert base.ascend.api.frame["total_us"].sum() == calls[1]
    assert base.ascend.api.frame["count"].sum() == calls[0]
    assert base.steps.frame["host_to_device_bytes"].sum() == copied
    assert base.ascend.table("op_summary")["aic_mac_ratio"].sum() == pmu[0]
