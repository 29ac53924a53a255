"""The events of a database of Ascend's profilers, as their timeline in JSON has them: the same
lanes, names, args and arrows.

Names of processes and threads, of calls (`Node@launch`) and of args (`Task Type`, `connection_id`)
are those of `msprof_*.json` and `trace_view.json`, so that what reads those reads this. Counters
are in the units of the database, which their names state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.runs import expand
from nbprof.core.trace import DOUBLE, INT, TEXT, Int32s, Int64s
from nbprof.formats.chrome.build import Builder
from nbprof.formats.chrome.part import ABSENT, BAD, GOOD, TEXT_FIELDS, Part, Rows, Texts, Times
from nbprof.formats.msprof.database import (
    CALLS,
    NONE,
    TASK,
    Database,
    Strings,
    among,
    first_of,
    is_set,
    moments,
    row_of,
    taken,
    tuples_of,
    used_of,
)

HOST = 31
"""What stands for the host where a device is expected."""
_PREFIX = {
    "acl": "AscendCL@",
    "model": "Model@",
    "node": "Node@",
    "communication": "Communication@",
    "runtime": "Runtime@",
}
_CATEGORY = {"op": "cpu_op", "trace": "python_function", "mstx": "mstx"}
_OVERLAP = {
    "COMPUTE": "Computing",
    "COMMUNICATION": "Communication",
    "COMM_NOT_OVERLAP_COMP": "Communication(Not Overlapped)",
    "FREE": "Free",
}
_OVERLAP_KINDS = Strings(np.arange(len(_OVERLAP)), np.array(list(_OVERLAP), object))
"""The kinds by number, for databases without ENUM_OVERLAP_ANALYSIS_TYPE."""
_STEP = "ProfilerStep#"
# By table: the process that its samples are shown as.
_COUNTERS = {
    "AICORE_FREQ": "AI Core Freq",
    "NPU_MEM": "NPU MEM",
    "ACC_PMU": "Acc PMU",
    "SOC_BANDWIDTH_LEVEL": "Stars Soc Info",
    "QOS": "QoS",
    "ROCE": "RoCE",
    "PCIE": "PCIe",
    "CPU_USAGE": "CPU Usage",
    "HOST_MEM_USAGE": "Memory Usage",
    "HOST_DISK_USAGE": "Disk Usage",
    "HOST_NETWORK_USAGE": "Network Usage",
}
_NO_COUNTERS = {"NPU_OP_MEM", "NPU_MODULE_MEM", "COMMUNICATION_TASK_INFO", "TASK_PMU_INFO"}
_OF_TEXTS = {"type", "mode", "eventName", "coreType", "name"}
_OF_NUMBERS = {
    "hbmId": "",
    "llcId": "",
    "cpuId": "",
    "coreId": "",
    "accId": "",
    "portId": "port ",
    "funcId": "port ",
    "dieId": "Die ",
}
_SORT = {
    "Python": 0,
    "Python GC": 1,
    "CANN": 7,
    "mstx": 8,
    "Ascend Hardware": 13,
    "AI Core Freq": 14,
    "Communication": 23,
    "Overlap Analysis": 29,
}
_UNIT = (
    (re.compile(r"freq$"), "MHz"),
    (
        re.compile(
            r"(bandwidth|throughput|^read|^write|ByteRate|speed|Bandwidth)$|^(readRate|writeRate)$"
            r"|^[rt]x(Post|Nonpost|Cpl)(Min|Max|Avg)$",
            re.IGNORECASE,
        ),
        "B/s",
    ),
    (re.compile(r"PacketRate$"), "packets/s"),
    (re.compile(r"Latency(Min|Max|Avg)$"), "ns"),
    (re.compile(r"^(ddr|hbm)$"), "B"),
)


@dataclass
class Coded:
    """An arg whose values are texts, by code; -1 for none."""

    codes: Int32s


class _Events:
    """Collects the events of one database as parts of a Chrome trace, and the names of its
    processes and threads.
    """

    def __init__(self) -> None:
        self.texts = Texts()
        self.parts: list[Part] = []
        self.process: dict[str, tuple[str, str, int]] = {}
        self.thread: dict[tuple[str, str], tuple[str, int]] = {}
        self._lanes: list[tuple[int, int]] = []
        self._numbers: dict[tuple[str, str], int] = {}

    def lane(
        self, process: str, tid: str, thread: str = "", device: int = HOST, sort: int = 0
    ) -> int:
        """The number of a lane: a thread of a process, of which there is one for each device."""
        pid = process if device == HOST else f"{process} {device}"
        key = (pid, tid)
        number = self._numbers.get(key)
        if number is None:
            label = "CPU" if device == HOST else f"NPU {device}"
            self.process.setdefault(pid, (process, label, _SORT.get(process, 20)))
            self.thread[key] = (thread, sort)
            number = self._numbers[key] = len(self._lanes)
            self._lanes.append((self.texts[pid], self.texts[tid]))
        return number

    def threads(self, process: str, tids: Int64s) -> Int64s:
        """Lanes of threads whose process and number are the halves of one: the high and the low 32
        bits.
        """
        used, inverse = used_of(tids)
        several = len(set((used >> 32).tolist())) > 1
        lanes = []
        for ident in used.tolist():
            tid = ident & 0xFFFFFFFF
            thread = "Thread" if ident == NONE else f"Thread {tid}"
            if several:
                thread = f"{ident >> 32} {thread}"
            lanes.append(self.lane(process, str(tid), thread, sort=tid))
        return _by_row(lanes, inverse)

    def add(
        self,
        phase: str,
        lane: Int64s,
        name: Int32s | int,
        start: Int64s,
        end: Int64s | None = None,
        cat: str | Int32s = "",
        args: Mapping[str, Any] | None = None,
        top: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds events of one phase; `NONE` is a time or number that there is not."""
        count = len(start)
        if not count:
            return
        begin = moments(start)
        stop = start if end is None else moments(end)
        category: int | Int32s = -1
        if not isinstance(cat, str):
            category = cat
        elif cat:
            category = self.texts[cat]
        pid, tid = np.array(self._lanes, np.int32).reshape(-1, 2)[lane].T
        text = {"name": name, "cat": category, "pid": pid, "tid": tid}
        begun, ended = begin != NONE, stop != NONE
        length = np.where(begun & ended, stop - np.where(begun, begin, 0), 0)
        zeros = np.zeros(count, np.int16)
        begin_state = np.where(begun, GOOD, BAD).astype(np.uint8)
        end_state = np.where(ended, GOOD, ABSENT).astype(np.uint8)
        self.parts.append(
            Part(
                offset=np.zeros(count, np.int64),
                phase=np.full(count, ord(phase), np.uint8),
                text={field: np.full(count, text[field], np.int32) for field in TEXT_FIELDS},
                start=Times(np.where(begun, begin, 0), zeros, begin_state),
                length=Times(length, zeros, end_state),
                top=_filled(top or {}),
                args=_filled(args or {}),
                texts=(),
            )
        )

    def arrows(
        self, category: str, ident: Int64s, lane: Int64s, time: Int64s, *, end: bool
    ) -> None:
        """Points of arrows, each within the event that it is at."""
        there = moments(time) != NONE
        ident, lane, time = ident[there], lane[there], time[there]
        phase = np.full(len(ident), self.texts["e"], np.int32)
        self.add(
            "f" if end else "s",
            lane,
            self.texts[category],
            time,
            cat=category,
            top={"id": ident, "bp": Coded(phase)},
        )


