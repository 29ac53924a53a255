"""Facts in an export of Nsight Systems: session, machine, processes, threads and devices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nbprof.formats.nsys.tables import Rows, Tables

_VERSION = re.compile(r"_v\d{4,5}(?=_pt[ds]z?\Z|\Z)")
_PID = 0xFFFFFF
_MOST_MESSAGES = 10
# Bytes and cycles a second: what is outside was stated in another unit.
_SANE = {"memoryBandwidth": (10**9, 10**14), "clockRate": (10**7, 10**11)}
# Names of the device's facts in Kineto's `deviceProperties`.
_PROPERTIES = {
    "id": "id",
    "totalMemory": "totalGlobalMem",
    "computeMajor": "computeMajor",
    "computeMinor": "computeMinor",
    "smCount": "numSms",
    "memoryBandwidth": "memoryBandwidth",
    "clockRate": "clockRate",
    "threadsPerWarp": "warpSize",
    "maxThreadsPerBlock": "maxThreadsPerBlock",
    "maxRegistersPerSm": "regsPerMultiprocessor",
    "maxShmemPerSm": "sharedMemPerMultiprocessor",
}


class Message(NamedTuple):
    """A sentence that the recorder logged, and the process that it is about; None where that is not
    stated.
    """

    text: str
    pid: int | None


@dataclass
class Facts:
    """Facts about the session, its machine, processes, threads and devices.

    Attributes
    ----------
    start_ns : int
        When the session began, ns since 1970; 0 where that is not stated.
    machine : str
        Name of the machine.
    processes, threads : dict of int to str
        Names by process id, and by the lower 48 bits of a global thread id.
    devices : list of dict
        In Kineto's terms.
    ordinals : dict
        The device that a process calls by a number, by (process, number).
    versions : dict
    messages : list of Message
        What the recorder logged as a warning or an error.
    """

    tables: Tables
    start_ns: int = 0
    dated: bool = False
    machine: str = ""
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    devices: list[dict[str, object]] = field(default_factory=list)
    ordinals: dict[tuple[int, int], int] = field(default_factory=dict)
    versions: dict[str, object] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)

    def enum(self, table: str, otherwise: dict[int, str]) -> dict[int, str]:
        """Labels of an enumeration, those of the file where it has them."""
        rows = Rows(self.tables, table, "id", "label")
        return otherwise | {
            i: text
            for i, text in zip(rows.ints("id").tolist(), rows.texts("label"), strict=True)
            if text
        }

    def of_process(self, pid: int) -> dict[str, object]:
        """Facts about a process, in the form of Kineto's files."""
        by_id = {device.get("id"): device for device in self.devices}
        rows = {number: gpu for (process, number), gpu in self.ordinals.items() if process == pid}
        gpus = [
            {**by_id[gpu], "id": number} for number, gpu in sorted(rows.items()) if gpu in by_id
        ]
        return {"deviceProperties": gpus or self.devices}


def read(tables: Tables, strings: Mapping[int, str]) -> Facts:
    """The facts of an export, whose strings are known by id."""
    result = Facts(tables)
    session = Rows(tables, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    starts = [start for start in session.ints("utcEpochNs", 0).tolist() if start > 0]
    result.start_ns, result.dated = (starts[0], True) if starts else (0, False)
    _machine(result)
    processes = Rows(tables, "PROCESSES", "pid", "globalPid", "name")
    process_rows = zip(
        processes.ints("pid").tolist(),
        processes.ints("globalPid").tolist(),
        processes.texts("name"),
        strict=True,
    )
    result.processes = {
        pid if pid >= 0 else global_pid >> 24 & _PID: re.split(r"[\\/]", name)[-1]
        for pid, global_pid, name in process_rows
        if name
    }
    names = Rows(tables, "ThreadNames", "nameId", "globalTid")
    for ident, name in zip(
        names.ints("globalTid").tolist(), names.ints("nameId").tolist(), strict=True
    ):
        if text := strings.get(name):
            result.threads[ident & (1 << 48) - 1] = text
    _devices(result)
    _messages(result)
    return result


def unversioned(call: str) -> str:
    """`cudaLaunchKernel` for `cudaLaunchKernel_v7000`."""
    return _VERSION.sub("", call)


def _machine(facts: Facts) -> None:
    for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "META_DATA_EXPORT"):
        rows = Rows(facts.tables, table, "name", "value")
        for name, value in zip(rows.texts("name"), rows.texts("value"), strict=True):
            plain = re.sub(r"[^a-z]", "", name.lower())
            if plain in ("hostname", "targethostname") and value and not facts.machine:
                facts.machine = value
            elif plain.endswith("productversion") and value:
                facts.versions["nsys_version"] = value.split("-")[0]
            elif "driver" in plain and "version" in plain and re.match(r"\d+\.\d", value):
                facts.versions["driver_version"] = value


def _devices(result: Facts) -> None:
    rows = Rows(result.tables, "TARGET_INFO_GPU", "name", *_PROPERTIES)
    columns = {ours: rows.ints(theirs) for theirs, ours in _PROPERTIES.items()}
    for i, name in enumerate(rows.texts("name")):
        numbers = {ours: int(column[i]) for ours, column in columns.items() if column[i] >= 0}
        gpu_fields = {
            ours: value
            for ours, value in numbers.items()
            if ours not in _SANE or _SANE[ours][0] <= value <= _SANE[ours][1]
        }
        facts: dict[str, object] = dict(gpu_fields)
        result.devices.append({**facts, **({"name": name} if name else {})})
    mapped = Rows(result.tables, "TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid")
    for gpu, number, pid in zip(
        *(mapped.ints(name).tolist() for name in ("gpuId", "cudaId", "pid")), strict=True
    ):
        result.ordinals[pid, number] = gpu


def _messages(facts: Facts) -> None:
    """Errors that the recorder logged."""
    labels = facts.enum("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", {})
    rows = Rows(facts.tables, "DIAGNOSTIC_EVENT", "severity", "text", "globalPid")
    of_process = zip(
        rows.ints("severity").tolist(),
        rows.texts("text"),
        rows.ints("globalPid", 0).tolist(),
        strict=True,
    )
    for severity, text, process in of_process:
        if (
            re.match(r"warn|err|fatal", labels.get(severity, ""), re.IGNORECASE)
            and text
            and len(facts.messages) < _MOST_MESSAGES
        ):
            line = " ".join(text.split())
            # Questions end as they are: "Does the process use NVTX?"
            line = line if line.endswith((".", "?", "!")) else f"{line}."
            facts.messages.append(Message(line, (process >> 24 & _PID) or None))
