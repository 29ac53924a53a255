"""Advice rules about parts of a step: launches, host work, precision, communication, Python.

Sources: TensorFlow Profiler, TensorFlow's GPU performance guide, PyTorch's performance tuning guide
and the notes of its CUDA allocator.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd

from nbprof.activity.unit import ITERATION, STEP
from nbprof.analysis.advice import tf_data
from nbprof.analysis.advice.checks import (
    EXPENSIVE_FUNCTION,
    INPUT_HIGH,
    INPUT_MODERATE,
    LITTLE_16_BIT,
    MOST_UNKNOWN,
    MUCH_EAGER,
    OUTSIDE_COMPILATION,
    PART_HIGH,
    PART_MODERATE,
    retraced,
)
from nbprof.analysis.advice.facts import (
    COPIES_SHARE,
    IDLE_PERCENT,
    JIT_COMPILE,
    KERNELS,
    MEMORY,
    OPS,
    STEP_SHARE,
    TENSOR_CORES,
    TORCH_CHANNELS_LAST,
    TORCH_COMPILE,
    TRACE,
    AdviceRule,
    Facts,
    only,
    short,
)
from nbprof.analysis.advice.host_buffer import PRICE
from nbprof.analysis.advice.recorder import IN_CELL
from nbprof.analysis.advice.training import FUSED
from nbprof.analysis.rule import (
    ABOUT,
    ALL,
    AT_LEAST,
    DEVICE_TIME,
    ESTIMATED,
    GPU_GUIDE_CHOICE,
    HOST_TIME,
    INFERRED,
    JAX,
    ON_HOST,
    OURS,
    PYTORCH,
    TENSORFLOW,
    TENSORFLOW_JAX,
    TORCH_GUIDE,
    TPU,
    UP_TO,
    XPROF,
    Found,
    Rule,
    Shown,
    Target,
    Threshold,
)
from nbprof.dialects import device_peaks
from nbprof.display import wording
from nbprof.frameworks import register as frameworks

# Kernels that prepare the inputs of a matrix product or move its output, but do not compute it.
_NO_PRODUCT = re.compile(
    r"transpose(?!Params)|nchwToNhwc|nhwcToNchw|tensorTransform|SwapDimension|im2col|col2im|"
    r"^(?:loop|input|wrapped)_|memcpy|memset",
    re.IGNORECASE,
)
_DONATED = (
    "-def train_step(state, batch):\n"
    "+from functools import partial\n"
    "+@partial(jax.jit, donate_argnums=0)\n"
    "+def train_step(state, batch):"
)


_FEWER_KERNELS = "Launch fewer, larger kernels"


_DEDICATED_THREADS = (
    "+import os\n+os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'  # before TensorFlow starts"
)


_AUTOCAST = '+with torch.autocast("cuda", dtype=torch.bfloat16):\n     loss = loss_fn(model(x), y)'


_GRAD_SCALER = (
    '+scaler = torch.amp.GradScaler("cuda")\n'
    '+with torch.autocast("cuda", dtype=torch.float16):\n'
    "     loss = loss_fn(model(x), y)\n"
    "-loss.backward()\n"
    "-optimizer.step()\n"
    "+scaler.scale(loss).backward()\n"
    "+scaler.step(optimizer)\n"
    "+scaler.update()"
)


def _jax_cast(dtype: str) -> str:
    return (
        f"+x, params = jax.tree.map(lambda a: a.astype(jnp.{dtype}), (x, params))\n"
        " loss = loss_fn(params, x, y)"
    )


_ASYNC_ALL_REDUCE = (
    "-torch.distributed.all_reduce(x)\n"
    "-y = other_work(z)\n"
    "+waits = torch.distributed.all_reduce(x, async_op=True)\n"
    "+y = other_work(z)  # meanwhile\n"
    "+waits.wait()"
)


_NO_SYNC = (
    "+import contextlib\n"
    " for i, batch in enumerate(loader):\n"
    "+    with model.no_sync() if (i + 1) % 4 else contextlib.nullcontext():\n"
    "         loss_fn(model(batch)).backward()"
)


_LATENCY_HIDING = (
    "+import os\n"
    "+os.environ['XLA_FLAGS'] = '--xla_gpu_enable_latency_hiding_scheduler=true'"
    "  # before JAX starts"
)


_PACKED_ALL_REDUCE = (
    "-strategy = tf.distribute.MirroredStrategy()\n"
    "+strategy = tf.distribute.MirroredStrategy(\n"
    "+    cross_device_ops=tf.distribute.NcclAllReduce(num_packs=2))"
)


def _launch(facts: Facts, limit: Threshold) -> Found | None:
    if facts.percent["kernel_launch"] < limit["moderate"]:
        return None
    time = facts.held_up_ms(facts.mean["kernel_launch"])
    share = facts.percent_of_step(time)
    if share < limit["moderate"]:
        return None
    cost = f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**)"
    if facts.torch:
        change = _launch_in_torch(facts, cost)
    elif facts.jax:
        change = _launch_in_jax(facts, cost, limit)
    else:
        change = _launch_in_tensorflow(facts, cost)
    if change is None:
        return None
    return replace(change, severity=limit.severity(share), gain_ms=time)


def _launch_in_torch(facts: Facts, cost: str) -> Found | None:
    runtime = facts.torch_runtime
    if 2 * runtime.calls_of("graph").ms > runtime.calls_of("launch", "graph").ms:
        # Kernels are in graphs already. A profiler slows their launch most of all, because it
        # records each kernel.
        return None
    count = runtime.calls_of("launch", "graph").count
    launches = "launch" if round(count) == 1 else "launches"
    text = (
        f"{cost} goes to launching kernels while the device is idle:"
        f" **{count:,.0f}** {launches} {facts.unit.counted}."
    )
    if not facts.other_devices:
        fix = (
            "-model = Model().to(device)\n"
            '+model = torch.compile(Model().to(device), mode="reduce-overhead")  # CUDA graphs'
        )
        return Found(text, fix=fix, title="Launch CUDA graphs instead of single kernels")
    if facts.evidence.in_use.compiled:
        return None
    return Found(text, fix=TORCH_COMPILE, title=_FEWER_KERNELS)


def _launch_in_jax(facts: Facts, cost: str, limit: Threshold) -> Found | None:
    programs = facts.evidence.programs_per_step
    # Kernels that are too small, and other work of the host, are findings of other rules. The
    # number of programs in a recording does not tell how many a step has: one may run many times.
    if facts.unit.is_recording:
        return None
    if programs is not None and programs < limit["programs"]:
        return _launch_in_loop(facts, cost, limit)
    text = f"{cost} goes to preparing and launching kernels while the device is idle."
    return Found(text, fix=_DONATED, title=f"Compile the whole {facts.unit.noun} into one program")


_UNROLL = (
    "-state, losses = jax.lax.scan(step, state, batches)\n"
    "+state, losses = jax.lax.scan(step, state, batches, unroll=8)"
)


def _launch_in_loop(facts: Facts, cost: str, limit: Threshold) -> Found | None:
    """A single program whose loop is launched iteration by iteration."""
    loop = facts.evidence.device_loop
    if loop is None or loop.iterations < limit["loop"] or 2 * loop.share < 1:
        return None
    text = (
        f"{cost} goes to launching kernels while the device is idle. A loop of the compiled program"
        f" (lax.scan, fori_loop or while_loop) makes **{loop.iterations:,.0f}** iterations"
        f" {facts.unit.counted}, with **{loop.kernels:,.0f}** kernels that the host launches. Where"
        " iterations do more, as with unroll, XLA can fuse their ops into fewer kernels."
    )
    return Found(text, fix=_UNROLL, title="Do more in each iteration of the loop on the device")


def _launch_in_tensorflow(facts: Facts, cost: str) -> Found | None:
    text = f"{cost} goes to preparing and launching kernels while the device is idle."
    fix = _fewer_launches(facts)
    title = _FEWER_KERNELS
    if len(facts.pipelines) and not facts.evidence.in_use.private_threads:
        text += (
            " tf.data threads may compete with the thread that launches kernels: give it dedicated"
            " threads."
        )
        if not fix:
            title = "Give the launching thread dedicated threads"
        fix = f"{_DEDICATED_THREADS}\n{fix}".rstrip()
    return Found(text, fix=fix, title=title) if fix else None


def _fewer_launches(facts: Facts) -> str:
    """Options of TensorFlow for fewer kernels or fewer calls of the program; '' if all are used."""
    used = facts.evidence.in_use
    xla = used.xla or facts.evidence.work is not None
    if not facts.keras:
        return "" if xla else JIT_COMPILE
    options = []
    if not xla:
        options.append("jit_compile=True")
    if not used.several_steps:
        options.append("steps_per_execution=10")
    if not options:
        return ""
    return f" model.compile(optimizer, loss,\n+              {', '.join(options)})"


def _allocator(facts: Facts, limit: Threshold) -> Found | None:
    calls = facts.torch_runtime.calls_of("allocate")
    share = facts.percent_of_step(calls.ms)
    if share < limit["moderate"]:
        return None
    who = f"calls {facts.unit.counted} allocate or free"
    if round(calls.count) == 1:
        who = f"call {facts.unit.counted} allocates or frees"
    text = (
        f"**{calls.count:,.0f}** {who} memory in the driver,"
        f" mostly {calls.name}: **{wording.millis(calls.ms)}** (**{share:.0f}%** of"
        f" {facts.unit.time}). Each may synchronize the device. PyTorch's caching allocator makes"
        " none in steady state, unless the loop keeps more tensors each time or empties the cache,"
        " PYTORCH_NO_CUDA_MEMORY_CACHING is set, or memory is so full that cached blocks are freed."
    )
    if facts.evidence.in_use.expandable:
        fix = " loss.backward()\n-torch.cuda.empty_cache()"
    else:
        family = "HIP" if facts.torch_runtime.amd else "CUDA"
        fix = (
            "-    torch.cuda.empty_cache()\n"
            "+import os\n"
            f'+os.environ["PYTORCH_{family}_ALLOC_CONF"] = "expandable_segments:True"'
            "  # before the first use"
        )
    gain = min(calls.ms, facts.mean["host_compute"] or calls.ms)
    return Found(text, severity=limit.severity(share), gain_ms=gain, fix=fix)


def _host_ops(facts: Facts, limit: Threshold) -> Found | None:
    idle, compute_ms = facts.overview["device_idle_percent"], facts.mean["host_compute"]
    eager = facts.overview["eager_host_percent"] or 0.0
    if idle is None or facts.percent["host_compute"] < limit["moderate"] or eager < limit["eager"]:
        return None
    # The cost of the driver's allocator is a finding of another rule.
    time = compute_ms - facts.torch_runtime.calls_of("allocate").ms
    if time < limit["own"] * compute_ms:
        return None
    time = facts.held_up_ms(time)
    share = min(facts.percent["host_compute"], facts.percent_of_step(time))
    if share < limit["moderate"]:
        return None
    text = (
        f"The device is idle for **{idle:.0f}%** of {facts.unit.time}; for"
        f" **{wording.millis(time)}** of that the host runs ops, **{eager:.0f}%** of them eager,"
        " one by one. Compiling fuses many of them into one."
    )
    fix = TORCH_COMPILE
    optimizer = facts.torch_runtime.optimizer.rpartition("#")[2].removesuffix(".step")
    if optimizer in FUSED and not facts.evidence.in_use.fused_optimizer:
        fix += f"\n+optimizer = torch.optim.{optimizer}(model.parameters(), fused=True)"
    return Found(text, severity=limit.severity(share), gain_ms=time, fix=fix)


def _precision(facts: Facts, limit: Threshold) -> Found | None:
    half, units = facts.overview["compute_16bit_percent"], facts.matrix_units
    if half is None or not facts.compute_ms or not units:
        return None
    if facts.torch and _has_no_product(facts.kernels):
        return None
    # Not every kernel name states the width of numbers; programs always do.
    half = max(half, facts.programs_16_bit_percent or half)
    # No setting changes a kernel that is written for `float*`: both shares are of the other
    # kernels.
    fixed = facts.fixed_type_percent
    compute_ms = facts.compute_ms * (1 - fixed / 100)
    if half >= limit["below"] * (1 - fixed / 100):
        return None
    if fixed and 100 * compute_ms < PART_MODERATE * facts.mean["step_time"]:
        return None
    work = facts.evidence.work
    why = f", on {units}."
    if work is not None and not work.products and facts.tpu:
        why = ", as they move half the bytes."
    text = (
        f"{only(half)} of device compute is 16-bit. If accuracy permits, use 16-bit ops: they run"
        f" up to twice as fast{why}"
    )
    if fixed >= 1:
        text += (
            f" Hand-written kernels of 32-bit numbers, {fixed:.0f}% of kernel time, are not"
            " included: they would have to be rewritten."
        )
    gain = compute_ms / 2
    # The tab of kernels is empty for TPUs.
    target = OPS if facts.tpu else KERNELS
    return Found(
        text, severity=facts.level(gain), gain_ms=gain, fix=_in_16_bit(facts), target=target
    )


def _has_no_product(kernels: pd.DataFrame) -> bool:
    """True if PyTorch's autocast computes no op in 16 bits; other ops keep their type."""
    if not len(kernels):
        return False
    return bool((~kernels["op_tensor_core_eligible"]).fillna(value=False).all())


