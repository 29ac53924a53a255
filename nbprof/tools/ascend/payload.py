"""The tab "Ascend": the iteration trace with its verdict, rules, ops by type and core, counters,
waits, fusion and calls of the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.analysis.ascend import tables as ascend_tables
from nbprof.analysis.ascend.ascend import COMMUNICATION
from nbprof.display import wording
from nbprof.display.codec import short
from nbprof.run.frames.ascend import LACKS
from nbprof.schema import frames
from nbprof.schema.columns import Col
from nbprof.tools import rings
from nbprof.tools.ascend import tables as ascend_tables_view
from nbprof.tools.ascend.parts import Ascend, AscendRule, AscendSection, AscendVerdict, Iterations
from nbprof.tools.common import bar, figure, more_rows, share
from nbprof.tools.parts import Empty, Figure, Ring, Table
from nbprof.tools.steps.parts import Steps
from nbprof.tools.tables import column, floats, head, hidden

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_ROWS = {
    "op_types": 100,
    "ops": 300,
    "tasks": 100,
    "pmu_types": 60,
    "waits": 64,
    "fusion": 200,
    "api": 100,
}
"""Rows of each table in a report; the line below the table says what is left out."""
MOST_GROUPS, MOST_ITERATIONS = 16, 4_000
"""Models on devices whose iterations a report holds, and iterations of each."""
MOST_PARTS = 8
"""Types that the ring names."""
_LONGEST = 300
"""Letters of a text."""

PARTS = (
    ("data_aug_ms", "input", "Data Aug Bound"),
    ("fp_to_bp_ms", "device_compute", "FP to BP Time"),
    ("all_reduce_ms", "device_collectives", "All-reduce after BP"),
    ("update_ms", "other", "Update"),
)
"""What an iteration is stacked of: column, the category whose colour it has, label."""
WHOLE_REFRESH = ("grad_refresh_ms", "other", "Grad Refresh Bound")

COLUMNS = {
    name: tuple(keys.split())
    for name, keys in {
        "op_types": (
            "op_type core task_type tasks total_us avg_us min_us max_us fraction host device model"
        ),
        "cores": "core tasks total_us fraction alone_us",
        "ops": (
            "op op_type task_type tasks total_us fraction avg_us max_us wait_us block_num op_state"
            " bound_by bound_fraction input_shapes"
        ),
        "tasks": (
            "op op_type task_type stream task iteration start_ms duration_us wait_us block_num"
            " op_state input_shapes input_data_types host device"
        ),
        "pmu_types": (
            "op_type core tasks duration_us bound_by bound_fraction saturated_fraction"
            " cube_fraction vector_fraction scalar_fraction mte1_fraction mte2_fraction"
            " mte3_fraction fixpipe_fraction memory_bound cube_utilization_fraction"
            " icache_miss_fraction cache_hit_fraction bank_group_conflict_fraction"
            " bank_conflict_fraction read_bytes_per_second write_bytes_per_second"
        ),
        "waits": (
            "stream tasks busy_us wait_us wait_fraction input_wait_us long_waits longest_us"
            " longest_before host device"
        ),
        "fusion": (
            "fused_op original_ops originals tasks total_us memory_workspace_bytes"
            " memory_total_bytes"
        ),
        "api": "api level count total_us fraction avg_us min_us max_us sd_us",
    }.items()
}


_CONVENTIONS = {
    "end to end": "end to end",
    "own start": "from its own start",
    "from FP Start": "from FP Start",
}
"""By convention of the reported Iteration Time: the words in its note."""


def parts_of(iterations: pd.DataFrame) -> list[tuple[str, str, str]]:
    """The parts of iterations: in place of all-reduce and update the whole refresh if no
    all-reduce was recorded.
    """
    if iterations["all_reduce_ms"].notna().any():
        return list(PARTS)
    return [*PARTS[:2], WHOLE_REFRESH]


def _table_ids(run: Run) -> list[str]:
    """Ids of the tables of the tab; without ops there are no tasks either."""
    return [name for name in _TITLES if name != "tasks" or len(run.ascend.ops)]


_TITLES = {
    "op_types": "Ops by type",
    "cores": "By core",
    "ops": "Ops",
    "tasks": "Longest tasks",
    "pmu_types": "Core counters",
    "waits": "Waits of streams",
    "fusion": "Fusion",
    "api": "Host calls",
}
_EXTRA = {
    "ops": {
        "tasks": frames.column("ascend.op_types.frame", "tasks"),
        "total_us": frames.column("ascend.op_types.frame", "total_us"),
        "avg_us": frames.column("ascend.op_types.frame", "avg_us"),
        "max_us": frames.column("ascend.op_types.frame", "max_us"),
        "wait_us": Col(
            "wait_us",
            "float64",
            "us",
            "Wait µs",
            "From the end of the previous tasks on its stream, summed.",
            "number",
            1,
        ),
        "fraction": Col(
            "fraction", "float64", "fraction", "%", "Share of the time of all tasks.", "percent", 1
        ),
        "bound_by": frames.column("ascend.pmu.frame", "bound_by"),
        "bound_fraction": frames.column("ascend.pmu.frame", "bound_fraction"),
    }
}
"""Columns of tables that aggregate rows of a frame."""


def payload(run: Run) -> Ascend:
    """Measurements of Ascend's profiler."""
    if not has(run):
        return nothing(_EMPTY)
    if ascend_tables_view.alone(run):
        return replace(
            nothing(),
            verdict=ascend_tables_view.verdict(run),
            sections=ascend_tables_view.sections(run),
        )
    verdict = run.ascend.verdict
    return Ascend(
        empty=None,
        verdict=AscendVerdict(
            bound=verdict["bound"] or None,
            word=verdict["verdict"],
            text=verdict["text"],
            detail=verdict["detail"],
        ),
        figures=figures(run),
        iterations=iterations(run),
        iterations_missing="" if len(run.ascend.iterations) else LACKS["iterations"],
        rules=rules(run),
        sections=[section(run, name) for name in _table_ids(run)]
        + ascend_tables_view.sections(run),
        ring=_ring(run.ascend.op_types),
        notes=list(run.ascend.notes),
    )


