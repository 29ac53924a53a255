"""Texts that are cut or joined for a sentence or a cell."""

from __future__ import annotations

import pytest

from nbprof.display import wording
from nbprof.tools.common import figure


def test_a_text_is_cut_only_where_it_has_no_room() -> None:
    assert [wording.cut("abcdef", most) for most in (6, 5)] == ["abcdef", "abcd…"]
    assert wording.cut(12345, 4) == "123…"
    assert [wording.middle_cut("abcdefgh", most) for most in (8, 5, 4)] == ["abcdefgh", "ab…gh", "ab…h"]


@pytest.mark.parametrize(("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")])
def test_words_are_listed(words: list[str], text: str) -> None:
    assert wording.listed(words, "or") == text


def test_microseconds_are_in_the_unit_that_suits_them() -> None:
    assert [wording.micros(us) for us in (25, 999.9, 1000, 81_492.59, 1.3e6, 47_618_200, -2e7, None)] == [
        *("25.0 µs", "999.9 µs", "1.00 ms", "81.49 ms", "1,300.00 ms", "47.62 s", "−20.00 s", "–"),
    ]
    assert [wording.millis(ms, 1) for ms in (0.31, 9999.94, 10_000, None)] == ["0.3 ms", "9,999.9 ms", "10.00 s", "–"]


def test_how_often_something_happens() -> None:
    assert [wording.times(count) for count in (0.97, 3, 1234)] == ["once", "3 times", "1,234 times"]


def test_a_long_time_in_a_card_is_in_seconds() -> None:
    shown = [figure("time", "Time", ms, "ms", 1, "") for ms in (9_999.9, 315_117.9, None)]
    assert [(one["value"], one["unit"], one["digits"]) for one in shown] == [(9_999.9, "ms", 1), (315.1179, "s", 2), (None, "ms", 1)]
