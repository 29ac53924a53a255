"""What the workers of a loader did, in frames and in the finding on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nbprof
from nbprof.analysis.input import workers as analysis
from nbprof.core import worker_times
from nbprof.core.worker_times import bucket_of, middle_of, unpacked
from nbprof.schema import frames
from nbprof.tools.tables import heads
from tests.support.kineto import Kineto

MS = 1_000_000
FREE = {"cores": 8.0, "own_cores": 1.0, "other_cores": 0.0, "waited_percent": 1.0}


def report(worker=0, **changes):
    """What a worker reports that made 10 batches of 8 items, 4.1 of 5 ms in a transform."""
    crop = {"kind": "transform", "name": "Crop", "module": "mine", "file": "/a/b.py", "line": 31}
    dataset = {**crop, "kind": "dataset", "name": "Images", "line": 7}
    return {
        "loader": 0,
        "worker": worker,
        "items": 80,
        "batches": 10,
        "busy_ns": 400 * MS,
        "cpu_ns": 200 * MS,
        "delayed_ns": 0,
        "waiting_ns": 100 * MS,
        "timed_items": 80,
        "timed_busy_ns": 400 * MS,
        "pickle_ns": MS,
        "pickled_bytes": 4000,
        "shared_bytes": 80_000,
        "memory_bytes": 0,
        "start_ns": 20 * MS,
        "stages": [
            {**crop, "calls": 80, "total_ns": 328 * MS, "self_ns": 328 * MS, "longest_ns": 5 * MS},
            {
                **dataset,
                "calls": 80,
                "total_ns": 400 * MS,
                "self_ns": 72 * MS,
                "longest_ns": 6 * MS,
            },
        ],
        "lines": [
            [*crop.values(), "spin", "/a/b.py", 33, 9],
            [*crop.values(), "x", "/a/c.py", 1, 1],
        ],
        "histogram": {str(bucket_of(5 * MS)): 80},
        "slow": [{"item": "3", "ns": 6 * MS, "batch": 0}],
        "batch_times": [[0, 10**18, 40 * MS, 8]],
        **changes,
    }


LOADERS = [{"dataset": "Images", "workers": 2, "prefetch": 2}]


def times(*reports, loaders=LOADERS):
    return unpacked(json.loads(json.dumps(worker_times.merged(loaders, reports))))


def test_buckets_hold_their_durations():
    for took in [8, 100, 12_345, 10**6, 7 * 10**9]:
        assert middle_of(bucket_of(took)) == pytest.approx(took, rel=0.07)


def test_frames_have_the_columns_of_the_schema():
    both = times(report(), report(1, busy_ns=200 * MS, memory_bytes=5))
    workers, stages = analysis.workers(both), analysis.transforms(both, {})
    empty = times()
    for name, filled, none in [
        ("input_pipeline.workers", workers, analysis.workers(empty)),
        ("input_pipeline.transforms", stages, analysis.transforms(empty, {})),
    ]:
        declared = {column.name: column.dtype for column in frames.SCHEMA[name]}
        for frame in (filled, none):
            assert {key: str(kind) for key, kind in frame.dtypes.items()} == declared
        # A kernel has bytes of another shared memory.
        shown = {
            head.key: head.label for head in heads(name, list(declared)) if head.key != "percent"
        }
        own = {column.name: column.label for column in frames.SCHEMA[name]}
        assert shown == {key: own[key] for key in shown}
    assert workers["busy_percent"].tolist() == pytest.approx([80.0, 100 * 2 / 3])
    assert workers["batch_ms"].tolist() == pytest.approx([40.0, 20.0])
    # Unknown memory is missing.
    assert workers["memory_bytes"].isna().tolist() == [True, False]
    assert stages["stage"].tolist() == ["Crop", "Images"]
    assert stages["per_item_ms"].tolist() == pytest.approx([4.1, 0.9])
    assert stages["percent"].tolist() == pytest.approx([82.0, 18.0])
    assert stages["where"].tolist() == ["/a/b.py:31", "/a/b.py:7"]
    assert stages["inside"].tolist() == ["spin (/a/b.py:33): 90%", ""]


@pytest.mark.parametrize(("rest", "needed"), [(40.0, 1), (39.0, 2), (13.0, 4), (0.0, None)])
def test_workers_that_keep_up_follow_from_the_time_of_a_batch(rest, needed):
    assert analysis.service(times(report())).needed(rest) == needed


def test_time_without_a_core_is_no_time_of_a_batch():
    service = analysis.service(times(report(delayed_ns=100 * MS)))
    assert service.batch_ms == pytest.approx(30.0)
    # Never less than the CPU time.
    assert analysis.service(times(report(delayed_ns=400 * MS))).batch_ms == pytest.approx(20.0)


def slow(**changes):
    histogram = {str(bucket_of(5 * MS)): 78, str(bucket_of(310 * MS)): 2}
    items = [{"item": "1312", "ns": 310 * MS, "batch": 4}]
    return report(histogram=histogram, slow=items, **changes)


def test_a_few_slow_items():
    assert analysis.slow_items(times(report()), 0) is None
    found = analysis.slow_items(times(slow()), 0)
    assert (found.one_in, found.item) == (40, "1312")
    assert found.longest_ms == pytest.approx(310.0)
    # Had the worker no core for so long, any item may have waited for it.
    assert analysis.slow_items(times(slow(delayed_ns=600 * MS)), 0) is None
    many = {str(bucket_of(5 * MS)): 40, str(bucket_of(310 * MS)): 40}
    assert analysis.slow_items(times(slow() | {"histogram": many}), 0) is None


def advice(folder: Path, *reports, wait_us=60_000):
    """`p.advice` on steps of 100 ms that wait for workers."""
    k = Kineto()
    for i in range(4):
        k.step(i, 100_000 * i, 100_000)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        k.note(name, 100_000 * i, wait_us)
        k.op("aten::mm", 100_000 * i + wait_us, 100_000 - wait_us)
    (folder / "a.pt.trace.json").write_bytes(k.encode())
    packed = worker_times.merged(LOADERS, reports)
    sidecar = {"backend": "torch", "contention": FREE, "workers": packed}
    (folder / "nbprof.json").write_text(json.dumps(sidecar))
    profile = nbprof.load(folder)
    assert len(profile.input_pipeline.workers) == len({each["worker"] for each in reports})
    return profile.advice.set_index("rule")


def busy(worker, **changes):
    """A worker that takes 100 ms for a batch, and a step needs one in 40."""
    return report(worker, busy_ns=1000 * MS, cpu_ns=900 * MS, **changes)


def test_the_finding_names_the_transform_and_how_many_workers_keep_up(tmp_path):
    found = advice(tmp_path, busy(0), busy(1)).loc["loader_workers"]
    assert "**82%** of their time in **Crop** (b.py:31), **4.10 ms** per item" in found["evidence"]
    assert "**3 workers**, each with its core, would keep up" in found["evidence"]
    assert "**2** are running" in found["evidence"]
    assert "slow item" not in found["evidence"]


def test_the_finding_names_slow_items_and_pickled_batches(tmp_path):
    found = advice(tmp_path, slow(pickled_bytes=12 * 10**9)).loc["loader_workers"]
    assert "One slow item in **40** holds its batch (item 1312: **310.00 ms**" in found["evidence"]
    assert "**1.12 GiB** per batch go through pickle" in found["evidence"]


def test_workers_that_restart_for_each_epoch(tmp_path):
    again = [report(worker, start_ns=1900 * MS) for worker in (0, 0, 1, 1)]
    found = advice(tmp_path, *again).loc["loader_workers"]
    assert "restarts at every iteration over the loader: **1,900.00 ms**" in found["evidence"]
    assert "persistent_workers=True" in found["fix"]


def test_no_finding_where_steps_do_not_wait(tmp_path):
    assert "loader_workers" not in advice(tmp_path, busy(0), busy(1), wait_us=100).index


def test_other_findings_are_as_without_workers():
    from nbprof.activity.unit import MARKED
    from nbprof.analysis.advice.advice import frame
    from nbprof.analysis.advice.cores import Times
    from nbprof.analysis.advice.workers import Workers, explained

    none = frame([])
    assert explained(none, Workers(times(report())), Times(100, 60), MARKED) is none
