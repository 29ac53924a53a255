"""Turns the Trace of Ascend's profilers (msprof, torch_npu, MindSpore) into activity tables."""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Calls, HostOps, Launches, Ranges, located
from nbprof.activity.tables import Work as WorkTable
from nbprof.activity.unit import Unit
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects import named_ranges, torchnames
from nbprof.dialects import notes as shared_notes
from nbprof.dialects.environment import environment
from nbprof.dialects.gpu.steps import Steps, markers, spread, spread_all
from nbprof.dialects.lookups import codes_by_name, names_that
from nbprof.dialects.msprof import corrupt, notes
from nbprof.dialects.msprof import lanes as on
from nbprof.dialects.msprof import memory as msprof_memory
from nbprof.dialects.msprof import steps as msprof_steps
from nbprof.dialects.msprof.work import COLLECTIVE, COMPUTE, COPY, Work
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import MINDSPORE, PYTORCH, UNKNOWN

_CALLS = {
    "launch": re.compile(
        r"@launch|launchkernel|KernelLaunch|aclopExecute|ModelExecute|aclrtLaunch|(?:En|De)queue@",
        re.IGNORECASE,
    ),
    "sync": re.compile(r"synchronize|WaitEvent|WaitStream", re.IGNORECASE),
    "copy": re.compile(r"Memcpy|Memset", re.IGNORECASE),
    "allocate": re.compile(r"Malloc|aclrtFree|MemAlloc|FreePhysical|rtFree", re.IGNORECASE),
}
_COMPILE = re.compile(r"aclopCompile|CompileOp|_Tiling\b|OpCompile", re.IGNORECASE)
_CLASS_OF_CALL = {
    "launch": act.HOST_PREPARE,
    "copy": act.HOST_PREPARE,
    "sync": act.HOST_WAIT_DEVICE,
    "allocate": act.HOST_COMPUTE,
    "other": act.HOST_COMPUTE,
}


def interpret(trace: Trace) -> act.Activity:
    """The activity of one profile; fills the kinds of `trace.lanes`.

    Each table is computed when it is first asked for.
    """
    ascend = _Ascend(trace, on.name_lanes(trace))
    ascend.work.note_lanes()
    return ascend.activity()


def call_kind(name: str) -> str:
    """The kind of a call into CANN: launch, copy, sync, allocate, other."""
    for kind, pattern in _CALLS.items():
        if pattern.search(name):
            return kind
    return "other"


def _number(value: object) -> int | None:
    """A stated integer of at most six digits, as a number or a text; None for everything else."""
    if not isinstance(value, (int, str)):
        return None
    text = str(value)
    if text.isascii() and text.isdecimal() and len(text) <= 6:
        return int(text)
    return None


