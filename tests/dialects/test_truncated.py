"""A truncated file may have had what is missing in it: nothing is said of what a device did, or how
to record it.
"""

from __future__ import annotations

import pytest

import nbprof
from tests.dialects.test_corrupt_durations import BEGIN, training
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


@pytest.mark.parametrize("part", [0.7, 0.9, 0.999])
def test_one_that_ends_among_its_kernels(tmp_path, part):
    # Kernels are written buffer by buffer: each step may lack some.
    data = device_last(training())
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(data[: int(part * len(data))])
    p = nbprof.load(path)
    assert p.overview["verdict"] == "File truncated"
    assert "may have had device work of" in p.overview["verdict_text"]
    assert p.overview["device_busy_percent"] is p.overview["device_op_percent"] is None
    assert not len(p.advice)
    assert (p.steps.frame["step_time_ms"] > 0).all()
    assert p.steps.frame[["device_compute_ms", "host_compute_ms"]].isna().all(axis=None)
    assert of_key(p.receipt, "steps_in_truncated_part")


def test_one_that_ends_after_its_kernels_has_a_verdict(tmp_path):
    k = training()
    whole = device_last(k)
    last = max(event["ts"] for event in k.events)
    k.events.sort(key=lambda event: event["cat"] == "kernel")
    k.add("PyTorch Profiler (0)", "Trace", BEGIN, last + 1000 - BEGIN, pid="Spans")
    k.add("Record Window End", "", last + 1000, None)
    data = k.encode()
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(data[:-3])
    cut = nbprof.load(path)
    path.write_bytes(whole)
    assert of_key(cut.receipt, "file_read_in_part")
    assert cut.overview["verdict"] == nbprof.load(path).overview["verdict"] == "Device-bound"


def test_an_xspace_file_that_ends_before_its_devices(tmp_path):
    data = jax_loop()
    # The planes are two fields of the message: the GPU, then the host.
    gpu = 3 + (data[1] & 0x7F) + (data[2] << 7)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(data[gpu:] + data[: gpu // 2])
    unknown(nbprof.load(path))
