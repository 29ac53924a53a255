"""The overview's figures and checks, held against XProf 2.24 and TensorFlow 2.3/2.4. (Step averages
and op tables have tests of their own.)
"""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.activity.activity import (
    CATEGORIES,
    COMPUTE_OF_BITS,
    DEVICE_COMPUTE_16,
    DEVICE_COMPUTE_32,
)
from nbprof.activity.tables import Work
from nbprof.analysis import overview
from nbprof.analysis.advice import checks
from nbprof.analysis.sweep import layers_of, times
from nbprof.core.intervals import Intervals
from nbprof.frameworks.register import titled
from nbprof.tools import dashboard as payload
from nbprof.tools.overview import payload as page
from tests.parity.deviations import known
from tests.parity.peer import GUIDE, GUIDE_NAMES, NAMES, XPROF, guide, profile, same, xprof
from tests.parity.test_input_pipeline import level_of
from tests.support.build import profile as made
from tests.support.xspace import MS, PlaneWriter, training_run, xspace

TOOL = "overview_page"
XPROF_COLUMN = {
    "device_compute": "deviceComputeTimeMs",
    "device_to_device": "deviceToDeviceTimeMs",
    "device_collectives": "deviceCollectivesTimeMs",
    "host_compute": "hostComputeTimeMs",
    "kernel_launch": "kernelLaunchTimeMs",
    "input": "infeedTimeMs",
    "output": "outfeedTimeMs",
    "compile": "compileTimeMs",
    "other": "otherTimeMs",
}
GUIDE_COLUMN = {
    "device_compute": ("device_compute_ms",),
    "device_to_device": ("device_to_device_ms",),
    "device_collectives": ("device_collectives_ms",),
    "host_compute": ("host_compute_ms",),
    "kernel_launch": ("host_prepare_ms",),
    "input": ("host_wait_input_ms", "host_to_device_ms"),
    "output": ("output_ms", "device_to_host_ms"),
    "compile": ("host_compile_ms",),
    "other": ("unknown_time_ms",),
}
NO_FUNCTIONS = pd.DataFrame(
    {
        "function": [],
        "calls": [],
        "tracings": [],
        "self_us": [],
        "expensive_percent": [],
        "expensive_ms_per_step": [],
    }
)


def of(percent, half=None, tf_data=True):
    facts = {
        "compute_16bit_percent": half,
        "eager_host_percent": None,
        "eager_device_percent": None,
        "outside_compilation_percent": None,
    }
    return checks.checks(percent, facts, NO_FUNCTIONS, tf_data=tf_data).set_index("check")


def xprof_shares(name):
    table = xprof(name, TOOL)[1]
    if not len(table) or "otherTimeMs" not in table:
        return {}
    whole = table["stepTimeMs"].astype(float).sum()
    return {
        ours: 100 * table[theirs].astype(float).sum() / whole
        for ours, theirs in XPROF_COLUMN.items()
    }


def guide_shares(name):
    rows = guide(name, TOOL)["input_analysis"].get("step_details", [])
    whole = sum(row["step_time_ms"] for row in rows)
    return (
        {
            c: 100 * sum(row.get(k, 0.0) for row in rows for k in keys) / whole
            for c, keys in GUIDE_COLUMN.items()
        }
        if rows
        else {}
    )


def is_class(found, says, name):
    """The class of each part, and the sentences with their numbers, against those of a peer."""
    as_input = found.loc["all_others_as_input", "level"] == "moderate"
    assert level_of(says["statement"]) == (
        "potential" if as_input else found.loc["input", "level"]
    ), name
    for ours, theirs in (
        ("device_collectives", "device_collectives"),
        ("kernel_launch", "kernel_launch"),
        ("all_others", "all_other"),
    ):
        level = found.loc[ours, "level"]
        assert says.get(f"{theirs}_bottleneck", "no") == ("no" if level == "unknown" else level), (
            name,
            ours,
        )
        sentence = says.get(f"{theirs}_statement", "")
        assert bool(sentence) is (level in ("high", "moderate")), (name, ours)
        if sentence:
            shown = f"{found.loc[ours, 'percent']:.1f}"
            assert shown in sentence
            assert shown in found.loc[ours, "statement"]
            assert ("TF_GPU_THREAD_MODE" in sentence) is (
                "TF_GPU_THREAD_MODE" in found.loc[ours, "statement"]
            )


