"""Records of one process, the same for all files of rocprofv3.

Each kind of record is a frame with the columns that the file has: a number that it does not state
is -1, a column that it does not have is missing. Times are ns of the machine's clock, which has no
date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.receipt import Note
from nbprof.core.trace import Int64s

CPU, GPU = 1, 2
AGENT_TYPES = {"CPU": CPU, "GPU": GPU}
_AGENT_LABELS = {CPU: "CPU", GPU: "GPU"}
_SPAN = ("start", "end", "thread", "correlation")
SHAPE = tuple(f"{shape}_{axis}" for shape in ("group", "grid") for axis in "xyz")
COLUMNS: dict[str, tuple[str, ...]] = {
    "kernels": (
        *("name", *_SPAN, "device", "queue", "stream", "dispatch", "kernel", *SHAPE),
        *("lds", "scratch", "vgpr", "accum_vgpr", "sgpr"),
    ),
    "copies": ("name", *_SPAN, "device", "stream", "source", "target", "bytes"),
    "calls": ("domain", "name", *_SPAN),
    "marks": ("domain", "name", *_SPAN),
    "allocations": ("domain", "name", *_SPAN, "device", "queue", "bytes"),
    "counters": ("dispatch", "name", "value"),
}
"""By kind; `grid` counts work-items, `lds` and `bytes` bytes, `scratch` bytes a work-item, and
`device` numbers the GPUs.
"""


@dataclass
class Agent:
    """A processor of the machine.

    Attributes
    ----------
    key : int
        What records call it by.
    type : int
        CPU, GPU, or 0 where neither is stated.
    number : int
        Among those of its type that the process could use.
    facts : dict
        What the file states beside that.
    """

    key: int
    type: int
    number: int
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`GPU 0`."""
        return f"{_AGENT_LABELS.get(self.type, 'Agent')} {self.number}"


@dataclass
class Recording:
    """Records of one process.

    Attributes
    ----------
    pid : int
        -1 where it is not stated.
    machine : str
        Its name, where the file states it.
    agents : list of Agent
    frames : dict of str to DataFrame
        By the kinds of `COLUMNS`; a kind without rows may be missing.
    notes : list of Note
    bad : int
        Records that could not be read.
    rounded_lds : bool
        True if LDS is that of the code object, rounded up to what the hardware allocates, and not
        that of each dispatch.
    """

    pid: int = -1
    machine: str = ""
    agents: list[Agent] = field(default_factory=list)
    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    bad: int = 0
    rounded_lds: bool = False

    def frame(self, kind: str) -> pd.DataFrame:
        """The records of a kind; an empty frame where there are none."""
        return self.frames.get(kind, pd.DataFrame({"start": [], "end": []}))

    def drop_undated(self) -> None:
        """Drops records without a begin or an end, and counts them."""
        for kind, frame in self.frames.items():
            if kind == "counters":
                continue
            good = (frame["start"] > 0) & (frame["end"] > 0)
            if not good.all():
                self.frames[kind] = frame[good].reset_index(drop=True)
                self.bad += int((~good).sum())


def numbered(agents: Iterable[Agent]) -> list[Agent]:
    """Agents, those without a number numbered among their type in the order in which they come."""
    result = list(agents)
    for kind in (0, CPU, GPU):
        rows = [agent for agent in result if agent.type == kind]
        if any(agent.number < 0 for agent in rows):
            for number, agent in enumerate(rows):
                agent.number = number
    return result


def gpus_of(agents: Iterable[Agent]) -> list[Agent]:
    """The GPUs among some agents."""
    return [agent for agent in agents if agent.type == GPU]


def devices(keys: Int64s, agents: Sequence[Agent]) -> Int64s:
    """The number of the GPU that each key names, -1 for one that names none."""
    gpus = gpus_of(agents)
    return _looked_up(keys, {gpu.key: gpu.number for gpu in gpus})


def labels(keys: Int64s, agents: Sequence[Agent]) -> pd.Categorical:
    """Label of each agent, `GPU 0` or `CPU 0`; missing for an unknown one."""
    names = [agent.label for agent in agents]
    codes = _looked_up(keys, {agent.key: i for i, agent in enumerate(agents)})
    return coded(codes, names)


def ends(source: Int64s, target: Int64s, agents: Sequence[Agent]) -> dict[str, Any]:
    """The columns of copies that say where they go, `device` being the GPU that they go to, else
    the one that they come from.
    """
    to, source_device = devices(target, agents), devices(source, agents)
    return {
        "device": np.where(to >= 0, to, source_device),
        "source": labels(source, agents),
        "target": labels(target, agents),
    }


def _looked_up(keys: Int64s, table: Mapping[int, int]) -> Int64s:
    first, inverse = np.unique(keys, return_inverse=True)
    values = [table.get(key, -1) for key in first.tolist()]
    return np.array([*values, -1], np.int64)[inverse.reshape(-1)]


def coded(codes: npt.NDArray[np.integer[Any]], texts: Sequence[str]) -> pd.Categorical:
    """Texts by code, of these the ones that are used; missing for a code that stands for none."""
    index = np.where((codes >= 0) & (codes < len(texts)), codes, len(texts))
    used = np.flatnonzero(np.bincount(index, minlength=len(texts) + 1)[:-1])
    used_codes, categories = pd.factorize(np.array([*texts, ""], object)[used])
    table = np.full(len(texts) + 1, -1)
    table[used] = used_codes
    return pd.Categorical.from_codes(table[index], categories=pd.Index(categories, dtype=object))


def by_message(messages: Sequence[str | None]) -> tuple[pd.Categorical, npt.NDArray[np.bool_]]:
    """The messages of the rows that have one, and the mask of these rows."""
    codes, texts = pd.factorize(np.array(messages, object))
    has_message = codes >= 0
    return coded(codes[has_message], texts.tolist()), has_message


def is_marker(domain: pd.Series) -> npt.NDArray[np.bool_]:
    """Mask of ranges and marks of ROCTx, by their domain."""
    core = [str(name).startswith("MARKER_CORE") for name in domain.cat.categories]
    return np.array([*core, False])[domain.cat.codes.to_numpy()]


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames one behind the other; numbers that one lacks are -1."""
    if len(frames) == 1:
        return frames[0]
    texts: set[str] = set()
    plain = []
    for frame in frames:
        columns = list(frame.select_dtypes("category").columns)
        texts.update(columns)
        plain.append(frame.astype(dict.fromkeys(columns, object)))
    result = pd.concat(plain, ignore_index=True)
    for name in result.columns:
        if name in texts:
            result[name] = result[name].astype("category")
        elif name != "value":
            # Numbers that some rows lack have become floats; missing ones are -1.
            result[name] = result[name].fillna(-1).astype(np.int64)
    return result
