"""Ops under the roof of the device, with the table of all that is known of them: the tab "HLO &
roofline", of PyTorch "Roofline".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.given_peaks import ON_CHIP
from nbprof.activity.unit import Unit
from nbprof.analysis import roofline
from nbprof.analysis.ops import ops
from nbprof.analysis.roofline import Peaks
from nbprof.display import wording
from nbprof.display.categories import CATEGORIES
from nbprof.display.codec import numbers
from nbprof.schema import frames
from nbprof.schema.columns import Col
from nbprof.tools import rings
from nbprof.tools.common import bar, figure, percent_figure, unit_of
from nbprof.tools.hlo.parts import Hlo, Roof, RoofMark
from nbprof.tools.parts import (
    Column,
    ColumnData,
    Empty,
    Figure,
    RingPart,
    Table,
    TitledRing,
    no_table,
)
from nbprof.tools.tables import column, explained

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_ROWS = 1500
"""Ops that are listed one by one; the rest is one sum."""
_LONGEST = 400
"""Letters of a text."""
_PARTS = 7
"""Categories with a segment of their own."""
_GIGA, _TERA = 1e9, 1e12
_RATES = {"flops_per_second": "GFLOP/s", "bytes_per_second": "GB/s"}
CODE = 'import nbprof\n\np = nbprof.load(path, peaks={"flops": 312e12, "bytes": 2.0e12})'
CODE_OF_CPU = (
    'import nbprof\n\np = nbprof.load(path, peaks={"flops": ..., "bytes": ...})  # of this CPU, per'
    " second"
)

_OF_ROOF = ("roof_fraction", "compute_fraction", "bandwidth_fraction")
_HUES = (
    (
        ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective", "ragged-all"),
        "device_collectives",
    ),
    (("infeed",), "input"),
    (("outfeed",), "output"),
    (("copy-start", "copy-done", "send", "recv"), "device_to_device"),
)
"""What of a step the categories of XLA are, by how they begin; everything else is device
compute.
"""
_OF_PYTORCH = {
    "communication": "device_collectives",
    "host transfer": "input",
    "copy": "device_to_device",
    "fill": "device_to_device",
}
"""The same of the kinds of PyTorch's ops on a device."""
_EAGER = (
    "rank op category input_shapes precision occurrences total_us self_us self_fraction"
    " flops_per_second bytes_per_second operational_intensity bound bound_by flops bytes wasted_us"
)
"""Columns of `p.roofline.frame` that are shown of PyTorch's ops."""
_NO_TENSOR = r"(?<=\[)\[\], |, \[\](?=[,\]])"
"""Shapes of what is no tensor, which only take room."""
_HOST_MEMORY = "S(5)"
"""How XLA writes the memory space of the host."""

_COST_KNOWN = 0.0005
"""Share of op time with unknown cost up to which it is not worth a note."""


class GivenRoofline(NamedTuple):
    """A roofline with other peaks, or without transfers: see `nbprof.analysis.roofline`."""

    frame: pd.DataFrame
    total: dict[str, float | str]
    peaks: Peaks
    steps: pd.DataFrame


def has(run: Run) -> bool:
    """True if an op of a compiled program ran, or one of PyTorch with the shapes of its inputs."""
    return not run.programs.roofline_missing


def nothing(empty: Empty | None = None) -> Hlo:
    """The part without ops."""
    return Hlo(
        empty=empty,
        figures=[],
        table=no_table(),
        left_out="",
        donuts=[],
        peak_flops=None,
        roofs=[],
        marks=[],
        device="",
        missing="",
        code="",
    )


def payload(run: Run, given_roofline: GivenRoofline | None = None) -> Hlo:
    """The 1,500 ops with most self time, the figures over all.

    Parameters
    ----------
    run : Run
    given_roofline : GivenRoofline, optional
        A roofline with other peaks than those of the run.
    """
    programs = run.programs
    if programs.roofline_missing:
        title = "No shapes of inputs"
        if programs.roofline_missing == programs.hlo_missing:
            title = "No ops of compiled programs"
        return nothing(Empty(title=title, text=programs.roofline_missing))
    frame, total, peaks, steps = given_roofline or (
        *programs.roofline,
        roofline.peaks(run.activity),
        programs.roofline_steps,
    )
    eager = programs.eager
    unit = unit_of(run)
    average = roofline.average(steps)
    if eager:
        hlo, accessor, average_of_eager = frame, "p.roofline.frame", average
        table = _table_of_pytorch(frame.head(MOST_ROWS), run.activity.has_device)
    else:
        hlo, accessor, average_of_eager = programs.hlo, "p.hlo.frame", None
        if given_roofline is not None:
            hlo = _with_bounds(hlo, frame)
        table = _table(hlo.head(MOST_ROWS), frame.head(MOST_ROWS))
    marks = [_mark("Whole profile", total)]
    # A recording is the whole profile.
    if not unit.is_recording:
        marks.append(_mark(unit.average, average))
    donuts = [_donut(hlo, "category", "By category")]
    # Without peaks nobody knows: a ring of one part says nothing.
    if hlo["bound"].ne("").any():
        donuts.append(_donut(hlo, "bound", "By bound"))
    missing = code = ""
    if peaks.missing:
        missing = peaks.missing.partition(": pass")[0] + "."
        code = _code_of_peaks(run)
    return Hlo(
        empty=None,
        figures=_figures(hlo, total, peaks, average_of_eager, unit),
        table=table,
        left_out=left_out(hlo, accessor),
        donuts=donuts,
        peak_flops=wording.real(peaks.flops_per_second),
        roofs=_roofs(peaks),
        marks=[mark for mark in marks if mark],
        device=wording.one_line(peaks.device),
        missing=missing,
        code=code,
    )


