"""What a recording knows of the tasks of process pools, and that pools stay as they are."""

from __future__ import annotations

import concurrent.futures.process
import json
import multiprocessing
import multiprocessing.pool
import os
import pickle
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType

import pytest

import nbprof
from nbprof.capture import notes
from nbprof.capture.loader_workers import reporter, reports
from nbprof.capture.loader_workers.folder import PREFIX
from nbprof.capture.patches import Patches
from nbprof.capture.pools import task, watch
from nbprof.capture.pools.calls import MOST_WRAPPED
from nbprof.core.pool_times import unpacked
from tests.capture import pool_tasks

METHODS = multiprocessing.get_all_start_methods()
ROOT = Path(__file__).resolve().parents[2]
forks = pytest.mark.skipif("fork" not in METHODS, reason="this system does not fork")


class Recorded:
    """Pools as a recording watches them."""

    def __init__(self, *modules):
        self.patches, self.watch = Patches(), watch.PoolWatch()
        self.watch.begin()
        for module in modules or (multiprocessing.pool, concurrent.futures.process):
            self.watch.hook(module, self.patches)

    def taken(self):
        packed, missing = self.watch.taken()
        # As it is stored.
        about = [note.key for note in notes.pools(missing)]
        return unpacked(json.loads(json.dumps(packed))), about


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """On a busy machine answers take their time."""
    monkeypatch.setattr(reports, "ANSWER_S", 60.0)
    monkeypatch.setattr(watch, "_ANSWER_S", 60.0)


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    monkeypatch.setattr(reporter, "REPORT_S", 0.02)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recording = Recorded()
    yield recording
    recording.patches.restore()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def line_of(function):
    return function.__code__.co_firstlineno


def timed(recorded):
    """The only pool, its workers, and its functions by name."""
    times, about = recorded.taken()
    assert not about
    (pool,) = times.pools
    return pool, times.times.workers, {stage.name: stage for stage in times.times.stages}


