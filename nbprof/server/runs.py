"""The search for runs below a folder that Jupyter serves, without reading them.

Files become runs by the rules of `nbprof.sources.locate.runs`. But this search stays in the folder
that Jupyter serves, ignores hidden files, reports the first runs while it looks for the others, and
stops when the client is gone. It waits for disks, so it runs on a thread.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nbprof.core import unfinished
from nbprof.core.confinement import Confinement, real_path, scan, state_of
from nbprof.core.errors import NbprofError
from nbprof.core.files import LocalFile, RunFiles, printable
from nbprof.core.receipt import info
from nbprof.core.sidecar import SIDECAR
from nbprof.core.unfinished import SCRATCH
from nbprof.formats.register import by_name, stem
from nbprof.server import runs_recordings
from nbprof.server.on_disk import OnDisk, Problem, state_key
from nbprof.server.paths import confinement_of, could_not, is_within, join, reaches
from nbprof.sources import detect, locate
from nbprof.sources.budget import Budget
from nbprof.sources.folders import BESIDE, MAYBE, NAMED, Listing, LocalFolder, promised

if TYPE_CHECKING:
    from nbprof.sources.recording import CaptureInfo

MOST_FILES = 200_000
"""Files that are examined per request."""
MOST_RUNS = 5_000
MOST_BYTES, MOST_S = 256 << 20, 60.0
"""Bytes of beginnings of files that are read, and seconds, per request."""
_LINK_OUTSIDE = (
    "is a link that points outside the folder that Jupyter serves. Replace the link with a copy of"
    " the file."
)
_MOST_LOOKS = 500
"""Files with ambiguous names, such as `rank0.json`, whose heads are read per request."""
_MOST_PROBLEMS = 50

_DATED = re.compile(r"\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d(_\d+)?")
"""Names of run folders of TensorFlow and JAX."""
# A Python environment contains tens of thousands of files, but no runs.
_ENVIRONMENT = {"pyvenv.cfg", "conda-meta"}


@dataclass
class Search:
    """One request for runs, over one or several folders.

    Parameters
    ----------
    top : Path
        The folder that Jupyter serves, without links.
    hidden : bool
        Include names that begin with a dot.
    follow_links : bool
        Links may lead out of the top.
    depth : int
    stop : callable
        Returns True when the client is gone.
    """

    top: Path
    hidden: bool = False
    follow_links: bool = False
    depth: int = 8
    stop: Callable[[], bool] = lambda: False
    _entered: set[str] = field(default_factory=set)
    _starts: list[Path] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _with_runs: set[str] = field(default_factory=set)
    budget: Budget = field(init=False)
    _looks: int = 0
    _problems: int = 0
    _full: bool = False

    def __post_init__(self) -> None:
        self.budget = Budget(MOST_FILES, MOST_BYTES, MOST_S, stop=self.stop)

    def below(self, path: str, real: Path) -> Iterator[OnDisk | Problem]:
        """The runs in and below a folder, or in a file; those in subfolders come first.

        Parameters
        ----------
        path : str
            Path in the file browser.
        real : Path
            Path on the disk, without links.
        """
        confinement = self.confinement
        try:
            mode = state_of(real, confinement).st_mode
        except (OSError, ValueError) as error:
            yield from self._problem(
                path, could_not(error, path).reason, gone=isinstance(error, FileNotFoundError)
            )
            return
        if stat.S_ISREG(mode):
            yield from self._alone(path)
        elif not stat.S_ISDIR(mode):
            yield from self._problem(path, "it is neither a file nor a folder.")
        else:
            yield from self._all(path, real)

    def _all(self, path: str, real: Path) -> Iterator[OnDisk | Problem]:
        links: list[tuple[str, Path, int]] = []
        self._starts.append(real)
        yield from self._folder(path, real, self.depth, links)
        # Links last, so that runs get a path without links if there is one.
        while links and not self._over:
            path_of_link, target, depth = links.pop(0)
            # A link to a folder above would find the same runs again.
            if not any(is_within(start, target) for start in self._starts):
                yield from self._folder(path_of_link, target, depth, links)

    @property
    def confinement(self) -> Confinement | None:
        """The confinement of opened files to the top; None if links may lead out of it."""
        top = None if self.follow_links else self.top
        return confinement_of(top, hidden=self.hidden)

    @property
    def complete(self) -> bool:
        """True if everything was examined."""
        return not (self._full or self.budget.over)

    @property
    def _over(self) -> bool:
        return self._full or self.budget.over

    def _alone(self, path: str) -> Iterator[OnDisk | Problem]:
        """The run of a single file."""
        # By its name in the folder, not by that of the target of a link.
        above, _, name = path.rpartition("/")
        try:
            folder = Path(real_path(self.top / above))
            here = _Here(above, folder, self)
            here.take(name, here.state(name))
            if (folder / SIDECAR).is_file():
                here.take(SIDECAR, here.state(SIDECAR))
        except OSError as error:
            yield from self._problem(path, could_not(error, path).reason)
            return
        yield from self._runs_of_files(here)

    def _folder(
        self, path: str, real: Path, depth: int, links: list[tuple[str, Path, int]]
    ) -> Iterator[OnDisk | Problem]:
        """The runs below a folder, then those in it; none for a folder that was searched before."""
        if str(real) in self._entered or self._over:
            return
        self._entered.add(str(real))
        here = _Here(path, real, self)
        try:
            here.look()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                yield from self._problem(path, could_not(error, path).reason)
            return
        for name, message in here.refused:
            yield from self._problem(join(path, name), message)
        for sentence in here.unfinished:
            yield from self._problem(path, sentence)
        if depth > 0:
            for names in _alike(here.folders):
                below = self._folders(here, names, depth - 1, links)
                if len(names) > 1 and path:
                    below = iter(self._joined(here, list(below)))
                yield from below
            for name, target in here.links:
                links.append((join(path, name), target, depth - 1))
        if not self._full and not self.stop():
            unknown = bool(here.links) or (depth == 0 and bool(here.folders)) or self.budget.over
            yield from self._runs_of_files(here, folder_may_stand=bool(path) and not unknown)
            yield from self._used_up(path)

    def _folders(
        self, here: _Here, names: list[str], depth: int, links: list[tuple[str, Path, int]]
    ) -> Iterator[OnDisk | Problem]:
        """The runs below some folders of a folder."""
        for name in names:
            if not self._over:
                yield from self._folder(join(here.path, name), here.real / name, depth, links)

    def _joined(self, here: _Here, results: list[OnDisk | Problem]) -> list[OnDisk | Problem]:
        """Results from folders with similar names, joined into one run if they are its ranks and
        the folder around them opens as that run.
        """
        runs = [result for result in results if isinstance(result, OnDisk)]
        folders = {run.files[0].parent for run in runs}
        if len(runs) < 2 or len(folders) < len(runs):
            return results
        if {folder.parent for folder in folders} != {here.real}:
            return results
        above = str(here.real) + os.sep
        for folder in self._with_runs:
            if folder.startswith(above) and Path(folder) not in folders:
                return results
        try:
            (joined,) = locate.runs(
                here.real, locate.OpenOptions(confinement=self.confinement, budget=Budget)
            )
        except (NbprofError, ValueError):
            return results
        by_file = {run.files[0]: run for run in runs}
        paths = [file.path for file in joined.files if isinstance(file, LocalFile)]
        if len(paths) < len(joined.files) or set(paths) != set(by_file):
            return results
        parts = [by_file[path] for path in paths]
        self._with_runs.add(str(here.real))
        self._seen.add(here.path)
        joined_run = OnDisk(
            path=here.path,
            real=here.real,
            name=joined.name,
            modified=joined.modified,
            bytes=sum(part.bytes for part in parts),
            format=joined.format,
            files=tuple(part.files[0] for part in parts),
            state=tuple(itertools.chain.from_iterable(part.state for part in parts)),
        )
        problems = [result for result in results if isinstance(result, Problem)]
        return [*problems, joined_run]

    def _used_up(self, path: str) -> Iterator[Problem]:
        reason = self.budget.reason
        if reason and not self._full:
            self._full = True
            yield Problem(path, f"{reason}; the others were not examined. Choose a subfolder.")

    def _runs_of_files(
        self, here: _Here, *, folder_may_stand: bool = False
    ) -> Iterator[OnDisk | Problem]:
        """The runs of the files in a folder. With `folder_may_stand`, the path of the folder stands
        for its run if no other run is below.
        """
        yield from self._of_folders(here)
        if not here.listing.files:
            return
        runs, folder = self._runs(here, folder_may_stand=folder_may_stand)
        for run in runs:
            try:
                on_disk = here.run(run, folder=folder)
            except NbprofError:
                # A file was removed.
                continue
            if on_disk.path in self._seen:
                continue
            if len(self._seen) >= MOST_RUNS:
                self._full = True
                yield Problem(
                    here.path,
                    f"there are more than {MOST_RUNS:,} runs; the others are not listed.",
                )
                return
            if self.stop():
                return
            self._seen.add(on_disk.path)
            self._with_runs.add(str(here.real))
            yield on_disk
        yield from self._refused(here)

    def _refused(self, here: _Here) -> Iterator[Problem]:
        """Problems with files in a folder, up to the limit."""
        names = {printable(file.at): file.at for file in here.listing.files}
        # An exhausted budget is reported once for the search.
        notes = [] if self.budget.reason else list(here.listing.doubts)
        notes += [note for _, note in here.listing.notes]
        notes += [refused.note for refused in here.listing.refused if refused.named]
        for note in notes:
            if self._problems > _MOST_PROBLEMS:
                return
            text = note.text
            about = next((start for start in _starts(text) if start in names), "")
            path = join(here.path, names.get(about, ""))
            yield from self._problem(path, text.removeprefix(about).lstrip())

    def _of_folders(self, here: _Here) -> Iterator[OnDisk | Problem]:
        """The runs in this folder whose recordings are folders."""
        for recordings, claim in here.listing.claims.items():
            if not claim.sign:
                continue
            for result in runs_recordings.runs_in_folder(
                recordings, here.path, LocalFolder(here.real, self.confinement)
            ):
                if isinstance(result, OnDisk):
                    # A timeline file next to the tables is part of the same run.
                    here.listing.files = [
                        f for f in here.listing.files if here.real / f.at not in result.files
                    ]
                if isinstance(result, Problem):
                    yield from self._problem(result.path, result.message)
                elif result.path not in self._seen and len(self._seen) < MOST_RUNS:
                    self._seen.add(result.path)
                    self._with_runs.add(str(here.real))
                    yield result

    def _runs(self, here: _Here, *, folder_may_stand: bool) -> tuple[list[RunFiles], bool]:
        """The runs, and True if the path of the folder stands for the only one."""
        folder, listing = LocalFolder(here.real, self.confinement), here.listing
        unclear = [f for f in listing.files if f.promise >= MAYBE and f.promise != BESIDE]
        left = max(_MOST_LOOKS - self._looks, 0)
        self._looks += min(len(unclear), left)
        dropped = {id(f) for f in unclear[left:]}
        listing.files = [f for f in listing.files if id(f) not in dropped]
        try:
            runs = detect.runs(
                detect.candidates(folder, listing),
                [f for f in listing.files if f.promise == BESIDE],
                here.real.name,
                lambda _: here.real,
            )
        except NbprofError as error:
            listing.notes.append(("", info("unexamined_files", str(error))))
            return [], False
        if len(runs) == 1 and (
            here.is_run or (len(runs[0].files) > 1 and not by_name(runs[0].format).by_folder)
        ):
            above = str(here.real) + os.sep
            if folder_may_stand and not any(folder.startswith(above) for folder in self._with_runs):
                return runs, True
        sidecar = next((f.file for f in listing.files if f.promise == BESIDE), None)
        # Each of several runs has the path of its file.
        single: list[RunFiles] = []
        for run in runs:
            for piece in run.files:
                file_run = replace(run, name=stem(piece.name), files=(piece,), sidecar=sidecar)
                if len(run.files) > 1:
                    file_run = replace(file_run, modified=piece.modified)
                single.append(file_run)
        return single, False

    def _problem(self, path: str, message: str, *, gone: bool = False) -> Iterator[Problem]:
        self._problems += 1
        if self._problems <= _MOST_PROBLEMS:
            yield Problem(path, message, gone)
        elif self._problems == _MOST_PROBLEMS + 1:
            yield Problem(
                path,
                f"more than {_MOST_PROBLEMS} files and folders could not be read; the others are"
                " not listed.",
            )


class _Here:
    """The content of one folder."""

    def __init__(self, path: str, real: Path, search: Search) -> None:
        self.path = path
        self.real = real
        self.listing = Listing.of()
        self.listing.budget = search.budget
        self.folders: list[str] = []
        self.links: list[tuple[str, Path]] = []
        self.refused: list[tuple[str, str]] = []
        self.unfinished: list[str] = []
        """Sentences about recordings in it whose process died."""
        self._search = search
        self._confinement = search.confinement

    @property
    def is_run(self) -> bool:
        """True if all XSpace files here are hosts of one run, because of the folder's location."""
        return is_run_folder(self.real) or any(f.promise == BESIDE for f in self.listing.files)

    def look(self) -> None:
        """List it.

        Raises
        ------
        OSError
        """
        search = self._search
        with scan(self.real, self._confinement) as entries:
            here = sorted(search.budget.entries(entries), key=lambda e: e.name)
            if any(entry.name in _ENVIRONMENT for entry in here):
                return
            for entry in here:
                if search.stop():
                    return
                if entry.name.startswith(SCRATCH) and entry.is_dir(follow_symlinks=False):
                    sentence = unfinished.look(self.real / entry.name).listed
                    if sentence:
                        self.unfinished.append(sentence)
                if entry.name.startswith(".") and not search.hidden:
                    continue
                try:
                    self._entry(entry)
                except OSError:
                    # It was removed, or is a broken link.
                    continue

    def _entry(self, entry: os.DirEntry[str]) -> None:
        link = entry.is_symlink()
        if link:
            target = Path(real_path(self.real / entry.name))
            search = self._search
            if not reaches(
                target, search.top, follow_links=search.follow_links, hidden=search.hidden
            ):
                if promised(entry.name) == NAMED and not is_within(target, search.top):
                    self.refused.append((entry.name, _LINK_OUTSIDE))
                return
        if entry.is_dir():
            if self.listing.enters(entry.name):
                if link:
                    self.links.append((entry.name, target))
                else:
                    self.folders.append(entry.name)
        elif promised(entry.name) in (NAMED, MAYBE, BESIDE) and entry.is_file():
            self.take(entry.name, entry.stat())
        else:
            self.listing.note(entry.name)

    def take(self, name: str, state: os.stat_result) -> None:
        """Add a file."""
        self.listing.add(
            name, lambda: _Seen(self.real / name, state, confinement=self._confinement)
        )

    def state(self, name: str) -> os.stat_result:
        """The state of a file in the folder.

        Raises
        ------
        OSError
        """
        return state_of(self.real / name, self._confinement)

    def run(self, run: RunFiles, *, folder: bool) -> OnDisk:
        """A run of this folder with its path and its state.

        Raises
        ------
        ReadError
            A file was removed.
        """
        files = [piece for piece in run.files if isinstance(piece, LocalFile)]
        states = [piece.stat() for piece in files]
        bytes_of_all = sum(state.st_size for state in states)
        path, real = self.path, self.real
        if not folder:
            real = files[0].path
            path = join(path, real.name)
        on_disk = OnDisk(
            path=path,
            real=real,
            name=run.name,
            modified=run.modified,
            bytes=bytes_of_all,
            format=run.format,
            files=tuple(piece.path for piece in files),
            state=tuple(map(state_key, states)),
        )
        sidecar = run.sidecar
        if not isinstance(sidecar, LocalFile):
            return on_disk
        return replace(
            on_disk,
            state=(*on_disk.state, state_key(sidecar.stat())),
            sidecar=sidecar.path,
            capture=_capture(sidecar),
        )


@dataclass(frozen=True)
class _Seen(LocalFile):
    """A file with a known state: asking a network disk repeatedly takes most of the time."""

    state: os.stat_result = field(compare=False)

    def stat(self) -> os.stat_result:
        """The state at the time of the listing."""
        return self.state


def _alike(folders: list[str]) -> list[list[str]]:
    """Groups of folders whose names differ only in numbers, in order."""
    groups: dict[str, list[str]] = {}
    for name in folders:
        groups.setdefault(re.sub(r"\d+", "#", name), []).append(name)
    return list(groups.values())


def is_run_folder(folder: Path) -> bool:
    """True if the location or name of a folder shows that it is for one run only."""
    return (
        bool(re.search(r"(^|/)plugins/profile/[^/]+$", folder.as_posix()))
        or _DATED.fullmatch(folder.name) is not None
    )


def _capture(sidecar: LocalFile) -> CaptureInfo | None:
    from nbprof.sources.recording import CaptureInfo

    return CaptureInfo.of(sidecar)


def _starts(text: str) -> Iterator[str]:
    """The text before each space of a message: one of these may be a file name."""
    for i, letter in enumerate(text):
        if letter == " ":
            yield text[:i]
