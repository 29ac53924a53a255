"""The page docs/numbers.md: every public frame with its formulas, its columns, and where other
tools' figures differ.

It is generated from the docstrings, the schema and the table of deviations, so that it says what
the code does. To regenerate it: `python -m tests.support.numbers_page`.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from pathlib import Path

from nbprof.capture.fit.result import Fit
from nbprof.profiles.comparison import Comparison
from nbprof.profiles.profile import Profile
from nbprof.schema.columns import Col
from nbprof.schema.frames import SCHEMA, WHERE_KNOWN
from nbprof.tools.accessor import accessor
from nbprof.tools.memory_viewer.accessor import ModuleMemory
from tests.parity.deviations import DEVIATIONS
from tests.parity.peer import GUIDE, XPROF
from tests.support.frames import accessors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numbers.md"
COMPARISON, FITS, PROGRAM = "comparison", "fits", "memory_viewer[module]"
VIEWS: dict[str, type] = {**accessors(), PROGRAM: ModuleMemory, COMPARISON: Comparison, FITS: Fit}
_OF_EVERY_VIEW = ("figure", "widget", "payload", "mimebundle", "save", "text", "markdown")
PEERS = {XPROF: "XProf 2.24", GUIDE: "TensorFlow 2.3/2.4"}
HEAD = """# How each number is made

Every figure on screen comes from one of these frames. This page is generated from the code's docstrings and schema; `tests/parity` checks the
frames against XProf 2.24 and TensorFlow 2.3/2.4 on real profiles, row by row and column by column. Intentional differences are listed in
the table at the end, each with the test that checks our value.
"""


def page() -> str:
    """The text of the page."""
    ways = {name: f"p.{name}" for name in (*_plain(), *VIEWS)} | {
        COMPARISON: "nbprof.compare(a, b)",
        FITS: "nbprof.fits(model, batch)",
    }
    parts = [HEAD]
    for name, way in ways.items():
        face = VIEWS.get(name)
        parts.append(
            f"## `{way}`\n\n{_prose(inspect.getdoc(face or getattr(Profile, name)) or '')}\n"
        )
        parts += [_columns(SCHEMA[name])] if name in SCHEMA else []
        parts += _inside(name, way)
        for member in members(name) if face else []:
            # What a frame holds that every view has is told above, in the docstring of its view.
            doc = inspect.getdoc(getattr(face, member)) if member in vars(face) else ""
            call = (
                ""
                if isinstance(
                    inspect.getattr_static(face, member), (property, cached_property, accessor)
                )
                else "(…)"
            )
            parts.append(f"### `{way}.{member}{call}`\n\n{_prose(doc or '')}\n")
            frame = f"{name}.{member}"
            parts += (
                [_columns([*SCHEMA[frame], *WHERE_KNOWN.get(frame, [])])] if frame in SCHEMA else []
            )
            parts += _inside(frame, f"{way}.{member}")
    parts.append(_deviations())
    return "\n".join(parts)


def _plain() -> list[str]:
    """What `p.` has without an accessor: single frames, and mappings that hold frames."""
    return list(
        dict.fromkeys(
            name
            for name in (frame.partition(".")[0] for frame in SCHEMA)
            if name not in {*VIEWS, "ascend"}
        )
    )


def _inside(name: str, way: str) -> list[str]:
    """The frames that a mapping or the receipt holds."""
    held = [frame for frame in SCHEMA if frame.rpartition(".")[0] == name and name not in VIEWS]
    parts = []
    for frame in held:
        key = frame.rpartition(".")[2]
        item = f"{way}.{key}" if name == "receipt" else f'{way}["{key}"]'
        parts.append(f"### `{item}`\n\n{_columns(SCHEMA[frame])}")
    return parts


def members(view: str) -> list[str]:
    """Public frames and tables of a view in the order in which they are written; what every view
    has, and views in it, are left out.
    """
    face = VIEWS[view]
    if view == FITS:
        return [name.partition(".")[2] for name in SCHEMA if name.startswith(f"{FITS}.")]
    own = [
        n
        for n in vars(face)
        if not n.startswith("_") and n not in _OF_EVERY_VIEW and f"{view}.{n}" not in VIEWS
    ]
    return (["frame"] if hasattr(face, "frame") and "frame" not in own else []) + own


def _prose(doc: str) -> str:
    """A numpydoc docstring as Markdown: heads of sections become bold, parameters a list."""
    lines, out = doc.splitlines(), []
    for at, line in enumerate(lines):
        if set(line.strip()) == {"-"}:
            continue
        head = at + 1 < len(lines) and lines[at + 1].strip() and set(lines[at + 1].strip()) == {"-"}
        out.append(f"**{line.strip()}**\n" if head else line)
    return "\n".join(out).strip()


def _columns(columns: list[Col]) -> str:
    rows = [f"| `{c.name}` | {c.unit or '–'} | {_cell(c.help)} |" for c in columns]
    return "\n".join(["| column | unit | |", "|---|---|---|", *rows, ""])


def _deviations() -> str:
    """The table of deviations; columns that differ for one reason share a row."""
    columns: dict[tuple[str, str, str], list[str]] = {}
    for d in DEVIATIONS:
        found = columns.setdefault((d.tool, d.reason, d.test), [])
        found += [c for c in (f"{d.column} ({PEERS[d.peer]})",) if c not in found]
    rows = [
        f"| {tool} | {_cell(', '.join(what))} | {_cell(why)} | `{test}` |"
        for (tool, why, test), what in sorted(columns.items())
    ]
    return "\n".join(
        [
            "## Where nbprof differs on purpose",
            "",
            "| tool | column (compared with) | why | test |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
