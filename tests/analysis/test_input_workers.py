"""What the workers of a loader did, in frames and in the finding on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nbprof
from nbprof.analysis.input import loops
from nbprof.analysis.input import workers as analysis
from nbprof.core import worker_times
from nbprof.core.worker_histogram import bucket_of, middle_of
from nbprof.core.worker_times import IN_PROCESS, unpacked
from nbprof.schema import frames
from nbprof.tools.input import payload
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
        "began_ns": 10**18,
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
        "slow": [{"item": "3", "ns": 6 * MS, "batch": 0, "start_ns": 10**18}],
        "batch_times": [[0, 10**18, 40 * MS, 8]],
        **changes,
    }


LOADERS = [{"dataset": "Images", "workers": 2, "prefetch": 2}]


def times(*reports, loaders=LOADERS, loop=None):
    return unpacked(json.loads(json.dumps(worker_times.merged(loaders, reports, loop or {}))))


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
    items = [{"item": "1312", "ns": 310 * MS, "batch": 4, "start_ns": 10**18}]
    return report(histogram=histogram, slow=items, **changes)


def test_a_few_slow_items():
    assert analysis.slow_items(times(report()), 0) is None
    found = analysis.slow_items(times(slow()), 0)
    assert (found.one_in, found.item) == (40, "1312")
    assert found.longest_ms == pytest.approx(310.0)
    # Had the worker no core for so long, any item may have waited for it.
    assert analysis.slow_items(times(slow(delayed_ns=600 * MS)), 0) is None
    # Others that take a little longer are not what holds batches.
    noisy = {str(bucket_of(5 * MS)): 60, str(bucket_of(40 * MS)): 18, str(bucket_of(310 * MS)): 2}
    assert analysis.slow_items(times(slow() | {"histogram": noisy}), 0).one_in == 40
    many = {str(bucket_of(5 * MS)): 40, str(bucket_of(310 * MS)): 40}
    assert analysis.slow_items(times(slow() | {"histogram": many}), 0) is None


def opened(
    folder: Path, *reports, wait_us=60_000, loop=None, kind="MultiProcessing", loaders=LOADERS
):
    """A profile of steps of 100 ms that wait for workers, or load in the process."""
    k = Kineto()
    for i in range(4):
        k.step(i, 100_000 * i, 100_000)
        name = f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__"
        k.note(name, 100_000 * i, wait_us)
        k.op("aten::mm", 100_000 * i + wait_us, 100_000 - wait_us)
    (folder / "a.pt.trace.json").write_bytes(k.encode())
    packed = worker_times.merged(loaders, reports, loop or {})
    sidecar = {"backend": "torch", "contention": FREE, "workers": packed}
    (folder / "nbprof.json").write_text(json.dumps(sidecar))
    return nbprof.load(folder)


def advice(folder: Path, *reports, **options):
    """Its `p.advice`."""
    profile = opened(folder, *reports, **options)
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


def test_the_finding_on_a_loop_that_loads_names_the_transform(tmp_path):
    here = report(IN_PROCESS, began_ns=0, start_ns=0)
    found = advice(tmp_path, here, kind="SingleProcess").loc["loader_in_process"]
    expected = "**82%** of the time of batches is **Crop** (b.py:31), **4.10 ms** per item"
    assert expected in found["evidence"]


def test_no_transform_is_named_where_two_loaders_may_be_meant():
    of_two = [report(IN_PROCESS), report(IN_PROCESS, loader=1, busy_ns=200 * MS)]
    both = times(*of_two, loaders=LOADERS * 2)
    assert analysis.made_in_process(both) is None
    of_two[1]["busy_ns"] = 20 * MS
    assert analysis.made_in_process(times(*of_two, loaders=LOADERS * 2)) == 0
    # What the loop makes is not made by workers.
    assert analysis.service(both) is None


NOW = 10**18
"""When the loop begins, in ns since 1970."""


def waits(*rows, batches=20, receive_ms=0.0, size=500, iterations=(), mean_ms=60):
    """What a loop of `batches` waits: rows of batch, since when, and how long in ms."""
    totals = [0, batches, batches * mean_ms * MS, round(batches * receive_ms * MS), batches * size]
    longest = [[0, batch, NOW + start * MS, wait * MS] for batch, start, wait in rows]
    return {"loops": [totals], "waits": longest, "iterations": list(iterations)}


def item(batch, start, took=310, index="1312"):
    return {"item": index, "ns": took * MS, "batch": batch, "start_ns": NOW + start * MS}


def holding(*items, **changes):
    """A worker whose items take 5 ms, but 2 in 80, of which these are known."""
    return slow(**changes) | {"slow": list(items)}


def loop_of(report, loop, batches_per_step=1.0):
    return loops.loop_waits(times(report, loop=loop), batches_per_step)


def test_waits_for_slow_items_are_bounded_by_the_waits_and_by_the_items():
    report = holding(item(4, 100), item(9, 1000))
    # The loop waits for batch 4 from 150 to 420 ms, while its item is made from 100 to 410.
    found = loop_of(report, waits((4, 150, 270)))
    assert found.held.items.item == "1312"
    assert found.held.ms * 20 == pytest.approx(260.0)
    # Waits that are longer than the item took more than others.
    found = loop_of(report, waits((4, 0, 900), (9, 990, 400)))
    assert found.held.ms * 20 == pytest.approx(2 * (310 - found.held.items.median_ms))
    # The batch of that number in another iteration, and another batch.
    assert loop_of(report, waits((4, 5000, 270), (5, 150, 270))).held.ms == 0
    # The loop did not wait while the item was made.
    assert loop_of(report, waits((4, 411, 50))).held.ms == 0


def test_several_slow_items_of_a_batch_hold_it_no_longer_than_the_wait():
    report = holding(item(4, 100), item(4, 410))
    assert loop_of(report, waits((4, 350, 370))).held.ms * 20 == pytest.approx(370.0)


def test_no_slow_items_in_a_loader_whose_items_take_equally_long():
    found = loop_of(report(), waits((0, 0, 60)))
    assert found.held is None
    assert found.restarts is None
    assert found.received is None
    assert found.ms == 0


def iteration(began, made, waited, from_=None):
    """An iteration: when it began, how long its iterator was made and its first batch waited for."""
    start = began + made if from_ is None else from_
    return [0, NOW + began * MS, made * MS, NOW + start * MS, waited * MS]


def start(began, ready, worker=0):
    return report(worker, began_ns=NOW + began * MS, start_ns=ready * MS)


def restarts_of(reports, *iterations, batches=18):
    both = times(*reports, loop=waits(batches=batches, iterations=iterations))
    return loops.loop_waits(both, 1.0).restarts


def test_workers_that_start_again_cost_what_the_loop_waits_for_their_start():
    reports = [start(0, 900), start(1000, 300), start(1000, 500, 1)]
    # The second epoch: 20 ms to make the iterator, and 280 of 400 ms until the worker is ready.
    found = restarts_of(reports, iteration(0, 20, 1000), iteration(1000, 20, 400))
    assert found.count == 1
    assert found.start_ms == pytest.approx(300.0)
    assert found.ms == pytest.approx(300.0 / 20)
    # A loop that does something else meanwhile waits less.
    found = restarts_of(reports, iteration(0, 20, 1000), iteration(1000, 20, 50, from_=1280))
    assert found.start_ms == pytest.approx(40.0)


def test_the_first_start_and_workers_that_stay_are_no_restart():
    assert restarts_of([start(0, 900)], iteration(0, 20, 1000)) is None
    assert restarts_of([start(0, 900)], iteration(0, 20, 1000), iteration(1000, 0, 40)) is None


def test_the_finding_on_slow_items(tmp_path):
    loop = waits((4, 150, 270), (9, 1050, 250), batches=10)
    found = advice(tmp_path, holding(item(4, 100), item(9, 1000)), loop=loop)
    row = found.loc["loader_slow_items"]
    assert "One item in **40** takes long" in row["evidence"]
    assert "item 1312 took **310.00 ms**" in row["evidence"]
    # 260 and 250 ms in 10 steps, of 60 ms each.
    assert row["gain_ms_per_step"] == pytest.approx(51.0, rel=0.01)
    assert row["gain_is"] == "up to"
    assert "**85%** of its wait for input" in row["evidence"]
    assert "num_workers=2, in_order=False" in row["fix"]
    # What is left is no reason for more workers.
    assert "loader_workers" not in found.index


def test_the_finding_on_workers_that_start_again(tmp_path):
    epochs = [iteration(2000 * epoch, 20, 400) for epoch in range(4)]
    reports = [start(2000 * epoch, 300) for epoch in range(4)]
    loop = waits(batches=16, iterations=epochs, mean_ms=5)
    found = advice(tmp_path, *reports, loop=loop).loc["loader_restarts"]
    assert "started anew **3 times**" in found["evidence"]
    assert "waited **300.00 ms**" in found["evidence"]
    assert found["gain_ms_per_step"] == pytest.approx(45.0, rel=0.01)
    assert "num_workers=2, persistent_workers=True" in found["fix"]


def test_the_finding_on_pickled_batches(tmp_path):
    loop = waits(receive_ms=40.0, size=120 * 10**6)
    found = advice(tmp_path, busy(0), busy(1), loop=loop)
    row = found.loc["loader_pickle"]
    assert "**114.44 MiB** per batch" in row["evidence"]
    assert row["gain_ms_per_step"] == pytest.approx(40.0, rel=0.01)
    assert "torch.from_numpy" in row["fix"]
    # The rest of the wait is for the workers.
    assert found.loc["loader_workers"]["gain_ms_per_step"] <= 20.01


def test_a_gain_is_never_more_than_the_wait_of_the_steps(tmp_path):
    loop = waits(receive_ms=400.0, size=120 * 10**6)
    found = advice(tmp_path, busy(0), busy(1), loop=loop, wait_us=20_000).loc["loader_pickle"]
    assert found["gain_ms_per_step"] <= 20.01


@pytest.mark.parametrize("loop", [{}, waits((4, 150, 270)), waits(receive_ms=0.2)])
def test_none_of_these_findings_on_a_loader_that_is_only_slow(tmp_path, loop):
    rules = set(advice(tmp_path, busy(0), busy(1), loop=loop).index)
    assert rules >= {"loader_workers"}
    assert not rules & {"loader_slow_items", "loader_restarts", "loader_pickle"}


def test_no_finding_where_steps_do_not_wait(tmp_path):
    assert "loader_workers" not in advice(tmp_path, busy(0), busy(1), wait_us=100).index


def test_other_findings_are_as_without_workers():
    from nbprof.activity.unit import MARKED
    from nbprof.analysis.advice.advice import frame
    from nbprof.analysis.advice.cores import Times
    from nbprof.analysis.advice.workers import Workers, explained

    none = frame([])
    assert explained(none, Workers(times(report())), Times(100, 60), MARKED) is none


# The pipeline as it is drawn.


def pipelines(profile):
    return payload.payload(profile.run).loaders


def collated(worker=0, **changes):
    """A report with the collation first, as it is found before the transforms."""
    values = busy(worker, **changes)
    collate = {"kind": "collate", "name": "default_collate", "module": "t", "file": "", "line": 0}
    times_of = {"calls": 10, "total_ns": 8 * MS, "self_ns": 8 * MS, "longest_ns": MS}
    values["stages"] = [{**collate, **times_of}, *values["stages"]]
    return values


def test_a_pipeline_leads_from_the_dataset_to_the_wait_of_the_loop(tmp_path):
    loop = waits(batches=20, receive_ms=2.0)
    (drawn,) = pipelines(opened(tmp_path, collated(0), collated(1), loop=loop))
    assert (drawn.name, drawn.scope) == ("Images", "2 workers")
    assert [(node.name, node.note, node.value) for node in drawn.nodes] == [
        ("Images", "b.py:7", "0.90 ms/item"),
        ("Crop", "b.py:31", "4.10 ms/item"),
        ("default_collate", "collate", "0.10 ms/item"),
        ("Queue", "2 workers, 2 ahead each", "2.00 ms/batch"),
        ("Wait of the loop", "without each first batch", "60.00 ms/batch"),
    ]
    parents = [node.parent for node in drawn.nodes]
    assert parents == [*(node.id for node in drawn.nodes[1:]), None]
    queue = {fact.label: fact.value for fact in drawn.nodes[3].facts}
    assert queue["Pickled"] == "400 B per batch"
    assert queue["Batches ahead"] == "2 of each worker"


def test_shares_are_those_of_the_table(tmp_path):
    profile = opened(tmp_path, collated(0), collated(1), loop=waits())
    (drawn,) = pipelines(profile)
    table = profile.input_pipeline.transforms.set_index("stage")["percent"].to_dict()
    shares = {node.name: node.percent for node in drawn.nodes if node.percent is not None}
    assert shares == pytest.approx(table)
    assert {node.name for node in drawn.nodes} - set(shares) == {"Queue", "Wait of the loop"}


def test_the_bottleneck_is_that_of_the_advice(tmp_path):
    profile = opened(tmp_path, collated(0), collated(1), loop=waits())
    (drawn,) = pipelines(profile)
    assert [node.name for node in drawn.nodes if node.bottleneck] == ["Crop"]
    finding = profile.advice.set_index("rule").loc["loader_workers"]
    assert drawn.advice == finding["evidence"]


def test_there_is_no_bottleneck_where_the_loop_does_not_wait(tmp_path):
    profile = opened(tmp_path, collated(0), collated(1), wait_us=500, loop=waits(mean_ms=0))
    assert "loader_workers" not in set(profile.advice["rule"])
    (drawn,) = pipelines(profile)
    assert not any(node.bottleneck for node in drawn.nodes)
    assert (drawn.advice, drawn.fix) == ("", [])


def test_batches_that_come_pickled_are_the_bottleneck_of_the_queue(tmp_path):
    loop = waits(batches=4, receive_ms=50.0, size=5_000_000)
    profile = opened(tmp_path, report(0), report(1), loop=loop)
    assert profile.advice["rule"].tolist()[0] == "loader_pickle"
    (drawn,) = pipelines(profile)
    assert [node.name for node in drawn.nodes if node.bottleneck] == ["Queue"]


def test_the_loop_that_makes_its_batches_waits_for_all_of_it(tmp_path):
    here = collated(IN_PROCESS, began_ns=0, start_ns=0)
    (drawn,) = pipelines(opened(tmp_path, here, kind="SingleProcess"))
    assert drawn.scope == "in the process of the loop"
    assert [node.name for node in drawn.nodes][-2:] == ["default_collate", "Wait of the loop"]
    assert drawn.nodes[-1].value == "100.00 ms/batch"
    assert [node.name for node in drawn.nodes if node.bottleneck] == ["Crop"]


def test_each_loader_has_its_own_pipeline(tmp_path):
    other = {"dataset": "Others", "workers": 1, "prefetch": 0}
    reports = [collated(0), report(0, loader=1)]
    drawn = pipelines(opened(tmp_path, *reports, loop=waits(), loaders=[*LOADERS, other]))
    assert [each.name for each in drawn] == ["Images", "Others"]
    # What was not measured is unknown.
    queue, wait = drawn[1].nodes[-2:]
    assert (queue.value, wait.value) == ("–", "–")
    assert not any(node.bottleneck for node in drawn[1].nodes)


def test_without_times_there_is_no_pipeline(tmp_path):
    assert pipelines(opened(tmp_path)) is None


@pytest.mark.parametrize("items", [0, 40])
def test_a_loader_that_makes_whole_batches_has_no_items(items):
    worker = worker_times.WorkerTotals(0, 0, 1, items, 20, *[0] * 11)
    times = worker_times.WorkerTimes(workers=(worker,))
    assert bool(times.of_items(0)) == bool(items)
    assert not times.of_items(1)
