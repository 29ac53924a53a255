"""What happens over the steps of a run: a rhythm of slow ones, and memory that grows."""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.analysis.advice.over_steps import ordinal
from nbprof.analysis.steps.periodic import CHANCE, rhythm
from nbprof.sources.recording import CaptureInfo
from tests.support import kineto
from tests.support.kineto import Kineto

SLOW = 400.0
MIB = 1 << 20


def run(folder, body, count=40, slow=lambda i: i % 8 == 5, extra=SLOW):
    """Steps of 1 ms, some of them longer; `body(k, i, begin, slow)` adds what they do behind their
    op.
    """
    k, at = Kineto(), 0.0
    for i in range(count):
        long = slow(i)
        # No two steps take equally long.
        time = 1000.0 + (i * 7) % 11 + (extra if long else 0.0)
        k.step(i, at, time)
        k.op("aten::mm", at + 10, 800)
        body(k, i, at + 850, long)
        at += time
    return kineto.profile(folder, k)


def finding(p, rule):
    rows = p.advice.set_index("rule")
    return rows.loc[rule] if rule in rows.index else None


def test_slow_steps_at_equal_distances_and_what_only_they_do(tmp_path):
    def validate(k, i, at, slow):
        if slow:
            k.op("aten::linear", at, 300)
            k.op("aten::addmm", at + 10, 280)

    row = finding(run(tmp_path, validate), "periodic")
    assert (
        "Every **8th** step takes **0.40 ms** longer than the others (**5** of **40** steps): **0.05 ms** per step"
        in row["evidence"]
    )
    assert (
        "aten::linear takes **0.30 ms** more there: it runs **1** times, in the others **0** times."
        in row["evidence"]
    )
    assert row["gain_ms_per_step"] == pytest.approx(0.05, rel=0.02)
    assert row["gain_is"] == "about"


def test_an_op_that_runs_more_often_there(tmp_path):
    row = finding(
        run(
            tmp_path,
            lambda k, i, at, slow: [
                k.op("aten::mm", at + 50 * n, 45) for n in range(6 if slow else 1)
            ],
        ),
        "periodic",
    )
    assert "it runs **7** times, in the others **2** times" in row["evidence"]


def test_time_in_no_event_is_said_to_be_that(tmp_path):
    p = run(tmp_path, lambda *_: None, extra=2000.0)
    assert "are in no recorded event" in finding(p, "periodic")["evidence"]
    assert p.steps.frame["other_ms"].mean() > 0.3 * p.steps.frame["step_time_ms"].mean()
    assert finding(p, "other") is None, "it is the same time"


@pytest.mark.parametrize(("waited", "found"), [(80.0, False), (40.0, True)])
def test_processes_that_take_turns_on_a_core_are_no_rhythm_of_the_program(tmp_path, waited, found):
    p = run(tmp_path, lambda *_: None, extra=2000.0)
    p.run.capture = CaptureInfo(
        contention={"cores": 2.0, "own_cores": 0.3, "other_cores": 1.7, "waited_percent": waited}
    )
    assert (finding(p, "periodic") is not None) is found


@pytest.mark.parametrize(("number", "text"), [(8, "8th"), (11, "11th"), (21, "21st"), (73, "73rd")])
def test_ordinals(number, text):
    assert ordinal(number) == text


@pytest.mark.parametrize(
    ("body", "slow"),
    [
        (
            lambda k, i, at, slow: k.op("Optimizer.step#SGD.step", at, 300) if slow else None,
            lambda i: i % 8 == 5,
        ),
        # Somewhere, twice only, or from some step on.
        (lambda *_: None, lambda i: i in (3, 4, 9, 21, 30)),
        (lambda *_: None, lambda i: i % 20 == 5),
        (lambda *_: None, lambda i: i >= 32),
    ],
    ids=["update", "no rhythm", "twice", "later"],
)
def test_no_rhythm_or_one_by_design(tmp_path, body, slow):
    assert finding(run(tmp_path, body, slow=slow), "periodic") is None


def test_a_slow_step_between_hides_no_rhythm():
    times = np.random.default_rng(0).normal(10, 0.3, 40)
    times[3::8] += 2
    times[10] = 30
    chance, every, first = rhythm(times)
    assert (every, first) == (8, 3)
    assert chance < CHANCE


