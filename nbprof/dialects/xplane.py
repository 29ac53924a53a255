"""Turns the Trace of an XSpace file (TensorFlow, JAX) into the activity tables.

Two generations of files are read: that of TensorFlow 2.3/2.4 (`level 0` holds the op, copies are called `MemcpyH2D`, kernel details
have `shm`) and today's. Rules follow TensorFlow Profiler; where today's XProf departs from the guide, the guide is followed.
"""

from __future__ import annotations

import re
import weakref

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof import activity as act
from nbprof.dialects import opnames, xplane_iterators
from nbprof.dialects.grouping import inherit
from nbprof.dialects.placed import Placed
from nbprof.dialects.xplane_device import device_activity, device_markers, device_work, devices
from nbprof.dialects.xplane_launches import launches, notes
from nbprof.dialects.xplane_memory import allocations, has_allocations
from nbprof.trace import Int64s, Trace

DERIVED_FIRST = 0xDEADBEEF
DERIVED_COUNT = 4096
STEPS_LINE = DERIVED_FIRST - (1 << 32)
_DERIVED_NAMES = (
    "Steps",
    "XLA Modules",
    "XLA Ops",
    "Async XLA Ops",
    "Framework Ops",
    "TensorFlow Ops",
    "Framework Name Scope",
    "TensorFlow Name Scope",
    "Source code",
    "Launch Stats",
)
_MARKER = re.compile(r"(train|test|TraceContext)[^/]*\Z")
_ENCLOSING = ("EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun")
_DEVICE = re.compile(r"/device:(GPU|TPU|CUSTOM)[^0-9]*([0-9]+)?")
# Instants of the thread pool and of the allocator would only clutter the timeline; the tools hide them too.
HIDDEN = ("ThreadpoolListener::", "MemoryAllocation", "MemoryDeallocation")


def interpret(trace: Trace) -> act.Activity:
    """The activity of one profile. Fills the kinds of `trace.lanes`; each table is made when it is first asked for."""
    _name_lanes(trace)
    activity = act.Activity(hosts=trace.hosts)
    # The activity holds what makes its tables. Held by that in turn, it would stay in memory, and the trace with it, until Python
    # looks for circles: for minutes.
    out: act.Activity = weakref.proxy(activity)
    gpus = devices(trace, out)
    placed = Placed(trace, gpus)
    out.has_device = bool(gpus)
    out.has_host_ops = bool(trace.lanes.loc[trace.lanes["kind"] == "host", "events"].sum())
    if gpus:
        device_activity(placed, out)
    out.later(("markers", "group_names"), lambda: _markers(placed, out))
    out.later("work", lambda: _work(placed, out))
    out.later("host_ops", lambda: _host_ops(placed, out))
    out.later("iterators", lambda: xplane_iterators.iterators(placed, out))
    out.later("iterator_links", lambda: xplane_iterators.links(placed))
    out.later("iterator_params", lambda: xplane_iterators.params(placed))
    out.later("allocations", lambda: allocations(placed, out))
    out.later("framework", lambda: _framework(trace))
    out.later("name_category", lambda: _name_categories(trace))
    out.later("missing", lambda: _missing(placed, out))
    out.later("launches", lambda: launches(placed, out))
    out.later("notes", lambda: notes(placed, out))
    return activity


def _is_derived(line_id: Int64s, thread: pd.Series) -> npt.NDArray[np.bool_]:
    low = (line_id >= STEPS_LINE) & (line_id < STEPS_LINE + DERIVED_COUNT)
    high = (line_id >= DERIVED_FIRST) & (line_id < DERIVED_FIRST + DERIVED_COUNT)
    by_name = thread.str.partition(" - from #")[0].isin(_DERIVED_NAMES).to_numpy()
    return np.asarray(low | high | by_name, np.bool_)


def _name_lanes(trace: Trace) -> None:
    lanes = trace.lanes
    if not len(lanes):
        return
    raw = lanes["process"].to_numpy()
    thread = lanes["thread"].astype(str)
    derived = _is_derived(lanes["line_id"].to_numpy(np.int64), thread)
    kinds, devices, processes, notes, order = [], [], [], [], []
    names = []
    for i, plane in enumerate(raw):
        found = _DEVICE.match(str(plane))
        text = thread.iloc[i]
        note = ""
        if found or str(plane).startswith("#Chip"):
            device = int(found.group(2) or 0) if found else 0
            kind = "steps" if text == "Steps" else "derived" if derived[i] else "device"
            process = f"{found.group(1)} {device}" if found else str(plane)
            stream = re.match(r"Stream #(\d+)\((.*)\)\Z", text)
            if stream:
                text, note = f"Stream {stream.group(1)}", _stream_note(stream.group(2))
            rank = (0, device, 0 if kind == "steps" else 1 if kind == "derived" else 2, i)
        else:
            device, kind = -1, "host"
            process = "Host" if str(plane) == "/host:CPU" else str(plane)
            text = re.sub(r"/-?\d{6,}\Z", "", text)
            rank = (1 if process == "Host" else 2, 0, 0 if text.startswith("python") else 1, i)
        kinds.append(kind)
        devices.append(device)
        processes.append(process)
        names.append(text or f"thread {lanes['line_id'].iloc[i]}")
        notes.append(note)
        order.append(rank)
    lanes["kind"], lanes["device"], lanes["note"] = kinds, devices, notes
    lanes["plane_name"] = raw
    lanes["process"] = processes
    lanes["thread"] = _unique_threads(pd.Series(names), lanes)
    place = {i: n for n, i in enumerate(sorted(range(len(order)), key=order.__getitem__))}
    lanes["order"] = [place[i] for i in range(len(order))]


