"""Coverage-guided fuzzing of the XSpace reader, held against the protobuf library.

    pip install atheris protobuf
    python -m tests.fuzz.xspace corpus/ -max_total_time=3600 -max_len=4096

Atheris is no dependency of the tests; what it finds becomes a small test in tests/formats. An input
is either the bytes of a file, or, with an even first byte, the choices of
`tests.support.xspace_random`, which get deeper than bytes do. Small limits make short files take
the ways of long ones.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["nbprof.formats"]):
    from nbprof.core.errors import ReadError
    from nbprof.core.files import LocalFile
    from nbprof.formats.xspace import xspace
from tests.support.xspace_check import check, small_limits
from tests.support.xspace_random import Writer, damaged


class Choices:
    """The choices of the fuzzer, in the place of random ones."""

    def __init__(self, data: bytes) -> None:
        self.data = atheris.FuzzedDataProvider(data)

    def randrange(self, stop: int) -> int:
        return self.data.ConsumeIntInRange(0, stop - 1)


PATH = Path(tempfile.mkdtemp()) / "fuzzed.xplane.pb"


def one(data: bytes) -> None:
    if data and data[0] % 2 == 0:
        chance = Choices(data[1:])
        file = Writer(chance).space()
        if data[0] % 4 == 0:
            file = damaged(file, chance)
    else:
        file = data[1:]
    PATH.write_bytes(file)
    try:
        trace = xspace.read([LocalFile(PATH)])
    except ReadError as error:
        trace = error
    check(file, trace)


if __name__ == "__main__":
    small_limits()
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
