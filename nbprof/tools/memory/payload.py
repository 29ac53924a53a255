"""Memory over time: one timeline an allocator, and what was alive at its peak."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.memory import alive as memory_alive
from nbprof.analysis.memory.roles import column
from nbprof.analysis.memory.sample import sample
from nbprof.core.memory_roles import IN_USE, RESERVED, UNKNOWN
from nbprof.core.runs import rows_by_code
from nbprof.dialects.xplane.memory import DATA_TYPES
from nbprof.display import wording
from nbprof.display.codec import Delta, coded, numbers, short
from nbprof.schema import frames
from nbprof.tools.common import by_jax, by_torch, bytes_figure, figure, unknown
from nbprof.tools.memory import host
from nbprof.tools.memory.parts import Memory, MemoryId, Moments, OverCell, RoleBytes, Roles
from nbprof.tools.parts import Empty, Figure, Table
from nbprof.tools.tables import floats, table

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_ALIVE = 1000
MOST_BLOCKS = 8000
"""Blocks in the tables of all moments, for all allocators together; they add up to a fifth to the
size of the tab.
"""
_BLOCK = ("op", "region_type", "data_type", "shape", "requested_bytes", "allocated_bytes")
_OPS = ("op", "allocations", "allocated_bytes", "deallocations", "freed_bytes", "increase_bytes")
MOST_PEAKS = 200
"""Allocators listed of hosts that were read apart: those with the highest peaks."""
_SUMMARY = (
    "memory_id",
    "peak_bytes",
    "capacity_bytes",
    "peak_time_ms",
    "peak_fragmentation",
    "allocations",
    "deallocations",
)
_TINTS = {
    "parameters": 2,
    "buffers": 5,
    "optimizer state": 4,
    "gradients": 3,
    "activations": 0,
    "inputs": 1,
    "temporaries": 6,
    "communication": 7,
    "KV cache": 3,
}
"""Tints of roles; what is unknown is grey. Programs that generate have no gradients."""
_ROLES = ("role", "bytes", "percent", "blocks")
LEAST_KNOWN = 5.0
"""Percent of the peak of which the role is known, for a chart of roles."""
MOST_OPS = 200
"""Ops listed for each allocator: those that allocated most."""
_WHOLE = ["time_ms", "step", "in_use_bytes", "fragmentation", "address"]
"""What the figures of an allocator are made of: of the other columns a thousand rows are enough."""
_NO_ROWS = np.zeros(0, np.int64)
_PEAK = (
    "op",
    "region_type",
    "data_type",
    "shape",
    "requested_bytes",
    "allocated_bytes",
    "percent",
    "occurrences",
)


def payload(run: Run) -> Memory:
    """The allocator with the largest peak first."""
    summary = run.memory_summary
    if summary.empty:
        return nothing(_empty(run), host.over_cell(run))
    ordered = _in_order(summary)
    drawn = run.memory_drawn
    host_name, peaks = "", None
    if run.parts is not None:
        host_name, peaks = (
            _of_largest(run, len(ordered)),
            table(ordered.head(MOST_PEAKS), "memory.summary", _SUMMARY),
        )
        ordered = ordered[ordered["memory_id"].isin(set(drawn["memory_id"]))]
    code, idents = pd.factorize(drawn["memory_id"].to_numpy(object))
    rows = dict(zip(idents.tolist(), rows_by_code(code), strict=False))
    limit = MOST_BLOCKS // len(ordered)
    ids = [
        _allocator(run, row, drawn, rows.get(row["memory_id"], _NO_ROWS), limit)
        for row in ordered.to_dict("records")
    ]
    return Memory(empty=None, of=host_name, peaks=peaks, ids=ids, host=host.over_cell(run))


def _in_order(summary: pd.DataFrame) -> pd.DataFrame:
    """Allocators, the largest peak first; those whose peaks read alike in the order of their names,
    2 before 10.
    """
    ordered = summary.sort_values("peak_bytes", ascending=False, kind="stable", ignore_index=True)
    peaks = ordered["peak_bytes"].map(wording.size)
    level = (peaks != peaks.shift()).cumsum().tolist()
    names = [_natural(str(name)) for name in ordered["memory_id"]]
    return ordered.take(sorted(range(len(ordered)), key=lambda row: (level[row], names[row])))


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A key that puts numbers behind texts, and 2 before 10."""
    key = []
    for part in re.split(r"(\d+)", name):
        if part.isdigit():
            key.append((True, int(part), ""))
        else:
            key.append((False, 0, part))
    return key


