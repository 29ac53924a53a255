"""Act on a module as soon as it is available: now, or when the cell imports it.

A cell may set environment variables before it imports its framework, so nbprof never imports one
itself; it waits for the cell's own.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from nbprof.capture.shield import shielded

Action = Callable[[ModuleType], None]


class ImportWatch:
    """Runs an action for each named module, at once or right after its import.

    Parameters
    ----------
    actions : dict of str to callable
        What to do with which module. An action must not raise: it would break the user's import.
    """

    def __init__(self, actions: dict[str, Action]) -> None:
        self._pending = dict(actions)

    def install(self) -> None:
        """Start watching; acts at once for every module that is imported already."""
        for name in [name for name in self._pending if name in sys.modules]:
            self._pending.pop(name)(sys.modules[name])
        if self._pending:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop watching."""
        self._pending.clear()
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a watched module, with the action after its execution."""
        action = self._pending.get(fullname)
        if action is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                self._follow(spec, action)
                return spec
        return None

    def _follow(self, spec: ModuleSpec, action: Action) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # Once only: a reload is not a new arrival.
            if self._pending.pop(spec.name, None) is not None:
                # An exception here would take away a module that is whole.
                with shielded(soon=True):
                    action(module)

        # A loader of this kind serves one module; the ones that refuse attributes (built-in
        # modules) are never frameworks.
        with contextlib.suppress(AttributeError):
            loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
