"""What is wrong with how a result is to be shown is said before the cell runs."""

from __future__ import annotations

import pytest

from nbprof.cell import Show
from nbprof.errors import CaptureError


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"views": ["overview", "bogus"]}, "bogus"),
        ({"height": -5}, "-5"),
        ({"height": 0}, "above 0"),
        ({"out": "1x"}, "1x"),
        ({"out": "for"}, "for"),
    ],
)
def test_bad_choices_are_refused(options, says):
    with pytest.raises(CaptureError, match=says):
        Show(**options)


def test_good_choices_are_taken():
    assert Show(out="p", views=["overview", "steps"], height=300).views == ["overview", "steps"]


def test_help_is_printed_once(capsys):
    from IPython.testing.globalipapp import start_ipython

    shell = start_ipython() or __import__("IPython").get_ipython()
    shell.run_line_magic("load_ext", "nbprof")
    capsys.readouterr()
    shell.run_cell("%%nbprof -h\nnever = 1")
    out = capsys.readouterr().out
    assert out.count("usage: %%nbprof") == 1
    assert "never" not in shell.user_ns
    shell.run_line_magic("unload_ext", "nbprof")
