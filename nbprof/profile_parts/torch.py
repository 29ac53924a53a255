"""Views of PyTorch's own, and of what devices did with their time."""

from __future__ import annotations

from nbprof.profile_parts.base import Shown


class Torch(Shown):
    """Faces of PyTorch profiles."""
