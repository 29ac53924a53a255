"""The gate on profiles that are given per call, per iteration, or of the recording."""

from __future__ import annotations

import pytest

from nbprof.activity.unit import CALL, ITERATION, KINDS, RECORDING, STEP, Unit
from nbprof.core.errors import NbprofError
from nbprof.gate import figures
from nbprof.gate.baseline import Baseline
from nbprof.gate.expect import expect
from nbprof.gate.figures import KINDS as FIGURES
from nbprof.gate.figures import OF_UNITS
from nbprof.gate.outcome import FAIL, PASS, UNKNOWN
from tests.support.units import GPU, profile_of


@pytest.fixture(autouse=True)
def _certain(monkeypatch):
    # The recording has a warning in its receipt, which makes every figure uncertain.
    monkeypatch.setattr(figures, "doubt", lambda _: "")


def judged(profile, path=None, **options):
    chain = expect(profile, unknown="warn", **options)
    return chain.against(path, same_machine=True) if path else chain


@pytest.mark.parametrize("kind", KINDS)
def test_messages_follow_the_unit(kind):
    unit = Unit(kind)
    (few, many) = judged(profile_of(kind, GPU)).kernels(max=1).kernels(max=1e6).judge()
    assert (few.outcome, many.outcome) == (FAIL, PASS)
    assert few.text.startswith(f"kernels {unit.per}: ")
    assert FIGURES["recompiles"].title(unit) == (
        "compilations" if unit.is_recording else "compilations after warm-up"
    )
    assert FIGURES["peak_memory"].title(unit) == "peak memory"
    assert set(OF_UNITS) < set(FIGURES)


def test_counts_of_a_recording_are_of_all_of_it():
    each = judged(profile_of(STEP, GPU)).kernels(max=1).judge()[0].value
    whole = judged(profile_of(RECORDING, GPU)).kernels(max=1).judge()[0].value
    assert whole == pytest.approx(5 * each)


@pytest.mark.parametrize(
    ("kind", "time"), [(CALL, "call time"), (RECORDING, "duration of the recording")]
)
def test_times_are_named_by_the_unit(tmp_path, kind, time):
    path = tmp_path / "base.json"
    (first,) = judged(profile_of(kind, GPU), path, update="new").step_time(slower="5 %").judge()
    assert first.text.startswith(f"{time}: ")
    (second,) = judged(profile_of(kind, GPU), path).step_time(slower="5 %").judge()
    assert second.outcome == UNKNOWN
    assert second.text.startswith(f"{time}: ")


def test_a_baseline_knows_its_unit(tmp_path):
    path = tmp_path / "base.json"
    judged(profile_of(CALL, GPU), path, update="new").kernels().dropped().judge()
    assert Baseline.read(path).unit == CALL
    assert [
        one.outcome for one in judged(profile_of(CALL, GPU), path).kernels().dropped().judge()
    ] == [PASS, PASS]
    kernels, dropped, time = (
        judged(profile_of(RECORDING, GPU), path).kernels().dropped().step_time(slower="5 %").judge()
    )
    assert (kernels.outcome, dropped.outcome, time.outcome) == (UNKNOWN, PASS, UNKNOWN)
    assert (
        "figures of the baseline are per call, those of the profile of the recording"
        in kernels.text
    )
    other = tmp_path / "other.json"
    Baseline(unit=CALL).write(other)
    with pytest.raises(
        NbprofError,
        match="the durations of this run were not added: figures of the baseline are per call",
    ):
        judged(profile_of(RECORDING, GPU), other, update="add").step_time(slower="5 %").judge()


def test_a_baseline_of_steps_is_written_as_before(tmp_path):
    path = tmp_path / "base.json"
    judged(profile_of(STEP, GPU), path, update="new").kernels().judge()
    assert '"unit"' not in path.read_text()
    assert Baseline.read(path).unit == STEP
    path.write_text(path.read_text().replace('"truncated"', '"unit": "epoch",\n "truncated"'))
    with pytest.raises(NbprofError, match="not a baseline"):
        Baseline.read(path)


def test_repeats_of_different_units_are_not_compared():
    chain = expect(profile_of(CALL, GPU), profile_of(ITERATION, GPU), unknown="warn")
    (kernels,) = chain.kernels(max=1e6).judge()
    assert kernels.outcome == UNKNOWN
    assert "some of the profiles are given per iteration and some per call" in kernels.text
