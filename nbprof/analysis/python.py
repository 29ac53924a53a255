"""Python time by function, line, module and thread, from sampled stacks.

A sample stands for the time since the one before it. On the thread of the recorded cell that is
wall time, waiting included; on other threads it is the CPU time of the thread in that time, or the
wall time where the CPU time is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.figures import percent
from nbprof.analysis.table import positions
from nbprof.core import nesting
from nbprof.core.cells import stem, title
from nbprof.core.intervals import Intervals
from nbprof.core.python_samples import Function, PythonSamples
from nbprof.core.sample_limits import SWITCH_S
from nbprof.core.trace import Int32s, Int64s
from nbprof.frameworks.register import FRAMEWORKS
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# Folders of the standard library and of installed packages; code without a file; nbprof's code.
_LIBRARY = re.compile(
    r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3|^<(?!stdin|ipython-input)"
    r"|[/\\]nbprof[/\\](?:capture|notebook)[/\\]"
)
_PACKAGE = re.compile(
    r".*[/\\](?:site-packages|dist-packages|lib[/\\]python3[.\d]*)[/\\](?:lib-dynload[/\\])?"
    r"([^/\\.]+)"
)
_FROZEN = re.compile(r"<frozen ([^.>]+)")
_WAITING = re.compile(
    r"[/\\](?:threading|queue|selectors|socket|ssl|subprocess|connection"
    r"|concurrent[/\\]futures[/\\]thread)\.py\Z"
)
_POOLS = re.compile(
    r"[/\\]multiprocessing[/\\]pool\.py\Z|[/\\]concurrent[/\\]futures[/\\](?:_base|process)\.py\Z"
    r"|[/\\]joblib[/\\]parallel\.py\Z|[/\\]loky[/\\]process_executor\.py\Z"
)
"""Where a thread waits for a process pool."""
_MOST_THREADS = 50
"""Threads that are told apart to say where a function ran."""


_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\]")
_FRAMEWORKS = frozenset({"keras"}.union(*(framework.packages for framework in FRAMEWORKS)))
_ENOUGH = 10
"""Samples in some time from which on they alone say what it was spent on."""
_FEWEST = 5
"""Samples from which on they say anything: three miss a part that is a third of the time in three
cases of ten, five in one.
"""
_AT_ONCE = (0.9, 1.3)
"""How late a sample is, in terms of `SWITCH_S`, where the thread gave up the GIL as soon as it had
to: the system adds 0.1 to 0.2 ms.
"""
_IDLE = 0.5
"""Cores that a process uses at least while it is not waiting."""
_QUICK_METHODS = frozenset().union(
    *(dir(kind) for kind in (list, dict, set, frozenset, str, bytes, bytearray, tuple, int, float))
)
"""Methods of Python's own types."""
_QUICK_MODULES = frozenset(
    {"time", "math", "random", "operator", "itertools", "functools", "collections"}
)
"""Modules of Python whose functions take less than a µs, but for those that take a function or
wait.
"""
_WAITS_FOR_FRAMEWORK = frozenset({"block_until_ready", "batched_block_until_ready"})
"""Methods of a framework's arrays that are known by their names alone."""


_COMPILED = frozenset(
    {"PIL", "cv2", "librosa", "numba", "numpy", "pandas", "polars", "pyarrow", "scipy"}
    | {"skimage", "sklearn", "soundfile", "xarray"}
)
"""Libraries of compiled code that programs call beside a framework."""


def _is_library_call(call: str) -> bool:
    """True for a call of a library's C code, rather than of a quick function of Python itself."""
    owner, dot, name = call.rpartition(".")
    if not dot:
        return call.startswith("operator ")
    return name not in _QUICK_METHODS and owner not in _QUICK_MODULES


def _is_of_framework(call: str) -> bool:
    return call.partition(".")[0] in _FRAMEWORKS or call.rpartition(".")[2] in _WAITS_FOR_FRAMEWORK


