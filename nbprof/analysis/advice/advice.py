"""What to change, with the evidence and the code: at most five findings, largest gain first.

No evidence number, no advice. A gain is an upper bound in ms a step: what the step would save if the cost went away entirely.
Conditions are those of `nbprof.analysis.advice.checks`: the recommendations of TensorFlow Profiler's overview page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.advice import device as advice_device
from nbprof.analysis.advice import hlo as advice_hlo
from nbprof.analysis.advice import host_buffer as advice_host_buffer
from nbprof.analysis.advice import npu as advice_npu
from nbprof.analysis.advice import tf_data as tf_data_advice
from nbprof.analysis.advice import torch as advice_torch
from nbprof.analysis.advice.checks import EXPENSIVE_FUNCTION, LITTLE_16_BIT, MUCH_EAGER, OUTSIDE_COMPILATION
from nbprof.analysis.advice.evidence import Evidence
from nbprof.analysis.advice.facts import (
    INPUT_HIGH,
    INPUT_MODERATE,
    PART_HIGH,
    PART_MODERATE,
    TENSOR_CORES,
    Facts,
    Finding,
    only,
    part,
    severity,
    unused_tensor_cores,
)
from nbprof.analysis.ops.torch_runtime import Runtime

MOST = 5
WORTH_PERCENT = 1.0
"""Percent of a step: what would save less at most is not worth a finding."""
_AHEAD = ("Prefetch", "MapAndBatch", "ParallelMap", "ParallelBatch", "ParallelInterleave", "DataService")
# Iterators that only hand on what the one below them made.
_HANDS_ON = (
    r"(Root|Model|MaxIntraOpParallelism|PrivateThreadPool|Options|AssertCardinality|(Finite)?(Take|Skip|Repeat)|ForeverRepeat)(V\d+)?\Z"
)
# The pipeline is to blame for the wait when its own work is at least this part of it; else the wait is copies to the device.
PIPELINE_PART_OF_WAIT = 0.2


def advice(
    overview: dict[str, Any],
    summary: pd.DataFrame,
    pipelines: pd.DataFrame,
    nodes: pd.DataFrame,
    kernels: pd.DataFrame,
    runtime: Runtime | None = None,
    evidence: Evidence | None = None,
) -> pd.DataFrame:
    """One row a finding, largest gain first: the columns of `p.advice`. Without step time only what a runtime wrote of its memory.

    A profile with `runtime` figures is PyTorch's, and has rules of its own. `nbprof.analysis.advice.rules` lists all rules.
    """
    evidence = evidence or Evidence()
    found = all_findings(overview, summary, pipelines, nodes, kernels, runtime, evidence)
    found.sort(key=lambda f: -1.0 if np.isnan(f.gain_ms_per_step) else f.gain_ms_per_step, reverse=True)
    return pd.DataFrame(found[:MOST], columns=list(Finding._fields))


def all_findings(
    overview: dict[str, Any],
    summary: pd.DataFrame,
    pipelines: pd.DataFrame,
    nodes: pd.DataFrame,
    kernels: pd.DataFrame,
    runtime: Runtime | None,
    evidence: Evidence,
) -> list[Finding]:
    """What every rule found, in the order of the rules."""
    if overview["step_time_ms"] is None:
        return advice_host_buffer.findings(evidence.texts, evidence.tpu_start_s)
    found: list[Finding] = []
    percent = _by_category(summary, "percent")
    # Of all steps, as the shares are: the means are of the steps of the hosts that recorded a category.
    mean = {category: share * float(overview["step_time_ms"]) / 100 for category, share in percent.items()}
    facts = Facts(overview, mean, percent, pipelines, nodes, kernels, runtime, evidence)
    own = RULES if runtime is None else advice_torch.RULES
    if not facts.npu or facts.torch:
        for rule in (*own, *advice_hlo.RULES, *advice_device.RULES, *advice_host_buffer.RULES):
            found.extend(rule(facts))
    if facts.npu:
        # What is said to users of GPUs and TPUs does not hold there.
        found = advice_npu.in_words_of_npus(found)
        for rule in advice_npu.RULES:
            found.extend(rule(facts))
    return [one for one in _merged(found, facts) if not 100 * one.gain_ms_per_step < WORTH_PERCENT * facts.mean["step_time"]]


def _merged(found: list[Finding], facts: Facts) -> list[Finding]:
    """Without what is the same change twice: a larger batch, and, where only 16-bit numbers let ops use the units for matrices, these."""
    found = advice_device.one_batch(found)
    by_rule = {one.rule: one for one in found}
    precise, cores = by_rule.get("mixed_precision"), by_rule.get("tensor_cores")
    if precise is None or cores is None or not facts.only_16_bit_cores:
        return found
    gain = max(precise.gain_ms_per_step, cores.gain_ms_per_step)
    joined = precise._replace(gain_ms_per_step=gain, evidence=f"{precise.evidence} {cores.evidence}")
    high = [one.severity for one in (precise, cores) if one.severity == "high"]
    joined = joined._replace(severity="high" if high else precise.severity)
    return [joined if one is precise else one for one in found if one is not cores]


def _by_category(summary: pd.DataFrame, column: str) -> dict[str, float]:
    return dict(zip(summary["category"].astype(str), summary[column].fillna(0.0).astype(float), strict=True))


def _input(facts: Facts) -> list[Finding]:
    share, wait = facts.percent["input"], facts.mean["input"]
    if share < INPUT_MODERATE or _in_host_memory(facts):
        return []
    level = severity(share, INPUT_MODERATE, INPUT_HIGH)
    waits = f"The step waits **{wait:.2f} ms** of **{facts.mean['step_time']:.2f} ms** for input (**{share:.0f}%**)"
    if not len(facts.nodes):
        text = f"{waits}, and no tf.data pipeline was recorded."
        if facts.jax:
            text = f"{waits}, which no recorded pipeline made ahead."
            return [
                Finding("input_ahead", level, "Put the next batch on the device ahead of time", text, wait, _AHEAD_JAX, "trace", "Trace")
            ]
        fix = tf_data_advice.FIT if facts.keras else _LOOP
        return [Finding("input_outside_tf_data", level, "Feed the model through tf.data", text, wait, fix, "input", "Steps & input")]
    if facts.nodes["pipeline"].astype(str).str.startswith("Device").all():
        # They only hand on what a pipeline makes that was not recorded: of that nothing is known.
        return []
    first, mine = _main_pipeline(facts)
    if mine["long_name"].str.contains(tf_data_advice.OF_ARRAYS).any():
        # The pipeline is Keras's own: there is no map in the program that could run in parallel.
        text, fix = f"{waits}: {tf_data_advice.FROM_ARRAYS}", tf_data_advice.FIT
        return [Finding("input_outside_tf_data", level, "Feed the model through tf.data", text, wait, fix, "input", "Steps & input")]
    work = float(mine["self_ms"].sum())
    each = work / max(int(facts.overview["steps"]), 1)
    if each < PIPELINE_PART_OF_WAIT * wait:
        if not facts.overview["devices"]:
            return []
        text = f"{waits}, but the tf.data pipeline works only **{each:.2f} ms** a step: the rest hands batches to the device."
        link = "Trace: copies to the device"
        return [Finding("input_copies", level, "Copy less to the device, and ahead of time", text, wait, _COPY_AHEAD, "trace", link)]
    return [*_bottleneck(first, mine, work, wait, level), *_prefetch(facts, mine, wait, level)]


_LOOP = (
    "+ds = tf.data.Dataset.from_tensor_slices((x, y))\n+ds = ds.batch(n).prefetch(tf.data.AUTOTUNE)\n"
    "-for i in range(0, len(x), n):\n-    train_step(x[i : i + n], y[i : i + n])\n+for batch in ds:\n+    train_step(*batch)"
)
_AHEAD_JAX = (
    " batches = iter(loader)\n+ahead = jax.device_put(next(batches))\n-for batch in batches:\n-    state = step(state, batch)\n"
    "+for batch in batches:\n+    now, ahead = ahead, jax.device_put(batch)  # copied while the step runs\n+    state = step(state, now)"
)
_COPY_AHEAD = (
    "-ds = ds.map(lambda x, y: (tf.cast(x, tf.float32), y))\n+ds = ds.batch(n)  # as uint8: a quarter of the bytes; cast in the model\n"
    "+ds = ds.apply(tf.data.experimental.prefetch_to_device('/gpu:0'))"
)


def _main_pipeline(facts: Facts) -> tuple[pd.Series, pd.DataFrame]:
    """The pipeline with the most work and its iterators, summed over its instances: every epoch makes the pipeline anew."""
    nodes = facts.nodes
    # A device pipeline only hands on what the host pipeline made.
    nodes = nodes[~nodes["pipeline"].astype(str).str.startswith("Device")]
    shape = nodes.groupby(["host", "pipeline"], sort=False)["long_name"].agg(tuple)
    work = nodes.groupby(["host", "pipeline"], sort=False)["self_ms"].sum()
    most = work.groupby(shape).sum().idxmax()
    alike = shape.index[[s == most for s in shape]]
    same = nodes[pd.MultiIndex.from_frame(nodes[["host", "pipeline"]]).isin(alike)]
    one = nodes[(nodes["host"] == alike[0][0]) & (nodes["pipeline"] == alike[0][1])].copy()
    total = same.groupby("long_name")[["self_ms", "total_ms", "calls"]].sum()
    for column in total.columns:
        one[column] = one["long_name"].map(total[column])
    pipelines = facts.pipelines
    slowest = pipelines[pd.MultiIndex.from_frame(pipelines[["host", "pipeline"]]).isin(alike)].iloc[0]
    return slowest, one


def _bottleneck(pipeline: pd.Series, nodes: pd.DataFrame, work: float, wait: float, level: str) -> list[Finding]:
    slow = nodes[nodes["bottleneck"]].iloc[0]
    kind = str(slow["iterator"]).partition("[")[0]
    part = 100 * float(slow["self_ms"]) / work
    evidence = (
        f"**{kind}** takes **{slow['self_ms']:,.1f} ms** of the **{work:,.1f} ms** spent in the pipeline (**{part:.0f}%**), "
        f"in **{int(slow['calls']):,}** calls"
    )
    link = "Steps & input: critical path"
    if kind in ("Map", "Interleave") or (kind == "MapAndBatch" and str(slow["note"]).startswith("1 thread")):
        fix = "-ds = ds.map(fn)\n+ds = ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)"
        text = f"{evidence}, on **1 thread**. The step waits **{wait:.2f} ms** for it."
        return [Finding("map_serial", level, "Run Dataset.map in parallel", text, wait, fix, "input", link)]
    told = str(slow["iterator"]) == str(pipeline["bottleneck"])
    text, fix = (pipeline["advice"], pipeline["fix"]) if told else tf_data_advice.advice(str(slow["long_name"]), float(pipeline["max_us"]))
    # What hands on from a buffer is slow because the buffer was empty.
    title = f"Make what feeds {kind} faster" if kind == "Prefetch" else f"Make {kind} faster"
    return [Finding("input_bottleneck", level, title, f"{evidence}. {text}", wait, fix, "input", link)]


def _prefetch(facts: Facts, nodes: pd.DataFrame, wait: float, level: str) -> list[Finding]:
    # What runs ahead of the step by itself at the end of the pipeline; a Prefetch behind it would hide next to nothing.
    last = nodes[nodes["long_name"].str.count("::") == 1]
    while len(last) and not last["iterator"].astype(str).str.startswith(_AHEAD).any():
        handing_on = last.loc[last["iterator"].astype(str).str.match(_HANDS_ON), "id"]
        last = nodes[nodes["parent"].isin(handing_on)]
    if len(last):
        return []
    rest = max(facts.mean["step_time"] - wait, 0.0)
    gain = min(wait, rest)
    text = (
        f"No Prefetch ends the pipeline: the **{wait:.2f} ms** of input a step are spent while nothing else runs. "
        f"Made ahead, up to **{gain:.2f} ms** of them would hide behind the **{rest:.2f} ms** of the rest."
    )
    fix = "-ds = ds.batch(n)\n+ds = ds.batch(n).prefetch(tf.data.AUTOTUNE)"
    title = "Prefetch, so that input overlaps compute"
    return [Finding("prefetch_missing", level, title, text, gain, fix, "input", "Steps & input: pipeline")]


def _launch(facts: Facts) -> list[Finding]:
    share, time = facts.percent["kernel_launch"], facts.mean["kernel_launch"]
    if share < PART_MODERATE:
        return []
    text = f"**{share:.0f}%** of a step (**{time:.2f} ms**) prepares and launches kernels."
    level = severity(share, PART_MODERATE, PART_HIGH)
    if facts.jax:
        fix = "-def train_step(state, batch):\n+@partial(jax.jit, donate_argnums=0)\n+def train_step(state, batch):"
        return [Finding("kernel_launch", level, "Compile the whole step as one program", text, time, fix, "kernels", "GPU kernels")]
    if facts.keras:
        fix = " model.compile(optimizer, loss,\n+              jit_compile=True, steps_per_execution=10)"
    else:
        fix = "-@tf.function\n+@tf.function(jit_compile=True)\n def train_step(batch):"
    if len(facts.pipelines):
        text += " tf.data threads may compete with the launching thread: give it its own."
        fix = f"+import os\n+os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'  # before TensorFlow starts\n{fix}"
    return [Finding("kernel_launch", level, "Launch fewer, larger kernels", text, time, fix, "kernels", "GPU kernels")]


def _precision(facts: Facts) -> list[Finding]:
    half, compute, cores = facts.overview["compute_16bit_percent"], facts.mean["device_compute"], facts.matrix_units
    # Names of kernels tell the width of numbers only where they state it; programs always do.
    programs = advice_hlo.in_16_bit(facts)
    half = half if programs is None or half is None else max(half, programs)
    if half is None or half >= LITTLE_16_BIT or not compute or not cores:
        return []
    text = f"{only(half)} of device compute is 16 bit. Where accuracy permits, 16-bit ops run up to twice as fast"
    work = facts.evidence.work
    text += ": they move half of the bytes." if work is not None and not work.products and facts.tpu else f" and can use {cores}."
    # Volta and Turing compute no bfloat16.
    dtype = "float16" if facts.before_ampere else "bfloat16"
    fix = f"+tf.keras.mixed_precision.set_global_policy('mixed_{'bfloat16' if facts.tpu else 'float16'}')"
    if facts.jax:
        fix = f"+x, params = jax.tree.map(lambda a: a.astype(jnp.{dtype}), (x, params))\n loss = loss_fn(params, x, y)"
    elif not facts.keras:
        fix = f"-logits = model(x)\n+logits = tf.cast(model(tf.cast(x, tf.{dtype})), tf.float32)  # weights in {dtype} too"
    level = severity(50 * compute / facts.mean["step_time"], INPUT_MODERATE, INPUT_HIGH)
    # A TPU has no kernels of its own to show.
    where = ("ops", "Ops") if facts.tpu else ("kernels", "GPU kernels")
    return [Finding("mixed_precision", level, "Use mixed precision", text, compute / 2, fix, *where)]


def _tensor_cores(facts: Facts) -> list[Finding]:
    found, cores = unused_tensor_cores(facts), facts.matrix_units
    if found is None or not cores:
        return []
    share, worst = found
    op = "/".join(str(worst["op"]).split("/")[-3:]).replace("*", "")
    text = (
        f"**{share:.0f}%** of kernel time is in kernels whose op could run on {cores} but does not; the largest is "
        f"{op} with **{worst['total_us'] / 1000:.2f} ms**. Channels and batch as multiples of 8, and 16-bit inputs, allow it."
    )
    gain = facts.mean["device_compute"] * share / 100
    link = "GPU kernels: eligible, not used"
    fix = "-x = layers.Dense(100)(x)\n+x = layers.Dense(104)(x)  # a multiple of 8"
    if "conv" in op.lower():
        fix = "-x = layers.Conv2D(30, 3)(x)\n+x = layers.Conv2D(32, 3)(x)  # channels, in and out: multiples of 8"
    if facts.jax and (facts.before_ampere or cores != TENSOR_CORES):
        fix = "+x, params = jax.tree.map(lambda a: a.astype(jnp.float16), (x, params))\n loss = loss_fn(params, x, y)"
    elif facts.jax:
        fix = "+jax.config.update('jax_default_matmul_precision', 'tensorfloat32')"
    return [Finding("tensor_cores", severity(share, 10, 30), f"Let eligible ops use {cores}", text, gain, fix, "kernels", link)]


def _eager(facts: Facts) -> list[Finding]:
    share = facts.eager_percent
    if share <= MUCH_EAGER:
        return []
    if facts.jax:
        text = f"**{share:.0f}%** of op time ran op by op. jax.jit makes one program of them."
        return [
            Finding("eager", "medium", "Put the step into jax.jit", text, float("nan"), "+@jax.jit\n def train_step(batch):", "ops", "Ops")
        ]
    text = f"**{share:.0f}%** of op time ran eagerly, op by op. A tf.function runs them as one graph."
    fix = "+@tf.function\n def train_step(batch):"
    if facts.keras and len(facts.overview["tf_functions"]):
        fix = "-model.compile(optimizer, loss, run_eagerly=True)\n+model.compile(optimizer, loss)"
    return [Finding("eager", "medium", "Put eager code into a tf.function", text, float("nan"), fix, "ops", "Ops")]


def _functions(facts: Facts) -> list[Finding]:
    """Functions that are traced again and again; one that was traced in a step that warms up costs the others nothing."""
    functions = facts.overview["tf_functions"]
    worst = functions[(functions["expensive_percent"] >= EXPENSIVE_FUNCTION) & (functions["expensive_ms_per_step"] > 0)]
    worst = worst.sort_values("expensive_ms_per_step", ascending=False, kind="stable")
    time = float(worst["expensive_ms_per_step"].sum())
    if 100 * time < PART_MODERATE * facts.mean["step_time"]:
        return []
    name, share, traced = worst[["function", "expensive_percent", "tracings"]].iloc[0].tolist()
    more = f" So are **{len(worst) - 1}** more." if len(worst) > 1 else ""
    text = f"**{name}** is traced or run eagerly for **{share:.0f}%** of its time (traced **{traced}** times so far).{more}"
    fix = "-@tf.function\n+@tf.function(reduce_retracing=True)\n def train_step(batch):  # pass tensors, not Python numbers"
    level = severity(100 * time / facts.mean["step_time"], PART_MODERATE, PART_HIGH)
    return [Finding("tf_function", level, "Trace functions once", text, time, fix, "trace", "Trace")]


def _outside(facts: Facts) -> list[Finding]:
    share = facts.overview["outside_compilation_percent"]
    if share is None or share <= OUTSIDE_COMPILATION:
        return []
    text = f"**{share:.0f}%** of op time on the TPU waits for ops that run on the host, outside of the compiled program."
    fix = "-tf.print(loss)\n-tf.summary.image('batch', x)\n+if step % 100 == 0:\n+    log(loss)  # from outside of the step's function"
    if facts.jax:
        fix = "-jax.debug.print('{}', loss)\n+if step % 100 == 0:\n+    print(loss)  # from outside of the jitted step"
    gain = facts.mean["device_compute"] * share / 100
    return [Finding("outside_compilation", "medium", "Keep the step inside one program", text, gain, fix, "ops", "Ops")]


def _other(facts: Facts) -> list[Finding]:
    share, time = facts.percent["other"], facts.mean["other"]
    if share < PART_HIGH:
        return []
    text = f"**{share:.0f}%** of a step (**{time:.2f} ms**) is in no recorded op: Python between ops, callbacks, logging or I/O."
    if facts.maybe_input:
        text += " It may also be input that was not recorded, such as NumPy arrays made in the loop."
    if facts.jax:
        fix = "-for batch in batches:\n-    state = step(state, batch)\n+state, losses = jax.lax.scan(step, state, batches)"
    elif facts.keras:
        fix = " model.compile(optimizer, loss,\n+              steps_per_execution=10)"
    else:
        fix = (
            "+@tf.function\n+def epoch(ds):\n+    for batch in ds:\n+        train_step(batch)\n"
            "-for batch in ds:\n-    train_step(batch)\n+epoch(ds)"
        )
    return [Finding("other", "medium", "Run several steps in one call", text, time, fix, "trace", "Trace")]


_OVERLAP = (
    "-strategy = tf.distribute.MirroredStrategy()\n+strategy = tf.distribute.MirroredStrategy(\n"
    "+    cross_device_ops=tf.distribute.NcclAllReduce(num_packs=2))"
)
_OVERLAP_JAX = "+os.environ['XLA_FLAGS'] = '--xla_gpu_enable_latency_hiding_scheduler=true'  # before JAX starts"
_OF_COPIES = (INPUT_MODERATE, INPUT_HIGH)
_FETCH = "-print(float(loss))\n+losses.append(loss)  # and look at them every 100 steps"


def _collectives(facts: Facts) -> list[Finding]:
    fix = _OVERLAP_JAX if facts.jax else _OVERLAP
    title = "Overlap communication with compute"
    return part("collectives", "device_collectives", title, "communication between devices", fix)(facts)


def _in_host_memory(facts: Facts) -> bool:
    """Whether most input and output is what the program on a TPU itself moves from and to the memory of the host."""
    moved = facts.overview.get("host_transfer_percent") or 0.0
    return moved >= INPUT_MODERATE and moved > (facts.percent["input"] + facts.percent["output"]) / 2


def _host_memory(facts: Facts) -> list[Finding]:
    if not _in_host_memory(facts):
        return []
    share = float(facts.overview["host_transfer_percent"])
    gain = share * facts.mean["step_time"] / 100
    text = f"**{share:.0f}%** of a step (**{gain:.2f} ms**) the program moves arrays between the device and the memory of the host."
    level = severity(share, INPUT_MODERATE, INPUT_HIGH)
    return [Finding("host_memory", level, "Keep arrays in the device's memory", text, gain, _ON_DEVICE, "trace", "Trace")]


_ON_DEVICE = (
    "-x = jax.device_put(x, sharding.with_memory_kind('pinned_host'))\n"
    "+x = jax.device_put(x, sharding)  # as many arrays as there is room for"
)


def _output(facts: Facts) -> list[Finding]:
    if _in_host_memory(facts):
        return []
    return part("output", "output", "Fetch results less often", "copies from the device to the host", _FETCH, _OF_COPIES)(facts)


RULES: tuple[Callable[[Facts], list[Finding]], ...] = (
    _input,
    _launch,
    _precision,
    _tensor_cores,
    _eager,
    _functions,
    _outside,
    _collectives,
    _output,
    _host_memory,
    _other,
)
