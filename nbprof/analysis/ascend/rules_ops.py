"""Rules about the ops of an NPU: where they run, what bounds them, their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend.ascend import KEYS, part
from nbprof.analysis.ascend.facts import (
    ASCEND,
    NO_OPS,
    AscendCheck,
    AscendRule,
    Facts,
    Measured,
    percent,
)
from nbprof.analysis.ascend.pmu import LONG_US, SATURATED
from nbprof.analysis.rule import MSADVISOR, MSPROF, MSPROF_ANALYZE, NPU, OURS, Rule, Threshold
from nbprof.display import wording

_NO_TYPES = "Neither op_statistic nor op_summary was recorded: enable task_trace."
_NO_PMU = "No counters of this group were recorded: set aic_metrics to PipeUtilization."
_NO_CONFLICTS = "No counters of this group were recorded: set aic_metrics to ResourceConflictRatio."
_NO_BLOCKS = "The blocks of ops or the cores of the device were not recorded."

CONVERSIONS = ("transdata", "transpose", "transposed", "cast")
_MATRIX = ("matmul", "conv", "batchmatmul", "gemm")


def _time(facts: Facts) -> float:
    """Time in us of the tasks of op_summary, without communication."""
    ops = facts.ops
    if ops is None:
        return 0.0
    return float(ops[ops["core"] != ascend.COMMUNICATION]["duration_us"].sum())


def _types_time(types: pd.DataFrame) -> float:
    return float(types["total_us"].sum())


def _tasks(count: int, predicate: str, share: float) -> str:
    """A sentence on a number of tasks and their share of time."""
    if not count:
        return f"No tasks {predicate}."
    of_time = f", {percent(share)} of op time" if np.isfinite(share) else ""
    return f"{wording.plural(count, 'task')} {predicate}{of_time}."


def _measure_tasks(
    rows: pd.DataFrame, facts: Facts, predicate: str, *, limit: float = 0
) -> Measured:
    """The number of tasks; a finding above the limit."""
    share = part(float(rows["duration_us"].sum()), _time(facts))
    return Measured(
        value=len(rows),
        found=len(rows) > limit,
        evidence=_tasks(len(rows), predicate, share),
        ops=_longest(rows),
        share=share,
    )


def _longest(rows: pd.DataFrame) -> Any:
    """Names of ops, most time first."""
    return rows.groupby("op")["duration_us"].sum().sort_values(ascending=False, kind="stable").index


def _kind(names: pd.Series[Any], words: tuple[str, ...]) -> Any:
    lower = names.str.lower()
    return np.logical_or.reduce([lower.str.startswith(word).to_numpy(np.bool_) for word in words])


def _conversions(facts: Facts, limit: Threshold) -> Measured | None:
    types = facts.types
    if types is None or not _types_time(types) > 0:
        return None
    rows = types[types["op_type"].str.lower().isin(CONVERSIONS)]
    count, share = int(rows["tasks"].sum()), part(float(rows["total_us"].sum()), _types_time(types))
    trans_data = int(rows[rows["op_type"].str.lower() == "transdata"]["tasks"].sum())
    text = "No tasks convert formats."
    if count:
        sums = rows.groupby("op_type")["tasks"].sum()
        kinds = ", ".join(f"{name} {number:,}" for name, number in sums.items())
        text = f"{count:,} tasks convert formats and types ({kinds}), {percent(share)} of op time."
    return Measured(
        value=share,
        found=share > limit["limit"] or trans_data > limit["trans_data"],
        evidence=text,
        ops=rows["op_type"],
        share=share,
    )


def _ai_cpu(facts: Facts, limit: Threshold) -> Measured | None:
    types = facts.types
    if types is None or not len(types):
        return None
    rows = types[types["core"] == ascend.AI_CPU]
    if not len(rows):
        return Measured(value=0.0, found=False, evidence="No op ran on the AI CPU.")
    share = part(float(rows["total_us"].sum()), _types_time(types))
    text = _tasks(int(rows["tasks"].sum()), "ran on the AI CPU", share)
    # Without the longest duration, the mean of a type is a lower bound for it.
    longest = float(rows["max_us"].fillna(rows["avg_us"]).max())
    if not np.isfinite(longest):
        text = f"{text} The longest duration was not recorded."
        return Measured(value=None, found=True, evidence=text, ops=rows["op_type"], share=share)
    at_least = "" if rows["max_us"].notna().all() else "at least "
    text = f"{text.removesuffix('.')}; the longest took {at_least}{wording.micros(longest)}."
    return Measured(
        value=longest,
        found=longest >= limit["limit"],
        evidence=text,
        ops=rows["op_type"],
        share=share,
    )


def _get_next(facts: Facts, limit: Threshold) -> Measured | None:
    types = facts.types
    if types is None or not _types_time(types) > 0:
        return None
    is_get_next = types["op_type"].str.lower().str.contains("getnext", regex=False)
    rows = types[(types["core"] == ascend.AI_CPU) & is_get_next]
    share = part(float(rows["total_us"].sum()), _types_time(types))
    text = "No GetNext ran on the AI CPU."
    if len(rows):
        text = f"GetNext on the AI CPU takes {percent(share)} of op time."
    return Measured(
        value=share, found=share > limit["limit"], evidence=text, ops=rows["op_type"], share=share
    )


def _one_type(facts: Facts, limit: Threshold) -> Measured | None:
    types = facts.types
    if types is None or not _types_time(types) > 0:
        return None
    sums = types.groupby("op_type")["total_us"].sum()
    name, share = str(sums.idxmax()), part(float(sums.max()), _types_time(types))
    # A hint where to look, not a defect: it is listed after those.
    return Measured(
        value=share,
        found=share > limit["limit"],
        evidence=f"{name} takes {percent(share)} of op time.",
        ops=[name],
    )


def _present(words: tuple[str, ...], predicate: str) -> AscendCheck:
    """A check that counts tasks whose type begins with one of some words; `predicate` follows their
    number.
    """

    def check(facts: Facts, limit: Threshold) -> Measured | None:
        types = facts.types
        if types is None or not len(types):
            return None
        rows = types[_kind(types["op_type"], words)]
        share = part(float(rows["total_us"].sum()), _types_time(types))
        of_one_device = ascend.most(rows, "tasks")
        return Measured(
            value=of_one_device,
            found=of_one_device > limit["limit"],
            evidence=_tasks(int(rows["tasks"].sum()), predicate, share),
            ops=rows["op_type"],
            share=share,
        )

    return check


def _ops_where(
    chosen: Callable[[pd.DataFrame, Threshold], Any],
    text: str,
    needs: Callable[[pd.DataFrame], bool] = lambda _: True,
) -> AscendCheck:
    """A check that counts tasks of op_summary; `text` follows their number and ends before their
    share.
    """

    def check(facts: Facts, limit: Threshold) -> Measured | None:
        ops = facts.ops
        if ops is None or not needs(ops):
            return None
        return _measure_tasks(ops[chosen(ops, limit)], facts, text, limit=limit["limit"])

    return check


def _counters_where(
    chosen: Callable[[pd.DataFrame, Threshold], Any], text: str, *needs: str
) -> AscendCheck:
    """The same for counters; unknown if a column of `needs` has no number."""

    def check(facts: Facts, limit: Threshold) -> Measured | None:
        pmu = facts.pmu
        if pmu is None or any(pmu[name].isna().all() for name in needs):
            return None
        return _measure_tasks(pmu[chosen(pmu, limit)], facts, text)

    return check


def _memory_bound(facts: Facts, limit: Threshold) -> Measured | None:
    pmu = facts.pmu
    if pmu is None or pmu["memory_bound"].isna().all():
        return None
    rows = pmu[pmu["memory_bound"] > limit["bound"]]
    tasks = _measure_tasks(rows, facts, "move more than they compute")
    share = part(float(rows["duration_us"].sum()), _time(facts))
    return replace(tasks, value=share, found=share > limit["limit"])


def _affinity(facts: Facts, limit: Threshold) -> Measured | None:
    pmu = facts.pmu
    if pmu is None or (pmu["bound_by"] == "").all():
        return None
    cube = float(pmu[pmu["bound_by"] == "cube"]["duration_us"].sum())
    share = part(cube, float(pmu["duration_us"].sum()))
    return Measured(
        value=share,
        found=share < limit["limit"],
        evidence=(
            f"The cube is the busiest pipe for {percent(share)} of the time of tasks with counters."
        ),
    )


def _blocks(wrong: Callable[[Any, Any], Any], text: str) -> AscendCheck:
    """A check that compares the blocks of AI Core and vector tasks with the cores of their
    device.
    """

    def check(facts: Facts, limit: Threshold) -> Measured | None:
        ops = facts.ops
        if ops is None or not facts.ai_cores:
            return None
        keys = pd.MultiIndex.from_frame(ops[KEYS])
        matrix = pd.Series(facts.ai_cores).reindex(keys).to_numpy(np.float64)
        vector = pd.Series(facts.vector_cores or facts.ai_cores).reindex(keys).to_numpy(np.float64)
        cores = np.where(ops["core"] == ascend.VECTOR, vector, matrix)
        blocks = ops["block_num"].astype("Float64").to_numpy(np.float64, na_value=np.nan)
        on_core = ops["core"].isin([ascend.AI_CORE, ascend.VECTOR, ascend.MIX]).to_numpy(np.bool_)
        comparable = on_core & (cores > 0) & (blocks > 0)
        if not comparable.any():
            return None
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = ops[comparable & wrong(blocks, cores)]
        return _measure_tasks(rows, facts, text, limit=limit["limit"])

    return check


def _dynamic(facts: Facts, limit: Threshold) -> Measured | None:
    ops = facts.ops
    if ops is None or (ops["op_state"] == "").all():
        return None
    typed = ops[ops["op_state"].isin(["dynamic", "static"])]
    if not len(typed):
        return None
    share = float((typed["op_state"] == "dynamic").mean())
    return Measured(
        value=share,
        found=share >= limit["limit"],
        evidence=f"{percent(share)} of the tasks have dynamic shapes.",
        ops=_longest(typed[typed["op_state"] == "dynamic"]),
    )


def _long(rows: pd.DataFrame, limit: Threshold) -> Any:
    return rows["duration_us"] > limit["long_us"]


def _long_on_cpu(ops: pd.DataFrame, limit: Threshold) -> Any:
    return (ops["core"] == ascend.AI_CPU) & _long(ops, limit)


def _int64(ops: pd.DataFrame, limit: Threshold) -> Any:
    return _long_on_cpu(ops, limit) & ops["input_data_types"].str.upper().str.contains(
        "INT64", regex=False
    )


def _strided_slice_grad(ops: pd.DataFrame, limit: Threshold) -> Any:
    return _long_on_cpu(ops, limit) & (ops["op_type"].str.lower() == "stridedslicegrad")


def _full_precision(ops: pd.DataFrame, _: Threshold) -> Any:
    """Matrix ops on FLOAT alone, without HF32."""
    matrix = _kind(ops["op_type"], _MATRIX)
    return (
        matrix
        & ops["input_data_types"].str.upper().str.fullmatch(r"FLOAT(;FLOAT)*;?")
        & (ops["hf32_eligible"].str.upper() != "YES")
    )


def _unaligned(ops: pd.DataFrame, limit: Threshold) -> Any:
    """Matrix products whose inner size is not a multiple of 256; without transposes, that is the
    last size of the first input.
    """
    matrix = ops["op_type"].str.lower().str.contains("matmul", regex=False) & _long(ops, limit)
    last_size = ops["input_shapes"].str.extract(r"^[^;]*?(\d+)\s*(?:;|$)")[0]
    inner = pd.to_numeric(last_size, errors="coerce")
    return matrix & inner.notna() & (inner % limit["multiple"] != 0)


def _no_bound(pmu: pd.DataFrame, limit: Threshold) -> Any:
    return (pmu["duration_us"] >= limit["long_us"]) & (pmu["bound_fraction"] <= limit["busy"])


def _vector_bound(pmu: pd.DataFrame, _: Threshold) -> Any:
    return pmu["vector_fraction"] > pmu[["mte2_fraction", "cube_fraction"]].max(axis=1).fillna(0)


def _cube_on_vector(pmu: pd.DataFrame, limit: Threshold) -> Any:
    return (
        (pmu["vector_fraction"] > limit["limit"]) & (pmu["cube_fraction"] > 0) & _long(pmu, limit)
    )


def _low_cube(pmu: pd.DataFrame, limit: Threshold) -> Any:
    return (pmu["cube_fraction"] > 0) & (pmu["cube_fraction"] < limit["limit"]) & _long(pmu, limit)


def _over(name: str) -> Callable[[pd.DataFrame, Threshold], Any]:
    return lambda pmu, limit: pmu[name] > limit["limit"]


def _has(name: str) -> Callable[[pd.DataFrame], bool]:
    return lambda ops: bool((ops[name] != "").any())


RULES: tuple[AscendRule, ...] = (
    Rule(
        "conversions",
        _conversions,
        threshold=Threshold(
            "> {limit:percent} of op time, or > {trans_data:g} TransData", limit=0.1, trans_data=2
        ),
        source=f"{MSPROF}; nbprof's share of time",
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks that convert formats and types",
        title="Convert formats less often",
        fix=(
            "Keep one format throughout the network (channels a multiple of 16), merge casts,"
            " drop transposes of the input."
        ),
        about="Ops",
        unit="fraction",
        needs=("types",),
        lacks=_NO_TYPES,
    ),
    Rule(
        "ai_cpu",
        _ai_cpu,
        threshold=Threshold("the longest ≥ {limit:g} µs", limit=LONG_US),
        source=MSPROF_ANALYZE,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks on the AI CPU",
        title="Move ops off the AI CPU",
        fix=(
            "Change the data type, or replace the op: AI Core has float, float16 and int32"
            " kernels for most ops."
        ),
        about="AI CPU",
        unit="us",
        needs=("types",),
        lacks=_NO_TYPES,
    ),
    Rule(
        "ai_cpu_int64",
        _ops_where(_int64, "on the AI CPU have INT64 inputs and take more than 20 µs"),
        threshold=Threshold("any > {long_us:g} µs", limit=0, long_us=LONG_US),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks on the AI CPU with INT64 inputs",
        title="Cast INT64 inputs to INT32",
        fix="tf.cast(x, tf.int32) before the op, if the values fit.",
        about="AI CPU",
        needs=("ops",),
        lacks=NO_OPS,
    ),
    Rule(
        "strided_slice_grad",
        _ops_where(_strided_slice_grad, "of StridedSliceGrad on the AI CPU take more than 20 µs"),
        threshold=Threshold("any > {long_us:g} µs", limit=0, long_us=LONG_US),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="StridedSliceGrad on the AI CPU",
        title="Move StridedSliceGrad to the AI Core",
        fix="Slice along the first dimension, or use tf.split or tf.gather.",
        about="AI CPU",
        needs=("ops",),
        lacks=NO_OPS,
    ),
    Rule(
        "get_next",
        _get_next,
        threshold=Threshold("> {limit:percent} of op time", limit=0.1),
        source=OURS,
        target=ASCEND,
        applies=NPU,
        looks_at="GetNext on the AI CPU",
        title="Sink the data queue to the device",
        fix=(
            "Set enable_data_pre_proc so that the next batch is already on the device when"
            " GetNext needs it."
        ),
        about="AI CPU",
        unit="fraction",
        needs=("types",),
        lacks=_NO_TYPES,
    ),
    Rule(
        "one_type",
        _one_type,
        threshold=Threshold("> {limit:percent} of op time", limit=0.2),
        source=OURS,
        target=ASCEND,
        applies=NPU,
        looks_at="The op type with the most time",
        title="Look at the op type with the most time",
        fix=(
            "See its pipes below: an op that keeps no pipe busy can be tuned (AOE), a"
            " memory-bound one should be fused."
        ),
        advises=False,
        about="Ops",
        unit="fraction",
        needs=("types",),
        lacks=_NO_TYPES,
    ),
    Rule(
        "full_precision",
        _ops_where(
            _full_precision, "multiply FLOAT matrices without HF32", _has("input_data_types")
        ),
        threshold=Threshold("any", limit=0),
        source=OURS,
        target=ASCEND,
        applies=NPU,
        looks_at="Matrix ops on FLOAT only, without HF32",
        title="Use mixed precision for matrix ops",
        fix="Set precision_mode to allow_mix_precision, or allow HF32.",
        about="Ops",
        needs=("ops",),
        lacks=NO_OPS,
    ),
    Rule(
        "unaligned",
        _ops_where(
            _unaligned,
            (
                "longer than 20 µs multiply matrices with an inner dimension that is not a"
                " multiple of 256"
            ),
            _has("input_shapes"),
        ),
        threshold=Threshold(
            "any > {long_us:g} µs, not a multiple of {multiple:g}",
            limit=0,
            long_us=LONG_US,
            multiple=256,
        ),
        source=MSPROF_ANALYZE,
        target=ASCEND,
        applies=NPU,
        looks_at="Inner dimension of matrix products",
        title="Pad matrices to a multiple of 256",
        fix="Round the inner dimension up to a multiple of 256.",
        about="Ops",
        needs=("ops",),
        lacks=NO_OPS,
    ),
    Rule(
        "is_finite",
        _present(("isfinite",), "check numbers for overflow"),
        threshold=Threshold("any", limit=0),
        source=MSADVISOR,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks of IsFinite",
        title="Check for overflow on the device",
        fix="Use the adapter's loss scale manager, which reads a flag on the device.",
        about="Ops",
        needs=("types",),
        lacks=_NO_TYPES,
    ),
    Rule(
        "sync_batch_norm",
        _present(("syncbatchnorm", "synclbn"), "synchronize batch norm across devices"),
        threshold=Threshold("> {limit:g}", limit=20),
        source=MSPROF_ANALYZE,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks of SyncBatchNorm",
        title="Synchronize batch norm less often",
        fix="Remove SyncBatchNorm, or use its fast version.",
        about="Ops",
        needs=("types",),
        lacks=_NO_TYPES,
    ),
    Rule(
        "dynamic",
        _dynamic,
        threshold=Threshold("{limit:percent} of the tasks", limit=1),
        source=MSPROF_ANALYZE,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks with dynamic shapes",
        title="Use static shapes",
        fix="Pad or bucket inputs; with dynamic shapes set jit_compile to False.",
        about="Ops",
        unit="fraction",
        needs=("ops",),
        lacks="op_summary does not say whether shapes are dynamic.",
    ),
    Rule(
        "few_blocks",
        _blocks(lambda blocks, cores: blocks < cores, "use fewer blocks than there are cores"),
        threshold=Threshold("any", limit=0),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks with fewer blocks than there are cores",
        title="Use all cores",
        fix="Use larger inputs, or tune the op (AOE).",
        about="Blocks",
        needs=("ops",),
        lacks=_NO_BLOCKS,
    ),
    Rule(
        "uneven_blocks",
        _blocks(
            lambda blocks, cores: (blocks > cores) & (blocks % cores != 0),
            "leave cores idle in their last round of blocks",
        ),
        threshold=Threshold("any", limit=0),
        source=MSPROF_ANALYZE,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks with more blocks than cores, but not a multiple of them",
        title="Spread blocks evenly over the cores",
        fix="Tune the op (AOE) so that its blocks are a multiple of the cores.",
        about="Blocks",
        needs=("ops",),
        lacks=_NO_BLOCKS,
    ),
    Rule(
        "memory_bound",
        _memory_bound,
        threshold=Threshold(
            "> {limit:percent} of the time, in tasks with memory bound > {bound:g}",
            limit=0.5,
            bound=1,
        ),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks that move more than they compute",
        title="Move less data",
        fix="Fuse ops, move larger chunks, avoid moving the same data twice.",
        about="Pipes",
        unit="fraction",
        needs=("pmu",),
        lacks=_NO_PMU,
    ),
    Rule(
        "no_bound",
        _counters_where(
            _no_bound, "of 20 µs or more keep no pipe busy for more than 80%", "bound_fraction"
        ),
        threshold=Threshold(
            "any ≥ {long_us:g} µs with no pipe > {busy:percent} busy",
            long_us=LONG_US,
            busy=SATURATED,
        ),
        source=MSPROF_ANALYZE,
        target=ASCEND,
        applies=NPU,
        looks_at="Pipes of long tasks",
        title="Tune long ops that keep no pipe busy",
        fix="Tune the op (AOE), or use another implementation.",
        about="Pipes",
        needs=("pmu",),
        lacks=_NO_PMU,
    ),
    Rule(
        "scalar",
        _counters_where(
            _over("scalar_fraction"),
            "keep the scalar unit busy for more than 80%",
            "scalar_fraction",
        ),
        threshold=Threshold("any > {limit:percent} busy", limit=SATURATED),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="The scalar unit",
        title="Reduce scalar work",
        fix="Reduce branches and address computations: use larger tiles.",
        about="Pipes",
        unit="fraction",
        needs=("pmu",),
        lacks=_NO_PMU,
    ),
    Rule(
        "vector_bound",
        _counters_where(_vector_bound, "are bound by the vector unit", "vector_fraction"),
        threshold=Threshold("any"),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Tasks whose vector unit is busier than the cube and MTE2",
        title="Use the vector unit better",
        fix="Use longer repeats and full masks in vector instructions.",
        about="Pipes",
        needs=("pmu",),
        lacks=_NO_PMU,
    ),
    Rule(
        "cube_on_vector",
        _counters_where(
            _cube_on_vector,
            "that use the cube spend more than 80% on the vector unit",
            "vector_fraction",
            "cube_fraction",
        ),
        threshold=Threshold(
            "any > {limit:percent} busy, > {long_us:g} µs", limit=SATURATED, long_us=LONG_US
        ),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="The vector unit in tasks that use the cube",
        title="Keep matrix ops off the vector unit",
        fix="Fuse the ops around the product, or use another format.",
        about="Pipes",
        unit="fraction",
        needs=("pmu",),
        lacks=_NO_PMU,
    ),
    Rule(
        "low_cube",
        _counters_where(
            _low_cube, "longer than 20 µs keep the cube busy for less than 80%", "cube_fraction"
        ),
        threshold=Threshold(
            "any < {limit:percent} busy, > {long_us:g} µs", limit=SATURATED, long_us=LONG_US
        ),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="The cube in tasks that use it",
        title="Use the cube better",
        fix="Use larger sizes, multiples of 16; see what the ops are bound by.",
        about="Pipes",
        unit="fraction",
        needs=("pmu",),
        lacks=_NO_PMU,
    ),
    Rule(
        "bank_group_conflict",
        _counters_where(
            _over("bank_group_conflict_fraction"),
            "lose more than 4% to bank group conflicts",
            "bank_group_conflict_fraction",
        ),
        threshold=Threshold("any > {limit:percent} of its cycles", limit=0.04),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Bank group conflicts",
        title="Avoid bank group conflicts",
        fix="Change the addresses or strides of the vector operands.",
        about="Pipes",
        unit="fraction",
        needs=("pmu",),
        lacks=_NO_CONFLICTS,
    ),
    Rule(
        "bank_conflict",
        _counters_where(
            _over("bank_conflict_fraction"),
            "lose more than 4% to bank conflicts",
            "bank_conflict_fraction",
        ),
        threshold=Threshold("any > {limit:percent} of its cycles", limit=0.04),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Bank conflicts",
        title="Avoid bank conflicts",
        fix="Change the addresses or strides of the vector operands.",
        about="Pipes",
        unit="fraction",
        needs=("pmu",),
        lacks=_NO_CONFLICTS,
    ),
    Rule(
        "affinity",
        _affinity,
        threshold=Threshold("< {limit:percent} of the time", limit=0.5),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Time in which the cube is the busiest pipe",
        title="Move more work to the cube",
        fix="Use matrix products and convolutions instead of elementwise ops.",
        advises=False,
        about="Pipes",
        unit="fraction",
        needs=("pmu",),
        lacks=_NO_PMU,
    ),
)
