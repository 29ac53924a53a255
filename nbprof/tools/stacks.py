"""Weighted stacks in the formats of viewers of flame graphs: speedscope and pprof.

Formats: https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources ("sampled"), and
https://github.com/google/pprof/blob/main/proto/profile.proto, compressed by gzip.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.core.atomic_write import atomic_write
from nbprof.core.errors import NbprofError
from nbprof.core.version import __version__
from nbprof.core.wire import bytes_field, number_field, write_varint

SPEEDSCOPE = (".json",)
PPROF = (".pb.gz", ".pprof")
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class Frame(NamedTuple):
    """A function, module, op or kernel."""

    name: str
    file: str = ""
    line: int = 0


class Stack(NamedTuple):
    """Time of the innermost frame of a stack.

    Attributes
    ----------
    series : str
        What the time is, as "device".
    frames : list of int
        Numbers of the frames, outermost first.
    ns : int
    """

    series: str
    frames: list[int]
    ns: int


@dataclass(frozen=True)
class Stacks:
    """Weighted stacks of a run.

    Attributes
    ----------
    name : str
        Of the run.
    series : list of str
        In the order in which viewers list them.
    frames : list of Frame
    stacks : list of Stack
    """

    name: str
    series: list[str]
    frames: list[Frame]
    stacks: list[Stack]

    @classmethod
    def of_tree(
        cls, name: str, tree: pd.DataFrame, frames: Sequence[Frame], series: Sequence[str], ns: Any
    ) -> Stacks:
        """The rows of a tree that have self time.

        Parameters
        ----------
        name : str
            Of the run.
        tree : DataFrame
            `parent` is the row around each one, which comes earlier; -1 for none.
        frames, series : sequence
            Of each row.
        ns : float64[n]
            Self time.
        """
        numbers: dict[Frame, int] = {}
        of_rows: list[list[int]] = []
        stacks = []
        whole_ns = np.rint(np.asarray(ns, np.float64)).astype(np.int64).tolist()
        rows = zip(tree["parent"].tolist(), frames, series, whole_ns, strict=True)
        for parent, frame, of_row, time in rows:
            outer = of_rows[parent] if parent >= 0 else []
            of_rows.append([*outer, numbers.setdefault(frame, len(numbers))])
            if time > 0:
                stacks.append(Stack(of_row, of_rows[-1], time))
        return cls(name, list(dict.fromkeys(series)), list(numbers), stacks)

    def speedscope(self) -> bytes:
        """A profile for each series, with a sample for each stack."""
        frames = []
        for frame in self.frames:
            entry: dict[str, Any] = {"name": frame.name}
            if frame.file:
                entry |= {"file": frame.file, "line": frame.line}
            frames.append(entry)
        profiles = []
        for series in self.series:
            stacks = [stack for stack in self.stacks if stack.series == series]
            weights = [stack.ns for stack in stacks]
            profiles.append(
                {
                    "type": "sampled",
                    "name": f"{self.name} {series}",
                    "unit": "nanoseconds",
                    "startValue": 0,
                    "endValue": sum(weights),
                    "samples": [stack.frames for stack in stacks],
                    "weights": weights,
                }
            )
        document = {
            "$schema": _SCHEMA,
            "exporter": f"nbprof {__version__}",
            "name": self.name,
            "shared": {"frames": frames},
            "profiles": profiles,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    def pprof(self) -> bytes:
        """A `Profile` with a value for each series in each sample, all in ns."""
        texts: dict[str, int] = {"": 0}

        def text(value: str) -> int:
            return texts.setdefault(value, len(texts))

        parts = []
        unit = text("nanoseconds")
        for series in self.series:
            parts.append(bytes_field(1, number_field(1, text(series)) + number_field(2, unit)))
        for stack in self.stacks:
            values = [0] * len(self.series)
            values[self.series.index(stack.series)] = stack.ns
            # The innermost location comes first.
            locations = [number + 1 for number in reversed(stack.frames)]
            parts.append(bytes_field(2, _packed(1, locations) + _packed(2, values)))
        for number, frame in enumerate(self.frames, 1):
            line = number_field(1, number) + number_field(2, frame.line)
            parts.append(bytes_field(4, number_field(1, number) + bytes_field(4, line)))
            name, file = text(frame.name), text(frame.file)
            function = [number_field(1, number), number_field(2, name), number_field(3, name)]
            function += [number_field(4, file), number_field(5, frame.line)]
            parts.append(bytes_field(5, b"".join(function)))
        parts.append(_packed(13, [text(f"nbprof {__version__}: {self.name}")]))
        # Viewers show the last series where none is named.
        parts += [number_field(14, text(series)) for series in self.series[:1]]
        parts += [bytes_field(6, each.encode("utf-8", "replace")) for each in texts]
        return gzip.compress(b"".join(parts), mtime=0)

    def write(self, path: str | Path) -> Path:
        """Write the file in the format that its name asks for; an existing one is replaced.

        Raises
        ------
        NbprofError
            The name ends as that of neither format, or the file could not be written.
        """
        target = Path(path).expanduser()
        content = self._format(target)()
        with atomic_write(target, "flame graph", len(content)) as file:
            file.write(content)
        return target

    def _format(self, target: Path) -> Callable[[], bytes]:
        if target.name.endswith(PPROF):
            return self.pprof
        if target.name.endswith(SPEEDSCOPE):
            return self.speedscope
        raise NbprofError(
            f"{target}: the file name must end in .json (speedscope), or in .pb.gz or .pprof"
            " (pprof)"
        )


def _packed(field: int, values: Sequence[int]) -> bytes:
    return bytes_field(field, b"".join(map(write_varint, values)))
