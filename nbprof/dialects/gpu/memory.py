"""Allocator events of a Kineto trace: `[memory]` instants, one per block handed out or freed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s
from nbprof.dialects.allocators import added_up, allocation_table, or_na
from nbprof.dialects.gpu import known_tensors
from nbprof.dialects.gpu.lanes import MEMORY
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.lookups import names_that, text_of

# c10::DeviceType, as far as allocators report.
_DEVICE_TYPES = {
    0: "CPU",
    1: "GPU",
    2: "MKLDNN",
    6: "GPU",
    7: "FPGA",
    9: "XLA",
    10: "Vulkan",
    12: "XPU",
    13: "MPS",
    15: "HPU",
    19: "MTIA",
}


def allocations(
    links: Links, steps: Steps, activity: act.Activity
) -> tuple[pd.DataFrame, set[str]]:
    """The `allocations` table in time order, and the names of memories without stated totals.

    `heap` is what the allocator states as allocated after the event, `free` what it holds beyond
    that: an upper bound of what fragmentation costs. Files of PyTorch before 1.11 state no totals,
    and those of the CPU hold what was recorded before and freed in between: there `heap` counts
    from the least that the events and `known_tensors` allow.
    """
    trace, events = links.trace, links.trace.events
    rows = links.rows(MEMORY)
    # [OutOfMemory] only states the bytes that were requested.
    is_memory = names_that("[memory]".__eq__, trace.names)
    rows = rows[is_memory[events.name[rows]]]
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    size = trace.arg("Bytes", 0)[rows]
    kind, ordinal = trace.arg("Device Type", 0)[rows], trace.arg("Device Id")[rows]
    address = trace.arg("Addr")[rows]
    total, reserved = trace.arg("Total Allocated")[rows], trace.arg("Total Reserved")[rows]
    host = links.host[rows]
    memory = _memory(links, kind, ordinal, host, activity)
    around = links.ops.around(rows)
    op_names = np.zeros(len(trace.names) + 1, np.int32)
    code = np.full(len(rows), -1)
    if len(links.ops.rows):
        code = np.where(around >= 0, events.name[links.ops.rows[around]], -1)
    for name_code in pd.unique(code).tolist():
        op_names[name_code] = activity.ops.code(text_of(trace.names, name_code))
    # PyTorch counts on the CPU only while it records, so its total grows with each recording of a
    # process.
    total_of_all = np.where(kind == 0, -1, total)
    heap = added_up(memory, size, total_of_all, address)
    without_total = np.setdiff1d(memory, memory[total_of_all >= 0])
    for each in without_total.tolist():
        # Tensors that are known to have been there all the time are in no event.
        in_memory = memory == each
        earlier = known_tensors.before_recording(activity.known_tensors, each, address[in_memory])
        heap[in_memory] += int(activity.known_tensors.size[earlier].sum())
    summed = set(map(str, activity.texts.values[without_total]))
    free = or_na(reserved - total, (reserved <= 0) | (total < 0) | (reserved < total))
    # torch_npu and others write addresses that are not numbers, or beyond int64; equal addresses
    # still mean the same block.
    address_or_na = or_na(address, address == -1)
    table = allocation_table(
        activity,
        event=rows,
        host=host,
        memory=memory,
        time=events.start[rows],
        allocation=size >= 0,
        allocated=np.abs(size),
        address=address_or_na,
        heap=heap,
        free=free,
        group=steps.group_at(host, events.start[rows]),
        op=op_names[code],
    )
    return table, summed


def without_totals(links: Links) -> bool:
    """True if the allocator events of the file lack the total."""
    column = links.trace.args.get("Total Allocated")
    rows = links.rows(MEMORY)
    return bool(len(rows)) and (column is None or not np.isin(rows, column.event).any())


def capacities(devices: pd.DataFrame, hosts: list[str]) -> dict[str, int]:
    """Bytes of each device by the name that its memory has in `allocations`."""
    capacity = {}
    columns = devices[["host", "device", "kind", "memory_bytes"]]
    for host, device, kind, size in columns.itertuples(index=False):
        if pd.notna(size) and size > 0:
            capacity[_label(f"{kind} {device}", str(host), len(hosts) > 1)] = int(size)
    return capacity


def _label(memory: str, host: str, several: bool) -> str:
    return f"{host} {memory}" if several else memory


def _memory(
    links: Links, kind: Int64s, ordinal: Int64s, host: np.ndarray, activity: act.Activity
) -> np.ndarray:
    """Text code of the memory of each event: `CPU`, `GPU 0`, after its host if several."""
    hosts = links.trace.hosts
    families = links.trace.lanes.loc[links.trace.lanes["kind"] == "device", "process"]
    other = str(families.iloc[0]).partition(" ")[0] if len(families) else "device"
    first, code = unique_rows(kind, ordinal, host.astype(np.int64))
    codes = np.zeros(len(first), np.int32)
    for i, row in enumerate(first.tolist()):
        family = _DEVICE_TYPES.get(int(kind[row]), other)
        if kind[row] == 20 and other in ("GPU", "device"):
            family = "NPU"
        text = family
        if family != "CPU":
            text = f"{family} {max(int(ordinal[row]), 0)}"
        codes[i] = activity.texts.code(_label(text, hosts[int(host[row])], len(hosts) > 1))
    return codes[code]
