"""Turns the Trace of an XSpace file (TensorFlow, JAX) into the activity tables.

Two generations of files are read: that of TensorFlow 2.3/2.4 (`level 0` holds the op, copies are
called `MemcpyH2D`, kernel details have `shm`) and today's. Rules follow TensorFlow Profiler; where
today's XProf departs from the guide, the guide is followed.
"""

from __future__ import annotations

import re
import weakref
from collections import Counter

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity import copies
from nbprof.activity.tables import Launches
from nbprof.core.factorize import heads, starting
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects import around, sanity, sides
from nbprof.dialects import notes as shared_notes
from nbprof.dialects.environment import environment
from nbprof.dialects.named_lanes import Lane, fill
from nbprof.dialects.xplane import corrupt, variables
from nbprof.dialects.xplane import cpu_ops as xplane_cpu_ops
from nbprof.dialects.xplane import iterators as xplane_iterators
from nbprof.dialects.xplane import notes as xplane_notes
from nbprof.dialects.xplane import steps as xplane_steps
from nbprof.dialects.xplane import tpu_cores as xplane_tpu_cores
from nbprof.dialects.xplane import tpu_ops as xplane_tpu_ops
from nbprof.dialects.xplane.compiling import COMPILES
from nbprof.dialects.xplane.device import device_activity, devices
from nbprof.dialects.xplane.functions import functions, with_stages
from nbprof.dialects.xplane.grouping import match
from nbprof.dialects.xplane.host_ops import (
    eager_calls,
    eager_notes,
    eager_runs,
    host_ops,
    tagged_calls,
)
from nbprof.dialects.xplane.memory import allocations, has_allocations
from nbprof.dialects.xplane.named_ranges import ranges
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.tpu import is_core
from nbprof.dialects.xplane.tpu_work import op_rows
from nbprof.display import wording
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import JAX, TENSORFLOW, UNKNOWN
from nbprof.hlo.programs import Programs

DERIVED_FIRST = 0xDEADBEEF
DERIVED_COUNT = 4096
STEPS_LINE = DERIVED_FIRST - (1 << 32)
_DERIVED_NAMES = (
    "Steps", "XLA Modules", "XLA Ops", "Async XLA Ops", "Framework Ops", "TensorFlow Ops",
    "Framework Name Scope", "TensorFlow Name Scope", "Source code", "Launch Stats",
)  # fmt: skip
_DEVICE = re.compile(r"/device:(GPU|TPU|CUSTOM)[^0-9]*([0-9]+)?(.*)", re.DOTALL)


_OF_TENSORFLOW = frozenset(
    (
        "ExecutorState::Process",
        "FunctionRun",
        "EagerKernelExecute",
        "SessionRun",
        "EagerExecute",
    )
)

_NO_STEPS = (
    "This profile has no step markers, so step time is unknown. %%nbprof marks the steps of Keras"
    " fit; in your own loop write: for batch in nbprof.steps(dataset)."
)
_NO_STEPS_OF_TPU = (
    "The TPU recorded runs of programs and ops, but no steps, so step time is unknown. Steps are"
    " recorded if the loop marks them: wrap each step in jax.profiler.StepTraceAnnotation('train',"
    " step_num=i), or write: for batch in nbprof.steps(batches)."
)


