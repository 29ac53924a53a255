"""Advice rules about kernels, placement, compilation, workers and gaps, for every framework.

Sources: TensorFlow's GPU performance guide, the rules of torch_tb_profiler, NVIDIA's guide to
matrix products; where these give no number, the threshold is nbprof's.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.unit import CALL
from nbprof.analysis.advice.checks import INPUT_HIGH, PART_HIGH, PART_MODERATE
from nbprof.analysis.advice.evidence import LongGaps
from nbprof.analysis.advice.facts import (
    IDLE_PERCENT,
    JIT_COMPILE,
    KERNELS,
    MEMORY,
    OPS,
    STEP_SHARE,
    TORCH_COMPILE,
    TRACE,
    AdviceRule,
    Facts,
    compiled,
    longest_kernel,
    named,
    several,
    short,
)
from nbprof.analysis.rule import (
    ABOUT,
    ALL,
    AT_LEAST,
    DEVICE_TIME,
    ESTIMATED,
    GPU_GUIDE_CHOICE,
    HOST_TIME,
    INFERRED,
    OURS,
    OUTSIDE,
    PYTORCH,
    TENSORFLOW,
    TENSORFLOW_JAX,
    TORCH_TB,
    TPU_GUIDE_CHOICE,
    UP_TO,
    Finding,
    Found,
    Rule,
    Shown,
    Target,
    Threshold,
)
from nbprof.display import wording

SHORT_KERNEL_US = 10.0
ON_HOST_PERCENT = 10.0

# Kernels of PyTorch, of TensorFlow's Eigen and of TensorFlow's generator
# ("Relu_GPU_DT_FLOAT_DT_FLOAT_kernel").
_ELEMENTWISE = re.compile(
    r"elementwise_kernel|Cwise(?:Unary|Binary|Nullary|Ternary)Op|"
    r"EigenMetaKernel.*TensorAssignOp|_GPU_DT_\w+_kernel"
)
# "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2": how many values a load takes; 8
# of 16 bits where sizes allow it.
_UNALIGNED = re.compile(
    r"(?:f16|bf16|s16816|s1688|h1688|h16816|half).*_align[12](?:\D|$)", re.IGNORECASE
)
# The same of 8 bits, "cutlass_80_tensorop_i16832gemm_s8_128x128_64x3_tn_align4": 16 values where
# sizes allow it.
_UNALIGNED_8_BIT = re.compile(
    r"(?:tensorop|wmma).*(?:i8816|i8832|i16832|i16864|_[su]8_|e[45]m[23]).*_align[1248](?:\D|$)",
    re.IGNORECASE,
)


def _alignment(facts: Facts, limit: Threshold) -> Found | None:
    """G9, G10: matrix products of 16 and 8 bits whose sizes are not multiples of 8 and 16."""
    kernels, kernel_us = facts.computing
    if not kernel_us:
        return None
    eight_bit = named(kernels, _UNALIGNED_8_BIT)
    sixteen_bit = named(named(kernels, _UNALIGNED_8_BIT, hit=False), _UNALIGNED)
    eight_bit_us = float(eight_bit["total_us"].sum())
    sixteen_bit_us = float(sixteen_bit["total_us"].sum())
    share = 100 * (eight_bit_us + sixteen_bit_us) / kernel_us
    if share < limit["least"]:
        return None
    # The text is about the kind with more time.
    if eight_bit_us >= sixteen_bit_us:
        rows, multiple, jax_dtype = eight_bit, 16, "jnp.int8"
        loads = "fewer values at a time than they could (align1 to align8 in the name)"
        cause = "a size is not a multiple of 16 (of 8-bit values)"
    else:
        rows, multiple, jax_dtype = sixteen_bit, 8, "jnp.bfloat16"
        loads = "one or two values at a time (align1, align2 in the name)"
        cause = "a size is not a multiple of 8 (4 for TF32)"
    worst = longest_kernel(rows)
    text = (
        f"**{share:.0f}%** of kernel time is in matrix products that load {loads} because {cause};"
        f" the longest is {short(worst['op'])} with"
        f" **{wording.millis(worst['total_us'] / 1000)}**."
    )
    comment = f"# a multiple of {multiple}, or of 64"
    if facts.torch:
        fix = f"-head = nn.Linear(768, 30522)\n+head = nn.Linear(768, 30528)  {comment}"
    elif facts.jax:
        fix = (
            f"-w = jnp.zeros((768, 30522), {jax_dtype})\n"
            f"+w = jnp.zeros((768, 30528), {jax_dtype})  {comment}"
        )
    else:
        fix = f"-x = layers.Dense(30522)(x)\n+x = layers.Dense(30528)(x)  {comment}"
    gain = facts.compute_ms * share / 100
    title = f"Round sizes up to multiples of {multiple}"
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix, title=title)


def _counts(facts: Facts) -> tuple[float, float]:
    """Kernels per step, and their average duration in µs."""
    kernels, kernel_us = facts.computing
    if not len(kernels) or "occurrences" not in kernels:
        return 0.0, 0.0
    count = float(kernels["occurrences"].sum())
    # Steps are counted on each host, so their product with all devices counts the hosts twice.
    hosts = max(int(facts.overview.get("hosts", 1)), 1)
    steps = int(facts.overview["steps"]) * max(int(facts.overview["devices"]), 1) / hosts
    return (count / steps if steps else 0.0), (kernel_us / count if count else 0.0)


def _compiled(facts: Facts, in_jax: str) -> str:
    """The fix that compiles the model with its framework's compiler.

    JAX always compiles, so its fix is the caller's.
    """
    if facts.torch:
        return TORCH_COMPILE
    if facts.jax:
        return in_jax
    if facts.keras:
        return "-model.compile(optimizer, loss)\n+model.compile(optimizer, loss, jit_compile=True)"
    return JIT_COMPILE


def _small_kernels(facts: Facts, limit: Threshold) -> Found | None:
    """G11: many kernels so short that launch overhead dominates."""
    each, mean = _counts(facts)
    if (
        each < limit["kernels"]
        or mean >= limit["short_us"]
        or facts.percent["kernel_launch"] >= PART_MODERATE
    ):
        return None
    gain = facts.compute_ms
    text = (
        f"{facts.unit.a.capitalize()} runs **{each:,.0f}** kernels of **{wording.micros(mean)}** on"
        f" average, **{wording.millis(facts.compute_ms)}** in total. Most of them only read back"
        " what the previous one wrote. A compiler can fuse them into a few."
    )
    graphs = (
        "+import os\n"
        "+os.environ['XLA_FLAGS'] ="
        " '--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUDNN,CUSTOM_CALL'  # before JAX starts"
    )
    fix = _compiled(facts, graphs)
    title = "Launch kernels as CUDA graphs" if facts.jax else "Fuse small kernels by compiling"
    return Found(text, gain_ms=gain, fix=fix, title=title)


def _elementwise(facts: Facts, limit: Threshold) -> Found | None:
    """G11: kernels of a single elementwise op each, if no compiler fuses them."""
    kernels, kernel_us = facts.computing
    if not kernel_us or facts.evidence.work is not None:
        return None
    if facts.percent["kernel_launch"] >= PART_MODERATE:
        return None
    elementwise = named(kernels, _ELEMENTWISE)
    share = 100 * float(elementwise["total_us"].sum()) / kernel_us
    if share < limit["least"]:
        return None
    gain = facts.compute_ms * share / 100
    worst = longest_kernel(elementwise)
    text = (
        f"**{share:.0f}%** of kernel time is in kernels of a single elementwise op, the longest"
        f" {short(worst['op'])} with **{wording.millis(worst['total_us'] / 1000)}**. Each reads its"
        " inputs from memory and writes them back; a compiler can fuse them."
    )
    fix = _compiled(facts, "+@jax.jit\n def train_step(state, batch):")
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _small_batch(facts: Facts, limit: Threshold) -> Found | None:
    """G12, and torch_tb_profiler's rule on low GPU utilisation: too little work per step."""
    busy, (count, mean) = facts.overview.get("device_busy_percent"), _counts(facts)
    bound = limit["busy_torch"] if facts.torch else limit["busy"]
    if busy is None or not limit["used"] <= busy < bound:
        return None
    if not count or mean >= limit["short_us"] or _waits_for_something_else(facts):
        return None
    peak, capacity = facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"]
    if peak and capacity and peak >= limit["room"] * capacity:
        return None
    idle_ms = (100 - busy) * facts.mean["step_time"] / 100
    if facts.held_up_ms(facts.mean["step_time"]) < limit["host"] * idle_ms:
        # The device waits, but not for the host.
        return None
    text = (
        f"The device is busy for **{busy:.0f}%** of {facts.unit.time}, with"
        f" {several(count, 'kernel')} of **{wording.micros(mean)}** on average. The host's time"
        f" {facts.unit.per} would not grow with more examples."
    )
    if peak and capacity:
        part = 100 * peak / capacity
        digits = 1 if part < 1 else 0
        text += f" Peak memory is **{part:.{digits}f}%** of device memory."
    # With short kernels, a CPU that is 50 times as slow needs no more time than the host takes
    # anyway.
    if busy < limit["tiny"] and not facts.npu:
        text += (
            " If the batch cannot grow, the model may be too small for the device, and faster on"
            f" the CPU: {_on_cpu(facts)}."
        )
    return Found(text)


