"""The command `nbprof`: how subcommands are found, and what it exits with."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from nbprof.cli import main as cli
from nbprof.core.errors import NbprofError
from tests.cli.support import SLOW


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_line_in_the_table_is_a_command(name):
    command = cli.main.get_command(click.Context(cli.main), name)
    assert command.name == name
    assert command.help.split("\n")[0] == cli.COMMANDS[name]


_IN_TURN = """
import sys
from nbprof.cli.main import main
for words in (["--help"], ["summary", sys.argv[1]]):
    try:
        main(words)
    except SystemExit as ended:
        print("LOADED", ended.code, *sys.modules)
"""


def test_help_imports_no_command_and_summary_nothing_that_draws():
    shown = subprocess.run([sys.executable, "-c", _IN_TURN, SLOW], capture_output=True, text=True)
    assert shown.stderr == ""
    parts = re.split(r"^LOADED 0 (.*)\n", shown.stdout, flags=re.MULTILINE)
    of_help, of_summary = set(parts[1].split()), set(parts[3].split())
    assert all(f"  {name} " in parts[0] for name in cli.COMMANDS)
    assert parts[2].startswith("nbprof · tf_slow")
    assert "nbprof.cli.main" in of_help
    assert not {f"nbprof.cli.{name}" for name in cli.COMMANDS} & of_help
    assert not {"numpy", "pandas", "rich", "IPython", "fsspec"} & of_help
    assert "pandas" in of_summary
    assert not {"bokeh", "IPython", "PIL", "rich", "fsspec", "anywidget", "asyncio"} & of_summary


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["advise"], "advice"), (["sumary"], "summary"), (["skill", "instal"], "install")],
)
def test_a_command_that_is_misspelt_is_named(words, meant):
    assert CliRunner().invoke(cli.main, words).output.count(f"id you mean '{meant}'?") == 1


def test_no_help_ends_where_it_begins_to_say_something():
    for name in cli.COMMANDS:
        command = cli.main.get_command(click.Context(cli.main), name)
        texts = [
            command.help,
            command.get_short_help_str(),
            *(getattr(param, "help", "") or "" for param in command.params),
        ]
        assert [text for text in texts if text.rstrip(". ").endswith(":")] == [], name


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
    monkeypatch.setattr(
        cli.main, "get_command", lambda ctx, name: click.Command("cache", callback=lambda: code)
    )
    assert CliRunner().invoke(cli.main, ["cache"]).exit_code == code


def test_a_reader_that_has_gone_is_no_error():
    code = "from nbprof.cli import main as cli\nimport click\n"
    code += "cli.main.get_command = lambda ctx, name: click.Command('x', callback=lambda: print('row\\n' * 100_000))\ncli.main(['x'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"row\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.CLOSED_PIPE


@pytest.mark.parametrize(
    "words",
    [
        ["summary"],
        ["frame"],
        ["runs"],
        ["compare", "a"],
        ["expect"],
        ["expect", "--against"],
        ["serve"],
    ],
)
def test_the_shell_completes_paths(words):
    (found,) = BashComplete(cli.main, {}, "nbprof", "_NBPROF_COMPLETE").get_completions(words, "lo")
    assert (found.type, found.value) == ("file", "lo")
