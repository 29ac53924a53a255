"""The largest batch of a compiled program: it fits when the program is compiled for it, and is
unknown where nothing tells which dimension is the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pandas as pd
import pytest

from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.memory import viewer
from nbprof.analysis.memory.largest_batch import LargestBatch, largest_batch
from nbprof.core.trace import Module
from nbprof.hlo import buffers
from nbprof.hlo.buffers import Assignment
from nbprof.hlo.hlo import Program
from nbprof.tools.memory_viewer import payload as memory_viewer
from tests.support import hlo
from tests.support.build import profile
from tests.support.xspace import PlaneWriter, chunk, xspace

BATCH = 8
Tree = Any


def array(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


LAYERS = [{"w": array(a, b), "b": array(b)} for a, b in ((64, 128), (128, 256), (256, 10))]
TOKENS = {
    "embed": array(1000, 64),
    "layers": {name: array(4, 64, 64) for name in ("q", "k", "v", "o")},
}
X = array(256, 64)
FILTERS = {"first": array(3, 3, 3, 16), "head": array(16, 10)}


def predict(params: Tree, x: jax.Array) -> jax.Array:
    for layer in params:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x


def descended(params: Tree, loss: Callable[[Tree], jax.Array]) -> Tree:
    gradient = jax.grad(loss)(params)
    return jax.tree.map(lambda value, change: value - 0.1 * change, params, gradient)


def training(params: Tree, momentum: Tree, batch: Tree, rate: jax.Array) -> tuple[Tree, Tree]:
    def loss(params: Tree) -> jax.Array:
        return ((predict(params, batch["x"]) - batch["y"]) ** 2).mean()

    gradient = jax.grad(loss)(params)
    momentum = jax.tree.map(lambda value, change: 0.9 * value + change, momentum, gradient)
    return jax.tree.map(lambda value, change: value - rate * change, params, momentum), momentum


def images(params: Tree, image: jax.Array, label: jax.Array) -> Tree:
    def loss(params: Tree) -> jax.Array:
        x = jax.lax.conv_general_dilated(
            image, params["first"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        scores = jax.nn.log_softmax(jax.nn.relu(x).mean((1, 2)) @ params["head"])
        return -jnp.take_along_axis(scores, label[:, None], 1).mean()

    return descended(params, loss)


def text(params: Tree, tokens: jax.Array, key: jax.Array) -> Tree:
    def layer(x: jax.Array, weights: Tree) -> tuple[jax.Array, None]:
        q, k, v = (x @ weights[name] for name in "qkv")
        scores = jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k))
        scores = scores * jax.random.bernoulli(key, 0.9, scores.shape)
        return x + jnp.einsum("bst,btd->bsd", scores, v) @ weights["o"], None

    def loss(params: Tree) -> jax.Array:
        x, _ = jax.lax.scan(layer, params["embed"][tokens], params["layers"])
        scores = jax.nn.log_softmax(x @ params["embed"].T)
        return -jnp.take_along_axis(scores[:, :-1], tokens[:, 1:, None], -1).mean()

    return descended(params, loss)


def decoding(params: Tree, cache: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    cache = jnp.roll(cache, 1, axis=2).at[:, :, 0].set(x)
    return predict(params, cache.mean((0, 2))), cache


class Compiled(NamedTuple):
    program: Program
    assignment: Assignment
    peak: int
    data: bytes


def compiled(function: Callable[..., Any], *arguments: Tree, donate: tuple[int, ...] = ()) -> Any:
    built = jax.jit(function, donate_argnums=donate).lower(*arguments).compile()
    module = built.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    plan = built.memory_analysis().serialized_buffer_assignment_proto
    data = chunk(1, module) + chunk(3, plan)
    program = Program(data)
    assignment = buffers.read(program)
    assert assignment is not None
    return Compiled(program, assignment, viewer.view(program, 0, assignment).peak_bytes, data)


def largest(built: Compiled, capacity: int) -> LargestBatch:
    return largest_batch(built.program, built.assignment, built.peak, capacity)


@pytest.mark.parametrize(
    ("function", "arguments", "donate"),
    [
        (predict, lambda size: (LAYERS, array(size, 64)), ()),
        (
            training,
            lambda size: (
                LAYERS,
                LAYERS,
                {"x": array(size, 64), "y": array(size, 10)},
                array(),
            ),
            (0, 1),
        ),
        (
            images,
            lambda size: (FILTERS, array(size, 32, 32, 3), array(size, dtype=jnp.int32)),
            (),
        ),
        (
            text,
            lambda size: (TOKENS, array(size, 48, dtype=jnp.int32), array(2, dtype=jnp.uint32)),
            (),
        ),
        (decoding, lambda size: (LAYERS, array(2, size, 96, 64), array(size, 64)), (1,)),
    ],
)
def test_the_largest_batch_fits(function, arguments, donate):
    built = compiled(function, *arguments(BATCH), donate=donate)
    capacity = 5 * built.peak
    batch = largest(built, capacity)
    assert batch.size == BATCH
    assert batch.largest >= 5 * BATCH
    assert batch.largest % BATCH == 0
    assert compiled(function, *arguments(batch.largest), donate=donate).peak <= capacity
    assert "nothing else is in the device's memory" in batch.note


def test_arguments_that_grow_with_the_batch_are_not_fixed():
    # A cache of keys and values is replaced by each step, and is larger for a larger batch.
    built = compiled(decoding, LAYERS, array(2, BATCH, 96, 64), array(BATCH, 64), donate=(1,))
    parameters = 4 * sum(each.size for each in jax.tree.leaves(LAYERS))
    batch = largest(built, 5 * built.peak)
    assert batch.largest == (5 * built.peak - parameters) // (built.peak - parameters) * BATCH


def test_a_batch_that_does_not_fit_itself():
    built = compiled(predict, LAYERS, array(BATCH, 64))
    assert largest(built, built.peak).largest == BATCH
    batch = largest(built, built.peak - 1)
    assert batch.size == BATCH
    assert batch.largest is None
    assert batch.note == "The batch of 8 does not fit itself."


def slice_of(params: Tree, x: jax.Array, step: jax.Array) -> Tree:
    return descended(
        params,
        lambda params: predict(params, jax.lax.dynamic_slice_in_dim(x, step * 32, 32)).sum(),
    )


def epoch(params: Tree, x: jax.Array) -> Tree:
    return jax.lax.scan(
        lambda params, step: (slice_of(params, x, step), None), params, jnp.arange(BATCH)
    )[0]


def contrastive(params: Tree, x: jax.Array) -> jax.Array:
    y = predict(params, x)
    return jax.nn.log_softmax(jnp.tanh(y @ y.T)).mean()


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        # The argument is a data set.
        (slice_of, (LAYERS, X, array(dtype=jnp.int32)), "`x` is read in parts"),
        (epoch, (LAYERS, X), "`x` is read in parts"),
        (contrastive, (LAYERS, array(96, 64)), "several dimensions of the batch's size, 96"),
        (
            lambda w, x: x @ w,
            (array(64, 10), array(BATCH, 64)),
            "may be the batch: 64 of `w`, 8 of `x`.",
        ),
        (lambda a, b: a @ b, (array(64, 64), array(64, 64)), "Nothing tells a batch"),
        (lambda a: a + 1, (array(),), "no argument that could be a batch"),
        (predict, (LAYERS, array(1, 64)), "The first dimension of the arguments is 1"),
    ],
)
def test_no_batch_is_named_where_it_may_be_another(function, arguments, reason):
    built = compiled(function, *arguments)
    batch = largest(built, 100 * built.peak)
    assert (batch.size, batch.largest) == (None, None)
    assert reason in batch.note


def test_state_that_a_step_replaces_is_no_batch():
    # Of one first dimension, and still not the batch.
    momentum = {"a": array(256, 10), "b": array(256)}

    def step(params: Tree, momentum: Tree, x: jax.Array) -> tuple[jax.Array, Tree]:
        moved = jax.tree.map(lambda value: 0.9 * value, momentum)
        return predict(params, x) + moved["b"].sum(), moved

    built = compiled(step, LAYERS, momentum, array(BATCH, 64), donate=(1,))
    assert largest(built, 100 * built.peak).size == BATCH


def test_the_column_of_programs():
    built = compiled(predict, LAYERS, array(BATCH, 64))
    found = memory_modules.named([Module("j", 1, built.data, 0)], ["a"])

    def row(capacity: int | None, times: Any = None) -> dict[Any, Any]:
        (row,) = memory_modules.frame(found, times or {}, capacity).to_dict("records")
        return row

    assert row(5 * built.peak)["batch"] == BATCH
    assert row(5 * built.peak)["largest_batch"] == largest(built, 5 * built.peak).largest
    unknown = row(None)
    assert pd.isna(unknown["largest_batch"])
    assert unknown["batch_note"] == "The memory of the device is unknown."
    # It ran, so the device has more memory than is stated.
    more = row(built.peak - 5, {("a", 1): 2.0})
    assert pd.isna(more["largest_batch"])
    assert more["batch_note"] == "The memory of the device is unknown."


def test_program_memory_shows_it_with_its_assumptions(tmp_path):
    built = compiled(predict, LAYERS, array(BATCH, 64))
    device = PlaneWriter("/device:TPU:0", {"device_type_string": "TPU v4", "memory_size": 2**34})
    programs = hlo.metadata_plane(
        **{"jit_predict(1)": (1, built.data), "jit_add(2)": (2, compiled(jnp.add, X, X).data)}
    )
    run = profile(tmp_path, xspace(device, programs)).run
    spaces = {module.name: module.spaces[0] for module in memory_viewer.payload(run).modules}
    predicting, adding = spaces["jit_predict(1)"], spaces["jit_add(2)"]
    figures = {name: {each.key: each for each in shown.figures} for name, shown in spaces.items()}
    figure = figures["jit_predict(1)"]["largest_batch"]
    capacity = 2**34
    assert figure.value == largest(built, capacity).largest > 2**20
    assert figure.note == f"{figure.value / BATCH:,.0f} times 8; see the note"
    assert f"Largest batch: {largest(built, capacity).note}" in predicting.notes
    assert "largest_batch" not in figures["jit_add(2)"]
    assert adding.notes[-1].startswith("Largest batch: Nothing tells a batch")
