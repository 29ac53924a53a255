"""Advice where the unit of work is another than a step: its words, and which rules are silent where
the recording is the only unit.
"""

from __future__ import annotations

import pytest

from nbprof.activity.unit import CALL, ITERATION, KINDS, MARKED, RECORDING, STEP, Unit
from nbprof.analysis.advice import checks
from nbprof.analysis.advice.advice import advice, every
from nbprof.analysis.rule import ALL, OURS, Found, Rule, Target, Threshold
from tests.support.units import CPU, GPU, profile_of


@pytest.mark.parametrize("path", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kind", [ITERATION, CALL, RECORDING])
def test_findings_speak_of_the_unit(path, kind):
    findings = profile_of(kind, path).run.advice
    assert len(findings), "the loader without workers is found whatever the unit is"
    for text in (*findings["evidence"], *findings["title"], *findings["refuted_by"]):
        assert "step" not in text
    assert findings["evidence"].str.contains(Unit(kind).per).all()
    assert findings["refuted_by"].str.contains(Unit(kind).the).all()


def test_a_gain_is_of_the_recording():
    of_steps, of_recording = profile_of(STEP), profile_of(RECORDING)
    gain = of_recording.run.advice["gain_ms_per_step"].iloc[0]
    assert gain == pytest.approx(5 * of_steps.run.advice["gain_ms_per_step"].iloc[0], rel=1e-6)
    assert gain < of_recording.overview["step_time_ms"]


@pytest.mark.parametrize("kind", KINDS)
def test_checks_speak_of_the_unit(kind):
    statements = profile_of(kind).overview["checks"]["statement"]
    of_time = statements[statements.str.contains(f"of {Unit(kind).time}")]
    assert len(of_time) >= 2
    assert kind == STEP or not statements.str.contains(r"\bsteps?\b").any()


def test_no_input_at_all_is_said_of_the_recording():
    assert (
        checks.input_statement(0.0, 0.0, Unit(RECORDING))
        == "Not input-bound: none of the recording is spent waiting for input."
    )
    assert (
        checks.input_statement(0.0, 0.0)
        == "Not input-bound: no step time is spent waiting for input."
    )


def test_rules_that_need_several_units_are_not_asked_about_a_recording(monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(Rule, "ask", lambda rule, _: asked.append(rule.name))
    for kind, silent in ((RECORDING, True), (CALL, False)):
        asked.clear()
        run = profile_of(kind, GPU).run
        assert run.advice is not None
        needing = {
            rule.name
            for rule in every()
            if rule.needs_units and rule.applies not in ("TensorFlow", "JAX", "TensorFlow, JAX")
        }
        assert needing >= {
            "compile",
            "periodic",
            "memory_growth",
            "slow_unrecorded",
            "slowing",
            "between_steps",
            "small_batch",
            "optimizer_loop",
            "straggler",
        }
        assert set(asked).isdisjoint(needing) is silent
        assert "mixed_precision" in asked


def test_headings_and_experiments_are_templates():
    rule = Rule(
        "r",
        lambda *_: None,
        Threshold("any"),
        OURS,
        Target("ops", "Ops"),
        ALL,
        "it",
        "Do less {per}",
        refuted_by="{the} takes as long",
    )
    assert rule.finding(Found("x"), Unit(ITERATION)).title == "Do less per iteration"
    assert rule.finding(Found("x"), Unit(RECORDING)).refuted_by == "the recording takes as long"
    assert rule.finding(Found("x", title="f{x}")).title == "f{x}"
    for each in every():
        assert "{" not in MARKED.fill(each.title) + MARKED.fill(each.refuted_by)


def test_an_overview_without_a_unit_is_of_steps():
    run = profile_of(STEP).run
    overview = {key: value for key, value in run.overview_of_files.items() if key != "unit"}
    tables = run.steps_summary, run.tf_data.pipelines, run.tf_data.nodes, run.kernels_in_steps
    assert advice(overview, *tables) is not None
    assert Unit.of(overview) == MARKED
