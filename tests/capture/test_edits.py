"""The change of an experiment as a diff of the person's cell: where it is sure, and nowhere else."""

from __future__ import annotations

import ast
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

from nbprof.capture.experiments import edits, register
from nbprof.capture.experiments.source import Source, diff, of_function


class Loader:
    """A class whose calls are changed."""

    made: ClassVar[list] = []

    def __init__(self, dataset=None, batch_size=1, shuffle=False, num_workers=0, *, pin=False):
        self.given = num_workers, pin
        Loader.made.append(self)


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """The class in a package, to import it by several names."""
    package, module = ModuleType("somelib"), ModuleType("somelib.data")
    package.data = module
    module.Loader = Loader
    monkeypatch.setitem(sys.modules, "somelib", package)
    monkeypatch.setitem(sys.modules, "somelib.data", module)


def turns(text, before):
    """What two turns of a cell use, each from the same variables, and the variables afterwards."""
    observed = []
    for _ in range(2):
        Loader.made = []
        namespace = dict(before)
        exec(compile(text, "<cell>", "exec"), namespace)
        used = [value for value in namespace.values() if isinstance(value, Loader)]
        used += [each for each in Loader.made if each not in used]
        names = [(name, value) for name, value in namespace.items() if isinstance(value, Loader)]
        observed.append(SimpleNamespace(loaders=used, names=names))
    return observed, namespace


WORKERS = edits.in_constructor(lambda o: o.loaders, {"num_workers": "4"}, without=("pin",))
BOTH = edits.in_constructor(lambda o: o.loaders, {"num_workers": "4", "pin": "True"})


def changed(text, find=WORKERS, **before):
    """The changed cell; empty if the place is not found."""
    observed, namespace = turns(text, before)
    place = find(Source(text, namespace), observed)
    return place.source.changed(place.edits) if place is not None else ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "from somelib.data import Loader\nx = Loader(1)",
            "from somelib.data import Loader\nx = Loader(1, num_workers=4)",
        ),
        # Aliases, at the top and in functions.
        (
            "import somelib.data as d\nx = d.Loader()",
            "import somelib.data as d\nx = d.Loader(num_workers=4)",
        ),
        (
            "import somelib.data\nfor x in [somelib.data.Loader(1)]: pass",
            "import somelib.data\nfor x in [somelib.data.Loader(1, num_workers=4)]: pass",
        ),
        (
            "def f():\n    from somelib.data import Loader as L\n    return L(1)\nx = f()",
            "def f():\n    from somelib.data import Loader as L\n    return L(1, num_workers=4)\nx = f()",
        ),
        # A trailing comma, parentheses, text that is longer in bytes than in characters.
        (
            "from somelib.data import Loader\nx = Loader(1, )",
            "from somelib.data import Loader\nx = Loader(1, num_workers=4 )",
        ),
        (
            "from somelib.data import Loader\nx = Loader((1))  # one",
            "from somelib.data import Loader\nx = Loader((1), num_workers=4)  # one",
        ),
        (
            "from somelib.data import Loader\né, x = 'äöü', Loader('ß')",
            "from somelib.data import Loader\né, x = 'äöü', Loader('ß', num_workers=4)",
        ),
        # The value is there already, by name or by place.
        (
            "from somelib.data import Loader\nx = Loader(1, num_workers=(0), shuffle=True)",
            "from somelib.data import Loader\nx = Loader(1, num_workers=(4), shuffle=True)",
        ),
        (
            "from somelib.data import Loader\nx = Loader(1, 2, True, 0)",
            "from somelib.data import Loader\nx = Loader(1, 2, True, 4)",
        ),
        # Several lines.
        (
            "from somelib.data import Loader\nx = Loader(\n    1,\n    batch_size=2,  # two\n)",
            "from somelib.data import Loader\nx = Loader(\n    1,\n    batch_size=2,  # two\n    num_workers=4,\n)",
        ),
        (
            "from somelib.data import Loader\nx = Loader(\n    1,\n    2  # two\n)",
            "from somelib.data import Loader\nx = Loader(\n    1,\n    2,  # two\n    num_workers=4\n)",
        ),
        (
            "from somelib.data import Loader\nx = Loader(1,\n           2)",
            "from somelib.data import Loader\nx = Loader(1,\n           2, num_workers=4)",
        ),
        (
            "from somelib.data import Loader\nx = Loader(\n    *[], dataset=1)",
            "",
        ),
        (
            "from somelib.data import Loader\nx = Loader(**{'num_workers': 2})",
            "",
        ),
        # Beside this argument the change would be another one.
        ("from somelib.data import Loader\nx = Loader(1, pin=True)", ""),
        # Several candidates: only one of them used; or one that makes several.
        ("from somelib.data import Loader\nx = Loader(1)\ny = Loader(2)", ""),
        ("from somelib.data import Loader\nx = Loader(1)\nif 0: y = Loader(2)", ""),
        ("from somelib.data import Loader\nx = [Loader(i) for i in range(2)]", ""),
        # The name is another function's own, or made by something else.
        ("from somelib.data import Loader\ndef f(Loader):\n    return Loader(1)\nx = f(Loader)", ""),
        ("from somelib import data\nmake = {'a': data.Loader}\nx = make['a'](1)", ""),
    ],
)  # fmt: skip
def test_an_argument_is_given_to_the_only_call(text, expected):
    assert changed(text) == expected