def _waits_for_something_else(facts: Facts) -> bool:
    """True if the device waits for input, the allocator, other devices, or a compiler."""
    percent = facts.percent
    if percent["input"] >= INPUT_HIGH or percent["device_collectives"] >= PART_HIGH:
        return True
    allocating_ms = facts.torch_runtime.calls_of("allocate").ms
    if allocating_ms > facts.mean["step_time"] * PART_HIGH / 100:
        return True
    return percent.get("compile", 0.0) >= PART_HIGH


def _on_cpu(facts: Facts) -> str:
    """Setting that runs the program on the CPU."""
    if facts.torch:
        return "device = 'cpu'"
    if facts.jax:
        return "JAX_PLATFORMS=cpu"
    return "tf.config.set_visible_devices([], 'GPU')"


def _few_blocks(facts: Facts, limit: Threshold) -> Found | None:
    """Estimated SM efficiency of torch_tb_profiler: kernels with fewer blocks than the device has
    multiprocessors.
    """
    gpus = [gpu for gpu in facts.gpus if gpu.get("cores")]
    # AMD's runtime records threads where NVIDIA's records blocks.
    if len(gpus) != 1 or not gpus[0]["architecture"]:
        return None
    if not len(facts.kernels) or "grid" not in facts.kernels:
        return None
    cores = int(gpus[0]["cores"])
    kernels, kernel_us = facts.computing
    if not kernel_us:
        return None
    code, grids = pd.factorize(kernels["grid"].astype(object))
    blocks = np.array([_blocks(grid) for grid in grids], float)[code]
    time = kernels["total_us"].to_numpy(float)
    empty = time * np.clip(1 - blocks / cores, 0, 1)
    share = 100 * float(np.nansum(empty)) / kernel_us
    if share < limit["empty"]:
        return None
    few = 100 * float(time[blocks < cores].sum()) / kernel_us
    worst = kernels.iloc[int(np.nanargmax(empty))]
    gain = facts.compute_ms * share / 100
    text = (
        f"**{few:.0f}%** of kernel time is in kernels with fewer blocks than the device has"
        f" multiprocessors (**{cores}**), which leaves **{share:.0f}%** of the device idle while"
        f" kernels run; the worst is {short(worst['op']) or 'a kernel'} with"
        f" {several(_blocks(worst['grid']), 'block')}."
    )
    return Found(text, severity=facts.level(gain), gain_ms=gain)


