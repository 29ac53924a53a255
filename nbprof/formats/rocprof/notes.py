"""Notes for the receipt on recordings of rocprofv3; `label` is empty or names the process."""

from __future__ import annotations

from nbprof.core.receipt import Note, info, warning

NO_TIMES = "left out: no valid begin or end time."


def unrelated_clocks() -> Note:
    return warning(
        "unrelated_clocks",
        "The processes ran on several machines, whose clocks are unrelated: times cannot be"
        " compared between them.",
    )


def truncated(offset: int) -> Note:
    return warning(
        "file_read_in_part",
        f"The file is truncated or damaged at byte {offset:,}: the profiler was killed while"
        " writing, or the copy is incomplete. The part before it was read.",
    )


def truncated_table(name: str) -> Note:
    return warning(
        "file_read_in_part",
        f"{name}: The file ends within its last row, which was left out: the profiler was killed"
        " while writing, or the copy is incomplete.",
    )


def no_agent_info() -> Note:
    return info(
        "no_agent_info",
        "There is no *_agent_info.csv: GPUs are numbered as in the tables, and their models are"
        " unknown.",
    )


def unlisted_gpu(label: str, count: int) -> Note:
    return warning(
        "unlisted_gpu",
        f"{label}Device events on a GPU that the recording does not list, shown as GPU 0:"
        f" {count:,}.",
    )


def rounded_lds() -> Note:
    return info(
        "rounded_lds",
        "Kernel LDS is taken from the code object, rounded up: the tables do not include the"
        " amount requested per dispatch.",
    )


def grids_in_workgroups() -> Note:
    return info(
        "grids_in_workgroups",
        "rocprofv3 reports grids in work-items: they are shown in workgroups (blocks).",
    )


def unmatched_counters(label: str, count: int) -> Note:
    return warning(
        "unmatched_counters",
        f"{label}Counter values that belong to no recorded kernel, or are not numbers: {count:,}.",
    )


def no_copy_sizes(label: str) -> Note:
    return info(
        "no_copy_sizes",
        f"{label}The tables do not include the size of copies; the JSON and the database do.",
    )
