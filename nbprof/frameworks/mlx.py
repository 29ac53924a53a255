"""MLX: without a profiler that a program can read, only steps and their waits are recorded."""

from __future__ import annotations

import sys
from typing import Any

from nbprof.frameworks.framework import Doctor, Framework, Hint, Recorder, Words


def _wait_for(result: Any) -> None:
    sys.modules["mlx.core"].eval(result)


def _synchronize(module: Any) -> None:
    module.synchronize()


FRAMEWORK = Framework(
    name="mlx",
    title="MLX",
    packages=("mlx", "mlx_lm", "mlx_vlm"),
    recorder=Recorder(
        module="mlx.core",
        code=r"\bmlx\b",
        backend="nbprof.capture.python:PythonBackend",
        files="*.py.trace.json.gz",
        wait_for=_wait_for,
        synchronize=_synchronize,
    ),
    doctor=Doctor("mlx", ("mlx", "mlx-cuda"), "import mlx.core as mx; print(mx.default_device())"),
    words=Words(
        mark_steps=Hint(
            "No steps found, so step time is unknown.",
            "MLX computes arrays when they are needed. Mark the steps, and compute the results of"
            " each in it:",
            "import nbprof\n\nfor batch in nbprof.steps(batches):\n    loss = train_step(batch)\n  "
            "  mx.eval(loss, model.parameters())",
        ),
        unprofiled="MLX has no profiler that nbprof can read",
        loop=(
            "'for batch in nbprof.steps(batches):' marks the iterations of a loop, and mx.eval(...)"
            " at the end of each computes its results within it."
        ),
    ),
    profiled=False,
)