def one_batch(findings: list[Finding]) -> list[Finding]:
    """Merges two findings that advise a larger batch: the one on the step takes over the evidence
    of the one on kernels.
    """
    by_rule = {finding.rule: finding for finding in findings}
    batch, blocks = by_rule.get("small_batch"), by_rule.get("few_blocks")
    if batch is None or blocks is None:
        return findings
    joined = batch._replace(evidence=f"{batch.evidence} {blocks.evidence}")
    findings = [finding for finding in findings if finding is not blocks]
    findings[findings.index(batch)] = joined
    return findings


def _blocks(grid: Any) -> float:
    """Number of blocks of a grid as `4, 4, 1`; NaN for anything else."""
    sizes = [size.strip() for size in str(grid).split(",")]
    if not all(size.isdecimal() for size in sizes):
        return float("nan")
    return float(np.prod([float(size) for size in sizes]))


def _placement(facts: Facts, limit: Threshold) -> Found | None:
    """G5: matrix products that ran on the host although there is a GPU."""
    products = facts.evidence.host_products
    if products is None or products.percent < limit["percent"]:
        return None
    if products.call_us < limit["call_us"]:
        return None
    gain = min(products.ms, facts.mean["step_time"] - facts.compute_ms)
    text = (
        f"**{products.percent:.0f}%** of host op time is in matrix products without a recorded"
        f" kernel, the longest {short(products.op)} with"
        f" **{wording.millis(products.call_us / 1000)}** per call: they ran on the CPU. If"
        " TensorFlow cannot use the GPU, it logs the reason at startup."
    )
    return Found(text, severity=facts.level(gain), gain_ms=gain)


