"""Shapes of values in compiled programs: element type, dimensions, and how they lie in memory.

Source of the message numbers and of the way shapes are written: `xla_data.proto` of
https://github.com/openxla/xla (ShapeProto, LayoutProto, TileProto) and
https://openxla.org/xla/tiled_layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
"""In a tile: this dimension goes together with the next one."""
MOST_NESTED = 64
"""Tuples in tuples; compilers make a few."""
_MANY = 5
"""After so many parts of a tuple comes a comment that says which one it is."""

ELEMENTS: dict[int, tuple[str, float]] = {
    1: ("pred", 1), 2: ("s8", 1), 3: ("s16", 2), 4: ("s32", 4), 5: ("s64", 8), 6: ("u8", 1), 7: ("u16", 2), 8: ("u32", 4), 9: ("u64", 8),
    10: ("f16", 2), 11: ("f32", 4), 12: ("f64", 8), 13: ("tuple", 0), 14: ("opaque", 0), 15: ("c64", 8), 16: ("bf16", 2), 17: ("token", 0),
    18: ("c128", 16), 19: ("f8e5m2", 1), 20: ("f8e4m3fn", 1), 21: ("s4", 0.5), 22: ("u4", 0.5), 23: ("f8e4m3b11fnuz", 1),
    24: ("f8e5m2fnuz", 1), 25: ("f8e4m3fnuz", 1), 26: ("s2", 0.25), 27: ("u2", 0.25), 28: ("f8e4m3", 1), 29: ("f8e3m4", 1),
    30: ("s1", 0.125), 31: ("u1", 0.125), 32: ("f4e2m1fn", 0.5), 33: ("f8e8m0fnu", 1),
}  # fmt: skip
"""By number: the name of an element type and its size in bytes."""


@dataclass(frozen=True)
class Shape:
    """The shape of a value.

    Attributes
    ----------
    element : str
        "f32", "bf16" …, "tuple", "token", "opaque"; "type 99" of a type that is newer than this.
    element_bytes : float
        0.5 of 4-bit types; 0 where the type is not known.
    dimensions : tuple of int
        The bounds, of those that are not fixed.
    dynamic : tuple of bool
        Which dimensions are not fixed; empty: all are.
    minor_to_major : tuple of int
        Dimensions from the one that lies closest together.
    tiles : tuple of tuples of int
        Of the dimensions that lie closest together; (8, 128) on a TPU.
    memory_space : int
        0 is the device's main memory.
    parts : tuple of Shape
        Of a tuple.
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
        """Whether it has parts."""
        return self.element == "tuple"

    @cached_property
    def elements(self) -> int:
        """How many values an array has; 0 of a tuple."""
        return 0 if self.is_tuple or self.element == "token" else prod(self.dimensions)

    @property
    def bytes(self) -> int:
        """Bytes without padding, of a tuple those of all its arrays."""
        if self.is_tuple:
            return sum(part.bytes for part in self.parts)
        return int(-(-self.elements * self.element_bytes // 1))

    @property
    def padded_bytes(self) -> int:
        """Bytes with each dimension rounded up to the tiles that it lies in; of a tuple those of
        all its arrays.

        Source: https://openxla.org/xla/tiled_layout; a later tile divides what the tile before it
        made.
        """
        if self.is_tuple:
            return sum(part.padded_bytes for part in self.parts)
        return int(-(-prod(self.padded) * self.element_bytes // 1))

    @cached_property
    def padded(self) -> tuple[int, ...]:
        """The array in memory: its dimensions from the slowest, those in tiles divided by them and
        followed by the tile's own.
        """
        if self.element == "token":
            return (0,)
        order = (
            self.minor_to_major
            if sorted(self.minor_to_major) == list(range(len(self.dimensions)))
            else ()
        )
        sizes = [self.dimensions[d] for d in reversed(order)] if order else list(self.dimensions)
        for tile in self.tiles:
            sizes = _tiled(sizes, tile)
        return tuple(sizes)

    def at(self, index: Sequence[int]) -> Shape:
        """The part of a tuple at an index of indices.

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
        """Whether it has no element type that is newer than this, of which nobody knows how many
        bytes one takes.
        """
        return not any(part.element.startswith(_NEWER) for part in self.arrays())

    def arrays(self) -> tuple[Shape, ...]:
        """The arrays in it: itself, or those of its parts."""
        return self._arrays

    @cached_property
    def _arrays(self) -> tuple[Shape, ...]:
        return (
            tuple(array for part in self.parts for array in part.arrays())
            if self.is_tuple
            else (self,)
        )

    def __str__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        """As XLA writes it, with its layout: `f32[8,128]{1,0:T(8,128)}`. Each op that reads a value
        writes its shape.
        """
        if self.is_tuple:
            texts = [
                (f"/*index={i}*/" if i and i % _MANY == 0 else "") + str(part)
                for i, part in enumerate(self.parts)
            ]
            return f"({', '.join(texts)})"
        if self.element == "token":
            return "token[]"
        return self.short + (self.layout if self.dimensions or self.layout != "{}" else "")

    @cached_property
    def short(self) -> str:
        """Without layout: `f32[8,128]`."""
        if self.is_tuple:
            return f"({', '.join(part.short for part in self.parts)})"
        dynamic = self.dynamic or (False,) * len(self.dimensions)
        sizes = [
            ("<=" if moves else "") + str(size)
            for size, moves in zip(self.dimensions, dynamic, strict=True)
        ]
        return f"{self.element}[{','.join(sizes)}]"

    @cached_property
    def layout(self) -> str:
        """The layout of an array alone: `{1,0:T(8,128)}`; '' where none is stated."""
        if not self.has_layout:
            return ""
        suffix = ""
        if self.tiles:
            suffix += "T" + "".join(
                "(" + ",".join("*" if n == _COMBINED else str(n) for n in tile) + ")"
                for tile in self.tiles
            )
        if self.element_bits:
            suffix += f"E({self.element_bits})"
        if self.memory_space:
            suffix += f"S({self.memory_space})"
        return (
            "{" + ",".join(map(str, self.minor_to_major)) + (f":{suffix}" if suffix else "") + "}"
        )


def _tiled(sizes: list[int], tile: tuple[int, ...]) -> list[int]:
    """The dimensions after a tile over the last of them."""
    # A combined dimension is joined with the next before it is cut.
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
    return [*head, *(-(-size // part) for size, part in zip(tail, plain, strict=True)), *plain]


def read(data: Data, start: int, end: int, depth: int = 0) -> Shape:
    """The shape of a ShapeProto.

    Parameters
    ----------
    data : bytes
    start, end : int
        Its span.
    depth : int
        In how many messages it lies.

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
    name, size = ELEMENTS.get(number, (f"{_NEWER}{number}", 0.0))
    order, tiles, bits, space = _layout(data, *layout, depth + 1) if layout else ((), (), 0, 0)
    moving = tuple(map(bool, dynamic)) if len(dynamic) == len(dimensions) and any(dynamic) else ()
    return Shape(
        name,
        size,
        tuple(dimensions),
        moving,
        order,
        tiles,
        space,
        bits,
        tuple(parts),
        layout is not None and number not in _NO_ARRAYS,
    )


_NEWER = "type "
_NO_ARRAYS = (_TUPLE_ELEMENT, _OPAQUE_ELEMENT, _TOKEN_ELEMENT)


def _layout(
    data: Data, start: int, end: int, depth: int
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int, int]:
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
    return tuple(order), tuple(tiles), bits, space


def numbers(data: Data, kind: int, value: int, end: int) -> list[int]:
    """The numbers of a repeated field: one of them, or all in one piece."""
    if kind == VARINT:
        return [wire.signed(value)]
    if kind != LENGTH:
        return []
    result: list[int] = []
    while value < end:
        number, value = wire.read_varint(data, value, end)
        result.append(wire.signed(number))
    return result
