"""The public frames of a profile by their names in `nbprof.frames.SCHEMA`, and the accessors that
hand them out.
"""

from __future__ import annotations

import typing
from typing import Any

import pandas as pd

from nbprof.frames import SCHEMA
from nbprof.profiles.profile import Profile
from nbprof.schema.columns import Col
from nbprof.schema.frames import OF_NO_PROFILE
from nbprof.tools.accessor import View, accessor
from nbprof.tools.ascend.accessor import Part

ARGUMENTS = {"trace.range": (0, 100)}
"""What a call needs."""
OF_A_PROFILE = [name for name in SCHEMA if not name.startswith(("memory_viewer[", *OF_NO_PROFILE))]
WITHOUT_NOTES = [name for name in OF_A_PROFILE if name != "receipt.notes"]
"""Notes also say how files were read, which differs where the figures are the same."""


def public(profile: Any, name: str) -> pd.DataFrame:
    """The frame that a person finds under `p.` by that name."""
    found = profile
    for part in name.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
        # An accessor may be called too: p.roofline(...) is another one.
        if callable(found) and not isinstance(found, (View, Part)):
            found = found(*ARGUMENTS.get(name, ()))
    return found


def below(prefix: str) -> dict[str, list[Col]]:
    """The frames whose names begin so, without the beginning."""
    return {
        name.removeprefix(prefix): columns
        for name, columns in SCHEMA.items()
        if name.startswith(prefix)
    }


def of_run(name: str) -> str:
    """What `run.ascend` calls a frame of `p.ascend`, by the name without "ascend."."""
    return name.removesuffix(".frame").replace("op_types.cores", "cores").replace(".", "_")


def accessors(of: type = Profile, way: str = "") -> dict[str, type]:
    """The class of each accessor below a class by the way to it, in the order in which they are
    written.
    """
    found: dict[str, type] = {}
    for name, kind in _properties(of).items():
        if isinstance(kind, type) and issubclass(kind, (View, Part)):
            found |= {f"{way}{name}": kind, **accessors(kind, f"{way}{name}.")}
    return found


def frames_of(of: type, way: str = "") -> list[str]:
    """The names of the frames that are attributes of a class."""
    inherited = ["frame"] if hasattr(of, "frame") and "frame" not in vars(of) else []
    return [
        f"{way}{name}"
        for name in [
            *inherited,
            *(n for n, kind in _properties(of).items() if kind is pd.DataFrame),
        ]
    ]


def _properties(of: type) -> dict[str, Any]:
    own = {
        name: made.fget
        for name, made in vars(of).items()
        if isinstance(made, (property, accessor)) and not name.startswith("_")
    }
    return {name: _returned(function) for name, function in own.items()}


def _returned(function: Any) -> Any:
    """What a function returns; None where that is known to type checkers alone."""
    try:
        return typing.get_type_hints(function).get("return")
    except NameError:
        return None
