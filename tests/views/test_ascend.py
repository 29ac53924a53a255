"""The tab "Ascend": what it sends to the page, what it says of what was not recorded, its figures
and its tables in a notebook.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bokeh import models

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.profiles import load as profiles
from nbprof.profiles.report import static
from nbprof.tools import dashboard as payload
from nbprof.tools.ascend import figures as ascend_figures
from nbprof.tools.ascend import html as ascend_html
from nbprof.tools.ascend import payload as ascend
from nbprof.tools.ascend import static as ascend_static
from tests.support.ascend import run, steps, table, tasks
from tests.support.ascend_story import files, write
from tests.views import fake


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> profiles.Profile:
    return profiles.read(write(tmp_path_factory.mktemp("npu")))


def sections(run: Any) -> dict[str, dict[str, Any]]:
    return {part["id"]: part for part in ascend.payload(run)["sections"]}


def test_the_tab_is_there_where_a_profiler_of_ascend_wrote_tables(story: profiles.Profile) -> None:
    shown = [tab["id"] for tab in payload.dashboard(story.run)["meta"]["tabs"]]
    assert shown.index("ascend") < shown.index("memory")
    other = fake.run()
    assert "ascend" not in [tab["id"] for tab in payload.dashboard(other)["meta"]["tabs"]]
    # One that is asked for says why it is empty.
    asked = payload.dashboard(other, ["ascend"])
    assert [tab["id"] for tab in asked["meta"]["tabs"]] == ["ascend"]
    assert asked["ascend"]["empty"]["title"] == "No tables from Ascend's profiler"
    assert set(asked["ascend"]) == set(ascend.nothing())


def test_all_of_it_fits_into_the_container_and_comes_back(story: profiles.Profile) -> None:
    part = ascend.payload(story.run)
    back = codec.unpack(codec.pack(part))
    assert back["verdict"] == part["verdict"]
    assert part["verdict"]["bound"] == "input"
    (group,) = back["iterations"]
    made = group["steps"]
    assert group["label"] == "device 0, model 11"
    np.testing.assert_array_equal(made["step"], np.arange(1, 13))
    assert (made["noun"], made["warmup"].tolist()) == ("iteration", [1, 1] + [0] * 10)
    total = sum(np.asarray(values) for values in made["categories"].values())
    # All but the first, whose gap is not known.
    np.testing.assert_allclose(total[1:], made["step_time_ms"][1:], rtol=1e-6)
    assert list(made["labels"].values()) == [
        "Data Aug Bound",
        "FP to BP Time",
        "All-reduce after BP",
        "Update",
    ]
    assert [figure["label"] for figure in back["figures"]][:2] == ["Iteration", "Data Aug Bound"]


def test_tables_have_what_was_recorded_and_no_empty_columns(story: profiles.Profile) -> None:
    parts = sections(story.run)
    assert all(part["missing"] == "" and part["table"]["rows"] for part in parts.values())
    for part in parts.values():
        heads = part["table"]["columns"]
        assert all(head["help"] for head in heads)
        assert {head["key"] for head in heads} <= set(part["table"]["data"])
    keys = [head["key"] for head in parts["pmu_types"]["table"]["columns"]]
    assert "mte2_fraction" in keys
    # Counters of other groups, and the one device there is.
    assert not {"cache_hit_fraction", "read_bytes_per_second", "device", "host"} & set(keys)
    types = parts["op_types"]["table"]
    assert float(np.sum(types["data"]["fraction"])) == pytest.approx(100.0, abs=1e-3)
    assert float(np.sum(parts["cores"]["table"]["data"]["fraction"])) == pytest.approx(
        100.0, abs=1e-3
    )
    ops = parts["ops"]["table"]["data"]
    longest = story.ascend.ops.frame.sort_values("duration_us").iloc[-1]
    assert ops["_at_ms"][0] == pytest.approx(longest["start_ms"], abs=1e-6)


def test_what_was_not_recorded_says_how_to_record_it() -> None:
    made = run(
        {
            "api_statistic": [
                table(
                    "api_statistic",
                    device=None,
                    level=["acl"],
                    api_name=["a"],
                    time_us=[1.0],
                    count=[1],
                )
            ]
        }
    )
    part = ascend.payload(made)
    assert part["empty"] is None
    assert "training_trace" in part["iterations_missing"]
    told = {one["id"]: one["missing"] for one in part["sections"]}
    assert told.pop("api") == ""
    assert all(
        "record" in text
        or "it exists only for graphs" in text
        or "unknown" in text
        or "known only by" in text
        for text in told.values()
    )
    assert codec.pack(part)


def test_long_tables_are_cut_and_say_so() -> None:
    rows = [(f"op{i}", "A", "AI_CORE", 1, i, 1.0 + i) for i in range(ascend.MOST_ROWS["ops"] + 5)]
    part = sections(run({"op_summary": [table("op_summary", **tasks(rows))]}))["ops"]
    assert part["table"]["rows"] == ascend.MOST_ROWS["ops"]
    assert part["note"] == "5 more rows: p.ascend.ops has all."
    many = run({"step_trace": [table("step_trace", **steps(ascend.MOST_ITERATIONS + 3))]})
    (group,) = ascend.iterations(many)
    assert len(group["steps"]["step"]) == ascend.MOST_ITERATIONS
    assert "3 before those shown" in group["steps"]["left_out"]


def test_single_tasks_are_listed_by_their_length(story: profiles.Profile) -> None:
    part = sections(story.run)["tasks"]
    data, ops = part["table"]["data"], story.ascend.ops.frame
    ops = ops[ops["core"] != "Communication"].sort_values(
        "duration_us", ascending=False, kind="stable"
    )
    count = part["table"]["rows"]
    assert count == min(len(ops), ascend.MOST_ROWS["tasks"])
    np.testing.assert_allclose(data["duration_us"], ops["duration_us"].head(count), rtol=1e-6)
    np.testing.assert_allclose(data["_at_ms"], ops["start_ms"].head(count), atol=1e-6)
    assert [data["op"]["values"][code] for code in data["op"]["codes"][:5]] == ops["op"].head(
        5
    ).tolist()
    assert (
        story.ascend.ops.longest(3)["duration_us"].tolist() == ops["duration_us"].head(3).tolist()
    )
    rows = [("collective", "hcom", "COMMUNICATION", 1, 0, 9e6), ("op", "A", "AI_CORE", 1, 1, 5.0)]
    alone = sections(run({"op_summary": [table("op_summary", **tasks(rows))]}))["tasks"]
    assert alone["table"]["data"]["op"]["values"] == ["op"]


def test_without_an_all_reduce_the_refresh_is_one_part() -> None:
    (group,) = ascend.iterations(run({"step_trace": [table("step_trace", **steps(reduce=None))]}))
    assert list(group["steps"]["labels"].values()) == [
        "Data Aug Bound",
        "FP to BP Time",
        "Grad Refresh Bound",
    ]


def test_names_in_a_table_are_text() -> None:
    rows = [(fake.HOSTILE, fake.HOSTILE, "AI_CORE", 1, 0, 5.0)]
    made = run({"op_summary": [table("op_summary", **tasks(rows))]})
    for name in ("ops", "op_types"):
        assert "<img" not in ascend_html.html(name, getattr(made.ascend, name), 20, "")
    assert "<img" not in ascend_html.html("iterations", made.ascend.iterations, 20, "<img>")


def test_a_part_displays_as_its_table_and_all_of_it_as_the_tab(story: profiles.Profile) -> None:
    face = story.ascend
    for name in ("iterations", "op_types", "ops", "pmu", "waits", "fusion", "api", "rules"):
        part = getattr(face, name)
        shown = part._repr_mimebundle_()
        assert "<table>" in shown["text/html"], name
        assert part.missing == ""
        assert "rows" in shown["text/plain"]
    data, _ = face._repr_mimebundle_()
    # No picture: it would be of the steps, and is larger than all else.
    assert set(data) == {"application/vnd.nbprof.v1+json", "text/html", "text/plain"}
    assert "Where an iteration goes" in data["text/html"]
    assert repr(face).startswith("<nbprof ascend: Input-bound: 47% of an iteration")
    assert face.ops.by("scope")["tasks"].sum() == len(face.ops.frame)
    assert face.table("step_trace")["iteration_id"].tolist() == list(range(1, 13))
    with pytest.raises(NbprofError, match="column must be one of"):
        face.ops.by("colour")
    with pytest.raises(NbprofError, match="it has 'api_statistic'"):
        face.table("hbm")


def test_figures(story: profiles.Profile) -> None:
    plot = story.ascend.iterations.figure()
    bars = [r for r in plot.renderers if isinstance(r.glyph, models.VBar)]
    assert len(bars) == 4
    data = bars[0].data_source.data
    np.testing.assert_allclose(
        sum(data[name][1:] for name, _, _ in ascend.PARTS), data["total"][1:], rtol=1e-9
    )
    types = story.ascend.op_types.figure(most=3)
    assert len(types.y_range.factors) == 3
    heat = story.ascend.pmu.figure()
    assert set(heat.renderers[0].data_source.data["pipe"]) == {
        "cube",
        "vector",
        "scalar",
        "MTE1",
        "MTE2",
        "MTE3",
        "fixpipe",
    }
    with pytest.raises(NbprofError, match="iterations of device 0 model 11"):
        story.ascend.iterations.figure(device=3)
    nothing = run({})
    for draw in (ascend_figures.iterations, ascend_figures.op_types, ascend_figures.pmu):
        with pytest.raises(NbprofError, match="The profile has"):
            draw(nothing)


def test_the_story_before_and_after(story: profiles.Profile, tmp_path: Path) -> None:
    fed = profiles.read(write(tmp_path, fed=True)).ascend
    assert (story.ascend.verdict["verdict"], fed.verdict["verdict"]) == (
        "Input-bound",
        "Device-bound",
    )
    assert {"input", "get_next"} <= set(story.ascend.rules.found["rule"])
    assert not {"input", "get_next"} & set(fed.rules.found["rule"])


def test_a_batch_that_is_taken_out_of_the_queue_is_input(story: profiles.Profile) -> None:
    # The AI CPU stands in GetNext, most of it in the Data Aug Bound: the overview says the same as
    # the tab.
    overview = story.run.overview
    assert overview["bound"] == story.ascend.verdict["bound"] == "input"
    shares = story.ascend.iterations.summary["data_aug_fraction"]
    assert overview["input_percent"] == pytest.approx(100 * shares.iloc[0], abs=1.0)


def test_the_packed_folders_are_what_the_story_writes() -> None:
    for fed, name in ((False, "before.zip"), (True, "after.zip")):
        with zipfile.ZipFile(
            Path(__file__).resolve().parents[1] / "data" / "ascend" / name
        ) as archive:
            packed = {
                info.filename.partition("/")[2]: archive.read(info) for info in archive.infolist()
            }
        assert packed == files(fed), "write them anew: python -m tests.support.ascend_story"


def test_the_static_report_has_the_mean_iteration_the_findings_and_the_types(
    story: profiles.Profile,
) -> None:
    html = static.static_html(story.payload())
    assert "On the NPU: Input-bound: 47% of an iteration" in html
    assert "Where an iteration goes" in html
    for text in (
        "Data Aug Bound",
        "Sink the data queue to the device",
        "Conv2DBackpropFilterD",
        "AI CPU",
    ):
        assert text in html
    hostile = run(
        {
            "op_summary": [
                table("op_summary", **tasks([(fake.HOSTILE, fake.HOSTILE, "AI_CORE", 1, 0, 5.0)]))
            ]
        }
    )
    part = ascend.payload(hostile)
    assert "<img" not in ascend_static.html(SimpleNamespace(ascend=part))
    assert ascend_static.html(SimpleNamespace(ascend=ascend.nothing())) == ""


def test_kernels_of_an_npu_are_told_in_its_words(story: profiles.Profile) -> None:
    data = payload.dashboard(story.run)
    assert {tab["id"]: tab["label"] for tab in data["meta"]["tabs"]}["kernels"] == "NPU kernels"
    part = data["kernels"]
    heads = {head["key"]: head["label"] for head in part["table"]["columns"]}
    assert (heads["op_tensor_core_eligible"], heads["grid"]) == ("Cube elig.", "Blocks")
    assert not {"registers", "shared_bytes", "block", "occupancy_percent"} & set(heads)
    labels = {one["key"]: one["label"] for one in part["figures"]}
    assert (labels["tensor_cores_used"], labels["in_use"]) == ("Cube used", "NPU in use")
    told = [text for head in part["table"]["columns"] for _, text in head.items()] + [
        value for one in part["figures"] for _, value in one.items()
    ]
    assert not [
        text for text in told if isinstance(text, str) and ("GPU" in text or "TensorCore" in text)
    ]
    assert "Top NPU kernels" in static.static_html(data)
    assert not [one for one in data["overview"]["advice"] if "GPU" in one["link"]]


def test_the_ring_puts_together_what_runs_on_several_kinds_of_cores():
    types = {
        "op_type": ["Cast", "Conv2D", "Cast"],
        "core_type": ["AI_CORE", "AI_CORE", "AI_CPU"],
        "total_us": [10.0, 40.0, 50.0],
    }
    made = run({"op_statistic": [table("op_statistic", **types, count=[1, 1, 1])]})
    ring = ascend.payload(made)["ring"]
    assert (ring["ms"], [(part["label"], part["percent"]) for part in ring["parts"]]) == (
        0.1,
        [("Cast", 60.0), ("Conv2D", 40.0)],
    )
