"""A recording of a program on GPUs and on the host, turned into the activity tables."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.activity.tables import (
    Calls,
    EngineIterations,
    HostOps,
    OptimizerCalls,
    Overheads,
    Ranges,
    TorchModules,
    TorchOps,
)
from nbprof.activity.tables import Work as WorkTable
from nbprof.activity.unit import MARKED, NONE, Unit
from nbprof.core.callstacks import Stacks
from nbprof.core.receipt import Note
from nbprof.core.trace import Trace
from nbprof.dialects import named_ranges, torchnames
from nbprof.dialects.environment import environment
from nbprof.dialects.gpu import (
    absent,
    corrupt,
    costs,
    engines,
    find_steps,
    known_tensors,
    memory,
    receipt,
    step_work,
    units,
)
from nbprof.dialects.gpu.captures import Capture
from nbprof.dialects.gpu.device import Work, devices
from nbprof.dialects.gpu.hosts import Hosts
from nbprof.dialects.gpu.lanes import ANNOTATION, OP, OVERHEAD, PYTHON
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.gpu.nest import Nest
from nbprof.dialects.gpu.origins import Origins, originated
from nbprof.dialects.gpu.steps import Steps, markers, spread_all, waits
from nbprof.dialects.iterations import Placed, placed
from nbprof.dialects.lookups import codes_by_name, names_that, rows_that
from nbprof.formats.chrome.graph_annotations import Annotations, Said
from nbprof.formats.chrome.inductor import Program
from nbprof.frameworks.framework import Framework


def _by_host(
    annotations: Annotations, ranks: Sequence[int | None]
) -> dict[int, Mapping[int, Said]]:
    """Annotations by host instead of rank; a single trace without a rank has the only ones."""
    if list(ranks) == [None] and len(annotations) == 1:
        return dict(enumerate(annotations.values()))
    by_host = {}
    for host, rank in enumerate(ranks):
        if rank is not None and rank in annotations:
            by_host[host] = annotations[rank]
    return by_host


class GpuRecording(ABC):
    """A recording that becomes the tables; the dialect of each recorder adds the differences.

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
            trace,
            kind,
            originated,
            graph_captures,
            _by_host(annotations or {}, self.hosts.ranks),
            self.mended.unusable_kernels,
        )
        self.origins = Origins(self.links, programs)
        self.tables: act.Activity

    def activity(self) -> act.Activity:
        """The tables, each to be made when it is asked for."""
        links = self.links
        activity = act.Activity(hosts=self.trace.hosts)
        # The activity holds what makes its tables. Held by that in turn, it would stay in memory,
        # and the trace with it, until Python looks for circles: for minutes.
        tables = self.tables = weakref.proxy(activity)
        tables.framework = self.framework
        tables.has_device = bool(
            (self.trace.lanes.loc[self.trace.lanes["kind"] == "device", "events"] > 0).any()
        )
        tables.set_hosts_with_ops(
            links.lane_host[np.unique(self.trace.events.lane[links.kind == OP])].tolist()
        )
        tables.later("environment", lambda: environment(self.trace))
        tables.later("devices", lambda: devices(links, self.hosts.device_properties))
        tables.later(("markers", "group_names", "incomplete", "lost"), lambda: markers(self.steps))
        tables.later("batches", lambda: receipt.batches_of(links, self.steps))
        tables.later("waited", self._waited)
        tables.later("unit", lambda: self.unit)
        tables.later("engine_iterations", lambda: _engine_iterations(links, self.steps, tables))
        tables.later("work", self._work_table)
        tables.later("backlog", lambda: step_work.backlog(links, self.work.cls))
        tables.later("host_ops", self._host_ops)
        tables.later("device_ops", lambda: self.work.device_ops(tables, self.compiled))
        tables.later("device_extents", lambda: self.work.extents())
        tables.later(("kernels", "launch_shapes"), lambda: self.work.kernels(tables))
        tables.later("graph_work", lambda: self.work.graph_work(tables))
        tables.later("transfers", lambda: self.work.transfers(tables))
        tables.later("launches", lambda: self.work.launches())
        tables.later("collectives", lambda: self.work.collectives(tables))
        tables.later("calls", self._calls)
        tables.later(("torch_ops", "torch_stacks", "torch_modules"), self._torch_ops)
        tables.later(
            ("cost_parts", "cost_runs"),
            lambda: costs.Costs(links, self.work).tables(tables.has_device),
        )
        tables.later("torch_calls", lambda: self.origins.forest.calls())
        tables.later(
            ("allocations", "memory_added_up"),
            lambda: memory.allocations(links, self.steps, tables),
        )
        tables.later(
            "known_tensors", lambda: known_tensors.table(self.trace, self.hosts.facts, tables)
        )
        tables.later("memory_capacity", lambda: memory.capacities(tables.devices, self.trace.hosts))
        tables.later("name_category", self._name_categories)
        tables.later("missing", self.missing)
        tables.later("traits", self._traits)
        tables.later("optimizer_calls", self._optimizer_calls)
        tables.later("overheads", self._overheads)
        tables.later("ranges", self._ranges)
        tables.later("notes", lambda: [*self.unit.notes, *self.mended.notes, *self.notes()])
        return activity

    @cached_property
    def _units(self) -> tuple[Steps, Unit]:
        steps = self.find_steps()
        if len(steps.host) or self.trace.units == NONE:
            return steps, MARKED
        if self.iterations is not None:
            return find_steps.of_iterations(self.links, self.iterations), self.iterations.unit
        return units.find(self.links)

    @property
    def steps(self) -> Steps:
        """The steps of all hosts, or other units if nothing marks steps."""
        return self._units[0]

    @property
    def unit(self) -> Unit:
        """The unit of `steps`."""
        return self._units[1]

    def _waited(self) -> set[tuple[int, int]]:
        """Steps in which a collective waited at the start of the recording."""
        links, rows = self.links, self.mended.first_waits
        launch = links.launch[np.searchsorted(links.work, rows)]
        launched = self.trace.events.start[np.where(launch >= 0, launch, rows)]
        host = links.host[rows]
        group = self.steps.group_at(host, launched)
        in_step = group >= 0
        return set(zip(host[in_step].tolist(), group[in_step].tolist(), strict=True))

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

    @cached_property
    def _waits(self) -> bool:
        """True if the units are iterations that wait for items."""
        iterations = self.iterations
        if iterations is None or self.unit is not iterations.unit or not iterations.waits:
            return False
        return not iterations.compute_items(self.links.products)

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
        named = names_that(torchnames.is_compiled, trace.names)
        if not named.any():
            return np.zeros(len(links.ops.rows), np.bool_)
        rows = links.rows(OP, ANNOTATION)
        return np.asarray(
            Nest(trace, rows[named[trace.events.name[rows]]]).around(links.ops.rows) >= 0
        )

    def _torch_ops(self) -> tuple[TorchOps, Stacks, TorchModules]:
        ops, stacks, modules = self.origins.forest.tables(self.tables)
        return ops.with_(**self.origins.of_ops(self.tables)), stacks, modules

    def _host_ops(self) -> HostOps:
        """Framework ops and requested batches; `dataset` marks batches and the ops inside."""
        links, trace, activity = self.links, self.trace, self.tables
        batches = links.rows(ANNOTATION)
        batches = batches[links.waits_for_input[trace.events.name[batches]]]
        rows, eager = links.ops.rows, ~self.compiled
        in_batch = np.zeros(len(rows), np.bool_)
        end = links.ops.end
        if len(batches):
            loader = Nest(trace, batches)
            in_batch = loader.around(rows) >= 0
            order = np.argsort(np.concatenate([rows, batches]), kind="stable")
            rows = np.concatenate([rows, batches])[order]
            end = np.concatenate([end, trace.events.end[batches]])[order]
            eager = np.concatenate([eager, np.ones(len(batches), np.bool_)])[order]
            in_batch = np.concatenate([in_batch, np.ones(len(batches), np.bool_)])[order]
        code = trace.events.name[rows]
        op = codes_by_name(trace, code, activity.ops.code)
        kind = codes_by_name(
            trace, code, lambda name: activity.types.code(torchnames.op_type(name))
        )
        return HostOps(
            event=rows,
            host=links.host[rows],
            lane=trace.events.lane[rows],
            start=trace.events.start[rows],
            end=end,
            op=op[code],
            type=kind[code],
            dataset=in_batch,
            in_dataset=False,
            eager=eager,
        )

    def _calls(self) -> Calls:
        """Calls into the runtime, split at the borders of steps; group -1 outside of steps."""
        links, trace, activity = self.links, self.trace, self.tables
        rows = links.calls
        events = trace.events
        pieces = spread_all(self.steps, links.host[rows], events.start[rows], events.end[rows])
        kinds = activity.texts.encode(torchnames.CALL_KINDS)
        name = codes_by_name(trace, events.name[rows], activity.texts.code)
        event = rows[pieces.span]
        return Calls(
            event=event,
            host=links.host[event],
            group=pieces.group,
            start=pieces.start,
            end=pieces.end,
            kind=kinds[step_work.call_kinds(links)[pieces.span]],
            name=name[events.name[event]],
        )

    def _traits(self) -> set[str]:
        """Facts for advice: modules that ran, and counts of Gloo calls and out-of-memory errors."""
        traits = set()
        if not {"DataParallel", "DataParallel.forward"}.isdisjoint(map(str, self.trace.names)):
            traits.add("DataParallel")
        for trait, test in (
            ("gloo", lambda name: name.startswith("gloo:")),
            ("out of memory", "[OutOfMemory]".__eq__),
        ):
            named = names_that(test, self.trace.names)
            count = int(named[self.trace.events.name].sum()) if named.any() else 0
            if count:
                traits.add(f"{trait}: {count}")
        if costs.recorded(self.links) and self.tables.has_host_ops:
            traits.add(act.SHAPES)
        if (self.links.kind == PYTHON).any():
            traits.add(act.PYTHON_CALLS)
        if self.steps.iterations:
            traits.add(act.SERVING)
        if self._waits:
            traits.add(act.WAITS)
        traits |= absent.traits(self.links, self.hosts)
        if self.trace.receipt.read_in_part:
            traits.add(act.READ_IN_PART)
        if (
            not self.tables.has_host_ops
            or self.tables.hosts_without_ops
            or not self.framework.machine_learning
        ):
            traits.add(act.UNKNOWN_EAGER)
        return traits

    def _ranges(self) -> Ranges:
        """Ranges of the program and steps of its optimizers; empty if there are only the latter."""
        links, trace = self.links, self.trace
        rows = links.rows(ANNOTATION)
        rows = rows[trace.events.duration[rows] > 0]
        ranges = rows_that(
            trace, rows[~links.step_names[trace.events.name[rows]]], named_ranges.personal_in_torch
        )
        if not len(ranges):
            return Ranges.empty()
        if self.unit == MARKED:
            ranges = named_ranges.without_marks(trace, ranges, self.tables.markers.event)
        if not len(ranges):
            return Ranges.empty()
        steps = rows_that(trace, rows, lambda name: torchnames.OPTIMIZER.match(name) is not None)
        both = np.sort(np.concatenate([ranges, steps]))
        kind = np.full(len(both), self.sets_ranges, object)
        kind[np.isin(both, steps)] = named_ranges.OPTIMIZER
        return named_ranges.table(trace, both, links.host, kind, self.tables)

    def _optimizer_calls(self) -> OptimizerCalls:
        """Updates of parameters by optimizers: `Optimizer.step#Adam.step`."""
        trace = self.trace
        updates = names_that(lambda name: name.startswith("Optimizer.step#"), trace.names)
        rows = self.links.rows(ANNOTATION, OP)
        rows = rows[updates[trace.events.name[rows]]]
        name = codes_by_name(trace, np.flatnonzero(updates), self.tables.texts.code)
        return OptimizerCalls(
            event=rows,
            host=self.links.host[rows],
            start=trace.events.start[rows],
            end=trace.events.end[rows],
            name=name[trace.events.name[rows]],
        )

    def _overheads(self) -> Overheads:
        """Events of the profiler's own work: requests for buffers, loading of functions."""
        trace, rows = self.trace, self.links.rows(OVERHEAD)
        return Overheads(
            event=rows,
            host=self.links.host[rows],
            start=trace.events.start[rows],
            end=trace.events.end[rows],
        )

    def _name_categories(self) -> npt.NDArray[np.uint8]:
        """By name code: the step-time category whose colour its slices have (0: none)."""
        index = act.NUMBER_OF_CATEGORY
        of_transfer = {
            "H2D": "input",
            "D2H": "output",
            "D2D": "device_to_device",
            "P2P": "device_to_device",
            "memset": "device_to_device",
        }
        category = np.zeros(len(self.trace.names), np.uint8)
        for code, name in enumerate(map(str, self.trace.names)):
            if self.links.waits_for_input[code]:
                category[code] = index["input"]
            elif (direction := of_transfer.get(torchnames.transfer_kind(name))) is not None:
                category[code] = index[direction]
            elif torchnames.is_collective(name):
                category[code] = index["device_collectives"]
            elif torchnames.call_kind(name) in (torchnames.LAUNCH, torchnames.GRAPH):
                category[code] = index["kernel_launch"]
            elif torchnames.is_compiling(name):
                category[code] = index["compile"]
        return category


def _engine_iterations(links: Links, steps: Steps, activity: act.Activity) -> EngineIterations:
    """The `engine_iterations` table of the activity, for steps that are iterations."""
    steps_of_engine = [(i, key) for i, key in enumerate(steps.keys) if key in steps.iterations]
    rows = [i for i, _ in steps_of_engine]
    iterations = [steps.iterations[key] for _, key in steps_of_engine]
    columns: dict[str, npt.ArrayLike] = {}
    for key in ("event", "host", "group", "start", "end", "begun", "done"):
        columns[key] = getattr(steps, key)[rows]
    for key in engines.COUNTS:
        columns[key] = [getattr(iteration, key) for iteration in iterations]
    names = links.trace.names[links.trace.events.name[steps.event[rows]]]
    columns["name"] = activity.texts.encode(map(str, names))
    kinds = np.full(len(rows), -1, np.int32)
    for i, iteration in enumerate(iterations):
        if iteration.kind:
            kinds[i] = activity.texts.code(iteration.kind)
    columns["kind"] = kinds
    return EngineIterations(**columns)
