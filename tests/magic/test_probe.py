"""`%%nbprof --probe input` in a real kernel: what a step takes without its input, and a notebook
that is as the first run left it.
"""

from __future__ import annotations

import ast

import pytest

from tests.support.profiles import require

SLOW_DATA = """
import os, time, threading, nbprof
def rows():
    for _ in range(10):
        time.sleep(0.08)
        yield [[1.0] * 4] * 8, [[1.0]] * 8
slow = tf.data.Dataset.from_generator(rows, output_signature=(tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1))))
slow = slow.apply(tf.data.experimental.assert_cardinality(10))
def again():
    "Whether this is the second run; an environment variable is not put back."
    seen = "PROBED" in os.environ
    os.environ["PROBED"] = "1"
    return seen
def batches():
    for _ in range(6):
        time.sleep(0.05)
        yield 1
"""


@pytest.fixture(scope="module", autouse=True)
def ready(kernel):
    assert kernel.run(SLOW_DATA).status == "ok"


@pytest.fixture(autouse=True)
def first(kernel):
    kernel.run("os.environ.pop('PROBED', None)")


def told(kernel, profile="nbprof.last"):
    return ast.literal_eval(kernel.ask(f"{profile}.overview.get('probe')"))


def test_a_step_without_input_is_measured_beside_what_was_predicted(kernel):
    result = kernel.run(
        "%%nbprof --probe input -o p\nprint('once')\nhistory = model.fit(slow, verbose=0)\nkept = model.get_weights()\nrun_of = again()"
    )
    assert (result.status, len(result.dashboards), result.stdout) == ("ok", 1, "once\n"), (
        result.traceback
    )
    probe = told(kernel, "p")
    step = float(kernel.ask("float(p.overview['step_time_ms'])"))
    waiting = float(kernel.ask("float(p.steps.summary.set_index('category')['mean_ms']['input'])"))
    assert probe["predicted_ms"] == pytest.approx(step - waiting)
    assert 0 < probe["measured_ms"] < step
    assert probe["text"] == (
        f"With instant input, a step takes {probe['measured_ms']:.2f} ms (measured; predicted {probe['predicted_ms']:.2f} ms)."
    )
    assert "slow (tf.data), 10 batches" in probe["detail"]
    assert "9 of 10 steps of it are averaged" in probe["detail"]
    assert probe["text"] in result.displays[0]["text/html"]
    assert probe["text"] in result.displays[0]["text/plain"]
    assert kernel.ask("all((a == b).all() for a, b in zip(kept, model.get_weights()))") == "True"
    assert kernel.ask("model.history is history") == "True"
    assert kernel.ask("(run_of, nbprof.last is p)") == "(False, True)"
    assert told(kernel, "nbprof.load(p.path)") == probe
    assert kernel.idle()


def test_quietly_and_for_one_statement(kernel):
    result = kernel.run("%nbprof --quiet --probe input model.fit(slow, verbose=0)")
    assert (result.status, result.displays, "nbprof:" in result.stderr) == ("ok", [], False)
    assert told(kernel)["measured_ms"] > 0


def test_a_magic_in_the_cell_may_train_any_model(kernel):
    kernel.run("weights = model.get_weights()")
    result = kernel.run(
        "%%nbprof --probe input\n%time history = model.fit(slow, verbose=0)\nkept = model.get_weights()"
    )
    assert (result.status, told(kernel)["measured_ms"] > 0) == ("ok", True), told(kernel)
    assert kernel.ask("all((a == b).all() for a, b in zip(kept, model.get_weights()))") == "True"
    assert kernel.ask("all((a == b).all() for a, b in zip(weights, kept))") == "False"


def test_what_cannot_be_put_back_has_to_be_asked_for(kernel):
    kernel.run("lock = threading.Lock()")
    cell = "with lock:\n    for x in nbprof.steps(slow):\n        n = again()"
    result = kernel.run(f"%%nbprof --probe input\n{cell}")
    assert (result.status, len(result.dashboards), kernel.ask("n")) == ("ok", 1, "True")
    probe = told(kernel)
    assert probe["text"] == (
        "The input was not probed: lock (lock) could not be restored after a second run. The cell was not run again; --probe-in-place "
        "runs it anyway."
    )
    assert (probe["measured_ms"], probe["predicted_ms"] > 0) == (None, True)
    assert probe["text"] in result.displays[0]["text/html"]
    kernel.run(f"%%nbprof --probe-in-place\n{cell}")
    probe = told(kernel)
    assert probe["measured_ms"] > 0
    assert (
        "What it changed stays changed in lock (lock); everything else was restored."
        in probe["detail"]
    )


