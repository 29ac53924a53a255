"""Errors whose text is a sentence: what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class NbprofError(Exception):
    """Base of every error that nbprof raises on purpose."""


class ReadError(NbprofError):
    """A profile could not be read.

    Parameters
    ----------
    message : str
        What is wrong and what to do about it.
    path : str, optional
        The file or folder; the message begins with it.
    offset : int, optional
        The byte at which reading failed.
    """

    def __init__(self, message: str, *, path: str = "", offset: int | None = None) -> None:
        location = path
        if offset is not None:
            location = f"{path}, byte {offset:,}" if path else f"byte {offset:,}"
        super().__init__(f"{location}: {message}" if location else message)
        self.reason = message
        self.path = path
        self.offset = offset


class RawError(ReadError):
    """A recording must be exported by the tool that created it before it can be read.

    Parameters
    ----------
    message : str
        Description of the recording, and how to export it.
    path : str
        Its folder.
    recorder : str
        The recorder, in a few words.
    recordings : sequence of str
        Folders or files to export.
    tool : str
        The program that exports them.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        recorder: str = "",
        recordings: Sequence[str] = (),
        tool: str = "",
    ) -> None:
        super().__init__(message, path=path)
        self.recorder = recorder
        self.tool = tool
        self.recordings = tuple(recordings)


class CaptureError(NbprofError):
    """A recording could not be started or stopped; the user's own code is not to blame."""
