"""What a recording of a cell is called."""

from __future__ import annotations

import ast
import json
from types import SimpleNamespace

import pytest

from nbprof.notebook.cell import notebook_name, recording_label


@pytest.mark.parametrize(
    ("session", "names", "label", "notebook"),
    [
        (
            "/srv/notebooks/training.ipynb",
            {"In": ["", "a", "b", "c"]},
            "training [3]",
            "training.ipynb",
        ),
        (
            "",
            {"In": ["", "a"], "__vsc_ipynb_file__": r"C:\\work\\fit.ipynb"},
            "fit [1]",
            "fit.ipynb",
        ),
        ("training.ipynb", {}, "training", "training.ipynb"),
        ("RTC:training.ipynb", {"In": ["", "a"]}, "training [1]", "training.ipynb"),
        ("", {"In": ["", "a"]}, "", ""),
        ("console-1", {"In": ["", "a"]}, "", ""),
    ],
)
def test_a_recording_is_called_by_notebook_and_cell(monkeypatch, session, names, label, notebook):
    monkeypatch.setenv("JPY_SESSION_NAME", session)
    shell = SimpleNamespace(user_ns=names)
    assert (recording_label(shell), notebook_name(shell)) == (label, notebook)


def test_the_number_is_that_of_the_cell(bare_kernel):
    asked = "__import__('nbprof.notebook.cell', fromlist=['recording_label']).recording_label(get_ipython())"
    bare_kernel.run("import os; os.environ['JPY_SESSION_NAME'] = 'training.ipynb'")
    reply = bare_kernel.client.execute_interactive(
        "pass", user_expressions={"label": asked}, store_history=True
    )["content"]
    assert (
        ast.literal_eval(reply["user_expressions"]["label"]["data"]["text/plain"])
        == f"training [{reply['execution_count']}]"
    )


@pytest.mark.parametrize("pressed", [True, False])
def test_a_recording_has_the_number_of_its_cell_however_it_was_asked_for(bare_kernel, pressed):
    bare_kernel.run(
        "import os, nbprof; os.environ['JPY_SESSION_NAME'] = 'training.ipynb'\n%load_ext nbprof"
    )
    code = "total = sum(i * i for i in range(200_000))"
    if pressed:
        request = json.dumps({"text": code, "options": "--backend python"})
        asked = f"__import__('nbprof.notebook.profile_button', fromlist=['arm']).arm({request!r})"
        bare_kernel.client.execute_interactive(
            "", silent=True, user_expressions={"armed": asked}, output_hook=lambda _: None
        )
    else:
        code = f"%%nbprof --backend python\n{code}"
    reply = bare_kernel.client.execute_interactive(
        code, store_history=True, output_hook=lambda _: None
    )["content"]
    assert bare_kernel.ask("nbprof.last.run.capture.label") == repr(
        f"training [{reply['execution_count']}]"
    )
