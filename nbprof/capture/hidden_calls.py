"""Keep compilation and the imports of libraries out of the Python calls that PyTorch records.

``torch.compile`` traces a small model with hundreds of thousands of Python calls, and the first one
imports as many again. Each takes about 1.6 kB when PyTorch's profiler stops, and nobody looks for
their own code in them. PyTorch cannot pause the recording of Python calls. But Python itself calls
no profiler while a trace function runs, so the work is done inside one.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import time
from collections.abc import Callable
from functools import wraps
from importlib.machinery import SourceFileLoader
from types import FrameType
from typing import Any

from nbprof.capture import notes
from nbprof.capture.patches import Patches
from nbprof.core.receipt import Note

_COMPILERS = {
    "torch._dynamo.convert_frame": ((), "_compile"),
    "torch._inductor.compile_fx": ((), "fx_codegen_and_compile"),
    "torch._functorch._aot_autograd.runtime_wrappers": (
        ("_AutogradBackwardCompiler",),
        "get_or_compile",
    ),
}
"""By module: the class and the function that compile; they are looked up for each call."""
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]")
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")} - {None})


class HiddenCall:
    """A call of a function that no profiler of Python sees, nor a trace function.

    Attributes
    ----------
    result : object
        The result of the function.
    error : BaseException or None
        The exception that it raised instead, with the function's frames alone.
    """

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        before = sys.gettrace()

        def inside(frame: FrameType, event: str, argument: Any) -> None:
            del frame, event, argument
            sys.settrace(before)
            try:
                self.result = function(*args, **kwargs)
            except BaseException as error:
                # The first frame is this one.
                trace = error.__traceback__
                self.error = error.with_traceback(trace.tb_next if trace is not None else None)

        sys.settrace(inside)
        try:
            _be_traced()
        finally:
            sys.settrace(before)


def _be_traced() -> None:
    """Do nothing: this call invokes the trace function."""


class HiddenCalls:
    """Hides calls of compilers and imports from the recorder of Python calls.

    Attributes
    ----------
    on : bool
        True while Python calls are recorded.
    """

    def __init__(self, patches: Patches) -> None:
        self.on = False
        self._patches = patches
        self._depth = 0
        self._count = {"compilation": 0, "import": 0}
        self._seconds = 0.0

    def hook(self) -> None:
        """Hide compilers, those that are imported later too, and the imports of libraries."""
        for name in _COMPILERS:
            self._hook_compiler(name)
        original = SourceFileLoader.exec_module

        @wraps(original)
        def exec_module(loader: Any, module: Any) -> None:
            __tracebackhide__ = True
            if self.on and not self._depth and _is_library(str(getattr(loader, "path", ""))):
                call = self._call("import", original, loader, module)
                try:
                    if call.error is not None:
                        raise call.error
                finally:
                    del call
            else:
                original(loader, module)
            if module.__name__ in _COMPILERS:
                self._hook_compiler(module.__name__)

        _look_like(exec_module, original)
        self._patches.replace(SourceFileLoader, "exec_module", exec_module)

    def note(self) -> Note | None:
        """The note on hidden calls; None if nothing was hidden."""
        counts = {kind: count for kind, count in self._count.items() if count}
        if counts:
            return notes.library_calls_not_recorded(counts, self._seconds)
        return None

    def _hook_compiler(self, name: str) -> None:
        owners, function = _COMPILERS[name]
        owner: Any = sys.modules.get(name)
        for attribute in owners:
            owner = getattr(owner, attribute, None)
        original = vars(owner).get(function) if owner is not None else None
        if original is None or hasattr(original, "_nbprof_hides"):
            return

        @wraps(original)
        def compile_(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not self.on or self._depth:
                return original(*args, **kwargs)
            call = self._call("compilation", original, *args, **kwargs)
            try:
                if call.error is not None:
                    raise call.error
                return call.result
            finally:
                del call

        compile_._nbprof_hides = True  # type: ignore[attr-defined]
        _look_like(compile_, original)
        self._patches.replace(owner, function, compile_)

    def _call(
        self, kind: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> HiddenCall:
        self._depth += 1
        began = time.perf_counter()
        try:
            return HiddenCall(function, *args, **kwargs)
        finally:
            self._depth -= 1
            self._count[kind] += 1
            self._seconds += time.perf_counter() - began


def _look_like(function: Any, original: Any) -> None:
    """Make tracebacks show a function as the one that it replaces."""
    code = getattr(original, "__code__", None)
    if code is not None:
        function.__code__ = function.__code__.replace(
            co_filename=code.co_filename, co_name=code.co_name
        )


def _is_library(path: str) -> bool:
    """Return whether a file is of an installed package or of Python itself."""
    return _INSTALLED.search(path) is not None or path.startswith(_STANDARD)
