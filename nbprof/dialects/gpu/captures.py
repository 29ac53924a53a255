"""The calls that were captured into graphs, and where each comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nbprof.core.trace import Int64s


class Origin(NamedTuple):
    """Where a call comes from: op, nn.Module, line of code, and the ATen ops of a compiled kernel;
    empty texts for what is not known.
    """

    op: str = ""
    module: str = ""
    line: str = ""
    aten_ops: str = ""


@dataclass
class Capture:
    """The calls that one capture took, in order.

    Attributes
    ----------
    kinds : list of int
        KERNEL, COPY or FILL.
    kernels : list of str
        The kernel of each, where the call or the op says so.
    origins : list of Origin
        Of a capture of another trace.
    host, end_ps : int
        Of one of the same trace: index of the host, and when it ended.
    calls : int64[n]
        The events.
    """

    kinds: list[int]
    kernels: list[str]
    origins: list[Origin] = field(default_factory=list)
    host: int = -1
    end_ps: int = 0
    calls: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))

    def fits(self, kinds: list[int], kernels: list[str]) -> bool:
        """Whether nodes of these kinds and kernels can be what was captured."""
        return self.kinds == kinds and all(
            not said or said == name for said, name in zip(self.kernels, kernels, strict=True)
        )


Originate = Callable[[Any, Int64s], list[Origin]]
"""Finds where some calls of `Links` come from."""
