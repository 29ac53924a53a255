"""When a recording begins and ends, with a stand-in for the framework's profiler."""

from __future__ import annotations

import sys
import threading
import time
import types
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

import nbprof
from nbprof.capture import bounds, describe
from nbprof.capture import session as room
from nbprof.capture.clock import StepClock
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.capture.windows import Since, Windows
from nbprof.core.loop_times import Loop, LoopTimes, choose
from nbprof.core.receipt import info
from nbprof.sources.recording import CaptureInfo
from tests.capture.notes import keys, text_of


class Stub:
    """As a backend; keeps what it was asked for."""

    name, title = "tensorflow", "TensorFlow"

    def __init__(self):
        self.calls, self.open = [], 0
        self.folder = None

    def start(self, folder, options):
        del options
        self.folder = folder
        self.calls.append("start")
        return [info("backend_note", "a note of the backend")]

    def stop(self):
        run = self.folder / "plugins" / "profile" / "2026_01_01_00_00_00"
        run.mkdir(parents=True)
        (run / "host.xplane.pb").write_bytes(b"")
        self.calls.append(f"stop on {threading.current_thread().name}")

    def open_marker(self, kind, number):
        del kind, number
        return types.SimpleNamespace(close=lambda step, batches=1: None)

    def versions(self):
        return "TensorFlow 9"

    def hook(self, clock, patches, give_way):
        pass


@pytest.fixture
def stub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    stub = Stub()
    monkeypatch.setattr(room, "_make_backend", lambda module: stub)
    return stub


def recorded(stub, rounds, **options):
    session = Session(Options(backend="tensorflow", **options)).start()
    for _ in nbprof.steps(range(rounds)):
        pass
    session.stop()
    return session


def test_a_window_comes_again_each_so_many_steps(stub, tmp_path):
    session = recorded(stub, 23, steps=(2, 4), every=10)
    assert [name.split()[0] for name in stub.calls] == ["start", "stop"] * 3
    windows = session.windows.recordings
    assert [w.info.window for w in windows] == [[2, 4], [12, 14], [22, 23]]
    assert session.recording.others == [windows[0], windows[2]]
    names = [path.name for path in (tmp_path / "nbprof-results/plugins/profile").iterdir()]
    parts = sorted(name.partition("-")[2] for name in names)
    assert parts == [f"steps-{steps}" for steps in ("12-14", "2-4", "22-23")]
    # The last one was cut short by the end of the cell; shown is the last whole one.
    assert session.recording.info.window == [12, 14]
    assert session.recording.info.steps_seen == 23
    infos = [CaptureInfo.read(w.path) for w in windows]
    assert len({info.group for info in infos}) == 1
    assert infos[0].group
    assert len({info.label for info in infos}) == 1


def test_windows_may_follow_each_other_without_a_gap(stub):
    session = recorded(stub, 6, steps=(1, 2), every=2)
    assert [w.info.window for w in session.windows.recordings] == [[1, 2], [3, 4], [5, 6]]


def test_one_window_has_no_group_and_the_name_of_its_start(stub):
    session = recorded(stub, 6, steps=(2, 3))
    capture = session.recording.info
    started = datetime.fromisoformat(capture.started)
    assert capture.group == ""
    assert session.recording.path.name == started.strftime("%Y_%m_%d_%H_%M_%S")
    assert session.recording.info.window == [2, 3]
    assert session.recording.others == []


def test_steps_past_the_end_are_said(stub):
    session = recorded(stub, 4, steps=(10, 20))
    assert session.recording is None
    assert (
        session.failure
        == "--steps asked for step 10, but the cell ended after step 4: nothing was recorded"
    )
    session = recorded(stub, 0, steps=(10, 12))
    assert session.failure.startswith(
        "--steps asked for step 10, but the cell marks no steps: mark them with 'for batch in nbprof.steps(batches):'"
    )
    session = recorded(stub, 4, steps=(3, 20))
    text = text_of(session.recording.info.notes, "steps_not_reached")
    assert text == "--steps asked for 3 to 20, but the cell ended after step 4"
    assert session.recording.info.window == [3, 4]


def test_a_cell_that_ends_before_its_first_step_is_kept(stub):
    session = Session(Options(backend="tensorflow")).start()
    recording = session.stop(ValueError("no"))
    # Maybe there were steps: those of JAX are found in the recording.
    assert recording.info.error == "cell failed: ValueError: no"
    assert (recording.info.steps_seen, recording.info.window) == (0, [])


def test_the_receipt_says_how_steps_were_found(stub):
    notes = recorded(stub, 2).recording.info.notes
    assert text_of(notes, "step_origins") == "steps: marked by nbprof.steps"
    session = Session(Options(backend="tensorflow")).start()
    for _ in nbprof.steps(range(3)):
        pass
    with nbprof.step():
        pass
    text = text_of(session.stop().info.notes, "step_origins")
    assert text == "steps: 3 marked by nbprof.steps, 1 marked by nbprof.step"


