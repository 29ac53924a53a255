"""Snapshots of PyTorch's allocator that belong to a run."""

from __future__ import annotations

import re

from nbprof.core.confinement import scan
from nbprof.core.files import RunFiles, SourceFile
from nbprof.formats.chrome import runs
from nbprof.formats.register import stem
from nbprof.formats.torch_snapshot.format import FORMAT

_SUFFIX = re.compile(r"(\.memory_snapshot|_snapshot|-snapshot)?\.(pickle|pkl)$", re.IGNORECASE)


def beside(files: RunFiles) -> tuple[SourceFile, ...]:
    """The snapshots of a run: its files if they are snapshots, else those next to a trace of
    PyTorch that have its name.

    In a folder with one trace, any `*.pickle` whose name says that it is a snapshot counts.
    """
    if files.format == FORMAT.name:
        return files.files
    if files.format != runs.NAME:
        return ()
    result: list[SourceFile] = []
    stems = {stem(file.name) for file in files.files}
    alone = len(stems) == 1
    for first in runs.in_folders(files):
        try:
            with scan(first.path.parent, first.confinement) as entries:
                names = sorted(entry.name for entry in entries if entry.is_file())
        except OSError:
            continue
        for name in filter(_SUFFIX.search, names):
            if _SUFFIX.sub("", name) in stems or (alone and "snapshot" in name.lower()):
                result.append(first.sibling(name))
    return tuple(result)
