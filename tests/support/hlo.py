"""Writes small compiled programs for tests, field by field, from the definition of their messages."""

from __future__ import annotations

from tests.support.xspace import PlaneWriter, chunk, number


def instruction(
    name: str, opcode: str, op_name: str = "", op_type: str = "", *, kind: str = "", ident: int = 0, source: str = "", extra: bytes = b""
) -> bytes:
    metadata = (chunk(1, op_type) if op_type else b"") + (chunk(2, op_name) if op_name else b"")
    if source:
        file, _, line = source.partition(":")
        metadata += chunk(3, file) + number(4, int(line))
    out = chunk(1, name) + chunk(2, opcode) + (chunk(7, metadata) if metadata else b"") + (chunk(11, kind) if kind else b"")
    return out + number(35, ident) + extra


def computation(name: str, *instructions: bytes, ident: int = 1, root: int = 0) -> bytes:
    return chunk(1, name) + b"".join(chunk(2, one) for one in instructions) + number(5, ident) + number(6, root)


def program(name: str, *computations: bytes, ident: int = 1) -> bytes:
    module = chunk(1, name) + chunk(2, "main") + b"".join(chunk(3, one) for one in computations) + number(5, ident)
    return chunk(1, module)


def metadata_plane(**programs: tuple[int, bytes]) -> PlaneWriter:
    """The plane with compiled programs: by name the ident and the bytes."""
    plane = PlaneWriter("/host:metadata")
    for name, (ident, data) in programs.items():
        plane.events[name] = ident
        plane.event_extra[name] = chunk(5, plane.stat("Hlo Proto", data))
    return plane
