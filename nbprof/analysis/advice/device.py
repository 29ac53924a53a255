"""Advice rules about kernels, op placement, compilation, workers and the time between steps, for
every framework.

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
from nbprof.analysis.advice.facts import (
    IDLE_PERCENT,
    KERNELS,
    MEMORY,
    OPS,
    STEP_SHARE,
    TRACE,
    AdviceRule,
    Facts,
    compiled,
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
    TENSORFLOW,
    TENSORFLOW_JAX,
    TORCH_TB,
    TPU_GUIDE_CHOICE,
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

# Kernels of PyTorch, of TensorFlow's Eigen and of its own generator
# ("Relu_GPU_DT_FLOAT_DT_FLOAT_kernel").
_ELEMENTWISE = re.compile(
    r"elementwise_kernel|Cwise(?:Unary|Binary|Nullary|Ternary)Op|EigenMetaKernel.*TensorAssignOp|_GPU_DT_\w+_kernel"
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
_MULTIPLES = {
    8: "a size is not a multiple of 8 (4 for TF32)",
    16: "a size is not a multiple of 16 (of 8-bit values)",
}


def _alignment(facts: Facts, limit: Threshold) -> Found | None:
    """G9, G10: matrix products of 16 and 8 bits whose sizes are not multiples of 8 and 16."""
    kernels, kernel_us = facts.computing
    if not kernel_us:
        return None
    narrow = named(kernels, _UNALIGNED_8_BIT)
    sixteen_bit = named(named(kernels, _UNALIGNED_8_BIT, hit=False), _UNALIGNED)
    times = {16: float(narrow["total_us"].sum()), 8: float(sixteen_bit["total_us"].sum())}
    share = 100 * sum(times.values()) / kernel_us
    if share < limit["least"]:
        return None
    # What most of the time asks for is said.
    multiple = max(times, key=times.__getitem__)
    rows = narrow if multiple == 16 else sixteen_bit
    gain = facts.compute_ms * share / 100
    worst = rows.iloc[int(rows["total_us"].to_numpy().argmax())]
    loads = "one or two values at a time (align1, align2 in the name)"
    if multiple == 16:
        loads = "fewer values at a time than they could (align1 to align8 in the name)"
    text = (
        f"**{share:.0f}%** of kernel time is in matrix products that load {loads} because"
        f" {_MULTIPLES[multiple]}; the longest is {short(worst['op'])} with"
        f" **{wording.millis(worst['total_us'] / 1000)}**."
    )
    also = f"a multiple of {multiple}, or of 64"
    fix = f"-head = nn.Linear(768, 30522)\n+head = nn.Linear(768, 30528)  # {also}"
    if facts.jax:
        fix = (
            f"-w = jnp.zeros((768, 30522), {_DTYPES[multiple]})\n"
            f"+w = jnp.zeros((768, 30528), {_DTYPES[multiple]})  # {also}"
        )
    elif not facts.torch:
        fix = f"-x = layers.Dense(30522)(x)\n+x = layers.Dense(30528)(x)  # {also}"
    return Found(
        text,
        severity=facts.level(gain),
        gain_ms=gain,
        fix=fix,
        title=f"Round sizes up to multiples of {multiple}",
    )


_DTYPES = {8: "jnp.bfloat16", 16: "jnp.int8"}


def _counts(facts: Facts) -> tuple[float, float]:
    """Kernels per step, and their average duration in µs."""
    kernels, kernel_us = facts.computing
    count = (
        float(kernels["occurrences"].sum()) if len(kernels) and "occurrences" in kernels else 0.0
    )
    # Steps are counted on each host, so that their product with all devices has the hosts twice.
    hosts = max(int(facts.overview.get("hosts", 1)), 1)
    steps = int(facts.overview["steps"]) * max(int(facts.overview["devices"]), 1) / hosts
    return (count / steps if steps else 0.0), (kernel_us / count if count else 0.0)


def _compiled(facts: Facts, in_jax: str) -> str:
    """The fix that compiles the model with its framework's compiler; JAX already does, so there the
    fix is the caller's.
    """
    if facts.torch:
        return "-model = Model().to(device)\n+model = torch.compile(Model().to(device))"
    if facts.jax:
        return in_jax
    if facts.keras:
        return "-model.compile(optimizer, loss)\n+model.compile(optimizer, loss, jit_compile=True)"
    return "-@tf.function\n+@tf.function(jit_compile=True)\n def train_step(batch):"


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
    """G11: kernels of a single elementwise op each, where no compiler fuses them."""
    kernels, kernel_us = facts.computing
    if (
        not kernel_us
        or facts.evidence.work is not None
        or facts.percent["kernel_launch"] >= PART_MODERATE
    ):
        return None
    elementwise = named(kernels, _ELEMENTWISE)
    share = 100 * float(elementwise["total_us"].sum()) / kernel_us
    if share < limit["least"]:
        return None
    gain = facts.compute_ms * share / 100
    worst = elementwise.iloc[int(elementwise["total_us"].to_numpy().argmax())]
    text = (
        f"**{share:.0f}%** of kernel time is in kernels of a single elementwise op, the longest"
        f" {short(worst['op'])} with **{wording.millis(worst['total_us'] / 1000)}**. Each reads its"
        " inputs from memory and writes them back; a compiler can fuse them."
    )
    fix = _compiled(facts, "+@jax.jit\n def train_step(state, batch):")
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _small_batch(facts: Facts, limit: Threshold) -> Found | None:
    """G12, and torch_tb_profiler's rule on low GPU utilisation: too little work per step."""
    busy, (each, mean) = facts.overview.get("device_busy_percent"), _counts(facts)
    bound = limit["busy_torch"] if facts.torch else limit["busy"]
    driver = facts.torch_runtime.of("allocate").ms
    if (
        busy is None
        or not limit["used"] <= busy < bound
        or not each
        or mean >= limit["short_us"]
        or facts.percent["input"] >= INPUT_HIGH
    ):
        return None
    if (
        driver > facts.mean["step_time"] * PART_HIGH / 100
        or facts.percent["device_collectives"] >= PART_HIGH
    ):
        return None
    if facts.percent.get("compile", 0.0) >= PART_HIGH:
        # The device waits for a program or a graph to be made.
        return None
    peak, capacity = facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"]
    if peak and capacity and peak >= limit["room"] * capacity:
        return None
    if (
        facts.held_up_ms(facts.mean["step_time"])
        < limit["host"] * (100 - busy) * facts.mean["step_time"] / 100
    ):
        # The device waits, but not for the host.
        return None
    text = (
        f"The device is busy for **{busy:.0f}%** of {facts.unit.time}, with"
        f" {several(each, 'kernel')} of **{wording.micros(mean)}** on average. The host's time"
        f" {facts.unit.per} would not grow with more examples."
    )
    if peak and capacity:
        part = 100 * peak / capacity
        text += f" Peak memory is **{part:.{1 if part < 1 else 0}f}%** of device memory."
    # Of short kernels, a CPU that is 50 times as slow would need no more than the time that the
    # host takes anyway.
    if busy < limit["tiny"] and not facts.npu:
        text += (
            " If the batch cannot grow, the model may be too small for the device, and faster on"
            f" the CPU: {_on_cpu(facts)}."
        )
    return Found(text)


