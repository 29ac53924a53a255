"""Rewrites loops in the code of cells so that `nbprof.capture.loops` sees their iterations.

Only loops in plain code are rewritten: in the cell itself, and in functions that cells define and
the cell calls by name. Functions that are decorated, or handed to something as values, may be
compiled by it, and are left alone, as are the functions that they call.
"""

from __future__ import annotations
import __future__

import ast
import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from nbprof.capture import loops
from nbprof.capture.loops import Site

_CONSUMERS = {
    "all",
    "any",
    "dict",
    "frozenset",
    "list",
    "max",
    "min",
    "set",
    "sorted",
    "sum",
    "tuple",
}
"""Functions that run a generator expression to its end while they are called."""
_FLAGS = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class Text:
    """The text of code and its position in the notebook.

    Parameters
    ----------
    source : str
        The text of the cell.
    offset : int
        Lines of the cell above the code's first one.
    number : int
        The execution count of the cell; 0 of the recorded one.
    """

    source: str = ""
    offset: int = 0
    number: int = 0

    def site(self, node: ast.For | ast.While | ast.AsyncFor | ast.expr, kind: str) -> int:
        """Announce a loop; returns its number."""
        return loops.add_site(Site(node.lineno + self.offset, self._head(node), kind, self.number))

    def site_inside(self, generator: ast.comprehension, node: ast.expr) -> int:
        """Announce a further `for` of a comprehension; returns its number."""
        target, iterable = self._segment(generator.target), self._segment(generator.iter)
        line = getattr(generator.target, "lineno", node.lineno)
        head = f"for {target} in {iterable}"
        return loops.add_site(Site(line + self.offset, head, "comprehension", self.number))

    def _head(self, node: ast.For | ast.While | ast.AsyncFor | ast.expr) -> str:
        if isinstance(node, ast.expr):
            return self._segment(node)
        if isinstance(node, ast.While):
            return f"while {self._segment(node.test)}:"
        word = "async for" if isinstance(node, ast.AsyncFor) else "for"
        return f"{word} {self._segment(node.target)} in {self._segment(node.iter)}:"

    def _segment(self, node: ast.expr) -> str:
        """The text of an expression as it was written, or as Python formats it if unknown."""
        end = node.end_lineno
        lines = self.source.split("\n")
        if end is None or node.lineno != end or end + self.offset > len(lines):
            return ast.unparse(node)
        line = lines[end + self.offset - 1].encode()
        text = line[node.col_offset : node.end_col_offset].decode(errors="replace")
        try:
            same = ast.dump(ast.parse(text, mode="eval").body) == ast.dump(_loaded(node))
        except (SyntaxError, ValueError):
            same = False
        return text if same else ast.unparse(node)


def _loaded(node: ast.expr) -> ast.expr:
    """A target as the expression with the same text."""
    if isinstance(getattr(node, "ctx", None), ast.Store):
        node = copy.deepcopy(node)
        for each in ast.walk(node):
            if isinstance(getattr(each, "ctx", None), ast.Store):
                each.ctx = ast.Load()  # type: ignore[attr-defined]
    return node


