"""Evidence from the ops of compiled programs: their time, the sizes of their matrix products, and
pure data movement.

Only the ops with the most time are looked up in their programs, since a program may have a hundred
thousand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
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
"""Fraction of the time for which a property must be known before it is stated for the whole."""
ALMOST_ALL = 0.98
"""Fraction of the time of all ops; the rest are ops too small to matter."""
_MOST_INSTRUCTIONS = 2000
"""In larger computations, readers are not traced."""

_TRANSFERS = re.compile(
    r"infeed|outfeed|send|recv|copy-start|copy-done|async|all-|reduce-scatter|collective|ragged-all|megascale|host|while|conditional|call\Z"
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

    `batch` is the number of examples if known (forward products), else 0; `spatial` tells whether
    it is a convolution over space; `op` is its row in `Work.ops`.
    """

    op: int
    rows: int
    depth: int
    columns: int
    batch: int
    spatial: bool


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
    own : float
        Self time of all ops that compute, also of those not looked up, in ps.
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
    own: float
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
        return 100 * time_ps / self.own if self.own else 0.0


def _most(activity: Activity) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The ops that are not transfers, and those of them that take almost all the time; None if no
    compiled program ran on a device.
    """
    if not len(activity.op_parts) or not activity.op_parts.hlo.any() or activity.programs is None:
        return None
    computing, _ = hlo.measured(activity)
    computing = computing[~computing["category"].astype(str).str.match(_TRANSFERS)]
    total_ps = float(computing["own"].sum())
    if not total_ps:
        return None
    count = int((computing["own"].cumsum() < ALMOST_ALL * total_ps).sum()) + 1
    return computing, computing.head(min(count, MOST_OPS)).reset_index(drop=True)


def share_of_16_bit(activity: Activity) -> float | None:
    """Percent of compiled programs' time in ops with numbers of 16 bits or fewer; None if
    unknown.
    """
    if (most := _most(activity)) is None:
        return None
    found, top = most
    narrow = pd.array(
        [_look(activity, row, *key).narrow for row, key in enumerate(_keys(top))], dtype="boolean"
    )
    return part_in_16_bit(top["own"], narrow, float(found["own"].sum()))


def share_of_64_bit(activity: Activity) -> tuple[float | None, str]:
    """Percent of compiled programs' time, on devices or the CPU, in ops on float64 arrays, and the
    one with the most; None if unknown.
    """
    measured, _ = hlo.measured(activity)
    total_ps = float(measured["own"].sum())
    top = measured.head(MOST_OPS)
    if not total_ps or activity.programs is None:
        return None, ""
    wide = pd.array([_is_wide(activity, *key) for key in _keys(top)], dtype="boolean")
    typed = ~pd.isna(wide)
    typed_ps, wide_ops = float(top["own"][typed].sum()), top[wide.fillna(False).to_numpy(bool)]
    if not typed_ps or typed_ps < MOSTLY_KNOWN * total_ps:
        return None, ""
    return 100 * float(wide_ops["own"].sum()) / typed_ps, str(wide_ops["name"].iloc[0]) if len(
        wide_ops
    ) else ""


def _is_wide(activity: Activity, host: int, ident: int, name: str) -> bool | None:
    """Whether an op reads or writes a float64 array; None if its program is damaged or not in the
    file.
    """
    program: Program | None = activity.programs.program(host, ident)
    index = None if program is None else program.place(name)
    if program is None or index is None:
        return None
    try:
        shapes = [
            part
            for shape in (program.shape(index), *_operands(program, index))
            for part in shape.arrays()
        ]
    except ReadError:
        return None
    return any(part.element in ("f64", "c128") and part.elements > 1 for part in shapes)


def part_in_16_bit(op_times: pd.Series, narrow: Any, total_ps: float) -> float | None:
    """Percent of the time `own` in ops with narrow numbers; None if that is known for too little of
    the `whole`.
    """
    typed = ~pd.isna(narrow)
    time = float(op_times[typed].sum())
    return (
        100 * float(op_times[typed][narrow[typed].astype(bool)].sum()) / time
        if time and time >= MOSTLY_KNOWN * total_ps
        else None
    )


def gather(activity: Activity) -> Work | None:
    """The work of compiled programs on devices; None if none ran there."""
    if (most := _most(activity)) is None:
        return None
    found, top = most
    whole = float(found["own"].sum())
    rates = hlo.rates(top, *all_ops.peaks(activity), impossible=False)
    peak_flops, peak_bytes = all_ops.peaks(activity)
    titles = [title for title, _ in hlo.titles(activity, top)]
    table = pd.DataFrame(
        {
            "program": titles,
            "name": top["name"].astype(str),
            "category": top["category"].astype(str),
            "framework_op": top["framework_op"].astype(str).str.removesuffix(":"),
            "own": top["own"].astype(float),
            "runs": top["runs"].astype(float),
            "compute_fraction": rates["normalized_flops_per_second"] / peak_flops,
            "bandwidth_fraction": rates["memory_bytes_per_second"] / peak_bytes,
            "known": top["flops"].notna()
            & top["memory"].notna()
            & ((top["flops"] > 0) | (top["memory"] > 0)),
        }
    )
    looks = [
        _look(activity, row, host, ident, name)
        for row, (host, ident, name) in enumerate(_keys(top))
    ]
    table["moves"] = [look.moves for look in looks]
    table["spreads"] = [look.spreads for look in looks]
    table["narrow"] = pd.Series([look.narrow for look in looks], dtype="boolean")
    table["shape"] = [look.shape for look in looks]
    out = Work(
        table,
        whole,
        [product for look in looks for product in look.products],
        _matrix_unit(activity),
    )
    out.lonely = _lonely(found, activity)
    out.chained, out.chain, out.chains = _chained(activity, top, table)
    return out


def _keys(top: pd.DataFrame) -> Iterator[tuple[int, int, str]]:
    yield from zip(top["host"].tolist(), top["program"].tolist(), top["name"].tolist(), strict=True)


def _matrix_unit(activity: Activity) -> int:
    """Source: Cloud TPU's system architecture page: 128 x 128 up to v5, 256 x 256 from v6e on."""
    names = activity.devices.loc[activity.devices["kind"] == "TPU", "name"].astype(str)
    if not len(names):
        return 0
    return 256 if names.str.contains(r"v6|v7|TPU7", regex=True).all() else 128


