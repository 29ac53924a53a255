"""Ops of PyTorch by shape, call stack and module."""

from __future__ import annotations

from nbprof.run_parts.base import Base


class TorchOps(Base):
    """Frames of PyTorch's ops."""