class Rewriter(ast.NodeTransformer):
    """Rewrites the loops of one scope, and of the comprehensions in it."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements with their loops rewritten."""
        return [self.visit(statement) for statement in statements]

    def visit(self, node: ast.AST) -> Any:
        """Inner scopes are left as they are."""
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        """A `for` loop gets its items from `loops`."""
        if _yields(node) or _marks_steps(node.iter) or _waits_for_threads(node):
            return self.generic_visit(node)
        number = self._text.site(node, "for")
        self.generic_visit(node)
        node.iter = _items(number, node.iter)
        return node

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        """So does an `async for` loop; its body first reports that the item has come."""
        if _yields(node) or _marks_steps(node.iter):
            return self.generic_visit(node)
        number = self._text.site(node, "for")
        self.generic_visit(node)
        node.iter = _located(_call(loops.ASYNC_LOOP, number, node.iter), node.iter)
        node.body.insert(0, _located(ast.Expr(_call(loops.CAME, number)), node.target))
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        """A `while` loop becomes a `for` loop without a target, which a false condition leaves."""
        if _yields(node) or any(map(_jumps, node.orelse)):
            return self.generic_visit(node)
        number = self._text.site(node, "while")
        self.generic_visit(node)
        body = node.body
        if not (isinstance(node.test, ast.Constant) and node.test.value and not node.orelse):
            ended: list[ast.stmt] = [ast.Expr(_call(loops.OVER, number)), *node.orelse, ast.Break()]
            body = [ast.If(node.test, body, ended)]
        target = ast.Tuple([], ast.Store())
        turns = ast.For(target, _call(loops.WHILE_LOOP, number), body, [])
        located: ast.AST = _located(turns, node)
        return located

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        """A comprehension gets the items of its first `for` from `loops`."""
        return self._comprehension(node)

    visit_SetComp = visit_DictComp = visit_ListComp  # type: ignore[assignment]  # noqa: N815

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """A generator that is not consumed at once runs between other code: it stays as it is."""
        first = node.generators[0]
        first.iter = self.visit(first.iter)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite a generator or `map` that is the only argument of a function that consumes it."""
        if len(node.args) != 1 or node.keywords or not _consumes(node.func):
            return self.generic_visit(node)
        argument = node.args[0]
        if isinstance(argument, ast.GeneratorExp):
            node.func = self.visit(node.func)
            self._comprehension(argument)
            return node
        if isinstance(argument, ast.Call) and _maps(argument):
            node.func = self.visit(node.func)
            self._map(argument)
            return node
        return self.generic_visit(node)

    def _map(self, node: ast.Call) -> None:
        """`map` gets the items of its first iterable from `loops`, if it is Python's own."""
        first = node.args[1]
        number = None if _marks_steps(first) else self._text.site(node, "comprehension")
        self.generic_visit(node)
        if number is None:
            return
        first = node.args[1]
        is_builtin = ast.Compare(
            ast.Name("map", ast.Load()), [ast.Is()], [ast.Name(loops.MAP, ast.Load())]
        )
        node.args[1] = _located(ast.IfExp(is_builtin, _items(number, first), first), first)

    def _comprehension(self, node: Any) -> Any:
        first, *inner = node.generators
        if first.is_async or _marks_steps(first.iter) or _awaits(node):
            return self.generic_visit(node)
        numbers = [self._text.site(node, "comprehension")]
        for generator in inner:
            numbers.append(self._text.site_inside(generator, node))
        self.generic_visit(node)
        for number, generator in zip(numbers, node.generators, strict=True):
            generator.iter = _items(number, generator.iter)
        return node


def _consumes(function: ast.expr) -> bool:
    """Return whether a function runs a generator to its end: `sum`, or `join` of a text."""
    if isinstance(function, ast.Name):
        return function.id in _CONSUMERS
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "join"
        and isinstance(function.value, ast.Constant)
    )


def _maps(call: ast.Call) -> bool:
    """Return whether a call is ``map(function, iterable)``."""
    if not isinstance(call.func, ast.Name) or call.func.id != "map":
        return False
    if len(call.args) != 2 or call.keywords:
        return False
    return not any(isinstance(argument, ast.Starred) for argument in call.args)


_WAITS = {"join", "wait"}
"""Methods of threads, processes and events that wait for the work of others."""


def _waits_for_threads(node: ast.For) -> bool:
    """Return whether the iterations are no work: ``for thread in threads: thread.join()``."""
    if len(node.body) != 1 or not isinstance(node.target, ast.Name):
        return False
    statement = node.body[0]
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    method = statement.value.func
    if not isinstance(method, ast.Attribute) or method.attr not in _WAITS:
        return False
    return isinstance(method.value, ast.Name) and method.value.id == node.target.id


def _located(node: Any, source: ast.AST) -> Any:
    """The node, whose parts without a location get that of another node."""
    ast.copy_location(node, source)
    for part in ast.walk(node):
        if not hasattr(part, "lineno") and "lineno" in part._attributes:
            ast.copy_location(part, source)
    return node


def _call(name: str, number: int, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), *arguments], [])


def _items(number: int, iterable: ast.expr) -> ast.expr:
    """The iterable of a rewritten loop; its ``iter()`` fails as the loop itself would."""
    iterator = ast.Call(ast.Name(loops.ITER, ast.Load()), [iterable], [])
    items: ast.expr = _located(_call(loops.LOOP, number, iterator), iterable)
    return items


def _in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all nodes below it that belong to the same function."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield from _in_scope(child)


def _yields(node: ast.AST) -> bool:
    """Return whether a generator pauses in a loop, so that other code runs in between."""
    return any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in _in_scope(node))


def _awaits(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Await) or getattr(part, "is_async", 0) for part in _in_scope(node)
    )