def _on_cpu(facts: Facts) -> str:
    """How to run the program on the CPU."""
    if facts.torch:
        return "device = 'cpu'"
    return "JAX_PLATFORMS=cpu" if facts.jax else "tf.config.set_visible_devices([], 'GPU')"


def _few_blocks(facts: Facts, limit: Threshold) -> Found | None:
    """Estimated SM efficiency of torch_tb_profiler: kernels with fewer blocks than the device has
    multiprocessors.
    """
    gpus = [
        d
        for d in (facts.overview.get("environment") or {}).get("devices", [])
        if d["kind"] == "GPU" and d.get("cores")
    ]
    # AMD's runtime states threads where NVIDIA's states blocks.
    if (
        len(gpus) != 1
        or not gpus[0]["architecture"]
        or not len(facts.kernels)
        or "grid" not in facts.kernels
    ):
        return None
    cores = int(gpus[0]["cores"])
    kernels, kernel_us = facts.computing
    code, grids = pd.factorize(kernels["grid"].astype(object))
    blocks = np.array([_blocks(grid) for grid in grids], float)[code] if len(grids) else np.zeros(0)
    time = kernels["total_us"].to_numpy(float)
    empty = time * np.clip(1 - blocks / cores, 0, 1)
    lost = float(np.nansum(empty))
    share = 100 * lost / kernel_us if kernel_us else 0.0
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
    if (
        products is None
        or products.percent < limit["percent"]
        or products.call_us < limit["call_us"]
    ):
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
    """T12: a device that is idle while the host runs ops or prepares program executions. PyTorch
    has its own rule.
    """
    idle, share, time = (
        facts.overview["device_idle_percent"],
        facts.percent["host_compute"],
        facts.mean["host_compute"],
    )
    placed = facts.evidence.host_products
    if (
        idle is None
        or idle < limit["idle"]
        or share < limit["moderate"]
        or (placed is not None and placed.percent >= ON_HOST_PERCENT)
    ):
        return None
    callbacks = facts.evidence.code.callbacks
    # What compiled programs run in Python is a finding of its own.
    time = facts.held_up_ms(time - (callbacks.alone_ms if callbacks is not None else 0.0))
    share = min(share, 100 * time / facts.mean["step_time"])
    if share < limit["moderate"]:
        return None
    text = (
        f"The device is idle for **{idle:.0f}%** of {facts.unit.time}; for"
        f" **{wording.millis(time)}** of that (**{share:.0f}%** of {facts.unit.the}) the host runs"
        " ops or prepares the next execution: arguments, buffers, dispatch."
    )
    if facts.jax:
        text += (
            f" Several {'iterations' if facts.unit.whole else facts.unit.plural} in one program"
            " need one dispatch; block_until_ready in the loop keeps the host from running ahead."
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
        fix = "+@tf.function\n+def epoch(ds):\n+    for batch in ds:\n+        train_step(batch)\n"
        fix += "-for batch in ds:\n-    train_step(batch)\n+epoch(ds)"
    return Found(text, severity=limit.severity(share), gain_ms=time, fix=fix)


def _compile(facts: Facts, limit: Threshold) -> Found | None:
    """Programs compiled in the steps that averages include."""
    if facts.torch_runtime.of("captured").count:
        # A graph is captured, which is done once and has nothing to do with shapes.
        return None
    share, time = facts.percent.get("compile", 0.0), facts.mean.get("compile", 0.0)
    # One step alone that compiles may be the first to evaluate, or the last batch: neither tells
    # that shapes change.
    if not share >= limit["moderate"] or facts.evidence.compiling == 1:
        return None
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is compilation, after"
        " the warm-up: shapes or Python values change."
    )
    fix = (
        "-@tf.function\n"
        "+@tf.function(reduce_retracing=True)\n"
        " def train_step(batch):\n"
        "     ...\n"
        "-ds = ds.batch(n)\n"
    )
    fix += "+ds = ds.batch(n, drop_remainder=True)"
    if facts.jax:
        fix = (
            "-step(state, batch, len(batch))  # recompiles for each new shape or static"
            " argument\n"
            "+step(state, pad_to(batch, batch_size))"
        )
    elif facts.torch:
        fix = (
            "-model = torch.compile(model)\n"
            "+model = torch.compile(model, dynamic=True)  # one program for several shapes"
        )
    return Found(text, severity=limit.severity(share), gain_ms=time, fix=fix)


