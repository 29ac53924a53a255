"""`p.ops`: time by framework op."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.analysis.ops import ops
from nbprof.core.errors import NbprofError
from nbprof.tools.accessor import Framed

if TYPE_CHECKING:
    from bokeh.model import Model


class Ops(Framed):
    """Time by framework op, on the device and on the host: the TensorFlow stats of the TensorFlow
    guide.

    `frame` has one row per op of each side, device first, most self time first (equal ones by
    name):

    - `occurrences`: runs. On a device the runs of the op's most frequent kernel (or op of a
      compiled program), as an op launches several; those of all hosts add up.
    - `total_us`: duration of all runs. `self_us`: less that of the ops inside. On a thread each
      instant is that of the op that began last of those that are open, so that self times add up to
      the time in which any ran, also where ops overlap partly or end together; on a GPU it is the
      same as the total. `avg_us`, `avg_self_us`: divided by `occurrences`.
    - `self_fraction`: share of all self time of its side; `cumulative_fraction`: the same with the
      rows above it.
    - `eager`: whether any run was outside a function.
    - If known, `flops_per_second` and `bytes_per_second`: operations and bytes of all runs over
      `total_us`; `operational_intensity`: operations per byte; `bound_by`: Compute or main memory
      (HBM, or Device memory if it is not HBM; XProf always says HBM), whichever is closer to the
      device's peak, however far it is: what bounds an op is in `p.roofline.frame`. TPUs record it;
      for GPUs it is counted from the compiled XLA programs in the file.
    - `tensor_core_fraction`: share of the op's kernel time on Tensor Cores, over the kernels whose
      names tell.

    Which op a kernel belongs to: for XLA the framework's op that the compiler noted for the
    kernel's HLO op, which is looked up in the compiled program in the file; else what the event
    states, else the op around the call that launched it. PyTorch: the innermost op around the
    launch.

    Sources: the TensorFlow guide, what TensorFlow 2.3/2.4 wrote beside real profiles, and XProf
    2.24.2. Where XProf differs, which `as_xprof()` shows: ops of a program that is not in the file
    are left out and counted as idle there, here they go by their HLO name; allocator and driver
    events that state an op are ops of the host there, here they are not; files of TensorFlow
    2.3/2.4 have no device ops there; a side is cut at 500 rows there; an op that only begins a copy
    (`copy-start` of a TPU) has a bandwidth there, millions of times what memory can do, here it has
    none; an op still open when one around it ends (they overlap partly, or end together) is left
    out there, and what lies in it can count twice.
    """

    @property
    def with_idle(self) -> pd.DataFrame:
        """The ops with the IDLE row of each side, which shares then include.

        Idle is, by host thread, the time from the begin of its first op to the end of its last less
        all self time; by device, from the first event to the last less all ops. It is at least 0:
        ops that run at once on several streams of a device are each taken off. (The TensorFlow of
        the guide had an overflow here where a GPU ran nothing; that is 0.) PyTorch: each instant
        counts once.
        """
        return self._profile.run.ops_with_idle.copy()

    @property
    def tree(self) -> pd.DataFrame:
        """Self time as a tree: modules, the ops in them, and the kernels that these launched.

        Modules are those of PyTorch by their class, where `with_stack` recorded them, else the name
        scopes of the ops. A row comes before those in it, the device first, most time first.
        """
        from nbprof.analysis.ops import op_tree

        run = self._profile.run
        return op_tree.frame(run.ops, run.kernels, run.torch_ops_by("module"))

    def export(self, path: str | Path) -> Path:
        """Writes `tree` for a viewer of flame graphs: speedscope or pprof. Device and host are
        separate series.

        Parameters
        ----------
        path : str or path
            Such as `ops.speedscope.json`, or `ops.pb.gz` for pprof; a file of that name is
            replaced.

        Raises
        ------
        NbprofError
            There are no ops, the name ends as that of neither format, or the file could not be
            written.

        Examples
        --------
        >>> p.ops.export("ops.pb.gz")   # doctest: +SKIP
        """
        from nbprof.tools.header import label
        from nbprof.tools.stacks import Frame, Stacks

        tree = self.tree
        if not len(tree):
            raise NbprofError("this profile has no ops")
        name, sides = label(self._profile.run), tree["where"].tolist()
        calls = [Frame(each) for each in tree["name"].tolist()]
        return Stacks.of_tree(name, tree, calls, sides, tree["self_us"] * 1e3).write(path)

    def by_type(self) -> pd.DataFrame:
        """Ops summed up by type, with their number: the table's By type. Idle is excluded."""
        return ops.by_type(self._profile.run.ops)

    def by_scope(self, level: int | None = 1) -> pd.DataFrame:
        """Ops summed up by name scope, with their number. Idle is excluded.

        The scope of `encoder/layer_0/MatMul` is `encoder/layer_0`, of a tf.data iterator
        `Iterator::Root::Map` it is `Iterator::Root`, of an op without one ''.

        Parameters
        ----------
        level : int, optional
            How many components of the scope to tell apart; None for all, which is the table's By
            layer.

        Raises
        ------
        NbprofError
            `level` is less than 1.
        """
        if level is not None and level < 1:
            raise NbprofError(f"level must be 1 or more (components of a scope), not {level}")
        return ops.by_scope(self._profile.run.ops, level)

    def distribution(self, where: str, by: str = "type", idle: bool = False) -> pd.DataFrame:
        """Distribution of the self time of a side, largest part first: `type` or `op`, `self_us`
        `self_fraction` `cumulative_fraction`.

        Parameters
        ----------
        where : str
            "device" or "host".
        by : str
            "type" or "op".
        idle : bool
            Whether idle is a part.

        Raises
        ------
        NbprofError
            No such side or no such grouping.
        """
        if where not in ("device", "host") or by not in ("type", "op"):
            raise NbprofError(
                f"where must be 'device' or 'host' and by 'type' or 'op', not {where!r} and {by!r}"
            )
        run = self._profile.run
        return ops.distribution(run.ops_with_idle if idle else run.ops, where, by)

    def as_xprof(self, with_idle: bool = False) -> pd.DataFrame:
        """The exact rows of XProf 2.24.2, for comparison: its table without idle, or with.

        Columns are those of `frame`; what XProf does not know is 0, or "Unknown". A side has 500
        rows at most, the idle one among them. Empty for files that XProf cannot read.
        """
        return self._profile.run.xprof_ops[int(with_idle)].copy()

    def figure(self, **options: Any) -> Model:
        """Bokeh pies: device and host, by op and by type."""
        return self._figure("ops", **options)
