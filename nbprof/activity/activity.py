"""One vocabulary for every producer: what a dialect makes of a Trace, and all that the analyses may
look at.

Tables are declared in `nbprof.activity.tables`.
A table that the producer did not record is empty, and `missing` says why in a sentence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.given_peaks import KEYS, ON_CHIP
from nbprof.activity.tables import (
    Allocations,
    Calls,
    Collectives,
    CoreSpans,
    CostParts,
    CostRuns,
    DeviceOps,
    EngineIterations,
    Extents,
    Functions,
    GraphWork,
    HostOps,
    Iterators,
    Kernels,
    KnownTensors,
    Launches,
    Markers,
    OpParts,
    OptimizerCalls,
    Overheads,
    Ranges,
    SparseSteps,
    TorchCalls,
    TorchModules,
    TorchOps,
    Transfers,
    Work,
)
from nbprof.activity.unit import MARKED, Unit
from nbprof.core.callstacks import Stacks
from nbprof.core.columns import Columns
from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import UNKNOWN

MOST_BUFFERED = "most_buffered_elements"
"""Key of the most elements that the buffer of an iterator of tf.data held."""


def text_column(
    values: npt.NDArray[np.object_], codes: npt.NDArray[np.integer[Any]]
) -> pd.api.extensions.ExtensionArray:
    """Texts by code as the column of a frame; pandas looks at each different text once, not at the
    text of each row.
    """
    taken: pd.api.extensions.ExtensionArray = pd.Series(values).array.take(codes)
    return taken


def device_names(devices: pd.DataFrame) -> str:
    """The models of the devices, each once; "" without devices.

    Some profilers name one of several identical devices and call the others only GPU; these are no
    model of their own.
    """
    names = list(dict.fromkeys(map(str, devices["name"].dropna())))
    return ", ".join(
        [name for name in names if name not in set(devices["kind"].astype(str))] or names
    )


CORE_KINDS = ("compute", "infeed", "outfeed", "all_reduce", "send", "recv", "host_transfer")


TORCH_OP, TORCH_ANNOTATION, TORCH_CALL = 0, 1, 2


TRACED = "traced"
"""How the mode of a call begins that traces the function."""


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


# Step classes by priority: the larger wins where two overlap. Source: the event types of TensorFlow
# Profiler's step breakdown.
HOST_COMPUTE, HOST_COMPILE, HOST_TO_HOST, HOST_TO_DEVICE, HOST_PREPARE = 10, 60, 70, 80, 90
# The host stands still until the device has caught up: neither compute nor launching, so it must
# not be taken for either.
HOST_WAIT_DEVICE = 75
# Of programs that serve requests: no class of a training step's chart.
HOST_PREPROCESS, HOST_POSTPROCESS, HOST_BATCH_FORMATION, HOST_RUNTIME = 20, 30, 40, 50
# Between two nodes of one replayed graph the device runs nothing for some microseconds, because
# each is recorded.
DEVICE_BETWEEN_NODES = 95
DEVICE_COLLECTIVES, HOST_WAIT_INPUT, DEVICE_TO_DEVICE, DEVICE_TO_HOST = 100, 110, 120, 130
# Nothing says how wide the numbers of a DEVICE_COMPUTE are.
DEVICE_COMPUTE_32, DEVICE_COMPUTE, DEVICE_COMPUTE_16, DEVICE_WAIT_DEVICE = 140, 145, 150, 160
DEVICE_WAIT_HOST = 170

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
    "device_compute", "device_to_device", "device_collectives", "host_compute", "kernel_launch",
    "input", "output", "compile", "other",
)  # fmt: skip
"""Step-time categories in stack order, bottom to top."""
NUMBER_OF_CATEGORY = {name: number for number, name in enumerate(CATEGORIES, 1)}


NEXT_ITEM = "nbprof.steps: next item"
"""Name of the span that nbprof records around the wait of ``nbprof.steps`` for its next item."""

NEXT_BATCH = "Keras: next batch"
"""Name of the span that nbprof records around the wait of a loop of Keras for its next batch."""

NEXT_OF_GRAIN = "grain: next batch"
"""Name of the span that nbprof records around the wait of a loop for grain, outside of JAX."""

WAITS_FOR_ITEMS = (NEXT_ITEM, NEXT_BATCH, NEXT_OF_GRAIN)


class Names:
    """Strings as codes, each once."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self._values = np.zeros(0, object)

    def code(self, text: str) -> int:
        """The code of a text; a new one when it was not seen before."""
        return self.codes.setdefault(text, len(self.codes))

    def encode(self, texts: Iterable[str]) -> npt.NDArray[np.int32]:
        """The codes of several texts."""
        return np.fromiter(map(self.code, texts), np.int32)

    @property
    def values(self) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
        """The texts by code; not to be changed."""
        if len(self._values) < len(self.codes):
            self._values = np.array(list(self.codes), object)
            self._values.flags.writeable = False
        return self._values


