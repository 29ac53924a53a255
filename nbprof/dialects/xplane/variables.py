"""Variables of TensorFlow that a recording of nbprof names by their addresses.

`nbprof.capture.tensorflow_variables` adds them to the file.
"""

from __future__ import annotations

import json

import numpy as np

from nbprof.activity import activity as act
from nbprof.activity.tables import KnownTensors
from nbprof.core.memory_roles import TENSORS
from nbprof.core.trace import Trace
from nbprof.dialects.gpu import known_tensors


def table(trace: Trace, activity: act.Activity) -> KnownTensors:
    """The `known_tensors` table, with the names that TensorFlow's allocators have.

    A device has one of several allocators; a tensor has a row for each that it can have.
    """
    facts = [_facts(trace, host) for host in trace.hosts]
    named = known_tensors.table(trace, facts, activity)
    parts = []
    for row in range(len(named)):
        label = str(activity.texts.values[named.memory[row]])
        for name in _allocators(label):
            part = named.take(np.array([row]))
            parts.append(part.with_(memory=np.array([activity.texts.code(name)], np.int32)))
    return KnownTensors.concat(parts) if parts else KnownTensors.empty()


def _facts(trace: Trace, host: str) -> dict[str, object]:
    for plane in trace.planes:
        text = plane.stats.get(TENSORS)
        if plane.host == host and isinstance(text, str):
            try:
                return {TENSORS: json.loads(text)}
            except (ValueError, RecursionError):
                return {}
    return {}


def _allocators(label: str) -> list[str]:
    """Names that the allocators of a memory have: `GPU_0_bfc` of `GPU 0`."""
    host, space, device = label.rpartition("CPU" if label.endswith("CPU") else "GPU ")
    if space == "CPU":
        return [host + "mklcpu", host + "cpu"]
    return [f"{host}GPU_{device}_bfc", f"{host}gpu_async_{device}"]