def _filled(columns: Mapping[str, Any]) -> dict[str, Rows]:
    """The rows of args; without the args that no event has."""
    result = {}
    for key, values in columns.items():
        rows = _rows(values)
        if len(rows):
            result[key] = rows
    return result


def _rows(values: Int64s | Coded | npt.NDArray[np.float64]) -> Rows:
    if isinstance(values, Coded):
        kind, column, valid = TEXT, values.codes.astype(np.int64), values.codes >= 0
    elif values.dtype.kind == "f":
        kind, column, valid = DOUBLE, values.astype(np.float64).view(np.int64), np.isfinite(values)
    else:
        kind, column, valid = INT, values.astype(np.int64), values != NONE
    rows = np.flatnonzero(valid)
    return Rows(rows.astype(np.int32), np.full(len(rows), kind, np.uint8), column[rows])


def _by_row(values: Sequence[int], inverse: Int64s) -> Int64s:
    """The value of each row by its place among distinct ones, of which there may be none."""
    return np.array(values or [0], np.int64)[inverse]


def _ids(values: Int64s) -> Int64s:
    """Ids without those that mean none."""
    return np.where(is_set(values), values, NONE)


def add(base: Database, builder: Builder, host: str) -> bool:
    """Adds the events of a database to a builder; False where it has none."""
    reader = _EventReader(base)
    reader.tasks()
    reader.collectives()
    reader.calls()
    reader.program()
    reader.marks()
    reader.other_units()
    reader.counters()
    events = reader.events
    if not events.parts:
        return False
    texts = list(events.texts)
    for part in events.parts:
        part.texts = texts
    builder.add(host, events.parts, 0)
    # A builder finds names in events of metadata, of which a database has none.
    names, code = builder.files[-1].names, builder.texts
    for pid, (name, label, sort) in events.process.items():
        names.process[code[pid]] = name
        names.labels[code[pid]] = label
        names.process_sort[code[pid]] = sort
    for (pid, tid), (thread, sort) in events.thread.items():
        names.thread[code[pid], code[tid]] = thread
        names.thread_sort[code[pid], code[tid]] = sort
    return True


