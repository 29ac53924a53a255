"""Writes a training of a small model as PyTorch and CUPTI would record it where a CUDA graph is
captured and replayed.

It knows what nbprof has to find out: every kernel of a replay comes with the op, the module and the
line that it was captured from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.kineto import MAIN, Kineto


@dataclass(frozen=True)
class Call:
    """One call of a model: the op, the module that it lies in, the line where the function around
    it begins, what the call launches.
    """

    op: str
    module: str
    line: int
    kernel: str
    call: str = "LaunchKernel"

    @property
    def kind(self) -> str:
        return {"MemcpyAsync": "gpu_memcpy", "MemsetAsync": "gpu_memset"}.get(self.call, "kernel")


def layers(count: int, name: str = "Block") -> list[Call]:
    """Blocks of a model with two Linears, a fill and a copy; all launch kernels of the same
    names.
    """
    out = []
    for i in range(count):
        block = f"Net_0/{name}_{i}"
        out += [
            Call("aten::addmm", f"{block}/Linear_{2 * i}", 40, "sgemm_128x64_nn"),
            Call("aten::gelu", block, 44, "elementwise_gelu"),
            Call("aten::zero_", block, 44, "Memset (Device)", "MemsetAsync"),
            Call("aten::addmm", f"{block}/Linear_{2 * i + 1}", 40, "sgemm_128x64_nn"),
            Call("aten::copy_", block, 44, "Memcpy DtoD (Device -> Device)", "MemcpyAsync"),
        ]
    return out


class Graphed(Kineto):
    """A trace that calls of a model are written to, once run and once captured, and replays of what
    was captured.
    """

    def __init__(self, prefix: str = "cuda", **metadata: Any) -> None:
        super().__init__(**metadata)
        self.prefix = prefix
        self.at = 0.0

    def model(self, calls: list[Call], *, run: bool, stacks: bool = True, tid: int = MAIN) -> None:
        """The calls, each 30 µs, in the frames of their modules; run, or only captured."""
        begin = self.at
        for one in calls:
            at = self.at = self.at + 30
            paths = one.module.split("/")
            if stacks:
                self.add("train.py(7): step", "python_function", at, 28, tid=tid)
                for depth, module in enumerate(paths):
                    self.add(
                        f"nn.Module: {module}",
                        "python_function",
                        at + 0.1 * (depth + 1),
                        27 - depth,
                        tid=tid,
                    )
                self.add(f"model.py({one.line}): forward", "python_function", at + 1, 20, tid=tid)
                self.add(
                    "torch/nn/functional.py(900): call", "python_function", at + 1.5, 18, tid=tid
                )
            op = self.op(one.op, at + 2, 15, tid=tid)
            correlation = self.call(f"{self.prefix}{one.call}", at + 4, 5, op, tid=tid)
            if self.prefix == "hip" and one.kind == "kernel":
                self.events[-1]["args"]["kernel"] = one.kernel
            if run:
                self.work(one, at + 12, 10, correlation)
        self.at += 40
        assert self.at > begin

    def work(self, one: Call, at: float, length: float, correlation: int, **args: Any) -> None:
        stream = args.pop("stream", 7)
        given = {"device": 0, "stream": stream, "correlation": correlation, **args}
        self.add(one.kernel, one.kind, at, length, pid=0, tid=stream, args=given)

    def capture(self, calls: list[Call], **more: Any) -> None:
        self.call(f"{self.prefix}StreamBeginCapture", self.at + 5, 2)
        self.at += 10
        self.model(calls, run=False, **more)
        self.call(f"{self.prefix}StreamEndCapture", self.at, 2)
        self.at += 20

    def replay(self, calls: list[Call], graph: int = 0, lengths: float = 10, **args: Any) -> None:
        """A replay; with the id of a graph its nodes run on two streams, the second half of them
        first.
        """
        correlation = self.call(f"{self.prefix}GraphLaunch", self.at, 5)
        order = list(enumerate(calls, 1))
        if graph:
            half = len(order) // 2
            order = order[half:] + order[:half]
        for place, (node, one) in enumerate(order):
            stated = (
                {
                    "graph id": graph,
                    "graph node id": (graph << 32) + 3 * node,
                    "stream": 7 + place % 2,
                }
                if graph
                else {}
            )
            self.work(one, self.at + 10 + 12 * place, lengths, correlation, **stated, **args)
        self.at += 20 + 12 * len(calls)
