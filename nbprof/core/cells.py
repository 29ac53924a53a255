"""Names of Python calls with the number of a notebook cell in place of its temporary file."""

from __future__ import annotations

import re
from collections.abc import Mapping

# ipykernel calls a cell "/tmp/ipykernel_71/1234567890.py"; PyTorch writes that with the line in
# brackets.
_PATH = re.compile(r"(?:[^\s;(]*[/\\])?ipykernel_\d+[/\\](\d+)\.py")
# The tracers of TensorFlow and JAX write the name of the file alone: "$1234567890.py:3 train".
_NAME = re.compile(r"(?<=^\$)(\d+)\.py(?=:\d+ )")


# IPython outside of a kernel: "<ipython-input-3-1f8a0b7c9d2e>".
_INPUT = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")


def stem(path: str) -> str:
    """The stem of the file of a cell; '' for any other file."""
    match = _PATH.fullmatch(path)
    return match[1] if match else ""


def title(path: str, cells: Mapping[str, int]) -> str:
    """`Cell [3]` for the file of a cell, `Cell` if its number is unknown; other paths unchanged."""
    name = stem(path)
    if not name and (match := _INPUT.fullmatch(path)):
        return _cell(int(match[1]))
    return _cell(cells.get(name)) if name else path


def readable(text: str, cells: Mapping[str, int]) -> str:
    """The text with `Cell [3]` in place of the file of that cell; `Cell` if its number is unknown.

    Parameters
    ----------
    text : str
        The name of a Python call, or a stack of them.
    cells : mapping
        Execution counts by the stem of a cell's file, as they were when the run was recorded.
    """
    text = _PATH.sub(lambda match: _cell(cells.get(match[1])), text)
    # Any file may be named by a number: only cells that are known are replaced.
    return _NAME.sub(lambda match: _cell(cells[match[1]]) if match[1] in cells else match[0], text)


def _cell(count: int | None) -> str:
    return f"Cell [{count}]" if count else "Cell"
