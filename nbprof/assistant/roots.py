"""Which files an assistant may have read: those below some folders, whatever links lie in them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbprof.core.confinement import Confinement, real_path
from nbprof.core.errors import ReadError
from nbprof.core.files import RunFiles, could_not_open, join_some, printable
from nbprof.core.packed import Unpacked
from nbprof.formats.beside import beside
from nbprof.sources import locate, select_run
from nbprof.sources.budget import Budget
from nbprof.sources.urls import is_url

LONGEST = 4096
"""Characters of a path."""
_FAR = re.compile(r"(https?|s3a?|gc?s|az|abfss?|adl|hf)://", re.IGNORECASE)
"""URLs of places that are not this machine: `file:`, `git:`, `simplecache::` and the like would
lead around the folders.
"""


class Roots:
    """The folders that may be read, links resolved.

    Parameters
    ----------
    folders : sequence of path
    allow_urls : bool
        Whether URLs of web servers and object stores may be read, too.

    Raises
    ------
    ReadError
        One of the folders is not there.
    """

    def __init__(self, folders: Sequence[str | Path], *, allow_urls: bool = False) -> None:
        self.folders = [os.path.realpath(folder) for folder in folders]
        self.allow_urls = allow_urls
        self.confinement = Confinement(tuple(self.folders), name=self._said())
        for folder in self.folders:
            if not Path(folder).is_dir():
                raise ReadError(
                    "there is no such folder; --root takes an existing folder.",
                    path=printable(folder),
                )

    def find(self, path: str, run: str | None = None) -> tuple[RunFiles, list[str]]:
        """The run at a path, which is taken relative to the folders, and the names of all runs
        there, newest first.

        Raises
        ------
        ReadError
            The path, or a file of the run, lies outside of the folders; or there is no profile.
        """
        place = self.resolve(path)
        ways = locate.Ways(confinement=self.confinement, budget=Budget)
        found, nothing = locate.survey(place, ways)
        inside = found if is_url(place) else [each for each in found if self.holds(each)]
        if found and not inside:
            raise ReadError(
                f"a file of this run is a link that points outside {self._said()}.",
                path=printable(place),
            )
        if not found:
            # It says what is there instead.
            raise nothing()
        chosen = inside[0] if run is None else select_run.choose(inside, run, printable(place))
        return locate.find(chosen, ways=ways), [each.name for each in inside]

    def resolve(self, path: str) -> str:
        """The path without links, or the URL.

        Raises
        ------
        ReadError
            It lies outside of the folders, is a URL and these are not allowed, or is no path.
        """
        if len(path) > LONGEST:
            raise ReadError(f"a path has at most {LONGEST:,} characters, not {len(path):,}.")
        if is_url(path):
            if not self.allow_urls:
                raise ReadError(
                    "URLs are not read. Copy the profile to this machine, or start the server with"
                    " --allow-urls."
                )
            if not _FAR.match(path) or "::" in path:
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
        places = [real_path(Path(folder) / path) for folder in self.folders]
        inside = [place for place in places if self._within(place)]
        if not inside:
            # Whether something is there is not said.
            raise ReadError(
                f"it is not below {self._said()}. Ask the user to start the server with another"
                " --root.",
                path=printable(path),
            )
        return next(filter(os.path.exists, inside), inside[0])

    def holds(self, run: RunFiles) -> bool:
        """Whether each file that is read of a run lies below the folders."""
        files: list[Any] = [
            *run.files,
            *beside(run),
            *([run.sidecar] if run.sidecar is not None else []),
        ]
        files = [file.packed if isinstance(file, Unpacked) else file for file in files]
        return all(
            self.confinement.permits(file.path)
            for file in files
            if isinstance(getattr(file, "path", None), Path)
        )

    def _within(self, real: str) -> bool:
        return any(Path(real).is_relative_to(folder) for folder in self.folders)

    def _said(self) -> str:
        return join_some([printable(folder) for folder in self.folders], 5)
