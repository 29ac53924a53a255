"""Public frames by their names in the schema, and selections of their rows.

"kernels.by_name" is `p.kernels.by_name()`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.core.units import join_some
from nbprof.profiles.where import where as rows_where
from nbprof.schema.columns import Col
from nbprof.schema.frames import OF_NO_PROFILE, SCHEMA, WHERE_KNOWN
from nbprof.tools.accessor import View

if TYPE_CHECKING:
    from nbprof.profiles.comparison import Comparison
    from nbprof.profiles.profile import Profile

_OF_A_COMPARISON = "comparison."
_OF_A_MODULE = re.compile(r"memory_viewer\[(?P<module>.+)\]\.(?P<frame>\w+)", re.DOTALL)
OF_A_PROFILE = [
    name for name in SCHEMA if not name.startswith(OF_NO_PROFILE) and name != "trace.range"
]
"""Frames of one profile that need no arguments."""


def names(of: Profile | Comparison) -> list[str]:
    """The names that `frame` takes."""
    from nbprof.profiles.comparison import Comparison

    if isinstance(of, Comparison):
        return [name for name in SCHEMA if name.startswith(_OF_A_COMPARISON)]
    return OF_A_PROFILE


def listed(profile: Profile) -> list[str]:
    """The frames that have rows, as far as that is known without computing them."""
    names = []
    for name in OF_A_PROFILE:
        accessor = getattr(profile, name.partition("[")[0].partition(".")[0])
        try:
            there = not isinstance(accessor, View) or accessor._there()
        except NbprofError:
            # Accessing it explains why it cannot be read.
            there = True
        if there:
            names.append(name)
    return names


def known(name: str, among: Sequence[str] = OF_A_PROFILE) -> str:
    """The full name of a frame; '' if there is none.

    "kernels" is "kernels.frame", "ops" of a comparison is "comparison.ops".
    """
    module = _OF_A_MODULE.fullmatch(name)
    keys = (
        name,
        f"{name}.frame",
        f"{_OF_A_COMPARISON}{name}",
        f"memory_viewer[module].{module['frame']}" if module else "",
    )
    return next((key for key in keys if key in among), "")


def full_name(name: str, among: Sequence[str] = OF_A_PROFILE) -> str:
    """The full name of a frame, see `known`.

    Raises
    ------
    NbprofError
        There is no such frame; the message has similar names.
    """
    key = known(name, among)
    if key:
        return key
    similar = difflib.get_close_matches(name[:100], among, 3)
    hint = f"there are {join_some(list(among), 100)}."
    if similar:
        hint = f"did you mean {join_some(similar, 3)}?"
    raise NbprofError(f"there is no frame {name[:100]!r}; {hint}")


def columns(name: str) -> list[Col]:
    """The declared columns of a frame, by its name in the schema."""
    return [*SCHEMA[name], *WHERE_KNOWN.get(name, [])]


def frame(of: Profile | Comparison, name: str) -> pd.DataFrame:
    """A frame of a profile or a comparison, with its declared columns.

    Parameters
    ----------
    of : Profile or Comparison
    name : str
        As in `nbprof.frames.SCHEMA`, or shorter, see `known`; "memory_viewer[jit_step(3)].at_peak"
        names a program.

    Raises
    ------
    NbprofError
        There is no such frame; the message has similar names.
    """
    key = full_name(name, names(of))
    declared = [col.name for col in columns(key)]
    value: Any = of
    module = _OF_A_MODULE.fullmatch(name)
    if module:
        if module["module"] == "module":
            raise NbprofError(
                f"put the name of a program for `module` in {key!r}; memory_viewer.modules lists"
                " them."
            )
        value, key = cast("Profile", of).memory_viewer[module["module"]], module["frame"]
    for part in key.removeprefix(_OF_A_COMPARISON).split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
        # Accessors are callable too: p.roofline(...) is another roofline.
        if callable(value) and not hasattr(value, "_repr_mimebundle_"):
            value = value()
    frame = pd.DataFrame(value)
    # Some frames have columns for internal use.
    return frame[[column for column in declared if column in frame.columns]]


def selected(
    frame: pd.DataFrame, where: str = "", sort: Sequence[str] = (), columns: Sequence[str] = ()
) -> pd.DataFrame:
    """Some rows and columns of a frame.

    Parameters
    ----------
    frame : DataFrame
    where : str
        A condition, see `nbprof.profiles.where`; empty for all rows.
    sort : sequence of str
        Columns, the most important first; descending with a minus in front. Missing values come
        last.
    columns : sequence of str
        All by default.

    Raises
    ------
    NbprofError
        The condition is invalid, or a column is unknown.
    """
    if where.strip():
        frame = rows_where(frame, where)
    by = [each.removeprefix("-") for each in sort]
    for each in (*by, *columns):
        if each not in frame.columns:
            raise NbprofError(
                f"there is no column {each[:100]!r}; there are"
                f" {', '.join(map(str, frame.columns))}."
            )
    if by:
        try:
            frame = frame.sort_values(
                by,
                ascending=[not each.startswith("-") for each in sort],
                kind="stable",
                na_position="last",
            )
        except TypeError:
            raise NbprofError(f"the values of {join_some(by, 3)} have no order.") from None
    return frame[list(dict.fromkeys(columns))] if columns else frame
