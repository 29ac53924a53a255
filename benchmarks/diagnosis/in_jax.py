"""Programs of JAX on the CPU. Unless they use `nbprof.steps`, their steps are the runs of their
main program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from programs import (
    COMPILE,
    COMPUTE,
    HOST,
    INPUT,
    OUTSIDE_OPS,
    PYTHON,
    Loop,
    busy,
    control,
    planted,
)

import nbprof

RNG = np.random.default_rng(0)


def weights(*sizes: int) -> list[tuple[jax.Array, jax.Array]]:
    return [
        (jnp.asarray(RNG.normal(0, 0.05, (a, b)), jnp.float32), jnp.zeros(b))
        for a, b in pairwise(sizes)
    ]


def forward(params: Any, x: jax.Array) -> jax.Array:
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss_of(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(jax.nn.log_softmax(forward(params, x)), y[:, None], 1)
    return -picked.mean()


def update(
    params: Any, x: jax.Array, y: jax.Array, loss: Callable[..., jax.Array] = loss_of
) -> tuple[Any, jax.Array]:
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value


def ready(*shape: int) -> list[tuple[Any, Any]]:
    """Four batches on the device."""
    return [
        (
            jnp.asarray(RNG.normal(size=shape), jnp.float32),
            jnp.asarray(RNG.integers(0, 10, shape[0])),
        )
        for _ in range(4)
    ]


def fit(
    step: Any,
    params: Any,
    batches: Callable[[], Any],
    extra: Callable[[int, Any], object] = lambda *_: None,
) -> Loop:
    """The ordinary loop; the parameters stay from call to call."""
    kept = [params]

    def loop(steps: int) -> None:
        params, value = kept[0], None
        for i, (x, y) in enumerate(islice(batches(), steps)):
            params, value = step(params, x, y)
            extra(i, value)
        jax.block_until_ready((params, value))
        kept[0] = params

    return loop


MLP = (256, 768, 768, 10)


@control("jax/mlp", COMPUTE)
def _() -> Loop:
    some = ready(256, 256)
    return fit(jax.jit(update), weights(*MLP), lambda: cycle(some))


@control("jax/mlp, marked", COMPUTE)
def _() -> Loop:
    some = ready(256, 256)
    return fit(jax.jit(update), weights(*MLP), lambda: nbprof.steps(cycle(some)))


@control("jax/convolution", COMPUTE)
def _() -> Loop:
    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        kernel, (w, b) = params
        x = jax.lax.conv_general_dilated(
            x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x).mean((1, 2))
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ w + b), y[:, None], 1).mean()

    some = ready(16, 32, 32, 3)
    params = (jnp.asarray(RNG.normal(0, 0.1, (3, 3, 3, 32)), jnp.float32), weights(32, 10)[0])
    return fit(jax.jit(lambda p, x, y: update(p, x, y, loss)), params, lambda: cycle(some))


@control("jax/scan over time", COMPUTE)
def _() -> Loop:
    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        (wx, _), (wh, b), out = params

        def cell(h: jax.Array, at: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(at @ wx + h @ wh + b), None

        last, _ = jax.lax.scan(cell, jnp.zeros((x.shape[0], 128)), x.swapaxes(0, 1))
        return -jnp.take_along_axis(
            jax.nn.log_softmax(last @ out[0] + out[1]), y[:, None], 1
        ).mean()

    some = ready(64, 30, 32)
    params = (weights(32, 128)[0], weights(128, 128)[0], weights(128, 10)[0])
    return fit(jax.jit(lambda p, x, y: update(p, x, y, loss)), params, lambda: cycle(some))


@control("jax/another program after the loop", COMPUTE)
def _() -> Loop:
    some = ready(256, 256)
    step, kept = jax.jit(update), [weights(*MLP)]

    def loop(steps: int) -> None:
        params = kept[0]
        for x, y in islice(cycle(some), steps):
            params, _ = step(params, x, y)
        # Compiled anew in each call, while the last steps still run.
        jax.jit(lambda p: jax.tree.reduce(lambda a, b: a + b.sum(), p, 0.0))(
            params
        ).block_until_ready()
        kept[0] = params

    return loop


@control("jax/validation now and then", COMPUTE)
def _() -> Loop:
    some, held = ready(256, 256), jnp.asarray(RNG.normal(size=(512, 256)), jnp.float32)
    step, kept = jax.jit(update), [weights(*MLP)]

    def loop(steps: int) -> None:
        params = kept[0]
        # What a person writes who defines it in the cell: it is compiled in the first validation.
        accuracy = jax.jit(lambda p, x: forward(p, x).argmax(1).mean())
        for i, (x, y) in enumerate(islice(cycle(some), steps)):
            params, _ = step(params, x, y)
            if i % 20 == 10:
                float(accuracy(params, held))
        jax.block_until_ready(params)
        kept[0] = params

    return loop


@control("jax/numpy batches", COMPUTE)
def _() -> Loop:
    some = [(np.asarray(x), np.asarray(y)) for x, y in ready(256, 256)]
    return fit(jax.jit(update), weights(*MLP), lambda: cycle(some))


@control("jax/heads side by side", COMPUTE)
def _() -> Loop:
    """Many products alike of one line, of which none needs another."""

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        heads, out = params
        mixed = sum(jnp.tanh(x @ heads[at]) for at in range(heads.shape[0]))
        return -jnp.take_along_axis(jax.nn.log_softmax(mixed @ out), y[:, None], 1).mean()

    some = ready(256, 256)
    params = (
        jnp.asarray(RNG.normal(0, 0.1, (24, 256, 64)), jnp.float32),
        jnp.asarray(RNG.normal(0, 0.1, (64, 10)), jnp.float32),
    )
    return fit(jax.jit(lambda p, x, y: update(p, x, y, loss)), params, lambda: cycle(some))


@control("jax/layers of different widths", COMPUTE)
def _() -> Loop:
    """A loop over layers that no scan can do: no two of them have the same shape."""
    some = ready(256, 128)
    return fit(jax.jit(update), weights(128, *range(96, 192, 4), 10), lambda: cycle(some))


@planted("jax/slow input, marked", "the loop waits for each batch", INPUT, "input_ahead")
def _(mended: bool) -> Loop:
    some = ready(256, 256)

    def batches() -> Iterator[Any]:
        for pair in cycle(some):
            if not mended:
                time.sleep(0.02)
            yield pair

    step = jax.jit(update)
    return fit(
        step,
        weights(*MLP),
        lambda: nbprof.steps(batches()),
        lambda _, value: value.block_until_ready(),
    )


@planted(
    "jax/batch made in the loop, marked",
    "each batch is made on the host when it is asked for",
    INPUT,
    "input_ahead",
)
def _(mended: bool) -> Loop:
    some = [(np.asarray(x), np.asarray(y)) for x, y in ready(256, 256)]

    def batches() -> Iterator[Any]:
        for x, y in cycle(some):
            if not mended:
                busy(0.03)
            yield x, y

    return fit(
        jax.jit(update),
        weights(*MLP),
        lambda: nbprof.steps(batches()),
        lambda _, value: value.block_until_ready(),
    )


@planted(
    "jax/shapes change",
    "the last dimension of the batch changes, so that each step compiles",
    COMPILE,
    "compile",
    steps=12,
)
def _(mended: bool) -> Loop:
    step, count = jax.jit(update), [100]

    def batches() -> Iterator[Any]:
        while True:
            count[0] += 0 if mended else 1
            yield np.ones((count[0], 256), np.float32), np.zeros(count[0], np.int32)

    return fit(step, weights(256, 1024, 1024, 10), lambda: nbprof.steps(batches()))


@planted(
    "jax/static argument changes",
    "a Python value that changes is a static argument",
    COMPILE,
    "compile",
    steps=12,
)
def _(mended: bool) -> Loop:
    some, count, kept = ready(128, 256), [0.0], [weights(256, 1024, 1024, 10)]
    step = jax.jit(
        lambda p, x, y, rate: (jax.tree.map(lambda a: a * rate, update(p, x, y)[0]), None),
        static_argnums=() if mended else 3,
    )

    def loop(steps: int) -> None:
        params = kept[0]
        for x, y in nbprof.steps(islice(cycle(some), steps)):
            count[0] += 1e-6
            params, _ = step(params, x, y, 1 - count[0])
        jax.block_until_ready(params)
        kept[0] = params

    return loop


@planted(
    "jax/jit in the loop",
    "the step is wrapped in jax.jit again in each round",
    COMPILE,
    "compile",
    steps=12,
)
def _(mended: bool) -> Loop:
    some, once = ready(128, 256), jax.jit(update)
    return fit(
        lambda p, x, y: (once if mended else jax.jit(lambda *a: update(*a)))(p, x, y),
        weights(256, 1024, 1024, 10),
        lambda: nbprof.steps(cycle(some)),
    )


@planted("jax/no jit", "the step is not compiled", HOST, "jit", steps=12)
def _(mended: bool) -> Loop:
    some = ready(256, 256)
    return fit(
        jax.jit(update) if mended else update,
        weights(256, 256, 256, 10),
        lambda: nbprof.steps(cycle(some)),
    )


@planted(
    "jax/python in the step, marked",
    "each step writes a log in Python",
    PYTHON,
    *OUTSIDE_OPS,
    "host_bound",
    "between_steps",
)
def _(mended: bool) -> Loop:
    some = ready(64, 64)
    return fit(
        jax.jit(update), weights(64, 128, 10), lambda: nbprof.steps(cycle(some)),
        lambda _, value: value.block_until_ready() if mended else (value.block_until_ready(), busy(0.01)),
    )  # fmt: skip


@planted(
    "jax/python between the runs",
    "each step writes a log in Python",
    PYTHON,
    *OUTSIDE_OPS,
    "host_bound",
    "between_steps",
)
def _(mended: bool) -> Loop:
    some = ready(128, 256)
    return fit(
        jax.jit(update),
        weights(256, 256, 10),
        lambda: cycle(some),
        lambda _, value: (value.block_until_ready(), mended or busy(0.01)),
    )


@planted(
    "jax/log now and then, marked",
    "every fifth step writes a log in Python",
    COMPUTE | PYTHON,
    "periodic",
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    def extra(i: int, value: Any) -> None:
        value.block_until_ready()
        if i % 5 == 4 and not mended:
            busy(0.05)

    some = ready(256, 256)
    return fit(jax.jit(update), weights(*MLP), lambda: nbprof.steps(cycle(some)), extra)


@planted("jax/host callback", "each step calls back into Python", HOST | COMPUTE, "host_callback")
def _(mended: bool) -> Loop:
    def slow(value: Any) -> Any:
        busy(0.01)
        return np.asarray(value)

    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        params, value = update(params, x, y)
        return params, (
            value
            if mended
            else jax.pure_callback(slow, jax.ShapeDtypeStruct((), jnp.float32), value)
        )

    some = ready(128, 256)
    return fit(
        jax.jit(step),
        weights(256, 256, 10),
        lambda: nbprof.steps(cycle(some)),
        lambda _, value: value.block_until_ready(),
    )


@planted(
    "jax/large array copied",
    "a constant array is copied to the device in each step",
    INPUT,
    "arrays_copied",
)
def _(mended: bool) -> Loop:
    table = RNG.normal(size=(4096, 2048)).astype(np.float32)
    on_device = jnp.asarray(table)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return loss_of(params, x[0] + x[1][0, :256], y)

    step, some = jax.jit(lambda p, x, y: update(p, x, y, loss)), ready(64, 256)
    copied = lambda: on_device if mended else jnp.array(table)  # noqa: E731
    return fit(
        step,
        weights(256, 128, 10),
        lambda: (((x, copied()), y) for x, y in nbprof.steps(cycle(some))),
        lambda _, value: value.block_until_ready(),
    )


@planted(
    "jax/unrolled layers",
    "layers that are alike are unrolled in a Python loop",
    COMPUTE,
    "unrolled",
    steps=30,
)
def _(mended: bool) -> Loop:
    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        w, out = params
        if mended:
            x, _ = jax.lax.scan(lambda h, each: (jnp.tanh(h @ each), None), x, w)
        else:
            for at in range(w.shape[0]):
                x = jnp.tanh(x @ w[at])
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ out), y[:, None], 1).mean()

    some = ready(128, 64)
    params = (
        jnp.asarray(RNG.normal(0, 0.1, (40, 64, 64)), jnp.float32),
        jnp.asarray(RNG.normal(0, 0.1, (64, 10)), jnp.float32),
    )
    return fit(jax.jit(lambda p, x, y: update(p, x, y, loss)), params, lambda: cycle(some))


@planted(
    "jax/unrolled time steps",
    "a recurrent layer is a Python loop over its time steps",
    COMPUTE,
    "unrolled",
    steps=30,
)
def _(mended: bool) -> Loop:
    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        (wx, _), (wh, b), out = params

        def cell(h: jax.Array, at: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(at @ wx + h @ wh + b), None

        h, over_time = jnp.zeros((x.shape[0], 128)), x.swapaxes(0, 1)
        if mended:
            h, _ = jax.lax.scan(cell, h, over_time)
        else:
            for at in over_time:
                h, _ = cell(h, at)
        return -jnp.take_along_axis(jax.nn.log_softmax(h @ out[0] + out[1]), y[:, None], 1).mean()

    some = ready(64, 30, 32)
    params = (weights(32, 128)[0], weights(128, 128)[0], weights(128, 10)[0])
    return fit(jax.jit(lambda p, x, y: update(p, x, y, loss)), params, lambda: cycle(some))


@planted(
    "jax/tiny batches",
    "a batch is too small for what a step costs besides",
    HOST,
    "tiny_batch",
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    some = ready(1024 if mended else 2, 64)
    return fit(jax.jit(update), weights(64, 64, 64, 64, 64, 64, 10), lambda: cycle(some))


@planted(
    "jax/tiny batches, marked",
    "a batch is too small for what a step costs besides",
    HOST,
    "tiny_batch",
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    some = ready(1024 if mended else 2, 64)
    step = jax.jit(update)
    return fit(
        step,
        weights(64, 64, 64, 64, 10),
        lambda: nbprof.steps(cycle(some)),
        lambda _, value: value.block_until_ready(),
    )