@pytest.mark.parametrize("name", NAMES)
def test_checks_of_xprofs_steps_are_xprofs(name):
    tables = xprof(name, TOOL)
    says, half = tables[3].attrs, tables[0].attrs.get("device_compute_16bit_percent")
    shares = xprof_shares(name)
    compute = shares.get("device_compute")
    half = float(half.rstrip("%")) if compute and half else None
    found = of(shares, half)
    is_class(found, says, name)
    assert bool(says.get("precision_statement")) is (found.loc["precision", "level"] == "moderate")
    waits, other = shares.get("input"), shares.get("other")
    assert says["bottleneck"] == checks.input_class(waits, other)[0]
    hidden = {"host": "device", "device": "host"}.get(says["bottleneck"], "")
    assert says["non_bottleneck_tip_types"] == hidden


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_checks_of_the_guides_steps_are_the_guides(name):
    theirs, shares = guide(name, TOOL), guide_shares(name)
    analysis, says = theirs["analysis"], theirs["recommendation"]
    half = analysis.get("device_compute_16bit_percent", 0.0) if shares else None
    found = of(shares, half)
    is_class(found, {**says["recommendation"], "statement": says["statement"]}, name)
    assert bool(says["recommendation"].get("precision_statement")) is (
        found.loc["precision", "level"] == "moderate"
    )
    assert says["bottleneck"] == checks.input_class(shares.get("input"), shares.get("other"))[0]


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_our_checks_are_the_guides_or_a_known_deviation(name):
    says, ours = (
        guide(name, TOOL)["recommendation"]["recommendation"],
        profile(name).overview["checks"].set_index("check"),
    )
    for mine, theirs in (
        ("device_collectives", "device_collectives"),
        ("kernel_launch", "kernel_launch"),
        ("all_others", "all_other"),
    ):
        level = ours.loc[mine, "level"]
        equal = says.get(f"{theirs}_bottleneck", "no") == ("no" if level == "unknown" else level)
        assert equal is (known(TOOL, f"checks: {mine}", GUIDE, name) is None), mine


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_op_shares_are_the_guides(name):
    theirs, ours = guide(name, TOOL)["analysis"], profile(name).overview
    assert ours["host_op_percent"] == pytest.approx(theirs["host_tf_op_percent"], rel=1e-9)
    assert ours["device_op_percent"] == pytest.approx(
        theirs.get("device_tf_op_percent", 0.0), rel=1e-9
    )
    assert ours["eager_host_percent"] == pytest.approx(
        theirs["host_op_time_eager_percent"], rel=1e-9
    )
    if theirs.get("device_tf_op_percent"):
        assert ours["eager_device_percent"] == pytest.approx(
            theirs["device_op_time_eager_percent"], rel=1e-9
        )
    else:
        assert ours["eager_device_percent"] is None, (
            "no op ran on a device, so no share of their time is eager"
        )


@pytest.mark.parametrize("name", NAMES)
def test_op_shares_are_xprofs_by_its_rules(name):
    theirs, ops = xprof(name, TOOL)[0].attrs, profile(name).ops.as_xprof()
    count = ops.groupby("where")["occurrences"].sum()
    for side in ("host", "device"):
        # Tables are cut at 500 ops a side, so that of several thousand ops on a host a share could
        # come out too small: there is none here.
        assert f"{100 * count.get(side, 0) / count.sum():.1f}%" == theirs[f"{side}_tf_op_percent"]
        mine = ops[ops["where"] == side]
        whole = mine["self_us"].sum()
        eager = (
            100 * mine.loc[mine["eager"].astype(bool), "self_us"].sum() / whole if whole else 0.0
        )
        assert f"{eager:.1f}%" == theirs[f"{side}_op_time_eager_percent"]


