"""Sample running workers by their profiler servers, and make one profile of the recordings."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import time
import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nbprof.capture import notes
from nbprof.capture.options import Options
from nbprof.capture.place import RunFolder
from nbprof.capture.remote import cloud_tpu
from nbprof.capture.remote.addresses import GRPC, KINETO, SGLANG, TORCH, VLLM, parse
from nbprof.capture.remote.client import library
from nbprof.capture.remote.progress import Progress, Tell
from nbprof.capture.remote.sampling import Sampling
from nbprof.capture.remote.torch_wire import TORCH_SUFFIX
from nbprof.capture.remote.workers import Watch, Worker, Workers
from nbprof.capture.shield import shielded
from nbprof.core.errors import CaptureError
from nbprof.core.receipt import Note
from nbprof.core.wire import bytes_field
from nbprof.frameworks.register import RECORDED
from nbprof.sources.recording import CaptureInfo, Recording

if TYPE_CHECKING:
    from nbprof.profiles.profile import Profile

_OVER = {
    GRPC: "gRPC",
    TORCH: "nbprof.serve",
    KINETO: "Kineto's sockets",
    VLLM: "vLLM's profile endpoints",
    SGLANG: "SGLang's profile endpoints",
}
"""How workers are recorded, by the scheme of their addresses."""
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
    missing = sum(note.key == notes.MISSING_WORKER for note in recording.info.warnings)
    patterns = {framework.recorder.files for framework in RECORDED.values()} - {""}
    hosts = sum(len(list(recording.path.glob(pattern))) for pattern in patterns)
    text = "recorded"
    if hosts + missing > 1:
        text = f"{hosts} of {hosts + missing} workers recorded"
    if not recording.temporary:
        text += f", in {recording.path}"
    return text


def record(
    addresses: str | Iterable[str], sampling: Sampling, tell: Tell, watch: Watch | None = None
) -> Recording:
    """Record workers into files.

    Parameters
    ----------
    addresses : str or iterable of str
        As `nbprof.capture` takes them.
    sampling : Sampling
        The options.
    tell : callable
        Called with progress messages.
    watch : callable, optional
        As of `Workers`.

    Raises
    ------
    CaptureError
        A wrong address, a logdir that cannot be written, or no worker recorded anything.
    KeyboardInterrupt
        Ctrl-C came before anything was recorded.
    """
    named, about_addresses = parse(addresses)
    if any(getattr(address, "scheme", GRPC) == GRPC for address in named):
        library()
    targets = cloud_tpu.workers_of(named, tell)
    run_folder = _run_folder(sampling)
    started = datetime.now().astimezone()
    try:
        folder = _session_folder(run_folder, sampling, started)
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
    info = _info(workers, sampling, started)
    info.notes += about_addresses
    info.options = {"addresses": list(map(str, named)), **info.options}
    return _saved(run_folder, workers, info)


def _session_folder(run_folder: RunFolder, sampling: Sampling, started: datetime) -> Path:
    """Create the folder that receives the files of the workers."""
    name = sampling.name or time.strftime("%Y_%m_%d_%H_%M_%S", started.timetuple())
    folder = run_folder.scratch / "plugins" / "profile" / name
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise CaptureError(
            f"{run_folder.logdir} cannot be written ({error.strerror}): choose another location"
            " with --logdir DIR"
        ) from error
    return folder


def _info(workers: Workers, sampling: Sampling, started: datetime) -> CaptureInfo:
    elapsed_s = sampling.duration_ms / 1000
    if workers.stopped_after_s is not None:
        elapsed_s = workers.stopped_after_s
    missing = [worker for worker in workers.all if worker.file is None]
    recorded = described(workers.recorded)
    return replace(
        recorded,
        started=started.isoformat(timespec="seconds"),
        elapsed_s=recorded.elapsed_s or elapsed_s,
        notes=_how(workers, sampling) + recorded.notes,
        warnings=[notes.missing_worker(worker.address, worker.reason) for worker in missing],
        label=sampling.name or f"sample {next(_numbers)}",
        options=recorded.options | asdict(sampling),
    )


def described(recorded: list[Worker]) -> CaptureInfo:
    """The info of one worker; for several, the values on which all agree."""
    infos = [worker.info for worker in recorded if worker.info is not None]
    if len(infos) < len(recorded) or not infos:
        return CaptureInfo()
    if len(infos) == 1:
        return infos[0]
    together = CaptureInfo(by=infos[0].by)
    for name in ("backend", "framework", "precision", "batch", "machine", "settings", "options"):
        if all(getattr(info, name) == getattr(infos[0], name) for info in infos):
            setattr(together, name, getattr(infos[0], name))
    for worker, info in zip(recorded, infos, strict=True):
        for note in info.notes:
            if all(note in other.notes for other in infos):
                text = note.text
            else:
                text = f"{worker.address}: {note.text}"
            labelled = replace(note, text=text)
            if labelled not in together.notes:
                together.notes.append(labelled)
    if any(info.python for info in infos):
        together.notes.append(notes.python_of_one_worker())
    return together


def _saved(run_folder: RunFolder, workers: Workers, info: CaptureInfo) -> Recording:
    """Move the recording to its logdir and write its info."""
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
            info.notes.append(notes.info_not_written(recording.path.name, error))
        recording.note_upload()
    if recording.temporary is None:
        run_folder.keep()
    if run_folder.temporary:
        # The profile holds the info for as long as anybody holds the profile; at the latest the
        # files go with the process.
        weakref.finalize(info, run_folder.remove)
    return recording


def _run_folder(sampling: Sampling) -> RunFolder:
    """The folder of the run; a requested logdir must be writable, since nothing is lost yet."""
    run_folder = RunFolder(Options(logdir=sampling.logdir, save=sampling.save))
    if sampling.logdir and run_folder.notes:
        shutil.rmtree(run_folder.logdir, ignore_errors=True)
        reason = run_folder.notes[0].text.partition(":")[0]
        raise CaptureError(
            f"{reason}; nothing was recorded. Choose a --logdir that you can write to"
        )
    return run_folder


def name_hosts(recorded: list[Worker]) -> None:
    """Give workers of one machine, which state the same host name, different names."""
    hostnames = Counter(worker.hostname for worker in recorded)
    names = []
    for worker in recorded:
        name = worker.hostname
        if hostnames[name] > 1:
            name = f"{name}:{worker.address.port}"
        names.append(name)
    counts = Counter(names)
    for worker, name in zip(recorded, names, strict=True):
        if counts[name] > 1 or not worker.hostname:
            name = str(worker.address)
        if worker.file is None:
            continue
        if worker.file.name.endswith(TORCH_SUFFIX):
            # Servers of models name their files themselves.
            if worker.file.name == f"{worker.address.file_stem}{TORCH_SUFFIX}":
                _rename(worker, name)
            continue
        if name == worker.hostname:
            continue
        named = worker.file.with_suffix(".named")
        try:
            with worker.file.open("rb") as old, named.open("wb") as new:
                # The field `hostnames`, of which the first counts; fields may be in any order.
                new.write(bytes_field(4, name.encode()))
                shutil.copyfileobj(old, new, 1 << 20)
            named.replace(worker.file)
        except OSError:
            # The disk is full: readers distinguish hosts of one name by their files as well.
            named.unlink(missing_ok=True)
            return
        worker.hostname = name


def _rename(worker: Worker, name: str) -> None:
    """Name the trace of a worker by its host: it does not state one itself."""
    assert worker.file is not None
    stem = re.sub(r"[^\w.-]", "_", name.rpartition("://")[2], flags=re.ASCII)
    # Otherwise it keeps the name of its address.
    with contextlib.suppress(OSError):
        worker.file = worker.file.rename(worker.file.with_name(f"{stem}{TORCH_SUFFIX}"))
    worker.hostname = name


def _nothing(workers: list[Worker]) -> str:
    if len(workers) == 1:
        return f"{workers[0].address}: {workers[0].reason}"
    reasons = [f"{worker.address}: {worker.reason}" for worker in workers]
    return f"no worker could be recorded. {'. '.join(reasons)}"


def _how(workers: Workers, sampling: Sampling) -> list[Note]:
    """Notes on the recording for readers of its figures."""
    recorded = workers.recorded
    count = str(workers.all[0].address)
    if len(workers.all) > 1:
        count = f"{len(recorded)} of {len(workers.all)} workers"
    seconds = sampling.duration_ms / 1000
    over = _OVER[workers.all[0].address.scheme]
    about_workers = [notes.workers_sampled(count, seconds, over=over)]
    if workers.stopped_after_s is not None:
        about_workers.append(notes.stopped_early(workers.stopped_after_s, seconds))
    first_ns = min(worker.started_ns for worker in recorded)
    for worker in recorded:
        late_s = (worker.started_ns - first_ns) / 1e9
        if worker.failures and (late_s >= 0.05 or len(recorded) == 1):
            when = f"on attempt {len(worker.failures) + 1}"
            if len(recorded) > 1:
                when = f"{late_s:.1f} s later than the first"
            reason = worker.failures[0].reason
            about_workers.append(notes.late_worker(worker.address, when, reason))
    return about_workers
