"""What a page asks of a run, and what it gets: also when it asks nonsense, and when several ask at
a time.
"""

from __future__ import annotations

import gc
import json
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from nbprof import load
from nbprof.display import codec
from nbprof.run.run import Run
from nbprof.timeline import find, serve
from nbprof.tools.dashboard import dashboard
from tests.support.profiles import real
from tests.support.xspace import gpu_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("run") / "host.xplane.pb"
    path.write_bytes(gpu_run())
    return load(path).run


def ask(run: Run, **request: Any) -> dict[str, Any]:
    return codec.unpack(serve.reply(run, json.loads(json.dumps(request))))


def test_a_page_gets_the_lanes_of_the_payload(run):
    opened = ask(run, ask="open")
    payload = codec.unpack(codec.pack(dashboard(run)))
    trace = payload["trace"]
    assert opened["ok"] is True
    assert opened["key"] == trace["key"]
    assert opened["total"] == trace["total"]
    assert opened["end_ns"] == pytest.approx(trace["end"] * trace["tick_ns"], abs=trace["tick_ns"])
    assert opened["version"] == payload["meta"]["version"]
    assert opened["notes"] == trace["notes"]
    assert opened["lanes"] == [
        {name: lane[name] for name in told}
        for told, lane in zip(opened["lanes"], trace["lanes"], strict=True)
    ]
    assert opened["strip"]["below"].tolist() == trace["strip"]["below"].tolist()


def test_every_event_is_in_a_tile_of_its_lane(run):
    lanes = ask(run, ask="open")["lanes"]
    want = [
        [lane["id"], 0, lane["depths"] - 1, -1, 64] for lane in lanes if lane["kind"] != "counter"
    ]
    tiles = ask(run, ask="tiles", level=10, want=want, query=None)
    assert tiles["ok"]
    assert int(tiles["count"].sum()) >= sum(
        lane["events"] for lane in lanes if lane["kind"] != "counter"
    )
    assert not tiles["hit"].any()
    marked = ask(run, ask="tiles", level=10, want=want, query="sgemm")
    assert marked["hit"].any()
    assert len(marked["hit"]) == len(tiles["start"])


