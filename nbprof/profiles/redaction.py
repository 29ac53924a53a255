"""Pseudonyms instead of names: `redact=` of reports, outputs and briefs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nbprof.core.atomic_write import atomic_write
from nbprof.display.payload import Part
from nbprof.display.redact import Redactor, vocabulary
from nbprof.run.cache.folder import location, open_private
from nbprof.schema.frames import SCHEMA, WHERE_KNOWN
from nbprof.tools.header import label
from nbprof.tools.payloads import Payload

if TYPE_CHECKING:
    from nbprof.run.run import Run

AnyPart = TypeVar("AnyPart", bound=Part)

_RANK = re.compile(r"rank \d+")

Redact = bool | str | os.PathLike[str]
"""True to replace names; with a path, the list of replaced names is written there."""


def redactor(runs: Iterable[Run], also: Iterable[str] = ()) -> Redactor:
    """The redactor of some runs: names of files and hosts, and those in `also`, are private."""
    hosts: set[str] = set()
    names = set(also)
    for run in runs:
        source = run.source
        # "rank 3" is not private; the second part of "rank 3, node-a" is.
        for host in run.hosts:
            hosts.update(part for part in str(host).split(", ") if not _RANK.fullmatch(part))
        names.update(
            [label(run), source.name, source.file, Path(source.path).name],
            (path.name for path, *_ in source.local),
        )
        names.add(run.capture.label if run.capture is not None else "")
    names.update(name.split(".")[0] for name in names | hosts)
    # "trace" of trace.json is not private, and a word of many sentences.
    private = hosts.union(name for name in names if name.lower() not in vocabulary())
    columns: set[str] = set()
    for declared in (*SCHEMA.values(), *WHERE_KNOWN.values()):
        columns.update(column.name for column in declared)
    # A rate in 10⁹ has a "g" in front.
    return Redactor(private, _key(), allowed=columns.union(f"g{name}" for name in columns))


def redacted(payload: AnyPart, runs: Iterable[Run], redact: Redact) -> AnyPart:
    """A payload, or a part of one, with pseudonyms if `redact` asks for them."""
    if not redact:
        return payload
    by = redactor(runs)
    without_code: Part = payload
    if isinstance(payload, Payload):
        # The user's code contains more than names.
        without_code = replace(
            payload, overview=replace(payload.overview, code=None, compiles=None)
        )
    redacted_payload: AnyPart = by.tree(without_code)
    keep(by, redact)
    return redacted_payload


def keep(by: Redactor, redact: Redact) -> None:
    """Writes the list of replaced names, if `redact` is a path."""
    if redact is True or not redact:
        return
    names = {pseudonym: name for name, pseudonym in sorted(by.replaced.items())}
    text = json.dumps(names, indent=1, ensure_ascii=False).encode()
    with atomic_write(Path(redact).expanduser(), "list", len(text)) as file:
        file.write(text)


def _key() -> bytes:
    """The key of this user on this machine, made when it is first needed."""
    path = location() / "redact.key"
    key = secrets.token_bytes(32)
    try:
        return _read_key(path)
    except FileNotFoundError:
        pass
    except OSError:
        # With a known key, names can be guessed: a key that others may have put there is not used.
        return key
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key)
    except OSError:
        # Another process was faster; or it cannot be stored, and is used only this time.
        with contextlib.suppress(OSError):
            return _read_key(path)
    return key


def _read_key(path: Path) -> bytes:
    with os.fdopen(open_private(path), "rb") as file:
        return file.read()
