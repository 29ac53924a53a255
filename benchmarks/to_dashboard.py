"""Time from the end of a cell to the drawn dashboard: reading, analysis, output, and drawing in Chromium.

Usage: python benchmarks/to_dashboard.py [PROFILE ...]
Without arguments it records a Keras run, and writes a run of 100,000 events.
Where XProf is installed, its tools that show the same (overview, input pipeline, op stats, kernels, memory, trace viewer)
are timed on a fresh copy of the file, in fresh processes taken in turn, and the ratio is printed. Imports are left out on
both sides.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

OURS = """
import sys, time
began = time.perf_counter()
from nbprof.profiles.load import load
imported = time.perf_counter()
profile = load(sys.argv[1])
read = time.perf_counter()
data, _ = profile.mimebundle()
done = time.perf_counter()
print(imported - began, read - imported, done - read, profile.receipt.events, sum(len(str(v)) for v in data.values()))
"""
TOOLS = "overview_page,input_pipeline_analyzer,framework_op_stats,kernel_stats,memory_profile,trace_viewer@"
XPROF = """
import sys, time
began = time.perf_counter()
from xprof.convert import raw_to_tool_data
imported = time.perf_counter()
for tool in sys.argv[2].split(","):
    raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {})
print(imported - began, time.perf_counter() - imported)
"""


def fresh(code: str, *args: str) -> list[float]:
    out = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return [float(x) for x in out.stdout.split()[-5:]]


def record(folder: Path) -> Path:
    """A small Keras run, recorded by nbprof."""
    code = (
        "import numpy as np, keras, nbprof, sys\n"
        "m = keras.Sequential([keras.layers.Dense(64, activation='relu'), keras.layers.Dense(1)]); m.compile('adam', 'mse')\n"
        "x, y = np.random.rand(32 * 40, 64), np.random.rand(32 * 40)\n"
        "with nbprof.profile(logdir=sys.argv[1]) as run:\n"
        "    m.fit(x, y, verbose=0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True)
    return next(folder.rglob("*.xplane.pb"))


def synthetic(folder: Path) -> Path:
    """A run of 100,000 events in 1,000 steps."""
    from tests.support.xspace import training_run

    path = folder / "synthetic.xplane.pb"
    path.write_bytes(training_run(12_500))
    return path


def draw(path: Path, folder: Path) -> float | None:
    """Seconds from navigation to the drawn dashboard, for the saved page; None without Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    from nbprof.profiles.load import load

    page_path = load(path).save(folder / "page.html")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        times = []
        for _ in range(4):
            began = time.perf_counter()
            page.goto(page_path.as_uri())
            page.wait_for_function("() => [...document.querySelectorAll('*')].some(e => e.shadowRoot?.querySelector('.nbp [role=tab]'))")
            page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            times.append(time.perf_counter() - began)
        browser.close()
    return statistics.median(times[1:])


def xprof(path: Path, folder: Path) -> float | None:
    """Seconds of XProf's tools on a fresh copy of the file, import left out; None where XProf is not installed."""
    run = Path(tempfile.mkdtemp(dir=folder))
    shutil.copy(path, run / path.name)
    try:
        return fresh(XPROF, str(run / path.name), TOOLS)[-1]
    except subprocess.CalledProcessError:
        return None


def measure(name: str, path: Path, folder: Path, repeats: int) -> None:
    rows, peers = [], []
    for _ in range(repeats):
        rows.append(fresh(OURS, str(path)))
        peer = xprof(path, folder)
        if peer is not None:
            peers.append(peer)
    middle = [statistics.median(column) for column in zip(*rows, strict=True)]
    drawn = draw(path, folder)
    total = middle[1] + middle[2] + (drawn or 0.0)
    print(f"{name}: {int(middle[3]):,} events, output {middle[4] / 1000:,.0f} kB")
    shown = "not measured" if drawn is None else f"{drawn:.2f} s"
    print(f"  read {middle[1]:.2f} s, analyse and build the output {middle[2]:.2f} s, draw {shown}: {total:.2f} s")
    if peers:
        ratios = [(r[1] + r[2]) / p for r, p in zip(rows, peers, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(f"  nbprof (six tabs, report and picture) / XProf (the same six tools): {spread}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profiles = options.profiles or [record(folder / "run"), synthetic(folder)]
        for path in profiles:
            measure(path.name, path, folder, options.repeats)


if __name__ == "__main__":
    main()
