"""The skill for assistants, and how it gets to where they look for it."""

from __future__ import annotations

from pathlib import Path

from nbprof.core.atomic_write import atomic_write
from nbprof.core.errors import NbprofError
from nbprof.core.version import __version__

NAME = "nbprof"
_FILE = "SKILL.md"


def text() -> str:
    """The skill: how to profile, read, change one thing, measure again, and when to stop."""
    return Path(__file__).with_name(_FILE).read_text("utf-8")


def install(folder: Path, *, force: bool = False) -> Path:
    """Writes the skill to `folder`/nbprof/SKILL.md.

    Parameters
    ----------
    folder : Path
        Where an assistant looks for skills, one folder each.
    force : bool
        Replace a file that differs.

    Raises
    ------
    NbprofError
        A file that differs is there, or the folder cannot be written to.
    """
    target = folder / NAME / _FILE
    content = text().encode()
    try:
        there = target.read_bytes() if target.exists() else None
        if there not in (None, content) and not force:
            raise NbprofError(
                f"{target} differs from the skill of nbprof {__version__}: it was changed, or is of"
                " another version. --force replaces it."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NbprofError(
            f"the skill could not be written to {target}: {error.strerror}."
        ) from None
    if there != content:
        with atomic_write(target, "skill", len(content)) as file:
            file.write(content)
    return target
