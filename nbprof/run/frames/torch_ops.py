"""PyTorch's ops by name, shapes, stack, module and line."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.analysis.ops import torch_ops as torch_analysis
from nbprof.core.cells import readable
from nbprof.run.combine import by
from nbprof.run.frame import Phase, frame
from nbprof.run.frames.recording import Recording


class TorchOpFrames(Recording):
    """Ops of PyTorch, grouped in several ways."""

    @frame(combine=by(torch_analysis.added), phase=Phase.REST)
    def torch_ops(self) -> pd.DataFrame:
        """Ops, annotations and runtime calls by name."""
        return torch_analysis.frame(self.activity)

    @frame(combine=by(torch_analysis.added), phase=Phase.REST)
    def torch_ops_by_shapes(self) -> pd.DataFrame:
        """The same, also grouped by the shapes of inputs."""
        return torch_analysis.frame(self.activity, "shapes")

    @frame(combine=by(torch_analysis.added), phase=Phase.REST)
    def torch_ops_by_stack(self) -> pd.DataFrame:
        """The same, also grouped by call stack, as recorded."""
        return torch_analysis.frame(self.activity, "stack")

    @frame(combine=by(torch_analysis.added), phase=Phase.REST)
    def torch_ops_by_module(self) -> pd.DataFrame:
        """The same, also grouped by module."""
        return torch_analysis.frame(self.activity, "module")

    @frame(combine=by(torch_analysis.added), phase=Phase.REST)
    def torch_ops_by_source(self) -> pd.DataFrame:
        """PyTorch's ops by the lines of code that called them."""
        return torch_analysis.frame(self.activity, "source")

    def torch_ops_by(self, key: str) -> pd.DataFrame:
        """The same, also grouped by another key."""
        if key == "op":
            return self.torch_ops
        frame: pd.DataFrame = getattr(self, f"torch_ops_by_{key}")
        if key != "stack" or not len(frame):
            return frame
        stacks: list[Any] = [self._readable(stack) for stack in frame["call_stack"].tolist()]
        return frame.assign(call_stack=stacks)

    def _readable(self, stack: str | None) -> str | None:
        return None if stack is None else readable(stack, self.cells)

    @frame(combine=by(torch_analysis.added_modules), phase=Phase.REST)
    def torch_modules(self) -> pd.DataFrame:
        """The tree of modules."""
        return torch_analysis.modules(self.activity)
