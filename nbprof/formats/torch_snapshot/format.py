"""Snapshots of PyTorch's caching allocator as a format: pickles of
`torch.cuda.memory._dump_snapshot`.
"""

from __future__ import annotations

import re

from nbprof.core.files import RunFiles
from nbprof.formats.format import Format, Head, Here, Kind
from nbprof.formats.names import SUFFIXES

_NAME = "torch_memory"
_OLD_PICKLE = (b"(d", b"}q", b"(l", b"]q")
_SNAPSHOT = re.compile(rb"segments|device_traces|total_size")
_TEXT_PICKLE = re.compile(
    rb"\([dl]p\d+\r?\n|\(?[VS][^\n]*\np\d+\r?\n|\([IFL]-?[\d.]+L?\r?\n"
    rb"|c[A-Za-z_][\w.]*\r?\n[A-Za-z_][\w.]*\r?\n[p(]"
)
_PICKLES = (
    "The only pickles nbprof opens are snapshots of PyTorch's allocator"
    " (torch.cuda.memory._dump_snapshot) and, beside a trace, kernel_annotations_rank*.pkl; it runs"
    " no code from them."
)


def sniff(head: Head) -> Kind | None:
    """The kind of a snapshot or another pickle; None for other files."""
    data = head.data
    if (data[0] == 0x80 and data[1:2] and 2 <= data[1] <= 5) or data[:2] in _OLD_PICKLE:
        # The keys of a snapshot, or of the segments of an old one, stand before everything else.
        if _SNAPSHOT.search(data[:512]):
            return Kind(_NAME, "a snapshot of PyTorch's allocator (a pickle)")
        if data[0] == 0x80:
            return Kind("", "a Python pickle", _PICKLES)
    if _TEXT_PICKLE.match(data):
        return Kind("", "a Python pickle of protocol 0, which is text", _PICKLES)
    return None


def gather(here: Here, before: list[RunFiles]) -> list[RunFiles]:
    """Makes each snapshot a run; next to a trace they belong to its run."""
    if before:
        return before
    return [
        RunFiles(member.stem, here.folder, (member.file,), member.file.modified, _NAME)
        for member in here.of(_NAME)
    ]


FORMAT = Format(
    name=_NAME,
    label="snapshots of PyTorch's allocator",
    sniff=sniff,
    reader="nbprof.formats.torch_snapshot.memory:read",
    dialect="nbprof.dialects.torch_memory:interpret",
    suffixes=SUFFIXES["torch_snapshot"],
    gather=gather,
)
