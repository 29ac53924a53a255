"""Fuzzing of the compiled readers with the sanitizers of gcc or clang: no input reads or writes
outside of its memory, overflows an integer, leaks, or yields columns that break their promises.

    python -m tests.fuzz.native --seconds 600
    python -m tests.fuzz.native xspace --seed 7 --count 10000000
    python -m tests.fuzz.native chrome --seed 7 --first 4711 --count 1      # one input again

An input follows from the reader, the seed and its number alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from nbprof.core.wire import fields
from nbprof.native import compile as native
from tests.support.chrome import compact, complete, kineto
from tests.support.perfetto import Story, every_kind
from tests.support.xspace import PlaneWriter, Ref, UInt, chunk, gpu_run, training_run
from tests.support.xspace import xspace as space_of

DATA = Path(__file__).parents[2] / "data"
BYTES = 400
"""Of a line, or of packets, so that an input is read fast."""
MOST_SEEDS = 256

FLAGS = [
    "-std=c11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
]


def chrome() -> list[bytes]:
    """Stretches of lists of events, as profilers write them and as they may."""
    args = {
        "External id": 7,
        "Input Dims": [[2, 3], []],
        "f": 0.5,
        "e": 1e-7,
        "t": "a\\b",
        "n": None,
    }
    events = [
        complete("aten::mm", 5013.125, 10.5, args=args),
        complete("void k<int, (bool)1>(char const*)", "5014.5", 1, cat="kernel", tid="stream 7"),
        complete("# 日本語", 1e-3, 1.5e22, id="0x1", s={"deep": [{"er": ["[{"]}]}),
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python", "x": 2**63}},
        {
            "ph": "C",
            "name": "m",
            "pid": 1,
            "ts": 1.0000005,
            "args": {"v": -0.0, "w": 123456789.125},
        },
        {"ph": "s", "id": 5, "pid": 7, "tid": 8, "ts": 5013.5, "cat": "ac2g", "bp": "e"},
        {"ph": "E", "pid": True, "tid": None, "ts": None},
        {},
    ]
    lists = [
        json.dumps(events)[1:],
        json.dumps(events, indent=1)[1:],
        json.dumps([events[0]])[1:-1],
    ]
    for layout in (compact, kineto):
        text = layout(*events)
        lists.append(text[text.index("[", text.index("traceEvents")) + 1 :])
    lists += [json.dumps(event) + "," for event in events]
    lists.append(
        ",".join(json.dumps(complete(f"op{i}", i, args={f"k{i % 9}": i})) for i in range(60))
    )
    return [text.encode() for text in lists]


def xspace() -> list[bytes]:
    """Contents of lines, as profilers write them: the first events of each."""
    values = {"d": 0.5, "i": -3, "u": UInt(2**63), "t": "text", "b": b"bytes", "r": Ref("name")}
    plane = PlaneWriter("p")
    plane.line("each alone", [plane.event("e", 5, 1, **{k: v}) for k, v in values.items()])
    plane.line("last", [plane.event("e", 5, 1, **values), plane.event("f", 9, 2, d=1e300)])
    spaces = [training_run(2), gpu_run(), space_of(plane)]
    spaces += [path.read_bytes() for path in sorted((DATA / "xspace").glob("*.pb"))]
    lines: list[bytes] = []
    for space in spaces:
        planes = [space[a:b] for number, _, a, b in fields(space, 0, len(space)) if number == 1]
        for plane in planes:
            found = [plane[a:b] for number, _, a, b in fields(plane, 0, len(plane)) if number == 3]
            lines += [events(line) for line in found[:5]]
    return sorted(set(lines))


def events(line: bytes) -> bytes:
    """The first events of a line, without its other fields."""
    result = b""
    for number, _, start, end in fields(line, 0, len(line)):
        event = chunk(4, line[start:end])
        if number == 4 and len(result) + len(event) <= BYTES:
            result += event
    return result


def perfetto() -> list[bytes]:
    """Packets in a row, as recorders write them."""
    rng = Random(1)
    traces = [Story.random(rng, 60).perfetto(rng, interned=on) for on in (False, True)]
    traces.append(every_kind().bytes())
    rows: list[bytes] = []
    for trace in traces:
        row = b""
        for _, _, start, end in fields(trace, 0, len(trace)):
            packet = chunk(1, trace[start:end])
            if len(row) + len(packet) > BYTES:
                rows.append(row)
                row = b""
            row += packet
        rows.append(row)
    return sorted(set(rows))[:MOST_SEEDS]


READERS = {
    "chrome": (chrome, ("chrome.c", "names.c")),
    "perfetto": (perfetto, ("wire.c", "nesting.c")),
    "xspace": (xspace, ("xspace.c", "wire.c", "nesting.c", "names.c")),
}
"""What each is fed, and its sources; the driver is the file of its name beside this one."""


def main(arguments: list[str] | None = None) -> int:
    """Compiles the drivers and runs them; the status of the first process that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", metavar="reader", help=", ".join(READERS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=int, default=60)
    chosen = parser.parse_args(arguments)
    command = native.own_compiler()
    if not command:
        print("There is no C compiler with sanitizers: gcc or clang.")
        return 1
    figures = [str(each) for each in (chosen.seed, chosen.first, chosen.count, chosen.seconds)]
    for reader in chosen.readers or READERS:
        print(reader, flush=True)
        if status := run(command, reader, figures):
            return status
    return 0


def run(command: list[str], reader: str, figures: list[str]) -> int:
    """Compiles one driver and runs it; the status of its process."""
    seeds, names = READERS[reader]
    with tempfile.TemporaryDirectory() as folder:
        driver = f"{folder}/driver"
        sources = [str(Path(__file__).with_name(f"{reader}.c"))]
        sources += [str(native.HERE / name) for name in names]
        subprocess.run([*command, *FLAGS, *sources, "-o", driver], check=True)
        files = []
        for number, content in enumerate(seeds()):
            files.append(Path(folder, f"seed{number}"))
            files[-1].write_bytes(content)
        return subprocess.run([driver, *figures, *files], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
