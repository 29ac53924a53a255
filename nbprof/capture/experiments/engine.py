"""Runs experiments: the program as it is and with a change in turn, until the gain is known."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.capture.experiments import as_recorded, combination, equality, statistics, turn
from nbprof.capture.experiments.as_recorded import AsRecorded
from nbprof.capture.experiments.attempt import Attempt
from nbprof.capture.experiments.equality import Equality
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.program import Program, Refused
from nbprof.capture.experiments.source import Source, diff
from nbprof.capture.experiments.turn import Plan, Timing
from nbprof.capture.options import Options
from nbprof.capture.session import active
from nbprof.capture.shield import shielded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nbprof.profiles.profile import Profile
    from nbprof.run.run import Run

FIRST_LOOK, SECOND_LOOK = 0.965, 0.985
"""Confidence of an interval after the time that an experiment has for certain, and after what the
others left. Whether there is a second look depends on the first, so both together may err in 5 %.
"""
LEAST_PAIRS, MOST_PAIRS = 6, 20
"""Turns of the program as it is and with the change that one experiment takes."""
ALL_PAIRS = 60
"""The same with those in the time that others left."""
WORTH = 0.01
"""Part of a step that is surely saved, from which on a change is recommended."""
_WINDOW_S = 0.3
"""Seconds of steps that a turn measures, where the program has as many."""
_LEAST_STEPS, _MOST_STEPS = 3, 200
_WARMUP = 2
_CHECKED = 4
"""Steps of a turn that is compared instead of timed, after the warm-up."""
_LOOKS = 3
"""Unchanged turns of which one takes as long as the recording says, or nothing is tried."""
_GRACE = 0.25
"""Part of the budget by which the last turns may exceed their share."""
_NOTHING = "Nothing was tried"

NOT_FASTER = "it is not significantly faster"
SLOWER = "it is slower"
FASTER = "it is faster, and the results are equal"
LITTLE = f"it surely saves less than {100 * WORTH:g}% of a step"
NO_MORE = "together they save no more than"
OTHER_RUN = "the program does not run again as it was recorded"
UNKNOWN_RESULTS = "the results could not be compared: no losses or outputs were found"


@dataclass(frozen=True)
class Tried:
    """The result of an experiment; times are per step and NaN where they were not measured.

    Attributes
    ----------
    experiment, title, rule : str
    baseline_ms : float
        A step of the unchanged program.
    gain_ms, gain_low_ms, gain_high_ms : float
        What the change saves, and the 95 % interval of that.
    first_ms : float
        Added time of the first steps with the change.
    pays_after : int or None
        Steps after which the gain has made up for that; None where it never does.
    memory_before_bytes, memory_after_bytes : int or None
        Most memory of the GPU in use; None without a GPU.
    equal : bool or None
        Whether the results are equal; None if nothing was compared.
    difference, spread : float
        See `nbprof.capture.experiments.equality.Equality`.
    pairs : int
        Turns of each.
    took_s : float
        Time of the whole experiment.
    recommended : bool
    why : str
        Why it is recommended, or is not.
    code : str
        The change as diff lines.
    diff, edited : str
        The change of the program's own cell as diff lines, and the changed cell; empty if it is not
        recommended, or its place is not known.
    """

    experiment: str
    title: str
    rule: str
    why: str
    code: str = ""
    diff: str = ""
    edited: str = ""
    baseline_ms: float = math.nan
    gain_ms: float = math.nan
    gain_low_ms: float = math.nan
    gain_high_ms: float = math.nan
    first_ms: float = math.nan
    pays_after: int | None = None
    memory_before_bytes: int | None = None
    memory_after_bytes: int | None = None
    equal: bool | None = None
    difference: float = math.nan
    spread: float = math.nan
    pairs: int = 0
    took_s: float = math.nan
    recommended: bool = False

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON: None for NaN and infinity."""
        values = asdict(self)
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                values[name] = None
        return values


class _TooLittleTime(Refused):
    """Too few turns fit into the time."""


