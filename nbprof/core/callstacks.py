"""Call stacks as codes: two events with the same chain of calls around them have the same code."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core import nesting
from nbprof.core.trace import Int32s, Int64s

MODULE = "nn.Module: "
"""Prefix of the name of a module call, followed by the name of its class and the number of the
instance.
"""
BETWEEN = ", "
"""Separator of several lines of code, or of several modules."""
_RETURNS = "\n"
_FRAME = re.compile(r"(.*)\((\d+)\): ")
_LIBRARIES = frozenset(
    (
        "torch",
        "torchgen",
        "functorch",
        "triton",
        "nbprof",
        "IPython",
        "ipykernel",
        "traitlets",
        "tornado",
        "zmq",
    )
)
_WITHIN = re.compile(r".*[/\\](?:site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\]")
_GENERATED = re.compile(
    r"<(?!ipython)|.*torchinductor_|.*[/\\]torch_compile_debug[/\\]|(?:.*[/\\])?c[a-z2-7]{51}\.py\Z"
)


def own_line(frame: str) -> str:
    """`train.py:12` for `train.py(12): step`; empty unless it is code of the user.

    Code of notebooks, PyTorch and Python itself and generated code is not. Profilers omit the
    folders that modules are imported from.
    """
    match = _FRAME.match(frame)
    if match is None or _GENERATED.match(match[1]):
        return ""
    library_folder = _WITHIN.match(match[1])
    path = match[1][library_folder.end() :] if library_folder else match[1]
    top = re.split(r"[/\\]", path, maxsplit=1)[0].removesuffix(".py")
    if top in _LIBRARIES or top in sys.stdlib_module_names:
        return ""
    return f"{match[1]}:{match[2]}"


@dataclass
class Stacks:
    """Chains of calls.

    Attributes
    ----------
    above : int32[k]
        Code of the chain without its innermost call, -1.
    frame : object[k]
        The innermost call.
    """

    above: Int32s
    frame: npt.NDArray[np.object_]

    @classmethod
    def of_texts(cls, texts: list[str]) -> Stacks:
        """Stacks given as texts, innermost call first, separated by `;`."""
        joined: npt.NDArray[np.object_] = np.empty(len(texts), object)
        joined[:] = [text.replace(";", _RETURNS).strip() for text in texts]
        return cls(np.full(len(texts), -1, np.int32), joined)

    def text(self, code: int) -> str:
        """One call a line, innermost first; empty for -1."""
        lines = []
        while code >= 0:
            lines.append(str(self.frame[code]))
            code = int(self.above[code])
        return _RETURNS.join(lines)

    @cached_property
    def is_module(self) -> npt.NDArray[np.bool_]:
        """bool[k]: the innermost call is that of a module."""
        return np.fromiter(
            (str(name).startswith(MODULE) for name in self.frame), np.bool_, len(self.frame)
        )

    @cached_property
    def module(self) -> Int32s:
        """int32[k]: code of the innermost chain that ends in a call of a module, -1."""
        module = np.where(self.is_module, np.arange(len(self.frame)), -1).astype(np.int32)
        for level in nesting.levels(self.above)[1:]:
            inherit = level[module[level] < 0]
            module[inherit] = module[self.above[inherit]]
        return module

    @cached_property
    def path(self) -> npt.NDArray[np.object_]:
        """object[k]: modules of each chain, outermost first: `Net_0/Linear_1`; empty if none."""
        path = np.full(len(self.frame), "", object)
        for code in np.flatnonzero(self.is_module).tolist():
            # Codes ascend from the outside to the inside: the path above is known already.
            above = int(self.above[code])
            around = path[self.module[above]] if above >= 0 and self.module[above] >= 0 else ""
            name = str(self.frame[code]).removeprefix(MODULE)
            path[code] = f"{around}/{name}" if around else name
        return np.append(path, "")[self.module]

    @cached_property
    def line(self) -> npt.NDArray[np.object_]:
        """object[k]: the innermost line of the user's code in each chain; empty if none."""
        frame, frames = pd.factorize(self.frame)
        lines = np.array([*map(_innermost_own_line, frames.tolist()), ""], object)
        line_code = np.where(lines[frame] != "", frame, -1).astype(np.int64)
        for level in nesting.levels(self.above)[1:]:
            inherit = level[line_code[level] < 0]
            line_code[inherit] = line_code[self.above[inherit]]
        return lines[line_code]

    def paths(self, codes: Int32s) -> npt.NDArray[np.object_]:
        """The modules of some chains; empty for -1."""
        return np.append(self.path, "")[codes]


def _innermost_own_line(frame: object) -> str:
    for line in map(own_line, str(frame).split(_RETURNS)):
        if line:
            return line
    return ""


def chains(parent: Int32s, name: Int32s, names: npt.NDArray[np.object_]) -> tuple[Int32s, Stacks]:
    """The chain of each call, as a code, and the chains.

    Parameters
    ----------
    parent : int32[n]
        The call around each, -1.
    name : int32[n]
        Codes into `names`.
    """
    chain = np.full(len(parent), -1, np.int32)
    above: list[Int32s] = []
    frame: list[Int64s] = []
    total = 0
    for level in nesting.levels(parent):
        around = np.where(parent[level] >= 0, chain[parent[level]], -1).astype(np.int64)
        key = (around + 1) * (len(names) + 1) + name[level]
        code, distinct = pd.factorize(key)
        chain[level] = total + code
        above.append((distinct // (len(names) + 1) - 1).astype(np.int32))
        frame.append(distinct % (len(names) + 1))
        total += len(distinct)
    if not above:
        return chain, Stacks(np.zeros(0, np.int32), np.zeros(0, object))
    return chain, Stacks(np.concatenate(above), names[np.concatenate(frame)])
