"""Which files of a place are profiles: names say which to look into, and their heads decide."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from nbprof.core.errors import ReadError
from nbprof.core.files import printable
from nbprof.formats import register
from nbprof.formats.format import Kind, Member
from nbprof.formats.register import stem, telling
from nbprof.sources.folders import MAYBE, NAMED, NAMELESS, Folder, Found, Listing
from nbprof.sources.sniff import HEAD, recognise

CHEAP_LOOKS, DEAR_LOOKS = 2000, 64
"""How many heads are read in a place: on a disk or in an archive, and over a network."""
# Enough for most files to show what they are.
_SHORT = 1 << 13


def candidates(folder: Folder, listing: Listing) -> list[Member]:
    """The files of a place that are profiles.

    A file whose name is believed is looked into when it is to be read, and so is a copy of the same recording beside it. Another whose name
    tells its format is looked into, but where each costs a request, only if several in one folder have to be told apart. Other files are
    looked into only in folders that have neither, and only so many; how many were not is put among the notes of the listing.
    """
    named = [(f, form) for f in listing.files if f.promise == NAMED and (form := telling(f.file.name))]
    out = [_member(f, Kind(form.name, sure=False)) for f, form in named if form.by_folder]
    hosts: dict[str, set[str]] = {}
    for one in out:
        hosts.setdefault(one.parent, set()).add(one.stem)
    traces = []
    told = {}
    for f, form in named:
        if form.by_folder:
            continue
        if f.parent in hosts and form.is_copy(stem(f.file.name), hosts[f.parent]):
            out.append(_member(f, Kind(form.name, sure=False, exporter=True)))
        else:
            traces.append(f)
            told[id(f)] = form.name
    taken = {f.parent for f, _ in named}
    others = [f for f in listing.files if f.promise in (MAYBE, NAMELESS) and f.parent not in taken]
    others.sort(key=lambda f: (f.promise, f.at))
    looks = CHEAP_LOOKS if folder.cheap else DEAR_LOOKS
    several = {id(f) for f in _unclear(traces)}
    unclear = traces if folder.cheap else [f for f in traces if id(f) in several]
    if len(unclear) > looks:
        # The newest runs are what people come for.
        unclear.sort(key=lambda f: f.file.modified, reverse=True)
    looked, refused = _look(folder, unclear[:looks], several)
    known = {id(f) for f in unclear[:looks]}
    alone = {form.name for form in register.FORMATS if form.recordings is None}
    out += [one for one in looked if one.kind.format in alone and one.kind.sure]
    out += [_member(f, Kind(told[id(f)], sure=False)) for f in traces if id(f) not in known]
    left = looks - min(len(unclear), looks)
    by_content, others_refused = _look(folder, others[:left], set())
    out += [one for one in by_content if one.kind.format in alone and one.kind.sure]
    listing.refused += [(f, text, True) for f, text in refused] + [(f, text, False) for f, text in others_refused]
    if len(others) > left:
        listing.notes.append(("", f"{len(others) - left:,} more files without a telling name were not looked into."))
    return out


def _member(found: Found, kind: Kind) -> Member:
    return Member(found.file, kind, stem(found.file.name), found.parent)


def _unclear(traces: list[Found]) -> list[Found]:
    stems: dict[str, set[str]] = {}
    for found in traces:
        stems.setdefault(found.parent, set()).add(stem(found.file.name).rpartition(".")[0])
    return [f for f in traces if len(stems[f.parent]) > 1]


def _look(folder: Folder, files: list[Found], several: set[int]) -> tuple[list[Member], list[tuple[Found, str]]]:
    """What the heads say, and the files that are no profile; of files in `several` also the rank is wanted, which may stand further
    behind.
    """

    def one(found: Found) -> Member | str:
        try:
            head = b"" if id(found) in several else found.file.head(_SHORT)
            kind = recognise(head, found.file.name, whole=len(head) < _SHORT)
            if not (kind.format and kind.sure) and (len(head) == _SHORT or not head):
                head = found.file.head(HEAD)
                kind = recognise(head, found.file.name, whole=len(head) < HEAD)
        except ReadError as error:
            return f"{printable(found.at)} could not be looked into: {error.reason}"
        return _member(found, kind) if kind.format else f"{printable(found.at)} is {kind.what}, not a profile."

    if folder.cheap:
        done = [one(found) for found in files]
    else:
        with ThreadPoolExecutor(16) as pool:
            done = list(pool.map(one, files))
    refused = [(found, text) for found, text in zip(files, done, strict=True) if isinstance(text, str)]
    return [c for c in done if isinstance(c, Member)], refused