def test_questions_about_slices_are_answered_by_columns_and_references(run):
    found = ask(run, ask="search", query="sgemm")
    assert found["count"] > 0
    assert found["strip"].dtype == np.uint8
    hit = ask(run, ask="hit", query="sgemm", longest=True)["slice"]
    info = ask(run, ask="slice", event=hit["event"])
    assert info["slice"] == hit
    assert "sgemm" in info["full_name"]
    before = ask(run, ask="hit", query="sgemm", event=hit["event"], by=-1)
    assert before["slice"]["name"]
    assert ask(run, ask="hit", query="sgemm", index=0)["index"] == 0
    assert ask(run, ask="hit", query="sgemm", time_ns=0, by=1)["index"] == 0
    assert ask(run, ask="step", event=hit["event"], to="next")["ok"]
    window = {"from": hit["start_ns"], "to": hit["start_ns"] + hit["duration_ns"]}
    assert (
        ask(run, ask="first", lanes=[hit["lane"]], **window)["slice"]["start_ns"] == hit["start_ns"]
    )
    assert ask(run, ask="range", lanes=None, **window)["count"] > 0
    assert [share["name"] for share in ask(run, ask="many", events=[hit["event"]])["shares"]] == [
        hit["name"]
    ]
    assert ask(run, ask="locate", kind="kernel", name=hit["name"])["ok"]
    gaps = ask(run, ask="gaps", most=5)
    assert gaps["ok"]
    assert len(gaps["process"]) == len(gaps["start_ns"]) <= 5


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (None, "a field"),
        ([], "a field"),
        ({}, "ask is missing"),
        ({"ask": 3}, "ask is not a text"),
        ({"ask": "eval"}, "Unknown request 'eval'"),
        ({"ask": "__class__"}, "Unknown request"),
        ({"ask": "a" * 10**6}, "characters"),
        ({"ask": "slice"}, "event is missing"),
        ({"ask": "slice", "event": "1"}, "event is not a whole number"),
        ({"ask": "slice", "event": 1.5}, "not a whole number"),
        ({"ask": "slice", "event": True}, "not a whole number"),
        ({"ask": "slice", "event": -1}, "it goes from 0 to"),
        ({"ask": "slice", "event": 10**30}, "it goes from 0 to"),
        ({"ask": "step", "event": 0, "to": "up"}, "one of previous, next"),
        ({"ask": "first", "from": 0, "to": 1, "lanes": None}, "lanes is not a list"),
        ({"ask": "first", "from": 0, "to": 1, "lanes": [10**9]}, "it goes from 0 to"),
        ({"ask": "range", "from": 5, "to": 1}, "is after"),
        ({"ask": "range", "from": "0", "to": 1}, "from is not a number"),
        ({"ask": "range", "from": float("nan"), "to": 1}, "from is not a number"),
        ({"ask": "range", "from": 0, "to": 1e300}, "to is not a number"),
        ({"ask": "many", "events": 3}, "not a list"),
        ({"ask": "many", "events": [0] * 200_000}, "the limit is"),
        ({"ask": "search", "query": "x" * 10_000}, "characters"),
        ({"ask": "search", "query": ["x"]}, "not a text"),
        ({"ask": "hit", "query": "x"}, "by index, event, time_ns or longest"),
        ({"ask": "hit", "query": "x", "time_ns": 0, "by": 0}, "by is 0"),
        ({"ask": "hit", "query": "x", "time_ns": 0, "by": 2}, "from -1 to 1"),
        ({"ask": "locate", "kind": "file", "name": "/etc/passwd"}, "one of op, kernel"),
        ({"ask": "gaps", "most": 10**9}, "it goes from 1 to"),
        ({"ask": "tiles", "level": 2000, "want": []}, "it goes from"),
        ({"ask": "tiles", "level": 3, "want": {}}, "want is not a list"),
        ({"ask": "tiles", "level": 3, "want": [[0, 0, 0, 0]]}, "rows of lane"),
        ({"ask": "tiles", "level": 3, "want": [[0, 0, 0, 0, 10**9]]}, "tiles"),
        ({"ask": "tiles", "level": 3, "want": [[0, 0, 0, 0, 0]] * 10_000}, "at most"),
        ({"ask": "tiles", "level": 3, "want": [[0, 0, 0, 0, 2**80]]}, "it goes from"),
    ],
)
def test_a_request_that_makes_no_sense_gets_a_sentence(run, request_, words):
    answer = codec.unpack(serve.reply(run, request_))
    assert answer["ok"] is False
    assert words in answer["error"]
    assert len(answer["error"]) <= 300


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: list[Any] = [
    None, True, -1, 0.5, 2**31, 2**63, -(2**63), 10**400, 1e308, -1e308, float("nan"), float("inf"), -float("inf"), "", "x" * 100_000, "\0",
    "\ud800", "/(a+)+$/", "/[/", [], [None], [[]], [[None] * 5], [[0, 0, 65535, -(2**53), -(2**53)]], [[0, 5, 1, 3, -3]], {}, {"a": {}},
    deep(500), [0.0] * 200_000, [[0, 0, 65535, 0, 0]] * 4096,
]  # fmt: skip
FIELDS = {
    "open": {},
    "tiles": {"level": 10, "want": [[0, 0, 1, 0, 1]], "query": "x"},
    "slice": {"event": 0},
    "step": {"event": 0, "to": "next"},
    "first": {"from": 0, "to": 1e6, "lanes": [0]},
    "range": {"from": 0, "to": 1e6, "lanes": [0]},
    "many": {"events": [0]},
    "search": {"query": "x"},
    "hit": {"query": "x", "index": 0, "event": 0, "time_ns": 0, "by": 1, "longest": True},
    "locate": {
        "kind": "name",
        "name": "x",
        "host": "",
        "device": "",
        "step": 0,
        "time_ms": 1.0,
        "where": "",
    },
    "gaps": {"from": 0, "to": 1e6, "most": 3},
}


@pytest.mark.parametrize(
    ("word", "field"),
    [(word, field) for word, fields in FIELDS.items() for field in ["ask", *fields]],
)
def test_no_value_of_any_field_does_harm(run, word, field):
    assert set(FIELDS) == set(serve._ANSWERS), "a new request is tried here too"
    for value in HOSTILE:
        packed = serve.reply(run, {"ask": word, **FIELDS[word], field: value})
        answer = codec.unpack(packed)
        assert len(packed) < 64 << 20
        if not answer["ok"]:
            # A sentence that says what is wrong, and none of Python's own.
            assert answer["error"]
            assert not answer["error"].startswith("This could not be answered"), (
                value if len(str(value)) < 200 else "",
                answer,
            )


def test_a_lane_that_there_is_not_is_empty_or_refused(run):
    known = {lane["id"] for lane in ask(run, ask="open")["lanes"]}
    for lane in set(range(max(known) + 5)) - known:
        answer = ask(run, ask="tiles", level=20, want=[[lane, 0, 65535, 0, 3]])
        assert not answer["ok"] or len(answer["lane"]) == 0


