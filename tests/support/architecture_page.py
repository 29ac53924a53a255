"""The page docs/architecture.md, whose drawing of the rooms is made of the import contract and of
what each room says of itself.

To write it anew: `python -m tests.support.architecture_page`.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: made of pyproject.toml -->\n", "<!-- end of rooms -->\n"
_WIDTH, _ROOM = 100, 12


def layers() -> list[list[str]]:
    """The rooms of each floor, the highest first, as the import contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = (contract for contract in contracts if contract["type"] == "layers")
    return [[room.strip() for room in floor.split("|")] for floor in contract["layers"]]


def says(room: str) -> str:
    """The first sentence of a room about itself."""
    path = ROOT / "nbprof" / room
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def drawing() -> str:
    """The floors of the house as text."""
    lines = []
    for floor in layers():
        for room in floor:
            name = room if (ROOT / "nbprof" / room).is_dir() else f"{room}.py"
            first, *more = textwrap.wrap(says(room), _WIDTH - _ROOM - 4)
            lines += [f"  {name:<{_ROOM}}{first}", *(" " * (_ROOM + 2) + line for line in more)]
        lines.append("-" * _WIDTH)
    return "\n".join(["```text", "-" * _WIDTH, *lines, "```"]) + "\n"


def page() -> str:
    """The text of the page: as it is, with the drawing made anew."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + drawing() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
