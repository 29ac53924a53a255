"""benchmarks/answers: its truths are consistent, its traces are what they claim, and its figures
are counted right.
"""

import ast
import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from IPython.core.inputtransformer2 import TransformerManager

HERE = Path(__file__).parents[2] / "benchmarks/answers"
# Cells that nbprof had no answer for when the benchmark was written.
FIRST = {
    "torch/inference loop",
    "torch/one call",
    "torch/SGD by hand",
    "torch/LSTM fed its output",
    "torch/training",
    "jax/one jitted call",
    "jax/eager ops in a loop",
    "tensorflow/inference loop",
    "tensorflow/train step of a tf.function",
    "tensorflow/tf.data alone",
    "numpy/QR in a loop",
    "python/two million turns",
}


@pytest.fixture
def suite(monkeypatch):
    """The modules of the benchmark, by name."""
    monkeypatch.syspath_prepend(str(HERE))
    names = {path.stem for path in HERE.glob("*.py")} - {"__main__"}
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    import answer
    import cells
    import definitions
    import files
    import periods
    import scoring

    modules = (answer, cells, definitions, files, periods, scoring)
    yield {module.__name__: module for module in modules}
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_cells_are_many_and_a_quarter_of_them_is_set_aside(suite):
    cells = suite["cells"].CELLS
    runnable = [cell for cell in cells.values() if not cell.needs]
    assert len(runnable) >= 80
    assert set(cells) >= FIRST
    assert not any(cells[name].unseen for name in FIRST)
    assert 4 * sum(cell.unseen for cell in runnable) >= len(runnable)
    frameworks = {cell.framework for cell in runnable}
    assert frameworks >= {"torch", "jax", "tensorflow", "numpy", "pandas", "python"}
    assert frameworks >= {"keras-tensorflow", "keras-jax", "keras-torch"}
    assert any(cell.framework == "scikit-learn" for cell in cells.values())
    assert sum(cell.control for cell in runnable) >= 15


def test_truths_are_valid(suite):
    for cell in suite["cells"].CELLS.values():
        assert cell.units, cell.name
        assert set(cell.units) <= set(suite["cells"].KINDS), cell.name
        assert all(counts and min(counts) > 0 for counts in cell.units.values()), cell.name
        assert cell.units.get("recording", (1,)) == (1,), cell.name
        assert cell.bound <= suite["cells"].VERDICTS, cell.name
        if cell.bound == suite["cells"].PYTHON:
            assert cell.named, cell.name


