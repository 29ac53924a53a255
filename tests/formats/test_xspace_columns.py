"""Events and args of a trace are in the order of (lane, start, -duration), whatever order the file
has; several files are one trace.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core.files import Buffer, LocalFile
from nbprof.core.trace import BYTES, DOUBLE, INT, TEXT, UINT
from nbprof.formats.xspace import batches as xspace_batches
from nbprof.formats.xspace import columns as xspace_columns
from nbprof.formats.xspace import xspace
from tests.support.xspace import PlaneWriter, Ref, UInt, chunk, number
from tests.support.xspace import xspace as write

EPOCH = 1_795_236_712_853_460_123


@pytest.fixture
def read(tmp_path):
    def read(*files, progress=None):
        paths = []
        for i, data in enumerate(files):
            paths.append(tmp_path / f"host-{i}.xplane.pb")
            paths[-1].write_bytes(data)
        return xspace.read([LocalFile(path) for path in paths], progress)

    return read


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 3)), max_size=60),
    st.booleans(),
    st.sampled_from([1, 1000]),
)
def test_order(events, by_lane, many):
    if by_lane:
        events = sorted(events, key=lambda e: e[0])
    lane, start, duration = np.array(events, np.int64).reshape(-1, 3).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xspace_columns, "_MANY_LANES", many)
        order = xspace_columns.sorted_order(lane.astype(np.int32), start, duration)
    want = sorted(range(len(events)), key=lambda i: (events[i][0], events[i][1], -events[i][2]))
    assert (list(range(len(events))) if order is None else order.tolist()) == want
    assert (order is None) == (want == list(range(len(events))))


def test_args_follow_their_events(read, monkeypatch):
    monkeypatch.setattr(xspace_batches, "MOST_EVENTS", 50)
    monkeypatch.setattr(xspace_batches, "_FEWEST_EVENTS", 50)
    chance = random.Random(3)
    plane = PlaneWriter("p")
    for ident in (5, 6, 5):
        events = []
        for _ in range(200):
            at = chance.randrange(1000)
            mixed = chance.choice(
                [at, float(at), str(at), UInt(at), Ref(str(at)), str(at).encode()]
            )
            events.append(
                plane.event(
                    "e",
                    at,
                    chance.randrange(5),
                    own=at,
                    **({"mixed": mixed} if chance.random() < 0.7 else {}),
                )
            )
        plane.line(f"line {ident}", events, line_id=ident)
    trace = read(write(plane))
    events = trace.events
    keys = list(
        zip(events.lane.tolist(), events.start.tolist(), (-events.duration).tolist(), strict=True)
    )
    assert keys == sorted(keys)
    assert trace.lanes["events"].tolist() == [400, 200]
    own, mixed = trace.args["own"], trace.args["mixed"]
    assert own.values.tolist() == events.start.tolist()
    assert (np.diff(mixed.event) > 0).all()
    assert set(mixed.kinds.tolist()) == {INT, UINT, DOUBLE, TEXT, BYTES}
    for event, kind, value in zip(
        mixed.event.tolist(), mixed.kinds.tolist(), mixed.values.tolist(), strict=True
    ):
        if kind == TEXT:
            value = int(trace.strings[value])
        elif kind == BYTES:
            value = int(trace.blobs[value])
        elif kind == DOUBLE:
            value = np.int64(value).view(np.float64)
        assert value == events.start[event]


def test_values_are_as_narrow_as_they_are_and_exact(read):
    plane = PlaneWriter("p")
    rows = [
        (1, -1, 2**63, 2**40, 0.5),
        (200, 3, 2**64 - 1, -(2**40), -0.5),
        (7, 100, 1, 2**62, float("inf")),
    ]
    plane.line(
        "t",
        [
            plane.event("e", i, 1, a=a, b=b, c=UInt(c), d=d, f=f)
            for i, (a, b, c, d, f) in enumerate(rows)
        ],
    )
    args = read(write(plane)).args
    assert {name: column.value.dtype.name for name, column in args.items()} == {
        "a": "uint8",
        "b": "int8",
        "c": "uint64",
        "d": "int64",
        "f": "int64",
    }
    assert [args[name].value.tolist() for name in "abcd"] == [
        list(column) for column in list(zip(*rows, strict=True))[:4]
    ]
    assert args["f"].floats().tolist() == [0.5, -0.5, float("inf")]
    assert args["c"].floats().tolist() == [2.0**63, 2.0**64, 1.0]
    assert args["a"].kind == INT
    assert args["a"].event.dtype == np.int32


def test_unsigned_and_signed_numbers_of_one_arg_stay_exact(read):
    plane = PlaneWriter("p")
    plane.line(
        "t",
        [
            plane.event("e", 0, 1, x=UInt(2**64 - 1)),
            plane.event("e", 1, 1, x=-5),
            plane.event("e", 2, 1, x=2**62 + 1),
        ],
    )
    column = read(write(plane)).args["x"]
    assert column.kinds.tolist() == [UINT, INT, INT]
    assert column.values.tolist() == [-1, -5, 2**62 + 1]


def test_two_stat_ids_of_one_name_are_one_arg_and_unnamed_ones_stay_apart(read):
    def stat(ident, value):
        return chunk(4, number(1, ident) + number(4, value))

    big = 2**63 + 11
    line = (
        chunk(4, number(2, 1) + stat(1, 10))
        + chunk(4, number(2, 2) + stat(2, 20))
        + chunk(4, number(2, 3) + stat(big, 30) + stat(77, 40))
    )
    names = b"".join(
        chunk(5, number(1, i) + chunk(2, number(1, i) + chunk(2, "x"))) for i in (1, 2)
    )
    args = read(chunk(1, chunk(3, line) + names)).args
    assert {
        name: (column.event.tolist(), column.values.tolist()) for name, column in args.items()
    } == {
        "x": ([0, 1], [10, 20]),
        f"stat {big - 2**64}": ([2], [30]),
        "stat 77": ([2], [40]),
    }


def test_ids_of_any_number_find_their_names(read):
    idents = [0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    line = b"".join(
        chunk(4, number(1, ident) + number(2, i)) for i, ident in enumerate(idents * 40)
    )
    names = b"".join(
        chunk(4, number(1, ident) + chunk(2, number(1, ident) + chunk(2, f"n{ident}")))
        for ident in idents[:-1]
    )
    trace = read(chunk(1, chunk(3, line) + names))
    assert [trace.names[c] for c in trace.events.name] == [
        *(f"n{i}" for i in idents[:-1]),
        "event -1",
    ] * 40
    assert any(
        "40 events in a plane without a name have no name there" in n.text
        for n in trace.receipt.entries
    )


def test_aggregated_events_are_kept_beside_the_timeline(read):
    plane = PlaneWriter("p")
    plane.line(
        "t",
        [plane.event("a", 1, 5), plane.event("sum", 0, 90, occurrences=12), plane.event("b", 3, 5)],
        line_id=4,
    )
    plane.line("u", [plane.event("sum", 0, 7, occurrences=0)], line_id=5)
    # The last one of fields that exclude each other counts.
    plane.lines.append(
        number(1, 6)
        + chunk(4, number(1, 1) + number(5, 3) + number(2, 8))
        + chunk(4, number(1, 1) + number(2, 8) + number(5, 3))
    )
    trace = read(write(plane))
    table = trace.aggregated
    assert [trace.names[c] for c in table["name"]] == ["sum", "sum", "a"]
    assert table[["lane", "occurrences", "duration"]].to_numpy().tolist() == [
        [0, 12, 90],
        [1, 0, 7],
        [2, 3, 0],
    ]
    assert trace.events.start.tolist() == [1, 3, 8]
    assert trace.receipt.dropped == 0
    assert any("3 aggregated events" in n.text for n in trace.receipt.entries)


def test_what_a_name_states_once_is_kept(read):
    plane = PlaneWriter("p")
    extra = (
        chunk(4, "short")
        + chunk(3, b"\x00opaque")
        + chunk(5, plane.stat("flops", 7))
        + chunk(5, plane.stat("Hlo Proto", b"\x0a\x00"))
    )
    plane.event_extra["fusion"] = extra + number(6, 2) + chunk(6, b"\x03\x63")
    plane.line("t", [plane.event(name, i, 1) for i, name in enumerate(["fusion", "add", "mul"])])
    described = chunk(5, number(1, 50) + chunk(2, chunk(2, "x") + chunk(3, "what x is")))
    trace = read(chunk(1, plane.encode() + described))
    assert trace.names.tolist() == ["fusion", "add", "mul"]
    assert trace.display.tolist() == ["short", "add", "mul"]
    assert trace.name_args == {"flops": {0: 7}}
    assert [(m.name, m.ident, m.data) for m in trace.modules] == [("fusion", 1, b"\x0a\x00")]
    assert trace.metadata == {
        "event_metadata": {0: b"\x00opaque"},
        "event_children": {0: [1, 2]},
        "arg_descriptions": {"x": "what x is"},
    }


def test_hosts_share_one_clock(read):
    files = []
    for host, late in (("b", 7), ("a", 0)):
        plane = PlaneWriter("/host:CPU")
        plane.line(
            "absolute",
            [plane.event(f"{host} absolute", 5, 1)],
            line_id=1,
            timestamp_ns=EPOCH + late,
        )
        plane.line("relative", [plane.event(f"{host} relative", 5, 1)], line_id=2, timestamp_ns=1)
        files.append(write(plane, hostname=host))
    told: list[str] = []
    trace = read(*files, progress=told.append)
    assert told == ["reading host-0.xplane.pb", "reading host-1.xplane.pb"]
    assert trace.epoch_ns == EPOCH
    assert trace.hosts == ["b", "a"]
    starts = dict(
        zip((trace.names[c] for c in trace.events.name), trace.events.start.tolist(), strict=True)
    )
    assert starts == {"b absolute": 7005, "b relative": 1005, "a absolute": 5, "a relative": 1005}


def test_a_clock_that_is_years_ahead_is_said(read):
    files = []
    for host, stamp in (("a", EPOCH), ("b", EPOCH + 10**17)):
        plane = PlaneWriter("/host:CPU")
        plane.line("t", [plane.event("e", 5, 1)], timestamp_ns=stamp)
        files.append(write(plane, hostname=host))
    trace = read(*files)
    assert trace.events.start.tolist() == [5, 5]
    assert any("clock of b is more than a week ahead" in n.text for n in trace.receipt.entries)


def test_times_since_the_machine_was_started_count_from_the_first(read):
    plane = PlaneWriter("/host:CPU")
    uptime = 200 * 86_400 * 10**9
    plane.line("t", [plane.event("e", 5, 1)], timestamp_ns=uptime + 3)
    plane.line("u", [plane.event("f", 5, 1)], line_id=2, timestamp_ns=uptime)
    trace = read(write(plane))
    assert trace.events.start.tolist() == [3005, 5]
    assert trace.receipt.dropped == 0


@pytest.mark.parametrize("stamp", [EPOCH - 10**17, EPOCH + 10**17])
def test_a_line_with_a_damaged_stamp_does_not_place_all_others(read, stamp):
    plane = PlaneWriter("/host:CPU")
    for nth, of_line in enumerate((EPOCH, EPOCH + 7, stamp)):
        plane.line(str(nth), [plane.event("e", 5, 1)], line_id=nth, timestamp_ns=of_line)
    trace = read(write(plane))
    assert trace.events.start.tolist() == [5, 7_005]
    assert trace.epoch_ns == EPOCH
    assert trace.receipt.dropped == 1


def test_two_files_of_one_host_are_told_apart(read):
    plane = PlaneWriter("/host:CPU")
    plane.line("t", [plane.event("e", 5, 1)])
    trace = read(write(plane), write(plane))
    assert trace.hosts == ["host-a", "host-1"]
    assert trace.lanes["host"].tolist() == ["host-a", "host-1"]


@pytest.mark.parametrize("threads", [1, 3])
def test_memory_is_given_back_as_batches_are_done(read, monkeypatch, threads):
    given: list[tuple[int, int]] = []
    release = Buffer.release
    monkeypatch.setattr(xspace_batches, "_KEPT", 0)
    monkeypatch.setattr(xspace_batches, "_THREADS", threads)
    monkeypatch.setattr(
        Buffer, "release", lambda self, a, b: given.append((a, b)) or release(self, a, b)
    )
    plane = PlaneWriter("p")
    events = [plane.event("e", i, 1, x=i) for i in range(1000)]
    # One that has no common shape, in the middle.
    events[500] += number(99, 1)
    plane.line("t", events * 100)
    data = write(plane)
    trace = read(data)
    assert len(trace.events) == 100_000
    assert trace.args["x"].values[:1000].tolist() == sorted(
        i for i in range(10) for _ in range(100)
    )
    given.sort()
    assert sum(b - a for a, b in given) > 0.9 * len(data)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(given))
