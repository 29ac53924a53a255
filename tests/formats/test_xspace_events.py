"""The common shapes give what the general way gives, and the rest is left to it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core import wire
from nbprof.core.wire import word_varints, words_of
from nbprof.formats.xspace import events as xspace_events
from nbprof.formats.xspace import general as xspace_general
from nbprof.formats.xspace.events import decode
from tests.support.xspace import chunk, double, number, varint

UINT64 = st.integers(0, 2**64 - 1)


def placed(events):
    ends = np.cumsum([len(e) for e in events])
    data = b"".join(events)
    return (
        wire.buffer(data),
        np.concatenate([[0], ends[:-1]]).astype(np.int64),
        ends.astype(np.int64),
    )


@given(
    st.lists(
        UINT64
        | st.integers(0, 300)
        | st.sampled_from([2**k - d for k in range(1, 65) for d in (0, 1) if 2**k - d < 2**64]),
        min_size=1,
    )
)
def test_varints_of_every_length(values):
    buf, start, end = placed([varint(v) for v in values])
    got, after = word_varints(words_of(buf), start)
    assert got.tolist() == values
    assert after.tolist() == end.tolist()


def test_a_varint_of_eleven_bytes_ends_nowhere():
    buf, start, _ = placed([b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x01"])
    _, after = word_varints(words_of(buf), start)
    assert after[0] > 10**12
    assert after[1] == 21


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


@pytest.mark.parametrize("seed", range(30))
def test_common_shapes_give_what_the_general_way_gives(seed, monkeypatch):
    monkeypatch.setattr(xspace_events, "FEW", 3)
    chance = random.Random(seed)
    made = kinds(chance)
    events = [make(chance, chance.choice(made)) for _ in range(300)]
    if seed % 2:
        # Some that must be left: repeated fields, unknown ones, a value before its id, none.
        odd = [
            number(5, 3),
            chunk(4, number(4, 1) + number(1, 2)),
            number(99, 1),
            chunk(4, b""),
            chunk(4, number(1, 1)),
            b"\x7b\x7c",
        ]
        events = [e + chance.choice(odd) if chance.randrange(20) == 0 else e for e in events]
    buf, start, end = placed(events)
    got = decode(words_of(buf), start, end)
    want = xspace_general.events(buf, start, end)
    left = set(got.left.tolist())
    assert len(left) < 150
    rows = [i for i in range(len(events)) if i not in left]
    for mine, theirs in (
        (got.meta, want.meta),
        (got.offset, want.offset),
        (got.duration, want.duration),
    ):
        assert mine[rows].tolist() == theirs[rows].tolist()
    assert not want.has_count[rows].any()
    mine = [
        (row, s.ident, s.tag, value, value + s.length[i] if s.length is not None else 0)
        for s in got.stats
        for i, (row, value) in enumerate(
            zip(s.row.tolist(), s.value.view(np.int64).tolist(), strict=True)
        )
    ]
    stats = want.stats
    columns = (stats.owner, stats.ident, stats.tag, stats.value, stats.end)
    theirs = [
        (owner, ident, tag, value, end if tag in (0x2A, 0x32) else 0)
        for owner, ident, tag, value, end in zip(*(c.tolist() for c in columns), strict=True)
        if owner not in left
    ]
    assert sorted(mine) == sorted(theirs)
    # In each piece the rows ascend, which the columns rely on.
    assert all((np.diff(s.row) > 0).all() for s in got.stats)


def test_an_event_that_reads_into_its_neighbour_is_left(monkeypatch):
    monkeypatch.setattr(xspace_events, "FEW", 1)
    good = number(1, 1) + number(2, 5) + chunk(4, number(1, 7) + number(4, 300))
    buf, start, end = placed([good] * 40)
    end[10] -= 1
    got = decode(words_of(buf), start, end)
    assert got.left.tolist() == [10]
    assert all(10 not in s.row for s in got.stats)
    assert (got.meta[10], got.offset[10]) == (0, 0)


def test_many_shapes_are_left_in_the_end():
    events = [chunk(4, number(1, i) + number(4, i)) for i in range(2000)]
    buf, start, end = placed(events)
    assert len(decode(words_of(buf), start, end).left) == 2000
