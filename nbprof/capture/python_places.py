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
        # From Python 3.11 on.
        self._positions = list(getattr(code, "co_positions", tuple)())

    def spot(self, offset: int) -> Spot:
        """The place of an offset of an outer frame, or of -2 minus that of an innermost one."""
        if offset < 0:
            return self.inner(-2 - offset)
        return self.outer(offset)

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
        if not 0 <= offset < len(self._bytes):
            return ""
        return dis.opname[self._bytes[offset]]

    def _line(self, offset: int) -> int:
        line = None
        if 0 <= offset // 2 < len(self._positions):
            line = self._positions[offset // 2][0]
        elif not self._positions:
            for start, end, number in self._code.co_lines():
                if start <= offset < end:
                    line = number
        return line or self._code.co_firstlineno

    def _line_of_loop(self, offset: int) -> int:
        """The line of the end of a pass: of its last call, else its only one, else of the loop."""
        start = self._targets.get(offset)
        if start is None or start >= offset:
            return self._line(offset)
        body = [step for step in self._steps if start < step.offset < offset]
        for step in reversed(body):
            if step.opname.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")):
                # The end of an inner loop.
                break
            if step.opname.startswith(_CALLS):
                return self._line(step.offset)
        header = self._line(start)
        lines = {self._line(step.offset) for step in body} - {header}
        if len(lines) == 1:
            return lines.pop()
        return header

    @cached_property
    def _steps(self) -> list[dis.Instruction]:
        return list(dis.get_instructions(self._code))

    @cached_property
    def _targets(self) -> dict[int, int]:
        """The offset that each jump leads to, by its own."""
        jumps = {*dis.hasjrel, *dis.hasjabs}
        targets = {}
        for step in self._steps:
            if step.opcode in jumps and isinstance(step.argval, int):
                targets[step.offset] = step.argval
        return targets

    @cached_property
    def _local(self) -> set[str]:
        code = self._code
        return {*code.co_varnames, *code.co_freevars, *code.co_cellvars}

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
        if not names or names[-1] not in {*self._code.co_names, *self._local}:
            return ""
        return self._resolved(names)[:MOST_TEXT]

    def _resolved(self, names: list[str]) -> str:
        """The name with its module, if it begins with a module or is an imported function."""
        text = ".".join(names)
        root = names[0]
        if not root:
            return f"{UNKNOWN}{text}"
        if root in self._local:
            return text
        # The method of dict: the class of the globals may override it with the program's code.
        value = dict.get(self._names, root, getattr(builtins, root, None))
        if type(value) is ModuleType:
            return ".".join([value.__name__, *names[1:]])
        if len(names) == 2:
            owner = _owner(value)
            if owner:
                return f"{owner}.{names[1]}"
        if type(value) in _FUNCTIONS and len(names) == 1:
            module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", root)
            named = isinstance(module, str) and isinstance(name, str)
            if named and module not in ("builtins", "__main__"):
                return f"{module}.{name}"
        return text


def _owner(value: object) -> str:
    """The class of an object, such as `torch.Tensor`; "" for Python's and the program's own."""
    kind = type(value)
    module, name = type.__getattribute__(kind, "__module__"), kind.__name__
    if not isinstance(module, str) or module in ("builtins", "__main__"):
        return ""
    return f"{module.partition('.')[0]}.{name}"


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
    lines = list(map(str.encode, linecache.getlines(path)[first - 1 : last]))
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
    if isinstance(node, ast.Name):
        names.append(node.id)
    elif names:
        names.append("")
    return names[::-1]
