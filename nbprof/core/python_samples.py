"""Sampled stacks of the Python code of a process, as a recording stores them in its sidecar
file.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from nbprof.core.sample_limits import MOST_NODES, MOST_ROWS, MOST_SAMPLES
from nbprof.core.trace import Int32s, Int64s

_MOST_NAMES, _MOST_THREADS = 100_000, 10_000
_LATEST_NS = 2**62
_INT64, _INT32 = "<i8", "<i4"


class Function(NamedTuple):
    """A function or module that was seen: its file, qualified name and first line."""

    file: str
    name: str
    line: int


class Place(NamedTuple):
    """A line of a function; `call` is what it was calling, as `numpy.linalg.qr`, or empty where
    that is unknown.
    """

    function: int
    line: int
    call: str


@dataclass
class PythonSamples:
    """Stacks of the Python threads of a process at successive moments.

    A sample stands for the time since the sample before it. Threads other than that of the cell
    have a row only where they used a core in that time, or where it is unknown whether they did.

    Attributes
    ----------
    functions : list of Function
    places : list of Place
    parent, place : int32[nodes]
        The stacks as a tree: the node of the caller, which comes first, or -1; and the place of the
        node.
    threads : list of str
        Names; the first is that of the thread of the recorded cell.
    at : int64[n + 1]
        Start of the recording, then the moment of each sample, in ns since 1970.
    cpu : int64[n + 1]
        CPU time of the process at those moments, all threads, in ns.
    sample : int32[rows]
        Index of the sample in `at`, from 1, ascending.
    thread, node : int32[rows]
        The thread, and its innermost node.
    thread_cpu : int64[rows]
        CPU time of the thread since the sample before, in ns; -1 where unknown.
    late : int64[n + 1]
        How long each sample waited for the GIL, in ns; -1 where unknown, and of the start.
    source : dict
        Text of the cells that were seen, by the stem of the file that stands for each.
    truncated : bool
        Whether some stacks lack their outermost or innermost calls.
    """

    functions: list[Function]
    places: list[Place]
    parent: Int32s
    place: Int32s
    threads: list[str]
    at: Int64s
    cpu: Int64s
    sample: Int32s
    thread: Int32s
    node: Int32s
    thread_cpu: Int64s
    late: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    source: dict[str, str] = field(default_factory=dict)
    truncated: bool = False

    def within(self, begin_ns: int, end_ns: int) -> PythonSamples:
        """The same with the stacks alone that were sampled after one moment and up to another, in
        ns since 1970.
        """
        time = self.at[self.sample]
        in_window = (time > begin_ns) & (time <= end_ns)
        rows = {
            name: getattr(self, name)[in_window]
            for name in ("sample", "thread", "node", "thread_cpu")
        }
        return replace(self, **rows)

    def packed(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        files = list(dict.fromkeys(function.file for function in self.functions))
        number = {file: i for i, file in enumerate(files)}
        columns = [
            np.diff(self.at, prepend=0).astype(_INT64),
            np.diff(self.cpu, prepend=0).astype(_INT64),
            self.thread_cpu.astype(_INT64),
            np.diff(self.sample, prepend=0).astype(_INT32),
            self.thread.astype(_INT32),
            self.node.astype(_INT32),
            self.parent.astype(_INT32),
            self.place.astype(_INT32),
            self.late.astype(_INT64),
        ]
        return {
            "files": files,
            "functions": [
                [number[function.file], function.name, function.line] for function in self.functions
            ],
            "places": [list(place) for place in self.places],
            "threads": self.threads,
            "counts": [len(self.at), len(self.sample), len(self.parent), len(self.late)],
            "columns": base64.b64encode(
                zlib.compress(b"".join(_planes(column) for column in columns), 6)
            ).decode("ascii"),
            "source": self.source,
            "truncated": self.truncated,
        }

    @classmethod
    def unpacked(cls, values: object) -> PythonSamples | None:
        """Return what `packed` gave; None for anything else."""
        if not isinstance(values, dict):
            return None
        functions = _functions(values.get("files"), values.get("functions"))
        places = _places(values.get("places"), len(functions or ()))
        threads, source = values.get("threads"), values.get("source")
        if (
            functions is None
            or places is None
            or not _texts(threads, _MOST_THREADS)
            or not isinstance(source, dict)
        ):
            return None
        if not all(isinstance(text, str) for text in source.values()):
            return None
        columns = _columns(values.get("counts"), values.get("columns"))
        if columns is None:
            return None
        moments, cpu, thread_cpu, sample, thread, node, parent, place_of_node, late = columns
        samples = cls(
            functions,
            places,
            parent.astype(np.int32),
            place_of_node.astype(np.int32),
            list(threads or ()),
            np.cumsum(moments),
            np.cumsum(cpu),
            np.cumsum(sample).astype(np.int32),
            thread.astype(np.int32),
            node.astype(np.int32),
            thread_cpu,
            late,
            source,
            values.get("truncated") is True,
        )
        return samples if samples._consistent() else None

    def _consistent(self) -> bool:
        """True if times ascend and indices exist."""
        nodes, count = len(self.parent), len(self.at)
        if (
            not count
            or (np.diff(self.at) < 0).any()
            or (np.diff(self.cpu) < 0).any()
            or (np.diff(self.sample) < 0).any()
        ):
            return False
        return (
            _within(self.at, 0, _LATEST_NS)
            and _within(self.cpu, 0, _LATEST_NS)
            and _within(self.thread_cpu, -1, _LATEST_NS)
            and len(self.late) in (0, count)
            and _within(self.late, -1, _LATEST_NS)
            and _within(self.parent, -1, nodes)
            and bool((self.parent < np.arange(nodes)).all())
            and _within(self.place, 0, len(self.places))
            and _within(self.sample, 1, count)
            and _within(self.thread, 0, len(self.threads))
            and _within(self.node, 0, nodes)
        )


def _planes(column: Int64s | Int32s) -> bytes:
    """The bytes of numbers, all lowest ones first: small numbers then compress far better."""
    return column.view(np.uint8).reshape(len(column), column.itemsize).T.tobytes()


def _columns(counts: object, packed: object) -> list[Int64s] | None:
    if not (
        isinstance(counts, list)
        and len(counts) in (3, 4)
        and all(type(count) is int and count >= 0 for count in counts)
    ):
        return None
    # Recordings of 0.2 do not know how late samples were.
    moments, rows, nodes, known_late = [*counts, 0][:4]
    # A few more: a sample is stored before they are halved.
    if (
        max(moments, known_late) > 2 * MOST_SAMPLES
        or rows > 2 * MOST_ROWS
        or nodes > MOST_NODES
        or not isinstance(packed, str)
    ):
        return None
    kinds = (
        [(_INT64, moments)] * 2
        + [(_INT64, rows)]
        + [(_INT32, rows)] * 3
        + [(_INT32, nodes)] * 2
        + [(_INT64, known_late)]
    )
    size = sum(np.dtype(kind).itemsize * count for kind, count in kinds)
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(packed, validate=True), size + 1)
    except (zlib.error, binascii.Error, ValueError):
        return None
    if len(data) != size or not unzip.eof:
        return None
    columns, offset = [], 0
    for kind, count in kinds:
        width = np.dtype(kind).itemsize
        planes = np.frombuffer(data, np.uint8, width * count, offset).reshape(width, count)
        columns.append(np.ascontiguousarray(planes.T).view(kind).reshape(count).astype(np.int64))
        offset += width * count
    return columns


def _within(values: Int64s | Int32s, first: int, end: int) -> bool:
    return not len(values) or bool(values.min() >= first and values.max() < end)


def _texts(values: object, limit: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= limit
        and all(isinstance(value, str) for value in values)
    )


def _functions(files: object, values: object) -> list[Function] | None:
    if (
        not isinstance(files, list)
        or not _texts(files, _MOST_NAMES)
        or not isinstance(values, list)
        or len(values) > _MOST_NAMES
    ):
        return None
    functions = []
    for value in values:
        if not (isinstance(value, list) and len(value) == 3 and isinstance(value[1], str)):
            return None
        if not (type(value[0]) is int and 0 <= value[0] < len(files) and _is_line(value[2])):
            return None
        functions.append(Function(files[value[0]], value[1], value[2]))
    return functions


def _places(values: object, functions: int) -> list[Place] | None:
    if not isinstance(values, list) or len(values) > _MOST_NAMES:
        return None
    places = []
    for value in values:
        if not (isinstance(value, list) and len(value) == 3 and isinstance(value[2], str)):
            return None
        if not (type(value[0]) is int and 0 <= value[0] < functions and _is_line(value[1])):
            return None
        places.append(Place(*value))
    return places


def _is_line(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31
