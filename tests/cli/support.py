"""Calls of the command in this process."""

from __future__ import annotations

import io
import json
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from nbprof.cli.main import main

DATA = Path(__file__).resolve().parents[1] / "data"
SLOW = str(DATA / "xspace" / "tf_slow.xplane.pb")


def call(*words, code=0):
    """What a command answers, in a pipe."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def answer(*words, code=0):
    """Its JSON, which nothing but JSON reads: no NaN."""

    def refused(constant):
        raise AssertionError(constant)

    return json.loads(call(*words, "--json", code=code).stdout, parse_constant=refused)


def on_a_terminal(monkeypatch, width=100, **more):
    """What rich prints from now on, as a terminal of that width gets it."""
    screen = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console",
        lambda **_: Console(file=screen, force_terminal=True, width=width, **more),
    )
    monkeypatch.setattr("nbprof.cli.output.is_terminal", lambda: True)
    return screen
