"""What the live strip says and when, with a clock, meters and a place of the test's own."""

from __future__ import annotations

import gc
import sys
import threading
import time
import types
import weakref

import pytest

from nbprof.capture import session as sessions
from nbprof.capture.meters import Gpu, Reading
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.notebook import live_status as room
from nbprof.notebook.live_status import MIME_TYPE, Strip, bundle, items, phase
from tests.capture.test_windows import Stub


class Fixed:
    """As Meters."""

    def __init__(self, reading=Reading(1.94, 1_210_000_000)):  # noqa: B008  frozen
        self.reading, self.reads, self.closed = reading, 0, False

    def read(self):
        self.reads += 1
        return self.reading

    def close(self):
        self.closed = True


class Page:
    """As Slot: keeps what was shown, and fails when it is told to."""

    def __init__(self):
        self.shown, self.fails = [], False

    def draw(self, data):
        if self.fails:
            raise OSError("the front end is gone")
        self.shown.append(data)

    @property
    def last(self):
        return self.shown[-1]["text/plain"]


@pytest.fixture
def record(monkeypatch, tmp_path):
    """Gives a function that begins to record with options; all end with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    monkeypatch.setattr(sessions, "_make_backend", lambda module: Stub())
    begun = []

    def begin(**options):
        begun.append(Session(Options(backend="tensorflow", **options)).start())
        return begun[-1]

    yield begin
    for one in begun:
        one.stop()


@pytest.fixture
def still(monkeypatch):
    """Strips have no thread: the test paints."""

    def cannot(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(
        threading.Thread,
        "start",
        lambda thread: cannot(thread) if thread.name == "nbprof-strip" else STARTED(thread),
    )


STARTED = threading.Thread.start


def step(session, count=1):
    for _ in range(count):
        session.clock.root_begins()
        session.clock.root_ends("train")


def until(true):
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_what_is_said_of_a_run(record, monkeypatch):
    session = record(limit_gb=2)
    step(session, 1234)
    session.windows._bounds.grown = 240_000_000
    pace = types.SimpleNamespace(
        step_ms=lambda: 12.4, waiting_share=lambda: 0.34, waits_now=lambda: False
    )
    said = items(
        session,
        pace,
        Reading(1.94, 1_210_000_000, Gpu(1, 0.87, 12_300_000_000, 80_000_000_000)),
        14.2,
    )
    assert room.line("recording", said) == (
        "nbprof: recording · step 1,234 · 12.40 ms per step · 34 % waiting for input · CPU 194 % · 1.13 GiB memory"
        " · GPU 87 %, 11.46 GiB of 74.51 GiB · buffer 12 % full · 14.2 s"
    )
    assert [(item.name, item.value) for item in said][-2:] == [("buffer", "12 %"), ("", "14.2 s")]
    assert {item.name: item.share for item in said if item.share is not None} == {
        "input": 0.34,
        "buffer": 0.12,
    }
    assert all(item.about for item in said)


def test_what_is_not_known_is_not_said(record):
    session = record()
    session.windows._bounds.limit = 0
    pace = types.SimpleNamespace(
        step_ms=lambda: None, waiting_share=lambda: None, waits_now=lambda: False
    )
    assert (
        room.line("recording", items(session, pace, Reading(), 0.5)) == "nbprof: recording · 500 ms"
    )
    several = items(session, pace, Reading(gpu=Gpu(4, None, 49 * 10**9, 320 * 10**9)), 0.5)
    assert several[0].text == "4 GPUs 45.63 GiB of 298.02 GiB"


def test_a_wait_that_lasts_is_said(record):
    pace = types.SimpleNamespace(
        step_ms=lambda: 10, waiting_share=lambda: 0.1, waits_now=lambda: True
    )
    said = {item.name: item for item in items(record(), pace, Reading(), 1)}
    assert (said["input"].text, said["input"].value, said["input"].share) == (
        "waiting for input",
        "now",
        1.0,
    )


def test_the_phases_of_a_window(record):
    session = record(steps=(3, 4))
    assert phase(session) == ("wait", "waiting for step 3")
    step(session, 2)
    session.clock.root_begins()
    assert phase(session) == ("record", "recording")
    assert phase(session, stopping=True) == ("end", "ending the recording after this step")
    session.clock.root_ends("train")
    step(session, 5)
    assert phase(session) == ("over", "recorded steps 3 to 4; the rest runs without the profiler")


def test_windows_that_come_again(record):
    session = record(steps=(2, 3), every=10)
    step(session, 5)
    assert phase(session) == ("wait", "waiting for step 12")


def test_a_recording_that_failed_says_so(record, monkeypatch):
    session = record(steps=(2, 2))

    def refuse(folder, options):
        raise RuntimeError("busy")

    session.backend.start = refuse
    step(session, 3)
    assert phase(session) == ("over", "not recording; the cell continues")


def test_before_the_framework_is_imported(monkeypatch):
    for name in ("tensorflow", "jax", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("nbprof.capture.session._installed", lambda name: True)
    session = Session(Options(backend="jax")).start()
    try:
        assert phase(session) == ("wait", "waiting for JAX")
    finally:
        session.stop()
    # Until then, Python is recorded.
    named = Session(Options(save=False), source="import jax").start()
    try:
        assert phase(named)[0] == "record"
    finally:
        named.stop()


def test_the_output_carries_text_for_every_front_end():
    said = [room.Item("step <1>", "step", "<1>", 0.5, "about")]
    data = bundle("abc", "record", "recording", said, stops=True)
    assert set(data) == {MIME_TYPE, "text/html", "text/plain"}
    assert data["text/plain"] == "nbprof: recording · step <1>"
    assert "<1>" not in data["text/html"]
    assert "<script" not in data["text/html"]
    assert data[MIME_TYPE]["items"] == [
        {"name": "step", "value": "<1>", "about": "about", "share": 0.5}
    ]


def test_it_shows_and_stops_from_a_thread(record):
    session, page, meters = record(), Page(), Fixed()
    strip = Strip(session, page, meters)
    strip.begin()
    assert page.last.startswith("nbprof: recording · CPU 194 % · 1.13 GiB memory")
    assert not threading.current_thread().name.startswith("nbprof")
    step(session, 3)
    until(lambda: "step 3" in page.last)
    strip.end()
    count = len(page.shown)
    strip.paint()
    step(session)
    assert len(page.shown) == count
    assert not any(thread.name == "nbprof-strip" for thread in threading.enumerate())
    assert meters.closed
    assert strip.ident not in room._running


def test_it_is_painted_four_times_a_second_at_most_and_less_later(record, still):
    session, page, meters = record(), Page(), Fixed()
    now = [100.0]
    strip = Strip(session, page, meters, now=lambda: now[0])
    session.clock._on_step = lambda _: strip.stepped()
    strip.begin()
    for _ in range(1000):
        now[0] += 0.01
        step(session)
    assert 35 <= len(page.shown) <= 41
    assert 8 <= meters.reads <= 11
    now[0] += 60
    before = len(page.shown)
    for _ in range(1000):
        now[0] += 0.01
        step(session)
    assert 8 <= len(page.shown) - before <= 11


def test_where_python_calls_are_recorded_it_is_painted_once_a_second(record):
    assert Strip(record(), Page(), Fixed()).period == 0.25
    assert Strip(record(python=True), Page(), Fixed()).period == 1
    assert Strip(record(stacks=True), Page(), Fixed()).period == 1


def test_what_has_not_changed_is_not_sent_again(record, still):
    page, now = Page(), [1.0]
    strip = Strip(record(), page, Fixed(), now=lambda: now[0])
    strip.begin()
    strip.paint()
    assert len(page.shown) == 1


def test_a_place_that_fails_ends_the_strip_with_one_note_and_never_the_cell(record, still):
    session, page = record(), Page()
    page.fails = True
    strip = Strip(session, page, Fixed())
    session.clock._on_step = lambda _: strip.stepped()
    strip.begin()
    for _ in range(6):
        strip._last, strip._painted = {}, float("-inf")
        step(session)
    page.fails = False
    strip.paint()
    assert page.shown == []
    assert [note.key for note in session.windows.notes].count("live_status_failed") == 1
    assert session.clock.seen == 6


def test_stop_ends_the_recording_after_the_step_and_not_the_cell(record):
    session, page = record(), Page()
    strip = Strip(session, page, Fixed())
    strip.begin()
    try:
        step(session, 2)
        session.clock.root_begins()
        assert strip.stops
        assert strip.stop()
        until(lambda: "ending the recording after this step" in page.last)
        assert not strip.stop()
        assert session.windows.recording
        session.clock.root_ends("train")
        assert not session.windows.recording
        step(session, 4)
        until(
            lambda: page.last.startswith(
                "nbprof: recorded steps 1 to 3; the rest runs without the profiler · step 7"
            )
        )
        assert "full" not in page.last
    finally:
        strip.end()
    info = session.stop().info
    assert (info.steps_seen, info.steps_marked) == (7, 3)
    texts = [note.text for note in info.notes if note.key == "recording_ended"]
    assert texts == ["Stop and analyse was pressed: recording ended after step 3"]
    assert not strip.stop()


def test_there_is_nothing_to_stop_before_the_first_window(record, still):
    session = record(steps=(5, 6))
    strip = Strip(session, Page(), Fixed())
    assert not strip.stops
    assert not strip.stop()
    step(session, 4)
    session.clock.root_begins()
    assert strip.stops


class Comm:
    def __init__(self):
        self.sent, self.closed, self.hear = [], False, None

    def on_msg(self, hear):
        self.hear = hear

    def send(self, data):
        self.sent.append(data)

    def close(self):
        self.closed = True


def letter(data):
    return {"content": {"data": data}}


def test_only_a_strip_that_is_there_answers(record, still):
    session = record()
    strip = Strip(session, Page(), Fixed())
    strip.begin()
    for wrong in ({"id": "other"}, {"id": 3}, [], None):
        comm = Comm()
        room.open_comm(comm, letter(wrong))
        assert comm.closed
        assert comm.sent == []
    comm = Comm()
    room.open_comm(comm, letter({"id": strip.ident}))
    assert comm.sent == [{"ready": True}]
    comm.hear(letter({"ask": "else"}))
    comm.hear(letter("stop"))
    assert comm.sent == [{"ready": True}]
    assert session.windows.recording
    comm.hear(letter({"ask": "stop"}))
    until(lambda: session.windows.over)
    comm.hear(letter({"ask": "stop"}))
    assert comm.sent[1:] == [{"stopping": True}, {"stopping": False}]
    strip.end()
    late = Comm()
    room.open_comm(late, letter({"id": strip.ident}))
    assert late.closed


class Broken(Comm):
    """One whose front end takes nothing."""

    def send(self, data):
        raise OSError("the front end is gone")

    close = send


def test_a_comm_that_fails_is_no_error_of_the_kernel(record, still):
    session = record()
    strip = Strip(session, Page(), Fixed())
    strip.begin()
    comm = Comm()
    room.open_comm(comm, letter({"id": strip.ident}))
    comm.send = Broken().send
    comm.hear(letter({"ask": "stop"}))
    comm.hear({"content": {}})
    room.open_comm(Broken(), letter({"id": strip.ident}))
    room.open_comm(Broken(), letter({"id": "other"}))
    strip.end()


def test_a_page_that_is_gone_does_not_keep_the_recording(record, still):
    strip = Strip(record(), Page(), Fixed())
    strip.begin()
    comm = Comm()
    room.open_comm(comm, letter({"id": strip.ident}))
    strip.end()
    gone = weakref.ref(strip)
    del strip
    gc.collect()
    assert gone() is None
    comm.hear(letter({"ask": "stop"}))
    assert comm.sent == [{"ready": True}, {"stopping": False}]
