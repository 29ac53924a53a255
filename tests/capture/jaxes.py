"""A training in JAX that tests record."""

from __future__ import annotations

import time


class Training:
    """A small training, of one compiled program a step, that waits for each batch and for the end
    of each step.

    Parameters
    ----------
    jax : module
    wait_s : float
        How long the next batch takes to come.
    """

    def __init__(self, jax, wait_s=0.02):
        jnp = jax.numpy
        self.jax, self.wait_s = jax, wait_s

        def loss(w, x):
            return jnp.mean(jnp.tanh(x @ w) ** 2)

        def train_step(w, x):
            return w - 0.1 * jax.grad(loss)(w, x)

        def evaluate(w, x):
            return loss(w, x) + jnp.max(jnp.tanh(x @ w) @ w)

        self.train_step, self.evaluate = jax.jit(train_step), jax.jit(evaluate)
        self.w, self.x = jnp.ones((256, 256)), jnp.ones((128, 256))
        jax.block_until_ready((self.train_step(self.w, self.x), self.evaluate(self.w, self.x)))

    def step(self):
        time.sleep(self.wait_s)
        self.w = self.train_step(self.w, self.x).block_until_ready()

    def run(self, steps):
        for _ in range(steps):
            self.step()
