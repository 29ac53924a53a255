"""A rule: what it checks, its threshold, the source of both, and where the dashboard shows it.

The rules of `p.advice` (`nbprof.analysis.advice`) and those of Ascend's own tools
(`nbprof.analysis.ascend`) are all `Rule`s; what differs is the facts passed to their checks.
docs/advice.md is generated from them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import Generic, NamedTuple, TypeVar

from nbprof.activity.unit import MARKED, Unit

TENSORFLOW, JAX, TENSORFLOW_JAX, PYTORCH, XLA, TPU, NPU, ALL = (
    "TensorFlow",
    "JAX",
    "TensorFlow, JAX",
    "PyTorch",
    "XLA",
    "TPU",
    "NPU",
    "all",
)
"""Where a rule applies."""

XPROF = "TensorFlow Profiler (XProf 2.24)"
TPU_GUIDE_CHOICE = "Cloud TPU performance guide; nbprof's threshold"
GPU_GUIDE = "TensorFlow GPU performance guide"
GPU_GUIDE_CHOICE = f"{GPU_GUIDE}; nbprof's threshold"
TORCH_TB = "torch_tb_profiler"
MSPROF, MSPROF_ANALYZE, MSADVISOR = "msprof", "msprof-analyze", "msadvisor"
TORCH_GUIDE = "PyTorch performance tuning guide; nbprof's threshold"
OURS = "nbprof"

MEASURED, ESTIMATED, INFERRED = "measured", "estimated", "inferred"
"""How sure a finding is: its cost is the time of recorded events; it follows from names, shapes or
peaks; or its cause was not recorded.
"""

UP_TO, ABOUT, AT_LEAST = "up to", "about", "at least"
"""The kind of a gain: a bound, as the change saves at most this time; an estimate, as the host
spends so long on it, but the change may leave some of it, or give the rest of the step its cores
back; or a part of the gain, as related time was not recorded."""

HOST_TIME, DEVICE_TIME = "host", "device"
"""The time that a change shortens. If a host launches ahead, the step only gets shorter with the
slower of the two.
"""

OUTSIDE = "outside"
"""In place of a category: time between steps, or the extra time of a few, which is no part of the
step that a gain is stated of.
"""
ON_DEVICE = ("device_compute", "device_to_device", "device_collectives")
ON_HOST = ("host_compute", "kernel_launch", "other")
"""Categories of a step whose time a change saves."""

FactsT = TypeVar("FactsT")
FoundT = TypeVar("FoundT")


class Target(NamedTuple):
    """The tab that shows a rule's finding, and the label of the link to it."""

    view: str
    link: str


class _Sentence(Formatter):
    """`str.format` with `{part:percent}` to show a fraction in percent."""

    def format_field(self, value: float, format_spec: str) -> str:
        if format_spec == "percent":
            return f"{100 * value:g} %"
        return str(format(value, format_spec))


