"""The formats in the order in which they collect the files of a folder, and how the names of their
files end.

`formats.json` is read here, and by the TypeScript side as it is built: which files JupyterLab
`opens` by a double click, and which it `may_open` where somebody chooses so, for their names are
anybody's.
"""

from __future__ import annotations

import json
from pathlib import Path

SUFFIXES: dict[str, tuple[str, ...]] = {
    row["room"]: tuple(row["suffixes"])
    for row in json.loads(Path(__file__).with_name("formats.json").read_text("utf-8"))
}
"""By the folder of the format; the usual one first."""
