"""Views of PyTorch's own, and of what devices did with their time."""

from __future__ import annotations

from nbprof.profiles.parts_base import Shown
from nbprof.tools.allocator.accessor import Allocator
from nbprof.tools.device_time.accessor import DeviceTime
from nbprof.tools.torch_ops.accessor import TorchOps


class Torch(Shown):
    """Faces of PyTorch profiles."""

    @property
    def allocator(self) -> Allocator:
        """PyTorch's caching allocator: segments, blocks, what is stranded, and why memory ran out."""
        return Allocator(self)

    @property
    def torch_ops(self) -> TorchOps:
        """PyTorch's ops by name, input shapes, call stack and nn.Module."""
        return TorchOps(self, "ops", "torch_ops")

    @property
    def device_time(self) -> DeviceTime:
        """What devices did with their time, and what they waited for."""
        return DeviceTime(self)
