"""Experiments on programs of real frameworks: what they recommend, and that nothing remains changed."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nbprof
from nbprof.capture.experiments import (
    combination,
    engine,
    observation,
    program,
    register,
    torch_data,
    torch_settings,
    torch_waits,
    turn,
)
from nbprof.capture.experiments.experiment import LARGER_BATCH
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.options import Options
from nbprof.core.errors import CaptureError

torch = pytest.importorskip("torch")
from torch.utils.checkpoint import checkpoint  # noqa: E402 - after the import that may be skipped

RUN = "NBPROF_TEST_RUN"
"""An environment variable, which is not given back: how often the program has run."""
STEPS = 12


@pytest.fixture(autouse=True)
def few_turns(monkeypatch):
    """As few turns as an interval needs."""
    monkeypatch.setattr(engine, "MOST_PAIRS", engine.LEAST_PAIRS)
    monkeypatch.setattr(engine, "ALL_PAIRS", engine.LEAST_PAIRS)
    monkeypatch.setattr(engine, "_WINDOW_S", 0.02)
    monkeypatch.setenv(RUN, "0")


def ran():
    """Count the runs of a program."""
    os.environ[RUN] = str(int(os.environ[RUN]) + 1)
    return int(os.environ[RUN])


class Noted(torch.utils.data.Dataset):
    """Items that note in a folder which process reads them."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        (self.folder / str(os.getpid())).touch()
        return torch.full((8,), float(index)), index % 3


class Torch:
    """A loop of PyTorch, with images in evaluation and small layers."""

    def __init__(
        self,
        *,
        folder=None,
        zeros=False,
        evaluates=False,
        tensors=False,
        checkpoints=False,
        synchronizes=False,
        validates=False,
    ):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
        )
        self.images = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), foreach=False)
        self.loader = torch.utils.data.DataLoader(
            _Ready() if folder is None else Noted(folder), 4, shuffle=True
        )
        if tensors:
            rows = torch.utils.data.TensorDataset(torch.rand(90, 8), torch.arange(90) % 3)
            part = torch.utils.data.Subset(rows, list(range(80, 0, -1)))
            self.loader = torch.utils.data.DataLoader(part, 4, shuffle=True)
        self.checkpoints, self.synchronizes = checkpoints, synchronizes
        self.picture = torch.randn(2, 3, 8, 8)
        self.zeros, self.evaluates, self.validates = zeros, evaluates, validates
        self.fails: BaseException | None = None
        self.losses: list[float] = []
        self.run(4)

    def run(self, steps=STEPS):
        number = ran()
        for index, (x, y) in enumerate(self.loader):
            if index == steps:
                break
            self.optimizer.zero_grad(set_to_none=not self.zeros)
            noise = torch.rand(()) + random.random() + np.random.random()
            x = x.to("cpu") * noise
            if self.checkpoints:
                output = checkpoint(self.model, torch.nn.functional.dropout(x), use_reentrant=False)
            else:
                output = self.model(x)
            if self.synchronizes:
                torch.cuda.synchronize()
            loss = torch.nn.functional.cross_entropy(output, y)
            loss.backward()
            self.optimizer.step()
            if self.evaluates:
                self.images(self.picture)
            if self.validates:
                with torch.no_grad():
                    self.model(x)
            self.losses.append(loss.item())
            if self.fails is not None and number == self.fails[0] and index == 3:
                raise self.fails[1]

    def state(self):
        """All that a run changes, bit for bit."""
        modules = torch.nn.ModuleList([self.model, self.images])
        return {
            "weights": [(p.data_ptr(), p.stride(), p.tolist()) for p in modules.parameters()],
            "grads": [None if p.grad is None else p.grad.tolist() for p in modules.parameters()],
            "optimizer": repr(self.optimizer.state_dict()),
            "attributes": [sorted(vars(m)) for m in modules.modules()],
            "compiled": [m._compiled_call_impl for m in modules.modules()],
            "losses": list(self.losses),
            "loader": (vars(self.loader).get("_iterator"), self.loader.num_workers),
            "threads": torch.get_num_threads(),
            "attention": torch_settings._enabled(),
            "precision": torch.get_float32_matmul_precision(),
            "cudnn": torch.backends.cudnn.benchmark,
            "python": random.getstate(),
            "numpy": repr(np.random.get_state()),
            "torch": torch.get_rng_state().tolist(),
        }


