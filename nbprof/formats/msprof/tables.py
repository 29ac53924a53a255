"""The tables of Ascend's profilers: every CSV of a recording, known by its header, its slices
joined, the newest of several exports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pandas as pd

from nbprof.core.files import SourceFile, printable
from nbprof.core.receipt import Note
from nbprof.core.trace import Table
from nbprof.core.units import join_some
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
        folder, suffix = file.label.rpartition("/")[0], file.name.rpartition(".")[2]
        exports = groups.setdefault((folder, f"{name.module}.{suffix}", name.ids), {})
        exports.setdefault(name.time, []).append(file)
    newest_files: list[SourceFile] = []
    messages: list[Note] = []
    for (_, module, _), exports in groups.items():
        last = exports[max(exports)]
        newest_files += sorted(last, key=lambda file: parsed(file.name).slice)
        if len(exports) > 1:
            older = sum(map(len, exports.values())) - len(last)
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
        data = b"" if file.size == 0 else bytes(file.read().data)
        if not data:
            messages.append(notes.empty_file(name))
            continue
        device_of_file = device_of(file)
        if device_of_file is None:
            device_of_file = device
        for section in msprof_csv.read(data):
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
        match = _DEVICE.match(part)
        if match:
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
        frame = table.frame = frame.copy(deep=False)
        frame.insert(0, "device_id", pd.Series(device, index=frame.index, dtype="Int64"))
    table.device = device_in(frame)


def device_in(frame: pd.DataFrame) -> int | None:
    """The only device in a table; None where it has several, or states none."""
    if "device_id" not in frame:
        return None
    ids = frame["device_id"].dropna().unique()
    return int(ids[0]) if len(ids) == 1 else None


def joined(parts: list[Table]) -> list[Table]:
    """Tables of one header as one: slices, devices and iterations that are files of their own."""
    groups: dict[tuple[str, ...], list[Table]] = {}
    for table in parts:
        names = tuple(column.name for column in columns(table.kind, table.header))
        groups.setdefault(names, []).append(table)
    return list(map(_joined, groups.values()))


def _joined(group: list[Table]) -> Table:
    if len(group) == 1:
        return group[0]
    base = min((table.base_ns for table in group if table.first_ns is not None), default=0)
    for table in group:
        rebase(table, base)
    filled = [table for table in group if len(table)] or group[:1]
    devices = {table.device for table in filled}
    sources = list(dict.fromkeys(table.source for table in group))
    return replace(
        group[0],
        frame=_stacked([table.frame for table in filled]),
        source=join_some(sources, 1),
        doubts=list(chain.from_iterable(table.doubts for table in group)),
        device=devices.pop() if len(devices) == 1 else None,
        base_ns=base,
    )


def _stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Frames of the same columns one below the other; categories are united, not turned into
    objects.
    """
    if len(frames) == 1:
        return frames[0]
    result = {}
    for name in frames[0].columns:
        parts = [frame[name] for frame in frames]
        if {"category"} == {part.dtype.name for part in parts}:
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
