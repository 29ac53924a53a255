"""The frames of a profile by the names in `nbprof.frames.SCHEMA`, and the rows and columns of one that are asked for."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.core.files import join_some
from nbprof.schema.columns import Col
from nbprof.schema.frames import SCHEMA, WHERE_KNOWN
from nbprof.tools.accessor import View

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile

NAMES = [name for name in SCHEMA if not name.startswith("comparison.") and name != "trace.range"]
"""Frames of one profile that need no arguments."""
_OF_PROGRAM = re.compile(r"memory_viewer\[(.+)\]\.(\w+)")


def listed(profile: Profile) -> list[str]:
    """The frames that a profile has something of, as far as that is known without making them."""
    found = []
    for name in NAMES:
        accessor = getattr(profile, name.partition("[")[0].partition(".")[0])
        try:
            there = not isinstance(accessor, View) or accessor._there()
        except NbprofError:
            # Whoever asks for it is told why it cannot be read.
            there = True
        if there:
            found.append(name)
    return found


def known(name: str) -> str:
    """What `SCHEMA` calls a frame: "kernels" is "kernels.frame"; '' where there is none of that name."""
    if program := _OF_PROGRAM.fullmatch(name):
        name = f"memory_viewer[module].{program[2]}"
    return next((whole for whole in (name, f"{name}.frame") if whole in NAMES), "")


def schema(name: str) -> tuple[str, list[Col]]:
    """The whole name of a frame, and its columns.

    Raises
    ------
    NbprofError
        There is none of that name; says which is meant.
    """
    whole = known(name)
    if not whole:
        near = get_close_matches(name, NAMES, 3, 0.5)
        raise NbprofError(f"there is no frame {name!r}; {f'did you mean {join_some(near, 3)}?' if near else 'docs/numbers.md lists them'}")
    return (name if _OF_PROGRAM.fullmatch(name) else whole), [*SCHEMA[whole], *WHERE_KNOWN.get(whole, [])]


def frame(profile: Profile, name: str) -> pd.DataFrame:
    """A frame by its name in `schema`, with the columns that are declared there."""
    found: Any = profile
    path = name
    if program := _OF_PROGRAM.fullmatch(name):
        found, path = profile.memory_viewer[program[1]], program[2]
    for part in path.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
        if inspect.ismethod(found):
            found = found()
    declared = [col.name for col in schema(name)[1]]
    # Some have columns that are of use to nbprof alone.
    return pd.DataFrame(found)[[column for column in declared if column in found.columns]]


def selected(
    frame: pd.DataFrame, where: str = "", sort: Sequence[str] = (), columns: Sequence[str] = (), top: int | None = None
) -> pd.DataFrame:
    """Some rows and columns of a frame.

    Parameters
    ----------
    frame : DataFrame
    where : str
        As `DataFrame.query` takes it, of columns, numbers, texts and the methods of `.str` alone: nothing in it can act.
    sort : sequence of str
        Columns, the most important first; with a minus in front the largest first. Missing values come last.
    columns : sequence of str
        All of them by default.
    top : int, optional
        At most so many rows.

    Raises
    ------
    NbprofError
        Not such an expression, or a column that the frame lacks; says which it has.
    """
    if where:
        _safe(where, frame)
        try:
            frame = frame.query(where, engine="python")
        except Exception as error:
            raise NbprofError(f"{where!r} cannot be asked of this frame: {error}") from error
    by = [each.removeprefix("-") for each in sort]
    for each in (*by, *columns):
        _known(each, frame)
    if by:
        try:
            frame = frame.sort_values(by, ascending=[not each.startswith("-") for each in sort], kind="stable", na_position="last")
        except TypeError as error:
            raise NbprofError(f"{', '.join(by)}: values of that kind have no order") from error
    return frame[list(columns) or list(frame.columns)][:top]


def _known(name: str, frame: pd.DataFrame) -> None:
    if name not in frame.columns:
        raise NbprofError(f"the frame has no column {name!r}; it has {', '.join(map(str, frame.columns))}")


_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.BitAnd,
    ast.BitOr, ast.Compare, ast.cmpop, ast.Constant, ast.List, ast.Tuple, ast.Load, ast.Name, ast.Call, ast.Attribute, ast.keyword,
)  # fmt: skip
_METHODS = ("isna", "notna", "isnull", "notnull", "between", "isin", "abs")
_OF_TEXT = ("contains", "startswith", "endswith", "lower", "upper", "len")
_WORDS = "columns, numbers, texts, comparisons, `and`, `or`, `not`, `in`, and methods such as op.str.contains('conv') or self_us.isna()"


def _safe(where: str, frame: pd.DataFrame) -> None:
    """Refuses what is more than a question: pandas evaluates attributes and calls of any kind, `op.to_csv('x')` among them."""
    try:
        tree = ast.parse(where.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NbprofError(f"{where!r} is no expression of {_WORDS}") from error
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            _known(node.id, frame)
        allowed = isinstance(node, _ALLOWED)
        if isinstance(node, ast.Call):
            allowed = isinstance(node.func, ast.Attribute)
        elif isinstance(node, ast.Attribute):
            text = isinstance(node.value, ast.Attribute) and node.value.attr == "str"
            allowed = node.attr == "str" or (id(node) in called and node.attr in (_OF_TEXT if text else _METHODS))
        if not allowed:
            raise NbprofError(f"{where!r} has more than {_WORDS}")