def test_what_nobody_thought_of_is_an_answer_too(run, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(find.Finder, "search", broken)
    answer = ask(run, ask="search", query="x")
    assert answer == {
        "ok": False,
        "error": "This could not be answered (ZeroDivisionError: division by zero).",
    }


def test_what_cannot_be_packed_is_an_answer_too(run, monkeypatch):
    monkeypatch.setattr(find.Finder, "search", lambda *_: {"what": object()})
    answer = ask(run, ask="search", query="x")
    assert answer["ok"] is False
    assert "object" in answer["error"]


def test_columns_of_int64_become_numbers_of_javascript(run, monkeypatch):
    columns = {
        "small": np.array([-1, 5]),
        "large": np.array([2**40, 1]),
        "none": np.zeros(0, np.int64),
    }
    monkeypatch.setattr(find.Finder, "search", lambda *_: {"inner": columns})
    inner = ask(run, ask="search", query="x")["inner"]
    assert inner["small"].dtype == np.int32
    assert inner["small"].tolist() == [-1, 5]
    assert inner["large"].tolist() == [2.0**40, 1.0]
    assert len(inner["none"]) == 0


def test_tiles_are_answered_while_a_search_goes_on(run, monkeypatch):
    """The picture must move while a person waits for something else."""
    began, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> dict[str, Any]:
        began.set()
        assert go_on.wait(60)
        return {"count": 0}

    monkeypatch.setattr(find.Finder, "search", slow)
    answers: list[dict[str, Any]] = []
    search = threading.Thread(target=lambda: answers.append(ask(run, ask="search", query="x")))
    search.start()
    try:
        assert began.wait(60)
        assert ask(run, ask="tiles", level=10, want=[[0, 0, 0, 0, 3]])["ok"]
        assert ask(run, ask="slice", event=0)["ok"]
        assert answers == []
    finally:
        go_on.set()
        search.join(60)
    assert answers[0]["ok"]


def test_what_is_made_once_is_made_once_for_many_threads(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(gpu_run())
    run = load(path).run
    lanes = ask(run, ask="open")["lanes"]
    fresh = load(path).run
    want = [[lane["id"], 0, 9, 0, 20] for lane in lanes]
    requests: list[dict[str, Any]] = [
        {"ask": "tiles", "level": 9, "want": want, "query": "gemm"},
        {"ask": "search", "query": "gemm"},
        {"ask": "slice", "event": 3},
        {"ask": "range", "from": 0, "to": 1e9, "lanes": None},
        {"ask": "gaps", "most": 10},
        {"ask": "locate", "kind": "name", "name": "sgemm"},
        {"ask": "step", "event": 2, "to": "next_same"},
    ]
    alone = [serve.reply(run, request) for request in requests]
    ready = threading.Barrier(4 * len(requests))
    together: list[tuple[int, bytes]] = []

    def one(i: int) -> None:
        ready.wait(60)
        together.append((i, serve.reply(fresh, requests[i])))

    threads = [
        threading.Thread(target=one, args=(i,)) for i in range(len(requests)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(together) == len(threads)
    assert all(packed == alone[i] for i, packed in together)


def test_a_run_goes_when_nobody_has_it_though_it_was_asked(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(gpu_run())
    from nbprof.profiles import load as profiles

    run = load(path).run
    assert ask(run, ask="slice", event=0)["ok"]
    timeline, gone = run.timeline, weakref.ref(run)
    profiles._last.clear()
    gc.disable()
    try:
        del run
        assert gone() is None, "without waiting for the garbage collector"
    finally:
        gc.enable()
    assert timeline.answer({"ask": "open"})["ok"] is False


@pytest.mark.parametrize(
    "name", ["tf-gpu/rtx5000-cnn-batch64", "jax/tpu-v6e-inference", "kineto/mi300-ddp-resnet18"]
)
def test_questions_about_real_profiles_are_answered(name):
    run = load(real(name)).run
    lanes = [
        lane
        for lane in ask(run, ask="open")["lanes"]
        if lane["kind"] != "counter" and lane["events"]
    ]
    want = [[lane["id"], 0, lane["depths"] - 1, 0, 3] for lane in lanes[:200]]
    assert ask(run, ask="tiles", level=22, want=want)["ok"]
    for event in (0, 1, 50):
        info = ask(run, ask="slice", event=event)
        assert info["ok"], info
        assert info["slice"]["event"] == event


def test_what_a_page_needs_next_is_made_when_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MANY", 0)
    monkeypatch.setattr("nbprof.timeline.coarse.LEAST", 2)
    monkeypatch.setattr("nbprof.timeline.index.LEAST", 2)
    run = load(real("tf-gpu/rtx5000-cnn-batch64")).run
    assert ask(run, ask="open")["ok"]
    for thread in threading.enumerate():
        if thread.name == "nbprof-tiles":
            thread.join()
    main = run.timeline.index.main
    assert "blocks" in main.__dict__
    assert set(main.coarse) <= set(main.long_rows())
    assert len(main.coarse) > 1
