"""Writes small compiled programs for tests, field by field, from the definition of their
messages.
"""

from __future__ import annotations

from tests.support.xspace import PlaneWriter, UInt, chunk, number, varint


def instruction(
    name: str,
    opcode: str,
    op_name: str = "",
    op_type: str = "",
    *,
    kind: str = "",
    ident: int = 0,
    source: str = "",
    extra: bytes = b"",
) -> bytes:
    metadata = (chunk(1, op_type) if op_type else b"") + (chunk(2, op_name) if op_name else b"")
    if source:
        file, _, line = source.partition(":")
        metadata += chunk(3, file) + number(4, int(line))
    out = (
        chunk(1, name)
        + chunk(2, opcode)
        + (chunk(7, metadata) if metadata else b"")
        + (chunk(11, kind) if kind else b"")
    )
    return out + number(35, ident) + extra


def computation(name: str, *instructions: bytes, ident: int = 1, root: int = 0) -> bytes:
    return (
        chunk(1, name)
        + b"".join(chunk(2, one) for one in instructions)
        + number(5, ident)
        + number(6, root)
    )


def program(name: str, *computations: bytes, ident: int = 1) -> bytes:
    module = (
        chunk(1, name)
        + chunk(2, "main")
        + b"".join(chunk(3, one) for one in computations)
        + number(5, ident)
    )
    return chunk(1, module)


def metadata_plane(*, counted: bool = False, **programs: tuple[int, bytes]) -> PlaneWriter:
    """The plane with compiled programs: by name the ident and the bytes.

    `counted`: as JAX writes it from 0.11 on, which counts the programs of a file, and states the
    ident beside each.
    """
    plane = PlaneWriter("/host:metadata")
    for nth, (name, (ident, data)) in enumerate(programs.items(), 1):
        plane.events[name] = nth if counted else ident
        plane.event_extra[name] = chunk(5, plane.stat("Hlo Proto", data)) + (
            chunk(5, plane.stat("program_id", UInt(ident))) if counted else b""
        )
    return plane


def shape(
    element: int,
    *dimensions: int,
    order: tuple[int, ...] | None = None,
    tiles: tuple[tuple[int, ...], ...] = (),
    space: int = 0,
) -> bytes:
    """An array: the number of its element type, its dimensions, and its layout (row by row where
    none is given).
    """
    order = tuple(reversed(range(len(dimensions)))) if order is None else order
    layout = chunk(1, b"".join(varint(n) for n in order)) + b"".join(
        chunk(6, chunk(1, b"".join(varint(n) for n in t))) for t in tiles
    )
    return (
        number(2, element)
        + chunk(3, b"".join(varint(n) for n in dimensions))
        + chunk(5, layout + (number(8, space) if space else b""))
    )


def tuple_shape(*parts: bytes) -> bytes:
    return number(2, 13) + b"".join(chunk(4, part) for part in parts)


def buffer(ident: int, size: int, instruction: int, *index: int, colour: int = 0) -> bytes:
    defined = (chunk(3, b"".join(varint(n) for n in index)) if index else b"") + number(
        4, instruction
    )
    return (
        number(1, ident)
        + number(2, size)
        + chunk(3, defined)
        + (number(4, colour) if colour else b"")
    )


def allocation(
    index: int,
    size: int,
    *assigned: tuple[int, int, int],
    colour: int = 0,
    parameter: int = -1,
    **flags: bool,
) -> bytes:
    """`assigned` are (buffer, offset, size); flags are thread_local, live_out, tuple_ and
    constant.
    """
    out = number(1, index) + number(2, size)
    for key, field in (("thread_local", 3), ("live_out", 7), ("tuple_", 11), ("constant", 12)):
        out += number(field, 1) if flags.get(key) else b""
    out += number(5, 1) + number(6, parameter) if parameter >= 0 else b""
    out += number(8, colour) if colour else b""
    return out + b"".join(
        chunk(9, number(1, who) + number(2, at) + number(3, length)) for who, at, length in assigned
    )


def heap(*events: tuple[int, int, str] | tuple[int, int, str, int], allocation: int = -1) -> bytes:
    """`events` are (kind, buffer, instruction) and, of memory that is shared, the buffer that it is
    shared with.
    """
    out = b""
    for kind, who, name, *other in events:
        out += chunk(
            1,
            (number(1, kind) if kind else b"")
            + number(2, who)
            + chunk(4, name)
            + (number(5, other[0]) if other else b""),
        )
    return out + (number(3, allocation) if allocation >= 0 else b"")


def assignment(buffers: list[bytes], allocations: list[bytes], heaps: list[bytes]) -> bytes:
    """The part of a HloProto that says where its buffers lie; to be put behind `program(...)`."""
    return chunk(
        3,
        b"".join(
            chunk(n, one)
            for n, many in ((1, buffers), (3, allocations), (4, heaps))
            for one in many
        ),
    )
