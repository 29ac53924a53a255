"""Sampling needs grpcio; real workers need a framework as well."""

from __future__ import annotations

import pytest

from tests.support.profiles import require


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A working directory of its own, and short waits before somebody is asked again."""
    from nbprof.capture.remote import workers

    require("grpc")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "RETRY_S", 0.01)
    monkeypatch.setattr(workers, "BUSY_S", 0.02)
    return tmp_path


@pytest.fixture
def short(monkeypatch):
    """Workers that do not answer are given up soon."""
    from nbprof.capture.remote import workers

    monkeypatch.setattr(workers, "SLACK_S", 0.3)
