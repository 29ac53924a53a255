"""Writes what torch.profiler records of an inference engine: iterations annotated as by vLLM or
SGLang, and a toy engine that really runs.

`python -m tests.support.serving` records the toy engine on the CPU, for
tests/data/torch/engine.pt.trace.json.gz.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

from tests.support.kineto import Kineto

LAYER = {
    "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)": "norm",
    "nvjet_hsh_128x64_64x8_1x2_h_bz_TNT": "gemm",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128> >(Flash_fwd_params)": "attention",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)": "communication",
    "fused_moe_kernel": "moe",
    "triton_poi_fused_mul_silu_1": "other",
}
SAMPLE = "void flashinfer::sampling::TopPSamplingFromProbKernel<1024u>(float*)"
PARTS = {**LAYER, SAMPLE: "sampling"}


def vllm(prefill: tuple[int, int], decode: tuple[int, int]) -> str:
    return f"execute_context_{prefill[0]}({prefill[1]})_generation_{decode[0]}({decode[1]})"


def sglang(prefill: tuple[int, int], decode: tuple[int, int]) -> str:
    if prefill[0] and decode[0]:
        return f"step[MIXED bs={prefill[0] + decode[0]}]"
    return (
        f"step[EXTEND bs={prefill[0]} toks={prefill[1]}]"
        if prefill[0]
        else f"step[DECODE bs={decode[0]}]"
    )


class Engine(Kineto):
    """A trace of an engine. With `graphs` an iteration of nothing but decode is a replay; with
    `overlap` the host does not wait for it.

    The host of SGLang copies the batch to the device right before each annotation; both sample
    after it.
    """

    def __init__(
        self,
        annotate: Any = vllm,
        *,
        graphs: bool = False,
        overlap: bool = False,
        layers: int = 2,
        **metadata: Any,
    ) -> None:
        super().__init__(**metadata)
        self.annotate = annotate
        self.graphs, self.overlap, self.layers = graphs, overlap, layers
        self.at = 100.0
        self.free = 0.0

    def iteration(
        self, prefill: tuple[int, int] = (0, 0), decode: tuple[int, int] = (0, 0), name: str = ""
    ) -> None:
        """One iteration of so many requests and tokens; a kernel lasts 5 µs, and 1 µs a token."""
        length = 5.0 + prefill[1] + decode[1]
        if self.annotate is sglang:
            self._launch("Memcpy HtoD (Pinned -> Device)", 2, "cudaMemcpyAsync")
            self.at += 2
        begin, kernels = self.at, [kernel for _ in range(self.layers) for kernel in LAYER]
        self.at += 1
        if self.graphs and not prefill[0]:
            correlation = self.call("cudaGraphLaunch", self.at, 6)
            self.at += 8
            for node, kernel in enumerate(kernels):
                self._work(
                    kernel,
                    length,
                    correlation,
                    **{"graph id": 3, "graph node id": (3 << 32) + node},
                )
        else:
            for kernel in kernels:
                self._launch(kernel, length)
        self.note(name or self.annotate(prefill, decode), begin, self.at - begin + 1)
        self.at += 4
        self._launch(SAMPLE, 7)
        self._launch("Memcpy DtoH (Device -> Pinned)", 3, "cudaMemcpyAsync")
        if not self.overlap:
            self.call("cudaEventSynchronize", self.at, max(self.free - self.at, 0) + 1)
            self.at = max(self.free, self.at) + 2
        self.at += 40

    def _launch(self, name: str, length: float, call: str = "cudaLaunchKernel") -> None:
        op = self.op("aten::copy_" if "Memcpy" in name else "vllm::kernel", self.at, 5)
        self._work(name, length, self.call(call, self.at + 1, 3, op))
        self.at += 6

    def _work(self, name: str, length: float, correlation: int, **args: Any) -> None:
        begin = max(self.free, self.at + 3)
        self.free = begin + length
        (self.copy if "Memcpy" in name else self.kernel)(name, begin, length, correlation, **args)


def serve(engine: Engine) -> Engine:
    """Two prompts, one of which comes while the other is decoded."""
    engine.iteration(prefill=(1, 40))
    for _ in range(3):
        engine.iteration(decode=(1, 1))
    engine.iteration(prefill=(1, 25), decode=(1, 1))
    for _ in range(5):
        engine.iteration(decode=(2, 2))
    return engine


def record(path: Path) -> None:
    """Records a toy engine on the CPU: a small model that generates, its iterations annotated as
    vLLM's are.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.manual_seed(0)
    embed, attend, head = (
        torch.nn.Embedding(32, 16),
        torch.nn.MultiheadAttention(16, 2, batch_first=True),
        torch.nn.Linear(16, 32),
    )
    cache = torch.zeros(0, 16)
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as prof:
        tokens = torch.arange(12)
        for i in range(6):
            name = vllm((1, 12), (0, 0)) if i == 0 else vllm((0, 0), (1, 1))
            with record_function(name):
                x = embed(tokens)
                cache = torch.cat([cache, x])
                y, _ = attend(x[None], cache[None], cache[None], need_weights=False)
                logits = head(y[0, -1:])
            tokens = torch.multinomial(logits.softmax(-1), 1)[0]
            tokens.tolist()
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        prof.export_chrome_trace(str(plain))
        path.write_bytes(
            gzip.compress(
                plain.read_bytes().replace(str(plain).encode(), b"trace.json"), 9, mtime=0
            )
        )


if __name__ == "__main__":
    record(Path(__file__).parents[1] / "data" / "torch" / "engine.pt.trace.json.gz")