def test_a_bound_ends_a_recording_at_the_end_of_the_step_that_runs(stub):
    session = Session(Options(backend="tensorflow")).start()
    # As a bound does on its thread, but in the second step, however long the first one takes.
    bound = threading.Thread(target=session.windows.end_soon, args=("a bound was reached",))
    ended = []
    for number in nbprof.steps(range(4)):
        if number == 1:
            bound.start()
            while session.clock._after_step is None:
                bounds.time.sleep(0.01)
        ended.append(len(stub.calls))
    recording = session.stop()
    bound.join(20)
    assert ended == [1, 1, 2, 2]
    assert stub.calls[1] == f"stop on {threading.main_thread().name}"
    assert recording.info.window == [1, 2]
    assert recording.info.steps_seen == 4
    text = text_of(recording.info.notes, "recording_ended")
    assert text == "a bound was reached: recording ended after step 2"


def test_seconds_end_a_recording_at_once_where_no_step_runs(stub):
    session = Session(Options(backend="tensorflow", seconds=0.05)).start()
    assert session.windows._ended.wait(20)
    assert stub.calls[1] == "stop on nbprof-bounds"
    text = text_of(session.stop().info.notes, "recording_ended")
    assert text.endswith("(--seconds): recording ended")


def test_a_step_that_does_not_end_is_not_waited_for_for_ever(stub, monkeypatch):
    monkeypatch.setattr("nbprof.capture.windows.WAIT_S", 0.1)
    session = Session(Options(backend="tensorflow")).start()
    with nbprof.step():
        # As a bound does on its thread, but not before the step has begun.
        reached = threading.Thread(target=session.windows.end_soon, args=("a bound was reached",))
        reached.start()
        reached.join(20)
        assert session.windows._ended.is_set()
    assert (
        "a bound was reached, and no step ended in the 0 s after it: recording ended before the"
        " first step ended" in text_of(session.stop().info.notes, "recording_ended")
    )
    # The step was cut off, so it is in no file.
    assert (session.recording.info.steps_marked, session.recording.info.steps_seen) == (0, 1)


def test_a_profiler_that_stops_only_on_its_own_thread_is_stopped_there(stub):
    stub.ends_anywhere = False
    session = Session(Options(backend="tensorflow", seconds=0.05)).start()
    while session.clock._after_step is None:
        bounds.time.sleep(0.01)
    for _ in nbprof.steps(range(2)):
        pass
    assert stub.calls[1] == f"stop on {threading.main_thread().name}"
    assert session.stop().info.window == [1, 1]
    session = Session(Options(backend="tensorflow", seconds=0.05)).start()
    while session.clock._after_step is None:
        bounds.time.sleep(0.01)
    assert session.stop().info.steps_seen == 0
    assert stub.calls[-1] == f"stop on {threading.main_thread().name}"


def test_a_growing_process_ends_the_recording(stub, monkeypatch):
    grown = iter([1e9, 1e9, 3e9, 3.4e9, 3.6e9, 9e9])
    monkeypatch.setattr(bounds, "_resident", lambda process: int(next(grown, 9e9)))
    monkeypatch.setattr(bounds, "PERIOD_S", 0.01)
    session = Session(Options(backend="tensorflow", limit_gb=0.5)).start()
    with nbprof.step():
        pass
    assert session.windows._ended.wait(20)
    notes = session.stop().info.notes
    # The step ended between two looks at the memory: what the process had grown until then is the
    # cell's own.
    assert (
        "since its first recorded step, over 476.84 MiB (--limit 0.5): recording ended after step 1"
        in text_of(notes, "recording_ended")
    )


def test_memory_that_nobody_limited_counts_when_the_machine_runs_short(monkeypatch):
    monkeypatch.setattr(bounds, "PERIOD_S", 0.01)
    monkeypatch.setattr(bounds, "machine_bytes", lambda: 4_000_000_000)
    sizes = iter([1e9])
    monkeypatch.setattr(bounds, "_resident", lambda process: int(next(sizes, 3e9)))
    free = types.SimpleNamespace(available=2e9, total=4e9)
    monkeypatch.setattr(bounds.psutil, "virtual_memory", lambda: free)
    said, looked = [], threading.Event()
    watch = bounds.Bounds(None, None, lambda: bool(looked.set()), said.append)
    watch.start()
    assert looked.wait(20)
    assert not said
    free.available = 0.5e9
    watch._thread.join(20)
    assert said == [
        "the process grew by 1.86 GiB since the recording began, over 953.67 MiB (--limit)"
    ]


def test_what_fails_while_the_bounds_are_watched_is_a_note(stub, monkeypatch):
    def fails(process):
        raise RuntimeError("no memory is told")

    monkeypatch.setattr(bounds, "PERIOD_S", 0.01)
    monkeypatch.setattr(bounds, "_resident", fails)
    session = Session(Options(backend="tensorflow", limit_gb=1.0)).start()
    session.windows._bounds._thread.join(20)
    with nbprof.step():
        pass
    info = session.stop().info
    assert info.steps_marked == 1
    assert text_of(info.notes, "bounds_failed").endswith("RuntimeError: no memory is told")


