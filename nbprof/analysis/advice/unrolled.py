"""Whether a compiled program has the same layer many times over, each fed by the one before: a
Python loop that tracing unrolled.

Only products are looked at, as every layer has one, and as they keep the line of the code that made
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from nbprof.activity.activity import Activity
from nbprof.analysis import hlo
from nbprof.core.errors import ReadError
from nbprof.frameworks.register import JAX
from nbprof.hlo.hlo import Instruction, Program

_PRODUCTS = ("dot_general", "conv_general_dilated")
_OPCODES = ("dot", "convolution", "custom-call")
# What JAX names the backward pass and the body of a loop that was not unrolled.
_NOT_FORWARD = ("transpose(", "while")
_LEAST = 8
"""Fewer products alike are not followed."""


@dataclass(frozen=True)
class Unrolled:
    """Products alike, each of which needs what the one before it gave.

    Attributes
    ----------
    program : str
    instructions : int
        Of the whole program.
    times : int
        How many products the longest such chain has.
    shape : str
        Of what each gives.
    source : str
        The line that made them: `model.py:12`.
    """

    program: str
    instructions: int
    times: int
    shape: str
    source: str


def find(activity: Activity) -> Unrolled | None:
    """The longest chain in the program that ran longest; None if it has none, or if its
    instructions are not in the file.

    Parameters
    ----------
    activity : Activity
    """
    if activity.framework is not JAX or activity.programs is None:
        return None
    measured, _ = hlo.measured(activity)
    if not len(measured):
        return None
    own = measured.groupby(["host", "program"], sort=False, as_index=False)["own"].sum()
    most = own.iloc[int(own["own"].to_numpy().argmax())]
    program: Program | None = activity.programs.program(int(most["host"]), int(most["program"]))
    if program is None:
        return None
    try:
        return in_program(program)
    except ReadError:
        return None


def in_program(program: Program) -> Unrolled | None:
    """The longest chain of products of the most frequent kind; None with few of them. Raises
    ReadError where the program is damaged.
    """
    kinds: dict[int, Hashable] = {}
    for place, opcode in enumerate(program.opcodes):
        one = program.instruction(place) if opcode in _OPCODES else None
        if one is not None and _is_forward_product(one):
            shapes = [program.shape(at) for at in program.operands(place) if at >= 0]
            kinds[place] = (
                one.source_file,
                one.source_line,
                program.shape(place).short,
                tuple(shape.dimensions for shape in shapes),
            )
    if not kinds:
        return None
    kind, count = Counter(kinds.values()).most_common(1)[0]
    if count < _LEAST:
        return None
    mine = {place for place, each in kinds.items() if each == kind}
    one = program.instruction(min(mine))
    source = f"{one.source_file.replace(chr(92), '/').rpartition('/')[2]}:{one.source_line}"
    shape = next((part.short for part in program.shape(min(mine)).arrays()), "")
    return Unrolled(
        program=program.name,
        instructions=len(program),
        times=_longest(program, mine),
        shape=shape,
        source=source,
    )


def _is_forward_product(one: Instruction) -> bool:
    primitive = one.op_name.rpartition("/")[2]
    return (
        primitive in _PRODUCTS
        and bool(one.source_file and one.source_line)
        and not any(part in one.op_name for part in _NOT_FORWARD)
    )


def _longest(program: Program, mine: set[int]) -> int:
    """The most of these instructions that lie on one path through a computation and those that it
    calls.
    """
    within: dict[int, int] = {}
    longest = 0
    depth = [0] * len(program)
    # In the file a computation stands after those that it calls, and an instruction after its
    # operands; where not, the path is cut.
    for computation in program.computations:
        deepest = 0
        for place in range(computation.first, computation.first + computation.count):
            before = max(
                (depth[at] for at in program.operands(place) if computation.first <= at < place),
                default=0,
            )
            depth[place] = before + (place in mine) + _called(program, place, within)
            deepest = max(deepest, depth[place])
        within[computation.ident] = deepest
        longest = max(longest, deepest)
    return longest


def _called(program: Program, place: int, within: Mapping[int, int]) -> int:
    """What an instruction adds by the computation that it calls once; a loop or a branch is another
    matter.
    """
    if program.opcodes[place] not in ("fusion", "call"):
        return 0
    return max((within.get(ident, 0) for ident in program.called(place)), default=0)
