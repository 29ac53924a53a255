"""`p.roofline`: ops of programs that XLA compiled, or of PyTorch, under the roof of the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from nbprof.analysis import roofline
from nbprof.tools.accessor import Framed, ShownByMarimo
from nbprof.tools.plot import displayed

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.tools.accessor import Shown


class Roofline(ShownByMarimo, Framed):
    """The roofline model: how close each op of compiled programs, or of PyTorch, comes to the
    limits of the device.

    `frame` has one row per op, most self time first. `operational_intensity` is FLOPs (of XLA 8-bit
    ones as half, 4-bit ones as a quarter) divided by bytes of main memory; the roof at an intensity
    is the lower of the peak FLOP/s and the intensity times the peak bytes a second. `roof_fraction`
    is how close the op comes to it, by the resource that it uses best, `bound_by`. An op is bound
    by that resource only near its peak: `bound` is the same from 60 % of the peak on, and "Latency"
    below it, as in Nsight Compute. Such an op waits: for its launch, for what it depends on, for
    enough parallel work, or for a link to the host or to other devices, which the roofline does not
    have. Caches let an op exceed the roof.

    The peaks are those of the profile: a TPU states them, a GPU's follow from its architecture,
    units and clock. Where they are not known, or for other ones: `p.roofline(peak_flops=312e12,
    peak_bytes=2.0e12)`, or `nbprof.load(path, peaks={...})` for all views. Of memories on the chip
    a TPU states its peaks (VMEM, CMEM) and how many bytes an op reads from and writes to each, and
    an op may be bound by one of them; of a GPU's shared memory only the peak is known.

    Of PyTorch a row is an op with the shapes of its inputs, recorded with record_shapes=True, where
    it launched its work; without a device its self time on the host is that work. FLOPs of matrix
    products, convolutions and attention are those of `torch.utils.flop_counter`, causal attention
    as full (of a convolution in groups the weight gradient is a g-th of what is counted there); of
    elementwise ops and reductions one per element, as in XLA's cost analysis; of norms and softmax
    those of their definition. Bytes are its inputs and outputs, each once. What has no formula
    (kernels of torch.compile, Triton and custom ops, fused optimizers, collectives, copies to and
    from the host) is missing: it counts as unknown, and as no waste. `precision` decides the peak:
    that of the data sheet where the device is known by its name; float32 products whose kernel runs
    on Tensor Cores count by TF32's. A peak that is given is one for all.

    XProf 2.24.2 draws the same; its bandwidths are in GiB, its ridge point of a TPU is of GB. It
    takes NVIDIA's shared memory to move 256 bytes a clock and multiprocessor, where from Maxwell on
    there are 32 banks of 4 bytes: its peak is twice that of `p.devices`. It leaves a TPU's VMEM out
    unless that is one with CMEM (`has_merged_vmem`). `p.hlo` says how its counts differ.
    """

    def __init__(
        self,
        profile: Shown,
        peak_flops: float | None = None,
        peak_bytes: float | None = None,
        transfers: bool = True,
    ) -> None:
        super().__init__(profile, "hlo", "roofline")
        self._given_peaks = peak_flops, peak_bytes
        self._transfers = transfers

    def __call__(
        self,
        *,
        peak_flops: float | None = None,
        peak_bytes: float | None = None,
        transfers: bool = True,
    ) -> Roofline:
        """The same with other peaks.

        Parameters
        ----------
        peak_flops, peak_bytes : float, optional
            Operations and bytes of main memory in a second that one device can do at most; the
            profile's where left out.
        transfers : bool
            Whether infeed and outfeed count.

        Raises
        ------
        NbprofError
            A peak is not above 0.
        """
        roofline.peaks(self._profile.run.activity, peak_flops, peak_bytes)
        return Roofline(self._profile, peak_flops, peak_bytes, transfers)

    def _frame_and_total(self) -> tuple[pd.DataFrame, dict[str, float | str]]:
        run = self._profile.run
        if self._given_peaks == (None, None) and self._transfers:
            return run.programs.roofline
        return run.programs.roofline_under(self.peaks, transfers=self._transfers)

    @property
    def frame(self) -> pd.DataFrame:
        """The ops under the roof, most self time first; the columns are those of
        `nbprof.frames.SCHEMA["roofline"]`.
        """
        return self._frame_and_total()[0].copy()

    @property
    def total(self) -> dict[str, float | str]:
        """All ops as one, over the whole time of the devices, idle included: XProf's row "Program".

        `time_us`, `idle_us`, `flops_per_second`, `bytes_per_second`, `operational_intensity`,
        `bound_by`, `roof_fraction`, `compute_fraction`, `bandwidth_fraction`; what runs other ops
        (`while`, `conditional`, `call`) adds no FLOPs and bytes to theirs. `unknown_fraction` is
        the part of op time in ops of which neither FLOPs nor bytes are known; their time is left
        out, of PyTorch as far as the device did nothing else in it. Of PyTorch also `model_flops`
        and `recomputed_flops`, as in `steps`.
        """
        return dict(self._frame_and_total()[1])

    @property
    def steps(self) -> pd.DataFrame:
        """The ops of each step as one, over the time of the step: one row per step of a host, empty
        where there are no steps.

        A run of an op belongs to the step in which it begins on the device. Rates are of one
        device, over the whole step; what one run computes and moves is the mean of all runs of the
        op. XProf has such rows for TPUs whose file ties ops to steps.

        Of PyTorch `mfu_fraction` is the model FLOPs utilization: FLOPs of matrix products,
        convolutions and attention by the peak of their precision, over the step time on all devices
        of the host. Those of `unknown_fraction` are not in it. What ran again for the backward pass
        (activation checkpointing) is in `recomputed_flops` alone: products that autograd recorded
        while the backward pass ran, which those of a gradient of a gradient are, too. It is missing
        without a peak, or if every product is of unknown cost.
        """
        run = self._profile.run
        if self._given_peaks == (None, None):
            return run.programs.roofline_steps.copy()
        return run.programs.roofline_steps_under(self.peaks)

    @property
    def peaks(self) -> roofline.Peaks:
        """The limits of the device: `device`, `flops_per_second`, `bytes_per_second`,
        `ridge_point`; `missing` names the unknown ones.
        """
        return roofline.peaks(self._profile.run.activity, *self._given_peaks)

    @property
    def missing(self) -> str:
        """The missing ops or peak and the remedy, in a sentence; '' if nothing is missing."""
        return self._profile.run.programs.roofline_missing or self.peaks.missing

    def _there(self) -> bool:
        return not self._profile.run.programs.roofline_missing

    def _repr_mimebundle_(self, **_: Any) -> Any:
        if self._given_peaks == (None, None) and self._transfers:
            return self._profile.mimebundle(views=[self._tab])
        from nbprof.tools.hlo import payload as drawn

        run = self._profile.run
        given_roofline = drawn.GivenRoofline(*self._frame_and_total(), self.peaks, self.steps)
        part = drawn.payload(run, given_roofline)
        return self._profile.mimebundle(
            views=[self._tab], payload=replace(self._profile.payload(), hlo=part), drawn=False
        )

    def figure(self, **options: Any) -> Model:
        """A Bokeh scatter of the ops under the roof, both axes logarithmic; a point is as large as
        the op's time.
        """
        from nbprof.tools.hlo import figures as hlo_figures

        return displayed(
            hlo_figures.roofline(self.frame, self.peaks, self.missing, **options), self
        )
