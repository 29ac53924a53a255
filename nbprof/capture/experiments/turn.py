"""One turn: the program runs from the same state for some steps, without a profiler."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, replace
from inspect import unwrap
from typing import TYPE_CHECKING

from nbprof.capture.experiments.experiment import Change
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.program import Program, Refused
from nbprof.capture.options import Options
from nbprof.capture.session import Session
from nbprof.core.errors import CaptureError

if TYPE_CHECKING:
    from nbprof.capture.clock import StepClock

_NEVER = 1_000_000_000
"""The first step to record: the steps are found, and no profiler starts."""


class _Enough(BaseException):
    """The steps of the turn are over; not an `Exception`, which a program may handle."""


@dataclass(frozen=True)
class Plan:
    """The steps of a turn.

    Attributes
    ----------
    warmup : int
        Steps that are not measured.
    steps : int
        Steps that are measured; 0 measures the program as a whole, which marks no steps.
    kind : str
        Not empty: only steps of this kind count.
    """

    warmup: int
    steps: int
    kind: str = ""


@dataclass(frozen=True)
class Timing:
    """The times of a turn.

    Attributes
    ----------
    seconds : float
        From the end of the warm-up to that of the last step.
    steps : int
        Steps in that time; 0 where the whole program was measured.
    first_s : float
        From the begin of the program to the end of its first step.
    before_s : float
        From the begin of the program to the end of the warm-up.
    total_s : float
        All of the turn, with saving and restoring the state.
    memory_bytes : int or None
        Most memory of the GPU that PyTorch had in use; None without one.
    """

    seconds: float
    steps: int
    first_s: float
    before_s: float
    total_s: float
    memory_bytes: int | None

    @property
    def step_s(self) -> float:
        """Mean time of a step, or of the program."""
        return self.seconds / max(self.steps, 1)


class _Watch:
    """Times the steps of a turn, and ends the program after the last one."""

    def __init__(self, plan: Plan) -> None:
        self.began = time.perf_counter()
        self.first: float | None = None
        self.warm: float | None = None
        self.ended: float | None = None
        self.seen = self.measured = 0
        self.elsewhere = False
        self._plan = plan
        self._thread = threading.get_ident()

    def stepped(self, clock: StepClock) -> None:
        if threading.get_ident() != self._thread:
            self.elsewhere = True
            return
        if self._plan.kind:
            self.seen += clock.kind == self._plan.kind
        else:
            self.seen = clock.seen
        if self.first is None:
            self.first = time.perf_counter()
        if not self._plan.steps:
            return
        if self.warm is None and self.seen >= self._plan.warmup:
            synchronize()
            self.warm = time.perf_counter()
            self._warm_at = self.seen
        elif self.warm is not None and self.seen >= self._plan.warmup + self._plan.steps:
            if self.ended is None:
                synchronize()
                self.ended = time.perf_counter()
                self.measured = self.seen - self._warm_at
            raise _Enough


def run(
    program: Program,
    options: Options,
    plan: Plan,
    change: Change | None = None,
    observation: Observation | None = None,
) -> Timing:
    """Run the program for a turn, and give everything back.

    Parameters
    ----------
    program : Program
    options : Options
        Of the recording, for the backend.
    plan : Plan
    change : Change, optional
        Applied for the turn.
    observation : Observation, optional
        Receives what the program called, and its results.

    Raises
    ------
    Refused
        The program failed, or has too few steps.
    """
    started = time.perf_counter()
    with program.restored() as saved:
        assert saved.state is not None
        if change is not None:
            change.apply(saved.patches)
        if observation is not None:
            observation.hook(saved.patches)
        _reset_memory()
        watch = _run(program, options, plan)
        memory = _most_memory()
        if observation is not None:
            observation.take(saved.state, program.namespace)
    if saved.failed:
        raise Refused(f"not everything could be restored: {'; '.join(saved.failed[:3])}.")
    begun, ended = watch.began, watch.ended
    assert ended is not None
    warm = begun if watch.warm is None else watch.warm
    return Timing(
        seconds=ended - warm,
        steps=watch.measured,
        first_s=(watch.first or ended) - begun,
        before_s=warm - begun,
        total_s=time.perf_counter() - started,
        memory_bytes=memory,
    )


def _run(program: Program, options: Options, plan: Plan) -> _Watch:
    bare = replace(
        options, steps=(_NEVER, None), every=0, seconds=None, save=False, logdir=None, warmup=None
    )
    with program.hidden():
        watch = _Watch(plan)
        session = Session(
            bare, source=program.cell.source, namespace=program.namespace, on_step=watch.stepped
        )
        try:
            session.start()
            watch.began = time.perf_counter()
            program.run()
        except _Enough:
            pass
        except CaptureError as error:
            raise Refused(f"{error}.") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise Refused(f"it failed: {_in_words(error)}.") from None
        finally:
            session.stop()
        synchronize()
        if not plan.steps:
            watch.ended = time.perf_counter()
            watch.measured = watch.seen
    if watch.elsewhere:
        raise Refused("its steps end on another thread than the one that runs it.")
    if watch.ended is None:
        raise Refused(f"it ended after {watch.seen} steps.")
    return watch


def _in_words(error: BaseException) -> str:
    # Compilers of frameworks say on the second line what went wrong.
    message = " ".join(str(error).split("\n")[:2]).strip()[:300]
    return f"{type(error).__name__}: {message}".removesuffix(": ").rstrip(".")


def synchronize() -> None:
    """Wait for the devices, so that the time of a step has the work that it launched."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        torch._C._cuda_synchronize()
    jax = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "live_arrays"):
        for array in jax.live_arrays():
            if not array.is_deleted():
                # Past the change that leaves out the waits of the program.
                unwrap(type(array).block_until_ready)(array)


def _reset_memory() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def _most_memory() -> int | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_allocated())
