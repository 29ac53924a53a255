"""Exports of Nsight Systems as `nsys export` writes them: the tables of a small training run, in a
database or in files of Parquet.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

UTC_NS = 1_700_000_000_000_000_000
US = 1000
HARDWARE = 1 << 56
"""The upper bits of global ids."""

COLUMNS = {
    "StringIds": "id value",
    "ThreadNames": "nameId priority globalTid",
    "PROCESSES": "globalPid pid name",
    "META_DATA_EXPORT": "name value",
    "ENUM_NSYS_EVENT_TYPE": "id name label",
    "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": "id name label",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    "TARGET_INFO_GPU": "vmId id name totalMemory memoryBandwidth clockRate smCount computeMajor computeMinor threadsPerWarp",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid numMultiprocessors",
    "TARGET_INFO_GPU_METRICS": "typeId sourceId typeName metricId metricName",
    "GPU_METRICS": "timestamp typeId metricId value",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName mangledName launchType cacheConfig "
        "registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread "
        "localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId graphId contextId streamId correlationId globalPid graphExecId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId contextId streamId correlationId globalPid bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId "
        "srcContextId dstDeviceId dstContextId migrationCause graphNodeId virtualAddress copyCount"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid value bytes graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start end deviceId contextId streamId correlationId globalPid syncType eventId eventSyncId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "NVTX_EVENTS": (
        "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value int64Value doubleValue "
        "uint32Value int32Value floatValue jsonTextId jsonText"
    ),
    "OSRT_API": "start end eventClass globalTid correlationId nameId returnValue nestingLevel callchainId",
    "COMPOSITE_EVENTS": "id start cpu threadState globalTid cpuCycles",
    "SAMPLING_CALLCHAINS": "id symbol module kernelMode thumbCode unresolved specialEntry originalIP unwindMethod stackDepth",
    "SCHED_EVENTS": "start cpu isSchedIn globalTid threadState threadBlock",
    "ENUM_SAMPLING_THREAD_STATE": "id name label",
    "ENUM_SCHEDULING_THREAD_BLOCK": "id name label",
}
_TEXTS = {
    "value",
    "name",
    "text",
    "utcTime",
    "localTime",
    "devStateName",
    "uuid",
    "typeName",
    "metricName",
    "label",
    "jsonText",
}

Row = dict[str, Any]


def _kind(table: str, name: str) -> str:
    if name in _TEXTS and not (
        name == "value" and table in ("GPU_METRICS", "CUPTI_ACTIVITY_KIND_MEMSET")
    ):
        return "TEXT"
    return "REAL" if name in ("doubleValue", "floatValue") else "INTEGER"


@dataclass
class Export:
    """Rows by table; `without` are columns that the version of the recorder did not write."""

    tables: dict[str, list[Row]] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)
    _strings: dict[str, int] = field(default_factory=dict)
    _correlation: int = 100

    def string(self, text: str) -> int:
        """The id of a string."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def add(self, table: str, **row: Any) -> None:
        """A row."""
        self.tables.setdefault(table, []).append(row)

    def call(self, name: str, start: int, end: int, *, pid: int = 4321, tid: int = 4321) -> int:
        """A call of CUDA's; its correlation id."""
        self._correlation += 1
        tid_ = HARDWARE | pid << 24 | tid
        row = {
            "start": start,
            "end": end,
            "eventClass": 0,
            "globalTid": tid_,
            "correlationId": self._correlation,
            "returnValue": 0,
        }
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **row, nameId=self.string(name))
        return self._correlation

    def on_gpu(
        self,
        table: str,
        start: int,
        end: int,
        correlation: int,
        *,
        pid: int = 4321,
        stream: int = 7,
        device: int = 0,
        **row: Any,
    ) -> None:
        """Work of a device."""
        where = {
            "deviceId": device,
            "contextId": 1,
            "streamId": stream,
            "correlationId": correlation,
            "globalPid": HARDWARE | pid << 24,
        }
        self.add(f"CUPTI_ACTIVITY_KIND_{table}", start=start, end=end, **where, **row)

    def kernel(
        self, name: str, start: int, end: int, correlation: int, *, grid: int = 8, **row: Any
    ) -> None:
        """A kernel."""
        shape = {"gridX": grid, "gridY": 1, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1}
        used = {"registersPerThread": 40, "staticSharedMemory": 0, "dynamicSharedMemory": 16384}
        rest = dict.fromkeys(
            ("launchType", "cacheConfig", "localMemoryPerThread", "localMemoryTotal", "gridId"), 0
        )
        short = self.string(name.partition("<")[0])
        self.on_gpu(
            "KERNEL",
            start,
            end,
            correlation,
            demangledName=self.string(name),
            shortName=short,
            **shape,
            **used,
            **rest,
            **row,
        )

    def range(
        self,
        text: str,
        start: int,
        end: int | None,
        *,
        kind: int = 59,
        pid: int = 4321,
        tid: int = 4321,
        domain: int = 0,
        **row: Any,
    ) -> None:
        """A range, or a mark, of NVTX; every second one of a registered string."""
        named = (
            {"textId": self.string(text)}
            if len(self.tables.get("NVTX_EVENTS", ())) % 2
            else {"text": text}
        )
        self.add(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=kind,
            globalTid=HARDWARE | pid << 24 | tid,
            domainId=domain,
            **named,
            **row,
        )

    def sample(
        self, start: int, *stack: str, pid: int = 4321, tid: int = 4321, cycles: int = 1
    ) -> None:
        """A sample of a thread; calls, innermost first, as `function@/path/of/file`: an address, if
        it begins with `0x`, or else special with `[`.
        """
        ident = 1000 + len(self.tables.get("COMPOSITE_EVENTS", ()))
        of_thread = HARDWARE | pid << 24 | tid
        self.add(
            "COMPOSITE_EVENTS",
            id=ident,
            start=start,
            cpu=3,
            threadState=1,
            globalTid=of_thread,
            cpuCycles=cycles,
        )
        for depth, call in enumerate(stack):
            function, _, module = call.partition("@")
            kind = {
                "unresolved": int(function.startswith("0x")),
                "specialEntry": int(function.startswith("[")),
            }
            named = {"symbol": self.string(function), "module": self.string(module or function)}
            self.add(
                "SAMPLING_CALLCHAINS",
                id=ident,
                stackDepth=depth,
                originalIP=0,
                kernelMode=0,
                thumbCode=0,
                **named,
                **kind,
            )

    def switch(
        self, start: int, on: int, *, pid: int = 4321, tid: int = 4321, cpu: int = 3, **row: Any
    ) -> None:
        """A thread is put on a CPU, or taken off it."""
        self.add(
            "SCHED_EVENTS",
            start=start,
            cpu=cpu,
            isSchedIn=on,
            globalTid=HARDWARE | pid << 24 | tid,
            **row,
        )

    def sqlite(self, path: Path) -> Path:
        """The database, in which the columns are numbered as the recorder does."""
        with sqlite3.connect(path) as db:
            for table, rows in self.tables.items():
                names = [name for name in COLUMNS[table].split() if name not in self.without]
                if not names:
                    continue
                kinds = ", ".join(f"{name} {_kind(table, name)}" for name in names)
                kinds = (
                    kinds.replace("id INTEGER", "id INTEGER NOT NULL PRIMARY KEY", 1)
                    if table == "StringIds"
                    else kinds
                )
                db.execute(f"CREATE TABLE {table} ({kinds})")
                db.executemany(
                    f"INSERT INTO {table} VALUES ({','.join('?' * len(names))})",
                    [[row.get(n) for n in names] for row in rows],
                )
        db.close()
        return path

    def parquet(self, folder: Path) -> Path:
        """The folder with a file a table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder.mkdir(parents=True)
        for table, rows in self.tables.items():
            names = [name for name in COLUMNS[table].split() if name not in self.without]
            columns = {}
            for name in names:
                values = [row.get(name) for row in rows]
                kind = {"TEXT": pa.string(), "REAL": pa.float64(), "INTEGER": pa.int64()}[
                    _kind(table, name)
                ]
                columns[name] = pa.array(
                    values,
                    pa.uint64()
                    if name in ("globalTid", "globalPid") and None not in values
                    else kind,
                )
            pq.write_table(pa.table(columns), folder / f"{table}.parquet")
        return folder


def facts(out: Export, *gpus: int, pid: int = 4321) -> None:
    """What an export states of the session, its machine and devices."""
    if "TARGET_INFO_SESSION_START_TIME" not in out.tables:
        out.add(
            "META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2024.5.1.113-245134619542v0"
        )
        out.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=UTC_NS, utcTime="", localTime="")
        out.add(
            "TARGET_INFO_SYSTEM_ENV",
            globalVid=0,
            devStateName="System",
            name="Hostname",
            nameEnum=1,
            value="node7",
        )
        for kind, label in (
            (33, "NvtxCategory"),
            (34, "NvtxMark"),
            (59, "NvtxPushPopRange"),
            (60, "NvtxStartEndRange"),
            (75, "NvtxDomainCreate"),
        ):
            out.add("ENUM_NSYS_EVENT_TYPE", id=kind, name=label, label=label)
        for gpu in gpus:
            device = {
                "totalMemory": 80 << 30,
                "memoryBandwidth": 2_039_000_000_000,
                "clockRate": 1_410_000_000,
                "smCount": 108,
            }
            out.add(
                "TARGET_INFO_GPU",
                vmId=1,
                id=gpu,
                name=f"NVIDIA A100-{gpu}",
                computeMajor=8,
                computeMinor=0,
                threadsPerWarp=32,
                **device,
            )
    out.add("PROCESSES", globalPid=HARDWARE | pid << 24, pid=pid, name="/usr/bin/python3.11")
    out.add(
        "ThreadNames",
        nameId=out.string("pt_main_thread"),
        priority=0,
        globalTid=HARDWARE | pid << 24 | pid,
    )


def training(
    steps: int = 4,
    *,
    pid: int = 4321,
    device: int = 0,
    gpu: int = 0,
    out: Export | None = None,
    at: int = 500 * US,
) -> Export:
    """Steps of 100 µs: a batch is copied, two layers and a reduction over ranks run, the loss is
    copied back and waited for.
    """
    out = out or Export()
    facts(out, 0, 1, pid=pid)
    out.add(
        "TARGET_INFO_CUDA_DEVICE",
        gpuId=gpu,
        cudaId=device,
        pid=pid,
        uuid=f"GPU-{gpu}",
        numMultiprocessors=108,
    )
    where = {"pid": pid, "device": device}
    out.range("NCCL", at, None, kind=75, domain=2, pid=pid, tid=pid)
    for i in range(steps):
        t = at + 100 * US * i
        out.range(f"step {i}", t, t + 98 * US, pid=pid, tid=pid)
        ident = out.call("cudaMemcpyAsync_v3020", t + 2 * US, t + 5 * US, pid=pid, tid=pid)
        out.on_gpu(
            "MEMCPY",
            t + 6 * US,
            t + 10 * US,
            ident,
            **where,
            bytes=1 << 20,
            copyKind=1,
            srcKind=1,
            dstKind=2,
            stream=13,
        )
        ident = out.call("cudaMemsetAsync_v3020", t + 6 * US, t + 7 * US, pid=pid, tid=pid)
        out.on_gpu(
            "MEMSET", t + 10 * US, t + 11 * US, ident, **where, value=0, bytes=4096, memKind=2
        )
        out.range("forward", t + 8 * US, t + 40 * US, pid=pid, tid=pid)
        for layer in range(2):
            s = t + (10 + 14 * layer) * US
            out.range(
                f"layer {layer}",
                s,
                s + 12 * US,
                pid=pid,
                tid=pid,
                **({"int64Value": layer} if layer else {}),
            )
            ident = out.call("cudaLaunchKernel_v7000", s + 1 * US, s + 4 * US, pid=pid, tid=pid)
            out.kernel(
                f"void at::native::gemm_kernel<{layer}>(float*)",
                s + 6 * US,
                s + 16 * US,
                ident,
                **where,
                grid=8 + layer,
            )
        out.range("ncclAllReduce", t + 42 * US, t + 50 * US, pid=pid, tid=pid, domain=2)
        ident = out.call("cuLaunchKernelEx", t + 44 * US, t + 47 * US, pid=pid, tid=pid)
        out.kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            t + 50 * US,
            t + 70 * US,
            ident,
            **where,
            stream=20,
        )
        ident = out.call("cudaGraphLaunch_v10000", t + 52 * US, t + 55 * US, pid=pid, tid=pid)
        for node in (0x500000001, 0x500000002):
            out.kernel(
                "void at::native::adam_kernel<2>()",
                t + 70 * US,
                t + 75 * US,
                ident,
                **where,
                graphNodeId=node,
                stream=7 + (node & 1),
            )
        ident = out.call("cudaMemcpyAsync_v3020", t + 60 * US, t + 62 * US, pid=pid, tid=pid)
        out.on_gpu(
            "MEMCPY",
            t + 76 * US,
            t + 78 * US,
            ident,
            **where,
            bytes=4,
            copyKind=2,
            srcKind=2,
            dstKind=0,
        )
        ident = out.call("cudaStreamSynchronize_v3020", t + 62 * US, t + 80 * US, pid=pid, tid=pid)
        out.on_gpu(
            "SYNCHRONIZATION", t + 63 * US, t + 79 * US, ident, **where, syncType=3, eventId=0
        )
        out.add(
            "OSRT_API",
            start=t + 63 * US,
            end=t + 78 * US,
            globalTid=HARDWARE | pid << 24 | pid + 9,
            nameId=out.string("poll"),
            eventClass=27,
        )
        out.add(
            "COMPOSITE_EVENTS",
            id=i,
            start=t,
            cpu=1,
            threadState=1,
            globalTid=HARDWARE | pid << 24 | pid,
            cpuCycles=1000,
        )
    return out
