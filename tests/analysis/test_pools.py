"""Why a program waits for a process pool, by what its workers reported."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from nbprof.activity.unit import MARKED
from nbprof.analysis.advice import pools as advice
from nbprof.analysis.pools import Pools, PoolWait, PoolWork
from nbprof.analysis.rule import Threshold
from nbprof.core.pool_times import PoolTimes, packed, unpacked
from nbprof.core.worker_times import Merge
from nbprof.schema import frames

MS = 1_000_000
BEGAN = 1_700_000_000 * 10**9
LIMIT = Threshold("", moderate=15.0, high=35.0)


def report(worker, chunks, calls_each=1, pool=0, cpu=1.0, lost=0):
    """What a worker reports that ran chunks of tasks, each a start and a duration in ms."""
    busy = sum(took for _, took in chunks)
    calls = calls_each * len(chunks)
    stage = {"kind": "task", "name": "work", "module": "job", "file": "job.py", "line": 7}
    times = {
        "calls": calls,
        "total_ns": busy * MS,
        "self_ns": busy * MS,
        "longest_ns": max(took for _, took in chunks) * MS // calls_each,
    }
    zero = dict.fromkeys(
        ("delayed_ns", "waiting_ns", "pickle_ns", "pickled_bytes", "shared_bytes", "start_ns"), 0
    )
    return {
        **zero,
        "loader": pool,
        "worker": worker,
        "items": calls - lost,
        "batches": len(chunks),
        "busy_ns": busy * MS,
        "cpu_ns": int(cpu * busy * MS),
        "timed_items": calls,
        "timed_busy_ns": busy * MS,
        "memory_bytes": 1 << 20,
        "began_ns": 0,
        "stages": [{**stage, **times}],
        "lines": [[*stage.values(), "inner", "job.py", 9, 10]],
        "histogram": {},
        "slow": [],
        "batch_times": [
            [number, BEGAN + start * MS, took * MS, calls_each]
            for number, (start, took) in enumerate(chunks)
        ],
    }


def recorded(*reports, unfinished=1_000, processes=2, sent=None, fresh=False, truncated=False):
    merge = Merge()
    for each in reports:
        merge.add(each)
    if sent is None:
        sent = sum(each["items"] for each in reports)
    use = SimpleNamespace(
        kind="Pool", processes=processes, sent=sent, truncated=truncated, fresh=fresh
    )
    values = packed([use], [[(BEGAN, BEGAN + unfinished * MS)]], merge)
    return unpacked(json.loads(json.dumps(values)))


def cause(times, free=0.0, percent=80.0):
    """The finding on a wait of 80 of 100 ms for this pool."""
    wait = PoolWait(percent, percent, None, "Pool", PoolWork(times, 0), "**work** (job.py:7)", "")
    host = SimpleNamespace(
        contention={"cores": 8.0, "own_cores": 8.0 - free, "other_cores": 0.0}, pool=wait
    )
    facts = SimpleNamespace(
        evidence=SimpleNamespace(host=host), mean={"step_time": 100.0}, unit=MARKED
    )
    return advice.finding(facts, wait, LIMIT)


EVEN = [(start, 100) for start in range(0, 1_000, 100)]


def test_busy_workers_need_cheaper_tasks_or_more_processes():
    times = recorded(report(11, EVEN), report(12, EVEN))
    assert PoolWork(times, 0).busy == pytest.approx(1.0)
    found = cause(times)
    assert found.title == "Make the tasks of the pool cheaper"
    assert "**work** (job.py:7), **100 ms** per call" in found.evidence.replace("100.00", "100")
    assert found.gain_ms == pytest.approx(80.0)
    assert found.severity == "high"
    assert cause(times, free=4.0).title.startswith("Take more processes")


def test_one_long_task():
    short = [(0, 100), (100, 100), (200, 100)]
    times = recorded(report(11, short), report(12, [(0, 900)]))
    work = PoolWork(times, 0)
    task = work.long_task()
    assert (task.ms, task.share, task.chunks) == (900, 0.9, 4)
    found = cause(times)
    assert found.title.startswith("Divide the longest task")
    assert "One of **4** tasks" in found.evidence
    # Perfectly divided, the workers would be busy until the end.
    assert found.gain_ms == pytest.approx(80 * (1 - 0.6))


def test_one_long_chunk():
    short = [(0, 100), (100, 100), (200, 100)]
    times = recorded(report(11, short, 5), report(12, [(0, 900)], 5))
    assert "One of **4** chunks, with 5 calls," in cause(times).evidence


def test_tasks_of_equal_length_have_no_long_one():
    times = recorded(report(11, [(0, 500), (500, 450)]), report(12, [(0, 480)]))
    assert PoolWork(times, 0).long_task() is None


def test_no_long_task_where_some_are_unknown():
    short = [(0, 100), (100, 100), (200, 100)]
    times = recorded(report(11, short), report(12, [(0, 900)]), sent=5)
    assert PoolWork(times, 0).long_task() is None
    assert PoolWork(times, 0).busy is None
    found = cause(times)
    assert found.title == "Make the tasks of the pool cheaper"
    assert "4 of 5 calls were timed" in found.evidence


def test_processes_that_start_late():
    late = [(600, 100), (700, 100), (800, 100)]
    times = recorded(report(11, late), report(12, late), fresh=True)
    found = cause(times)
    assert found.title == "Keep the pool for several calls"
    assert found.gain_ms == pytest.approx(80 * 0.6)
    # Those that ran before do not start.
    before = recorded(report(11, late), report(12, late))
    assert cause(before).title.startswith("Give the processes of the pool more")


def test_short_tasks_of_which_some_are_timed():
    tiny = [(start, 1) for start in range(0, 1_000, 10)]
    times = recorded(report(11, tiny), report(12, tiny), sent=400)
    work = PoolWork(times, 0)
    assert work.busy is None
    assert work.about_busy == pytest.approx(0.2)
    found = cause(times)
    assert found.title.startswith("Give the processes of the pool more")
    assert "about **20%**" in found.evidence


def test_tasks_that_wait_themselves():
    times = recorded(report(11, EVEN, cpu=0.1), report(12, EVEN, cpu=0.1))
    assert "use a core for **10%** of their time" in cause(times).evidence


def test_frames():
    times = recorded(report(11, EVEN), report(12, [(0, 500)]), processes=3)
    pools = Pools(times, {})
    (pool,) = pools.pools().to_dict("records")
    assert (pool["pool"], pool["processes"], pool["sent"], pool["timed"]) == ("Pool", 3, 11, 11)
    assert pool["busy_percent"] == pytest.approx(50.0)
    (task,) = pools.tasks().to_dict("records")
    assert task["where"].endswith("job.py:7")
    assert task["calls"] == 11
    assert task["inside"].startswith("inner (")
    workers = pools.workers()
    assert workers["process"].tolist() == ["11", "12"]
    assert workers["busy_percent"].tolist() == [pytest.approx(100.0), pytest.approx(50.0)]
    assert workers["waiting_ms"].tolist() == [pytest.approx(0.0), pytest.approx(500.0)]


def test_busy_is_unknown_where_tasks_were_not_timed():
    pools = Pools(recorded(report(11, EVEN), sent=20), {})
    assert pools.workers()["busy_percent"].isna().all()
    assert pools.workers()["waiting_ms"].isna().all()
    assert pools.pools()["busy_percent"].isna().all()
    unknown = Pools(recorded(report(11, EVEN), truncated=True), {})
    assert unknown.pools()["unfinished_ms"].isna().all()
    assert unknown.pools()["busy_percent"].isna().all()


def test_frames_without_pools():
    pools = Pools()
    assert not len(pools.pools())
    assert not len(pools.tasks())
    assert not len(pools.workers())


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"pools": [["Pool", 2, 10]]},
        {"pools": [["Pool", -1, 10, [], False, False]]},
        {"pools": [["Pool", 2, 10, [[5, 4]], False, False]]},
        {"pools": [["Pool", 2, 10, [[1, 3], [2, 4]], False, False]]},
        {"pools": [[7, 2, 10, [], False, False]]},
        {"pools": []},
        {"pools": None},
    ],
)
def test_damaged_values_are_none(change):
    merge = Merge()
    merge.add(report(11, EVEN))
    use = SimpleNamespace(kind="Pool", processes=1, sent=10, truncated=False, fresh=True)
    values = packed([use], [[(BEGAN, BEGAN + MS)]], merge)
    assert unpacked(values).pools
    assert unpacked({**values, **change}) == PoolTimes()


@pytest.mark.parametrize("name", ["pools", "tasks", "workers"])
@pytest.mark.parametrize("values", [PoolTimes(), recorded(report(1, [(0, 500)]))])
def test_columns_are_those_of_the_schema(name, values):
    frame = getattr(Pools(values), name)()
    assert frame.dtypes.astype(str).to_dict() == frames.dtypes(f"python.{name}")
