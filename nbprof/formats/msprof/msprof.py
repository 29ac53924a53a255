"""Reads exports of Ascend's profilers into a `Trace`: timelines in JSON, tables in CSV, or both, of
one process or of several ranks.

The events of a timeline and the rows of a table describe the same work: a row is linked to its
event (column `event` of the table), and only a row that no timeline has becomes an event of its
own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbprof.core.errors import ReadError
from nbprof.core.files import LIMIT_BYTES, SourceFile, printable
from nbprof.core.receipt import Receipt
from nbprof.core.sqlite import MAGIC
from nbprof.core.trace import Table, Trace
from nbprof.formats import build
from nbprof.formats.chrome.build import Builder
from nbprof.formats.chrome.bytes import Source
from nbprof.formats.chrome.document import walk
from nbprof.formats.chrome.trace import assemble
from nbprof.formats.msprof import analysed as msprof_analysed
from nbprof.formats.msprof import database_events, database_tables, notes
from nbprof.formats.msprof import events as msprof_events
from nbprof.formats.msprof import steps as msprof_steps
from nbprof.formats.msprof import tables as msprof_tables
from nbprof.formats.msprof.database import Database
from nbprof.formats.msprof.recordings import rank_of, recording_of, use_of
from nbprof.formats.notes import labelled

# Moments of a clock that counts from the start of the machine are below, dates above: a century of
# seconds in ns.
_DATES_NS = 10**17
_DEVICE = re.compile(r"device_(\d{1,4})$")
# Databases that contain the same data as tables and timelines.
_EXPORT_DATABASE = re.compile(r"(ascend_|msprof)\w*\.(db|dat)$", re.IGNORECASE)
# Of an archive, as labels have it.
_PACKED = re.compile(r"((\.tar)?\.\w{1,4})?!$")


@dataclass
class Recording:
    """The files of one process, and what they state of it.

    Attributes
    ----------
    path : str
        Its folder.
    name : str
        Its name as a host.
    rank : int or None
    facts : list of dict
        The contents of `info.json` and `profiler_info.json`.
    shift_ns : int
        Offset to add to moments that count from the start of the machine; 0 where it is unknown.
    """

    path: str
    files: list[SourceFile] = field(default_factory=list)
    name: str = ""
    rank: int | None = None
    facts: list[dict[str, Any]] = field(default_factory=list)
    shift_ns: int = 0

    def files_of(self, use: str) -> list[SourceFile]:
        """The files of one use, by their names."""
        return [file for file in self.files if use_of(file.name) == use]

    @property
    def devices(self) -> list[int]:
        """The devices that its facts or folders name."""
        result: set[int] = set()
        for facts in self.facts:
            ids = [device.get("id") for device in _list(facts.get("DeviceInfo"))]
            result.update(int(str(ident)) for ident in ids if _is_number(ident))
        for file in self.files:
            matches = map(_DEVICE.match, file.label.split("/")[:-1])
            result.update(int(match[1]) for match in matches if match)
        return sorted(result)


def read(
    files: Sequence[SourceFile],
    progress: Callable[[str], None] | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> Trace:
    """The trace of one run, which may be several recordings, one a process.

    Parameters
    ----------
    files : sequence of SourceFile
    progress : callable, optional
        Called with a sentence as each file is begun.
    limit_bytes : int
        The most that a packed file may unpack to.

    Raises
    ------
    ReadError
        A file could not be read, or none of them holds anything.
    """
    receipt = Receipt()
    recordings = _recordings(files, receipt)
    builder = Builder(receipt)
    tables: dict[str, list[Table]] = {}
    for number, recording in enumerate(recordings):
        _timelines(builder, recording, receipt, progress, limit_bytes)
        device = recording.devices[0] if len(recording.devices) == 1 else None
        csv_files = recording.files_of("table")
        csv_tables, csv_notes = msprof_tables.tables(
            csv_files, number, recording.rank, device, progress
        )
        analysed, analysed_notes = msprof_analysed.tables(
            recording.files_of("analysed"), number, recording.rank
        )
        from_database = _databases(
            builder, recording, number, {**csv_tables, **analysed}, receipt, progress
        )
        for group in (csv_tables, analysed, from_database):
            for kind, items in group.items():
                _shift(items, recording.shift_ns)
                tables.setdefault(kind, []).extend(items)
        prefix = f"{recording.name}: " if len(recordings) > 1 else ""
        receipt.add(*labelled(prefix, [*csv_notes, *analysed_notes]))
    if not builder.files and not tables:
        raise ReadError(_nothing_read(files, receipt), path=files[0].label)
    trace = assemble(builder) if builder.files else build.Builder(receipt).trace()
    trace.hosts = [recording.name for recording in recordings]
    # Those of the timelines alone, which are fewer or in another order.
    trace.late_ps = []
    trace.metadata["ascend"] = [_metadata(recording) for recording in recordings]
    _one_clock(trace, tables, timelines=bool(builder.files))
    _steps(recordings, trace, tables, receipt)
    msprof_events.add(trace, tables)
    for items in tables.values():
        for table in items:
            receipt.add(*table.doubts)
    if tables:
        counts = [f"{kind} {sum(map(len, items)):,}" for kind, items in sorted(tables.items())]
        receipt.add(notes.table_rows(counts))
    trace.tables = tables
    receipt.events = len(trace.events)
    return trace


def _shift(tables: Sequence[Table], shift_ns: int) -> None:
    """Dates the tables of versions whose clock began with the machine."""
    for table in tables:
        if 0 < table.base_ns < _DATES_NS:
            table.base_ns += shift_ns


def _metadata(recording: Recording) -> dict[str, object]:
    return {
        "path": recording.name,
        "rank": recording.rank,
        "devices": recording.devices,
        "facts": recording.facts,
    }


def _nothing_read(files: Sequence[SourceFile], receipt: Receipt) -> str:
    """Reason for a run of which nothing could be read."""
    if not any(len(file.head(1)) for file in files if use_of(file.name) not in ("facts", "")):
        return "all of its tables are empty: the export was stopped; run msprof --export=on again."
    warnings = [note.text for note in receipt.entries if note.level == "warning" and note.text]
    if warnings:
        return warnings[0]
    return "none of its files is a table or a timeline of Ascend's profilers."


def _use(file: SourceFile) -> str:
    """Use of a file; a database may have any name if it was given as a path."""
    return use_of(file.name) or ("database" if file.head(len(MAGIC)) == MAGIC else "")


def _recordings(files: Sequence[SourceFile], receipt: Receipt) -> list[Recording]:
    by_host: dict[str, Recording] = {}
    for file in files:
        parts = file.label.split("/")[:-1]
        path = "/".join(parts[: recording_of(parts)])
        by_host.setdefault(path, Recording(path)).files.append(file)
    result = []
    for recording in by_host.values():
        # The databases of several ranks may have been put into one folder.
        databases = recording.files_of("database")
        ranked = [file for file in databases if rank_of(file.name) is not None]
        distinct_ranks = {rank_of(file.name) for file in ranked}
        other_ranks = ranked[1:] if len(distinct_ranks) == len(ranked) else []
        recording.files = [file for file in recording.files if file not in other_ranks]
        result += [recording, *(Recording(recording.path, [file]) for file in other_ranks)]
    result = [recording for recording in result if _has_data(recording)]
    for recording in result:
        _facts(recording, receipt)
    _named(result, receipt)
    return result


def _has_data(recording: Recording) -> bool:
    return any(_use(file) not in ("facts", "") for file in recording.files)


def _facts(recording: Recording, receipt: Receipt) -> None:
    starts: dict[str, Any] = {}
    for file in recording.files:
        if use_of(file.name) != "facts":
            continue
        try:
            info = json.loads(bytes(file.read().data))
        except (ReadError, ValueError, RecursionError):
            receipt.add(notes.unread_machine_facts(printable(file.name)))
            continue
        if not isinstance(info, dict):
            continue
        if file.name.startswith("start_info"):
            starts = starts or info
        else:
            recording.facts.append(info)
    ids = [facts.get("rank_id", "") for facts in recording.facts]
    ranks = [int(rank) for rank in ids if _is_number(rank)]
    of_names = [rank_of(file.name) for file in recording.files]
    ranks += [rank for rank in of_names if rank is not None]
    recording.rank = ranks[0] if ranks else None
    begin, boot = starts.get("collectionTimeBegin"), starts.get("clockMonotonicRaw")
    if _is_number(begin, 18) and _is_number(boot, 18):
        recording.shift_ns = int(str(begin)) * 1000 - int(str(boot))


def _named(recordings: list[Recording], receipt: Receipt) -> None:
    """Names recordings by their ranks where they have some, else by their devices, else by their
    folders.
    """
    ranks = [recording.rank for recording in recordings]
    devices = [
        recording.devices[0] if len(recording.devices) == 1 else None for recording in recordings
    ]
    names = [
        printable(_PACKED.sub("", recording.path.rpartition("/")[2])) or "host"
        for recording in recordings
    ]
    if len(recordings) > 1:
        for i, (rank, device) in enumerate(zip(ranks, devices, strict=True)):
            if rank is not None and ranks.count(rank) == 1:
                names[i] = f"rank {rank}"
            elif rank is not None:
                names[i] = f"rank {rank}, {names[i]}"
            elif device is not None and devices.count(device) == 1:
                names[i] = f"NPU {device}"
        for rank in sorted({r for r in ranks if r is not None and ranks.count(r) > 1}):
            receipt.add(notes.equal_ranks(rank, ranks.count(rank)))
    for i, name in enumerate(names):
        while name in names[:i]:
            name += "'"
        names[i] = recordings[i].name = name


def _timelines(
    builder: Builder,
    recording: Recording,
    receipt: Receipt,
    progress: Callable[[str], None] | None,
    limit_bytes: int,
) -> None:
    """Adds the timelines of a recording: one after the other those of a folder, which are slices or
    iterations of the same lanes.
    """
    folders: dict[str, list[SourceFile]] = {}
    for file in recording.files:
        use = use_of(file.name)
        if use in ("timeline", "partial"):
            folders.setdefault(file.label.rpartition("/")[0], []).append(file)
    for folder, files in folders.items():
        complete = [file for file in files if use_of(file.name) == "timeline"]
        # The marks of iterations are a table of their own, and the timeline of a recording that has
        # no other.
        without_marks = [file for file in files if not file.name.startswith("step_trace")]
        uses = {use_of(file.name) for file in recording.files}
        timelines = complete or without_marks
        if not timelines and uses <= {"partial", "facts", "database"}:
            timelines = files
        timelines, messages = msprof_tables.newest(timelines)
        receipt.add(*messages)
        parts = []
        for file in timelines:
            if progress:
                progress(f"reading {file.name}")
            if file.size == 0:
                receipt.add(notes.empty_file(printable(file.name)))
                continue
            parts += _timeline_parts(file, receipt, limit_bytes)
        if not sum(len(part) for part in parts):
            continue
        builder.add(recording.name, parts, 0)
        if builder.files[-1].first < _DATES_NS:
            builder.files[-1].first += recording.shift_ns
        match = _DEVICE.search(folder.rpartition("/")[0])
        builder.files[-1].names.labels = {
            pid: f"NPU {match[1]}" if label == "NPU" and match else label
            for pid, label in builder.files[-1].names.labels.items()
        }


def _databases(
    builder: Builder,
    recording: Recording,
    number: int,
    csv_tables: Mapping[str, list[Table]],
    receipt: Receipt,
    progress: Callable[[str], None] | None,
) -> dict[str, list[Table]]:
    """Tables that only the databases of a recording have; their events are added where it has no
    timeline.
    """
    databases, messages = msprof_tables.newest(
        [file for file in recording.files if _use(file) == "database"]
    )
    receipt.add(*messages)
    drawn = any(file.host == recording.name for file in builder.files)
    result: dict[str, list[Table]] = {}
    for file in databases:
        name = printable(file.name)
        if file.size == 0:
            receipt.add(notes.empty_file(name))
            continue
        if (
            drawn
            and ("op_summary" in csv_tables or "task_time" in csv_tables)
            and _EXPORT_DATABASE.match(file.name)
        ):
            receipt.add(notes.redundant_database(name))
            continue
        if progress:
            progress(f"reading {file.name}")
        try:
            base = Database(file)
        except ReadError as error:
            receipt.add(notes.unread_file(name, error.reason))
            continue
        tables, messages = database_tables.tables(base, number, recording.rank)
        receipt.add(*messages)
        if base.facts:
            recording.facts.append(base.facts)
        events = not drawn and database_events.add(base, builder, recording.name)
        drawn |= events
        _report_database(receipt, name, base, tables, {**csv_tables, **result}, events=events)
        for kind, items in tables.items():
            if kind not in csv_tables:
                result.setdefault(kind, items)
    return result


def _report_database(
    receipt: Receipt,
    name: str,
    base: Database,
    tables: Mapping[str, list[Table]],
    csv_tables: Mapping[str, list[Table]],
    *,
    events: bool,
) -> None:
    """Reports what was read of a database, and what was not."""
    added = set(tables) - set(csv_tables)
    for table, reason in base.damaged.items():
        receipt.add(notes.damaged_table(name, table, reason))
    parts = (["the timeline"] if events else []) + sorted(map(printable, added))
    ignored = sorted(set(tables) - added)
    if (
        events
        and "step_trace" not in csv_tables
        and not {"PYTORCH_API", "STEP_TIME"} & set(base.tables)
    ):
        receipt.add(notes.no_iterations(name))
    if parts:
        receipt.add(notes.database_contents(name, parts, ignored))
    elif not ignored:
        receipt.add(notes.empty_database(name))


def _timeline_parts(file: SourceFile, receipt: Receipt, limit_bytes: int) -> list[Any]:
    from nbprof.formats.chrome.chrome import tell, where_cut

    source = Source(file, limit_bytes)
    try:
        document = walk(source.chunks())
    except ReadError as error:
        receipt.add(notes.unread_file(printable(file.name), error.reason))
        return []
    for text in filter(None, (source.trouble, where_cut(document))):
        receipt.add(notes.file_read_in_part(printable(file.name), text))
    tell(receipt, document, f"{printable(file.name)}: ", file.name)
    return list(document.parts)


def _one_clock(trace: Trace, tables: dict[str, list[Table]], *, timelines: bool) -> None:
    """Lets the moments of all tables count from the begin of the trace."""
    firsts = [table.first_ns for items in tables.values() for table in items]
    if not timelines or not len(trace.events):
        trace.epoch_ns = min((first for first in firsts if first is not None), default=0)
    for items in tables.values():
        for table in items:
            if not msprof_tables.rebase(table, trace.epoch_ns):
                label = f"{printable(table.source)}: "
                table.doubts += labelled(label, [notes.clock_far_from_timeline()])
                first = table.first_ns or 0
                msprof_tables.rebase(table, first)
                table.base_ns = trace.epoch_ns


def _steps(
    recordings: list[Recording], trace: Trace, tables: dict[str, list[Table]], receipt: Receipt
) -> None:
    """Adds iterations from marks in JSON, of recordings without a table of them."""
    for number, recording in enumerate(recordings):
        if any(len(table) for table in tables.get("step_trace", []) if table.host == number):
            continue
        files = [
            file
            for file in recording.files
            if file.name.startswith("step_trace") and file.name.endswith(".json") and file.size != 0
        ]
        iterations: list[Table] = []
        if files:
            clock = (trace.epoch_ns, recording.shift_ns)
            iterations = msprof_steps.of_files(
                files, number, recording.rank, recording.devices, clock, receipt
            )
        iterations = iterations or msprof_steps.of_trace(trace, number, recording.rank)
        if iterations:
            tables.setdefault("step_trace", []).extend(iterations)


def _is_number(value: object, digits: int = 6) -> bool:
    """True if a value of a file is a whole number of at most so many digits, or such a text."""
    text = str(value) if isinstance(value, (int, str)) else ""
    return text.isascii() and text.isdecimal() and len(text) <= digits


def _list(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]
