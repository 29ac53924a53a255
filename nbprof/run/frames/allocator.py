"""Snapshots of PyTorch's allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from nbprof.run import notes
from nbprof.run.frame import Group, cached
from nbprof.run.frames.recording import Recording
from nbprof.schema import frames

if TYPE_CHECKING:
    # Imported when a snapshot is read, as most profiles have none.
    from nbprof.analysis.allocator.stacks import Stacks
    from nbprof.analysis.allocator.state import Replay, State
    from nbprof.core.receipt import Note
    from nbprof.formats.torch_snapshot.snapshot import Snapshot


class AllocatorFrames(Group[Recording]):
    """Blocks and segments of an allocator: `run.allocator`."""

    prefix = "allocator_"

    @cached
    def _read(self) -> tuple[list[Snapshot], list[Note]]:
        from nbprof.formats.torch_snapshot.memory import snapshots

        return snapshots(self.run.as_read, self.run.snapshot_pieces)

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot with the longest history."""
        if not self.run.snapshot_pieces:
            return None
        return max(self._read[0], key=_snapshot_size, default=None)

    @cached
    def notes(self) -> list[Note]:
        """Notes on files that could not be read, and on unknown figures."""
        from nbprof.analysis.allocator import allocator

        if not self.run.snapshot_pieces:
            return []
        snapshots, result = self._read
        snapshot = self.snapshot
        if snapshot is None:
            return result
        result = [*result]
        if len(snapshots) > 1:
            result.append(notes.other_snapshots(len(snapshots)))
        return [*result, *snapshot.notes, *allocator.notes_on(snapshot, self.replays)]

    @cached
    def replays(self) -> list[Replay]:
        """The history of each device that has segments or entries."""
        from nbprof.analysis.allocator.state import Replay

        snapshot = self.snapshot
        if snapshot is None:
            return []
        devices = {*snapshot.entries["device"].tolist(), *snapshot.segments["device"].tolist()}
        return [Replay(snapshot, device) for device in sorted(devices)]

    @cached
    def stacks(self) -> Stacks:
        """Stacks of the snapshot by their codes."""
        from nbprof.analysis.allocator.stacks import Stacks

        snapshot = self.snapshot
        if snapshot is None:
            return Stacks([], [()])
        return Stacks(snapshot.frames, snapshot.stacks)

    def state(self, device: int, entries: int | None = None) -> State:
        """A device's allocator after this many entries of its history; by default, after all."""
        replay = next(replay for replay in self.replays if replay.device == device)
        return replay.end() if entries is None else replay.state_after(entries)

    @cached
    def summary(self) -> pd.DataFrame:
        """One row per device."""
        from nbprof.analysis.allocator import allocator

        if not self.replays:
            return frames.empty("allocator.summary")
        return allocator.summary(self.replays)

    @cached
    def segments(self) -> pd.DataFrame:
        """One row per segment."""
        from nbprof.analysis.allocator import allocator

        if not self.replays:
            return frames.empty("allocator.segments")
        return allocator.segments(self.replays, self.stacks)

    @cached
    def blocks(self) -> pd.DataFrame:
        """One row per block at the snapshot."""
        from nbprof.analysis.allocator import allocator

        snapshot, replays = self.snapshot, self.replays
        if snapshot is None or not replays:
            return frames.empty("allocator.blocks")
        stacks = self.stacks
        parts = [
            allocator.blocks(replay.end(), replay.device, stacks, snapshot.categories)
            for replay in replays
        ]
        return pd.concat(parts, ignore_index=True)

    @cached
    def timeline(self) -> pd.DataFrame:
        """One row per entry of the history."""
        from nbprof.analysis.allocator import allocator

        if not self.replays:
            return frames.empty("allocator.timeline")
        return allocator.timeline(self.replays, self.stacks)

    @cached
    def stranded(self) -> pd.DataFrame:
        """Stacks that keep free memory from being released."""
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
    def roles(self) -> pd.DataFrame:
        """Memory at the snapshot by what it is used for."""
        from nbprof.analysis.allocator import roles

        snapshot = self.snapshot
        if snapshot is None:
            return frames.empty("allocator.roles")
        return roles.roles(snapshot, self.replays)

    @cached
    def by_stack(self) -> pd.DataFrame:
        """Blocks in use at the snapshot by the stack that allocated them; no rows without one."""
        from nbprof.analysis.allocator import allocator

        parts = [allocator.by_stack(replay, self.stacks) for replay in self.replays]
        if not parts:
            return pd.DataFrame()
        return pd.concat(parts, ignore_index=True)

    @property
    def roles_of_leading(self) -> pd.DataFrame:
        """The rows of `roles` of the device with the most reserved memory."""
        rows = self.roles
        if not len(rows):
            return rows
        return rows[rows["device"] == rows.groupby("device")["bytes"].sum().idxmax()]

    @cached
    def oom(self) -> pd.DataFrame:
        """One row per out-of-memory error."""
        from nbprof.analysis.allocator import oom as allocator_oom

        snapshot = self.snapshot
        if snapshot is None:
            return frames.empty("allocator.oom")
        return allocator_oom.frame(self.replays, self.stacks, snapshot.settings)


def _snapshot_size(snapshot: Snapshot) -> tuple[int, int]:
    return len(snapshot.entries["action"]), len(snapshot.blocks["size"])
