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
    times = measured.groupby(["host", "program"], sort=False, as_index=False)["own"].sum()
    longest = times.iloc[int(times["own"].to_numpy().argmax())]
    program: Program | None = activity.programs.program(
        int(longest["host"]), int(longest["program"])
    )
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
    for index, opcode in enumerate(program.opcodes):
        instruction = program.instruction(index) if opcode in _OPCODES else None
        if instruction is not None and _is_forward_product(instruction):
            shapes = [program.shape(operand) for operand in program.operands(index) if operand >= 0]
            kinds[index] = (
                instruction.source_file,
                instruction.source_line,
                program.shape(index).short,
                tuple(shape.dimensions for shape in shapes),
            )
    if not kinds:
        return None
    kind, count = Counter(kinds.values()).most_common(1)[0]
    if count < _LEAST:
        return None
    chain = {index for index, product_kind in kinds.items() if product_kind == kind}
    instruction = program.instruction(min(chain))
    source = f"{instruction.source_file.replace(chr(92), '/').rpartition('/')[2]}:{instruction.source_line}"
    shape = next((part.short for part in program.shape(min(chain)).arrays()), "")
    return Unrolled(
        program=program.name,
        instructions=len(program),
        times=_longest(program, chain),
        shape=shape,
        source=source,
    )


def _is_forward_product(instruction: Instruction) -> bool:
    primitive = instruction.op_name.rpartition("/")[2]
    return (
        primitive in _PRODUCTS
        and bool(instruction.source_file and instruction.source_line)
        and not any(part in instruction.op_name for part in _NOT_FORWARD)
    )


def _longest(program: Program, products: set[int]) -> int:
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
        for index in range(computation.first, computation.first + computation.count):
            before = max(
                (
                    depth[operand]
                    for operand in program.operands(index)
                    if computation.first <= operand < index
                ),
                default=0,
            )
            depth[index] = before + (index in products) + _called(program, index, within)
            deepest = max(deepest, depth[index])
        within[computation.ident] = deepest
        longest = max(longest, deepest)
    return longest


def _called(program: Program, index: int, within: Mapping[int, int]) -> int:
    """What an instruction adds by the computation that it calls once; a loop or a branch is another
    matter.
    """
    if program.opcodes[index] not in ("fusion", "call"):
        return 0
    return max((within.get(ident, 0) for ident in program.called(index)), default=0)
