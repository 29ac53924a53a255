"""Loops whose iterator makes a batch, and loops whose iterator is the program."""

from __future__ import annotations

import pytest

TORCH = """
import functools, threading, queue, time
import torch
torch.set_num_threads(1)
x, model, head = torch.randn(256, 256), torch.nn.Linear(256, 4096), torch.nn.Linear(4096, 2)
small = torch.nn.Linear(4, 4)
def computed(count):
    with torch.no_grad():
        for _ in range(count):
            yield head(model(x))
def augmented(count):
    for _ in range(count):
        # No loop, whose iterations could be the steps.
        yield functools.reduce(lambda flipped, _: flipped.flip(0) * 1.01, range(20), x)
def rotated(count):
    for _ in range(count):
        time.sleep(0.02)
        yield torch.randn(64, 4) @ torch.eye(4)
def beside(count):
    # What another thread computes meanwhile is made there; the loop waits for it.
    made = queue.Queue(1)
    threading.Thread(target=lambda: [made.put(out) for out in computed(count)]).start()
    for _ in range(count):
        yield made.get()
"""
JAX = """
import time, jax, jax.numpy as jnp
model, x = jax.jit(lambda w, x: jnp.tanh(x @ w).sum(0)), jnp.ones((512, 512))
model(x, x).block_until_ready()
def computed(count):
    for _ in range(count):
        yield model(x, x).block_until_ready()
def slow(count):
    for _ in range(count):
        time.sleep(0.02)
        yield x
"""
TENSORFLOW = """
import time, tensorflow as tf
x, w = tf.ones((256, 256)), tf.ones((256, 2048))
model = tf.function(lambda x: tf.reduce_sum(tf.nn.relu(x @ w), 0))
model(x)
def computed(count):
    for _ in range(count):
        yield tf.nn.relu(x @ w)
def traced(count):
    for _ in range(count):
        yield model(x)
def slow(count):
    for _ in range(count):
        time.sleep(0.02)
        yield x
"""
PROGRAMS = {"torch": TORCH, "jax": JAX, "tensorflow": TENSORFLOW}


def input_percent(kernel, backend, loop, body):
    assert kernel.run(PROGRAMS[backend]).status == "ok"
    cell = f"%%nbprof -q -o p --backend {backend}\nfor item in {loop}:\n    {body}"
    result = kernel.run(cell)
    assert result.status == "ok", result.traceback
    assert int(kernel.ask("len(p.steps.frame)")) == 30
    return float(kernel.ask("p.overview['input_percent'] or 0.0"))


COMPUTED = [
    ("torch", "computed(30)", "item.argmax()"),
    # A product in the loop, too, but the smaller part.
    ("torch", "computed(30)", "small(torch.randn(4, 4))"),
    ("jax", "computed(30)", "float(item[0])"),
    ("tensorflow", "computed(30)", "float(item[0, 0])"),
    ("tensorflow", "traced(30)", "float(item[0])"),
]
MADE = [
    # Most ops run in the iterator, but no product does.
    ("torch", "augmented(30)", "small(item[:4, :4])"),
    ("torch", "rotated(30)", "model(x[:8])"),
    ("torch", "beside(30)", "item.argmax()"),
    ("jax", "slow(30)", "model(item, x).block_until_ready()"),
    ("tensorflow", "slow(30)", "item @ w"),
]


@pytest.mark.parametrize("marked", [False, True], ids=["loop", "nbprof.steps"])
@pytest.mark.parametrize(("backend", "items", "body"), COMPUTED)
def test_an_iterator_that_runs_the_model_is_not_waited_for(kernel, backend, items, body, marked):
    loop = f"nbprof.steps({items})" if marked else items
    assert input_percent(kernel, backend, loop, body) < 20
    assert kernel.ask("p.overview['bound'] != 'input'") == "True"
    assert kernel.ask("[each for each in p.advice['view'] if each == 'input']") == "[]"


@pytest.mark.parametrize("marked", [False, True], ids=["loop", "nbprof.steps"])
@pytest.mark.parametrize(("backend", "items", "body"), MADE)
def test_an_iterator_that_makes_batches_is_input(kernel, backend, items, body, marked):
    loop = f"nbprof.steps({items})" if marked else items
    assert input_percent(kernel, backend, loop, body) > 20


@pytest.mark.parametrize(
    ("backend", "items", "body", "rule"),
    [
        ("torch", "rotated(30)", "model(x[:8])", "loader_none"),
        ("jax", "slow(30)", "model(item, x).block_until_ready()", "input_ahead"),
    ],
)
def test_a_finding_on_the_iterator_names_its_line(kernel, backend, items, body, rule):
    assert input_percent(kernel, backend, items, body) > 20
    evidence = kernel.ask(f"p.advice.set_index('rule').loc['{rule}', 'evidence']")
    assert (
        f"of the wait is spent in time.sleep, called in {items.partition('(')[0]}, Cell ["
        in evidence
    )
