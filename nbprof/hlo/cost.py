"""Floating-point operations and bytes of an op of a compiled program, counted from its code.

GPUs measure neither, so profilers count the operations of an op, and the bytes that it reads and
writes if nothing is in a cache. The rules are those of XLA's cost analysis for GPUs, as XProf 2.24
uses it (`tests/parity/test_hlo_cost.py` compares each op with it). An elementwise op counts with
its cost relative to a fused multiply-add: 3 per element for an addition, 190 for a float32 tanh.

Differences: matrix products by the older interface of cuBLAS (`__cublas$gemm`), attention of cuDNN,
and kernels of Pallas with a stated cost have their FLOPs and bytes here, 0 in XProf. Custom calls
with unknown effects are NaN here (`nbprof.hlo.library_calls`), 0 in XProf. For convolutions of
cuDNN for gradients, XProf takes the operands for input and kernel, which they are not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil, gcd, log2, prod
from typing import NamedTuple

import numpy as np

from nbprof.core.errors import ReadError
from nbprof.hlo import details as hlo_details
from nbprof.hlo import library_calls
from nbprof.hlo.cost_table import DEFAULT, ELEMENTWISE, FLOPS, MOVING, NOTHING
from nbprof.hlo.details import ConvolutionDimensions, Details, DotDimensions, WindowDimension
from nbprof.hlo.hlo import Instruction, Program
from nbprof.hlo.shapes import Shape

_PASSED_ON = ELEMENTWISE | {"copy", "tuple", "get-tuple-element", "map"}
"""Ops that are evaluated where their value is used; shared operands of these count once."""
_OLDER_CUBLAS = "__cublas$gemm"
_NEWER_CUBLAS = "__cublas$lt$matmul"
_CUBLAS = (_OLDER_CUBLAS, _NEWER_CUBLAS)
_CUDNN = "__cudnn$conv"
_OF_INPUT, _OF_FILTER = "__cudnn$convBackwardInput", "__cudnn$convBackwardFilter"
_GRADIENTS = (_OF_INPUT, _OF_FILTER)
_IN_XPROF = (_NEWER_CUBLAS, _CUDNN)
_FMA = 2
_NARROW = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "s2": 4, "u2": 4, "pred": 0}
_MOST_NESTED = 50
_COUNTED = {"dynamic-slice": 2, "dynamic-update-slice": 3}
"""Number of operands that count as moved: of the start indices of a slice, only the first."""
_APPLYING = frozenset(("reduce", "map", "scatter", "reduce-window", "select-and-scatter"))
"""Ops that apply a computation to elements."""
_LONG_CONCATENATION = 400
"""Operations per element if operands are joined along a dimension other than the first."""


@dataclass(frozen=True)
class Cost:
    """The cost of one run of an op.

    Attributes
    ----------
    flops : float
        Operations on floats and integers; NaN if unknown, as for most custom calls.
    normalized_flops : float
        The same, with 8-bit operations as half and 4-bit ones as a quarter, so that one peak rate
        applies to all.
    bytes : float
        Bytes read and written; NaN if unknown.
    memory_bytes : float
        The bytes that XProf counts for the device's main memory: without tuples that ops other than
        fusions write.
    in_xprof : bool
        XProf counts it.
    xprof_flops : float
        The FLOPs in XProf.
    """

    flops: float = 0.0
    normalized_flops: float = 0.0
    bytes: float = 0.0
    memory_bytes: float = 0.0
    in_xprof: bool = True
    xprof_flops: float = 0.0


@dataclass
class _Run:
    """One run of an instruction: its cost, and the share of each operand that it reads."""

    flops: float
    bytes: float
    memory: float
    share: dict[int, float]


_NO_RUN = _Run(0.0, 0.0, 0.0, {})
_UNKNOWN = _Run(float("nan"), float("nan"), float("nan"), {})


class Costs:
    """The costs of a program's ops, each counted when it is first needed.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._runs: dict[int, _Run] = {}
        self._sums: dict[int, tuple[float, float]] = {}
        # By opcode and ids of shapes: a program has few different shapes, and one object for each.
        self._alike: dict[tuple[object, ...], _Run] = {}
        self._sizes: dict[int, int] = {}
        self._widths: dict[int, int] = {}
        self._depth = 0

    def of_name(self, name: str) -> Cost | None:
        """The cost of one run of an op; None if the op is unknown, damaged or has unknown types."""
        index = self._program.index_of_name(name)
        return None if index is None else self.of_instruction(index)

    def of_instruction(self, index: int) -> Cost | None:
        """The cost of one run of the instruction at an index; None as in `of_name`."""
        in_xprof = True
        try:
            run, factor = self._run(index), self._width_factor(index)
            xprof_flops = run.flops
            if self._program.opcodes[index] == "custom-call":
                target = self._program.instruction(index).target
                in_xprof = target.startswith(_IN_XPROF)
                if target.startswith(_GRADIENTS):
                    xprof_flops = self._xprof_convolution(index)
        except (ReadError, IndexError):
            return None
        return Cost(run.flops, run.flops / factor, run.bytes, run.memory, in_xprof, xprof_flops)

    def _xprof_convolution(self, index: int) -> float:
        """XProf's FLOPs of a convolution for a gradient, with its operands as input and kernel."""
        output, operands = _main_part(self._program.shape(index)), self._operands(index)
        return convolution_flops(
            operands[0], operands[1], output, hlo_details.read(self._program, index)
        )

    def _width_factor(self, index: int) -> int:
        """Speed of the device with narrow operands, relative to 16 bits and more."""
        if self._program.opcodes[index] == "custom-call":
            return 1
        widest = max(map(self._widest, self._operands(index)), default=0)
        if not widest:
            return 1
        return 16 // widest

    def _widest(self, shape: Shape) -> int:
        key = id(shape)
        if key not in self._widths:
            self._widths[key] = max(map(_width, shape.arrays()), default=0)
        return self._widths[key]

    def _operands(self, index: int) -> list[Shape]:
        shape = self._program.shape
        return [shape(operand) for operand in self._program.operands(index) if operand >= 0]

    def _size(self, shape: Shape) -> int:
        key = id(shape)
        if key not in self._sizes:
            self._sizes[key] = size(shape)
        return self._sizes[key]

    def _run(self, index: int) -> _Run:
        if index not in self._runs:
            if self._depth > _MOST_NESTED:
                raise ReadError("computations call each other in a circle")
            self._depth += 1
            try:
                self._runs[index] = self._count(index)
            finally:
                self._depth -= 1
        return self._runs[index]

    def _count(self, index: int) -> _Run:
        opcode, result = self._program.opcodes[index], self._program.shape(index)
        operands = self._operands(index)
        if opcode not in ELEMENTWISE:
            return self._other(index, opcode, result, operands)
        key = (opcode, id(result), *map(id, operands))
        if key not in self._alike:
            self._alike[key] = self._other(index, opcode, result, operands)
        return self._alike[key]

    def _other(self, index: int, opcode: str, result: Shape, operands: list[Shape]) -> _Run:
        if opcode == "tuple":
            return _Run(0.0, 8.0 * len(operands), 8.0 * len(operands), {})
        if opcode in NOTHING and opcode != "custom-call":
            return _NO_RUN
        if opcode != "custom-call" and not all(shape.is_known for shape in (result, *operands)):
            raise ReadError("an element type that is newer than this")
        if opcode == "fusion":
            return self._fusion(index, operands)
        instruction = self._program.instruction(index)
        if opcode == "custom-call":
            return self._custom_call(index, instruction, result, operands)
        if opcode in ("while", "call", "conditional"):
            flops, moved = self._called(instruction)
            return _Run(flops, moved, moved, {})
        if opcode == "transpose":
            dimensions = hlo_details.read(self._program, index).dimensions
            if _in_place(result, operands[0], dimensions):
                return _NO_RUN
        written, reads, share = _moved(opcode, result, operands)
        flops = self._flops(index, instruction, result, operands)
        if opcode in _FROM_RANKS:
            moved = _FROM_RANKS[opcode](result, operands)
        elif opcode == "all-reduce-start":
            moved = written
        else:
            moved = written + sum(reads[: _COUNTED.get(opcode)])
        memory = 0.0
        if not result.is_tuple or opcode == "infeed":
            memory = written
        for read, shape in zip(reads, operands, strict=True):
            if not shape.is_tuple:
                memory += read
        return _Run(flops, moved, memory, share)

    def _flops(
        self, index: int, instruction: Instruction, result: Shape, operands: list[Shape]
    ) -> float:
        opcode = instruction.opcode
        if opcode in ELEMENTWISE:
            return result.elements * elementwise(opcode, result.element)
        if opcode in ("all-reduce", "all-reduce-start", "reduce-scatter"):
            return float(
                sum(part.elements * elementwise("add", part.element) for part in result.arrays())
            )
        if opcode == "dot":
            return dot_flops(result, operands[0], hlo_details.read(self._program, index).dot)
        if opcode == "convolution":
            return convolution_flops(
                operands[0], operands[1], result, hlo_details.read(self._program, index)
            )
        if opcode == "concatenate":
            along = hlo_details.read(self._program, index).dimensions
            if along and along[0] > 0:
                return float(result.elements * _LONG_CONCATENATION)
            return float(result.elements * 2 * DEFAULT)
        if opcode == "sort":
            count = max(operands[0].elements, 1)
            return float(count * ceil(log2(count)))
        if opcode == "fft":
            lengths = hlo_details.read(self._program, index).fft_length
            passes = prod(int(log2(n)) for n in lengths if n > 0)
            return float(operands[0].elements * 4 * _FMA * passes)
        if opcode == "cholesky":
            return float(int(operands[0].elements * operands[0].dimensions[-1] / 3))
        if opcode == "triangular-solve":
            return float(operands[1].elements * operands[0].dimensions[-1] * _FMA)
        if opcode in _APPLYING and instruction.called:
            return self._applied_flops(index, instruction, result, operands)
        if opcode not in MOVING:
            raise ReadError(f"an op that is newer than this: {opcode[:40]}")
        return 0.0

    def _applied_flops(
        self, index: int, instruction: Instruction, result: Shape, operands: list[Shape]
    ) -> float:
        """FLOPs of an op that applies a computation to elements."""
        opcode, called = instruction.opcode, instruction.called
        inner = self._sum(called[0])[0]
        first = next(iter(result.arrays()), result)
        if opcode == "reduce":
            return inner * max(operands[0].elements - first.elements, 0)
        if opcode == "map":
            return inner * result.elements
        if opcode == "scatter":
            return inner * operands[-1].elements
        window = prod(dimension.size for dimension in hlo_details.read(self._program, index).window)
        if opcode == "reduce-window":
            return inner * first.elements * max(window - 1, 0)
        return operands[1].elements * (inner * max(window - 1, 0) + self._sum(called[-1])[0])

    def _sum(self, ident: int) -> tuple[float, float]:
        """FLOPs and bytes of the ops of a computation."""
        if ident not in self._sums:
            computation = self._program.computation(ident)
            members = range(0)
            if computation is not None:
                members = range(computation.first, computation.first + computation.count)
            flops = moved = 0.0
            for run in map(self._run, members):
                flops += run.flops
                moved += run.bytes
            self._sums[ident] = flops, moved
        return self._sums[ident]

    def _called(self, instruction: Instruction) -> tuple[float, float]:
        """The cost of one iteration of a loop, of the most expensive branch, or of a call."""
        if not instruction.called:
            return 0.0, 0.0
        sums = np.array(list(map(self._sum, instruction.called)))
        total = sums.sum(axis=0)
        if instruction.opcode == "conditional":
            total = sums.max(axis=0)
        return float(total[0]), float(total[1])

    def _custom_call(
        self, index: int, instruction: Instruction, result: Shape, operands: list[Shape]
    ) -> _Run:
        """A call into a library: what it makes is the first part of its value, the others are room
        to work in.
        """
        output = _main_part(result)
        target = instruction.target
        if target in library_calls.NOTHING:
            return _NO_RUN
        details = hlo_details.read(self._program, index)
        flops = _library_flops(target, details, operands, output)
        if flops is not None:
            reads = float(sum(map(size, operands)))
            memory = reads
            if not result.is_tuple:
                memory += size(output)
            return _Run(flops, size(output) + reads, memory, {})
        flops = library_calls.attention_flops(target, details.backend, operands)
        if flops is not None:
            # Besides what it makes it keeps what the backward pass needs; the last part is room to
            # work in.
            results = result.parts[:-1] if result.is_tuple else (result,)
            moved = float(sum(map(size, (*operands, *results))))
            return _Run(flops, moved, moved, {})
        estimate = library_calls.estimate(details.backend)
        if estimate is None:
            return _UNKNOWN
        return _Run(estimate[0], estimate[1], estimate[1], {})

    def _fusion(self, index: int, operands: list[Shape]) -> _Run:
        """The cost of a fusion: intermediate values stay on the chip, and may be computed again."""
        program = self._program
        called = program.instruction(index).called
        if not called:
            return _NO_RUN
        computation = program.computation(called[0])
        if computation is None:
            return _NO_RUN
        opcodes = program.opcodes
        members = range(computation.first, computation.first + computation.count)
        root = program.index_of_ident(computation.root)
        if root is None or root not in members:
            root = members[-1]
        # Each value is computed once for each use by an op that is evaluated itself.
        users: dict[int, set[int]] = {member: set() for member in members}
        evaluations: dict[int, float] = dict.fromkeys(members, 0.0)
        users[root].add(root)
        evaluations[root] = 1.0
        results = self._results(root)
        flops = 0.0
        read: dict[int, float] = {}
        for member in reversed(members):
            times = sum(map(evaluations.__getitem__, users[member]))
            if not times:
                continue
            opcode = opcodes[member]
            if opcode == "parameter":
                read[hlo_details.parameter(program, member)] = times
                continue
            run = self._run(member)
            flops += times * run.flops
            passed_on = opcode in _PASSED_ON
            for number, operand in enumerate(program.operands(member)):
                if operand not in users:
                    continue
                if passed_on:
                    users[operand] |= users[member]
                    continue
                users[operand].add(operand)
                updated = opcode == "dynamic-update-slice" and member in results and number == 0
                count = sum(part.elements for part in program.shape(operand).arrays())
                # An operand that is updated in place is not read.
                if count and not updated:
                    elements = ceil(times * run.share.get(number, 1.0) * count - 1e-9)
                    evaluations[operand] += elements / count
        moved = float(sum(map(self._written, results)))
        for number, shape in enumerate(operands):
            share = min(read.get(number, 0.0), 1.0)
            moved += round(self._operand_bytes(shape) * share)
        return _Run(flops, moved, moved, {})

    def _operand_bytes(self, shape: Shape) -> int:
        """The bytes of an operand of a fusion; of a tuple, its pointers and its first part."""
        if shape.is_tuple:
            return 8 * len(shape.parts) + sum(map(size, shape.parts[:1]))
        return self._size(shape)

    def _results(self, root: int) -> list[int]:
        """The instructions whose values a fusion returns."""
        if self._program.opcodes[root] != "tuple":
            return [root]
        return [operand for operand in self._program.operands(root) if operand >= 0]

    def _written(self, index: int) -> int:
        if self._program.opcodes[index] == "dynamic-update-slice":
            return self._size(self._operands(index)[1])
        return self._size(self._program.shape(index))


