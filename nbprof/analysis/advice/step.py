"""The rules of advice about the parts of a step: launches, the host's own work, precision, eager code, communication, results, Python.

Sources: TensorFlow Profiler, TensorFlow's GPU performance guide, PyTorch's performance tuning guide and the notes of its CUDA allocator.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nbprof.analysis.advice.checks import (
    EXPENSIVE_FUNCTION,
    INPUT_HIGH,
    LITTLE_16_BIT,
    MOST_UNKNOWN,
    MUCH_EAGER,
    OUTSIDE_COMPILATION,
    PART_HIGH,
    PART_MODERATE,
)
from nbprof.analysis.advice.facts import (
    COPIES_SHARE,
    IDLE_PERCENT,
    KERNELS,
    MEMORY,
    OPS,
    STEP_SHARE,
    TENSOR_CORES,
    TRACE,
    AdviceRule,
    Facts,
    only,
    short,
)
from nbprof.analysis.rule import (
    ALL,
    GPU_GUIDE_CHOICE,
    OURS,
    PYTORCH,
    TENSORFLOW,
    TENSORFLOW_JAX,
    TORCH_GUIDE,
    TPU,
    XPROF,
    Found,
    Rule,
    Target,
    Threshold,
)

# Kernels that compute no product of matrices, though the op that they belong to is one: they prepare what it reads, or move what it made.
_NO_PRODUCT = re.compile(
    r"transpose(?!Params)|nchwToNhwc|nhwcToNchw|tensorTransform|SwapDimension|im2col|col2im|^(?:loop|input|wrapped)_|memcpy|memset",
    re.IGNORECASE,
)


def _launch(facts: Facts, limit: Threshold) -> Found | None:
    share, time = facts.percent["kernel_launch"], facts.mean["kernel_launch"]
    if share < limit["moderate"]:
        return None
    level = limit.severity(share)
    if facts.torch:
        launches = facts.torch_runtime.of("launch", "graph").count
        text = (
            f"**{share:.0f}%** of a step (**{time:.2f} ms**) launches kernels while the device idles, **{launches:,.0f}** launches a step."
        )
        fix = '-model = Model().to(device)\n+model = torch.compile(Model().to(device), mode="reduce-overhead")  # CUDA graphs'
        return Found(text, level, time, fix, "Launch whole graphs, not single kernels")
    text = f"**{share:.0f}%** of a step (**{time:.2f} ms**) prepares and launches kernels."
    if facts.jax:
        fix = "-def train_step(state, batch):\n+@partial(jax.jit, donate_argnums=0)\n+def train_step(state, batch):"
        return Found(text, level, time, fix, "Compile the whole step as one program")
    if facts.keras:
        fix = " model.compile(optimizer, loss,\n+              jit_compile=True, steps_per_execution=10)"
    else:
        fix = "-@tf.function\n+@tf.function(jit_compile=True)\n def train_step(batch):"
    if len(facts.pipelines):
        text += " tf.data threads may compete with the launching thread: give it its own."
        fix = f"+import os\n+os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'  # before TensorFlow starts\n{fix}"
    return Found(text, level, time, fix, "Launch fewer, larger kernels")


def _allocator(facts: Facts, limit: Threshold) -> Found | None:
    calls, step = facts.torch_runtime.of("allocate"), facts.mean["step_time"]
    share = 100 * calls.ms / step if step else 0.0
    if share < limit["moderate"]:
        return None
    text = (
        f"**{calls.count:,.0f}** calls a step ask the driver for memory or give it back, most of all {calls.name}: **{calls.ms:.2f} ms** "
        f"(**{share:.0f}%** of a step). Each may wait for the whole device. PyTorch's caching allocator makes none in a steady loop, "
        "unless PYTORCH_NO_CUDA_MEMORY_CACHING is set, the loop empties the cache, or memory is so full that blocks are given back."
    )
    family = "HIP" if facts.torch_runtime.amd else "CUDA"
    fix = (
        "-    torch.cuda.empty_cache()\n+import os\n"
        f'+os.environ["PYTORCH_{family}_ALLOC_CONF"] = "expandable_segments:True"  # before the first use'
    )
    return Found(text, limit.severity(share), min(calls.ms, facts.mean["host_compute"] or calls.ms), fix)


def _host_ops(facts: Facts, limit: Threshold) -> Found | None:
    idle, share = facts.overview["device_idle_percent"], facts.percent["host_compute"]
    eager = facts.overview["eager_host_percent"] or 0.0
    # What the driver's allocator costs is a finding of its own.
    time = facts.mean["host_compute"] - facts.torch_runtime.of("allocate").ms
    if idle is None or share < limit["moderate"] or eager < limit["eager"] or time < limit["own"] * facts.mean["host_compute"]:
        return None
    text = (
        f"The device is idle **{idle:.0f}%** of a step, and for **{time:.2f} ms** of that the host works on ops, **{eager:.0f}%** of them "
        "eager, one by one. Compiled, many become one."
    )
    return Found(text, limit.severity(share), time)


def _precision(facts: Facts, limit: Threshold) -> Found | None:
    half, compute, cores = facts.overview["compute_16bit_percent"], facts.mean["device_compute"], facts.matrix_units
    # Names of kernels tell the width of numbers only where they state it; programs always do.
    programs = facts.programs_16_bit_percent
    half = half if programs is None or half is None else max(half, programs)
    if half is None or half >= limit["below"] or not compute or not cores:
        return None
    text = f"{only(half)} of device compute is 16 bit. Where accuracy permits, 16-bit ops run up to twice as fast"
    work = facts.evidence.work
    text += ": they move half of the bytes." if work is not None and not work.products and facts.tpu else f" and can use {cores}."
    # A TPU has no kernels of its own to show.
    target = OPS if facts.tpu else KERNELS
    return Found(text, facts.level(compute / 2), compute / 2, _in_16_bit(facts), target=target)


def _in_16_bit(facts: Facts) -> str:
    # Volta and Turing compute no bfloat16.
    dtype = "float16" if facts.before_ampere else "bfloat16"
    if facts.torch:
        if not facts.before_ampere:
            return '+with torch.autocast("cuda", dtype=torch.bfloat16):\n     loss = loss_fn(model(x), y)'
        return (
            '+scaler = torch.amp.GradScaler("cuda")\n+with torch.autocast("cuda", dtype=torch.float16):\n     loss = loss_fn(model(x), y)\n'
            "-loss.backward()\n-optimizer.step()\n+scaler.scale(loss).backward()\n+scaler.step(optimizer)\n+scaler.update()"
        )
    if facts.jax:
        return f"+x, params = jax.tree.map(lambda a: a.astype(jnp.{dtype}), (x, params))\n loss = loss_fn(params, x, y)"
    if not facts.keras:
        return f"-logits = model(x)\n+logits = tf.cast(model(tf.cast(x, tf.{dtype})), tf.float32)  # weights in {dtype} too"
    return f"+tf.keras.mixed_precision.set_global_policy('mixed_{'bfloat16' if facts.tpu else 'float16'}')"


def _tensor_cores(facts: Facts, limit: Threshold) -> Found | None:
    kernels, cores = facts.kernels, facts.matrix_units
    whole = float(kernels["total_us"].sum()) if len(kernels) else 0.0
    if not whole or not cores:
        return None
    # Where the name does not tell whether a kernel uses them, nothing is missed for certain.
    eligible, used = kernels["op_tensor_core_eligible"].astype(bool), kernels["uses_tensor_core"].fillna(True).astype(bool)
    unused = kernels[eligible & ~used]
    unused = unused[~unused["kernel"].astype(str).str.contains(_NO_PRODUCT)]
    share = 100 * float(unused["total_us"].sum()) / whole
    if share < limit["moderate"]:
        return None
    worst = unused.iloc[0]
    op = str(worst["op"]) if facts.torch else short(worst["op"])
    how, fix = _how_of_torch(facts, op) if facts.torch else _how(facts, op)
    text = (
        f"**{share:.0f}%** of kernel time is in kernels whose op could run on {cores} but does not; the largest is "
        f"{op} with **{worst['total_us'] / 1000:.2f} ms**. {how}"
    )
    gain = facts.mean["device_compute"] * share / 100
    return Found(text, limit.severity(share), gain, fix, f"Let eligible ops use {cores}")


def _how(facts: Facts, op: str) -> tuple[str, str]:
    """How an op can use the units for products of matrices: a sentence and a fix."""
    fix = "-x = layers.Dense(100)(x)\n+x = layers.Dense(104)(x)  # a multiple of 8"
    if "conv" in op.lower():
        fix = "-x = layers.Conv2D(30, 3)(x)\n+x = layers.Conv2D(32, 3)(x)  # channels, in and out: multiples of 8"
    if facts.jax and (facts.before_ampere or facts.matrix_units != TENSOR_CORES):
        fix = "+x, params = jax.tree.map(lambda a: a.astype(jnp.float16), (x, params))\n loss = loss_fn(params, x, y)"
    elif facts.jax:
        fix = "+jax.config.update('jax_default_matmul_precision', 'tensorfloat32')"
    return "Channels and batch as multiples of 8, and 16-bit inputs, allow it.", fix


def _how_of_torch(facts: Facts, op: str) -> tuple[str, str]:
    if "conv" in op:
        return "Convolutions use them with 16-bit inputs in channels-last layout and channels that are multiples of 8.", (
            " model = model.to(device)\n+model = model.to(memory_format=torch.channels_last)\n+x = x.to(memory_format=torch.channels_last)"
        )
    runtime = facts.torch_runtime
    if not runtime.amd and runtime.capability is not None and runtime.capability >= (8, 0):
        fix = '+torch.set_float32_matmul_precision("high")'
        return "TF32 lets 32-bit matrix products use them; sizes as multiples of 8 let 16-bit ones.", fix
    return "16-bit inputs, and sizes as multiples of 8, allow it.", ""


def _eager(facts: Facts, limit: Threshold) -> Found | None:
    share = facts.eager_percent
    if share <= limit["over"]:
        return None
    fix = "+@jax.jit\n def train_step(batch):" if facts.jax else "+@tf.function\n def train_step(batch):"
    if facts.jax:
        text = f"**{share:.0f}%** of op time ran op by op. jax.jit makes one program of them."
        return Found(text, fix=fix, title="Put the step into jax.jit")
    text = f"**{share:.0f}%** of op time ran eagerly, op by op. A tf.function runs them as one graph."
    if facts.keras and len(facts.overview["tf_functions"]):
        fix = "-model.compile(optimizer, loss, run_eagerly=True)\n+model.compile(optimizer, loss)"
    return Found(text, fix=fix, title="Put eager code into a tf.function")


def _functions(facts: Facts, limit: Threshold) -> Found | None:
    """Functions that are traced again and again; one that was traced in a step that warms up costs the others nothing."""
    functions = facts.overview["tf_functions"]
    worst = functions[(functions["expensive_percent"] >= limit["function"]) & (functions["expensive_ms_per_step"] > 0)]
    worst = worst.sort_values("expensive_ms_per_step", ascending=False, kind="stable")
    time = float(worst["expensive_ms_per_step"].sum())
    if 100 * time < limit["moderate"] * facts.mean["step_time"]:
        return None
    name, share, traced = worst[["function", "expensive_percent", "tracings"]].iloc[0].tolist()
    more = f" So are **{len(worst) - 1}** more." if len(worst) > 1 else ""
    text = f"**{name}** is traced or run eagerly for **{share:.0f}%** of its time (traced **{traced}** times so far).{more}"
    return Found(text, limit.severity(100 * time / facts.mean["step_time"]), time)


def _outside(facts: Facts, limit: Threshold) -> Found | None:
    share = facts.overview["outside_compilation_percent"]
    if share is None or share <= limit["over"]:
        return None
    text = f"**{share:.0f}%** of op time on the TPU waits for ops that run on the host, outside of the compiled program."
    fix = "-tf.print(loss)\n-tf.summary.image('batch', x)\n+if step % 100 == 0:\n+    log(loss)  # from outside of the step's function"
    if facts.jax:
        fix = "-jax.debug.print('{}', loss)\n+if step % 100 == 0:\n+    print(loss)  # from outside of the jitted step"
    return Found(text, gain_ms=facts.mean["device_compute"] * share / 100, fix=fix)


def _part(category: str, what: str, how: Callable[[Facts], tuple[str, str]]) -> Callable[[Facts, Threshold], Found | None]:
    """A check of how large one category of the step is; `how` gives a title and a fix."""

    def check(facts: Facts, limit: Threshold) -> Found | None:
        share, time = facts.percent[category], facts.mean[category]
        if share < limit["moderate"]:
            return None
        title, fix = how(facts)
        return Found(f"**{share:.0f}%** of a step (**{time:.2f} ms**) is {what}.", limit.severity(share), time, fix, title)

    return check


def _overlap(facts: Facts) -> tuple[str, str]:
    title = "Overlap communication with compute"
    if facts.torch:
        return "Communicate less often, or behind compute", (
            " for i, batch in enumerate(loader):\n+    with model.no_sync() if (i + 1) % 4 else contextlib.nullcontext():\n"
            "         loss_fn(model(batch)).backward()"
        )
    if facts.jax:
        return title, "+os.environ['XLA_FLAGS'] = '--xla_gpu_enable_latency_hiding_scheduler=true'  # before JAX starts"
    return title, (
        "-strategy = tf.distribute.MirroredStrategy()\n+strategy = tf.distribute.MirroredStrategy(\n"
        "+    cross_device_ops=tf.distribute.NcclAllReduce(num_packs=2))"
    )


def _fetch(facts: Facts) -> tuple[str, str]:
    if facts.torch:
        return "", "-print(loss.item())\n+losses.append(loss.detach())  # and look at them every 100 steps"
    return "", "-print(float(loss))\n+losses.append(loss)  # and look at them every 100 steps"


_results = _part("output", "copies from the device to the host", _fetch)


def _output(facts: Facts, limit: Threshold) -> Found | None:
    return None if facts.in_host_memory else _results(facts, limit)


def _host_memory(facts: Facts, limit: Threshold) -> Found | None:
    if not facts.in_host_memory:
        return None
    share = float(facts.overview["host_transfer_percent"])
    gain = share * facts.mean["step_time"] / 100
    text = f"**{share:.0f}%** of a step (**{gain:.2f} ms**) the program moves arrays between the device and the memory of the host."
    return Found(text, limit.severity(share), gain)


def _waits(facts: Facts, limit: Threshold) -> Found | None:
    waits, idle = facts.torch_runtime.of("sync", "copy D2H"), facts.overview["device_idle_percent"]
    share = 100 * waits.ms / facts.mean["step_time"] if facts.mean["step_time"] else 0.0
    # Waiting for the device only costs where the device then runs dry.
    if idle is None or idle < limit["idle"] or waits.count < 1 or share < limit["least"]:
        return None
    text = (
        f"The host waits for the device **{waits.count:,.0f}** times a step, **{waits.ms:.2f} ms** in all ({waits.name}), and can launch "
        f"nothing ahead meanwhile; the device is idle **{idle:.0f}%** of a step. .item(), .cpu(), print(loss), and if on a tensor do that."
    )
    return Found(text)


def _other(facts: Facts, limit: Threshold) -> Found | None:
    share, time = facts.percent["other"], facts.mean["other"]
    if share < limit["least"]:
        return None
    gain = time if share <= MOST_UNKNOWN else float("nan")
    if facts.torch:
        text = (
            f"**{share:.0f}%** of a step (**{time:.2f} ms**) is in no recorded op, launch or copy: Python between ops, logging or I/O. "
            "with_stack=True makes Python itself slower."
        )
        fix = "-model = Model().to(device)\n+model = torch.compile(Model().to(device))"
        return Found(text, gain_ms=gain, fix=fix, title="Spend less of the step in Python")
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
    return Found(text, gain_ms=gain, fix=fix, title="Run several steps in one call")


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "kernel_launch", _launch, STEP_SHARE, XPROF, KERNELS, ALL,
        "Time in which the host prepares and launches kernels while the device waits",
    ),
    Rule(
        "allocator", _allocator, STEP_SHARE, TORCH_GUIDE, MEMORY, PYTORCH,
        "Calls that ask the driver for memory or give it back", "Keep memory in PyTorch's allocator", on_npu=True,
    ),
    Rule(
        "host_ops", _host_ops,
        Threshold(
            "≥ {moderate:g} % of step time (high from {high:g} %), ≥ {own:percent} of it not in the allocator, "
            "≥ {eager:g} % of op time eager",
            moderate=PART_HIGH, high=INPUT_HIGH, eager=50.0, own=0.2,
        ),
        TORCH_GUIDE, OPS, PYTORCH, "Ops of the host, most of them eager, while the device is idle", "Compile the model",
        "-model = Model().to(device)\n+model = torch.compile(Model().to(device))\n+optimizer = torch.optim.AdamW(..., fused=True)",
    ),
    Rule(
        "mixed_precision", _precision, Threshold("< {below:g} % of device compute", below=LITTLE_16_BIT), XPROF, KERNELS, ALL,
        "Device compute in 16 bits: by the names of kernels, and by the element types of compiled programs", "Use mixed precision",
    ),
    Rule(
        "tensor_cores", _tensor_cores, Threshold("≥ {moderate:g} % of kernel time (high from {high:g} %)", moderate=10.0, high=30.0),
        GPU_GUIDE_CHOICE, Target("kernels", "GPU kernels: eligible, not used"), ALL,
        "Kernels whose op could use TensorCores and that do not; transposes left out",
    ),
    Rule(
        "eager", _eager, Threshold("> {over:g} % of op time of a side", over=MUCH_EAGER), XPROF, OPS, TENSORFLOW_JAX,
        "Ops that ran eagerly, one by one",
    ),
    Rule(
        "tf_function", _functions,
        Threshold(
            "≥ {function:g} % of a function's time and ≥ {moderate:g} % of step time (high from {high:g} %)",
            function=EXPENSIVE_FUNCTION, moderate=PART_MODERATE, high=PART_HIGH,
        ),
        XPROF, TRACE, TENSORFLOW, "tf.functions that are traced or run eagerly in steps that averages use", "Trace functions once",
        "-@tf.function\n+@tf.function(reduce_retracing=True)\n def train_step(batch):  # pass tensors, not Python numbers",
    ),
    Rule(
        "outside_compilation", _outside, Threshold("> {over:g} % of op time", over=OUTSIDE_COMPILATION), XPROF, OPS, TPU,
        "Ops that a compiled program waits for on the host", "Keep the step inside one program",
    ),
    Rule(
        "collectives", _part("device_collectives", "communication between devices", _overlap), STEP_SHARE, XPROF, TRACE, ALL,
        "Communication between devices that no compute hides", on_npu=True,
    ),
    Rule(
        "output", _output, COPIES_SHARE, XPROF, TRACE, ALL, "Copies from the device to the host that no compute hides",
        "Fetch results less often", on_npu=True,
    ),
    Rule(
        "host_memory", _host_memory, COPIES_SHARE, OURS, TRACE, TPU,
        "Arrays that a program moves between the device and the memory of the host", "Keep arrays in the device's memory",
        "-x = jax.device_put(x, sharding.with_memory_kind('pinned_host'))\n"
        "+x = jax.device_put(x, sharding)  # as many arrays as there is room for",
    ),
    Rule(
        "waits", _waits,
        Threshold("≥ {least:g} % of step time, device idle ≥ {idle:g} %", least=PART_MODERATE, idle=IDLE_PERCENT),
        TORCH_GUIDE, TRACE, PYTORCH,
        "Calls that wait for the device, which then runs dry", "Let the host run ahead of the device",
        "-total += loss.item()\n+total += loss.detach()  # and .item() once, after the loop", on_npu=True,
    ),
    Rule(
        "other", _other, Threshold("≥ {least:g} % of step time", least=PART_HIGH), XPROF, TRACE, ALL,
        "Time in no recorded op, launch or copy", on_npu=True,
    ),
)  # fmt: skip
