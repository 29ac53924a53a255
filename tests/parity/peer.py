"""What the peers say of the real profiles, as data frames, and how ours are held against it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbprof.profiles.load import load
from nbprof.profiles.profile import Profile
from tests.support.profiles import ROOT, expected, real

XPROF = "xprof-2.24.2"
GUIDE = "guide-era"
NAMES = (
    "tf-gpu/rtx5000-cnn-batch8",
    "tf-gpu/rtx5000-cnn-batch64",
    "tf-gpu/rtx5000-cnn-batch512",
    "tf-gpu/t4-one-step",
    "tf-gpu/v100x8-collectives",
    "tf-cpu/prefetch-example",
    "tf-cpu/prefetch-128-empty-gpu-plane",
    "jax/gtx1080ti-reactant",
    "jax/mi300-jax08_attention",
    "jax/mi300-jax_conv_minimal_08",
    "jax/tpu-v6e-inference",
)
"""Every real profile with XProf's answers."""
GUIDE_NAMES = (*NAMES[:4], *NAMES[5:7])
"""Those with the answers that TensorFlow wrote when they were recorded."""

_loaded: dict[str, Profile] = {}


def profile(name: str) -> Profile:
    """The profile of a name, read once a test run; skips where it is not beside the checkout."""
    if name not in _loaded:
        _loaded[name] = load(real(name))
    return _loaded[name]


def table(data: dict[str, Any]) -> pd.DataFrame:
    """A table of Google's visualization JSON as a frame, columns by their ids; its properties are
    in `.attrs`.
    """
    ids = [c["id"] for c in data["cols"]]
    rows = [[None if cell is None else cell.get("v") for cell in row["c"]] for row in data["rows"]]
    out = pd.DataFrame(rows, columns=ids)
    out.attrs.update(data.get("p", {}))
    return out


def xprof(name: str, tool: str) -> list[pd.DataFrame]:
    """The tables of one of XProf's tools, in its order; a place that holds none is an empty
    frame.
    """
    return tables(expected(name, XPROF, tool))


def tables(answer: Any) -> list[pd.DataFrame]:
    """The tables of what XProf's converter gave: one, or a list of several."""
    if isinstance(answer, (str, bytes)):
        answer = json.loads(answer)
    return [
        table(t) if t and "cols" in t else pd.DataFrame()
        for t in (answer if isinstance(answer, list) else [answer])
    ]


def guide(name: str, tool: str) -> Any:
    """What TensorFlow itself wrote for a tool: its protobuf as JSON."""
    return expected(name, GUIDE, tool)


@dataclass(frozen=True)
class Deviation:
    """A figure in which nbprof differs from a peer on purpose.

    Attributes
    ----------
    tool, column : str
        The peer's tool, and our column or what is counted.
    peer : str
        XPROF or GUIDE.
    profiles : tuple of str
        Where it shows.
    reason : str
        Why ours is right for the person who reads it.
    test : str
        The test that holds our own value: `file::function` below tests/.
    """

    tool: str
    column: str
    peer: str
    profiles: tuple[str, ...]
    reason: str
    test: str


def same(ours: Any, theirs: Any, what: str, rel: float = 1e-6, absolute: float = 0.0) -> None:
    """Holds one column against the peer's: texts and counts are equal, figures within `rel`; a
    difference names its row.
    """
    mine, other = list(ours), list(theirs)
    assert len(mine) == len(other), f"{what}: {len(mine)} rows, the peer has {len(other)}"
    for row, (a, b) in enumerate(zip(mine, other, strict=True)):
        if isinstance(b, (bool, np.bool_, str)) or b is None:
            assert a == b, f"{what}, row {row}: {a!r}, the peer has {b!r}"
        else:
            assert a == pytest.approx(b, rel=rel, abs=absolute), (
                f"{what}, row {row}: {a!r}, the peer has {b!r}"
            )


def there() -> bool:
    """Whether the real profiles are beside this checkout."""
    return Path(ROOT).exists()
