"""Hosts that a run lacks completely or in part: files that are unread, truncated or copies, and
gaps in the numbering of ranks and hosts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from nbprof.analysis.device_time import collectives
from nbprof.analysis.device_time.device_time import rank_of
from nbprof.core.files import Missing
from nbprof.formats.chrome.runs import number_of
from nbprof.formats.hosts import hosts_missing
from nbprof.formats.register import stem

_NO_RANK = "There is no file for this rank, which was part of the job."
_NO_HOST = "There is no file for this host, although the numbering of the others implies one."


def rows(
    hosts: list[str],
    stems: Sequence[str],
    unread: Sequence[Missing],
    in_part: Sequence[tuple[str, Missing]],
    processes: object,
    failed: Mapping[int, str],
) -> pd.DataFrame:
    """One row per host, in the order of their names: the columns of `p.pods.missing`.

    Parameters
    ----------
    hosts : list of str
        The hosts of the run.
    stems : sequence of str
        The names of their files without suffixes; empty if they have no own files.
    unread : sequence of Missing
        Files that are not in the run.
    in_part : sequence of (str, Missing)
        Hosts of the run of whose files only a part could be read.
    processes : object
        The number of processes of the job, if it is stated.
    failed : mapping of int to str
        How ranks failed, if their launcher's recorder stated it.
    """
    names = _HostNames(hosts, stems)
    result: list[tuple[str, str, str]] = []
    unread_stems = [stem(file.file) for file in unread]
    for file, file_stem in zip(unread, unread_stems, strict=True):
        result.append((names.of_stem(file_stem), file.file, file.reason))
    hosts_by_rank = {rank_of(host): host for host in hosts}
    for rank, error in failed.items():
        host = hosts_by_rank.get(rank, f"rank {rank}")
        name = stems[hosts.index(host)] if stems and host in hosts else ""
        result.append((host, name, error))
    named = {host for host, _, _ in result}
    reason = _NO_RANK
    lacking = [f"rank {rank}" for rank in collectives.ranks_missing(hosts, processes)]
    if not lacking:
        reason = _NO_HOST
        # The name of the host in an unread file is unknown, so names of files are counted instead.
        listed = [*stems, *unread_stems] if unread and stems else hosts
        lacking = list(map(names.of_stem, hosts_missing(listed)))
    for host in lacking:
        if host not in named:
            result.append((host, "", reason))
    for host, file in in_part:
        result.append((host, file.file, file.reason))
    result.sort(key=_natural)
    return pd.DataFrame(result, columns=["host", "file", "reason"], dtype=object)


class _HostNames:
    """The names that hosts without a readable file would have."""

    def __init__(self, hosts: list[str], stems: Sequence[str]) -> None:
        self._hosts = hosts
        ranks = list(map(rank_of, hosts))
        self._has_ranks = ranks != [None] * len(ranks)
        # Numbers in the names of files are ranks if they are for all files that state their rank.
        self._numbers_are_ranks = (
            self._has_ranks and bool(stems) and ranks == list(map(number_of, stems))
        )

    def of_stem(self, file_stem: str) -> str:
        """The name of the host of a file; of a copy of a file that was read, that of the file."""
        rank = None
        if self._numbers_are_ranks:
            rank = number_of(file_stem)
        elif self._has_ranks:
            rank = rank_of(file_stem)
        if rank is None or f"rank {rank}" in self._hosts:
            return file_stem
        return f"rank {rank}"


def _natural(row: tuple[str, str, str]) -> list[tuple[int, str]]:
    """Sorts numbers in names by their value."""
    key = []
    for part in re.split(r"(\d+)", row[0]):
        if part.isdecimal():
            key.append((int(part), ""))
        else:
            key.append((-1, part))
    return key
