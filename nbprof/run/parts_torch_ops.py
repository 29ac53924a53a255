"""Ops of PyTorch by shape, call stack and module."""

from __future__ import annotations

from functools import partial

import pandas as pd

from nbprof.analysis.ops import torch_ops
from nbprof.run.lazy import Kept
from nbprof.run.parts_base import Base


class TorchOps(Base):
    """Frames of PyTorch's ops."""

    @Kept
    def torch_ops(self) -> pd.DataFrame:
        """Ops, annotations and runtime calls by name."""
        return torch_ops.frame(self.activity)

    def torch_ops_by(self, key: str) -> pd.DataFrame:
        """The same, apart by another key too."""
        return self.torch_ops if key == "op" else self.kept(f"torch ops by {key}", partial(torch_ops.frame, self.activity, key))

    @Kept
    def torch_modules(self) -> pd.DataFrame:
        """The tree of modules."""
        return torch_ops.modules(self.activity)
