"""Categories of ops of compiled programs, as XLA names them: "loop fusion", "data formatting"."""

from __future__ import annotations

import re

from nbprof.core.errors import ReadError
from nbprof.hlo import details as hlo_details
from nbprof.hlo.cost_table import ELEMENTWISE
from nbprof.hlo.hlo import Program

_FORMATTING = frozenset({"copy", "transpose", "reshape", "dynamic-reshape"})
_ALSO_ELEMENTWISE = frozenset({"map", "rng"})


CALLS_PYTHON = re.compile(r"python.*callback")
"""Matches the target of custom calls that call back into Python on the host."""


def category(program: Program, index: int) -> str:
    """The category of an instruction, as TPUs state it and as XProf computes it for GPUs.

    Most opcodes are a category of their own, as is a convolution whose window is damaged.
    `tests/parity/test_hlo.py` compares each with XProf.
    """
    opcode = program.opcodes[index]
    if opcode == "fusion":
        kind = program.fusion_kinds[index]
        return f"{kind[1:].lower()} fusion" if kind[:1] == "k" else opcode
    if opcode in _FORMATTING:
        return "data formatting"
    if opcode in ELEMENTWISE or opcode in _ALSO_ELEMENTWISE:
        return "non-fusion elementwise"
    if opcode == "convolution":
        try:
            window = hlo_details.read(program, index).window
        except ReadError:
            return opcode
        if any(dimension.base_dilation > 1 for dimension in window):
            opcode += " base-dilated"
        if any(dimension.window_dilation > 1 for dimension in window):
            opcode += " window-dilated"
    return opcode
