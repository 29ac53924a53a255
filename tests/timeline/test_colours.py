"""Tints are those that the page gives; js/tests/trace-colours.test.ts reads the same table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from nbprof.timeline.colours import MOST_NAME, Fills, stem, tint_of
from nbprof.tools.trace import payload as trace

TABLE = Path(__file__).resolve().parents[2] / "js" / "tests" / "data" / "tints.json"


def test_stems_and_tints_are_those_of_the_page() -> None:
    table = json.loads(TABLE.read_text())
    assert len({row["tint"] for row in table}) == 8
    for row in table:
        assert (stem(row["name"]), tint_of(row["name"])) == (row["stem"], row["tint"])


def test_a_category_goes_before_the_name() -> None:
    names = np.array(
        ["fusion.1", "fusion.2", "MatMul", "x" * 20_000, "x" * MOST_NAME, "a\nb", "a b"], object
    )
    fills = Fills(names, np.array([0, 0, 7, 0, 0, 0, 0], np.uint8))
    codes = np.array([2, 1, 0, 0, 3, 4, 5, 6])
    found = fills.by_code(codes)
    assert found.tolist() == fills.by_code(codes).tolist()
    assert found[0] == 7
    assert found[1] == found[2] == found[3] == 100 + tint_of("fusion")
    # A page knows of a long name, and of one with line breaks, what a report has of it.
    assert found[4] == found[5] == 100 + tint_of("x" * MOST_NAME)
    assert found[6] == found[7]
    assert MOST_NAME == trace.MOST_NAME


def test_a_name_of_brackets_and_digits_takes_no_longer_than_its_length() -> None:
    for hostile in ("<" * 100_000, "1." * 100_000 + "x", "_" * 100_000 + "x", "()" * 100_000):
        assert stem(hostile)
