"""What keeps arrays alive: each kind of holder, planted, in each framework."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import types
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from nbprof.capture.variables import holders
from nbprof.capture.variables.search import Search, namespaces
from nbprof.capture.variables.table import NOWHERE, variables
from nbprof.schema import frames

THREADS, MODULES = holders._threads, holders._modules
COUNT = 12_345
"""Elements of a planted array, which no other has."""


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """What other tests left in modules and on other threads is not of interest."""
    monkeypatch.setattr(holders, "_modules", lambda _: ())
    monkeypatch.setattr(holders, "_threads", lambda: ())
    for name in ("last_exc", "last_value", "last_traceback"):
        monkeypatch.delattr(sys, name, raising=False)


def of(**namespace):
    table = variables(namespace)
    frames.shaped("memory.variables", table)
    return table[table["holder"] != NOWHERE]


def the_row(**namespace):
    """The row of the planted array."""
    table = of(**namespace)
    (row,) = table[table["largest"].str.contains(f"{COUNT}")].itertuples()
    return row


def numpy_array():
    return np.zeros(COUNT, np.float32)


def torch_tensor():
    return pytest.importorskip("torch").zeros(COUNT)


def jax_array():
    return pytest.importorskip("jax").numpy.zeros(COUNT)


def tensorflow_tensor():
    return pytest.importorskip("tensorflow").zeros(COUNT)


def tensorflow_variable():
    return pytest.importorskip("tensorflow").Variable(np.zeros(COUNT, np.float32))


def keras_variable():
    return pytest.importorskip("keras").Variable(np.zeros(COUNT, np.float32))


def arrow_array():
    return pytest.importorskip("pyarrow").array(numpy_array())


MAKERS = [
    numpy_array,
    torch_tensor,
    jax_array,
    tensorflow_tensor,
    tensorflow_variable,
    keras_variable,
    arrow_array,
]


@pytest.mark.parametrize("make", MAKERS)
def test_an_array_of_each_framework(make):
    row = the_row(x=make())
    assert (row.holder, row.name, row.device, row.arrays) == ("variable", "x", "host", 1)
    assert row.bytes == row.freed_bytes == row.largest_bytes == 4 * COUNT
    assert row.remedy == "del x"


class Slots:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


class Plain:
    def __init__(self, held):
        self.held = held


def closure(array):
    def inner():
        return array

    return inner


def default(array):
    def inner(value=array):
        return value

    return inner


def cache(array):
    @functools.lru_cache
    def cached(key):
        return array

    cached(1)
    return cached


def generator(array):
    def items():
        local = array
        yield 1
        yield local

    result = items()
    next(result)
    return result


def bound(array):
    return Plain(array).__init__


def partial(array):
    return functools.partial(print, array)


def objects(array):
    held = np.empty(2, object)
    held[1] = array
    return held


HOLDERS = {
    "list": (lambda array: [0, array], "x[1]"),
    "dict": (lambda array: {"key": array}, "x['key']"),
    "attribute": (Plain, "x.held"),
    "slot": (Slots, "x.held"),
    "nested": (lambda array: {"a": [Plain([array])]}, "x['a'][0].held[0]"),
    "closure": (closure, "x → closure of inner[0]"),
    "default": (default, "x → defaults of inner[0]"),
    "lru_cache": (cache, "x → "),
    "generator": (generator, "x → "),
    "method": (bound, "x"),
    "partial": (partial, "x"),
    "array of objects": (objects, "x[1]"),
    "namespace": (lambda array: types.SimpleNamespace(held=array), "x.held"),
}


@pytest.mark.parametrize("make", [numpy_array, torch_tensor, jax_array, tensorflow_tensor])
@pytest.mark.parametrize("kind", HOLDERS)
def test_each_kind_of_reference_is_followed(kind, make):
    hold, held_by = HOLDERS[kind]
    row = the_row(x=hold(make()))
    of_holder = 16 if kind == "array of objects" else 0
    assert row.freed_bytes == 4 * COUNT + of_holder
    assert row.held_by.startswith(held_by)
    expected = {"lru_cache": "x.cache_clear()", "generator": "x.close()"}
    assert row.remedy == expected.get(kind, "del x")


def test_a_class_of_the_notebook():
    kind = type("Cache", (), {"__module__": "__main__", "held": numpy_array()})
    assert the_row(Cache=kind).held_by == "Cache['held']"


def test_outputs_and_ipythons_names_of_them():
    array = numpy_array()
    row = the_row(Out={3: array}, _=array, _3=array, __=array, _oh={3: array})
    assert (row.holder, row.name, row.remedy) == ("output", "Out[3]", "%reset -f out")
    assert the_row(Out={}, _=array).name == "_"


def test_the_local_variables_of_the_last_error(monkeypatch):
    def fails():
        local = numpy_array()
        raise ValueError(len(local))

    try:
        fails()
    except ValueError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
        monkeypatch.setattr(sys, "last_traceback", error.__traceback__, raising=False)
    row = the_row()
    assert (row.holder, row.name) == ("traceback", "sys.last_value")
    assert "fails, line " in row.held_by
    assert row.held_by.endswith(": local")
    assert "sys.last_traceback" in row.remedy


def test_what_frees_the_last_error_of_a_notebook_does(tmp_path):
    from IPython.core.interactiveshell import InteractiveShell

    class Array(np.ndarray):
        """NumPy's own have no weak references."""

    shell = InteractiveShell()
    shell.user_ns["make"] = lambda: numpy_array().view(Array)
    code = "import weakref\ndef fails():\n    x = make()\n    alive.append(weakref.ref(x))\n    1 / 0\n"
    shell.run_cell(f"{code}alive = []\nfails()")
    (row,) = of(**shell.user_ns).itertuples()
    assert (row.holder, row.name, row.freed_bytes) == ("traceback", "sys.last_value", 4 * COUNT)
    assert row.held_by == "sys.last_value → fails, line 5: x"
    shell.run_cell(row.remedy)
    gc.collect()
    assert shell.user_ns["alive"][0]() is None
    assert of(**shell.user_ns).empty


