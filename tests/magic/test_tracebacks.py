"""What tests say of nbprof's frames in a traceback holds in a clone of any name."""

from __future__ import annotations

import sys

import pytest
from IPython.core.ultratb import FormattedTB

from nbprof.capture.torch_trace import rank_and_size, worker
from tests.support import tracebacks
from tests.support.tracebacks import PACKAGE, frames, own


@pytest.fixture
def traceback(monkeypatch):
    """A traceback with one frame of nbprof."""
    monkeypatch.setattr(worker.__globals__["socket"], "gethostname", lambda: 7)
    monkeypatch.delenv("RANK", raising=False)
    assert rank_and_size() == (None, None)
    try:
        worker()
    except TypeError:
        return FormattedTB("Context").text(*sys.exc_info())
    raise AssertionError("a number is no name of a host")


def test_a_frame_of_nbprof_is_found(traceback, tmp_path):
    assert own(traceback, tmp_path) == [(PACKAGE / "capture" / "torch_trace.py", "worker")]


def test_a_frame_of_nbprof_below_the_home_folder_is_found(monkeypatch, request, tmp_path):
    monkeypatch.setenv("HOME", str(PACKAGE.parent))
    monkeypatch.setenv("USERPROFILE", str(PACKAGE.parent))
    traceback = request.getfixturevalue("traceback")
    assert "~" in traceback
    assert own(traceback, tmp_path) == [(PACKAGE / "capture" / "torch_trace.py", "worker")]


def test_a_folder_that_is_called_nbprof_is_not_nbprof(monkeypatch, tmp_path):
    script = tmp_path / "a b" / "nbprof" / "fit.py"
    shown = f"ValueError  Traceback (most recent call last)\n\nFile {script}:3, in fit(x)\n      2 x\n----> 3 y\n\nFile <timed exec>:1\n"
    assert frames(shown, tmp_path) == [(script, "fit"), (tmp_path / "<timed exec>", "")]
    assert own(shown, tmp_path) == []
    monkeypatch.setattr(tracebacks, "PACKAGE", script.parent)
    assert own(shown, tmp_path) == [(script, "fit")]
