"""How the part of the steps that waits for input is told."""

from __future__ import annotations

from nbprof.tools.input.payload import _share


def test_a_range_is_told_where_its_digits_say_something() -> None:
    known = {
        "input_percent": 12.3,
        "mean_percent": 12.0,
        "sd_percent": 1.5,
        "min_percent": 9.0,
        "max_percent": 14.0,
    }
    assert _share(known)["note"] == "of step time; by step 9.0–14.0, mean 12.0 ± 1.5"


def test_a_share_that_is_next_to_nothing_has_one_rounding() -> None:
    known = {
        "input_percent": 0.02,
        "mean_percent": 0.02,
        "sd_percent": 0.02,
        "min_percent": 0.0,
        "max_percent": 0.061,
    }
    assert _share(known)["note"] == "of step time; at most 0.06% of a step"
    assert (
        _share({**known, "max_percent": 0.001})["note"] == "of step time; less than 0.01% of a step"
    )
