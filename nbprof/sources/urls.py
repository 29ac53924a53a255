"""Recognition of URLs, and removal of their secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(text: str) -> bool:
    """True for a URL or a chain of them (`zip://a::s3://b`), False for a local path."""
    return bool(_SCHEME.match(text)) or bool(re.match(r"^[a-z][a-z0-9+.-]*::", text))


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment."""
    # Imported late, because it imports numpy, which a recorded cell may not use.
    from nbprof.core.files import printable

    parts = url.split("::")
    clean = []
    for part in parts:
        part = re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/@]*@", r"\1", part)
        if re.match(r"^https?://", part):
            part = re.sub(r"[?#].*$", "", part, flags=re.DOTALL)
        clean.append(part)
    return printable("::".join(clean))


def scrubbed(text: str, url: str, options: Mapping[str, Any] | None) -> str:
    """A message of a backend, without secrets."""
    from nbprof.core.files import printable

    for secret in _texts(options or {}):
        # The address of an end point is not secret, and helps.
        if len(secret) >= 4 and not re.match(r"^https?://[^@?]*$", secret):
            text = text.replace(secret, "***")
    for part in url.split("::"):
        text = text.replace(part, public_url(part))
    text = re.sub(r"://[^/@\s'\"]*@", "://", text)
    text = re.sub(r"(https?://[^\s'\"?]*)\?[^\s'\"]*", r"\1", text)
    text = " ".join(text.split())
    return printable(text[:300])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
