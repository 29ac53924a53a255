"""Which frames a traceback of IPython shows."""

from __future__ import annotations

import re
from pathlib import Path

import nbprof

PACKAGE = Path(nbprof.__file__).resolve().parent


def frames(traceback: str, folder: Path) -> list[tuple[Path, str]]:
    """File and function of each frame that is not a cell; `folder` is the working directory of the
    kernel.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", traceback)
    # IPython writes the home folder as ~.
    return [
        ((folder / Path(file).expanduser()).resolve(), function)
        for file, function in re.findall(r"^File (.+?):\d+(?:, in (\S+?)\(|$)", plain, re.MULTILINE)
    ]


def own(traceback: str, folder: Path) -> list[tuple[Path, str]]:
    """The frames that are nbprof's own, wherever it is installed."""
    return [
        (file, function)
        for file, function in frames(traceback, folder)
        if file.is_relative_to(PACKAGE)
    ]
