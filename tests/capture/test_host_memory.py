"""Host memory of the recorded process and its children over a cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nbprof.capture import host_memory
from nbprof.capture.host_memory import HostMemoryRecorder, _Rows
from nbprof.capture.session import Session
from nbprof.core.host_memory import LOADER_WORKER, UNKNOWN, HostMemory

linux = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="reads /proc, which Linux has"
)
MIB = 2**20


def taken(recorder: HostMemoryRecorder) -> HostMemory:
    """What is read back of a recorder that has ended."""
    memory = HostMemory.unpacked(json.loads(json.dumps(recorder.packed())))
    assert memory is not None
    return memory


def until(condition, seconds=60):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


ALONE = """
import json, os, sys, time
import numpy as np
from nbprof.capture.host_memory import HostMemoryRecorder

recorder = HostMemoryRecorder(time.perf_counter_ns(), period_s=0.01)
recorder.start()
block = np.ones(96 << 20, np.uint8)
recorder.stop()
print(json.dumps([os.getpid(), block.nbytes, recorder.packed()]))
"""
"""A process of its own: what earlier tests left in this one may be freed meanwhile."""


@linux
def test_what_the_process_takes_is_seen_and_the_highest_is_exact():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    number, taken_bytes, packed = json.loads(done.stdout)
    memory = HostMemory.unpacked(packed)
    assert memory is not None
    assert [process.number for process in memory.processes] == [number]
    assert (np.diff(memory.time) >= 0).all()
    assert memory.resident[-1] - memory.resident[0] >= taken_bytes - 6 * MIB
    assert (memory.shared < memory.resident).all()
    assert (memory.pinned == UNKNOWN).all()
    # The kernel counts the pages of each core on its own, and adds them up now and then.
    assert memory.peak >= memory.resident.max() - 4 * MIB
    assert memory.capacity > memory.resident.max()


@linux
def test_children_are_seen_with_names_and_shares():
    code = "import sys; x = bytearray(64 << 20); print(len(x), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline().strip() == str(64 * MIB)
        recorder = HostMemoryRecorder(
            time.perf_counter_ns(), workers=lambda: {child.pid}, period_s=0.01
        )
        recorder.start()
        until(lambda: any(recorder._rows.columns[1]))
        recorder.stop()
        child.stdin.close()
    memory = taken(recorder)
    names = {process.number: process.name for process in memory.processes}
    assert names[child.pid] == LOADER_WORKER
    own = memory.process == [process.number for process in memory.processes].index(child.pid)
    assert memory.resident[own].min() >= 60 * MIB
    known = memory.proportional[own]
    known = known[known != UNKNOWN]
    assert (known <= memory.resident[own].max()).all()


@linux
def test_a_child_that_has_ended_is_left_out(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    recorder = HostMemoryRecorder(time.perf_counter_ns())
    recorder._children = [child.pid]
    recorder._sample()
    recorder._sample()
    assert set(recorder._rows.columns[1]) == {0}


def test_many_samples_are_thinned_and_the_highest_stay():
    rows = _Rows()
    for moment in range(1000):
        resident = 10_000 if moment == 501 else moment
        rows.add(moment, 0, resident, 0, -1, -1)
        rows.add(moment, 1, 1, 0, -1, -1)
    rows.thin(200)
    times = rows.columns[0]
    assert len(rows) <= 204
    assert {0, 501, 999} <= set(times)
    # Both processes of each moment that is kept.
    assert [list(times).count(time_ns) for time_ns in set(times)] == [2] * len(set(times))


def test_a_long_cell_stores_no_more_than_it_may():
    recorder = HostMemoryRecorder(time.perf_counter_ns(), limit=50)
    for _ in range(400):
        recorder._sample()
    assert len(recorder._rows) <= 50
    assert recorder._period_s > host_memory.PERIOD_S
    assert len(taken(recorder)) == len(recorder._rows)


def test_pinned_memory_is_that_of_the_allocator_once_a_gpu_is_used(monkeypatch):
    used = {"is": False}
    cuda = SimpleNamespace(
        is_initialized=lambda: used["is"],
        host_memory_stats_as_nested_dict=lambda: {"allocated_bytes": {"current": 4096}},
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert host_memory._pinned() == UNKNOWN
    used["is"] = True
    assert host_memory._pinned() == 4096
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert host_memory._pinned() == UNKNOWN


def test_it_never_fails_the_cell(monkeypatch):
    def fails(*_, **__):
        raise OSError("no /proc")

    monkeypatch.setattr(host_memory, "_resident", fails)
    recorder = HostMemoryRecorder(time.perf_counter_ns())
    recorder.start()
    recorder.stop()
    assert recorder.packed() == {}


def test_a_recording_has_it_from_the_begin_to_the_end_of_the_cell():
    from nbprof.capture.options import Options

    session = Session(Options(backend="python")).start()
    sum(range(1000))
    recording = session.stop()
    memory = HostMemory.unpacked(recording.info.host_memory)
    assert memory is not None
    assert len(np.unique(memory.time)) >= 2
    assert memory.processes[0].number == os.getpid()


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2},
        {"rows": -1},
        {"rows": 10**9},
        {"columns": "x"},
        {"processes": []},
        {"processes": [["1", ""]]},
        {"processes": [[1, "x" * 101]]},
        {"peak": -5},
        {"capacity": "much"},
    ],
)
def test_damaged_samples_are_none(damage):
    recorder = HostMemoryRecorder(time.perf_counter_ns())
    recorder._sample()
    packed = recorder.packed()
    assert HostMemory.unpacked(packed) is not None
    assert HostMemory.unpacked({**packed, **damage}) is None
