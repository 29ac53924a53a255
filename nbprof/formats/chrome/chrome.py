"""Reads Chrome trace events in JSON into a `Trace`: PyTorch's (Kineto, all versions), JAX's and
TensorFlow's `trace.json.gz`, Chrome's and Perfetto's own, Ascend's.

Times are decimal text and stay exact; what is broken costs itself only, and stands in the receipt.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace
Event Format").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nbprof.core.errors import ReadError
from nbprof.core.files import LIMIT_BYTES, LocalFile, SourceFile
from nbprof.core.garbage import collection_paused
from nbprof.core.receipt import Cut, Receipt
from nbprof.core.trace import Trace
from nbprof.formats.chrome import notes
from nbprof.formats.chrome.build import Builder
from nbprof.formats.chrome.bytes import Source
from nbprof.formats.chrome.document import Document, walk
from nbprof.formats.chrome.trace import assemble
from nbprof.formats.hosts import with_folders
from nbprof.formats.notes import native_reader_missing
from nbprof.native import library

_XLA_LIMITS = (1_000_000, 5_000_000)
"""How many events XLA's exporter wrote at most, before and since it raised its limit in 2026."""
_METADATA = ord("M")
_SUFFIXES = (".gz", ".json", ".trace", ".pt", ".py")


def read(
    files: Sequence[SourceFile],
    progress: Callable[[str], None] | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> Trace:
    """The events of one run, which may have several files, one per host or rank.

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
        A file is no trace, holds none of its events, or unpacks to more than the limit; names the
        file and the byte.
    """
    receipt = Receipt()
    builder = Builder(receipt)
    names = with_folders([host_of(file.name) for file in files], files)
    for file, host in zip(files, names, strict=True):
        if progress:
            progress(f"reading {file.name}")
        _add(builder, file, host, limit_bytes, label=f"{file.name}: " if len(files) > 1 else "")
    return assemble(builder)


def host_of(name: str) -> str:
    """What a file's name says about where it was recorded: the name without its suffixes."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _add(builder: Builder, file: SourceFile, host: str, limit_bytes: int, label: str) -> None:
    source = Source(file, limit_bytes)
    try:
        with collection_paused():
            document = walk(source.chunks())
    except ReadError as error:
        reason = f"{error.reason} {source.trouble}".rstrip()
        raise ReadError(reason, path=error.path or file.label, offset=error.offset) from None
    receipt = builder.receipt
    tell(receipt, document, label, file.name)
    taken = {f.host for f in builder.files}
    while host in taken:
        host += "'"
    count = sum(len(part) for part in document.parts)
    of_work = sum(int((part.phase != ord("M")).sum()) for part in document.parts)
    if document.trouble.truncated_at >= 0 or (source.trouble and document.open_list):
        count_text = "1 event" if count == 1 else f"{count:,} events"
        receipt.cut_off(
            Cut(
                len(builder.files),
                file.name,
                f"{source.trouble or where_cut(document)} That is {count_text}.",
            )
        )
    elif source.trouble:
        # Behind the end of the trace: nothing of it is missing.
        receipt.add(notes.damaged_file(label, source.trouble))
    if not count:
        receipt.add(notes.no_events(label))
    elif all((part.phase == _METADATA).all() for part in document.parts):
        receipt.add(notes.metadata_only(label))
    _facts(builder, document, host)
    base = document.metadata.get("baseTimeNanoseconds", 0)
    builder.add(host, document.parts, _base(base))
    if of_work in _XLA_LIMITS and _by_xla(document):
        receipt.add(notes.exporter_limit(label, of_work, _with_all_events(file)))


def _with_all_events(file: SourceFile) -> str:
    """Where the events are that XLA's exporter left out."""
    full = f"{host_of(file.name)}.xplane.pb"
    if isinstance(file, LocalFile) and file.path.with_name(full).is_file():
        return f"{full} next to it has them all."
    return (
        "The *.xplane.pb of the same recording has them all; TF_PROFILER_TRACE_VIEWER_MAX_EVENTS"
        " raises the limit."
    )


def _base(value: object) -> int:
    """`baseTimeNanoseconds` as an integer, 0 where it is none."""
    try:
        base = int(value) if isinstance(value, (int, float, str)) else 0
    except (ValueError, OverflowError):
        return 0
    return base if 0 <= base < 1 << 62 else 0


def _by_xla(document: Document) -> bool:
    """Whether TensorFlow's or JAX's exporter wrote it: `displayTimeUnit` and `metadata` with
    `highres-ticks` stand before the events.
    """
    facts = document.metadata.get("metadata")
    return isinstance(facts, dict) and "highres-ticks" in facts


def _facts(builder: Builder, document: Document, host: str) -> None:
    """Metadata of the first file; the others' under their host."""
    if not builder.files:
        builder.metadata.update(document.metadata)
    else:
        hosts = builder.metadata.setdefault("hosts", {})
        if isinstance(hosts, dict):
            hosts[host] = document.metadata


def where_cut(document: Document) -> str:
    """Where a trace ends too early; empty where it does not."""
    index = document.trouble.truncated_at
    why = (
        "the profiler was killed while writing, or the copy is incomplete. The part before it was"
        " read."
    )
    return f"The file is truncated at byte {index:,}: {why}" if index >= 0 else ""


def tell(receipt: Receipt, document: Document, label: str, name: str) -> None:
    """What could not be read, for the receipt, beside what a file that is cut off lacks."""
    native = library.load()
    if native.library is None:
        receipt.add(native_reader_missing("Chrome traces", 30, native.reason))
    trouble = document.trouble
    reason = notes.damaged(trouble.broken_at, name)
    receipt.skip(reason, trouble.broken, key="damaged_events")
    if trouble.strange:
        receipt.add(notes.strange_entries(label, trouble.strange))
    if trouble.truncated_at < 0 and document.open_list:
        receipt.add(notes.open_list(label))
    if document.bad_metadata >= 0:
        receipt.add(notes.invalid_metadata(label, document.bad_metadata))
    if document.lists > 1:
        receipt.add(notes.several_lists(label, document.lists))