def test_several_arguments_have_lines_of_their_own():
    text = "from somelib.data import Loader\nx = Loader(\n    1,\n)"
    assert changed(text, BOTH).endswith("    1,\n    num_workers=4,\n    pin=True,\n)")
    text = "from somelib.data import Loader\nx = Loader(\n    1\n)"
    assert changed(text, BOTH).endswith("    1,\n    num_workers=4,\n    pin=True\n)")


def test_what_an_earlier_cell_made_is_not_taken_for_what_this_one_makes():
    earlier = Loader(1)
    assert changed("if 0: x = Loader(2)\nlist([loader])", Loader=Loader, loader=earlier) == ""


def test_a_cell_with_magics_is_changed_in_its_own_words():
    raw = "%matplotlib inline\nx = Loader(1)"
    python = "get_ipython().run_line_magic('matplotlib', 'inline')\nx = Loader(1)"
    observed, namespace = turns("x = Loader(1)", {"Loader": Loader})
    place = WORKERS(Source(raw, namespace, python), observed)
    assert place.source.changed(place.edits) == "%matplotlib inline\nx = Loader(1, num_workers=4)"
    raw, python = "x = Loader(1); !ls", "x = Loader(1); get_ipython().system('ls')"
    place = WORKERS(Source(raw, namespace, python), observed)
    assert place.source.changed(place.edits) == ""
    with pytest.raises(SyntaxError, match="do not correspond"):
        Source("a\nb", {}, "a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("net = Net()\nfor x in y: pass", "net = Net()\nnet.go()\nfor x in y: pass"),
        ("net = Net(\n)  # a", "net = Net(\n)  # a\nnet.go()"),
        ("net = Net()\nnet = net.to(1)\ntrain(net)", "net = Net()\nnet = net.to(1)\nnet.go()\ntrain(net)"),
        # Another one in the line, in a function, in a branch, after a loop, by unpacking.
        ("net = Net(); train(net)", None),
        ("def f():\n    net = Net()", None),
        ("if a:\n    net = Net()", None),
        ("net = Net()\nfor x in y: train(net)\nnet = Net()", None),
        ("net, x = Net(), 1", None),
        ("net = Net()\nfor net in nets: pass", None),
    ],
)  # fmt: skip
def test_a_line_is_put_below_the_assignment(text, expected):
    source = Source(text, {})
    statement = source.assignment("net")
    edit = source.after(statement, "net.go()") if statement is not None else None
    assert (source.changed([edit]) if edit is not None else None) == expected


def test_lines_below_several_assignments_are_in_the_order_of_the_text():
    source = Source("a = 1\nb = 2\nc = 3", {})
    lines = [source.after(source.assignment(name), f"f({name})") for name in ("b", "a", "c")]
    assert source.changed(lines) == "a = 1\nf(a)\nb = 2\nf(b)\nc = 3\nf(c)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d = make(1)", "d = make(1).ahead(4)"),
        ("d = (\n    make(1)\n    .map(f)\n)", "d = (\n    make(1)\n    .map(f).ahead(4)\n)"),
        ("d = a if b else c", None),
        ("d = a + b", None),
    ],
)
def test_a_method_is_called_of_what_is_assigned(text, expected):
    source = Source(text, {})
    edit = source.with_method(source.assignment("d"), ".ahead(4)")
    assert (source.changed([edit]) if edit is not None else None) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import x\nfrom y import z\nf(x)", "import x\nfrom y import z\nx.a()\nx.b = 1\nf(x)"),
        ("import x  # it\n\nf(x)", "import x  # it\nx.a()\nx.b = 1\n\nf(x)"),
        # Bound by an earlier cell.
        ("f(x)", "x.a()\nx.b = 1\nf(x)"),
        ("# Text.\n\n@f\ndef g(): pass", "# Text.\n\nx.a()\nx.b = 1\n@f\ndef g(): pass"),
        ("import y\nf(x)", "import y\nx.a()\nx.b = 1\nf(x)"),
        # Bound later, or again; in the line of another; nothing but imports.
        ("f(1)\nimport x\nf(x)", None),
        ("import x\nfor x in y: f(x)", None),
        ("import x; f(x)", None),
        ("import x", None),
    ],
)  # fmt: skip
def test_statements_are_put_below_the_imports(text, expected):
    source = Source(text, {"x": 1})
    edit = source.at_begin("x.a()\nx.b = 1", "x")
    assert (source.changed([edit]) if edit is not None else None) == expected