class TopFunction(NamedTuple):
    """The function of the person's code that took most of some time.

    Attributes
    ----------
    function, file : str
        Qualified name; the file, or `Cell [3]`.
    line : int
        The line of it that took most.
    call : str
        The call in this line that took most of that time, as `numpy.linalg.qr`; empty where
        unknown.
    share : float
        Share of the function in the sampled time, 0…1.
    line_share : float
        Share of the line, or of the call in it where that is known.
    """

    function: str
    file: str
    line: int
    call: str
    share: float
    line_share: float

    @property
    def named_share(self) -> float:
        """Share of the call or line that is named, or of the function where that has a name."""
        return self.line_share if self.call or self.function == "<module>" else self.share


class PythonUse(NamedTuple):
    """Use of Python by the cell's thread in some time, as parts that add up to 1, and the place of
    most of each part.

    Attributes
    ----------
    python : float
        Python code was interpreted, calls of quick built-in functions included.
    library : float
        Code in C of a library ran, such as `numpy.linalg.qr` or the operator of two arrays.
    framework : float
        Code of a machine learning framework ran, in Python or in C, in no op that it records.
    waiting : float
        The process used less than half a core: it slept, or waited for a file, a lock or another
        process.
    top, top_library, top_waiting, top_framework : TopFunction or None
        The function of the person's code, and the line and call in it, with most of each.
    samples : int or None
        From how many samples this is known; None where that is not stated.
    blocked : float
        The part of `waiting` in calls that only wait: sleep, or a wait for another thread, process
        or machine. The rest follows from the CPU time of the process, which is also low where other
        processes take the cores.
    named : float
        The part of `library` in code that is known to be a library's: of its own files, or in a
        call by its name. An array's method may be a framework's.
    top_named : TopFunction or None
        The function of the person's code with most of it.
    """

    python: float
    library: float
    framework: float
    waiting: float
    top: TopFunction | None
    top_library: TopFunction | None
    top_waiting: TopFunction | None
    top_framework: TopFunction | None = None
    samples: int | None = None
    named: float = 0.0
    top_named: TopFunction | None = None
    blocked: float = 0.0

    @property
    def waits_by_itself(self) -> bool:
        """True if most of the waiting is in calls that only wait."""
        return 2 * self.blocked >= self.waiting


