"""A rule: what it checks, from which numbers on it speaks, where both come from, and which place of the dashboard shows it.

The rules of `p.advice` (`nbprof.analysis.advice`) and those of Ascend's own tools (`nbprof.analysis.ascend`) are all made of `Rule`; what
differs is the facts that their checks are given. docs/advice.md is made of them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import Generic, NamedTuple, TypeVar

TENSORFLOW, JAX, TENSORFLOW_JAX, PYTORCH, XLA, TPU, NPU, ALL = "TensorFlow", "JAX", "TensorFlow, JAX", "PyTorch", "XLA", "TPU", "NPU", "all"
"""Where a rule applies."""

XPROF = "TensorFlow Profiler (XProf 2.24)"
TPU_GUIDE_CHOICE = "Cloud TPU performance guide; threshold of nbprof"
GPU_GUIDE = "TensorFlow GPU performance guide"
GPU_GUIDE_CHOICE = f"{GPU_GUIDE}; threshold of nbprof"
TORCH_TB = "torch_tb_profiler"
MSPROF, MSPROF_ANALYZE, MSADVISOR = "msprof", "msprof-analyze", "msadvisor"
TORCH_GUIDE = "PyTorch performance tuning guide; threshold of nbprof"
OURS = "nbprof"

FactsT = TypeVar("FactsT")
FoundT = TypeVar("FoundT")


class Target(NamedTuple):
    """The tab that shows what a rule found, and what the link to it is called."""

    view: str
    link: str


class _Sentence(Formatter):
    """`str.format` with `{part:percent}` for a part of 1 in percent."""

    def format_field(self, value: float, format_spec: str) -> str:
        return f"{100 * value:g} %" if format_spec == "percent" else str(format(value, format_spec))


class Threshold:
    """The numbers that a check compares with, and the sentence that states them.

    Parameters
    ----------
    text : str
        The sentence, with a field for each number: "≥ {moderate:g} % of step time".
    **numbers : float
        By the names that the check knows them by.
    """

    def __init__(self, text: str, **numbers: float) -> None:
        self.text = text
        self.numbers = numbers

    def __getitem__(self, name: str) -> float:
        return self.numbers[name]

    def __str__(self) -> str:
        return _Sentence().format(self.text, **self.numbers)

    def severity(self, value: float) -> str:
        """`high`, `medium` or `low`, by its numbers `moderate` and `high`."""
        return severity(value, self["moderate"], self["high"])


ANY = Threshold("any")
"""Of a rule that speaks as soon as it finds one."""


def severity(value: float, moderate: float, high: float) -> str:
    """`high`, `medium` or `low`."""
    return "high" if value >= high else "medium" if value >= moderate else "low"


class Finding(NamedTuple):
    """One row of `p.advice`, which `Rule.finding` makes.

    `fix` holds diff lines that begin with `-`, `+` or a blank; `evidence` marks **bold** parts.
    """

    rule: str
    severity: str
    title: str
    evidence: str
    gain_ms_per_step: float
    fix: str
    view: str
    link: str


@dataclass(frozen=True)
class Found:
    """What a check found: the numbers of this profile that prove it.

    Attributes
    ----------
    evidence : str
    severity : str
        `high`, `medium` or `low`.
    gain_ms : float
        What a step would save if the cost went away entirely; NaN where that cannot be stated.
    fix, title : str
        Where they depend on what was found; else the rule has them.
    target : Target, optional
    """

    evidence: str
    severity: str = "medium"
    gain_ms: float = float("nan")
    fix: str = ""
    title: str = ""
    target: Target | None = None


@dataclass(frozen=True)
class Rule(Generic[FactsT, FoundT]):
    """One rule.

    Attributes
    ----------
    name : str
        Its name in `p.advice` or `p.ascend.rules`.
    check : callable
        Gets the facts and the threshold. None where it has nothing to say: the cost is not there, or a number that it needs was not
        recorded.
    threshold : Threshold
    source : str
        Where the check and its threshold come from.
    target : Target
        The place that shows what it found.
    applies : str
        The framework or device that it is about.
    looks_at : str
        What is checked, in a few words.
    title, fix : str
        What to do, as a heading and as lines of a diff or a sentence, where that is the same each time.
    on_npu : bool
        Of a rule about PyTorch: whether it holds on an NPU, too. The others are about CUDA graphs, Tensor Cores and the like.
    advises : bool
        Of Ascend's: whether it says what to change. The others say where to look, and are not in `p.advice`.
    about, unit : str
        Of Ascend's: the group that it is shown in, and the unit of its number `limit`.
    needs : tuple of str
        Of Ascend's: fields of the facts without which nothing is known.
    lacks : str
        Of Ascend's: the sentence then.
    """

    name: str
    check: Callable[[FactsT, Threshold], FoundT | None]
    threshold: Threshold
    source: str
    target: Target
    applies: str
    looks_at: str
    title: str = ""
    fix: str = ""
    on_npu: bool = False
    advises: bool = True
    about: str = ""
    unit: str = ""
    needs: tuple[str, ...] = ()
    lacks: str = ""

    def ask(self, facts: FactsT) -> FoundT | None:
        """What its check finds in some facts."""
        return self.check(facts, self.threshold)

    def finding(self, found: Found) -> Finding:
        """The row of `p.advice` for what was found."""
        view, link = found.target or self.target
        return Finding(
            self.name, found.severity, found.title or self.title, found.evidence, found.gain_ms, found.fix or self.fix, view, link
        )
