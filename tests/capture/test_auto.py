"""`--backend auto`: what runs decides, not what is imported, with PyTorch and JAX as they are
installed.
"""

from __future__ import annotations

import sys
import types

import pytest

import nbprof
from nbprof.capture import auto
from nbprof.capture import session as room
from nbprof.capture.detect import choose
from nbprof.capture.options import BACKENDS, Options
from nbprof.capture.session import Session
from nbprof.frameworks.register import JAX, PYTORCH, named
from nbprof.profiles.load import open_recording
from tests.capture.notes import keys, text_of
from tests.support.profiles import imported


@pytest.fixture
def torch(monkeypatch):
    return _alone_on_a_cpu(monkeypatch, "torch")


@pytest.fixture
def jax(monkeypatch):
    module = _alone_on_a_cpu(monkeypatch, "jax")
    module.numpy.ones(2).block_until_ready()
    return module


def _alone_on_a_cpu(monkeypatch, name):
    monkeypatch.setattr(room, "one_at_a_time", lambda: False)
    # Another test may have imported it, and its profiler does not share a CPU with those of other
    # versions.
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    return imported(name)


def recorded(function, place, source="work()", **options):
    session = Session(Options(logdir=str(place), **options), source=source).start()
    function()
    recording = session.stop()
    assert recording is not None, session.failure
    return recording


def test_the_framework_that_ran_is_shown(torch, jax, tmp_path):
    """Both are imported, and the cell says nothing of either."""

    def with_torch():
        for _ in nbprof.steps(range(3)):
            torch.ones(8, 8) @ torch.ones(8, 8)

    def with_jax():
        (jax.numpy.ones((8, 8)) @ jax.numpy.ones((8, 8))).block_until_ready()

    recording = recorded(with_torch, tmp_path)
    assert (recording.info.backend, recording.info.steps_marked) == ("torch", 3)
    assert [path.name for path in recording.path.parent.iterdir()] == [recording.path.name]
    p = open_recording(recording)
    assert "aten::mm" in set(p.ops.frame.op)
    assert len(p.steps.frame) == 3
    recording = recorded(with_jax, tmp_path)
    assert recording.info.backend == "jax"
    assert recording.info.notes == []


def test_where_none_of_them_ran_it_is_a_recording_of_python(torch, jax, tmp_path):
    def work():
        for number in nbprof.steps(range(3)):
            sum(range(number))

    recording = recorded(work, tmp_path)
    assert recording.info.backend == "python"
    assert recording.info.framework.startswith("Python ")
    assert keys(recording.info.notes) == ["step_origins"]
    assert [path.suffixes[-4:] for path in recording.path.glob("*.gz")] == [
        [".py", ".trace", ".json", ".gz"]
    ]
    assert open_recording(recording).steps.frame.step.tolist() == [1, 2, 3]


def test_two_that_ran_are_both_kept(torch, jax, tmp_path):
    def work():
        torch.ones(8, 8) @ torch.ones(8, 8)
        (jax.numpy.ones((8, 8)) @ jax.numpy.ones((8, 8))).block_until_ready()

    recording = recorded(work, tmp_path, source="import torch, jax")
    assert recording.info.backend == "jax"
    (beside,) = [path for path in recording.path.parent.iterdir() if path != recording.path]
    assert beside.name == f"{recording.path.name}_torch"
    assert str(beside) in text_of(recording.info.notes[-1:], "recorded_separately")
    assert "aten::mm" in set(nbprof.load(beside).ops.frame.op)
    assert open_recording(recording).overview["framework"].startswith("JAX")


