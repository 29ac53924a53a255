"""Conditions on the rows of a frame, as text: `total_us > 100 and "gemm" in kernel`.

They may come from anybody, so nothing in them is executed: the text is parsed to a syntax tree, and
everything outside of the small grammar below is rejected. `DataFrame.query` would call methods and
read local variables.
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
from nbprof.core.units import join_some

LONGEST = 1000
"""Limit on the characters of a condition."""
GRAMMAR = (
    'columns compared with numbers, "text", true or false by == != < <= > >=; `column in ["a",'
    ' "b"]`; `"text" in column` for a part of a text; `column is None` for missing values; `class_`'
    " for a column called class; joined by and, or, not and parentheses"
)
"""The grammar of conditions, for help texts."""

_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_REJECTED = {
    ast.Call: "a call",
    ast.Attribute: "an attribute",
    ast.BinOp: "arithmetic, or & and |",
    ast.Subscript: "a subscript",
}
_WORDS = {"true": True, "false": False}


def where(frame: pd.DataFrame, condition: str) -> pd.DataFrame:
    """The rows of a frame for which a condition holds; missing values satisfy no comparison.

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
    """Evaluates the nodes of a syntax tree as masks over the rows of one frame."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def mask(self, node: ast.expr) -> pd.Series:
        """The rows for which it holds."""
        if isinstance(node, ast.BoolOp):
            combine = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            mask = self.mask(node.values[0])
            for value in node.values[1:]:
                mask = combine(mask, self.mask(value))
            return mask
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.mask(node.operand)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            mask = self._all(True)
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
                mask &= self._compared(left, op, right)
            return mask
        if isinstance(node, ast.Name):
            column = self._column(node.id)
            if pd.api.types.is_bool_dtype(column):
                return _without_missing(column)
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
            contained = self._contained(left, right)
            return contained if isinstance(op, ast.In) else ~contained
        before, after = self._side(left), self._side(right)
        if not isinstance(before, pd.Series) and not isinstance(after, pd.Series):
            raise _refused("it compares two constants; a column is a name without quotes")
        present = self._all(True)
        for column, value in ((before, after), (after, before)):
            if isinstance(column, pd.Series):
                _check_comparable(column, value)
                present &= column.notna()
        # Only rows with values, as text cannot be compared with missing values.
        if isinstance(before, pd.Series):
            before = before[present]
        if isinstance(after, pd.Series):
            after = after[present]
        try:
            held = _COMPARED[type(op)](before, after)
        except (TypeError, ValueError, OverflowError):
            raise _refused("the values of these columns cannot be compared") from None
        mask = self._all(False)
        mask[present] = np.asarray(held, np.bool_)
        return mask

    def _contained(self, left: ast.expr, right: ast.expr) -> pd.Series:
        """`column in [...]`, or `"text" in column`."""
        if isinstance(right, (ast.List, ast.Tuple)):
            column = self._side(left)
            if not isinstance(column, pd.Series):
                raise _refused("a list must follow `column in`")
            values = [self._constant(each) for each in right.elts]
            for value in values:
                _check_comparable(column, value)
            return _without_missing(column.isin(values))
        text, column = self._side(left), self._side(right)
        if not isinstance(text, str) or not isinstance(column, pd.Series):
            raise _refused('`in` takes `column in ["a", "b"]` or `"text" in column`')
        if _kind(column) == "numbers":
            raise NbprofError(f"column {column.name!r} does not contain text.")
        contains = column.astype("object").map(
            lambda value: isinstance(value, str) and text in value
        )
        return _without_missing(contains)

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

    def _all(self, value: bool) -> pd.Series:
        return pd.Series(value, index=self._frame.index, dtype=bool)


def _without_missing(mask: pd.Series) -> pd.Series:
    return mask.fillna(False).astype(bool)


def _kind(value: Any) -> str:
    """The kind of values, "text" or "numbers"; '' for neither, as in a column without rows."""
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


def _check_comparable(column: pd.Series, value: Any) -> None:
    """Rejects comparisons that never hold, as one side is text and the other a number."""
    kind, other_kind = _kind(column), _kind(value)
    if kind and other_kind and kind != other_kind:
        raise NbprofError(
            f"column {column.name!r} has {kind} and cannot be compared with {other_kind}."
        )


def _named(node: ast.AST) -> str:
    return _REJECTED.get(type(node), type(node).__name__)
