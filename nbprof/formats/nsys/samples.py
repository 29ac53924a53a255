"""Samples of what threads ran, with their call stacks, and when the scheduler ran each thread."""

from __future__ import annotations

import ntpath
import posixpath

import numpy as np
import numpy.typing as npt

from nbprof.core.callstacks import chains
from nbprof.core.factorize import unique_rows
from nbprof.core.runs import run_starts
from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.build import Coded, Values
from nbprof.formats.nsys import notes
from nbprof.formats.nsys.report import Report

SAMPLES, STACKS, SCHEDULED = "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS", "SCHED_EVENTS"
SAMPLE, ON_CPU = "cpu_sample", "on_cpu"
"""Their categories: nobody else writes these."""
MOST_CALLS = 32
"""Calls that are kept of a stack, innermost first: the texts of deeper ones would be larger than
the file.
"""
_NO_STACK = "CPU sample"
_CHAIN = ("id", "symbol", "module", "stackDepth", "unresolved", "specialEntry")


def add(report: Report) -> None:
    """Adds a lane of samples for each thread that has some, and one of when it ran."""
    _scheduled(report)
    _samples(report)


def _scheduled(report: Report) -> None:
    """When each thread was on a CPU: from where it was put on one to where it was taken off.

    What the export says of a thread that is taken off is how it went on: the state and the reason
    of the row that ends a stretch.
    """
    rows = report.rows(
        SCHEDULED, "start", "cpu", "isSchedIn", "globalTid", "threadState", "threadBlock"
    )
    # The idle threads of all CPUs have one number.
    rows = rows.only(
        ~rows.null("start") & ~rows.null("isSchedIn") & (rows.ints("globalTid", 0) & 0xFFFFFF != 0)
    )
    if not len(rows):
        return
    # Of a thread put on and taken off a CPU at the same moment, the former comes first.
    order = np.lexsort((rows.ints("isSchedIn") == 0, rows.ints("start"), rows.ints("globalTid")))
    thread, start = rows.ints("globalTid")[order], rows.ints("start")[order]
    on, cpu = rows.ints("isSchedIn")[order], rows.ints("cpu")[order]
    begins, ends = on != 0, on == 0
    pair = np.flatnonzero(
        begins[:-1] & ends[1:] & (thread[:-1] == thread[1:]) & (cpu[:-1] == cpu[1:])
    )
    if len(pair):
        args: dict[str, Values] = {
            "cat": ON_CPU,
            "cpu": np.ma.MaskedArray(cpu[pair], cpu[pair] < 0),
        }
        for key, column, table in (
            ("state after", "threadState", "ENUM_SAMPLING_THREAD_STATE"),
            ("reason", "threadBlock", "ENUM_SCHEDULING_THREAD_BLOCK"),
        ):
            labels = report.facts.enum(table, {})
            if (column in rows) and labels:
                args[key] = Coded(_labels(report, rows.ints(column)[order][pair + 1], labels))
        lanes = report.sub_lanes(thread[pair], "on CPU")
        name = report.builder.texts["Running"]
        report.builder.add(
            lanes, name, start[pair] + report.facts.start_ns, start[pair + 1] - start[pair], args
        )
    # The first row of a thread may end what began before the recording, its last may begin what
    # ends after it.
    other_thread = thread[1:] != thread[:-1]
    first, last = np.append(True, other_thread), np.append(other_thread, True)
    matched = np.zeros(len(thread), np.bool_)
    matched[pair] = matched[pair + 1] = True
    lost = int((~matched & ~(first & ends) & ~(last & begins)).sum())
    report.builder.receipt.skip(notes.UNPAIRED_SWITCHES, lost, key="unpaired_switches")


def _labels(report: Report, values: Int64s, labels: dict[int, str]) -> Int32s:
    """Codes of the labels of some values; -1 for a value without a label, or an unknown one."""
    first, code = unique_rows(np.maximum(values, -1))
    codes = []
    for value in values[first].tolist():
        text = labels.get(value, "")
        codes.append(-1 if text in ("", "Unknown") else report.builder.texts[text])
    return np.array(codes, np.int32)[code]


