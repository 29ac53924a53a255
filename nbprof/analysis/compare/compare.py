"""Two runs side by side: steps, figures, categories, ops and kernels, before and after a change.

XProf 2.24.2 compares two runs too (`diff_sessions`, and in its pages), but without statistics;
everything here is defined by nbprof, on the frames of the two runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import copies
from nbprof.activity.activity import CATEGORIES, CATEGORY_OF_CLASS
from nbprof.activity.unit import ITERATION, Unit, best
from nbprof.activity.unit import STEP as STEPS
from nbprof.analysis.compare import call_tree
from nbprof.analysis.compare.call_tree import CallTree, plain_name
from nbprof.analysis.compare.welch import Difference, Floats, welch
from nbprof.analysis.figures import mean, percent, ratio
from nbprof.analysis.steps.bare import BareSteps
from nbprof.analysis.steps.steps import counted
from nbprof.analysis.table import stacked
from nbprof.core.memory_roles import NOT_RECORDED, USE_UNKNOWN
from nbprof.schema import frames

STEP = "step_time"
BARE, RECORDED = "bare", "recorded"
PEAK, SNAPSHOT, PLAN = "peak", "snapshot", "plan"
NO_SAMPLES = "Python was not sampled"
_NOT_TIMED = "the recording did not time the steps of the cell"
_COLLECTIVE = re.compile(
    r"nccl|rccl|hccl|nvshmem|all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter|all[-_]?to[-_]?all"
    r"|collective",
    re.IGNORECASE,
)
_COPY_IN = re.compile(r"memcpy\s*(hto?d|h2d)|infeed", re.IGNORECASE)
_COPY_OUT = re.compile(r"memcpy\s*(dto?h|d2h)|outfeed", re.IGNORECASE)
_COPY_WITHIN = re.compile(r"memcpy\s*(dto?d|d2d|ptop|p2p)", re.IGNORECASE)
_LAUNCH = re.compile(r"(cuda|hip)Launch|KernelLaunch|ExecutorState::Process", re.IGNORECASE)


@dataclass(frozen=True)
class SideMemory:
    """The memory of one run of a comparison.

    Attributes
    ----------
    peak : DataFrame
        The rows of `p.memory.roles` of one allocator; none where nothing is known.
    snapshot : DataFrame
        The rows of `p.allocator.roles` of one device; none without a snapshot.
    plan : DataFrame
        The rows of `p.memory.roles` of one compiled program.
    stacks : DataFrame
        Blocks in use at the snapshot by the stack that allocated them: `device location stack
        blocks bytes`.
    has_allocations : bool
        Whether allocations were recorded.
    failure : str
        Why nothing of it could be computed; empty where it could.
    """

    peak: pd.DataFrame = field(default_factory=lambda: frames.empty("memory.roles"))
    snapshot: pd.DataFrame = field(default_factory=lambda: frames.empty("allocator.roles"))
    plan: pd.DataFrame = field(default_factory=lambda: frames.empty("memory.roles"))
    stacks: pd.DataFrame = field(default_factory=pd.DataFrame)
    has_allocations: bool = False
    failure: str = ""

    def roles(self, moment: str) -> pd.DataFrame:
        """The memory by role at `PEAK`, at `SNAPSHOT` or by `PLAN`."""
        return {PEAK: self.peak, SNAPSHOT: self.snapshot, PLAN: self.plan}[moment]

    def reason(self, moment: str) -> str:
        """Why the roles of a moment are unknown; empty where they are known."""
        if self.failure:
            return self.failure
        if len(self.roles(moment)):
            return ""
        if moment == SNAPSHOT:
            return "there is no snapshot of PyTorch's allocator"
        if moment == PLAN:
            return "no compiled program has a plan of its memory"
        if not self.has_allocations:
            return NOT_RECORDED
        return USE_UNKNOWN


@dataclass
class Side:
    """The frames of one run that a comparison needs.

    Attributes
    ----------
    label : str
        Name of the run in sentences.
    steps, ops, kernels, input_ops : DataFrame
        As `p.steps.frame`, `p.ops.frame`, `p.kernels.frame` and `p.input_pipeline.frame` have them.
    overview : dict
        As `p.overview`.
    batch, precision : str
        As stated when it was recorded; '' where not known.
    dropped : int
        Events that the recording lost.
    failed : bool
        Whether the cell ended with an error.
    advice : DataFrame
        As `p.advice` has it.
    cores : mapping
        Their use, as `nbprof.capture.contention` measured it; empty where it did not.
    workers : int, optional
        The most worker processes of a loader; None where no loader is known.
    bare : BareSteps
        The steps that ran without the profiler.
    options : mapping
        Options of the recording that cost time, by name; empty where not known.
    memory : callable
        Returns the memory of the run, which not every comparison needs.
    python : callable
        Returns the sampled functions of the run, per step if its argument is true.
    op_tree : callable
        Returns the rows of `p.ops.tree`, by name scope if its argument is false.
    has_modules : callable
        Returns whether ops are known by the module that called them.
    """

    label: str
    steps: pd.DataFrame
    ops: pd.DataFrame
    kernels: pd.DataFrame
    input_ops: pd.DataFrame
    overview: dict[str, Any] = field(default_factory=dict)
    batch: str = ""
    precision: str = ""
    dropped: int = 0
    failed: bool = False
    advice: pd.DataFrame = field(default_factory=pd.DataFrame)
    cores: Mapping[str, float] = field(default_factory=dict)
    workers: int | None = None
    bare: BareSteps = field(default_factory=lambda: BareSteps(reason=_NOT_TIMED))
    options: Mapping[str, str] = field(default_factory=dict)
    memory: Callable[[], SideMemory] = SideMemory
    python: Callable[[bool], CallTree] = lambda _: CallTree(reason=NO_SAMPLES)
    op_tree: Callable[[bool], pd.DataFrame] = lambda _: frames.empty("ops.tree")
    has_modules: Callable[[], bool] = lambda: False

    @property
    def times(self) -> Floats:
        """Step times in ms, in time order: of the steps in the averages, each the mean over all
        hosts.
        """
        return by_step(self.steps)[STEP]


def by_step(steps: pd.DataFrame) -> dict[str, Floats]:
    """Step time and categories in ms of each counted step, in time order; NaN where a category was
    not recorded.

    Hosts of one job run the same step at the same time and are not independent: their steps of one
    number are one value, the mean.
    """
    names = [STEP, *CATEGORIES]
    used = counted(steps)
    if not len(used):
        return dict.fromkeys(names, np.zeros(0))
    columns = [f"{name}_ms" for name in names]
    if used["host"].nunique() > 1:
        # A number may come back in the next epoch.
        nth = used.groupby(["host", "step"], sort=False).cumcount().rename("nth")
        keys = [used["step"], nth]
        first = used.groupby(keys)["start_ms"].min()
        used = (
            used.groupby(keys)[columns]
            .mean()
            .assign(start_ms=first)
            .sort_values("start_ms", kind="stable")
        )
    else:
        used = used.sort_values("start_ms", kind="stable")
    return dict(zip(names, used[columns].to_numpy(np.float64).T.copy(), strict=True))


def steps(before: Side, after: Side) -> pd.DataFrame:
    """Every step of both runs, one row each: `run host step name step_time_ms counted`."""
    parts = []
    for run, side in (("before", before), ("after", after)):
        steps = side.steps
        parts.append(
            pd.DataFrame(
                {
                    "run": run,
                    "host": steps["host"],
                    "step": steps["step"],
                    "name": steps["name"],
                    "step_time_ms": steps["step_time_ms"],
                    "counted": steps["counted"].astype(bool),
                }
            )
        )
    table = stacked(parts)
    return table.astype({"step_time_ms": "float64", "counted": "bool"})


def unit_of(before: Side, after: Side) -> Unit:
    """The unit of the figures of both; if turns of a loop are marked on one side and detected on
    the other, the marked ones.
    """
    return best([Unit.of(side.overview) for side in (before, after)])


def comparable(before: Side, after: Side) -> bool:
    """True if the times of their units can be compared: a call cannot with a recording, nor with a
    step.
    """
    kinds = {Unit.of(side.overview).kind for side in (before, after)}
    return len(kinds) == 1 or kinds == {STEPS, ITERATION}


def times(before: Side, after: Side) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """`by_step` of both, empty where they cannot be compared."""
    if not comparable(before, after):
        nothing = dict.fromkeys((STEP, *CATEGORIES), np.zeros(0))
        return nothing, dict(nothing)
    return by_step(before.steps), by_step(after.steps)


class Compared(NamedTuple):
    """The step times that a comparison judges, in ms.

    Attributes
    ----------
    before, after : float64[n]
    kind : str
        `BARE` where both runs have steps that ran without the profiler, else `RECORDED`.
    reason : str
        Why they are not bare; empty where they are.
    """

    before: Floats
    after: Floats
    kind: str
    reason: str

    @property
    def is_bare(self) -> bool:
        """True for the times of steps without the profiler."""
        return self.kind == BARE


def why_not_bare(bare: BareSteps, unit: Unit) -> str:
    """The reason why a run has no times of bare steps to compare; empty if it has."""
    if not bare.reason and unit.kind != STEPS:
        return f"its figures are {unit.per}"
    return bare.reason


def compared(before: Side, after: Side) -> Compared:
    """The times of bare steps where both runs have them, else of the recorded steps.

    What a profiler costs depends on its options, its version and the machine, so a change of the
    recorded steps may be one of the recording.
    """
    reasons = []
    for side in (before, after):
        reason = why_not_bare(side.bare, Unit.of(side.overview))
        if reason:
            reasons.append(f"{side.label}: {reason}")
    if not reasons:
        return Compared(before.bare.durations_ms, after.bare.durations_ms, BARE, "")
    of_before, of_after = times(before, after)
    return Compared(of_before[STEP], of_after[STEP], RECORDED, "; ".join(reasons))


def categories(before: Side, after: Side) -> pd.DataFrame:
    """`step_time` and each category, ms per step: means of the counted steps, their difference and
    its 95 % Welch interval, all of the recording.

    Each row has its interval for itself; of nine rows without any change one in twenty leaves 0 out
    by chance.
    """
    a, b = times(before, after)
    return pd.DataFrame([_category(name, a[name], b[name]) for name in (STEP, *CATEGORIES)]).astype(
        {"real": "boolean"}
    )


def _category(name: str, a: Floats, b: Floats) -> dict[str, Any]:
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    difference = welch(a, b)
    before = mean(a)
    return {
        "category": name,
        "before_ms": before,
        "after_ms": mean(b),
        "change_ms": difference.change,
        "margin_ms": difference.margin,
        "change_percent": percent(difference.change, before),
        "real": _real(difference),
    }


def _real(difference: Difference) -> Any:
    return difference.real if difference.has_interval else pd.NA


def figures(before: Side, after: Side) -> pd.DataFrame:
    """The key figures of both runs: `figure before after change unit`; figures that neither has are
    omitted.
    """
    # Times of units that cannot be compared are of no figure, nor is the rate of recordings, of
    # which there is one.
    without = set() if comparable(before, after) else _OF_TIMES
    without = without | (_RATES if unit_of(before, after).is_recording else set())
    steps = compared(before, after)
    rows = [
        _figure(name, unit, read(before, steps.before), read(after, steps.after))
        for name, unit, read in _FIGURES
        if name not in without
    ]
    table = pd.DataFrame(
        rows, columns=["figure", "unit", "before", "after", "change", "change_percent"]
    )
    return table[table["before"].notna() | table["after"].notna()].reset_index(drop=True)


def _figure(name: str, unit: str, a: float, b: float) -> dict[str, Any]:
    change = b - a
    return {
        "figure": name,
        "unit": unit,
        "before": a,
        "after": b,
        "change": change,
        # Of shares the change is in points; a percentage of a percentage misleads.
        "change_percent": 100 * change / a if a > 0 and unit != "percent" else np.nan,
    }


def batch_size(side: Side) -> float:
    """The batch size as a number; NaN if not stated."""
    try:
        size = float(side.batch)
    except ValueError:
        return np.nan
    return size if size > 0 else np.nan


def _per_second(size: float, times: Floats) -> float:
    return float(ratio(1000 * size, mean(times)))


def _overview_figure(key: str, side: Side) -> float:
    value = side.overview.get(key)
    return np.nan if value is None else float(value)


_RATES = {"examples_per_second", "steps_per_second"}
_OF_TIMES = {"bare_step_time", "step_time", *_RATES}
_FIGURES: list[tuple[str, str, Callable[[Side, Floats], float]]] = [
    ("bare_step_time", "ms", lambda side, _: mean(side.bare.durations_ms)),
    ("step_time", "ms", lambda side, _: mean(side.times)),
    ("input", "percent", lambda side, _: _overview_figure("input_percent", side)),
    ("device_busy", "percent", lambda side, _: _overview_figure("device_busy_percent", side)),
    ("ops_on_device", "percent", lambda side, _: _overview_figure("device_op_percent", side)),
    ("examples_per_second", "1/s", lambda side, times: _per_second(batch_size(side), times)),
    ("steps_per_second", "1/s", lambda _, times: _per_second(1.0, times)),
    ("peak_memory", "bytes", lambda side, _: _overview_figure("peak_memory_bytes", side)),
]
"""Each with its unit and a function of the run and its compared step times."""


def ops(before: Side, after: Side) -> pd.DataFrame:
    """Self time of each op before and after, largest change first: in µs per step where both runs
    have steps, else in the whole profile.

    Ops are the same if side, type and name are. Frameworks number copies of a name (`dense_3`,
    `fusion.12`), and a model that was built again has other numbers: what is left of such names is
    paired where one candidate remains on each side, with `before_op` for what it was called.
    `state` is both, renamed, new or gone; time that was not there is NA, and the change is then all
    of it.
    """
    a, b = _ops(before), _ops(after)
    inputs = set(before.input_ops.get("op", ())) | set(after.input_ops.get("op", ()))
    table = _matched(a, b, ["where", "type", "op"], "op", *_scales(before, after))
    table["category"] = [
        category_of(op, kind, side, inputs)
        for op, kind, side in zip(table["op"], table["type"], table["where"], strict=True)
    ]
    columns = ["where", "type", "op", "category", "state", "before_op"]
    return _ordered(table, columns, "op")


def kernels(before: Side, after: Side) -> pd.DataFrame:
    """Time of each kernel before and after, largest change first; kernels are the same if their
    names are. Else as `ops`.
    """
    a, b = _kernels(before), _kernels(after)
    table = _matched(a, b, ["kernel"], "", *_scales(before, after))
    table["category"] = [category_of(name, "", "device", set()) for name in table["kernel"]]
    return _ordered(table, ["kernel", "category", "state"], "kernel")


def per_step(before: Side, after: Side) -> bool:
    """True if op times are per step; if a run has no steps, they are of the entire profile."""
    return len(before.steps) > 0 and len(after.steps) > 0 and comparable(before, after)


def python(before: Side, after: Side) -> pd.DataFrame:
    """Sampled Python functions of both runs: ms per counted step where both have steps, else in the
    whole profile. Empty unless both were sampled; `why_no_python` says why.
    """
    if why_no_python(before, after):
        return frames.empty("comparison.python")
    trees = [side.python(python_per_step(before, after)) for side in (before, after)]
    return call_tree.compared(*trees)


def python_per_step(before: Side, after: Side) -> bool:
    """True if times of functions are per step: both runs have counted steps of one unit."""
    counts = [len(counted(side.steps)) for side in (before, after)]
    return min(counts) > 0 and comparable(before, after)


def why_no_python(before: Side, after: Side) -> str:
    """Why the functions of two runs cannot be compared; empty if they can."""
    per_step = python_per_step(before, after)
    reasons = []
    for side in (before, after):
        reason = side.python(per_step).reason
        if reason:
            reasons.append(f"{side.label}: {reason}")
    return "; ".join(reasons)


def op_calls(before: Side, after: Side, run_on: str) -> pd.DataFrame:
    """Modules, ops and kernels of both runs: ms per step if both have steps, else in the whole
    profile. Empty unless both have ops on this side. Without modules in both, name scopes take
    their place, so that paths are of one kind.
    """
    by_module = before.has_modules() and after.has_modules()
    trees = []
    for side, scale in zip((before, after), _scales(before, after), strict=True):
        rows = side.op_tree(by_module)
        if not (rows["where"] == run_on).any():
            return frames.empty("comparison.python")
        trees.append(call_tree.of_ops(rows, run_on, scale))
    return call_tree.compared(*trees)


def _scales(before: Side, after: Side) -> tuple[float, float]:
    # Of all steps, as the overview has it: what ops are in the profile, warm-up included, is in
    # these steps.
    if per_step(before, after):
        return (1 / len(before.steps), 1 / len(after.steps))
    return (1.0, 1.0)


def _ops(side: Side) -> pd.DataFrame:
    ops = side.ops[side.ops["type"] != "IDLE"] if len(side.ops) else side.ops
    keys = ["where", "type", "op"]
    if not len(ops):
        return pd.DataFrame(
            {**dict.fromkeys(keys, pd.Series([], dtype=object)), "us": [], "calls": []}
        )
    added = ops.groupby(keys, sort=False)[["self_us", "occurrences"]].sum().reset_index()
    return added.rename(columns={"self_us": "us", "occurrences": "calls"})


def _kernels(side: Side) -> pd.DataFrame:
    if not len(side.kernels):
        return pd.DataFrame({"kernel": pd.Series([], dtype=object), "us": [], "calls": []})
    added = (
        side.kernels.groupby("kernel", sort=False)[["total_us", "occurrences"]].sum().reset_index()
    )
    return added.rename(columns={"total_us": "us", "occurrences": "calls"})


def _matched(
    a: pd.DataFrame, b: pd.DataFrame, keys: list[str], name: str, scale_a: float, scale_b: float
) -> pd.DataFrame:
    """Rows of both, joined by `keys`; `name` is the key whose copy numbers may differ, '' for
    none.
    """
    a = a.assign(
        us=a["us"].astype("float64") * scale_a, calls=a["calls"].astype("float64") * scale_a
    )
    b = b.assign(
        us=b["us"].astype("float64") * scale_b, calls=b["calls"].astype("float64") * scale_b
    )
    table = joined(a, b, keys, name, plain_name)
    table = table.rename(
        columns={
            "us_a": "before_us",
            "us_b": "after_us",
            "calls_a": "before_calls",
            "calls_b": "after_calls",
        }
    )
    table["change_us"] = table["after_us"].fillna(0.0) - table["before_us"].fillna(0.0)
    return table


def joined(
    a: pd.DataFrame, b: pd.DataFrame, keys: list[str], name: str, plain: Callable[[str], str]
) -> pd.DataFrame:
    """Rows of both runs, joined by `keys`: the other columns of each, with `_a` and `_b` behind
    their names, and `state`.

    `name` is the key of which only `plain` must be equal where one row is left on each side, '' for
    none. These rows have the name of `b`, that of `a` in `before_NAME`, and the state `renamed`.
    """
    was = f"before_{name}"
    if name:
        b = b.assign(**{was: ""})
        renamed = _renamed(a, b, keys, name, plain)
        # Under the new name the row is one; what it was called stays beside it.
        b.loc[list(renamed), was] = a.loc[list(renamed.values()), name].to_numpy()
        a = a.copy()
        a.loc[list(renamed.values()), name] = b.loc[list(renamed), name].to_numpy()
    table = a.merge(b, on=keys, how="outer", suffixes=("_a", "_b"), indicator=True, sort=False)
    state = (
        table.pop("_merge")
        .astype(str)
        .map({"both": "both", "left_only": "gone", "right_only": "new"})
    )
    if name:
        table[was] = table[was].fillna("")
        state = state.mask((table[was] != "") & (state == "both"), "renamed")
    table["state"] = state
    return table


def _renamed(
    a: pd.DataFrame, b: pd.DataFrame, keys: list[str], name: str, plain: Callable[[str], str]
) -> dict[int, int]:
    """Rows of `b` that are rows of `a` but for what `plain` leaves out of their names: {row of b:
    row of a}.
    """
    known_a, known_b = (pd.MultiIndex.from_frame(part[keys]) for part in (a, b))
    left_a, left_b = a[~known_a.isin(known_b)], b[~known_b.isin(known_a)]
    if not len(left_a) or not len(left_b):
        return {}
    other_keys = [key for key in keys if key != name]
    by_plain_name = []
    for part in (left_a, left_b):
        key = pd.MultiIndex.from_frame(
            part[other_keys].assign(plain=[plain(str(text)) for text in part[name]])
        )
        # Copies with the same remaining name cannot be distinguished.
        by_plain_name.append(pd.Series(part.index, index=key)[~key.duplicated(keep=False)])
    pairs = by_plain_name[1].to_frame("b").join(by_plain_name[0].rename("a"), how="inner")
    return dict(zip(pairs["b"].astype(int), pairs["a"].astype(int), strict=True))


def _ordered(table: pd.DataFrame, columns: list[str], name: str) -> pd.DataFrame:
    times = ["before_us", "after_us", "change_us", "before_calls", "after_calls"]
    order = np.lexsort(
        [table[name].astype(str).to_numpy(), -table["change_us"].abs().to_numpy(np.float64)]
    )
    return (
        table.iloc[order][[*columns, *times]]
        .reset_index(drop=True)
        .astype(dict.fromkeys(times, "float64"))
    )


def category_of(name: str, kind: str, side: str, inputs: set[str]) -> str:
    """The category that an op or kernel is drawn in, by where it ran and by its name."""
    text = f"{name} {kind}"
    for pattern, category in (
        (_COPY_IN, "input"),
        (_COPY_OUT, "output"),
        (_COPY_WITHIN, "device_to_device"),
    ):
        if pattern.search(text):
            return category
    if side == "device" and (copies.kind(name) or copies.blit(name)):
        return CATEGORY_OF_CLASS[copies.CLASS[copies.kind(name) or copies.OTHER]]
    if side == "device":
        if _COLLECTIVE.search(text):
            return "device_collectives"
        return "device_compute"
    if name in inputs or name.startswith("Iterator"):
        return "input"
    return "kernel_launch" if _LAUNCH.search(text) else "host_compute"


def same_steps(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> bool:
    """True if both have the same times, like the same file opened twice."""
    return len(a) > 0 and len(a) == len(b) and bool(np.array_equal(a, b))
