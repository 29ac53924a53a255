"""The time of devices against Holistic Trace Analysis (HTA) on recordings of whole microseconds,
where its rounding changes nothing.

It runs where HTA is installed: in this Python, or in the one that NBPROF_HTA_PYTHON names (`pip
install HolisticTraceAnalysis`). Elsewhere the same figures are held against plain loops, in
tests/analysis/test_device_time.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from tests.support.kineto import load
from tests.support.profiles import real

PYTHON = os.environ.get("NBPROF_HTA_PYTHON", sys.executable)
FILES = {
    "v100": ("kineto/v100-resnet50-workers0/worker0.1623143089861.pt.trace.json.gz",),
    "a100": (
        "kineto/a100-nccl-ranks/sampled_rank-0.json.gz",
        "kineto/a100-nccl-ranks/sampled_rank-1.json.gz",
    ),
}
ASK = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
files = dict(enumerate(sys.argv[1:]))
ranks = list(files)
a = TraceAnalysis(trace_files=files, trace_dir="/", include_last_profiler_step=True)
idle, _ = a.get_idle_time_breakdown(ranks=ranks, visualize=False)
_, kernels = a.get_gpu_kernel_breakdown(visualize=False, num_kernels=100_000, duration_ratio=1.0, include_memory_kernels=True)
launches = a.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False, include_memory_events=True)
queue, copies = a.get_queue_length_summary(ranks=ranks), a.get_memory_bw_time_series(ranks=ranks)
print(json.dumps({
    "temporal": a.get_temporal_breakdown(visualize=False).to_dict("records"),
    "idle": idle.to_dict("records"),
    "overlap": a.get_comm_comp_overlap(visualize=False).to_dict("records"),
    "kernels": kernels.to_dict("records"),
    "launches": {int(rank): rows[["cpu_duration", "gpu_duration", "launch_delay"]].values.tolist() for rank, rows in launches.items()},
    "queue": [[int(rank), int(stream), float(row["count"]), float(row["max"])] for (rank, stream), row in queue["queue_length"].iterrows()],
    "copies": [[int(r), n, float(v)] for r, f in copies.items() for n, v in f.groupby("name")["memory_bw_gbps"].max().items()],
}, default=float))
"""


@cache
def installed():
    return (
        subprocess.run([PYTHON, "-c", "import hta"], capture_output=True, check=False).returncode
        == 0
    )


@cache
def both(name):
    if not installed():
        pytest.skip("HTA is not installed; NBPROF_HTA_PYTHON may name a Python that has it")
    paths = [real(file) for file in FILES[name]]
    done = subprocess.run(
        [PYTHON, "-c", ASK, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    p = load(*paths)
    return p, json.loads(done.stdout.splitlines()[-1]), p.hosts


@pytest.mark.parametrize("name", FILES)
def test_temporal_breakdown(name):
    p, said, hosts = both(name)
    whole = p.device_time.frame[lambda f: f["step"].isna()].set_index("host")
    for row in said["temporal"]:
        ours = whole.loc[hosts[row["rank"]]]
        assert 1000 * ours["time_ms"] == pytest.approx(row["kernel_time(us)"])
        assert 1000 * ours["idle_ms"] == pytest.approx(row["idle_time(us)"])
        assert 1000 * ours["compute_ms"] == pytest.approx(row["compute_time(us)"])
        assert 1000 * (ours["communication_ms"] + ours["memory_ms"]) == pytest.approx(
            row["non_compute_time(us)"]
        )


@pytest.mark.parametrize("name", FILES)
def test_idle_time_by_stream(name):
    p, said, hosts = both(name)
    ours = p.device_time.idle.set_index(["host", "stream", "category"])["idle_ms"]
    for row in said["idle"]:
        assert 1000 * ours[
            hosts[row["rank"]], f"Stream {row['stream']}", row["idle_category"]
        ] == pytest.approx(row["idle_time"])


def test_overlap_of_communication():
    p, said, hosts = both("a100")
    ours = p.device_time.overlap[lambda f: f["step"].isna()].set_index("host")[
        "communication_overlap_percent"
    ]
    for row in said["overlap"]:
        assert ours[hosts[row["rank"]]] == pytest.approx(row["comp_comm_overlap_pctg"], abs=0.005)


@pytest.mark.parametrize("name", FILES)
def test_time_of_kernels(name):
    p, said, hosts = both(name)
    ours = p.device_time.kernels.set_index(["host", "kernel"])
    assert len(said["kernels"]) == len(ours)
    for row in said["kernels"]:
        mine = ours.loc[hosts[row["rank"]], row["name"]]
        assert mine["class"].upper()[:6] == row["kernel_type"].replace("COMPUTATION", "COMPUTE")[:6]
        # Of each kernel HTA's sum is right, whatever becomes of its mean, least and largest.
        assert mine["total_us"] == pytest.approx(row["sum (us)"])


@pytest.mark.parametrize("name", FILES)
def test_every_launch(name):
    p, said, hosts = both(name)
    ours = p.device_time.each_launch
    for rank, rows in said["launches"].items():
        mine = ours[ours["host"] == hosts[int(rank)]][
            ["call_us", "kernel_us", "delay_us"]
        ].to_numpy(np.float64)
        theirs = np.array(rows, np.float64)
        assert len(mine) == len(theirs)
        np.testing.assert_allclose(
            mine[np.lexsort(mine.T)], theirs[np.lexsort(theirs.T)], atol=1e-6
        )


@pytest.mark.parametrize("name", FILES)
def test_queues(name):
    p, said, hosts = both(name)
    ours = p.device_time.queue.set_index(["host", "stream"])
    for rank, stream, changes, most in said["queue"]:
        mine = ours.loc[hosts[rank], f"Stream {stream}"]
        assert (2 * mine["works"], mine["max_length"]) == (changes, most)


@pytest.mark.parametrize("name", FILES)
def test_bandwidth_of_copies(name):
    p, said, hosts = both(name)
    kinds = {
        "HtoD": "host to device",
        "DtoH": "device to host",
        "DtoD": "within the device",
        "Memset": "fill",
    }
    ours = p.device_time.bandwidth.set_index(["host", "copy"])["peak_gb_per_second"]
    for rank, copy, most in said["copies"]:
        assert ours[hosts[rank], kinds[copy.split()[-1]]] == pytest.approx(most)
