"""Files that people ask for: each is there whole or not at all, and a sentence says why it could not be written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nbprof.core.errors import NbprofError
from nbprof.core.files import size_text


@contextmanager
def written(target: Path, what: str, size: int | None = None) -> Iterator[BinaryIO]:
    """The file to write; it is at `target` when the block has ended, and what was there before stays if that fails.

    Parameters
    ----------
    target : Path
    what : str
        What it is, as ``report``.
    size : int, optional
        Its bytes, where they are known.

    Raises
    ------
    NbprofError
        It could not be written; says what to do.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(target)
    except OSError as error:
        raise NbprofError(f"{target}: the {what} could not be written ({error.strerror}). {_remedy(error, target, size)}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _remedy(error: OSError, target: Path, size: int | None) -> str:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return "Choose a folder that you may write to."
    needs = f"It needs {size_text(size)}: free" if size is not None else "Free"
    return f"{needs} some space, or choose a folder on another disk{_left(target)}."


def _left(target: Path) -> str:
    """How much is free, once the half file is gone."""
    with contextlib.suppress(OSError):
        half = target.with_name(f".{target.name}.{os.getpid()}.part").stat().st_size
        return f" ({size_text(shutil.disk_usage(target.parent).free + half)} are free here)"
    return ""