def nothing(empty: Empty | None = None, over_cell: OverCell | None = None) -> Memory:
    """The part without allocators."""
    return Memory(empty=empty, of="", peaks=None, ids=[], host=over_cell)


def _of_largest(run: Run, allocators: int) -> str:
    """Of what hosts were read apart the timeline and the table show; marked."""
    listed = "the peaks of all hosts"
    if allocators > MOST_PEAKS:
        listed = f"the {MOST_PEAKS} highest of {allocators:,} peaks"
    return (
        f"Shown is **{run.memory_largest}**, which has the highest peak; the last table has"
        f" {listed}."
    )


def of_id(frame: pd.DataFrame, memory_id: object) -> pd.DataFrame:
    """The rows of one allocator."""
    return frame[frame["memory_id"] == memory_id]


def _allocator(
    run: Run, row: dict[Any, Any], rows: pd.DataFrame, own_rows: npt.NDArray[np.int64], limit: int
) -> MemoryId:
    full = rows[_WHOLE].take(own_rows)
    alive = of_id(run.memory_peak, row["memory_id"])
    use = floats(full["in_use_bytes"])
    drawn = sample(use)
    events = rows.take(own_rows[drawn])
    peak = wording.real(row["peak_bytes"]) or 0.0
    step = _peak_step(full, use, row)
    ops = of_id(run.memory_ops, row["memory_id"])
    roles = of_id(run.memory_roles, row["memory_id"])
    # Only a row of tensors that were there before the recording has no number of blocks.
    row["models"] = (roles["blocks"].isna() & ~roles["role"].isin([UNKNOWN, RESERVED])).any()
    return MemoryId(
        memory_id=str(row["memory_id"]),
        figures=_figures(row, full, _in_unit(run, step)),
        capacity_bytes=wording.real(row.get("capacity_bytes")),
        peak_bytes=peak,
        peak_time_ms=wording.real(row.get("peak_time_ms")),
        peak_step=step,
        total=len(full),
        time_ms=short(floats(events["time_ms"])),
        allocation=events["event"].isin(["allocation"]).to_numpy().astype(np.uint8),
        requested_bytes=numbers(floats(events["requested_bytes"])),
        allocated_bytes=numbers(floats(events["allocated_bytes"])),
        op=coded(events["op"].tolist()),
        step=_steps(events),
        region_type=coded(events["region_type"].tolist()),
        data_type=coded(_typed(events)["data_type"].tolist()),
        shape=coded(events["shape"].tolist()),
        stack_bytes=numbers(floats(events["stack_bytes"])),
        heap_bytes=numbers(floats(events["heap_bytes"])),
        free_bytes=numbers(floats(events["free_bytes"])),
        in_use_bytes=numbers(floats(events["in_use_bytes"])),
        # Drawn, and shown with four digits.
        fragmentation=floats(events["fragmentation"]).astype(np.float32),
        peak=_alive(_typed(_shares(alive.head(MOST_ALIVE), peak))),
        moments=_moments(rows, own_rows, drawn, limit),
        ops=table(_largest_ops(ops), "memory.ops", _OPS),
        ops_left_out=_ops_left_out(len(ops) - MOST_OPS),
        roles=_roles(run, roles, row["memory_id"], events),
    )


def _roles(run: Run, peak: pd.DataFrame, memory_id: object, events: pd.DataFrame) -> Roles | None:
    """Memory by role, at the peak and at the drawn events; None where too little of it
    is known for a chart.
    """
    percent = peak["percent"][~peak["role"].isin([UNKNOWN, RESERVED])].sum()
    if percent < LEAST_KNOWN:
        return None
    rows = of_id(run.memory_roles_drawn, memory_id)
    if not np.array_equal(rows["time_ms"].to_numpy(), events["time_ms"].to_numpy()):
        return None
    series = []
    for role in IN_USE:
        sizes = floats(rows[column(role)])
        if sizes.any():
            series.append(RoleBytes(role=role, bytes=numbers(sizes), tint=_TINTS.get(role, -1)))
    by_role = table(peak, "memory.roles", _ROLES)
    by_role.head("percent").label = "% in use"
    by_role.head("percent").help = frames.column("memory.roles", "percent").help
    return Roles(peak=by_role, series=series)


