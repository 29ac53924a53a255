"""docs/capture.md names each option as it is, and what it shows runs as it stands there."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.options import Options
from nbprof.capture.remote.sampling import Sampling
from nbprof.notebook.cell import Show
from nbprof.notebook.options_line import parser as _parser
from tests.support import options_page
from tests.support.profiles import require

PAGE = Path(__file__).resolve().parents[2] / "docs" / "capture.md"


def section(title):
    return re.search(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )[1]


def rows(title):
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_each_option_of_the_magic_has_its_row():
    named = {
        option: row
        for row in rows("Options")
        for option in re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", row[0])
    }
    parser = _parser()
    assert set(named) == {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if action.metavar:
            assert (
                f"{action.option_strings[-1]} {action.metavar}`"
                in named[action.option_strings[-1]][0]
            )


@pytest.mark.parametrize("path", options_page.files(), ids=lambda path: path.name)
def test_what_is_built_from_the_options_is_up_to_date(path):
    assert path.read_text() == options_page.files()[path], (
        "write it anew: python -m tests.support.options_page"
    )


def test_the_docstrings_name_each_option():
    for cls in (Options, Sampling, Show):
        names = re.findall(r"^(\w+) : ", cls.__doc__, re.MULTILINE)
        assert names == [field.name for field in dataclasses.fields(cls)]


def test_the_sentences_on_steps_are_those_that_are_said():
    import nbprof.capture

    room = Path(nbprof.capture.__path__[0])
    source = "\n".join(
        path.read_text()
        for path in [*room.glob("*.py"), *room.parent.glob("*.py"), room.parent / "core/sidecar.py"]
    )
    said = [row[2].strip("`").removeprefix("steps: ") for row in rows("Steps")]
    assert len(said) >= 6
    for sentence in said:
        assert f'"{sentence}"' in source, sentence


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    require("tensorflow")
    import keras
    import numpy as np

    monkeypatch.chdir(tmp_path)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((64, 4), "f"), np.ones((64, 1), "f")
    data = importlib.import_module("tensorflow").data.Dataset.from_tensor_slices((x, y)).batch(8)
    names = {
        "nbprof": nbprof,
        "model": model,
        "data": data,
        "train": lambda: model.fit(data, verbose=0),
    }
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(names["p"].steps.frame) == 8
    assert names["fit"].profile.steps.frame["step"].tolist() == [2, 3]
    line = re.search(r"^    (nbprof: .*?) in logs", PAGE.read_text(), re.MULTILINE)[1]
    assert f"{line} in {tmp_path / 'logs'}" in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()


def test_code_with_other_libraries_compiles():
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, str(PAGE), "exec")


@pytest.mark.parametrize(
    "text", sorted(set(re.findall(r"`(nbprof\.[A-Za-z_]+(?:\.[A-Za-z_]+)*)", PAGE.read_text())))
)
def test_what_the_page_names_is_there(text):
    if text.startswith("nbprof.keras"):
        require("keras")
    thing = nbprof
    for name in text.split(".")[1:]:
        assert hasattr(thing, name) or name == "last"
        thing = getattr(thing, name, None)
