"""Jobs of many ranks or hosts with a planted straggler, written as their recorders would: PyTorch's
JSON or TensorFlow's XSpace.

A job is simulated by the true time: each rank takes its batch, launches a few kernels, exchanges
with its neighbour and then with all. Durations vary at random, and each file has its own clock,
seconds away from the others and a little faster or slower.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from nbprof.analysis.pods import memory
from tests.support.kineto import Kineto
from tests.support.xspace import PlaneWriter, Ref, xspace

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM, SOFTMAX, NORM = (
    "ampere_bf16_s16816gemm_bf16_128x128",
    "softmax_warp_forward",
    "layer_norm_kernel",
)
BASE = {
    "input": 400.0,
    "host": 120.0,
    GEMM: 2400.0,
    SOFTMAX: 700.0,
    NORM: 600.0,
    GATHER: 250.0,
    REDUCE: 500.0,
}
"""How long each takes, µs. A step is about 5 ms."""
PLANTS = ("kernel", "clock", "once", "input", "host", "link")
"""One kernel is slow on one rank; all its kernels; it pauses in one step; its input, its host is
slow; the link of two neighbours is.
"""
KERNELS = (GEMM, SOFTMAX, GATHER, NORM, REDUCE)
_PS = 1_000_000


@dataclass
class Planted:
    """What is wrong with a job, and where; no ranks where nothing is."""

    plant: str | None
    ranks: tuple[int, ...] = ()
    step: int | None = None


@dataclass
class Rank:
    """One rank by its own clock, µs: (name, begin, end) of what it did in each step."""

    number: int
    steps: list[tuple[float, float]] = field(default_factory=list)
    did: list[dict[str, tuple[float, float]]] = field(default_factory=list)


def simulate(
    ranks: int,
    steps: int,
    plant: str | None = None,
    seed: int = 0,
    *,
    jitter: float = 0.02,
    apart_s: float = 5.0,
    pairs: bool = True,
) -> tuple[list[Rank], Planted]:
    """The job by the clocks of its ranks.

    Parameters
    ----------
    ranks, steps : int
        An even number of ranks.
    plant : str, optional
        One of `PLANTS`; nothing is wrong without.
    seed : int
    jitter : float
        Relative deviation of every duration.
    apart_s : float
        Up to how many seconds the clocks are ahead or behind.
    pairs : bool
        Whether neighbours exchange before all do.
    """
    assert pairs or plant != "link"
    chance = random.Random(f"{plant} {seed}")
    slow = chance.randrange(ranks)
    planted = Planted(plant)
    if plant:
        pair = (slow - slow % 2, slow - slow % 2 + 1)
        planted = Planted(
            plant,
            pair if plant == "link" else (slow,),
            chance.randrange(1, steps - 1) if plant == "once" else None,
        )
    # No two machines are quite the same.
    own = [1 + 0.003 * chance.gauss(0, 1) for _ in range(ranks)]
    ahead = [chance.uniform(-1, 1) * apart_s * 1e6 for _ in range(ranks)]
    rate = [1 + 1e-5 * chance.uniform(-1, 1) for _ in range(ranks)]
    out = [Rank(number) for number in range(ranks)]
    left = [10e6 + chance.uniform(0, 30) for _ in range(ranks)]

    def takes(what: str, rank: int, step: int) -> float:
        time = BASE[what] * own[rank] * max(0.5, chance.gauss(1, jitter))
        if rank not in planted.ranks:
            return time
        times = {
            "kernel": 1.3 if what == GEMM else 1.0,
            "clock": 1.2 if what in (GEMM, SOFTMAX, NORM) else 1.0,
            "input": 4.0 if what == "input" else 1.0,
            "host": 8.0 if what == "host" else 1.0,
            "link": 4.0 if what == GATHER else 1.0,
            "once": 30.0 if what == "host" and step == planted.step else 1.0,
        }
        return time * times[str(plant)]

    for step in range(steps):
        did: list[dict[str, tuple[float, float]]] = [{} for _ in out]

        def together(
            what: str, members: range, arrived: list[float], step: int = step, did: list[dict] = did
        ) -> list[float]:
            end = max(arrived[r] for r in members) + takes(what, members[0], step)
            ends = {r: end + chance.uniform(0, 4) for r in members}
            for r in members:
                did[r][what] = (arrived[r], ends[r])
            return [ends.get(r, at) for r, at in enumerate(arrived)]

        at = list(left)
        for what in ("input", "host", GEMM, SOFTMAX):
            for r in range(ranks):
                end = at[r] + takes(what, r, step)
                did[r][what] = (at[r], end)
                at[r] = end + 2
        for pair in range(0, ranks if pairs else 0, 2):
            at = together(GATHER, range(pair, pair + 2), at)
        for r in range(ranks):
            end = at[r] + 2 + takes(NORM, r, step)
            did[r][NORM] = (at[r] + 2, end)
            at[r] = end + 2
        at = together(REDUCE, range(ranks), at)
        for r, rank in enumerate(out):
            by = _clock(ahead[r], rate[r])
            rank.steps.append((by(left[r]), by(at[r] + 5)))
            rank.did.append({what: (by(begin), by(end)) for what, (begin, end) in did[r].items()})
            left[r] = at[r] + 15 + chance.uniform(0, 10)
    return out, planted


def _clock(ahead: float, rate: float) -> Callable[[float], float]:
    # Recorders write nanoseconds; an hour after the machine began to count, whatever the clock is.
    return lambda time: round(time * rate + ahead + 3.6e9, 3)


def _length(when: tuple[float, float]) -> float:
    return round(when[1] - when[0], 3)


def kineto(rank: Rank, ranks: int) -> Kineto:
    """The file of a rank as PyTorch writes it."""
    file = Kineto(
        distributedInfo={"backend": "nccl", "rank": rank.number, "world_size": ranks},
        deviceProperties=[{"id": 0, "name": "NVIDIA H100"}],
    )
    pair = rank.number - rank.number % 2
    for number, ((begin, end), did) in enumerate(zip(rank.steps, rank.did, strict=True)):
        file.step(number, begin, round(end - begin, 3))
        file.note(
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            begin,
            _length(did["input"]),
        )
        called, ready = did["host"]
        op = file.op("aten::linear", called, _length(did["host"]))
        for i, (name, (at, until)) in enumerate(
            (name, when) for name, when in did.items() if name in KERNELS
        ):
            more = {}
            if name in (GATHER, REDUCE):
                members, group = (
                    ([pair, pair + 1], f"{1 + pair // 2}")
                    if name == GATHER
                    else (list(range(ranks)), "0")
                )
                more = {
                    "Collective name": "_allgather_base" if name == GATHER else "allreduce",
                    "In msg nelems": 1 << 20,
                    "Out msg nelems": 1 << 21 if name == GATHER else 1 << 20,
                    "dtype": "BFloat16",
                    "Group size": len(members),
                    "Process Group Name": group,
                    "Process Group Ranks": json.dumps(members),
                    "Seq": number,
                }
            # The host is done with launching before the first kernel begins.
            launch = round(ready - 1.2 * (5 - i), 3)
            stream = 20 if more else 7
            file.launched(name, launch, at, round(until - at, 3), op, stream=stream, **more)
        file.call("cudaDeviceSynchronize", ready + 1, round(end - ready - 2, 3))
    return file


def host(rank: Rank) -> bytes:
    """The file of a host with one GPU as TensorFlow writes it: collectives without numbers or
    groups.
    """
    gpu = PlaneWriter(
        "/device:GPU:0",
        {
            "device_vendor": "Nvidia",
            "compute_cap_major": 9,
            "compute_cap_minor": 0,
            "memory_size": 2**34,
        },
    )
    plane = PlaneWriter("/host:CPU")
    zero = int(rank.steps[0][0] // 1000) * 1000
    kernels, marks, pool = [], [], []
    streams: list[bytes] = []

    def place(begin: float, end: float) -> tuple[int, int]:
        return round((begin - zero) * _PS), round((end - begin) * _PS)

    detail = "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75"
    for number, ((begin, end), did) in enumerate(zip(rank.steps, rank.did, strict=True)):
        step = {"group_id": number}
        marks.append(plane.event("train", *place(begin, end), step_num=number, _r=1, **step))
        pool.append(plane.event("IteratorGetNext", *place(*did["input"]), **step))
        pool.append(plane.event("ExecutorState::Process", *place(*did["host"]), **step))
        for i, (name, when) in enumerate(
            (name, when) for name, when in did.items() if name in KERNELS
        ):
            shared = name in (GATHER, REDUCE)
            op = Ref(
                "grad/CollectiveReduceV2:CollectiveReduceV2" if shared else "dense/MatMul:MatMul"
            )
            said = {
                "correlation_id": 10 * number + i + 1,
                "kernel_details": detail,
                "tf_op": op,
                **step,
            }
            (streams if shared else kernels).append(gpu.event(name, *place(*when), **said))
    gpu.line("Stream #7(Compute)", kernels, line_id=7, timestamp_ns=zero * 1000)
    gpu.line("Stream #20(Compute)", streams, line_id=20, timestamp_ns=zero * 1000)
    plane.line("python", marks, line_id=1, timestamp_ns=zero * 1000)
    plane.line("tf_pool", pool, line_id=2, timestamp_ns=zero * 1000)
    return xspace(gpu, plane, hostname=f"host{rank.number}")


def write(
    folder: Path,
    ranks: int = 8,
    steps: int = 20,
    plant: str | None = None,
    seed: int = 0,
    *,
    form: str = "kineto",
    jitter: float = 0.02,
    apart_s: float = 5.0,
) -> Planted:
    """Writes the files of a job, one a rank, into a folder that `nbprof.load` opens; says what is
    planted where.

    Parameters
    ----------
    folder : Path
        It is made.
    form : str
        "kineto" for PyTorch's ranks, "xspace" for TensorFlow's hosts, which state no groups: they
        exchange with all others only.
    ranks, steps, plant, seed, jitter, apart_s
        As of `simulate`.
    """
    found, planted = simulate(
        ranks, steps, plant, seed, jitter=jitter, apart_s=apart_s, pairs=form == "kineto"
    )
    folder.mkdir(parents=True, exist_ok=True)
    for rank in found:
        if form == "xspace":
            (folder / f"host{rank.number:04d}.xplane.pb").write_bytes(host(rank))
        else:
            (folder / f"rank{rank.number:04d}.1700000000000.pt.trace.json").write_bytes(
                kineto(rank, ranks).encode()
            )
    return planted


def tables(found: list[Rank]) -> dict[str, Any]:
    """What is compared of the hosts, by the parameters of `compare`: what nbprof makes of the
    PyTorch files of the same ranks.

    It is a hundred times as fast as files, for tests of chance; a test holds it against files.
    """
    hosts = [f"rank {rank.number}" for rank in found]
    steps, overlap, each, sums = [], [], [], []
    zero = min(rank.steps[0][0] for rank in found)
    for rank, name in zip(found, hosts, strict=True):
        pair = rank.number - rank.number % 2
        for number, ((begin, end), did) in enumerate(zip(rank.steps, rank.did, strict=True)):
            took = {what: until - at for what, (at, until) in did.items()}
            shared = sum(took.get(what, 0) for what in (GATHER, REDUCE))
            launches = sum(what in KERNELS for what in did)
            compute = took[GEMM] + took[SOFTMAX] + took[NORM]
            parts = {
                "device_compute": compute,
                "device_collectives": shared,
                "host_compute": took["host"] - launches,
                "kernel_launch": launches,
                "input": took["input"],
            }
            parts |= {
                "device_to_device": 0.0,
                "output": 0.0,
                "compile": float("nan"),
                "other": end - begin - sum(parts.values()),
            }
            when = {"start_ms": (begin - zero) / 1e3, "step": number}
            steps.append(
                {
                    "host": name,
                    "step_time_ms": (end - begin) / 1e3,
                    "counted": True,
                    "group": number,
                    **when,
                }
                | {f"{category}_ms": time / 1e3 for category, time in parts.items()}
            )
            mine = {"host": name, "rank": rank.number, "device": 0, **when}
            overlap.append(
                mine | {"communication_ms": shared / 1e3, "exposed_communication_ms": shared / 1e3}
            )
            for what, group in ((GATHER, 1 + pair // 2), (REDUCE, 0)):
                if what in did:
                    facts = {
                        "start_ms": (did[what][0] - zero) / 1e3,
                        "time_us": took[what],
                        "_what": what,
                        "_key": (number, group),
                    }
                    each.append(mine | facts)
        for what in (*KERNELS, "input", "host"):
            if what not in (GATHER, REDUCE):
                where, kind, label = {
                    "input": (
                        "host",
                        "op",
                        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                    ),
                    "host": ("host", "op", "aten::linear"),
                }.get(what, ("device", "kernel", what))
                total = round(sum((did[what][1] - did[what][0]) * _PS for did in rank.did))
                row = {"occurrences": len(rank.did), "total_ps": total, "self_ps": total}
                sums.append({"host": name, "where": where, "kind": kind, "name": label, **row})
    collectives = pd.DataFrame(each)
    collectives["match"] = collectives.groupby("_key", sort=True).ngroup()
    time = collectives.groupby("match")["time_us"]
    collectives["real_us"], collectives["ranks_seen"] = (
        time.transform("min"),
        time.transform("size"),
    )
    collectives.loc[collectives["ranks_seen"] < 2, "match"] = -1
    collectives["wait_us"] = collectives["time_us"] - collectives["real_us"]
    collectives["late_us"] = time.transform("max") - collectives["time_us"]
    collectives["last"] = collectives.index.isin(time.idxmin())
    collectives["collective"] = collectives["_what"].map(
        {GATHER: "all_gather", REDUCE: "all_reduce"}
    )
    collectives["process_group"] = [str(group) for _, group in collectives["_key"]]
    collectives["description"] = ""
    collectives["sequence"] = pd.array([number for number, _ in collectives["_key"]], "Int64")
    collectives["group_size"] = pd.array(collectives["ranks_seen"], "Int64")
    collectives["bytes"] = pd.array(
        collectives["_what"].map({GATHER: 1 << 22, REDUCE: 1 << 21}), "Int64"
    )
    rate = collectives["bytes"].astype(float) / collectives["real_us"] / 1e3
    bus = collectives["_what"].map({GATHER: 0.5, REDUCE: 2 * (len(found) - 1) / len(found)})
    collectives = collectives.assign(
        algorithm_gb_per_second=rate, bus_gb_per_second=rate * bus
    ).astype({"rank": "Int64", "step": "Int64"})
    table = pd.DataFrame(steps)
    return {
        "hosts": hosts,
        "steps": table,
        "pods": table.assign(worker=table["host"]),
        "overlap": pd.DataFrame(overlap).astype({"rank": "Int64", "step": "Int64"}),
        "each": collectives.drop(columns=["_what", "_key"]),
        "by_host": pd.DataFrame(sums),
        "devices": pd.DataFrame({"host": hosts, "device": 0}),
        "memory_calls": memory.none(),
    }
