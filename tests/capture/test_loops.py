"""What is recorded of the loops of a cell, and in which functions."""

from __future__ import annotations

import linecache
import os
import threading
from types import SimpleNamespace

import pytest

from nbprof.capture import loops
from nbprof.core.loop_times import COMPREHENSION, FOR, WHILE, choose
from tests.capture.loop_cells import counts, loop_at, path_of, run_plain, run_recorded

WORK = "import time\ndef work(ms=1):\n    time.sleep(ms / 1000)\n"


@pytest.fixture
def names(monkeypatch):
    """A notebook whose first cell defines `work`."""
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    names: dict = {}
    run_plain("1", WORK, names)
    return names


def test_the_iterations_of_a_for_loop(names):
    times = run_recorded("2", "for i in range(5):\n    work(2)\n", names)
    loop = loop_at(times, 1)
    assert (loop.cell, loop.number, loop.text, loop.kind, loop.count) == (
        "2",
        0,
        "for i in range(5):",
        FOR,
        5,
    )
    found = choose(times)
    assert len(found) == 5
    assert ((found.end_ns - found.start_ns) >= 2_000_000).all()
    # One begins where the one before it ended.
    assert found.start_ns[1:].tolist() == found.end_ns[:-1].tolist()
    assert times.begin_ns <= found.start_ns[0]
    assert found.end_ns[-1] <= times.end_ns
    assert abs(times.end_ns / 1e9 - __import__("time").time()) < 60


def test_the_wait_for_an_item_is_known(names):
    text = "def load():\n    for i in range(4):\n        work(3)\n        yield i\nfor x in load():\n    work(1)\n"
    times = run_recorded("2", text, names)
    found = choose(times)
    assert (found.line, found.count) == (5, 4)
    assert ((found.item_ns - found.start_ns) >= 3_000_000).all()
    assert loop_at(times, 5).wait_ns == (found.item_ns - found.start_ns).sum()
    # A loop that a generator pauses in is a part of the loop that asks for its items.
    assert list(counts(times)) == [5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for i in range(9):\n    if i == 4:\n        break\n", 5),
        ("for i in range(9):\n    if i % 2:\n        continue\n", 9),
        (
            "for i in range(9):\n    try:\n        if i == 4:\n            break\n    finally:\n        pass\n",
            5,
        ),
        (
            "for i in range(9):\n    with open('/dev/null') as f:\n        if i == 4:\n            break\n",
            5,
        ),
        ("for i in []:\n    pass\n", 0),
        ("for i in [1]:\n    pass\nelse:\n    i = 3\n", 1),
        ("i = 0\nwhile i < 6:\n    i += 1\n".replace("i = 0\n", ""), 6),
        ("while i < 6:\n    i += 1\n    if i == 3:\n        break\n", 3),
        ("while True:\n    i += 1\n    if i == 3:\n        break\n", 3),
        ("while i < 6:\n    i += 1\nelse:\n    i = 20\n", 6),
        ("while i < 6:\n    i += 1\n    continue\n", 6),
        ("squares = [j * j for j in range(7) if j % 2]\n", 7),
        ("total = sum(j for j in range(7))\n", 7),
        ("found = {j: 1 for j in range(7)}, 1\n", 7),
    ],
)
def test_iterations_are_counted_exactly(names, text, expected):
    names["i"] = 0
    assert counts(run_recorded("2", text, names)).get(1, 0) == expected


@pytest.mark.parametrize("many", [1000, 50_000])
@pytest.mark.parametrize(
    "items", ["range({})", "list(range({}))", "(j for j in range({}))", "map(str, range({}))"]
)
def test_iterations_that_are_handed_out_at_once_are_counted_exactly(names, items, many):
    everything = run_recorded("2", f"for i in {items.format(many)}:\n    pass\n", names)
    assert counts(everything) == {1: many}
    left = run_recorded(
        "2",
        f"n = 0\nfor i in {items.format(many)}:\n    n += 1\n    if n == {many - 7}:\n        break\n",
        names,
    )
    assert counts(left) == {2: many - 7}
    text = f"n = 0\ntry:\n    for i in {items.format(many)}:\n        n += 1\n        assert n != {many - 7}\nexcept AssertionError:\n    pass\n"
    assert counts(run_recorded("2", text, names)) == {3: many - 8}
    assert loop_at(everything, 1).total_ns > 0


