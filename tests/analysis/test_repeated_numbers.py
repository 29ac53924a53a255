"""Step numbers are labels: two loops, or epochs that count anew, have several steps of one number
on a host.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.steps import per_step
from nbprof.analysis.steps.step_rows import step_rows, turns
from nbprof.profiles.report.static import static_html
from nbprof.tools.device_time import payload as device_time
from nbprof.tools.steps import payload as steps_payload
from tests.support.frames import OF_A_PROFILE, public
from tests.support.kineto import Kineto, profile

EPOCHS, PER_EPOCH = 2, 6
MIB = 1 << 20


def epochs(rank=None, ranks=2):
    """A loop that counts each epoch from 0. Each step allocates 1 MiB that is never freed; steps of
    the second epoch take 12 ms, not 10.

    In the second epoch rank 1 is 1 ms late for its collective.
    """
    metadata = (
        {}
        if rank is None
        else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}}
    )
    file = Kineto(
        deviceProperties=[{"id": 0, "name": "GPU", "totalGlobalMem": 16 << 30}], **metadata
    )
    at, count = 0.0, 0
    for epoch in range(EPOCHS):
        for number in range(PER_EPOCH):
            length = 10_000 + 2_000 * epoch
            file.step(number, at, length)
            op = file.op("aten::mm", at + 10, 60)
            count += 1
            file.memory(at + 20, MIB, 2 * count * MIB, count * MIB, count * MIB, device=0)
            file.launched("gemm", at + 20, at + 60, 4000, op)
            if rank is not None:
                begin, end = (
                    at + 5000 + (1000 if rank == 1 and epoch else 0),
                    at + 5200 + 1000 * epoch,
                )
                stated = {
                    "Collective name": "allreduce",
                    "In msg nelems": 1 << 20,
                    "Out msg nelems": 1 << 20,
                    "dtype": "BFloat16",
                    "Group size": ranks,
                    "Process Group Name": "0",
                    "Process Group Ranks": json.dumps(list(range(ranks))),
                    "Seq": count,
                }
                file.launched(
                    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                    at + 30,
                    begin,
                    end - begin,
                    op,
                    stream=20,
                    **stated,
                )
            at += length
    return file


def ranks(tmp_path):
    return profile(tmp_path, epochs(0), epochs(1))


def test_the_steps_keep_their_labels(tmp_path):
    steps = profile(tmp_path, epochs()).steps.frame
    assert steps["step"].tolist() == [*range(PER_EPOCH)] * EPOCHS
    assert steps["step_time_ms"].tolist() == [10.0] * PER_EPOCH + [12.0] * PER_EPOCH


def test_every_frame_and_every_view_is_there(tmp_path):
    for p in (profile(tmp_path, epochs()), ranks(tmp_path)):
        for name in OF_A_PROFILE:
            public(p, name)
        payload = p.payload()
        assert all(
            not (part.get("empty") or {}).get("title", "").endswith("could not be computed")
            for _, part in payload.items()
        )
        assert p.text()
        assert static_html(payload)
        assert "bug in nbprof" not in str(p.receipt)


def test_memory_that_grows_over_all_epochs_is_found(tmp_path):
    growth = profile(tmp_path, epochs()).run._growth()
    assert (growth.steps, growth.rising, growth.each, growth.grown) == (
        EPOCHS * PER_EPOCH,
        1.0,
        MIB,
        (EPOCHS * PER_EPOCH - 1) * MIB,
    )


def test_who_is_waited_for_is_found_in_each_step(tmp_path):
    frame = ranks(tmp_path).device_time.stragglers
    steps = frame[frame["step"].notna()]
    assert len(steps) == 2 * EPOCHS * PER_EPOCH
    late = steps[steps["host"] == "rank 1"]["late_ms"].to_numpy(float)
    assert late.tolist() == pytest.approx([0.0] * PER_EPOCH + [1.0] * PER_EPOCH)
    assert steps["waited_for"].sum() == PER_EPOCH


def test_a_rank_waits_in_a_step_for_what_that_step_waited(tmp_path):
    run = ranks(tmp_path).run
    each = run.device_time.each_collective()
    waits = each[each["host"] == "rank 0"].groupby(["turn", "step"])["wait_us"].sum() / 1e3
    assert waits.tolist() == pytest.approx([0.0] * PER_EPOCH + [1.0] * PER_EPOCH)


def test_the_device_of_each_step_is_drawn(tmp_path):
    part = device_time.payload(profile(tmp_path, epochs()).run)
    assert part["windows"] == [
        "Whole recording",
        *(f"Step {number}" for number in [*range(PER_EPOCH)] * EPOCHS),
    ]
    compute = part["parts_ms"].reshape(len(part["windows"]), -1, 4)[1:, 0, 0]
    assert compute.tolist() == pytest.approx([4.0] * EPOCHS * PER_EPOCH)


def test_the_mean_of_hosts_is_of_one_step_each(tmp_path):
    frame = ranks(tmp_path).run.steps
    mean = steps_payload._over_hosts(frame)
    assert len(mean) == EPOCHS * PER_EPOCH
    assert (
        mean.sort_values("start_ms")["step_time_ms"].tolist()
        == [10.0] * PER_EPOCH + [12.0] * PER_EPOCH
    )


def test_bytes_of_collectives_are_those_of_the_counted_steps(tmp_path):
    run = ranks(tmp_path).run
    each = run.device_time.each_collective()
    counted = run.steps.assign(counted=run.steps["start_ms"] > 59.0)
    some = per_step.counts(run.activity, counted, each)["collective_bytes"]
    size = float(each["bytes"].iloc[0])
    assert some.value == size


def test_turns_and_rows():
    steps = pd.DataFrame(
        {
            "host": ["a", "b", "a", "a"],
            "step": [0, 0, 1, 0],
            "start_ms": [0.0, 0.0, 1.0, 2.0],
            "step_time_ms": 1.0,
        }
    )
    assert turns(steps).tolist() == [0, 0, 0, 1]
    host = np.array(["a", "a", "b", "a", "c"], object)
    assert step_rows(host, np.array([2.5, 0.5, 0.2, 9.0, 0.5]), steps).tolist() == [3, 0, 1, -1, -1]
