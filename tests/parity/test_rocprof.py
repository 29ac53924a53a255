"""Recordings of rocprofv3 against their own tables, added up here by other code, and the same run
in each of the formats that it writes.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

import nbprof
from tests.support import rocprof

Loaded = Callable[[str], nbprof.Profile]
Sums = dict[str, tuple[int, int]]
"""How often something ran, and for how many ns in all, by its name."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same run in each format, in a folder of its own."""
    run = rocprof.training(3)
    made = {
        "json": {"717_results.json": rocprof.as_json(run)},
        "db": {"717_results.db": rocprof.as_db(run)},
        "db of schema 4": {"717_results.db": rocprof.as_db(run, schema=4)},
        "csv": rocprof.as_csv(run),
        "csv of ROCm 6.2": rocprof.as_csv(run, "6.2"),
    }
    folder = tmp_path_factory.mktemp("rocprof")
    return {
        name: rocprof.write(folder / name.replace(" ", "_"), files) for name, files in made.items()
    }


@pytest.fixture(scope="module")
def loaded(recordings: dict[str, Path]) -> Loaded:
    """Each read once."""
    return cache(lambda form: nbprof.load(recordings[form]))


def _added(rows: list[tuple[str, int, int]]) -> Sums:
    out: dict[str, list[int]] = defaultdict(list)
    for name, start, end in rows:
        out[name].append(end - start)
    return {name: (len(times), sum(times)) for name, times in out.items()}


def _of_csv(folder: Path) -> dict[str, Sums]:
    def rows(table: str, name: str) -> list[tuple[str, int, int]]:
        text = (folder / f"717_{table}.csv").read_text()
        return [
            (r[name], int(r["Start_Timestamp"]), int(r["End_Timestamp"]))
            for r in csv.DictReader(io.StringIO(text))
        ]

    copies = [
        (f"MEMORY_COPY_{name.removeprefix('MEMORY_COPY_')}", a, b)
        for name, a, b in rows("memory_copy_trace", "Direction")
    ]
    calls = [
        row
        for table in ("hip_api_trace", "hsa_api_trace", "rccl_api_trace")
        for row in rows(table, "Function")
    ]
    return {
        "kernel": _added(rows("kernel_trace", "Kernel_Name")),
        "copy": _added(copies),
        "call": _added(calls),
    }


def _of_json(folder: Path) -> dict[str, Sums]:
    (found,) = json.loads((folder / "717_results.json").read_text())["rocprofiler-sdk-tool"]
    records, operations = (
        found["buffer_records"],
        [one["operations"] for one in found["strings"]["buffer_records"]],
    )

    def rows(*lists: str) -> list[tuple[str, int, int]]:
        every = [r for name in lists for r in records[name]]
        return [
            (operations[r["kind"]][r["operation"]], r["start_timestamp"], r["end_timestamp"])
            for r in every
        ]

    names = [one["formatted_kernel_name"] for one in found["kernel_symbols"]]
    kernels = [
        (names[r["dispatch_info"]["kernel_id"]], r["start_timestamp"], r["end_timestamp"])
        for r in records["kernel_dispatch"]
    ]
    return {
        "kernel": _added(kernels),
        "copy": _added(rows("memory_copy")),
        "call": _added(rows("hip_api", "hsa_api", "rccl_api")),
    }


def _of_db(folder: Path) -> dict[str, Sums]:
    with sqlite3.connect(folder / "717_results.db") as base:
        names = {
            name for (name,) in base.execute("select name from sqlite_master where type = 'view'")
        }
        if "rocpd_timestamp" in names:
            span = "(select value from rocpd_timestamp where id = {0}.start_id), (select value from rocpd_timestamp where id = {0}.end_id)"
        else:
            span = '{0}."start", {0}."end"'
        queries = {
            "kernel": "select s.display_name, {} from rocpd_kernel_dispatch k join rocpd_info_kernel_symbol s on s.id = k.kernel_id",
            "copy": "select s.string, {} from rocpd_memory_copy k join rocpd_string s on s.id = k.name_id",
            "call": "select s.string, {} from rocpd_region k join rocpd_string s on s.id = k.name_id where s.string not like 'roctx%'",
        }
        return {
            kind: _added(base.execute(query.format(span.format("k"))).fetchall())
            for kind, query in queries.items()
        }


_JUDGES = {
    "json": _of_json,
    "db": _of_db,
    "db of schema 4": _of_db,
    "csv": _of_csv,
    "csv of ROCm 6.2": _of_csv,
}
_CATEGORIES = {
    "kernel": ("kernel",),
    "copy": ("gpu_memcpy",),
    "call": ("hip_runtime", "hsa_runtime", "rccl_runtime"),
}


