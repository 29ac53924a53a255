"""The state of PyTorch's allocator at a moment: segments and blocks, replayed from the history,
and what of them is stranded.

Rules of c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.x): sizes are rounded up to 512 bytes
(`round_size`); in a large segment a rest of at most 1 MiB stays with its block (`should_split`);
empty_cache gives back segments without a block in use, and of expandable segments the pages that no
block in use touches (`release_blocks`, `release_expandable_segment`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.runs import expand
from nbprof.formats.torch_snapshot.snapshot import (
    ALLOC,
    ALLOCATED,
    FREE_COMPLETED,
    FREE_REQUESTED,
    INACTIVE,
    PENDING,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    UNKNOWN,
    Int64s,
    Snapshot,
)

NEVER = np.iinfo(np.int64).max
ROUND, SMALL, SMALL_PAGE, LARGE_PAGE = 512, 1 << 20, 2 << 20, 20 << 20
_MOST_PAGES = 1 << 21
_MOST_BYTES, _MOST_ADDRESS = 1 << 42, 1 << 58
SEGMENT_COLUMNS = ("address", "size", "stream", "large", "pool", "pool_b", "expandable", "stack")


@dataclass
class State:
    """Segments and blocks of one device at a moment.

    Attributes
    ----------
    segments : DataFrame
        `address size stream large pool pool_b expandable stack`, by address.
    blocks : DataFrame
        `segment address size requested state stack category`: `segment` is a row of the segments.
        Free blocks are there too, so that the blocks of a segment fill it.
    doubts : int
        Blocks of the history that lie in no segment, or over another: left out.
    """

    segments: pd.DataFrame
    blocks: pd.DataFrame
    doubts: int = 0


@dataclass
class Lives:
    """Blocks of one device from when they are given out to when they are free again, in numbers of
    entries of its history.

    `born` is -1 for what was there before it began; `asked_back` and `ended` are `NEVER` for what
    was not freed in it.
    """

    address: Int64s
    requested: Int64s
    size: Int64s
    born: Int64s
    asked_back: Int64s
    ended: Int64s
    stack: Int64s
    category: Int64s


class Replay:
    """The history of one device.

    Parameters
    ----------
    snapshot : Snapshot
    device : int
    """

    def __init__(self, snapshot: Snapshot, device: int) -> None:
        self.device, self.backend = device, snapshot.backend
        rows = np.flatnonzero(snapshot.entries["device"] == device)
        self.entries = {name: column[rows] for name, column in snapshot.entries.items()}
        # No device has that much; sums of such numbers would be of no use.
        size, address = self.entries["size"], self.entries["address"]
        self.entries["size"] = np.where((size < 0) | (size > _MOST_BYTES), 0, size)
        self.entries["address"] = np.where(
            (address < 0) | (address > _MOST_ADDRESS), UNKNOWN, address
        )
        of_device = np.flatnonzero(snapshot.segments["device"] == device)
        of_device = of_device[np.argsort(snapshot.segments["address"][of_device], kind="stable")]
        self._segments = pd.DataFrame(
            {name: snapshot.segments[name][of_device] for name in SEGMENT_COLUMNS}
        )
        of_segment, blocks = expand(
            snapshot.segments["first"][of_device], snapshot.segments["blocks"][of_device]
        )
        self._blocks = pd.DataFrame(
            {
                "segment": of_segment,
                **{name: column[blocks] for name, column in snapshot.blocks.items()},
            }
        )
        # Blocks of a file that was cut short do not follow from an end that nobody wrote.
        self.is_complete = not snapshot.cut
        self._lives: Lives | None = None

    @property
    def name(self) -> str:
        """The name of the device, such as `GPU 0`."""
        return f"{self.backend.chip} {self.device}"

    @property
    def count(self) -> int:
        """Number of entries."""
        return len(self.entries["action"])

    def end(self) -> State:
        """The state that the snapshot itself records."""
        return State(self._segments, self._blocks)

    def levels(self) -> dict[str, Int64s]:
        """`reserved`, `allocated` and `active` bytes after each entry; of blocks what was asked
        for, as the history has no other size.

        They end at what the snapshot states. Of a file that was cut short they count from the least
        that the entries allow.
        """
        action, size = self.entries["action"], np.maximum(self.entries["size"], 0)
        requested, state = (
            self._blocks["requested"].to_numpy(np.int64),
            self._blocks["state"].to_numpy(np.int64),
        )
        settings = {
            "allocated": requested[state == ALLOCATED].sum(),
            "active": requested[state != INACTIVE].sum(),
        }
        ends = {**settings, "reserved": self._segments["size"].sum()}
        moves = {
            "reserved": ((SEGMENT_ALLOC, SEGMENT_MAP), (SEGMENT_FREE, SEGMENT_UNMAP)),
            "allocated": ((ALLOC,), (FREE_REQUESTED,)),
            "active": ((ALLOC,), (FREE_COMPLETED,)),
        }
        columns = {}
        for name, (up, down) in moves.items():
            run = np.cumsum(
                np.where(np.isin(action, up), size, 0) - np.where(np.isin(action, down), size, 0)
            )
            least = -min(int(run.min(initial=0)), 0)
            base = int(ends[name]) - int(run[-1]) if self.is_complete and len(run) else least
            columns[name] = np.maximum(run + base, 0)
        return columns

    def before(self) -> dict[str, int]:
        """The levels before the first entry."""
        action, size = self.entries["action"][:1], self.entries["size"][:1]
        levels = self.levels()
        if not len(action):
            return dict.fromkeys(levels, 0)
        signs = {
            "reserved": {SEGMENT_ALLOC: 1, SEGMENT_MAP: 1, SEGMENT_FREE: -1, SEGMENT_UNMAP: -1},
            "allocated": {ALLOC: 1, FREE_REQUESTED: -1},
            "active": {ALLOC: 1, FREE_COMPLETED: -1},
        }
        return {
            name: max(int(run[0]) - signs[name].get(int(action[0]), 0) * int(size[0]), 0)
            for name, run in levels.items()
        }

    @property
    def lives(self) -> Lives:
        """Every block that was in use at some time."""
        if self._lives is None:
            self._lives = self._make_lives()
        return self._lives

    def _make_lives(self) -> Lives:
        order, group = self._groups((ALLOC, FREE_REQUESTED, FREE_COMPLETED), ALLOC)
        entries = self.entries
        action = entries["action"][order]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        if len(starts):
            first = order[starts]
            is_alloc = action[starts] == ALLOC
            ended = np.minimum.reduceat(np.where(action == FREE_COMPLETED, order, NEVER), starts)
            back = np.minimum.reduceat(np.where(action == FREE_REQUESTED, order, NEVER), starts)
            # A block that is given out once more was freed, whatever became of the entry that said
            # so.
            again = np.append(
                entries["address"][first][1:] == entries["address"][first][:-1], [False]
            )
            ended = np.where(again & (ended == NEVER), np.append(first[1:], [0]), ended)
            address, asked = entries["address"][first], np.maximum(entries["size"][first], 0)
            born = np.where(is_alloc, first, -1)
            stack = np.where(is_alloc, entries["stack"][first], 0)
            category = np.where(is_alloc, entries["category"][first], UNKNOWN)
        else:
            address = asked = born = back = ended = stack = category = np.zeros(0, np.int64)
        size = np.maximum(-(-asked // ROUND) * ROUND, ROUND)
        used = self._blocks[self._blocks["state"] != INACTIVE]
        if self.is_complete:
            # Blocks in use at the end have their true sizes; some are older than the
            # history.
            open_lives = np.flatnonzero(ended == NEVER)
            open_lives = open_lives[np.argsort(address[open_lives], kind="stable")]
            here = used["address"].to_numpy(np.int64)
            position = np.searchsorted(address[open_lives], here)
            covered = np.zeros(len(here), np.bool_)
            is_within = position < len(open_lives)
            covered[is_within] = address[open_lives[position[is_within]]] == here[is_within]
            row = open_lives[position[covered]]
            size[row] = used["size"].to_numpy(np.int64)[covered]
            stack[row] = np.where(
                stack[row] > 0, stack[row], used["stack"].to_numpy(np.int64)[covered]
            )
            older = used[~covered]
            count = len(older)
            pending = (older["state"] == PENDING).to_numpy()
            address = np.concatenate([address, older["address"]])
            asked = np.concatenate([asked, older["requested"]])
            size = np.concatenate([size, older["size"]])
            born = np.concatenate([born, np.full(count, -1)])
            back = np.concatenate([back, np.where(pending, -1, NEVER)])
            ended = np.concatenate([ended, np.full(count, NEVER)])
            stack = np.concatenate([stack, older["stack"]])
            category = np.concatenate([category, older["category"]])
        return Lives(address, asked, size, born, back, ended, stack, category)

    def _groups(self, actions: tuple[int, ...], opening: int) -> tuple[Int64s, Int64s]:
        """Entries of some actions by address and time, and which of them are of one life."""
        rows = np.flatnonzero(
            np.isin(self.entries["action"], actions) & (self.entries["address"] >= 0)
        )
        order = rows[np.lexsort((rows, self.entries["address"][rows]))]
        address = self.entries["address"][order]
        opens = (self.entries["action"][order] == opening) | (np.diff(address, prepend=-1) != 0)
        return order, np.cumsum(opens)

    def state_after(self, count: int) -> State:
        """Segments and blocks after this many entries."""
        if count >= self.count and self.is_complete:
            return self.end()
        segments = pd.concat([self._plain_segments(count), self._mapped(count)], ignore_index=True)
        segments = segments.sort_values("address", kind="stable", ignore_index=True)
        lives = self.lives
        alive = np.flatnonzero((lives.born < count) & (lives.ended >= count))
        alive = alive[np.argsort(lives.address[alive], kind="stable")]
        return _laid_out(segments, lives, alive, lives.asked_back[alive] < count)

    def _plain_segments(self, count: int) -> pd.DataFrame:
        entries = self.entries
        order, group = self._groups((SEGMENT_ALLOC, SEGMENT_FREE), SEGMENT_ALLOC)
        if self.is_complete:
            final = self._segments[self._segments["expandable"] == 0]
        else:
            final = self._segments.iloc[:0]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        first = order[starts]
        action = entries["action"][order]
        if len(starts):
            freed = np.minimum.reduceat(np.where(action == SEGMENT_FREE, order, NEVER), starts)
        else:
            freed = first
        born = np.where(action[starts] == SEGMENT_ALLOC, first, -1)
        # Those of the snapshot that the history has the start of.
        last = dict(
            zip(
                entries["address"][first][freed == NEVER].tolist(),
                born[freed == NEVER].tolist(),
                strict=True,
            )
        )
        began = np.array([last.get(address, -1) for address in final["address"].tolist()], np.int64)
        gone = (born < count) & (freed >= count) & ((freed < NEVER) | (not self.is_complete))
        rows = first[gone]
        size = entries["size"][rows]
        before = pd.DataFrame(
            {
                "address": entries["address"][rows],
                "size": size,
                "stream": entries["stream"][rows],
                # Small segments are all of one size, and large ones never of that.
                "large": (size != SMALL_PAGE).astype(np.int64),
                "pool": entries["pool"][rows],
                "pool_b": entries["pool_b"][rows],
                "expandable": np.zeros(len(rows), np.int64),
                "stack": entries["stack"][rows],
            }
        )
        return pd.concat([final[began < count], before], ignore_index=True)

    def _mapped(self, count: int) -> pd.DataFrame:
        """Stretches of expandable segments that were mapped: what is at the end, less what was
        mapped since, and what was unmapped.
        """
        if self.is_complete:
            final = self._segments[self._segments["expandable"] == 1]
        else:
            final = self._segments.iloc[:0]
        action = self.entries["action"]
        numbers = np.arange(len(action))
        if self.is_complete:
            rows = np.flatnonzero(
                np.isin(action, (SEGMENT_MAP, SEGMENT_UNMAP)) & (numbers >= count)
            )
            sign = np.where(action[rows] == SEGMENT_MAP, -1, 1)
        else:
            rows = np.flatnonzero(np.isin(action, (SEGMENT_MAP, SEGMENT_UNMAP)) & (numbers < count))
            sign = np.where(action[rows] == SEGMENT_MAP, 1, -1)
        address, size = self.entries["address"][rows], self.entries["size"][rows]
        start = np.concatenate([final["address"].to_numpy(np.int64), address])
        weight = np.concatenate([np.ones(len(final), np.int64), sign])
        stop = start + np.concatenate([final["size"].to_numpy(np.int64), size])
        if not len(start):
            return self._segments.iloc[:0]
        points = np.concatenate([start, stop])
        order = np.argsort(points, kind="stable")
        moments = points[order]
        cover = np.cumsum(np.concatenate([weight, -weight])[order])
        last = np.append(moments[1:] != moments[:-1], [True])
        moments, covered = moments[last], cover[last] > 0
        edges = np.flatnonzero(np.diff(covered.astype(np.int8), prepend=0))
        begin, end = moments[edges[::2]], moments[edges[1::2]]
        by = np.argsort(start, kind="stable")
        owner = by[np.maximum(np.searchsorted(start[by], begin, side="right") - 1, 0)]
        facts = {
            name: np.concatenate([final[name].to_numpy(np.int64), self.entries[name][rows]])
            for name in ("stream", "pool", "pool_b", "stack")
        }
        large = np.concatenate(
            [final["large"].to_numpy(np.int64), (size % LARGE_PAGE == 0).astype(np.int64)]
        )
        columns = {name: column[owner] for name, column in facts.items()}
        return pd.DataFrame(
            {
                "address": begin,
                "size": end - begin,
                "large": large[owner],
                "expandable": np.ones(len(begin), np.int64),
                **columns,
            }
        )[list(SEGMENT_COLUMNS)]


def _laid_out(
    segments: pd.DataFrame, lives: Lives, alive: Int64s, pending: npt.NDArray[np.bool_]
) -> State:
    """Blocks in use in their segments, with the free ones between them."""
    starts, sizes = segments["address"].to_numpy(np.int64), segments["size"].to_numpy(np.int64)
    address, size = lives.address[alive], lives.size[alive].copy()
    owner = np.searchsorted(starts, address, side="right") - 1
    if len(starts):
        is_within = (owner >= 0) & (address < (starts + sizes)[np.maximum(owner, 0)])
    else:
        is_within = np.zeros(len(alive), np.bool_)
    # Two at one place cannot be.
    is_within[1:] &= address[1:] != address[:-1]
    alive, pending, address, size, owner = (
        alive[is_within],
        pending[is_within],
        address[is_within],
        size[is_within],
        owner[is_within],
    )
    end_of = (starts + sizes)[owner] if len(starts) else address
    following = np.append(address[1:], [0])
    same = np.append(owner[1:] == owner[:-1], [False])
    limit = np.where(same, following, end_of)
    gap = limit - address - size
    size = np.where(gap < 0, limit - address, size)
    if len(starts):
        total = (segments["large"].to_numpy()[owner] != 0) & (
            segments["expandable"].to_numpy()[owner] == 0
        )
    else:
        total = gap > 0
    size = np.where((gap > 0) & (gap <= SMALL) & total, limit - address, size)
    used = pd.DataFrame(
        {
            "segment": owner,
            "address": address,
            "size": size,
            "requested": np.minimum(lives.requested[alive], size),
            "state": np.where(pending, PENDING, ALLOCATED),
            "category": lives.category[alive],
            "stack": lives.stack[alive],
        }
    )
    before = np.append([True], owner[1:] != owner[:-1])[: len(owner)]
    front = np.where(
        before,
        starts[owner] if len(starts) else address,
        np.append([0], (address + size)[:-1])[: len(owner)],
    )
    tail = np.setdiff1d(np.arange(len(starts)), owner)
    ends = np.where(same, address + size, end_of)
    free = pd.DataFrame(
        {
            "segment": np.concatenate([owner, owner, tail]),
            "address": np.concatenate([front, address + size, starts[tail]]),
            "size": np.concatenate(
                [address - front, np.where(same, 0, ends - address - size), sizes[tail]]
            ),
        }
    )
    free = free[free["size"] > 0].assign(requested=0, state=INACTIVE, category=UNKNOWN, stack=0)
    blocks = pd.concat([used, free], ignore_index=True).sort_values(
        "address", kind="stable", ignore_index=True
    )
    return State(segments, blocks, int((~is_within).sum()))


def units(state: State) -> pd.DataFrame:
    """Blocks by the units that can be released separately: a segment, or a page of an expandable
    one.

    Returns
    -------
    DataFrame
        `unit block bytes`: rows of `state.blocks` and how much of each lies in the unit.
    """
    segments, blocks = state.segments, state.blocks
    owner = blocks["segment"].to_numpy(np.int64)
    page = np.where(segments["large"].to_numpy() == 0, SMALL_PAGE, LARGE_PAGE)
    expandable = segments["expandable"].to_numpy() == 1
    if expandable.any() and segments["size"][expandable].sum() // SMALL_PAGE > _MOST_PAGES:
        expandable[:] = False
    pages = np.where(expandable, -(-segments["size"].to_numpy(np.int64) // page), 1)
    first_unit = np.cumsum(pages) - pages
    base = segments["address"].to_numpy(np.int64)[owner]
    begin = blocks["address"].to_numpy(np.int64) - base
    end = begin + blocks["size"].to_numpy(np.int64)
    width = np.where(expandable, page, NEVER)[owner]
    low, high = begin // width, np.maximum(end - 1, begin) // width
    row, position = expand(low, np.maximum(high - low + 1, 1))
    left = np.where(expandable[owner][row], position * np.where(expandable, page, 1)[owner][row], 0)
    right = np.where(
        expandable[owner][row], left + np.where(expandable, page, 1)[owner][row], NEVER
    )
    return pd.DataFrame(
        {
            "unit": first_unit[owner][row] + position,
            "block": row,
            "bytes": np.maximum(np.minimum(end[row], right) - np.maximum(begin[row], left), 0),
        }
    )
