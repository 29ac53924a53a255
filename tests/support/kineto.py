"""Writes small Kineto traces for tests, and reads large ones by plain means: `json` with exact
decimals, one event at a time.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from nbprof.core.files import LocalFile, RunFiles
from nbprof.profiles.profile import Profile
from nbprof.run.run import Run

PID, MAIN, BACKWARD = 100, 100, 108


class Kineto:
    """The events of one process as PyTorch writes them today; times and durations in µs."""

    def __init__(self, **metadata: Any) -> None:
        self.metadata: dict[str, Any] = {"schemaVersion": 1, **metadata}
        self.events: list[dict[str, Any]] = []
        self._external = 0
        self._correlation = 0

    def add(
        self,
        name: str,
        cat: str,
        ts: float,
        dur: float | None,
        pid: Any = PID,
        tid: Any = MAIN,
        **fields: Any,
    ) -> dict[str, Any]:
        event = {
            "ph": "X" if dur is not None else "i",
            "cat": cat,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": ts,
        }
        if dur is not None:
            event["dur"] = dur
        else:
            event["s"] = "t"
        event.update(fields)
        self.events.append(event)
        return event

    def op(
        self,
        name: str,
        ts: float,
        dur: float,
        tid: int = MAIN,
        types: list[str] | None = None,
        **args: Any,
    ) -> int:
        """A framework op; gives its External id."""
        self._external += 1
        more = {} if types is None else {"Input type": types}
        self.add(
            name, "cpu_op", ts, dur, tid=tid, args={"External id": self._external, **more, **args}
        )
        return self._external

    def note(self, name: str, ts: float, dur: float, tid: int = MAIN, **args: Any) -> int:
        """An annotation of the program."""
        self._external += 1
        self.add(
            name, "user_annotation", ts, dur, tid=tid, args={"External id": self._external, **args}
        )
        return self._external

    def step(self, number: int, ts: float, dur: float) -> None:
        self.note(f"ProfilerStep#{number}", ts, dur)

    def call(
        self,
        name: str,
        ts: float,
        dur: float,
        op: int | None = None,
        tid: int = MAIN,
        cat: str = "cuda_runtime",
    ) -> int:
        """A runtime call; gives its correlation id."""
        self._correlation += 1
        args = {"cbid": 211, "correlation": self._correlation} | (
            {} if op is None else {"External id": op}
        )
        self.add(name, cat, ts, dur, tid=tid, args=args)
        return self._correlation

    def kernel(
        self,
        name: str,
        ts: float,
        dur: float,
        correlation: int | None = None,
        op: int | None = None,
        stream: int = 7,
        device: int = 0,
        **args: Any,
    ) -> None:
        given: dict[str, Any] = {"device": device, "stream": stream, "context": 1}
        if correlation is not None:
            given["correlation"] = correlation
        if op is not None:
            given["External id"] = op
        self.add(name, "kernel", ts, dur, pid=device, tid=stream, args=given | args)

    def copy(
        self,
        name: str,
        ts: float,
        dur: float,
        correlation: int,
        stream: int = 7,
        device: int = 0,
        **args: Any,
    ) -> None:
        cat = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
        given = {"device": device, "stream": stream, "correlation": correlation}
        self.add(name, cat, ts, dur, pid=device, tid=stream, args=given | args)

    def launched(
        self,
        name: str,
        ts: float,
        at: float,
        dur: float,
        op: int | None = None,
        tid: int = MAIN,
        **args: Any,
    ) -> None:
        """A kernel with its launch of 1 µs."""
        self.kernel(name, at, dur, self.call("cudaLaunchKernel", ts, 1, op, tid), op, **args)

    def memory(
        self,
        ts: float,
        size: int,
        address: int,
        total: int,
        reserved: int = 0,
        device: int = -1,
        tid: int = MAIN,
    ) -> None:
        args = {
            "Total Reserved": reserved,
            "Total Allocated": total,
            "Bytes": size,
            "Addr": address,
            "Device Id": device,
        }
        self.add(
            "[memory]",
            "cpu_instant_event",
            ts,
            None,
            tid=tid,
            args={**args, "Device Type": 0 if device < 0 else 1},
        )

    def flow(
        self, ident: int, start: tuple[int, int, float], finish: tuple[int, int, float]
    ) -> None:
        for phase, (pid, tid, ts) in (("s", start), ("f", finish)):
            more = {"bp": "e"} if phase == "f" else {}
            self.events.append(
                {
                    "ph": phase,
                    "id": ident,
                    "pid": pid,
                    "tid": tid,
                    "ts": ts,
                    "cat": "ac2g",
                    "name": "ac2g",
                    **more,
                }
            )

    def named(self, pid: Any, label: str = "", tid: Any = None, thread: str = "") -> None:
        if label:
            self.events.append(
                {
                    "name": "process_labels",
                    "ph": "M",
                    "pid": pid,
                    "tid": 0,
                    "args": {"labels": label},
                }
            )
        if thread:
            self.events.append(
                {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": thread}}
            )

    def encode(self) -> bytes:
        return json.dumps({**self.metadata, "traceEvents": self.events}).encode()


def profile(folder: Path, *files: Kineto | bytes, names: tuple[str, ...] = ()) -> Profile:
    """A profile of synthetic files."""
    paths = []
    for i, file in enumerate(files):
        path = folder / (names[i] if names else f"host{i}.pt.trace.json")
        path.write_bytes(file if isinstance(file, bytes) else file.encode())
        paths.append(path)
    return load(*paths)


def load(*paths: Path) -> Profile:
    """The profile of some files, taken as Chrome traces."""
    return Profile(
        Run.read(
            RunFiles("run", paths[0].parent, tuple(LocalFile(p) for p in paths), 0.0, "chrome")
        )
    )


class Plain:
    """A trace read the slow and simple way, to hold figures against. Times are exact, in µs."""

    DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")

    def __init__(self, path: Path) -> None:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        data = json.loads(text, parse_float=Decimal)
        self.metadata = data
        self.slices = [e for e in data["traceEvents"] if e.get("ph") == "X"]
        self.memory = [e for e in data["traceEvents"] if e.get("name") == "[memory]"]

    def of(self, *cats: str) -> list[dict[str, Any]]:
        return [e for e in self.slices if str(e.get("cat", "")).lower() in cats]

    @cached_property
    def work(self) -> list[dict[str, Any]]:
        return self.of(*self.DEVICE)

    @cached_property
    def ops(self) -> list[dict[str, Any]]:
        return self.of("cpu_op", "operator")

    @cached_property
    def calls(self) -> dict[int, dict[str, Any]]:
        return {
            e["args"]["correlation"]: e for e in self.of("cuda_runtime", "cuda_driver", "runtime")
        }

    def external(self, event: dict[str, Any]) -> Any:
        return event["args"].get("External id", event["args"].get("external id"))

    def named(self, *starts: str) -> list[dict[str, Any]]:
        found = [
            e
            for e in self.slices
            if e["name"].startswith(starts) and "gpu" not in str(e.get("cat"))
        ]
        return sorted(found, key=lambda e: e["ts"])

    def totals(self, events: list[dict[str, Any]]) -> dict[str, tuple[int, Decimal]]:
        """Count and time by name."""
        out: dict[str, tuple[int, Decimal]] = defaultdict(lambda: (0, Decimal(0)))
        for e in events:
            count, time = out[e["name"]]
            out[e["name"]] = (count + 1, time + Decimal(e["dur"]))
        return out


def union(spans: list[tuple[Decimal, Decimal]]) -> list[tuple[Decimal, Decimal]]:
    """Spans that do not touch, covering the same time."""
    out: list[tuple[Decimal, Decimal]] = []
    for a, b in sorted(spans):
        if b <= a:
            continue
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], b))
        else:
            out.append((a, b))
    return out


def length(spans: list[tuple[Decimal, Decimal]]) -> Decimal:
    return sum((b - a for a, b in spans), Decimal(0))


def without(
    spans: list[tuple[Decimal, Decimal]], other: list[tuple[Decimal, Decimal]]
) -> list[tuple[Decimal, Decimal]]:
    """What of some spans lies outside of others."""
    out = []
    rest = union(other)
    first = 0
    for a, b in union(spans):
        at = a
        while first < len(rest) and rest[first][1] <= a:
            first += 1
        for c, d in itertools.islice(rest, first, None):
            if c >= b:
                break
            if c > at:
                out.append((at, c))
            at = max(at, d)
        if at < b:
            out.append((at, b))
    return out