def _fragmented(facts: Facts, limit: Threshold) -> Found | None:
    """G16: fragmented free memory, when little is free."""
    peak, capacity, share = (
        facts.overview["peak_memory_bytes"],
        facts.overview["memory_capacity_bytes"],
        facts.evidence.fragmentation,
    )
    reserved = facts.evidence.reserved_bytes if facts.torch else peak
    if (
        share is None
        or share <= limit["pieces"]
        or not reserved
        or not capacity
        or reserved < limit["full"] * capacity
    ):
        return None
    text = (
        f"PyTorch's allocator has **{wording.size(reserved)}** reserved at the peak,"
        f" **{100 * reserved / capacity:.0f}%** of memory, and **{100 * share:.0f}%** of that is"
        " not in use: it may be too fragmented to be usable."
        if facts.torch
        else (
            f"At the peak, **{100 * reserved / capacity:.0f}%** of memory is in use, and"
            f" **{100 * share:.0f}%** of the free memory is outside the largest free block: an"
            " allocation may fail although enough memory is free."
        )
    )
    fix = (
        "+import os\n"
        "+os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'  # before TensorFlow starts"
    )
    if facts.torch:
        fix = (
            "+import os\n"
            '+os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before the'
            " first use"
        )
    elif facts.jax:
        fix = (
            "+import os\n"
            "+os.environ['XLA_PYTHON_CLIENT_ALLOCATOR'] = 'cuda_async'  # before JAX starts"
        )
    return Found(text, fix=fix)


