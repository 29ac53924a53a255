"""A script or a module as `python` runs it: `sys.argv`, `sys.path` and the module `__main__`."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from nbprof.core.errors import CaptureError
from nbprof.sources.recording import PROCESS, SCRIPT

_MAIN = "__main__"


class Program:
    """A program that has not begun.

    Parameters
    ----------
    file : str
        Its file, which becomes `__file__`.
    loader : object
        The loader of its code.
    spec : ModuleSpec or None
        Of a module; None for a script.
    label : str
        What people call it: `train.py`, or `package.module`.

    Attributes
    ----------
    text : str
        Its source; "" if it has none.
    module : module
        The module that becomes `__main__`.
    unit : str
        What it is, in sentences.
    """

    unit = SCRIPT

    def __init__(self, file: str, loader: Any, spec: ModuleSpec | None, label: str) -> None:
        self.file = file
        self.label = label
        self._loader = loader
        self._name = spec.name if spec is not None else _MAIN
        self._bytes = self._read()
        self.text = _decoded(self._bytes)
        self.module = ModuleType(_MAIN)
        names = vars(self.module)
        names |= {
            "__file__": file,
            "__cached__": spec.cached if spec is not None else None,
            "__loader__": loader,
            "__package__": spec.parent if spec is not None else None,
            "__spec__": spec,
            "__builtins__": builtins,
        }
        if sys.version_info < (3, 14):
            names["__annotations__"] = {}

    def _read(self) -> bytes:
        if isinstance(self._loader, SourcelessFileLoader):
            return b""
        try:
            return bytes(self._loader.get_data(self.file))
        except (OSError, AttributeError):
            return b""

    def code(self) -> CodeType:
        """Its code, in which the iterations of its loops are followed where that is possible.

        Raises
        ------
        SyntaxError
            The program's own.
        """
        if not self.text:
            code: CodeType = self._loader.get_code(self._name)
            return code
        with contextlib.suppress(Exception):
            tree = self._followed(ast.parse(self._bytes, self.file))
            return compile(tree, self.file, "exec", dont_inherit=True)
        # Without times of its loops; its own errors are raised here.
        return compile(self._bytes, self.file, "exec", dont_inherit=True)

    def _followed(self, tree: ast.Module) -> ast.Module:
        from nbprof.capture.loop_code import Text
        from nbprof.capture.loop_functions import followed

        return followed(tree, Text(self.text), vars(self.module), {})

    def run(self, code: CodeType | None) -> None:
        """Run it as `__main__`, which it remains: threads and exit handlers need it later."""
        sys.modules[_MAIN] = self.module
        if code is not None:
            exec(code, vars(self.module))  # noqa: S102 - running the program is the task


class Work:
    """A call, in the place of a program.

    Parameters
    ----------
    label : str
    call : callable
    """

    text = ""
    unit = PROCESS

    def __init__(self, label: str, call: Callable[[], None]) -> None:
        self.label = label
        self.call = call

    @property
    def module(self) -> ModuleType:
        """The main module of the process."""
        return sys.modules["__main__"]

    def code(self) -> CodeType | None:
        """There is none to prepare."""
        return None

    def run(self, code: CodeType | None) -> None:
        """Do it."""
        del code
        self.call()


def _decoded(content: bytes) -> str:
    try:
        return importlib.util.decode_source(content)
    except (SyntaxError, UnicodeDecodeError):
        return ""


def script(path: str, arguments: Sequence[str]) -> Program:
    """Prepare a file to run, or a folder or archive that has a `__main__.py`.

    `sys.argv` and `sys.path` are those of the program afterwards.

    Raises
    ------
    CaptureError
        There is no such file.
    """
    file = Path(path)
    if not file.exists():
        raise CaptureError(f"there is no script {path!r}; -m runs a module by its name")
    sys.argv = [path, *arguments]
    # Python makes it absolute, without following links.
    absolute = str(file.absolute())
    if file.suffix == ".pyc":
        _replace_first_path(str(file.resolve().parent))
        return Program(absolute, SourcelessFileLoader(_MAIN, absolute), None, file.name)
    if file.is_dir() or _is_archive(file):
        _replace_first_path(path)
        spec = PathFinder.find_spec(_MAIN, [path])
        if spec is None or spec.origin is None:
            raise CaptureError(f"{path} holds no __main__.py to run")
        return Program(spec.origin, spec.loader, spec, file.name)
    _replace_first_path(str(file.resolve().parent))
    return Program(absolute, SourceFileLoader(_MAIN, absolute), None, file.name)


def _is_archive(file: Path) -> bool:
    from zipfile import is_zipfile

    # A script may be a named pipe, which can be read once.
    return file.is_file() and is_zipfile(file)


def module(name: str, arguments: Sequence[str]) -> Program:
    """Prepare a module to run, as `python -m` does.

    Its parent packages are imported. `sys.argv` and `sys.path` are those of the program afterwards.

    Raises
    ------
    CaptureError
        There is no such module, or it cannot be run.
    Exception
        What a parent package raises.
    """
    sys.argv = ["-m", *arguments]
    _replace_first_path(os.getcwd())  # noqa: PTH109 - what Python itself does
    spec = _find(name)
    if spec is None:
        raise CaptureError(f"No module named {name}")
    if spec.submodule_search_locations is not None:
        spec = _find(f"{name}.{_MAIN}")
        if spec is None:
            raise CaptureError(
                f"{name} is a package and cannot be run: it has no module {name}.{_MAIN}"
            )
    if spec.loader is None or spec.origin is None or not spec.has_location:
        raise CaptureError(f"{name} cannot be run: it has no code of Python")
    sys.argv[0] = spec.origin
    return Program(spec.origin, spec.loader, spec, name)


def _find(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # A parent does not exist; what else a parent misses is its own error.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise
    except ValueError as error:
        raise CaptureError(f"{name} is not the name of a module: {error}") from None


def _replace_first_path(folder: str) -> None:
    """Let imports look in a folder first, instead of where the command `nbprof` is."""
    # With -P and -I, Python adds none.
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        sys.path[0] = folder