def test_steps_in_random_order_seldom_have_a_rhythm():
    rng = np.random.default_rng(1)
    found = [rhythm(rng.lognormal(0, 0.5, rng.integers(6, 60))) for _ in range(500)]
    assert sum(one is not None and one[0] <= CHANCE for one in found) <= 0.02 * len(found)


def test_the_first_of_them_may_be_missing():
    times = np.random.default_rng(0).normal(10, 0.3, 40)
    times[8::8] += 2
    assert rhythm(times)[1:] == (8, 8)


def test_a_first_step_that_warms_up_is_none_of_them(tmp_path):
    """Steps 10, 20 and 30 save; step 0 is slow for a reason of its own, and less."""
    times = [2 * SLOW if i == 0 else 0.0 for i in range(40)]

    def save(k, i, at, slow):
        if slow and i:
            k.add("train.py(7): save", "python_function", at, 7 * SLOW)

    k, at = Kineto(), 0.0
    for i in range(40):
        slow = i % 10 == 0
        time = 1000.0 + (i * 7) % 11 + times[i] + (8 * SLOW if slow and i else 0.0)
        k.step(i, at, time)
        k.op("aten::mm", at + 10, 800)
        save(k, i, at + 850, slow)
        at += time
    row = finding(kineto.profile(tmp_path, k), "periodic")
    assert "(**3** of **40** steps)" in row["evidence"]
    assert "save takes" in row["evidence"]
    assert row["gain_ms_per_step"] == pytest.approx(3 * 3.2 / 40, rel=0.01)


def test_few_steps_have_none():
    assert rhythm(np.arange(5.0)) is None


def kept(folder, every=1, freed=False, count=14):
    """Each step allocates 8 MiB and frees them; every so many keep 1 MiB of it, which the next may
    free.
    """
    used = [64 * MIB]

    def change(k, at, size, address):
        used[0] += size
        k.memory(at, size, address, used[0])

    def body(k, i, at, slow):
        k.op("aten::relu", at, 100)
        change(k, at + 20, 8 * MIB, 1 << 20)
        if i % every == 0:
            change(k, at + 40, MIB, (2 + i) << 20)
        change(k, at + 60, -8 * MIB, 1 << 20)
        if freed and i % every == 0:
            change(k, at + 80, -MIB, (2 + i) << 20)

    return run(folder, body, count, slow=lambda _: False)


def test_memory_that_grows_from_step_to_step(tmp_path):
    row = finding(kept(tmp_path), "memory_growth")
    assert (
        "grows by **1.00 MiB** per step, **13.00 MiB** over **14** steps, and is not freed"
        in row["evidence"]
    )
    assert "allocated by aten::relu" in row["evidence"]
    assert np.isnan(row["gain_ms_per_step"])
    assert row["gain_is"] == ""


@pytest.mark.parametrize(
    "how",
    [{"freed": True}, {"every": 2}, {"count": 9}],
    ids=["freed", "every other step", "few steps"],
)
def test_memory_that_does_not(tmp_path, how):
    assert finding(kept(tmp_path, **how), "memory_growth") is None


def test_memory_grows_with_the_steps_that_ask_for_it_however_far_the_device_is_behind(tmp_path):
    """The host launches all steps while the device works on the first of them; a step lasts as long
    as its kernel.
    """
    k = Kineto()
    for i in range(14):
        k.step(i, 100.0 * i, 100)
        op = k.op("aten::addmm", 100.0 * i + 5, 60)
        k.launched("gemm", 100.0 * i + 10, 1000.0 * i + 50, 1000, op=op)
        k.memory(100.0 * i + 20, MIB, (2 + i) << 20, (64 + i) * MIB, device=0)
    p = kineto.profile(tmp_path, k)
    assert p.steps.frame["step_time_ms"].iloc[5] == pytest.approx(1.0), (
        "while all was allocated in the first two of them"
    )
    row = finding(p, "memory_growth")
    assert (
        "Memory in use by GPU 0 grows by **1.00 MiB** per step, **13.00 MiB** over **14** steps, and is not freed"
        in row["evidence"]
    )


def test_without_memory_events_nothing_is_said_of_memory(tmp_path):
    assert finding(run(tmp_path, lambda *_: None), "memory_growth") is None
