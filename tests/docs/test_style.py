"""The package stays readable: faults that are gone do not come back, and the others only fall.

`python -m tests.support.style --list nbprof` lists each with its place.
"""

from __future__ import annotations

import pytest

from tests.support.style import ROOT, count

LIMITS = {
    "assignment in comprehension": 0.02,
    "comprehension": 18.7,
    "conditional expression": 10.0,
    "conditional source": 0.0,
    "long function": 0.2,
    "nested comprehension": 0.11,
    "nested conditional": 0.01,
    "parameters": 0.16,
    "vague name": 0.15,
    "weak name": 0.72,
    "wording": 0.95,
}
"""Per 1,000 lines of `nbprof/`; lower a limit when its count has fallen, and never raise it."""


@pytest.fixture(scope="module")
def per_thousand():
    total = count(ROOT / "nbprof")
    return {kind: 1000 * number / total["lines"] for kind, number in total.items()}


@pytest.mark.parametrize(("kind", "limit"), LIMITS.items())
def test_faults_of_style_do_not_grow(per_thousand, kind, limit):
    assert per_thousand.get(kind, 0) <= limit
