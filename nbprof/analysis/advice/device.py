"""The rules of advice about kernels, memory, compilation and workers, for every framework.

Sources: TensorFlow's GPU performance guide, the rules of torch_tb_profiler, NVIDIA's guide to matrix products; where these give no number,
the threshold is nbprof's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.advice.facts import INPUT_HIGH, INPUT_MODERATE, PART_HIGH, PART_MODERATE, Facts, Finding, named, severity
from nbprof.analysis.advice.torch import FULL_MEMORY, IDLE_PERCENT

SHORT_KERNEL_US, MANY_KERNELS = 10.0, 1000
"""Kernels shorter than this on average, and so many a step, are better made by a compiler."""
BUSY_LITTLE, BUSY_LITTLE_TORCH = 30.0, 50.0
"""Percent of the time that a device is busy, below which it has too little to do."""
ROOM = 0.5
"""A peak below this part of the memory leaves room for a larger batch."""
LAYOUT_PERCENT = 5.0
ELEMENTWISE_PERCENT = 20.0
UNALIGNED_PERCENT = 5.0
EMPTY_PERCENT = 20.0
"""Percent of kernel time that multiprocessors without a block stand idle."""
ON_HOST_PERCENT = 10.0
LONG_CALL_US = 100.0
"""A launch takes some µs: an op of the host that takes this long computes there."""
FRAGMENTED, FRAGMENTED_FROM = 0.3, 0.8
UNEVEN_PERCENT = 5.0
BETWEEN_PERCENT = 10.0

# What kernels are called that move values from one layout to another: those of cuDNN, MIOpen, TensorFlow and PyTorch.
_LAYOUT = re.compile(
    r"nchw_?to_?nhwc|nhwc_?to_?nchw|nchw2nhwc|nhwc2nchw|tensorTransform|batched_transpose|SwapDimension\dAnd\d|transpose_kernel|"
    r"transpose_readWrite|transpose(?:Fused|Nchw|Nhwc)",
    re.IGNORECASE,
)
# Kernels of PyTorch, of TensorFlow's Eigen and of its own generator ("Relu_GPU_DT_FLOAT_DT_FLOAT_kernel").
_ELEMENTWISE = re.compile(r"elementwise_kernel|Cwise(?:Unary|Binary|Nullary|Ternary)Op|EigenMetaKernel.*TensorAssignOp|_GPU_DT_\w+_kernel")
# "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2": how many values a load takes; 8 of 16 bits where sizes allow it.
_UNALIGNED = re.compile(r"(?:f16|bf16|s16816|s1688|h1688|h16816|half).*_align[12](?:\D|$)", re.IGNORECASE)


def _level(facts: Facts, gain: float) -> str:
    return severity(100 * gain / facts.mean["step_time"], INPUT_MODERATE, INPUT_HIGH)


def _short(op: object) -> str:
    return "/".join(str(op).split("/")[-3:]).replace("*", "")


def _layout(facts: Facts) -> list[Finding]:
    """G10: kernels that move values to another layout."""
    kernels, whole = facts.computing
    if not whole or facts.evidence.work is not None:
        # What a compiled program moves about is known by its ops.
        return []
    mine = named(kernels, _LAYOUT)
    share = 100 * float(mine["total_us"].sum()) / whole
    if share < LAYOUT_PERCENT:
        return []
    gain = facts.compute_ms * share / 100
    worst = mine.iloc[int(mine["total_us"].to_numpy().argmax())]
    text = (
        f"**{share:.0f}%** of kernel time is in kernels that move values to another layout, most of all for {_short(worst['op'])} "
        f"(**{worst['total_us'] / 1000:.2f} ms**)."
    )
    if facts.torch:
        text += " Convolutions want channels last; models in that layout need no such kernels."
        fix = (
            " model = model.to(device)\n+model = model.to(memory_format=torch.channels_last)\n+x = x.to(memory_format=torch.channels_last)"
        )
    else:
        fix = "-layout = 'channels_first'\n+layout = 'channels_last'\n x = layers.Conv2D(64, 3, data_format=layout)(x)"
    title = "Keep arrays in the layout that kernels want"
    return [Finding("layout", _level(facts, gain), title, text, gain, fix, "kernels", "GPU kernels")]


def _alignment(facts: Facts) -> list[Finding]:
    """G9, G10: 16-bit matrix products whose sizes are no multiples of 8."""
    kernels, whole = facts.computing
    if not whole:
        return []
    mine = named(kernels, _UNALIGNED)
    share = 100 * float(mine["total_us"].sum()) / whole
    if share < UNALIGNED_PERCENT:
        return []
    gain = facts.compute_ms * share / 100
    worst = mine.iloc[int(mine["total_us"].to_numpy().argmax())]
    text = (
        f"**{share:.0f}%** of kernel time is in matrix products that load one or two values at a time (align1, align2 in the name), since "
        f"a size is no multiple of 8 (of 4 in TF32); the largest is {_short(worst['op'])} with **{worst['total_us'] / 1000:.2f} ms**."
    )
    fix = "-head = nn.Linear(768, 30522)\n+head = nn.Linear(768, 30528)  # a multiple of 8, or of 64"
    if facts.jax:
        fix = "-w = jnp.zeros((768, 30522), jnp.bfloat16)\n+w = jnp.zeros((768, 30528), jnp.bfloat16)  # a multiple of 8, or of 64"
    elif not facts.torch:
        fix = "-x = layers.Dense(30522)(x)\n+x = layers.Dense(30528)(x)  # a multiple of 8, or of 64"
    return [Finding("gemm_alignment", _level(facts, gain), "Round sizes up to multiples of 8", text, gain, fix, "kernels", "GPU kernels")]


def _counts(facts: Facts) -> tuple[float, float]:
    """Kernels a step, and how long one takes on average in µs."""
    kernels, whole = facts.computing
    count = float(kernels["occurrences"].sum()) if len(kernels) and "occurrences" in kernels else 0.0
    steps = int(facts.overview["steps"]) * max(int(facts.overview["devices"]), 1)
    return (count / steps if steps else 0.0), (whole / count if count else 0.0)


def _compiled(facts: Facts, in_jax: str) -> str:
    """The model handed to the compiler of its framework; JAX has done so already, and its fix is another each time."""
    if facts.torch:
        return "-model = Model().to(device)\n+model = torch.compile(Model().to(device))"
    if facts.jax:
        return in_jax
    if facts.keras:
        return "-model.compile(optimizer, loss)\n+model.compile(optimizer, loss, jit_compile=True)"
    return "-@tf.function\n+@tf.function(jit_compile=True)\n def train_step(batch):"


def _small_kernels(facts: Facts) -> list[Finding]:
    """G11: many kernels so short that starting them is what takes the time."""
    each, mean = _counts(facts)
    if each < MANY_KERNELS or mean >= SHORT_KERNEL_US or facts.percent["kernel_launch"] >= PART_MODERATE:
        return []
    gain = facts.compute_ms
    text = (
        f"A step runs **{each:,.0f}** kernels of **{mean:.1f} µs** on average, **{facts.compute_ms:.2f} ms** in all: most of them only "
        "read and write what the one before wrote. A compiler makes a few out of many."
    )
    graphs = "+os.environ['XLA_FLAGS'] = '--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUDNN,CUSTOM_CALL'  # before JAX starts"
    fix = _compiled(facts, graphs)
    title = "Record kernels as graphs" if facts.jax else "Compile many small kernels into few"
    return [Finding("small_kernels", "medium", title, text, gain, fix, "kernels", "GPU kernels")]


def _elementwise(facts: Facts) -> list[Finding]:
    """G11: kernels that go through all values for one op, where no compiler joins them."""
    kernels, whole = facts.computing
    if not whole or facts.evidence.work is not None or facts.percent["kernel_launch"] >= PART_MODERATE:
        return []
    mine = named(kernels, _ELEMENTWISE)
    share = 100 * float(mine["total_us"].sum()) / whole
    if share < ELEMENTWISE_PERCENT:
        return []
    gain = facts.compute_ms * share / 100
    worst = mine.iloc[int(mine["total_us"].to_numpy().argmax())]
    text = (
        f"**{share:.0f}%** of kernel time is in kernels of one elementwise op each, the largest {_short(worst['op'])} with "
        f"**{worst['total_us'] / 1000:.2f} ms**: each reads its values from memory and writes them back. A compiler joins them."
    )
    fix = _compiled(facts, "+@jax.jit\n def train_step(state, batch):")
    title = "Let a compiler join elementwise ops"
    return [Finding("elementwise_kernels", _level(facts, gain), title, text, gain, fix, "kernels", "GPU kernels")]


def _small_batch(facts: Facts) -> list[Finding]:
    """G12, and what torch_tb_profiler says of low GPU utilisation: too little work a step."""
    busy, (each, mean) = facts.overview.get("device_busy_percent"), _counts(facts)
    bound = BUSY_LITTLE_TORCH if facts.torch else BUSY_LITTLE
    driver = facts.runtime.of("allocate").ms if facts.runtime is not None else 0.0
    if busy is None or busy >= bound or not each or mean >= SHORT_KERNEL_US or facts.percent["input"] >= INPUT_HIGH:
        return []
    if driver > facts.mean["step_time"] * PART_HIGH / 100 or facts.percent["device_collectives"] >= PART_HIGH:
        return []
    peak, capacity = facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"]
    if peak and capacity and peak >= ROOM * capacity:
        return []
    text = (
        f"The device is busy **{busy:.0f}%** of a step, with **{each:,.0f}** kernels of **{mean:.1f} µs** on average: what the "
        "host spends on a step is the same for more examples."
    )
    if peak and capacity:
        part = 100 * peak / capacity
        text += f" The peak takes **{part:.{1 if part < 1 else 0}f}%** of the device's memory."
    fix = "-batch_size = 32\n+batch_size = 256  # as memory and accuracy permit"
    return [Finding("small_batch", "medium", "Give each step a larger batch", text, float("nan"), fix, "kernels", "GPU kernels")]


def _few_blocks(facts: Facts) -> list[Finding]:
    """Estimated SM efficiency of torch_tb_profiler: kernels with fewer blocks than the device has multiprocessors."""
    gpus = [d for d in (facts.overview.get("environment") or {}).get("devices", []) if d["kind"] == "GPU" and d.get("cores")]
    # AMD's runtime states threads where NVIDIA's states blocks.
    if len(gpus) != 1 or not gpus[0]["architecture"] or not len(facts.kernels) or "grid" not in facts.kernels:
        return []
    cores = int(gpus[0]["cores"])
    kernels, whole = facts.computing
    code, grids = pd.factorize(kernels["grid"].astype(object))
    blocks = np.array([_blocks(grid) for grid in grids], float)[code] if len(grids) else np.zeros(0)
    time = kernels["total_us"].to_numpy(float)
    empty = time * np.clip(1 - blocks / cores, 0, 1)
    lost = float(np.nansum(empty))
    share = 100 * lost / whole if whole else 0.0
    if share < EMPTY_PERCENT:
        return []
    few = 100 * float(time[blocks < cores].sum()) / whole
    worst = kernels.iloc[int(np.nanargmax(empty))]
    gain = facts.compute_ms * share / 100
    text = (
        f"**{few:.0f}%** of kernel time is in kernels with fewer blocks than the device has multiprocessors (**{cores}**), so that "
        f"**{share:.0f}%** of the device stands idle while kernels run; the largest is {_short(worst['op']) or 'a kernel'} with "
        f"**{_blocks(worst['grid']):,.0f}** blocks."
    )
    fix = "-batch_size = 8\n+batch_size = 64  # more blocks a kernel"
    return [Finding("few_blocks", _level(facts, gain), "Fill the device with larger kernels", text, gain, fix, "kernels", "GPU kernels")]


def one_batch(found: list[Finding]) -> list[Finding]:
    """Without advising a larger batch twice: what looks at the whole step and at the memory wins, and tells what kernels show as well."""
    by_rule = {one.rule: one for one in found}
    batch, blocks = by_rule.get("small_batch"), by_rule.get("few_blocks")
    if batch is None or blocks is None:
        return found
    both = batch._replace(evidence=f"{batch.evidence} {blocks.evidence}")
    return [both if one is batch else one for one in found if one is not blocks]


def _blocks(grid: Any) -> float:
    parts = [part.strip() for part in str(grid).split(",")]
    return float(np.prod([float(part) for part in parts])) if parts and all(part.isdecimal() for part in parts) else float("nan")


def _placement(facts: Facts) -> list[Finding]:
    """G5: matrix products that ran on the host though there is a GPU."""
    found = facts.evidence.placed
    if found is None or found.percent < ON_HOST_PERCENT or found.call_us < LONG_CALL_US:
        return []
    gain = min(found.ms, facts.mean["step_time"] - facts.compute_ms)
    text = (
        f"**{found.percent:.0f}%** of the time of ops on the host is matrix products that no kernel was recorded of, the largest "
        f"{_short(found.op)} with **{found.call_us / 1000:.2f} ms** a call: they ran on the CPU. Where TensorFlow cannot use the GPU, it "
        "says why when it starts."
    )
    fix = (
        "+assert tf.config.list_physical_devices('GPU'), 'TensorFlow sees no GPU'\n+tf.debugging.set_log_device_placement(True)\n"
        "-with tf.device('/CPU:0'):\n+with tf.distribute.OneDeviceStrategy('/GPU:0').scope():\n     model = make_model()"
    )
    return [Finding("placement", _level(facts, gain), "Run the model on the GPU", text, gain, fix, "ops", "Ops")]


def _host_bound(facts: Facts) -> list[Finding]:
    """T12: a device that idles while the host works on ops or prepares the runs of programs. PyTorch's is a rule of its own."""
    idle, share, time = facts.overview["device_idle_percent"], facts.percent["host_compute"], facts.mean["host_compute"]
    placed = facts.evidence.placed
    if (
        facts.torch
        or idle is None
        or idle < IDLE_PERCENT
        or share < PART_HIGH
        or (placed is not None and placed.percent >= ON_HOST_PERCENT)
    ):
        return []
    text = (
        f"The device is idle **{idle:.0f}%** of a step, and for **{time:.2f} ms** of that (**{share:.0f}%** of the step) the host works on "
        "ops or prepares the next run: arguments, buffers, dispatch."
    )
    if facts.jax:
        text += " Several steps in one program are dispatched once; block_until_ready in the loop keeps the host from running ahead."
        fix = (
            "-for batch in batches:\n-    state = step(state, batch)\n-    jax.block_until_ready(state)\n"
            "+state, losses = jax.lax.scan(step, state, batches)"
        )
    elif facts.keras:
        fix = " model.compile(optimizer, loss,\n+              steps_per_execution=10)"
    else:
        fix = "+@tf.function\n+def epoch(ds):\n+    for batch in ds:\n+        train_step(batch)\n"
        fix += "-for batch in ds:\n-    train_step(batch)\n+epoch(ds)"
    level = severity(share, INPUT_MODERATE, INPUT_HIGH)
    return [Finding("host_bound", level, "Give the host less to do for each step", text, time, fix, "trace", "Trace")]


