"""Odd and hostile traces, the whole way: file, profile, frames, report, answers, export. Nothing
raises, nothing is hidden, times hold.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from nbprof.display import codec
from nbprof.formats.times import LONGEST_PS
from nbprof.profiles.load import load
from nbprof.profiles.profile import Profile
from nbprof.profiles.report import bundle
from nbprof.timeline.serve import reply
from tests.report.test_html import FORBIDDEN, Reader
from tests.support.chrome import complete, document
from tests.support.saved import payload_of
from tests.support.xspace import MS, PlaneWriter, xspace
from tests.timeline.test_export import rules, strict

EVIL = (
    "<script>alert(1)</script>",
    "</script><!--<script>",
    "<img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    '" autofocus onfocus="alert(1)',
    "a\x00b\x01\x1b[31mc\x7f",
    "\u202egnp.exe\u2066\u2069\u200f",
    "line\nbreak\ttab\r\u2028\u2029",
    "\ud800 alone \udfff",
    "\ufffe\uffff\U0010ffff\U0001f600",
    "${1+1} {{7*7}} %s %(x)s",
    "]]>&lt;&#60;",
    "__proto__",
    "constructor",
    "../../etc/passwd",
)


@dataclass
class Case:
    """A file, how many events (counters and flows aside) it has, and sentences that have to be
    said, in the view or the receipt.
    """

    data: bytes
    count: int
    says: tuple[str, ...] = ()
    name: str = "in.json"
    dropped: int = 0
    """How many more events it has, which are not read and said to be so."""


def chrome(*events: dict[str, Any], says: tuple[str, ...] = (), **facts: Any) -> Case:
    count = sum(event["ph"] in "XiI" for event in events)
    return Case(json.dumps(document(*events, **facts)).encode(), count, says)


def xplane(
    events: list[tuple[str, int, int]], says: tuple[str, ...] = (), dropped: int = 0
) -> Case:
    host = PlaneWriter("/host:CPU")
    host.line("python", [host.event(*event) for event in events], line_id=7)
    return Case(xspace(host), len(events) - dropped, says, "host.xplane.pb", dropped)


def named(what: str, pid: Any, tid: Any, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def counter(ts: Any, value: Any, name: str = "queue") -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": 7, "ts": ts, "args": {"length": value}}


def flow(phase: str, ident: Any, ts: float, tid: int, cat: str = "ac2g") -> dict[str, Any]:
    return {
        "ph": phase,
        "id": ident,
        "cat": cat,
        "name": cat,
        "pid": 7,
        "tid": tid,
        "ts": ts,
        **({"bp": "e"} if phase == "f" else {}),
    }


def _zero() -> Case:
    same = [complete(f"z{i}", 5, 0) for i in range(50)]
    return chrome(
        complete("around", 0, 10), *same, complete("end", 10, 0), complete("alone", 20, 0, tid=9)
    )


def _negative() -> Case:
    events = [
        complete("a", 10, -5),
        complete("b", 20, 5),
        complete("c", 21, -0.001),
        complete("d", 30, -1e9),
    ]
    return chrome(*events, says=(r"end before they start, treated as having zero duration: 3",))


def _negative_xplane() -> Case:
    return xplane(
        [("a", 10 * MS, -5 * MS), ("b", 20 * MS, 5 * MS), ("c", 21 * MS, -1)],
        (r"duration.* 2|2 .*duration",),
    )


def _overlaps() -> Case:
    events = [complete(f"o{i}", 10 * i, 25 + i % 7) for i in range(300)]
    return chrome(
        *events,
        says=(
            r"214 events overlap others on their lane partially, on 1 lane: drawn on separate levels",
        ),
    )


def _many_lanes() -> Case:
    return chrome(
        *(
            complete(f"e{i % 10}", i // 5 + 100 * k, 50, tid=i)
            for i in range(5_000)
            for k in range(2)
        )
    )


def _deep() -> Case:
    return chrome(
        *(complete(f"d{i}", i, 2_000 - 2 * i) for i in range(500)), complete("after", 3_000, 1)
    )


def _long_names() -> Case:
    return chrome(*(complete(f"{i}" + "x<b>" * 5_000, 10 * i, 5) for i in range(50)))


def _evil_names() -> Case:
    lanes = [named("thread_name", 7, i, name) for i, name in enumerate(EVIL)]
    process = [named("process_name", 100 + i, 0, name) for i, name in enumerate(EVIL)]
    events = [
        complete(name, 10 * i, 5, tid=i, args={name: name, "own": name})
        for i, name in enumerate(EVIL)
    ]
    more = [complete(name, 10 * i, 5, pid=100 + i, tid=0, cat=name) for i, name in enumerate(EVIL)]
    ids = [complete("by text", 5, 1, pid=name, tid=name) for name in EVIL]
    return chrome(
        *lanes,
        *process,
        *events,
        *more,
        *ids,
        *(counter(i, i, name) for i, name in enumerate(EVIL)),
    )


def _last_moment() -> Case:
    last = 2**63 - 1
    far = [
        ("late", last - 10, 5),
        ("beyond", last - 3, 100),
        ("on it", last, 0),
        ("long", MS, last),
    ]
    return xplane(
        [("first", 0, MS), *far],
        ("times more than a week from the start: damaged, left out",),
        dropped=4,
    )


def _days_away() -> Case:
    return xplane([("first", 0, MS), ("late", LONGEST_PS - 2 * MS, MS)])


def _last_moment_chrome() -> Case:
    # Written by hand: Python's float would round it.
    text = json.dumps(document(complete("first", 0, 5), complete("late", 1, 2))).replace(
        '"ts": 1,', '"ts": 9223372036854.775797,'
    )
    return Case(text.encode(), 1, ("1 .*at time 0 while all others are much later",), dropped=1)


def _before_zero() -> Case:
    return chrome(
        complete("before", -1_000, 10),
        complete("across", -5, 10),
        complete("after", 100, 10),
        counter(-500, 3),
        counter(50, 4),
    )


def _before_zero_xplane() -> Case:
    return xplane([("before", -7 * MS, MS), ("across", -MS, 2 * MS), ("after", 5 * MS, MS)])


def _epoch() -> Case:
    at = 1_700_000_000_000_000
    return chrome(complete("a", at + 0.125, 10), complete("b", at + 20, 5), counter(at + 1, 4))


def _day_away() -> Case:
    near = [complete(f"n{i % 5}", 10 * i, 8) for i in range(1_000)]
    return chrome(
        *near,
        complete("tomorrow", 86_400e6, 5, tid=9),
        says=(r"1 event lies far from the others, up to (1 d|24|1,440|86)",),
    )


def _many_names() -> Case:
    return chrome(*(complete(f"name {i}", i, 0.5) for i in range(100_000)))


def _empty_names() -> Case:
    bare = complete("", 30, 5)
    del bare["name"]
    empty = [complete("", 0, 5), complete(" ", 10, 5), bare, complete("", 40, 0)]
    return chrome(named("thread_name", 7, 8, ""), named("process_name", 7, 0, ""), *empty)


def _instants() -> Case:
    return chrome(
        *(
            {
                "ph": "i",
                "name": f"i{i % 7}",
                "pid": 7,
                "tid": i % 3,
                "ts": i // 2,
                "s": "gpt"[i % 3],
            }
            for i in range(60)
        )
    )


def _counters() -> Case:
    odd = [
        float("nan"),
        float("inf"),
        float("-inf"),
        1e308,
        -1e308,
        5e-324,
        -0.0,
        "NaN",
        "5",
        None,
        True,
        [1],
        {"a": 1},
        2**70,
    ]
    return chrome(complete("work", 0, 50), *(counter(i, value) for i, value in enumerate(odd)))


def _counters_alone() -> Case:
    return chrome(*(counter(i, i % 3) for i in range(10)))


def _no_events() -> Case:
    return chrome(named("thread_name", 7, 8, "idle"), named("process_name", 7, 0, "nobody"))


def _no_events_xplane() -> Case:
    host = PlaneWriter("/host:CPU")
    host.line("python", [], line_id=7)
    return Case(xspace(host, PlaneWriter("/device:GPU:0")), 0, name="host.xplane.pb")


def _twins() -> Case:
    names = [named("process_name", pid, 0, "same") for pid in (1, 2)]
    threads = [named("thread_name", pid, tid, "same") for pid in (1, 2) for tid in (1, 2, 3)]
    return chrome(
        *names,
        *threads,
        *(complete("e", i, 5, pid=p, tid=t) for i in range(5) for p in (1, 2) for t in (1, 2, 3)),
    )


def _large_args() -> Case:
    args = {
        "text": "t" * 1_000_000,
        "list": list(range(100_000)),
        "deep": json.loads("[" * 400 + "]" * 400),
    }
    return chrome(
        complete("big", 0, 5, args=args),
        complete("small", 10, 5, args={"k" * 100_000: 1, **{f"k{i}": i for i in range(500)}}),
    )


def _cycles() -> Case:
    slices = [
        complete("a", 0, 10, tid=1),
        complete("b", 20, 10, tid=2),
        complete("c", 40, 10, tid=3),
    ]
    there = [
        flow("s", 1, 1, 1),
        flow("t", 1, 21, 2),
        flow("t", 1, 41, 3),
        flow("t", 1, 2, 1),
        flow("f", 1, 22, 2),
    ]
    back = [
        flow("s", 2, 21, 2),
        flow("f", 2, 1, 1),
        flow("s", 3, 5, 1),
        flow("f", 3, 5, 1),
        flow("f", 4, 6, 1),
        flow("s", 5, 7, 1),
    ]
    return chrome(
        *slices,
        *there,
        *back,
        *(flow("s", "text id", 3, 1), flow("f", "text id", 45, 3), flow("s", 9, 999, 77)),
    )


def _many_flows() -> Case:
    count = 10_000
    ends = [complete("end", 200 + 2 * i, 1, tid=2) for i in range(count)]
    flows = [
        flow(p, i, 1 + i / 1000 if p == "s" else 200 + 2 * i, 1 if p == "s" else 2)
        for i in range(count)
        for p in "sf"
    ]
    return chrome(complete("start", 0, 100, tid=1), *ends, *flows)


CASES: dict[str, Callable[[], Case]] = {
    name[1:]: made
    for name, made in list(globals().items())
    if name.startswith("_")
    and not name.startswith("__")
    and callable(made)
    and getattr(made, "__module__", "") == __name__
}


@pytest.fixture(autouse=True)
def built(monkeypatch, tmp_path):
    """Reports are made with a front end of one line: what is tested is what Python writes."""
    path = tmp_path / "dashboard.js"
    path.write_text("export default { render() {} }")
    monkeypatch.setattr(bundle, "PATH", path)


@pytest.fixture(scope="module", params=CASES)
def case(request) -> Case:
    return CASES[request.param]()


@pytest.fixture(scope="module")
def p(case, tmp_path_factory) -> Profile:
    path = tmp_path_factory.mktemp("hostile") / case.name
    path.write_bytes(case.data)
    return load(path)


def ask(p: Profile, **request: Any) -> dict[str, Any]:
    """An answer as a page gets it, which is never a refusal here."""
    answer = codec.unpack(reply(p.run, json.loads(json.dumps(request))))
    assert answer["ok"], answer
    return answer


def total(p: Profile) -> int:
    return len(p.run.timeline.tracks.events) + len(p.run.timeline.tracks.extra)


def sample(p: Profile, count: int = 40) -> list[int]:
    return np.unique(np.linspace(0, total(p) - 1, min(count, total(p))).astype(int)).tolist()


def test_everything_in_the_file_is_told(case, p):
    assert (p.receipt.events, p.receipt.dropped) == (case.count, case.dropped)
    assert len(p.trace.events()) == len(p.run.trace.events) == case.count
    said = "\n".join([str(p.receipt), *ask(p, ask="open")["notes"]])
    for sentence in case.says:
        assert re.search(sentence, said), said


def test_frames_are_made(p):
    for frame in (
        p.trace.lanes,
        p.trace.tracks,
        p.trace.gaps(),
        p.steps.frame,
        p.ops.frame,
        p.kernels.frame,
        p.memory.summary,
        p.advice,
    ):
        assert len(str(frame)) > 0
    assert p.overview
    assert 0 < len(p.text().splitlines()) <= 10
    events = p.trace.events()
    assert np.isfinite(events[["start_us", "duration_us", "self_us"]].to_numpy(float)).all()
    assert (events["duration_us"] >= 0).all()
    assert (events["self_us"] >= 0).all()


@pytest.mark.parametrize("most", [None, 0, 25])
def test_the_report_holds_it(p, tmp_path, most):
    page = p.save(tmp_path / "report.html", events=most).read_bytes().decode("utf-8")
    trace = payload_of(page)["trace"]
    assert trace["total"] == total(p)
    assert sum(len(lane["event"]) for lane in trace["lanes"]) == trace["shown"]
    assert trace["shown"] + int(trace["rest"]["count"].sum()) == trace["total"]
    for lane in trace["lanes"]:
        if len(lane["start"]):
            end = lane["start"].astype(np.int64) + lane["duration"]
            assert (np.diff(lane["start"].astype(np.int64)) >= 0).all()
            assert 0 <= lane["start"][0] <= end.max() <= trace["end"]
    read = Reader(page)
    assert not (FORBIDDEN - {"script", "style"}) & set(read.tags)
    # The picture is of the steps.
    assert [read.tags.count(tag) for tag in ("script", "style", "img")] == [
        1,
        1,
        int(len(p.run.steps) > 0),
    ]
    for word in ("alert(1)", "onerror", "autofocus onfocus"):
        assert word not in "".join(read.scripts)
    assert len(page) < 6_000_000


def test_pages_get_answers(p):
    head = ask(p, ask="open")
    assert (
        head["total"]
        == total(p)
        == sum(lane["events"] for lane in head["lanes"] if lane["kind"] != "counter")
    )
    level = max(int(np.ceil(np.log2(max(head["end_ns"], 1) / 500))), 0)
    seen = 0
    for at in range(0, len(head["lanes"]), 1_000):
        want = [
            [lane["id"], 0, max(lane["depths"] - 1, 0), 0, 0]
            for lane in head["lanes"][at : at + 1_000]
        ]
        got = ask(p, ask="tiles", level=level, want=want, query="e")
        seen += int(got["count"].sum())
        assert (got["end"] >= got["start"]).all()
        assert len(got["name"]) == len(got["event"]) == int(got["rows"]["count"].sum())
    assert seen == total(p)
    # Close up to the first and the last event each is a mark of its own.
    for event in sample(p, 3):
        info = ask(p, ask="slice", event=event)["slice"]
        tile = int(info["start_ns"] // 512)
        got = ask(
            p, ask="tiles", level=0, want=[[info["lane"], info["depth"], info["depth"], tile, tile]]
        )
        assert got["count"].sum() >= 1


def test_details_say_what_was_recorded(p):
    tracks = p.run.timeline.tracks
    for event in sample(p):
        info = ask(p, ask="slice", event=event)
        table, row = (
            (tracks.events, event)
            if event < len(tracks.events)
            else (tracks.extra, event - len(tracks.events))
        )
        ref = info["slice"]
        assert ref["event"] == event
        assert ref["start_ns"] == (int(table.start[row]) - tracks.origin) / 1000
        assert ref["duration_ns"] == int(table.duration[row]) / 1000
        assert 0 <= info["self_ns"] <= ref["duration_ns"]
        assert (
            info["full_name"]
            == str(tracks.full[table.name[row]]).encode("utf-8", "replace").decode()
        )
        for to in ("previous", "next", "parent", "child", "previous_same", "next_same"):
            ask(p, ask="step", event=event, to=to)
        assert ask(p, ask="many", events=[event])["count"] == 1
        for arrow in info["arrows"]:
            assert event in (arrow["from"]["event"], arrow["to"]["event"])


def test_steps_reach_every_event_of_a_row(p):
    tracks, index = p.run.timeline.tracks, p.run.timeline.index
    lanes = [lane for lane in tracks.lanes if lane.kind != "counter" and lane.events <= 700]
    for lane in lanes[:: max(len(lanes) // 5, 1)]:
        table, first = (tracks.extra, len(tracks.events)) if lane.derived else (tracks.events, 0)
        level = (index.extra if lane.derived else index.main).stack.level
        ids = np.flatnonzero(table.lane == lane.id)
        for depth in np.unique(level[ids]).tolist():
            row = (ids[level[ids] == depth] + first).tolist()
            for to, expected in (("next", row), ("previous", row[::-1])):
                seen = [expected[0]]
                while (found := ask(p, ask="step", event=seen[-1], to=to)["slice"]) is not None:
                    assert found["depth"] == depth
                    seen.append(found["event"])
                assert seen == expected


def test_a_range_holds_every_event(p):
    head = ask(p, ask="open")
    lanes = [lane["id"] for lane in head["lanes"]]
    whole = ask(p, ask="range", **{"from": -1.0, "to": head["end_ns"] + 1, "lanes": lanes})
    assert whole["count"] == total(p)
    assert sum(share["count"] for share in whole["shares"]) + (
        (whole["others"] or {}).get("count") or 0
    ) == total(p)
    assert all(0 <= lane["percent"] <= 100 for lane in whole["lanes"])
    ask(p, ask="gaps")
    # As far as a page may ask.
    far = np.nextafter(2.0**63, 0)
    assert ask(p, ask="range", **{"from": -far, "to": far, "lanes": lanes})["count"] == total(p)
    for window in ((-far, -far), (far, far), (-far, far), (0.0, 0.0)):
        asked = dict(zip(("from", "to"), window, strict=True))
        for kind in ("range", "gaps"):
            ask(p, ask=kind, **asked)
        ask(p, ask="first", **asked, lanes=lanes)
    assert len(p.trace.range(-1, head["end_ns"] / 1e6 + 1)) > 0 or not total(p)


def test_a_search_finds_every_event(p):
    names = p.run.timeline.tracks.names
    assert ask(p, ask="search", query=r"/^[\s\S]*$/")["count"] == total(p)
    events = p.run.trace.events
    for event in sample(p, 5):
        if (
            event < len(events)
            and (text := str(names[events.name[event]]).strip())
            and len(text) < 400
            and not text.startswith("/")
        ):
            found = ask(p, ask="search", query=text)
            assert found["count"] >= 1, text
            assert not found["error"]
            assert ask(p, ask="hit", query=text, event=event, by=1)["slice"] is not None
            assert len(p.trace.find(text)) == found["count"]


@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_the_export_holds_every_event(case, p, tmp_path, ending):
    path = p.trace.export(tmp_path / f"out{ending}")
    written = strict(path)
    rules(written)
    assert sum(event["ph"] in "Xi" for event in written) == case.count
    if not case.count:
        return
    # In ns, which nearly all times here are; `test_picoseconds_are_kept` has the others.
    tracks = p.run.timeline.tracks
    expected = zip(
        (tracks.events.start - tracks.origin).tolist(), tracks.events.duration.tolist(), strict=True
    )
    told = (
        (Fraction(e["ts"]) * 10**6, Fraction(e.get("dur", 0)) * 10**6)
        for e in written
        if e["ph"] in "Xi"
    )
    assert Counter((round(start / 1000), round(took / 1000)) for start, took in told) == Counter(
        (round(start / 1000), round(took / 1000)) for start, took in expected
    )
    again = load(path).run
    # The format's reader takes nothing that lies months away from the rest, and says so.
    assert len(again.trace.events) + again.receipt.dropped == case.count
