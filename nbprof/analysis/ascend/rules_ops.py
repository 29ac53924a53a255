"""Rules about the ops of an NPU: where they run, what keeps them busy, what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend.ascend import KEYS, part
from nbprof.analysis.ascend.pmu import LONG_US, SATURATED
from nbprof.analysis.ascend.rules import Facts, Found, Rule

_NO_OPS = "No op_summary was recorded: run with task_trace on."
_NO_TYPES = "Neither op_statistic nor op_summary was recorded: run with task_trace on."
_NO_PMU = "No counters of this group were recorded: run with aic_metrics PipeUtilization."
_NO_CONFLICTS = "No counters of this group were recorded: run with aic_metrics ResourceConflictRatio."
_NO_CORES = "How many cores the device has was not recorded with the tasks."
_NO_BLOCKS = "Either the blocks of ops or the cores of the device were not recorded."

CONVERSIONS = ("transdata", "transpose", "transposed", "cast")
_MATRIX = ("matmul", "conv", "batchmatmul", "gemm")
_HALF = 0.5


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _time(facts: Facts) -> float:
    """Time in us of the tasks of op_summary but communication."""
    ops = facts.ops
    return 0.0 if ops is None else float(ops[ops["core"] != ascend.COMMUNICATION]["duration_us"].sum())


def _types_time(types: pd.DataFrame) -> float:
    return float(types["total_us"].sum())


def _said(count: int, what: str, share: float) -> str:
    return f"{count:,} {'task' if count == 1 else 'tasks'} {what}{_of_time(share)}." if count else f"No tasks {what}."


def _of_time(share: float) -> str:
    return f", {_percent(share)} of the time" if np.isfinite(share) else ""


def _longest(rows: pd.DataFrame) -> Any:
    """Names of ops, most time first."""
    return rows.groupby("op")["duration_us"].sum().sort_values(ascending=False, kind="stable").index


def _kind(names: pd.Series[Any], words: tuple[str, ...]) -> Any:
    lower = names.str.lower()
    return np.logical_or.reduce([lower.str.startswith(word).to_numpy(np.bool_) for word in words])


def _conversions(facts: Facts) -> Found | None:
    types = facts.types
    if types is None or not _types_time(types) > 0:
        return None
    rows = types[types["op_type"].str.lower().isin(CONVERSIONS)]
    count, share = int(rows["tasks"].sum()), part(float(rows["total_us"].sum()), _types_time(types))
    data = int(rows[rows["op_type"].str.lower() == "transdata"]["tasks"].sum())
    kinds = ", ".join(f"{name} {number:,}" for name, number in rows.groupby("op_type")["tasks"].sum().items())
    text = f"{count:,} tasks convert formats and types ({kinds}), {_percent(share)} of the time." if count else "No task converts formats."
    return Found(share, share > 0.1 or data > 2, text, rows["op_type"], share)


def _ai_cpu(facts: Facts) -> Found | None:
    types = facts.types
    if types is None or not len(types):
        return None
    rows = types[types["core"] == ascend.AI_CPU]
    if not len(rows):
        return Found(0.0, False, "No op ran on the AI CPU.")
    share = part(float(rows["total_us"].sum()), _types_time(types))
    # A table without a column of the longest says by its means how long that was at least.
    longest, stated = float(rows["max_us"].fillna(rows["avg_us"]).max()), bool(rows["max_us"].notna().all())
    text = _said(int(rows["tasks"].sum()), "ran on the AI CPU", share)
    if not np.isfinite(longest):
        return Found(None, True, f"{text} How long the longest took was not recorded.", rows["op_type"], share)
    text = f"{text.removesuffix('.')}; the longest took {'' if stated else 'at least '}{longest:,.1f} µs."
    return Found(longest, longest >= LONG_US, text, rows["op_type"], share)


def _get_next(facts: Facts) -> Found | None:
    types = facts.types
    if types is None or not _types_time(types) > 0:
        return None
    rows = types[(types["core"] == ascend.AI_CPU) & types["op_type"].str.lower().str.contains("getnext", regex=False)]
    share = part(float(rows["total_us"].sum()), _types_time(types))
    text = f"GetNext on the AI CPU takes {_percent(share)} of the time of tasks." if len(rows) else "No GetNext ran on the AI CPU."
    return Found(share, share > 0.1, text, rows["op_type"], share)


def _one_type(facts: Facts) -> Found | None:
    types = facts.types
    if types is None or not _types_time(types) > 0:
        return None
    sums = types.groupby("op_type")["total_us"].sum()
    name, share = str(sums.idxmax()), part(float(sums.max()), _types_time(types))
    # Where to look, and nothing that is wrong: it stands behind what is.
    return Found(share, share > 0.2, f"{name} takes {_percent(share)} of the time of tasks.", [name])


def _is_finite(facts: Facts) -> Found | None:
    return _present(facts, ("isfinite",), 0, "check numbers for overflow")


def _sync_norm(facts: Facts) -> Found | None:
    return _present(facts, ("syncbatchnorm", "synclbn"), 20, "synchronise batch norms of devices")


def _present(facts: Facts, words: tuple[str, ...], most: int, what: str) -> Found | None:
    types = facts.types
    if types is None or not len(types):
        return None
    rows = types[_kind(types["op_type"], words)]
    count, share = int(rows["tasks"].sum()), part(float(rows["total_us"].sum()), _types_time(types))
    return Found(count, count > most, _said(count, what, share), rows["op_type"], share)


def _ops_where(
    chosen: Callable[[pd.DataFrame], Any], text: str, needs: Callable[[pd.DataFrame], bool] = lambda _: True
) -> Callable[[Facts], Found | None]:
    """A rule that counts tasks of op_summary; `text` follows their number and ends before their share."""

    def check(facts: Facts) -> Found | None:
        ops = facts.ops
        if ops is None or not needs(ops):
            return None
        rows = ops[chosen(ops)]
        share = part(float(rows["duration_us"].sum()), _time(facts))
        return Found(len(rows), len(rows) > 0, _said(len(rows), text, share), _longest(rows), share)

    return check


def _counters_where(chosen: Callable[[pd.DataFrame], Any], text: str, *needs: str) -> Callable[[Facts], Found | None]:
    """The same of counters; nothing is known where a column of `needs` has no number."""

    def check(facts: Facts) -> Found | None:
        pmu = facts.pmu
        if pmu is None or any(pmu[name].isna().all() for name in needs):
            return None
        rows = pmu[chosen(pmu)]
        share = part(float(rows["duration_us"].sum()), _time(facts))
        return Found(len(rows), len(rows) > 0, _said(len(rows), text, share), _longest(rows), share)

    return check


def _memory_bound(facts: Facts) -> Found | None:
    pmu = facts.pmu
    if pmu is None or pmu["memory_bound"].isna().all():
        return None
    rows = pmu[pmu["memory_bound"] > 1]
    share = part(float(rows["duration_us"].sum()), _time(facts))
    return Found(share, share > _HALF, _said(len(rows), "move more than they compute", share), _longest(rows), share)


def _affinity(facts: Facts) -> Found | None:
    pmu = facts.pmu
    if pmu is None or (pmu["bound_by"] == "").all():
        return None
    cube = float(pmu[pmu["bound_by"] == "cube"]["duration_us"].sum())
    share = part(cube, float(pmu["duration_us"].sum()))
    return Found(share, share < _HALF, f"The cube is the busiest pipe for {_percent(share)} of the time of tasks with counters.")


def _few_blocks(facts: Facts) -> Found | None:
    return _blocks(facts, lambda blocks, cores: blocks < cores, "use fewer blocks than there are cores")


def _uneven_blocks(facts: Facts) -> Found | None:
    return _blocks(facts, lambda blocks, cores: (blocks > cores) & (blocks % cores != 0), "leave cores idle in their last round of blocks")


def _blocks(facts: Facts, wrong: Callable[[Any, Any], Any], text: str) -> Found | None:
    """Compares the blocks of AI Core and vector tasks with the cores of their device."""
    ops = facts.ops
    if ops is None or not facts.ai_cores:
        return None
    keys = pd.MultiIndex.from_frame(ops[KEYS])
    matrix = pd.Series(facts.ai_cores).reindex(keys).to_numpy(np.float64)
    vector = pd.Series(facts.vector_cores or facts.ai_cores).reindex(keys).to_numpy(np.float64)
    cores = np.where(ops["core"] == ascend.VECTOR, vector, matrix)
    blocks = ops["block_num"].astype("Float64").to_numpy(np.float64, na_value=np.nan)
    on_core = ops["core"].isin([ascend.AI_CORE, ascend.VECTOR, ascend.MIX]).to_numpy(np.bool_)
    known = on_core & (cores > 0) & (blocks > 0)
    if not known.any():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = ops[known & wrong(blocks, cores)]
    share = part(float(rows["duration_us"].sum()), _time(facts))
    return Found(len(rows), len(rows) > 0, _said(len(rows), text, share), _longest(rows), share)


def _dynamic(facts: Facts) -> Found | None:
    ops = facts.ops
    if ops is None or (ops["op_state"] == "").all():
        return None
    told = ops[ops["op_state"].isin(["dynamic", "static"])]
    if not len(told):
        return None
    share = float((told["op_state"] == "dynamic").mean())
    return Found(share, share == 1.0, f"{_percent(share)} of the tasks have dynamic shapes.", _longest(told[told["op_state"] == "dynamic"]))


def _long(ops: pd.DataFrame) -> Any:
    return ops["duration_us"] > LONG_US


def _cpu(ops: pd.DataFrame) -> Any:
    return (ops["core"] == ascend.AI_CPU) & _long(ops)


def _full_precision(ops: pd.DataFrame) -> Any:
    """Matrix ops on FLOAT alone, without HF32."""
    matrix = _kind(ops["op_type"], _MATRIX)
    return matrix & ops["input_data_types"].str.upper().str.fullmatch(r"FLOAT(;FLOAT)*;?") & (ops["hf32_eligible"].str.upper() != "YES")


def _unaligned(ops: pd.DataFrame) -> Any:
    """Matrix products whose inner size is no multiple of 256; without transposes, that is the last size of the first input."""
    matrix = ops["op_type"].str.lower().str.contains("matmul", regex=False) & _long(ops)
    inner = pd.to_numeric(ops["input_shapes"].str.extract(r"^[^;]*?(\d+)\s*(?:;|$)")[0], errors="coerce")
    return matrix & inner.notna() & (inner % 256 != 0)


def _counters(name: str, title: str, limit: float | None, fix: str, check: Any, about: str = "Pipes", lacks: str = _NO_PMU) -> Rule:
    return Rule(name, about, title, ("pmu",), limit, "fraction" if limit is not None and limit <= 1 else "", fix, check, lacks)


def _over(name: str, limit: float) -> Callable[[pd.DataFrame], Any]:
    return lambda pmu: pmu[name] > limit


RULES = (
    Rule(
        "conversions", "Ops", "Convert formats less often", ("types",), 0.1, "fraction",
        "Keep one format through the network (channels a multiple of 16), merge casts, drop transposes of the input.", _conversions,
        _NO_TYPES,
    ),
    Rule("ai_cpu", "AI CPU", "Move ops off the AI CPU", ("types",), LONG_US, "us",
         "Change their type of data, or replace the op: AI Core has kernels for float, float16 and int32 of most.", _ai_cpu, _NO_TYPES),
    Rule("ai_cpu_int64", "AI CPU", "Cast INT64 inputs to INT32", ("ops",), 0, "",
         "tf.cast(x, tf.int32) before the op, where the values fit.",
         _ops_where(lambda ops: _cpu(ops) & ops["input_data_types"].str.upper().str.contains("INT64", regex=False),
                    "on the AI CPU have INT64 inputs and take more than 20 µs"), _NO_OPS),
    Rule("strided_slice_grad", "AI CPU", "Move StridedSliceGrad to the AI Core", ("ops",), 0, "",
         "Slice along the first dimension, or use tf.split or tf.gather.",
         _ops_where(lambda ops: _cpu(ops) & (ops["op_type"].str.lower() == "stridedslicegrad"),
                    "of StridedSliceGrad on the AI CPU take more than 20 µs"), _NO_OPS),
    Rule("get_next", "AI CPU", "Sink the data queue to the device", ("types",), 0.1, "fraction",
         "Set enable_data_pre_proc, so that the next batch is on the device when GetNext asks for it.", _get_next, _NO_TYPES),
    Rule("one_type", "Ops", "Look at the type of op that takes the most", ("types",), 0.2, "fraction",
         "See its pipes below: an op that keeps none busy can be tuned (AOE), one bound by memory wants fusion.", _one_type, _NO_TYPES),
    Rule("full_precision", "Ops", "Compute matrices in mixed precision", ("ops",), 0, "",
         "Set precision_mode to allow_mix_precision, or allow HF32.",
         _ops_where(_full_precision, "multiply matrices of FLOAT without HF32",
                    lambda ops: bool((ops["input_data_types"] != "").any())), _NO_OPS),
    Rule("unaligned", "Ops", "Pad matrices to a multiple of 256", ("ops",), 0, "",
         "Round the size that is summed over up to a multiple of 256.",
         _ops_where(_unaligned, "multiply matrices whose inner size is no multiple of 256, each longer than 20 µs",
                    lambda ops: bool((ops["input_shapes"] != "").any())), _NO_OPS),
    Rule("is_finite", "Ops", "Check for overflow on the device", ("types",), 0, "",
         "Use the loss scale manager of the adapter, which reads a flag of the device.", _is_finite, _NO_TYPES),
    Rule("sync_batch_norm", "Ops", "Synchronise batch norms less often", ("types",), 20, "",
         "Remove SyncBatchNorm, or use its fast version.", _sync_norm, _NO_TYPES),
    Rule("dynamic", "Ops", "Keep shapes the same", ("ops",), 1, "fraction",
         "Pad or bucket inputs; with dynamic shapes set jit_compile to False.", _dynamic, "No op_summary says whether shapes are dynamic."),
    Rule("few_blocks", "Blocks", "Use all cores", ("ops",), 0, "", "Larger inputs, or tune the op (AOE).", _few_blocks, _NO_BLOCKS),
    Rule("uneven_blocks", "Blocks", "Spread blocks evenly over the cores", ("ops",), 0, "",
         "Tune the op (AOE), so that its blocks are a multiple of the cores.", _uneven_blocks, _NO_BLOCKS),
    _counters("memory_bound", "Move less data", 0.5, "Fuse ops, move larger pieces at a time, avoid moving the same data again.",
              _memory_bound),
    _counters("no_bound", "Tune long ops that keep no pipe busy", None, "Tune the op (AOE), or use another implementation.",
              _counters_where(lambda pmu: (pmu["duration_us"] >= LONG_US) & (pmu["bound_fraction"] <= SATURATED),
                              "of 20 µs and more keep no pipe busy for more than 80%", "bound_fraction")),
    _counters("scalar", "Reduce scalar work", SATURATED, "Fewer branches and address computations: larger tiles.",
              _counters_where(_over("scalar_fraction", SATURATED), "keep the scalar unit busy for more than 80%", "scalar_fraction")),
    _counters("vector_bound", "Use the vector unit better", None, "Longer repeats and full masks in vector instructions.",
              _counters_where(lambda pmu: pmu["vector_fraction"] > pmu[["mte2_fraction", "cube_fraction"]].max(axis=1).fillna(0),
                              "are bound by the vector unit", "vector_fraction")),
    _counters("cube_on_vector", "Keep matrix ops off the vector unit", SATURATED, "Fuse what surrounds the product, or another format.",
              _counters_where(lambda pmu: (pmu["vector_fraction"] > SATURATED) & (pmu["cube_fraction"] > 0) & _long(pmu),
                              "that use the cube spend more than 80% on the vector unit", "vector_fraction", "cube_fraction")),
    _counters("low_cube", "Use the cube better", SATURATED, "Larger sizes, multiples of 16; see what the ops are bound by.",
              _counters_where(lambda pmu: (pmu["cube_fraction"] > 0) & (pmu["cube_fraction"] < SATURATED) & _long(pmu),
                              "longer than 20 µs keep the cube busy for less than 80%", "cube_fraction")),
    _counters("bank_group_conflict", "Avoid conflicts of bank groups", 0.04, "Other addresses or strides of the vector's operands.",
              _counters_where(_over("bank_group_conflict_fraction", 0.04), "lose more than 4% to conflicts of bank groups",
                              "bank_group_conflict_fraction"), lacks=_NO_CONFLICTS),
    _counters("bank_conflict", "Avoid conflicts of banks", 0.04, "Other addresses or strides of the vector's operands.",
              _counters_where(_over("bank_conflict_fraction", 0.04), "lose more than 4% to conflicts of banks", "bank_conflict_fraction"),
              lacks=_NO_CONFLICTS),
    _counters("affinity", "Give the cube more of the work", 0.5, "Matrix products and convolutions instead of element by element ops.",
              _affinity),
)  # fmt: skip
