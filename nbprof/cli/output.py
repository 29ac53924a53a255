"""How an answer is written: a table for people on a terminal, plain text in a pipe, JSON for
programs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from nbprof.cli.source import newest_of
from nbprof.core.atomic_write import is_stream
from nbprof.core.errors import NbprofError
from nbprof.core.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from nbprof.profiles.profile import Profile
    from nbprof.schema.columns import Col

SCHEMA = 1
"""Of the JSON: it grows by keys without a change of this number; what a key means changes with
it.
"""
STDOUT = Path("-")
"""What `-o` takes for standard output."""
_WIDEST = 60
"""Letters up to which the texts of a column are lined up, or shown on a terminal."""
_NARROW = 24
"""Letters down to which they are cut there, to show more columns."""
_GAP = 2
"""Blanks between columns."""

_UNITS = {
    "us": "µs",
    "percent": "%",
    "fraction": "%",
    "bytes_per_second": "B/s",
    "gb_per_second": "GB/s",
    "flops_per_second": "FLOP/s",
    "flops_per_byte": "FLOP/B",
}
"""How a unit of the schema is written, where not as it is called there."""

as_json = click.option(
    "--json", "as_json", is_flag=True, help="JSON for programs; docs/command.md has its schema."
)


@contextmanager
def destination(target: Path, name: str, *, echo: bool = True) -> Iterator[Path]:
    """Yield the path for a command to write to.

    That is `target`, whose name is printed at the end, or, for standard output, a temporary file
    that is copied there at the end.

    Parameters
    ----------
    target : Path
    name : str
        The name of the temporary file, for whatever depends on its suffix.
    echo : bool
        Whether to print the name of the target.
    """
    if target != STDOUT:
        yield target
        if echo:
            echo_name(target)
        return
    with tempfile.TemporaryDirectory(prefix="nbprof-") as folder:
        path = Path(folder, name)
        yield path
        with path.open("rb") as content:
            write_stdout(content, Path(name).stem)


def echo_name(target: Path) -> None:
    """Print the name of a file that was written; not of a device, which may be standard output
    itself.
    """
    if not is_stream(target):
        click.echo(str(target))


def write_stdout(content: BinaryIO, what: str) -> None:
    """Copy bytes to standard output.

    Raises
    ------
    NbprofError
        It takes no more, as when it goes to a file on a disk that is full.
    """
    stream = sys.stdout.buffer
    try:
        shutil.copyfileobj(content, stream, 1 << 20)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # The rest that is still buffered must not fail once more at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise NbprofError(
            f"standard output: the {what} could not be written ({error.strerror})."
        ) from error


def write_json(command: str, answer: Mapping[str, Any]) -> None:
    """Write the answer as `text` has it."""
    click.echo(text(command, answer))


def text(command: str, answer: Mapping[str, Any]) -> str:
    """The answer as JSON, in the envelope that all commands share. NA, NaN and infinity are
    null.
    """
    from nbprof.core.plain_json import plain

    return json.dumps(
        {"nbprof": __version__, "schema": SCHEMA, "command": command, **plain(answer)},
        indent=1,
        allow_nan=False,
    )


def about(profile: Profile) -> dict[str, Any]:
    """What the JSON says of the run that was read: where it lies, and what lowers the trust in its
    figures.
    """
    lines = profile.receipt.lines
    return {
        "path": profile.path,
        "file": profile.run.source.file,
        "newest_of": newest_of(profile) or None,
        "hosts": profile.hosts,
        "events": profile.receipt.events,
        "dropped": profile.receipt.dropped,
        "warnings": [line.text for line in lines if line.level == "warning"],
        "notes": [line.text for line in lines if line.level != "warning"],
    }


def is_terminal() -> bool:
    """Whether people see what is written."""
    return sys.stdout.isatty()


def styled(text: str, **style: Any) -> str:
    """The text in bold or colour, on a terminal that wants any."""
    return click.style(text, **style) if is_terminal() and not os.environ.get("NO_COLOR") else text


def write_table(
    frame: pd.DataFrame, columns: Sequence[Col], *, first: Sequence[str] = (), whole: bool = False
) -> None:
    """Write rows with their labels and units, as the dashboard shows them.

    On a terminal the columns that fit, and the names of the others; in a pipe all of them, without
    colour and with nothing cut.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of Col
        Of the frame, in order.
    first : sequence of str
        Columns that are shown whichever others fit.
    whole : bool
        Show all columns on a terminal, too.
    """
    from nbprof.display import wording

    texts = {col.name: _cells(frame[col.name].tolist(), col) for col in columns}
    heads = {col.name: heading(col) for col in columns}
    right = {col.name for col in columns if col.kind not in ("text", "code")}
    if not is_terminal():
        _lines(heads, texts, right)
        return
    from rich.console import Console

    console = Console(highlight=False)
    full = {name: max(map(len, [heads[name], *texts[name]])) for name in texts}
    known = [name for name, shown in texts.items() if set(shown) != {wording.MISSING}]
    widths = full if whole else _fitting(full, right, console.width, [*first, *known])
    if whole:
        # The terminal breaks lines; a number that is cut would be another number.
        console.width = max(console.width, sum(full.values()) + _GAP * len(full))
    # Of the name of an op the tail tells it apart, of a kernel what stands before its arguments.
    ways = {
        col.name: wording.kernel if col.name == "kernel" else wording.tail
        for col in columns
        if col.kind == "code"
    }
    short = {
        name: [_within(text, width, ways.get(name, _cut)) for text in texts[name]]
        for name, width in widths.items()
    }
    console.print(_rich(heads, short, right, widths))
    if left := [name for name in full if name not in widths]:
        click.echo(
            f"… {len(left)} more {'column' if len(left) == 1 else 'columns'}: {', '.join(left)}"
            " (--columns)",
            err=True,
        )


def heading(col: Col) -> str:
    """The label of a column, with its unit where neither the label nor the cells say it."""
    unit = "" if col.kind == "bytes" else _UNITS.get(col.unit, col.unit)
    # As a word of the label: there is an "ms" in programs.
    stated = re.search(rf"(?<!\w){re.escape(unit)}(?!\w)", col.label, re.IGNORECASE)
    return col.label if not unit or stated else f"{col.label} {unit}"


def _cells(values: list[Any], col: Col) -> list[str]:
    return [_cell(value, col) for value in values]


def _cell(value: Any, col: Col) -> str:
    """A value as the dashboard shows it: with its digits, and a dash for what was not measured."""
    import pandas as pd

    from nbprof.display import wording

    if (
        value is None
        or value is pd.NA
        or value is pd.NaT
        or (isinstance(value, float) and value != value)
    ):
        return wording.MISSING
    if col.kind == "bool":
        return "✓" if value else "✗"
    if isinstance(value, (str, list, tuple, dict, set)) or not hasattr(value, "__float__"):
        return wording.one_line(str(value))
    if col.kind == "bytes":
        return wording.size(value)
    if col.kind == "percent":
        value = value * 100 if col.unit == "fraction" else value
    return str(value) if col.digits is None else wording.number(value, col.digits)


def _fitting(
    full: Mapping[str, int], right: set[str], room: int, first: Sequence[str]
) -> dict[str, int]:
    """The columns there is room for, and their widths: texts give way to numbers down to a few
    letters.
    """
    narrow = {name: width if name in right else min(width, _NARROW) for name, width in full.items()}
    chosen: list[str] = []
    for name in dict.fromkeys([*first, *full]):
        if chosen and room < narrow[name] + _GAP:
            break
        chosen.append(name)
        room -= narrow[name] + _GAP
    widths = {name: narrow[name] for name in full if name in chosen}
    for name, width in widths.items():
        more = max(0, min(full[name] - width, room, _WIDEST - width))
        widths[name] += more
        room -= more
    return widths


def _cut(text: str, width: int) -> str:
    return f"{text[: width - 1]}…"


def _within(text: str, width: int, shorten: Callable[[str, int], str]) -> str:
    return text if len(text) <= width else shorten(text, width)


def _rich(
    heads: Mapping[str, str],
    texts: Mapping[str, Sequence[str]],
    right: set[str],
    widths: Mapping[str, int],
) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in texts:
        table.add_column(
            Text(heads[name]),
            justify="right" if name in right else "left",
            no_wrap=True,
            width=widths[name],
        )
    for row in zip(*texts.values(), strict=True):
        # As Text: brackets in a name are no markup.
        table.add_row(*map(Text, row))
    return table


def _lines(heads: Mapping[str, str], texts: Mapping[str, Sequence[str]], right: set[str]) -> None:
    widths = {
        name: min(max(map(len, [head, *texts[name]])), _WIDEST) for name, head in heads.items()
    }
    put: dict[str, Callable[[str, int], str]] = {
        name: str.rjust if name in right else str.ljust for name in heads
    }
    for row in ([*heads.values()], *map(list, zip(*(texts[name] for name in heads), strict=True))):
        click.echo(
            "  ".join(
                put[name](cell, widths[name]) for name, cell in zip(heads, row, strict=True)
            ).rstrip()
        )


def write_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Write names and values below each other."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}".rstrip())
