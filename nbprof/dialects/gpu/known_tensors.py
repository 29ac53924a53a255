"""The tensors of live models and optimizers that a recording of nbprof names.

See `nbprof.core.memory_roles.TENSORS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nbprof.activity import activity as act
from nbprof.activity.tables import KnownTensors
from nbprof.core.memory_roles import GRADIENTS, IN_USE, KV_CACHE, TENSORS
from nbprof.core.trace import Int64s, Trace

_FAMILIES = {
    "cpu": "CPU",
    "cuda": "GPU",
    "gpu": "GPU",
    "hip": "GPU",
    "xpu": "XPU",
    "npu": "NPU",
    "mps": "MPS",
    "hpu": "HPU",
    "mtia": "MTIA",
    "xla": "XLA",
}
"""Names of memories by the types of devices, as PyTorch and TensorFlow have them."""
AT_END = int(np.iinfo(np.int64).max)
_Row = tuple[str, str, int, int, int]
"""Role, name of the memory, address, bytes, time in ps."""


def table(trace: Trace, facts: Sequence[Mapping[str, Any]], activity: act.Activity) -> KnownTensors:
    """The `known_tensors` table, without statements that are damaged.

    Parameters
    ----------
    trace : Trace
    facts : sequence of dict
        The metadata of each file.
    activity : Activity
        `texts` gets the names of roles and memories.
    """
    several = len(trace.hosts) > 1
    hosts: list[int] = []
    rows: list[_Row] = []
    for host, (name, metadata) in enumerate(zip(trace.hosts, facts, strict=True)):
        named = metadata.get(TENSORS)
        if not isinstance(named, dict):
            continue
        for row in (*_tensors(named), *_at_times(named, trace.epoch_ns)):
            label = row[1]
            if several:
                label = f"{name} {label}"
            rows.append((row[0], label, *row[2:]))
            hosts.append(host)
    role, memory, address, size, time = zip(*rows, strict=True) if rows else ((),) * 5
    return KnownTensors(
        host=np.array(hosts, np.int32),
        memory=activity.texts.encode(memory),
        address=np.array(address, np.int64),
        size=np.array(size, np.int64),
        role=activity.texts.encode(role),
        time=np.array(time, np.int64),
    )


def before_recording(tensors: KnownTensors, memory: int, addresses: Int64s) -> Int64s:
    """Rows of the tensors in one memory that were there when the recording began: those at
    addresses of none of its events.
    """
    rows = np.flatnonzero((tensors.memory == memory) & (tensors.time == AT_END))
    return rows[~np.isin(tensors.address[rows], addresses)]


def _tensors(named: Mapping[str, Any]) -> Iterator[_Row]:
    for each in _list(named.get("tensors")):
        if isinstance(each, list) and len(each) == 5 and each[0] in IN_USE:
            storage = _storage_of(each[1:])
            if storage is not None:
                yield (each[0], *storage, AT_END)


def _at_times(named: Mapping[str, Any], epoch_ns: int) -> Iterator[_Row]:
    """Gradients and caches, which were there at some moments."""
    sets = [
        [storage for storage in map(_storage_of, _list(each)) if storage is not None]
        for each in _list(named.get("sets"))
    ]
    for key, role in (("gradients", GRADIENTS), ("caches", KV_CACHE)):
        for each in _list(named.get(key)):
            if not isinstance(each, list) or len(each) != 2:
                continue
            time_ns, number = each
            if not (_fits(time_ns) and _fits(number) and number < len(sets)):
                continue
            time = (time_ns - epoch_ns) * 1000
            if 0 <= time < AT_END:
                for storage in sets[number]:
                    yield (role, *storage, time)


def _storage_of(values: object) -> tuple[str, int, int] | None:
    """Name of the memory, address and bytes."""
    if not isinstance(values, list) or len(values) != 4:
        return None
    family = _FAMILIES.get(values[0]) if isinstance(values[0], str) else None
    if family is None or not all(map(_fits, values[1:])):
        return None
    if family != "CPU":
        family = f"{family} {values[1]}"
    return family, values[2], values[3]


def _fits(value: object) -> bool:
    return type(value) is int and 0 <= value < AT_END


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
