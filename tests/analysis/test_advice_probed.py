"""Advice on input after a probe: what it measured takes the place of what was predicted."""

from __future__ import annotations

import json

import pytest

import nbprof
from nbprof.analysis.advice.advice import WORTH_PERCENT, every
from nbprof.analysis.advice.probed import OF_INPUT, measured
from tests.support.kineto import Kineto, profile

STEP_MS, WAIT_MS = 100.0, 60.0


def loader() -> Kineto:
    k = Kineto()
    for i in range(4):
        k.step(i, 100_000 * i, 100_000)
        k.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100_000 * i, 60_000)
        k.op("aten::mm", 100_000 * i + 60_000, 40_000)
    return k


def probe(measured_ms: float | None, **more: object) -> dict[str, object]:
    return {
        "text": "t.",
        "detail": "",
        "measured_ms": measured_ms,
        "predicted_ms": STEP_MS - WAIT_MS,
        "slowed": False,
        **more,
    }


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory):
    advice = profile(tmp_path_factory.mktemp("loader"), loader()).advice
    assert advice.set_index("rule").loc["loader_in_process", "gain_ms_per_step"] == pytest.approx(
        WAIT_MS
    )
    return advice


@pytest.mark.parametrize("without", [30.0, 70.0])
def test_the_gain_is_what_was_measured(findings, without) -> None:
    row = (
        measured(findings, probe(without), STEP_MS, WORTH_PERCENT)
        .set_index("rule")
        .loc["loader_in_process"]
    )
    assert row["gain_ms_per_step"] == pytest.approx(STEP_MS - without)
    assert (row["gain_is"], row["certainty"], row["refuted_by"]) == ("up to", "measured", "")
    assert (
        f"a step takes **{without:.2f} ms**: faster input saves up to **{STEP_MS - without:.2f} ms**."
        in row["evidence"]
    )


def test_a_part_of_the_wait_stays_a_part_unless_there_is_less_to_save(findings) -> None:
    part = findings[findings["rule"] == "loader_in_process"].assign(
        rule="map_serial", gain_ms_per_step=20.0, gain_is="about", refuted_by="x"
    )
    row = measured(part, probe(30.0), STEP_MS, WORTH_PERCENT).iloc[0]
    assert (row["gain_ms_per_step"], row["gain_is"], row["refuted_by"]) == (20.0, "about", "x")
    row = measured(part, probe(90.0), STEP_MS, WORTH_PERCENT).iloc[0]
    assert (row["gain_ms_per_step"], row["gain_is"]) == (pytest.approx(10.0), "up to")


def test_input_that_costs_nothing_has_no_advice_unless_the_probe_was_slowed(findings) -> None:
    assert not measured(findings, probe(100.0), STEP_MS, WORTH_PERCENT)["rule"].isin(OF_INPUT).any()
    assert measured(findings, probe(100.0, slowed=True), STEP_MS, WORTH_PERCENT).equals(findings)
    assert (
        measured(findings, probe(70.0, slowed=True), STEP_MS, WORTH_PERCENT)["gain_is"].iloc[0]
        == "about"
    )


def test_without_a_measurement_nothing_changes(findings) -> None:
    for measurement in ({}, probe(None)):
        assert measured(findings, measurement, STEP_MS, WORTH_PERCENT).equals(findings)
    other_rules = findings[~findings["rule"].isin(OF_INPUT)]
    assert measured(other_rules, probe(70.0), STEP_MS, WORTH_PERCENT).equals(other_rules)


def test_all_rules_that_a_probe_would_refute_are_known() -> None:
    rules = {rule.name: rule for rule in every()}
    assert rules.keys() >= OF_INPUT
    assert {
        name for name, rule in rules.items() if "first batch is repeated" in rule.refuted_by
    } <= OF_INPUT


@pytest.fixture
def probed(tmp_path):
    (tmp_path / "a.pt.trace.json").write_bytes(loader().encode())
    (tmp_path / "nbprof.json").write_text(json.dumps({"backend": "torch", "probe": probe(70.0)}))
    return nbprof.load(tmp_path)


def test_verdict_and_advice_of_a_run_say_the_same(probed) -> None:
    assert probed.overview["probe"]["measured_ms"] == 70.0
    assert probed.overview["verdict_detail"].endswith(
        "With instant input, a step takes 70.00 ms (measured by --probe)."
    )
    assert probed.advice.set_index("rule").loc[
        "loader_in_process", "gain_ms_per_step"
    ] == pytest.approx(30.0)


def test_a_comparison_mentions_it(probed, tmp_path_factory) -> None:
    before = profile(tmp_path_factory.mktemp("before"), loader())
    evidence = nbprof.compare(before, probed).evidence
    assert evidence[evidence["text"] == "After: t"]["ok"].tolist() == [True]
    assert "After: t" in nbprof.compare(before, probed).text()


def test_a_probe_of_an_older_recording_is_read(tmp_path) -> None:
    older = {key: value for key, value in probe(70.0).items() if key != "slowed"}
    (tmp_path / "a.pt.trace.json").write_bytes(loader().encode())
    (tmp_path / "nbprof.json").write_text(json.dumps({"backend": "torch", "probe": older}))
    assert nbprof.load(tmp_path).overview["probe"] == probe(70.0)
