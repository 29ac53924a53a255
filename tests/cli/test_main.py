"""The command `nbprof`: how subcommands are found, and what it exits with."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from nbprof.cli import main as cli
from nbprof.core.errors import NbprofError


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_line_in_the_table_is_a_command(name):
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command.name == name
    assert command.help.split("\n")[0] == cli.COMMANDS[name]


def test_help_names_every_command_and_imports_none():
    code = "import sys\nfrom nbprof.cli.main import main\ntry: main(['--help'])\nfinally: print('LOADED', *sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    text, loaded = shown.stdout.split("LOADED")
    assert shown.returncode == 0, shown.stderr
    assert all(f"  {name} " in text for name in cli.COMMANDS)
    loaded = set(loaded.split())
    assert "nbprof.cli.main" in loaded
    assert not {f"nbprof.cli.{name}" for name in cli.COMMANDS} & loaded
    assert not {"numpy", "pandas", "rich", "IPython", "fsspec"} & loaded


def test_what_is_no_command_is_bad_use():
    result = CliRunner().invoke(cli.main, ["sumary"])
    assert result.exit_code == cli.BAD
    assert "sumary" in result.stderr


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (NbprofError("x.json: not a profile"), cli.BAD, "nbprof: x.json: not a profile\n"),
        (KeyboardInterrupt(), cli.INTERRUPTED, "\n"),
        (click.UsageError("two runs are needed"), cli.BAD, "Error: two runs are needed\n"),
        (ZeroDivisionError("oh"), cli.BAD, "ZeroDivisionError: oh\n"),
    ],
)
def test_exit_codes(monkeypatch, raised, code, said):
    @click.command()
    def command():
        raise raised

    monkeypatch.setattr(cli.main, "get_command", lambda ctx, name: command)
    result = CliRunner().invoke(cli.main, ["cache"])
    assert result.exit_code == code
    assert result.stderr.endswith(said)
    assert ("Traceback" in result.stderr) == isinstance(raised, ZeroDivisionError)


@pytest.mark.parametrize("code", [cli.GOOD, cli.FAILED, cli.UNKNOWN])
def test_what_a_command_returns_is_the_exit_code(monkeypatch, code):
    monkeypatch.setattr(cli.main, "get_command", lambda ctx, name: click.Command("cache", callback=lambda: code))
    assert CliRunner().invoke(cli.main, ["cache"]).exit_code == code


def test_a_reader_that_has_gone_is_no_error():
    code = "from nbprof.cli import main as cli\nimport click\n"
    code += "cli.main.get_command = lambda ctx, name: click.Command('x', callback=lambda: print('row\\n' * 100_000))\ncli.main(['x'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"row\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.CLOSED_PIPE
