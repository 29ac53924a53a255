"""What a second run of a cell can change is put back: each kind of object, in each framework, and
what cannot be is named.
"""

from __future__ import annotations

import ast
import collections
import functools
import importlib
import itertools
import random
import threading

import numpy as np
import pytest

from nbprof.capture.probe.reads import names_in, names_read
from nbprof.capture.probe.state import State
from tests.support.programs import run


def notebook(source, **names):
    """The namespace of a notebook in which `source` has run."""
    namespace = {"__name__": "__main__", **names}
    exec(source, namespace)
    return namespace


def rerun(source, namespace):
    """Run a cell between keeping the state and putting it back."""
    tree = ast.parse(source)

    def inner(name):
        code = getattr(namespace.get(name), "__code__", None)
        return names_in(code) if code is not None else set()

    state = State(namespace, names_read(tree, inner))
    assert (state.uncopied, state.consumed) == ([], [])
    try:
        exec(source, namespace)
    finally:
        assert state.restore() == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = 1\nx + 1\ny", {"y"}),
        ("x += 1", {"x"}),
        ("x = f(x)", {"f", "x"}),
        ("for x in data:\n    y = x\n    y", {"data"}),
        ("for x in data:\n    y = step(y, x)", {"data", "step", "y"}),
        ("if a:\n    x = 1\nx", {"a", "x"}),
        ("with open(p) as f:\n    x = f.read()\nx, f", {"open", "p"}),
        ("import numpy as np\ndef g():\n    return z\nnp, g", {"z"}),
        ("try:\n    x = a\nexcept E:\n    x = b\nx", {"a", "E", "b"}),
        ("model, opt = make()\nmodel(opt)", {"make"}),
    ],
)
def test_what_a_cell_reads_before_it_sets_it(source, names):
    assert names_read(ast.parse(source), lambda _: set()) == names


def test_what_a_function_reads_counts_where_it_is_called():
    tree = ast.parse("model = 1\ntrain()")
    assert names_read(tree, lambda name: {"model", "data"} if name == "train" else set()) == {
        "train",
        "data",
    }


def test_variables_and_containers_are_as_before():
    source = "a = 1\nkept = [1, [2]]\ntable = {'x': {1}}\nordered = O([('b', 1), ('a', 2)])\nrecent = D([1, 2], maxlen=2)\nraw = bytearray(b'ab')"
    namespace = notebook(source, O=collections.OrderedDict, D=collections.deque)
    kept = namespace["kept"]
    rerun(
        "a = a + 1\nnew = 1\nkept.append(3); kept[1].clear()\ntable['x'].add(2); table['y'] = 1\nordered.move_to_end('b')\n"
        "recent.append(9)\nraw += b'c'",
        namespace,
    )
    assert namespace["kept"] is kept
    assert (namespace["a"], kept, namespace["table"]) == (1, [1, [2]], {"x": {1}})
    assert "new" not in namespace
    assert list(namespace["ordered"]) == ["b", "a"]
    assert (list(namespace["recent"]), namespace["recent"].maxlen, bytes(namespace["raw"])) == (
        [1, 2],
        2,
        b"ab",
    )


def test_objects_of_the_notebook_their_classes_and_closures_are_as_before():
    namespace = notebook(
        "class Base:\n    total = 0\n    __slots__ = ('s',)\n"
        "class Trainer(Base):\n    def __init__(self):\n        self.seen = []; self.n = 0; self.s = 1\n"
        "    def fit(self):\n        global count\n        self.n += 1; self.s += 1; Base.total += 1; self.seen.append(self.n); count += 1; tick()\n"
        "def make():\n    n = 0\n    def tick():\n        nonlocal n\n        n += 1\n        return n\n    return tick\n"
        "count = 0\ntick = make()\ntrainer = Trainer()\ntrainer.fit()",
    )
    rerun("trainer.fit()\ntrainer.extra = 1", namespace)
    trainer = namespace["trainer"]
    assert (trainer.n, trainer.s, trainer.seen, namespace["Base"].total, namespace["count"]) == (
        1,
        2,
        [1],
        1,
        1,
    )
    assert not hasattr(trainer, "extra")
    assert namespace["tick"]() == 2


@pytest.mark.parametrize(
    "cell",
    ["exec('kept.append(1)')", "change()", "eval('kept').append(1)", "globals()['kept'].append(1)"],
)
def test_variables_that_a_cell_reads_by_their_names_as_texts(cell):
    namespace = notebook("kept = []\ndef change():\n    exec('kept.append(1)')")
    rerun(cell, namespace)
    assert namespace["kept"] == []


def test_a_method_of_the_name_eval_reads_nothing():
    namespace = notebook(
        "class Model:\n    def eval(self):\n        pass\nmodel = Model()\ndef train():\n    model.eval()",
        lock=threading.Lock(),
    )
    rerun("train()", namespace)


