"""Functions whose code is replaced for a turn: whoever refers to one calls another in its place."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from nbprof.capture.patches import Patches

_HOLE = "nbprof: the called function"


def swap(function: FunctionType, code: CodeType, patches: Patches) -> None:
    """Give a function other code until `patches` are restored."""
    before = function.__code__

    def put_back() -> None:
        function.__code__ = before

    patches.on_restore(put_back)
    function.__code__ = code


def calling(target: Callable[..., Any], code: CodeType) -> CodeType:
    """Code that calls `target`, for a function with the free variables of `code`."""
    source = (
        f"def call(*args, **kwargs):\n    target = {_HOLE!r}\n    return target(*args, **kwargs)\n"
    )
    namespace: dict[str, Any] = {}
    exec(compile(source, code.co_filename, "exec"), namespace)  # noqa: S102 - no text of anybody
    plain: CodeType = namespace["call"].__code__
    constants = []
    for constant in plain.co_consts:
        constants.append(target if constant == _HOLE else constant)
    return plain.replace(co_consts=tuple(constants), co_freevars=code.co_freevars)


def copy_of(function: FunctionType) -> FunctionType:
    """A function with the same code, variables and defaults."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def at_first_calls(
    codes: set[CodeType], receive: Callable[[FunctionType], object], patches: Patches
) -> None:
    """Call ``receive(function)`` when this thread first calls a function with one of these codes.

    It is for functions that the program makes while it runs. That first call runs as it is.
    """
    waiting = set(codes)
    if not waiting:
        return
    before = sys.getprofile()

    def called(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code not in waiting:
            return
        waiting.discard(code)
        function = _function_of(frame)
        if function is not None:
            receive(function)
        if not waiting and sys.getprofile() is called:
            sys.setprofile(before)

    patches.on_restore(lambda: sys.setprofile(before))
    sys.setprofile(called)


def _function_of(frame: FrameType) -> FunctionType | None:
    """The function that a frame runs; None if it is not found, or one of several."""
    code = frame.f_code
    near: list[Any] = [frame.f_globals.get(code.co_name)]
    if frame.f_back is not None:
        near += frame.f_back.f_locals.values()
    functions = _with(code, near) or _with(code, gc.get_referrers(code))
    if len(functions) == 1:
        return functions[0]
    return None


def _with(code: CodeType, values: list[Any]) -> list[FunctionType]:
    functions: dict[int, FunctionType] = {}
    for value in values:
        if isinstance(value, FunctionType) and value.__code__ is code:
            functions[id(value)] = value
    return list(functions.values())
