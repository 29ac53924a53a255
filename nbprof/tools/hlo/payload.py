"""Ops under the roof of the device, with the table of all that is known of them: the tab "HLO &
roofline", of PyTorch "Roofline".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
from nbprof.tools.common import bar, figure, unit_of
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
    *(
        "rank",
        "op",
        "category",
        "input_shapes",
        "precision",
        "occurrences",
        "total_us",
        "self_us",
        "self_fraction",
        "flops_per_second",
    ),
    *(
        "bytes_per_second",
        "operational_intensity",
        "bound",
        "bound_by",
        "flops",
        "bytes",
        "wasted_us",
    ),
)
"""Columns of `p.roofline.frame` that are shown of PyTorch's ops."""
_NO_TENSOR = r"(?<=\[)\[\], |, \[\](?=[,\]])"
"""Shapes of what is no tensor, which only take room."""
_HOST_MEMORY = "S(5)"
"""How XLA writes the memory space of the host."""

Made = tuple[pd.DataFrame, dict[str, float | str], Peaks, pd.DataFrame]


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


def payload(run: Run, given_roofline: Made | None = None) -> Hlo:
    """The 1,500 ops with most self time, the figures over all.

    Parameters
    ----------
    run : Run
    made : tuple, optional
        The frame, the total, the peaks and the steps of a roofline with other peaks.
    """
    if run.programs.roofline_missing:
        title = (
            "No ops of compiled programs"
            if run.programs.roofline_missing == run.programs.hlo_missing
            else "No shapes of inputs"
        )
        return nothing(Empty(title=title, text=run.programs.roofline_missing))
    frame, total, peaks, steps = given_roofline or (
        *run.programs.roofline,
        roofline.peaks(run.activity),
        run.programs.roofline_steps,
    )
    eager = run.programs.eager
    hlo = frame if eager else run.programs.hlo
    if given_roofline is not None and not eager:
        # Without infeed and outfeed there are fewer.
        hlo = (
            hlo[~hlo["category"].isin(roofline.TRANSFERS)].reset_index(drop=True)
            if len(frame) < len(hlo)
            else hlo
        )
        hlo = hlo.assign(bound_by=frame["bound_by"], bound=frame["bound"])
    unit = unit_of(run)
    # A recording is the whole profile.
    averages = [] if unit.whole else [_mark(unit.average, roofline.average(steps))]
    donuts = [_donut(hlo, "category", "By category")]
    # Without peaks nobody knows: a ring of one part says nothing.
    if hlo["bound"].ne("").any():
        donuts.append(_donut(hlo, "bound", "By bound"))
    if eager:
        table = _table_of_pytorch(frame.head(MOST_ROWS), run.activity.has_device)
    else:
        table = _table(hlo.head(MOST_ROWS), frame.head(MOST_ROWS))
    return Hlo(
        empty=None,
        figures=_figures(hlo, total, peaks, roofline.average(steps) if eager else None, unit),
        table=table,
        left_out=left_out(hlo, "p.roofline.frame" if eager else "p.hlo.frame"),
        donuts=donuts,
        peak_flops=wording.real(peaks.flops_per_second),
        roofs=_roofs(peaks),
        marks=[mark for mark in (_mark("Whole profile", total), *averages) if mark],
        device=wording.one_line(peaks.device),
        missing=peaks.missing.partition(": pass")[0] + "." if peaks.missing else "",
        code=_code_of_peaks(run) if peaks.missing else "",
    )


def _code_of_peaks(run: Run) -> str:
    return CODE if run.activity.has_device else CODE_OF_CPU


def left_out(frame: pd.DataFrame, accessor: str = "p.hlo.frame") -> str:
    """A sentence on the rows that the table omits; '' if it has all."""
    rest = frame.iloc[MOST_ROWS:]
    if rest.empty:
        return ""
    part, ms = (
        wording.percent(100 * rest["self_fraction"].sum()),
        wording.number(rest["self_us"].sum() / 1000, 2),
    )
    return (
        f"{wording.plural(len(rest), 'more op')} with the least self time ({ms} ms or {part}"
        f" together) are not listed; {accessor} has all."
    )


def hue(category: str, expression: str = "") -> str:
    """The step-time category that an op counts as: its colour."""
    key = next((key for starts, key in _HUES if category.startswith(starts)), "device_compute")
    if key == "device_to_device" and _HOST_MEMORY in expression:
        # The first layout is that of the result: a result in host memory is output, an operand
        # there is input.
        return "output" if _HOST_MEMORY in expression.partition("}")[0] else "input"
    return key


