"""What tests of several readers need."""

from __future__ import annotations

import time
import uuid

import fsspec
import pytest

from nbprof.native import library


@pytest.fixture
def memory():
    """A folder of fsspec's memory file system; gives its URL."""
    fs = fsspec.filesystem("memory")
    root = f"/{uuid.uuid4().hex}"

    def put(files):
        for name, data in files.items():
            fs.pipe_file(f"{root}/{name}", data)
            # Each is newer than the one before.
            time.sleep(0.001)
        return f"memory://{root}"

    yield put
    if fs.exists(root):
        fs.rm(root, recursive=True)


@pytest.fixture
def without_library(monkeypatch):
    """Leaves the compiled readers out from then on."""

    def leave_out():
        monkeypatch.setattr(library, "load", lambda: library.Loaded(None, "it was left out"))

    return leave_out
