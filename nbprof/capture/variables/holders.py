"""Holders of arrays: variables, outputs of cells, tracebacks, modules and threads."""

from __future__ import annotations

import functools
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType, GeneratorType, ModuleType
from typing import Any, NamedTuple

VARIABLE, OUTPUT, TRACEBACK, MODULE, THREAD = "variable", "output", "traceback", "module", "thread"
_CACHED = type(functools.lru_cache(len))
_OF_SHELL = ("In", "Out", "get_ipython", "exit", "quit", "open")
_FORGET = "import sys; sys.last_traceback = sys.last_value = sys.last_exc ="
"""Names of the last error that Python keeps; IPython keeps its traceback as well."""


class Holder(NamedTuple):
    """An object that may keep arrays alive.

    Attributes
    ----------
    kind : str
    name : str
        As it is written in Python.
    value : object
    remedy : str
        The statement that lets go of it; "" if there is none.
    """

    kind: str
    name: str
    value: Any
    remedy: str


def holders(namespace: Mapping[str, Any]) -> Iterator[Holder]:
    """All of them, those first that a person thinks of first.

    Parameters
    ----------
    namespace : mapping
        The variables of the notebook, or of the main module.
    """
    outputs = namespace.get("Out")
    if not isinstance(outputs, dict):
        outputs = {}
    for name, value in list(namespace.items()):
        is_module = issubclass(type(value), ModuleType)
        if not name.startswith("_") and name not in _OF_SHELL and not is_module:
            yield Holder(VARIABLE, name, _looked_into(value), _release(name, value))
    for number, value in list(outputs.items()):
        yield Holder(OUTPUT, f"Out[{number}]", value, "%reset -f out")
    for name in ("_", "__", "___"):
        if namespace.get(name) is not None and not any(
            value is namespace[name] for value in outputs.values()
        ):
            yield Holder(OUTPUT, name, namespace[name], "%reset -f out")
    yield from _last_error(namespace.get("get_ipython"))
    for name, value in list(namespace.items()):
        # IPython's own names of outputs and inputs, `_`, `_12` and `_i12`, are listed above.
        if name.startswith("_") and not _is_of_ipython(name):
            yield Holder(VARIABLE, name, _looked_into(value), _release(name, value))
    yield from _modules(namespace)
    yield from _threads()


def _is_of_ipython(name: str) -> bool:
    rest = name.lstrip("_").removeprefix("i").lstrip("i")
    return name.startswith("__") or not rest or rest.isdigit() or rest in ("h", "oh", "dh")


def _looked_into(value: Any) -> Any:
    """Classes of the person have arrays as attributes; those of others are not looked into."""
    if issubclass(type(value), type) and value.__module__ == "__main__":
        return dict(vars(value))
    return value


def _release(name: str, value: Any) -> str:
    # By the type, as an attribute may be computed.
    if issubclass(type(value), _CACHED):
        return f"{name}.cache_clear()"
    if issubclass(type(value), GeneratorType):
        return f"{name}.close()"
    return f"del {name}"


def _last_error(get_ipython: Any) -> Iterator[Holder]:
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    remedy = f"{_FORGET} None"
    shell = None
    if callable(get_ipython):
        shell = get_ipython()
    formatter = getattr(shell, "InteractiveTB", None)
    if formatter is not None:
        remedy = f"{_FORGET} get_ipython().InteractiveTB.tb = None"
    held = [error, getattr(sys, "last_traceback", None), getattr(formatter, "tb", None)]
    value = [each for each in held if each is not None]
    if value:
        yield Holder(TRACEBACK, "sys.last_value", value, remedy)


def _modules(namespace: Mapping[str, Any]) -> Iterator[Holder]:
    """Variables of modules of the person, which are not installed."""
    installed = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    seen = {id(namespace)}
    # Code may put anything there, also None.
    modules: dict[str, Any] = dict(sys.modules)
    for name, module in modules.items():
        if not isinstance(module, ModuleType) or id(vars(module)) in seen:
            continue
        seen.add(id(vars(module)))
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name.partition(".")[0] == "nbprof":
            continue
        if any(folder in Path(file).resolve().parents for folder in installed):
            continue
        for key, value in list(vars(module).items()):
            if not key.startswith("__") and not isinstance(value, (ModuleType, type)):
                yield Holder(MODULE, f"{name}.{key}", value, f"del {name}.{key}")


def _threads() -> Iterator[Holder]:
    """Local variables of functions that run on other threads."""
    titles = {thread.ident: thread.name for thread in threading.enumerate()}
    here = threading.get_ident()
    for ident, frame in sys._current_frames().items():
        if ident != here:
            yield Holder(THREAD, f"thread {titles.get(ident, ident)}", _stack(frame), "")


def _stack(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != "nbprof":
            frames.append(frame)
        frame = frame.f_back
    return frames
