"""Evidence from the ops of compiled programs: time, sizes of matrix products, data movement.

Only the ops with the most time are looked up in their programs, since a program may have a hundred
thousand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis import hlo
from nbprof.analysis.ops import ops as all_ops
from nbprof.core.errors import ReadError
from nbprof.hlo import details as hlo_details
from nbprof.hlo.hlo import Program
from nbprof.hlo.shapes import Shape

MOST_OPS = 200
"""Ops that are looked up in their programs."""
MOSTLY_KNOWN = 0.8
"""Fraction of the time for which a property must be known before it is stated for all of it."""
ALMOST_ALL = 0.98
"""Fraction of the time of all ops; the rest are ops too small to matter."""
_MOST_INSTRUCTIONS = 2000
"""In larger computations, readers are not traced."""

_TRANSFERS = re.compile(
    r"infeed|outfeed|send|recv|copy-start|copy-done|async|all-|reduce-scatter|collective|"
    r"ragged-all|megascale|host|while|conditional|call\Z"
)
_MOVES = frozenset(
    {
        "transpose",
        "reshape",
        "dynamic-reshape",
        "bitcast",
        "bitcast-convert",
        "convert",
        "pad",
        "slice",
    }
)
_PLAIN = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})
ELEMENTWISE_KINDS = ("loop fusion", "non-fusion elementwise")
_BACKWARD = re.compile(r"transpose\(|gradient_tape|Backprop|/grad")


class Product(NamedTuple):
    """A dot or convolution as a matrix product: `rows` x `depth` by `depth` x `columns`.

    `batch` is the number of examples of a forward product, else 0; `spatial` tells whether it is a
    convolution over space; `op` is its row in `Work.ops`.
    """

    op: int
    rows: int
    depth: int
    columns: int
    batch: int
    spatial: bool

    @property
    def multiplications(self) -> int:
        """Number of scalar multiplications."""
        return self.rows * self.depth * self.columns


@dataclass
class Work:
    """The compute ops of compiled programs, excluding copies between memories and communication.

    Attributes
    ----------
    ops : DataFrame
        The ops looked up, most self time first: `program` (its name), `name`, `category`,
        `framework_op`, `own` (ps of all runs), `runs`, `compute_fraction` and `bandwidth_fraction`
        (of the device's peaks; NaN: not known), `known` (whether FLOPs and bytes are), `moves` (it
        only moves values to another layout), `spreads` (it only broadcasts), `narrow` (16 bits or
        fewer), `shape`.
    total_ps : float
        Self time of all ops that compute, also of those not looked up.
    products : list of Product
    matrix_unit : int
        Rows and columns of a TPU's matrix unit; 0 for other devices.
    lonely : DataFrame
        Programs of one elementwise op each: `program`, `own`, `runs`.
    chained : float
        Self time in ps that fusing neighbours would save at most: for memory-bound elementwise ops
        that are the only readers of another such op's output.
    chain : str
        The op that would save most.
    chains : int
        Number of ops counted in `chained`.
    """

    ops: pd.DataFrame
    total_ps: float
    products: list[Product] = field(default_factory=list)
    matrix_unit: int = 0
    lonely: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame({"program": [], "own": [], "runs": []})
    )
    chained: float = 0.0
    chain: str = ""
    chains: int = 0

    def share(self, time_ps: float) -> float:
        """Percent of the time of all compute ops."""
        return 100 * time_ps / self.total_ps if self.total_ps else 0.0


class Computing(NamedTuple):
    """The ops of compiled programs that compute, and those of them with almost all the time."""

    ops: pd.DataFrame
    longest: pd.DataFrame

    @property
    def total_ps(self) -> float:
        """Self time of all ops."""
        return float(self.ops["own"].sum())


def _computing(activity: Activity) -> Computing | None:
    """The ops that are not transfers; None if no compiled program ran on a device."""
    if not len(activity.op_parts) or not activity.op_parts.hlo.any() or activity.programs is None:
        return None
    ops, _ = hlo.measured(activity)
    ops = ops[~ops["category"].astype(str).str.match(_TRANSFERS)]
    total_ps = float(ops["own"].sum())
    if not total_ps:
        return None
    count = int((ops["own"].cumsum() < ALMOST_ALL * total_ps).sum()) + 1
    return Computing(ops, ops.head(min(count, MOST_OPS)).reset_index(drop=True))


def share_of_16_bit(activity: Activity) -> float | None:
    """Percent of compiled programs' time in ops with numbers of 16 bits or fewer; None if
    unknown.
    """
    computing = _computing(activity)
    if computing is None:
        return None
    narrow = [look.narrow for look in _looks(activity, computing.longest)]
    return part_in_16_bit(
        computing.longest["own"], pd.array(narrow, dtype="boolean"), computing.total_ps
    )


def share_of_64_bit(activity: Activity) -> tuple[float | None, str]:
    """Percent of compiled programs' time in ops on float64 arrays, on devices or the CPU, and the
    longest of these ops; None if unknown.
    """
    measured, _ = hlo.measured(activity)
    total_ps = float(measured["own"].sum())
    if not total_ps or activity.programs is None:
        return None, ""
    longest = measured.head(MOST_OPS)
    wide = pd.array([_is_wide(activity, *key) for key in _keys(longest)], dtype="boolean")
    typed_ps = float(longest["own"][~pd.isna(wide)].sum())
    if not typed_ps or typed_ps < MOSTLY_KNOWN * total_ps:
        return None, ""
    wide_ops = longest[wide.fillna(False).to_numpy(bool)]
    name = str(wide_ops["name"].iloc[0]) if len(wide_ops) else ""
    return 100 * float(wide_ops["own"].sum()) / typed_ps, name


def _is_wide(activity: Activity, host: int, ident: int, name: str) -> bool | None:
    """True if an op reads or writes a float64 array; None if its program is damaged or not in the
    file.
    """
    program: Program | None = activity.programs.program(host, ident)
    index = None if program is None else program.index_of_name(name)
    if program is None or index is None:
        return None
    try:
        arrays = _arrays(program, index)
    except ReadError:
        return None
    return any(array.element in ("f64", "c128") and array.elements > 1 for array in arrays)


def _arrays(program: Program, index: int) -> list[Shape]:
    """The arrays that an op writes and reads."""
    arrays: list[Shape] = []
    for shape in (program.shape(index), *_operands(program, index)):
        arrays += shape.arrays()
    return arrays


def part_in_16_bit(op_times: pd.Series, narrow: Any, total_ps: float) -> float | None:
    """Percent of the time of ops in those with narrow numbers; None if that is known for too little
    of the total.
    """
    typed = ~pd.isna(narrow)
    typed_ps = float(op_times[typed].sum())
    if not typed_ps or typed_ps < MOSTLY_KNOWN * total_ps:
        return None
    return 100 * float(op_times[typed][narrow[typed].astype(bool)].sum()) / typed_ps


def gather(activity: Activity) -> Work | None:
    """The work of compiled programs on devices; None if none ran there."""
    computing = _computing(activity)
    if computing is None:
        return None
    longest = computing.longest
    peak_flops, peak_bytes = all_ops.peaks(activity)
    rates = hlo.rates(longest, peak_flops, peak_bytes, impossible=False)
    looks = _looks(activity, longest)
    flops_and_bytes = longest["flops"].notna() & longest["memory"].notna()
    table = pd.DataFrame(
        {
            "program": [title for title, _ in hlo.titles(activity, longest)],
            "name": longest["name"].astype(str),
            "category": longest["category"].astype(str),
            "framework_op": longest["framework_op"].astype(str).str.removesuffix(":"),
            "own": longest["own"].astype(float),
            "runs": longest["runs"].astype(float),
            "compute_fraction": rates["normalized_flops_per_second"] / peak_flops,
            "bandwidth_fraction": rates["memory_bytes_per_second"] / peak_bytes,
            "known": flops_and_bytes & ((longest["flops"] > 0) | (longest["memory"] > 0)),
            "moves": [look.moves for look in looks],
            "spreads": [look.spreads for look in looks],
            "narrow": pd.Series([look.narrow for look in looks], dtype="boolean"),
            "shape": [look.shape for look in looks],
        }
    )
    work = Work(table, computing.total_ps, matrix_unit=_matrix_unit(activity))
    for look in looks:
        work.products += look.products
    work.lonely = _lonely(computing.ops, activity)
    work.chained, work.chain, work.chains = _chained(activity, longest, table)
    return work


def _keys(top: pd.DataFrame) -> Iterator[tuple[int, int, str]]:
    yield from zip(top["host"].tolist(), top["program"].tolist(), top["name"].tolist(), strict=True)


def _matrix_unit(activity: Activity) -> int:
    """Source: Cloud TPU's system architecture page: 128 x 128 up to v5, 256 x 256 from v6e on."""
    names = activity.devices.loc[activity.devices["kind"] == "TPU", "name"].astype(str)
    if not len(names):
        return 0
    return 256 if names.str.contains(r"v6|v7|TPU7", regex=True).all() else 128


