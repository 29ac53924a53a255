"""`nbprof.expect(profile)`: what a profile must not exceed, said in a chain and verified at its
end.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from nbprof.activity.unit import Unit
from nbprof.analysis.compare import repeats as compare_repeats
from nbprof.capture.block import profile as block
from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.wording import plural
from nbprof.gate import policy
from nbprof.gate.baseline import Baseline, another, machine_of
from nbprof.gate.figures import KINDS, OF_UNITS, figure, other_units, repeats, unit_of
from nbprof.gate.limits import amount, fraction
from nbprof.gate.outcome import FAIL, PASS, UNKNOWN, Outcome
from nbprof.gate.record import Repeated
from nbprof.profiles.load import read
from nbprof.profiles.profile import Profile

if TYPE_CHECKING:
    from nbprof.sources.locate import Source

_NAMES = {"kernels": "kernels", "launches": "kernels", "recompiles": "ops", "flops": "ops"}
"""What a failure of a figure names beside the values."""


class ExpectationFailed(AssertionError):  # noqa: N818 - it is read as a failed assertion
    """Something is worse than expected; the text says all that is, one line each."""


@dataclass
class _Check:
    name: str
    # Without the chain in it: that is to vanish, and to warn, as soon as nobody has it any more.
    judge: Callable[[Expectation, str], Outcome]
    unknown: str | None


class _State:
    """Whether somebody has looked at the outcomes; it outlives the expectation."""

    done = False
    where = ""


def expect(
    profile: Profile | block | Source,
    /,
    *others: Profile | block | Source,
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
        A profile, a block that was recorded, or whatever `nbprof.load` takes; what the fixture
        `nbprof_profile` gives has its repeats.
    *others
        Repeats of the same run.
    unknown : {"fail", "warn", "skip"}, optional
        What to do if a figure is unknown; by default what `--nbprof-unknown` says, else `fail` if
        the environment has `CI` and `warn` elsewhere.
    update : {"new", "add", ""}, optional
        `new` writes the baseline instead of comparing with it, `add` adds the step times of this
        run to the baseline; by default what `--nbprof-update` and `--nbprof-add` say.

    Returns
    -------
    Expectation

    Raises
    ------
    ReadError
        A profile does not exist, is not a profile or is damaged.

    Examples
    --------
    >>> nbprof.expect(p).kernels(max=410).syncs(max=0).peak_memory(max="1.2 GB").verify()   # doctest: +SKIP
    >>> nbprof.expect(p).against("baselines/step.json").kernels().step_time(slower="5 %").verify()   # doctest: +SKIP
    """
    profiles = [found for one in (profile, *others) for found in _profiles(one)]
    return Expectation(profiles, unknown=unknown, update=update)


def _profiles(one: Profile | block | Source) -> list[Profile]:
    if isinstance(one, block):
        if one.result is None:
            raise NbprofError(f"nothing was recorded: {one._reason}")
        return [one.result]
    return (
        list(one.repeats)
        if isinstance(one, Repeated)
        else [one if isinstance(one, Profile) else read(one)]
    )