def _alive(rows: pd.DataFrame) -> Table:
    """Blocks live at the peak. Bytes and share are those of all blocks of a row, as in the page's
    table for other moments.
    """
    blocks = table(rows, "memory.peak", _PEAK)
    blocks.head("percent").label = "% in use"
    blocks.head("percent").help = "Share of all memory in use at that moment."
    blocks.head("allocated_bytes").help = "Total size of the blocks in this row."
    blocks.head("requested_bytes").help = "Total bytes requested for the blocks in this row."
    return blocks


def _largest_ops(ops: pd.DataFrame) -> pd.DataFrame:
    """The ops that a view lists: where there are too many, those that took most; largest increase
    first as in the frame.
    """
    if len(ops) <= MOST_OPS:
        return ops
    return ops.loc[
        ops["allocated_bytes"]
        .sort_values(ascending=False, kind="stable")
        .index[:MOST_OPS]
        .sort_values()
    ]


def _ops_left_out(count: int) -> str | None:
    """A sentence on the ops that are not listed; None if all are."""
    if count <= 0:
        return None
    return f"{wording.plural(count, 'more op')} with less; p.memory.ops has all."


def _moments(
    rows: pd.DataFrame, own_rows: npt.NDArray[np.int64], drawn: npt.NDArray[np.int64], limit: int
) -> Moments | None:
    """Blocks live at each drawn point, for the table of the point that a user clicks; None if
    blocks cannot be distinguished.

    `point` is by moment the index of its point in the arrays of the timeline. The blocks alive at a
    moment are the sums of `change` up to and with that moment, by `block`, which is a row of
    `blocks`: count 2 of a row is two such blocks. What the point has in use in its heap beyond
    these and `smaller_bytes` (blocks too small to be listed, `smaller_count` of them) is one row
    more, called `rest`; its stack, where it has one, another.
    """
    alive = memory_alive.moments(rows, drawn, limit, own_rows)
    if alive is None:
        return None
    return Moments(
        point=Delta(np.searchsorted(drawn, alive.events).astype(np.int32)),
        blocks=table(_typed(alive.blocks), "memory.peak", _BLOCK),
        moment=Delta(alive.moment),
        block=alive.block,
        change=alive.change,
        smaller_bytes=short(alive.smaller_bytes),
        smaller_count=short(alive.smaller_count),
        rest=memory_alive.EARLIER if alive.from_start else memory_alive.UNUSED,
    )


def _in_unit(run: Run, step: int | None) -> str:
    """The unit in which something was, as ", step 3"; "" where it is unknown or the recording
    itself.
    """
    unit = run.activity.unit
    if step is None or unit.is_recording:
        return ""
    return f", {unit.noun} {step}"


def _figures(row: dict[Any, Any], full: pd.DataFrame, in_unit: str) -> list[Figure]:
    time, lifetime = (
        wording.real(row.get("peak_time_ms")),
        wording.real(row.get("lifetime_peak_bytes")),
    )
    when = ""
    if time is not None:
        when = f"at {wording.number(time, 1)} ms{in_unit}"
    if lifetime is None:
        return _torch_figures(row, when)
    capacity = wording.real(row.get("capacity_bytes"))
    of_capacity = ""
    if capacity:
        of_capacity = f"of {wording.size(capacity)}"
        if lifetime <= capacity:
            of_capacity += f" ({wording.percent(100 * lifetime / capacity)})"
    stack = f"stack {wording.size(row.get('peak_stack_bytes'))}"
    heap, free = row.get("peak_heap_bytes"), row.get("peak_free_bytes")
    return [
        bytes_figure("lifetime_peak", "Peak, whole run", lifetime, of_capacity),
        bytes_figure("peak", "Peak, in this capture", row.get("peak_bytes"), when),
        bytes_figure("peak_heap", "At that peak: heap", heap, stack),
        bytes_figure("peak_free", "Free", free, "at the peak"),
        _fragmentation(row, full),
        _allocations(row),
    ]