def _compile(facts: Facts) -> list[Finding]:
    """Programs that are compiled in the steps that averages use."""
    share, time = facts.percent.get("compile", 0.0), facts.mean.get("compile", 0.0)
    if not share >= PART_MODERATE:
        return []
    text = f"**{share:.0f}%** of a step (**{time:.2f} ms**) compiles programs, in steps after the warm-up: shapes or Python values change."
    fix = "-@tf.function\n+@tf.function(reduce_retracing=True)\n def train_step(batch):\n     ...\n-ds = ds.batch(n)\n"
    fix += "+ds = ds.batch(n, drop_remainder=True)"
    if facts.jax:
        fix = "-step(state, batch, len(batch))  # each new shape or static argument is compiled\n+step(state, pad_to(batch, batch_size))"
    elif facts.torch:
        fix = "-model = torch.compile(model)\n+model = torch.compile(model, dynamic=True)  # one program for several shapes"
    level = severity(share, PART_MODERATE, PART_HIGH)
    return [Finding("compile", level, "Compile once, for one shape", text, time, fix, "trace", "Trace")]


def _full(facts: Facts) -> list[Finding]:
    """G16: a peak near the end of the memory. PyTorch's is a rule of its own."""
    peak, capacity = facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"]
    if facts.torch or not peak or not capacity or peak < FULL_MEMORY * capacity:
        return []
    text = (
        f"The peak of **{peak / 2**30:.2f} GiB** is **{100 * peak / capacity:.0f}%** of what the allocator may have: a little more, and it "
        "fails. Computing activations again instead of keeping them makes room."
    )
    fix = "-y = block(x)\n+y = tf.recompute_grad(block)(x)"
    if facts.jax:
        fix = "-y = block(x)\n+y = jax.checkpoint(block)(x)"
    return [Finding("memory_full", "medium", "Keep fewer activations", text, float("nan"), fix, "memory", "Memory")]


