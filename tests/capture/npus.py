"""What drives an NPU of Ascend, as far as a recording uses it: stand-ins of torch_npu, npu_bridge
and npu_device, which write its files.

They follow the published interfaces: methods of torch_npu's profiler print what goes wrong and
raise nothing, analyse in processes that they fork, and mark no steps where no schedule is given;
the options of npu_device are read when it is opened.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
import types
from decimal import Decimal
from pathlib import Path

from tests.support import msprof


class Profile:
    """torch_npu.profiler.profile."""

    made: list = []  # noqa: RUF012
    refuses = ""
    analyses = True

    def __init__(self, *, on_trace_ready=None, schedule=None, **given):
        self.given, self.ready, self.folder, self.thread = given, on_trace_ready, None, 0
        self.stopped, self.current_action = True, types.SimpleNamespace(name="RECORD")
        Profile.made.append(self)

    def start(self):
        print("2026-11-21 10:00:00 [INFO] [77] profiler.py: Start profiling.")
        self.stopped = False
        if self.refuses:
            print(f"2026-11-21 10:00:00 [ERROR] [77] profiler.py: {self.refuses}")
            return
        folder, worker = self.ready.where
        self.origin, self.thread = Decimal(time.time_ns()) / 1000, threading.get_ident()
        self.folder = Path(folder) / f"{worker}_{20260102030405678 + len(Profile.made)}_ascend_pt"
        (self.folder / "PROF_000001_20260102030405678_ABC" / "device_0").mkdir(parents=True)

    def stop(self):
        self.stopped = True
        if self.folder is None or self.thread != threading.get_ident():
            return
        multiprocessing.set_start_method("fork", force=True)
        print("2026-11-21 10:00:01 [WARNING] [77] profiler.py: Some data is lost.")
        if self.analyses:
            msprof.torch_npu(self.folder, msprof.training(4)[0], steps=0, origin=self.origin)


def torch_npu(*, available=True, in_use=True):
    Profile.made, Profile.refuses, Profile.analyses = [], "", True
    module = types.ModuleType("torch_npu")
    module.__version__ = "2.7.1"
    module.npu = types.SimpleNamespace(
        is_available=lambda: available, is_initialized=lambda: in_use
    )

    def handler(folder, worker=None):
        def ready(_):
            pass

        ready.where = (folder, worker)
        return ready

    class Config:
        def __init__(self, profiler_level=0, aic_metrics="none", export_type="text"):
            self.level, self.metrics, self.export = profiler_level, aic_metrics, export_type

    module.profiler = types.SimpleNamespace(
        profile=Profile,
        ProfilerActivity=types.SimpleNamespace(CPU="CPU", NPU="NPU"),
        ProfilerLevel=types.SimpleNamespace(Level0=0, Level1=1, Level2=2),
        AiCMetrics=types.SimpleNamespace(PipeUtilization="pipes", L2Cache="cache"),
        ExportType=types.SimpleNamespace(Text="text"),
        tensorboard_trace_handler=handler,
        _ExperimentalConfig=Config,
    )
    return module


class Sessions:
    """npu_bridge.profiler.profiler.Profiler."""

    made: list = []  # noqa: RUF012
    exported = True

    def __init__(self, *, level="L0", aic_metrics="", output_path=""):
        self.level, self.metrics, self.output = level, aic_metrics, Path(output_path)
        Sessions.made.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        folder = self.output / "PROF_000001_20260102030405678_ABC"
        if self.exported:
            msprof.prof(folder, *msprof.training(4))
        else:
            (folder / "device_0" / "data").mkdir(parents=True)


class Option:
    """An option of npu_device, whose value is a text."""

    def __init__(self, held):
        self.held = held

    @property
    def value(self):
        return {True: "1", False: "0"}.get(self.held, self.held)


class ProfilingConfig:
    def __init__(self):
        self.__dict__.update(enable_profiling=Option(False), profiling_options=Option(None))

    def __setattr__(self, name, value):
        self.__dict__[name].held = value


def npu_device():
    """The package and the module in it that knows which devices are open."""
    package, inner = types.ModuleType("npu_device"), types.ModuleType("npu_device.npu_device")
    options = types.SimpleNamespace(profiling_config=ProfilingConfig())
    inner._npu_device_instances = {}
    package.global_options = lambda: options
    return package, inner
