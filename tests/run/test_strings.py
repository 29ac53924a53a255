"""Texts are Python's strings while nbprof computes, whatever pandas would take; pandas is left as
it was.
"""

from __future__ import annotations

import threading

import pandas as pd
import pytest

from nbprof.core.strings import python_strings
from nbprof.profiles.load import read
from tests.support.xspace import training_run

OPTION = "mode.string_storage"


@pytest.fixture
def arrow():
    """What pandas takes where pyarrow is installed."""
    with pd.option_context(OPTION, "pyarrow"):
        yield


def test_pandas_is_left_as_it_was(arrow):
    with python_strings(), python_strings():
        assert pd.get_option(OPTION) == "python"
    assert pd.get_option(OPTION) == "pyarrow"
    with pytest.raises(ZeroDivisionError), python_strings():
        _ = 1 / 0
    assert pd.get_option(OPTION) == "pyarrow"


def test_the_last_of_two_threads_puts_it_back(arrow):
    within, leave = threading.Event(), threading.Event()

    def other():
        with python_strings():
            within.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with python_strings():
        thread.start()
        within.wait(10)
    assert pd.get_option(OPTION) == "python"
    leave.set()
    thread.join(10)
    assert pd.get_option(OPTION) == "pyarrow"


@pytest.mark.skipif(
    pd.Series(["a"]).dtype == object, reason="this pandas has no strings but objects"
)
def test_frames_have_them(tmp_path, arrow):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(training_run(4))
    profile = read(path)
    profile.payload()
    for frame in (profile.steps.frame, profile.ops.frame):
        texts = frame.select_dtypes("str")
        assert len(texts.columns)
        assert {dtype.storage for dtype in texts.dtypes} == {"python"}
    assert pd.get_option(OPTION) == "pyarrow"
