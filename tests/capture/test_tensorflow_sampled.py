"""Steps of a program that serves: TensorFlow's profiler is started here as the server does, without
a word to nbprof.
"""

from __future__ import annotations

import sys

import pytest

import nbprof
from nbprof.capture import clock
from nbprof.capture.options import Options
from nbprof.capture.remote.serve import StandingMarks
from nbprof.capture.session import Session


@pytest.fixture
def marks(tf):
    marks = StandingMarks("tensorflow", tf)
    marks.install()
    yield marks
    marks.remove()


def sampled(tf, folder, program):
    """What somebody else records of a program."""
    tf.profiler.experimental.start(str(folder))
    program()
    tf.profiler.experimental.stop()
    return nbprof.load(folder)


def test_batches_of_keras_are_steps(tf, model, data, marks, tmp_path):
    profile = sampled(tf, tmp_path / "a", lambda: model.fit(data, verbose=0))
    assert profile.run.steps["kind"].tolist() == ["train"] * 8
    # The waiting is in the step.
    assert profile.steps.frame["step_time_ms"].median() > 9
    profile = sampled(tf, tmp_path / "b", lambda: model.evaluate(data, verbose=0))
    assert len(profile.run.steps) == 8


def test_so_are_rounds_of_a_loop_and_what_the_person_marks(tf, marks, tmp_path):
    def program():
        for _ in nbprof.steps(range(3)):
            tf.square(1.0)
        with nbprof.step("test", 70):
            tf.square(2.0)
        with tf.profiler.experimental.Trace("mine", step_num=80, _r=1), nbprof.step():
            tf.square(3.0)

    profile = sampled(tf, tmp_path, program)
    assert profile.run.steps["step"].tolist() == [1, 2, 3, 70, 80]


def test_a_recording_of_this_process_has_each_step_once(
    tf, model, data, marks, markers, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    session = Session(Options(), source="import tensorflow").start()
    assert clock.current() is session.clock
    model.fit(data, verbose=0)
    with tf.profiler.experimental.Trace("mine", step_num=9, _r=1):
        tf.square(1.0)
    recording = session.stop()
    assert recording.info.steps_seen == 9
    assert len(nbprof.load(recording.path).run.steps) == 9
    assert clock.current() is marks.clock
    # And it goes on afterwards.
    assert len(sampled(tf, tmp_path / "after", lambda: model.fit(data, verbose=0)).run.steps) == 8


def test_everything_is_as_before_in_the_end(tf, model):
    owner = sys.modules["keras.src.callbacks.callback_list"].CallbackList
    trace = tf.profiler.experimental.Trace
    before = dict(vars(owner)), dict(vars(trace))
    marks = StandingMarks("tensorflow", tf)
    marks.install()
    assert vars(owner) != before[0]
    marks.remove()
    assert (dict(vars(owner)), dict(vars(trace))) == before
    assert clock.current() is None
