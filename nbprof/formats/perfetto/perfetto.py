"""Reads Perfetto's protobuf traces into a `Trace`: track events, the work of GPUs, counters, names
of processes and threads.

What the kernel and Android record beside these (scheduling, samples of stacks, memory) is counted,
not read.

Format: https://perfetto.dev/docs/reference/trace-packet-proto,
https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from nbprof.core.errors import ReadError
from nbprof.core.files import LIMIT_BYTES, Buffer, Growing, SourceFile
from nbprof.core.packed import allowed
from nbprof.core.receipt import Cut, Receipt
from nbprof.core.trace import Int64s, Trace
from nbprof.formats import notes as shared_notes
from nbprof.formats.build import Builder
from nbprof.formats.perfetto import events as perfetto_events
from nbprof.formats.perfetto import fields as perfetto_fields
from nbprof.formats.perfetto import gpu as perfetto_gpu
from nbprof.formats.perfetto import notes
from nbprof.formats.perfetto.clocks import Clocks
from nbprof.formats.perfetto.events import EVENT, Events
from nbprof.formats.perfetto.fields import NUMBER, SMALL, Fields, Spec
from nbprof.formats.perfetto.gpu import Gpu
from nbprof.formats.perfetto.sequences import Sequences, contents, integer, message, part
from nbprof.formats.perfetto.texts import Texts
from nbprof.formats.perfetto.tracks import Tracks
from nbprof.formats.xspace.split import spans, starts_of_whole
from nbprof.native import library

PACKET_TAG = 0x0A
_DEFLATED, _ZSTD, _STATS = 50, 133, 35
_FLUSH_FAILED = 2
_PACKET: Spec = {
    8: NUMBER,
    **dict.fromkeys((10, 13, 58), SMALL),
    **dict.fromkeys((2, 6, 12, _STATS, 41, 42, 43, 44, _DEFLATED, 59, 60)),
    EVENT: perfetto_events.SPEC,
    perfetto_gpu.COUNTER: perfetto_gpu.COUNTER_SPEC,
    perfetto_gpu.STAGE: perfetto_gpu.STAGE_SPEC,
}
_UNREAD = {
    1: "ftrace (scheduling)",
    4: "inodes",
    5: "old Chrome events",
    7: "system statistics",
    9: "process statistics",
    37: "heap profiles",
    38: "battery counters",
    39: "Android logs",
    40: "power rails",
    49: "Perfetto's own",
    54: "samples of stacks",
    57: "graphics frames",
    62: "Vulkan memory",
    63: "GPU logs",
    65: "Vulkan calls",
    66: "samples of stacks",
    67: "CPU facts",
    68: "memory maps",
    71: "GPU memory",
    73: "memory snapshots",
    76: "frame timelines",
    84: "statsd atoms",
    95: "Windows events",
    117: "kernel tasks",
    118: "CPU frequencies",
    129: "GPU frequencies",
    _ZSTD: "packets compressed with zstd",
    135: "samples of stacks",
}
"""What packets have that is not read, by field number."""
# Of the writer; of the recording and the machine.
_ABOUT = frozenset((3, 59, 79, 87, 98)) | frozenset(
    (
        33,
        34,
        36,
        45,
        46,
        47,
        48,
        51,
        69,
        72,
        78,
        82,
        89,
        90,
        107,
        109,
        113,
        124,
        125,
        126,
        128,
        130,
        134,
    )
)
"""What packets have that is no recording of its own: nothing is missing without it."""
_BLOCK = 1 << 22
_SUFFIXES = (".gz", ".pftrace", ".perfetto-trace", ".perfetto", ".trace", ".pb")


def read(
    files: Sequence[SourceFile],
    progress: Callable[[str], None] | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> Trace:
    """The events of one run, which may have several files, one a host.

    Parameters
    ----------
    files : sequence of SourceFile
    progress : callable, optional
        Called with a sentence as each file is begun.
    limit_bytes : int
        The most that compressed packets may unpack to.

    Raises
    ------
    ReadError
        A file has no packet that can be read, or unpacks to more than the limit; names the file and
        the byte.
    """
    receipt = Receipt()
    builder = Builder(receipt)
    hosts: list[str] = []
    metadata: dict[str, object] = {}
    for file in files:
        if progress:
            progress(f"reading {file.name}")
        host, label = file.name, ""
        for suffix in _SUFFIXES:
            host = host.removesuffix(suffix)
        while host in hosts:
            host += "'"
        if len(files) > 1:
            label = f"{file.name}: "
        _File(builder, receipt, len(hosts), label).add(file, host, limit_bytes)
        hosts.append(host)
    native = library.load()
    if native.library is None:
        receipt.add(shared_notes.native_reader_missing("Perfetto traces", 5, native.reason))
    return builder.trace(hosts, metadata)


class _File:
    """One file on its way into the trace."""

    def __init__(self, builder: Builder, receipt: Receipt, number: int, label: str) -> None:
        self.builder = builder
        self.receipt = receipt
        self.number = number
        self.label = label

    def add(self, file: SourceFile, host: str, limit_bytes: int) -> None:
        """Reads it."""
        buffer = file.read()
        fields = self._packets(buffer, file)
        if fields.has(_DEFLATED).any():
            buffer = self._unpacked(buffer, fields, file, limit_bytes)
            fields = self._packets(buffer, file)
            if fields.has(_DEFLATED).any():
                self.receipt.add(notes.nested_compression(self.label))
        buf, receipt = buffer.array, self.receipt
        if fields.bad.all():
            raise ReadError(
                "none of its packets can be read: it is damaged, or not a Perfetto trace.",
                path=file.label,
                offset=0,
            )
        receipt.skip(notes.DAMAGED_PACKETS, int(fields.bad.sum()), key="damaged_packets")
        sequences = Sequences(fields, buf)
        clocks = Clocks(fields, buf, sequences)
        tracks = Tracks()
        tracks.read(fields, buf)
        texts = Texts(self.builder)
        time, valid = self._times(fields, sequences, clocks)
        lost = 0
        usable = valid & sequences.usable & ~fields.bad
        is_event = fields.has(EVENT)
        for has in (
            is_event,
            fields.has(perfetto_gpu.STAGE, 1),
            fields.has(perfetto_gpu.COUNTER, 2),
        ):
            lost += int((has & ~sequences.usable).sum())
            timeless = int((has & ~valid & sequences.usable).sum())
            receipt.skip(notes.NO_TIME, timeless, key="events_without_time")
        receipt.skip(notes.LOST_NAMES, lost, key="lost_names")
        Events(fields, buf, sequences, tracks, texts, receipt, is_event & usable, time).add_to(
            self.builder, host
        )
        gpu = Gpu(fields, buf, sequences, texts, receipt, time, usable)
        gpu.add_to(self.builder, host)
        damaged = sequences.damaged + clocks.damaged + tracks.damaged + gpu.damaged
        self._tell(fields, buf, sequences, damaged, texts)

    def _packets(self, buffer: Buffer, file: SourceFile) -> Fields:
        """The fields of the packets of a file."""
        starts, truncated = _starts(buffer)
        if not truncated:
            fault = "its first packet is incomplete: it was truncated, or is not a Perfetto trace."
            raise ReadError(fault, path=file.label, offset=0)
        if truncated < buffer.size:
            fault = (
                f"The file ends at byte {truncated:,} inside a packet, or is damaged there: the"
                " part before it was read. The recorder was stopped while writing, or the copy is"
                " incomplete."
            )
            self.receipt.cut_off(Cut(self.number, file.name, fault))
        if not len(starts):
            raise ReadError(
                "it has no packets, so it is not a Perfetto trace.", path=file.label, offset=0
            )
        self.starts = starts
        return perfetto_fields.read(buffer.array, starts, None, _PACKET)

    def _unpacked(
        self, buffer: Buffer, fields: Fields, file: SourceFile, limit_bytes: int
    ) -> Buffer:
        """The file with its compressed packets unpacked in their places."""
        data, starts = buffer.data, self.starts
        end = spans(buffer.array, starts)[1]
        blocks = list(zip(*(column.tolist() for column in fields.spans(_DEFLATED)), strict=True))
        # Blocks are looked into one by one only where their packets are not sound one behind the
        # other.
        for per_packet in (False, True):
            grown = Growing(file.label, allowed(buffer.size, limit_bytes))
            offset = damaged = 0
            for row, first, last in blocks:
                grown.add(data[offset : starts[row]])
                offset = int(end[row])
                damaged += not _inflate(data[first:last], grown, per_packet=per_packet)
            grown.add(data[offset : int(end[-1])])
            if not grown.size:
                raise ReadError(
                    "its compressed packets cannot be unpacked: it is damaged.",
                    path=file.label,
                    offset=0,
                )
            result = grown.buffer()
            if per_packet or (not damaged and _starts(result)[1] == result.size):
                break
        self.receipt.skip(notes.DAMAGED_BLOCKS, damaged, key="damaged_compression")
        return result

    def _times(
        self, fields: Fields, sequences: Sequences, clocks: Clocks
    ) -> tuple[Int64s, np.ndarray]:
        """Times of all packets, ns on the clock of the trace, and which have one."""
        time, has_time = fields.number(8), fields.has(8)
        clock, has_clock = fields.small(58), fields.has(58)
        if sequences.defaults and not has_clock.all():
            clocks_by_default = [defaults.clock for defaults in sequences.defaults]
            default = np.array([*clocks_by_default, -1], np.int32)[sequences.default]
            clock = np.where(~has_clock & (default >= 0), default, clock)
        rows = np.flatnonzero(has_time & sequences.usable & clock.any())
        if len(rows):
            time = time.copy()
            moved, could = clocks.on_trace(time[rows], clock[rows], sequences.code[rows], rows)
            time[rows], has_time[rows] = moved, could
        else:
            has_time &= (time >= 0) & (time < 1 << 62)
        later = clocks.since_1970()
        if later:
            time = np.where(has_time, time + later, time)
        return time, has_time

    def _tell(
        self, fields: Fields, buf: np.ndarray, sequences: Sequences, damaged: int, texts: Texts
    ) -> None:
        receipt = self.receipt
        counts: dict[str, int] = {}
        for number, count in fields.unread.items():
            if number not in _ABOUT:
                label = _UNREAD.get(number, f"others (field {number})")
                counts[label] = counts.get(label, 0) + count
        if counts:
            receipt.add(notes.unread_packets(self.label, counts))
        if fields.unread.get(_ZSTD):
            receipt.add(notes.zstd_packets(self.label))
        if sequences.lost:
            receipt.add(notes.lost_packets(self.label, sequences.lost))
        self._statistics(fields, buf)
        if damaged:
            receipt.add(notes.damaged_descriptions(self.label, damaged))
        texts.strings.report(receipt)

    def _statistics(self, fields: Fields, buf: np.ndarray) -> None:
        """Losses that the recorder counted, from its last statistics."""
        _, start, end = fields.spans(_STATS)
        if not len(start):
            return
        try:
            config = message(buf.data, int(start[-1]), int(end[-1]))
            buffers = [part(content) for content in contents(config, 1)]
        except ReadError:
            self.receipt.add(notes.damaged_statistics(self.label))
            return
        for loss in notes.LOSSES:
            count = sum(integer(buffer, loss.number) for buffer in buffers)
            if count > 0:
                self.receipt.add(notes.recorder_loss(self.label, loss, count))
        if integer(config, 15) == _FLUSH_FAILED:
            self.receipt.add(notes.failed_flush(self.label))


def _inflate(data: memoryview, result: Growing, *, per_packet: bool) -> bool:
    """Unpacks packets to the end of others; False where they are damaged: then those that are whole
    are kept, if `per_packet`.
    """
    unpacker = zlib.decompressobj()
    parts: list[bytes] = []
    count, sound, rest = 0, True, bytes(data)
    try:
        while rest:
            parts.append(unpacker.decompress(rest, _BLOCK))
            count += len(parts[-1])
            result.room(count)
            rest = unpacker.unconsumed_tail
        parts.append(unpacker.flush())
    except zlib.error:
        sound = False
    sound &= unpacker.eof
    unpacked = b"".join(parts)
    if per_packet and unpacked:
        stop = _starts(Buffer.of(unpacked))[1]
        sound &= stop == len(unpacked)
        unpacked = unpacked[:stop]
    result.add(unpacked)
    return sound


def _starts(buffer: Buffer) -> tuple[Int64s, int]:
    """Starts of packets, and the byte up to which they follow each other."""
    return starts_of_whole(buffer.array, 0, buffer.size, PACKET_TAG)
