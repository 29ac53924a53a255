"""Cells of JAX."""

from __future__ import annotations

from cells import COMPILE, COMPUTE, INPUT, OVERHEAD, PYTHON, RECORDING, Cell, add, loop

JAX = """
import time
from time import perf_counter
import jax
import jax.numpy as jnp
key = jax.random.key(0)
x = jax.random.normal(key, (640, 640)) / 25
y = x[:, :1]

@jax.jit
def chain(x):
    for _ in range(4):
        x = jnp.tanh(x @ x)
    return x

def loss_of(w, x, y):
    return jnp.mean((jnp.tanh(x @ w) @ w - y) ** 2)

@jax.jit
def train_step(w, x, y):
    loss, grad = jax.value_and_grad(loss_of)(w, x, y)
    return w - 1e-3 * grad, loss

w = x + 0
jax.block_until_ready((chain(x), train_step(w, x, y)))
"""

add(
    Cell(
        "jax/one jitted call",
        """
began = perf_counter()
result = long(x).block_until_ready()
seconds = perf_counter() - began
""",
        RECORDING,
        COMPUTE,
        (
            JAX,
            """
@jax.jit
def long(x):
    for i in range(20):
        x = jnp.tanh(x @ x) + i
    return x
long(x).block_until_ready()
""",
        ),
    ),
    Cell(
        "jax/eager ops in a loop",
        """
began = perf_counter()
a = x
for i in range(30):
    a = jnp.tanh(a @ x).block_until_ready()
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (JAX, "jnp.tanh(x @ x).block_until_ready()"),
    ),
    Cell(
        "jax/jitted train step",
        """
began = perf_counter()
for i in range(20):
    w, loss = train_step(w, x, y)
    loss.block_until_ready()
seconds = perf_counter() - began
""",
        loop(20),
        COMPUTE,
        (JAX,),
    ),
    Cell(
        "jax/training in a function of an earlier cell",
        "w, seconds = train(w, 20)",
        loop(20),
        COMPUTE,
        (
            JAX,
            """
def train(w, steps):
    began = perf_counter()
    for _ in range(steps):
        w, loss = train_step(w, x, y)
        loss.block_until_ready()
    return w, perf_counter() - began
""",
        ),
    ),
    Cell(
        "jax/tiny jitted steps",
        """
began = perf_counter()
for i in range(5000):
    v = tiny(v)
v.block_until_ready()
seconds = perf_counter() - began
""",
        loop(5000),
        OVERHEAD,
        (
            JAX,
            """
tiny = jax.jit(lambda v: v * 2 + 1)
v = jnp.ones(8)
tiny(v).block_until_ready()
""",
        ),
    ),
    Cell(
        "jax/tiny eager ops",
        """
began = perf_counter()
for i in range(2000):
    v = jnp.sin(v) + v * 0.5
seconds = perf_counter() - began
""",
        loop(2000),
        OVERHEAD,
        (
            JAX,
            """
v = jnp.ones(8)
(jnp.sin(v) + v * 0.5).block_until_ready()
""",
        ),
    ),
    Cell(
        "jax/Python between steps",
        """
began = perf_counter()
for i in range(40):
    weights = schedule(i)
    v = tiny(v).block_until_ready()
seconds = perf_counter() - began
""",
        loop(40),
        PYTHON,
        (
            JAX,
            """
tiny = jax.jit(lambda v: v * 2 + 1)
v = jnp.ones(8)
tiny(v).block_until_ready()
""",
            """
def schedule(step):
    total = 0.0
    for k in range(100_000):
        total += (step * k) % 3
    return total
""",
        ),
        named=("schedule", "total += (step * k) % 3"),
    ),
    Cell(
        "jax/a shape per iteration",
        """
began = perf_counter()
for size in range(100, 106):
    fresh(jnp.ones((size, size))).block_until_ready()
seconds = perf_counter() - began
""",
        loop(6),
        COMPILE,
        (
            JAX,
            """
@jax.jit
def fresh(v):
    for i in range(8):
        v = jnp.sin(v @ v) + jnp.cumsum(v, axis=0) * i
    return v
""",
        ),
    ),
    Cell(
        "jax/slow generator",
        """
def read(count):
    for _ in range(count):
        time.sleep(0.04)
        yield small

began = perf_counter()
for batch in read(20):
    tiny(batch).block_until_ready()
seconds = perf_counter() - began
""",
        loop(20),
        INPUT,
        (
            JAX,
            """
tiny = jax.jit(lambda v: v @ v)
small = jnp.ones((64, 64))
tiny(small).block_until_ready()
""",
        ),
    ),
    Cell(
        "jax/a loop inside one program",
        """
began = perf_counter()
result = inside(x).block_until_ready()
seconds = perf_counter() - began
""",
        RECORDING,
        COMPUTE,
        (
            JAX,
            """
inside = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda i, a: jnp.tanh(a @ x), x))
inside(x).block_until_ready()
""",
        ),
    ),
    Cell(
        "jax/epochs by batches",
        """
began = perf_counter()
for epoch in range(3):
    for batch in batches:
        w, loss = train_step(w, batch, y)
        loss.block_until_ready()
seconds = perf_counter() - began
""",
        loop(24),
        COMPUTE,
        (
            JAX,
            """
batches = [x * k for k in range(1, 9)]
jax.block_until_ready(batches)
""",
        ),
    ),
)
