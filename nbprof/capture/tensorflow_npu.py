"""Record an NPU of Ascend under TensorFlow by its adapter (``npu_bridge`` or ``npu_device``).

``npu_bridge``, of TF 1, has a profiler that begins and ends while sessions run; it is used in place
of TensorFlow's own if it is available, since the NPU runs the graph. ``npu_device``, of TF 2, has
options only, of a session when it is created or of the device when it is opened; the recording is
complete once the session or the device is closed. So it goes to a separate folder, which the
receipt names.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from nbprof.capture import notes
from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.capture.place import DEFAULT, ignore_by_git
from nbprof.core import remedies
from nbprof.core.receipt import Note, info
from nbprof.sources.urls import is_url

BRIDGE, DEVICE = "npu_bridge", "npu_device"
PROFILERS = ("npu_bridge.profiler.profiler", "npu_device.compat.v1.profiler.profiler")
OPTIMIZER = "NpuOptimizer"


def profiler() -> Any:
    """The class that profiles sessions, if an imported adapter has one; else None."""
    for name in PROFILERS:
        kind = getattr(sys.modules.get(name), "Profiler", None)
        if kind is not None:
            return kind
    return None


def level(options: Options) -> str:
    """The profiling level.

    L1 has tasks of the AI Cores with their counters, L2 also the AI CPU and calls of CANN's
    runtime.
    """
    return "L2" if options.host_level == 3 else "L1"


def choices(output: Path, options: Options) -> str:
    """``profiling_options`` of the adapter, as JSON."""
    chosen = {
        "output": str(output),
        "training_trace": "on",
        "task_trace": "on",
        "aicpu": "on",
        # Off unless it is asked for: communication between devices.
        "hccl": "on",
        "fp_point": options.fp_point or "",
        "bp_point": options.bp_point or "",
        "aic_metrics": options.aic_metrics,
    }
    if options.host_level == 3:
        chosen["runtime_api"] = "on"
    return json.dumps(chosen)


class AdapterOptions:
    """Turns on the NPU's profiler in sessions and devices that are opened while the cell runs.

    Parameters
    ----------
    options : Options
    note : callable
        Called with notes for the user.
    """

    def __init__(self, options: Options, note: Callable[[Note], None]) -> None:
        self._options = options
        self._note = note
        self._output: Path | None = None
        self._device = False
        self._sessions = False

    @property
    def used(self) -> bool:
        """True if a session or device was opened with the profiler on."""
        return self._output is not None

    def join(self, tf: Any, patches: Patches) -> None:
        """Hook the modules that are imported by now; called again when another one is."""
        device = sys.modules.get(DEVICE)
        if profiler() is not None:
            # It may not be used together with the options.
            return
        if not self._device and device is not None and hasattr(device, "global_options"):
            self._device = True
            self._set_device(device, patches)
        if not self._sessions and BRIDGE in sys.modules:
            self._sessions = True
            self._hook_sessions(tf, patches)

    def _folder(self) -> Path | None:
        """The folder of the NPU's data, created on first use; None if nothing can be written."""
        if self._output is not None:
            return self._output
        options = self._options
        if not options.save and options.logdir is None:
            self._note(info(notes.NPU_NOT_RECORDED, remedies.ADAPTER_KEEPS))
            return None
        logdir = Path.cwd() / DEFAULT
        # The NPU writes until it is closed, so its data are not copied to a URL.
        if options.logdir and not is_url(options.logdir):
            logdir = Path(options.logdir).expanduser().absolute()
        output = logdir / "ascend" / time.strftime("%Y_%m_%d_%H_%M_%S")
        try:
            output.mkdir(parents=True, exist_ok=True)
            if not options.logdir:
                ignore_by_git(logdir)
        except OSError as error:
            reason = f"{output} cannot be written ({error.strerror})"
            self._note(
                notes.npu_not_recorded(f"{reason}; choose another location with --logdir DIR")
            )
            return None
        self._output = output
        if options.window or options.seconds:
            self._note(info(notes.WITHOUT_EFFECT, remedies.ADAPTER_WHOLE))
        return output

    def _set_device(self, device: Any, patches: Patches) -> None:
        config = device.global_options().profiling_config
        if str(_value(config.enable_profiling)) in ("True", "1"):
            self._note(notes.own_npu_profiler("npu_device's options", "they are left unchanged"))
            return
        if getattr(sys.modules.get(f"{DEVICE}.{DEVICE}"), "_npu_device_instances", None):
            self._note(info(notes.NPU_NOT_RECORDED, remedies.NPU_OPEN))
            return
        output = self._folder()
        if output is None:
            return
        before = _value(config.profiling_options)
        config.profiling_options = choices(output, self._options)
        config.enable_profiling = True
        self._note(notes.npu_recorded_separately(remedies.ADAPTER_DEVICE, output))

        def forget() -> None:
            # Devices that are opened later are not recorded.
            config.enable_profiling = False
            config.profiling_options = before

        patches.on_restore(forget)

    def _hook_sessions(self, tf: Any, patches: Patches) -> None:
        for name in ("Session", "InteractiveSession"):
            kind = getattr(tf.compat.v1, name, None)
            if kind is None or "__init__" not in vars(kind):
                continue
            original = kind.__init__

            @wraps(original)
            def init(
                session: Any,
                target: str = "",
                graph: Any = None,
                config: Any = None,
                _original: Any = original,
            ) -> None:
                __tracebackhide__ = True
                _original(session, target, graph, self._with_profiler(config))

            patches.replace(kind, "__init__", init)

    def _with_profiler(self, config: Any) -> Any:
        """A copy of a session's configuration that profiles, if it runs on an NPU."""
        try:
            if config is None or profiler() is not None or _npu_options(config) is None:
                return config
            changed = type(config)()
            changed.CopyFrom(config)
            parameters = _npu_options(changed).parameter_map
            if "profiling_mode" in parameters and parameters["profiling_mode"].b:
                self._note(
                    notes.own_npu_profiler("its session's configuration", "it is left unchanged")
                )
                return config
            output = self._folder()
            if output is None:
                return config
            parameters["profiling_mode"].b = True
            parameters["profiling_options"].s = choices(output, self._options).encode()
            self._note(notes.npu_recorded_separately(remedies.ADAPTER_SESSION, output))
            return changed
        except Exception as error:
            # The session must work in any case.
            self._note(notes.npu_not_recorded(notes.cause(error)))
            return config


def _npu_options(config: Any) -> Any:
    """The options of the NPU in a session's configuration; None if it runs elsewhere."""
    for optimizer in config.graph_options.rewrite_options.custom_optimizers:
        if optimizer.name == OPTIMIZER:
            return optimizer
    return None


def _value(option: Any) -> Any:
    """The value of an option of the adapter, which is an object in current versions."""
    return option.value if hasattr(option, "value") else option