def interpret(trace: Trace) -> act.Activity:
    """The activity of one profile; fills the kinds of `trace.lanes`.

    Each table is computed when it is first asked for.
    """
    _name_lanes(trace)
    activity = act.Activity(hosts=trace.hosts)
    # The activity holds what makes its tables. Held by that in turn, it would stay in memory, and
    # the trace with it, until Python looks for circles: for minutes.
    tables: act.Activity = weakref.proxy(activity)
    gpus = devices(trace, tables)
    placed = Placed(trace, gpus)
    mended = corrupt.mend(placed)
    tables.xprof = True
    tables.has_device = bool(gpus) or bool(xplane_tpu_ops.core_planes(trace))
    with_ops = trace.lanes.loc[
        (trace.lanes["kind"] == "host") & (trace.lanes["events"] > 0), "host"
    ].unique()
    tables.set_hosts_with_ops(trace.hosts.index(str(host)) for host in with_ops)
    tables.later("programs", lambda: Programs(trace.modules, trace.hosts))
    if gpus:
        device_activity(placed, tables)
    elif xplane_tpu_ops.core_planes(trace):
        tables.later(("device_ops", "op_parts"), lambda: xplane_tpu_ops.device_ops(placed, tables))
        tables.later("device_extents", lambda: xplane_tpu_ops.extents(placed))
    else:
        tables.later(("cpu_ops", "cpu_parts"), lambda: xplane_cpu_ops.cpu_ops(placed, tables))
    _add_steps(placed, tables)
    tables.later("host_ops", lambda: with_stages(placed, tables, host_ops(placed, tables)))
    tables.later("eager_calls", lambda: eager_calls(placed, tables))
    tables.later("eager_runs", lambda: eager_runs(placed, tables))
    tables.later("tagged_calls", lambda: tagged_calls(placed, tables))
    tables.later("iterators", lambda: xplane_iterators.iterators(placed, tables))
    tables.later("iterator_links", lambda: xplane_iterators.links(placed))
    tables.later("iterator_params", lambda: xplane_iterators.params(placed))
    tables.later("iterator_functions", lambda: xplane_iterators.functions(placed, tables))
    tables.later("functions", lambda: functions(placed, tables))
    tables.later("environment", lambda: environment(trace))
    tables.later("allocations", lambda: allocations(placed, tables))
    tables.later("known_tensors", lambda: variables.table(trace, tables))
    tables.later("framework", lambda: _framework(placed))
    tables.later("name_category", lambda: _name_categories(trace))
    tables.later("missing", lambda: _missing(placed, tables))
    tables.later("launches", lambda: launches(placed, tables))
    tables.later("ranges", lambda: ranges(placed, tables))
    tables.later("traits", lambda: _traits(placed))
    tables.later(
        "notes",
        lambda: [
            *placed.unit.notes,
            *mended,
            *notes(placed, tables),
            *xplane_steps.notes(placed, tables),
            *eager_notes(tables),
        ],
    )
    return activity


def _add_steps(placed: Placed, tables: act.Activity) -> None:
    """States how steps and their work are made, of hosts and of cores."""
    tables.later(
        ("markers", "group_names", "incomplete", "rebuilt"),
        lambda: xplane_steps.markers(placed, tables),
    )
    tables.later("unit", lambda: placed.unit)
    tables.later("xprof_markers", lambda: xplane_steps.marks(placed, tables))
    tables.later("core_spans", lambda: xplane_tpu_cores.core_spans(placed))
    tables.later(
        "reads_infeed",
        lambda: bool((tables.core_spans.kind == act.CORE_KINDS.index("infeed")).any()),
    )
    tables.later("sparse_steps", lambda: xplane_tpu_cores.sparse_steps(placed))
    tables.later("core_markers", lambda: xplane_steps.core_markers(placed))
    tables.later("work", lambda: xplane_steps.work(placed, tables))
    tables.later("xprof_work", lambda: xplane_steps.work_as_xprof(placed, tables))


def _is_derived(line_id: Int64s) -> npt.NDArray[np.bool_]:
    """Lines with the ids that profilers give to what they made of other lines."""
    low = (line_id >= STEPS_LINE) & (line_id < STEPS_LINE + DERIVED_COUNT)
    high = (line_id >= DERIVED_FIRST) & (line_id < DERIVED_FIRST + DERIVED_COUNT)
    return np.asarray(low | high, np.bool_)


def _name_lanes(trace: Trace) -> None:
    """Fills `kind device process thread note order plane_name` of the lanes."""
    if not len(trace.lanes):
        return
    _split(trace)
    lanes = trace.lanes
    row = np.arange(len(lanes))
    if "row" in lanes:
        row = lanes["row"].to_numpy(np.int64)
    is_around = row != np.arange(len(lanes))
    planes = lanes["process"].to_numpy()
    thread = lanes["thread"].astype(str)
    by_id = _is_derived(lanes["line_id"].to_numpy(np.int64))
    derived = by_id | thread.str.partition(" - from #")[0].isin(_DERIVED_NAMES).to_numpy()
    # Lists: each look-up of a value in a series is slow.
    texts, line_ids = thread.tolist(), lanes["line_id"].tolist()
    of_plane = lanes["plane"].tolist()
    rows = []
    for i, plane in enumerate(map(str, planes.tolist())):
        if _DEVICE.match(plane) or plane.startswith("#Chip"):
            lane = _device_lane(plane, texts[i], line_ids[i], bool(derived[i]), i)
        else:
            lane = _host_lane(plane, texts[i], bool(by_id[i]), bool(is_around[i]), (int(row[i]), i))
        if trace.planes[of_plane[i]].is_cut:
            lane = lane._replace(kind="unnamed")
        rows.append(lane._replace(thread=lane.thread or _unnamed(line_ids[i])))
    lanes["plane_name"] = planes
    fill(lanes, rows)
    threads = _unique_threads(lanes[~is_around])
    lanes["thread"] = threads[row].tolist()


