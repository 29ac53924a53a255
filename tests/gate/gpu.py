"""A small recording of a GPU as PyTorch writes it, with what a gate counts."""

from pathlib import Path

from nbprof.profiles.profile import Profile
from tests.support import kineto


def trained(
    folder: Path,
    *,
    steps: int = 4,
    kernels: int = 3,
    syncs: int = 0,
    pageable: int = 0,
    compiled_in: int = 0,
    name: str = "step",
    extra: str = "",
) -> Profile:
    """Steps of 100 µs with so many kernels, waits for the device and copies each; `extra` is a
    kernel more in the last step.
    """
    trace = kineto.Kineto(deviceProperties=[{"id": 0, "name": "Big GPU"}])
    for number in range(steps):
        at = 1000.0 + 100 * number
        trace.step(number + 1, at, 90)
        op = trace.op("aten::mm", at, 50)
        for i in range(kernels):
            trace.launched(f"gemm_{i}", at + 2 * i, at + 10 + 4 * i, 3, op)
        if extra and number == steps - 1:
            trace.launched(extra, at + 40, at + 60, 3, op)
        for i in range(syncs):
            trace.call("cudaStreamSynchronize", at + 60 + 2 * i, 1)
        for i in range(pageable):
            call = trace.call("cudaMemcpyAsync", at + 70 + i, 1)
            trace.copy("Memcpy HtoD (Pageable -> Device)", at + 75 + 2 * i, 1, call, bytes=64)
        if compiled_in == number + 1:
            trace.note("compile_inner (dynamo_timed)", at + 20, 20)
    folder.mkdir(exist_ok=True, parents=True)
    return kineto.profile(folder, trace, names=(f"{name}.pt.trace.json",))