def test_a_cell_that_begins_with_a_magic_is_not_changed_there():
    source = Source("%load it\nf(x)", {"x": 1}, "get_ipython().run_line_magic('load', 'it')\nf(x)")
    assert source.changed([source.at_begin("x.a()", "x")]) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d = make(1).map(f).repeat()", "d = make(1).map(f).cache().repeat()"),
        ("d = (\n    make(1)\n    .map(f)  # it\n    .repeat(2)\n)",
         "d = (\n    make(1)\n    .map(f).cache()  # it\n    .repeat(2)\n)"),
        ("d = (a or b).repeat()", None),
        ("d = repeat(1)", None),
    ],
)  # fmt: skip
def test_a_method_is_called_before_another_one(text, expected):
    source = Source(text, {})
    call = next(each for each in source.calls() if ast.unparse(each.func).endswith("repeat"))
    edit = source.with_method_before(call, ".cache()")
    assert (source.changed([edit]) if edit is not None else None) == expected


def test_what_ends_a_line_stands_before_the_lines_below_it():
    source = Source("d = make(1)", {})
    statement = source.assignment("d")
    below, behind = source.after(statement, "a = 1\nd.b = a"), source.with_method(statement, ".c()")
    assert source.changed([below, behind]) == "d = make(1).c()\na = 1\nd.b = a"


def test_a_decorator_is_put_above_a_function():
    source = Source("import x\nif 1:\n    def f(a):\n        return a", {})
    function = source.tree.body[1].body[0]
    edit = source.decorated(function, "jax.jit")
    assert (
        source.changed([edit]) == "import x\nif 1:\n    @jax.jit\n    def f(a):\n        return a"
    )
    source = Source("@other\ndef f(a): pass", {})
    assert source.decorated(source.tree.body[0], "jax.jit") is None


def test_a_text_that_is_not_what_the_tree_says_is_not_given():
    source = Source("x = f(1)", {})
    edit = source.with_arguments(source.calls()[0], {"a": "2"}, Loader)
    wrong = edit._replace(pieces=[edit.pieces[0]._replace(text=", b=2")])
    assert source.changed([edit]) == "x = f(1, a=2)"
    assert source.changed([wrong]) == ""
    assert source.changed([edit._replace(pieces=[edit.pieces[0]._replace(text=", a=")])]) == ""
    assert source.changed([]) == ""


def test_a_diff_has_the_changed_lines_and_some_around_them():
    before = "\n".join("abcdefghij")
    after = before.replace("c", "C").replace("j", "J")
    assert diff(before, after) == " a\n b\n-c\n+C\n d\n e\n …\n h\n i\n-j\n+J"


def test_all_parts_of_a_combination_are_located_or_none():
    def elsewhere(*_):
        return None

    text = "from somelib.data import Loader\nx = Loader(1)"
    zeros = edits.in_constructor(lambda o: o.loaders, {"shuffle": "True"})
    both = edits.together([WORKERS, zeros])
    assert changed(text, both).endswith("Loader(1, num_workers=4, shuffle=True)")
    assert changed(text, edits.together([WORKERS, elsewhere])) == ""
    assert changed(text, edits.together([WORKERS, None])) == ""


TORCH = """
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(2, 2))
opt = optim.Adam(net.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=2)
for x in loader:
    opt.zero_grad(set_to_none=False)
    loss = net(x).sum()
    loss.backward()
    opt.step()
""".lstrip()


@pytest.mark.parametrize(
    ("name", "line", "by"),
    [
        ("loader_many_workers", "loader = DataLoader(data, batch_size=2)",
         "loader = DataLoader(data, batch_size=2, num_workers={n}, persistent_workers=True, prefetch_factor=4)"),
        ("fused_optimizer", "optim.Adam(net.parameters(), lr=0.1)", "optim.Adam(net.parameters(), lr=0.1, fused=True)"),
        ("foreach_optimizer", "optim.Adam(net.parameters(), lr=0.1)", "optim.Adam(net.parameters(), lr=0.1, foreach=True)"),
        ("zero_grad", "set_to_none=False", "set_to_none=True"),
        ("channels_last", "nn.Sequential(nn.Linear(2, 2))",
         "nn.Sequential(nn.Linear(2, 2))\nnet.to(memory_format=torch.channels_last)"),
        ("torch_compile", "nn.Sequential(nn.Linear(2, 2))", "nn.Sequential(nn.Linear(2, 2))\nnet.compile()"),
        ("cpu_threads", "set_num_threads(1)", "set_num_threads({cores})"),
    ],
)  # fmt: skip
def test_experiments_of_pytorch_are_located(name, line, by):
    torch = pytest.importorskip("torch")
    from nbprof.capture.experiments.experiment import available_cores

    threads = torch.get_num_threads()
    observed = []
    for _ in range(2):
        namespace = {"data": torch.randn(4, 2)}
        exec(compile(TORCH, "<cell>", "exec"), namespace)
        net, opt, loader = namespace["net"], namespace["opt"], namespace["loader"]
        observed.append(
            SimpleNamespace(
                loaders=[loader],
                optimizers=[opt],
                roots=[SimpleNamespace(module=net)],
                names=[("net", net), ("opt", opt), ("loader", loader)],
            )
        )
    torch.set_num_threads(threads)
    experiment = next(each for each in register.EXPERIMENTS if each.name == name)
    place = experiment.edit(Source(TORCH, namespace), observed)
    text = by.format(n=4 * available_cores(), cores=available_cores())
    assert place.source.changed(place.edits) == TORCH.replace(line, text)