def _host_bound(facts: Facts, limit: Threshold) -> Found | None:
    """T12: a device that is idle while the host runs ops or prepares program executions.

    PyTorch has its own rule.
    """
    idle, share = facts.overview["device_idle_percent"], facts.percent["host_compute"]
    if idle is None or idle < limit["idle"] or share < limit["moderate"]:
        return None
    products = facts.evidence.host_products
    if products is not None and products.percent >= ON_HOST_PERCENT:
        return None
    time = facts.mean["host_compute"]
    if facts.evidence.code.callbacks is not None:
        # Python that compiled programs call is a finding of another rule.
        time -= facts.evidence.code.callbacks.alone_ms
    time = facts.held_up_ms(time)
    share = min(share, facts.percent_of_step(time))
    if share < limit["moderate"]:
        return None
    text = (
        f"The device is idle for **{idle:.0f}%** of {facts.unit.time}; for"
        f" **{wording.millis(time)}** of that (**{share:.0f}%** of {facts.unit.the}) the host runs"
        " ops or prepares the next execution: arguments, buffers, dispatch."
    )
    if facts.jax:
        units = "iterations" if facts.unit.is_recording else facts.unit.plural
        text += (
            f" Several {units} in one program need one dispatch; block_until_ready in the loop"
            " keeps the host from running ahead."
        )
        fix = (
            "-for batch in batches:\n"
            "-    state = step(state, batch)\n"
            "-    jax.block_until_ready(state)\n"
            "+state, losses = jax.lax.scan(step, state, batches)"
        )
    elif facts.keras:
        fix = " model.compile(optimizer, loss,\n+              steps_per_execution=10)"
    else:
        fix = (
            "+@tf.function\n"
            "+def epoch(ds):\n"
            "+    for batch in ds:\n"
            "+        train_step(batch)\n"
            "-for batch in ds:\n"
            "-    train_step(batch)\n"
            "+epoch(ds)"
        )
    return Found(text, severity=limit.severity(share), gain_ms=time, fix=fix)


def _compile(facts: Facts, limit: Threshold) -> Found | None:
    """Programs compiled in the steps that averages include."""
    if facts.torch_runtime.calls_of("captured").count:
        # Capturing a graph happens once and has nothing to do with shapes.
        return None
    if facts.evidence.compiled_again is not None:
        # Late: few profiles need it.
        from nbprof.analysis.advice import recompiled

        known = recompiled.finding(facts, limit)
        if known is not None:
            return known
    if facts.evidence.compiled_first:
        return None
    share, time = facts.percent.get("compile", 0.0), facts.mean.get("compile", 0.0)
    # A single step that compiles may be the first one to evaluate, or the last batch: shapes need
    # not change.
    if not share >= limit["moderate"] or facts.evidence.compiling == 1:
        return None
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is compilation, after"
        " the warm-up: shapes or Python values change."
    )
    if facts.jax:
        fix = (
            "-step(state, batch, len(batch))  # recompiles for each new shape or static argument\n"
            "+step(state, pad_to(batch, batch_size))"
        )
    elif facts.torch:
        fix = (
            "-model = torch.compile(model)\n"
            "+model = torch.compile(model, dynamic=True)  # one program for several shapes"
        )
    else:
        fix = (
            "-@tf.function\n"
            "+@tf.function(reduce_retracing=True)\n"
            " def train_step(batch):\n"
            "     ...\n"
            "-ds = ds.batch(n)\n"
            "+ds = ds.batch(n, drop_remainder=True)"
        )
    return Found(text, severity=limit.severity(share), gain_ms=time, fix=fix)


