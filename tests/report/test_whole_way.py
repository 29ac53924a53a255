"""From the bytes of a profile to the report: what is drawn are the numbers of the frames."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.profiles.report import html, mimebundle
from nbprof.profiles.report.static import static_html
from nbprof.tools.ops import payload as ops
from nbprof.tools.overview import picture
from tests.report.test_html import FORBIDDEN, Reader
from tests.support.build import profile
from tests.support.payloads import check
from tests.support.profiles import real
from tests.support.saved import packed_of, payload_of
from tests.support.xspace import gpu_run, training_run
from tests.views import fake

REAL = [
    *("tf-gpu/rtx5000-cnn-batch64", "tf-gpu/t4-one-step", "tf-gpu/v100x8-collectives"),
    *(
        "tf-cpu/prefetch-example",
        "tf-cpu/prefetch-128-empty-gpu-plane",
        "jax/tpu-v6e-inference",
        "jax/mi300-jax08_attention",
    ),
]


def made(run):
    return codec.unpack(codec.pack(run.payload()))


def agrees(run, whole):
    """The payload against the frames that a person can take."""
    steps = run.steps.frame
    assert whole["steps"]["step"].tolist() == steps["step"].tolist()
    for key, values in whole["steps"]["categories"].items():
        assert values == pytest.approx(steps[f"{key}_ms"].to_numpy(float), rel=1e-9, nan_ok=True)
    shown = run.ops.frame.groupby("where", sort=False).head(ops.MOST_ROWS)
    for key, frame, columns in (
        ("ops", shown, ("total_us", "self_us", "occurrences")),
        ("kernels", run.kernels.frame, ("total_us", "min_us", "occurrences")),
    ):
        data = whole[key]["table"]["data"]
        for column in columns:
            assert data[column] == pytest.approx(
                frame[column].to_numpy(float), rel=1e-9, nan_ok=True
            )
    data = whole["ops"]["table"]["data"]["op"]
    assert [data["values"][code] for code in data["codes"]] == shown["op"].tolist()
    summary = run.memory.summary.set_index("memory_id")
    for one in whole["memory"]["ids"]:
        assert one["peak_bytes"] == summary.loc[one["memory_id"], "peak_bytes"]
        assert (one["stack_bytes"] + one["heap_bytes"]).max() == one["peak_bytes"]
    trace = whole["trace"]
    assert sum(len(lane["start"]) for lane in trace["lanes"]) == trace["shown"] <= trace["total"]
    assert len(trace["names"]) == len(trace["category"])
    for lane in trace["lanes"]:
        if lane["kind"] == "counter":
            assert (np.diff(lane["time"]) >= 0).all()
            continue
        assert (np.diff(lane["start"].astype(np.int64)) >= 0).all()
        assert (lane["start"].astype(np.int64) + lane["duration"]).max() <= trace["end"]


@pytest.mark.parametrize("write", [training_run, gpu_run], ids=["cpu", "gpu"])
def test_a_made_profile(tmp_path, write):
    run = profile(tmp_path, write())
    whole = made(run)
    agrees(run, whole)
    marks = next(lane for lane in whole["trace"]["lanes"] if lane["kind"] == "steps")
    assert marks["start"] * whole["trace"]["tick_ns"] / 1e6 == pytest.approx(
        run.steps.frame["start_ms"].to_numpy(float), abs=1e-5
    )
    if run.trace.lanes["kind"].eq("steps").any():
        return  # the producer's own markers, which may end before the host's
    assert marks["duration"] * whole["trace"]["tick_ns"] / 1e6 == pytest.approx(
        run.steps.frame["step_time_ms"].to_numpy(float), abs=1e-5
    )
    assert len({whole["trace"]["names"][code] for code in marks["name_code"]}) == len(
        run.steps.frame
    )


def test_a_name_out_of_a_file_stays_text(tmp_path):
    run = profile(tmp_path, training_run(evil=fake.HOSTILE))
    whole = run.payload()
    assert fake.HOSTILE in str(whole)
    read = Reader(static_html(whole, picture.png(whole)))
    assert not FORBIDDEN & set(read.tags)
    assert "onerror" not in "".join(Reader(html.page(run.run, whole)).scripts)


@pytest.mark.parametrize("name", REAL)
def test_a_real_profile(name):
    import nbprof

    run = nbprof.load(real(name))
    whole = made(run)
    check(run.payload(), "Payload")
    agrees(run, whole)
    data, _ = mimebundle.mimebundle(run.run, run.payload())
    packed = packed_of(data)
    # 4,355 ops with their shares, the largest table there is here.
    assert len(packed) < 345_000
    assert len(base64.b64decode(data["image/png"])) < 120_000
    assert len(data["text/plain"].splitlines()) <= 10
    assert not FORBIDDEN - {"script"} & set(Reader(data["text/html"]).tags)


def test_a_number_of_events_is_taken_wherever_one_is_given(tmp_path):
    run = profile(tmp_path, training_run(30))

    def saved(most):
        page = run.save(tmp_path / "report.html", events=most).read_text()
        return payload_of(page)

    def output(most):
        return payload_of(run.mimebundle(events=most)[0])

    def widget(most):
        return codec.unpack(run.widget(events=most).packed)

    def view(most):
        return codec.unpack(run.trace.widget(events=most).packed)

    lanes = len(run.run.timeline.tracks.lanes)
    for way in (saved, output, widget, view, run.payload):
        none, few, all_ = (way(most)["trace"] for most in (0, np.int64(40), None))
        assert none["shown"] == 0, way
        assert none["rest"]["count"].sum() == none["total"] == all_["shown"]
        assert 20 <= few["shown"] <= 40 + lanes < all_["shown"]
        assert all_["shown"] == all_["total"] > 200
        with pytest.raises(NbprofError, match="a whole number of 0 or more, not 'few'"):
            way("few")
    assert "the longest of the" in str(saved(40)["meta"]["receipt"])
    assert not list(tmp_path.glob("*.part"))
