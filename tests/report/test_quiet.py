"""What our own threads do must write nothing into the notebook."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nbprof.core.quiet import silence
from nbprof.profiles import comms
from nbprof.run.cache import background
from nbprof.timeline import serve

NONE = np.zeros(1)


def noisy() -> None:
    """Work that warns, and then fails."""
    _ = NONE / NONE
    raise ZeroDivisionError("of a test")


@pytest.fixture
def written(monkeypatch):
    """What a thread would have written: its exceptions and its warnings."""
    out: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", out.append)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *args, **_: out.append(args))
        yield out


def test_threads_write_what_they_are_kept_from_here(written):
    """Else the tests below could not fail."""
    thread = threading.Thread(target=noisy)
    thread.start()
    thread.join()
    assert len(written) == 2


def test_what_is_made_for_tiles_before_it_is_needed(written, monkeypatch):
    begun: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: begun.append(thread))
    monkeypatch.setattr(serve, "MANY", 0)
    monkeypatch.setattr(serve, "_prepare", lambda *_: noisy())
    timeline = serve.Timeline(SimpleNamespace())
    timeline._values |= {"tracks": SimpleNamespace(events=[]), "index": None}
    timeline.prepare()
    (thread,) = begun
    thread.run()
    assert not written


def test_answers_of_the_thread_behind_the_comms(written):
    done = threading.Event()
    comms._later(noisy)
    thread = comms._worker
    comms._later(done.set)
    assert done.wait(60)
    assert comms._worker is thread, "the same thread goes on"
    assert not written


def test_the_cache(written):
    class Waiting:
        busy = False

        def flush(self, stop):
            noisy()

    background.write(Waiting(), 0.0)
    assert background.finish(60)
    assert not written


def test_pools(written):
    with ThreadPoolExecutor(1, initializer=silence) as pool:
        waited = pool.submit(noisy)
    with pytest.raises(ZeroDivisionError):
        waited.result()
    assert not written
