"""A `Comparison` of two runs, from `nbprof.compare(a, b)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.analysis.compare import compare as analysis
from nbprof.analysis.compare import findings as compare_findings
from nbprof.analysis.compare import verdict as compare_verdict
from nbprof.core.atomic_write import atomic_write
from nbprof.core.errors import NbprofError
from nbprof.profiles.load import read
from nbprof.profiles.profile import Profile
from nbprof.profiles.redaction import Redact, redacted
from nbprof.profiles.sides import sides
from nbprof.tools.accessor import ShownByMarimo
from nbprof.tools.plot import displayed

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.analysis.compare.compare import SideMemory
    from nbprof.sources.locate import Source
    from nbprof.tools.compare.parts import Compare
    from nbprof.tools.payloads import Payload

MOST_RUNS = 6
"""Runs in one comparison; each pair of them is compared."""


def compare(
    before: Profile | Source,
    after: Profile | Source,
    *others: Profile | Source,
    progress: Callable[[str], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Comparison:
    """Compare two runs: is the second one faster, is that more than chance, and what changed?

    Parameters
    ----------
    before, after : Profile, str, path or list
        Profiles, or whatever `nbprof.load` takes.
    *others
        More runs, at most six in all: the pickers of the view have each pair. The frames are of the
        first two.
    progress : callable, optional
        Called with progress messages while reading; try `print`.
    storage_options : dict, optional
        For fsspec.

    Returns
    -------
    Comparison
        In a notebook it displays as the dashboard of the second run, at its tab Compare.
        `nbprof.last` does not change.

    Raises
    ------
    ReadError
        One of the runs does not exist, is not a profile or is damaged.
    NbprofError
        More than six runs.

    Examples
    --------
    >>> c = nbprof.compare("logs/before", "logs/after")   # doctest: +SKIP
    >>> c.verdict.headline[0]                             # doctest: +SKIP
    >>> c.save("compare.html")                            # doctest: +SKIP
    """
    sources = [before, after, *others]
    if len(sources) > MOST_RUNS:
        raise NbprofError(
            f"a comparison takes at most {MOST_RUNS} runs, not {len(sources)}; compare the ones"
            " that matter"
        )
    try:
        profiles = []
        for source in sources:
            if not isinstance(source, Profile):
                source = read(source, progress=progress, storage_options=storage_options)
            profiles.append(source)
    except NbprofError as error:
        # As in `load`: the message is enough.
        raise error.with_traceback(None) from None
    return Comparison(profiles)


class Comparison(ShownByMarimo):
    """Two runs side by side: what got faster or slower, by how much, and whether the difference is
    significant.

    Parameters
    ----------
    profiles : sequence of Profile
        The one before, the one after, and further ones for the pickers of the view.

    Attributes
    ----------
    before, after : Profile
    """

    def __init__(self, profiles: Sequence[Profile]) -> None:
        if len(profiles) < 2:
            raise NbprofError("a comparison needs two runs")
        self.profiles = list(profiles)
        self.before, self.after = self.profiles[:2]
        self._runs = [profile.run for profile in self.profiles]
        self._sides = sides(self._runs)

    @cached_property
    def _verdict(self) -> compare_verdict.Verdict:
        before, after = self._sides[:2]
        return compare_verdict.verdict(before, after, self._categories)

    @cached_property
    def _categories(self) -> pd.DataFrame:
        return analysis.categories(*self._sides[:2])

    @cached_property
    def _part(self) -> Compare:
        """The tab Compare, from which text, Markdown, picture and page are made."""
        from nbprof.tools.compare import payload as view

        return view.payload(self._runs, self._sides, home=1)

    @property
    def verdict(self) -> pd.DataFrame:
        """One row: the answer and the difference of the step times.

        Of the steps that averages are of (`counted`), in time order; of several hosts the mean of
        each step. The change is **real** if the 95 % Welch interval excludes 0, also when it is
        made with the effective number of steps (they may resemble the one before: else `serial`).
        The means without the fastest and the slowest fifth are compared too (Yuen): if these differ
        and the means do not, the `typical` step has changed; if they do not, the change lies in
        `some` steps. `same`: equal times, as when one file is opened twice. `chance` and `none`:
        the interval includes 0; `chance` if the change is 5 % of a step or more. `unknown`: one
        step on a side, or none.
        """
        return pd.DataFrame([compare_verdict.record(self._verdict, *self._sides[:2])])

    @property
    def evidence(self) -> pd.DataFrame:
        """Facts that support the comparison (`ok`), differ or are unknown, such as the devices."""
        return pd.DataFrame(self._verdict.evidence, columns=["ok", "text"])

    @property
    def findings(self) -> pd.DataFrame:
        """Advice before and after: each finding of either run, what it predicts at most, and
        whether it is gone, still found or new.
        """
        return compare_findings.findings(*self._sides[:2])

    @property
    def figures(self) -> pd.DataFrame:
        """Step time, input wait, device busy, op time on the device, examples and steps per second,
        peak memory.

        Those that neither run has are omitted.
        """
        return analysis.figures(*self._sides[:2])

    @property
    def memory(self) -> pd.DataFrame:
        """Memory by role before and after, largest change first.

        At the peak (`p.memory.roles`) of the allocator with the largest peak of each run, on
        devices where there are some; else at snapshots of PyTorch's allocator, of the device with
        the most reserved memory (`p.allocator.roles`); else as the compiler planned the program
        with the largest peak. `moment` says which. Of a run without roles all bytes are missing,
        with the reason. Empty where neither run has any.
        """
        from nbprof.analysis.compare import memory

        return memory.roles(*self._memories())

    @property
    def allocator(self) -> pd.DataFrame:
        """Bytes in use at two snapshots of PyTorch's allocator by the stack that allocated them,
        largest change first: which stack holds more than before, which is new.

        Stacks are the same if all frames are; `moved` are stacks whose numbers of lines differ, as
        after an edit, where one is left on each side. Empty unless both runs have a snapshot.
        """
        from nbprof.analysis.compare import memory

        return memory.stacks(*self._memories())

    def _memories(self) -> tuple[SideMemory, SideMemory]:
        before, after = self._sides[:2]
        return before.memory(), after.memory()

    @property
    def steps(self) -> pd.DataFrame:
        """Every step of both runs, one row each: first those of `before`, then those of `after`;
        `counted` marks those in averages.
        """
        return analysis.steps(*self._sides[:2])

    @property
    def categories(self) -> pd.DataFrame:
        """`step_time` and each category in ms per step, each change with its own 95 % Welch
        interval.
        """
        return self._categories.copy()

    @property
    def ops(self) -> pd.DataFrame:
        """Self time of each op before and after, largest change first; in µs per step, if both runs
        have steps.

        The same are ops whose side, type and name are, or whose names differ only in the numbers
        that frameworks put behind copies of a name, where just one on each side is left
        (`renamed`). Time is divided by all steps of the run, as in the overview, so warm-up is in
        it.
        """
        return analysis.ops(*self._sides[:2])

    @property
    def kernels(self) -> pd.DataFrame:
        """Time of each GPU kernel before and after, by name; otherwise like `ops`."""
        return analysis.kernels(*self._sides[:2])

    @property
    def python(self) -> pd.DataFrame:
        """Sampled Python functions of both runs as one tree, each before those that it calls: ms
        per counted step where both runs have steps, else in the whole profile.

        A function is the same if its name, its file and its callers are. Each sample counts for the
        step in which it was taken, so that a change has a 95 % Welch interval, as the categories
        have; with fewer than five steps or samples, there is none.
        Empty unless both runs were sampled.
        """
        return analysis.python(*self._sides[:2])

    @property
    def device_ops(self) -> pd.DataFrame:
        """Modules (or name scopes), ops and kernels of both runs on devices as one tree, otherwise
        as `python`; times are over all steps, as those of `ops`, and have no interval.
        """
        before, after = self._sides[:2]
        return analysis.op_calls(before, after, "device")

    @property
    def host_ops(self) -> pd.DataFrame:
        """The same of ops on the host, which have no kernels: modules (or name scopes) and the ops
        in them.
        """
        before, after = self._sides[:2]
        return analysis.op_calls(before, after, "host")

    def payload(self, events: int | None = None) -> Payload:
        """The dashboard of the second run with up to `events` trace events, and its tab Compare."""
        from nbprof.tools.compare import payload as view

        return view.attach(self.after.payload(events), self._part)

    def _redacted_payload(self, events: int | None, redact: Redact) -> Payload:
        return redacted(self.payload(events), self._runs, redact)

    def _redacted_part(self, redact: Redact) -> Compare:
        return redacted(self._part, self._runs, redact)

    def text(self, *, redact: Redact = False) -> str:
        """The comparison as plain text; `redact` as `Profile.save` has it."""
        from nbprof.tools.compare import text as compare_text

        return compare_text.plain(self._redacted_part(redact))

    def markdown(self, *, redact: Redact = False) -> str:
        """The comparison as Markdown, for a pull request or an issue; `redact` as `Profile.save`
        has it.
        """
        return self._redacted_part(redact).pairs[0].markdown

    def figure(self, **options: Any) -> Model:
        """A Bokeh figure: the average step of both runs, stacked by category, on one scale."""
        from nbprof.tools.compare import figure as compare_figure

        labels = [side.label for side in self._sides[:2]]
        return displayed(compare_figure.compare(self._categories, labels, **options), self)

    def save(self, path: str | Path, *, events: int | None = None, redact: Redact = False) -> Path:
        """Write the comparison to one HTML file that needs no network and no kernel. An existing
        file is replaced.

        Parameters
        ----------
        path : str or path
        events : int, optional
            Number of trace events of the second run to include; 20,000 by default.
        redact : bool or path
            Pseudonyms instead of names, as `Profile.save` has them.

        Raises
        ------
        NbprofError
            The file could not be written, or `events` is not a number of events.
        """
        from nbprof.profiles.report import comparison as report

        target = Path(path).expanduser()
        page = report.page(self._redacted_payload(events, redact)).encode()
        with atomic_write(target, "comparison", len(page)) as file:
            file.write(page)
        return target

    def mimebundle(
        self,
        views: list[str] | None = None,
        height: int | None = None,
        live: bool = True,
        events: int | None = None,
        *,
        redact: Redact = False,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The four mime types of the notebook output, and their metadata, for `display(...,
        raw=True)`.

        Parameters
        ----------
        views : list of str, optional
            Tabs of the second run to show besides Compare; all by default, `["compare"]` for none.
        height : int, optional
            Height of the live view in px.
        live : bool
            False: picture, text and HTML without scripts.
        events : int, optional
            Number of trace events in the output.
        redact : bool or path
            Pseudonyms instead of names, as `save` has them.

        Raises
        ------
        NbprofError
            An unknown view, or `events` is not a number of events.
        """
        from nbprof.profiles.report import comparison as report
        from nbprof.tools.compare import payload as view

        payload = self._redacted_payload(events, redact)
        if views:
            payload = view.only(payload, [each for each in views if each != "compare"])
        return report.mimebundle(
            None if redact else self.after.run, payload, height=height, live=live
        )

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.mimebundle()

    def __repr__(self) -> str:
        return self.text()
