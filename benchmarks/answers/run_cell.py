"""Runs one cell in a fresh IPython shell and prints what nbprof says of it, as JSON.

python benchmarks/answers/run_cell.py "torch/inference loop"
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from cells import CELLS, MAGIC, Cell  # noqa: E402


def run(cell: Cell, magic: str = MAGIC) -> dict[str, Any]:
    """Runs its cells one after the other, the last one under nbprof, with this first line.

    Raises
    ------
    RuntimeError
        A cell failed that should not, or left no clock.
    """
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "nbprof")
    for text in cell.setup:
        if not shell.run_cell(text.strip("\n") + "\n", store_history=True).success:
            raise RuntimeError(f"the setup of {cell.name} failed")
    result = shell.run_cell(cell.under(magic), store_history=True)
    if result.success == cell.fails:
        raise RuntimeError(f"{cell.name} {'ran' if cell.fails else 'failed'}")
    seconds = shell.user_ns.get("seconds")
    if not isinstance(seconds, float) or not math.isfinite(seconds) or seconds <= 0:
        raise RuntimeError(f"{cell.name} left no clock")
    # Only now, for it imports pandas, which the cell may do without.
    from answer import NOTHING, answer

    profile = shell.user_ns.get("p")
    said = NOTHING if profile is None else answer(profile, cell.under(magic))
    return {**said, "seconds": seconds}


def main(name: str) -> None:
    import definitions  # noqa: F401  registers the cells

    cell = CELLS[name]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder
        os.chdir(folder)
        for file, text in cell.modules.items():
            Path(folder, file).write_text(text)
        sys.path.insert(0, folder)
        print("\n" + json.dumps(run(cell)))
        sys.stdout.flush()
        os.chdir(HERE)


if __name__ == "__main__":
    main(sys.argv[1])
