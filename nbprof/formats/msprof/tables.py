"""The tables of Ascend's profilers: every CSV of a recording, known by its header, its slices
joined, the newest of several exports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from nbprof.core.files import SourceFile, printable
from nbprof.core.receipt import Note
from nbprof.core.trace import Table
from nbprof.formats.msprof import csv as msprof_csv
from nbprof.formats.msprof import notes
from nbprof.formats.msprof.columns import columns
from nbprof.formats.notes import labelled

# ps around an origin that int64 holds, with room to add.
_REACH_NS = 2**52
_FILE = re.compile(
    r"^(?P<module>[A-Za-z][A-Za-z_]*?)(?:_slice_(?P<slice>\d+))?(?P<ids>(?:_\d{1,9})*)"
    r"(?:_(?P<time>\d{14}))?\.\w+$"
)
_DEVICE = re.compile(r"^device_(\d{1,4})$")


@dataclass(frozen=True)
class Name:
    """The parts of a file name: its module, the ids of device, model and iteration, the number of
    the slice and of the export.
    """

    module: str
    ids: tuple[int, ...]
    slice: int
    time: str


def parsed(name: str) -> Name:
    """The parts of a file's name; of a name that no exporter gives, the whole is the module."""
    match = _FILE.match(name)
    if not match:
        return Name(name, (), 0, "")
    ids = tuple(int(part) for part in match["ids"].split("_") if part)
    return Name(match["module"], ids, int(match["slice"] or 0), match["time"] or "")


def newest(files: Sequence[SourceFile]) -> tuple[list[SourceFile], list[Note]]:
    """The files without those of earlier exports of the same, slices in their order; and a note
    for what was left aside.
    """
    groups: dict[tuple[str, str, tuple[int, ...]], dict[str, list[SourceFile]]] = {}
    for file in files:
        name = parsed(file.name)
        folder = file.label.rpartition("/")[0]
        groups.setdefault(
            (folder, f"{name.module}.{file.name.rpartition('.')[2]}", name.ids), {}
        ).setdefault(name.time, []).append(file)
    newest_files: list[SourceFile] = []
    messages: list[Note] = []
    for (_, module, _), exports in groups.items():
        last = max(exports)
        newest_files += sorted(exports[last], key=lambda p: parsed(p.name).slice)
        if len(exports) > 1:
            older = sum(len(same) for time, same in exports.items() if time != last)
            messages.append(notes.older_exports(module, len(exports), older))
    return newest_files, messages


def tables(
    files: Sequence[SourceFile],
    host: int = 0,
    rank: int | None = None,
    device: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[dict[str, list[Table]], list[Note]]:
    """The tables of the CSV files of one recording, by kind, and lines for the receipt.

    Parameters
    ----------
    files : sequence of SourceFile
    host : int
        The number of the recording in the run.
    rank : int, optional
    device : int, optional
        The device of files that state it neither in a column nor by their folder.
    progress : callable, optional

    Raises
    ------
    ReadError
        A file could not be read.
    """
    result: dict[str, list[Table]] = {}
    tables_to_read, messages = newest(files)
    for file in tables_to_read:
        name = printable(file.name)
        if progress:
            progress(f"reading {file.name}")
        # Behind a URL the size may not be known before.
        buffer = file.read() if file.size != 0 else None
        if buffer is None or not buffer.size:
            messages.append(notes.empty_file(name))
            continue
        device_of_folder = device_of(file)
        device_of_file = device if device_of_folder is None else device_of_folder
        for section in msprof_csv.read(bytes(buffer.data)):
            if not section.kind:
                messages.append(notes.unused_table(name, section.header))
                continue
            table = _table(section, file.name, host, rank)
            _set_device(table, device_of_file)
            result.setdefault(section.kind, []).append(table)
            if not len(section.frame):
                messages.append(notes.table_without_rows(name))
    return {kind: joined(parts) for kind, parts in result.items()}, messages


def _table(section: msprof_csv.Section, source: str, host: int, rank: int | None) -> Table:
    return Table(
        section.kind,
        None,
        rank,
        section.frame,
        section.header,
        source,
        labelled(f"{printable(source)}: ", section.doubts),
        host,
        section.base_ns,
    )


def device_of(file: SourceFile) -> int | None:
    """The device that the folder of a file names."""
    for part in reversed(file.label.split("/")[:-1]):
        if match := _DEVICE.match(part):
            return int(match[1])
    return None


def _set_device(table: Table, device: int | None) -> None:
    """Gives rows their device where the file has no column for it, and the table its own."""
    frame = table.frame
    if (
        "device_id" not in frame
        and device is not None
        and table.kind not in ("api_statistic", "operator_details", "fusion_op")
    ):
        frame = table.frame = pd.DataFrame(
            {"device_id": pd.array(np.full(len(frame), device), dtype="Int64")}
        ).join(frame)
    if "device_id" in frame:
        ids = frame["device_id"].dropna().unique()
        table.device = int(ids[0]) if len(ids) == 1 else None


def joined(parts: list[Table]) -> list[Table]:
    """Tables of one header as one: slices, devices and iterations that are files of their own."""
    groups: dict[tuple[str, ...], list[Table]] = {}
    for table in parts:
        groups.setdefault(tuple(c.name for c in columns(table.kind, table.header)), []).append(
            table
        )
    result = []
    for group in groups.values():
        if len(group) == 1:
            result.append(group[0])
            continue
        based = [t for t in group if t.first_ns is not None]
        base = min((t.base_ns for t in based), default=0)
        for table in group:
            rebase(table, base)
        devices = {t.device for t in group if len(t)}
        names = list(dict.fromkeys(t.source for t in group))
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        result.append(
            replace(
                group[0],
                frame=_stacked([t.frame for t in group if len(t)] or [group[0].frame]),
                source=names[0] + more,
                doubts=[doubt for table in group for doubt in table.doubts],
                device=next(iter(devices)) if len(devices) == 1 else None,
                base_ns=base,
            )
        )
    return result


def _stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Frames of the same columns one below the other; categories are united, not turned into
    objects.
    """
    if len(frames) == 1:
        return frames[0]
    result = {}
    for name in frames[0].columns:
        parts = [f[name] for f in frames]
        if all(isinstance(p.dtype, pd.CategoricalDtype) for p in parts):
            result[name] = pd.api.types.union_categoricals(parts)
        else:
            result[name] = pd.concat(parts, ignore_index=True).array
    return pd.DataFrame(result, copy=False)


def rebase(table: Table, epoch_ns: int) -> bool:
    """Counts the moments of a table from another begin; False, and nothing is done, where int64
    could not hold them.
    """
    shift = table.base_ns - epoch_ns
    if not table.times or not len(table) or table.first_ns is None:
        table.base_ns = epoch_ns
        return True
    if abs(shift) >= _REACH_NS:
        return False
    if shift:
        for name in table.times:
            table.frame[name] = table.frame[name] + shift * 1000
    table.base_ns = epoch_ns
    return True