def _unique_threads(names: pd.Series, lanes: pd.DataFrame) -> list[str]:
    """Thread names with a number behind those that several threads of one process share."""
    key = lanes["host"].astype(str) + "\0" + lanes["process"].astype(str) + "\0" + names
    total = key.map(key.value_counts())
    rank = key.groupby(key).cumcount() + 1
    return [f"{n} #{r}" if t > 1 else n for n, t, r in zip(names, total, rank, strict=True)]


def _stream_note(kinds: str) -> str:
    plain = {
        "Compute": "compute",
        "MemcpyH2D": "copy H→D",
        "MemcpyD2H": "copy D→H",
        "MemcpyD2D": "copy D→D",
        "Memset": "memset",
    }
    return ", ".join(plain.get(k, k) for k in kinds.split(","))


def _markers(placed: Placed, out: act.Activity) -> tuple[pd.DataFrame, dict[tuple[int, int], str]]:
    """Step markers of devices and of hosts, and the names of the steps by (host, group)."""
    trace, groups, host = placed.trace, placed.groups, placed.host
    events = trace.events
    names: dict[tuple[int, int], str] = {}
    parts = [device_markers(placed, names)] if out.has_device else []
    grouped = placed.on_host & (groups.group >= 0)
    marks = np.fromiter((bool(_MARKER.match(n)) for n in trace.names), np.bool_, len(trace.names))
    marker = marks[events.name] & grouped
    step_name = trace.args.get("step_name")
    if step_name is not None:
        named = np.zeros(len(events), np.bool_)
        named[step_name.event] = True
        marker |= named & grouped
    for ident, root in groups.roots.items():
        if not groups.names[ident].isdigit():
            marker[root] = True
    rows = np.flatnonzero(marker)
    parts.append(act.spans(events, rows, host, groups.group))
    texts = trace.texts(trace.text_arg("step_name")[rows]) if step_name is not None else [""] * len(rows)
    for row, text in zip(rows.tolist(), texts, strict=True):
        ident = int(groups.group[row])
        name = groups.names.get(ident) or text
        if name:
            names[(int(host[row]), ident)] = name
    return pd.concat(parts, ignore_index=True), names


def _work(placed: Placed, out: act.Activity) -> pd.DataFrame:
    """Spans by step class, of devices and of host threads; on a host the first rule that fits an event wins."""
    trace, groups, host = placed.trace, placed.groups, placed.host
    events = trace.events
    grouped = placed.on_host & (groups.group >= 0)
    if out.has_device and len(out.markers):
        known = set(
            zip(
                out.markers["host"][out.markers["device"] >= 0],
                out.markers["group"][out.markers["device"] >= 0],
                strict=True,
            )
        )
        pairs = pd.MultiIndex.from_arrays([host, groups.group])
        if known:
            grouped &= pairs.isin(list(known))
    marker = np.zeros(len(events), np.bool_)
    marker[out.markers.loc[out.markers["device"] < 0, "event"].to_numpy(np.int64)] = True
    code = events.name
    skip = placed.named(*_ENCLOSING, *HIDDEN[:1])[code] | marker
    upper = [n[:24].upper() for n in trace.names]

    def starts(*texts: str) -> npt.NDArray[np.bool_]:
        return np.fromiter((u.startswith(texts) for u in upper), np.bool_, len(upper))

    cls_of_name = np.full(len(trace.names), act.HOST_COMPUTE, np.int16)
    cls_of_name[starts("ITERATORGETNEXT")] = act.HOST_WAIT_INPUT
    if out.has_device:
        cls_of_name[placed.named("ExecutorState::Process")] = act.HOST_PREPARE
    cls = cls_of_name[code]
    if out.has_device:
        cls[trace.arg("correlation_id") >= 0] = act.HOST_PREPARE
    copies = np.zeros(len(trace.names), np.int16)
    copies[starts("MEMCPYHTOH")] = act.HOST_TO_HOST
    copies[starts("INFEEDENQUEUE", "MEMCPYHTOD")] = act.HOST_TO_DEVICE
    cls = np.where(copies[code] > 0, copies[code], cls)
    rows = np.flatnonzero(grouped & ~skip)
    on_host = act.spans(events, rows, host, groups.group).assign(cls=cls[rows])
    return pd.concat([device_work(placed), on_host], ignore_index=True) if out.has_device else on_host