def elementwise(opcode: str, element: str) -> float:
    """Operations per element of an elementwise op, by the type of its result."""
    return FLOPS.get(opcode, {}).get(element, DEFAULT)


def size(shape: Shape) -> int:
    """Bytes of a value, as the cost analysis counts them: without padding, 4 bits as a byte."""
    total = 0
    for part in shape.arrays():
        if part.element_bytes:
            total += ceil(part.elements * max(part.element_bytes, 1.0))
    return total


def _width(shape: Shape) -> int:
    """Bits of an element, as far as narrow ones are faster."""
    if shape.element.startswith("f8"):
        return 8
    return _NARROW.get(shape.element, 16)


def _main_part(result: Shape) -> Shape:
    """The first part of a tuple; another value as it is."""
    if result.is_tuple and result.parts:
        return result.parts[0]
    return result


def _library_flops(
    target: str, details: Details, operands: list[Shape], output: Shape
) -> float | None:
    """FLOPs of a matrix product or a convolution by a library; None for other calls."""
    if target.startswith(_CUBLAS) and operands:
        return dot_flops(output, operands[0], _gemm(details))
    if not target.startswith(_CUDNN) or len(operands) < 2:
        return None
    first, second = operands[0], operands[1]
    # Dimensions and window are those of the forward convolution, whatever of it is made.
    if target.startswith(_OF_INPUT):
        return convolution_flops(output, second, first, details)
    if target.startswith(_OF_FILTER):
        return convolution_flops(first, output, second, details)
    return convolution_flops(first, second, output, details)


