"""The trace view at full size: first picture, tiles, frames and memory, measured in Chromium; and
XProf's trace viewer on the same file.

    python benchmarks/trace.py [--seeds tf,jax] [--events 10M]
    python benchmarks/trace.py big.xplane.pb --width 1400 --out table.md

Inputs are made by `replicate.py` and kept in `--folder`. A process of its own loads the profile and
answers the page over HTTP on this machine, with the function that answers a kernel's comm and the
server extension; a page in Chromium (headless, software drawing) shows the trace tab, and a script
moves through it: zoom by keys and by Ctrl+wheel, pan by keys and by dragging, the overview strip,
and jumps.

Told are: from the loaded profile to the first picture that was drawn from all events (profile
loaded in the process, page open: payload, index, tiles, drawing); the answers to requests of tiles
as the page sees them (median, 95th percentile, longest) and the part spent in nbprof; the time
between frames while moving, and how many took over 32 ms; what the page's heap and the renderer's
process take more than before the dashboard was there; what the process takes more for the trace
than it took for the profile.

XProf (2.24, where installed) answers `trace_viewer@` for the same file in a fresh folder: the first
answer, which builds its store, and answers for windows of falling length with the viewer's own
resolution of 8,000; the page that would have to parse and draw them is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from decode import has, make, number, warm

ROOT = Path(__file__).resolve().parents[1]
HOST = """
import json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import psutil
from nbprof.profiles.load import load
from nbprof.profiles.report import bundle
from nbprof.profiles.comms import answer
from nbprof.display import codec
from nbprof.tools.dashboard import dashboard

def rss():
    return psutil.Process().memory_info().rss

began = time.perf_counter()
profile = load(sys.argv[1])
events = len(profile.run.trace.events)
loaded = time.perf_counter()
told = {"load": loaded - began, "events": events, "rss_loaded": rss()}
packed = codec.pack(dashboard(profile.run, None))
told |= {"payload": time.perf_counter() - loaded, "rss_payload": rss(), "packed": len(packed)}
spent = []

PAGE = '''<!doctype html><meta charset="utf-8"><body style="margin:0"><div id="here"></div><script type="module">
import { Line, mount } from "/dashboard.js";
const data = new Uint8Array(await (await fetch("/payload")).arrayBuffer());
window.tiles = [];
const asker = new Line();
await asker.attach(async (request, signal) => {
  const began = performance.now();
  const reply = await fetch("/ask", { method: "POST", body: JSON.stringify(request), signal });
  const bytes = await reply.arrayBuffer();
  if (request.ask === "tiles") window.tiles.push([performance.now() - began, bytes.byteLength]);
  return bytes;
});
window.start = async () => {
  window.began = performance.now();
  await mount(document.getElementById("here"), data, { live: true, tab: "trace", ask: asker });
};
window.ready = true;
</script>'''

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def send(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == "/dashboard.js":
            self.send(bundle.script().encode(), "text/javascript")
        elif self.path == "/payload":
            self.send(packed, "application/octet-stream")
        elif self.path == "/told":
            self.send(json.dumps(told | {"rss": rss(), "spent": spent}).encode(), "application/json")
        else:
            self.send(PAGE.encode(), "text/html")
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        began = time.perf_counter()
        body = answer(profile.run, request)
        if request["ask"] == "tiles":
            spent.append(time.perf_counter() - began)
        self.send(body, "application/octet-stream")

class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        # A page that no longer waits for an answer hangs up.
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
            super().handle_error(*_)

server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
XPROF = """
import json, random, sys, time
from xprof.convert import raw_to_tool_data
def ask(**options):
    began = time.perf_counter()
    text, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "trace_viewer@", {"trace_viewer_options": options})
    return time.perf_counter() - began, text
first, text = ask(resolution="8000")
whole = [e for e in json.loads(text)["traceEvents"] if e.get("ph") == "X"]
left = min(e["ts"] for e in whole) / 1e3
right = max(e["ts"] + e["dur"] for e in whole) / 1e3
random.seed(1)
times, sizes = [], []
for i in range(40):
    length = (right - left) * 10 ** (-(i % 10) / 2)
    at = left + (right - left - length) * random.random()
    spent, text = ask(start_time_ms=str(at), end_time_ms=str(at + length), resolution="8000")
    times.append(spent)
    sizes.append(len(text))
import resource
print(json.dumps({"first": first, "times": times, "sizes": sizes, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""
FRAMES = """
() => {
  window.frames = [];
  let last = performance.now();
  window.watching = true;
  const tick = (now) => {
    window.frames.push(now - last);
    last = now;
    if (window.watching) requestAnimationFrame(tick);
  };
  requestAnimationFrame((now) => { last = now; requestAnimationFrame(tick); });
}
"""
# The line below the trace says that what it shows is drawn from all events.
DRAWN = (
    "() => [...document.querySelectorAll('*')].some(e =>"
    " e.shadowRoot?.querySelector('.source[data-drawn=all]'))"
)


def percentile(values: list[float], share: float) -> float:
    """The value that `share` percent do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share / 100))]


