"""Waits for the results of JAX programs, and loops whose kernels the host launches."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis import result_waits
from nbprof.analysis.advice.evidence import DeviceLoop, _device_loop
from nbprof.analysis.python import Python
from nbprof.core.intervals import Intervals
from nbprof.frameworks.register import JAX, PYTORCH
from tests.analysis.test_python import BASE, CELL, samples

PS = 10**9
CONVERSION, RUN = "np.asarray(jax.Array)", "PjitFunction(train_step)"


def trace(*events):
    """Events of (name, lane, begin, duration), in ms."""
    names = list(dict.fromkeys(name for name, *_ in events))
    columns = SimpleNamespace(
        name=np.array([names.index(name) for name, *_ in events]),
        lane=np.array([lane for _, lane, *_ in events]),
        start=np.array([start * PS for *_, start, _ in events], np.int64),
        duration=np.array([duration * PS for *_, duration in events], np.int64),
    )
    return SimpleNamespace(events=columns, names=names)


def steps(count=4):
    """Steps of 10 ms each."""
    return pd.DataFrame({"start_ms": 10.0 * np.arange(count), "step_time_ms": 10.0})


def find(events, python=None, framework=JAX):
    activity = SimpleNamespace(framework=framework)
    return result_waits.find(activity, trace(*events), steps(), python, BASE)


def each_step(name, lane=0, ms=4):
    return [(name, lane, 10 * step + 5, ms) for step in range(4)]


def test_conversions_on_the_thread_that_runs_the_program_are_waits():
    found = find([*each_step(RUN, ms=1), *each_step(CONVERSION)])
    assert (found.ms, found.function) == (4.0, None)
    # Those of another thread hold up nothing, nor does what follows the last step.
    assert find([*each_step(RUN, ms=1), *each_step(CONVERSION, lane=1)]) is None
    late = find([*each_step(RUN, ms=1), (CONVERSION, 0, 39, 50)])
    assert late.ms == 0.25
    assert find(each_step(RUN)) is None
    assert find([*each_step(RUN, ms=1), *each_step(CONVERSION)], framework=PYTORCH) is None


def waiting(count, call="y.block_until_ready", line=7):
    """40 ms of samples, so many of them in a call."""
    inside, outside = (CELL, "<module>", 1, line, call), (CELL, "<module>", 1, 9)
    rows = [(moment, [inside if moment <= count else outside], 0, 1) for moment in range(1, 41)]
    return Python(samples(rows, at=np.arange(41)), {"42": 3})


@pytest.mark.parametrize("call", ["y.block_until_ready", "xc.batched_block_until_ready"])
def test_block_until_ready_is_seen_in_the_samples(call):
    found = find(each_step(RUN, ms=1), waiting(20, call))
    # Half of the samples, of which the first and the last are of the borders.
    assert found.ms == pytest.approx(5.0, abs=0.5)
    assert (found.function.file, found.function.line) == ("Cell [3]", 7)


def test_few_samples_and_other_calls_are_no_waits():
    assert find(each_step(RUN, ms=1), waiting(5)) is None
    assert find(each_step(RUN, ms=1), waiting(30, "y.copy")) is None
    everything = Intervals(np.array([BASE]), np.array([BASE + 10**9]))
    assert waiting(5).blocked(everything) == (0.0, None)


def ops(*rows):
    return pd.DataFrame(rows, columns=["where", "op", "occurrences"])


BODY = "jit(scan_step)/while/body/"


def test_kernels_of_a_loop_are_counted_per_step_and_device():
    rows = ops(
        ("device", f"{BODY}dot_general", 2000),
        ("device", f"{BODY}tanh", 2000),
        ("device", f"{BODY}add", 2000),
        ("device", "jit(scan_step)/mul", 2000),
        ("host", f"{BODY}dot_general", 9000),
    )
    activity = SimpleNamespace(framework=JAX, devices=[0, 1])
    assert _device_loop(activity, rows, 10) == DeviceLoop(100.0, 300.0, 0.75)
    outside = rows[~rows["op"].str.contains("while")]
    assert _device_loop(activity, outside, 10) is None
    assert _device_loop(SimpleNamespace(framework=PYTORCH, devices=[0]), rows, 10) is None
    assert _device_loop(activity, rows, 0) is None
