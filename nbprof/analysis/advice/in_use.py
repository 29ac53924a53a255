"""Recommended features that a program uses already, by the names of its events and lanes.

A missing name proves nothing if its kind of event was not recorded: then the advice stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.core.trace import Trace
from nbprof.frameworks.register import PYTORCH

_NAMES: dict[str, re.Pattern[str]] = {
    "compiled": re.compile(
        r"Torch-Compiled Region|TorchDynamo Cache Lookup|CompiledFxGraph|"
        r"CompiledFunction(?:Backward)?\Z|triton_(?:poi|red|per|tem|for)_"
    ),
    "xla": re.compile(r"_?Xla(?:Compile|Launch|Run)\w*\b|XlaLocalLaunch"),
    "graphs": re.compile(r"(?:cuda|cu|hip)GraphLaunch"),
    "fused_optimizer": re.compile(
        r"aten::_fused_(?:adam|adamw|sgd|adagrad)|Fused(?:Adam|AdamW|SGD|Adagrad)|"
        r"multi_tensor_apply_kernel.*Fused"
    ),
    "backward": re.compile(r"autograd::engine|Backward\d*\Z"),
    "distributed": re.compile(
        r"DistributedDataParallel\.forward|FullyShardedDataParallel\.forward|FSDP::"
    ),
    "nccl": re.compile(r"nccl:|ncclDev|ncclKernel"),
    "several_steps": re.compile(r"multi_step_on_"),
    "checkpoints": re.compile(r"CheckpointFunction|rematted_computation|/checkpoint/|/remat\d*/"),
    "expandable": re.compile(r"(?:cu|hip)Mem(?:Create|Map|AddressReserve|SetAccess)\b"),
}
_PRIVATE_THREADS = re.compile(r"tf_gpu_private_")
"""Name of TensorFlow's threads that launch kernels with TF_GPU_THREAD_MODE=gpu_private."""


@dataclass(frozen=True)
class InUse:
    """Features that are seen to be in use.

    A feature that could not be seen is False, except for `backward` and `optimizer`.

    Attributes
    ----------
    compiled : bool
        torch.compile.
    xla : bool
        Functions of TensorFlow that XLA compiled.
    graphs : bool
        CUDA graphs.
    fused_optimizer : bool
        One op updates all parameters.
    backward, optimizer : bool
        A backward pass, and an update of parameters.
    private_threads : bool
        Threads of TensorFlow that only launch kernels.
    distributed : bool
        DistributedDataParallel, or FullyShardedDataParallel.
    nccl : bool
        Communication by NCCL.
    several_steps : bool
        Keras runs several batches in one execution.
    checkpoints : bool
        Activations are computed again for the backward pass.
    expandable : bool
        PyTorch's allocator has expandable segments.
    """

    compiled: bool = False
    xla: bool = False
    graphs: bool = False
    fused_optimizer: bool = False
    backward: bool = True
    optimizer: bool = True
    private_threads: bool = False
    distributed: bool = False
    nccl: bool = False
    several_steps: bool = False
    checkpoints: bool = False
    expandable: bool = False


def find(activity: Activity, trace: Trace) -> InUse:
    """The features that events and lanes of a profile show.

    Parameters
    ----------
    activity : Activity
    trace : Trace
        Its events.
    """
    names = [str(name) for name in trace.names]
    seen = {use: _any(names, pattern.search) for use, pattern in _NAMES.items()}
    for use in ("xla", "checkpoints", "several_steps"):
        seen[use] = seen[use] or _any(map(str, activity.ops.values), _NAMES[use].search)
    if activity.framework is PYTORCH:
        updates = len(activity.optimizer_calls) > 0
        # Without events of the host, its backward pass was not recorded either.
        seen["optimizer"] = updates or not activity.has_host_ops
        seen["backward"] = seen["backward"] or seen["optimizer"]
    else:
        # Only names of PyTorch's events show a backward pass and an update.
        seen |= {"backward": True, "optimizer": True, "compiled": False}
    return InUse(private_threads=has_private_threads(trace.lanes), **seen)


def has_private_threads(lanes: pd.DataFrame) -> bool:
    """True if TensorFlow has threads that only launch kernels, by the names of `trace.lanes`."""
    return "thread" in lanes and _any(lanes["thread"].astype(str), _PRIVATE_THREADS.search)


def _any(names: Iterable[str], search: Callable[[str], object]) -> bool:
    return any(search(name) for name in names)
