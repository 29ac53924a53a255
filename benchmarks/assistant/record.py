"""Records one planted program in a process of its own, and prints what is true of it.

python benchmarks/assistant/record.py "program/torch/mlp" FOLDER

Names begin with `program/` for a training program of `benchmarks/diagnosis`, and with `cell/` for
a cell of `benchmarks/answers`. The folder receives the run.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]
MAGIC = "%%nbprof -o p"
"""The first line of a cell; its run is kept."""


def of_program(name: str, folder: Path) -> dict[str, Any]:
    """Records a training loop after its first steps: its truth, and its step by its own clock."""
    sys.path.insert(0, str(BENCHMARKS / "diagnosis"))
    sys.modules.pop("record", None)
    from programs import PROGRAMS
    from record import MODULES, WARM, throughout

    importlib.import_module(MODULES[name.split("/")[0]])
    program = PROGRAMS[name]
    loop = program.make(False)
    loop(WARM)
    recorded = throughout(loop, program, logdir=str(folder))
    return {
        "verdicts": sorted(program.bound),
        "rules": sorted(program.rules),
        "also": sorted(program.also),
        "unit_ms": 1000 * recorded.seconds / (program.steps // program.batches),
    }


def of_cell(name: str, folder: Path) -> dict[str, Any]:
    """Runs a cell under `%%nbprof`: its truth, and its unit by its own clock."""
    sys.path.insert(0, str(BENCHMARKS / "answers"))
    os.environ["IPYTHONDIR"] = str(folder / "ipython")
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    import definitions  # noqa: F401  registers the cells
    from cells import CELLS
    from run_cell import run

    cell = CELLS[name]
    for file, text in cell.modules.items():
        Path(folder, file).write_text(text)
    said = run(cell, MAGIC)
    counts = cell.units.get(said["unit"]) or next(iter(cell.units.values()))
    texts = [text.strip("\n") for text in cell.setup] + [cell.under(MAGIC)]
    sources = {f"Cell [{number}]": text for number, text in enumerate(texts, 1)}
    return {
        "verdicts": sorted(cell.bound),
        "lines": list(cell.named),
        "sources": sources | dict(cell.modules),
        "unit_ms": 1000 * said["seconds"] / counts[0],
    }


def main(name: str, folder: Path) -> None:
    kind, _, rest = name.partition("/")
    record = {"cell": of_cell, "program": of_program}[kind]
    print("\n" + json.dumps(record(rest, folder)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve())
