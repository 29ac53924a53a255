"""Which snapshots of PyTorch's allocator belong to a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

from nbprof.core.files import LocalFile, RunFiles, SourceFile
from nbprof.core.packed import Unpacked
from nbprof.formats.chrome import runs
from nbprof.formats.register import stem
from nbprof.formats.torch_snapshot.format import FORMAT

_SUFFIX = re.compile(r"(\.memory_snapshot|_snapshot|-snapshot)?\.(pickle|pkl)$", re.IGNORECASE)


def beside(files: RunFiles) -> tuple[SourceFile, ...]:
    """The snapshots of a run: its files, where they are that, or those that lie beside a trace of PyTorch under its name.

    In a folder with one trace, any `*.pickle` whose name says that it is a snapshot counts.
    """
    if files.format == FORMAT.name:
        return files.files
    if files.format != runs.NAME:
        return ()
    out: list[SourceFile] = []
    locals_ = [file.packed if isinstance(file, Unpacked) else file for file in files.files]
    folders = {file.path.parent for file in locals_ if isinstance(file, LocalFile)}
    stems = {stem(file.name) for file in files.files}
    for folder in sorted(folders):
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.is_file() and _SUFFIX.search(entry.name))
        except OSError:
            continue
        alone = len(stems) == 1
        out += [
            LocalFile(Path(folder) / name) for name in names if _SUFFIX.sub("", name) in stems or (alone and "snapshot" in name.lower())
        ]
    return tuple(out)
