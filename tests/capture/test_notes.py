"""The sentences of the notes on a recording, and how they are stored."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import SimpleNamespace

from nbprof.capture import notes
from nbprof.core import remedies
from nbprof.core.receipt import info, warning
from nbprof.sources.recording import CaptureInfo

ERROR = RuntimeError("no")
FULL = OSError(28, "No space left on device")
PASS = SimpleNamespace(batches=3, began=0, over=2 * 10**9)
GOLDEN = Path(__file__).with_name("notes.txt")
NO_NOTES = {"_why_no_report", "cause", "infos", "listed", "plural", "pools", "workers"}
ALL = [
    notes.step_origins({"batches of Keras": 3}),
    notes.step_origins({"marked by nbprof.steps": 3000, "marked by nbprof.step": 1}),
    notes.steps_not_marked(4, "RuntimeError: no"),
    notes.keras_steps_not_marked(ERROR),
    notes.batches_per_step(4),
    notes.steps_not_reached(3, 20, 4),
    notes.steps_without_update(1),
    notes.steps_without_update(1200),
    notes.evaluation_passes([PASS, PASS]),
    notes.evaluation_mode(1, 0.2),
    notes.evaluation_mode(2, 70),
    notes.between_trainings([0.5]),
    notes.between_trainings([0.5, 1.5]),
    notes.framework_not_recorded("PyTorch", "RuntimeError: no"),
    notes.framework_refused("JAX", ERROR),
    notes.nothing_ran("PyTorch"),
    notes.other_framework_used("PyTorch", "torch"),
    notes.other_frameworks_imported("JAX", {"torch": "PyTorch"}),
    notes.other_frameworks_imported("JAX", {"tensorflow": "TensorFlow", "torch": "PyTorch"}),
    notes.recorded_separately("PyTorch", Path("runs/a_torch")),
    notes.own_profiler_started("JAX", 0),
    notes.own_profiler_started("JAX", 4),
    notes.profiler_suspended(["theirs", "cProfile.Profile", "theirs"]),
    notes.threads_not_recorded(["a"]),
    notes.threads_not_recorded(["a", "b", "c", "d"]),
    notes.optimizer_thread_not_recorded(),
    notes.npu_optimizer_thread_not_recorded(),
    notes.no_host_events(),
    notes.device_still_busy("30 s"),
    notes.recording_ended("5 s passed", 1000, in_step=True),
    notes.recording_ended("5 s passed", 0, in_step=True),
    notes.recording_ended("5 s passed", 0, in_step=False),
    notes.recorded_enough(
        (1, 24), "22 steps after warm-up had taken 3.1 s", {"train": 1976}, "cell"
    ),
    notes.recorded_enough(
        (1, 3), "steps after warm-up had taken 15 s", {"train": 9, "test": 2}, "block"
    ),
    notes.recorded_enough((2, 24), "steps after warm-up had taken 10 s", {}, "cell"),
    notes.no_further_window("5 s passed"),
    notes.recording_not_ended("5 s passed", "PyTorch"),
    notes.bounds_failed(ERROR),
    notes.window_not_recorded("no space"),
    notes.info_not_written("run", FULL),
    notes.info_not_written("run", FULL, has_old=True),
    notes.logdir_not_writable(Path("logs"), Path("other"), FULL),
    notes.run_moved("the disk is full", Path("other")),
    notes.lines_not_timed(ERROR),
    notes.loops_not_timed(ERROR),
    notes.stacks_not_sampled(ERROR),
    notes.stacks_not_sampled_without_gil(),
    notes.stacks_sampled_in_part(ERROR),
    notes.library_calls_not_recorded({"compilation": 1, "import": 30}, 2.5),
    notes.allocator_history("host.memory_snapshot.pickle"),
    notes.allocator_history_failed("it could not be written", ERROR),
    notes.npu_not_recorded("no space"),
    notes.npu_refused("torch_npu", ERROR),
    notes.own_npu_profiler("its options", "they are left unchanged"),
    notes.npu_recorded_separately(remedies.ADAPTER_DEVICE, Path("logs")),
    *notes.torch_npu_messages(["Some data is lost."]),
    notes.missing_worker("a:1", "nothing listens on this port"),
    notes.repeated_address("a:1"),
    notes.workers_not_recorded(PermissionError(13, "Permission denied")),
    notes.workers_not_reached(1, 2),
    notes.workers_ended_early(1),
    notes.compilations_not_recorded("PyTorch", AttributeError("no such hook")),
    notes.pools_not_recorded(PermissionError(13, "Permission denied")),
    notes.pool_workers_ended_early(1),
    notes.workers_sampled("1 of 2 workers", 0.02),
    notes.workers_sampled("torch://a:1", 2, over="nbprof.serve"),
    notes.python_of_one_worker(),
    notes.stopped_early(1.25, 120),
    notes.late_worker("a:1", "on attempt 2", "nothing happened there"),
    *notes.without_npu(["--aic-metrics"]),
    notes.without_effect("--python has no effect"),
    *notes.gpu_not_recorded(["CUPTI initialization failed"]),
    notes.children_not_recorded(["python train.py"], "cell"),
    notes.children_not_recorded(["Process-1", "Process-2"], "script"),
    notes.ray_workers_not_recorded(),
    notes.children_refused("the run is not saved"),
    notes.children_still_run(2, "cell", "logs/run"),
]


def test_the_sentences():
    lines = [f"{note.key} ({note.level}): {note.text}" for note in ALL]
    assert "\n".join(lines) + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_each_function_has_an_example():
    source = inspect.getsource(inspect.getmodule(test_the_sentences))
    functions = inspect.getmembers(notes, inspect.isfunction)
    made_here = {name for name, function in functions if function.__module__ == notes.__name__}
    for name in made_here - NO_NOTES:
        assert f"notes.{name}(" in source, name


def test_notes_are_stored_with_their_keys():
    written = CaptureInfo(
        notes=[info("nothing_ran", "nothing ran")], warnings=[warning("missing_worker", "a:1")]
    )
    stored = json.loads(json.dumps(written.to_dict()))
    assert stored["notes"] == [{"key": "nothing_ran", "text": "nothing ran"}]
    assert CaptureInfo.from_dict(stored) == written


def test_notes_of_earlier_versions_are_read():
    earlier = {
        "notes": ["a note", "steps: 3 runs of train, 12 batches of Keras", remedies.ALL_THREADS, 4],
        "warnings": ["w", None],
    }
    read = CaptureInfo.from_dict(earlier)
    assert read.notes == [
        info("recorded_earlier", "a note"),
        info("keras_steps", "steps: 3 runs of train, 12 batches of Keras"),
        info("allocations_not_recorded", remedies.ALL_THREADS),
    ]
    assert read.warnings == [warning("recorded_earlier", "w")]
    assert read.of_keras


def test_damaged_notes_are_left_out():
    damaged = [
        {"key": "a"},
        {"text": "b"},
        {"key": 1, "text": "c"},
        {"key": "", "text": "d"},
        [],
        1,
    ]
    read = CaptureInfo.from_dict({"notes": damaged})
    assert read.notes == [info("recorded_earlier", "d")]
