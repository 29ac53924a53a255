"""docs/assistants.md says what the server is: its tools, options and examples."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from mcp import Client

from nbprof.assistant.answer import LONGEST_TEXT
from nbprof.assistant.reader import MOST_OPEN
from nbprof.assistant.roots import Roots
from nbprof.assistant.server import build
from nbprof.assistant.tools import BYTES, ROWS, SECONDS, Tools
from nbprof.assistant.worker import MOST_WAITING
from nbprof.cli.mcp import command
from nbprof.profiles.load import read
from nbprof.profiles.where import where

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "assistants.md").read_text("utf-8")


def _table(head):
    rows = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_it_lists_the_tools(tmp_path):
    async def names():
        async with Client(build(Tools(Roots([tmp_path])))) as client:
            return [f"`{tool.name}`" for tool in (await client.list_tools()).tools]

    assert [row[0] for row in _table("tool")] == asyncio.run(names())


def test_it_lists_the_options_and_bounds():
    told = {re.findall(r"--[\w-]+", row[0])[0]: row[1] for row in _table("option")}
    options = {option.opts[0]: option for option in command.params}
    assert list(told) == list(options)
    defaults = {
        name: str(option.default)
        for name, option in options.items()
        if name in ("--seconds", "--rows", "--bytes")
    }
    assert (
        defaults
        == {"--seconds": str(SECONDS), "--rows": str(ROWS), "--bytes": str(BYTES)}
        == {name: told[name] for name in defaults}
    )
    assert f"at most {LONGEST_TEXT} characters" in PAGE
    assert (MOST_OPEN, MOST_WAITING) == (8, 8)
    assert "Eight profiles and comparisons" in PAGE
    assert "calls beyond eight waiting ones" in PAGE


@pytest.mark.parametrize("text", re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
def test_the_set_up_is_json_that_starts_the_server(text):
    (servers,) = json.loads(text).values()
    if "url" in servers["nbprof"]:
        # tests/server/test_mcp_http.py connects with it.
        assert servers["nbprof"]["url"].endswith("/nbprof/mcp")
        return
    assert servers["nbprof"]["command"] == "nbprof"
    first, *args = servers["nbprof"]["args"]
    assert first == command.name
    assert command.make_context("mcp", args).params["roots"]


def test_the_filters_are_taken():
    profile = read(ROOT / "tests" / "data" / "xspace" / "tf_slow.xplane.pb")
    line = PAGE.partition("A filter compares")[2].partition("It is\nparsed")[0]
    filters = re.findall(r"`([^`]+)`", line)
    assert len(filters) == 4
    for text in filters:
        frame = profile.steps.summary if "mean_ms" in text else profile.ops.frame
        assert 0 <= len(where(frame, text)) <= len(frame)
