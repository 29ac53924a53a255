"""Kernels of the accelerator: one row per kernel, op and launch shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.activity.unit import Unit
from nbprof.analysis import kernels as analysis
from nbprof.display import wording
from nbprof.schema import frames
from nbprof.tools import rings
from nbprof.tools.common import (
    by_torch,
    chip,
    figure,
    framework_of,
    has_device,
    may_have_kernels,
    percent_figure,
    share,
    unit_of,
    unit_of_gpu,
    unknown,
)
from nbprof.tools.kernels.parts import Kernels
from nbprof.tools.parts import Column, Empty, Figure, Ring, Table, no_table
from nbprof.tools.tables import floats, hidden, table

if TYPE_CHECKING:
    from nbprof.run.run import Run

LEADING = (
    "rank",
    "kernel",
    "total_us",
    "occurrences",
    "avg_us",
    "min_us",
    "max_us",
    "op_tensor_core_eligible",
    "uses_tensor_core",
    "occupancy_percent",
)
"""The first columns of the table; the others follow in the order of the frame."""
ORIGINS = ("module", "source", "aten_ops")
"""Columns that are there where a profile knows any of it."""
FOLDED = ("total_us", "occurrences", "avg_us", "min_us", "max_us", "occupancy_percent")
"""Sums of folded rows."""
MOST_ROWS = 3000
MOST_NAMES = 10
"""Kernels that the ring names."""
SHARED = ("static_shared_bytes", "dynamic_shared_bytes")
"""Columns that the table adds up as `shared_bytes`."""
_NOT_OF_NPU = frozenset(
    ("registers", "shared_bytes", "block", "occupancy_percent", "occupancy_source")
)
_NPU_WORDS = {
    "op_tensor_core_eligible": (
        "Cube elig.",
        "Whether the op is eligible for the Cube, the matrix multiplication unit, by its name.",
    ),
    "uses_tensor_core": (
        "used",
        "Whether the kernel used the Cube, judged by its counters, else by the cores it ran on.",
    ),
    "grid": (
        "Blocks",
        "Cores that the kernel was split across: Block Dim, or Block Num, of op_summary.",
    ),
}


def payload(run: Run) -> Kernels:
    """The 3,000 rows with most time, the figures over all."""
    kernels, longest = run.kernels, run.longest_launches.head(MOST_ROWS)
    by_name = analysis.by_name(kernels)
    rows = table(_with_shapes(kernels.head(MOST_ROWS)), "kernels.frame", columns(kernels))
    if chip(run) == "NPU":
        rows.columns = [_of_npu(head) for head in rows.columns if head.key not in _NOT_OF_NPU]
    return Kernels(
        empty=_empty(run) if kernels.empty else None,
        chip=chip(run),
        occupancy=framework_of(run).words.occupancy,
        # The names of both are long and mostly the same: so close together gzip finds them again.
        by_name=_folded(by_name, "kernels.by_name", "kernel", kernels),
        table=hidden(rows, longest["at_ms"], longest["for_ms"]),
        by_op=_folded(analysis.by_op(kernels), "kernels.by_op", "op", kernels),
        top=_top(by_name),
        figures=[] if kernels.empty else figures(run),
    )


def columns(kernels: pd.DataFrame) -> list[str]:
    """The columns of the table, in its order."""
    unknown_origins = [key for key in ORIGINS if kernels[key].isna().all()]
    others = [key for key in frames.names("kernels.frame") if key not in (*LEADING, *SHARED)]
    return [*LEADING, "shared_bytes", *(key for key in others if key not in unknown_origins)]


def nothing() -> Kernels:
    """The part without kernels."""
    none = no_table()
    return Kernels(
        empty=None,
        chip="GPU",
        occupancy="",
        by_name=none,
        table=none,
        by_op=none,
        top=Ring(ms=0.0, parts=[]),
        figures=[],
    )


def _folded(sums: pd.DataFrame, frame: str, key: str, kernels: pd.DataFrame) -> Table:
    """Sums over all rows of a kernel, or of an op, for those that the table lists."""
    listed = sums[sums[key].isin(kernels[key].head(MOST_ROWS))]
    return table(listed, frame, (key, *FOLDED))


def _top(names: pd.DataFrame) -> Ring:
    """The kernels with the most time, of all time of kernels."""
    times = pd.Series(floats(names["total_us"]), names["kernel"].to_numpy(object))
    return Ring(ms=float(times.sum()) / 1000, parts=rings.parts(times, MOST_NAMES))


def _of_npu(head: Column) -> Column:
    """The head of a column by the words of an NPU, whose unit for products of matrices is the
    Cube.
    """
    label, text = _NPU_WORDS.get(head.key, (head.label, head.help))
    return replace(head, label=label, help=text)


def figures(run: Run) -> list[Figure]:
    """The key figures of the kernels; the mean occupancy is left out where no row has one."""
    kernels, steps = run.kernels, len(run.steps)
    time, count, mean = (floats(kernels[key]) for key in ("total_us", "occurrences", "avg_us"))
    in_steps, unit = run.kernels_in_steps, unit_of(run)
    time_note = "no steps"
    if steps:
        ms = float(floats(in_steps["total_us"]).sum()) / 1000 / steps
        time_note = f"{wording.millis(ms)} {unit.per}"
    launches = _launches(int(floats(in_steps["occurrences"]).sum()), steps, unit)
    median = _weighted_median(mean, count)
    result = [
        figure("kernel_time", "Kernel time", float(time.sum()) / 1000, "ms", 2, time_note),
        figure("kernels", "Kernels", kernels["kernel"].nunique(), "", 0, launches),
        figure(
            "median_kernel", "Median kernel", median, "µs", 1, "half of the launches are shorter"
        ),
        *_tensor_cores(run, time),
        *_in_use(run),
    ]
    occupied = analysis.mean_occupancy(kernels)
    if occupied is not None:
        note = _occupancy_note(kernels)
        result.append(figure("occupancy", "Mean occupancy", occupied, "%", 1, note))
    return result


def _tensor_cores(run: Run, time: np.ndarray[Any, Any]) -> list[Figure]:
    """Kernel time on Tensor Cores, and that of eligible kernels which do not use them."""
    kernels = run.kernels
    used, eligible = _flags(kernels, "uses_tensor_core"), _flags(kernels, "op_tensor_core_eligible")
    in_use, in_use_note = _part(time, used), "not recorded"
    # A kernel whose name does not tell is in neither part.
    decided = kernels["uses_tensor_core"].notna().to_numpy() if used is not None else None
    if in_use is not None:
        in_use_note = _open_part(time, decided)
    opless = _part(time, kernels["op_tensor_core_eligible"].isna().to_numpy(np.bool_))
    unused = None
    # Without ops of the program only few kernels tell what they are, such as those that
    # communicate: their share does not stand for the others.
    if used is not None and eligible is not None and (run.activity.has_host_ops or not opless):
        unused = _part(time, eligible & ~used & decided)
    note = _eligible_note(unused, opless, used is not None)
    title = "Tensor Cores used"
    if chip(run) == "NPU":
        title = "Cube used"
    return [
        percent_figure("tensor_cores_used", title, in_use, in_use_note),
        percent_figure("tensor_cores_unused", "Eligible, not used", unused, note),
    ]


def _in_use(run: Run) -> list[Figure]:
    """Utilization of the GPUs by kernels; the mean if there are several."""
    devices, unit = run.kernel_devices, unit_of(run)
    if len(devices) != 1:
        scope = f"mean of {len(devices)} that ran any"
        if len(devices) >= len(run.devices):
            scope = f"mean of {len(devices)} {chip(run)}s"
    elif len(run.steps) and not unit.is_recording:
        scope = f"mean over the {unit.plural}"
    else:
        scope = "from the first to the last"
    resident = f"{unit_of_gpu(run.devices['name'])}s with a resident block"
    result = []
    for key, column, title, note in (
        ("in_use", "utilization_percent", f"{chip(run)} in use", f"kernels only, {scope}"),
        ("sm_efficiency", "sm_efficiency_percent", "Est. SM efficiency", resident),
    ):
        percent = wording.real(devices[column].mean())
        if percent is not None:
            result.append(percent_figure(key, title, percent, note))
    return result


def _open_part(
    time: np.ndarray[Any, Any], decided: np.ndarray[Any, np.dtype[np.bool_]] | None
) -> str:
    """The note of the share: its base, and the part that kernel names leave open."""
    if decided is None or not (undecided := _part(time, ~decided)):
        return "of kernel time"
    return f"of kernel time; {wording.percent(undecided)} not known from the name"


def _eligible_note(unused: float | None, opless: float | None, recorded: bool) -> str:
    """The note of the share of eligible kernels: its base, and the part without a known op."""
    if unused is None and not recorded:
        return "not recorded"
    if not opless:
        return "of kernel time"
    if unused is None:
        return f"no op known for {wording.percent(opless)} of kernel time"
    return f"of kernel time; no op known for {wording.percent(opless)}"


def _occupancy_note(kernels: pd.DataFrame) -> str:
    """The note of the mean: the part of it that is computed rather than recorded, and the time
    whose occupancy is unknown.
    """
    time = floats(kernels["total_us"])
    absent = kernels["occupancy_percent"].isna().to_numpy(np.bool_)
    from_limits = (kernels["occupancy_source"] == "computed").to_numpy(np.bool_)
    computed = _part(time[~absent], from_limits[~absent]) or 0.0
    notes = ["weighted by time"]
    if computed > 99.95:
        notes.append("computed")
    elif computed:
        notes.append(f"{wording.percent(computed)} of it is computed")
    if absent.any():
        notes.append(f"unknown for {wording.percent(_part(time, absent))} of the time")
    return "; ".join(notes)


def _launches(launches: int, steps: int, unit: Unit) -> str:
    text = wording.plural(launches, "launch", "launches")
    if not steps or unit.is_recording:
        return text
    return f"{text}, {launches / steps:,.0f} {unit.per}"


def _flags(kernels: pd.DataFrame, key: str) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    if kernels[key].isna().all():
        return None
    return kernels[key].fillna(False).to_numpy(np.bool_)


def _part(time: np.ndarray[Any, Any], selected: np.ndarray[Any, Any] | None) -> float | None:
    if selected is None:
        return None
    return share(float(time[selected].sum()), float(time.sum()))


def _weighted_median(values: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> float | None:
    """The median over launches, each taken at the mean of its row."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    if not len(reached) or reached[-1] <= 0:
        return None
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def _with_shapes(kernels: pd.DataFrame) -> pd.DataFrame:
    """With the shapes of blocks and grids as text, and all shared memory of a block."""
    if kernels.empty:
        return kernels
    shared = kernels[list(SHARED)].astype("Float64")
    shapes = {key: kernels[key].str.replace(",", "×", regex=False) for key in ("block", "grid")}
    return kernels.assign(**shapes, shared_bytes=shared.sum(axis=1, min_count=1))


