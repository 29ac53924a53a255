"""Texts as codes: equal ones share a code, different ones never do, whatever their hashes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.core import distinct as core_distinct
from nbprof.core import wire
from nbprof.core.receipt import Receipt
from nbprof.formats.xspace.texts import Strings

LENGTHS = st.sampled_from(
    [0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 41, 100, 128, 129, 255, 256, 257]
)


@st.composite
def texts(draw):
    base = draw(
        st.lists(
            LENGTHS.flatmap(lambda n: st.binary(min_size=n, max_size=n)), min_size=1, max_size=30
        )
    )
    # Texts that differ in the middle alone.
    base += [
        b"a" * 40 + bytes([middle]) + b"b" * draw(st.sampled_from([0, 8, 30]))
        for middle in range(draw(st.integers(0, 4)))
    ]
    return [
        base[i % len(base)] for i in draw(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
    ]


def coded(chosen):
    data = b"|".join(chosen)
    length = np.array([len(t) for t in chosen])
    at = np.cumsum(length + 1) - length - 1
    buf = wire.buffer(data)
    return core_distinct.distinct(buf, at, length)


@settings(max_examples=80, deadline=None)
@given(texts())
def test_equal_texts_share_a_code(chosen):
    codes, found = coded(chosen)
    assert [found[c] for c in codes.tolist()] == chosen
    assert len(found) == len(set(chosen))


@pytest.mark.parametrize("few", [0, 64])
def test_equal_hashes_of_different_texts_make_no_wrong_text(monkeypatch, few):
    monkeypatch.setattr(core_distinct, "_FACTOR", np.uint64(0))
    monkeypatch.setattr(core_distinct, "_FACTORS", np.zeros(32, np.uint64))
    monkeypatch.setattr(core_distinct, "_FEW", few)
    chosen = (
        [b"x%d" % (i % 7) for i in range(100)]
        + [b"a" * 50 + b"%d" % (i % 3) + b"z" * 50 for i in range(100)]
        + [b""] * 5
    )
    codes, found = coded(chosen)
    assert [found[c] for c in codes.tolist()] == chosen


def test_very_long_texts():
    chosen = [b"q" * 70_000, b"q" * 70_001, b"q" * 70_000, b"r"] * 40
    codes, found = coded(chosen)
    assert [found[c] for c in codes.tolist()] == chosen
    assert len(found) == 3


def test_texts_that_are_no_utf8_are_counted_and_shown():
    strings = Strings()
    assert strings.decode(b"k\xffrnel") == "k\N{REPLACEMENT CHARACTER}rnel"
    assert strings.table([b"a", b"b", b"a"]).tolist() == [0, 1, 0]
    receipt = Receipt()
    strings.report(receipt)
    assert [n.level for n in receipt.entries] == ["warning"]
    assert (
        "1 string with invalid UTF-8, such as 'k\N{REPLACEMENT CHARACTER}rnel'"
        in receipt.entries[0].text
    )