def of_torch(text, name, gives_floats=True, **before):
    """The cell with the change of an experiment, by two turns of it; empty if it is elsewhere."""
    torch = pytest.importorskip("torch")
    observed = []
    for _ in range(2):
        namespace = dict(before)
        exec(compile(text, "<cell>", "exec"), namespace)
        modules = [each for each in namespace.values() if isinstance(each, torch.nn.Module)]
        loaders = [
            each for each in namespace.values() if isinstance(each, torch.utils.data.DataLoader)
        ]
        observed.append(
            SimpleNamespace(
                loaders=loaders,
                roots=[
                    SimpleNamespace(
                        module=each, training=each.training, graded=True, gives_floats=gives_floats
                    )
                    for each in modules
                ],
                names=list(namespace.items()),
            )
        )
    experiment = next(each for each in register.EXPERIMENTS if each.name == name)
    place = experiment.edit(Source(text, namespace), observed)
    return place.source.changed(place.edits) if place is not None else ""


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for x in data:\n    y = net(x)  # one\n    y.sum()",
         "for x in data:\n    with torch.inference_mode():\n        y = net(x)  # one\n    y.sum()"),
        ("net(\n    data[0]\n)", "with torch.inference_mode():\n    net(\n        data[0]\n    )"),
        # A value that is returned would need more than a block around it.
        ("def f(x):\n    return net(x)\nf(data[0])", ""),
        ("y = net(data[0]); z = 1", ""),
        ("net(data[0])\nnet(data[0])", ""),
    ],
)  # fmt: skip
def test_a_call_for_inference_is_put_into_a_block(loop, expected):
    torch = pytest.importorskip("torch")
    begin = "import torch\nnet = torch.nn.Linear(2, 2).eval()\n"
    changed = of_torch(begin + loop, "inference_mode", data=[torch.ones(1, 2)])
    assert changed == (begin + expected if expected else "")


