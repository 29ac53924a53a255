"""The line of code that a stack comes from, and stacks as text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import text_column

_NOT_YOURS = re.compile(
    r"[/\\](site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\]|^<frozen"
    r" |[/\\]torch[/\\](nn|_|optim|autograd|cuda)"
)
_PYTHON = re.compile(r"\.pyi?$|^<ipython-input|^<string>$|^<stdin>$|[/\\]ipykernel_")
NO_STACK = "(no stack was recorded)"
MOST_LINES = 24


def _rank(file: str) -> int:
    """2 for the person's code, 1 for other Python, 0 for C++."""
    if not file or not _PYTHON.search(file):
        return 0
    return 1 if _NOT_YOURS.search(file) else 2


class Stacks:
    """Stacks by their codes.

    Parameters
    ----------
    frames : sequence of (str, str, int)
        Function, file and line.
    stacks : sequence of tuple of int
        Frames of each stack, innermost first.
    """

    def __init__(
        self, frames: Sequence[tuple[str, str, int]], stacks: Sequence[tuple[int, ...]]
    ) -> None:
        self._frames = frames
        self._stacks = stacks
        self._lines = [
            f"{_base(file)}:{line} {name}" if file else name for name, file, line in frames
        ]
        self._rank = [_rank(file) for _, file, _ in frames]
        self._texts: dict[int, str] = {}
        names = np.array([self._location(stack) for stack in stacks], object)
        self._code, values = pd.factorize(names)
        self._names = np.asarray(values, object)

    def _location(self, stack: tuple[int, ...]) -> str:
        best = max(stack, key=lambda frame: self._rank[frame], default=None)
        return NO_STACK if best is None else self._lines[best]

    def locations(self, codes: npt.NDArray[np.int64]) -> pd.api.extensions.ExtensionArray:
        """For each stack, the innermost frame of the user's own code, or else of Python, or else
        any.
        """
        code = self._code[codes] if len(self._code) else np.zeros(len(codes), np.int64)
        return text_column(self._names, code)

    def text(self, code: int) -> str:
        """The frames of a stack, one per line, innermost first; only Python frames, if there are
        any.
        """
        if code not in self._texts:
            stack = self._stacks[code]
            frames = [frame for frame in stack if self._rank[frame]] or list(stack)
            lines = [self._lines[frame] for frame in frames[:MOST_LINES]]
            if len(frames) > MOST_LINES:
                lines.append(f"and {len(frames) - MOST_LINES} more")
            self._texts[code] = "\n".join(lines)
        return self._texts[code]

    def texts(self, codes: npt.NDArray[np.int64]) -> pd.api.extensions.ExtensionArray:
        """The frames of each stack as text."""
        distinct, row = np.unique(codes, return_inverse=True)
        texts = list(map(self.text, distinct.tolist()))
        return text_column(np.array(texts or [""], object), row.astype(np.int64))


def _base(file: str) -> str:
    # The cells of a notebook have a number for a name, in a folder of the kernel.
    return re.split(r"[/\\]", file)[-1] or file
