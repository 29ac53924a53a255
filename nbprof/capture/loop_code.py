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
    """Where code stands, for people.

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
        target, over = (
            self._segment(each, ast.unparse(each)) for each in (generator.target, generator.iter)
        )
        line = generator.target.lineno if hasattr(generator.target, "lineno") else node.lineno
        return loops.add_site(
            Site(line + self.offset, f"for {target} in {over}", "comprehension", self.number)
        )

    def _head(self, node: ast.For | ast.While | ast.AsyncFor | ast.expr) -> str:
        if isinstance(node, ast.expr):
            return self._segment(node, ast.unparse(node))
        if isinstance(node, ast.While):
            return f"while {self._segment(node.test, ast.unparse(node.test))}:"
        word = "async for" if isinstance(node, ast.AsyncFor) else "for"
        target = self._segment(node.target, ast.unparse(node.target))
        return f"{word} {target} in {self._segment(node.iter, ast.unparse(node.iter))}:"

    def _segment(self, node: ast.expr, plain: str) -> str:
        """An expression as it was written; as Python writes it where the text does not have it."""
        end = node.end_lineno
        lines = self.source.split("\n")
        if end is None or node.lineno != end or end + self.offset > len(lines):
            return plain
        line = lines[end + self.offset - 1].encode()
        text = line[node.col_offset : node.end_col_offset].decode(errors="replace")
        try:
            same = ast.dump(ast.parse(text, mode="eval").body) == ast.dump(_loaded(node))
        except (SyntaxError, ValueError):
            return plain
        return text if same else plain


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
        """The statements with their loops rewritten."""
        out: list[ast.stmt] = []
        for statement in statements:
            out.append(self.visit(statement))
        return out

    def visit(self, node: ast.AST) -> Any:
        """Scopes inside are left alone."""
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        """A `for` loop gets its items from `loops`."""
        left_alone = _yields(node) or _marks_steps(node.iter) or _waits_for_threads(node)
        number = None if left_alone else self._text.site(node, "for")
        self.generic_visit(node)
        if number is not None:
            node.iter = _items(number, node.iter)
        return node

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        """An `async for` loop, too; its body says first that the item has come."""
        number = None if _yields(node) or _marks_steps(node.iter) else self._text.site(node, "for")
        self.generic_visit(node)
        if number is not None:
            node.iter = _located(_call(loops.ASYNC_LOOP, number, node.iter), node.iter)
            node.body.insert(0, _located(ast.Expr(_call(loops.CAME, number)), node.target))
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        """A `while` loop becomes a `for` loop without a target, which a false condition leaves."""
        number = (
            None
            if _yields(node) or any(map(_jumps, node.orelse))
            else self._text.site(node, "while")
        )
        self.generic_visit(node)
        if number is None:
            return node
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

    visit_SetComp = visit_DictComp = visit_ListComp  # type: ignore[assignment]  # noqa: N815 - as `ast` calls them

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """One that is not consumed where it stands runs between other code, and is left alone."""
        for generator in node.generators[:1]:
            generator.iter = self.visit(generator.iter)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A generator expression or a `map` that is the only argument of a function that runs it to
        its end.
        """
        only = node.args[0] if len(node.args) == 1 and not node.keywords else None
        joins = (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "join"
            and isinstance(node.func.value, ast.Constant)
        )
        consumed = joins or (isinstance(node.func, ast.Name) and node.func.id in _CONSUMERS)
        if consumed and isinstance(only, ast.GeneratorExp):
            node.func = self.visit(node.func)
            self._comprehension(only)
            return node
        if consumed and _maps(only):
            node.func = self.visit(node.func)
            self._map(only)  # type: ignore[arg-type]
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
        left_alone = first.is_async or _marks_steps(first.iter) or _awaits(node)
        numbers = (
            []
            if left_alone
            else [
                self._text.site(node, "comprehension"),
                *(self._text.site_inside(each, node) for each in inner),
            ]
        )
        self.generic_visit(node)
        for number, each in zip(numbers, node.generators, strict=False):
            each.iter = _items(number, each.iter)
        return node


def _maps(node: ast.expr | None) -> bool:
    """Whether an expression is ``map(function, iterable)``."""
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Name)
        or node.func.id != "map"
    ):
        return False
    return (
        len(node.args) == 2
        and not node.keywords
        and not any(isinstance(each, ast.Starred) for each in node.args)
    )


_WAITS = {"join", "wait"}
"""Methods of threads, processes and events that wait for the work of others."""