class Expectation:
    """A chain of checks of one profile; see `expect`. Each method adds one and returns the chain.

    A count takes `max`, the largest value that passes; without it, the value in the baseline. Each
    check takes `unknown` as `expect` does.
    """

    def __init__(
        self, profiles: list[Profile], *, unknown: str | None = None, update: str | None = None
    ) -> None:
        held = policy.current()
        self.profiles = profiles
        self._runs = [profile.run for profile in profiles]
        _one_framework(profiles)
        self._unknown = held.unknown if unknown is None else policy.checked(unknown)
        self._update = held.update if update is None else update
        self._must_write = bool(update)
        if self._update not in ("", *policy.UPDATES):
            raise NbprofError(f"update may be 'new' or 'add', not {update!r}")
        self._policy = held
        self._path: Path | None = None
        self._same_machine = False
        self._checks: list[_Check] = []
        self._baseline: Baseline | None = None
        self.outcomes: list[Outcome] = []
        self._state = _State()
        self._state.where = _caller()
        if held.pending is not None:
            held.pending.append(self)
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
        target = Path(path).expanduser()
        self._path = target if self._policy.root is None else self._policy.root / target
        self._same_machine = same_machine
        return self

    def known(self) -> list[str]:
        """The counts that the baseline has, or all where it is to be written or is not there."""
        if self._path is None or self._update == "new" or not self._path.exists():
            return list(KINDS)
        held = Baseline.read(self._path).counts
        return [name for name in KINDS if name in held]

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
        """The most memory in use at once, as `p.overview["peak_memory_bytes"]`; "1.2 GB" is 1.2e9
        bytes.
        """
        return self._at_most("peak_memory", max, unknown)

    def dropped(self, max: float | None = None, *, unknown: str | None = None) -> Expectation:
        """Events that the recording lost."""
        return self._at_most("dropped", max, unknown)

    def step_time(self, *, slower: str, unknown: str | None = None) -> Expectation:
        """Step time against the baseline.

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
        """Make the checks.

        Returns
        -------
        list of Outcome
            One a check, where the gate is open.

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
        failed = [one for one in self.outcomes if one.failed]
        if failed:
            count = (
                f"{len(failed)} of {len(self.outcomes)} expectations"
                if len(self.outcomes) > 1
                else "1 expectation"
            )
            raise ExpectationFailed(
                "\n".join([f"{count} not met", *(f"  {one}" for one in failed)])
            )
        if self._policy.pending is None:
            for one in self.outcomes:
                if one.outcome == UNKNOWN:
                    warnings.warn(
                        f"nbprof: {one.check} is unknown: {one.text}", RuntimeWarning, stacklevel=2
                    )
        return self.outcomes

    def judge(self) -> list[Outcome]:
        """Make the checks as `verify` does, and raise nothing for what failed: whoever asks sees to
        the outcomes.

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
        self.outcomes = self._judged()
        return self.outcomes

    def abandon(self) -> None:
        """Leave it unverified without a warning: the test has failed already."""
        self._state.done = True

    @property
    def verified(self) -> bool:
        """Whether the checks were made, or given up."""
        return self._state.done

    @property
    def where(self) -> str:
        """File and line that made it."""
        return self._state.where

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
        # What is added to a chain that was verified has to be verified as well.
        self._state.done = False
        self._checks.append(
            _Check(name, judge, None if unknown is None else policy.checked(unknown))
        )
        return self

    def _at_most(self, name: str, most: float | str | None, unknown: str | None) -> Expectation:
        limit = None if most is None else amount(most, name)
        return self._add(name, lambda self, unknown: self._count(name, limit, unknown), unknown)

    def _judged(self) -> list[Outcome]:
        if self._must_write and self._path is None:
            raise NbprofError(
                f"update={self._update!r} names no file: add .against(path) to the chain"
            )
        made = None
        if self._path is not None and self._update:
            if self._baseline is None:
                made = self._baseline = self._made(self._path)
        elif self._path is not None and self._path.exists():
            self._baseline = Baseline.read(self._path)
        outcomes = [check.judge(self, check.unknown or self._unknown) for check in self._checks]
        if made is None or self._path is None:
            return outcomes
        if self._update == "add" and any(one.outcome == FAIL for one in outcomes):
            # Its step times are of other code than those that the baseline has.
            text = (
                f"{_time(unit_of(self._runs))}: not added to the baseline, since another check"
                " failed"
            )
            return [
                one._replace(outcome=UNKNOWN, text=text) if one.check == "step_time" else one
                for one in outcomes
            ]
        made.write(self._path)
        self._policy.written.add(self._path.resolve())
        return outcomes

    def _made(self, path: Path) -> Baseline:
        """The baseline that is to be written."""
        if path.resolve() in self._policy.written:
            raise NbprofError(
                f"{path} was written by another expectation of this session: give each a separate"
                " baseline"
            )
        mine = Baseline.of(self._runs)
        if self._update == "add" and path.exists():
            before = Baseline.read(path)
            reason = other_units(self._runs, before.unit) or (
                "" if self._same_machine else another(before.machine, mine.machine)
            )
            if reason:
                raise NbprofError(
                    f"{path}: the {_times(unit_of(self._runs))} of this run were not added:"
                    f" {reason}"
                )
            before.add(mine)
            return before
        return mine

    def _compared(self, name: str) -> Baseline | str:
        """The baseline, or why a check that needs one fails."""
        if self._path is None:
            what = (
                "slower= needs a baseline"
                if name == "step_time"
                else "no max= was given, nor a baseline"
            )
            raise NbprofError(f"{name}: {what}: add .against(path) to the chain")
        if self._baseline is None:
            return (
                f"there is no baseline {self._path}: pytest --nbprof-update writes it, as does"
                " update='new'"
            )
        return self._baseline

    def _count(self, name: str, limit: float | None, unknown: str) -> Outcome:
        kind = KINDS[name]
        title = kind.title(unit_of(self._runs))
        found = figure(self._runs, name)
        given = limit is not None
        if name in OF_UNITS and (mixed := other_units(self._runs)):
            return Outcome(name, UNKNOWN, f"{title}: {mixed}", unknown=unknown)
        if limit is None:
            baseline = self._compared(name)
            if isinstance(baseline, str):
                return Outcome(name, FAIL, f"{title}: {baseline}", found.value, unknown=unknown)
            if self._update == "new":
                return self._written(name, title, found.value, found.unknown, unknown)
            if name in OF_UNITS and (reason := other_units(self._runs, baseline.unit)):
                return Outcome(name, UNKNOWN, f"{title}: {reason}", found.value, unknown=unknown)
            if name not in baseline.counts:
                text = (
                    f"{title}: it is not in the baseline; write the baseline again where it is"
                    " known"
                )
                return Outcome(name, UNKNOWN, text, found.value, unknown=unknown)
            limit = baseline.counts[name]
        allowed = (
            f"at most {kind.text(limit)} allowed"
            if given
            else f"{kind.text(limit)} in the baseline"
        )
        if found.value is not None and found.value > limit * (1 + 1e-9):
            text = f"{title}: {kind.text(found.value)}, {allowed}"
            return Outcome(
                name,
                FAIL,
                text,
                found.value,
                limit,
                self._changed(_NAMES.get(name, ""), "calls"),
                unknown,
            )
        if found.unknown:
            seen = "" if found.value is None else f"{kind.text(found.value)} or more, "
            return Outcome(
                name,
                UNKNOWN,
                f"{title}: {seen}{allowed}; {found.unknown}",
                found.value,
                limit,
                unknown=unknown,
            )
        return Outcome(
            name,
            PASS,
            f"{title}: {kind.text(found.value or 0.0)}, {allowed}",
            found.value,
            limit,
            unknown=unknown,
        )

    def _step_time(self, allowed: float, unknown: str) -> Outcome:
        title = _time(unit_of(self._runs))
        times, reason = repeats(self._runs)
        reason = reason or other_units(self._runs)
        value = sum(one.mean for one in times) / len(times) if times else None
        baseline = self._compared("step_time")
        if isinstance(baseline, str):
            return Outcome("step_time", FAIL, f"{title}: {baseline}", value, unknown=unknown)
        if self._update:
            return self._written("step_time", title, value, reason, unknown)
        reason = reason or other_units(self._runs, baseline.unit)
        if not reason and not self._same_machine:
            reason = another(baseline.machine, machine_of(self._runs[0]))
        if not reason and len(baseline.runs) < compare_repeats.LEAST:
            had = plural(len(baseline.runs), "run")
            known = f"the baseline has the {_times(unit_of(self._runs))} of {had}"
            reason = (
                f"{known}, and the noise between runs takes {compare_repeats.LEAST}: --nbprof-add"
                " adds one"
            )
        if reason:
            return Outcome("step_time", UNKNOWN, f"{title}: {reason}", value, unknown=unknown)
        found = compare_repeats.slowdown(baseline.runs, times, allowed)
        return self._told(found, allowed, f"{len(baseline.runs)} runs", unknown)

    def _told(
        self, found: compare_repeats.Slowdown, allowed: float, runs: str, unknown: str
    ) -> Outcome:
        unit = unit_of(self._runs)
        # Of one recording there is nothing that would be typical.
        step = _time(unit) if found.of == "mean" or unit.whole else f"typical {_time(unit)}"
        values = (
            f"{step}: {wording.millis(found.after)}, {wording.millis(found.before)} in the baseline"
        )
        change = f"{100 * found.change:+.1f} ± {100 * found.margin:.1f} % (99 %; {runs} in the baseline)".replace(
            "-", "−"
        )
        outcome = {compare_repeats.SLOWER: FAIL, compare_repeats.FINE: PASS}.get(
            found.kind, UNKNOWN
        )
        text = f"{values}: {change}"
        if outcome == UNKNOWN:
            text += (
                f"; the noise between runs is too large to tell whether it is {100 * allowed:g} %"
                " slower: add runs to the baseline"
            )
        if found.change + found.margin < -allowed:
            text += "; write the baseline again, or a slowdown of this size will go unnoticed"
        changed = self._changed("ops", "us") if outcome == FAIL else ()
        return Outcome(
            "step_time", outcome, text, found.after, found.before * (1 + allowed), changed, unknown
        )

    def _written(
        self, name: str, title: str, value: float | None, reason: str, unknown: str
    ) -> Outcome:
        if reason or value is None:
            return Outcome(
                name,
                UNKNOWN,
                f"{title}: not in the baseline that was written: {reason or 'it is not known'}",
                value,
                unknown=unknown,
            )
        text = KINDS[name].text(value) if name in KINDS else wording.millis(value)
        return Outcome(
            name, PASS, f"{title}: {text}, written to {self._path}", value, unknown=unknown
        )

    def _changed(self, what: str, of: str) -> tuple[str, ...]:
        if not what or self._baseline is None or self._update:
            return ()
        return tuple(self._baseline.changes(self._runs[0], what, of))


def _time(unit: Unit) -> str:
    """What is compared: "step time", "call time", or "duration of the recording"."""
    return "duration of the recording" if unit.whole else unit.time


def _times(unit: Unit) -> str:
    return "durations" if unit.whole else f"{unit.time}s"


def _one_framework(profiles: list[Profile]) -> None:
    """Refuse runs that cannot be repeats of one: the worst of theirs would be a figure of
    neither.
    """
    if len(profiles) < 2:
        return
    found: dict[str, str] = {}
    for profile in profiles:
        found.setdefault(profile.run.stated["framework"], profile.run.source.name)
    found.pop("", None)
    if len(found) > 1:
        named = " and ".join(f"{name} of {framework}" for framework, name in found.items())
        raise NbprofError(
            f"{named} are not repeats of one run: check each against its limits separately"
        )


def _caller() -> str:
    """File and line of the code outside this package that made an expectation."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        "nbprof.gate"
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _never_verified(state: _State) -> None:
    if not state.done:
        state.done = True
        text = (
            f"{state.where}: nbprof.expect(...) was never verified, so it checked nothing: end the"
            " chain with .verify()"
        )
        # At the end of a process warnings may be off already, and this must be seen.
        sys.stderr.write(f"nbprof: {text}\n")
        warnings.warn(text, RuntimeWarning, stacklevel=2)
