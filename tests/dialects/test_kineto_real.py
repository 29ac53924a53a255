"""PyTorch recordings, ours and other people's, against figures made from the JSON event by event
with exact decimals.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbprof.activity.activity import CATEGORIES
from nbprof.dialects import torchnames
from tests.support.kineto import Plain, length, load, union, without
from tests.support.profiles import ROOT, real

OURS = Path(__file__).parents[1] / "data" / "kineto" / "cpu_train.pt.trace.json.gz"
THEIRS = {
    "h100": "kineto/h100-bert/h100_bert.pt.trace.json.gz",
    "mi300": "kineto/mi300-ddp-resnet18/train_resnet18.json.gz",
    "v100-workers0": "kineto/v100-resnet50-workers0/worker0.1623143089861.pt.trace.json.gz",
    "v100-workers4": "kineto/v100-resnet50-workers4/worker0.1623213129365.pt.trace.json.gz",
    "a100-rank0": "kineto/a100-nccl-ranks/sampled_rank-0.json.gz",
}
ALL = ["ours", *THEIRS]
ON_GPU = list(THEIRS)


@cache
def both(name):
    path = OURS if name == "ours" else real(THEIRS[name])
    return load(path), Plain(path)


def us(event):
    if "span" not in event:
        event["span"] = Decimal(event["ts"]), Decimal(event["ts"]) + Decimal(event["dur"])
    return event["span"]


@pytest.mark.parametrize("name", ON_GPU)
def test_kernel_time_by_name(name):
    p, plain = both(name)
    table = p.kernels.frame.groupby("kernel")[["occurrences", "total_us"]].sum()
    expected = plain.totals(plain.of("kernel"))
    assert set(table.index) == set(expected)
    for kernel, (count, time) in expected.items():
        assert table.loc[kernel, "occurrences"] == count
        assert table.loc[kernel, "total_us"] == pytest.approx(float(time), abs=1e-6)


def innermost(ops, call):
    """The op around a call on its thread; of equal ones the later in the file."""
    a, b = us(call)
    around = [o for o in ops[str(call["tid"])] if o["ts"] <= a and us(o)[1] >= b]
    return min(reversed(around), key=lambda o: us(o)[1] - us(o)[0]) if around else None


@pytest.mark.parametrize("name", ["h100", "mi300", "v100-workers0", "v100-workers4"])
def test_device_time_by_op_as_the_ids_of_the_file_link_it(name):
    p, plain = both(name)
    by_id = {plain.external(o): o["name"] for o in plain.ops}
    expected = defaultdict(Decimal)
    for event in plain.work:
        expected[by_id[plain.external(plain.calls[event["args"]["correlation"]])]] += Decimal(
            event["dur"]
        )
    table = p.ops.frame
    table = table[table["where"] == "device"].set_index("op")["total_us"]
    assert table.to_dict() == pytest.approx({k: float(v) for k, v in expected.items()}, abs=1e-6)


def test_device_time_by_op_where_the_ids_are_no_ops():
    p, plain = both("a100-rank0")
    ops = defaultdict(list)
    for o in plain.ops:
        ops[str(o["tid"])].append(o)
    table = p.ops.frame
    table = table[table["where"] == "device"].set_index("op")["total_us"]
    linked = [e for e in plain.work if plain.calls.get(e["args"]["correlation"])]
    assert len(linked) == len(plain.work)
    found = [innermost(ops, plain.calls[e["args"]["correlation"]]) for e in linked]
    expected = defaultdict(Decimal)
    for event, op in zip(linked, found, strict=True):
        if op is not None:
            expected[op["name"]] += Decimal(event["dur"])
    close = sum(abs(table.get(k, 0.0) - float(v)) for k, v in expected.items())
    # The file has whole microseconds: where a call and an op begin and end at once, either may be
    # the outer one.
    assert close < 0.002 * float(sum(expected.values()))


def calls_of_their_own(ops):
    """Ops without calls of the op around them that have its name and are all that there is in it,
    as in `key_averages()`.
    """
    children, around = defaultdict(int), {}
    for tid in {o["tid"] for o in ops}:
        stack = []
        for o in sorted(
            (o for o in ops if o["tid"] == tid), key=lambda o: (us(o)[0], us(o)[0] - us(o)[1])
        ):
            while stack and us(stack[-1])[1] < us(o)[1]:
                stack.pop()
            if stack:
                around[id(o)] = stack[-1]
                children[id(stack[-1])] += 1
            stack.append(o)
    return [
        o
        for o in ops
        if not (up := around.get(id(o))) or up["name"] != o["name"] or children[id(up)] > 1
    ]


@pytest.mark.parametrize("name", ALL)
def test_host_ops_by_name(name):
    p, plain = both(name)
    table = p.ops.frame
    table = table[table["where"] == "host"].set_index("op")
    loading = plain.named("enumerate(DataLoader)")
    own = calls_of_their_own(
        [*(o for o in plain.ops if not torchnames.is_annotation(o["name"])), *loading]
    )
    expected = plain.totals([o for o in own if o not in loading])
    loaders = plain.totals(loading)
    assert set(table.index) == set(expected) | set(loaders)
    assert table["occurrences"].to_dict() == {k: n for k, (n, _) in {**expected, **loaders}.items()}
    totals = {k: float(t) for k, (_, t) in {**expected, **loaders}.items()}
    assert table["total_us"].to_dict() == pytest.approx(
        totals, abs=0.01 * max(totals.values()) if name == "a100-rank0" else 0.01
    )


@pytest.mark.parametrize("name", ["ours", "h100", "mi300"])
def test_self_times_add_up_to_the_time_in_which_ops_ran(name):
    p, plain = both(name)
    spans = defaultdict(list)
    for o in [*plain.ops, *plain.named("enumerate(DataLoader)")]:
        spans[o["tid"]].append(us(o))
    busy = sum(length(union(s)) for s in spans.values())
    table = p.ops.frame
    assert table.loc[table["where"] == "host", "self_us"].sum() == pytest.approx(
        float(busy), abs=0.01
    )


def steps_of(plain):
    """(number, start, end, device events) by torch_tb_profiler's rules."""
    out = []
    marks = plain.named("ProfilerStep#")
    ranges = [(int(m["name"].partition("#")[2]), *us(m)) for m in marks]
    if not marks:
        turns = plain.named("Optimizer.step#")
        first = min(
            us(e)[0]
            for e in plain.slices
            if e["tid"] == turns[0]["tid"] and e.get("cat") != "python_function"
        )
        edges = [first, *(us(t)[1] for t in turns)]
        ranges = [(i, a, b) for i, (a, b) in enumerate(pairwise(edges))]
    for number, a, b in ranges:
        launched = [e for e in plain.work if a <= us(plain.calls[e["args"]["correlation"]])[0] < b]
        end = max([b, *(us(e)[1] for e in launched)])
        start = max(a, out[-1][2]) if out else a
        out.append((number, start, max(end, out[-1][2]) if out else end, len(launched)))
    return out