def _in_16_bit(facts: Facts) -> str:
    # Volta and Turing do not compute bfloat16.
    dtype = "float16" if facts.before_ampere else "bfloat16"
    if facts.torch:
        return _GRAD_SCALER if facts.before_ampere else _AUTOCAST
    if facts.jax:
        return _jax_cast(dtype)
    if facts.keras:
        policy = "mixed_bfloat16" if facts.tpu else "mixed_float16"
        return f"+tf.keras.mixed_precision.set_global_policy('{policy}')"
    return (
        "-logits = model(x)\n"
        f"+logits = tf.cast(model(tf.cast(x, tf.{dtype})), tf.float32)  # weights in {dtype} too"
    )


def _tensor_cores(facts: Facts, limit: Threshold) -> Found | None:
    kernels, units = facts.kernels, facts.matrix_units
    kernel_us = float(kernels["total_us"].sum()) if len(kernels) else 0.0
    if not kernel_us or not units:
        return None
    # A kernel whose op is unknown is not eligible, one whose name does not tell uses them.
    eligible = kernels["op_tensor_core_eligible"].fillna(False).astype(bool)
    used = kernels["uses_tensor_core"].fillna(True).astype(bool)
    unused = kernels[eligible & ~used]
    unused = unused[~unused["kernel"].astype(str).str.contains(_NO_PRODUCT)]
    share = 100 * float(unused["total_us"].sum()) / kernel_us
    if share < limit["moderate"]:
        return None
    longest = unused.iloc[0]
    if facts.torch:
        op = str(longest["op"])
        change = _use_cores_in_torch(facts, op)
    else:
        op = short(longest["op"])
        change = _use_cores(facts, op)
    text = (
        f"**{share:.0f}%** of kernel time is in kernels whose op could run on {units} but does not;"
        f" the longest is {op} with **{wording.millis(longest['total_us'] / 1000)}**."
        f" {change.evidence}"
    )
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=facts.compute_ms * share / 100 * _saved_by_matrix_units(facts),
        fix=change.fix,
        title=f"Let eligible ops use {units}",
    )


