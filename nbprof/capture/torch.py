"""Record a cell with ``torch.profiler``."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nbprof.capture import notes, torch_generation, torch_npu, torch_trace
from nbprof.capture.clock import WAIT, ContextSpan, Marker, Span, StepClock
from nbprof.capture.describe import keras_version
from nbprof.capture.hidden_calls import HiddenCalls
from nbprof.capture.logged import stderr_lines
from nbprof.capture.options import Options
from nbprof.capture.patches import Patches
from nbprof.capture.torch_memory import AllocatorHistory
from nbprof.capture.torch_steps import OptimizerSteps
from nbprof.capture.torch_tensors import KnownTensors
from nbprof.capture.torch_threads import OtherThreads
from nbprof.core import remedies
from nbprof.core.errors import CaptureError
from nbprof.core.memory_roles import TENSORS
from nbprof.core.receipt import Note, info
from nbprof.core.sidecar import ALLOCATIONS_NOT_RECORDED
from nbprof.frameworks.register import PYTORCH

if TYPE_CHECKING:
    from nbprof.capture.windows import Windows

_BEGINNINGS = (
    ("profile", "_prepare_trace"),
    ("profile", "_start_trace"),
    ("emit_nvtx", "__enter__"),
    ("emit_itt", "__enter__"),
)
"""Methods that begin a profiler of PyTorch, by classes of `torch.autograd.profiler`."""


_CALL_BYTES = 5_000
"""PyTorch takes 1.6 kB for each call, and a function of Python calls about two of C."""


class TorchBackend:
    """Records with PyTorch's profiler and writes its Kineto trace in TensorBoard's layout.

    With allocations, PyTorch records the thread that starts it and the backward passes of that;
    without, all threads.
    """

    name, title = PYTORCH.name, PYTORCH.title
    is_lost_in_forks = True
    bytes_per_event = 400
    """Measured: growth of a process by the events of its recording, small ops on a CPU."""

    def __init__(self, module: ModuleType) -> None:
        self._torch = module
        self._profile: Any = None
        self._npu: torch_npu.NpuProfile | None = None
        self._npu_hooked = False
        self._folder = Path()
        self._handle: Any = None
        self._thread = 0
        self._starting = False
        self._history: AllocatorHistory | None = None
        self._tensors: KnownTensors | None = None
        self._hook_generation: Callable[[], bool] | None = None
        self._steps: OptimizerSteps | None = None
        self._notes: list[Note] = []
        self.starts_threads = False
        """True if the cell may start threads: then all are recorded, without allocations."""
        self._threads: OtherThreads | None = None
        self._unseen: list[str] = []
        self._frames = False
        self._hidden: HiddenCalls | None = None

    @property
    def ends_anywhere(self) -> bool:
        """True if any thread may end the recording."""
        return not self._thread

    @property
    def bytes_per_call(self) -> int:
        """Bytes that a call of a Python function takes when the profiler stops."""
        return _CALL_BYTES if self._frames and self._profile is not None else 0

    @property
    def stepped(self) -> bool:
        """True if an optimizer has made a step or another thread ran PyTorch, recorded or not."""
        return bool(self._unseen) or (self._steps is not None and self._steps.step_count > 0)

    def unrecorded(self) -> list[Note]:
        """Notes on work that ran but is missing in the recording, for the top of the notes."""
        if self._unseen:
            return [notes.threads_not_recorded(self._unseen)]
        other_thread = notes.optimizer_thread_not_recorded()
        if self._steps is not None and other_thread in self._steps.notes():
            return [other_thread]
        return []

    def start(self, folder: Path, options: Options) -> list[Note]:
        """Start recording; the files will go to `folder`. Returns notes for the user.

        Raises
        ------
        CaptureError
            If one of the user's profilers is already recording, or PyTorch refuses.
        """
        import torch.profiler  # type: ignore[import-not-found,unused-ignore]

        npu = torch_npu.module()
        if _somebody_records(self._torch) or (npu is not None and torch_npu.somebody_records(npu)):
            raise CaptureError(remedies.OWN_PROFILER)
        if npu is not None:
            return self._start_npu(npu, folder, options)
        profiler = torch.profiler
        self._folder = folder
        all_threads = self.starts_threads or not options.memory
        frames = options.python or options.stacks
        choice, everywhere = _experimental(all_threads=all_threads, frames=frames)
        memory = options.memory and not (self.starts_threads and everywhere)
        with stderr_lines() as lines, _one_cycle():
            try:
                self._starting = True
                self._profile = profiler.profile(
                    activities=profiler.supported_activities(),
                    record_shapes=options.shapes,
                    profile_memory=memory,
                    with_stack=frames,
                    **choice,
                )
                self._profile.start()
            except Exception as error:
                failed, self._profile = self._profile, None
                # It may have begun to prepare itself, which would prevent the next one.
                with contextlib.suppress(Exception):
                    failed.stop()
                raise CaptureError(f"PyTorch's profiler did not start: {error}") from error
            finally:
                self._starting = False
        self._frames = frames
        try:
            about_start = self._began(options, lines, everywhere=everywhere)
        except Exception as error:
            self._abandon()
            raise CaptureError(f"PyTorch's profiler did not start: {error}") from error
        if options.memory and not memory:
            about_start.insert(0, info(ALLOCATIONS_NOT_RECORDED, remedies.ALL_THREADS))
        if options.host_level != 2:
            text = "PyTorch's profiler has no host levels: --host-level has no effect"
            about_start.append(notes.without_effect(text))
        return [*about_start, *notes.without_npu(options.given_for_npu())]

    def _began(self, options: Options, lines: list[str], *, everywhere: bool) -> list[Note]:
        """Prepare what is recorded beside the profiler, which runs; `lines` are those that it
        logged. Returns notes on the GPU.
        """
        self._hide(self._frames)
        self._thread = 0 if everywhere else threading.get_ident()
        self._threads = OtherThreads(self._thread).start() if self._thread else None
        if self._steps is not None:
            self._steps.recorded_thread = self._thread
            self._steps.recording_began()
        if getattr(self._profile, "profile_memory", False):
            self._note_tensors(KnownTensors(self._torch))
        if options.memory:
            self._history = AllocatorHistory.begin(self._torch, stacks=options.stacks)
        return notes.gpu_not_recorded(lines) or self._devices(self._torch.profiler)

    def forget(self) -> None:
        """Do not record in this process, which was forked: its ops would cost time and memory."""
        native = getattr(getattr(self._torch, "_C", None), "_autograd", None)
        clear = getattr(native, "_clear_callbacks", None)
        if self._profile is not None and clear is not None:
            clear()

    def _abandon(self) -> None:
        """End a recording that did not begin as it should: it would prevent the next one."""
        profile, self._profile = self._profile, None
        threads, self._threads = self._threads, None
        self._note_tensors(None)
        self._hide(False)
        with contextlib.suppress(Exception):
            profile.stop()
        if threads is not None:
            with contextlib.suppress(Exception):
                threads.stop()

    def _start_npu(self, npu: Any, folder: Path, options: Options) -> list[Note]:
        self._folder = folder
        self._starting = True
        try:
            self._npu = torch_npu.NpuProfile(
                npu, folder / "plugins" / "profile" / torch_npu.stamp(), options
            )
        finally:
            self._starting = False
        self._thread = threading.get_ident()
        if self._steps is not None:
            self._steps.recorded_thread = self._thread
            self._steps.other_thread = notes.npu_optimizer_thread_not_recorded()
            self._steps.recording_began()
        about_start = list(self._npu.notes)
        if not options.memory:
            about_start.append(notes.without_effect(remedies.NPU_ONE_THREAD))
        return about_start

    def npu_is_here(self, windows: Windows, patches: Patches, give_way: Callable[[], None]) -> None:
        """``torch_npu`` was imported: record with its profiler, unless steps have ended already."""
        if torch_npu.module() is None:
            return
        self._hook_npu(patches, give_way)
        if self._profile is None:
            return
        if windows.clock.seen:
            text = remedies.NPU_LATE.format(step=windows.clock.seen)
            self._note(info("npu_imported_late", text))
        elif self._steps is not None:
            self._steps.begins_again(windows.restart)
        else:
            windows.restart()

    def _devices(self, profiler: Any) -> list[Note]:
        """Why no GPU will be in the trace, if one could be expected."""
        torch = self._torch
        cuda, version = getattr(torch, "cuda", None), getattr(torch, "version", None)
        if cuda is None or version is None:
            return []
        for_cuda = bool(getattr(version, "cuda", None))
        if cuda.is_available():
            kinds = {getattr(activity, "name", "") for activity in profiler.supported_activities()}
            if for_cuda and "CUDA" not in kinds:
                return [info("gpu_not_recorded", remedies.NO_CUPTI)]
            return []
        if getattr(version, "hip", None) or getattr(version, "xpu", None):
            return []
        unseen = remedies.unseen_gpu(str(torch.__version__), built_for_cuda=for_cuda)
        return notes.infos("gpu_not_seen", unseen)

    def stop(self) -> None:
        """End the recording and write its files.

        Raises
        ------
        CaptureError
            If there is nothing to write, or it cannot be written.
        """
        profile, self._profile = self._profile, None
        self._hide(False)
        history, self._history = self._history, None
        tensors = self._tensors
        self._note_tensors(None)
        threads, self._threads = self._threads, None
        if threads is not None:
            self._unseen += [name for name in threads.stop() if name not in self._unseen]
        steps = self._steps
        marks = steps.finished() if steps is not None else []
        stopped_in_call = steps.reported_ns if steps is not None else 0
        npu, self._npu = self._npu, None
        if npu is not None:
            if self._thread != threading.get_ident():
                with contextlib.suppress(Exception):
                    npu.end(())
                raise CaptureError(remedies.NPU_WRONG_THREAD)
            self._note(*npu.end(marks))
            return
        if profile is None:
            return
        name = torch_trace.worker()
        run = self._folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        try:
            if self._thread and self._thread != threading.get_ident():
                # It gives nothing on this thread, but must be over for the next one to begin.
                with stderr_lines(), contextlib.suppress(Exception):
                    profile.stop()
                raise CaptureError(remedies.WRONG_THREAD)
            _add_rank(profile)
            if tensors is not None:
                _add_tensors(profile, tensors)
            with stderr_lines() as lines:
                profile.stop()
            self._note(*notes.gpu_not_recorded(lines))
            target = run / f"{name}{torch_trace.SUFFIX}.gz"
            note = torch_trace.export(profile, target, marks, stopped_in_call=stopped_in_call)
            if note is not None:
                self._note(note)
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(f"PyTorch's profiler wrote no file: {error}") from error
        finally:
            # PyTorch's object refers to itself: its events would be freed within a later step.
            profile.profiler = None
            if history is not None:
                self._note(*history.end(run / f"{name}.memory_snapshot.pickle"))

    def _hide(self, on: bool) -> None:
        """Begin or end hiding compilers and imports from the recording of Python calls."""
        if self._hidden is not None:
            self._hidden.on = on

    def _note(self, *received: Note) -> None:
        self._notes += [note for note in received if note not in self._notes]

    def notes(self) -> list[Note]:
        """Notes for the user since those that `start` returned."""
        gathered = list(self._notes)
        hidden = self._hidden.note() if self._hidden is not None else None
        if hidden is not None:
            gathered.append(hidden)
        if self._steps is not None:
            first = self.unrecorded()
            gathered += [note for note in self._steps.notes() if note not in first]
        return gathered

    def open_marker(self, kind: str, number: int) -> Marker:
        """Begin a span that may become step `number`."""
        del number
        assert self._steps is not None
        return self._steps.open_mark(kind)

    def open_wait(self, name: str = WAIT) -> Span:
        """Open a span around a wait of a step."""
        return ContextSpan(self._torch.profiler.record_function(name))

    def versions(self) -> str:
        """Versions that matter for reading the run."""
        text = f"PyTorch {self._torch.__version__}"
        cudnn = _cudnn(self._torch)
        if cudnn:
            text += f", cuDNN {cudnn}"
        npu = torch_npu.module()
        if npu is not None:
            text += f", torch_npu {getattr(npu, '__version__', '')}".rstrip()
        return text + keras_version()

    def hook(self, clock: StepClock, patches: Patches, give_way: Callable[[], None]) -> None:
        """Let optimizer steps end steps of the run, and give way to the user's own profiler.

        Parameters
        ----------
        clock : StepClock
            Notified of steps.
        patches : Patches
            Remembers what to restore.
        give_way : callable
            Called before one of the user's profilers starts: two at once would crash the process.
        """
        self._hidden = HiddenCalls(patches)
        self._hidden.hook()
        self._hide(self._profile is not None and self._frames)
        self._steps = steps = OptimizerSteps(clock)
        steps.recorded_thread = self._thread
        steps.tensors = self._tensors
        if self._npu is not None:
            steps.other_thread = notes.npu_optimizer_thread_not_recorded()
        patches.on_restore(steps.hook(self._torch, patches).remove)
        self._hook_profilers(patches, give_way)
        self._hook_generation = partial(torch_generation.hook, patches, lambda: self._tensors)
        self._note_tensors(self._tensors)
        steps.begin()

    def _note_tensors(self, tensors: KnownTensors | None) -> None:
        """From here on, have the tensors of optimizers noted, or no more."""
        self._tensors = tensors
        if self._steps is not None:
            self._steps.tensors = tensors
        # Models may be imported between the begin of a cell and that of a recording.
        if tensors is not None and self._hook_generation is not None and self._hook_generation():
            self._hook_generation = None

    def _hook_npu(self, patches: Patches, give_way: Callable[[], None]) -> None:
        """Give way to the user's own profiler of ``torch_npu``."""
        npu = torch_npu.module()
        if npu is not None and not self._npu_hooked:
            self._npu_hooked = True
            self._hook_beginnings(
                npu.profiler, (("profile", "start"), ("_KinetoProfile", "start")), patches, give_way
            )

    def _hook_profilers(self, patches: Patches, give_way: Callable[[], None]) -> None:
        self._hook_beginnings(
            sys.modules.get("torch.autograd.profiler"), _BEGINNINGS, patches, give_way
        )

    def _hook_beginnings(
        self,
        module: Any,
        methods: Iterable[tuple[str, str]],
        patches: Patches,
        give_way: Callable[[], None],
    ) -> None:
        for owner, method in methods:
            kind = getattr(module, owner, None)
            if kind is None or method not in vars(kind):
                continue
            original = getattr(kind, method)

            @wraps(original)
            def begin(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                if (self._profile is not None or self._npu is not None) and not self._starting:
                    give_way()
                return _original(*args, **kwargs)

            patches.replace(kind, method, begin)


def _somebody_records(torch: Any) -> bool:
    """Return whether a profiler of the user runs on any thread; one that prepares itself counts.

    PyTorch does not report it, lets a second one begin, and crashes when the first is exported.
    """
    profiler = sys.modules.get("torch.autograd.profiler")
    kind = getattr(profiler, "profile", None)
    if kind is None:
        return False
    # Instances refer to their class: a third of the time of looking at all objects.
    for instance in gc.get_referrers(kind):
        if type(instance) is not kind or not getattr(instance, "entered", False):
            continue
        if getattr(instance, "kineto_results", True) is None:
            return True
    enabled = getattr(getattr(torch, "autograd", None), "_profiler_enabled", None)
    return bool(enabled is not None and enabled())


def records_all_threads() -> bool:
    """Return whether any thread can start a recording of all, without allocations."""
    return _experimental(all_threads=True, frames=False)[1]


def _experimental(*, all_threads: bool, frames: bool) -> tuple[dict[str, Any], bool]:
    """Arguments of the profiler that this PyTorch has, and whether it will record all threads.

    Not ``verbose``: it writes the stack of each event as text, which takes five times the memory;
    the Python calls around an op give the same.
    """
    try:
        from torch._C import _profiler  # type: ignore[import-not-found,unused-ignore]

        config = _profiler._ExperimentalConfig
    except (ImportError, AttributeError):
        return {}, False
    # Each version has more than the one before; events of Python objects are of no use here.
    arguments = {
        "profile_all_threads": all_threads,
        "trace_only": not frames,
        "record_python_gc_info": True,
    }
    for unsupported in (
        (),
        ("trace_only",),
        ("trace_only", "record_python_gc_info"),
        tuple(arguments),
    ):
        accepted: dict[str, Any] = {
            key: value for key, value in arguments.items() if key not in unsupported and value
        }
        with contextlib.suppress(TypeError):
            chosen = {"experimental_config": config(**accepted)}
            return chosen, "profile_all_threads" in accepted
    return {}, False


@contextlib.contextmanager
def _one_cycle() -> Iterator[None]:
    """Without PyTorch's warning of events of earlier cycles: a recording has one cycle."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Profiler clears events at the end")
        yield


def _add_rank(profile: Any) -> None:
    """Add its rank to the trace, in case the job was joined after the recording had begun."""
    described = getattr(profile, "_get_distributed_info", None)
    if described is None or torch_trace.rank_and_size()[0] is None:
        return
    import json

    facts = described()
    if facts:
        profile.add_metadata_json("distributedInfo", json.dumps(facts, default=str))


def _add_tensors(profile: Any, tensors: KnownTensors) -> None:
    """Add what the live tensors are; where that fails, memory by role knows less."""
    with contextlib.suppress(Exception):
        profile.add_metadata_json(TENSORS, tensors.end())


def _cudnn(torch: Any) -> str:
    """The version of cuDNN, as its maintainers write it, if the program uses a GPU of NVIDIA."""
    try:
        # On GPUs of AMD this would be the version of MIOpen.
        if torch.version.cuda is None or not torch.cuda.is_initialized():
            return ""
        number = int(torch.backends.cudnn.version())
    except (AttributeError, TypeError, RuntimeError, ValueError):
        return ""
    # 8907 is 8.9.7, 91002 is 9.10.2.
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"
