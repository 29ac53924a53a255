"""The payload as TypeScript: `python -m nbprof.tools.typescript` writes `js/lib/payload.gen.ts`
from the classes.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from nbprof.display.categories import CATEGORIES
from nbprof.display.codec import Delta
from nbprof.display.payload import Part
from nbprof.tools.payloads import Payload

PATH = Path(__file__).parents[2] / "js" / "lib" / "payload.gen.ts"

_HEAD = """\
/**
 * The payload: what Python sends and the views draw. Written by `python -m nbprof.tools.typescript`
 * from the classes in nbprof/tools, which say what each field means.
 *
 * A missing number is NaN in a float array and null elsewhere. Times carry their unit in the key.
 */

export type Codes = Uint32Array | Uint16Array | Uint8Array;
export type NumberArray = Float64Array | Float32Array | Int32Array | Uint32Array | Uint16Array \
| Uint8Array;
export type ColumnData = NumberArray | Coded | string[];

/** A text in which **double asterisks** mark what is set in bold; everything else is literal. */
export type Marked = string;

/** A tab has the key of what it draws; its name is in nbprof/tools/names.json. */
export type TabId = Exclude<keyof Payload, "meta" | "steps">;
"""
_NAMES = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Any: "unknown",
    Delta: "NumberArray",
}
_ARRAYS = {
    np.float64: "Float64Array",
    np.float32: "Float32Array",
    np.int32: "Int32Array",
    np.uint32: "Uint32Array",
    np.uint16: "Uint16Array",
    np.uint8: "Uint8Array",
    np.bool_: "Uint8Array",
}


def source() -> str:
    """The text of the file."""
    keys = "".join(f'\n  | "{category.key}"' for category in CATEGORIES)
    interfaces = [_interface(cls) for cls in _classes(Payload, {})]
    return "\n".join([_HEAD, f"export type CategoryKey ={keys};\n", *interfaces])


def _classes(cls: type[Part], seen: dict[type[Part], None]) -> dict[type[Part], None]:
    """A class and those of its fields, in the order in which they are found."""
    if cls not in seen:
        seen[cls] = None
        for hint in get_type_hints(cls).values():
            for other in _parts_of(hint):
                _classes(other, seen)
    return seen


def _parts_of(hint: Any) -> Iterator[type[Part]]:
    if isinstance(hint, type) and issubclass(hint, Part):
        yield hint
    for argument in get_args(hint):
        yield from _parts_of(argument)


def _interface(cls: type[Part]) -> str:
    hints = get_type_hints(cls, include_extras=True)
    lines = []
    for field in fields(cls):  # type: ignore[arg-type]  # each part is a dataclass
        optional = field.default is not MISSING
        hint = hints[field.name]
        # A field that has its default is not sent.
        text = _union(
            member for member in _members(hint) if not (optional and member is type(None))
        )
        lines.append(f"  {field.name.rstrip('_')}{'?' if optional else ''}: {text};")
    about = " ".join((cls.__doc__ or "").split())
    return "\n".join(
        [
            f"/** {about} See {cls.__module__}. */",
            f"export interface {cls.__name__} {{",
            *lines,
            "}\n",
        ]
    )


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union; of another type that type."""
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _union(hints: Iterator[Any]) -> str:
    return " | ".join(dict.fromkeys(_text(hint) for hint in hints))


def _text(hint: Any) -> str:
    """A type in TypeScript."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(arguments[1])
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin in (Union, types.UnionType):
        return _union(iter(arguments))
    if origin is np.ndarray:
        return _ARRAYS[get_args(arguments[1])[0]]
    if origin is dict:
        return _record(*arguments)
    if origin is list:
        item = _text(arguments[0])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if origin is tuple:
        return f"[{', '.join(map(_text, arguments))}]"
    return _NAMES.get(hint) or str(hint.__name__)


def _record(key: Any, value: Any) -> str:
    # Of keys of a closed set not all have to be there.
    record = f"Record<{_text(key)}, {_text(value)}>"
    return record if key is str else f"Partial<{record}>"


def main() -> None:
    """Writes the file."""
    PATH.write_text(source(), encoding="utf-8")


if __name__ == "__main__":
    main()
