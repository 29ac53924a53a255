"""Our own recordings of a GPU: that what the recorder says it records is in them, and that what is
known of the program is said of it.

`tests/data/record_gpu.py` makes them where a GPU is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nbprof

FOLDER = Path(__file__).resolve().parents[1] / "data" / "gpu"
FILES = {"jax": "jax_gpu.xplane.pb", "torch": "torch_gpu.pt.trace.json.gz"}
STEPS, BATCH_BYTES = 5, 4 * 512 * (1024 + 16)


def recording(framework):
    return nbprof.load(FOLDER / FILES[framework])


@pytest.fixture(params=["jax", "torch"])
def p(request):
    return recording(request.param)


def test_the_steps_are_those_of_the_loop_and_compute_on_the_device(p):
    steps = p.steps.frame
    assert len(steps) == STEPS
    assert (steps["device_compute_ms"] > 0).all()
    assert (steps["device_compute_ms"] <= steps["step_time_ms"]).all()
    assert (p.devices["kind"] == "GPU").any()


def test_kernels_are_matched_with_what_launched_them(p):
    kernels = p.kernels.frame
    assert len(kernels)
    assert kernels["occurrences"].sum() >= STEPS * 4, (
        "two matrix products forward, at least as many backward"
    )
    assert (kernels["op"].astype(str) != "").mean() > 0.5


def test_batches_are_copied_to_the_device(p):
    transfers = p.run.activity.transfers.frame()
    kinds = np.asarray(p.run.activity.texts.values)[transfers["kind"].to_numpy()]
    assert transfers.loc[kinds == "H2D", "bytes"].sum() >= STEPS * BATCH_BYTES


def test_memory_was_recorded(p):
    summary = p.memory.summary
    assert summary["peak_bytes"].max() >= 4 * (1024 * 4096 + 4096 * 16), "the weights alone"


def test_shapes_of_pytorch():
    run = recording("torch").run
    shapes = {
        run.trace.strings[code]
        for code in set(run.trace.text_arg("Input Dims").tolist())
        if code >= 0
    }
    assert any("512, 1024" in text for text in shapes)


def test_steps_of_jax_are_runs_of_its_program():
    assert recording("jax").steps.frame["name"].tolist() == [
        f"train_step {n}" for n in range(1, STEPS + 1)
    ]


def test_the_program_that_ran_is_found_among_those_of_the_file():
    """JAX numbers the programs of a file, and states beside each the number that what it ran
    has.
    """
    p = recording("jax")
    assert "not in the file" not in str(p.receipt)
    modules = p.memory_viewer.modules
    ran = modules[modules["time_ms"].notna()]
    assert ran["module"].str.startswith("jit_train_step(").tolist() == [True]
    assert ran["peak_bytes"].iloc[0] >= 4 * (1024 * 4096 + 4096 * 16), "the weights alone"