def test_arrays_and_random_numbers_are_as_before():
    namespace = notebook(
        "x = np.zeros(3)\nrng = np.random.default_rng(1)\nold = np.random.RandomState(1)\nown = random.Random(1)",
        np=np,
        random=random,
    )
    source = (
        "x += 1\ndrawn = rng.random(), old.rand(), own.random(), random.random(), np.random.rand()"
    )
    exec(
        "def draw():\n    return rng.random(), old.rand(), own.random(), random.random(), np.random.rand()",
        namespace,
    )
    rerun(source, namespace)
    first = namespace["draw"]()
    assert (namespace["x"] == 0).all()
    rerun("", namespace)
    namespace2 = notebook(
        "x = 0\nrng = np.random.default_rng(1)\nold = np.random.RandomState(1)\nown = random.Random(1)",
        np=np,
        random=random,
    )
    assert first[:3] == (
        namespace2["rng"].random(),
        namespace2["old"].rand(),
        namespace2["own"].random(),
    )
    state = random.getstate(), np.random.get_state()[1].tolist()
    rerun("random.random(), np.random.rand()", namespace)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == state


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("thing = threading.Lock()", "thing (lock)"),
        (
            "class Logger:\n    def __init__(self):\n        self.lock = threading.RLock()\nthing = Logger()",
            "thing.lock (RLock)",
        ),
        ("thing = {'counter': itertools.count()}", "thing.counter (count)"),
        ("thing = FILE", "thing (an open file)"),
    ],
)
def test_what_cannot_be_put_back_is_named(source, says, tmp_path):
    with (tmp_path / "file").open("w") as file:
        state = State(
            notebook(source, threading=threading, itertools=itertools, FILE=file), {"thing"}
        )
        state.restore()
    assert state.uncopied == [says]


@pytest.mark.parametrize(
    "source", ["iter([1])", "(i for i in [1])", "zip([1])", "enumerate([1])", "map(str, [1])"]
)
def test_an_iterator_of_an_earlier_cell_is_used_up(source):
    state = State(notebook(f"batches = {source}"), {"batches"})
    state.restore()
    assert state.consumed == ["batches"]


def test_what_never_changes_is_left_alone():
    source = "import datetime, decimal, pathlib, re, logging, functools\nthings = [datetime.date(2020, 1, 1), decimal.Decimal(1), pathlib.Path(), \
re.compile('a'), ..., slice(1), range(3), len, [].append, logging.getLogger('a'), functools.partial(print, 1), functools.lru_cache(abs)]"
    rerun("things", notebook(source))


def test_an_array_too_large_to_copy_is_named(monkeypatch):
    monkeypatch.setattr("nbprof.capture.probe.state.SHARE", 0.0)
    state = State(notebook("x = np.zeros(3)\nn = 1", np=np), {"x", "n"})
    state.restore()
    assert state.uncopied == ["x (a copy needs more than half of the free memory)"]


def test_interrupted_while_it_is_kept_all_is_as_before(monkeypatch):
    namespace = notebook("x = [1]\ny = 1")
    monkeypatch.setattr(State, "_visit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        State(namespace, {"x", "y"})
    assert (namespace["x"], namespace["y"]) == ([1], 1)


def test_a_training_in_pytorch(torch):
    namespace = notebook(
        "torch.manual_seed(1)\nmodel = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))\n"
        "opt = torch.optim.Adam(model.parameters())\nplan = torch.optim.lr_scheduler.StepLR(opt, 1)\nscaler = torch.amp.GradScaler('cpu')\n"
        "own = torch.Generator()\n"
        "def train():\n    loss = model(torch.randn(8, 4)).square().mean()\n    opt.zero_grad()\n    scaler.scale(loss).backward()\n"
        "    scaler.step(opt)\n    scaler.update()\n    plan.step()\n    model.eval()\n    torch.rand(1, generator=own)\n"
        "model.train()\ntrain()\nmodel.train()",
        torch=torch,
    )
    model, opt = namespace["model"], namespace["opt"]

    def state():
        of_opt = opt.state_dict()
        moments = [value.clone() for each in of_opt["state"].values() for value in each.values()]
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        rest = [
            torch.tensor(float(opt.param_groups[0]["lr"])),
            torch.tensor(namespace["plan"].last_epoch),
            torch.get_rng_state(),
        ]
        flags = torch.tensor([module.training for module in model.modules()])
        return [
            *(value.clone() for value in model.state_dict().values()),
            *moments,
            *gradients,
            *rest,
            flags,
            namespace["own"].get_state(),
        ]

    before, kept = state(), [id(parameter) for parameter in model.parameters()]
    rerun(
        "train()\ntrain()\nmodel.frozen = True\nmodel[0].weight.requires_grad_(False)\nmodel.half()",
        namespace,
    )
    assert all(torch.equal(a, b) for a, b in zip(before, state(), strict=True))
    assert [id(parameter) for parameter in model.parameters()] == kept
    assert model[0].weight.requires_grad
    assert model[0].weight.dtype == torch.float32
    assert not hasattr(model, "frozen")


def test_a_scripted_module(torch):
    class Grows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))

        def forward(self):
            return self.weight

    model = torch.jit.script(Grows())
    rerun("model().data.add_(1)", notebook("", model=model))
    assert model.weight.tolist() == [0, 0]