class _Ready(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.full((8,), float(index) / 1000), index % 3


def patched():
    """The attributes of frameworks that experiments replace, and the global hooks."""
    owners = [
        torch.utils.data.DataLoader,
        torch.optim.Optimizer,
        torch.nn.Module,
        torch.Tensor,
        torch.autograd,
    ]
    optimizer = sys.modules["torch.optim.optimizer"]
    for module, name in (
        ("keras", "Model"),
        ("keras.src.callbacks.callback_list", "CallbackList"),
        ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer"),
        ("keras.src.trainers.data_adapters.py_dataset_adapter", "PyDatasetAdapter"),
        ("tensorflow.python.data.ops.dataset_ops", "DatasetV2"),
        ("jax._src.array", "ArrayImpl"),
    ):
        if module in sys.modules:
            owners.append(getattr(sys.modules[module], name))
    functions = [checkpoint, torch.cuda.synchronize]
    if "jax" in sys.modules:
        jax = sys.modules["jax"]
        functions += [jax.block_until_ready, jax.jit]
    return (
        [dict(vars(owner)) for owner in owners],
        [(function, function.__code__) for function in functions],
        dict(optimizer._global_optimizer_pre_hooks),
        dict(optimizer._global_optimizer_post_hooks),
        sys.getprofile(),
        sys.unraisablehook,
        multiprocessing.active_children(),
    )


def tried(function, name, *args, steps=STEPS, units=STEPS, budget_s=300.0):
    """The result of one experiment on a call of a function."""
    runner = engine.Engine(
        program.of_call(function, args, {}),
        Options(save=False),
        steps=steps,
        units=units,
        budget_s=budget_s,
    )
    pairs = [(each, "") for each in register.EXPERIMENTS if each.name == name]
    runner.run(pairs)
    return runner.tried[0]


TORCH = {
    "loader_workers": {},
    "loader_many_workers": {},
    "fused_optimizer": {},
    "foreach_optimizer": {},
    "zero_grad": {"zeros": True},
    "torch_compile": {},
    "bfloat16": {},
    "channels_last": {"evaluates": True},
    "inference_mode": {"evaluates": True},
    "cpu_threads": {},
    "tensors_in_batches": {"tensors": True},
    "tensors_on_device": {"tensors": True},
    "asynchronous_copies": {},
    "attention_kernels": {},
    "tf32": {},
    "cudnn_benchmark": {"evaluates": True},
    "no_checkpoints": {"checkpoints": True},
    "no_synchronize": {"synchronizes": True},
    "no_item": {},
    "larger_batch": {},
    "no_validation": {"validates": True},
}
ON_GPU = (
    "tensors_on_device",
    "asynchronous_copies",
    "tf32",
    "cudnn_benchmark",
    "no_synchronize",
    "no_item",
)
"""Here they change a program on the CPU: what they do is undone as on a GPU."""


@pytest.fixture
def as_if_on_gpu(monkeypatch):
    for module in (torch_data, torch_settings, torch_waits):
        monkeypatch.setattr(module, "no_gpu", lambda _: "")
    for module in (torch_data, observation):
        monkeypatch.setattr(module, "_DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 10**9))
    # Without a GPU it raises, before and after the turns, too.
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_synchronize", lambda: None, raising=False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())


@pytest.fixture
def no_flash_attention():
    before = torch_settings._enabled()
    torch.backends.cuda.enable_flash_sdp(False)
    yield
    torch_settings._enable(before)


@pytest.fixture
def inductor():
    if " " in torch.__file__:
        pytest.skip("inductor does not compile if the path of PyTorch has a space")


@pytest.fixture
def no_jax(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_experiment_of_pytorch_is_tested_here():
    names = {each.name for each in register.EXPERIMENTS if each.framework == "torch"}
    assert names == set(TORCH)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")
@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("fails", [None, ValueError("no"), KeyboardInterrupt()])
def test_everything_is_given_back(name, fails, no_jax, one_thread, request):
    if name == "torch_compile":
        request.getfixturevalue("inductor")
    if name in ON_GPU:
        request.getfixturevalue("as_if_on_gpu")
    if name == "attention_kernels":
        request.getfixturevalue("no_flash_attention")
    if name == "torch_compile" and fails is None:
        pytest.skip("measured below: it takes long")
    loop = Torch(**TORCH[name])
    if fails is not None:
        # After two unchanged turns, and once before: the first one with the change.
        loop.fails = 4, fails
    before, attributes = loop.state(), patched()
    result = None
    with contextlib.suppress(KeyboardInterrupt):
        result = tried(loop.run, name)
    assert loop.state() == before
    assert patched() == attributes
    if fails is None:
        assert result.pairs == engine.LEAST_PAIRS, result.why
        assert result.gain_low_ms <= result.gain_ms <= result.gain_high_ms
    elif isinstance(fails, ValueError):
        assert result.why == "could not be tried: it failed: ValueError: no"
    else:
        assert result is None
    assert int(os.environ[RUN]) >= 4


@pytest.mark.parametrize("fails", [None, ValueError("no"), KeyboardInterrupt()])
def test_everything_is_given_back_of_a_combination(fails, no_jax, one_thread):
    names = ("zero_grad", "fused_optimizer", "cpu_threads", "loader_workers")
    parts = [each for each in register.EXPERIMENTS if each.name in names]
    assert len(combination.compatible(parts)) == len(names)
    loop = Torch(zeros=True)
    if fails is not None:
        loop.fails = 4, fails
    before, attributes = loop.state(), patched()
    runner = engine.Engine(
        program.of_call(loop.run, (), {}), Options(save=False), steps=STEPS, units=STEPS, budget_s=300.0
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):
        runner.run([(combination.combined(parts), "")])
    assert loop.state() == before
    assert patched() == attributes
    if fails is None:
        result = runner.tried[0]
        assert (result.pairs, result.equal) == (engine.LEAST_PAIRS, True), result.why


def test_a_compiled_model_is_measured_with_its_first_step(inductor):
    loop = Torch()
    before, attributes = loop.state(), patched()
    result = tried(loop.run, "torch_compile")
    assert (loop.state(), patched()) == (before, attributes)
    assert (result.pairs, result.equal) == (engine.LEAST_PAIRS, True), result.why
    assert result.first_ms > result.baseline_ms


def test_workers_of_a_loader_read_its_items_and_are_ended(no_jax, tmp_path):
    loop = Torch(folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [str(os.getpid())]
    result = tried(loop.run, "loader_many_workers", 24, steps=24)
    assert (result.pairs, result.equal) == (engine.LEAST_PAIRS, True), result
    assert result.recommended is (result.why == engine.FASTER)
    assert len(list(tmp_path.iterdir())) > 2
    assert multiprocessing.active_children() == []


def test_results_in_bfloat16_are_not_equal_and_never_recommended(monkeypatch):
    loop = Torch()
    monkeypatch.setattr(
        engine.statistics, "median_of", lambda *_: engine.statistics.Median(9.0, 8.0, 10.0)
    )
    result = tried(loop.run, "bfloat16")
    assert (result.equal, result.recommended, result.spread) == (False, False, 0.0)
    assert result.difference > 1e-5
    assert result.why.startswith("the results are not equal: their relative difference is ")


def test_fused_kernels_have_equal_results():
    result = tried(Torch().run, "fused_optimizer")
    assert (result.equal, result.spread) == (True, 0.0)
    assert result.difference < 1e-5


@pytest.mark.parametrize(
    ("options", "name", "why"),
    [
        ({}, "zero_grad", "gradients are set to None already, or never reset"),
        ({}, "channels_last", "no model has images, of four dimensions, as its input"),
        ({}, "inference_mode", "no model in evaluation mode is called with gradients enabled"),
        ({}, "no_checkpoints", "torch.utils.checkpoint is not used"),
        ({}, "attention_kernels", "PyTorch chooses among all kernels of attention already"),
        (
            {},
            "tensors_in_batches",
            "the dataset is no TensorDataset, whose items are known to be rows of tensors",
        ),
    ],
)
def test_what_is_out_of_place_is_refused_before_it_runs(options, name, why):
    loop = Torch(**options)
    result = tried(loop.run, name)
    assert (result.why, result.pairs, result.recommended) == (f"not tried: {why}", 0, False)
    # Once before, and the two unchanged turns.
    assert os.environ[RUN] == "3"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ON_GPU)
def test_what_needs_a_gpu_is_refused_without_one(name):
    result = tried(Torch(tensors=True).run, name)
    assert result.why == "not tried: it needs a GPU, and the program uses none"
    assert result.pairs == 0


@pytest.mark.parametrize("name", ["tensors_in_batches", "tensors_on_device"])
def test_batches_of_tensors_at_once_are_the_same(name, as_if_on_gpu):
    result = tried(Torch(tensors=True).run, name)
    assert (result.equal, result.difference, result.spread) == (True, 0.0, 0.0), result


def test_numbers_that_stay_on_the_gpu_are_the_same(as_if_on_gpu):
    result = tried(Torch().run, "no_item")
    assert (result.equal, result.difference, result.spread) == (True, 0.0, 0.0), result


@pytest.fixture
def two_ms_a_step(monkeypatch):
    """Each step takes as long, whatever it has in it."""
    run = turn.run

    def timed(*args):
        timing = run(*args)
        return replace(timing, seconds=timing.steps * 0.002)

    monkeypatch.setattr(turn, "run", timed)
    # An environment variable is not given back.
    monkeypatch.setenv("SIZES", "")


def note_size(batch):
    os.environ["SIZES"] += f"{len(batch)} "


def check_larger(result):
    assert set(os.environ["SIZES"].split()) == {"4", "8"}
    assert result.baseline_ms == pytest.approx(2.0), result
    assert result.gain_ms == pytest.approx(1.0)
    assert (result.recommended, result.equal, result.pays_after) == (False, None, None)
    assert result.why == f"as many examples take 50% less time; {LARGER_BATCH}"


def test_a_larger_batch_is_timed_per_example_and_never_recommended(two_ms_a_step):
    loop = Torch()
    loop.model[0].register_forward_pre_hook(lambda _, inputs: note_size(inputs[0]))
    check_larger(tried(loop.run, "larger_batch"))


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.rand(8), 1


def test_an_experiment_that_cannot_read_the_program_leaves_the_others(monkeypatch):
    loop = Torch()
    loop.loader = torch.utils.data.DataLoader(Endless(), 4)
    (larger,) = (each for each in register.EXPERIMENTS if each.name == "larger_batch")

    def broken(_):
        raise TypeError("object of type 'Sampler' has no len()")

    runner = engine.Engine(
        program.of_call(loop.run, (), {}), Options(save=False), steps=STEPS, units=STEPS, budget_s=300.0
    )  # fmt: skip
    runner.run([(larger, ""), (replace(larger, name="other", refusal=broken), "")])
    assert [each.why for each in runner.tried] == [
        "not tried: the number of its items is not known",
        "not tried: the program could not be read: TypeError",
    ]


def test_a_larger_batch_of_a_pipeline_too(two_ms_a_step):
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.range(200).map(lambda x: tf.cast(x, tf.float32)).batch(4).prefetch(1)
    weight = tf.Variable(1.0)

    def run():
        for x in nbprof.steps(data):
            note_size(x)
            weight.assign_sub(tf.reduce_mean(x) * 1e-6)

    run()
    attributes = patched()
    check_larger(tried(run, "tf_data_larger_batch", steps=50))
    assert patched() == attributes


def test_checkpoints_left_out_are_not_computed_again(monkeypatch):
    loop = Torch(checkpoints=True)
    made = program.of_call(loop.run, (), {})

    def count(*_):
        os.environ["FORWARD"] = str(int(os.environ["FORWARD"]) + 1)

    loop.model[0].register_forward_hook(count)
    passes = []
    for change in (None, torch_settings.NotAgain()):
        # An environment variable is not given back.
        monkeypatch.setenv("FORWARD", "0")
        turn.run(made, Options(save=False), turn.Plan(warmup=2, steps=3), change)
        passes.append(int(os.environ["FORWARD"]))
    assert passes == [10, 5]
    result = tried(loop.run, "no_checkpoints")
    assert (result.equal, result.difference) == (True, 0.0), result


def test_workers_are_refused_beside_jax(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", sys.modules.get("jax", contextlib))
    observation = Observation()
    observation.loaders.append(Torch().loader)
    experiment = next(each for each in register.EXPERIMENTS if each.name == "loader_workers")
    assert "JAX was imported" in experiment.refusal(observation)


def test_a_program_without_enough_steps_is_refused():
    with pytest.raises(program.Refused, match="it has 4 steps, and 5 or more are needed"):
        tried(Torch().run, "fused_optimizer", 4, steps=4)


def test_a_budget_that_is_too_small_names_one_that_is_enough():
    result = tried(Torch().run, "fused_optimizer", budget_s=1e-6)
    assert "turns of it do not fit into the time; --budget" in result.why
    assert not result.recommended


def test_what_cannot_be_restored_is_refused():
    def run(lock):
        with lock:
            pass

    import threading

    with pytest.raises(program.Unrestorable, match="could not be restored"):
        tried(run, "fused_optimizer", threading.Lock())


def test_steps_of_another_thread_are_refused():
    import threading

    loop = Torch()

    def run():
        thread = threading.Thread(target=loop.run)
        thread.start()
        thread.join()

    with pytest.raises(program.Refused, match="another thread"):
        tried(run, "fused_optimizer")


def test_a_function_of_jax_is_compiled_where_anyone_calls_it():
    jax = pytest.importorskip("jax")

    def update(w, x, scale=2.0):
        ran()
        return jax.numpy.tanh(w @ x * scale)

    held = [jax.numpy.eye(8)]
    alias = [update]

    def run():
        for _ in range(6):
            held[0] = alias[0](held[0], jax.numpy.ones((8, 8)))

    run()
    before, code = np.asarray(held[0]), update.__code__
    result = tried(run, "jax_jit", steps=0, units=6)
    assert (result.equal, result.pairs) == (True, engine.LEAST_PAIRS), result
    # Itself, two turns that are observed, and those of the pairs; a compiled one is traced.
    traced = int(os.environ[RUN]) - 6 * (1 + 2 + engine.LEAST_PAIRS)
    assert 1 <= traced <= 2
    assert update.__code__ is code
    assert np.array_equal(np.asarray(held[0]), before)
    assert sys.getprofile() is None


@pytest.fixture
def keras():
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend")
    return keras


def of_keras(keras, data, **compiled):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", **compiled)
    model.fit(data, verbose=0)
    return model


def slow_pipeline(folder):
    """Its map waits, and leaves a file in a folder if another call of it does at the same time."""
    import tensorflow as tf

    def wait(x):
        with tempfile.NamedTemporaryFile(dir=folder, prefix="in-"):
            time.sleep(0.01)
            if len(list(folder.glob("in-*"))) > 1:
                (folder / "together").touch()
        return x

    def mapped(x):
        x = tf.numpy_function(wait, [x], tf.float32)
        x.set_shape((2, 4))
        return x, tf.reduce_sum(x, 1, keepdims=True)

    options = tf.data.Options()
    options.threading.private_threadpool_size = 8
    rows = np.arange(24 * 8, dtype=np.float32).reshape(24, 2, 4) / 100
    return tf.data.Dataset.from_tensor_slices(rows).map(mapped).with_options(options)


def iterators_of_tf_data():
    """How many are alive, garbage too."""
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator

    return sum(type(each) is OwnedIterator for each in gc.get_objects())


@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        ("keras_graph", {"run_eagerly": True}),
        ("keras_jit_compile", {"jit_compile": False}),
        ("tf_data_parallel_map", {}),
        ("tf_data_prefetch", {}),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_experiments_of_keras_and_tf_data_give_everything_back(
    keras, name, compiled, fails, tmp_path
):
    data = slow_pipeline(tmp_path)
    model = of_keras(keras, data, **compiled)

    class Failing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if fails and batch == 3 and os.environ[RUN] == "3":
                raise ValueError("no")

    def run():
        ran()
        model.fit(data, verbose=0, callbacks=[Failing()])

    functions = model.train_function, model.run_eagerly, model.jit_compile
    weights = [np.array(weight) for weight in model.get_weights()]
    attributes = patched()
    gc.collect()
    iterators = iterators_of_tf_data()
    gc.disable()
    try:
        result = tried(run, name, steps=24)
    finally:
        gc.enable()
    assert patched() == attributes
    # Each turn ends within a fit. Garbage may be freed on any thread, and an iterator of tf.data
    # waits for its own.
    assert iterators_of_tf_data() <= iterators
    assert (model.train_function, model.run_eagerly, model.jit_compile) == functions
    for before, after in zip(weights, model.get_weights(), strict=True):
        assert np.array_equal(before, after)
    if fails:
        assert result.why == "could not be tried: it failed: ValueError: no"
        return
    assert (result.pairs, result.equal) == (engine.LEAST_PAIRS, True), result
    if name == "tf_data_parallel_map":
        assert (tmp_path / "together").exists()


def test_a_loop_of_tensorflow_is_compared_by_its_variables(keras, tmp_path):
    import tensorflow as tf

    import nbprof

    weight = tf.Variable([[1.0]] * 4)
    data = slow_pipeline(tmp_path)

    def run():
        for x, y in nbprof.steps(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weight - y) ** 2)
            weight.assign_sub(0.01 * tape.gradient(loss, weight))

    run()
    before = weight.numpy()
    result = tried(run, "tf_data_parallel_map", steps=24)
    assert (result.pairs, result.equal) == (engine.LEAST_PAIRS, True), result
    assert (tmp_path / "together").exists()
    assert np.array_equal(weight.numpy(), before)


def test_a_map_that_runs_in_parallel_keeps_its_items_in_order():
    tf = pytest.importorskip("tensorflow")
    from nbprof.capture.experiments.tf_data import _has_serial_map, _parallel, graph_of

    data = tf.data.Dataset.range(20).map(lambda x: x * 3).batch(4)
    parallel = _parallel(data)
    assert _has_serial_map(graph_of(data))
    assert not _has_serial_map(graph_of(parallel))
    assert [list(x) for x in parallel.as_numpy_iterator()] == [
        list(x) for x in data.as_numpy_iterator()
    ]
    assert parallel.element_spec == data.element_spec


def test_requests_are_rules_and_experiments():
    assert {"optimizer_loop", "fused_optimizer", "jit", "map_serial"} <= set(register.names())
    with pytest.raises(CaptureError, match=r"^--try magic: there is no experiment for it"):
        register.check("magic", "--try magic")
    pairs = register.chosen("all", ["optimizer_loop", "waits"], "torch")
    assert [(each.name, rule) for each, rule in pairs] == [
        ("fused_optimizer", "optimizer_loop"),
        ("foreach_optimizer", "optimizer_loop"),
        ("no_synchronize", "waits"),
        ("no_item", "waits"),
    ]
    assert [each.name for each, _ in register.chosen("zero_grad", [], "torch")] == ["zero_grad"]


def test_the_documentation_lists_every_experiment_with_its_rules():
    page = (Path(__file__).parents[2] / "docs" / "capture.md").read_text()
    for experiment in register.EXPERIMENTS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{experiment.name}` "))
        assert row.endswith(f"| {', '.join(f'`{rule}`' for rule in experiment.rules)} |")


def test_rules_of_experiments_exist():
    from nbprof.analysis.advice.advice import every

    known = {rule.name for rule in every()}
    for experiment in register.EXPERIMENTS:
        assert set(experiment.rules) <= known, experiment.name


def test_a_turn_ends_after_its_steps():
    loop = Torch()
    timing = turn.run(
        program.of_call(loop.run, (), {}), Options(save=False), turn.Plan(warmup=2, steps=3)
    )
    assert (timing.steps, len(loop.losses)) == (3, 4)
    assert 0 < timing.seconds < timing.total_s


def test_a_decorated_function_tries_its_remedies(monkeypatch):
    import nbprof

    loop = Torch(zeros=True)
    before = []

    @nbprof.profile(save=False, try_="zero_grad", budget=200)
    def train(steps):
        loop.run(steps)
        before.append(loop.state())
        return steps

    assert train(STEPS) == STEPS
    # The list of states is one of the program's, too: it is as the recorded call left it.
    assert len(before) == 1
    assert loop.state() == before[0]
    profile = train.profile.result
    row = profile.tried.iloc[0]
    assert (row["experiment"], row["pairs"]) == ("zero_grad", engine.LEAST_PAIRS), row["why"]
    assert "gradients set to None" in profile.text()
    assert "gradients set to None" in profile._repr_mimebundle_()[0]["text/html"]


def test_a_block_and_a_generator_are_refused_before_they_run():
    import nbprof

    with pytest.raises(CaptureError, match="a block cannot"), nbprof.profile(try_="all"):
        pass
    with pytest.raises(CaptureError, match="a block cannot"):
        nbprof.start(try_="all")
    with pytest.raises(CaptureError, match="neither a generator"):

        @nbprof.profile(try_="all")
        def items():
            yield 1

    for options, says in (
        ({"try_": "magic"}, "^try_='magic': there is no experiment for it"),
        ({"try_": 3}, "^try_=3: it takes the name"),
        ({"try_": "all", "budget": 0}, "^budget=0: the budget is a number of seconds above 0"),
        ({"try_": "all", "budget": float("nan")}, "^budget=nan: "),
    ):
        with pytest.raises(CaptureError, match=says):
            nbprof.profile(**options)
