"""Real profiles beside the checkout, where they are there; tests on them skip with a reason elsewhere."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3] / "shared" / "profiles"


def needed(reason: str) -> None:
    """Skips a test for want of a tool; in CI, which installs them all, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, which CI must not be without")
    pytest.skip(reason)


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
