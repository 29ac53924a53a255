"""``with nbprof.profile() as run:``, ``@nbprof.profile`` and ``nbprof.start()``."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nbprof.capture import ranks
from nbprof.capture.experiments.requests import ARGUMENT, BUDGET_S, check_try
from nbprof.capture.options import ALL, Options, options_of, signature
from nbprof.capture.origin import BLOCK, PROCESSES, Rerun, Unrepeatable
from nbprof.capture.shield import Shield
from nbprof.core import remedies
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.core.garbage import importing

if TYPE_CHECKING:
    from nbprof.capture.script.of_cell import Processes
    from nbprof.capture.script.of_rank import BlockOfRank
    from nbprof.capture.session import Session
    from nbprof.profiles.profile import Profile
    from nbprof.sources.recording import Recording


class profile:  # noqa: N801 - read as a verb, like `warnings.catch_warnings`
    """Record a block, or each call of a function, as a `Profile`.

    After the block, the object has everything that a `Profile` has. A block whose steps take long
    is recorded until enough of them is known, unless `steps` or `seconds` say otherwise;
    ``steps="all"`` records all of it.

    An exception in the block propagates as if nbprof were not there, and what was recorded up to
    then is kept.

    In the ranks of a job (``torchrun``, Ray Train), the first block of each rank becomes a host of
    one run, the second of another; the object has its own rank, and `nbprof.load` all of them.

    As a decorator of functions, methods and generators, synchronous or asynchronous, it records
    each call as a separate run; `function.profile` is the last one. A process has one recording at
    a time, so calls made during a recording, such as recursive ones, are part of it.

    Parameters
    ----------
    **options
        The fields of `nbprof.capture.options.Options`, which are the options of ``%%nbprof``;
        ``steps`` may also be a string, ``"10:20"``. For functions, ``try_`` is a rule of the advice
        or an experiment whose change is tried on the first call and on each later one, ``"all"``
        those of all findings, within ``budget`` seconds (60).

    Raises
    ------
    CaptureError
        Unknown option, or invalid value.

    Attributes
    ----------
    result : Profile or None
        The profile; None inside the block, or if nothing could be recorded.

    Examples
    --------
    >>> import nbprof
    >>> with nbprof.profile() as run:  # doctest: +SKIP
    ...     model.fit(data)
    >>> run.steps.summary  # doctest: +SKIP

    >>> @nbprof.profile(steps="10:20")  # doctest: +SKIP
    ... def train(): ...
    >>> train()  # doctest: +SKIP
    >>> train.profile.save("report.html")  # doctest: +SKIP
    """

    def __new__(cls, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Decorate at once where it stands above a function without parentheses."""
        if function is None:
            return super().__new__(cls)
        return cls(**options)(function)

    def __init__(self, **options: Any) -> None:
        self._try = options.pop("try_", "")
        if self._try is True:
            self._try = "all"
        self._budget = options.pop("budget", BUDGET_S)
        check_try(self._try or "", self._budget, ARGUMENT)
        self._options = options_of(options)
        self._session: Session | None = None
        self._processes: Processes | None = None
        self._member: BlockOfRank | None = None
        self._several = False
        self._reason = "the block has not run yet"
        self.result: Profile | None = None
        self.recording: Recording | None = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Record each call of `function`."""
        return decorate(function, self._options, self._try or "", self._budget)

    def __enter__(self) -> profile:
        self._begin(stacklevel=3)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finish(error, stacklevel=3)

    def _begin(self, *, stacklevel: int) -> None:
        if self._try:
            raise CaptureError(
                "try_ runs the program again, which a block cannot: put it into a function that"
                " @nbprof.profile(try_=...) decorates, or use %%nbprof --try in a notebook"
            )
        from nbprof.capture.session import Session

        self._reason = "the block has not ended yet"
        member = self._member = _as_rank(self._options)
        self._session = Session(self._options, on_step=member.stepped if member else None)
        if member is not None:
            self._session.windows.member = member
            self._session.called = member.unit
        if self._options.children:
            from nbprof.capture.script.of_cell import Processes

            self._processes = Processes(self._session, quiet=False)
        messages = self._session.messages
        try:
            self._session.start()
        except CaptureError as error:
            self._give_up(str(error), stacklevel + 1)
        except Exception as error:
            # Nothing of nbprof may fail the block.
            self._session.stop()
            self._give_up(
                f"the recording did not start ({type(error).__name__}: {error})", stacklevel + 1
            )
        except KeyboardInterrupt:
            # The block will not run, so nobody would end it.
            self._session.stop()
            raise
        if self._processes is not None and self._session is not None:
            self._processes.begin()
        for message in messages:
            warnings.warn(message, RuntimeWarning, stacklevel=stacklevel)

    def _finish(self, error: BaseException | None, *, stacklevel: int) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        processes, self._processes = self._processes, None
        if processes is not None:
            processes.stop()
        recording = session.stop(error)
        joint = processes.end(recording, error) if processes is not None else None
        recording, self._several = joint or recording, joint is not None
        member, self._member = self._member, None
        if member is not None:
            member.end(recording, error)
        for note in session.elsewhere:
            warnings.warn(f"nbprof: {note.text}", RuntimeWarning, stacklevel=stacklevel)
        later = None
        if session.superseded:
            from nbprof.profiles.load import last, set_last

            later = last()
            self._give_up("this recording was ended by a newer one", stacklevel + 1)
        elif recording is None:
            self._give_up(session.failure, stacklevel + 1)
            return
        if recording is not None:
            self.recording = recording
            self._read(recording, stacklevel + 1)
        if later is not None:
            # The one that began later is the last one.
            set_last(later)

    def _read(self, recording: Recording, stacklevel: int) -> None:
        try:
            # No Ctrl-C leaves half of a module behind.
            with Shield() as shield, shield.opened():
                with importing():
                    from nbprof.profiles.load import open_recording

                self.result = open_recording(recording)
            self.result.run.origin = Unrepeatable(PROCESSES if self._several else BLOCK)
        except KeyboardInterrupt:
            self._reason = (
                f'reading the run was interrupted: nbprof.load("{recording.path}") opens it'
            )
            raise
        except NbprofError as error:
            self._give_up(f"the run could not be read: {error}", stacklevel + 1)
        except Exception as error:
            # A fault of nbprof must not take the place of what the block raised.
            self._give_up(
                f"the run in {recording.path} could not be read: {type(error).__name__}: {error}",
                stacklevel + 1,
            )

    def _give_up(self, reason: str, stacklevel: int) -> None:
        self._session = None
        processes, self._processes = self._processes, None
        if processes is not None:
            processes.end(None, None)
        self._reason = reason
        warnings.warn(f"nbprof: {reason}", RuntimeWarning, stacklevel=stacklevel)

    def __getattr__(self, name: str) -> Any:
        result = self.__dict__.get("result")
        if result is None:
            raise AttributeError(
                f"there is no profile to take {name!r} from: {self.__dict__.get('_reason', '')}"
            )
        return getattr(result, name)

    def __dir__(self) -> list[str]:
        names = set(super().__dir__())
        if self.result is not None:
            names.update(dir(self.result))
        return sorted(names)

    def _display_(self) -> Any:
        # marimo asks the class alone, so that `__getattr__` does not answer.
        return repr(self) if self.result is None else self.result

    def __repr__(self) -> str:
        if self.result is None:
            return f"<nbprof.profile: {self._reason}>"
        return repr(self.result)


def _as_rank(options: Options) -> BlockOfRank | None:
    """Join the other ranks of a job, which record into one run; None without a job."""
    position = ranks.position()
    if position is None or position.size == 1:
        return None
    from nbprof.capture.script.of_rank import join

    return join(position, options)


profile.__signature__ = signature(after={"try_": "", "budget": BUDGET_S})  # type: ignore[attr-defined]  # for completion and help

_STOPPED_ELSEWHERE = "nbprof.stop() was called on another thread"
_started: list[profile] = []
_lock = threading.Lock()


def start(**options: Any) -> None:
    """Start recording; `nbprof.stop()`, possibly in another cell or function, ends it.

    It goes on until then, whatever it has recorded, unless `steps` or `seconds` say otherwise. If
    nothing can be recorded, a warning says why; nothing is raised. A recording that is already
    running is stopped, and its files are kept.

    Parameters
    ----------
    **options
        The options of `nbprof.profile`.

    Raises
    ------
    CaptureError
        Unknown option, or invalid value.

    Examples
    --------
    >>> nbprof.start(seconds=30)  # doctest: +SKIP
    >>> train()  # doctest: +SKIP
    >>> p = nbprof.stop()  # doctest: +SKIP
    """
    if options.get("steps") is None:
        options["steps"] = ALL
    block = profile(**options)
    block._begin(stacklevel=3)
    with _lock:
        _started[:] = [block]
    session = block._session
    backend = session.backend if session is not None else None
    if threading.current_thread() is not threading.main_thread() and not getattr(
        backend, "ends_anywhere", True
    ):
        warnings.warn(f"nbprof: {remedies.STOPS_HERE}", RuntimeWarning, stacklevel=2)


start.__signature__ = signature()  # type: ignore[attr-defined]


def stop() -> Profile | None:
    """End the recording that `nbprof.start()` began and return its profile.

    It becomes `nbprof.last`; None if nothing could be recorded.

    PyTorch with allocations can only be stopped on the thread that started it. Called on another
    one, this waits until that thread has finished its step, which ends the recording there.

    Raises
    ------
    CaptureError
        If `nbprof.start()` has not been called; or if it was called on another thread that finishes
        no step: the recording goes on then.
    """
    with _lock:
        block = _started[-1] if _started else None
    if block is None:
        raise CaptureError("no recording to stop: call nbprof.start() first")
    session = block._session
    if session is not None and not session.ends_here(_STOPPED_ELSEWHERE):
        raise CaptureError(remedies.STOP_THERE)
    with _lock:
        if block in _started:
            _started.remove(block)
    block._finish(None, stacklevel=3)
    return block.result


# The process that a call is being recorded in: a child that was forked meanwhile records its own.
_busy_in = 0


class Calls:
    """Records the calls of one function, one at a time."""

    def __init__(self, options: Options, requested: str, budget: float) -> None:
        self._options = options
        self._requested = requested
        self._budget = budget
        self.wrapper: Any = None

    @contextmanager
    def call(self) -> Iterator[profile | None]:
        """Record the block, or let it be part of a recording that is running already."""
        __tracebackhide__ = True
        from nbprof.capture.session import active

        global _busy_in
        with _lock:
            free = _busy_in != os.getpid() and active() is None
            if free:
                _busy_in = os.getpid()
        if not free:
            yield None
            return
        try:
            block = profile()
            block._options = self._options
            block._begin(stacklevel=5)
            try:
                yield block
            except BaseException as error:
                # A generator that is closed has done what was asked of it.
                block._finish(None if isinstance(error, GeneratorExit) else error, stacklevel=5)
                raise
            else:
                block._finish(None, stacklevel=5)
            finally:
                self.wrapper.profile = block
        finally:
            _busy_in = 0

    def experiment(self, block: profile) -> None:
        """Run the experiments of the findings on a call, and store the results with its run."""
        if block.result is None or block.recording is None:
            return
        origin = block.result.run.origin
        assert origin is not None
        block.recording.info.tried = origin.attempt(
            block.result.run, self._requested, self._budget, lambda _: None
        )
        block.recording.keep()

    def remember(
        self,
        block: profile,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Have the profile know its call, to run it again."""
        if block.result is None or block.recording is None or block._several:
            return
        from nbprof.capture.experiments import program

        block.result.run.origin = Rerun(
            lambda: program.of_call(function, args, kwargs), self._options, block.recording
        )


