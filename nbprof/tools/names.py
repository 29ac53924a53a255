"""Names of the tabs, in their order. `names.json` is read here, and by TypeScript at build time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class Name(NamedTuple):
    """A tab.

    Parameters
    ----------
    id : str
        Its key in the payload, and the name of its folder in `nbprof/tools`; in `js/views` with
        hyphens.
    label : str
        What stands on the tab, and heads its section of docs/views.md.
    about : str
        "What is this?": the sentences that this section begins with. `**` marks what is bold.
    also : list of str
        Other words for it.
    of : str
        What it is a tab of.
    rare : bool
        Whether most outputs lack it: the script of those does not draw it.
    """

    id: str
    label: str
    about: str
    also: list[str] = []  # noqa: RUF012  never changed
    of: str = "a profile"
    rare: bool = False


_ALL = [
    Name(**row) for row in json.loads(Path(__file__).with_name("names.json").read_text("utf-8"))
]

NAMES = {name.id: name for name in _ALL if name.of == "a profile"}
"""The tabs of a profile, by id."""
COMPARE = next(name for name in _ALL if name.of == "a comparison")
"""The tab of a comparison, which comes after those of a profile."""


RARE = {name.id for name in _ALL if name.rare}
"""Tabs that most outputs lack."""


def by_word() -> dict[str, str]:
    """The tab that each word stands for."""
    return {word: name.id for name in NAMES.values() for word in (name.id, *name.also)}
