"""What a process and its GPUs take; NVML is a stand-in here, with the calls that `pynvml` has."""

from __future__ import annotations

import sys
import types

import pytest

from nbprof.capture import meters
from nbprof.capture.meters import Gpus, Meters

GB = 10**9


class Nvml(types.ModuleType):
    """Two GPUs, or those that the test names."""

    def __init__(self, names=("A100", "A100")):
        super().__init__("pynvml")
        self.names, self.begun, self.broken = names, 0, ()

    def nvmlInit(self):
        self.begun += 1

    def nvmlShutdown(self):
        self.begun -= 1

    def nvmlDeviceGetCount(self):
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetName(self, handle):
        return self.names[handle]

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}abc".encode()

    def nvmlDeviceGetMemoryInfo(self, handle):
        if "memory" in self.broken:
            raise RuntimeError("GPU is lost")
        if isinstance(handle, str):
            return types.SimpleNamespace(used=1 * GB, total=10 * GB)
        return types.SimpleNamespace(used=(handle + 1) * GB, total=40 * GB)

    def nvmlDeviceGetUtilizationRates(self, handle):
        if isinstance(handle, str):
            raise RuntimeError("Not Supported")
        return types.SimpleNamespace(gpu=50 + 20 * handle, memory=1)


def read(monkeypatch, visible, nvml=None, order=None):
    for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_DEVICE_ORDER", order)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    return Gpus(nvml or Nvml()).read()


@pytest.mark.parametrize(
    ("visible", "count", "busy", "used"),
    [
        (None, 2, 0.6, 3),
        ("1", 1, 0.7, 2),
        ("1,0", 2, 0.6, 3),
        ("0,7,1", 1, 0.5, 1),
        ("GPU-1", 1, 0.7, 2),
        ("MIG-x", 1, None, 1),
    ],
)
def test_the_gpus_that_cuda_may_see(monkeypatch, visible, count, busy, used):
    gpu = read(monkeypatch, visible)
    assert (gpu.count, gpu.used) == (count, used * GB)
    assert gpu.busy == (None if busy is None else pytest.approx(busy))


@pytest.mark.parametrize("visible", ["", "-1", "9", "none"])
def test_no_gpu_to_be_seen(monkeypatch, visible):
    assert read(monkeypatch, visible) is None


def test_numbers_of_cuda_are_not_those_of_nvml_where_gpus_differ(monkeypatch):
    assert read(monkeypatch, "1", Nvml(("A100", "T4"))).count == 2
    assert read(monkeypatch, "1", Nvml(("A100", "T4")), "PCI_BUS_ID").used == 2 * GB


def test_everything_is_read_and_nvml_is_let_go(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    now = [10.0]
    both = Meters(lambda: now[0])
    assert nvml.begun == 0
    first = both.read()
    assert first.cpu is None
    assert first.memory > 1_000_000
    assert first.gpu.count == 2
    used = both._process.cpu_times()
    both._before = (10.0, used.user + used.system - 3.0)
    now[0] = 12.0
    assert both.read().cpu == pytest.approx(1.5, abs=0.2)
    both.close()
    assert nvml.begun == 0


def test_without_pynvml_and_with_a_gpu_that_is_lost(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Meters().read().gpu is None
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    some = Meters()
    nvml.broken = ("memory",)
    assert some.read().gpu is None
    assert nvml.begun == 0
    nvml.broken = ()
    # It isn't asked again: the driver may take seconds to say so each time.
    assert some.read().gpu is None


def test_a_process_that_cannot_be_read_is_not_known(monkeypatch):
    some = Meters()
    some._process = None
    some._gpus = None
    assert some.read() == meters.Reading()