def _saved_by_matrix_units(facts: Facts) -> float:
    """The largest part of the time of a product that the units for matrices save; 1 if unknown."""
    peaks = device_peaks.by_name(str(facts.overview.get("device_kind") or ""))
    if not peaks.get("float16") or not peaks.get("float32"):
        return 1.0
    return max(1 - peaks["float32"] / peaks["float16"], 0.0)


def _use_cores(facts: Facts, op: str) -> Found:
    """A sentence and a fix that let an op of TensorFlow or JAX use the units for matrices."""
    is_convolution = "conv" in op.lower()
    text = (
        "It needs 16-bit inputs, and channels and batch size that are multiples of 8 (of 16 with"
        " 8-bit inputs)."
    )
    if is_convolution and facts.matrix_units == TENSOR_CORES:
        packages = "'jax[cuda13]'" if facts.jax else "'tensorflow[and-cuda]'"
        text += (
            " The newest cuDNN uses them for more convolutions: install it with pip install -U"
            f" {packages}."
        )
    if facts.jax:
        fix = "+jax.config.update('jax_default_matmul_precision', 'tensorfloat32')"
        if facts.before_ampere or facts.matrix_units != TENSOR_CORES:
            fix = _jax_cast("float16")
    elif is_convolution:
        fix = (
            "-x = layers.Conv2D(30, 3)(x)\n"
            "+x = layers.Conv2D(32, 3)(x)  # channels, in and out: multiples of 8"
        )
    else:
        fix = "-x = layers.Dense(100)(x)\n+x = layers.Dense(104)(x)  # a multiple of 8"
    return Found(text, fix=fix)


