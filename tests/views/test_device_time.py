"""The tab of device time: its types, and bounded whatever the profile has."""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.display import codec
from nbprof.profiles.report import static
from nbprof.tools import dashboard as payload
from nbprof.tools.device_time import payload as device_time
from tests.support.kineto import Kineto, profile
from tests.support.payloads import check
from tests.support.ranks import job
from tests.views.fake import HOSTILE


def two_ranks(tmp_path):
    return profile(tmp_path, *job((((1000,), (1000,)), ((1500,), (1000,)))))


def test_the_part_has_its_declared_types(tmp_path):
    part = device_time.payload(two_ranks(tmp_path).run)
    check(part, "DeviceTime")
    for table in [*part["tables"].values(), part["path"]["table"]]:
        assert {column["key"] for column in table["columns"]} == {
            key for key in table["data"] if not key.startswith("_")
        }
    assert set(device_time.nothing()) == set(part)
    assert set(device_time.nothing()["tables"]) == set(part["tables"])


def test_what_is_drawn_is_what_the_frames_have(tmp_path):
    p = two_ranks(tmp_path)
    part = device_time.payload(p.run)
    frame = p.device_time.frame
    assert part["windows"] == ["Whole recording", "Step 0", "Step 1"]
    assert part["devices"] == ["rank 0, device 0", "rank 1, device 1"]
    drawn = part["parts_ms"].reshape(3, 2, 4)
    for window, step in enumerate([None, 0, 1]):
        rows = frame[
            frame["step"].isna() if step is None else (frame["step"] == step).fillna(False)
        ]
        expected = rows[["compute_ms", "communication_ms", "memory_ms", "idle_ms"]].to_numpy(
            np.float64
        )
        np.testing.assert_allclose(drawn[window], expected, rtol=1e-6)
    assert part["path"]["step"] == "ProfilerStep#0"
    assert sum(kind["percent"] for kind in part["path"]["kinds"]) == pytest.approx(100)
    assert "**" in part["statement"]


def test_no_peak_is_lost_where_a_series_is_thinned(tmp_path):
    file = Kineto()
    for i in range(3000):
        call = file.call("cudaLaunchKernel", 10 * i, 1)
        file.kernel("k", 10 * i + 2, 1, call)
    # For a moment 50 wait.
    for i in range(50):
        file.kernel(
            "late",
            15_004 + 0.02 * i,
            0.01,
            file.call("cudaLaunchKernel", 15_003 + 0.01 * i, 0.005),
            stream=8,
        )
    part = device_time.payload(profile(tmp_path, file).run)
    lines = {line["label"]: line["most"] for line in part["streams"]}
    assert all(len(most) == device_time.BINS for most in lines.values())
    assert lines["Queue: device 0, Stream 8"].max() == 50
    assert lines["Queue: device 0, Stream 7"].max() == 1


def test_the_part_is_bounded(tmp_path):
    file = Kineto()
    for i in range(400):
        op = file.op(f"op{i}", 20 * i, 10)
        file.launched(f"kernel {i} " + "x" * 600, 20 * i + 5, 20 * i + 8, 5, op, device=i % 100)
    p = profile(tmp_path, file)
    part = device_time.payload(p.run)
    assert len(part["devices"]) == device_time.MOST_DEVICES
    assert all(table["rows"] <= device_time.MOST_ROWS for table in part["tables"].values())
    assert part["path"]["table"]["rows"] == device_time.MOST_ROWS
    assert "36 more devices" in part["left_out"]
    # Those that were idle most.
    whole = p.device_time.frame[p.device_time.frame["step"].isna()]
    shown = part["parts_ms"].reshape(len(part["windows"]), len(part["devices"]), -1)[
        0, :, device_time.PARTS.index("idle")
    ]
    np.testing.assert_allclose(
        np.sort(shown)[::-1],
        np.sort(whole["idle_ms"].to_numpy(np.float32))[::-1][: device_time.MOST_DEVICES],
    )
    wait = [sum(value or 0.0 for value in row) for row in part["waits"]]
    np.testing.assert_allclose(wait, shown, rtol=1e-5)
    assert "more row" in part["path"]["rest"]
    assert max(map(len, part["path"]["table"]["data"]["name"]["values"])) <= 160
    assert len(codec.pack(part)) < 60_000


def test_the_tab_is_there_only_with_a_device(tmp_path):
    file = Kineto()
    file.op("aten::mm", 0, 10)
    p = profile(tmp_path, file)
    tabs = [tab["id"] for tab in p.payload()["meta"]["tabs"]]
    assert "device_time" not in tabs
    asked = payload.dashboard(p.run, views=["device_time"])
    assert "CPU" in asked["device_time"]["empty"]["text"]


def test_hostile_names_and_the_report_without_script(tmp_path):
    file = Kineto()
    file.step(0, 0, 100)
    file.launched(HOSTILE, 0, 10, 10)
    file.launched("k", 40, 50, 10)
    board = profile(tmp_path, file, names=(f"{HOSTILE.replace('/', '')}.json",)).payload()
    assert "device_time" in [tab["id"] for tab in board["meta"]["tabs"]]
    html = static.static_html(board)
    assert "Device time" in html
    assert "<img src=x" not in html
