"""Comparisons of runs that are given per iteration, per call or of the recording."""

from __future__ import annotations

import re

import pytest

import nbprof
from nbprof.activity.unit import CALL, ITERATION, RECORDING, STEP
from tests.support.units import CPU, GPU, profile_of


def compared(before, after):
    return nbprof.compare(profile_of(before, CPU), profile_of(after, GPU))


def test_calls_are_compared_as_calls():
    c = compared(CALL, CALL)
    text = c.text()
    assert " ms per call)" in text
    assert "5 calls each" in text
    assert "Calls / s" in text
    assert "Average call" in text
    assert "step" not in text.replace("nbprof.steps", "")
    assert "| ms per call |" in c.markdown()


def test_two_recordings_are_compared_by_their_durations_without_statistics():
    c = compared(RECORDING, RECORDING)
    row = c.verdict.iloc[0]
    assert row["verdict"] == "unknown"
    assert re.search(r"× slower \([\d.]+ ms vs [\d.]+ ms\)", row["headline"])
    told = list(c.evidence["text"])
    assert any("one recording each cannot show the spread" in text for text in told)
    assert any("may differ in content" in text for text in told)
    assert not any("record 10 or more" in text for text in told)
    assert set(c.figures["figure"]).isdisjoint({"steps_per_second", "examples_per_second"})
    assert c.figures.set_index("figure").loc["step_time", "after"] == pytest.approx(
        profile_of(RECORDING, GPU).overview["step_time_ms"]
    )


@pytest.mark.parametrize(
    ("before", "after"), [(STEP, RECORDING), (CALL, RECORDING), (STEP, CALL), (ITERATION, CALL)]
)
def test_different_units_are_not_compared(before, after):
    c = compared(before, after)
    assert c.verdict.iloc[0]["headline"].startswith("Times cannot be compared: cpu_train is given ")
    assert "step_time" not in set(c.figures["figure"])
    assert c.categories["change_ms"].isna().all()
    assert c.verdict.iloc[0]["verdict"] == "unknown"


def test_marked_steps_and_turns_of_a_loop_are():
    c = compared(ITERATION, STEP)
    assert " ms per step)" in c.verdict.iloc[0]["headline"]
    assert "Times are per iteration before, per step after" in set(c.evidence["text"])


def test_the_report_of_a_comparison_follows():
    html = compared(CALL, CALL)._repr_mimebundle_()[0]["text/html"]
    assert "ms per call" in html
    assert "predicted gain per call" in html or "Advice before and after" not in html
