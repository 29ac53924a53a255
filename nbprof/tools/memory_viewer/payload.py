"""Memory of the compiled programs: the working set from program point to program point, and what is
alive at its peak.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.analysis.memory import viewer as memory_viewer
from nbprof.analysis.memory.modules import NO_ASSIGNMENT, NOT_READ, Named
from nbprof.display import wording
from nbprof.display.codec import Delta, coded, numbers
from nbprof.hlo import buffers as hlo_buffers
from nbprof.hlo.hlo import Program
from nbprof.schema import frames
from nbprof.tools.common import bytes_figure, figure, sample
from nbprof.tools.memory_viewer.parts import MemoryViewer, ProgramMemory, ProgramSpace
from nbprof.tools.parts import Empty, Figure, Table
from nbprof.tools.tables import table_of

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_BUFFERS = 300
"""Buffers that are listed one by one; the rest of the peak is one sum."""
ALL_POINTS, ALL_BUFFERS, ALL_MODULES = 12_000, 3_000, 40
"""What a report holds of all programs together: the largest peaks come first."""
_LONGEST = 400
"""Letters of a name or shape."""
_BUFFER = (
    "buffer",
    "category",
    "size_bytes",
    "unpadded_bytes",
    "padding_ratio",
    "shape",
    "framework_op",
    "allocation",
    "start",
    "end",
    "opcode",
    "source",
)


def payload(run: Run) -> MemoryViewer:
    """The program with the largest peak first, opened at the largest that ran while it was
    recorded.
    """
    frame = run.programs.memory_modules
    planned = frame[frame["peak_bytes"].notna()]
    if planned.empty:
        return nothing(_empty(frame))
    points, buffers = ALL_POINTS, ALL_BUFFERS
    modules: list[ProgramMemory] = []
    for row in planned.to_dict("records"):
        if len(modules) >= ALL_MODULES or points <= 0 or buffers <= 0:
            break
        program = _module(row, run.programs.compiled[str(row["module"])], run)
        points -= sum(space.rows for space in program.spaces)
        buffers -= sum(space.buffers.rows for space in program.spaces)
        modules.append(program)
    part = MemoryViewer(
        empty=None, modules=modules, left_out=_left_out(frame, planned.iloc[len(modules) :])
    )
    # A program that only prepares the run may need the most memory: open the first that ran.
    ran = planned["module"].isin(set(run.programs.hlo["program"])).to_numpy()[: len(modules)]
    if ran.any() and not ran[0]:
        return replace(part, chosen=(int(ran.argmax()), 0))
    return part


def opened_at(run: Run, part: MemoryViewer, module: str, space: int) -> MemoryViewer:
    """The part with a program and a memory space chosen; a program that the budget left out is put
    at its end.

    Parameters
    ----------
    run : Run
    part : MemoryViewer
    module : str
        Its full name, as `Run.compiled` has it.
    space : int
    """
    frame, modules = run.programs.memory_modules, list(part.modules)
    # Names may be cut, so that only the place among the known ones tells which it is.
    index = frame.loc[frame["peak_bytes"].notna(), "module"].tolist().index(module)
    if index >= len(modules):
        row = frame[frame["module"] == module].to_dict("records")[0]
        index = len(modules)
        modules.append(_module(row, run.programs.compiled[module], run))
    spaces = [each.space for each in modules[index].spaces]
    return replace(
        part, modules=modules, chosen=(index, spaces.index(space) if space in spaces else 0)
    )


def nothing(empty: Empty | None = None) -> MemoryViewer:
    """The part without programs."""
    return MemoryViewer(empty=empty, modules=[], left_out="")


def has(run: Run) -> bool:
    """True if the memory of a program is known."""
    return bool(run.programs.memory_modules["peak_bytes"].notna().any())


def text(module: str, seen: memory_viewer.View, limit: int) -> str:
    """The memory of a program in a few lines."""
    head = f"{wording.one_line(module)}: peak {wording.size(seen.peak_bytes)}"
    if seen.space:
        head += f" in memory space {seen.space}"
    if seen.peak_position >= 0:
        head += f" at program {_point(seen)}"
    unpadded = f"  without padding {wording.size(seen.peak_unpadded_bytes)}"
    padding = seen.peak_bytes - seen.peak_unpadded_bytes
    if padding > 0:
        percent = wording.percent(100 * padding / seen.peak_bytes)
        unpadded += f"; padding {wording.size(padding)}, {percent} of the peak"
    temporary = wording.size(seen.peak_bytes - seen.throughout_bytes)
    lines = [head, unpadded, f"  {_throughout(seen)}, temporary {temporary} at the peak"]
    rows = seen.at_peak.sort_values("size_bytes", ascending=False, kind="stable")
    for row in rows.head(limit).itertuples():
        name = wording.one_line(str(row.buffer)) or "(no name)"
        shape = wording.one_line(str(row.shape))[:48]
        lines.append(
            f"  {wording.size(row.size_bytes):>12}  {row.category:<9}  {shape:<48}  {name[:60]}"
        )
    if len(rows) > limit:
        size = wording.size(rows["size_bytes"].iloc[limit:].sum())
        lines.append(f"  {size:>12}  in {wording.plural(len(rows) - limit, 'more buffer')}")
    return "\n".join([*lines, *(f"  {note}" for note in seen.notes)])


def _point(seen: memory_viewer.View) -> str:
    """`point 12 of 345`. The peak is in the row of the timeline after the event that makes it."""
    return f"point {seen.peak_position + 1:,} of {len(seen.timeline) - 1:,}"


def _throughout(seen: memory_viewer.View) -> str:
    """Sizes of what is live throughout."""
    parameters, results = wording.size(seen.parameter_bytes), wording.size(seen.output_bytes)
    return f"parameters {parameters}, results {results}"


def listed(frame: pd.DataFrame, limit: int = 10) -> str:
    """The programs of a profile in a few lines."""
    planned = frame[frame["peak_bytes"].notna()]
    head = (
        f"<nbprof memory_viewer: {wording.plural(len(planned), 'compiled program')};"
        " p.memory_viewer[name] is one, .modules the DataFrame>"
    )
    lines = [
        f"  {wording.size(row.peak_bytes):>12}  {wording.one_line(str(row.module))[:90]}"
        for row in planned.head(limit).itertuples()
    ]
    if len(planned) > limit:
        lines.append(f"  and {len(planned) - limit:,} more")
    return "\n".join([head, *lines])


def _module(row: dict[Any, Any], named: Named, run: Run) -> ProgramMemory:
    program = Program(named.module.data)
    assignment = hlo_buffers.read(program)
    assert assignment is not None, "only programs whose memory is known get here"
    spaces = [
        _space(memory_viewer.view(program, space, assignment), row)
        for space in memory_viewer.spaces(assignment)
    ]
    return ProgramMemory(
        name=_shorten(str(row["module"])),
        hosts=int(row["hosts"]),
        host=_only_host(named, run),
        peak_bytes=float(row["peak_bytes"]),
        time_ms=wording.real(row["time_ms"]),
        # An empty space has nothing to show; the main memory is always there.
        spaces=[
            space for space in spaces if space.space == 0 or space.peak_bytes or space.total_bytes
        ],
    )


def _only_host(named: Named, run: Run) -> str:
    """The one host of several that recorded a program, where its name does not say it; '' of
    others.
    """
    if len(named.hosts) != 1 or len(run.hosts) < 2 or f" on {named.hosts[0]}" in named.name:
        return ""
    return _shorten(wording.one_line(named.hosts[0]))


def _space(seen: memory_viewer.View, row: dict[Any, Any]) -> ProgramSpace:
    timeline = seen.timeline
    allocated, bare = (
        timeline[key].to_numpy(np.int64) for key in ("allocated_bytes", "unpadded_bytes")
    )
    sampled = sample(allocated, [seen.peak_position + 1])
    sizes = seen.at_peak["size_bytes"].to_numpy(np.int64)
    by_size = np.argsort(-sizes, kind="stable")
    # The largest, in program order.
    largest = np.sort(by_size[:MOST_BUFFERS])
    rest = sizes[by_size[MOST_BUFFERS:]]
    notes = list(seen.notes)
    if not len(timeline):
        notes.append("This program has no temporary buffers here: its buffers are live throughout.")
    if not seen.space and wording.real(row["capacity_bytes"]) is not None:
        notes.append(f"Largest batch: {row['batch_note']}")
    return ProgramSpace(
        space=seen.space,
        figures=_figures(seen, row),
        notes=notes,
        peak_bytes=float(seen.peak_bytes),
        unpadded_bytes=float(seen.peak_unpadded_bytes),
        throughout_bytes=float(seen.throughout_bytes),
        total_bytes=float(seen.total_bytes),
        # The row of the timeline after the event that makes the peak.
        peak=seen.peak_position + 1 if seen.peak_position >= 0 else -1,
        points=len(timeline),
        rows=len(sampled),
        position=Delta(sampled.astype(np.int32)),
        instruction=coded(_shorten(name) for name in timeline["instruction"].iloc[sampled]),
        allocated_bytes=numbers(allocated[sampled]),
        unpadded=numbers(bare[sampled]),
        buffers=_table(seen.at_peak.iloc[largest]),
        rest_count=len(rest),
        rest_bytes=float(rest.sum()),
    )


def _figures(seen: memory_viewer.View, row: dict[Any, Any]) -> list[Figure]:
    padding = seen.peak_bytes - seen.peak_unpadded_bytes
    padding_note = "no padding"
    if padding > 0:
        padding_note = f"padding: {wording.percent(100 * padding / seen.peak_bytes)} of the peak"
    moment = f"at {_point(seen)}" if seen.peak_position >= 0 else "nothing temporary"
    temporary = seen.peak_bytes - seen.throughout_bytes
    live = f"{wording.plural(len(seen.at_peak), 'buffer')} live in total"
    fixed = f"not reusable: {wording.size(seen.not_reusable_bytes)}"
    unpadded, throughout = seen.peak_unpadded_bytes, seen.throughout_bytes
    figures = [
        bytes_figure("peak", "Peak", seen.peak_bytes, moment),
        bytes_figure("peak_unpadded", "Peak without padding", unpadded, padding_note),
        bytes_figure("throughout", "Live throughout", throughout, _throughout(seen)),
        bytes_figure("temporary", "Temporary at the peak", temporary, live),
        bytes_figure("total", "Allocated in total", seen.total_bytes, fixed),
        figure(
            "instructions",
            "Instructions",
            float(row["instructions"]),
            "",
            0,
            "of all its computations",
        ),
    ]
    capacity = wording.real(row["capacity_bytes"])
    if capacity is not None and not seen.space:
        spare = float(row["spare_bytes"])
        fits = f"fits, {wording.size(spare)} to spare"
        if spare < 0:
            fits = f"does not fit: {wording.size(-spare)} too little"
        figures.insert(1, bytes_figure("capacity", "Device memory", capacity, fits))
        batch, largest = wording.real(row["batch"]), wording.real(row["largest_batch"])
        # Where it is unknown, a note says why.
        if batch is not None and largest is not None:
            times = f"{wording.number(largest / batch)} times {wording.number(batch)}"
            label, note = "Largest batch, at least", f"{times}; see the note"
            figures.insert(2, figure("largest_batch", label, largest, "", 0, note))
    return figures


def _table(rows: pd.DataFrame) -> Table:
    if len(rows):
        names = ("buffer", "shape", "framework_op", "source")
        rows = rows.assign(**{key: rows[key].map(_shorten) for key in names})
    return table_of(rows, [frames.column("memory_viewer[module].at_peak", key) for key in _BUFFER])


def _shorten(text: str) -> str:
    return wording.shortened(text, _LONGEST)


def _left_out(frame: pd.DataFrame, smaller: pd.DataFrame) -> str:
    parts = []
    if len(smaller):
        largest = wording.size(smaller["peak_bytes"].iloc[0])
        parts.append(
            f"{wording.plural(len(smaller), 'more program')} with peaks of at most {largest}:"
            " p.memory_viewer has all of them."
        )
    return " ".join([*parts, *_unknown(frame)])


def _unknown(frame: pd.DataFrame) -> list[str]:
    """Sentences about the programs whose memory is not known."""
    notes = frame.loc[frame["peak_bytes"].isna(), "note"]
    bare = int((notes == NO_ASSIGNMENT).sum())
    sentences = []
    if bare:
        sentences.append(
            f"{wording.plural(bare, 'program has', 'programs have')} no buffer assignment, so their"
            " memory is unknown."
        )
    if unread := int((notes == NOT_READ).sum()):
        sentences.append(
            f"{wording.plural(unread, 'program is', 'programs are')} not read, because each host"
            " has too many."
        )
    if damaged := len(notes) - bare - unread:
        sentences.append(
            f"{wording.plural(damaged, 'program is', 'programs are')} damaged in the file; see"
            " p.memory_viewer.modules."
        )
    return sentences


def _empty(frame: pd.DataFrame) -> Empty:
    why = " ".join(_unknown(frame)) or (
        "The profile has no compiled XLA programs. JAX runs them, as does TensorFlow with"
        " jit_compile=True."
    )
    return Empty(title="No programs with known memory", text=why)
