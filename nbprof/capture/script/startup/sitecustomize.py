"""Starts a program of a recorded script again, so that it is recorded too.

Python imports this module in each interpreter that inherits PYTHONPATH from the script. It runs
before the program, in any Python, also one that has no nbprof.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.machinery import ModuleSpec


def _own_folder() -> str:
    return os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - few imports


def _give_way() -> None:
    """Import the module of this name that this one hides."""
    this_module = sys.modules.pop("sitecustomize")
    here = _own_folder()
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]  # noqa: PTH100
    try:
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this_module


def _split(words: list[str]) -> tuple[list[str], list[str]] | None:
    """Split the arguments of the interpreter into its options and the program; None if there is
    none that can be recorded.
    """
    index = 1
    while index < len(words):
        word = words[index]
        if word == "-m":
            return (words[1:index], words[index:]) if index + 1 < len(words) else None
        if not word.startswith("-"):
            return words[1:index], words[index:]
        if word == "-" or (not word.startswith(("--", "-W", "-X")) and set(word) & set("cm")):
            return None
        index += 2 if word in ("-W", "-X", "--check-hash-based-pycs") else 1
    return None


def _is_of_the_person(program: list[str]) -> bool:
    """Return whether a program is not installed: launchers, workers of libraries and tools are."""
    from importlib.util import find_spec

    location: str | None = program[0]
    if location == "-m":
        if program[1].partition(".")[0] == "nbprof":
            return False
        # Python looks there first, but not yet.
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        try:
            spec = find_spec(program[1].partition(".")[0])
        finally:
            del sys.path[0]
        if spec is None:
            return False
        location = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    if not location or not os.path.exists(location):  # noqa: PTH110
        # Python says so.
        return False
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    location = os.path.abspath(location)  # noqa: PTH100
    installed = [location.startswith(os.path.join(prefix, "")) for prefix in prefixes]  # noqa: PTH118
    return not any(installed) and "site-packages" not in location and _finds(find_spec("nbprof"))


def _finds(spec: ModuleSpec | None) -> bool:
    """Return whether this interpreter imports the nbprof that this file is part of."""
    package = os.path.join(_own_folder(), "..", "..", "..", "__init__.py")  # noqa: PTH118
    if spec is None or spec.origin is None:
        return False
    return os.path.samefile(spec.origin, package)  # noqa: PTH121


def _again() -> None:
    split = _split(sys.orig_argv)
    # The process keeps its number when it starts again.
    process = str(os.getpid())
    if os.environ.get("NBPROF_STARTED_AGAIN") == process or not os.environ.get("NBPROF_CHILDREN"):
        return
    if split and _is_of_the_person(split[1]):
        options, program = split
        recorder = ["-m", "nbprof.capture.script.child"]
        os.environ["NBPROF_STARTED_AGAIN"] = process
        os.execv(sys.executable, [sys.executable, *options, *recorder, *program])  # noqa: S606


_give_way()
# Otherwise the program runs as it would.
with contextlib.suppress(Exception):
    _again()