def _jumps(node: ast.AST) -> bool:
    """Return whether a statement may leave or continue the loop around it."""
    if isinstance(node, (ast.Break, ast.Continue)):
        return True
    if isinstance(node, (*_SCOPES, ast.expr)):
        return False
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return any(map(_jumps, node.orelse))
    return any(map(_jumps, ast.iter_child_nodes(node)))


def _marks_steps(iterable: ast.expr) -> bool:
    """Return whether a loop runs over ``nbprof.steps(...)``, whose iterations are steps."""
    for node in ast.walk(iterable):
        if isinstance(node, ast.Call) and _called_name(node.func) == "steps":
            return True
    return False


def _called_name(function: ast.expr) -> str:
    """The name of a called function or method; "" if it is another expression."""
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


# Functions of plain code that the cell calls.


@dataclass
class Uses:
    """Names that code uses."""

    called: set[str] = field(default_factory=set)
    """Functions and methods that it calls."""
    held: set[str] = field(default_factory=set)
    """Names that it uses otherwise, or in a call that something may compile."""

    def add(self, other: Uses) -> None:
        """Add the names that other code uses."""
        self.called |= other.called
        self.held |= other.held


class _UseCollector(ast.NodeVisitor):
    """Collects the names that code uses.

    Parameters
    ----------
    plain : set of int
        Identities of the nodes of functions and classes that are plain code.
    """

    def __init__(self, plain: set[int]) -> None:
        self.uses = Uses()
        self._plain = plain
        self._opaque = 0

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = _called_name(function)
        if name and self._opaque:
            self.uses.held.add(name)
        elif name:
            self.uses.called.add(name)
        if isinstance(function, ast.Attribute):
            self.visit(function.value)
        elif not name:
            self.visit(function)
        for argument in (*node.args, *node.keywords):
            self.visit(argument)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.uses.held.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.uses.held.add(node.attr)
        self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope(node)

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def _scope(self, node: Any) -> None:
        plain = id(node) in self._plain
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        for part in ast.iter_child_nodes(node):
            # To derive a class from another one does not use the other one.
            if part in bases and isinstance(part, ast.Name):
                continue
            self._opaque += not plain
            self.visit(part)
            self._opaque -= not plain


def uses_of(function: Any) -> Uses:
    """The names that the code of a plain function uses."""
    collector = _UseCollector({id(function)})
    collector.visit(function)
    return collector.uses


_DISTRIBUTES = {
    "Parallel",
    "Pool",
    "Process",
    "ProcessPoolExecutor",
    "cloudpickle",
    "dask",
    "delayed",
    "dill",
    "joblib",
    "notebook_launcher",
    "pickle",
    "ray",
    "remote",
    "sparkContext",
    "spawn",
    "start_processes",
}
"""Names that send code to other processes, which do not have the builtins of `loops`."""

Position = tuple[int, int]
"""Line and column of a definition."""


def _position(node: Any) -> Position:
    return node.lineno, node.col_offset


@dataclass(frozen=True)
class Definition:
    """A function or class at the top level of a cell, or a method of such a class."""

    node: Function | ast.ClassDef
    owner: ast.ClassDef | None = None

    @property
    def plain(self) -> bool:
        """True if its text allows it to be plain code."""
        node = self.node
        if node.decorator_list:
            return False
        if isinstance(node, ast.ClassDef):
            return not node.keywords and all(isinstance(base, ast.Name) for base in node.bases)
        special = node.name.startswith("__") and node.name.endswith("__")
        return self.owner is None or not special or node.name == "__init__"


def definitions(tree: ast.Module) -> list[Definition]:
    """Functions, classes and methods of a cell, in the order of its text, without nested ones."""
    result = []
    for node in _defined_in(tree):
        result.append(Definition(node))
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    result.append(Definition(statement, node))
    return result


def _defined_in(node: ast.AST) -> Iterator[Any]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _defined_in(child)


