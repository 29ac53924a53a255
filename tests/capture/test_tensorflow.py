"""Recordings of a real Keras model."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json

import numpy as np
import pytest

from nbprof.sources.recording import CaptureInfo
from tests.capture.notes import keys, text_of
from tests.support.profiles import require


def roots(rows):
    return [(name, number) for name, number, root, _ in rows if root]


def test_the_file_lies_where_tensorboard_looks(record, place, model, data):
    recording = record(lambda: model.fit(data, verbose=0))
    assert recording.path.parent == place / "nbprof-results" / "plugins" / "profile"
    assert recording.host_file.name.endswith(".xplane.pb")
    assert CaptureInfo.read(recording.path) == recording.info
    assert (place / "nbprof-results" / ".gitignore").exists()
    again = record(lambda: model.fit(data, verbose=0))
    third = record(lambda: model.fit(data, verbose=0))
    assert len({recording.path, again.path, third.path}) == 3


def test_every_batch_is_a_step_that_holds_its_wait_for_data(record, markers, model, data):
    rows = markers(record(lambda: model.fit(data, verbose=0, epochs=2)))
    assert roots(rows) == [("train", number) for number in range(1, 17)]
    assert [waits for _, _, root, waits in rows if root] == [1] * 16


def test_the_wait_is_input_time(record, model, slow_data):
    from nbprof.profiles.load import open_recording

    frame = open_recording(record(lambda: model.fit(slow_data, verbose=0))).steps.frame
    # Of most: tf.data runs ahead by itself, so that a step that was held up waits less for the next
    # batch.
    assert frame["input_ms"].iloc[1:].median() > 5


def test_steps_leave_no_gap_between_batches(record, model, data):
    from nbprof.profiles.load import open_recording

    frame = open_recording(record(lambda: model.fit(data, verbose=0))).steps.frame
    gaps = (
        frame["start_ms"].to_numpy()[1:]
        - (frame["start_ms"] + frame["step_time_ms"]).to_numpy()[:-1]
    )
    assert (gaps >= 0).all()
    # One between two marks is the moment in which the machine did something else.
    assert np.median(gaps) < 1


def test_a_dataset_that_ends_unannounced_leaves_no_step_behind(record, markers, model, data, tf):
    unknown = data.filter(lambda x, y: True)
    recording = record(lambda: model.fit(unknown, verbose=0))
    assert roots(markers(recording)) == [("train", number) for number in range(1, 9)]
    assert recording.info.steps_seen == 8


def test_validation_and_prediction_have_their_names(record, markers, model, data):
    def cell():
        model.fit(data, verbose=0, validation_data=data.take(2))
        model.evaluate(data.take(1), verbose=0)
        model.predict(data.map(lambda x, y: x).take(1), verbose=0)

    expected = ["train"] * 8 + ["test"] * 3 + ["predict"]
    assert roots(markers(record(cell))) == [
        (name, number) for number, name in enumerate(expected, 1)
    ]


def test_steps_per_execution_makes_one_step_of_several_batches(record, markers, data, tf):
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=4)
    recording = record(lambda: model.fit(data, verbose=0))
    assert roots(markers(recording)) == [("train", 1), ("train", 2)]
    assert keys(recording.info.notes) == ["keras_steps", "batches_per_step"]
    assert "covers 4 batches" in recording.info.notes[1].text


def test_markers_of_the_person_win(record, markers, model, data, tf):
    batches = list(data)

    def cell():
        for number, batch in enumerate(batches[:3]):
            with tf.profiler.experimental.Trace("mine", step_num=number + 100, _r=1):
                model.fit(*batch, verbose=0)
        model.fit(data.take(2), verbose=0)

    recording = record(cell)
    rows = [row for row in roots(markers(recording)) if row[0] in ("mine", "train")]
    assert rows == [("mine", 100), ("mine", 101), ("mine", 102), ("train", 4), ("train", 5)]
    assert recording.info.steps_seen == 5


def test_markers_of_a_callback_win(record, markers, model, data, tf):
    import keras

    class Marks(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.span = tf.profiler.experimental.Trace("mine", step_num=batch, _r=1)

        def on_train_batch_end(self, batch, logs=None):
            self.span.__exit__(None, None, None)

    assert roots(markers(record(lambda: model.fit(data, verbose=0, callbacks=[Marks()])))) == [
        ("mine", number) for number in range(8)
    ]


def test_nbprof_step_marks_a_custom_loop(record, markers, model, data):
    import nbprof

    def cell():
        for number, batch in enumerate(data.take(3)):
            with nbprof.step("mine", step_num=number * 10):
                model.train_on_batch(*batch)
        for batch in nbprof.steps(data.take(4)):
            model.train_on_batch(*batch)

    rows = markers(record(cell))
    assert roots(rows) == [
        ("mine", 0),
        ("mine", 10),
        ("mine", 20),
        ("train", 4),
        ("train", 5),
        ("train", 6),
        ("train", 7),
    ]


def test_only_the_range_is_recorded(record, markers, model, data):
    recording = record(lambda: model.fit(data, verbose=0, epochs=2), steps=(4, 6))
    assert roots(markers(recording)) == [("train", 4), ("train", 5), ("train", 6)]
    assert (recording.info.steps_seen, recording.info.steps_marked) == (16, 3)


def test_a_range_counts_marked_steps_too(record, markers, tf, data):
    def cell():
        for number in range(6):
            with tf.profiler.experimental.Trace("mine", step_num=number, _r=1):
                tf.reduce_sum(tf.ones((4, 4)))

    assert roots(markers(record(cell, steps=(3, 4)))) == [("mine", 2), ("mine", 3)]


def test_everything_is_as_before_afterwards(record, model, data, tf):
    from keras.src.callbacks.callback_list import CallbackList
    from tensorflow.python.profiler import profiler_v2

    def state():
        return (
            {**vars(CallbackList)},
            vars(tf.profiler.experimental.Trace)["__init__"],
            tf.profiler.experimental.start,
            profiler_v2.start,
        )

    before = state()
    record(lambda: model.fit(data, verbose=0))
    record(lambda: 1 / 0)
    assert state() == before


def test_callbacks_and_results_are_the_same_with_and_without(record, data, tf):
    import keras

    seen = []

    class Looks(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            frames = [frame for frame in inspect.stack() if frame.function == "fit"]
            seen.append(
                [
                    type(callback).__name__
                    for callback in frames[0].frame.f_locals["callbacks"].callbacks
                ]
            )

    def train():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        losses.append(model.fit(data, verbose=0, callbacks=[Looks()]).history["loss"])

    losses: list = []
    train()
    record(train)
    assert losses[0] == losses[1]
    assert seen[0] == seen[1]


def test_a_failed_cell_says_at_which_step(record, model, data):
    import keras

    class Fails(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 2:
                raise ValueError("bad\nbatch")

    recording = record(lambda: model.fit(data, verbose=0, callbacks=[Fails()]))
    assert recording.partial
    assert recording.info.error == "cell failed in step 3, after 2 complete steps: ValueError: bad"


def test_the_persons_own_profiler_comes_first(record, model, data, tf, tmp_path):
    def cell():
        model.fit(data, verbose=0)
        with tf.profiler.experimental.Profile(str(tmp_path / "theirs")):
            model.fit(data, verbose=0)

    recording = record(cell)
    assert recording.info.steps_marked == 8
    assert keys(recording.info.notes)[1] == "own_profiler_started"
    assert list((tmp_path / "theirs").glob("plugins/profile/*/*.xplane.pb"))


def test_a_profiler_that_is_busy_is_a_sentence(place, tf):
    from nbprof.capture.options import Options
    from nbprof.capture.session import Session, active
    from nbprof.core.errors import CaptureError

    tf.profiler.experimental.start(str(place / "theirs"))
    try:
        with pytest.raises(
            CaptureError,
            match=r"already running: stop it first with tf\.profiler\.experimental\.stop",
        ):
            Session(Options(backend="tensorflow")).start()
    finally:
        tf.profiler.experimental.stop(save=False)
    assert active() is None
    assert not list((place / "nbprof-results").glob(".recording-*"))


def test_no_memory_is_honest_about_having_no_switch(record, tf):
    from nbprof.profiles.load import open_recording

    def cell():
        # Large enough for the allocator that keeps a record on CPUs, too.
        float(tf.reduce_sum(tf.matmul(tf.ones((600, 600)), tf.ones((600, 600)))))

    def allocations(recording):
        trace = open_recording(recording).run.trace
        return int((trace.names[trace.events.name] == "MemoryAllocation").sum())

    plain, without = record(cell), record(cell, memory=False)
    assert allocations(plain) == allocations(without)
    assert plain.info.notes == []
    assert keys(without.info.notes) == ["option_without_effect"]


def test_options_that_nobody_asked_for_are_not_passed(record, model, data, tf, monkeypatch):
    """TensorFlow 2.21 logs "… expects an i value" for each, also for those that are the default."""
    experimental = tf.profiler.experimental
    start, passed = experimental.start, []

    def watched(logdir, options=None):
        passed.append(options)
        start(logdir, options=options)

    monkeypatch.setattr(experimental, "start", watched)
    record(lambda: model.fit(data, verbose=0))
    record(lambda: model.fit(data, verbose=0), host_level=3)
    assert passed[0] is None
    assert passed[1].host_tracer_level == 3


def test_levels_that_tensorflow_did_not_take_are_told(record, tf):
    from nbprof.capture import tensorflow

    def cell():
        float(tf.reduce_sum(tf.ones((3, 3))))

    plain, asked = record(cell), record(cell, host_level=3, python=True)
    assert tensorflow.recorded_levels(plain.host_file) == (2, 0)
    assert plain.info.notes == []
    # 2.21 records as ever; another version may do as it is told.
    host, python = tensorflow.recorded_levels(asked.host_file)
    said = [note.text for note in asked.info.notes if note.key == "option_without_effect"]
    if (host, python) == (3, 1):
        assert said == []
    else:
        assert len(said) == 1
        assert ("--host-level 3" in said[0]) == (host != 3)
        assert ("--python" in said[0]) == (python != 1)
        assert (
            f"it recorded with host level {host} and {'with' if python else 'without'} Python's calls"
            in said[0]
        )


def test_a_file_without_levels_tells_none(record, tf, tmp_path):
    from nbprof.capture import tensorflow

    whole = record(lambda: float(tf.ones(()))).host_file.read_bytes()
    for name, content in (
        ("empty", b""),
        ("cut", whole[: len(whole) // 2]),
        ("other", b"{}"),
        ("none", whole.replace(b"Task Environment", b"Task environment")),
    ):
        (tmp_path / name).write_bytes(content)
        assert tensorflow.recorded_levels(tmp_path / name) is None
    assert tensorflow.recorded_levels(tmp_path / "absent") is None


def test_xprof_opens_the_run_and_finds_the_steps(record, model, data):
    require("xprof")
    convert = importlib.import_module("xprof.convert.raw_to_tool_data")
    recording = record(lambda: model.fit(data, verbose=0))
    files = [str(recording.host_file)]
    names = convert.xspace_to_tool_names(files)
    assert "overview_page" in names
    page, _ = convert.xspace_to_tool_data(files, "overview_page", {})
    text = page.decode() if isinstance(page, bytes) else page
    assert "No step marker observed" not in text
    labels = [row["c"][0]["v"] for row in json.loads(text)[1]["rows"]]
    # XProf leaves out a first and a last step that it takes to be cut off.
    assert set(labels) >= {f"train {number}" for number in range(2, 8)}


def test_a_gpu_that_tensorflow_does_not_see_is_named(record, tf, monkeypatch):
    from nbprof.core import remedies as trouble

    if tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees a GPU here")
    monkeypatch.setattr(trouble, "nvidia_gpu", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert text_of(record(lambda: None).info.notes, "gpu_not_seen") == trouble.TF_UNSEEN
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    text = text_of(record(lambda: None).info.notes, "gpu_not_seen")
    assert text == trouble.TF_HIDDEN.format(value="-1")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("host: Insufficient privilege to run libcupti (you need root permission).", "PRIVILEGES"),
        ("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "PRIVILEGES"),
        ("host: Failed to load libcupti (is it installed and accessible?)", "NO_CUPTI"),
        ("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "TAKEN"),
        ("host: No GPU detected.", ""),
    ],
)
@pytest.mark.parametrize("field", [2, 3])
def test_what_the_profiler_wrote_about_the_gpu_has_a_remedy_in_the_receipt(
    tmp_path, said, remedy, field
):
    from nbprof.core import remedies as trouble
    from nbprof.profiles.load import load
    from tests.support.xspace import chunk, training_run

    (tmp_path / "h.xplane.pb").write_bytes(training_run(2) + chunk(field, said))
    receipt = load(tmp_path).receipt
    warnings = [line.text for line in receipt.lines if line.level == "warning"]
    assert any(said in text for text in warnings)
    remedies = [
        name for name in ("PRIVILEGES", "NO_CUPTI", "TAKEN") if getattr(trouble, name) in warnings
    ]
    assert remedies == ([remedy] if remedy else [])
