"""Advice rules about the parts of a step: launches, host work, precision, eager code,
communication, output, Python.

Sources: TensorFlow Profiler, TensorFlow's GPU performance guide, PyTorch's performance tuning guide
and the notes of its CUDA allocator.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

from nbprof.activity.unit import ITERATION, STEP, Unit
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
from nbprof.display import wording

# Kernels that belong to a matrix product but compute none: they prepare its inputs, or move its
# output.
_NO_PRODUCT = re.compile(
    r"transpose(?!Params)|nchwToNhwc|nhwcToNchw|tensorTransform|SwapDimension|im2col|col2im|^(?:loop|input|wrapped)_|memcpy|memset",
    re.IGNORECASE,
)
_DONATED = (
    "-def train_step(state, batch):\n"
    "+from functools import partial\n"
    "+@partial(jax.jit, donate_argnums=0)\n"
    "+def train_step(state, batch):"
)


def _launch(facts: Facts, limit: Threshold) -> Found | None:
    if facts.percent["kernel_launch"] < limit["moderate"]:
        return None
    time = facts.held_up_ms(facts.mean["kernel_launch"])
    share = 100 * time / facts.mean["step_time"]
    if share < limit["moderate"]:
        return None
    level = limit.severity(share)
    if facts.torch:
        runtime = facts.torch_runtime
        launches = runtime.of("launch", "graph").count
        if 2 * runtime.of("graph").ms > runtime.of("launch", "graph").ms:
            # Kernels are in graphs already, whose launch a profiler slows most of all: it notes
            # each kernel.
            return None
        text = (
            f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) goes to launching"
            f" kernels while the device is idle: **{launches:,.0f}**"
            f" {'launch' if round(launches) == 1 else 'launches'} {facts.unit.counted}."
        )
        if facts.other_devices:
            if facts.evidence.in_use.compiled:
                return None
            fix = "-model = Model().to(device)\n+model = torch.compile(Model().to(device))"
            return Found(
                text, severity=level, gain_ms=time, fix=fix, title="Launch fewer, larger kernels"
            )
        fix = (
            "-model = Model().to(device)\n"
            '+model = torch.compile(Model().to(device), mode="reduce-overhead")  # CUDA graphs'
        )
        return Found(
            text,
            severity=level,
            gain_ms=time,
            fix=fix,
            title="Launch CUDA graphs instead of single kernels",
        )
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) goes to preparing and"
        " launching kernels while the device is idle."
    )
    if facts.jax:
        # How many programs a recording runs says nothing of a step: they may be one that runs many
        # times.
        few = (
            facts.evidence.programs_per_step is not None
            and facts.evidence.programs_per_step < limit["programs"]
        )
        if few or facts.unit.whole:
            # What its kernels are too small for, and what the host does besides, are findings of
            # their own.
            return None
        fix = _DONATED
        return Found(
            text,
            severity=level,
            gain_ms=time,
            fix=fix,
            title=f"Compile the whole {facts.unit.noun} into one program",
        )
    fix = _fewer_launches(facts)
    title = "Launch fewer, larger kernels"
    if len(facts.pipelines) and not facts.evidence.in_use.private_threads:
        text += (
            " tf.data threads may compete with the thread that launches kernels: give it dedicated"
            " threads."
        )
        threads = (
            "+import os\n"
            "+os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'  # before TensorFlow starts"
        )
        title = title if fix else "Give the launching thread dedicated threads"
        fix = f"{threads}\n{fix}".rstrip()
    return Found(text, severity=level, gain_ms=time, fix=fix, title=title) if fix else None


def _fewer_launches(facts: Facts) -> str:
    """What of TensorFlow makes fewer kernels, or fewer calls of the program, and is not in use; ''
    if all is.
    """
    used = facts.evidence.in_use
    xla = used.xla or facts.evidence.work is not None
    if not facts.keras:
        return (
            "" if xla else "-@tf.function\n+@tf.function(jit_compile=True)\n def train_step(batch):"
        )
    options = [
        *([] if xla else ["jit_compile=True"]),
        *([] if used.several_steps else ["steps_per_execution=10"]),
    ]
    return (
        f" model.compile(optimizer, loss,\n+              {', '.join(options)})" if options else ""
    )


def _allocator(facts: Facts, limit: Threshold) -> Found | None:
    calls, step = facts.torch_runtime.of("allocate"), facts.mean["step_time"]
    share = 100 * calls.ms / step if step else 0.0
    if share < limit["moderate"]:
        return None
    text = (
        f"**{calls.count:,.0f}** calls {facts.unit.counted} allocate or free memory in the driver,"
        f" mostly {calls.name}: **{wording.millis(calls.ms)}** (**{share:.0f}%** of"
        f" {facts.unit.time}). Each may synchronize the device. PyTorch's caching allocator makes"
        " none in steady state, unless PYTORCH_NO_CUDA_MEMORY_CACHING is set, the loop empties the"
        " cache, or memory is so full that cached blocks are freed."
    )
    family = "HIP" if facts.torch_runtime.amd else "CUDA"
    fix = (
        "+import os\n"
        f'+os.environ["PYTORCH_{family}_ALLOC_CONF"] = "expandable_segments:True"  # before the'
        " first use"
    )
    fix = f"-    torch.cuda.empty_cache()\n{fix}"
    if facts.evidence.in_use.expandable:
        fix = " loss.backward()\n-torch.cuda.empty_cache()"
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=min(calls.ms, facts.mean["host_compute"] or calls.ms),
        fix=fix,
    )


def _host_ops(facts: Facts, limit: Threshold) -> Found | None:
    idle, share = facts.overview["device_idle_percent"], facts.percent["host_compute"]
    eager = facts.overview["eager_host_percent"] or 0.0
    # What the driver's allocator costs is a finding of its own.
    time = facts.mean["host_compute"] - facts.torch_runtime.of("allocate").ms
    if (
        idle is None
        or share < limit["moderate"]
        or eager < limit["eager"]
        or time < limit["own"] * facts.mean["host_compute"]
    ):
        return None
    time = facts.held_up_ms(time)
    share = min(share, 100 * time / facts.mean["step_time"])
    if share < limit["moderate"]:
        return None
    text = (
        f"The device is idle for **{idle:.0f}%** of {facts.unit.time}; for"
        f" **{wording.millis(time)}** of that the host runs ops, **{eager:.0f}%** of them eager,"
        " one by one. Compiling fuses many of them into one."
    )
    fix = "-model = Model().to(device)\n+model = torch.compile(Model().to(device))"
    optimizer = facts.torch_runtime.optimizer.rpartition("#")[2].removesuffix(".step")
    if optimizer in FUSED and not facts.evidence.in_use.fused_optimizer:
        fix += f"\n+optimizer = torch.optim.{optimizer}(model.parameters(), fused=True)"
    return Found(text, severity=limit.severity(share), gain_ms=time, fix=fix)


def _precision(facts: Facts, limit: Threshold) -> Found | None:
    half, compute, cores = (
        facts.overview["compute_16bit_percent"],
        facts.mean["device_compute"],
        facts.matrix_units,
    )
    # Names of kernels tell the width of numbers only where they state it; programs always do.
    programs = facts.programs_16_bit_percent
    half = half if programs is None or half is None else max(half, programs)
    if half is None or not compute or not cores or (facts.torch and _has_no_product(facts.kernels)):
        return None
    fixed = facts.fixed_type_percent
    compute *= 1 - fixed / 100
    # No setting changes what a kernel written for `float*` computes: both shares are of the others.
    if half >= limit["below"] * (1 - fixed / 100):
        return None
    if fixed and 100 * compute < PART_MODERATE * facts.mean["step_time"]:
        return None
    text = (
        f"{only(half)} of device compute is 16-bit. If accuracy permits, use 16-bit ops: they run"
        " up to twice as fast"
    )
    work = facts.evidence.work
    text += (
        ", as they move half the bytes."
        if work is not None and not work.products and facts.tpu
        else f", on {cores}."
    )
    if fixed >= 1:
        text += (
            f" Hand-written kernels of 32-bit numbers, {fixed:.0f}% of kernel time, are not"
            " included: they would have to be rewritten."
        )
    # A TPU has no kernels of its own to show.
    target = OPS if facts.tpu else KERNELS
    return Found(
        text,
        severity=facts.level(compute / 2),
        gain_ms=compute / 2,
        fix=_in_16_bit(facts),
        target=target,
    )


def _has_no_product(kernels: pd.DataFrame) -> bool:
    """Whether no op is one that PyTorch's autocast computes in 16 bits: the rest keeps the type of
    its inputs.
    """
    return bool(len(kernels)) and bool(
        (~kernels["op_tensor_core_eligible"]).fillna(value=False).all()
    )


def _in_16_bit(facts: Facts) -> str:
    # Volta and Turing compute no bfloat16.
    dtype = "float16" if facts.before_ampere else "bfloat16"
    if facts.torch:
        if not facts.before_ampere:
            return (
                '+with torch.autocast("cuda", dtype=torch.bfloat16):\n'
                "     loss = loss_fn(model(x), y)"
            )
        return (
            '+scaler = torch.amp.GradScaler("cuda")\n'
            '+with torch.autocast("cuda", dtype=torch.float16):\n'
            "     loss = loss_fn(model(x), y)\n"
            "-loss.backward()\n"
            "-optimizer.step()\n"
            "+scaler.scale(loss).backward()\n"
            "+scaler.step(optimizer)\n"
            "+scaler.update()"
        )
    if facts.jax:
        return (
            f"+x, params = jax.tree.map(lambda a: a.astype(jnp.{dtype}), (x, params))\n"
            " loss = loss_fn(params, x, y)"
        )
    if not facts.keras:
        return (
            "-logits = model(x)\n"
            f"+logits = tf.cast(model(tf.cast(x, tf.{dtype})), tf.float32)  # weights in {dtype}"
            " too"
        )
    return f"+tf.keras.mixed_precision.set_global_policy('mixed_{'bfloat16' if facts.tpu else 'float16'}')"


def _tensor_cores(facts: Facts, limit: Threshold) -> Found | None:
    kernels, cores = facts.kernels, facts.matrix_units
    kernel_us = float(kernels["total_us"].sum()) if len(kernels) else 0.0
    if not kernel_us or not cores:
        return None
    # Where no op is known, or the name does not tell whether a kernel uses them, nothing is missed
    # for certain.
    eligible, used = (
        kernels["op_tensor_core_eligible"].fillna(False).astype(bool),
        kernels["uses_tensor_core"].fillna(True).astype(bool),
    )
    unused = kernels[eligible & ~used]
    unused = unused[~unused["kernel"].astype(str).str.contains(_NO_PRODUCT)]
    share = 100 * float(unused["total_us"].sum()) / kernel_us
    if share < limit["moderate"]:
        return None
    worst = unused.iloc[0]
    op = str(worst["op"]) if facts.torch else short(worst["op"])
    how, fix = _how_of_torch(facts, op) if facts.torch else _how(facts, op)
    text = (
        f"**{share:.0f}%** of kernel time is in kernels whose op could run on {cores} but does not;"
        f" the longest is {op} with **{wording.millis(worst['total_us'] / 1000)}**. {how}"
    )
    gain = facts.mean["device_compute"] * share / 100
    return Found(
        text,
        severity=limit.severity(share),
        gain_ms=gain,
        fix=fix,
        title=f"Let eligible ops use {cores}",
    )


def _how(facts: Facts, op: str) -> tuple[str, str]:
    """How an op can use the units for products of matrices: a sentence and a fix."""
    fix = "-x = layers.Dense(100)(x)\n+x = layers.Dense(104)(x)  # a multiple of 8"
    if "conv" in op.lower():
        fix = (
            "-x = layers.Conv2D(30, 3)(x)\n"
            "+x = layers.Conv2D(32, 3)(x)  # channels, in and out: multiples of 8"
        )
    if facts.jax and (facts.before_ampere or facts.matrix_units != TENSOR_CORES):
        fix = (
            "+x, params = jax.tree.map(lambda a: a.astype(jnp.float16), (x, params))\n"
            " loss = loss_fn(params, x, y)"
        )
    elif facts.jax:
        fix = "+jax.config.update('jax_default_matmul_precision', 'tensorfloat32')"
    how = (
        "It needs 16-bit inputs, and channels and batch size that are multiples of 8 (of 16 with"
        " 8-bit inputs)."
    )
    if "conv" in op.lower() and facts.matrix_units == TENSOR_CORES:
        packages = (
            "pip install -U 'jax[cuda13]'" if facts.jax else "pip install -U 'tensorflow[and-cuda]'"
        )
        how += f" The newest cuDNN uses them for more convolutions: install it with {packages}."
    return how, fix


def _how_of_torch(facts: Facts, op: str) -> tuple[str, str]:
    if "conv" in op:
        how = (
            "Convolutions use them with 16-bit inputs, channels-last layout, and channels in"
            " multiples of 8 (of 16 with int8)."
        )
        fix = " model = model.to(device)\n+model = model.to(memory_format=torch.channels_last)"
        return how, f"{fix}\n+x = x.to(memory_format=torch.channels_last)"
    runtime = facts.torch_runtime
    if not runtime.amd and runtime.capability is not None and runtime.capability >= (8, 0):
        fix = '+torch.set_float32_matmul_precision("high")'
        return (
            (
                "TF32 lets 32-bit matrix products use them; 16-bit ones need sizes that are"
                " multiples of 8, 8-bit ones of 16."
            ),
            fix,
        )
    return "It needs 16-bit inputs and sizes that are multiples of 8 (of 16 with 8-bit inputs).", ""


def _compiled_part(unit: Unit) -> str:
    """What a jit is put around: a step or an iteration is code of the program, the calls or the
    recording that stand for it are not.
    """
    return unit.noun if unit.kind in (STEP, ITERATION) else "code"


def _eager(facts: Facts, limit: Threshold) -> Found | None:
    share = facts.eager_percent
    if share <= limit["over"]:
        return None
    fix = (
        "+@jax.jit\n def train_step(batch):"
        if facts.jax
        else "+@tf.function\n def train_step(batch):"
    )
    if facts.jax:
        text = (
            f"**{share:.0f}%** of op time ran op by op. jax.jit compiles the ops into one program."
        )
        return Found(text, fix=fix, title=f"Wrap the {_compiled_part(facts.unit)} in jax.jit")
    text = (
        f"**{share:.0f}%** of op time ran eagerly, op by op. A tf.function runs them as one graph."
    )
    if facts.keras and len(facts.overview["tf_functions"]):
        fix = "-model.compile(optimizer, loss, run_eagerly=True)\n+model.compile(optimizer, loss)"
    return Found(text, fix=fix, title="Wrap eager code in a tf.function")


def _functions(facts: Facts, limit: Threshold) -> Found | None:
    """Functions that are retraced; tracing in a warm-up step costs the other steps nothing."""
    functions = facts.overview["tf_functions"]
    worst = functions[
        (functions["expensive_percent"] >= limit["function"])
        & (functions["expensive_ms_per_step"] > 0)
    ]
    worst = worst.sort_values("expensive_ms_per_step", ascending=False, kind="stable")
    time = float(worst["expensive_ms_per_step"].sum())
    if 100 * time < limit["moderate"] * facts.mean["step_time"]:
        return None
    name, share, traced = worst[["function", "expensive_percent", "tracings"]].iloc[0].tolist()
    # Functions that were traced once, all in one step: those of another model, whose training
    # begins with it.
    if facts.evidence.tracing == 1 and (worst["tracings"] == 1).all():
        return None
    more = f" **{len(worst) - 1}** more as well." if len(worst) > 1 else ""
    text = (
        f"**{name}** spends **{share:.0f}%** of its time being traced or run eagerly (traced"
        f" **{traced}** times so far).{more}"
    )
    return Found(text, severity=limit.severity(100 * time / facts.mean["step_time"]), gain_ms=time)


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
    return Found(text, gain_ms=facts.mean["device_compute"] * share / 100, fix=fix)


def _part(
    category: str, what: str, how: Callable[[Facts], tuple[str, str]]
) -> Callable[[Facts, Threshold], Found | None]:
    """A check of how large one category of the step is; `how` gives a title and a fix."""

    def check(facts: Facts, limit: Threshold) -> Found | None:
        share, time, said = facts.percent[category], facts.mean[category], what
        if category == "device_collectives" and facts.evidence.straggler is not None:
            # Who waits for a straggler is in a collective, and no communication takes that time.
            time = max(0.0, time - facts.evidence.straggler.saved_ms)
            share = 100 * time / facts.mean["step_time"]
            said = f"{what}, beyond the wait for {facts.evidence.straggler.host}"
        if share < limit["moderate"]:
            return None
        title, fix = how(facts)
        return Found(
            f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is {said}.",
            severity=limit.severity(share),
            gain_ms=time,
            fix=fix,
            title=title,
        )

    return check


def _overlap(facts: Facts) -> tuple[str, str]:
    title = "Overlap communication with compute"
    if facts.torch and not (facts.evidence.in_use.distributed and facts.evidence.in_use.backward):
        # Only a wrapper of the model for training has a way to leave out the communication of some
        # batches.
        return (
            title,
            (
                "-torch.distributed.all_reduce(x)\n"
                "-y = other_work(z)\n"
                "+waits = torch.distributed.all_reduce(x, async_op=True)\n"
                "+y = other_work(z)  # meanwhile\n"
                "+waits.wait()"
            ),
        )
    if facts.torch:
        return (
            "Communicate less often, or overlap it with compute",
            (
                "+import contextlib\n"
                " for i, batch in enumerate(loader):\n"
                "+    with model.no_sync() if (i + 1) % 4 else contextlib.nullcontext():\n"
                "         loss_fn(model(batch)).backward()"
            ),
        )
    if facts.jax:
        return (
            title,
            (
                "+import os\n"
                "+os.environ['XLA_FLAGS'] = '--xla_gpu_enable_latency_hiding_scheduler=true'  #"
                " before JAX starts"
            ),
        )
    return (
        title,
        (
            "-strategy = tf.distribute.MirroredStrategy()\n"
            "+strategy = tf.distribute.MirroredStrategy(\n"
            "+    cross_device_ops=tf.distribute.NcclAllReduce(num_packs=2))"
        ),
    )


def _fetch(facts: Facts) -> tuple[str, str]:
    if facts.torch:
        return (
            "",
            "-print(loss.item())\n+losses.append(loss.detach())  # and print them every 100 steps",
        )
    return "", "-print(float(loss))\n+losses.append(loss)  # and print them every 100 steps"


_results = _part("output", "copies from the device to the host", _fetch)


def _output(facts: Facts, limit: Threshold) -> Found | None:
    return None if facts.in_host_memory else _results(facts, limit)


def _host_memory(facts: Facts, limit: Threshold) -> Found | None:
    if not facts.in_host_memory:
        return None
    share = float(facts.overview["host_transfer_percent"])
    gain = share * facts.mean["step_time"] / 100
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(gain)}**) goes to moving arrays"
        " between device and host memory."
    )
    text += (
        " Copies of arrays that must stay there may be faster with a larger premapped buffer"
        f" (TPU_PREMAPPED_BUFFER_SIZE), which {PRICE}."
    )
    return Found(text, severity=limit.severity(share), gain_ms=gain)


_REPEATED = 10
"""Of a recording without steps: fewer calls that wait for the device may be those of its begin and
end.
"""


def _waits(facts: Facts, limit: Threshold) -> Found | None:
    waits, idle = facts.torch_runtime.of("sync", "copy D2H"), facts.overview["device_idle_percent"]
    share = 100 * waits.ms / facts.mean["step_time"] if facts.mean["step_time"] else 0.0
    # Waiting for the device only costs where the device then runs dry.
    # A recording begins and ends with such calls, and so does a profiler.
    least = _REPEATED if facts.unit.whole else 1
    if idle is None or idle < limit["idle"] or waits.count < least or share < limit["least"]:
        return None
    if 100 * facts.held_up_ms(facts.mean["step_time"]) < limit["idle"] * facts.mean["step_time"]:
        return None
    text = (
        f"The host synchronizes with the device **{wording.times(waits.count)}**"
        f" {facts.unit.counted}, **{wording.millis(waits.ms)}** in total ({waits.name}), and cannot"
        f" launch ahead meanwhile; the device is idle for **{idle:.0f}%** of {facts.unit.time}."
        " .item(), .cpu(), print(loss) and if on a tensor cause this."
    )
    return Found(text)


_EAGER = Threshold("> {over:g} % of op time on host or device", over=MUCH_EAGER)
_MANY_PROGRAMS = Threshold(
    "≥ {programs:g} programs per step, ≥ {least:g} % of step time between them",
    programs=10.0,
    least=PART_HIGH,
)


def _jit(facts: Facts, limit: Threshold) -> Found | None:
    """A JAX step that is many programs: what is not in a jit runs op by op."""
    programs, share, time = (
        facts.evidence.programs_per_step,
        facts.percent["other"],
        facts.mean["other"],
    )
    if not facts.jax or programs is None or programs < limit["programs"] or share < limit["least"]:
        return None
    text = (
        f"{facts.unit.a.capitalize()} runs **{programs:,.0f}** compiled programs one after the"
        f" other, most of them of a single op, and **{share:.0f}%** of {facts.unit.time}"
        f" (**{wording.millis(time)}**) passes between them, in Python and dispatch. In one jit"
        " they are one program."
    )
    return Found(text, severity="high", gain_ms=time if share <= MOST_UNKNOWN else float("nan"))


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
    time = share * facts.mean["step_time"] / 100
    # What is done in every k-th step alone is a finding of its own.
    rhythm = facts.evidence.periodic
    always = (
        share - 100 * rhythm.unrecorded_ms / facts.mean["step_time"]
        if rhythm is not None
        else share
    )
    # A recording of PyTorch itself takes up to 20 % of a step of small ops, and that is in no op
    # either.
    if (
        always < limit["torch" if facts.torch else "least"]
        or _jit(facts, _MANY_PROGRAMS) is not None
    ):
        return None
    # Between eager ops there is Python: the finding on these says what to change.
    if not facts.torch and _eager(facts, _EAGER) is not None:
        return None
    gain = time if share <= MOST_UNKNOWN else float("nan")
    if (
        facts.percent["input"] >= INPUT_MODERATE
        and len(facts.nodes)
        and tf_data.works_ahead(facts.nodes["long_name"].astype(str))
    ):
        # The pipeline has this time for the next batch: without it, the step would wait for that
        # instead.
        gain = float("nan")
    # Around ops and launches, it is longer for their recording.
    among = (
        facts.gpu_busy_percent is not None
        and facts.mean["host_compute"] + facts.mean["kernel_launch"] > time / 2
    )
    gain_is = UP_TO if among else ABOUT
    if not facts.evidence.host_recorded:
        text = (
            f"In **{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) no device was"
            " busy and the host was not recorded, so the cause is unknown."
            f" {_RECORD_HOST_IN_TORCH if facts.torch else _RECORD_HOST_IN_XLA}"
        )
        return Found(text, gain_ms=float("nan"), title="Record the host as well", gain_is="")
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is outside any"
        " recorded op, launch or copy: Python, logging or I/O."
    )
    if facts.maybe_input:
        text += (
            " It may also be input that was not traced: nbprof.steps(batches) times the wait for"
            " each batch."
        )
    if facts.evidence.python_calls:
        text += " Python calls were recorded: the trace shows them above and between the ops."
        if facts.evidence.functions:
            text += f" Functions with the most of it: {', '.join(facts.evidence.functions)}."
        return Found(
            text, gain_ms=gain, title="Look at the Python calls outside ops", gain_is=gain_is
        )
    # What runs there is unknown, so that any change to the code would be a guess.
    option = "--stacks" if facts.torch else "--python"
    # Steps of JAX that nothing marks are found in the recording, too late to record some of them.
    # Three are enough, behind the first two.
    steps = (facts.overview.get("steps") or 0) / (facts.overview.get("hosts") or 1)
    few = (
        ""
        if facts.jax or facts.unit.kind != STEP or steps < _LAST_LOOKED_AT
        else f" --steps {_LAST_LOOKED_AT - 2}:{_LAST_LOOKED_AT}"
    )
    what = "record three steps" if few else "record"
    text += f" To see which Python calls take this time, {what} {IN_CELL}; it slows Python down."
    # Nothing but the line: it is copied over the one that is there. To look again saves nothing.
    return Found(text, fix=f"-%%nbprof\n+%%nbprof {option}{few}")


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "kernel_launch",
        _launch,
        threshold=Threshold(
            (
                "≥ {moderate:g} % of step time (high from {high:g} %); JAX: ≥ {programs:g}"
                " programs per step, where that is known"
            ),
            moderate=PART_MODERATE,
            high=PART_HIGH,
            programs=2,
        ),
        source=XPROF,
        target=KERNELS,
        applies=ALL,
        looks_at="Time the host spends preparing and launching kernels while the device is idle",
        refuted_by="{the} takes as long with fewer, larger kernels",
        gain_is=ABOUT,
        shortens=HOST_TIME,
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
        gain_is=ABOUT,
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
        _part("device_collectives", "communication between devices", _overlap),
        threshold=STEP_SHARE,
        source=XPROF,
        target=TRACE,
        applies=ALL,
        looks_at="Communication between devices that does not overlap compute",
        on_npu=True,
        refuted_by="{the} takes as long on one device with the same batch per device",
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
        done=Shown(
            "Python calls were recorded: then they are named; sampled stacks take its place"
        ),
    ),
)
