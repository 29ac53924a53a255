"""The Perfetto traces (`*.pftrace`) of rocprofv3, in the terms of its other files.

Its slices have categories and annotations of their own, and its tracks names such as `COMPUTE AGENT
[1] QUEUE [0] (GPU)`. Sizes of grids and workgroups are products there, which tell no shape; GPUs
have the numbers of agents.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import MutableMapping
from typing import cast

import numpy as np
import pandas as pd

from nbprof.core.trace import INT, TEXT, ArgColumn, Int64s, Trace
from nbprof.dialects.lookups import names_that

_CATEGORIES = {
    "kernel_dispatch": "kernel",
    "memory_copy": "gpu_memcpy",
    "marker_api": "user_annotation",
    "hip_api": "hip_runtime",
    "hsa_api": "hsa_runtime",
    "rccl_api": "rccl_runtime",
    "rocdecode_api": "rocdecode_runtime",
    "rocjpeg_api": "rocjpeg_runtime",
}
_ARGS = {
    "corr_id": "correlation",
    "copy_bytes": "bytes",
    "group_segment_size": "shared memory",
    "private_segment_size": "scratch size",
    "kernel_id": "kernel id",
}
_STREAM = re.compile(r"\bSTREAM(?:_ID)?\W*(\d{1,9})")
_QUEUE = re.compile(r"\bQUEUE(?:_ID)?\W*(\d{1,9})")
_THREAD = re.compile(r"THREAD \d+ \((\d{1,9})\)")
_AGENT = re.compile(r"\D*(\d{1,9})")


def is_rocprof(trace: Trace) -> bool:
    """True if rocprofv3 wrote a trace: its slices state their call and their times in its words."""
    if not {"cat", "corr_id", "begin_ns"} <= set(trace.args):
        return False
    categories = trace.texts(pd.unique(trace.args["cat"].of(TEXT)[1]))
    return not _CATEGORIES.keys().isdisjoint(categories)


def translate(trace: Trace) -> None:
    """Gives events categories and args, and lanes names, as in recordings of the other files."""
    code = trace.text_arg("cat")
    texts = list(trace.strings)
    numbers = {text: i for i, text in reversed(list(enumerate(texts)))}
    table = np.full(len(texts) + 1, -1, np.int64)
    for old in pd.unique(code[code >= 0]).tolist():
        new = _CATEGORIES.get(texts[old], texts[old])
        if new not in numbers:
            numbers[new] = len(texts)
            texts.append(new)
        table[old] = numbers[new]
    rows = np.flatnonzero(code >= 0).astype(np.int32)
    added = {"cat": ArgColumn(rows, TEXT, table[code[rows]])}
    added |= {new: trace.args[old] for old, new in _ARGS.items() if old in trace.args}
    kernel = table[code] == numbers.get("kernel", -2)
    copy = table[code] == numbers.get("gpu_memcpy", -2)
    device = np.where(kernel, _agents(trace, "agent"), -1)
    source, target = _agents(trace, "src_agent"), _agents(trace, "dst_agent")
    to_host = names_that(lambda name: "DEVICE_TO_HOST" in name, trace.names)[trace.events.name]
    device = np.where(copy, np.where(to_host, source, target), device)
    on_device = kernel | copy
    work = np.flatnonzero(on_device)
    added["device"] = ArgColumn(work.astype(np.int32), INT, np.maximum(device[work], 0))
    _name_lanes(trace, on_device, device)
    trace.strings = texts
    trace.args = ChainMap(added, cast("MutableMapping[str, ArgColumn]", trace.args))


def _agents(trace: Trace, name: str) -> Int64s:
    """Number of the agent of each event, stated as a number, `Agent-1` or `GPU-0`."""
    device, text = trace.arg(name), trace.text_arg(name)
    for code in pd.unique(text[text >= 0]).tolist():
        if agent := _AGENT.match(trace.strings[code]):
            device[text == code] = int(agent[1])
    return device


def _name_lanes(
    trace: Trace, on_device: np.ndarray[tuple[int], np.dtype[np.bool_]], device: Int64s
) -> None:
    """Lanes of queues, streams and copies, and the ids of threads, from the names of tracks."""
    lanes = trace.lanes
    first = np.searchsorted(trace.events.lane, np.arange(len(lanes)))
    for i, thread in enumerate(lanes["thread"].astype(str).tolist()):
        has_events = first[i] < len(trace.events) and trace.events.lane[first[i]] == i
        if has_events and on_device[first[i]]:
            gpu = max(int(device[first[i]]), 0)
            lanes.loc[i, "labels"] = f"GPU {gpu}"
            stream, queue = _STREAM.search(thread), _QUEUE.search(thread)
            number = stream or queue
            title = "Copies" if thread.startswith("COPY") else "Queue"
            if stream and title == "Queue":
                lanes.loc[i, "thread"] = f"stream {stream[1]}"
                lanes.loc[i, "tid"] = stream[1]
            elif number:
                lanes.loc[i, "thread"] = f"{title} {number[1]}"
            else:
                lanes.loc[i, "thread"] = f"{title} of agent {gpu}"
        elif match := _THREAD.search(thread):
            lanes.loc[i, "tid"] = match[1]