def _use_cores_in_torch(facts: Facts, op: str) -> Found:
    """A sentence and a fix that let an op of PyTorch use the units for matrices."""
    if "conv" in op:
        return Found(
            "Convolutions use them with 16-bit inputs, channels-last layout, and channels in"
            " multiples of 8 (of 16 with int8).",
            fix=TORCH_CHANNELS_LAST,
        )
    runtime = facts.torch_runtime
    if not runtime.amd and runtime.capability is not None and runtime.capability >= (8, 0):
        return Found(
            "TF32 lets 32-bit matrix products use them; 16-bit ones need sizes that are"
            " multiples of 8, 8-bit ones of 16.",
            fix='+torch.set_float32_matmul_precision("high")',
        )
    return Found(
        "It needs 16-bit inputs and sizes that are multiples of 8 (of 16 with 8-bit inputs)."
    )


def _eager(facts: Facts, limit: Threshold) -> Found | None:
    share = facts.eager_percent
    if share <= limit["over"]:
        return None
    if facts.jax:
        # A step or an iteration is code of the program; calls or the recording, which stand for
        # it otherwise, are not.
        part = facts.unit.noun if facts.unit.kind in (STEP, ITERATION) else "code"
        return Found(
            f"**{share:.0f}%** of op time ran op by op. jax.jit compiles the ops into one program.",
            fix="+@jax.jit\n def train_step(batch):",
            title=f"Wrap the {part} in jax.jit",
        )
    fix = "+@tf.function\n def train_step(batch):"
    if facts.keras and len(facts.overview["tf_functions"]):
        fix = "-model.compile(optimizer, loss, run_eagerly=True)\n+model.compile(optimizer, loss)"
    return Found(
        f"**{share:.0f}%** of op time ran eagerly, op by op. A tf.function runs them as one graph.",
        fix=fix,
        title="Wrap eager code in a tf.function",
    )


