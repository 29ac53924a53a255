"""The schema of the public frames: `SCHEMA["kernels.by_name"]` lists the columns of
`p.kernels.by_name()`.
"""

from __future__ import annotations

from nbprof.schema import frames
from nbprof.schema.columns import Col

__all__ = ["SCHEMA"]


class _Frames(dict[str, list[Col]]):
    """Frames by their name; the name of a view alone stands for its main frame: "steps" is
    "steps.frame".
    """

    def __missing__(self, name: str) -> list[Col]:
        if f"{name}.frame" in self:
            return self[f"{name}.frame"]
        raise KeyError(name)


SCHEMA = _Frames(frames.SCHEMA)
"""The columns of each frame, in order, by its path under `p.`; docs/numbers.md lists them all."""