@pytest.mark.parametrize("name", ALL)
def test_steps(name):
    p, plain = both(name)
    expected = steps_of(plain)
    frame = p.steps.frame
    assert frame["step"].tolist() == [n for n, *_ in expected]
    assert frame["step_time_ms"].tolist() == pytest.approx(
        [float(b - a) / 1000 for _, a, b, _ in expected], abs=1e-9
    )


# What counts first where several happen at once; the classes and their order are TensorFlow
# Profiler's, the events PyTorch's.
def classes(plain):
    copies = {
        "Memcpy HtoD": "input",
        "Memcpy DtoH": "output",
        "Memcpy DtoD": "device_to_device",
        "Memset": "device_to_device",
    }
    spans = defaultdict(list)
    ops = {plain.external(o): o for o in plain.ops}
    to = {}
    for e in plain.work:
        kind = next((v for k, v in copies.items() if e["name"].startswith(k)), None)
        if kind is None:
            kind = "device_collectives" if "nccl" in e["name"] else "device_compute"
        spans[("device", kind)].append(us(e))
        to[e["args"]["correlation"]] = kind
    launch = ("LaunchKernel", "GraphLaunch", "Memset", "Memcpy", "hipLaunch")
    for ident, call in plain.calls.items():
        name = call["name"]
        if "Synchronize" in name or ("Memcpy" in name and to.get(ident) == "output"):
            spans[("host", "wait")].append(us(call))
        elif "Memcpy" in name and to.get(ident) == "input":
            spans[("host", "input")].append(us(call))
        elif any(part in name for part in launch):
            spans[("host", "kernel_launch")].append(us(call))
        else:
            spans[("host", "host_compute")].append(us(call))
    spans[("host", "host_compute")] += [
        us(o) for o in ops.values() if not torchnames.is_annotation(o["name"])
    ]
    spans[("host", "loader")] += [us(o) for o in plain.named("enumerate(DataLoader)")]
    return spans