def _in_place(result: Shape, operand: Shape, dimensions: tuple[int, ...]) -> bool:
    """A transpose only renames dimensions: the layout in memory stays the same."""
    if not result.minor_to_major:
        return False
    return tuple(dimensions[d] for d in result.minor_to_major) == operand.minor_to_major


class _Moved(NamedTuple):
    """Bytes written, bytes read of each operand, and shares of operands that are read in part."""

    written: float
    reads: list[float]
    share: dict[int, float]


def _operand_size(shape: Shape) -> float:
    """Bytes of an operand; of a tuple, its pointers."""
    if shape.is_tuple:
        return 8.0 * len(shape.parts)
    return float(size(shape))


def _moved(opcode: str, result: Shape, operands: list[Shape]) -> _Moved:
    written = float(size(result))
    reads = list(map(_operand_size, operands))
    share: dict[int, float] = {}
    if opcode in ("slice", "dynamic-slice", "gather") and operands:
        reads[0], share[0] = written, result.elements / max(operands[0].elements, 1)
    elif opcode == "dynamic-update-slice" and len(operands) > 1:
        written, reads[0] = reads[1], 0.0
        share[0] = 1 - operands[1].elements / max(operands[0].elements, 1)
    elif opcode == "scatter" and len(operands) > 2:
        half = len(operands) // 2
        updates = [float(size(shape)) for shape in operands[half + 1 :]]
        written, reads[:half] = sum(updates), updates
    elif opcode == "reduce":
        half = len(operands) // 2
        # The initial value is read for each sum.
        reads[half:] = []
        for number, part in enumerate(result.arrays(), half):
            reads.append(float(size(part)))
            share[number] = float(part.elements)
    elif opcode == "cholesky":
        # Only a triangle is read and written.
        written, reads = written / 2, [read / 2 for read in reads]
    elif opcode == "triangular-solve":
        reads[0] /= 2
    return _Moved(written, reads, share)


