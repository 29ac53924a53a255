"""The step markers of an XSpace file, and what each event counts for in the step breakdown.

Rules and priorities are TensorFlow Profiler's; where it has become blind to something that the
events say (copies by their older names, bfloat16, collectives that are not NCCL's), this module is
not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity import copies, tables
from nbprof.activity.tables import Markers, Work
from nbprof.core.receipt import Note
from nbprof.core.runs import run_starts
from nbprof.core.trace import TEXT, Int32s, Int64s
from nbprof.dialects.lookups import names_that, text_of
from nbprof.dialects.tensorcores import kernel_precision
from nbprof.dialects.xplane import cpu_copies, unmade
from nbprof.dialects.xplane import cpu_ops as xplane_cpu_ops
from nbprof.dialects.xplane import notes as xplane_notes
from nbprof.dialects.xplane import tpu as xplane_tpu
from nbprof.dialects.xplane import units as xplane_units
from nbprof.dialects.xplane.compiling import COMPILES, waited
from nbprof.dialects.xplane.grouping import THREADPOOL_CONTEXT, inherit, match
from nbprof.dialects.xplane.grouping import group as grouped
from nbprof.dialects.xplane.placed import Flags, Placed
from nbprof.dialects.xplane.tpu_work import core_work, op_rows
from nbprof.dialects.xplane.waiting import waiting
from nbprof.dialects.xplane.work_spans import classified

_MARKER = re.compile(r"(train|test|TraceContext)[^/]*\Z")
# They lie around the work of a step, or are instants of the thread pool.
_ENCLOSING = (
    "EagerExecute",
    "EagerLocalExecute",
    "EagerKernelExecute",
    "FunctionRun",
    "ThreadpoolListener::",
)
# Around a task that waited for an array; the work of the task has separate events, and often it
# only waits.
_AFTER_WAIT = "BufferSequencingEvent::Execute"
_STAGE = "_ipl_stage_name"
_STAGING = ("H2D Dispatch", "CommonPjRtClient::LinearizeInto")
# Around the ops of a program; it also frees the arrays that the program was given.
_RUN = "ThunkExecutor::Execute"


def markers(
    placed: Placed, activity: act.Activity
) -> tuple[Markers, dict[tuple[int, int], str], set[tuple[int, int]], Int64s]:
    """Step markers, names of the steps, and incomplete ones by (host, group); and derived markers.

    The last are event rows of markers that XProf does not have.
    """
    trace, groups, host = placed.trace, placed.groups, placed.host
    events = trace.events
    names: dict[tuple[int, int], str] = {}
    parts = []
    if activity.has_device:
        parts.append(_device_markers(placed, placed.marked_group, names))
    in_group = placed.on_host & (groups.group >= 0)
    marks = placed.named("train", "test", "TraceContext")
    for code in np.flatnonzero(marks).tolist():
        marks[code] = bool(_MARKER.match(trace.names[code]))
    marker = (marks[events.name] | _has_text(placed, "step_name")) & in_group
    for key, root in groups.roots.items():
        # A root whose name is only its number was not marked by the program.
        if not groups.names[key].isdigit():
            marker[root] = placed.on_host[root]
    rows = np.flatnonzero(marker)
    parts.append(tables.marked(events, rows, host, groups.group).frame())
    texts = [""] * len(rows)
    if "step_name" in trace.args:
        texts = trace.texts(trace.text_arg("step_name", rows))
    for host_index, ident, text in zip(
        host[rows].tolist(), groups.group[rows].tolist(), texts, strict=True
    ):
        name = groups.names.get((host_index, ident)) or text
        if name:
            names[host_index, ident] = name
    of_programs = _program_markers(placed)
    table = pd.concat([*parts, of_programs], ignore_index=True)
    # XProf makes markers for the files alone that it groups itself.
    derived = table["event"].to_numpy(np.int64)[table["device"].to_numpy() >= 0]
    derived = derived[(placed.lane_kind != "steps")[events.lane[derived]]]
    hosts_with_roots = [host_index for host_index, _ in groups.roots]
    derived = derived[~np.isin(host[derived], hosts_with_roots)]
    has_loop = np.isin(table["host"].to_numpy(np.int64), list(groups.over_loops))
    over_loops = table["event"].to_numpy(np.int64)[has_loop]
    truncated = set()
    if placed.program_steps is not None:
        steps = placed.program_steps.table
        for host_index, ident, name in steps[["host", "group", "name"]].itertuples(index=False):
            names[host_index, ident] = name
        truncated = placed.program_steps.first
    derived = np.concatenate([derived, over_loops, of_programs["event"].to_numpy(np.int64)])
    return Markers.of(_until_run(placed, table)), names, truncated, derived


def marks(placed: Placed, activity: act.Activity) -> Markers:
    """The original marks of steps that end later, and of GPUs that XProf groups differently."""
    steps, groups = placed.program_steps, placed.groups
    moved = np.unique(placed.host[placed.marked_group != groups.group])
    if len(moved) and activity.has_device:
        as_filled = _device_markers(placed, groups.group, {})
        return Markers.of(as_filled[as_filled["host"].isin(moved)])
    if steps is None or not steps.marked:
        return Markers.empty()
    rows = np.array(
        [root for (host, group), root in groups.roots.items() if host in steps.marked], np.int64
    )
    return tables.marked(placed.trace.events, rows, placed.host, groups.group)


def _until_run(placed: Placed, table: pd.DataFrame) -> pd.DataFrame:
    """The markers, with the times of steps that end later than marked."""
    steps = placed.program_steps
    if steps is None or not steps.marked:
        return table
    times = steps.table.set_index(["host", "group"])[["begin", "end"]]
    actual = times.reindex(pd.MultiIndex.from_frame(table[["host", "group"]]))
    moved = actual["end"].notna().to_numpy() & table["host"].isin(list(steps.marked)).to_numpy()
    for column, key in (("start", "begin"), ("end", "end")):
        values = table[column].to_numpy(np.int64).copy()
        values[moved] = actual[key].to_numpy()[moved].astype(np.int64)
        table = table.assign(**{column: values})
    return table


def _program_markers(placed: Placed) -> pd.DataFrame:
    """Steps that are runs of a compiled program, on the first device if devices recorded them."""
    steps = placed.program_steps
    if steps is None:
        return Markers.empty().frame()
    table = steps.table[~steps.table["host"].isin(list(steps.marked))]
    table = table.rename(columns={"begin": "start"})
    # Each core has the steps of its host, to tell its work in them from that of the others.
    cores = steps.of_cores[["host", "device"]].drop_duplicates()
    of_host = table[~table["host"].isin(cores["host"])]
    of_host = of_host.assign(device=np.where(of_host["host"].isin(list(steps.on_device)), 0, -1))
    if not len(cores):
        return Markers.of(of_host).frame()
    return Markers.of(table.merge(cores, on="host"), of_host).frame()


def core_markers(placed: Placed) -> Markers:
    """The steps of each core of a TPU, if those of its host were found by runs of a program."""
    steps = placed.program_steps
    return Markers.empty() if steps is None else Markers.of(steps.of_cores)


def _has_text(placed: Placed, key: str) -> Flags:
    """bool[events]: whether a text arg is there and not empty."""
    trace = placed.trace
    has_text = np.zeros(len(trace.events), np.bool_)
    if key in trace.args:
        event, codes = trace.args[key].of(TEXT)
        has_text[event] = codes != placed.empty_text
    return has_text


def _device_markers(
    placed: Placed, group: Int32s, names: dict[tuple[int, int], str]
) -> pd.DataFrame:
    """Steps of GPUs and of TPU cores; stated names go into `names`, by (host, group)."""
    trace, groups, host = placed.trace, placed.groups, placed.host
    events = trace.events
    rows = np.flatnonzero((placed.lane_kind == "steps")[events.lane] & (group >= 0))
    for row, text in zip(
        rows.tolist(), trace.texts(trace.text_arg("step_name", rows)), strict=True
    ):
        name = text or groups.names.get((int(host[row]), int(group[row])), "")
        if name:
            names[int(host[row]), int(group[row])] = name
    # Events of a lane are in time order. What a TPU core did for one step is one step.
    core = xplane_tpu.is_core(trace)
    of_lane = np.zeros(len(trace.lanes), np.bool_)
    if len(core):
        of_lane = core[trace.lanes["plane"].to_numpy(np.int64)]
    is_core = of_lane[events.lane[rows]]
    spans = tables.marked(events, rows, host, group, placed.device).frame()
    parts = [spans[~is_core], _runs(spans[is_core], events.lane[rows[is_core]])]
    # Planes of GPUs without a Steps line: it is made as the recorder would have.
    plane = trace.lanes["plane"].to_numpy(np.int64)[events.lane]
    marked = np.zeros(len(trace.planes), np.bool_)
    marked[trace.lanes["plane"].to_numpy(np.int64)[placed.lane_kind == "steps"]] = True
    raw = np.flatnonzero(placed.on_gpu & (group >= 0) & ~marked[plane])
    raw = raw[np.lexsort((-events.duration[raw], events.start[raw], plane[raw]))]
    parts.append(_runs(tables.marked(events, raw, host, group, placed.device).frame(), plane[raw]))
    return Markers.of(*parts).frame()


def _runs(spans: pd.DataFrame, line: npt.NDArray[np.integer]) -> pd.DataFrame:
    """Merges neighbours of the same group on a line; `spans` are in order of lines and time."""
    if not len(spans):
        return spans
    group = spans["group"].to_numpy()
    begins = run_starts(group, line)
    merged = spans.iloc[begins].copy()
    merged["start"] = np.minimum.reduceat(spans["start"].to_numpy(), begins)
    merged["end"] = np.maximum.reduceat(spans["end"].to_numpy(), begins)
    return merged


def notes(placed: Placed, activity: act.Activity) -> list[Note]:
    """Notes on steps: how unmarked ones were found, and which markers are empty."""
    markers = activity.markers.frame()
    lines: list[Note] = []
    if placed.program_steps is not None:
        lines += placed.program_steps.notes
    longest = (markers["end"] - markers["start"]).groupby([markers["host"], markers["group"]]).max()
    empty = int((longest <= 0).sum())
    if empty:
        lines.append(xplane_notes.steps_without_time(empty))
    return lines


def classify(name: str, shape: str) -> int:
    """The step class of one event of a GPU.

    Copies are recognised by all their names. (TensorFlow Profiler of the 2.3/2.4 era counted its
    own `MemcpyH2D` as compute, XProf counts ROCm's.)
    """
    copied = copies.kind(name)
    if copied or copies.blit(name):
        return copies.CLASS[copied or copies.OTHER]
    if name[:4].upper() in ("NCCL", "RCCL"):
        return act.DEVICE_COLLECTIVES
    if shape:
        if "half" in shape or "bf16" in shape or "bfloat16" in shape:
            return act.DEVICE_COMPUTE_16
        return act.DEVICE_COMPUTE_32
    return act.COMPUTE_OF_BITS[kernel_precision(name)]


def classify_as_xprof(name: str, shape: str) -> int:
    """The step class of an event of a GPU in XProf 2.24: today's names of copies, NCCL only."""
    upper = name[:10].upper()
    for prefix, cls in (
        ("MEMCPYHTOD", act.HOST_TO_DEVICE),
        ("MEMCPYDTOH", act.DEVICE_TO_HOST),
        ("MEMCPYDTOD", act.DEVICE_TO_DEVICE),
    ):
        if upper.startswith(prefix):
            return cls
    if upper.startswith("NCCL"):
        return act.DEVICE_COLLECTIVES
    if "half" in (shape or name) or (not shape and "fp16" in name):
        return act.DEVICE_COMPUTE_16
    return act.DEVICE_COMPUTE_32


def work(placed: Placed, activity: act.Activity) -> Work:
    """Spans by step class, of devices and of host threads."""
    steps = placed.program_steps
    group = placed.step_group
    if steps is None:
        group = _with_cores(placed, activity, group)
    spans = _work(placed, activity, classify, group)
    if steps is not None:
        spans = steps.split(spans)
        if not steps.complete:
            spans = waited(placed, spans)
        if placed.iterations is not None and placed.waits_of_iterations:
            spans = Work.concat([spans, xplane_units.waits(steps, placed.iterations)])
    elif not activity.has_device:
        spans = Work.concat([spans, _compiled_work(placed, activity)])
    if activity.has_device:
        return waiting(placed, spans)
    spans = cpu_copies.waited(placed, spans)
    if steps is not None:
        return spans
    return unmade.waited(placed, activity, spans)


def _work(
    placed: Placed, activity: act.Activity, of_gpu_event: Callable[[str, str], int], group: Int32s
) -> Work:
    """Spans by step class; `of_gpu_event` is the class of a GPU event by name and shapes."""
    host_work = _host_work(placed, activity, group, compiling=of_gpu_event is classify)
    if not activity.has_device:
        return host_work
    return Work.concat(
        [_gpu_work(placed, of_gpu_event, group), core_work(placed, group), host_work]
    )


def _compiled_work(placed: Placed, activity: act.Activity) -> Work:
    """Ungrouped runs of XLA's ops on the CPU and their copies, in the step at their begin.

    The runtime hands most of them to threads of a pool without stating the caller. In XProf such a
    step does nothing meanwhile.
    """
    runs = np.flatnonzero(placed.named(_RUN)[placed.trace.events.name] & placed.on_host)
    rows = np.concatenate([xplane_cpu_ops.run_rows(placed), cpu_copies.rows(placed), runs])
    # Three sorted parts, which a stable sort only merges.
    rows = np.sort(rows, kind="stable")
    rows = rows[placed.step_group[rows] < 0]
    copied = cpu_copies.named(placed)
    events = placed.trace.events
    parts = [Work.empty()]
    for host_rows, marks in _marks_at_begin(placed, activity, rows):
        cls = np.where(copied[events.name[host_rows]], act.HOST_TO_DEVICE, act.HOST_COMPUTE)
        spans = tables.marked(events, host_rows, placed.host, placed.step_group)
        end = np.minimum(spans.end, marks.end)
        parts.append(classified(spans, cls).with_(group=marks.group, end=end))
    return Work.concat(parts)


def _marks_at_begin(
    placed: Placed, activity: act.Activity, rows: Int64s
) -> Iterator[tuple[Int64s, Markers]]:
    """By host: the events that begin in a step marked on it, and the mark of each."""
    marks = activity.markers.take(activity.markers.device < 0)
    marks = marks.take(np.lexsort((marks.start, marks.host)))
    start = placed.trace.events.start
    for host in np.unique(marks.host).tolist():
        of_host = marks.take(marks.host == host)
        host_rows = rows[placed.host[rows] == host]
        mark = np.searchsorted(of_host.start, start[host_rows], side="right") - 1
        in_mark = (mark >= 0) & (start[host_rows] < of_host.end[mark])
        yield host_rows[in_mark], of_host.take(mark[in_mark])


def _with_cores(placed: Placed, activity: act.Activity, group: Int32s) -> Int32s:
    """The step of each event; ops of TPU cores are in that at their begin where none states one."""
    rows = op_rows(placed)
    if not len(rows) or (group[rows] >= 0).any():
        return group
    group = group.copy()
    for host_rows, marks in _marks_at_begin(placed, activity, rows):
        group[host_rows] = marks.group
    return group


def work_as_xprof(placed: Placed, activity: act.Activity) -> Work:
    """The spans of `work` by the rules of XProf 2.24.

    Besides the classes of GPU events and compiling, two things differ in files that XProf groups
    itself: events of another thread that produced an element of tf.data are in no step, and the
    instant at which a thread pool begins a task of a step is host compute without length.
    """
    spans = _work(placed, activity, classify_as_xprof, placed.groups.group)
    if "group_id" in placed.trace.args:
        return spans
    if len(placed.groups.links):
        without_elements = grouped(placed.trace, placed.trace.names, elements=False).group >= 0
        spans = spans.take(without_elements[spans.event] | (spans.device >= 0))
    return Work.concat([spans, _pool_starts(placed)])


def _pool_starts(placed: Placed) -> Work:
    """The instants at which thread pools begin tasks of an event in a step."""
    trace, host = placed.trace, placed.host.astype(np.int64)
    events = trace.events
    produced, taken = trace.arg("_p"), trace.arg("_c")
    gave = np.flatnonzero(
        (trace.arg("_pt") == THREADPOOL_CONTEXT) & placed.on_host & (events.parent >= 0)
    )
    begun = np.flatnonzero((trace.arg("_ct") == THREADPOOL_CONTEXT) & placed.on_host)
    giver, start = match(gave, [produced[gave], host[gave]], begun, [taken[begun], host[begun]])
    group = placed.groups.group.copy()
    group[start] = group[events.parent[giver]]
    rows = start[group[start] >= 0]
    spans = tables.marked(events, rows, placed.host, group)
    return classified(spans, act.HOST_COMPUTE).with_(end=spans.start)


def _gpu_work(placed: Placed, of_event: Callable[[str, str], int], group: Int32s) -> Work:
    trace = placed.trace
    events = trace.events
    rows = np.flatnonzero(placed.on_gpu & (group >= 0) & trace.above("correlation_id", -1))
    if not len(rows):
        return Work.empty()
    shape = trace.text_arg("shape", rows)
    pair = events.name[rows].astype(np.int64) * (len(trace.strings) + 1) + shape + 1
    code, seen = pd.factorize(pair)
    classes = np.empty(len(seen), np.int16)
    for i, key in enumerate(seen.tolist()):
        name, text = divmod(key, len(trace.strings) + 1)
        classes[i] = of_event(trace.names[name], text_of(trace.strings, text - 1))
    spans = tables.marked(events, rows, placed.host, group, placed.device)
    return classified(spans, classes[code])


def _host_work(placed: Placed, activity: act.Activity, group: Int32s, *, compiling: bool) -> Work:
    """Work of host threads in steps; the first rule that fits an event wins.

    XProf has no rule for `compiling`, nor for copies on the CPU, and counts the event around a task
    as the task.
    """
    trace, host = placed.trace, placed.host
    events, code = trace.events, trace.events.name
    marker = np.zeros(len(events), np.bool_)
    marks = activity.markers.event[activity.markers.device < 0]
    if placed.program_steps is not None:
        # The first op of a run is the event of its step, but not a marker.
        marks = marks[~np.isin(marks, placed.program_steps.table["event"])]
    marker[marks] = True
    enclosing = list(_ENCLOSING)
    if compiling:
        enclosing.append(_AFTER_WAIT)
    rows = np.flatnonzero(placed.on_host & (group >= 0) & ~placed.named(*enclosing)[code] & ~marker)
    # Few names begin like one that is asked for, in whatever case.
    likely = np.flatnonzero(placed.named("I", "i", "M", "m"))
    upper = [name[:24].upper() for name in trace.names[likely]]

    def starts(*texts: str) -> Int64s:
        return likely[names_that(lambda name: name.startswith(texts), upper)]

    # From the last rule to the first.
    by_name = np.full(len(trace.names), act.HOST_COMPUTE, np.int16)
    if compiling:
        by_name[placed.named(*COMPILES)] = act.HOST_COMPILE
    by_name[starts("ITERATORGETNEXT")] = act.HOST_WAIT_INPUT
    cls = by_name[code[rows]]
    if _STAGE in trace.args:
        cls[_root_stages(placed)[rows]] = act.HOST_WAIT_INPUT
    busy = (trace.lanes["device"].to_numpy() >= 0) & (trace.lanes["events"].to_numpy() > 0)
    if busy.any():
        # On a host whose devices recorded nothing, nothing was launched.
        busy_hosts = trace.lanes["host"].to_numpy(object)[busy]
        is_busy = np.isin(np.array(trace.hosts, object), busy_hosts)[host[rows]]
        launches = placed.named("ExecutorState::Process")[code[rows]]
        launches |= trace.above("correlation_id", -1)[rows]
        cls[launches & is_busy] = act.HOST_PREPARE
    copies = np.zeros(len(trace.names), np.int16)
    copies[starts("MEMCPYHTOH")] = act.HOST_TO_HOST
    copies[starts("INFEEDENQUEUE", "MEMCPYHTOD")] = act.HOST_TO_DEVICE
    if compiling and not activity.has_device:
        copies[cpu_copies.named(placed)] = act.HOST_TO_DEVICE
    elif compiling and placed.gpu_planes:
        # JAX first copies an array into memory that a GPU can read from, which takes longer than
        # the rest of the way.
        copies[placed.named(*_STAGING)] = act.HOST_TO_DEVICE
    copied = copies[code[rows]]
    cls = np.where(copied > 0, copied, cls)
    return classified(tables.marked(events, rows, host, group), cls)


def _root_stages(placed: Placed) -> Flags:
    """bool[events]: outermost stages of an input pipeline, on their thread and across threads."""
    trace = placed.trace
    events = trace.events
    stage = _has_text(placed, _STAGE) & ~placed.computed_items
    # 1 for events that are a stage or inside one.
    within = inherit(events.parent, events.depth, np.where(stage, 1, -1).astype(np.int64))
    parent = events.parent
    inner = stage & (parent >= 0) & (within[parent] == 1)
    up, down = _stage_links(placed, np.flatnonzero(within == 1), np.flatnonzero(stage))
    inner[down[up != down]] = True
    return np.asarray(stage & ~inner, np.bool_)


def _stage_links(placed: Placed, makers: Int64s, takers: Int64s) -> tuple[Int64s, Int64s]:
    trace, host = placed.trace, placed.host.astype(np.int64)
    makers, takers = makers[trace.arg("_p")[makers] != -1], takers[trace.arg("_c")[takers] != -1]
    produced = [trace.arg("_pt")[makers], trace.arg("_p")[makers], host[makers]]
    taken = [trace.arg("_ct")[takers], trace.arg("_c")[takers], host[takers]]
    return match(makers, produced, takers, taken)
