"""Notes for the receipt on exports of Ascend's profilers.

`name` is that of a file. Notes on the values of a table are the ends of sentences that begin with
the name of its file.
"""

from __future__ import annotations

from collections.abc import Sequence

from nbprof.core.files import printable
from nbprof.core.receipt import Note, info, warning
from nbprof.core.units import size_text
from nbprof.display.wording import plural

# Files.


def empty_file(name: str) -> Note:
    return warning(
        "empty_file", f"{name} is empty: its export was interrupted or had nothing to write."
    )


def oversized_file(name: str, limit_bytes: int) -> Note:
    return warning(
        "oversized_file", f"{name} is larger than {size_text(limit_bytes)} and was not read."
    )


def unread_file(name: str, reason: str) -> Note:
    return warning("unread_file", f"{name} was left out: {reason}")


def damaged_file(name: str) -> Note:
    return warning("unread_file", f"{name} is damaged and was left out.")


def file_read_in_part(name: str, text: str) -> Note:
    return warning("file_read_in_part", f"{name}: {text}")


def older_exports(module: str, exports: int, older: int) -> Note:
    ignored = f"{older} files of earlier exports were"
    if older == 1:
        ignored = "1 file of an earlier export was"
    return info(
        "older_exports",
        f"{printable(module)} was exported {exports} times: the newest export was read, {ignored}"
        " ignored.",
    )


def unread_machine_facts(name: str) -> Note:
    return info(
        "unread_machine_facts",
        f"{name} could not be read: its information about the machine is missing.",
    )


def equal_ranks(rank: int, count: int) -> Note:
    return warning(
        "equal_ranks",
        f"{count} recordings are of rank {rank}. Each is shown as a separate host.",
    )


# Databases.


def redundant_database(name: str) -> Note:
    return info(
        "redundant_database",
        f"{name} was not read: the tables and timeline next to it contain the same data.",
    )


def damaged_table(name: str, table: str, reason: str) -> Note:
    return warning("damaged_table", f"{name}: {printable(table)} was left out: {reason}")


def database_contents(name: str, parts: Sequence[str], ignored: Sequence[str]) -> Note:
    rest = f"; {', '.join(ignored)}: from the other files of the recording" if ignored else ""
    return info("database_contents", f"Read from {name}: {', '.join(parts)}{rest}.")


def empty_database(name: str) -> Note:
    return warning(
        "empty_database",
        f"{name} has no rows that nbprof reads: its export was interrupted or had nothing to"
        " write.",
    )


def no_iterations(name: str) -> Note:
    return info(
        "no_iterations",
        f"{name} has no iterations: for steps of a graph export the tables as well, msprof"
        " --export=on --type=text.",
    )


def unmatched_task_details(name: str, count: int) -> Note:
    return info(
        "unmatched_task_details",
        f"{name}: {count:,} rows of COMPUTE_TASK_INFO match no task in TASK; left out.",
    )


def ambiguous_task_numbers(name: str, count: int) -> Note:
    return info(
        "ambiguous_task_numbers",
        f"{name}: {count:,} values of TASK_PMU_INFO have a task number shared by several tasks and"
        " no time; left out.",
    )


def undocumented_tables(name: str, tables: Sequence[str]) -> Note:
    return info("undocumented_tables", f"{name}: not documented, shown raw: {', '.join(tables)}.")


# Tables.


def unused_table(name: str, header: Sequence[str]) -> Note:
    cells = ", ".join(map(printable, header[:4]))
    return info("unused_table", f"{name} ({cells} …) is a table that nbprof does not use.")


def table_without_rows(name: str) -> Note:
    return info("table_without_rows", f"{name} has a header and no rows.")


def table_rows(counts: Sequence[str]) -> Note:
    return info(
        "table_rows",
        f"Rows of tables that p.ascend.table returns unchanged: {', '.join(counts)}.",
    )


def iterations_off_timeline(names: str) -> Note:
    return warning(
        "iterations_off_timeline",
        f"{names}: none of its iterations ends near the timeline; they are unknown.",
    )


def damaged_iterations(name: str) -> Note:
    return warning("unread_file", f"{name} is damaged: its iterations are unknown.")


def too_many_iterations(name: str) -> Note:
    return warning(
        "oversized_file", f"{name} is too large for a list of iterations and was not read."
    )


# The values of a table.


def clock_far_from_timeline() -> Note:
    return warning(
        "clock_far_from_timeline",
        "its clock is months away from the timeline's; its times are relative to its own start.",
    )


def unclosed_quote() -> Note:
    return warning(
        "unclosed_quote",
        "a quote in it is never closed; quotes were read as ordinary characters.",
    )


def overlong_rows(count: int) -> Note:
    return warning(
        "overlong_rows", f"{count:,} rows have far more cells than the header and were left out."
    )


def long_rows(count: int) -> Note:
    rows = plural(count, "row is", "rows are")
    return warning(
        "long_rows",
        f"{rows} longer than the header; cells beyond the last column were left out.",
    )


def short_rows(count: int) -> Note:
    rows = plural(count, "row is", "rows are")
    return warning("short_rows", f"{rows} shorter than the header; the missing cells are unknown.")


def mixed_line_endings() -> Note:
    return warning("mixed_line_endings", "it mixes LF and CRLF line endings.")


def texts_for_numbers(column: str, count: int, example: str) -> Note:
    texts = plural(count, "text")
    return warning(
        "invalid_numbers",
        f"{texts} in {column} instead of numbers, such as “{example}”; treated as unknown.",
    )


def texts_for_times(column: str, count: int) -> Note:
    texts = plural(count, "text")
    return warning("invalid_times", f"{texts} in {column} instead of times; treated as unknown.")


def unsigned_differences(column: str, count: int) -> Note:
    values = plural(count, "value")
    return warning(
        "unsigned_differences",
        f"{values} in {column} are negative differences stored as unsigned numbers"
        " (18446744073709521.304 µs is 30.312): corrected.",
    )


def infinite_values(column: str, count: int) -> Note:
    values = plural(count, "value")
    return warning("infinite_values", f"{values} in {column} are not finite; treated as unknown.")


def impossible_values(column: str, count: int, limit: str) -> Note:
    values = plural(count, "value")
    return warning(
        "impossible_values", f"{values} in {column} are over {limit}; treated as unknown."
    )


def far_times(column: str, count: int) -> Note:
    values = plural(count, "value")
    return warning(
        "far_times", f"{values} in {column} are over 26 days after the first and were left out."
    )


def rounded_times(column: str, count: int, example: str) -> Note:
    values = plural(count, "value")
    return warning(
        "rounded_times",
        f"{values} in {column} are rounded, as {example!r}: a spreadsheet or another tool rewrote"
        " the file, and precise times are lost. Export it again, or load the file that the"
        " profiler wrote.",
    )