def _waits_for_threads(node: ast.For) -> bool:
    """Whether a loop only waits for what others do, as ``for thread in threads: thread.join()``:
    its iterations are no work.
    """
    if len(node.body) != 1 or not isinstance(node.target, ast.Name):
        return False
    only = node.body[0].value if isinstance(node.body[0], ast.Expr) else None
    if (
        not isinstance(only, ast.Call)
        or not isinstance(only.func, ast.Attribute)
        or only.func.attr not in _WAITS
    ):
        return False
    return isinstance(only.func.value, ast.Name) and only.func.value.id == node.target.id


def _located(node: Any, like: ast.AST) -> Any:
    """The node with the place of another one wherever it has none."""
    ast.copy_location(node, like)
    for each in ast.walk(node):
        if not hasattr(each, "lineno") and "lineno" in each._attributes:
            ast.copy_location(each, like)
    return node


def _call(name: str, number: int, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), *arguments], [])


def _items(number: int, iterable: ast.expr) -> ast.expr:
    """What a loop runs over in place of `iterable`; ``iter()`` fails as the loop itself would."""
    found: ast.expr = _located(
        _call(loops.LOOP, number, ast.Call(ast.Name(loops.ITER, ast.Load()), [iterable], [])),
        iterable,
    )
    return found


def _in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all nodes below it that belong to the same function."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield from _in_scope(child)


def _yields(node: ast.AST) -> bool:
    """Whether a generator pauses in a loop: other code runs between its iterations then."""
    return any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in _in_scope(node))


def _awaits(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Await) or getattr(each, "is_async", 0) for each in _in_scope(node)
    )


def _jumps(node: ast.AST) -> bool:
    """Whether a statement may leave or continue the loop around it."""
    if isinstance(node, (ast.Break, ast.Continue)):
        return True
    if isinstance(node, (*_SCOPES, ast.expr)):
        return False
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return any(map(_jumps, node.orelse))
    return any(map(_jumps, ast.iter_child_nodes(node)))


def _marks_steps(iterable: ast.expr) -> bool:
    """Whether a loop runs over ``nbprof.steps(...)``, which makes its iterations the steps."""
    for node in ast.walk(iterable):
        name = node.func if isinstance(node, ast.Call) else None
        if (isinstance(name, ast.Attribute) and name.attr == "steps") or (
            isinstance(name, ast.Name) and name.id == "steps"
        ):
            return True
    return False


# Which functions are plain code that the cell calls.


@dataclass
class Uses:
    """How code uses names."""

    called: set[str] = field(default_factory=set)
    """Names that it calls, and names of the methods."""
    held: set[str] = field(default_factory=set)
    """Those that it uses otherwise, or calls where something may compile the call."""

    def add(self, other: Uses) -> None:
        """Those of other code, too."""
        self.called |= other.called
        self.held |= other.held


class _Use(ast.NodeVisitor):
    """Collects how code uses names; what `plain` holds are functions and classes that are plain
    code.
    """

    def __init__(self, plain: set[int]) -> None:
        self.uses = Uses()
        self._plain = plain
        self._opaque = 0

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = (
            function.id
            if isinstance(function, ast.Name)
            else function.attr
            if isinstance(function, ast.Attribute)
            else ""
        )
        if name:
            (self.uses.held if self._opaque else self.uses.called).add(name)
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

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815 - as `ast` calls them

    def _scope(self, node: Any) -> None:
        plain = id(node) in self._plain
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        for part in ast.iter_child_nodes(node):
            # A class that is derived from one is no use of it.
            if part in bases and isinstance(part, ast.Name):
                continue
            self._opaque += not plain
            self.visit(part)
            self._opaque -= not plain


def uses_of(function: Any) -> Uses:
    """How the code of a plain function uses names."""
    visitor = _Use({id(function)})
    visitor.visit(function)
    return visitor.uses


_DISTRIBUTES = {
    *(
        "Parallel",
        "delayed",
        "Pool",
        "ProcessPoolExecutor",
        "Process",
        "remote",
        "ray",
        "dask",
        "joblib",
    ),
    *(
        "cloudpickle",
        "dill",
        "pickle",
        "sparkContext",
        "spawn",
        "start_processes",
        "notebook_launcher",
    ),
}
"""Names by which code is sent to other processes, which do not know the names of `loops`."""

Place = tuple[int, int]


def _place(node: Any) -> Place:
    return node.lineno, node.col_offset


