"""What is wrong with how a result is to be shown is said before the cell runs."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

import nbprof
from nbprof.capture.options import Options
from nbprof.core.errors import CaptureError
from nbprof.notebook.cell import Cell, Show
from nbprof.notebook.options_line import count as _count


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"views": ["overview", "bogus"]}, "bogus"),
        ({"height": -5}, "-5"),
        ({"height": 0}, "above 0"),
        ({"events": -1}, "of 0 or more, not -1"),
        ({"out": "1x"}, "1x"),
        ({"out": "for"}, "for"),
    ],
)
def test_bad_choices_are_refused(options, says):
    with pytest.raises(CaptureError, match=says):
        Show(**options)


def test_good_choices_are_taken():
    assert Show(out="p", views=["overview", "steps"], height=300).views == ["overview", "steps"]


def test_sentences_about_a_recording_are_redacted_too(capsys):
    for redact in (False, True):
        cell = Cell(SimpleNamespace(user_ns={}), Options(), Show(quiet=True, redact=redact))
        cell._say(
            "the run could not be read: /srv/zorblatt/run: there is no profile in this folder"
        )
        said = capsys.readouterr().err
        assert ("zorblatt" in said) is not redact
        assert said.endswith(": there is no profile in this folder\n")


def test_help_is_printed_once(capsys):
    shell = InteractiveShell()
    nbprof.load_ipython_extension(shell)
    capsys.readouterr()
    shell.run_cell("%%nbprof -h\nnever = 1")
    out = capsys.readouterr().out
    assert out.count("usage: %%nbprof") == 1
    assert "never" not in shell.user_ns
    nbprof.unload_ipython_extension(shell)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("100000", 100_000),
        ("100,000", 100_000),
        ("1_000_000", 1_000_000),
        (str(10**17), 10**17),
        (None, None),
    ],
)
def test_numbers_of_events_are_taken_as_people_write_them(text, count):
    assert _count(text) == count


@pytest.mark.parametrize(
    "text", ["", "-5", "1.5", "1e5", "many", "1,00", "10,00,00", ",", "²", "9" * 5000]
)
def test_what_is_no_number_of_events_is_refused(text):
    with pytest.raises(
        CaptureError, match=re.escape(f"--events takes a number of 0 or more, not {text}")
    ):
        _count(text)