def _roofs(peaks: Peaks) -> list[Roof]:
    levels = [
        (peaks.memory, peaks.bytes_per_second),
        *((ON_CHIP[level], peak) for level, peak in peaks.on_chip.items()),
    ]
    return [
        Roof(
            label=label,
            bytes_per_second=float(peak),
            ridge=wording.real(peaks.flops_per_second / peak),
        )
        for label, peak in levels
        if peak > 0
    ]


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
    """The figures over all; `average` is what is known of an average unit of work of PyTorch."""
    ms = float(frame["self_us"].sum()) / 1000
    idle = float(total["idle_us"]) / max(float(total["time_us"]), 1e-12)
    scope = (
        ""
        if average is not None
        else f" of {wording.plural(frame['program'].nunique(), 'program')}"
    )
    flops, moved = float(total["flops_per_second"]), float(total["bytes_per_second"])
    part = 100 * float(total["roof_fraction"])
    lost = float(total["unknown_fraction"])
    cost = f"; cost unknown for {wording.percent(100 * lost)} of op time" if lost > 0.0005 else ""
    bound = {
        key: 100 * float(share)
        for key, share in frame.groupby("bound")["self_fraction"].sum().items()
    }
    unknown = bound.get("", 0.0)
    compute, memory = (
        None if unknown > 99.95 else bound.get(key, 0.0) for key in (ops.COMPUTE, peaks.memory)
    )
    latency = bound.get(ops.LATENCY, 0.0)
    chip = sum(
        share
        for key, share in bound.items()
        if key not in ("", ops.COMPUTE, ops.LATENCY, peaks.memory)
    )
    note = "; ".join(
        text
        for text in (
            f"{wording.percent(chip)} by on-chip memory" if chip else "",
            f"{wording.percent(unknown)} unknown" if unknown > 0.05 and memory is not None else "",
        )
        if text
    )
    return [
        figure(
            "self_time",
            "Op self time",
            ms,
            "ms",
            2,
            f"{wording.plural(len(frame), 'op')}{scope}"
            + (f"; idle {wording.percent(100 * idle)}" if idle > 0 else ""),
        ),
        *([] if average is None else [_mfu(average, peaks, cost, unit)]),
        _rate(
            "flop_rate", "FLOP rate", flops, peaks.flops_per_second, "FLOP/s", peaks.memory, cost
        ),
        _rate(
            "memory_bandwidth",
            "Memory bandwidth",
            moved,
            peaks.bytes_per_second,
            "B/s",
            peaks.memory,
            cost,
        ),
        figure(
            "roof",
            "Of the roof",
            part,
            "%",
            1,
            (
                _nearest(total) + cost
                if math.isfinite(part)
                else "unknown"
                if lost == 1
                else "peaks unknown"
            ),
            bar=bar(("device_compute", part)),
        ),
        figure(
            "bound_by_compute",
            "Bound by compute",
            compute,
            "%",
            1,
            "of op time" if compute is not None else "not known",
        ),
        figure(
            "bound_by_memory",
            f"Bound by {_within(peaks.memory)}",
            memory,
            "%",
            1,
            note or ("of op time" if memory is not None else "not known"),
        ),
        figure(
            "bound_by_latency",
            "Latency-bound",
            None if memory is None else latency,
            "%",
            1,
            (
                f"below {100 * ops.NEAR_ROOF:.0f}% of every peak"
                if memory is not None
                else "not known"
            ),
        ),
    ]


def _mfu(average: dict[str, float | str], peaks: Peaks, cost: str, unit: Unit) -> Figure:
    """The model FLOPs utilization: products of the model by the peak of the device."""
    part = 100 * float(average.get("mfu_fraction", math.nan))
    why = f"model FLOPs by peak, {unit.the if unit.whole else f'average {unit.noun}'}" + cost
    if not math.isfinite(part):
        lacks_peak = not peaks.by_precision and "FLOP/s" in peaks.lacking
        why = (
            "no steps"
            if not average
            else (
                "peaks unknown"
                if lacks_peak
                else "no matrix product of known cost, or peak unknown for its precision"
            )
        )
    return figure(
        "mfu", "Model FLOPs utilization", part, "%", 1, why, bar=bar(("device_compute", part))
    )


def _nearest(total: dict[str, float | str]) -> str:
    return (
        f"nearest to the peak of {_within(str(total['bound_by']))}"
        if total["bound_by"]
        else "resource use unknown"
    )