def _empty(run: Run) -> Empty:
    if plain := unknown(run, "kernels", f"No {chip(run)} kernels in this run"):
        return plain
    if has_device(run) and not may_have_kernels(run):
        return Empty(
            title="No GPU kernels in this run",
            text=run.missing.get("kernels", "The devices of this profile are not GPUs."),
        )
    if run.activity.lost_kernels:
        return Empty(title="No GPU kernels in this run", text=run.missing["kernels"])
    if has_device(run):
        if "kernels" in run.missing and chip(run) == "NPU":
            return Empty(title="No NPU kernels in this run", text=run.missing["kernels"])
        if "kernels" in run.missing and by_torch(run):
            return Empty(title="No GPU kernels in this run", text=run.missing["kernels"])
        return Empty(
            title="No GPU kernels in this run",
            text=(
                "There was a device, but no kernel ran on it during the recording, or the process"
                " may not read its counters."
            ),
        )
    # A run that nbprof recorded has its devices; a file of another recorder may leave them out.
    text = "The run used the CPU only."
    if run.capture is None:
        text = run.missing.get("kernels", text)
    title = "No GPU kernels in this run"
    if code := framework_of(run).words.list_gpus:
        return Empty(title=title, text=f"{text} To see which GPUs the framework finds:", code=code)
    return Empty(title=title, text=text)
