"""The tab Allocator against its twin, and what it says of a snapshot."""

import pickle

import numpy as np
import pytest

import nbprof
from nbprof.display import codec
from nbprof.profiles.report.static import static_html
from nbprof.tools import dashboard as payload
from nbprof.tools import text
from nbprof.tools.allocator import payload as allocator
from tests.support.caching_allocator import MIB, Allocator, OutOfMemory, fragmented, frame, snapshot
from tests.support.payloads import check

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    path = tmp_path_factory.mktemp("s") / "s.pickle"
    second = Allocator(device=1)
    second.alloc(3 * MIB, [frame(HOSTILE, f"/srv/ann/{HOSTILE}.py", 1)], pool=(0, 4))
    path.write_bytes(pickle.dumps(snapshot(fragmented(), second)))
    return nbprof.load(path)


def test_the_part_has_its_declared_types(profile):
    whole = profile.payload()
    check(whole, "Payload")
    for device in whole["allocator"]["devices"]:
        for name in ("stranded", "holders"):
            assert all(column["help"].endswith(".") for column in device[name]["columns"])
        assert (
            len(device["x"])
            == len(device["reserved"])
            == len(device["active"])
            == len(device["action"]["codes"])
        )
        assert (
            device["blocks"]["rows"]
            == len(device["blocks"]["segment"])
            == len(device["blocks"]["stack"]["codes"])
        )
    assert codec.unpack(codec.pack(whole)).keys() == whole.keys()


def test_a_snapshot_alone_shows_this_tab_alone(profile):
    meta = profile.payload()["meta"]
    assert [tab["id"] for tab in meta["tabs"]] == ["allocator"]
    assert meta["notice"] is None
    assert meta["facts"][0] == "allocator snapshot"
    # Any other is there when it is asked for, and is empty.
    assert payload.dashboard(profile.run, ["ops"])["ops"]["empty"]["text"]


def test_a_snapshot_does_not_say_of_which_device_it_is(profile):
    assert profile.overview["device_kind"] is None
    assert dict(profile.overview["run_facts"])["Device"] == "–"
    assert "on `GPU`" in profile.brief()


def test_text_and_static_report_of_a_snapshot_tell_of_its_memory_alone(profile):
    told = text.summary(profile.payload())
    assert len(told.splitlines()) <= 10
    assert "Out of memory at 2" in told
    html = static_html(profile.payload())
    for other in ("Unknown", "no steps", "Average step"):
        assert other not in told
        assert other not in html


def test_what_is_drawn_is_the_moment_that_memory_ran_out(profile):
    first, second = profile.payload()["allocator"]["devices"]
    last = profile.allocator.oom.iloc[-1]
    assert first["ooms"][0]["text"] == last["explanation"]
    assert len(first["ooms"]) == 2
    assert first["when"].startswith("at 2")
    assert sum(first["blocks"]["size"]) == sum(first["segments"]["size"]) == last["reserved_bytes"]
    assert (
        sum(first["blocks"]["stranded"])
        == sum(first["segments"]["stranded"])
        == last["stranded_bytes"]
    )
    assert list(first["segments"]["stranded"]) == sorted(
        first["segments"]["stranded"], reverse=True
    )
    assert first["oom_at"].tolist() == profile.allocator.oom["time_ms"].tolist()
    assert (second["when"], second["ooms"]) == ("at the snapshot", [])
    assert "pool 0, 4" in second["segments"]["name"]["values"][0]


def test_the_levels_keep_the_peaks(profile):
    first = profile.payload()["allocator"]["devices"][0]
    rows = profile.allocator.timeline.query("device == 0")
    for name in ("reserved", "allocated", "active"):
        assert max(first[name]) == rows[f"{name}_bytes"].max()
    assert first["timed"]