@pytest.mark.parametrize("name", NAMES)
def test_our_op_shares_are_xprofs_or_a_known_deviation(name):
    theirs, ours = xprof(name, TOOL)[0].attrs, profile(name).overview
    equal = f"{ours['host_op_percent']:.1f}%" == theirs["host_tf_op_percent"]
    assert equal is (known(TOOL, "host_op_percent", XPROF, name) is None)
    host = "0.0%" if ours["eager_host_percent"] is None else f"{ours['eager_host_percent']:.1f}%"
    assert host == theirs["host_op_time_eager_percent"]


def half_by_their_rule(name):
    """The share of 16-bit compute by two words in kernel names, copies of TensorFlow 2.3/2.4 taken
    for compute, as both peers have it.
    """
    activity = profile(name).run.activity
    trace, work = profile(name).run.trace, activity.work.frame()
    work = work[work["device"] >= 0]
    names = trace.names[trace.events.name[work["event"].to_numpy()]]
    copies = np.array(
        [str(n).startswith(("MemcpyH2D", "MemcpyD2H", "MemcpyD2D")) for n in names], bool
    )
    half = np.array(["half" in str(n) or "fp16" in str(n) for n in names], bool)
    narrow = half & (work["cls"] == DEVICE_COMPUTE_16)
    cls = np.where(
        work["cls"].isin(COMPUTE_OF_BITS.values()) & ~narrow | copies,
        DEVICE_COMPUTE_32,
        work["cls"],
    )
    time = {DEVICE_COMPUTE_16: 0, DEVICE_COMPUTE_32: 0}
    for rows in work.groupby(["host", "group"]).indices.values():
        layers = layers_of(
            work["start"].to_numpy()[rows], work["end"].to_numpy()[rows], cls[rows].astype(np.int16)
        )
        found = times(layers, Intervals.total)
        for value in time:
            time[value] += found.get(value, 0)
    whole = sum(time.values())
    return 100 * time[DEVICE_COMPUTE_16] / whole if whole else None


@pytest.mark.parametrize("name", NAMES)
def test_the_share_of_16_bit_is_xprofs_by_its_rule(name):
    theirs = xprof(name, TOOL)[0].attrs.get("device_compute_16bit_percent", "0.0%")
    ours = half_by_their_rule(name)
    assert f"{ours or 0.0:.1f}%" == theirs
    own = profile(name).overview["compute_16bit_percent"]
    assert (f"{own or 0.0:.1f}%" == theirs) is (
        known(TOOL, "compute_16bit_percent", XPROF, name) is None
    )


def test_the_width_of_numbers_is_that_of_the_programs():
    p = profile("jax/mi300-jax_conv_minimal_08")
    assert p.hlo.frame["expression"].str.contains("bf16", regex=False).all()
    assert half_by_their_rule("jax/mi300-jax_conv_minimal_08") == 0
    assert p.overview["compute_16bit_percent"] == 100
    assert p.overview["checks"].set_index("check")["level"]["precision"] == "no"


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_the_share_of_16_bit_is_the_guides_by_its_rule(name):
    theirs = guide(name, TOOL)["analysis"].get("device_compute_16bit_percent", 0.0)
    assert (half_by_their_rule(name) or 0.0) == pytest.approx(theirs, rel=1e-9)
    own = profile(name).overview["compute_16bit_percent"]
    assert ((own or 0.0) == pytest.approx(theirs, rel=1e-6)) is (
        known(TOOL, "compute_16bit_percent", GUIDE, name) is None
    )


