"""Facts in an export of Nsight Systems: session, machine, processes, threads and devices."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

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
        result = dict(otherwise)
        for number, label in zip(rows.ints("id").tolist(), rows.texts("label"), strict=True):
            if label:
                result[number] = label
        return result

    def of_process(self, pid: int) -> dict[str, object]:
        """Facts about a process, in the form of Kineto's files."""
        by_id = {device.get("id"): device for device in self.devices}
        gpus = []
        for (process, number), gpu in sorted(self.ordinals.items()):
            if process == pid and gpu in by_id:
                gpus.append({**by_id[gpu], "id": number})
        return {"deviceProperties": gpus or self.devices}


def read(tables: Tables, strings: Mapping[int, str]) -> Facts:
    """The facts of an export, whose strings are known by id."""
    result = Facts(tables)
    session = Rows(tables, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    starts = session.ints("utcEpochNs", 0)
    starts = starts[starts > 0]
    if len(starts):
        result.start_ns, result.dated = int(starts[0]), True
    _machine(result)
    processes = Rows(tables, "PROCESSES", "pid", "globalPid", "name")
    pids, global_pids = processes.ints("pid"), processes.ints("globalPid")
    pids = np.where(pids >= 0, pids, global_pids >> 24 & _PID)
    for pid, name in zip(pids.tolist(), processes.texts("name"), strict=True):
        if name:
            result.processes[pid] = re.split(r"[\\/]", name)[-1]
    names = Rows(tables, "ThreadNames", "nameId", "globalTid")
    threads = names.ints("globalTid") & (1 << 48) - 1
    for thread, name_id in zip(threads.tolist(), names.ints("nameId").tolist(), strict=True):
        if strings.get(name_id):
            result.threads[thread] = strings[name_id]
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
    columns = {ours: rows.ints(theirs).tolist() for theirs, ours in _PROPERTIES.items()}
    for i, name in enumerate(rows.texts("name")):
        facts: dict[str, object] = {}
        for ours, column in columns.items():
            low, high = _SANE.get(ours, (0, math.inf))
            if low <= column[i] <= high:
                facts[ours] = column[i]
        if name:
            facts["name"] = name
        result.devices.append(facts)
    mapped = Rows(result.tables, "TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid")
    keys = zip(mapped.ints("pid").tolist(), mapped.ints("cudaId").tolist(), strict=True)
    result.ordinals.update(zip(keys, mapped.ints("gpuId").tolist(), strict=True))


def _messages(facts: Facts) -> None:
    """Errors that the recorder logged."""
    labels = facts.enum("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", {})
    rows = Rows(facts.tables, "DIAGNOSTIC_EVENT", "severity", "text", "globalPid")
    severities = [labels.get(severity, "") for severity in rows.ints("severity").tolist()]
    pids = (rows.ints("globalPid", 0) >> 24 & _PID).tolist()
    for severity, text, pid in zip(severities, rows.texts("text"), pids, strict=True):
        if not text or not re.match(r"warn|err|fatal", severity, re.IGNORECASE):
            continue
        line = " ".join(text.split())
        # Questions end as they are: "Does the process use NVTX?"
        if not line.endswith((".", "?", "!")):
            line += "."
        facts.messages.append(Message(line, pid or None))
        if len(facts.messages) == _MOST_MESSAGES:
            return
