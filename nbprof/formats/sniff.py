"""Which files make up the profile at a path: a file, a run folder or a TensorBoard logdir."""

from __future__ import annotations

from pathlib import Path

from nbprof.errors import ReadError
from nbprof.formats.pieces import LocalFile, RunFiles

SUFFIX = ".xplane.pb"
_NOT_YET = {
    "*.pt.trace.json*": "a trace of torch.profiler",
    "op_summary*.csv": "output of Ascend msprof",
    "PROF_*": "output of Ascend msprof",
    "kernel_details.csv": "output of the Ascend PyTorch profiler",
    "*.trace.json*": "a Chrome trace",
}


def runs(path: str | Path) -> list[RunFiles]:
    """The runs under a path, newest first, without reading them.

    Parameters
    ----------
    path : str or Path
        A `*.xplane.pb` file, a folder that holds some, or any folder above `plugins/profile/<run>`.
    """
    at = Path(path).expanduser()
    if at.is_file():
        return [RunFiles(at.name.removesuffix(SUFFIX), at.parent, (LocalFile(at),), at.stat().st_mtime)]
    if not at.is_dir():
        return []
    folders: dict[Path, list[Path]] = {}
    for file in at.rglob(f"*{SUFFIX}"):
        # A recording that was never finished lies in a folder of its own, hidden.
        if file.is_file() and not any(part.startswith(".recording-") for part in file.parts):
            folders.setdefault(file.parent, []).append(file)
    found = [
        RunFiles(folder.name, folder, tuple(map(LocalFile, sorted(files))), max(f.stat().st_mtime for f in files))
        for folder, files in folders.items()
    ]
    return sorted(found, key=lambda r: (r.modified, r.name), reverse=True)


def find(path: str | Path, run: str | None = None) -> RunFiles:
    """The run to read at a path: the newest, or the one of that name.

    Raises
    ------
    ReadError
        Nothing is there, or no profile is in it, or no run has that name; says what was looked for and what is there.
    """
    at = Path(path).expanduser()
    if not at.exists():
        raise ReadError(f"there is no such file or folder (seen from {Path.cwd()}).", path=str(path))
    if at.is_file():
        _check_file(at)
    found = runs(at)
    if not found:
        raise ReadError(
            "no profile is in this folder. nbprof looks for *.xplane.pb in it and below it, where TensorBoard keeps them: "
            f"<logdir>/plugins/profile/<run>/<host>.xplane.pb. {_what_is_there(at)}",
            path=str(path),
        )
    if run is None:
        return found[0]
    for candidate in found:
        if candidate.name == run:
            return candidate
    raise ReadError(f"no run is called {run!r}; there are {', '.join(r.name for r in found[:10])}.", path=str(path))


def _check_file(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(64)
    if not head:
        raise ReadError("the file is empty: the profiler was stopped before it wrote anything.", path=str(path))
    if head[:2] == b"\x1f\x8b" or (head[0] != 0x0A and head.lstrip()[:1] in (b"{", b"[")):
        raise ReadError(
            "this looks like a Chrome trace in JSON, which this version of nbprof does not read yet; it reads *.xplane.pb.",
            path=str(path),
        )
    # An XSpace begins with field 1, 2, 3 or 4 as a length-delimited field.
    if head[0] not in (0x0A, 0x12, 0x1A, 0x22):
        raise ReadError("this is no XSpace profile (*.xplane.pb): its first byte is no field of one.", path=str(path))


def _what_is_there(folder: Path) -> str:
    for pattern, what in _NOT_YET.items():
        if next(folder.rglob(pattern), None) is not None:
            return f"It holds {pattern}, {what}, which this version does not read yet."
    names = sorted(p.name + ("/" if p.is_dir() else "") for p in folder.iterdir())
    if not names:
        return "The folder is empty: was the recording stopped, and did it end without an error?"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"It holds {', '.join(names[:5])}{more}."