def test_the_payload_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(allocator, "MOST_BLOCKS", 900)
    device = Allocator(900 * MIB, most=40_000)
    held = []
    try:
        for i in range(40_000):
            held.append(
                device.alloc(600 + 512 * (i % 7), [frame(f"f{i % 900}", "/srv/ann/a.py", i % 900)])
            )
            if i % 3 == 0:
                device.free(held.pop(i // 3))
            if i > 2_500:
                break
    except OutOfMemory:
        pass
    path = tmp_path / "many.pickle"
    path.write_bytes(pickle.dumps(snapshot(device)))
    p = nbprof.load(path)
    (one,) = p.payload()["allocator"]["devices"]
    assert one["blocks"]["rows"] <= allocator.MOST_BLOCKS
    assert one["stranded"]["rows"] == allocator.MOST_ROWS
    assert one["stranded_more"] == len(p.allocator.stranded) - allocator.MOST_ROWS > 0
    assert len(one["x"]) < 3 * 700
    assert len(codec.pack(p.payload())) < 300_000


def test_words_of_the_file_are_text_in_the_report(profile):
    html = static_html(profile.payload())
    assert HOSTILE not in html
    assert "Out of memory" in html
    assert "metrics.py:7 append" in html
    assert "What strands free memory" in html


def test_without_a_snapshot_it_says_how_to_get_one(tmp_path):
    from tests.support.kineto import Kineto

    trace = Kineto()
    trace.op("aten::mm", 10, 5)
    (tmp_path / "a.pt.trace.json").write_bytes(trace.encode())
    p = nbprof.load(tmp_path / "a.pt.trace.json")
    whole = p.payload()
    assert "allocator" not in [tab["id"] for tab in whole["meta"]["tabs"]]
    assert (
        "_record_memory_history"
        in payload.dashboard(p.run, ["allocator"])["allocator"]["empty"]["text"]
    )
    assert "no snapshot" in repr(p.allocator)
    # One that comes later is there when the trace is loaded again, whatever the cache has of it.
    (tmp_path / "a.memory_snapshot.pickle").write_bytes(pickle.dumps(snapshot(fragmented())))
    again = nbprof.load(tmp_path / "a.pt.trace.json").payload()
    assert "allocator" in [tab["id"] for tab in again["meta"]["tabs"]]
    assert np.sum(again["allocator"]["devices"][0]["segments"]["size"]) > 400 * MIB


def test_a_snapshot_of_nothing_says_so(tmp_path):
    (tmp_path / "empty.pickle").write_bytes(pickle.dumps(snapshot()))
    p = nbprof.load(tmp_path / "empty.pickle")
    whole = p.payload()
    assert [tab["id"] for tab in whole["meta"]["tabs"]] == ["allocator"]
    assert whole["meta"]["facts"][0] == "allocator snapshot"
    for told in (text.summary(whole), static_html(whole)):
        assert "held no device memory" in told
        for other in ("CPU", "GPU", "no steps", "Average step", "_record_memory_history"):
            assert other not in told


def test_the_device_of_a_snapshot_is_called_what_its_backend_calls_it(tmp_path):
    device, frames = (
        Allocator(4 * MIB),
        [frame("empty", "/site-packages/torch_npu/npu/memory.py", 9)],
    )
    device.alloc(MIB, frames)
    with pytest.raises(OutOfMemory):
        device.alloc(40 * MIB, frames)
    (tmp_path / "npu.pickle").write_bytes(pickle.dumps(snapshot(device)))
    p = nbprof.load(tmp_path / "npu.pickle")
    whole = p.payload()
    assert [one["name"] for one in whole["allocator"]["devices"]] == ["NPU 0"]
    assert "torch.npu.empty_cache" in str(whole["allocator"]["devices"][0]["figures"])
    for told in (
        text.summary(whole),
        static_html(whole),
        repr(p.allocator),
        str(p.allocator.oom.to_dict()),
        p.brief(),
    ):
        assert "NPU" in told
        assert "GPU" not in told
        assert "cuda" not in told.lower()
