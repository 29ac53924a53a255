"""Time from the end of a cell to the drawn dashboard: reading, the first picture, analysis, output,
and drawing in Chromium.

Usage: python benchmarks/to_dashboard.py [PROFILE ...] [--repeats 5] [--no-drawing] [--no-peer]
Without arguments it records a Keras run, and writes a run of 100,000 events. The first picture,
which large runs show until the rest is made, counts from the end of the load, as the whole output
does, of which it is a part. CPU seconds stand in parentheses. Of XSpace files, where XProf is
installed, its tools that show the same (overview, input pipeline, op stats, kernels, memory, trace
viewer) are timed on a fresh copy of the file, in fresh processes taken in turn, and the ratio is
printed. Imports are left out on both sides.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# A user's Python keeps what it compiled; a process that compiles nbprof again takes half a second
# longer.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

OURS = """
import resource, sys, time
def now():
    return time.perf_counter(), time.process_time()
began = now()
from nbprof.profiles.load import load
from nbprof.profiles.report import mimebundle
from nbprof.tools import dashboard, register
register.tools()
imported = now()
profile = load(sys.argv[1])
read = now()
first = dashboard.early(profile.run) if dashboard.large(profile.run) else None
if first is not None:
    mimebundle.early(first, None)
pictured = now()
data, _ = profile.mimebundle()
done = now()
if first is None:
    pictured = done
for a, b in ((began, imported), (imported, read), (read, pictured), (read, done)):
    print(*(y - x for x, y in zip(a, b)))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(profile.receipt.events, sum(len(str(v)) for v in data.values()), peak)
"""
SAVE = "import sys; from nbprof.profiles.load import load; load(sys.argv[1]).save(sys.argv[2])"
TOOLS = "overview_page,input_pipeline_analyzer,framework_op_stats,kernel_stats,memory_profile,trace_viewer@"
XPROF = """
import sys, time
began = time.perf_counter()
from xprof.convert import raw_to_tool_data
imported = time.perf_counter()
for tool in sys.argv[2].split(","):
    raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {})
print(time.perf_counter() - imported)
"""


def fresh(code: str, *args: str) -> list[float]:
    out = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True
    )
    return [float(x) for x in out.stdout.split()]


def record(folder: Path) -> Path:
    """A small Keras run, recorded by nbprof."""
    code = (
        "import numpy as np, keras, nbprof, sys\nm = keras.Sequential([keras.layers.Dense(64,"
        " activation='relu'), keras.layers.Dense(1)]); m.compile('adam', 'mse')\nx, y ="
        " np.random.rand(32 * 40, 64), np.random.rand(32 * 40)\nwith"
        " nbprof.profile(logdir=sys.argv[1]) as run:\n    m.fit(x, y, verbose=0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True)
    return next(folder.rglob("*.xplane.pb"))


def synthetic(folder: Path) -> Path:
    """A run of 100,000 events in 12,500 steps."""
    from tests.support.xspace import training_run

    path = folder / "synthetic.xplane.pb"
    path.write_bytes(training_run(12_500))
    return path


def draw(path: Path, folder: Path) -> float | None:
    """Seconds from navigation to the drawn dashboard, for the saved page; None without Chromium."""
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    page_path = folder / "page.html"
    # In a process of its own: those that this one starts later would have its peak memory as
    # theirs.
    subprocess.run([sys.executable, "-c", SAVE, str(path), str(page_path)], check=True)
    with sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        times = []
        for _ in range(4):
            began = time.perf_counter()
            page.goto(page_path.as_uri())
            page.wait_for_function(
                "() => [...document.querySelectorAll('*')].some(e =>"
                " e.shadowRoot?.querySelector('.nbp [role=tab]'))"
            )
            page.evaluate(
                "() => new Promise(done => requestAnimationFrame(() =>"
                " requestAnimationFrame(done)))"
            )
            times.append(time.perf_counter() - began)
        browser.close()
    return statistics.median(times[1:])


def xprof(path: Path, folder: Path) -> float | None:
    """Seconds of XProf's tools on a fresh copy of the file, import left out; None where XProf is
    not installed.
    """
    run = Path(tempfile.mkdtemp(dir=folder))
    shutil.copy(path, run / path.name)
    try:
        return fresh(XPROF, str(run / path.name), TOOLS)[-1]
    except subprocess.CalledProcessError:
        return None


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def measure(
    name: str, path: Path, folder: Path, repeats: int, *, drawing: bool, peer: bool
) -> None:
    rows, peers = [], []
    for _ in range(repeats):
        rows.append(fresh(OURS, str(path)))
        took = xprof(path, folder) if peer else None
        if took is not None:
            peers.append(took)
    middle = [statistics.median(column) for column in zip(*rows, strict=True)]
    _, _, read, read_cpu, first, first_cpu, whole, whole_cpu, events, size, peak = middle
    drawn = draw(path, folder) if drawing else None
    print(f"{name}: {int(events):,} events, output {size / 1000:,.0f} kB, peak {peak:,.0f} MB")
    shown = "not measured" if drawn is None else f"{drawn:.2f} s"
    print(f"  read {read:.2f} s ({read_cpu:.2f}), then")
    print(
        f"  first picture {first:.2f} s ({first_cpu:.2f}), output {whole:.2f} s ({whole_cpu:.2f})"
    )
    print(f"  draw {shown}; {read + whole + (drawn or 0.0):.2f} s in all")
    if peers:
        for label, at in (("first picture", 4), ("whole output", 6)):
            ratios = [(row[2] + row[at]) / took for row, took in zip(rows, peers, strict=True)]
            print(f"  nbprof, read and {label} / XProf, the same six tools: {spread(ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profiles", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-drawing", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    # Each open is to be the first one.
    os.environ["NBPROF_CACHE"] = "0"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profiles = options.profiles or [record(folder / "run"), synthetic(folder)]
        for path in profiles:
            peer = path.name.endswith(".xplane.pb") and not options.no_peer
            measure(
                path.name, path, folder, options.repeats, drawing=not options.no_drawing, peer=peer
            )


if __name__ == "__main__":
    main()
