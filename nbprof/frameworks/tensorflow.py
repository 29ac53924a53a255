"""TensorFlow."""

from __future__ import annotations

import sys

from nbprof.frameworks.framework import Doctor, Framework, Recorder, Words


def _in_use() -> bool:
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "context_safe", None)
    return context is not None and bool(getattr(context(), "_initialized", False))


FRAMEWORK = Framework(
    name="tensorflow",
    title="TensorFlow",
    packages=("tensorflow",),
    recorder=Recorder(
        module="tensorflow",
        code=r"\btensorflow\b|\btf\s*\.",
        backend="nbprof.capture.tensorflow:TensorFlowBackend",
        files="*.xplane.pb",
        signs=(
            b"EagerExecute",
            b"EagerLocalExecute",
            b"TFE_Py_",
            b"FunctionRun",
            b"ExecutorState::",
            b"GraphRun",
            b"SessionRun",
            b"Iterator::",
            b"IteratorGetNext",
            b"/device:GPU:",
            b"/device:TPU:",
        ),
        has_server=True,
        in_use=_in_use,
    ),
    doctor=Doctor(
        "tensorflow",
        ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tf-nightly"),
        "import tensorflow as tf; print(*[d.name for d in tf.config.list_physical_devices()],"
        " sep=', ')",
    ),
    words=Words(
        mark_ranges=(
            'put "with tf.name_scope(name):" around a part of a tf.function, or "with'
            ' tf.profiler.experimental.Trace(name):" around a part of the program.'
        ),
        loader="tf.data",
        copy_ahead="tf.data.experimental.prefetch_to_device lets them overlap device compute.",
        list_gpus="tf.config.list_physical_devices('GPU')",
        record_python_calls=(
            "+options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=1)\n"
            "-tf.profiler.experimental.start(logdir)\n"
            "+tf.profiler.experimental.start(logdir, options)"
        ),
        compile_step="+@tf.function\n def step(batch):\n     return model(batch)",
        compile_ops="A tf.function turns them into one graph.",
    ),
    records_compilation=True,
    has_scopes=True,
    xla=True,
)