def nothing(empty: Empty | None = None) -> Ascend:
    """The part of a profile without tables of Ascend."""
    return Ascend(
        empty=empty,
        verdict=AscendVerdict(bound=None, word="Unknown", text="", detail=""),
        figures=[],
        iterations=[],
        iterations_missing="",
        rules=[],
        sections=[],
        ring=Ring(ms=0.0, parts=[]),
        notes=[],
    )


def _ring(types: pd.DataFrame) -> Ring:
    """Time by type of op, whatever it ran on."""
    times = (
        types.groupby("op_type", sort=False)["total_us"]
        .sum()
        .sort_values(ascending=False, kind="stable")
    )
    return Ring(ms=float(times.sum()) / 1000, parts=rings.parts(times, MOST_PARTS))


_EMPTY = Empty(
    title="No tables from Ascend's profiler",
    text=(
        "The profile was not written by msprof, torch_npu or MindSpore. Load the folder PROF_* or"
        " ASCEND_PROFILER_OUTPUT."
    ),
)
_SHOWS = frozenset(
    ("step_trace", "op_statistic", "op_summary", "fusion_op", "api_statistic", "prof_rule")
)


def has(run: Run) -> bool:
    """True if a profiler of Ascend wrote tables that the tab shows."""
    return bool(_SHOWS.intersection(run.ascend.kinds)) or ascend_tables_view.has(run)


def only(run: Run) -> list[str]:
    """The tabs of a profile that is nothing but tables without moments of tasks or iterations; []
    of others, which have more.
    """
    if not run.ascend.kinds or len(run.trace.events):
        return []
    tabs = ["ascend"] if has(run) else []
    return [*tabs, "memory"] if "memory" not in run.missing else tabs


def figures(run: Run) -> list[Figure]:
    """The key figures: the mean iteration and its parts, or the busy and waiting time of the
    device.
    """
    summary = run.ascend.iterations_summary
    rows = summary[summary["main"].astype(bool) & summary["iteration_ms"].notna()]
    if len(rows):
        return _iteration_figures(rows)
    return [*_wait_figures(run.ascend.waits), *_core_figures(run.ascend.cores)]


