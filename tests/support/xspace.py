"""Writes small XSpace files for tests, field by field, straight from the format's definition."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

_SHORT = [bytes([value]) for value in range(0x80)]


def varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _SHORT[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(no: int, value: int) -> bytes:
    return varint(no << 3) + varint(value)


def chunk(no: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(no << 3 | 2) + varint(len(data)) + data


def double(no: int, value: float) -> bytes:
    return varint(no << 3 | 1) + struct.pack("<d", value)


@dataclass
class Ref:
    """A text stored once, as the name of a stat metadata."""

    text: str


@dataclass
class UInt:
    value: int


Value = int | float | str | bytes | Ref | UInt


@dataclass
class PlaneWriter:
    name: str
    stats: dict[str, Value] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    event_extra: dict[str, bytes] = field(default_factory=dict)
    stat_ids: dict[str, int] = field(default_factory=dict)

    def stat(self, name: str, value: Value) -> bytes:
        out = number(1, self._stat_id(name))
        if isinstance(value, float):
            return out + double(2, value)
        if isinstance(value, UInt):
            return out + number(3, value.value)
        if isinstance(value, int):
            return out + number(4, value)
        if isinstance(value, str):
            return out + chunk(5, value)
        if isinstance(value, bytes):
            return out + chunk(6, value)
        return out + number(7, self._stat_id(value.text))

    def _stat_id(self, name: str) -> int:
        return self.stat_ids.setdefault(name, len(self.stat_ids) + 1)

    def event(
        self,
        name: str,
        start_ps: int,
        duration_ps: int,
        occurrences: int | None = None,
        unknown: bytes = b"",
        **stats: Value,
    ) -> bytes:
        ident = self.events.setdefault(name, len(self.events) + 1)
        place = number(5, occurrences) if occurrences is not None else number(2, start_ps)
        named = {k.replace("__", " "): v for k, v in stats.items()}
        return (
            number(1, ident)
            + unknown
            + place
            + number(3, duration_ps)
            + b"".join(chunk(4, self.stat(k, v)) for k, v in named.items())
        )

    def stated(self, name: str, **stats: Value) -> None:
        """States facts once for all events of a name."""
        self.events.setdefault(name, len(self.events) + 1)
        self.event_extra[name] = b"".join(chunk(5, self.stat(k, v)) for k, v in stats.items())

    def line(
        self,
        name: str,
        events: list[bytes],
        line_id: int = 1,
        timestamp_ns: int = 0,
        display: str = "",
    ) -> None:
        body = (
            number(1, line_id)
            + chunk(2, name)
            + number(3, timestamp_ns)
            + (chunk(11, display) if display else b"")
        )
        self.lines.append(body + b"".join(chunk(4, e) for e in events))

    def encode(self) -> bytes:
        stats = b"".join(chunk(6, self.stat(k, v)) for k, v in self.stats.items())
        lines = b"".join(chunk(3, line) for line in self.lines)
        metas = b"".join(
            chunk(
                4,
                number(1, i) + chunk(2, number(1, i) + chunk(2, n) + self.event_extra.get(n, b"")),
            )
            for n, i in self.events.items()
        )
        names = b"".join(
            chunk(5, number(1, i) + chunk(2, number(1, i) + chunk(2, n)))
            for n, i in self.stat_ids.items()
        )
        return chunk(2, self.name) + lines + metas + names + stats


def xspace(*planes: PlaneWriter, hostname: str = "host-a", errors: tuple[str, ...] = ()) -> bytes:
    return (
        b"".join(chunk(1, p.encode()) for p in planes)
        + b"".join(chunk(2, e) for e in errors)
        + chunk(4, hostname)
    )


MS = 1_000_000_000


def training_run(steps: int = 4, evil: str = "", block: int = 100) -> bytes:
    """A CPU run: steps of 10 ms, in each 4 ms waiting for input and 5 ms of one op; allocations in
    each step.
    """
    host = PlaneWriter("/host:CPU")
    main: list[bytes] = []
    pool: list[bytes] = []
    for i in range(steps):
        at = i * 10 * MS
        main.append(host.event("train", at, 10 * MS, step_num=i, _r=1))
        main.append(host.event("IteratorGetNext", at, 4 * MS))
        main.append(
            host.event("FunctionRun", at + 4 * MS, 6 * MS, _r=1, id=100 + i, _pt=1, _p=500 + i)
        )
        pool.append(host.event("Iterator::Root", at, 4 * MS, id=11, parent_id=0))
        pool.append(host.event("Iterator::Root::Map", at, 3 * MS, id=12, parent_id=11))
        pool.append(host.event("dense/MatMul:MatMul", at + 4 * MS, 5 * MS, _ct=1, _c=500 + i))
        if evil:
            pool.append(host.event(evil, at + 9 * MS, MS // 2))
        memory = {
            "allocator_name": "mklcpu",
            "bytes_reserved": 0,
            "bytes_available": 1000,
            "fragmentation": 0.25,
            "addr": 64 + i,
        }
        pool.append(
            host.event(
                "MemoryAllocation", at + 5 * MS, 0, bytes_allocated=block, requested_bytes=90, allocation_bytes=block,
                peak_bytes_in_use=block, tf_op="dense/MatMul:MatMul", region_type="output", data_type=1, shape="[3,4]", **memory,
            )
        )  # fmt: skip
        pool.append(
            host.event(
                "MemoryDeallocation", at + 8 * MS, 0, bytes_allocated=0, requested_bytes=90, allocation_bytes=block,
                peak_bytes_in_use=block, data_type=0, **memory,
            )
        )  # fmt: skip
    host.line("python", main, line_id=7)
    host.line("tf_pool", pool, line_id=8)
    return xspace(host)


def gpu_run() -> bytes:
    """One GPU step of 10 ms: copy to the device 0–1, launch 1–3, kernels 3–7 of which 16 bit 5–7,
    copy back 7–8.
    """
    gpu = PlaneWriter(
        "/device:GPU:0",
        {
            "device_vendor": "Nvidia",
            "compute_cap_major": 7,
            "compute_cap_minor": 5,
            "memory_size": 2**34,
        },
    )
    detail = "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75"
    common = {"group_id": 1}
    gpu.line(
        "Stream #7(Compute)",
        [
            gpu.event("MemcpyHToD", 0, MS, correlation_id=1, **common),
            gpu.event(
                "sgemm",
                3 * MS,
                2 * MS,
                correlation_id=2,
                kernel_details=detail,
                tf_op="dense/MatMul:MatMul",
                **common,
            ),
            gpu.event(
                "volta_h884gemm_fp16",
                5 * MS,
                2 * MS,
                correlation_id=3,
                kernel_details=detail,
                tf_op="dense/MatMul:MatMul",
                **common,
            ),
            gpu.event("MemcpyDToH", 7 * MS, MS, correlation_id=4, **common),
        ],
        line_id=7,
    )
    gpu.line(
        "Steps", [gpu.event("1", 0, 8 * MS, group_id=1, step_name="train 5")], line_id=-559038737
    )
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [
            host.event("train", 0, 10 * MS, step_num=5, group_id=1),
            host.event("ExecutorState::Process", MS, 2 * MS, group_id=1),
        ],
        line_id=1,
    )
    return xspace(gpu, host)
