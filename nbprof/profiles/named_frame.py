"""A public frame by its name in the schema: "kernels.by_name" is `p.kernels.by_name()`."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.core.files import join_some
from nbprof.schema.frames import SCHEMA

if TYPE_CHECKING:
    from nbprof.profiles.comparison import Comparison
    from nbprof.profiles.profile import Profile

_OF_A_COMPARISON = "comparison."
_OF_A_MODULE = re.compile(r"memory_viewer\[(?P<module>.+)\]\.(?P<frame>\w+)", re.DOTALL)
_TAKES_A_RANGE = "trace.range"


def names(of: Profile | Comparison) -> list[str]:
    """The names that `named_frame` takes."""
    from nbprof.profiles.comparison import Comparison

    compared = isinstance(of, Comparison)
    return [name for name in SCHEMA if name.startswith(_OF_A_COMPARISON) == compared and name != _TAKES_A_RANGE]


def named_frame(of: Profile | Comparison, name: str) -> pd.DataFrame:
    """A frame of a profile or a comparison.

    Parameters
    ----------
    of : Profile or Comparison
    name : str
        As in `nbprof.frames.SCHEMA`; "kernels" stands for "kernels.frame", "memory_viewer[jit_step(3)].at_peak" names a program.

    Raises
    ------
    NbprofError
        There is no such frame; says which are near.
    """
    known = names(of)
    key = name if name in known else f"{name}.frame" if f"{name}.frame" in known else f"{_OF_A_COMPARISON}{name}"
    if key not in known:
        module = _OF_A_MODULE.fullmatch(name)
        if module and f"memory_viewer[module].{module['frame']}" in known:
            chosen: pd.DataFrame = getattr(cast("Profile", of).memory_viewer[module["module"]], module["frame"])
            return chosen
        near = difflib.get_close_matches(name[:100], known, 3) or known
        raise NbprofError(f"there is no frame {name[:100]!r}; there are {join_some(near, 100)}.")
    if key.startswith("memory_viewer[module]"):
        raise NbprofError(f"put the name of a program for `module` in {key!r}; memory_viewer.modules lists them.")
    value: Any = of
    for part in key.removeprefix(_OF_A_COMPARISON).split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
        # Accessors are callable, too: p.roofline(...) is another roofline.
        if callable(value) and not hasattr(value, "_repr_mimebundle_"):
            value = value()
    return pd.DataFrame(value)
