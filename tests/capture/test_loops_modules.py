"""Loops in the person's modules that a recorded cell calls."""

from __future__ import annotations

import importlib
import itertools
import linecache
import sys
from pathlib import Path

import pytest

from nbprof.capture import user_modules
from nbprof.core.loop_times import choose
from tests.capture.loop_cells import run_plain, run_recorded

MODULE = """
import time


class Trainer:
    def fit(self, n):
        for i in range(n):
            self.step(i)

    def step(self, i):
        time.sleep(0.02)


def train(n=4):
    for i in range(n):
        time.sleep(0.02)
"""
_numbers = itertools.count()


@pytest.fixture
def names(monkeypatch):
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    space: dict = {}
    run_plain("1", "import time\n", space)
    return space


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Imports a text as a module of its own."""
    monkeypatch.syspath_prepend(tmp_path)

    def imported(text=MODULE):
        name = f"loops_of_a_module_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
        return importlib.import_module(name)

    return imported


def found(times):
    return [(loop.line, loop.count) for loop in times.loops] if times is not None else []


@pytest.mark.parametrize(
    ("setup", "cell", "line"),
    [
        ("t = module.Trainer()\n", "t.fit(5)\n", 7),
        ("from {} import Trainer\n", "Trainer().fit(5)\n", 7),
        ("", "module.Trainer().fit(5)\n", 7),
        ("", "module.train(5)\n", 15),
        ("from {} import train\n", "train(5)\n", 15),
        ("from {} import train\ndef run():\n    train(5)\n", "run()\n", 15),
    ],
)
def test_a_loop_of_a_module_is_found(names, module, setup, cell, line):
    names["module"] = module()
    kept = names["module"]
    run_plain("3", setup.format(kept.__name__), names)
    codes = kept.train.__code__, kept.Trainer.fit.__code__
    times = run_recorded("4", cell, names)
    assert found(times) == [(line, 5)]
    unit = choose(times)
    assert unit.how.startswith(
        f"Steps are the 5 iterations of the loop in line {line} of {kept.__name__}.py, `for i in range(n):`"
    )
    assert (kept.train.__code__, kept.Trainer.fit.__code__) == codes


@pytest.mark.parametrize(
    ("setup", "cell"),
    [
        ("held = [module.train]\n", "module.train()\n"),
        ("", "fast = compiled(module.train)\nmodule.train()\n"),
        ("def other():\n    return compiled(module.train)\n", "module.train()\n"),
        ("t = module.Trainer()\nstep = t.fit\n", "t.fit(4)\n"),
    ],
)
def test_what_something_else_may_compile_is_left_alone(names, module, setup, cell):
    names |= {"module": module(), "compiled": lambda function: function}
    run_plain("3", setup, names)
    assert found(run_recorded("4", cell, names)) == []


@pytest.mark.parametrize(
    "text",
    [
        MODULE.replace("def train", "@(lambda function: function)\ndef train"),
        MODULE + "\nheld = {'train': train}\n",
        MODULE + "\ndef fast():\n    return compiled(train)\n",
        MODULE + "\nclass Net(Base):\n    def forward(self):\n        return train()\n",
    ],
)
def test_what_the_module_itself_may_have_compiled_is_left_alone(names, module, text):
    names["module"] = module(
        text.replace("class Net(Base)", "Base = type('Base', (), {})\n\n\nclass Net(Base)")
    )
    assert found(run_recorded("4", "module.train()\n", names)) == []


def test_what_another_module_may_compile_is_left_alone(names, module):
    first = module()
    other = module(
        f"def fast(compiled):\n    from {first.__name__} import train\n    return compiled(train)\n"
    )
    names |= {"module": first, "other": other}
    assert found(run_recorded("4", "module.train()\n", names)) == []


def test_a_module_whose_file_has_changed_since_is_left_alone(names, module):
    names["module"] = changed = module()
    Path(changed.__file__).write_text(MODULE.replace("time.sleep(0.02)", "time.sleep(0.002)"))
    linecache.checkcache()
    assert found(run_recorded("4", "module.train()\n", names)) == []


def test_installed_packages_are_not_the_persons():
    assert sys.modules["json"] not in user_modules.loaded()
    assert pytest not in user_modules.loaded()
    assert user_modules not in user_modules.loaded()
    assert sys.modules[__name__] in user_modules.loaded()


@pytest.mark.parametrize("consumer", ["list", "sum", "max", "tuple"])
def test_a_map_that_is_consumed_is_a_loop(names, consumer):
    names |= {"double": lambda item: 2 * item, "items": [1, 2, 3]}
    times = run_recorded("4", f"result = {consumer}(map(double, items))\n", names)
    assert found(times) == [(1, 3)]
    assert times.loops[0].text == "map(double, items)"
    assert names["result"] == eval(f"{consumer}(map(double, items))", dict(names))


def test_a_map_of_the_programs_own_gets_what_it_is_given(names):
    names |= {"map": lambda function, items: [function(items)], "items": [1, 2, 3]}
    run_recorded("4", "result = list(map(len, items))\n", names)
    assert names["result"] == [3]
