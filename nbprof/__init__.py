"""nbprof: the ML profiler that lives in the notebook.

`%load_ext nbprof`, then `%%nbprof` above a training cell; or `nbprof.load(path)` for an existing
profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbprof.core.version import __version__ as __version__

if TYPE_CHECKING:
    from nbprof import cache, torch
    from nbprof.capture import RemoteCapture
    from nbprof.capture.block import profile, start, stop
    from nbprof.capture.fit.fits import fits
    from nbprof.capture.remote.serve import serve
    from nbprof.capture.steps import step, steps
    from nbprof.core.errors import CaptureError, NbprofError, ReadError
    from nbprof.gate.expect import expect
    from nbprof.profiles.brief import brief
    from nbprof.profiles.comparison import Comparison, compare
    from nbprof.profiles.load import load, runs
    from nbprof.profiles.profile import Profile
    from nbprof.profiles.site import page

    last: Profile | None
    capture: RemoteCapture

# Imported when first used: loading the extension must import neither pandas nor a framework.
_MODULE_OF = {
    "load": "nbprof.profiles.load",
    "runs": "nbprof.profiles.load",
    "Profile": "nbprof.profiles.profile",
    "brief": "nbprof.profiles.brief",
    "compare": "nbprof.profiles.comparison",
    "Comparison": "nbprof.profiles.comparison",
    "page": "nbprof.profiles.site",
    "profile": "nbprof.capture.block",
    "start": "nbprof.capture.block",
    "stop": "nbprof.capture.block",
    "step": "nbprof.capture.steps",
    "steps": "nbprof.capture.steps",
    "NbprofError": "nbprof.core.errors",
    "ReadError": "nbprof.core.errors",
    "CaptureError": "nbprof.core.errors",
    "serve": "nbprof.capture.remote.serve",
    "expect": "nbprof.gate.expect",
    "fits": "nbprof.capture.fit.fits",
}

__all__ = [
    "CaptureError",
    "Comparison",
    "NbprofError",
    "Profile",
    "ReadError",
    "brief",
    "cache",
    "capture",
    "compare",
    "expect",
    "fits",
    "last",
    "load",
    "page",
    "profile",
    "runs",
    "serve",
    "start",
    "step",
    "steps",
    "stop",
    "torch",
]


def __getattr__(name: str) -> Any:
    if name == "last":
        from nbprof.profiles.load import last

        return last()
    if name in _MODULE_OF:
        from importlib import import_module

        from nbprof.core.garbage import importing

        with importing():
            return getattr(import_module(_MODULE_OF[name]), name)
    if name in ("cache", "capture", "keras", "lightning", "torch", "transformers"):
        from importlib import import_module

        return import_module(f"nbprof.{name}")
    raise AttributeError(f"module 'nbprof' has no attribute {name!r}")


def _meet_kernel() -> None:
    """Lets saved outputs request the trace from the kernel of a notebook.

    Does nothing elsewhere, and never fails.
    """
    from sys import modules

    if "ipykernel" not in modules:
        return
    try:
        manager = modules["IPython"].get_ipython().kernel.comm_manager
        targets = manager.targets
    except (AttributeError, KeyError):
        return
    if "nbprof" in targets:
        return

    def opened(comm: Any, message: Any) -> None:
        try:
            from nbprof.profiles.comms import open_comm

            open_comm(comm, message)
        except Exception:
            # The kernel would print an error below the running cell; a closed comm is enough.
            comm.close()

    class Sign:
        # Listed among the comms of the kernel, so that pages know that nbprof is imported. Trying
        # the target in a kernel without nbprof would write an error to its log.
        comm_id = target_name = "nbprof"
        _closed = False

        def handle_msg(self, message: Any) -> None:
            pass

        def handle_close(self, message: Any) -> None:
            pass

    manager.register_target("nbprof", opened)
    manager.register_comm(Sign())


_meet_kernel()


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext nbprof`: adds the magics and, if it is unused, the name `nbprof`."""
    from nbprof.notebook.magic import load

    _meet_kernel()
    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Called by `%unload_ext nbprof`."""
    from nbprof.notebook.magic import unload

    unload(ipython)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "nbprof"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from nbprof.server import _jupyter_server_extension_points as points

    return points()
