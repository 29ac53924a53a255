"""What a reader of damaged or odd files must keep to, with the protobuf library as the judge."""

from __future__ import annotations

from nbprof.core import distinct as core_distinct
from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.core.trace import Trace
from nbprof.formats.xspace import batches as xspace_batches
from nbprof.native import wire as native_wire
from tests.support import xspace_proto

LIMITS = (
    (wire, "_FEW_MESSAGES", 0),
    (core_distinct, "_FEW", 0),
    (xspace_batches, "MOST_EVENTS", 16),
    (xspace_batches, "_FEWEST_EVENTS", 4),
    (native_wire, "_ROOM", 3),
)


def small_limits(monkeypatch=None) -> None:
    """Makes short files take the ways of long ones: messages in lockstep, many batches."""
    for module, name, value in LIMITS:
        (monkeypatch or _Set).setattr(module, name, value)


class _Set:
    setattr = staticmethod(setattr)


def check(file: bytes, result: Trace | ReadError) -> None:
    """What protobuf accepts is read, and is the same; what it rejects is an error, or has a warning
    in the receipt.
    """
    space = xspace_proto.parse(file)
    if isinstance(result, ReadError):
        empty = not file or (space is not None and not space.planes)
        assert space is None or empty, f"rejected: {result}"
        assert result.path
        assert result.offset is not None or empty
        return
    if space is None:
        texts = [n.text for n in result.receipt.entries if n.level == "warning"]
        assert any("is truncated" in t or "invalid UTF-8" in t for t in texts), (
            "accepted in silence"
        )
        return
    if not xspace_proto.sets_map_entries_aside(space):
        found = xspace_proto.differences(space, result)
        assert not found, found
