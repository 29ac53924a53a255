"""Real recordings of JAX on the CPU: which steps they hold, and what is said about them."""

from __future__ import annotations

import json
import re
import textwrap
import threading
import time

import pytest

import nbprof
from nbprof.activity.activity import NEXT_ITEM
from nbprof.capture import clock
from nbprof.capture import jax as capture
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from nbprof.profiles.load import open_recording
from tests.capture.jaxes import Training
from tests.capture.notes import keys, text_of
from tests.support.cells import lines_of, run_cell
from tests.support.profiles import require
from tests.support.programs import run


@pytest.fixture(scope="module")
def training(jax):
    return Training(jax)


@pytest.fixture
def record(record):
    return lambda function, **options: record(function, source="import jax", **options)


@pytest.fixture
def recorded(record):
    """Record a function and give its profile."""
    return lambda function, **options: open_recording(record(function, **options))


def test_recorder_and_reader_call_a_wait_the_same():
    assert clock.WAIT == NEXT_ITEM


def names(p):
    return p.steps.frame["name"].tolist()


def kinds(p):
    return p.steps.frame["kind"].tolist()


def test_a_loop_without_marks_has_the_runs_of_its_program_as_steps(training, recorded):
    p = recorded(lambda: training.run(6))
    assert names(p) == [f"train_step {n}" for n in range(1, 7)]
    assert (
        "steps: runs of the program jit_train_step, each from the end of the previous run to its own end"
        in str(p.receipt)
    )
    later = p.steps.frame.iloc[1:]
    assert later["step_time_ms"].min() >= 20, "the wait for the next batch lies in its step"
    assert later["other_ms"].min() > 0, "nothing was recorded while it waited"
    assert p.overview["framework"].startswith("JAX")
    assert p.overview["step_time_ms"] == pytest.approx(
        p.steps.frame.loc[p.steps.frame["counted"], "step_time_ms"].mean()
    )


def test_the_end_of_the_cell_waits_for_the_device(jax, record, recorded):
    """Calls return at once; the last result is not waited for."""
    jnp = jax.numpy
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, x: jnp.tanh(x @ x), x))
    x = jnp.ones((128, 128))
    slow(x).block_until_ready()
    kept = []

    def cell():
        y = x
        for _ in range(5):
            y = slow(y)
        kept.append((y, time.perf_counter()))

    p = recorded(cell)
    assert kept[0][0].is_ready()
    assert len(p.steps.frame) == 5
    assert "one step here may be several training steps" in str(p.receipt)


def test_what_is_compiled_behind_a_loop_is_none_of_its_steps(jax, recorded):
    """The calls of the loop have returned long before its runs end, and the next line compiles
    another program meanwhile.
    """
    jnp = jax.numpy
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, x: jnp.tanh(x @ x), x))
    x = jnp.ones((128, 128))
    slow(x).block_until_ready()

    def cell():
        y = x
        for _ in range(8):
            y = slow(y)
        return float(jax.jit(lambda y: (jnp.sin(y) @ jnp.cos(y)).max())(y))

    p = recorded(cell)
    trace, steps = p.run.trace, p.steps.frame
    compiles = [n for n, name in enumerate(trace.names) if str(name).startswith("backend_compile")]
    began = trace.events.start[[int(n) in compiles for n in trace.events.name]]
    assert began.min() < (steps["start_ms"] + steps["step_time_ms"]).max() * 1e9, "they overlap"
    assert not steps["compile_ms"].gt(0).any()
    assert "compile" not in p.advice["rule"].tolist()


def test_the_wait_for_the_device_has_an_end(jax, record, monkeypatch):
    release = threading.Event()

    class Stuck:
        def block_until_ready(self):
            release.wait(30)

    monkeypatch.setattr(capture, "WAIT_S", 0.1)
    session = Session(Options(backend="jax")).start()
    monkeypatch.setattr(jax, "live_arrays", lambda: [Stuck()])
    recording = session.stop()
    release.set()
    assert "device_still_busy" in keys(recording.info.notes)


