"""The built front end (nbprof/static/dashboard.js), read once."""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

from nbprof.core.errors import NbprofError
from nbprof.display import codec

PATH = Path(__file__).parents[2] / "static" / "dashboard.js"


def script() -> str:
    """The text of the ES module.

    Raises
    ------
    NbprofError
        It has not been built.
    """
    try:
        return PATH.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NbprofError(
            f"{PATH}: the front end of nbprof has not been built. `pip install .` builds it; in a source tree, `npm ci && npm run "
            "build` does."
        ) from error


def packed() -> str | None:
    """The gzipped module as `codec.to_text` writes it; None where it was never built, so that a report is static and not impossible."""
    try:
        return _packed(PATH, PATH.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


@lru_cache(maxsize=2)
def _packed(path: Path, changed: int) -> str:  # noqa: ARG001  a new build is a new entry of the cache
    return codec.to_text(gzip.compress(path.read_bytes(), 9, mtime=0))
