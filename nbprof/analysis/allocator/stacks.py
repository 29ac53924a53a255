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
        # 2: the person's own code; 1: other Python; 0: C++.
        self._rank = [
            (0 if not _PYTHON.search(file) else 1 if _NOT_YOURS.search(file) else 2) if file else 0
            for _, file, _ in frames
        ]
        self._texts: dict[int, str] = {}
        names = [self._location(stack) for stack in stacks]
        codes, values = (
            pd.factorize(np.array(names, object))
            if names
            else (np.zeros(0, np.int64), np.zeros(0, object))
        )
        self._place = codes
        self._names = np.asarray(values, object)

    def _location(self, stack: tuple[int, ...]) -> str:
        best = max(stack, key=lambda frame: self._rank[frame], default=None)
        return NO_STACK if best is None else self._lines[best]

    def locations(self, codes: npt.NDArray[np.int64]) -> pd.api.extensions.ExtensionArray:
        """For each stack, the innermost frame of the user's own code, or else of Python, or else
        any.
        """
        return text_column(
            self._names, self._place[codes] if len(self._place) else np.zeros(len(codes), np.int64)
        )

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
        return text_column(
            np.array([self.text(int(code)) for code in distinct] or [""], object),
            row.astype(np.int64),
        )


def _base(file: str) -> str:
    # The cells of a notebook have a number for a name, in a folder of the kernel.
    return re.split(r"[/\\]", file)[-1] or file
