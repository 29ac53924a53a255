"""The tab Allocator: what PyTorch's caching allocator held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.allocator import payload, static
from nbprof.tools.tool import Alone, Tool, Top

if TYPE_CHECKING:
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload


def _alone(run: Run) -> Alone | None:
    if not payload.alone(run):
        return None
    return Alone(["allocator"], [payload.ALONE], payload.chip(run) or "no device")


def _text(dashboard: Payload, limit: int) -> list[str]:
    if payload.only(dashboard):
        return payload.lines(dashboard.allocator, limit)
    return []


TOOL = Tool(
    # Not cached: a snapshot next to a trace is not among the files that the cache compares.
    payload=lambda run, _events: payload.payload(run),
    nothing=payload.nothing,
    has=payload.has,
    alone=_alone,
    only=payload.only,
    text=_text,
    static=static.html,
    brief=(
        Top(
            "Out of memory",
            "allocator.oom",
            "device",
            ("asked_bytes", "device_free_bytes", "reserved_bytes", "allocated_bytes", "cause"),
            most=1,
        ),
        Top(
            "Caching allocator",
            "allocator.summary",
            "device",
            (
                "peak_reserved_bytes",
                "peak_allocated_bytes",
                "stranded_bytes",
                "fragmentation_percent",
            ),
        ),
    ),
)
