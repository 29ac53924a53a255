"""Snapshots of PyTorch's allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from nbprof.run.lazy import Cached
from nbprof.run.parts_base import Base
from nbprof.schema import frames

if TYPE_CHECKING:
    from nbprof.analysis.allocator.stacks import Stacks
    from nbprof.analysis.allocator.state import Replay, State
    from nbprof.core.files import SourceFile
    from nbprof.formats.torch_snapshot.snapshot import Snapshot


class Allocator(Base):
    """Frames of the blocks and segments of an allocator.

    Attributes
    ----------
    snapshot_pieces : sequence of SourceFile
        Files of snapshots: the profile itself, or what lies beside its trace.
    """

    snapshot_pieces: Sequence[SourceFile] = ()

    @Cached
    def _allocator_read(self) -> tuple[list[Snapshot], list[str]]:
        from nbprof.formats.torch_snapshot.memory import snapshots

        return snapshots(self._trace, self.snapshot_pieces)

    @property
    def allocator_snapshot(self) -> Snapshot | None:
        """The snapshot that is shown: of several the one with the longest history."""
        found = self._allocator_read[0] if self.snapshot_pieces else []
        return max(found, key=lambda one: (len(one.entries["action"]), len(one.blocks["size"])), default=None)

    @Cached
    def allocator_notes(self) -> list[str]:
        """What could not be read or is not known, a sentence each."""
        from nbprof.analysis.allocator import allocator

        if not self.snapshot_pieces:
            return []
        found, doubts = self._allocator_read
        shown = self.allocator_snapshot
        if shown is None:
            return doubts
        more = [f"{len(found)} snapshots are here; the one with the longest history is shown."] if len(found) > 1 else []
        return [*doubts, *more, *shown.warnings, *shown.notes, *allocator.notes(shown, self.allocator_replays)]

    @Cached
    def allocator_replays(self) -> list[Replay]:
        """The history of each device that has segments or entries."""
        from nbprof.analysis.allocator.state import Replay

        shown = self.allocator_snapshot
        if shown is None:
            return []
        devices = sorted({*shown.entries["device"].tolist(), *shown.segments["device"].tolist()})
        return [Replay(shown, device) for device in devices]

    @Cached
    def allocator_stacks(self) -> Stacks:
        """Stacks of the snapshot by their codes."""
        from nbprof.analysis.allocator.stacks import Stacks

        shown = self.allocator_snapshot
        return Stacks(shown.frames, shown.stacks) if shown is not None else Stacks([], [()])

    def allocator_state(self, device: int, entries: int | None = None) -> State:
        """What a device's allocator held after so many entries of its history; at the snapshot when left out."""
        replay = next(one for one in self.allocator_replays if one.device == device)
        return replay.end() if entries is None else replay.at(entries)

    @Cached
    def allocator_summary(self) -> pd.DataFrame:
        """One row a device."""
        from nbprof.analysis.allocator import allocator

        return allocator.summary(self.allocator_replays) if self.allocator_replays else frames.empty("allocator.summary")

    @Cached
    def allocator_segments(self) -> pd.DataFrame:
        """One row a segment."""
        from nbprof.analysis.allocator import allocator

        replays = self.allocator_replays
        return allocator.segments(replays, self.allocator_stacks) if replays else frames.empty("allocator.segments")

    @Cached
    def allocator_blocks(self) -> pd.DataFrame:
        """One row a block at the snapshot."""
        from nbprof.analysis.allocator import allocator

        shown, replays = self.allocator_snapshot, self.allocator_replays
        if shown is None or not replays:
            return frames.empty("allocator.blocks")
        stacks = self.allocator_stacks
        parts = [allocator.blocks(replay.end(), replay.device, stacks, shown.categories) for replay in replays]
        return pd.concat(parts, ignore_index=True)

    @Cached
    def allocator_timeline(self) -> pd.DataFrame:
        """One row an entry of the history."""
        from nbprof.analysis.allocator import allocator

        replays = self.allocator_replays
        return allocator.timeline(replays, self.allocator_stacks) if replays else frames.empty("allocator.timeline")

    @Cached
    def allocator_stranded(self) -> pd.DataFrame:
        """Which stacks keep free memory from being given back."""
        from nbprof.analysis.allocator import allocator

        stacks, parts = self.allocator_stacks, [frames.empty("allocator.stranded")]
        for replay in self.allocator_replays:
            rows = allocator.pinning(replay.end(), stacks)
            if len(rows):
                rows.insert(0, "device", replay.device)
                parts.append(rows.assign(stack=stacks.texts(rows["code"].to_numpy())).drop(columns="code"))
        return pd.concat(parts[1:] or parts, ignore_index=True)

    @Cached
    def allocator_holders(self) -> pd.DataFrame:
        """Blocks in use by the line that allocated them."""
        from nbprof.analysis.allocator import allocator

        parts = [frames.empty("allocator.holders")]
        for replay in self.allocator_replays:
            rows = allocator.holders(replay.end(), self.allocator_stacks)
            rows.insert(0, "device", replay.device)
            parts.append(rows)
        return pd.concat(parts[1:] or parts, ignore_index=True)

    @Cached
    def allocator_oom(self) -> pd.DataFrame:
        """One row a time the memory ran out."""
        from nbprof.analysis.allocator import oom as allocator_oom

        shown = self.allocator_snapshot
        if shown is None:
            return frames.empty("allocator.oom")
        return allocator_oom.frame(self.allocator_replays, self.allocator_stacks, shown.settings)
