"""A reader by a script, in place of an assistant: it knows what the tools answer, and nothing else.

It follows the skill: `open`, `brief`, then `advice` where there are findings, `frame` where no line
of the program has been named yet, and `events` where nothing was sampled. Each part of its
conclusion remembers the call that first gave it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from nbprof.profiles.claims import BYTES_PER_TOKEN

MOST_CALLS = 6
MOST_TOKENS = 8_000

_VERDICT = re.compile(r"^- ([A-Z][\w -]+): “", re.MULTILINE)
_PARTS = re.compile(r"(?:[:,] )([a-z ]+?) ([\d.,]+) (ms|µs|s) \(")
_FINDING = re.compile(r"^- “.*?” \[`(\w+)`, \w+, (\w+), .*?\]\. “(.*?)” → ", re.MULTILINE)
_SAMPLED = re.compile(r"^- Lines of your Python code, sampled .*?: (.*) → ", re.MULTILINE)
_COMPILED = re.compile(r"^- Lines of compiled programs .*?: (.*) → ", re.MULTILINE)
_COMPUTE = ("device_compute", "host_compute")
_PLACE = re.compile(
    r"([\w/.\-<>…]+\.py|Cell \[\d+\])(?::| line )(\d+)|line (\d+) of (Cell \[\d+\])"
)
_MS = {"µs": 1e-3, "ms": 1.0, "s": 1e3}


class Place(NamedTuple):
    """A line of a program, as an answer names it."""

    file: str
    line: int
    text: str = ""


class Finding(NamedTuple):
    """A finding, as an answer names it."""

    rule: str
    certainty: str
    evidence: str


class OverBudgetError(Exception):
    """More calls or tokens than there are."""


@dataclass
class Conclusion:
    """What the reader found.

    Attributes
    ----------
    verdict, bound : str
        The word, and the category of the step.
    unit_ms, bound_ms : float, optional
        The time of a unit, and of this category in it.
    findings : list of Finding
        The most important first.
    places : list of Place
        The lines that the first answer with any names.
    events : list of str
        The longest events, where no line is named.
    through : dict
        The call that gave each part.
    calls : list of str
    tokens : int
    failed : str
        Why the reader gave up.
    """

    verdict: str = ""
    bound: str = ""
    unit_ms: float | None = None
    bound_ms: float | None = None
    findings: list[Finding] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    through: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    tokens: int = 0
    failed: str = ""

    def note(self, tool: str, **parts: Any) -> None:
        """Takes over what is not known yet."""
        for name, value in parts.items():
            if value and not getattr(self, name):
                setattr(self, name, value)
                self.through[name] = tool


class Reader:
    """Reads one profile through a session."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.found = Conclusion()

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a call, if there is budget for it."""
        if len(self.found.calls) == MOST_CALLS:
            raise OverBudgetError(f"more than {MOST_CALLS} calls")
        result = await self._client.call_tool(tool, arguments)
        (content,) = result.content
        sent = len(json.dumps(arguments).encode())
        self.found.calls.append(tool)
        self.found.tokens += round((sent + len(content.text.encode())) / BYTES_PER_TOKEN)
        if self.found.tokens > MOST_TOKENS:
            raise OverBudgetError(f"more than {MOST_TOKENS:,} tokens")
        answer: dict[str, Any] = json.loads(content.text)
        if result.is_error:
            raise RuntimeError(f"{tool}: {answer['error']}")
        return answer

    async def read(self, path: str) -> Conclusion:
        """What bounds the profile at this path."""
        try:
            await self._read(path)
        except (OverBudgetError, RuntimeError) as error:
            self.found.failed = str(error)
        return self.found

    async def _read(self, path: str) -> None:
        found = self.found
        opened = await self.call("open", path=path)
        found.note(
            "open",
            verdict=opened.get("verdict"),
            bound=opened.get("bound"),
            unit_ms=opened["step_time_ms"],
            places=places(opened.get("detail") or ""),
        )
        brief = (await self.call("brief", id=opened["id"]))["brief"]
        self._read_brief(brief)
        if found.findings:
            self._read_advice(await self.call("advice", id=opened["id"]))
        if not found.places and "python.lines" in opened["frames"]:
            found.note("frame", places=await self._lines(opened["id"]))
        if not found.places:
            longest = await self.call(
                "events", id=opened["id"], from_ms=0, to_ms=1e9, order="by_name", limit=3
            )
            name = longest["columns"].index("name")
            found.note("events", events=[row[name] for row in longest["rows"]])

    def _read_brief(self, brief: str) -> None:
        found = self.found
        verdict = _VERDICT.search(brief)
        found.note("brief", verdict=verdict[1] if verdict else "")
        parts = {name: _number(value) * _MS[unit] for name, value, unit in _PARTS.findall(brief)}
        found.note("brief", bound=max(parts, key=parts.__getitem__, default="").replace(" ", "_"))
        found.note("brief", bound_ms=parts.get(found.bound.replace("_", " ")))
        found.note("brief", findings=[Finding(*each) for each in _FINDING.findall(brief)])
        verdicts = brief.partition("## Verdict")[2].partition("\n## ")[0]
        if found.findings:
            found.note("brief", places=places(found.findings[0].evidence))
        found.note("brief", places=places(verdicts))
        # While compiled programs compute, the host only waits for them.
        in_order = [_COMPILED, _SAMPLED] if found.bound in _COMPUTE else [_SAMPLED]
        for lines in filter(None, (each.search(brief) for each in in_order)):
            found.note("brief", places=places(lines[1])[:1])

    def _read_advice(self, answer: Mapping[str, Any]) -> None:
        findings = [
            Finding(row["rule"], row["certainty"], row["evidence"]) for row in answer["findings"]
        ]
        self.found.note("advice", findings=findings)
        self.found.note("advice", places=places(findings[0].evidence))

    async def _lines(self, ident: str) -> list[Place]:
        """The line of the program that took most of the sampled time."""
        answer = await self.call(
            "frame", id=ident, name="python.lines", sort="-user_code_ms", limit=3
        )
        rows = [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
        return [Place(row["file"], row["line"], row["code"] or row["function"]) for row in rows[:1]]


def places(text: str) -> list[Place]:
    """The lines that a sentence names."""
    named = []
    for file, line, line_of_cell, cell in _PLACE.findall(text.replace("\\", "")):
        named.append(Place(file or cell, int(line or line_of_cell)))
    return named


def _number(text: str) -> float:
    return float(text.replace(",", ""))


async def conclusions(root: Path, paths: Mapping[str, str]) -> dict[str, Conclusion]:
    """What the reader finds in profiles below a folder, by name, in one session of the server."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "nbprof", "mcp", "--root", str(root)]
    )
    found = {}
    async with Client(stdio_client(server)) as client:
        for name, path in paths.items():
            found[name] = await Reader(client).read(path)
    return found
