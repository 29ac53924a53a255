"""No test reads or writes the cache of whoever runs it; those of the cache turn on one of their
own.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import programs

# A test that is slow on a busy machine is no failure. `make test` draws the same examples each
# time; `make fuzz` draws others.
settings.register_profile("nbprof", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("fuzz", deadline=None, print_blob=True, derandomize=False)
settings.load_profile("nbprof")

# jsonschema, which Jupyter imports, makes 38 parsers of addresses at import where it finds this:
# 1.6 s in each process that runs tests.
sys.modules["rfc3987_syntax"] = None

LONGEST = """\
docs/test_snippets.py
run/test_parallel.py
capture/test_robust.py
analysis/test_pods.py
magic/test_cell.py
analysis/test_invariants.py
capture/test_hidden_calls.py
run/test_absent.py
cache/test_trouble.py
capture/test_torch.py
capture/test_jax.py
magic/test_frameworks.py
capture/test_probe_state.py
magic/test_probe.py
formats/test_chrome_real.py
capture/test_keras_callback.py
capture/test_windows_real.py
magic/test_strip.py
magic/test_options.py
magic/test_interrupts.py
analysis/test_hosts.py
capture/test_torch_scripts.py
capture/remote/test_real_workers.py
parity/test_live.py
e2e/test_document.py
e2e/test_lab.py
e2e/test_page.py
e2e/test_live.py
e2e/test_cells.py
e2e/test_notebook7.py
e2e/test_strip.py
e2e/test_runs.py
e2e/test_widgets.py
e2e/test_capture_form.py
e2e/test_outputs.py
e2e/test_compare.py
e2e/test_help.py
""".splitlines()
"""The files that take longest, the longest first, be they of few tests."""


# What is imported and collected stays to the end: looking through it for garbage, as it grows and
# in each collection after it, takes a tenth of the time of all tests.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    # Of the process that hands out the tests, too, which collects none.
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure():
    if os.environ.get(programs.SESSION) == str(os.getpid()):
        shutil.rmtree(os.environ[programs.FOLDER], ignore_errors=True)


def pytest_configure():
    if programs.FOLDER not in os.environ:
        # Of the process that hands out the tests; workers inherit it.
        os.environ[programs.FOLDER] = tempfile.mkdtemp(prefix="nbprof-programs-")
        os.environ[programs.SESSION] = str(os.getpid())
    # In the environment, so that it holds in every process that a test starts.
    os.environ["NBPROF_CACHE"] = "0"
    # TensorFlow decides by the CPU's instructions whether it takes oneDNN and its allocator, which
    # is the one that records allocations.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
    # Whoever runs tests in the background has Ctrl-C turned off, for every process started here
    # too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Failures(logging.Handler):
    """Keeps what `nbprof.core.guard` says of parts that failed."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@pytest.fixture(autouse=True)
def no_part_fails(request):
    """A part of the analysis that fails is left out of what users see; in a test it is a failure,
    unless the test is about that.
    """
    failures, log = _Failures(), logging.getLogger("nbprof.guard")
    level = log.level
    log.addHandler(failures)
    log.setLevel(logging.DEBUG)
    yield
    log.removeHandler(failures)
    log.setLevel(level)
    assert not failures.messages or request.node.get_closest_marker("parts_fail")


def pytest_make_parametrize_id(val, argname):
    # Packed bytes may hold the time at which they were packed; a test has the same name in every
    # process that runs tests.
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items):
    # Browser tests come last: their browser runs an event loop in this thread until the end, and
    # those of the server start their own. The longest file comes first, of the others and of these,
    # so that no worker is left alone with it at the end.
    counts = Counter(item.path for item in items)
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: (
            "e2e" in item.path.parts,
            ranks.get(item.path, len(ranks)),
            -counts[item.path],
            item.path,
        )
    )
