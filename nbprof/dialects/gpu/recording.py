"""A recording of a program on GPUs, with what it ran on the host, on its way into the activity
tables.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import (
    Calls,
    EngineIterations,
    HostOps,
    OptimizerCalls,
    Ranges,
    TorchModules,
    TorchOps,
)
from nbprof.activity.tables import Work as WorkTable
from nbprof.activity.unit import MARKED, NONE, Unit
from nbprof.core.callstacks import Stacks
from nbprof.core.trace import Note, Trace
from nbprof.dialects import named_ranges, torchnames
from nbprof.dialects.environment import environment
from nbprof.dialects.gpu import (
    absent,
    corrupt,
    costs,
    engines,
    find_steps,
    memory,
    receipt,
    step_work,
    units,
)
from nbprof.dialects.gpu.captures import Capture
from nbprof.dialects.gpu.device import Work, devices
from nbprof.dialects.gpu.hosts import Hosts
from nbprof.dialects.gpu.lanes import ANNOTATION, OP, PYTHON
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.nest import Nest
from nbprof.dialects.gpu.origins import Origins, originated
from nbprof.dialects.gpu.steps import Steps, markers, spread, waits
from nbprof.dialects.iterations import Placed, placed
from nbprof.formats.chrome.graph_annotations import Annotations, Said
from nbprof.formats.chrome.inductor import Program
from nbprof.frameworks.framework import Framework


def _by_host(
    annotations: Annotations, ranks: Sequence[int | None]
) -> dict[int, Mapping[int, Said]]:
    """Annotations by host instead of rank; a single trace that states no rank has those of the only
    rank there is.
    """
    if list(ranks) == [None] and len(annotations) == 1:
        return dict(enumerate(annotations.values()))
    return {
        host: annotations[rank]
        for host, rank in enumerate(ranks)
        if rank is not None and rank in annotations
    }


class GpuRecording(ABC):
    """A recording on its way into the tables. The dialect of each recorder says what is different
    there.

    Attributes
    ----------
    framework : Framework
    sets_ranges : str
        What sets the ranges of a program: `NVTX`.
    """

    framework: Framework
    sets_ranges: str

    def __init__(
        self,
        trace: Trace,
        kind: npt.NDArray[np.uint8],
        graph_captures: Sequence[Capture] = (),
        programs: Sequence[Program] = (),
        annotations: Annotations | None = None,
    ) -> None:
        self.trace = trace
        self.hosts = Hosts(trace)
        self.mended = corrupt.mend(trace, kind)
        self.links = Links(
            trace, kind, originated, graph_captures, _by_host(annotations or {}, self.hosts.ranks)
        )
        self.origins = Origins(self.links, programs)
        self.out: act.Activity

    def activity(self) -> act.Activity:
        """The tables, each to be made when it is asked for."""
        links = self.links
        activity = act.Activity(hosts=self.trace.hosts)
        # The activity holds what makes its tables. Held by that in turn, it would stay in memory,
        # and the trace with it, until Python looks for circles: for minutes.
        out = self.out = weakref.proxy(activity)
        out.framework = self.framework
        out.has_device = bool(
            (self.trace.lanes.loc[self.trace.lanes["kind"] == "device", "events"] > 0).any()
        )
        out.set_hosts_with_ops(
            links.lane_host[np.unique(self.trace.events.lane[links.kind == OP])].tolist()
        )
        out.later("environment", lambda: environment(self.trace))
        out.later("devices", lambda: devices(links, self.hosts.device_properties))
        out.later(("markers", "group_names", "cut", "lost"), lambda: markers(self.steps))
        out.later("batches", lambda: receipt.batches_of(links, self.steps))
        out.later("waited", self._waited)
        out.later("unit", lambda: self.unit)
        out.later("engine_iterations", lambda: _engine_iterations(links, self.steps, out))
        out.later("work", self._work_table)
        out.later("backlog", lambda: step_work.backlog(links, self.work.cls))
        out.later("host_ops", self._host_ops)
        out.later("device_ops", lambda: self.work.device_ops(out, self.compiled))
        out.later("device_extents", lambda: self.work.extents())
        out.later(("kernels", "launch_shapes"), lambda: self.work.kernels(out))
        out.later("graph_work", lambda: self.work.graph_work(out))
        out.later("transfers", lambda: self.work.transfers(out))
        out.later("launches", lambda: self.work.launches())
        out.later("collectives", lambda: self.work.collectives(out))
        out.later("calls", self._calls)
        out.later(("torch_ops", "torch_stacks", "torch_modules"), self._torch_ops)
        out.later(
            ("cost_parts", "cost_runs"),
            lambda: costs.Costs(links, self.work).tables(out.has_device),
        )
        out.later("torch_calls", lambda: self.origins.forest.calls())
        out.later(
            ("allocations", "memory_added_up"), lambda: memory.allocations(links, self.steps, out)
        )
        out.later("memory_capacity", lambda: memory.capacities(out.devices, self.trace.hosts))
        out.later("name_category", self._name_categories)
        out.later("missing", self.missing)
        out.later("traits", self._traits)
        out.later("optimizer_calls", self._optimizer_calls)
        out.later("ranges", self._ranges)
        out.later("notes", lambda: [*units.notes(self.unit), *self.mended.notes, *self.notes()])
        return activity

    @cached_property
    def _units(self) -> tuple[Steps, Unit]:
        found = self.find_steps()
        if len(found.host) or self.trace.units == NONE:
            return found, MARKED
        if self.iterations is not None:
            return find_steps.of_iterations(self.links, self.iterations), self.iterations.unit
        return units.find(self.links)

    @property
    def steps(self) -> Steps:
        """The steps of all hosts, or the units that stand in their place where nothing marks
        any.
        """
        return self._units[0]

    @property
    def unit(self) -> Unit:
        """What `steps` are."""
        return self._units[1]

    def _waited(self) -> set[tuple[int, int]]:
        """Steps in which a collective waited at the start of the recording."""
        links, rows = self.links, self.mended.first_waits
        launch = links.launch[np.searchsorted(links.work, rows)]
        launched = self.trace.events.start[np.where(launch >= 0, launch, rows)]
        host = links.host[rows]
        group = self.steps.group_at(host, launched)
        return {(int(h), int(g)) for h, g in zip(host, group, strict=True) if g >= 0}

    @abstractmethod
    def find_steps(self) -> Steps:
        """The steps of each host, by what marks them."""

    @abstractmethod
    def notes(self) -> list[Note]:
        """Lines for the receipt."""

    @abstractmethod
    def missing(self) -> dict[str, str]:
        """A sentence for each kind of data that the recording lacks."""

    @cached_property
    def iterations(self) -> Placed | None:
        """Iterations of a notebook's loop that were recorded beside the trace."""
        return placed(self.trace)

    @property
    def _waits(self) -> bool:
        """Whether the units are iterations that wait for items."""
        return (
            self.iterations is not None
            and self.unit is self.iterations.unit
            and self.iterations.waits
        )

    def _work_table(self) -> WorkTable:
        table = step_work.work(self.links, self.steps, self.work.cls)
        if self.iterations is None or not self._waits:
            return table
        return WorkTable.concat([table, waits(self.steps, self.iterations)])

    @cached_property
    def work(self) -> Work:
        """Device work, with its classes."""
        return Work(self.links, self.hosts.amd, self.origins, self.hosts.process_groups)

    @cached_property
    def compiled(self) -> npt.NDArray[np.bool_]:
        """By op: whether it ran within code from torch.compile."""
        links, trace = self.links, self.trace
        named = np.fromiter(
            (torchnames.is_compiled(n) for n in trace.names), np.bool_, len(trace.names)
        )
        if not named.any():
            return np.zeros(len(links.ops.rows), np.bool_)
        rows = links.rows(OP, ANNOTATION)
        return np.asarray(
            Nest(trace, rows[named[trace.events.name[rows]]]).around(links.ops.rows) >= 0
        )

    def _torch_ops(self) -> tuple[TorchOps, Stacks, TorchModules]:
        ops, stacks, modules = self.origins.forest.tables(self.out)
        return ops.with_(**self.origins.of_ops(self.out)), stacks, modules

    def _host_ops(self) -> HostOps:
        """Framework ops, and the batches that a loop asked its DataLoader or iterator for;
        `dataset` marks these and the ops inside.
        """
        links, trace, out = self.links, self.trace, self.out
        named = np.fromiter(
            (torchnames.is_input(n) for n in trace.names), np.bool_, len(trace.names)
        )
        batches = links.rows(ANNOTATION)
        batches = batches[named[trace.events.name[batches]]]
        rows, eager = links.ops.rows, ~self.compiled
        inside = np.zeros(len(rows), np.bool_)
        end = links.ops.end
        if len(batches):
            loader = Nest(trace, batches)
            inside = loader.around(rows) >= 0
            order = np.argsort(np.concatenate([rows, batches]), kind="stable")
            rows = np.concatenate([rows, batches])[order]
            end = np.concatenate([end, trace.events.end[batches]])[order]
            eager = np.concatenate([eager, np.ones(len(batches), np.bool_)])[order]
            inside = np.concatenate([inside, np.ones(len(batches), np.bool_)])[order]
        code = trace.events.name[rows]
        op, kind = np.zeros(len(trace.names), np.int32), np.zeros(len(trace.names), np.int32)
        for one in pd.unique(code).tolist():
            name = str(trace.names[one])
            op[one], kind[one] = out.ops.code(name), out.types.code(torchnames.op_type(name))
        return HostOps(
            event=rows,
            host=links.host[rows],
            lane=trace.events.lane[rows],
            start=trace.events.start[rows],
            end=end,
            op=op[code],
            type=kind[code],
            dataset=inside,
            eager=eager,
        )

    def _calls(self) -> Calls:
        """Calls into the runtime, cut at the borders of steps; group -1 for what lies in none."""
        links, trace, out = self.links, self.trace, self.out
        rows = links.calls
        events = trace.events
        span, group, start, end = spread(
            self.steps, links.host[rows], events.start[rows], events.end[rows]
        )
        outside = np.ones(len(rows), np.bool_)
        outside[span] = False
        alone = np.flatnonzero(outside)
        which = np.concatenate([span, alone])
        kinds_ = np.array([out.texts.code(k) for k in torchnames.CALL_KINDS], np.int32)
        name = np.zeros(len(trace.names), np.int32)
        for one in pd.unique(events.name[rows]).tolist():
            name[one] = out.texts.code(str(trace.names[one]))
        return Calls(
            event=rows[which],
            host=links.host[rows[which]],
            group=np.concatenate([group, np.full(len(alone), -1)]),
            start=np.concatenate([start, events.start[rows[alone]]]),
            end=np.concatenate([end, events.end[rows[alone]]]),
            kind=kinds_[step_work.call_kinds(links)[which]],
            name=name[events.name[rows[which]]],
        )

    def _traits(self) -> set[str]:
        """What advice is about: modules that ran, and with their number calls of Gloo and failures
        of the allocator.
        """
        names = [str(name) for name in self.trace.names]
        out = {"DataParallel"} & {name.removesuffix(".forward") for name in names}
        for trait, codes in (
            ("gloo", [code for code, name in enumerate(names) if name.startswith("gloo:")]),
            ("out of memory", [code for code, name in enumerate(names) if name == "[OutOfMemory]"]),
        ):
            if codes and (count := int(np.isin(self.trace.events.name, codes).sum())):
                out.add(f"{trait}: {count}")
        if costs.recorded(self.links) and self.out.has_host_ops:
            out.add(act.SHAPES)
        if (self.links.kind == PYTHON).any():
            out.add(act.PYTHON_CALLS)
        if self.steps.iterations:
            out.add(act.SERVING)
        if self._waits:
            out.add(act.WAITS)
        out |= absent.traits(self.links, self.hosts)
        if (
            not self.out.has_host_ops
            or self.out.hosts_without_ops
            or not self.framework.machine_learning
        ):
            out.add(act.UNKNOWN_EAGER)
        return out

    def _ranges(self) -> Ranges:
        """Ranges of the program, with the steps of its optimizers; nothing where only those were
        recorded.
        """
        links, trace = self.links, self.trace
        rows = links.rows(ANNOTATION)
        rows = rows[trace.events.duration[rows] > 0]
        found = named_ranges.chosen(
            trace, rows[~links.step_names[trace.events.name[rows]]], named_ranges.personal_in_torch
        )
        if not len(found):
            return Ranges.empty()
        if self.unit == MARKED:
            found = named_ranges.without_marks(trace, found, self.out.markers.event)
        steps = named_ranges.chosen(
            trace, rows, lambda name: torchnames.OPTIMIZER.match(name) is not None
        )
        both = np.sort(np.concatenate([found, steps]))
        kind = np.where(np.isin(both, steps), named_ranges.OPTIMIZER, self.sets_ranges).astype(
            object
        )
        return (
            named_ranges.table(trace, both, links.host, kind, self.out)
            if len(found)
            else Ranges.empty()
        )

    def _optimizer_calls(self) -> OptimizerCalls:
        """Where optimizers updated parameters: `Optimizer.step#Adam.step`."""
        trace = self.trace
        codes = [
            code for code, name in enumerate(trace.names) if str(name).startswith("Optimizer.step#")
        ]
        rows = self.links.rows(ANNOTATION, OP)
        rows = rows[np.isin(trace.events.name[rows], codes)]
        name = np.zeros(len(trace.names), np.int32)
        for code in codes:
            name[code] = self.out.texts.code(str(trace.names[code]))
        return OptimizerCalls(
            event=rows,
            host=self.links.host[rows],
            start=trace.events.start[rows],
            end=trace.events.end[rows],
            name=name[trace.events.name[rows]],
        )

    def _name_categories(self) -> npt.NDArray[np.uint8]:
        """By name code: the step-time category whose colour a slice of that name takes in the trace
        (0: none).
        """
        index = {name: i + 1 for i, name in enumerate(act.CATEGORIES)}
        of_transfer = {
            "H2D": "input",
            "D2H": "output",
            "D2D": "device_to_device",
            "P2P": "device_to_device",
            "memset": "device_to_device",
        }
        out = np.zeros(len(self.trace.names), np.uint8)
        for code, name in enumerate(map(str, self.trace.names)):
            if torchnames.is_input(name):
                out[code] = index["input"]
            elif (direction := of_transfer.get(torchnames.transfer_kind(name))) is not None:
                out[code] = index[direction]
            elif torchnames.is_collective(name):
                out[code] = index["device_collectives"]
            elif torchnames.call_kind(name) in (torchnames.LAUNCH, torchnames.GRAPH):
                out[code] = index["kernel_launch"]
            elif torchnames.is_compiling(name):
                out[code] = index["compile"]
        return out


def _engine_iterations(links: Links, steps: Steps, out: act.Activity) -> EngineIterations:
    """The `engine_iterations` table of the activity; the rows of hosts of which steps are
    iterations.
    """
    rows = [
        i
        for i, step in enumerate(zip(steps.host.tolist(), steps.group.tolist(), strict=True))
        if step in steps.iterations
    ]
    said = [steps.iterations[int(steps.host[i]), int(steps.group[i])] for i in rows]
    names = [
        str(links.trace.names[code]) for code in links.trace.events.name[steps.event[rows]].tolist()
    ]
    return EngineIterations(
        **{
            key: getattr(steps, key)[rows]
            for key in ("event", "host", "group", "start", "end", "begun", "done")
        },
        name=[out.texts.code(name) for name in names],
        kind=[out.texts.code(one.kind) if one.kind else -1 for one in said],
        **{key: [getattr(one, key) for one in said] for key in engines.COUNTS},
    )
