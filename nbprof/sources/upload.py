"""Recordings with a URL as logdir: `gs://`, `s3://`, and every other scheme that can be written to.

Profilers write to local folders, so a run is recorded in one and copied when it is complete.
"""

from __future__ import annotations

import re
from pathlib import Path

from nbprof.sources.urls import public_url, scrubbed

_READ_ONLY = ("http", "https", "github", "gist", "hf", "zip", "tar", "data")


def refusal(url: str) -> str:
    """The reason why a URL cannot be written to, without accessing it; "" if none is known."""
    # Imported late, because it imports numpy, which a recorded cell may not use.
    from nbprof.sources import remote

    scheme = re.split(r"://|::", url, maxsplit=1)[0].lower()
    if scheme in _READ_ONLY:
        return (
            f"{public_url(url)} cannot be written to: choose a folder, or a bucket such as"
            " gs://bucket/logs or s3://bucket/logs"
        )
    missing = remote.missing_backend(url)
    if missing:
        return f"{public_url(url)} needs a backend of fsspec that is not installed: {missing}"
    return ""


class Upload:
    """Copies finished runs to `<url>/plugins/profile/<run>/`.

    Parameters
    ----------
    url : str

    Attributes
    ----------
    trouble : str
        The reason why the last copy failed; "" if it did not.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.trouble = ""
        self._targets: dict[Path, str] = {}
        self._copied: dict[Path, tuple[int, int]] = {}

    def put(self, run: Path) -> None:
        """Copy the files of a run folder that are new or have changed since they were copied;
        errors become `trouble`.
        """
        from nbprof.sources import remote

        self.trouble = ""
        try:
            storage, path = remote.connect(self.url, None)
            target = self._target(storage.fs, path.rstrip("/"), run)
            storage.fs.makedirs(target, exist_ok=True)
            for file in sorted(file for file in run.rglob("*") if file.is_file()):
                now = file.stat()
                state = (now.st_size, now.st_mtime_ns)
                if self._copied.get(file) != state:
                    storage.fs.put_file(str(file), f"{target}/{file.relative_to(run).as_posix()}")
                    self._copied[file] = state
        except Exception as error:
            # Backends have their own exceptions, which may contain secrets.
            self.trouble = f"{type(error).__name__}: {scrubbed(str(error), self.url, None)}"

    def url_of(self, run: Path) -> str:
        """The URL of a run without secrets; "" if it was not copied."""
        name = self._targets.get(run, "")
        if name and not self.trouble:
            return f"{public_url(self.url)}/plugins/profile/{name}"
        return ""

    def _target(self, fs: object, path: str, run: Path) -> str:
        """The folder of a run, with a name that was free when it was first copied."""
        home = f"{path}/plugins/profile"
        if run not in self._targets:
            name, number = run.name, 2
            while fs.exists(f"{home}/{name}"):  # type: ignore[attr-defined]
                name = f"{run.name}_{number}"
                number += 1
            self._targets[run] = name
        return f"{home}/{self._targets[run]}"
