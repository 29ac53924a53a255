"""Payloads, the data of the parts of the page, declared once for Python and TypeScript.

    class Bar(Part):
        category: CategoryKey
        percent: float

is a dataclass with keyword arguments. `codec.pack` sends its fields by name, in the order of their
declaration, and `python -m nbprof.tools.typescript` writes the same declaration into
`js/lib/payload.gen.ts`. A field that has the default `None` or `False` is left out where it has it;
TypeScript declares it with a question mark. A trailing underscore (`from_`) is not part of the
name. `Annotated[str, "TabId"]` is a text whose type in TypeScript is `TabId`.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, dataclass_transform

import numpy.typing as npt

from nbprof.core.codec.records import record

CLASSES: dict[str, type[Part]] = {}
"""Every class of a payload, by its name."""

CategoryKey = Annotated[str, "CategoryKey"]
"""A step-time category."""
Marked = Annotated[str, "Marked"]
"""A text in which **double asterisks** mark bold parts."""
TabId = Annotated[str, "TabId"]
"""A tab, by its id in `names.json`."""
Numbers = Annotated[npt.NDArray[Any], "NumberArray"]
"""Numbers in the smallest type that holds them; missing ones are NaN."""
Codes = Annotated[npt.NDArray[Any], "Codes"]
"""Integers from 0 on, in the smallest type that holds them."""


@dataclass_transform(kw_only_default=True, eq_default=False)
class Part:
    """A part of a payload; each subclass is a dataclass."""

    _defaults: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        declared = fields(cls)  # type: ignore[arg-type]  # it is a dataclass now
        cls._defaults = {field.name: field.default for field in declared}
        CLASSES[cls.__name__] = record(cls)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and values of the fields, without those that have their default."""
        for name, default in self._defaults.items():
            value = getattr(self, name)
            if default is MISSING or value is not default:
                yield name.rstrip("_"), value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.items())})"

    if not TYPE_CHECKING:
        # For readers of `p.payload()`. nbprof itself reads attributes, whose types are checked.

        def __getitem__(self, key: str) -> Any:
            for name in (key, f"{key}_"):
                if name in self._defaults:
                    return getattr(self, name)
            raise KeyError(key)

        def __iter__(self) -> Iterator[str]:
            return iter(self.keys())

        def __contains__(self, key: object) -> bool:
            return key in self.keys()

        def __eq__(self, other: object) -> bool:
            return dict(self.items()) == (dict(other.items()) if isinstance(other, Part) else other)

        __hash__ = None

        def get(self, key: str, default: Any = None) -> Any:
            """The value of a field; `default` where the field is left out."""
            return dict(self.items()).get(key, default)

        def keys(self) -> KeysView[str]:
            """The names of the fields that are not left out."""
            return dict(self.items()).keys()
