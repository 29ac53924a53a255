"""The views of a Profile as a person meets them: `p.steps`, `p.ops`, `p.memory` … with frame, figure and widget."""

from nbprof.faces import ascend
from nbprof.faces.allocator import Allocator
from nbprof.faces.events import TraceView
from nbprof.faces.hlo import Hlo, OpProfile
from nbprof.faces.input import InputPipeline, TfData
from nbprof.faces.memory import Memory
from nbprof.faces.memory_viewer import MemoryViewer, ModuleMemory
from nbprof.faces.ops import Kernels, Ops
from nbprof.faces.roofline import Roofline
from nbprof.faces.steps import Pods, Steps
from nbprof.faces.view import Framed, View

__all__ = [
    "Allocator",
    "Framed", "Hlo", "InputPipeline", "Kernels", "Memory", "MemoryViewer", "ModuleMemory", "OpProfile", "Ops", "Pods", "Roofline", "Steps",
    "TfData", "TraceView", "View", "ascend",
]  # fmt: skip
