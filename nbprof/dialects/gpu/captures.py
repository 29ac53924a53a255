"""The calls that were captured into graphs, and the origin of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nbprof.core.trace import Int64s


class Origin(NamedTuple):
    """Op, nn.Module, line of code and ATen ops (of a compiled kernel) of a call; "" if unknown."""

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
        The kernel of each, if the call or the op states it.
    origins : list of Origin
        Set for a capture of another trace.
    host, end_ps : int
        Set for a capture of the same trace: index of the host, and its end.
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
        """True if nodes of these kinds and kernels can be the captured calls."""
        if self.kinds != kinds:
            return False
        for recorded, name in zip(self.kernels, kernels, strict=True):
            if recorded not in ("", name):
                return False
        return True


Originate = Callable[[Any, Int64s], list[Origin]]
"""Finds the origins of some calls of `Links`."""
