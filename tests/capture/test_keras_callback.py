"""``nbprof.keras.Callback`` with real models, on each backend of Keras that is installed."""

from __future__ import annotations

import copy
import importlib
import re
import sys
import types

import pytest

from nbprof.capture import session as room
from nbprof.core.errors import CaptureError
from tests.support.profiles import require
from tests.support.programs import run


def frame(callback):
    return callback.result.steps.frame


@pytest.fixture
def callback(tf, place):
    del tf
    module = importlib.import_module("nbprof.keras")
    said = []

    def callback(*args, **options):
        made = module.Callback(*args, say=said.append, **options)
        made.said = said
        return made

    yield callback
    assert room.active() is None


def test_only_the_batches_are_recorded_and_one_line_says_where(callback, model, data, place):
    recorder = callback(batches=(3, 5), logdir=str(place / "logs"))
    model.fit(data, verbose=0, callbacks=[recorder])
    (run,) = recorder.runs
    assert recorder.said == [
        f'nbprof: batches 3 to 5 of fit are recorded in {run}; nbprof.load("{run}") opens the run'
    ]
    assert run.parent == place / "logs" / "plugins" / "profile"
    assert frame(recorder)["name"].tolist() == ["train 3", "train 4", "train 5"]
    # The wait for the first batch lies in its step.
    assert frame(recorder)["input_ms"].iloc[0] >= 0
    assert recorder.result.run.capture.steps_seen == 8


def test_the_first_batch_can_be_recorded_too(callback, model, data):
    recorder = callback(batches="1:2")
    model.fit(data, verbose=0, callbacks=[recorder])
    assert frame(recorder)["name"].tolist() == ["train 1", "train 2"]


def test_batches_count_over_epochs_and_not_those_of_the_validation(callback, model, data):
    recorder = callback(batches=(8, 10))
    model.fit(data, epochs=2, verbose=0, validation_data=data.take(2), callbacks=[recorder])
    assert [name.split()[0] for name in frame(recorder)["name"]] == [
        "train",
        "test",
        "test",
        "train",
        "train",
    ]


def test_evaluate_and_predict_are_loops_of_their_own(callback, model, data):
    recorder = callback(batches=(2, 3))
    model.evaluate(data.take(4), verbose=0, callbacks=[recorder])
    assert frame(recorder)["name"].tolist() == ["test 2", "test 3"]
    model.predict(data.map(lambda x, y: x).take(4), verbose=0, callbacks=[recorder])
    assert frame(recorder)["name"].tolist() == ["predict 2", "predict 3"]
    model.evaluate(data.take(4), verbose=0, callbacks=[recorder])
    first = callback(batches=1)
    model.evaluate(data.take(4), verbose=0, callbacks=[first])
    assert frame(first)["name"].tolist() == ["test 1"]
    assert [re.search("of (.*) are", line)[1] for line in recorder.said] == [
        "evaluate",
        "predict",
        "evaluate",
        "evaluate",
    ]


def test_a_loop_that_ends_before_is_said(callback, model, data):
    recorder = callback(batches=(10, 15))
    model.fit(data, verbose=0, callbacks=[recorder])
    assert recorder.said == [
        "nbprof: batches 10 to 15 were asked for, but fit ended after batch 8: nothing was recorded"
    ]
    assert recorder.result is None
    shorter = callback(batches=(7, 15))
    model.fit(data, verbose=0, callbacks=[shorter])
    assert shorter.said[-1].endswith("; fit ended after batch 8")
    assert len(frame(shorter)) == 2


def test_several_batches_a_call(callback, data, tf):
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=2)
    recorder = callback(batches=(4, 6))
    model.fit(data, verbose=0, callbacks=[recorder])
    assert frame(recorder)["name"].tolist() == ["train 2", "train 3"]