def _with_bounds(hlo: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """The ops with their bounds by other peaks, and without transfers where these were left out."""
    if len(frame) < len(hlo):
        hlo = hlo[~hlo["category"].isin(roofline.TRANSFERS)].reset_index(drop=True)
    return hlo.assign(bound_by=frame["bound_by"], bound=frame["bound"])


def _code_of_peaks(run: Run) -> str:
    return CODE if run.activity.has_device else CODE_OF_CPU


def left_out(frame: pd.DataFrame, accessor: str = "p.hlo.frame") -> str:
    """A sentence on the rows that the table omits; '' if it has all."""
    rest = frame.iloc[MOST_ROWS:]
    if rest.empty:
        return ""
    ops = wording.plural(len(rest), "more op")
    ms = wording.number(rest["self_us"].sum() / 1000, 2)
    percent = wording.percent(100 * rest["self_fraction"].sum())
    return (
        f"{ops} with the least self time ({ms} ms or {percent} together) are not listed;"
        f" {accessor} has all."
    )


def hue(category: str, expression: str = "") -> str:
    """The step-time category that an op counts as: its colour."""
    key = next((key for starts, key in _HUES if category.startswith(starts)), "device_compute")
    if key != "device_to_device" or _HOST_MEMORY not in expression:
        return key
    # The first layout is that of the result: a result in host memory is output, an operand there is
    # input.
    if _HOST_MEMORY in expression.partition("}")[0]:
        return "output"
    return "input"


def _roofs(peaks: Peaks) -> list[Roof]:
    levels = [
        (peaks.memory, peaks.bytes_per_second),
        *((ON_CHIP[level], peak) for level, peak in peaks.on_chip.items()),
    ]
    roofs = []
    for label, peak in levels:
        if peak > 0:
            ridge = wording.real(peaks.flops_per_second / peak)
            roofs.append(Roof(label=label, bytes_per_second=float(peak), ridge=ridge))
    return roofs


def _mark(label: str, values: dict[str, float | str]) -> RoofMark | None:
    if not values:
        return None
    return RoofMark(
        label=label,
        operational_intensity=wording.real(values["operational_intensity"]),
        flops_per_second=wording.real(values["flops_per_second"]),
        bytes_per_second=wording.real(values["bytes_per_second"]),
        compute_fraction=wording.real(values["compute_fraction"]),
        bandwidth_fraction=wording.real(values["bandwidth_fraction"]),
    )


def _figures(
    frame: pd.DataFrame,
    total: dict[str, float | str],
    peaks: Peaks,
    average: dict[str, float | str] | None,
    unit: Unit,
) -> list[Figure]:
    """The figures over all; `average` is known of PyTorch: that of an average unit of work."""
    lost = float(total["unknown_fraction"])
    cost = ""
    if lost > _COST_KNOWN:
        cost = f"; cost unknown for {wording.percent(100 * lost)} of op time"
    flops = _Rate("flop_rate", "FLOP rate", "FLOP/s", float(total["flops_per_second"]))
    moved = _Rate("memory_bandwidth", "Memory bandwidth", "B/s", float(total["bytes_per_second"]))
    figures = [_self_time(frame, total, of_programs=average is None)]
    if average is not None:
        figures.append(_mfu(average, peaks, cost, unit))
    return [
        *figures,
        flops.figure(peaks.flops_per_second, peaks.memory, cost),
        moved.figure(peaks.bytes_per_second, peaks.memory, cost),
        _of_roof(total, cost),
        *_bounds(frame, peaks),
    ]


def _self_time(frame: pd.DataFrame, total: dict[str, float | str], *, of_programs: bool) -> Figure:
    note = wording.plural(len(frame), "op")
    if of_programs:
        note += f" of {wording.plural(frame['program'].nunique(), 'program')}"
    idle = float(total["idle_us"]) / max(float(total["time_us"]), 1e-12)
    if idle > 0:
        note += f"; idle {wording.percent(100 * idle)}"
    ms = float(frame["self_us"].sum()) / 1000
    return figure("self_time", "Op self time", ms, "ms", 2, note)


def _of_roof(total: dict[str, float | str], cost: str) -> Figure:
    percent = 100 * float(total["roof_fraction"])
    note = "peaks unknown"
    if math.isfinite(percent):
        note = _nearest(total) + cost
    elif float(total["unknown_fraction"]) == 1:
        note = "unknown"
    return percent_figure("roof", "Of the roof", percent, note)


def _bounds(frame: pd.DataFrame, peaks: Peaks) -> list[Figure]:
    """Op time bound by compute, by memory and by latency; None if nearly all of it is unknown."""
    sums = frame.groupby("bound")["self_fraction"].sum()
    percent = {str(key): 100 * float(share) for key, share in sums.items()}
    unknown = percent.pop("", 0.0)
    compute = percent.pop(ops.COMPUTE, 0.0)
    latency = percent.pop(ops.LATENCY, 0.0)
    memory = percent.pop(peaks.memory, 0.0)
    title = f"Bound by {_within(peaks.memory)}"
    notes = []
    # The others are memories on the chip.
    if chip := sum(percent.values()):
        notes.append(f"{wording.percent(chip)} by on-chip memory")
    if unknown > _UNKNOWN_PERCENT:
        none = "not known"
        return [
            figure("bound_by_compute", "Bound by compute", None, "%", 1, none),
            figure("bound_by_memory", title, None, "%", 1, "; ".join(notes) or none),
            figure("bound_by_latency", "Latency-bound", None, "%", 1, none),
        ]
    if unknown > 0.05:
        notes.append(f"{wording.percent(unknown)} unknown")
    below = f"below {100 * ops.NEAR_ROOF:.0f}% of every peak"
    return [
        figure("bound_by_compute", "Bound by compute", compute, "%", 1, "of op time"),
        figure("bound_by_memory", title, memory, "%", 1, "; ".join(notes) or "of op time"),
        figure("bound_by_latency", "Latency-bound", latency, "%", 1, below),
    ]


_UNKNOWN_PERCENT = 99.95
"""From so much op time of unknown bounds on, no share is stated."""


def _mfu(average: dict[str, float | str], peaks: Peaks, cost: str, unit: Unit) -> Figure:
    """The model FLOPs utilization: products of the model by the peak of the device."""
    percent = 100 * float(average.get("mfu_fraction", math.nan))
    if math.isfinite(percent):
        scope = unit.the if unit.is_recording else f"average {unit.noun}"
        note = f"model FLOPs by peak, {scope}{cost}"
    elif not average:
        note = "no steps"
    elif not peaks.by_precision and "FLOP/s" in peaks.lacking:
        note = "peaks unknown"
    else:
        note = "no matrix product of known cost, or peak unknown for its precision"
    return figure(
        "mfu",
        "Model FLOPs utilization",
        percent,
        "%",
        1,
        note,
        bar=bar(("device_compute", percent)),
    )


def _nearest(total: dict[str, float | str]) -> str:
    if not total["bound_by"]:
        return "resource use unknown"
    return f"nearest to the peak of {_within(str(total['bound_by']))}"


def _within(resource: str) -> str:
    """The name of a resource within a sentence."""
    if resource in (ops.COMPUTE, ops.DEVICE_MEMORY, ops.HOST_MEMORY):
        return resource.lower()
    return resource


class _Rate(NamedTuple):
    """A rate of one device over the whole time; on the CPU over the time of its ops."""

    key: str
    label: str
    unit: str
    value: float

    def figure(self, peak: float, memory: str, cost: str) -> Figure:
        """The rate beside its peak, each in the unit that suits it."""
        scale, prefix = _scale(self.value)
        digits = 2 if self.value >= 0.01 * scale else 4
        # When the threads of a CPU could have run an op and did not is not known.
        over = "over op time" if memory == ops.HOST_MEMORY else "idle time included"
        if math.isfinite(peak):
            peak_scale, peak_prefix = _scale(peak)
            peak_digits = 0 if peak >= 10 * peak_scale else 2
            peak_text = wording.number(peak / peak_scale, peak_digits)
            note = f"of {peak_text} {peak_prefix}{self.unit}, {over}"
        elif memory == ops.HOST_MEMORY:
            note = over
        else:
            note = f"a device, {over}"
        return figure(
            self.key,
            self.label,
            self.value / scale,
            f"{prefix}{self.unit}",
            digits,
            note + cost,
            bar=bar(("device_compute", 100 * self.value / peak)),
        )


def _scale(rate: float) -> tuple[float, str]:
    """The factor of the unit that suits a rate, and its prefix."""
    if rate >= _TERA:
        return _TERA, "T"
    return _GIGA, "G"


def _donut(frame: pd.DataFrame, key: str, title: str) -> TitledRing:
    """Self time by a column: its largest parts, and the others."""
    sums = frame.groupby(key)["self_us"].sum().sort_values(ascending=False, kind="stable")
    # Unknown is not ranked among the kinds.
    unknown = float(sums.pop("")) if "" in sums.index else 0.0
    total = (float(sums.sum()) + unknown) or 1.0
    parts = rings.parts(sums, _PARTS, total)
    if unknown:
        parts.append(RingPart(label="unknown", percent=100 * unknown / total, kind="others"))
    return TitledRing(title=title, ms=(float(sums.sum()) + unknown) / 1000, parts=parts)


def _table(frame: pd.DataFrame, roof: pd.DataFrame) -> Table:
    """All columns of `p.hlo.frame` and the fractions of the roof."""
    columns, data = [], {}
    of_roof = [frames.column("roofline.frame", key) for key in _OF_ROOF]
    for col in (*frames.SCHEMA["hlo.frame"], *of_roof):
        head = _head(col)
        columns.append(head)
        values = roof[col.name] if col.name in _OF_ROOF else frame[col.name]
        data[head.key] = _values(col, values)
    categories = [
        hue(str(name), str(text))
        for name, text in zip(frame["category"], frame["expression"], strict=True)
    ]
    table = Table(columns=columns, data=data, rows=len(frame))
    return table.with_columns(_chart_columns(roof, categories))


def _table_of_pytorch(frame: pd.DataFrame, has_device: bool) -> Table:
    """PyTorch's ops under the column names of the table of compiled ops."""
    columns, data = [], {}
    for key in (*_EAGER.split(), *_OF_ROOF):
        col = frames.column("roofline.frame", key)
        head = _head(col)
        values = frame[key]
        if key == "bytes_per_second":
            head.key = "gmemory_bytes_per_second"
        if key == "input_shapes":
            values = values.str.replace(_NO_TENSOR, "", regex=True)
        columns.append(head)
        data[head.key] = _values(col, values)
    categories = ["host_compute"] * len(frame)
    if has_device:
        categories = [_OF_PYTORCH.get(str(name), "device_compute") for name in frame["category"]]
    table = Table(columns=columns, data=data, rows=len(frame))
    return table.with_columns(_chart_columns(frame, categories))


def _chart_columns(roof: pd.DataFrame, categories: list[str]) -> dict[str, ColumnData]:
    """Columns that the chart needs; no head names them."""
    colours = [category.key for category in CATEGORIES]
    return {
        "_intensity": _short(roof["operational_intensity"]),
        "_flops": _short(roof["flops_per_second"]),
        "_bytes": _short(roof["bytes_per_second"]),
        "_hue": np.array([colours.index(category) for category in categories], np.uint8),
    }


def _short(values: pd.Series[Any]) -> npt.NDArray[np.float32]:
    return values.to_numpy(np.float64, na_value=np.nan).astype(np.float32)


def _key(col: Col) -> str:
    """A column shown in another unit than that of the frame has another name."""
    if col.unit in _RATES:
        return f"g{col.name}"
    if col.unit == "fraction":
        return col.name.replace("_fraction", "_percent")
    return {"flops": "gflops"}.get(col.name, col.name)


def _head(col: Col) -> Column:
    label, kind, digits = col.label, col.kind, col.digits
    if col.unit == "bytes_per_second":
        label = label.replace("B/s", "GB/s")
    elif col.unit in _RATES:
        label = label.replace("FLOP/s", "GFLOP/s")
    elif col.name == "flops":
        label = "GFLOPs"
    elif col.name == "bytes":
        kind = "bytes"
    elif col.name == "operational_intensity":
        digits = 2
    return Column(key=_key(col), label=label, kind=kind, help=_help(col), digits=digits)


def _help(col: Col) -> str:
    text = explained(col)
    if _in_giga(col):
        text += " In 10⁹."
    return text


def _in_giga(col: Col) -> bool:
    """True for FLOPs and rates, which are shown in 10⁹."""
    return col.unit in _RATES or col.name == "flops"


def _values(col: Col, values: pd.Series[Any]) -> ColumnData:
    if col.kind in ("text", "code"):
        return column(pd.DataFrame({"text": values.map(_shorten)}), "text", "text")
    if col.kind == "bool":
        return values.to_numpy(np.uint8)
    if col.kind == "percent":
        return numbers(100 * values.to_numpy(np.float64))
    scaled = values.to_numpy(np.float64, na_value=np.nan)
    if _in_giga(col):
        scaled = scaled / _GIGA
    return numbers(scaled)


def _shorten(text: object) -> str:
    return wording.shortened(text, _LONGEST)
