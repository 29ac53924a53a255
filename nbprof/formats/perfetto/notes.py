"""Notes for the receipt on Perfetto traces; `label` is empty or names the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nbprof.core.receipt import Note, info, warning

DAMAGED_PACKETS = "(packets) left out: damaged."
DAMAGED_BLOCKS = "(blocks of compressed packets) left out in part: damaged."
NO_TIME = "left out: no time, or a clock that no snapshot relates to the others."
LOST_NAMES = "left out: the interned names they refer to were lost during recording."
UNREAD_TYPES = (
    "left out: track events of a type that is not read (states, metadata, samples, those of old"
    " recorders)."
)
ENDS_WITHOUT_BEGIN = "left out: ends of slices without a begin."
COUNTERS_WITHOUT_VALUE = "left out: samples of counters without a value."
COUNTERS_WITHOUT_TRACK = "left out: values of counters without a track."
GPU_COUNTERS_WITHOUT_VALUE = "left out: samples of GPU counters without a value, or damaged."
UNDESCRIBED_COUNTERS = "left out: samples of GPU counters that are not described."


class Loss(NamedTuple):
    """A kind of loss that the recorder counts for each of its buffers.

    Attributes
    ----------
    number : int
        The field of the buffer's statistics.
    key : str
        Of the note.
    text : str
        Ends the sentence "The recorder reports that 3 ...".
    """

    number: int
    key: str
    text: str


LOSSES = (
    Loss(
        3,
        "overwritten_chunks",
        "chunks of its ring buffer were overwritten: the beginning of the recording is missing",
    ),
    Loss(
        18,
        "discarded_chunks",
        "chunks were discarded because its buffer was full: the end of the recording is missing",
    ),
    Loss(19, "writer_losses", "packets were lost because its writers found no room"),
    Loss(6, "incomplete_packets", "packets could not be completed"),
    Loss(9, "invalid_packets", "packets were not valid"),
    Loss(22, "oversized_packets", "packets were too large for its buffer"),
)


def recorder_loss(label: str, loss: Loss, count: int) -> Note:
    return warning(loss.key, f"{label}The recorder reports that {count:,} {loss.text}.")


def damaged_statistics(label: str) -> Note:
    return warning("damaged_statistics", f"{label}The recorder's loss statistics are damaged.")


def failed_flush(label: str) -> Note:
    return warning(
        "failed_flush",
        f"{label}The recorder reports that its last flush failed: the end may be missing.",
    )


def lost_packets(label: str, count: int) -> Note:
    return warning(
        "lost_packets",
        f"{label}The recorder lost packets {count:,} times (its buffer was full or overwritten):"
        " events are missing.",
    )


def unread_packets(label: str, counts: Mapping[str, int]) -> Note:
    kinds = sorted(counts, key=lambda kind: -counts[kind])
    listed = ", ".join(f"{kind} {counts[kind]:,}" for kind in kinds)
    return info("unread_packets", f"{label}Packets that are not read: {listed}.")


def zstd_packets(label: str) -> Note:
    return warning(
        "zstd_packets",
        f"{label}Packets compressed with zstd are not read: record with zlib, or without"
        " compression.",
    )


def nested_compression(label: str) -> Note:
    return warning(
        "nested_compression", f"{label}Compressed packets in compressed packets are not read."
    )


def damaged_descriptions(label: str, count: int) -> Note:
    return warning(
        "damaged_descriptions",
        f"{label}Descriptions (of tracks, clocks, interned names) that are damaged, left out:"
        f" {count:,}.",
    )


def unnamed_events(count: int) -> Note:
    return warning(
        "unnamed_events",
        f"Events whose names are not in the file, shown by number: {count:,}.",
    )


def open_slices(count: int) -> Note:
    return warning(
        "open_slices", f"Slices without an end, drawn to the end of the trace: {count:,}."
    )


def damaged_annotations(count: int) -> Note:
    return warning(
        "damaged_annotations", f"Annotations that could not be read, left out: {count:,}."
    )


def unread_event_fields(count: int) -> Note:
    return info(
        "unread_event_fields",
        "Event fields other than annotations (call stacks, log messages, source locations), not"
        f" read: {count:,}.",
    )


def details_without_slice(subject: str, count: int) -> Note:
    """`subject` begins the sentence: "Annotations of"."""
    return info(
        "details_without_slice",
        f"{subject} events other than slices (counter samples, omitted events), not shown:"
        f" {count:,}.",
    )


def damaged_lists(count: int) -> Note:
    return warning(
        "damaged_lists",
        f"Lists of counter values or ids of arrows that are damaged, left out: {count:,}.",
    )


def thread_time_samples(count: int) -> Note:
    return info(
        "thread_time_samples", f"Thread time and instruction samples, not shown: {count:,}."
    )


def first_counter_samples(count: int) -> Note:
    return info(
        "first_counter_samples",
        "First samples of GPU counters, not shown because nothing says when their intervals"
        f" began: {count:,}.",
    )
