"""The largest batch of a compiled program that is sure to fit, from its arguments and its peak.

Nothing in a program says which dimension is the batch. It is the first dimension of the arguments
that have it in common, where the names of the arguments leave no other choice. The bound is for
integer multiples of the batch that was compiled: padding to tiles makes no multiple of a batch
larger than the same multiple of its memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nbprof.core.errors import ReadError
from nbprof.display import wording
from nbprof.hlo.buffers import Assignment
from nbprof.hlo.hlo import Computation, Program
from nbprof.hlo.shapes import Shape

_PARAMETER_NUMBER, _TUPLE_INDEX = 9, 13
_UNNAMED = re.compile(r"(?:args?|arg_tuple|p|param|parameter|Arg_)?[\d.]*\Z")
_SAME_VALUE = frozenset(
    ("bitcast", "copy", "copy-start", "copy-done", "reshape", "transpose", "convert")
)
_READS_PARTS = frozenset(("dynamic-slice", "gather", "dynamic-update-slice", "scatter"))
_KEYS = ("u32[2]", "u32[4]")
"""Random keys of JAX."""


class LargestBatch(NamedTuple):
    """The largest batch of a program.

    Attributes
    ----------
    size : int, optional
        The batch that was compiled; None if it is unknown.
    largest : int, optional
        The largest multiple of it that is sure to fit.
    note : str
        What is assumed, or the reason why there is none.
    """

    size: int | None
    largest: int | None
    note: str


class _Argument(NamedTuple):
    """An argument of the entry computation; `group` is the argument of the function it is of, ""
    if it has no name.
    """

    instruction: int
    name: str
    group: str
    shape: Shape
    bytes: int
    is_replaced: bool

    @property
    def first(self) -> int:
        return self.shape.dimensions[0]


class _UnknownBatchError(Exception):
    """The reason why a batch is unknown."""


def largest_batch(
    program: Program, assignment: Assignment, peak: int, capacity: int
) -> LargestBatch:
    """The largest batch that is sure to fit into the memory of a device.

    Parameters
    ----------
    program : Program
    assignment : Assignment
        Its buffer assignment.
    peak, capacity : int
        Bytes of the program at its peak, and of a device.
    """
    arguments = list(_arguments(program, assignment))
    try:
        batch = _batch(arguments)
        parts = [each for each in batch if _reads_parts(program, each.instruction)]
        if parts:
            raise _UnknownBatchError(
                f"`{parts[0].name}` is read in parts: it may be more than a batch."
            )
        size = batch[0].first
        if _grows_faster(program, size, batch):
            raise _UnknownBatchError(
                f"An array in the program has several dimensions of the batch's size, {size:,}: it"
                " may grow with the square of the batch."
            )
    except _UnknownBatchError as reason:
        return LargestBatch(None, None, str(reason))
    except ReadError as error:
        return LargestBatch(None, None, f"The program is damaged: {error}.")
    fixed = sum(each.bytes for each in arguments if size not in each.shape.dimensions)
    times = (capacity - fixed) // max(peak - fixed, 1)
    if times < 1:
        return LargestBatch(size, None, f"The batch of {size:,} does not fit itself.")
    groups = sorted({each.group or each.name for each in batch})
    names = ", ".join(f"`{name}`" for name in groups)
    return LargestBatch(
        size,
        times * size,
        f"If {size:,}, the first dimension of {names}, is the batch of a device: arguments without"
        f" a dimension of that size ({wording.size(fixed)}) stay as they are, all else at the peak"
        " grows in proportion, and nothing else is in the device's memory. A larger one may fit.",
    )


def _arguments(program: Program, assignment: Assignment) -> Iterator[_Argument]:
    """The arrays that are arguments of a program, without scalars and random keys."""
    plan = assignment.allocations
    sizes: dict[int, int] = {}
    replaced: set[int] = set()
    for number, size, is_live_out in zip(
        plan.parameter.tolist(), plan.size.tolist(), plan.live_out.tolist(), strict=True
    ):
        sizes[number] = size
        if is_live_out:
            replaced.add(number)
    entry = program.computation(program.entry_ident)
    numbers = {
        program.number_of(index, _PARAMETER_NUMBER): index
        for index in _indices(entry, program, "parameter")
    }
    for number, index in sorted(numbers.items()):
        shape = program.shape(index)
        is_key = f"{shape.element}{list(shape.dimensions)}".replace(" ", "") in _KEYS
        if not shape.dimensions or not shape.elements or is_key:
            continue
        instruction = program.instruction(index)
        # As JAX writes the path of an argument: params['dense']['kernel'], state.params[0].
        path = instruction.op_name.replace("\\'", "'")
        group = re.split(r"[.\[]", path, maxsplit=1)[0]
        if _UNNAMED.match(group):
            group = ""
        yield _Argument(
            index,
            path or instruction.name,
            group,
            shape,
            sizes.get(number, shape.padded_bytes),
            number in replaced,
        )


def _batch(arguments: Sequence[_Argument]) -> list[_Argument]:
    """The arguments that are the batch.

    Raises
    ------
    _UnknownBatchError
        None are, or several may be.
    """
    groups: dict[str, list[_Argument]] = {}
    for each in arguments:
        groups.setdefault(each.group or each.name, []).append(each)
    candidates = [group for group in groups.values() if _is_candidate(group)]
    if not candidates:
        raise _UnknownBatchError("The program has no argument that could be a batch.")
    sizes = {group[0].first: group[0] for group in candidates}
    if len(sizes) > 1:
        first, second = list(sizes.values())[:2]
        raise _UnknownBatchError(
            f"The first dimensions of several arguments may be the batch: {first.first:,} of"
            f" `{first.name}`, {second.first:,} of `{second.name}`."
        )
    if len(candidates) == len(groups):
        raise _UnknownBatchError("Nothing tells a batch from the other arguments of the program.")
    size = next(iter(sizes))
    if size < 2:
        raise _UnknownBatchError(
            "The first dimension of the arguments is 1, which need not be the batch."
        )
    return [each for group in candidates for each in group]


def _is_candidate(group: Sequence[_Argument]) -> bool:
    """True if all arrays have the same first dimension, and are no state, which the program
    replaces by its result.
    """
    firsts = {each.first for each in group}
    return len(firsts) == 1 and not all(each.is_replaced for each in group)


def _grows_faster(program: Program, size: int, batch: Sequence[_Argument]) -> bool:
    """True if an array has more dimensions of a size than the batch itself."""
    most = max(each.shape.dimensions.count(size) for each in batch)
    shapes = {program.shape(index) for index in range(len(program))}
    return any(shape.dimensions.count(size) > most for shape in shapes)


def _indices(computation: Computation | None, program: Program, opcode: str) -> list[int]:
    """The instructions of a computation that have an opcode."""
    if computation is None:
        return []
    indices = range(computation.first, computation.first + computation.count)
    return [index for index in indices if program.opcodes[index] == opcode]


def _reads_parts(program: Program, argument: int) -> bool:
    """True if an instruction reads a part of a value that is computed as the program runs, as loops
    over batches do.
    """
    users = _users(program)
    pending, seen = [argument], {argument}
    while pending:
        value = pending.pop()
        for user, position in users.get(value, ()):
            opcode = program.opcodes[user]
            if opcode in _READS_PARTS and position == 0:
                return True
            following: list[int] = []
            if opcode in _SAME_VALUE:
                following = [user]
            elif opcode in ("fusion", "call"):
                following = _inside(program, user, position)
            elif opcode == "tuple":
                following = _through_loops(program, users, user, position)
            pending += [each for each in following if each not in seen]
            seen.update(following)
    return False


def _users(program: Program) -> dict[int, list[tuple[int, int]]]:
    """By instruction, those that have it as an operand, and as which."""
    users: dict[int, list[tuple[int, int]]] = {}
    for index in range(len(program)):
        for position, operand in enumerate(program.operands(index)):
            users.setdefault(operand, []).append((index, position))
    return users


def _inside(program: Program, caller: int, position: int) -> list[int]:
    """The parameters that have an operand's value in the computations that are called."""
    return [
        index
        for ident in program.called(caller)
        for index in _indices(program.computation(ident), program, "parameter")
        if program.number_of(index, _PARAMETER_NUMBER) == position
    ]


def _through_loops(
    program: Program, users: dict[int, list[tuple[int, int]]], packed: int, position: int
) -> list[int]:
    """The instructions in loops that take a value out of the tuple that they begin with."""
    elements: list[int] = []
    for loop, _ in users.get(packed, ()):
        if program.opcodes[loop] != "while":
            continue
        for parameter in _inside(program, loop, 0):
            elements += [
                user
                for user, _ in users.get(parameter, ())
                if program.opcodes[user] == "get-tuple-element"
                and program.number_of(user, _TUPLE_INDEX) == position
            ]
    return elements
