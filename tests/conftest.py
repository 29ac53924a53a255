"""No test reads or writes the cache of whoever runs it; those of the cache turn on one of their own."""

from __future__ import annotations

import os
import signal
from collections import Counter

from hypothesis import settings

# A test that is slow on a busy machine is no failure. CI draws the same examples each time; `make fuzz` draws others.
settings.register_profile("nbprof", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("nbprof")


def pytest_configure():
    # In the environment, so that it holds in every process that a test starts.
    os.environ["NBPROF_CACHE"] = "0"
    # Whoever runs tests in the background has Ctrl-C turned off, for every process started here too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val, argname):
    # Packed bytes may hold the time at which they were packed; a test has the same name in every process that runs tests.
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items):
    # Browser tests come last: their browser runs an event loop in this thread until the end, and those of the server start their own.
    # The largest file comes first, of the others and of these, so that no worker is left alone with it at the end.
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: ("e2e" in item.path.parts, -counts[item.path], item.path))
