from __future__ import annotations

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from bokeh import models
from bokeh.embed import file_html
from bokeh.models import AnnularWedge, HoverTool, LinearAxis
from bokeh.resources import INLINE

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import BY_KEY
from nbprof.tools import register
from nbprof.tools.plot import hover_times, stacked_columns
from tests.views import fake

figures = SimpleNamespace(
    **{key: figure for tool in register.tools().values() for key, figure in tool.figures.items()}
)
"""By key."""


def test_steps_are_stacked_in_order_and_colour_and_add_up_to_the_step():
    plot = figures.steps(fake.run(), title="mine", width=500)
    assert plot.title.text == "mine"
    assert plot.width == 500
    bars = plot.renderers
    assert [bar.name for bar in bars][:2] == ["device_compute", "device_to_device"]
    assert "compile" not in [bar.name for bar in bars]
    assert [bar.glyph.fill_color for bar in bars] == [BY_KEY[bar.name].colour for bar in bars]
    data = bars[0].data_source.data
    assert sum(data[bar.name] for bar in bars) == pytest.approx(data["total"])
    assert plot.y_range.start == 0
    card = plot.select_one(HoverTool)
    assert dict(card.tooltips)["Input"] == "@input{custom}"
    assert set(card.formatters) == {"@total", *(f"@{bar.name}" for bar in bars)}


@pytest.mark.skipif(shutil.which("node") is None, reason="Node runs what Bokeh runs in the browser")
@pytest.mark.parametrize("digits", [2, 3])
def test_hover_cards_say_times_as_everything_else_does(digits: int) -> None:
    said = hover_times(models, "total", digits=digits)["@total"]
    micros = hover_times(models, "total", unit="us")["@total"]
    ms = [0, 0.0031, 0.04, 0.31, 47.6182, 9_999.9, 47_618.2, -2e4]
    us = [0.4, 25, 999.9, 1000, 47_618.2, 2e7]
    program = "".join(
        f"{{const said = new Function({', '.join(json.dumps(name) for name in [*one.args, 'value'])}, {json.dumps(one.code)});"
        f"for (const value of [{', '.join(map(str, values))}]) console.log(said(...{json.dumps(list(one.args.values()))}, value))}}"
        for one, values in ((said, ms), (micros, [*us, "NaN"]))
    )
    shown = subprocess.run(
        ["node", "-e", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    assert shown == [
        *(wording.millis(one, digits) for one in ms),
        *(wording.micros(one) for one in us),
        "–",
    ]


def wedges(grid):
    pies = [plot.renderers[0] for plot, *_ in grid.children]
    assert all(isinstance(pie.glyph, AnnularWedge) for pie in pies)
    return pies


def test_pies_divide_the_self_time_of_each_side():
    device_op, device_type, host_op, _ = (
        pie.data_source.data for pie in wedges(figures.ops(fake.run()))
    )
    assert device_op["ms"] == pytest.approx([8.0, 4.0])
    assert device_type["name"] == ["Conv2DBackpropFilter", "max_pool"]
    assert sum(host_op["part"]) == pytest.approx(100)
    turned = np.asarray(device_op["start"]) - np.asarray(device_op["end"])
    assert turned.sum() == pytest.approx(2 * np.pi)


def test_idle_is_the_last_slice_when_asked_for():
    host = wedges(figures.ops(fake.run(), include_idle=True))[2].data_source.data
    assert host["name"][-1] == "Idle"
    assert host["ms"][-1] == 81.75
    assert "Idle" not in wedges(figures.ops(fake.run()))[2].data_source.data["name"]


def test_the_rest_is_one_slice():
    host = wedges(figures.ops(fake.run(), top=1))[2].data_source.data
    assert host["name"] == ["Iterator::Root::Prefetch::Map", "3 others"]


def test_kernels_with_most_time_first():
    plot = figures.kernels(fake.run(), top=1)
    data = plot.renderers[0].data_source.data
    assert data["ms"].tolist() == [8.0]
    assert data["part"].tolist() == pytest.approx([100 * 8 / 12])
    assert list(plot.y_range.factors) == ["1  wgrad_alg0_engine<__half, 512>"]


def test_memory_has_a_second_axis_and_a_card_of_ten_fields():
    plot = figures.memory(fake.run())
    (axis,) = [axis for axis in plot.right if isinstance(axis, LinearAxis)]
    assert axis.y_range_name == "fragmentation"
    assert plot.extra_y_ranges["fragmentation"].end == pytest.approx(0.0375)
    assert len(plot.select_one(HoverTool).tooltips) == 10
    points = plot.renderers[-1].data_source.data
    assert max(points["used"]) == pytest.approx(12_386_304 / 2**20)
    stairs = plot.renderers[0].data_source.data
    assert len(stairs["time"]) == len(stairs["used"]) == 79
    # Each value holds until the next event.
    assert stairs["used"][:3].tolist() == [points["used"][0], points["used"][0], points["used"][1]]
    assert stairs["time"][:3].tolist() == [0.0, 1.0, 1.0]
    assert figures.memory(fake.run(), whole_device=True).y_range.end == pytest.approx(2**14)


def test_memory_of_an_allocator_that_states_less_draws_what_there_is():
    rows = fake.run().memory_timeline
    unknown = pd.array([pd.NA] * len(rows), "Int64")
    plot = figures.memory(
        fake.run(
            memory_timeline=rows.assign(
                stack_bytes=unknown, free_bytes=unknown, fragmentation=np.nan
            )
        )
    )
    assert not [axis for axis in plot.right if isinstance(axis, LinearAxis)]
    assert [item.label.value for item in plot.below[-1].items] == ["Allocated"]
    whole = figures.memory(fake.run())
    assert [item.label.value for item in whole.below[-1].items] == [
        "Stack",
        "Heap",
        "Free",
        "Fragmentation",
    ]


def test_foreign_names_stay_text_in_a_page():
    page = file_html(figures.kernels(fake.run()), INLINE)
    assert fake.HOSTILE not in page


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: figures.steps(fake.run(steps=0)), "no steps"),
        (lambda: figures.kernels(fake.run(device=False)), "no kernel ran"),
        (
            lambda: figures.memory(fake.run(), "GPU_7"),
            "no allocator 'GPU_7' in this run; it has GPU_0_bfc, cpu",
        ),
        (
            lambda: figures.memory(fake.run(memory_summary=fake.run().memory_summary.head(0))),
            "no allocations",
        ),
        (lambda: figures.ops(fake.run(ops=fake.run().ops.head(0))), "no ops"),
    ],
)
def test_what_cannot_be_drawn_says_why(draw, words):
    with pytest.raises(NbprofError, match=words):
        draw()


def test_without_bokeh_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(NbprofError, match="pip install"):
        figures.steps(fake.run())


def test_a_part_that_is_unknown_in_some_bars_is_unknown_in_their_cards_and_does_not_end_the_stack():
    data, said = stacked_columns({"input": np.array([1.0, np.nan]), "output": np.array([2.0, 3.0])})
    assert said == {"input": "input_known", "output": "output"}
    assert data["input"].tolist() == [1.0, 0.0]
    assert np.isnan(data["input_known"]).tolist() == [False, True]
    assert sorted(data) == ["input", "input_known", "output"]
