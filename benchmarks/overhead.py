"""What does %%nbprof cost on top of the framework's own profiler?

The same cell runs in turns, in changing order: bare, under the framework's own profiler, in the recording that ``%%nbprof`` uses, step
markers included, and in that with the live strip, whose messages are packed and sent as a kernel does it. Printed are ratios, turn by turn:
of the loop alone, and of the whole cell with start, stop and the writing of files. Other load on the machine widens the range: read the
median, and for the strip the CPU time that its thread takes in a second.

    python benchmarks/overhead.py [--framework tensorflow|torch|jax] [--step-ms 5] [--steps 200] [--turns 15]

``--step-ms`` is how long a step of the bare cell is to take: the work in it is fitted to that first. XProf's and PyTorch's recorders cost
more the more events a step has, so a step of many small ops (``--step-ms 5``) shows most. The loop of JAX has no marks: its steps are found
in the recording, after the time that is measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from nbprof.capture.options import Options
from nbprof.capture.session import Session


class KerasCell:
    """A small CNN; its pictures are as many as make a step of the length that was asked for."""

    backend = "tensorflow"

    def __init__(self, step_ms: float, steps: int) -> None:
        import keras
        import numpy as np
        import tensorflow as tf

        self._tf = tf
        self.steps = steps
        rng = np.random.default_rng(0)

        def data(batch, batches):
            images = rng.random((min(batch * batches, 4096), 28, 28, 1), dtype=np.float32)
            labels = rng.integers(0, 10, len(images))
            return tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(batch).take(batches).prefetch(2)

        layers = keras.layers
        self.model = keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(16, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(10, activation="softmax"),
            ]
        )
        self.model.compile("adam", "sparse_categorical_crossentropy")

        def length(batch):
            self.data = data(batch, 20)
            self.loop()
            return 50 * self.loop()

        batch = fitted(length, step_ms, 8)
        self.data = data(batch, steps)
        self.size = f"{batch} pictures a batch"

    def loop(self) -> float:
        begin = time.perf_counter()
        self.model.fit(self.data, verbose=0)
        return time.perf_counter() - begin

    def profiled(self, folder: str) -> float:
        experimental = self._tf.profiler.experimental
        experimental.start(folder, options=experimental.ProfilerOptions(host_tracer_level=2))
        took = self.loop()
        experimental.stop()
        return took


class TorchCell:
    """Layers of 256, as many as make a step of the length that was asked for: many small ops, as PyTorch's models have."""

    backend = "torch"

    def __init__(self, step_ms: float, steps: int) -> None:
        import torch

        self._torch = torch
        self.steps = 20

        def length(layers):
            self._build(layers)
            self.loop()
            return 50 * self.loop()

        layers = fitted(length, step_ms, 4)
        self._build(layers)
        self.steps = steps
        self.size = f"{layers} layers"

    def _build(self, layers: int) -> None:
        torch = self._torch
        nn = torch.nn
        self.model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(layers)])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.ones(32, 256)

    def loop(self) -> float:
        begin = time.perf_counter()
        for _ in range(self.steps):
            self.optimizer.zero_grad()
            self.model(self.batch).square().mean().backward()
            self.optimizer.step()
        return time.perf_counter() - begin

    def profiled(self, folder: str) -> float:
        # With step marks, as nbprof's recording has them.
        with self._torch.profiler.profile(record_shapes=True, profile_memory=True) as profiler:
            begin = time.perf_counter()
            for _ in range(self.steps):
                self.optimizer.zero_grad()
                self.model(self.batch).square().mean().backward()
                self.optimizer.step()
                profiler.step()
            took = time.perf_counter() - begin
        profiler.export_chrome_trace(f"{folder}/trace.json.gz")
        return took


class JaxCell:
    """A compiled step of layers of 256, as many as make a step of the length that was asked for."""

    backend = "jax"

    def __init__(self, step_ms: float, steps: int) -> None:
        import jax

        self._jax = jax
        self.steps = 20

        def length(layers):
            self._build(layers)
            self.loop()
            return 50 * self.loop()

        layers = fitted(length, step_ms, 4)
        self._build(layers)
        self.steps = steps
        self.size = f"{layers} layers"

    def _build(self, layers: int) -> None:
        jnp = self._jax.numpy

        def loss(weights, x):
            for w in weights:
                x = jnp.tanh(x @ w)
            return jnp.mean(x**2)

        def train_step(weights, x):
            return [w - 1e-3 * g for w, g in zip(weights, self._jax.grad(loss)(weights, x), strict=True)]

        self.train_step = self._jax.jit(train_step)
        self.weights = [jnp.eye(256)] * layers
        self.batch = jnp.ones((32, 256))

    def loop(self) -> float:
        begin = time.perf_counter()
        weights = self.weights
        for _ in range(self.steps):
            weights = self.train_step(weights, self.batch)
        self._jax.block_until_ready(weights)
        return time.perf_counter() - begin

    def profiled(self, folder: str) -> float:
        options = self._jax.profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = 2, 0
        self._jax.profiler.start_trace(folder, profiler_options=options)
        took = self.loop()
        self._jax.profiler.stop_trace()
        return took


