"""Layers that a Python loop wrote out in a compiled program, because tracing unrolls loops.

Only products are examined: every layer has one, and they keep the line of the code that made them.
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
# Names that JAX gives to the backward pass and to the body of a loop that was not unrolled.
_NOT_FORWARD = ("transpose(", "while")
_LEAST = 8
"""Fewer equal products are not followed."""


@dataclass(frozen=True)
class Unrolled:
    """A chain of equal products, each of which reads the result of the one before.

    Attributes
    ----------
    program : str
    instructions : int
        Of the entire program.
    times : int
        Number of products of the longest chain.
    shape : str
        Of each result.
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
    """The longest chain of products of the most frequent kind; None if there are few.

    Raises ReadError if the program is damaged.
    """
    kinds = _kinds_of_products(program)
    if not kinds:
        return None
    kind, count = Counter(kinds.values()).most_common(1)[0]
    if count < _LEAST:
        return None
    products = {index for index, other in kinds.items() if other == kind}
    first = min(products)
    instruction = program.instruction(first)
    file = instruction.source_file.replace("\\", "/").rpartition("/")[2]
    return Unrolled(
        program=program.name,
        instructions=len(program),
        times=_longest_chain(program, products),
        shape=next((array.short for array in program.shape(first).arrays()), ""),
        source=f"{file}:{instruction.source_line}",
    )


def _kinds_of_products(program: Program) -> dict[int, Hashable]:
    """Forward products by instruction; equal kinds have the same line of code and shapes."""
    kinds: dict[int, Hashable] = {}
    for index, opcode in enumerate(program.opcodes):
        if opcode not in _OPCODES:
            continue
        instruction = program.instruction(index)
        if not _is_forward_product(instruction):
            continue
        operands = [operand for operand in program.operands(index) if operand >= 0]
        kinds[index] = (
            instruction.source_file,
            instruction.source_line,
            program.shape(index).short,
            tuple(program.shape(operand).dimensions for operand in operands),
        )
    return kinds


def _is_forward_product(instruction: Instruction) -> bool:
    primitive = instruction.op_name.rpartition("/")[2]
    return (
        primitive in _PRODUCTS
        and bool(instruction.source_file and instruction.source_line)
        and not any(part in instruction.op_name for part in _NOT_FORWARD)
    )


def _longest_chain(program: Program, products: set[int]) -> int:
    """The most of these instructions on one path through a computation and those that it calls."""
    longest_in: dict[int, int] = {}
    longest = 0
    depth = [0] * len(program)
    # In the file a computation follows those that it calls, and an instruction its operands;
    # otherwise the path is truncated.
    for computation in program.computations:
        deepest = 0
        for index in range(computation.first, computation.first + computation.count):
            depth[index] = (index in products) + _longest_in_call(program, index, longest_in)
            earlier = [
                depth[operand]
                for operand in program.operands(index)
                if computation.first <= operand < index
            ]
            depth[index] += max(earlier, default=0)
            deepest = max(deepest, depth[index])
        longest_in[computation.ident] = deepest
        longest = max(longest, deepest)
    return longest


def _longest_in_call(program: Program, index: int, longest_in: Mapping[int, int]) -> int:
    """The longest chain of the computations that an instruction calls once; loops and branches do
    not count.
    """
    if program.opcodes[index] not in ("fusion", "call"):
        return 0
    return max((longest_in.get(ident, 0) for ident in program.called(index)), default=0)
