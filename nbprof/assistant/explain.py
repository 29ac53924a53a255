"""The meaning of a column, frame, rule, category or tab, from the schema and the docstrings."""

from __future__ import annotations

import difflib
import inspect
import itertools
import re
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from nbprof.activity.unit import MARKED
from nbprof.analysis.advice import advice
from nbprof.analysis.ascend import rules as ascend_rules
from nbprof.analysis.rule import Rule
from nbprof.capture.fit.result import Fit
from nbprof.core.errors import NbprofError
from nbprof.display.categories import CATEGORIES
from nbprof.profiles.comparison import Comparison
from nbprof.profiles.profile import Profile
from nbprof.schema.frames import SCHEMA, WHERE_KNOWN, column
from nbprof.tools.names import COMPARE, NAMES

MAX_ENTRIES = 12
"""Entries of an answer."""
LONGEST = 100
"""Characters of a term."""


class Entry(NamedTuple):
    """One meaning.

    Attributes
    ----------
    names : tuple of str
        Its names, in lower case with single blanks.
    about : dict
        The answer: `kind`, `name` and details.
    """

    names: tuple[str, ...]
    about: dict[str, Any]


def explain(term: str) -> dict[str, Any]:
    """Explain a term: entries of that name, else those whose name contains it.

    Raises
    ------
    NbprofError
        Nothing is known about it; lists similar terms.
    """
    if len(term) > LONGEST:
        raise NbprofError(f"a term has at most {LONGEST} characters.")
    key = _key(term)
    meanings = _meanings(key)
    paragraphs = _paragraphs(term.strip(), anywhere=not meanings)
    if not meanings and not paragraphs:
        names = sorted(set(itertools.chain.from_iterable(entry.names for entry in entries())))
        near = difflib.get_close_matches(key, names, 5, 0.5)
        similar = f"; near are {', '.join(near)}" if near else ""
        raise NbprofError(f"nothing is known about {term!r}{similar}.")
    answer: dict[str, Any] = {"term": term, "meanings": meanings[:MAX_ENTRIES]}
    if paragraphs:
        answer["said_of_it"] = paragraphs
    if len(meanings) > MAX_ENTRIES:
        answer["cut"] = f"{len(meanings) - MAX_ENTRIES} more; be more exact"
    return answer


def _meanings(key: str) -> list[dict[str, Any]]:
    if not key:
        return []
    exact, partial = [], []
    for entry in entries():
        if key in entry.names:
            exact.append(entry.about)
        elif any(key in name for name in entry.names):
            partial.append(entry.about)
    return exact or partial


@cache
def entries() -> tuple[Entry, ...]:
    """All entries that have a name."""
    return (*_categories(), *_frames(), *_columns(), *_rules(), *_tabs())


def _key(text: str) -> str:
    return " ".join(text.replace("_", " ").casefold().split())


def _categories() -> Iterator[Entry]:
    for category in CATEGORIES:
        meaning = column("steps.frame", category.column).help
        yield Entry(
            (_key(category.key), _key(category.label)),
            {
                "kind": "category of step time",
                "name": category.key,
                "label": category.label,
                "meaning": meaning,
            },
        )


def _frames() -> Iterator[Entry]:
    for name, columns in SCHEMA.items():
        helps = {}
        for col in [*columns, *WHERE_KNOWN.get(name, [])]:
            helps[col.name] = f"{col.help} [{col.unit}]" if col.unit else col.help
        meaning = _docstring(name)
        yield Entry(
            (_key(name), _key(name.removesuffix(".frame"))),
            {"kind": "frame", "name": name, "meaning": meaning, "columns": helps},
        )


def _columns() -> Iterator[Entry]:
    same: dict[tuple[str, str, str, str], list[str]] = {}
    for frame, columns in SCHEMA.items():
        for col in [*columns, *WHERE_KNOWN.get(frame, [])]:
            same.setdefault((col.name, col.label, col.unit, col.help), []).append(frame)
    for (name, label, unit, meaning), frames in same.items():
        about = {
            "kind": "column",
            "name": name,
            "label": label,
            "unit": unit,
            "meaning": meaning,
            "frames": frames,
        }
        yield Entry((_key(name), _key(label)), about)


def _rules() -> Iterator[Entry]:
    rules: list[Rule[Any, Any]] = [*advice.every(), *ascend_rules.every()]
    for rule in rules:
        yield Entry(
            (_key(rule.name),),
            {
                "kind": "rule of advice",
                "name": rule.name,
                "checks": rule.looks_at,
                "threshold": str(rule.threshold),
                "source": rule.source,
                "applies_to": rule.applies,
                "certainty": rule.certainty,
                "gain_is": rule.gain_is,
                "wrong_if": MARKED.fill(rule.refuted_by),
                "what_to_do": MARKED.fill(rule.title),
            },
        )


def _tabs() -> Iterator[Entry]:
    for tab in [*NAMES.values(), COMPARE]:
        yield Entry(
            tuple(_key(word) for word in (tab.id, tab.label, *tab.also)),
            {"kind": "tab", "name": tab.id, "label": tab.label, "meaning": tab.about},
        )


_NO_PROFILES: dict[str, type] = {"comparison": Comparison, "fits": Fit}


def _docstring(name: str) -> str:
    """The docstring of a frame."""
    kind, _, rest = name.partition(".")
    owner: Any = _NO_PROFILES.get(kind, Profile)
    path = name
    if kind in _NO_PROFILES:
        path = rest
    path = path.replace("memory_viewer[module]", "memory_viewer.__getitem__")
    *parts, last = path.split(".")
    for part in parts:
        member = inspect.getattr_static(owner, part)
        owner = typing.get_type_hints(getattr(member, "fget", member))["return"]
    # The main frame of a view is described by its class; a key of a dict has no docstring.
    member = owner if last == "frame" else inspect.getattr_static(owner, last, None)
    if member is None:
        return ""
    return _first_section(inspect.getdoc(getattr(member, "fget", member)) or "")


def _first_section(text: str) -> str:
    return re.split(r"\n\n\w[\w ]*\n-{3,}\n", text)[0].strip()


def _paragraphs(term: str, *, anywhere: bool) -> list[str]:
    """Paragraphs of docstrings with a term in backticks or bold, or anywhere; at most three."""
    if not term:
        return []
    pattern = rf"`{re.escape(term)}`|\*\*{re.escape(term)}\*\*"
    if anywhere:
        pattern += rf"|\b{re.escape(term)}\b"
    paragraphs = []
    for member in (*vars(Profile).values(), *vars(Comparison).values()):
        for paragraph in _first_section(inspect.getdoc(member) or "").split("\n\n"):
            if re.search(pattern, paragraph, re.IGNORECASE):
                paragraphs.append(paragraph)
    return paragraphs[:3]
