"""The values of hosts that were read separately, and what is read of them when.

`Parts` reads the files of a run in groups and in phases: what the overview needs first, the rest
when a frame needs it, and some frames of a few hosts only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.unit import NONE, WHOLE
from nbprof.core.errors import ReadError
from nbprof.core.files import Missing, RunFiles
from nbprof.core.receipt import Cut, Receipt
from nbprof.formats.hosts import with_folders
from nbprof.formats.register import stem
from nbprof.run import notes, parallel
from nbprof.run.combine import before, folded, renamed
from nbprof.run.frame import FRAMES, Hosts, Phase
from nbprof.run.frames.programs import hosts_with_programs
from nbprof.run.partial import Partial

READ = "read"
"""Name of what the reader says of the files of some hosts, among their values."""

ReadGroups = Callable[
    [Sequence[parallel.Group], Sequence[Phase]], tuple[dict[parallel.Group, bytes], list[Missing]]
]
"""Reads groups of files: the partial of each, and the files that could not be read."""
Prefetch = Callable[[Sequence[parallel.Group], Sequence[Phase]], None]
"""Starts to read groups of files that will be needed next."""


class ReadHosts:
    """Values of groups of hosts.

    Parameters
    ----------
    partials : sequence of Partial
        One per group.
    groups : list of list of str
        The names of the hosts in the run.
    recorded_names : list of list of str
        Their names in the files.
    clock_offsets_ms : list of float
    """

    def __init__(
        self,
        partials: Sequence[Partial],
        groups: list[list[str]],
        recorded_names: list[list[str]],
        clock_offsets_ms: list[float],
    ) -> None:
        self.groups, self.clock_offsets_ms = groups, clock_offsets_ms
        self._partials = partials
        self._new_names: list[dict[str, str]] = []
        for recorded, names in zip(recorded_names, groups, strict=True):
            changes = {}
            if recorded != names:
                changes = dict(zip(recorded, names, strict=True))
            self._new_names.append(changes)

    def values(self, name: str) -> list[Any]:
        """The value of that name of each group."""
        values = [partial[name] for partial in self._partials]
        return list(map(renamed, values, self._new_names))

    def reading(self, phase: Phase) -> Hosts:
        """Not possible: only these values were read."""
        raise KeyError(phase)


@dataclass
class Units:
    """The unit that may replace steps while hosts are read, see `nbprof.activity.unit`.

    It changes after no host turned out to have steps.
    """

    kind: str = NONE


class Parts:
    """The hosts of a run that were read separately.

    Parameters
    ----------
    files : RunFiles
    groups : sequence of Group
        The groups in which files are read.
    read_groups, prefetch : callable
        Read them; see `ReadGroups` and `Prefetch`.
    at_once : bool
        Read what tabs need together with what the overview needs.
    drawn : bool
        The dashboard is drawn next: see `read_ahead`.
    units : Units
        What `read_groups` and `prefetch` pass to hosts.
    """

    def __init__(
        self,
        files: RunFiles,
        groups: Sequence[parallel.Group],
        read_groups: ReadGroups,
        prefetch: Prefetch,
        *,
        at_once: bool,
        drawn: bool,
        units: Units,
    ) -> None:
        self._read_groups, self._prefetch, self._drawn = read_groups, prefetch, drawn
        self._prefetched: set[Phase] = set()
        self._file_names = [file.name for file in files.files]
        phases = [Phase.FIRST]
        if len(files.files) <= parallel.MANY:
            groups = [(number,) for number in range(len(files.files))]
            phases += [Phase.REST, Phase.TYPICAL]
        elif at_once:
            phases += [Phase.REST]
        data, self.missing = read_groups(groups, phases)
        partials = [Partial(content) for content in data.values()]
        if not any(len(partial["_measured_steps"].frame) for partial in partials):
            # Only now is it known that no host has steps.
            units.kind = WHOLE
            data, self.missing = read_groups(groups, phases)
            partials = [Partial(content) for content in data.values()]
        self._file_groups = list(data)
        self.numbers = [number for group in data for number in group]
        self._facts: list[dict[str, Any]] = [partial[READ] for partial in partials]
        self._recorded_names: list[list[str]] = [partial["hosts"] for partial in partials]
        self.groups = self._named(files)
        epochs = [facts["epoch_ns"] for facts in self._facts]
        self.epoch_ns: int = min((epoch for epoch in epochs if epoch), default=0)
        self.clock_offsets_ms = [self._offset_ms(epoch) for epoch in epochs]
        hosts = ReadHosts(partials, self.groups, self._recorded_names, self.clock_offsets_ms)
        self._hosts: dict[Phase, ReadHosts] = dict.fromkeys(phases, hosts)
        self._prefetch_next()

    def _named(self, files: RunFiles) -> list[list[str]]:
        """The names of the hosts in the run."""
        pieces = [files.files[number] for number in self.numbers]
        stems = with_folders([stem(piece.name) for piece in pieces], pieces)
        recorded = list(itertools.chain.from_iterable(self._recorded_names))
        names = iter(_distinct(recorded, stems))
        return [list(itertools.islice(names, len(group))) for group in self._recorded_names]

    def _offset_ms(self, epoch_ns: int) -> float:
        """How long after the clock of the run that of a host begins; 0 for a host without one."""
        if not epoch_ns:
            return 0.0
        return (epoch_ns - self.epoch_ns) / 1e6

    @property
    def names(self) -> list[str]:
        """The hosts."""
        return list(itertools.chain.from_iterable(self.groups))

    def values(self, name: str) -> list[Any]:
        """The value of that name of each group."""
        return self._hosts[Phase.FIRST].values(name)

    def reading(self, phase: Phase) -> Hosts:
        """The hosts that computed the frames of a phase, which are read now if needed.

        Raises
        ------
        ReadError
            A file no longer exists.
        """
        if phase not in self._hosts:
            if phase == Phase.REST:
                partials = self._read_again(self._file_groups, phase)
                self._hosts[phase] = ReadHosts(
                    partials, self.groups, self._recorded_names, self.clock_offsets_ms
                )
            else:
                self._hosts[phase] = self._read_some(phase)
            self._prefetch_next()
        return self._hosts[phase]

    def read_ahead(self) -> None:
        """Prefetches what the dashboard needs of some hosts, while its first frames are computed.

        Never for scripts, which may not need it.
        """
        self._drawn = True
        self._prefetch_next()

    def _prefetch_next(self) -> None:
        if not self._drawn or Phase.REST not in self._hosts:
            return
        phases = [Phase.TYPICAL]
        if self._by_peak:
            phases = [Phase.LARGEST, Phase.TYPICAL]
        for phase in phases:
            if phase not in self._hosts and phase not in self._prefetched:
                self._prefetched.add(phase)
                self._prefetch(self._alone(self._hosts_of(phase)), (phase,))

    def _read_some(self, phase: Phase) -> ReadHosts:
        """Some hosts, each by itself."""
        numbers = self._hosts_of(phase)
        partials = self._read_again(self._alone(numbers), phase)
        names, recorded_names = self.names, list(itertools.chain(*self._recorded_names))
        return ReadHosts(
            partials,
            [[names[number]] for number in numbers],
            [[recorded_names[number]] for number in numbers],
            [self._offset_ms(partial[READ]["epoch_ns"]) for partial in partials],
        )

    def _hosts_of(self, phase: Phase) -> list[int]:
        """The numbers of the hosts that compute the frames of a phase."""
        if phase == Phase.TYPICAL:
            return self._typical()
        if phase == Phase.LARGEST:
            return self._by_peak[:1]
        return hosts_with_programs(FRAMES["programs_listed"].of_hosts(self.reading(Phase.REST)))

    def _alone(self, hosts: Sequence[int]) -> list[parallel.Group]:
        return [(self.numbers[host],) for host in hosts]

    def _read_again(self, groups: Sequence[parallel.Group], phase: Phase) -> list[Partial]:
        data, missing = self._read_groups(groups, (phase,))
        if missing:
            raise ReadError(
                f"it was read before, but cannot be read now: {missing[0].reason}",
                path=missing[0].file,
            )
        return [Partial(data[group]) for group in groups]

    def _typical(self) -> list[int]:
        """Some hosts from the fastest to the slowest by the mean length of their steps.

        Without steps, from the first to the last. If only some hosts have steps, some of those:
        what to change in a step follows from them alone.
        """
        steps = FRAMES["_measured_steps"].of_hosts(self).frame
        mean_ms = pd.Series(dtype=np.float64)
        if len(steps):
            mean_ms = steps.groupby("host")["step_time_ms"].mean()
        length_ms = mean_ms.reindex(self.names).to_numpy(np.float64)
        with_steps = int(np.isfinite(length_ms).sum())
        by_length = np.argsort(length_ms, kind="stable")[: with_steps or None]
        positions = np.linspace(0, len(by_length) - 1, parallel.MANY)
        return sorted({int(by_length[round(position)]) for position in positions})

    @cached_property
    def _by_peak(self) -> list[int]:
        """The hosts of the allocators whose peak is known, the highest first."""
        summary = FRAMES["memory_summary"].of_hosts(self)
        if not len(summary):
            return []
        return [int(host) for host in summary["peak_host"].dropna()]

    def receipt(self) -> Receipt:
        """Notes on what was read of all hosts, and what was skipped."""
        receipt = Receipt(events=sum(facts["events"] for facts in self._facts))
        for facts in self._facts:
            for reason, count in facts["skipped"].items():
                receipt.skip(reason, count, key=facts["keys"][reason])
        files = [list(map(self._file_names.__getitem__, group)) for group in self._file_groups]
        receipt.entries = folded([facts["notes"] for facts in self._facts], self.groups, files)
        for first, facts in zip(before(self), self._facts, strict=True):
            for partly_read in facts["cut"]:
                receipt.cut_off(Cut(first + partly_read.host, partly_read.file, partly_read.what))
        recorded_names = itertools.chain(*self._recorded_names)
        count = sum(old != new for old, new in zip(recorded_names, self.names, strict=True))
        if count:
            receipt.add(notes.equal_host_names(count))
        return receipt


def _distinct(names: Sequence[str], stems: Sequence[str]) -> list[str]:
    """Host names; duplicates are replaced by their file names.

    All are, if the folder of each file has the name of its host.
    """
    used: set[str] = set()
    result = []
    for name, file_stem in zip(names, stems, strict=True):
        new_name = next(new for new in _candidates(name, file_stem) if new not in used)
        used.add(new_name)
        result.append(new_name)
    return result


def _candidates(name: str, file_stem: str) -> Iterator[str]:
    if file_stem.endswith(f"/{name}"):
        yield file_stem
    yield name
    yield file_stem
    for number in itertools.count(2):
        yield f"{file_stem} ({number})"


class LazyParts:
    """Parts that are read when they are first needed.

    Parameters
    ----------
    read : callable
        Reads them; its parameter says if the dashboard is drawn next.
    drawn : bool
        The dashboard is drawn next, as is known from the beginning.
    """

    def __init__(self, read: Callable[[bool], Parts], *, drawn: bool) -> None:
        self._read, self._drawn = read, drawn

    @cached_property
    def parts(self) -> Parts:
        """The hosts."""
        return self._read(self._drawn)

    def read_ahead(self) -> None:
        """See `Parts.read_ahead`; nothing is read for it while the cache has all that is needed."""
        self._drawn = True
        if "parts" in vars(self):
            self.parts.read_ahead()

    @property
    def missing(self) -> list[Missing]:
        """Files that could not be read."""
        return self.parts.missing

    @property
    def groups(self) -> list[list[str]]:
        """The names of the hosts in each group."""
        return self.parts.groups

    @property
    def clock_offsets_ms(self) -> list[float]:
        """How long after the clock of the run that of each group begins."""
        return self.parts.clock_offsets_ms

    def values(self, name: str) -> list[Any]:
        """The value of that name of each group."""
        return self.parts.values(name)

    def reading(self, phase: Phase) -> Hosts:
        """The hosts that computed the frames of a phase; of the first, these."""
        return self if phase == Phase.FIRST else self.parts.reading(phase)