def _graph_breaks(facts: Facts, limit: Threshold) -> Found | None:
    breaks = facts.evidence.graph_breaks
    if breaks is None:
        return None
    share = facts.percent_of_step(breaks.ms)
    if share < limit["moderate"]:
        return None
    costliest = f"**{breaks.function}** breaks at **{breaks.where}**"
    if breaks.lines > 1:
        costliest += (
            f" and {wording.plural(breaks.lines - 1, 'more line')}, this one for"
            f" **{wording.millis(breaks.costliest_ms)}**"
        )
    text = (
        f"{costliest}. Between the graphs, **{wording.millis(breaks.ms)}** {facts.unit.per} pass"
        f" in Python: its guards, and **{breaks.ops:,.3g}** ops that run one by one"
    )
    if breaks.kernels == breaks.kernels:
        text += f", **{breaks.kernels:,.3g}** kernels and copies"
    text += "."
    if breaks.reason:
        text += f" Dynamo says: {breaks.reason.replace('*', '')}"
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=breaks.ms,
        fix=(
            "-step = torch.compile(step)\n"
            "+step = torch.compile(step, fullgraph=True)  # an error names the first break"
        ),
    )


def _fragmented(facts: Facts, limit: Threshold) -> Found | None:
    """G16: fragmented free memory, when little is free."""
    share, capacity = facts.evidence.fragmentation, facts.overview["memory_capacity_bytes"]
    reserved = facts.overview["peak_memory_bytes"]
    if facts.torch:
        reserved = facts.evidence.reserved_bytes
    if share is None or share <= limit["pieces"] or not reserved or not capacity:
        return None
    if reserved < limit["full"] * capacity:
        return None
    full = f"**{100 * reserved / capacity:.0f}%** of memory"
    if facts.torch:
        text = (
            f"PyTorch's allocator has **{wording.size(reserved)}** reserved at the peak, {full},"
            f" and **{100 * share:.0f}%** of that is not in use: it may be too fragmented to be"
            " usable."
        )
        fix = (
            '+import os\n+os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"'
            "  # before the first use"
        )
        return Found(text, fix=fix)
    text = (
        f"At the peak, {full} is in use, and **{100 * share:.0f}%** of the free memory is outside"
        " the largest free block: an allocation may fail although enough memory is free."
    )
    fix = (
        "+import os\n+os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'"
        "  # before TensorFlow starts"
    )
    if facts.jax:
        fix = (
            "+import os\n+os.environ['XLA_PYTHON_CLIENT_ALLOCATOR'] = 'cuda_async'"
            "  # before JAX starts"
        )
    return Found(text, fix=fix)


def _straggler(facts: Facts, limit: Threshold) -> Found | None:
    """A rank that delays the others, and not by chance."""
    rank = facts.evidence.straggler
    if rank is None or 100 * rank.saved_ms < limit["least"] * facts.mean["step_time"]:
        return None
    slowest = f"the slowest in **{rank.slowest_in:,} of {rank.steps:,}** {facts.unit.plural}"
    if rank.waited_for:
        text = (
            f"The others wait for **{rank.host}**, {slowest}: at their median speed,"
            f" {facts.unit.a} would be **{wording.millis(rank.saved_ms)}** shorter."
        )
        gain = rank.saved_ms
    else:
        text = (
            f"**{rank.host}** is {slowest}, **{wording.millis(rank.saved_ms)}** behind the median."
            " No communication was recorded, so whether the others wait for it is unknown."
        )
        gain = float("nan")
    return Found(
        f"{text} {rank.why}".rstrip(),
        severity=facts.level(rank.saved_ms),
        gain_ms=gain,
        fix=f"+p.rank({rank.host!r})  # the profile of that rank alone",
    )


