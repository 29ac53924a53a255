"""Recordings without a framework: steps, waits and the time between begin and end, for NumPy,
pandas and plain Python.
"""

from __future__ import annotations

import gzip
import json
import platform
import threading
import time

import numpy as np
import pytest

import nbprof
from nbprof.activity.activity import NEXT_ITEM
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.profiles.load import open_recording
from tests.capture.notes import keys


def recorded(function, place, **options):
    """Record a function without a framework and give the recording."""
    session = Session(Options(backend="python", logdir=str(place), **options)).start()
    function()
    recording = session.stop()
    assert recording is not None, session.failure
    return recording


def document(recording):
    (file,) = recording.path.glob("*.py.trace.json.gz")
    return json.loads(gzip.decompress(file.read_bytes()))


def spans(recording, category):
    return [
        event
        for event in document(recording)["traceEvents"]
        if event["ph"] == "X" and event["cat"] == category
    ]


def items(count, wait_s):
    for number in range(count):
        time.sleep(wait_s)
        yield number


def loop(count=4, wait_s=0.03, work_s=0.01):
    for _ in nbprof.steps(items(count, wait_s)):
        time.sleep(work_s)


def test_the_file_is_a_trace_with_its_origin_and_who_wrote_it(tmp_path):
    before = time.time_ns()
    recording = recorded(loop, tmp_path)
    after = time.time_ns()
    facts = document(recording)
    assert facts["otherData"] == {
        "recorder": "nbprof",
        "version": nbprof.__version__,
        "framework": "Python",
    }
    origin = facts["baseTimeNanoseconds"]
    (cell,) = spans(recording, "nbprof_recording")
    assert cell["name"] == "cell"
    began, ended = origin + cell["ts"] * 1e3, origin + (cell["ts"] + cell["dur"]) * 1e3
    # A float of ns since 1970 has a resolution of 256 ns.
    assert before - 1000 <= began <= ended <= after + 1000
    assert all(
        began <= origin + event["ts"] * 1e3 + 256 for event in spans(recording, "nbprof_step")
    )
    assert [event["name"] for event in spans(recording, "nbprof_step")] == [
        "train 1",
        "train 2",
        "train 3",
        "train 4",
    ]


def test_a_loop_has_its_steps_and_what_they_wait_for(tmp_path):
    recording = recorded(loop, tmp_path)
    assert recording.info.backend == "python"
    assert recording.info.steps_seen == recording.info.steps_marked == 4
    assert keys(recording.info.notes) == ["step_origins"]
    p = open_recording(recording)
    assert not p.run.activity.unit.is_recording
    frame = p.steps.frame
    assert frame.step.tolist() == [1, 2, 3, 4]
    assert frame.name.tolist() == ["train 1", "train 2", "train 3", "train 4"]
    waits = [event["dur"] / 1e3 for event in spans(recording, "nbprof_wait")]
    # The last one found that there is no further item: it is of no step.
    assert len(waits) == 5
    assert frame.input_ms.tolist() == pytest.approx(waits[:4], abs=1e-3)
    assert frame.other_ms.tolist() == pytest.approx(
        (frame.step_time_ms - frame.input_ms).tolist(), abs=1e-3
    )
    assert p.overview["bound"] == "input"
    assert NEXT_ITEM in set(map(str, p.run.trace.names))


def test_without_steps_the_recording_is_the_unit(tmp_path):
    recording = recorded(lambda: time.sleep(0.05), tmp_path)
    p = open_recording(recording)
    assert p.run.activity.unit.is_recording
    assert "nbprof.steps" in p.run.activity.unit.how
    (cell,) = spans(recording, "nbprof_recording")
    assert p.steps.frame.name.tolist() == ["recording"]
    assert p.steps.frame.step_time_ms.tolist() == pytest.approx([cell["dur"] / 1e3])


def test_waits_outside_of_steps_count_for_the_recording(tmp_path):
    def drained():
        for _ in nbprof.steps(items(0, 0)):
            raise AssertionError("there is no item")

    p = open_recording(recorded(drained, tmp_path))
    assert p.run.activity.unit.is_recording
    assert len(p.run.activity.work) == 1


def test_it_says_what_was_recorded_and_no_more(tmp_path):
    recording = recorded(loop, tmp_path)
    assert recording.info.framework.startswith(f"Python {platform.python_version()}")
    assert f"NumPy {np.__version__}" in recording.info.framework
    p = open_recording(recording)
    assert p.overview["framework"] == recording.info.framework
    assert p.overview["environment"]["versions"]["numpy"] == np.__version__
    said = f"{p.receipt}\n{p}\n{p.brief()}"
    assert "ProfilerActivity" not in said
    assert "tf.data" not in said
    assert "Plain trace" not in said
    assert "--python" not in said


def test_steps_of_threads_keep_their_waits(tmp_path):
    def run():
        threads = [threading.Thread(target=loop, args=(3, 0.02 * (i + 1), 0.0)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    recording = recorded(run, tmp_path)
    p = open_recording(recording)
    work, markers = p.run.activity.work.frame(), p.run.activity.markers.frame()
    assert len(markers) == len(work) == 6
    lanes = p.run.trace.events.lane
    of_group = dict(zip(markers["group"], lanes[markers["event"].to_numpy()], strict=True))
    assert [of_group[group] for group in work["group"]] == lanes[work["event"].to_numpy()].tolist()


def test_a_window_of_steps_is_recorded_alone(tmp_path):
    recording = recorded(loop, tmp_path, steps=(2, 3))
    assert [event["name"] for event in spans(recording, "nbprof_step")] == ["train 2", "train 3"]
    assert open_recording(recording).steps.frame.step.tolist() == [2, 3]


def test_the_process_is_gauged(tmp_path):
    def busy():
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass

    counters = [
        event for event in document(recorded(busy, tmp_path))["traceEvents"] if event["ph"] == "C"
    ]
    cores = [event["args"]["cores"] for event in counters if event["name"] == "CPU cores in use"]
    assert len(cores) >= 1
    assert 0 < max(cores) < 64
    assert not [thread for thread in threading.enumerate() if thread.name == "nbprof-gauge"]


def test_a_failed_step_is_a_span_and_no_step(tmp_path):
    def loop():
        for number in nbprof.steps(range(3)):
            if number == 1:
                raise ValueError("bad")

    def fails():
        with pytest.raises(ValueError, match="bad"):
            loop()

    recording = recorded(fails, tmp_path)
    assert [event["name"] for event in spans(recording, "nbprof_step")] == ["train 1"]
    assert "train" in [event["name"] for event in spans(recording, "nbprof_span")]
