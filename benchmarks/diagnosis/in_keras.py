"""Programs of Keras (on TensorFlow) and custom loops of TensorFlow, on the CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
from keras import layers
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

keras.utils.set_random_seed(0)
RNG = np.random.default_rng(0)
AUTO = tf.data.AUTOTUNE


def mlp(width: int = 512, inputs: int = 256) -> keras.Model:
    return keras.Sequential(
        [
            layers.Input((inputs,)),
            layers.Dense(width, "relu"),
            layers.Dense(width, "relu"),
            layers.Dense(10),
        ]
    )


def cnn() -> keras.Model:
    return keras.Sequential(
        [layers.Input((32, 32, 3)), layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(32, 3, activation="relu"),
         layers.GlobalAveragePooling2D(), layers.Dense(10)]
    )  # fmt: skip


class Clock(keras.callbacks.Callback):
    """From the begin of the epoch, so with the wait for the first batch, to the end of its last
    one; what `fit` does around is no step.
    """

    begin = end = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.begin = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        self.end = time.perf_counter()


def fit(
    model: keras.Model, data: Callable[[int], Any], callbacks: tuple[Any, ...] = (), **compiled: Any
) -> Loop:
    """`model.fit` on what `data(steps)` gives, for so many steps."""
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **compiled)

    def loop(steps: int) -> float:
        given = data(steps)
        args = given if isinstance(given, tuple) else (given,)
        size = {"batch_size": len(args[0]) // steps} if isinstance(given, tuple) else {}
        clock = Clock()
        model.fit(*args, verbose=0, callbacks=[*callbacks, clock], **size)
        return clock.end - clock.begin

    return loop


def pairs(batch: int, *shape: int) -> tf.data.Dataset:
    """Items that lie in memory, for ever, a batch at a time."""
    x, y = RNG.normal(size=(4 * batch, *shape)).astype(np.float32), RNG.integers(0, 10, 4 * batch)
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(batch)


def cached(batch: int, *shape: int) -> tf.data.Dataset:
    """Batches that are kept as such, so that the pipeline has next to nothing to do."""
    return pairs(batch, *shape).take(4).cache().repeat().prefetch(AUTO)


def sleeping(seconds: float) -> Callable[..., Any]:
    """What a map calls that waits for a disk or the network for so long."""

    def wait(x: tf.Tensor) -> tf.Tensor:
        time.sleep(seconds)
        return x

    def mapped(x: tf.Tensor, y: tf.Tensor) -> Any:
        out = tf.numpy_function(wait, [x], x.dtype)
        out.set_shape(x.shape)
        return out, y

    return mapped


def expensive(x: tf.Tensor, y: tf.Tensor) -> Any:
    """Work of TensorFlow's ops on one item."""
    for _ in range(12):
        x = tf.signal.irfft(tf.signal.rfft(tf.sin(x)))
    return x, y


@control("keras/mlp", COMPUTE)
def _() -> Loop:
    data = pairs(256, 256).prefetch(AUTO)
    return fit(mlp(), data.take)


@control("keras/cnn", COMPUTE)
def _() -> Loop:
    data = pairs(32, 32, 32, 3).prefetch(AUTO)
    return fit(cnn(), data.take)


@control("keras/lstm", COMPUTE)
def _() -> Loop:
    model = keras.Sequential([layers.Input((20, 32)), layers.LSTM(128), layers.Dense(10)])
    data = pairs(64, 20, 32).prefetch(AUTO)
    return fit(model, data.take)


@control("keras/embedding", COMPUTE)
def _() -> Loop:
    model = keras.Sequential(
        [
            layers.Input((40,)),
            layers.Embedding(5000, 64),
            layers.Flatten(),
            layers.Dense(512, "relu"),
            layers.Dense(10),
        ]
    )
    data = (
        pairs(256, 40)
        .map(lambda x, y: (tf.cast(tf.abs(x) * 1000, tf.int32) % 5000, y), AUTO)
        .prefetch(AUTO)
    )
    return fit(model, data.take)


@control("keras/arrays", COMPUTE)
def _() -> Loop:
    x, y = RNG.normal(size=(64 * 256, 256)).astype(np.float32), RNG.integers(0, 10, 64 * 256)
    return fit(mlp(), lambda steps: (x[: 256 * steps], y[: 256 * steps]))


