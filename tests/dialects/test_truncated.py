"""A truncated file may have had what is missing in it: nothing is said of what a device did, or how
to record it.
"""

from __future__ import annotations

import pytest

import nbprof
from tests.dialects.test_corrupt_durations import training
from tests.fuzz.values import jax_loop
from tests.support.kineto import Kineto
from tests.support.notes import of_key


def device_last(k: Kineto) -> bytes:
    """The file in the order of torch.profiler: what devices did comes behind what the host did."""
    k.events.sort(key=lambda event: event.get("cat") == "kernel")
    return k.encode()


def unknown(p) -> None:
    assert p.overview["verdict"] == "File truncated"
    assert "so what the device did is unknown" in p.overview["verdict_text"]
    assert "Copy the file again" in p.overview["verdict_detail"]
    assert p.overview["device_busy_percent"] is None
    assert not len(p.advice)
    warned = {note.key for note in p.receipt.lines if note.level == "warning"}
    assert "file_read_in_part" in warned
    assert not warned & {"lost_kernels", "unrecorded_gpu", "unknown_gpu_use"}


@pytest.mark.parametrize("part", [0.2, 0.4])
def test_a_trace_of_pytorch_that_ends_before_its_kernels(tmp_path, part):
    data = device_last(training())
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(data[: int(part * len(data))])
    unknown(nbprof.load(path))


def test_one_that_ends_among_its_kernels_has_a_verdict(tmp_path):
    data = device_last(training())
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(data[:-3])
    p = nbprof.load(path)
    assert of_key(p.receipt, "file_read_in_part")
    assert p.overview["verdict"] == "Device-bound"


def test_an_xspace_file_that_ends_before_its_devices(tmp_path):
    data = jax_loop()
    # The planes are two fields of the message: the GPU, then the host.
    gpu = 3 + (data[1] & 0x7F) + (data[2] << 7)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(data[gpu:] + data[: gpu // 2])
    unknown(nbprof.load(path))
