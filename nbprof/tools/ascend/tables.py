"""The tables of Ascend's profilers that no other view is made of, as the files have them: steps of
PyTorch, caches, links, the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.display import wording
from nbprof.formats.msprof.columns import columns, words
from nbprof.schema.columns import Col
from nbprof.tools.ascend.parts import AscendSection, AscendVerdict
from nbprof.tools.common import more_rows
from nbprof.tools.parts import Table
from nbprof.tools.tables import column, head

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_ROWS = 100
_LONGEST = 300


class About(NamedTuple):
    """One kind of table: its heading, what a row of it is, and the column whose largest (or with
    "-" smallest) values come first.
    """

    title: str
    row: str
    first: str = ""


TABLES = {
    "step_trace_time": About(
        "Steps of PyTorch", "a step: Stage is computing, exposed communication and free time"
    ),
    "communication": About(
        "Collectives",
        "a collective: elapsed time is transit, waiting for other ranks and idle",
        "elapse_ms",
    ),
    "communication_bandwidth": About(
        "Bandwidth of collectives", "what a collective sent over one kind of link", "transit_ms"
    ),
    "communication_matrix": About(
        "Links between ranks", "what one rank sent to another", "transit_ms"
    ),
    "communication_statistic": About("Collectives by type", "a type of collective", "total_us"),
    "operator_details": About("Host ops", "a call of a PyTorch op", "device_total_us"),
    "l2_cache": About("L2 cache", "a task, most misses first", "-hit_rate"),
    "aicpu": About("AI CPU", "a task of the AI CPU", "total_us"),
    "ai_core_utilization": About("Core utilization", "a core, sampled over the whole recording"),
    "npu_module_mem": About(
        "Memory by driver module", "a module at the moment when it held the most", "reserved_bytes"
    ),
    "static_op_mem": About(
        "Static memory of the graph",
        "an op, from the first to the last node that needs its memory",
        "size_bytes",
    ),
    "msprof_tx": About("Program marks (msproftx)", "a mark or range"),
    "soc_pmu": About("Address translation (TLB)", "a task, most misses first", "-tlb_hit_rate"),
    "page_fault": About("Page faults", "a task", "page_fault_num"),
    "dp": About("Data queue", "an action of the queue that feeds the device"),
    "aicpu_mi": About("Data queue", "a wait for the queue that feeds the device", "queue_size"),
    "bandwidth": About("Bandwidth of memory", "the mean, or one memory"),
    "link": About("Links", "one measure of a link"),
    "network": About("Network", "a sample of the network card"),
    "llc": About("Last level cache", "a task"),
    "cpu_usage": About("Host CPUs", "a CPU, or the mean"),
    "process_cpu_usage": About("CPU by process", "a process", "cpu_percent"),
    "sys_mem": About("Host memory", "the host"),
    "process_mem": About("Memory by process", "a process"),
    "os_runtime_statistic": About("System calls", "a call of a thread", "time_us"),
    "dvpp": About("Media units (DVPP)", "an engine"),
}
"""By kind, in the order in which they are shown."""

_UNITS = {
    "_us": "µs",
    "_ms": "ms",
    "_percent": "%",
    "_gb_per_second": "GB/s",
    "_mb_per_second": "MB/s",
    "_bytes": "",
}


def has(run: Run) -> bool:
    """True if the profile has one of these tables."""
    return any(kind in run.ascend.kinds for kind in TABLES)


def alone(run: Run) -> bool:
    """True if the profile has nothing but these tables."""
    return (
        bool(run.ascend.kinds)
        and set(run.ascend.kinds) <= TABLES.keys()
        and not len(run.trace.events)
    )


def verdict(run: Run) -> AscendVerdict:
    """The heading of a table that was opened by itself."""
    title = next(about.title for kind, about in TABLES.items() if kind in run.ascend.kinds)
    detail = (
        "This is one file of a recording. For ops, steps, memory and the timeline, load the folder"
        " that contains it (PROF_*, *_ascend_pt)."
    )
    return AscendVerdict(bound=None, word=title, text="", detail=detail)


def sections(run: Run) -> list[AscendSection]:
    """Each of these tables as a section of the tab."""
    return [_section(run, kind) for kind in TABLES if kind in run.ascend.kinds]


def _section(run: Run, kind: str) -> AscendSection:
    about, frame = TABLES[kind], run.ascend.tables[kind]
    if kind == "npu_module_mem" and "reserved_bytes" in frame.columns:
        frame = _peaks(frame)
    key, ascending = about.first.removeprefix("-"), about.first.startswith("-")
    if key in frame.columns:
        frame = frame.sort_values(key, ascending=ascending, kind="stable", na_position="last")
    return AscendSection(
        id=f"table_{kind}",
        title=about.title,
        scope=f"{wording.plural(len(frame), 'row')}; each is {about.row}",
        missing="",
        note=more_rows(len(frame) - MOST_ROWS, f"p.ascend.table({kind!r})"),
        table=_table(run, kind, frame.head(MOST_ROWS)),
    )


def _table(run: Run, kind: str, rows: pd.DataFrame) -> Table:
    headers = {}
    for table in run.trace.tables.get(kind, []):
        for parsed, cell in zip(columns(kind, table.header), table.header, strict=True):
            headers[parsed.name] = cell
    names = [name for name in rows.columns if _has_values(rows, name)]
    heads, data = [], {}
    # Host and device come last.
    for name in sorted(names, key=lambda name: name in ("host", "device")):
        col, values = _col(name, headers.get(name, ""), rows[name])
        heads.append(head(col))
        data[col.name] = column(pd.DataFrame({col.name: values}), col.name, col.kind)
    return Table(columns=heads, data=data, rows=len(rows))


def _has_values(rows: pd.DataFrame, name: str) -> bool:
    """True if a column is to be shown: it has a value, and more than one host or device."""
    if name in ("event", "device_id"):
        return False
    if name in ("host", "device"):
        return bool(rows[name].nunique(dropna=False) > 1)
    return bool(rows[name].notna().any())


def _peaks(frame: pd.DataFrame) -> pd.DataFrame:
    """The row of each module at which it holds the most. -1 is what the exporter writes where it
    saw memory given back alone.
    """
    frame = frame.assign(reserved_bytes=frame["reserved_bytes"].where(frame["reserved_bytes"] >= 0))
    keys = [key for key in ("host", "device", "component") if key in frame.columns]
    largest_first = frame.sort_values(
        "reserved_bytes", ascending=False, kind="stable", na_position="last"
    )
    return largest_first.drop_duplicates(keys)


def _col(name: str, cell: str, values: pd.Series[Any]) -> tuple[Col, Any]:
    """The declaration of a column and its values: moments in ms since the start, numbers in the
    unit of their name.
    """
    bare, help_text = name, "As in the file."
    if cell:
        bare = words(cell)[0].replace("_", " ")
        help_text = f"{wording.one_line(cell.strip())}, as in the file."
    if name.endswith("_ps"):
        help_text += " Since the start of the recording."
        label = f"{_title(bare, '_ps')} ms"
        return Col(name, "float64", "ms", label, help_text, "number", 3), _numbers(values) / 1e9
    if not pd.api.types.is_numeric_dtype(values.dtype):
        return Col(name, "object", "", _title(bare), help_text, "text"), _texts(values)
    suffix = next((suffix for suffix in _UNITS if name.endswith(suffix)), "")
    unit = _UNITS.get(suffix, "")
    if name == "gb_per_second":
        bare, unit = "bandwidth", "GB/s"
    label = f"{_title(bare, suffix)} {unit}".strip()
    if name.endswith("_bytes"):
        return Col(name, "float64", "bytes", label, help_text, "bytes"), values
    numbers = _numbers(values)
    digits = 3
    if np.all(numbers[np.isfinite(numbers)] % 1 == 0):
        digits = 0
    return Col(name, "float64", "", label, help_text, "number", digits), numbers


def _numbers(values: pd.Series[Any]) -> npt.NDArray[np.float64]:
    numeric = pd.to_numeric(values, errors="coerce").astype("Float64")
    return np.asarray(numeric.to_numpy(np.float64, na_value=np.nan))


def _texts(values: pd.Series[Any]) -> list[str]:
    texts = values.astype(object).where(values.notna(), "")
    return [wording.shortened(wording.one_line(str(text)), _LONGEST) for text in texts]


def _title(text: str, suffix: str = "") -> str:
    """A heading of a column name: without its unit, words apart, the first letter large."""
    text = text.removesuffix(suffix).replace("_", " ")
    return text[:1].upper() + text[1:]
