"""How long the timeline takes from a loaded profile to its first tiles, and for each request of
tiles while one zooms and pans.

    python benchmarks/timeline.py big.xplane.pb [more files] [--width 1400] [--rows 33] [--repeats
    3]

Files of any size are made by `replicate.py`. Each repeat is a fresh process that loads the profile
(seconds are those of the second load, when it is in the cache), and then takes these steps: the
lanes as they are drawn; which event lies in which; rows without overlap; blocks for sums and
longest events; the tiles of the first screen. All are needed once. Then a script zooms at eight
places from the whole profile down to a nanosecond a pixel and pans at every third step, and asks
each time for all tiles of `--rows` rows in a window of `--width` pixels: a page keeps what it has
and asks for less. Each answer is packed as it is sent. The processor's time of a request is what
other load on the machine changes little.

For comparison, the same windows are found by a mask over all events, without any merging: `ratio`
is how many times longer that takes. The sum of counts of the tiles of every row over the whole
profile has to be the number of events.

Memory is what the rows and blocks add to the columns of the events, in bytes an event; the columns
are 24.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbprof.timeline.index import Index
    from nbprof.timeline.tracks import Tracks

STEPS = ("load", "tracks", "nesting", "rows", "blocks", "first")
FINEST_NS = 1.0
ZOOM = 1.6


def windows(span: float, width: int) -> Iterator[tuple[float, float]]:
    """From and to, ns, of a walk through the profile: eight places, from far to near, with steps to
    the right.
    """
    for place in range(8):
        at = span * (place + 0.5) / 8
        wide = span
        k = 0
        while wide / width >= FINEST_NS:
            start = min(max(at - wide / 2, 0), span - wide)
            yield start, start + wide
            if k % 3 == 2:
                yield start + 0.4 * wide, start + 1.4 * wide
            wide /= ZOOM
            k += 1


def request(rows: list[tuple[int, int]], start: float, end: float, width: int) -> dict[str, Any]:
    """All tiles of some rows in a window, with bins of a pixel or a little less."""
    level = math.floor(math.log2((end - start) / width))
    tile = 512 * 2.0**level
    return {
        "ask": "tiles",
        "level": level,
        "want": [
            [lane, depth, depth, math.floor(start / tile), math.floor(end / tile)]
            for lane, depth in rows
        ],
    }


def every_event_once(index: Index, tracks: Tracks) -> None:
    """Stops where the tiles of all rows do not add up to the events."""
    from nbprof.timeline.tiles import tiles

    span = max(tracks.end - tracks.origin, 1) / 1000
    level = max(math.ceil(math.log2(span / 512)), 0) + 1
    total = 0
    for lane in tracks.lanes:
        total += int(
            tiles(index, {"level": level, "want": [[lane.id, 0, 65535, 0, 0]]})["count"].sum()
        )
    if total != len(tracks.events) + len(tracks.extra):
        raise SystemExit(
            f"The tiles have {total:,} events, the profile has"
            f" {len(tracks.events) + len(tracks.extra):,}."
        )


def masked(tracks: Tracks, start: float, end: float) -> float:
    """Seconds to find what is in a window by a look at all events."""
    import numpy as np

    events = tracks.events
    low, high = (int(at * 1000) + tracks.origin for at in (start, end))
    began = time.perf_counter()
    np.flatnonzero((events.start < high) & (events.start + events.duration > low))
    return time.perf_counter() - began


def child(path: str, width: int, most_rows: int) -> dict[str, Any]:
    """One measurement."""
    import nbprof
    from nbprof.display import codec
    from nbprof.timeline.index import Index
    from nbprof.timeline.tiles import tiles
    from nbprof.timeline.tracks import tracks

    at = [time.perf_counter()]

    def lap() -> None:
        at.append(time.perf_counter())

    run = nbprof.load(path).run
    events = run.trace.events
    lap()
    drawn = tracks(run)
    lap()
    _ = events.depth, drawn.extra.depth
    lap()
    index = Index(drawn)
    lap()
    blocks = [table.blocks for table in (index.main, index.extra)]
    lap()
    span = (drawn.end - drawn.origin) / 1000
    rows = [(lane.id, depth) for lane in drawn.lanes for depth in range(index.rows(lane.id))]
    tiles(index, request(rows[:most_rows], 0, span, width))
    lap()
    every_event_once(index, drawn)
    took, processor, packed, sizes, looked = [], [], [], [], []
    for k, (start, end) in enumerate(windows(span, width)):
        # Every other window is scrolled to other rows.
        first = 0 if k % 2 == 0 else (k * most_rows // 2) % max(len(rows) - most_rows + 1, 1)
        asked = request(rows[first : first + most_rows], start, end, width)
        began, of_processor = time.perf_counter(), time.thread_time()
        answer = tiles(index, asked)
        done = time.perf_counter()
        processor.append(time.thread_time() - of_processor)
        sizes.append(len(codec.contain({"ok": True, **answer})))
        packed.append(time.perf_counter() - done)
        took.append(done - began)
        if k % 16 == 0:
            looked.append(masked(drawn, start, end))
    # Of a permutation only the pages of lanes of several levels are ever written.
    nested = sum(
        int((stack.bounds[1:] - stack.bounds[:-1])[~stack.flat].sum()) * 4
        for stack in (index.main.stack, index.extra.stack)
    )
    levels = 0 if index.main.stack.level is events.depth else index.main.stack.level.nbytes
    return {
        "events": len(events),
        "rows": len(rows),
        "steps": {name: end - start for name, start, end in zip(STEPS, at, at[1:], strict=False)},
        "bytes": (nested + levels + sum(part.nbytes for part in blocks)) / max(len(events), 1),
        "nesting_bytes": (events.parent.nbytes + events.depth.nbytes) / max(len(events), 1),
        "tiles": took,
        "processor": processor,
        "packing": packed,
        "sizes": sizes,
        "masked": statistics.median(looked),
    }


def percentile(values: list[float], share: float) -> float:
    """The least value that so many percent are not above."""
    return sorted(values)[max(math.ceil(len(values) * share / 100) - 1, 0)]


def report(path: str, runs: list[dict[str, Any]]) -> str:
    """The lines about one file."""
    one = runs[0]
    steps = {name: statistics.median(run["steps"][name] for run in runs) for name in STEPS}
    took = [seconds for run in runs for seconds in run["tiles"]]
    processor = [seconds for run in runs for seconds in run["processor"]]
    packing = [seconds for run in runs for seconds in run["packing"]]
    first = sum(steps[name] for name in STEPS if name != "load")
    masked_s = statistics.median(run["masked"] for run in runs)
    median = statistics.median(took)
    return "\n".join(
        [
            f"{Path(path).name}: {one['events']:,} events, {one['rows']:,} rows",
            "  s       "
            + ", ".join(f"{name} {seconds:.3f}" for name, seconds in steps.items())
            + f"; load to first tiles {first:.3f}",
            (
                f"  memory  {one['bytes']:.1f} B an event for rows and blocks,"
                f" {one['nesting_bytes']:.1f} for parents and depths"
            ),
            (
                f"  tiles   {len(took):,} requests: median {median * 1e3:.1f} ms, p95"
                f" {percentile(took, 95) * 1e3:.1f}, p99 {percentile(took, 99) * 1e3:.1f}, longest"
                f" {max(took) * 1e3:.1f}; of the processor p95"
                f" {percentile(processor, 95) * 1e3:.1f}, longest {max(processor) * 1e3:.1f};"
                f" packing p95 {percentile(packing, 95) * 1e3:.1f}; size median"
                f" {statistics.median(one['sizes']) / 1e3:.0f} kB, largest"
                f" {max(one['sizes']) / 1e3:.0f}"
            ),
            (
                f"  ratio   a mask over all events takes {masked_s * 1e3:.1f} ms,"
                f" {masked_s / median:.0f} times the median"
            ),
        ]
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+")
    parser.add_argument("--width", type=int, default=1400, help="pixels of the window")
    parser.add_argument("--rows", type=int, default=33, help="rows on the screen")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.files[0], args.width, args.rows)))
        return
    for path in args.files:
        runs = []
        # The first load may have to read the file; it does not count.
        for _ in range(args.repeats + 1):
            command = [
                sys.executable,
                __file__,
                path,
                "--child",
                f"--width={args.width}",
                f"--rows={args.rows}",
            ]
            runs.append(
                json.loads(
                    subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                )
            )
        print(report(path, runs[1:]), flush=True)


if __name__ == "__main__":
    main()
