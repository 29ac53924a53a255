"""Runs made by hypothesis: steps, host threads, GPU streams and an allocator, written as an XSpace
file with its lines in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from nbprof.core.files import RunFiles
from nbprof.profiles.profile import Profile
from nbprof.run.run import Run
from tests.support.chrome import Memory
from tests.support.xspace import PlaneWriter, xspace

UNIT = 700
"""All times are multiples of it, so that begins and ends often meet; ps."""
HOST_NAMES = (
    *(
        "IteratorGetNext",
        "dense/MatMul:MatMul",
        "b/Add:Add",
        "Iterator::Root",
        "Iterator::Root::Map",
        "Iterator::Root::TFRecord",
    ),
    *(
        "ExecutorState::Process",
        "MEMCPYHTOD",
        "MEMCPYHTOH",
        "InfeedEnqueueTuple:InfeedEnqueueTuple",
        "EagerKernelExecute",
        "plain",
    ),
)
ITERATORS = {
    "Iterator::Root": (1, 0),
    "Iterator::Root::Map": (2, 1),
    "Iterator::Root::TFRecord": (3, 1),
}
"""The id of each iterator, and that of the one it is in."""
GPU_NAMES = (
    "sgemm",
    "half_gemm",
    "MemcpyHToD",
    "MemcpyD2H",
    "MemcpyDToD",
    "ncclAllReduce",
    "Memset",
)
DETAILS = (
    "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75",
    "regs:8 static_shared:0 dynamic_shared:64 grid:1,1,1 block:32,1,1 occ_pct:25",
)

Span = tuple[str, int, int]
SPANS = st.lists(
    st.tuples(st.sampled_from(HOST_NAMES), st.integers(0, 40), st.integers(0, 12)), max_size=10
)
KERNELS = st.lists(
    st.tuples(
        st.sampled_from(GPU_NAMES),
        st.integers(0, 40),
        st.integers(0, 8),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=10,
)


@dataclass
class Made:
    """One run; times in units.

    Attributes
    ----------
    steps : (begin, length) of each marked step, on the thread `python`
    threads : (name, begin, length) of the events of each other host thread
    streams : (name, begin, length, step, kind) of the events of each GPU stream; None for a run
    without a GPU. `step` is taken modulo the
        number of steps; `kind` 0 states no op, 1 and 2 an op each
    blocks : (allocator, size, free) of each call of an allocator; `free` frees an older block: one
    of those now in use, by its number
    """

    steps: list[tuple[int, int]]
    threads: list[list[Span]]
    streams: list[list[tuple[str, int, int, int, int]]] | None = None
    blocks: list[tuple[int, int, bool]] = field(default_factory=list)

    @property
    def lines(self) -> int:
        """How many lines are in the file."""
        return len(self.threads) + 3 + (len(self.streams) + 1 if self.streams is not None else 0)

    def encode(self, order: Sequence[int] | None = None) -> bytes:
        """The file, the lines of each plane in an order."""
        host = PlaneWriter("/host:CPU")
        lines: list[tuple[PlaneWriter, str, list[bytes], int]] = [
            (host, "python", self._marked(host), 1)
        ]
        for number, spans in enumerate(self.threads):
            ordered = sorted(spans, key=lambda s: (s[1], -s[2]))
            events = [
                host.event(n, b * UNIT, d * UNIT, **self._link(b), **_iterator(n))
                for n, b, d in ordered
            ]
            lines.append((host, f"pool {number}", events, 10 + number))
        for allocator in range(2):
            lines.append(
                (host, f"allocator {allocator}", self._allocations(host, allocator), 50 + allocator)
            )
        planes = [host]
        if self.streams is not None:
            gpu = PlaneWriter(
                "/device:GPU:0",
                {"device_vendor": "Nvidia", "compute_cap_major": 8, "compute_cap_minor": 0},
            )
            planes.append(gpu)
            for number, kernels in enumerate(self.streams):
                lines.append(
                    (
                        gpu,
                        f"Stream #{number}(Compute)",
                        self._kernels(gpu, kernels, number),
                        20 + number,
                    )
                )
            marks = [
                gpu.event(str(i), b * UNIT, d * UNIT, group_id=i) for i, (b, d) in self._numbered()
            ]
            lines.append((gpu, "Steps", marks, -559038737))
        for at in order if order is not None else range(len(lines)):
            plane, name, events, ident = lines[at]
            plane.line(name, events, line_id=ident)
        return xspace(*planes)

    def profile(self, order: Sequence[int] | None = None) -> Profile:
        return opened(self.encode(order))

    def _numbered(self) -> list[tuple[int, tuple[int, int]]]:
        return sorted(enumerate(self.steps), key=lambda s: (s[1][0], -s[1][1]))

    def _grouped(self, group: int) -> dict[str, Any]:
        """With a GPU the file states its groups; without one they are found."""
        return {"group_id": group} if self.streams is not None else {}

    def _marked(self, host: PlaneWriter) -> list[bytes]:
        return [
            host.event(
                "train", b * UNIT, d * UNIT, step_num=i, _r=1, _pt=1, _p=900 + i, **self._grouped(i)
            )
            for i, (b, d) in self._numbered()
        ]

    def _link(self, begin: int) -> dict[str, Any]:
        """A step that started the event: the one that began last before it."""
        before = [i for i, (b, _) in enumerate(self.steps) if b <= begin]
        if not before:
            return {}
        mine = max(before, key=lambda i: (self.steps[i][0], i))
        return {"_ct": 1, "_c": 900 + mine, **self._grouped(mine)}

    def _kernels(
        self, gpu: PlaneWriter, kernels: list[tuple[str, int, int, int, int]], stream: int
    ) -> list[bytes]:
        out = []
        for at, (name, begin, length, step, kind) in enumerate(
            sorted(kernels, key=lambda k: (k[1], -k[2]))
        ):
            stats: dict[str, Any] = {"correlation_id": 1 + 100 * stream + at}
            if self.steps:
                stats["group_id"] = step % len(self.steps)
            if not name.startswith("Mem"):
                stats["kernel_details"] = DETAILS[step % 2]
            if kind:
                stats["tf_op"] = ("dense/MatMul:MatMul", "b/Add:Add")[kind - 1]
            out.append(gpu.event(name, begin * UNIT, length * UNIT, **stats))
        return out

    def _allocations(self, host: PlaneWriter, allocator: int) -> list[bytes]:
        """The calls of an allocator that already holds a block of 512 bytes, with its state after
        each of them.
        """
        alive = [(8, 512)]
        peak, out = 512, []
        for at, (who, size, free) in enumerate(self.blocks):
            if who != allocator or (free and not alive):
                continue
            address, size = alive.pop(size % len(alive)) if free else (16 * (at + 2), size)
            if not free:
                alive.append((address, size))
            used = sum(s for _, s in alive)
            peak = max(peak, used)
            state = {
                "bytes_allocated": used,
                "bytes_reserved": 0,
                "bytes_available": 2**20 - used,
                "peak_bytes_in_use": peak,
            }
            group = self._link(at).get("group_id")
            out.append(
                host.event(
                    "MemoryDeallocation" if free else "MemoryAllocation",
                    at * UNIT,
                    0,
                    allocator_name=f"gpu_{allocator}",
                    addr=address,
                    allocation_bytes=size,
                    requested_bytes=size,
                    fragmentation=0.5,
                    **state,
                    **({} if group is None else {"group_id": group}),
                )
            )
        return out


def _iterator(name: str) -> dict[str, Any]:
    ident = ITERATORS.get(name)
    return {} if ident is None else {"id": ident[0], "parent_id": ident[1]}


def opened(data: bytes, name: str = "host-a.xplane.pb", form: str = "xspace") -> Profile:
    """The profile of a file that is nowhere but here."""
    return Profile(
        Run.read(RunFiles("run", Path("/run"), (Memory(data, name),), 0.0, form), keep=False)
    )  # type: ignore[arg-type]


@st.composite
def runs(draw: st.DrawFn, gpu: bool | None = None) -> Made:
    """Runs of up to five steps, which may overlap, and up to three threads and streams."""
    steps = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=5))
    threads = draw(st.lists(SPANS, max_size=3))
    with_gpu = draw(st.booleans()) if gpu is None else gpu
    streams = draw(st.lists(KERNELS, max_size=3)) if with_gpu else None
    blocks = draw(
        st.lists(st.tuples(st.integers(0, 1), st.integers(1, 300), st.booleans()), max_size=30)
    )
    return Made(steps, threads, streams, blocks)


@st.composite
def nested(draw: st.DrawFn, most: int = 25) -> list[tuple[int, int]]:
    """Spans (begin, length) of one thread that nest: inside one another, side by side, touching;
    several may be equal.
    """
    out: list[tuple[int, int]] = []

    def fill(begin: int, end: int, deep: int) -> None:
        at = begin
        while at < end and len(out) < most and draw(st.booleans()):
            start = draw(st.integers(at, end - 1))
            stop = draw(st.integers(start + 1, end))
            out.append((start, stop - start))
            if deep:
                fill(start, stop, deep - 1)
            at = stop

    fill(0, 40, 3)
    return out
