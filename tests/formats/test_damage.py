"""Damaged bytes are an error with a sentence, or a profile that can still be looked at: never
anything else.
"""

from __future__ import annotations

import random
import re
import warnings

import numpy as np
import pytest

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.times import LONGEST_PS
from nbprof.formats.xspace import xspace
from nbprof.profiles.load import load
from tests.support.xspace import MS, PlaneWriter, chunk, gpu_run, number, training_run, varint
from tests.support.xspace import xspace as write


@pytest.fixture
def read(tmp_path):
    def read(data):
        path = tmp_path / "host.xplane.pb"
        path.write_bytes(data)
        return xspace.read([LocalFile(path)])

    return read


@pytest.mark.parametrize("seed", range(8))
def test_random_damage_ends_in_a_sentence_or_a_profile(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "host.xplane.pb"
    outcomes = {"error": 0, "profile": 0}
    for turn in range(12):
        data = bytearray(training_run(3) if turn % 2 else gpu_run())
        for _ in range(rng.choice([1, 1, 2, 5])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data))
        try:
            profile = load(path)
        except ReadError as error:
            outcomes["error"] += "host.xplane.pb" in str(error)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            outcomes["profile"] += bool(profile.payload()) and bool(profile.text())
    assert sum(outcomes.values()) == 12
    assert outcomes["error"] > 0


def test_truncation_at_every_byte(read):
    """Planes that are whole are kept and the receipt names the byte; without one, events that are.
    Nothing of a cut plane behind others is shown.
    """
    planes = []
    for name in ("/host:CPU", "/device:GPU:0"):
        plane = PlaneWriter(name, {"clock": 1.5})
        plane.line("t", [plane.event(f"op {i}", i * MS, MS, tag=i, text="x") for i in range(3)])
        planes.append(plane)
    data = write(*planes)
    ends = [len(chunk(1, planes[0].encode())), len(b"".join(chunk(1, p.encode()) for p in planes))]
    event = planes[0].event("op 0", 0, MS, tag=0, text="x")
    first_event = data.index(event) + len(event)
    for cut in range(1, len(data)):
        whole = sum(end <= cut for end in ends)
        if cut < first_event:
            with pytest.raises(ReadError, match=r"host.xplane.pb, byte \d+: .*truncated") as caught:
                read(data[:cut])
            assert caught.value.offset <= cut
            continue
        trace = read(data[:cut])
        if not whole:
            assert [p.name for p in trace.planes if p.is_cut] == ["/host:CPU"]
            assert 1 <= trace.receipt.events <= 3
            assert trace.receipt.read_in_part
            continue
        assert [p.name for p in trace.planes] == ["/host:CPU", "/device:GPU:0"][:whole]
        assert trace.receipt.events == 3 * whole
        notes = [n.text for n in trace.receipt.entries if n.level == "warning"]
        if cut in ends:
            assert notes == []
        else:
            assert len(notes) == 1
            assert (
                int(
                    re.search(r"is truncated: it ends inside the field at byte ([\d,]+)", notes[0])[
                        1
                    ].replace(",", "")
                )
                == ends[whole - 1]
            )


def long_by(data, at, more):
    """A file in which the length byte at a place says more than there is."""
    return data[:at] + bytes([data[at] + more]) + data[at + 1 :]


def test_a_length_past_the_end_at_every_level(read):
    plane = PlaneWriter("p")
    plane.line("t", [plane.event("op", 1, 2, text="abc")])
    stat = chunk(4, plane.stat("text", "abc"))
    data = write(plane)
    assert read(data).receipt.events == 1
    levels = {
        "plane": 1,
        "line": data.index(b"\x1a") + 1,
        "stat": data.index(stat) + 1,
        "text": data.index(b"\x2a\x03abc") + 1,
    }
    levels["event"] = data.index(stat) - 7
    assert data[levels["event"] - 1] == 0x22
    for level, at in levels.items():
        for more in (1, 40):
            with pytest.raises(ReadError, match=r"host.xplane.pb, byte \d+: "):
                pytest.fail(f"{level} + {more}: {read(long_by(data, at, more)).receipt}")


@pytest.mark.parametrize("depth", [1, 100, 101, 100_000])
@pytest.mark.parametrize("where", ["space", "plane", "line", "event", "events"])
def test_groups_however_deep(read, depth, where):
    bomb = b"\x7b" * depth + b"\x7c" * depth
    plane = PlaneWriter("p")
    plane.line("t", [plane.event("op", 1, 2)])
    data = {
        "space": bomb + write(plane),
        "plane": chunk(1, plane.encode() + bomb),
        "line": chunk(1, plane.encode() + chunk(3, bomb)),
        "event": chunk(1, plane.encode() + chunk(3, chunk(4, bomb))),
        "events": chunk(1, plane.encode() + chunk(3, chunk(4, b"\x08\x01" + bomb) * 50)),
    }[where]
    inside = {"space": 0, "plane": 1, "line": 2, "event": 3, "events": 3}[where]
    if depth + inside <= 100:
        assert read(data).receipt.events == 1 + {"event": 1, "events": 50}.get(where, 0)
    else:
        with pytest.raises(ReadError, match="groups are nested over 100 deep"):
            read(data)


def test_a_hundred_thousand_lanes(read):
    plane = PlaneWriter("/host:CPU")
    for i in range(100_000):
        plane.line(f"t{i}", [plane.event("a", 5, 7, x=i)], line_id=i)
    trace = read(write(plane))
    assert len(trace.lanes) == len(trace.events) == 100_000
    assert trace.args["x"].values.tolist() == list(range(100_000))
    assert trace.lanes["thread"].iloc[-1] == "t99999"


