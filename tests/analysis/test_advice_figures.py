"""The figures that advice is given: each from tables small enough to count by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from nbprof.analysis.advice import device as advice_device
from nbprof.analysis.advice import evidence as advice_evidence
from nbprof.analysis.advice import programs as advice_programs
from nbprof.analysis.advice.unrolled import Unrolled
from nbprof.frameworks.register import TENSORFLOW
from tests.run.test_guard import fails, training
from tests.support.kineto import profile
from tests.support.made import opened
from tests.support.xspace import MS, PlaneWriter, xspace


@pytest.mark.parametrize("steps", [1, 4])
def test_products_on_the_host_are_told_by_step(steps: int) -> None:
    activity: Any = SimpleNamespace(framework=TENSORFLOW, devices=[1])
    ops = pd.DataFrame(
        [
            ("host", "a", "MatMul", 3000.0, 30.0),
            ("host", "b", "Conv2D", 5000.0, 50.0),
            ("host", "c", "MatMul", 9000.0, 90.0),
            ("host", "d", "Identity", 3000.0, 1.0),
            ("device", "c", "MatMul", 7000.0, 70.0),
        ],
        columns=["where", "op", "type", "self_us", "avg_self_us"],
    )
    kernels = pd.DataFrame({"op": []})
    # c runs on the device: on the host it launches its kernels.
    assert advice_evidence._host_products(
        activity, ops, kernels, steps
    ) == advice_evidence.HostProducts(40.0, 8.0 / steps, "b", 50.0)
    assert (
        advice_evidence._host_products(activity, ops, pd.DataFrame({"op": ["a", "b"]}), steps)
        is None
    )


def test_what_lies_over_a_step_that_is_not_counted_is_no_gap() -> None:
    steps = pd.DataFrame(
        {
            "host": "a",
            "kind": "train",
            "start_ms": [0.0, 12, 30, 60],
            "step_time_ms": 10.0,
            "counted": True,
        }
    )
    assert gaps_ms(steps) == [2.0, 8.0, 20.0]
    steps.loc[2, "counted"] = False
    assert gaps_ms(steps) == [2.0]
    steps["counted"] = [True, False, True, False]
    assert gaps_ms(steps) == []
    steps = steps.assign(counted=True, kind=["train", "test", "train", "test"])
    assert gaps_ms(steps) == []


def gaps_ms(steps: pd.DataFrame) -> list[float]:
    gaps = advice_evidence._gaps(steps)
    return list((gaps["end"] - gaps["start"]) / 1e9)


@pytest.mark.parametrize(("thread", "waited"), [("python", 6.0), ("pool", None)])
def test_an_iterator_that_is_asked_before_the_step_begins(
    thread: str, waited: float | None
) -> None:
    """On the thread of the steps; what another thread makes ahead, nobody waits for."""
    host = PlaneWriter("/host:CPU")
    lines: dict[str, list[bytes]] = {"python": [], "pool": []}
    for i in range(6):
        start = 20 * i * MS
        lines["python"].append(host.event("train", start, 10 * MS, step_num=i, _r=1))
        lines["python"].append(host.event("dense/MatMul:MatMul", start, 9 * MS))
        lines[thread].append(
            host.event("Iterator::Root", start + 11 * MS, 6 * MS, id=11, parent_id=0)
        )
        lines[thread].append(
            host.event("Iterator::Root::Map", start + 11 * MS, 5 * MS, id=12, parent_id=11)
        )
    for number, (name, events) in enumerate(lines.items()):
        host.line(name, events, line_id=1 + number)
    p = opened(xspace(host))
    finding = p.run._evidence()
    assert (finding.between_ms, finding.between_input_ms) == (10.0, waited)
    assert ("input_outside_steps" in set(p.advice["rule"])) is (waited is not None)


def test_a_fusion_saves_the_shorter_of_two_ops_and_no_more_than_the_reader_takes(
    monkeypatch,
) -> None:
    names = ["a", "b", "c", "d"]
    top = pd.DataFrame({"host": 0, "program": 1, "name": names})
    table = pd.DataFrame(
        {
            "category": "loop fusion",
            "bandwidth_fraction": 0.9,
            "compute_fraction": 0.1,
            "moves": False,
            "own": [5.0, 7.0, 9.0, 4.0],
        }
    )
    activity: Any = SimpleNamespace(programs=SimpleNamespace(program=lambda host, ident: object()))
    monkeypatch.setattr(
        advice_programs,
        "_readers",
        lambda program, rows: [("b", ["a"]), ("c", ["b", "a"]), ("d", [])],
    )
    # b after a saves 5, c after both of them 9 at most.
    assert advice_programs._chained(activity, top, table) == (14.0, "c", 2)


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [("2, 3, 4", 24.0), ("5", 5.0), ("", None), ("a,b", None), ("9" * 5000, float("inf"))],
)
def test_blocks_of_a_grid(grid: str, blocks: float | None) -> None:
    assert advice_device._blocks(grid) == pytest.approx(
        float("nan") if blocks is None else blocks, nan_ok=True
    )


def test_a_kernel_of_many_blocks_does_not_make_up_for_one_of_few() -> None:
    kernels = pd.DataFrame(
        {
            "grid": ["2,1,1", "10,1,1", "400,1,1", None],
            "total_us": [40.0, 20.0, 30.0, 10.0],
            "op": ["few", "all", "many", "unknown"],
        }
    )
    device = {"kind": "GPU", "cores": 10, "architecture": "Ampere"}
    facts: Any = SimpleNamespace(
        gpus=[device],
        kernels=kernels,
        computing=(kernels, 100.0),
        compute_ms=50.0,
        mean={"step_time": 100.0},
        level=lambda gain: "medium",
    )
    (rule,) = (rule for rule in advice_device.RULES if rule.name == "few_blocks")
    finding = rule.finding(rule.ask(facts))
    # A kernel of 2 blocks leaves 8 of 10 multiprocessors empty for 40 of 100 µs.
    assert "**40%** of kernel time" in finding.evidence
    assert "leaves **32%** of the device idle" in finding.evidence
    assert "the worst is few with **2** blocks" in finding.evidence
    assert finding.gain_ms_per_step == pytest.approx(16.0)
    # A larger batch is advised once, with what both rules saw.
    step_finding = finding._replace(
        rule="small_batch", title="Give each step a larger batch", evidence="Busy **7%**."
    )
    assert advice_device.one_batch([finding]) == [finding]
    (joined,) = advice_device.one_batch([finding, step_finding])
    assert (joined.rule, joined.evidence) == ("small_batch", f"Busy **7%**. {finding.evidence}")
    kernels.loc[0, "grid"] = "10,1,1"
    assert rule.ask(facts) is None


def test_evidence_is_computed_when_it_is_first_read(monkeypatch) -> None:
    computed = []
    monkeypatch.setattr(
        advice_evidence.unrolled, "find", lambda activity: computed.append(activity)
    )
    sources: Any = SimpleNamespace(activity="activity")
    evidence = advice_evidence.Evidence(sources, tpu_start_s=3.0)
    assert (evidence.tpu_start_s, computed) == (3.0, [])
    assert evidence.unrolled is None
    assert evidence.unrolled is None
    assert computed == ["activity"]
    # Without tables nothing is computed, and known values go before.
    assert advice_evidence.Evidence().unrolled is None
    chain = Unrolled("jit_step", 90, 20, "f32[8]", "model.py:12")
    assert evidence.with_values(unrolled=chain).unrolled is chain
    assert evidence.unrolled is None
    assert computed == ["activity"]
    with pytest.raises(TypeError, match="no attribute unroled"):
        advice_evidence.Evidence(unroled=chain)


@pytest.mark.parts_fail
def test_evidence_that_fails_takes_only_the_rules_that_read_it(tmp_path, monkeypatch) -> None:
    rules = profile(tmp_path, training()).advice["rule"].tolist()
    assert rules
    monkeypatch.setattr(advice_evidence.devices_used, "in_turn", fails)
    p = profile(tmp_path, training())
    assert p.advice["rule"].tolist() == rules
    sentence = "The rule copied_in_turn of the advice is left out: ZeroDivisionError: of a test"
    assert sentence in str(p.receipt)