class _Look(NamedTuple):
    moves: bool = False
    spreads: bool = False
    narrow: bool | None = None
    shape: str = ""
    products: tuple[Product, ...] = ()


def _look(activity: Activity, row: int, host: int, ident: int, name: str) -> _Look:
    """What one op consists of; empty if its program is damaged or not in the file."""
    program: Program | None = activity.programs.program(host, ident)
    index = None if program is None else program.place(name)
    if program is None or index is None:
        return _Look()
    try:
        places = [index, *_inside(program, index)]
        opcodes = {program.opcodes[at] for at in places[1:]} or {program.opcodes[index]}
        left = opcodes - _PLAIN
        shape = program.shape(index)
        products = tuple(
            made
            for at in places
            if program.opcodes[at] in ("dot", "convolution")
            and (made := _product(program, row, at)) is not None
        )
        return _Look(
            moves=("transpose" in left and left <= _MOVES)
            or (left == {"copy"} and _relaid(program, index)),
            spreads=left == {"broadcast"},
            narrow=_narrow(program, index),
            shape=shape.short if not shape.is_tuple else "",
            products=products,
        )
    except ReadError:
        return _Look()


def _inside(program: Program, index: int) -> list[int]:
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
    places = [program.place_of(ident) for ident in program.instruction(index).operands]
    return [program.shape(operand) for operand in places if operand is not None]


def _relaid(program: Program, index: int) -> bool:
    """Whether a copy has a different layout than its source."""
    return program.opcodes[index] == "copy" and any(
        s.minor_to_major != program.shape(index).minor_to_major for s in _operands(program, index)
    )