class _Look(NamedTuple):
    """Properties of an op, from its program; see `Work.ops`."""

    moves: bool = False
    spreads: bool = False
    narrow: bool | None = None
    shape: str = ""
    products: tuple[Product, ...] = ()


def _looks(activity: Activity, ops: pd.DataFrame) -> list[_Look]:
    """Each of the ops, looked up in its program."""
    return [_look(activity, row, *key) for row, key in enumerate(_keys(ops))]


def _look(activity: Activity, row: int, host: int, ident: int, name: str) -> _Look:
    """The properties of one op; none if its program is damaged or not in the file."""
    program: Program | None = activity.programs.program(host, ident)
    index = None if program is None else program.index_of_name(name)
    if program is None or index is None:
        return _Look()
    try:
        return _read_op(program, row, index)
    except ReadError:
        return _Look()


def _read_op(program: Program, row: int, index: int) -> _Look:
    fused = _fused_instructions(program, index)
    opcodes = {program.opcodes[instruction] for instruction in fused or [index]} - _PLAIN
    moves = "transpose" in opcodes and opcodes <= _MOVES
    if opcodes == {"copy"}:
        moves = _relaid(program, index)
    shape = program.shape(index)
    products = []
    for instruction in (index, *fused):
        if program.opcodes[instruction] in ("dot", "convolution"):
            product = _product(program, row, instruction)
            if product is not None:
                products.append(product)
    return _Look(
        moves=moves,
        spreads=opcodes == {"broadcast"},
        narrow=_narrow(program, index),
        shape="" if shape.is_tuple else shape.short,
        products=tuple(products),
    )


