"""The tab of the memory of compiled programs: its types, and bounded whatever the profile has."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.tools import dashboard as payload
from nbprof.tools.common import MOST_BOXES
from nbprof.tools.memory_viewer import payload as memory_viewer
from nbprof.tools.memory_viewer import static
from tests.support import hlo
from tests.support.build import profile
from tests.support.hlo_memory import KIB, large, small, without_assignment
from tests.support.payloads import check
from tests.support.saved import payload_of
from tests.support.xspace import gpu_run, xspace
from tests.views.fake import HOSTILE


def shown(tmp_path, **programs):
    return profile(
        tmp_path,
        xspace(
            hlo.metadata_plane(
                **{name: (i + 1, data) for i, (name, data) in enumerate(programs.items())}
            )
        ),
    )


def test_the_part_has_its_declared_types(tmp_path):
    part = memory_viewer.payload(
        shown(tmp_path, **{"jit_step(8)": small(), "bare": without_assignment()}).run
    )
    check(part, "MemoryViewer")
    (module,) = part["modules"]
    for space in module["spaces"]:
        assert set(space["buffers"]["data"]) == {
            column["key"] for column in space["buffers"]["columns"]
        }
    assert [space["space"] for space in module["spaces"]] == [0, 1]
    assert part["left_out"] == "1 program has no buffer assignment, so their memory is unknown."


def test_of_several_hosts_the_only_one_with_a_program_is_named(tmp_path):
    other, own = (
        ("jit_step(8)", (1, small(allocated=4 * KIB))),
        ("jit_own(9)", (2, small("jit_own", 9))),
    )
    for host, programs in (
        ("a", [("jit_step(8)", (1, small())), own]),
        ("b", [("jit_step(8)", (1, small()))]),
        ("c", [other]),
    ):
        (tmp_path / f"{host}.xplane.pb").write_bytes(
            xspace(hlo.metadata_plane(**dict(programs)), hostname=host)
        )
    modules = memory_viewer.payload(nbprof.load(tmp_path).run)["modules"]
    # The name of the one on c says it.
    assert {module["name"]: (module["hosts"], module["host"]) for module in modules} == {
        "jit_step(8)": (2, ""),
        "jit_own(9)": (1, "a"),
        "jit_step(8) on c": (1, ""),
    }


def test_what_is_drawn_is_what_the_frames_have(tmp_path):
    p = shown(tmp_path, **{"jit_step(8)": small()})
    space = memory_viewer.payload(p.run)["modules"][0]["spaces"][0]
    frame = p.memory_viewer["jit_step(8)"].timeline
    assert space["allocated_bytes"].tolist() == frame["allocated_bytes"].tolist()
    assert space["unpadded"].tolist() == frame["unpadded_bytes"].tolist()
    assert space["position"].values.tolist() == frame["position"].tolist()
    # The peak's point is the row that has it.
    assert space["allocated_bytes"][space["peak"]] == space["peak_bytes"] == 16 * KIB
    assert space["buffers"]["data"]["size_bytes"].tolist() == [4 * KIB, 8 * KIB, 4 * KIB]
    figures = {figure["key"]: figure for figure in space["figures"]}
    assert figures["peak"]["note"] == "at point 2 of 3"
    assert figures["peak_unpadded"]["note"] == "padding: 30.5% of the peak"


def test_a_large_program_is_thinned_to_what_a_screen_shows(tmp_path):
    p = shown(tmp_path, large=large(8000))
    whole = p.memory_viewer["large"]
    part = memory_viewer.payload(p.run)
    space = part["modules"][0]["spaces"][0]
    assert space["points"] == len(whole.timeline) > 10_000
    assert space["rows"] == len(space["position"].values) <= 2 * MOST_BOXES + 3
    kept = space["position"].values
    assert np.array_equal(
        whole.timeline["allocated_bytes"].to_numpy()[kept], space["allocated_bytes"]
    )
    assert kept[0] == 0
    assert kept[-1] == space["points"] - 1
    assert space["peak"] in kept
    assert space["allocated_bytes"].max() == whole.peak_bytes
    assert space["buffers"]["rows"] == memory_viewer.MOST_BUFFERS
    told = space["buffers"]["data"]["size_bytes"].astype(np.float64).sum()
    assert space["rest_count"] == len(whole.at_peak) - memory_viewer.MOST_BUFFERS
    assert told + space["rest_bytes"] == whole.peak_bytes == whole.at_peak["size_bytes"].sum()
    smallest = space["buffers"]["data"]["size_bytes"].min()
    assert (whole.at_peak["size_bytes"] > smallest).sum() <= memory_viewer.MOST_BUFFERS, (
        "the largest are told"
    )
    starts = space["buffers"]["data"]["start"].astype(np.int64)
    assert (np.diff(starts) >= 0).all(), "in program order"
    assert len(codec.pack(part)) < 40_000


def test_many_programs_share_a_budget_and_the_rest_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_viewer, "ALL_MODULES", 3)
    sizes = {f"jit_{i}({i})": small(f"jit_{i}", i, allocated=(i + 1) * KIB) for i in range(9)}
    part = memory_viewer.payload(shown(tmp_path, **sizes).run)
    assert [module["name"] for module in part["modules"]] == ["jit_8(8)", "jit_7(7)", "jit_6(6)"]
    assert (
        part["left_out"]
        == "6 more programs with peaks of at most 14.0 KiB: p.memory_viewer has all of them."
    )
    monkeypatch.setattr(memory_viewer, "ALL_MODULES", 40)
    monkeypatch.setattr(memory_viewer, "ALL_BUFFERS", 7)
    (tmp_path / "again").mkdir()
    part = memory_viewer.payload(shown(tmp_path / "again", **sizes).run)
    assert len(part["modules"]) == 2, "four buffers each"


@pytest.mark.parametrize("count", [0, 1, 2, 999, 1000, 1001, 5000])
def test_thinning_keeps_the_ends_the_peak_and_every_extreme(count):
    values = np.random.default_rng(count).integers(0, 50, count)
    rows = memory_viewer.sample(values, [17], 100)
    assert np.array_equal(rows, np.unique(rows))
    if count <= 200:
        assert len(rows) == count
        return
    assert len(rows) <= 203
    assert {0, 17, count - 1} <= set(rows.tolist())
    assert values[rows].max() == values.max()
    assert values[rows].min() == values.min()


def test_the_tab_is_there_only_where_a_program_has_a_plan(tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "gpu").mkdir()
    with_plan = shown(tmp_path, **{"jit_step(8)": small()})
    bare = shown(tmp_path / "bare", bare=without_assignment(), cut=small()[:-3])
    gpu = profile(tmp_path / "gpu", gpu_run())
    tabs = [
        [tab["id"] for tab in payload.dashboard(p.run)["meta"]["tabs"]]
        for p in (with_plan, bare, gpu)
    ]
    assert ["memory_viewer" in each for each in tabs] == [True, False, False]
    asked = payload.dashboard(bare.run, views=["memory_viewer"])
    assert [tab["label"] for tab in asked["meta"]["tabs"]] == ["Program memory"]
    assert asked["memory_viewer"]["empty"]["text"] == (
        "1 program has no buffer assignment, so their memory is unknown. 1 program is damaged in the file; see p.memory_viewer.modules."
    )
    assert "no compiled XLA program" in memory_viewer.payload(gpu.run)["empty"]["text"]
    assert payload.dashboard(with_plan.run, views=["trace"])["memory_viewer"]["modules"] == []


def test_names_of_programs_are_foreign_text(tmp_path):
    part = memory_viewer.payload(
        shown(tmp_path, **{HOSTILE: small(HOSTILE), "long" * 1000: small()}).run
    )
    names = [module["name"] for module in part["modules"]]
    assert HOSTILE in names
    assert max(map(len, names)) <= 400
    assert codec.unpack(codec.pack(part))["modules"][0]["name"] == names[0]
    html = static.html(SimpleNamespace(memory_viewer=part))
    assert "<img" not in html
    assert "30.5%" in html
    assert static.html(SimpleNamespace(memory_viewer=memory_viewer.nothing())) == ""


def test_a_program_whose_peak_is_nothing_can_be_drawn(tmp_path):
    empty = hlo.program("none", hlo.computation("main", ident=1)) + hlo.assignment(
        [], [hlo.allocation(0, 0)], []
    )
    p = shown(tmp_path, none=empty)
    part = memory_viewer.payload(p.run)
    assert part["modules"][0]["spaces"][0]["notes"] == [
        "This program has no temporary buffers here: its buffers are live throughout."
    ]
    assert "peak 0 B" in p.memory_viewer["none"].text()
    codec.pack(part)
    static.html(SimpleNamespace(memory_viewer=part))
    with pytest.raises(NbprofError):
        p.memory_viewer["none"].figure()


def test_a_program_displays_as_the_tab_with_itself_chosen(tmp_path, monkeypatch):
    sizes = {f"jit_{i}({i})": small(f"jit_{i}", i, allocated=(i + 1) * KIB) for i in range(5)}
    p = shown(tmp_path, **sizes)
    monkeypatch.setattr(memory_viewer, "ALL_MODULES", 3)

    def displayed(module):
        data, _ = module._repr_mimebundle_()
        whole = payload_of(data)
        assert [tab["id"] for tab in whole["meta"]["tabs"]] == ["memory_viewer"]
        assert data["text/plain"] == module.text()
        assert "image/png" not in data, "the picture is of the steps"
        part = whole["memory_viewer"]
        at, space = part["chosen"]
        return (
            part["modules"][at]["name"],
            part["modules"][at]["spaces"][space]["space"],
            data["text/html"],
        )

    assert displayed(p.memory_viewer["jit_4"])[:2] == ("jit_4(4)", 0), (
        "the largest comes first anyway"
    )
    assert displayed(p.memory_viewer["jit_3(3)"].in_space(1))[:2] == ("jit_3(3)", 1)
    name, space, html = displayed(p.memory_viewer["jit_0"])
    assert (name, space) == ("jit_0(0)", 0), "left out of a report, and here all the same"
    assert re.search(r"Live at the peak</b> <span[^>]*>jit_0\(0\)<", html)
    assert "chosen" not in p.payload()["memory_viewer"], (
        "the next display of the profile opens with the largest"
    )
    assert len(p.payload()["memory_viewer"]["modules"]) == 3


def test_text_counts_what_it_does_not_name(tmp_path):
    module = shown(tmp_path, large=large(2000)).memory_viewer["large"]
    lines = module.text().splitlines()
    assert len(lines) == 3 + 8 + 1
    assert lines[-1].endswith(f"in {len(module.at_peak) - 8:,} more buffers")
    many = pd.DataFrame({"module": [f"m{i}" for i in range(12)], "peak_bytes": [1024] * 12})
    assert memory_viewer.listed(many).splitlines()[-1] == "  and 2 more"


def test_it_opens_at_the_largest_program_that_ran(tmp_path):
    run = shown(
        tmp_path,
        **{f"jit_{i}({i})": small(f"jit_{i}", i, allocated=(i + 1) * KIB) for i in range(4)},
    ).run
    assert "chosen" not in memory_viewer.payload(run)
    for ran, chosen in (
        (["jit_1(1)", "jit_2(2)"], (1, 0)),
        (["jit_3(3)", "jit_2(2)"], None),
        (["jit_0(0)"], (3, 0)),
    ):
        run.memo.values["programs_hlo"] = run.programs.hlo.reindex(range(len(ran))).assign(
            program=ran
        )
        assert memory_viewer.payload(run).get("chosen") == chosen
