"""The predicted peak of a function of JAX is that of XLA's buffer assignment."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import nbprof
from nbprof.capture.fit.roles import Role
from nbprof.core.errors import NbprofError


def step(weights: jax.Array, x: jax.Array) -> jax.Array:
    def loss(weights: jax.Array) -> jax.Array:
        return jnp.tanh(x @ weights).sum()

    return weights - 0.1 * jax.grad(loss)(weights)


WEIGHTS = jax.ShapeDtypeStruct((256, 512), jnp.float32)
X = jax.ShapeDtypeStruct((1024, 256), jnp.float32)
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
    assert fit.largest_batch is None
    assert fit.levers.empty
    assert "A call of step needs" in repr(fit)
    assert "Compiled for cpu" in fit._repr_html_()


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


@pytest.mark.parametrize(
    ("model", "arguments", "options", "words"),
    [
        (step, (WEIGHTS, WEIGHTS), {}, "cannot be compiled"),
        (step, (WEIGHTS, X), {"optimizer": object}, "part of the function"),
        (3, (X,), {}, "memory of a int cannot be predicted"),
        (len, ([1],), {}, "torch.nn.Module"),
    ],
)
def test_what_cannot_be_predicted_is_an_error(model, arguments, options, words):
    with pytest.raises(NbprofError, match=words):
        nbprof.fits(model, *arguments, **options)
