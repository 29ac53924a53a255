"""The built front end: nbprof/static/dashboard.js, usual.js without rare tabs, and site.js."""

from __future__ import annotations

import contextlib
import gzip
import struct
import zlib
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from nbprof.core.errors import NbprofError
from nbprof.display import codec
from nbprof.tools.names import RARE

PATH = Path(__file__).parents[2] / "static" / "dashboard.js"


def script(name: str = "") -> str:
    """The text of a module of the front end, that of all tabs by default.

    Raises
    ------
    NbprofError
        It has not been built.
    """
    path = PATH.with_name(name or PATH.name)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NbprofError(
            f"{path}: the front end of nbprof has not been built. `pip install .` builds it; in a"
            " source tree, `npm ci && npm run build` does."
        ) from error


class Module(NamedTuple):
    """A module of the front end, as an output holds it.

    Parameters
    ----------
    kind : str
        Empty for the module that draws every tab. Outputs of one version and kind on a page share a
        running copy.
    text : str
        The gzipped module as `codec.to_text` writes it.
    """

    kind: str
    text: str


def module(tabs: Collection[str] | None = None) -> Module | None:
    """The smallest module that draws these tabs, or all tabs by default.

    None if it was never built: then the report is static.
    """
    kinds = ["usual", ""]
    if tabs is None or RARE.intersection(tabs):
        kinds = [""]
    for kind in kinds:
        path = PATH.with_name(f"{kind}.js") if kind else PATH
        with contextlib.suppress(FileNotFoundError):
            return Module(kind, _packed(path, path.stat().st_mtime_ns))
    return None


@lru_cache(maxsize=4)
def _packed(path: Path, changed: int) -> str:  # noqa: ARG001  a key for the cache
    script = path.read_bytes()
    # The build compresses it, too, which takes as long as a small analysis.
    with contextlib.suppress(OSError):
        built = path.with_name(f"{path.name}.gz").read_bytes()
        if built[-8:] == struct.pack("<II", zlib.crc32(script), len(script)):
            return codec.to_text(built)
    return codec.to_text(gzip.compress(script, 9, mtime=0))
