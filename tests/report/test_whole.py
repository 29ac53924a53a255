"""A file that cannot be written leaves the one that was there, and says what it needs."""

from __future__ import annotations

import errno
import os

import pytest

from nbprof.core.errors import NbprofError
from nbprof.core.whole import written


def test_a_file_is_there_when_it_is_whole(tmp_path):
    target = tmp_path / "report.html"
    with written(target, "report") as file:
        file.write(b"new")
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("number", "size", "says"),
    [
        (
            errno.ENOSPC,
            3 << 20,
            r"No space left on device\). It needs 3 MiB: free some space, or choose a folder on another disk \(.+ free here\)",
        ),
        (errno.ENOSPC, None, r"No space left on device\). Free some space, or choose a folder on another disk"),
        (errno.EACCES, 3, r"Permission denied\). Choose a folder that you may write to\.$"),
    ],
)
def test_a_disk_that_does_not_take_it_leaves_what_was_there(tmp_path, number, size, says):
    target = tmp_path / "report.html"
    target.write_text("before")

    def fail():
        with written(target, "report", size) as file:
            file.write(b"half")
            raise OSError(number, os.strerror(number))

    with pytest.raises(NbprofError, match=rf"report\.html: the report could not be written \({says}"):
        fail()
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]
