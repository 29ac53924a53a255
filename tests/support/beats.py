"""A format that is made up: text, on each line the name of an event, its start and its duration in
µs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.core.files import SourceFile
from nbprof.core.receipt import Receipt
from nbprof.core.trace import Events, Trace
from nbprof.formats.format import Format, Head, Kind
from nbprof.frameworks.framework import Framework

MAGIC = b"beats 1\n"
LANES = (
    "lane",
    "host",
    "process",
    "thread",
    "line_id",
    "plane",
    "kind",
    "device",
    "note",
    "events",
    "order",
)


def sniff(head: Head) -> Kind | None:
    """Whether it begins as such a file does."""
    return Kind("beats", "a drum track") if head.data.startswith(MAGIC) else None


def read(files: Sequence[SourceFile], progress: Callable[[str], None] | None = None) -> Trace:
    """The events of each file on a lane of its own."""
    names: dict[str, int] = {}
    rows = []
    for lane, file in enumerate(files):
        for line in bytes(file.read().data).decode().splitlines()[1:]:
            name, start, duration = line.split()
            rows.append(
                (
                    lane,
                    names.setdefault(name, len(names)),
                    int(start) * 1_000_000,
                    int(duration) * 1_000_000,
                )
            )
    lane, name, start, duration = np.array(
        sorted(rows, key=lambda row: (row[0], row[2], -row[3])), np.int64
    ).T
    hosts = [file.name.partition(".")[0] for file in files]
    lanes = [
        (i, host, "drums", "left hand", i, 0, "", -1, "", int((lane == i).sum()), i)
        for i, host in enumerate(hosts)
    ]
    texts = np.array(list(names), object)
    return Trace(
        events=Events(lane.astype(np.int32), name.astype(np.int32), start, duration),
        names=texts,
        display=texts,
        lanes=pd.DataFrame(lanes, columns=list(LANES)),
        planes=[],
        args={},
        name_args={},
        strings=[],
        modules=[],
        hosts=hosts,
        epoch_ns=0,
        receipt=Receipt(events=len(rows)),
    )


def interpret(trace: Trace) -> Activity:
    """What the events mean: nothing that an analysis knows."""
    out = Activity(list(trace.hosts))
    out.framework = Framework("", "a drummer")
    out.has_device = out.xprof = out.has_host_ops = False
    out.missing = dict.fromkeys(
        ("steps", "ops", "kernels", "input", "memory"), "A drummer counts bars, not steps."
    )
    out.notes = []
    return out


FORMAT = Format(
    name="beats",
    label="drum tracks (*.beats)",
    sniff=sniff,
    reader=f"{__name__}:read",
    dialect=f"{__name__}:interpret",
    suffixes=(".beats",),
)