def test_copies_are_no_compute_of_any_width():
    p = profile("tf-gpu/rtx5000-cnn-batch64")
    work = p.run.activity.work.frame()
    compute = work[work["cls"].isin(COMPUTE_OF_BITS.values())]
    names = p.run.trace.names[p.run.trace.events.name[compute["event"].to_numpy()]]
    assert not any(str(n).startswith(("MemcpyH2D", "MemcpyD2H", "MemcpyD2D")) for n in names)
    time = (compute["end"] - compute["start"]).groupby(compute["cls"]).sum()
    share = 100 * time[DEVICE_COMPUTE_16] / time.sum()
    assert p.overview["compute_16bit_percent"] == pytest.approx(share, abs=0.5), (
        "kernels hardly overlap here"
    )
    assert p.overview["compute_16bit_percent"] + p.overview[
        "compute_32bit_percent"
    ] == pytest.approx(100)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("jax/")])
def test_use_of_tensor_cores_and_rates_of_the_top_ops_are_xprofs(name):
    theirs, ours = xprof(name, TOOL)[0], profile(name).overview["top_ops"]
    assert len(theirs)
    same(ours["op"], theirs["operation"], "op")
    for mine, other in (
        ("op_tensor_core_eligible", "tcEligibility"),
        ("uses_tensor_core", "tcUtilization"),
    ):
        assert (mine in ours) is (other in theirs), "TPUs have none"
        if other in theirs:
            same(ours[mine].astype(bool), theirs[other].astype(bool), mine)
    if not known(TOOL, "flopRate", XPROF, name):
        same(
            ours["flops_per_second"] / 1e9, theirs["flopRate"].astype(float), "rate", absolute=1e-9
        )


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_is_xprofs(name):
    theirs, o = xprof(name, TOOL)[2].attrs, profile(name).overview
    env = o["environment"]
    assert str(o["hosts"]) == str(len(env["hosts"])) == theirs["host_count"]
    assert str(o["devices"]) == str(env["device_count"]) == theirs["device_core_count"]
    assert sum(d["count"] for d in env["devices"]) == env["device_count"]
    kinds = {f"{d['architecture'] or d['name']}" for d in env["devices"]}
    assert len(kinds) == 1, "no file has devices of several kinds"
    if known(TOOL, "device_type", XPROF, name) is None:
        text = theirs["device_type"]
        shown = text.partition("(")[2].rstrip(")") or text
        if "gfx" in shown:
            # The file states 9.4; that this means gfx942 is XProf's guess.
            assert shown.startswith(
                f"AMD GPU - gfx{env['devices'][0]['compute_capability'].replace('.', '')}"
            )
            assert "gfx94" in env["devices"][0]["name"]
        else:
            assert shown in kinds
    else:
        assert theirs["device_type"] == "GPU"
        assert kinds <= {"Turing", "Volta"}


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_the_environment_is_the_guides(name):
    theirs, o = guide(name, TOOL)["run_environment"], profile(name).overview
    assert (o["hosts"], o["devices"]) == (theirs["host_count"], theirs["device_core_count"])
    assert o["environment"]["devices"][0]["kind"] == theirs["device_type"] == "GPU"


@pytest.mark.parametrize("name", NAMES)
def test_missing_steps_are_said_where_xprof_says_so(name):
    says = any("step marker" in message for message in xprof(name, TOOL)[6]["message"])
    p = profile(name)
    if known(TOOL, "diagnostics", XPROF, name) is None:
        assert ("steps" in p.run.missing) is says
        assert ("step time is unknown" in str(p.receipt)) is says
    else:
        assert says
        assert len(p.steps.frame)
        assert "steps" not in p.run.missing


@pytest.mark.parametrize(
    ("waits", "other", "place", "how"),
    [
        (20.0, 0.0, "host", "high"),
        (19.999, 50.0, "both", "moderate"),
        (5.0, 50.0, "both", "moderate"),
        (4.999, 3.0, "both", "potential"),
        (4.999, 2.999, "device", "no"),
        (0.0, 0.0, "device", "no"),
        (None, None, "unknown", "unknown"),
        (float("nan"), 5.0, "unknown", "unknown"),
    ],
)
def test_classes_of_input_at_their_bounds(waits, other, place, how):
    assert checks.input_class(waits, other) == (place, how)
    statement = checks.input_statement(waits, other)
    said = {
        "high": f"{waits}% of",
        "moderate": f"{waits or 0:.1f}% of",
        "potential": f"{other}% of",
        "no": "Not input-bound: ",
        "unknown": "No step",
    }
    assert statement.startswith(said[how])


