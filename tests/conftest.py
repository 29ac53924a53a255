"""No test reads or writes the cache of whoever runs it; those of the cache turn on one of their own."""

from __future__ import annotations

import os


def pytest_configure():
    # In the environment, so that it holds in every process that a test starts.
    os.environ["NBPROF_CACHE"] = "0"
