"""What the rules of advice look at, and what they give."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from nbprof.analysis.advice.checks import INPUT_HIGH, INPUT_MODERATE, NONE_PERCENT, PART_HIGH, PART_MODERATE, input_class
from nbprof.analysis.advice.evidence import Evidence
from nbprof.analysis.advice.programs import Work, part_in_16_bit
from nbprof.analysis.ops.torch_runtime import Runtime
from nbprof.analysis.rule import Found, Rule, Target, Threshold, severity

# What Keras calls the functions of its fit, evaluate and predict.
_OF_KERAS = ("train_function", "test_function", "predict_function", "one_step_on_", "multi_step_on_")


TENSOR_CORES = "TensorCores"
IDLE_PERCENT = 10.0
"""From where on a device that waits for the host is said to run dry."""
_COMMUNICATES = re.compile(r"nccl|rccl|hccl|oneccl|nvshmem|all_?reduce|memcpy|memset|rocclr_(?:copy|fill)", re.IGNORECASE)
_LONG = 300
_AMD = re.compile("AMD|Radeon|Instinct")

INPUT_SHARE = Threshold("input ≥ {moderate:g} % of step time (high from {high:g} %)", moderate=INPUT_MODERATE, high=INPUT_HIGH)
COPIES_SHARE = Threshold("≥ {moderate:g} % of step time (high from {high:g} %)", moderate=INPUT_MODERATE, high=INPUT_HIGH)
STEP_SHARE = Threshold("≥ {moderate:g} % of step time (high from {high:g} %)", moderate=PART_MODERATE, high=PART_HIGH)
"""Thresholds that several rules have: those of TensorFlow Profiler for input, copies, and other parts of a step."""

TRACE, KERNELS, OPS = Target("trace", "Trace"), Target("kernels", "GPU kernels"), Target("ops", "Ops")
MEMORY, INPUT = Target("memory", "Memory"), Target("input", "Steps & input")

_T = TypeVar("_T")


@dataclass
class Facts:
    """What the rules look at; `mean` is ms a step and `percent` the part of the step, by category."""

    overview: dict[str, Any]
    mean: dict[str, float]
    percent: dict[str, float]
    pipelines: pd.DataFrame
    nodes: pd.DataFrame
    kernels: pd.DataFrame
    runtime: Runtime | None = None
    evidence: Evidence = field(default_factory=Evidence)
    _known: dict[Callable[[Facts], Any], Any] = field(default_factory=dict, repr=False)

    def once(self, look: Callable[[Facts], _T]) -> _T:
        """What several rules look for, looked for once."""
        if look not in self._known:
            self._known[look] = look(self)
        found: _T = self._known[look]
        return found

    @property
    def torch(self) -> bool:
        """Whether PyTorch wrote the profile."""
        return self.runtime is not None

    @property
    def torch_runtime(self) -> Runtime:
        """What PyTorch's runtime did; nothing of another framework."""
        return self.runtime if self.runtime is not None else Runtime()

    @cached_property
    def computing(self) -> tuple[pd.DataFrame, float]:
        """The kernels that compute, and their time in µs."""
        mine = named(self.kernels, _COMMUNICATES, hit=False)
        return mine, float(mine["total_us"].sum()) if len(mine) else 0.0

    @property
    def compute_ms(self) -> float:
        """What a step computes on devices, ms."""
        return self.mean["device_compute"]

    @property
    def work(self) -> Work | None:
        """The ops of compiled programs, where devices computed."""
        return self.evidence.work if self.compute_ms > 0 else None

    @property
    def programs_16_bit_percent(self) -> float | None:
        """Percent of the time of compiled programs in ops that read or make numbers of 16 bits or fewer; None where they do not tell.

        The names of kernels that libraries and XLA make say nothing of the width of their numbers.
        """
        work = self.work
        return None if work is None else part_in_16_bit(work.ops["own"], work.ops["narrow"], work.own)

    @property
    def in_host_memory(self) -> bool:
        """Whether most input and output is what the program on a TPU itself moves from and to the memory of the host."""
        moved = self.overview.get("host_transfer_percent") or 0.0
        return moved >= INPUT_MODERATE and moved > (self.percent["input"] + self.percent["output"]) / 2

    def level(self, gain_ms: float) -> str:
        """Severity by what a step would save: of the step as much as input has to take."""
        return severity(100 * gain_ms / self.mean["step_time"], INPUT_MODERATE, INPUT_HIGH)

    def of_compute(self, own: float) -> float:
        """Ms a step of the device's compute that are the part `own` (ps of all runs) of the compiled programs' work."""
        work = self.evidence.work
        return self.compute_ms * own / work.own if work is not None and work.own else 0.0

    @property
    def eager_percent(self) -> float:
        """Percent of op time that ran op by op, on the host or the device, whichever is more.

        A function that XLA compiled (`jit_compile=True`) is called as one eager op, in which its whole time goes: no op by op.
        """
        host, top = self.overview["eager_host_percent"] or 0.0, self.overview.get("top_ops")
        if top is not None and len(top) and self.overview.get("top_ops_where") == "host":
            host -= float(top["percent"][top["type"].astype(str).str.startswith("__inference_")].sum())
        return max(host, self.overview["eager_device_percent"] or 0.0)

    @property
    def jax(self) -> bool:
        """Whether JAX wrote the profile."""
        return "JAX" in str(self.overview["framework"])

    @property
    def keras(self) -> bool:
        """Whether the steps are those of Keras: one of its functions ran. Without any function the loop is taken for Keras's too."""
        functions = self.overview["tf_functions"]["function"].astype(str)
        return not self.jax and (not len(functions) or bool(functions.str.startswith(_OF_KERAS).any()))

    @property
    def _gpus(self) -> list[dict[str, Any]]:
        return [d for d in (self.overview.get("environment") or {}).get("devices", []) if d["kind"] == "GPU"]

    @property
    def _capability(self) -> tuple[int, int] | None:
        """The least compute capability of the GPUs of NVIDIA; None where it is not known."""
        stated = [str(d["compute_capability"]) for d in self._gpus if d["architecture"] and d["compute_capability"]]
        known = [(int(major), int(minor)) for major, _, minor in (s.partition(".") for s in stated) if major.isdigit() and minor.isdigit()]
        return min(known, default=None)

    @property
    def tpu(self) -> bool:
        """Whether the devices are TPUs."""
        return any(d["kind"] == "TPU" for d in (self.overview.get("environment") or {}).get("devices", []))

    @property
    def npu(self) -> bool:
        """Whether the devices are NPUs of Ascend."""
        return any(d["kind"] == "NPU" for d in (self.overview.get("environment") or {}).get("devices", []))

    @property
    def before_ampere(self) -> bool:
        """Whether a GPU knows neither bfloat16 nor TF32."""
        capability = self._capability if self.runtime is None else self.runtime.capability
        return capability is not None and capability < (8, 0)

    @property
    def only_16_bit_cores(self) -> bool:
        """Whether the units for products of matrices take no numbers of 32 bits: those of NVIDIA before Ampere."""
        capability = self.runtime.capability if self.runtime is not None and not self.runtime.amd else self._capability
        return capability is not None and capability < (8, 0)

    @property
    def matrix_units(self) -> str:
        """What the devices call their units for products of matrices; '' where they have none (GPUs of NVIDIA before Volta)."""
        capability = self._capability if self.runtime is None else self.runtime.capability
        if capability is not None and capability < (7, 0):
            return ""
        amd = any(_AMD.search(str(d["name"])) for d in self._gpus) if self.runtime is None else self.runtime.amd
        return "matrix cores" if amd else "its matrix units" if self.tpu else TENSOR_CORES

    @property
    def maybe_input(self) -> bool:
        """Whether little input was recorded, but time that nothing explains may be input."""
        return input_class(self.percent["input"], self.percent["other"])[1] == "potential"


def named(kernels: pd.DataFrame, pattern: re.Pattern[str], *, hit: bool = True) -> pd.DataFrame:
    """The kernels whose names match, or do not. Each different name is looked at once, and of long ones the begin: arguments follow it."""
    if not len(kernels):
        return kernels
    code, names = pd.factorize(kernels["kernel"].astype(object))
    hits = np.array([bool(pattern.search(str(name)[:_LONG])) == hit for name in names], np.bool_)
    found: pd.DataFrame = kernels[hits[code]]
    return found


def only(percent: float) -> str:
    """A small part at the begin of a sentence, marked: "Only **7%**", "Less than **1%**", "**None**"."""
    if percent < NONE_PERCENT:
        return "**None**"
    return "Less than **1%**" if percent < 1.0 else f"Only **{percent:.0f}%**"


def short(op: object) -> str:
    """The last parts of an op's name."""
    return "/".join(str(op).split("/")[-3:]).replace("*", "")


AdviceRule: TypeAlias = Rule[Facts, Found]
"""A rule of `p.advice`."""
