"""Settings of frameworks that advice recommends; those that are set need not be advised.

Only the names below are read: the environment of a process may hold secrets.
"""

from __future__ import annotations

import contextlib
import os
import sys

VARIABLES = (
    "TF_GPU_THREAD_MODE",
    "TF_GPU_ALLOCATOR",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "TPU_PREMAPPED_BUFFER_SIZE",
)
"""Environment variables that advice names."""
TORCH_THREADS = "torch.get_num_threads"
_LONGEST = 200


def settings() -> dict[str, str]:
    """Those that are set, and how many threads an op of PyTorch may use where it was imported."""
    values = {name: os.environ[name][:_LONGEST] for name in VARIABLES if os.environ.get(name)}
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if count is not None:
        with contextlib.suppress(Exception):
            values[TORCH_THREADS] = str(int(count()))
    return values
