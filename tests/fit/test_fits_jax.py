"""The predicted peak of a function of JAX is that of XLA's buffer assignment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.capture.fit.roles import Role
from nbprof.capture.fit.segments import checkpointed
from nbprof.capture.fit.xla import compiled_for
from nbprof.core.errors import NbprofError


def step(weights: jax.Array, x: jax.Array) -> jax.Array:
    def loss(weights: jax.Array) -> jax.Array:
        return jnp.tanh(x @ weights).sum()

    return weights - 0.1 * jax.grad(loss)(weights)


WEIGHTS = jax.ShapeDtypeStruct((256, 512), jnp.float32)
X = jax.ShapeDtypeStruct((1024, 256), jnp.float32)
IDS = jax.ShapeDtypeStruct((32,), jnp.int32)
SIZE = 4 * 256 * 512


def test_arguments_outputs_and_temporaries():
    fit = nbprof.fits(jax.jit(step), WEIGHTS, X, device=2**30)
    assert fit.roles[Role.ARGUMENTS] == SIZE + 4 * 1024 * 256
    assert fit.roles[Role.OUTPUTS] == SIZE
    # Of tanh for the backward pass.
    assert fit.roles[Role.TEMPORARIES] >= 4 * 1024 * 512
    assert fit.peak_bytes == fit.frame["bytes"].sum()
    assert fit.fits is True
    assert fit.on(fit.peak_bytes - 1).fits is False
    assert "A call of step of batch 1,024 needs" in repr(fit)
    assert "Compiled for the CPU: for a GPU or TPU, XLA fuses ops" in fit._repr_html_()


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ("cpu", "Compiled for the CPU: for a GPU or TPU, "),
        ("gpu", "Compiled for the GPU: for other devices, "),
        ("neuron", "Compiled for neuron: for other devices, "),
    ],
)
def test_the_platform_of_the_figures_is_named(platform, words):
    assert compiled_for(platform).startswith(words)


def test_a_function_without_jit_and_arrays_are_the_same():
    jitted = nbprof.fits(jax.jit(step), WEIGHTS, X)
    arrays = nbprof.fits(step, jnp.zeros((256, 512)), jnp.zeros((1024, 256)))
    assert arrays.roles == jitted.roles


def test_donated_arguments_count_once():
    plain = nbprof.fits(jax.jit(step), WEIGHTS, X)
    donated = nbprof.fits(jax.jit(step, donate_argnums=0), WEIGHTS, X)
    assert Role.OUTPUTS not in donated.roles
    buffers = donated.roles[Role.ARGUMENTS] + donated.roles[Role.TEMPORARIES]
    assert donated.peak_bytes - donated.roles.get(Role.CODE, 0) == buffers
    assert plain.roles[Role.OUTPUTS] == SIZE


def test_the_batch_is_what_can_be_resized_alone():
    fit = nbprof.fits(jax.jit(step), WEIGHTS, X, device=2**24)
    assert fit.batch_size == 1024
    largest = fit.largest_batch
    sizes = [peak_of_step(largest + more) for more in (0, 1)]
    assert sizes[0] <= 2**24 < sizes[1]
    # Rows of either can be more.
    assert nbprof.fits(lambda table, ids: table[ids], WEIGHTS, IDS).batch_size is None
    assert nbprof.fits(lambda table, ids: table[ids], WEIGHTS, IDS, device=2**24).fits


def peak_of_step(size: int) -> int:
    x = jax.ShapeDtypeStruct((size, 256), jnp.float32)
    return peak_of(jax.jit(step), WEIGHTS, x)


def peak_of(function, *arguments) -> int:
    sizes = function.lower(*arguments).compile().memory_analysis()
    total = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return total - sizes.alias_size_in_bytes + sizes.generated_code_size_in_bytes


def levers_of(fit) -> dict[str, dict[str, object]]:
    return fit.levers.set_index("lever").to_dict("index")


def moved(weights: jax.Array, x: jax.Array) -> jax.Array:
    return weights - x.sum()


def test_donation_is_what_donating_saves():
    levers = levers_of(nbprof.fits(jax.jit(moved), WEIGHTS, X))
    assert levers["donation"]["note"] == "jax.jit(…, donate_argnums=0)"
    donated = jax.jit(moved, donate_argnums=0)
    assert levers["donation"]["peak_bytes"] == peak_of(donated, WEIGHTS, X)
    assert levers["no change"]["peak_bytes"] - levers["donation"]["peak_bytes"] == SIZE
    # A donated argument is not donated again.
    assert "donation" not in levers_of(nbprof.fits(donated, WEIGHTS, X))


def repeated(weights: jax.Array, x: jax.Array, times: int) -> jax.Array:
    for _ in range(times):
        weights = moved(weights, x)
    return weights


def test_static_arguments_stay_values():
    fit = nbprof.fits(jax.jit(repeated, static_argnums=2), WEIGHTS, X, 2)
    assert fit.batch_size == 1024
    donated = jax.jit(repeated, static_argnums=2, donate_argnums=0)
    levers = levers_of(fit)
    assert levers["donation"]["peak_bytes"] == peak_of(donated, WEIGHTS, X, 2)


def test_bfloat16_arguments_are_half():
    fit = nbprof.fits(lambda x: x[:, :1], X, device="cpu")
    levers = levers_of(fit)
    assert levers["bfloat16"]["peak_bytes"] == peak_of(
        jax.jit(lambda x: x[:, :1]), jax.ShapeDtypeStruct(X.shape, jnp.bfloat16)
    )
    assert levers["bfloat16"]["peak_bytes"] < levers["no change"]["peak_bytes"] / 1.9
    named = levers_of(nbprof.fits(jnp.dot, X, WEIGHTS, device="A100-80GB"))
    assert pd.isna(named["bfloat16"]["peak_bytes"])
    assert "ask where the program runs on one" in named["bfloat16"]["note"]


class Optimizer(NamedTuple):
    """As those of optax."""

    init: Callable[..., Any]
    update: Callable[..., Any]


def _updated(gradients: Any, state: Any, parameters: Any) -> Any:
    del parameters
    state = jax.tree_util.tree_map(lambda old, new: 0.9 * old + new, state, gradients)
    return jax.tree_util.tree_map(lambda value: -0.1 * value, state), state


MOMENTUM = Optimizer(lambda tree: jax.tree_util.tree_map(jnp.zeros_like, tree), _updated)


def loss(parameters: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    for weights in parameters:
        x = jax.nn.gelu(x @ weights)
    return ((x - y) ** 2).mean()


def loop(parameters: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    def body(x: jax.Array, weights: jax.Array) -> tuple[jax.Array, None]:
        return jax.nn.gelu(x @ weights), None

    return ((jax.lax.scan(body, x, parameters)[0] - y) ** 2).mean()


PARAMETERS = [jax.ShapeDtypeStruct((64, 64), jnp.float32)] * 12
STACKED = jax.ShapeDtypeStruct((12, 64, 64), jnp.float32)
PAIR = [jax.ShapeDtypeStruct((2048, 64), jnp.float32)] * 2


def by_hand(function, donated=()):
    """A training step as people write it."""

    def training_step(parameters: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(function)(parameters, x, y)
        updates, state = MOMENTUM.update(gradients, state, parameters)
        return jax.tree_util.tree_map(jnp.add, parameters, updates), state, value

    return jax.jit(training_step, donate_argnums=donated)


def test_a_loss_and_an_optimizer_are_a_training_step():
    fit = nbprof.fits(loss, PARAMETERS, *PAIR, optimizer=MOMENTUM, device=2**25)
    assert fit.peak_bytes == peak_of(by_hand(loss), PARAMETERS, PARAMETERS, *PAIR)
    size = 4 * 12 * 64 * 64
    assert fit.roles[Role.PARAMETERS] == fit.roles[Role.OPTIMIZER_STATE] == size
    assert fit.roles[Role.INPUTS] == 2 * 4 * 2048 * 64
    assert fit.batch_size == 2048
    levers = levers_of(fit)
    donated = peak_of(by_hand(loss, (0, 1)), PARAMETERS, PARAMETERS, *PAIR)
    assert levers["donation"]["peak_bytes"] == donated < fit.peak_bytes
    low = by_hand(
        lambda *arguments: loss(*jax.tree_util.tree_map(lambda x: x.astype("bfloat16"), arguments))
    )
    assert levers["bfloat16"]["peak_bytes"] == pytest.approx(
        peak_of(low, PARAMETERS, PARAMETERS, *PAIR), rel=0.01
    )
    parts = "accumulation of 2 parts"
    assert levers[parts]["peak_bytes"] < fit.peak_bytes
    assert levers[parts]["largest_batch"] > fit.largest_batch
    assert levers["gradient checkpointing"]["peak_bytes"] < fit.peak_bytes
    assert "with gradient checkpointing" in repr(fit)


def test_a_checkpointed_loop_keeps_what_it_carries():
    fit = nbprof.fits(loop, STACKED, *PAIR, optimizer=MOMENTUM)
    levers = levers_of(fit)

    def checkpointed_by_hand(parameters: Any, x: Any, y: Any) -> Any:
        def body(x: jax.Array, weights: jax.Array) -> tuple[jax.Array, None]:
            return jax.checkpoint(lambda x, w: jax.nn.gelu(x @ w))(x, weights), None

        return ((jax.lax.scan(body, x, parameters)[0] - y) ** 2).mean()

    expected = peak_of(by_hand(checkpointed_by_hand), STACKED, STACKED, *PAIR)
    assert levers["gradient checkpointing"]["peak_bytes"] == pytest.approx(expected, rel=0.05)
    assert expected < 0.6 * fit.peak_bytes


@pytest.mark.parametrize("function", [loss, loop, jax.jit(loss)])
def test_segments_compute_the_same(function):
    keys = jax.random.split(jax.random.key(0), 3)
    stacked = jax.random.normal(keys[0], (12, 64, 64)) / 8
    parameters = stacked if function is loop else list(stacked)
    x, y = jax.random.normal(keys[1], (32, 64)), jax.random.normal(keys[2], (32, 64))
    plain = jax.value_and_grad(function)(parameters, x, y)
    again = jax.value_and_grad(checkpointed(function))(parameters, x, y)
    for value, other in zip(*map(jax.tree_util.tree_leaves, (plain, again)), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-7)
    text = str(jax.make_jaxpr(jax.grad(checkpointed(function)))(parameters, x, y))
    assert "prevent_cse" in text


@pytest.mark.parametrize(
    ("model", "arguments", "options", "words"),
    [
        (step, (WEIGHTS, WEIGHTS), {}, "cannot be compiled"),
        (step, (WEIGHTS, X), {"optimizer": object}, "with init and update"),
        (step, (WEIGHTS, X), {"optimizer": MOMENTUM}, "returns a number"),
        (loss, (WEIGHTS,), {"optimizer": MOMENTUM}, "pass the parameters and the batch"),
        (step, (WEIGHTS, X), {"loss": loss}, "part of the function"),
        (3, (X,), {}, "memory of a int cannot be predicted"),
        (len, ([1],), {}, "torch.nn.Module"),
    ],
)
def test_what_cannot_be_predicted_is_an_error(model, arguments, options, words):
    with pytest.raises(NbprofError, match=words):
        nbprof.fits(model, *arguments, **options)
