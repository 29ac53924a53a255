"""What each core of a TPU does in a step."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from nbprof.profiles.load import load
from nbprof.profiles.report.static import static_html
from nbprof.schema.frames import SCHEMA, names
from nbprof.tools import dashboard as payload
from nbprof.tools.overview import payload as page
from nbprof.tools.pods import cores as views
from nbprof.tools.pods import payload as pods
from tests.support.build import profile
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, training_run, xspace

FUSION = "%fusion.1 = f32[8,8]{1,0} fusion(f32[8,8]{1,0} %p0)"
REDUCE = "%all-reduce.3 = f32[8] all-reduce(f32[8] %x)"
TO_HOST = "%copy-done.5 = f32[8]{0:S(5)} copy-done((f32[8]{0:S(5)}, f32[8]{0}, u32[]{:S(2)}) %copy-start.5)"


def core(name, ops, steps, prefix="", **stats):
    plane = PlaneWriter(name, stats)
    plane.line(
        f"{prefix}Steps",
        [plane.event(str(n), a * MS, (b - a) * MS, group_id=n) for n, (a, b) in enumerate(steps)],
        line_id=1,
    )
    plane.line(
        f"{prefix}Ops" if prefix else "XLA Ops",
        [plane.event(n, a * MS, (b - a) * MS) for n, a, b in ops],
        line_id=3,
    )
    return plane


def parts(row):
    return {
        name.removesuffix("_ms"): row[name]
        for name in names("pods.cores")
        if name.endswith("_ms") and name != "start_ms" and row[name]
    }


def test_ops_of_a_core_by_kind(tmp_path):
    ops = [
        ("%infeed.1 = f32[8] infeed(token[] %t)", 0, 1),
        ("%while.1 = f32[8] while(f32[8] %x)", 1, 8),
        (FUSION, 2, 4),
        (REDUCE, 4, 7),
        ("%send.1 = f32[8] send(f32[8] %x)", 8, 9),
        ("%recv.1 = f32[8] recv(f32[8] %x)", 9, 11),
        ("%recv-done.2 = f32[8] recv-done(f32[8] %x), is_host_transfer=true", 11, 14),
        (TO_HOST, 14, 15),
        ("%copy.4 = f32[8] copy(f32[8] %x)", 15, 16),
        ("%outfeed.1 = token[] outfeed(f32[8] %x)", 16, 18),
    ]
    p = profile(tmp_path, xspace(core("/device:TPU:0", ops, [(0, 20)])))
    (row,) = p.pods.cores.to_dict("records")
    assert parts(row) == {
        "step_time": 20.0,
        "compute": 5.0,
        "infeed": 1.0,
        "outfeed": 2.0,
        "all_reduce_compute": 3.0,
        "send": 1.0,
        "recv": 2.0,
        "host_transfer": 4.0,
        "idle": 2.0,
    }
    assert (p.overview["infeed_percent"], p.overview["outfeed_percent"]) == pytest.approx(
        (5.0, 10.0)
    )


@pytest.mark.parametrize("infeed", [True, False])
def test_a_program_without_infeed_does_not_tell_what_its_steps_wait_for(tmp_path, infeed):
    """The first step reads nothing; another one may."""
    steps = [(0, 8), (10, 18), (20, 28)]
    ops = [(FUSION, a, a + 6) for a, _ in steps] + [
        ("%infeed.1 = f32[8] infeed(token[] %t)", 16, 18)
    ] * infeed
    p = profile(tmp_path, xspace(core("/device:TPU:0", ops, steps)))
    (figure,) = (one for one in p.payload()["overview"]["figures"] if one["key"] == "input")
    assert figure["value"] == (pytest.approx(100 * 2 / 24) if infeed else None)
    assert p.steps.frame["input_ms"].isna().all() == (not infeed)


def test_a_collective_waits_for_the_core_that_comes_last(tmp_path):
    """Core 1 computes for 5 of 8 ms and then reduces for 2; core 0 has computed after 3, and
    reduces, which is waiting, for 4. Twice.
    """
    steps = [(0, 8), (10, 18)]
    ops = [
        [(FUSION, a, a + n) for a, _ in steps] + [(REDUCE, a + n, a + 7) for a, _ in steps]
        for n in (3, 5)
    ]
    planes = [
        core(f"/device:TPU:{i}", ops[i], steps, core_details=d)
        for i, d in enumerate((bytes.fromhex("2804"), bytes.fromhex("2001")))
    ]
    p = profile(tmp_path, xspace(*planes))
    cores = p.pods.cores
    assert cores["worker"].tolist() == ["host-a:0", "host-a:1"] * 2
    assert cores["chip"].tolist() == [0, 1] * 2
    assert cores["all_reduce_compute_ms"].tolist() == [2.0] * 4
    assert cores["all_reduce_sync_ms"].tolist() == [2.0, 0.0] * 2
    assert cores["idle_ms"].tolist() == [1.0] * 4
    assert cores["step"].tolist() == [0, 0, 1, 1]


def test_sections_of_the_trace_name_chip_and_core(tmp_path):
    """The second core of chip 1, and the first core of chip 0: fields 3 and 4, left out for 0."""
    details = (bytes.fromhex("18012001"), bytes.fromhex("2804"), b"")
    planes = [
        core(f"/device:TPU:{i}", [(FUSION, 0, 3), (FUSION, 5, 7)], [(0, 8)], core_details=d)
        for i, d in enumerate(details)
    ]
    p = profile(tmp_path, xspace(*planes))
    lanes = p.run.timeline.tracks.lanes
    sections = list(dict.fromkeys(lane.process for lane in lanes if lane.kind != "host"))
    assert sections == ["TPU 0 (chip 1, core 1)", "TPU 1 (chip 0, core 0)", "TPU 2"]
    assert p.devices["chip_core"].tolist() == [1, 0, pd.NA]
    # Elsewhere a core keeps its short name, by which it is found.
    assert p.trace.gaps()["device"].unique().tolist() == ["TPU 0", "TPU 1", "TPU 2"]


def test_a_sparse_core_is_a_worker_of_its_own(tmp_path):
    tensor = core(
        "/device:TPU:0", [(FUSION, 0, 4), (FUSION, 10, 14)], [(0, 5), (10, 15)], has_megacore=1
    )
    gather = "%gather.1 = f32[8] gather(f32[8] %x)"
    sparse = core(
        "/device:TPU:0 SparseCore 0",
        [(gather, 1, 3), (gather, 11, 14)],
        [(1, 4), (11, 15)],
        "Sparse Core ",
    )
    without = PlaneWriter("/device:TPU:0 SparseCore 1")
    without.line("Sparse Core Ops", [without.event(gather, 2 * MS, MS)], line_id=3)
    p = profile(tmp_path, xspace(tensor, sparse, without))
    cores = p.pods.cores.set_index(["worker", "step"])
    assert cores.loc[("host-a:0 SparseCore 0", 0), "step_time_ms"] == 3.0
    assert cores.loc["host-a:0 SparseCore 0", "compute_ms"].tolist() == [2.0, 3.0]
    assert cores.loc["host-a:0 SparseCore 0", "idle_ms"].tolist() == [1.0, 1.0]
    assert cores.loc["host-a:0 SparseCore 1", "step_time_ms"].tolist() == [5.0, 5.0], (
        "steps of its TensorCore, as it has none"
    )
    assert cores.loc["host-a:0 SparseCore 1", "compute_ms"].tolist() == [1.0, 0.0]
    assert cores.loc["host-a:0", "compute_ms"].tolist() == [4.0, 4.0]
    assert len(p.steps.frame) == 2
    assert p.overview["devices"] == len(p.run.devices) == 1
    assert p.devices[["device", "kind", "name"]].to_numpy().tolist() == [
        [0, "TPU", "TPU"],
        *[[0, "SparseCore", "TPU SparseCore"]] * 2,
    ]
    assert p.devices["core"].tolist() == [pd.NA, 0, 1]
    peaks = profile(
        tmp_path,
        xspace(
            core("/device:TPU:0", [(FUSION, 0, 4)], [(0, 5)], peak_hbm_bw_gigabytes_per_second=1.0),
            sparse,
        ),
    ).devices
    assert peaks["memory_bytes_per_second"].dtype == np.float64
    assert peaks["memory_bytes_per_second"].tolist()[0] == 1e9
    assert np.isnan(peaks["memory_bytes_per_second"].tolist()[1]), "it is of the whole device"
    facts = p.devices.iloc[0]
    assert (facts["sparse_cores"], facts["megacore"]) == (2, True)
    assert facts["chip"] is pd.NA
    assert dict(page.payload(p.run)["run"])["Device"] == "TPU, Megacore, 2 SparseCores"


def test_a_single_chip_with_sparse_cores_has_the_tab_for_its_cores_alone(tmp_path):
    tensor = core("/device:TPU:0", [(FUSION, 0, 4)], [(0, 5)], has_megacore=1)
    sparse = core(
        "/device:TPU:0 SparseCore 0",
        [("%gather.1 = f32[8] gather(f32[8] %x)", 1, 3)],
        [(1, 4)],
        "Sparse Core ",
    )
    whole = payload.dashboard(profile(tmp_path, xspace(tensor, sparse)).run)
    (tab,) = [tab for tab in whole["meta"]["tabs"] if tab["id"] == "pods"]
    assert tab["count"] == 2
    part = whole["pods"]
    assert part["empty"]["title"] == "One worker in this run"
    assert part["cores"]["table"]["data"]["worker"]["values"] == [
        "host-a:0",
        "host-a:0 SparseCore 0",
    ]
    assert part["cores"]["note"].endswith(
        "Megacore: the two cores of a chip work as one and share a row. A SparseCore works alongside the core of its chip, in the same step."
    )
    (tmp_path / "alone").mkdir()
    alone = payload.dashboard(profile(tmp_path / "alone", xspace(tensor)).run)
    assert "pods" not in [tab["id"] for tab in alone["meta"]["tabs"]]


def test_cores_of_several_hosts_are_told_by_host_and_chip(tmp_path):
    """Two hosts of two chips; the second chip of host-b starts each all-reduce 3 ms late, so that
    the other core of its host waits.
    """
    steps = [(0, 10), (10, 20), (20, 30)]
    details = [bytes.fromhex(text) for text in ("2001", "2002")]

    def planes(late):
        ops = [
            [(FUSION, a, a + 4 + by) for a, _ in steps]
            + [(REDUCE, a + 4 + by, a + 9) for a, _ in steps]
            for by in (0, late)
        ]
        return [core(f"/device:TPU:{i}", ops[i], steps, core_details=details[i]) for i in (0, 1)]

    for host, late in (("host-a", 0), ("host-b", 3)):
        (tmp_path / f"{host}.xplane.pb").write_bytes(xspace(*planes(late), hostname=host))
    p = load(tmp_path)
    assert p.devices[["host", "device", "chip"]].to_numpy().tolist() == [
        ["host-a", 0, 1], ["host-a", 1, 2], ["host-b", 0, 1], ["host-b", 1, 2],
    ]  # fmt: skip
    part = payload.dashboard(p.run)["pods"]
    cores = part["cores"]
    data = cores["table"]["data"]
    assert data["worker"]["values"] == ["host-a:0", "host-a:1", "host-b:0", "host-b:1"]
    assert data["chip"].tolist() == [1, 2, 1, 2]
    assert cores["kinds"] == [
        "compute_ms",
        "all_reduce_compute_ms",
        "all_reduce_sync_ms",
        "idle_ms",
    ]
    assert data["all_reduce_sync_ms"].tolist() == [0, 0, 3, 0]
    assert data["compute_ms"].tolist() == [4, 4, 4, 7]
    assert data["mean_step_ms"].tolist() == [10.0] * 4
    assert cores["first"].tolist() == [0, 4, 8, 12]
    assert cores["core"].tolist() == [0, 1, 2, 3] * 3
    assert (
        sum(part[kind] for part in [cores["parts"]] for kind in cores["kinds"]).tolist()
        == cores["time_ms"].tolist()
    )
    assert cores["note"] == "No core spent time on infeed, outfeed, send, receive or host transfer."
    html = static_html(payload.dashboard(p.run))
    assert "TPU cores" in html
    assert re.search(
        r"host-b:0</samp></td><td[^>]*>1</td><td[^>]*>10.00</td><td[^>]*>4.00</td><td[^>]*>2.00</td><td[^>]*>3.00</td>",
        html,
    )


def test_a_report_of_many_cores_holds_their_means(tmp_path, monkeypatch):
    p = load(real("jax/tpu-v6e-inference"))
    cores = views.payload(
        p.run, p.run.pods[["host", "group"]].assign(at=0).drop_duplicates(), np.arange(1)
    )
    assert len(cores["first"]) == 2
    monkeypatch.setattr(views, "MOST_ROWS", 399)
    whole = pods.payload(p.run)["cores"]
    assert len(whole["first"]) == 0
    assert (
        "This report contains means; p.pods.cores has each step of each core (400 rows)."
        in whole["note"]
    )
    frame = p.pods.cores
    used = frame[frame["step"] > 1]
    means = used.groupby("worker")["host_transfer_ms"].mean()
    assert whole["table"]["data"]["host_transfer_ms"] == pytest.approx(
        means.sort_index().to_numpy(), rel=1e-6
    )
    monkeypatch.setattr(views, "MOST_CORES", 3)
    few = pods.payload(p.run)["cores"]
    assert few["table"]["rows"] == 3
    assert "3 of 4 cores" in few["note"]


def test_cores_of_a_real_tpu():
    p = load(real("jax/tpu-v6e-inference"))
    cores, pods = p.pods.cores, p.pods.frame
    assert len(cores) == len(pods) == 400
    assert sorted(cores["chip"].unique()) == [0, 1, 2, 3]
    both = cores.merge(pods, on=["step", "worker"])
    assert both["step_time_ms_x"].to_numpy() == pytest.approx(both["step_time_ms_y"].to_numpy())
    assert both["compute_ms"].to_numpy() == pytest.approx(both["device_compute_ms"].to_numpy())
    assert both["host_transfer_ms"].to_numpy() == pytest.approx(
        (both["input_ms"] + both["output_ms"]).to_numpy()
    )
    whole = cores[
        [
            c
            for c in names("pods.cores")
            if c.endswith("_ms") and c not in ("start_ms", "step_time_ms")
        ]
    ].sum(axis=1)
    assert whole.to_numpy() == pytest.approx(cores["step_time_ms"].to_numpy())
    assert (p.overview["infeed_percent"], p.overview["outfeed_percent"]) == (0.0, 0.0)
    assert p.overview["host_transfer_percent"] == pytest.approx(97, abs=0.5)
    assert p.advice["title"].tolist()[0] == "Keep arrays in device memory"
    assert not p.advice["rule"].isin(["input_ahead", "output"]).any(), (
        "no batch and no result: the program moves what it keeps on the host"
    )
    for column in SCHEMA["pods.cores"]:
        assert cores[column.name].dtype == column.dtype, column.name


def test_without_tpus_there_are_no_cores(tmp_path):
    p = profile(tmp_path, training_run())
    assert list(p.pods.cores.columns) == names("pods.cores")
    assert not len(p.pods.cores)
    assert p.overview["infeed_percent"] is None