def _fused_instructions(program: Program, index: int) -> list[int]:
    """The instructions of the computations that a fusion calls."""
    if program.opcodes[index] != "fusion":
        return []
    instructions: list[int] = []
    for ident in program.instruction(index).called:
        computation = program.computation(ident)
        if computation is not None:
            instructions += range(computation.first, computation.first + computation.count)
    return instructions


def _operands(program: Program, index: int) -> list[Shape]:
    shapes = []
    for ident in program.instruction(index).operands:
        operand = program.index_of_ident(ident)
        if operand is not None:
            shapes.append(program.shape(operand))
    return shapes


def _relaid(program: Program, index: int) -> bool:
    """True if a copy has a different layout than its source."""
    if program.opcodes[index] != "copy":
        return False
    layout = program.shape(index).minor_to_major
    return any(source.minor_to_major != layout for source in _operands(program, index))


def _narrow(program: Program, index: int) -> bool | None:
    """True if an op reads or writes an array of numbers of 16 bits or fewer; None if it has no
    floating-point arrays.
    """
    arrays = [array for array in _arrays(program, index) if array.element[:1] in ("f", "b", "c")]
    sizes = [array.element_bytes for array in arrays if array.elements > 1]
    return min(sizes) <= 2 if sizes else None


def _product(program: Program, row: int, index: int) -> Product | None:
    """The sizes of a dot or a convolution; None if they are inconsistent."""
    instruction = program.instruction(index)
    shapes = _operands(program, index)
    if len(shapes) < 2:
        return None
    left, right = shapes[0].dimensions, shapes[1].dimensions
    details = hlo_details.read(program, index)
    backward = bool(_BACKWARD.search(instruction.op_name))
    try:
        if instruction.opcode == "dot":
            dot = details.dot
            rows = _size_without(left, (*dot.lhs_contracting, *dot.lhs_batch))
            return Product(
                op=row,
                rows=rows,
                depth=prod(left[d] for d in dot.lhs_contracting),
                columns=_size_without(right, (*dot.rhs_contracting, *dot.rhs_batch)),
                batch=0 if backward or dot.lhs_batch else rows,
                spatial=False,
            )
        dims = details.convolution
        if details.batch_groups > 1 or details.feature_groups > 1:
            return None
        batch = left[dims.input_batch]
        output = program.shape(index).dimensions
        return Product(
            op=row,
            rows=batch * prod(output[d] for d in dims.output_spatial),
            depth=right[dims.kernel_input] * prod(right[d] for d in dims.kernel_spatial),
            columns=right[dims.kernel_output],
            batch=0 if backward else batch,
            spatial=bool(dims.input_spatial),
        )
    except IndexError:
        return None


def _size_without(dimensions: Sequence[int], excluded: Sequence[int]) -> int:
    """The product of all dimensions but some, given by their positions."""
    return prod(size for d, size in enumerate(dimensions) if d not in excluded)


