"""The made inputs of benchmarks/growth.py: each of their sizes is what was asked for, and alone."""

import importlib
from pathlib import Path

import pytest

from nbprof.profiles.load import load

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SIZES = {"events": 3_000, "names": 20, "lanes": 10, "steps": 30}


@pytest.fixture
def synthetic(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("synthetic")


@pytest.mark.parametrize("form", ["xspace", "kineto"])
@pytest.mark.parametrize(
    "more", [{"names": 200, "lanes": 2}, {"lanes": 100, "steps": 1}, {"steps": 200}]
)
def test_one_size_grows_and_the_others_stay(form, more, tmp_path, synthetic):
    sizes = {**SIZES, **more}
    path = tmp_path / {"xspace": "run.xplane.pb", "kineto": "run.json.gz"}[form]
    getattr(synthetic, f"write_{form}")(path, **sizes)
    p = load(path)
    assert not p.receipt.dropped
    # Whole units, and the last blocks are not given back.
    assert 0 <= sizes["events"] - p.receipt.events < 12
    assert len(p.steps.frame) == sizes["steps"]
    kernels = p.kernels.frame
    assert kernels["kernel"].nunique() == kernels["op"].nunique() == sizes["names"]
    lanes = p.run.trace.lanes
    busy = lanes[lanes["events"] > 0]
    # Besides them: the main thread, and where they are recorded that of the input and the copies.
    assert len(busy) - sizes["lanes"] == {"xspace": 3, "kineto": 1}[form]
    assert len(p.memory.timeline) > 0
