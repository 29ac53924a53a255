"""A block in each rank of a job: the ranks become the hosts of one run, as with `nbprof run`.

Ranks of a job run the same program, so the first block of each is one run, the second the next, and
so on. What says so stays until all have ended it, so that a rank that is late finds the run.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
from typing import TYPE_CHECKING

from nbprof.capture import describe
from nbprof.capture.script.job import Job, Member, job
from nbprof.capture.script.run import shared_logdir

if TYPE_CHECKING:
    from nbprof.capture.options import Options
    from nbprof.capture.ranks import Position
    from nbprof.sources.recording import Recording

_numbers = itertools.count(1)
_last: list[BlockOfRank] = []
"""The last block of this process, unless all ranks have ended it."""


class BlockOfRank(Member):
    """A rank of a job whose ranks record the same block: this process."""

    unit = "block"

    def end(self, recording: Recording | None, error: BaseException | None) -> None:
        """State how the block of this rank has ended. Never raises.

        Parameters
        ----------
        recording : Recording or None
        error : exception or None
            The exception that ended the block.
        """
        info = recording.info if recording is not None else None
        failure = info.error if info is not None else ""
        if info is None and error is not None:
            failure = describe.failure(error, None, 0, self.unit)
        # The run has the files of this rank in any case.
        with contextlib.suppress(OSError):
            self.state(info, over=True, error=failure)
            if sum(bool(row["ended"]) for row in self._ends) == self.size:
                _last.clear()
                shutil.rmtree(self._home, ignore_errors=True)


def join(position: Position, options: Options) -> BlockOfRank | None:
    """Join the run of the next block; None if this rank records a run of its own."""
    _leave_last()
    number = next(_numbers)
    # Nothing of nbprof may fail the block.
    with contextlib.suppress(Exception):
        logdir = shared_logdir(options)
        if logdir is not None:
            identity = job(position, os.environ).identity
            _last.append(BlockOfRank(Job(f"{identity}-{number}", position), logdir))
            return _last[0]
    return None


@atexit.register
def _leave_last() -> None:
    while _last:
        with contextlib.suppress(OSError):
            _last.pop().leave()