@pytest.mark.parametrize("form", _JUDGES)
def test_sums_are_those_of_the_tables(
    recordings: dict[str, Path], loaded: Loaded, form: str
) -> None:
    events = loaded(form).trace.events(args=("cat",))
    for kind, judged in _JUDGES[form](recordings[form]).items():
        mine = events[events["cat"].isin(_CATEGORIES[kind])]
        found = {
            str(name): (len(rows), round(rows["duration_us"].sum() * 1000))
            for name, rows in mine.groupby("name", observed=True)
        }
        assert judged
        assert found == judged


def test_the_summary_of_kernels_is_that_of_the_profiler(
    recordings: dict[str, Path], loaded: Loaded
) -> None:
    kernels = loaded("csv").kernels.by_name().set_index("kernel")
    text = (recordings["csv"] / "717_kernel_stats.csv").read_text()
    for row in csv.DictReader(io.StringIO(text)):
        mine = kernels.loc[row["Name"]]
        assert (int(mine["occurrences"]), round(mine["total_us"] * 1000)) == (
            int(row["Calls"]),
            int(row["TotalDurationNs"]),
        )
        assert (round(mine["min_us"] * 1000), round(mine["max_us"] * 1000)) == (
            int(row["MinNs"]),
            int(row["MaxNs"]),
        )


_ARGS = (
    "correlation",
    "device",
    "stream",
    "queue",
    "grid",
    "block",
    "scratch size",
    "VGPR count",
    "AccVGPR count",
    "SGPR count",
    "dispatch id",
)
_ARGS += ("SQ_WAVES", "GRBM_COUNT", "cat", "source", "destination", "domain")


@pytest.mark.parametrize("form", [form for form in _JUDGES if form != "json"])
def test_formats_give_equal_events(loaded: Loaded, form: str) -> None:
    one, other = (loaded(name).trace for name in ("json", form))
    known = set(_ARGS)
    if form == "csv of ROCm 6.2":
        # Without streams, registers, and what copies belong to.
        known -= {"stream", "VGPR count", "AccVGPR count", "SGPR count", "correlation"}
    frames = []
    for trace in (one, other):
        frame = trace.events(
            args=(*sorted(known), "shared memory", *(("bytes",) if form.startswith("db") else ()))
        )
        # The tables do not say which thread allocated, nor of old versions where a copy ran.
        frame = frame[~frame["cat"].isin(["MEMORY_ALLOCATION"])]
        if form.startswith("csv"):
            frame = frame.drop(columns="shared memory")
        if form == "csv of ROCm 6.2":
            frame.loc[frame["process"].str.startswith("GPU"), "lane"] = ""
        frame = frame.drop(columns=["event", "depth", "self_us"]).sort_values(
            ["process", "lane", "start_us", "duration_us", "name"]
        )
        frames.append(frame.reset_index(drop=True))
    begun = [frame["start_us"].min() for frame in frames]
    for frame, start in zip(frames, begun, strict=True):
        frame["start_us"] = (frame["start_us"] - start).round(3)
    pd.testing.assert_frame_equal(frames[0], frames[1], check_dtype=False)


@pytest.mark.parametrize("form", [form for form in _JUDGES if form != "json"])
def test_formats_give_equal_tables(loaded: Loaded, form: str) -> None:
    one, other = (loaded(name) for name in ("json", form))
    unknown = {"csv": ["static_shared_bytes"], "csv of ROCm 6.2": ["registers"]}.get(form, [])
    kernels = [p.kernels.frame.drop(columns=unknown) for p in (one, other)]
    pd.testing.assert_frame_equal(
        pd.DataFrame(kernels[0]), pd.DataFrame(kernels[1]), check_dtype=False
    )
    columns = ["step", "name", "step_time_ms", "device_compute_ms", "device_collectives_ms"]
    if form != "csv of ROCm 6.2":
        columns += ["input_ms", "output_ms", "kernel_launch_ms", "host_compute_ms", "other_ms"]
    steps = [pd.DataFrame(p.steps.frame)[columns] for p in (one, other)]
    assert len(steps[0]) == 3
    pd.testing.assert_frame_equal(*steps, check_dtype=False)
    assert (
        one.run.activity.devices["name"].tolist()
        == other.run.activity.devices["name"].tolist()
        == ["AMD Instinct MI300X"] * 2
    )
