"""Record a cell with ``torch.profiler``."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.capture.steps import Marker, StepClock
from nbprof.errors import CaptureError

MODULE = "torch"
TITLE = "PyTorch"


class TorchBackend:
    """Starts and stops PyTorch's profiler and writes its Kineto trace into the layout that TensorBoard reads."""

    name = "torch"
    title = TITLE

    def __init__(self, module: ModuleType) -> None:
        self._torch = module
        self._profile: Any = None
        self._folder = Path()
        self._handle: Any = None

    def start(self, folder: Path, options: Options) -> list[str]:
        """Begin recording; the files will go to `folder`. Returns what the person should know about it."""
        import torch.profiler  # type: ignore[import-not-found,unused-ignore]  # the cell has imported torch already

        profiler = torch.profiler
        self._folder = folder
        try:
            self._profile = profiler.profile(
                activities=profiler.supported_activities(),
                record_shapes=True,
                profile_memory=options.memory,
                with_stack=options.python,
            )
            self._profile.start()
        except Exception as error:
            self._profile = None
            raise CaptureError(f"PyTorch's profiler did not start: {error}") from error
        return [] if options.host_level == 2 else ["PyTorch's profiler has no host levels: --host-level changes nothing"]

    def stop(self) -> None:
        """End the recording and write its file."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        profile, self._profile = self._profile, None
        if profile is None:
            return
        run = self._folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        try:
            profile.stop()
            run.mkdir(parents=True, exist_ok=True)
            profile.export_chrome_trace(str(run / f"{socket.gethostname()}.pt.trace.json.gz"))
        except Exception as error:
            raise CaptureError(f"PyTorch's profiler wrote no file: {error}") from error

    def open_marker(self, kind: str, number: int) -> Marker:
        """Open a span named as PyTorch names its own steps."""
        del kind
        return _Span(self._torch.profiler.record_function(f"ProfilerStep#{number}"))

    def versions(self) -> str:
        """Return the versions that matter for reading the run."""
        return f"PyTorch {self._torch.__version__}"

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Let each optimizer step end a step of the run."""
        del patches, give_way
        from torch.optim.optimizer import (  # type: ignore[import-not-found,unused-ignore]
            register_optimizer_step_post_hook,
        )

        def stepped(*_: Any) -> None:
            # Keras on PyTorch tells its batches itself.
            if "keras.src.backend.torch.trainer" not in sys.modules:
                clock.end("train")

        self._handle = register_optimizer_step_post_hook(stepped)
        clock.begin("train")


class _Span:
    """A record_function span; its name is final from the start, so one that is given up stays in the trace."""

    def __init__(self, span: Any) -> None:
        self._span = span
        span.__enter__()

    def close(self, step: int | None, batches: int = 1) -> None:
        del step, batches
        self._span.__exit__(None, None, None)
