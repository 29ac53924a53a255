"""The bar on stderr."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from nbprof.cli import progress


@pytest.fixture
def screen(monkeypatch):
    made = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console", lambda **_: Console(file=made, force_terminal=True, width=100)
    )
    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    return made


def until(happened):
    while not happened():
        time.sleep(0.01)


def test_a_bar_appears_after_a_while_by_itself_and_leaves_nothing(screen, monkeypatch):
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    with progress.shown() as tell:
        until(lambda: "reading" in screen.getvalue())
        tell("reading hosts: 12 of 64 [x]")
        until(lambda: "12 of 64 [x]" in screen.getvalue())
    assert screen.getvalue().endswith("\x1b[2K")
    assert re.search(r"\x1b\[\?25h", screen.getvalue())


def test_what_is_quick_shows_nothing(screen, monkeypatch):
    monkeypatch.setattr(progress, "_AFTER_S", 1000.0)
    with progress.shown() as tell:
        tell("reading")
    assert screen.getvalue() == ""


def test_a_pipe_gets_nothing(screen, monkeypatch):
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "is_terminal", lambda: False)
    with progress.shown() as tell:
        tell("reading")
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("reading hosts: 1,012 of 1,064, 20 MiB of 104 MiB", (1012, 1064)),
        ("downloading x: 512.0 KiB of 1.50 MiB", (512 * 1024, 1536 * 1024)),
        ("reading a.json", (0, None)),
    ],
)
def test_how_far_a_message_says_it_is(text, want):
    assert progress.parts(text) == want
