"""Collect the output of native libraries on stderr while a profiler starts or stops.

It is passed on, except for log lines of the profiler.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_CHATTER = re.compile(
    r"(?:USDT|STAGE|INFO|VERBOSE):\d{4}-"
    r"|ERROR:\d{4}-.*gpuGetDeviceCount failed with code (?:35|100)$"
)
"""Lines on the profiler's start and stop. A build of PyTorch for CUDA logs an error on a machine
without a driver (35) or a GPU (100), of which the receipt has a note.
"""


@contextlib.contextmanager
def stderr_lines() -> Iterator[list[str]]:
    """Collect the lines that arrive at file descriptor 2 in the block.

    The list is filled when the block ends.

    PyTorch's profiler logs there that it starts and stops, which looks like an error below the
    cell. Everything else is written to stderr when the block has ended, so nothing is lost. Meant
    for short calls: other threads write there too.
    """
    lines: list[str] = []
    try:
        sys.stderr.flush()
        original = os.dup(2)
    except (OSError, ValueError, AttributeError):
        # This process has no stderr.
        yield lines
        return
    try:
        with tempfile.TemporaryFile() as caught:
            os.dup2(caught.fileno(), 2)
            try:
                yield lines
            finally:
                os.dup2(original, 2)
                caught.seek(0)
                lines += caught.read().decode(errors="replace").splitlines()
                rest = "".join(f"{line}\n" for line in lines if not _CHATTER.match(line))
                with contextlib.suppress(OSError):
                    os.write(2, rest.encode())
    finally:
        os.close(original)