@pytest.mark.parametrize(
    ("check", "share", "level"),
    [
        *[
            (c, s, v)
            for c in ("kernel_launch", "device_collectives", "all_others")
            for s, v in ((15.0, "high"), (14.99, "moderate"))
        ],
        *[
            (c, s, v)
            for c in ("kernel_launch", "device_collectives", "all_others")
            for s, v in ((3.0, "moderate"), (2.99, "no"))
        ],
        *[
            ("output", s, v)
            for s, v in ((20.0, "high"), (19.99, "moderate"), (5.0, "moderate"), (4.99, "no"))
        ],
    ],
)
def test_parts_of_the_step_at_their_bounds(check, share, level):
    shares = dict.fromkeys(CATEGORIES, 0.0) | {
        "input": 6.0,
        {"all_others": "other"}.get(check, check): share,
    }
    row = of(shares).loc[check]
    assert (row["level"], row["percent"]) == (level, share)
    assert f"{share:.1f}%" in row["statement"]


def test_time_that_may_be_input_is_not_counted_twice():
    found = of(dict.fromkeys(CATEGORIES, 0.0) | {"input": 4.9, "other": 60.0})
    assert found.loc["all_others_as_input", "level"] == "moderate"
    assert found.loc["all_others", "level"] == "no"
    assert "60.0%" in found.loc["all_others_as_input", "statement"]


def test_contention_with_tf_data_is_only_named_where_it_worked():
    shares = dict.fromkeys(CATEGORIES, 0.0) | {"kernel_launch": 30.0}
    assert "TF_GPU_THREAD_MODE" in of(shares, tf_data=True).loc["kernel_launch", "statement"]
    assert "TF_GPU_THREAD_MODE" not in of(shares, tf_data=False).loc["kernel_launch", "statement"]


def test_what_was_not_measured_is_unknown_and_no_share_of_0():
    found = of({})
    assert set(found["level"]) == {"unknown"}
    assert found["percent"].isna().all()
    cpu = of(dict.fromkeys(CATEGORIES) | {"input": 1.0, "other": 1.0, "host_compute": 98.0})
    assert cpu.loc["kernel_launch", "level"] == "unknown"
    assert "Not measured" in cpu.loc["kernel_launch", "statement"]


@pytest.mark.parametrize(
    ("half", "level"), [(9.99, "moderate"), (10.0, "no"), (0.0, "moderate"), (None, "unknown")]
)
def test_little_16_bit_compute(half, level):
    assert of({}, half).loc["precision", "level"] == level


@pytest.mark.parametrize(("eager", "level"), [(10.0, "no"), (10.01, "moderate")])
def test_much_eager_time(eager, level):
    facts = {"eager_host_percent": eager, "eager_device_percent": None}
    found = checks.checks({}, facts, NO_FUNCTIONS, tf_data=False).set_index("check")
    assert found.loc["eager_host", "level"] == level
    assert found.loc["eager_device", "level"] == "unknown"


@pytest.mark.parametrize(("outside", "level"), [(5.0, "no"), (5.01, "moderate")])
def test_time_outside_of_compiled_programs(outside, level):
    found = checks.checks(
        {}, {"outside_compilation_percent": outside}, NO_FUNCTIONS, tf_data=False
    ).set_index("check")
    assert found.loc["outside_compilation", "level"] == level


