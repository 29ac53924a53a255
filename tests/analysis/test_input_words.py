"""What is said of the input, in words that other views do not contradict."""

from __future__ import annotations

import pytest

from nbprof import load
from nbprof.analysis.advice.checks import input_statement
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


def test_where_the_input_keeps_up_that_is_said_once():
    p = load(real("jax/mi300-jax_conv_minimal_08"))
    said = f"{p.input_pipeline.summary['statement']} {p.input_pipeline.summary['next_step']}"
    assert said == "Not input-bound: no step time is spent waiting for input. The input keeps up: look at the rest of the step."


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
