"""Which hosts should be in a run and are not, or in part: what cannot be read, is cut off or a
copy, or is counted in by names or size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
) -> pd.DataFrame:
    """One row a host, in the order of their names: `host file reason`, the columns of
    `p.pods.missing`.

    Parameters
    ----------
    hosts : list of str
        Those that are there.
    stems : sequence of str
        What the file of each of them is called, without suffixes; empty where they have none of
        their own.
    unread : sequence of Missing
        Files that are not in the run.
    in_part : sequence of (str, Missing)
        Hosts that are there, of whose files only a part could be read.
    processes : object
        How many the job had, where that is stated.
    """
    ranked = any(rank_of(host) is not None for host in hosts)
    # Whether the numbers in the names of files are ranks is known from those that state theirs.
    numbered = (
        ranked
        and bool(stems)
        and all(rank_of(host) == number_of(own) for host, own in zip(hosts, stems, strict=True))
    )

    def called(own: str) -> str:
        rank = number_of(own) if numbered else rank_of(own) if ranked else None
        name = own if rank is None else f"rank {rank}"
        # A copy may lie beside the file of a rank that is there.
        return own if name in hosts else name

    out = [(called(stem(one.file)), one.file, one.reason) for one in unread]
    ranks = collectives.ranks_missing(hosts, processes)
    if ranks:
        lacking = [(f"rank {rank}", _NO_RANK) for rank in ranks]
    else:
        # What a file that cannot be read calls its host is not known: then the names of files are
        # counted.
        names = [*stems, *(stem(one.file) for one in unread)] if unread and stems else hosts
        lacking = [(called(name), _NO_HOST) for name in hosts_missing(names)]
    known = {name for name, _, _ in out}
    out += [(name, "", reason) for name, reason in lacking if name not in known]
    out += [(host, one.file, one.reason) for host, one in in_part]
    out.sort(key=_natural)
    return pd.DataFrame(out, columns=["host", "file", "reason"], dtype=object)


def _natural(row: tuple[str, str, str]) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", row[0])
    ]
