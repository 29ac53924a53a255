"""Sampled Python stacks: which thread, function, line and call the time of a program counts for."""

from __future__ import annotations

import json
import linecache
import os
import sys
import threading
import time
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from nbprof.capture import python_samples
from nbprof.capture.options import Options
from nbprof.capture.python_samples import PythonSampler
from nbprof.capture.session import Session
from nbprof.capture.steps import steps
from nbprof.core import python_samples as stored
from nbprof.core.python_samples import Function, Place, PythonSamples
from nbprof.core.sample_limits import SWITCH_S, jitter
from tests.support.cells import run_cell

POSITIONS = pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="before Python 3.11 code has no columns, from which calls are named",
)

BUSY = """def busy(seconds):
    end = now() + seconds
    while now() < end:
        pass
"""


@pytest.fixture
def run(monkeypatch):
    """Runs a text as the cell of some stem."""
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    return run_cell


def sampled(run, text, names=None):
    names = (
        {"now": time.perf_counter, "time": time, "np": np, "threading": threading}
        if names is None
        else names
    )
    sampler = PythonSampler().start()
    try:
        run("2", text, names)
    finally:
        samples = sampler.stop().samples()
    assert samples is not None, sampler.trouble
    assert sampler.trouble is None
    return samples


def innermost(samples):
    """Milliseconds by thread, function, line and call."""
    length, found = np.diff(samples.at) / 1e6, {}
    for sample, thread, node in zip(
        samples.sample.tolist(), samples.thread.tolist(), samples.node.tolist(), strict=True
    ):
        place = samples.places[samples.place[node]]
        key = (
            samples.threads[thread],
            samples.functions[place.function].name,
            place.line,
            place.call,
        )
        found[key] = found.get(key, 0.0) + float(length[sample - 1])
    return found


def most(samples, thread=0):
    times = {key: ms for key, ms in innermost(samples).items() if key[0] == samples.threads[thread]}
    return max(times, key=times.get)[1:]


