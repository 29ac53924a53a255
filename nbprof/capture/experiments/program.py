"""A program that can run again: a cell or a call of a function, and the state that it changes."""

from __future__ import annotations

import ast
import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from nbprof.capture.patches import Patches
from nbprof.capture.probe.reads import names_in, names_read
from nbprof.capture.probe.state import State
from nbprof.capture.shield import shielded


class Refused(Exception):  # noqa: N818 - a sentence, not an error
    """The reason why the program does not run again, as a clause with a period."""


class Unrestorable(Refused):
    """Something that the program changes cannot be given back."""


class Cell(NamedTuple):
    """The text of a program.

    Attributes
    ----------
    source : str
        As the person wrote it.
    python : str
        The same where magics are calls.
    filename : str
        Of its code.
    """

    source: str = ""
    python: str = ""
    filename: str = ""


NO_CELL = Cell()


class Program:
    """A program that has run and can run again.

    Parameters
    ----------
    namespace : dict
        Its variables.
    names : set of str
        Those that it reads.
    run : callable
        Runs it.
    cell : Cell
        Empty if it is none.
    hidden : callable
        A context in which its output is not shown.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        names: set[str],
        run: Callable[[], object],
        *,
        cell: Cell = NO_CELL,
        hidden: Callable[[], contextlib.AbstractContextManager[object]] | None = None,
    ) -> None:
        self.namespace = namespace
        self.run = run
        self.cell = cell
        self._names = names
        self._hidden = hidden or _no_output

    def hidden(self) -> contextlib.AbstractContextManager[object]:
        """A context in which the output of the program is not shown."""
        return self._hidden()

    @contextmanager
    def restored(self, *, in_place: bool = False) -> Iterator[Saved]:
        """Save what the program can change, and give it back at the end of the block.

        Parameters
        ----------
        in_place : bool
            Also where something cannot be given back.

        Raises
        ------
        Refused
            Something cannot be given back, or was used up by the first run.
        """
        saved = Saved()
        try:
            saved.state = State(self.namespace, self._names)
            saved.check(in_place=in_place)
            yield saved
        finally:
            with shielded():
                saved.patches.restore()
                if saved.state is not None:
                    saved.failed = saved.state.restore()


class Saved:
    """The state and patches that are given back at the end of a run.

    Attributes
    ----------
    state : State or None
    patches : Patches
        Restored before the state.
    failed : list of str
        Errors while it was given back.
    """

    def __init__(self) -> None:
        self.state: State | None = None
        self.patches = Patches()
        self.failed: list[str] = []

    @property
    def uncopied(self) -> list[str]:
        """Objects that cannot be given back."""
        return self.state.uncopied if self.state is not None else []

    def check(self, *, in_place: bool) -> None:
        """Raise `Refused` if something cannot be given back."""
        if self.state is None:
            return
        if self.state.consumed:
            raise Refused(
                f"the first run has used up {', '.join(self.state.consumed)}. Make the iterator in"
                " the cell itself."
            )
        if self.uncopied and not in_place:
            raise Unrestorable(
                f"{', '.join(self.uncopied[:5])} could not be restored after a second run."
            )


def of_cell(shell: Any, source: str) -> Program:
    """The program of a cell.

    Parameters
    ----------
    shell : InteractiveShell
    source : str
        The text of the cell, without the line of the magic.

    Raises
    ------
    Refused
        It cannot be compiled without the shell.
    """
    text = shell.transform_cell(source)
    name = shell.compile.cache(text, shell.execution_count, raw_code=source)
    try:
        tree = shell.transform_ast(shell.compile.ast_parse(text, filename=name))
        code = shell.compile(tree, name, "exec")
    except SyntaxError:
        raise Refused("a cell with a top-level await cannot be run again.") from None
    namespace = shell.user_ns

    def run() -> None:
        exec(code, namespace)  # noqa: S102 - running the user's cell is the task

    names = _names(tree, namespace)
    return Program(namespace, names, run, cell=Cell(source, text, name), hidden=_unseen)


def of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Program:
    """The program that calls a function."""
    namespace: dict[str, Any] = {"function": function, "args": tuple(args), "kwargs": dict(kwargs)}

    def run() -> None:
        # Looked up now: arrays of JAX are replaced by copies for a run.
        namespace["returned"] = namespace["function"](*namespace["args"], **namespace["kwargs"])

    return Program(namespace, {"function", "args", "kwargs"}, run)


def _names(tree: ast.Module, namespace: dict[str, Any]) -> set[str]:
    def inner(name: str) -> set[str]:
        code = getattr(namespace.get(name), "__code__", None)
        if code is None or getattr(namespace[name], "__globals__", None) is not namespace:
            return set()
        return names_in(code)

    return names_read(tree, inner)


@contextmanager
def _no_output() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


@contextmanager
def _unseen() -> Iterator[None]:
    """Hide output, displays and plots of a cell."""
    from IPython.utils.capture import capture_output

    plots = sys.modules.get("matplotlib.pyplot")
    before = set(plots.get_fignums()) if plots is not None else set()
    try:
        with capture_output():
            yield
    finally:
        plots = sys.modules.get("matplotlib.pyplot")
        if plots is not None:
            with contextlib.suppress(Exception):
                for number in set(plots.get_fignums()) - before:
                    plots.close(number)
