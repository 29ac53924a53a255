"""Fuzzing of the compiled readers with the sanitizers of gcc or clang: no input reads or writes
outside of its memory, overflows an integer, leaks, or yields columns that break their promises.

    python -m tests.fuzz.native --seconds 600
    python -m tests.fuzz.native --seed 7 --count 10000000
    python -m tests.fuzz.native --seed 7 --first 4711 --count 1      # one input again

An input follows from the seed and its number alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from nbprof.native import compile as native
from tests.support.chrome import compact, complete, kineto

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


def seeds() -> list[str]:
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
    return lists


def main(arguments: list[str] | None = None) -> int:
    """Compiles the driver and runs it; the status of its process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=int, default=60)
    chosen = parser.parse_args(arguments)
    command = native.own_compiler()
    if not command:
        print("There is no C compiler with sanitizers: gcc or clang.")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        driver = f"{folder}/driver"
        sources = [str(Path(__file__).with_name("chrome.c"))]
        sources += [str(native.HERE / name) for name in ("chrome.c", "names.c")]
        subprocess.run([*command, *FLAGS, *sources, "-o", driver], check=True)
        files = []
        for number, text in enumerate(seeds()):
            files.append(Path(folder, f"seed{number}"))
            files[-1].write_text(text)
        figures = map(str, (chosen.seed, chosen.first, chosen.count, chosen.seconds))
        return subprocess.run([driver, *figures, *files], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
