"""Sampled Python calls in the file format of speedscope, a viewer of flame graphs.

Format: https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources, "sampled".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from nbprof.core.atomic_write import atomic_write
from nbprof.core.version import __version__

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def document(tree: pd.DataFrame, name: str) -> dict[str, Any]:
    """A profile with a weighted stack for each function that has self time, in ms.

    Parameters
    ----------
    tree : DataFrame
        `p.python.tree`.
    name : str
        Of the run.
    """
    numbers: dict[tuple[str, str, int], int] = {}
    frames: list[dict[str, Any]] = []
    stacks: list[list[int]] = []
    samples: list[list[int]] = []
    weights: list[float] = []
    for parent, function, file, line, self_ms in zip(
        *(tree[column].tolist() for column in ("parent", "function", "file", "line", "self_ms")),
        strict=True,
    ):
        key = function, file, line
        if key not in numbers:
            numbers[key] = len(numbers)
            frames.append({"name": function, "file": file, "line": line})
        outer = stacks[parent] if parent >= 0 else []
        stacks.append([*outer, numbers[key]])
        if self_ms > 0:
            samples.append(stacks[-1])
            weights.append(self_ms)
    return {
        "$schema": _SCHEMA,
        "exporter": f"nbprof {__version__}",
        "name": name,
        "shared": {"frames": frames},
        "profiles": [
            {
                "type": "sampled",
                "name": name,
                "unit": "milliseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
    }


def write(tree: pd.DataFrame, name: str, path: str | Path) -> Path:
    """Write the document to a file, which is replaced.

    Raises
    ------
    NbprofError
        The file could not be written.
    """
    target = Path(path)
    text = json.dumps(document(tree, name), separators=(",", ":"))
    with atomic_write(target, "report") as file:
        file.write(text.encode())
    return target
