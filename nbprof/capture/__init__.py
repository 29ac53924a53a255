"""How is a run recorded? From a cell, a block or a range of steps to a folder that TensorBoard can
open, too.

Nothing is imported here: opening a profile only needs to know how it was recorded, and a session
pulls in half of asyncio.

Calling this module, ``nbprof.capture(...)``, samples workers that run elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile


class RemoteCapture(ModuleType):
    """The module `nbprof.capture`, which can be called."""

    # A module and a function of one name: whichever is imported last would hide the other.
    def __call__(
        self,
        addresses: str | Iterable[str],
        duration_ms: int = 2000,
        *,
        host_level: int = 2,
        device_level: int = 1,
        python_level: int = 0,
        retries: int = 3,
        delay_ms: int | None = None,
        folder: str | None = None,
        logdir: str | None = None,
        save: bool = True,
        name: str | None = None,
        progress: bool | Callable[[str], None] = True,
    ) -> Profile:
        """Record running workers by their profiler servers.

        A worker starts its server with `nbprof.serve(6009)`, or as its framework does it. All
        workers are asked at once and begin together. One that is idle, busy or away is asked again;
        one that gives nothing is left out, and `print(p.receipt)` says why. Ctrl-C ends the
        recording early and gives what was recorded; a second one waits no longer.

        Parameters
        ----------
        addresses : str or iterable of str
            ``"grpc://host:6009,grpc://host2:6009"``, also without ``grpc://``, or a list of such
            texts. ``torch://host:6009`` is a program of PyTorch that called `nbprof.serve`,
            ``kineto://1234`` a process of this machine that was started with
            ``KINETO_USE_DAEMON=1``, ``vllm://host:8000`` and ``sglang://host:30000`` are servers of
            models. On a machine of Google Cloud, ``tpu://NAME`` stands for all workers of a Cloud
            TPU.
        duration_ms : int
            How long to record, 1 ms to an hour.
        host_level : int
            0 nothing on the host, 1 the most important events, 2 also ops, 3 everything.
        device_level, python_level : int
            1 records devices, and every Python call (many events); 0 doesn't.
        retries : int
            How often a worker that gave nothing is asked again.
        delay_ms : int, optional
            When to begin after the workers were asked: at one time for all, by their clocks. 0 lets
            each begin when it is asked. When left out, several workers begin after a second and one
            at once.
        folder : str, optional
            Where the server of ``vllm://host:port`` or ``sglang://host:port`` writes its traces, as
            this machine sees it.
        logdir : str, optional
            Folder that receives ``plugins/profile/<run>/<host>_<port>.xplane.pb``;
            ``nbprof-results`` when left out.
        save : bool
            False keeps the files only as long as the profile lives.
        name : str, optional
            Name of the run's folder; by default the time when it began. If a run of that name
            exists, a number is appended.
        progress : bool or callable
            False shows nothing while it records; a callable receives the sentences instead, as
            `print`.

        Returns
        -------
        Profile
            With a host for each worker that recorded; `nbprof.last` is the same one.

        Raises
        ------
        CaptureError
            A wrong address or option, a folder that cannot be written, or no worker recorded
            anything; says why and what to do.

        Examples
        --------
        >>> p = nbprof.capture("grpc://worker0:6009,grpc://worker1:6009", 2000)     # doctest: +SKIP
        >>> p.pods.frame                                                            # doctest: +SKIP
        """
        from nbprof.capture.remote.sample import capture
        from nbprof.capture.remote.sampling import Sampling

        sampling = Sampling(
            duration_ms,
            host_level,
            device_level,
            python_level,
            retries,
            delay_ms,
            folder,
            logdir,
            save,
            name,
        )
        return capture(addresses, sampling, progress)


sys.modules[__name__].__class__ = RemoteCapture
