"""Cells of PyTorch and JAX in real kernels: what the saved notebook holds, and Ctrl-C."""

from __future__ import annotations

import pytest

from tests.magic.conftest import Kernel
from tests.support.profiles import require
from tests.support.saved import payload_of

TORCH = """
import time, torch
layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def step(n):
    optimizer.zero_grad()
    layer(torch.ones(8, 4)).square().mean().backward()
    optimizer.step()
    print(f"step {n};", flush=True)
"""
JAX = """
import time, jax, jax.numpy as jnp
@jax.jit
def train_step(w):
    return w - 0.1 * jnp.mean(jnp.tanh(w @ w))
w = jnp.ones((64, 64))
def step(n):
    global w
    w = train_step(w).block_until_ready()
    print(f"step {n};", flush=True)
"""
CELLS = {"torch": TORCH, "jax": JAX}
STEPS = {
    "torch": [f"ProfilerStep#{n}" for n in (1, 2, 3, 4)],
    "jax": [f"train_step {n}" for n in (1, 2, 3, 4)],
}


@pytest.fixture(scope="module", params=["torch", "jax"])
def kernel(request, tmp_path_factory):
    require(request.param)
    kernel = Kernel(tmp_path_factory.mktemp(request.param), request.param)
    assert kernel.run("%load_ext nbprof\nimport nbprof").status == "ok"
    kernel.framework = request.param
    yield kernel
    kernel.close()


def saved(result):
    """What the output of a cell holds when the notebook is opened without a kernel."""
    [data] = result.dashboards
    assert len(result.displays) == 1, "the strip is gone"
    return data["text/plain"], payload_of(data)


def test_a_function_of_an_earlier_cell_says_what_to_record(kernel):
    """Whatever else is imported: `auto` would take TensorFlow."""
    assert (
        kernel.run(
            f"{CELLS[kernel.framework]}\nstep(0)\nimport sys, types\nsys.modules['tensorflow'] = types.ModuleType('tensorflow')"
        ).status
        == "ok"
    )
    result = kernel.run("%%nbprof -o p\nfor n in range(1, 5):\n    step(n)")
    assert kernel.run("del sys.modules['tensorflow']").status == "ok"
    assert result.status == "ok", result.traceback + result.sentences
    assert "4 steps" in saved(result)[0].splitlines()[0]


def test_a_cell_that_imports_its_framework_has_its_steps_in_the_notebook(kernel):
    result = kernel.run(
        f"%%nbprof -o p\n{CELLS[kernel.framework]}\nfor n in range(1, 5):\n    step(n)\nn"
    )
    assert (result.status, result.value) == ("ok", "4"), result.traceback + result.sentences
    text, payload = saved(result)
    assert "4 steps" in text.splitlines()[0]
    assert payload["steps"]["step"].tolist() == [1, 2, 3, 4]
    assert kernel.ask("list(p.steps.frame['name'])") == str(STEPS[kernel.framework])


def test_ctrl_c_fails_the_cell_and_shows_the_steps_until_then(kernel):
    kernel.run(CELLS[kernel.framework])
    result = kernel.run(
        "%%nbprof -o p\nfor n in range(1, 600):\n    step(n); time.sleep(0.1)",
        interrupt_at="step 4;",
    )
    assert (result.status, result.error) == ("error", "KeyboardInterrupt")
    text, _ = saved(result)
    assert "interrupted" in text
    assert 4 <= int(kernel.ask("len(p.steps.frame)")) < 100
    assert kernel.capture()["cell_failed"]
    assert kernel.idle()
    assert kernel.run("%%nbprof -o p\nstep(1); step(2)").status == "ok", "the next one is recorded"
    assert kernel.ask("len(p.steps.frame)") == "2"


def test_steps_of_a_range_and_the_wait_for_input(kernel):
    kernel.run(CELLS[kernel.framework])
    code = "def batches():\n    for n in range(8):\n        time.sleep(0.03)\n        yield n\nfor n in nbprof.steps(batches()):\n    step(n)"
    result = kernel.run(f"%%nbprof -o p --steps 3:5\n{code}")
    assert result.status == "ok", result.traceback
    saved(result)
    assert kernel.capture()["window"] == [3, 5]
    assert (
        kernel.ask("[bool(ms >= 30) for ms in p.steps.frame['input_ms']]") == "[True, True, True]"
    )