def test_the_call_of_a_model_that_also_trains_remains():
    """The cell's only call may be that of the training; an earlier cell validates."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 2)
    text = "import torch\ny = net(x)"
    roots = [
        SimpleNamespace(module=net, training=training, graded=True) for training in (True, False)
    ]
    observed = [SimpleNamespace(roots=roots, names=[("net", net)])]
    experiment = next(each for each in register.EXPERIMENTS if each.name == "inference_mode")
    assert experiment.edit(Source(text, {"torch": torch, "net": net}), observed) is None
    del roots[0]
    assert experiment.edit(Source(text, {"torch": torch, "net": net}), observed) is not None


def test_a_module_that_a_function_imports_has_no_name_in_the_cell():
    text = "def f():\n    import sys as s\n    return s\nx = 1"
    assert Source(text, {}).name_of(sys) == ""
    assert Source(f"import sys as t\n{text}", {}).name_of(sys) == "t"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("DataLoader(rows, batch_size=2, shuffle=True)",
         ("DataLoader(rows, sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(rows), 2,"
         " drop_last=False), batch_size=None)")),
        ("DataLoader(rows, 3, pin_memory=False, num_workers=0, drop_last=True)",
         ("DataLoader(rows, sampler=torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(rows), 3,"
         " drop_last=True), batch_size=None, pin_memory=False)")),
        # What the changed call would leave out.
        ("DataLoader(rows, 3, generator=None)", ""),
        ("DataLoader(TensorDataset(torch.ones(4)), 3)", ""),
    ],
)  # fmt: skip
def test_a_loader_of_rows_takes_whole_batches(call, expected):
    torch = pytest.importorskip("torch")
    begin = (
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "rows = TensorDataset(torch.arange(10.0))\nloader = "
    )
    end = "\nseen = [batch[0].tolist() for batch in loader]"
    changed = of_torch(begin + call + end, "tensors_in_batches")
    assert changed == (begin + expected + end if expected else "")
    if not expected:
        return
    batches = []
    for text in (begin + call + end, changed):
        namespace = {}
        torch.manual_seed(3)
        exec(text, namespace)
        batches.append(namespace["seen"])
    assert batches[0] == batches[1]


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for x in data:\n    y = net(x)\n    y.sum()",
         ('for x in data:\n    with torch.autocast("cpu", dtype=torch.bfloat16):\n'
          "        y = net(x).float()\n    y.sum()")),
        ("y = torch.nn.functional.mse_loss(net(x), target)",
         ('with torch.autocast("cpu", dtype=torch.bfloat16):\n'
          "    y = torch.nn.functional.mse_loss(net(x).float(), target)")),
        ("loss = torch.nn.MSELoss()\ny = loss(net(x), target)",
         ('loss = torch.nn.MSELoss()\nwith torch.autocast("cpu", dtype=torch.bfloat16):\n'
          "    y = loss(net(x).float(), target)")),
        # The block would change what else the statement computes.
        ("y = torch.matmul(net(x), target)", ""),
        ("y = torch.nn.functional.mse_loss(net(x), target @ target)", ""),
        ("y = net(x) @ target", ""),
        ("y = net(x @ target)", ""),
    ],
)  # fmt: skip
def test_a_call_in_bfloat16_is_put_into_a_block(loop, expected):
    torch = pytest.importorskip("torch")
    before = {
        "net": torch.nn.Linear(2, 2),
        "data": [torch.ones(2, 2)],
        "x": torch.ones(2, 2),
        "target": torch.ones(2, 2),
    }
    changed = of_torch(f"import torch\n{loop}", "bfloat16", **before)
    assert changed == (f"import torch\n{expected}" if expected else "")
    if changed:
        exec(changed, before)
        assert before["y"].dtype == torch.float32


def test_a_model_that_returns_several_values_is_not_put_into_a_block():
    torch = pytest.importorskip("torch")
    text = "import torch\ny = net(data)"
    before = {"net": torch.nn.Linear(2, 2), "data": torch.ones(2, 2)}
    assert of_torch(text, "bfloat16", gives_floats=False, **before) == ""


def checkpointed(text, lines, filename="<cell>", **before):
    """The changed cell, of the lines at which it computes activations again."""
    pytest.importorskip("torch.utils.checkpoint")
    namespace = dict(before)
    exec(compile(text, "<cell>", "exec"), namespace)
    places = {(filename, line) for line in lines}
    observed = [SimpleNamespace(checkpoints=places, namespace=namespace)]
    experiment = next(each for each in register.EXPERIMENTS if each.name == "no_checkpoints")
    place = experiment.edit(Source(text, namespace, filename="<cell>"), observed)
    return place.source.changed(place.edits) if place is not None else ""


AGAIN = """
import torch
from torch.utils.checkpoint import checkpoint
def block(x, scale=1.0):
    return x * scale
class Net(torch.nn.Module):
    def forward(self, x):
        x = {first}
        return {second}
y = Net()(torch.ones(2))
""".lstrip()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("checkpoint(block, x, use_reentrant=False)", "block(x)"),
        ("checkpoint(block, x, scale=2.0, use_reentrant=False)", "block(x, scale=2.0)"),
        ("torch.utils.checkpoint.checkpoint(lambda x: x + 1, x, use_reentrant=False)",
         "(lambda x: x + 1)(x)"),
        ("checkpoint(block, *[x], use_reentrant=False)", "block(*[x])"),
    ],
)  # fmt: skip
def test_checkpoints_are_left_out(before, after):
    text = AGAIN.format(first=before, second=f"{before} + 1")
    expected = AGAIN.format(first=after, second=f"{after} + 1")
    assert checkpointed(text, [7, 8]) == expected
    results = []
    for each in (text, expected):
        namespace = {}
        exec(each, namespace)
        results.append(namespace["y"].tolist())
    assert results[0] == results[1]


def test_checkpoints_of_a_library_or_with_unknown_options_remain():
    call = "checkpoint(block, x, use_reentrant=False)"
    text = AGAIN.format(first=call, second="x")
    # Line 4 is no such call; the other file is no cell.
    assert checkpointed(text, [7, 4]) == ""
    assert checkpointed(text, [7], filename=__file__) == ""
    options = "checkpoint(block, x, **dict(use_reentrant=False))"
    assert checkpointed(AGAIN.format(first=options, second="x"), [7]) == ""


TWO = """
import torch
from torch.utils.data import DataLoader, TensorDataset
rows = TensorDataset(torch.arange(8.0), {tensor})
loader = DataLoader(rows, batch_size=2, {options})
device = "cpu"
for index, (x, y) in enumerate(loader):
    x = x{copy}
    y = y.to(device{more})
    z = (x + y).to("cpu")
    z = y.to(device)