def _narrow(program: Program, index: int) -> bool | None:
    """Whether an op reads or writes an array of numbers of 16 bits or fewer; None if it has no
    floating-point arrays.
    """
    shapes = [
        part
        for shape in (program.shape(index), *_operands(program, index))
        for part in shape.arrays()
    ]
    wide = [part for part in shapes if part.element[:1] in ("f", "b", "c") and part.elements > 1]
    return any(part.element_bytes <= 2 for part in wide) if wide else None


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
            rows = prod(
                size
                for d, size in enumerate(left)
                if d not in (*dot.lhs_contracting, *dot.lhs_batch)
            )
            columns = prod(
                size
                for d, size in enumerate(right)
                if d not in (*dot.rhs_contracting, *dot.rhs_batch)
            )
            depth = prod(left[d] for d in dot.lhs_contracting)
            return Product(
                op=row,
                rows=rows,
                depth=depth,
                columns=columns,
                batch=0 if backward or dot.lhs_batch else rows,
                spatial=False,
            )
        dims = details.convolution
        if details.batch_groups > 1 or details.feature_groups > 1:
            return None
        output = program.shape(index).dimensions
        rows = left[dims.input_batch] * prod(output[d] for d in dims.output_spatial)
        depth = right[dims.kernel_input] * prod(right[d] for d in dims.kernel_spatial)
        batch = 0 if backward else left[dims.input_batch]
        return Product(
            op=row,
            rows=rows,
            depth=depth,
            columns=right[dims.kernel_output],
            batch=batch,
            spatial=bool(dims.input_spatial),
        )
    except IndexError:
        return None


def most_rows(activity: Activity) -> int | None:
    """The most rows of a forward product in any program that ran on the CPU; None where there is
    none, or one of them is not known.

    Of products of many matrices all rows count, of a convolution all places.
    """
    measured, _ = hlo.measured(activity)
    if activity.has_device or activity.programs is None or not len(measured):
        return None
    most = 0
    for host, ident in measured[["host", "program"]].drop_duplicates().itertuples(index=False):
        program: Program | None = activity.programs.program(int(host), int(ident))
        if program is None:
            return None
        try:
            for index, opcode in enumerate(program.opcodes):
                if opcode in ("dot", "convolution") and not _BACKWARD.search(
                    program.instruction(index).op_name
                ):
                    product = _product(program, 0, index)
                    if product is None:
                        return None
                    # What is no side of the second matrix: rows, times matrices.
                    most = max(most, program.shape(index).elements // max(product.columns, 1))
                elif (
                    opcode == "custom-call" and "callback" not in program.instruction(index).target
                ):
                    # A library may multiply there.
                    return None
        except ReadError:
            return None
    return most or None


def _lonely(computing: pd.DataFrame, activity: Activity) -> pd.DataFrame:
    """Programs of a single elementwise op, which a framework compiles for each op run on its
    own.
    """
    count = computing.groupby(["host", "program"], sort=False)["own"].transform("size")
    alone = computing[(count == 1) & computing["category"].isin(ELEMENTWISE_KINDS)]
    names = [title for title, _ in hlo.titles(activity, alone)]
    return pd.DataFrame(
        {
            "program": names,
            "own": alone["own"].to_numpy(float),
            "runs": alone["runs"].to_numpy(float),
        }
    )


def _chained(activity: Activity, top: pd.DataFrame, table: pd.DataFrame) -> tuple[float, str, int]:
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
            saved = [min(times[names[name]], times[names[producer]]) for producer in producers]
            if saved:
                total, count = total + min(sum(saved), times[names[name]]), count + 1
                if max(saved) > best:
                    best, longest = max(saved), name
    return total, longest, count


def _readers(program: Program, names: dict[str, int]) -> Iterator[tuple[str, list[str]]]:
    """Ops by name, each with the ops whose only reader it is, through tuples and bitcasts."""
    for computation in program.computations:
        places = range(computation.first, computation.first + computation.count)
        if (
            computation.count > _MOST_INSTRUCTIONS
            or sum(program.names[index] in names for index in places) < 2
        ):
            continue
        through: dict[int, int] = {}
        readers: Counter[int] = Counter()
        reads: dict[str, list[int]] = {}
        for index in places:
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
            for ident in {_source(i, through) for i in operands}:
                at_producer = program.place_of(ident)
                if (
                    at_producer is not None
                    and origin[ident] == 1
                    and program.names[at_producer] in names
                ):
                    producers.append(program.names[at_producer])
            yield name, producers


def _source(ident: int, through: dict[int, int]) -> int:
    for _ in range(64):
        if ident not in through:
            break
        ident = through[ident]
    return ident