def _functions(facts: Facts, limit: Threshold) -> Found | None:
    """Functions that are retraced; tracing in a warm-up step costs the other steps nothing."""
    worst = retraced(facts.overview["tf_functions"], limit["function"])
    time = float(worst["expensive_ms_per_step"].sum())
    if 100 * time < limit["moderate"] * facts.mean["step_time"]:
        return None
    # Functions that were traced once, all in one step, are those of another model whose training
    # begins with it.
    traced_once = facts.evidence.tracing == 1 and (worst["tracings"] == 1).all()
    if traced_once or facts.evidence.compiled_first:
        return None
    first = worst.iloc[0]
    text = (
        f"**{first['function']}** spends **{first['expensive_percent']:.0f}%** of its time being"
        f" traced or run eagerly (traced **{first['tracings']}** times so far)."
    )
    if len(worst) > 1:
        text += f" **{len(worst) - 1}** more as well."
    severity = limit.severity(100 * time / facts.mean["step_time"])
    again = facts.evidence.compiled_again
    if again is not None and again.costliest.framework == frameworks.TENSORFLOW.name:
        # Late: few profiles need it.
        from nbprof.analysis.advice import recompiled

        text += f" {recompiled.why(again.costliest)}"
        return Found(text, severity=severity, gain_ms=time, fix=recompiled.edit(again.costliest))
    return Found(text, severity=severity, gain_ms=time)


def _outside(facts: Facts, limit: Threshold) -> Found | None:
    share = facts.overview["outside_compilation_percent"]
    if share is None or share <= limit["over"]:
        return None
    text = (
        f"**{share:.0f}%** of op time on the TPU is spent waiting for ops on the host, outside the"
        " compiled program."
    )
    fix = (
        "-tf.print(loss)\n"
        "-tf.summary.image('batch', x)\n"
        "+if step % 100 == 0:\n"
        "+    log(loss)  # outside the step's function"
    )
    if facts.jax:
        fix = (
            "-jax.debug.print('{}', loss)\n"
            "+if step % 100 == 0:\n"
            "+    print(loss)  # outside the jitted step"
        )
    return Found(text, gain_ms=facts.compute_ms * share / 100, fix=fix)


def _collectives(facts: Facts, limit: Threshold) -> Found | None:
    time, share = facts.mean["device_collectives"], facts.percent["device_collectives"]
    beyond = ""
    if facts.evidence.straggler is not None:
        # The wait for a straggler is in a collective, but is not communication.
        time = max(0.0, time - facts.evidence.straggler.saved_ms)
        share = facts.percent_of_step(time)
        beyond = f", beyond the wait for {facts.evidence.straggler.host}"
    if share < limit["moderate"]:
        return None
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is communication"
        f" between devices{beyond}."
    )
    title = "Overlap communication with compute"
    # Only a model that is wrapped for training can skip the communication of some batches.
    trains = facts.evidence.in_use.distributed and facts.evidence.in_use.backward
    if facts.torch and trains:
        title, fix = "Communicate less often, or overlap it with compute", _NO_SYNC
    elif facts.torch:
        fix = _ASYNC_ALL_REDUCE
    elif facts.jax:
        fix = _LATENCY_HIDING
    else:
        fix = _PACKED_ALL_REDUCE
    return Found(text, severity=limit.severity(share), gain_ms=time, fix=fix, title=title)


def _output(facts: Facts, limit: Threshold) -> Found | None:
    time, share = facts.mean["output"], facts.percent["output"]
    if facts.in_host_memory or share < limit["moderate"]:
        return None
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is copies from the"
        " device to the host."
    )
    fix = "-print(float(loss))\n+losses.append(loss)  # and print them every 100 steps"
    if facts.torch:
        fix = "-print(loss.item())\n+losses.append(loss.detach())  # and print them every 100 steps"
    return Found(text, severity=limit.severity(share), gain_ms=time, fix=fix)


def _host_memory(facts: Facts, limit: Threshold) -> Found | None:
    if not facts.in_host_memory:
        return None
    share = float(facts.overview["host_transfer_percent"])
    gain = share * facts.mean["step_time"] / 100
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(gain)}**) goes to moving arrays"
        " between device and host memory. Copies of arrays that must stay there may be faster with"
        f" a larger premapped buffer (TPU_PREMAPPED_BUFFER_SIZE), which {PRICE}."
    )
    return Found(text, severity=limit.severity(share), gain_ms=gain)


_REPEATED = 10
"""Calls that wait for the device in a recording without steps; fewer may be those of its begin and
end.
"""


def _waits(facts: Facts, limit: Threshold) -> Found | None:
    waits, idle = (
        facts.torch_runtime.calls_of("sync", "copy D2H"),
        facts.overview["device_idle_percent"],
    )
    # Waiting for the device only costs time if the device then runs out of work.
    if idle is None or idle < limit["idle"] or facts.percent_of_step(waits.ms) < limit["least"]:
        return None
    # A recording begins and ends with such calls, and so does a profiler.
    if waits.count < (_REPEATED if facts.unit.is_recording else 1):
        return None
    if 100 * facts.held_up_ms(facts.mean["step_time"]) < limit["idle"] * facts.mean["step_time"]:
        return None
    return Found(
        f"The host synchronizes with the device **{wording.times(waits.count)}**"
        f" {facts.unit.counted}, **{wording.millis(waits.ms)}** in total ({waits.name}), and cannot"
        f" launch ahead meanwhile; the device is idle for **{idle:.0f}%** of {facts.unit.time}."
        " .item(), .cpu(), print(loss) and if on a tensor cause this."
    )


