"""`%%nbprof --try` in a real kernel: what was tried is shown, and the notebook is as the run left it."""

from __future__ import annotations

import ast

import pytest

READY = """
import os, time, threading
def wait(x):
    time.sleep(0.01)
    return x
def mapped(x):
    x = tf.numpy_function(wait, [x], tf.float32)
    x.set_shape((8, 4))
    return x, tf.reduce_sum(x, 1, keepdims=True)
options = tf.data.Options()
options.threading.private_threadpool_size = 8
rows = np.ones((16, 8, 4), np.float32)
slow = tf.data.Dataset.from_tensor_slices(rows).map(mapped).with_options(options)
"""


@pytest.fixture(scope="module", autouse=True)
def ready(kernel):
    result = kernel.run(READY)
    assert result.status == "ok", result.traceback


def test_a_remedy_is_measured_and_shown_everywhere(kernel):
    result = kernel.run(
        "%%nbprof --try tf_data_parallel_map --budget 200 -o p\nprint('once')\n"
        "history = model.fit(slow, verbose=0)\nkept = model.get_weights()"
    )
    assert (result.status, len(result.dashboards), result.stdout) == ("ok", 1, "once\n"), (
        result.traceback
    )
    rows = ast.literal_eval(kernel.ask("p.tried[['experiment', 'why']].values.tolist()"))
    assert [row[0] for row in rows] == ["tf_data_parallel_map"]
    # How much it saves depends on what else the machine does.
    assert kernel.ask("bool((p.tried.pairs >= 6).all() and p.tried.equal.all())") == "True", rows
    assert kernel.ask("all((a == b).all() for a, b in zip(kept, model.get_weights()))") == "True"
    assert kernel.ask("model.history is history") == "True"
    shown = result.displays[0]
    assert "parallel calls of each map" in shown["text/html"]
    assert "parallel calls of each map saves " in shown["text/plain"]
    assert kernel.ask("nbprof.load(p.path).tried.equals(p.tried)") == "True"
    assert kernel.ask("'Tried' in p.text()") == "True"
    assert (
        kernel.ask(
            "bool(p.advice.rule.isin(['map_serial']).any()) =="
            " bool(p.advice.evidence.str.contains('Tried: parallel calls').any())"
        )
        == "True"
    )
    assert kernel.idle()


def test_what_cannot_be_restored_is_said_and_nothing_is_tried(kernel):
    kernel.run("lock = threading.Lock()")
    result = kernel.run("%%nbprof --try eager\nwith lock:\n    model.fit(slow, verbose=0)")
    assert (result.status, len(result.dashboards)) == ("ok", 1)
    text = kernel.ask("nbprof.last.overview['tried']")
    assert text == repr("Nothing was tried: lock (lock) could not be restored after a second run.")
    assert "Nothing was tried: lock (lock)" in result.displays[0]["text/html"]


def test_without_the_option_nothing_is_tried(kernel):
    result = kernel.run("%%nbprof\nmodel.fit(slow, verbose=0)")
    assert result.status == "ok"
    assert kernel.ask("len(nbprof.last.tried), 'tried' in nbprof.last.overview") == "(0, False)"
    assert "Tried" not in result.displays[0]["text/html"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%%nbprof --try magic", "--try magic: there is no experiment for it"),
        ("%%nbprof --try --budget -1", "--budget -1.0: the budget is a number of seconds above 0"),
        ("%nbprof defaults --try", "--try runs a cell again, so it cannot be a default"),
    ],
)
def test_invalid_options_are_refused_before_the_cell_runs(kernel, line, says):
    body = "\nran = True" if line.startswith("%%") else ""
    kernel.run("ran = False")
    result = kernel.run(line + body)
    assert says in str(result.traceback) + result.stderr
    assert kernel.ask("ran") == "False"