""".lstrip()


def test_a_dataset_is_moved_to_the_gpu_where_it_is_made():
    text = TWO.format(tensor="torch.ones(8)", options="pin_memory=True", copy="", more="")
    changed = of_torch(text, "tensors_on_device")
    assert 'TensorDataset(torch.arange(8.0).to("cuda"), torch.ones(8).to("cuda"))' in changed
    loader = "SequentialSampler(rows), 2, drop_last=False), batch_size=None)"
    assert loader in changed
    assert "pin_memory" not in changed
    namespace = {}
    exec(changed.replace("cuda", "cpu"), namespace)
    assert namespace["x"].tolist() == [6.0, 7.0]
    # Something else reads the dataset.
    assert of_torch(f"{text}shown = rows[0]\n", "tensors_on_device") == ""
    # What is added to a sum would be moved, and not the sum.
    text = TWO.format(tensor="torch.ones(8) + 1", options="shuffle=True", copy="", more="")
    assert of_torch(text, "tensors_on_device") == ""


def test_copies_of_what_a_loader_gives_do_not_wait():
    text = TWO.format(tensor="torch.ones(8)", options="shuffle=True", copy=".float()", more="")
    expected = TWO.format(
        tensor="torch.ones(8)",
        options="shuffle=True, pin_memory=True",
        copy=".float()",
        more=", non_blocking=True",
    )
    assert of_torch(text, "asynchronous_copies") == expected
    # Back to the CPU, of a variable that is set again, or of none of the loader's.
    for other in ('y = y.to("cpu")', "y = y.to(device)\n    y = y * 1", "w = y.to(device)"):
        changed = text.replace("y = y.to(device)\n", f"{other}\n", 1)
        assert of_torch(changed, "asynchronous_copies") == "", other


def jitted(loop, lines):
    """The changed cell, of the lines at which it wraps a function once more."""
    jax = pytest.importorskip("jax")
    text = f"import jax\ndef f(x):\n    return x + 1\ny = []\n{loop}\n"
    namespace = {"jax": jax}
    observed = [SimpleNamespace(wrapped_again={("<cell>", line) for line in lines})]
    experiment = next(each for each in register.EXPERIMENTS if each.name == "jax_jit_once")
    place = experiment.edit(Source(text, namespace, filename="<cell>"), observed)
    if place is None:
        return ""
    changed = place.source.changed(place.edits)
    results = []
    for each in (text, changed):
        namespace = {}
        exec(each, namespace)
        results.append([float(value) for value in namespace["y"]])
    assert results[0] == results[1] != []
    return changed.removeprefix(text[: text.index("y = []") + 7]).rstrip("\n")


@pytest.mark.parametrize(
    ("loop", "line", "expected"),
    [
        ("for x in (1.0, 2.0):\n    y.append(jax.jit(f)(x))", 6,
         "jitted_f = jax.jit(f)\nfor x in (1.0, 2.0):\n    y.append(jitted_f(x))"),
        ("for x in (1.0, 2.0):\n    step = jax.jit(f, donate_argnums=(0,))  # fast\n    y += [step(x)]", 6,
         ("step = jax.jit(f, donate_argnums=(0,))\nfor x in (1.0, 2.0):\n"
          "    y += [step(x)]")),
        # In a function, and above the outer one of two loops.
        ("def run():\n    for _ in range(2):\n        for x in (1.0, 2.0):\n            y.append(jax.jit(f)(x))\nrun()", 8,
         ("def run():\n    jitted_f = jax.jit(f)\n    for _ in range(2):\n        for x in (1.0, 2.0):\n"
          "            y.append(jitted_f(x))\nrun()")),
        # Another function in each round, or options that are not known before.
        ("for f in (f, f):\n    y.append(jax.jit(f)(1.0))", 6, ""),
        ("for n in ((), (0,)):\n    y.append(jax.jit(f, static_argnums=n)(1.0))", 6, ""),
        ("for x in (1.0, 2.0):\n    y.append(jax.jit(lambda v: v)(x))", 6, ""),
        # No loop around it.
        ("def run(x):\n    return jax.jit(f)(x)\nfor x in (1.0, 2.0):\n    y.append(run(x))", 6, ""),
    ],
)  # fmt: skip
def test_a_function_is_jitted_above_the_loop(loop, line, expected):
    assert jitted(loop, [line]) == expected


def test_a_function_that_another_line_wraps_again_remains():
    assert jitted("for x in (1.0, 2.0):\n    y.append(jax.jit(f)(x))", [2]) == ""


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("cpu_threads", "torch.set_num_threads({cores})"),
        ("tf32", 'torch.set_float32_matmul_precision("high")'),
        ("cudnn_benchmark", "torch.backends.cudnn.benchmark = True"),
        ("attention_kernels", "torch.backends.cuda.enable_flash_sdp(True)"),
    ],
)
def test_settings_of_pytorch_are_put_before_the_rest_of_the_cell(name, lines, monkeypatch):
    torch = pytest.importorskip("torch")
    from nbprof.capture.experiments import torch_settings
    from nbprof.capture.experiments.experiment import available_cores

    monkeypatch.setattr(torch_settings, "_enabled", lambda: (False, True, True))
    experiment = next(each for each in register.EXPERIMENTS if each.name == name)
    text = "import torch\nmodel(x)"
    place = experiment.edit(Source(text, {"torch": torch}), [])
    expected = f"import torch\n{lines.format(cores=available_cores())}\nmodel(x)"
    assert place.source.changed(place.edits) == expected
    assert experiment.edit(Source("model(x)", {}), []) is None


DATA = """
import tensorflow as tf
data = tf.data.Dataset.range(8).map(lambda x: x * 3){rest}
for x in data:
    total = x
