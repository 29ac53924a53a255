"""The work of an NPU: kernels on its cores, copies, communication; each with its row in the tables.

`Task Type` decides: the names of operators are the program's own. Waits, records of events and what
the profiler itself runs are no work.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import (
    Collectives,
    DeviceOps,
    Extents,
    Kernels,
    Transfers,
    extents,
    located,
)
from nbprof.core.factorize import unique_rows
from nbprof.core.late_pattern import late_pattern
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects.lookups import host_of_lanes, names_that
from nbprof.dialects.msprof import lanes as on
from nbprof.dialects.msprof.carriers import Spans, carriers

Flags = npt.NDArray[np.bool_]

COMPUTE, COPY, COLLECTIVE, NO_WORK = range(4)
_COMPUTE = late_pattern(
    r"(KERNEL_)?(AI_?CORE|AI_?VECTOR_?CORE|AIVEC|AI_?CPU|MIX_AIC|MIX_AIV|SIMT|AIV)|"
    r"DSA_SQE|DSA|DPU|FFTS_PLUS|FUSION|DVPP\w*",
    re.IGNORECASE,
)
_COPY = late_pattern(r"MEMCPY_ASYNC|MEMCPY|PCIE_DMA_SQE|SDMA_SQE|MEMSET|MEMCPY_\w+", re.IGNORECASE)
_COLLECTIVE = late_pattern(r"HCCL|COMMUNICATION|CCU|HCOM", re.IGNORECASE)
_NAMED_COLLECTIVE = late_pattern(
    r"(?:.*/)?(hcom_|allreduce|allgather|reducescatter|alltoall|broadcast|send_|receive_|"
    r"HcomAll|Hccl)",
    re.IGNORECASE,
)
_CUBE = late_pattern(
    r"matmul|conv\d?d|convolution|gemm|flash_?attention|attentionscore|mmv\d|linear", re.IGNORECASE
)
_NO_CUBE = late_pattern(r"(KERNEL_)?(AI_?VECTOR_?CORE|AI_?CPU|MIX_AIV|AIVEC)")
_NEXT = late_pattern(r"(?:.*/)?[a-z_]*GetNext[^/]*\Z", re.IGNORECASE)
_NARROW = late_pattern(r"(FLOAT16|BF16|BFLOAT16|INT8|UINT8|FLOAT8\w*|HIFLOAT8|DT_BF16)\Z")
_FLOATING = late_pattern(r"FLOAT|BF16|DOUBLE")
_DIRECTION = {
    "host to device": "H2D",
    "device to host": "D2H",
    "device to device": "D2D",
    "host to host": "H2H",
}
_COLUMNS = ("op_type", "task_type", "input_data_types")


def kind_of(task_type: str) -> int:
    """The kind of a task type; `NO_WORK` for waits, marks and unknown types."""
    if _COMPUTE.fullmatch(task_type):
        return COMPUTE
    if _COLLECTIVE.fullmatch(task_type):
        return COLLECTIVE
    if _COPY.fullmatch(task_type):
        return COPY
    return NO_WORK


def _has_text(frame: pd.DataFrame, name: str) -> Flags:
    """True for rows with a text in a column."""
    if name not in frame or not isinstance(frame[name].dtype, pd.CategoricalDtype):
        return np.zeros(len(frame), np.bool_)
    array = frame[name].array
    has_text = np.append(np.asarray(array.categories.astype(str) != "", np.bool_), False)
    return np.asarray(has_text[array.codes], np.bool_)


class Work:
    """The work of all NPUs, by event; arrays are by position in `rows` unless stated otherwise.

    Parameters
    ----------
    trace : Trace
    lane_kinds : uint8[lanes]
    misplaced : int64[k], optional
        Events that begin at a time that cannot be: they are no work.
    """

    def __init__(
        self, trace: Trace, lane_kinds: npt.NDArray[np.uint8], misplaced: Int64s | None = None
    ) -> None:
        self.trace = trace
        self.lane_kinds = lane_kinds
        self._misplaced = np.zeros(0, np.int64)
        if misplaced is not None:
            self._misplaced = misplaced
        lanes = trace.lanes
        self.lane_host: Int32s = host_of_lanes(trace)
        self.lane_device: Int32s = lanes["device"].to_numpy(np.int32)
        self._codes: dict[str, int] = {"": 0}

    @cached_property
    def table(self) -> pd.DataFrame:
        """Facts of the tables on events, one row per event, with texts as codes.

        `listed` is whether the event is in a table of operators.
        """
        parts = []
        for table in self.trace.tables.get("op_summary", []):
            parts.append(self._facts(table.frame, listed=True))
        names = {"kernel_name": "op_name", "kernel_type": "task_type"}
        for table in self.trace.tables.get("task_time", []):
            parts.append(self._facts(table.frame.rename(columns=names), listed=False))
        if not parts:
            columns = ("event", "named", "listed", *_COLUMNS, "grid", "mixed", "mac")
            return pd.DataFrame(columns=columns, dtype=np.int64)
        # Of two rows that tell of one event the first table says more.
        return pd.concat(parts, ignore_index=True).drop_duplicates("event")

    def _facts(self, frame: pd.DataFrame, *, listed: bool) -> pd.DataFrame:
        event = frame["event"].to_numpy(np.int64)
        rows = np.flatnonzero(event >= 0)
        facts: dict[str, object] = {"event": event[rows]}
        for name in _COLUMNS:
            facts[name] = self._coded(frame, name, rows)
        # Of the op it is enough to know that it has a name: there may be a million of them.
        facts["named"] = _has_text(frame, "op_name")[rows]
        facts["listed"] = np.full(len(rows), listed)
        for name, source in (("grid", "block_num"), ("mixed", "mix_block_num")):
            numbers = np.full(len(rows), -1)
            if source in frame:
                numbers = frame[source].fillna(-1).to_numpy(np.int64)[rows]
            facts[name] = numbers
        facts["mac"] = np.full(len(rows), np.nan)
        for name in ("mac_ratio", "aic_mac_ratio"):
            if name in frame and frame[name].dtype.kind == "f":
                facts["mac"] = frame[name].to_numpy(np.float64)[rows]
        return pd.DataFrame(facts)

    @cached_property
    def texts(self) -> list[str]:
        """The texts of `table` by code."""
        _ = self.table
        return list(self._codes)

    def _coded(self, frame: pd.DataFrame, name: str, rows: Int64s) -> Int64s:
        codes = self._codes
        if name not in frame or not isinstance(frame[name].dtype, pd.CategoricalDtype):
            return np.zeros(len(rows), np.int64)
        array = frame[name].array
        code_of_category = np.zeros(len(array.categories) + 1, np.int64)
        for category, text in enumerate(map(str, array.categories)):
            code_of_category[category] = codes.setdefault(text, len(codes))
        return np.asarray(code_of_category[array.codes[rows]], np.int64)

    def _of_table(self, column: str, missing: int) -> Int64s:
        """int64[events]: a column of `table` by event."""
        values = np.full(len(self.trace.events), missing, np.int64)
        values[self.table["event"].to_numpy(np.int64)] = self.table[column].to_numpy(np.int64)
        return values

    @cached_property
    def stated_kind(self) -> npt.NDArray[np.uint8]:
        """uint8[events]: kind of each event by type and lane, including carriers of other work."""
        trace, events = self.trace, self.trace.events
        kind = np.full(len(events), NO_WORK, np.uint8)
        lane = np.zeros(0, np.uint8)
        if len(events):
            lane = self.lane_kinds[events.lane]
        stream = lane == on.STREAM
        task_type = self._of_table("task_type", -1)
        by_table = np.array([*map(kind_of, self.texts), NO_WORK], np.uint8)[task_type]
        arg = trace.text_arg("Task Type")
        used = pd.unique(arg)
        of_arg = np.full(int(used.max(initial=-1)) + 2, NO_WORK, np.uint8)
        for code in used.tolist():
            if code >= 0:
                of_arg[code] = kind_of(str(trace.strings[code]))
        by_arg = of_arg[arg]
        kind[stream] = np.where(by_table[stream] != NO_WORK, by_table[stream], by_arg[stream])
        # The lowest level of recording states no type: events with a name in the table of kernels
        # are kernels. So are those in the table of operators, whatever unit the timeline states.
        named, listed = self._of_table("named", 0) > 0, self._of_table("listed", 0) > 0
        untyped = stream & (task_type == 0) & named & ((arg < 0) | (listed & (by_arg == NO_WORK)))
        kind[untyped] = COMPUTE
        names = np.unique(events.name[untyped])
        collective = names[names_that(_NAMED_COLLECTIVE.match, trace.names[names])]
        kind[untyped & np.isin(events.name, collective)] = COLLECTIVE
        kind[lane == on.COMMUNICATION] = COLLECTIVE
        kind[self._misplaced] = NO_WORK
        kind[self._parts_of_collectives(kind)] = NO_WORK
        return kind

    @cached_property
    def kind(self) -> npt.NDArray[np.uint8]:
        """uint8[events]: COMPUTE, COPY, COLLECTIVE or NO_WORK."""
        kind = self.stated_kind.copy()
        kind[self.carriers] = NO_WORK
        return kind

    @cached_property
    def carriers(self) -> Int64s:
        """Tasks that only carry collectives or parts of operators, ascending.

        Candidates are tasks that are named by their type, and those that the operators of their
        device do not include.
        """
        trace, kind = self.trace, self.stated_kind
        compute = np.flatnonzero(kind == COMPUTE)
        unlisted = self._of_table("listed", 0)[compute] == 0
        names, device = trace.events.name[compute], self._device_key(compute)
        used = pd.unique(names)
        of_type = used[names_that(lambda name: kind_of(name) == COMPUTE, trace.names[used])]
        no_operator = unlisted & (np.isin(names, of_type) | np.isin(device, device[~unlisted]))
        tasks: Int64s = compute[no_operator]
        collectives = np.flatnonzero(kind == COLLECTIVE)
        if not len(tasks):
            return tasks
        return carriers(
            trace,
            Spans(tasks, self._device_key(tasks)),
            Spans(collectives, self._device_key(collectives)),
            np.flatnonzero(self.lane_kinds[trace.events.lane] == on.STREAM),
        )

    def _device_key(self, rows: Int64s) -> Int64s:
        """A number of the device of each event that no other device of any host has."""
        number: Int64s = (self.host(rows).astype(np.int64) << 16) + self.device(rows)
        return number

    def _parts_of_collectives(self, kind: npt.NDArray[np.uint8]) -> Int64s:
        """Copies that move the data of a collective: during one on their device, without a
        direction.
        """
        copies, collectives = np.flatnonzero(kind == COPY), np.flatnonzero(kind == COLLECTIVE)
        copies = copies[self.trace.text_arg("operation")[copies] < 0]
        if not len(copies) or not len(collectives):
            return copies[:0]
        events = self.trace.events
        of_collective, of_copy = self._device_key(collectives), self._device_key(copies)
        parts = np.zeros(len(copies), np.bool_)
        for device in np.unique(of_copy).tolist():
            rows = collectives[of_collective == device]
            rows = rows[np.argsort(events.start[rows], kind="stable")]
            on_device = np.flatnonzero(of_copy == device)
            begun = np.searchsorted(
                events.start[rows], events.start[copies[on_device]], side="right"
            )
            # Two collectives that touch are not merged: a copy over both is of neither.
            reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(events.end[rows]))
            parts[on_device] = events.end[copies[on_device]] <= reach[begun]
        return np.asarray(copies[parts], np.int64)

    @cached_property
    def rows(self) -> Int64s:
        """Events that are work, ascending."""
        return np.flatnonzero(self.kind != NO_WORK)

    def rows_of(self, kind: int) -> Int64s:
        """Events of a kind of work, ascending."""
        return np.flatnonzero(self.kind == kind)

    def note_lanes(self) -> None:
        """Notes the work of each stream: "compute", "copies", or "waits" if it has none."""
        trace = self.trace
        lane = trace.events.lane
        count = len(trace.lanes)
        notes = np.full(count, "waits", object)
        notes[np.bincount(lane[self.rows_of(COPY)], minlength=count) > 0] = "copies"
        notes[np.bincount(lane[self.rows_of(COMPUTE)], minlength=count) > 0] = "compute"
        streams = (self.lane_kinds == on.STREAM) & (trace.lanes["events"].to_numpy() > 0)
        trace.lanes["note"] = np.where(streams, notes, trace.lanes["note"].to_numpy(object))

    @cached_property
    def typed(self) -> bool:
        """True if any kernel states the types of its inputs."""
        return bool((self._of_table("input_data_types", 0)[self.rows_of(COMPUTE)] > 0).any())

    def host(self, rows: Int64s) -> Int32s:
        """The host of events."""
        return self.lane_host[self.trace.events.lane[rows]]

    def device(self, rows: Int64s) -> Int32s:
        """The device of events."""
        return self.lane_device[self.trace.events.lane[rows]]

    @cached_property
    def cls(self) -> Int64s:
        """Step class of each piece of work."""
        narrow = np.append(names_that(_is_narrow, self.texts), False)
        kind = self.kind[self.rows]
        step_classes = np.where(
            narrow[self._of_table("input_data_types", -1)[self.rows]],
            act.DEVICE_COMPUTE_16,
            act.DEVICE_COMPUTE_32,
        )
        step_classes = np.where(kind == COLLECTIVE, act.DEVICE_COLLECTIVES, step_classes)
        step_classes[self._takes_batch & (kind == COMPUTE)] = act.HOST_WAIT_INPUT
        copies = np.flatnonzero(kind == COPY)
        direction = self.directions(self.rows[copies])
        classes = {"H2D": act.HOST_TO_DEVICE, "D2H": act.DEVICE_TO_HOST}
        step_classes[copies] = [classes.get(text, act.DEVICE_TO_DEVICE) for text in direction]
        return step_classes.astype(np.int64)

    @cached_property
    def _takes_batch(self) -> Flags:
        """True for work that takes the next batch from the queue: the AI CPU only waits there."""
        names = names_that(
            lambda name: "getnext" in name.lower() and _NEXT.match(name), self.trace.names
        )
        types = names_that(_NEXT.match, self.texts)
        takes_batch: Flags = (
            names[self.trace.events.name[self.rows]]
            | types[self._of_table("op_type", 0)[self.rows]]
        )
        return takes_batch

    def directions(self, rows: Int64s) -> list[str]:
        """`H2D`, `D2H`, `D2D`, ... of copies, `copy` where the direction is not stated."""
        operations = self.trace.texts(self.trace.text_arg("operation")[rows])
        return [_DIRECTION.get(operation.lower(), "copy") for operation in operations]

    def named(self, rows: Int64s) -> tuple[list[str], list[str], Int64s]:
        """Unique pairs of op and type of events, and the pair of each event.

        If no table has the type of an event, its name decides.
        """
        trace = self.trace
        name = trace.events.name[rows].astype(np.int64)
        kind = self._of_table("op_type", 0)[rows]
        first, code = unique_rows(name, kind, self.kind[rows].astype(np.int64))
        ops, types = [], []
        for i in first.tolist():
            op = str(trace.names[name[i]])
            type_of_name = op_type
            if self.kind[rows[i]] == COLLECTIVE:
                type_of_name = plain
            ops.append(op)
            types.append(self.texts[kind[i]] or type_of_name(op))
        return ops, types, code

    def kernels(self, activity: act.Activity) -> tuple[Kernels, list[dict[str, object]]]:
        """The `kernels` table: types of operators, the node of the graph as op, blocks as grid."""
        rows = self.rows_of(COMPUTE)
        grid, mixed = self._of_table("grid", -1)[rows], self._of_table("mixed", -1)[rows]
        first, details = unique_rows(grid, mixed)
        shapes: list[dict[str, object]] = []
        for row in first.tolist():
            shapes.append(
                {
                    "registers": None,
                    "static_shared_bytes": None,
                    "dynamic_shared_bytes": None,
                    "block": "",
                    "grid": _blocks(int(grid[row]), int(mixed[row])),
                }
            )
        ops, types, pair = self.named(rows)
        kernel, op = activity.kernel_names.encode(types), activity.ops.encode(ops)
        cube = names_that(_CUBE.search, types) | names_that(_CUBE.search, ops)
        uses = self._uses_cube(rows)
        frame = Kernels(
            event=rows,
            host=self.host(rows),
            device=self.device(rows),
            duration=self.trace.events.duration[rows],
            kernel=kernel[pair],
            op=op[pair],
            details=details.astype(np.int32),
            eligible=(cube[pair] | (uses == 1)).astype(np.int8),
            tensor_core=uses,
            occupancy=np.full(len(rows), np.nan),
        )
        return frame, shapes

    def _uses_cube(self, rows: Int64s) -> npt.NDArray[np.int8]:
        """1 if a kernel used the Cube (matrix unit), by its counters or cores; 0 if not, -1
        unknown.
        """
        mac = np.full(len(self.trace.events), np.nan)
        mac[self.table["event"].to_numpy(np.int64)] = self.table["mac"].to_numpy(np.float64)
        mac = mac[rows]
        never = np.append(names_that(_NO_CUBE.fullmatch, self.texts), False)
        without = never[self._of_table("task_type", -1)[rows]]
        with np.errstate(invalid="ignore"):
            return np.where(without, 0, np.where(np.isnan(mac), -1, mac > 0)).astype(np.int8)

    def device_ops(self, activity: act.Activity) -> DeviceOps:
        """The `device_ops` table: each piece of work counts for its node of the graph."""
        rows, events = self.rows, self.trace.events
        ops, types, pair = self.named(rows)
        op, kind = activity.ops.encode(ops), activity.types.encode(types)
        return DeviceOps(
            **located(events, rows, self.host(rows), device=self.device(rows)),
            op=op[pair],
            type=kind[pair],
            eager=np.zeros(len(rows), np.bool_),
            own=events.duration[rows],
            part=op[pair],
            tensor_core=np.full(len(rows), -1, np.int8),
        )

    def transfers(self, activity: act.Activity) -> Transfers:
        """The `transfers` table."""
        rows, events = self.rows_of(COPY), self.trace.events
        return Transfers(
            **located(events, rows, self.host(rows), device=self.device(rows)),
            kind=activity.texts.encode(self.directions(rows)),
            bytes=self.trace.arg("size(B)")[rows],
        )

    def collectives(self, activity: act.Activity) -> Collectives:
        """The `collectives` table."""
        rows, events = self.rows_of(COLLECTIVE), self.trace.events
        first, code = unique_rows(events.name[rows].astype(np.int64))
        names = map(str, self.trace.names[events.name[rows[first]]])
        name = activity.texts.encode(map(plain, names))
        return Collectives(
            **located(events, rows, self.host(rows), device=self.device(rows)),
            name=name[code],
            bytes=self._bytes(rows),
            group_size=self.trace.arg("rank_size")[rows].astype(np.int32),
        )

    def _bytes(self, rows: Int64s) -> Int64s:
        """Elements times width, -1 where either is not stated."""
        widths = {
            "INT8": 1,
            "UINT8": 1,
            "FP16": 2,
            "FLOAT16": 2,
            "BF16": 2,
            "BFP16": 2,
            "INT16": 2,
            "FP32": 4,
            "FLOAT": 4,
            "INT32": 4,
        }
        widths |= {"UINT16": 2, "UINT32": 4, "INT64": 8, "UINT64": 8, "FP64": 8, "DOUBLE": 8}
        types = self.trace.texts(self.trace.text_arg("data_type")[rows])
        width = np.array([widths.get(name, 0) for name in types], np.int64)
        count = self.trace.arg("count")[rows]
        return np.where((width > 0) & (count >= 0), width * count, -1)

    def extents(self) -> Extents:
        """First start and last end of each device."""
        events = self.trace.events
        return extents(
            self.host(self.rows),
            self.device(self.rows),
            events.start[self.rows],
            events.end[self.rows],
        )


def _blocks(grid: int, mixed: int) -> str:
    if grid < 0:
        return ""
    if mixed <= 0:
        return str(grid)
    return f"{grid} + {mixed}"


def _is_narrow(types: str) -> bool:
    """True for inputs of 16 bits or less: of floats, if there are any."""
    names = list(filter(None, re.split(r"[;,]", types)))
    names = list(filter(_FLOATING.search, names)) or names
    return bool(names) and all(map(_NARROW.search, names))


def op_type(name: str) -> str:
    """Operator type of a graph's node: `MatMulV2` of "Gradients/.../MatMulV2-op2"."""
    last = name.rpartition("/")[2] or name
    return re.sub(r"(-op\d+|_\d+)+\Z", "", last) or last


def plain(name: str) -> str:
    """Operation of a collective: `hcom_allReduce` of "hcom_allReduce__674_0_1"."""
    last = name.rpartition("/")[2]
    return re.sub(r"(-op)?[_\d]*\d\Z", "", last).rstrip("_") or last
