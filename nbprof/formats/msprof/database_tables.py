"""The tables of a database of Ascend's profilers under the names, and in the units, of the same
tables in CSV and JSON.

Columns and tables that only CSV has (`Task Wait Time`, `op_statistic`, the marks of iterations) are
missing. Tables that are not documented are available under their own names:
`p.ascend.table("HBM_X")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.files import printable
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s, Table
from nbprof.formats.build import stable_order
from nbprof.formats.msprof import notes
from nbprof.formats.msprof.columns import columns
from nbprof.formats.msprof.csv import LONGEST_US, MOST_BYTES
from nbprof.formats.msprof.database import (
    CALLS,
    NONE,
    TASK,
    Database,
    among,
    category,
    is_set,
    moments,
    row_of,
    taken,
    used_of,
)
from nbprof.formats.msprof.tables import device_in
from nbprof.formats.notes import labelled

Floats = npt.NDArray[np.float64]
_MB = 1024.0 * 1024.0
_TOTAL = "Total Op Info"
_OP_COLUMNS = "hccl_op_name group_name step type"
"""Columns that identify a collective in tables of the analysis."""
_POOLS = ("allocated", "reserved", "active")
_STEP_PARTS = (
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
_TENSORS = {
    "input_shapes": "inputShapes",
    "input_data_types": "inputDataTypes",
    "input_formats": "inputFormats",
    "output_shapes": "outputShapes",
    "output_data_types": "outputDataTypes",
    "output_formats": "outputFormats",
}
_OF_TENSORS = " ".join(_TENSORS.values())
EVENTS = {
    "TASK",
    "COMPUTE_TASK_INFO",
    "COMMUNICATION_OP",
    "COMMUNICATION_TASK_INFO",
    "COMMUNICATION_SCHEDULE_TASK_INFO",
    "MEMCPY_INFO",
    "CANN_API",
    "PYTORCH_API",
    "PYTORCH_CALLCHAINS",
    "CONNECTION_IDS",
    "STEP_TIME",
    "MSTX_EVENTS",
    "OVERLAP_ANALYSIS",
    "GC_RECORD",
    "OSRT_API",
    "CCU",
    "DPU_TASK",
}
"""Tables that events, their args and their arrows are made of."""
_FACTS = {
    "STRING_IDS",
    "META_DATA",
    "NPU_INFO",
    "HOST_INFO",
    "RANK_DEVICE_MAP",
    "SESSION_TIME_INFO",
}


class _TableBuilder:
    """Tables built from those of one database.

    Parameters
    ----------
    base : Database
    host : int
    rank : int, optional
    """

    def __init__(self, base: Database, host: int, rank: int | None) -> None:
        self.base, self.host, self.rank = base, host, rank
        self.name = printable(base.name)
        self.tables: dict[str, list[Table]] = {}
        self.notes: list[Note] = []
        self.used: set[str] = set()

    def add(
        self, kind: str, frame: Mapping[str, Any], times: Mapping[str, Int64s] | None = None
    ) -> None:
        """Adds a table; `times` are ns, and count in ps from the first of them in the end."""
        doubts: list[Note] = []
        columns = {name: _sound(name, column) for name, column in frame.items()}
        times = {name: moments(ns) for name, ns in (times or {}).items()}
        every = np.concatenate([np.zeros(0, np.int64), *times.values()])
        every = every[every != NONE]
        first = int(every.min()) if len(every) else 0
        for name, ns in times.items():
            far = (ns != NONE) & ((ns - first) // 1000 > LONGEST_US)
            if far.any():
                doubts.append(notes.far_times(name, int(far.sum())))
            none = (ns == NONE) | far
            ps = np.where(none, 0, ns - first) * 1000
            columns[name] = pd.arrays.IntegerArray(ps, none)
        built = pd.DataFrame(columns, copy=False)
        if not len(built):
            return
        table = Table(
            kind,
            device_in(built),
            self.rank,
            built,
            [],
            self.base.name,
            labelled(f"{self.name}: ", doubts),
            self.host,
            first,
        )
        self.tables.setdefault(kind, []).append(table)

    def read(
        self, table: str, ints: str = "", floats: str = "", texts: str = ""
    ) -> dict[str, npt.NDArray[Any]]:
        self.used.add(table)
        return self.base.read(table, ints, floats, texts)

    # Work of the devices.

    def tasks(self) -> None:
        """`op_summary` (`kernel_details` of torch_npu) and `task_time`."""
        strings = self.base.strings
        task = self.read("TASK", TASK)
        info = self.read(
            "COMPUTE_TASK_INFO",
            "name globalTaskId taskType opType opState hf32Eligible blockNum blockDim mixBlockNum"
            f" mixBlockDim {_OF_TENSORS}",
        )
        self.used |= {"COMMUNICATION_TASK_INFO", "COMMUNICATION_SCHEDULE_TASK_INFO"}
        name, info_rows = self.base.task_names, self.base.task_infos
        if len(task["startNs"]):
            order = np.lexsort((task["startNs"], task["deviceId"]))
            self.add(
                "task_time",
                {
                    "device_id": ids(task["deviceId"][order]),
                    "kernel_name": strings.category(name[order]),
                    "kernel_type": strings.category(task["taskType"][order]),
                    "stream_id": ids(task["streamId"][order]),
                    "task_id": ids(task["taskId"][order]),
                    "duration_us": lengths(task["startNs"][order], task["endNs"][order]),
                },
                {"start_ps": task["startNs"][order], "stop_ps": task["endNs"][order]},
            )
        self._ops(task, info, info_rows)

    def _ops(self, task: dict[str, Int64s], info: dict[str, Int64s], info_rows: Int64s) -> None:
        strings, base = self.base.strings, self.base
        rows = np.flatnonzero(info_rows >= 0)
        info_row = info_rows[rows]
        unmatched = int((~among(info["globalTaskId"], task["globalTaskId"])).sum())
        if unmatched:
            self.notes.append(notes.unmatched_task_details(self.name, unmatched))
        ops = self.read("COMMUNICATION_OP", "opName startNs endNs opType deviceId opId")
        placed = _devices(base, ops["deviceId"])
        count, more = len(rows), len(ops["opName"])
        start = np.concatenate([task["startNs"][rows], ops["startNs"]])
        end = np.concatenate([task["endNs"][rows], ops["endNs"]])
        device = np.concatenate([task["deviceId"][rows], placed])
        order = np.lexsort((start, device))
        none = np.full(more, NONE)

        def of_info(*names: str) -> Int64s:
            """The first of the columns, named differently by version, that the table has."""
            columns_here = base.columns("COMPUTE_TASK_INFO")
            column = next((name for name in names if name in columns_here), names[0])
            return np.concatenate([info[column][info_row], none])[order]

        def of_task(column: str) -> Int64s:
            return np.concatenate([task[column][rows], none])[order]

        used, inverse = used_of(info["taskType"][info_row])
        kinds = strings.texts(used)
        frame: dict[str, Any] = {
            "device_id": ids(device[order]),
            "model_id": ids(of_task("modelId")),
            "task_id": ids(of_task("taskId")),
            "stream_id": ids(of_task("streamId")),
            "op_name": strings.category(
                np.concatenate([info["name"][info_row], ops["opName"]])[order]
            ),
            "op_type": strings.category(
                np.concatenate([info["opType"][info_row], ops["opType"]])[order]
            ),
            "op_state": strings.category(of_info("opState")),
            "task_type": category(
                [*kinds, "COMMUNICATION"],
                np.concatenate([inverse, np.full(more, len(kinds))])[order],
            ),
            "duration_us": lengths(start, end)[order],
            "block_num": ids(of_info("blockNum", "blockDim")),
            "mix_block_num": ids(of_info("mixBlockNum", "mixBlockDim")),
            "hf32_eligible": strings.category(of_info("hf32Eligible")),
        }
        frame |= {name: strings.category(of_info(column)) for name, column in _TENSORS.items()}
        frame["context_id"] = ids(of_task("contextId"))
        positions = np.empty(count + more, np.int64)
        positions[order] = np.arange(count + more)
        row_in_table = np.full(len(task["startNs"]), -1)
        row_in_table[rows] = positions[:count]
        frame |= self._counters_of(task, row_in_table, count + more)
        self.add("op_summary", frame, {"start_ps": start[order]})

    def _counters_of(
        self, task: dict[str, Int64s], row_in_table: Int64s, count: int
    ) -> dict[str, Floats]:
        """The counters of the cores by column, under the names that a header in CSV gives them."""
        metrics = self.read("TASK_PMU_INFO", "globalTaskId name timestampNs", "value")
        row, lost = row_of(task, metrics["globalTaskId"], metrics["timestampNs"])
        if lost:
            self.notes.append(notes.ambiguous_task_numbers(self.name, lost))
        op_rows = taken(row_in_table, row)
        used, inverse = used_of(metrics["name"])
        rows = np.flatnonzero(op_rows >= 0)
        # By counter, each in the order of the file.
        rows = rows[stable_order(inverse[rows])]
        bounds = np.searchsorted(inverse[rows], np.arange(len(used) + 1))
        result: dict[str, Floats] = {}
        for text, low, high in zip(
            self.base.strings.texts(used), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
        ):
            spec = columns("op_summary", [text or "counter"])[0]
            values = result.setdefault(spec.name, np.full(count, np.nan))
            values[op_rows[rows[low:high]]] = metrics["value"][rows[low:high]] * spec.scale
        return result

    def calls(self) -> None:
        """`api_statistic`: the calls of CANN_API, summed up by level and name as msprof does."""
        calls = self.read("CANN_API", CALLS)
        if not len(calls["name"]):
            return
        frame = pd.DataFrame(
            {
                "type": calls["type"],
                "name": calls["name"],
                "us": lengths(calls["startNs"], calls["endNs"]),
            }
        )
        groups = frame.groupby(["type", "name"], sort=True)["us"]
        summary = groups.agg(["sum", "count", "mean", "min", "max"]).reset_index()
        kinds, inverse = used_of(summary["type"].to_numpy(np.int64))
        self.add(
            "api_statistic",
            {
                "level": category(
                    [self.base.levels.get(kind, str(kind)) for kind in kinds.tolist()], inverse
                ),
                "api_name": self.base.strings.category(summary["name"].to_numpy(np.int64)),
                "time_us": summary["sum"].to_numpy(np.float64),
                "count": ids(summary["count"].to_numpy(np.int64)),
                "avg_us": summary["mean"].to_numpy(np.float64),
                "min_us": summary["min"].to_numpy(np.float64),
                "max_us": summary["max"].to_numpy(np.float64),
                "variance": groups.var(ddof=0).to_numpy(np.float64),
            },
        )

    # Memory.

    def memory(self) -> None:
        """`memory_record`, `operator_memory`, `npu_mem` and `npu_module_mem`."""
        self._operator_memory()
        self._device_memory()

    def _operator_memory(self) -> None:
        strings = self.base.strings
        blocks = "allocationTotalAllocated allocationTotalReserved allocationTotalActive "
        blocks += "releaseTotalAllocated releaseTotalReserved releaseTotalActive"
        allocations = self.read(
            "OP_MEMORY",
            "name allocationTime releaseTime activeReleaseTime streamPtr deviceId",
            f"size duration activeDuration {blocks}",
        )
        record = self.read(
            "MEMORY_RECORD",
            "component timestamp streamPtr deviceId",
            "totalAllocated totalReserved totalActive",
        )
        if not len(allocations["name"]) and not len(record["component"]):
            self._graph_memory()
        totals = {}
        for when in ("allocation", "release"):
            for pool in _POOLS:
                totals[f"{when}_{pool}_bytes"] = allocations[f"{when}Total{pool.title()}"]
        self.add(
            "operator_memory",
            {
                "name": strings.category(allocations["name"]),
                "size_bytes": allocations["size"],
                "duration_us": allocations["duration"] / 1000,
                "active_duration_us": allocations["activeDuration"] / 1000,
                **totals,
                "stream_ptr": _handles(allocations["streamPtr"]),
                "device_type": _npus(allocations["deviceId"]),
            },
            {
                "allocation_ps": allocations["allocationTime"],
                "release_ps": allocations["releaseTime"],
                "active_release_ps": allocations["activeReleaseTime"],
            },
        )
        self.add(
            "memory_record",
            {
                "component": strings.category(record["component"]),
                **{f"{pool}_bytes": record[f"total{pool.title()}"] for pool in _POOLS},
                "stream_ptr": _handles(record["streamPtr"]),
                "device_type": _npus(record["deviceId"]),
            },
            {"timestamp_ps": record["timestamp"]},
        )

    def _device_memory(self) -> None:
        strings = self.base.strings
        npu = self.read("NPU_MEM", "type timestampNs deviceId", "ddr hbm")
        # The sum is what the table in CSV calls memory.
        self.add(
            "npu_mem",
            {
                "device_id": ids(npu["deviceId"]),
                "event": strings.category(npu["type"]),
                "ddr_bytes": npu["ddr"],
                "hbm_bytes": npu["hbm"],
                "memory_bytes": npu["ddr"] + npu["hbm"],
            },
            {"timestamp_ps": npu["timestampNs"]},
        )
        module = self.read("NPU_MODULE_MEM", "moduleId timestampNs deviceId", "totalReserved")
        self.add(
            "npu_module_mem",
            {
                "device_id": ids(module["deviceId"]),
                "component": self.base.enum("ENUM_MODULE").category(module["moduleId"]),
                "reserved_bytes": module["totalReserved"],
                "device_type": _npus(module["deviceId"]),
            },
            {"timestamp_ps": module["timestampNs"]},
        )

    def _graph_memory(self) -> None:
        """Allocations and releases of operators of graphs (GE), which msprof writes one by one:
        each with its release.
        """
        strings = self.base.strings
        rows = self.read(
            "NPU_OP_MEM",
            "operatorName addr type timestampNs component deviceId",
            "size totalAllocate totalReserve",
        )
        if not len(rows["addr"]):
            return
        kinds, inverse = used_of(rows["type"])
        releases = [(text or "").lower() == "release" for text in strings.texts(kinds)]
        freed = np.array(releases)[inverse] | (rows["size"] < 0)
        self.add(
            "memory_record",
            {
                "component": strings.category(rows["component"]),
                "allocated_bytes": rows["totalAllocate"],
                "reserved_bytes": rows["totalReserve"],
                "device_type": _npus(rows["deviceId"]),
            },
            {"timestamp_ps": rows["timestampNs"]},
        )
        allocation, release = _paired(rows, freed)
        begin = rows["timestampNs"][allocation]
        end = taken(rows["timestampNs"], release)
        self.add(
            "operator_memory",
            {
                "name": strings.category(rows["operatorName"][allocation]),
                "size_bytes": rows["size"][allocation],
                "duration_us": lengths(begin, end),
                "allocation_allocated_bytes": rows["totalAllocate"][allocation],
                "allocation_reserved_bytes": rows["totalReserve"][allocation],
                "release_allocated_bytes": _floats_at(rows["totalAllocate"], release),
                "release_reserved_bytes": _floats_at(rows["totalReserve"], release),
                "device_type": _npus(rows["deviceId"][allocation]),
            },
            {"allocation_ps": begin, "release_ps": end},
        )

    # Analyses of torch_npu and msprof, in the units of the JSON and CSV of the same names.

    def analysed(self) -> None:
        """`step_trace_time` (µs), `communication` (µs, ms), `communication_bandwidth` and
        `communication_matrix` (MB, ms, GB/s).
        """
        self._step_trace_time()
        self._communication()
        self._bandwidth()
        self._matrix()

    def _step_trace_time(self) -> None:
        steps = self.read("StepTraceTime", "deviceId step", " ".join(_STEP_PARTS))
        frame: dict[str, Any] = {}
        if "deviceId" in self.base.columns("StepTraceTime"):
            frame["device_id"] = ids(steps["deviceId"])
        frame["step"] = ids(steps["step"])
        frame |= {f"{part}_us": steps[part] for part in _STEP_PARTS}
        self.add("step_trace_time", frame)

    def _communication(self) -> None:
        parts = ("elapse", "transit", "wait", "synchronization", "idle")
        durations = " ".join(f"{part}_time" for part in parts)
        ops = _ops_only(
            self.read("CommAnalyzerTime", "", f"start_timestamp {durations}", _OP_COLUMNS)
        )
        us = ops["start_timestamp"]
        us = np.where(np.isfinite(us) & (us > 0), us, 0)
        is_moment = (us > 0) & (us < 2**52)
        begin = np.where(is_moment, np.rint(np.minimum(us, 2**52) * 1000), NONE).astype(np.int64)
        lengths_ms = {f"{part}_ms": ops[f"{part}_time"] for part in parts}
        self.add("communication", _heads(ops) | lengths_ms, {"start_ps": begin})

    def _bandwidth(self) -> None:
        sent = _ops_only(
            self.read(
                "CommAnalyzerBandwidth",
                "",
                "transit_size transit_time bandwidth large_packet_ratio",
                f"{_OP_COLUMNS} transport_type",
            )
        )
        moved = pd.DataFrame(
            {
                **_heads(sent),
                "transport": sent["transport_type"],
                "transit_bytes": sent["transit_size"] * _MB,
                "transit_ms": sent["transit_time"],
                "gb_per_second": sent["bandwidth"],
                "large_packet_ratio": sent["large_packet_ratio"],
            }
        )
        # One row a size of packets; all but the sizes is stated in each.
        self.add("communication_bandwidth", dict(moved.drop_duplicates(ignore_index=True)))

    def _matrix(self) -> None:
        links = _ops_only(
            self.read(
                "CommAnalyzerMatrix",
                "src_rank dst_rank",
                "transit_size transit_time bandwidth",
                f"{_OP_COLUMNS} transport_type op_name",
            )
        )
        self.add(
            "communication_matrix",
            {
                **_heads(links),
                "source": ids(links["src_rank"]),
                "target": ids(links["dst_rank"]),
                "transport": links["transport_type"],
                "transit_bytes": links["transit_size"] * _MB,
                "transit_ms": links["transit_time"],
                "gb_per_second": links["bandwidth"],
                "op_name": [text or "" for text in links["op_name"]],
            },
        )

    # Tables that have no counterpart in CSV.

    def undocumented(self) -> None:
        """Tables that are not documented, and the documented means of counters, unchanged."""
        summary = self.read("SAMPLE_PMU_SUMMARY", "deviceId metric coreId coreType", "value")
        self.add(
            "SAMPLE_PMU_SUMMARY",
            {
                "device_id": ids(summary["deviceId"]),
                "core_type": self.base.strings.category(summary["coreType"]),
                "core_id": ids(summary["coreId"]),
                "metric": self.base.strings.category(summary["metric"]),
                "value": summary["value"],
            },
        )
        names = []
        for table in self.base.tables:
            if (
                table in self.used | EVENTS | _FACTS
                or table.startswith("ENUM_")
                or "timestampNs" in self.base.columns(table)
            ):
                continue
            self.add(table, self.base.raw(table))
            names.append(printable(table))
        if names:
            self.notes.append(notes.undocumented_tables(self.name, names))


def tables(
    base: Database, host: int, rank: int | None
) -> tuple[dict[str, list[Table]], list[Note]]:
    """The tables of a database by kind, and lines for the receipt.

    Parameters
    ----------
    base : Database
    host : int
        The number of the recording in the run.
    rank : int, optional
    """
    builder = _TableBuilder(base, host, rank)
    steps: tuple[Callable[[], None], ...] = (
        builder.tasks,
        builder.calls,
        builder.memory,
        builder.analysed,
        builder.undocumented,
    )
    for step in steps:
        step()
    return builder.tables, builder.notes


def ids(values: Int64s) -> pd.arrays.IntegerArray:
    """Ids, missing where they are none."""
    none = ~is_set(values) | (values < 0)
    return pd.arrays.IntegerArray(np.where(none, 0, values), none)


def lengths(start: Int64s, end: Int64s) -> Floats:
    """Durations in µs, NaN where there is none."""
    start, end = moments(start), moments(end)
    good = (start != NONE) & (end != NONE) & (end >= start)
    length = np.where(good, end - start, 0) / 1000
    return np.where(good & (length <= LONGEST_US), length, np.nan)


def _paired(
    rows: Mapping[str, npt.NDArray[Any]], freed: npt.NDArray[np.bool_]
) -> tuple[Int64s, Int64s]:
    """The row of each allocation of a graph, and that of its release: the next row of its device,
    address and operator; -1 where there is none.
    """
    keys = np.stack([rows["operatorName"], rows["addr"], rows["deviceId"]])
    order = np.lexsort((rows["timestampNs"], *keys))
    same = (np.diff(keys[:, order], axis=1) == 0).all(axis=0)
    is_release = freed[order]
    followed = np.flatnonzero(same & ~is_release[:-1] & is_release[1:])
    release = np.full(len(order), -1)
    release[order[followed]] = order[followed + 1]
    allocation = order[~is_release]
    return allocation, release[allocation]


def _floats_at(column: Floats, rows: Int64s) -> Floats:
    """The values of rows, NaN for the row -1."""
    return np.where(rows >= 0, column[rows], np.nan)


def _sound(name: str, column: Any) -> Any:
    """A column without impossible numbers, which are unknown as in tables of text."""
    if not isinstance(column, np.ndarray) or column.dtype.kind != "f":
        return column
    limit: float = np.inf
    if name.endswith(("_us", "_ms")):
        limit = LONGEST_US
    elif name.endswith("_bytes"):
        limit = MOST_BYTES
    return np.where(np.isfinite(column) & (np.abs(column) <= limit), column, np.nan)


def _devices(base: Database, device_ids: Int64s) -> Int64s:
    """The devices of collectives, which old versions do not state: then that of the recording, if
    it has one alone.
    """
    if (device_ids >= 0).all():
        return device_ids
    return np.where(device_ids < 0, base.device, device_ids)


def _npus(devices: Int64s) -> pd.Categorical:
    used, inverse = used_of(devices)
    names = [f"NPU:{number}" for number in used.tolist()]
    return category(_only_valid(names, used >= 0), inverse)


def _handles(values: Int64s) -> pd.Categorical:
    """Numbers that are handles, as texts."""
    used, inverse = used_of(values)
    return category(_only_valid(list(map(str, used.tolist())), used != NONE), inverse)


def _only_valid(texts: list[str], valid: npt.NDArray[np.bool_]) -> list[str | None]:
    """The texts, None where they are not valid."""
    result: list[str | None] = [*texts]
    for i in np.flatnonzero(~valid).tolist():
        result[i] = None
    return result


def _heads(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Columns that identify collectives and links."""
    names = {"step": "step", "type": "kind", "hccl_op_name": "name", "group_name": "group"}
    result = {}
    for column, name in names.items():
        result[name] = [text or "" for text in columns[column]]
    return result


def _ops_only(columns: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Without the rows that sum all collectives up."""
    keep = np.array(
        [not str(name).startswith(_TOTAL) for name in columns["hccl_op_name"]], np.bool_
    )
    return {name: column[keep] for name, column in columns.items()}
