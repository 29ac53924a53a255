"""`p.kernels`: what ran on the accelerator, by kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.tools.accessor import Framed

if TYPE_CHECKING:
    from bokeh.model import Model


class Kernels(Framed):
    """GPU kernels by name, op and launch shape, as in the GPU kernel stats of the TensorFlow guide.

    `frame` has one row for each kernel, op and launch shape (grid, block, registers, shared
    memory), with the number of launches and their total, mean, shortest and longest duration;
    largest total first, equal ones in the order of name, grid, block, registers, shared memory and
    op. Durations are whole nanoseconds; a launch of less is left out, as in XProf.

    - `op` is the op that launched the kernel: as the event names it (`tf_op`, or `level 0` in files
      of TensorFlow 2.3/2.4), what the compiled program calls the instruction, or the op on the host
      whose call started it. XProf reads neither `level 0` nor launches.
    - `uses_tensor_core` follows from the kernel's name, up to the names of Hopper and Blackwell; NA
      where the name cannot tell (products compiled by Triton). XProf's list ends with Ampere, takes
      plain fp32 kernels called `xmma_gemm…ffma` for TensorCore kernels, and is not applied where
      the file names no vendor (TensorFlow 2.3/2.4).
    - `op_tensor_core_eligible`: the op is a matrix product, convolution, recurrent layer or
      attention by its name or type, or its kernel uses Tensor Cores; NA where no op is known (an
      NVTX or ROCTx range is not an op) and the kernel name is ambiguous. XProf goes by the name
      alone, misses ops that were fused (`conv2d/Relu` of type `_FusedConv2D`), and says no where it
      does not know.
    - `occupancy_percent` is the one recorded (`occupancy_source` "recorded"), else computed from
      the launch shape and the limits of the device's compute capability (CUDA C++ programming
      guide). TensorFlow and JAX state the theoretical occupancy, PyTorch an estimate of the
      achieved one, which a grid with too few blocks lowers; what is computed is of the same kind.
      XProf shows 0 where none was recorded. AMD's is unknown.
    - Shared memory of TensorFlow 2.3/2.4 (`shm`) and of AMD (`group_mem`) is one number for both
      kinds, in `static_shared_bytes`. XProf shows 0 for both.
    - `module` and `source` are of PyTorch's traces with `with_stack=True`: the nn.Modules and the
      lines of code that launched the kernel, of the backward pass those of the op of the forward
      pass, of a replayed graph those that were captured (see `nbprof.load(graph_capture=...)`).
      PyTorch states the line in which a function begins; lines of PyTorch and of Python itself are
      left out, and so are the numbers of instances: `Net/Linear` stands for every Linear of the
      net. Several are separated by commas.
    """

    @property
    def devices(self) -> pd.DataFrame:
        """One row per GPU: the part of its steps with a kernel, the estimated efficiency of its
        multiprocessors, occupancy, Tensor Cores.

        `sm_efficiency_percent` is the mean over the steps of min(1, blocks of the running kernels
        by multiprocessor): 100 when each multiprocessor has a block all the time. It needs the
        grids and the number of multiprocessors, which not every file states. Source: the GPU
        summary of PyTorch's TensorBoard plugin.
        """
        return self._profile.run.kernel_devices.copy()

    @property
    def graphs(self) -> pd.DataFrame:
        """One row per CUDA or HIP graph that was replayed, by device: nodes, replays, and how long
        these take.
        """
        return self._profile.run.graphs.copy()

    @property
    def graph_nodes(self) -> pd.DataFrame:
        """One row per node of these graphs, over all replays: its kernel, and the op, module and
        line that were captured as it.

        For hosts that are read separately, it is available for one host at a time: `p.rank(3)`.
        """
        return self._profile.run.graph_nodes.copy()

    def by_name(self) -> pd.DataFrame:
        """One row per kernel, total time descending: ops, launches, times, part of all kernel time
        and of it on Tensor Cores.

        `tensor_core_percent` is time on Tensor Cores in percent of the time of kernels whose names
        tell whether they use them; `occupancy_percent` is weighted by time.
        """
        from nbprof.analysis import kernels

        return kernels.by_name(self._profile.run.kernels)

    def by_op(self) -> pd.DataFrame:
        """One row per op, total time descending, with the columns of `by_name`; kernels without an
        op are the row of the empty name.
        """
        from nbprof.analysis import kernels

        return kernels.by_op(self._profile.run.kernels)

    def as_xprof(self) -> pd.DataFrame:
        """The exact rows of XProf 2.24.2, for comparison: its TensorCore rule, op names, launch
        shapes, order and first 1,000 rows.

        Columns are those of `frame` but for `occupancy_source`; what a file does not state is 0, as
        there. Empty for PyTorch's files, which XProf cannot read.
        """
        return self._profile.run.xprof_kernels.copy()

    def figure(self, **options: Any) -> Model:
        """A Bokeh bar chart of the kernels with the most time."""
        return self._figure("kernels", **options)