@control("keras/several steps a call", COMPUTE, batches=4)
def _() -> Loop:
    data = pairs(256, 256).prefetch(AUTO)
    return fit(mlp(), data.take, steps_per_execution=4)


@control("tensorflow/custom loop", COMPUTE)
def _() -> Loop:
    def traced(batches: Any, steps: int) -> Iterator[Any]:
        """As TensorFlow's guide marks a loop: the wait for the batch and what is done with it."""
        for number in range(steps):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                yield next(batches)

    return custom(mlp(768), cached(256, 256), mark=traced)


@control("tensorflow/custom loop, marked", COMPUTE)
def _() -> Loop:
    return custom(mlp(768), cached(256, 256))


def custom(
    model: keras.Model,
    data: tf.data.Dataset,
    *,
    compiled: bool = True,
    mark: Callable[[Any, int], Any] = lambda batches, _: nbprof.steps(batches),
    extra: Callable[[], object] = lambda: None,
    report: Callable[[tf.Tensor], tf.Tensor] = lambda loss: loss,
) -> Loop:
    """A loop of one's own around a tf.function."""
    optimizer = keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply_gradients(
            zip(
                tape.gradient(loss, model.trainable_variables),
                model.trainable_variables,
                strict=True,
            )
        )
        return report(loss)

    run = tf.function(step) if compiled else step

    def loop(steps: int) -> float:
        batches = iter(data.take(steps))
        began = ended = time.perf_counter()
        for x, y in mark(batches, steps):
            run(x, y)
            extra()
            # To be told that there is no further batch is no step, and may take long.
            ended = time.perf_counter()
        return ended - began

    return loop


@planted(
    "keras/serial map",
    "a map that waits for each item runs one call at a time",
    INPUT,
    "map_serial",
    "input_bottleneck",
)
def _(mended: bool) -> Loop:
    items = pairs(16, 256).unbatch().map(sleeping(0.001), AUTO if mended else None)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 16
    return fit(mlp(), items.batch(16).prefetch(AUTO).with_options(options).take)


@planted(
    "keras/slow storage", "each batch waits for its file", INPUT, "map_serial", "input_bottleneck"
)
def _(mended: bool) -> Loop:
    data = pairs(64, 256).map(sleeping(0.02), 8 if mended else None)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 16
    return fit(mlp(), data.prefetch(AUTO).with_options(options).take)


@planted(
    "keras/no prefetch",
    "the pipeline does not run ahead of the step",
    INPUT | COMPUTE,
    "prefetch_missing",
    "input_bottleneck",
    "map_serial",
)
def _(mended: bool) -> Loop:
    # Shorter than a step, so that it can be hidden.
    data = pairs(256, 256).map(sleeping(0.006))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return fit(mlp(640), (data.prefetch(4) if mended else data).with_options(options).take)


@planted(
    "keras/expensive map",
    "an expensive map runs for each item of each epoch, without cache",
    INPUT | HOST,
    "cache_missing",
    "map_serial",
    "input_bottleneck",
)
def _(mended: bool) -> Loop:
    x, y = RNG.normal(size=(512, 4096)).astype(np.float32), RNG.integers(0, 10, 512)
    items = tf.data.Dataset.from_tensor_slices((x, y)).map(expensive)
    if mended:
        items = items.cache()
        # A loop of many epochs is in none of the first: the cache is full.
        for _ in items:
            pass
    data = items.repeat().batch(32).prefetch(AUTO)
    return fit(mlp(64, 4096), data.take)


@planted(
    "keras/generator", "a Python generator makes each item", INPUT, "input_bottleneck", "map_serial"
)
def _(mended: bool) -> Loop:
    x, y = RNG.normal(size=(64, 256)).astype(np.float32), np.zeros(64, np.int64)

    def items() -> Iterator[Any]:
        while True:
            for pair in zip(x, y, strict=True):
                busy(0.0005)
                yield pair

    signature = (tf.TensorSpec((256,), tf.float32), tf.TensorSpec((), tf.int64))
    data = (
        pairs(32, 256)
        if mended
        else tf.data.Dataset.from_generator(items, output_signature=signature).batch(32)
    )
    return fit(mlp(), data.prefetch(AUTO).take)


