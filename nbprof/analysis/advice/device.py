"""The rules of advice about kernels, where ops run, compilation, workers and what lies between steps, for every framework.

Sources: TensorFlow's GPU performance guide, the rules of torch_tb_profiler, NVIDIA's guide to matrix products; where these give no number,
the threshold is nbprof's.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.advice.checks import INPUT_HIGH, PART_HIGH, PART_MODERATE
from nbprof.analysis.advice.facts import IDLE_PERCENT, KERNELS, MEMORY, OPS, STEP_SHARE, TRACE, AdviceRule, Facts, named, several, short
from nbprof.analysis.rule import (
    ALL,
    GPU_GUIDE_CHOICE,
    OURS,
    TENSORFLOW,
    TENSORFLOW_JAX,
    TORCH_TB,
    TPU_GUIDE_CHOICE,
    Finding,
    Found,
    Rule,
    Target,
    Threshold,
)

SHORT_KERNEL_US = 10.0
ON_HOST_PERCENT = 10.0

# Kernels of PyTorch, of TensorFlow's Eigen and of its own generator ("Relu_GPU_DT_FLOAT_DT_FLOAT_kernel").
_ELEMENTWISE = re.compile(r"elementwise_kernel|Cwise(?:Unary|Binary|Nullary|Ternary)Op|EigenMetaKernel.*TensorAssignOp|_GPU_DT_\w+_kernel")
# "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2": how many values a load takes; 8 of 16 bits where sizes allow it.
_UNALIGNED = re.compile(r"(?:f16|bf16|s16816|s1688|h1688|h16816|half).*_align[12](?:\D|$)", re.IGNORECASE)


def _alignment(facts: Facts, limit: Threshold) -> Found | None:
    """G9, G10: 16-bit matrix products whose sizes are no multiples of 8."""
    kernels, whole = facts.computing
    if not whole:
        return None
    mine = named(kernels, _UNALIGNED)
    share = 100 * float(mine["total_us"].sum()) / whole
    if share < limit["least"]:
        return None
    gain = facts.compute_ms * share / 100
    worst = mine.iloc[int(mine["total_us"].to_numpy().argmax())]
    text = (
        f"**{share:.0f}%** of kernel time is in matrix products that load one or two values at a time (align1, align2 in the name), since "
        f"a size is no multiple of 8 (of 4 in TF32); the largest is {short(worst['op'])} with **{worst['total_us'] / 1000:.2f} ms**."
    )
    fix = "-head = nn.Linear(768, 30522)\n+head = nn.Linear(768, 30528)  # a multiple of 8, or of 64"
    if facts.jax:
        fix = "-w = jnp.zeros((768, 30522), jnp.bfloat16)\n+w = jnp.zeros((768, 30528), jnp.bfloat16)  # a multiple of 8, or of 64"
    elif not facts.torch:
        fix = "-x = layers.Dense(30522)(x)\n+x = layers.Dense(30528)(x)  # a multiple of 8, or of 64"
    return Found(text, facts.level(gain), gain, fix)


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


def _small_kernels(facts: Facts, limit: Threshold) -> Found | None:
    """G11: many kernels so short that starting them is what takes the time."""
    each, mean = _counts(facts)
    if each < limit["kernels"] or mean >= limit["short_us"] or facts.percent["kernel_launch"] >= PART_MODERATE:
        return None
    gain = facts.compute_ms
    text = (
        f"A step runs **{each:,.0f}** kernels of **{mean:.1f} µs** on average, **{facts.compute_ms:.2f} ms** in all: most of them only "
        "read and write what the one before wrote. A compiler makes a few out of many."
    )
    graphs = "+os.environ['XLA_FLAGS'] = '--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUDNN,CUSTOM_CALL'  # before JAX starts"
    fix = _compiled(facts, graphs)
    title = "Record kernels as graphs" if facts.jax else "Compile many small kernels into few"
    return Found(text, gain_ms=gain, fix=fix, title=title)


def _elementwise(facts: Facts, limit: Threshold) -> Found | None:
    """G11: kernels that go through all values for one op, where no compiler joins them."""
    kernels, whole = facts.computing
    if not whole or facts.evidence.work is not None or facts.percent["kernel_launch"] >= PART_MODERATE:
        return None
    mine = named(kernels, _ELEMENTWISE)
    share = 100 * float(mine["total_us"].sum()) / whole
    if share < limit["least"]:
        return None
    gain = facts.compute_ms * share / 100
    worst = mine.iloc[int(mine["total_us"].to_numpy().argmax())]
    text = (
        f"**{share:.0f}%** of kernel time is in kernels of one elementwise op each, the largest {short(worst['op'])} with "
        f"**{worst['total_us'] / 1000:.2f} ms**: each reads its values from memory and writes them back. A compiler joins them."
    )
    fix = _compiled(facts, "+@jax.jit\n def train_step(state, batch):")
    return Found(text, facts.level(gain), gain, fix)


def _small_batch(facts: Facts, limit: Threshold) -> Found | None:
    """G12, and what torch_tb_profiler says of low GPU utilisation: too little work a step."""
    busy, (each, mean) = facts.overview.get("device_busy_percent"), _counts(facts)
    bound = limit["busy_torch"] if facts.torch else limit["busy"]
    driver = facts.torch_runtime.of("allocate").ms
    if busy is None or not limit["used"] <= busy < bound or not each or mean >= limit["short_us"] or facts.percent["input"] >= INPUT_HIGH:
        return None
    if driver > facts.mean["step_time"] * PART_HIGH / 100 or facts.percent["device_collectives"] >= PART_HIGH:
        return None
    if facts.percent.get("compile", 0.0) >= PART_HIGH:
        # The device waits for a program or a graph to be made.
        return None
    peak, capacity = facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"]
    if peak and capacity and peak >= limit["room"] * capacity:
        return None
    text = (
        f"The device is busy **{busy:.0f}%** of a step, with {several(each, 'kernel')} of **{mean:.1f} µs** on average: what the "
        "host spends on a step is the same for more examples."
    )
    if peak and capacity:
        part = 100 * peak / capacity
        text += f" The peak takes **{part:.{1 if part < 1 else 0}f}%** of the device's memory."
    return Found(text)


def _few_blocks(facts: Facts, limit: Threshold) -> Found | None:
    """Estimated SM efficiency of torch_tb_profiler: kernels with fewer blocks than the device has multiprocessors."""
    gpus = [d for d in (facts.overview.get("environment") or {}).get("devices", []) if d["kind"] == "GPU" and d.get("cores")]
    # AMD's runtime states threads where NVIDIA's states blocks.
    if len(gpus) != 1 or not gpus[0]["architecture"] or not len(facts.kernels) or "grid" not in facts.kernels:
        return None
    cores = int(gpus[0]["cores"])
    kernels, whole = facts.computing
    code, grids = pd.factorize(kernels["grid"].astype(object))
    blocks = np.array([_blocks(grid) for grid in grids], float)[code] if len(grids) else np.zeros(0)
    time = kernels["total_us"].to_numpy(float)
    empty = time * np.clip(1 - blocks / cores, 0, 1)
    lost = float(np.nansum(empty))
    share = 100 * lost / whole if whole else 0.0
    if share < limit["empty"]:
        return None
    few = 100 * float(time[blocks < cores].sum()) / whole
    worst = kernels.iloc[int(np.nanargmax(empty))]
    gain = facts.compute_ms * share / 100
    text = (
        f"**{few:.0f}%** of kernel time is in kernels with fewer blocks than the device has multiprocessors (**{cores}**), so that "
        f"**{share:.0f}%** of the device stands idle while kernels run; the largest is {short(worst['op']) or 'a kernel'} with "
        f"{several(_blocks(worst['grid']), 'block')}."
    )
    return Found(text, facts.level(gain), gain)


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


def _placement(facts: Facts, limit: Threshold) -> Found | None:
    """G5: matrix products that ran on the host though there is a GPU."""
    found = facts.evidence.placed
    if found is None or found.percent < limit["percent"] or found.call_us < limit["call_us"]:
        return None
    gain = min(found.ms, facts.mean["step_time"] - facts.compute_ms)
    text = (
        f"**{found.percent:.0f}%** of the time of ops on the host is matrix products that no kernel was recorded of, the largest "
        f"{short(found.op)} with **{found.call_us / 1000:.2f} ms** a call: they ran on the CPU. Where TensorFlow cannot use the GPU, it "
        "says why when it starts."
    )
    return Found(text, facts.level(gain), gain)


def _host_bound(facts: Facts, limit: Threshold) -> Found | None:
    """T12: a device that idles while the host works on ops or prepares the runs of programs. PyTorch's is a rule of its own."""
    idle, share, time = facts.overview["device_idle_percent"], facts.percent["host_compute"], facts.mean["host_compute"]
    placed = facts.evidence.placed
    if idle is None or idle < limit["idle"] or share < limit["moderate"] or (placed is not None and placed.percent >= ON_HOST_PERCENT):
        return None
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
    return Found(text, limit.severity(share), time, fix)


