"""Conditions on the rows of a frame, as text: `total_us > 100 and "gemm" in kernel`.

They may come from anybody, so nothing in them is executed: the text is parsed to a syntax tree, and
what is not in the small grammar below is refused. `DataFrame.query` would call methods and read
local variables.
"""

from __future__ import annotations

import ast
import keyword
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.core.files import join_some

LONGEST = 1000
"""Characters of a condition."""
GRAMMAR = (
    'columns compared with numbers, "text", true or false by == != < <= > >=; `column in ["a",'
    ' "b"]`; `"text" in column` for a part of a text; `column is None` for missing values; `class_`'
    " for a column called class; joined by and, or, not and parentheses"
)
"""What a condition may hold, for help texts."""

_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_OTHERS = {
    ast.Call: "a call",
    ast.Attribute: "an attribute",
    ast.BinOp: "arithmetic, or & and |",
    ast.Subscript: "a subscript",
}
_WORDS = {"true": True, "false": False}


def where(frame: pd.DataFrame, condition: str) -> pd.DataFrame:
    """The rows of a frame for which a condition holds, in their order. A missing value satisfies no
    comparison.

    Parameters
    ----------
    frame : DataFrame
    condition : str
        See `GRAMMAR`.

    Raises
    ------
    NbprofError
        The condition is not valid, or names a column that does not exist.

    Examples
    --------
    >>> where(p.kernels.frame, 'total_us > 100 and "gemm" in kernel')   # doctest: +SKIP
    """
    try:
        return frame[_Condition(frame).mask(_parsed(condition))]
    except RecursionError:
        raise _refused("it is nested too deeply") from None


def _parsed(condition: str) -> ast.expr:
    if len(condition) > LONGEST:
        raise _refused(f"it has more than {LONGEST} characters")
    try:
        return ast.parse(condition.strip(), mode="eval").body
    except SyntaxError as error:
        raise _refused(f"{error.msg} at character {error.offset or 1}") from None
    except (ValueError, MemoryError):
        raise _refused("it has a NUL character or is nested too deeply") from None


def _refused(why: str) -> NbprofError:
    return NbprofError(f"this is not a condition: {why}. A condition takes {GRAMMAR}.")


class _Condition:
    """Turns the nodes of a syntax tree into a mask over the rows of one frame."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def mask(self, node: ast.expr) -> pd.Series:
        """Whether it holds, row by row."""
        if isinstance(node, ast.BoolOp):
            joined = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            out = self.mask(node.values[0])
            for value in node.values[1:]:
                out = joined(out, self.mask(value))
            return out
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.mask(node.operand)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            out = self._compared(sides[0], node.ops[0], sides[1])
            for at, op in enumerate(node.ops[1:], 1):
                out &= self._compared(sides[at], op, sides[at + 1])
            return out
        if isinstance(node, ast.Name):
            column = self._column(node.id)
            if pd.api.types.is_bool_dtype(column):
                return self._plain(column)
            raise NbprofError(
                f"column {node.id!r} is not true or false: compare it with something."
            )
        raise _refused(f"{_named(node)} is not in the grammar")

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pd.Series:
        if isinstance(op, (ast.Is, ast.IsNot)):
            column = self._side(left)
            if not isinstance(column, pd.Series) or not (
                isinstance(right, ast.Constant) and right.value is None
            ):
                raise _refused("`is` takes a column and None")
            return column.isna() if isinstance(op, ast.Is) else column.notna()
        if isinstance(op, (ast.In, ast.NotIn)):
            held = self._contained(left, right)
            return held if isinstance(op, ast.In) else ~held
        before, after = self._side(left), self._side(right)
        if not isinstance(before, pd.Series) and not isinstance(after, pd.Series):
            raise _refused("it compares two constants; a column is a name without quotes")
        for one, other in ((before, after), (after, before)):
            if isinstance(one, pd.Series):
                _fits(one, other)
        known = self._all(True)
        for each in (before, after):
            if isinstance(each, pd.Series):
                known &= each.notna()
        # Of the rows that are known alone: texts cannot be compared with what is missing.
        one, other = (
            each[known] if isinstance(each, pd.Series) else each for each in (before, after)
        )
        try:
            held = _COMPARED[type(op)](one, other)
        except (TypeError, ValueError, OverflowError):
            raise _refused("the values of these columns cannot be compared") from None
        out = self._all(False)
        out[known] = np.asarray(held, np.bool_)
        return out

    def _contained(self, left: ast.expr, right: ast.expr) -> pd.Series:
        """`column in [...]`, or `"text" in column`."""
        if isinstance(right, (ast.List, ast.Tuple)):
            column = self._side(left)
            if not isinstance(column, pd.Series):
                raise _refused("a list must follow `column in`")
            values = [self._constant(each) for each in right.elts]
            for value in values:
                _fits(column, value)
            return self._plain(column.isin(values))
        text, column = self._side(left), self._side(right)
        if not isinstance(text, str) or not isinstance(column, pd.Series):
            raise _refused('`in` takes `column in ["a", "b"]` or `"text" in column`')
        if _kind(column) == "numbers":
            raise NbprofError(f"column {column.name!r} does not contain text.")
        return self._plain(
            column.astype("object").map(lambda value: isinstance(value, str) and text in value)
        )

    def _side(self, node: ast.expr) -> Any:
        """A column, or a constant."""
        if isinstance(node, ast.Name) and node.id not in _WORDS:
            return self._column(node.id)
        return self._constant(node)

    def _constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float)):
            return node.value
        if isinstance(node, ast.Name) and node.id in _WORDS:
            return _WORDS[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            value = self._constant(node.operand)
            if isinstance(value, (int, float)):
                return -value if isinstance(node.op, ast.USub) else value
        raise _refused(f"{_named(node)} is not in the grammar")

    def _column(self, name: str) -> pd.Series:
        if name not in self._frame.columns and keyword.iskeyword(name.removesuffix("_")):
            name = name.removesuffix("_")
        if name not in self._frame.columns:
            raise NbprofError(
                f"there is no column {name!r}; there are"
                f" {join_some([str(each) for each in self._frame.columns], 40)}."
            )
        column: pd.Series = self._frame[name]
        return column

    def _plain(self, mask: pd.Series) -> pd.Series:
        return mask.fillna(False).astype(bool)

    def _all(self, value: bool) -> pd.Series:
        return pd.Series(value, index=self._frame.index, dtype=bool)


def _kind(value: Any) -> str:
    """Whether it is text or numbers; empty where a column has neither, as one without rows."""
    if not isinstance(value, pd.Series):
        return "text" if isinstance(value, str) else "numbers"
    if pd.api.types.is_numeric_dtype(value):
        return "numbers"
    inferred = pd.api.types.infer_dtype(value, skipna=True)
    return {
        "string": "text",
        "floating": "numbers",
        "integer": "numbers",
        "mixed-integer-float": "numbers",
    }.get(inferred, "")


def _fits(column: pd.Series, value: Any) -> None:
    """Refuses a comparison that never holds, because one side is text and the other a number."""
    one, other = _kind(column), _kind(value)
    if one != other and one and other:
        raise NbprofError(f"column {column.name!r} has {one} and cannot be compared with {other}.")


def _named(node: ast.AST) -> str:
    return _OTHERS.get(type(node), type(node).__name__)