class Threshold:
    """The numbers that a check compares against, and the phrase that states them.

    Parameters
    ----------
    text : str
        The phrase, with a field for each number: "≥ {moderate:g} % of step time".
    **numbers : float
        The numbers, by the names that the check uses.
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
"""For a rule that fires on the first occurrence."""


def severity(value: float, moderate: float, high: float) -> str:
    """`high`, `medium` or `low`."""
    if value >= high:
        return "high"
    return "medium" if value >= moderate else "low"


class Finding(NamedTuple):
    """One row of `p.advice`, which `Rule.finding` makes.

    `fix` holds diff lines that begin with `-`, `+` or a blank; `evidence` marks **bold** parts.
    """

    rule: str
    severity: str
    title: str
    evidence: str
    gain_ms_per_step: float
    gain_is: str
    fix: str
    view: str
    link: str
    certainty: str
    refuted_by: str
    gain_of_ms: float = float("nan")


@dataclass(frozen=True)
class Found:
    """The result of a check: the figures of this profile that prove it.

    Attributes
    ----------
    evidence : str
    severity : str
        `high`, `medium` or `low`.
    gain_ms : float
        The recorded time per step that the change could save; NaN if unknown. `gain_is` says
        whether it can be more.
    fix, title : str
        If they depend on what was found; otherwise the rule has them.
    target : Target, optional
    gain_is : str
        `UP_TO`, `ABOUT` or `AT_LEAST`, if it depends on what was found; otherwise the rule has it.
    recording_cost : float
        What recording cost in the time of the gain, see
        `nbprof.analysis.steps.bare_parts.cost_of_events`; NaN if that is the share of its
        categories.
    """

    evidence: str
    severity: str = "medium"
    gain_ms: float = float("nan")
    fix: str = ""
    title: str = ""
    target: Target | None = None
    gain_is: str = ""
    recording_cost: float = float("nan")


@dataclass(frozen=True)
class Shown(Generic[FactsT]):
    """Something that a recording shows, or does not: what a rule needs, or that its remedy is
    applied.

    Attributes
    ----------
    text : str
        In words, for the page of rules.
    seen : callable, optional
        Whether facts show it. None: the check compares its figures anyway, and they are below its
        threshold then.
    """

    text: str
    seen: Callable[[FactsT], bool] | None = None


@dataclass(frozen=True)
class Rule(Generic[FactsT, FoundT]):
    """One rule.

    Attributes
    ----------
    name : str
        Its name in `p.advice` or `p.ascend.rules`.
    check : callable
        Gets the facts and the threshold. Returns None if there is nothing to report: no such cost,
        or a figure that it needs was not recorded.
    threshold : Threshold
    source : str
        Where the check and its threshold come from.
    target : Target
        Where the dashboard shows the finding.
    applies : str
        The framework or device that it applies to.
    looks_at : str
        The subject of the check, in a few words.
    title, fix : str
        What to do, as a heading and as diff lines or a sentence, if it is always the same. The
        heading may have fields of `Unit.fill`.
    certainty : str
        `MEASURED`, `ESTIMATED` or `INFERRED`.
    refuted_by : str
        What an experiment would show if the finding were wrong, as the end of "Wrong if …"; it may
        have fields of `Unit.fill`.
    gain_is : str
        `UP_TO`, `ABOUT` or `AT_LEAST`; empty for a rule that states no gain.
    shortens : str
        `HOST_TIME` or `DEVICE_TIME`, if the change shortens only the one, while the other goes on
        beside it; else empty.
    saves : tuple of str
        The categories of the step of whose time the gain is a part, if these are not all on that
        side; or `OUTSIDE`. Empty if unknown.
    on_npu : bool
        For PyTorch rules: whether it also holds on an NPU. The others are about CUDA graphs, Tensor
        Cores and the like.
    advises : bool
        For Ascend rules: whether it says what to change. The others say where to look, and are not
        in `p.advice`.
    needs_units : bool
        Whether it counts units of work, compares them, or takes what happens in each for what the
        program always does: it is not asked of a recording that is the only unit, with the start of
        the program in it.
    requires : Shown, optional
        What must be in the recording besides what is checked: without it, the advice is about
        something that the program does not have.
    done : Shown, optional
        What shows that the remedy is applied already: then the rule is silent. Every rule of
        `p.advice` has it.
    about, unit : str
        For Ascend rules: the group that it is listed under, and the unit of its `limit`.
    needs : tuple of str
        For Ascend rules: the fields of the facts that it needs.
    lacks : str
        For Ascend rules: what to say if they are missing.
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
    certainty: str = MEASURED
    refuted_by: str = ""
    gain_is: str = UP_TO
    shortens: str = ""
    saves: tuple[str, ...] = ()
    on_npu: bool = False
    advises: bool = True
    needs_units: bool = False
    requires: Shown[FactsT] | None = None
    done: Shown[FactsT] | None = None
    about: str = ""
    unit: str = ""
    needs: tuple[str, ...] = ()
    lacks: str = ""

    @property
    def saved_categories(self) -> tuple[str, ...]:
        """`saves`, or the categories of the side that the change shortens."""
        if self.saves or not self.shortens:
            return self.saves
        return ON_DEVICE if self.shortens == DEVICE_TIME else ON_HOST

    def ask(self, facts: FactsT) -> FoundT | None:
        """Runs the check on the facts, unless what it advises is out of place there, or done."""
        return self.check(facts, self.threshold) if self.has_place(facts) else None

    def has_place(self, facts: FactsT) -> bool:
        """True if the recording has the facts that the rule requires, and does not show that its
        remedy is applied.
        """
        required, done = self.requires, self.done
        if required is not None and required.seen is not None and not required.seen(facts):
            return False
        return done is None or done.seen is None or not done.seen(facts)

    def finding(self, evidence: Found, unit: Unit = MARKED) -> Finding:
        """The row of `p.advice` for a finding, in the words of the unit that its figures are given
        per.
        """
        view, link = evidence.target or self.target
        return Finding(
            rule=self.name,
            severity=evidence.severity,
            title=evidence.title or unit.fill(self.title),
            evidence=evidence.evidence,
            gain_ms_per_step=evidence.gain_ms,
            gain_is=evidence.gain_is or self.gain_is,
            fix=evidence.fix or self.fix,
            view=view,
            link=link,
            certainty=self.certainty,
            refuted_by=unit.fill(self.refuted_by),
        )
