"""The analyses of device time against loops over each unit of it, on works with all kinds of
overlaps, ties and borders.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.device_time import device_time, launches
from nbprof.analysis.device_time import idle as device_time_idle
from nbprof.analysis.device_time import series as device_time_series
from nbprof.analysis.device_time.device_time import COMMUNICATION, COMPUTE, MEMORY, Mix, Work

UNIT = 10_000_000
"""Times are multiples of 10 us, so that gaps of exactly what one kernel takes to follow another are
among them.
"""
SPAN = 60
HOSTS = ["rank 0", "rank 1"]


def made(seed: int):
    """Works of two devices with two streams each, of two hosts, and the calls that launched some of
    them.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for host in (0, 1):
        for stream in (0, 1):
            at = int(rng.integers(0, 4))
            while at < SPAN:
                length = int(rng.integers(0, 4))
                rows.append(
                    (
                        host,
                        2 * host + stream,
                        at,
                        at + length,
                        int(rng.choice([COMPUTE, COMPUTE, COMMUNICATION, MEMORY])),
                    )
                )
                at += length + int(rng.integers(0, 6))
    rows.sort(key=lambda row: (row[0], row[2], row[3]))
    host, lane, start, end, cls = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    count = len(rows)
    # Calls are events behind the works, on lanes behind theirs.
    called = np.maximum(start - rng.integers(0, 8, count), 0)
    takes = rng.integers(0, 4, count)
    launch = np.where(rng.random(count) < 0.8, count + np.arange(count), -1)
    # Now and then one call launches several works of a device.
    same = np.flatnonzero(
        (rng.random(count) < 0.2) & (np.roll(host, 1) == host) & (np.roll(launch, 1) >= 0)
    )
    launch[same[same > 0]] = launch[same[same > 0] - 1]
    names = np.array([f"kernel {i}" for i in range(5)] + ["call"], object)
    name = rng.integers(0, 5, count)
    events = SimpleNamespace(
        start=np.concatenate([start, called]) * UNIT,
        duration=np.concatenate([end - start, takes]) * UNIT,
        name=np.concatenate([name, np.full(count, 5)]).astype(np.int32),
    )
    lanes = pd.DataFrame(
        {
            "host": [HOSTS[i // 2] for i in range(4)],
            "device": [0] * 4,
            "thread": [f"Stream {i % 2}" for i in range(4)],
        }
    )
    done = Work(
        np.arange(count),
        host.astype(np.int32),
        np.zeros(count, np.int32),
        lane.astype(np.int32),
        start * UNIT,
        end * UNIT,
        cls,
        name,
        launch,
        HOSTS,
        [0, 1],
    )
    return done, SimpleNamespace(events=events, lanes=lanes, names=names, display=names)


def classes(done: Work, host: int) -> list[set[int]]:
    """The classes that run in each unit of time."""
    out: list[set[int]] = [set() for _ in range(SPAN + 10)]
    for i in np.flatnonzero(done.host == host).tolist():
        for unit in range(done.start[i] // UNIT, done.end[i] // UNIT):
            out[unit].add(int(done.cls[i]))
    return out


def steps_of(*windows) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "host": [HOSTS[host] for host, _, _ in windows],
            "step": list(range(len(windows))),
            "name": "",
            "start_ms": [start * UNIT / 1e9 for _, start, _ in windows],
            "step_time_ms": [(end - start) * UNIT / 1e9 for _, start, end in windows],
        }
    )


@pytest.mark.parametrize("seed", range(6))
def test_each_unit_of_time_counts_once(seed):
    done, _ = made(seed)
    windows = [(0, 0, 20), (0, 20, 31), (0, 31, 31), (0, 55, 70), (1, 10, 40)]
    spent = device_time.spent(done, steps_of(*windows))
    frame, overlap = device_time.frame(spent), device_time.overlap(spent)
    for host in (0, 1):
        seen = classes(done, host)
        mine = np.flatnonzero(done.host == host)
        whole = (host, done.start[mine].min() // UNIT, done.end[mine].max() // UNIT)
        for window in [whole, *(w for w in windows if w[0] == host)]:
            _, low, high = window
            units = seen[low:high]
            step = (
                frame["step"].isna() if window is whole else frame["step"] == windows.index(window)
            )
            at = frame.index[step & (frame["host"] == HOSTS[host])]
            row, other = frame.loc[at].iloc[0], overlap.loc[at].iloc[0]
            expected = {
                "time_ms": len(units),
                "compute_ms": sum(COMPUTE in u for u in units),
                "communication_ms": sum(COMMUNICATION in u and COMPUTE not in u for u in units),
                "memory_ms": sum(u == {MEMORY} for u in units),
                "idle_ms": sum(not u for u in units),
            }
            for name, value in expected.items():
                assert row[name] == pytest.approx(value * UNIT / 1e9), (window, name)
                if name != "time_ms":
                    percent = 100 * value / len(units) if units else np.nan
                    assert row[name.replace("_ms", "_percent")] == pytest.approx(
                        percent, nan_ok=True
                    )
            sums = {
                "compute_ms": sum(COMPUTE in u for u in units),
                "communication_ms": sum(COMMUNICATION in u for u in units),
                "memory_ms": sum(MEMORY in u for u in units),
                "compute_communication_ms": sum({COMPUTE, COMMUNICATION} <= u for u in units),
                "compute_memory_ms": sum({COMPUTE, MEMORY} <= u for u in units),
                "communication_memory_ms": sum({COMMUNICATION, MEMORY} <= u for u in units),
                "exposed_communication_ms": sum(
                    COMMUNICATION in u and COMPUTE not in u for u in units
                ),
                "exposed_memory_ms": sum(u == {MEMORY} for u in units),
            }
            for name, value in sums.items():
                assert other[name] == pytest.approx(value * UNIT / 1e9), (window, name)
            hidden = sums["memory_ms"] - sums["exposed_memory_ms"]
            percent = 100 * hidden / sums["memory_ms"] if sums["memory_ms"] else np.nan
            assert other["memory_overlap_percent"] == pytest.approx(percent, nan_ok=True)


def test_spans_that_touch_are_one():
    mix = Mix(np.array([0, 3]), np.array([3, 6]), np.array([COMPUTE, COMPUTE]))
    assert mix.time.tolist() == [0, 6]
    # A window that ends, or begins, within the last work.
    assert mix.within(np.array([0, 4]), np.array([4, 9]))[:2].tolist() == [[0, 3], [4, 2]]


@pytest.mark.parametrize("seed", range(4))
def test_figures_of_kernels_are_those_of_their_runs(seed):
    done, trace = made(seed)
    rows = device_time.kernels(done, trace.display)
    for row in rows.itertuples():
        mine = (np.array(HOSTS, object)[done.host] == row.host) & (
            trace.names[done.name] == row.kernel
        )
        mine &= np.array([device_time.CLASS_NAMES[c] == row[4] for c in done.cls.tolist()])
        runs = (done.end - done.start)[mine] / 1e6
        assert row.occurrences == len(runs)
        assert row.total_us == pytest.approx(runs.sum())
        assert row.avg_us == pytest.approx(runs.mean())
        assert row.sd_us == pytest.approx(
            runs.std(ddof=1) if len(runs) > 1 else np.nan, nan_ok=True
        )
        assert (row.min_us, row.median_us, row.max_us) == pytest.approx(
            (runs.min(), np.median(runs), runs.max())
        )
    for _, mine in rows.groupby("host"):
        assert mine["total_us"].is_monotonic_decreasing
        assert mine["percent"].sum() == pytest.approx(100)
        assert mine["cumulative_percent"].iloc[-1] == pytest.approx(100)


@pytest.mark.parametrize("follows", [30_000_000, 20_000_000])
@pytest.mark.parametrize("seed", range(4))
def test_gaps_by_what_they_waited_for(seed, follows):
    done, trace = made(seed)
    idle = device_time_idle.frame(done, trace, follows)
    categories = set()
    for host in (0, 1):
        for stream in ("", "Stream 0", "Stream 1"):
            rows = [
                i
                for i in np.flatnonzero(done.host == host).tolist()
                if not stream or trace.lanes["thread"].iloc[done.lane[i]] == stream
            ]
            found = {"host_wait": [], "kernel_wait": [], "other": []}
            reach = done.end[rows[0]]
            for i in rows[1:]:
                gap = int(done.start[i] - reach)
                if gap > 0:
                    launched = trace.events.start[done.launch[i]] if done.launch[i] >= 0 else -1
                    name = (
                        "host_wait"
                        if launched > reach
                        else "kernel_wait"
                        if gap < follows
                        else "other"
                    )
                    found[name].append(gap)
                reach = max(reach, done.end[i])
            mine = idle[(idle["host"] == HOSTS[host]) & (idle["stream"] == stream)].set_index(
                "category"
            )
            whole = sum(map(sum, found.values()))
            for name, gaps in found.items():
                assert mine.loc[name, "gaps"] == len(gaps), (host, stream, name)
                assert mine.loc[name, "idle_ms"] == pytest.approx(sum(gaps) / 1e9)
                assert mine.loc[name, "percent"] == pytest.approx(100 * sum(gaps) / whole)
                if gaps:
                    categories.add((name, follows in gaps))
                    told = mine.loc[name, ["mean_us", "median_us", "max_us"]].tolist()
                    assert told == pytest.approx(
                        [np.mean(gaps) / 1e6, np.median(gaps) / 1e6, max(gaps) / 1e6]
                    )
    assert {name for name, _ in categories} == {"host_wait", "kernel_wait", "other"}
    assert ("other", True) in categories


@pytest.mark.parametrize("seed", range(4))
def test_launches_one_by_one(seed):
    done, trace = made(seed)
    rows = launches.each(done, trace)
    expected = []
    for call in np.unique(done.launch[done.launch >= 0]).tolist():
        of = np.flatnonzero(done.launch == call)
        start, takes = int(trace.events.start[call]), int(trace.events.duration[call])
        work = int((done.end - done.start)[of].sum())
        first = of[0]
        expected.append(
            (
                HOSTS[done.host[first]],
                trace.names[done.name[first]],
                device_time.CLASS_NAMES[int(done.cls[first])],
                len(of),
                start / 1e9,
                takes / 1e6,
                work / 1e6,
                max(int(done.start[first]) - start - takes, 0) / 1e6,
                work < takes,
            )
        )
    columns = [
        "host",
        "kernel",
        "class",
        "kernels",
        "start_ms",
        "call_us",
        "kernel_us",
        "delay_us",
        "short",
    ]
    got = [tuple(row) for row in rows[columns].to_numpy(object).tolist()]
    assert sorted(map(str, got)) == sorted(map(str, expected))
    # Ties are among them.
    assert any(work == takes > 0 for *_, takes, work, _, _ in expected)
    assert rows["start_ms"].groupby(rows["host"]).apply(lambda v: v.is_monotonic_increasing).all()
    whole = launches.summary(done, trace)
    all_of = whole[whole["kernel"] == ""].set_index("host")
    for host, mine in rows.groupby("host"):
        assert all_of.loc[host, "launches"] == len(mine)
        assert all_of.loc[host, "short"] == mine["short"].sum()
        assert all_of.loc[host, "slow_calls"] == (mine["call_us"] > 50).sum()
        assert all_of.loc[host, "long_delays"] == (mine["delay_us"] > 100).sum()
        assert all_of.loc[host, "delay_us"] == pytest.approx(mine["delay_us"].mean())


@pytest.mark.parametrize("seed", range(4))
def test_queues_of_launched_works(seed):
    done, trace = made(seed)
    rows = device_time_series.queue(done, trace, full=2)
    assert len(rows) == 4
    for row in rows.itertuples():
        lane = int(
            trace.lanes.index[
                (trace.lanes["host"] == row.host) & (trace.lanes["thread"] == row.stream)
            ][0]
        )
        mine = np.flatnonzero((done.lane == lane) & (done.launch >= 0))
        launched = trace.events.start[done.launch[mine]] // UNIT
        begun = np.maximum(done.start[mine] // UNIT, launched)
        units = np.arange(launched.min(), begun.max())
        length = np.array([((launched <= unit) & (unit < begun)).sum() for unit in units])
        assert row.works == len(mine)
        assert row.mean_length == pytest.approx(length.mean())
        assert row.median_length in (
            np.sort(length)[(len(length) - 1) // 2],
            np.sort(length)[len(length) // 2],
        )
        assert row.empty_percent == pytest.approx(100 * (length == 0).mean())
        assert row.full_ms == pytest.approx((length >= 2).sum() * UNIT / 1e9)
        # What is launched and begins in the same moment was in the queue.
        assert row.max_length == max(
            int((launched <= at).sum() - (begun < at).sum()) for at in launched.tolist()
        )
    series = device_time_series.queue_series(done, trace)
    assert (series["queue_length"] >= 0).all()
    assert (series.groupby(["host", "stream"])["queue_length"].last() == 0).all()
    streams = list(zip(rows["host"], rows["device"], rows["stream"], strict=True))
    for (host, device, stream), (time, length) in zip(
        streams, device_time_series.queue_curves(done, trace, streams), strict=True
    ):
        mine = series[
            (series["host"] == host) & (series["device"] == device) & (series["stream"] == stream)
        ]
        assert time.tolist() == mine["time_ms"].tolist()
        assert length.tolist() == mine["queue_length"].tolist()


def test_cores_of_a_host_are_told_by_it_though_another_has_kernels_on_the_device_of_that_number():
    from nbprof.activity import activity as act
    from nbprof.activity.tables import CoreSpans, Kernels

    events = SimpleNamespace(
        lane=np.array([0, 1], np.int32),
        name=np.array([0, 0], np.int32),
        start=np.array([0, 5]),
        duration=np.array([10, 20]),
    )
    lanes = pd.DataFrame({"host": HOSTS, "device": [0, 0]})
    trace = SimpleNamespace(events=_Sized(events), lanes=lanes, names=np.array(["k"], object))
    activity = act.Activity(HOSTS)
    kernel = {
        "duration": 10,
        "kernel": 0,
        "op": 0,
        "details": 0,
        "eligible": 0,
        "tensor_core": 0,
        "occupancy": 0.0,
    }
    activity.kernels = Kernels(event=np.array([0]), host=0, device=0, **kernel)
    activity.core_spans = CoreSpans(
        event=np.arange(2), host=[0, 1], device=0, core=-1, start=[0, 5], end=[10, 25], kind=0, op=0
    )
    assert act.CORE_KINDS[0] == "compute"
    done = device_time.work(activity, trace)
    assert done.host.tolist() == [0, 1]
    assert (done.end - done.start).tolist() == [10, 20]


class _Sized:
    """Events that know their number."""

    def __init__(self, columns: SimpleNamespace) -> None:
        self.__dict__.update(columns.__dict__)

    def __len__(self) -> int:
        return len(self.start)
