"""One vocabulary for every producer: what a dialect makes of a Trace, and all that the analyses may look at.

Tables are narrow: the event's index plus what the dialect adds, as codes. Names are looked up at the end.
A table that the producer did not record is empty, and `missing` says why in a sentence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.given_peaks import KEYS, ON_CHIP
from nbprof.activity.unit import MARKED, Unit
from nbprof.core.callstacks import Stacks
from nbprof.core.trace import Events, Int32s, Int64s, Note
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import UNKNOWN


def text_column(values: npt.NDArray[np.object_], codes: npt.NDArray[np.integer[Any]]) -> pd.api.extensions.ExtensionArray:
    """Texts by code as the column of a frame; pandas looks at each different text once, not at the text of each row."""
    out: pd.api.extensions.ExtensionArray = pd.Series(values).array.take(codes)
    return out


def device_names(devices: pd.DataFrame) -> str:
    """The models of the devices, each once; "" without devices.

    Some profilers name one of several identical devices and call the others only GPU; these are no model of their own.
    """
    names = list(dict.fromkeys(map(str, devices["name"].dropna())))
    return ", ".join([name for name in names if name not in set(devices["kind"].astype(str))] or names)


def table(columns: dict[str, str]) -> pd.DataFrame:
    """An empty frame of the given column types."""
    return _table(tuple(columns.items())).copy()


@cache
def _table(columns: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    return pd.DataFrame({name: np.zeros(0, dtype) for name, dtype in columns})


def joined(parts: list[pd.DataFrame], columns: dict[str, str]) -> pd.DataFrame:
    """Tables one behind the other, each column copied once, to its type."""
    return pd.DataFrame(
        {name: np.concatenate([part[name].to_numpy() for part in parts], dtype=kind, casting="unsafe") for name, kind in columns.items()},
        copy=False,
    )


def located(events: Events, rows: Int64s, host: Int32s, **where: Int32s) -> dict[str, npt.NDArray[Any]]:
    """Where and when some events were, as the first columns of most tables; `where` is their `device` or `lane`."""
    start = events.start[rows]
    return {"event": rows, "host": host, **where, "start": start, "end": start + events.duration[rows]}


def spans(events: Events, rows: Int64s, host: Int32s, group: Int32s, device: Int32s | None = None) -> pd.DataFrame:
    """Events as the first columns of `MARKERS` and `WORK`; `device` -1 (the host) when left out.

    Parameters
    ----------
    events : Events
    rows : int64[n]
        Which events.
    host, group, device : int32[events]
        By event.
    """
    return pd.DataFrame(
        {
            "event": rows,
            "host": host[rows],
            "group": group[rows],
            "device": device[rows] if device is not None else np.full(len(rows), -1, np.int32),
            "start": events.start[rows],
            "end": events.start[rows] + events.duration[rows],
        },
        copy=False,
    )


MARKERS = {"event": "i8", "host": "i4", "group": "i8", "device": "i4", "start": "i8", "end": "i8"}


WORK = {"event": "i8", "host": "i4", "group": "i8", "device": "i4", "start": "i8", "end": "i8", "cls": "i2"}


CORE_KINDS = ("compute", "infeed", "outfeed", "all_reduce", "send", "recv", "host_transfer")


SPARSE_STEPS = {"event": "i8", "host": "i4", "device": "i4", "core": "i4", "start": "i8", "end": "i8"}


CORE_SPANS = {**SPARSE_STEPS, "kind": "i1", "op": "i8"}


HOST_OPS = {
    "event": "i8",
    "host": "i4",
    "lane": "i4",
    "start": "i8",
    "end": "i8",
    "op": "i4",
    "type": "i4",
    "dataset": "?",
    "eager": "?",
}


DEVICE_OPS = {
    "event": "i8",
    "host": "i4",
    "device": "i4",
    "start": "i8",
    "end": "i8",
    "op": "i4",
    "type": "i4",
    "eager": "?",
    "own": "i8",
    "part": "i4",
    "tensor_core": "i1",
}


OP_PARTS = {
    "program": "i8",
    "name": "object",
    "category": "object",
    "source": "object",
    "module": "object",
    "framework_op": "object",
    "expression": "object",
    "duplicate": "object",
    "hlo": "?",
    "flops": "f8",
    "bytes": "f8",
    "normalized_flops": "f8",
    "memory_bytes": "f8",
    "xprof": "?",
    "runs": "f8",
    "xprof_runs": "f8",
    "xprof_flops": "f8",
    "host": "i4",
}


EXTENTS = {"host": "i4", "device": "i4", "start": "i8", "end": "i8"}


KERNELS = {
    "event": "i8",
    "host": "i4",
    "device": "i4",
    "duration": "i8",
    "kernel": "i4",
    "op": "i4",
    "details": "i4",
    "eligible": "i1",
    "tensor_core": "i1",
    "occupancy": "f8",
}


ENGINE_ITERATIONS = {
    "event": "i8",
    "host": "i4",
    "group": "i8",
    "start": "i8",
    "end": "i8",
    "begun": "i8",
    "done": "i8",
    "name": "i4",
    "kind": "i4",
    "requests": "i8",
    "prefill_requests": "i8",
    "prefill_tokens": "i8",
    "decode_requests": "i8",
    "decode_tokens": "i8",
}


GRAPH_WORK = {
    "event": "i8",
    "host": "i4",
    "device": "i4",
    "graph": "i8",
    "node": "i8",
    "replay": "i8",
    "start": "i8",
    "end": "i8",
    "name": "i4",
    "op": "i4",
    "module": "i4",
    "source": "i4",
    "aten_ops": "i4",
}


ALLOCATIONS = {
    "event": "i8",
    "host": "i4",
    "memory": "i4",
    "time": "i8",
    "allocation": "?",
    "requested": "i8",
    "allocated": "i8",
    "address": "i8",
    "stack": "i8",
    "heap": "i8",
    "free": "i8",
    "fragmentation": "f8",
    "lifetime_peak": "i8",
    "group": "i8",
    "op": "i4",
    "region": "i4",
    "data_type": "i4",
    "shape": "i4",
}


TORCH_OP, TORCH_ANNOTATION, TORCH_CALL = 0, 1, 2


TORCH_OPS = {
    "event": "i8",
    "host": "i4",
    "kind": "i1",
    "start": "i8",
    "end": "i8",
    "parent": "i8",
    "op": "i4",
    "own": "i8",
    "device_own": "i8",
    "shape": "i4",
    "types": "i4",
    "stack": "i4",
    "forward": "i8",
    "numbered": "?",
}


COST_PARTS = {"name": "object", "category": "object", "shapes": "object", "precision": "object", "product": "?", "host": "i4"}


COST_RUNS = {
    "host": "i4",
    "device": "i4",
    "start": "i8",
    "own": "i8",
    "alone": "i8",
    "part": "i4",
    "flops": "f8",
    "bytes": "f8",
    "recomputed": "?",
}


TORCH_CALLS = {"event": "i8", "parent": "i8", "stack": "i4"}


TORCH_MODULES = {"event": "i8", "host": "i4", "start": "i8", "end": "i8", "own": "i8", "stack": "i4"}


FUNCTIONS = {"event": "i8", "host": "i4", "lane": "i4", "start": "i8", "end": "i8", "name": "i4", "mode": "i4", "tracings": "i8"}
TRACED = "traced"
"""How the mode of a call begins that traces the function."""


ITERATORS = {"event": "i8", "host": "i4", "lane": "i4", "iterator": "i8", "parent": "i8", "name": "i4", "start": "i8", "end": "i8"}


DEVICES = [
    "host",
    "device",
    "kind",
    "name",
    "compute_capability",
    "memory_bytes",
    "memory_bytes_per_second",
    "cores",
    "clock_khz",
    "peak_flops_per_second",
    *(f"{level}_bytes_per_second" for level in ON_CHIP),
    "chip",
    "chip_core",
    "megacore",
    "sparse_cores",
]


TRANSFERS = {"event": "i8", "host": "i4", "device": "i4", "start": "i8", "end": "i8", "kind": "i4", "bytes": "i8"}


LAUNCHES = {"event": "i8", "host": "i4", "target": "i8", "op": "i8"}


CALLS = {"event": "i8", "host": "i4", "group": "i8", "start": "i8", "end": "i8", "kind": "i4", "name": "i4"}


OPTIMIZER_CALLS = {"event": "i8", "host": "i4", "start": "i8", "end": "i8", "name": "i4"}


RANGES = {"event": "i8", "host": "i4", "lane": "i4", "start": "i8", "end": "i8", "parent": "i8", "name": "i4", "kind": "i4"}


COLLECTIVES = {
    "event": "i8",
    "host": "i4",
    "device": "i4",
    "start": "i8",
    "end": "i8",
    "name": "i4",
    "bytes": "i8",
    "group_size": "i4",
}


# Step classes by priority: the larger wins where two overlap. Source: the event types of TensorFlow Profiler's step breakdown.
HOST_COMPUTE, HOST_COMPILE, HOST_TO_HOST, HOST_TO_DEVICE, HOST_PREPARE = 10, 60, 70, 80, 90
# The host stands still until the device has caught up: neither compute nor launching, so it must not be taken for either.
HOST_WAIT_DEVICE = 75
# Of programs that serve requests: no class of a training step's chart.
HOST_PREPROCESS, HOST_POSTPROCESS, HOST_BATCH_FORMATION, HOST_RUNTIME = 20, 30, 40, 50
# Between two nodes of one replayed graph the device runs nothing for some microseconds, because each is recorded.
DEVICE_BETWEEN_NODES = 95
DEVICE_COLLECTIVES, HOST_WAIT_INPUT, DEVICE_TO_DEVICE, DEVICE_TO_HOST = 100, 110, 120, 130
# Nothing says how wide the numbers of a DEVICE_COMPUTE are.
DEVICE_COMPUTE_32, DEVICE_COMPUTE, DEVICE_COMPUTE_16, DEVICE_WAIT_DEVICE, DEVICE_WAIT_HOST = 140, 145, 150, 160, 170

CATEGORY_OF_CLASS: dict[int, str] = {
    HOST_COMPUTE: "host_compute",
    HOST_PREPROCESS: "other",
    HOST_POSTPROCESS: "other",
    HOST_BATCH_FORMATION: "other",
    HOST_RUNTIME: "other",
    HOST_COMPILE: "compile",
    HOST_TO_HOST: "other",
    HOST_WAIT_DEVICE: "other",
    HOST_TO_DEVICE: "input",
    HOST_PREPARE: "kernel_launch",
    DEVICE_BETWEEN_NODES: "device_compute",
    DEVICE_COLLECTIVES: "device_collectives",
    HOST_WAIT_INPUT: "input",
    DEVICE_TO_DEVICE: "device_to_device",
    DEVICE_TO_HOST: "output",
    DEVICE_COMPUTE_32: "device_compute",
    DEVICE_COMPUTE: "device_compute",
    DEVICE_COMPUTE_16: "device_compute",
    DEVICE_WAIT_DEVICE: "device_to_device",
    DEVICE_WAIT_HOST: "input",
}

COMPUTE_OF_BITS: dict[int, int] = {0: DEVICE_COMPUTE, 16: DEVICE_COMPUTE_16, 32: DEVICE_COMPUTE_32}

CATEGORIES: tuple[str, ...] = (
    "device_compute",
    "device_to_device",
    "device_collectives",
    "host_compute",
    "kernel_launch",
    "input",
    "output",
    "compile",
    "other",
)
"""Step-time categories in stack order, bottom to top."""


NEXT_ITEM = "nbprof.steps: next item"
"""Name of the span that nbprof records around the wait of ``nbprof.steps`` for its next item."""

NEXT_BATCH = "Keras: next batch"
"""Name of the span that nbprof records around the wait of a loop of Keras for its next batch."""

WAITS_FOR_ITEMS = (NEXT_ITEM, NEXT_BATCH)


class Names:
    """Strings as codes, each once."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """The code of a text; a new one when it was not seen before."""
        return self.codes.setdefault(text, len(self.codes))

    @property
    def values(self) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
        """The texts by code."""
        return np.array(list(self.codes), object)


UNKNOWN_PRECISION = "unknown precision"
"""One of `Activity.traits`: neither kernels nor their names state the types of their inputs."""
UNKNOWN_EAGER = "unknown eager runs"
"""One of `Activity.traits`: whether what ran on devices was launched op by op or out of a compiled program is not recorded."""
UNKNOWN_COPIES = "unknown copies"
"""One of `Activity.traits`: the recording has no copy, and does not tell whether copies were recorded."""
LOST_KERNELS = "lost kernels"
"""One of `Activity.traits`: a device was used, but none of its kernels was recorded, so what it did is unknown."""
EMPTY = "no events"
"""One of `Activity.traits`: the trace has no events and no counters."""
PLAIN = "plain trace"
"""One of `Activity.traits`: no framework or recorder that nbprof knows wrote the trace: it has lanes, events and counters, and no more."""
SHAPES = "shapes of inputs"
"""One of `Activity.traits`: the shapes of the inputs of PyTorch's ops were recorded."""
PYTHON_CALLS = "Python calls"
"""One of `Activity.traits`: calls of Python are events of the trace."""
ITERATIONS = "iterations of a graph"
"""One of `Activity.traits`: steps are iterations of a graph on an NPU; of four or more, the first two are startup."""


