"""What the calls of a PyTorch program into the device's runtime cost a step: the evidence of its advice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pandas as pd

from nbprof.activity import Activity
from nbprof.analysis.steps import counted


@dataclass
class Calls:
    """The calls of one kind in an average step: how many, ms that they last, and the name with the most time."""

    count: float = 0.0
    ms: float = 0.0
    name: str = ""


@dataclass
class Runtime:
    """Figures of an average counted step.

    Attributes
    ----------
    calls : by kind (launch, graph, copy, copy H2D, copy D2H, fill, sync, allocate, other)
    pageable_bytes : bytes a step copied to the device from memory that is not pinned
    loader, loader_ms : the DataLoader with the most time, and ms a step in it; '' and 0 where none was recorded
    iterator_ms : ms a step in the iterator of `nbprof.steps`, DataLoaders in it included
    capability : compute capability of the devices (major, minor), where known
    amd : whether the devices are AMD's
    data_parallel : whether torch.nn.DataParallel ran
    """

    calls: dict[str, Calls] = field(default_factory=dict)
    pageable_bytes: float = 0.0
    loader: str = ""
    loader_ms: float = 0.0
    iterator_ms: float = 0.0
    capability: tuple[int, int] | None = None
    amd: bool = False
    data_parallel: bool = False

    def of(self, *kinds: str) -> Calls:
        """The calls of some kinds together, named by the one with the most time."""
        found = [self.calls[k] for k in kinds if k in self.calls]
        if not found:
            return Calls()
        return Calls(sum(c.count for c in found), sum(c.ms for c in found), max(found, key=lambda c: c.ms).name)


def runtime(activity: Activity, steps: pd.DataFrame) -> Runtime:
    """The figures of a profile; `steps` is `Run.steps`."""
    out = Runtime()
    used = counted(steps)
    if not len(used):
        return out
    host = {h: i for i, h in enumerate(activity.hosts)}
    pairs = pd.MultiIndex.from_arrays([used["host"].map(host).to_numpy(), used["group"].to_numpy()])
    count = len(used)
    calls = activity.calls
    # Texts are numbered as tables are made, so they come after the table.
    texts = activity.texts.values.tolist()
    calls = calls[pd.MultiIndex.from_frame(calls[["host", "group"]]).isin(pairs)]
    for kind, mine in calls.assign(ms=(calls["end"] - calls["start"]) / 1e9).groupby("kind"):
        by_name = mine.groupby("name")["ms"].sum()
        longest = int(by_name.index[int(by_name.to_numpy().argmax())])
        out.calls[texts[int(cast("int", kind))]] = Calls(mine["event"].nunique() / count, float(mine["ms"].sum()) / count, texts[longest])
    _transfers(activity, used, out)
    _loader(activity, used, out)
    names = activity.devices["name"].astype(str)
    out.amd = bool(names.str.contains("AMD|Radeon|Instinct").any())
    stated = activity.devices["compute_capability"].dropna().astype(str)
    if len(stated):
        major, _, minor = stated.iloc[0].partition(".")
        out.capability = (int(major), int(minor or 0))
    out.data_parallel = "DataParallel" in activity.traits
    return out


def _transfers(activity: Activity, used: pd.DataFrame, out: Runtime) -> None:
    transfers = activity.transfers
    if "pageable" not in transfers.columns:
        return
    begin, end = float(used["start_ms"].min()), float((used["start_ms"] + used["step_time_ms"]).max())
    within = (transfers["start"] / 1e9 >= begin) & (transfers["start"] / 1e9 < end) & transfers["pageable"]
    to_device = transfers["kind"] == activity.texts.codes.get("H2D", -1)
    out.pageable_bytes = float(np.maximum(transfers.loc[within & to_device, "bytes"], 0).sum()) / len(used)


def _loader(activity: Activity, used: pd.DataFrame, out: Runtime) -> None:
    rows = activity.host_ops
    begin, end = float(used["start_ms"].min()) * 1e9, float((used["start_ms"] + used["step_time_ms"]).max()) * 1e9
    rows = rows[(rows["start"] >= begin) & (rows["start"] < end)]
    of_iterator = rows[rows["type"] == activity.types.codes.get("iterator", -1)]
    out.iterator_ms = float((of_iterator["end"] - of_iterator["start"]).sum()) / 1e9 / len(used)
    rows = rows[rows["type"] == activity.types.codes.get("DataLoader", -1)]
    if not len(rows):
        return
    total = (rows["end"] - rows["start"]).groupby(rows["op"]).sum()
    out.loader = str(activity.ops.values[int(total.index[int(total.to_numpy().argmax())])])
    out.loader_ms = float(total.sum()) / 1e9 / len(used)