def test_what_the_cell_before_left_to_do_is_no_part_of_it(jax, recorded):
    jnp = jax.numpy
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 500, lambda _, x: jnp.tanh(x @ x), x))
    x = jnp.ones((128, 128))
    slow(x).block_until_ready()
    before = [slow(x) for _ in range(3)]
    p = recorded(lambda: None, backend="jax")
    assert before[0].is_ready()
    assert "jit__lambda" not in {
        p.run.trace.strings[c] for c in set(p.run.trace.text_arg("hlo_module").tolist()) if c >= 0
    }
    assert not len(p.steps.frame)


def test_training_and_evaluation_are_told_apart(training, recorded):
    def cell():
        for _ in range(2):
            training.run(4)
            for _ in range(3):
                # Waited for: what nobody holds the result of may run after the recording on a busy
                # machine.
                training.evaluate(training.w, training.x).block_until_ready()

    p = recorded(cell)
    assert sorted(set(kinds(p))) == ["evaluate", "train_step"]
    assert kinds(p).count("train_step") == 8
    assert kinds(p).count("evaluate") == 6
    # The one that took longest is named first, which on a busy machine may be either.
    assert re.search(
        "runs of the programs (jit_train_step and jit_evaluate|jit_evaluate and jit_train_step)",
        str(p.receipt),
    )


def test_donated_arguments_and_a_shape_that_changes(jax, recorded):
    jnp = jax.numpy

    def train_step(w, x):
        return w - 0.1 * jnp.mean(jnp.tanh(x @ w))

    step = jax.jit(train_step, donate_argnums=0)
    w = [jnp.ones((64, 64))]

    def cell():
        for rows in (32, 32, 32, 48, 48, 48):
            w[0] = step(w[0], jnp.ones((rows, 64)))

    p = recorded(cell)
    assert names(p) == [f"train_step {n}" for n in range(1, 7)]


def test_marks_win(jax, training, recorded):
    p = recorded(lambda: [training.step() for _ in nbprof.steps(range(3))])
    assert names(p) == ["train 1", "train 2", "train 3"]
    assert "steps: marked by nbprof.steps" in str(p.receipt)

    def cell():
        for i in range(3):
            with jax.profiler.StepTraceAnnotation("mine", step_num=i + 40):
                training.step()

    p = recorded(cell)
    assert names(p) == ["mine 40", "mine 41", "mine 42"]
    assert "steps: marked by jax.profiler.StepTraceAnnotation" in str(p.receipt)
    assert "steps: runs of" not in str(p.receipt)


def test_the_wait_for_the_next_item_is_input(training, recorded):
    def batches():
        for n in range(4):
            time.sleep(0.05)
            yield n

    p = recorded(lambda: [training.step() for _ in nbprof.steps(batches())])
    assert names(p) == ["train 1", "train 2", "train 3", "train 4"]
    assert p.steps.frame["input_ms"].min() >= 50
    assert p.steps.frame["other_ms"].min() >= 20, "what the loop itself waits for is not input"
    row = p.input_pipeline.frame.iloc[0]
    assert (row["op"], row["category"], row["occurrences"]) == (NEXT_ITEM, "other", 5), (
        "the last call finds no item"
    )
    assert p.overview["input_percent"] > 40
    assert "iterator passed to nbprof.steps" in p.tf_data.summary["statement"]


@pytest.mark.parametrize("marked", [True, False])
def test_compiling_is_told_from_running(jax, recorded, marked):
    jnp = jax.numpy

    def train_step(w, x):
        return w - 0.1 * jnp.mean(jnp.tanh(x @ w))

    # What makes the arrays is compiled already: between the steps, it could be most of the time.
    for rows in (64, 8, 16):
        jnp.ones((rows, 64)).block_until_ready()

    def cell():
        step, w = jax.jit(train_step), jnp.ones((64, 64))
        for n in nbprof.steps(range(4)) if marked else range(4):
            w = step(w, jnp.ones((8 if n < 2 else 16, 64))).block_until_ready()

    frame = recorded(cell).steps.frame
    assert [ms > 1 for ms in frame["compile_ms"]] == [True, False, True, False], (
        "it is compiled again for another shape"
    )
    assert (frame["compile_ms"] > 0.3 * frame["step_time_ms"]).tolist() == [
        True,
        False,
        True,
        False,
    ]
    if marked:
        p = recorded(cell)
        assert not p.steps.as_xprof()["compile_ms"].any(), "XProf has no such rule"


