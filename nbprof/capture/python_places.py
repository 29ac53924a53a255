"""The line, and the C function or operator, of a thread by the instruction of its frame.

A thread lets others run only between some instructions: where a function begins, at the end of a
pass of a loop and after a call, and inside calls that release the GIL. Time is therefore seen a
little later than it was spent, and counts here for the code before that point.
"""

from __future__ import annotations

import ast
import builtins
import dis
import linecache
from functools import cached_property
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from nbprof.core.sample_limits import MOST_TEXT

_MOST_CALL = 2_000
"""Characters of a call in the source that are parsed for the name of what it calls."""
_CALLS = ("CALL", "PRECALL")
UNKNOWN = "(…)"
"""Placeholder of an object without a name, in the name of a method of it."""
_FUNCTIONS = (FunctionType, BuiltinFunctionType, type)


class Spot(NamedTuple):
    """A place within a code object; `begins` where its function was only about to begin."""

    line: int
    call: str
    begins: bool = False


class Code:
    """The places of one code object.

    Parameters
    ----------
    code : CodeType
    names : dict
        Global variables of the code, to resolve `np.exp` to `numpy.exp`.
    """

    def __init__(self, code: CodeType, names: dict[str, Any]) -> None:
        self._code = code
        self._names = names
        self._bytes = code.co_code
        self._positions = list(code.co_positions()) if hasattr(code, "co_positions") else []

    def outer(self, offset: int) -> Spot:
        """The place of a frame that called another one."""
        return Spot(self._line(offset), self._call(offset))

    def inner(self, offset: int) -> Spot:
        """The place of an innermost frame."""
        name = self._operation(offset)
        if name == "RESUME":
            return Spot(self._line(offset), "", begins=True)
        if name == "JUMP_BACKWARD":
            return Spot(self._line_of_loop(offset), "")
        return Spot(self._line(offset), self._call(offset))

    def _operation(self, offset: int) -> str:
        return dis.opname[self._bytes[offset]] if 0 <= offset < len(self._bytes) else ""

    def _line(self, offset: int) -> int:
        if self._positions:
            line = (
                self._positions[offset // 2][0] if 0 <= offset // 2 < len(self._positions) else None
            )
        else:
            line = next(
                (line for start, end, line in self._code.co_lines() if start <= offset < end), None
            )
        return line or self._code.co_firstlineno

    def _line_of_loop(self, offset: int) -> int:
        """The line of the end of a pass: of its last call, else its only one, else of the loop."""
        passed = [step for step in self._steps if step.offset <= offset]
        start = next((step.target for step in reversed(passed) if step.offset == offset), None)
        if start is None or start >= offset:
            return self._line(offset)
        body = [step for step in passed if start < step.offset < offset]
        for step in reversed(body):
            if step.name.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")):
                # The end of an inner loop.
                break
            if step.name.startswith(_CALLS):
                return self._line(step.offset)
        header = self._line(start)
        lines = {self._line(step.offset) for step in body} - {header}
        return lines.pop() if len(lines) == 1 else header

    @cached_property
    def _steps(self) -> list[_Step]:
        jumps = {*dis.hasjrel, *dis.hasjabs}
        steps = []
        for step in dis.get_instructions(self._code):
            target = step.argval if step.opcode in jumps and isinstance(step.argval, int) else None
            steps.append(_Step(step.offset, step.opname, target))
        return steps

    def _call(self, offset: int) -> str:
        """The function that the instruction calls, if the source names it."""
        operation = self._operation(offset)
        if not operation.startswith((*_CALLS, "BINARY_OP")) or not self._positions:
            return ""
        node = _expression(self._code.co_filename, *self._positions[offset // 2])
        if isinstance(node, ast.BinOp) and operation.startswith("BINARY_OP"):
            return f"operator {_OPERATORS.get(type(node.op), '')}".strip()
        if not isinstance(node, ast.Call) or not operation.startswith(_CALLS):
            return ""
        names = _dotted(node.func)
        # The file may have changed since it was imported.
        variables = {
            *self._code.co_names,
            *self._code.co_varnames,
            *self._code.co_freevars,
            *self._code.co_cellvars,
        }
        if not names or names[-1] not in variables:
            return ""
        return self._resolved(names)[:MOST_TEXT]

    def _resolved(self, names: list[str]) -> str:
        """The name with its module, if it begins with a module or is an imported function."""
        text = ".".join(names)
        root = names[0]
        local = (
            root in self._code.co_varnames
            or root in self._code.co_freevars
            or root in self._code.co_cellvars
        )
        if not root:
            return f"{UNKNOWN}{text}"
        if local:
            return text
        # The method of dict: the class of the globals may override it with the program's code.
        value = dict.get(self._names, root, getattr(builtins, root, None))
        if type(value) is ModuleType:
            return ".".join([value.__name__, *names[1:]])
        if len(names) == 2 and (owner := _owner(value)):
            return f"{owner}.{names[1]}"
        if type(value) in _FUNCTIONS and len(names) == 1:
            module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", root)
            if (
                isinstance(module, str)
                and isinstance(name, str)
                and module not in ("builtins", "__main__")
            ):
                return f"{module}.{name}"
        return text


def _owner(value: object) -> str:
    """The class of an object, such as `torch.Tensor`; "" for Python's and the program's own."""
    kind = type(value)
    module, name = type.__getattribute__(kind, "__module__"), kind.__name__
    if not isinstance(module, str) or module in ("builtins", "__main__"):
        return ""
    return f"{module.partition('.')[0]}.{name}"


class _Step(NamedTuple):
    offset: int
    name: str
    target: int | None


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.MatMult: "@",
    ast.Div: "/",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.FloorDiv: "//",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def _expression(
    path: str, first: int | None, last: int | None, begin: int | None, end: int | None
) -> ast.expr | None:
    """The expression at a place of a source file; None where there is none."""
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [line.encode() for line in linecache.getlines(path)[first - 1 : last]]
    if len(lines) != last - first + 1:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    text = b"".join(lines).decode(errors="replace")
    if len(text) > _MOST_CALL:
        return None
    try:
        return ast.parse(f"({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _dotted(node: ast.expr) -> list[str]:
    """The parts of `np.linalg.qr`; the first one is empty where it is not a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) and not names:
        return []
    return [node.id if isinstance(node, ast.Name) else "", *reversed(names)]
