"""`p.trace.events`, `.find` and `.range`: what they give by lane, name, time and kind."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from nbprof.core.errors import NbprofError
from nbprof.profiles.load import load
from nbprof.timeline import select_events
from tests.support.chrome import complete, document


@pytest.fixture
def p(tmp_path):
    path = tmp_path / "in.json"
    events = [
        complete("outer", 1000, 100, args={"size": 3, "kind": "a"}),
        complete("inner(1)", 1010, 20, args={"size": 2.5}),
        complete("inner(2)", 1050, 30),
        complete("Other", 3000, 10, tid=9, args={"kind": "needle"}),
    ]
    path.write_text(json.dumps(document(*events)))
    return load(path)


def names(frame):
    return frame["name"].tolist()


def test_names_are_parts_expressions_or_patterns(p):
    assert names(p.trace.events(name="inner")) == ["inner(1)", "inner(2)"]
    assert names(p.trace.events(name="/^inner.2/")) == ["inner(2)"]
    assert names(p.trace.events(name=re.compile("^o", re.IGNORECASE))) == ["outer", "Other"]
    assert names(p.trace.events(name="(1)")) == ["inner(1)"]
    with pytest.raises(NbprofError, match="not a regular expression"):
        p.trace.events(name="/(/")


def test_lanes_are_numbers_names_or_several(p):
    lanes = p.trace.lanes
    one = int(lanes["lane"][0])
    first = p.trace.events(lane=one)
    assert len(first) == int(lanes["events"][0])
    assert names(p.trace.events(lane=[int(i) for i in lanes["lane"]])) == names(p.trace.events())
    thread = str(lanes["thread"][0])
    assert names(p.trace.events(lane=thread)) == names(first)
    assert names(p.trace.events(lane=re.compile(re.escape(thread)))) == names(first)
    assert len(p.trace.events(lane=10**6)) == 0


def test_time_is_in_ms_and_touching_counts(p):
    start = p.trace.events(name="outer")["start_us"][0] / 1000
    assert names(p.trace.events(between=(start + 0.1, start + 0.2))) == ["outer"]
    assert names(p.trace.events(between=(start + 0.2, start + 0.0805))) == ["outer"]
    assert names(p.trace.events(between=(start + 1.5, start + 1.9))) == []


def test_kinds(p):
    assert len(p.trace.events(kind="host")) == 4
    assert len(p.trace.events(kind="device")) == 0
    with pytest.raises(NbprofError, match="no events of kind 'gpu'"):
        p.trace.events(kind="gpu")


def test_args_keep_their_types(p):
    found = p.trace.events(args=("size", "kind"))
    assert found["size"].tolist()[:2] == [3, 2.5]
    assert found["size"][2] is None
    assert found["kind"].tolist() == ["a", None, None, "needle"]
    with pytest.raises(NbprofError, match="no event in this profile has an arg 'sizes'; there are"):
        p.trace.events(args=("sizes",))


def test_the_number_of_an_event_is_that_of_the_profile(p):
    found = p.trace.events(name="inner(2)")
    event = int(found["event"][0])
    events = p.run.trace.events
    assert str(p.run.trace.names[events.name[event]]) == "inner(2)"
    assert found["self_us"][0] == events.self_time[event] / 1e6 == 30.0


def test_a_search_finds_texts_of_args_too(p):
    assert names(p.trace.find("NEEDLE")) == ["Other"]
    assert names(p.trace.find("3")) == ["outer"]
    with pytest.raises(NbprofError):
        p.trace.find("/(/")


def test_a_range_shares_out_its_time(p):
    start = p.trace.events(name="outer")["start_us"][0] / 1000
    found = p.trace.range(start, start + 0.06).set_index("name")
    # Up to 60 µs: 20 µs of the first inner call, 10 of the second, and what is left of the outer
    # one.
    assert found["self_us"].to_dict() == pytest.approx(
        {"outer": 30.0, "inner(1)": 20.0, "inner(2)": 10.0}
    )
    assert found["total_us"]["outer"] == pytest.approx(60.0)
    assert found["percent"].sum() == pytest.approx(100.0)
    assert len(p.trace.range(start, start)) == 0


def test_derived_lanes_are_there_by_number():
    from pathlib import Path

    cpu = load(Path(__file__).parents[1] / "data" / "xspace" / "jax_cpu.xplane.pb")
    drawn = cpu.trace.tracks
    assert drawn["lane"].is_unique
    recorded = drawn[(drawn["kind"] != "counter") & (drawn["lane"] < len(cpu.trace.lanes))]
    assert recorded["events"].sum() == len(cpu.run.trace.events) == len(cpu.trace.events())
    for row in drawn[
        (drawn["lane"] >= len(cpu.trace.lanes)) & (drawn["kind"] != "counter")
    ].itertuples():
        made = cpu.trace.events(lane=row.lane)
        assert len(made) == row.events
        assert (made["event"] >= len(cpu.run.trace.events)).all()
        assert np.isfinite(made["self_us"]).all()


@pytest.mark.parametrize("between", [(1,), (1, 2, 3), "ab", 5, (None, 3), (float("nan"), 1)])
def test_what_is_no_range_is_a_sentence(between):
    with pytest.raises(NbprofError, match="between= takes two times in ms"):
        select_events.window(between)


def test_a_range_may_be_open():
    assert select_events.window((float("inf"), 1)) == (1e9, float("inf"))


def test_a_range_without_end_is_the_whole(tmp_path):
    (tmp_path / "in.json").write_text(
        json.dumps(document(complete("a", 0, 10), complete("b", 20, 10)))
    )
    p = load(tmp_path / "in.json")
    assert p.trace.range(float("-inf"), float("inf"))["count"].sum() == 2
    assert len(p.trace.events(between=(0.015, float("inf")))) == 1
