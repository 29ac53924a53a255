"""The compiled reader finds the events of lines that a walk in Python finds."""

from __future__ import annotations

import bisect
import itertools
import random

import numpy as np
import pytest

from nbprof.core import wire
from nbprof.core.errors import ReadError
from nbprof.formats.xspace import split as xspace_split
from nbprof.native import wire as native_wire
from tests.support.xspace import chunk, number

CHANCE = random.Random(0)
STATS = [
    chunk(4, number(1, CHANCE.randrange(100)) + number(4, CHANCE.randrange(10**6)))
    for _ in range(6000)
]
ENDS = list(itertools.accumulate(map(len, STATS)))


def event(chance, length):
    """An event of about a length, of stats, so that its inside looks like events, too."""
    out = number(1, chance.randrange(300)) + number(2, chance.randrange(10**9)) + number(3, 5)
    first = chance.randrange(len(STATS) // 2)
    last = bisect.bisect_left(ENDS, ENDS[first] + length - len(out))
    return out + b"".join(STATS[first + 1 : last + 1])


def line(seed, lengths):
    chance = random.Random(seed)
    parts = [number(1, 7) + chunk(2, "a line") + number(3, 99)]
    for _ in range(chance.choice([5, 80, 400])):
        parts.append(chunk(4, event(chance, chance.choice(lengths))))
        if chance.randrange(40) == 0:
            parts.append(
                chance.choice(
                    [
                        number(9, 5),
                        chunk(11, "shown"),
                        chunk(4, b""),
                        b"\x7b\x08\x01\x7c",
                        number(77, 3),
                        chunk(99, b"\x22\x06" * 9),
                    ]
                )
            )
    parts.append(chunk(11, "behind") + number(10, 3))
    return b"".join(parts)


def walked(data, base):
    others: list = []
    return xspace_split._walk(data, base, others).tolist(), others


@pytest.mark.parametrize(
    "lengths",
    [[10], [10, 40, 90], [30, 127, 128, 300], [20, 16_383, 17_000]],
    ids=["short", "mixed", "two bytes", "three bytes"],
)
@pytest.mark.parametrize("seed", range(6))
def test_events_are_those_that_a_walk_finds(seed, lengths, monkeypatch):
    monkeypatch.setattr(native_wire, "_ROOM", 7)
    lines = [line(seed * 10 + i, lengths) for i in range(4)]
    data = b"head" + b"between".join(lines) + b"tail"
    places, at = [], 4
    for each in lines:
        places.append((at, at + len(each)))
        at += len(each) + len(b"between")
    buf = wire.buffer(data)
    starts, others = xspace_split.event_starts(buf, places)
    for (start, stop), found, rest in zip(places, starts, others, strict=True):
        assert (found.tolist(), rest) == walked(data[start:stop], start)
        content, end = xspace_split.spans(buf, found)
        for tag, a, b in zip(found.tolist(), content.tolist(), end.tolist(), strict=True):
            assert wire.read_field(data, tag, stop) == (4, wire.LENGTH, a, b)


def test_events_are_not_read_one_by_one_in_python(monkeypatch):
    data = b"".join(chunk(4, event(random.Random(i), 45)) for i in range(2000))
    alone: list[int] = []
    read = wire.read_field
    monkeypatch.setattr(wire, "read_field", lambda *args: alone.append(args[1]) or read(*args))
    ((starts,), _) = xspace_split.event_starts(wire.buffer(data), [(0, len(data))])
    assert len(starts) == 2000
    assert not alone


@pytest.mark.parametrize("tag", [b"\xa2\x00", b"\xa2\x80\x80\x80\x00"])
def test_a_tag_that_is_longer_than_it_needs_to_be(tag):
    plain = chunk(4, number(1, 3))
    data = plain + tag + plain[1:] + plain
    buf = wire.buffer(data)
    (starts,), (others,) = xspace_split.event_starts(buf, [(0, len(data))])
    assert (starts.tolist(), others) == walked(data, 0)
    assert starts.tolist() == [0, 4, len(data) - 4]
    content, end = xspace_split.spans(buf, starts)
    assert [data[a:b] for a, b in zip(content.tolist(), end.tolist(), strict=True)] == [
        plain[2:]
    ] * 3


@pytest.mark.parametrize("cut", range(1, 60))
def test_an_event_that_runs_over_its_line_is_an_error_at_its_byte(cut):
    data = line(1, [40]) + b"".join(chunk(4, event(random.Random(i), 40)) for i in range(30))
    buf = wire.buffer(data + b"\x22\x05" * 100)
    stop = len(data) - cut
    inside = walked(data, 0)[0]
    if stop in inside:
        assert len(xspace_split.event_starts(buf, [(0, stop)])[0][0]) == inside.index(stop)
        return
    last = max(start for start in inside if start < stop)
    with pytest.raises(ReadError) as caught:
        xspace_split.event_starts(buf, [(0, stop)])
    assert last <= caught.value.offset <= stop


def test_what_looks_like_events_within_another_field_is_none():
    inside = chunk(4, number(1, 1) + number(2, 2) + number(3, 3)) * 500
    data = chunk(99, inside) + chunk(4, number(1, 1))
    starts, others = xspace_split.event_starts(wire.buffer(data), [(0, len(data))])
    assert starts[0].tolist() == [len(data) - 4]
    assert [o[0] for o in others[0]] == [99]


def test_no_lines_no_events():
    assert xspace_split.event_starts(wire.buffer(b""), []) == ([], [])
    starts, others = xspace_split.event_starts(wire.buffer(b"abc"), [(1, 1)])
    assert (starts[0].dtype, len(starts[0]), others) == (np.int64, 0, [[]])
