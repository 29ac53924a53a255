"""Results of experiments as a frame, in findings and in outputs; and their statistics."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.advice import tried
from nbprof.capture.experiments import engine, equality
from nbprof.capture.experiments.engine import Tried
from nbprof.capture.experiments.observation import RESULT, STATE, Value
from nbprof.capture.experiments.statistics import median_of
from nbprof.schema import frames
from nbprof.sources.recording import CaptureInfo

FASTER = Tried(
    "fused_optimizer",
    "fused optimizer",
    "optimizer_loop",
    "it is faster, and the results are equal",
    code="- Adam(...)\n+ Adam(..., fused=True)",
    baseline_ms=9.0,
    gain_ms=2.0,
    gain_low_ms=1.5,
    gain_high_ms=2.5,
    first_ms=10.0,
    pays_after=5,
    equal=True,
    difference=1e-7,
    spread=0.0,
    pairs=6,
    took_s=4.2,
    recommended=True,
)
REFUSED = Tried("zero_grad", "gradients set to None", "host_ops", "not tried: they are")


def test_the_frame_has_its_schema_and_missing_values():
    frame = tried.frame([FASTER.to_dict(), REFUSED.to_dict()])
    assert frame.dtypes.astype(str).to_dict() == frames.dtypes("tried")
    assert frame.loc[0, "pays_after"] == 5
    assert frame["took_s"].isna().tolist() == [False, True]
    assert frame.loc[1, ["gain_ms", "pays_after", "equal", "memory_before_bytes"]].isna().all()
    assert frame["recommended"].tolist() == [True, False]
    assert tried.frame([]).equals(frames.empty("tried"))


def test_a_finding_says_what_came_of_its_remedy():
    findings = pd.DataFrame(
        {"rule": ["optimizer_loop", "host_ops", "waits"], "evidence": ["A.", "B.", "C."]}
    )
    rows = tried.frame([FASTER.to_dict(), REFUSED.to_dict()])
    fused = (
        "Tried: fused optimizer **−22 %** [17, 28] of a step, results equal; it pays after 5 steps."
    )
    assert tried.with_results(findings, rows)["evidence"].tolist() == [
        f"A. {fused}",
        "B. Tried: gradients set to None, not tried: they are.",
        "C.",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"gain_ms": -0.9, "gain_low_ms": -1.8, "gain_high_ms": -0.45, "why": "it is slower"},
            "+10 %** [−20, −5.0] of a step, results equal; not recommended: it is slower",
        ),
        (
            {"gain_low_ms": -0.9, "why": "it is not sure"},
            "−22 %** [−10, 28] of a step, results equal; not recommended: it is not sure",
        ),
        ({"equal": False}, "−22 %** [17, 28] of a step, results not equal; not recommended: no"),
        ({"equal": None}, "−22 %** [17, 28] of a step, results not compared; not recommended: no"),
    ],
)
def test_a_finding_says_why_its_remedy_is_not_recommended(changes, expected):
    stored = {**FASTER.to_dict(), "recommended": False, "why": "no", **changes}
    (row,) = tried.frame([stored]).to_dict("records")
    assert tried.sentence(row) == f"fused optimizer **{expected}"


def test_results_survive_the_file_and_damage_to_it():
    stored = {"text": "a", "rows": [FASTER.to_dict(), 3]}
    info = CaptureInfo.from_dict({"tried": stored})
    assert info.tried == {"text": "a", "rows": [FASTER.to_dict()]}
    assert CaptureInfo.from_dict({"tried": {"text": 1}}).tried == {}
    assert CaptureInfo.from_dict({}).tried == {}


@pytest.mark.parametrize(
    ("count", "rank"), [(5, None), (6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (12, 13)]
)
def test_the_interval_is_that_of_wilcoxons_table(count, rank):
    """The critical values of the signed-rank test for 5 %, two-sided."""
    values = np.arange(1.0, count + 1) ** 2
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    median = median_of(values, 0.95)
    assert median.value == np.median(means)
    expected = (-np.inf, np.inf) if rank is None else (means[rank], means[-1 - rank])
    assert median[1:] == expected


def test_an_outlier_does_not_hide_a_gain():
    gains = np.array([2.0, 2.1, 1.9, 2.0, 2.2, 1.8, 2.0, 2.1, 1.9, 2.0, 2.1, -50.0])
    median = median_of(gains, 0.95)
    assert 1.9 <= median.value <= 2.1
    assert median.low > 0


def value(array, kind=RESULT, dtype="float32", name="loss"):
    return Value(kind, name, np.asarray(array, np.float64), dtype)


@pytest.mark.parametrize(
    ("first", "second", "changed", "equal", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], True, 0.0),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.00001], True, 5e-6),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0002], False, 1e-4),
        # As much as two unchanged runs differ.
        ([1.0, 2.0], [1.0, 2.0002], [1.0, 2.0002], True, 1e-4),
        ([1.0, np.nan], [1.0, np.nan], [1.0, np.nan], True, 0.0),
        ([1.0, 2.0], [1.0, 2.0], [1.0, np.nan], False, np.inf),
        ([0.0, 0.0], [0.0, 0.0], [0.0, 1e-9], False, np.inf),
    ],
)
def test_results_are_equal_up_to_rounding_and_spread(first, second, changed, equal, difference):
    result = equality.compare([value(first)], [value(second)], [value(changed)])
    assert result.equal is equal
    assert result.difference == pytest.approx(difference, rel=1e-3)


def test_results_that_cannot_be_compared_are_unknown_and_others_unequal():
    a, longer = [value([1.0])], [value([1.0]), value([2.0])]
    assert equality.compare([], [], []).equal is None
    assert equality.compare(a, longer, a).equal is None
    assert equality.compare(a, a, longer).equal is False
    # A time in a variable differs between any two runs.
    times = [[value([x], STATE, name="elapsed")] for x in (1.0, 1.5, 9.0)]
    assert equality.compare(*times).equal is None
    states = [[value([1.0, x], STATE, name="w")] for x in (1.0, 1.0, 1.5)]
    assert equality.compare(*states).equal is False


def judged(gains, results, baseline=10.0):
    changed = np.full(len(gains), baseline)
    about = Tried("a", "a", "", "", first_ms=12.0)
    return engine._judged(about, results, changed + np.array(gains), changed, 0.95)


EQUAL = equality.Equality(True, 0.0, 0.0, 1e-5)


@pytest.mark.parametrize(
    ("gains", "results", "recommended", "why"),
    [
        ([3.0] * 6, EQUAL, True, engine.FASTER),
        ([3.0] * 6, EQUAL._replace(equal=False, difference=1e-3), False, "the results are not"),
        ([3.0] * 6, equality.UNKNOWN, False, engine.UNKNOWN_RESULTS),
        ([3.0] * 5 + [-1.0], EQUAL, False, engine.NOT_FASTER),
        ([-3.0] * 6, EQUAL, False, engine.SLOWER),
        ([0.05] * 6, EQUAL, False, engine.LITTLE),
        ([3.0] * 5, EQUAL, False, engine.NOT_FASTER),
    ],
)
def test_only_what_is_equal_and_surely_faster_is_recommended(gains, results, recommended, why):
    result = judged(gains, results)
    assert result.recommended is recommended
    assert result.why.startswith(why)


def test_the_first_steps_are_paid_after_some_steps():
    assert judged([3.0] * 6, EQUAL).pays_after == 4
    assert judged([-3.0] * 6, EQUAL).pays_after is None