def test_windows_of_marked_steps(training, record):
    recording = record(
        lambda: [training.step() for _ in nbprof.steps(range(9))], steps=(2, 3), every=3
    )
    assert recording.info.window == [8, 9]
    assert [other.info.window for other in recording.others] == [[2, 3], [5, 6]]
    for each in (recording, *recording.others):
        assert len(open_recording(each).steps.frame) == 2


def test_steps_that_nobody_marks_cannot_be_counted_while_they_run(training, place):
    session = Session(Options(steps=(2, 3)), source="import jax").start()
    training.run(4)
    assert session.stop() is None
    assert "JAX steps are only found after the recording" in session.failure
    assert "nbprof.steps" in session.failure


def test_seconds(training, record):
    began = time.perf_counter()
    recording = record(lambda: training.run(40), seconds=0.3)
    assert time.perf_counter() - began > 0.8, "the loop went on"
    assert "recording_ended" in keys(recording.info.notes)
    assert 0 < len(open_recording(recording).steps.frame) < 40


def test_options(training, recorded):
    p = recorded(lambda: training.run(3), python=True)
    assert any(
        str(name).startswith("$jaxes.py") and str(name).endswith(" step")
        for name in p.run.trace.names
    ), "Python calls"
    p = recorded(lambda: training.run(3), host_level=0, memory=False)
    assert "--host-level 0 records no host events" in str(p.receipt)
    assert "JAX cannot turn off allocation events" in str(p.receipt)


def test_a_profiler_that_the_person_starts_comes_first(jax, training, place):
    session = Session(Options(), source="import jax").start()
    training.run(2)
    with jax.profiler.trace(str(place / "theirs")):
        training.run(2)
    recording = session.stop()
    assert len(list((place / "theirs").rglob("*.xplane.pb"))) == 1
    assert "own_profiler_started" in keys(recording.info.notes)
    assert len(open_recording(recording).steps.frame) == 2
    assert jax.profiler.start_trace.__module__ == "jax._src.profiler"
    assert not hasattr(jax.profiler.start_trace, "__wrapped__")


def test_a_profiler_that_runs_already_is_named(jax, training, place):
    jax.profiler.start_trace(str(place / "theirs"))
    try:
        with pytest.raises(CaptureError, match=r"jax\.profiler\.stop_trace\(\)"):
            Session(Options(backend="jax")).start()
    finally:
        jax.profiler.stop_trace()
    assert list((place / "theirs").rglob("*.xplane.pb"))


def test_a_stop_of_what_the_person_did_not_start(jax, training, place):
    session = Session(Options(), source="import jax").start()
    with pytest.raises(RuntimeError, match="No profile started"):
        jax.profiler.stop_trace()
    training.run(2)
    assert len(open_recording(session.stop()).steps.frame) == 2


def test_a_server_of_the_profiler_beside_it(jax, training, recorded):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def cell():
        jax.profiler.start_server(port)
        try:
            training.run(3)
        finally:
            jax.profiler.stop_server()

    assert len(recorded(cell).steps.frame) == 3


def test_exceptions_and_no_memory(jax, training, record):
    def fails():
        training.run(2)
        raise ValueError("bad batch")

    recording = record(fails)
    assert recording.info.cell_failed
    assert "ValueError: bad batch" in recording.info.error
    assert len(open_recording(recording).steps.frame) == 2

    def too_large():
        training.run(2)
        jax.numpy.zeros((1 << 44,), jax.numpy.float32).block_until_ready()

    recording = record(too_large)
    assert recording.info.out_of_memory
    assert "RESOURCE_EXHAUSTED" in recording.info.error


