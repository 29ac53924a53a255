"""Expectations in these tests are verified by the tests themselves, also where the plugin is
installed.
"""

import pytest

from nbprof.gate import policy


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    held = policy.Policy(unknown="warn")
    policy.push(held)
    yield held
    policy.drop(held)
