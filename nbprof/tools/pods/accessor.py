"""`p.pods`: each step on each worker."""

from __future__ import annotations

import pandas as pd

from nbprof.tools.accessor import Framed


class Pods(Framed):
    """Each step on each worker: the hosts of a job, the cores of a TPU host, the ranks of PyTorch."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row per step and worker; the columns are those of `nbprof.frames.SCHEMA`.

        Which steps of two hosts are the same follows from when they ran: the host whose recording spans the shortest time is the chief, and
        every other one is shifted by the number of steps under which its steps overlap longest with the chief's (of equal ones none, 1, 2 …
        and then -1, -2 …). Only steps that all hosts have are shown. A host without device work among hosts that have some coordinates
        and is no worker. `step` is the chief's number. Step time and categories are those of `p.steps.frame`; of a TPU core, its own:
        where steps are runs of a program, from the end of its run before to its own end. `bottleneck` is the category with the most time,
        of equal ones the first in the order of columns.

        These are the rules of TensorFlow Profiler's pod viewer, on nbprof's steps. XProf numbers common steps from 0, and lays hosts that
        never overlap on one another from their first steps on; here their numbers tell, the receipt says so, and a host that shares no
        number with the chief is left out.
        """
        return super().frame.drop(columns=["host"])

    @property
    def summary(self) -> pd.DataFrame:
        """One row per step: how many workers, the slowest of them, and the spread.

        The spread is (slowest - fastest) / slowest in percent, and NA of one worker. XProf shows no such table.
        """
        summary: pd.DataFrame = self._profile.run.pods_summary
        return summary.copy()

    @property
    def cores(self) -> pd.DataFrame:
        """One row per step and core of a TPU: what the core did, by TensorFlow Profiler's breakdown for TPUs; empty without TPUs.

        An op of the `XLA Ops` line counts where no op inside it runs, in the step in which it begins, by its name and category in the
        program: `infeed`, `outfeed`, `send`, `recv`; any collective is all-reduce; transfers between the device and the memory of the host
        are sends and receives with the host and copies to or from arrays in its memory; all else is compute. What no op covers is idle, so
        that the columns add up to the step time. Of a collective, the n-th run of the same op in the same step is one run on all cores of
        a host: the shortest is compute, and what a core takes longer is sync. A SparseCore is a worker of its own, in the step of its
        TensorCore in which its own begins.

        XProf folds the cores of a step into one: the largest infeed, the mean outfeed, the least idle time.
        """
        cores: pd.DataFrame = self._profile.run.pods_cores
        return cores.drop(columns=["host", "group", "counted"])
