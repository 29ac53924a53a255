"""Threads that run PyTorch beside the one that its profiler records with allocations."""

from __future__ import annotations

import threading
import time
import warnings

import pytest

import nbprof
from nbprof.capture.options import Options
from nbprof.capture.session import Session, active
from nbprof.capture.torch_threads import OtherThreads, starts_threads
from nbprof.core.errors import CaptureError
from nbprof.profiles.load import open_recording
from tests.capture.notes import keys, text_of
from tests.capture.torches import counts
from tests.support.profiles import imported


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setattr("nbprof.capture.session.one_at_a_time", lambda: False)
    return imported("torch")


def on_a_thread(torch, seen, name="worker"):
    """Run a model on another thread until `seen` says so."""
    model = torch.nn.Linear(8, 8)

    def run():
        while not seen():
            model(torch.ones(4, 8))

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()


def until_looked_at(session):
    (backend,) = session.backend.frameworks
    # Twice as often as it takes, on a machine that is busy.
    deadline = time.monotonic() + 30
    return lambda: (
        backend._threads is None or bool(backend._threads._names) or time.monotonic() > deadline
    )


def test_a_cell_that_speaks_of_threads_has_the_ops_of_all(torch, tmp_path):
    session = Session(
        Options(logdir=str(tmp_path)),
        source="import torch, threading\nthreading.Thread(target=run).start()",
    ).start()
    on_a_thread(torch, _twice())
    recording = session.stop()
    assert counts(recording)["aten::addmm"] == 2
    assert keys(recording.info.notes)[0] == "allocations_not_recorded"
    assert counts(recording)["[memory]"] == 0


def _twice():
    calls = iter([False, False, True])
    return lambda: next(calls)


def test_a_thread_that_is_not_recorded_is_named_first(torch, tmp_path):
    session = Session(Options(logdir=str(tmp_path)), source="import torch\nserve()").start()
    on_a_thread(torch, until_looked_at(session), name="server 1")
    recording = session.stop()
    assert recording.info.backend == "torch"
    text = text_of(recording.info.notes[:1], "threads_not_recorded")
    assert text.startswith('thread "server 1" ran PyTorch and was not recorded')
    assert "--no-memory" in text
    assert not [thread for thread in threading.enumerate() if thread.name == "nbprof-threads"]


def test_verdict_and_advice_know_what_was_not_recorded(torch, tmp_path):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = Session(Options(logdir=str(tmp_path)), source="import torch\ntrain()").start()
    seen = until_looked_at(session)

    def train():
        steps = 0
        while steps < 4 or not seen():
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            steps += 1

    thread = threading.Thread(target=train, name="trainer")
    thread.start()
    thread.join()
    recording = session.stop()
    for p in (open_recording(recording), nbprof.load(recording.path)):
        assert (p.overview["verdict"], p.overview["bound"]) == ("Ops not recorded", None)
        assert p.overview["verdict_text"].startswith(
            "the framework worked on a thread that was not recorded"
        )
        assert p.overview["verdict_detail"].startswith(
            'Thread "trainer" ran PyTorch and was not recorded'
        )
        assert p.advice.empty
        assert p.run.missing["ops"].startswith('No op was recorded. Thread "trainer" ran PyTorch')
        text = str(p.receipt) + p.text()
        for false in (
            "Python calls",
            "No PyTorch op ran",
            "PyTorch allocated nothing",
            "profile_memory=True",
            "Python-bound",
        ):
            assert false not in text


def test_a_recording_of_all_threads_does_not_ask_for_what_was_asked_for(torch, tmp_path):
    session = Session(
        Options(logdir=str(tmp_path)),
        source="import torch, threading\nthreading.Thread(target=run).start()",
    ).start()
    on_a_thread(torch, _twice())
    p = open_recording(session.stop())
    assert (
        p.run.missing["memory"]
        == "This profile has no allocator events: the ops of all threads were recorded, without allocations."
    )
    assert "profile_memory=True" not in str(p.receipt)
    assert p.overview["verdict"] != "Ops not recorded"


def test_threads_without_pytorch_are_not_named(torch, tmp_path):
    session = Session(Options(logdir=str(tmp_path)), source="import torch\nserve()").start()
    thread = threading.Thread(target=time.sleep, args=(0.2,))
    thread.start()
    torch.ones(2) + 1
    thread.join()
    recording = session.stop()
    assert recording.info.backend == "torch"
    assert not [key for key in keys(recording.info.notes) if "thread" in key]


def test_the_recorded_thread_is_none_of_the_others(torch):
    looks = OtherThreads(threading.get_ident())
    model = torch.nn.Linear(2, 2)
    model.register_forward_hook(lambda *_: looks._look())
    model(torch.ones(1, 2))
    assert looks.stop() == []
    looks = OtherThreads(0)
    model(torch.ones(1, 2))
    assert looks.stop() == [threading.current_thread().name]


@pytest.mark.parametrize(
    ("source", "starts"),
    [
        ("threading.Thread(target=f).start()", True),
        ("await asyncio.to_thread(f)", True),
        ("with ThreadPoolExecutor() as pool: pool.map(f, x)", True),
        ("torch.set_num_threads(2)", False),
        ("# threading\nf()", False),
    ],
)
def test_cells_that_speak_of_threads(source, starts):
    assert starts_threads(source) == starts


def on_thread(function):
    """What a function gives on a thread of its own."""
    found = []

    def run():
        try:
            found.append(function())
        except CaptureError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


@pytest.fixture
def train(torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(more):
        while more():
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()

    yield train
    assert active() is None


def test_a_recording_that_another_thread_stops_ends_with_its_step(train):
    nbprof.start(backend="torch")
    stopper, found = on_thread(nbprof.stop)
    train(stopper.is_alive)
    stopper.join()
    (p,) = found
    assert len(p.steps.frame) >= 1
    assert "aten::addmm" in p.ops.frame["op"].tolist()
    text = text_of(p.run.capture.notes, "recording_ended")
    assert text.startswith("nbprof.stop() was called on another thread: recording ended after step")
    with pytest.raises(CaptureError, match="no recording to stop"):
        nbprof.stop()


def test_a_recording_that_another_thread_cannot_stop_goes_on(train, monkeypatch):
    monkeypatch.setattr("nbprof.capture.windows.WAIT_S", 0.01)
    nbprof.start(backend="torch")
    stopper, found = on_thread(nbprof.stop)
    stopper.join()
    assert isinstance(found[0], CaptureError)
    assert str(found[0]).startswith(
        "the recording goes on: with allocations PyTorch can only be stopped on the thread that called"
    )
    steps = iter([True, True, False])
    train(lambda: next(steps))
    p = nbprof.stop()
    assert len(p.steps.frame) == 2


def test_without_allocations_any_thread_stops(train):
    nbprof.start(backend="torch", memory=False)
    steps = iter([True, True, False])
    train(lambda: next(steps))
    stopper, found = on_thread(nbprof.stop)
    stopper.join()
    assert len(found[0].steps.frame) == 2


def test_a_thread_that_starts_a_recording_is_told_to_stop_it(train):
    def record():
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            nbprof.start(backend="torch")
        nbprof.stop()
        return [str(each.message) for each in heard]

    recorder, found = on_thread(record)
    recorder.join()
    assert any(
        "can only be stopped on the thread that started it: call nbprof.stop() on this one" in text
        for text in found[0]
    )