def _all_gather(result: Shape, operands: list[Shape]) -> float:
    """Bytes of a rank that passes n - 1 parts on in a ring, and reads and writes its own."""
    part = sum(map(size, operands))
    complete = size(result)
    if len(operands) == 1:
        complete = max(map(size, result.arrays()), default=0)
    return float(3 * complete - part)


def _reduce_scatter(result: Shape, operands: list[Shape]) -> float:
    complete = sum(map(size, operands))
    return float(3 * complete - size(result))


_FROM_RANKS = {
    "all-gather": _all_gather,
    "all-gather-start": _all_gather,
    "reduce-scatter": _reduce_scatter,
}


def dot_flops(result: Shape, lhs: Shape, dot: DotDimensions) -> float:
    """Two operations per element of the result and of the dimensions that are summed over."""
    return float(_FMA * result.elements * prod(lhs.dimensions[d] for d in dot.lhs_contracting))


def _gemm(details: Details) -> DotDimensions:
    """The dimensions of a product by cuBLAS."""
    try:
        numbers = json.loads(details.backend)["gemm_backend_config"]["dot_dimension_numbers"]
        return DotDimensions(tuple(int(d) for d in numbers["lhs_contracting_dimensions"]))
    except (ValueError, KeyError, TypeError):
        return DotDimensions()


