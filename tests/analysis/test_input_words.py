"""What is said of the input, in words that other views do not contradict."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbprof import load
from nbprof.analysis.advice.checks import UNTRACED, input_statement
from nbprof.tools.memory import payload as memory
from nbprof.tools.overview.payload import figures as key_figures
from tests.support import hlo
from tests.support.build import profile
from tests.support.hlo_memory import small
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, xspace


def test_a_wait_for_copies_from_the_hosts_memory_is_no_lack_of_recorded_input_work():
    p = load(real("jax/tpu-v6e-inference"))
    assert "copied from host memory" in p.overview["verdict_detail"]
    assert "copied from host memory" in p.input_pipeline.summary["next_step"]


def test_where_input_was_not_traced_the_next_step_is_to_time_it():
    p = load(real("jax/mi300-jax_conv_minimal_08"))
    assert p.input_pipeline.summary["statement"] == UNTRACED
    assert "nbprof.steps(data)" in p.input_pipeline.summary["next_step"]


@pytest.mark.parametrize(
    ("percent", "said"),
    [(0.0, "no step time"), (0.04, "less than 0.1% of step time"), (0.05, "only 0.1% of step time"), (4.9, "only 4.9% of step time")],
)
def test_a_little_input_is_not_said_to_be_nothing(percent, said):
    assert input_statement(percent, 0.0) == f"Not input-bound: {said} is spent waiting for input."


def test_the_host_of_jax_works_on_no_ops():
    p = load(real("jax/mi300-jax_conv_minimal_08"))
    assert not (p.ops.frame["where"] == "host").any()
    assert "prepares and dispatches programs while the device is idle" in p.overview["verdict_detail"]


def test_a_figure_of_steps_says_where_there_are_none():
    figures = {one["label"]: one for one in key_figures(load(real("jax/gtx1080ti-reactant")).run)}
    assert {figures[label]["note"] for label in ("Average step", "Device busy", "16-bit compute")} == {"no steps"}


def test_jax_is_not_asked_for_allocations_of_the_cpu(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event("PjitFunction(step)", 0, MS)])
    p = profile(tmp_path, xspace(host, hlo.metadata_plane(**{"jit_step(8)": (8, small())})))
    assert p.overview["framework"] == "JAX"
    told = memory.payload(p.run)["empty"]
    assert told["text"].endswith("not for the CPU. The tab Program memory shows what its compiled programs need.")
    assert not told["code"]


@pytest.mark.parametrize(
    ("name", "traced"),
    [
        ("xspace/jax_loop.xplane.pb", False),
        ("torch/modules.pt.trace.json.gz", False),
        ("kineto/cpu_train.pt.trace.json.gz", True),
        ("xspace/tf_cpu.xplane.pb", True),
    ],
)
def test_a_wait_that_could_not_be_recorded_is_unknown_and_not_0(name, traced):
    p = load(Path(__file__).parents[1] / "data" / name)
    figure = next(f for f in p.payload(0)["overview"]["figures"] if f["key"] == "input")
    check = p.overview["checks"].set_index("check").loc["input"]
    if traced:
        assert p.overview["input_percent"] == pytest.approx(p.input_pipeline.summary["input_percent"])
        assert figure["value"] > 0
        assert check["level"] != "unknown"
    else:
        assert p.overview["input_percent"] is None
        assert p.input_pipeline.summary["mean_percent"] is None
        assert (figure["value"], figure["note"]) == (None, "input was not traced")
        assert (check["level"], check["statement"]) == ("unknown", UNTRACED)
