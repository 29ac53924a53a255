"""Conditions on the rows of a frame, which may come from anybody."""

from __future__ import annotations

import contextlib
import keyword

import pandas as pd
import pytest

from nbprof.core.errors import NbprofError
from nbprof.frames import SCHEMA
from nbprof.profiles.where import where

FRAME = pd.DataFrame(
    {
        "op": ["gemm", "add \u202e{x}", None, "gemm_2"],
        "self_us": [1.0, 2.5, float("nan"), -4.0],
        "calls": pd.array([1, None, 3, 4], dtype="Int64"),
        "eager": [True, False, True, False],
        "real": pd.array([True, None, False, True], dtype="boolean"),
        "class": ["x", "y", "z", "w"],
        "at": pd.to_datetime(["2024-01-01", "2025-01-01", None, "2026-01-01"]),
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("self_us > 1", [1]),
        ("not self_us > 1", [0, 2, 3]),
        ("-5 <= self_us < 2.5", [0, 3]),
        ("self_us > calls", []),
        ("calls >= self_us", [0, 3]),
        ('"gemm" in op', [0, 3]),
        ('"gemm" not in op', [1, 2]),
        ('op in ["gemm", "mul"] or calls in (3, 4)', [0, 2, 3]),
        ('op != "gemm"', [1, 3]),
        ("op is None", [2]),
        ("calls is not None and (eager or self_us < 0)", [0, 2, 3]),
        ("eager == false", [1, 3]),
        ("real", [0, 3]),
        ('class_ == "x" or class_ == "z"', [0, 2]),
        ('at >= "2025-01-01"', [1, 3]),
        (" self_us > -1e999 ", [0, 1, 3]),
        ("not " * 101 + "eager", [1, 3]),
    ],
)
def test_rows(condition, rows):
    assert where(FRAME, condition).index.tolist() == rows


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ('__import__("os").system("x")', "a call is not in the grammar"),
        ("op.str.len() > 3", "a call is not in the grammar"),
        ("op.values == 'x'", "an attribute is not"),
        ("@FRAME == 1", "invalid syntax"),
        ("`op` == 'x'", "invalid syntax"),
        ("[x for x in op]", "not in the grammar"),
        ("lambda: op", "not in the grammar"),
        ("(op := 3) > 2", "not in the grammar"),
        ("f'{op}' == op", "not in the grammar"),
        ("op[0] == 'x'", "a subscript is not"),
        ("self_us > 9 ** 9 ** 9", "arithmetic"),
        ("eager & real", "arithmetic, or & and |"),
        ("self_us == 1j", "not in the grammar"),
        ("self_us > " + "9" * 500, "cannot be compared"),
        ("self_us > " + "9" * 5000, "more than 1000 characters"),
        ("(" * 400 + "eager" + ")" * 400, "too many nested parentheses|nested too deeply"),
        ("not " * 240 + "eager.x", "an attribute is not"),
        ("self_us > 1\0", "NUL|null byte"),
        ("", "invalid syntax"),
        ("import os", "invalid syntax"),
        ("1 == 1", "two constants"),
        ("missing > 1", "no column 'missing'; there are op, self_us"),
        ("op > 1", "'op' has text and cannot be compared with numbers"),
        ("self_us == 'x'", "'self_us' has numbers and cannot be compared with text"),
        ("op in ['a', 1]", "cannot be compared with numbers"),
        ("'1' in calls", "does not contain text"),
        ("op in op", "`in` takes"),
        ("op is 1", "`is` takes"),
        ("op", "is not true or false"),
        ("at > 'yesterday-ish'", "cannot be compared"),
    ],
)
def test_refused(condition, said):
    with pytest.raises(NbprofError, match=said):
        where(FRAME, condition)


def test_a_frame_without_rows_takes_every_comparison():
    nothing = pd.DataFrame(
        {"op": pd.Series([], dtype=object), "self_us": pd.Series([], dtype=object)}
    )
    for condition in ("self_us > 1", "op == 'x'", "'x' in op", "op in ['x']"):
        assert where(nothing, condition).empty


def test_what_is_nested_as_deeply_as_it_may_be_long_is_no_crash():
    # Where Python's own limits lie differs by version: a result or a sentence.
    with contextlib.suppress(NbprofError):
        assert where(FRAME, "self_us == " + "-" * 900 + "1").index.tolist() == [0]
    with contextlib.suppress(NbprofError):
        assert where(FRAME, "not " * 240 + "eager").index.tolist() == [0, 2]


def test_each_column_can_be_named():
    names = {column.name for columns in SCHEMA.values() for column in columns}
    assert [name for name in names if not name.isidentifier() or name in ("true", "false")] == []
    assert [name for name in names if keyword.iskeyword(name) and f"{name}_" in names] == []
