"""The text of a cell, and changes of it: by the positions of its syntax tree, and checked by it.

A change is made in the text, so that everything else stays as it was written, and in the tree. It
is given only if the changed text has the changed tree.
"""

from __future__ import annotations

import ast
import copy
import difflib
import inspect
import io
import linecache
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

UNKNOWN = object()
"""The value of an expression that is not known without running it."""
_INDENT = 4 * " "
_CONTEXT = 2
"""Unchanged lines of a diff on each side of a change."""
POSTFIXED = (ast.Call, ast.Name, ast.Attribute, ast.Subscript)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BESIDE = {
    tokenize.NL,
    tokenize.COMMENT,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Position = tuple[int, int]
"""Line from 1, and column in characters from 0."""


class Piece(NamedTuple):
    """Text in place of that between two positions."""

    start: Position
    end: Position
    text: str


class Edit(NamedTuple):
    """A change of a source.

    Attributes
    ----------
    pieces : list of Piece
    node : AST
        The node of the tree that it changes.
    change : callable
        Makes the change in a copy of the node.
    """

    pieces: list[Piece]
    node: ast.AST
    change: Callable[[Any], object]


class Located(NamedTuple):
    """Changes of one source."""

    source: Source
    edits: list[Edit]


class Source:
    """The text of a cell with its syntax tree.

    Parameters
    ----------
    text : str
        As the person wrote it.
    namespace : mapping
        The variables of the notebook.
    python : str, optional
        The same where magics are calls; lines correspond.
    filename : str, optional
        Of the code that runs.

    Raises
    ------
    SyntaxError
        It is not Python, or lines do not correspond.
    """

    def __init__(
        self, text: str, namespace: Mapping[str, Any], python: str = "", filename: str = ""
    ) -> None:
        self.text = text
        self.filename = filename
        self._python = python or text
        self._lines = self._python.split("\n")
        self._namespace = namespace
        self.tree = ast.parse(self._python)
        # A magic that becomes several lines, or a cell magic.
        if len(self._python.rstrip("\n").split("\n")) != len(text.rstrip("\n").split("\n")):
            raise SyntaxError("the lines of the cell do not correspond to its Python")
        if "\r" in text or "\f" in text:
            raise SyntaxError("lines end in other ways than Python's")
        tokens = tokenize.generate_tokens(io.StringIO(self._python).readline)
        self._tokens = [token for token in tokens if token.type not in _BESIDE]
        self._local_names = set(self._names_of_functions())
        self._imports = dict(_imported(ast.walk(self.tree)))

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        parents = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                parents[child] = node
        return parents

    def calls(self) -> list[ast.Call]:
        """All calls."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]

    def value(self, node: ast.expr) -> Any:
        """The value of a name, or of an attribute of a module; `UNKNOWN` of anything else."""
        if isinstance(node, ast.Name):
            if node.id in self._local_names:
                return UNKNOWN
            if node.id in self._namespace:
                return self._namespace[node.id]
            return self._imports.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            return _member(self.value(node.value), node.attr)
        return UNKNOWN

    def name_of(self, value: object) -> str:
        """A name by which the cell has an object; empty if there is none."""
        # What a function imports, it has for itself.
        imports = dict(_imported(filter(_is_import, self.tree.body)))
        for names in (imports, self._namespace):
            for name, other in names.items():
                if other is value and not name.startswith("_") and name not in self._local_names:
                    return name
        return ""

    def stored(self, name: str) -> int:
        """The number of statements that bind a name."""
        return sum(each == name for each in bound(self.tree))

    def assignment(self, name: str) -> ast.Assign | None:
        """The statement that binds a name for the loops of the cell; None if that is not sure."""
        indices: list[int] = []
        for index, statement in enumerate(self.tree.body):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
                if isinstance(target, ast.Name) and target.id == name:
                    indices.append(index)
        if not indices or self.stored(name) != len(indices):
            return None
        if len(indices) > 1:
            before = self.tree.body[: indices[-1]]
            if not all(
                isinstance(each, (ast.Assign, ast.Import, ast.ImportFrom)) for each in before
            ):
                return None
        last = self.tree.body[indices[-1]]
        return last if isinstance(last, ast.Assign) else None

    def with_arguments(
        self, call: ast.Call, arguments: Mapping[str, str], function: Callable[..., Any]
    ) -> Edit | None:
        """Give a call keyword arguments, or other values to those that it has.

        Parameters
        ----------
        call : Call
        arguments : dict of str to str
            Expressions by name.
        function : callable
            What is called: a class, or an unbound method.
        """
        if any(isinstance(each, ast.Starred) for each in call.args):
            return None
        if any(keyword.arg is None for keyword in call.keywords):
            return None
        places = _positional(function)
        present: dict[str, ast.expr] = dict(zip(places, call.args, strict=False))
        present |= {str(keyword.arg): keyword.value for keyword in call.keywords}
        pieces = []
        added = {}
        for name, text in arguments.items():
            if name in present:
                value = present[name]
                pieces.append(Piece(self._start(value), self._end(value), text))
            else:
                added[name] = text
        if added:
            pieces += self._appended(call, [f"{name}={text}" for name, text in added.items()])

        def change(node: Any) -> None:
            for name, text in arguments.items():
                value = _expression(text)
                by_name = [keyword for keyword in node.keywords if keyword.arg == name]
                if by_name:
                    by_name[0].value = value
                elif name in present:
                    node.args[places.index(name)] = value
                else:
                    node.keywords.append(ast.keyword(name, value))

        return Edit(pieces, call, change)

    def _appended(self, call: ast.Call, texts: list[str]) -> list[Piece]:
        """Text of further arguments, in lines of their own where the last one has such."""
        close = self._index_of_end(call)
        before = self._tokens[close - 1]
        if before.string == "(":
            return [Piece(before.end, before.end, ", ".join(texts))]
        last = max([*call.args, *call.keywords], key=self._start)
        line, column = self._start(last)
        indent = self._lines[line - 1][:column]
        if indent.strip() or self._tokens[close].start[0] == before.end[0]:
            text = ", ".join(texts)
            space = " " if before.string == "," else ", "
            return [Piece(before.end, before.end, space + text)]
        row = before.end[0]
        line_end = (row, len(self._lines[row - 1]))
        if before.string == ",":
            return [Piece(line_end, line_end, "".join(f"\n{indent}{text}," for text in texts))]
        lines = ",".join(f"\n{indent}{text}" for text in texts)
        if before.end == line_end:
            return [Piece(line_end, line_end, f",{lines}")]
        # A comment stands after the last argument.
        return [Piece(before.end, before.end, ","), Piece(line_end, line_end, lines)]

    def is_free(self, name: str) -> bool:
        """Return whether neither the cell nor the notebook has a variable of this name."""
        return not self.stored(name) and name not in self._namespace

    def after(self, statement: ast.stmt, code: str) -> Edit | None:
        """Put statements into the lines after another one of the cell itself."""
        if statement not in self.tree.body or statement.col_offset:
            return None
        row, end = self._end(statement)
        if any(token.start[0] == row and token.start[1] >= end for token in self._tokens):
            # Another one stands in the same line.
            return None
        line_end = (row, len(self._lines[row - 1]))
        index = self.tree.body.index(statement)

        def change(tree: Any) -> None:
            # By the statement, as others may have been put before it.
            at = _index(tree.body, index)
            tree.body[at:at] = _new(code)

        return Edit([Piece(line_end, line_end, f"\n{code}")], self.tree, change)

    def before(self, statement: ast.stmt, code: str) -> Edit | None:
        """Put statements into the lines above another one, with its indentation."""
        row, column = statement.lineno, statement.col_offset
        indent = self._lines[row - 1][:column]
        if indent.strip():
            # Another one stands before it in the same line.
            return None
        position = row, column
        lines = [f"{indent}{line}\n" for line in code.split("\n")]

        def change(tree: Any) -> None:
            for parent in list(ast.walk(tree)):
                for block in _blocks(parent):
                    for index, each in enumerate(block):
                        is_new = getattr(each, "is_new", False)
                        if not is_new and (each.lineno, each.col_offset) == position:
                            block[index:index] = _new(code)
                            return

        return Edit([Piece((row, 0), (row, 0), "".join(lines))], self.tree, change)

    def outermost_loop(self, node: ast.AST) -> ast.For | ast.While | None:
        """The outermost loop around a node, in the function that it stands in."""
        path: list[ast.AST] = []
        within: ast.AST | None = node
        while within is not None:
            path.append(within)
            within = None if isinstance(within, _SCOPES) else self._parents.get(within)
        loops = [each for each in path if isinstance(each, (ast.For, ast.While))]
        return loops[-1] if loops else None

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self._parents[node]
        return node

    def removed(self, statement: ast.stmt) -> Edit | None:
        """Leave out a statement that is not the only one of its block."""
        parent = self._parents[statement]
        if not self._is_alone(statement):
            return None
        if any(block == [statement] for block in _blocks(parent)):
            return None
        return self._removed(parent, statement)

    def at_begin(self, code: str, name: str) -> Edit | None:
        """Put statements that use a variable below the imports at the begin of the cell.

        None if the cell binds the variable later than that.
        """
        imports = list(takewhile(_is_import, self.tree.body))
        binds = sum(each == name for node in imports for each in bound(node))
        if self.stored(name) != binds or len(imports) == len(self.tree.body):
            return None
        if imports:
            return self.after(imports[-1], code)
        first = self.tree.body[0]
        row = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", []))])

        def change(tree: Any) -> None:
            tree.body[:0] = _new(code)

        return Edit([Piece((row, 0), (row, 0), f"{code}\n")], self.tree, change)

    def decorated(self, function: ast.FunctionDef, decorator: str) -> Edit | None:
        """Put a decorator above a function that has none."""
        if function.decorator_list:
            return None
        row, column = function.lineno, function.col_offset
        if self._lines[row - 1][:column].strip():
            return None
        indent = self._lines[row - 1][:column]

        def change(node: Any) -> None:
            node.decorator_list.insert(0, _expression(decorator))

        return Edit([Piece((row, 0), (row, 0), f"{indent}@{decorator}\n")], function, change)

    def without(self, line: int, is_left_out: Callable[[ast.expr], bool]) -> Edit | None:
        """Leave out the expression that is the only statement of a line, if it is of this kind."""
        for parent in ast.walk(self.tree):
            for block in _blocks(parent):
                for statement in block:
                    if statement.lineno != line or not isinstance(statement, ast.Expr):
                        continue
                    if is_left_out(statement.value) and self._is_alone(statement):
                        return self._removed(parent, statement)
        return None

    def _is_alone(self, statement: ast.stmt) -> bool:
        """Return whether nothing else stands in the lines of a statement."""
        start, end = self._start(statement), self._end(statement)
        rows = range(start[0], end[0] + 1)
        return not any(
            token.start[0] in rows and not start <= token.start < end for token in self._tokens
        )

    def _removed(self, parent: ast.AST, statement: ast.stmt) -> Edit:
        row, last = statement.lineno, self._end(statement)[0]
        begin = (row - 1, len(self._lines[row - 2]))
        piece = Piece(begin, (last, len(self._lines[last - 1])), "")
        if row == 1:
            piece = Piece((1, 0), (last + 1, 0), "")
        place = statement.lineno, statement.col_offset

        def change(copied: Any) -> None:
            for block in _blocks(copied):
                block[:] = [each for each in block if (each.lineno, each.col_offset) != place]

        return Edit([piece], parent, change)

    def with_method(self, statement: ast.Assign, call: str) -> Edit | None:
        """Call a method of what a statement assigns: ``.prefetch(4)``."""
        if not isinstance(statement.value, POSTFIXED):
            return None
        value_end = self._end(statement.value)

        def change(node: Any) -> None:
            outer = _expression(f"x{call}")
            outer.func.value = node.value
            node.value = outer

        return Edit([Piece(value_end, value_end, call)], statement, change)

    def with_method_before(self, call: ast.Call, method: str) -> Edit | None:
        """Call another method before that of a chain: ``.cache()`` before ``.repeat()``."""
        if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, POSTFIXED):
            return None
        end = self._end(call.func.value)

        def change(node: Any) -> None:
            outer = _expression(f"x{method}")
            outer.func.value = node.func.value
            node.func.value = outer

        return Edit([Piece(end, end, method)], call, change)

    def in_block(self, call: ast.Call, header: str) -> Edit | None:
        """Put the simple statement that makes a call into a block: `with …:`."""
        for parent in ast.walk(self.tree):
            for block in _blocks(parent):
                for statement in block:
                    is_simple = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr))
                    if is_simple and any(node is call for node in ast.walk(statement)):
                        return self._moved(parent, statement, header)
        return None

    def _moved(self, parent: ast.AST, statement: ast.stmt, header: str) -> Edit | None:
        if not self._is_alone(statement):
            return None
        first, column = self._start(statement)
        indent = self._lines[first - 1][:column]
        pieces = [Piece((first, 0), (first, 0), f"{indent}{header}\n{_INDENT}")]
        for row in range(first + 1, self._end(statement)[0] + 1):
            pieces.append(Piece((row, 0), (row, 0), _INDENT))
        position = statement.lineno, statement.col_offset

        def change(copied: Any) -> None:
            for block in _blocks(copied):
                for index, each in enumerate(block):
                    is_new = getattr(each, "is_new", False)
                    if (each.lineno, each.col_offset) == position and not is_new:
                        outer: Any = ast.parse(f"{header}\n pass").body[0]
                        outer.body = [each]
                        block[index] = outer

        return Edit(pieces, parent, change)

    def with_other_arguments(self, call: ast.Call, text: str) -> Edit:
        """Call the same function with other arguments, written as ``a, b=c``."""
        expression = _expression(f"f({text})")
        begin = self._end(call.func)
        end = self._end(call)

        def change(node: Any) -> None:
            node.args, node.keywords = expression.args, expression.keywords

        return Edit([Piece(begin, end, f"({text})")], call, change)

    def with_other(self, node: ast.expr, text: str) -> Edit:
        """Put another name, or another call, in place of a call."""
        parent = self._parents[node]

        def change(copied: Any) -> None:
            value = _expression(text)
            for name, child in ast.iter_fields(parent):
                if child is node:
                    setattr(copied, name, value)
                elif isinstance(child, list) and node in child:
                    getattr(copied, name)[child.index(node)] = value

        return Edit([Piece(self._start(node), self._end(node), text)], parent, change)

    def method_called(self, call: ast.Call, method: str) -> Edit:
        """Call a method of what a call returns: ``.float()``."""
        end = self._end(call)
        postfix = f".{method}()"

        def change(node: Any) -> None:
            inner = ast.Call(node.func, node.args, node.keywords)
            node.func = ast.Attribute(inner, method, ast.Load())
            node.args, node.keywords = [], []

        return Edit([Piece(end, end, postfix)], call, change)

    def swapped(self, call: ast.Call, inner: str, outer: str) -> Edit | None:
        """Write other methods in place of the last two of a chain of calls.

        Parameters
        ----------
        call : Call
            Of the last one, of what the one before it returns.
        inner, outer : str
            Names with arguments, as ``batch(32)``.
        """
        if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Call):
            return None
        first = call.func.value
        if not isinstance(first.func, ast.Attribute):
            return None
        pieces = []
        for each, text in ((first, inner), (call, outer)):
            assert isinstance(each.func, ast.Attribute)
            line, column = self._end(each.func)
            pieces.append(Piece((line, column - len(each.func.attr)), self._end(each), text))

        def change(node: Any) -> None:
            for copied, text in ((node.func.value, inner), (node, outer)):
                other = _expression(f"x.{text}")
                copied.func.attr = other.func.attr
                copied.args, copied.keywords = other.args, other.keywords

        return Edit(pieces, call, change)

    def text_of(self, node: ast.AST) -> str:
        """An expression as it is written."""
        return ast.get_source_segment(self._python, node) or ""

    def replaced(self, node: ast.Constant, text: str) -> Edit:
        """Put another constant in place of one."""

        def change(copied: Any) -> None:
            copied.value = ast.literal_eval(text)

        return Edit([Piece(self._start(node), self._end(node), text)], node, change)

    def changed(self, edits: Iterable[Edit]) -> str:
        """The text with changes; empty if they are not what the tree says."""
        edits = list(edits)
        pieces = sorted({piece for edit in edits for piece in edit.pieces}, key=_order)
        if not pieces or any(a.end > b.start for a, b in pairwise(pieces)):
            return ""
        raw = self.text.split("\n")
        for piece in pieces:
            for row in range(piece.start[0], piece.end[0] + 1):
                if row > len(raw) or raw[row - 1] != self._lines[row - 1]:
                    # The line holds a magic.
                    return ""
        try:
            tree = ast.parse(_applied(self._lines, pieces))
        except SyntaxError:
            return ""
        return _applied(raw, pieces) if _same(tree, self._changed_tree(edits)) else ""

    def _changed_tree(self, edits: list[Edit]) -> ast.Module:
        nodes = list(ast.walk(self.tree))
        tree = copy.deepcopy(self.tree)
        copies = list(ast.walk(tree))
        for edit in edits:
            index = next(i for i, node in enumerate(nodes) if node is edit.node)
            edit.change(copies[index])
        return tree

    def _names_of_functions(self) -> Iterator[str]:
        """Names that are arguments or variables of functions of the cell."""
        for node in ast.walk(self.tree):
            if not isinstance(node, _SCOPES):
                continue
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                yield argument.arg
            for argument in filter(None, (arguments.vararg, arguments.kwarg)):
                yield argument.arg
            body = node.body if isinstance(node.body, list) else [node.body]
            for statement in body:
                for name in ast.walk(statement):
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                        yield name.id

    def _start(self, node: Any) -> Position:
        return node.lineno, self._characters(node.lineno, node.col_offset)

    def _end(self, node: Any) -> Position:
        return node.end_lineno, self._characters(node.end_lineno, node.end_col_offset)

    def _characters(self, line: int, column: int) -> int:
        """A column in characters of one in bytes."""
        return len(self._lines[line - 1].encode()[:column].decode())

    def _index_of_end(self, node: ast.expr) -> int:
        end = self._end(node)
        return next(i for i, token in enumerate(self._tokens) if token.end == end)


def of_cell(filename: str, namespace: Mapping[str, Any]) -> Source | None:
    """The cell whose code has this file name; None if it is a file, or has magics."""
    # The files of cells do not exist.
    if Path(filename).exists():
        return None
    text = "".join(linecache.getlines(filename))
    if not text or "get_ipython()" in text:
        return None
    try:
        return Source(text, namespace, filename=filename)
    except SyntaxError:
        return None


def of_function(function: FunctionType) -> tuple[Source, ast.FunctionDef] | None:
    """The cell that defines a function, and its definition; None if it is in no cell."""
    code = function.__code__
    source = of_cell(code.co_filename, function.__globals__)
    if source is None:
        return None
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        if (node.name, node.lineno) == (code.co_name, code.co_firstlineno):
            return source, node
    return None


def diff(before: str, after: str) -> str:
    """Lines that differ, and some around them: ``-`` removed, ``+`` added, a blank unchanged."""
    lines: list[str] = []
    unified = difflib.unified_diff(
        before.rstrip("\n").split("\n"), after.rstrip("\n").split("\n"), lineterm="", n=_CONTEXT
    )
    for line in list(unified)[2:]:
        if not line.startswith("@@"):
            lines.append(line)
        elif lines:
            lines.append(" …")
    return "\n".join(lines)


def _applied(lines: Sequence[str], pieces: Sequence[Piece]) -> str:
    result = list(lines)
    for (first, left), (last, right), text in reversed(pieces):
        joined = result[first - 1][:left] + text + result[last - 1][right:]
        result[first - 1 : last] = [joined]
    return "\n".join(result)


def _same(tree: ast.Module, other: ast.Module) -> bool:
    return ast.dump(tree) == ast.dump(other)


def _expression(text: str) -> Any:
    return ast.parse(text, mode="eval").body


def _new(code: str) -> list[ast.stmt]:
    statements = ast.parse(code).body
    for statement in statements:
        vars(statement)["is_new"] = True
    return statements


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Any]]:
    """The names and values that imports among some nodes bind."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or name, sys.modules.get(name, UNKNOWN)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = sys.modules.get(node.module or "", UNKNOWN)
            for alias in node.names:
                yield alias.asname or alias.name, _member(module, alias.name)


def _is_import(statement: ast.AST) -> bool:
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """The lists of statements of a node."""
    blocks = []
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            blocks.append(block)
    return blocks


def _order(piece: Piece) -> tuple[Position, Position, bool, str]:
    # At the end of a line, its own text comes before the lines below it.
    return piece.start, piece.end, piece.text.startswith("\n"), piece.text


def _index(body: list[ast.stmt], index: int) -> int:
    """The place after a statement that was the one of this index before others were put in."""
    olds = [i for i, each in enumerate(body) if not getattr(each, "is_new", False)]
    return olds[index] + 1


def _member(owner: Any, name: str) -> Any:
    """An attribute of a module, without what a module computes for it."""
    if not isinstance(owner, ModuleType):
        return UNKNOWN
    members = vars(owner)
    if name in members:
        return members[name]
    return sys.modules.get(f"{owner.__name__}.{name}", UNKNOWN)


def _positional(function: Callable[..., Any]) -> list[str]:
    """The names of arguments that may be given by their place."""
    parameters = list(inspect.signature(function).parameters.values())
    if not isinstance(function, type):
        del parameters[0]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def bound(tree: ast.AST) -> Iterator[str]:
    """The names that are bound anywhere, as often as they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
