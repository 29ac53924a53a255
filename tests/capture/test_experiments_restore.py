"""Experiments on Keras, tf.data and JAX: the state is given back bit for bit, whatever happens."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading

import numpy as np
import pytest

import nbprof
from nbprof.capture.experiments import engine, program, register, tf_data_cache, tf_data_vectorized
from nbprof.capture.options import Options

CALLS = "NBPROF_TEST_CALLS"
"""The same: how often a function has run, or was traced."""
RUN = "NBPROF_TEST_RUN"
"""An environment variable, which is not given back: how often the program has run."""
ENDS = [None, ValueError("no"), KeyboardInterrupt()]
"""How the first run with a change ends; before it the program ran twice as it is."""


@pytest.fixture(autouse=True)
def few_turns(monkeypatch):
    monkeypatch.setattr(engine, "MOST_PAIRS", engine.LEAST_PAIRS)
    monkeypatch.setattr(engine, "ALL_PAIRS", engine.LEAST_PAIRS)
    monkeypatch.setattr(engine, "_WINDOW_S", 0.02)
    monkeypatch.setenv(RUN, "0")
    monkeypatch.setenv(CALLS, "0")


def ran():
    os.environ[RUN] = str(int(os.environ[RUN]) + 1)


def fail(error, step):
    """Raise in the first run with a change, in its fourth step."""
    if error is not None and os.environ[RUN] == "3" and step == 3:
        raise error


def tried(made, name, steps, units=0, budget_s=300.0):
    runner = engine.Engine(made, Options(save=False), steps=steps, units=units, budget_s=budget_s)
    runner.run([(each, "") for each in register.EXPERIMENTS if each.name == name])
    return runner.tried[0]


def of_call(function):
    return program.of_call(function, (), {})


def checked(made, name, error, state, steps, units=0):
    """Try an experiment, and compare all that `state` gives before and after."""
    before = state()
    result = None
    with contextlib.suppress(KeyboardInterrupt):
        result = tried(made, name, steps, units)
    after = state()
    assert after.keys() == before.keys()
    for key, value in before.items():
        assert after[key] == value, key
    assert int(os.environ[RUN]) >= 3
    if error is None:
        assert (result.pairs, result.equal) == (engine.LEAST_PAIRS, True), result
    elif isinstance(error, ValueError):
        assert result.why == "could not be tried: it failed: ValueError: no"
    else:
        assert result is None
    return result


def generators():
    """The states of the global generators of random numbers."""
    states = {"python": random.getstate(), "numpy": repr(np.random.get_state())}
    if "tensorflow" in sys.modules:
        generator = sys.modules["tensorflow.python.eager.context"].context()._rng
        states["tensorflow"] = None if generator is None else generator.getstate()
    return states


def bits(values):
    return [(np.asarray(value).dtype.str, np.asarray(value).tobytes()) for value in values]


@pytest.fixture
def keras():
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend")
    return keras


class Fit:
    """A `fit` of Keras with an optimizer, a metric and generators that all change in each step."""

    def __init__(self, keras, data, error, **compiled):
        keras.utils.set_random_seed(0)
        self.keras, self.data = keras, data
        self.model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        self.metric = keras.metrics.MeanAbsoluteError()
        self.model.compile("adam", "mse", metrics=[self.metric], **compiled)
        self.seeds = keras.random.SeedGenerator(1)
        self.numbers = np.random.default_rng(0)
        self.history: list[float] = []
        fit = self

        class Each(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                fit.history.append(fit.numbers.random() + random.random() + np.random.random())
                keras.random.uniform((), seed=fit.seeds)
                sys.modules["tensorflow"].random.uniform(())
                fail(error, batch)

        self.callback = Each()
        self.run()
        os.environ[RUN] = "0"

    def run(self):
        ran()
        self.model.fit(self.data, verbose=0, shuffle=False, callbacks=[self.callback])

    def state(self):
        model = self.model
        owners = [
            type(model),
            self.keras.Model,
            sys.modules["keras.src.callbacks.callback_list"].CallbackList,
            sys.modules["keras.src.backend.tensorflow.trainer"].TensorFlowTrainer,
            sys.modules["keras.src.trainers.data_adapters.py_dataset_adapter"].PyDatasetAdapter,
            sys.modules["tensorflow.python.data.ops.dataset_ops"].DatasetV2,
        ]
        workers = [getattr(self.data, name, None) for name in ("workers", "max_queue_size")]
        return {
            "weights": bits(model.get_weights()),
            "optimizer": bits(variable.numpy() for variable in model.optimizer.variables),
            "metrics": bits(
                variable.numpy() for metric in model.metrics for variable in metric.variables
            ),
            "seeds": bits([self.seeds.state.numpy()]),
            "numbers": repr(self.numbers.bit_generator.state),
            "history": list(self.history),
            "functions": (model.train_function, model.run_eagerly, model.jit_compile),
            "attributes": [dict(vars(owner)) for owner in owners],
            "workers": workers,
            "profile": sys.getprofile(),
            **generators(),
        }


def pipeline(kind):
    import tensorflow as tf

    rows = np.arange(24 * 8, dtype=np.float32).reshape(48, 4) / 100

    def mapped(x):
        return x * 2, tf.reduce_sum(x, 0, keepdims=True)

    items = tf.data.Dataset.from_tensor_slices(rows).map(mapped)
    if kind == "repeated":
        items = items.repeat(2)
    return items.batch(2).take(24)


def py_dataset(keras):
    class Data(keras.utils.PyDataset):
        def __len__(self):
            return 24

        def __getitem__(self, at):
            return np.full((2, 4), at / 24, np.float32), np.full((2, 1), at / 6, np.float32)

    return Data()


@pytest.mark.parametrize("error", ENDS, ids=["ends", "fails", "interrupted"])
@pytest.mark.parametrize(
    ("name", "kind", "compiled"),
    [
        ("keras_graph", "plain", {"run_eagerly": True}),
        ("keras_jit_compile", "plain", {"jit_compile": False}),
        ("keras_workers", "PyDataset", {"jit_compile": False}),
        ("tf_data_parallel_map", "plain", {"jit_compile": False}),
        ("tf_data_prefetch", "plain", {"jit_compile": False}),
        ("tf_data_threads", "plain", {"jit_compile": False}),
        ("tf_data_cache", "repeated", {"jit_compile": False}),
        ("tf_data_vectorized_map", "plain", {"jit_compile": False}),
    ],
)
def test_a_fit_of_keras_is_given_back(keras, name, kind, compiled, error):
    fit = Fit(
        keras, py_dataset(keras) if kind == "PyDataset" else pipeline(kind), error, **compiled
    )
    checked(of_call(fit.run), name, error, fit.state, steps=24)
    if name == "keras_workers":
        # Threads of the queue end by themselves once it is stopped.
        left = [each for each in threading.enumerate() if each.name.startswith("Worker_")]
        for thread in left:
            thread.join(60)
        assert not any(thread.is_alive() for thread in left)


@pytest.mark.parametrize("error", ENDS, ids=["ends", "fails", "interrupted"])
def test_a_loop_of_tensorflow_is_given_back(keras, error):
    import tensorflow as tf

    weight, generator = tf.Variable([[1.0]] * 4), tf.random.Generator.from_seed(1)
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build([weight])
    data = pipeline("plain")

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    def run():
        ran()
        for index, (x, y) in enumerate(nbprof.steps(data)):
            step(x, y)
            generator.normal(())
            tf.random.uniform(())
            fail(error, index)

    run()
    os.environ[RUN] = "0"
    code = step.__code__

    def state():
        return {
            "weight": bits([weight.numpy()]),
            "generator": bits([generator.state.numpy()]),
            "optimizer": bits(variable.numpy() for variable in optimizer.variables),
            "code": step.__code__ is code,
            "profile": sys.getprofile(),
            **generators(),
        }

    checked(of_call(run), "tf_function", error, state, steps=24)


class Jax:
    """A loop of JAX whose state is in a list, a dict and a closure."""

    def __init__(self, jax, name, error):
        jnp = jax.numpy
        self.jax, self.error = jax, error

        def update(w, x):
            os.environ[CALLS] = str(int(os.environ[CALLS]) + 1)
            return jnp.tanh(w @ x)

        self.update = update
        once = jax.jit(update)
        self.step = {
            "jax_jit": lambda: update,
            "jax_jit_once": lambda: jax.jit(lambda w, x: update(w, x)),
            "jax_no_waits": lambda: once,
        }[name]
        self.held = [jnp.eye(8)]
        self.keys = {"key": jax.random.key(0)}
        self.numbers = np.random.default_rng(0)
        self.run()
        os.environ[RUN] = "0"

    def run(self):
        ran()
        jnp = self.jax.numpy
        for index in range(6):
            self.held[0] = self.step()(self.held[0], jnp.ones((8, 8)))
            self.held[0].block_until_ready()
            self.jax.block_until_ready(self.held)
            self.keys["key"], _ = self.jax.random.split(self.keys["key"])
            self.numbers.random()
            fail(self.error, index)

    def state(self):
        array = type(self.held[0])
        key = self.jax.random.key_data(self.keys["key"])
        return {
            "held": bits(self.held),
            "key": bits([key]),
            "numbers": repr(self.numbers.bit_generator.state),
            "array": dict(vars(array)),
            "jit": (self.jax.jit, self.jax.jit.__code__),
            "waits": (self.jax.block_until_ready, self.jax.block_until_ready.__code__),
            "code": self.update.__code__,
            "profile": sys.getprofile(),
            **generators(),
        }


@pytest.mark.parametrize("error", ENDS, ids=["ends", "fails", "interrupted"])
@pytest.mark.parametrize("name", ["jax_jit", "jax_jit_once", "jax_no_waits"])
def test_a_loop_of_jax_is_given_back(name, error):
    loop = Jax(pytest.importorskip("jax"), name, error)
    result = checked(of_call(loop.run), name, error, loop.state, steps=0, units=6)
    if name == "jax_jit_once" and error is None:
        # Traced in each step of the unchanged turns and once in each other one, of which one more
        # is compared.
        before, turns = 6, engine.LEAST_PAIRS
        assert int(os.environ[CALLS]) == before + 6 * (2 + turns) + 1 + turns, result


CELL = """
import jax, os
{wrapped}
def step(w, x):
    os.environ["NBPROF_TEST_CALLS"] = str(int(os.environ["NBPROF_TEST_CALLS"]) + 1)
    return jax.numpy.tanh(w @ x) * scale
