"""Counts what makes code hard to read: `python -m tests.support.style [--list] [PATH ...]`.

Without `--list` one row per path is printed: lines, then faults per 1,000 lines or in total. With
it, each fault is printed with its place, worst kinds first. `tests/docs/test_style.py` holds the
totals.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Words that say nothing about what a variable holds.
VAGUE = frozenset(
    [
        "apart",
        "at",
        "beside",
        "cut",
        "kept",
        "late_ms",
        "made",
        "mine",
        "one",
        "out",
        "own",
        "said",
        "stretch",
        "told",
        "whole",
    ]
)
# Words that seldom do.
WEAK = frozenset(
    [
        "found",
        "given",
        "inside",
        "known",
        "most",
        "of",
        "others",
        "place",
        "shown",
        "stated",
        "wanted",
        "what",
        "where",
        "which",
    ]
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WORDING = re.compile(
    r"^(What|Whether|Which|Where|How)\b(?!.*\?)|\bis no [a-z]|\b(told|said)\b|\blies\b|\bof its own\b"
)
MOST_PARAMETERS = 6
LONGEST_FUNCTION = 60


class Fault(NamedTuple):
    """One place that reads badly."""

    kind: str
    line: int
    text: str


def _inside(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(part, kinds) for part in ast.walk(node) if part is not node)


def _names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that are bound: variables, parameters, attributes, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def _structure(tree: ast.AST) -> Iterator[Fault]:
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            yield Fault("comprehension", node.lineno, "")
            if _inside(node, COMPREHENSIONS):
                yield Fault("nested comprehension", node.lineno, "")
            if any(_inside(part.iter, (ast.IfExp,)) for part in node.generators) or any(
                isinstance(part.iter, ast.IfExp) for part in node.generators
            ):
                yield Fault("conditional source", node.lineno, "")
            if _inside(node, (ast.NamedExpr,)):
                yield Fault("assignment in comprehension", node.lineno, "")
        elif isinstance(node, ast.IfExp):
            yield Fault("conditional expression", node.lineno, "")
            if _inside(node, (ast.IfExp,)):
                yield Fault("nested conditional", node.lineno, "")
        elif isinstance(node, FUNCTIONS):
            args = node.args
            count = len([*args.posonlyargs, *args.args, *args.kwonlyargs])
            count -= bool(args.args) and args.args[0].arg in ("self", "cls")
            if count > MOST_PARAMETERS:
                yield Fault("parameters", node.lineno, f"{node.name}: {count}")
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                yield Fault("long function", node.lineno, f"{node.name}: {length} lines")


def _wording(tree: ast.AST, lines: list[str]) -> Iterator[Fault]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
            text = ast.get_docstring(node) or ""
            if WORDING.search(text):
                line = 1 if isinstance(node, ast.Module) else node.lineno
                yield Fault("wording", line, text.split("\n")[0][:90])
    for index, line in enumerate(lines):
        if line.strip().startswith("#") and WORDING.search(line.strip("# ")):
            yield Fault("wording", index + 1, line.strip()[:90])


def faults(source: str) -> list[Fault]:
    """All places of one module that read badly."""
    tree = ast.parse(source)
    lines = source.splitlines()
    rows = [Fault("long line", i + 1, "") for i, line in enumerate(lines) if len(line) > 100]
    for name, line in _names(tree):
        if name.strip("_") in VAGUE:
            rows.append(Fault("vague name", line, name))
        elif name.strip("_") in WEAK:
            rows.append(Fault("weak name", line, name))
    return [*rows, *_structure(tree), *_wording(tree, lines)]


def modules(path: Path) -> list[Path]:
    """The Python files of a folder, or the file itself."""
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def count(path: Path) -> Counter[str]:
    """Lines and faults of all modules below a path, by kind."""
    total: Counter[str] = Counter()
    for module in modules(path):
        source = module.read_text()
        total["lines"] += source.count("\n")
        total.update(fault.kind for fault in faults(source))
    return total


def main(arguments: list[str]) -> None:
    """Prints the counts, or with `--list` each fault, of the paths given."""
    paths = [Path(text) for text in arguments if not text.startswith("--")] or [ROOT / "nbprof"]
    for path in paths:
        if "--list" not in arguments:
            print(path, dict(count(path).most_common()))
            continue
        for module in modules(path):
            for fault in sorted(faults(module.read_text()), key=lambda fault: fault.line):
                if fault.kind not in ("comprehension", "conditional expression"):
                    print(f"{module}:{fault.line}: {fault.kind} {fault.text}".rstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
