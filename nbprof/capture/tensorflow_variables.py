"""Addresses of the variables of TensorFlow's layers and optimizers, by the objects themselves.

They go into the recorded file, where the allocator's events have the same. Nothing of a variable is
read but where its memory is.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nbprof.core import wire
from nbprof.core.memory_roles import BUFFERS, OPTIMIZER_STATE, PARAMETERS, TENSORS

_MOST_SECONDS = 0.5
"""Time for all variables, the largest first: one takes about 0.7 ms."""
_LEAST_BYTES_ON_CPU = 1 << 18
"""Smaller ones have memory of another allocator, which records nothing."""
_MOST_BYTES = 1 << 30
"""Variables that are larger are not read: TensorFlow may copy one for that."""
_FAMILIES = ("CPU", "GPU")
# Numbers of fields: XSpace.planes; XPlane.name, .stat_metadata, .stats; key and value of a map;
# XStatMetadata.id, .name; XStat.metadata_id, .str_value.
_PLANES, _NAME, _STAT_NAMES, _STATS, _KEY, _VALUE, _ID, _TEXT = 1, 2, 5, 6, 1, 2, 1, 5


class _Storage(NamedTuple):
    family: str
    ordinal: int
    address: int
    size: int


def add(tensorflow: Any, folder: Path) -> None:
    """Add the variables to the file that was written last.

    Parameters
    ----------
    tensorflow : module
    folder : Path
        Has the files of the recording.
    """
    files = sorted(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns)
    rows = _variables(tensorflow)
    if files and rows:
        with files[-1].open("ab") as file:
            # Messages one after another are one message.
            file.write(wire.bytes_field(_PLANES, _plane(json.dumps({"tensors": rows}))))


def _plane(text: str) -> bytes:
    """The plane of a file that has the variables as a fact."""
    name = wire.number_field(_ID, 1) + wire.bytes_field(_NAME, TENSORS.encode())
    entry = wire.number_field(_KEY, 1) + wire.bytes_field(_VALUE, name)
    stat = wire.number_field(_ID, 1) + wire.bytes_field(_TEXT, text.encode())
    return (
        wire.bytes_field(_NAME, b"nbprof")
        + wire.bytes_field(_STAT_NAMES, entry)
        + wire.bytes_field(_STATS, stat)
    )


def _variables(tensorflow: Any) -> list[list[Any]]:
    """Role, type and number of the device, address and bytes of each variable."""
    if not tensorflow.executing_eagerly():
        return []
    roles = {}
    for role, value in _live(tensorflow):
        for variable in _components(tensorflow, value):
            # The last role of a variable counts.
            roles[id(variable)] = (role, variable)
    largest_first = sorted(roles.values(), key=lambda pair: -_size(pair[1]))
    until = time.monotonic() + _MOST_SECONDS
    rows: list[list[Any]] = []
    for role, variable in largest_first:
        if time.monotonic() > until:
            break
        storage = _storage_of(tensorflow, variable)
        if storage is not None:
            rows.append([role, *storage])
    return rows


def _live(tensorflow: Any) -> Iterator[tuple[str, Any]]:
    """Roles and variables of all optimizers and layers that there are; parameters last."""
    optimizers = _classes("optimizers", "Optimizer")
    layers = (*_classes("layers", "Layer"), tensorflow.Module)
    kinds: dict[type, tuple[bool, bool]] = {}
    live_layers: list[Any] = []
    for each in gc.get_objects():
        kind = type(each)
        if kind not in kinds:
            kinds[kind] = (issubclass(kind, optimizers), issubclass(kind, layers))
        is_optimizer, is_layer = kinds[kind]
        if is_optimizer:
            yield from ((OPTIMIZER_STATE, value) for value in _list(each, "variables"))
        elif is_layer:
            live_layers.append(each)
    for role, name in (
        (BUFFERS, "non_trainable_variables"),
        # Those of a layer that is not trained are parameters all the same.
        (PARAMETERS, "_trainable_variables"),
        (PARAMETERS, "trainable_variables"),
    ):
        for layer in live_layers:
            yield from ((role, value) for value in _list(layer, name))


def _classes(module: str, name: str) -> tuple[type, ...]:
    """A class of Keras, of the packages that are imported."""
    bases = (
        getattr(sys.modules.get(f"{package}.{module}"), name, None)
        for package in ("keras", "tf_keras")
    )
    return tuple(base for base in bases if isinstance(base, type))


def _list(owner: Any, name: str) -> list[Any]:
    try:
        values = getattr(owner, name, ())
        return list(values() if callable(values) else values)
    except Exception:
        # Layers that are not built, and classes of the user with other properties.
        return []


def _components(tensorflow: Any, value: Any) -> list[Any]:
    """The variables of TensorFlow that one of Keras, or of a strategy, stands for."""
    if not isinstance(value, tensorflow.Variable):
        value = getattr(value, "value", None)
    values = getattr(value, "values", None)
    candidates = values if isinstance(values, tuple) else (value,)
    return [each for each in candidates if isinstance(each, tensorflow.Variable)]


def _size(variable: Any) -> int:
    return int(variable.shape.num_elements() or 0) * int(variable.dtype.size or 0)


def _storage_of(tensorflow: Any, variable: Any) -> _Storage | None:
    """The memory of a variable; None if its address is unknown."""
    size = _size(variable)
    try:
        least = _LEAST_BYTES_ON_CPU if "device:CPU" in str(variable.device) else 1
        if not least <= size <= _MOST_BYTES:
            return None
        first, second = variable.value(), variable.value()
        address = _address(tensorflow, first)
        # Variables with sparse updates are copied when they are read.
        if not address or address != _address(tensorflow, second):
            return None
        family, _, ordinal = str(first.device).rpartition("device:")[2].partition(":")
        if family not in _FAMILIES:
            return None
        return _Storage(family.lower(), int(ordinal), address, size)
    except Exception:
        # Variables without a value, of types without an address, or of another thread's graph.
        return None


def _address(tensorflow: Any, tensor: Any) -> int:
    capsule = tensorflow.experimental.dlpack.to_dlpack(tensor)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    # Its first field is the address.
    return ctypes.c_void_p.from_address(pointer(capsule, b"dltensor")).value or 0