class Cell:
    """The code of a cell, and its definitions that are plain code.

    Parameters
    ----------
    tree : ast.Module
        It is not changed.
    text : Text
    """

    def __init__(self, tree: ast.Module, text: Text) -> None:
        self.tree = tree
        self.text = text
        self.definitions = definitions(tree)
        self._codes: dict[str, dict[tuple[str, int], CodeType]] = {}
        self._plain_codes: set[CodeType] | None = None
        self.plain: set[Position] = set()
        self.uses = self.settle(set())

    def settle(self, held: set[str]) -> Uses:
        """Find the definitions that are plain code, and return the uses of names.

        Parameters
        ----------
        held : set of str
            Names that other code uses as values.
        """
        plain = {_position(entry.node) for entry in self.definitions if entry.plain}
        while True:
            definitions = [entry for entry in self.definitions if _position(entry.node) in plain]
            collector = _UseCollector({id(entry.node) for entry in definitions})
            collector.visit(self.tree)
            all_held = collector.uses.held | held
            classes = {"object"}
            for entry in definitions:
                if isinstance(entry.node, ast.ClassDef):
                    classes.add(entry.node.name)
            remaining = set()
            for entry in definitions:
                if self._stays_plain(entry, plain, all_held, classes):
                    remaining.add(_position(entry.node))
            if remaining == plain:
                self.plain, self.uses = plain, collector.uses
                return collector.uses
            plain = remaining

    @staticmethod
    def _stays_plain(
        definition: Definition, plain: set[Position], held: set[str], classes: set[str]
    ) -> bool:
        node = definition.node
        if node.name in held:
            return False
        if definition.owner is not None and _position(definition.owner) not in plain:
            return False
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        return all(isinstance(base, ast.Name) and base.id in classes for base in bases)

    @property
    def distributes(self) -> bool:
        """True if it may send code to other processes."""
        return any(not _DISTRIBUTES.isdisjoint(_names_of(node)) for node in ast.walk(self.tree))

    def changes(self, defined: Any) -> list[tuple[FunctionType, CodeType]]:
        """The rewritten code of a function that the cell has defined, or of methods of a class."""
        candidates = vars(defined).values() if isinstance(defined, type) else [defined]
        changes = []
        for function in candidates:
            code = self._code(function) if type(function) is FunctionType else None
            if code is not None:
                changes.append((function, code))
        return changes

    def has(self, code: CodeType) -> bool:
        """Return whether the current text compiles to this code.

        The file of a module may have changed since it was imported.
        """
        if self._plain_codes is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compiled = compile(self.tree, code.co_filename, "exec", dont_inherit=True)
            self._plain_codes = set(_codes_in(compiled))
        return code in self._plain_codes

    def _code(self, function: FunctionType) -> CodeType | None:
        original = function.__code__
        if hasattr(function, "__wrapped__"):
            return None
        if original.co_filename not in self._codes:
            self._codes[original.co_filename] = self._compiled(
                original.co_filename, original.co_flags & _FLAGS
            )
        code = self._codes[original.co_filename].get((original.co_name, original.co_firstlineno))
        if code is None or code.co_code == original.co_code or _shape(code) != _shape(original):
            return None
        return code

    def _compiled(self, file: str, flags: int) -> dict[tuple[str, int], CodeType]:
        """The rewritten code of all plain functions, by name and first line."""
        tree = copy.deepcopy(self.tree)
        keys = set()
        for definition in definitions(tree):
            node = definition.node
            if isinstance(node, ast.ClassDef) or _position(node) not in self.plain:
                continue
            node.body = Rewriter(self.text).body(node.body)
            keys.add((node.name, node.lineno))
        ast.fix_missing_locations(tree)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(
                tree, file, "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
            )
        codes = {}
        for function in _codes_in(code):
            key = function.co_name, function.co_firstlineno
            if key in keys:
                codes[key] = function
        return codes


def _names_of(node: ast.AST) -> list[str]:
    """The names that a node itself uses or imports."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return node.name.split(".") if isinstance(node, ast.alias) else []


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)


def _shape(code: CodeType) -> tuple[Any, ...]:
    """The properties that the code of a function and its replacement must share."""
    qualified = getattr(code, "co_qualname", code.co_name)
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return (qualified, *counts, code.co_varnames, code.co_freevars, code.co_cellvars)


def rewritten(cell: Cell, *, functions: bool = True) -> ast.Module:
    """The code of a cell with its loops rewritten, and with its plain functions announced.

    Parameters
    ----------
    cell : Cell
    functions : bool
        Rewrite functions that it defines as well, while a recording runs.
    """
    tree = copy.deepcopy(cell.tree)
    number = loops.functions.add_variant(cell.changes) if functions else None
    tree.body = Rewriter(cell.text).body(tree.body)
    if number is None:
        return ast.fix_missing_locations(tree)
    for definition in definitions(tree):
        node = definition.node
        if definition.owner is None and _position(node) in cell.plain:
            node.decorator_list.append(_located(_call(loops.DEFINED, number), node))
    return ast.fix_missing_locations(tree)