_EAGER = Threshold("> {over:g} % of op time on host or device", over=MUCH_EAGER)
_MANY_PROGRAMS = Threshold(
    "≥ {programs:g} programs per step, ≥ {least:g} % of step time between them",
    programs=10.0,
    least=PART_HIGH,
)


def _jit(facts: Facts, limit: Threshold) -> Found | None:
    """A JAX step that consists of many programs: code outside of jit runs op by op."""
    programs, host = facts.evidence.programs_per_step, facts.evidence.host
    between, dispatch = 1.0, 1.0
    if host is not None and host.python is not None:
        # One program takes away no wait and no work of libraries, and not all Python.
        between = max(1 - host.python.waiting - host.python.named, 0.0)
        dispatch = max(between - host.python.python, 0.0)
    share = facts.percent["other"] * between
    if not facts.jax or programs is None or programs < limit["programs"] or share < limit["least"]:
        return None
    time = facts.mean["other"] * between
    gain = facts.mean["other"] * dispatch
    text = (
        f"{facts.unit.a.capitalize()} runs **{programs:,.0f}** compiled programs one after the"
        f" other, most of them of a single op, and **{share:.0f}%** of {facts.unit.time}"
        f" (**{wording.millis(time)}**) passes between them, in Python and dispatch. In one jit"
        " they are one program."
    )
    return Found(text, severity="high", gain_ms=gain if share <= MOST_UNKNOWN else float("nan"))


_LAST_LOOKED_AT = 5


_RECORD_HOST_IN_TORCH = (
    "torch.profiler records the host if its activities include ProfilerActivity.CPU, Nsight Systems"
    " with --trace=cuda,nvtx,osrt."
)
_RECORD_HOST_IN_XLA = (
    "XLA's profiler records the host at host_tracer_level 1 or higher (jax.profiler.ProfileOptions,"
    " tf.profiler.experimental.ProfilerOptions)."
)


def _other(facts: Facts, limit: Threshold) -> Found | None:
    share = facts.unexplained_percent
    if not _is_unexplained(facts, share, limit):
        return None
    cost = (
        f"**{share:.0f}%** of {facts.unit.time}"
        f" (**{wording.millis(share * facts.mean['step_time'] / 100)}**)"
    )
    if not facts.evidence.host_recorded:
        if facts.evidence.read_in_part:
            return None
        how = _RECORD_HOST_IN_TORCH if facts.torch else _RECORD_HOST_IN_XLA
        return Found(
            f"In {cost} no device was busy and the host was not recorded, so the cause is unknown."
            f" {how}",
            title="Record the host as well",
        )
    text = f"{cost} is outside any recorded op, launch or copy: Python, logging or I/O."
    if facts.maybe_input:
        text += (
            " It may also be input that was not traced: nbprof.steps(batches) times the wait for"
            " each batch."
        )
    if facts.evidence.python_calls:
        return _look_at_python_calls(facts, text, share)
    return _record_python_calls(facts, text)


def _is_unexplained(facts: Facts, share: float, limit: Threshold) -> bool:
    """True if the rule `other` speaks: none of the more specific rules explains the time."""
    rhythm = facts.evidence.periodic
    if rhythm is not None:
        # Work of every k-th step alone is a finding of another rule.
        share -= 100 * rhythm.unrecorded_ms / facts.mean["step_time"]
    # Recording PyTorch takes up to 20 % of a step of small ops, which is in no op either.
    if share < limit["torch" if facts.torch else "least"]:
        return False
    if _jit(facts, _MANY_PROGRAMS) is not None:
        return False
    # Between eager ops there is Python: the finding on these has the change.
    return facts.torch or _eager(facts, _EAGER) is None


def _look_at_python_calls(facts: Facts, text: str, share: float) -> Found:
    time = share * facts.mean["step_time"] / 100
    gain, gain_is = time, ABOUT
    waits_for_input = facts.percent["input"] >= INPUT_MODERATE and len(facts.nodes)
    if share > MOST_UNKNOWN:
        gain = float("nan")
    elif waits_for_input and tf_data.works_ahead(facts.nodes["long_name"].astype(str)):
        # The pipeline uses this time to prepare the next batch: without it, the step would wait
        # for that instead.
        gain = float("nan")
    launched_ms = facts.mean["host_compute"] + facts.mean["kernel_launch"]
    if facts.gpu_busy_percent is not None and launched_ms > time / 2:
        # Recording lengthens the time around ops and launches.
        gain_is = UP_TO
    text += " Python calls were recorded: the trace shows them above and between the ops."
    if facts.evidence.functions:
        text += f" Functions with the most of it: {', '.join(facts.evidence.functions)}."
    title = "Look at the Python calls outside ops"
    return Found(text, gain_ms=gain, title=title, gain_is=gain_is)


