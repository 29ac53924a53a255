"""What a kernel can do to a recording, with real TensorFlow in real kernels."""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import time

import pytest

from tests.magic.conftest import MODEL, Kernel
from tests.support import programs
from tests.support.profiles import require
from tests.support.tracebacks import frames, own

STATE = """
import gc, os, sys, threading, psutil
def state():
    gc.collect()
    run_folder = os.path.join("nbprof-results")
    return {
        "threads": sorted(t.name for t in threading.enumerate()),
        "files": len(psutil.Process().open_files()),
        "hooks": len(get_ipython().events.callbacks["post_run_cell"]),
        "finders": len(sys.meta_path),
        "scratch": [name for name in os.listdir(run_folder) if name.startswith(".recording-")] if os.path.isdir(run_folder) else [],
        "temporary": len([name for name in os.listdir(__import__("tempfile").gettempdir()) if name.startswith("nbprof-")]),
    }
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    require("tensorflow")
    kernel = Kernel(tmp_path_factory.mktemp("robust"), "tensorflow")
    # A folder for temporary files that no other process writes to, so that they can be counted.
    own = f"import tempfile; tempfile.tempdir = {str(tmp_path_factory.mktemp('temporary'))!r}\n"
    ready = kernel.run(own + "%load_ext nbprof\nimport nbprof" + MODEL + STATE)
    assert ready.status == "ok", ready.traceback
    yield kernel
    kernel.close()


@pytest.fixture(scope="module")
def others(kernel):
    """Further kernels in its folder, as many as are asked for; one that a test has not ended is
    there for the next.
    """
    started = []

    def others(count):
        alive = [other for other in started if other.manager.is_alive()]
        for _ in range(count - len(alive)):
            other = Kernel(kernel.folder, "tensorflow")
            started.append(other)
            alive.append(other)
            assert other.run("%load_ext nbprof\nimport nbprof" + MODEL).status == "ok"
        return alive[:count]

    yield others
    for other in started:
        other.close()


def ok(result, dashboards=1):
    assert (result.status, len(result.dashboards)) == ("ok", dashboards), (
        result.traceback + result.sentences
    )
    return result


def test_a_hundred_recordings_in_a_row_leave_nothing_behind(kernel):
    kernel.run("small = data.take(2)")
    kernel.run(
        "import tempfile\n"
        "def again(count):\n"
        "    for _ in range(count):\n"
        "        get_ipython().run_cell('%nbprof -q model.fit(small, verbose=0)')\n"
        "again(10); nbprof.last.payload(); before = state(); sizes = []"
    )
    result = kernel.run(
        "for _ in range(9):\n    again(10)\n    gc.collect()\n    sizes.append(psutil.Process().memory_info().rss / 2**20)\nafter = state()"
    )
    assert result.status == "ok", result.traceback
    before, after = (ast.literal_eval(kernel.ask(name)) for name in ("before", "after"))
    assert after == before
    assert int(ast.literal_eval(kernel.ask("nbprof.last.run.capture.label")).split()[1]) >= 100
    sizes = ast.literal_eval(kernel.ask("sizes"))
    # 80 recordings between the first and the last; the framework itself keeps some of each, so what
    # is allowed is a slope, not zero.
    half = len(sizes) // 2
    growth = (sum(sizes[-half:]) / half - sum(sizes[:half]) / half) / (10 * (len(sizes) - half))
    assert growth < 0.25, sizes


def test_a_training_in_another_thread_is_recorded_with_its_steps(kernel):
    ok(
        kernel.run(
            "%%nbprof -o p\nimport threading\n"
            "thread = threading.Thread(target=lambda: model.fit(data, verbose=0))\nthread.start(); thread.join()"
        )
    )
    assert kernel.ask("len(p.steps.frame)") == "8"


def test_a_cell_that_leaves_a_thread_training_ends_its_recording(kernel):
    code = "%%nbprof -o p\nthread = threading.Thread(target=lambda: model.fit(data, epochs=30, verbose=0, callbacks=[Slow()]))\nthread.start()"
    ok(kernel.run(code + "\ntime.sleep(1)") if kernel.run("import time").status == "ok" else None)
    assert kernel.idle()
    assert kernel.ask("1 <= p.run.capture.steps_marked < 240") == "True"
    assert kernel.run("model.stop_training = True; thread.join()").status == "ok"


def test_two_cells_that_await_are_one_recording_after_the_other(kernel):
    result = kernel.run(
        "%%nbprof -o p\nimport asyncio\n"
        "async def train():\n    for batch in nbprof.steps(data):\n        await asyncio.sleep(0.01)\n        model.train_on_batch(*batch)\n"
        "await asyncio.gather(train(), asyncio.sleep(0.02))"
    )
    ok(result)
    assert kernel.ask("len(p.steps.frame)") == "8"


def test_steps_of_two_tasks_at_once_are_counted_and_nothing_breaks(kernel):
    result = kernel.run(
        "%%nbprof -o p\nasync def train():\n    for batch in nbprof.steps(data):\n        await asyncio.sleep(0.005)\n"
        "await asyncio.gather(train(), train())"
    )
    ok(result)
    assert kernel.idle()


def test_seconds_and_every_on_a_real_training(kernel):
    ok(
        kernel.run(
            "%%nbprof -o p --seconds 0.5\nmodel.fit(data, epochs=2, verbose=0, callbacks=[Slow()])"
        )
    )
    info = kernel.capture("p")
    assert info["steps_seen"] == 16
    assert 1 <= info["steps_marked"] < 16
    assert any(
        "0.5 s passed since the recording began (--seconds): recording ended after step" in note
        for note in info["notes"]
    )
    ok(
        kernel.run(
            "%%nbprof -o p --steps 2:3 --every 5 --warmup 1\nmodel.fit(data, epochs=2, verbose=0)"
        )
    )
    runs = json.loads(
        kernel.ask("p.runs[['first_step', 'last_step', 'shown']].to_json(orient='values')").strip(
            "'"
        )
    )
    assert runs == [[2, 3, False], [7, 8, False], [12, 13, True]]
    assert kernel.ask("p.steps.frame['warmup'].tolist()") == "[True, False]"
    assert (
        kernel.ask("[len(nbprof.load(path).steps.frame) for path in p.runs['path']]") == "[2, 2, 2]"
    )


def test_growth_over_the_limit_ends_the_recording_and_keeps_what_is_whole(kernel):
    kernel.run(
        "import time\nfrom nbprof.capture.session import active\n"
        "class Hoards(keras.callbacks.Callback):\n"
        "    kept = []\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if active() is not None and active().windows.recording:\n"
        "            self.kept.append(np.ones(40_000_000)); time.sleep(0.3)"
    )
    ok(
        kernel.run(
            "%%nbprof -o p --limit 0.5\nmodel.fit(data, epochs=2, verbose=0, callbacks=[Hoards()])"
        )
    )
    kernel.run("Hoards.kept.clear()")
    info = kernel.capture("p")
    assert info["steps_seen"] == 16
    assert 1 <= info["steps_marked"] < 16
    assert any(
        "since its first recorded step, over 476.84 MiB (--limit 0.5): recording ended after step"
        in note
        for note in info["notes"]
    )
    assert kernel.ask("len(p.steps.frame) == p.run.capture.steps_marked") == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_processes_forked_during_a_recording_do_no_harm(kernel):
    ok(
        kernel.run(
            "%%nbprof -o p\nimport multiprocessing\n"
            "def work(queue):\n"
            "    from nbprof.capture.session import active\n"
            "    with nbprof.step():\n        queue.put((active() is None, [t.name for t in threading.enumerate() if 'nbprof' in t.name]))\n"
            "context = multiprocessing.get_context('fork')\nqueue = context.SimpleQueue()\n"
            "model.fit(data, verbose=0)\n"
            "child = context.Process(target=work, args=(queue,)); child.start(); answer = queue.get(); child.join(30)\n"
            "model.fit(data, verbose=0)"
        )
    )
    assert kernel.ask("answer, child.exitcode, len(p.steps.frame)") == "((True, []), 0, 16)"


def test_a_profiler_of_the_person_that_runs_already_is_a_sentence(kernel):
    kernel.run("tf.profiler.experimental.start('theirs')")
    result = kernel.run("%%nbprof\nvalue = float(model.evaluate(data, verbose=0))\n'ran'")
    stopped = kernel.run("tf.profiler.experimental.stop()")
    assert (result.status, result.value, stopped.status) == ("ok", "'ran'", "ok")
    assert (
        "TensorFlow's profiler is already running: stop it first with tf.profiler.experimental.stop()"
        in result.sentences
    )
    assert kernel.idle()


def test_the_tensorboard_callback_of_the_person_comes_first(kernel):
    # As keras.callbacks.TensorBoard(profile_batch=(2, 4)) does, without the package that writes its
    # summaries.
    kernel.run(
        "from keras.src import backend\n"
        "class Board(keras.callbacks.Callback):\n"
        "    def on_train_batch_begin(self, batch, logs=None):\n"
        "        if batch == 1: backend.tensorboard.start_trace('board')\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if batch == 3: backend.tensorboard.stop_trace(save=True)"
    )
    ok(
        kernel.run(
            "%%nbprof -o p\nmodel.fit(data, verbose=0)\nmodel.fit(data, verbose=0, callbacks=[Board()])"
        )
    )
    notes = kernel.capture("p")["notes"]
    assert any(
        "the cell starts TensorFlow's profiler itself, so nbprof stopped recording there, after step 9"
        in note
        for note in notes
    ), notes
    assert list(kernel.folder.glob("board/**/*.xplane.pb"))


def test_a_traceback_is_the_plain_one_where_keras_cuts_its_own_frames(kernel):
    code = "model.fit(data, verbose=0, callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch: 'much')])"
    plain, profiled = kernel.run(code), kernel.run(f"%%nbprof\n{code}")
    assert plain.error == profiled.error == "ValueError"
    assert frames(profiled.traceback, kernel.folder) == frames(plain.traceback, kernel.folder) != []


def test_ctrl_c_twice_leaves_a_whole_run(kernel):
    result = kernel.run(
        "%%nbprof -o p\nmodel.fit(data, epochs=99, verbose=0, callbacks=[Slow()])",
        interrupt_at="batch 2;",
    )
    assert result.error == "KeyboardInterrupt"
    assert len(result.dashboards) == 1
    ok(kernel.run("%%nbprof -o p\nmodel.fit(data, verbose=0)"))
    assert kernel.ask("len(p.steps.frame)") == "8"


def test_out_of_memory_is_raised_untouched_with_the_memory_below_it(kernel):
    result = kernel.run(
        "%%nbprof -o p\nmodel.fit(data, verbose=0)\nx = tf.matmul(tf.ones((700, 700)), tf.ones((700, 700)))\ntf.fill((10**7, 10**7), 1.0)"
    )
    assert (result.status, result.error, result.errors) == ("error", "ResourceExhaustedError", 1)
    assert "OOM when allocating" in result.message
    assert own(result.traceback, kernel.folder) == []
    assert len(result.dashboards) == 1
    assert kernel.capture("p")["out_of_memory"] is True
    first, title, text = ast.literal_eval(
        kernel.ask(
            "(lambda meta: (meta.tabs[0].id, meta.notice.title, meta.notice.text))(p.payload().meta)"
        )
    )
    assert first == "memory"
    assert title.startswith("The cell failed after 8 complete steps: ResourceExhaustedError")
    assert "what was live at that peak" in text


def test_a_jax_cell_out_of_memory_is_known_too(kernel):
    require("jax")
    result = kernel.run(
        "%%nbprof -o p --backend jax\nimport jax.numpy as jnp\njnp.ones((10**7, 10**7)).sum()"
    )
    assert (result.status, result.error) == ("error", "JaxRuntimeError")
    assert result.message.startswith("RESOURCE_EXHAUSTED")
    assert kernel.capture("p")["out_of_memory"] is True


def test_two_kernels_at_once_in_one_folder(kernel, others):
    two = others(2)
    before = len(list(kernel.folder.glob("nbprof-results/plugins/profile/*")))
    code = "%%nbprof -o p\nfor _ in range(4):\n    model.fit(data, verbose=0)"
    asked = [other.client.execute(code, store_history=True) for other in two]
    for other, request in zip(two, asked, strict=True):
        deadline = time.monotonic() + 90
        while (answer := other.client.get_shell_msg(timeout=max(1, deadline - time.monotonic())))[
            "parent_header"
        ]["msg_id"] != request:
            pass
        assert answer["content"]["status"] == "ok"
    for other in two:
        # What the cell published comes before the answer to the next.
        assert other.ask("len(p.steps.frame)") == "32"
    assert len(list(kernel.folder.glob("nbprof-results/plugins/profile/*"))) == before + 2
    assert not list(kernel.folder.glob("nbprof-results/.recording-*"))


@pytest.mark.parametrize("how", ["shutdown", "exit"])
def test_a_kernel_that_shuts_down_while_it_records_keeps_the_run(others, how):
    (kernel,) = others(1)
    kept = kernel.folder / how
    assert kernel.run(f"nbprof.start(logdir={how!r})\nmodel.fit(data, verbose=0)").status == "ok"
    if how == "shutdown":
        kernel.client.shutdown()
    else:
        kernel.client.execute("exit()")
    deadline = time.monotonic() + 60
    while kernel.manager.is_alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not kernel.manager.is_alive()
    import nbprof

    assert len(nbprof.load(kept).steps.frame) == 8
    assert not list(kept.glob(".recording-*"))


def test_what_a_killed_kernel_left_is_cleared_by_a_later_recording(kernel, others):
    (left,) = others(1)
    assert (
        left.run("nbprof.start(logdir='left')\nmodel.fit(data, verbose=0)\nos.getpid()").status
        == "ok"
    )
    os.kill(int(left.ask("os.getpid()")), signal.SIGKILL)
    while left.manager.is_alive():
        time.sleep(0.1)
    (scratch,) = (kernel.folder / "left").glob(".recording-*")
    ok(kernel.run("%%nbprof --logdir left\nmodel.fit(data, verbose=0)"))
    # It may belong to a process on another machine that shares the disk, so only one that nobody
    # has touched for a day goes.
    assert scratch.is_dir()
    os.utime(scratch, (time.time() - 90_000,) * 2)
    ok(kernel.run("%%nbprof --logdir left\nmodel.fit(data, verbose=0)"))
    assert not scratch.exists()
    assert len(list((kernel.folder / "left" / "plugins" / "profile").iterdir())) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of a process here")
def test_a_cell_that_uses_up_the_file_descriptors_is_recorded(kernel):
    result = kernel.run(
        "%%nbprof -o p\nimport resource\nmodel.fit(data, verbose=0)\nlimits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/dev/fd')) + 100, limits[1]))\nleaked = []\n"
        "try:\n    while True: leaked.append(os.open(os.devnull, os.O_RDONLY))\nexcept OSError as error:\n    print(error.strerror)"
    )
    freed = kernel.run(
        "for each in leaked: os.close(each)\nresource.setrlimit(resource.RLIMIT_NOFILE, limits)"
    )
    assert freed.status == "ok", freed.traceback
    assert result.stdout == "Too many open files\n"
    ok(result)
    assert kernel.ask("len(p.steps.frame)") == "8"


FULL = """
import resource, signal, warnings
import tensorflow as tf
import nbprof
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with nbprof.profile(logdir="full") as run:
        for _ in nbprof.steps(range(3)):
            tf.reduce_sum(tf.ones((100, 100)))
        # From here on no file may grow over 1 KB, as on a disk that is full.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print(run.result, [str(w.message) for w in said if "nbprof" in str(w.message)])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of a process here")
def test_a_disk_that_is_full_is_a_sentence_and_leaves_no_half_run(tmp_path):
    done = programs.run(FULL, needs="tensorflow", cwd=tmp_path)
    assert done.stdout.startswith("None ")
    assert "nbprof: TensorFlow's profiler wrote no file: " in done.stdout
    assert (
        "; the disk is full, or limited: choose another location with --logdir DIR (logdir=)"
        in done.stdout
    )
    assert not list((tmp_path / "full").glob(".recording-*"))
