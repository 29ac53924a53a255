"""Reads what Ascend's profilers export into a `Trace`: timelines in JSON, tables in CSV, or both,
of one process or of several ranks.

The events of a timeline and the rows of a table are the same work told twice: a row is linked to
its event (column `event` of the table), and only a row that no timeline has becomes an event of its
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
from nbprof.core.sqlite import MAGIC
from nbprof.core.trace import Receipt, Table, Trace
from nbprof.formats import build
from nbprof.formats.chrome.build import Builder
from nbprof.formats.chrome.bytes import Source
from nbprof.formats.chrome.document import walk
from nbprof.formats.chrome.trace import assemble
from nbprof.formats.msprof import analysed as msprof_analysed
from nbprof.formats.msprof import database_events, database_tables
from nbprof.formats.msprof import events as msprof_events
from nbprof.formats.msprof import steps as msprof_steps
from nbprof.formats.msprof import tables as msprof_tables
from nbprof.formats.msprof.database import Database
from nbprof.formats.msprof.recordings import rank_of, recording_of, use_of

# Moments of a clock that counts from the start of the machine are below, dates above: a century of
# seconds in ns.
_DATES_NS = 10**17
_DEVICE = re.compile(r"device_(\d{1,4})$")
# Databases of what tables and timelines tell as well.
_WHOLE = re.compile(r"(ascend_|msprof)\w*\.(db|dat)$", re.IGNORECASE)
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
        What it is called as a host.
    rank : int or None
    facts : list of dict
        What `info.json` and `profiler_info.json` hold.
    shift_ns : int
        What has to be added to moments that count from the start of the machine; 0 where that is
        not known.
    """

    path: str
    files: list[SourceFile] = field(default_factory=list)
    name: str = ""
    rank: int | None = None
    facts: list[dict[str, Any]] = field(default_factory=list)
    shift_ns: int = 0

    @property
    def devices(self) -> list[int]:
        """The devices that its facts or folders name."""
        parts = {
            int(d["id"])
            for f in self.facts
            for d in _list(f.get("DeviceInfo"))
            if _is_number(d.get("id"))
        }
        parts |= {
            int(m[1])
            for p in self.files
            for part in p.label.split("/")[:-1]
            if (m := _DEVICE.match(part))
        }
        return sorted(parts)


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
        csv = [p for p in recording.files if use_of(p.name) == "table"]
        host_tables, notes = msprof_tables.tables(csv, number, recording.rank, device, progress)
        more, further = msprof_analysed.tables(
            [p for p in recording.files if use_of(p.name) == "analysed"], number, recording.rank
        )
        database_tables_ = _databases(
            builder, recording, number, {**host_tables, **more}, receipt, progress
        )
        for kind, items in (*host_tables.items(), *more.items(), *database_tables_.items()):
            for table in items:
                # Of versions whose clock began with the machine.
                if 0 < table.base_ns < _DATES_NS and recording.shift_ns:
                    table.base_ns += recording.shift_ns
                tables.setdefault(kind, []).append(table)
        prefix = f"{recording.name}: " if len(recordings) > 1 else ""
        for note in (*notes, *further):
            (receipt.warn if note.level == "warning" else receipt.info)(prefix + note.text)
    if not builder.files and not tables:
        empty = not any(
            len(file.head(1)) for file in files if use_of(file.name) not in ("facts", "")
        )
        why = (
            "all of its tables are empty: the export was stopped; run msprof --export=on again."
            if empty
            else ""
        )
        why = why or next((note.text for note in receipt.notes if note.level == "warning"), "")
        raise ReadError(
            why or "none of its files is a table or a timeline of Ascend's profilers.",
            path=files[0].label,
        )
    trace = assemble(builder) if builder.files else build.Builder(receipt).trace()
    trace.hosts = [recording.name for recording in recordings]
    # Those of the timelines alone, which are fewer or in another order.
    trace.late_ps = []
    trace.metadata["ascend"] = [
        {
            "path": recording.name,
            "rank": recording.rank,
            "devices": recording.devices,
            "facts": recording.facts,
        }
        for recording in recordings
    ]
    _one_clock(trace, tables, timelines=bool(builder.files))
    _steps(recordings, trace, tables, receipt)
    msprof_events.add(trace, tables)
    for items in tables.values():
        for table in items:
            for doubt in table.doubts:
                receipt.warn(
                    f"{printable(table.source)}: {doubt}"
                    if not doubt.startswith(table.source)
                    else doubt
                )
    if tables:
        rows = ", ".join(
            f"{kind} {sum(map(len, items)):,}" for kind, items in sorted(tables.items())
        )
        receipt.info(f"Rows of tables that p.ascend.table returns unchanged: {rows}.")
    trace.tables = tables
    receipt.events = len(trace.events)
    return trace


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
        ranked = [
            p
            for p in recording.files
            if use_of(p.name) == "database" and rank_of(p.name) is not None
        ]
        ranked_files = ranked[1:] if len({rank_of(p.name) for p in ranked}) == len(ranked) else []
        recording.files = [p for p in recording.files if p not in ranked_files]
        result += [recording, *(Recording(recording.path, [p]) for p in ranked_files)]
    result = [
        recording
        for recording in result
        if any(_use(p) not in ("facts", "") for p in recording.files)
    ]
    for recording in result:
        _facts(recording, receipt)
    _named(result, receipt)
    return result