def _unnamed(line_id: int) -> str:
    """A thread without a name; a large id is not its number, but a hash."""
    if 0 <= line_id < 1 << 31:
        return f"thread {line_id}"
    return "thread"


def _device_lane(plane: str, line: str, line_id: int, derived: bool, i: int) -> Lane:
    """The columns of lane `i`, a line of a device plane."""
    match = _DEVICE.match(plane)
    device, process, helper = 0, plane, ""
    if match:
        # Besides its cores a TPU has planes of helpers (SparseCore), with separate steps.
        device, helper = int(match.group(2) or 0), match.group(3)
        process = f"{match.group(1)} {device}{helper}"
    kind = "derived" if derived else "device"
    of_steps = line.partition(" - from #")[0] == "Steps" or line_id in (STEPS_LINE, DERIVED_FIRST)
    if of_steps and match and not helper:
        kind = "steps"
    note = ""
    stream = re.match(r"Stream #(\d+)\((.*)\)\Z", line)
    if stream:
        line, note = f"Stream {stream.group(1)}", _stream_note(stream.group(2))
    order = (0, device, ("steps", "derived", "device").index(kind), i, i)
    return Lane(kind, device, process, line, note, order)


def _host_lane(
    plane: str, line: str, derived: bool, is_around: bool, order: tuple[int, ...]
) -> Lane:
    """The columns of a line of a host plane; derived lines repeat events of others."""
    line = re.sub(r"/-?\d{6,}\Z", "", line)
    process, rank = plane, 2
    if plane == "/host:CPU":
        process, rank = "Host", 1
    order = (rank, 0, int(not line.startswith("python")), *order)
    if is_around:
        return Lane("derived", -1, process, line, around.NOTE, order)
    return Lane("derived" if derived else "host", -1, process, line, "", order)


def _split(trace: Trace) -> None:
    """Moves the calls of Python that lead to the program to lanes of their own.

    Adds to `trace.lanes`, where there are calls of Python: `side`, 1 for these, and `aside`, the
    lanes without a call of the program.
    """
    python = starting(heads(trace.names), "$")
    if not python.any():
        return
    of_host = trace.lanes["process"].astype(str).str.startswith("/host:").to_numpy(np.bool_)
    leads, aside = around.find(
        trace, python[trace.events.name] & of_host[trace.events.lane], around.XSPACE
    )
    if leads.any():
        sides.split(trace, leads.astype(np.uint8))
        aside = aside[trace.lanes["row"]]
    trace.lanes["aside"] = aside


