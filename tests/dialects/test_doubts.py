"""What the receipt says of profiles whose events do not hang together."""

import json

import pytest

from nbprof.profiles.load import load
from tests.support import pods
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, xspace

DETAIL = "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75"


def run(launched, ran, hostname="host-a", at=0, wait=()):
    """A host thread that launches kernels by correlation id, and a stream that ran some: (id, start
    ms, length ms).
    """
    gpu = PlaneWriter("/device:GPU:0", {"compute_cap_major": 8, "compute_cap_minor": 0})
    gpu.line(
        "Stream #7(Compute)",
        [
            gpu.event(
                "gemm",
                at + int(start * MS),
                int(length * MS),
                correlation_id=i,
                kernel_details=DETAIL,
            )
            for i, start, length in ran
        ],
        line_id=7,
    )
    host = PlaneWriter("/host:CPU")
    calls = [host.event("cuLaunchKernel", at + i * MS, MS // 2, correlation_id=i) for i in launched]
    calls += [
        host.event("cuStreamSynchronize", at + (50 + i) * MS, MS // 2, correlation_id=i)
        for i in wait
    ]
    host.line("python", calls, line_id=1)
    return xspace(gpu, host, hostname=hostname)


def told(p):
    return [(n.level, n.text) for n in p.receipt.lines if "view" not in n.text]


def doubts(p):
    """Notes of the activity but the one that says what its unit is."""
    return [note for note in p.run.activity.notes if note.key != "unit_of_figures"]


def test_launches_without_kernels_are_counted_and_waits_are_none(tmp_path):
    p = profile(
        tmp_path, run(launched=[1, 2, 3, 4], ran=[(1, 2, 1), (2, 4, 1), (3, 6, 1)], wait=[90, 91])
    )
    assert ("warning", "1 of 4 launches (25 %) have no device activity in this profile") in [
        (a, b.partition(":")[0]) for a, b in told(p)
    ]
    table = p.run.activity.launches.frame()
    assert sorted(table["target"].tolist()).count(-1) == 3  # one launch, two waits


def test_kernels_without_launches_are_counted(tmp_path):
    p = profile(tmp_path, run(launched=[1], ran=[(1, 2, 1), (7, 4, 1)]))
    assert ("warning", "1 of 2 device events (50 %) have no launch in this profile") in [
        (a, b.partition(":")[0]) for a, b in told(p)
    ]


def test_a_profile_that_hangs_together_has_no_doubts(tmp_path):
    p = profile(tmp_path, run(launched=[1, 2], ran=[(1, 2, 1), (2, 3, 1)]))
    assert doubts(p) == []


def test_kernels_that_overlap_on_one_stream_are_told_with_the_overlap_and_kept(tmp_path):
    p = profile(tmp_path, run(launched=[1, 2], ran=[(1, 2, 1), (2, 2.5, 1)]))
    (note,) = doubts(p)
    assert note.text.startswith(
        "1 device event starts before the previous one has ended (by 500.000 µs)"
    )
    assert p.kernels.frame["occurrences"].sum() == 2


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (
            run([1], [(1, 2, 1)], "host-b", at=10**6 * MS),
            "hosts_at_other_times",
        ),
        (run([], [], "host-b"), "hosts_without_events"),
        (run([1], [], "host-b"), "hosts_without_device"),
        (run([1], [(1, 2, 1)], "host-b"), None),
    ],
)
@pytest.mark.parametrize("workers", [None, 1])
def test_hosts_that_do_not_fit_the_others_are_told(tmp_path, second, expected, workers):
    (tmp_path / "a.xplane.pb").write_bytes(run([1], [(1, 2, 1)]))
    (tmp_path / "b.xplane.pb").write_bytes(second)
    notes = load(tmp_path, executor=workers).receipt.notes
    keys = [key for key in notes["key"] if key.startswith("hosts_")]
    assert keys == ([expected] if expected else [])


@pytest.mark.parametrize("workers", [None, 1])
def test_a_host_whose_steps_nothing_marks_is_told(tmp_path, workers):
    pods.write(tmp_path, 2, 6)
    bare = sorted(tmp_path.iterdir())[1]
    trace = json.loads(bare.read_bytes())
    marks = ("ProfilerStep", "enumerate(DataLoader)")
    trace["traceEvents"] = [
        e for e in trace["traceEvents"] if not str(e.get("name")).startswith(marks)
    ]
    bare.write_text(json.dumps(trace))
    p = load(tmp_path, executor=workers)
    assert set(p.steps.frame["host"]) == {"rank 0"}
    assert "hosts_without_steps" in set(p.receipt.notes["key"])