UNKNOWN_PRECISION = "unknown precision"
"""One of `Activity.traits`: neither kernels nor their names state the types of their inputs."""
UNKNOWN_EAGER = "unknown eager runs"
"""One of `Activity.traits`: whether what ran on devices was launched op by op or out of a compiled
program is not recorded.
"""
UNKNOWN_COPIES = "unknown copies"
"""One of `Activity.traits`: the recording has no copy, and does not tell whether copies were
recorded.
"""
LOST_KERNELS = "lost kernels"
"""One of `Activity.traits`: a device was used, but none of its kernels was recorded, so what it did
is unknown.
"""
READ_IN_PART = "read in part"
"""One of `Activity.traits`: a file is truncated or damaged, and may have had what is missing."""
UNUSABLE_TIMES = "unusable times"
"""One of `Activity.traits`, with `LOST_KERNELS`: kernels were recorded, and none of them has a time
that can be.
"""
EMPTY = "no events"
"""One of `Activity.traits`: the trace has no events and no counters."""
PLAIN = "plain trace"
"""One of `Activity.traits`: no framework or recorder that nbprof knows wrote the trace: it has
lanes, events and counters, and no more.
"""
SHAPES = "shapes of inputs"
"""One of `Activity.traits`: the shapes of the inputs of PyTorch's ops were recorded."""
PYTHON_CALLS = "Python calls"
"""One of `Activity.traits`: calls of Python are events of the trace."""
ITERATIONS = "iterations of a graph"
"""One of `Activity.traits`: steps are iterations of a graph on an NPU; of four or more, the first
two are startup.
"""


SERVING = "iterations of an inference engine"
"""One of `Activity.traits`: steps are those of an inference engine, which trains nothing."""


WAITS = "waits of a loop"
"""One of `Activity.traits`: how long the iterations of a loop waited for their items was recorded,
whatever made them.
"""


