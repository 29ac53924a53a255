"""The input of the advice rules, and their output type."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from nbprof.activity.unit import Unit
from nbprof.analysis.advice.checks import (
    INPUT_HIGH,
    INPUT_MODERATE,
    NONE_PERCENT,
    PART_HIGH,
    PART_MODERATE,
    input_class,
    keeps_up,
    may_keep_up,
)
from nbprof.analysis.advice.evidence import Evidence
from nbprof.analysis.advice.programs import Work, part_in_16_bit
from nbprof.analysis.advice.tf_data import SLOW_CALL_US
from nbprof.analysis.kernels import fixed_type_percent
from nbprof.analysis.ops.torch_runtime import Runtime
from nbprof.analysis.rule import Found, Rule, Target, Threshold, severity
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import JAX, titled

# Names of the functions that Keras's fit, evaluate and predict run.
_OF_KERAS = (
    "train_function",
    "test_function",
    "predict_function",
    "one_step_on_",
    "multi_step_on_",
)


TENSOR_CORES = "Tensor Cores"
IDLE_PERCENT = 10.0
"""Idle time from which a device is said to wait for the host."""
_COMMUNICATES = re.compile(
    r"nccl|rccl|hccl|oneccl|nvshmem|all_?reduce|memcpy|memset|rocclr_(?:copy|fill)", re.IGNORECASE
)
_LONG = 300
_AMD = re.compile("AMD|Radeon|Instinct")

INPUT_SHARE = Threshold(
    "input ≥ {moderate:g} % of step time (high from {high:g} %)",
    moderate=INPUT_MODERATE,
    high=INPUT_HIGH,
)
COPIES_SHARE = Threshold(
    "≥ {moderate:g} % of step time (high from {high:g} %)", moderate=INPUT_MODERATE, high=INPUT_HIGH
)
STEP_SHARE = Threshold(
    "≥ {moderate:g} % of step time (high from {high:g} %)", moderate=PART_MODERATE, high=PART_HIGH
)
"""Thresholds shared by several rules: TensorFlow Profiler's, for input, copies, and other parts of
a step.
"""

TRACE, KERNELS, OPS = (
    Target("trace", "Trace"),
    Target("kernels", "GPU kernels"),
    Target("ops", "Ops"),
)
MEMORY, INPUT = Target("memory", "Memory"), Target("input", "Steps & input")

TORCH_COMPILE = "-model = Model().to(device)\n+model = torch.compile(Model().to(device))"
TORCH_CHANNELS_LAST = (
    " model = model.to(device)\n"
    "+model = model.to(memory_format=torch.channels_last)\n"
    "+x = x.to(memory_format=torch.channels_last)"
)
JIT_COMPILE = "-@tf.function\n+@tf.function(jit_compile=True)\n def train_step(batch):"
"""Fixes shared by several rules."""

_T = TypeVar("_T")


@dataclass
class Facts:
    """The input of the rules.

    `mean` is ms per step and `percent` the share of step time, by category.
    """

    overview: dict[str, Any]
    mean: dict[str, float]
    percent: dict[str, float]
    pipelines: pd.DataFrame
    nodes: pd.DataFrame
    kernels: pd.DataFrame
    runtime: Runtime | None = None
    evidence: Evidence = field(default_factory=Evidence)
    _cached: dict[Callable[[Facts], Any], Any] = field(default_factory=dict, repr=False)

    @cached_property
    def unit(self) -> Unit:
        """The unit of `mean` and `percent`, from which sentences take their words."""
        return Unit.of(self.overview)

    def once(self, look: Callable[[Facts], _T]) -> _T:
        """The result of a lookup that several rules share, computed once."""
        if look not in self._cached:
            self._cached[look] = look(self)
        result: _T = self._cached[look]
        return result

    @property
    def torch(self) -> bool:
        """True if PyTorch wrote the profile."""
        return self.runtime is not None

    @property
    def torch_runtime(self) -> Runtime:
        """PyTorch's runtime figures; empty for other frameworks."""
        return self.runtime if self.runtime is not None else Runtime()

    @cached_property
    def computing(self) -> tuple[pd.DataFrame, float]:
        """The compute kernels, and their total time in µs."""
        kernels = named(self.kernels, _COMMUNICATES, hit=False)
        return kernels, float(kernels["total_us"].sum()) if len(kernels) else 0.0

    @property
    def compute_ms(self) -> float:
        """Device compute per step, in ms."""
        return self.mean["device_compute"]

    @property
    def work(self) -> Work | None:
        """The ops of compiled programs, if devices computed."""
        return self.evidence.work if self.compute_ms > 0 else None

    def held_up_ms(self, time: float) -> float:
        """The part of host time while devices are idle that these can have waited for, in ms.

        Once their next work is launched, they wait for something else: an event, another stream,
        another rank.
        """
        return min(time, self._not_launched_ms)

    @cached_property
    def _not_launched_ms(self) -> float:
        return self.evidence.not_launched_ms()

    @cached_property
    def gpu_busy_percent(self) -> float | None:
        """Percent of step time in which GPUs are busy; None unless calls of the host that feeds
        them were recorded as well.
        """
        if not self.gpus or self.npu:
            return None
        if not self.percent["kernel_launch"] + self.percent["host_compute"]:
            return None
        busy: float | None = self.overview.get("device_busy_percent")
        return busy

    @property
    def device_may_be_slower(self) -> bool:
        """True if the loop may wait for its GPUs when nothing is recorded: recording slows the
        host, so that they wait for it more.
        """
        if self.gpu_busy_percent is None:
            return False
        if self.evidence.slowdown is not None:
            return keeps_up(self.gpu_busy_percent, self.evidence.slowdown)
        return may_keep_up(self.gpu_busy_percent, self.framework.slows_host)

    @property
    def programs_16_bit_percent(self) -> float | None:
        """Percent of compiled programs' time in ops that read or write numbers of 16 bits or fewer;
        None if unknown.

        Kernel names of libraries and XLA do not always state the precision.
        """
        work = self.work
        if work is None:
            return None
        return part_in_16_bit(work.ops["own"], work.ops["narrow"], work.total_ps)

    @cached_property
    def fixed_type_percent(self) -> float:
        """Percent of kernel time in hand-written kernels that take only 32-bit numbers."""
        return fixed_type_percent(self.kernels)

    @property
    def in_host_memory(self) -> bool:
        """True if most input and output is moved by the TPU program itself, from and to host
        memory.
        """
        moved = self.overview.get("host_transfer_percent") or 0.0
        return (
            moved >= INPUT_MODERATE and moved > (self.percent["input"] + self.percent["output"]) / 2
        )

    def waits_for_input(self, limit: Threshold) -> bool:
        """True if steps wait for input, other than the first, in which a pipeline starts.

        Asking for a batch that is ready takes some microseconds, most of them nbprof's own: a step
        of 0.2 ms does not wait because of that.
        """
        if 1000 * self.mean["input"] <= SLOW_CALL_US or self.percent["input"] < limit["moderate"]:
            return False
        later = self.evidence.later_input_percent
        return later is None or later >= limit["moderate"]

    def percent_of_step(self, time_ms: float) -> float:
        """Time per step in percent of step time; 0 without step time."""
        step_time_ms = self.mean["step_time"]
        return 100 * time_ms / step_time_ms if step_time_ms else 0.0

    def level(self, gain_ms: float) -> str:
        """Severity by the gain, as a share of step time: the levels are those of input."""
        return severity(100 * gain_ms / self.mean["step_time"], INPUT_MODERATE, INPUT_HIGH)

    def of_compute(self, work_ps: float) -> float:
        """Device compute in ms per step that the part `own` (ps over all runs) of the compiled
        programs' work stands for.
        """
        work = self.evidence.work
        return (
            self.compute_ms * work_ps / work.total_ps if work is not None and work.total_ps else 0.0
        )

    @property
    def eager_percent(self) -> float:
        """Percent of op time that ran eagerly, on the host or the device, whichever is larger.

        A function compiled by XLA (`jit_compile=True`) is called as a single eager op that holds
        all its time: that is not eager execution.
        """
        host, top = self.overview["eager_host_percent"] or 0.0, self.overview.get("top_ops")
        if top is not None and len(top) and self.overview.get("top_ops_where") == "host":
            compiled_by_xla = top["type"].astype(str).str.startswith("__inference_")
            host -= float(top["percent"][compiled_by_xla].sum())
        return max(host, self.overview["eager_device_percent"] or 0.0)

    @cached_property
    def framework(self) -> Framework:
        """The framework that wrote the profile."""
        return titled(str(self.overview.get("framework") or ""))

    @property
    def jax(self) -> bool:
        """True if JAX wrote the profile."""
        return self.framework is JAX

    @property
    def keras(self) -> bool:
        """True if Keras runs the steps: one of its functions ran, or no function was recorded."""
        if self.jax:
            return False
        functions = self.overview["tf_functions"]["function"].astype(str)
        return not len(functions) or bool(functions.str.startswith(_OF_KERAS).any())

    @property
    def _devices(self) -> list[dict[str, Any]]:
        devices: list[dict[str, Any]] = (self.overview.get("environment") or {}).get("devices", [])
        return devices

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The devices of the environment that are GPUs."""
        return [device for device in self._devices if device["kind"] == "GPU"]

    @property
    def other_devices(self) -> bool:
        """True if the devices are none of GPU, TPU and NPU: what holds for those need not hold
        there.
        """
        kinds = {device["kind"] for device in self._devices}
        return bool(kinds) and not kinds & {"GPU", "TPU", "NPU"}

    @property
    def _capability(self) -> tuple[int, int] | None:
        """The lowest compute capability of the NVIDIA GPUs; None if unknown."""
        capabilities = []
        for gpu in self.gpus:
            if not gpu["architecture"] or not gpu["compute_capability"]:
                continue
            major, _, minor = str(gpu["compute_capability"]).partition(".")
            if major.isdigit() and minor.isdigit():
                capabilities.append((int(major), int(minor)))
        return min(capabilities, default=None)

    @property
    def tpu(self) -> bool:
        """True if the devices are TPUs."""
        return any(device["kind"] == "TPU" for device in self._devices)

    @property
    def npu(self) -> bool:
        """True if the devices are Ascend NPUs."""
        return any(device["kind"] == "NPU" for device in self._devices)

    @property
    def before_ampere(self) -> bool:
        """True if a GPU supports neither bfloat16 nor TF32."""
        capability = self._capability if self.runtime is None else self.runtime.capability
        return capability is not None and capability < (8, 0)

    @property
    def only_16_bit_cores(self) -> bool:
        """True if the matrix units take only 16-bit inputs: NVIDIA before Ampere."""
        capability = self._capability
        if self.runtime is not None and not self.runtime.amd:
            capability = self.runtime.capability
        return capability is not None and capability < (8, 0)

    @property
    def matrix_units(self) -> str:
        """The vendor's name of the units for products of matrices.

        '' if the devices have none (GPUs of NVIDIA before Volta), or if that is unknown.
        """
        if self.other_devices:
            return ""
        if self.runtime is None:
            capability = self._capability
            amd = any(_AMD.search(str(gpu["name"])) for gpu in self.gpus)
        else:
            capability, amd = self.runtime.capability, self.runtime.amd
        if capability is not None and capability < (7, 0):
            return ""
        if amd:
            return "matrix cores"
        # Old files of PyTorch do not name the GPU: it has such units if a kernel uses them.
        unnamed = capability is None and self._capability is None and self.gpus
        if self.runtime is not None and unnamed and not self._uses_tensor_cores:
            return ""
        return "its matrix units" if self.tpu else TENSOR_CORES

    @property
    def _uses_tensor_cores(self) -> bool:
        if not len(self.kernels):
            return False
        return bool(self.kernels["uses_tensor_core"].fillna(False).any())

    @property
    def maybe_input(self) -> bool:
        """True if unexplained time may be a wait for input, because none was recorded.

        Copies to devices do not count as a wait for a batch.
        """
        if self.mean["input"] > (self.evidence.copied_ms or 0.0):
            return False
        return input_class(self.percent["input"], self.unexplained_percent)[1] == "potential"

    @property
    def unexplained_percent(self) -> float:
        """Share of step time without any event: `other` without waits of the host for a device, and
        without the profiler's own work.
        """
        explained = self.evidence.waiting_percent + self.evidence.overhead_percent
        return max(0.0, self.percent["other"] - explained)


def named(kernels: pd.DataFrame, pattern: re.Pattern[str], *, hit: bool = True) -> pd.DataFrame:
    """The kernels whose names match, or do not. Each distinct name is tested once; of long ones
    only the start, as arguments follow.
    """
    if not len(kernels):
        return kernels
    names = kernels["kernel"].tolist()
    hits = {name: bool(pattern.search(str(name)[:_LONG])) == hit for name in set(names)}
    result: pd.DataFrame = kernels[np.array([hits[name] for name in names], np.bool_)]
    return result


def longest_kernel(kernels: pd.DataFrame) -> pd.Series:
    """The row of the kernel with the most time."""
    return kernels.iloc[int(kernels["total_us"].to_numpy().argmax())]


def only(percent: float) -> str:
    """A small share at the start of a sentence, in bold: "Only **7%**", "Less than **1%**",
    "**None**".
    """
    if percent < NONE_PERCENT:
        return "**None**"
    return "Less than **1%**" if percent < 1.0 else f"Only **{percent:.0f}%**"


def several(count: float, noun: str) -> str:
    """A count with its noun, marked: "**1** kernel", "**1,200** kernels"."""
    number = f"{count:,.0f}"
    return f"**{number}** {noun if number == '1' else f'{noun}s'}"


def short(op: object) -> str:
    """The last parts of an op's name."""
    return "/".join(str(op).split("/")[-3:]).replace("*", "")


def compiled(facts: Facts) -> bool:
    """True if a compiler made the kernels of a program: torch.compile, or XLA under TensorFlow.

    JAX always compiles, so its programs do not count.
    """
    used = facts.evidence.in_use
    if facts.torch:
        return used.compiled
    return not facts.jax and (used.xla or facts.evidence.work is not None)


AdviceRule: TypeAlias = Rule[Facts, Found]
"""A rule of `p.advice`."""
