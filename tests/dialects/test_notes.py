"""The sentences of the notes of dialects and programs, as `notes.txt` has them.

`python -m tests.dialects.test_notes` writes the file anew.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from nbprof.core.receipt import Note
from nbprof.dialects import notes as shared
from nbprof.dialects.gpu import notes as gpu
from nbprof.dialects.msprof import notes as msprof
from nbprof.dialects.xplane import notes as xplane
from nbprof.hlo import notes as hlo

GOLDEN = Path(__file__).with_name("notes.txt")
MODULES = (shared, gpu, msprof, xplane, hlo)
NAMES = [f"step {number}" for number in range(1, 7)]
ON = " of host-a"


def replaced(count: int, event_kind: str = "device event") -> shared.Replaced:
    return shared.Replaced(
        event_kind, count, "3 on stream 7", "gemm", "5.00 ms", "4.00 ms", "the recording had ended"
    )


def lost(count: int, *, complete: bool) -> gpu.LostWork:
    return gpu.LostWork(ON, NAMES[:count], complete)


OVERHEAD = [gpu.Overhead("flush", 3, 4_000_000_000), gpu.Overhead("init", 1, 9_000_000_000)]
NOTES = [
    shared.overlapping_events("device event", 1, 4, 1, 500.0),
    shared.overlapping_events("device event", 3, 1_000, 2, 0.001),
    shared.device_clocks(["GPU 0: 3.00 ms behind"]),
    shared.device_clocks([f"rank {rank}, GPU 0: 1.50 ms ahead" for rank in range(5)]),
    shared.no_device_durations(192, "192 on GPU 0, stream 7"),
    shared.lost_launches(1, 4),
    shared.lost_launches(1, 100),
    shared.unlaunched_work(1, 2),
    shared.unlaunched_work(10, 1_000),
    shared.lost_kernels(1, "they were not recorded."),
    shared.lost_kernels(1_200, "they were not recorded."),
    shared.hosts_without_events(["a"]),
    shared.hosts_without_device(["a", "b"]),
    shared.hosts_without_steps(["a", "b", "c"]),
    shared.hosts_at_other_times(["a", "b", "c", "d", "e"], all_hosts=False),
    shared.hosts_at_other_times(["a", "b"], all_hosts=True),
    shared.impossible_times(1, "1 on stream 7", "2.00 ms", "long before {their} launch"),
    shared.impossible_times(2, "2 on stream 7", "2.00 ms", "long before {their} launch"),
    shared.impossible_durations(replaced(1)),
    shared.impossible_durations(replaced(3, "event of the host")),
    gpu.steps_by_engine("", 1_000, "annotations"),
    gpu.steps_by_optimizer(ON, 3),
    gpu.steps_by_batches("", 3),
    gpu.steps_by_ranges("", 1_000, "NVTX ranges", "step N", []),
    gpu.steps_by_ranges(ON, 4, "NVTX ranges", "step N", ["batch N", "iter N"]),
    gpu.steps_without_time("", NAMES[:1], device_work=True),
    gpu.steps_without_time(ON, NAMES, device_work=False),
    gpu.truncated_steps("", 1, "it has no work"),
    gpu.truncated_steps(ON, 2, "they have no work"),
    gpu.lost_work(lost(1, complete=True), 10, 10, []),
    gpu.lost_work(lost(6, complete=True), 1_000, 2_000, NAMES[:1]),
    gpu.lost_work(lost(2, complete=False), 14, 20, NAMES),
    gpu.unrecorded_steps(lost(3, complete=True)),
    gpu.unread_steps(lost(3, complete=True)),
    gpu.unread_steps(lost(1, complete=False)),
    gpu.first_collectives(1, "AllReduce; 1 on stream 20", "2.00 s", "1.90 s"),
    gpu.first_collectives(1_000, "AllReduce; 1,000 on stream 20", "2.00 s", "90.00 s"),
    gpu.batches_per_step(4),
    gpu.equal_ranks(0, NAMES),
    gpu.copied_files("a", ["b"]),
    gpu.copied_files("a", ["b", "c"]),
    gpu.copies_without_work(1),
    gpu.copies_without_work(5),
    gpu.mtia_copies(1),
    gpu.mtia_copies(6),
    gpu.no_runtime_calls(),
    gpu.work_without_op(1, 2),
    gpu.unknown_category("hpu_op", 4),
    gpu.launch_spans(1, "hipGraphLaunch", "59.00 ms", "GPU 0, stream 9"),
    gpu.launch_spans(2, "hipGraphLaunch", "59.00 ms", "GPU 0, stream 9"),
    gpu.captured_calls(1, 1, 0.8),
    gpu.captured_calls(41, 2, 0.8),
    gpu.graph_replays(1, 1, 1, ["its nodes are unknown"]),
    gpu.graph_replays(12, 2, 1_000, ["these are known", "those are unknown"]),
    gpu.unmatched_annotations(1),
    gpu.attributed_time("Kernel time", {"an op": 1.0, "a line of code": 0.0}, " Remedy."),
    gpu.attributed_time("Op time", {"an op": 0.99999, "a line of code": 0.00001}, ""),
    gpu.overlapping_work(1, 2.0),
    gpu.overlapping_work(2, 2.0),
    gpu.clipped_ops(1, 1_000.0, 2),
    gpu.profiler_message("CUPTI dropped\n12 records", ""),
    gpu.profiler_message("CUPTI dropped 12 records", "host-a"),
    gpu.more_profiler_messages(1_000),
    gpu.profiler_overhead(OVERHEAD, 100_000_000_000),
    gpu.profiler_overhead(OVERHEAD, 100_000_000_000_000),
    gpu.memory_without_totals(),
    gpu.out_of_memory(1),
    gpu.unrecorded_gpu("communicates by NCCL", "the GPU was not recorded."),
    gpu.unknown_gpu_use(1),
    gpu.unknown_gpu_use(8),
    msprof.startup_iterations(ON, 2),
    msprof.startup_iterations("", 4),
    msprof.other_iterations("", "model 2", 1_000),
    msprof.steps_by_kernels(),
    msprof.tasks_without_call(1, 8),
    msprof.carrier_tasks(3, 2.5),
    msprof.copies_without_direction(1_000),
    msprof.ignored_allocations("operator_memory.csv", 1),
    msprof.ignored_allocations("operator_memory.csv", 2),
    msprof.memory_samples_only(),
    msprof.contradicted_tables(1),
    msprof.contradicted_tables(2),
    xplane.steps_by_programs("steps: runs of the program jit_f", ""),
    xplane.steps_by_programs("steps: runs of the program jit_f", "host-a"),
    xplane.steps_dispatched_ahead(),
    xplane.lost_ops(),
    xplane.steps_without_time(1),
    xplane.steps_without_time(2),
    xplane.eager_calls(1),
    xplane.eager_calls(1_000),
    xplane.repeated_device("host-a", "0"),
    hlo.damaged_program("jit_f", "the file is truncated"),
    hlo.more_damaged_programs(1_000),
    hlo.equal_program_ids(["jit_f"]),
    hlo.equal_program_ids(["jit_f", "jit_g", "jit_h", "jit_i"]),
    hlo.missing_programs(1),
    hlo.missing_programs(2),
]


def lines() -> list[str]:
    return [f"{note.key} ({note.level}): {note.text}" for note in NOTES]


def test_the_sentences_are_these() -> None:
    assert lines() == GOLDEN.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_each_note_is_among_them(module) -> None:
    source = inspect.getsource(inspect.getmodule(lines))
    for name, function in inspect.getmembers(module, inspect.isfunction):
        makes_note = inspect.signature(function).return_annotation in (Note, "Note")
        if makes_note and function.__module__ == module.__name__ and not name.startswith("_"):
            assert f".{name}(" in source, name


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(lines()) + "\n", encoding="utf-8")
