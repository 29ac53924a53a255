"""Ranges that a program names itself (`record_function`, NVTX, `TraceAnnotation`, mstx).

A recording marks both in the same way, so that a name decides: frameworks use few, which are listed
here by their beginnings. PyTorch's `Optimizer.step#AdamW.step` is listed as what it is, beside
ranges of the program.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.activity.tables import Ranges
from nbprof.core import nesting
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects import torchnames
from nbprof.dialects.lookups import codes_by_name, rows_that

OPTIMIZER = "optimizer"
"""The kind of a range that PyTorch sets around each step of an optimizer."""

_OF_TORCH = re.compile(
    r"ProfilerStep[#*]|PyTorch Profiler|Iteration Start: |Optimizer\.\w+#|enumerate\(|"
    r"(?:Distributed|FullySharded)?DataParallel\.|FSDP::|(?:nccl|gloo|mpi|ucc|hccl|xccl|rccl|xla):|"
    r"record_param_comms|(?:aten|at|c10|c10d|c10d_functional|_c10d_functional|torch|autograd|prim|"
    r"prims|quantized|inductor|fbgemm)::|Torch-Compiled Region|TorchDynamo|Pregraph bytecode|"
    r"AOTDispatcher|Inductor|nbprof|"
    # Names of kernels and of calls of libraries, which libraries of CUDA set as NVTX ranges
    # themselves.
    r"(?:cudnn|cublas|cusparse|cusolver|cufft|cuda|nccl|nvte|cub::|thrust::|rmm::|TensorRT:|\[TRT)"
)
_XLA = re.compile(
    r"[A-Z]\w*::|(?:tsl|xla|tensorflow|stream_executor|absl)::|PjitFunction|pjit|jit_|cpp_pjit|"
    r"shard_args|batched_device_put|DevicePut|ParseArguments|RecordUsage|Memory(?:Dea|A)llocation|"
    r"Wait for |Handle |PJRT_|PjRt|Pjrt|Tfrt|Thunk|Xla|XLA|TFE_|Eager[A-Z]|FunctionRun|"
    r"KernelAndDevice|ValidateInput|convert_to_tensor|tf\.|Executor|Execute|Compile|Backend|Buffer|"
    r"CopyTo|CopyFrom|TransferTo|TransferFrom|ThenExecute|ComputeSemaphore|Resolve constant|"
    r"Build buffer|MakeOutput|AllocateOutput|SessionRun|RunGraph|TraceContext|Session|Memcpy|"
    r"Memset|(?:cu|cuda|hip|nccl|Nccl)[A-Z]|GpuExecutable|HloModule|end: |process_time|"
    r"backend_compile|compile_or_get|\$|nbprof|Iterator|Keras: |np\.asarray|Array\.|MakeArray|"
    r"LoadedExecutable"
)
_DIGITS = re.compile(r"\d+")


def personal_in_torch(name: str) -> bool:
    """True for a name that neither PyTorch nor a library of CUDA gives."""
    if not name.strip() or _OF_TORCH.match(name) or name in act.WAITS_FOR_ITEMS:
        return False
    return not (
        torchnames.is_compiled(name)
        or torchnames.is_compiling(name)
        or torchnames.op_type(name) in ("autograd", "triton")
    )


def personal_in_xspace(name: str) -> bool:
    """True for a name that neither TensorFlow nor JAX gives to an outermost event."""
    return bool(name.strip()) and not _XLA.match(name) and name not in act.WAITS_FOR_ITEMS


def family(name: str) -> str:
    """A name without its numbers: `step N` of `step 12`."""
    return _DIGITS.sub("N", name)


def without_marks(trace: Trace, rows: Int64s, marks: Int64s) -> Int64s:
    """Rows of events without markers of steps, and without others of the same name but numbers."""
    codes = np.unique(trace.events.name[marks[marks >= 0]])
    marked = set(map(family, map(str, trace.names[codes])))
    return rows_that(trace, rows, lambda name: family(name) not in marked)


def table(
    trace: Trace,
    rows: Int64s,
    host: Int32s,
    kind: npt.NDArray[np.object_] | str,
    activity: act.Activity,
) -> Ranges:
    """The `ranges` table.

    Parameters
    ----------
    trace : Trace
    rows : int64[n]
        The events, ascending.
    host : int32[events]
    kind : object[n] or str
        What set each, or all: `record_function`, `NVTX`.
    activity : Activity
        Takes the names.
    """
    events = trace.events
    lane, start, duration = events.lane[rows], events.start[rows], events.duration[rows]
    code = codes_by_name(trace, events.name[rows], activity.texts.code)
    kinds = np.broadcast_to(np.asarray(kind, object), len(rows))
    return Ranges(
        event=rows,
        host=host[rows],
        lane=lane,
        start=start,
        end=start + duration,
        parent=nesting.parents(lane, start, duration, SLACK_PS).astype(np.int64),
        name=code[events.name[rows]],
        kind=activity.texts.encode(kinds.tolist()),
    )


SLACK_PS = 1_000_000
"""How far a range may run past the one around it: recorders round times."""