def fitted(length, wanted_ms: float, least: int) -> int:
    """The size of the work with which a step takes about as long as wanted; `length` gives ms a step for a size."""
    size = least
    for _ in range(6):
        took = length(size)
        if abs(took / wanted_ms - 1) < 0.1:
            break
        size = max(1, round(size * wanted_ms / took))
    return size


def bare(cell, _folder):
    return cell.loop()


def framework(cell, folder):
    return cell.profiled(folder)


def nbprof(cell, folder):
    session = Session(Options(backend=cell.backend, logdir=folder), on_step=lambda _: time.monotonic()).start()
    took = cell.loop()
    recording = session.stop()
    assert recording is not None, session.failure
    assert recording.info.steps_marked == recording.info.steps_seen == (0 if cell.backend == "jax" else cell.steps)
    return took


class Page:
    """Where a strip is shown: packs and signs its messages as a kernel does, and sends them to nobody."""

    def __init__(self):
        import zmq
        from jupyter_client.session import Session as Messages

        self.session = Messages(key=b"key")
        self.socket = zmq.Context.instance().socket(zmq.PUB)
        self.socket.bind_to_random_port("tcp://127.0.0.1")

    def draw(self, data):
        content = {"data": data, "metadata": {}, "transient": {"display_id": "strip"}}
        self.session.send(self.socket, "update_display_data", content, parent={}, ident=b"display_data")


def strip(cell, folder):
    from nbprof.strip import Strip

    shown = []
    options = Options(backend=cell.backend, logdir=folder)
    session = Session(options, on_step=lambda _: shown and shown[0].stepped()).start()
    shown.append(Strip(session, page))
    shown[0].begin()
    begin = time.perf_counter()
    took = cell.loop()
    shown[0].end()
    strip_cpu.append(shown[0].cpu_s / (time.perf_counter() - begin))
    recording = session.stop()
    assert recording is not None, session.failure
    assert recording.info.steps_marked == recording.info.steps_seen == (0 if cell.backend == "jax" else cell.steps)
    return took


strip_cpu: list[float] = []
page = Page()


def timed(way, cell):
    """Seconds of the loop and of the whole cell."""
    folder = tempfile.mkdtemp()
    try:
        begin = time.perf_counter()
        loop = way(cell, folder)
        return loop, time.perf_counter() - begin
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=("tensorflow", "torch", "jax"), default="tensorflow")
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    cell = {"tensorflow": KerasCell, "torch": TorchCell, "jax": JaxCell}[given.framework](given.step_ms, given.steps)
    ways = (bare, framework, nbprof, strip)
    for way in ways:
        timed(way, cell)
    times = {way: [] for way in ways}
    strip_cpu.clear()
    for turn in range(given.turns):
        # Each way is first, second and last equally often.
        order = [ways[(i + turn) % len(ways)] for i in range(len(ways))]
        for way in order if turn % 2 else reversed(order):
            times[way].append(timed(way, cell))
    step_ms = 1e3 * statistics.median(loop for loop, _ in times[bare]) / cell.steps
    print(f"{given.framework}: {cell.steps} steps of {step_ms:.2f} ms ({cell.size}), {given.turns} turns")
    for part, what in ((0, "the loop"), (1, "the whole cell")):
        pairs = (
            ("nbprof / framework profiler", nbprof, framework),
            ("framework profiler / bare", framework, bare),
            ("nbprof with its strip / without", strip, nbprof),
        )
        for label, upper, lower in pairs:
            ratios = [a[part] / b[part] for a, b in zip(times[upper], times[lower], strict=True)]
            low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
            print(f"{what}, {label}: median {middle:.4f}, min {low:.4f}, max {high:.4f}")
        print(f"{what}, median seconds: " + ", ".join(f"{w.__name__} {statistics.median(t[part] for t in times[w]):.3f}" for w in ways))
    print(f"the thread of the strip: median {statistics.median(strip_cpu):.3%} of a core, max {max(strip_cpu):.3%}")


if __name__ == "__main__":
    main()
