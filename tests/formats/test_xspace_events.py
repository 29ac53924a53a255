"""The compiled reader gives what `general` gives, and leaves the rest to it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core import wire
from nbprof.formats.xspace import general as xspace_general
from nbprof.formats.xspace.split import spans
from nbprof.native import xspace as native
from tests.support.xspace import chunk, double, number

UINT64 = st.integers(0, 2**64 - 1)


def placed(events):
    """The bytes of events, behind one another, and where their tags are."""
    whole = [chunk(4, event) for event in events]
    ends = np.cumsum([0] + [len(e) for e in whole])
    return wire.buffer(b"".join(whole)), ends[:-1].astype(np.int64)


@given(
    st.lists(
        UINT64
        | st.integers(0, 300)
        | st.sampled_from([2**k - d for k in range(1, 65) for d in (0, 1) if 2**k - d < 2**64]),
        min_size=1,
    )
)
def test_numbers_of_every_length(values):
    buf, starts = placed([number(2, v) for v in values])
    events, stats = native.read(buf, len(buf), starts)
    assert events.offset.view(np.uint64).tolist() == values
    assert not events.left.any()
    assert not len(stats.row)


def stat(chance, ident, kind):
    out = number(1, ident)
    if kind == 2:
        return out + double(2, chance.random())
    if kind in (5, 6):
        return out + chunk(
            kind,
            b"t"
            * chance.choice([0, 1, 5, 100, 200, 20_000] if chance.randrange(50) == 0 else [3, 4]),
        )
    return out + number(
        kind, chance.choice([0, 5, 127, 128, 16_383, 16_384, 2**40, 2**63, 2**64 - 1])
    )


def kinds(chance):
    """A few kinds of events, each with its own stats."""
    made = []
    for _ in range(4):
        stats = [
            (chance.choice([1, 127, 128, 20_000, 3_000_000]), chance.choice([2, 3, 4, 5, 6, 7]))
            for _ in range(chance.randrange(4))
        ]
        fields = chance.sample([1, 2, 3], chance.randrange(4))
        made.append((fields, stats))
    return made


def make(chance, kind):
    fields, stats = kind
    out = b"".join(number(f, chance.choice([0, 3, 200, 10**6, 10**12, 2**64 - 5])) for f in fields)
    return out + b"".join(chunk(4, stat(chance, *s)) for s in stats)


ODD = {
    "a count": number(5, 3),
    "a value before its id": chunk(4, number(4, 1) + number(1, 2)),
    "an unknown field": number(99, 1),
    "an empty stat": chunk(4, b""),
    "a stat without a value": chunk(4, number(1, 1)),
    "a group": b"\x7b\x7c",
    "two values": chunk(4, number(1, 1) + number(4, 1) + number(4, 2)),
    "a long tag": b"\x88\x00\x01",
    "a long number": b"\x10" + b"\xff" * 9 + b"\x7f",
}


@pytest.mark.parametrize("seed", range(30))
def test_the_compiled_reader_gives_what_the_general_one_gives(seed):
    chance = random.Random(seed)
    made = kinds(chance)
    events = [make(chance, chance.choice(made)) for _ in range(300)]
    odd = {i for i in range(300) if seed % 2 and chance.randrange(20) == 0}
    events = [e + chance.choice([*ODD.values()]) if i in odd else e for i, e in enumerate(events)]
    buf, starts = placed(events)
    got, stats = native.read(buf, len(buf) - wire.PADDING, starts)
    assert set(np.flatnonzero(got.left).tolist()) == odd
    want = xspace_general.events(buf, *spans(buf, starts))
    rows = [i for i in range(len(events)) if i not in odd]
    for mine, theirs in (
        (got.meta, want.meta),
        (got.offset, want.offset),
        (got.duration, want.duration),
    ):
        assert mine[rows].tolist() == theirs[rows].tolist()
        assert not mine[sorted(odd)].any()
    assert not want.has_count[rows].any()
    edges = stats.edges.tolist()
    mine = []
    for group, (ident, tag) in enumerate(
        zip(stats.ident.tolist(), stats.tag.tolist(), strict=True)
    ):
        place = slice(edges[group], edges[group + 1])
        # In each group the rows ascend, which the columns rely on.
        assert (np.diff(stats.row[place].astype(int)) >= 0).all()
        values = stats.value[place]
        if tag in (0x2A, 0x32):
            values = [buf[a:b].tobytes() for a, b in stats.text[values.view(np.int64)].tolist()]
        else:
            values = values.view(np.int64).tolist()
        mine += zip(
            stats.row[place].tolist(),
            [ident] * len(values),
            [tag] * len(values),
            values,
            strict=True,
        )
    rest = want.stats
    columns = (rest.owner, rest.ident, rest.tag, rest.value, rest.end)
    theirs = [
        (owner, ident, tag, buf[value:end].tobytes() if tag in (0x2A, 0x32) else value)
        for owner, ident, tag, value, end in zip(*(c.tolist() for c in columns), strict=True)
        if owner not in odd
    ]
    assert sorted(mine, key=str) == sorted(theirs, key=str)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_is_written_in_another_way_is_left(odd):
    plain = number(1, 1) + chunk(4, number(1, 2) + number(4, 3))
    buf, starts = placed([plain, plain + odd, plain])
    events, stats = native.read(buf, len(buf) - wire.PADDING, starts)
    assert events.left.tolist() == [False, True, False]
    assert events.meta.tolist() == [1, 0, 1]
    assert stats.row.tolist() == [0, 2]


@pytest.mark.parametrize("cut", range(1, 14))
def test_an_event_that_does_not_end_where_it_says_is_left(cut):
    # Its length leads into the middle of a field, or behind the end of the data.
    event = number(1, 1) + number(2, 5) + chunk(4, number(1, 7) + number(4, 300))
    for length in (len(event) - cut, len(event) + cut):
        data = bytes([0x22, max(length, 0)]) + event
        events, stats = native.read(np.frombuffer(data, np.uint8), len(data), np.array([0]))
        ends = {0, 2, 4, len(event)}
        assert events.left.tolist() == [max(length, 0) not in ends]
        assert len(stats.row) == (length == len(event))


def test_a_place_outside_of_the_data_is_left():
    data = np.frombuffer(chunk(4, number(1, 1)), np.uint8)
    starts = np.array([-1, 0, len(data), 1 << 62])
    events, _ = native.read(data, len(data), starts)
    assert events.left.tolist() == [True, False, True, True]


def test_stats_of_many_ids_and_of_alternating_events():
    stats = [chunk(4, number(1, i % 700) + number(3, i)) for i in range(2000)]
    buf, starts = placed(stats)
    _, found = native.read(buf, len(buf), starts)
    assert found.ident.tolist() == list(range(700))
    assert found.value[found.edges[5] : found.edges[6]].tolist() == [5, 705, 1405]
