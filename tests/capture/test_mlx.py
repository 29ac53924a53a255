"""MLX, whose profiler writes nothing that can be read: its steps, on a stand-in, and the words of
MLX in what is shown.
"""

from __future__ import annotations

import sys

import pytest

from nbprof.capture import session as room
from nbprof.capture.detect import choose
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.frameworks.register import MLX
from nbprof.gate.record import _wait_for
from nbprof.profiles.load import load, open_recording
from tests.capture.notes import keys
from tests.support import mlx as stand_in

CELL = """
import mlx.core as mx
import nbprof

weight = mx.array(1.0)
for batch in nbprof.steps(range(4)):
    weight = weight + batch
    mx.eval(weight)
"""
WITHOUT_STEPS = "import mlx.core as mx\nmx.eval(mx.array(1.0) + 2)"


@pytest.fixture
def core(monkeypatch):
    monkeypatch.setattr(room, "one_at_a_time", lambda: False)
    finder = stand_in.install(monkeypatch)
    yield finder.core
    for name in ("mlx", "mlx.core"):
        sys.modules.pop(name, None)


def recorded(cell, place, **options):
    variables: dict = {}
    session = Session(
        Options(logdir=str(place), **options), source=cell, namespace=variables
    ).start()
    exec(compile(cell, "<cell>", "exec"), variables)
    recording = session.stop()
    assert recording is not None, session.failure
    return recording


@pytest.mark.parametrize("backend", ["auto", "mlx"])
@pytest.mark.parametrize("imported_before", [False, True])
def test_a_cell_is_recorded_and_opens_as_one_of_mlx(core, tmp_path, backend, imported_before):
    if imported_before:
        pass
    info = recorded(CELL, tmp_path, backend=backend).info
    assert (info.backend, info.steps_seen, info.steps_marked) == ("mlx", 4, 4)
    assert info.framework.startswith(f"MLX {stand_in.VERSION}, Python ")
    assert keys(info.notes) == ["step_origins"]
    assert core.log == [*["eval"] * 4, "synchronize"]


def test_the_profile_has_its_steps_and_speaks_of_mlx(core, tmp_path):
    recording = recorded(CELL, tmp_path)
    p = open_recording(recording)
    assert p.run.activity.framework is MLX
    assert p.steps.frame.step.tolist() == [1, 2, 3, 4]
    assert p.overview["framework"].startswith("MLX")
    assert p.overview["environment"]["versions"]["mlx"] == stand_in.VERSION
    for view in ("ops", "kernels", "memory", "input"):
        assert p.run.missing[view].startswith("MLX has no profiler that nbprof can read")
    shown = p.text()
    for other in ("PyTorch", "torch", "TensorFlow", "tf.", "JAX", "jax"):
        assert other not in shown
    # The files alone say it, too.
    for path in recording.path.glob("*.json"):
        if not path.name.endswith(".trace.json"):
            path.unlink()
    alone = load(recording.path)
    assert alone.overview["framework"] == "MLX"
    assert alone.run.activity.framework is MLX


def test_without_steps_it_says_how_to_mark_them_in_mlx(core, tmp_path):
    p = open_recording(recorded(WITHOUT_STEPS, tmp_path))
    assert p.run.activity.unit.is_recording
    assert "mx.eval(...) at the end of each" in p.run.activity.unit.how


def test_a_cell_uses_it_that_names_it_or_whose_variables_are_of_it(core, tmp_path):
    import mlx.core as mx

    assert choose("auto", "import mlx.nn as nn").expected == ("mlx",)
    assert choose("auto", "train(weight)", {"weight": mx.array(1.0)}).expected == ("mlx",)
    assert choose("auto", "x = mx.array(1.0)", {"mx": mx}).expected == ("mlx",)
    assert choose("auto", "x = mx.array(1.0)", {}).expected == ()


def test_where_it_is_only_imported_python_is_shown(core, tmp_path):
    import mlx.core  # noqa: F401

    info = recorded("x = sum(range(9))", tmp_path).info
    assert info.backend == "python"


def test_a_gate_waits_for_its_results(core):
    import mlx.core as mx

    result = mx.array(1.0) + 2
    _wait_for(result)
    assert (result.value, mx.log) == (3.0, ["eval"])