def _facts(recording: Recording, receipt: Receipt) -> None:
    starts: dict[str, Any] = {}
    for file in recording.files:
        if use_of(file.name) != "facts":
            continue
        try:
            info = json.loads(bytes(file.read().data))
        except (ReadError, ValueError, RecursionError):
            receipt.info(
                f"{printable(file.name)} could not be read: its information about the machine is"
                " missing."
            )
            continue
        if not isinstance(info, dict):
            continue
        if file.name.startswith("start_info"):
            starts = starts or info
        else:
            recording.facts.append(info)
    ranks = [int(r) for f in recording.facts if _is_number(r := f.get("rank_id", ""))]
    notes = [rank for file in recording.files if (rank := rank_of(file.name)) is not None]
    recording.rank = next(iter(ranks + notes), None)
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
            receipt.warn(
                f"{ranks.count(rank)} recordings are of rank {rank}. Each is shown as a separate"
                " host."
            )
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
        complete = [p for p in files if use_of(p.name) == "timeline"]
        # The marks of iterations are a table of their own; where they are all there is, they are
        # the timeline too.
        alone = (
            files
            if all(use_of(p.name) in ("partial", "facts", "database") for p in recording.files)
            else []
        )
        retained, notes = msprof_tables.newest(
            complete or [p for p in files if not p.name.startswith("step_trace")] or alone
        )
        for text in notes:
            receipt.info(text)
        parts = []
        for file in retained:
            if progress:
                progress(f"reading {file.name}")
            if file.size == 0:
                receipt.warn(
                    f"{printable(file.name)} is empty: its export was interrupted or had nothing to"
                    " write."
                )
                continue
            parts += _walked(file, receipt, limit_bytes)
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
    """What the databases of a recording have beside its other files: events are added where no
    timeline was, tables returned.
    """
    databases, notes = msprof_tables.newest([p for p in recording.files if _use(p) == "database"])
    for text in notes:
        receipt.info(text)
    drawn = any(file.host == recording.name for file in builder.files)
    result: dict[str, list[Table]] = {}
    for file in databases:
        name = printable(file.name)
        if file.size == 0:
            receipt.warn(f"{name} is empty: its export was stopped.")
            continue
        if (
            drawn
            and ("op_summary" in csv_tables or "task_time" in csv_tables)
            and _WHOLE.match(file.name)
        ):
            receipt.info(
                f"{name} was not read: the tables and timeline next to it contain the same data."
            )
            continue
        if progress:
            progress(f"reading {file.name}")
        try:
            base = Database(file)
        except ReadError as error:
            receipt.warn(f"{name} was left out: {error.reason}")
            continue
        database_tables_, messages = database_tables.tables(base, number, recording.rank)
        receipt.notes += messages
        recording.facts += [base.facts] if base.facts else []
        events = not drawn and database_events.add(base, builder, recording.name)
        drawn |= events
        _told(receipt, name, base, database_tables_, {**csv_tables, **result}, events=events)
        result |= {
            kind: items
            for kind, items in database_tables_.items()
            if kind not in csv_tables and kind not in result
        }
    return result


