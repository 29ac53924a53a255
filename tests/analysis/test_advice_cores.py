"""Advice to take more workers, where the recording says that they would have no core."""

from __future__ import annotations

import json

import pytest

import nbprof
from nbprof.analysis.advice.cores import taken
from tests.support.kineto import Kineto, profile

FULL = {"cores": 4.0, "own_cores": 3.7, "other_cores": 0.1}


def slow_loader() -> Kineto:
    k = Kineto()
    for i in range(4):
        k.step(i, 100 * i, 100)
        k.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 100 * i, 60)
        k.op("aten::mm", 100 * i + 60, 40)
    return k


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory):
    advice = profile(tmp_path_factory.mktemp("loader"), slow_loader()).advice
    assert "loader_workers" in advice["rule"].tolist()
    return advice


def test_where_all_cores_are_busy_items_must_become_cheaper(found) -> None:
    before = found.set_index("rule").loc["loader_workers"]
    row = taken(found, FULL).set_index("rule").loc["loader_workers"]
    assert (
        row["evidence"]
        == f"{before['evidence']} They and the training process kept **3.7** of the **4** cores busy: more workers would have no free core."
    )
    assert "num_workers" in before["fix"]
    assert "num_workers" not in row["fix"]
    assert "no core is free" in row["title"]
    assert row["gain_ms_per_step"] == before["gain_ms_per_step"]
    assert "**95%** of the core" in taken(found, {"cores": 1.0, "own_cores": 0.95})["evidence"].str.cat()


@pytest.mark.parametrize("measured", [{}, FULL | {"own_cores": 3.5}, {"own_cores": 3.7}, FULL | {"own_cores": 1.0, "other_cores": 3.0}])
def test_elsewhere_the_advice_stays(found, measured) -> None:
    assert taken(found, measured).equals(found)


def test_other_findings_are_not_touched(found) -> None:
    others = found[found["rule"] != "loader_workers"]
    assert taken(others, FULL).equals(others)


def test_a_recording_states_it(tmp_path) -> None:
    (tmp_path / "a.pt.trace.json").write_bytes(slow_loader().encode())
    (tmp_path / "nbprof.json").write_text(json.dumps({"backend": "torch", "contention": FULL}))
    assert "no core is free" in nbprof.load(tmp_path).advice.set_index("rule").loc["loader_workers", "title"]
