"""What is slow in the recorded versions: known with the recording beside the files, not from the
files alone.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nbprof.analysis.advice.versions import KNOWN, version
from nbprof.capture.torch import _cudnn
from nbprof.sources.recording import CaptureInfo
from tests.support.kineto import Kineto, profile


@pytest.mark.parametrize(
    ("framework", "says"),
    [
        ("PyTorch 2.9.1+cu128, cuDNN 9.10.2", True),
        ("PyTorch 2.9.1+cu128, cuDNN 9.16.0, Keras 3.12.0", False),
        ("PyTorch 2.9.1+cu128", False),
        ("PyTorch 2.10.0+cu128, cuDNN 9.10.2", False),
        ("", False),
    ],
)
def test_a_recording_with_versions_that_are_slow(tmp_path, framework, says):
    trace = Kineto()
    for number in range(5):
        start = 1000.0 * number
        trace.step(number, start, 1000.0)
        trace.launched(
            "vol2col_kernel",
            start + 10,
            start + 40,
            900.0,
            trace.op("aten::slow_conv_dilated3d", start + 5, 20.0),
        )
    p = profile(tmp_path, trace)
    p.run.capture = CaptureInfo(backend="torch", framework=framework)
    findings = p.advice[p.advice["rule"] == "slow_versions"]
    assert len(findings) == says
    if says:
        assert (
            findings["evidence"]
            .iloc[0]
            .startswith("**0.90 ms** per step are in aten::slow_conv_dilated3d")
        )
        assert findings["gain_ms_per_step"].iloc[0] == pytest.approx(0.9)


def test_each_row_has_the_page_that_names_its_versions():
    assert all(row.source.startswith("https://") and row.first < row.fixed for row in KNOWN)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2.9.1+cu128", (2, 9, 1)), ("2.10.0a0", (2, 10, 0)), ("", ()), ("git", ())],
)
def test_versions_as_numbers(text, numbers):
    assert version(text) == numbers


@pytest.mark.parametrize(
    ("number", "cuda", "used", "text"),
    [
        (91002, "12.8", True, "9.10.2"),
        (8907, "12.1", True, "8.9.7"),
        (90100, "12.4", True, "9.1.0"),
        (91002, "12.8", False, ""),
        (3002000, None, True, ""),
        (None, "12.8", True, ""),
    ],
)
def test_the_version_of_cudnn_as_its_maintainers_write_it(number, cuda, used, text):
    torch: Any = SimpleNamespace(
        version=SimpleNamespace(cuda=cuda),
        cuda=SimpleNamespace(is_initialized=lambda: used),
        backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: number)),
    )
    assert _cudnn(torch) == text