@pytest.mark.parametrize(
    "text",
    [
        "[a + b for a in xs for b in ys if b]",
        "{(a, b): 1 for a in xs for b in ys}",
        "sum(b for a in xs for b in ys)",
    ],
)
def test_each_for_of_a_comprehension_is_a_loop(names, text):
    names |= {"xs": [0, 1, 2], "ys": range(1, 9)}
    times = run_recorded("2", f"found = {text}\n", names)
    assert [(loop.count, loop.line) for loop in times.loops] == [(3, 1), (24, 1)]
    _, inner = times.loops
    assert inner.text == "for b in ys"
    assert inner.inside == {0: inner.total_ns}
    assert names["found"] == eval(text, dict(names))


@pytest.mark.parametrize("method", ["join", "wait"])
def test_a_loop_that_waits_for_threads_is_no_loop_of_work(names, method):
    names["started"] = [SimpleNamespace(join=lambda: None, wait=lambda: None, result=lambda: 1)] * 3
    assert counts(run_recorded("2", f"for each in started:\n    each.{method}()\n", names)) == {}
    assert counts(run_recorded("2", "for each in started:\n    each.result()\n", names)) == {1: 3}
    assert counts(
        run_recorded("2", f"for each in started:\n    each.{method}()\n    n = 1\n", names)
    ) == {1: 3}


def test_iterations_that_get_long_are_timed_again(names):
    times = run_recorded("2", "for i in range(1200):\n    if i > 600:\n        work(0.1)\n", names)
    assert counts(times) == {1: 1200}
    rows = times.rows(0)
    # How many depends on what timing one costs, which is more on a busy machine.
    assert ((times.ended - times.asked)[rows] > 100_000).sum() > 100


def test_an_iteration_that_fails_is_none(names):
    with pytest.raises(ZeroDivisionError):
        run_recorded("2", "for i in range(5):\n    1 // (3 - i)\n", names)
    assert counts(run_recorded.taken) == {1: 3}
    with pytest.raises(ZeroDivisionError):
        run_recorded("2", "for i in (1 // (3 - j) for j in range(9)):\n    pass\n", names)
    assert counts(run_recorded.taken) == {1: 3}


def test_nested_loops_know_each_other(names):
    text = "for epoch in range(2):\n    for batch in range(6):\n        work()\n    while True:\n        break\n"
    times = run_recorded("2", text, names)
    assert counts(times) == {1: 2, 2: 12, 4: 2}
    outer, inner = loop_at(times, 1), loop_at(times, 2)
    index = times.loops.index(outer)
    assert inner.inside == {index: inner.total_ns}
    assert inner.total_ns <= outer.total_ns
    assert choose(times).line == 2


def test_the_head_stands_as_it_was_written(names):
    text = "for  x,y  in zip( [1], 'a' ) : pass\nwhile( False ): pass\nz = [ j+1 for j in (1,) ]\n"
    times = run_recorded("2", text, names)
    assert [loop_at(times, line).text for line in (1, 2, 3)] == [
        "for x,y in zip( [1], 'a' ):",
        "while False:",
        "[ j+1 for j in (1,) ]",
    ]
    assert [loop_at(times, line).kind for line in (1, 2, 3)] == [FOR, WHILE, COMPREHENSION]


def test_a_loop_of_nbprof_steps_marks_its_iterations_itself(names):
    from nbprof.capture import steps

    names["nbprof"] = names["again"] = steps
    run_plain("1", "marked = nbprof.steps\n", names)
    text = "for i in nbprof.steps(range(3)):\n    pass\nfor i in enumerate(nbprof.steps([1])):\n    pass\nfor i in marked([1, 2]):\n    pass\n"
    assert run_recorded("2", text, names) is None


def test_a_loop_that_runs_inside_itself_counts_once(names):
    text = "def walk(n):\n    for i in range(2):\n        work(0.1)\n        if n:\n            walk(n - 1)\nwalk(3)\n"
    loop = loop_at(run_recorded("2", text, names), 2)
    assert (loop.count, loop.overlaps) == (2, False)


