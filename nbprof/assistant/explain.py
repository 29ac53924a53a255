"""What a word of nbprof means: a column, a frame, a rule, a category, a tab, out of what the tables
and pages are made of.
"""

from __future__ import annotations

import difflib
import inspect
import re
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from nbprof.activity.unit import MARKED
from nbprof.analysis.advice import advice
from nbprof.analysis.ascend import rules as ascend_rules
from nbprof.analysis.rule import Rule
from nbprof.core.errors import NbprofError
from nbprof.display.categories import CATEGORIES
from nbprof.profiles.comparison import Comparison
from nbprof.profiles.profile import Profile
from nbprof.schema.frames import SCHEMA, WHERE_KNOWN, column
from nbprof.tools.names import COMPARE, NAMES

MOST = 12
"""Entries of an answer."""
LONGEST = 100
"""Characters of a term."""


class Entry(NamedTuple):
    """One meaning.

    Attributes
    ----------
    names : tuple of str
        What it goes by, in lower case with single blanks.
    about : dict
        What is answered: `kind`, `name` and the rest.
    """

    names: tuple[str, ...]
    about: dict[str, Any]


def explain(term: str) -> dict[str, Any]:
    """What a term means: entries whose name it is, else those that it is a part of.

    Raises
    ------
    NbprofError
        Nothing is known of it; says which terms are near.
    """
    if len(term) > LONGEST:
        raise NbprofError(f"a term has at most {LONGEST} characters.")
    key = _key(term)
    exact = [entry.about for entry in entries() if key and key in entry.names]
    found = exact or [
        entry.about for entry in entries() if key and any(key in name for name in entry.names)
    ]
    said = _paragraphs(term.strip(), anywhere=not found)
    if not found and not said:
        known = sorted({name for entry in entries() for name in entry.names})
        near = difflib.get_close_matches(key, known, 5, 0.5)
        raise NbprofError(
            f"nothing is known about {term!r}" + (f"; near are {', '.join(near)}." if near else ".")
        )
    out: dict[str, Any] = {"term": term, "meanings": found[:MOST]}
    if said:
        out["said_of_it"] = said
    return out | ({"cut": f"{len(found) - MOST} more; be more exact"} if len(found) > MOST else {})


@cache
def entries() -> tuple[Entry, ...]:
    """Everything that has a name of its own."""
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
        held = {
            col.name: f"{col.help} [{col.unit}]" if col.unit else col.help
            for col in [*columns, *WHERE_KNOWN.get(name, [])]
        }
        meaning = _docstring(name)
        yield Entry(
            (_key(name), _key(name.removesuffix(".frame"))),
            {"kind": "frame", "name": name, "meaning": meaning, "columns": held},
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


def _docstring(name: str) -> str:
    """How a frame is made, as its docstring says it."""
    of: Any = Comparison if name.startswith("comparison.") else Profile
    *parts, last = (
        name.removeprefix("comparison.")
        .replace("memory_viewer[module]", "memory_viewer.__getitem__")
        .split(".")
    )
    for part in parts:
        member = inspect.getattr_static(of, part)
        of = typing.get_type_hints(getattr(member, "fget", member))["return"]
    # What a view's main frame is, its class says; a key of a dict has no docstring of its own.
    member = of if last == "frame" else inspect.getattr_static(of, last, None)
    return (
        _first_section(inspect.getdoc(getattr(member, "fget", member)) or "")
        if member is not None
        else ""
    )


def _first_section(text: str) -> str:
    return re.split(r"\n\n\w[\w ]*\n-{3,}\n", text)[0].strip()


def _paragraphs(term: str, *, anywhere: bool) -> list[str]:
    """What docstrings of profiles and comparisons say of a word in backticks or bold, or
    anywhere.
    """
    if not term:
        return []
    marked = rf"`{re.escape(term)}`|\*\*{re.escape(term)}\*\*" + (
        rf"|\b{re.escape(term)}\b" if anywhere else ""
    )
    texts = [
        _first_section(inspect.getdoc(member) or "")
        for of in (Profile, Comparison)
        for member in vars(of).values()
    ]
    return [
        part
        for text in texts
        for part in text.split("\n\n")
        if re.search(marked, part, re.IGNORECASE)
    ][:3]
