"""PyTorch jobs of several ranks, written as their recorders would: collectives in which early ranks
wait for the last one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.support.kineto import Kineto


def job(
    arrivals: Sequence[Sequence[Sequence[float]]],
    *,
    itself: float = 100,
    nelems: int = 1 << 20,
    sequence: bool = True,
    skew: Sequence[float] = (),
    kernel: str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    collective: str = "allreduce",
) -> list[Kineto]:
    """A file a rank; times in µs.

    Parameters
    ----------
    arrivals : by rank, by step, by collective
        When the rank enters, from the begin of its step; steps take 10,000 µs.
    itself : float
        How long a collective takes once the last rank is there.
    nelems : int
        Elements of bfloat16 that each rank puts in.
    sequence : bool
        Whether the file states the process group and the number of the collective in it, as PyTorch
        does since 2.4.
    skew : by rank
        How far its clock is ahead.
    """
    files = []
    size = len(arrivals)
    for rank, steps in enumerate(arrivals):
        ahead = skew[rank] if skew else 0.0
        file = Kineto(
            distributedInfo={"backend": "nccl", "rank": rank, "world_size": size},
            deviceProperties=[{"id": rank, "name": "GPU"}],
        )
        count = 0
        for number, calls in enumerate(steps):
            begin = 10_000.0 * number + ahead
            file.step(number, begin, 10_000)
            op = file.op("aten::mm", begin + 10, 40)
            file.launched("gemm", begin + 20, begin + 60, 100, op, device=rank)
            for i, at in enumerate(calls):
                # The end is that of the rank which comes last in this collective, by the true
                # clock.
                last = max(
                    other[number][i]
                    for other in arrivals
                    if number < len(other) and i < len(other[number])
                )
                stated = {
                    "Collective name": collective,
                    "In msg nelems": nelems,
                    "Out msg nelems": nelems,
                    "dtype": "BFloat16",
                    "Group size": size,
                }
                if sequence:
                    stated |= {
                        "Process Group Name": "0",
                        "Process Group Ranks": json.dumps(list(range(size))),
                        "Seq": count,
                    }
                count += 1
                file.launched(
                    kernel,
                    begin + at - 20,
                    begin + at,
                    last + itself - at,
                    op,
                    stream=20,
                    device=rank,
                    **stated,
                )
        files.append(file)
    return files
