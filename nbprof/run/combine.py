"""How the values of several hosts become that of the run, for `nbprof.run.frame.frame`.

Counts and sums add up; rows of a host or of its devices are stacked, with their times moved to the
clock of the run. Shares, means and ranks are computed from what was combined, never combined
themselves. A function that only one frame needs is in the module of that frame.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import pandas as pd

from nbprof.core.receipt import Note
from nbprof.core.units import join_some
from nbprof.run.frame import Combine, Hosts

T = TypeVar("T")
_HOST_HERE = "\0"
"""Stands for the name of the host in its own notes."""


def below(*times: str) -> Combine[pd.DataFrame]:
    """Stacks the rows of all hosts; `times` are the columns of times of day, in ms."""
    return lambda values, hosts: stacked(values, hosts, times)


def stacked(
    values: Sequence[pd.DataFrame], hosts: Hosts, times: Sequence[str] = ()
) -> pd.DataFrame:
    """The rows of the frames of all hosts; columns that a frame lacks are missing there."""
    frames = []
    for value, offset_ms in zip(values, hosts.clock_offsets_ms, strict=True):
        # pandas would take the types of frames without rows into account.
        if not len(value):
            continue
        moved = {}
        if offset_ms:
            moved = {name: value[name] + offset_ms for name in times if name in value}
        frames.append(value.assign(**moved))
    return pd.concat(frames, ignore_index=True) if frames else values[0]


def before(hosts: Hosts) -> list[int]:
    """How many hosts come before each group."""
    sizes = list(map(len, hosts.groups))
    return list(itertools.accumulate(sizes, initial=0))[:-1]


def chained(values: list[list[Any]], _hosts: Hosts) -> list[Any]:
    """The items of all lists."""
    return list(itertools.chain.from_iterable(values))


def added(values: list[T], combine: Callable[[list[T]], T]) -> T:
    """`combine` of the values; the value of a single host stays as it is."""
    return values[0] if len(values) == 1 else combine(values)


def by(combine: Callable[[list[T]], T]) -> Combine[T]:
    """Combines by a function of the values alone, without clocks and names of hosts."""
    return lambda values, _hosts: added(values, combine)


class WithHostNames:
    """Base of the dataclasses of hosts in which `renamed` replaces the names of hosts."""


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A value in which some hosts have other names."""
    if not names:
        return value
    if isinstance(value, pd.DataFrame):
        columns = [name for name in ("host", "worker") if name in value]
        return value.assign(**{name: value[name].replace(names) for name in columns})
    if isinstance(value, WithHostNames):
        parts = [field.name for field in fields(value)]  # type: ignore[arg-type]
        changes = {name: renamed(getattr(value, name), names) for name in parts}
        return replace(value, **changes)  # type: ignore[type-var]
    if isinstance(value, (list, tuple)):
        return type(value)(renamed(item, names) for item in value)
    if isinstance(value, dict):
        return {key: renamed(item, names) for key, item in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


def folded(
    notes: Sequence[Sequence[Note]],
    groups: Sequence[Sequence[str]],
    files: Sequence[Sequence[str]] = (),
) -> list[Note]:
    """The notes of several groups of hosts, equal ones once.

    A note that only some hosts have names them. `files` are the names of the files of each group: a
    note that begins with one is about the host of that file.
    """
    hosts_of_note: dict[Note, list[str]] = {}
    for names, group_notes, file_names in zip(
        groups, notes, files or [()] * len(groups), strict=True
    ):
        for note, group_hosts in _hosts_by_note(names, group_notes, file_names).items():
            hosts_of_note.setdefault(note, []).extend(group_hosts)
    total = sum(map(len, groups))
    unit = "hosts" if len(groups) == total else "groups of hosts"
    result = []
    for note, hosts in hosts_of_note.items():
        prefix = ""
        if len(hosts) < total:
            if _HOST_HERE not in note.text or len(hosts) > 1:
                prefix = f"{join_some(hosts, 3)}: "
        elif len(groups) > 1 and re.search(r"\d", note.text):
            # A figure in it is that of a single group.
            prefix = f"Each of {len(groups):,} {unit}: "
        host = hosts[0] if len(hosts) == 1 else "this host"
        result.append(replace(note, text=prefix + note.text.replace(_HOST_HERE, host)))
    return result


def _hosts_by_note(
    names: Sequence[str], notes: Sequence[Note], files: Sequence[str]
) -> dict[Note, list[str]]:
    """The hosts of one group that each of its notes is about."""
    result: dict[Note, list[str]] = {}
    for note in notes:
        text, hosts = note.text, list(names)
        if len(files) == len(names) > 1:
            for host, file in zip(names, files, strict=True):
                if text.startswith(f"{file}: "):
                    text, hosts = text.removeprefix(f"{file}: "), [host]
                    break
        if len(hosts) == 1:
            # Notes of several hosts that differ only in the name of the host are the same note.
            text = text.replace(hosts[0], _HOST_HERE)
        note_hosts = result.setdefault(replace(note, text=text), [])
        note_hosts += [host for host in hosts if host not in note_hosts]
    return result
