"""Chrome traces as a format: JSON of PyTorch (`*.pt.trace.json`), TensorFlow, JAX and others."""

from __future__ import annotations

import re
from pathlib import Path

from nbprof.core.files import LocalFile, printable
from nbprof.core.receipt import Note, info
from nbprof.formats.chrome import runs
from nbprof.formats.format import PACKING, Format, Head, Kind, Member
from nbprof.formats.names import SUFFIXES
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import PYTHON, PYTORCH, UNKNOWN

_NO_TRACE = "nbprof reads traces whose top level is an event list or has the key traceEvents."
# A key of JSON is followed by a colon; in a text that quotes one (a notebook), the closing quote
# has a backslash before it.
_EVENTS = re.compile(rb'"traceEvents"\s*:')
_PHASE = re.compile(rb'"ph"\s*:\s*"')
_KINETO = re.compile(
    rb'"(?:schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|cupti_version|with_stack|displayTimeUnit)"\s*:'
)
_RANK = re.compile(rb'"rank"\s*:\s*(\d{1,9})\b')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_TIME = re.compile(rb'"ts"\s*:\s*"?(\d{1,17}(?:\.\d{1,6})?)\b')
_FIRST_S, _LAST_S = 1.3e9, 4.1e9
"""Of what a trace states as a time since 1970, from 2011 to 2099; the clock of a machine begins
when it is started.
"""
_WORLD = re.compile(rb'"world_size"\s*:\s*(\d{1,9})\b')


def sniff(head: Head) -> Kind | None:
    """Whether it is a trace, or other JSON."""
    if not head.json:
        return None
    text = head.text
    if text[:1] == b"[":
        return _list(text, head)
    if _EVENTS.search(text):
        return _trace(text)
    if b"memoryProfilePerAllocator" in text[:4096]:
        return Kind("", "a table that TensorBoard created from a profile", source=".xplane.pb")
    if b"speedscope.app" in text[:4096]:
        return Kind("", "a speedscope profile", "nbprof does not read it.")
    if b'"nbformat"' in text or text[:64].replace(b" ", b"").replace(b"\n", b"").startswith(
        b'{"cells":['
    ):
        return Kind(
            "",
            "a Jupyter notebook",
            "Open it in JupyterLab, or load the profile from the folder where the notebook ran.",
        )
    # The events of a large job may begin far behind its metadata.
    if not head.whole and (len(_KINETO.findall(text)) > 1 or "trace" in head.name.lower()):
        return _trace(text)
    if (
        head.whole
        and head.name.endswith((".trace.json", ".trace.json.gz"))
        and not text.rstrip().endswith(b"}")
    ):
        return Kind(
            "",
            "a trace that ends before its first event",
            "The program was killed while writing the file: record it again.",
        )
    return Kind("", "JSON, but not a trace", _NO_TRACE)


def _list(text: bytes, head: Head) -> Kind:
    """A list at the top: of events, by the first of them."""
    inner = text[1:].lstrip()
    if inner[:1] not in (b"{", b"]", b""):
        return Kind("", "JSON, but not a trace", _NO_TRACE)
    if _PHASE.search(text):
        return _trace(text)
    empty = inner[:1] == b"]" or (head.whole and not inner)
    if empty and "trace" in head.name.lower():
        return _trace(text)
    return Kind("", "JSON, but not a trace: its items are not events", _NO_TRACE)


def _trace(text: bytes) -> Kind:
    # "rank" is also a key of events' args, so it counts only behind distributedInfo and with the
    # size of the world beside it.
    rank = world = None
    offset = text.find(b'"distributedInfo"')
    if offset >= 0:
        part = text[offset : offset + 4096]
        first, second = _RANK.search(part), _WORLD.search(part)
        if first and second:
            rank, world = int(first[1]), int(second[1])
    exporter = b'"highres-ticks"' in text[:4096]
    return Kind(
        runs.NAME,
        "a Chrome trace",
        rank=rank,
        world_size=world,
        exporter=exporter,
        clock=_clock(text),
    )


def _clock(text: bytes) -> float | None:
    """When the first events of a trace were recorded; None where their times are of no known
    clock.
    """
    times = [float(match[1]) for match in _TIME.finditer(text)]
    if not times:
        return None
    base = _BASE.search(text)
    # Some of the first events have time 0, those that name processes.
    clock = max(times) / 1e6 + (int(base[1]) / 1e9 if base else 0.0)
    return clock if _FIRST_S < clock < _LAST_S else None


def _better_beside(trace: Member) -> tuple[Note, ...]:
    if not trace.kind.exporter or not isinstance(trace.file, LocalFile):
        return ()
    better = trace.file.path.with_name(trace.stem + ".xplane.pb")
    if not better.is_file():
        return ()
    text = f"{printable(better.name)} next to it has the complete recording: load that instead."
    return (info("complete_recording_beside", text),)


def _framework(path: Path) -> Framework:
    if runs.OF_TORCH in path.name:
        return PYTORCH
    return PYTHON if ".py.trace.json" in path.name else UNKNOWN


FORMAT = Format(
    name=runs.NAME,
    label="Chrome traces (JSON)",
    sniff=sniff,
    reader="nbprof.formats.chrome.chrome:read",
    dialect="nbprof.dialects.chrome.chrome:interpret",
    suffixes=SUFFIXES["chrome"],
    names=re.compile(r"(^|[._-])trace\.json" + PACKING, re.IGNORECASE),
    gather=runs.gather,
    across=runs.across,
    is_copy=runs.is_copy,
    lacks=runs.lacks,
    notes=_better_beside,
    bounded=True,
    unpacks=frozenset({"gzip"}),
    says_decoded=True,
    framework=_framework,
    separate_hosts=True,
    slow=True,
)
