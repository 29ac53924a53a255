"""`nbprof.expect(profile)`: limits of a profile, chained and verified at the end of the chain."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from nbprof.activity.unit import Unit
from nbprof.analysis.compare import repeats as compare_repeats
from nbprof.analysis.compare.compare import BARE, RECORDED
from nbprof.analysis.figures import mean
from nbprof.capture.block import profile as block
from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.wording import plural
from nbprof.gate import policy
from nbprof.gate.baseline import Baseline, machine_difference, machine_of
from nbprof.gate.figures import KINDS, OF_UNITS, Times, figure, other_units, repeats, unit_of
from nbprof.gate.limits import amount, fraction
from nbprof.gate.outcome import FAIL, PASS, UNKNOWN, Outcome
from nbprof.gate.record import Repeated
from nbprof.profiles.load import read
from nbprof.profiles.profile import Profile

if TYPE_CHECKING:
    from nbprof.sources.locate import Source

_CHANGED_ROWS = {"kernels": "kernels", "launches": "kernels", "recompiles": "ops", "flops": "ops"}
"""Rows that the failure of a figure lists besides the values."""


class ExpectationFailed(AssertionError):  # noqa: N818 - it is read as a failed assertion
    """A profile does not meet its limits; the text lists each, one per line."""


@dataclass
class _Check:
    name: str
    # Does not refer to the chain, which must be collected, and warn, once it is unreferenced.
    judge: Callable[[Expectation, str], Outcome]
    unknown: str | None


class _State:
    """Verification state of an expectation; it outlives the expectation."""

    done = False
    location = ""


def expect(
    profile: Profile | block | Source,
    /,
    *repetitions: Profile | block | Source,
    unknown: str | None = None,
    update: str | None = None,
) -> Expectation:
    """Say what a profile must not exceed.

    All checks of a chain are made at its end, and one failure lists them all. In a test under
    nbprof's pytest plugin, that is the end of the test, which fails with them. Elsewhere,
    `verify()`, the end of a `with` block or `assert` before the chain ends it; a chain without an
    end warns, since it checks nothing.

    Parameters
    ----------
    profile : Profile, nbprof.profile, str or path
        A profile, a block that was recorded, or whatever `nbprof.load` takes; profiles of the
        fixture `nbprof_profile` include their repeats.
    *repetitions
        Repeats of the same run.
    unknown : {"fail", "warn", "skip"}, optional
        Action if a figure is unknown; by default that of `--nbprof-unknown`, else `fail` if the
        environment has `CI` and `warn` elsewhere.
    update : {"new", "add", ""}, optional
        `new` writes the baseline instead of comparing with it, `add` adds the step times of this
        run to the baseline; by default as `--nbprof-update` and `--nbprof-add` say.

    Returns
    -------
    Expectation

    Raises
    ------
    ReadError
        A profile does not exist, is not a profile or is damaged.

    Examples
    --------
    >>> nbprof.expect(p).kernels(max=410).syncs(max=0).verify()   # doctest: +SKIP
    >>> expected = nbprof.expect(p).against("baselines/step.json")   # doctest: +SKIP
    >>> expected.kernels().step_time(slower="5 %").verify()   # doctest: +SKIP
    """
    profiles: list[Profile] = []
    for recorded in (profile, *repetitions):
        profiles += _profiles(recorded)
    return Expectation(profiles, unknown=unknown, update=update)


def _profiles(recorded: Profile | block | Source) -> list[Profile]:
    if isinstance(recorded, block):
        if recorded.result is None:
            raise NbprofError(f"nothing was recorded: {recorded._reason}")
        return [recorded.result]
    if isinstance(recorded, Repeated):
        return list(recorded.repeats)
    if isinstance(recorded, Profile):
        return [recorded]
    return [read(recorded)]


class Expectation:
    """A chain of checks of one profile; see `expect`. Each method adds one and returns the chain.

    A count takes `max`, the largest value that passes; without it, the value in the baseline. Each
    check takes `unknown` as `expect` does.
    """

    def __init__(
        self, profiles: list[Profile], *, unknown: str | None = None, update: str | None = None
    ) -> None:
        rules = policy.current()
        self.profiles = profiles
        self._runs = [profile.run for profile in profiles]
        _check_same_framework(profiles)
        self._unknown = rules.unknown
        if unknown is not None:
            self._unknown = policy.checked(unknown)
        self._update = rules.update if update is None else update
        self._must_write = bool(update)
        if self._update not in ("", *policy.UPDATES):
            raise NbprofError(f"update may be 'new' or 'add', not {update!r}")
        self._policy = rules
        self._path: Path | None = None
        self._same_machine = False
        self._checks: list[_Check] = []
        self._baseline: Baseline | None = None
        self.outcomes: list[Outcome] = []
        self._state = _State()
        self._state.location = _caller()
        if rules.pending is not None:
            rules.pending.append(self)
        weakref.finalize(self, _never_verified, self._state)

    def against(self, path: str | Path, *, same_machine: bool = False) -> Expectation:
        """Compare with the baseline in a file; `--nbprof-update` writes it.

        Parameters
        ----------
        path : str or path
            Under pytest, relative to its root folder.
        same_machine : bool
            You vouch that both were recorded on the same machine: times are compared even if the
            profiles do not show that.
        """
        self._path = Path(path).expanduser()
        if self._policy.root is not None:
            self._path = self._policy.root / self._path
        self._same_machine = same_machine
        return self

    def baseline_counts(self) -> list[str]:
        """Names of the counts in the baseline; all if it is to be written or does not exist."""
        if self._path is None or self._update == "new" or not self._path.exists():
            return list(KINDS)
        counts = Baseline.read(self._path).counts
        return [name for name in KINDS if name in counts]

    def kernels(self, max: float | None = None, *, unknown: str | None = None) -> Expectation:
        """Kernels that run on the device per step."""
        return self._at_most("kernels", max, unknown)

    def launches(self, max: float | None = None, *, unknown: str | None = None) -> Expectation:
        """Calls of the host that launch kernels per step; a graph of many kernels is one."""
        return self._at_most("launches", max, unknown)

    def syncs(self, max: float | None = None, *, unknown: str | None = None) -> Expectation:
        """Calls in which the host waits for the device per step."""
        return self._at_most("syncs", max, unknown)

    def recompiles(self, max: float | None = None, *, unknown: str | None = None) -> Expectation:
        """Programs compiled, or functions traced, after warm-up."""
        return self._at_most("recompiles", max, unknown)

    def pageable_copies(
        self, max: float | None = None, *, unknown: str | None = None
    ) -> Expectation:
        """Copies from or to memory of the host that is not pinned, per step."""
        return self._at_most("pageable_copies", max, unknown)

    def collective_bytes(
        self, max: float | str | None = None, *, unknown: str | None = None
    ) -> Expectation:
        """Bytes of the collectives of a rank per step."""
        return self._at_most("collective_bytes", max, unknown)

    def flops(self, max: float | str | None = None, *, unknown: str | None = None) -> Expectation:
        """Floating-point operations of compiled programs per step."""
        return self._at_most("flops", max, unknown)

    def peak_memory(
        self, max: float | str | None = None, *, unknown: str | None = None
    ) -> Expectation:
        """Peak memory, as `p.overview["peak_memory_bytes"]`; "1.2 GB" is 1.2e9 bytes."""
        return self._at_most("peak_memory", max, unknown)

    def dropped(self, max: float | None = None, *, unknown: str | None = None) -> Expectation:
        """Events that the recording lost."""
        return self._at_most("dropped", max, unknown)

    def step_time(self, *, slower: str, unknown: str | None = None) -> Expectation:
        """Step time against the baseline, of the steps that ran without the profiler where both
        have such steps, else of the recorded ones.

        Parameters
        ----------
        slower : str
            The slowdown that is not acceptable, "5 %". The check fails if the step is slower by
            more than chance and such a slowdown is not excluded; it passes if such a slowdown is
            excluded; otherwise the noise is too large to tell, and the outcome is unknown.
        """
        allowed = fraction(slower, "step_time")
        return self._add(
            "step_time", lambda self, unknown: self._step_time(allowed, unknown), unknown
        )

    def verify(self) -> list[Outcome]:
        """Make the checks, and raise if one is not met.

        Returns
        -------
        list of Outcome
            One per check.

        Raises
        ------
        ExpectationFailed
            At least one check failed, or is unknown where that fails.
        NbprofError
            There is no check, a check needs a baseline that does not exist, or the baseline could
            not be read or written.
        """
        __tracebackhide__ = True
        self.judge()
        failed = [outcome for outcome in self.outcomes if outcome.failed]
        if failed:
            heading = "1 expectation not met"
            if len(self.outcomes) > 1:
                heading = f"{len(failed)} of {len(self.outcomes)} expectations not met"
            raise ExpectationFailed("\n".join([heading, *(f"  {outcome}" for outcome in failed)]))
        if self._policy.pending is None:
            for outcome in self.outcomes:
                if outcome.outcome == UNKNOWN:
                    text = f"nbprof: {outcome.check} is unknown: {outcome.text}"
                    warnings.warn(text, RuntimeWarning, stacklevel=2)
        return self.outcomes

    def judge(self) -> list[Outcome]:
        """Make the checks, and return the outcomes without raising for those that failed.

        Raises
        ------
        NbprofError
            As `verify`.
        """
        __tracebackhide__ = True
        self._state.done = True
        if not self._checks:
            raise NbprofError(
                "nbprof.expect(...) has no checks, so it checks nothing: add one, such as"
                " .kernels(max=410)"
            )
        self.outcomes = self._judge()
        return self.outcomes

    def abandon(self) -> None:
        """Skip the checks without a warning: the test has failed already."""
        self._state.done = True

    @property
    def verified(self) -> bool:
        """True once the checks were made or abandoned."""
        return self._state.done

    @property
    def location(self) -> str:
        """File and line that created the expectation."""
        return self._state.location

    def __bool__(self) -> bool:
        __tracebackhide__ = True
        self.verify()
        return True

    def __enter__(self) -> Expectation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True
        if error is None:
            self.verify()
        else:
            self.abandon()

    def _add(
        self, name: str, judge: Callable[[Expectation, str], Outcome], unknown: str | None
    ) -> Expectation:
        # The chain is unverified again, even if it was verified before.
        self._state.done = False
        if unknown is not None:
            unknown = policy.checked(unknown)
        self._checks.append(_Check(name, judge, unknown))
        return self

    def _at_most(self, name: str, maximum: float | str | None, unknown: str | None) -> Expectation:
        limit = None if maximum is None else amount(maximum, name)
        return self._add(name, lambda self, unknown: self._count(name, limit, unknown), unknown)

    def _judge(self) -> list[Outcome]:
        if self._must_write and self._path is None:
            raise NbprofError(
                f"update={self._update!r} names no file: add .against(path) to the chain"
            )
        written = None
        if self._path is not None and self._update:
            if self._baseline is None:
                written = self._baseline = self._new_baseline(self._path)
        elif self._path is not None and self._path.exists():
            self._baseline = Baseline.read(self._path)
        outcomes = [check.judge(self, check.unknown or self._unknown) for check in self._checks]
        if written is None or self._path is None:
            return outcomes
        if self._update == "add" and any(outcome.outcome == FAIL for outcome in outcomes):
            return self._not_added(outcomes)
        written.write(self._path)
        self._policy.written.add(self._path.resolve())
        return outcomes

    def _not_added(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Report step times as not added: they are of other code than those of the baseline."""
        title = _time(unit_of(self._runs))
        text = f"{title}: not added to the baseline, since another check failed"
        changed = []
        for outcome in outcomes:
            if outcome.check == "step_time":
                outcome = outcome._replace(outcome=UNKNOWN, text=text)
            changed.append(outcome)
        return changed

    def _new_baseline(self, path: Path) -> Baseline:
        """The baseline to write."""
        if path.resolve() in self._policy.written:
            raise NbprofError(
                f"{path} was written by another expectation of this session: give each a separate"
                " baseline"
            )
        baseline = Baseline.of(self._runs)
        if self._update != "add" or not path.exists():
            return baseline
        before = Baseline.read(path)
        reason = other_units(self._runs, before.unit)
        if not reason and not self._same_machine:
            reason = machine_difference(before.machine, baseline.machine)
        if reason:
            raise NbprofError(
                f"{path}: the {_times(unit_of(self._runs))} of this run were not added: {reason}"
            )
        before.add(baseline)
        return before

    def _compared(self, name: str) -> Baseline | str:
        """The baseline, or why a check that needs one fails."""
        if self._path is None:
            reason = "no max= was given, nor a baseline"
            if name == "step_time":
                reason = "slower= needs a baseline"
            raise NbprofError(f"{name}: {reason}: add .against(path) to the chain")
        if self._baseline is None:
            return (
                f"there is no baseline {self._path}: pytest --nbprof-update writes it, as does"
                " update='new'"
            )
        return self._baseline

    def _count(self, name: str, limit: float | None, unknown: str) -> Outcome:
        kind = KINDS[name]
        title = kind.title(unit_of(self._runs))
        value, doubt = figure(self._runs, name)

        def outcome(state: str, text: str) -> Outcome:
            return Outcome(name, state, f"{title}: {text}", value, limit, unknown=unknown)

        mixed = self._other_units(name)
        if mixed:
            return outcome(UNKNOWN, mixed)._replace(value=None, limit=None)
        if limit is not None:
            allowed = f"at most {kind.text(limit)} allowed"
        else:
            baseline = self._compared(name)
            if isinstance(baseline, str):
                return outcome(FAIL, baseline)
            if self._update == "new":
                return self._written(outcome, kind.text, value, doubt)
            reason = self._other_units(name, baseline.unit)
            if reason:
                return outcome(UNKNOWN, reason)
            if name not in baseline.counts:
                return outcome(
                    UNKNOWN,
                    "it is not in the baseline; write the baseline again where it is known",
                )
            limit = baseline.counts[name]
            allowed = f"{kind.text(limit)} in the baseline"
        if value is not None and value > limit * (1 + 1e-9):
            failed = outcome(FAIL, f"{kind.text(value)}, {allowed}")
            return failed._replace(changed=self._changed(_CHANGED_ROWS.get(name, ""), "calls"))
        if doubt:
            text = f"{allowed}; {doubt}"
            if value is not None:
                text = f"{kind.text(value)} or more, {text}"
            return outcome(UNKNOWN, text)
        return outcome(PASS, f"{kind.text(value or 0.0)}, {allowed}")

    def _other_units(self, name: str, unit: str = "") -> str:
        """Why a count that is per unit cannot be judged; "" if it can."""
        if name not in OF_UNITS:
            return ""
        return other_units(self._runs, unit)

    def _step_time(self, allowed: float, unknown: str) -> Outcome:
        title = _time(unit_of(self._runs))
        times = repeats(self._runs)
        reason = times.reason or other_units(self._runs)
        value, steps_are = times.value, ""
        if value is not None:
            steps_are = BARE if times.bare else RECORDED

        def outcome(state: str, text: str) -> Outcome:
            return Outcome(
                "step_time",
                state,
                f"{title}: {text}",
                value,
                unknown=unknown,
                steps_are=steps_are,
            )

        baseline = self._compared("step_time")
        if isinstance(baseline, str):
            return outcome(FAIL, baseline)
        if self._update:
            return self._written(outcome, _written_time(times), value, reason)
        bare_runs = baseline.timed_bare
        bare = bool(times.bare) and len(bare_runs) >= compare_repeats.LEAST
        reason = reason or self._incomparable(baseline, bare=bare)
        if reason:
            return outcome(UNKNOWN, reason)
        recorded = compare_repeats.slowdown(baseline.runs, times.recorded, allowed)
        if not bare:
            compared = self._slowdown_outcome(recorded, allowed, len(baseline.runs), unknown)
            note = _why_recorded(times, len(bare_runs))
            return compared._replace(text=compared.text + note, steps_are=RECORDED)
        slowdown = compare_repeats.slowdown(bare_runs, times.bare, allowed)
        compared = self._slowdown_outcome(
            slowdown, allowed, len(bare_runs), unknown, " without recording"
        )
        before, after = wording.millis(recorded.before), wording.millis(recorded.after)
        note = f"; recorded: {after}, {before} in the baseline"
        return compared._replace(text=compared.text + note, steps_are=BARE)

    def _incomparable(self, baseline: Baseline, *, bare: bool) -> str:
        """Why step times cannot be compared with those of the baseline; "" if they can."""
        reason = other_units(self._runs, baseline.unit)
        if not reason and not self._same_machine:
            reason = machine_difference(baseline.machine, machine_of(self._runs[0]), bare=bare)
        if not reason and len(baseline.runs) < compare_repeats.LEAST:
            reason = (
                f"the baseline has the {_times(unit_of(self._runs))} of"
                f" {plural(len(baseline.runs), 'run')}, and the noise between runs takes"
                f" {compare_repeats.LEAST}: --nbprof-add adds one"
            )
        return reason

    def _slowdown_outcome(
        self,
        slowdown: compare_repeats.Slowdown,
        allowed: float,
        runs: int,
        unknown: str,
        without: str = "",
    ) -> Outcome:
        unit = unit_of(self._runs)
        title = f"{_time(unit)}{without}"
        if slowdown.of != "mean" and not unit.is_recording:
            title = f"typical {title}"
        before, after = wording.millis(slowdown.before), wording.millis(slowdown.after)
        change = f"{100 * slowdown.change:+.1f} ± {100 * slowdown.margin:.1f} %".replace("-", "−")
        text = (
            f"{title}: {after}, {before} in the baseline: {change}"
            f" (99 %; {runs} runs in the baseline)"
        )
        outcomes = {compare_repeats.SLOWER: FAIL, compare_repeats.FINE: PASS}
        outcome = outcomes.get(slowdown.kind, UNKNOWN)
        if outcome == UNKNOWN:
            text += (
                f"; the noise between runs is too large to tell whether it is {100 * allowed:g} %"
                " slower: add runs to the baseline"
            )
        if slowdown.change + slowdown.margin < -allowed:
            text += "; write the baseline again, or a slowdown of this size will go unnoticed"
        changed: tuple[str, ...] = ()
        if outcome == FAIL:
            changed = self._changed("ops", "us")
        limit = slowdown.before * (1 + allowed)
        return Outcome("step_time", outcome, text, slowdown.after, limit, changed, unknown)

    def _written(
        self,
        outcome: Callable[[str, str], Outcome],
        value_text: Callable[[float], str],
        value: float | None,
        reason: str,
    ) -> Outcome:
        """The outcome of a check whose figure was written to the baseline."""
        if reason or value is None:
            return outcome(
                UNKNOWN, f"not in the baseline that was written: {reason or 'it is not known'}"
            )
        return outcome(PASS, f"{value_text(value)}, written to {self._path}")

    def _changed(self, table: str, column: str) -> tuple[str, ...]:
        if not table or self._baseline is None or self._update:
            return ()
        return tuple(self._baseline.changes(self._runs[0], table, column))