def test_tasks_that_run_a_loop_at_the_same_time_make_no_unit(names):
    text = (
        "import asyncio\nasync def walk():\n    for i in range(4):\n        await asyncio.sleep(0.001)\n"
        "async def main():\n    await asyncio.gather(walk(), walk())\nasyncio.run(main())\n"
    )
    times = run_recorded("2", text, names)
    assert loop_at(times, 3).overlaps
    assert choose(times) is None


def test_a_loop_that_awaits_is_one(names):
    text = (
        "import asyncio\nasync def main():\n    for i in range(4):\n        for j in range(2):\n            await asyncio.sleep(0.001)\n"
        "asyncio.run(main())\n"
    )
    times = run_recorded("2", text, names)
    assert counts(times) == {3: 4, 4: 8}
    assert loop_at(times, 4).inside


def test_threads_are_told_apart(names):
    names["threading"] = threading
    text = (
        "def walk():\n    for i in range(4):\n        work()\n"
        "ts = [threading.Thread(target=lambda: walk()) for _ in range(2)]\n"
        "for t in ts: t.start()\nfor t in ts: t.join()\nwalk()\n"
    )
    times = run_recorded("2", text, names)
    assert all(loop.thread for loop in times.loops)
    # A function that a lambda calls may be compiled with it.
    assert 2 not in counts(times)


LOOP = "def train(n=4):\n    for i in range(n):\n        work()\n    return i\n"


def test_functions_of_the_cell_and_of_earlier_cells(names):
    run_plain("3", LOOP, names)
    code = names["train"].__code__
    seen = []
    times = run_recorded(
        "2",
        "for epoch in range(3):\n    train()\n",
        names,
        lambda _: seen.append(names["train"].__code__),
    )
    loop = next(loop for loop in times.loops if loop.cell == "3")
    assert (loop.line, loop.count, loop.number) == (2, 12, 3)
    assert choose(times).how.startswith(
        "Steps are the 12 iterations of the loop in line 2 of cell [3], `for i in range(n):`"
    )
    assert seen[0] is not code
    assert names["train"].__code__ is code
    inside = run_recorded(
        "2", LOOP + "train()\ntrain.__code__\n".replace("train.__code__\n", ""), names
    )
    assert counts(inside) == {2: 4}
    assert loops.LOOP not in names["train"].__code__.co_names


def test_a_function_is_put_back_where_the_cell_fails(names):
    run_plain("3", LOOP, names)
    code = names["train"].__code__
    with pytest.raises(TypeError):
        run_recorded("2", "train('x')\n", names)
    assert names["train"].__code__ is code
    assert not loops.active()


@pytest.mark.parametrize(
    "text",
    [
        "fast = compiled(train)\nfast()\ntrain()\n",
        "train()\nlist(map(train, [1]))\n",
        "@compiled\ndef step():\n    train()\nstep()\ntrain()\n",
        "class Net(Base):\n    def forward(self):\n        return train()\nNet().forward()\ntrain()\n",
        "other = [train]\ntrain()\n",
        "(lambda: train())()\ntrain()\n",
        "from concurrent.futures import ProcessPoolExecutor\ntrain()\n",
    ],
)
def test_what_something_else_may_compile_is_left_alone(names, text):
    names["compiled"], names["Base"] = lambda function: function, type("Base", (), {})
    run_plain("3", LOOP, names)
    code = names["train"].__code__
    seen = []
    times = run_recorded("2", text, names, lambda _: seen.append(names["train"].__code__))
    assert seen == [code]
    assert not times or not [loop for loop in times.loops if loop.cell == "3"]
    # And where the cell itself defines it.
    times = run_recorded("2", LOOP + text, names)
    assert 2 not in counts(times)


@pytest.mark.parametrize(
    "before",
    [
        "fast = compiled(train)\n",
        "held = [train]\n",
        "@compiled\ndef step():\n    train()\n",
        "class Net(Base):\n    def forward(self):\n        train()\n",
    ],
)
def test_what_an_earlier_cell_may_have_compiled_is_left_alone(names, before):
    names["compiled"], names["Base"] = lambda function: function, type("Base", (), {})
    run_plain("3", LOOP, names)
    run_plain("4", before, names)
    code = names["train"].__code__
    seen = []
    run_recorded("2", "train()\n", names, lambda _: seen.append(names["train"].__code__))
    assert seen == [code]


