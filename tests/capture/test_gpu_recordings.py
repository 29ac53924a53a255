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
FILES = {
    "jax": "jax_gpu.xplane.pb",
    "torch": "torch_gpu.pt.trace.json.gz",
    "compiled": "torch_compiled.pt.trace.json.gz",
    "graph": "torch_graph.pt.trace.json.gz",
    "memory": "torch_memory.pickle.gz",
    "oom": "torch_oom.pickle.gz",
}
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


def test_replays_of_a_graph_are_steps_that_compute_its_kernels():
    p = recording("graph")
    replays, products = 10, 8
    steps = p.steps.frame
    assert len(steps) == replays
    assert (steps["device_compute_ms"] > 0).all()
    kernels = p.kernels.frame
    assert kernels["occurrences"].sum() == replays * products
    assert kernels["kernel"].str.contains("gemm").all()
    # What the graph's kernels were captured from is in no recording of its replays.
    assert (kernels["op"] == "").all()
    assert "10 replays of 1 graph with 8 nodes" in str(p.receipt)
    assert p.overview["verdict"] == "Device-bound"


def test_each_launch_of_the_graph_starts_all_of_its_kernels():
    run = recording("graph").run
    names = np.asarray(run.trace.names)[run.trace.events.name]
    launches = np.flatnonzero(names == "cudaGraphLaunch")
    assert len(launches) == 10
    by_launch = run.activity.launches.frame().query("event in @launches")["event"].value_counts()
    assert by_launch.tolist() == [8] * 10


def test_kernels_of_triton_belong_to_the_compiled_parts_of_their_names():
    p = recording("compiled")
    assert len(p.steps.frame) == STEPS
    kernels = p.kernels.frame
    assert kernels["occurrences"].sum() == STEPS * 25
    triton = kernels[kernels["kernel"].str.startswith("triton_")]
    assert (triton["op"] == triton["kernel"]).all()
    forward = triton[triton["kernel"] == "triton_per_fused_gelu_native_layer_norm_0"]
    assert forward["occurrences"].tolist() == [STEPS]
    assert (triton["occurrences"] % STEPS == 0).all()
    # The loss and the optimizer are outside the compiled model.
    assert {"aten::nll_loss_forward", "aten::_fused_adamw_"} <= set(kernels["op"])


def test_a_compiled_model_is_not_advised_to_be_compiled():
    assert "host_ops" not in set(recording("compiled").advice["rule"])


def test_blocks_of_a_snapshot_are_the_tensors_of_the_program():
    p = recording("memory")
    (summary,) = p.allocator.summary.to_dict("records")
    assert summary["ooms"] == 0
    blocks = p.allocator.blocks
    live = blocks[blocks["state"] == "active_allocated"]
    sizes = live["requested_bytes"].value_counts()
    # A parameter, its gradient and the two moments of AdamW.
    for parameter in (4 * 1024 * 4096, 4 * 4096, 4 * 4096 * 16):
        assert sizes[parameter] == 4
    assert sizes[4 * 512 * 1024] == 1, "the last batch"
    assert live["size_bytes"].sum() == summary["allocated_bytes"]
    assert summary["peak_allocated_bytes"] > 8 * 512 * 4096 + 4 * 4 * 1024 * 4096


def test_the_allocation_that_failed_and_what_was_live():
    p = recording("oom")
    (failed,) = p.allocator.oom.to_dict("records")
    asked = 4 << 24
    assert failed["asked_bytes"] == asked
    assert failed["allocated_bytes"] == failed["reserved_bytes"] == 1 << 29
    assert failed["cause"] == "limit"
    assert failed["location"] == "<string>:12 grow"
    assert failed["device_free_bytes"] > asked
    blocks = p.allocator.blocks
    assert blocks["size_bytes"].tolist() == [asked] * 8
