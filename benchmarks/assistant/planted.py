"""The programs whose bottleneck is looked for, and what is true of each besides its definition.

The verdict and the rules that find the plant are stated beside each program of
`benchmarks/diagnosis`, the verdict and the line beside each cell of `benchmarks/answers`. Here are
the lines of the programs and the time that was planted. All of it follows from how the programs
are written.
"""

from __future__ import annotations

from typing import NamedTuple


class Planted(NamedTuple):
    """One program, and where its time goes.

    Attributes
    ----------
    name : str
        `program/` or `cell/`, and the name there.
    lines : tuple of str
        Parts of the lines of which any is right. Empty where no single line has the time: none is
        judged then, nor one of a control.
    planted_ms : float, optional
        Wall time per unit that the problem takes by its definition: sleeps, and loops that watch
        the clock. Where it is unknown, the time of the unit is judged by the program's clock.
    rules : tuple of str
        Rules that find the problem of a cell; those of a program are stated beside it.
    contended : bool
        Busy processes run beside it.
    """

    name: str
    lines: tuple[str, ...] = ()
    planted_ms: float | None = None
    rules: tuple[str, ...] = ()
    contended: bool = False


OUTSIDE_OPS = ("python_code", "library_code", "other")
"""Rules on Python of the cell; which of them depends on whether its calls are of a library."""

PLANTED = (
    # A sleep for each of 16 items.
    Planted("program/torch/slow items in the process", ("time.sleep(self.sleep)",), 16.0),
    # The worker started before the recording: the line at which the loop waits for it is right, too.
    Planted(
        "program/torch/one worker",
        ("time.sleep(self.sleep)", "in enumerate(islice(batches(), steps))"),
    ),
    Planted("program/torch/generator", ("time.sleep(0.02)",), 20.0),
    Planted("program/torch/slow stream", ("time.sleep(0.001)",), 16.0),
    Planted("program/torch/python between the steps", ("busy(0.03)", "sum(range("), 30.0),
    Planted("program/torch/sleep in the step", ("time.sleep(0.03)",), 30.0),
    Planted("program/torch/checkpoint now and then", ("time.sleep(0.05)",)),
    Planted("program/torch/validation in the loop", ("model(held)",)),
    # Of each tensor that a list retains, so of any layer.
    Planted("program/torch/outputs are kept"),
    Planted("program/torch/loop over time steps", ("self.cell(x[:, at], state)",)),
    Planted("program/torch/loop over parameters", ("optim.step()",)),
    Planted("program/torch/numpy in the loop", ("np.sort(table)",)),
    # Of all layers, as is the type of their numbers.
    Planted("program/torch/tiny batches"),
    Planted("program/torch/float64"),
    Planted("program/jax/slow input, marked", ("time.sleep(0.02)",), 20.0),
    # A program that compiles is named by its function, or by its call.
    Planted("program/jax/shapes change", ("def update(", "params, value = step(")),
    Planted("program/jax/static argument changes", ("lambda p, x, y, rate", "params, _ = step(")),
    Planted("program/jax/jit in the loop", ("jax.jit(lambda *a: update",)),
    # Each line of the step dispatches ops.
    Planted("program/jax/no jit"),
    Planted("program/jax/python in the step, marked", ("busy(0.01)", "sum(range("), 10.0),
    Planted("program/jax/host callback", ("busy(0.01)", "sum(range(", "jax.pure_callback("), 10.0),
    # Copied in the background, while the loop waits at another line.
    Planted("program/jax/large array copied"),
    Planted("program/jax/unrolled time steps", ("jnp.tanh(at @ wx", "cell(h, at)")),
    Planted("program/keras/serial map", ("time.sleep(seconds)",)),
    Planted("program/keras/no prefetch", ("time.sleep(seconds)",)),
    Planted("program/keras/PyDataset", ("time.sleep(0.15)",)),
    Planted("program/keras/slow callback", ("busy(0.02)", "sum(range("), 20.0),
    # Each line of the model and of Keras.
    Planted("program/keras/run_eagerly"),
    Planted("program/tensorflow/eager loop"),
    # A decorated function begins at its decorator.
    Planted(
        "program/tensorflow/traced in each step",
        ("@tf.function", "def step(", "step(x, tf.constant"),
    ),
    Planted("cell/python/two functions, one slow", rules=OUTSIDE_OPS),
    Planted("cell/python/method of a class", rules=OUTSIDE_OPS),
    Planted("cell/pandas/iterrows", rules=OUTSIDE_OPS),
    Planted("cell/torch/generator that augments in Python", rules=(*OUTSIDE_OPS, "loader_none")),
    Planted("cell/jax/Python between steps", rules=OUTSIDE_OPS),
    Planted("program/torch/embedding", contended=True),
)

CONTROLS = (
    Planted("program/torch/mlp"),
    Planted("program/torch/cnn"),
    Planted("program/torch/transformer"),
    Planted("program/torch/loader that keeps up"),
    Planted("program/jax/mlp, marked"),
    Planted("program/jax/scan over time"),
    Planted("program/keras/mlp"),
    Planted("program/tensorflow/custom loop, marked"),
)