def _time(unit: Unit) -> str:
    """The compared time: "step time", "call time", or "duration of the recording"."""
    return "duration of the recording" if unit.is_recording else unit.time


def _written_time(times: Times) -> Callable[[float], str]:
    """The text of the step time that is written to a baseline."""
    if not times.bare:
        return wording.millis
    recorded = mean(np.array([repeat.mean for repeat in times.recorded]))
    return lambda bare: f"{wording.millis(bare)} without recording, {wording.millis(recorded)} with"


def _why_recorded(times: Times, runs: int) -> str:
    """Why recorded steps were compared, if one of the two has bare ones; else ""."""
    if times.bare:
        of_baseline = f"{plural(runs, 'run')} of the baseline {'has' if runs == 1 else 'have'} them"
        return (
            "; compared are recorded steps: those without recording take"
            f" {compare_repeats.LEAST} runs, and {of_baseline}"
        )
    if runs:
        return f"; compared are recorded steps, for those without recording: {times.bare_reason}"
    return ""


def _times(unit: Unit) -> str:
    return "durations" if unit.is_recording else f"{unit.time}s"


def _check_same_framework(profiles: list[Profile]) -> None:
    """Refuse runs of several frameworks, which cannot be repeats of one run."""
    if len(profiles) < 2:
        return
    names: dict[str, str] = {}
    for profile in profiles:
        names.setdefault(profile.run.stated["framework"], profile.run.source.name)
    names.pop("", None)
    if len(names) > 1:
        named = " and ".join(f"{name} of {framework}" for framework, name in names.items())
        raise NbprofError(
            f"{named} are not repeats of one run: check each against its limits separately"
        )


def _caller() -> str:
    """File and line of the code outside this package that made an expectation."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if not frame.f_globals.get("__name__", "").startswith("nbprof.gate"):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _never_verified(state: _State) -> None:
    if not state.done:
        state.done = True
        text = (
            f"{state.location}: nbprof.expect(...) was never verified, so it checked nothing: end"
            " the chain with .verify()"
        )
        # At the end of a process warnings may be off already.
        sys.stderr.write(f"nbprof: {text}\n")
        warnings.warn(text, RuntimeWarning, stacklevel=2)