""".lstrip()


def of_pipeline(name, text, epochs=1):
    """The changed cell of an experiment on its dataset, which two turns make."""
    observed = []
    for _ in range(2):
        namespace: dict = {}
        exec(compile(text, "<cell>", "exec"), namespace)
        data = namespace["data"]
        observed.append(SimpleNamespace(datasets=[data], names=[("data", data)], epochs=epochs))
    experiment = next(each for each in register.EXPERIMENTS if each.name == name)
    place = experiment.edit(Source(text, namespace), observed)
    return place.source.changed(place.edits) if place is not None else None


def test_threads_of_a_pipeline_are_set_below_it():
    pytest.importorskip("tensorflow")
    text = DATA.format(rest=".batch(2)")
    changed = of_pipeline("tf_data_threads", text)
    assert changed == text.replace(
        ".batch(2)\n",
        ".batch(2)\npipeline_options = tf.data.Options()\n"
        "pipeline_options.threading.private_threadpool_size = 16\n"
        "data = data.with_options(pipeline_options)\n",
    )
    namespace: dict = {}
    exec(compile(changed, "<cell>", "exec"), namespace)
    assert namespace["data"].options().threading.private_threadpool_size == 16
    assert of_pipeline("tf_data_threads", f"pipeline_options = 1\n{text}") is None


@pytest.mark.parametrize(
    ("rest", "epochs", "cached"),
    [
        (".repeat(2).batch(2)", 1, ".cache().repeat(2).batch(2)"),
        (".batch(2)", 3, ".batch(2).cache()"),
        # The order of a shuffle differs in each epoch.
        (".shuffle(8).batch(2)", 3, ".cache().shuffle(8).batch(2)"),
        (".repeat(2)\ndata = data.batch(2)", 1, None),
        (".repeat(2).repeat(1)", 1, None),
    ],
)
def test_a_cache_is_put_where_the_experiment_has_it(rest, epochs, cached):
    pytest.importorskip("tensorflow")
    changed = of_pipeline("tf_data_cache", DATA.format(rest=rest), epochs)
    assert changed == (DATA.format(rest=cached) if cached is not None else None)


ITEMS = """
import tensorflow as tf
rows = tf.data.Dataset.range(8)
data = rows{chain}
seen = [item.numpy().tolist() for item in data]
""".lstrip()


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (".map(lambda x: x * 3).batch(4)", ".batch(4).map(of_batch)"),
        (".map(lambda x: x * 3, num_parallel_calls=2).batch(4, drop_remainder=True).prefetch(1)",
         ".batch(4, drop_remainder=True).map(of_batch, num_parallel_calls=2).prefetch(1)"),
        # Not beside each other, or in lines of their own.
        (".map(lambda x: x * 3).repeat(2).batch(4)", ""),
        (".map(\n    lambda x: x * 3\n).batch(4)", ""),
        (".map(lambda x: x * 3).batch(4).unbatch().batch(2)", ""),
    ],
)  # fmt: skip
def test_a_map_is_put_behind_the_batch(chain, expected):
    tensorflow = pytest.importorskip("tensorflow")
    text = ITEMS.format(chain=chain)
    changed = of_pipeline("tf_data_vectorized_map", text)
    if not expected:
        assert changed is None
        return
    function = (
        "def of_batch(*items):\n"
        "    return tf.vectorized_map(lambda row: (lambda x: x * 3)(*row), items)\n"
    )
    assert changed == ITEMS.format(chain=expected).replace("data = ", f"{function}data = ")
    results = []
    for each in (text, changed):
        namespace = {"tf": tensorflow}
        exec(each, namespace)
        results.append(namespace["seen"])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        ("x = f()\nx.block_until_ready()  # wait\ng(x)", [2], "x = f()\ng(x)"),
        ("for i in y:\n    x = f()\n    x.block_until_ready()", [3], "for i in y:\n    x = f()"),
        ("if y:\n    f()\nelse:\n    g()\n    a.block_until_ready((\n        x[0], y.z))\nh()", [5],
         "if y:\n    f()\nelse:\n    g()\nh()"),
        ("a.synchronize()\nx = 1\na.synchronize()\nb.synchronize()", [1, 3, 4], "x = 1"),
        # It computes, or gives its value; stands with others; is all that the loop does.
        ("f(x).block_until_ready()", [1], None),
        ("y = x.block_until_ready()", [1], None),
        ("x = f(); x.block_until_ready()", [1], None),
        ("for x in y: x.block_until_ready()", [1], None),
        ("f()\nx.other()", [2], None),
        ("for x in y:\n    x.block_until_ready()\nf()", [2], ""),
    ],
)  # fmt: skip
def test_lines_that_only_wait_are_left_out(text, lines, expected):
    source = Source(text, {}, filename="<cell>")
    observed = SimpleNamespace(waits={"jax": {("<cell>", line) for line in lines}})
    place = edits.without_waits("jax")(source, [observed])
    assert (source.changed(place.edits) if place is not None else None) == expected
    # Another file waits as well.
    observed.waits["jax"].add(("library.py", 1))
    assert edits.without_waits("jax")(source, [observed]) is None


def test_the_lines_that_wait_are_noted():
    jax = pytest.importorskip("jax")
    from nbprof.capture.experiments.observation import Observation
    from nbprof.capture.patches import Patches

    text = "x = jax.numpy.ones(2)\nx.block_until_ready()\njax.block_until_ready([x, x])\n"
    observation, patches = Observation(), Patches()
    try:
        observation.hook(patches)
        exec(compile(text, "<cell>", "exec"), {"jax": jax})
    finally:
        patches.restore()
    # The second one waits by a method of each array, too.
    assert observation.waits == {"jax": {("<cell>", 2), ("<cell>", 3)}}
    experiment = next(each for each in register.EXPERIMENTS if each.name == "jax_no_waits")
    place = experiment.edit(Source(text, {}, filename="<cell>"), [observation])
    assert place.source.changed(place.edits) == text.partition("\n")[0] + "\n"


KERAS = """
import keras
class Data(keras.utils.PyDataset):
    def __init__(self, size):
        super().__init__()
        self.size = size
    def __len__(self):
        return self.size
    def __getitem__(self, at):
        return at
