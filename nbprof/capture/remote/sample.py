"""Sample running workers: ask their profiler servers to record, and make one profile of what they
send.
"""

from __future__ import annotations

import itertools
import shutil
import time
import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from nbprof.capture.options import Options
from nbprof.capture.place import RunFolder
from nbprof.capture.remote import cloud_tpu
from nbprof.capture.remote.addresses import parse
from nbprof.capture.remote.client import library
from nbprof.capture.remote.messages import chunk
from nbprof.capture.remote.progress import Progress, Tell
from nbprof.capture.remote.sampling import Sampling
from nbprof.capture.remote.workers import Watch, Worker, Workers
from nbprof.capture.shield import shielded
from nbprof.core.errors import CaptureError
from nbprof.sources.recording import CaptureInfo, Recording

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile

_numbers = itertools.count(1)


def capture(
    addresses: str | Iterable[str], sampling: Sampling, progress: bool | Tell = True
) -> Profile:
    """The profile of a sample; see `nbprof.capture`."""
    from nbprof.profiles.load import open_recording

    with Progress(progress) as tell:
        recording = record(addresses, sampling, tell)
        profile = open_recording(recording, progress=tell)
        # An output of a notebook cannot be taken back without the others of its cell: what is left
        # of the line says what it came to.
        tell.last(_outcome(recording))
        return profile


def _outcome(recording: Recording) -> str:
    missing = len(recording.info.warnings)
    hosts = len(list(recording.path.glob("*.xplane.pb")))
    text = f"{hosts} of {hosts + missing} workers recorded" if hosts + missing > 1 else "recorded"
    return text if recording.temporary else f"{text}, in {recording.path}"


def record(
    addresses: str | Iterable[str], sampling: Sampling, tell: Tell, watch: Watch | None = None
) -> Recording:
    """Record workers and return where the files lie.

    Parameters
    ----------
    addresses : str or iterable of str
        As `nbprof.capture` takes them.
    sampling : Sampling
        What to record.
    tell : callable
        Called with what is going on.
    watch : callable, optional
        As of `Workers`.

    Raises
    ------
    CaptureError
        A wrong address, a logdir that cannot be written, or no worker recorded anything.
    KeyboardInterrupt
        Ctrl-C came before anything was recorded.
    """
    named, notes = parse(addresses)
    library()
    targets = cloud_tpu.workers_of(named, tell)
    run_folder = _run_folder(sampling)
    try:
        started = datetime.now().astimezone()
        name = sampling.name or time.strftime("%Y_%m_%d_%H_%M_%S", started.timetuple())
        folder = run_folder.scratch / "plugins" / "profile" / name
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise CaptureError(
                f"{run_folder.logdir} cannot be written ({error.strerror}): choose another location"
                " with --logdir DIR"
            ) from error
        workers = Workers(targets, sampling, folder, tell, watch)
        workers.run()
        if not workers.recorded:
            if workers.stopped_after_s is not None:
                raise KeyboardInterrupt
            raise CaptureError(_nothing(workers.all))
    except BaseException:
        run_folder.discard()
        run_folder.remove()
        raise
    info = CaptureInfo(
        started=started.isoformat(timespec="seconds"),
        elapsed_s=(
            sampling.duration_ms / 1000
            if workers.stopped_after_s is None
            else workers.stopped_after_s
        ),
        notes=[*_how(workers, sampling), *notes],
        warnings=[
            f"{worker.address} is missing: {worker.reason}"
            for worker in workers.all
            if worker.file is None
        ],
        label=sampling.name or f"sample {next(_numbers)}",
        options={"addresses": [str(target) for target in named], **asdict(sampling)},
    )
    # From here on the recording is saved in any case.
    with shielded():
        name_hosts(workers.recorded)
        recording = Recording(
            run_folder.settle(),
            info,
            temporary=run_folder.logdir if run_folder.temporary else None,
            upload=run_folder.upload,
        )
        info.notes += [note for note in run_folder.notes if note not in info.notes]
        try:
            recording.write()
        except OSError as error:
            info.notes.append(
                f"the run's {recording.path.name} has no nbprof.json next to it: {error.strerror}"
            )
        recording.note_upload()
    if recording.temporary is None:
        run_folder.keep()
    if run_folder.temporary:
        # The profile holds the info for as long as anybody holds the profile; at the latest the
        # files go with the process.
        weakref.finalize(info, run_folder.remove)
    return recording


def _run_folder(sampling: Sampling) -> RunFolder:
    """The folder of the run; one that was asked for must be writable, since nothing is lost yet by
    saying so.
    """
    run_folder = RunFolder(Options(logdir=sampling.logdir, save=sampling.save))
    if sampling.logdir and run_folder.notes:
        shutil.rmtree(run_folder.logdir, ignore_errors=True)
        reason = run_folder.notes[0].partition(":")[0]
        raise CaptureError(
            f"{reason}; nothing was recorded. Choose a --logdir that you can write to"
        )
    return run_folder


def name_hosts(recorded: list[Worker]) -> None:
    """Tell workers of one machine apart: the recordings of both call it by the same name, so each
    file names its worker before that.
    """
    names = Counter(worker.hostname for worker in recorded)
    names_by_worker = {
        id(w): w.hostname if names[w.hostname] == 1 else f"{w.hostname}:{w.address.port}"
        for w in recorded
    }
    same = Counter(names_by_worker.values())
    for worker in recorded:
        name = (
            names_by_worker[id(worker)]
            if same[names_by_worker[id(worker)]] == 1 and worker.hostname
            else str(worker.address)
        )
        if name == worker.hostname or worker.file is None:
            continue
        named = worker.file.with_suffix(".named")
        try:
            with worker.file.open("rb") as old, named.open("wb") as new:
                # hostnames, of which the first counts; fields may come in any order.
                new.write(chunk(4, name.encode()))
                shutil.copyfileobj(old, new, 1 << 20)
            named.replace(worker.file)
        except OSError:
            # The disk is full: the reader tells hosts of one name apart by their files, too.
            named.unlink(missing_ok=True)
            return
        worker.hostname = name


def _nothing(workers: list[Worker]) -> str:
    if len(workers) == 1:
        return f"{workers[0].address}: {workers[0].reason}"
    return "no worker could be recorded. " + ". ".join(
        f"{worker.address}: {worker.reason}" for worker in workers
    )


def _how(workers: Workers, sampling: Sampling) -> list[str]:
    """Notes on the recording for readers of its figures."""
    recorded = workers.recorded
    count = (
        f"{len(recorded)} of {len(workers.all)} workers"
        if len(workers.all) > 1
        else str(workers.all[0].address)
    )
    notes = [f"sampled over gRPC: {count}, {sampling.duration_ms / 1000:g} s"]
    if workers.stopped_after_s is not None:
        notes.append(
            f"the recording was stopped early, after {workers.stopped_after_s:.1f} of"
            f" {sampling.duration_ms / 1000:g} s"
        )
    first_ns = min(worker.started_ns for worker in recorded)
    for worker in recorded:
        late_s = (worker.started_ns - first_ns) / 1e9
        if worker.failures and (late_s >= 0.05 or len(recorded) == 1):
            when = (
                f"{late_s:.1f} s later than the first"
                if len(recorded) > 1
                else f"on attempt {len(worker.failures) + 1}"
            )
            notes.append(f"{worker.address} was recorded {when}: {worker.failures[0].reason}")
    return notes