def test_an_iterator_that_the_first_run_has_used_up(kernel):
    kernel.run("left = batches()")
    kernel.run(
        "%%nbprof --probe input\nfor x in nbprof.steps(left):\n    model.predict_on_batch(x_)".replace(
            "x_", "np.ones((8, 4))"
        )
    )
    assert told(kernel)["text"] == (
        "The input was not probed: the first run has used up left. Make the iterator in the cell itself. The cell was not run again."
    )


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (
            "raise ValueError('twice\\nno')",
            "the second run failed: ValueError: twice. What it changed was put back.",
        ),
        (
            "os.kill(os.getpid(), 2); time.sleep(5)",
            "the second run was interrupted. What it changed was put back.",
        ),
        ("raise SystemExit", "the second run failed: SystemExit. What it changed was put back."),
    ],
)
def test_a_second_run_that_fails_leaves_nothing(kernel, happens, says):
    kernel.run("weights = model.get_weights()\nkept = []")
    result = kernel.run(
        f"%%nbprof --probe input\nkept.append(1)\nfor x in nbprof.steps(slow):\n    y = 1\nif again():\n    model.set_weights([w * 0 for w in weights])\n    {happens}"
    )
    assert (result.status, len(result.dashboards), result.errors) == ("ok", 1, 0), result.traceback
    assert told(kernel)["text"] == f"The input was not probed: {says}"
    assert (
        kernel.ask("kept, all((a == b).all() for a, b in zip(weights, model.get_weights()))")
        == "([1], True)"
    )
    assert (
        kernel.ask("tf.data.Dataset.__iter__.__module__")
        == "'tensorflow.python.data.ops.dataset_ops'"
    )
    assert kernel.idle()


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (
            "for x in nbprof.steps([1, 2, 3]):\n    tf.ones(1)",
            "the cell reads no dataset of tf.data and no DataLoader",
        ),
        ("for x in slow:\n    tf.ones(1)", "the second run still waits for input, "),
        (
            "for x in nbprof.steps(slow.take(1)):\n    tf.ones(1)",
            "each step of the second run read the first batch of an input",
        ),
        (
            "for x in nbprof.steps(slow.take(1 - again())):\n    pass",
            "a dataset of tf.data yielded no batch in the second run.",
        ),
        (
            "for x in nbprof.steps(zip(slow, batches())):\n    pass",
            "the second run still waits for input, ",
        ),
        (
            "import asyncio\nawait asyncio.sleep(0)\nfor x in nbprof.steps(slow):\n    pass",
            "a cell with a top-level await cannot be run again.",
        ),
    ],
)
def test_why_there_is_no_figure(kernel, cell, says):
    result = kernel.run(f"%%nbprof --probe input\n{cell}")
    assert (result.status, len(result.dashboards)) == ("ok", 1), result.traceback
    probe = told(kernel)
    assert probe["text"].startswith(f"The input was not probed: {says}")
    assert probe["measured_ms"] is None


def test_a_cell_that_fails_is_not_run_again(kernel):
    result = kernel.run(
        "%%nbprof --probe input\nfor x in nbprof.steps(slow):\n    n = again()\n    raise ValueError"
    )
    assert (result.status, kernel.ask("n")) == ("error", "False")
    assert told(kernel)["text"] == "The input was not probed: the cell did not finish."


def test_it_is_no_default_and_takes_what_it_knows(kernel):
    assert "-h lists" in kernel.run("%%nbprof --probe everything\nran = True").message
    assert kernel.run("%nbprof defaults --probe input").error == "UsageError"
    assert kernel.run("%nbprof defaults").stdout.startswith("No default")


def test_a_loop_in_jax_and_one_in_pytorch(kernel):
    require("jax", "torch")
    kernel.run(
        "import jax, torch, functools\nstate = {'w': jax.numpy.ones(8)}\n"
        "@functools.partial(jax.jit, donate_argnums=0)\ndef update(state, x):\n    return {'w': state['w'] + x}\n"
        "net = torch.nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
        "class Rows(torch.utils.data.Dataset):\n    def __len__(self):\n        return 12\n"
        "    def __getitem__(self, at):\n        time.sleep(0.02)\n        return torch.ones(4)\n"
        "loader = torch.utils.data.DataLoader(Rows(), batch_size=2)\n"
    )
    result = kernel.run(
        "%%nbprof --probe input --backend jax\nfor x in nbprof.steps(batches()):\n    state = update(state, x)"
    )
    assert (result.status, told(kernel)["measured_ms"] > 0) == ("ok", True), told(kernel)
    assert "the items of nbprof.steps, 6 batches" in told(kernel)["detail"]
    assert kernel.ask("float(state['w'][0])") == "7.0"
    result = kernel.run(
        "%%nbprof --probe input --backend torch\nfor x in loader:\n    opt.zero_grad(); net(x).sum().backward(); opt.step()\n"
        "kept = net.weight.detach().clone()"
    )
    assert (result.status, told(kernel)["measured_ms"] > 0) == ("ok", True), told(kernel)
    assert "loader (DataLoader), 6 batches" in told(kernel)["detail"]
    assert kernel.ask("bool((kept == net.weight).all())") == "True"
