"""``@nbprof.profile``: each call of a function is a run."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from nbprof.capture.options import Options
from nbprof.core.errors import CaptureError

_lock = threading.Lock()
# The process that a call is being recorded in: a child that was forked meanwhile records its own.
_busy_in = 0


class Calls:
    """Records the calls of one function, one at a time."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.wrapper: Any = None

    @contextmanager
    def call(self) -> Iterator[None]:
        """Record the block, unless something records already: then the call is part of that."""
        __tracebackhide__ = True
        from nbprof.capture.block import profile
        from nbprof.capture.session import active

        global _busy_in
        with _lock:
            free = _busy_in != os.getpid() and active() is None
            if free:
                _busy_in = os.getpid()
        if not free:
            yield
            return
        try:
            block = profile()
            block._options = self._options
            block._begin(stacklevel=5)
            try:
                yield
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


def decorate(function: Callable[..., Any], options: Options) -> Callable[..., Any]:
    """The function with each call recorded; it stays a function, a generator function, asynchronous or not, as it was.

    A generator is recorded from its first item to its end, with what its consumer does in between: a profiler records a process.

    Raises
    ------
    CaptureError
        If it is no function.
    """
    if isinstance(function, type) or not hasattr(function, "__call__"):  # noqa: B004 - what is typed is not what is given
        raise CaptureError(f"@nbprof.profile stands above a function, not {function!r}")
    calls = Calls(options)
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
            with calls.call():
                return function(*args, **kwargs)

    calls.wrapper = wrapper
    wrapper.profile = None
    return wrapper  # type: ignore[no-any-return]