def test_functions_that_are_traced_again_are_named(tmp_path):
    """train: 2 of 10 ms traced (20 %: named); inner, 5 ms within an untraced call of train, is a
    function of its own; test: all eager.
    """
    host = PlaneWriter("/host:CPU")
    events = [
        host.event("train", 0, 2 * MS, tf_function_call="traced-nonXla", tracing_count=1),
        host.event("train", 10 * MS, 13 * MS, tf_function_call="notTraced-nonXla", tracing_count=2),
        host.event("inner", 11 * MS, 5 * MS, tf_function_call="notTraced-xla", tracing_count=1),
        host.event("test", 40 * MS, MS, tf_function_call="eager", tracing_count=0),
        host.event("rarely", 50 * MS, MS, tf_function_call="traced-xla", tracing_count=3),
        host.event("rarely", 52 * MS, 5 * MS, tf_function_call="concrete", tracing_count=3),
    ]
    host.line("python", events)
    o = made(tmp_path, xspace(host)).overview
    functions = o["tf_functions"].set_index("function")
    assert functions["expensive_percent"].to_dict() == pytest.approx(
        {"test": 100.0, "train": 20.0, "rarely": 100 / 6, "inner": 0.0}
    )
    assert functions["self_us"].to_dict() == {
        "test": 1000.0,
        "train": 10000.0,
        "rarely": 6000.0,
        "inner": 5000.0,
    }
    assert functions["tracings"].to_dict() == {"test": 0, "train": 2, "rarely": 3, "inner": 1}
    row = o["checks"].set_index("check").loc["tf_function"]
    assert row["level"] == "moderate"
    assert "test (100.0%), train (20.0%)" in row["statement"]
    assert "rarely" not in row["statement"]


