"""JAX of an older version, which is not installed here: the calls that their documentation asks
for, made on stand-ins.
"""

from __future__ import annotations

import sys
import types

import pytest

from nbprof.capture.options import Options
from nbprof.capture.session import Session
from tests.capture.notes import keys


class Annotation:
    """As jax.profiler.TraceAnnotation."""

    log: list = []  # noqa: RUF012

    def __init__(self, name, **metadata):
        self.name, self.metadata = name, metadata

    def __enter__(self):
        return self

    def set_metadata(self, **metadata):
        self.metadata.update(metadata)

    def __exit__(self, *_):
        Annotation.log.append((self.name, self.metadata))


class StepAnnotation(Annotation):
    def __init__(self, name, **metadata):
        super().__init__(name, _r=1, **metadata)


@pytest.fixture
def jax(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Annotation.log.clear()
    module = types.ModuleType("jax")
    module.__version__ = "0.7.0"
    state = {}

    class ProfileOptions:
        pass

    def start_trace(folder, profiler_options=None):
        state.update(folder=folder, options=profiler_options)

    def stop_trace():
        run = tmp_path.__class__(state["folder"]) / "plugins" / "profile" / "2026_01_01_00_00_00"
        run.mkdir(parents=True)
        (run / "host.xplane.pb").write_bytes(b"PjitFunction(f)")

    module.profiler = types.SimpleNamespace(
        ProfileOptions=ProfileOptions,
        start_trace=start_trace,
        stop_trace=stop_trace,
        TraceAnnotation=Annotation,
        StepTraceAnnotation=StepAnnotation,
    )
    module.state = state
    # Another test may have imported JAX, whose insides tell what the real one does.
    for name in [name for name in sys.modules if name.startswith(("jax.", "jaxlib"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jax", module)
    return module


def test_jax_is_recorded_with_marked_steps(jax):
    import nbprof

    session = Session(Options(backend="jax", host_level=3, python=True)).start()
    assert (jax.state["options"].host_tracer_level, jax.state["options"].python_tracer_level) == (
        3,
        1,
    )
    for _ in nbprof.steps(range(2)):
        pass
    with jax.profiler.StepTraceAnnotation("train", step_num=7):
        pass
    recording = session.stop()
    assert recording.host_file.name == "host.xplane.pb"
    assert recording.info.framework.startswith("JAX 0.7.0")
    assert recording.info.steps_seen == 3
    assert [entry for entry in Annotation.log if entry[1].get("_r")] == [
        ("train", {"_r": 1, "step_num": 1}),
        ("train", {"_r": 1, "step_num": 2}),
        ("train", {"_r": 1, "step_num": 7}),
    ]
    assert "__enter__" not in vars(StepAnnotation)


def test_the_persons_own_jax_trace_comes_first(jax):
    session = Session(Options(backend="jax")).start()
    jax.profiler.start_trace("theirs")
    assert jax.state["folder"] == "theirs"
    assert keys(session.stop().info.notes)[0] == "own_profiler_started"


@pytest.mark.parametrize(
    ("source", "steps", "told"),
    [("train()", 0, True), ("train()", 2, False), ("jax.jit(train)()", 0, False)],
)
def test_a_framework_that_the_cell_may_use_by_its_variables_is_named(
    jax, monkeypatch, source, steps, told
):
    """`train()` of an earlier cell may be PyTorch's; where steps were seen of what was recorded, or
    the cell names it, nothing is open.
    """
    import nbprof

    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    # With a GPU, one framework is recorded at a time.
    monkeypatch.setattr("nbprof.capture.session.one_at_a_time", lambda: True)
    session = Session(Options(), source=source).start()
    for _ in nbprof.steps(range(steps)):
        pass
    notes = session.stop().info.notes
    assert ("other_frameworks_imported" in keys(notes)) is told
