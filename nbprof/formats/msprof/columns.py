"""Names of the columns of Ascend's tables in nbprof, for all versions, and the table of a header.

Names, units and their history: the exporter of CANN (msprof) and torch_npu. A unit that the header
states is in the name here; moments are ps.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["time", "id", "text", "number"]


@dataclass(frozen=True)
class Column:
    """One column: its name here, how its values are read, and what a number is multiplied by."""

    name: str
    kind: Kind
    scale: float = 1.0


_UNIT = re.compile(
    r"^(?P<base>.*?)\s*\(\s*(?P<unit>us|ms|ns|bytes?|kb|mb|gb|%|gb/s|mb/s)\s*\)$", re.IGNORECASE
)
_SUFFIX: dict[str, tuple[str, float]] = {
    "us": ("_us", 1.0),
    "ms": ("_ms", 1.0),
    "ns": ("_us", 1e-3),
    "byte": ("_bytes", 1.0),
    "bytes": ("_bytes", 1.0),
    "kb": ("_bytes", 1024.0),
    "mb": ("_bytes", 1024.0**2),
    "gb": ("_bytes", 1024.0**3),
    "%": ("_percent", 1.0),
    "gb/s": ("_gb_per_second", 1.0),
    "mb/s": ("_mb_per_second", 1.0),
}

_TO_US = {"ns": 1e-3, "ms": 1e3}
"""For columns that are in µs here."""

_IDS = {
    "device_id",
    "model_id",
    "task_id",
    "stream_id",
    "infer_id",
    "context_id",
    "step_id",
    "iteration_id",
    "batch_id",
    "graph_id",
}
_IDS |= {
    "step",
    "count",
    "block_num",
    "mix_block_num",
    "node_index_start",
    "node_index_end",
    "process_id",
    "thread_id",
}
_TEXTS = {
    "op_name",
    "op_type",
    "op_state",
    "task_type",
    "core_type",
    "kernel_name",
    "kernel_type",
    "model_name",
    "fusion_op",
    "original_ops",
}
_TEXTS |= {
    "level",
    "api_name",
    "component",
    "device_type",
    "event",
    "name",
    "node",
    "hf32_eligible",
    "input_shapes",
    "input_data_types",
}
_TEXTS |= {
    "input_formats",
    "output_shapes",
    "output_data_types",
    "output_formats",
    "call_stack",
    "stream_ptr",
}
_TEXTS |= {
    "mode",
    "metric",
    "cpu_type",
    "action",
    "source",
    "message",
    "domain",
    "node_name",
    "core_id",
    "engine_type",
    "engine_id",
}

# By kind: what a header's words, without the unit, are called here.
_START = {"start_time": "start_ps", "task_start_time": "start_ps"}
_RENAMED: dict[str, dict[str, str]] = {
    "op_summary": {
        "name": "op_name",
        "type": "op_type",
        "accelerator_core": "task_type",
        "block_dim": "block_num",
        "mix_block_dim": "mix_block_num",
        "duration": "duration_us",
        "task_duration": "duration_us",
        "wait_time": "wait_us",
        "task_wait_time": "wait_us",
        **_START,
    },
    "op_statistic": {
        "total_time": "total_us",
        "min_time": "min_us",
        "avg_time": "avg_us",
        "max_time": "max_us",
        "ratio": "ratio_percent",
    },
    "step_trace": {
        "fp_start": "fp_start_ps",
        "bp_end": "bp_end_ps",
        "iteration_end": "iteration_end_ps",
        "iteration_time": "iteration_us",
        "fp_to_bp_time": "fp_to_bp_us",
        "iteration_refresh": "iteration_refresh_us",
        "grad_refresh_bound": "iteration_refresh_us",
        "data_aug_bound": "data_aug_bound_us",
    },
    "step_trace_time": {
        name: f"{name}_us"
        for name in (
            "computing",
            "communication_not_overlapped",
            "overlapped",
            "communication",
            "free",
            "stage",
            "bubble",
            "communication_not_overlapped_and_exclude_receive",
            "preparing",
        )
    },
    "task_time": {"task_time": "duration_us", "task_start": "start_ps", "task_stop": "stop_ps"},
    "api_statistic": {"time": "time_us", "avg": "avg_us", "min": "min_us", "max": "max_us"},
    "memory_record": {
        "timestamp": "timestamp_ps",
        "total_allocated": "allocated_bytes",
        "total_reserved": "reserved_bytes",
        "total_active": "active_bytes",
        "device": "device_type",
    },
    "operator_memory": {
        "size": "size_bytes",
        "allocation_time": "allocation_ps",
        "release_time": "release_ps",
        "active_release_time": "active_release_ps",
        "duration": "duration_us",
        "active_duration": "active_duration_us",
        "device": "device_type",
        **{
            f"{when}_total_{kind}": f"{when}_{kind}_bytes"
            for when in ("allocation", "release")
            for kind in ("allocated", "reserved", "active")
        },
    },
    "npu_mem": {
        "timestamp": "timestamp_ps",
        "ddr": "ddr_bytes",
        "hbm": "hbm_bytes",
        "memory": "memory_bytes",
    },
    "static_op_mem": {"size": "size_bytes"},
    "aicpu": {
        "timestamp": "timestamp_ps",
        **{
            f"{kind}_time": f"{kind}_us"
            for kind in ("compute", "memcpy", "task", "dispatch", "total")
        },
    },
    "operator_details": {
        f"{side}_{part}_duration{more}": f"{side}_{part}{more}_us"
        for side in ("host", "device")
        for part in ("self", "total")
        for more in ("", "_with_aicore")
    },
    "fusion_op": {
        f"memory_{kind}": f"memory_{kind}_bytes"
        for kind in ("input", "output", "weight", "workspace", "total")
    },
}
_RENAMED["communication_statistic"] = _RENAMED["op_statistic"]
_RENAMED["npu_module_mem"] = _RENAMED["memory_record"]

# By kind: all of these words are in its header, none of those behind them.
_KNOWN_BY: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("op_summary", ("op_name", "task_type", "task_duration"), ()),
    ("op_summary", ("name", "accelerator_core", "duration"), ()),
    ("op_statistic", ("op_type", "core_type", "ratio"), ()),
    ("communication_statistic", ("op_type", "ratio", "count"), ("core_type",)),
    ("step_trace", ("iteration_id", "iteration_time"), ()),
    ("step_trace_time", ("computing", "communication_not_overlapped", "free"), ()),
    ("task_time", ("kernel_type", "task_time", "task_start"), ()),
    ("fusion_op", ("fusion_op", "original_ops"), ()),
    ("api_statistic", ("api_name", "level", "count"), ()),
    ("memory_record", ("component", "timestamp", "total_allocated"), ()),
    ("npu_module_mem", ("component", "timestamp", "total_reserved"), ("total_allocated",)),
    ("operator_memory", ("size", "allocation_time"), ()),
    ("npu_mem", ("event", "hbm", "timestamp"), ()),
    ("static_op_mem", ("node_index_start", "size"), ()),
    ("l2_cache", ("hit_rate", "victim_rate"), ()),
    ("aicpu", ("node", "compute_time", "total_time"), ()),
    ("operator_details", ("name", "host_self_duration"), ()),
    ("ai_core_utilization", ("core_id", "mac_ratio"), ()),
    ("ai_core_utilization", ("core_id", "vec_ratio"), ()),
)
# Tables of the machine, which are shown as they are: all of the words of their header.
_AS_THEY_ARE: tuple[tuple[str, str], ...] = (
    (
        "msprof_tx",
        (
            "pid tid category event_type payload_type payload_value start_time end_time"
            " message_type message"
        ),
    ),
    ("soc_pmu", "stream_id task_id tlb_hit_rate tlb_miss_rate"),
    ("page_fault", "stream_id task_id page_fault_num op_name"),
    ("dp", "timestamp action source cached_buffer_size"),
    ("aicpu_mi", "node_name start_time end_time queue_size"),
    ("bandwidth", "metric read write"),
    ("link", "mode min max avg"),
    ("link", "mode min max average"),
    (
        "network",
        (
            "timestamp bandwidth rx_bandwidth_efficiency rxpacket_s tx_bandwidth_efficiency"
            " txpacket_s funcid"
        ),
    ),
    ("llc", "mode task hit_rate throughput"),
    ("cpu_usage", "cpu_type user sys iowait irq soft idle"),
    ("process_cpu_usage", "pid name cpu"),
    ("sys_mem", "memory_total memory_free buffers cached share_memory"),
    ("process_mem", "pid name size resident shared"),
    ("os_runtime_statistic", "process_id thread_id name time count avg max min"),
    ("dvpp", "dvpp_id engine_type engine_id all_time all_frame all_utilization"),
)
# The same words as a hybrid has them: kernels renamed by hand, with the columns of the other
# producer.
_HYBRID = (
    {"op_name", "name"},
    {"task_type", "accelerator_core", "op_type"},
    {"task_duration", "duration"},
    {"task_start_time", "start_time"},
)

_PLACES = ("reduce_start", "reduce_duration")


def words(header: str) -> tuple[str, str]:
    """The words of a header cell as one name, and its unit in small letters, '' where it states
    none.
    """
    text = header.strip().strip('\ufeff"').strip()
    match = _UNIT.match(text)
    base, unit = (match["base"], match["unit"].lower()) if match else (text, "")
    return re.sub(r"[^0-9a-z]+", "_", base.lower()).strip("_"), unit


def header_of(head: bytes) -> list[str]:
    """The cells of the first line of a file; empty where it is no CSV."""
    line = (
        head.removeprefix(b"\xef\xbb\xbf")
        .split(b"\n", 1)[0]
        .decode("utf-8", "replace")
        .rstrip("\r")
    )
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def kind_of(header: list[str]) -> str:
    """Kind of the table with a header; '' for one that no exporter writes."""
    seen = {words(cell)[0] for cell in header}
    for kind, selected, unwanted in _KNOWN_BY:
        if seen.issuperset(selected) and seen.isdisjoint(unwanted):
            return kind
    if all(seen & selected for selected in _HYBRID):
        return "op_summary"
    return next((kind for kind, selected in _AS_THEY_ARE if seen.issuperset(selected.split())), "")


def columns(kind: str, header: list[str]) -> list[Column]:
    """Specification of each column of a table; names are unique."""
    renamed = _RENAMED.get(kind, {})
    result: list[Column] = []
    taken: dict[str, int] = {}
    for cell in header:
        base, unit = words(cell)
        if base == "hccl_op" and kind == "op_summary":
            base = "op_name"
        if base in _PLACES:
            count = taken.get(base, 0)
            taken[base] = count + 1
            time = base == "reduce_start"
            result.append(
                Column(
                    f"reduce_{count}_{'start_ps' if time else 'us'}", "time" if time else "number"
                )
            )
            continue
        suffix, scale = _SUFFIX.get(unit, ("", 1.0))
        name = renamed.get(base, base + suffix)
        how: Kind = "number"
        if name.endswith("_ps"):
            how, scale = "time", _TO_US.get(unit, 1.0)
        elif name.endswith("_us"):
            scale = _TO_US.get(unit, 1.0)
        elif name in _IDS:
            how, scale = "id", 1.0
        elif name in _TEXTS:
            how = "text"
        if name in taken:
            taken[name] += 1
            name = f"{name}_{taken[name]}"
        else:
            taken[name] = 1
        result.append(Column(name, how, scale))
    return result
