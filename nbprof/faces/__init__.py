"""The views of a Profile as a person meets them: `p.steps`, `p.ops`, `p.memory` … with frame, figure and widget."""

from nbprof.tools.allocator.accessor import Allocator
from nbprof.tools.ascend import accessor as ascend
from nbprof.tools.hlo.accessor import Hlo, OpProfile
from nbprof.tools.input_pipeline.accessor import InputPipeline, TfData
from nbprof.tools.memory.accessor import Memory
from nbprof.tools.memory_viewer.accessor import MemoryViewer, ModuleMemory
from nbprof.tools.ops.accessor import Kernels, Ops
from nbprof.tools.roofline.accessor import Roofline
from nbprof.tools.steps.accessor import Pods, Steps
from nbprof.tools.trace.accessor import TraceView
from nbprof.tools.view import Framed, View

__all__ = [
    "Allocator",
    "Framed", "Hlo", "InputPipeline", "Kernels", "Memory", "MemoryViewer", "ModuleMemory", "OpProfile", "Ops", "Pods", "Roofline", "Steps",
    "TfData", "TraceView", "View", "ascend",
]  # fmt: skip
