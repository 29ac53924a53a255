"""Lanes of the batches that DataLoaders made, and arrows to the waits that used them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nbprof
from nbprof.core import worker_times
from nbprof.core.worker_histogram import bucket_of
from nbprof.core.worker_times import IN_PROCESS
from tests.support.kineto import Kineto

ORIGIN = 1_790_000_000_000_000_000
WORKERS_WAIT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
OWN_WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def ns(ms):
    return ORIGIN + round(ms * 1e6)


class Recording:
    """A trace of 100 ms, and what workers reported beside it; times in ms of the trace."""

    def __init__(self, loaders=("Images",), origin=ORIGIN):
        self.trace = Kineto(**({"baseTimeNanoseconds": origin} if origin else {}))
        self.trace.op("aten::add", 0, 1)
        self.trace.op("aten::add", 99_999, 1)
        self.loaders = [[name, 2, 2, {}] for name in loaders]
        self.made, self.batches, self.slow = {}, [], []
        self.waits, self.iterations = [], []

    def batch(self, number, start, end, worker=0, loader=0, items=4):
        self.batches.append([loader, worker, number, ns(start), round((end - start) * 1e6), items])
        self.made[loader, worker] = self.made.get((loader, worker), 0) + 1

    def item(self, name, start, end, batch, worker=0, loader=0):
        took = round((end - start) * 1e6)
        self.slow.append([loader, worker, name, took, batch, ns(start)])

    def began(self, start, loader=0):
        """An iteration, whose first batch is waited for at once."""
        self.iterations.append([loader, ns(start), 0, 0, 0, 0])

    def wait(self, number, start, end, loader=0, late=0.0, name=WORKERS_WAIT):
        """The op, and the wait around it, whose clock was read late."""
        self.trace.note(name, 1000 * start, 1000 * (end - start))
        times = [ns(start + late) - 20_000, round((end - start) * 1e6) + 40_000]
        if number == 0:
            self.iterations[-1][3:5] = times
        else:
            self.waits.append([loader, number, *times])

    def packed(self):
        return {
            "version": worker_times.VERSION,
            "loaders": self.loaders,
            "workers": [[*key, 1, 4 * n, n, *[1] * 11] for key, n in self.made.items()],
            "stages": [],
            "lines": [],
            "slow": self.slow,
            "batches": self.batches,
            "loops": [],
            "waits": self.waits,
            "iterations": self.iterations,
        }

    def opened(self, folder, *, with_workers=True):
        folder.mkdir(parents=True)
        (folder / "host.pt.trace.json").write_bytes(self.trace.encode())
        info = {"backend": "torch", "workers": self.packed() if with_workers else {}}
        (folder / "nbprof.json").write_text(json.dumps(info))
        return nbprof.load(folder).run


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def slices(run):
    """By heading and lane, the name, begin and end of its slices, in ms."""
    tracks = run.timeline.tracks
    extra = tracks.extra
    result = {}
    for lane in tracks.lanes:
        if not lane.process.startswith("DataLoader"):
            continue
        rows = np.flatnonzero(extra.lane == lane.id)
        result[lane.process, lane.name] = [
            (str(tracks.names[extra.name[row]]), extra.start[row] / 1e9, extra.end[row] / 1e9)
            for row in rows
        ]
    return result


def fed(run):
    """The name of each batch, its begin, and the begin of the op that used it, in ms."""
    tracks = run.timeline.tracks
    return sorted(
        (
            str(tracks.names[tracks.extra.name[row]]),
            tracks.extra.start[row] / 1e9,
            tracks.events.start[event] / 1e9,
        )
        for row, event in zip(*(column.tolist() for column in tracks.feeds), strict=True)
    )


def two_batches():
    made = Recording()
    made.began(1)
    made.batch(0, 2, 12)
    made.batch(1, 3, 20, worker=1)
    made.wait(0, 4, 12.5)
    made.wait(1, 14, 20.5)
    return made


def test_each_worker_has_a_lane_on_the_clock_of_the_trace(folder):
    run = two_batches().opened(folder)
    assert slices(run) == {
        ("DataLoader of Images", "worker 0"): [("batch 0 (4 items)", 2.0, 12.0)],
        ("DataLoader of Images", "worker 1"): [("batch 1 (4 items)", 3.0, 20.0)],
    }
    assert fed(run) == [("batch 0 (4 items)", 2.0, 4.0), ("batch 1 (4 items)", 3.0, 14.0)]
    assert any("drawn when they were made" in note for note in run.timeline.tracks.notes)


def test_a_batch_says_what_it_is_and_what_it_feeds(folder):
    run = two_batches().opened(folder)
    tracks = run.timeline.tracks
    row, used_by = (int(column[0]) for column in tracks.feeds)
    event = row + len(tracks.events)
    info = run.timeline.details.info(event)
    args = {arg["key"]: arg["value"] for arg in info["args"]}
    assert args == {"batch": "0", "items": "4", "busy": "10.00 ms", "worker": "0"}
    assert [(a["kind"], a["from"]["event"], a["to"]["event"]) for a in info["arrows"]] == [
        ("producer", event, used_by)
    ]
    assert run.timeline.details.info(used_by)["arrows"] == info["arrows"]


def test_a_saved_report_has_them(folder):
    from nbprof.tools.trace import payload

    run = two_batches().opened(folder)
    part = payload.payload(run)
    tracks = run.timeline.tracks
    ids = [row + len(tracks.events) for row in tracks.feeds[0].tolist()]
    arrows = list(
        zip(part.links["from"].values.tolist(), part.links["to"].values.tolist(), strict=True)
    )
    assert arrows == list(zip(ids, tracks.feeds[1].tolist(), strict=True))
    lanes = [lane for lane in part.lanes if lane["process"] == "DataLoader of Images"]
    assert [lane["name"] for lane in lanes] == ["worker 0", "worker 1"]
    assert all(lane["derived"] for lane in lanes)


def test_no_figure_changes(tmp_path):
    made = two_batches()
    with_lanes = made.opened(tmp_path / "a" / "run")
    without = made.opened(tmp_path / "b" / "run", with_workers=False)
    assert slices(with_lanes)
    assert not slices(without)
    for run in (with_lanes, without):
        _ = run.timeline.tracks
    for name in ("ops", "input_ops", "steps", "kernels"):
        assert getattr(with_lanes, name).equals(getattr(without, name)), name
    assert str(with_lanes.overview) == str(without.overview)
    assert len(with_lanes.trace.events) == len(without.trace.events)
    ends = [(run.timeline.tracks.origin, run.timeline.tracks.end) for run in (with_lanes, without)]
    assert ends[0] == ends[1]


def test_slow_items_lie_in_their_batch(folder):
    made = two_batches()
    made.loaders[0][3] = {str(bucket_of(1_000_000)): 9}
    # Another clock reads the begin of an item.
    made.item("7", 1.9, 9, batch=0)
    made.item("8", 9, 10, batch=0)
    run = made.opened(folder)
    assert slices(run)["DataLoader of Images", "worker 0"] == [
        ("batch 0 (4 items)", 2.0, 12.0),
        ("item 7", 2.0, 9.0),
    ]


def test_batches_outside_of_the_trace_are_cut_or_left_out(folder):
    made = Recording()
    made.batch(0, -30, -20)
    made.batch(1, -10, 5)
    made.batch(2, 90, 120)
    made.batch(3, 130, 140)
    run = made.opened(folder)
    assert slices(run) == {
        ("DataLoader of Images", "worker 0"): [
            ("batch 1 (4 items)", 0.0, 5.0),
            ("batch 2 (4 items)", 90.0, 100.0),
        ]
    }
    args = run.timeline.tracks.args
    assert [each["busy"] for each in args.values()] == ["15.00 ms", "30.00 ms"]
    assert all("cut" in each for each in args.values())
    assert "2 batches lie outside of the trace." in run.timeline.tracks.notes[-1]


@pytest.mark.parametrize(
    ("origin", "reason"),
    [(0, "does not state when it began"), (ORIGIN - 10**12, "before or after the trace")],
)
def test_without_a_common_clock_there_are_no_lanes(folder, origin, reason):
    made = Recording(origin=origin)
    made.batch(0, 2, 12)
    run = made.opened(folder)
    assert not slices(run)
    assert reason in run.timeline.tracks.notes[-1]


def test_a_recording_with_times_of_some_batches_says_so(folder):
    made = two_batches()
    made.made[0, 0] = 5_000
    assert "2 of 5,001 batches" in made.opened(folder).timeline.tracks.notes[-1]


def test_batches_of_the_loop_itself_feed_the_op_around_them(folder):
    made = Recording()
    made.trace.note(OWN_WAIT, 2_000, 5_000)
    made.trace.note(OWN_WAIT, 10_000, 5_000)
    made.batch(0, 2.5, 6.5, worker=IN_PROCESS)
    made.batch(1, 10.5, 14.5, worker=IN_PROCESS)
    made.batch(2, 30, 34, worker=IN_PROCESS)
    run = made.opened(folder)
    assert len(slices(run)["DataLoader of Images", "main process"]) == 3
    assert fed(run) == [("batch 0 (4 items)", 2.5, 2.0), ("batch 1 (4 items)", 10.5, 10.0)]


def test_each_epoch_uses_its_own_batches(folder):
    made = Recording()
    for begin in (1, 41):
        made.began(begin)
        made.batch(0, begin + 1, begin + 5)
        made.batch(1, begin + 6, begin + 10)
        made.wait(0, begin + 2, begin + 6)
        made.wait(1, begin + 8, begin + 11)
    assert fed(made.opened(folder)) == [
        ("batch 0 (4 items)", 2.0, 3.0),
        ("batch 0 (4 items)", 42.0, 43.0),
        ("batch 1 (4 items)", 7.0, 9.0),
        ("batch 1 (4 items)", 47.0, 49.0),
    ]


def test_what_is_left_of_an_epoch_that_was_left_feeds_nothing(folder):
    made = Recording()
    made.began(1)
    made.batch(0, 2, 5)
    made.wait(0, 3, 6)
    # Made for the first epoch, which ended early; its number comes again in the second.
    made.batch(1, 6, 9)
    made.began(20)
    made.batch(0, 21, 24)
    made.wait(0, 22, 25)
    made.batch(1, 26, 29)
    made.wait(1, 27, 30)
    assert fed(made.opened(folder)) == [
        ("batch 0 (4 items)", 2.0, 3.0),
        ("batch 0 (4 items)", 21.0, 22.0),
        ("batch 1 (4 items)", 26.0, 27.0),
    ]


def test_of_two_batches_with_the_number_none_is_taken(folder):
    made = Recording()
    made.began(1)
    made.batch(0, 2, 5)
    made.wait(0, 3, 6)
    # A worker that stays makes what was asked of it before the epoch, and then that of the epoch.
    made.began(20)
    made.batch(0, 22, 24, worker=1)
    made.batch(1, 21, 23)
    made.batch(1, 24, 27)
    made.wait(0, 22, 25)
    made.wait(1, 26, 28)
    assert fed(made.opened(folder)) == [
        ("batch 0 (4 items)", 2.0, 3.0),
        ("batch 0 (4 items)", 22.0, 22.0),
    ]


def test_two_iterations_at_once_have_no_arrows(folder):
    made = Recording()
    made.began(1)
    made.began(2)
    made.batch(0, 3, 6)
    # The same worker of the other iteration, on a lane of its own.
    made.batch(0, 4, 7)
    made.wait(0, 5, 8)
    made.batch(1, 8, 12)
    made.wait(1, 10, 13)
    run = made.opened(folder)
    assert not fed(run)
    assert [lane for _, lane in slices(run)] == ["worker 0", "worker 0 (2)"]


def test_a_clock_that_is_read_late_finds_the_op(folder):
    made = Recording()
    made.began(1)
    made.batch(0, 1, 3)
    made.wait(0, 2, 4)
    made.batch(1, 4, 9)
    made.wait(1, 6, 12, late=2.5)
    assert fed(made.opened(folder))[-1] == ("batch 1 (4 items)", 4.0, 6.0)


def test_batches_in_any_order_have_no_arrows(folder):
    made = two_batches()
    made.waits[0][1] = -1
    assert not fed(made.opened(folder))


def test_loaders_of_equal_datasets_are_told_apart(folder):
    made = Recording(("Images", "Images", "\u202eText"))
    for loader in range(3):
        made.batch(0, 2, 12, loader=loader)
    assert [process for process, _ in slices(made.opened(folder))] == [
        "DataLoader of Images",
        "DataLoader of Images (2)",
        "DataLoader of  Text",
    ]


def test_times_that_no_clock_has_are_left_out(folder):
    made = two_batches()
    made.batches.append([0, 0, 2, 2**63 - 1, 2**63 - 1, 2**63 - 1])
    assert sum(map(len, slices(made.opened(folder)).values())) == 2
