"""Locates the change of an experiment in the person's cell, if its place is sure."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Edit, Located, Source, of_cell

Find = Callable[[Source, Sequence[Observation]], Located | None]
"""Locates a change in the source of a program, by two turns of it as it is; None if it is elsewhere
or in several places.
"""


def made_by_program(
    objects: Callable[[Observation], Sequence[Any]], observed: Sequence[Observation]
) -> list[Any]:
    """The objects that the program used, if it makes them itself: each turn others."""
    first, second = (objects(each) for each in observed[:2])
    for each in first:
        if any(each is other for other in second):
            return []
    return list(first)


def in_constructor(
    objects: Callable[[Observation], Sequence[Any]],
    arguments: Mapping[str, str],
    without: Sequence[str] = (),
) -> Find:
    """Arguments of the call that makes the only object of its kind.

    Parameters
    ----------
    objects : callable
        The objects that the experiment changes.
    arguments : dict of str to str
        Expressions by name.
    without : sequence of str
        Arguments beside which these are not enough.
    """

    def find(source: Source, observed: Sequence[Observation]) -> Located | None:
        used = made_by_program(objects, observed)
        if len(used) != 1:
            return None
        kind = type(used[0])
        calls = [call for call in source.calls() if source.value(call.func) is kind]
        if len(calls) != 1 or any(keyword.arg in without for keyword in calls[0].keywords):
            return None
        return located(source, source.with_arguments(calls[0], arguments, kind))

    return find


def at_begin(module: str, lines: Callable[[], Sequence[str]]) -> Find:
    """Statements before the others of the cell, below its imports.

    Parameters
    ----------
    module : str
        What they use.
    lines : callable
        The statements, with `{name}` for what the cell calls the module.
    """

    def find(source: Source, observed: Sequence[Observation]) -> Located | None:
        del observed
        name = source.name_of(sys.modules[module])
        if not name:
            return None
        code = "\n".join(line.format(name=name) for line in lines())
        return located(source, source.at_begin(code, name)) if code else None

    return find


def without_waits(module: str) -> Find:
    """The lines of the cell that only wait for the device, if no others do.

    Parameters
    ----------
    module : str
        A key of `Observation.waits`.
    """

    def find(source: Source, observed: Sequence[Observation]) -> Located | None:
        lines = observed[0].waits[module]
        if any(file != source.filename for file, _ in lines):
            return None
        return located(source, *(source.without(line, _only_waits) for _, line in sorted(lines)))

    return find


def cell_of(
    lines: Set[tuple[str, int]], source: Source, observed: Sequence[Observation]
) -> Source | None:
    """The one cell that these lines are in, which may be an earlier one; None if it is not one."""
    files = {file for file, _ in lines}
    if len(files) != 1:
        return None
    (file,) = files
    return source if file == source.filename else of_cell(file, observed[0].namespace)


def _only_waits(value: ast.expr) -> bool:
    """Return whether an expression is a call whose parts are names: nothing else is computed."""
    if not isinstance(value, ast.Call):
        return False
    calls = [node for node in ast.walk(value) if isinstance(node, (ast.Call, ast.Await))]
    name = value.func.attr if isinstance(value.func, ast.Attribute) else ""
    return len(calls) == 1 and name in ("block_until_ready", "synchronize")


def calls_of_method(source: Source, receiver: str, method: str) -> list[ast.Call]:
    """The calls of a method of a variable, or of anything if `receiver` is empty."""
    calls = []
    for call in source.calls():
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr != method:
            continue
        if not receiver or (isinstance(function.value, ast.Name) and function.value.id == receiver):
            calls.append(call)
    return calls


def name_of(observed: Sequence[Observation], value: object) -> str:
    """The only variable that holds an object; empty if there is none, or several do."""
    names = [name for name, held in observed[0].names if held is value]
    return names[0] if len(names) == 1 else ""


def located(source: Source, *edits: Edit | None) -> Located | None:
    """The changes of a source, if all of them were found."""
    known = [edit for edit in edits if edit is not None]
    return Located(source, known) if known and len(known) == len(edits) else None


def together(finds: Sequence[Find | None]) -> Find:
    """All changes of one source."""

    def find(source: Source, observed: Sequence[Observation]) -> Located | None:
        parts = [each(source, observed) if each is not None else None for each in finds]
        located_parts = [part for part in parts if part is not None]
        # Several cells are not changed at once.
        if len(located_parts) < len(finds) or any(
            part.source is not located_parts[0].source for part in located_parts
        ):
            return None
        return Located(
            located_parts[0].source, [edit for part in located_parts for edit in part.edits]
        )

    return find
