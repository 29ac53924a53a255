"""Ops grouped, distributed and held against the peaks of devices."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof import load
from nbprof.activity.activity import Activity
from nbprof.analysis.ops import ops
from nbprof.core.errors import NbprofError
from nbprof.dialects.device_peaks import peak_bytes_per_second, peak_flops_per_second
from nbprof.frameworks.register import PYTORCH
from nbprof.schema import frames
from tests.support.build import profile
from tests.support.xspace import MS, PlaneWriter, gpu_run, training_run, xspace

US = MS // 1000


@pytest.fixture
def layers(tmp_path):
    host = PlaneWriter("/host:CPU")
    names = (
        "model/enc/layer_0/MatMul:MatMul",
        "model/enc/layer_1/MatMul:MatMul",
        "model/dec/Add:AddV2",
        "top:Sum",
        "Iterator::Root::Map",
    )
    host.line(
        "python",
        [host.event(name, 100 * i * US, 10 * (i + 1) * US) for i, name in enumerate(names)],
    )
    return profile(tmp_path, xspace(host))


def test_by_type(layers):
    table = layers.ops.by_type()
    assert table[
        ["where", "type", "ops", "occurrences", "total_us", "self_us"]
    ].to_numpy().tolist() == [
        ["host", "Dataset", 1, 1, 50.0, 50.0],
        ["host", "Sum", 1, 1, 40.0, 40.0],
        ["host", "AddV2", 1, 1, 30.0, 30.0],
        ["host", "MatMul", 2, 2, 30.0, 30.0],
    ]
    assert table["self_fraction"].sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (1, {"model": 60.0, "Iterator": 50.0, "": 40.0}),
        (2, {"Iterator::Root": 50.0, "": 40.0, "model/dec": 30.0, "model/enc": 30.0}),
        (
            None,
            {
                "Iterator::Root": 50.0,
                "": 40.0,
                "model/dec": 30.0,
                "model/enc/layer_1": 20.0,
                "model/enc/layer_0": 10.0,
            },
        ),
    ],
)
def test_by_scope(layers, level, expected):
    table = layers.ops.by_scope(level)
    assert list(zip(table["scope"], table["self_us"], strict=True)) == list(expected.items())
    assert table["ops"].sum() == 5


@pytest.mark.parametrize(
    ("op", "scope"),
    [
        ("a/b/c", "a/b"),
        ("a", ""),
        ("", ""),
        ("/a", ""),
        ("/a/b", "/a"),
        ("a/", "a"),
        ("Iterator::Model::Map", "Iterator::Model"),
        ("aten::mm", "aten"),
        ("::x", ""),
        ("a::b/c", "a::b"),
    ],
)
def test_the_scope_of_a_name(op, scope):
    assert ops.scope(op) == scope


def test_a_scope_has_at_least_one_level(layers):
    with pytest.raises(NbprofError, match="1 or more"):
        layers.ops.by_scope(0)


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("by", ["type", "op"])
def test_distributions_make_up_the_whole(tmp_path, where, by):
    p = profile(tmp_path, gpu_run())
    for idle in (False, True):
        parts, table = p.ops.distribution(where, by, idle), p.ops.with_idle if idle else p.ops.frame
        assert parts["self_us"].sum() == pytest.approx(
            table.loc[table["where"] == where, "self_us"].sum()
        )
        assert ("IDLE" in parts[by].tolist()) == idle
        if parts["self_us"].sum():
            assert parts["cumulative_fraction"].iloc[-1] == pytest.approx(1.0)
            assert parts["self_us"].is_monotonic_decreasing


@pytest.mark.parametrize(("where", "by"), [("gpu", "type"), ("host", "name")])
def test_a_distribution_that_there_is_not(layers, where, by):
    with pytest.raises(NbprofError, match="where must be 'device' or 'host'"):
        layers.ops.distribution(where, by)


def test_an_empty_profile_has_empty_tables(tmp_path):
    p = profile(tmp_path, xspace(PlaneWriter("/host:CPU")))
    assert [
        len(t)
        for t in (p.ops.by_type(), p.ops.by_scope(), p.ops.distribution("host"), p.ops.as_xprof())
    ] == [0] * 4
    assert p.ops.with_idle.empty


@pytest.mark.parametrize("make", [lambda: training_run(3), gpu_run])
def test_columns_are_declared(tmp_path, make):
    p = profile(tmp_path, make())
    declared = [c.name for c in (*frames.SCHEMA["ops.frame"], *frames.WHERE_KNOWN["ops.frame"])]
    assert set(p.ops.frame.columns) <= set(declared)
    for name, table in (("ops.by_type", p.ops.by_type()), ("ops.by_scope", p.ops.by_scope())):
        assert list(table.columns) == [c.name for c in frames.SCHEMA[name]]


def test_the_part_of_the_time_on_tensor_cores(tmp_path):
    table = profile(tmp_path, gpu_run()).ops.frame.set_index("op")
    # Of two kernels of 2 ms one is `volta_h884gemm`.
    assert table.loc["dense/MatMul", "tensor_core_fraction"] == 0.5


def test_xprof_shows_500_rows_of_a_side(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "python",
        [host.event(f"scope/op{i}:Op{i}", 10 * i * US, (i + 1) * 1000) for i in range(600)],
    )
    p = profile(tmp_path, xspace(host))
    assert len(p.ops.frame) == 600
    shown, idle = p.ops.as_xprof(), p.ops.as_xprof(with_idle=True)
    # Idle is the first of 500 rows, and taken out afterwards.
    assert (len(shown), len(idle)) == (499, 500)
    assert idle["op"].iloc[0] == "IDLE"
    assert shown["rank"].tolist() == list(range(1, 500))
    assert shown["cumulative_fraction"].iloc[-1] < 1.0


def test_xprof_has_no_rows_of_files_that_it_cannot_read(tmp_path):
    path = tmp_path / "a.pt.trace.json"
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    p = load(path)
    assert len(p.ops.frame) == 1
    assert p.ops.as_xprof().empty


@pytest.mark.parametrize(
    ("stats", "tera"),
    [
        (
            {
                "compute_cap_major": 6,
                "compute_cap_minor": 1,
                "core_count": 28,
                "clock_rate": 1_582_000,
            },
            11.34,
        ),  # GTX 1080 Ti
        (
            {
                "compute_cap_major": 7,
                "compute_cap_minor": 0,
                "core_count": 80,
                "clock_rate": 1_530_000,
            },
            125.3,
        ),  # V100
        (
            {
                "compute_cap_major": 8,
                "compute_cap_minor": 0,
                "core_count": 108,
                "clock_rate": 1_410_000,
            },
            311.9,
        ),  # A100
        (
            {
                "compute_cap_major": 9,
                "compute_cap_minor": 0,
                "core_count": 132,
                "clock_rate": 1_830_000,
            },
            989.4,
        ),  # H100
        (
            {
                "compute_cap_major": 8,
                "compute_cap_minor": 7,
                "core_count": 16,
                "clock_rate": 1_000_000,
            },
            16.384,
        ),  # Orin, by the one below
        (
            {
                "compute_cap_major": 12,
                "compute_cap_minor": 0,
                "core_count": 1,
                "clock_rate": 1_000_000,
            },
            8.192,
        ),
        (
            {
                "device_vendor": "AMD",
                "compute_cap_major": 9,
                "compute_cap_minor": 4,
                "core_count": 304,
                "clock_rate": 2_100_000,
            },
            1307.4,
        ),
        ({"peak_teraflops_per_second": 918.0}, 918.0),
    ],
)
def test_peaks_of_known_devices(stats, tera):
    assert peak_flops_per_second(stats) == pytest.approx(tera * 1e12, rel=1e-3)


@pytest.mark.parametrize(
    "stats",
    [
        {},
        {"compute_cap_major": 1, "compute_cap_minor": 0, "core_count": 9, "clock_rate": 9},
        {"compute_cap_major": 8, "compute_cap_minor": 0, "core_count": 0, "clock_rate": 9},
        {"compute_cap_major": "8", "compute_cap_minor": 0, "core_count": 8, "clock_rate": 9},
        {
            "device_vendor": "AMD",
            "compute_cap_major": 3,
            "compute_cap_minor": 0,
            "core_count": 8,
            "clock_rate": 9,
        },
        {"peak_teraflops_per_second": 0.0},
    ],
)
def test_peaks_that_are_not_known(stats):
    assert peak_flops_per_second(stats) is None
    assert peak_bytes_per_second(stats) is None


@pytest.mark.parametrize(
    ("device", "stated", "tera"),
    [
        (
            {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 4},
            2_662_400_000_000,
            5.3248,
        ),  # MI300X: 5.3 TB/s
        (
            {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 4},
            5_324_800_000_000,
            5.3248,
        ),  # stated in full
        (
            {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 5},
            4_096_000_000_000,
            8.192,
        ),  # MI355X: 8 TB/s
        (
            {"device_vendor": "AMD", "compute_cap_major": 9, "compute_cap_minor": 0},
            1_638_400_000_000,
            1.6384,
        ),  # half an MI250X, HBM2e
        (
            {"device_vendor": "Nvidia", "compute_cap_major": 9, "compute_cap_minor": 0},
            3_352_320_000_000,
            3.35232,
        ),  # H100
    ],
)
def test_memory_peak_of_known_devices(device, stated, tera):
    assert peak_bytes_per_second({**device, "memory_bandwidth": stated}) == pytest.approx(
        tera * 1e12
    )


def once(spans):
    """(op, length) of the calls left, with their self time, event by event."""
    stack, calls = [], []
    for op, start, length in spans:
        while stack and stack[-1]["end"] < start + length:
            stack.pop()
        call = {
            "op": op,
            "end": start + length,
            "length": length,
            "up": stack[-1] if stack else None,
            "inner": [],
        }
        if call["up"]:
            call["up"]["inner"].append(call)
        stack.append(call)
        calls.append(call)

    def again(call):
        return call["up"] and call["up"]["op"] == call["op"] and len(call["up"]["inner"]) == 1

    out = []
    for call in calls:
        if not again(call):
            last = call
            while len(last["inner"]) == 1 and again(last["inner"][0]):
                last = last["inner"][0]
            out.append(
                (
                    call["op"],
                    call["length"],
                    call["length"] - sum(i["length"] for i in last["inner"]),
                )
            )
    return out


@given(
    st.recursive(
        st.just([]),
        lambda inner: st.lists(st.tuples(st.integers(0, 1), inner), max_size=3),
        max_leaves=12,
    )
)
def test_calls_that_an_op_hands_on_to_itself(tree):
    spans = []

    def lay(nodes, at):
        for op, inner in nodes:
            start, place = at, len(spans)
            spans.append(None)
            at = lay(inner, at + 1) + 1
            spans[place] = (op, start, at - start)
            at += 1
        return at

    lay(tree, 0)
    activity = Activity(["h"])
    activity.framework = PYTORCH
    op, start, length = (np.array([s[k] for s in spans], np.int64) for k in range(3))
    table = pd.DataFrame(
        {"lane": np.zeros(len(spans), np.int32), "start": start, "end": start + length, "op": op}
    )
    rows, _ = ops.host_self_times(activity, table)
    found = list(
        zip(
            rows["op"].tolist(),
            (rows["end"] - rows["start"]).tolist(),
            rows["own"].tolist(),
            strict=True,
        )
    )
    assert found == once(spans)
