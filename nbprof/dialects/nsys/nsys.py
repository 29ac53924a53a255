"""Turns the Trace of an export of Nsight Systems into the activity tables, as Kineto's.

NVTX ranges are in the place of annotations.
"""

from __future__ import annotations

from nbprof.activity import activity as act
from nbprof.core.receipt import Note
from nbprof.core.trace import Trace
from nbprof.core.units import join_some
from nbprof.dialects.gpu import absent, range_ops, ranges, receipt
from nbprof.dialects.gpu.lanes import KERNEL, Kinds, kinds, split
from nbprof.dialects.gpu.recording import GpuRecording
from nbprof.dialects.gpu.steps import Steps
from nbprof.frameworks.register import CUDA

HOW = (
    "This recording has no steps, so step time is unknown: no NVTX ranges mark them. Put a range"
    ' such as "step 12" around each iteration (torch.cuda.nvtx.range, nvtx.annotate) and record it'
    " with  nsys profile --trace=cuda,nvtx."
)
_REMEDY = "Record with  nsys profile --trace=cuda,nvtx."
_LOST = (
    "the kernels were lost. Record a shorter time, let the program end by itself, or add"
    " --cuda-flush-interval=1000; no other profiler may use the GPU meanwhile."
)


def interpret(trace: Trace) -> act.Activity:
    """The activity of one recording; fills the kinds of `trace.lanes`.

    Each table is computed when it is first asked for.
    """
    kind = kinds(trace)
    range_ops.name(trace, kind)
    return _Nsight(trace, split(trace, kind)).activity()


class _Nsight(GpuRecording):
    """A recording of Nsight Systems on its way into the tables."""

    sets_ranges = "NVTX"

    def __init__(self, trace: Trace, kind: Kinds) -> None:
        super().__init__(trace, kind)
        # Work is not counted for markers of steps: each would be a separate part of the program.
        self.links.step_names = ranges.named(trace.names)
        named = ranges.framework(trace)
        self.framework = named if named.is_supported else CUDA

    def find_steps(self) -> Steps:
        """The steps, by the NVTX ranges that mark them."""
        return ranges.find(self.links, "NVTX ranges")

    def notes(self) -> list[Note]:
        """Lines for the receipt."""
        return receipt.notes(
            self.links, self.steps, self.hosts, self.tables.launches.frame(), self.origins, _LOST
        )

    def missing(self) -> dict[str, str]:
        """A sentence for each kind of data that the recording lacks."""
        activity, links = self.tables, self.links
        missing = {
            "memory": (
                "Nsight Systems does not record framework allocations; torch.profiler does, with"
                " profile_memory=True."
            ),
        }
        if not len(links.rows(KERNEL)):
            missing["kernels"] = absent.without_kernels(links, "This recording", _LOST) or (
                "This recording has no GPU kernels and no CUDA calls: the program made none, or"
                f" CUDA was not traced. {_REMEDY}"
            )
        unread = self.trace.metadata.get("nvtx_unread")
        if isinstance(unread, list) and unread:
            tables = join_some([str(table) for table in unread], 3)
            lost = (
                f"The NVTX events of this recording are in {tables}, a layout that nbprof does not"
                " know"
            )
            if not len(self.steps.host):
                missing["steps"] = (
                    f"{lost}: whether ranges mark steps is unknown, and so is step time."
                )
            if not activity.has_host_ops:
                missing["ops"] = f"{lost}: which framework ops they contain is unknown."
        if not len(self.steps.host):
            missing.setdefault("steps", HOW)
        if not activity.has_host_ops:
            missing["ops"] = missing.get("ops") or (
                "This recording has no framework ops: Nsight Systems only knows ops from NVTX"
                " ranges. With PyTorch, run the program in torch.autograd.profiler.emit_nvtx(), or"
                " record it with  nsys profile --pytorch=autograd-nvtx."
            )
        missing["input"] = "Nsight Systems does not record input waits."
        return missing
