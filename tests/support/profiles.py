"""Real profiles beside the checkout, where they are there; tests on them skip with a reason
elsewhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3] / "shared" / "profiles"


def needed(reason: str) -> None:
    """Skips a test for want of a tool; in CI, which installs them all, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, which CI must not be without")
    pytest.skip(reason)


def require(*modules: str) -> None:
    """Skips a test where one of these modules is not installed; in CI that is a failure."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            needed(f"{module} is not installed")


def imported(module: str) -> ModuleType:
    """The module, or a skipped test where it is not installed."""
    require(module)
    return importlib.import_module(module)


def real(name: str) -> Path:
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"the real profile {name} is not beside this checkout")
    return path


def expected(name: str, peer: str, tool: str) -> Any:
    path = real(name) / "expected" / peer / f"{tool}.json"
    if not path.exists():
        pytest.skip(f"no {peer} output of {tool} for {name}")
    return json.loads(path.read_text())
