"""Every call opens a run: the second one has it from a cache of the tests' own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _cached(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBPROF_CACHE", "1")
        patch.setenv("NBPROF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