data = Data(4)
""".lstrip()


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (KERAS, ("super().__init__()", "super().__init__({})")),
        # The class of an earlier cell with the constructor of Keras, and with its own.
        ("data = Plain()", ("Plain()", "Plain({})")),
        ("data = Own()", None),
        (KERAS.replace("        super", "        super().__init__()\n        super"), None),
        (KERAS.replace("data = ", "other = Data(3)\ndata = Own() if 0 else "), None),
    ],
)
def test_threads_of_a_py_dataset_are_given_to_its_constructor(text, changes):
    keras = pytest.importorskip("keras")
    from nbprof.capture.experiments.keras_input import _ARGUMENTS

    class Plain(keras.utils.PyDataset):
        def __len__(self):
            return 1

    class Own(Plain):
        def __init__(self):
            super().__init__(workers=1)

    observed = []
    for _ in range(2):
        namespace = {"Plain": Plain, "Own": Own}
        exec(compile(text, "<cell>", "exec"), namespace)
        made = [each for each in namespace.values() if isinstance(each, keras.utils.PyDataset)]
        observed.append(SimpleNamespace(py_datasets=made, names=[]))
    experiment = next(each for each in register.EXPERIMENTS if each.name == "keras_workers")
    place = experiment.edit(Source(text, namespace), observed)
    changed = place.source.changed(place.edits) if place is not None else None
    arguments = ", ".join(f"{name}={value}" for name, value in _ARGUMENTS.items())
    expected = None
    if changes is not None:
        expected = text.replace(changes[0], changes[1].format(arguments))
    assert changed == expected


def test_a_function_of_tensorflow_is_decorated_in_its_cell():
    tf = pytest.importorskip("tensorflow")
    import linecache

    from nbprof.capture.experiments.observation import Call, Observation

    text = "import tensorflow as tf\ndef step(x):\n    return x * 2\n"
    linecache.cache["<step>"] = (len(text), None, text.splitlines(keepends=True), "<step>")
    try:
        namespace: dict = {}
        exec(compile(text, "<step>", "exec"), namespace)
        observation = Observation()
        step = namespace["step"]
        observation.calls = {step.__code__: Call(8, outermost=True, of_arrays=True)}
        observation.seen = [step]
        experiment = next(each for each in register.EXPERIMENTS if each.name == "tf_function")
        place = experiment.edit(Source("step(x)", {"tf": tf}), [observation, observation])
        assert place.source.changed(place.edits) == text.replace("def", "@tf.function\ndef")
    finally:
        del linecache.cache["<step>"]


def test_a_function_of_an_earlier_cell_is_found_there():
    import linecache

    text = "import jax\nx = 1\ndef step(a):\n    return a\n"
    linecache.cache["<earlier>"] = (len(text), None, text.splitlines(keepends=True), "<earlier>")
    try:
        namespace: dict = {"jax": ast}
        exec(compile(text.replace("import jax\n", "\n"), "<earlier>", "exec"), namespace)
        source, definition = of_function(namespace["step"])
        edit = source.decorated(definition, "jax.jit")
        assert "+@jax.jit" in diff(text, source.changed([edit]))
    finally:
        del linecache.cache["<earlier>"]
    # One of a file is not of a cell.
    assert of_function(test_a_function_of_an_earlier_cell_is_found_there) is None