ORDER = [
    (("device", "device_compute"), "device_compute"),
    (("device", "output"), "output"),
    (("device", "device_to_device"), "device_to_device"),
    (("host", "loader"), "input"),
    (("device", "device_collectives"), "device_collectives"),
    (("host", "kernel_launch"), "kernel_launch"),
    # Copies to the device, on the device and in the call.
    (("both", "input"), "input"),
    (("host", "wait"), "other"),
    (("host", "host_compute"), "host_compute"),
]


@pytest.mark.parametrize("name", ["ours", "h100", "mi300", "v100-workers0", "v100-workers4"])
def test_the_breakdown_by_subtraction(name):
    p, plain = both(name)
    spans = classes(plain)
    spans[("both", "input")] = spans[("device", "input")] + spans[("host", "input")]
    for row, (_, start, end, _) in zip(
        p.steps.frame.to_dict("records"), steps_of(plain), strict=True
    ):
        left = [(start, end)]
        expected = dict.fromkeys(CATEGORIES, Decimal(0))
        for key, category in ORDER:
            near = [s for s in spans[key] if s[1] > start and s[0] < end]
            rest = without(left, near)
            expected[category] += length(left) - length(rest)
            left = rest
        expected["other"] += length(left)
        for category, time in expected.items():
            stated = row[f"{category}_ms"]
            if stated == stated:
                assert stated == pytest.approx(float(time) / 1000, abs=1e-6), category
            else:
                assert not time, category


@pytest.mark.parametrize("name", ["ours", "h100"])
def test_memory_in_use_is_what_the_allocator_states(name):
    p, plain = both(name)
    timeline, summary = p.memory.timeline, p.memory.summary.set_index("memory_id")
    for kind, label in ((0, "CPU"), (1, "GPU 0")):
        events = sorted(
            (e for e in plain.memory if e["args"]["Device Type"] == kind), key=lambda e: e["ts"]
        )
        mine = timeline[timeline["memory_id"] == label]
        assert mine["allocated_bytes"].tolist() == [e["args"]["Bytes"] for e in events]
        assert mine["in_use_bytes"].tolist() == [e["args"]["Total Allocated"] for e in events]
        if events:
            assert summary.loc[label, "peak_bytes"] == max(
                e["args"]["Total Allocated"] for e in events
            )
            peak = p.memory.peak
            rows = peak[peak["memory_id"] == label]
            assert (rows["allocated_bytes"] * rows["occurrences"]).sum() == summary.loc[
                label, "peak_bytes"
            ]


@pytest.mark.parametrize("name", ["v100-workers0", "v100-workers4"])
def test_memory_of_files_without_totals_is_added_up(name):
    p, plain = both(name)
    timeline = p.memory.timeline
    mine = timeline[timeline["memory_id"] == "GPU 0"]
    events = sorted(
        (e for e in plain.memory if e["args"].get("Device Type") == 1), key=lambda e: e["ts"]
    )
    running, total = [], 0
    for e in events:
        total += e["args"]["Bytes"]
        running.append(total)
    assert mine["in_use_bytes"].tolist() == [r - min(0, *running) for r in running]
    assert mine["free_bytes"].isna().all()
    assert p.memory.peak["op"].str.contains("the file has no addresses").all()


