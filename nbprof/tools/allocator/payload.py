"""PyTorch's allocator: why memory ran out, its levels over time, and a map of its segments with
what is stranded in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.analysis.allocator import allocator
from nbprof.display import wording
from nbprof.display.codec import Coded, coded, numbers
from nbprof.display.payload import Numbers
from nbprof.formats.torch_snapshot.snapshot import ACTIONS, OOM, Backend
from nbprof.schema import frames
from nbprof.tools.allocator.parts import Allocator, AllocatorDevice, Blocks, Oom, Segments
from nbprof.tools.common import bytes_figure, figure, sample
from nbprof.tools.parts import Empty, Figure, Table
from nbprof.tools.tables import table_of

if TYPE_CHECKING:
    from nbprof.analysis.allocator.state import Replay, State
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload

ALONE = "allocator snapshot"
"""What a profile is called that has nothing else."""
MOST_BLOCKS, MOST_SEGMENTS = 6_000, 300
"""What the map of a device holds: segments with the most stranded memory first, then the
largest.
"""
MOST_ROWS, MOST_OOMS, MOST_DEVICES, MOST_STACKS = 100, 5, 16, 300
_HOW_TO_TAKE = (
    "Record with allocations on a GPU, or take one: torch.cuda.memory._record_memory_history(),"
    " then _dump_snapshot(path)."
)
_BOXES = 350
_LONGEST = 400
_STRANDED = (
    "location",
    "pinned_bytes",
    "alone_bytes",
    "blocks",
    "bytes",
    "segments",
    "largest_hole_bytes",
    "stack",
)
_HOLDERS = ("location", "bytes", "blocks")


def payload(run: Run) -> Allocator:
    """One entry per device."""
    replays = run.allocator.replays
    if not replays:
        return nothing(_empty(run))
    left = ""
    if len(replays) > MOST_DEVICES:
        more = wording.plural(len(replays) - MOST_DEVICES, "more device")
        left = f"{more}: p.allocator has all of them."
    return Allocator(
        empty=None,
        devices=[_device(run, replay) for replay in replays[:MOST_DEVICES]],
        notes=[note.text for note in run.allocator.notes],
        left_out=left,
    )


def nothing(empty: Empty | None = None) -> Allocator:
    """The part without a snapshot."""
    return Allocator(empty=empty, devices=[], notes=[], left_out="")


def has(run: Run) -> bool:
    """True if a snapshot has devices, or if the profile is nothing but a snapshot."""
    return bool(run.snapshot_pieces) and (bool(run.allocator.replays) or alone(run))


def alone(run: Run) -> bool:
    """True if the profile is a snapshot and nothing else, so that no other view has data."""
    return bool(run.snapshot_pieces) and not len(run.trace.lanes) and not len(run.trace.events)


def chip(run: Run) -> str:
    """The word for the devices of the snapshot, such as "GPU"; "" if it has none."""
    replays = run.allocator.replays
    if not replays:
        return ""
    return replays[0].backend.chip


def text(run: Run) -> str:
    """The figures of each device, and why memory ran out, in a few lines."""
    frame = run.allocator.summary
    if not len(frame):
        return "<nbprof allocator: no snapshot of PyTorch's allocator>"
    lines, kind = [], chip(run)
    for row in frame.to_dict("records"):
        lines.append(
            f"{kind} {row['device']}: {wording.size(row['reserved_bytes'])} reserved,"
            f" {wording.size(row['allocated_bytes'])} allocated,"
            f" {wording.size(row['inactive_bytes'])} free, of which"
            f" {wording.size(row['stranded_bytes'])} stranded (fragmentation"
            f" {wording.percent(row['fragmentation_percent'])})"
        )
        stranded = run.allocator.stranded
        for holder in stranded[stranded["device"] == row["device"]].head(3).to_dict("records"):
            blocks = wording.plural(holder["blocks"], "block")
            lines.append(
                f"  {wording.size(holder['pinned_bytes'])} kept by {blocks} of"
                f" {wording.one_line(holder['location'])}"
            )
    for row in run.allocator.oom.tail(1).to_dict("records"):
        lines += [
            "Out of memory: " + wording.one_line(row["explanation"]),
            wording.one_line(row["remedy"]),
        ]
    return "\n".join([*lines, *(wording.one_line(note.text) for note in run.allocator.notes)])


def _empty(run: Run) -> Empty:
    if run.allocator.snapshot is not None:
        text = "It has no segments: PyTorch's allocator held no device memory when it was taken."
        return Empty(
            title="The snapshot is empty",
            text=" ".join([text, *(note.text for note in run.allocator.notes)]),
        )
    return Empty(
        title="No snapshot of PyTorch's allocator",
        text=" ".join(note.text for note in run.allocator.notes) or _HOW_TO_TAKE,
    )


def _device(run: Run, replay: Replay) -> AllocatorDevice:
    ooms = run.allocator.oom
    ooms = ooms[ooms["device"] == replay.device].tail(MOST_OOMS).iloc[::-1]
    summary = run.allocator.summary
    row = summary[summary["device"] == replay.device].to_dict("records")[0]
    state, when = replay.end(), "at the snapshot"
    if len(ooms):
        state, when = replay.state_after(int(ooms["entry"].iloc[0])), _when(ooms.iloc[0])
    stacks = run.allocator.stacks
    everything = allocator.pinning(state, stacks)
    pinned = everything.head(MOST_ROWS).assign(
        stack=stacks.texts(everything["code"].to_numpy(np.int64)[:MOST_ROWS])
    )
    held = allocator.holders(state, stacks)
    figures = allocator.measures(state)
    levels = _levels(run, replay)
    drawn = _map(run, state, allocator.stranded_by_block(state))
    return AllocatorDevice(
        device=replay.device,
        name=replay.name,
        figures=_figures(figures, row, replay.backend),
        when=when,
        ooms=[_oom(oom) for _, oom in ooms.iterrows()],
        entries=replay.count,
        timed=levels.timed,
        x=levels.x,
        reserved=levels.reserved,
        allocated=levels.allocated,
        active=levels.active,
        action=levels.action,
        size=levels.size,
        where=levels.where,
        oom_at=levels.oom_at,
        segments=drawn.segments,
        blocks=drawn.blocks,
        map_more=drawn.more,
        stranded=_table("stranded", pinned, _STRANDED),
        stranded_more=max(0, len(everything) - MOST_ROWS),
        holders=_table("holders", held.head(MOST_ROWS), _HOLDERS),
    )


def _when(oom: pd.Series[Any]) -> str:
    time = oom["time_ms"]
    if pd.isna(time):
        return f"at entry {int(oom['entry']) + 1:,}"
    return f"at {wording.duration(time / 1e3)}"


def _figures(now: dict[str, float | int], row: dict[Any, Any], backend: Backend) -> list[Figure]:
    reserved = float(now["reserved_bytes"])
    if reserved:
        share = wording.percent(100 * float(now["allocated_bytes"]) / reserved)
    else:
        share = wording.MISSING
    stranded = (
        f"{wording.size(now['stranded_bytes'])} stranded in"
        f" {wording.plural(int(now['stranded_segments']), 'segment')}"
    )
    largest = wording.size(now["largest_free_bytes"])
    peak = "no history"
    if row["entries"]:
        peak = f"peak {wording.size(row['peak_reserved_bytes'])}"
    segments = f"{wording.plural(int(now['segments']), 'segment')}, {peak}"
    in_use = f"{share} of it; rounding {wording.size(now['rounding_bytes'])}"
    freed = f"by {backend.module}.empty_cache()"
    fragmentation = now["fragmentation_percent"]
    return [
        bytes_figure("reserved", "Reserved", now["reserved_bytes"], segments),
        bytes_figure("allocated", "In use", now["allocated_bytes"], in_use),
        bytes_figure("inactive", "Free inside", now["inactive_bytes"], f"largest block {largest}"),
        figure("fragmentation", "Fragmentation", fragmentation, "%", 1, stranded),
        bytes_figure("releasable", "Releasable", now["releasable_bytes"], freed),
    ]


def _oom(row: Any) -> Oom:
    return Oom(
        when=_when(row),
        text=wording.shortened(row["explanation"], 1200),
        remedy=wording.shortened(row["remedy"], 800),
    )


class _Levels(NamedTuple):
    """Levels over time, as `AllocatorDevice` has them."""

    timed: bool
    x: Numbers
    reserved: Numbers
    allocated: Numbers
    active: Numbers
    action: Coded
    size: Numbers
    where: Coded
    oom_at: Numbers


def _levels(run: Run, replay: Replay) -> _Levels:
    """Levels over time: the highest and the lowest of each interval, the peaks, and where memory
    ran out.
    """
    levels, entries = replay.levels(), replay.entries
    time = (entries["time_us"] - allocator.start_us(run.allocator.replays)) / 1e3
    ooms = np.flatnonzero(entries["action"] == OOM)[-MOST_OOMS:]
    timed, rows = False, np.zeros(0, np.int64)
    if replay.count:
        timed = bool((entries["time_us"] >= 0).all() and (np.diff(time) >= 0).all())
        allocated, reserved = levels["allocated"], levels["reserved"]
        keep = [int(np.argmax(allocated)), int(np.argmax(reserved)), *ooms.tolist()]
        rows = np.union1d(sample(allocated, keep, _BOXES), sample(reserved, keep, _BOXES // 2))
    position = time
    if not timed:
        position = np.arange(len(time), dtype=np.float64)
    names = np.array(ACTIONS, object)
    locations = run.allocator.stacks.locations(entries["stack"][rows])
    return _Levels(
        timed=timed,
        x=numbers(position[rows]),
        reserved=numbers(levels["reserved"][rows]),
        allocated=numbers(levels["allocated"][rows]),
        active=numbers(levels["active"][rows]),
        action=coded(names[entries["action"][rows]]),
        size=numbers(entries["size"][rows]),
        where=coded(wording.shortened(line, _LONGEST) for line in locations),
        oom_at=numbers(position[ooms]),
    )


class _Map(NamedTuple):
    """The segments that are drawn, their blocks, and a sentence about the others."""

    segments: Segments
    blocks: Blocks
    more: str


def _map(run: Run, state: State, stranded: np.ndarray[Any, np.dtype[np.int64]]) -> _Map:
    segments, blocks = state.segments, state.blocks
    owner = blocks["segment"].to_numpy(np.int64)
    lost = np.bincount(owner, stranded, len(segments))
    counts = np.bincount(owner, minlength=len(segments))
    order = np.lexsort((-segments["size"].to_numpy(np.int64), -lost))
    fits = order[(np.cumsum(counts[order]) <= MOST_BLOCKS)][:MOST_SEGMENTS]
    position = np.full(len(segments), -1)
    position[fits] = np.arange(len(fits))
    rows = np.flatnonzero(position[owner] >= 0)
    rows = rows[np.lexsort((blocks["address"].to_numpy(np.int64)[rows], position[owner[rows]]))]
    rest = np.setdiff1d(np.arange(len(segments)), fits)
    size = wording.size(float(segments["size"].to_numpy(np.int64)[rest].sum()))
    stacks = run.allocator.stacks
    codes = blocks["stack"].to_numpy(np.int64)[rows]
    # Beyond a number of distinct stacks, only the innermost line is sent.
    distinct = pd.unique(codes)
    texts = {}
    for code in distinct[:MOST_STACKS].tolist():
        texts[code] = stacks.text(code)
    block_stacks = []
    for code, line in zip(codes.tolist(), stacks.locations(codes), strict=True):
        block_stacks.append(wording.shortened(texts.get(code, line), _LONGEST))
    more = ""
    if len(rest):
        more = f"{wording.plural(len(rest), 'more segment')} of {size} are not drawn."
    base = segments["address"].to_numpy(np.int64)[owner[rows]]
    return _Map(
        Segments(
            size=numbers(segments["size"].to_numpy(np.int64)[fits]),
            stranded=numbers(lost[fits]),
            name=coded(_name(segment) for segment in segments.iloc[fits].to_dict("records")),
            rows=len(fits),
        ),
        Blocks(
            segment=numbers(position[owner[rows]]),
            offset=numbers(blocks["address"].to_numpy(np.int64)[rows] - base),
            size=numbers(blocks["size"].to_numpy(np.int64)[rows]),
            state=numbers(blocks["state"].to_numpy(np.int64)[rows]),
            stranded=numbers(stranded[rows]),
            stack=coded(block_stacks),
            rows=len(rows),
        ),
        more,
    )


def _name(segment: dict[Any, Any]) -> str:
    kind = ("", "small, ", "large, ")[segment["large"] + 1]
    if segment["expandable"]:
        kind += "expandable, "
    name = f"{segment['address']:#x}, {kind}stream {segment['stream']}"
    if segment["pool"] > 0 or segment["pool_b"] > 0:
        name += f", pool {segment['pool']}, {segment['pool_b']}"
    return name


def _table(frame: str, rows: pd.DataFrame, keys: tuple[str, ...]) -> Table:
    columns = [frames.column(f"allocator.{frame}", key) for key in keys]
    for col in columns:
        if col.kind == "code":
            texts = [wording.shortened(text, _LONGEST) for text in rows[col.name]]
            rows = rows.assign(**{col.name: texts})
    return table_of(rows, columns)


def only(payload: Payload) -> bool:
    """A payload of a snapshot alone, so that there is neither a verdict nor a step."""
    return payload.meta.facts[:1] == [ALONE]


def lines(part: Allocator, limit: int) -> list[str]:
    """The figures of each device, and why memory ran out, in so many lines at most."""
    texts = []
    if part.empty:
        texts.append(f"{part.empty.title}. {part.empty.text}")
    for device in part.devices:
        texts.append(f"{device.name}, {device.when}: {', '.join(figure_texts(device))}")
        texts += [f"Out of memory {oom.when}: {oom.text} {oom.remedy}" for oom in device.ooms[:1]]
    return texts[:limit]


def figure_texts(device: AllocatorDevice) -> list[str]:
    """`Reserved 4.00 GiB` of each figure."""
    return [
        f"{figure.label} {wording.number(figure.value, figure.digits)} {figure.unit}"
        for figure in device.figures
    ]
