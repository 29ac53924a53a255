"""Opens profiles: `load` reads existing ones, `open_recording` one that has just ended."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from nbprof.core.errors import NbprofError
from nbprof.core.files import LIMIT_BYTES, some
from nbprof.core.garbage import collection_paused
from nbprof.formats.msprof.export import exported
from nbprof.profiles import live
from nbprof.profiles.profile import Profile
from nbprof.profiles.read import read_run
from nbprof.run.parallel import Workers
from nbprof.run.run import Run
from nbprof.sources.locate import Source, find
from nbprof.sources.recording import Recording
from nbprof.sources.runs_table import runs

__all__ = ["last", "load", "open_recording", "read", "runs", "set_last"]

_last: list[Profile] = []


def set_last(profile: Profile) -> None:
    """Makes a profile `nbprof.last`, and lets its saved outputs request data."""
    _last[:] = [profile]
    live.registry.note(profile.run)


def last() -> Profile | None:
    """The last profile that was recorded or loaded; None if there is none yet."""
    return _last[0] if _last else None


def load(
    source: Source,
    run: str | int | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    limit_bytes: int = LIMIT_BYTES,
    peaks: Mapping[str, float] | None = None,
    executor: Workers | None = None,
    graph_capture: Source | None = None,
) -> Profile:
    """Load an existing profile from a file, a run, a logdir, an archive or a URL.

    The content of a file decides what it is: an XSpace of TensorFlow, JAX and PyTorch/XLA, a trace
    of PyTorch or another program, what Nsight Systems, rocprofv3, Perfetto and Ascend's profilers
    write. docs/files.md lists all.

    Parameters
    ----------
    source : str, path or list
        - a **logdir**, that is any folder above runs: the newest run is taken, or the one that
          `run` names; `nbprof.runs` lists them;
        - a **run folder**, with a file for each host or rank;
        - one **file**; or a **list of files** that are the hosts of one run;
        - a **zip or tar** archive of these; `runs.zip!/eval/plugins/profile/2024_05_01` is what
          lies inside one;
        - a **URL** of any of these: `s3://`, `gs://`, `https://` and every other that fsspec has a
          backend for here.
    run : str or int, optional
        Which run, where there are several: its name, or as much of its beginning as makes it clear;
        or its number, 0 the newest, -1 the oldest.
    progress : callable, optional
        Called with progress messages while reading and downloading; try `print`.
    storage_options : dict, optional
        For fsspec: credentials, endpoints. They appear in no message.
    limit_bytes : int
        The most that a compressed file may decompress to. It keeps a damaged or malicious file from
        filling the memory. By default 16 GiB, and not over 100 times the file's own size, or 32 MiB
        if that is more.
    peaks : dict, optional
        The peak rates of one device per second, for the roofline and all utilizations, where the
        profile lacks them or has them wrong: `{"flops": 312e12, "bytes": 2.0e12}`, operations at 16
        bits and bytes of its main memory; either may be left out. Also `cmem_read`, `cmem_write`,
        `vmem_read`, `vmem_write` and `shared_memory`, bytes of the memories on the chip.
    executor : Executor, Client or int, optional
        What reads the files of a run of several hosts, each separately: any
        `concurrent.futures.Executor`, a `dask.distributed.Client`, or a number of processes on this
        machine. By default, more than eight hosts are read by as many processes as there are cores.
        The events of hosts read this way stay in their files: `p.rank(3)` opens one host
        completely.
    graph_capture : str, path or list, optional
        One or more traces of PyTorch in which the CUDA or HIP graphs that this run replays were
        captured, if it was recorded later: kernels of the graphs are then attributed to the ops,
        modules and lines that were captured. A capture matches a graph by the number and the kinds
        of its nodes, and by kernels where the capture names them; where several match, only what
        they agree on is used.

    Returns
    -------
    Profile
        It displays as the dashboard; `nbprof.last` is the same profile.

    Raises
    ------
    ReadError
        Nothing is there, it is not a profile, or it is damaged; the message says where and what to
        do.
    NbprofError
        One of `peaks` is invalid, or `graph_capture` holds no capture.

    Examples
    --------
    >>> nbprof.load("logs/")                                          # doctest: +SKIP
    >>> nbprof.load("logs/", run="2024_05_01")                        # doctest: +SKIP
    >>> nbprof.load("trace.json.gz").ops.frame                        # doctest: +SKIP
    >>> nbprof.load(["rank0.pt.trace.json", "rank1.pt.trace.json"])   # doctest: +SKIP
    >>> nbprof.load("runs.zip")                                       # doctest: +SKIP
    >>> nbprof.load("gs://bucket/logs", progress=print)               # doctest: +SKIP
    >>> nbprof.load("s3://bucket/logs", storage_options={"anon": True})   # doctest: +SKIP
    """
    __tracebackhide__ = True
    try:
        profile = read(
            source,
            run,
            progress,
            storage_options=storage_options,
            limit_bytes=limit_bytes,
            peaks=peaks,
            executor=executor,
            graph_capture=graph_capture,
        )
    except NbprofError as error:
        # Only the message: nobody would see it below seventy lines of traceback.
        raise error.with_traceback(None) from None
    set_last(profile)
    return profile


@collection_paused()
def read(
    source: Source,
    run: str | int | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Profile:
    """Like `load`, but `nbprof.last` does not change; `options` are those of `read_run`."""
    return Profile(read_run(source, run, progress, **options))


@collection_paused()
def open_recording(recording: Recording, progress: Callable[[str], None] | None = None) -> Profile:
    """The profile of a recording that was just stopped; it becomes `nbprof.last`."""
    files = exported(lambda: find(recording.path), progress)
    if recording.rank is not None:
        # Other ranks may be writing theirs.
        name = f"rank{recording.rank}."
        files = some(files, [at for at, file in enumerate(files.files) if name in file.name])
    profile = Profile(
        Run.read(files, capture=recording.info, progress=progress, keep=not recording.temporary)
    )
    # The label has a number that is only unique in this session; later, it is named by its files.
    profile.run.source.name = recording.info.label or profile.run.source.name
    if recording.temporary:
        # Its files are deleted with it.
        weakref.finalize(profile, shutil.rmtree, recording.temporary, ignore_errors=True)
    set_last(profile)
    return profile
