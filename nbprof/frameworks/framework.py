"""A framework: its names, how programs that use it are recognised and recorded, and its words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Hint(NamedTuple):
    """Shown in a view that is empty: a title, a sentence, and code that changes it."""

    title: str
    text: str
    code: str = ""


class Doctor(NamedTuple):
    """For `nbprof doctor`.

    Attributes
    ----------
    module : str
        Module whose import shows that the package works.
    distributions : tuple of str
        Distributions that bring it and its devices.
    devices : str
        Code that prints the devices; empty if they are not listed.
    """

    module: str
    distributions: tuple[str, ...]
    devices: str = ""


@dataclass(frozen=True)
class Recorder:
    """Recognises a framework in a process, and records it.

    Attributes
    ----------
    module : str
        Module whose import makes the framework available.
    code : str
        Regular expression that finds the framework in the source of a cell.
    backend : str
        Class that records it, as ``"nbprof.capture.jax:JaxBackend"``; it is created with the
        module.
    files : str
        Pattern of the names of its recordings.
    signs : tuple of bytes
        Texts of which at least one is in each recording in which something of the framework ran.
        Without any, it is recorded as run if the cell is expected to use it.
    has_server : bool
        A profiler server can be started in a process: by the backend's ``serve(module, port)``, or
        for PyTorch, which has none, by nbprof's own.
    steps_found_late : bool
        Steps are only found after the recording, in its events.
    hides_python : bool
        Its recorder of Python calls replaces another profiler of Python silently.
    in_use : callable
        Returns whether the process has used it before.
    wait_for : callable
        Waits until a result has been computed.
    synchronize : callable
        Waits until the devices have done all work, given the module. For frameworks without a
        profiler; the others have backends.
    """

    module: str = ""
    code: str = "(?!)"
    backend: str = ""
    files: str = ""
    signs: tuple[bytes, ...] = ()
    has_server: bool = False
    steps_found_late: bool = False
    hides_python: bool = False
    in_use: Callable[[], bool] = lambda: False
    wait_for: Callable[[Any], None] = lambda _result: None
    synchronize: Callable[[Any], None] = lambda _module: None

    @property
    def imported(self) -> bool:
        """True if the module is imported in this process."""
        return self.module in sys.modules


@dataclass(frozen=True)
class Words:
    """Sentences and code that differ by framework; the defaults apply to unknown ones.

    Attributes
    ----------
    no_steps : str
        Why a trace has no steps, and how to mark them in the next one; empty if the producer of the
        trace explains it.
    mark_steps : Hint, optional
        The same of a recording by its own profiler, for the views.
    mark_steps_in_cell : Hint, optional
        The same of a recording by nbprof; `mark_steps` if it is the same.
    mark_ranges : str
        How a program names a range of its code.
    unprofiled : str
        Why a recording that nbprof made without a profiler has no ops.
    loop : str
        How the iterations of a loop are marked in such a recording.
    loader : str
        Usual source of batches.
    copy_ahead : str
        How copies to the device overlap compute.
    list_gpus : str
        Code that lists the GPUs that the framework finds.
    record_python_calls : str
        Change, as a diff, after which its own profiler records Python calls.
    compile_step : str
        Change, as a diff, that compiles the step into one program.
    compile_ops : str
        Sentence that says how eager ops become one program.
    host_work : str
        What its host does while a device is idle, as a verb with its object.
    occupancy : str
        Origin of recorded occupancies of kernels, at the end of a sentence.
    """

    no_steps: str = ""
    mark_steps: Hint | None = None
    mark_steps_in_cell: Hint | None = None
    mark_ranges: str = ""
    unprofiled: str = "This was recorded without a framework's profiler"
    loop: str = "'for item in nbprof.steps(items):' marks the iterations of a loop."
    loader: str = "a data loader"
    copy_ahead: str = ""
    list_gpus: str = ""
    record_python_calls: str = ""
    compile_step: str = ""
    compile_ops: str = ""
    host_work: str = "runs ops"
    occupancy: str = "as recorded: theoretical, from registers and block size"


@dataclass(frozen=True, eq=False)
class Framework:
    """A framework, with one object per known framework: ``activity.framework is PYTORCH``.

    Attributes
    ----------
    name : str
        Its name in options, such as ``--backend``; empty for unknown frameworks.
    title : str
        Its name in texts.
    packages : tuple of str
        Top-level packages whose functions are code of the framework.
    uses : tuple of str
        Packages that are built on it: a program with their objects uses it.
    recorder : Recorder
        Empty if nbprof cannot record it.
    doctor : Doctor, optional
    words : Words
    profiled : bool
        Its recordings have ops; False if nbprof records steps and waits alone.
    machine_learning : bool
        False for programs on CUDA or HIP of an unknown framework, to which advice on code of a
        framework does not apply.
    slows_host : float
        Slowdown of ops and launches of a host while it is recorded together with a GPU: loops bound
        by the host, each recorded alone on an H200, took 1.4 to 2.4 times as long under PyTorch's
        profiler, and 1.2 to 3.5 times under JAX's (docs/benchmarks.md).
    records_compilation : bool
        Recordings with host ops have each compilation.
    has_scopes : bool
        Names of ops state the scopes around them.
    xla : bool
        XLA may compile its programs.
    """

    name: str
    title: str
    packages: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    recorder: Recorder = field(default_factory=Recorder)
    doctor: Doctor | None = None
    words: Words = field(default_factory=Words)
    profiled: bool = True
    machine_learning: bool = True
    slows_host: float = 2.5
    records_compilation: bool = False
    has_scopes: bool = False
    xla: bool = False

    @property
    def is_supported(self) -> bool:
        """True if nbprof supports the framework."""
        return bool(self.name)
