"""Snapshots of PyTorch's allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from nbprof.run.frame import Group, cached
from nbprof.run.frames.recording import Recording
from nbprof.schema import frames

if TYPE_CHECKING:
    # What knows the columns of a snapshot is imported where one is read.
    from nbprof.analysis.allocator.stacks import Stacks
    from nbprof.analysis.allocator.state import Replay, State
    from nbprof.formats.torch_snapshot.snapshot import Snapshot


class AllocatorFrames(Group[Recording]):
    """Blocks and segments of an allocator: `run.allocator`."""

    prefix = "allocator_"

    @cached
    def _read(self) -> tuple[list[Snapshot], list[str]]:
        from nbprof.formats.torch_snapshot.memory import snapshots

        return snapshots(self.run.as_read, self.run.snapshot_pieces)

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot shown: of several, the one with the longest history."""
        found = self._read[0] if self.run.snapshot_pieces else []
        return max(
            found,
            key=lambda one: (len(one.entries["action"]), len(one.blocks["size"])),
            default=None,
        )

    @cached
    def notes(self) -> list[str]:
        """What could not be read or is unknown, one sentence each."""
        from nbprof.analysis.allocator import allocator

        if not self.run.snapshot_pieces:
            return []
        found, doubts = self._read
        shown = self.snapshot
        if shown is None:
            return doubts
        more = (
            [f"{len(found)} snapshots were found; the one with the longest history is shown."]
            if len(found) > 1
            else []
        )
        return [
            *doubts,
            *more,
            *shown.warnings,
            *shown.notes,
            *allocator.notes(shown, self.replays),
        ]

    @cached
    def replays(self) -> list[Replay]:
        """The history of each device that has segments or entries."""
        from nbprof.analysis.allocator.state import Replay

        shown = self.snapshot
        if shown is None:
            return []
        devices = sorted({*shown.entries["device"].tolist(), *shown.segments["device"].tolist()})
        return [Replay(shown, device) for device in devices]

    @cached
    def stacks(self) -> Stacks:
        """Stacks of the snapshot by their codes."""
        from nbprof.analysis.allocator.stacks import Stacks

        shown = self.snapshot
        return Stacks(shown.frames, shown.stacks) if shown is not None else Stacks([], [()])

    def state(self, device: int, entries: int | None = None) -> State:
        """State of a device's allocator after this many entries of its history; by default, at the
        snapshot.
        """
        replay = next(one for one in self.replays if one.device == device)
        return replay.end() if entries is None else replay.at(entries)

    @cached
    def summary(self) -> pd.DataFrame:
        """One row per device."""
        from nbprof.analysis.allocator import allocator

        return (
            allocator.summary(self.replays) if self.replays else frames.empty("allocator.summary")
        )

    @cached
    def segments(self) -> pd.DataFrame:
        """One row per segment."""
        from nbprof.analysis.allocator import allocator

        replays = self.replays
        return (
            allocator.segments(replays, self.stacks)
            if replays
            else frames.empty("allocator.segments")
        )

    @cached
    def blocks(self) -> pd.DataFrame:
        """One row per block at the snapshot."""
        from nbprof.analysis.allocator import allocator

        shown, replays = self.snapshot, self.replays
        if shown is None or not replays:
            return frames.empty("allocator.blocks")
        stacks = self.stacks
        parts = [
            allocator.blocks(replay.end(), replay.device, stacks, shown.categories)
            for replay in replays
        ]
        return pd.concat(parts, ignore_index=True)

    @cached
    def timeline(self) -> pd.DataFrame:
        """One row an entry of the history."""
        from nbprof.analysis.allocator import allocator

        replays = self.replays
        return (
            allocator.timeline(replays, self.stacks)
            if replays
            else frames.empty("allocator.timeline")
        )

    @cached
    def stranded(self) -> pd.DataFrame:
        """Which stacks keep free memory from being released."""
        from nbprof.analysis.allocator import allocator

        stacks, parts = self.stacks, [frames.empty("allocator.stranded")]
        for replay in self.replays:
            rows = allocator.pinning(replay.end(), stacks)
            if len(rows):
                rows.insert(0, "device", replay.device)
                parts.append(
                    rows.assign(stack=stacks.texts(rows["code"].to_numpy())).drop(columns="code")
                )
        return pd.concat(parts[1:] or parts, ignore_index=True)

    @cached
    def holders(self) -> pd.DataFrame:
        """Blocks in use by the line that allocated them."""
        from nbprof.analysis.allocator import allocator

        parts = [frames.empty("allocator.holders")]
        for replay in self.replays:
            rows = allocator.holders(replay.end(), self.stacks)
            rows.insert(0, "device", replay.device)
            parts.append(rows)
        return pd.concat(parts[1:] or parts, ignore_index=True)

    @cached
    def oom(self) -> pd.DataFrame:
        """One row per out-of-memory error."""
        from nbprof.analysis.allocator import oom as allocator_oom

        shown = self.snapshot
        if shown is None:
            return frames.empty("allocator.oom")
        return allocator_oom.frame(self.replays, self.stacks, shown.settings)
