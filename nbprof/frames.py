"""The schema of the public frames: `SCHEMA["steps"]` lists the columns of `p.steps.frame`."""

from __future__ import annotations

from nbprof.schema import frames, hlo

__all__ = ["SCHEMA"]

SCHEMA = {**frames.SCHEMA, **hlo.SCHEMA}