def decorate(
    function: Callable[..., Any],
    options: Options,
    requested: str = "",
    budget: float = BUDGET_S,
) -> Callable[..., Any]:
    """Record each call of a function, which remains a generator or asynchronous if it was.

    A generator is recorded from its first item to its end, including what its consumer does in
    between: a profiler records the whole process.

    Raises
    ------
    CaptureError
        If it is not a function.
    """
    # Not `callable`: mypy takes it for always true here.
    if isinstance(function, type) or not hasattr(function, "__call__"):  # noqa: B004
        raise CaptureError(f"@nbprof.profile decorates a function, not {function!r}")
    plain = not (
        inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.iscoroutinefunction(function)
    )
    if requested and not plain:
        raise CaptureError(
            "try_ calls the function again, which has to be an ordinary one: neither a generator"
            " nor asynchronous"
        )
    calls = Calls(options, requested, budget)
    wrapper: Any
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            __tracebackhide__ = True
            with calls.call():
                generator = function(*args, **kwargs)
                try:
                    item = await anext(generator)
                    while True:
                        try:
                            sent = yield item
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            item = await generator.athrow(error)
                        else:
                            item = await generator.asend(sent)
                except StopAsyncIteration:
                    return
                finally:
                    await generator.aclose()

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            __tracebackhide__ = True
            with calls.call():
                return (yield from function(*args, **kwargs))

    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with calls.call():
                return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with calls.call() as block:
                result = function(*args, **kwargs)
            if block is not None:
                calls.remember(block, function, args, kwargs)
            if requested and block is not None:
                calls.experiment(block)
            return result

    calls.wrapper = wrapper
    wrapper.profile = None
    return wrapper  # type: ignore[no-any-return]
