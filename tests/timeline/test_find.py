"""Searches of the timeline against a look at every slice."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core.trace import DOUBLE, INT, TEXT, UINT, ArgColumn
from nbprof.timeline import find, patterns
from nbprof.timeline.find import STRIP, Finder
from nbprof.timeline.patterns import Pattern, PatternError
from nbprof.timeline.slices import Slices
from tests.timeline.lanes import NAMES, SPANS, TRACKS, Span, Track, timeline, trace_of


def finder(spans: list[Span], **more: object) -> tuple[Finder, Slices, list[Span]]:
    slices, order = timeline(spans)
    return Finder(trace_of(slices, **more), slices), slices, order


@given(
    SPANS,
    st.sampled_from(["a", "B", "/^b$/", "/conv|^c/", "zz", ":", "/A::./", ""]),
    st.integers(0, 39),
    st.sampled_from([1, -1]),
)
def test_hits_are_the_slices_whose_name_matches_in_the_order_of_time(
    spans: list[Span], query: str, event: int, by: int
) -> None:
    found, slices, order = finder(spans)
    pattern = query[1:-1] if query.startswith("/") else re.escape(query)
    ids = [
        i for i, s in enumerate(order) if query and re.search(pattern, NAMES[s.name], re.IGNORECASE)
    ]
    ids.sort(key=lambda i: (order[i].start, i))
    said = found.search(query)
    assert (said["count"], said["names"], said["error"], said["where"]) == (
        len(ids),
        len({order[i].name for i in ids}),
        "",
        "",
    )
    assert [found.hit(query, {"index": k})["slice"]["event"] for k in range(len(ids))] == ids
    strip = np.zeros(STRIP, np.int64)
    for i in ids:
        strip[min(int(order[i].start * (STRIP / max(slices.tracks.end, 1))), STRIP - 1)] += 1
    assert said["strip"].tolist() == strip.tolist()
    if not ids:
        assert found.hit(query, {"index": 0}) == {"index": -1, "slice": None}
        return
    longest = max(order[i].duration for i in ids)
    assert found.hit(query, {"longest": True})["slice"]["duration_ns"] == longest / 1000
    # From any slice on, be it a hit or not, and on from the other end behind the last.
    at = event % len(order)
    key = (order[at].start, at)
    if by > 0:
        expected = next((i for i in ids if (order[i].start, i) > key), ids[0])
    else:
        expected = next((i for i in reversed(ids) if (order[i].start, i) < key), ids[-1])
    near = found.hit(query, {"event": at, "by": by})
    assert near["slice"]["event"] == expected
    assert ids[near["index"]] == expected
    moment = order[at].start
    if by > 0:
        expected = next((i for i in ids if order[i].start >= moment), ids[0])
    else:
        expected = next((i for i in reversed(ids) if order[i].start < moment), ids[-1])
    assert found.hit(query, {"time_ns": slices.ns(moment), "by": by})["slice"]["event"] == expected


SPANS_OF_ARGS = [Span(0, 0, 10 * i, 5) for i in range(6)]


def test_texts_that_were_recorded_with_a_slice_are_searched() -> None:
    column = ArgColumn(np.array([1, 4], np.int32), TEXT, np.array([1, 0], np.uint8))
    mixed = ArgColumn(
        np.array([2, 5], np.int32), np.array([INT, TEXT], np.uint8), np.array([1, 1], np.int64)
    )
    found, _, _ = finder(
        SPANS_OF_ARGS, args={"shape": column, "note": mixed}, strings=["f32[8]", "Übergang <b>"]
    )
    assert found.hits("F32[").ids.tolist() == [4]
    assert found.hits("<B>").ids.tolist() == [1, 5]
    assert found.hits("über").ids.tolist() == [1, 5]
    assert found.hits(r"/f32\[\d+\]/").ids.tolist() == [4]


@pytest.mark.parametrize(
    ("kind", "values", "query", "expected"),
    [
        (INT, np.array([7, 70, -7], np.int8), "7", [0]),
        (INT, np.array([7, 70, -7], np.int64), "-7", [2]),
        (UINT, np.array([7, -1, 5], np.int64), str(2**64 - 1), [1]),
        (UINT, np.array([7, -1, 5], np.int64), "-1", []),
        (UINT, np.array([250, 70, 7], np.uint8), "70", [1]),
        (DOUBLE, np.array([1.5, 2.0, 3.0]).view(np.int64), "2", [1]),
        (TEXT, np.array([0, 0, 0], np.uint8), "99", []),
        (INT, np.array([7, 70, -7], np.int64), "300", []),
        (INT, np.array([7, 70, -7], np.int64), "9" * 20, []),
    ],
)
def test_an_integer_is_also_looked_for_among_the_numbers(
    kind: int, values: np.ndarray, query: str, expected: list[int]
) -> None:
    column = ArgColumn(np.arange(3, dtype=np.int32), kind, values)
    found, _, _ = finder(SPANS_OF_ARGS, args={"n": column}, strings=["text"])
    assert found.hits(query).ids.tolist() == expected


def test_args_that_hold_for_a_name_are_searched() -> None:
    slices, _ = timeline([Span(0, i % 2, 10 * i, 5) for i in range(4)])
    trace = trace_of(slices)
    trace.name_args = {"category": {1: "convolution fusion"}, "flops": {0: 12}}
    found = Finder(trace, slices)
    assert found.hits("fusion").ids.tolist() == [1, 3]
    assert found.hits("12").ids.tolist() == [0, 2]


def test_slices_on_lanes_that_are_not_drawn_are_no_hits_and_derived_ones_are() -> None:
    slices, _ = timeline(
        [Span(0, 0, 0, 5), Span(1, 0, 1, 5)],
        [*TRACKS, Track(derived=True)],
        extra=[Span(4, 0, 2, 5)],
    )
    slices = Slices(slices.tracks)
    slices.kind[1] = 0
    found = Finder(trace_of(slices), slices)
    assert found.hits("a").ids.tolist() == [0, 2]
    assert found.hits("a").mask(0, 2).tolist() == [True, False]
    assert found.hits("a").mask(2, 1).tolist() == [True]


def test_the_last_few_searches_are_kept() -> None:
    found, _, _ = finder(SPANS_OF_ARGS)
    first = found.hits("a")
    assert found.hits(" a ") is first
    for i in range(find._MOST_CACHED):
        found.hits(f"other {i}")
    assert found.hits("a") is not first


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "/(a+)+$/",
            "/(a*)*b/",
            "/(a|a)*b/",
            "/(a?){30}b/",
            "/((a?){8}){8}b/",
            "/(a|b|ab)*c/",
            "/(.*a){12}/",
            "/" + "a?" * 80 + "a" * 80 + "/",
        ),
        *(
            "/" + "(a|a)" * 80 + "b/",
            "/.*.*.*.*.*.*b/",
            r"/(a+)\1/",
            "/(x+x+)+y/",
            "/" + "x" * 600 + "/",
        ),
    ],
)
def test_what_could_take_for_ever_is_refused_with_a_sentence(expression: str) -> None:
    found, _, _ = finder(SPANS_OF_ARGS)
    said = found.search(expression)
    assert said["count"] == 0
    assert said["error"].startswith("The expression ")
    assert said["error"].endswith(".")


@pytest.mark.parametrize("expression", ["/(/", "/[z-a]/", "/*/", "/(?P<1>a)/", "/a{2,1}/"])
def test_what_is_no_expression_is_told(expression: str) -> None:
    found, _, _ = finder(SPANS_OF_ARGS)
    assert found.search(expression)["error"].startswith("Invalid regular expression: ")


@pytest.mark.parametrize(
    "expression",
    [
        "gemm.*(nn|nt)",
        "^(foo|bar)_v[0-9]+$",
        "colou?r",
        r"\bconv\d*\b",
        "a{3}b{1,4}",
        "(?:x|y)z",
        "(ab){2,3}",
        "",
    ],
)
def test_what_people_search_for_is_not(expression: str) -> None:
    assert Pattern(f"/{expression}/").matches(["none of it"]).tolist() == [
        re.search(expression or "//", "none of it", re.I) is not None
    ]


def test_texts_that_are_not_searched_whole_are_told() -> None:
    pattern = Pattern("/a.*b.*c/")
    assert pattern.matches(["abc", "x" * 5000 + "abc"]).tolist() == [True, False]
    assert pattern.note == "Of 1 long text only the first 1,200 characters were searched."


def test_texts_that_are_not_reached_in_time_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", -1.0)
    pattern = Pattern("/a/")
    assert pattern.matches(["a", "a"]).tolist() == [False, False]
    assert "2 texts were not searched" in pattern.note


def test_a_name_of_twenty_thousand_characters_is_searched_to_its_end() -> None:
    long = "x" * 19_990 + "<b>end</b>"
    assert Pattern("/<b>end/").matches([long]).tolist() == [True]
    assert Pattern("END</B>").matches([long]).tolist() == [True]


def test_a_bare_slash_is_a_text() -> None:
    assert Pattern("/").matches(["a/b", "ab"]).tolist() == [True, False]
    with pytest.raises(PatternError):
        Pattern("/(/")