def most_rows(activity: Activity) -> int | None:
    """The most rows of a forward product in any program that ran on the CPU; None if there is none,
    or if one of them is unknown.

    Products of many matrices count all rows, convolutions all positions.
    """
    measured, _ = hlo.measured(activity)
    if activity.has_device or activity.programs is None or not len(measured):
        return None
    largest = 0
    for host, ident in measured[["host", "program"]].drop_duplicates().itertuples(index=False):
        program: Program | None = activity.programs.program(int(host), int(ident))
        if program is None:
            return None
        try:
            rows = _most_rows_of(program)
        except ReadError:
            return None
        if rows is None:
            return None
        largest = max(largest, rows)
    return largest or None


def _most_rows_of(program: Program) -> int | None:
    """The most rows of a forward product; None if one of them is unknown."""
    largest = 0
    for index, opcode in enumerate(program.opcodes):
        if opcode in ("dot", "convolution"):
            if _BACKWARD.search(program.instruction(index).op_name):
                continue
            product = _product(program, 0, index)
            if product is None:
                return None
            # Sizes that are not the second matrix's: rows, times matrices.
            largest = max(largest, program.shape(index).elements // max(product.columns, 1))
        elif opcode == "custom-call" and "callback" not in program.instruction(index).target:
            # A library may multiply there.
            return None
    return largest


def _lonely(computing: pd.DataFrame, activity: Activity) -> pd.DataFrame:
    """Programs of a single elementwise op, which a framework compiles for each op that runs outside
    of a program.
    """
    count = computing.groupby(["host", "program"], sort=False)["own"].transform("size")
    alone = computing[(count == 1) & computing["category"].isin(ELEMENTWISE_KINDS)]
    return pd.DataFrame(
        {
            "program": [title for title, _ in hlo.titles(activity, alone)],
            "own": alone["own"].to_numpy(float),
            "runs": alone["runs"].to_numpy(float),
        }
    )


def _chained(activity: Activity, top: pd.DataFrame, table: pd.DataFrame) -> Chains:
    """The most that fusing neighbours would save: for an op that is the only reader of another, the
    time of the shorter one.
    """
    bandwidth = table["bandwidth_fraction"]
    memory_bound = (bandwidth > table["compute_fraction"]) & (bandwidth >= all_ops.NEAR_ROOF)
    plain = table["category"].isin(ELEMENTWISE_KINDS) & memory_bound & ~table["moves"]
    rows: dict[tuple[int, int], dict[str, int]] = {}
    for row, (host, ident, name) in enumerate(_keys(top)):
        if plain.iloc[row]:
            rows.setdefault((host, ident), {})[name] = row
    times = table["own"].to_numpy(float)
    total, best, count, longest = 0.0, 0.0, 0, ""
    for (host, ident), names in rows.items():
        program: Program | None = activity.programs.program(host, ident)
        if program is None or len(names) < 2:
            continue
        for name, producers in _readers(program, names):
            time = times[names[name]]
            saved = [min(time, times[names[producer]]) for producer in producers]
            if not saved:
                continue
            total += min(sum(saved), time)
            count += 1
            if max(saved) > best:
                best, longest = max(saved), name
    return Chains(total, longest, count)


class Chains(NamedTuple):
    """Ops that are the only readers of another one: time saved in ps, the longest op, and how many
    there are.
    """

    saved_ps: float
    longest: str
    ops: int


def _readers(program: Program, names: dict[str, int]) -> Iterator[tuple[str, list[str]]]:
    """Ops by name, each with the ops whose only reader it is, through tuples and bitcasts."""
    for computation in program.computations:
        indices = range(computation.first, computation.first + computation.count)
        if computation.count > _MOST_INSTRUCTIONS:
            continue
        if sum(program.names[index] in names for index in indices) < 2:
            continue
        through: dict[int, int] = {}
        readers: Counter[int] = Counter()
        reads: dict[str, list[int]] = {}
        for index in indices:
            instruction = program.instruction(index)
            if instruction.opcode in ("get-tuple-element", "bitcast") and instruction.operands:
                through[instruction.ident] = instruction.operands[0]
                continue
            for ident in set(instruction.operands):
                readers[ident] += 1
            if instruction.name in names:
                reads[instruction.name] = list(set(instruction.operands))
        origin: Counter[int] = Counter()
        for ident, count in readers.items():
            origin[_source(ident, through)] += count
        for name, operands in reads.items():
            producers = []
            for ident in {_source(operand, through) for operand in operands}:
                index_of_producer = program.index_of_ident(ident)
                if index_of_producer is None or origin[ident] != 1:
                    continue
                if program.names[index_of_producer] in names:
                    producers.append(program.names[index_of_producer])
            yield name, producers


def _source(ident: int, through: dict[int, int]) -> int:
    for _ in range(64):
        if ident not in through:
            break
        ident = through[ident]
    return ident
