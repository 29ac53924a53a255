"""Exports of Nsight Systems against their own tables, asked in SQL; and the same tables as
Parquet.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nbprof
from tests.support import nsys
from tests.support.nsys import HARDWARE, US


def two_ranks() -> nsys.Export:
    """Two processes, each of which calls its own GPU 0; the second one's work is later and its
    graph's kernels are slower.
    """
    out = nsys.training(4, pid=4321, gpu=1)
    return nsys.training(5, pid=4400, gpu=0, out=out, at=530 * US)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("nsys")
    export = two_ranks()
    return export.sqlite(folder / "report1.sqlite"), export.parquet(folder / "report1_pqtdir")


@pytest.fixture(scope="module")
def profile(made: tuple[Path, Path]) -> nbprof.Profile:
    return nbprof.load(made[0])


def asked(path: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as db:
        return db.execute(sql).fetchall()


def test_each_kernel_has_the_time_and_count_of_the_table(
    made: tuple[Path, Path], profile: nbprof.Profile
) -> None:
    want = asked(
        made[0],
        "SELECT s.value, count(*), sum(end - start) / 1000.0, min(end - start) / 1000.0, max(end - start) / 1000.0, max(gridX || ',' || "
        "gridY || ',' || gridZ), max(registersPerThread), max(staticSharedMemory + dynamicSharedMemory) "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds s ON s.id = demangledName GROUP BY 1",
    )
    frame = profile.kernels.frame
    rows = frame.groupby("kernel").agg(
        {
            "occurrences": "sum",
            "total_us": "sum",
            "min_us": "min",
            "max_us": "max",
            "grid": "max",
            "registers": "max",
            "static_shared_bytes": "max",
        }
    )
    assert [(name, *values) for name, *values in rows.itertuples()] == sorted(want)


def test_each_copy_and_fill_has_the_bytes_and_time_of_the_table(
    made: tuple[Path, Path], profile: nbprof.Profile
) -> None:
    names = {1: "H2D", 2: "D2H"}
    want = {
        names[kind]: (count, size, time * 1000)
        for kind, count, size, time in asked(
            made[0],
            "SELECT copyKind, count(*), sum(bytes), sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1",
        )
    }
    (fills,) = asked(
        made[0],
        "SELECT count(*), sum(bytes), sum(end - start) * 1000 FROM CUPTI_ACTIVITY_KIND_MEMSET",
    )
    activity = profile.run.activity
    table = activity.transfers.frame().assign(
        kind=activity.texts.values[activity.transfers.frame()["kind"]]
    )
    table["time"] = table["end"] - table["start"]
    found = {
        kind: (len(rows), rows["bytes"].sum(), rows["time"].sum())
        for kind, rows in table.groupby("kind")
    }
    assert found == {**want, "memset": fills}


def test_each_call_has_the_time_of_the_table(
    made: tuple[Path, Path], profile: nbprof.Profile
) -> None:
    want = asked(
        made[0],
        "SELECT s.value, count(*), sum(end - start) * 1000 FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds s ON s.id = nameId GROUP BY 1",
    )
    trace = profile.run.trace
    rows = np.flatnonzero(trace.arg("correlation") >= 0)
    on_host = trace.lanes["kind"].eq("host").to_numpy()[trace.events.lane[rows]]
    rows = rows[on_host]
    frame = pd.DataFrame(
        {"name": trace.names[trace.events.name[rows]], "time": trace.events.duration[rows]}
    )
    found = frame.groupby("name")["time"].agg(["size", "sum"])
    assert [(name.split("_v")[0], *rest) for name, *rest in sorted(want)] == list(
        found.itertuples(name=None)
    )


def test_each_range_has_the_time_and_domain_of_the_table(
    made: tuple[Path, Path], profile: nbprof.Profile
) -> None:
    want = asked(
        made[0],
        "SELECT coalesce(n.text, s.value), n.domainId, count(*), sum(end - start) * 1000 FROM NVTX_EVENTS n LEFT JOIN StringIds s ON "
        "s.id = n.textId WHERE eventType = 59 GROUP BY 1, 2",
    )
    trace = profile.run.trace
    rows = np.flatnonzero(np.array(trace.texts(trace.text_arg("cat"))) == "user_annotation")
    domain = np.array(trace.texts(trace.text_arg("domain", rows)), object)
    frame = pd.DataFrame(
        {
            "name": trace.names[trace.events.name[rows]],
            "domain": domain,
            "time": trace.events.duration[rows],
        }
    )
    found = frame.groupby(["name", "domain"])["time"].agg(["size", "sum"]).reset_index()
    titles = {0: "", 2: "NCCL"}
    assert [tuple(row) for row in found.itertuples(index=False)] == sorted(
        (name, titles[d], *rest) for name, d, *rest in want
    )


def test_steps_are_the_ranges_that_count_with_the_work_launched_in_them(
    made: tuple[Path, Path], profile: nbprof.Profile
) -> None:
    for name, pid in zip(profile.run.trace.hosts, (4321, 4400), strict=True):
        ranges = asked(
            made[0],
            "SELECT coalesce(n.text, s.value), n.start, n.end FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId "
            f"WHERE coalesce(n.text, s.value) LIKE 'step %' AND globalTid / 0x1000000 % 0x1000000 = {pid} ORDER BY n.start",
        )
        frame = profile.steps.frame[profile.steps.frame["host"] == name]
        assert frame["name"].tolist() == [text for text, *_ in ranges]
        ends = []
        for _, start, end in ranges:
            ((last,),) = asked(
                made[0],
                "SELECT max(k.end) FROM (SELECT end, correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL SELECT end, "
                "correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY) k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = "
                f"k.correlationId AND r.globalTid / 0x1000000 = k.globalPid / 0x1000000 WHERE r.start BETWEEN {start} AND {end} "
                f"AND k.globalPid = {HARDWARE | pid << 24}",
            )
            ends.append(max(last, end))
        starts = [
            max(start, before) for (_, start, _), before in zip(ranges, [0, *ends], strict=False)
        ]
        assert frame["step_time_ms"].tolist() == pytest.approx(
            [(end - start) / 1e6 for start, end in zip(starts, ends, strict=True)]
        )


def test_a_folder_of_parquet_gives_the_frames_of_the_database(
    made: tuple[Path, Path], profile: nbprof.Profile
) -> None:
    pytest.importorskip("pyarrow")
    other = nbprof.load(made[1])
    for name in ("steps", "kernels", "ops"):
        pd.testing.assert_frame_equal(getattr(profile, name).frame, getattr(other, name).frame)
    a, b = profile.run.trace, other.run.trace
    assert a.epoch_ns == b.epoch_ns
    assert (a.names[a.events.name] == b.names[b.events.name]).all()
    for key in ("lane", "start", "duration"):
        assert (getattr(a.events, key) == getattr(b.events, key)).all()
    pd.testing.assert_frame_equal(a.lanes, b.lanes)
    assert sorted(a.args) == sorted(b.args)
    for key in a.args:
        assert (a.args[key].event == b.args[key].event).all()
        assert (a.arg(key) == b.arg(key)).all()
        assert a.texts(a.text_arg(key)) == b.texts(b.text_arg(key))
