"""What a recorder cannot know, or did not record, is NA in every figure and finding, and never 0 or
100 %.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nbprof
from tests.analysis.test_apart import opless_job
from tests.support import ascend_db, kineto, msprof, nsys, rocprof
from tests.support.nsys import US


@pytest.fixture(scope="module")
def of_nsys(tmp_path_factory: pytest.TempPathFactory) -> nbprof.Profile:
    return nbprof.load(nsys.training().sqlite(tmp_path_factory.mktemp("nsys") / "a.sqlite"))


@pytest.fixture(scope="module")
def of_rocprof(tmp_path_factory: pytest.TempPathFactory) -> nbprof.Profile:
    return nbprof.load(
        rocprof.write(
            tmp_path_factory.mktemp("rocprof"),
            {"a_results.json": rocprof.as_json(rocprof.training())},
        )
    )


@pytest.fixture(params=["of_nsys", "of_rocprof"])
def p(request: pytest.FixtureRequest) -> nbprof.Profile:
    found: nbprof.Profile = request.getfixturevalue(request.param)
    return found


def check(p: nbprof.Profile, name: str) -> tuple[float, str, str]:
    row = p.overview["checks"].set_index("check").loc[name]
    return row["percent"], row["level"], row["statement"]


def test_what_the_host_computed_is_unknown_without_its_ops(p: nbprof.Profile) -> None:
    frame, summary = p.steps.frame, p.steps.summary.set_index("category")
    assert frame["host_compute_ms"].isna().all()
    assert summary.loc["host_compute"].isna().all()
    assert frame["kernel_launch_ms"].gt(0).all()
    parts = [
        c
        for c in frame
        if c.endswith("_ms")
        and c not in ("start_ms", "step_time_ms", "host_to_device_ms", "waiting_ms")
    ]
    assert frame[parts].sum(axis=1).tolist() == pytest.approx(frame["step_time_ms"].tolist())
    assert summary["percent"].drop("step_time").sum() == pytest.approx(100)
    assert "host_compute" not in p.payload()["steps"]["categories"]
    # What is left is not said to be Python.
    assert p.overview["verdict"] == "Host-bound"
    assert "the host was not recorded" in p.overview["verdict_text"]
    assert "Python" not in check(p, "all_others")[2]


def test_shares_of_ops_and_of_eager_ops_need_the_host(p: nbprof.Profile) -> None:
    for key in (
        "device_op_percent",
        "host_op_percent",
        "eager_device_percent",
        "eager_host_percent",
    ):
        assert p.overview[key] is None, key
    assert p.ops.frame["eager"].isna().all()
    assert check(p, "eager_device")[1] == "unknown"
    assert np.isnan(check(p, "eager_device")[0])
    (figure,) = (
        one for one in p.payload()["overview"]["figures"] if one["key"] == "op_runs_on_device"
    )
    assert figure["value"] is None


def test_device_time_goes_by_no_op_where_none_was_recorded(p: nbprof.Profile) -> None:
    frame = p.torch_ops.frame
    assert len(frame)
    assert frame[["device_self_us", "device_total_us", "device_avg_us"]].isna().all(axis=None)


def test_copies_alone_do_not_tell_that_steps_wait_for_no_input(of_rocprof: nbprof.Profile) -> None:
    share, level, said = check(of_rocprof, "input")
    assert (round(share, 1), level) == (4.8, "unknown")
    assert (
        said
        == "Copies to the device take 4.8% of step time; what else steps wait for was not recorded."
    )


def test_calls_that_were_not_recorded_took_no_known_time(tmp_path: Path) -> None:
    export = nsys.Export()
    nsys.facts(export, 0)
    for i in range(4):
        at = 1000 * US + 100 * US * i
        export.range(f"ProfilerStep#{i}", at, at + 90 * US)
        export.kernel("k", at + 30 * US, at + 40 * US, -1)
    p = nbprof.load(export.sqlite(tmp_path / "a.sqlite"))
    frame = p.steps.frame
    assert len(frame) == 4
    assert frame["kernel_launch_ms"].isna().all()
    assert frame["device_compute_ms"].gt(0).all()
    # The name of a kernel of one's own says nothing of the width of its numbers.
    assert p.overview["framework"] == "CUDA"
    assert p.overview["compute_16bit_percent"] is None
    assert check(p, "precision")[1] == "unknown"


def test_copies_that_rocprof_may_not_have_recorded_are_unknown(tmp_path: Path) -> None:
    run = rocprof.training()
    run.copies.clear()
    p = nbprof.load(rocprof.write(tmp_path, {"a_results.json": rocprof.as_json(run)}))
    frame = p.steps.frame
    assert (
        frame[["device_to_device_ms", "output_ms", "host_to_device_ms", "input_ms"]]
        .isna()
        .all(axis=None)
    )
    assert frame["device_compute_ms"].gt(0).all()


def test_tasks_of_an_npu_do_not_say_whether_they_were_launched_op_by_op(tmp_path: Path) -> None:
    tasks = msprof.training(4)[0]
    p = nbprof.load(ascend_db.prof(tmp_path / "PROF_000001_20250109084754000_A", tasks, steps=4))
    assert p.overview["eager_device_percent"] is None
    assert check(p, "eager_device")[1] == "unknown"
    ops = p.ops.frame
    assert ops.loc[ops["where"] == "device", "eager"].isna().all()
    assert ops.loc[ops["where"] == "host", "eager"].notna().all()


def test_reasons_name_what_is_missing(p: nbprof.Profile) -> None:
    figures = {one["key"]: one["note"] for one in p.payload()["overview"]["figures"]}
    assert figures["op_runs_on_device"] == "no ops recorded on the host"
    assert check(p, "eager_host")[2] == "No ops were recorded on the host."
    assert check(p, "eager_device")[2] == "It was not recorded which ops of the device ran eagerly."


def test_kernels_whose_names_do_not_tell_their_precision_are_not_missing(tmp_path: Path) -> None:
    export = nsys.Export()
    nsys.facts(export, 0)
    for i in range(3):
        at = 1000 * US + 100 * US * i
        export.range(f"ProfilerStep#{i}", at, at + 90 * US)
        export.kernel("k", at + 30 * US, at + 40 * US, -1)
    p = nbprof.load(export.sqlite(tmp_path / "a.sqlite"))
    assert (
        check(p, "precision")[2]
        == "Unknown: neither the kernels nor their names state a data type."
    )


def test_steps_alone_do_not_say_that_devices_were_idle(tmp_path: Path) -> None:
    export = nsys.Export()
    for i in range(3):
        export.range(f"Iteration {i}/3", 100 * i, 100 * i + 50)
    p = nbprof.load(export.sqlite(tmp_path / "a.sqlite"))
    assert len(p.steps.frame) == 3
    assert (p.overview["bound"], p.overview["verdict"]) == (None, "Host not recorded")
    assert "neither host ops nor device work was recorded" in p.overview["verdict_text"]
    assert "CUDA was not traced" in p.overview["verdict_detail"]
    figures = {
        one["key"]: (one["value"], one["note"]) for one in p.payload()["overview"]["figures"]
    }
    assert figures["host_compute"] == (None, "no ops recorded on the host")


def test_one_host_without_ops_beside_one_with_ops(tmp_path: Path) -> None:
    p = nbprof.load(opless_job(tmp_path, 2))
    assert p.run.activity.has_host_ops
    of_host = p.steps.frame.groupby("host")["host_compute_ms"]
    assert of_host.apply(lambda ms: ms.isna().all()).to_dict() == {"rank 0": False, "rank 1": True}
    # The mean is that of the host that recorded it.
    summary = p.steps.summary.set_index("category")
    assert summary.loc["host_compute", "mean_ms"] == pytest.approx(of_host.mean()["rank 0"])
    # Kernels of a host without ops would make the share of the device the larger.
    assert [
        p.overview[key] for key in ("host_op_percent", "device_op_percent", "eager_device_percent")
    ] == [None] * 3
    (figure,) = (
        one for one in p.payload()["overview"]["figures"] if one["key"] == "op_runs_on_device"
    )
    assert figure["note"] == "no ops recorded on 1 of 2 hosts"


@pytest.mark.filterwarnings("error")
def test_kernels_without_a_duration_have_no_shares(tmp_path):
    k = kineto.Kineto()
    for i in range(4):
        at = 1000.0 * i
        k.step(i, at, 1000)
        k.launched("gemm", at + 100, at + 200, 0, op=k.op("aten::mm", at + 50, 100))
    p = kineto.profile(tmp_path, k)
    assert p.kernels.by_name()["percent"].isna().all()
    assert p.kernels.by_op()["percent"].isna().all()
    assert "none with usable times" in p.payload().kernels.empty.text


def test_the_verdict_knows_that_a_file_is_truncated(tmp_path):
    k = kineto.Kineto()
    for i in range(12):
        at = 1000.0 * i
        k.step(i, at, 1000)
        k.launched("gemm", at + 100, at + 200, 300, op=k.op("aten::mm", at + 50, 100))
    # Kineto writes it after the kernels: none of them is missing.
    k.add("PyTorch Profiler (0)", "Trace", 0, 12_000, pid="Spans")
    k.add("Record Window End", "", 12_000, None)
    complete = kineto.profile(tmp_path, k).overview["confidence_evidence"]
    assert (True, "Complete trace: no event was dropped") in complete
    p = kineto.profile(tmp_path, k.encode()[:-5])
    assert p.run.receipt.read_in_part
    text = "The file is truncated: what it held of the rest is unknown"
    assert (False, text) in p.overview["confidence_evidence"]
