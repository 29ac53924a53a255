"""nbprof: the ML profiler that lives in the notebook.

`%load_ext nbprof`, then `%%nbprof` above a training cell; or `nbprof.load(path)` for a profile that exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nbprof import cache
    from nbprof.capture.block import profile
    from nbprof.capture.steps import step, steps
    from nbprof.errors import CaptureError, NbprofError, ReadError
    from nbprof.profiles import Profile, load, runs

    last: Profile | None

# Imported when first used: loading the extension must not cost the import of pandas, let alone of a framework.
_WHERE = {
    "load": "nbprof.profiles",
    "runs": "nbprof.profiles",
    "Profile": "nbprof.profiles",
    "profile": "nbprof.capture.block",
    "step": "nbprof.capture.steps",
    "steps": "nbprof.capture.steps",
    "NbprofError": "nbprof.errors",
    "ReadError": "nbprof.errors",
    "CaptureError": "nbprof.errors",
}

__all__ = ["CaptureError", "NbprofError", "Profile", "ReadError", "cache", "last", "load", "profile", "runs", "step", "steps"]


def __getattr__(name: str) -> Any:
    if name == "last":
        from nbprof.profiles import last

        return last()
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(_WHERE[name]), name)
    if name == "cache":
        from importlib import import_module

        return import_module("nbprof.cache")
    raise AttributeError(f"module 'nbprof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext nbprof`: adds `%%nbprof` and `%nbprof`."""
    from nbprof.magic import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Called by `%unload_ext nbprof`."""
    from nbprof.magic import unload

    unload(ipython)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "nbprof"}]
