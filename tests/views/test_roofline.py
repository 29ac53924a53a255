"""The tab "HLO & roofline": what it holds of the frame, its figures, and what it says where
something is not known.
"""

from __future__ import annotations

import numpy as np
import pytest

from nbprof import load
from nbprof.core.receipt import info
from nbprof.display import codec
from nbprof.display.categories import CATEGORIES
from nbprof.profiles.report.static import static_html
from nbprof.schema import frames
from nbprof.tools import dashboard as payload
from nbprof.tools import register
from nbprof.tools.hlo import payload as roofline
from tests.analysis.test_hlo import KNOWN, US, computation, kernel, op, program, run
from tests.analysis.test_roofline import PEAKS, tpu
from tests.support.build import profile
from tests.support.profiles import real
from tests.support.xspace import training_run

OPS = [
    kernel(0, "k1", "add_fusion"),
    kernel(20 * US, "k2", "mul.1.remat", length=5 * US),
    kernel(40 * US, "k3", "none", ident=9),
]


def text(table, key):
    column = table["data"][key]
    return [column["values"][code] for code in column["codes"]]


def test_the_table_has_every_column_of_the_frame(tmp_path):
    p = run(tmp_path, *OPS)
    table = roofline.payload(p.run)["table"]
    frame = p.hlo.frame
    for col in frames.SCHEMA["hlo.frame"]:
        head = next(head for head in table["columns"] if head["key"] == roofline._key(col))
        assert head["help"], col.name
        if col.kind in ("text", "code"):
            assert text(table, head["key"]) == [str(value) for value in frame[col.name]], col.name
            continue
        by = (
            1e9
            if head["label"].startswith("G") or "GB/s" in head["label"]
            else 0.01
            if col.unit == "fraction"
            else 1
        )
        values = np.asarray(table["data"][head["key"]], np.float64)
        assert values == pytest.approx(
            frame[col.name].to_numpy(np.float64) / by, rel=1e-6, nan_ok=True
        ), col.name
    assert np.asarray(table["data"]["_intensity"]) == pytest.approx(
        p.roofline.frame["operational_intensity"], nan_ok=True
    )
    codec.pack(payload.dashboard(p.run))


def test_figures_and_parts_add_up(tmp_path):
    p = profile(tmp_path, tpu())
    part = roofline.payload(p.run)
    figures = {one["key"]: one for one in part["figures"]}
    assert (figures["bound_by_memory"]["value"], figures["bound_by_memory"]["label"]) == (
        0,
        "Bound by HBM",
    )
    assert (figures["bound_by_latency"]["value"], figures["bound_by_latency"]["note"]) == (
        pytest.approx(100),
        "below 60% of every peak",
    )
    assert figures["roof"]["value"] == pytest.approx(100 * p.roofline.total["roof_fraction"])
    assert figures["flop_rate"]["unit"] == "TFLOP/s"
    assert figures["flop_rate"]["note"] == "of 100 TFLOP/s, idle time included"
    for ring in part["donuts"]:
        assert sum(one["percent"] for one in ring["parts"]) == pytest.approx(100)
    assert [(one["label"], one["ridge"]) for one in part["roofs"]] == [
        ("HBM", 100),
        ("VMEM Read", 5),
        ("VMEM Write", 10),
    ]
    assert [mark["label"] for mark in part["marks"]] == ["Whole profile", "Average step"]
    assert part["marks"][1]["flops_per_second"] == pytest.approx(1.01e13)
    html = static_html(payload.dashboard(p.run))
    assert "Top ops of compiled programs" in html
    assert "lookup.3" in html


def test_ops_near_a_peak_are_bound_by_it(tmp_path):
    """The same ops on a device of half the peaks reach 80 % and 100 % of them."""
    p = profile(
        tmp_path,
        tpu(
            peaks={
                key: value / 2 if isinstance(value, float) else value
                for key, value in PEAKS.items()
            }
        ),
    )
    part = roofline.payload(p.run)
    figures = {one["key"]: one for one in part["figures"]}
    by = p.hlo.frame.groupby("bound")["self_fraction"].sum() * 100
    assert set(by.index) == {"Compute", "HBM", "VMEM Read"}
    assert figures["bound_by_compute"]["value"] == pytest.approx(by["Compute"])
    assert figures["bound_by_memory"]["value"] == pytest.approx(by["HBM"])
    assert figures["bound_by_memory"]["note"] == f"{by['VMEM Read']:.1f}% by on-chip memory"
    assert figures["bound_by_latency"]["value"] == 0


def test_a_cpu_is_not_offered_the_peaks_of_a_gpu():
    part = roofline.payload(load("tests/data/xspace/jax_cpu.xplane.pb").run)
    assert part["missing"]
    assert part["code"] == roofline.CODE_OF_CPU


def test_a_device_that_is_not_known(tmp_path):
    p = run(tmp_path, *OPS, stats={"device_vendor": "Tomorrow"})
    part = roofline.payload(p.run)
    assert (part["peak_flops"], part["roofs"]) == (None, [])
    assert part["missing"].startswith("The peak FLOP/s and memory bandwidth of ")
    assert part["code"] == roofline.CODE
    notes = {one["key"]: (one["value"], one["note"]) for one in part["figures"]}
    assert notes["roof"] == (None, "peaks unknown")
    assert notes["bound_by_memory"] == (None, "not known")
    assert [ring["title"] for ring in part["donuts"]] == ["By category"]
    shown = p.roofline(peak_flops=1e12, peak_bytes=1e9)._repr_mimebundle_()[0]["text/html"]
    assert "Device memory" in shown
    assert "nbprof.load(path, peaks=" not in shown
    assert "nbprof.load(path, peaks=" in p.roofline._repr_mimebundle_()[0]["text/html"]


