"""Write answers: a table on a terminal, plain text in a pipe, JSON for programs."""

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
"""Version of the JSON: new keys do not change it, new meanings of keys do."""
STDOUT = Path("-")
"""Standard output as a value of `-o`."""
_WIDEST = 60
"""Maximum letters of a text that is aligned, or shown on a terminal."""
_NARROW = 24
"""Letters to which texts are truncated on a terminal, to show more columns."""
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
"""Symbols of units of the schema, if they differ from their names."""

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
        The name of the temporary file, whose suffix may matter.
    echo : bool
        Print the name of the target.
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
    """Print the name of a written file, except of a device, which may be standard output."""
    if not is_stream(target):
        click.echo(str(target))


def write_stdout(content: BinaryIO, title: str) -> None:
    """Copy bytes to standard output.

    Parameters
    ----------
    content : binary file
    title : str
        Name of the content, for the message.

    Raises
    ------
    NbprofError
        It could not be written, for example to a file on a full disk.
    """
    stream = sys.stdout.buffer
    try:
        shutil.copyfileobj(content, stream, 1 << 20)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # The rest of the buffer must not fail once more at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise NbprofError(
            f"standard output: the {title} could not be written ({error.strerror})."
        ) from error


def write_json(command: str, answer: Mapping[str, Any]) -> None:
    """Write the JSON of an answer; see `text`."""
    click.echo(text(command, answer))


def text(command: str, answer: Mapping[str, Any]) -> str:
    """The answer as JSON with the keys that all commands share; NA, NaN and infinity are null."""
    from nbprof.core.plain_json import plain

    return json.dumps(
        {"nbprof": __version__, "schema": SCHEMA, "command": command, **plain(answer)},
        indent=1,
        allow_nan=False,
    )


def about(profile: Profile) -> dict[str, Any]:
    """The run of an answer in JSON: its path, and the notes of its receipt."""
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
        "receipt": profile.receipt.notes,
    }


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def styled(text: str, **style: Any) -> str:
    """The text in bold or colour, on a terminal that allows it."""
    if is_terminal() and not os.environ.get("NO_COLOR"):
        return click.style(text, **style)
    return text


def write_table(
    frame: pd.DataFrame,
    columns: Sequence[Col],
    *,
    first: Sequence[str] = (),
    all_columns: bool = False,
) -> None:
    """Write rows with their labels and units, as the dashboard shows them.

    On a terminal the columns that fit, and the names of the others; in a pipe all of them, without
    colour and with complete texts.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of Col
        Of the frame, in order.
    first : sequence of str
        Columns that are always shown.
    all_columns : bool
        Show all columns on a terminal, too.
    """
    from nbprof.display import wording

    texts, heads, right = {}, {}, set()
    for col in columns:
        texts[col.name] = [_cell(value, col) for value in frame[col.name].tolist()]
        heads[col.name] = heading(col)
        if col.kind not in ("text", "code"):
            right.add(col.name)
    if not is_terminal():
        _lines(heads, texts, right)
        return
    from rich.console import Console

    console = Console(highlight=False)
    full = {name: max(map(len, [heads[name], *texts[name]])) for name in texts}
    if all_columns:
        widths = full
        # The terminal breaks lines; a truncated number would be another number.
        console.width = max(console.width, sum(full.values()) + _GAP * len(full))
    else:
        measured = [name for name, cells in texts.items() if set(cells) != {wording.MISSING}]
        widths = _fitting(full, right, console.width, [*first, *measured])
    short = {}
    for col in columns:
        if col.name in widths:
            short[col.name] = _shortened(texts[col.name], widths[col.name], col)
    console.print(_rich(heads, short, right, widths))
    hidden = [name for name in full if name not in widths]
    if hidden:
        count = wording.plural(len(hidden), "more column")
        click.echo(f"… {count}: {', '.join(hidden)} (--columns)", err=True)


def heading(col: Col) -> str:
    """The label of a column, with its unit unless the label or the cells contain it."""
    unit = _UNITS.get(col.unit, col.unit)
    if not unit or col.kind == "bytes":
        return col.label
    # As a word of the label: there is an "ms" in programs.
    if re.search(rf"(?<!\w){re.escape(unit)}(?!\w)", col.label, re.IGNORECASE):
        return col.label
    return f"{col.label} {unit}"


def _cell(value: Any, col: Col) -> str:
    """A value as the dashboard shows it: with its digits, and a dash if it was not measured."""
    import pandas as pd

    from nbprof.display import wording

    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return wording.MISSING
    if col.kind == "bool":
        return "✓" if value else "✗"
    if isinstance(value, (str, list, tuple, dict, set)) or not hasattr(value, "__float__"):
        return wording.one_line(str(value))
    if col.kind == "bytes":
        return wording.size(value)
    if col.kind == "percent" and col.unit == "fraction":
        value = value * 100
    if col.digits is None:
        return str(value)
    return wording.number(value, col.digits)


def _fitting(
    full: Mapping[str, int], right: set[str], available: int, first: Sequence[str]
) -> dict[str, int]:
    """The columns that fit into a width, and their widths; texts are narrowed for numbers."""
    narrow = dict(full)
    for name in full:
        if name not in right:
            narrow[name] = min(full[name], _NARROW)
    chosen: list[str] = []
    for name in dict.fromkeys([*first, *full]):
        if chosen and available < narrow[name] + _GAP:
            break
        chosen.append(name)
        available -= narrow[name] + _GAP
    widths = {name: narrow[name] for name in full if name in chosen}
    for name, width in widths.items():
        more = max(0, min(full[name] - width, available, _WIDEST - width))
        widths[name] += more
        available -= more
    return widths


def _shortened(texts: Sequence[str], width: int, col: Col) -> list[str]:
    """Texts of at most `width` letters.

    Ops are told apart by the end of their name, kernels by the part before their arguments.
    """
    from nbprof.display import wording

    shorten: Callable[[str, int], str] = _truncate
    if col.kind == "code":
        shorten = {"kernel": wording.kernel}.get(col.name, wording.tail)
    return [text if len(text) <= width else shorten(text, width) for text in texts]


def _truncate(text: str, width: int) -> str:
    return f"{text[: width - 1]}…"


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
        # As Text: brackets in a name are not markup.
        table.add_row(*map(Text, row))
    return table


def _lines(heads: Mapping[str, str], texts: Mapping[str, Sequence[str]], right: set[str]) -> None:
    columns = []
    for name, head in heads.items():
        cells = [head, *texts[name]]
        width = min(max(map(len, cells)), _WIDEST)
        align = str.rjust if name in right else str.ljust
        columns.append([align(cell, width) for cell in cells])
    for row in zip(*columns, strict=True):
        click.echo("  ".join(row).rstrip())


def write_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Write names and values below each other."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}".rstrip())