def test_the_memory_of_a_container_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.setattr(
        bounds, "_OF_CONTAINER", (str(tmp_path / "memory.max"), str(tmp_path / "absent"))
    )
    assert bounds.machine_bytes() == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert bounds.machine_bytes() > 1_000_000


def test_no_thread_is_left(stub):
    def mine():
        return [thread for thread in threading.enumerate() if thread.name == "nbprof-bounds"]

    assert not mine()
    session = Session(Options(backend="tensorflow")).start()
    assert len(mine()) == 1
    session.stop()
    assert not mine()


def test_a_fault_at_the_end_of_a_window_is_said_and_keeps_the_others(stub):
    session = Session(Options(backend="tensorflow", steps=(1, 1), every=2)).start()
    for number in nbprof.steps(range(4)):
        if number == 2:
            stub.stop = lambda: 1 / 0
    recording = session.stop()
    assert recording.info.window == [1, 1]
    fault = "a later window could not be recorded: the recording failed: ZeroDivisionError: division by zero"
    assert text_of(recording.info.notes, "window_not_recorded") == fault


def test_batches_of_one_kind_make_the_window():
    calls = []
    clock = StepClock(
        window=(3, 4),
        batches_of="train",
        begin_window=lambda: calls.append("begin"),
        end_window=lambda: calls.append("end"),
    )

    def loop(kind, count):
        clock.loop(kind)
        for _ in range(count):
            clock.begin(kind)
            clock.end(kind)
        clock.leave()

    loop("train", 2)
    # The window opens when time begins to belong to the third batch, which may be the validation
    # before it.
    assert calls == ["begin"]
    loop("test", 5)
    assert calls == ["begin"]
    loop("train", 1)
    assert calls == ["begin"]
    loop("train", 1)
    assert calls == ["begin", "end"]
    assert (clock.seen, clock.counted) == (9, 4)


def test_several_batches_a_step_open_the_window_with_the_step_that_holds_its_first():
    calls = []
    clock = StepClock(
        window=(6, 7),
        batches_of="train",
        begin_window=lambda: calls.append(clock.seen),
        end_window=lambda: calls.append(clock.seen),
    )
    clock.loop("train")
    for _ in range(3):
        clock.begin("train")
        clock.end("train", 4)
    assert calls == [1, 2]


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (MemoryError(), True),
        (
            type("ResourceExhaustedError", (Exception,), {})(
                "OOM when allocating tensor with shape[1,2]"
            ),
            True,
        ),
        (
            type("ResourceExhaustedError", (Exception,), {})("Received message larger than max"),
            False,
        ),
        (
            type("XlaRuntimeError", (RuntimeError,), {})(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes"
            ),
            True,
        ),
        (
            type("JaxRuntimeError", (RuntimeError,), {})(
                "RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)"
            ),
            False,
        ),
        (
            type("OutOfMemoryError", (RuntimeError,), {})(
                "CUDA out of memory. Tried to allocate 2 GiB"
            ),
            True,
        ),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried"
            ),
            True,
        ),
        (RuntimeError("the room is full"), False),
        (ValueError("out of memory"), False),
        (None, False),
    ],
)
def test_out_of_memory_is_known_by_what_the_frameworks_raise(error, is_it):
    assert describe.out_of_memory(error) is is_it


def test_an_error_that_another_led_to_is_out_of_memory_too():
    def fails(again):
        try:
            raise MemoryError
        except MemoryError as error:
            raise ValueError("wrapped") from (error if again else None)

    for again in (True, False):
        with pytest.raises(ValueError, match="wrapped") as caught:
            fails(again)
        assert describe.out_of_memory(caught.value) is again


def test_a_run_is_kept_where_what_is_known_of_it_cannot_be_written(stub, monkeypatch):
    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nbprof.sources.recording.Recording.write", full)
    recording = recorded(stub, 2).recording
    assert recording.host_file.exists()
    assert keys(recording.info.notes)[-1] == "info_not_written"
    assert recording.info.notes[-1].text.endswith("No space left on device")


def test_loops_are_weighed_against_what_is_recorded_since_a_framework_joined():
    windows = Windows(Options(), StepClock())
    windows.backend = types.SimpleNamespace(since=Since(time.perf_counter() - 0.8))
    now = time.time_ns()
    begin, half = now - 10_000_000_000, 500_000_000
    asked = np.array([now - half - 1000 + i * half // 4 for i in range(4)], np.int64)
    ended = asked + half // 5
    loop = Loop("1", 1, 3, "for i in range(4):", "for", 0, 4, half, 0, {}, False)
    times = LoopTimes(begin, now, [loop], np.zeros(4, np.int32), asked, asked, ended)
    assert choose(times) is None
    found = windows._from_joining(times)
    assert 0.7e9 < now - found.begin_ns < 0.95e9
    assert len(choose(LoopTimes.unpacked(found.packed()))) == 4
    # One that began before stays within what is recorded.
    early = replace(times, asked=asked - 5_000_000_000, got=asked, ended=ended)
    assert windows._from_joining(early).begin_ns == early.asked[0]