def _host_ops(placed: Placed, out: act.Activity) -> pd.DataFrame:
    trace, host = placed.trace, placed.host
    events = trace.events
    used = np.zeros(len(trace.names), np.bool_)
    used[events.name[placed.on_host]] = True
    op = np.full(len(trace.names), -1, np.int32)
    kind = np.full(len(trace.names), -1, np.int32)
    dataset = np.zeros(len(trace.names), np.bool_)
    for at in np.flatnonzero(used).tolist():
        parsed = opnames.parse(trace.names[at])
        if parsed.category:
            op[at] = out.ops.code(parsed.name)
            kind[at] = out.types.code(parsed.type)
            dataset[at] = parsed.category == "dataset"
    rows = np.flatnonzero((op >= 0)[events.name] & placed.on_host)
    code = events.name[rows]
    return pd.DataFrame(
        {
            "event": rows,
            "host": host[rows],
            "lane": events.lane[rows],
            "start": events.start[rows],
            "end": events.start[rows] + events.duration[rows],
            "op": op[code],
            "type": kind[code],
            "dataset": dataset[code],
            "eager": _eager(placed)[rows] & ~dataset[code],
        },
        copy=False,
    )


def _eager(placed: Placed) -> npt.NDArray[np.bool_]:
    """Ops run eagerly: stated by `is_eager`, else those whose nearest EagerKernelExecute runs no function."""
    trace = placed.trace
    if "is_eager" in trace.args:
        return trace.arg("is_eager", 0) > 0
    events = trace.events
    execute = np.asarray(trace.names == "EagerKernelExecute", np.bool_)
    if not execute.any():
        return np.zeros(len(events), np.bool_)
    own = np.where(execute[events.name], trace.arg("is_func", 0), -1)
    return np.asarray(inherit(events.parent, events.depth, own.astype(np.int64)) == 0, np.bool_)


def _framework(trace: Trace) -> str:
    names = set(map(str, trace.names))
    if any(n.startswith(("jit_", "PjitFunction", "TfrtCpuExecutable", "PjRt")) for n in names) and "FunctionRun" not in names:
        return "JAX"
    if names & {"ExecutorState::Process", "FunctionRun", "EagerKernelExecute", "SessionRun", "EagerExecute"}:
        return "TensorFlow"
    return ""


def _name_categories(trace: Trace) -> npt.NDArray[np.uint8]:
    """By name code: the step-time category whose colour a slice of that name takes in the trace (0: none)."""
    index = {name: i + 1 for i, name in enumerate(act.CATEGORIES)}
    out = np.zeros(len(trace.names), np.uint8)
    for code, name in enumerate(trace.names):
        upper = name[:16].upper()
        if upper.startswith(("ITERATORGETNEXT", "MEMCPYHTOD", "MEMCPYH2D")):
            out[code] = index["input"]
        elif upper.startswith(("MEMCPYDTOH", "MEMCPYD2H")):
            out[code] = index["output"]
        elif upper.startswith(("MEMCPYDTOD", "MEMCPYD2D")):
            out[code] = index["device_to_device"]
        elif upper.startswith(("NCCL", "RCCL")):
            out[code] = index["device_collectives"]
        elif name.startswith(("cuLaunch", "cudaLaunch", "KernelLaunch", "hipLaunch", "hipModuleLaunch", "cuGraphLaunch")):
            out[code] = index["kernel_launch"]
        elif name.startswith(("XlaCompile", "TfrtCpuClient::Compile", "PjRtCpuClient::Compile", "backend_compile")):
            out[code] = index["compile"]
    return out


def _missing(placed: Placed, out: act.Activity) -> dict[str, str]:
    """A sentence for everything that this profile does not have, by view."""
    missing: dict[str, str] = {}
    if not out.has_device:
        other = ", ".join(sorted(set(out.devices["kind"].astype(str))))
        missing["kernels"] = (
            f"The devices of this profile are {other}s; GPU kernels are recorded on GPUs only."
            if other
            else "No GPU plane is in this profile: the run used the CPU only, or the GPU was not traced."
        )
    elif not len(out.kernels):
        missing["kernels"] = "A device is named in this profile, but no kernel with launch details was recorded on it."
    if not len(out.markers):
        missing["steps"] = (
            "No step markers are in this profile, so step time is unknown. %%nbprof marks the steps of Keras fit; "
            "in a loop of your own write: for batch in nbprof.steps(dataset)."
        )
    # Asked of the events, so that the table need not be made for it.
    if not has_allocations(placed):
        missing["memory"] = (
            "No allocator events are in this profile. TensorFlow records those of its GPU allocator, and on the CPU only large ones; "
            "XLA programs allocate once, ahead of time."
        )
    if not len(out.iterators):
        missing["input"] = (
            "No calls of tf.data iterators are in this profile: the input does not come from a tf.data pipeline, "
            "it ran before the capture, or the whole loop over the dataset is inside one tf.function."
        )
    return missing