def test_two_ranks_of_one_job():
    folder = real("kineto/a100-nccl-ranks")
    p = load(*sorted(folder.iterdir()))
    assert p.hosts == ["rank 0", "rank 1"]
    steps = p.steps.frame
    assert steps.groupby("host")["step"].apply(list).to_dict() == {
        "rank 0": [551, 552],
        "rank 1": [551, 552],
    }
    alone, _ = both("a100-rank0")
    mine = steps[steps["host"] == "rank 0"].reset_index(drop=True)
    columns = [c for c in mine.columns if c.endswith("_ms") and c != "start_ms"]
    # A rank beside others has the figures that it has alone.
    pd.testing.assert_frame_equal(mine[columns], alone.steps.frame[columns])
    assert p.devices["device"].tolist() == [0, 1]
    assert any("128 ranks; only ranks 0, 1 are here" in n.text for n in p.receipt.lines)


@pytest.mark.parametrize("name", ALL)
def test_no_word_of_another_framework(name):
    p, _ = both(name)
    text = " ".join(
        [
            p.text(),
            *p.advice.drop(columns=["gain_ms_per_step", "gain_of_ms"]).agg(" ".join, axis=1),
            str(p.receipt),
            *(p.run.missing.values()),
        ]
    )
    text += (
        str(p.payload()["input"]["empty"])
        + str(p.payload()["memory"]["empty"])
        + str(p.payload()["kernels"]["empty"])
    )
    for word in ("tf.", "TensorFlow", "Keras", "keras", "XLA", "jit_compile", "tf_data"):
        assert word not in text
    assert p.overview["framework"] == "PyTorch"


def test_their_recordings_are_all_looked_at():
    if ROOT.exists():
        folders = {Path(v).parts[1] for v in THEIRS.values()}
        assert folders == {f.name for f in (ROOT / "kineto").iterdir()}


def test_the_loader_of_our_recording():
    p, plain = both("ours")
    batches = plain.named("enumerate(DataLoader)")
    row = p.input_pipeline.frame.iloc[0]
    assert row["category"] == "demanded_file_read"
    assert row["occurrences"] == len(batches) == 5
    assert row["total_ms"] == pytest.approx(
        float(sum(Decimal(b["dur"]) for b in batches)) / 1000, abs=1e-9
    )
    assert p.steps.frame["input_ms"].sum() == pytest.approx(row["total_ms"], abs=1e-6)
    assert p.advice["rule"].tolist()[0] == "loader_in_process"
    assert p.steps.frame["step"].tolist() == [2, 3, 4, 5, 6]
    assert p.steps.frame["device_compute_ms"].isna().all()


# What HolisticTraceAnalysis 0.5 answers for files in whole microseconds (those in ns it cuts to µs,
# event by event): from the first device event to the last, idle, compute that is no communication;
# in µs.
HTA = {"a100-rank0": (1222847, 675191, 210320), "v100-workers0": (996477, 392919, 591532)}


@pytest.mark.parametrize("name", HTA)
def test_device_time_agrees_with_holistic_trace_analysis(name):
    whole, idle, compute = HTA[name]
    p, _ = both(name)
    a = p.run.activity
    extent = a.device_extents.frame().iloc[0]
    assert (extent["end"] - extent["start"]) / 1e6 == whole
    times = a.device_ops.frame()[["start", "end"]].to_numpy()
    spans = union([(Decimal(int(s)), Decimal(int(e))) for s, e in times])
    assert whole - float(length(spans)) / 1e6 == idle
    kernels = a.kernels.take(~np.isin(a.kernels.event, a.collectives.event)).frame()
    events = p.run.trace.events
    rows = kernels["event"].to_numpy()
    spans = union(
        [
            (Decimal(int(s)), Decimal(int(e)))
            for s, e in zip(events.start[rows], events.end[rows], strict=True)
        ]
    )
    assert float(length(spans)) / 1e6 == compute


@pytest.mark.parametrize("name", ["ours", "h100", "v100-workers4"])
def test_figures_and_reports_are_made(name, tmp_path):
    p, _ = both(name)
    views = [p.steps, p.ops, p.memory, *([] if name == "ours" else [p.kernels])]
    assert all(view.figure() is not None for view in views)
    page = p.save(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "PyTorch" in page or "aten::" in page
