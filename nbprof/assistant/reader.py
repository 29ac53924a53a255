"""The profiles that an assistant has open, and its questions. Only one thread calls this."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.unit import STEP, Unit
from nbprof.assistant.answer import Bounds, Query, bounded, table
from nbprof.assistant.explain import explain
from nbprof.assistant.roots import Roots
from nbprof.core.errors import NbprofError
from nbprof.core.files import RunFiles
from nbprof.core.units import join_some
from nbprof.display.redact import Redactor
from nbprof.profiles import named
from nbprof.profiles.brief import brief
from nbprof.profiles.claims import BYTES_PER_TOKEN
from nbprof.profiles.comparison import Comparison
from nbprof.profiles.profile import Profile
from nbprof.profiles.redaction import redactor
from nbprof.run.many import open_run
from nbprof.run.run import Run
from nbprof.run.stated import NeedsHostError
from nbprof.sources.recording import CaptureInfo
from nbprof.timeline import select_events

MOST_OPEN = 8
"""Profiles and comparisons that stay open; the least recently used one is closed first."""
_LONGEST_FINDING = 2000
_MAX_NAMES = 50
_LONGEST_ERROR = 2000
_UNLIMITED = 1 << 30
_FACTS = (
    "framework",
    "device_kind",
    "steps",
    "step_time_ms",
    "step_time_median_ms",
    "step_time_p95_ms",
)
_PSEUDONYM = re.compile(r"name_[0-9a-f]{8}")


class EventQuery(NamedTuple):
    """A selection of events of a trace.

    Attributes
    ----------
    from_ms, to_ms : float
    lane : str or int, optional
        A number, or a part of the name.
    name : str, optional
        A part of the name.
    order : {"duration", "start", "by_name"}
    limit : int
    """

    from_ms: float
    to_ms: float
    lane: str | int | None
    name: str | None
    order: Literal["duration", "start", "by_name"]
    limit: int


class Reader:
    """Open profiles by id.

    Parameters
    ----------
    roots : Roots
    most_rows, most_bytes : int
        Limits of an answer.
    suffix : str
        End of the ids: those of a server that has ended are unknown to the next one.
    redact : bool
        Pseudonyms instead of names, as in `Profile.save`. Tables are filtered and sorted with
        these, so that names cannot be guessed by trial; parameters accept pseudonyms.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        most_rows: int,
        most_bytes: int,
        suffix: str = "",
        redact: bool = False,
    ) -> None:
        self._roots = roots
        self._suffix = suffix
        self._redact = redact
        self._names: dict[str, str] = {}
        self._run_names: set[str] = set()
        self._bounds = Bounds(most_rows, most_bytes)
        self._tokens = int(most_bytes / 2 / BYTES_PER_TOKEN)
        self._open: OrderedDict[str, Profile | Comparison] = OrderedDict()
        self._ids: dict[Any, str] = {}
        self._count = 0

    def answered(
        self, ask: Callable[[], dict[str, Any]], *, of_profiles: bool
    ) -> tuple[dict[str, Any], bool]:
        """The answer to a call of one of the methods below, and whether it is an error."""
        failed = True
        try:
            value, failed = ask(), False
        except NeedsHostError:
            value = {
                "error": (
                    "this needs the events of one host: `open` the profile with a host, such as 0."
                )
            }
        except NbprofError as error:
            value = {"error": str(error)[:_LONGEST_ERROR]}
        if self._redact and of_profiles:
            # Rows of a table are redacted already.
            rows = value.pop("rows", None)
            value = self._redacted(value)
            if rows is not None:
                value["rows"] = rows
        return value, failed

    def open(self, path: str, run: str | None, host: str | int | None) -> dict[str, Any]:
        """An id and a summary of a profile; the id stays the same while its files do."""
        path, run, host = self._original(path), self._original(run), self._original(host)
        files, runs = self._roots.find(path, run)
        self._run_names.update(runs)
        stamp = _stamp(files)
        key = stamp, host
        profile = self._open_profile(key)
        if profile is None:
            # Not by `nbprof.load`, which would export raw recordings and so write files.
            complete = self._open_profile((stamp, None)) or Profile(
                open_run(files, CaptureInfo.of(files.sidecar))
            )
            profile = complete if host is None else complete.rank(host)
        ident = self._add(key, "p", profile)
        facts = profile.overview
        unit = Unit.of(facts)
        summary = facts["verdict_text"] or facts["verdict"] or f"unknown what bounds {unit.the}"
        answer = {
            "id": ident,
            "run": files.name,
            "runs_here": bounded(runs[:_MAX_NAMES]),
            "runs_in_all": len(runs),
            "files": len(files.files) if host is None else 1,
            "hosts": bounded(profile.hosts[:_MAX_NAMES]),
            "verdict": facts["verdict"],
            "bound": facts["bound"],
            "summary": bounded(summary),
            "detail": bounded(facts["verdict_detail"]),
            "confidence": facts["confidence"],
            **{key: bounded(facts.get(key)) for key in _FACTS},
        }
        if unit.kind != STEP:
            answer["steps_are"] = unit.plural
        answer["frames"] = named.listed(profile)
        answer["unknown"] = "null means not recorded; it is not 0"
        return answer

    def brief(self, ident: str, tokens: int) -> dict[str, Any]:
        """The brief of a profile or comparison."""
        limit = min(tokens, self._tokens)
        answer: dict[str, Any] = {"id": ident, "brief": brief(self._opened(ident), limit)}
        if limit < tokens:
            answer["cut"] = f"at {limit:,} tokens, this server's maximum"
        return answer

    def advice(self, ident: str) -> dict[str, Any]:
        """All findings of a profile."""
        rows = bounded(self._profile(ident).advice.to_dict("records"), _LONGEST_FINDING)
        answer = {"id": ident, "findings": rows}
        if not rows:
            answer["none"] = (
                "no rule found a measurable gain; which does not prove that there is none"
            )
        return answer

    def frame(self, ident: str, name: str, query: Query) -> dict[str, Any]:
        """Rows of a frame."""
        opened, name = self._opened(ident), self._original(name)
        frame = self._redacted_frame(named.frame(opened, name))
        full_name = named.full_name(name, named.names(opened))
        return {"id": ident} | table(frame, full_name, query, self._bounds)

    def events(self, ident: str, query: EventQuery) -> dict[str, Any]:
        """Events that touch a time range, or their sums by name."""
        for text in (query.lane, query.name):
            if isinstance(text, str) and text.startswith("/") and text.endswith("/"):
                raise NbprofError(
                    "regular expressions are not supported here; use part of the name."
                )
            if self._redact and isinstance(text, str):
                raise NbprofError(
                    "with --redact, give the number of a lane and a time; `frame` trace.events"
                    " takes a filter of names."
                )
        profile = self._profile(ident)
        if query.limit < 0:
            raise NbprofError(f"limit is a number of rows, not {query.limit}.")
        if query.order == "by_name":
            answer = self._sums_by_name(profile, query)
        else:
            answer = self._longest_or_first(profile, query)
        return {"id": ident} | answer

    def _sums_by_name(self, profile: Profile, query: EventQuery) -> dict[str, Any]:
        frame = profile.trace.range(query.from_ms, query.to_ms, query.lane)
        if query.name is not None:
            frame = frame[[query.name in str(name) for name in frame["name"]]]
        frame = self._redacted_frame(frame)
        return table(frame, "trace.range", Query(limit=query.limit), self._bounds)

    def _longest_or_first(self, profile: Profile, query: EventQuery) -> dict[str, Any]:
        run = profile.run
        tracks = run.timeline.tracks
        time_range = query.from_ms, query.to_ms
        picked = select_events.pick(tracks, query.lane, query.name, time_range)
        by_duration = query.order == "duration"
        key = np.concatenate(
            [getattr(part, query.order) for part in (tracks.events, tracks.extra)]
        )[picked]
        order = np.argsort(-key if by_duration else key, kind="stable")
        # Only the rows of the answer: a range may have millions.
        first = order[: min(query.limit, self._bounds.rows)]
        frame = select_events.frame(run.trace, tracks, picked[first])
        frame = frame.sort_values(
            "duration_us" if by_duration else "start_us", ascending=not by_duration, kind="stable"
        )
        frame = self._redacted_frame(frame)
        answer = table(frame, "trace.events", Query(limit=query.limit), self._bounds)
        answer["rows_in_frame"] = len(tracks.events)
        answer["rows_that_match"] = len(picked)
        left_out = len(picked) - answer["rows_here"]
        if left_out:
            answer["cut"] = f"{left_out:,} of {len(picked):,} events in the range left out"
        return answer

    def compare(self, before: str, after: str, tokens: int) -> dict[str, Any]:
        """An id and the brief of a comparison of two open profiles."""
        comparison = Comparison([self._profile(before), self._profile(after)])
        verdict = comparison.verdict.to_dict("records")[0]
        ident = self._add((before, after), "c", comparison)
        return {
            "id": ident,
            "verdict": bounded(verdict),
            "frames": named.names(comparison),
            **self.brief(ident, tokens),
        }

    def explain(self, term: str) -> dict[str, Any]:
        """The meaning of a term, without a profile."""
        return explain(term)

    def _redactor(self) -> Redactor:
        runs: list[Run] = []
        for entry in self._open.values():
            profiles = [entry] if isinstance(entry, Profile) else entry.profiles
            runs += [profile.run for profile in profiles]
        return redactor(runs, also=self._run_names)

    def _redacted(self, value: dict[str, Any]) -> dict[str, Any]:
        redactor = self._redactor()
        redacted: dict[str, Any] = redactor.tree(value)
        self._remember(redactor)
        return redacted

    def _redacted_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame, with pseudonyms if required."""
        if not self._redact:
            return frame
        redactor = self._redactor()
        # Lines of the user's code contain more than names.
        frame = frame.drop(columns=["code"], errors="ignore")
        columns = {}
        for name in frame.columns:
            if not pd.api.types.is_numeric_dtype(frame[name]):
                texts = [bounded(value, _UNLIMITED) for value in frame[name]]
                columns[name] = list(map(redactor.tree, texts))
        frame = frame.assign(**columns)
        self._remember(redactor)
        return frame

    def _remember(self, redactor: Redactor) -> None:
        """Remember the names of pseudonyms, which later questions may contain."""
        for name, pseudonym in redactor.replaced.items():
            self._names[pseudonym] = name

    def _original(self, text: Any) -> Any:
        """A text with names in place of pseudonyms."""
        if not isinstance(text, str):
            return text
        return _PSEUDONYM.sub(lambda match: self._names.get(match[0], match[0]), text)

    def _add(self, key: Any, letter: str, opened: Profile | Comparison) -> str:
        ident = self._ids.get(key)
        if ident is None:
            self._count += 1
            ident = self._ids[key] = f"{letter}{self._count}{self._suffix}"
        self._open[ident] = opened
        self._open.move_to_end(ident)
        while len(self._open) > MOST_OPEN:
            closed, _ = self._open.popitem(last=False)
            self._ids = {key: each for key, each in self._ids.items() if each != closed}
        return ident

    def _open_profile(self, key: Any) -> Profile | None:
        opened = self._open.get(self._ids.get(key, ""))
        if isinstance(opened, Profile):
            return opened
        return None

    def _opened(self, ident: str) -> Profile | Comparison:
        if ident not in self._open:
            idents = join_some(list(self._open), MOST_OPEN) or "none yet"
            raise NbprofError(
                f"nothing is open as {ident[:40]!r}; there is {idents}. `open` and `compare` give"
                f" ids, the last {MOST_OPEN} count."
            )
        self._open.move_to_end(ident)
        return self._open[ident]

    def _profile(self, ident: str) -> Profile:
        profile = self._opened(ident)
        if not isinstance(profile, Profile):
            raise NbprofError(f"{ident} is a comparison; ask one of its profiles.")
        return profile


def _stamp(files: RunFiles) -> Any:
    return files.name, tuple((file.label, file.size, file.modified) for file in files.files)