def process_memory(pids: set[int]) -> int:
    """Proportional memory of processes in bytes: what they share counts once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def renderers(parent: int) -> set[int]:
    """Process ids of Chromium's renderers below a process."""
    import psutil

    found = set()
    for child in psutil.Process(parent).children(recursive=True):
        try:
            if "--type=renderer" in child.cmdline():
                found.add(child.pid)
        except psutil.Error:
            continue
    return found


def move(page: object) -> None:
    """The script: every way of moving, at every zoom."""
    from playwright.sync_api import Page

    assert isinstance(page, Page)
    canvas = page.locator(".trace .scroller canvas").first
    box = canvas.bounding_box()
    assert box is not None
    left, top = box["x"], box["y"]
    canvas.click(position={"x": box["width"] / 2, "y": 4})

    def hold(key: str, ms: int) -> None:
        page.keyboard.down(key)
        page.wait_for_timeout(ms)
        page.keyboard.up(key)
        page.wait_for_timeout(120)

    page.mouse.move(left + box["width"] * 0.6, top + 150)
    for _ in range(4):
        hold("w", 700)
        hold("d", 500)
        hold("a", 700)
    for _ in range(3):
        hold("s", 700)
        hold("d", 400)
    page.keyboard.press("0")
    page.wait_for_timeout(300)
    page.keyboard.down("Control")
    for delta in [*[-120] * 40, *[120] * 25]:
        page.mouse.wheel(0, delta)
        page.wait_for_timeout(25)
    page.keyboard.up("Control")
    for sign in (1, -1, 1):
        page.mouse.move(left + box["width"] * (0.8 if sign > 0 else 0.2), top + 200)
        page.mouse.down()
        for i in range(30):
            page.mouse.move(
                left + box["width"] * (0.8 - 0.02 * i if sign > 0 else 0.2 + 0.02 * i), top + 200
            )
            page.wait_for_timeout(16)
        page.mouse.up()
    strip = page.locator(".trace canvas.strip").first.bounding_box()
    assert strip is not None
    y = strip["y"] + strip["height"] / 2
    for i in range(10):
        page.mouse.click(strip["x"] + strip["width"] * (0.05 + 0.09 * i), y)
        page.wait_for_timeout(150)
    page.keyboard.press("0")
    page.wait_for_timeout(500)


def ours(path: Path, width: int) -> dict[str, float]:
    """Everything measured of one file; seconds, milliseconds and MB as the keys say."""
    from playwright.sync_api import sync_playwright

    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        raise SystemExit("Chromium is missing.")
    warm(path)
    host = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOST, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=quiet(),
    )
    try:
        assert host.stdout is not None
        base = f"http://127.0.0.1:{int(host.stdout.readline())}"
        with sync_playwright() as p:
            browser = p.chromium.launch(
                executable_path=chromium,
                args=["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"],
            )
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto(base)
            page.wait_for_function("() => window.ready")
            chrome = renderers(os.getpid())
            page.evaluate("() => globalThis.gc?.()")
            before, heap = (
                process_memory(chrome),
                page.evaluate("() => performance.memory.usedJSHeapSize"),
            )
            page.evaluate("() => window.start()")
            page.wait_for_function(DRAWN, polling=10, timeout=120_000)
            first = page.evaluate("() => performance.now() - window.began")
            page.wait_for_timeout(1500)
            page.evaluate(FRAMES)
            move(page)
            frames = page.evaluate("() => { window.watching = false; return window.frames; }")
            tiles = page.evaluate("() => window.tiles")
            after, heap_after = (
                process_memory(chrome),
                page.evaluate("() => performance.memory.usedJSHeapSize"),
            )
            told = page.evaluate("() => fetch('/told').then((reply) => reply.json())")
            browser.close()
    finally:
        host.kill()
        host.wait()
    answers = [ms for ms, _ in tiles]
    spent = [1000 * s for s in told["spent"]]
    return {
        "events": told["events"],
        "load_s": told["load"],
        "payload_s": told["payload"],
        "first_ms": first,
        "tiles": len(answers),
        "tile_p50_ms": statistics.median(answers),
        "tile_p95_ms": percentile(answers, 95),
        "tile_max_ms": max(answers),
        "python_p50_ms": statistics.median(spent),
        "python_p95_ms": percentile(spent, 95),
        "tile_kb": statistics.median(size for _, size in tiles) / 1000,
        "frames": len(frames),
        "frame_p50_ms": statistics.median(frames),
        "frame_p99_ms": percentile(frames, 99),
        "frame_max_ms": max(frames),
        "over_32": sum(ms > 32 for ms in frames),
        "renderer_mb": (after - before) / 1e6,
        "heap_mb": (heap_after - heap) / 1e6,
        "loaded_mb": told["rss_loaded"] / 1e6,
        "payload_mb": (told["rss_payload"] - told["rss_loaded"]) / 1e6,
        "trace_mb": (told["rss"] - told["rss_payload"]) / 1e6,
    }


