"""Recommended features that a program uses already, by the names of its events and lanes.

A missing name proves nothing if its kind of event was not recorded: then the advice stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.core.trace import Trace
from nbprof.frameworks.register import PYTORCH

_NAMES: dict[str, re.Pattern[str]] = {
    "compiled": re.compile(
        r"Torch-Compiled Region|TorchDynamo Cache Lookup|CompiledFxGraph|"
        r"CompiledFunction(?:Backward)?$|triton_(?:poi|red|per|tem|for)_",
        re.MULTILINE,
    ),
    "xla": re.compile(r"Xla(?:Compile|Launch|Run|LocalLaunch)"),
    "graphs": re.compile(r"(?:cuda|cu|hip)GraphLaunch"),
    "fused_optimizer": re.compile(
        r"aten::_fused_(?:adam|adamw|sgd|adagrad)|Fused(?:Adam|AdamW|SGD|Adagrad)|"
        r"multi_tensor_apply_kernel.*Fused"
    ),
    "backward": re.compile(r"autograd::engine|Backward\d*$", re.MULTILINE),
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


class InUse:
    """Features that are seen to be in use, each searched for when a rule first asks for it.

    A feature that could not be seen is False, except for `backward` and `optimizer`.

    Parameters
    ----------
    search : callable, optional
        Whether a feature is in use, by its name; by default, none could be seen.
    **seen : bool
        Features that are known already.

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

    compiled: bool
    xla: bool
    graphs: bool
    fused_optimizer: bool
    backward: bool
    optimizer: bool
    private_threads: bool
    distributed: bool
    nccl: bool
    several_steps: bool
    checkpoints: bool
    expandable: bool

    def __init__(
        self,
        search: Callable[[str], bool] = ("backward", "optimizer").__contains__,
        **seen: bool,
    ) -> None:
        self._search = search
        self.__dict__.update(seen)

    def __getattr__(self, feature: str) -> bool:
        if feature not in InUse.__annotations__:
            raise AttributeError(feature)
        seen = self._search(feature)
        self.__dict__[feature] = seen
        return seen


def find(activity: Activity, trace: Trace) -> InUse:
    """The features that events and lanes of a profile show.

    Parameters
    ----------
    activity : Activity
    trace : Trace
        Its events.
    """
    return InUse(partial(_is_seen, activity, trace))


def _is_seen(activity: Activity, trace: Trace, feature: str) -> bool:
    if feature == "private_threads":
        return has_private_threads(trace.lanes)
    of_torch = activity.framework is PYTORCH
    if feature in ("backward", "optimizer") and not of_torch:
        # Only names of PyTorch's events show a backward pass and an update.
        return True
    if feature == "compiled" and not of_torch:
        return False
    if feature == "optimizer":
        return _updates(activity)
    pattern = _NAMES[feature]
    if _any(map(str, trace.names), pattern):
        return True
    if feature in ("xla", "checkpoints", "several_steps"):
        return _any(map(str, activity.ops.values), pattern)
    # Without events of the host, its backward pass was not recorded either.
    return feature == "backward" and _updates(activity)


def _updates(activity: Activity) -> bool:
    return len(activity.optimizer_calls) > 0 or not activity.has_host_ops


def has_private_threads(lanes: pd.DataFrame) -> bool:
    """True if TensorFlow has threads that only launch kernels, by the names of `trace.lanes`."""
    return "thread" in lanes and _any(lanes["thread"].astype(str), _PRIVATE_THREADS)


def _any(names: Iterable[str], pattern: re.Pattern[str]) -> bool:
    """True if a pattern is found in a name. One search of all names, a line each, takes a tenth of
    the time of one search a name.
    """
    return pattern.search("\n".join(names)) is not None
