"""What stands in the way of recording a GPU, and what is recorded all the same.

There is no GPU here: the calls of PyTorch that would meet one are stand-ins that answer as their
documentation, sources and logs say.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import sys
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.logged import stderr_lines
from nbprof.capture.torch_threads import OtherThreads
from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from tests.capture.notes import keys, text_of
from tests.capture.torches import Training, counts, steps

LOG = "2026-11-21 17:00:30 29734:29734"
NO_DRIVER = "gpuGetDeviceCount failed with code 35"


@pytest.fixture
def record(record):
    return lambda function, **options: record(function, source="import torch", **options)


@pytest.fixture
def gpu(torch, monkeypatch):
    """A PyTorch that is built for CUDA and sees a GPU."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call: None)
    activities = {*torch.profiler.supported_activities(), "CUDA"}

    class Cuda:
        name = "CUDA"

    monkeypatch.setattr(
        torch.profiler, "supported_activities", lambda: activities - {"CUDA"} | {Cuda()}
    )
    original = torch.profiler.profile

    def profile(activities, **options):
        return original(
            activities=[each for each in activities if not isinstance(each, Cuda)], **options
        )

    monkeypatch.setattr(torch.profiler, "profile", profile)
    return torch


def logging(torch, monkeypatch, method, text):
    """Let the profiler log a line as Kineto does."""
    kind = importlib.import_module("torch.autograd.profiler").profile
    original = getattr(kind, method)

    def logged(self, *args):
        os.write(2, f"{text}\n".encode())
        return original(self, *args)

    monkeypatch.setattr(kind, method, logged)


@pytest.mark.parametrize("method", ["_prepare_trace", "__exit__"])
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "CuptiActivityApi.cpp:195] cuptiActivityEnable() failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)",
            remedies.PRIVILEGES,
        ),
        (
            "init.cpp:167] CUPTI initialization failed - CUDA profiler activities will be missing",
            remedies.NO_CUPTI,
        ),
        (
            "CuptiCallbackApi.cpp:78] cuptiSubscribe failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)",
            remedies.TAKEN,
        ),
    ],
)
def test_what_cupti_refuses_is_named_with_its_remedy(
    gpu, record, monkeypatch, capfd, method, line, sentence
):
    logging(gpu, monkeypatch, method, f"WARNING:{LOG} {line}")
    recording = record(lambda: Training(gpu).run(2))
    assert text_of(recording.info.notes, "gpu_not_recorded") == sentence
    assert "the host is still recorded" in sentence
    assert counts(recording)["aten::addmm"] == 4
    assert len(steps(recording)) == 2
    # The recorder's own words are not lost.
    assert line in capfd.readouterr().err


def test_a_build_without_cupti_is_named(torch, record, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call: None)
    recording = record(lambda: Training(torch).run(1))
    assert text_of(recording.info.notes, "gpu_not_recorded") == remedies.NO_CUPTI
    assert len(steps(recording)) == 1


def test_a_gpu_that_is_there_gets_no_note(gpu, record):
    assert keys(record(lambda: Training(gpu).run(1)).info.notes) == ["step_origins"]


@pytest.mark.parametrize(
    ("cuda", "visible", "there", "expected"),
    [
        ("12.8", None, True, remedies.NO_GPU_SEEN),
        ("12.8", "", True, remedies.HIDDEN.format(value="")),
        ("12.8", "-1", True, remedies.HIDDEN.format(value="-1")),
        ("12.8", "0", False, remedies.NO_GPU_SEEN),
        (None, None, True, "is built without CUDA although there is an NVIDIA GPU"),
        (None, None, False, None),
    ],
)
def test_a_gpu_that_is_not_seen_is_named(
    torch, record, monkeypatch, cuda, visible, there, expected
):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(remedies, "nvidia_gpu", lambda: there)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    notes = record(lambda: Training(torch).run(1)).info.notes
    if expected is None:
        assert keys(notes) == ["step_origins"]
    else:
        assert expected in text_of(notes, "gpu_not_seen")


@pytest.fixture
def allocator(gpu, monkeypatch):
    """The calls of the CUDA allocator that remember and write its history; gives what was
    called.
    """
    calls = []

    def remember(enabled="all", **options):
        calls.append(("remember", enabled, options))

    def write(path):
        calls.append(("write", path))
        Path(path).write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))

    monkeypatch.setattr(gpu.cuda.memory, "_record_memory_history", remember)
    monkeypatch.setattr(gpu.cuda.memory, "_dump_snapshot", write)
    return calls


def test_the_history_of_the_allocator_lies_beside_the_trace(gpu, allocator, record, monkeypatch):
    waiting = []
    monkeypatch.setattr(gpu.cuda, "_lazy_call", waiting.append)

    def run():
        assert allocator == []
        # The cell initialises CUDA.
        waiting.pop()()
        Training(gpu).run(2)

    recording = record(run)
    assert [call[0] for call in allocator] == ["remember", "write", "remember"]
    assert allocator[0][1] == "all"
    assert allocator[2][1] is None
    (snapshot,) = recording.path.glob("*.memory_snapshot.pickle")
    assert snapshot.name in text_of(recording.info.notes, "allocator_history")
    # It is no second profile.
    assert len(nbprof.runs(recording.path)) == 1
    assert len(nbprof.load(recording.path).steps.frame) == 2


@pytest.mark.parametrize("options", [{"memory": False}, {}])
def test_no_history_without_allocations_or_before_cuda_is_used(gpu, allocator, record, options):
    recording = record(lambda: Training(gpu).run(1), **options)
    assert allocator == []
    assert not list(recording.path.glob("*.pickle"))


