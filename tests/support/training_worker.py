"""A training script that can be sampled: ``python training_worker.py jax``. It prints its port;
`idle`, `train` and `quit` on stdin are obeyed.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import nbprof

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def tensorflow():
    import tensorflow as tf

    weights = tf.Variable(tf.ones((32, 32)))

    @tf.function
    def train(x):
        weights.assign_add(1e-3 * tf.matmul(x, weights))

    def step(number):
        # Marked because the program serves.
        with nbprof.step("train", number):
            train(tf.ones((32, 32)))

    return step


def jax():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def train(x, weights):
        return weights + 1e-3 * (x @ weights)

    state = [jnp.ones((32, 32))]

    def step(number):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state[0] = train(jnp.ones((32, 32)), state[0]).block_until_ready()

    return step


def main():
    step = {"tensorflow": tensorflow, "jax": jax}[sys.argv[1]]()
    step(0)
    port = nbprof.serve(0)
    assert nbprof.serve(port) == nbprof.serve(0) == port
    print("port", port, flush=True)
    word = ["train"]

    def listen():
        for line in sys.stdin:
            word[0] = line.strip()
            print("is", word[0], flush=True)
        # Whoever started it has gone.
        word[0] = "quit"

    threading.Thread(target=listen, daemon=True).start()
    number = 1
    while word[0] != "quit":
        if word[0] == "train":
            step(number)
            number += 1
        time.sleep(0.01)
    os._exit(0)


main()
