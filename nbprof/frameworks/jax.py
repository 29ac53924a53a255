"""JAX."""

from __future__ import annotations

import sys
from typing import Any

from nbprof.frameworks.framework import Doctor, Framework, Hint, Recorder, Words


def _in_use() -> bool:
    started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    return started is not None and bool(started())


def _wait_for(result: Any) -> None:
    sys.modules["jax"].block_until_ready(result)


FRAMEWORK = Framework(
    name="jax",
    title="JAX",
    packages=("jax", "jaxlib", "flax", "optax", "haiku", "equinox"),
    recorder=Recorder(
        module="jax",
        code=r"\b(?:jax|jnp|flax|optax|equinox)\b",
        backend="nbprof.capture.jax:JaxBackend",
        files="*.xplane.pb",
        signs=(
            b"PjitFunction",
            b"ExecuteReplicated",
            b"ExecuteHelper",
            b"ExecutePrepare",
            b"TfrtCpuExecutable",
            b"PjRtStreamExecutor",
            b"BatchedCopyToDevice",
            b"/device:GPU:",
            b"/device:TPU:",
        ),
        has_server=True,
        steps_found_late=True,
        hides_python=True,
        in_use=_in_use,
        wait_for=_wait_for,
    ),
    doctor=Doctor(
        "jax",
        (
            "jax",
            "jaxlib",
            "jax-cuda13-plugin",
            "jax-cuda12-plugin",
            "jax-rocm7-plugin",
            "jax-rocm60-plugin",
            "libtpu",
        ),
        "import jax; print(*jax.devices(), sep=', ')",
    ),
    words=Words(
        no_steps=(
            "This profile has no step markers, so step time is unknown. In the loop write: for"
            " batch in nbprof.steps(batches), or wrap each step in"
            " jax.profiler.StepTraceAnnotation('train', step_num=i)."
        ),
        mark_steps=Hint(
            "No steps found, so step time is unknown.",
            "JAX does not mark steps automatically. Mark them in the loop:",
            "for i, batch in enumerate(batches):\n    with"
            " jax.profiler.StepTraceAnnotation('train', step_num=i):\n        train_step(batch)",
        ),
        mark_ranges=(
            'put "with jax.named_scope(name):" around a part of a compiled function, or "with '
            'jax.profiler.TraceAnnotation(name):" around a part of the program.'
        ),
        loader="grain, tf.data or a prefetching thread",
        copy_ahead=(
            "Calling jax.device_put on the next batch before the step lets them overlap device"
            " compute."
        ),
        list_gpus="jax.devices('gpu')",
        record_python_calls=(
            "+options = jax.profiler.ProfileOptions()\n+options.python_tracer_level ="
            " 1\n-jax.profiler.start_trace(logdir)\n+jax.profiler.start_trace(logdir,"
            " profiler_options=options)"
        ),
        compile_step="+@jax.jit\n def step(params, batch):\n     return apply(params, batch)",
        compile_ops="jax.jit compiles them into one program.",
        # The host of JAX runs no ops, but Python, argument handling, buffer management and
        # dispatch.
        host_work="prepares and dispatches programs",
    ),
    slows_host=4.0,
    records_compilation=True,
    has_scopes=True,
    xla=True,
)
