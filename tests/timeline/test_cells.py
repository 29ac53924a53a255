"""Python calls of a notebook's cells are named by the cell."""

from __future__ import annotations

import json

import pytest

import nbprof
from nbprof.capture import describe
from nbprof.core.cells import readable, stem
from nbprof.core.sidecar import SIDECAR
from nbprof.sources.recording import CaptureInfo
from tests.support.chrome import complete, document

FILE = "/tmp/ipykernel_4711/1234567890.py"
CELLS = {"1234567890": 3}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"{FILE}(12): train", "Cell [3](12): train"),
        (
            "C:\\Users\\me\\Temp\\ipykernel_4711\\1234567890.py(1): <module>",
            "Cell [3](1): <module>",
        ),
        ("/tmp/ipykernel_4711/42.py(1): <module>", "Cell(1): <module>"),
        ("$1234567890.py:7 train", "$Cell [3]:7 train"),
        ("$42.py:7 train", "$42.py:7 train"),
        (
            f"{FILE}(2): f\nrunpy.py(196): _run_module_as_main",
            "Cell [3](2): f\nrunpy.py(196): _run_module_as_main",
        ),
        ("/srv/me/train.py(3): main", "/srv/me/train.py(3): main"),
    ],
)
def test_the_file_of_a_cell_gives_way_to_its_number(text, named):
    assert readable(text, CELLS) == named


def test_a_cell_has_its_number_in_the_trace(tmp_path):
    (tmp_path / "a.pt.trace.json").write_text(
        json.dumps(document(complete(f"{FILE}(12): train", 0, 100, cat="python_function")))
    )
    assert "Cell(12): train" in nbprof.load(tmp_path).payload()["trace"]["names"]
    (tmp_path / SIDECAR).write_text(json.dumps(CaptureInfo(backend="torch", cells=CELLS).to_dict()))
    p = nbprof.load(tmp_path)
    assert "Cell [3](12): train" in p.payload()["trace"]["names"]
    assert not any("ipykernel" in str(name) for name in p.payload()["trace"]["names"])


def test_counts_that_are_none_are_left_out():
    assert CaptureInfo.from_dict({"cells": {"1": 2, "3": "x", "4": True}}).cells == {"1": 2}


def test_the_kernel_tells_which_cell_a_file_is(monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    monkeypatch.setattr(
        shell.compile,
        "_filename_map",
        {FILE: 3, "/srv/me/train.py": 4, "/tmp/ipykernel_4711/5.py": 0},
    )
    assert stem(FILE) == "1234567890"
    assert describe.cells() == CELLS
