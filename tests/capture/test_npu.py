"""Recording on an NPU of Ascend: torch_npu's profiler and the options of TensorFlow's adapter, on
stand-ins of them.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import shutil
import sys
import threading
import types

import numpy as np
import pytest

import nbprof
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.capture.torch_steps import Mark
from nbprof.core.errors import CaptureError, RawError
from nbprof.profiles.load import open_recording
from tests.capture import npus
from tests.capture.notes import keys, text_of


@pytest.fixture
def npu(torch, monkeypatch):
    module = npus.torch_npu()
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    return module


def train(torch, steps=3):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def of_torch(**options):
    return Session(Options(backend="torch", **options), source="import torch")


def test_torch_npu_records_in_place_of_pytorchs_profiler(torch, npu, place, capsys):
    method = multiprocessing.get_start_method(allow_none=True)
    session = of_torch(stacks=True, logdir="logs").start()
    train(torch)
    recording = session.stop()
    assert recording is not None, session.failure
    (made,) = npus.Profile.made
    config = made.given.pop("experimental_config")
    assert made.given == {
        "activities": ["CPU", "NPU"],
        "record_shapes": True,
        "profile_memory": True,
        "with_stack": True,
        "with_modules": False,
    }
    assert (config.level, config.metrics, config.export) == (1, "pipes", "text")
    assert multiprocessing.get_start_method(allow_none=True) == method
    assert "torch_npu 2.7.1" in recording.info.framework
    text = text_of(recording.info.notes, "torch_npu_message")
    assert text == "torch_npu's profiler said: Some data is lost."
    assert capsys.readouterr().out == ""
    profile = open_recording(recording)
    assert profile.run.trace.tables
    assert profile.steps.frame["name"].tolist() == [f"ProfilerStep#{i}" for i in (1, 2, 3)]
    assert profile.kernels.frame["occurrences"].sum() > 8
    # As the folder of any run: opened again, it knows how it was recorded.
    again = nbprof.load("logs")
    assert again.path == str(recording.path)
    assert again.run.capture.steps_seen == 3
    assert len(again.runs) == 1
    assert again.runs["shown"].all()


@pytest.mark.parametrize(
    ("asked", "level", "activities", "says"),
    [
        ({"host_level": 3, "python": True}, 2, ["CPU", "NPU"], ""),
        ({"host_level": 0}, 1, ["NPU"], ""),
        ({"host_level": 1}, 1, ["CPU", "NPU"], "has no --host-level 1"),
        ({"memory": False, "shapes": False}, 1, ["CPU", "NPU"], "--no-memory adds no threads"),
    ],
)
def test_options_are_those_of_torch_npu_or_it_is_said(
    torch, npu, place, asked, level, activities, says
):
    session = of_torch(**asked).start()
    train(torch, 1)
    recording = session.stop()
    (made,) = npus.Profile.made
    assert made.given["experimental_config"].level == level
    assert made.given["activities"] == activities
    assert made.given["record_shapes"] is asked.get("shapes", True)
    assert made.given["profile_memory"] is asked.get("memory", True)
    assert made.given["with_modules"] is asked.get("python", False)
    assert any(says in note.text for note in recording.info.notes)


@pytest.mark.parametrize(
    ("asked", "metrics", "says"),
    [
        ({"aic_metrics": "L2Cache"}, "cache", None),
        (
            {"aic_metrics": "Memory"},
            "pipes",
            "this torch_npu has no counters Memory: recorded with PipeUtilization",
        ),
        (
            {"fp_point": "a", "bp_point": "b"},
            "pipes",
            "uses the program's steps: --fp-point and --bp-point had no effect",
        ),
    ],
)
def test_the_counters_are_those_that_were_asked_for(torch, npu, place, asked, metrics, says):
    session = of_torch(**asked).start()
    train(torch, 1)
    notes = session.stop().info.notes
    assert npus.Profile.made[0].given["experimental_config"].metrics == metrics
    texts = [note.text for note in notes if note.key == "option_without_effect"]
    assert len(texts) == (says is not None)
    assert all(says in text for text in texts)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"aic_metrics": "pipes"},
            "aic_metrics is one of PipeUtilization, ArithmeticUtilization, Memory,",
        ),
        ({"aic_metrics": None}, "aic_metrics is one of"),
        ({"fp_point": 'a"b'}, "fp_point must be the name of an op"),
        ({"bp_point": ""}, "bp_point must be the name of an op"),
    ],
)
def test_counters_and_points_that_there_are_not_are_refused(asked, says):
    with pytest.raises(CaptureError, match=says):
        Options(**asked)


def test_an_older_torch_npu_knows_no_type_of_files(torch, npu, place, monkeypatch):
    class Older:
        def __init__(self, profiler_level=0, aic_metrics="none"):
            self.level = profiler_level

    monkeypatch.setattr(npu.profiler, "_ExperimentalConfig", Older)
    session = of_torch().start()
    train(torch, 1)
    assert session.stop() is not None
    assert npus.Profile.made[0].given["experimental_config"].level == 1


def test_torch_npu_that_the_cell_imports_after_pytorch_is_recorded(
    torch, place, monkeypatch, tmp_path
):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "torch_npu.py").write_text(
        "from tests.capture import npus\nglobals().update(vars(npus.torch_npu(in_use=False)))\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "lib")
    # What is imported in the cell is gone after the test.
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    del sys.modules["torch_npu"]
    session = of_torch().start()
    importlib.import_module("torch_npu")
    train(torch)
    recording = session.stop()
    assert [
        path.name.endswith("_ascend_pt") for path in recording.path.iterdir() if path.is_dir()
    ] == [True]
    assert not list(recording.path.glob("*.pt.trace.json*"))
    assert recording.info.steps_marked == 3
    assert "npu_not_in_use" in keys(recording.info.notes)
    assert "gpu_not_seen" not in keys(recording.info.notes)


def test_torch_npu_that_comes_after_a_step_is_too_late(torch, place, monkeypatch):
    session = of_torch().start()
    train(torch, 2)
    monkeypatch.setitem(sys.modules, "torch_npu", npus.torch_npu())
    session._npu_is_here(sys.modules["torch_npu"])
    recording = session.stop()
    assert npus.Profile.made == []
    assert "imported after step 2" in text_of(recording.info.notes, "npu_imported_late")


def test_without_an_npu_pytorchs_profiler_records(torch, place, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_npu", npus.torch_npu(available=False))
    session = of_torch().start()
    train(torch, 1)
    assert list(session.stop().path.glob("*.pt.trace.json.gz"))
    assert npus.Profile.made == []


def test_why_torch_npu_did_not_begin(torch, npu, place):
    npus.Profile.refuses = "the driver is busy"
    with pytest.raises(
        nbprof.core.errors.CaptureError,
        match="torch_npu's profiler did not start: the driver is busy",
    ):
        of_torch().start()


def test_the_persons_own_profiler_of_torch_npu_comes_first(torch, npu, place):
    theirs = npu.profiler.profile(
        on_trace_ready=npu.profiler.tensorboard_trace_handler("theirs", "me")
    )
    theirs.start()
    with pytest.raises(nbprof.core.errors.CaptureError, match="already running"):
        of_torch().start()
    theirs.stop()
    session = of_torch().start()
    train(torch, 1)
    theirs.start()
    assert "own_profiler_started" in keys(session.stop().info.notes)
    assert "start" in vars(npus.Profile)
    assert not hasattr(npus.Profile.start, "__wrapped__")
    theirs.stop()


def test_it_ends_on_the_thread_that_began(torch, npu, place):
    session = of_torch().start()
    train(torch, 1)
    other = threading.Thread(target=session.stop)
    other.start()
    other.join()
    npus.Profile.made.clear()
    assert "must be the same one" in session.failure


def test_what_was_not_analysed_says_how(torch, npu, place, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    npus.Profile.analyses = False
    session = of_torch().start()
    train(torch, 1)
    recording = session.stop()
    assert "npu_not_analysed" in keys(recording.info.notes)
    with pytest.raises(RawError, match=r"torch_npu\.profiler\.profiler\.analyse"):
        open_recording(recording)


@pytest.mark.parametrize("text", ["[]", '[{"name": "a"}]', ' \n[ {"name": "a"} ]'])
def test_steps_are_put_at_the_head_of_the_list(tmp_path, text):
    from nbprof.capture.torch_npu import insert

    mark = Mark([], lambda: 1_736_412_474_000_125_250)
    mark.close(None)
    mark.number, mark.end = 7, mark.start + 1500
    (tmp_path / "trace_view.json").write_text(text)
    assert insert(tmp_path / "trace_view.json", [mark])
    process, first, *others = json.loads((tmp_path / "trace_view.json").read_text())
    assert process["args"] == {"name": "Python"}
    assert (first["name"], first["ts"], first["dur"]) == (
        "ProfilerStep#7",
        "1736412474000125.250",
        1.5,
    )
    assert others == json.loads(text)
    assert [path.name for path in tmp_path.iterdir()] == ["trace_view.json"]


@pytest.mark.parametrize("text", ["", '{"traceEvents": []}', "nothing"])
def test_what_is_no_list_is_left_alone(tmp_path, text):
    from nbprof.capture.torch_npu import insert

    (tmp_path / "trace_view.json").write_text(text)
    assert not insert(tmp_path / "trace_view.json", [Mark([], lambda: 1)])
    assert (tmp_path / "trace_view.json").read_text() == text


@pytest.fixture
def bridge(tf, monkeypatch):
    """npu_bridge with its profiler of sessions."""
    npus.Sessions.made, npus.Sessions.exported = [], True
    monkeypatch.setitem(sys.modules, "npu_bridge", types.ModuleType("npu_bridge"))
    module = types.ModuleType("npu_bridge.profiler.profiler")
    module.Profiler = npus.Sessions
    monkeypatch.setitem(sys.modules, "npu_bridge.profiler.profiler", module)
    return module


def of_tensorflow(**options):
    return Session(Options(backend="tensorflow", **options), source="import tensorflow")


def test_sessions_are_recorded_by_the_adapters_profiler(bridge, place):
    session = of_tensorflow(host_level=3, aic_metrics="MemoryUB", bp_point="b").start()
    recording = session.stop()
    assert recording is not None, session.failure
    (made,) = npus.Sessions.made
    assert (made.level, made.metrics) == ("L2", "MemoryUB")
    text = text_of(recording.info.notes, "option_without_effect")
    assert "detects iterations itself: --bp-point had no effect" in text
    assert "npu_bridge" in recording.info.framework
    assert "npu_profiler" in keys(recording.info.notes)
    profile = open_recording(recording)
    assert profile.run.trace.tables
    assert len(profile.steps.frame) == 4
    assert profile.path == str(recording.path)


def test_what_the_adapter_recorded_is_exported_where_msprof_is_here(
    bridge, place, monkeypatch, tmp_path
):
    from tests.support import msprof

    npus.Sessions.exported = False
    recording = of_tensorflow().start().stop()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RawError, match="not exported yet"):
        open_recording(recording)
    called = []

    def run(command, **_):
        called.append(command[1:])
        folder = next(recording.path.glob("PROF_*"))
        shutil.rmtree(folder)
        msprof.prof(folder, *msprof.training(4))
        return types.SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    monkeypatch.setattr("nbprof.formats.msprof.export.subprocess.run", run)
    said = []
    assert len(open_recording(recording, said.append).steps.frame) == 4
    assert [words[0] for words in called] == ["--export=on"]
    assert any("msprof exports PROF_" in line for line in said)


def test_sessions_of_an_older_adapter_get_its_options(tf, place, monkeypatch):
    monkeypatch.setitem(sys.modules, "npu_bridge", types.ModuleType("npu_bridge"))
    v1 = tf.compat.v1
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.custom_optimizers.add().name = "NpuOptimizer"
    before, taken = config.SerializeToString(), []

    def init(self, target="", graph=None, config=None):
        taken.append(config)

    # A real session would look for the optimizer, which comes with the adapter.
    monkeypatch.setattr(v1.Session, "__init__", init)
    monkeypatch.setattr(v1.Session, "__del__", lambda self: None)
    session = of_tensorflow(logdir="logs", fp_point="model/Conv2D", aic_metrics="Memory").start()
    v1.Session(config=config)
    v1.Session()
    recording = session.stop()
    assert v1.Session.__init__ is init
    own = taken[0].graph_options.rewrite_options.custom_optimizers[0].parameter_map
    chosen = json.loads(own["profiling_options"].s)
    assert own["profiling_mode"].b
    assert (chosen["training_trace"], chosen["task_trace"], chosen["aic_metrics"]) == (
        "on",
        "on",
        "Memory",
    )
    assert (chosen["fp_point"], chosen["bp_point"]) == ("model/Conv2D", "")
    assert "option_without_effect" not in keys(recording.info.notes)
    assert (chosen["aicpu"], chosen["hccl"]) == ("on", "on")
    assert place / "logs" / "ascend" in (place / chosen["output"]).parents
    assert taken[1] is None
    assert config.SerializeToString() == before
    text = text_of(recording.info.notes, "npu_recorded_separately")
    assert "complete once the session is closed" in text
    assert chosen["output"] in text


@pytest.fixture
def device(tf, monkeypatch):
    package, inner = npus.npu_device()
    monkeypatch.setitem(sys.modules, "npu_device", package)
    monkeypatch.setitem(sys.modules, "npu_device.npu_device", inner)
    return package, inner


def test_a_device_that_is_opened_later_gets_the_options(device, place):
    config = device[0].global_options().profiling_config
    session = of_tensorflow(logdir="logs", steps=(1, 2)).start()
    assert config.enable_profiling.held is True
    chosen = json.loads(config.profiling_options.held)
    assert chosen["output"].startswith(str(place / "logs" / "ascend"))
    with nbprof.step():
        pass
    recording = session.stop()
    text = text_of(recording.info.notes, "npu_recorded_separately")
    assert "complete once the device is closed" in text
    text = text_of(recording.info.notes, "option_without_effect")
    assert "--steps and --seconds only apply to TensorFlow's own profile" in text
    assert (config.enable_profiling.held, config.profiling_options.held) == (False, None)


@pytest.mark.parametrize(
    ("opened", "on", "save", "says"),
    [
        (True, False, True, "npu_device was opened earlier"),
        (False, True, True, "the program itself turns on the NPU's profiler"),
        (False, False, False, "--no-save keeps nothing"),
    ],
)
def test_options_of_a_device_that_cannot_be_set_are_told(device, place, opened, on, save, says):
    config = device[0].global_options().profiling_config
    config.enable_profiling = on
    if opened:
        device[1]._npu_device_instances[0] = object()
    recording = of_tensorflow(save=save).start().stop()
    assert config.enable_profiling.held is on
    assert config.profiling_options.held is None
    assert any(says in note.text for note in recording.info.notes)
    assert recording.host_file.name.endswith(".xplane.pb")


def test_the_clock_of_the_marks_is_that_of_the_npu(torch, npu, place):
    """Steps and tasks lie on one time axis: the first task is after the begin of the first step."""
    session = of_torch().start()
    train(torch)
    run = open_recording(session.stop()).run
    names = run.trace.names[run.trace.events.name]
    steps = np.array([str(name).startswith("ProfilerStep#") for name in names])
    tasks = np.array([name == "gradients/layer/MatMul_1" for name in names])
    assert steps.any()
    assert tasks.any()
    assert (
        abs(int(run.trace.events.start[tasks].min()) - int(run.trace.events.start[steps].min()))
        < 60 * 10**12
    )
