"""What a recording of a cell is called: by its notebook and the number of the cell, as far as a kernel can know them."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any


def notebook(shell: Any) -> str:
    """The file name of the notebook, as `training.ipynb`; "" where the front end does not tell the kernel."""
    # Jupyter Server puts the path into the environment of the kernel; VS Code into the user's names.
    path = str(shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or "")
    # Notebooks that several people edit at once are on a drive of that name.
    name = PurePath(path.replace("\\", "/")).name.removeprefix("RTC:")
    return name if name.endswith(".ipynb") else ""


def label(shell: Any, *, stored: bool = True) -> str:
    """`training [3]`, or `training` for what has no number; "" where the notebook is not known.

    Parameters
    ----------
    shell : InteractiveShell
    stored : bool
        Whether the running cell is among the inputs already: IPython adds it right before its first line runs.
    """
    name = notebook(shell)
    # By the inputs: whether `execution_count` is already that of the next cell depends on the version of IPython.
    number = len(shell.user_ns.get("In") or ()) - stored
    return f"{name.removesuffix('.ipynb')} [{number}]" if name and number > 0 else name.removesuffix(".ipynb")
