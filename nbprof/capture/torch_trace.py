"""Write the trace that PyTorch exports: compressed, complete or not at all, with the steps that
were found.

PyTorch itself packs at gzip's highest level, which takes ten times as long as writing the trace,
for a third less. Steps are put in as the annotations ``ProfilerStep#N`` that ``torch.profiler``
marks its own steps with, so every reader of such traces sees them. They are written afterwards
because only then it is known which stretches were steps.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import socket
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from nbprof.capture import torch_exit
from nbprof.capture.torch_steps import KIND, Mark
from nbprof.core.units import size_text

CHUNK = 1 << 20
FULL = 1 << 20
"""A disk that has not even these bytes free does not take a trace."""

LEVEL = 3
"""Of zlib: a fifth larger than at level 6, in half the time."""

SUFFIX = ".pt.trace.json"

OTHER_STEP = "nbprof.step: "
"""How the event of a step begins that is none of training; its kind and number follow."""

_EVENTS = re.compile(rb'"traceEvents":\s*\[')
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')
_OPTIMIZER = re.compile(
    rb'"name": "Optimizer\.step#[^"]*",\s*"pid": -?\d+,\s*"tid": (\d+),\s*"ts": ([\d.]+),\s*"dur":'
    rb" ([\d.]+)"
)


def worker() -> str:
    """The name of this process among those of a job: the host, and the rank where there are
    several.

    Raises nothing: an environment that says nonsense is no rank.
    """
    rank = rank_and_size()[0]
    host = re.sub(r"[^\w.-]", "_", socket.gethostname()) or "host"
    return host if rank is None else f"{host}_rank{rank}"


def rank_and_size() -> tuple[int | None, int | None]:
    """Rank and world size, from ``torch.distributed``, else from RANK and WORLD_SIZE; None where
    this process is alone.
    """
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError, AttributeError, RuntimeError):
        return None, None


def export(profile: Any, target: Path, marks: Sequence[Mark] = ()) -> str:
    """Write what `profile` has recorded to `target`, packed; a sentence where the steps were not
    put in.

    Parameters
    ----------
    profile : torch.profiler.profile
        One that has stopped.
    target : Path
        ``*.pt.trace.json.gz``. It appears there when it is whole.
    marks : sequence of Mark
        The steps.

    Raises
    ------
    OSError
        The disk does not take it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Both have names that no reader takes for a profile.
    plain, packed = (target.with_name(f".{target.name}.{kind}") for kind in ("unpacked", "part"))
    try:
        profile.export_chrome_trace(str(plain))
        if not plain.exists() or not plain.stat().st_size:
            # It says nothing of a disk that takes no more.
            free = shutil.disk_usage(target.parent).free
            why = (
                f"No space left on device, {size_text(free)} are free"
                if free < FULL
                else "it gives no reason"
            )
            raise OSError(f"PyTorch wrote no trace to {target.parent}: {why}")
        note = pack(plain, packed, marks)
        packed.replace(target)
        if rank_and_size()[0] is not None:
            torch_exit.wait_at_exit()
        return note
    finally:
        plain.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)


def pack(plain: Path, packed: Path, marks: Sequence[Mark]) -> str:
    """Pack a trace with the steps in it; where there is no place for them, or steps are in it, as
    it is, and a sentence says so.
    """
    with plain.open("rb") as source, packed.open("wb") as out:
        size = source.seek(0, os.SEEK_END)
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as text:
            begin = _EVENTS.search(text)
            compress = _compressor()
            at = begin.end() if begin else 0
            note = _obstacle(text, found=begin is not None) if marks else ""
            for piece in _chunks(text, 0, at):
                out.write(compress.compress(piece))
            if marks and not note:
                out.write(compress.compress(_events(text, at, marks)))
            for piece in _chunks(text, at, size):
                out.write(compress.compress(piece))
            out.write(compress.flush())
            return note


def _obstacle(text: mmap.mmap, *, found: bool) -> str:
    if not found:
        return (
            "this version of PyTorch writes its trace in a format that steps could not be added to"
        )
    if text.find(b'"name": "ProfilerStep#') >= 0:
        # A profiler that only waits marks steps in whatever is recorded.
        return "steps are those marked with step() by the cell's own torch.profiler.profile"
    return ""


def _compressor() -> Any:
    try:
        return import_module("isal.isal_zlib").compressobj(1, zlib.DEFLATED, 31)
    except ImportError:
        return zlib.compressobj(LEVEL, zlib.DEFLATED, 31)


def _chunks(text: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, CHUNK):
        yield text[at : min(at + CHUNK, end)]


def _events(text: mmap.mmap, at: int, marks: Sequence[Mark]) -> bytes:
    """The steps as events of the trace, to stand at the head of its list."""
    base = _BASE.search(text, 0, at)
    origin = int(base[1]) if base else 0
    ends = _optimizer_ends(text)
    lines = []
    before = -sys.maxsize
    kinds = {mark.kind for mark in marks}
    for mark in sorted(marks, key=lambda mark: mark.start):
        start, end = (
            _after(ends.get(mark.thread, ()), time - origin) for time in (mark.start, mark.end)
        )
        # Steps of two threads that take turns end at calls of different threads.
        start = max(start, before)
        before = max(end, before)
        lines.append(
            '\n  {\n    "ph": "X", "cat": "user_annotation", "name":'
            f' {json.dumps(name(mark, kinds))}, "pid": {os.getpid()}, "tid": {mark.thread},\n   '
            f' "ts": {_microseconds(start)}, "dur": {_microseconds(max(end - start, 0))}\n  }}'
        )
    follows = not re.compile(rb"\s*\]").match(text, at)
    return ",".join(lines).encode() + (b"," if follows else b"")


def name(mark: Mark, kinds: set[str]) -> str:
    """What the event of a step is called, where steps are of these kinds: as PyTorch calls it,
    unless it is none of training among such.
    """
    training = len(kinds) == 1 or mark.kind.startswith(KIND)
    return f"ProfilerStep#{mark.number}" if training else f"{OTHER_STEP}{mark.kind}#{mark.number}"


def _optimizer_ends(text: mmap.mmap) -> Mapping[int, list[tuple[int, int]]]:
    """By thread: begin and end (ns since the base) of each call of an optimizer, in time order."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for found in _OPTIMIZER.finditer(text):
        start, length = _ns(found[2]), _ns(found[3])
        spans.setdefault(int(found[1]), []).append((start, start + length))
    for each in spans.values():
        each.sort()
    return spans


def _after(spans: Sequence[tuple[int, int]], time: int) -> int:
    """The time, or the end of the optimizer's call that it lies in: the hook that tells of a step
    runs just before that ends.
    """
    i = bisect_right(spans, (time, sys.maxsize)) - 1
    return spans[i][1] if i >= 0 and spans[i][1] > time else time


def _ns(microseconds: bytes) -> int:
    """A float has too few digits for ns since 1970."""
    whole, _, rest = microseconds.partition(b".")
    return int(whole or 0) * 1000 + int(rest[:3].ljust(3, b"0"))


def _microseconds(ns: int) -> str:
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"
