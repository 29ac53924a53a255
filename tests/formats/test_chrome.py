"""What each kind of Chrome trace event becomes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.core.trace import DOUBLE, INT, TEXT, UINT
from nbprof.formats.chrome import chrome
from tests.support.chrome import (
    Memory,
    compact,
    complete,
    document,
    expected_slices,
    kineto,
    packed,
    read,
    slices_of,
)

US = 10**6  # ps


def _events(trace):
    return [
        (trace.names[n], s, d)
        for n, s, d in zip(
            trace.events.name.tolist(),
            trace.events.start.tolist(),
            trace.events.duration.tolist(),
            strict=True,
        )
    ]


def _at(trace, name):
    return int(np.flatnonzero(trace.names[trace.events.name] == name)[0])


def _arg(trace, name, event=0):
    column = trace.args[name]
    row = column.event.tolist().index(event)
    kind, value = int(column.kinds[row]), int(column.values[row])
    return (
        trace.strings[value]
        if kind == TEXT
        else float(column.floats()[row])
        if kind == DOUBLE
        else value % (1 << 64)
        if kind == UINT
        else value
    )


def _warnings(trace):
    return [n.text for n in trace.receipt.entries if n.level == "warning"]


def test_the_layout_of_pytorch_and_its_metadata_on_both_sides_of_the_events():
    text = kineto(
        complete(
            "aten::mm",
            5013.125,
            10.5,
            args={"External id": 7, "Input Dims": [[2, 3], [3, 4]], "Fwd thread id": 0},
        ),
        complete("aten::t", 5014, 1.001),
        deviceProperties=[{"id": 0, "name": "A100"}],
        baseTimeNanoseconds=1_700_000_000_000_000_000,
    )
    trace = read(text)
    assert trace.epoch_ns == 1_700_000_000_005_013_125
    assert _events(trace) == [("aten::mm", 0, 10_500_000), ("aten::t", 875_000, 1_001_000)]
    assert trace.metadata["deviceProperties"] == [{"id": 0, "name": "A100"}]
    assert trace.metadata["traceName"] == "/tmp/t.json"
    assert (_arg(trace, "External id"), _arg(trace, "Input Dims"), _arg(trace, "cat")) == (
        7,
        "[[2, 3], [3, 4]]",
        "cpu_op",
    )
    assert trace.receipt.events == 2
    assert not trace.receipt.lines


def test_absolute_times_keep_every_nanosecond():
    trace = read(
        json.dumps([complete("a", 1), complete("b", 2)])
        .replace('"ts": 1,', '"ts": 1682725898236567.123,')
        .replace('"ts": 2,', '"ts": 1682725898236567.124456,')
    )
    assert trace.epoch_ns == 1_682_725_898_236_567_123
    assert _events(trace) == [("a", 0, US), ("b", 1456, US)]


def test_times_as_strings():
    trace = read(
        json.dumps(
            [
                complete("a", "1717575960208020.758", "0.45077999999999996"),
                complete("b", "1717575960208021", 0.5),
            ]
        )
    )
    assert trace.epoch_ns == 1_717_575_960_208_020_758
    assert _events(trace) == [("a", 0, 450_780), ("b", 242_000, 500_000)]
    assert [n.text for n in trace.receipt.entries] == [
        "Times with digits below a picosecond, rounded: 1."
    ]


def test_exponents_are_exact():
    trace = read(
        '[{"ph":"X","name":"a","ts":1.682725898236567123e15,"dur":1e-3},{"ph":"X","name":"b","ts":1682725898236568,"dur":2.5E+1}]'
    )
    assert trace.epoch_ns == 1_682_725_898_236_567_123
    assert _events(trace) == [("a", 0, 1000), ("b", 877_000, 25 * US)]


def test_lanes_have_names_labels_and_their_producers_order():
    def meta(what, pid, tid, **args):
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}

    trace = read(
        compact(
            complete("k", 1, 1, pid=0, tid=7),
            complete("op", 1, 1, pid=41, tid=42),
            complete("op", 1, 1, pid=41, tid="loader"),
            complete("x", 1, 1, pid="Spans", tid="PyTorch Profiler"),
            meta("process_name", 41, 0, name="python"),
            meta("process_labels", 41, 0, labels="CPU"),
            meta("process_sort_index", 41, 0, sort_index=41),
            meta("process_name", 0, 0, name="python"),
            meta("process_labels", 0, 0, labels="GPU 0"),
            meta("process_sort_index", 0, 0, sort_index=5000000),
            meta("process_sort_index", "Spans", 0, sort_index=536870912),
            meta("thread_name", 0, 7, name="stream 7"),
            meta("thread_name", 41, 42, name="thread 42 (python)"),
            meta("thread_sort_index", 41, 42, sort_index=9),
            meta("num_cpus", 41, 0, number=4),
        )
    )
    rows = trace.lanes[
        ["process", "thread", "pid", "tid", "labels", "sort", "line_id", "events"]
    ].values.tolist()
    assert rows == [
        ["python", "loader", "41", "loader", "CPU", 0, 2, 1],
        ["python", "thread 42 (python)", "41", "42", "CPU", 9, 42, 1],
        ["python", "stream 7", "0", "7", "GPU 0", 0, 7, 1],
        ["Spans", "PyTorch Profiler", "Spans", "PyTorch Profiler", "", 0, 3, 1],
    ]
    assert [p.name for p in trace.planes] == ["python", "python", "Spans"]
    assert trace.lanes.plane.tolist() == [0, 0, 1, 2]
    assert [n.text for n in trace.receipt.entries] == [
        "Metadata events that are not used: num_cpus (1)."
    ]


@pytest.mark.parametrize(
    ("pid", "shown"),
    [(-5, "-5"), (1 << 70, str(1 << 70)), (1.5, "1.5"), ("CUPTI", "CUPTI"), ("7", "7"), (None, "")],
)
def test_pids_and_tids_of_any_kind(pid, shown):
    trace = read(json.dumps([complete(pid=pid, tid=pid)]))
    assert trace.lanes[["pid", "tid"]].values.tolist() == [[shown, shown]]


def test_a_number_and_a_text_name_the_same_lane():
    trace = read(json.dumps([complete("a", 1, pid=7, tid="8"), complete("b", 2, pid="7", tid=8)]))
    assert len(trace.lanes) == 1


def test_args_of_every_kind():
    args = {
        "int": -3,
        "most": (1 << 63) - 1,
        "unsigned": (1 << 64) - 1,
        "huge": 1 << 64,
        "float": 0.1,
        "yes": True,
        "no": False,
        "none": None,
        "text": 'a "b" \\ \n \u00e9',
        "list": [1, "two", {"three": 3.50}],
        "dict": {"a": {"b": []}},
        "": 5,
    }
    trace = read(json.dumps([complete(args=args)]))
    assert "none" not in trace.args
    found = {k: (int(trace.args[k].kinds[0]), _arg(trace, k)) for k in args if k != "none"}
    assert found == {
        "int": (INT, -3),
        "most": (INT, (1 << 63) - 1),
        "unsigned": (UINT, (1 << 64) - 1),
        "huge": (TEXT, str(1 << 64)),
        "float": (DOUBLE, 0.1),
        "yes": (INT, 1),
        "no": (INT, 0),
        "text": (TEXT, args["text"]),
        "list": (TEXT, '[1, "two", {"three": 3.5}]'),
        "dict": (TEXT, '{"a": {"b": []}}'),
        "": (INT, 5),
    }


def test_a_column_of_one_kind_is_stored_small_and_reads_as_int64():
    trace = read(
        json.dumps(
            [
                complete(ts=i, args={"id": i, "wide": i << 40, "mixed": i if i % 2 else str(i)})
                for i in range(20)
            ]
        )
    )
    assert trace.args["id"].value.dtype == np.int32
    assert trace.args["id"].kind == INT
    assert trace.arg("wide").tolist() == [i << 40 for i in range(20)]
    assert trace.args["mixed"].kinds.tolist() == [INT if i % 2 else TEXT for i in range(20)]


def test_unknown_fields_of_events_are_args_and_args_go_over_them():
    trace = read(json.dumps([complete(tts=5, cname="good", id=3, args={"id": 4})]))
    assert (_arg(trace, "tts"), _arg(trace, "cname"), _arg(trace, "id")) == (5, "good", 4)


def test_begins_and_ends_make_slices_that_nest():
    def mark(ph, ts, name="", tid=1, **args):
        return {"ph": ph, "name": name, "pid": 1, "tid": tid, "ts": ts, "args": args}

    trace = read(
        json.dumps(
            [
                mark("E", 0),
                mark("B", 1, "outer", a=1, b=1),
                mark("B", 2, "inner"),
                mark("B", 2, "other lane", tid=2),
                mark("E", 5),
                mark("E", 9, b=2, c=3),
                mark("B", 10, "open"),
                complete("x", 11, 9, pid=1, tid=3),
            ]
        )
    )
    assert _events(trace) == [
        ("outer", US, 8 * US),
        ("inner", 2 * US, 3 * US),
        ("open", 10 * US, 10 * US),
        ("other lane", 2 * US, 18 * US),
        ("x", 11 * US, 9 * US),
    ]
    assert trace.events.parent.tolist() == [-1, 0, -1, -1, -1]
    outer = _at(trace, "outer")
    assert [_arg(trace, k, outer) for k in "abc"] == [1, 2, 3]
    assert trace.receipt.skipped == {
        "left out: ends of slices without a begin (ph E without B).": 1
    }
    assert _warnings(trace) == [
        "Slices without an end (ph B without E), drawn to the end of the trace: 2."
    ]


def test_async_slices_get_lanes_on_which_they_do_not_overlap():
    def mark(ph, ts, name, ident, cat="io", **fields):
        return {
            "ph": ph,
            "name": name,
            "cat": cat,
            "id": ident,
            "pid": 1,
            "tid": ts,
            "ts": ts,
            **fields,
        }

    trace = read(
        json.dumps(
            [
                mark("b", 1, "read", "0x1"),
                mark("b", 2, "read", "0x2"),
                mark("b", 3, "part", "0x1"),
                mark("n", 4, "note", "0x1"),
                mark("e", 5, "part", "0x1"),
                mark("e", 6, "read", "0x1"),
                mark("e", 7, "read", "0x2"),
                mark("b", 8, "read", "0x3"),
                mark("e", 9, "read", "0x3"),
                mark("e", 9, "read", "0x4"),
            ]
        )
    )
    assert trace.lanes[["thread", "events"]].values.tolist() == [["io", 4], ["io 2", 1]]
    assert _events(trace) == [
        ("read", 0, 5 * US),
        ("part", 2 * US, 2 * US),
        ("note", 3 * US, 0),
        ("read", 7 * US, US),
        ("read", US, 5 * US),
    ]
    assert sum(trace.receipt.skipped.values()) == 1


def test_instants_are_events_without_length_that_say_so():
    trace = read(
        json.dumps(
            [
                complete("op", 1, 9),
                {
                    "ph": "i",
                    "s": "t",
                    "name": "[memory]",
                    "pid": 7,
                    "tid": 8,
                    "ts": 4,
                    "args": {"Bytes": -512},
                },
            ]
        )
    )
    assert _events(trace) == [("op", 0, 9 * US), ("[memory]", 3 * US, 0)]
    assert trace.args["ph"].event.tolist() == [1]
    assert (_arg(trace, "ph", 1), _arg(trace, "Bytes", 1)) == ("i", -512)


def test_a_global_mark_hours_later_does_not_stretch_the_timeline():
    marks = [
        {"ph": "i", "s": "g", "name": n, "pid": "", "tid": "", "ts": t}
        for n, t in (("Iteration Start", 0), ("Record Window End", 4 * 3600 * US))
    ]
    trace = read(json.dumps([complete("op", 1, 9), *marks]))
    assert {e[0] for e in _events(trace)} == {"op", "Iteration Start"}
    # PyTorch writes that one in every file.
    assert not trace.receipt.lines


def test_other_global_marks_that_are_left_out_are_counted():
    marks = [
        {"ph": "i", "s": "g", "name": "far", "pid": "", "tid": "", "ts": t * 3600 * US}
        for t in (4, 5)
    ]
    trace = read(json.dumps([complete("op", 1, 9), *marks]))
    assert {e[0] for e in _events(trace)} == {"op"}
    assert [n.text for n in trace.receipt.entries if n.key == "far_marks"] == [
        "Trace-wide marks far outside all slices are not drawn: 2."
    ]


def test_counters_are_series_over_time():
    def count(ts, name, **args):
        return {"ph": "C", "name": name, "pid": 7, "tid": 0, "ts": ts, "args": args}

    trace = read(
        json.dumps(
            [
                complete("op", 1, 9),
                count(3, "mem", used=1.5, free=2),
                count(2, "mem", used=1, free=3),
                count(2, "fps", value=60, note="x"),
            ]
        )
    )
    table = trace.counters
    assert table.columns.tolist() == ["lane", "series", "time", "value"]
    assert table.values.tolist() == [
        [0, "fps", US, 60.0],
        [0, "mem free", US, 3.0],
        [0, "mem free", 2 * US, 2.0],
        [0, "mem used", US, 1.0],
        [0, "mem used", 2 * US, 1.5],
    ]
    assert [n.text for n in trace.receipt.entries] == [
        "Counter values that are not numbers, left out: 1."
    ]


def test_flows_keep_their_points():
    def flow(ph, ts, tid, ident=5, **fields):
        return {
            "ph": ph,
            "id": ident,
            "pid": 7,
            "tid": tid,
            "ts": ts,
            "cat": "ac2g",
            "name": "ac2g",
            **fields,
        }

    trace = read(
        json.dumps(
            [
                complete("launch", 1, 9),
                complete("kernel", 5, 9, tid=9),
                flow("s", 2, 8),
                flow("t", 3, 77),
                flow("f", 5, 9, bp="e"),
            ]
        )
    )
    flows = trace.flows
    assert flows.phase.tolist() == [0, 1, 2]
    assert flows.id.tolist() == [5, 5, 5]
    assert flows.lane.tolist() == [0, -1, 1]
    assert flows.time.tolist() == [US, 2 * US, 4 * US]
    assert flows.enclosing.tolist() == [False, False, True]
    assert {trace.strings[c] for c in flows.category.tolist()} == {"ac2g"}
    texts = read(json.dumps([complete(), flow("s", 2, 8, "0x5"), flow("f", 3, 8, 7)])).flows
    assert len(set(texts.id.tolist())) == 2


def test_kinds_without_slices_are_counted():
    trace = read(
        json.dumps(
            [
                complete(),
                {"ph": "N", "name": "o", "ts": 1},
                {"ph": "P", "name": "s", "ts": 1},
                {"ph": "Q", "ts": 1},
                {"name": "no phase", "ts": 1},
                {"ph": "long", "ts": 1},
            ]
        )
    )
    assert trace.receipt.skipped == {
        "left out: of an unknown phase (ph Q).": 1,
        "left out: no valid phase (ph).": 2,
    }
    assert [note.text for note in trace.receipt.entries] == [
        "Not shown, because no figure uses them: object records (ph N), 1.",
        "Not shown, because no figure uses them: samples (ph P), 1.",
    ]
    assert len(trace.events) == 1


@pytest.mark.parametrize(
    "ts",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "N/A",
        '"soon"',
        '"18446744073709551.615"',
        "1e300",
        "[]",
        "{}",
        "true",
        '""',
    ],
)
def test_a_time_that_is_none_costs_its_event_only(ts):
    trace = read(
        '[{"ph":"X","name":"a","ts":' + ts + ',"dur":1},{"ph":"X","name":"b","ts":5,"dur":1}]'
    )
    assert _events(trace) == [("b", 0, US)]
    assert trace.receipt.skipped == {"left out: time (ts) is not a number or is out of range.": 1}


@pytest.mark.parametrize("fields", [{}, {"ts": None}])
def test_an_event_without_a_time_is_counted(fields):
    trace = read(json.dumps([{"ph": "X", "name": "a", **fields}, complete("b")]))
    assert trace.receipt.skipped == {"left out: no time (ts).": 1}


@pytest.mark.parametrize(
    ("dur", "length", "told"),
    [("-1.5", 0, "end before they start"), ("null", 0, "without a duration")],
)
def test_durations_that_are_taken_as_nothing(dur, length, told):
    trace = read('[{"ph":"X","name":"a","ts":1,"dur":' + dur + "}]")
    assert _events(trace) == [("a", 0, length)]
    assert any(told in w for w in _warnings(trace))


@pytest.mark.parametrize(
    ("dur", "why"),
    [
        ("NaN", "not a number"),
        ("604800000001", "more than a week"),
        ("1e14", "more than a week"),
        ("1e30", "not a number"),
    ],
)
def test_durations_that_cost_the_event(dur, why):
    trace = read(
        '[{"ph":"X","name":"a","ts":1,"dur":'
        + dur
        + '},{"ph":"X","name":"b","ts":1,"dur":604800000000}]'
    )
    assert _events(trace) == [("b", 0, 604800000000 * US)]
    assert [why in reason for reason in trace.receipt.skipped] == [True]


def test_lost_times_do_not_stretch_the_timeline():
    late = 1_682_725_898_236_567
    trace = read(
        json.dumps(
            [complete("lost", 0), complete("lost", 0), complete("a", late), complete("b", late + 5)]
        )
    )
    assert [e[0] for e in _events(trace)] == ["a", "b"]
    assert [(n, "at time 0" in why) for why, n in trace.receipt.skipped.items()] == [(2, True)]
    far = read(
        json.dumps(
            [complete("a", late), complete("b", late + 5), complete("c", late + 9 * 24 * 3600 * US)]
        )
    )
    assert [e[0] for e in _events(far)] == ["a", "b"]
    assert [n for why, n in far.receipt.skipped.items() if "more than a week away" in why] == [1]


def test_times_that_are_all_zero_are_kept_and_said():
    trace = read(json.dumps([complete("a", 0), complete("b", 0)]))
    assert len(trace.events) == 2
    assert _warnings(trace) == ["All events have time 0: the profiler lost their times."]
    assert read(json.dumps([complete("a", 0), complete("b", 5)])).receipt.lines == []


def test_events_are_sorted_with_the_outer_one_first():
    made = [
        complete(f"{ts}/{dur}", ts, dur, tid=tid)
        for tid in (3, 1)
        for ts in (5, 1, 9)
        for dur in (1, 4, 2, 4)
    ]
    trace = read(json.dumps(made))
    assert [e[0] for e in _events(trace)] == [
        "1/4",
        "1/4",
        "1/2",
        "1/1",
        "5/4",
        "5/4",
        "5/2",
        "5/1",
        "9/4",
        "9/4",
        "9/2",
        "9/1",
    ] * 2
    assert (np.diff(trace.events.lane) >= 0).all()


def test_several_files_on_one_clock():
    one = kineto(complete("a", 10), distributedInfo={"rank": 0}, baseTimeNanoseconds=10**18)
    two = kineto(complete("b", 12), distributedInfo={"rank": 1}, baseTimeNanoseconds=10**18 + 500)
    trace = chrome.read(
        [Memory(one.encode(), "r0.pt.trace.json"), Memory(packed(two), "r1.pt.trace.json.gz")]
    )
    assert trace.hosts == ["r0", "r1"]
    assert trace.lanes.host.tolist() == ["r0", "r1"]
    assert trace.epoch_ns == 10**18 + 10_000
    assert _events(trace) == [("a", 0, US), ("b", 2_500_000, US)]
    assert trace.metadata["distributedInfo"] == {"rank": 0}
    assert trace.metadata["hosts"]["r1"]["distributedInfo"] == {"rank": 1}


def test_files_with_clocks_that_have_nothing_in_common_are_drawn_from_their_beginnings():
    pieces = [
        Memory(json.dumps([complete("a", t), complete("b", t + 3)]).encode(), f"{t}.json")
        for t in (5, 1_682_725_898_236_567)
    ]
    trace = chrome.read(pieces)
    assert sorted(e[1] for e in _events(trace)) == [0, 0, 3 * US, 3 * US]
    assert "more than a week apart" in _warnings(trace)[0]


def test_the_layout_of_xla_with_its_empty_last_event():
    text = compact(
        complete("a", 1), displayTimeUnit="ns", metadata={"highres-ticks": True}
    ).replace("]}", ",{}]}")
    trace = read(text, "host.trace.json.gz")
    assert (trace.receipt.events, trace.receipt.lines, trace.hosts) == (1, [], ["host"])


@pytest.mark.parametrize(
    ("count", "by_xla", "cut"),
    [
        (1000, True, True),
        (5000, True, True),
        (999, True, False),
        (1001, True, False),
        (1000, False, False),
    ],
)
def test_the_cut_of_xlas_exporter_is_said(monkeypatch, count, by_xla, cut):
    """Names of threads do not count; a file of another number of events is complete, whatever the
    limit was when it was written.
    """
    assert chrome._XLA_LIMITS == (1_000_000, 5_000_000)
    monkeypatch.setattr(chrome, "_XLA_LIMITS", (1000, 5000))
    facts = {"metadata": {"highres-ticks": True}} if by_xla else {}
    names = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}}]
    trace = read(compact(*names, *[complete(ts=i) for i in range(count)], **facts))
    assert sum("XLA's exporter stops" in w for w in _warnings(trace)) == cut


@pytest.mark.parametrize("beside", [True, False])
def test_the_file_with_all_events_is_named_where_it_is(monkeypatch, tmp_path, beside):
    monkeypatch.setattr(chrome, "_XLA_LIMITS", (3,))
    path = tmp_path / "vm.trace.json"
    path.write_text(compact(*[complete(ts=i) for i in range(3)], metadata={"highres-ticks": True}))
    if beside:
        (tmp_path / "vm.xplane.pb").write_bytes(b"x")
    (warning,) = _warnings(chrome.read([LocalFile(path)]))
    assert ("vm.xplane.pb next to it has them all." in warning) is beside
    assert ("next to it" in warning) is beside


def test_the_last_of_two_equal_keys_counts_as_everywhere():
    text = '[{"ph":"X","name":"a","name":"b","ts":1,"dur":2,"dur":3,"args":{"k":1,"k":"2"}},{"ph":"X","args":{"z":1},"name":"c","ts":9,"args":{"k":5}}]'
    trace = read(text)
    assert slices_of(trace) == expected_slices(text)


def test_keys_with_escapes_are_the_keys_they_mean():
    text = r'[{"p\u0068":"X","na\u006de":"x","ts":1,"dur":2,"args":{"k\u0065y":5}},{"ph":"X","name":"y","ts":1,"args":{"key":6}}]'
    trace = read(text)
    assert slices_of(trace) == expected_slices(text)
    assert len(trace.args["key"]) == 2


def test_progress_names_the_file():
    said = []
    chrome.read([Memory(b"[" + json.dumps(complete()).encode() + b"]", "a.json")], said.append)
    assert said == ["reading a.json"]


def test_names_come_once_each_and_only_those_of_slices():
    trace = read(
        json.dumps(
            document(
                complete("a", 1),
                complete("b", 2),
                complete("a", 3),
                {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "p"}},
            )
        )
    )
    assert trace.names.tolist() == ["a", "b"]
    assert trace.display is trace.names


def test_a_list_of_events_is_asked_for():
    with pytest.raises(
        ReadError,
        match=r"/run/x.json: .*no list called traceEvents \(it has schemaVersion, deviceProperties\)",
    ):
        read('{"schemaVersion": 1, "deviceProperties": []}', "x.json")


@pytest.mark.parametrize(
    ("base", "epoch"),
    [
        (10**18, 10**18 + 1000),
        ("1000000000000000000", 10**18 + 1000),
        (1e18, 10**18 + 1000),
        (-5, 1000),
        ("soon", 1000),
        (None, 1000),
    ],
)
def test_what_times_count_from(base, epoch):
    assert read(compact(complete("a", 1), baseTimeNanoseconds=base)).epoch_ns == epoch


def test_times_before_the_base_are_times():
    trace = read(
        compact(
            complete("a", -1.5),
            complete("b", 1),
            complete("c", "-0.0005"),
            baseTimeNanoseconds=10**18,
        )
    )
    assert trace.epoch_ns == 10**18 - 1500
    assert _events(trace) == [("a", 0, US), ("c", 1_499_500, US), ("b", 2_500_000, US)]


def test_arg_columns_come_out_whole_for_several_threads_at_once():
    trace = read(
        json.dumps([complete(ts=i, args={f"k{j}": i * j for j in range(20)}) for i in range(2000)])
    )
    with ThreadPoolExecutor(8) as pool:
        columns = list(pool.map(trace.args.__getitem__, [f"k{j}" for j in range(20)] * 8))
    assert all(
        c.values.tolist() == [i * (n % 20) for i in range(2000)] for n, c in enumerate(columns)
    )
    assert columns[3] is columns[23]
    assert len(trace.args) == len(list(trace.args)) == 21
    assert "missing" not in trace.args
    with pytest.raises(KeyError):
        trace.args["missing"]


def test_a_text_that_is_no_json_is_read_without_its_quotes():
    trace = read(r'{"traceName": "runs\q and é", "traceEvents": []}')
    assert trace.metadata["traceName"] == r"runs\q and é"
