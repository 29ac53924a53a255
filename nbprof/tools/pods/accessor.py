"""`p.pods`: each step on each worker."""

from __future__ import annotations

import pandas as pd

from nbprof.tools.accessor import Framed


class Pods(Framed):
    """Each step on each worker: the hosts of a job, the cores of a TPU host, the ranks of
    PyTorch.
    """

    @property
    def frame(self) -> pd.DataFrame:
        """One row per step and worker; the columns are those of `nbprof.frames.SCHEMA`.

        Which steps of two hosts are the same follows from when they ran: the host whose recording
        spans the shortest time is the chief, and every other one is shifted by the number of steps
        under which its steps overlap longest with the chief's (of equal ones none, 1, 2 … and then
        -1, -2 …). Only steps that all hosts have are shown. A host without device work among hosts
        that have some coordinates and is no worker. `step` is the chief's number. Step time and
        categories are those of `p.steps.frame`; of a TPU core, its own: where steps are runs of a
        program, from the end of its run before to its own end. `bottleneck` is the category with
        the most time, of equal ones the first in the order of columns.

        These are the rules of TensorFlow Profiler's pod viewer, on nbprof's steps. XProf numbers
        common steps from 0, and lays hosts that never overlap on one another from their first steps
        on; here their numbers tell, the receipt says so, and a host that shares no number with the
        chief is left out.
        """
        return super().frame.drop(columns=["host"])

    @property
    def summary(self) -> pd.DataFrame:
        """One row per step: how many workers, the slowest of them, and the spread.

        The spread is (slowest - fastest) / slowest in percent, and NA of one worker. XProf shows no
        such table.
        """
        summary: pd.DataFrame = self._profile.run.pods_summary
        return summary.copy()

    @property
    def cores(self) -> pd.DataFrame:
        """One row per step and core of a TPU: what the core did, by TensorFlow Profiler's breakdown
        for TPUs; empty without TPUs.

        An op of the `XLA Ops` line counts where no op inside it runs, in the step in which it
        begins, by its name and category in the program: `infeed`, `outfeed`, `send`, `recv`; any
        collective is all-reduce; transfers between the device and the memory of the host are sends
        and receives with the host and copies to or from arrays in its memory; all else is compute.
        What no op covers is idle, so that the columns add up to the step time. Of a collective, the
        n-th run of the same op in the same step is one run on all cores of a host: the shortest is
        compute, and what a core takes longer is sync. A SparseCore is a worker of its own, in the
        step of its TensorCore in which its own begins.

        XProf folds the cores of a step into one: the largest infeed, the mean outfeed, the least
        idle time.
        """
        cores: pd.DataFrame = self._profile.run.pods_cores
        return cores.drop(columns=["host", "group", "counted"])

    @property
    def stragglers(self) -> pd.DataFrame:
        """One row per rank, slowest first: which one holds the others up, what that costs, whether
        it is chance, and why.

        Ranks that wait for each other all take the same time for a step. They are compared by their
        own time: the step without exposed communication, by the clock of each host alone, so that a
        rank that is late because of another one in its group is not blamed. Without communication
        it is the whole step. `excess_ms` is the mean over counted steps of its distance from the
        median of the others.

        A straggler is behind by more than 1 % of the step, and by more than the residual of its
        clock in `clocks`, in one of two ways. `steady`: equal ranks would have one like it in at
        most one of a thousand recordings. `chance` is 2 x the number of ranks x the smaller
        probability of two tests: the binomial tail of being the slowest in so many steps, and
        Student's t of its mean distance, with its own variance or the median of all ranks',
        whichever is larger. Each step counts once, and fewer where steps resemble their neighbours:
        n (1 - r) / (1 + r), with r the autocorrelation over all ranks. `pauses`: steps behind, more
        than usual, by over 10 % of the mean step and 8 deviations of all ranks and steps, that
        alone are more than 1 %; where other ranks pause too, only if so large a share of all pauses
        is not chance.

        `cost_ms` is charged to the slowest rank of each step: the exposed waiting of each other
        rank, at most as far as that one is ahead. `saved_ms` compares it with the next slowest rank
        in each step; it is missing if no communication was recorded, since then it is unknown
        whether the others wait. `cause` is the step category in which it takes most more than the
        median of the other hosts, if that is at least half of the delay; of device compute, the
        kernel that makes up half of that, or all kernels if kernels of 90 % of the time are slower
        alike.
        """
        return self._profile.run.pod_frames.stragglers.copy()

    @property
    def what_if(self) -> pd.DataFrame:
        """The step time if one thing were otherwise: `measured`, then one row per question.

        `slowest_host`: the host whose slowness costs most is as fast as the median of the others
        (`saved_ms` of `stragglers`; without communication at most that, as nobody may wait for it).
        `slow_group`: the collectives of the slowest group take as long as those of its like; at
        most that, as some may have been hidden. `network_free`: exposed communication less waiting
        takes no time, in each step that of the rank that waited least, which the others wait for; a
        step still lasts as long as the own time of the slowest rank. The measured step time is the
        mean over steps of the median rank; if hosts do not communicate, that of the slowest.
        """
        return self._profile.run.pod_frames.what_if.copy()

    @property
    def outliers(self) -> pd.DataFrame:
        """Ops and kernels whose self time per step on some hosts is out of line with the same one
        on the others, most excess first.

        A time is out of line if it is above the median over hosts by more than 10 % of it, by more
        than 0.5 % of the step, and by more deviations than chance gives in one of a thousand runs:
        Student's t, corrected for all names and hosts that were looked at. A deviation is 1.4826 x
        the median absolute deviation over hosts, but at least 1 % of the median and 0.05 % of the
        step. Collectives are left out, since their time is mostly that of other hosts, and so is
        what began outside of counted steps. Of each host the 300 names with most time are compared.
        Fewer than three hosts have no outliers.
        """
        return self._profile.run.pod_frames.outliers.copy()

    @property
    def collectives(self) -> pd.DataFrame:
        """Collectives by kind, members and size over all ranks: who comes last, how far apart the
        ranks are, waiting and bandwidth.

        The figures are those of `p.device_time.collectives`, but several groups that share a name
        are distinguished by their members. A group is `slow` if the collective itself takes over
        1.25 times as long as the median of the other groups with as many ranks and the same size,
        by over 0.5 % of the step, and by more deviations over groups than chance gives, as in
        `outliers`; of fewer than three such groups none is.
        """
        return self._profile.run.pod_frames.collectives.copy()

    @property
    def missing(self) -> pd.DataFrame:
        """One row per host that is not in the run, or not whole: its file cannot be read, is cut
        off, is another's copy, or is not there.

        What could be read of a file that is cut off is in the run, and the reason says where it
        ends.

        For ranks, the size of the job says which there should be; for hosts, the numbers in the
        names of the others. A host whose file cannot be read is named after the file if that states
        no rank.
        """
        return self._profile.run.hosts_missing.copy()

    @property
    def clocks(self) -> pd.DataFrame:
        """One row per host: how far its clock is from that of the first, estimated from
        collectives, which all ranks leave together.

        Offset and drift are those under which its collectives end when those of the others do, by
        their median; hosts without a common collective are compared through others. Drift is the
        slope of a straight line through ten collectives or more, where it is 5 standard errors from
        0, and at most 200 ppm, as no clock is further off. All-reduce, all-gather, reduce-scatter,
        all-to-all and barriers count, which nobody leaves before all are there; others if there are
        none of these. Files of two jobs may have the same groups and numbers, so collectives tell
        it only where times show that they are the same: from one to the next, the host takes what
        the others of the group take, to a quarter of its distance from what they take at that place
        one or two steps before or behind. That takes ten of them or so, of three steps or more; of
        collectives without a number, one a step counts. Where none were recorded or none of those
        with numbers matched, offsets are the median distance of the begins of common steps, and the
        residual is one step more than 95 % of the deviations from it, since hosts that wait for
        each other need not begin a step together. Where the numbers that a host counts its steps by
        contradict their times, the residual is as many steps more: clocks may be apart by them.
        """
        return self._profile.run.pod_frames.clocks.copy()
