"""No test reads or writes the cache of whoever runs it; those of the cache turn on one of their own."""

from __future__ import annotations

import os

from hypothesis import settings

# A test that is slow on a busy machine is no failure.
settings.register_profile("nbprof", deadline=None)
settings.load_profile("nbprof")


def pytest_configure():
    # In the environment, so that it holds in every process that a test starts.
    os.environ["NBPROF_CACHE"] = "0"