def _record_python_calls(facts: Facts, text: str) -> Found:
    # The code is unknown, so a change to it would be a guess, and recording it saves nothing.
    option, record = "--stacks" if facts.torch else "--python", "record"
    # Three steps are enough, after the first two. Unmarked steps of JAX are found in the recording,
    # too late to record only some of them.
    steps = (facts.overview.get("steps") or 0) / (facts.overview.get("hosts") or 1)
    if not facts.jax and facts.unit.kind == STEP and steps >= _LAST_LOOKED_AT:
        option += f" --steps {_LAST_LOOKED_AT - 2}:{_LAST_LOOKED_AT}"
        record = "record three steps"
    text += f" To see which Python calls take this time, {record} {IN_CELL}; it slows Python down."
    # Nothing but the line: it is copied over the one in the cell.
    return Found(text, fix=f"-%%nbprof\n+%%nbprof {option}")


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "kernel_launch",
        _launch,
        threshold=Threshold(
            (
                "≥ {moderate:g} % of step time (high from {high:g} %); JAX: ≥ {programs:g}"
                " programs per step, where that is known, or one whose kernels are mostly in a"
                " loop of ≥ {loop:g} iterations"
            ),
            moderate=PART_MODERATE,
            high=PART_HIGH,
            programs=2,
            loop=10,
        ),
        source=XPROF,
        target=KERNELS,
        applies=ALL,
        looks_at="Time the host spends preparing and launching kernels while the device is idle",
        refuted_by="{the} takes as long with fewer, larger kernels",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        saves=("kernel_launch",),
        done=Shown(
            "Graphs are launched (PyTorch); one program runs per step (JAX); XLA, several"
            " steps per execution and `tf_gpu_private_` threads (TensorFlow)"
        ),
    ),
    Rule(
        "allocator",
        _allocator,
        threshold=STEP_SHARE,
        source=TORCH_GUIDE,
        target=MEMORY,
        applies=PYTORCH,
        looks_at="Driver calls that allocate or free memory",
        title="Keep memory in PyTorch's caching allocator",
        on_npu=True,
        refuted_by="{the} takes as long when its tensors are allocated once, before the loop",
        gain_is=ABOUT,
        saves=("host_compute", "kernel_launch"),
        needs_units=True,
        done=Shown(
            "No calls into the driver; with expandable segments, only what is left is advised"
        ),
    ),
    Rule(
        "host_ops",
        _host_ops,
        threshold=Threshold(
            (
                "≥ {moderate:g} % of step time (high from {high:g} %), ≥ {own:percent} of"
                " it outside the allocator, ≥ {eager:g} % of op time eager"
            ),
            moderate=PART_HIGH,
            high=INPUT_HIGH,
            eager=50.0,
            own=0.2,
        ),
        source=TORCH_GUIDE,
        target=OPS,
        applies=PYTORCH,
        looks_at="Host ops, mostly eager, while the device is idle",
        title="Compile the model",
        refuted_by="{the} takes as long with torch.compile",
        gain_is=ABOUT,
        shortens=HOST_TIME,
        saves=("host_compute",),
        done=Shown(
            "torch.compile compiled the model", lambda facts: facts.evidence.in_use.compiled
        ),
    ),
    Rule(
        "mixed_precision",
        _precision,
        threshold=Threshold("< {below:g} % of device compute", below=LITTLE_16_BIT),
        source=XPROF,
        target=KERNELS,
        applies=ALL,
        looks_at=(
            "Share of device compute in 16 bit, by kernel names and by the element types in"
            " compiled programs"
        ),
        title="Use mixed precision",
        certainty=ESTIMATED,
        refuted_by="{the} takes as long in 16 bit",
        gain_is=UP_TO,
        shortens=DEVICE_TIME,
        done=Shown("16-bit compute, or a mixed policy of Keras"),
    ),
    Rule(
        "tensor_cores",
        _tensor_cores,
        threshold=Threshold(
            "≥ {moderate:g} % of kernel time (high from {high:g} %)", moderate=10.0, high=30.0
        ),
        source=GPU_GUIDE_CHOICE,
        target=Target("kernels", "GPU kernels: eligible, not used"),
        applies=ALL,
        looks_at="Kernels whose op could use Tensor Cores but that do not; transposes excluded",
        certainty=ESTIMATED,
        refuted_by="the kernels take as long in 16 bit or TF32, or already use Tensor Cores",
        shortens=DEVICE_TIME,
        done=Shown("The kernels use Tensor Cores"),
    ),
    Rule(
        "eager",
        _eager,
        threshold=_EAGER,
        source=XPROF,
        target=OPS,
        applies=TENSORFLOW_JAX,
        looks_at="Ops that ran eagerly, one by one",
        refuted_by="{the} takes as long when it is compiled into one function",
        gain_is="",
        done=Shown("The ops run in a function"),
    ),
    Rule(
        "tf_function",
        _functions,
        threshold=Threshold(
            (
                "≥ {function:g} % of a function's time and ≥ {moderate:g} % of step time"
                " (high from {high:g} %)"
            ),
            function=EXPENSIVE_FUNCTION,
            moderate=PART_MODERATE,
            high=PART_HIGH,
        ),
        source=XPROF,
        target=TRACE,
        applies=TENSORFLOW,
        looks_at="tf.functions traced again or run eagerly in the steps that averages include",
        title="Trace functions once",
        fix=(
            "-@tf.function\n"
            "+@tf.function(reduce_retracing=True)\n"
            " def train_step(batch):  # pass tensors, not Python numbers"
        ),
        refuted_by="another recording of the same loop traces nothing",
        gain_is=ABOUT,
        saves=("host_compute", "other"),
        needs_units=True,
        done=Shown("Nothing is traced"),
    ),
    Rule(
        "outside_compilation",
        _outside,
        threshold=Threshold("> {over:g} % of op time", over=OUTSIDE_COMPILATION),
        source=XPROF,
        target=OPS,
        applies=TPU,
        looks_at="Host ops that a compiled program waits for",
        title="Keep the {noun} inside one program",
        refuted_by="{the} takes as long without the host ops",
        gain_is=ABOUT,
        done=Shown("The program waits for no op of the host"),
    ),
    Rule(
        "collectives",
        _collectives,
        threshold=STEP_SHARE,
        source=XPROF,
        target=TRACE,
        applies=ALL,
        looks_at="Communication between devices that does not overlap compute",
        on_npu=True,
        refuted_by="{the} takes as long on one device with the same batch per device",
        saves=("device_collectives",),
        done=Shown("Communication overlaps compute"),
    ),
    Rule(
        "output",
        _output,
        threshold=COPIES_SHARE,
        source=XPROF,
        target=TRACE,
        applies=ALL,
        looks_at="Copies from device to host that do not overlap compute",
        title="Fetch results less often",
        on_npu=True,
        refuted_by="{the} takes as long when results stay on the device",
        gain_is=ABOUT,
        saves=("output",),
        done=Shown("Results stay on the device"),
    ),
    Rule(
        "host_memory",
        _host_memory,
        threshold=COPIES_SHARE,
        source=OURS,
        target=TRACE,
        applies=TPU,
        looks_at="Arrays that a program moves between device and host memory",
        title="Keep arrays in device memory",
        fix="-x = jax.device_put(x, sharding.with_memory_kind('pinned_host'))\n"
        "+x = jax.device_put(x, sharding)  # as many arrays as fit",
        refuted_by="{the} takes as long with the arrays kept in device memory",
        done=Shown("The arrays stay on the device"),
    ),
    Rule(
        "waits",
        _waits,
        threshold=Threshold(
            "≥ {least:g} % of step time, device idle ≥ {idle:g} %",
            least=PART_MODERATE,
            idle=IDLE_PERCENT,
        ),
        source=TORCH_GUIDE,
        target=TRACE,
        applies=PYTORCH,
        looks_at="Host calls that wait for the device and leave it without work",
        title="Let the host run ahead of the device",
        fix="-total += loss.item()\n+total += loss.detach()  # and .item() once, after the loop",
        on_npu=True,
        refuted_by="{the} takes as long without the calls that wait",
        gain_is="",
        done=Shown("The host does not wait"),
    ),
    Rule(
        "jit",
        _jit,
        threshold=_MANY_PROGRAMS,
        source=OURS,
        target=TRACE,
        applies=JAX,
        looks_at="Steps that run many compiled programs, with time between them",
        title="Compile the whole {noun} into one program",
        fix=_DONATED,
        refuted_by="{the} takes as long in one jit",
        gain_is=AT_LEAST,
        saves=ON_HOST,
        needs_units=True,
        done=Shown("One program runs per step"),
    ),
    Rule(
        "other",
        _other,
        threshold=Threshold(
            "≥ {least:g} % of step time (PyTorch: {torch:g} %)", least=PART_HIGH, torch=25.0
        ),
        source=XPROF,
        target=TRACE,
        applies=ALL,
        looks_at="Time outside any recorded op, launch or copy",
        title="Record the Python calls outside ops",
        on_npu=True,
        certainty=INFERRED,
        refuted_by="the time remains without Python code between the ops: then something else runs",
        gain_is=ABOUT,
        saves=("other",),
        done=Shown(
            "Python calls were recorded: then they are named; sampled stacks take its place"
        ),
    ),
)
