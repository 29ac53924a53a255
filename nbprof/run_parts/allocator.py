"""Snapshots of PyTorch's allocator."""

from __future__ import annotations

from nbprof.run_parts.base import Base


class Allocator(Base):
    """Frames of the blocks and segments of an allocator."""
