"""`nbprof frame PATH NAME`: any frame of `nbprof.frames.SCHEMA` as a table or in a file format."""

from __future__ import annotations

import io
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nbprof.cli import output, source
from nbprof.cli.progress import shown
from nbprof.core.errors import NbprofError

if TYPE_CHECKING:
    import pandas as pd

    from nbprof.schema.columns import Col

_ROWS = 20
"""Default number of rows on a terminal."""
_FORMULA = re.compile(r"(\A|\r\n?|\n)(?=[=+\-@\t＝＋－＠])")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHERE = "\"self_us > 100 and 'conv' in op\""


def _split(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[str]:
    return [each.strip() for each in (value or "").split(",") if each.strip()]


@click.command(name="frame")
@partial(source.one_run, metavar="PATH... [NAME]")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"At most N rows, 0 for all; by default {_ROWS} on a terminal, else all.",
)
@click.option("--where", default="", metavar="CONDITION", help=f"Only these rows: {_WHERE}.")
@click.option(
    "--sort",
    callback=_split,
    metavar="COLUMNS",
    help="Sort by these, separated by commas; -total_us: largest first.",
)
@click.option(
    "--columns", callback=_split, metavar="COLUMNS", help="Only these columns, separated by commas."
)
@click.option(
    "--csv",
    "form",
    flag_value="csv",
    help="CSV with exact values; empty means NA; text that would be a formula is prefixed with '.",
)
@click.option(
    "--json", "form", flag_value="json", help="JSON for programs; docs/command.md has its schema."
)
@click.option(
    "--parquet",
    "form",
    flag_value="parquet",
    help="Parquet; needs pyarrow, and -o unless it is piped.",
)
@source.target("Write CSV, JSON or Parquet to this file.")
def command(
    paths: tuple[str, ...],
    top: int | None,
    form: str | None,
    target: Path | None,
    **options: Any,
) -> None:
    """Print a frame by its name, such as kernels.by_name; without a name, list all."""
    condition, sort, columns = options.pop("where"), options.pop("sort"), options.pop("columns")
    with shown() as tell:
        from nbprof.profiles import named

        name = ""
        schema: list[Col] = []
        if len(paths) > 1 and _is_name(paths[-1]):
            name = paths[-1]
            schema = named.columns(named.full_name(name))
            paths = paths[:-1]
        if target is not None and form is None:
            raise click.UsageError("-o needs --csv, --json or --parquet")
        if not name and form not in (None, "json"):
            raise click.UsageError(f"--{form} needs the NAME of a frame")
        profile = source.opened(tell, paths, **options)
        run = output.about(profile) if form == "json" else {}
        names = [] if name else named.listed(profile)
        frame = None
        if name:
            frame = named.selected(named.frame(profile, name), condition, sort, columns)
    if frame is None:
        _list(names, run)
        return
    rows = frame[: _row_limit(top, form)]
    # Columns of values that may be unknown are absent if they are.
    schema = [col for col in schema if col.name in rows.columns]
    if columns:
        schema.sort(key=lambda col: columns.index(col.name))
    if form is not None:
        _write(_content(form, name, rows, schema, run, len(frame)), target)
        return
    if len(rows):
        first = [column.removeprefix("-") for column in sort]
        output.write_table(rows, schema, first=first, all_columns=bool(columns))
    else:
        click.echo("no rows")
    if top is None and len(rows) < len(frame):
        click.echo(f"… {len(frame) - len(rows):,} more rows (--top 0 for all)", err=True)


def _is_name(argument: str) -> bool:
    """Return whether an argument is the name of a frame, not a path."""
    from nbprof.profiles import named

    if named.known(argument):
        return True
    return "://" not in argument and not Path(argument).exists()


def _row_limit(top: int | None, form: str | None) -> int | None:
    if top is not None:
        return top or None
    if form is None and output.is_terminal():
        return _ROWS
    return None


def _list(names: list[str], run: dict[str, Any]) -> None:
    from nbprof.profiles import named

    frames, facts = [], []
    for name in names:
        columns = [col.name for col in named.columns(name)]
        frames.append({"name": name, "columns": columns})
        facts.append((name, ", ".join(columns)))
    if run:
        output.write_json("frame", {"run": run, "frames": frames})
    else:
        output.write_facts(facts)


def _content(
    form: str, name: str, frame: pd.DataFrame, columns: list[Col], run: dict[str, Any], rows: int
) -> bytes:
    if form == "csv":
        return _csv(frame).encode("utf-8", "backslashreplace")
    if form == "json":
        declared = []
        for col in columns:
            declared.append(
                {"name": col.name, "unit": col.unit, "label": col.label, "help": col.help}
            )
        answer = {"run": run, "frame": name, "columns": declared, "total_rows": rows, "rows": frame}
        return (output.text("frame", answer) + "\n").encode()
    packed = io.BytesIO()
    try:
        frame.reset_index(drop=True).to_parquet(packed)
    except ImportError as error:
        raise NbprofError(
            "Parquet is written by pyarrow, which is not installed: pip install pyarrow, or use"
            " --csv"
        ) from error
    return packed.getvalue()


def _csv(frame: pd.DataFrame) -> str:
    """A frame as CSV whose texts are not formulas in a spreadsheet, like `js/lib/csv.ts`."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    texts = {}
    for name in frame.columns:
        if not (is_numeric_dtype(frame[name]) or is_bool_dtype(frame[name])):
            texts[name] = frame[name].astype(object).map(_no_formula)
    safe = frame.assign(**texts)
    safe.columns = [_no_formula(name) for name in frame.columns]
    return safe.to_csv(index=False) or ""


def _no_formula(value: Any) -> Any:
    """A text with an apostrophe before each line that would be a formula; a number as it is."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    safe = _FORMULA.sub(r"\1'", value)
    if value.startswith(("\r", "\n")):
        safe = f"'{safe}"
    return safe


def _write(content: bytes, target: Path | None) -> None:
    from nbprof.core.atomic_write import atomic_write

    if target is not None and target != output.STDOUT:
        with atomic_write(target, "frame", len(content)) as file:
            file.write(content)
        output.echo_name(target)
        return
    if output.is_terminal() and content[:4] == b"PAR1":
        raise click.UsageError("Parquet cannot be printed to a terminal: use -o FILE or a pipe")
    output.write_stdout(io.BytesIO(content), "frame")