def _iteration_figures(rows: pd.DataFrame) -> list[Figure]:
    """The mean iteration of the slowest device, and its parts."""
    row = rows.sort_values("iteration_ms", ascending=False, kind="stable").iloc[0]
    counted = wording.plural(int(row["counted"]), "iteration")
    if len(rows) > 1:
        counted += ", slowest device"
    spread = None
    if wording.real(row["sd_ms"]) is not None:
        spread = f"± {wording.number(row['sd_ms'], 2)}"
    all_reduce = wording.real(row["all_reduce_fraction"])
    refresh_note = "no all-reduce recorded"
    if all_reduce is not None:
        refresh_note = f"{wording.percent(100 * all_reduce)} all-reduce"
    refresh = _share("Grad Refresh Bound", row, "grad_refresh", "device_collectives")
    reported = f"as reported: {_CONVENTIONS.get(row['convention'], 'unclear')}"
    return [
        figure("iteration", "Iteration", row["iteration_ms"], "ms", 2, counted, spread=spread),
        _share("Data Aug Bound", row, "data_aug", "input"),
        _share("FP to BP Time", row, "fp_to_bp", "device_compute"),
        replace(refresh, note=refresh_note),
        figure(
            "reported_iteration", "Iteration Time", row["reported_iteration_ms"], "ms", 2, reported
        ),
    ]


def _wait_figures(waits: pd.DataFrame) -> list[Figure]:
    """Running and waiting time of the devices, over all of their streams."""
    of_device = waits[waits["stream"].isna()]
    if of_device.empty:
        return []
    busy, wait = float(of_device["busy_us"].sum()), float(of_device["wait_us"].sum())
    running = share(busy, busy + wait)
    devices = wording.plural(len(of_device), "device")
    return [
        figure("tasks_running", "Tasks running", running, "%", 1, "from first to last task"),
        figure("waits", "Waits", wait / 1000, "ms", 2, devices),
    ]


def _core_figures(cores: pd.DataFrame) -> list[Figure]:
    """The share of each kind of core; that of the AI CPU even if it is 0."""
    if cores.empty:
        return []
    total = float(cores["total_us"].sum())
    result = []
    for name in ("AI Core", "Vector core", "AI CPU", "Communication"):
        core_us = float(cores.loc[cores["core"] == name, "total_us"].sum())
        if core_us or name == "AI CPU":
            key = name.lower().replace(" ", "_")
            note = f"{wording.millis(core_us / 1000)} of tasks"
            result.append(figure(key, name, share(core_us, total), "%", 1, note))
    return result


def _share(label: str, row: Any, name: str, category: str) -> Figure:
    fraction = wording.real(row[f"{name}_fraction"])
    if fraction is None:
        return figure(name, label, None, "%", 1, "not recorded", bar=bar((category, None)))
    note = wording.millis(row[f"{name}_ms"])
    return figure(name, label, 100 * fraction, "%", 1, note, bar=bar((category, 100 * fraction)))


def iterations(run: Run) -> list[Iterations]:
    """Iterations by device and model as steps, main models first; `noun` and `labels` say what they
    are.
    """
    frame, summary = run.ascend.iterations, run.ascend.iterations_summary
    several = frame["host"].nunique() > 1
    ordered = summary.sort_values("main", ascending=False, kind="stable").head(MOST_GROUPS)
    groups = []
    for row in ordered.to_dict("records"):
        rows = frame[
            (frame["host"] == row["host"])
            & (frame["device"] == row["device"])
            & _equal(frame["model"], row["model"])
        ]
        # The last ones show how the run went on.
        drawn = rows.tail(MOST_ITERATIONS)
        steps = _steps(drawn, len(rows) - len(drawn))
        groups.append(Iterations(label=_group_label(row, several), steps=steps))
    return groups


def _group_label(row: dict[Any, Any], several: bool) -> str:
    """`device 0, model 3`, with the host in front if there are several."""
    parts = [f"device {row['device']}" if row["device"] >= 0 else "device"]
    if several:
        parts.insert(0, str(row["host"]))
    if pd.notna(row["model"]):
        parts.append(f"model {row['model']}")
    return ", ".join(parts)


def _equal(values: pd.Series[Any], value: Any) -> Any:
    """Rows with a value, which may be missing."""
    if pd.isna(value):
        return values.isna()
    return (values == value).fillna(False).to_numpy(np.bool_)