scale = 0.5
for _ in range(8):
    w = step(w, x)
"""


@pytest.fixture
def shell(monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell

    # A shell puts a module of its own there, which `reset` empties; pools look for its `__spec__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    shell = InteractiveShell()
    yield shell
    shell.reset(new_session=False)


def test_a_function_that_the_cell_defines_is_compiled(shell):
    jax = pytest.importorskip("jax")
    shell.user_ns.update(w=jax.numpy.eye(8), x=jax.numpy.ones((8, 8)))
    source = CELL.format(wrapped="")
    shell.run_cell(source)
    before, step = np.asarray(shell.user_ns["w"]), shell.user_ns["step"]
    made = program.of_cell(shell, source)
    result = tried(made, "jax_jit", steps=0, units=8)
    assert (result.pairs, result.equal) == (engine.LEAST_PAIRS, True), result
    # Its first call in a turn runs as it is; the others are of the compiled one, which is traced.
    calls = int(os.environ[CALLS]) - 8 * (1 + 2 + engine.LEAST_PAIRS)
    assert 1 + engine.LEAST_PAIRS < calls <= 3 + engine.LEAST_PAIRS, result
    assert np.array_equal(np.asarray(shell.user_ns["w"]), before)
    assert shell.user_ns["step"] is step
    assert sys.getprofile() is None


def test_a_function_of_the_cell_that_is_compiled_already_is_refused(shell):
    jax = pytest.importorskip("jax")
    shell.user_ns.update(w=jax.numpy.eye(8), x=jax.numpy.ones((8, 8)))
    source = CELL.format(wrapped="@jax.jit")
    shell.run_cell(source)
    result = tried(program.of_cell(shell, source), "jax_jit", steps=0, units=8)
    assert result.why == (
        "not tried: no function of the program takes and returns arrays of JAX in each step"
    )


def test_a_loop_without_what_is_changed_is_refused():
    jax = pytest.importorskip("jax")
    held = [jax.numpy.ones(4)]

    def items(x):
        for _ in range(8):
            yield x * 2

    def run():
        for each in items(held[0]):
            held[0] = each

    run()
    for name in ("jax_jit", "jax_no_waits", "jax_jit_once"):
        result = tried(of_call(run), name, steps=0, units=8)
        assert result.why.startswith("not tried: "), result


class TestCache:
    """Which parts of a pipeline are cached: those that surely give the same in each epoch."""

    @pytest.fixture
    def data(self):
        tf = pytest.importorskip("tensorflow")
        return tf.data.Dataset.from_tensor_slices(np.arange(8, dtype=np.float32))

    def why(self, dataset, epochs=1):
        return tf_data_cache._why_not(dataset, epochs)

    def test_what_is_repeated_is_cached_below_the_repeat(self, data):
        mapped = data.map(lambda x: x * 2)
        dataset = mapped.repeat().batch(2).take(10)
        assert self.why(dataset) == ""
        assert tf_data_cache._part(dataset, 1) is mapped

    def test_what_several_epochs_read_is_cached_as_a_whole(self, data):
        batches = data.map(lambda x: x * 2).batch(3)
        assert tf_data_cache._part(batches, 2) is batches
        assert "no part of the pipeline is repeated" in self.why(batches, 1)

    def test_what_is_random_is_not_cached(self, data):
        import tensorflow as tf

        def noisy(x):
            return x + tf.random.uniform(())

        dataset = data.map(noisy).map(tf.sin).repeat()
        assert tf_data_cache._part(dataset, 1) is data
        assert self.why(dataset) == "what could be cached is in memory already"

    def test_what_calls_python_is_not_cached(self, data):
        import tensorflow as tf

        def called(x):
            return tf.numpy_function(lambda y: y, [x], tf.float32)

        assert tf_data_cache._part(data.map(called).repeat(), 1) is data
        assert self.why(data.map(called).repeat()) == "what could be cached is in memory already"

    def test_the_order_of_a_shuffle_is_not_cached(self, data):
        mapped = data.map(lambda x: x * 2)
        assert tf_data_cache._part(mapped.shuffle(8).repeat(), 1) is mapped

    def test_a_cached_pipeline_has_the_same_elements_twice(self, data):
        dataset = data.map(lambda x: x * 2).repeat().batch(3).take(7).prefetch(1)
        part = tf_data_cache._part(dataset, 1)
        cached = tf_data_cache.with_replaced(dataset, part, tf_data_cache._filled(part))
        expected = [list(x) for x in dataset.as_numpy_iterator()]
        for _ in range(2):
            assert [list(x) for x in cached.as_numpy_iterator()] == expected

    def test_a_cache_that_gets_too_large_is_refused(self, data, monkeypatch):
        monkeypatch.setattr(tf_data_cache, "_SHARE", 0.0)
        with pytest.raises(program.Refused, match="a quarter of the free memory"):
            tf_data_cache._filled(data)


def test_a_map_of_batches_computes_each_item_as_before():
    tf = pytest.importorskip("tensorflow")
    rows = np.arange(40, dtype=np.float32).reshape(10, 4)

    def mapped(x, y):
        return {"sum": tf.reduce_sum(x), "x": x / 3}, y

    data = tf.data.Dataset.from_tensor_slices((rows, np.arange(10))).map(mapped).batch(4).take(3)
    changed = tf_data_vectorized._vectorized(data)
    assert changed is not data
    assert changed.element_spec == data.element_spec
    for one, other in zip(data.as_numpy_iterator(), changed.as_numpy_iterator(), strict=True):
        for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
            assert np.array_equal(a, b)