@pytest.mark.parametrize("method", METHODS)
def test_all_calls_of_a_pool_that_was_made_before(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        processes = set(pool.map(pool_tasks.process, range(20), 1))
        recorded = Recorded()
        try:
            assert pool.map(pool_tasks.double, range(10)) == list(range(0, 20, 2))
            assert pool.map_async(pool_tasks.double, range(5), 2).get() == [0, 2, 4, 6, 8]
            assert list(pool.imap(pool_tasks.double, range(7))) == list(range(0, 14, 2))
            assert list(pool.imap(pool_tasks.double, iter(range(7)), 3)) == list(range(0, 14, 2))
            assert sorted(pool.imap_unordered(pool_tasks.double, range(4), 2)) == [0, 2, 4, 6]
            assert pool.starmap(pool_tasks.add, [(1, 2), (3, 4)]) == [3, 7]
            assert pool.apply(pool_tasks.add, (1,), {"second": 5}) == 6
            assert pool.apply_async(pool_tasks.add, (1, 6)).get() == 7
            use, workers, functions = timed(recorded)
        finally:
            recorded.patches.restore()
        assert (use.kind, use.processes, use.fresh) == ("Pool", 2, False)
        assert use.sent == 37 == sum(row.items for row in workers)
        # Chunks of so short tasks are not all timed inside.
        assert 9 <= functions["double"].calls <= 33
        assert 3 <= functions["add"].calls <= 4
        assert functions["double"].file == pool_tasks.__file__
        assert functions["double"].line == line_of(pool_tasks.double)
        assert {row.worker for row in workers} <= set(map(int, _pids(pool))) | processes
        assert use.unfinished_ns > 0
        assert sum(row.memory_bytes for row in workers) > 0


def _pids(pool):
    return [worker.pid for worker in pool._pool]


@pytest.mark.parametrize("method", METHODS)
def test_an_executor(recorded, method):
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        assert executor.submit(pool_tasks.add, 1, second=2).result() == 3
        assert list(executor.map(pool_tasks.double, range(10), chunksize=3)) == list(
            range(0, 20, 2)
        )
        assert list(executor.map(pool_tasks.add, [1, 2], [3, 4])) == [4, 6]
    use, workers, functions = timed(recorded)
    assert (use.kind, use.fresh) == ("ProcessPoolExecutor", True)
    assert use.sent == 13 == sum(row.items for row in workers)
    assert 3 <= functions["double"].calls <= 10
    assert functions["add"].calls == 3


@forks
def test_time_and_line_of_a_task(recorded):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(pool_tasks.spin, range(10))
    use, workers, functions = timed(recorded)
    assert use.fresh
    assert functions["spin"].total_ns >= 10 * 20e6
    assert sum(row.busy_ns for row in workers) >= functions["spin"].total_ns
    assert use.unfinished_ns * use.processes >= sum(row.busy_ns for row in workers)


@forks
def test_exceptions_are_those_without(recorded):
    calls = {
        "one": lambda pool: pool.apply(pool_tasks.fail, (3,)),
        "chunk": lambda pool: pool.map(pool_tasks.fail, range(3)),
        "iterator": lambda pool: list(pool.imap(pool_tasks.fail, range(3))),
        "in the iterable": lambda pool: list(pool.imap(pool_tasks.double, map(int, ["1", "x"]))),
        "pickling": lambda pool: pool.map(lambda value: value, [1]),
    }
    with multiprocessing.get_context("fork").Pool(1) as pool:
        seen = {name: _failure(call, pool) for name, call in calls.items()}
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
            seen["executor"] = _failure(
                lambda _: executor.submit(pool_tasks.fail, 3).result(), None
            )
        recorded.patches.restore()
        for name, call in calls.items():
            assert seen[name] == _failure(call, pool), name
        assert pool.map(pool_tasks.double, [4]) == [8]
    assert seen["one"][1] == "bad 3"
    assert "nbprof" not in seen["executor"][2].replace(str(ROOT), "")


def _failure(call, pool):
    """The kind of an exception, its text, and the traceback of the worker."""
    with pytest.raises(Exception) as raised:  # noqa: PT011
        call(pool)
    text = str(raised.value)
    return type(raised.value), text.partition(" at 0x")[0], str(raised.value.__cause__)


@forks
def test_options_of_a_pool_hold(recorded, tmp_path):
    context = multiprocessing.get_context("fork")
    with context.Pool(1, pool_tasks.set_up, (5,), maxtasksperchild=1) as pool:
        assert pool.map(pool_tasks.set_up_value, range(4), 1) == [5, 6, 7, 8]
        later = pool.apply_async(pool_tasks.wait_for, (str(tmp_path / "go"),))
        with pytest.raises(multiprocessing.TimeoutError):
            later.get(timeout=0)
        (tmp_path / "go").touch()
        assert later.get() == str(tmp_path / "go")
        pool.close()
        pool.join()
    use, workers, _ = timed(recorded)
    assert use.sent == 5 == sum(row.items for row in workers)
    assert len(workers) == 5


@forks
def test_callbacks_get_the_result(recorded):
    results, errors = [], []
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.apply_async(pool_tasks.double, (2,), callback=results.append).wait()
        pool.apply_async(pool_tasks.fail, (2,), error_callback=errors.append).wait()
        pool.close()
        pool.join()
    assert results == [4]
    assert [str(error) for error in errors] == ["bad 2"]


@forks
def test_a_worker_that_is_killed(recorded):
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        assert executor.submit(pool_tasks.double, 1).result() == 2
        with pytest.raises(BrokenProcessPool):
            executor.submit(pool_tasks.kill, 0).result()
    times, about = recorded.taken()
    assert about == ["pool_workers_ended_early"]
    assert times.pools[0].sent == 2
    assert len(times.times.workers) == 1


@forks
def test_threads_are_no_workers(recorded):
    with multiprocessing.pool.ThreadPool(2) as pool:
        assert pool.map(pool_tasks.double, range(3)) == [0, 2, 4]
    assert recorded.taken()[0].pools == ()


@forks
def test_nothing_is_left_in_the_workers(recorded):
    methods = ("apply_async", "_guarded_task_generation", "terminate", "__init__")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        files, threads = pool.apply(pool_tasks.surroundings, (0,))
        assert any("nbprof" in Path(file).parts for file in files)
        recorded.taken()
        recorded.patches.restore()
        for name in methods:
            assert vars(multiprocessing.pool.Pool)[name].__module__ == "multiprocessing.pool"
        # The thread looks at the folder from time to time.
        while any("nbprof" in name for name in threads):
            files, threads = pool.apply(pool_tasks.surroundings, (0,))
            assert not any("capture/pools" in file for file in files)
            time.sleep(0.01)


@forks
def test_tasks_that_were_sent_with_the_recording_run_after_it(recorded, tmp_path):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        first = pool.apply_async(pool_tasks.wait_for, (str(tmp_path / "go"),))
        rest = [pool.apply_async(pool_tasks.double, (value,)) for value in range(5)]
        while not pool._cache or pool._taskqueue.qsize():
            time.sleep(0.005)
        recorded.watch.close()
        (tmp_path / "go").touch()
        assert first.get()
        assert [each.get() for each in rest] == [0, 2, 4, 6, 8]


@forks
def test_few_of_many_short_tasks_are_timed(recorded, monkeypatch):
    monkeypatch.setattr(watch, "FIRST", 20)
    monkeypatch.setattr(watch, "SHARE", 0.0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert list(pool.imap(pool_tasks.double, range(1_000))) == list(range(0, 2_000, 2))
    use, workers, functions = timed(recorded)
    assert use.sent == 1_000
    assert sum(row.items for row in workers) == 20 == functions["double"].calls


@forks
def test_few_calls_of_a_chunk_are_timed_on_their_own(recorded):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(pool_tasks.double, range(9_000), 3_000) == list(range(0, 18_000, 2))
        pairs = [(value, 1) for value in range(1_000)]
        assert pool.starmap(pool_tasks.add, pairs, 1_000) == list(range(1, 1_001))
    use, workers, functions = timed(recorded)
    assert use.sent == 10_000 == sum(row.items for row in workers)
    assert sum(row.batches for row in workers) == 4
    calls = sum(stage.calls for stage in functions.values())
    assert MOST_WRAPPED <= calls <= 4 * MOST_WRAPPED


def test_a_worker_without_nbprof_runs_the_task(tmp_path):
    report = task.Report(str(tmp_path), 1, 0, samples=False)
    sent = pickle.dumps(task.Task(divmod, lambda: report))
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(7, 2))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], input=sent, capture_output=True, check=False
    )
    assert done.stdout.split() == [b"(3,", b"1)"], done.stderr