class Activity:
    """Everything that happened in one profile, in the terms of the analyses. Times are ps on the
    clock of the trace.

    A table is built when it is first read, so that a frame costs only what it needs: the dialect
    registers how with `later`. What no dialect registers has the empty value of its type.
    """

    hosts: list[str]
    devices: pd.DataFrame
    """One row per device, with the columns of `DEVICES`."""
    markers: Markers
    core_markers: Markers
    """Steps of cores that differ from those of their host."""
    core_spans: CoreSpans
    sparse_steps: SparseSteps
    rebuilt: Int64s
    """Events of device markers that were built from grouped events, which XProf does not do."""
    xprof_markers: Markers
    """Of hosts whose steps end later than marked: the markers as recorded, which XProf takes."""
    work: Work
    backlog: Work
    """Device work that was launched before the recording began; it counts for no step."""
    xprof_work: Work
    """The spans of `work`, classified by the rules of XProf 2.24."""
    host_ops: HostOps
    device_ops: DeviceOps
    op_parts: OpParts
    cpu_ops: DeviceOps
    """Runs of ops of programs that XLA compiled for the CPU, on threads of a host."""
    cpu_parts: OpParts
    program_notes: list[Note]
    """Lines for the receipt on compiled programs in which ops were looked up."""
    programs: Any
    """The compiled programs in the file."""
    tagged_calls: HostOps
    """Events of the host that are no op but state the op that they served: calls of the allocator
    and of the driver.
    """
    python_calls: HostOps
    """Calls of programs on a GPU back into Python, as events of the host thread that launches."""
    device_extents: Extents
    kernels: Kernels
    xprof_kernels: Kernels
    """Kernels by the rules of XProf 2.24, where it can read the file."""
    graph_work: GraphWork
    engine_iterations: EngineIterations
    transfers: Transfers
    launches: Launches
    collectives: Collectives
    calls: Calls
    optimizer_calls: OptimizerCalls
    overheads: Overheads
    """No work of the program: in no category of a step, and no op."""
    ranges: Ranges
    allocations: pd.DataFrame
    """Allocator events: the columns of `Allocations`, of nullable dtypes where the allocator did
    not state some value.
    """
    known_tensors: KnownTensors
    iterators: Iterators
    iterator_links: npt.NDArray[np.int64]
    """int64[k, 2], pairs of iterator calls: the one that took an element, and the one that produced
    it on another thread.
    """
    iterator_params: dict[int, dict[str, object]]
    """Parameters that iterators of tf.data state, by iterator, and `MOST_BUFFERED`."""
    iterator_functions: dict[str, float]
    """Types of the ops that functions of tf.data pipelines ran, with their time in ms."""
    torch_ops: TorchOps
    torch_stacks: Stacks | None
    torch_calls: TorchCalls
    torch_modules: TorchModules
    cost_runs: CostRuns
    cost_parts: CostParts
    functions: Functions
    eager_calls: tuple[int, int]
    """Calls of single ops that left no op, and their time in ps."""
    eager_runs: HostOps
    """The same calls, each as a run of the op in its name."""
    environment: dict[str, object]
    """Where and when the program ran, as stated in the file: `versions`, `start_time`,
    `duration_s`.
    """
    group_names: dict[tuple[int, int], str]
    """Names of steps by (host, group)."""
    unit: Unit
    """The meaning of `markers`: steps, or what stands in their place where nothing marks any."""
    incomplete: set[tuple[int, int]]
    """(host, group) of steps whose begin, or the end of whose device work, was not recorded; they
    are shown, but not averaged.
    """
    lost: set[tuple[int, int]]
    """(host, group) of steps of which the recorder lost device work; they are shown, but not
    averaged.
    """
    batches: dict[tuple[int, int], int]
    """By (host, group), how often a step asked DataLoaders for a batch; empty where such calls were
    not recorded.
    """
    waited: set[tuple[int, int]]
    """(host, group) of steps in which a collective waited for another rank at the start of the
    recording: warm-up.
    """
    memory_added_up: set[str]
    """Memories whose totals nothing states: bytes in use are summed from the recorded events,
    without earlier allocations.
    """
    memory_capacity: dict[str, int]
    """Bytes that an allocator can have at most, by the name of the memory, where the file states
    it.
    """
    ops: Names
    types: Names
    kernel_names: Names
    texts: Names
    launch_shapes: list[dict[str, object]]
    xprof_launch_shapes: list[dict[str, object]]
    missing: dict[str, str]
    """Why a view is empty, by view."""
    notes: list[Note]
    """Lines for the receipt on how the events hang together."""
    given_peaks: dict[str, float]
    """Peaks of the devices given by a person, by the names of `nbprof.activity.given_peaks.KEYS`;
    `devices` has them too.
    """
    xprof_bytes_per_second: float
    """The peak of main memory that XProf takes for the GPUs'; NaN where it is that of `devices`."""
    tables: dict[str, list[Any]]
    """Tables of Ascend's profilers by kind, see `nbprof.core.trace.Table`; {} of any other
    format.
    """
    traits: set[str]
    """Features that the program was seen to use, as far as advice is about them: "DataParallel",
    "gloo: 12", "out of memory: 1", `UNKNOWN_PRECISION`, `UNKNOWN_EAGER`, `UNKNOWN_COPIES`, `PLAIN`,
    `EMPTY`, `ITERATIONS`, `SERVING`."""
    framework: Framework
    has_device: bool
    xprof: bool
    """XProf can read the file."""
    has_host_ops: bool
    """Ops of some host were recorded."""
    hosts_without_ops: set[int]
    """If so, the numbers of the hosts of which none were."""
    reads_infeed: bool
    """Programs of a TPU read from its infeed, so that the device itself says how long it waits for
    input.
    """
    name_category: npt.NDArray[np.uint8]
    """By name code of the trace: index into CATEGORIES + 1, 0 for none; the colour of a slice."""

    def __init__(self, hosts: list[str]) -> None:
        self.hosts = hosts
        self._makers: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {}
        self._lock = threading.RLock()

    def set_hosts_with_ops(self, hosts: Iterable[int]) -> None:
        """States of which hosts ops were recorded, by number."""
        hosts_seen = set(hosts)
        self.has_host_ops = bool(hosts_seen)
        self.hosts_without_ops = set()
        if hosts_seen:
            self.hosts_without_ops = set(range(len(self.hosts))) - hosts_seen

    def host_has_ops(self, host: int) -> bool:
        """True if ops of a host were recorded."""
        return self.has_host_ops and host not in self.hosts_without_ops

    @property
    def lost_kernels(self) -> bool:
        """True if a device was used, and what it did is unknown."""
        return LOST_KERNELS in self.traits and "kernels" in self.missing

    def later(self, names: str | tuple[str, ...], make: Callable[[], Any]) -> None:
        """States how a table, or several at once, are made; `make` gives the value, or one value a
        name.
        """
        if isinstance(names, str):
            names = (names,)
        for name in names:
            self._makers[name] = (names, make)

    def maker(self, name: str) -> Callable[[], Any]:
        """The function that builds a lazy value, for a dialect that adds to it."""
        return self._maker(name)[1]

    def _maker(self, name: str) -> tuple[tuple[str, ...], Callable[[], Any]]:
        return self._makers.get(name) or ((name,), lambda: _unrecorded(name))

    def forget(self, name: str) -> None:
        """Lets go of a table that is made again when it is asked for again."""
        with self._lock:
            if name in self._makers:
                self.__dict__.pop(name, None)

    def give_peaks(self, peaks: Mapping[str, float]) -> None:
        """Gives all devices these peaks."""
        if peaks:
            self.given_peaks = dict(peaks)
            self.devices = self.devices.assign(
                **{KEYS[name]: value for name, value in peaks.items()}
            )

    def __getattr__(self, name: str) -> Any:
        # Only reached while the attribute has no value yet.
        if name.startswith("_") or name not in Activity.__annotations__:
            raise AttributeError(name)
        with self._lock:
            if name not in self.__dict__:
                names, make = self._maker(name)
                computed = make()
                if len(names) == 1:
                    computed = (computed,)
                self.__dict__.update(zip(names, computed, strict=True))
            return self.__dict__[name]


_UNRECORDED: dict[str, Callable[[], Any]] = {
    "devices": lambda: pd.DataFrame(columns=DEVICES),
    "rebuilt": lambda: np.zeros(0, np.int64),
    "programs": lambda: None,
    "allocations": lambda: Allocations.empty().frame(),
    "iterator_links": lambda: np.zeros((0, 2), np.int64),
    "torch_stacks": lambda: None,
    "eager_calls": lambda: (0, 0),
    "unit": lambda: MARKED,
    "xprof_bytes_per_second": lambda: float("nan"),
    "framework": lambda: UNKNOWN,
    "name_category": lambda: np.zeros(0, np.uint8),
}
"""Values of attributes that no dialect registered, where the type of the attribute has no empty
value.
"""


def _unrecorded(name: str) -> Any:
    if name in _UNRECORDED:
        return _UNRECORDED[name]()
    kind = _types()[name]
    return kind.empty() if issubclass(kind, Columns) else kind()


@cache
def _types() -> dict[str, Any]:
    """The classes of the attributes."""
    return {name: get_origin(hint) or hint for name, hint in get_type_hints(Activity).items()}
