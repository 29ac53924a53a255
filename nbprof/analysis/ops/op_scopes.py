"""The framework's names of ops as paths: scopes in scopes."""

from __future__ import annotations

MOST_DEEP = 40
"""Scopes of a path; what is deeper goes by its remaining path."""
NONE = "(no framework op)"


def split(path: str) -> list[str]:
    """The scopes of a framework op and its own name: `jit(f)/transpose(jvp(a/b))/dot` has three. A slash in brackets parts nothing.

    Empty ones are left out; an op without a name is in a scope that says so.
    """
    out, depth, begin = [], 0, 0
    for at, letter in enumerate(path):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth = max(0, depth - 1)
        elif letter == "/" and depth == 0:
            out.append(path[begin:at])
            begin = at + 1
    out = [part for part in (*out, path[begin:]) if part]
    return [*out[: MOST_DEEP - 1], "/".join(out[MOST_DEEP - 1 :])] if len(out) > MOST_DEEP else out or [NONE]
