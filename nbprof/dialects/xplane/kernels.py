"""GPU kernels of an XSpace file: executions with op, launch shape and use of Tensor Cores."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.activity.tables import Kernels
from nbprof.core.factorize import unique_rows, used_codes
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects import tensorcores
from nbprof.dialects.lookups import text_of
from nbprof.dialects.xplane import opnames
from nbprof.dialects.xplane.opnames import OpName
from nbprof.dialects.xplane.ops import OpTexts
from nbprof.dialects.xplane.placed import Placed

LAUNCH_SHAPE = ("registers", "static_shared_bytes", "dynamic_shared_bytes", "block", "grid")
_MISSING_IN_XPROF = {
    "registers": 0,
    "static_shared_bytes": 0,
    "dynamic_shared_bytes": 0,
    "occupancy_percent": 0,
    "block": "1,1,1",
    "grid": "1,1,1",
}
_DIMENSIONS = re.compile(r"[0-9]+,[0-9]+,[0-9]+\Z")
_WHOLE = re.compile(r"[0-9]{1,18}\Z")


class Ops(Protocol):
    """The op of each event, as codes (-1: none)."""

    codes: Int64s

    def op(self, code: int) -> OpName:
        """The op of a code."""


def launch_details(text: str) -> dict[str, Any]:
    """Registers, shared memory, grid, block and occupancy of a `kernel_details` text.

    What it does not hold is None or empty. `shm` (TensorFlow 2.3/2.4) and `group_mem` (AMD) are the
    sum of both kinds of shared memory. A recorder that does not know the occupancy writes 0, which
    no kernel has.
    """
    values = dict(token.partition(":")[::2] for token in text.split())

    def number(*keys: str) -> int | None:
        return next((int(values[key]) for key in keys if _WHOLE.match(values.get(key, ""))), None)

    static = number("static_shared", "static_shared_memory", "shm", "shared", "group_mem")
    dynamic = number("dynamic_shared", "dynamic_shared_memory")
    if dynamic is None and static is not None:
        dynamic = 0
    try:
        occupancy = float(values.get("occ_pct", "nan"))
    except ValueError:
        occupancy = math.nan
    return {
        "registers": number("regs", "registers") or None,
        "static_shared_bytes": static,
        "dynamic_shared_bytes": dynamic,
        "block": _dimensions(values.get("block", "")),
        "grid": _dimensions(values.get("grid", "")),
        "occupancy_percent": occupancy if 0 < occupancy < math.inf else None,
    }


def launch_details_in_xprof(text: str) -> dict[str, Any]:
    """The same in XProf 2.24: no `shm` and `group_mem`; missing values are 0 or "1,1,1"."""
    text = re.sub(r"\b(shm|shared|group_mem):", r"not_\1:", text)
    details = launch_details(text)
    return {name: details[name] or missing for name, missing in _MISSING_IN_XPROF.items()}


def _dimensions(text: str) -> str:
    return text if _DIMENSIONS.match(text) else ""


def kernels(
    placed: Placed, ops: OpTexts, activity: act.Activity
) -> tuple[Kernels, list[dict[str, object]]]:
    """Executions of kernels, and their launch shapes."""

    @cache
    def product(op: int) -> tuple[str, int]:
        if op < 0:
            return "", tensorcores.UNKNOWN
        parsed, hlo = ops.op(op), ops.hlo(op)
        eligible = tensorcores.op_is_eligible(parsed.name, parsed.type)
        if hlo is not None and hlo.instruction is not None:
            eligible |= tensorcores.hlo_is_eligible(hlo.instruction.opcode, hlo.instruction.target)
        if eligible:
            return parsed.name, tensorcores.YES
        if parsed.name or parsed.type or hlo is not None:
            return parsed.name, tensorcores.NO
        return "", tensorcores.UNKNOWN

    def judge(kernel: str, op: int, vendor: str, equation: str) -> tuple[str, int, int]:
        name, could = product(op)
        uses = tensorcores.uses_tensor_core(kernel, vendor == "AMD")
        if uses == tensorcores.YES or tensorcores.einsum_of_two(equation):
            could = tensorcores.YES
        return name, uses, could

    return _table(placed, ops, activity, launch_details, judge, True)


def kernels_in_xprof(
    placed: Placed, ops: OpTexts, activity: act.Activity
) -> tuple[Kernels, list[dict[str, object]]]:
    """The same by the rules of XProf 2.24.2."""
    xprof_ops = XprofOps(placed.trace, ops)

    def judge(kernel: str, op: int, vendor: str, equation: str) -> tuple[str, int, int]:
        name = xprof_ops.op(op).name if op >= 0 else ""
        uses = tensorcores.uses_tensor_core_in_xprof(kernel, vendor)
        product = tensorcores.op_is_eligible_in_xprof(name) or tensorcores.einsum_of_two(equation)
        return name, int(uses), int(op >= 0 and (uses or product))

    return _table(placed, xprof_ops, activity, launch_details_in_xprof, judge, False)


def _table(
    placed: Placed,
    ops: Ops,
    activity: act.Activity,
    details_of: Callable[[str], dict[str, Any]],
    judge: Callable[[str, int, str, str], tuple[str, int, int]],
    theoretical: bool,
) -> tuple[Kernels, list[dict[str, object]]]:
    trace = placed.trace
    events = trace.events
    details = trace.text_arg("kernel_details")
    # In whole nanoseconds an event below one lasted no time.
    rows = np.flatnonzero(placed.on_gpu & (details >= 0) & (events.duration >= 1000))
    if len(rows):
        rows = rows[details[rows] != placed.empty_text]
    if not len(rows):
        return Kernels.empty(), []
    used, code = used_codes(details[rows], len(trace.strings))
    occupancy_of, shape_of = np.zeros(len(used), np.float64), np.zeros(len(used), np.int32)
    # Texts that differ only in the occupancy are one launch shape.
    shapes: dict[tuple[object, ...], int] = {}
    for i, text in enumerate(trace.texts(used)):
        described = details_of(text)
        occupancy_of[i] = described["occupancy_percent"]
        shape = tuple(map(described.__getitem__, LAUNCH_SHAPE))
        shape_of[i] = shapes.setdefault(shape, len(shapes))
    occupancy = occupancy_of[code]
    plane = trace.lanes["plane"].to_numpy()[events.lane[rows]]
    # The facts on a kernel depend on its name, op, vendor (of the plane) and equation.
    columns = (
        events.name[rows].astype(np.int64),
        ops.codes[rows],
        plane.astype(np.int64),
        trace.text_arg("equation")[rows],
    )
    first, back = unique_rows(*columns)
    kernel_code, op_code, tensor, eligible = np.zeros((4, len(first)), np.int32)
    distinct = np.stack([column[first] for column in columns], axis=1).tolist()
    for i, (name, op, plane_index, formula) in enumerate(distinct):
        kernel = str(trace.names[name])
        vendor = str(trace.planes[plane_index].stats.get("device_vendor", ""))
        op_name, tensor[i], eligible[i] = judge(kernel, op, vendor, text_of(trace.strings, formula))
        kernel_code[i] = activity.kernel_names.code(kernel)
        op_code[i] = activity.ops.code(op_name)
    if theoretical:
        occupancy = _theoretical(trace, rows, occupancy)
    table = Kernels(
        event=rows,
        host=placed.host[rows],
        device=placed.device[rows],
        duration=events.duration[rows],
        kernel=kernel_code[back],
        op=op_code[back],
        details=shape_of[code],
        eligible=eligible[back].astype(np.int8),
        tensor_core=tensor[back].astype(np.int8),
        occupancy=occupancy,
    )
    return table, [dict(zip(LAUNCH_SHAPE, shape, strict=True)) for shape in shapes]


def _theoretical(
    trace: Trace, rows: Int64s, occupancy: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The stat `theoretical_occupancy_pct` where it is stated, else what the details say."""
    column = trace.args.get("theoretical_occupancy_pct")
    if column is None:
        return occupancy
    percent = np.full(len(trace.events), np.nan)
    percent[column.event] = column.floats()
    return np.where(percent[rows] > 0, percent[rows], occupancy)


class XprofOps:
    """The op of each event in XProf 2.24: the compiled program's for its HLO op, else its `tf_op`.

    Ops that old files put into `level 0`, or that only the call on the host tells, it does not see.
    """

    def __init__(self, trace: Trace, ops: OpTexts) -> None:
        self._trace = trace
        self._ops = ops
        tf_op = trace.text_arg("tf_op").astype(np.int64)
        used, back = np.unique(ops.codes, return_inverse=True)
        in_program = np.zeros(len(used), np.bool_)
        for i, code in enumerate(used.tolist()):
            hlo = ops.hlo(code)
            in_program[i] = hlo is not None and hlo.instruction is not None
        of_hlo = len(trace.strings) + ops.codes
        self.codes: Int64s = np.where(in_program[back.reshape(-1)], of_hlo, tf_op)

    def op(self, code: int) -> OpName:
        """The op of a code."""
        if code < len(self._trace.strings):
            return opnames.parse(self._trace.strings[code])
        hlo = self._ops.hlo(code - len(self._trace.strings))
        name = hlo.instruction.op_name if hlo and hlo.instruction else ""
        return OpName("", name, "")