def _compile(facts: Facts, limit: Threshold) -> Found | None:
    """Programs that are compiled in the steps that averages use."""
    if facts.torch_runtime.of("captured").count:
        # A graph is captured, which is done once and has nothing to do with shapes.
        return None
    share, time = facts.percent.get("compile", 0.0), facts.mean.get("compile", 0.0)
    if not share >= limit["moderate"]:
        return None
    text = f"**{share:.0f}%** of a step (**{time:.2f} ms**) compiles programs, in steps after the warm-up: shapes or Python values change."
    fix = "-@tf.function\n+@tf.function(reduce_retracing=True)\n def train_step(batch):\n     ...\n-ds = ds.batch(n)\n"
    fix += "+ds = ds.batch(n, drop_remainder=True)"
    if facts.jax:
        fix = "-step(state, batch, len(batch))  # each new shape or static argument is compiled\n+step(state, pad_to(batch, batch_size))"
    elif facts.torch:
        fix = "-model = torch.compile(model)\n+model = torch.compile(model, dynamic=True)  # one program for several shapes"
    return Found(text, limit.severity(share), time, fix)


def _fragmented(facts: Facts, limit: Threshold) -> Found | None:
    """G16: free memory in pieces, where there is little of it."""
    peak, capacity, share = (facts.overview["peak_memory_bytes"], facts.overview["memory_capacity_bytes"], facts.evidence.fragmentation)
    reserved = facts.evidence.reserved_bytes if facts.torch else peak
    if share is None or share <= limit["pieces"] or not reserved or not capacity or reserved < limit["full"] * capacity:
        return None
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
    return Found(text, fix=fix)


