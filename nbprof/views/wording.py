"""Numbers and names as a person reads them: those of `nbprof.screen.wording`, at hand for the views."""

from nbprof.screen.wording import (
    MISSING,
    bold_parts,
    duration,
    kernel,
    natural,
    number,
    one_line,
    percent,
    plain,
    plural,
    real,
    scale_bytes,
    size,
    tail,
)

__all__ = [
    "MISSING",
    "bold_parts",
    "duration",
    "kernel",
    "natural",
    "number",
    "one_line",
    "percent",
    "plain",
    "plural",
    "real",
    "scale_bytes",
    "size",
    "tail",
]
