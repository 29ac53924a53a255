"""The loops of a recorded cell, in a real kernel: however it is recorded, and whatever runs it."""

from __future__ import annotations

import pytest

from tests.support.tracebacks import frames

LOOP = "for i in range(4):\n    y = tf.ones(8) + i\n    time.sleep(0.005)"
READ = (
    "from nbprof.core.loop_times import LoopTimes, choose\n"
    "def loops(p):\n"
    "    times = LoopTimes.unpacked(p.run.capture.loops)\n"
    "    return [(loop.line, loop.text, loop.count, loop.number) for loop in times.loops] if times else []\n"
)


@pytest.fixture(scope="module")
def ready(kernel):
    assert kernel.run(f"import time\n{READ}").status == "ok"
    return kernel


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        (f"%%nbprof -q\nx = 1\n{LOOP}", 3),
        (f"%%nbprof -q\n%%time\n{LOOP}", 3),
        (f"%%time\n%%nbprof -q\n{LOOP}", 3),
        (
            f"x = 1\nwith nbprof.profile():\n    {LOOP}".replace("\n    y", "\n        y").replace(
                "\n    time", "\n        time"
            ),
            3,
        ),
        (f"nbprof.start()\n{LOOP}\nnbprof.stop()", 2),
    ],
    ids=["cell", "above time", "below time", "block", "start"],
)
def test_each_way_to_record_sees_the_loop(ready, cell, line):
    result = ready.run(cell)
    assert result.status == "ok", result.traceback
    assert ready.ask("loops(nbprof.last)") == f"[({line}, 'for i in range(4):', 4, 0)]"


def test_an_asynchronous_loop(ready):
    ready.run(
        "import asyncio\nasync def slow():\n    for i in range(4):\n        await asyncio.sleep(0.01)\n        yield i"
    )
    result = ready.run("%%nbprof -q -o p\nasync for i in slow():\n    time.sleep(0.005)\nprint(i)")
    assert result.status == "ok", result.traceback
    assert (
        ready.ask("[loop for loop in loops(p) if loop[0] == 2]")
        == "[(2, 'async for i in slow():', 4, 0)]"
    )
    assert ready.ask("len(p.steps.frame)") == "4"
    assert ready.ask("bool((p.steps.frame['input_ms'] > 9).all())") == "True"


def test_a_function_of_an_earlier_cell(ready):
    ready.run(
        f"def train():\n    {LOOP}".replace("\n    y", "\n        y").replace(
            "\n    time", "\n        time"
        )
    )
    result = ready.run("%%nbprof -q -o p\nfor epoch in range(2):\n    train()")
    assert result.status == "ok", result.traceback
    found = ready.ask("[(line, text, count, number > 0) for line, text, count, number in loops(p)]")
    assert found == "[(2, 'for epoch in range(2):', 2, False), (2, 'for i in range(4):', 8, True)]"
    assert "nbprof" not in ready.ask("train.__code__.co_names")


def test_cells_that_are_not_recorded_are_left_alone(ready):
    ready.run("def plain():\n    for i in range(3):\n        pass")
    assert ready.ask("plain.__code__.co_names") == "('range',)"
    assert ready.ask("[name for name in globals() if 'nbprof_' in name]") == "[]"


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(3):\n    1 / (1 - i)",
        "def gen():\n    yield 1\n    raise ValueError('bad')\nfor x in gen():\n    pass",
        "for x in 3:\n    pass",
        "while tf.ones(1):\n    undefined",
        "a, b = 0, [1 / j for j in range(2)]",
    ],
)
def test_an_error_in_a_loop_is_shown_as_ever(ready, body):
    plain, recorded = ready.run(f"x = tf.ones(3)\n{body}"), ready.run(f"%%nbprof -q\n{body}")
    assert (recorded.status, recorded.error, recorded.message) == (
        plain.status,
        plain.error,
        plain.message,
    )
    assert frames(recorded.traceback, ready.folder) == frames(plain.traceback, ready.folder)


def test_the_magics_are_unloaded_with_their_transformer(ready):
    count = (
        "len([t for t in get_ipython().ast_transformers if type(t).__name__ == 'LoopTransformer'])"
    )
    assert ready.ask(count) == "1"
    assert ready.run("%unload_ext nbprof").status == "ok"
    assert ready.ask(count) == "0"
    assert ready.run("%load_ext nbprof").status == "ok"
    assert ready.ask(count) == "1"


def test_a_loop_with_top_level_await(ready):
    result = ready.run(
        "%%nbprof -q -o p\nimport asyncio\nx = tf.ones(3)\nfor i in range(4):\n    await asyncio.sleep(0.002)"
    )
    assert result.status == "ok", result.traceback
    assert ready.ask("loops(p)") == "[(4, 'for i in range(4):', 4, 0)]"


SHORT = "%%nbprof -q -o p --backend python\nfor i in range(12):\n    time.sleep(0.0002)\n    if i == 11:\n        {}"
COUNTED = (
    "[(loop.text, loop.count) for loop in [choose(LoopTimes.unpacked(p.run.capture.loops)).loop]]"
)


def test_the_traceback_of_a_short_loop_is_no_part_of_the_recording(ready):
    result = ready.run(SHORT.format("raise ValueError('bad batch')"))
    assert (result.status, result.error, result.message) == ("error", "ValueError", "bad batch")
    assert ready.ask(COUNTED) == "[('for i in range(12):', 11)]"
    assert ready.ask("p.overview['unit']['kind'], len(p.steps.frame)") == "('iteration', 11)"
    assert ready.ask("'showtraceback' in vars(get_ipython())") == "False"
    assert "IPython" not in ready.ask("' '.join(p.python.functions['file'].astype(str))")


def test_an_exception_of_a_cell_that_the_cell_runs_does_not_end_the_recording(ready):
    result = ready.run(
        "%%nbprof -q -o p --backend python\nget_ipython().run_cell('1/0')\nfor i in range(12):\n    time.sleep(0.003)"
    )
    assert result.status == "ok", result.traceback
    assert ready.ask("loops(p)") == "[(3, 'for i in range(12):', 12, 0)]"
    assert ready.ask("'showtraceback' in vars(get_ipython())") == "False"


def test_who_shows_tracebacks_in_another_way_keeps_doing_so(ready):
    ready.run(
        "ip, seen = get_ipython(), []\nip.showtraceback = lambda *args, **kwargs: seen.append(kwargs)\nother = ip.showtraceback"
    )
    ready.run(SHORT.format("raise ValueError"))
    assert (
        ready.ask("len(seen), ip.showtraceback is other, p.overview['unit']['kind']")
        == "(1, True, 'iteration')"
    )
    ready.run("del ip.showtraceback")