def test_variables_of_modules_of_the_person(monkeypatch, tmp_path):
    module = types.ModuleType("training_of_a_test")
    module.__file__ = str(tmp_path / "training_of_a_test.py")
    module.CACHE = [numpy_array()]
    installed = {"numpy": np, "missing": None}
    modules = SimpleNamespace(modules={module.__name__: module, **installed})
    monkeypatch.setattr(holders, "_modules", MODULES)
    monkeypatch.setattr(holders, "sys", modules)
    row = the_row()
    assert (row.holder, row.held_by) == ("module", "training_of_a_test.CACHE[0]")
    assert row.remedy == "del training_of_a_test.CACHE"


def test_local_variables_of_another_thread(monkeypatch):
    # Other tests may have left threads.
    of_test = lambda: (each for each in THREADS() if each.name == "thread worker of a test")  # noqa: E731
    monkeypatch.setattr(holders, "_threads", of_test)
    ready, over = threading.Event(), threading.Event()

    def work():
        local = numpy_array()
        ready.set()
        over.wait(60)
        return local

    thread = threading.Thread(target=work, name="worker of a test")
    thread.start()
    ready.wait(60)
    try:
        row = the_row()
        assert (row.holder, row.name, row.remedy) == ("thread", "thread worker of a test", "")
        assert row.held_by.endswith(": local")
    finally:
        over.set()
        thread.join()


def test_views_of_one_memory_count_once():
    torch = pytest.importorskip("torch")
    base = np.zeros((COUNT, 2))
    table = of(base=base, view=base[:5], tensor=torch.from_numpy(base)[1:], both=[base, base.T])
    assert set(table["bytes"]) == {16 * COUNT}
    assert set(table["freed_bytes"]) == {0}
    assert table.set_index("name").loc["view", "also"] == "base, tensor, both"
    # A slice keeps all of the memory alive.
    assert the_row(view=base[:, 0]).freed_bytes == 16 * COUNT


def test_hooks_of_a_model_are_a_row_of_their_own():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(100, 100))
    model[0].register_forward_hook(closure(torch.zeros(COUNT)))
    table = of(model=model).set_index("largest")
    assert table.loc["float32[100, 100]", "held_by"] == "model.0.weight"
    row = table.loc[f"float32[{COUNT}]"]
    assert row["held_by"].startswith("model.0._forward_hooks[")
    assert row["remedy"] == "model.0._forward_hooks.clear()"


def test_gradients_and_states_of_an_optimizer():
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.zeros(COUNT))
    parameter.grad = torch.zeros(COUNT)
    assert the_row(parameter=parameter).bytes == 8 * COUNT
    optimizer = torch.optim.Adam([parameter])
    optimizer.step()
    table = of(parameter=parameter, optimizer=optimizer).set_index("name")
    assert table.loc["optimizer", "bytes"] == 16 * COUNT + 4
    assert table.loc["optimizer", "freed_bytes"] == 8 * COUNT + 4
    assert table.loc["parameter", "freed_bytes"] == 0


