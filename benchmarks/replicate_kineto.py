"""Large Kineto traces (PyTorch's JSON) out of a small recorded one, by filling a template of its
text.

Every event of the seed is repeated: later by the span of the seed, with correlation, external and
flow ids and step numbers of its own. Of the kernels, Python functions and call stacks, one in ten
has a new name in every replica. Names of lanes and what stands around the events is written once.
All else is kept as the seed has it, white space and all.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from replicate_xspace import chosen

GAP_US = 100
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|[{}\[\],:]|true|false|null')
TIMES = {"ts", "external ts"}
CLASSES = {
    "correlation": "correlation",
    "wait_on_cuda_event_record_corr_id": "correlation",
    "id": "correlation",
    "External id": "external",
    "external id": "external",
    "Ev Idx": "index",
    "Python id": "python",
    "Python parent id": "python",
    "Sequence number": "sequence",
}
"""Ids by what they number: those of one class move together."""
STACKS = {"Call stack"}
CLASSES_OF_NAMES = {"kernel", "python_function"}


@dataclass
class Template:
    """The text of all events with gaps, and what goes into them: base + step x replica, or the
    replica's suffix.
    """

    parts: list[str] = field(default_factory=list)
    base: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    """`ts`, a class of ids, `step`, or `suffix`."""

    def text(self, text: str) -> None:
        self.parts.append(text.replace("%", "%%"))

    def gap(self, kind: str, base: int = 0) -> None:
        self.parts.append("%s" if kind == "suffix" else "%d")
        self.base.append(base)
        self.kind.append(kind)


def named(text: str) -> int | None:
    """Where a name gets its suffix, for one name in `SHARE`; None for names that stay. `text` is a
    JSON string with its quotes.
    """
    cut = re.search(r"[<(]", text)
    base = text[1 : cut.start()] if cut else text[1:-1]
    return 1 + len(base) if base and chosen(base) else None


def event(out: Template, raw: str, what: dict) -> None:
    """Adds the text of one event, gaps for its numbers."""
    flow = what.get("ph") in ("s", "t", "f")
    grows = str(what.get("cat", "")).lower() in CLASSES_OF_NAMES
    last = 0
    key = previous = ""
    for match in TOKEN.finditer(raw):
        token = match.group()
        if token == ":":
            key = previous[1:-1]
            continue
        is_value = raw[: match.start()].rstrip()[-1:] == ":" if key else False
        previous = token
        if not is_value:
            continue
        number = re.match(r'"?(\d+)(?:\.\d+)?"?$', token)
        at = match.start() + (token[0] == '"')
        if number and key in TIMES:
            kind, size = "ts", len(number[1])
        elif number and key in CLASSES and (key != "id" or flow) and int(number[1]) > 0:
            kind, size = CLASSES[key], len(number[1])
        elif key == "name" and token.startswith('"ProfilerStep#'):
            number = re.match(r'"ProfilerStep#(\d+)', token)
            assert number
            kind, size, at = "step", len(number[1]), match.start() + number.start(1)
        elif token[0] == '"' and key in STACKS and chosen(token):
            kind, size, at = "suffix", 0, match.end() - 1
        elif token[0] == '"' and key == "name" and grows and (where := named(token)) is not None:
            kind, size, at = "suffix", 0, match.start() + where
        else:
            continue
        out.text(raw[last:at])
        out.gap(kind, int(raw[at : at + size]) if size else 0)
        last = at + size
    out.text(raw[last:])


def split(text: str) -> tuple[str, list[tuple[str, dict]], str]:
    """What stands before the events, the events (text and content), and what stands behind them."""
    opening = re.search(r'"traceEvents"\s*:\s*\[', text)
    assert opening, "no traceEvents"
    decoder = json.JSONDecoder()
    at = opening.end()
    events = []
    skip = re.compile(r"[\s,]*")
    while True:
        at = skip.match(text, at).end()  # type: ignore[union-attr]
        if text[at] == "]":
            return text[: opening.end()], events, text[at:]
        what, end = decoder.raw_decode(text, at)
        events.append((text[at:end], what))
        at = end


def read_text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def phases(found: list[tuple[str, dict]], many: list[dict], replicas: int, which: str) -> int:
    """How many events of some phases a target has."""
    repeated = sum(str(w.get("ph")) in which for w in many)
    return repeated * (replicas - 1) + sum(str(w.get("ph")) in which for _, w in found)


def replicate(seed: Path, target: Path, events: int) -> dict[str, int]:
    """Writes about `events` events, whole replicas of the seed; tells what was written. A target of
    `.gz` is compressed.
    """
    head, found, tail = split(read_text(seed))
    template = Template()
    once = []
    many: list[dict] = []
    for raw, what in found:
        if (
            what.get("ph") == "M"
            or what.get("cat") == "Trace"
            or what.get("pid") in ("Traces", "", "Spans")
        ):
            once.append(raw)
            continue
        if many:
            template.text(",\n  ")
        event(template, raw, what)
        many.append(what)
    times = [
        (float(w["ts"]), float(w["ts"]) + float(w.get("dur", 0)))
        for w in many
        if float(w["ts"]) > 0
    ]
    # Instants and slices of the far past or future would tear the replicas apart: the middle of the
    # recording counts.
    begin, end = (
        np.percentile([t[0] for t in times], 0.01),
        np.percentile([t[1] for t in times], 99.99),
    )
    base, kind = np.array(template.base, np.int64), np.array(template.kind)
    step = np.zeros(len(base), np.int64)
    for name in set(template.kind) - {"ts", "suffix"}:
        rows = kind == name
        step[rows] = base[rows].max() - base[rows].min() + 1
    step[kind == "ts"] = int(end - begin) + GAP_US
    suffixed = np.flatnonzero(kind == "suffix")
    text = "".join(template.parts)
    replicas = max(1, round((events - len(once)) / len(many)))
    with gzip.open(target, "wb", 6) if target.suffix == ".gz" else target.open("wb") as file:
        file.write(f"{head}\n  ".encode())
        for replica in range(replicas):
            values: list[int | str] = (base + step * replica).tolist()
            for at in suffixed.tolist():
                values[at] = f"_{replica:05d}" if replica else ""
            file.write((text % tuple(values) + ",\n  ").encode())
        file.write((",\n  ".join(once) + "\n  " + tail).encode())
    grown = replicas * len(
        {f for f, g in zip(np.cumsum(kind == "suffix"), kind == "suffix", strict=True) if g}
    )
    return {
        "events": len(many) * replicas + len(once),
        "replicas": replicas,
        "seed_events": len(found),
        "slices": phases(found, many, replicas, "X"),
        "instants": phases(found, many, replicas, "iIR"),
        "grown": grown,
        "bytes": target.stat().st_size,
    }
