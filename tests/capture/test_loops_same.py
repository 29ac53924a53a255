"""A program behaves in a recording as without one, whatever its loops do."""

from __future__ import annotations

import linecache
import sys
import traceback

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbprof.capture import loops
from tests.capture.loop_cells import counts, path_of, run_plain, run_recorded

HELPERS = """
class Boom(Exception):
    pass
class Noisy:
    def __init__(self, name, n, fails):
        self.name, self.n, self.fails, self.i = name, n, fails, 0
        log.append(("made", name))
    def __iter__(self):
        self.i = 0
        log.append(("iter", self.name))
        return self
    def __next__(self):
        log.append(("next", self.name, self.i))
        self.i += 1
        if self.i == self.fails:
            raise Boom(self.name)
        if self.i > self.n:
            raise StopIteration
        return Item(self.name, self.i)
    def __del__(self):
        log.append(("gone", self.name))
class Item:
    def __init__(self, *what):
        self.what = what
    def __del__(self):
        log.append(("dropped", *self.what))
    def __eq__(self, other):
        log.append("compared")
        return True
    __hash__ = None
def gen(name, n):
    try:
        for i in range(n):
            got = yield i
            log.append(("sent", got))
    except BaseException as error:
        log.append(("thrown", type(error).__name__))
        raise
    finally:
        log.append(("closed", name))
class OnlyNext:
    def __init__(self, n):
        self.n = n
    def __next__(self):
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return self.n
class Odd:
    def __iter__(self):
        return OnlyNext(3)
class Bad:
    def __iter__(self):
        raise Boom("iter")
class Worse:
    def __iter__(self):
        return 3
"""

names = st.sampled_from("abcdef")
small = st.integers(0, 6)


@st.composite
def iterables(draw, depth=1):
    kind = draw(st.integers(0, 13))
    n = draw(small)
    name = draw(names)
    if kind <= 2:
        return f"range({n})"
    if kind == 3:
        return f"Noisy({name!r}, {n}, {draw(small)})"
    if kind == 4:
        return f"gen({name!r}, {n})"
    if kind == 5:
        return f"[Item({name!r}, i) for i in range({n})]"
    if kind == 6 and depth:
        return f"enumerate({draw(iterables(0))})"
    if kind == 7 and depth:
        return f"zip({draw(iterables(0))}, {draw(iterables(0))})"
    if kind == 8:
        return f"{{i: 1 for i in range({n})}}"
    if kind == 9:
        return f"'{'x' * n}'"
    if kind == 10:
        return draw(st.sampled_from(["3", "None", "Bad()", "Worse()", "Odd()", "missing"]))
    if kind == 11:
        return f"(log.append(('g', i)) or i for i in range({n}))"
    if kind == 12:
        return f"iter(Noisy({name!r}, {n}, 0))"
    return f"map(lambda i: 1 // ({draw(small)} - i), range({n}))"


def indented(lines):
    return [f"    {line}" for line in lines]


@st.composite
def blocks(draw, depth, in_loop, in_function):
    found = []
    for _ in range(draw(st.integers(1, 3))):
        found += draw(statements(depth, in_loop, in_function))
    return found


@st.composite
def statements(draw, depth, in_loop, in_function):
    name = draw(names)
    kind = draw(st.integers(0, 17 if depth else 7))
    if kind <= 1:
        return [f"log.append(({name!r}, sorted(k for k in locals() if k in 'abcdefxyi')))"]
    if kind == 2:
        return [f"{name} = {draw(small)}"]
    if kind == 3 and in_loop:
        return [
            f"if len(log) % {draw(st.integers(1, 5))} == 0:",
            f"    {draw(st.sampled_from(['break', 'continue']))}",
        ]
    if kind == 4:
        return [f"if len(log) % {draw(st.integers(2, 7))} == 0:", f"    raise Boom({name!r})"]
    if kind == 5 and in_function:
        return [f"if len(log) % {draw(st.integers(2, 5))} == 0:", f"    return {name!r}"]
    if kind == 6:
        return [f"log.append([j for j in {draw(iterables())} if len(log) % 3 or True][:2] and 1)"]
    if kind == 7:
        many = draw(st.sampled_from(["sum", "list", "max", "any"]))
        if draw(st.booleans()):
            return [f"log.append({many}(map(lambda j: 6 // (len(log) % 5), {draw(iterables())})))"]
        return [f"log.append({many}(1 for j in {draw(iterables())}))"]
    if kind <= 12:
        target = draw(
            st.sampled_from(["x", "y", "i", "(x, y)", "x, *y", "xs[0]"])
            if draw(st.booleans())
            else st.just("x")
        )
        head = f"for {target} in {draw(iterables())}:"
    elif kind <= 14:
        head = (
            f"while len(log) % {draw(st.integers(2, 9))}:" if draw(st.booleans()) else "while True:"
        )
        body = indented(
            [
                "log.append('turn')",
                "if len(log) > 300:",
                "    raise Boom('long')",
                *draw(blocks(depth - 1, True, in_function)),
            ]
        )
        return [head, *body, *draw(elses(depth, in_loop, in_function))]
    elif kind == 15:
        body = draw(blocks(depth - 1, in_loop, in_function))
        handler = draw(blocks(0, in_loop, in_function))
        if draw(st.booleans()):
            return [
                "try:",
                *indented(body),
                "except (Boom, ZeroDivisionError) as error:",
                *indented([f"log.append(repr({name!r}))", *handler]),
            ]
        return ["try:", *indented(body), "finally:", f"    log.append({name!r})"]
    elif kind == 16:
        head = f"def f{name}(a=1):"
        body = draw(blocks(depth - 1, False, True))
        call = f"log.append(('called', f{name}()))"
        if draw(st.booleans()):
            body = [*body, "yield a", *draw(blocks(depth - 1, False, True))]
            call = f"for x in f{name}():\n    log.append(('from', 1))".split("\n")
            return [head, *indented(body), *call]
        return [head, *indented(body), call]
    else:
        head = f"with open('/dev/null') as {name}:"
    looping = head.startswith("for")
    body = draw(blocks(depth - 1, in_loop or looping, in_function))
    if looping:
        return [
            head,
            *indented(["log.append('in')", *body]),
            *draw(elses(depth, in_loop, in_function)),
        ]
    return [head, *indented(body)]


