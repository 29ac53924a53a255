"""Steps whose input nothing recorded: it is not known, rather than 0, wherever it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbprof
from nbprof.tools.overview.text import means

DATA = Path(__file__).parents[1] / "data"
CATEGORIES = [
    "device_compute_ms",
    "device_to_device_ms",
    "device_collectives_ms",
    "host_compute_ms",
    "kernel_launch_ms",
    "output_ms",
]


@pytest.fixture(
    scope="module", params=["xspace/jax_loop.xplane.pb", "torch/cpu_ops.pt.trace.json.gz"]
)
def p(request):
    return nbprof.load(DATA / request.param)


def test_frames_have_no_input(p):
    frame, summary = p.steps.frame, p.steps.summary.set_index("category")
    assert frame["input_ms"].isna().all()
    assert frame["input_ms"].dtype == float
    assert summary.loc["input"].isna().all()
    # What is known still adds up to the step.
    parts = frame[[*CATEGORIES, "compile_ms", "other_ms"]].sum(axis=1)
    assert parts.tolist() == pytest.approx(frame["step_time_ms"].tolist())
    assert summary["percent"].drop("step_time").sum() == pytest.approx(100)
    assert p.overview["input_percent"] is None


def test_neither_do_charts_and_tables(p):
    payload = p.payload()
    assert "input" not in payload["steps"]["categories"]
    assert "input" not in [category.key for category, _, _ in means(payload)]
    assert "input" not in [renderer.name for renderer in p.steps.figure().renderers]
    assert payload["input"]["share"] == []


def test_a_comparison_with_a_run_that_knows_its_input_has_no_change_of_it(p):
    known = nbprof.load(DATA / "xspace" / "tf_slow.xplane.pb")
    (row,) = nbprof.compare(p, known).categories.query("category == 'input'").to_dict("records")
    assert row["before_ms"] != row["before_ms"]
    assert row["change_ms"] != row["change_ms"]
    assert row["after_ms"] > 20


def test_input_that_was_traced_and_took_no_time_is_0():
    frame = nbprof.load(DATA / "xspace" / "tf_cpu.xplane.pb").steps.frame
    assert frame["input_ms"].notna().all()
