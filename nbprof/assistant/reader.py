"""The profiles that an assistant has open, and what it can ask of them. Everything here is called
by one thread alone.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd

from nbprof.activity.unit import STEP, Unit
from nbprof.assistant.answer import Bounds, bounded, table
from nbprof.assistant.explain import explain
from nbprof.assistant.roots import Roots
from nbprof.core.errors import NbprofError
from nbprof.core.files import RunFiles, join_some
from nbprof.display.redact import Redactor
from nbprof.profiles import named
from nbprof.profiles.brief import BYTES_PER_TOKEN, brief
from nbprof.profiles.comparison import Comparison
from nbprof.profiles.load import captured
from nbprof.profiles.profile import Profile
from nbprof.profiles.redaction import redactor
from nbprof.run.many import opened
from nbprof.run.stated import NeedsHostError
from nbprof.timeline import select_events

MOST_OPEN = 8
"""Profiles and comparisons that are kept; the one that was not asked for longest goes first."""
_LONGEST_FINDING = 2000
_MOST_NAMED = 50
_LONGEST_ERROR = 2000
_WHOLE = 1 << 30
_FACTS = (
    "framework",
    "device_kind",
    "steps",
    "step_time_ms",
    "step_time_median_ms",
    "step_time_p95_ms",
)
_PSEUDONYM = re.compile(r"name_[0-9a-f]{8}")


class Reader:
    """Open profiles by id.

    Parameters
    ----------
    roots : Roots
    most_rows, most_bytes : int
        Of an answer.
    redact : bool
        Pseudonyms instead of names, as `Profile.save` has them. Tables are filtered and sorted with
        these, so no question finds out by trying what a name is; and they are taken where names are
        asked for.
    """

    def __init__(
        self, roots: Roots, *, most_rows: int, most_bytes: int, redact: bool = False
    ) -> None:
        self._roots = roots
        self._redact = redact
        self._names: dict[str, str] = {}
        self._beside: set[str] = set()
        self._bounds = Bounds(most_rows, most_bytes)
        self._tokens = int(most_bytes / 2 / BYTES_PER_TOKEN)
        self._open: OrderedDict[str, Profile | Comparison] = OrderedDict()
        self._ids: dict[Any, str] = {}
        self._count = 0

    def answered(
        self, ask: Callable[[], dict[str, Any]], *, of_profiles: bool
    ) -> tuple[dict[str, Any], bool]:
        """What is answered to a call of one of the methods below, and whether it is an error: a
        sentence then.
        """
        try:
            value, failed = ask(), False
        except NeedsHostError:
            value, failed = (
                {
                    "error": (
                        "this needs the events of one host: `open` the profile with a host, such"
                        " as 0."
                    )
                },
                True,
            )
        except NbprofError as error:
            value, failed = {"error": str(error)[:_LONGEST_ERROR]}, True
        if self._redact and of_profiles:
            # Of a table they have been replaced before.
            rows = value.pop("rows", None)
            by = self._redactor()
            value = by.tree(value) | ({} if rows is None else {"rows": rows})
            self._names |= {pseudonym: name for name, pseudonym in by.replaced.items()}
        return value, failed

    def open(self, path: str, run: str | None, host: str | int | None) -> dict[str, Any]:
        """An id and a line about a profile. The same files have the same id as long as they do not
        change.
        """
        path, run, host = self._meant(path), self._meant(run), self._meant(host)
        files, runs = self._roots.find(path, run)
        self._beside.update(runs)
        stamp = _stamp(files)
        key = stamp, host
        profile = self._known(key)
        if profile is None:
            # Not by `nbprof.load`, which would have raw recordings exported and so written.
            whole = self._known((stamp, None)) or Profile(opened(files, captured(files)))
            profile = whole if host is None else whole.rank(host)
        ident = self._keep(key, "p", profile)
        facts = profile.overview
        return {
            "id": ident,
            "run": files.name,
            "runs_here": bounded(runs[:_MOST_NAMED]),
            "runs_in_all": len(runs),
            "files": len(files.files) if host is None else 1,
            "hosts": bounded(profile.hosts[:_MOST_NAMED]),
            "summary": bounded(
                facts["verdict_text"]
                or facts["verdict"]
                or f"unknown what bounds {Unit.of(facts).the}"
            ),
            "confidence": facts["confidence"],
            **{key: bounded(facts.get(key)) for key in _FACTS},
            **({} if Unit.of(facts).kind == STEP else {"steps_are": Unit.of(facts).plural}),
            "frames": named.listed(profile),
            "unknown": "null means not recorded; it is not 0",
        }

    def brief(self, ident: str, tokens: int) -> dict[str, Any]:
        """The brief of a profile or comparison."""
        bounded = min(tokens, self._tokens)
        out: dict[str, Any] = {"id": ident, "brief": brief(self._of(ident), bounded)}
        return out | (
            {"cut": f"at {bounded:,} tokens, this server's maximum"} if bounded < tokens else {}
        )

    def advice(self, ident: str) -> dict[str, Any]:
        """The findings of a profile, whole."""
        rows = bounded(self._profile(ident).advice.to_dict("records"), _LONGEST_FINDING)
        none = "no rule found a measurable gain; which does not prove that there is none"
        return {"id": ident, "findings": rows} | ({} if rows else {"none": none})

    def frame(
        self, ident: str, name: str, columns: list[str] | None, filter: str, sort: str, limit: int
    ) -> dict[str, Any]:
        """Rows of a frame."""
        of, name = self._of(ident), self._meant(name)
        frame = self._shown(named.frame(of, name))
        return {"id": ident} | table(
            frame,
            named.full_name(name, named.names(of)),
            columns=columns,
            filter=filter,
            sort=sort,
            limit=limit,
            bounds=self._bounds,
        )

    def events(
        self,
        ident: str,
        from_ms: float,
        to_ms: float,
        lane: str | int | None,
        name: str | None,
        order: Literal["duration", "start", "by_name"],
        limit: int,
    ) -> dict[str, Any]:
        """Events that touch a time range, or their sums by name."""
        for text in (lane, name):
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
        if limit < 0:
            raise NbprofError(f"limit is a number of rows, not {limit}.")
        if order == "by_name":
            frame = profile.trace.range(from_ms, to_ms, lane)
            if name is not None:
                frame = frame[[name in str(each) for each in frame["name"]]]
            return {"id": ident} | table(
                self._shown(frame), "trace.range", limit=limit, bounds=self._bounds
            )
        run = profile.run
        tracks = run.timeline.tracks
        picked = select_events.pick(tracks, lane, name, (from_ms, to_ms))
        at = [
            np.concatenate([getattr(part, order) for part in (tracks.events, tracks.extra)])[picked]
        ]
        by = np.argsort(-at[0] if order == "duration" else at[0], kind="stable")
        # Of what is shown alone, for a range may hold millions.
        frame = select_events.frame(run.trace, tracks, picked[by[: min(limit, self._bounds.rows)]])
        frame = frame.sort_values(
            "duration_us" if order == "duration" else "start_us",
            ascending=order == "start",
            kind="stable",
        )
        out = table(self._shown(frame), "trace.events", limit=limit, bounds=self._bounds)
        left = len(picked) - out["rows_here"]
        cut = f"{left:,} of {len(picked):,} events in the range left out" if left else out["cut"]
        return (
            {"id": ident}
            | out
            | {"rows_in_frame": len(tracks.events), "rows_that_match": len(picked), "cut": cut}
        )

    def compare(self, before: str, after: str, tokens: int) -> dict[str, Any]:
        """An id and the brief of a comparison of two open profiles."""
        comparison = Comparison([self._profile(before), self._profile(after)])
        verdict = comparison.verdict.to_dict("records")[0]
        ident = self._keep((before, after), "c", comparison)
        return {
            "id": ident,
            "verdict": bounded(verdict),
            "frames": named.names(comparison),
            **self.brief(ident, tokens),
        }

    def explain(self, term: str) -> dict[str, Any]:
        """What a word means; asks no profile."""
        return explain(term)

    def _redactor(self) -> Redactor:
        runs = [
            run
            for of in self._open.values()
            for run in ([of.run] if isinstance(of, Profile) else [each.run for each in of.profiles])
        ]
        return redactor(runs, also=self._beside)

    def _shown(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A frame as it may be seen."""
        if not self._redact:
            return frame
        by = self._redactor()
        # Lines of the person's own text have more in them than names.
        frame = frame.drop(columns=["code"], errors="ignore")
        texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
        shown = frame.assign(
            **{name: [by.tree(bounded(value, _WHOLE)) for value in frame[name]] for name in texts}
        )
        self._names |= {pseudonym: name for name, pseudonym in by.replaced.items()}
        return shown

    def _meant(self, text: Any) -> Any:
        """What a text stands for in which there may be pseudonyms."""
        if not isinstance(text, str):
            return text
        return _PSEUDONYM.sub(lambda found: self._names.get(found[0], found[0]), text)

    def _keep(self, key: Any, letter: str, what: Profile | Comparison) -> str:
        ident = self._ids.get(key)
        if ident is None:
            self._count += 1
            ident = self._ids[key] = f"{letter}{self._count}"
        self._open[ident] = what
        self._open.move_to_end(ident)
        while len(self._open) > MOST_OPEN:
            gone, _ = self._open.popitem(last=False)
            self._ids = {key: each for key, each in self._ids.items() if each != gone}
        return ident

    def _known(self, key: Any) -> Profile | None:
        found = self._open.get(self._ids.get(key, ""))
        return found if isinstance(found, Profile) else None

    def _of(self, ident: str) -> Profile | Comparison:
        if ident not in self._open:
            known = join_some(list(self._open), MOST_OPEN) or "none yet"
            raise NbprofError(
                f"nothing is open as {ident[:40]!r}; there is {known}. `open` and `compare` give"
                f" ids, the last {MOST_OPEN} count."
            )
        self._open.move_to_end(ident)
        return self._open[ident]

    def _profile(self, ident: str) -> Profile:
        found = self._of(ident)
        if not isinstance(found, Profile):
            raise NbprofError(f"{ident} is a comparison; ask one of its profiles.")
        return found


def _stamp(files: RunFiles) -> Any:
    return files.name, tuple((file.label, file.size, file.modified) for file in files.files)
