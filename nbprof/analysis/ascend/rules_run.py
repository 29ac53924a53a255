"""Rules about iterations, streams, the host, and differences between devices."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend import ops as ascend_ops
from nbprof.analysis.ascend import tables as ascend_tables
from nbprof.analysis.ascend import waits as ascend_waits
from nbprof.analysis.ascend.facts import ASCEND, NO_OPS, AscendRule, Facts, Measured, percent
from nbprof.analysis.rule import MSADVISOR, MSPROF, MSPROF_ANALYZE, NPU, OURS, Rule, Threshold
from nbprof.display import wording

_NO_ITERATIONS = "No iteration trace was recorded: enable training_trace."
_ONE_DEVICE = "Only one device was recorded, so there is none to compare it with."
_NO_API = "No api_statistic was recorded: enable runtime_api."
_SYNC = "synchronize"
_MEMORY_CALLS = (
    "aclmallocmeminner",
    "aclrtfreephysical",
    "aclrtfree",
    "aclrtmalloc",
    "aclrtmallocphysical",
)


def _largest(rows: pd.DataFrame, column: str) -> dict[Hashable, Any]:
    """The row with the most of something."""
    return (
        rows.sort_values(column, ascending=False, kind="stable", na_position="last")
        .head(1)
        .to_dict("records")[0]
    )


def _input(facts: Facts, limit: Threshold) -> Measured | None:
    main = facts.main
    if main is None or main["data_aug_fraction"].isna().all():
        return None
    row = _largest(main, "data_aug_fraction")
    share = float(row["data_aug_fraction"])
    duration = wording.millis_two(row["data_aug_ms"], row["iteration_ms"], " of ")
    text = (
        f"{percent(share)} of an iteration{_on_device(main, row)} ({duration}) is before FP Start."
    )
    return Measured(value=share, found=share > limit["limit"], evidence=text, share=share)


def _reduce(facts: Facts, limit: Threshold) -> Measured | None:
    main = facts.main
    if main is None or main["all_reduce_fraction"].isna().all():
        return None
    row = _largest(main, "all_reduce_fraction")
    share, hidden = float(row["all_reduce_fraction"]), float(row["hidden_all_reduce_ms"])
    overlap = "none overlaps"
    if hidden > 0:
        overlap = f"another {wording.millis(hidden)} overlaps"
    text = (
        f"{percent(share)} of an iteration{_on_device(main, row)}"
        f" ({wording.millis(row['all_reduce_ms'])}) is all-reduce of gradients after BP End;"
        f" {overlap} the backward pass."
    )
    return Measured(value=share, found=share > limit["limit"], evidence=text, share=share)


def _first(facts: Facts, limit: Threshold) -> Measured | None:
    iterations = facts.iterations
    main = facts.main
    if iterations is None or main is None:
        return None
    mean = float(main["iteration_ms"].iloc[0])
    device_iterations = iterations[
        iterations["main"]
        & (iterations["device"] == main["device"].iloc[0])
        & (iterations["host"] == main["host"].iloc[0])
    ]
    first = device_iterations["iteration_ms"].iloc[0]
    if pd.isna(first) or not mean > 0:
        return None
    ratio = float(first) / mean
    return Measured(
        value=ratio,
        found=ratio > limit["limit"],
        evidence=(
            f"The first iteration took {wording.millis(first)}, {ratio:.1f} times the mean after"
            " warm-up."
        ),
    )


def _slow(facts: Facts, limit: Threshold) -> Measured | None:
    main = facts.main
    if main is None or len(main) < 2:
        return None
    times = main["iteration_ms"]
    spread = float((times.max() - times.min()) / times.mean())
    slowest = _device(_largest(main, "iteration_ms"))
    text = (
        f"Mean iteration times of {len(main)} devices differ by {percent(spread)}; the slowest is"
        f" {slowest}: {wording.millis(times.max())}."
    )
    exceeds = spread > limit["limit"]
    share = spread if exceeds else None
    return Measured(value=spread, found=exceeds, evidence=text, share=share)


def _slow_input(facts: Facts, limit: Threshold) -> Measured | None:
    main = facts.main
    if main is None or len(main) < 2:
        return None
    input_ms = main["data_aug_ms"]
    mean = float(input_ms.mean())
    if input_ms.isna().any() or not mean > 0:
        return None
    off = (input_ms - mean).abs() / mean
    worst = _largest(main.assign(off=off), "off")
    text = (
        f"The Data Aug Bound of {_device(worst)} is {wording.millis(worst['data_aug_ms'])}; the"
        f" mean over all devices is {wording.millis(mean)}."
    )
    largest = float(off.max())
    return Measured(value=largest, found=largest > limit["limit"], evidence=text)


def _device(row: dict[Hashable, Any]) -> str:
    """The name of a device in a sentence; the recording is named if device numbers repeat."""
    if row["host"]:
        return f"device {row['device']} of {row['host']}"
    return f"device {row['device']}"


def _on_device(main: pd.DataFrame, row: dict[Hashable, Any]) -> str:
    """The device of a sentence, if there are several."""
    return f" on {_device(row)}" if len(main) > 1 else ""


def _on_one(rows: pd.DataFrame) -> str:
    """Words for a number of the device that has the most, if there are several."""
    return " on one device" if len(rows[ascend.KEYS].drop_duplicates()) > 1 else ""


def _wait(facts: Facts, limit: Threshold) -> Measured | None:
    ops = facts.ops
    if ops is None or ops["wait_us"].isna().all():
        return None
    share = ascend_waits.rule_share(ops, limit["long_us"])
    long = ops[ops["wait_us"] > limit["long_us"]]
    text = (
        f"Streams waited for {percent(share)} of their busy and waiting time, in {len(long):,}"
        " waits of more than 10 µs each."
    )
    idle_share, input_share = _idle_shares(facts.waits)
    if input_share > 0:
        text += f" {percent(input_share)} of the device's idle time was Data Aug Bound."
    return Measured(
        value=share,
        found=share > limit["limit"],
        evidence=text,
        ops=long.groupby("op")["wait_us"].sum().sort_values(ascending=False).index,
        share=idle_share,
    )


def _idle_shares(waits: pd.DataFrame | None) -> tuple[float | None, float]:
    """Share of time in which devices were idle for another reason than input; and share of idle
    time that was for input.
    """
    if waits is None:
        return None, 0.0
    rows = waits[waits["stream"].isna()]
    if not len(rows):
        return None, 0.0
    wait, busy = float(rows["wait_us"].sum()), float(rows["busy_us"].sum())
    for_input = float(rows["input_wait_us"].sum())
    idle_share = ascend.part(max(wait - for_input, 0.0), wait + busy)
    return idle_share, min(1.0, for_input / wait) if wait > 0 else 0.0


def _sync(facts: Facts, limit: Threshold) -> Measured | None:
    api = facts.api
    if api is None:
        return None
    acl = api[api["level"].str.lower() == "acl"]
    if not len(acl) or not acl["total_us"].sum() > 0:
        return None
    waiting = acl[acl["api"].str.lower().str.contains(_SYNC, regex=False)]
    share = float(waiting["total_us"].sum() / acl["total_us"].sum())
    calls = int(waiting["count"].sum())
    waits = "call that waits" if calls == 1 else "calls that wait"
    text = f"{percent(share)} of the time in AscendCL calls is in {calls:,} {waits} for the device."
    return Measured(value=share, found=share > limit["limit"], evidence=text, ops=waiting["api"])


def _compile(facts: Facts, limit: Threshold) -> Measured | None:
    api = facts.api
    if api is None:
        return None
    calls = api[api["api"].str.contains("aclopCompile", case=False, regex=False)]
    count = int(ascend.most(calls, "count"))
    text = f"{wording.plural(count, 'call')}{_on_one(calls)} compiled an op while the program ran."
    return Measured(value=count, found=count > limit["limit"], evidence=text, ops=calls["api"])


def _allocations(facts: Facts, limit: Threshold) -> Measured | None:
    api = facts.api
    if api is None:
        return None
    calls = api[api["api"].str.lower().isin(_MEMORY_CALLS)]
    total = ascend.most(calls, "total_us") / 1000
    text = (
        f"{wording.millis(total)}{_on_one(calls)} went to calls that allocate and free device"
        " memory."
    )
    return Measured(value=total, found=total > limit["limit"], evidence=text, ops=calls["api"])


def _workspace(facts: Facts, limit: Threshold) -> Measured | None:
    fusion = facts.fusion
    if fusion is None or fusion["memory_workspace_bytes"].isna().all():
        return None
    used = fusion[fusion["memory_workspace_bytes"].fillna(0) > 0]
    total = float(used["memory_workspace_bytes"].sum())
    before, after = ascend_tables.fused_away(fusion)
    text = (
        f"{len(used):,} of the graph's {after:,} ops, fused from {before:,}, take"
        f" {wording.size(total)} of workspace."
    )
    total_mib = total / 2**20
    return Measured(
        value=total_mib,
        found=total_mib > limit["limit"],
        evidence=text,
        ops=used.sort_values("memory_workspace_bytes", ascending=False)["fused_op"],
    )


def _serial(facts: Facts, limit: Threshold) -> Measured | None:
    if facts.ops is None:
        return None
    alone, total = ascend_ops.ai_cpu_alone(facts.ops)
    if not total > 0:
        return None
    share = alone / total
    text = f"AI CPU tasks ran alone for {percent(share)} of the time in which the device computed."
    return Measured(value=share, found=share > limit["limit"], evidence=text, share=share)


RULES: tuple[AscendRule, ...] = (
    Rule(
        "input",
        _input,
        threshold=Threshold("> {limit:percent} of an iteration", limit=0.1),
        source=MSADVISOR,
        target=ASCEND,
        applies=NPU,
        looks_at="Data Aug Bound: the part of an iteration before FP Start",
        title="Feed the device faster",
        fix=(
            "Read and decode in parallel (num_parallel_calls), prefetch, cache; sink the data"
            " queue to the device."
        ),
        about="Iterations",
        unit="fraction",
        needs=("summary",),
        lacks=_NO_ITERATIONS,
    ),
    Rule(
        "all_reduce",
        _reduce,
        threshold=Threshold("> {limit:percent} of an iteration", limit=0.1),
        source=OURS,
        target=ASCEND,
        applies=NPU,
        looks_at="Exposed all-reduce of gradients after BP End",
        title="Overlap the all-reduce with the backward pass",
        fix=(
            "Split the gradients into more all-reduce groups (hccl set_split_strategy) so that"
            " the first starts before BP End."
        ),
        about="Iterations",
        unit="fraction",
        needs=("summary",),
        lacks="No all-reduce was recorded with the iterations.",
    ),
    Rule(
        "first_iteration",
        _first,
        threshold=Threshold("> {limit:g} times the mean after warm-up", limit=2),
        source=OURS,
        target=ASCEND,
        applies=NPU,
        looks_at="Time of the first iteration",
        title="Exclude the first iterations from measurements",
        fix=(
            "It compiles the graph and fills the queues: start the profiler after it, or cache"
            " compiled ops."
        ),
        about="Iterations",
        unit="times",
        needs=("summary", "iterations"),
        lacks=_NO_ITERATIONS,
    ),
    Rule(
        "slow_device",
        _slow,
        threshold=Threshold("> {limit:percent} of the mean", limit=0.05),
        source=f"{MSPROF_ANALYZE} (slow rank)",
        target=ASCEND,
        applies=NPU,
        looks_at="Spread of the devices' mean iteration times",
        title="Find what slows down the slowest device",
        fix=(
            "Compare the parts of its iterations with the others': input points to its host,"
            " compute to its clock, all-reduce to its link."
        ),
        about="Iterations",
        unit="fraction",
        needs=("summary",),
        lacks=_ONE_DEVICE,
    ),
    Rule(
        "slow_input",
        _slow_input,
        threshold=Threshold("> {limit:percent} off the mean", limit=0.2),
        source=f"{MSPROF} (slow node)",
        target=ASCEND,
        applies=NPU,
        looks_at="Data Aug Bound of each device against the mean",
        title="Even out the input of the devices",
        fix="Give each device an equal share of the data and its own host cores.",
        about="Iterations",
        unit="fraction",
        needs=("summary",),
        lacks=_ONE_DEVICE,
    ),
    Rule(
        "wait",
        _wait,
        threshold=Threshold(
            "> {limit:percent} of busy and waiting time, in waits of > {long_us:g} µs",
            limit=0.03,
            long_us=ascend_waits.LONG_US,
        ),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Waits between the tasks of a stream",
        title="Close the gaps between tasks",
        fix=(
            "Run more iterations in one call (iterations_per_loop), use a graph instead of single"
            " ops, a larger batch; check what the host does during the longest gap."
        ),
        about="Schedule",
        unit="fraction",
        needs=("ops",),
        lacks=NO_OPS,
    ),
    Rule(
        "aicpu_serial",
        _serial,
        threshold=Threshold(
            "> {limit:percent} of the time in which the device computes", limit=0.05
        ),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="AI CPU tasks that run alone",
        title="Move exclusive work off the AI CPU",
        fix="Replace the ops, or use types for which AI Core has a kernel.",
        about="AI CPU",
        unit="fraction",
        needs=("ops",),
        lacks=NO_OPS,
    ),
    Rule(
        "sync",
        _sync,
        threshold=Threshold("> {limit:percent} of the time in AscendCL calls", limit=0.5),
        source=f"{MSPROF_ANALYZE} (stream synchronization); nbprof's threshold",
        target=ASCEND,
        applies=NPU,
        looks_at="AscendCL calls that wait for the device",
        title="Synchronize less often",
        fix="Unset ASCEND_LAUNCH_BLOCKING; read losses and metrics only every few iterations.",
        about="Host",
        unit="fraction",
        needs=("api",),
        lacks=_NO_API,
    ),
    Rule(
        "compile",
        _compile,
        threshold=Threshold("> {limit:g} calls", limit=20),
        source="MindStudio Insight (operators dispatch)",
        target=ASCEND,
        applies=NPU,
        looks_at="Calls that compile an op at run time",
        title="Avoid compiling ops at run time",
        fix="Set jit_compile to False, or keep shapes the same.",
        about="Host",
        needs=("api",),
        lacks=_NO_API,
    ),
    Rule(
        "allocations",
        _allocations,
        threshold=Threshold("> {limit:g} ms", limit=10),
        source=f"{MSPROF_ANALYZE} (memory)",
        target=ASCEND,
        applies=NPU,
        looks_at="Calls that allocate or free device memory",
        title="Allocate device memory less often",
        fix="Enable expandable segments, do not empty the cache, or use a smaller batch.",
        about="Host",
        unit="ms",
        needs=("api",),
        lacks=_NO_API,
    ),
    Rule(
        "workspace",
        _workspace,
        threshold=Threshold("any", limit=0),
        source=MSPROF,
        target=ASCEND,
        applies=NPU,
        looks_at="Workspace of graph ops",
        title="Reduce the workspace of ops",
        fix="If memory is short, choose other implementations of these ops.",
        about="Memory",
        unit="MiB",
        needs=("fusion",),
        lacks="No fusion_op was recorded: it exists only for graphs.",
    ),
)