@dataclass
class Python:
    """Python time of one recording, or of some intervals of it.

    Parameters
    ----------
    samples : PythonSamples
    cells : mapping
        Execution counts by the stem of a cell's file.
    intervals : Intervals, optional
        In ns since 1970; all of the recording by default.
    """

    samples: PythonSamples
    cells: Mapping[str, int]
    intervals: Intervals | None = None

    @cached_property
    def weight(self) -> Floats:
        """Nanoseconds of each row."""
        samples = self.samples
        wall, in_spans = _lengths(samples, self.intervals)
        cpu, length = samples.thread_cpu.astype(np.float64), wall[samples.sample - 1]
        share = np.divide(in_spans, wall, out=np.zeros_like(wall), where=wall > 0)[
            samples.sample - 1
        ]
        other = samples.thread > 0
        weight = np.where(other & (cpu >= 0), np.minimum(cpu, length), length) * share
        waits = self._waiting[samples.node]
        return np.where(other & (cpu < 0) & waits, 0.0, weight)

    @cached_property
    def functions(self) -> pd.DataFrame:
        """Time by function."""
        samples = self.samples
        functions, key = self._keyed(self._function)
        rows = self._rows(key, len(functions))
        names = [samples.functions[function] for function in functions]
        return self._frame(
            "python.functions",
            rows,
            function=[name.name for name in names],
            file=[title(name.file, self.cells) for name in names],
            line=[name.line for name in names],
            module=[module(name.file) for name in names],
        )

    @cached_property
    def lines(self) -> pd.DataFrame:
        """Time by line."""
        samples, node_place = self.samples, self._line_of_node
        line = np.array([each.line for each in samples.places], np.int64)
        lines, key = self._keyed(
            self._function * (line.max(initial=0) + 1) + line[node_place]
            if len(node_place)
            else node_place
        )
        rows = self._rows(key, len(lines))
        person, in_person = self._person, self._person >= 0
        user_code = _sums(key[person[in_person]], self._self[in_person], len(lines))
        of_node = {int(row): int(i) for i, row in reversed(list(enumerate(key.tolist())))}
        places = [samples.places[node_place[of_node[row]]] for row in range(len(lines))]
        names = [samples.functions[each.function] for each in places]
        calls = self._calls(key, len(lines))
        return self._frame(
            "python.lines",
            rows,
            file=[title(name.file, self.cells) for name in names],
            line=[each.line for each in places],
            code=[self._code(name, each.line) for name, each in zip(names, places, strict=True)],
            function=[name.name for name in names],
            call=calls,
            user_code_ms=user_code / 1e6,
        )

    @cached_property
    def modules(self) -> pd.DataFrame:
        """Time by top-level package."""
        names = [module(function.file) for function in self.samples.functions]
        number = positions(dict.fromkeys(names))
        of_function = np.array([number[name] for name in names], np.int64)
        modules, key = self._keyed(of_function[self._function] if len(names) else self._function)
        packages = list(number)
        return self._frame(
            "python.modules",
            self._rows(key, len(modules)),
            module=[packages[each] for each in modules],
        )

    @cached_property
    def threads(self) -> pd.DataFrame:
        """Time by thread."""
        samples = self.samples
        _, in_spans = _lengths(samples, self.intervals)
        count = len(samples.threads)
        profiled = self.intervals
        if profiled is None:
            profiled = Intervals(samples.at[:1], samples.at[-1:])
        wall = _sums(samples.thread, in_spans[samples.sample - 1], count) / 1e6
        cpu = self._cpu(samples.thread, count)
        rows = _sums(samples.thread, in_spans[samples.sample - 1] > 0, count)
        frame = pd.DataFrame(
            {
                "thread": samples.threads,
                "samples": rows.astype(np.int64),
                "active_ms": wall,
                "cpu_ms": cpu,
            }
        )
        length = float(profiled.total()) / 1e6
        frame["cpu_percent"] = percent(cpu, length)
        frame = frame[frame["samples"] > 0]
        order = frame.iloc[1:].sort_values("cpu_ms", ascending=False, kind="stable").index
        return frames.shaped(
            "python.threads", frame.loc[[*frame.index[:1], *order]].reset_index(drop=True)
        )

    @cached_property
    def tree(self) -> pd.DataFrame:
        """The calls as a tree of functions, callers first."""
        samples, function = self.samples, self._function.tolist()
        rows: dict[tuple[int, int], int] = {}
        row_of: list[int] = []
        for node, above in enumerate(samples.parent.tolist()):
            caller = row_of[above] if above >= 0 else -1
            row_of.append(rows.setdefault((caller, function[node]), len(rows)))
        count = len(rows)
        parent = np.array([caller for caller, _ in rows], np.int64)
        itself = _sums(np.array(row_of, np.int64), self._self, count)
        total = nesting.totals(parent, itself)
        names = [samples.functions[each] for _, each in rows]
        seen = np.flatnonzero(total > 0)
        renumbered = np.full(count + 1, -1, np.int64)
        renumbered[seen] = np.arange(len(seen))
        frame = pd.DataFrame(
            {
                "parent": renumbered[parent],
                "depth": nesting.depths(parent.astype(np.int32)).astype(np.int64),
                "function": [name.name for name in names],
                "file": [title(name.file, self.cells) for name in names],
                "line": [name.line for name in names],
                "self_ms": itself / 1e6,
                "total_ms": total / 1e6,
                "percent": _percent(total, self.weight.sum()),
            }
        ).iloc[seen]
        return frames.shaped("python.tree", frame.reset_index(drop=True))

    def use(self, waited: float = 0.0) -> PythonUse | None:
        """Use of Python by the cell's thread, or the threads that it waited for; None if it was
        sampled too rarely in this time.

        `waited` is the part of the time in which threads were ready to run that they had no core, 0
        to 1: so much less CPU time is to be seen of a program that does not wait itself.
        """
        samples = self.samples
        used = np.diff(samples.cpu) >= _IDLE * (1 - waited) * np.diff(samples.at)
        rows = self._at_work(used)
        # The time since the sample before, which may have been longer than the spans and what lies
        # between them, says nothing of a sample outside of them.
        rows = rows[self._in_spans[samples.sample[rows]]]
        if not len(rows):
            return None
        # Threads that work at the same time share it.
        at_once = np.bincount(samples.sample[rows])[samples.sample[rows]]
        weight = self._point_weight(rows, self.intervals) / at_once
        total = float(weight.sum())
        sampled = np.unique(samples.sample[rows])
        late = self._late(self.intervals)
        # A few say enough where code that held the GIL delayed them for most of the time.
        enough = late is not None and 2 * late[sampled - 1].sum() >= self._spans_ns
        if len(sampled) < _FEWEST and not enough:
            return None
        # Threads without Python may use cores meanwhile.
        idle = ~used[samples.sample[rows] - 1] | self._sleeping[samples.node[rows]]
        framework = self._in_framework[samples.node[rows]] & ~idle
        library = (
            self._in_library[samples.node[rows]] & ~idle & ~framework & ~self._interpreting[rows]
        )
        rest = ~(library | framework | idle)
        python, in_library, in_framework, waiting = (
            float(weight[part].sum()) / total for part in (rest, library, framework, idle)
        )
        top, top_library, top_framework, top_waiting = (
            self.top_function(rows[part], weight[part]) for part in (rest, library, framework, idle)
        )
        blocked = self._sleeping[samples.node[rows]]
        named = library & self._in_named_library[samples.node[rows]]
        return PythonUse(
            python,
            in_library,
            in_framework,
            waiting,
            top,
            top_library,
            top_waiting,
            top_framework,
            len(rows),
            float(weight[named].sum()) / total,
            self.top_function(rows[named], weight[named]),
            float(weight[blocked].sum()) / total,
        )

    def _point_weight(self, rows: npt.NDArray[np.integer], intervals: Intervals | None) -> Floats:
        """Nanoseconds that each row stands for as a point in some intervals: the mean pause between
        samples, and the time it waited for the GIL.

        Code in C that holds the GIL delays the samples that fall into it to its end: by their
        number alone, such code would be too short, and what gives up the GIL too long.
        """
        samples = self.samples
        late = self._late(intervals)
        if late is None:
            return np.ones(len(rows))
        waited = np.minimum(samples.late[1:], np.diff(samples.at))
        pause = max(float((np.diff(samples.at) - waited).mean()), 1.0)
        return np.asarray(pause + late[samples.sample[rows] - 1], np.float64)

    def _late(self, intervals: Intervals | None) -> Int64s | None:
        """Nanoseconds in some intervals that each sample but the first waited for the GIL; None if
        unknown.
        """
        samples = self.samples
        if not len(samples.late) or (samples.late[1:] < 0).any():
            return None
        late = np.minimum(samples.late[1:], np.diff(samples.at))
        if intervals is None:
            return np.asarray(late, np.int64)
        end = samples.at[1:]
        return intervals.covered_until(end) - intervals.covered_until(end - late)

    def blocked(self, intervals: Intervals) -> tuple[float, TopFunction | None]:
        """The part of some time in which the cell's thread waits in `block_until_ready`, and the
        line that does; 0 of few samples.

        Parameters
        ----------
        intervals : Intervals
            In ns since 1970.
        """
        waits = np.array(
            [line.call.rpartition(".")[2] in _WAITS_FOR_FRAMEWORK for line in self.samples.places],
            np.bool_,
        )
        return self._part(intervals, waits[self._line_of_node])

    def in_pools(self, intervals: Intervals) -> tuple[float, TopFunction | None]:
        """The part of some time in which the cell's thread is in code of process pools, and the
        line that called it; 0 of few samples.

        Parameters
        ----------
        intervals : Intervals
            In ns since 1970.
        """
        return self._part(
            intervals,
            self._innermost(lambda function: _POOLS.search(function.file) is not None) >= 0,
        )

    def busiest(self, intervals: Intervals) -> TopFunction | None:
        """The function of the person's code in which the cell's thread is for most of some time;
        None if it is sampled too rarely there.

        Parameters
        ----------
        intervals : Intervals
            In ns since 1970.
        """
        return self._part(intervals, np.ones(len(self.samples.parent), np.bool_))[1]

    def _part(self, intervals: Intervals, nodes: Flags) -> tuple[float, TopFunction | None]:
        """The part of some time in which the cell's thread is in some nodes."""
        samples = self.samples
        rows = np.flatnonzero(samples.thread == 0)
        rows = rows[intervals.index_at(samples.at[samples.sample[rows]]) >= 0]
        inside = nodes[samples.node[rows]]
        if np.count_nonzero(inside) < _ENOUGH:
            return 0.0, None
        weight = self._point_weight(rows, intervals)
        share = float(weight[inside].sum() / weight.sum())
        return share, self.top_function(rows[inside], weight[inside])

    @property
    def _spans_ns(self) -> int:
        """Length of the time that was sampled, or of the intervals."""
        if self.intervals is None:
            return int(self.samples.at[-1] - self.samples.at[0])
        return self.intervals.total()

    @cached_property
    def _in_spans(self) -> Flags:
        """By moment: whether it is in one of the intervals."""
        sample_time = self.samples.at
        if self.intervals is None:
            return np.ones(len(sample_time), np.bool_)
        return np.asarray(self.intervals.index_at(sample_time) >= 0)

    @cached_property
    def _interpreting(self) -> Flags:
        """By row: whether the thread was running bytecode, though its stack may end in a call.

        A thread gives up the GIL between two instructions, often after a call. Where that took as
        long as it may keep the GIL and no longer, the calls that it makes are short; one in which
        the GIL is free, or kept for longer, is in compiled code.
        """
        samples = self.samples
        if not len(samples.late):
            return np.zeros(len(samples.sample), np.bool_)
        low, high = (bound * 1e9 * SWITCH_S for bound in _AT_ONCE)
        at_once = (samples.late >= low) & (samples.late < high)
        # Else another thread may have had it.
        alone = np.bincount(samples.sample, minlength=len(samples.at)) == 1
        return np.asarray((at_once & alone)[samples.sample], np.bool_)

    def _at_work(self, used: Flags) -> npt.NDArray[np.intp]:
        """Rows of the cell's thread; while that waits for other threads, which work, rows of
        these. `used` says before which samples the process used a core.
        """
        samples = self.samples
        of_cell = samples.thread == 0
        waits = self._waiting[samples.node]
        waited_for = (
            np.isin(samples.sample, samples.sample[of_cell & waits])
            & ~(of_cell | waits)
            & (self.weight > 0)
            & used[samples.sample - 1]
        )
        replaced = np.isin(samples.sample, samples.sample[waited_for])
        return np.flatnonzero((of_cell & ~replaced) | waited_for)

    @cached_property
    def _sleeping(self) -> Flags:
        """By node: whether it waits for time to pass, or for another thread, process or machine."""
        sleeps = np.array([line.call == "time.sleep" for line in self.samples.places], np.bool_)
        return np.asarray(sleeps[self._line_of_node] | self._waiting, np.bool_)

    @cached_property
    def _waiting(self) -> Flags:
        """By node: whether it waits for another thread, process or machine."""
        return self._nodes(lambda function: _WAITING.search(function.file) is not None)

    @cached_property
    def _in_framework(self) -> Flags:
        """By node: whether it is in code of a machine learning framework, or calls a function of
        one.
        """
        of_function = [module(function.file) in _FRAMEWORKS for function in self.samples.functions]
        called = [_is_of_framework(line.call) for line in self.samples.places]
        by_framework = [
            called[i] or of_function[line.function] for i, line in enumerate(self.samples.places)
        ]
        return np.array(by_framework, np.bool_)[self._line_of_node]

    @cached_property
    def _in_library(self) -> Flags:
        """By node: whether it is in a call of a library's code in C, or in an operator that lets
        other threads run, as of arrays.
        """
        places = self.samples.places
        calls = np.array([_is_library_call(line.call) for line in places], np.bool_)
        installed = [bool(_INSTALLED.search(function.file)) for function in self.samples.functions]
        files = np.array([installed[line.function] for line in places], np.bool_)
        called = np.array([bool(line.call) for line in places], np.bool_)
        return np.asarray((calls | (called & files))[self._line_of_node], np.bool_)

    @property
    def _in_named_library(self) -> Flags:
        """By node: whether the code is known to be a library's."""
        places, functions = self.samples.places, self.samples.functions
        of_library = [
            line.call.partition(".")[0] in _COMPILED
            or module(functions[line.function].file) in _COMPILED
            for line in places
        ]
        return np.array(of_library, np.bool_)[self._line_of_node]

    def top_function(
        self, kinds: npt.NDArray[np.integer] | None = None, weights: Floats | None = None
    ) -> TopFunction | None:
        """The function with most of the time of the cell's thread, or of some rows of it with their
        weights; None if no code of the person was sampled in it.
        """
        samples = self.samples
        rows = np.flatnonzero(samples.thread == 0) if kinds is None else kinds
        weight = self.weight[rows] if weights is None else weights
        node = self._person[samples.node[rows]]
        node, weight, total = node[node >= 0], weight[node >= 0], float(weight.sum())
        if not total or not len(node) or not weight.sum():
            return None
        functions = _sums(self._function[node], weight, len(samples.functions))
        function = int(functions.argmax())
        node_place = self._line_of_node[node]
        in_function = self._function[node] == function
        line = np.array([each.line for each in samples.places], np.int64)[node_place]
        lines = _sums(line[in_function], weight[in_function])
        best = int(lines.argmax())
        calls = _sums(
            node_place[in_function & (line == best)],
            weight[in_function & (line == best)],
            len(samples.places),
        )
        name = samples.functions[function]
        call = samples.places[int(calls.argmax())].call
        in_line = calls.max() if call else lines[best]
        return TopFunction(
            name.name,
            title(name.file, self.cells),
            best,
            call,
            float(functions[function]) / total,
            float(in_line) / total,
        )

    @property
    def cell_ns(self) -> float:
        """Sampled time of the cell's thread, in ns."""
        return float(self.weight[self.samples.thread == 0].sum())

    def person_lines(self) -> tuple[Int64s, npt.NDArray[np.object_]]:
        """When the cell's thread was sampled in the person's code, in ns since 1970, and the
        innermost line of that code, as `Cell [3]:12`.
        """
        from nbprof.analysis.input.workers import location

        samples = self.samples
        rows = np.flatnonzero(samples.thread == 0)
        node = self._person[samples.node[rows]]
        rows, node = rows[node >= 0], node[node >= 0]
        files = [samples.functions[place.function].file for place in samples.places]
        texts = [
            location(file, place.line, self.cells, short=True)
            for file, place in zip(files, samples.places, strict=True)
        ]
        return samples.at[samples.sample[rows]], np.array(texts, object)[self._line_of_node[node]]

    @cached_property
    def host_lines(self) -> dict[tuple[str, int], float]:
        """Nanoseconds of the cell's thread by cell and line, the innermost line of a cell each
        time.
        """
        samples = self.samples
        rows = samples.thread == 0
        in_cell = self._innermost(lambda function: bool(stem(function.file)))
        node, weight = in_cell[samples.node[rows]], self.weight[rows]
        seconds: dict[tuple[str, int], float] = {}
        for each, ns in zip(
            self._line_of_node[node[node >= 0]].tolist(), weight[node >= 0].tolist(), strict=True
        ):
            line = samples.places[each]
            key = stem(samples.functions[line.function].file), line.line
            seconds[key] = seconds.get(key, 0.0) + ns
        return seconds

    @property
    def _line_of_node(self) -> Int64s:
        return self.samples.place.astype(np.int64)

    @cached_property
    def _function(self) -> Int64s:
        """The function of each node."""
        return np.array([line.function for line in self.samples.places], np.int64)[
            self._line_of_node
        ]

    @cached_property
    def _self(self) -> Floats:
        """Nanoseconds in which each node was innermost."""
        return _sums(self.samples.node, self.weight, len(self.samples.parent))

    @cached_property
    def _person(self) -> Int64s:
        return self._innermost(lambda function: is_person(function.file))

    def _nodes(self, holds: Callable[[Function], bool]) -> Flags:
        """The nodes for whose function it holds."""
        return np.array([holds(function) for function in self.samples.functions], np.bool_)[
            self._function
        ]

    def _innermost(self, holds: Callable[[Function], bool]) -> Int64s:
        """For each node the innermost one of its stack for whose function it holds; -1 without
        one.
        """
        holder = np.where(self._nodes(holds), np.arange(len(self._function)), -1).tolist()
        for node, above in enumerate(self.samples.parent.tolist()):
            if holder[node] < 0 <= above:
                holder[node] = holder[above]
        return np.array(holder, np.int64)

    @staticmethod
    def _keyed(key: Int64s) -> tuple[list[int], Int64s]:
        """Distinct keys of the nodes, and the number of that of each."""
        values, number = np.unique(key, return_inverse=True)
        return values.tolist(), number.reshape(-1).astype(np.int64)

    def _cpu(self, key: Int64s | Int32s, count: int) -> Floats:
        """CPU time in ms by key of the rows; NaN where it is not known for all of them."""
        samples = self.samples
        wall, in_spans = _lengths(samples, self.intervals)
        share = np.divide(in_spans, wall, out=np.zeros_like(wall), where=wall > 0)[
            samples.sample - 1
        ]
        unknown = _sums(key, (samples.thread_cpu < 0) & (self.weight > 0), count) > 0
        cpu = _sums(key, np.maximum(samples.thread_cpu, 0) * share, count) / 1e6
        return np.where(unknown, np.nan, cpu)

    def _rows(self, key: Int64s, count: int) -> pd.DataFrame:
        """Times by the key of the nodes, and the thread with most of it; a key that calls itself
        counts once.
        """
        samples, nodes = self.samples, len(self.samples.parent)
        busiest = np.argsort(
            -_sums(samples.thread, self.weight, len(samples.threads)), kind="stable"
        )[:_MOST_THREADS]
        column = np.full(len(samples.threads), min(len(busiest), _MOST_THREADS), np.int64)
        column[busiest] = np.arange(len(busiest))
        width = len(busiest) + 1
        flat = samples.node.astype(np.int64) * width + column[samples.thread]
        total = nesting.totals(
            samples.parent, _sums(flat, self.weight, nodes * width).reshape(nodes, width)
        )
        outermost = _outermost(samples.parent, key)
        by_thread = np.zeros((count, width))
        np.add.at(by_thread, key[outermost], total[outermost])
        names = [*(samples.threads[thread] for thread in busiest), "other threads"]
        itself = _sums(key, self._self, count)
        return pd.DataFrame(
            {
                "thread": [names[thread] for thread in by_thread.argmax(axis=1)],
                "self_ms": itself / 1e6,
                "total_ms": by_thread.sum(axis=1) / 1e6,
                "cpu_ms": self._cpu(key[samples.node], count),
                "percent": _percent(itself, self.weight.sum()),
            }
        )

    def _calls(self, key: Int64s, count: int) -> list[str | None]:
        """The call of each line that takes most of its time; None if unknown."""
        total = nesting.totals(self.samples.parent, self._self)
        best: list[str | None] = [None] * count
        longest = [0.0] * count
        times: dict[tuple[int, str], float] = {}
        for node, ns in enumerate(total.tolist()):
            call = self.samples.places[self.samples.place[node]].call
            line = int(key[node])
            times[line, call] = times.get((line, call), 0.0) + ns
            if times[line, call] > longest[line]:
                longest[line], best[line] = times[line, call], call or None
        return best

    def _code(self, function: Function, line: int) -> str | None:
        text = self.samples.source.get(stem(function.file), "").splitlines()
        return text[line - 1] if 0 < line <= len(text) else None

    @staticmethod
    def _frame(name: str, rows: pd.DataFrame, **columns: Sequence[object] | Floats) -> pd.DataFrame:
        frame = pd.concat([rows, pd.DataFrame(columns)], axis=1)
        frame = frame[frame["total_ms"] > 0].sort_values(
            ["self_ms", "total_ms"], ascending=False, kind="stable"
        )
        return frames.shaped(name, frame.reset_index(drop=True))


