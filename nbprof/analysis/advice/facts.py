"""What the rules of advice look at, and what they give."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.analysis.advice.checks import INPUT_HIGH, INPUT_MODERATE, NONE_PERCENT, PART_HIGH, PART_MODERATE, input_class
from nbprof.analysis.advice.evidence import Evidence
from nbprof.analysis.ops.torch_runtime import Runtime

__all__ = [
    "INPUT_HIGH",
    "INPUT_MODERATE",
    "PART_HIGH",
    "PART_MODERATE",
    "TENSOR_CORES",
    "Facts",
    "Finding",
    "named",
    "only",
    "part",
    "severity",
    "unused_tensor_cores",
]

# What Keras calls the functions of its fit, evaluate and predict.
_OF_KERAS = ("train_function", "test_function", "predict_function", "one_step_on_", "multi_step_on_")


TENSOR_CORES = "TensorCores"
_COMMUNICATES = re.compile(r"nccl|rccl|hccl|oneccl|nvshmem|all_?reduce|memcpy|memset", re.IGNORECASE)
_LONG = 300
_AMD = re.compile("AMD|Radeon|Instinct")
# Kernels that compute no product of matrices, though the op that they belong to is one: they prepare what it reads, or move what it made.
_NO_PRODUCT = re.compile(
    r"transpose(?!Params)|nchwToNhwc|nhwcToNchw|tensorTransform|SwapDimension|im2col|col2im|^(?:loop|input|wrapped)_|memcpy|memset",
    re.IGNORECASE,
)


class Finding(NamedTuple):
    """One row of `p.advice`. `fix` holds diff lines that begin with `-`, `+` or a blank; `evidence` marks **bold** parts."""

    rule: str
    severity: str
    title: str
    evidence: str
    gain_ms_per_step: float
    fix: str
    view: str
    link: str


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

    @property
    def torch(self) -> bool:
        """Whether PyTorch wrote the profile."""
        return self.runtime is not None

    @cached_property
    def computing(self) -> tuple[pd.DataFrame, float]:
        """The kernels that compute, and their time in µs."""
        mine = named(self.kernels, _COMMUNICATES, hit=False)
        return mine, float(mine["total_us"].sum()) if len(mine) else 0.0

    @property
    def compute_ms(self) -> float:
        """What a step computes on devices, ms."""
        return self.mean["device_compute"]

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
        """Whether a GPU of NVIDIA knows neither bfloat16 nor TF32."""
        return self._capability is not None and self._capability < (8, 0)

    @property
    def only_16_bit_cores(self) -> bool:
        """Whether the units for products of matrices take no numbers of 32 bits: those of NVIDIA before Ampere."""
        capability = self.runtime.capability if self.runtime is not None and not self.runtime.amd else self._capability
        return capability is not None and capability < (8, 0)

    @property
    def matrix_units(self) -> str:
        """What the devices call their units for products of matrices; '' where they have none (GPUs of NVIDIA before Volta)."""
        if self._capability is not None and self._capability < (7, 0):
            return ""
        amd = any(_AMD.search(str(d["name"])) for d in self._gpus)
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


def severity(value: float, moderate: float, high: float) -> str:
    """`high`, `medium` or `low`."""
    return "high" if value >= high else "medium" if value >= moderate else "low"


def only(percent: float) -> str:
    """A small part at the begin of a sentence, marked: "Only **7%**", "Less than **1%**", "**None**"."""
    if percent < NONE_PERCENT:
        return "**None**"
    return "Less than **1%**" if percent < 1.0 else f"Only **{percent:.0f}%**"


def unused_tensor_cores(facts: Facts) -> tuple[float, pd.Series] | None:
    """Percent of kernel time in kernels whose op could use TensorCores and does not, and the largest of them; None below 10 %."""
    kernels = facts.kernels
    whole = float(kernels["total_us"].sum()) if len(kernels) else 0.0
    if not whole:
        return None
    # Where the name does not tell whether a kernel uses them, nothing is missed for certain.
    eligible, used = kernels["op_tensor_core_eligible"].astype(bool), kernels["uses_tensor_core"].fillna(True).astype(bool)
    unused = kernels[eligible & ~used]
    unused = unused[~unused["kernel"].astype(str).str.contains(_NO_PRODUCT)]
    share = 100 * float(unused["total_us"].sum()) / whole
    return (share, unused.iloc[0]) if share >= 10.0 else None


def part(
    rule: str, category: str, title: str, what: str, fix: str = "", bounds: tuple[float, float] = (PART_MODERATE, PART_HIGH)
) -> Callable[[Facts], list[Finding]]:
    """A rule that fires where one category of the step is large."""

    def check(facts: Facts) -> list[Finding]:
        share, time = facts.percent[category], facts.mean[category]
        if share < bounds[0]:
            return []
        text = f"**{share:.0f}%** of a step (**{time:.2f} ms**) is {what}."
        return [Finding(rule, severity(share, *bounds), title, text, time, fix, "trace", "Trace")]

    return check
