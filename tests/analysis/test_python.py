"""Python time from sampled stacks: by function, line, module and thread, in all of a recording or
in parts of it.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from nbprof.analysis.python import Python, TopFunction, is_person, module, top_function
from nbprof.core.errors import NbprofError
from nbprof.core.intervals import Intervals
from nbprof.core.line_times import LineTimes
from nbprof.core.python_samples import Function, Place, PythonSamples
from nbprof.profiles.brief import brief
from nbprof.schema import frames
from nbprof.schema.frames import SCHEMA
from nbprof.sources.recording import CaptureInfo
from tests.support.kineto import Kineto, profile

MS = 10**6
BASE = 1_700_000_000_000_000_000
CELL = "/tmp/ipykernel_1/42.py"
QR = "/usr/lib/python3/dist-packages/numpy/linalg/_linalg.py"
OF_POOLS = ("python.pools", "python.tasks", "python.workers")
NAMES = [name for name in SCHEMA if name.startswith("python.") and name not in OF_POOLS]


def samples(rows, cpu=None, threads=("MainThread",), at=None, **more):
    """Samples of (sample, stack, thread, CPU ms or None), a stack being lines of functions,
    outermost first.
    """
    functions: dict[Function, int] = {}
    places: dict[Place, int] = {}
    nodes: dict[tuple[int, int], int] = {}
    columns = []
    for sample, stack, thread, spent in rows:
        node = -1
        for file, name, first, line, *call in stack:
            function = functions.setdefault(Function(file, name, first), len(functions))
            place = places.setdefault(Place(function, line, *(call or [""])), len(places))
            node = nodes.setdefault((node, place), len(nodes))
        columns.append((sample, thread, node, -1 if spent is None else spent * MS))
    count = max(row[0] for row in rows) + 1
    moments = np.arange(count) * 10 if at is None else np.array(at)
    sample, thread, node, spent = np.array(columns).T
    return PythonSamples(
        list(functions),
        list(places),
        np.array([above for above, _ in nodes], np.int32),
        np.array([place for _, place in nodes], np.int32),
        list(threads),
        BASE + moments * MS,
        (np.arange(count) * 10 if cpu is None else np.array(cpu)) * MS,
        sample.astype(np.int32),
        thread.astype(np.int32),
        node.astype(np.int32),
        spent,
        source={"42": "a = 1\naugment(a)\nb = 2\n"},
        **more,
    )


MODULE = (CELL, "<module>", 1, 2, "augment")
AUGMENT = ("/project/train.py", "augment", 10, 12, "numpy.linalg.qr")
LIBRARY = (QR, "qr", 964, 1158, "gufunc")


@pytest.fixture
def two_threads():
    """30 ms in a library that the person's function calls, 10 ms in that function, 10 ms in the
    cell; a worker with 4 ms of CPU time.
    """
    worker = [
        ("/usr/lib/python3.11/threading.py", "Thread.run", 970, 982),
        ("/project/data.py", "load", 1, 3),
    ]
    return samples(
        [
            (1, [MODULE, AUGMENT, LIBRARY], 0, 9),
            (1, worker, 1, 4),
            (2, [MODULE, AUGMENT, LIBRARY], 0, 9),
            (3, [MODULE, AUGMENT, LIBRARY], 0, 9),
            (4, [MODULE, AUGMENT], 0, 0),
            (5, [(CELL, "<module>", 1, 3)], 0, 10),
        ],
        threads=("MainThread", "worker"),
    )


def row(frame, **values):
    chosen = frame
    for name, value in values.items():
        chosen = chosen[chosen[name] == value]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_self_and_total_time_of_functions(two_threads):
    frame = Python(two_threads, {"42": 3}).functions
    qr, augment, cell = (row(frame, function=name) for name in ("qr", "augment", "<module>"))
    assert (qr.self_ms, qr.total_ms, qr.cpu_ms, qr.module) == (30, 30, 27, "numpy")
    assert (augment.self_ms, augment.total_ms, augment.cpu_ms, augment.module) == (
        10,
        40,
        0,
        "train",
    )
    assert (cell.self_ms, cell.total_ms, cell.file, cell.module) == (10, 50, "Cell [3]", "__main__")
    assert frame["percent"].sum() == pytest.approx(100)
    assert qr.percent == pytest.approx(100 * 30 / 54)
    assert set(frame["thread"]) == {"MainThread", "worker"}


def test_other_threads_have_their_cpu_time(two_threads):
    load = row(Python(two_threads, {}).functions, function="load")
    assert (load.self_ms, load.total_ms, load.cpu_ms, load.thread) == (4, 4, 4, "worker")


def test_where_cpu_time_is_unknown_it_is_na_and_other_threads_have_their_wall_time_unless_they_wait():
    work = [
        ("/usr/lib/python3.11/threading.py", "Thread.run", 970, 982),
        ("/project/data.py", "load", 1, 3),
    ]
    wait = [*work, ("/usr/lib/python3.11/threading.py", "Condition.wait", 320, 331)]
    found = samples(
        [(1, [MODULE], 0, None), (1, work, 1, None), (2, [MODULE], 0, None), (2, wait, 1, None)],
        threads=("MainThread", "worker"),
    )
    frame = Python(found, {}).functions
    assert row(frame, function="load").total_ms == 10
    assert row(frame, function="<module>").self_ms == 20
    assert frame["cpu_ms"].isna().loc[frame["self_ms"] > 0].all()
    assert "Condition.wait" not in set(frame["function"])


def test_recursion_counts_once():
    fib = (CELL, "fib", 1, 2)
    found = samples([(1, [MODULE, fib, fib, fib], 0, 10), (2, [MODULE, fib], 0, 10)])
    python = Python(found, {})
    assert row(python.functions, function="fib").total_ms == 20
    assert row(python.lines, function="fib").total_ms == 20
    assert row(python.modules, module="__main__").total_ms == 20


def test_lines_have_their_text_and_what_they_call(two_threads):
    frame = Python(two_threads, {"42": 3}).lines
    cell = row(frame, file="Cell [3]", line=2)
    assert (cell.code, cell.call, cell.self_ms, cell.total_ms) == ("augment(a)", "augment", 0, 40)
    line = row(frame, function="augment")
    assert (line.file, line.line, line.call, line.self_ms, line.total_ms) == (
        "/project/train.py",
        12,
        "numpy.linalg.qr",
        10,
        40,
    )
    assert row(frame[frame["call"].isna()], function="load").line == 3


def test_a_line_of_the_person_has_the_time_of_the_libraries_it_called(two_threads):
    frame = Python(two_threads, {"42": 3}).lines
    assert row(frame, function="augment").user_code_ms == 40
    assert row(frame, file="Cell [3]", line=3).user_code_ms == 10
    # Another line of the person was further in.
    assert row(frame, file="Cell [3]", line=2).user_code_ms == 0
    assert row(frame, function="qr").user_code_ms == 0
    assert row(frame, function="load").user_code_ms == 4
    assert frame["user_code_ms"].sum() == pytest.approx(54)


def test_modules_and_threads(two_threads):
    python = Python(two_threads, {})
    assert python.modules.set_index("module")["self_ms"].to_dict() == {
        "numpy": 30,
        "__main__": 10,
        "train": 10,
        "data": 4,
        "threading": 0,
    }
    threads = python.threads
    assert threads["thread"].tolist() == ["MainThread", "worker"]
    assert threads["cpu_ms"].tolist() == [37, 4]
    assert threads["active_ms"].tolist() == [50, 10]
    assert threads["cpu_percent"].tolist() == [74, 8]


def test_the_tree_adds_up(two_threads):
    tree = Python(two_threads, {"42": 3}).tree
    assert (
        tree["total_ms"][tree["parent"] == -1].sum() == pytest.approx(tree["self_ms"].sum()) == 54
    )
    for at in range(len(tree)):
        below = tree[tree["parent"] == at]
        assert tree["total_ms"][at] == pytest.approx(tree["self_ms"][at] + below["total_ms"].sum())
        assert (below["depth"] == tree["depth"][at] + 1).all()
        assert (below.index > at).all()


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_those_of_the_schema(two_threads, name):
    frame = getattr(Python(two_threads, {}), name.removeprefix("python."))
    assert frame.dtypes.astype(str).to_dict() == frames.dtypes(name)


class TestIntervals:
    def test_time_in_parts_of_the_recording(self, two_threads):
        # 5 ms of the first sample, and all of the last but 2 ms.
        intervals = Intervals(BASE + np.array([5, 40]) * MS, BASE + np.array([10, 48]) * MS)
        python = Python(two_threads, {}, intervals)
        assert row(python.functions, function="qr").self_ms == 5
        assert row(python.functions, function="<module>").self_ms == 8
        assert row(python.functions, function="load").self_ms == 2

    def test_before_and_after_the_recording_there_is_nothing(self, two_threads):
        intervals = Intervals(BASE + np.array([-20, 60]) * MS, BASE + np.array([-10, 70]) * MS)
        python = Python(two_threads, {}, intervals)
        assert python.functions.empty
        assert python.tree.empty
        assert python.top_function() is None

    def test_no_spans_at_all(self, two_threads):
        none = np.zeros(0, np.int64)
        assert Python(two_threads, {}, Intervals(none, none)).functions.empty
        assert top_function(two_threads, {}, none, none) is None

    @pytest.mark.parametrize("seed", range(5))
    def test_parts_add_up_to_all(self, two_threads, seed):
        borders = np.unique(np.random.default_rng(seed).integers(0, 50 * MS, 20))
        borders = np.concatenate([[0], borders[(borders > 0)], [50 * MS]]) + BASE
        all_of_it = Python(two_threads, {}).functions.set_index("function")["self_ms"]
        parts = [
            Python(
                two_threads, {}, Intervals(borders[i::2][: len(borders) // 2], borders[i + 1 :: 2])
            )
            for i in (0, 1)
        ]
        for part in parts:
            start, end = part.intervals.start, part.intervals.end
            part.intervals = Intervals(start[: len(end)], end)
        summed = sum(
            part.functions.set_index("function")["self_ms"].reindex(all_of_it.index).fillna(0)
            for part in parts
        )
        assert summed.tolist() == pytest.approx(all_of_it.tolist())


class TestTopFunction:
    def test_the_function_of_the_person_and_what_it_called(self, two_threads):
        assert top_function(two_threads, {"42": 3}) == TopFunction(
            "augment", "/project/train.py", 12, "numpy.linalg.qr", 0.8, 0.8
        )

    def test_in_a_part_of_the_recording(self, two_threads):
        found = top_function(
            two_threads, {"42": 3}, BASE + np.array([38]) * MS, BASE + np.array([50]) * MS
        )
        assert found is not None
        assert (found.function, found.file, found.line, found.call) == (
            "<module>",
            "Cell [3]",
            3,
            "",
        )
        assert found.share == pytest.approx(10 / 12)

    def test_libraries_alone_are_nobodys(self):
        assert top_function(samples([(1, [LIBRARY], 0, 1)]), {}) is None

    def test_time_of_libraries_that_no_code_of_the_person_called_lowers_the_share(self):
        found = top_function(samples([(1, [LIBRARY], 0, 1), (2, [MODULE], 0, 1)]), {})
        assert found is not None
        assert found.share == 0.5


def test_lines_of_cells_on_the_thread_of_the_cell(two_threads):
    assert Python(two_threads, {}).host_lines == {("42", 2): 40 * MS, ("42", 3): 10 * MS}


@pytest.mark.parametrize(
    ("path", "person", "package"),
    [
        (CELL, True, "__main__"),
        ("/project/train.py", True, "train"),
        (r"C:\me\train.py", True, "train"),
        (QR, False, "numpy"),
        ("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", False, "torch"),
        ("/v/lib/python3.11/site-packages/six.py", False, "six"),
        ("/v/lib/python3.11/json/decoder.py", False, "json"),
        ("/v/lib/python3.11/queue.py", False, "queue"),
        ("<frozen importlib._bootstrap>", False, "importlib"),
        ("<string>", False, "<string>"),
        ("<stdin>", True, "<stdin>"),
        ("/project/nbprof/capture/steps.py", False, "steps"),
    ],
)
def test_whose_code_a_file_is(path, person, package):
    assert is_person(path) == person
    assert module(path) == package


class TestProfile:
    def test_the_accessor(self, tmp_path, two_threads):
        p = profile(tmp_path, Kineto(baseTimeNanoseconds=BASE))
        p.run.capture = CaptureInfo(cells={"42": 3}, python=two_threads.packed())
        assert len(p.python.functions) == 5
        assert "Cell [3]" in set(p.python.lines["file"])
        assert "nbprof python" in repr(p.python)
        said = "`/project/train.py:12` 40.00 · 40.00; `Cell [3]:3` 10.00 · 10.00"
        assert f"Lines of your Python code, sampled (Your code ms · Total ms): {said}" in brief(p)
        assert "python" in dir(p)
        frame = p.python.functions
        frame["self_ms"] = -1.0
        assert (p.python.functions["self_ms"] >= 0).all()

    def test_a_flame_graph_has_a_box_for_each_call_inside_that_of_its_caller(
        self, tmp_path, two_threads
    ):
        p = profile(tmp_path, Kineto(baseTimeNanoseconds=BASE))
        p.run.capture = CaptureInfo(python=two_threads.packed())
        tree = p.python.tree
        data = p.python.figure().renderers[0].data_source.data
        assert sorted(np.subtract(data["right"], data["left"]).round(6)) == sorted(
            tree["total_ms"].round(6)
        )
        boxes = list(zip(data["bottom"], data["left"], data["right"], strict=True))
        for bottom, left, right in boxes:
            assert bottom == 0 or any(
                b == bottom - 1 and low <= left + 1e-9 and right <= high + 1e-9
                for b, low, high in boxes
            )

    def test_an_export_for_speedscope_has_all_time_below_its_callers(self, tmp_path, two_threads):
        p = profile(tmp_path, Kineto(baseTimeNanoseconds=BASE))
        p.run.capture = CaptureInfo(python=two_threads.packed())
        target = p.python.export(tmp_path / "a run.speedscope.json")
        written = json.loads(target.read_text("utf-8"))
        (calls,) = written["profiles"]
        frames = written["shared"]["frames"]
        assert (calls["type"], calls["unit"]) == ("sampled", "nanoseconds")
        assert calls["endValue"] == pytest.approx(sum(calls["weights"]))
        functions = p.python.functions.set_index("function")
        own, whole = dict.fromkeys(functions.index, 0.0), dict.fromkeys(functions.index, 0.0)
        for stack, weight in zip(calls["samples"], calls["weights"], strict=True):
            names = [frames[number]["name"] for number in stack]
            own[names[-1]] += weight
            for name in set(names):
                whole[name] += weight
        own, whole = ({name: ns / 1e6 for name, ns in each.items()} for each in (own, whole))
        assert own == pytest.approx(functions["self_ms"].to_dict())
        assert whole == pytest.approx(functions["total_ms"].to_dict())

    @pytest.mark.parametrize("python", [{}, {"functions": 3}])
    def test_without_samples_it_says_why(self, tmp_path, python):
        p = profile(tmp_path, Kineto(baseTimeNanoseconds=BASE))
        p.run.capture = CaptureInfo(python=python)
        assert p.python.functions.empty
        assert "--no-sampling" in repr(p.python)
        assert "python" not in dir(p)
        with pytest.raises(NbprofError, match="no Python samples"):
            p.python.figure()
        with pytest.raises(NbprofError, match="no Python samples"):
            p.python.export(tmp_path / "run.json")

    def test_without_line_times_the_time_of_lines_is_that_of_samples(self, tmp_path, two_threads):
        p = profile(tmp_path, Kineto(baseTimeNanoseconds=BASE))
        p.run.capture = CaptureInfo(cells={"42": 3}, python=two_threads.packed())
        frame = p.lines.frame
        assert list(
            zip(frame["file"], frame["line"], frame["code"], frame["host_us"], strict=True)
        ) == [
            ("Cell [3]", 2, "augment(a)", 40_000),
            ("Cell [3]", 3, "b = 2", 10_000),
        ]
        assert frame[["calls", "device_us"]].isna().all(axis=None)
        assert p.lines.unattributed["host_us"] == 0
        code = p.payload()["overview"]["code"]
        assert [column["label"] for column in code["cells"][0]["table"]["columns"]] == [
            "Line",
            "Code",
            "Host ms, sampled",
        ]
        assert "--stacks" in code["notes"][-1]

    def test_samples_outside_of_any_cell_belong_to_no_line(self, tmp_path):
        p = profile(tmp_path, Kineto(baseTimeNanoseconds=BASE))
        p.run.capture = CaptureInfo(
            python=samples([(1, [MODULE], 0, 1), (2, [LIBRARY], 0, 1)]).packed()
        )
        assert p.lines.frame["host_us"].tolist() == [10_000]
        assert p.lines.unattributed["host_us"] == 10_000

    def test_line_times_are_preferred(self, tmp_path, two_threads):
        times = LineTimes(
            {"42": "a = 1\n"}, [("42", 1)], BASE + np.array([0, 7]) * MS, np.array([1, 0], np.int32)
        )
        p = profile(tmp_path, Kineto(baseTimeNanoseconds=BASE))
        p.run.capture = CaptureInfo(lines=times.packed(), python=two_threads.packed())
        assert p.lines.frame["host_us"].tolist() == [7000]
        code = p.payload()["overview"]["code"]
        assert "Host ms" in [column["label"] for column in code["cells"][0]["table"]["columns"]]
        assert not code["notes"]

    def test_the_info_keeps_them(self, two_threads):
        info = CaptureInfo(python=two_threads.packed())
        assert CaptureInfo.from_dict(info.to_dict()).python == info.python
        assert CaptureInfo.from_dict({"python": [1]}).python == {}


def test_a_call_is_compiled_code_unless_the_thread_gave_up_the_gil_as_soon_as_it_had_to():
    stack = [(CELL, "<module>", 1, 2, "engine.get_loc")]
    taken = samples(
        [(n, stack, 0, 9) for n in range(1, 9)],
        late=np.array([-1, 0, 1.15, 1.18, 6, 0, 1.15, 1.18, 6]) * MS,
    )
    found = Python(taken, {}).use()
    # Each stands for the pause of 7.92 ms before it, and for its wait.
    assert found.python == pytest.approx((2 * 7.9175 + 1.15 + 1.18) / 40)
    assert found.library == pytest.approx(1 - found.python)
    unknown = Python(samples([(n, stack, 0, 9) for n in range(1, 9)]), {}).use()
    assert (unknown.python, unknown.library) == (0.0, 1.0)


def test_with_several_threads_another_one_may_have_had_the_gil():
    stack = [(CELL, "<module>", 1, 2, "engine.get_loc")]
    worker = [("/project/data.py", "load", 1, 3)]
    taken = samples(
        [(n, each, at, 9) for n in range(1, 6) for at, each in enumerate((stack, worker))],
        threads=("MainThread", "worker"),
        late=np.array([-1, *[1.15] * 5]) * MS,
    )
    assert Python(taken, {}).use().library == 1.0


def test_while_the_cell_waits_threads_that_work_share_the_time():
    wait = [MODULE, ("/usr/lib/python3.11/threading.py", "wait", 1, 3, "waiter.acquire")]
    load = [("/project/data.py", "load", 1, 3)]
    decode = [("/project/data.py", "decode", 8, 9, "PIL.open")]
    rows = [(n, wait, 0, 0) for n in range(1, 13)]
    rows += [(n, load, 1, 5) for n in range(1, 9)] + [(n, decode, 2, 5) for n in range(1, 5)]
    cpu = np.minimum(np.arange(13), 6) * 10
    found = Python(samples(rows, cpu, ("MainThread", "one", "two")), {}).use()
    # Six samples of work, four of them of both threads; where no core is used, the cell waits.
    assert (found.python, found.library, found.waiting) == pytest.approx((4 / 12, 2 / 12, 0.5))
    assert found.top_waiting.call == "augment"


def test_few_samples_say_nothing_and_those_from_outside_the_time_do_not_count():
    imports = [("/lib/framework.py", "load", 1, 2)]
    stack = [(CELL, "<module>", 1, 2)]
    rows = [(n, imports, 0, 9) for n in range(1, 30)] + [(n, stack, 0, 9) for n in range(30, 34)]
    taken = samples(rows)
    loop = Intervals.union(taken.at[29:30] + 1, taken.at[-1:] + 1)
    assert Python(taken, {}, loop).use() is None
    more = samples([*rows, *((n, stack, 0, 9) for n in range(34, 36))])
    use = Python(more, {}, Intervals.union(more.at[29:30] + 1, more.at[-1:] + 1)).use()
    assert (use.samples, use.python) == (6, 1.0)


@pytest.mark.parametrize(("late", "python"), [(100, 1.0), (40, None)])
def test_few_samples_say_enough_where_code_that_held_the_gil_delayed_them(late, python):
    stack = [(CELL, "<module>", 1, 2, "json.dumps")]
    moments = [0, 101, 202, 303]
    taken = samples(
        [(n, stack, 0, 100) for n in range(1, 4)],
        at=moments,
        cpu=np.array(moments),
        late=np.array([-1, late, late, late]) * MS,
    )
    # Of pauses of 1 ms, or of 61 in which nothing is known.
    loop = Intervals(taken.at[1:] - 100 * MS, taken.at[1:] + 1)
    use = Python(taken, {}, loop).use()
    assert (use.python + use.library if use is not None else None) == python


def test_samples_in_ops_say_nothing_of_the_time_before_them():
    """Few samples are in the time without ops, and most of it was before those in ops."""
    asleep = [(CELL, "<module>", 1, 2, "time.sleep")]
    op = [(CELL, "<module>", 1, 3, "torch.mm")]
    taken = samples([(n, op if n % 2 else asleep, 0, 0) for n in range(1, 13)])
    inside = taken.at[2::2]
    intervals = Intervals(inside - 2 * MS, inside + 8 * MS)
    assert Python(taken, {}, intervals).use().waiting == 1.0
    few = Intervals(inside[:4] - 2 * MS, inside[:4] + 8 * MS)
    assert Python(taken, {}, few).use() is None


def test_a_thread_that_sleeps_waits_whatever_other_threads_use():
    stack = [(CELL, "<module>", 1, 2, "time.sleep")]
    found = Python(samples([(n, stack, 0, 0) for n in range(1, 6)]), {}).use()
    assert found.waiting == 1.0
    assert found.top_waiting.call == "time.sleep"


@pytest.mark.parametrize("module", ["selectors", "subprocess", "threading"])
def test_a_thread_that_waits_for_another_uses_no_core(module):
    """Of the CPU time since the sample before, other code used all."""
    wait = (f"/usr/lib/python3.11/{module}.py", "wait", 1, 3, "self._wait")
    found = Python(samples([(n, [MODULE, wait], 0, 9) for n in range(1, 9)]), {}).use()
    assert (found.waiting, found.blocked, found.waits_by_itself) == (1.0, 1.0, True)


def test_of_intervals_that_are_shorter_than_the_time_between_samples_those_count_that_are_in_them():
    """Every other sample is outside of the intervals, in another call: the time since the one
    before would count for it.
    """
    asleep, at_work = (
        [(CELL, "<module>", 1, 2, "time.sleep")],
        [(CELL, "<module>", 1, 3, "torch.mm")],
    )
    taken = samples([(n, asleep if n % 2 else at_work, 0, 9) for n in range(1, 25)])
    odd = BASE + np.arange(1, 25, 2) * 10 * MS
    found = Python(taken, {}, Intervals(odd - 5 * MS, odd + 1 * MS)).use()
    assert found.waiting == 1.0


def test_samples_that_waited_for_the_gil_stand_for_that_time_as_well():
    """Code that holds the GIL for 95 ms is sampled at its end, sleep of 100 ms once in 10 ms."""
    decode = [(CELL, "<module>", 1, 2, "json.loads")]
    asleep = [(CELL, "<module>", 1, 3, "time.sleep")]
    rows, at, late, moment = [], [0], [-1], 0
    for _ in range(4):
        for stack, waited in [(decode, 95), *[(asleep, 0)] * 10]:
            moment += 10 + waited
            at.append(moment)
            late.append(waited)
            rows.append((len(at) - 1, stack, 0, waited))
    taken = samples(rows, at=at, cpu=np.cumsum(np.maximum(late, 0)), late=np.array(late) * MS)
    found = Python(taken, {}).use()
    assert found.waiting == pytest.approx(100 / 205, abs=0.001)
    assert found.top_waiting.call == "time.sleep"
    # Of a wait that began before the interval, the part in it counts.
    ends = taken.at[1::11]
    part = Intervals(ends - 5 * MS, ends + 100 * MS + 1)
    assert Python(taken, {}, part).use().waiting == pytest.approx(100 / 115, abs=0.001)


def test_the_function_that_waits_most_is_that_of_most_samples():
    """Of a pause of 90 ms in ops and 10 ms in `load`, only the sample's moment says anything."""
    load = [("/project/train.py", "load", 1, 2, "time.sleep")]
    log = [("/project/train.py", "log", 5, 6, "time.sleep")]
    at = np.cumsum([0, *[90, 10, 10] * 8])
    rows = [(n, load if n % 3 == 1 else log, 0, 0) for n in range(1, len(at))]
    taken = samples(rows, at=at, cpu=at * 0)
    loaded = taken.at[1::3]
    found = Python(taken, {}, Intervals(loaded - 40 * MS, loaded + 20 * MS + 1)).use()
    assert found.top_waiting.function == "log"
    assert found.top_waiting.share == pytest.approx(2 / 3)


