"""Record the Python processes that a script or a cell starts, as further hosts of its run.

Processes of `multiprocessing` take the recorder with them, in the object that stands for them: that
holds for each start method, and only for processes that the program itself defines. A program that
`subprocess` starts knows nothing of the script; it inherits the environment, where PYTHONPATH
begins with a folder whose `sitecustomize` has the interpreter start again as `nbprof run`.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nbprof.capture.child_processes import works_alone
from nbprof.capture.options import Options
from nbprof.capture.ranks import position
from nbprof.capture.script.job import Child, Parent
from nbprof.capture.script.program import Work
from nbprof.capture.script.run import Script, shared_logdir

if TYPE_CHECKING:
    from nbprof.capture.session import Session

VARIABLE = "NBPROF_CHILDREN"
"""Environment variable that says, as JSON, how processes of a script are to be recorded."""

STARTUP = Path(__file__).with_name("startup")
"""The folder that a new interpreter looks into first."""


class Plan(NamedTuple):
    """Facts for the processes of a script.

    Attributes
    ----------
    identity : str
        The same in all processes of the script.
    logdir : str
    label : str
        What people call the script.
    options : dict
        Those of the recording.
    quiet : bool
        True to write nothing of nbprof's own.
    """

    identity: str
    logdir: str
    label: str
    options: dict[str, Any]
    quiet: bool

    @classmethod
    def for_script(cls, options: Options, logdir: Path, label: str, *, quiet: bool) -> Plan:
        """The plan of a script."""
        chosen = asdict(replace(options, logdir=str(logdir), children=False))
        return cls(uuid.uuid4().hex[:12], str(logdir), label, chosen, quiet)

    @classmethod
    def inherited(cls) -> Plan:
        """The plan in the environment of this process.

        Raises
        ------
        KeyError, ValueError, TypeError
            There is none.
        """
        return cls(**json.loads(os.environ[VARIABLE]))

    def parent(self) -> Parent:
        """The script itself."""
        return Parent(self.identity, Path(self.logdir))

    def child(self, rank: int | None = None) -> Child:
        """Join the run as this process of the script.

        Parameters
        ----------
        rank : int, optional
            Its rank, if the environment does not state one.

        Raises
        ------
        CaptureError
            As many are recorded already as may be.
        """
        launched = position()
        if launched is not None:
            rank = launched.rank
        return Child(self.identity, Path(self.logdir), rank)

    def recording(self, **changes: Any) -> Options:
        """The options of the recording of a process."""
        return Options(**{**self.options, **changes})


def follow(options: Options, label: str, *, quiet: bool) -> tuple[Parent, Following] | None:
    """Prepare to record the processes of a script; None where they cannot be in one run."""
    launched = position()
    # A script whose logdir is read-only is recorded elsewhere.
    with contextlib.suppress(OSError):
        logdir = shared_logdir(options)
        if logdir is not None and (launched is None or launched.size == 1):
            plan = Plan.for_script(options, logdir, label, quiet=quiet)
            return plan.parent(), Following(plan)
    return None


class Following:
    """Lets processes that start from now on be recorded, until `remove`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._start: Callable[..., Any] | None = None
        self._path: str | None = None

    def install(self, session: Session | None) -> None:
        """Begin; the session, if there is one, records the program itself."""
        from multiprocessing.process import BaseProcess

        start, plan = BaseProcess.start, self._plan

        def started(process: BaseProcess) -> None:
            if not works_alone(process):
                start(process)
                return
            paused: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
            if session is not None and _forks(process):
                paused = session.windows.paused_for_fork()
            vars(process)["run"] = Recorded(process, plan)
            try:
                with paused:
                    start(process)
            finally:
                vars(process).pop("run", None)

        self._start = start
        BaseProcess.start = started  # type: ignore[method-assign,assignment]
        self._path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(STARTUP), self._path]))
        os.environ[VARIABLE] = json.dumps(plan._asdict())

    def remove(self) -> None:
        """End; a second time does nothing."""
        start, self._start = self._start, None
        if start is None:
            return
        from multiprocessing.process import BaseProcess

        BaseProcess.start = start  # type: ignore[method-assign]
        os.environ.pop(VARIABLE, None)
        if self._path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = self._path


class Recorded:
    """Takes the place of the method `run` of a process, and goes with it into the process."""

    def __init__(self, process: Any, plan: Plan) -> None:
        self._process = process
        self._plan = plan

    def __call__(self) -> None:
        """Do the work of the process, and record it."""
        process = self._process
        work = Work(self._plan.label, lambda: type(process).run(process))
        try:
            recorder = self._recorder(work)
        except Exception:
            # Too many, or no disk: the process runs as it would.
            work.call()
            return
        recorder.run_within()

    def _recorder(self, work: Work) -> Script:
        options = self._plan.recording()
        member = self._plan.child(_rank(self._process))
        return Script(work, options, None, quiet=self._plan.quiet, member=member)


def _forks(process: Any) -> bool:
    method = getattr(type(process), "_start_method", None) or multiprocessing.get_start_method()
    return bool(method == "fork")


def _rank(process: Any) -> int | None:
    """The rank that PyTorch's launchers will give a process; None if none of them started it."""
    module = getattr(getattr(process, "_target", None), "__module__", "")
    args: Any = getattr(process, "_args", ())
    with contextlib.suppress(LookupError, TypeError, ValueError):
        if module == "torch.multiprocessing.spawn":
            return int(args[1])
        if module == "torch.distributed.elastic.multiprocessing.api":
            return int(args[3][args[0]]["RANK"])
    return None