def test_cells_compile_keep_a_clock_and_have_what_they_are_named_for(suite):
    for cell in suite["cells"].CELLS.values():
        manager = TransformerManager()
        body = "\n".join(
            line for line in cell.text.strip("\n").splitlines() if not line.startswith("%%")
        )
        for text in (body, *cell.setup, *cell.modules.values()):
            code = manager.transform_cell(text.strip("\n") + "\n")
            compile(code, cell.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert "seconds" in body, cell.name
        texts = "\n".join((body, *cell.setup, *cell.modules.values()))
        library = ("listcomp", "genexpr", "encode", "decode", "merge")
        assert not [name for name in cell.named if name not in texts and name not in library], (
            cell.name
        )


def test_a_cell_is_run_below_one_magic(suite):
    for cell in suite["cells"].CELLS.values():
        lines = cell.source.splitlines()
        assert sum(line.startswith("%%nbprof -q -o p") for line in lines) == 1, cell.name
        assert lines[0].startswith("%%"), cell.name


def test_two_cells_of_a_name_are_refused(suite):
    cells = suite["cells"]
    with pytest.raises(ValueError, match="torch/training"):
        cells.add(cells.CELLS["torch/training"])


def kernels(folder, suite, name):
    """(name, begin) of the kernels of a trace on its busiest stream, in order."""
    path = suite["periods"].write(suite["periods"].STORIES[name], folder)
    events = json.loads(path.read_text())["traceEvents"]
    rows = [event for event in events if event["cat"] == "kernel" and event["tid"] == 7]
    return [
        (event["name"], event["ts"], event["ts"] + event["dur"])
        for event in sorted(rows, key=lambda event: event["ts"])
    ]


@pytest.mark.parametrize(
    ("name", "period", "count"),
    [
        ("kernels/53 of them ten times", 53, 10),
        ("kernels/three of them 200 times", 3, 200),
        ("kernels/durations vary by half", 20, 25),
        ("kernels/layers repeat within a step", 127, 10),
        ("kernels/on two streams", 30, 20),
    ],
)
def test_kernels_repeat_as_often_as_stated(tmp_path, suite, name, period, count):
    rows = kernels(tmp_path, suite, name)
    names = [row[0] for row in rows]
    assert len(names) == period * count
    assert names == names[:period] * count
    story = suite["periods"].STORIES[name]
    assert story.units["iteration"] == (count,)
    starts = [row[1] for row in rows[::period]]
    assert (starts[-1] - starts[0]) / (count - 1) / 1000 == pytest.approx(story.unit_ms, rel=1e-3)
    # One stream runs one kernel at a time.
    assert all(before[2] <= after[1] + 0.001 for before, after in pairwise(rows))


def test_a_period_that_is_not_to_be_claimed_fits_about_four_events_in_five(tmp_path, suite):
    names = [row[0] for row in kernels(tmp_path, suite, "kernels/a period that holds for 80 %")]
    pattern = suite["periods"].names(25) * 40
    fits = sum(shown == meant for shown, meant in zip(names, pattern, strict=True)) / len(pattern)
    assert 0.75 < fits < 0.85


def test_traces_are_the_same_each_time_and_are_read(tmp_path, suite):
    import nbprof

    for name, story in suite["periods"].STORIES.items():
        first = suite["periods"].write(story, tmp_path).read_bytes()
        assert suite["periods"].write(story, tmp_path).read_bytes() == first, name
    marked = suite["periods"].write(
        suite["periods"].STORIES["marks/steps of the profiler"], tmp_path
    )
    said = suite["answer"].answer(nbprof.load(marked))
    assert (said["unit"], said["count"]) == ("step", 12)
    assert said["unit_ms"] == pytest.approx(3)


def test_names_of_files_are_unique(suite):
    names = Counter(item.name for item in (*suite["files"].RECORDED, *suite["files"].SYNTHETIC))
    assert not [name for name, count in names.items() if count > 1]
    item = suite["files"].SYNTHETIC[0]
    assert not item.control
    assert item.counted


def said(
    unit="iteration", count=30, unit_ms=10.0, verdict="Compute-bound", python=None, seconds=0.3
):
    return {
        "unit": unit,
        "count": count,
        "unit_ms": unit_ms,
        "verdict": verdict,
        "text": "",
        "python": python,
        "seconds": seconds,
    }


def right(suite, cell, answer):
    """The parts of an answer that are judged, and whether they are right."""
    return {key: outcome.right for key, outcome in suite["scoring"].judge(cell, answer).items()}


def test_parts_of_an_answer_are_judged(suite):
    cells = suite["cells"]
    cell = cells.Cell("a/loop", "", cells.loop(30), cells.COMPUTE)
    fine = {"answered": True, "unit": True, "count": True, "time": True, "verdict": True}
    assert right(suite, cell, said()) == fine
    assert right(suite, cell, said("step", unit_ms=10.19)) == fine
    assert right(suite, cell, said(unit_ms=10.21)) == {**fine, "time": False}
    assert right(suite, cell, said(count=29)) == {**fine, "count": False}
    assert right(suite, cell, said(verdict="Host-bound")) == {**fine, "verdict": False}
    assert right(suite, cell, said("recording", 1, 300.0)) == {
        **fine,
        "unit": False,
        "count": False,
        "time": False,
    }
    silent = dict.fromkeys(fine, False)
    assert right(suite, cell, said(None, 0, None, "Unknown")) == silent
    assert right(suite, cell, {**suite["answer"].NOTHING, "seconds": 0.3}) == silent
    assert right(suite, cell, {"failed": "Traceback"}) == {
        key: False for key in fine if key != "time"
    }


def test_a_control_must_not_have_a_loop_and_several_counts_may_be_right(suite):
    cells = suite["cells"]
    control = cells.Cell("a/once", "", cells.RECORDING, frozenset())
    fine = {"answered": True, "unit": True, "controls": True, "time": True}
    assert right(suite, control, said("recording", 1, 300.0)) == fine
    assert right(suite, control, said("iteration", 3, 100.0)) == {
        **fine,
        "unit": False,
        "controls": False,
        "time": False,
    }
    assert right(suite, control, said(None, 0, None, "Unknown"))["controls"]
    several = cells.Cell("a/several calls", "", cells.calls(5), frozenset())
    answer = right(suite, several, said("recording", 1, 300.0))
    assert (answer["unit"], answer["controls"]) == (False, True)
    assert not right(suite, several, said(count=5))["controls"]
    nested = cells.Cell(
        "a/nested", "", cells.either(cells.loop(3, 30), cells.RECORDING), frozenset()
    )
    fine = {"answered": True, "unit": True, "count": True, "time": True}
    assert right(suite, nested, said(count=3, unit_ms=100.0)) == fine
    assert right(suite, nested, said(count=30, unit_ms=10.0)) == fine
    assert right(suite, nested, said("recording", 1, 300.0)) == fine


def test_the_line_or_function_is_looked_for_in_what_was_sampled(suite):
    cells = suite["cells"]
    cell = cells.Cell("a/python", "", cells.loop(30), cells.PYTHON, named=("augment", "total += 1"))
    assert not right(suite, cell, said())["named"]
    assert not right(suite, cell, said(python=["other | cell [3]"]))["named"]
    assert right(suite, cell, said(python=["other", "cell [3] | total += 1"]))["named"]
    row = {"file": "cell [2]", "line": 3, "percent": 61.0}
    source = "%%nbprof\nfor i in x:\n    total += 1\n"
    assert suite["answer"].row_text(row, source) == "cell [2] | total += 1"
    assert suite["answer"].row_text({**row, "file": "numpy/linalg.py"}, source) == "numpy/linalg.py"


def test_python_frames_are_read_whether_or_not_they_are_there(suite):
    class Sampled:
        functions = pd.DataFrame({"function": ["slow", "quick"], "percent": [80.0, 20.0]})

        def lines(self):
            return pd.DataFrame({"file": ["cell [1]"], "line": [2]})

    class WithPython:
        python = Sampled()

    rows = suite["answer"].python_rows
    assert rows(WithPython(), "%%nbprof\nslow()") == ["slow", "cell [1] | slow()"]
    assert rows(object(), "") is None


def test_figures(suite):
    cells, scoring = suite["cells"], suite["scoring"]
    loop = cells.Cell("a/loop", "", cells.loop(30), cells.COMPUTE)
    control = cells.Cell("a/once", "", cells.RECORDING, frozenset())
    answers = ((loop, said()), (loop, said(count=29)), (control, said(count=5, unit_ms=60.0)))
    shares = scoring.score((cell.name, scoring.judge(cell, answer)) for cell, answer in answers)
    assert {key: (share.good, share.of) for key, share in shares.items()} == {
        "answered": (3, 3),
        "unit": (2, 3),
        "count": (1, 2),
        "time": (2, 3),
        "verdict": (2, 2),
        "named": (0, 0),
        "controls": (0, 1),
    }
    assert shares["count"].wrong == ["a/loop: 29 of kind iteration, not 30 iteration or 30 step"]
    assert shares["named"].percent is None
    table = scoring.table({"seen": shares, "unseen": shares})
    assert "| Counted exactly | 1 of 2 (50 %) | 1 of 2 (50 %) |" in table
    assert "| Function or line named, where Python bounds | – | – |" in table
