"""Whatever a Kineto file says, the dialect gives frames that hold together."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.kineto import profile

CATS = [
    *(
        "cpu_op",
        "user_annotation",
        "kernel",
        "gpu_memcpy",
        "gpu_memset",
        "cuda_runtime",
        "cuda_driver",
        "python_function",
        "overhead",
    ),
    *(
        "gpu_user_annotation",
        "cuda_sync",
        "Operator",
        "Kernel",
        "Runtime",
        "Memcpy",
        "Trace",
        "other",
        "",
    ),
]
NAMES = [
    *(
        "aten::mm",
        "aten::linear",
        "ProfilerStep#1",
        "ProfilerStep#2",
        "ProfilerStep#",
        "Optimizer.step#SGD.step",
        "MmBackward0",
    ),
    *(
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaGraphLaunch",
        "hipFree",
    ),
    *(
        "cudaDeviceSynchronize",
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy DtoH (Device -> Pinned)",
        "Memset (Device)",
        "[memory]",
    ),
    *(
        "ncclDevKernel_AllReduce",
        "void gemm<float>(float*)",
        "Torch-Compiled Region: 0/0",
        "x (dynamo_timed)",
        "",
        "[OutOfMemory]",
    ),
]
NUMBER = st.one_of(
    st.integers(-2, 6),
    st.sampled_from([2**31, 2**48, 2**63, 2**64, -(2**63), 1.5]),
    st.text(max_size=2),
    st.none(),
    st.booleans(),
)
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "correlation": NUMBER,
        "External id": NUMBER,
        "external id": NUMBER,
        "device": NUMBER,
        "stream": NUMBER,
        "bytes": NUMBER,
        "Bytes": NUMBER,
        "Addr": NUMBER,
        "Total Allocated": NUMBER,
        "Total Reserved": NUMBER,
        "Device Type": NUMBER,
        "Device Id": NUMBER,
        "registers per thread": NUMBER,
        "shared memory": NUMBER,
        "grid": st.one_of(st.lists(st.integers(-1, 3), max_size=4), NUMBER),
        "block": st.one_of(
            st.lists(st.one_of(st.integers(0, 3), st.text(max_size=1)), max_size=3), NUMBER
        ),
        "est. achieved occupancy %": NUMBER,
        "Input type": st.one_of(
            st.lists(st.sampled_from(["float", "c10::Half", "long int", "", '"']), max_size=3),
            NUMBER,
        ),
        "Collective name": st.one_of(st.sampled_from(["allreduce", ""]), NUMBER),
        "In msg nelems": NUMBER,
        "dtype": st.one_of(st.sampled_from(["Float", "nothing"]), NUMBER),
        "Group size": NUMBER,
    },
)
EVENT = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "X", "i"]),
        "cat": st.sampled_from(CATS),
        "name": st.sampled_from(NAMES),
        "pid": st.sampled_from([0, 1, 100, "Spans", -1]),
        "tid": st.sampled_from([0, 7, 100, "stream 7", "PyTorch Profiler"]),
        "ts": st.integers(0, 60).map(lambda x: x / 4),
        "dur": st.integers(0, 40).map(lambda x: x / 4),
    },
    optional={"args": ARGS},
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "deviceProperties": st.one_of(
            st.just(
                [
                    {
                        "id": 0,
                        "name": "GPU",
                        "totalGlobalMem": 2**34,
                        "computeMajor": 8,
                        "computeMinor": 0,
                    }
                ]
            ),
            NUMBER,
        ),
        "distributedInfo": st.one_of(
            st.just({"rank": 0, "world_size": 2}),
            NUMBER,
            st.just({"rank": "x", "world_size": None}),
        ),
        "WARNING": st.one_of(st.just(["dropped"]), NUMBER),
    },
)


@settings(
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    files=st.lists(
        st.tuples(METADATA, st.lists(EVENT, min_size=1, max_size=30)), min_size=1, max_size=2
    )
)
def test_frames_hold_together(tmp_path, files):
    p = profile(
        tmp_path,
        *(json.dumps({**metadata, "traceEvents": events}).encode() for metadata, events in files),
    )
    run = p.run
    steps = p.steps.frame
    if len(steps):
        # host_to_device_ms is a part of input_ms, waiting_ms of other_ms.
        parts = [
            c
            for c in steps.columns
            if c.endswith("_ms")
            and c not in ("start_ms", "step_time_ms", "host_to_device_ms", "waiting_ms")
        ]
        assert steps[parts].fillna(0.0).sum(axis=1).to_numpy() == pytest.approx(
            steps["step_time_ms"].to_numpy(), abs=1e-9
        )
        assert (steps[parts].fillna(0.0) >= 0).all(axis=None)
        assert steps["counted"].any()
    ops = p.ops.frame
    assert (ops["self_us"] >= 0).all()
    if run.activity.framework.title == "PyTorch":
        events = run.trace.events
        device = (run.trace.lanes["kind"] == "device").to_numpy()[events.lane]
        assert ops.loc[ops["where"] == "device", "total_us"].sum() == pytest.approx(
            events.duration[device].sum() / 1e6
        )
        assert np.isin(run.activity.launches.frame()["event"], np.arange(len(events))).all()
    assert p.trace.lanes["events"].sum() == len(run.trace.events)
    p.payload()
    p.text()
    str(p.receipt)
    for table in ("transfers", "collectives", "calls", "devices", "iterators"):
        getattr(run.activity, table)