def quiet() -> dict[str, str]:
    """The environment of a measured process: nothing kept from before, no other library's log."""
    return {**os.environ, "NBPROF_CACHE": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}


def xprof(peer: str, path: Path) -> dict[str, float] | None:
    """XProf's streaming trace viewer on a fresh folder; None where it is not installed."""
    if not has(peer, "xprof.convert"):
        return None
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        target = Path(folder) / path.name
        os.link(path, target)
        warm(path)
        out = subprocess.run(
            [peer, "-W", "ignore", "-c", XPROF, str(target)],
            capture_output=True,
            text=True,
            check=True,
            env=quiet(),
        )
    told = json.loads(out.stdout.splitlines()[-1])
    times = [1000 * s for s in told["times"]]
    return {
        "first_s": told["first"],
        "p50_ms": statistics.median(times),
        "p95_ms": percentile(times, 95),
        "max_ms": max(times),
        "kb": statistics.median(told["sizes"]) / 1000,
        "peak_mb": told["peak"] / 1000,
    }


def table(path: Path, mine: dict[str, float], theirs: dict[str, float] | None) -> Iterator[str]:
    """Lines that tell one file."""
    m = mine
    yield (
        f"{path.name}: {m['events']:,.0f} events, loaded in {m['load_s']:.2f} s"
        f" ({m['loaded_mb']:,.0f} MB)"
    )
    yield (
        f"  the rest of the dashboard's payload: {m['payload_s']:.2f} s"
        f" (+{m['payload_mb']:,.0f} MB)"
    )
    yield f"  first picture of all events: {m['first_ms']:,.0f} ms after the page asked for it"
    yield (
        f"  {m['tiles']:.0f} requests of tiles: median {m['tile_p50_ms']:.0f}, 95 % within"
        f" {m['tile_p95_ms']:.0f}, longest {m['tile_max_ms']:.0f} ms (in nbprof"
        f" {m['python_p50_ms']:.0f} and {m['python_p95_ms']:.0f} ms); median size"
        f" {m['tile_kb']:,.0f} kB"
    )
    yield (
        f"  {m['frames']:.0f} frames while moving: median {m['frame_p50_ms']:.1f}, 99 % within"
        f" {m['frame_p99_ms']:.1f}, longest {m['frame_max_ms']:.1f} ms; {m['over_32']:.0f} over"
        " 32 ms"
    )
    yield (
        f"  memory: page {m['renderer_mb']:,.0f} MB more ({m['heap_mb']:,.0f} heap), process"
        f" {m['trace_mb']:,.0f} MB more for the trace"
    )
    if theirs is None:
        yield "  XProf is not installed."
        return
    t = theirs
    yield (
        f"  XProf trace_viewer@: first answer {t['first_s']:.1f} s; windows: median"
        f" {t['p50_ms']:.0f}, 95 % within {t['p95_ms']:.0f}, longest {t['max_ms']:.0f} ms, median"
        f" size {t['kb']:,.0f} kB; peak {t['peak_mb']:,.0f} MB"
    )
    whole = m["load_s"] + m["first_ms"] / 1000
    yield (
        f"  from the file: XProf takes {t['first_s'] / whole:.1f} times as long to its first answer"
        f" as nbprof to its first picture ({whole:.1f} s)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", type=Path)
    parser.add_argument("--seeds", help="tf, jax, or files; tf,jax where no input is given")
    parser.add_argument("--events", default="10M")
    parser.add_argument("--width", type=int, default=1400)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--out", type=Path, help="also writes the lines here")
    given = parser.parse_args()
    paths = list(given.inputs)
    if not paths or given.seeds is not None:
        for seed in (given.seeds or "tf,jax").split(","):
            target = (
                given.folder / f"xspace-{Path(seed).name.split('.')[0]}-{given.events}.xplane.pb"
            )
            make(target, seed, number(given.events), given.peer_python)
            paths.append(target)
    lines = []
    for path in paths:
        began = time.perf_counter()
        for line in table(path, ours(path, given.width), xprof(given.peer_python, path)):
            print(line, flush=True)
            lines.append(line)
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
