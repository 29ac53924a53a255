"""Cells that are recorded run with their loops rewritten, so that each iteration is known."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from nbprof.capture.shield import shielded

if TYPE_CHECKING:
    from nbprof.capture.loop_code import Text

_LOOPS = "nbprof.capture.loops"
"""Imported with the first recording."""

_RECORDS = ("profile", "start", "capture")
"""Functions of nbprof by which a cell records a part of itself."""


class RunningCell(Protocol):
    """The cell that runs, and the shell around it."""

    runs_statement: bool

    @property
    def namespace(self) -> dict[str, Any]:
        """The notebook's variables."""

    @property
    def running_text(self) -> str:
        """The text of the cell."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """Execution counts of cells, by their file names."""

    def transformed(self, text: str) -> str:
        """A cell's text as Python."""


class LoopTransformer:
    """An AST transformer of IPython, which changes only cells that are recorded.

    Parameters
    ----------
    magics : RunningCell
    """

    def __init__(self, magics: RunningCell) -> None:
        self._magics = magics

    def visit(self, tree: ast.AST) -> ast.AST:
        """The code of a cell, rewritten if it is recorded; never raises.

        Ctrl-C interrupts the cell, which has not begun yet.
        """
        with shielded(soon=True):
            try:
                if isinstance(tree, ast.Module) and self._is_recorded(tree):
                    return self._rewritten(tree)
            except Exception:
                # The cell runs unchanged, without times of its loops.
                return tree
            return tree

    def _is_recorded(self, tree: ast.Module) -> bool:
        loops = sys.modules.get(_LOOPS)
        if self._magics.runs_statement or (loops is not None and loops.active()) or _begins(tree):
            return True
        namespace = self._magics.namespace
        nbprof = sys.modules.get("nbprof")
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in _RECORDS
                and isinstance(node.value, ast.Name)
            ):
                name = node.value.id
                if name == "nbprof" or (nbprof is not None and namespace.get(name) is nbprof):
                    return True
        return False

    def _rewritten(self, tree: ast.Module) -> ast.Module:
        # Late: most notebooks that have the extension in their settings record nothing.
        from nbprof.capture import loops
        from nbprof.capture.loop_functions import followed

        began = time.perf_counter_ns()
        text = self._text(tree)
        changed = followed(tree, text, self._magics.namespace, self._magics.numbers)
        loops.leave_out(time.perf_counter_ns() - began)
        return changed

    def _text(self, tree: ast.Module) -> Text:
        """The text of the cell, and the offset of the code below its magics."""
        from nbprof.capture.loop_code import Text

        raw = self._magics.running_text
        lines = raw.split("\n")
        recorded = ast.dump(tree)
        for offset in range(len(lines)):
            text = "\n".join(lines[offset:])
            try:
                if ast.dump(ast.parse(self._magics.transformed(text))) == recorded:
                    return Text(raw, offset)
            except (SyntaxError, ValueError):
                pass
            if not lines[offset].startswith("%%") and lines[offset].strip():
                break
        return Text()


def _begins(tree: ast.Module) -> bool:
    """Return whether the code begins with the line that ``%%nbprof`` becomes."""
    first = tree.body[0] if tree.body else None
    call = first.value if isinstance(first, ast.Expr) else None
    if not isinstance(call, ast.Call) or not call.args:
        return False
    return isinstance(call.args[0], ast.Constant) and call.args[0].value == "nbprof_begin"


def install(shell: Any, magics: RunningCell) -> Any:
    """Rewrite the cells of a shell; returns the transformer for `remove`."""
    transformer = LoopTransformer(magics)
    shell.ast_transformers.append(transformer)
    return transformer


def remove(shell: Any, transformer: Any) -> None:
    """Stop rewriting its cells."""
    if transformer in shell.ast_transformers:
        shell.ast_transformers.remove(transformer)
