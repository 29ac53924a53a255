"""Shapes of values in compiled programs: element type, dimensions, and layout in memory.

Source of the message numbers and of the way shapes are written: `xla_data.proto` of
https://github.com/openxla/xla (ShapeProto, LayoutProto, TileProto) and
https://openxla.org/xla/tiled_layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.wire import LENGTH, VARINT, Data

_ELEMENT, _DIMENSIONS, _TUPLE, _LAYOUT, _DYNAMIC = 2, 3, 4, 5, 6
_MINOR_TO_MAJOR, _TILES, _ELEMENT_BITS, _MEMORY_SPACE = 1, 6, 7, 8
_TILE_DIMENSIONS = 1
_TUPLE_ELEMENT, _OPAQUE_ELEMENT, _TOKEN_ELEMENT = 13, 14, 17
_COMBINED = -(1 << 63)
"""In a tile: this dimension is combined with the next one."""
MOST_NESTED = 64
"""Limit on tuples in tuples; compilers nest a few."""
_COMMENT_EVERY = 5
"""Every so many parts of a tuple, a comment has the index of the part."""

ELEMENTS: dict[int, tuple[str, float]] = {
    1: ("pred", 1), 2: ("s8", 1), 3: ("s16", 2), 4: ("s32", 4), 5: ("s64", 8), 6: ("u8", 1),
    7: ("u16", 2), 8: ("u32", 4), 9: ("u64", 8), 10: ("f16", 2), 11: ("f32", 4), 12: ("f64", 8),
    13: ("tuple", 0), 14: ("opaque", 0), 15: ("c64", 8), 16: ("bf16", 2), 17: ("token", 0),
    18: ("c128", 16), 19: ("f8e5m2", 1), 20: ("f8e4m3fn", 1), 21: ("s4", 0.5), 22: ("u4", 0.5),
    23: ("f8e4m3b11fnuz", 1), 24: ("f8e5m2fnuz", 1), 25: ("f8e4m3fnuz", 1), 26: ("s2", 0.25),
    27: ("u2", 0.25), 28: ("f8e4m3", 1), 29: ("f8e3m4", 1), 30: ("s1", 0.125), 31: ("u1", 0.125),
    32: ("f4e2m1fn", 0.5), 33: ("f8e8m0fnu", 1),
}  # fmt: skip
"""By number: the name of an element type and its size in bytes."""


@dataclass(frozen=True)
class Shape:
    """The shape of a value.

    Attributes
    ----------
    element : str
        "f32", "bf16" …, "tuple", "token", "opaque"; "type 99" for types unknown to this version.
    element_bytes : float
        0.5 for 4-bit types; 0 if the type is unknown.
    dimensions : tuple of int
        Sizes; upper bounds for dynamic dimensions.
    dynamic : tuple of bool
        True for dimensions whose size is dynamic; empty if all are fixed.
    minor_to_major : tuple of int
        Dimensions from the fastest varying to the slowest.
    tiles : tuple of tuples of int
        Tiles of the fastest varying dimensions; (8, 128) on a TPU.
    memory_space : int
        0 is the device's main memory.
    parts : tuple of Shape
        The elements of a tuple.
    has_layout : bool
    """

    element: str
    element_bytes: float = 0.0
    dimensions: tuple[int, ...] = ()
    dynamic: tuple[bool, ...] = ()
    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    memory_space: int = 0
    element_bits: int = 0
    parts: tuple[Shape, ...] = ()
    has_layout: bool = False

    @property
    def is_tuple(self) -> bool:
        """The value is a tuple of parts."""
        return self.element == "tuple"

    @cached_property
    def elements(self) -> int:
        """Number of values of an array; 0 for a tuple."""
        if self.is_tuple or self.element == "token":
            return 0
        return prod(self.dimensions)

    @property
    def bytes(self) -> int:
        """Bytes without padding; of a tuple, those of all its arrays."""
        if self.is_tuple:
            return sum(part.bytes for part in self.parts)
        return int(-(-self.elements * self.element_bytes // 1))

    @property
    def padded_bytes(self) -> int:
        """Bytes with each dimension rounded up to its tiles; of a tuple, those of all its arrays.

        Source: https://openxla.org/xla/tiled_layout; each tile divides the result of the previous.
        """
        if self.is_tuple:
            return sum(part.padded_bytes for part in self.parts)
        return int(-(-prod(self.padded) * self.element_bytes // 1))

    @cached_property
    def padded(self) -> tuple[int, ...]:
        """The sizes of the array in memory, the slowest dimension first.

        Tiled dimensions are divided by their tile, whose own sizes follow.
        """
        if self.element == "token":
            return (0,)
        sizes = list(self.dimensions)
        if sorted(self.minor_to_major) == list(range(len(sizes))):
            sizes = [sizes[dimension] for dimension in reversed(self.minor_to_major)]
        for tile in self.tiles:
            sizes = _tiled(sizes, tile)
        return tuple(sizes)

    def part_at(self, index: Sequence[int]) -> Shape:
        """A part of nested tuples, by its index on each level.

        Raises
        ------
        IndexError
            There is no such part.
        """
        shape = self
        for number in index:
            if not 0 <= number < len(shape.parts):
                raise IndexError(f"{self} has no part {list(index)}")
            shape = shape.parts[number]
        return shape

    @cached_property
    def is_known(self) -> bool:
        """All element types are known, and so the bytes of an element."""
        return not any(part.element.startswith(_UNKNOWN_TYPE) for part in self.arrays())

    def arrays(self) -> tuple[Shape, ...]:
        """The array itself, or all arrays of a tuple."""
        return self._arrays

    @cached_property
    def _arrays(self) -> tuple[Shape, ...]:
        if not self.is_tuple:
            return (self,)
        return tuple(array for part in self.parts for array in part.arrays())

    def __str__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        """As XLA writes it, with its layout: `f32[8,128]{1,0:T(8,128)}`."""
        if self.is_tuple:
            return f"({', '.join(with_indices(map(str, self.parts)))})"
        if self.element == "token":
            return "token[]"
        if not self.dimensions and self.layout == "{}":
            return self.short
        return self.short + self.layout

    @cached_property
    def short(self) -> str:
        """Without layout: `f32[8,128]`."""
        if self.is_tuple:
            return f"({', '.join(part.short for part in self.parts)})"
        dynamic = self.dynamic or (False,) * len(self.dimensions)
        sizes = []
        for size, is_dynamic in zip(self.dimensions, dynamic, strict=True):
            sizes.append(f"<={size}" if is_dynamic else str(size))
        return f"{self.element}[{','.join(sizes)}]"

    @cached_property
    def layout(self) -> str:
        """The layout of an array: `{1,0:T(8,128)}`; '' if none is stated."""
        if not self.has_layout:
            return ""
        suffix = ""
        if self.tiles:
            suffix = "T" + "".join(map(_tile, self.tiles))
        if self.element_bits:
            suffix += f"E({self.element_bits})"
        if self.memory_space:
            suffix += f"S({self.memory_space})"
        order = ",".join(map(str, self.minor_to_major))
        if suffix:
            return f"{{{order}:{suffix}}}"
        return f"{{{order}}}"


def _tile(tile: tuple[int, ...]) -> str:
    sizes = ",".join(map(str, tile))
    return f"({sizes.replace(str(_COMBINED), '*')})"


def with_indices(texts: Iterable[str]) -> list[str]:
    """Texts with a comment before each fifth that has its index, as XLA writes long lists."""
    result = []
    for index, text in enumerate(texts):
        if index > 0 and index % _COMMENT_EVERY == 0:
            text = f"/*index={index}*/{text}"
        result.append(text)
    return result


def _tiled(sizes: list[int], tile: tuple[int, ...]) -> list[int]:
    """The sizes in memory after the last dimensions are tiled."""
    # A combined dimension is joined with the next one before it is tiled.
    joined = list(sizes)
    plain: list[int] = []
    for back, size in enumerate(reversed(tile), 1):
        if size == _COMBINED and back < len(joined) + 1:
            index = len(joined) - back
            if index + 1 < len(joined):
                joined[index : index + 2] = [joined[index] * joined[index + 1]]
        elif size > 0:
            plain.insert(0, size)
    while len(joined) < len(plain):
        joined.insert(0, 1)
    if not plain:
        return joined
    head, tail = joined[: -len(plain)], joined[-len(plain) :]
    for size, part in zip(tail, plain, strict=True):
        head.append(-(-size // part))
    return head + plain


def read(data: Data, start: int, end: int, depth: int = 0) -> Shape:
    """The shape in a ShapeProto.

    Parameters
    ----------
    data : bytes
    start, end : int
        Its span.
    depth : int
        The number of messages around it.

    Raises
    ------
    ReadError
        It is damaged, or tuples are nested too deep.
    """
    if depth > MOST_NESTED:
        raise ReadError(f"a shape has tuples nested over {MOST_NESTED} deep", offset=start)
    number = 0
    dimensions: list[int] = []
    dynamic: list[int] = []
    parts: list[Shape] = []
    layout: tuple[int, int] | None = None
    for key, kind, value, stop in wire.fields(data, start, end, depth):
        if key == _ELEMENT and kind == VARINT:
            number = value
        elif key == _DIMENSIONS:
            dimensions += numbers(data, kind, value, stop)
        elif key == _DYNAMIC:
            dynamic += numbers(data, kind, value, stop)
        elif key == _TUPLE and kind == LENGTH:
            parts.append(read(data, value, stop, depth + 1))
        elif key == _LAYOUT and kind == LENGTH:
            layout = value, stop
    name, size = ELEMENTS.get(number, (f"{_UNKNOWN_TYPE}{number}", 0.0))
    has_dynamic = len(dynamic) == len(dimensions) and any(dynamic)
    shape = Shape(name, size, tuple(dimensions), parts=tuple(parts))
    if has_dynamic:
        shape = replace(shape, dynamic=tuple(map(bool, dynamic)))
    if layout is None:
        return shape
    shape = replace(shape, has_layout=number not in _NO_ARRAYS)
    return _with_layout(shape, data, *layout, depth + 1)


_UNKNOWN_TYPE = "type "
_NO_ARRAYS = (_TUPLE_ELEMENT, _OPAQUE_ELEMENT, _TOKEN_ELEMENT)


def _with_layout(shape: Shape, data: Data, start: int, end: int, depth: int) -> Shape:
    """A shape with the layout in a LayoutProto."""
    order: list[int] = []
    tiles: list[tuple[int, ...]] = []
    bits = space = 0
    for key, kind, value, stop in wire.fields(data, start, end, depth):
        if key == _MINOR_TO_MAJOR:
            order += numbers(data, kind, value, stop)
        elif key == _TILES and kind == LENGTH:
            tile: list[int] = []
            for inner, form, content, after in wire.fields(data, value, stop, depth + 1):
                if inner == _TILE_DIMENSIONS:
                    tile += numbers(data, form, content, after)
            tiles.append(tuple(tile))
        elif key == _ELEMENT_BITS and kind == VARINT:
            bits = value
        elif key == _MEMORY_SPACE and kind == VARINT:
            space = wire.signed(value)
    return replace(
        shape,
        minor_to_major=tuple(order),
        tiles=tuple(tiles),
        element_bits=bits,
        memory_space=space,
    )


def numbers(data: Data, kind: int, value: int, end: int) -> list[int]:
    """The numbers of a repeated field: a single one, or all of them packed."""
    if kind == VARINT:
        return [wire.signed(value)]
    if kind != LENGTH:
        return []
    result: list[int] = []
    while value < end:
        number, value = wire.read_varint(data, value, end)
        result.append(wire.signed(number))
    return result