class TestPlaces:
    def test_a_loop_of_arithmetic_is_its_only_line(self, run):
        samples = sampled(run, "s = 0\nfor i in range(3_000_000):\n    s += i * i\n")
        assert most(samples) == ("<module>", 3, "")

    def test_a_loop_of_several_lines_is_the_line_of_the_loop(self, run):
        samples = sampled(run, "s = 0\nfor i in range(2_000_000):\n    s += i * i\n    s -= i\n")
        assert most(samples) == ("<module>", 2, "")

    @pytest.mark.skipif(
        sys.version_info < (3, 11),
        reason="a thread of Python 3.10 lets others run between most instructions",
    )
    def test_a_short_function_counts_for_the_line_that_calls_it(self, run):
        text = "def square(x):\n    return x * x\ns = 0\nfor i in range(2_000_000):\n    s += square(i)\n    s -= 1\n"
        assert most(sampled(run, text)) == ("<module>", 5, "")

    @POSITIONS
    def test_a_c_function_counts_for_the_line_of_its_caller_and_is_named(self, run):
        samples = sampled(run, "a = 1\ntime.sleep(0.3)\n")
        assert most(samples) == ("<module>", 2, "time.sleep")

    @POSITIONS
    def test_a_c_function_that_holds_the_gil_is_named(self, run):
        samples = sampled(run, "x = 1\ny = sorted(list(range(1_000_000, 0, -1)) * 4)\nz = 1\n")
        assert most(samples)[:2] == ("<module>", 2)
        assert most(samples)[2] in ("sorted", "list")

    @POSITIONS
    def test_names_are_resolved_with_their_modules(self, run):
        samples = sampled(
            run,
            "from math import factorial\nimport math as m\nfor i in range(300):\n    factorial(6000)\n    m.factorial(6000)\n",
        )
        names = {key[3] for key in innermost(samples) if key[2] in (4, 5)}
        assert names <= {"math.factorial", ""}
        assert "math.factorial" in names

    @POSITIONS
    def test_operators_that_release_the_gil_are_named(self, run):
        samples = sampled(run, "a = np.ones((900, 900))\nfor i in range(12):\n    b = a @ a\n")
        assert any(key[2:] == (3, "operator @") for key in innermost(samples))

    @POSITIONS
    def test_a_file_that_changed_gives_no_wrong_name(self, run):
        names = {"time": time, "linecache": linecache}
        text = "linecache.cache['/tmp/ipykernel_1/2.py'] = (9, None, ['a\\n', 'other.thing(1.9)\\n'], '')\ntime.sleep(0.2)\n"
        assert most(sampled(run, text, names))[1:] == (2, "")

    def test_functions_of_cells_and_what_started_the_cell(self, run):
        names = {"now": time.perf_counter}
        run("1", BUSY, names)
        samples = sampled(run, "a = 1\nbusy(0.3)\n", names)
        of_cell = samples.node[samples.thread == 0]
        node = int(of_cell[len(of_cell) // 2])
        stack = []
        while node >= 0:
            place = samples.places[samples.place[node]]
            stack.append((samples.functions[place.function].name, place.line))
            node = int(samples.parent[node])
        assert stack[-1] == ("<module>", 2)
        assert stack[-2][0] == "busy"
        assert samples.source == {"1": BUSY, "2": "a = 1\nbusy(0.3)\n"}

    def test_calls_of_the_kernel_that_lead_to_a_cell_or_to_none_are_left_out(self, run):
        kernel = {"__name__": "IPython.core.interactiveshell", "now": time.perf_counter}
        exec(
            compile(
                BUSY + "def run_code(call):\n    busy(0.2)\n    return call()\n",
                "interactiveshell.py",
                "exec",
            ),
            kernel,
        )
        names = {"kernel": kernel["run_code"], "now": time.perf_counter}
        sampler = PythonSampler().start()
        kernel["run_code"](lambda: run("2", BUSY + "busy(0.3)\n", names))
        samples = sampler.stop().samples()
        assert samples is not None
        outermost = samples.node[samples.thread == 0]
        while (inner := samples.parent[outermost] >= 0).any():
            outermost = np.where(inner, samples.parent[outermost], outermost)
        outer = {
            samples.functions[samples.places[samples.place[node]].function] for node in outermost
        }
        assert [function.name for function in outer] == ["<module>"]
        # The time before the cell is no call's.
        first = samples.at[samples.sample[samples.thread == 0][0]] - samples.at[0]
        assert first > 0.1e9
        assert PythonSamples.unpacked(samples.packed()) is not None

    def test_deep_recursion_is_truncated(self, run, monkeypatch):
        monkeypatch.setattr(python_samples, "_MAX_DEPTH", 20)
        text = BUSY + "def deep(n):\n    return deep(n - 1) if n else busy(0.2)\ndeep(60)\n"
        samples = sampled(run, text)
        assert samples.truncated
        assert {samples.functions[place.function].name for place in samples.places} >= {
            "deep",
            "busy",
        }
        assert len(samples.parent) < 200

    def test_more_calls_than_are_stored_are_truncated(self, run, monkeypatch):
        monkeypatch.setattr(python_samples, "MOST_NODES", 3)
        samples = sampled(run, BUSY + "def a():\n    b()\ndef b():\n    busy(0.2)\na()\n")
        assert samples.truncated
        assert len(samples.parent) <= 3


class TestThreads:
    def test_each_thread_that_runs_is_there_and_those_that_wait_are_not(self, run):
        text = (
            BUSY
            + "done = threading.Event()\nidle = threading.Thread(target=done.wait, name='idle')\nidle.start()\ntime.sleep(0.1)\n"
            + "worker = threading.Thread(target=busy, args=(0.4,), name='worker')\nworker.start()\nworker.join()\ndone.set()\nidle.join()\n"
        )
        samples = sampled(run, text)
        assert samples.threads[0] == threading.current_thread().name
        assert "worker" in samples.threads
        assert most(samples, samples.threads.index("worker"))[0] == "busy"
        if sys.platform == "linux":
            # It may have begun or ended in a sample, not more.
            times = innermost(samples)
            idle = sum(ms for key, ms in times.items() if key[0] == "idle")
            assert idle < 0.5 * sum(ms for key, ms in times.items() if key[0] == "worker")

    @pytest.mark.skipif(sys.platform != "linux", reason="CPU time of threads is read on Linux only")
    def test_cpu_time_tells_waiting_from_work(self, run):
        samples = sampled(run, BUSY + "time.sleep(0.4)\nbusy(0.4)\n")
        length = np.diff(samples.at)[samples.sample - 1]
        line = np.array([samples.places[place].line for place in samples.place])[samples.node]
        rows = samples.thread == 0
        asleep, busy = rows & (line == 5), rows & (line < 5)
        share = [samples.thread_cpu[each].sum() / length[each].sum() for each in (asleep, busy)]
        assert share[0] < 0.5 * share[1]
        # The process has all of it.
        assert samples.cpu[-1] - samples.cpu[0] >= samples.thread_cpu[rows].sum() * 0.99

    def test_threads_of_nbprof_and_of_the_kernel_are_left_out(self, run):
        class Heartbeat(threading.Thread):
            __module__ = "ipykernel.heartbeat"

            def run(self):
                end = time.perf_counter() + 0.2
                while time.perf_counter() < end:
                    pass

        Heartbeat(name="kernel's").start()
        threading.Thread(target=time.sleep, args=(0.2,), name="nbprof-anything").start()
        samples = sampled(run, "time.sleep(0.3)\n")
        assert samples.threads[0] == threading.current_thread().name
        assert not {"kernel's", "nbprof-anything"} & set(samples.threads)

    def test_an_ident_that_is_used_again_is_another_thread(self, run):
        # Each works until there are further samples, however busy the machine is.
        text = (
            "def work(samples):\n    while taken() < samples:\n        pass\n"
            "for i in range(4):\n    t = threading.Thread(target=work, args=(taken() + 3,), name=f'worker {i}')\n"
            "    t.start()\n    t.join()\n"
        )
        sampler = PythonSampler().start()
        try:
            run("2", text, {"threading": threading, "taken": lambda: len(sampler._times)})
        finally:
            samples = sampler.stop().samples()
        assert {"worker 1", "worker 2", "worker 3"} <= set(samples.threads)


class TestWeights:
    def test_times_add_up_to_the_recording(self, run):
        samples = sampled(run, BUSY + "busy(0.3)\ntime.sleep(0.1)\n")
        cell = samples.sample[samples.thread == 0]
        assert cell.tolist() == list(range(1, len(samples.at)))
        assert samples.at[-1] - samples.at[0] <= 1e9 * 60
        assert (np.diff(samples.at) >= 0).all()

    def test_the_rate_is_halved_and_times_stay(self, run, monkeypatch):
        monkeypatch.setattr(python_samples, "MOST_SAMPLES", 8)
        samples = sampled(
            run,
            BUSY
            + "worker = threading.Thread(target=busy, args=(0.5,), name='worker')\nworker.start()\nbusy(0.5)\nworker.join()\n",
        )
        assert len(samples.at) - 1 < 8
        cell = samples.sample[samples.thread == 0]
        assert cell.tolist() == list(range(1, len(samples.at)))
        assert samples.at[-1] - samples.at[0] > 0.2e9
        assert len({*zip(samples.sample.tolist(), samples.thread.tolist(), strict=True)}) == len(
            samples.sample
        )

    @pytest.mark.parametrize("count", [7, 8])
    def test_halving_keeps_the_last_sample_and_the_sum_of_cpu_time(self, count):
        sampler = PythonSampler()
        sampler._times.extend(range(0, 10 * count + 1, 10))
        sampler._cpu.extend(range(count + 1))
        sampler._late.extend(range(count + 1))
        for sample in range(1, count + 1):
            for thread in (0, 1) if sample % 3 else (0,):
                sampler._sample.append(sample)
                sampler._thread_index.append(thread)
                sampler._node.append(sample)
                sampler._thread_cpu.append(100 * sample + thread)
        before = sum(sampler._thread_cpu)
        sampler._halve()
        assert list(sampler._times)[::-1] == list(range(10 * count, -1, -20)) + (
            [0] if count % 2 else []
        )
        assert sum(sampler._thread_cpu) == before
        assert list(sampler._sample) == sorted(sampler._sample)
        # Each sample has the stack of its own moment, or of the thread's last one before it.
        for sample, thread, node in zip(
            sampler._sample, sampler._thread_index, sampler._node, strict=True
        ):
            assert node == sampler._times[sample] // 10 or (
                thread == 1 and node == sampler._times[sample] // 10 - 1
            )


class TestLife:
    def test_it_can_be_stopped_in_any_state(self):
        sampler = PythonSampler()
        assert sampler.stop().samples() is None
        sampler.start()
        sampler.stop()
        assert sampler.stop() is sampler
        assert not [thread for thread in threading.enumerate() if thread.name == "nbprof-samples"]

    def test_imports_before_the_first_step_take_no_samples_from_it(self, monkeypatch):
        module = python_samples
        now, used, pauses = [0.0], [0.0], []
        clock = SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: used[0])
        monkeypatch.setattr(module, "time", clock)
        sampler = PythonSampler()
        sampler.on = True

        def sleep(timeout):
            pauses.append(timeout)
            now[0] += timeout
            if len(pauses) == 40:
                sampler.allow_more()
            return len(pauses) == 80

        def take(_late_s):
            # As expensive as in an import, with many new functions.
            used[0] += 0.0004

        sampler._gate = SimpleNamespace(acquire=sleep)
        monkeypatch.setattr(sampler, "_take", take)
        sampler._loop()
        stretch = [1.0, *islice(jitter(), 79)]
        regular = [pause / factor for pause, factor in zip(pauses, stretch, strict=True)]
        assert regular[:10] == pytest.approx([module.INTERVAL_S] * 10)
        assert regular[39] == pytest.approx(module.LONGEST_S)
        assert regular[41:50] == pytest.approx([module.INTERVAL_S] * 9)
        assert regular[-1] == pytest.approx(module.LONGEST_S)

    def test_a_loop_with_the_period_of_the_samples_is_seen_as_it_is(self, monkeypatch):
        """Of each 10.3 ms, the first 0.3 are a call that releases the GIL. A sample gets it then,
        or after `SWITCH_S`.
        """
        period, released = 0.0103, 0.0003
        now, in_call = [0.002], []
        clock = SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: 0.0)
        monkeypatch.setattr(python_samples, "time", clock)
        sampler = PythonSampler()
        sampler.on = True

        def sleep(timeout):
            now[0] += timeout
            return len(in_call) == 1000

        def take(_late_s):
            until_call = period - now[0] % period
            calls = period - until_call < released or until_call < SWITCH_S
            if not period - until_call < released:
                now[0] += min(until_call, SWITCH_S)
            in_call.append(calls)

        sampler._gate = SimpleNamespace(acquire=sleep)
        monkeypatch.setattr(sampler, "_take", take)
        sampler._loop()
        assert np.mean(in_call) == pytest.approx((released + SWITCH_S) / period, abs=0.03)

    def test_the_first_step_of_a_recording_allows_more(self, monkeypatch):
        allowed = []
        monkeypatch.setattr(PythonSampler, "allow_more", lambda self: allowed.append(self))
        session = Session(Options(backend="python", save=False)).start()
        assert not allowed
        for _ in steps(range(3)):
            pass
        assert len(allowed) == 1
        session.stop()

    def test_without_the_gil_nothing_is_sampled(self, monkeypatch):
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        sampler = PythonSampler().start()
        assert not [thread for thread in threading.enumerate() if thread.name == "nbprof-samples"]
        assert sampler.stop().samples() is None
        assert sampler.trouble.key == "stacks_not_sampled"

    def test_it_can_be_stopped_on_another_thread(self, run):
        sampler = PythonSampler().start()
        time.sleep(0.1)
        thread = threading.Thread(target=sampler.stop)
        thread.start()
        thread.join()
        assert sampler.samples() is not None

    def test_a_failure_while_sampling_is_told_and_what_was_sampled_stays(self, run, monkeypatch):
        sampler = PythonSampler().start()
        time.sleep(0.1)
        monkeypatch.setattr(sampler, "_take", lambda _late: 1 / 0)
        time.sleep(0.1)
        samples = sampler.stop().samples()
        assert sampler.trouble.key == "stacks_sampled_in_part"
        assert "ZeroDivisionError" in sampler.trouble.text
        assert samples is not None
        assert PythonSamples.unpacked(samples.packed()) is not None

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_a_child_has_no_sampler(self):
        session = Session(Options(backend="torch"))
        sampler = session.windows._sampler = PythonSampler().start()
        session._stopped = False
        child = os.fork()
        if not child:
            try:
                session.forget()
                os._exit(0 if session.windows._sampler is None and sampler.stop() is sampler else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        sampler.stop()

    def test_numpy_is_not_needed_to_sample(self):
        import subprocess

        text = (
            "import sys, time\nfrom nbprof.capture.python_samples import PythonSampler\n"
            "before = 'numpy' in sys.modules\ns = PythonSampler().start()\ntime.sleep(0.1)\ns.stop()\nassert before == ('numpy' in sys.modules)\n"
            "assert s.samples() is not None\n"
        )
        subprocess.run([sys.executable, "-c", text], check=True)


def example(**changes):
    values = {
        "functions": [Function("a.py", "f", 1), Function("b.py", "g", 3)],
        "places": [Place(0, 2, "math.sin"), Place(1, 4, "")],
        "parent": np.array([-1, 0], np.int32),
        "place": np.array([0, 1], np.int32),
        "threads": ["MainThread", "worker"],
        "at": np.array([5, 10, 20, 50]),
        "cpu": np.array([1, 2, 3, 9]),
        "sample": np.array([1, 2, 2, 3], np.int32),
        "thread": np.array([0, 0, 1, 0], np.int32),
        "node": np.array([0, 1, 0, 1], np.int32),
        "thread_cpu": np.array([3, 0, -1, 2]),
        "late": np.array([-1, 0, 1_150_000, 7]),
        "source": {"1": "a\n"},
    }
    return PythonSamples(**{**values, **changes})


def test_packed_samples_are_the_same_again():
    samples = example()
    again = PythonSamples.unpacked(json.loads(json.dumps(samples.packed())))
    assert again is not None
    for name, value in vars(samples).items():
        assert (
            np.array_equal(getattr(again, name), value)
            if isinstance(value, np.ndarray)
            else getattr(again, name) == value
        )


@pytest.mark.parametrize(
    "change",
    [
        {"files": [3]},
        {"files": []},
        {"functions": [["a.py", "f", 1]]},
        {"functions": [[0, "f", -1]]},
        {"functions": [[True, "f", 1]]},
        {"places": [[7, 1, ""]]},
        {"places": [[0, 2**40, ""]]},
        {"places": [[0, 1]]},
        {"places": []},
        {"threads": []},
        {"threads": "MainThread"},
        {"counts": [4, 4]},
        {"counts": [4, 4, True]},
        {"counts": [10**12, 4, 2]},
        {"counts": [3, 4, 2]},
        {"counts": [-1, 4, 2]},
        {"columns": "%"},
        {"columns": "AAAA"},
        {"columns": None},
        {"source": {"1": 3}},
        {"source": None},
    ],
)
def test_damaged_values_are_left_out(change):
    assert PythonSamples.unpacked({**example().packed(), **change}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"parent": np.array([-1, 1], np.int32)},
        {"parent": np.array([-2, 0], np.int32)},
        {"place": np.array([0, 2], np.int32)},
        {"at": np.array([5, 4, 20, 50])},
        {"at": np.array([-5, 4, 20, 50])},
        {"at": np.array([5, 10, 20, 2**62 + 1])},
        {"cpu": np.array([5, 4, 20, 50])},
        {"sample": np.array([0, 1, 2, 3], np.int32)},
        {"sample": np.array([1, 2, 2, 4], np.int32)},
        {"thread": np.array([0, 0, 2, 0], np.int32)},
        {"node": np.array([0, 0, 2, 0], np.int32)},
        {"thread_cpu": np.array([3, 0, -2, 2])},
    ],
)
def test_values_that_cannot_be_are_left_out(change):
    assert PythonSamples.unpacked(example(**change).packed()) is None