def test_a_model_inside_an_object_of_the_user(torch):
    namespace = notebook(
        "class Trainer:\n    def __init__(self):\n        self.model = torch.nn.Linear(2, 1)\n        self.step = torch.compiler.disable(self.fit)\n"
        "    def fit(self):\n        self.model.weight.data += 1\n"
        "trainer = Trainer()\nrun = functools.partial(trainer.fit)",
        torch=torch,
        functools=functools,
    )
    before = namespace["trainer"].model.weight.detach().clone()
    rerun("run()", namespace)
    assert torch.equal(namespace["trainer"].model.weight, before)


def test_a_training_in_keras(tf):
    import keras

    namespace = notebook(
        "keras.utils.set_random_seed(1)\n"
        "model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)])\n"
        "model.compile(keras.optimizers.Adam(), 'mse', metrics=['mae'])\n"
        "x = np.ones((16, 4), 'f')\nstop = keras.callbacks.EarlyStopping('loss')\n"
        "draws = tf.random.Generator.from_seed(1)\n"
        "history = model.fit(x, x, batch_size=4, verbose=0, callbacks=[stop])",
        keras=keras,
        np=np,
        tf=tf,
    )
    model = namespace["model"]

    def state():
        return [
            value.numpy().copy()
            for value in (*model.variables, *model.optimizer.variables, *model.metrics_variables)
        ]

    before, best, held, optimizer = state(), namespace["stop"].best, model.history, model.optimizer
    drawn = namespace["draws"].state.numpy().copy()
    rerun(
        "history = model.fit(x, x, batch_size=4, verbose=0, callbacks=[stop])\nmodel.layers[0].trainable = False\ndraws.normal([1])\n"
        "model.stop_training = True\nmodel.compile('sgd', 'mse')\nmodel.fit(x, x, verbose=0)",
        namespace,
    )
    assert all((a == b).all() for a, b in zip(before, state(), strict=True))
    assert (model.history, model.optimizer, namespace["stop"].best) == (held, optimizer, best)
    assert (namespace["draws"].state.numpy() == drawn).all()
    assert model.layers[0].trainable
    assert not model.stop_training
    model.fit(namespace["x"], namespace["x"], batch_size=4, verbose=0)
    assert any((a != b).any() for a, b in zip(before, state(), strict=True))


def test_variables_that_a_tf_function_has_captured(tf):
    namespace = notebook(
        "v = tf.Variable([1.0])\nopt = keras.optimizers.SGD()\n@tf.function(autograph=False)\ndef step():\n    v.assign_add([1.0])\nstep()",
        tf=tf,
        keras=importlib.import_module("keras"),
    )
    rerun("step()\nstep()\nv = None", namespace)
    assert namespace["v"].numpy() == [2.0]


def test_arrays_of_jax_that_a_function_donates(jax):
    namespace = notebook(
        "P = collections.namedtuple('P', 'w m')\n"
        "class Model:\n    pass\n"
        "state = P(jnp.ones(3), {'m': jnp.zeros(3), 'pair': (jnp.ones(1), 2)})\nmodel = Model()\nmodel.w = jnp.ones(2)\n"
        "key = jax.random.key(0)\n"
        "@functools.partial(jax.jit, donate_argnums=0)\ndef step(state):\n    return jax.tree.map(lambda a: a + 1, state)\n"
        "def train():\n    global state, key\n    state = step(state)\n    model.w = step(model.w)\n    key, _ = jax.random.split(key)\n",
        jax=jax,
        jnp=jax.numpy,
        collections=collections,
        functools=functools,
    )
    before = namespace["state"]
    rerun("train()\ntrain()", namespace)
    assert namespace["state"] is before
    assert (before.w == 1).all()
    assert (before.m["m"] == 0).all()
    assert (before.m["pair"][0] == 1).all()
    assert (namespace["model"].w == 1).all()
    assert (jax.random.key_data(namespace["key"]) == jax.random.key_data(jax.random.key(0))).all()


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_training_in_keras_on_another_backend(backend):
    script = """
        import keras, numpy as np
        from nbprof.capture.probe.state import State

        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)])
        model.compile(keras.optimizers.Adam(), "mse", metrics=["mae"])
        x = np.ones((16, 4), "f")
        model.fit(x, x, batch_size=4, verbose=0)

        def values():
            variables = (*model.variables, *model.optimizer.variables, *model.metrics_variables)
            return [np.array(keras.ops.convert_to_numpy(each)) for each in variables]

        before = values()
        state = State(globals(), {"model", "x"})
        assert (state.uncopied, state.consumed) == ([], [])
        model.fit(x, x, batch_size=4, verbose=0)
        assert any((a != b).any() for a, b in zip(before, values(), strict=True))
        assert state.restore() == []
        assert all((a == b).all() for a, b in zip(before, values(), strict=True))
        model.fit(x, x, batch_size=4, verbose=0)
        print("put back")
    """
    assert run(script, needs=backend, KERAS_BACKEND=backend).stdout.strip() == "put back"
