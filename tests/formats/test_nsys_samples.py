"""What Nsight Systems saw of threads from outside: samples with their call stacks, and when each
was on a CPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nbprof
from nbprof.formats.nsys.samples import MOST_CALLS
from tests.formats.test_nsys import args_of, loaded
from tests.support import nsys
from tests.support.notes import numbers, of_key
from tests.support.nsys import US, Export

TORCH, PYTHON = "/opt/lib/libtorch_cpu.so", "/usr/bin/python3.11"


def sampled() -> Export:
    """Two steps, with samples of the main thread, of one of autograd's and of a process without a
    GPU.
    """
    export = nsys.training(2)
    del export.tables["COMPOSITE_EVENTS"]
    t = 500 * US
    export.sample(t, f"at::empty@{TORCH}", f"at::add@{TORCH}", f"_PyEval_EvalFrameDefault@{PYTHON}")
    export.sample(t + US, "0x7f001@/usr/lib/libcuda.so.1", f"at::add@{TORCH}")
    export.sample(t + 2 * US, "0x7f002@/usr/lib/libcuda.so.1", f"at::add@{TORCH}")
    export.sample(t + 3 * US, "[Broken backtraces]", f"at::mul@{TORCH}")
    export.sample(t + 4 * US)
    export.sample(t + 5 * US, f"at::mm@{TORCH}", tid=4330)
    export.sample(t + 6 * US, "decode@/opt/lib/libjpeg.so", pid=4400, tid=4400)
    export.sample(t + 7 * US, "futex_wait@[kernel.kallsyms]", cycles=0)
    return export


def drawn(profile: nbprof.Profile, ending: str) -> dict[str, list[tuple[str, float, float]]]:
    """Names, starts and durations (µs) of the events of each lane whose name ends so."""
    trace = profile.run.trace
    lanes = trace.lanes[trace.lanes["thread"].str.endswith(ending)]
    out = {}
    for lane, process, thread in lanes[["lane", "process", "thread"]].to_numpy().tolist():
        rows = np.flatnonzero(trace.events.lane == lane)
        events = trace.events
        of_row = [
            (
                str(trace.names[events.name[r]]),
                float(events.start[r] / 1e6),
                float(events.duration[r] / 1e6),
            )
            for r in rows
        ]
        out[f"{process}/{thread}"] = of_row
    return out


def test_each_sampled_thread_has_a_lane_of_what_it_ran(tmp_path: Path) -> None:
    profile = loaded(sampled(), tmp_path)
    # An address without a symbol tells its file; below what the recorder put in, and without a
    # stack, nobody knows what ran.
    names = [[name for name, _, _ in rows] for rows in drawn(profile, "samples").values()]
    assert names == [
        ["at::empty", "[libcuda.so.1]", "[libcuda.so.1]", "CPU sample", "CPU sample"],
        ["at::mm"],
        ["decode"],
    ]
    assert list(drawn(profile, "samples")) == [
        "Host/main thread: samples",
        "Host/thread 4330: samples",
        "Host/thread 4400: samples",
    ]
    found = args_of(profile.run.trace, "at::empty")
    stack = "at::empty (libtorch_cpu.so)\nat::add (libtorch_cpu.so)\n_PyEval_EvalFrameDefault (python3.11)"
    assert found == {
        "cat": "cpu_sample",
        "ph": "i",
        "cpu": 3,
        "module": "libtorch_cpu.so",
        "call stack": stack,
    }
    assert (
        args_of(profile.run.trace, "CPU sample")["call stack"]
        == "[Broken backtraces]\nat::mul (libtorch_cpu.so)"
    )
    assert numbers(profile.receipt, "cpu_samples") == [7, 5, 3]
    assert numbers(profile.receipt, "thread_switch_stacks") == [1]
    assert not of_key(profile.receipt, "unread_tables")


def test_samples_are_no_work_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain, seen = nsys.training(2), sampled()
    del plain.tables["COMPOSITE_EVENTS"]
    for thread in (4321, 4330):
        seen.switch(505 * US, 1, tid=thread)
        seen.switch(695 * US, 0, tid=thread)
    one, other = loaded(plain, tmp_path / "plain"), loaded(seen, tmp_path)
    for name in ("steps", "kernels", "ops"):
        assert getattr(one, name).frame.equals(getattr(other, name).frame), name
    figures = [
        {key: value for key, value in p.run.overview.items() if key != "run_facts"}
        for p in (one, other)
    ]
    assert str(figures[0]) == str(figures[1])
    gaps = [p.trace.gaps()["meanwhile"].tolist() for p in (one, other)]
    assert gaps[0] == gaps[1]
    assert "at::mm" in other.trace.find("at::mm")["name"].tolist()


def test_lanes_of_a_thread_stand_together(tmp_path: Path) -> None:
    export = sampled()
    export.switch(505 * US, 1)
    export.switch(520 * US, 0)
    lanes = loaded(export, tmp_path).trace.lanes
    host = lanes[lanes["process"] == "Host"]["thread"].tolist()
    at = host.index("main thread")
    assert host[at : at + 3] == ["main thread", "main thread: on CPU", "main thread: samples"]


def test_a_deep_stack_is_cut_and_says_so(tmp_path: Path) -> None:
    export = nsys.training(2)
    calls = [f"f{i}@{TORCH}" for i in range(MOST_CALLS + 5)]
    export.sample(500 * US, *calls[:MOST_CALLS])
    export.sample(510 * US, *["g@x", *calls[1:]])
    trace = loaded(export, tmp_path).run.trace
    whole, cut = (str(args_of(trace, name)["call stack"]).split("\n") for name in ("f0", "g"))
    assert (len(whole), whole[-1]) == (MOST_CALLS, f"f{MOST_CALLS - 1} (libtorch_cpu.so)")
    assert (len(cut), cut[-2:]) == (MOST_CALLS, [f"f{MOST_CALLS - 2} (libtorch_cpu.so)", "…"])


def test_only_both_ends_tell_when_a_thread_was_on_a_cpu(tmp_path: Path) -> None:
    export = nsys.training(2)
    export.add("ENUM_SAMPLING_THREAD_STATE", id=2, name="Interruptible", label="Interruptible")
    export.add("ENUM_SCHEDULING_THREAD_BLOCK", id=4, name="Resource", label="Resource")
    t = 500 * US
    export.switch(t, 0)  # on since before the recording
    export.switch(t + 10 * US, 1, threadBlock=4)
    export.switch(t + 30 * US, 0, threadState=2, threadBlock=4)
    export.switch(t + 40 * US, 1)
    export.switch(t + 50 * US, 1, cpu=5)  # when it was taken off CPU 3 is lost
    export.switch(t + 60 * US, 0, cpu=5)
    export.switch(t + 70 * US, 1)  # to the end of the recording
    export.switch(t + 10 * US, 1, pid=0, tid=0)
    export.switch(t + 20 * US, 0, pid=0, tid=0)
    profile = loaded(export, tmp_path)
    assert drawn(profile, "on CPU") == {
        "Host/main thread: on CPU": [("Running", 10.0, 20.0), ("Running", 50.0, 10.0)]
    }
    assert args_of(profile.run.trace, "Running") == {
        "cat": "on_cpu",
        "cpu": 3,
        "state after": "Interruptible",
        "reason": "Resource",
    }
    assert numbers(profile.receipt, "unpaired_switches") == [1]


def test_an_older_export_has_neither_states_nor_marks_of_frames(tmp_path: Path) -> None:
    export = sampled()
    export.switch(505 * US, 1)
    export.switch(520 * US, 0)
    export.without |= {"threadBlock", "specialEntry", "unresolved", "cpuCycles"}
    profile = loaded(export, tmp_path)
    assert args_of(profile.run.trace, "Running") == {"cat": "on_cpu", "cpu": 3}
    # Without the count of cycles nobody knows which are not by the clock.
    assert numbers(profile.receipt, "cpu_samples")[:2] == [8, 7]


def test_stacks_come_from_parquet_too(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    profile = nbprof.load(sampled().parquet(tmp_path / "report1_pqtdir"))
    assert [len(rows) for rows in drawn(profile, "samples").values()] == [5, 1, 1]
