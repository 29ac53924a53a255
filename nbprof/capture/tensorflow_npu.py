"""Record an NPU of Ascend under TensorFlow: the profiler and the options of its adapter
(``npu_bridge`` of TF 1, ``npu_device`` of TF 2).

``npu_bridge`` has a profiler that begins and ends in sessions that run; it is used where it is
there, and TensorFlow's own is not: the NPU runs the graph. Otherwise there are options, of a
session when it is made or of the device when it is opened, and what they record is whole only when
the session or the device is closed. So it goes to a folder of its own, which the receipt names,
beside TensorFlow's profile.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.capture.place import DEFAULT, ignore_by_git
from nbprof.core import remedies
from nbprof.sources.urls import is_url

BRIDGE, DEVICE = "npu_bridge", "npu_device"
PROFILERS = ("npu_bridge.profiler.profiler", "npu_device.compat.v1.profiler.profiler")
OPTIMIZER = "NpuOptimizer"


def profiler() -> Any:
    """The class that profiles sessions, where the adapter that the cell has imported has it; else
    None.
    """
    return next(
        (
            kind
            for name in PROFILERS
            if (kind := getattr(sys.modules.get(name), "Profiler", None)) is not None
        ),
        None,
    )


def level(options: Options) -> str:
    """L1 has the tasks of the AI Cores with their counters; L2 the AI CPU and the calls of CANN's
    runtime as well.
    """
    return "L2" if options.host_level == 3 else "L1"


def choices(output: Path, options: Options) -> str:
    """``profiling_options`` of the adapter: iterations, tasks, the AI CPU, communication, and a
    group of counters.
    """
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
    """Switches the NPU's profiler on in what is made or opened while the cell runs.

    Parameters
    ----------
    options : Options
    note : callable
        Takes notes for the user.
    """

    def __init__(self, options: Options, note: Callable[..., None]) -> None:
        self._options = options
        self._note = note
        self._output: Path | None = None
        self._device = False
        self._sessions = False

    @property
    def used(self) -> bool:
        """Whether anything that the cell made or opened was told to record."""
        return self._output is not None

    def join(self, tf: Any, patches: Patches) -> None:
        """Do what the modules that are there by now allow; called again when another one is
        imported.
        """
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
        """Where the NPU's data go, made when it is first needed; None where nothing is to be kept,
        or nothing can be written.
        """
        if self._output is None:
            if not self._options.save and self._options.logdir is None:
                self._note(remedies.ADAPTER_KEEPS)
                return None
            wanted = self._options.logdir or ""
            # The NPU writes until it is closed, so its data are not copied to a URL.
            logdir = (
                Path(wanted).expanduser().absolute()
                if wanted and not is_url(wanted)
                else Path.cwd() / DEFAULT
            )
            output = logdir / "ascend" / time.strftime("%Y_%m_%d_%H_%M_%S")
            try:
                output.mkdir(parents=True, exist_ok=True)
                if not self._options.logdir:
                    ignore_by_git(logdir)
            except OSError as error:
                self._note(
                    f"the NPU is not recorded: {output} cannot be written ({error.strerror});"
                    " choose another location with --logdir DIR"
                )
                return None
            self._output = output
            if self._options.steps or self._options.seconds:
                self._note(remedies.ADAPTER_WHOLE)
        return self._output

    def _set_device(self, device: Any, patches: Patches) -> None:
        config = device.global_options().profiling_config
        if str(_value(config.enable_profiling)) in ("True", "1"):
            self._note(
                "the program itself turns on the NPU's profiler, in npu_device's options: they are"
                " left unchanged"
            )
            return
        if getattr(sys.modules.get(f"{DEVICE}.{DEVICE}"), "_npu_device_instances", None):
            self._note(remedies.NPU_OPEN)
            return
        output = self._folder()
        if output is None:
            return
        before = _value(config.profiling_options)
        config.profiling_options = choices(output, self._options)
        config.enable_profiling = True
        self._note(remedies.ADAPTER_DEVICE.format(output=output))

        def forget() -> None:
            # What is opened later is no part of the recording.
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
        """A copy of a session's configuration that profiles, where it runs on an NPU."""
        try:
            if (
                config is None
                or profiler() is not None
                or not any(each.name == OPTIMIZER for each in _optimizers(config))
            ):
                return config
            changed = type(config)()
            changed.CopyFrom(config)
            own = next(each for each in _optimizers(changed) if each.name == OPTIMIZER)
            if "profiling_mode" in own.parameter_map and own.parameter_map["profiling_mode"].b:
                self._note(
                    "the program itself turns on the NPU's profiler, in its session's"
                    " configuration: it is left unchanged"
                )
                return config
            output = self._folder()
            if output is None:
                return config
            own.parameter_map["profiling_mode"].b = True
            own.parameter_map["profiling_options"].s = choices(output, self._options).encode()
            self._note(remedies.ADAPTER_SESSION.format(output=output))
            return changed
        except Exception as error:
            # A session must not fail for this.
            self._note(f"the NPU is not recorded: {type(error).__name__}: {error}")
            return config


def _optimizers(config: Any) -> Any:
    return config.graph_options.rewrite_options.custom_optimizers


def _value(option: Any) -> Any:
    """What an option of the adapter holds, which are objects with a value in its versions of
    today.
    """
    return option.value if hasattr(option, "value") else option
