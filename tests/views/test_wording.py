"""Texts that are cut or joined for a sentence or a cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nbprof
from nbprof.display import wording
from nbprof.tools.common import figure


def test_a_text_is_cut_only_where_it_has_no_room() -> None:
    assert [wording.shortened("abcdef", most) for most in (6, 5)] == ["abcdef", "abcd…"]
    assert wording.shortened(12345, 4) == "123…"
    assert [wording.shortened_middle("abcdefgh", most) for most in (8, 5, 4)] == [
        "abcdefgh",
        "ab…gh",
        "ab…h",
    ]


@pytest.mark.parametrize(
    ("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
)
def test_words_are_listed(words: list[str], text: str) -> None:
    assert wording.listed(words, "or") == text


def test_microseconds_are_in_the_unit_that_suits_them() -> None:
    assert [
        wording.micros(us) for us in (25, 999.9, 1000, 81_492.59, 1.3e6, 47_618_200, -2e7, None)
    ] == [
        *("25.0 µs", "999.9 µs", "1.00 ms", "81.49 ms", "1,300.00 ms", "47.62 s", "−20.00 s", "–"),
    ]
    assert [wording.millis(ms, 1) for ms in (0.31, 9999.94, 10_000, None)] == [
        "0.3 ms",
        "9,999.9 ms",
        "10.00 s",
        "–",
    ]


def test_a_time_too_short_for_ms_is_told_in_microseconds() -> None:
    assert [wording.millis(ms) for ms in (0, 0.0031, -0.0031, 0.01)] == [
        "0.00 ms",
        "3.1 µs",
        "−3.1 µs",
        "0.01 ms",
    ]


def test_two_times_have_one_unit_where_it_is_the_same() -> None:
    pairs = [(4.0, 5.5), (800, 12_350), (0.002, 0.5), (None, 2)]
    assert [wording.millis_two(a, b, " to ") for a, b in pairs] == [
        *("4.00 to 5.50 ms", "800.00 ms to 12.35 s", "2.0 µs to 0.50 ms", "– to 2.00 ms"),
    ]


def test_a_rise_has_a_plus_where_something_is_left_of_it() -> None:
    assert [wording.rise(wording.millis(ms), ms) for ms in (6.2, -12_350, 0, None)] == [
        "+6.20 ms",
        "−12.35 s",
        "0.00 ms",
        "–",
    ]


def test_how_often_something_happens() -> None:
    assert [wording.times(count) for count in (0.97, 3, 1234)] == ["once", "3 times", "1,234 times"]


def test_a_long_time_in_a_card_is_in_seconds() -> None:
    shown = [figure("time", "Time", ms, "ms", 1, "") for ms in (9_999.9, 315_117.9, None)]
    assert [(one["value"], one["unit"], one["digits"]) for one in shown] == [
        (9_999.9, "ms", 1),
        (315.1179, "s", 2),
        (None, "ms", 1),
    ]


_BYTES_BY_HAND = re.compile(r"""\} (?:[KMGT]i?B|kB)(?!/s)\b""")


def test_sizes_are_worded_in_one_place() -> None:
    root = Path(nbprof.__file__).parent
    lines = [
        f"{path.relative_to(root)}:{number}"
        for path in root.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _BYTES_BY_HAND.search(line)
    ]
    # Thresholds of rules, and the units of axes.
    allowed = {f"analysis/advice/{name}.py" for name in ("hlo", "input", "over_steps")}
    allowed |= {"tools/memory_viewer/figure.py", "tools/memory/figure.py"}
    assert [line for line in lines if line.partition(":")[0] not in allowed] == []
