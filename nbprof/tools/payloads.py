"""The payload of the whole dashboard: all that the page draws, a field per tab."""

from __future__ import annotations

from nbprof.display.payload import Part
from nbprof.tools.allocator.parts import Allocator
from nbprof.tools.ascend.parts import Ascend
from nbprof.tools.compare.parts import Compare
from nbprof.tools.device_time.parts import DeviceTime
from nbprof.tools.hlo.parts import Hlo
from nbprof.tools.input.parts import Input
from nbprof.tools.kernels.parts import Kernels
from nbprof.tools.memory.parts import Memory
from nbprof.tools.memory_viewer.parts import MemoryViewer
from nbprof.tools.op_profile.parts import OpProfile
from nbprof.tools.ops.parts import Ops
from nbprof.tools.overview.parts import Overview
from nbprof.tools.parts import Meta
from nbprof.tools.pods.parts import Pods
from nbprof.tools.steps.parts import Steps
from nbprof.tools.trace.parts import Trace


class Payload(Part):
    """All that the page draws: a field per tab, by the ids of `names.json`, and what surrounds
    them.
    """

    meta: Meta
    overview: Overview
    steps: Steps
    input: Input
    ops: Ops
    op_profile: OpProfile
    hlo: Hlo
    kernels: Kernels
    device_time: DeviceTime
    ascend: Ascend
    memory: Memory
    allocator: Allocator
    memory_viewer: MemoryViewer
    pods: Pods
    trace: Trace
    compare: Compare | None = None
    """Only where this run is compared with others."""
