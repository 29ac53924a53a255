"""The formats that nbprof reads: each is one folder next to this module, and one entry of
`formats.json`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module

from nbprof.formats.format import PACKING, Format
from nbprof.formats.names import SUFFIXES

FORMATS: tuple[Format, ...] = tuple(
    import_module(f"nbprof.formats.{room}.format").FORMAT for room in SUFFIXES
)
"""In the order in which they collect the files of a folder."""


def by_name(name: str) -> Format:
    """The format of a name."""
    return next(form for form in FORMATS if form.name == name)


def telling(name: str) -> Format | None:
    """The format that the name of a file alone tells."""
    return next(
        (form for form in FORMATS if form.names is not None and form.names.search(name)), None
    )


def possible(name: str) -> bool:
    """True if a file of some format may have this name."""
    return name.lower().endswith(_endings(FORMATS))


def stem(name: str) -> str:
    """The name of a profile without its suffixes: `host.xplane.pb` and `host.pt.trace.json.gz` are
    `host`.
    """
    return _suffix(FORMATS).sub("", name) or name


@lru_cache
def _endings(formats: tuple[Format, ...]) -> tuple[str, ...]:
    return (
        ".gz",
        ".bz2",
        ".xz",
        *dict.fromkeys(
            "." + suffix.rpartition(".")[2] for form in formats for suffix in form.suffixes
        ),
    )


@lru_cache
def _suffix(formats: tuple[Format, ...]) -> re.Pattern[str]:
    suffixes = "|".join(re.escape(suffix[1:]) for form in formats for suffix in form.suffixes)
    return re.compile(rf"\.({suffixes})?{PACKING}", re.IGNORECASE)
