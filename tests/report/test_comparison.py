"""A comparison as a person holds it: two real recordings, a slow run and the mended one, and odd
pairs.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
from pathlib import Path

import pytest

import nbprof
from nbprof.core.errors import NbprofError
from nbprof.profiles.load import last, load
from tests.analysis.test_memory_roles import Training
from tests.support.caching_allocator import LOGGED, MIB, WEIGHT, Allocator, frame, snapshot
from tests.support.kineto import Kineto
from tests.support.kineto import profile as of_torch
from tests.support.payloads import check
from tests.support.profiles import real
from tests.support.saved import payload_of
from tests.support.xspace import gpu_run, training_run

DATA = Path(__file__).resolve().parents[1] / "data" / "xspace"


@pytest.fixture(scope="module")
def mended():
    return nbprof.compare(DATA / "tf_slow.xplane.pb", DATA / "tf_mended.xplane.pb")


def test_a_run_that_is_not_there_is_told_without_how_nbprof_reads(tmp_path):
    with pytest.raises(NbprofError, match="no such file") as told:
        nbprof.compare(tmp_path / "before", tmp_path / "after")
    assert [frame.name for frame in told.traceback][1:] == ["compare"]


def test_the_mended_run_is_faster(mended):
    assert mended.verdict["verdict"][0] == "real"
    after, before = (
        f"{profile.overview['step_time_ms']:.2f} ms" for profile in (mended.after, mended.before)
    )
    assert mended.verdict["headline"][0].endswith(f"× faster ({after} vs {before} per step)")
    assert mended.verdict["detail"][0].startswith("Waiting for input fell from ")
    rows = mended.categories.set_index("category")
    assert rows["change_ms"].idxmin() == "input"
    assert bool(rows.loc["input", "real"])
    # The parts add up to the step, and so do their changes.
    for column in ("before_ms", "after_ms", "change_ms"):
        assert rows[column].drop("step_time").sum() == pytest.approx(rows.loc["step_time", column])
    for profile, column in ((mended.before, "before_ms"), (mended.after, "after_ms")):
        assert rows.loc["step_time", column] == pytest.approx(profile.overview["step_time_ms"])


def test_what_is_new_and_gone_is_named(mended):
    states = mended.ops.set_index("op")["state"]
    assert states["Iterator::Root::Prefetch"] == "new"
    assert states["Iterator::Root::Map"] == "gone"
    assert states["PyFunc"] == "both"


def test_what_became_of_the_advice_is_told(mended):
    rows = mended.findings.set_index("rule")
    assert rows["state"].to_dict() == {
        "map_serial": "gone",
        "prefetch_missing": "gone",
        "input_bottleneck": "new",
    }
    assert rows["before_ms"].dropna().tolist() == pytest.approx(
        mended.before.advice["gain_ms_per_step"].tolist()
    )
    assert rows["after_ms"].dropna().tolist() == pytest.approx(
        mended.after.advice["gain_ms_per_step"].tolist()
    )
    assert rows["gain_is"].to_dict() == {
        "map_serial": "about",
        "prefetch_missing": "up to",
        "input_bottleneck": "about",
    }
    change = mended.verdict["change_ms"][0]
    said = f"2 findings are gone, the largest of which predicted about −{rows['before_ms'].max():.2f} ms per step; the step changed by −{-change:.2f} ms."
    assert said in mended.text()
    assert said.replace("2 f", "**2** f", 1).split(",")[0] in mended.markdown()
    back = nbprof.compare(mended.after, mended.before)
    assert back.findings.set_index("rule")["state"].to_dict() == {
        "input_bottleneck": "gone",
        "map_serial": "new",
        "prefetch_missing": "new",
    }
    other = nbprof.compare(mended.before, DATA / "jax_cpu.xplane.pb")
    assert "gone" in set(other.findings["state"])
    assert other.payload(0)["compare"]["pairs"][0]["findings_text"] == "", (
        "another framework has other rules"
    )
    same = nbprof.compare(mended.before, mended.before)
    assert set(same.findings["state"]) == {"still found"}
    assert same.payload(0)["compare"]["pairs"][0]["findings_text"] == ""


def test_text_and_markdown_say_the_same(mended):
    headline = mended.verdict["headline"][0]
    assert headline in mended.text()
    assert repr(mended) == mended.text()
    assert headline in mended.markdown()
    assert "| `Iterator::Root::Map` (gone) |" in mended.markdown()


def test_it_displays_in_four_ways_and_saves(mended, tmp_path):
    data, _ = mended._repr_mimebundle_()
    payload = payload_of(data)
    assert payload["meta"]["tabs"][-1] == {
        "id": "compare",
        "label": "Compare",
        "count": None,
        "flag": None,
        "note": "tf_slow",
    }
    assert payload["meta"]["tab"] == "compare"
    assert [(pair["before"], pair["after"]) for pair in payload["compare"]["pairs"]] == [
        (0, 1),
        (1, 0),
    ]
    assert payload["compare"]["pairs"][1]["headline"].startswith("2.14× slower")
    assert base64.b64decode(data["image/png"])[:8] == b"\x89PNG\r\n\x1a\n"
    assert mended.verdict["headline"][0] in data["text/html"]
    saved = mended.save(tmp_path / "compare.html").read_text()
    assert mended.verdict["headline"][0] in saved
    with pytest.raises(NbprofError, match="could not be written"):
        mended.save(tmp_path / "none" / "compare.html")


def test_it_has_its_declared_types(mended):
    check(mended.payload(0), "Payload")


def test_tabs_of_the_second_run_can_be_left_out(mended):
    def tabs(views):
        data, _ = mended.mimebundle(views=views)
        payload = payload_of(data)
        return [tab["id"] for tab in payload["meta"]["tabs"]]

    assert tabs(["compare"]) == ["compare"]
    assert tabs(["trace", "compare"]) == ["trace", "compare"]
    with pytest.raises(NbprofError, match="unknown view"):
        mended.mimebundle(views=["nothing"])


def test_the_same_file_twice_is_no_difference(tmp_path):
    c = nbprof.compare(DATA / "tf_slow.xplane.pb", DATA / "tf_slow.xplane.pb")
    assert c.verdict["verdict"][0] == "same"
    assert not c.ops["change_us"].any()
    assert c.ops["state"].eq("both").all()
    first, second = (run["label"] for run in c.payload(0)["compare"]["runs"])
    assert first != second


def test_a_file_that_was_renamed_is_from_no_other_host(tmp_path):
    for name in (
        "before.pt.trace.json",
        "after.pt.trace.json",
        "a_1.1700000000000.pt.trace.json",
        "b_2.1700000000001.pt.trace.json",
    ):
        trace = Kineto()
        trace.step(0, 0.0, 900.0)
        (tmp_path / name).write_bytes(trace.encode())
    renamed = nbprof.compare(tmp_path / "before.pt.trace.json", tmp_path / "after.pt.trace.json")
    assert "host" not in str(renamed.payload(0)["compare"]["pairs"][0]["evidence"]).lower()
    named = nbprof.compare(*sorted(tmp_path.glob("?_*.json")))
    assert "Host differs: a before, b after" in str(
        named.payload(0)["compare"]["pairs"][0]["evidence"]
    )


def test_several_runs_are_in_the_pickers_and_profiles_are_taken():
    before = load(DATA / "tf_slow.xplane.pb")
    c = nbprof.compare(before, DATA / "tf_mended.xplane.pb", DATA / "tf_cpu.xplane.pb")
    assert last() is before
    part = c.payload(0)["compare"]
    assert len(part["pairs"]) == 6
    assert part["pairs"][0]["headline"] == c.verdict["headline"][0]
    with pytest.raises(NbprofError, match="at most 6 runs"):
        nbprof.compare(*[before] * 7)


def torch_trace():
    trace = Kineto()
    for i in range(2):
        trace.step(i, i * 1000.0, 900.0 + i)
        trace.launched(
            "gemm",
            i * 1000.0 + 100,
            i * 1000.0 + 200,
            300.0,
            trace.op("aten::mm", i * 1000.0 + 50, 100.0),
        )
    return trace.encode()


@pytest.mark.parametrize("evil", ["</script><b>`|**", "a" * 5000])
def test_odd_pairs_are_compared_with_warnings(tmp_path, evil):
    made = {
        "cpu.xplane.pb": training_run(12, evil=evil),
        "gpu.xplane.pb": gpu_run(),
        "one.xplane.pb": training_run(1),
        "torch.pt.trace.json": torch_trace(),
        "plain.json": json.dumps(
            [{"ph": "X", "name": evil, "ts": 1, "dur": 2, "pid": 1, "tid": 1}]
        ).encode(),
    }
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    read = {name: nbprof.load(tmp_path / name) for name in made}
    for other in [*made, "cpu.xplane.pb"][1:]:
        for pair in (("cpu.xplane.pb", other), (other, "cpu.xplane.pb")):
            c = nbprof.compare(*(read[name] for name in pair))
            assert c.verdict["headline"][0]
            assert c.text()
            assert c.markdown()
            assert "</script><b>" not in c.mimebundle()[0]["text/html"]
            if other == "torch.pt.trace.json":
                assert any(text.startswith("Framework ") for text in c.evidence["text"])
    (tmp_path / "empty.xplane.pb").write_bytes(b"")
    with pytest.raises(NbprofError):
        nbprof.compare(tmp_path / "cpu.xplane.pb", tmp_path / "empty.xplane.pb")


def test_a_tpu_against_a_gpu():
    c = nbprof.compare(real("tf-gpu/t4-one-step"), real("jax/tpu-v6e-inference"))
    assert c.verdict["verdict"][0] == "unknown"
    assert any(text.startswith("Device differs: ") for text in c.evidence["text"])
    assert c.kernels["state"].eq("gone").all()


def test_the_figure_is_of_both_average_steps(mended):
    plot = mended.figure(width=500)
    assert plot.y_range.factors == ["after: tf_mended", "before: tf_slow"]


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory):
    """Two snapshots of one program, which keeps more in the second."""
    folder = tmp_path_factory.mktemp("snapshots")
    paths = []
    for name, logged in (("before", 2), ("after", 9)):
        device = Allocator()
        device.alloc(3 * MIB, WEIGHT)
        for _ in range(logged):
            device.alloc(MIB // 2, LOGGED)
        if name == "after":
            device.alloc(5 * MIB, [frame("<b>zanzibar|", "/srv/ann/zanzibar.py", 4)])
        paths.append(folder / f"{name}.pickle")
        paths[-1].write_bytes(pickle.dumps(snapshot(device)))
    return nbprof.compare(*paths)


def test_two_snapshots_are_compared_by_role_and_by_stack(snapshots):
    before, after = snapshots.before.allocator, snapshots.after.allocator
    rows = snapshots.memory.set_index("role")
    assert set(rows["moment"]) == {"snapshot"}
    for side, p in (("before_bytes", before), ("after_bytes", after)):
        assert rows[side].sum() == p.summary["reserved_bytes"].sum()
    stacks = snapshots.allocator
    assert stacks["change_bytes"].sum() == (
        after.summary["allocated_bytes"].sum() - before.summary["allocated_bytes"].sum()
    )
    assert stacks["state"].tolist() == ["new", "both", "both"]
    new, logged, weight = stacks.to_dict("records")
    assert new["location"] == "zanzibar.py:4 <b>zanzibar|"
    assert (new["before_bytes"], new["before_blocks"], new["after_blocks"]) == (0, 0, 1)
    assert (logged["before_blocks"], logged["after_blocks"]) == (2, 9)
    assert logged["change_bytes"] == 7 * MIB // 2
    assert weight["change_bytes"] == 0


def test_the_comparison_of_snapshots_is_in_each_form(snapshots, tmp_path):
    check(snapshots.payload(0), "Payload")
    text, markdown = snapshots.text(), snapshots.markdown()
    assert "Memory by role, at the snapshot:" in text
    assert re.search(r"0 B → +\S+ MiB +\+\S+ MiB +zanzibar.py:4 <b>zanzibar\| \(new\)", text)
    assert "| Memory by stack, at the snapshot | Before | After | Change |" in markdown
    html = snapshots.mimebundle()[0]["text/html"]
    assert "Memory by stack" in html
    assert "<b>zanzibar" not in html
    pair = snapshots.payload(0)["compare"]["pairs"][0]["memory"]
    assert pair["moment"] == "at the snapshot"
    assert (pair["reason"], pair["stacks_reason"], pair["stacks_left_out"]) == ("", "", 0)
    saved = snapshots.save(tmp_path / "private.html", redact=True).read_text()
    assert "zanzibar" not in saved
    assert "zanzibar" not in snapshots.text(redact=True)


def test_memory_by_role_is_missing_with_its_reason_where_it_was_not_recorded(tmp_path):
    without = of_torch(tmp_path, torch_trace(), names=("without.pt.trace.json",))
    recorded = of_torch(tmp_path, Training(), names=("recorded.pt.trace.json",))
    c = nbprof.compare(without, recorded)
    assert c.memory["before_bytes"].isna().all()
    by_role = c.memory.set_index("role")["after_bytes"]
    assert by_role.to_dict() == recorded.memory.roles.set_index("role")["bytes"].to_dict()
    assert c.allocator.empty
    assert "Before: allocations were not recorded." in c.text()
    check(c.payload(0), "Payload")
    twice = nbprof.compare(recorded, recorded)
    assert set(twice.memory["change_bytes"]) == {0}
    neither = nbprof.compare(without, without)
    assert neither.memory.empty
    assert "Memory by role" not in neither.text() + neither.markdown()