@st.composite
def elses(draw, depth, in_loop, in_function):
    if draw(st.integers(0, 3)):
        return []
    return ["else:", *indented(draw(blocks(depth - 1, in_loop, in_function)))]


def outcome(run, text):
    """What a program logs, raises, and where; what it leaves."""
    log: list = []
    space = {"log": log, "xs": [0], "__name__": "__main__"}
    exec(HELPERS, space)
    before = set(space)
    trace = error = None
    try:
        run("7", text, space)
    except Exception as raised:
        frames = [
            frame
            for frame in traceback.extract_tb(raised.__traceback__)
            if frame.filename == path_of("7")
        ]
        helpers = [
            frame.name
            for frame in traceback.extract_tb(raised.__traceback__)
            if frame.filename == "<string>"
        ]
        trace = [(frame.lineno, frame.name, frame.line) for frame in frames], helpers
        error = type(raised).__name__, str(raised)
        log.append("ended")
    log.append("end")
    left = sorted(set(space) - before)
    functions = {name: space[name].__code__ for name in left if hasattr(space[name], "__code__")}
    return list(log), error, trace, left, {name: code.co_code for name, code in functions.items()}


@pytest.mark.parametrize(
    ("some", "short", "runs"), [(128, 50_000, 16), (2, 10**12, 16), (1, 10**12, 1), (3, 0, 1)]
)
def test_random_programs(monkeypatch, some, short, runs):
    monkeypatch.setattr(loops, "_SAMPLE_SIZE", some)
    monkeypatch.setattr(loops, "_SHORT_NS", short)
    monkeypatch.setattr(loops, "_SHORT_RUNS", runs)
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(blocks(3, False, False))
    def holds(lines):
        text = "\n".join(lines) + "\n"
        try:
            compile(text, "cell", "exec")
        except SyntaxError:
            return
        plain, recorded = outcome(run_plain, text), outcome(run_recorded, text)
        assert recorded == plain

    holds()


def test_random_counts(monkeypatch):
    # Loops that are too short to be worth it are not followed.
    monkeypatch.setattr(loops, "_SHORT_RUNS", 10**9)
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    kinds = st.sampled_from(
        ["range({})", "iter(list(range({})))", "(j for j in range({}))", "Own({})"]
    )
    alone = st.lists(st.tuples(kinds, st.integers(0, 2000)), min_size=1, max_size=1)
    nested = st.lists(st.tuples(kinds, st.integers(0, 12)), min_size=2, max_size=3)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        alone | nested,
        st.integers(0, 2500),
        st.sampled_from(["break", "raise ValueError", "continue"]),
    )
    def holds(levels, last, leaves):
        heads = [
            f"{'    ' * (i + 1)}for i{i} in {kind.format(n)}:\n"
            for i, (kind, n) in enumerate(levels)
        ]
        pad = "    " * (len(levels) + 1)
        body = f"{pad}n += 1\n{pad}if n == {last}:\n{pad}    {leaves}\n"
        text = "try:\n" + "".join(heads) + body + "except ValueError:\n    pass\n"
        space: dict = {"n": 0}
        run_plain("6", OWN, space)
        found = counts(run_recorded("7", text, space))
        ended = space["n"] - (leaves.startswith("raise") and 0 < last == space["n"])
        assert found.get(len(levels) + 1, 0) == ended

    holds()


OWN = """
class Own:
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        return self
    def __next__(self):
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return self.n
"""


def test_frames_and_errors_are_the_programs(monkeypatch):
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    text = "import sys\ndef gen():\n    yield sys._getframe(1).f_code.co_filename\n    yield sys._getframe(1).f_lineno\nfor x in gen():\n    seen.append(x)\n"
    space: dict = {"seen": []}
    run_recorded("7", text, space)
    assert space["seen"] == [path_of("7"), 5]


def test_no_name_is_left_in_the_notebook():
    space: dict = {}
    run_recorded("7", "for i in range(3):\n    pass\nwhile True:\n    break\n", space)
    assert sorted(space) == ["__builtins__", "__name__", "i"]
    assert sys.getrefcount(space["i"]) > 0