def _unique_threads(lanes: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Thread names with a number behind those that several threads of one process share."""
    places = [lanes[name].astype(str).tolist() for name in ("host", "process", "thread")]
    keys = list(zip(*places, strict=True))
    count, seen = Counter(keys), Counter[tuple[str, ...]]()
    names = np.empty(len(keys), object)
    for row, key in enumerate(keys):
        seen[key] += 1
        names[row] = key[-1] if count[key] == 1 else f"{key[-1]} #{seen[key]}"
    return names


def _stream_note(kinds: str) -> str:
    plain = {
        "Compute": "compute",
        "MemcpyH2D": "copy H→D",
        "MemcpyD2H": "copy D→H",
        "MemcpyD2D": "copy D→D",
        "Memset": "memset",
        "MemcpyOther": "copy",
    }
    return ", ".join(plain.get(k, k) for k in kinds.split(","))


def _framework(placed: Placed) -> Framework:
    names = set(map(str, placed.trace.names))
    jax = placed.named("jit_", "PjitFunction", "TfrtCpuExecutable", "PjRt").any()
    if jax and "FunctionRun" not in names:
        return JAX
    return TENSORFLOW if names & _OF_TENSORFLOW else UNKNOWN


def _name_categories(trace: Trace) -> npt.NDArray[np.uint8]:
    """By name code: the step-time category whose colour its slices have in the trace (0: none)."""
    index = act.NUMBER_OF_CATEGORY
    category = np.zeros(len(trace.names), np.uint8)
    for code, name in enumerate(trace.names):
        upper = name[:16].upper()
        if upper.startswith("ITERATORGETNEXT") or name in act.WAITS_FOR_ITEMS:
            category[code] = index["input"]
        elif (copied := copies.CLASS.get(copies.kind(name))) is not None:
            category[code] = index[act.CATEGORY_OF_CLASS[copied]]
        elif copies.blit(name):
            category[code] = index[act.CATEGORY_OF_CLASS[act.DEVICE_TO_DEVICE]]
        elif upper.startswith(("NCCL", "RCCL")):
            category[code] = index["device_collectives"]
        elif name.startswith(_LAUNCHING):
            category[code] = index["kernel_launch"]
        elif name.startswith(COMPILES):
            category[code] = index["compile"]
    return category


def _missing(placed: Placed, activity: act.Activity) -> dict[str, str]:
    """A sentence for each kind of data that this profile lacks, by view."""
    missing: dict[str, str] = {}
    without_kernels = _no_kernels(placed, activity)
    if without_kernels:
        missing["kernels"] = without_kernels
    # Runs of eager ops are not steps that a program marked.
    names = activity.group_names.values()
    only_eager = all(name.startswith("EagerKernelExecute ") for name in names)
    has_device_steps = (activity.markers.device >= 0).any()
    if not len(activity.markers) or (only_eager and not has_device_steps):
        missing["steps"] = activity.framework.words.no_steps or _NO_STEPS
        if (activity.devices["kind"] == "TPU").any():
            missing["steps"] = _NO_STEPS_OF_TPU
    # Asked of the events, so that the table need not be made for it.
    if not has_allocations(placed):
        missing["memory"] = (
            "This profile has no allocator events. TensorFlow records those of its GPU allocator,"
            " and on the CPU only large ones; XLA programs allocate once, ahead of time."
        )
    if not len(activity.iterators):
        missing["input"] = _no_tf_data(set(map(str, placed.trace.names)))
    return missing


def _no_kernels(placed: Placed, activity: act.Activity) -> str:
    """Why there are no GPU kernels; '' if there are some."""
    if _without_times(placed):
        return shared_notes.UNUSABLE_TIMES
    if _cut_off(placed):
        return shared_notes.CUT_OFF
    if _lost_ops(placed):
        return xplane_notes.LOST_OPS
    if lost := _lost_kernels(placed):
        launched = wording.plural(lost, "launch was", "launches were")
        return f"This profile has no GPU kernels, although {launched} recorded: {_LOST}"
    kinds = sorted(set(activity.devices["kind"].astype(str)))
    if not kinds:
        return (
            "This profile has no GPU plane: the run used only the CPU, or the GPU was not traced."
        )
    if "GPU" not in kinds:
        return (
            f"The devices of this profile are {', '.join(kinds)}s; GPU kernels are recorded only on"
            " GPUs."
        )
    if not len(activity.kernels):
        return (
            "This profile names a device, but no kernels with launch details were recorded on it."
        )
    return ""


def _no_tf_data(names: set[str]) -> str:
    """Why there are no calls of tf.data."""
    if act.NEXT_ITEM in names:
        return (
            "The input comes from the iterator passed to nbprof.steps, not from tf.data: see the"
            " input pipeline."
        )
    if act.NEXT_BATCH in names:
        return "The input of the Keras loop does not come from tf.data: see the input pipeline."
    return (
        "This profile has no calls of tf.data iterators: the input does not come from a tf.data"
        " pipeline, or it ran before the capture."
    )


_LAUNCHING = (
    "cuLaunch",
    "cudaLaunch",
    "KernelLaunch",
    "hipLaunch",
    "hipModuleLaunch",
    "cuGraphLaunch",
)
_LAUNCHES = re.compile(r"(?:cu|cuda|hip|hipMod)\w*Launch")
_LOST = (
    "the kernels were lost. Record a shorter time, in a fresh process and with no other profiler"
    " running. If that does not help, the process may lack the permission to trace the GPU."
)


def _cut_off(placed: Placed) -> bool:
    """True if a file is truncated, and no work of a device was read."""
    if not placed.trace.receipt.read_in_part or placed.unusable.any():
        return False
    return not placed.on_gpu.any() and not len(op_rows(placed))


def _without_times(placed: Placed) -> bool:
    """True if devices worked, and none of their kernels or ops has a time that can be."""
    if not placed.unusable.any():
        return False
    lanes = placed.trace.lanes
    used = lanes["lane"].isin(placed.trace.events.lane[placed.unusable]).to_numpy(np.bool_)
    return bool(placed.unusable[used[placed.trace.events.lane]].all())


def _lost_ops(placed: Placed) -> bool:
    """True if cores of TPUs ran programs, and no op of these was recorded."""
    if "line" not in placed.trace.lanes or len(op_rows(placed)) or placed.unusable.any():
        return False
    lanes = placed.trace.lanes
    of_core = is_core(placed.trace)[lanes["plane"].to_numpy(np.int64)]
    return bool(lanes.loc[of_core & lanes["line"].eq("XLA Modules"), "events"].any())


def _lost_kernels(placed: Placed) -> int:
    """Number of launched kernels and graphs if nothing was recorded on a GPU; else 0."""
    if placed.on_gpu.any() or placed.unusable.any():
        return 0
    launched = placed.named(*"ch")
    for code in np.flatnonzero(launched).tolist():
        launched[code] = bool(_LAUNCHES.match(placed.trace.names[code]))
    return int((launched[placed.trace.events.name] & placed.on_host).sum())


def _traits(placed: Placed) -> set[str]:
    traits = set()
    if "aside" in placed.trace.lanes:
        traits.add(act.PYTHON_CALLS)
    if placed.waits_of_iterations:
        traits.add(act.WAITS)
    if _lost_kernels(placed) or _lost_ops(placed) or _cut_off(placed):
        traits.add(act.LOST_KERNELS)
    if placed.trace.receipt.read_in_part:
        traits.add(act.READ_IN_PART)
    if _without_times(placed):
        traits |= {act.LOST_KERNELS, act.UNUSABLE_TIMES}
    return traits


def launches(placed: Placed, activity: act.Activity) -> Launches:
    """Calls on a host with a correlation id, their device event, and the op around them."""
    trace, host = placed.trace, placed.host
    events = trace.events
    correlation = trace.arg("correlation_id", 0)
    calls = np.flatnonzero((correlation > 0) & placed.on_host)
    work = np.flatnonzero((correlation > 0) & placed.on_gpu)
    up, down = match(
        calls,
        [correlation[calls], host[calls].astype(np.int64)],
        work,
        [correlation[work], host[work].astype(np.int64)],
    )
    answered = np.zeros(len(events), np.bool_)
    answered[up] = True
    lost = calls[~answered[calls]]
    event = np.concatenate([up, lost])
    target = np.concatenate([down, np.full(len(lost), -1, np.int64)])
    order = np.lexsort((target, event))
    is_op = np.zeros(len(events) + 1, np.bool_)
    is_op[activity.host_ops.event] = True
    op = event.copy()
    # Outwards from each call to the first op around it.
    open_ = np.flatnonzero(~is_op[op])
    while len(open_):
        op[open_] = events.parent[op[open_]]
        open_ = open_[(op[open_] >= 0) & ~is_op[op[open_]]]
    return Launches(event=event, host=host[event], target=target, op=op).take(order)


# Calls that wait, ask or allocate also carry a correlation id, but leave nothing on a device.
_STARTS_WORK = re.compile(r"(cu|cuda|hip|Mod|hipMod)\w*(Launch|Memcpy|Memset)", re.IGNORECASE)


def notes(placed: Placed, activity: act.Activity) -> list[Note]:
    """Notes for the receipt on everything that looks wrong."""
    trace = placed.trace
    lines: list[Note] = []
    if _lost_ops(placed) and not _cut_off(placed):
        lines.append(xplane_notes.lost_ops())
    lost = _lost_kernels(placed)
    if lost and not _cut_off(placed):
        lines.append(shared_notes.lost_kernels(lost, _LOST))
    elif activity.has_device and not _without_times(placed):
        starts = placed.named(*"CcHhMm")
        for code in np.flatnonzero(starts).tolist():
            starts[code] = bool(_STARTS_WORK.match(trace.names[code]))
        calls = activity.launches.frame()
        lines += sanity.lost_launches(
            calls, starts[trace.events.name[calls["event"].to_numpy(np.int64)]]
        )
        work = np.flatnonzero(trace.above("correlation_id", 0) & placed.on_gpu)
        is_launched = np.zeros(len(trace.events) + 1, np.bool_)
        is_launched[calls["target"].to_numpy(np.int64)] = True
        unlaunched = int((~is_launched[work]).sum())
        if unlaunched:
            lines.append(shared_notes.unlaunched_work(unlaunched, len(work)))
        lines += sanity.overlaps(trace, ("device",), "device event")
    return lines