def test_a_framework_that_the_cell_names_and_that_ran_nothing_is_said(torch, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    recording = recorded(lambda: sum(range(9)), tmp_path, source="x = torch")
    assert recording.info.backend == "python"
    assert keys(recording.info.notes) == ["nothing_ran"]


def test_steps_before_the_import_are_not_in_the_recording(torch, tmp_path, monkeypatch):
    for name in BACKENDS:
        monkeypatch.delitem(sys.modules, named(name).recorder.module, raising=False)
    session = Session(Options(logdir=str(tmp_path)), source="import torch").start()
    for _ in nbprof.steps(range(2)):
        pass
    sys.modules["torch"] = torch
    session._framework_joins(torch)
    for _ in nbprof.steps(range(3)):
        torch.ones(8, 8) @ torch.ones(8, 8)
    info = session.stop().info
    assert (info.backend, info.steps_seen, info.steps_marked, info.window) == (
        "torch",
        5,
        3,
        [3, 5],
    )


def test_with_an_accelerator_one_framework_is_recorded(monkeypatch):
    for name in BACKENDS:
        monkeypatch.setitem(sys.modules, named(name).recorder.module, types.ModuleType(name))
    monkeypatch.setattr(room, "one_at_a_time", lambda: True)
    monkeypatch.setattr(room, "used_before", lambda: ["torch"])
    assert Session(Options(), source="work()")._imported_candidates() == ["torch"]
    assert Session(Options(), source="jax.jit(f); torch.ones(2)")._imported_candidates() == ["jax"]
    monkeypatch.setattr(room, "one_at_a_time", lambda: False)
    assert Session(Options(), source="work()")._imported_candidates() == list(BACKENDS)
    assert Session(Options(), source="jax.jit(f); torch.ones(2)")._imported_candidates() == [
        "jax",
        "torch",
    ]
    monkeypatch.delitem(sys.modules, "jax")
    assert Session(Options(), source="jax.jit(f)")._imported_candidates() == [
        name for name in BACKENDS if name != "jax"
    ]
    monkeypatch.setattr(room, "one_at_a_time", lambda: True)
    # The one that the cell names will come.
    assert Session(Options(), source="jax.jit(f)")._imported_candidates() == []


def test_what_is_expected_is_told_from_what_is_merely_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert choose("auto", "import jax").expected == ("jax",)
    assert choose("auto", "x = 1").expected == ()
    assert choose("torch", "import jax").expected == ("torch",)


class Refuses:
    """A framework whose profiler fails."""

    name, title = "torch", "PyTorch"

    def __init__(self, begin=None, end=None):
        self.begin, self.end = begin, end

    def start(self, folder, options):
        del folder, options
        if self.begin is not None:
            raise self.begin
        return []

    def stop(self):
        if self.end is not None:
            raise self.end

    def open_marker(self, kind, number):
        del kind, number
        return types.SimpleNamespace(close=lambda step, batches=1: None)

    def versions(self):
        return "PyTorch 9"

    def hook(self, clock, patches, give_way):
        pass


@pytest.mark.parametrize("fails", [{"begin": RuntimeError("no")}, {"end": RuntimeError("no")}])
def test_a_framework_that_fails_leaves_the_recording_of_python(monkeypatch, tmp_path, fails):
    for name in BACKENDS:
        monkeypatch.delitem(sys.modules, named(name).recorder.module, raising=False)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setattr(room, "_make_backend", lambda module: Refuses(**fails))
    info = recorded(lambda: None, tmp_path).info
    assert info.backend == "python"
    text = text_of(info.notes, "framework_not_recorded")
    assert text == "PyTorch was not recorded: RuntimeError: no"


def test_the_signs_of_a_file_are_found_wherever_they_are(tmp_path):
    import gzip

    packed = tmp_path / "host.pt.trace.json.gz"
    sign = b'"cat": "cpu_op"'
    for at in (0, 5, auto._CHUNK - 7, auto._CHUNK + 3):
        packed.write_bytes(gzip.compress(b" " * at + sign, 1))
        assert auto.contains(packed, PYTORCH.recorder.signs)
    packed.write_bytes(gzip.compress(b'"cat": "user_annotation"', 1))
    assert not auto.contains(packed, PYTORCH.recorder.signs)
    empty = tmp_path / "host.xplane.pb"
    empty.write_bytes(b"")
    assert not auto.contains(empty, JAX.recorder.signs)
