"""Notes for the receipt on exports of Nsight Systems; `label` is empty or names the export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbprof.core.receipt import Note, info, warning
from nbprof.core.units import join_some

UNPAIRED_SWITCHES = "left out: thread switches whose other end was not recorded."


def unread_tables(label: str, rows: Mapping[str, int]) -> Note:
    listed = join_some([f"{name} ({rows[name]:,})" for name in sorted(rows)], 8)
    return info("unread_tables", f"{label}Tables not shown: {listed}.")


def no_gpu_activity(label: str) -> Note:
    return info(
        "no_gpu_activity", f"{label}No GPU activity was recorded, although CUDA was called."
    )


def graphs_without_kernels(count: int) -> Note:
    return info(
        "graphs_without_kernels",
        f"{count:,} CUDA graph launches were recorded as one event each, so their kernels are"
        " unknown. Record with  nsys profile --cuda-graph-trace=node  to see them.",
    )


def processes_as_hosts(label: str, count: int) -> Note:
    return info(
        "processes_as_hosts", f"{label}{count} processes used a GPU: each is shown as a host."
    )


def no_start_time(label: str) -> Note:
    return info(
        "no_start_time",
        f"{label}The export does not include the session's start time: times are relative to its"
        " start.",
    )


def unread_nvtx(label: str, table: str, count: int, columns: Sequence[str]) -> Note:
    return warning(
        "unread_nvtx",
        f"{label}The NVTX events of the table {table} ({count:,} rows) are not shown: nbprof does"
        f" not know its columns ({join_some(columns, 6)}), or the kinds of events in it. Export"
        " the report once more with another version of Nsight Systems.",
    )


def open_ranges(count: int) -> Note:
    return warning(
        "open_slices",
        f"NVTX ranges without an end, drawn to the end of the last range: {count:,}.",
    )


def untimed_events(table: str, count: int) -> Note:
    return warning(
        "untimed_events",
        f"Left out: {count:,} rows of {table} without a start or an end, such as calls that had not"
        " returned when the recording stopped.",
    )


def recorder_message(label: str, text: str) -> Note:
    return warning("recorder_message", f"{label}{text}")


def thread_switch_stacks(count: int) -> Note:
    return info(
        "thread_switch_stacks",
        f"Call stacks of thread switches are not samples and are not shown: {count:,}.",
    )


def cpu_samples(count: int, named: int, threads: int) -> Note:
    return info(
        "cpu_samples",
        f"CPU samples: {count:,}, of which {named:,} name what ran; threads sampled: {threads:,}."
        " How many samples name a function tells its share of the CPU time, not how long a call"
        " of it took.",
    )
