"""Reads exports of Ascend's profilers into a `Trace`: timelines in JSON, tables in CSV, or both, of
one process or of several ranks.

The events of a timeline and the rows of a table describe the same work: a row is linked to its
event (column `event` of the table), and only a row that no timeline has becomes an event of its
own.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from nbprof.core.errors import ReadError
from nbprof.core.files import LIMIT_BYTES, SourceFile, printable
from nbprof.core.receipt import Note, Receipt
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
            for device in _list(facts.get("DeviceInfo")):
                if _is_number(device.get("id")):
                    result.add(int(device["id"]))
        for file in self.files:
            matches = map(_DEVICE.match, file.label.split("/")[:-1])
            result.update(int(match[1]) for match in matches if match)
        return sorted(result)

    @property
    def device(self) -> int | None:
        """Its only device; None where it has several, or states none."""
        devices = self.devices
        return devices[0] if len(devices) == 1 else None


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
        _timelines(builder, recording, progress, limit_bytes)
        messages = _tables(builder, recording, number, tables, progress)
        if len(recordings) > 1:
            messages = labelled(f"{recording.name}: ", messages)
        receipt.add(*messages)
    if not builder.files and not tables:
        raise ReadError(_nothing_read(files, receipt), path=files[0].label)
    trace = assemble(builder) if builder.files else build.Builder(receipt).trace()
    trace.hosts = [recording.name for recording in recordings]
    # Those of the timelines alone, which are fewer or in another order.
    trace.late_ps = []
    trace.metadata["ascend"] = list(map(_metadata, recordings))
    _one_clock(trace, tables, timelines=bool(builder.files))
    _steps(recordings, trace, tables, receipt)
    msprof_events.add(trace, tables)
    counts = []
    for kind, items in sorted(tables.items()):
        counts.append(f"{kind} {sum(map(len, items)):,}")
    for table in chain.from_iterable(tables.values()):
        receipt.add(*table.doubts)
    if tables:
        receipt.add(notes.table_rows(counts))
    trace.tables = tables
    receipt.events = len(trace.events)
    return trace


def _tables(
    builder: Builder,
    recording: Recording,
    number: int,
    tables: dict[str, list[Table]],
    progress: Callable[[str], None] | None,
) -> list[Note]:
    """Adds the tables of a recording; returns the notes on its files in CSV and JSON."""
    rank = recording.rank
    result, messages = msprof_tables.tables(
        recording.files_of("table"), number, rank, recording.device, progress
    )
    analysed, more = msprof_analysed.tables(recording.files_of("analysed"), number, rank)
    result = {**result, **analysed}
    from_database = _databases(builder, recording, number, result, progress)
    for kind, items in (*result.items(), *from_database.items()):
        for table in items:
            # Older versions have a clock that began with the machine.
            if 0 < table.base_ns < _DATES_NS:
                table.base_ns += recording.shift_ns
        tables.setdefault(kind, []).extend(items)
    return messages + more


def _metadata(recording: Recording) -> dict[str, object]:
    return {
        "path": recording.name,
        "rank": recording.rank,
        "devices": recording.devices,
        "facts": recording.facts,
    }


def _nothing_read(files: Sequence[SourceFile], receipt: Receipt) -> str:
    """Reason for a run of which nothing could be read."""
    data = [file for file in files if use_of(file.name) not in ("facts", "")]
    if not any(file.head(1) for file in data):
        return "all of its tables are empty: the export was stopped; run msprof --export=on again."
    warnings = [note.text for note in receipt.entries if note.level == "warning" and note.text]
    if warnings:
        return warnings[0]
    return "none of its files is a table or a timeline of Ascend's profilers."


def _use(file: SourceFile) -> str:
    """Use of a file; a database may have any name if it was given as a path."""
    use = use_of(file.name)
    if not use and file.head(len(MAGIC)) == MAGIC:
        return "database"
    return use


def _recordings(files: Sequence[SourceFile], receipt: Receipt) -> list[Recording]:
    by_host: dict[str, Recording] = {}
    for file in files:
        parts = file.label.split("/")[:-1]
        path = "/".join(parts[: recording_of(parts)])
        by_host.setdefault(path, Recording(path)).files.append(file)
    by_rank: list[Recording] = []
    for recording in by_host.values():
        by_rank += [recording, *_other_ranks(recording)]
    result = []
    for recording in by_rank:
        if {"facts", ""}.issuperset(map(_use, recording.files)):
            continue
        _facts(recording, receipt)
        result.append(recording)
    _named(result, receipt)
    return result


def _other_ranks(recording: Recording) -> list[Recording]:
    """Databases of other ranks, which may have been put into one folder; the recording loses
    them.
    """
    databases: dict[int, SourceFile] = {}
    for file in recording.files_of("database"):
        rank = rank_of(file.name)
        if rank is None:
            continue
        if rank in databases:
            return []
        databases[rank] = file
    further = list(databases.values())[1:]
    for file in further:
        recording.files.remove(file)
    return [Recording(recording.path, [file]) for file in further]


def _facts(recording: Recording, receipt: Receipt) -> None:
    starts: dict[str, Any] = {}
    for file in recording.files_of("facts"):
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
    ranks: list[int | None] = []
    for facts in recording.facts:
        if _is_number(facts.get("rank_id")):
            ranks.append(int(facts["rank_id"]))
    ranks += [rank_of(file.name) for file in recording.files]
    recording.rank = next((rank for rank in ranks if rank is not None), None)
    begin, boot = starts.get("collectionTimeBegin"), starts.get("clockMonotonicRaw")
    if _is_number(begin, 18) and _is_number(boot, 18):
        recording.shift_ns = int(str(begin)) * 1000 - int(str(boot))


def _named(recordings: list[Recording], receipt: Receipt) -> None:
    """Names recordings by their ranks where they have some, else by their devices, else by their
    folders.
    """
    ranks = Counter(recording.rank for recording in recordings)
    devices = Counter(recording.device for recording in recordings)
    names: set[str] = set()
    for recording in recordings:
        rank, device = recording.rank, recording.device
        name = printable(_PACKED.sub("", recording.path.rpartition("/")[2])) or "host"
        if len(recordings) == 1:
            pass
        elif rank is not None and ranks[rank] == 1:
            name = f"rank {rank}"
        elif rank is not None:
            name = f"rank {rank}, {name}"
        elif device is not None and devices[device] == 1:
            name = f"NPU {device}"
        while name in names:
            name += "'"
        names.add(name)
        recording.name = name
    for rank in sorted(rank for rank in ranks if rank is not None):
        if ranks[rank] > 1:
            receipt.add(notes.equal_ranks(rank, ranks[rank]))


def _timelines(
    builder: Builder,
    recording: Recording,
    progress: Callable[[str], None] | None,
    limit_bytes: int,
) -> None:
    """Adds the timelines of a recording: one after the other those of a folder, which are slices or
    iterations of the same lanes.
    """
    receipt = builder.receipt
    folders: dict[str, list[SourceFile]] = {}
    for file in recording.files:
        if use_of(file.name) in ("timeline", "partial"):
            folders.setdefault(file.label.rpartition("/")[0], []).append(file)
    uses = {use_of(file.name) for file in recording.files}
    for folder, files in folders.items():
        timelines = [file for file in files if use_of(file.name) == "timeline"]
        if not timelines:
            timelines = [file for file in files if not file.name.startswith("step_trace")]
        if not timelines and uses <= {"partial", "facts", "database"}:
            # The marks of iterations are a table of their own, and the timeline of a recording that
            # has no other.
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
        if not sum(map(len, parts)):
            continue
        builder.add(recording.name, parts, 0)
        added = builder.files[-1]
        if added.first < _DATES_NS:
            added.first += recording.shift_ns
        match = _DEVICE.search(folder.rpartition("/")[0])
        for pid, label in added.names.labels.items():
            if match and label == "NPU":
                added.names.labels[pid] = f"NPU {match[1]}"


def _databases(
    builder: Builder,
    recording: Recording,
    number: int,
    csv_tables: Mapping[str, list[Table]],
    progress: Callable[[str], None] | None,
) -> dict[str, list[Table]]:
    """Tables that only the databases of a recording have; their events are added where it has no
    timeline.
    """
    receipt = builder.receipt
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
    parts = sorted(map(printable, added))
    ignored = sorted(set(tables) - added)
    if events:
        parts.insert(0, "the timeline")
        step_tables = {"PYTORCH_API", "STEP_TIME"} & set(base.tables)
        if "step_trace" not in csv_tables and not step_tables:
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
    every = list(chain.from_iterable(tables.values()))
    if not timelines or not len(trace.events):
        firsts = [table.first_ns for table in every if table.first_ns is not None]
        trace.epoch_ns = min(firsts, default=0)
    for table in every:
        if not msprof_tables.rebase(table, trace.epoch_ns):
            label = f"{printable(table.source)}: "
            table.doubts += labelled(label, [notes.clock_far_from_timeline()])
            msprof_tables.rebase(table, table.first_ns or 0)
            table.base_ns = trace.epoch_ns


def _steps(
    recordings: list[Recording], trace: Trace, tables: dict[str, list[Table]], receipt: Receipt
) -> None:
    """Adds iterations from marks in JSON, of recordings without a table of them."""
    with_steps = {table.host for table in tables.get("step_trace", []) if len(table)}
    for number, recording in enumerate(recordings):
        if number in with_steps:
            continue
        files = []
        for file in recording.files:
            if (
                file.name.startswith("step_trace")
                and file.name.endswith(".json")
                and file.size != 0
            ):
                files.append(file)
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
    if not isinstance(value, (int, str)):
        return False
    text = str(value)
    return text.isascii() and text.isdecimal() and len(text) <= digits


def _list(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]
