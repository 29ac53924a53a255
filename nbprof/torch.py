"""For scripts that use ``torch.profiler`` themselves: when to record, and where the traces go.

    with torch.profiler.profile(
        schedule=nbprof.torch.schedule(wait=10, warmup=2, active=5),
        on_trace_ready=nbprof.torch.trace_handler("logs"),
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        for batch in loader:
            train(batch)
            profiler.step()

    nbprof.load("logs")

PyTorch is imported when one of these is called.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbprof.core.errors import CaptureError

__all__ = ["TraceHandler", "schedule", "trace_handler"]


def schedule(
    *, wait: int = 1, warmup: int = 1, active: int = 3, repeat: int = 1, skip_first: int = 0
) -> Callable[[int], Any]:
    """Steps that ``torch.profiler.profile(schedule=...)`` records.

    `wait` steps are skipped, `warmup` warm the profiler up, and `active` are recorded; all
    `repeat` times.

    Unlike ``torch.profiler.schedule``, it records once by default instead of repeating until
    training ends.

    Parameters
    ----------
    wait : int
        Steps of each cycle that are not recorded.
    warmup : int
        Steps of each cycle in which the profiler warms up; their events are dropped.
    active : int
        Steps of each cycle that are recorded.
    repeat : int
        Cycles; 0 for as many as there are.
    skip_first : int
        Steps before the first cycle.

    Raises
    ------
    CaptureError
        An invalid number.

    Examples
    --------
    >>> nbprof.torch.schedule(wait=10, warmup=2, active=5)  # doctest: +SKIP
    """
    values: dict[str, Any] = {
        "wait": wait,
        "warmup": warmup,
        "active": active,
        "repeat": repeat,
        "skip_first": skip_first,
    }
    for name, value in values.items():
        least = 1 if name == "active" else 0
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise CaptureError(
                f"{name} must be a number of {'cycles' if name == 'repeat' else 'steps'} of at"
                f" least {least}, not {value!r}"
            )
    import torch.profiler

    with warnings.catch_warnings():
        # That a recording without warm-up is less exact is for whoever asks for it to know.
        warnings.simplefilter("ignore")
        plan: Callable[[int], Any] = torch.profiler.schedule(**values)
    return plan


class TraceHandler:
    """The handler of `trace_handler`: writes the trace of a stopped profiler to the logdir.

    Attributes
    ----------
    paths : list of Path
        The files that this process has written.
    """

    def __init__(self, logdir: str | os.PathLike[str], worker: str = "") -> None:
        self.paths: list[Path] = []
        self._logdir = Path(logdir).expanduser().absolute()
        self._worker = worker

    def __call__(self, profiler: Any) -> None:
        """Write the trace of `profiler`; if that fails, warn, and let the training go on."""
        import time

        from nbprof.capture import torch_trace

        worker = self._worker or torch_trace.worker()
        if not self._worker and torch_trace.rank_and_size()[0] is None:
            worker = f"{worker}_{os.getpid()}"
        path = self._logdir / f"{worker}.{time.time_ns()}{torch_trace.SUFFIX}.gz"
        try:
            torch_trace.export(profiler, path)
        except (OSError, RuntimeError) as error:
            warnings.warn(
                f"nbprof: the trace could not be written to {self._logdir}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self.paths.append(path)

    def __repr__(self) -> str:
        return f"<nbprof.torch.trace_handler: {len(self.paths):,} written to {self._logdir}>"


def trace_handler(logdir: str | os.PathLike[str], *, worker: str = "") -> TraceHandler:
    """Return a handler for ``torch.profiler.profile(on_trace_ready=...)``.

    It writes each cycle into `logdir`, where `nbprof.load` finds it.

    Files are named as ``torch.profiler.tensorboard_trace_handler`` names them,
    ``<worker>.<time>.pt.trace.json.gz``, so TensorBoard finds them too. The processes of a job
    (``torchrun``, ``torch.distributed``, RANK and WORLD_SIZE) may share the logdir; their files are
    told apart by rank and are one run. A file appears once it is complete, and is compressed ten
    times as fast as by PyTorch.

    Parameters
    ----------
    logdir : str or path
        The folder; it is made when the first trace is written.
    worker : str
        Name of this process; by default the host with the rank, or with the process id.

    Examples
    --------
    >>> torch.profiler.profile(on_trace_ready=nbprof.torch.trace_handler("logs"))  # doctest: +SKIP
    """
    if any(sign in str(worker) for sign in "/\\:\0"):
        raise CaptureError(
            "a worker's name is part of a file name, so it cannot contain / \\ or :, as in"
            f" {worker!r}"
        )
    return TraceHandler(logdir, str(worker))