def test_cuda_that_is_first_used_after_the_recording_is_left_alone(
    gpu, allocator, record, monkeypatch
):
    waiting = []
    monkeypatch.setattr(gpu.cuda, "_lazy_call", waiting.append)
    record(lambda: Training(gpu).run(1))
    waiting.pop()()
    assert allocator == []


def test_a_history_of_the_persons_own_is_left_alone(gpu, allocator, record, monkeypatch):
    monkeypatch.setattr(gpu.cuda, "_lazy_call", lambda call: call())
    monkeypatch.setattr(gpu._C, "_cuda_isHistoryEnabled", lambda: True, raising=False)
    record(lambda: Training(gpu).run(1))
    assert allocator == []


def test_a_history_that_fails_costs_no_recording(gpu, allocator, record, monkeypatch):
    def refuse(path):
        raise RuntimeError("no room")

    monkeypatch.setattr(gpu.cuda, "_lazy_call", lambda call: call())
    monkeypatch.setattr(gpu.cuda.memory, "_dump_snapshot", refuse)
    recording = record(lambda: Training(gpu).run(2))
    assert len(steps(recording)) == 2
    text = text_of(recording.info.notes, "allocator_history_failed")
    assert "could not be written: RuntimeError: no room" in text
    assert allocator[-1][1] is None


def test_a_history_that_does_not_begin_costs_no_recording(gpu, allocator, record, monkeypatch):
    def refuse(call):
        raise RuntimeError("the driver is too old")

    monkeypatch.setattr(gpu.cuda, "_lazy_call", refuse)
    recording = record(lambda: Training(gpu).run(2))
    assert len(steps(recording)) == 2
    text = text_of(recording.info.notes, "allocator_history_failed")
    assert "could not be recorded: RuntimeError: the driver is too old" in text


def test_a_recording_that_fails_as_it_begins_leaves_no_profiler_running(torch, record, monkeypatch):
    def refuse(threads):
        raise RuntimeError("no more threads")

    with monkeypatch.context() as broken:
        broken.setattr(OtherThreads, "start", refuse)
        with pytest.raises(CaptureError, match="did not start: no more threads"):
            record(lambda: Training(torch).run(2))
    assert len(steps(record(lambda: Training(torch).run(2)))) == 2


def test_out_of_memory_of_a_gpu_is_raised_untouched(gpu, allocator, place, monkeypatch):
    monkeypatch.setattr(gpu.cuda, "_lazy_call", lambda call: call())
    error = gpu.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    training = Training(gpu)
    run = nbprof.profile(backend="torch")

    def cell():
        with run:
            training.run(2)
            training.backward()
            raise error

    with pytest.raises(gpu.OutOfMemoryError) as caught:
        cell()
    assert caught.value is error
    assert error.__cause__ is None
    assert run.run.capture.out_of_memory
    assert "OutOfMemoryError: CUDA out of memory" in run.run.capture.error
    assert len(run.memory.timeline) > 10
    assert len(run.steps.frame) == 2
    assert [call[0] for call in allocator] == ["remember", "write", "remember"]


def test_stderr_of_others_is_passed_on(capfd):
    with stderr_lines() as lines:
        os.write(2, f"USDT:{LOG} SyncActivityProfilerHandler.cpp:52] profiler_start\n".encode())
        os.write(2, f"ERROR:{LOG} DeviceProperties.cpp:56] {NO_DRIVER}\n".encode())
        os.write(2, b"theirs\n")
        print("Python's", file=sys.__stderr__, flush=True)
    assert len(lines) == 4
    assert capfd.readouterr().err == "theirs\nPython's\n"


def test_without_a_stderr_nothing_is_collected(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with stderr_lines() as lines:
        pass
    assert lines == []


def test_a_profiler_that_does_not_start_says_why(torch, place, monkeypatch):
    def refuse(self):
        raise RuntimeError("Kineto is not in this build")

    monkeypatch.setattr(
        importlib.import_module("torch.autograd.profiler").profile, "_start_trace", refuse
    )
    with (
        pytest.warns(RuntimeWarning, match="Kineto is not in this build"),
        nbprof.profile(backend="torch") as run,
    ):
        Training(torch).run(1)
    assert run.result is None


def test_a_disk_that_is_full_is_named(torch, place, monkeypatch):
    trace = importlib.import_module("nbprof.capture.torch_trace")

    def full(plain, packed, marks, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trace, "pack", full)
    with (
        pytest.warns(RuntimeWarning, match="No space left on device"),
        nbprof.profile(backend="torch"),
    ):
        Training(torch).run(1)
    left = [path for path in place.rglob("*") if path.is_file() and path.name != ".gitignore"]
    assert left == []


@pytest.mark.parametrize(
    ("free", "why"),
    [
        (4096, "No space left on device, 4.0 KiB are free; the disk is full, or limited: choose"),
        (1 << 40, "it gives no reason"),
    ],
)
def test_a_trace_that_pytorch_does_not_write_is_no_missing_file(
    torch, place, monkeypatch, free, why
):
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", lambda *_: None)
    usage = importlib.import_module("shutil").disk_usage
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(path)._replace(free=free))
    with (
        pytest.warns(RuntimeWarning, match=f"PyTorch wrote no trace to .*: {why}"),
        nbprof.profile(backend="torch"),
    ):
        Training(torch).run(1)
    assert not [path for path in place.rglob("*") if path.is_file() and path.name != ".gitignore"]