SERVING = "iterations of an inference engine"
"""One of `Activity.traits`: steps are those of an inference engine, which trains nothing."""


WAITS = "waits of a loop"
"""One of `Activity.traits`: how long the iterations of a loop waited for their items was recorded, whatever made them."""


class Activity:
    """Everything that happened in one profile, in the terms of the analyses. Times are ps on the trace's clock.

    A table is made when it is first asked for, so that a frame costs only what it needs: the dialect states how with `later`.
    What it states nothing about is empty.

    Attributes
    ----------
    markers : host or device (`device` -1 on the host) step markers; `group` numbers the step of a host
    core_markers : step markers of cores whose steps are others than those of their host
    core_spans : when TPU cores ran ops, of an op without those inside; `core` is -1 for the TensorCore of a device, else the number of a
        SparseCore beside it, `kind` an index into `CORE_KINDS`, `op` the same number for the same op on each core
    sparse_steps : steps of SparseCores, by themselves
    rebuilt : int64, events of those device markers that were made of grouped events, which XProf does not do
    xprof_markers : the markers of hosts whose steps end later than marked, as the file has them and XProf takes them
    work : spans classified for the step breakdown
    backlog : device work that was launched before the recording began: it counts for no step
    xprof_work : the same spans, classified by the rules of XProf 2.24
    host_ops, device_ops : runs of framework ops; `op` and `type` are codes into `ops` and `types`. On a device `own` is the run's time
        without the runs in it, `part` a row of `op_parts`, `tensor_core` says whether a kernel uses Tensor Cores (-1: it is no kernel)
    op_parts : what an op is made of on the device, a kernel or an op of a compiled program: the program's ident (0: none), its name
        and category there, the line of code, what the events call the program, the framework's op that the compiler noted, the op as XLA
        writes it ('' where it is to be written from the program), the name that it shares with its duplicates, whether it is an op of a
        compiled program at all; the FLOPs and bytes of all runs (NaN: not known), of FLOPs also those that XProf counts and with narrow
        ones counted by their width,
        of bytes also those of main memory alone; how often it ran; whether XProf counts it, how many runs XProf takes one for (it counts
        the kernels of an op), and a host that ran it. Of TPUs also the bytes that all runs moved in memories on the chip, in columns by the
        names of `nbprof.activity.given_peaks.ON_CHIP`
    cpu_ops, cpu_parts : the same of ops of programs that XLA compiled for the CPU, on the threads of a host
    programs : the compiled programs of the file
    program_notes : what the receipt says about compiled programs in which ops were looked up
    tagged_calls : events of the host that are no op but state the op that they served (calls of the allocator and of the driver)
    python_calls : calls of programs on a GPU back into Python, as events of the host thread that launches; columns as of `host_ops`
    device_extents : first start and last end of each device
    kernels : executions of GPU kernels; `details` is a code into `launch_shapes`; `tensor_core` is 1, 0, or -1 where the name cannot tell,
        `eligible` 1, 0, or -1 where no op is known
    xprof_kernels, xprof_launch_shapes : the same by the rules of XProf 2.24, where it can read the file
    engine_iterations : steps that are iterations of an inference engine: when the host `begun` each and was `done` with it, and what its
        annotation says; `name` and `kind` are codes into `texts`; -1 for what it does not say
    transfers : copies between memories; `kind` is a code into `texts` ("H2D", "D2H", "D2D", "P2P", "memset"), bytes -1 where unknown
    launches : calls on the host that start work on a device: the call, the device event (-1: none was recorded), the op that called (-1)
    collectives : communication on a device; `name` is a code into `texts`; bytes and group_size -1 where unknown
    calls : calls of the host into the device's runtime; `kind` is a code into `texts`: launch, graph, copy,
        copy H2D, copy D2H, fill, sync, allocate, captured (into a graph), other
    optimizer_calls : where an optimizer updated parameters; `name` is a code into `texts`
    ranges : ranges that the program named, on threads of a host, by lane and start; `parent` is the range around, a row of the table, -1;
        `name` and `kind` (what set it: record_function, NVTX, ROCTx, TraceAnnotation, mstx; "optimizer" is set by PyTorch itself, and
        listed where there are others) are codes into `texts`
    allocations : allocator events; texts are codes into `texts`; what the allocator did not state is NA
    iterators : runs of tf.data iterators; `name` is a code into `ops`
    iterator_links : int64[k, 2], pairs of iterator calls: the one that took an element, and the one that made it on another thread
    iterator_params : what iterators of tf.data state about themselves, by iterator
    iterator_functions : types of the ops that the functions of their pipelines ran, with their time in ms
    torch_ops, torch_stacks : ops, annotations and runtime calls of PyTorch (`kind`) as a forest: `parent` and `forward` (the op of the
        forward pass that one of the backward pass belongs to) are rows of the table, -1 for none; `own` without what lies in it,
        `device_own` the device work that it launched itself; `shape` and `types` (of the inputs) are codes into `texts`, `stack` one into
        `torch_stacks`, -1; `numbered` says whether autograd numbered it, as it does while gradients are enabled; `source` (lines of code)
        and `aten_ops` (of what a kernel of torch.compile was made) are codes into `texts`, -1
    torch_calls : calls of Python functions in the order of their events, but those around the whole recording; `stack`, a code into
        `torch_stacks`, ends in the call; `parent` is the call around it, a row of the table, -1
    torch_modules : calls of nn.Modules; `own` without the modules called in it
    cost_runs, cost_parts : runs of ops of PyTorch with what they computed and moved, where shapes were recorded (NaN: not known), and what
        they are runs of: `part` is an op with the shapes of its inputs, `precision` what it computes with, `product` whether it is a matrix
        product, convolution or attention. `own` is the device time of what it launched, without a device its self time on the host;
        `alone` of a run of unknown cost the part of it in which the device did nothing else; `recomputed` says whether it ran a second
        time for the backward pass
    functions : calls of tf.functions; `name` and `mode` are codes into `texts`, `tracings` how often the function was traced by then
    eager_calls : calls of single ops that left no op, and their time in ps
    eager_runs : the same calls, each as a run of the op that it names; columns as of `host_ops`
    environment : what the file says of where and when the program ran: `versions`, `start_time`, `duration_s`
    group_names : by (host, group)
    unit : what `markers` mark: steps, or what stands in their place where nothing marks any
    cut : (host, group) of steps of which the begin, or the end of the device work, was not recorded; they are shown, but not averaged
    lost : (host, group) of steps of which the recorder lost device work; they are shown, but not averaged
    batches : by (host, group) how often a step asked DataLoaders for a batch; only where such calls were recorded, else empty
    waited : (host, group) of steps in which a collective waited at the start of the recording for another rank: warm-up
    memory_added_up : names of memories whose totals nothing states: bytes in use are summed from the recorded events, so what was
        allocated before the recording is missing
    memory_capacity : bytes that an allocator could have at most, by the memory's name, where the file states it
    xprof : whether XProf can read the file
    missing : why a view is empty, by view
    notes : what the receipt says about how the events hang together
    xprof_bytes_per_second : the peak of main memory that XProf takes for the GPUs'; NaN where it is that of `devices`
    given_peaks : peaks of the devices that a person gave, by the names of `nbprof.activity.given_peaks.KEYS`; they stand in `devices` too
    tables : what Ascend's profilers state in tables, by kind, see `nbprof.core.trace.Table`; {} of any other format
    traits : what the program was seen to use or do that advice is about: "DataParallel", "gloo: 12", "out of memory: 1",
        `UNKNOWN_PRECISION`, `UNKNOWN_EAGER`, `UNKNOWN_COPIES`, `PLAIN`, `EMPTY`, `ITERATIONS`, `SERVING`
    has_host_ops, hosts_without_ops : whether ops of any host were recorded, and, if so, the numbers of the hosts of which none were
    reads_infeed : whether programs of a TPU read from its infeed, so that the device itself says how long it waits for input
    """

    hosts: list[str]
    devices: pd.DataFrame
    markers: pd.DataFrame
    core_markers: pd.DataFrame
    core_spans: pd.DataFrame
    sparse_steps: pd.DataFrame
    rebuilt: Int64s
    xprof_markers: pd.DataFrame
    work: pd.DataFrame
    backlog: pd.DataFrame
    xprof_work: pd.DataFrame
    host_ops: pd.DataFrame
    device_ops: pd.DataFrame
    op_parts: pd.DataFrame
    cpu_ops: pd.DataFrame
    cpu_parts: pd.DataFrame
    program_notes: list[Note]
    programs: Any
    tagged_calls: pd.DataFrame
    python_calls: pd.DataFrame
    device_extents: pd.DataFrame
    kernels: pd.DataFrame
    xprof_kernels: pd.DataFrame
    graph_work: pd.DataFrame
    engine_iterations: pd.DataFrame
    transfers: pd.DataFrame
    launches: pd.DataFrame
    collectives: pd.DataFrame
    calls: pd.DataFrame
    optimizer_calls: pd.DataFrame
    ranges: pd.DataFrame
    allocations: pd.DataFrame
    iterators: pd.DataFrame
    iterator_links: npt.NDArray[np.int64]
    iterator_params: dict[int, dict[str, object]]
    iterator_functions: dict[str, float]
    torch_ops: pd.DataFrame
    torch_stacks: Stacks | None
    torch_calls: pd.DataFrame
    torch_modules: pd.DataFrame
    cost_runs: pd.DataFrame
    cost_parts: pd.DataFrame
    functions: pd.DataFrame
    eager_calls: tuple[int, int]
    eager_runs: pd.DataFrame
    environment: dict[str, object]
    group_names: dict[tuple[int, int], str]
    unit: Unit
    cut: set[tuple[int, int]]
    lost: set[tuple[int, int]]
    batches: dict[tuple[int, int], int]
    waited: set[tuple[int, int]]
    memory_added_up: set[str]
    memory_capacity: dict[str, int]
    ops: Names
    types: Names
    kernel_names: Names
    texts: Names
    launch_shapes: list[dict[str, object]]
    xprof_launch_shapes: list[dict[str, object]]
    missing: dict[str, str]
    notes: list[Note]
    given_peaks: dict[str, float]
    xprof_bytes_per_second: float
    tables: dict[str, list[Any]]
    traits: set[str]
    framework: Framework
    has_device: bool
    xprof: bool
    has_host_ops: bool
    hosts_without_ops: set[int]
    reads_infeed: bool
    name_category: npt.NDArray[np.uint8]
    """By name code of the trace: index into CATEGORIES + 1, 0 for none; the colour of a slice."""

    def __init__(self, hosts: list[str]) -> None:
        self.hosts = hosts
        self._makers: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {}
        self._lock = threading.RLock()

    def set_hosts_with_ops(self, hosts: Iterable[int]) -> None:
        """States of which hosts ops were recorded, by number."""
        found = set(hosts)
        self.has_host_ops = bool(found)
        self.hosts_without_ops = set(range(len(self.hosts))) - found if found else set()

    def host_has_ops(self, host: int) -> bool:
        """Whether ops of a host were recorded."""
        return self.has_host_ops and host not in self.hosts_without_ops

    def later(self, names: str | tuple[str, ...], make: Callable[[], Any]) -> None:
        """States how a table, or several at once, are made; `make` gives the value, or one value a name."""
        several = (names,) if isinstance(names, str) else names
        for name in several:
            self._makers[name] = (several, make)

    def maker(self, name: str) -> Callable[[], Any]:
        """How a value of its own is made, for a dialect that adds to it."""
        return self._makers.get(name, ((name,), _EMPTY[name]))[1]

    def forget(self, name: str) -> None:
        """Lets go of a table that is made again when it is asked for again."""
        with self._lock:
            if name in self._makers:
                self.__dict__.pop(name, None)

    def give_peaks(self, peaks: Mapping[str, float]) -> None:
        """Gives all devices these peaks."""
        if peaks:
            self.given_peaks = dict(peaks)
            self.devices = self.devices.assign(**{KEYS[name]: value for name, value in peaks.items()})

    def __getattr__(self, name: str) -> Any:
        # Only reached while the attribute has no value yet.
        if name.startswith("_") or name not in Activity.__annotations__:
            raise AttributeError(name)
        with self._lock:
            if name not in self.__dict__:
                names, make = self._makers.get(name, ((name,), _EMPTY[name]))
                made = make()
                for key, value in zip(names, made if len(names) > 1 else (made,), strict=True):
                    self.__dict__[key] = value
            return self.__dict__[name]


