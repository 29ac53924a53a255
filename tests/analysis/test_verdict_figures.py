"""The figures in the sentences of the verdict."""

from __future__ import annotations

import re

import pytest

from tests.support.kineto import Kineto, profile


def test_what_a_step_would_take_is_the_step_without_the_wait(tmp_path):
    trace = Kineto()
    for number in range(12):
        at = 40_000.0 * number
        trace.step(number, at, 40_000.0)
        trace.note(
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 100, 24_000.0
        )
        trace.op("aten::mm", at + 25_000, 14_000.0)
    answer = profile(tmp_path, trace).overview
    assert answer["verdict"] == "Input-bound"
    found = re.search(r"would take ([\d.]+) ms, ([\d.]+)× faster", answer["verdict_detail"])
    left = answer["step_time_ms"] * (1 - answer["input_percent"] / 100)
    assert float(found[1]) == pytest.approx(left, abs=0.006)
    assert float(found[2]) == pytest.approx(answer["step_time_ms"] / left, abs=0.06)
