"""The options that fuzzers of files share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable


def parser(description: str | None, formats: Iterable[str]) -> argparse.ArgumentParser:
    """Formats, seed, and how many inputs of each; `chosen` reads them."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "formats", nargs="*", choices=[*formats, []], metavar="FORMAT", help=", ".join(formats)
    )
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--first", type=int, default=0, help="number of the first input")
    options.add_argument(
        "--count",
        type=int,
        default=0,
        help="inputs of each format; as many as the time allows when left out",
    )
    options.add_argument(
        "--seconds", type=float, default=float("inf"), help="for all formats together"
    )
    return options


def chosen(
    options: argparse.ArgumentParser, formats: Iterable[str], arguments: list[str] | None
) -> tuple[argparse.Namespace, range]:
    """What was asked for, and the numbers of the inputs."""
    asked = options.parse_args(arguments)
    asked.formats = asked.formats or list(formats)
    if not asked.count and asked.seconds == float("inf"):
        options.error("give --count or --seconds")
    return asked, range(asked.first, asked.first + asked.count if asked.count else sys.maxsize)