def test_a_device_is_busy_while_any_stream_runs(tmp_path):
    """Steps of 10 ms; kernels 2..6 and 4..8 on two streams, a copy 8..9 of the step before: 7 of 10
    ms, though the step shows less.
    """
    gpu, host = PlaneWriter("/device:GPU:0"), PlaneWriter("/host:CPU")
    idle = PlaneWriter("/device:GPU:1")
    main, one, two = [], [], []
    for i in range(4):
        at = 10 * i * MS
        main.append(host.event("train", at, 10 * MS, step_num=i, _r=1))
        main.append(host.event("cuLaunchKernel", at + MS // 2, MS // 2, correlation_id=2 * i + 1))
        main.append(host.event("cuLaunchKernel", at + MS, MS // 2, correlation_id=2 * i + 2))
        one.append(gpu.event("sgemm", at + 2 * MS, 4 * MS, correlation_id=2 * i + 1))
        two.append(gpu.event("dgemm", at + 4 * MS, 4 * MS, correlation_id=2 * i + 2))
    gpu.line("Stream #1(Compute)", one, line_id=1)
    gpu.line("Stream #2(Compute)", two, line_id=2)
    host.line("python", main, line_id=3)
    o = made(tmp_path, xspace(gpu, idle, host)).overview
    assert o["device_busy_percent"] == pytest.approx(60.0), (
        "and a device that ran nothing is not in the mean"
    )
    assert o["device_idle_percent"] == pytest.approx(40.0)


SPAN = st.tuples(st.integers(0, 60), st.integers(0, 25), st.integers(0, 1))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(SPAN, max_size=12),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=4),
)
def test_busy_time_counts_each_instant_of_the_steps_once(spans, steps):
    """Against a count of whole picoseconds, one by one."""
    work = pd.DataFrame(
        [
            {
                "event": 0,
                "host": 0,
                "device": d,
                "group": 0,
                "start": s,
                "end": s + n,
                "cls": DEVICE_COMPUTE_32,
            }
            for s, n, d in spans
        ],
        columns=["event", "host", "device", "group", "start", "end", "cls"],
    ).astype(np.int64)
    frame = pd.DataFrame(
        {
            "host": "h",
            "start_ms": [s / 1e9 for s, _ in steps],
            "step_time_ms": [n / 1e9 for _, n in steps],
            "counted": True,
            "lost": False,
        }
    )
    inside = {at for s, n in steps for at in range(s, s + n)}
    shares = []
    for device in (0, 1):
        ran = {at for s, n, d in spans if d == device for at in range(s, s + n)}
        shares.append(100 * len(ran & inside) / len(inside))
    busy = overview.busy(
        overview.busy_shares(
            SimpleNamespace(hosts=["h"], work=Work.of(work), lost_kernels=False), frame
        )
    )
    if not spans:
        assert busy is None
    else:
        assert busy == pytest.approx(np.mean([s for s in shares if s > 0]) if any(shares) else 0.0)


def test_one_step_has_no_deviation(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("train", 0, 10 * MS, step_num=1, _r=1),
            host.event("dense/MatMul:MatMul", 0, 5 * MS),
        ],
    )
    o = made(tmp_path, xspace(host)).overview
    assert o["step_time_ms"] == 10.0
    assert o["step_time_sd_ms"] is None


def test_when_and_how_long_a_run_was_recorded(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("t", [host.event("a:A", 0, MS)])
    begin = 1_755_000_000 * 10**9
    task = PlaneWriter(
        "Task Environment",
        {"profile_start_time": begin, "profile_stop_time": begin + 1_500_000_000},
    )
    task.stats |= {
        "cuda_version": 12040,
        "hip_runtime_version": 70253211,
        "libtpu_version": "0.0.9",
    }
    env = made(tmp_path, xspace(host, task)).overview["environment"]
    assert env["start_time"] == "2025-08-12T12:00:00+00:00"
    assert env["duration_s"] == 1.5
    assert env["versions"] == {"cuda": "12.4", "hip_runtime": "7.2.53211", "libtpu": "0.0.9"}


def test_when_a_run_was_recorded_is_told_by_the_clock_of_the_file(tmp_path):
    """The file may have been copied or unpacked since: the time of that is called what it is."""
    host = PlaneWriter("/host:CPU")
    host.line("t", [host.event("a:A", 0, MS)])
    begin = 1_755_000_000
    clock = made(
        tmp_path,
        xspace(host, PlaneWriter("Task Environment", {"profile_start_time": begin * 10**9})),
    )
    facts = dict(clock.overview["run_facts"])
    assert facts["Recorded"] == "2025-08-12 12:00:00 UTC"
    assert facts["File written"] == clock.run.source.created.replace("T", " ")
    assert dict(page.payload(clock.run)["run"])["Recorded"] == facts["Recorded"]
    assert payload.created(clock.run) == datetime.fromtimestamp(begin).isoformat(" ")
    none = made(tmp_path, training_run(3))
    assert "Recorded" not in dict(none.overview["run_facts"])
    assert "File written" in dict(none.overview["run_facts"])
    assert payload.created(none.run) == ""


def test_without_steps_the_time_of_top_ops_is_that_of_the_recording(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("t", [host.event("a:A", 0, 3 * MS), host.event("b:B", 5 * MS, MS)])
    p = made(tmp_path, xspace(host))
    top = p.overview["top_ops"]
    assert top["self_ms"].tolist() == [3.0, 1.0]
    assert top["ms_per_step"].tolist() == [3.0, 1.0]
    shown = page.payload(p.run)["top_ops"]
    assert list(shown["data"]["ms_per_step"]) == [3.0, 1.0]
    labels = [c["label"] for c in shown["columns"] if c["key"] == "ms_per_step"]
    assert [p.run.activity.unit.reword(label) for label in labels] == ["ms"]


@pytest.mark.parametrize(
    ("framework", "word"),
    [("JAX", "jax.jit"), ("PyTorch", "torch.compile"), ("TensorFlow", "tf.function")],
)
def test_what_makes_one_program_of_eager_ops_has_the_frameworks_word(framework, word):
    facts = {"eager_host_percent": 40.0, "eager_device_percent": None}
    found = checks.checks(
        {}, facts, NO_FUNCTIONS, tf_data=False, framework=titled(framework)
    ).set_index("check")
    said = found.loc["eager_host", "statement"]
    assert [w for w in ("jax.jit", "torch.compile", "tf.function") if w in said] == [word]


def test_what_the_file_does_not_say_is_absent(tmp_path):
    env = made(tmp_path, training_run(3)).overview["environment"]
    assert (env["versions"], env["start_time"], env["devices"], env["device_count"]) == (
        {},
        None,
        [],
        0,
    )
    assert env["duration_s"] == pytest.approx(0.05, rel=0.5)