def _uneven(facts: Facts, limit: Threshold) -> Found | None:
    """A worker that computes longer than the others, which wait for it when they communicate."""
    spread, least = facts.evidence.spread, limit["least"]
    # The wait for a straggler is a finding of that rule.
    if facts.evidence.straggler is not None or spread is None:
        return None
    if facts.percent["device_collectives"] < least:
        return None
    more = spread.ms - spread.mean_ms
    share = 100 * more / spread.mean_ms if spread.mean_ms else 0.0
    if share <= limit["more"] or 100 * more < least * facts.mean["step_time"]:
        return None
    gain = min(more, facts.mean["device_collectives"])
    text = (
        f"**{spread.worker}** computes **{wording.millis(spread.ms)}** {facts.unit.per},"
        f" **{share:.0f}%** more than the mean of **{spread.workers}** workers"
        f" (**{wording.millis(spread.mean_ms)}**); the others wait for it when they communicate."
    )
    if facts.torch:
        fix = (
            "-sampler = RandomSampler(dataset)\n"
            "+sampler = torch.utils.data.DistributedSampler(dataset, drop_last=True)"
            "  # equal work for each"
        )
    elif facts.jax:
        fix = (
            "-batch = pad_last(batch)\n"
            "+from jax.sharding import NamedSharding, PartitionSpec\n"
            "+batch = jax.device_put(batch, NamedSharding(mesh, PartitionSpec('data')))"
            "  # equal work for each"
        )
    else:
        fix = (
            "-ds = ds.batch(n)\n"
            "+ds = ds.batch(n, drop_remainder=True)\n"
            " ds = strategy.experimental_distribute_dataset(ds)"
        )
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _between(facts: Facts, limit: Threshold) -> Found | None:
    """G4: gaps between steps."""
    between_ms, step_ms = facts.evidence.between_ms, facts.mean["step_time"]
    # Time between calls may be most of the program: the backward pass, for example.
    if facts.unit.kind == CALL or between_ms is None or not between_ms + step_ms:
        return None
    # Input between steps is a finding of another rule.
    time = max(between_ms - (facts.evidence.between_input_ms or 0.0), 0.0)
    share = 100 * time / (between_ms + step_ms)
    if share <= limit["over"]:
        return None
    cost = (
        f"**{wording.millis(time)}** pass between {facts.unit.plural}, **{share:.0f}%** of the loop"
    )
    long_gaps = facts.evidence.long_gaps
    if long_gaps is not None:
        text = f"On average {cost}, {_mostly_in(long_gaps)}"
        fix = "-    if i % 10 == 0:\n+    if i % 100 == 0:\n         validate(model)"
    else:
        text = (
            f"Typically {cost}: callbacks, metrics, logging, checkpoints, or data loading outside"
            f" the {facts.unit.plural}."
        )
        fix = _less_between_steps(facts)
    return Found(text, severity=facts.level(time), gain_ms=time, fix=fix)


def _mostly_in(gaps: LongGaps) -> str:
    typical = f"**{wording.millis(gaps.typical_ms)}**"
    gaps_text = f"**{gaps.count:,}** of the gaps, which typically take {typical} each"
    if gaps.count == 1:
        gaps_text = f"**1** gap of {typical}"
    text = f"mostly in {gaps_text}: validation, checkpoints or logging, for example."
    if gaps.left_out_ms is not None:
        text += (
            f" The longest gap (**{wording.millis(gaps.left_out_ms)}**) is not counted: it may lie"
            " between two loops."
        )
    return text


def _less_between_steps(facts: Facts) -> str:
    """Code that does less between steps, in the words of the framework."""
    if facts.torch:
        return _every_hundredth("log(loss.item())")
    if facts.jax:
        return _every_hundredth("print(float(loss))")
    if not facts.framework.xla:
        return _every_hundredth("log(loss)")
    if not facts.keras:
        return _every_hundredth("tf.print(loss)")
    if facts.evidence.in_use.several_steps:
        return (
            "-model.fit(x, y, callbacks=callbacks)\n"
            "+model.fit(x, y)  # with callbacks at the end of an epoch alone"
        )
    return (
        " model.compile(optimizer, loss,\n"
        "+              steps_per_execution=10)  # callbacks run once per 10 steps"
    )