def _told(
    receipt: Receipt,
    name: str,
    base: Database,
    database_tables_: Mapping[str, list[Table]],
    csv_tables: Mapping[str, list[Table]],
    *,
    events: bool,
) -> None:
    added = set(database_tables_) - set(csv_tables)
    for table, reason in base.damaged.items():
        receipt.warn(f"{name}: {printable(table)} was left out: {reason}")
    parts = (["the timeline"] if events else []) + sorted(map(printable, added))
    ignored = sorted(set(database_tables_) - added)
    if (
        events
        and "step_trace" not in csv_tables
        and not {"PYTORCH_API", "STEP_TIME"} & set(base.tables)
    ):
        receipt.info(
            f"{name} has no iterations: for steps of a graph export the tables as well, msprof"
            " --export=on --type=text."
        )
    if parts:
        rest = f"; {', '.join(ignored)}: from the other files of the recording" if ignored else ""
        receipt.info(f"Read from {name}: {', '.join(parts)}{rest}.")
    elif not ignored:
        receipt.warn(
            f"{name} has no rows that nbprof reads: its export was interrupted or had nothing to"
            " write."
        )


def _walked(file: SourceFile, receipt: Receipt, limit_bytes: int) -> list[Any]:
    from nbprof.formats.chrome.chrome import tell, where_cut

    source = Source(file, limit_bytes)
    try:
        document = walk(source.chunks())
    except ReadError as error:
        receipt.warn(f"{printable(file.name)} was left out: {error.reason}")
        return []
    for text in filter(None, (source.trouble, where_cut(document))):
        receipt.warn(f"{printable(file.name)}: {text}")
    tell(receipt, document, f"{printable(file.name)}: ", file.name)
    return list(document.parts)


def _one_clock(trace: Trace, tables: dict[str, list[Table]], *, timelines: bool) -> None:
    """Lets the moments of all tables count from the begin of the trace."""
    firsts = [
        first
        for items in tables.values()
        for table in items
        if (first := table.first_ns) is not None
    ]
    if not timelines or not len(trace.events):
        trace.epoch_ns = min(firsts, default=0)
    for items in tables.values():
        for table in items:
            if not msprof_tables.rebase(table, trace.epoch_ns):
                table.doubts.append(
                    "its clock is months away from the timeline's; its times are relative to its"
                    " own start."
                )
                first = table.first_ns or 0
                msprof_tables.rebase(table, first)
                table.base_ns = trace.epoch_ns


def _steps(
    recordings: list[Recording], trace: Trace, tables: dict[str, list[Table]], receipt: Receipt
) -> None:
    """Iterations that are told in JSON, of recordings without a table of them."""
    for number, recording in enumerate(recordings):
        if any(len(table) for table in tables.get("step_trace", []) if table.host == number):
            continue
        files = [
            p
            for p in recording.files
            if p.name.startswith("step_trace") and p.name.endswith(".json") and p.size != 0
        ]
        more = (
            msprof_steps.of_files(
                files,
                number,
                recording.rank,
                recording.devices,
                (trace.epoch_ns, recording.shift_ns),
                receipt,
            )
            if files
            else []
        )
        more = more or msprof_steps.of_trace(trace, number, recording.rank)
        if more:
            tables.setdefault("step_trace", []).extend(more)


def _is_number(value: object, digits: int = 6) -> bool:
    """True if a value of a file is a whole number of at most so many digits, or such a text."""
    text = str(value) if isinstance(value, (int, str)) else ""
    return text.isascii() and text.isdecimal() and len(text) <= digits


def _list(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