class _Ascend:
    """One Ascend profile on its way into the tables."""

    def __init__(self, trace: Trace, lane_kinds: npt.NDArray[np.uint8]) -> None:
        self.trace = trace
        self.lane_kinds = lane_kinds
        self.unusable, self.mended = corrupt.mend(trace, Work(trace, lane_kinds))
        self.work = Work(trace, lane_kinds, self.unusable)
        self.tables: act.Activity

    def activity(self) -> act.Activity:
        """The tables, each to be made when it is asked for."""
        activity = act.Activity(hosts=self.trace.hosts)
        # As the other dialects: the activity holds what makes its tables, and must not be held by
        # it.
        tables = self.tables = weakref.proxy(activity)
        tables.framework = self.framework
        tables.has_device = bool(len(self.work.rows))
        tables.set_hosts_with_ops(
            np.unique(self.work.host(self._rows(on.PYTHON, ("cpu_op",)))).tolist()
        )
        tables.tables = self.trace.tables
        tables.later("environment", lambda: environment(self.trace))
        tables.later("devices", self._devices)
        tables.later(("markers", "group_names", "incomplete", "lost"), lambda: markers(self.steps))
        tables.later("unit", lambda: self.unit)
        tables.later("work", self._work)
        tables.later("host_ops", self._host_ops)
        tables.later("device_ops", lambda: self.work.device_ops(tables))
        tables.later("device_extents", self.work.extents)
        tables.later(("kernels", "launch_shapes"), lambda: self.work.kernels(tables))
        tables.later("transfers", lambda: self.work.transfers(tables))
        tables.later("launches", self._launches)
        tables.later("collectives", lambda: self.work.collectives(tables))
        tables.later("calls", self._calls)
        tables.later("ranges", self._ranges)
        tables.later("allocations", lambda: self._allocations[0])
        tables.later("name_category", self._name_categories)
        tables.later("traits", self._traits)
        tables.later("missing", self._missing)
        tables.later("notes", self._notes)
        return activity

    @cached_property
    def framework(self) -> Framework:
        """The framework that the files show; `UNKNOWN` if they show none."""
        trace = self.trace
        paths = [str(facts.get("path", "")) for facts in self._facts]
        if any(path.endswith("_ascend_ms") for path in paths):
            return MINDSPORE
        if any(str(name).startswith("Default/network") for name in trace.names[:20_000]):
            return MINDSPORE
        of_torch = (self.lane_kinds == on.PYTHON).any()
        of_torch |= any(path.endswith("_ascend_pt") for path in paths)
        of_torch |= not {"operator_details", "step_trace_time"}.isdisjoint(trace.tables)
        return PYTORCH if of_torch else UNKNOWN

    @property
    def _facts(self) -> list[dict[str, Any]]:
        """Facts on each host that its files state."""
        facts = self.trace.metadata.get("ascend")
        if not isinstance(facts, list):
            return []
        return [of_host if isinstance(of_host, dict) else {} for of_host in facts]

    @cached_property
    def _allocations(self) -> tuple[pd.DataFrame, list[Note]]:
        return msprof_memory.allocations(self.trace, self.steps, self.tables)

    @cached_property
    def _call_rows(self) -> Int64s:
        """int64[c]: calls into CANN, and torch_npu's own hand-overs to it."""
        trace = self.trace
        cann = np.zeros(0, np.int64)
        if len(trace.events):
            cann = np.flatnonzero(self.lane_kinds[trace.events.lane] == on.CANN)
        return np.sort(np.concatenate([cann, self._rows(on.PYTHON, ("enqueue", "dequeue"))]))

    def _rows(self, lane_kind: int, categories: tuple[str, ...]) -> Int64s:
        """Events of some categories on lanes of a kind, ascending."""
        trace = self.trace
        cat = trace.text_arg("cat")
        used = pd.unique(cat)
        codes = used[names_that(categories.__contains__, trace.texts(used))]
        return np.flatnonzero(
            np.isin(cat, codes) & (self.lane_kinds[trace.events.lane] == lane_kind)
        )

    @cached_property
    def launch(self) -> Int64s:
        """int64[w]: the last call with the `connection_id` of each piece of work, -1."""
        work, trace = self.work, self.trace
        ident = trace.arg("connection_id")
        calls = self._call_rows[ident[self._call_rows] >= 0]
        none = np.full(len(work.rows), -1, np.int64)
        if not len(calls):
            return none
        left = pd.DataFrame(
            {"host": work.host(work.rows), "id": ident[work.rows], "at": np.arange(len(work.rows))}
        )
        right = pd.DataFrame(
            {
                "host": work.host(calls),
                "id": ident[calls],
                "call": calls,
                "start": trace.events.start[calls],
            }
        )
        right = right.sort_values("start", kind="stable").drop_duplicates(
            ["host", "id"], keep="last"
        )
        merged = left[left["id"] >= 0].merge(right, on=["host", "id"])
        none[merged["at"].to_numpy(np.int64)] = merged["call"].to_numpy(np.int64)
        return none

    @cached_property
    def _units(self) -> tuple[Steps, Unit]:
        return msprof_steps.found_or_estimated(self.trace, self.work, self.launch)

    @property
    def steps(self) -> Steps:
        """The steps of all hosts, or other units if nothing marks steps."""
        return self._units[0]

    @property
    def unit(self) -> Unit:
        """The unit of `steps`."""
        return self._units[1]

    def _work(self) -> WorkTable:
        """The `work` table: work of NPUs by class, of the host, and waits for the input."""
        events, work = self.trace.events, self.work
        ops, calls = self._rows(on.PYTHON, ("cpu_op",)), self._call_rows
        of_call = codes_by_name(
            self.trace, events.name[calls], lambda name: _CLASS_OF_CALL[call_kind(name)]
        )
        gap, gap_host, gap_start, gap_end = msprof_steps.gaps(self.trace, self.steps)
        rows = np.concatenate([work.rows, ops, calls, gap])
        host = np.concatenate([work.host(np.concatenate([work.rows, ops, calls])), gap_host])
        cls = np.concatenate(
            [
                work.cls,
                np.full(len(ops), act.HOST_COMPUTE),
                of_call[events.name[calls]],
                np.full(len(gap), act.HOST_WAIT_INPUT),
            ]
        )
        device = np.full(len(rows), -1, np.int64)
        device[: len(work.rows)] = work.device(work.rows)
        start = np.concatenate([events.start[rows[: len(rows) - len(gap)]], gap_start])
        end = np.concatenate([events.end[rows[: len(rows) - len(gap)]], gap_end])
        span, group, first, last = spread(self.steps, host, start, end)
        return WorkTable(
            event=rows[span],
            host=host[span],
            group=group,
            device=device[span],
            start=first,
            end=last,
            cls=cls[span],
        )

    def _host_ops(self) -> HostOps:
        trace, activity = self.trace, self.tables
        rows = self._rows(on.PYTHON, ("cpu_op",))
        code = trace.events.name[rows]
        op = codes_by_name(trace, code, activity.ops.code)
        kind = codes_by_name(
            trace, code, lambda name: activity.types.code(torchnames.op_type(name))
        )
        loads = codes_by_name(trace, code, torchnames.is_input) > 0
        # Marks of steps are not ops.
        marks = names_that(msprof_steps.MARK.match, trace.names)
        rows = rows[~marks[code]]
        code = trace.events.name[rows]
        return HostOps(
            **located(trace.events, rows, self.work.host(rows), lane=trace.events.lane[rows]),
            op=op[code],
            type=kind[code],
            dataset=loads[code],
            in_dataset=False,
            eager=np.ones(len(rows), np.bool_),
        )

    def _launches(self) -> Launches:
        has_launch = np.flatnonzero(self.launch >= 0)
        event = self.launch[has_launch]
        target = self.work.rows[has_launch]
        launches = Launches(
            event=event,
            host=self.work.host(event),
            target=target,
            op=np.full(len(event), -1, np.int64),
        )
        return launches.take(np.lexsort((target, event)))

    def _ranges(self) -> Ranges:
        """Ranges of mstx or msproftx, on the lanes of their threads' calls into CANN."""
        trace, host = self.trace, self.work.host(np.arange(len(self.trace.events)))
        categories = trace.text_arg("cat")
        used = pd.unique(categories)
        marked = np.isin(categories, used[names_that("mstx".__eq__, trace.texts(used))])
        of_program = self.lane_kinds[trace.events.lane] == on.OTHER
        marked |= (trace.text_arg("event_type") >= 0) & of_program
        rows = np.flatnonzero(marked & (trace.events.duration > 0))
        if not len(rows):
            return Ranges.empty()
        table = named_ranges.table(trace, rows, host, "mstx", self.tables)
        return table.with_(lane=self._calling_lanes(table.lane.astype(np.int64)))

    def _calling_lanes(self, lane: Int64s) -> Int64s:
        """The lane of calls into CANN of the thread of each lane."""
        lanes = self.trace.lanes
        threads = (lanes["host"].astype(str) + "\0" + lanes["tid"].astype(str)).tolist()
        calling = {threads[i]: i for i in np.flatnonzero(self.lane_kinds == on.CANN).tolist()}
        lane_of_calls = [calling.get(thread, i) for i, thread in enumerate(threads)]
        return np.array(lane_of_calls, np.int64)[lane]

    def _calls(self) -> Calls:
        """Calls into CANN, split at the borders of steps; group -1 outside of steps."""
        trace, activity, rows = self.trace, self.tables, self._call_rows
        events = trace.events
        pieces = spread_all(self.steps, self.work.host(rows), events.start[rows], events.end[rows])
        called = events.name[rows]
        kind = codes_by_name(trace, called, lambda name: activity.texts.code(call_kind(name)))
        name = codes_by_name(trace, called, activity.texts.code)
        event = rows[pieces.span]
        return Calls(
            event=event,
            host=self.work.host(event),
            group=pieces.group,
            start=pieces.start,
            end=pieces.end,
            kind=kind[events.name[event]],
            name=name[events.name[event]],
        )

    def _devices(self) -> pd.DataFrame:
        """One row an NPU that worked, else one that is named."""
        rows = []
        for host, name in enumerate(self.trace.hosts):
            described = self._described_devices(host)
            for device in sorted(self._used_devices(host, described)):
                info = described.get(device, {})
                clock = _number(info.get("aic_frequency"))
                rows.append(
                    {
                        "host": name,
                        "device": device,
                        "kind": "NPU",
                        "name": str(info.get("name") or "Ascend NPU"),
                        "cores": _number(info.get("ai_core_num")),
                        "clock_khz": None if clock is None else clock * 1000,
                    }
                )
        return pd.DataFrame(rows, columns=act.DEVICES)

    def _described_devices(self, host: int) -> dict[int, dict[str, object]]:
        """Facts on the NPUs of a host, by number."""
        described = {}
        for facts in self._facts[host : host + 1]:
            for fact in facts.get("facts", []):
                devices = fact.get("DeviceInfo")
                for device in devices if isinstance(devices, list) else []:
                    ident = _number(device.get("id")) if isinstance(device, dict) else None
                    if ident is not None:
                        described[ident] = device
        return described

    def _used_devices(self, host: int, described: Collection[int]) -> Collection[int]:
        """NPUs of a host that worked, else those of its tables, else those that are described."""
        host_work = self.work.rows[self.work.host(self.work.rows) == host]
        tables = [table for table in chain(*self.trace.tables.values()) if table.host == host]
        of_tables = {int(table.device) for table in tables if table.device is not None}
        used = set(self.work.device(host_work).tolist()) or of_tables or described
        if tables and not used:
            # Tables without a device number belong to the only device, or the first.
            return {0}
        return used

    def _name_categories(self) -> npt.NDArray[np.uint8]:
        """By name code: the step-time category whose colour its slices have (0: none)."""
        index = act.NUMBER_OF_CATEGORY
        names, work = self.trace.events.name, self.work
        category_of_name = np.zeros(len(self.trace.names), np.uint8)
        for kind, category in (
            (COMPUTE, "device_compute"),
            (COPY, "device_to_device"),
            (COLLECTIVE, "device_collectives"),
        ):
            category_of_name[pd.unique(names[work.rows_of(kind)])] = index[category]
        for code in pd.unique(names[self._call_rows]).tolist():
            text = str(self.trace.names[code])
            if _COMPILE.search(text):
                category_of_name[code] = index["compile"]
            elif call_kind(text) == "launch":
                category_of_name[code] = index["kernel_launch"]
        return category_of_name

    @property
    def _without_times(self) -> bool:
        return len(self.unusable) > 0 and not len(self.work.rows_of(COMPUTE))

    def _traits(self) -> set[str]:
        # Tasks do not say whether an op or a graph launched them.
        traits = {act.UNKNOWN_EAGER}
        if self.trace.receipt.read_in_part:
            traits.add(act.READ_IN_PART)
        if self._without_times:
            traits |= {act.LOST_KERNELS, act.UNUSABLE_TIMES}
        if not self.work.typed:
            traits.add(act.UNKNOWN_PRECISION)
        for host in range(len(self.trace.hosts)):
            if msprof_steps.iterations(self.trace, host) is not None:
                traits.add(act.ITERATIONS)
        return traits

    def _missing(self) -> dict[str, str]:
        """A sentence for each kind of data that this profile lacks."""
        missing: dict[str, str] = {}
        if self._without_times:
            missing["kernels"] = shared_notes.UNUSABLE_TIMES
        elif not len(self.work.rows_of(COMPUTE)):
            missing["kernels"] = (
                "This profile has no NPU tasks: msprof writes them as op_summary, task_time and its"
                " timeline, if task_time (or task_trace) is on."
            )
        if not len(self.steps.host):
            missing["steps"] = msprof_steps.HOW
        if not msprof_memory.recorded(self.trace):
            missing["memory"] = (
                "This profile has no memory events: msprof records them with --sys-hardware-mem=on,"
                " torch_npu.profiler with profile_memory=True."
            )
        if not len(msprof_steps.gaps(self.trace, self.steps)[0]):
            missing["input"] = (
                "This profile has no input work: Ascend's profilers record only the wait for input,"
                " as Data Aug Bound of an iteration, and only for graphs."
            )
        if not self.tables.has_host_ops:
            missing["ops"] = (
                "This profile has no framework ops on the host: msprof records calls into CANN,"
                " torch_npu records PyTorch's ops."
            )
        return missing

    def _notes(self) -> list[Note]:
        lines = [*self.unit.notes, *self.mended, *self.steps.notes, *self._allocations[1]]
        unlaunched = int((self.launch < 0).sum())
        if unlaunched and unlaunched < len(self.launch):
            lines.append(notes.tasks_without_call(unlaunched, len(self.launch)))
        carriers = self.work.carriers
        if len(carriers):
            took_ms = float(self.trace.events.duration[carriers].sum()) / 1e9
            lines.append(notes.carrier_tasks(len(carriers), took_ms))
        without_direction = self.work.directions(self.work.rows_of(COPY)).count("copy")
        if without_direction:
            lines.append(notes.copies_without_direction(without_direction))
        return lines