@planted(
    "keras/PyDataset",
    "a slow PyDataset is read in the training thread",
    INPUT,
    "input_outside_tf_data",
    "input_bottleneck",
    "input_ahead",
    steps=20,
)
def _(mended: bool) -> Loop:
    class Data(keras.utils.PyDataset):
        def __init__(self, steps: int) -> None:
            super().__init__(
                workers=8 if mended else 1, use_multiprocessing=False, max_queue_size=16
            )
            self.steps, self.x, self.y = (
                steps,
                RNG.normal(size=(64, 256)).astype(np.float32),
                np.zeros(64, np.int64),
            )

        def __len__(self) -> int:
            return self.steps

        def __getitem__(self, at: int) -> Any:
            time.sleep(0.15)
            return self.x, self.y

    # Steps so long that what a generator costs besides is next to nothing.
    return fit(mlp(1536), Data)


@planted(
    "keras/map of single items",
    "a cheap function is mapped over items instead of batches",
    INPUT | HOST,
    "map_of_items",
    "map_serial",
    "input_bottleneck",
)
def _(mended: bool) -> Loop:
    batches = cached(1024, 64)
    scale = lambda x, y: (x / 2 + 1, y)  # noqa: E731
    data = batches.map(scale) if mended else batches.unbatch().map(scale).batch(1024)
    return fit(mlp(64, 64), data.prefetch(AUTO).take)


@planted(
    "keras/slow callback",
    "a callback works for long after each batch",
    PYTHON,
    *OUTSIDE_OPS,
    "between_steps",
)
def _(mended: bool) -> Loop:
    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            if not mended:
                busy(0.02)

    return fit(mlp(512), cached(256, 256).take, (Slow(),))


@planted(
    "keras/checkpoint now and then",
    "a callback works for long every fifth batch",
    COMPUTE | PYTHON,
    "periodic",
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    class Save(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            if batch % 5 == 4 and not mended:
                busy(0.05)

    return fit(mlp(512), cached(256, 256).take, (Save(),))


@planted(
    "keras/run_eagerly",
    "the model is not compiled into a graph",
    HOST,
    "eager",
    "host_bound",
    steps=15,
)
def _(mended: bool) -> Loop:
    return fit(mlp(256), cached(128, 256).take, run_eagerly=not mended)


@planted(
    "keras/tiny batches",
    "a batch is too small for what a step costs besides",
    HOST,
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    return fit(mlp(64), pairs(256 if mended else 1, 256).prefetch(AUTO).take)


@planted(
    "tensorflow/eager loop",
    "the step of a custom loop is no tf.function",
    HOST,
    "eager",
    "host_bound",
    steps=15,
)
def _(mended: bool) -> Loop:
    return custom(mlp(512), cached(128, 256), compiled=mended)


@planted(
    "tensorflow/traced in each step",
    "a Python number that changes is an argument of a tf.function",
    COMPILE | HOST,
    "tf_function",
    "compile",
    steps=12,
)
def _(mended: bool) -> Loop:
    model, count, data = mlp(64), [0], cached(32, 256)

    @tf.function
    def step(x: tf.Tensor, rate: Any) -> tf.Tensor:
        return tf.reduce_sum(model(x)) * tf.cast(rate, tf.float32)

    def loop(steps: int) -> float:
        batches = iter(data.take(steps))
        began = ended = time.perf_counter()
        for x, _ in nbprof.steps(batches):
            count[0] += 1
            step(x, tf.constant(count[0]) if mended else count[0])
            ended = time.perf_counter()
        return ended - began

    return loop


@planted(
    "tensorflow/python in the step",
    "each step writes a log in Python",
    PYTHON,
    *OUTSIDE_OPS,
    "between_steps",
)
def _(mended: bool) -> Loop:
    return custom(mlp(768), cached(256, 256), extra=lambda: mended or busy(0.03))


@planted(
    "tensorflow/host callback", "each step calls back into Python", HOST | COMPUTE, "host_callback"
)
def _(mended: bool) -> Loop:
    def slow(loss: tf.Tensor) -> tf.Tensor:
        busy(0.01)
        return loss

    return custom(
        mlp(768),
        cached(256, 256),
        report=lambda loss: loss if mended else tf.py_function(slow, [loss], tf.float32),
    )


@planted(
    "tensorflow/slow input of a custom loop",
    "the loop waits for a map that waits for its file",
    INPUT,
    "map_serial",
    "input_bottleneck",
)
def _(mended: bool) -> Loop:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 16
    return custom(
        mlp(),
        pairs(64, 256)
        .map(sleeping(0.02), 8 if mended else None)
        .prefetch(AUTO)
        .with_options(options),
    )