def _samples(report: Report) -> None:
    rows = report.rows(SAMPLES, "id", "start", "cpu", "globalTid", "cpuCycles")
    rows = rows.only(~rows.null("start") & ~rows.null("globalTid"))
    # Samples at a switch of threads, not by the clock, state 0 cycles: they would count where
    # threads wait as where they work.
    switches = rows.ints("cpuCycles", 1) == 0
    by_switch = int(switches.sum())
    if by_switch:
        rows = rows.only(~switches)
        report.builder.receipt.add(notes.thread_switch_stacks(by_switch))
    if not len(rows):
        return
    thread, cpu, cycles = rows.ints("globalTid"), rows.ints("cpu"), rows.ints("cpuCycles", 1)
    name, args = _stacks(report, rows.ints("id"))
    args |= {
        "cat": SAMPLE,
        "ph": "i",
        "cpu": np.ma.MaskedArray(cpu, cpu < 0),
        "cpu cycles": np.ma.MaskedArray(cycles, cycles <= 1),
    }
    report.builder.add(
        report.sub_lanes(thread, "samples"),
        name,
        rows.ints("start") + report.facts.start_ns,
        np.zeros(len(rows), np.int64),
        args,
    )
    named = int((name != report.builder.texts[_NO_STACK]).sum())
    report.builder.receipt.add(notes.cpu_samples(len(rows), named, len(np.unique(thread))))


def _stacks(report: Report, ids: Int64s) -> tuple[Int32s, dict[str, Values]]:
    """Name of each sample, by its innermost function, and its module and call stack."""
    builder = report.builder
    name = np.full(len(ids), builder.texts[_NO_STACK], np.int32)
    rows = report.rows(STACKS, *_CHAIN)
    rows = rows.only(np.isin(rows.ints("id"), ids) & (rows.ints("stackDepth") >= 0))
    if not len(rows):
        return name, {}
    order = np.lexsort((rows.ints("stackDepth"), rows.ints("id")))
    sample = rows.ints("id")[order]
    symbol, module = rows.ints("symbol")[order], rows.ints("module")[order]
    unresolved = rows.ints("unresolved", 0)[order] > 0
    special = rows.ints("specialEntry", 0)[order] > 0
    # An address without a symbol identifies no more than its module, and differs between runs.
    first, frame = unique_rows(
        np.where(unresolved, -1, np.maximum(symbol, -1)), np.maximum(module, -1)
    )
    calls = [
        _call(report, int(symbol[i]), int(module[i]), bool(unresolved[i])) for i in first.tolist()
    ]
    begin = run_starts(sample)
    size = np.diff(np.append(begin, len(sample)))
    depth = np.arange(len(sample)) - np.repeat(begin, size)
    within_limit = depth < MOST_CALLS
    truncated = (depth == MOST_CALLS - 1) & (np.repeat(size, size) > MOST_CALLS)
    drawn = np.where(truncated, len(calls), frame)[within_limit].astype(np.int32)
    texts = np.array([*(_call_text(function, file) for function, file in calls), "…"], object)
    parent = np.arange(1, len(drawn) + 1, dtype=np.int32)
    samples_of_drawn = sample[within_limit]
    parent[np.append(samples_of_drawn[1:] != samples_of_drawn[:-1], True)] = -1
    code, stacks = chains(parent, drawn, texts)
    of_sample = code[depth[within_limit] == 0]
    tops, top = np.unique(of_sample, return_inverse=True)
    stack = builder.codes([stacks.text(chain) for chain in tops.tolist()])[top]
    # Entries that the recorder added (`[Broken backtraces]`) are not functions, and their callers
    # are not what ran.
    inner = begin[~special[begin] & (rows.ints("stackDepth")[order[begin]] == 0)]
    with_stack, has_stack = _find(sample[begin], ids)
    with_function, has_function = _find(sample[inner], ids)
    functions = builder.codes([function for function, _ in calls])
    modules = np.array([builder.texts[file] if file else -1 for _, file in calls], np.int32)
    innermost = frame[inner[with_function]]
    name[has_function] = functions[innermost]
    of_module, of_stack = np.full(len(ids), -1, np.int32), np.full(len(ids), -1, np.int32)
    of_module[has_function] = modules[innermost]
    of_stack[has_stack] = stack[with_stack]
    return name, {"module": Coded(of_module), "call stack": Coded(of_stack)}


def _call_text(function: str, file: str) -> str:
    if file and file not in (function, function[1:-1]):
        return f"{function} ({file})"
    return function


def _find(sorted_ids: Int64s, ids: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Indices of ids among sorted ones, for those that occur, and the mask of these."""
    if not len(sorted_ids):
        return np.zeros(0, np.int64), np.zeros(len(ids), np.bool_)
    position = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    has_id = sorted_ids[position] == ids
    return position[has_id], has_id


def _call(report: Report, symbol: int, module: int, unresolved: bool) -> tuple[str, str]:
    """A function and the file that it is in: `[libcuda.so.1]` for one that no symbol was found
    for.
    """
    file = report.strings.get(module, "")
    if not file.startswith("["):
        file = ntpath.basename(posixpath.basename(file))
    function = report.strings.get(symbol, "")
    if function and not unresolved:
        return function, file
    if file.startswith("["):
        return file, file
    return f"[{file or 'unknown'}]", file
