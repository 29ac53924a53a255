"""Traces made at random agree with the standard library's JSON, in every layout, whole and in
stretches.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbprof.formats.chrome import bytes as chrome_bytes
from nbprof.formats.chrome import document as chrome_document
from nbprof.formats.chrome.part import part_of
from nbprof.formats.chrome.scan import scan
from nbprof.formats.chrome.stretch import Trouble, loose_events
from nbprof.formats.chrome.values import picoseconds
from tests.support.chrome import (
    arg_value,
    complete,
    document,
    expected_slices,
    packed,
    read,
    slices_of,
)
from tests.support.chrome import picoseconds as exact_picoseconds

# Half a surrogate pair can't be written; U+FFFD is what it becomes.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40) | st.sampled_from(
    [
        'a "quoted" name',
        "C:\\path\\",
        "{[}]",
        "\x00\x1f\x7f",
        "void f<int, (bool)1>(char const*)",
        "# 日本語 🎉",
        "",
        "x" * 700,
    ]
)
NUMBERS = (
    st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**12), 10**12, places=3).map(float)
    | st.sampled_from(
        [
            0,
            -0.0,
            1e-320,
            1.7976931348623157e308,
            123456789012345678,
            0.1,
            (1 << 63) - 1,
            1 << 63,
            (1 << 64) - 1,
            1 << 64,
        ]
    )
)
VALUES = st.recursive(
    TEXTS | NUMBERS | st.booleans() | st.none(),
    lambda v: st.lists(v, max_size=4) | st.dictionaries(TEXTS, v, max_size=3),
    max_leaves=8,
)
TIMES = st.decimals(0, 10**9, places=3) | st.decimals(0, 10**9, places=6) | st.integers(0, 10**9)
KEYS = TEXTS.filter(lambda k: k not in ("ph", "cat"))


@st.composite
def events(draw):
    event = complete(
        draw(TEXTS),
        draw(TIMES),
        draw(TIMES),
        pid=draw(st.integers() | TEXTS),
        tid=draw(st.integers() | TEXTS),
    )
    event["args"] = draw(st.dictionaries(KEYS, VALUES, max_size=6))
    if draw(st.booleans()):
        event["cat"] = draw(TEXTS)
    if draw(st.booleans()):
        event["ph"], event["s"] = "i", "t"
        del event["dur"]
    names = draw(st.permutations(sorted(event)))
    return {
        name: event[name]
        for name in names
        if name != "args" or event["args"] or draw(st.booleans())
    }


def _written(value, **how):
    text = json.dumps(value, default=lambda d: f"@decimal {d:f}@", **how)
    return re.sub(r'"@decimal ([-0-9.]+)@"', r"\1", text)


LAYOUTS = st.sampled_from(
    [
        {"separators": (",", ":")},
        {},
        {"indent": 2},
        {"indent": 0},
        {"separators": (" ,\t", " :\r\n")},
    ]
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(events(), min_size=1, max_size=12),
    LAYOUTS,
    st.booleans(),
    st.booleans(),
    st.integers(40, 4000),
)
def test_any_trace_agrees_with_json(made, layout, ascii_only, bare, stretch):
    text = _written(
        made if bare else document(*made, baseTimeNanoseconds=5), ensure_ascii=ascii_only, **layout
    )
    with (
        mock.patch.object(chrome_document, "STRETCH", stretch),
        mock.patch.object(chrome_bytes, "CHUNK", stretch),
    ):
        trace = read(packed(text) if ascii_only else text)
    assert slices_of(trace) == expected_slices(text)
    assert trace.receipt.dropped == 0
    assert not [n for n in trace.receipt.entries if n.level == "warning" and "time 0" not in n.text]


def _content(part):
    texts = [*part.texts, None]
    rows = {
        (group, key): [
            (e, k, texts[v] if k == 4 else v)
            for e, k, v in zip(r.event.tolist(), r.kind.tolist(), r.value.tolist(), strict=True)
        ]
        for group in ("top", "args")
        for key, r in getattr(part, group).items()
        if len(r)
    }
    times = [(t.ns.tolist(), t.ps.tolist(), t.state.tolist()) for t in (part.start, part.length)]
    return (
        {k: [texts[c] for c in v.tolist()] for k, v in part.text.items()},
        rows,
        times,
        part.phase.tolist(),
        part.offset.tolist(),
    )


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(events(), min_size=1, max_size=8), LAYOUTS)
def test_columns_read_the_same_as_one_event_at_a_time(made, layout):
    text = _written(made, **layout).encode()[1:]
    fast = scan(text, 17)
    found, used, closed = loose_events(text, 17, Trouble(), final=True)
    slow = part_of(found)
    good = np.ones(len(slow), bool)
    good[fast.again] = False
    assert _content(fast.part.only(good)) == _content(slow.only(good))
    # Only what has an escape in a key may need a second look.
    assert all("\\" in text[a:b].decode() for a, b in fast.events[fast.again].tolist())
    assert (fast.end, fast.closed) == (used, closed)


@settings(max_examples=400, deadline=None)
@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
def test_times_are_exact_to_the_picosecond(written):
    found = picoseconds(written.encode())
    value = Decimal(written)
    if abs(value) > 9_200_000_000_000_000:
        assert found is None
        return
    assert found is not None
    whole, rounded = found
    assert abs(Decimal(whole) - value * 10**6) <= Decimal("0.5")
    assert rounded == (Decimal(whole) != value * 10**6)


@settings(max_examples=200, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_numbers_in_columns_are_what_they_are_alone(values):
    trace = read(
        json.dumps([complete(ts=i, args={"v": v, f"k{i}": v}) for i, v in enumerate(values)])
    )
    column = trace.args["v"]
    wanted = [arg_value(Decimal(json.dumps(v)) if isinstance(v, float) else v) for v in values]
    for kind, value, number, want in zip(
        column.kinds.tolist(), column.values.tolist(), column.floats().tolist(), wanted, strict=True
    ):
        found = (
            trace.strings[value]
            if kind == 4
            else number
            if kind == 3
            else value % (1 << 64)
            if kind == 2
            else value
        )
        assert (type(found), repr(found)) == (type(want), repr(want))


def test_the_writer_of_these_tests_rounds_as_the_format_says():
    assert exact_picoseconds("0.0000005") == 1
    assert exact_picoseconds("-0.0000005") == 0
