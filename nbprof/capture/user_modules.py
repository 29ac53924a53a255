"""Modules of the user: Python files that belong neither to Python nor to an installed package."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

_MOST = 2_000
_INSTALLED = {"site-packages", "dist-packages"}
_PACKAGE = str(Path(__file__).resolve().parents[1])


def loaded() -> list[ModuleType]:
    """The imported ones, in the order of their import; none if there are too many to read."""
    paths = sysconfig.get_paths()
    installed = tuple(
        {str(Path(paths[name])) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    )
    modules = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if type(module) is not ModuleType or not isinstance(file, str) or not file.endswith(".py"):
            continue
        if file.startswith((*installed, _PACKAGE)) or not _INSTALLED.isdisjoint(Path(file).parts):
            continue
        modules.append(module)
        if len(modules) > _MOST:
            return []
    return modules
