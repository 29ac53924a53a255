"""PATH and the options for selecting and reading a run, which most commands take."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from nbprof.core.errors import NbprofError
from nbprof.core.garbage import importing

if TYPE_CHECKING:
    from nbprof.cli.progress import Tell
    from nbprof.core.files import RunFiles
    from nbprof.profiles.profile import Profile

Function = TypeVar("Function", bound=Callable[..., Any])

storage = click.option(
    "--storage-option",
    "storage_options",
    metavar="KEY=VALUE",
    multiple=True,
    help="For a URL: an option of its fsspec file system, such as anon=true. Can be repeated.",
)
_READING = (
    click.option(
        "--rank",
        "--host",
        "rank",
        metavar="N|NAME",
        help="Read only this host, with all its events: its rank or name.",
    ),
    click.option(
        "--executor",
        type=click.IntRange(min=1),
        metavar="N",
        help="Read the files of several hosts in N processes.",
    ),
    click.option(
        "--graph-capture",
        "graph_capture",
        metavar="PATH",
        multiple=True,
        help=(
            "PyTorch only: the trace in which the CUDA or HIP graphs that this run replays were"
            " captured. Can be repeated."
        ),
    ),
    storage,
)


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a path, which may be a URL too, by the files of the shell."""
    return [CompletionItem(incomplete, type="file")]


class FilePath(click.Path):
    """A path that is not empty: an unset variable of the shell would be the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or an error of usage."""
        if value == "":
            self.fail("the name is empty.", param, ctx)
        return super().convert(value, param, ctx)


def target(help: str, **more: Any) -> Callable[[Function], Function]:
    """Adds `-o FILE`; `-` is standard output."""
    kind = FilePath(dir_okay=False, allow_dash=True, path_type=Path)
    text = f"{help} - is standard output."
    return click.option("-o", "--output", "target", metavar="FILE", type=kind, help=text, **more)


redacted = click.option(
    "--redact", is_flag=True, help="Replace names with pseudonyms; numbers are kept."
)


def reading(function: Function) -> Function:
    """Adds the options for reading a run."""
    for option in reversed(_READING):
        function = option(function)
    return function


def one_run(function: Function, metavar: str = "PATH...", *, required: bool = True) -> Function:
    """Adds PATH, and the options for selecting and reading a run of it."""
    function = click.option(
        "--run",
        metavar="NAME|N",
        help=(
            "Run of a logdir: its name, the start of its name, or its number; by default 0, the"
            " newest."
        ),
    )(reading(function))
    return click.argument(
        "paths", nargs=-1, required=required, metavar=metavar, shell_complete=files
    )(function)


def opened(
    tell: Tell,
    paths: Sequence[str],
    run: str | None = None,
    rank: str | None = None,
    executor: int | None = None,
    storage_options: Sequence[str] = (),
    graph_capture: Sequence[str] = (),
    files: RunFiles | None = None,
) -> Profile:
    """Open the selected profile.

    Several paths are the hosts of one run, several of `graph_capture` those of one recording.
    `files` are those of the selected run, if they were found already.
    """
    with importing():
        from nbprof.profiles.load import read

    captures = list(graph_capture) or None
    profile = read(
        _source(paths),
        _name_or_index(run),
        tell,
        files=files,
        storage_options=keys(storage_options),
        executor=executor,
        graph_capture=captures,
    )
    if profile.run.files is not None:
        tell_newest(paths, profile.run.files)
    if rank is None:
        return profile
    return profile.rank(int(rank) if rank.isdecimal() and rank not in profile.hosts else rank)


def files_of(paths: Sequence[str], run: str | None = None) -> RunFiles:
    """The files of the selected run.

    Raises
    ------
    ReadError
    """
    from nbprof.sources.locate import find

    return find(_source(paths), _name_or_index(run))


def _source(paths: Sequence[str]) -> str | list[str]:
    return paths[0] if len(paths) == 1 else list(paths)


def _name_or_index(run: str | None) -> str | int | None:
    # Three digits are more runs than anybody counts; a date is a name.
    if run is not None and re.fullmatch(r"-?\d{1,3}", run):
        return int(run)
    return run


def tell_newest(paths: Sequence[str], files: RunFiles) -> None:
    """Print which of several runs was read because it is the newest."""
    if files.newest_of > 1:
        click.echo(
            f"nbprof: {paths[0]} has {files.newest_of:,} runs, and the newest was read:"
            f" {files.name}",
            err=True,
        )


def newest_of(profile: Profile) -> int:
    """The number of runs of which a profile is the newest; 0 if it is the only or a named one."""
    files = profile.run.files
    return files.newest_of if files is not None and files.newest_of > 1 else 0


def keys(pairs: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` as a mapping; a value is parsed as JSON if possible."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise NbprofError(f"--storage-option takes KEY=VALUE, such as anon=true, not {key!r}")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options
