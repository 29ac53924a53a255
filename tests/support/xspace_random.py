"""Random XSpace files straight in wire format: valid ones in every shape that the format allows,
and damaged ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

from tests.support.xspace import chunk, varint
from tests.support.xspace_proto import SCHEMA


class Chance(Protocol):
    """The part of `random.Random` that is used."""

    def randrange(self, stop: int, /) -> int: ...


_NUMBERS = [
    0,
    1,
    2,
    3,
    5,
    127,
    128,
    300,
    2**14,
    2**31,
    2**32 + 5,
    2**53 + 1,
    2**56 - 1,
    2**56,
    2**61,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64 - 7,
]
_TEXTS = [
    b"",
    b"a",
    b"train",
    "Ünï☃".encode(),
    b"step_name",
    b"x" * 7,
    b"y" * 8,
    b"z" * 9,
    b"kernel_details " * 20,
    b"\x00",
    b"Hlo Proto",
]


class Writer:
    """Writes one file.

    Parameters
    ----------
    chance : Chance
    odd : int
        One in so many fields is written in an odd way: unknown, repeated, of another wire type,
        with more bytes than it needs.
    """

    def __init__(self, chance: Chance, odd: int = 12) -> None:
        self.chance = chance
        self.odd = odd

    def space(self) -> bytes:
        out = b"".join(chunk(1, self.plane()) for _ in range(1 + self.roll(3)))
        for number in (2, 3, 4):
            if self.one_in(4):
                out += chunk(number, self.text())
        return out + self.oddities()

    def plane(self) -> bytes:
        parts = [self.field("XPlane", "id"), chunk(2, self.text())]
        shapes = [self.event_shape() for _ in range(1 + self.roll(3))]
        parts += [chunk(3, self.line(shapes)) for _ in range(self.roll(4))]
        parts += [self.entry(4, "XEventMetadata") for _ in range(self.roll(5))]
        parts += [self.entry(5, "XStatMetadata") for _ in range(self.roll(5))]
        parts += [self.field("XPlane", "stats") for _ in range(self.roll(3))]
        return b"".join(self.mixed(parts))

    def line(self, shapes: list[Callable[[], bytes]]) -> bytes:
        parts = [
            self.field("XLine", name)
            for name in ("id", "name", "timestamp_ns", "duration_ps", "display_id", "display_name")
            if self.one_in(2)
        ]
        events: list[bytes] = []
        for _ in range(self.roll(4)):
            shape = self.pick(shapes)
            events += [chunk(4, shape()) for _ in range(self.roll(12))]
        behind = self.one_in(4)
        return b"".join(self.mixed(events + parts if behind else parts + events))

    def event_shape(self) -> Callable[[], bytes]:
        """Events of a kind: the same fields in the same order, other values."""
        fields = [
            name for name in ("metadata_id", "offset_ps", "duration_ps") if not self.one_in(8)
        ]
        stats = [(self.ident(), self.pick(SCHEMA["XStat"][1:])) for _ in range(self.roll(4))]

        def event() -> bytes:
            out = b"".join(self.field("XEvent", name) for name in fields)
            for ident, (_, number, kind, *_) in stats:
                out += chunk(4, varint(1 << 3) + varint(ident) + self.value(number, kind))
            return (
                out
                if not self.one_in(self.odd)
                else b"".join(
                    self.mixed([out, self.field("XEvent", "num_occurrences"), self.oddities()])
                )
            )

        return event

    def entry(self, number: int, message: str) -> bytes:
        parts = [varint(1 << 3) + varint(self.ident()), chunk(2, self.message(message))]
        if self.one_in(self.odd):
            parts = self.pick(
                [
                    parts[:1],
                    parts[1:],
                    [parts[1], parts[0]],
                    [*parts, chunk(2, self.message(message))],
                    parts * 2,
                ]
            )
        return chunk(number, b"".join(parts))

    def message(self, name: str) -> bytes:
        return (
            b"".join(self.field(name, field[0]) for field in SCHEMA[name] if not self.one_in(3))
            + self.oddities()
        )

    def field(self, message: str, name: str) -> bytes:
        _, number, kind, repeated, _ = next(f for f in SCHEMA[message] if f[0] == name)
        out = b""
        for _ in range(1 + (self.roll(3) if repeated or self.one_in(self.odd) else 0)):
            out += self.value(number, kind)
        return out

    def value(self, number: int, kind: str) -> bytes:
        if self.one_in(4 * self.odd):
            return self.unknown(number)
        if kind in ("int64", "uint64"):
            value = self.pick(_NUMBERS) if self.one_in(3) else self.roll(40)
            return varint(number << 3) + (
                varint(value) if not self.one_in(self.odd) else self.long(value)
            )
        if kind == "double":
            return varint(number << 3 | 1) + struct.pack(
                "<d", self.pick([0.0, -1.5, 1e300, float("inf"), float("nan"), 0.1])
            )
        if kind in ("string", "bytes"):
            return chunk(number, self.text())
        return chunk(number, self.message(kind))

    def unknown(self, number: int = 0) -> bytes:
        """A field that the schema does not have, or has with another type."""
        number = number or self.pick([8, 15, 16, 99, 2047, 2**29 - 1])
        kind = self.roll(5)
        if kind == 0:
            return varint(number << 3) + varint(self.pick(_NUMBERS))
        if kind == 1:
            return varint(number << 3 | 1) + b"12345678"
        if kind == 2:
            return chunk(number, self.text() if number > 15 else b"")
        if kind == 3:
            return varint(number << 3 | 5) + b"1234"
        inner = b"".join(self.unknown() for _ in range(self.roll(3)))
        return varint(number << 3 | 3) + inner + varint(number << 3 | 4)

    def oddities(self) -> bytes:
        return self.unknown() if self.one_in(self.odd) else b""

    def long(self, value: int) -> bytes:
        """A number with more bytes than it needs, which is allowed."""
        data = bytearray(varint(value))
        while len(data) < 10 and not self.one_in(3):
            data[-1] |= 0x80
            data.append(0)
        return bytes(data)

    def mixed(self, parts: list[bytes]) -> list[bytes]:
        """Mostly in the order given."""
        if parts and self.one_in(self.odd):
            parts = parts.copy()
            parts.insert(self.roll(len(parts)), parts.pop())
        return parts

    def text(self) -> bytes:
        return self.pick(_TEXTS)

    def ident(self) -> int:
        return self.pick(_NUMBERS) if self.one_in(4) else self.roll(6)

    def roll(self, sides: int) -> int:
        return self.chance.randrange(sides)

    def one_in(self, count: int) -> bool:
        return self.chance.randrange(count) == 0

    def pick(self, items):
        return items[self.chance.randrange(len(items))]


def damaged(data: bytes, chance: Chance) -> bytes:
    """A file with some bytes changed, taken out or put in."""
    out = bytearray(data)
    for _ in range(1 + chance.randrange(3)):
        at = chance.randrange(len(out)) if out else 0
        way = chance.randrange(4)
        if way == 0 and out:
            out[at] ^= 1 << chance.randrange(8)
        elif way == 1 and out:
            out[at] = chance.randrange(256)
        elif way == 2:
            del out[at : at + 1 + chance.randrange(3)]
        else:
            out[at:at] = bytes([chance.randrange(256)])
    return bytes(out)