def _straggler(facts: Facts, limit: Threshold) -> Found | None:
    """A rank that holds the others up, and not by chance."""
    rank = facts.evidence.straggler
    if rank is None or 100 * rank.saved_ms < limit["least"] * facts.mean["step_time"]:
        return None
    fix = f"+p.rank({rank.host!r})  # the profile of that rank alone"
    if not rank.waited_for:
        text = (
            f"**{rank.host}** is the slowest in **{rank.slowest_in:,} of {rank.steps:,}**"
            f" {facts.unit.plural}, **{wording.millis(rank.saved_ms)}** behind the median. No"
            " communication was recorded, so whether the others wait for it is unknown."
        )
        return Found(f"{text} {rank.why}".rstrip(), severity=facts.level(rank.saved_ms), fix=fix)
    text = (
        f"The others wait for **{rank.host}**, the slowest in **{rank.slowest_in:,} of"
        f" {rank.steps:,}** {facts.unit.plural}: at their median speed, {facts.unit.a} would be"
        f" **{wording.millis(rank.saved_ms)}** shorter."
    )
    return Found(
        f"{text} {rank.why}".rstrip(),
        severity=facts.level(rank.saved_ms),
        gain_ms=rank.saved_ms,
        fix=fix,
    )


def _uneven(facts: Facts, limit: Threshold) -> Found | None:
    """A slow worker: its compute takes longer than the others', which wait for it when they
    communicate.
    """
    spread = facts.evidence.spread
    # What the others wait for is told by the straggler.
    if (
        facts.evidence.straggler is not None
        or spread is None
        or facts.percent["device_collectives"] < limit["least"]
    ):
        return None
    more = spread.ms - spread.mean_ms
    share = 100 * more / spread.mean_ms if spread.mean_ms else 0.0
    if share <= limit["more"] or 100 * more < limit["least"] * facts.mean["step_time"]:
        return None
    gain = min(more, facts.mean["device_collectives"])
    text = (
        f"**{spread.worker}** computes **{wording.millis(spread.ms)}** {facts.unit.per},"
        f" **{share:.0f}%** more than the mean of **{spread.workers}** workers"
        f" (**{wording.millis(spread.mean_ms)}**); the others wait for it when they communicate."
    )
    fix = (
        "-sampler = RandomSampler(dataset)\n"
        "+sampler = torch.utils.data.DistributedSampler(dataset, drop_last=True)  # equal work"
        " for each"
    )
    if facts.jax:
        fix = (
            "-batch = pad_last(batch)\n"
            "+from jax.sharding import NamedSharding, PartitionSpec\n"
            "+batch = jax.device_put(batch, NamedSharding(mesh, PartitionSpec('data')))  # equal"
            " work for each"
        )
    elif not facts.torch:
        fix = (
            "-ds = ds.batch(n)\n"
            "+ds = ds.batch(n, drop_remainder=True)\n"
            " ds = strategy.experimental_distribute_dataset(ds)"
        )
    return Found(text, severity=facts.level(gain), gain_ms=gain, fix=fix)