def is_person(path: str) -> bool:
    """True if a file is a cell, or in neither an installed package nor the standard library."""
    return bool(stem(path)) or _LIBRARY.search(path) is None


def module(path: str) -> str:
    """The top-level package of a file; `__main__` of a cell, the name of the file of other code."""
    if stem(path):
        return "__main__"
    if match := _PACKAGE.match(path) or _FROZEN.match(path):
        return match[1]
    return re.split(r"[/\\]", path)[-1].removesuffix(".py")


def top_function(
    samples: PythonSamples,
    cells: Mapping[str, int],
    start_ns: Int64s | None = None,
    end_ns: Int64s | None = None,
) -> TopFunction | None:
    """The function of the person's code that took most of some intervals, on the thread of the
    cell; None where none is known.

    Parameters
    ----------
    samples : PythonSamples
    cells : mapping
        Execution counts by the stem of a cell's file.
    start_ns, end_ns : int64[n], optional
        The intervals, disjoint and ascending, in ns since 1970.
    """
    intervals = None
    if start_ns is not None and end_ns is not None:
        intervals = Intervals(start_ns, end_ns)
    return Python(samples, cells, intervals).top_function()


def _lengths(samples: PythonSamples, intervals: Intervals | None) -> tuple[Floats, Floats]:
    """Length of each sample, and how much of it is in the intervals."""
    wall = np.diff(samples.at).astype(np.float64)
    if intervals is None:
        return wall, wall
    return wall, np.diff(intervals.covered_until(samples.at)).astype(np.float64)


def _outermost(parent: Int64s | Int32s, key: Int64s) -> Flags:
    """The nodes that have none of the same key above them."""
    outermost = np.ones(len(parent), np.bool_)
    above = parent.astype(np.int64)
    while (above >= 0).any():
        outermost &= (above < 0) | (key[above] != key)
        above = np.where(above >= 0, parent[above], -1)
    return outermost


def _sums(key: Int64s | Int32s, values: Floats | Flags, count: int = 0) -> Floats:
    return np.asarray(np.bincount(key, values, count), np.float64)


def _percent(part: Floats, total: float) -> Floats:
    return 100 * part / total if total > 0 else np.full(len(part), np.nan)