def recorded_in_child(code, tmp_path, needs="nbprof", **environment):
    """What a program says of the cell that it records: names of steps, notes, failure."""
    text = textwrap.dedent(code)
    ended = run(
        "import json, time\nfrom nbprof.capture.options import Options\n"
        "from nbprof.capture.session import Session\nfrom nbprof.profiles.load import open_recording\n"
        "def say(session):\n    recording = session.stop()\n    p = open_recording(recording) if recording else None\n"
        "    print('SAID', json.dumps([p.steps.frame['name'].tolist() if p else None, str(p.receipt) if p else session.failure,"
        " p.steps.frame[['step_time_ms', 'start_ms']].values.tolist() if p else []]))\n" + text,
        needs=needs,
        cwd=tmp_path,
        **environment,
    )
    return json.loads(ended.stdout.rpartition("SAID ")[2])


def test_an_import_in_the_cell_leaves_the_choice_of_devices_to_it(tmp_path, jax):
    """Starting the profiler at the import would start the devices, and the choice would be
    refused.
    """
    found, _, _ = recorded_in_child(
        """
        session = Session(Options(), source="import jax").start()
        import jax
        jax.config.update("jax_num_cpu_devices", 3)
        assert len(jax.devices()) == 3
        step = jax.jit(lambda x: jax.numpy.tanh(x @ x))
        x = jax.numpy.ones((64, 64))
        for _ in range(4):
            x = step(x)
        say(session)
        """,
        tmp_path,
    )
    assert found == [f"_lambda {n}" for n in range(1, 5)]


def test_an_import_without_a_run(tmp_path, jax):
    found, why, _ = recorded_in_child(
        "session = Session(Options(backend='jax')).start()\nimport jax\nsay(session)", tmp_path
    )
    assert found is None
    assert why == "JAX was imported, but nothing ran on it: nothing was recorded"


def test_a_device_that_is_not_there_is_named(tmp_path, jax):
    found, why, _ = recorded_in_child(
        """
        session = Session(Options(backend="jax")).start()
        import jax
        try:
            jax.numpy.ones(3)
        except Exception:
            pass
        say(session)
        """,
        tmp_path,
        JAX_PLATFORMS="cuda",
    )
    assert found is None
    assert why.startswith("JAX could not start its devices (JAX_PLATFORMS is 'cuda')")
    assert "pip install 'jax[cuda13]'" in why


