"""Turns the Trace of a JSON file into the activity tables: PyTorch's (Kineto) of all versions, on CUDA, ROCm, XPU or the CPU alone.

Traces that XLA exported are handed to the dialect of XSpace files; of other Chrome traces the lanes and events are shown, and every view
that needs more says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.unit import MARKED, NONE, Unit
from nbprof.core.callstacks import Stacks
from nbprof.core.trace import Int64s, Note, Trace
from nbprof.dialects import named_ranges, torchnames
from nbprof.dialects.environment import environment
from nbprof.dialects.iterations import Placed, placed
from nbprof.dialects.kineto import absent, autograd, chrome_xla, corrupt, graphs, serving
from nbprof.dialects.kineto import costs as kineto_costs
from nbprof.dialects.kineto import memory as kineto_memory
from nbprof.dialects.kineto import receipt as kineto_receipt
from nbprof.dialects.kineto import steps as kineto_steps
from nbprof.dialects.kineto import units as kineto_units
from nbprof.dialects.kineto.device import Work, devices
from nbprof.dialects.kineto.graphs import Capture
from nbprof.dialects.kineto.hosts import Hosts
from nbprof.dialects.kineto.lanes import ANNOTATION, CALL, COPY, FILL, KERNEL, MEMORY, OP, PYTHON, kinds, split
from nbprof.dialects.kineto.links import Links, Nest
from nbprof.dialects.kineto.origins import Origins
from nbprof.dialects.kineto.steps import Steps
from nbprof.dialects.msprof import lanes as msprof_lanes
from nbprof.dialects.msprof import msprof
from nbprof.dialects.python import python
from nbprof.dialects.rocprof import perfetto as rocprof_perfetto
from nbprof.formats.chrome.graph_annotations import Annotations, Said
from nbprof.formats.chrome.inductor import Program
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import PYTORCH

_OURS = (OP, ANNOTATION, PYTHON, CALL, KERNEL, COPY, FILL)
_OF_PROFILER = "Iteration Start: PyTorch Profiler"


def interpret(
    trace: Trace, graph_captures: Sequence[Capture] = (), programs: Sequence[Program] = (), annotations: Annotations | None = None
) -> act.Activity:
    """The activity of one profile. Fills the kinds of `trace.lanes`; each table is made when it is first asked for.

    Parameters
    ----------
    trace : Trace
    graph_captures : sequence of Capture
        What was captured into graphs that this profile replays, out of other traces.
    programs : sequence of Program
        What inductor says of the graphs that it compiled.
    annotations : mapping
        What files beside it say of nodes of graphs, by rank and by node.
    """
    if chrome_xla.is_xla(trace):
        return chrome_xla.interpret(trace)
    if python.is_python(trace):
        return python.interpret(trace)
    if msprof_lanes.is_ascend(trace):
        return msprof.interpret(trace)
    if rocprof_perfetto.is_rocprof(trace):
        # Late: it builds on this module.
        from nbprof.dialects.rocprof import rocprof

        return rocprof.interpret(trace)
    adapted = autograd.adapt(trace) if autograd.is_autograd(trace) else []
    kind = kinds(trace)
    seen = np.bincount(kind, minlength=16)
    # A recording in which nothing of PyTorch ran has nothing but the profiler's own marks.
    if not seen[list(_OURS)].any() and not any(str(name).startswith(_OF_PROFILER) for name in trace.names):
        return chrome_xla.plain(trace)
    out = Torch(trace, split(trace, kind), graph_captures, programs, annotations).activity()
    if adapted:
        found = out.maker("notes")
        out.later("notes", lambda: [*adapted, *found()])
    return out


def graph_captures(trace: Trace, programs: Sequence[Program] = ()) -> list[Capture]:
    """What a trace of PyTorch has of captures of graphs, for `interpret`; nothing where it has none, or is of another producer."""
    kind = kinds(trace)
    if chrome_xla.is_xla(trace) or msprof_lanes.is_ascend(trace) or not (kind == CALL).any():
        return []
    links = Links(trace, split(trace, kind))
    out = graphs.captures(links)
    for one in out:
        one.origins = graphs.originated(links, one.calls, programs)
    return out


def _by_host(annotations: Annotations, ranks: Sequence[int | None]) -> dict[int, Mapping[int, Said]]:
    """Annotations by host instead of rank; a single trace that states no rank has those of the only rank there is."""
    if list(ranks) == [None] and len(annotations) == 1:
        return dict(enumerate(annotations.values()))
    return {host: annotations[rank] for host, rank in enumerate(ranks) if rank is not None and rank in annotations}


class Torch:
    """One PyTorch profile on its way into the tables; of another recorder of GPUs, whose dialect says what is different there."""

    framework: Framework = PYTORCH
    sets_ranges = "record_function"
    """What sets the ranges of a program."""

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
        self.links = Links(trace, kind, graph_captures, _by_host(annotations or {}, self.hosts.ranks))
        self.origins = Origins(self.links, programs)
        self.out: act.Activity

    def activity(self) -> act.Activity:
        """The tables, each to be made when it is asked for."""
        links = self.links
        activity = act.Activity(hosts=self.trace.hosts)
        # The activity holds what makes its tables. Held by that in turn, it would stay in memory, and the trace with it, until Python
        # looks for circles: for minutes.
        out = self.out = weakref.proxy(activity)
        out.framework = self.framework
        out.has_device = bool((self.trace.lanes.loc[self.trace.lanes["kind"] == "device", "events"] > 0).any())
        out.set_hosts_with_ops(links.lane_host[np.unique(self.trace.events.lane[links.kind == OP])].tolist())
        out.later("environment", lambda: environment(self.trace))
        out.later("devices", lambda: devices(links, self.hosts.device_properties))
        out.later(("markers", "group_names", "cut", "lost"), lambda: kineto_steps.markers(self.steps))
        out.later("batches", lambda: kineto_receipt.batches_of(links, self.steps))
        out.later("waited", self._waited)
        out.later("unit", lambda: self.unit)
        out.later("engine_iterations", lambda: serving.table(links, self.steps, out))
        out.later("work", self._work_table)
        out.later("backlog", lambda: kineto_steps.backlog(links, self.work.cls))
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
        out.later(("cost_parts", "cost_runs"), lambda: kineto_costs.Costs(links, self.work).tables(out.has_device))
        out.later("torch_calls", lambda: self.origins.forest.calls())
        out.later(("allocations", "memory_added_up"), lambda: kineto_memory.allocations(links, self.steps, out))
        out.later("memory_capacity", lambda: kineto_memory.capacities(out.devices, self.trace.hosts))
        out.later("name_category", self._name_categories)
        out.later("missing", self.missing)
        out.later("traits", self._traits)
        out.later("optimizer_calls", self._optimizer_calls)
        out.later("ranges", self._ranges)
        out.later("notes", lambda: [*kineto_units.notes(self.unit), *self.mended.notes, *self.notes()])
        return activity

    @cached_property
    def _units(self) -> tuple[Steps, Unit]:
        found = self.find_steps()
        if len(found.host) or self.trace.units == NONE:
            return found, MARKED
        if self.iterations is not None:
            return kineto_steps.of_iterations(self.links, self.iterations), self.iterations.unit
        return kineto_units.find(self.links)

    @property
    def steps(self) -> Steps:
        """The steps of all hosts, or the units that stand in their place where nothing marks any."""
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

    def find_steps(self) -> Steps:
        """The steps of each host, by what marks them in traces of PyTorch, by ranges that the program called steps, iterations or batches,
        or by the batches that it asked for. Each host has the best of its marks, as where it is read without the others.
        """
        # Late: it builds on the steps, too.
        from nbprof.dialects.kineto import ranges

        named = ranges.find(self.links, "ranges", ranges.named(self.trace.names))
        if self.iterations is not None:
            return named
        return kineto_steps.with_batches(self.links, named)

    @cached_property
    def iterations(self) -> Placed | None:
        """Iterations of a notebook's loop that were recorded beside the trace."""
        return placed(self.trace)

    @property
    def _waits(self) -> bool:
        """Whether the units are iterations that wait for items."""
        return self.iterations is not None and self.unit is self.iterations.unit and self.iterations.waits

    def _work_table(self) -> pd.DataFrame:
        table = kineto_steps.work(self.links, self.steps, self.work.cls)
        if self.iterations is None or not self._waits:
            return table
        return act.joined([table, kineto_steps.waits(self.steps, self.iterations)], act.WORK)

    def notes(self) -> list[Note]:
        """Lines for the receipt."""
        found = kineto_receipt.notes(self.links, self.steps, self.hosts, self.out.launches, self.origins)
        return [*absent.unseen_note(self.links, self.hosts), *found]

    @cached_property
    def work(self) -> Work:
        """Device work, with its classes."""
        return Work(self.links, self.hosts.amd, self.origins, self.hosts.process_groups)

    @cached_property
    def compiled(self) -> npt.NDArray[np.bool_]:
        """By op: whether it ran within code from torch.compile."""
        links, trace = self.links, self.trace
        named = np.fromiter((torchnames.is_compiled(n) for n in trace.names), np.bool_, len(trace.names))
        if not named.any():
            return np.zeros(len(links.ops.rows), np.bool_)
        rows = links.rows(OP, ANNOTATION)
        return np.asarray(Nest(trace, rows[named[trace.events.name[rows]]]).around(links.ops.rows) >= 0)

    def _torch_ops(self) -> tuple[pd.DataFrame, Stacks, pd.DataFrame]:
        ops, stacks, modules = self.origins.forest.tables(self.out)
        return ops.assign(**self.origins.of_ops(self.out)), stacks, modules

    def _host_ops(self) -> pd.DataFrame:
        """Framework ops, and the batches that a loop asked its DataLoader or iterator for; `dataset` marks these and the ops inside."""
        links, trace, out = self.links, self.trace, self.out
        named = np.fromiter((torchnames.is_input(n) for n in trace.names), np.bool_, len(trace.names))
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
        return pd.DataFrame(
            {
                "event": rows,
                "host": links.host[rows],
                "lane": trace.events.lane[rows],
                "start": trace.events.start[rows],
                "end": end,
                "op": op[code],
                "type": kind[code],
                "dataset": inside,
                "eager": eager,
            }
        )

    def _calls(self) -> pd.DataFrame:
        """Calls into the runtime, cut at the borders of steps; group -1 for what lies in none."""
        links, trace, out = self.links, self.trace, self.out
        rows = links.calls
        events = trace.events
        span, group, start, end = kineto_steps.spread(self.steps, links.host[rows], events.start[rows], events.end[rows])
        outside = np.ones(len(rows), np.bool_)
        outside[span] = False
        alone = np.flatnonzero(outside)
        which = np.concatenate([span, alone])
        kinds_ = np.array([out.texts.code(k) for k in torchnames.CALL_KINDS], np.int32)
        name = np.zeros(len(trace.names), np.int32)
        for one in pd.unique(events.name[rows]).tolist():
            name[one] = out.texts.code(str(trace.names[one]))
        return pd.DataFrame(
            {
                "event": rows[which],
                "host": links.host[rows[which]],
                "group": np.concatenate([group, np.full(len(alone), -1)]),
                "start": np.concatenate([start, events.start[rows[alone]]]),
                "end": np.concatenate([end, events.end[rows[alone]]]),
                "kind": kinds_[kineto_steps.call_kinds(links)[which]],
                "name": name[events.name[rows[which]]],
            }
        ).astype(act.CALLS)

    def _traits(self) -> set[str]:
        """What advice is about: modules that ran, and with their number calls of Gloo and failures of the allocator."""
        names = [str(name) for name in self.trace.names]
        out = {"DataParallel"} & {name.removesuffix(".forward") for name in names}
        for trait, codes in (
            ("gloo", [code for code, name in enumerate(names) if name.startswith("gloo:")]),
            ("out of memory", [code for code, name in enumerate(names) if name == "[OutOfMemory]"]),
        ):
            if codes and (count := int(np.isin(self.trace.events.name, codes).sum())):
                out.add(f"{trait}: {count}")
        if kineto_costs.recorded(self.links) and self.out.has_host_ops:
            out.add(act.SHAPES)
        if (self.links.kind == PYTHON).any():
            out.add(act.PYTHON_CALLS)
        if self.steps.iterations:
            out.add(act.SERVING)
        if self._waits:
            out.add(act.WAITS)
        out |= absent.traits(self.links, self.hosts)
        if not self.out.has_host_ops or self.out.hosts_without_ops or not self.framework.machine_learning:
            out.add(act.UNKNOWN_EAGER)
        return out

    def _ranges(self) -> pd.DataFrame:
        """Ranges of the program, with the steps of its optimizers; nothing where only those were recorded."""
        links, trace = self.links, self.trace
        rows = links.rows(ANNOTATION)
        rows = rows[trace.events.duration[rows] > 0]
        found = named_ranges.chosen(trace, rows[~links.step_names[trace.events.name[rows]]], named_ranges.personal_in_torch)
        if not len(found):
            return act.table(act.RANGES)
        if self.unit == MARKED:
            found = named_ranges.without_marks(trace, found, self.out.markers["event"].to_numpy(np.int64))
        steps = named_ranges.chosen(trace, rows, lambda name: torchnames.OPTIMIZER.match(name) is not None)
        both = np.sort(np.concatenate([found, steps]))
        kind = np.where(np.isin(both, steps), named_ranges.OPTIMIZER, self.sets_ranges).astype(object)
        return named_ranges.table(trace, both, links.host, kind, self.out) if len(found) else act.table(act.RANGES)

    def _optimizer_calls(self) -> pd.DataFrame:
        """Where optimizers updated parameters: `Optimizer.step#Adam.step`."""
        trace = self.trace
        codes = [code for code, name in enumerate(trace.names) if str(name).startswith("Optimizer.step#")]
        rows = self.links.rows(ANNOTATION, OP)
        rows = rows[np.isin(trace.events.name[rows], codes)]
        name = np.zeros(len(trace.names), np.int32)
        for code in codes:
            name[code] = self.out.texts.code(str(trace.names[code]))
        return pd.DataFrame(
            {
                "event": rows,
                "host": self.links.host[rows],
                "start": trace.events.start[rows],
                "end": trace.events.end[rows],
                "name": name[trace.events.name[rows]],
            }
        ).astype(act.OPTIMIZER_CALLS)

    def _name_categories(self) -> npt.NDArray[np.uint8]:
        """By name code: the step-time category whose colour a slice of that name takes in the trace (0: none)."""
        index = {name: i + 1 for i, name in enumerate(act.CATEGORIES)}
        of_transfer = {"H2D": "input", "D2H": "output", "D2D": "device_to_device", "P2P": "device_to_device", "memset": "device_to_device"}
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

    def missing(self) -> dict[str, str]:
        """A sentence for each kind of data that this profile lacks."""
        out, links = self.out, self.links
        missing: dict[str, str] = {}
        if not len(links.rows(KERNEL)):
            missing["kernels"] = absent.kernels(links, self.hosts)
        if not len(self.steps.host):
            missing["steps"] = kineto_steps.HOW if absent.host_recorded(links) else kineto_steps.ONLY_DEVICE
        if not (links.kind == MEMORY).any():
            missing["memory"] = absent.allocations(self.hosts)
        named: Int64s = np.flatnonzero([torchnames.is_input(n) for n in self.trace.names])
        if not np.isin(self.trace.events.name, named).any():
            missing["input"] = (
                "This profile is of an inference engine: its batches come from a scheduler, not from a DataLoader."
                if self.steps.iterations
                else absent.batches(links)
            )
        if not out.has_host_ops:
            missing["ops"] = absent.ops(links)
        return missing
