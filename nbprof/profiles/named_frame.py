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


def full_name(of: Profile | Comparison, name: str) -> str:
    """A name as it is in the schema: "kernels" stands for "kernels.frame", "ops" of a comparison for "comparison.ops".

    Raises
    ------
    NbprofError
        There is no such frame; says which are near.
    """
    known = names(of)
    module = _OF_A_MODULE.fullmatch(name)
    for key in (name, f"{name}.frame", f"{_OF_A_COMPARISON}{name}", f"memory_viewer[module].{module['frame']}" if module else ""):
        if key in known:
            return key
    near = difflib.get_close_matches(name[:100], known, 3) or known
    raise NbprofError(f"there is no frame {name[:100]!r}; there are {join_some(near, 100)}.")


def named_frame(of: Profile | Comparison, name: str) -> pd.DataFrame:
    """A frame of a profile or a comparison.

    Parameters
    ----------
    of : Profile or Comparison
    name : str
        As in `nbprof.frames.SCHEMA`, or shorter, see `full_name`; "memory_viewer[jit_step(3)].at_peak" names a program.

    Raises
    ------
    NbprofError
        There is no such frame; says which are near.
    """
    key = full_name(of, name)
    value: Any = of
    if module := _OF_A_MODULE.fullmatch(name):
        if module["module"] == "module":
            raise NbprofError(f"put the name of a program for `module` in {key!r}; memory_viewer.modules lists them.")
        value, key = cast("Profile", of).memory_viewer[module["module"]], module["frame"]
    for part in key.removeprefix(_OF_A_COMPARISON).split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
        # Accessors are callable, too: p.roofline(...) is another roofline.
        if callable(value) and not hasattr(value, "_repr_mimebundle_"):
            value = value()
    return pd.DataFrame(value)