@pytest.mark.parametrize(
    "inside",
    [
        chunk(4, number(1, 1) + chunk(4, number(1, 1) + number(4, 7)) * 200_000),
        b"".join(chunk(4, chunk(4, number(1, i) + number(4, 7))) for i in range(30_000)),
        b"".join(chunk(4, number(100 + i, 7)) for i in range(70_000)),
        b"\x22\x00" * 200_000,
        b"\x7b\x7c" * 100_000,
        chunk(4, b"\x7b\x7c" * 100_000),
    ],
    ids=[
        "stats of an event",
        "stat ids",
        "unknown fields",
        "empty events",
        "groups of a line",
        "groups of an event",
    ],
)
def test_great_numbers_of_anything(read, inside):
    trace = read(chunk(1, chunk(3, inside)))
    assert sum(len(column) for column in trace.args.values()) in (0, 200_000, 30_000)


def test_times_that_cannot_be_are_left_out_and_counted(read):
    plane = PlaneWriter("p")
    far = LONGEST_PS + 1
    times = [
        (0, 5),
        (far, 1),
        (-far, 1),
        (5, far),
        (far - 2000, 1),
        (3, -7),
        (far // 1000 * 999, 1),
    ]
    plane.line(
        "t", [plane.event(f"e{i}", *time, x=i) for i, time in enumerate(times)], timestamp_ns=2
    )
    plane.line("never", [plane.event("gone", 1, 1, x=9)], line_id=2, timestamp_ns=2**62)
    plane.line("clock", [plane.event("e7", 0, 1, x=7)], line_id=4, timestamp_ns=10**18)
    plane.line("before", [plane.event("gone", 1, 1, x=9)], line_id=3, timestamp_ns=-(2**62))
    trace = read(write(plane))
    kept = [trace.names[c] for c in trace.events.name]
    assert kept == ["e0", "e5", "e6", "e7"]
    assert trace.args["x"].values.tolist() == [0, 5, 6, 7]
    assert trace.receipt.skipped == {
        "in p have times more than a week from the start: damaged, left out.": 6
    }
    assert trace.events.duration.tolist() == [5, 0, 1, 1]
    assert any(
        "Events in p that end before they start, treated as having zero duration: 1." in n.text
        for n in trace.receipt.entries
    )
    assert (np.abs(trace.events.end) < 2**63 - 1).all()
    assert trace.lanes["events"].tolist() == [3, 0, 1, 0]


def test_a_bad_byte_in_a_name_is_shown_and_reported(read):
    plane = PlaneWriter("p")
    plane.line("t", [plane.event("kernel", 1, 2)])
    trace = read(write(plane).replace(b"kernel", b"k\xffrnel"))
    assert trace.names.tolist() == ["k\N{REPLACEMENT CHARACTER}rnel"]
    assert any(
        "1 string with invalid UTF-8" in n.text and n.level == "warning"
        for n in trace.receipt.entries
    )


def test_an_empty_file_and_one_without_planes(read):
    with pytest.raises(ReadError, match=r"host.xplane.pb: the file is empty"):
        read(b"")
    with pytest.raises(ReadError, match="it has no planes"):
        read(chunk(4, "host-a"))


def test_what_a_profiler_reports_a_million_times_is_said_some_times(read):
    data = b"".join(chunk(2, f"lost buffer {i}") for i in range(5000)) + chunk(1, b"")
    notes = [n.text for n in read(data).receipt.entries]
    assert len(notes) == 21
    assert notes[-1] == "The profiler reported an error: 4,980 more."


def test_a_length_of_two_gigabytes_takes_no_memory(read):
    with pytest.raises(ReadError, match="runs over the end"):
        read(b"\x0a" + varint(2**31 - 1) + b"\x00" * 64)
    with pytest.raises(ReadError, match="more than 2 GiB"):
        read(b"\x0a" + varint(2**31) + b"\x00" * 64)


def event(*stats):
    return chunk(4, b"".join(chunk(4, number(1, i) + value) for i, value in enumerate(stats, 1)))


@pytest.mark.parametrize(
    ("data", "warns"),
    [
        # A line, a plane and a file that end with a group.
        (chunk(1, chunk(3, event() + b"\x7b\x7c") + b"\x7b\x7c") + b"\x7b\x7c", False),
        # Field number 0 inside a group.
        (b"\x0b\x05\x08\x06\x12\x01\x0c" + chunk(1, chunk(3, event())), False),
        # A text that is no UTF-8 on an event that is left out, and one that another value replaces.
        (
            chunk(
                1,
                chunk(
                    3, chunk(4, number(5, 3) + chunk(4, number(1, 1) + chunk(5, b"\xff"))) + event()
                ),
            ),
            True,
        ),
        (chunk(1, chunk(3, event(chunk(5, b"\xff") + number(4, 3)))), True),
        (
            chunk(
                1,
                chunk(4, number(1, 1) + chunk(2, chunk(2, b"\xff") + chunk(2, "good")))
                + chunk(3, event()),
            ),
            True,
        ),
        (chunk(1, chunk(2, b"\xff") + chunk(2, "good") + chunk(3, event())), True),
    ],
)
def test_finds_of_the_fuzzer(read, data, warns):
    trace = read(data)
    assert trace.receipt.events == 1
    assert any("invalid UTF-8" in n.text for n in trace.receipt.entries) == warns


def test_a_file_of_no_planes_and_bad_texts_names_a_byte(read):
    with pytest.raises(ReadError, match=r"host.xplane.pb, byte 0: it has no planes"):
        read(chunk(2, b"\xff"))