def _empty(columns: dict[str, str]) -> Callable[[], pd.DataFrame]:
    return lambda: table(columns)


_EMPTY: dict[str, Callable[[], Any]] = {
    "devices": lambda: pd.DataFrame(columns=DEVICES),
    "markers": _empty(MARKERS),
    "core_markers": _empty(MARKERS),
    "core_spans": _empty(CORE_SPANS),
    "sparse_steps": _empty(SPARSE_STEPS),
    "rebuilt": lambda: np.zeros(0, np.int64),
    "xprof_markers": _empty(MARKERS),
    "work": _empty(WORK),
    "backlog": _empty(WORK),
    "xprof_work": _empty(WORK),
    "host_ops": _empty(HOST_OPS),
    "device_ops": _empty(DEVICE_OPS),
    "op_parts": _empty(OP_PARTS),
    "cpu_ops": _empty(DEVICE_OPS),
    "cpu_parts": _empty(OP_PARTS),
    "program_notes": list,
    "programs": lambda: None,
    "tagged_calls": _empty(HOST_OPS),
    "python_calls": _empty(HOST_OPS),
    "device_extents": _empty(EXTENTS),
    "kernels": _empty(KERNELS),
    "xprof_kernels": _empty(KERNELS),
    "graph_work": _empty(GRAPH_WORK),
    "engine_iterations": _empty(ENGINE_ITERATIONS),
    "transfers": _empty(TRANSFERS),
    "launches": _empty(LAUNCHES),
    "collectives": _empty(COLLECTIVES),
    "calls": _empty(CALLS),
    "optimizer_calls": _empty(OPTIMIZER_CALLS),
    "ranges": _empty(RANGES),
    "allocations": _empty(ALLOCATIONS),
    "iterators": _empty(ITERATORS),
    "iterator_links": lambda: np.zeros((0, 2), np.int64),
    "iterator_params": dict,
    "iterator_functions": dict,
    "torch_ops": _empty(TORCH_OPS),
    "torch_stacks": lambda: None,
    "torch_calls": _empty(TORCH_CALLS),
    "torch_modules": _empty(TORCH_MODULES),
    "cost_runs": _empty(COST_RUNS),
    "cost_parts": _empty(COST_PARTS),
    "functions": _empty(FUNCTIONS),
    "eager_calls": lambda: (0, 0),
    "eager_runs": _empty(HOST_OPS),
    "environment": dict,
    "group_names": dict,
    "unit": lambda: MARKED,
    "cut": set,
    "lost": set,
    "batches": dict,
    "waited": set,
    "memory_added_up": set,
    "memory_capacity": dict,
    "ops": Names,
    "types": Names,
    "kernel_names": Names,
    "texts": Names,
    "launch_shapes": list,
    "xprof_launch_shapes": list,
    "missing": dict,
    "notes": list,
    "given_peaks": dict,
    "xprof_bytes_per_second": lambda: float("nan"),
    "tables": dict,
    "traits": set,
    "framework": lambda: UNKNOWN,
    "has_device": bool,
    "xprof": bool,
    "has_host_ops": bool,
    "hosts_without_ops": set,
    "reads_infeed": bool,
    "name_category": lambda: np.zeros(0, np.uint8),
}