def _steps(rows: pd.DataFrame, left_out: int) -> Steps:
    parts = [part for part in parts_of(rows) if rows[part[0]].notna().any()]
    excluded = []
    if warm := int(rows["warmup"].sum()):
        excluded.append(f"the first {wording.plural(warm, 'iteration')} (warm-up)")
    if left_out:
        excluded.append(f"{left_out:,} before those shown")
    return Steps(
        empty=None,
        step=rows["iteration"].to_numpy(np.int32),
        name=[""] * len(rows),
        start_ms=short(floats(rows["start_ms"])),
        step_time_ms=short(floats(rows["iteration_ms"])),
        categories={key: short(floats(rows[name])) for name, key, _ in parts},
        prefix="",
        hosts=[],
        warmup=rows["warmup"].to_numpy(np.uint8),
        left_out=f"Averages exclude {' and '.join(excluded)}." if excluded else "",
        noun="iteration",
        labels={key: label for _, key, label in parts},
    )


def rules(run: Run) -> list[AscendRule]:
    """Rules with their results, findings first."""
    return list(map(_rule, run.ascend.rules.to_dict("records")))


_STATES = {"found": "found", "not found": "clear"}


def _rule(row: dict[Any, Any]) -> AscendRule:
    return AscendRule(
        title=wording.one_line(row["title"]),
        about=wording.one_line(row["about"]),
        state=_STATES.get(row["state"], "unknown"),
        severity=row["severity"].lower(),
        percent=None if pd.isna(row["share"]) else 100 * float(row["share"]),
        evidence=shorten(wording.one_line(row["evidence"])),
        fix=shorten(wording.one_line(row["fix"])),
        ops=shorten(wording.one_line(row["ops"])),
    )


def section(run: Run, name: str) -> AscendSection:
    """A table with its heading."""
    frame = _rows(run, name)
    listed = frame.head(MOST_ROWS.get(name, len(frame)))
    accessor = {"pmu_types": "pmu", "tasks": "ops"}.get(name, name)
    missing = ""
    if frame.empty:
        missing = LACKS.get(accessor, "")
    return AscendSection(
        id=name,
        title=_TITLES[name],
        scope=_scope(run, name, frame),
        missing=missing,
        note=more_rows(len(frame) - len(listed), f"p.ascend.{accessor}"),
        table=_with_jumps(name, _table(name, listed), listed),
    )


_JUMPS = {
    "ops": ("_at", "_for_us"),
    "tasks": ("start_ms", "duration_us"),
    "waits": ("longest_at_ms", "longest_us"),
}
"""Tables whose rows lead into the trace: columns with start and duration of the longest one."""


def _with_jumps(name: str, table: Table, rows: pd.DataFrame) -> Table:
    """The table with the time of each row in the trace, and of ops with the core, whose colour bars
    have; no head names these.
    """
    if name not in _JUMPS or rows.empty:
        return table
    if name in ("ops", "tasks"):
        table.data["core"] = column(rows, "core", "text")
    start, duration = _JUMPS[name]
    return hidden(
        table, rows[start].to_numpy(np.float64), rows[duration].to_numpy(np.float64) / 1000
    )


def _rows(run: Run, name: str) -> pd.DataFrame:
    if name == "ops":
        return by_op(run)
    if name == "tasks":
        return longest(run)
    frame: pd.DataFrame = getattr(run.ascend, name)
    if name == "cores" and len(frame):
        # Of all devices together.
        sums = frame.groupby("core", sort=False)[["tasks", "total_us", "alone_us"]].sum()
        frame = _with_fraction(sums.reset_index())
    return frame


def _with_fraction(sums: pd.DataFrame, total: float | None = None) -> pd.DataFrame:
    """With the share of each row in the total time."""
    if total is None:
        total = float(sums["total_us"].sum())
    if total <= 0:
        return sums.assign(fraction=np.nan)
    return sums.assign(fraction=sums["total_us"] / total)


def longest(run: Run) -> pd.DataFrame:
    """The tasks of the devices, the longest first; communication is in the tables of
    collectives.
    """
    ops = run.ascend.ops
    tasks = ops[(ops["core"] != COMMUNICATION) & ops["duration_us"].notna()]
    return tasks.sort_values("duration_us", ascending=False, kind="stable", ignore_index=True)


