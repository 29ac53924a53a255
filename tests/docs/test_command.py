"""docs/command.md has every command and option, exit code and key of the JSON."""

from __future__ import annotations

import re

import pytest

from nbprof.cli import main as cli
from tests.cli.support import SLOW, answer
from tests.support import command_page
from tests.support.command_page import PAGE, commands, options

TEXT = PAGE.read_text()


def test_the_commands_are_those_of_the_help():
    assert command_page.page() == TEXT, "write it anew: python -m tests.support.command_page"


@pytest.mark.parametrize("name", commands())
def test_every_option_is_in_the_page(name):
    part = TEXT.split(f"### `nbprof {name}`\n")[1].partition("\n### ")[0]
    common = TEXT.partition("### ")[0]
    for option in options(commands()[name]):
        assert all(
            f"`{word}" in part or f"`{word}" in common
            for word in (*option.opts, *option.secondary_opts)
        ), option.opts


def test_every_exit_code_is_in_the_page():
    named = re.search(r"## Exit codes\n(.*?)\n## ", TEXT, re.DOTALL)[1]
    codes = {
        int(code)
        for cell in re.findall(r"^\| ([\d, ]+) \|", named, re.MULTILINE)
        for code in cell.split(",")
    }
    assert codes == {cli.GOOD, cli.FAILED, cli.BAD, cli.UNKNOWN, cli.INTERRUPTED, cli.CLOSED_PIPE}


@pytest.mark.parametrize(
    "words",
    [
        ["summary", SLOW],
        ["advice", SLOW],
        ["frame", SLOW],
        ["frame", SLOW, "ops"],
        ["compare", SLOW, SLOW],
        ["runs", SLOW],
        ["cache"],
        ["doctor"],
    ],
)
def test_every_key_is_in_the_page(words):
    rows = [
        row.split("|")[1:3]
        for row in re.search(r"\| key \|.*?\n\n", TEXT, re.DOTALL)[0].splitlines()[2:]
        if row
    ]
    named = {
        key
        for keys, of in rows
        if "all" in of or f"`{words[0]}`" in of
        for key in re.findall(r"`(\w+)`", keys)
    }
    said = answer(*words)
    assert set(said) <= named
    run = said.get("run") or said.get("before") or {}
    assert all(f"`{key}`" in TEXT for key in run)