def _between(facts: Facts, limit: Threshold) -> Found | None:
    """G4: gaps between steps."""
    between_ms = facts.evidence.between_ms
    # Between calls may be most of the program: the backward pass, say.
    if facts.unit.kind == CALL or between_ms is None or not between_ms + facts.mean["step_time"]:
        return None
    # What of it is input has a rule of its own.
    time = max(between_ms - (facts.evidence.between_input_ms or 0.0), 0.0)
    share = 100 * time / (between_ms + facts.mean["step_time"])
    if share <= limit["over"]:
        return None
    if (long := facts.evidence.long_gaps) is not None:
        omitted_ms = long.left_out_ms
        text = (
            f"On average **{wording.millis(time)}** pass between {facts.unit.plural},"
            f" **{share:.0f}%** of the loop, mostly in "
            + (
                "**1** gap of "
                if long.count == 1
                else f"**{long.count:,}** of the gaps, which typically take "
            )
            + f"**{wording.millis(long.typical_ms)}**{'' if long.count == 1 else ' each'}:"
            " validation, checkpoints or logging, for example."
        )
        if omitted_ms is not None:
            text += (
                f" The longest gap (**{wording.millis(omitted_ms)}**) is not counted: it may lie"
                " between two loops."
            )
        return Found(
            text,
            severity=facts.level(time),
            gain_ms=time,
            fix="-    if i % 10 == 0:\n+    if i % 100 == 0:\n         validate(model)",
        )
    text = (
        f"Typically **{wording.millis(time)}** pass between {facts.unit.plural}, **{share:.0f}%**"
        " of the loop: callbacks, metrics, logging, checkpoints, or data loading outside the"
        f" {facts.unit.plural}."
    )
    fix = "-    log(loss)\n+    if i % 100 == 0:\n+        log(loss)"
    if facts.torch:
        fix = "-    log(loss.item())\n+    if i % 100 == 0:\n+        log(loss.item())"
    elif facts.jax:
        fix = "-    print(float(loss))\n+    if i % 100 == 0:\n+        print(float(loss))"
    elif facts.framework.xla:
        fix = (
            " model.compile(optimizer, loss,\n"
            "+              steps_per_execution=10)  # callbacks run once per 10 steps"
        )
        if facts.evidence.in_use.several_steps:
            fix = (
                "-model.fit(x, y, callbacks=callbacks)\n"
                "+model.fit(x, y)  # with callbacks at the end of an epoch alone"
            )
        if not facts.keras:
            fix = "-    tf.print(loss)\n+    if i % 100 == 0:\n+        tf.print(loss)"
    return Found(text, severity=facts.level(time), gain_ms=time, fix=fix)


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
        looks_at="Host time in ops, or preparing the next program execution, while the device is idle",
        title="Reduce host work {per}",
        refuted_by="the device is idle for as long when the host only dispatches",
        gain_is=ABOUT,
        shortens=HOST_TIME,
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
        needs_units=True,
        done=Shown("Nothing is compiled"),
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
        looks_at="A rank that is behind in most steps, or pauses, beyond chance (`p.pods.stragglers`)",
        title="Find out why one rank is slow",
        on_npu=True,
        refuted_by="another recording shows another rank as the slowest",
        gain_is=ABOUT,
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
        needs_units=True,
        done=Shown(
            "Little time passes between steps; with several steps per execution, fewer"
            " callbacks are advised"
        ),
    ),
)