def test_a_fit_that_fails_leaves_what_was_recorded(callback, model, data):
    import keras

    class Fails(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 4:
                raise ValueError("bad batch")

    recorder = callback(batches=(2, 15))
    with pytest.raises(ValueError, match="bad batch"):
        model.fit(data, verbose=0, callbacks=[recorder, Fails()])
    # pytest holds the exception no longer, nor its frames.
    assert room.active() is None
    assert recorder.said[0].endswith(
        "; fit ended after batch 4; fit was ended by an exception in step 5, after 4 complete steps"
    )
    assert recorder.result.run.capture.cell_failed
    model.fit(data, verbose=0, callbacks=[recorder])
    assert len(recorder.runs) == 2


def test_a_fit_whose_exception_is_kept_is_over_when_the_next_begins(callback, model, data):
    import keras

    class Fails(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            raise ValueError("bad batch")

    recorder = callback(batches=(1, 2))
    kept = None
    try:
        model.fit(data, verbose=0, callbacks=[recorder, Fails()])
    except ValueError as error:
        kept = error
    assert room.active() is not None
    model.evaluate(data, verbose=0, callbacks=[recorder])
    assert [re.search("of (.*) are", line)[1] for line in recorder.said] == ["fit", "evaluate"]
    del kept


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_in_a_notebook_it_is_told_which_error_ended_the_loop(
    callback, model, data, monkeypatch, filtered, later
):
    import keras

    class Fails(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 3:
                raise ValueError("bad batch")

    ends = []
    events = types.SimpleNamespace(
        register=lambda _, act: ends.append(act), unregister=lambda *_: None
    )
    shell = types.SimpleNamespace(events=events)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    recorder = callback(batches=(1, 9))

    def cell():
        try:
            model.fit(data, verbose=0, callbacks=[recorder, Fails()])
        except ValueError as error:
            if not later:
                raise
            kept.append(error)
        raise KeyError("of later")

    kept = []
    (
        keras.config.enable_traceback_filtering
        if filtered
        else keras.config.disable_traceback_filtering
    )()
    try:
        with pytest.raises((ValueError, KeyError)) as ended:
            cell()
        ends[0](types.SimpleNamespace(error_in_exec=ended.value))
    finally:
        keras.config.enable_traceback_filtering()
    known = not later
    how = (
        "cell failed in step 4, after 3 complete steps: ValueError: bad batch"
        if known
        else "fit was ended by an exception in step 4, after"
    )
    assert how in recorder.said[0]


def test_a_training_within_a_training_is_part_of_it(callback, model, data):
    import keras

    inner = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    inner.compile("sgd", "mse")
    recorder = callback(batches=(2, 3))

    class Trains(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            inner.fit(data.take(2), verbose=0, callbacks=[recorder])

    model.fit(data, verbose=0, callbacks=[recorder, Trains()])
    assert len(recorder.runs) == 1
    assert frame(recorder)["name"].tolist() == ["train 2", "train 3"]


def test_a_recording_that_is_open_is_left_alone(callback, model, data):
    import nbprof

    recorder = callback(batches=(2, 3))
    with nbprof.profile(save=False) as run:
        model.fit(data, verbose=0, callbacks=[recorder])
    assert recorder.said == [
        "nbprof: a recording is already running; the callback's batches are part of it"
    ]
    assert len(run.steps.frame) == 8


def test_a_profiler_of_the_person_is_a_line_and_fit_runs(callback, model, data, tf, place):
    recorder = callback(batches=(1, 3))
    tf.profiler.experimental.start(str(place / "theirs"))
    try:
        history = model.fit(data, verbose=0, callbacks=[recorder])
    finally:
        tf.profiler.experimental.stop(save=False)
    assert len(history.epoch) == 1
    assert len(recorder.said) == 1
    assert "TensorFlow's profiler is already running" in recorder.said[0]


def test_the_dispatch_of_batches_is_not_changed(callback):
    from keras.src import utils

    recorder = callback()
    for name in ("on_batch_end", "on_train_batch_end", "on_test_batch_end", "on_predict_batch_end"):
        assert utils.is_default(getattr(recorder, name))


def test_a_tuner_may_copy_it(callback, model, data):
    recorder = copy.deepcopy(callback(batches=(2, 3)))
    recorder._say = list.append.__get__([])
    model.fit(data, verbose=0, callbacks=[recorder])
    assert len(recorder.runs) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"batches": (0, 3)}, "steps are counted from 1"),
        ({"batches": (5, 3)}, "the first may not be after the last"),
        ({"batches": "x"}, "not 'x'"),
        ({"batches": None}, "needs the batches"),
        ({"steps": (1, 2)}, "use batches=(10, 15)"),
        ({"save": False}, "cannot be opened"),
        ({"second": 1}, "did you mean 'seconds'"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(callback, given, says):
    with pytest.raises(CaptureError, match=re.escape(says)):
        callback(**given)


SCRIPT = """
    import os
    import numpy as np
    import keras
    import nbprof

    x, y = np.ones((64, 4), "f"), np.ones((64, 1), "f")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    class Fails(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 5:
                raise MemoryError("no more")

    recorder = nbprof.keras.Callback(batches=(3, 5), logdir="logs")
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[recorder])
    assert recorder.result.steps.frame["step"].tolist() == [3, 4, 5], recorder.result.steps.frame
    print("steps:", *[note.text for note in recorder.result.run.capture.notes])
    again = nbprof.keras.Callback(batches=(3, 8), logdir="failed")
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[again, Fails()])
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_script_on_each_backend_keeps_its_run_also_when_it_fails(tmp_path, backend):
    require("keras")
    done = run(SCRIPT, needs=backend, cwd=tmp_path, status=1, KERAS_BACKEND=backend)
    assert done.stderr.strip().endswith("MemoryError: no more"), done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("nbprof:")]
    assert "batches 3 to 5 of fit are recorded in" in lines[0]
    assert "steps: batches of Keras" in done.stdout
    # Python has printed the traceback; then the run is finished.
    assert "batches 3 to 8 of fit are recorded in" in lines[1]
    assert lines[1].endswith(
        "; fit ended after batch 5; cell failed in step 6, after 5 complete steps: MemoryError: no more"
    )
    for folder in ("logs", "failed"):
        assert len(list((tmp_path / folder / "plugins" / "profile").iterdir())) == 1
        assert not list((tmp_path / folder).glob(".recording-*"))
