"""Compilation and imports of libraries are no part of recorded Python calls, and behave as without
a recording.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

from nbprof.capture.hidden_calls import HiddenCall, HiddenCalls
from nbprof.capture.patches import Patches
from tests.support.programs import Program, run


def inner(value: int) -> int:
    return value + 1


def outer(value: int) -> int:
    if value < 0:
        raise ValueError("below zero")
    return inner(value)


def run_hidden(function, *args, **kwargs):
    call = HiddenCall(function, *args, **kwargs)
    if call.error is not None:
        raise call.error
    return call.result


@pytest.fixture
def called():
    """The names of the Python functions that a profiler saw, from its start to the end of the
    test.
    """
    names: list[str] = []
    before = sys.getprofile()
    sys.setprofile(
        lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None
    )
    yield names
    sys.setprofile(before)


def test_a_profiler_sees_no_call_inside_and_each_call_outside(called):
    assert outer(1) == 2
    assert called.count("inner") == 1
    assert run_hidden(outer, value=2) == 3
    assert called.count("inner") == called.count("outer") == 1
    assert outer(3) == 4
    assert called.count("inner") == 2


def test_calls_and_returns_that_a_profiler_sees_are_balanced():
    depth = []
    before = sys.getprofile()
    steps = {"call": 1, "return": -1, "c_call": 1, "c_return": -1, "c_exception": -1}
    sys.setprofile(lambda frame, event, _: depth.append(steps[event]))
    try:
        run_hidden(outer, 1)
        with pytest.raises(ValueError, match="below zero"):
            run_hidden(outer, -1)
    finally:
        sys.setprofile(before)
    # The call of `sys.setprofile` that ends it has begun.
    assert sum(depth) == 1


def test_an_exception_passes_as_it_is_with_the_frames_of_the_function(called):
    with pytest.raises(ValueError, match="below zero") as caught:
        run_hidden(outer, -1)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == [
        "run_hidden",
        "outer",
    ]
    assert caught.value.__context__ is None


@pytest.mark.parametrize("value", [1, -1])
def test_a_trace_function_is_there_during_the_call_and_after_it(value):
    seen = []

    def trace(frame, event, argument):
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run_hidden(lambda: (seen.append(sys.gettrace()), outer(value)))
    except ValueError:
        pass
    finally:
        after = sys.gettrace()
        sys.settrace(before)
    assert seen == [trace]
    assert after is trace


def test_imports_of_libraries_are_hidden_and_those_of_the_program_are_not(
    tmp_path, monkeypatch, called
):
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    text = "def of_{0}():\n    return 1\nvalue = of_{0}()\n"
    (packages / "nbprof_test_library.py").write_text(text.format("library"))
    (packages / "nbprof_test_missing.py").write_text("import nbprof_test_nowhere\n")
    (packages / "nbprof_test_broken.py").write_text(
        "def fail():\n    raise OSError('not today')\nfail()\n"
    )
    (tmp_path / "nbprof_test_program.py").write_text(text.format("program"))
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.syspath_prepend(str(tmp_path))
    patches = Patches()
    hidden = HiddenCalls(patches)
    hidden.hook()
    hidden.on = True
    try:
        assert (
            __import__("nbprof_test_library").value == __import__("nbprof_test_program").value == 1
        )
        with pytest.raises(OSError, match="not today") as caught:
            __import__("nbprof_test_broken")
        hidden.on = False
        del sys.modules["nbprof_test_library"]
        assert "of_library" not in called
        __import__("nbprof_test_library")
        assert "of_library" in called
        hidden.on = True
        with pytest.raises(ImportError) as missing:
            __import__("nbprof_test_missing")
    finally:
        patches.restore()
        for name in ("library", "broken", "missing", "program"):
            sys.modules.pop(f"nbprof_test_{name}", None)
    assert "of_program" in called
    files = [
        Path(frame.filename).name for frame in traceback.extract_tb(caught.value.__traceback__)
    ]
    assert files == ["test_hidden_calls.py", "nbprof_test_broken.py", "nbprof_test_broken.py"]
    files = [
        Path(frame.filename).name for frame in traceback.extract_tb(missing.value.__traceback__)
    ]
    assert files == ["test_hidden_calls.py", "nbprof_test_missing.py"]
    assert hidden.note().text.startswith("Python calls inside 3 imports of libraries (")
    assert "exec_module" not in vars(sys.modules["importlib.machinery"].SourceFileLoader)


PROGRAM = """
import resource
import torch
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
import nbprof

def training():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        compiled(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

with nbprof.profile(stacks=True) as p:
    training()
calls = p.run.trace.names[p.run.trace.events.name]
print("steps", len(p.steps.frame))
print("own", any("training" in str(name) for name in calls))
print("inside", sum("torch/_dynamo/symbolic_convert" in str(name) for name in calls))
print(p.receipt)
"""


def test_a_compilation_under_stacks_stays_within_bounds(tmp_path):
    """PyTorch's own profiler needs 1.4 GB with the stacks of this, and 6.7 GB with the text of each
    stack.
    """
    pytest.importorskip("resource")
    pytest.importorskip("torch")
    done = Program(PROGRAM.format(limit=4_000_000_000), modules=("torch",), cwd=tmp_path).wait()
    if "torch.compile is not supported" in done.stderr or "Dynamo is not supported" in done.stderr:
        pytest.skip("torch.compile does not run on this version of Python")
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines[:3] == ["steps 3", "own True", "inside 0"], done.stdout
    assert "Python calls inside 1 compilation and" in done.stdout


CALLS = """
import resource
import sys
import torch
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
import nbprof

def escaped(number):
    return str(number).strip()

def calls(count):
    for number in range(count):
        escaped(number)
    return number

with nbprof.profile(stacks=True) as p:
    torch.ones(2) + 1
    last = calls({count})
print("last", last, sys.gettrace(), sys.getprofile())
print(p.receipt)
"""


@pytest.mark.parametrize(
    ("limit", "count", "ends"), [(2_500_000_000, 400_000, True), (12_000_000_000, 20_000, False)]
)
def test_a_recording_ends_before_it_has_more_calls_than_memory(tmp_path, limit, count, ends):
    """Three million calls take PyTorch's profiler 7 GB to stop."""
    pytest.importorskip("resource")
    pytest.importorskip("torch")
    done = run(CALLS.format(limit=limit, count=count), needs="torch", cwd=tmp_path)
    assert done.stdout.splitlines()[0] == f"last {count - 1} None None"
    assert ("Python functions were called, whose recording takes about" in done.stdout) == ends
    assert ("recording ended" in done.stdout) == ends