def convolution_flops(lhs: Shape, rhs: Shape, result: Shape, details: Details) -> float:
    """Two operations per input and output feature, image, and pair of kernel and input element.

    Kernel elements on padding do not count.
    """
    dims = details.convolution
    kernel = [rhs.dimensions[d] for d in dims.kernel_spatial]
    windows = details.window or tuple(WindowDimension(length) for length in kernel)
    pairs = 1
    for axis, (window, length) in enumerate(zip(windows, kernel, strict=False)):
        pairs *= _pairs_on_input(
            window,
            length,
            lhs.dimensions[dims.input_spatial[axis]],
            result.dimensions[dims.output_spatial[axis]],
        )
    return float(_FMA * pairs * _channels(dims, details, lhs, result))


def _channels(dims: ConvolutionDimensions, details: Details, lhs: Shape, result: Shape) -> int:
    features = lhs.dimensions[dims.input_feature] // details.feature_groups
    batch = lhs.dimensions[dims.input_batch] // details.batch_groups
    return features * batch * result.dimensions[dims.output_feature]


def _pairs_on_input(window: WindowDimension, kernel: int, length: int, result: int) -> int:
    """Pairs of a kernel and an output element that share an input element, along one dimension."""
    base, stride = window.base_dilation, window.stride
    offset = np.arange(kernel, dtype=np.int64) * window.window_dilation - window.low
    # 0 <= o * stride + offset < length of the dilated input, whose holes do not count.
    first = np.maximum(-(offset // stride), 0)
    last = np.minimum(((length - 1) * base - offset) // stride, result - 1)
    period = base // gcd(stride, base)
    pairs = 0
    for start in range(period):
        # Output elements o of the same residue meet either an element or a hole.
        meets = (start * stride + offset) % base == 0
        low = first + (start - first) % period
        count = np.where(low <= last, (last - low) // period + 1, 0)
        pairs += int(count[meets].sum())
    return pairs