def by_op(run: Run) -> pd.DataFrame:
    """Tasks grouped by op, type and task type, most time first, with their counters."""
    ops = run.ascend.ops
    if ops.empty:
        return ops.assign(tasks=0, bound_by="")
    keys = ["op", "op_type", "task_type", "core"]
    groups = ops.groupby(keys, sort=False)
    sums = groups.agg(
        tasks=("duration_us", "size"),
        total_us=("duration_us", "sum"),
        avg_us=("duration_us", "mean"),
        max_us=("duration_us", "max"),
        block_num=("block_num", "first"),
        op_state=("op_state", "first"),
        input_shapes=("input_shapes", "first"),
    )
    sums["wait_us"] = groups["wait_us"].sum(min_count=1)
    sums = _with_fraction(sums, float(ops["duration_us"].sum()))
    long = _longest_of_each(ops, keys)
    sums["_at"], sums["_for_us"] = long["start_ms"], long["duration_us"]
    pmu = run.ascend.pmu
    if len(pmu):
        counted = _longest_of_each(pmu, keys)
        sums["bound_by"], sums["bound_fraction"] = counted["bound_by"], counted["bound_fraction"]
        sums["bound_by"] = sums["bound_by"].fillna("")
    return sums.reset_index().sort_values(
        "total_us", ascending=False, kind="stable", ignore_index=True
    )


def _longest_of_each(tasks: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The longest task of each group."""
    by_time = tasks.sort_values("duration_us", ascending=False, kind="stable")
    return by_time.drop_duplicates(keys).set_index(keys)


def _scope(run: Run, name: str, frame: pd.DataFrame) -> str:
    """The small text behind the title of a table."""
    if not len(frame):
        return ""
    match name:
        case "op_types":
            tasks = wording.plural(int(frame["tasks"].sum()), "task")
            total = wording.number(float(frame["total_us"].sum()) / 1000, 2)
            return f"{tasks}, {total} ms; without communication"
        case "ops":
            tasks = wording.plural(len(run.ascend.ops), "task")
            return f"{tasks} by op; click a row to see its longest task in the trace"
        case "tasks":
            tasks = wording.plural(len(frame), "task")
            jump = "click a row to see it in the trace"
            return f"the longest of {tasks}, without communication; {jump}"
        case "pmu_types":
            return f"{', '.join(run.ascend.pmu_groups)}; means by type, weighted by time"
        case "fusion":
            before, after = ascend_tables.fused_away(frame)
            return f"{before:,} ops before, {after:,} after"
        case "api":
            return "levels are nested: % is of the level"
        case "waits":
            return "all: nothing ran on the device"
    return "alone: no other kind ran"


def _has_values(name: str, key: str, rows: pd.DataFrame) -> bool:
    """True if a column has values worth showing: not of counters that were not recorded, nor the
    number of a single device.
    """
    if key not in rows.columns:
        return False
    if key in ("host", "device", "model") and name != "ops":
        return rows[key].nunique(dropna=False) > 1
    if not len(rows) or key == COLUMNS[name][0]:
        return True
    values = rows[key]
    if values.dtype == object:
        return bool((values != "").any())
    return bool(values.notna().any())


def frame_name(table: str) -> str:
    """The frame of the schema that a table of the tab shows."""
    return {
        "cores": "ascend.op_types.cores",
        "pmu_types": "ascend.pmu.types",
        "tasks": "ascend.ops.frame",
    }.get(table, f"ascend.{table}.frame")


def _table(name: str, rows: pd.DataFrame) -> Table:
    """The `Table` of a frame: fractions in percent, rates in GB/s; columns that say nothing are
    left out.
    """
    keys = [key for key in COLUMNS[name] if _has_values(name, key, rows)]
    heads, data = [], {}
    for key in keys:
        col = _EXTRA.get(name, {}).get(key) or frames.column(frame_name(name), key)
        values = rows[[key]]
        label = col.label
        if col.unit == "fraction":
            values = values * 100.0
        elif col.unit == "bytes_per_second":
            values, label = values / 1e9, label.replace("B/s", "GB/s")
        elif col.kind in ("text", "code"):
            values = pd.DataFrame({key: [shorten(str(text)) for text in rows[key]]})
        heads.append(replace(head(col), label=label))
        data[key] = column(values, key, col.kind)
    return Table(columns=heads, data=data, rows=len(rows))


def shorten(text: str) -> str:
    """A text that is short enough for a cell."""
    return wording.shortened(text, _LONGEST)
