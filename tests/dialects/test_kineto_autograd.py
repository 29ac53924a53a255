"""Exports of PyTorch's profiler without Kineto, which have no categories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nbprof
from nbprof.profiles.profile import Profile

HOST, DEVICE = "CPU functions", "CUDA functions"


class Export:
    """The list of events that `EventList.export_chrome_trace` writes."""

    def __init__(self, device: str = DEVICE) -> None:
        self.events: list[dict[str, Any]] = []
        self.device = device
        self._arrows = 0

    def op(
        self,
        name: str,
        ts: float,
        dur: float,
        work: tuple[str, float, float] | None = None,
        gpu: int = 0,
    ) -> None:
        """An op, with what it ran on a device: name, start and length."""
        at = {"tid": 1, "pid": HOST, "args": {}}
        self.events.append({"name": name, "ph": "X", "ts": ts, "dur": dur, **at})
        if work is None:
            return
        kernel, start, length = work
        arrow = {"id": self._arrows, "cat": "cpu_to_cuda"}
        there = {"tid": gpu, "pid": self.device, "args": {}}
        self.events += [
            {"name": name, "ph": "s", "ts": ts, **at, **arrow},
            {"name": kernel, "ph": "f", "ts": start, **there, **arrow},
            {"name": kernel, "ph": "X", "ts": start, "dur": length, **there},
        ]
        self._arrows += 1

    def load(self, folder: Path) -> Profile:
        (folder / "trace.json").write_text(json.dumps(self.events))
        return nbprof.load(folder / "trace.json")


def _timed(export: Export, *, spans: bool, gpu: int = 0) -> Export:
    """Five times a convolution, whose ops include one another, and an activation."""
    for at in range(0, 5000, 1000):
        names = ("conv2d", "cudnn_convolution", "relu") if spans else ("", "sgemm", "relu_kernel")
        export.op("conv2d", at + 10, 100, ("conv2d", at + 40, 300) if spans else None, gpu)
        export.op("cudnn_convolution", at + 20, 60, (names[1], at + 50, 280), gpu)
        export.op("relu", at + 120, 20, (names[2], at + 350, 40), gpu)
    return export


def test_ops_of_the_host_are_ops_of_pytorch(tmp_path):
    export = Export()
    for at in range(0, 4000, 1000):
        export.op("aten::linear", at, 500)
        export.op("aten::addmm", at + 100, 300)
        export.op("Optimizer.step#SGD.step", at + 600, 300)
    p = export.load(tmp_path)
    assert p.overview["framework"] == "PyTorch"
    ops = p.ops.frame.set_index("op")
    assert ops.loc["aten::linear", ["occurrences", "total_us", "self_us"]].tolist() == [
        4,
        2000,
        800,
    ]
    assert len(p.steps.frame) == 4
    assert "plain trace" not in str(p.receipt)


@pytest.mark.parametrize("gpu", [0, 3])
def test_kernels_go_to_their_ops_and_devices(tmp_path, gpu):
    p = _timed(Export(), spans=False, gpu=gpu).load(tmp_path)
    kernels = p.kernels.frame.set_index("kernel")
    assert kernels["op"].to_dict() == {"sgemm": "cudnn_convolution", "relu_kernel": "relu"}
    assert kernels["total_us"].to_dict() == {"sgemm": 1400, "relu_kernel": 200}
    assert p.run.devices["device"].tolist() == [gpu]
    assert "timed_ops" not in set(p.receipt.notes["key"])


def test_spans_of_ops_that_include_others_are_no_kernels_beside_them(tmp_path):
    p = _timed(Export(), spans=True).load(tmp_path)
    assert p.kernels.frame.set_index("kernel")["total_us"].to_dict() == {
        "cudnn_convolution": 1400,
        "relu": 200,
    }
    assert "timed_ops" in set(p.receipt.notes["key"])
    # They stay in the timeline.
    assert (p.trace.events()["name"] == "conv2d").sum() == 10


def test_devices_of_other_makers_have_their_name(tmp_path):
    p = _timed(Export("XPU functions"), spans=False).load(tmp_path)
    assert set(p.trace.tracks["process"]) == {"XPU 0", "Host"}


def test_processes_of_that_name_in_a_trace_with_categories_are_others(tmp_path):
    export = Export()
    export.op("f", 0, 100)
    export.events[0]["cat"] = "mine"
    assert export.load(tmp_path).overview["verdict"] == "Plain trace"