def test_several_devices(tmp_path, jax):
    found, receipt, _ = recorded_in_child(
        """
        import jax, numpy as np
        jnp = jax.numpy
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        mesh = Mesh(np.array(jax.devices()), ("d",))
        assert mesh.size == 4
        def train_step(w, x):
            return w - 0.1 * jnp.mean(jnp.tanh(x @ w))
        step = jax.jit(train_step)
        w = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, PartitionSpec()))
        x = jax.device_put(jnp.ones((256, 64)), NamedSharding(mesh, PartitionSpec("d")))
        step(w, x).block_until_ready()
        session = Session(Options(), source="import jax").start()
        for _ in range(5):
            w = step(w, x)
        say(session)
        """,
        tmp_path,
        needs="jax",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    assert found == [f"train_step {n}" for n in range(1, 6)]
    assert "runs of the program jit_train_step" in receipt


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras(backend, tmp_path):
    require("keras", backend)
    found, receipt, times = recorded_in_child(
        """
        import numpy as np, keras
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        class Data(keras.utils.PyDataset):
            def __len__(self):
                return 24
            def __getitem__(self, i):
                time.sleep(0.05)
                return np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)
        model.fit(Data(), verbose=0)
        session = Session(Options(), source="import keras").start()
        model.fit(Data(), verbose=0)
        say(session)
        """,
        tmp_path,
        needs=backend,
        KERAS_BACKEND=backend,
    )
    assert "steps: batches of Keras" in receipt
    assert "steps: runs of" not in receipt
    assert len(found) == 24
    # Data are read ahead while the first step is slow on a busy machine.
    assert sum(time for time, _ in times[1:]) > 7 * 45, "the wait for the data lies in the steps"


def test_tensorflow_feeds_a_loop_of_jax(jax, training, recorded, tf):
    """Eager ops of TensorFlow are no steps, and the loop's runs are."""
    data = (
        tf.data.Dataset.range(6)
        .map(lambda i: tf.ones((128, 256)) * tf.cast(i, tf.float32))
        .prefetch(1)
    )

    def cell():
        for batch in data.as_numpy_iterator():
            training.w = training.train_step(training.w, batch)

    p = recorded(cell, backend="jax")
    assert names(p) == [f"train_step {n}" for n in range(1, 7)]


def test_an_interrupt_keeps_what_was_recorded(training, place):
    session = Session(Options(), source="import jax").start()
    training.run(3)
    recording = session.stop(KeyboardInterrupt())
    assert recording.info.error.startswith("cell was interrupted")
    assert len(open_recording(recording).steps.frame) == 3


# There is no GPU here: what JAX says where one cannot be recorded is given by stand-ins of its
# calls.


@pytest.fixture
def refusing(jax, monkeypatch):
    """A profiler that refuses to start with a GPU, as JAX says it when it is asked to be strict."""
    asked = []

    def use(text):
        start = jax.profiler.start_trace

        def start_trace(folder, profiler_options):
            asked.append(profiler_options.raise_error_on_start_failure)
            if profiler_options.raise_error_on_start_failure:
                raise RuntimeError(text)
            return start(folder, profiler_options=profiler_options)

        monkeypatch.setattr(jax.profiler, "start_trace", start_trace)
        return asked

    return use


def test_the_host_is_recorded_where_the_gpu_cannot_be(refusing, training, record):
    asked = refusing("INTERNAL: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
    recording = record(lambda: training.run(3))
    assert asked == [True, False]
    text = text_of(recording.info.notes, "gpu_not_recorded")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in text
    assert len(open_recording(recording).steps.frame) == 3


def test_a_refusal_that_has_no_remedy_is_told(refusing, jax, training, place):
    asked = refusing("ALREADY_EXISTS: Only one active profiler")
    with pytest.raises(
        CaptureError, match="JAX's profiler did not start: ALREADY_EXISTS: Only one active profiler"
    ):
        Session(Options(backend="jax")).start()
    assert asked == [True]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("JAX_PLATFORMS", "cpu", "JAX sees no GPU here because JAX_PLATFORMS is 'cpu'"),
        ("CUDA_VISIBLE_DEVICES", "", "JAX sees no GPU here because CUDA_VISIBLE_DEVICES is ''"),
        ("JAX_PLATFORMS", "", "pip install 'jax[cuda13]'"),
        ("CUDA_VISIBLE_DEVICES", "0", "pip install 'jax[cuda13]'"),
    ],
)
def test_a_gpu_that_jax_does_not_see_is_named(
    jax, training, record, monkeypatch, name, value, says
):
    for each in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(remedies, "nvidia_gpu", lambda: True)
    recording = record(lambda: training.run(2))
    assert says in text_of(recording.info.notes, "gpu_not_seen")
    monkeypatch.setattr(remedies, "nvidia_gpu", lambda: False)
    assert not remedies.unseen_by_jax(jax)


def test_a_line_has_the_time_of_its_call_and_one_of_a_jitted_function_that_of_the_program(
    jax, recorded
):
    names = {"jax": jax, "jnp": jax.numpy, "x": jax.numpy.ones((256, 256))}
    run_cell(
        "1",
        "def f(x):\n    y = jnp.tanh(x @ x)\n    return y.sum()\nf = jax.jit(jax.grad(f))\nf(x).block_until_ready()\n",
        names,
    )
    cell = "for i in range(3):\n    y = f(x)\n    y.block_until_ready()\nz = jnp.sin(x).block_until_ready()\n"
    p = recorded(lambda: run_cell("2", cell, names), stacks=True)
    assert lines_of(p, "PjitFunction(f)") == {("2", 2)}
    frame = p.lines.frame
    ran = frame[frame["calls"].notna()]
    assert [(row.line, row.calls) for row in ran.itertuples()] == [(1, 4), (2, 3), (3, 3), (4, 1)]
    assert (ran["host_us"] > 0).all()
    # The functions of the cell before are no part of this one: only their programs ran.
    traced = frame[frame["calls"].isna()]
    assert traced["code"].tolist()[0] == "    y = jnp.tanh(x @ x)"
    assert traced["host_us"].isna().all()
    assert (traced["program_us"] > 0).all()
    assert ran.set_index("line")["program_us"][4] > 0
    assert "/tmp/ipykernel_1/1.py:2" in set(p.hlo.frame["source"])
