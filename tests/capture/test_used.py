"""The framework that a cell uses by variables of other cells, without a word of it in its text."""

from __future__ import annotations

import sys
import types

import pytest

from nbprof.capture.detect import choose


def kind(module, **own):
    """A class of a framework, such as it is seen from outside."""
    return type("Of", (), {"__module__": module, "__slots__": (), **own})


Tensor, Array, Eager = (
    kind(module) for module in ("torch", "jaxlib._jax", "tensorflow.python.framework.ops")
)
EARLIER = """
import functools
class Net(Module): pass
net = Net()
def make(): return torch.ones(3)
def train(): return make()
def compute(): return 1 + 1
def decorated(function):
    @functools.wraps(function)
    def inner(*args): return function(*args)
    return inner
@decorated
def through(): return make()
later = functools.partial(train, 1)
class Trainer:
    def __init__(self): self.model = net
    def fit(self): return self.model
class Bare:
    def fit(self): return make()
class Lazy:
    @property
    def model(self): raise RuntimeError("computed")
    def __getattr__(self, name): raise RuntimeError("asked")
trainer, bare, lazy = Trainer(), Bare(), Lazy()
losses = [0.5]
"""


@pytest.fixture
def cells(monkeypatch):
    """The variables of a notebook that has imported TensorFlow and PyTorch."""
    for name in ("tensorflow", "torch"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    module = types.ModuleType("mine")
    out = {
        "torch": sys.modules["torch"],
        "Module": kind("torch.nn.modules.module"),
        "params": {"w": Array()},
        "batches": [Eager()],
    }
    exec(compile(EARLIER, "<cell>", "exec"), out)
    exec(
        compile(
            "import torch\ndef train(): return torch.ones(3)\ndef other(): return 1",
            "mine.py",
            "exec",
        ),
        vars(module),
    )
    return out | {"mine": module, "tensor": Tensor(), "fit": Eager()}


@pytest.mark.parametrize(
    "cell",
    [
        "train()",
        "net(1)",
        "through()",
        "later()",
        "trainer.fit()",
        "bare.fit()",
        "mine.train()",
        "y = tensor + 1",
        "%time train()",
        "!ls\ntrain()",
    ],
)
def test_a_cell_without_a_name_of_a_framework_is_of_the_one_that_its_variables_are(cells, cell):
    chosen = choose("auto", cell, cells)
    assert (chosen.candidates, chosen.others, chosen.unnamed) == (("torch",), (), ())


@pytest.mark.parametrize(
    "cell",
    [
        "compute()",
        "lazy.model",
        "mine.other()",
        "losses.append(1)",
        "train = compute",
        "losses.fit()",
        "f(train=1)",
    ],
)
def test_where_variables_lead_to_none_it_is_open_what_the_cell_uses(cells, cell):
    chosen = choose("auto", cell, cells)
    assert (chosen.candidates, chosen.unnamed) == (("tensorflow",), ("torch",))


def test_all_frameworks_that_a_cell_leads_to_are_told(cells):
    assert choose("auto", "for x in batches:\n    step(params, x)", cells).candidates == (
        "tensorflow",
    )
    assert choose("auto", "for x in batches:\n    step(params, x)", cells).others == ("jax",)
    assert choose("auto", "import jax\ntrain()", cells).others == ("torch",)
    assert choose("jax", "train()", cells).others == ("torch",)


def test_a_model_of_keras_is_of_its_backend(cells, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert choose(
        "auto",
        "model.fit(1)",
        {"model": type("Sequential", (kind("torch.nn"),), {"__module__": "keras.src"})()},
    ).candidates == ("jax",)


def test_functions_of_installed_packages_are_not_followed(cells):
    code = compile(
        "def helper(): return torch.ones(1)", "lib/python3/site-packages/any/helpers.py", "exec"
    )
    exec(code, cells)
    assert choose("auto", "helper()", cells).unnamed == ("torch",)


def test_a_variable_that_cannot_be_looked_at_is_passed_over(cells):
    class Odd:
        __module__ = property(lambda self: 1 / 0)

        @property
        def __dict__(self):
            raise RuntimeError

    assert choose("auto", "odd", cells | {"odd": Odd()}).candidates == ("tensorflow",)