def _within(resource: str) -> str:
    """The name of a resource within a sentence."""
    return (
        resource.lower()
        if resource in (ops.COMPUTE, ops.DEVICE_MEMORY, ops.HOST_MEMORY)
        else resource
    )


def _rate(
    key: str, label: str, value: float, peak: float, unit: str, memory: str, more: str = ""
) -> Figure:
    """A rate of one device over the whole time, beside its peak, each in the unit that suits it; on
    the CPU over the time of its ops.
    """
    by, prefix = (_TERA, "T") if value >= _TERA else (_GIGA, "G")
    # Of the threads of a CPU it is not known when they could have run an op and did not.
    when = "over op time" if memory == ops.HOST_MEMORY else "idle time included"
    note = when if memory == ops.HOST_MEMORY else f"a device, {when}"
    if math.isfinite(peak):
        peak_scale, peak_prefix = (_TERA, "T") if peak >= _TERA else (_GIGA, "G")
        note = f"of {wording.number(peak / peak_scale, 0 if peak >= 10 * peak_scale else 2)} {peak_prefix}{unit}, {when}"
    digits = 2 if value >= 0.01 * by else 4
    return figure(
        key,
        label,
        value / by,
        f"{prefix}{unit}",
        digits,
        note + more,
        bar=bar(("device_compute", 100 * value / peak)),
    )


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
    for col in (
        *frames.SCHEMA["hlo.frame"],
        *(frames.column("roofline.frame", key) for key in _OF_ROOF),
    ):
        head = _head(col)
        columns.append(head)
        data[head.key] = _values(col, (roof if col.name in _OF_ROOF else frame)[col.name])
    categories = [
        hue(str(name), str(text))
        for name, text in zip(frame["category"], frame["expression"], strict=True)
    ]
    return Table(columns=columns, data=data, rows=len(frame)).with_columns(
        _chart_columns(roof, categories)
    )


def _table_of_pytorch(frame: pd.DataFrame, has_device: bool) -> Table:
    """PyTorch's ops under the column names of the table of compiled ops."""
    columns, data = [], {}
    for col in (frames.column("roofline.frame", key) for key in (*_EAGER, *_OF_ROOF)):
        head = _head(col)
        if col.name == "bytes_per_second":
            head.key = "gmemory_bytes_per_second"
        values = (
            frame[col.name].str.replace(_NO_TENSOR, "", regex=True)
            if col.name == "input_shapes"
            else frame[col.name]
        )
        columns.append(head)
        data[head.key] = _values(col, values)
    if has_device:
        categories = [_OF_PYTORCH.get(str(name), "device_compute") for name in frame["category"]]
    else:
        categories = ["host_compute"] * len(frame)
    return Table(columns=columns, data=data, rows=len(frame)).with_columns(
        _chart_columns(frame, categories)
    )


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
    """Shown in other units than the frame has, a column has another name."""
    if col.unit in _RATES:
        return f"g{col.name}"
    return (
        col.name.replace("_fraction", "_percent")
        if col.unit == "fraction"
        else "gflops"
        if col.name == "flops"
        else col.name
    )


def _head(col: Col) -> Column:
    label, kind, digits = col.label, col.kind, col.digits
    if col.unit in _RATES:
        label = (
            label.replace("B/s", "GB/s")
            if col.unit == "bytes_per_second"
            else label.replace("FLOP/s", "GFLOP/s")
        )
    elif col.name == "flops":
        label = "GFLOPs"
    elif col.name == "bytes":
        kind = "bytes"
    elif col.name == "operational_intensity":
        digits = 2
    return Column(key=_key(col), label=label, kind=kind, help=_help(col), digits=digits)


def _help(col: Col) -> str:
    text = explained(col)
    return f"{text} In 10⁹." if col.unit in _RATES or col.name == "flops" else text


def _values(col: Col, values: pd.Series[Any]) -> ColumnData:
    if col.kind in ("text", "code"):
        return column(pd.DataFrame({"text": values.map(_cut)}), "text", "text")
    if col.kind == "bool":
        return values.to_numpy(np.uint8)
    if col.kind == "percent":
        return numbers(100 * values.to_numpy(np.float64))
    by = _GIGA if col.unit in _RATES or col.name == "flops" else 1.0
    return numbers(values.to_numpy(np.float64, na_value=np.nan) / by)


def _cut(text: object) -> str:
    return wording.cut(text, _LONGEST)
