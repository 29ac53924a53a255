"""Made profiles in which events, names, lanes and steps are as many as are asked for, each apart
from the others.

They look like the training of a model on one GPU. In each step a batch is taken and copied to the
device; then come units of work, one after the other: an op on one of the host's threads, in it the
launch of a kernel, the kernel on one of the streams, and a block of memory that lives for a few
units. Half of the lanes are threads, half streams; ops and kernels take their names in turn.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from replicate_xspace import LENGTH, VARINT, chunk, varint

SLOT_NS = 20_000
"""Between the begins of two units."""
ALIVE = 7
"""Units later a block is given back."""
SIDE_BY_SIDE = 4
"""So many ops or kernels at most run at once."""
BLOCK = 1 << 17
"""Events that are written at once."""
BURST, PAUSE = 8, 4
"""After so many units the device waits for so many slots."""


@dataclass
class Work:
    """What happens when: one value a unit, one a step; times in ns."""

    events: int
    names: int
    lanes: int
    steps: int
    in_a_step: int
    in_a_unit: int

    def __post_init__(self) -> None:
        self.units = (self.events - self.in_a_step * self.steps) // self.in_a_unit
        self.threads = self.streams = max(1, self.lanes // 2)
        if self.units < 1:
            raise ValueError(f"{self.steps} steps take more than {self.events} events")
        each = -(-self.units // self.steps)
        self.unit, self.step = np.arange(self.units), np.arange(self.steps)
        of_step = self.unit * self.steps // self.units
        self.step_ns = (each + each // BURST * PAUSE + PAUSE + 3) * SLOT_NS
        self.step_start = self.step * self.step_ns
        nth = self.unit - np.searchsorted(of_step, self.step)[of_step]
        self.op_start = self.step_start[of_step] + (2 + nth + nth // BURST * PAUSE) * SLOT_NS
        self.op_ns = SLOT_NS * 9 // 10 * min(self.threads, SIDE_BY_SIDE)
        self.kernel_ns = SLOT_NS * 8 // 10 * min(self.streams, SIDE_BY_SIDE)
        self.kernel_start = self.op_start + SLOT_NS // 10
        self.name = self.unit % self.names
        self.thread, self.stream = self.unit % self.threads, self.unit % self.streams
        # A block is as large as that of the unit which takes its place.
        self.size = 256 * (1 + self.unit % ALIVE)
        self.held = np.convolve(self.size, np.ones(ALIVE, np.int64))[: self.units]


class Cells:
    """The bytes of the rows of a table, with which of them are there: fields of different length
    stand side by side.
    """

    def __init__(self, cells: np.ndarray, there: np.ndarray) -> None:
        self.cells, self.there = cells, there

    @classmethod
    def same(cls, data: bytes, rows: int) -> Cells:
        cells = np.broadcast_to(np.frombuffer(data, np.uint8), (rows, len(data)))
        return cls(cells, np.ones((rows, len(data)), bool))

    @classmethod
    def varints(cls, values: np.ndarray) -> Cells:
        """Numbers as short as they are; none is negative."""
        bits = 7 * np.arange(max(1, -(-int(values.max(initial=0)).bit_length() // 7)))
        left = values[:, None].astype(np.int64) >> bits
        there = (left > 0) | (bits == 0)
        more = np.zeros(there.shape, np.uint8)
        more[:, :-1] = there[:, 1:] * np.uint8(0x80)
        return cls((left & 0x7F).astype(np.uint8) | more, there)

    @classmethod
    def beside(cls, *parts: Cells) -> Cells:
        return cls(np.hstack([p.cells for p in parts]), np.hstack([p.there for p in parts]))

    def message(self, number: int) -> Cells:
        """As a field that is a message."""
        tag = Cells.same(varint(number << 3 | LENGTH), len(self.cells))
        return Cells.beside(tag, Cells.varints(self.there.sum(1)), self)

    def bytes(self) -> tuple[bytes, np.ndarray]:
        """All rows one after the other, and how long each is."""
        return self.cells[self.there].tobytes(), self.there.sum(1)


def number(field: int, values: np.ndarray | int, rows: int) -> Cells:
    tag = Cells.same(varint(field << 3 | VARINT), rows)
    return Cells.beside(
        tag, Cells.same(varint(values), rows) if isinstance(values, int) else Cells.varints(values)
    )


@dataclass
class Kind:
    """Events of one layout: on which lane, when, of what name, with which stats; a stat of texts is
    the numbers of their metadata.
    """

    lane: np.ndarray
    start: np.ndarray
    duration: np.ndarray | int
    name: np.ndarray | int
    stats: dict[int, np.ndarray | int]
    texts: dict[int, np.ndarray | int]

    def rows(self, at: np.ndarray) -> Cells:
        def of(values: np.ndarray | int) -> np.ndarray | int:
            return values if isinstance(values, int) else values[at]

        n = len(at)
        parts = [number(1, of(self.name), n), number(2, self.start[at] * 1000, n)]
        parts.append(
            number(
                3,
                (
                    self.duration * 1000
                    if isinstance(self.duration, int)
                    else self.duration[at] * 1000
                ),
                n,
            )
        )
        for field, stats in ((4, self.stats), (7, self.texts)):
            for stat, values in stats.items():
                parts.append(
                    Cells.beside(number(1, stat, n), number(field, of(values), n)).message(4)
                )
        return Cells.beside(*parts).message(4)


class Plane:
    """A plane under construction."""

    def __init__(self, name: str, stats: dict[str, int] | None = None) -> None:
        self.name = name
        self.facts = stats or {}
        self.kinds: list[Kind] = []
        self.events: list[str] = [""]
        self.texts: list[str] = [""]
        self.known: dict[str, int] = {}

    def named(self, *names: str) -> int:
        """The number of the first of some names of events; the others follow."""
        self.events += names
        return len(self.events) - len(names)

    def text(self, *texts: str) -> int:
        """The number of the first of some stats or texts; the others follow."""
        if texts[0] not in self.known:
            self.known[texts[0]] = len(self.texts)
            self.texts += texts
        return self.known[texts[0]]

    def add(
        self,
        lane: np.ndarray | int,
        start: np.ndarray,
        duration: np.ndarray | int,
        name: np.ndarray | int,
        texts: dict[str, np.ndarray | int] | None = None,
        **stats: np.ndarray | int,
    ) -> None:
        lanes = np.broadcast_to(lane, start.shape)
        given = {self.text(k): v for k, v in stats.items()}
        self.kinds.append(
            Kind(
                lanes,
                start,
                duration,
                name,
                given,
                {self.text(k): v for k, v in (texts or {}).items()},
            )
        )

    def write(self, lanes: list[str]) -> Iterator[bytes]:
        """The plane in pieces, its lines as they are named."""
        kind = np.repeat(np.arange(len(self.kinds)), [len(k.start) for k in self.kinds])
        at = np.concatenate([np.arange(len(k.start)) for k in self.kinds])
        lane, start = (
            np.concatenate([getattr(k, column) for k in self.kinds]) for column in ("lane", "start")
        )
        order = np.lexsort((start, lane))
        kind, at, lane = kind[order], at[order], lane[order]
        blocks, sizes = [], np.zeros(len(kind), np.int64)
        for begin in range(0, len(kind), BLOCK):
            end = min(begin + BLOCK, len(kind))
            of = {k: np.flatnonzero(kind[begin:end] == k) for k in np.unique(kind[begin:end])}
            made = {k: self.kinds[k].rows(at[begin:end][rows]) for k, rows in of.items()}
            width = max(m.cells.shape[1] for m in made.values())
            cells, there = (
                np.zeros((end - begin, width), np.uint8),
                np.zeros((end - begin, width), bool),
            )
            for k, rows in of.items():
                cells[rows, : made[k].cells.shape[1]], there[rows, : made[k].cells.shape[1]] = (
                    made[k].cells,
                    made[k].there,
                )
            data, sizes[begin:end] = Cells(cells, there).bytes()
            blocks.append(data)
        whole = memoryview(b"".join(blocks))
        ends = np.concatenate([[0], np.cumsum(sizes)])[
            np.searchsorted(lane, np.arange(len(lanes) + 1))
        ]
        parts: list[bytes | memoryview] = [chunk(2, self.name.encode())]
        for i, name in enumerate(lanes):
            head = varint(8) + varint(i + 1) + chunk(2, name.encode())
            events = whole[ends[i] : ends[i + 1]]
            parts += [varint(3 << 3 | LENGTH) + varint(len(head) + len(events)) + head, events]
        for field, names in ((4, self.events), (5, self.texts)):
            for i, name in enumerate(names[1:], 1):
                ident = varint(8) + varint(i)
                parts.append(chunk(field, ident + chunk(2, ident + chunk(2, name.encode()))))
        parts += [
            chunk(6, varint(8) + varint(self.known[k]) + varint(4 << 3) + varint(v))
            for k, v in self.facts.items()
        ]
        yield varint(1 << 3 | LENGTH) + varint(sum(map(len, parts)))
        yield from parts


def write_xspace(path: Path, events: int, names: int, lanes: int, steps: int) -> None:
    """An XSpace file as TensorFlow writes it on a GPU."""
    w = Work(events, names, lanes, steps, in_a_step=7, in_a_unit=5)
    facts = {
        "compute_cap_major": 8,
        "compute_cap_minor": 0,
        "memory_size": 2**34,
        "core_count": 108,
    }
    host, gpu = Plane("/host:CPU"), Plane("/device:GPU:0", facts)
    for name in facts:
        gpu.text(name)
    ops = [f"model/layer_{i}/MatMul:MatMul" for i in range(w.names)]
    host_op, host_text = host.named(*ops), host.text(*ops)
    gpu_text, kernel = (
        gpu.text(*ops),
        gpu.named(
            *(f"gemm_{i}<float, {64 << i % 3}>(float const*, float*)" for i in range(w.names))
        ),
    )
    python, input_thread, begin = w.threads, w.threads + 1, w.step_start
    frame = w.step_ns - SLOT_NS // 2
    host.add(python, begin, frame, host.named("train"), step_num=w.step, _r=1)
    host.add(python, begin, SLOT_NS, host.named("IteratorGetNext"))
    host.add(
        python,
        begin + SLOT_NS,
        SLOT_NS // 2,
        host.named("FunctionRun"),
        _pt=1,
        _p=w.step + 1,
        id=w.step + 1,
    )
    copy = {"correlation_id": w.units + w.step + 1}
    host.add(
        python, begin + SLOT_NS * 3 // 2, SLOT_NS // 4, host.named("cuMemcpyHtoDAsync"), **copy
    )
    host.add(
        input_thread, begin, SLOT_NS * 9 // 10, host.named("Iterator::Root"), id=11, parent_id=0
    )
    host.add(
        input_thread,
        begin,
        SLOT_NS * 8 // 10,
        host.named("Iterator::Root::Map"),
        id=12,
        parent_id=11,
    )
    step = w.unit * w.steps // w.units
    host.add(w.thread, w.op_start, w.op_ns, host_op + w.name, _ct=1, _c=step + 1)
    launch = {"correlation_id": w.unit + 1}
    host.add(
        w.thread, w.op_start + SLOT_NS // 20, SLOT_NS // 10, host.named("cuLaunchKernel"), **launch
    )
    memory = {
        "requested_bytes": w.size,
        "allocation_bytes": w.size,
        "bytes_reserved": 0,
        "addr": 4096 * (1 + w.unit % ALIVE),
    }
    most = int(w.held.max())
    memory |= {
        "bytes_allocated": w.held,
        "bytes_available": 2**34 - w.held,
        "peak_bytes_in_use": most,
        "data_type": 1,
    }
    allocator: dict[str, np.ndarray | int] = {"allocator_name": host.text("GPU_0_bfc")}
    asked = {
        **allocator,
        "tf_op": host_text + w.name,
        "region_type": host.text("output"),
        "shape": host.text("[64,64]"),
    }
    host.add(
        w.thread, w.op_start + SLOT_NS // 4, 0, host.named("MemoryAllocation"), asked, **memory
    )
    # Given back when the unit has run that takes its place.
    freed = w.unit[: max(0, w.units - ALIVE)]
    later = freed + ALIVE
    back = {k: v if isinstance(v, int) else v[freed] for k, v in memory.items()}
    back |= {
        "bytes_allocated": w.held[later] - w.size[later],
        "bytes_available": 2**34 - w.held[later] + w.size[later],
    }
    host.add(
        w.thread[later],
        w.op_start[later] + SLOT_NS // 5,
        0,
        host.named("MemoryDeallocation"),
        allocator,
        **back,
    )
    details = gpu.text(
        "regs:32 static_shared:1024 dynamic_shared:0 grid:64,1,1 block:128,1,1 occ_pct:75"
    )
    gpu.add(
        w.stream,
        w.kernel_start,
        w.kernel_ns,
        kernel + w.name,
        {"tf_op": gpu_text + w.name, "kernel_details": details},
        **launch,
    )
    h2d = gpu.text("kind_src:pageable kind_dst:device size:65536 dest:0 async:1")
    gpu.add(
        w.streams,
        begin + SLOT_NS * 7 // 4,
        SLOT_NS // 5,
        gpu.named("MemcpyH2D"),
        {"memcpy_details": h2d},
        **copy,
    )
    with path.open("wb") as file:
        pool = [f"tf_Compute/{i + 1}" for i in range(w.threads)]
        file.writelines(host.write([*pool, "python3", "tf_data_iterator_resource/1"]))
        file.writelines(
            gpu.write(
                [
                    *(f"Stream #{i + 16}(Compute)" for i in range(w.streams)),
                    f"Stream #{w.streams + 16}(MemcpyH2D)",
                ]
            )
        )
        file.write(chunk(4, b"host-a"))


def write_kineto(path: Path, events: int, names: int, lanes: int, steps: int) -> None:
    """The same as PyTorch writes it: `.json.gz`."""
    w = Work(events, names, lanes, steps, in_a_step=1, in_a_unit=4)
    begin = w.step_start / 1e3
    op, kernel = w.op_start / 1e3, w.kernel_start / 1e3
    main = 100 + w.threads
    head = (
        '{"ph": "X", "cat": "%s", "name": %s, "pid": %s, "tid": %s, "ts": %s, "dur": %s, "args":'
        " {%s}}"
    )

    def event(cat: str, name: str, dur: float, args: str, pid: str = "100", tid: str = "%d") -> str:
        return head % (cat, f'"{name}"', pid, tid, "%.3f", f"{dur / 1e3:.3f}", args)

    def arrow(ph: str, pid: str) -> str:
        return (
            f'{{"ph": "{ph}", "cat": "ac2g", "name": "ac2g", "id": %d, "pid": {pid}, "tid": %d,'
            ' "ts": %.3f, "bp": "e"}'
        )

    external = '"External id": %d'
    call = f'"cbid": 211, "correlation": %d, {external}'
    block = (
        '"Total Reserved": 1048576, "Total Allocated": %d, "Bytes": %d, "Addr": %d, "Device Id": 0,'
        ' "Device Type": 1, "Ev Idx": %d'
    )
    gemm = event(
        "kernel", "void gemm_%d<float>(float const*, float*)", w.kernel_ns, f'"device": 0, "context": 1, "stream": %d, "correlation": %d, '
        f'{external}, "grid": [64, 1, 1], "block": [128, 1, 1], "registers per thread": 32, "est. achieved occupancy %%": 75', "0",
    )  # fmt: skip
    a_unit = [
        event("cpu_op", "aten::op_%d", w.op_ns, f'{external}, "Sequence number": %d'),
        event("cuda_runtime", "cudaLaunchKernel", SLOT_NS // 10, call),
        arrow("s", "100"),
        gemm,
        arrow("f", "0"),
        (
            '{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100,'
            f' "tid": %d, "ts": %.3f, "args": {{{block}}}}}'
        ),
    ]
    of_unit = [
        (w.name, w.thread + 100, op, w.unit + 1, w.unit),
        (w.thread + 100, op + 1, w.unit + 1, w.unit + 1),
        (w.unit + 1, w.thread + 100, op + 1),
        (w.name, w.stream + 7, kernel, w.stream + 7, w.unit + 1, w.unit + 1),
        (w.unit + 1, w.stream + 7, kernel),
        (w.thread + 100, op + 5, w.held, w.size, 4096 * (1 + w.unit % ALIVE), w.unit),
    ]
    note = event(
        "user_annotation", "ProfilerStep#%d", w.step_ns - SLOT_NS // 2, external, tid=str(main)
    )
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(
            '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100",'
            ' "totalGlobalMem": 17179869184,'
        )
        file.write(
            ' "computeMajor": 8, "computeMinor": 0, "warpSize": 32, "numSms":'
            ' 108}],\n"traceEvents": [\n'
        )
        file.write(
            '{"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 0, "args": {"name":'
            ' "python"}}'
        )
        texts = ",\n" + ",\n".join(a_unit)
        for first in range(0, w.units, BLOCK):
            part = slice(first, first + BLOCK)
            rows = zip(
                *(column[part].tolist() for columns in of_unit for column in columns), strict=True
            )
            file.writelines(texts % row for row in rows)
        file.writelines(
            ",\n" + note % row
            for row in zip(
                w.step.tolist(), begin.tolist(), (w.units + 1 + w.step).tolist(), strict=True
            )
        )
        file.write("\n]}\n")
