"""Write the trace that PyTorch exports: compressed, complete or not at all, and with steps.

PyTorch itself packs at gzip's highest level, which takes ten times as long as writing the trace,
for a third less. Steps are added as the annotations ``ProfilerStep#N`` of ``torch.profiler``, so
every reader of such traces sees them. They are written afterwards because only then it is known
which spans were steps.
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
from typing import Any, NamedTuple

from nbprof.capture import notes, ranks, torch_exit
from nbprof.capture.torch_steps import KIND, Mark
from nbprof.core.receipt import Note, info
from nbprof.core.units import size_text

CHUNK = 1 << 20
FULL = 1 << 20
"""A disk with fewer free bytes is full for a trace."""

LEVEL = 3
"""Of zlib: a fifth larger than at level 6, in half the time."""

SUFFIX = ".pt.trace.json"

OTHER_STEP = "nbprof.step: "
"""Prefix of the event of a step that is not training; its kind and number follow."""

_EVENTS = re.compile(rb'"traceEvents":\s*\[')
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')
_OPTIMIZER = re.compile(
    rb'"name": "Optimizer\.step#[^"]*",\s*"pid": -?\d+,\s*"tid": (\d+),\s*"ts": ([\d.]+),\s*"dur":'
    rb" ([\d.]+)"
)


def worker() -> str:
    """The name of this process in a job: the host, and the rank if there are several.

    Raises nothing: invalid environment variables count as no rank.
    """
    rank = rank_and_size()[0]
    host = re.sub(r"[^\w.-]", "_", socket.gethostname()) or "host"
    if rank is None:
        return host
    return f"{host}_rank{rank}"


def rank_and_size() -> tuple[int | None, int | None]:
    """Rank and world size, from ``torch.distributed``, else the environment; None without a job."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except (ValueError, AttributeError, RuntimeError):
        return None, None
    position = ranks.position()
    return (position.rank, position.size) if position is not None else (None, None)


class _Call(NamedTuple):
    """A call of an optimizer, in ns since the base of the trace.

    Attributes
    ----------
    start, end : int
    duration_at : tuple of int
        Where the text of its duration begins and ends.
    """

    start: int
    end: int
    duration_at: tuple[int, int]