def test_a_line_with_several_calls_has_the_share_of_the_one_that_is_named():
    rows = [
        (n, [(CELL, "<module>", 1, 2, "pickle.loads" if n % 3 else "pickle.dumps")], 0, 10)
        for n in range(1, 13)
    ]
    found = Python(samples(rows), {}).top_function()
    assert (found.call, found.share) == ("pickle.loads", 1.0)
    assert found.line_share == pytest.approx(2 / 3)


def test_code_of_a_library_is_told_from_a_method_that_may_be_a_frameworks():
    """A method of an array is called by the name of a variable."""

    def use(*calls):
        rows = [
            (moment, [(CELL, "<module>", 1, 2 + i, call)], 0, 10)
            for i, call in enumerate(calls)
            for moment in range(10 * i + 1, 10 * i + 11)
        ]
        return Python(samples(rows), {"42": 3}).use()

    found = use("numpy.linalg.qr", "y.t")
    assert (found.library, found.named) == (1.0, 0.5)
    assert (found.top_named.call, found.top_named.line) == ("numpy.linalg.qr", 2)
    assert use("y.t").named == 0.0
    assert use("y.t").top_named is None
    # Code in the files of a library, whoever calls it.
    inside = samples([(i, [MODULE, AUGMENT, LIBRARY], 0, 10) for i in range(1, 11)])
    assert Python(inside, {}).use().named == 1.0
