"""The Pods view: four workers of which the last is late, then more workers and steps than a report
can carry.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from bokeh.models import HoverTool

from nbprof.activity.unit import MARKED
from nbprof.analysis.steps import pods as analysis
from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.display.categories import CATEGORIES
from nbprof.profiles.load import load
from nbprof.profiles.report.static import static_html
from nbprof.tools import dashboard as payload
from nbprof.tools.pods import figure as figures
from nbprof.tools.pods import findings, static
from nbprof.tools.pods import heat as heat_map
from nbprof.tools.pods import payload as pods
from nbprof.tools.pods.grid import Grid
from nbprof.tools.steps import payload as steps
from tests.support import pods as jobs
from tests.support.profiles import real
from tests.support.replaced import put, shaped
from tests.views import fake

INPUT = [category.key for category in CATEGORIES].index("input") + 1


def frame(steps=6, workers=4, late=3):
    """2 ms of compute and 1 ms of input a step; worker `late` waits 3 ms more from step 2 on. The
    first step takes 10 times as long.
    """
    step, worker = np.repeat(np.arange(steps), workers), np.tile(np.arange(workers), steps)
    compute = np.where(step == 0, 20.0, 2.0)
    wait = np.where((step > 1) & (worker == late), 4.0, 1.0)
    names = [f"host-{w}" for w in worker]
    table = pd.DataFrame(
        {
            "step": step + 100,
            "worker": names,
            "step_time_ms": compute + wait,
            "start_ms": step * 10.0 + worker,
        }
    )
    for category in CATEGORIES:
        table[category.column] = np.nan
    table["device_compute_ms"], table["input_ms"], table["compile_ms"] = compute, wait, 0.0
    return table.assign(bottleneck=analysis.bottleneck(table), name="train", host=names, group=step)


def run(table):
    made = fake.run()
    kinds = {"warmup": table["step"] == 100, "counted": table["step"] != 100, "kind": "train"}
    put(made, "steps", shaped(made, "steps", table.assign(**kinds)))
    put(made, "pods", shaped(made, "pods", table))
    put(made, "pods_summary", analysis.summary(table))
    return made


def test_each_step_names_its_slowest_worker_and_what_holds_it_up():
    part = pods.payload(run(frame()))
    assert part["workers"] == ["host-0", "host-1", "host-2", "host-3"]
    assert part["step"].tolist() == [100, 101, 102, 103, 104, 105]
    assert part["slowest"].tolist()[2:] == [3, 3, 3, 3]
    assert part["slowest_ms"].tolist() == [21, 3, 6, 6, 6, 6]
    assert part["fastest_ms"].tolist() == [21, 3, 3, 3, 3, 3]
    assert part["median_ms"].tolist() == [21, 3, 3, 3, 3, 3]
    assert part["spread_percent"].tolist() == [0, 0, 50, 50, 50, 50]
    assert part["cause"].tolist() == [0, 0, INPUT, INPUT, INPUT, INPUT]
    assert part["cause_ms"].tolist()[2:] == [3, 3, 3, 3]
    assert part["start_ms"].tolist()[2:] == [23, 33, 43, 53]
    assert part["warmup"].tolist() == [1, 0, 0, 0, 0, 0]
    assert "host-3** is the slowest in **4 of 5" in part["statement"]
    assert "40.0%" in part["statement"]


def test_bars_are_those_of_the_frame_by_step_and_worker():
    table = frame()
    part = pods.payload(
        run(table.sample(frac=1, random_state=3).sort_values("step", kind="stable"))
    )
    assert part["first"].tolist() == [0, 4, 8, 12, 16, 20, 24]
    assert part["worker"].tolist() == [0, 1, 2, 3] * 6
    assert part["time_ms"].tolist() == table["step_time_ms"].tolist()
    assert part["categories"]["input"].tolist() == table["input_ms"].tolist()
    assert "output" not in part["categories"], "never recorded"
    assert [head["key"] for head in part["heads"]] == [
        "worker",
        "step_time_ms",
        "device_compute_ms",
        "input_ms",
        "compile_ms",
        "bottleneck",
    ]


def test_the_row_of_a_worker_leaves_warm_up_out():
    table = pods.payload(run(frame()))["table"]
    data = table["data"]
    assert data["worker"]["values"][data["worker"]["codes"][0]] == "host-3"
    assert data["worker_steps"].tolist() == [5, 5, 5, 5]
    assert data["mean_step_ms"].tolist() == pytest.approx([5.4, 3, 3, 3])
    assert data["over_median_percent"].tolist() == pytest.approx([80, 0, 0, 0])
    assert data["input_ms"].tolist() == pytest.approx([3.4, 1, 1, 1])
    assert data["times_slowest"].tolist() == [4, 0, 0, 0], "in the other step all take as long"


def test_workers_are_in_natural_order_and_one_that_is_missing_stays_missing():
    table = frame(steps=2, workers=12)
    part = pods.payload(run(table[~((table["worker"] == "host-10") & (table["step"] == 101))]))
    assert part["workers"][2:4] == ["host-2", "host-3"]
    assert part["workers"][-1] == "host-11"
    assert part["count"].tolist() == [12, 11]
    assert part["first"].tolist() == [0, 12, 23]
    assert 10 not in part["worker"][12:].tolist()
    assert np.isfinite(part["time_ms"]).all()


def test_a_large_pod_keeps_the_slowest_and_the_fastest_of_each_step_and_says_so():
    rng = np.random.default_rng(5)
    table = frame(steps=1000, workers=256)
    table["device_compute_ms"] = rng.random(len(table))
    table["step_time_ms"] = table["device_compute_ms"] + table["input_ms"]
    part = pods.payload(run(table))
    bars = np.diff(part["first"].astype(int))
    assert set(bars) == {pods.MOST_BARS // 1000}
    for step in (0, 1, 777):
        mine = part["time_ms"][part["first"][step] : part["first"][step + 1]]
        all_of_it = np.sort(table.loc[table["step"] == 100 + step, "step_time_ms"])
        assert np.sort(mine) == pytest.approx([all_of_it[0], *all_of_it[-(bars[step] - 1) :]])
    assert "the slowest workers and the fastest one of each step" in part["left_out"]
    assert part["median_ms"][1] == pytest.approx(
        np.median(table.loc[table["step"] == 101, "step_time_ms"])
    )
    assert part["table"]["rows"] == 256
    assert len(codec.pack({"pods": part})) < 800_000


def cells(heat, key):
    """ms of a layer by worker and column."""
    layer = next(layer for layer in heat["layers"] if layer["key"] == key)
    shape = (len(heat["rows"]), len(heat["first"]))
    return (
        np.where(layer["codes"] == heat_map.MISSING, np.nan, layer["codes"].astype(float)).reshape(
            shape
        )
        * heat["unit_ms"]
    )


def test_the_heat_map_has_every_worker_in_every_step():
    table = frame(steps=5, workers=12)
    table.loc[table["step"] > 100, "step_time_ms"] += np.random.default_rng(1).random(
        (table["step"] > 100).sum()
    )
    table = table[~((table["worker"] == "host-10") & (table["step"] == 101))]
    part = pods.payload(run(table))
    heat = part["heat"]
    exact = (
        table.pivot_table(index="worker", columns="step", values="step_time_ms")
        .loc[part["workers"]]
        .to_numpy()
    )
    assert (np.abs(cells(heat, "step_time") - exact) <= heat["unit_ms"] / 2 + 1e-6)[
        ~np.isnan(exact)
    ].all()
    assert (heat["unit_ms"] <= np.nanmedian(exact, axis=0) / 300).all()
    assert np.isnan(cells(heat, "step_time")).tolist() == np.isnan(exact).tolist()
    assert heat["first"].tolist() == heat["last"].tolist() == [100, 101, 102, 103, 104]
    assert heat["warmup"].tolist() == [1, 0, 0, 0, 0]
    assert [layer["key"] for layer in heat["layers"]] == [
        "step_time",
        "device_compute",
        "input",
        "compile",
    ]
    assert heat["layers"][0]["median_ms"].tolist() == pytest.approx(
        np.nanmedian(exact, axis=0).tolist()
    )
    assert int(np.argmax(heat["layers"][2]["mean_percent"])) == 3, "the one that waits for input"
    assert heat["note"] == ""


def test_steps_share_a_column_of_a_long_run_in_which_a_slow_one_is_not_lost():
    table = frame(steps=100, workers=4, late=9)
    table.loc[
        (table["step"] == 177) & (table["worker"] == "host-2"), ["step_time_ms", "input_ms"]
    ] += 30
    heat = heat_map.payload(Grid(run(table)), most_cells=4 * 15)
    assert heat["first"].tolist()[:2] == [100, 107]
    assert heat["last"].tolist()[-1] == 199
    column = int(np.flatnonzero((heat["first"] <= 177) & (heat["last"] >= 177))[0])
    assert cells(heat, "step_time")[2, column] == pytest.approx(33)
    assert cells(heat, "input")[2, column] == pytest.approx(31), "of the same step"
    assert heat["first"][column] + heat["at"].reshape(4, -1)[2, column] == 177
    assert "A column is 7 steps" in heat["note"]


def test_the_heat_map_of_a_thousand_workers_is_small_and_says_what_it_leaves_out():
    rng = np.random.default_rng(5)
    table = frame(steps=64, workers=1024)
    table["device_compute_ms"] = 200 * (1 + rng.normal(0, 0.03, len(table)))
    table["compile_ms"], table["start_ms"] = rng.random(len(table)), table["step"] * 10.0
    table["step_time_ms"] = table["device_compute_ms"] + table["input_ms"] + table["compile_ms"]
    part = pods.payload(run(table))
    assert len(part["heat"]["first"]) == 64
    assert len(codec.to_text(codec.pack({"heat": part["heat"]}))) < 250_000
    assert len(codec.to_text(codec.pack({"pods": part}))) < 600_000
    assert [layer["key"] for layer in part["heat"]["layers"]] == ["step_time", "device_compute"]
    assert "2 categories in which workers differ least are left out" in part["heat"]["note"]
    few = heat_map.binned(Grid(run(frame(steps=3, workers=9, late=7))), most_rows=2)
    assert few.rows.tolist() == [0, 7], "the slowest"


def test_equal_workers_have_no_colour_and_those_that_wait_for_a_slow_one_show_at_what_it_is_slow():
    equal = pods.payload(run(frame(late=9)))["heat"]
    assert [layer["mean_percent"].tolist() for layer in equal["layers"]] == [[0.0] * 4] * 4
    assert {layer["limit_percent"] for layer in equal["layers"]} == {5.0}
    assert equal["show"] == "step_time"
    table = frame(steps=10)
    table["device_collectives_ms"] = (
        table.groupby("step")["step_time_ms"].transform("max") - table["step_time_ms"]
    )
    table["step_time_ms"] += table["device_collectives_ms"]
    assert pods.payload(run(table))["heat"]["show"] == "input"


def test_more_steps_than_fit_are_those_with_the_largest_spread(monkeypatch):
    monkeypatch.setattr(pods, "MOST_STEPS", 3)
    part = pods.payload(run(frame()))
    assert part["step"].tolist() == [102, 103, 104]
    assert "3 of 6 steps" in part["left_out"]


def test_the_tab_is_there_with_several_workers_and_by_name():
    one, many = payload.dashboard(fake.run()), payload.dashboard(run(frame()))
    assert "pods" not in [tab["id"] for tab in one["meta"]["tabs"]]
    assert one["pods"]["empty"]["title"] == "One worker in this run"
    tab = next(tab for tab in many["meta"]["tabs"] if tab["id"] == "pods")
    assert tab["count"] == 4
    assert [tab["id"] for tab in payload.select(one, ["pods"])["meta"]["tabs"]] == ["pods"]
    assert [tab["id"] for tab in payload.dashboard(fake.run(), ["pods"])["meta"]["tabs"]] == [
        "pods"
    ]
    assert payload.dashboard(fake.run(steps=0))["pods"]["empty"]["title"] == "No steps to compare"


def test_workers_that_take_the_same_time_have_no_slowest():
    assert (
        pods.payload(run(frame(late=9)))["statement"]
        == "All workers take the same time in every step."
    )
    one = frame(late=9)
    assert (
        pods.payload(run(one[one["step"] == 101]))["statement"]
        == "All workers take the same time in the only step."
    )
    assert pods.payload(run(one))["table"]["data"]["times_slowest"].tolist() == [0, 0, 0, 0]


def test_of_several_that_take_longest_none_is_called_the_slowest():
    table = frame()
    both = (table["step"] > 101) & table["worker"].isin(["host-2", "host-3"])
    table.loc[both, ["step_time_ms", "input_ms"]] = [6.0, 4.0]
    part = pods.payload(run(table))
    assert part["table"]["data"]["times_slowest"].tolist() == [0, 0, 0, 0]
    assert part["statement"].startswith(
        "In each step, several workers are equally slow. The fastest takes **40.0%** less"
    )
    part = pods.payload(run(table[table["step"] == 102]))
    assert (
        part["statement"] == "Several workers are equally slow. The fastest takes **50.0%** less."
    )


def test_workers_of_steps_nobody_shares_have_no_spread():
    table = frame(steps=2, workers=2)
    alone = table[(table["step"] - 100) == table["worker"].str[-1].astype(int)]
    part = pods.payload(run(alone))
    assert np.isnan(part["spread_percent"]).all()
    assert "No step was recorded by more than one worker" in part["statement"]


def test_the_static_report_lists_the_workers():
    html = static_html(payload.dashboard(run(frame())))
    assert "Workers" in html
    assert "host-3" in html
    assert "80.0%" in html
    assert "Workers" not in static_html(payload.dashboard(fake.run()))


def test_the_figure_stacks_the_workers_of_the_widest_step():
    plot = figures.pods(run(frame()))
    assert plot.title.text == "Step 102"
    assert list(plot.y_range.factors) == ["host-3", "host-2", "host-1", "host-0"]
    data = plot.renderers[0].data_source.data
    assert sum(data[bar.name] for bar in plot.renderers) == pytest.approx(data["total"])
    assert dict(plot.select_one(HoverTool).tooltips)["Input"] == "@input{custom}"
    assert figures.pods(run(frame()), 105).title.text == "Step 105"
    with pytest.raises(NbprofError, match="no step 7"):
        figures.pods(run(frame()), 7)
    with pytest.raises(NbprofError, match="no steps"):
        figures.pods(fake.run(steps=0))


def test_the_statement_counts_the_steps_that_the_table_counts():
    p = load(real("jax/tpu-v6e-inference"))
    part = pods.payload(p.run)
    assert "**tpu_inference_2:2** is the slowest in **55 of 99** steps." in part["statement"]
    assert int(np.asarray(part["table"]["data"]["times_slowest"]).sum()) == 99


def test_a_straggler_is_named_with_what_it_costs_and_why(tmp_path):
    planted = jobs.write(tmp_path, 6, 12, plant="input", seed=1)
    p = load(tmp_path)
    part = pods.payload(p.run)
    name = f"rank {planted.ranks[0]}"
    first, *others = part["findings"]
    assert first.startswith(f"**{name}** delays the others: its own work in a step takes **")
    assert "in 12 of 12 steps. Input: " in first
    assert "the others wait " in first
    assert any(text.startswith("If communication took no time") for text in others)
    assert part["heat"]["show"] == "input"
    assert [head["key"] for head in part["stragglers"]["columns"]][:3] == [
        "host",
        "straggler",
        "own_ms",
    ]
    assert part["stragglers"]["data"]["straggler"].tolist() == [1, 0, 0, 0, 0, 0]
    assert part["outliers"]["rows"] >= 1
    # The others wait, so that the steps of all take the same time: no contradiction to what was
    # said.
    assert part["statement"].startswith(
        "With waiting included, no worker is the slowest in most steps"
    )
    assert f"<b>{name}</b> delays the others" in static.html(SimpleNamespace(pods=part))
    assert f"\n{name} delays the others: " in str(p)


def test_a_worker_that_is_barely_slower_is_named_with_how_little_it_is():
    """Rank 1 is the slowest of three in all of 20 steps, by 0.04 ms of 10."""
    ranks = pd.DataFrame(
        {
            "host": ["a", "b", "c"],
            "device": pd.array([pd.NA] * 3, "Int64"),
            "steps": 20,
            "slowest_in": [0, 20, 0],
            "chance": [1.0, 1e-8, 1.0],
        }
    ).assign(excess_ms=[-0.02, 0.04, -0.02])
    said = findings._barely_slow(ranks, 10.0, False, MARKED)
    assert said == [
        "Beyond chance, but on average only 0.04 ms behind the median of the others: **b**, the slowest in 20 of 20 steps."
    ]
    # By 1 % and more it is a straggler, or the clocks are not known that well.
    assert findings._barely_slow(ranks.assign(excess_ms=0.2), 10.0, False, MARKED) == []
    assert findings._barely_slow(ranks.assign(chance=0.5), 10.0, False, MARKED) == []


def test_nobody_is_blamed_for_noise(tmp_path):
    jobs.write(tmp_path, 6, 12, seed=2)
    part = pods.payload(load(tmp_path).run)
    assert part["findings"][0].startswith("No straggler found: ")
    assert part["heat"]["show"] == "step_time"
    assert "outliers" not in part


def test_of_very_many_hosts_a_report_has_the_mean_of_each_step(monkeypatch):
    monkeypatch.setattr(steps, "MOST_ROWS", 20)
    part = steps.payload(run(frame()))
    assert part["step"].tolist() == [100, 101, 102, 103, 104, 105]
    assert part["step_time_ms"].tolist() == pytest.approx([21, 3, 3.75, 3.75, 3.75, 3.75])
    assert part["categories"]["input"].tolist() == pytest.approx([1, 1, 1.75, 1.75, 1.75, 1.75])
    assert part["start_ms"].tolist() == [0, 10, 20, 30, 40, 50]
    assert part["warmup"].tolist() == [1, 0, 0, 0, 0, 0]
    assert part["hosts"] == []
    assert "host" not in part
    assert part["left_out"].endswith("Each step is the mean of 4 hosts.")
