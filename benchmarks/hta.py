"""How long the analyses of `p.device_time` take, side by side with those of Holistic Trace Analysis
(HTA) on the same file.

    pip install HolisticTraceAnalysis          # into this Python, or into the one that --peer-python names
    python benchmarks/hta.py rank0.pt.trace.json.gz [--repeats 3] [--peer-python ../venv-hta/bin/python]

Each measurement is a fresh process that has read the file before the clock starts: only the
analyses are timed. Both make the temporal breakdown, idle time, overlap, kernel breakdown, launch
statistics, queue lengths and memory bandwidth; HTA makes no collectives, and its critical path is
left out, which fails with pandas 3. Ours makes all frames, those too. Reported are the medians, and
HTA's time by ours, pair by pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

OURS = """
import json, os, sys, time
os.environ["NBPROF_CACHE"] = "0"
import nbprof.profiles.load
p = nbprof.profiles.load(sys.argv[1])
run = p.run
a = run.activity
made = run.steps, a.kernels, a.transfers, a.collectives, a.launches, a.host_ops, a.calls, run.trace.events.parent
began = time.perf_counter()
frames = run.device_time.frames
series = run.device_time.queue_series(), run.device_time.bandwidth_series(), run.device_time.each_launch()
print(json.dumps([time.perf_counter() - began, len(run.trace.events), int(frames["device_kernels"]["occurrences"].sum())]))
"""
HTA = """
import json, logging, sys, time, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
a = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/", include_last_profiler_step=True)
began = time.perf_counter()
a.get_temporal_breakdown(visualize=False)
a.get_idle_time_breakdown(ranks=[0], visualize=False)
a.get_comm_comp_overlap(visualize=False)
a.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
launches = a.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
a.get_queue_length_time_series(ranks=[0])
a.get_queue_length_summary(ranks=[0])
a.get_memory_bw_time_series(ranks=[0])
a.get_memory_bw_summary(ranks=[0])
print(json.dumps([time.perf_counter() - began, len(a.t.get_trace(0)), len(launches[0])]))
"""


def measure(python: str, code: str, path: Path) -> list[float]:
    """Seconds, events and works of one fresh process."""
    done = subprocess.run(
        [python, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{python} failed on {path}:\n{done.stderr[-2000:]}")
    out: list[float] = json.loads(done.stdout.splitlines()[-1])
    return out


def main() -> None:
    """Measures both in turn and prints a line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable)
    asked = parser.parse_args()
    pairs = [
        (measure(sys.executable, OURS, asked.file), measure(asked.peer_python, HTA, asked.file))
        for _ in range(asked.repeats)
    ]
    for name, rows in (
        ("nbprof", [ours for ours, _ in pairs]),
        ("HTA", [theirs for _, theirs in pairs]),
    ):
        seconds = [row[0] for row in rows]
        print(
            f"{name:<8} {statistics.median(seconds):7.2f} s"
            f" ({min(seconds):.2f}–{max(seconds):.2f}), {rows[0][1]:,} events kept"
        )
    ratio = [theirs[0] / ours[0] for ours, theirs in pairs]
    print(
        f"HTA takes {statistics.median(ratio):.1f} times as long"
        f" ({min(ratio):.1f}–{max(ratio):.1f}); {pairs[0][0][2]:,.0f} works"
    )


if __name__ == "__main__":
    main()
