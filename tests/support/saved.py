"""What an output or a page of a profile holds, as its reader finds it."""

from __future__ import annotations

import re
from typing import Any

from nbprof.display import codec


def packed_of(output: dict[str, Any] | str) -> bytes:
    """The packed payload of an output, or of a page."""
    html = output if isinstance(output, str) else output["text/html"]
    found = re.search(r'\bconst data = "([^"]*)"', html)
    assert found, "the HTML holds no data"
    return codec.from_text(found[1])


def payload_of(output: dict[str, Any] | str) -> dict[str, Any]:
    """The payload of an output, or of a page."""
    return codec.unpack(packed_of(output))
