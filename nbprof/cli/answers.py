"""Answers of commands in the cache: the same question about the same files takes no analysis.

An answer follows from the files of a run, the files next to them, the options of the command and
the local time zone, and is stored under a digest of all of them. To find a stored one, only what
finds files is imported: neither pandas nor the analysis.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbprof.cli import source
from nbprof.cli.progress import shown
from nbprof.core.errors import NbprofError
from nbprof.run.cache.folder import usable

if TYPE_CHECKING:
    from nbprof.core.files import RunFiles
    from nbprof.profiles.profile import Profile

_MOST_LETTERS = 1 << 20


def about_run(
    command: str,
    options: Mapping[str, Any],
    compute: Callable[[Profile], str],
    variant: Sequence[object] = (),
) -> str:
    """The answer of a command about one run: a stored one, or the computed one, which is stored.

    Parameters
    ----------
    command : str
    options : dict
        Those of `source.one_run`.
    compute : callable
    variant : sequence
        Other plain values that change the answer.
    """
    question = [command, variant, options]
    with shown() as tell:
        files = _files(options)
        name = _name(question, files)
        stored = _stored(name)
        if files is not None and stored is not None:
            source.tell_newest(options["paths"], files)
            return stored
        profile = source.opened(tell, **options, files=files)
        answer = compute(profile)
        # The files may have changed while they were read; a part of the analysis may have failed.
        if name == _name(question, files) and not profile.run.memo.failures.sentences:
            _store(name, answer)
        return answer


def _stored(name: str) -> str | None:
    folder = usable()
    if not name or folder is None:
        return None
    stored = folder.noted(name)
    answer = stored.get("answer") if isinstance(stored, dict) else None
    return answer if isinstance(answer, str) else None


def _store(name: str, answer: str) -> None:
    folder = usable()
    if name and folder is not None and len(answer) <= _MOST_LETTERS:
        folder.note(name, {"answer": answer})


def _files(options: Mapping[str, Any]) -> RunFiles | None:
    """The files of the run, if nothing else is read for an answer about it; else None."""
    if options["graph_capture"] or options["storage_options"]:
        return None
    try:
        return source.files_of(options["paths"], options["run"])
    except NbprofError:
        # Reading reports it, or exports what is there.
        return None


def _name(question: object, files: RunFiles | None) -> str:
    """The name of the answer to a question about some files; empty if a change of the files would
    not show.
    """
    if files is None:
        return ""
    from nbprof.formats.beside import beside
    from nbprof.run.cache.identity import software, watched

    states = []
    for piece in (*files.with_sidecar, *beside(files)):
        watch, _ = watched(piece)
        if watch.state is None or not watch.settled:
            return ""
        states.append([watch.label, watch.state.facts])
    about = (files.name, str(files.folder), files.modified, files.format, files.limit_bytes)
    findings = (files.notes, files.dated, files.newest_of, files.copies, files.unread)
    zone = (time.timezone, time.tzname)
    description = json.dumps([software(), question, states, about, repr(findings), zone])
    return hashlib.sha256(description.encode()).hexdigest()[:40]
