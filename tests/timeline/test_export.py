"""The exported trace: strict JSON by the rules of Perfetto, and everything there again when it is
read back.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbprof.core.errors import NbprofError
from nbprof.core.trace import Events
from nbprof.profiles.load import load
from nbprof.timeline import export as module
from nbprof.timeline.details import value_of
from nbprof.timeline.export import threads
from nbprof.timeline.export_args import json_text
from tests.support.chrome import complete, document
from tests.support.profiles import real
from tests.support.xspace import PlaneWriter, chunk, gpu_run, training_run, xspace
from tests.timeline.test_arrows import MADE

LATEST = 2**41 * 10**6
"""25 days in ps: up to there float64 µs, a quarter of a ns apart, have a ns to themselves."""

ODD = 'a "quoted" <b>\\ \u2028 \x01\n\ttab ☃ \ud800'


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


def strict(path):
    """What the file says, times as decimals; no NaN, no key twice."""

    def unique(pairs):
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)

    data = path.read_bytes()
    text = (gzip.decompress(data) if path.name.endswith(".gz") else data).decode("ascii")
    return json.loads(text, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=unique)[
        "traceEvents"
    ]


def cut(time):
    """What Perfetto makes of a time in µs: by way of float64 in some versions, from the decimals in
    others.
    """
    by_float, by_text = int(float(time) * 1000.0), int(Decimal(time) * 1000)
    assert by_float == by_text or by_text >= LATEST // 1000
    return by_text


def nested(events):
    """Perfetto walks each thread in the order of time, those of one ns as they stand in the file,
    and drops what overlaps partly.
    """
    by_thread = {}
    for event in events:
        if event["ph"] == "X" or (event["ph"] == "i" and event["s"] == "t"):
            assert event.get("dur", 0) >= 0 <= event["ts"]
            by_thread.setdefault((event["pid"], event["tid"]), []).append(
                (cut(event["ts"]), cut(event.get("dur", 0)))
            )
    for spans in by_thread.values():
        open_ = []
        for start, took in sorted(spans, key=lambda span: span[0]):
            while open_ and (
                open_[-1][1] < start or (open_[-1][1] == start and (took or open_[-1][0] < start))
            ):
                open_.pop()
            assert not open_ or start + took <= open_[-1][1]
            open_.append((start, start + took))


def rules(events):
    nested(events)
    pids = {event["pid"] for event in events}
    threads_ = {
        (e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"
    }
    tids = [tid for _, tid in threads_]
    assert len(tids) == len(set(tids))
    assert not set(tids) & pids
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= threads_


def rows(run):
    """Every event as (process, thread, name, start, duration in ps), args aside."""
    trace = run.trace
    lanes = trace.lanes
    process, thread = lanes["process"].tolist(), lanes["thread"].tolist()
    events = trace.events
    return Counter(
        (process[lane], thread[lane].partition(" (")[0], str(trace.names[name]), start, duration)
        for lane, name, start, duration in zip(
            *(c.tolist() for c in (events.lane, events.name, events.start, events.duration)),
            strict=True,
        )
    )


def chrome(folder, *events, **facts):
    path = folder / "in.json"
    path.write_text(json.dumps(document(*events, **facts)))
    return load(path)


@pytest.mark.parametrize("write", [training_run, gpu_run])
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_what_is_read_back_is_what_was_there(tmp_path, write, ending):
    (tmp_path / "host.xplane.pb").write_bytes(write())
    p = load(tmp_path / "host.xplane.pb")
    path = p.trace.export(tmp_path / f"out{ending}")
    assert path == tmp_path / f"out{ending}"
    rules(strict(path))
    again = load(path)
    shift = p.run.trace.events.start.min() - again.run.trace.events.start.min()
    moved = Counter({(*key[:3], key[3] + shift, key[4]): n for key, n in rows(again.run).items()})
    tracks = p.run.timeline.tracks
    lanes = {lane.id: lane for lane in tracks.lanes}
    events = tracks.events
    expected = Counter(
        (lanes[lane].process, lanes[lane].name, str(tracks.names[name]), start, duration)
        for lane, name, start, duration in zip(
            *(c.tolist() for c in (events.lane, events.name, events.start, events.duration)),
            strict=True,
        )
    )
    assert moved == expected


def test_args_keep_their_types_and_names_their_letters(tmp_path):
    args = {
        "whole": 7,
        "huge": 2**63 + 5,
        "real": 0.1,
        "one": 1.0,
        "text": ODD,
        "minus": -3,
        'quoted "key"': "v",
    }
    p = chrome(tmp_path, complete(ODD, 1, 2, args=args), complete("plain", 5, 1))
    written = [e for e in strict(p.trace.export(tmp_path / "out.json")) if e["ph"] == "X"]
    assert [e["name"] for e in written][1] == "plain"
    # A lone surrogate is no text that can be kept in UTF-8: what stands for it is what the reader
    # made of it.
    assert written[0]["name"] == str(p.run.trace.names[p.run.trace.events.name[0]])
    found = written[0]["args"]
    for key in ("whole", "huge", "minus"):
        assert found[key] == args[key]
        assert isinstance(found[key], int)
    assert found["real"] == Decimal("0.1")
    assert isinstance(found["one"], Decimal)
    assert 'quoted "key"' in found
    again = load(tmp_path / "out.json").run.trace
    for key in ("whole", "huge", "real", "one", "minus"):
        assert again.args[key].kinds.tolist() == p.run.trace.args[key].kinds.tolist()
        assert again.args[key].values.tolist() == p.run.trace.args[key].values.tolist()


def test_picoseconds_are_kept(tmp_path):
    p = chrome(tmp_path, complete("a", 1234567.000001, 0.000003), complete("b", 1234568, 0))
    events = p.run.trace.events
    written = [e for e in strict(p.trace.export(tmp_path / "out.json")) if e["ph"] == "X"]
    assert [round(Fraction(e["ts"]) * 10**6) for e in written] == events.start.tolist()
    assert [round(Fraction(e["dur"]) * 10**6) for e in written] == events.duration.tolist()


def test_what_overlaps_partly_goes_to_further_threads(tmp_path):
    spans = [(0, 10), (5, 10), (6, 2), (12, 20), (3, 1), (7, 40)]
    p = chrome(tmp_path, *(complete(f"e{i}", ts, dur) for i, (ts, dur) in enumerate(spans)))
    events = strict(p.trace.export(tmp_path / "out.json"))
    rules(events)
    assert sorted(e["name"] for e in events if e["ph"] == "X") == [
        f"e{i}" for i in range(len(spans))
    ]
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert any(name.endswith("(2)") for name in names)


@pytest.mark.parametrize("seed", range(8))
def test_no_thread_holds_a_partial_overlap(seed):
    random = np.random.default_rng(seed)
    count = 400
    lane = np.sort(random.integers(0, 3, count)).astype(np.int32)
    start, duration = random.integers(0, 500, count), random.integers(0, 60, count)
    order = np.lexsort((-duration, start, lane))
    events = Events(
        lane[order], lane[order], start[order].astype(np.int64), duration[order].astype(np.int64)
    )
    placed = threads(events)
    written = [
        {"ph": "X", "pid": int(lane), "tid": int(thread), "ts": int(at), "dur": int(took)}
        for lane, thread, at, took in zip(
            events.lane, placed, events.start, events.duration, strict=True
        )
    ]
    nested(written)
    assert placed.max() > 0


def test_a_long_staircase_comes_to_an_end():
    count = 3000
    start = np.arange(count, dtype=np.int64) * 10
    none = np.zeros(count, np.int32)
    placed = threads(Events(none, none, start, np.full(count, 25, np.int64)))
    nested(
        [
            {"ph": "X", "pid": 0, "tid": int(t), "ts": int(s), "dur": 25}
            for t, s in zip(placed, start, strict=True)
        ]
    )
    assert placed.max() < 20


def test_flows_and_counters_come_back(tmp_path):
    flow = {"cat": "ac2g", "name": "ac2g", "pid": 7, "id": 3}
    p = chrome(
        tmp_path,
        complete("launch", 10, 4),
        complete("kernel", 20, 5, tid=9),
        {"ph": "s", "tid": 8, "ts": 11, **flow},
        {"ph": "f", "tid": 9, "ts": 20, "bp": "e", **flow},
        {"ph": "C", "pid": 7, "ts": 1, "name": "queue", "args": {"length": 4}},
        {"ph": "C", "pid": 7, "ts": 2, "name": "queue", "args": {"length": 6}},
    )
    again = load(p.trace.export(tmp_path / "out.json")).run.trace
    first = p.run.trace
    assert again.flows is not None
    for key in ("phase", "id", "time", "enclosing"):
        assert getattr(again.flows, key).tolist() == getattr(first.flows, key).tolist(), key
    assert [again.strings[c] for c in again.flows.category.tolist()] == ["ac2g", "ac2g"]
    # Threads have new numbers: they are told by what runs on them.
    for trace in (first, again):
        on = dict(
            zip(trace.events.lane.tolist(), trace.names[trace.events.name].tolist(), strict=True)
        )
        assert [on[lane] for lane in trace.flows.lane.tolist()] == ["launch", "kernel"]
    assert again.counters["value"].tolist() == [4.0, 6.0]
    assert (again.counters["time"] - again.events.start.min()).tolist() == (
        first.counters["time"] - first.events.start.min()
    ).tolist()


def test_arrows_lead_from_a_launch_to_its_kernel(tmp_path):
    p = load(real("tf-gpu/rtx5000-cnn-batch64"))
    events = strict(p.trace.export(tmp_path / "out.json"))
    made = p.run.activity.launches.frame()
    known = made[made["target"] >= 0]
    assert len(known) > 100
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    finishes = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == len(finishes) == len(known)
    # Both ends lie at the begin of a slice on their thread, which they belong to.
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    for ident, start in starts.items():
        finish = finishes[ident]
        assert start["bp"] == finish["bp"] == "e"
        assert {(e["pid"], e["tid"], e["ts"]) for e in (start, finish)} <= slices
        assert start["ts"] <= finish["ts"]


def test_a_part_of_the_trace(tmp_path):
    p = chrome(
        tmp_path, complete("a", 1000, 10), complete("b", 5000, 10), complete("c", 5001, 2, tid=9)
    )
    start = p.run.trace.events.start.min() / 1e9
    written = strict(p.trace.export(tmp_path / "out.json", between=(start + 3.9, start + 4.1)))
    assert sorted(e["name"] for e in written if e["ph"] == "X") == ["b", "c"]
    lane = int(p.run.trace.events.lane[0])
    alone = strict(p.trace.export(tmp_path / "out.json", lanes=lane))
    assert [e["name"] for e in alone if e["ph"] == "X"] == ["a", "b"]
    for nothing in ({"lanes": "none of them"}, {"between": (start + 99, start + 100)}):
        with pytest.raises(NbprofError, match="nothing was written"):
            p.trace.export(tmp_path / "nothing.json", **nothing)
    assert not (tmp_path / "nothing.json").exists()


def test_chunks_make_no_difference(tmp_path, monkeypatch):
    (tmp_path / "host.xplane.pb").write_bytes(training_run(20))
    p = load(tmp_path / "host.xplane.pb")
    whole = p.trace.export(tmp_path / "whole.json").read_bytes()
    monkeypatch.setattr(module, "_CHUNK", 7)
    assert sorted(
        p.trace.export(tmp_path / "parts.json").read_bytes().replace(b",\n", b"\n").split(b"\n")
    ) == sorted(whole.replace(b",\n", b"\n").split(b"\n"))


def test_what_cannot_be_written_is_a_sentence_and_leaves_nothing(tmp_path):
    p = chrome(tmp_path, complete())
    with pytest.raises(NbprofError, match=r"must end in \.json or \.json\.gz"):
        p.trace.export(tmp_path / "out.txt")
    with pytest.raises(NbprofError, match="could not be written"):
        p.trace.export(tmp_path / "none" / "out.json")
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


REAL = [
    *(
        "tf-cpu/prefetch-example",
        "tf-gpu/rtx5000-cnn-batch64",
        "tf-gpu/v100x8-collectives",
        "tf-gpu/t4-one-step",
    ),
    *("jax/tpu-v6e-inference", "jax/mi300-jax08_attention", "jax/gtx1080ti-reactant"),
    *(
        "kineto/v100-resnet50-workers0",
        "kineto/h100-bert",
        "kineto/mi300-ddp-resnet18",
        "kineto/a100-nccl-ranks",
    ),
    "ascend/msprof_ut_expected",
]


@pytest.mark.parametrize("name", REAL)
def test_real_profiles_are_written_whole(tmp_path, name):
    p = load(real(name))
    path = p.trace.export(tmp_path / "out.json.gz")
    written = strict(path)
    rules(written)
    run, trace, tracks = p.run, p.run.trace, p.run.timeline.tracks
    events = trace.events
    instant = module.marks(trace)
    for phase, ids in (("X", np.flatnonzero(~instant)), ("i", np.flatnonzero(instant))):
        of_phase = [e for e in written if e["ph"] == phase]
        assert [e["name"] for e in of_phase] == tracks.names[events.name[ids]].tolist()
        assert [cut(e["ts"]) for e in of_phase] == (
            (events.start[ids] - tracks.origin) // 1000
        ).tolist()
        took = np.array([round(Fraction(e.get("dur", 0)) * 10**6) for e in of_phase])
        assert ((took - events.duration[ids] >= 0) & (took - events.duration[ids] < 1000)).all()
        stated = Counter(key for e in of_phase for key in e.get("args", ()))
        for key, column in trace.args.items():
            if key not in ("ph", "s"):
                assert stated[key] >= int(np.isin(column.event, ids).sum()), key
        for at in np.linspace(0, len(ids) - 1, 200).astype(int).tolist() if len(ids) else ():
            found = of_phase[at].get("args", {})
            for key, column in trace.args.items():
                row = np.searchsorted(column.event, ids[at])
                if (
                    row < len(column.event)
                    and column.event[row] == ids[at]
                    and key not in ("ph", "s")
                ):
                    value = value_of(trace, column, int(ids[at]))
                    same = (
                        found[key] == json.loads(json_text(value), parse_float=Decimal)
                        if key not in trace.name_args
                        else key in found
                    )
                    assert same, key
    samples = Counter(e["pid"] for e in written if e["ph"] == "C")
    assert samples.total() == sum(
        int(np.isfinite(counter.value).sum()) for counter in tracks.counters
    )
    points = Counter(e["ph"] for e in written if e["ph"] in "stf")
    flows = run.timeline.links.flows
    assert points.total() >= (len(flows.flows.phase) if flows is not None else 0)
    if not len(events):
        return
    again = load(path).run
    assert len(again.trace.events) == len(events)
    assert again.receipt.dropped == 0


@given(
    st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 9_000)), min_size=1, max_size=20),
    st.integers(0, 10**15),
)
def test_what_lies_inside_does_so_in_whole_nanoseconds_too(spans, origin):
    # Each pair made to lie in the one before it: no viewer that cuts begin and duration off at ns
    # may see an overlap.
    low, high = 0, 9_000
    start, duration = [], []
    for a, b in spans:
        low, high = low + min(a, b) * (high - low) // 9_000, low + max(a, b) * (high - low) // 9_000
        start.append(origin + low)
        duration.append(high - low)
    start, duration = np.array(start), np.array(duration)
    took = module.nested_durations(start, duration)
    assert ((took - duration >= 0) & (took - duration < 1000)).all()
    whole = (duration % 1000 == 0) & (start % 1000 == 0)
    assert (took[whole] == duration[whole]).all()
    begin = np.array([cut(text) for text in module._micros(start)])
    end = begin + [cut(text) for text in module._micros(took)]
    assert (np.diff(begin) >= 0).all()
    assert (np.diff(end) <= 0).all()
    # What came one after the other still does.
    assert ([cut(text) for text in module._micros(start + duration)] >= end).all()


@given(
    st.lists(st.integers(0, 10**15) | st.integers(0, 10**12).map(lambda ns: ns * 1000), min_size=1)
)
def test_times_keep_their_nanosecond_and_picosecond(times):
    for text, time in zip(module._micros(np.array(times)), times, strict=True):
        assert cut(text) == time // 1000
        assert round(Fraction(text) * 10**6) == time


def edges(ns):
    """Times in ps about the begin and the end of a ns."""
    return st.integers(0, 9).map(lambda ps: ns * 1000 + ps) | st.integers(990, 999).map(
        lambda ps: ns * 1000 + ps
    )


@given(st.integers(10**15, LATEST - 1) | st.integers(10**12, LATEST // 1000 - 1).flatmap(edges))
# The nearest float64 to these µs is that of the next ns, and that of the one before.
@example(24_999_999_999_999_999)
@example(69_105_152_970_066_000)
def test_late_times_keep_their_nanosecond(time):
    text = module._micros(np.array([time]))[0]
    assert cut(text) == time // 1000
    assert abs(Fraction(text) * 10**6 - time) < 2 * Fraction(math.ulp(time / 10**6)) * 10**6 + 1


def test_an_event_at_the_end_of_time_has_an_end():
    took = module.nested_durations(np.array([np.iinfo(np.int64).max - 10]), np.array([100]))
    assert 0 <= took[0] <= 1000


def test_no_time_is_before_zero(tmp_path):
    # Perfetto drops what is.
    flow = {"cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 8, "id": 3}
    sample = {"ph": "C", "pid": 7, "ts": -50, "name": "queue", "args": {"length": 4}}
    p = chrome(
        tmp_path,
        complete("a", 10, 4),
        complete("b", 20, 4),
        sample,
        {"ph": "s", "ts": -70, **flow},
        {"ph": "f", "ts": 21, **flow},
    )
    written = strict(p.trace.export(tmp_path / "out.json"))
    at = {e["name"]: e["ts"] for e in written if e["ph"] in "sCX"}
    assert at == {"ac2g": 0, "queue length": 20, "a": 80, "b": 90}


def test_arrows_have_numbers_that_perfetto_takes(tmp_path):
    # It reads a text as a hexadecimal number, and drops the arrow where that is none.
    def flow(phase, ts, tid, ident):
        return {
            "ph": phase,
            "cat": "ac2g",
            "name": "ac2g",
            "pid": 7,
            "tid": tid,
            "ts": ts,
            "id": ident,
        }

    ends = [
        flow("s", 11, 8, "call x"),
        flow("f", 21, 9, "call x"),
        flow("s", 12, 8, 5),
        flow("f", 22, 9, 5),
        flow("s", 13, 8, -4),
    ]
    p = chrome(tmp_path, complete("call", 10, 4), complete("work", 20, 4, tid=9), *ends)
    found = [e["id"] for e in strict(p.trace.export(tmp_path / "out.json")) if e["ph"] in "sf"]
    assert all(isinstance(ident, int) and ident >= 0 for ident in found)
    assert sorted(Counter(found).values()) == [1, 2, 2]


def test_arrows_of_two_ranks_are_not_taken_for_one(tmp_path):
    def flow(phase, ts, tid):
        return {
            "ph": phase,
            "cat": "ac2g",
            "name": "ac2g",
            "pid": 7,
            "tid": tid,
            "ts": ts,
            "id": 3,
            "bp": "e",
        }

    for rank in range(2):
        events = [
            complete(f"call {rank}", 10, 4),
            complete(f"work {rank}", 20, 4, tid=9),
            flow("s", 11, 8),
            flow("f", 21, 9),
        ]
        (tmp_path / f"rank{rank}.pt.trace.json").write_text(json.dumps(document(*events)))
    p = load(sorted(tmp_path.glob("*.json")))
    names, events, links = p.run.trace.names, p.run.trace.events, p.run.timeline.links
    for event in range(len(events)):
        said = [str(names[events.name[e]])[-1] for _, a, b in links.arrows(event) for e in (a, b)]
        assert said == [said[0]] * 2
    found = [e for e in strict(p.trace.export(tmp_path / "out.json")) if e["ph"] in "sf"]
    assert sorted(Counter(e["id"] for e in found).values()) == [2, 2]
    assert all(
        len({e["pid"] for e in found if e["id"] == ident}) == 1
        for ident in {e["id"] for e in found}
    )


def test_instants_stay_instants(tmp_path):
    instant = {
        "ph": "i",
        "name": "mark",
        "cat": "cpu_op",
        "pid": 7,
        "tid": 8,
        "ts": 12,
        "args": {"Bytes": 4},
    }
    p = chrome(tmp_path, complete("a", 10, 10), {**instant, "s": "g"}, instant)
    written = [e for e in strict(p.trace.export(tmp_path / "out.json")) if e["ph"] == "i"]
    assert [(e["name"], e["s"], e["args"]["Bytes"]) for e in written] == [
        ("mark", "g", 4),
        ("mark", "t", 4),
    ]
    assert not any("ph" in e["args"] or "s" in e["args"] for e in written)
    again = load(tmp_path / "out.json").run.trace
    assert len(again.events) == 3
    assert module.marks(again).tolist() == module.marks(p.run.trace).tolist()


@pytest.mark.parametrize("made", ["producers", "sequence", "fwdbwd", "flows", "flow numbers"])
def test_arrows_come_back_as_what_they_were(tmp_path, made):
    run = MADE[made](tmp_path)
    (tmp_path / "written").mkdir()
    again = load(module.export(run, tmp_path / "written" / "out.json")).run

    def told(run):
        links, names, events = run.timeline.links, run.trace.names, run.trace.events
        said = {(kind, a, b) for event in range(len(events)) for kind, a, b in links.arrows(event)}
        first = int(events.start.min())
        place = [
            (str(names[events.name[e]]), int(events.start[e]) - first) for e in range(len(events))
        ]
        return {(kind, place[a], place[b]) for kind, a, b in said}

    assert told(run)
    assert told(again) == told(run)


def test_what_runs_a_little_past_the_one_around_it_overlaps(tmp_path):
    # PyTorch's annotations do: they lie in each other all the same, but not for a viewer that takes
    # only what nests.
    p = chrome(
        tmp_path, complete("around", 0, 10), complete("past", 5, 5.002), complete("in it", 6, 1)
    )
    assert p.run.trace.events.parent.tolist() == [-1, 0, 1]
    rules(strict(p.trace.export(tmp_path / "out.json")))


def test_what_an_event_and_its_name_both_state_is_written_twice_under_two_keys(tmp_path):
    host = PlaneWriter("/host:CPU")
    own = host.event("op", 0, 5000, flops=7)
    host.event_extra["op"] = chunk(5, host.stat("flops", 5)) + chunk(
        5, host.stat("long_name", "all of it")
    )
    host.line("python", [own, host.event("op", 10_000, 5000)], line_id=7)
    (tmp_path / "host.xplane.pb").write_bytes(xspace(host))
    p = load(tmp_path / "host.xplane.pb")
    assert p.run.trace.name_args["flops"]
    found = [e["args"] for e in strict(p.trace.export(tmp_path / "out.json")) if e["ph"] == "X"]
    assert [
        (args.get("flops"), args["flops of the name"], args["long_name"]) for args in found
    ] == [
        (7, 5, "all of it"),
        (None, 5, "all of it"),
    ]
