"""Names of sampled stacks: functions, lines and calls of code objects and instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from nbprof.capture.lines import MAX_CELLS, MAX_CHARACTERS, cell_text
from nbprof.capture.python_places import Code, Spot
from nbprof.core.cells import stem
from nbprof.core.python_samples import Function, Place
from nbprof.core.sample_limits import MOST_TEXT


@dataclass
class Tree:
    """Named stacks, as in `PythonSamples`; `node` has the number of each sampled node."""

    functions: list[Function] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)


class Names:
    """Names of the sampled code.

    Parameters
    ----------
    codes : dict
        Code objects by their id.
    variables : dict
        Their global variables.
    """

    def __init__(self, codes: dict[int, CodeType], variables: dict[int, dict[str, Any]]) -> None:
        self._codes = codes
        self._variables = variables
        self._by_id: dict[int, Code] = {}
        self._functions: dict[Function, int] = {}
        self._places: dict[Place, int] = {}

    def tree(self, nodes: Mapping[tuple[int, int, int], int]) -> Tree:
        """The named tree of nodes with a caller, code and instruction; equal ones are merged."""
        tree = Tree()
        numbers: dict[tuple[int, int], int] = {}
        spots: dict[tuple[int, int], tuple[int, Spot]] = {}
        for above, code, offset in nodes:
            caller = -1
            if above >= 0:
                caller = tree.node[above]
            if (code, offset) not in spots:
                spots[code, offset] = self._spot(code, offset)
            place_index, spot = spots[code, offset]
            if spot.begins and caller >= 0:
                # The time before a function begins is its caller's.
                tree.node.append(caller)
                continue
            if (caller, place_index) not in numbers:
                numbers[caller, place_index] = len(numbers)
                tree.parent.append(caller)
                tree.place.append(place_index)
            tree.node.append(numbers[caller, place_index])
        tree.functions, tree.places = list(self._functions), list(self._places)
        return tree

    def source(self) -> dict[str, str]:
        """The text of the cells, by the stem of their files."""
        texts: dict[str, str] = {}
        for path in dict.fromkeys(code.co_filename for code in self._codes.values()):
            name = stem(path)
            if name and len(texts) < MAX_CELLS:
                text = cell_text(path)
                if text and len(text) <= MAX_CHARACTERS:
                    texts[name] = text
        return texts

    def _spot(self, number: int, offset: int) -> tuple[int, Spot]:
        code = self._codes[number]
        if number not in self._by_id:
            self._by_id[number] = Code(code, self._variables[number])
        spot = self._by_id[number].spot(offset)
        name = str(getattr(code, "co_qualname", code.co_name))[:MOST_TEXT]
        function = Function(code.co_filename[-MOST_TEXT:], name, max(code.co_firstlineno, 0))
        function_index = self._functions.setdefault(function, len(self._functions))
        location = Place(function_index, max(spot.line, 0), spot.call)
        return self._places.setdefault(location, len(self._places)), spot