class Engine:
    """Runs experiments on one program.

    Parameters
    ----------
    program : Program
    options : Options
        Of the recording.
    steps : int
        Steps that the recorded run had; 0 where they are not marked while it runs.
    units : int
        Steps that were found in the recording.
    budget_s : float
        Time for all experiments.
    recorded : AsRecorded, optional
        How long an unchanged step takes; not compared where it is not given.
    """

    def __init__(
        self,
        program: Program,
        options: Options,
        *,
        steps: int,
        units: int,
        budget_s: float,
        recorded: AsRecorded | None = None,
    ) -> None:
        self._program = program
        self._options = options
        self._steps = steps
        self._units = max(units, 1)
        self._deadline = time.perf_counter() + budget_s
        self._budget_s = budget_s
        self._recorded = recorded
        self._report: Callable[[str], object] = lambda _: None
        self._before = ""
        self._observed: list[Observation] = []
        self._unchanged: list[Timing] = []
        self._step_s = 0.0
        self.tried: list[Tried] = []

    def run(
        self,
        experiments: Sequence[tuple[Experiment, str]],
        report: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Run experiments, each for a rule; results are in `tried`, also if it is interrupted.

        `report` receives what runs now, as a phrase.

        Raises
        ------
        Refused
            The program cannot run again, or not as it was recorded.
        """
        self._report = report
        try:
            self._report("running the program again as it is")
            self._observe()
            self._check_time()
            attempts = []
            for experiment, rule in experiments:
                if why := _refusal(experiment, self._observed[0]):
                    about = Tried(experiment.name, experiment.title, rule, f"not tried: {why}")
                    self.tried.append(about)
                else:
                    attempts.append(Attempt(experiment, rule))
            combination_s = self._each_in_turn(attempts)
            self._with_rest_of_time(attempts, combination_s)
            self._combine(attempts)
        finally:
            with shielded():
                for observation in self._observed:
                    observation.close()

    def _each_in_turn(self, attempts: Sequence[Attempt]) -> float:
        """Give each of them an equal share of the time; returns that of the combination."""
        shares = len(attempts)
        combination_s = 0.0
        if len(combination.compatible([attempt.experiment for attempt in attempts])) > 1:
            shares += 1
            combination_s = (self._deadline - time.perf_counter()) / shares
        for index, attempt in enumerate(attempts):
            left_s = self._deadline - time.perf_counter()
            self._try(attempt, left_s / (shares - index))
        return combination_s

    def _with_rest_of_time(self, attempts: Sequence[Attempt], combination_s: float) -> None:
        """Go on with those of which it is unknown whether they are worth it.

        The most promising come first. What the combination needs is left for it, if there may be
        one.
        """
        helped = {each.experiment for each in self.tried if each.recommended}
        parts = [each for each in attempts if each.is_open or each.experiment.name in helped]
        until = self._deadline
        if len(combination.compatible([attempt.experiment for attempt in parts])) > 1:
            until -= combination_s
        left = [attempt for attempt in attempts if attempt.is_open]
        for attempt in sorted(left, key=lambda each: -each.promise):
            left_s = until - time.perf_counter()
            pairs = attempt.needed(LEAST_PAIRS)
            if pairs <= ALL_PAIRS and attempt.seconds_to(pairs) <= left_s:
                self._try(attempt, left_s)

    def _combine(self, attempts: Sequence[Attempt]) -> None:
        """Try those changes together that helped, the most first."""
        results = {each.experiment: each for each in self.tried if each.recommended}
        helped = [each for each in attempts if each.experiment.name in results]
        helped.sort(key=lambda each: -results[each.experiment.name].gain_ms)
        together = combination.compatible([attempt.experiment for attempt in helped])
        if len(together) < 2:
            return
        both = Attempt(combination.combined(together), "")
        self._try(both, self._deadline - time.perf_counter())
        best, result = results[helped[0].experiment.name], self.tried[-1]
        if result.recommended and result.gain_ms <= best.gain_ms:
            why = f"{NO_MORE} {best.title} alone"
            self.tried[-1] = replace(result, recommended=False, why=why, diff="", edited="")

    def _in_source(self, result: Tried, experiment: Experiment) -> Tried:
        """The result with the change of the program's source, if its place is known."""
        if not result.recommended or experiment.edit is None or not self._program.cell.source:
            return result
        # A diff is not worth the result.
        with contextlib.suppress(Exception):
            located = experiment.edit(self._source, self._observed)
            if located is not None and (edited := located.source.changed(located.edits)):
                return replace(result, diff=diff(located.source.text, edited), edited=edited)
        return result

    @cached_property
    def _source(self) -> Source:
        cell = self._program.cell
        return Source(cell.source, self._observed[0].namespace, cell.python, cell.filename)

    def _observe(self) -> None:
        for _ in range(2):
            observation = Observation()
            self._observed.append(observation)
            self._unchanged.append(self._turn(self._check_plan(), observation=observation))
        self._step_s = self._unchanged[-1].step_s

    def _check_time(self) -> None:
        """Raise `Refused` if an unchanged step takes another time than the recording says."""
        if self._recorded is None:
            return
        times_ms = []
        for _ in range(_LOOKS):
            timing = self._turn(self._plan(_WARMUP))
            # The turns before were observed, which takes time.
            self._step_s = timing.step_s
            step_ms = float(self._per_step_ms([timing])[0])
            if self._recorded.is_like(step_ms):
                return
            times_ms.append(step_ms)
        difference = self._recorded.difference(float(np.median(times_ms)))
        raise Refused(f"{OTHER_RUN}. {difference}")

    def _turn(
        self, plan: Plan, change: Change | None = None, observation: Observation | None = None
    ) -> Timing:
        return turn.run(self._program, self._options, plan, change, observation)

    def _check_plan(self) -> Plan:
        """The steps of a turn whose results are compared."""
        if not self._steps:
            return Plan(0, 0)
        steps = min(_CHECKED, self._steps - _WARMUP)
        if steps < _LEAST_STEPS:
            least = _WARMUP + _LEAST_STEPS
            raise Refused(f"it has {self._steps} steps, and {least} or more are needed.")
        return Plan(_WARMUP, steps)

    def _plan(self, warmup: int, examples: int = 1) -> Plan:
        """The steps of a turn that is timed; of larger batches there are fewer."""
        if not self._steps:
            return Plan(0, 0)
        available = self._steps // examples
        warmup = max(_WARMUP, min(warmup, available // 2))
        step_s = max(self._step_s, 1e-9)
        steps = max(_LEAST_STEPS, min(_MOST_STEPS, math.ceil(_WINDOW_S / step_s)))
        return Plan(warmup, min(steps, available - warmup))

    def _long_plan(self, change: Change, until: float) -> Plan:
        """The steps of a turn that sees what happens in some of them only.

        Raises
        ------
        Refused
            An epoch takes longer than a turn may, or the program has too few.
        """
        if not self._steps:
            return Plan(0, 0)
        available = (change.steps or self._steps) - _WARMUP
        if change.epoch > available:
            raise Refused("the program ends before it validates once more")
        last = self._unchanged[-1]
        # The rest of a turn saves and restores the state, and warms up.
        other_s = last.total_s - last.seconds
        turn_s = (until - time.perf_counter()) / (2 * LEAST_PAIRS)
        step_s = max(self._step_s, 1e-9)
        fit = math.floor((turn_s - other_s) / step_s)
        steps = min(max(fit, _LEAST_STEPS), available)
        if change.epoch and steps < change.epoch:
            missing_s = 2 * LEAST_PAIRS * (change.epoch * step_s + other_s - turn_s)
            raise _TooLittleTime(
                f"{LEAST_PAIRS} turns of an epoch do not fit into the time; --budget"
                f" {math.ceil(1.2 * (self._budget_s + missing_s))} is enough"
            )
        if change.epoch:
            steps -= steps % change.epoch
        return Plan(_WARMUP, steps, change.kind)

    def _try(self, attempt: Attempt, share_s: float) -> None:
        """Measure an experiment for so long, or go on with it; the result is put in `tried`."""
        experiment = attempt.experiment
        began = time.perf_counter()
        self._report(f"trying: {experiment.title}, up to {max(share_s, 0.0):.0f} s{self._before}")
        change = experiment.change(self._observed[0])
        earlier = next((each for each in self.tried if each.experiment == experiment.name), None)
        try:
            tried = self._measured(attempt, change, began + share_s)
        except Refused as reason:
            attempt.is_open = isinstance(reason, _TooLittleTime)
            tried = replace(_about(attempt), why=f"could not be tried: {str(reason).rstrip('.')}")
            if attempt.first_look and earlier is not None:
                tried = earlier
        finally:
            with shielded():
                change.close()
        attempt.seconds += time.perf_counter() - began
        self._before = f" ({experiment.title} took {attempt.seconds:.1f} s)"
        tried = self._in_source(replace(tried, took_s=attempt.seconds), experiment)
        if earlier is None:
            self.tried.append(tried)
        else:
            self.tried[self.tried.index(earlier)] = tried

    def _measured(self, attempt: Attempt, change: Change, until: float) -> Tried:
        """The result after turns until then, and after those of before."""
        observation = Observation()
        try:
            # Also where its results are known: a change made anew compiles anew.
            first = self._turn(self._check_plan(), change, observation)
        finally:
            observation.close()
        gone = sorted(observation.deleted - self._observed[0].deleted)
        if gone:
            raise Refused(f"{', '.join(gone[:3])} would hold arrays that are gone")
        if attempt.first is None:
            attempt.first = first
            if not attempt.experiment.tradeoff:
                attempt.results = equality.compare(
                    self._observed[0].values, self._observed[1].values, observation.values
                )
        plan = self._plan(change.warmup, attempt.experiment.examples)
        if change.is_long:
            plan = self._long_plan(change, until)
        self._turns(attempt, plan, change, until)
        is_second = attempt.first_look > 0
        if is_second and attempt.pairs < attempt.needed(LEAST_PAIRS):
            raise _TooLittleTime("too few more turns of it fitted into the time")
        tried = _judged(
            replace(
                _about(attempt),
                equal=attempt.results.equal,
                difference=attempt.results.difference,
                spread=attempt.results.spread,
                first_ms=self._first_ms(attempt.first, attempt.changed),
                memory_before_bytes=attempt.unchanged[-1].memory_bytes,
                memory_after_bytes=attempt.changed[-1].memory_bytes,
            ),
            attempt.results,
            self._per_step_ms(attempt.unchanged),
            self._per_step_ms(attempt.changed, attempt.experiment.examples),
            SECOND_LOOK if is_second else FIRST_LOOK,
        )
        attempt.is_open = not is_second and _is_unsure(tried)
        attempt.first_look = attempt.first_look or attempt.pairs
        if attempt.experiment.tradeoff:
            return _of_tradeoff(tried, attempt.experiment)
        if tried.equal is False and attempt.experiment.unequal:
            return replace(tried, why=f"{tried.why}; {attempt.experiment.unequal}")
        return tried

    def _turns(self, attempt: Attempt, plan: Plan, change: Change, until: float) -> None:
        """Turns without and with the change, in an order that favours neither."""
        most_pairs = ALL_PAIRS if attempt.first_look else MOST_PAIRS
        if not attempt.results.equal:
            # However much it saves, it is not recommended.
            most_pairs = LEAST_PAIRS
        while attempt.pairs < most_pairs:
            began = time.perf_counter()
            if attempt.pairs % 2:
                changed, unchanged = self._turn(plan, change), self._turn(plan)
            else:
                unchanged, changed = self._turn(plan), self._turn(plan, change)
            attempt.unchanged.append(unchanged)
            attempt.changed.append(changed)
            now = time.perf_counter()
            pair_s = now - began
            missing = LEAST_PAIRS - attempt.pairs
            # The number of turns depends on the time alone, never on what they show.
            if missing <= 0 and now + pair_s > until:
                break
            if missing > 0 and now + missing * pair_s > until + _GRACE * self._budget_s:
                needed = self._budget_s + now + missing * pair_s - until
                raise _TooLittleTime(
                    f"{LEAST_PAIRS} turns of it do not fit into the time; --budget"
                    f" {math.ceil(1.2 * needed)} is enough"
                )

    def _first_ms(self, first: Timing, changed: Sequence[Timing]) -> float:
        """Added time of the first steps with the change."""
        if self._steps:
            later = first.before_s - min(timing.before_s for timing in self._unchanged)
        else:
            later = first.seconds - min(timing.seconds for timing in changed)
        return 1000 * max(later, 0.0)

    def _per_step_ms(self, timings: Sequence[Timing], examples: int = 1) -> NDArray[np.float64]:
        """Times of the examples that a step of the unchanged program has.

        Parameters
        ----------
        timings : sequence of Timing
        examples : int
            By how many times a step has more of them. The program as a whole has as many.
        """
        steps = examples * np.array([timing.steps for timing in timings])
        if not self._steps:
            steps = np.full(len(timings), self._units)
        milliseconds = np.array([1000 * timing.seconds for timing in timings])
        per_step: NDArray[np.float64] = milliseconds / steps
        return per_step


def _refusal(experiment: Experiment, observation: Observation) -> str:
    try:
        return experiment.refusal(observation)
    except Exception as error:
        # Of an object of a kind that nobody thought of; the others are tried.
        return f"the program could not be read: {type(error).__name__}"


def _about(attempt: Attempt) -> Tried:
    """An experiment of which nothing is known yet."""
    experiment = attempt.experiment
    return Tried(experiment.name, experiment.title, attempt.rule, "", experiment.code)


def _is_unsure(tried: Tried) -> bool:
    """Return whether more turns may tell if the change is worth it."""
    worth_ms = WORTH * tried.baseline_ms
    return tried.equal is True and tried.gain_low_ms < worth_ms <= tried.gain_high_ms


def _judged(
    about: Tried,
    results: Equality,
    unchanged: NDArray[np.float64],
    changed: NDArray[np.float64],
    confidence: float,
) -> Tried:
    """The result by pairs of turns."""
    gain, low, high = statistics.median_of(unchanged - changed, confidence)
    pays_after = None
    if low > 0:
        pays_after = math.ceil(about.first_ms / gain)
    measured = replace(
        about,
        baseline_ms=statistics.median_of(unchanged, confidence).value,
        gain_ms=gain,
        gain_low_ms=low,
        gain_high_ms=high,
        pays_after=pays_after,
        pairs=len(changed),
    )
    why = _objection(measured, results)
    return replace(measured, recommended=not why, why=why or FASTER)


def _of_tradeoff(tried: Tried, experiment: Experiment) -> Tried:
    """The result of a change by which something is given up, or learned in another way.

    Its first steps are not compared: those of larger batches compute more.
    """
    why = SLOWER if tried.gain_high_ms < 0 else NOT_FASTER
    if tried.gain_low_ms > 0:
        saved = 100 * tried.gain_ms / tried.baseline_ms
        subject = "as many examples take" if experiment.examples > 1 else "a step takes"
        why = f"{subject} {saved:.0f}% less time; {experiment.tradeoff}"
    return replace(tried, why=why, recommended=False, first_ms=math.nan, pays_after=None)


def _objection(measured: Tried, results: Equality) -> str:
    """Why a change is not recommended; empty if it is."""
    if results.equal is None:
        return UNKNOWN_RESULTS
    if not results.equal:
        return (
            f"the results are not equal: their relative difference is {results.difference:.2g}, and"
            f" that of two unchanged runs {results.spread:.2g}"
        )
    if measured.gain_high_ms < 0:
        return SLOWER
    if measured.gain_low_ms <= 0:
        return NOT_FASTER
    if measured.gain_low_ms < WORTH * measured.baseline_ms:
        return LITTLE
    return ""


def try_remedies(
    make: Callable[[], Program],
    profile: Profile | Run,
    options: Options,
    requested: str,
    budget_s: float,
    report: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Run the experiments of a profile's findings, and describe what came of them.

    Parameters
    ----------
    make : callable
        Makes the program that was recorded.
    profile : Profile or Run
    options : Options
        Of the recording.
    requested : str
        A rule, an experiment, or `nbprof.capture.experiments.register.ALL`.
    budget_s : float
    report : callable, optional

    Returns
    -------
    dict
        `text`, a sentence on why nothing or not all was tried, which may be empty; `rows`, the
        results as `Tried.to_dict` has them.
    """
    from nbprof.capture.experiments import register
    from nbprof.run.run import Run

    run = profile if isinstance(profile, Run) else profile.run
    capture = run.capture
    steps = capture.steps_seen if capture is not None else 0
    backend = capture.backend if capture is not None else ""
    rules = run.predicted_advice["rule"].tolist()
    experiments = register.chosen(requested, rules, backend)
    if active() is not None:
        return {"text": f"{_NOTHING}: a recording is running.", "rows": []}
    if capture is not None and capture.cell_failed:
        return {"text": f"{_NOTHING}: the program did not finish.", "rows": []}
    if not experiments:
        return {"text": f"{_NOTHING}: no finding has an experiment.", "rows": []}
    text = ""
    tried: list[Tried] = []
    try:
        engine = Engine(
            make(),
            options,
            steps=steps,
            units=len(run.steps),
            budget_s=budget_s,
            recorded=as_recorded.of_run(run),
        )
        tried = engine.tried
        engine.run(experiments, report)
    except Refused as reason:
        text = f"{_NOTHING}: {reason}"
    except KeyboardInterrupt:
        text = "The experiments were interrupted. What they changed was restored."
    except Exception as error:
        text = f"The experiments failed: {type(error).__name__}: {error}"
    return {"text": text, "rows": [result.to_dict() for result in tried]}
