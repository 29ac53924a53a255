"""What is said of the input, in words that other views do not contradict."""

from __future__ import annotations

from nbprof import load
from tests.support.profiles import real


def test_a_wait_for_copies_from_the_hosts_memory_is_no_lack_of_recorded_input_work():
    p = load(real("jax/tpu-v6e-inference"))
    assert "copied from the host's memory" in p.overview["verdict_detail"]
    assert "copied from the host's memory" in p.input_pipeline.summary["next_step"]


def test_where_the_input_keeps_up_that_is_said_once():
    p = load(real("jax/mi300-jax_conv_minimal_08"))
    said = f"{p.input_pipeline.summary['statement']} {p.input_pipeline.summary['next_step']}"
    assert said == "Not input-bound: only 0.0% of step time waits for input. The input keeps up: look at the rest of the step."


def test_the_host_of_jax_works_on_no_ops():
    p = load(real("jax/mi300-jax_conv_minimal_08"))
    assert not (p.ops.frame["where"] == "host").any()
    assert "prepares and dispatches programs while the device idles" in p.overview["verdict_detail"]
