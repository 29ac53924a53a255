"""Which variables of a notebook does a cell read that it has not set itself?"""

from __future__ import annotations

import ast
import dis
from collections.abc import Callable, Iterator
from types import CodeType

BY_TEXT = {"eval", "exec", "get_ipython", "globals", "locals", "vars"}
"""What can read any variable: a magic, for example, runs code that is only a text here."""


def names_read(tree: ast.Module, inner: Callable[[str], set[str]]) -> set[str]:
    """The names that a cell reads before it sets them, from earlier cells or an earlier run.

    Parameters
    ----------
    tree : ast.Module
        The cell.
    inner : callable
        The names that are read when the value of a name is called.
    """
    reads: set[str] = set()
    _block(tree.body, set(), reads, inner)
    return reads


def names_in(code: CodeType) -> set[str]:
    """All names of variables and attributes in a function and nested ones, except `BY_TEXT`."""
    return (set(code.co_names) - BY_TEXT).union(
        *(names_in(part) for part in code.co_consts if isinstance(part, CodeType))
    )


def globals_in(code: CodeType) -> set[str]:
    """The names of variables outside of it that a function and those inside it read."""
    names = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= globals_in(constant)
    return names


def reads_by_text(code: CodeType) -> bool:
    """Return whether a function can read variables that it does not name, by `eval` for example.

    A method `eval` of a model does not count.
    """
    return bool(globals_in(code) & BY_TEXT)


def _block(
    body: list[ast.stmt], local_names: set[str], reads: set[str], inner: Callable[[str], set[str]]
) -> None:
    """Add names that are read, and to `local_names` those that are set in any case.

    A loop is assumed to run at least once, as it did before.
    """
    for statement in body:
        nested = _nested_blocks(statement)
        if not nested or isinstance(
            statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        ):
            _reads(statement, local_names, reads, inner)
            local_names |= _set_by(statement)
            continue
        for part in ast.iter_child_nodes(statement):
            if not isinstance(part, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                _reads(part, local_names, reads, inner)
                local_names |= set(_stored(part))
        first = nested[0]
        for branch in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            nested.append(branch.body)
            for part in ast.iter_child_nodes(branch):
                if not isinstance(part, ast.stmt):
                    _reads(part, local_names, reads, inner)
        runs_first = isinstance(
            statement, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try)
        )
        for block in nested:
            certain = runs_first and block is first
            _block(block, local_names if certain else set(local_names), reads, inner)


def _nested_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    blocks = []
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list):
            blocks.append(block)
    return blocks


def _reads(
    part: ast.AST, local_names: set[str], reads: set[str], inner: Callable[[str], set[str]]
) -> None:
    for node in ast.walk(part):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
            name = node.id
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        if name and name not in local_names:
            reads.add(name)
            reads |= inner(name) - local_names


def _set_by(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Assign):
        return {name for target in statement.targets for name in _stored(target)}
    if isinstance(statement, ast.AnnAssign) and statement.value:
        return set(_stored(statement.target))
    return set()


def _stored(part: ast.AST) -> Iterator[str]:
    for node in ast.walk(part):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