@forks
def test_a_batch_of_joblib():
    """Joblib sends several calls as one, by an executor of its own."""

    class Executor(ProcessPoolExecutor):
        def submit(self, fn, *args, **kwargs):
            return super().submit(fn, *args, **kwargs)

    module = ModuleType("joblib.externals.loky.process_executor")
    module.ProcessPoolExecutor = Executor
    recorded = Recorded(module)
    with Executor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        batch = BatchedCalls([(pool_tasks.double, (value,), {}) for value in range(3)])
        assert executor.submit(batch).result() == [0, 2, 4]
    use, workers, functions = timed(recorded)
    recorded.patches.restore()
    assert vars(Executor)["submit"].__module__ == __name__
    assert use.kind == "joblib"
    assert use.sent == 3 == functions["double"].calls
    assert workers[0].batches == 1


class BatchedCalls:
    def __init__(self, items):
        self.items = items

    def __call__(self):
        return [function(*args, **kwargs) for function, args, kwargs in self.items]


@forks
@pytest.mark.parametrize("backend", ["loky", "multiprocessing"])
def test_joblib(backend):
    joblib = pytest.importorskip("joblib")
    with nbprof.profile(save=False) as run:
        results = joblib.Parallel(2, backend)(joblib.delayed(pool_tasks.spin)(i) for i in range(8))
    assert results == list(range(8))
    tasks = run.python.tasks
    assert tasks["function"].tolist() == ["spin"]
    assert tasks["pool"].tolist() == ["joblib"]
    assert run.python.pools["sent"].tolist() == [8]


@forks
def test_recordings_in_recordings():
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        with nbprof.profile(save=False) as outer:
            pool.map(pool_tasks.spin, range(3))
            with nbprof.profile(save=False) as inner:
                pool.map(pool_tasks.double, range(4))
            pool.map(pool_tasks.add, [])
        pool.map(pool_tasks.double, range(5))
    assert inner.python.pools["sent"].tolist() == [4]
    assert inner.python.tasks["function"].tolist() == ["double"]
    # The inner one ended the outer one.
    assert not len(outer.python.pools) or outer.python.pools["sent"].tolist() == [3]


@forks
def test_frames_and_the_overview():
    with nbprof.profile(save=False) as run, multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(pool_tasks.spin, range(20), 1)
    (pools,) = run.python.pools.to_dict("records")
    assert (pools["processes"], pools["sent"], pools["timed"]) == (2, 20, 20)
    assert 0 < pools["busy_percent"] <= 100
    (row,) = run.python.tasks.to_dict("records")
    assert row["where"].endswith(f"pool_tasks.py:{line_of(pool_tasks.spin)}")
    assert row["mean_ms"] >= 20
    workers = run.python.workers
    assert workers["tasks"].sum() == 20
    part = run.payload()["overview"]["pools"]
    assert part["tasks"]["rows"] == 1
    assert part["notes"][0].startswith("Pool: 2 processes, 20 tasks; ")


INTERRUPTED = """
import multiprocessing, os, signal, sys, threading, time
from pathlib import Path
import nbprof
from tests.capture import pool_tasks

folder = Path(sys.argv[1])

def interrupt():
    while len(list(folder.glob("began-*"))) < 2:
        time.sleep(0.005)
    os.killpg(0, signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    with nbprof.profile(save=False) as run:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(pool_tasks.begin_and_wait, [folder] * 2, 1)
except KeyboardInterrupt:
    print("interrupted", run.python.pools["sent"].tolist(), multiprocessing.active_children())
"""


@forks
def test_ctrl_c(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        start_new_session=True,
    )
    assert done.stdout.split("\n")[0] == "interrupted [2] []", done.stderr
    assert "nbprof/capture/pools" not in done.stderr
    assert not list(tmp_path.glob(f"{PREFIX}*"))