def test_what_something_refers_to_is_left_alone(names):
    run_plain("3", LOOP, names)
    holder = [names["train"]]
    assert run_recorded("2", "train()\n", names) is None
    assert holder


def test_decorated_functions_are_left_alone(names):
    names["same"] = lambda function: function
    run_plain("3", "@same\n" + LOOP, names)
    assert run_recorded("2", "train()\n", names) is None
    assert run_recorded("2", "@same\n" + LOOP + "train()\n", names) is None


TRAINER = (
    "class Trainer:\n    def fit(self, n):\n        for i in range(n):\n            self.step(i)\n"
    "    def step(self, i):\n        work()\n"
    "    def __call__(self):\n        for i in range(3):\n            work()\n"
)


def test_methods_of_plain_classes(names):
    times = run_recorded("2", TRAINER + "t = Trainer()\nt.fit(4)\nt()\n", names)
    # What is called implicitly may be called by whoever has the object.
    assert counts(times) == {3: 4}
    run_plain("3", TRAINER + "t = Trainer()\n", names)
    code = names["Trainer"].fit.__code__
    later = run_recorded("2", "t.fit(5)\n", names)
    assert [(loop.cell, loop.line, loop.count) for loop in later.loops] == [("3", 3, 5)]
    assert names["Trainer"].fit.__code__ is code


def test_classes_with_bases_are_left_alone(names):
    names["Base"] = type("Base", (), {})
    text = TRAINER.replace("class Trainer:", "class Trainer(Base):")
    assert run_recorded("2", text + "Trainer().fit(3)\n", names) is None
    derived = (
        TRAINER
        + "class Mine(Trainer):\n    def go(self):\n        for i in range(2):\n            work()\nMine().go()\n"
    )
    assert counts(run_recorded("2", derived, names)) == {12: 2}


def test_functions_that_functions_call(names):
    run_plain("3", LOOP, names)
    run_plain("4", "def main():\n    train(3)\n", names)
    times = run_recorded("2", "main()\n", names)
    assert [(loop.cell, loop.count) for loop in times.loops] == [("3", 3)]


def test_a_forked_process_records_nothing(names):
    names["os"], names["loops"] = os, loops
    text = (
        "pid = os.fork()\n"
        "if not pid:\n"
        "    for i in range(3):\n        pass\n"
        "    os._exit(0 if not loops.active() else 1)\n"
        "_, status = os.waitpid(pid, 0)\n"
        "for i in range(2):\n    pass\n"
    )
    times = run_recorded("2", text, names)
    assert names["status"] == 0
    assert counts(times) == {7: 2}


def test_only_iterations_of_the_window_count(names):
    names["begin"] = lambda: loops._recorder.begin_window()
    times = run_recorded(
        "2", "for i in range(6):\n    if i == 2:\n        begin()\n    work()\n", names
    )
    assert counts(times) == {1: 3}
    assert (times.asked >= times.begin_ns).all()
    tiny = run_recorded("2", "for i in range(6000):\n    if i == 2000:\n        begin()\n", names)
    assert counts(tiny) == {1: 3999}


def test_a_loop_that_is_running_when_the_recording_ends(names):
    names["loops"], names["seen"] = loops, []
    text = "for i in range(6):\n    work()\n    if i == 3:\n        seen.append(loops._recorder.snapshot().times())\n        loops._recorder.stop()\n"
    run_recorded("2", text, names)
    assert names["i"] == 5
    (times,) = names["seen"]
    assert counts(times) == {1: 3}
    assert choose(times).count == 3


def test_short_loops_that_are_entered_often_are_not_followed(names):
    times = run_recorded("2", "for i in range(200):\n    for j in range(3):\n        pass\n", names)
    assert counts(times) == {1: 200, 2: None}


def test_code_runs_after_the_recording_too(names):
    run_recorded("2", "def gen():\n    yield from [j for j in range(3)]\nrest = gen()\n", names)
    assert list(names["rest"]) == [0, 1, 2]
    assert path_of("2") == names["gen"].__code__.co_filename
