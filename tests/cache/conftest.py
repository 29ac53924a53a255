"""A cache of its own for each test, and files old enough to be trusted."""

from __future__ import annotations

import os
import time

import pytest

from nbprof.formats.chrome import chrome
from nbprof.formats.xspace import xspace
from nbprof.run.cache import background, run_cache
from nbprof.run.cache.folder import Folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache that keeps what costs next to nothing too; the folder of it."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("NBPROF_CACHE", "1")
    monkeypatch.setenv("NBPROF_CACHE_DIR", str(folder))
    monkeypatch.setattr(run_cache, "WORTH_S", 0.0)
    yield Folder(folder)
    # What waits to be written must not come after the folder is gone.
    assert background.finish(30)


@pytest.fixture
def reads(monkeypatch):
    """Names of the files that the reader of the format was given."""
    seen = []

    def watched(original):
        def read(pieces, *rest, **options):
            seen.extend(piece.name for piece in pieces)
            return original(pieces, *rest, **options)

        return read

    for module in (xspace, chrome):
        monkeypatch.setattr(module, "read", watched(module.read))
    return seen


def written():
    """Waits until what was read and computed is in the cache."""
    assert background.finish(30)


def settle(*paths):
    """Makes files look as if they were written a minute ago."""
    before = time.time_ns() - 60_000_000_000
    for path in paths:
        os.utime(path, ns=(before, before))
    # The time of the change itself can't be set; the rule looks at both.