def _uneven(facts: Facts, limit: Threshold) -> Found | None:
    """Workers that wait for one of them: its compute takes longer than theirs, and all wait where they communicate."""
    found = facts.evidence.spread
    if found is None or facts.percent["device_collectives"] < limit["least"]:
        return None
    more = found.ms - found.mean_ms
    share = 100 * more / found.mean_ms if found.mean_ms else 0.0
    if share <= limit["more"] or 100 * more < limit["least"] * facts.mean["step_time"]:
        return None
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
    return Found(text, facts.level(gain), gain, fix)


def _between(facts: Facts, limit: Threshold) -> Found | None:
    """G4: gaps between steps."""
    time = facts.evidence.between_ms
    if time is None or not time + facts.mean["step_time"]:
        return None
    share = 100 * time / (time + facts.mean["step_time"])
    if share <= limit["over"]:
        return None
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
    return Found(text, facts.level(time), time, fix)


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "gemm_alignment", _alignment, Threshold("≥ {least:g} % of kernel time", least=5.0),
        "NVIDIA matrix multiplication guide; threshold of nbprof", KERNELS, ALL,
        "16-bit and TF32 matrix products whose kernels load one or two values at a time", "Round sizes up to multiples of 8",
    ),
    Rule(
        "small_kernels", _small_kernels, Threshold("≥ {kernels:,.0f} of < {short_us:g} µs", kernels=1000, short_us=SHORT_KERNEL_US),
        GPU_GUIDE_CHOICE, KERNELS, ALL, "Kernels a step, and how long they take on average",
    ),
    Rule(
        "elementwise_kernels", _elementwise, Threshold("≥ {least:g} % of kernel time", least=20.0), GPU_GUIDE_CHOICE, KERNELS, ALL,
        "Kernels of one elementwise op each, where the host keeps up with launching", "Let a compiler join elementwise ops",
    ),
    Rule(
        "small_batch", _small_batch,
        Threshold(
            "busy ≥ {used:g} % and < {busy:g} % (PyTorch {busy_torch:g} %), kernels < {short_us:g} µs, peak < {room:percent} of memory",
            used=1.0, busy=30.0, busy_torch=50.0, short_us=SHORT_KERNEL_US, room=0.5,
        ),
        f"{TORCH_TB}; {GPU_GUIDE_CHOICE}", KERNELS, ALL, "How busy the device is, with short kernels, little input and room in memory",
        "Give each step a larger batch", "-batch_size = 32\n+batch_size = 256  # as memory and accuracy permit",
    ),
    Rule(
        "few_blocks", _few_blocks, Threshold("≥ {empty:g} % of the device idle during kernels", empty=20.0),
        f"{TORCH_TB}; threshold of nbprof", KERNELS, ALL,
        "Kernels with fewer blocks than a GPU of NVIDIA has multiprocessors (estimated SM efficiency); with `small_batch` part of that",
        "Fill the device with larger kernels", "-batch_size = 8\n+batch_size = 64  # more blocks a kernel",
    ),
    Rule(
        # A launch takes some µs: an op of the host that takes that long computes there.
        "placement", _placement,
        Threshold("≥ {percent:g} % of host op time, ≥ {call_us:g} µs a call", percent=ON_HOST_PERCENT, call_us=100.0),
        GPU_GUIDE_CHOICE, OPS, TENSORFLOW, "Matrix products that ran on the host beside a GPU", "Run the model on the GPU",
        "+assert tf.config.list_physical_devices('GPU'), 'TensorFlow sees no GPU'\n+tf.debugging.set_log_device_placement(True)\n"
        "-with tf.device('/CPU:0'):\n+with tf.distribute.OneDeviceStrategy('/GPU:0').scope():\n     model = make_model()",
    ),
    Rule(
        "host_bound", _host_bound,
        Threshold(
            "≥ {moderate:g} % of step time (high from {high:g} %), device idle ≥ {idle:g} %",
            moderate=PART_HIGH, high=INPUT_HIGH, idle=IDLE_PERCENT,
        ),
        TPU_GUIDE_CHOICE, TRACE, TENSORFLOW_JAX, "Work of the host on ops, or on the next run of a program, while the device is idle",
        "Give the host less to do for each step",
    ),
    Rule("compile", _compile, STEP_SHARE, OURS, TRACE, ALL, "Programs compiled in steps that averages use", "Compile once, for one shape"),
    Rule(
        "fragmentation", _fragmented, Threshold("> {pieces:percent} of it, at ≥ {full:percent} of the memory", pieces=0.3, full=0.8),
        OURS, MEMORY, ALL, "Free memory in pieces at the peak; of PyTorch what is reserved and not allocated",
        "Keep free memory in one piece", on_npu=True,
    ),
    Rule(
        "uneven_workers", _uneven, Threshold("> {more:g} % more, ≥ {least:g} % of step time", more=5.0, least=PART_MODERATE),
        "msprof-analyze (slow rank)", Target("pods", "Pods"), ALL,
        "Device compute of the slowest worker by the mean of all, where they communicate", "Give each worker as much to do", on_npu=True,
    ),
    Rule(
        "between_steps", _between, Threshold("> {over:g} % of the time of the loop", over=10.0), GPU_GUIDE_CHOICE, TRACE, ALL,
        "Time between one step and the next: callbacks, logging, checkpoints", "Do less between steps", on_npu=True,
    ),
)  # fmt: skip