def _fragmentation(row: dict[Any, Any], full: pd.DataFrame) -> Figure:
    """Fragmentation at the peak, and the highest."""
    fraction = wording.real(row.get("peak_fragmentation"))
    fractions = floats(full["fragmentation"])
    note = ""
    if len(fractions) and not np.isnan(fractions).all():
        note = f"max {wording.percent(100 * np.nanmax(fractions), 2)}"
    percent = None if fraction is None else 100 * fraction
    return figure("fragmentation", "Fragmentation", percent, "%", 2, note)


def _allocations(row: dict[Any, Any]) -> Figure:
    freed = f"{wording.number(row.get('deallocations'))} freed"
    return figure("allocations", "Allocations", row.get("allocations"), "", 0, freed)


def _torch_figures(row: dict[Any, Any], when: str) -> list[Figure]:
    """The figures of PyTorch's allocators, which state no stack, no fragmentation and nothing of
    the time before the recording.
    """
    capacity, peak = wording.real(row.get("capacity_bytes")), wording.real(row.get("peak_bytes"))
    free = wording.real(row.get("peak_free_bytes"))
    note = when
    if not row["whole"]:
        note = "sum of recorded events; excludes memory allocated earlier"
        if row["models"]:
            note = "sum of recorded events and models; excludes other memory allocated earlier"
    elif capacity and peak is not None:
        note = f"of {wording.size(capacity)} ({wording.percent(100 * peak / capacity)})"
    figures = [bytes_figure("peak", "Peak, in this capture", peak, note)]
    if note != when:
        # The note has no room for the moment.
        in_unit = when.partition(", ")[2]
        figures.append(figure("peak_at", "Peak at", row.get("peak_time_ms"), "ms", 1, in_unit))
    if free is not None:
        if peak is not None:
            held = "from the device, at the peak"
            figures.append(bytes_figure("reserved", "Reserved", peak + free, held))
        bound = "upper bound of fragmentation"
        figures.append(bytes_figure("peak_free", "Reserved, not allocated", free, bound))
    return [*figures, _allocations(row)]


def _peak_step(full: pd.DataFrame, use: npt.NDArray[np.float64], row: dict[Any, Any]) -> int | None:
    """The step of the row that the summary has as the peak; of equal ones the last."""
    if not len(use) or np.isnan(use).all():
        return None
    equal = np.flatnonzero(use == np.nanmax(use))
    matching = equal[full["time_ms"].to_numpy()[equal] == row.get("peak_time_ms")]
    if not len(matching):
        matching = equal
    step = wording.real(full["step"].iloc[matching[-1]])
    if step is None or step < 0:
        return None
    return int(step)


def _shares(alive: pd.DataFrame, peak: float) -> pd.DataFrame:
    if alive.empty:
        return alive
    count = floats(alive["occurrences"])
    taken = floats(alive["allocated_bytes"]) * count
    percent = np.full(len(alive), np.nan)
    if peak > 0:
        percent = 100 * taken / peak
    requested = floats(alive["requested_bytes"]) * count
    return alive.assign(allocated_bytes=taken, requested_bytes=requested, percent=percent)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """With no data type where TensorFlow has "INVALID" for one that it does not know, as of a stack
    and of what no step asked for.
    """
    types = frame["data_type"]
    return frame.assign(data_type=types.where(types != DATA_TYPES[0], ""))


def _steps(frame: pd.DataFrame) -> npt.NDArray[np.int32]:
    return np.asarray(frame["step"].to_numpy(np.float64, na_value=-1.0)).astype(np.int32)


def _empty(run: Run) -> Empty:
    if plain := unknown(run, "memory", "No allocations recorded"):
        return plain
    if by_torch(run):
        code = "%%nbprof --memory"
        if run.capture is None:
            code = "torch.profiler.profile(profile_memory=True)"
        return Empty(
            title="No allocations recorded",
            text="The profile has no memory events. PyTorch records them on request:",
            code=code,
        )
    if by_jax(run):
        # JAX has no option that records them.
        planned = ""
        if run.programs.memory_modules["peak_bytes"].notna().any():
            planned = " The tab Program memory shows what its compiled programs need."
        return Empty(
            title="No allocations recorded",
            text=(
                "The profile has no memory events. JAX records them for GPUs and TPUs, not for the"
                f" CPU.{planned}"
            ),
        )
    return Empty(
        title="No allocations recorded",
        text=run.missing.get("memory", "The profile has no memory events."),
    )