def export(
    profile: Any, target: Path, marks: Sequence[Mark] = (), *, stopped_in_call: int = 0
) -> Note | None:
    """Write the trace of `profile` to `target`, packed.

    Parameters
    ----------
    profile : torch.profiler.profile
        One that has stopped.
    target : Path
        ``*.pt.trace.json.gz``. It appears there when it is complete.
    marks : sequence of Mark
        The steps.
    stopped_in_call : int
        Unix time in ns at which a step ended whose optimizer had not returned when the profiler
        stopped; 0 if none was running. The profiler lets that call last until it has stopped.

    Returns
    -------
    Note or None
        Why the steps were not added; None if they were.

    Raises
    ------
    OSError
        The disk is full.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Neither name is that of a profile.
    plain = target.with_name(f".{target.name}.unpacked")
    packed = target.with_name(f".{target.name}.part")
    try:
        profile.export_chrome_trace(str(plain))
        if not plain.exists() or not plain.stat().st_size:
            # PyTorch does not report a full disk.
            free = shutil.disk_usage(target.parent).free
            reason = "it gives no reason"
            if free < FULL:
                reason = f"No space left on device, {size_text(free)} are free"
            raise OSError(f"PyTorch wrote no trace to {target.parent}: {reason}")
        note = pack(plain, packed, marks, stopped_in_call=stopped_in_call)
        packed.replace(target)
        if rank_and_size()[0] is not None:
            torch_exit.wait_at_exit()
        return note
    finally:
        plain.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)


def pack(
    plain: Path, packed: Path, marks: Sequence[Mark], *, stopped_in_call: int = 0
) -> Note | None:
    """Pack a trace and add the steps; returns why they were not added, None if they were.

    Parameters are those of `export`.
    """
    with plain.open("rb") as source, packed.open("wb") as target:
        size = source.seek(0, os.SEEK_END)
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as text:
            begin = _EVENTS.search(text)
            compress = _compressor()
            offset, note = 0, None
            if begin is not None:
                offset = begin.end()
            if marks:
                note = _obstacle(text, has_events=begin is not None)
            for piece in _chunks(text, 0, offset):
                target.write(compress.compress(piece))
            if marks and note is None:
                origin = _origin(text, offset)
                calls = _optimizer_calls(text)
                open_call = _open_call(calls, stopped_in_call - origin)
                target.write(compress.compress(_events(text, offset, marks, calls)))
                if open_call is not None:
                    # It ends with the step, without the time that the profiler takes to stop.
                    position, after = open_call.duration_at
                    for piece in _chunks(text, offset, position):
                        target.write(compress.compress(piece))
                    duration = _microseconds(open_call.end - open_call.start)
                    target.write(compress.compress(duration.encode()))
                    offset = after
            for piece in _chunks(text, offset, size):
                target.write(compress.compress(piece))
            target.write(compress.flush())
            return note


def _obstacle(text: mmap.mmap, *, has_events: bool) -> Note | None:
    if not has_events:
        return info(
            notes.STEPS_NOT_ADDED,
            "this version of PyTorch writes its trace in a format that steps could not be added to",
        )
    if text.find(b'"name": "ProfilerStep#') >= 0:
        # A profiler that only waits marks steps in whatever is recorded.
        return info(
            "steps_of_own_profiler",
            "steps are those marked with step() by the cell's own torch.profiler.profile",
        )
    return None


def _compressor() -> Any:
    try:
        return import_module("isal.isal_zlib").compressobj(1, zlib.DEFLATED, 31)
    except ImportError:
        return zlib.compressobj(LEVEL, zlib.DEFLATED, 31)


def _chunks(text: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    for offset in range(start, end, CHUNK):
        yield text[offset : min(offset + CHUNK, end)]


def _origin(text: mmap.mmap, offset: int) -> int:
    """The base of the times, Unix time in ns; `offset` is where the events begin."""
    base = _BASE.search(text, 0, offset)
    return int(base[1]) if base is not None else 0


def _events(
    text: mmap.mmap, offset: int, marks: Sequence[Mark], calls: Mapping[int, list[_Call]]
) -> bytes:
    """The steps as events of the trace, to stand at the head of its list."""
    origin = _origin(text, offset)
    lines = []
    before = -sys.maxsize
    kinds = {mark.kind for mark in marks}
    for mark in sorted(marks, key=lambda mark: mark.start):
        spans = calls.get(mark.thread, ())
        # Steps of two threads that take turns end at calls of different threads.
        start = max(_after(spans, mark.start - origin), before)
        end = _after(spans, mark.end - origin)
        before = max(end, before)
        lines.append(
            '\n  {\n    "ph": "X", "cat": "user_annotation", "name":'
            f' {json.dumps(name(mark, kinds))}, "pid": {os.getpid()}, "tid": {mark.thread},\n   '
            f' "ts": {_microseconds(start)}, "dur": {_microseconds(max(end - start, 0))}\n  }}'
        )
    events = ",".join(lines).encode()
    if re.compile(rb"\s*\]").match(text, offset):
        return events
    return events + b","


def name(mark: Mark, kinds: set[str]) -> str:
    """The name of the event of a step: that of PyTorch, unless only other steps are training.

    Parameters
    ----------
    mark : Mark
    kinds : set of str
        The kinds of all steps.
    """
    if len(kinds) == 1 or mark.kind.startswith(KIND):
        return f"ProfilerStep#{mark.number}"
    return f"{OTHER_STEP}{mark.kind}#{mark.number}"


def _optimizer_calls(text: mmap.mmap) -> dict[int, list[_Call]]:
    """The calls of optimizers by thread, in time order."""
    calls: dict[int, list[_Call]] = {}
    for match in _OPTIMIZER.finditer(text):
        start, length = _ns(match[2]), _ns(match[3])
        calls.setdefault(int(match[1]), []).append(_Call(start, start + length, match.span(3)))
    for of_thread in calls.values():
        of_thread.sort()
    return calls


def _open_call(calls: dict[int, list[_Call]], time: int) -> _Call | None:
    """The last call of a thread if it was running at a time, which becomes its end."""
    for of_thread in calls.values():
        last = of_thread[-1]
        if last.start <= time < last.end:
            of_thread[-1] = last._replace(end=time)
            return of_thread[-1]
    return None


def _after(calls: Sequence[_Call], time: int) -> int:
    """The time, or the end of the optimizer's call around it, whose hook runs just before that."""
    i = bisect_right(calls, time, key=lambda call: call.start) - 1
    if i < 0:
        return time
    return max(calls[i].end, time)


def _ns(microseconds: bytes) -> int:
    """Parse exactly: a float has too few digits for ns since 1970."""
    micros, _, rest = microseconds.partition(b".")
    return int(micros or 0) * 1000 + int(rest[:3].ljust(3, b"0"))


def _microseconds(ns: int) -> str:
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"