def test_without_ops_the_tab_says_why(tmp_path):
    p = profile(tmp_path, training_run(3))
    assert "hlo" not in [tab["id"] for tab in payload.dashboard(p.run)["meta"]["tabs"]]
    asked = payload.dashboard(p.run, views="roofline")
    assert [tab["id"] for tab in asked["meta"]["tabs"]] == ["hlo"]
    assert asked["hlo"]["empty"]["text"] == p.hlo.missing
    assert payload.dashboard(p.run, views="ops")["hlo"]["table"]["rows"] == 0


def test_ops_without_time_bytes_or_number(tmp_path):
    p = run(
        tmp_path,
        kernel(0, "k1", "add_fusion", length=0),
        kernel(20 * US, "k2", "none"),
        kernel(40 * US, "k3", "a"),
    )
    part = roofline.payload(p.run)
    assert part["table"]["rows"] == 3
    assert np.isnan(part["table"]["data"]["_flops"]).sum() == 2, (
        "no time, and an op that the program does not have"
    )
    codec.pack(part)
    nothing = run(tmp_path / "none", kernel(0, "k1", "add_fusion", length=0))
    codec.pack(roofline.payload(nothing.run))


def test_more_ops_than_a_report_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(roofline, "MOST_ROWS", 3)
    ops = [op(f"negate.{i}", "negate", 100 + i, dims=(10 + i,)) for i in range(9)]
    events = [kernel(20 * i * US, f"k{i}", f"negate.{i}", length=(20 - i) * US) for i in range(9)]
    p = run(
        tmp_path, *events, programs={"jit_f(3)": (3, program("jit_f", computation("main", *ops)))}
    )
    part = roofline.payload(p.run)
    assert text(part["table"], "op") == ["negate.0", "negate.1", "negate.2"]
    assert (
        part["left_out"]
        == "6 more ops with the least self time (0.09 ms or 60.4% together) are not listed; p.hlo.frame has all."
    )
    assert part["figures"][0]["value"] == pytest.approx(sum(20 - i for i in range(9)) / 1000)
    [note] = register.tool("hlo").omissions(p.run, 0)
    assert note == info(
        "omitted_compiled_ops",
        "The table of HLO ops omits the 6 with the least self time; p.hlo.frame has all.",
    )


def test_colours_by_what_an_op_is_of_a_step():
    expected = {
        "loop fusion": "device_compute", "all-reduce-start": "device_collectives", "collective-permute": "device_collectives",
        "infeed": "input", "outfeed": "output", "copy-done": "device_to_device", "": "device_compute",
    }  # fmt: skip
    assert {category: roofline.hue(category) for category in expected} == expected


def test_long_texts_are_cut(tmp_path):
    name = "n" * 3000
    entry = computation("main", op(name, "negate", 12), ident=8, root=12)
    p = run(
        tmp_path, kernel(0, "k", name), programs={"f(3)": (3, program("f", entry))}, stats=KNOWN
    )
    assert {len(cell) for cell in text(roofline.payload(p.run)["table"], "op")} == {400}


def test_copies_between_a_tpu_and_the_memory_of_the_host_are_input_and_output_as_in_the_steps():
    p = load(real("jax/tpu-v6e-inference"))
    part = roofline.payload(p.run)["table"]
    hues = {
        op: CATEGORIES[at].key
        for op, at in zip(p.hlo.frame["op"], part["data"]["_hue"], strict=True)
    }
    starts = {
        name: hues[name.replace("done", "start")]
        for name in ("copy-done.4", "copy-done.2", "copy-done", "copy-done.5")
    }
    assert {name: hues[name] for name in starts} == starts
    assert starts == {
        "copy-done.4": "input",
        "copy-done.2": "input",
        "copy-done": "input",
        "copy-done.5": "output",
    }
    assert (
        roofline.hue(
            "copy-done",
            "%a = f32[8]{0:T(128)S(1)} copy-done((f32[8]{0:T(128)S(1)}, f32[8]{0:T(128)}, u32[]) %b)",
        )
        == "device_to_device"
    )


@pytest.mark.parametrize(
    ("peaks", "notes"),
    [
        (None, ["over op time"] * 2),
        (
            {"flops": 1e12, "bytes": 1e11},
            ["of 1.00 TFLOP/s, over op time", "of 100 GB/s, over op time"],
        ),
    ],
)
def test_rates_on_the_cpu_are_over_the_time_of_its_ops(peaks, notes):
    p = load("tests/data/xspace/jax_loop.xplane.pb", peaks=peaks)
    part = roofline.payload(p.run)
    assert [
        one["note"] for one in part["figures"] if one["key"] in ("flop_rate", "memory_bandwidth")
    ] == notes
    assert part["missing"] == (
        "" if peaks else "The peak FLOP/s and memory bandwidth of the CPU are unknown."
    )