@pytest.mark.parametrize("values", [None, [], {}, "x", {"functions": {}}])
def test_anything_else_is_no_samples(values):
    assert PythonSamples.unpacked(values) is None


def test_a_bomb_is_not_unpacked(monkeypatch):
    import base64
    import zlib

    packed = {
        **example().packed(),
        "columns": base64.b64encode(zlib.compress(b"\0" * 10**7)).decode(),
    }
    limits = []
    inflate = zlib.decompressobj

    class Watched:
        def __init__(self):
            self._of = inflate()

        def decompress(self, data, limit):
            limits.append(limit)
            return self._of.decompress(data, limit)

        @property
        def eof(self):
            return self._of.eof

    monkeypatch.setattr(stored.zlib, "decompressobj", Watched)
    assert PythonSamples.unpacked(packed) is None
    assert limits
    assert limits[0] < 1000


def test_stacks_from_before_a_moment_can_be_left_out():
    sampler = PythonSampler().start()
    time.sleep(0.1)
    moment = time.time_ns()
    time.sleep(0.2)
    samples = sampler.stop().samples()
    assert samples is not None
    later = samples.within(moment, int(samples.at[-1]))
    assert 0 < len(later.sample) <= len(samples.sample)
    assert (later.at[later.sample] > moment).all()
    assert len(samples.within(int(samples.at[-1]), int(samples.at[-1])).sample) == 0
    assert later.packed()["counts"][1] == len(later.sample)


def test_recordings_that_do_not_know_how_late_samples_were_are_read():
    packed = example(late=np.zeros(0, np.int64)).packed()
    packed["counts"] = packed["counts"][:3]
    again = PythonSamples.unpacked(packed)
    assert again is not None
    assert not len(again.late)
    assert again.at.tolist() == example().at.tolist()


def test_how_late_samples_are_is_of_each_of_them():
    assert PythonSamples.unpacked(example(late=np.array([-1, 0])).packed()) is None


def test_a_sample_waits_as_long_as_python_may_keep_the_gil():
    sampler = PythonSampler().start()
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        sum(range(100))
    taken = sampler.stop().samples()
    assert taken is not None
    assert len(taken.late) == len(taken.at)
    assert taken.late[0] == -1
    # A machine under load makes it later, none makes it sooner.
    assert np.median(taken.late[1:]) > 0.8 * SWITCH_S * 1e9