def _every_hundredth(output: str) -> str:
    return f"-    {output}\n+    if i % 100 == 0:\n+        {output}"


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "gemm_alignment",
        _alignment,
        threshold=Threshold("≥ {least:g} % of kernel time", least=5.0),
        source="NVIDIA matrix multiplication guide; nbprof's threshold",
        target=KERNELS,
        applies=ALL,
        looks_at=(
            "16-bit and TF32 matrix products whose kernels load one or two values at a time, and"
            " 8-bit ones with fewer than 16"
        ),
        title="Round sizes up to multiples of 8",
        certainty=ESTIMATED,
        refuted_by="the products take as long with sizes padded to a multiple of 8",
        shortens=DEVICE_TIME,
        done=Shown("The kernels load as many values at a time as they can"),
    ),
    Rule(
        "small_kernels",
        _small_kernels,
        threshold=Threshold(
            "≥ {kernels:,.0f} kernels of < {short_us:g} µs", kernels=1000, short_us=SHORT_KERNEL_US
        ),
        source=GPU_GUIDE_CHOICE,
        target=KERNELS,
        applies=ALL,
        looks_at="Kernels per step and their average duration",
        refuted_by="{the} takes as long with fewer, larger kernels",
        shortens=DEVICE_TIME,
        needs_units=True,
        done=Shown(
            "torch.compile or XLA compiled the model; graphs are launched (JAX)",
            lambda facts: facts.evidence.in_use.graphs if facts.jax else compiled(facts),
        ),
    ),
    Rule(
        "elementwise_kernels",
        _elementwise,
        threshold=Threshold("≥ {least:g} % of kernel time", least=20.0),
        source=GPU_GUIDE_CHOICE,
        target=KERNELS,
        applies=ALL,
        looks_at="Kernels of a single elementwise op, when the host keeps up with launching",
        title="Let a compiler fuse elementwise ops",
        certainty=ESTIMATED,
        refuted_by="the fused kernel takes as long as these kernels together",
        shortens=DEVICE_TIME,
        done=Shown("torch.compile or XLA compiled the model", compiled),
    ),
    Rule(
        "small_batch",
        _small_batch,
        threshold=Threshold(
            (
                "busy ≥ {used:g} % and < {busy:g} % (PyTorch {busy_torch:g} %), ≥"
                " {host:percent} of idle time waiting for a launch, kernels < {short_us:g}"
                " µs, peak < {room:percent} of memory; the CPU is named if busy < {tiny:g} %"
            ),
            used=1.0,
            busy=30.0,
            busy_torch=50.0,
            host=0.5,
            short_us=SHORT_KERNEL_US,
            room=0.5,
            tiny=2.0,
        ),
        source=f"{TORCH_TB}; {GPU_GUIDE_CHOICE}",
        target=KERNELS,
        applies=ALL,
        looks_at="Device utilization, with short kernels, little input time and free memory",
        title="Give each {noun} a larger batch",
        fix="+batch_size *= 8  # as memory and accuracy permit",
        certainty=INFERRED,
        refuted_by="twice the batch takes twice as long",
        gain_is="",
        shortens=HOST_TIME,
        needs_units=True,
        done=Shown("The device is busy"),
    ),
    Rule(
        "few_blocks",
        _few_blocks,
        threshold=Threshold("≥ {empty:g} % of the device idle during kernels", empty=20.0),
        source=f"{TORCH_TB}; nbprof's threshold",
        target=KERNELS,
        applies=ALL,
        looks_at=(
            "Kernels with fewer blocks than an NVIDIA GPU has multiprocessors (estimated SM"
            " efficiency); merged into `small_batch`"
        ),
        title="Fill the device with larger kernels",
        fix="+batch_size *= 8  # more blocks per kernel",
        certainty=ESTIMATED,
        refuted_by="twice the batch takes twice as long per kernel",
        shortens=DEVICE_TIME,
        done=Shown("The kernels have a block for each multiprocessor"),
    ),
    Rule(
        # A launch takes a few µs: a host op that takes this long computes there.
        "placement",
        _placement,
        threshold=Threshold(
            "≥ {percent:g} % of host op time, ≥ {call_us:g} µs per call",
            percent=ON_HOST_PERCENT,
            call_us=100.0,
        ),
        source=GPU_GUIDE_CHOICE,
        target=OPS,
        applies=TENSORFLOW,
        looks_at="Matrix products that ran on the host despite a GPU",
        title="Run the model on the GPU",
        fix=(
            "+assert tf.config.list_physical_devices('GPU'), 'TensorFlow sees no GPU'\n"
            "+tf.debugging.set_log_device_placement(True)\n"
            "-with tf.device('/CPU:0'):\n"
            "+with tf.distribute.OneDeviceStrategy('/GPU:0').scope():\n"
            "     model = make_model()"
        ),
        refuted_by="the products take as long on the GPU",
        gain_is=ABOUT,
        done=Shown("The products run on the device"),
    ),
    Rule(
        "host_bound",
        _host_bound,
        threshold=Threshold(
            "≥ {moderate:g} % of step time (high from {high:g} %), device idle ≥ {idle:g} %",
            moderate=PART_HIGH,
            high=INPUT_HIGH,
            idle=IDLE_PERCENT,
        ),
        source=TPU_GUIDE_CHOICE,
        target=TRACE,
        applies=TENSORFLOW_JAX,
        looks_at=(
            "Host time in ops, or preparing the next program execution, while the device is idle"
        ),
        title="Reduce host work {per}",
        refuted_by="the device is idle for as long when the host only dispatches",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        saves=("host_compute", "kernel_launch"),
        done=Shown(
            "Several steps per execution (Keras); less work of the host",
            lambda facts: facts.keras and facts.evidence.in_use.several_steps,
        ),
    ),
    Rule(
        "compile",
        _compile,
        threshold=STEP_SHARE,
        source=OURS,
        target=TRACE,
        applies=ALL,
        looks_at="Programs compiled in several of the steps that averages include",
        title="Compile once, for one shape",
        refuted_by="another recording of the same loop compiles nothing",
        gain_is=AT_LEAST,
        saves=("compile", "host_compute", "other"),
        needs_units=True,
        done=Shown("Nothing is compiled"),
    ),
    Rule(
        "graph_breaks",
        _graph_breaks,
        threshold=STEP_SHARE,
        source=OURS,
        target=TRACE,
        applies=PYTORCH,
        looks_at=(
            "Time between the compiled code of two graphs of one call of a function of"
            " `torch.compile`"
        ),
        title="Compile the function as one graph",
        refuted_by="{the} takes as long where `torch.compile(…, fullgraph=True)` accepts the code",
        gain_is=UP_TO,
        saves=("host_compute", "kernel_launch", "other"),
        needs_units=True,
        done=Shown("The functions do not break"),
    ),
    Rule(
        "fragmentation",
        _fragmented,
        threshold=Threshold(
            "> {pieces:percent} of it, with ≥ {full:percent} of memory used", pieces=0.3, full=0.8
        ),
        source=OURS,
        target=MEMORY,
        applies=ALL,
        looks_at=(
            "Free memory outside the largest block at the peak; for PyTorch, reserved but not"
            " allocated memory"
        ),
        title="Reduce memory fragmentation",
        on_npu=True,
        refuted_by="peak reserved memory is the same with expandable segments",
        gain_is="",
        done=Shown("Little of the free memory is in pieces, or the setting is in the recording"),
    ),
    Rule(
        "straggler",
        _straggler,
        threshold=Threshold("≥ {least:g} % of step time", least=1.0),
        source=OURS,
        target=Target("pods", "Pods"),
        applies=ALL,
        looks_at=(
            "A rank that is behind in most steps, or pauses, beyond chance (`p.pods.stragglers`)"
        ),
        title="Find out why one rank is slow",
        on_npu=True,
        refuted_by="another recording shows another rank as the slowest",
        gain_is=ABOUT,
        saves=(OUTSIDE,),
        needs_units=True,
        done=Shown("No rank is behind"),
    ),
    Rule(
        "uneven_workers",
        _uneven,
        threshold=Threshold(
            "> {more:g} % more, ≥ {least:g} % of step time", more=5.0, least=PART_MODERATE
        ),
        source="msprof-analyze (slow rank)",
        target=Target("pods", "Pods"),
        applies=ALL,
        looks_at="Device compute of the slowest worker against the mean, if workers communicate",
        title="Balance the workers",
        on_npu=True,
        refuted_by="another recording shows another worker as the slowest",
        saves=(OUTSIDE,),
        needs_units=True,
        done=Shown("The workers compute for as long"),
    ),
    Rule(
        "between_steps",
        _between,
        threshold=Threshold("> {over:g} % of loop time", over=10.0),
        source=GPU_GUIDE_CHOICE,
        target=TRACE,
        applies=ALL,
        looks_at="Time between steps: callbacks, logging, checkpoints",
        title="Do less between {plural}",
        on_npu=True,
        refuted_by="the loop takes as long without callbacks, logging and checkpoints",
        gain_is=ABOUT,
        saves=(OUTSIDE,),
        needs_units=True,
        done=Shown(
            "Little time passes between steps; with several steps per execution, fewer"
            " callbacks are advised"
        ),
    ),
)