def test_a_graph_of_autograd_is_counted_and_its_size_is_unknown():
    torch = pytest.importorskip("torch")
    weight = torch.zeros(COUNT, requires_grad=True)
    losses = [(weight * weight).sum() for _ in range(3)]
    row = of(losses=losses).iloc[0]
    assert row["graphs"] == 3


def test_no_saved_tensor_is_unpacked():
    torch = pytest.importorskip("torch")
    weight = torch.zeros(COUNT, requires_grad=True)
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpacked.append):
        loss = (weight * weight).sum()
    of(loss=loss)
    assert not unpacked


def test_no_property_is_called():
    class Careful:
        @property
        def value(self):
            raise AssertionError

        def __getattr__(self, name):
            raise AssertionError(name)

        def __len__(self):
            raise AssertionError

        def __eq__(self, other):
            raise AssertionError

        __hash__ = None

    class Items(list):
        def __iter__(self):
            raise AssertionError

    class Table(dict):
        def items(self):
            raise AssertionError

    careful = Careful()
    vars(careful)["held"] = numpy_array()
    assert the_row(x=careful).held_by == "x.held"
    assert the_row(x=Items([Table(key=careful)])).held_by == "x[0]['key'].held"


def test_deleted_and_empty_arrays_have_no_memory(tmp_path):
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    deleted = jax.numpy.zeros(COUNT)
    deleted.delete()
    mapped = np.memmap(tmp_path / "file", np.float32, "w+", shape=(COUNT,))
    assert of(
        deleted=deleted, meta=torch.zeros(COUNT, device="meta"), empty=np.zeros(0), mapped=mapped
    ).empty


def test_looking_keeps_nothing_alive_and_changes_nothing():
    torch = pytest.importorskip("torch")
    tensor, plain = torch.zeros(COUNT), Plain(1)
    namespace = {"x": [tensor, plain]}
    tensor_lives, plain_lives = weakref.ref(tensor), weakref.ref(plain)
    counts = sys.getrefcount(tensor), sys.getrefcount(plain)
    enabled = gc.isenabled()
    table = variables(namespace)
    assert (sys.getrefcount(tensor), sys.getrefcount(plain)) == counts
    assert gc.isenabled() == enabled
    del tensor, plain
    namespace.clear()
    assert tensor_lives() is plain_lives() is None
    assert len(table)


def test_tensors_that_nothing_reaches_are_garbage_or_of_libraries():
    torch = pytest.importorskip("torch")
    gc.collect()
    gc.disable()
    try:
        cycle = [torch.zeros(COUNT)]
        cycle.append(cycle)
        del cycle
        table = variables({})
        (row,) = table[table["holder"] == NOWHERE].itertuples()
        assert row.bytes >= 4 * COUNT
        assert row.freed_bytes == 0
        assert row.remedy == "import gc; gc.collect()"
    finally:
        gc.enable()
        gc.collect()


def test_each_object_is_looked_into_once():
    """The effort grows with the number of objects, also where many refer to the same ones."""
    shared = [[number] for number in range(100)]
    layers = shared
    for _ in range(50):
        layers = [list(layers) for _ in range(20)]
    search = Search(namespaces(), 60.0)
    reach = search.reach([layers, layers])
    assert sum(map(len, reach.levels)) == 1 + 1 + 50 * 20 + 100


def test_a_search_that_runs_out_of_time_says_so():
    table = variables({"x": [[number] for number in range(10_000)]}, limit_s=0)
    assert table.attrs["complete"] is False
    assert variables({"x": [1]}).attrs["complete"] is True


def test_the_magic_shows_sizes_names_and_what_frees_them():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    published = []
    shell.display_pub.publish = lambda data, **_: published.append(data)
    shell.run_line_magic("load_ext", "nbprof")
    shell.user_ns["weights<b>"] = np.zeros((1024, 1024))
    shell.run_line_magic("nbprof", "memory")
    (data,) = published
    assert "8.00 MiB" in data["text/plain"]
    assert "weights&lt;b&gt;" in data["text/html"]
    assert "del weights" in data["text/plain"]


def test_a_profile_of_this_process_has_the_table_and_a_loaded_one_has_none(tmp_path):
    import nbprof

    with nbprof.profile(backend="python", logdir=str(tmp_path)) as run:
        for _ in nbprof.steps(range(3)):
            sum(range(1000))
    table = run.memory.variables
    assert list(table) == frames.names("memory.variables")
    loaded = nbprof.load(run.path).memory.variables
    assert loaded.empty
    assert list(loaded) == list(table)
