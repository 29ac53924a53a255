"""Device work of which none has a usable time: what the device did is unknown, and never nothing."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import nbprof
from tests.dialects.test_corrupt_durations import STEPS, profile, training
from tests.fuzz.values import STEPS as JAX_STEPS
from tests.fuzz.values import jax_loop
from tests.support import build, corrupt, nsys
from tests.support.kineto import Kineto


def unknown(p, *keys: str) -> None:
    assert p.overview["verdict"] == "Device times unusable"
    assert p.overview["device_busy_percent"] is None
    assert p.overview["device_op_percent"] is None
    assert p.steps.frame["device_compute_ms"].isna().all()
    assert "none with usable times" in p.overview["verdict_detail"]
    assert not len(p.advice)
    assert not len(p.kernels.by_name())
    warned = {note.key for note in p.receipt.lines if note.level == "warning"}
    assert warned == set(keys)


def kernels(k: Kineto) -> list[dict[str, object]]:
    return [event for event in k.events if event.get("cat") == "kernel"]


def test_kernels_of_pytorch_without_durations(tmp_path):
    k = training()
    for event in kernels(k):
        event["dur"] = 0
    p = profile(tmp_path, k)
    unknown(p, "no_device_durations")
    # What the host did is known.
    assert p.steps.frame["step_time_ms"].tolist() == pytest.approx([1.0] * STEPS)


def test_kernels_at_any_time(tmp_path):
    k, rng = training(wait=True), Random(1)
    for event in kernels(k):
        event["ts"] = rng.uniform(0, 1e9)
    unknown(profile(tmp_path, k), "impossible_times")


def test_one_kernel_with_a_duration_is_enough(tmp_path):
    k = training()
    for event in kernels(k)[1:]:
        event["dur"] = 0
    p = profile(tmp_path, k)
    assert p.overview["device_busy_percent"] > 0
    assert not len(p.receipt.notes.query("key == 'no_device_durations'"))


def test_kernels_in_an_xspace_file(tmp_path):
    unknown(
        build.profile(tmp_path, jax_loop(dict.fromkeys(range(10 * JAX_STEPS), 0.0))),
        "no_device_durations",
    )


def test_ops_of_a_tpu(tmp_path):
    count = corrupt.TPU_STEPS * (corrupt.TPU_OPS + 1)
    changed = {("XLA Ops", row): {"duration": 0} for row in range(count)}
    p = build.profile(tmp_path, corrupt.tpu_training(changed))
    unknown(p, "no_device_durations")
    assert p.overview["step_time_ms"] == pytest.approx(10.0)


def test_copies_beside_kernels_do_not_tell_how_busy_a_device_was(tmp_path):
    out = nsys.training(12)
    for row in out.tables["CUPTI_ACTIVITY_KIND_KERNEL"]:
        row["end"] = row["start"]
    unknown(nbprof.load(out.sqlite(tmp_path / "zero.sqlite")), "no_device_durations")
    del out.tables["CUPTI_ACTIVITY_KIND_KERNEL"][:]
    p = nbprof.load(out.sqlite(tmp_path / "lost.sqlite"))
    assert p.overview["verdict"] == "Kernels not recorded"
    assert p.overview["device_busy_percent"] is None
    assert p.steps.frame["device_compute_ms"].isna().all()
    assert p.steps.frame["host_to_device_ms"].gt(0).all()


@pytest.mark.parametrize("form", [corrupt.npu_torch_text, corrupt.npu_database])
def test_tasks_of_an_npu(tmp_path, form):
    count = corrupt.NPU_STEPS * corrupt.NPU_OPS
    p = nbprof.load(str(form(tmp_path, dict.fromkeys(range(count), 0), {})))
    assert p.overview["verdict"] == "Device times unusable"
    assert p.overview["device_busy_percent"] is None
    # A table states them.
    stated = p.ascend.ops.frame["duration_us"]
    assert form is corrupt.npu_database or np.isin(800.0, stated)
