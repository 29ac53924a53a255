"""Devices whose clock is not that of their host: their times are moved, and a warning says so."""

from __future__ import annotations

import pytest

import nbprof
from tests.dialects.test_corrupt_durations import BEGIN, STEP_US, STEPS, profile, training
from tests.fuzz.values import STEPS as JAX_STEPS
from tests.fuzz.values import jax_loop
from tests.support import build, corrupt
from tests.support.kineto import Kineto
from tests.support.notes import of_key


def folder(tmp_path, name):
    out = tmp_path / name
    out.mkdir()
    return out


def moved(k: Kineto, us: float, device: int = 0) -> Kineto:
    for event in k.events:
        if event.get("cat") == "kernel" and event["pid"] == device:
            event["ts"] += us
    return k


def agree(sound, p, **within) -> None:
    for name in ("step_time_ms", "device_compute_ms"):
        expected = sound.steps.frame[name].tolist()
        assert p.steps.frame[name].tolist() == pytest.approx(expected, nan_ok=True, **within)
    assert p.overview["verdict"] == sound.overview["verdict"]
    assert p.advice["rule"].tolist() == sound.advice["rule"].tolist()
    assert p.run.recorded_s == pytest.approx(sound.run.recorded_s, rel=0.01)
    assert {note.key for note in p.receipt.lines} - {note.key for note in sound.receipt.lines} == {
        "device_clocks"
    }


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (-3e6, "(GPU 0: 2,999.99 ms behind)"),
        (-2_000.0, "(GPU 0: 1.99 ms behind)"),
        (-150.0, "(GPU 0: 0.14 ms behind)"),
        (3e6, "(GPU 0: 2,999.95 ms ahead)"),
    ],
)
def test_work_of_pytorch(tmp_path, us, text):
    sound, p = (
        profile(folder(tmp_path, str(shift)), moved(training(wait=True), shift))
        for shift in (0.0, us)
    )
    agree(sound, p, abs=0.06)
    (note,) = of_key(p.receipt, "device_clocks")
    assert note.level == "warning"
    assert text in note.text


def test_a_clock_that_differs_by_less_than_a_launch_takes_is_left(tmp_path):
    p = profile(tmp_path, moved(training(), -50.0))
    assert not of_key(p.receipt, "device_clocks")


def test_only_the_device_with_that_clock_is_moved(tmp_path):
    k = training()
    for step in range(STEPS):
        for i in range(20):
            at = BEGIN + step * STEP_US + 50 * i
            k.launched("mul", at + 10, at + 17, 30, None, device=1)
    p = profile(tmp_path, moved(k, -3e6, device=1))
    (note,) = of_key(p.receipt, "device_clocks")
    assert "(GPU 1: 2,999.99 ms behind)" in note.text
    events, lanes = p.run.trace.events, p.run.trace.lanes
    starts = events.start - events.start.min()
    assert set(lanes["device"].to_numpy()[events.lane[starts < 10**9]]) == {-1, 0, 1}
    assert starts.max() < 10**10


def test_a_few_events_with_wrong_times_are_no_clock(tmp_path):
    k = training()
    kernels = [event for event in k.events if event.get("cat") == "kernel"]
    for nth in (10, 50, 90):
        kernels[nth]["ts"] -= 3e6
    p = profile(tmp_path, k)
    assert not of_key(p.receipt, "device_clocks")
    assert of_key(p.receipt, "impossible_times")


def test_a_gpu_in_an_xspace_file(tmp_path):
    shifts = ({}, dict.fromkeys(range(10 * JAX_STEPS), -40.0))
    sound, p = (
        build.profile(folder(tmp_path, name), jax_loop(later=later))
        for name, later in zip(("sound", "moved"), shifts, strict=True)
    )
    agree(sound, p, abs=0.2)


@pytest.mark.parametrize("form", [corrupt.npu_torch_text, corrupt.npu_database])
def test_an_npu(tmp_path, form):
    later = dict.fromkeys(range(corrupt.NPU_STEPS * corrupt.NPU_OPS), -3_000_000)
    sound, p = (
        nbprof.load(str(form(folder(tmp_path, name), {}, given)))
        for name, given in (("sound", {}), ("moved", later))
    )
    assert of_key(p.receipt, "device_clocks")
    assert p.overview["step_time_ms"] == pytest.approx(sound.overview["step_time_ms"], rel=0.05)


def test_processes_whose_calls_have_the_same_ids_are_no_clock(tmp_path):
    """The later process, on another GPU, comes first in the file."""
    late, k = training(), training()
    for event in late.events:
        event["ts"] += 20_000
        event["tid"] = 9 if event.get("cat") == "kernel" else 77
        if event.get("cat") == "kernel":
            event["pid"] = event["args"]["device"] = 1
            event["args"]["stream"] = 9
    for first, second in ((late, k), (k, late)):
        both = Kineto()
        both.events = [*first.events, *second.events]
        p = profile(folder(tmp_path, f"{first is k}"), both)
        assert not of_key(p.receipt, "device_clocks")
