"""The one builder of traces from columns."""

from __future__ import annotations

import numpy as np

from nbprof.core.receipt import Receipt
from nbprof.core.trace import DOUBLE, INT, TEXT, UINT
from nbprof.formats.build import Builder, Coded
from tests.support.notes import of_key

WEEK_NS = 7 * 24 * 3600 * 10**9


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_events_lanes_args_counters_and_flows_come_in_order() -> None:
    builder = Builder(Receipt())
    cpu = builder.lane("node", "python", "main", pid="7", tid="8", sort=1)
    gpu = builder.lane(
        "node", "GPU 0", "Stream 7", pid="0", tid="7", labels="GPU 0", process_sort=-1
    )
    assert builder.lane("node", "python", "main", pid="7", tid="8") == cpu
    builder.planes["node", "0"] = {"sms": 108}
    names = builder.codes(["inner", "outer", "late"])
    builder.add(
        cpu,
        names,
        ints(1010, 1010, 1100),
        ints(5, 50, 1),
        {"cat": "op", "n": np.ma.masked_less(ints(4, -1, 6), 0)},
    )
    codes = builder.codes(["[1, 1, 1]"])
    columns = {
        "grid": Coded(np.array([-1, codes[0]])),
        "f": np.array([np.nan, 0.5]),
        "u": np.array([1, 2**63], np.uint64),
        "one": 3,
    }
    builder.add(
        np.array([gpu, gpu]), builder.texts["kernel"], ints(1030, 1020), ints(2, 3), columns
    )
    builder.counter(gpu, "power", ints(1001, 1000), np.array([2.0, 1.0]))
    builder.flows(
        np.array([0, 2], np.uint8), ints(5, 5), "ac2g", np.array([cpu, gpu]), ints(1011, 1020)
    )
    trace = builder.trace(["first"], {"a": 1})
    assert trace.hosts == ["first", "node"]
    assert trace.lanes[
        ["process", "pid", "tid", "labels", "events", "order", "line_id"]
    ].to_numpy().tolist() == [
        ["GPU 0", "0", "7", "GPU 0", 2, 0, 7],
        ["python", "7", "8", "", 3, 1, 8],
    ]
    assert [(p.name, p.stats["pid"], p.stats.get("sms")) for p in trace.planes] == [
        ("GPU 0", "0", 108),
        ("python", "7", None),
    ]
    assert trace.names[trace.events.name].tolist() == ["kernel", "kernel", "outer", "inner", "late"]
    # The clock begins with the first of events, samples and arrows.
    assert (trace.epoch_ns, trace.events.start.tolist()) == (
        1000,
        [20_000, 30_000, 10_000, 10_000, 100_000],
    )
    assert trace.events.duration.tolist() == [3000, 2000, 50_000, 5000, 1000]
    assert trace.arg("n").tolist() == [-1, -1, -1, 4, 6]
    assert trace.texts(trace.text_arg("grid")) == ["[1, 1, 1]", "", "", "", ""]
    assert trace.texts(trace.text_arg("cat")) == ["", "", "op", "op", "op"]
    assert {key: column.kind for key, column in trace.args.items()} == {
        "cat": TEXT,
        "n": INT,
        "grid": TEXT,
        "f": DOUBLE,
        "u": UINT,
        "one": INT,
    }
    assert (trace.args["f"].event.tolist(), trace.args["f"].floats().tolist()) == ([0], [0.5])
    assert trace.args["u"].floats().tolist() == [2.0**63, 1.0]
    assert trace.counters.to_numpy().tolist() == [[0, "power", 0, 1.0], [0, "power", 1000, 2.0]]
    assert trace.flows is not None
    assert (trace.flows.lane.tolist(), trace.flows.time.tolist(), trace.flows.enclosing.all()) == (
        [1, 0],
        [11_000, 20_000],
        True,
    )


def test_what_cannot_be_is_left_out_and_counted() -> None:
    receipt = Receipt()
    builder = Builder(receipt)
    lane = builder.lane("h", "p", "t")
    builder.add(
        lane, builder.texts["a"], ints(10, 20, 30), ints(1, WEEK_NS + 1, -5), {"k": ints(0, 1, 2)}
    )
    builder.add(
        lane, builder.texts["far"], ints(40, 30 + 2 * WEEK_NS), ints(1, 1), {"k": ints(3, 4)}
    )
    trace = builder.trace()
    assert trace.arg("k").tolist() == [0, 2, 3]
    assert trace.events.duration.tolist() == [1000, 0, 1000]
    assert (receipt.events, receipt.dropped) == (3, 2)
    keys = ["long_durations", "far_events", "negative_durations"]
    assert receipt.notes["key"].tolist() == keys


def test_hosts_have_clocks_of_their_own_where_they_are_weeks_apart() -> None:
    for apart, starts in ((5, [0, 5000]), (2 * WEEK_NS, [0, 0])):
        builder = Builder(Receipt())
        for i in range(2):
            builder.add(
                builder.lane(f"h{i}", "p", "t"), builder.texts["a"], ints(100 + i * apart), ints(1)
            )
        trace = builder.trace()
        assert (trace.epoch_ns, trace.events.start.tolist()) == (100, starts)
        assert bool(of_key(trace.receipt, "unrelated_clocks")) == (apart > WEEK_NS)


def test_a_trace_of_nothing() -> None:
    trace = Builder(Receipt()).trace()
    assert (len(trace.events), len(trace.lanes), trace.hosts, trace.flows, len(trace.counters)) == (
        0,
        0,
        [],
        None,
        0,
    )