@dataclass(frozen=True)
class Definition:
    """A function or class at the top level of a cell, or a method of such a class."""

    node: Function | ast.ClassDef
    owner: ast.ClassDef | None = None

    @property
    def plain(self) -> bool:
        """Whether it may be plain code, as far as its own text goes."""
        node = self.node
        if node.decorator_list:
            return False
        if isinstance(node, ast.ClassDef):
            return not node.keywords and all(isinstance(base, ast.Name) for base in node.bases)
        special = node.name.startswith("__") and node.name.endswith("__")
        return self.owner is None or not special or node.name == "__init__"


def definitions(tree: ast.Module) -> list[Definition]:
    """What a cell defines, in the order of its text; functions in functions are parts of these."""
    found = []
    for node in _defined_in(tree):
        found.append(Definition(node))
        if isinstance(node, ast.ClassDef):
            methods = [
                each
                for each in node.body
                if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]
            found += [Definition(each, node) for each in methods]
    return found


def _defined_in(node: ast.AST) -> Iterator[Any]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _defined_in(child)


class Cell:
    """The code of a cell, and which of its definitions are plain code.

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
        self.plain: set[Place] = set()
        self.uses = self.settle(set())

    def settle(self, held: set[str]) -> Uses:
        """Find what is plain code, where `held` are names that other code holds; returns the
        uses.
        """
        plain = {_place(each.node) for each in self.definitions if each.plain}
        while True:
            nodes = {id(each.node) for each in self.definitions if _place(each.node) in plain}
            visitor = _Use(nodes)
            visitor.visit(self.tree)
            taken = visitor.uses.held | held
            known = {
                each.node.name
                for each in self.definitions
                if isinstance(each.node, ast.ClassDef) and _place(each.node) in plain
            }
            left = {
                _place(each.node)
                for each in self.definitions
                if self._stays(each, plain, taken, known | {"object"})
            }
            if left == plain:
                self.plain, self.uses = plain, visitor.uses
                return visitor.uses
            plain = left

    @staticmethod
    def _stays(each: Definition, plain: set[Place], held: set[str], classes: set[str]) -> bool:
        node = each.node
        if _place(node) not in plain or node.name in held:
            return False
        if each.owner is not None and _place(each.owner) not in plain:
            return False
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        return all(isinstance(base, ast.Name) and base.id in classes for base in bases)

    @property
    def distributes(self) -> bool:
        """Whether it may send code to other processes."""
        return any(not _DISTRIBUTES.isdisjoint(_names_of(node)) for node in ast.walk(self.tree))

    def changes(self, defined: Any) -> list[tuple[FunctionType, CodeType]]:
        """The rewritten code for a function that the cell has defined, or for the methods of a
        class.
        """
        if isinstance(defined, type):
            functions = [each for each in vars(defined).values() if isinstance(each, FunctionType)]
        else:
            functions = [defined] if type(defined) is FunctionType else []
        found = []
        for function in functions:
            code = self._code(function)
            if code is not None:
                found.append((function, code))
        return found

    def has(self, code: CodeType) -> bool:
        """Whether the text, as it is now, gives this code: the file of a module may have changed
        since it was imported.
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
        wanted = set()
        for each in definitions(tree):
            node = each.node
            if isinstance(node, ast.ClassDef) or _place(node) not in self.plain:
                continue
            node.body = Rewriter(self.text).body(node.body)
            wanted.add((node.name, node.lineno))
        ast.fix_missing_locations(tree)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(
                tree, file, "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
            )
        return {
            key: each
            for each in _codes_in(code)
            if (key := (each.co_name, each.co_firstlineno)) in wanted
        }


def _names_of(node: ast.AST) -> list[str]:
    """The names that a node itself uses or imports."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return node.name.split(".") if isinstance(node, ast.alias) else []


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes_in(each)


def _shape(code: CodeType) -> tuple[Any, ...]:
    """What a function's code must have in common with another one that takes its place."""
    qualified = getattr(code, "co_qualname", code.co_name)
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return (qualified, *counts, code.co_varnames, code.co_freevars, code.co_cellvars)


def rewritten(cell: Cell, *, functions: bool = True) -> ast.Module:
    """The code of a cell with its loops rewritten, and with its plain functions announced.

    Parameters
    ----------
    cell : Cell
    functions : bool
        Whether functions that it defines are rewritten as well, while a recording runs.
    """
    tree = copy.deepcopy(cell.tree)
    number = loops.functions.add_variant(cell.changes) if functions else None
    tree.body = Rewriter(cell.text).body(tree.body)
    for each in definitions(tree):
        if number is not None and each.owner is None and _place(each.node) in cell.plain:
            each.node.decorator_list.append(_located(_call(loops.DEFINED, number), each.node))
    return ast.fix_missing_locations(tree)
