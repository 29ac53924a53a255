"""The files that an assistant may read: those below some folders, without links to the outside."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbprof.core.confinement import Confinement, real_path
from nbprof.core.errors import ReadError
from nbprof.core.files import RunFiles, could_not_open, printable
from nbprof.core.packed import Unpacked
from nbprof.core.units import join_some
from nbprof.formats.beside import beside
from nbprof.sources import locate, select_run
from nbprof.sources.budget import Budget
from nbprof.sources.urls import is_url

LONGEST = 4096
"""Characters of a path."""
_REMOTE = re.compile(r"(https?|s3a?|gc?s|az|abfss?|adl|hf)://", re.IGNORECASE)
"""Remote URLs only: `file:`, `git:`, `simplecache::` and the like would bypass the folders."""


class Roots:
    """The folders that may be read, links resolved.

    Parameters
    ----------
    folders : sequence of path
    allow_urls : bool
        Allow URLs of web servers and object stores, too.
    hidden : bool
        Read names below the folders that begin with a dot.
    elsewhere : str
        What to do about a path outside of the folders, as a sentence.

    Raises
    ------
    ReadError
        One of the folders does not exist.
    """

    def __init__(
        self,
        folders: Sequence[str | Path],
        *,
        allow_urls: bool = False,
        hidden: bool = True,
        elsewhere: str = "Ask the user to start the server with another --root.",
    ) -> None:
        self._elsewhere = elsewhere
        self.folders = [os.path.realpath(folder) for folder in folders]
        self.allow_urls = allow_urls
        self.confinement = Confinement(tuple(self.folders), hidden, self._listed())
        for folder in self.folders:
            if not Path(folder).is_dir():
                raise ReadError(
                    "there is no such folder; --root takes an existing folder.",
                    path=printable(folder),
                )

    def find(self, path: str, run: str | None = None) -> tuple[RunFiles, list[str]]:
        """The run at a path, relative to the folders, and the names of all runs, newest first.

        Raises
        ------
        ReadError
            The path, or a file of the run, is outside of the folders; or there is no profile.
        """
        real = self.resolve(path)
        options = locate.OpenOptions(confinement=self.confinement, budget=Budget)
        runs, nothing = locate.survey(real, options)
        if not runs:
            # The error lists the files that exist instead.
            raise nothing()
        if not is_url(real):
            runs = [each for each in runs if self.holds(each)]
        if not runs:
            raise ReadError(
                f"a file of this run is a link that points outside {self._listed()}.",
                path=printable(real),
            )
        chosen = runs[0] if run is None else select_run.choose(runs, run, printable(real))
        return locate.find(chosen, options=options), [each.name for each in runs]

    def resolve(self, path: str) -> str:
        """The path with links resolved, or the URL.

        Raises
        ------
        ReadError
            It is outside of the folders, a URL that is not allowed, or not a path.
        """
        if len(path) > LONGEST:
            raise ReadError(f"a path has at most {LONGEST:,} characters, not {len(path):,}.")
        if is_url(path):
            if not self.allow_urls:
                raise ReadError(
                    "URLs are not read. Copy the profile to this machine, or start the server with"
                    " --allow-urls."
                )
            if not _REMOTE.match(path) or "::" in path:
                raise ReadError("of URLs, only https, http, s3, gs, az, abfs and hf are read here.")
            return path
        outer, mark, inner = path.partition("!/")
        try:
            if mark and not any(os.path.lexists(Path(folder) / path) for folder in self.folders):
                return f"{self._real(outer)}!/{inner}"
            return self._real(path)
        except OSError as error:
            raise could_not_open(error, Path(path)) from None
        except ValueError:
            raise ReadError(
                "the path contains a NUL character or others that file names cannot have."
            ) from None

    def _real(self, path: str) -> str:
        if not path.strip():
            raise ReadError("the path is empty; '.' is the first folder that is read.")
        candidates = [real_path(Path(folder) / path) for folder in self.folders]
        allowed = list(filter(self._is_within, candidates))
        if not allowed:
            # The message does not reveal whether the path exists.
            raise ReadError(
                f"it is not below {self._listed()}. {self._elsewhere}",
                path=printable(path),
            )
        return next(filter(os.path.exists, allowed), allowed[0])

    def holds(self, run: RunFiles) -> bool:
        """Return whether all files of a run are below the folders."""
        files: list[Any] = [*run.files, *beside(run)]
        if run.sidecar is not None:
            files.append(run.sidecar)
        for file in files:
            packed = file.packed if isinstance(file, Unpacked) else file
            path = getattr(packed, "path", None)
            if isinstance(path, Path) and not self.confinement.permits(path):
                return False
        return True

    def _is_within(self, real: str) -> bool:
        return any(Path(real).is_relative_to(folder) for folder in self.folders)

    def _listed(self) -> str:
        return join_some([printable(folder) for folder in self.folders], 5)
