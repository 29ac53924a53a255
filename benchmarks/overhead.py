"""What does %%nbprof cost on top of the framework's own profiler?

The same Keras cell runs in pairs, in changing order: once between ``tf.profiler.experimental.start`` and ``stop``, once in the recording
that ``%%nbprof`` uses, step markers and progress callback included. Printed are the ratios of the cell's time, pair by pair, start and stop
included; and, for scale, those of the framework's profiler over the bare cell. Other load on the machine widens the range: read the median.

    python benchmarks/overhead.py [--pairs 15] [--batches 200]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from nbprof.capture.options import Options
from nbprof.capture.session import Session


def cell(batches: int):
    """The cell: a small CNN; gives the function that runs it."""
    rng = np.random.default_rng(0)
    images = rng.random((batches * 32, 28, 28, 1), dtype=np.float32)
    labels = rng.integers(0, 10, batches * 32)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32).prefetch(2)
    model = keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    return lambda: model.fit(data, verbose=0)


def bare(run, _folder):
    run()


def framework(run, folder):
    tf.profiler.experimental.start(folder, options=tf.profiler.experimental.ProfilerOptions(host_tracer_level=2))
    run()
    tf.profiler.experimental.stop()


def nbprof(run, folder):
    session = Session(Options(logdir=folder), on_step=lambda _: time.monotonic()).start()
    run()
    recording = session.stop()
    assert recording is not None
    assert recording.info.steps_marked == recording.info.steps_seen > 0


def timed(way, run):
    folder = tempfile.mkdtemp()
    try:
        start = time.perf_counter()
        way(run, folder)
        return time.perf_counter() - start
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--batches", type=int, default=200)
    given = parser.parse_args()
    run = cell(given.batches)
    for way in (bare, framework, nbprof):
        timed(way, run)
    times = {bare: [], framework: [], nbprof: []}
    for pair in range(given.pairs):
        order = (framework, nbprof, bare) if pair % 2 else (nbprof, framework, bare)
        for way in order:
            times[way].append(timed(way, run))
    for label, upper, lower in (("nbprof / framework profiler", nbprof, framework), ("framework profiler / bare cell", framework, bare)):
        ratios = [a / b for a, b in zip(times[upper], times[lower], strict=True)]
        print(f"{label}: median {statistics.median(ratios):.4f}, min {min(ratios):.4f}, max {max(ratios):.4f} ({given.pairs} pairs)")
    print("median seconds of the cell: " + ", ".join(f"{way.__name__} {statistics.median(found):.3f}" for way, found in times.items()))


if __name__ == "__main__":
    main()