class _EventReader:
    """Events and lanes built from the tables of one database."""

    def __init__(self, base: Database) -> None:
        self.base = base
        self.events = _Events()
        self.strings = base.strings
        self.task = base.read("TASK", TASK)
        self.parts = base.read(
            "COMMUNICATION_TASK_INFO",
            "name globalTaskId timestampNs taskType planeId groupName notifyId srcRank dstRank"
            " transportType size dataType linkType opId",
            "bandwidth",
        )
        # Start of the device work of a connection, for the arrows to it.
        self.work: list[tuple[Int64s, Int64s, Int64s]] = []

    def text(self, ids: Int64s) -> Coded:
        return Coded(self.strings.codes(ids, self.events.texts))

    def enum(self, table: str, ids: Int64s) -> Coded:
        """Names of an enumeration; N/A is none."""
        codes = self.base.enum(table).codes(_ids(ids), self.events.texts)
        return Coded(np.where(codes == self.events.texts["N/A"], -1, codes))

    def tasks(self) -> None:
        """Tasks on the streams of the devices."""
        task, events = self.task, self.events
        count = len(task["startNs"])
        if not count:
            return
        name = self.base.task_names
        pairs, inverse = tuples_of(np.maximum(task["deviceId"], 0), task["streamId"])
        lanes = []
        for device, stream in pairs:
            name_of_stream = f"Stream {stream}"
            lanes.append(
                events.lane("Ascend Hardware", str(stream), name_of_stream, device, stream)
            )
        lane = _by_row(lanes, inverse)
        copies = self.base.read("MEMCPY_INFO", "globalTaskId size memcpyOperation")
        copy_rows = first_of(copies["globalTaskId"], task["globalTaskId"])
        size = taken(copies["size"], copy_rows)
        operation = taken(copies["memcpyOperation"], copy_rows)
        names = self.strings
        if "ENUM_MEMCPY_OPERATION" in self.base.tables:
            names = self.base.enum("ENUM_MEMCPY_OPERATION")
        args = {
            "Model Id": task["modelId"],
            "Task Type": self.text(task["taskType"]),
            "Physic Stream Id": task["streamId"],
            "Task Id": task["taskId"],
            "Subtask Id": _ids(task["contextId"]),
            "connection_id": _ids(task["connectionId"]),
            "size(B)": size,
            "operation": Coded(names.codes(operation, events.texts)),
        }
        code = self.strings.codes(name, events.texts, "task")
        events.add("X", lane, code, task["startNs"], task["endNs"], args=args)
        self.work.append((_ids(task["connectionId"]), lane, task["startNs"]))

    def collectives(self) -> None:
        """Collectives by group, and the parts of each by plane."""
        base, events = self.base, self.events
        ops = base.read(
            "COMMUNICATION_OP",
            "opName startNs endNs connectionId groupName opId relay retry dataType algType"
            " deviceId",
            "count",
        )
        row, _ = row_of(self.task, self.parts["globalTaskId"], self.parts["timestampNs"])
        of_part = taken(self.task["deviceId"], row)
        by_part = taken(of_part, first_of(self.parts["opId"], ops["opId"]))
        device = np.where(ops["deviceId"] >= 0, ops["deviceId"], by_part)
        device = np.where(device >= 0, device, max(base.device, 0))
        groups, inverse = tuples_of(device, ops["groupName"])
        order_of = {key: nth * 1000 for nth, key in enumerate(groups)}
        texts = self.strings.texts(np.array([group for _, group in groups], np.int64))
        lanes = []
        for key, text in zip(groups, texts, strict=True):
            title, order = f"Group {text or key[1]} Communication", order_of[key]
            lanes.append(events.lane("Communication", str(order), title, key[0], order))
        lane = _by_row(lanes, inverse)
        count = np.nan_to_num(ops["count"], nan=np.inf)
        args = {
            "connection_id": _ids(ops["connectionId"]),
            "data_type": self.enum("ENUM_HCCL_DATA_TYPE", ops["dataType"]),
            "alg_type": self.text(ops["algType"]),
            "count": np.where(np.abs(count) < 2.0**53, count, NONE).astype(np.int64),
            "relay": ops["relay"],
            "retry": ops["retry"],
        }
        name = self.strings.codes(ops["opName"], events.texts, "collective")
        events.add("X", lane, name, ops["startNs"], ops["endNs"], args=args)
        self.work.append((_ids(ops["connectionId"]), lane, ops["startNs"]))
        self._planes(row, order_of)

    def _planes(self, row: Int64s, order_of: Mapping[tuple[int, ...], int]) -> None:
        events = self.events
        rows = np.flatnonzero(row >= 0)
        if not len(rows):
            return
        columns = {key: column[rows] for key, column in self.parts.items()}
        task = {key: column[row[rows]] for key, column in self.task.items()}
        keys, inverse = tuples_of(
            np.maximum(task["deviceId"], 0), columns["groupName"], columns["planeId"]
        )
        lanes = []
        for device, group, plane in keys:
            sort = order_of.get((device, group), 0) + 1 + min(max(plane, 0), 998)
            lanes.append(
                events.lane("Communication", f"{group} {plane}", f"Plane {plane}", device, sort)
            )
        args = {
            "notify_id": _ids(columns["notifyId"]),
            "stream id": task["streamId"],
            "task id": task["taskId"],
            "task type": self.text(columns["taskType"]),
            "src rank": columns["srcRank"],
            "dst rank": columns["dstRank"],
            "transport type": self.enum("ENUM_HCCL_TRANSPORT_TYPE", columns["transportType"]),
            "size(Byte)": columns["size"],
            "data type": self.enum("ENUM_HCCL_DATA_TYPE", columns["dataType"]),
            "link type": self.enum("ENUM_HCCL_LINK_TYPE", columns["linkType"]),
            "bandwidth(B/s)": columns["bandwidth"],
        }
        name = self.strings.codes(columns["name"], events.texts, "part")
        events.add("X", _by_row(lanes, inverse), name, task["startNs"], task["endNs"], args=args)

    def calls(self) -> None:
        """Calls into CANN, and the arrows to what they started."""
        events = self.events
        calls = self.base.read("CANN_API", CALLS)
        pairs, inverse = tuples_of(calls["type"], calls["name"])
        codes, levels = [], []
        texts = self.strings.texts(np.array([name for _, name in pairs], np.int64))
        for (kind, _), text in zip(pairs, texts, strict=True):
            level = self.base.levels.get(kind, str(kind))
            codes.append(events.texts[_PREFIX.get(level, "") + (text or level)])
            levels.append(events.texts[level])
        lane = events.threads("CANN", calls["globalTid"])
        ident = _ids(calls["connectionId"])
        level_of_row = _by_row(levels, inverse).astype(np.int32)
        args = {"level": Coded(level_of_row), "connection_id": ident}
        name_of_row = _by_row(codes, inverse).astype(np.int32)
        events.add("X", lane, name_of_row, calls["startNs"], calls["endNs"], args=args)
        self.call = (ident, lane, calls["startNs"])
        self._linked("HostToDevice", self.call)

    def _linked(self, category: str, starts: tuple[Int64s, Int64s, Int64s]) -> None:
        """Arrows from calls to the work that has the same number of a connection."""
        ident, lane, time = starts
        none = np.zeros(0, np.int64)
        parts = [(none, none, none), *self.work]
        work = [np.concatenate(column) for column in zip(*parts, strict=True)]
        for (ids, lanes, times), other_ids, end in (
            ((ident, lane, time), work[0], False),
            (tuple(work), ident, True),
        ):
            on = among(ids, other_ids[other_ids != NONE]) & (ids != NONE)
            self.events.arrows(category, ids[on], lanes[on], times[on], end=end)

    def program(self) -> None:
        """Events of the program that PyTorch recorded: ops, the queue to the device, Python
        functions, and steps.
        """
        events, base = self.events, self.base
        marks = base.read(
            "PYTORCH_API",
            "startNs endNs globalTid connectionId name sequenceNumber fwdThreadId inputDtypes"
            " inputShapes callchainId type",
        )
        lane = events.threads("Python", marks["globalTid"])
        name = self.strings.codes(marks["name"], events.texts, "op")
        texts = list(events.texts)
        kinds, inverse = used_of(marks["type"])
        levels = {**base.levels, NONE: "op"}
        categories, queues = [], []
        for kind in kinds.tolist():
            level = levels.get(kind, "op")
            categories.append(events.texts[_CATEGORY.get(level, "cpu_op")])
            queues.append(level == "queue")
        queue = _by_row(queues, inverse).astype(np.bool_)
        begins = [
            code for code in np.unique(name[queue]) if texts[code].lower().startswith("enqueue")
        ]
        enter = queue & np.isin(name, begins)
        cat = _by_row(categories, inverse).astype(np.int32)
        cat[queue] = events.texts["dequeue"]
        cat[enter] = events.texts["enqueue"]
        args = {
            "Sequence number": marks["sequenceNumber"],
            "Fwd thread id": marks["fwdThreadId"],
            "Input type": self.text(marks["inputDtypes"]),
            "Input Dims": self.text(marks["inputShapes"]),
            "Call stack": Coded(self._stacks(marks["callchainId"])),
        }
        events.add("X", lane, name, marks["startNs"], marks["endNs"], cat, args)
        self._connections(marks, lane, queue, enter)
        self._steps(lane, name)

    def _steps(self, lane: Int64s, name: Int32s) -> None:
        """The steps of the program; they are among its ops, or in a table of their own alone."""
        events = self.events
        marks = {code for text, code in events.texts.items() if text.startswith(_STEP)}
        steps = self.base.read("STEP_TIME", "id startNs endNs")
        if not len(steps["id"]) or (marks and np.isin(name, list(marks)).any()):
            return
        codes = [events.texts[f"{_STEP}{number}"] for number in np.maximum(steps["id"], 0)]
        if len(lane):
            step_lane = int(np.bincount(lane).argmax())
        else:
            step_lane = events.lane("Python", "0", "Steps")
        events.add(
            "X",
            np.full(len(codes), step_lane),
            np.array(codes, np.int32),
            steps["startNs"],
            steps["endNs"],
            "cpu_op",
        )

    def _stacks(self, chains: Int64s) -> Int32s:
        """The stacks of ops, innermost first, as codes of one text each."""
        chains_read = self.base.read("PYTORCH_CALLCHAINS", "id stack stackDepth")
        if not len(chains_read["id"]):
            return np.full(len(chains), -1, np.int32)
        order = np.lexsort((chains_read["stackDepth"], chains_read["id"]))
        lines = self.strings.texts(chains_read["stack"][order])
        used, begins = np.unique(chains_read["id"][order], return_index=True)
        ends = np.append(begins[1:], len(order))
        codes = []
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            stack = ";\n".join(filter(None, lines[begin:end]))
            codes.append(self.events.texts[stack])
        first_rows = first_of(used, chains)
        return np.maximum(taken(np.array(codes, np.int64), first_rows), -1).astype(np.int32)

    def _connections(
        self,
        calls: Mapping[str, Int64s],
        lane: Int64s,
        queue: npt.NDArray[np.bool_],
        enter: npt.NDArray[np.bool_],
    ) -> None:
        """Arrows from ops to device work, from the queue's begin to its end, and from forward to
        backward ops.
        """
        links = self.base.read("CONNECTION_IDS", "id connectionId")
        linked = np.flatnonzero(calls["connectionId"] != NONE)
        order = linked[np.argsort(calls["connectionId"][linked], kind="stable")]
        keys = calls["connectionId"][order]
        first, last = (
            np.searchsorted(keys, links["id"], side="left"),
            np.searchsorted(keys, links["id"], side="right"),
        )
        # Several calls may state one row of links: each gets its connections.
        times = np.minimum(last - first, 1 << 10)
        link, position = expand(first, times)
        row, ident = order[position], links["connectionId"][link]
        of_queue = queue[row]
        begins = of_queue & enter[row]
        for on, end in ((begins, False), (of_queue & ~begins, True)):
            self.events.arrows(
                "async_task_queue", ident[on], lane[row[on]], calls["startNs"][row[on]], end=end
            )
        row, ident = row[~of_queue], ident[~of_queue]
        called = among(ident, self.call[0][self.call[0] != NONE])
        if called.any():
            self._linked(
                "async_npu", (ident[called], lane[row[called]], calls["startNs"][row[called]])
            )
        row, ident = row[~called], ident[~called]
        by_time = np.lexsort((calls["startNs"][row], ident))
        row, ident = row[by_time], ident[by_time]
        begins = np.diff(ident, prepend=ident[:1] - 1) != 0
        twice = among(ident, ident[~begins])
        for on, end in ((begins & twice, False), (~begins, True)):
            self.events.arrows(
                "fwdbwd", ident[on], lane[row[on]], calls["startNs"][row[on]], end=end
            )

    def marks(self) -> None:
        """Ranges and moments that the program marked with mstx."""
        transfers = self.base.read(
            "MSTX_EVENTS", "startNs endNs eventType message globalTid domainId connectionId"
        )
        lane = self.events.threads("mstx", transfers["globalTid"])
        args = {
            "event type": self.enum("ENUM_MSTX_EVENT_TYPE", transfers["eventType"]),
            "domain id": _ids(transfers["domainId"]),
            "connection_id": _ids(transfers["connectionId"]),
        }
        name = self.strings.codes(transfers["message"], self.events.texts, "mark")
        end = np.where(transfers["endNs"] == NONE, transfers["startNs"], transfers["endNs"])
        self.events.add("X", lane, name, transfers["startNs"], end, "mstx", args)

    def other_units(self) -> None:
        """Events that the exporter derived, garbage collection, system calls, and tasks of other
        units.
        """
        base, events = self.base, self.events
        self._overlaps()
        rows = base.read("GC_RECORD", "startNs endNs globalTid")
        lane = events.threads("Python GC", rows["globalTid"])
        events.add("X", lane, events.texts["GC"], rows["startNs"], rows["endNs"], "GC")
        for table, process, column in (
            ("OSRT_API", "OS Runtime API", "name"),
            ("DPU_TASK", "DPU", "opName"),
        ):
            rows = base.read(table, f"startNs endNs globalTid {column}")
            lane = events.threads(process, rows["globalTid"])
            name = self.strings.codes(rows[column], events.texts, "call")
            events.add("X", lane, name, rows["startNs"], rows["endNs"])
        rows = base.read("CCU", "startNs endNs deviceId name args")
        used, inverse = used_of(np.maximum(rows["deviceId"], 0))
        lanes = [events.lane("CCU", "0", "CCU", device) for device in used.tolist()]
        name = self.strings.codes(rows["name"], events.texts, "task")
        args = {"args": self.text(rows["args"])}
        events.add("X", _by_row(lanes, inverse), name, rows["startNs"], rows["endNs"], args=args)

    def _overlaps(self) -> None:
        """Overlaps of computing and communication, as the exporter derived them."""
        base, events = self.base, self.events
        rows = base.read("OVERLAP_ANALYSIS", "deviceId startNs endNs type")
        pairs, inverse = tuples_of(np.maximum(rows["deviceId"], 0), rows["type"])
        enum = base.enum("ENUM_OVERLAP_ANALYSIS_TYPE")
        if not base.columns("ENUM_OVERLAP_ANALYSIS_TYPE"):
            enum = _OVERLAP_KINDS
        texts = enum.texts(np.array([number for _, number in pairs], np.int64))
        lanes, codes = [], []
        for (device, number), text in zip(pairs, texts, strict=True):
            kind = _OVERLAP.get(text or "", text or "")
            lanes.append(events.lane("Overlap Analysis", str(number), kind, device, number))
            codes.append(events.texts[kind])
        name = _by_row(codes, inverse).astype(np.int32)
        events.add("X", _by_row(lanes, inverse), name, rows["startNs"], rows["endNs"])

    def counters(self) -> None:
        """Samples: of each table that has a time and numbers, by what tells its series apart."""
        for table in self.base.tables:
            columns = self.base.columns(table)
            if "timestampNs" not in columns or table in _NO_COUNTERS:
                continue
            process = _COUNTERS.get(table, table)
            keys = [name for name in columns if name in _OF_TEXTS or name in _OF_NUMBERS]
            values = [name for name in columns if name not in (*keys, "timestampNs", "deviceId")]
            samples = self.base.read(
                table, " ".join(["timestampNs", "deviceId", *keys]), " ".join(values)
            )
            args = {_unit(table, name): samples[name] for name in values}
            self._samples(process, keys, samples, args)

    def _samples(
        self,
        process: str,
        keys: list[str],
        samples: dict[str, npt.NDArray[np.int64]],
        args: dict[str, npt.NDArray[np.int64]],
    ) -> None:
        events = self.events
        series, inverse = tuples_of(samples["deviceId"], *(samples[key] for key in keys))
        lanes, codes = [], []
        for device, *notes in series:
            parts = [process]
            for key, value in zip(keys, notes, strict=True):
                if key in _OF_TEXTS:
                    parts.append(self.strings.texts(np.array([value], np.int64))[0] or "")
                elif value not in (NONE, -1):
                    parts.append(f"{_OF_NUMBERS[key]}{value}")
            lanes.append(events.lane(process, "0", "", device if device >= 0 else HOST))
            codes.append(events.texts[" ".join(filter(None, parts))])
        name = _by_row(codes, inverse).astype(np.int32)
        events.add("C", _by_row(lanes, inverse), name, samples["timestampNs"], args=args)


_DOCUMENTED = {
    "NIC",
    "ROCE",
    "LLC",
    "HBM",
    "DDR",
    "HCCS",
    "PCIE",
    "QOS",
    "NPU_MEM",
    "NETDEV_STATS",
    "SAMPLE_PMU_TIMELINE",
    "HOST_DISK_USAGE",
    "HOST_NETWORK_USAGE",
}
_OF_HOST = ("CPU_USAGE", "HOST_MEM_USAGE", "HOST_DISK_USAGE", "HOST_NETWORK_USAGE")


def _unit(table: str, name: str) -> str:
    """Title of a column of samples: its name and unit, where these are documented."""
    if table == "AICORE_FREQ" and name == "freq":
        return "MHz"
    if name == "usage" and table in _OF_HOST:
        return "usage(%)"
    if table in _DOCUMENTED and name != "usage":
        for pattern, unit in _UNIT:
            if pattern.search(name):
                return f"{name}({unit})"
    return name