def _fragmented(facts: Facts) -> list[Finding]:
    """G16: free memory in pieces, where there is little of it."""
    peak, capacity, share = (facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"], facts.evidence.fragmentation)
    reserved = facts.evidence.reserved_bytes if facts.torch else peak
    if share is None or share <= FRAGMENTED or not reserved or not capacity or reserved < FRAGMENTED_FROM * capacity:
        return []
    text = (
        f"PyTorch's allocator holds **{reserved / 2**30:.2f} GiB** at the peak, **{100 * reserved / capacity:.0f}%** of the memory, "
        f"and **{100 * share:.0f}%** of that is not in use: it may be in pieces that nothing fits into."
        if facts.torch
        else f"At the peak, **{100 * reserved / capacity:.0f}%** of the memory, **{100 * share:.0f}%** of what is free is in pieces "
        "smaller than the largest: an allocation may fail though there is room for it."
    )
    fix = "+os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'  # before TensorFlow starts"
    if facts.torch:
        fix = '+os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # before the first use'
    elif facts.jax:
        fix = "+os.environ['XLA_PYTHON_CLIENT_ALLOCATOR'] = 'cuda_async'  # before JAX starts"
    return [Finding("fragmentation", "medium", "Keep free memory in one piece", text, float("nan"), fix, "memory", "Memory")]


def _uneven(facts: Facts) -> list[Finding]:
    """Workers that wait for one of them: its compute takes longer than theirs, and all wait where they communicate."""
    found = facts.evidence.spread
    if found is None or facts.percent["device_collectives"] < PART_MODERATE:
        return []
    more = found.ms - found.mean_ms
    share = 100 * more / found.mean_ms if found.mean_ms else 0.0
    if share <= UNEVEN_PERCENT or 100 * more < PART_MODERATE * facts.mean["step_time"]:
        return []
    gain = min(more, facts.mean["device_collectives"])
    text = (
        f"**{found.worker}** computes **{found.ms:.2f} ms** a step, **{share:.0f}%** more than the mean of **{found.workers}** workers "
        f"(**{found.mean_ms:.2f} ms**); the others wait for it where they communicate."
    )
    fix = "-sampler = RandomSampler(dataset)\n+sampler = DistributedSampler(dataset, drop_last=True)  # as much work for each"
    if facts.jax:
        fix = "-batch = pad_last(batch)\n+batch = jax.device_put(batch, NamedSharding(mesh, P('data')))  # as much work for each"
    elif not facts.torch:
        fix = "-ds = ds.batch(n)\n+ds = ds.batch(n, drop_remainder=True)\n ds = strategy.experimental_distribute_dataset(ds)"
    return [Finding("uneven_workers", _level(facts, gain), "Give each worker as much to do", text, gain, fix, "pods", "Pods")]


def _between(facts: Facts) -> list[Finding]:
    """G4: gaps between steps."""
    time = facts.evidence.between_ms
    if time is None or not time + facts.mean["step_time"]:
        return []
    share = 100 * time / (time + facts.mean["step_time"])
    if share <= BETWEEN_PERCENT:
        return []
    text = (
        f"Typically **{time:.2f} ms** lie between one step and the next, **{share:.0f}%** of the loop: callbacks, metrics, logging, "
        "checkpoints, or reading of data that no step holds."
    )
    fix = "-    log(loss.item())\n+    if i % 100 == 0:\n+        log(loss.item())"
    if facts.jax:
        fix = "-    print(float(loss))\n+    if i % 100 == 0:\n+        print(float(loss))"
    elif not facts.torch:
        fix = " model.compile(optimizer, loss,\n+              steps_per_execution=10)  # callbacks run once in 10 steps"
        if not facts.keras:
            fix = "-    tf.print(loss)\n+    if i % 100 == 0:\n+        tf.print(loss)"
    return [Finding("between_steps", _level(facts, time), "Do less between steps", text, time, fix, "trace", "Trace")]


RULES: tuple[Callable[[Facts], list[Finding]], ...] = (
    _layout,
    _alignment,
    _small_kernels,
    _elementwise,
    _small_batch,
    _few_blocks,
    _placement,
    _host_bound,
    _compile,
    _full,
    _fragmented,
    _uneven,
    _between,
)
