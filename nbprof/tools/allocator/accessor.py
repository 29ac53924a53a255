"""`p.allocator`: what PyTorch's caching allocator held, what was stranded in it, and why memory ran
out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.tools.accessor import View

if TYPE_CHECKING:
    from nbprof.tools.accessor import Shown


class Allocator(View):
    """PyTorch's caching allocator, from a snapshot (`torch.cuda.memory._dump_snapshot`).

    A snapshot is a separate profile (`nbprof.load("snapshot.pickle")`), or is next to a trace of
    the same run, as nbprof's recordings with allocations create it. None of the pickle is run:
    nbprof's reader only accepts plain data.

    - reserved = allocated + pending + free: all segments; blocks in use; blocks that were freed
      while another stream used them.
    - stranded: free memory whose release is blocked by blocks in use, in their segments, or in
      their pages of expandable segments; PyTorch's `inactive_split_bytes`. Fragmentation is
      stranded divided by reserved.
    - The history has the requested sizes; the snapshot also the rounded-up sizes of blocks. The
      timeline uses the former.
    - A past state is replayed: entries are undone, starting from the snapshot. Sizes are rounded as
      the allocator does.

    Sources: c10/cuda/CUDACachingAllocator.cpp and torch.cuda.memory_stats of PyTorch 2.x.
    """

    def __init__(self, profile: Shown) -> None:
        super().__init__(profile, "allocator")

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = getattr(self._profile.run.allocator, name)
        return frame.copy()

    @property
    def summary(self) -> pd.DataFrame:
        """One row per device: reserved, allocated, free, stranded, fragmentation at the snapshot,
        and the peaks of the history.
        """
        return self._frame("summary")

    @property
    def segments(self) -> pd.DataFrame:
        """One row per segment of the snapshot: its blocks in use, pending and free, which add up to
        its size, and its stranded part.
        """
        return self._frame("segments")

    @property
    def blocks(self) -> pd.DataFrame:
        """One row per block of the snapshot, including free ones; the blocks of a segment fill
        it.
        """
        return self._frame("blocks")

    @property
    def timeline(self) -> pd.DataFrame:
        """One row per entry of the history, with the bytes reserved, allocated and active after it;
        it ends with the state of the snapshot.
        """
        return self._frame("timeline")

    @property
    def stranded(self) -> pd.DataFrame:
        """Blocks that prevent the release of free memory, by the stack that allocated them; most
        first.
        """
        return self._frame("stranded")

    @property
    def holders(self) -> pd.DataFrame:
        """Blocks in use by the line of the program that allocated them, the innermost of your own
        code; most bytes first.
        """
        return self._frame("holders")

    @property
    def roles(self) -> pd.DataFrame:
        """Memory at the snapshot by what it is used for, most first; with what is reserved and not
        allocated it adds up to the reserved bytes.

        By the stacks that allocated blocks, where they were recorded: state that an optimizer makes
        (`_init_group`, or in a step that it outlives), parameters and buffers of modules that are
        made on the device or moved to it, gradients that C++ frames name. A category that the
        snapshot states comes first. All else is `unknown`.
        """
        return self._frame("roles")

    @property
    def oom(self) -> pd.DataFrame:
        """One row for each time the memory ran out: the figures at that moment, what happened, and
        what to do.
        """
        return self._frame("oom")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the allocator (PYTORCH_CUDA_ALLOC_CONF and what follows from it), as the
        snapshot states them.
        """
        snapshot = self._profile.run.allocator.snapshot
        return dict(snapshot.settings) if snapshot is not None else {}

    @property
    def notes(self) -> list[str]:
        """One sentence for each thing that is unknown or could not be read from the snapshots."""
        return [note.text for note in self._profile.run.allocator.notes]

    def at(self, time_ms: float, device: int | None = None) -> pd.DataFrame:
        """Blocks at any moment of the history, in the columns of `blocks`.

        Parameters
        ----------
        time_ms : float
            As in `timeline`: all entries up to it have happened.
        device : int, optional
            The first by default.

        Raises
        ------
        NbprofError
            No snapshot or no such device, or `time_ms` is not a number.
        """
        from nbprof.analysis.allocator import allocator

        run = self._profile.run
        snapshot = run.allocator.snapshot
        replays = {replay.device: replay for replay in reversed(run.allocator.replays)}
        if device is None and replays:
            device = run.allocator.replays[0].device
        if snapshot is None or device not in replays:
            devices = ", ".join(str(replay.device) for replay in run.allocator.replays) or "none"
            raise NbprofError(
                f"there is no device {device!r} in the snapshots of this run; they have: {devices}"
            )
        try:
            known_time = not math.isnan(time_ms)
        except TypeError:
            known_time = False
        if not known_time:
            raise NbprofError(
                "time_ms must be a number of milliseconds since the first entry of the history"
            )
        replay = replays[device]
        moment = allocator.start_us(run.allocator.replays) + float(time_ms) * 1e3
        state = replay.state_after(
            int(np.searchsorted(replay.entries["time_us"], moment, side="right"))
        )
        return allocator.blocks(state, replay.device, run.allocator.stacks, snapshot.categories)

    def text(self) -> str:
        """A few lines: the figures of each device, what strands free memory, and why memory ran
        out.
        """
        from nbprof.tools.allocator import payload as drawn

        return drawn.text(self._profile.run)

    def __repr__(self) -> str:
        return self.text()
