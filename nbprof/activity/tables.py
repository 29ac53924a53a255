"""The tables of an activity, each declared once: what has a row, and the meaning of each column.

Tables are narrow: the index of an event and what the dialect adds, as codes. Names are looked up at
the end. Times are ps on the clock of the trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.columns import Columns, boolean, float64, int8, int16, int32, int64, text
from nbprof.core.trace import Events, Int32s, Int64s

Ints = npt.NDArray[np.integer[Any]]


class Spans(Columns):
    """Events with their times."""

    event = int64("Index into the events of the trace; -1 for rows that stand for no event.")
    host = int32("Number of the host.")
    start = int64("Begin, ps.")
    end = int64("End, ps.")


class Markers(Spans):
    """Step markers of hosts and devices."""

    group = int64("Number of the step on its host.")
    device = int32("Number of the device; -1 on the host.")


class Work(Markers):
    """Spans classified for the step breakdown; `group` is -1 outside of steps."""

    cls = int16("Step class, one of those in `nbprof.activity.activity`.")


class SparseSteps(Spans):
    """Steps of SparseCores, by themselves."""

    device = int32("Number of the device.")
    core = int32("Number of the SparseCore beside the device.")


class CoreSpans(Spans):
    """Times in which TPU cores ran ops, each without the ops inside it."""

    device = int32("Number of the device.")
    core = int32("Number of a SparseCore beside the device; -1 for its TensorCore.")
    kind = int8("Index into `CORE_KINDS`.")
    op = int64("The same number for the same op on each core.")


class HostOps(Spans):
    """Runs of framework ops on threads of a host."""

    lane = int32("Lane of the thread.")
    op = int32("Code into `Activity.ops`.")
    type = int32("Code into `Activity.types`.")
    dataset = boolean("It is an op of the input pipeline.")
    in_dataset = boolean("It runs in a function that the input pipeline calls.")
    eager = boolean("It was launched op by op, not out of a compiled program.")


class DeviceOps(Spans):
    """Runs of framework ops on devices, or of compiled programs on the CPU."""

    device = int32("Number of the device.")
    op = int32("Code into `Activity.ops`.")
    type = int32("Code into `Activity.types`.")
    eager = boolean("It was launched op by op, not out of a compiled program.")
    own = int64("Duration without the runs in it, ps.")
    part = int32("Row of `OpParts`.")
    tensor_core = int8(
        "Whether the kernel uses Tensor Cores: 1, 0, or -1 if it is no kernel or its name does not"
        " tell."
    )


class OpParts(Columns):
    """Parts of ops on a device: kernels, or ops of a compiled program. Sums are over all runs."""

    program = int64("Ident of the program; 0 for none.")
    name = text("Name of the kernel, or of the op in the program.")
    category = text("Category in the program.")
    source = text("Line of code.")
    module = text("Name of the program in the events.")
    framework_op = text("Op of the framework, as noted by the compiler.")
    expression = text("The op as XLA writes it; empty where it is to be written from the program.")
    duplicate = text("Name that it shares with its duplicates.")
    hlo = boolean("It is an op of a compiled program.")
    flops = float64("FLOPs; NaN if unknown.")
    bytes = float64("Bytes moved; NaN if unknown.")
    normalized_flops = float64("FLOPs, narrow ones counted by their width.")
    memory_bytes = float64("Bytes of main memory alone.")
    xprof = boolean("XProf counts it.")
    runs = float64("How often it ran.")
    xprof_runs = float64("How many runs XProf takes one for: it counts the kernels of an op.")
    xprof_flops = float64("FLOPs counted by XProf.")
    host = int32("A host that ran it.")
    cmem_read = float64("Bytes read from CMEM; TPUs only.", optional=True)
    cmem_write = float64("Bytes written to CMEM; TPUs only.", optional=True)
    vmem_read = float64("Bytes read from VMEM; TPUs only.", optional=True)
    vmem_write = float64("Bytes written to VMEM; TPUs only.", optional=True)


class Extents(Columns):
    """First start and last end of each device."""

    host = int32("Number of the host.")
    device = int32("Number of the device.")
    start = int64("First start, ps.")
    end = int64("Last end, ps.")


class Kernels(Columns):
    """Executions of GPU kernels."""

    event = int64("Index into the events of the trace.")
    host = int32("Number of the host.")
    device = int32("Number of the device.")
    duration = int64("Duration, ps.")
    kernel = int32("Code into `Activity.kernel_names`.")
    op = int32("Code into `Activity.ops`: the op that launched it.")
    details = int32("Index into `Activity.launch_shapes`.")
    eligible = int8(
        "Whether its op is of a kind that Tensor Cores compute: 1, 0, or -1 if no op is known."
    )
    tensor_core = int8("Whether it uses Tensor Cores: 1, 0, or -1 if its name does not tell.")
    occupancy = float64("Achieved occupancy in percent; NaN if unknown.")
    module = int32(
        "Code into `Activity.texts`: the module that launched it; -1 if unknown.", optional=True
    )
    source = int32(
        "Code into `Activity.texts`: the line of code that launched it; -1 if unknown.",
        optional=True,
    )
    aten_ops = int32(
        "Code into `Activity.texts`: the ops that torch.compile made it of; -1 if unknown.",
        optional=True,
    )


class EngineIterations(Spans):
    """Iterations of an inference engine; -1 for what their annotations do not state."""

    group = int64("Number of the step on its host.")
    begun = int64("Begin on the host, ps.")
    done = int64("End on the host, ps.")
    name = int32("Code into `Activity.texts`: the annotation.")
    kind = int32("Code into `Activity.texts`: prefill, decode, …")
    requests = int64("Requests in the batch.")
    prefill_requests = int64("Requests that were prefilled.")
    prefill_tokens = int64("Tokens that were prefilled.")
    decode_requests = int64("Requests that were decoded.")
    decode_tokens = int64("Tokens that were decoded.")


class GraphWork(Spans):
    """Device work of replays of CUDA and HIP graphs."""

    device = int32("Number of the device.")
    graph = int64("Ident of the graph.")
    node = int64("Ident of the node in the graph.")
    replay = int64("Number of the replay.")
    name = int32("Code into `Activity.kernel_names`.")
    op = int32("Code into `Activity.ops`.")
    module = int32("Code into `Activity.texts`; -1 if unknown.")
    source = int32("Code into `Activity.texts`: line of code; -1 if unknown.")
    aten_ops = int32(
        "Code into `Activity.texts`: the ops that torch.compile made it of; -1 if unknown."
    )


class Allocations(Columns):
    """Allocator events in time order; NA for what the allocator did not state."""

    event = int64("Index into the events of the trace.")
    host = int32("Number of the host.")
    memory = int32("Code into `Activity.texts`: name of the allocator.")
    time = int64("Time, ps.")
    allocation = boolean("It allocates; otherwise it frees.")
    requested = int64("Bytes that the program requested.")
    allocated = int64("Bytes that the allocator handed out.")
    address = int64("Address of the block.")
    stack = int64("Bytes of the stack in use.")
    heap = int64("Bytes of the heap in use.")
    free = int64("Bytes that are free.")
    fragmentation = float64("Share of the free memory that is not in the largest free block.")
    lifetime_peak = int64("Highest use since the program began, bytes.")
    group = int64("Number of the step on its host; -1 for none.")
    op = int32("Code into `Activity.texts`: the op that allocated.")
    region = int32("Code into `Activity.texts`: kind of the region.")
    data_type = int32("Code into `Activity.texts`: type of the tensor.")
    shape = int32("Code into `Activity.texts`: shape of the tensor.")


class KnownTensors(Columns):
    """Memory of which the recording itself says what it is used for, by the objects of the program:
    one row per storage and moment.
    """

    host = int32("Number of the host.")
    memory = int32("Code into `Activity.texts`: name of the allocator.")
    address = int64("Address of the block.")
    size = int64("Bytes of the storage; what the allocator rounds up is not in them.")
    role = int32("Code into `Activity.texts`: one of `nbprof.core.memory_roles`.")
    time = int64("When the storage was there, ps; the largest number at the end of the recording.")


class TorchOps(Spans):
    """Ops, annotations and runtime calls of PyTorch, as a forest."""

    kind = int8("`TORCH_OP`, `TORCH_ANNOTATION` or `TORCH_CALL`.")
    parent = int64("Row of the one around it; -1 for none.")
    op = int32("Code into `Activity.ops`.")
    own = int64("Duration without what lies in it, ps.")
    device_own = int64("Device work that it launched itself, ps.")
    shape = int32("Code into `Activity.texts`: shapes of the inputs; -1 if unknown.")
    types = int32("Code into `Activity.texts`: types of the inputs; -1 if unknown.")
    stack = int32("Code into `Activity.torch_stacks`; -1 for none.")
    forward = int64(
        "Row of the op of the forward pass that this one of the backward pass belongs to; -1 for"
        " none."
    )
    numbered = boolean("Autograd numbered it, which it does while gradients are enabled.")
    source = int32("Code into `Activity.texts`: line of code; -1 if unknown.", optional=True)
    aten_ops = int32(
        "Code into `Activity.texts`: the ops that torch.compile made a kernel of; -1 if unknown.",
        optional=True,
    )


class CostParts(Columns):
    """Ops of PyTorch with the shapes of their inputs."""

    name = text("Name of the op.")
    category = text("Category of the op.")
    shapes = text("Shapes of the inputs.")
    precision = text("Type of the numbers that it computes with.")
    product = boolean("It is a matrix product, a convolution or attention.")
    host = int32("A host that ran it.")


class CostRuns(Columns):
    """Runs of ops of PyTorch with what they computed and moved, where shapes were recorded."""

    host = int32("Number of the host.")
    device = int32("Number of the device.")
    start = int64("Begin, ps.")
    own = int64("Device time of what it launched; without a device, its self time on the host, ps.")
    alone = int64(
        "Of a run of unknown cost, the part of it in which the device did nothing else, ps."
    )
    part = int32("Row of `CostParts`.")
    flops = float64("FLOPs; NaN if unknown.")
    bytes = float64("Bytes moved; NaN if unknown.")
    recomputed = boolean("It ran a second time, for the backward pass.")


class TorchCalls(Columns):
    """Calls of Python functions in the order of their events, but those around the whole
    recording.
    """

    event = int64("Index into the events of the trace.")
    parent = int64("Row of the call around it; -1 for none.")
    stack = int32("Code into `Activity.torch_stacks`, which ends in the call.")


class TorchModules(Spans):
    """Calls of nn.Modules."""

    own = int64("Duration without the modules called in it, ps.")
    stack = int32("Code into `Activity.torch_stacks`.")


class Functions(Spans):
    """Calls of tf.functions."""

    lane = int32("Lane of the thread.")
    name = int32("Code into `Activity.texts`.")
    mode = int32(
        "Code into `Activity.texts`; it begins with `TRACED` if the call traced the function."
    )
    tracings = int64("How often the function had been traced by then.")


class Iterators(Spans):
    """Runs of tf.data iterators."""

    lane = int32("Lane of the thread.")
    iterator = int64("Ident of the iterator.")
    parent = int64("Ident of the iterator that it belongs to.")
    name = int32("Code into `Activity.ops`.")


class Transfers(Spans):
    """Copies between memories."""

    device = int32("Number of the device.")
    kind = int32("Code into `Activity.texts`: H2D, D2H, D2D, P2P or memset.")
    bytes = int64("Size; -1 if unknown.")
    pageable = boolean("The memory on the host is not pinned.", optional=True)
    rate = float64("Bytes per second, as stated by the file; NaN if unknown.", optional=True)


class Launches(Columns):
    """Calls on the host that start work on a device: a row for each of its device events, or one
    where none was recorded.
    """

    event = int64("The call.")
    host = int32("Number of the host.")
    target = int64("The device event; -1 if none was recorded.")
    op = int64("Event of the op that called; -1 for none.")
    came_of = int64(
        "Event of the op that the device event comes of: that of a node, not the one that launched"
        " its graph.",
        optional=True,
    )


class Calls(Spans):
    """Calls of a host into the runtime of a device."""

    group = int64("Number of the step on its host; -1 for none.")
    kind = int32(
        "Code into `Activity.texts`: launch, graph, copy, copy H2D, copy D2H, fill, sync, allocate,"
        " captured (into a graph) or other."
    )
    name = int32("Code into `Activity.texts`.")


class Overheads(Spans):
    """Times in which a profiler worked for itself, as it recorded them."""


class OptimizerCalls(Spans):
    """Calls in which an optimizer updated parameters."""

    name = int32("Code into `Activity.texts`.")


class Ranges(Spans):
    """Ranges that the program named on threads of a host, by lane and start."""

    lane = int32("Lane of the thread.")
    parent = int64("Row of the range around it; -1 for none.")
    name = int32("Code into `Activity.texts`.")
    kind = int32(
        "Code into `Activity.texts`, what set it: record_function, NVTX, ROCTx, TraceAnnotation or"
        " mstx; `optimizer` is set by PyTorch itself, and listed where there are others."
    )


class Collectives(Spans):
    """Communication on a device."""

    device = int32("Number of the device.")
    name = int32("Code into `Activity.texts`.")
    bytes = int64("Bytes that each rank puts in; -1 if unknown.")
    group_size = int32("Number of ranks; -1 if unknown.")
    out_bytes = int64("Bytes that each rank gets; -1 if unknown.", optional=True)
    process_group = int64(
        "Code into `Activity.texts`: name of the process group; -1 if unknown.", optional=True
    )
    description = int64(
        "Code into `Activity.texts`: what the program calls the process group; -1 if unknown.",
        optional=True,
    )
    members = int64(
        "Code into `Activity.texts`: ranks of the process group; -1 if unknown.", optional=True
    )
    sequence = int64("Number of the collective in its process group; -1 if unknown.", optional=True)


def located(
    events: Events, rows: Int64s, host: Int32s, **columns: Int32s
) -> dict[str, npt.NDArray[Any]]:
    """The columns of `Spans` for some events, and those given besides; `host` and the others have
    an item a row.
    """
    start = events.start[rows]
    return {
        "event": rows,
        "host": host,
        "start": start,
        "end": start + events.duration[rows],
        **columns,
    }


def marked(
    events: Events, rows: Int64s, host: Int32s, group: Ints, device: Int32s | None = None
) -> Markers:
    """Some events as rows of `Markers`; the other arguments have an item an event, and without
    `device` all are on the host.
    """
    of_device = np.full(len(rows), -1, np.int32) if device is None else device[rows]
    return Markers(**located(events, rows, host[rows], device=of_device), group=group[rows])


def extents(host: Int32s, device: Int32s, start: Int64s, end: Int64s) -> Extents:
    """First start and last end by host and device; the arguments have an item an event."""
    if not len(host):
        return Extents.empty()
    order = np.lexsort((device, host))
    host, device = host[order], device[order]
    first = np.flatnonzero(np.append(True, (np.diff(host) != 0) | (np.diff(device) != 0)))
    low, high = np.minimum.reduceat(start[order], first), np.maximum.reduceat(end[order], first)
    return Extents(host=host[first], device=device[first], start=low, end=high)
