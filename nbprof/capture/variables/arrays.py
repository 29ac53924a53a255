"""Arrays of the frameworks: the memory that they stand for, which several may share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

HOST = "host"
"""The device of memory that the processor reads."""


class Block(NamedTuple):
    """Memory of one or several arrays.

    Attributes
    ----------
    key : tuple
        The same for all views of it.
    bytes : int
    device : str
        `HOST`, or as its framework names it: `cuda:0`, `TPU:0`.
    text : str
        The array: `float32[64, 128]`.
    """

    key: tuple[Any, ...]
    bytes: int
    device: str
    text: str


Blocks = Callable[[Any], Iterator[Block]]


def reader_of(kind: type) -> Blocks | None:
    """The reader of the memory of objects of a type; None if they are no arrays."""
    for module, name, reader in _READERS:
        base = getattr(sys.modules.get(module), name, None)
        if isinstance(base, type) and issubclass(kind, base):
            return reader
    return None


def tensors() -> list[Any]:
    """All tensors of PyTorch and arrays of JAX that there are, whoever holds them."""
    import gc

    arrays: list[Any] = []
    base = getattr(sys.modules.get("torch"), "Tensor", None)
    if base is not None:
        kinds: dict[type, bool] = {}
        for each in gc.get_objects():
            kind = type(each)
            is_tensor = kinds.get(kind)
            if is_tensor is None:
                is_tensor = kinds[kind] = issubclass(kind, base)
            if is_tensor:
                arrays.append(each)
    live = getattr(sys.modules.get("jax"), "live_arrays", None)
    if live is not None:
        arrays += live()
    return arrays


def _text(dtype: object, shape: object) -> str:
    name = str(dtype).rpartition(".")[2]
    return f"{name}[{', '.join(map(str, shape))}]"  # type: ignore[call-overload]


def _of_torch(tensor: Any) -> Iterator[Block]:
    device = str(tensor.device)
    if device == "meta":
        return
    storage = tensor.untyped_storage()
    pointer, size = storage.data_ptr(), storage.nbytes()
    if not pointer or not size:
        return
    text = _text(tensor.dtype, tensor.shape)
    if device == "cpu":
        yield Block((HOST, pointer), size, HOST, text)
    else:
        yield Block((device, pointer), size, device, text)


def _of_numpy(array: Any) -> Iterator[Block]:
    memmap = sys.modules["numpy"].memmap
    owner = array
    while type(owner.base) is not type(None):
        if isinstance(owner, memmap):
            # A file, not memory.
            return
        if reader_of(type(owner.base)) is not _of_numpy:
            break
        owner = owner.base
    if isinstance(owner, memmap):
        return
    pointer = owner.__array_interface__["data"][0]
    if owner.nbytes:
        yield Block((HOST, pointer), owner.nbytes, HOST, _text(array.dtype, array.shape))


def _of_jax(array: Any) -> Iterator[Block]:
    if array.is_deleted():
        return
    text = _text(array.dtype, array.shape)
    for shard in array.addressable_shards:
        device = HOST
        if shard.device.platform != "cpu":
            device = f"{shard.device.platform.upper()}:{shard.device.id}"
        data = shard.data
        yield Block((device, data.unsafe_buffer_pointer()), data.nbytes, device, text)


def _of_tensorflow(tensor: Any) -> Iterator[Block]:
    if tensor.dtype.name in ("resource", "variant", "string"):
        # A handle; the memory of texts is unknown.
        return
    size = int(tensor.shape.num_elements() or 0) * tensor.dtype.size
    if size:
        device = _device_of_tensorflow(tensor.device)
        yield Block((id(tensor),), size, device, _text(tensor.dtype.name, tensor.shape))


def _of_variable(variable: Any) -> Iterator[Block]:
    size = int(variable.shape.num_elements() or 0) * variable.dtype.size
    if size:
        device = _device_of_tensorflow(variable.device)
        key = (id(variable.handle),)
        yield Block(key, size, device, _text(variable.dtype.name, variable.shape))


def _device_of_tensorflow(device: str) -> str:
    name = device.rpartition("device:")[2]
    if name and not name.startswith("CPU"):
        return name
    return HOST


def _of_cupy(array: Any) -> Iterator[Block]:
    memory = array.data.mem
    device = f"cuda:{array.device.id}"
    if memory.size:
        yield Block((device, memory.ptr), memory.size, device, _text(array.dtype, array.shape))


def _of_arrow_array(array: Any) -> Iterator[Block]:
    for buffer in array.buffers():
        if buffer is not None and buffer.size:
            yield Block((HOST, buffer.address), buffer.size, HOST, f"{array.type}[{len(array)}]")


def _of_arrow_chunks(array: Any) -> Iterator[Block]:
    for chunk in array.chunks:
        yield from _of_arrow_array(chunk)


def _of_arrow_table(table: Any) -> Iterator[Block]:
    for column in table.columns:
        yield from _of_arrow_chunks(column)


def _of_arrow_batch(batch: Any) -> Iterator[Block]:
    for column in batch.columns:
        yield from _of_arrow_array(column)


def _of_bytes(value: Any) -> Iterator[Block]:
    yield Block((id(value),), sys.getsizeof(value), HOST, f"bytes[{len(value)}]")


_READERS: tuple[tuple[str, str, Blocks], ...] = (
    ("torch", "Tensor", _of_torch),
    ("numpy", "ndarray", _of_numpy),
    ("jax", "Array", _of_jax),
    ("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable", _of_variable),
    ("tensorflow.python.framework.ops", "EagerTensor", _of_tensorflow),
    ("cupy", "ndarray", _of_cupy),
    ("pyarrow", "Table", _of_arrow_table),
    ("pyarrow", "RecordBatch", _of_arrow_batch),
    ("pyarrow", "ChunkedArray", _of_arrow_chunks),
    ("pyarrow", "Array", _of_arrow_array),
    ("builtins", "bytearray", _of_bytes),
)
"""Module and name of the type of arrays, and what reads their memory."""
