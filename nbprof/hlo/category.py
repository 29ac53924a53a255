"""What kind of work an op of a compiled program is, in XLA's words: "loop fusion", "non-fusion
elementwise", "data formatting".
"""

from __future__ import annotations

import re

from nbprof.core.errors import ReadError
from nbprof.hlo import details as hlo_details
from nbprof.hlo.cost_table import ELEMENTWISE
from nbprof.hlo.hlo import Program

_FORMATTING = frozenset({"copy", "transpose", "reshape", "dynamic-reshape"})
_ALSO_ELEMENTWISE = frozenset({"map", "rng"})


CALLS_PYTHON = re.compile(r"python.*callback")
"""In the target of a custom call: it calls back into Python, on the host."""


def category(program: Program, index: int) -> str:
    """The category of the instruction at a place of the file, as TPUs state it and as XProf finds
    it for GPUs.

    Most opcodes are one of their own, also of a convolution whose window is damaged.
    `tests/parity/test_hlo.py` asks XProf about each.
    """
    opcode = program.opcodes[index]
    if opcode == "fusion" and (kind := program.fusion_kinds[index])[:1] == "k":
        return f"{kind[1:].lower()} fusion"
    if opcode in _FORMATTING:
        return "data formatting"
    if opcode in ELEMENTWISE or opcode in _ALSO_ELEMENTWISE:
        return "non-fusion elementwise"
    if opcode == "convolution":
        try:
            window = hlo_details.read(program, index).window
        except ReadError:
            return opcode
        dilated = (
            (" base-dilated", any(d.base_dilation > 1 for d in window)),
            (" window-dilated", any(d.window_dilation > 1 for d in window)),
        )
        return opcode + "".join(text for text, is_so in dilated if is_so)
    return opcode
