"""Current resource use of a process and its GPUs, cheap enough to read every second."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """The total use of the GPUs that this process may use, from NVML.

    Parameters
    ----------
    count : int
    busy : float or None
        The mean share of the time in which a kernel ran, 0 to 1; None if it is not reported, as
        for a MIG slice.
    used, total : int
        Bytes of their memory in use by any process, and in total.
    """

    count: int
    busy: float | None
    used: int
    total: int


@dataclass(frozen=True)
class Reading:
    """One reading; None means unknown.

    Parameters
    ----------
    cpu : float or None
        Cores that the process kept busy since the previous reading.
    memory : int or None
        Its resident bytes.
    gpu : Gpu or None
    """

    cpu: float | None = None
    memory: int | None = None
    gpu: Gpu | None = None


class Meters:
    """Reads the process with psutil and the GPUs with NVML, if `pynvml` can be imported.

    Values that cannot be read are unknown. It is created on the thread of the cell, before the
    recording, and read on another one.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._process: Any = None
        self._before: tuple[float, float] | None = None
        self._gpus: Gpus | None = None
        with contextlib.suppress(Exception):
            import psutil

            self._process = psutil.Process()
        with contextlib.suppress(Exception):
            self._gpus = Gpus(_nvml())

    def read(self) -> Reading:
        """Read everything once."""
        cpu = memory = gpu = None
        with contextlib.suppress(Exception):
            cpu = self._cpu()
        with contextlib.suppress(Exception):
            memory = int(self._process.memory_info().rss)
        if self._gpus is not None:
            try:
                gpu = self._gpus.read()
            except Exception:
                self.close()
                self._gpus = None
        return Reading(cpu, memory, gpu)

    def _cpu(self) -> float | None:
        times = self._process.cpu_times()
        now, used = self._now(), times.user + times.system
        before, self._before = self._before, (now, used)
        if before is None or now <= before[0]:
            return None
        return max(float(used - before[1]), 0.0) / (now - before[0])

    def close(self) -> None:
        """Release NVML."""
        if self._gpus is not None:
            self._gpus.close()


def _nvml() -> Any:
    """`pynvml`, which both nvidia-ml-py and an older package provide.

    Raises
    ------
    ImportError
        It is not installed.
    """
    if "pynvml" not in sys.modules:
        with warnings.catch_warnings():
            # The older package warns with each import that the newer one should be installed.
            warnings.simplefilter("ignore")
            import pynvml  # noqa: F401
    return sys.modules["pynvml"]


class Gpus:
    """The GPUs that this process may use.

    Parameters
    ----------
    nvml : module
        `pynvml`. It is initialised with the first reading, which takes a moment if the driver
        sleeps.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles: list[Any] | None = None

    def read(self) -> Gpu | None:
        """Their current use; None if there are no GPUs."""
        nvml = self._nvml
        if self._handles is None:
            nvml.nvmlInit()
            self._handles = self._visible()
        busy: list[float] = []
        used = total = 0
        for handle in self._handles:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            used, total = used + int(memory.used), total + int(memory.total)
            with contextlib.suppress(Exception):
                busy.append(float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100)
        if not self._handles:
            return None
        count, mean_busy = len(self._handles), None
        if len(busy) == count:
            mean_busy = sum(busy) / count
        return Gpu(count, mean_busy, used, total)

    def _visible(self) -> list[Any]:
        """Handles of the GPUs that CUDA_VISIBLE_DEVICES makes visible."""
        nvml = self._nvml
        every = list(map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount())))
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        if chosen is None:
            return every
        words = list(map(str.strip, chosen.split(",")))
        by_number = all(word.lstrip("-").isdigit() for word in words if word)
        # By default, CUDA numbers the fastest first: with GPUs of several kinds its numbers differ
        # from those of NVML.
        kinds = {str(nvml.nvmlDeviceGetName(handle)) for handle in every}
        if by_number and len(kinds) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            if not any(map(str.isdigit, words)):
                return []
            return every
        visible = []
        for word in words:
            handle = self._find(word, every)
            # CUDA ignores all entries after a device that does not exist.
            if handle is None:
                break
            visible.append(handle)
        return visible

    def _find(self, word: str, every: list[Any]) -> Any:
        if word.isdigit():
            return dict(enumerate(every)).get(int(word))
        if word.startswith("MIG-"):
            with contextlib.suppress(Exception):
                return self._nvml.nvmlDeviceGetHandleByUUID(word)
            return None
        for handle in every:
            uuid = self._nvml.nvmlDeviceGetUUID(handle)
            text = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
            if word and text.startswith(word):
                return handle
        return None

    def close(self) -> None:
        """Undo the initialisation; NVML counts them, so others that use it are not disturbed."""
        if self._handles is not None:
            self._handles = None
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()
