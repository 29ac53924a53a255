"""The answer of `nbprof.fits`: a peak, its parts, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import pandas as pd

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.roles import Role
from nbprof.capture.fit.search import LARGEST, largest_batch
from nbprof.core.errors import NbprofError
from nbprof.core.units import size_text
from nbprof.display import markup
from nbprof.schema import frames

FRAME, LEVERS = "fits.frame", "fits.levers"
AS_IT_IS = "no change"
CHECKPOINTING = "gradient checkpointing"


@dataclass(frozen=True)
class Lever:
    """A change of the step that needs less memory.

    Attributes
    ----------
    name : str
    peak : callable
        Bytes at the peak for a size of the batch; raises NbprofError where it cannot be traced.
    parts : int
        Parts of the batch whose gradients are accumulated.
    note : str
        What the change is.
    """

    name: str
    peak: Callable[[int], int]
    parts: int = 1
    note: str = ""


@dataclass(frozen=True, repr=False)
class Fit:
    """The predicted peak of memory of a step, and whether it fits in a device.

    Attributes
    ----------
    roles : dict of Role to int
        Bytes at the peak; they add up to it.
    batch_size : int or None
        The first dimension of the first tensor; None if no size can be changed.
    step : str
        What was predicted: `a training step of ResNet`.
    assumptions : tuple of str
        Sentences: what was assumed, and what is not in the figures.
    """

    roles: dict[Role, int]
    batch_size: int | None
    step: str
    device: Device
    assumptions: tuple[str, ...]
    levers_of_step: tuple[Lever, ...] = field(default=(), repr=False)
    margin: float | None = None

    @property
    def peak_bytes(self) -> int:
        """Bytes of tensors at the peak."""
        return sum(self.roles.values())

    @property
    def capacity_bytes(self) -> int | None:
        """Memory of the device; None if none was given."""
        return self.device.capacity_bytes

    @property
    def margin_bytes(self) -> int:
        """Memory that must be free beside the peak, for what is not predicted."""
        return self.device.margin_bytes(self.peak_bytes, self.margin)

    @property
    def fits(self) -> bool | None:
        """True if peak and margin fit in the device; None if none was given."""
        return self._fits(self.peak_bytes)

    @property
    def frame(self) -> pd.DataFrame:
        """A row per role, the most memory first; they add up to the peak."""
        roles = sorted(self.roles, key=lambda role: -self.roles[role])
        return frames.build(
            FRAME,
            {
                "role": [role.value for role in roles],
                "bytes": [self.roles[role] for role in roles],
                "percent": [100 * self.roles[role] / self.peak_bytes for role in roles],
            },
        )

    @cached_property
    def largest_batch(self) -> int | None:
        """The largest batch that fits, by predictions at several sizes; None if it is unknown.

        A larger one by 1 does not fit. 0 if a batch of 1 does not; 1,048,576 is the largest that is
        tried.
        """
        if not self.levers_of_step or self.capacity_bytes is None or self.batch_size is None:
            return None
        try:
            return self._largest(self.levers_of_step[0])
        except NbprofError:
            # Some models take one size only.
            return None

    @cached_property
    def levers(self) -> pd.DataFrame:
        """A row per change of the step that saves memory, with its peak and largest batch.

        Predicted when it is first asked for.
        """
        rows = [self._lever_row(lever) for lever in self.levers_of_step]
        if not rows:
            return frames.empty(LEVERS)
        return frames.typed(LEVERS, pd.DataFrame(rows, dtype=object))

    def on(self, device: str | int, margin: float | None = None) -> Fit:
        """The same prediction for another device, or an amount of bytes.

        Raises
        ------
        NbprofError
            The device is unknown, or one is the host and the other is not: PyTorch keeps other
            tensors there.
        """
        other = Device.of(device)
        if other.is_gpu != self.device.is_gpu:
            raise NbprofError("a prediction for the host is none for a GPU; call nbprof.fits again")
        return Fit(
            self.roles,
            self.batch_size,
            self.step,
            other,
            self.assumptions,
            self.levers_of_step,
            margin,
        )

    def _fits(self, peak: int) -> bool | None:
        if self.capacity_bytes is None:
            return None
        return peak + self.device.margin_bytes(peak, self.margin) <= self.capacity_bytes

    def _largest(self, lever: Lever) -> int:
        """The largest batch, or part of one, that fits."""

        def needed(size: int) -> int:
            peak = lever.peak(size)
            return peak + self.device.margin_bytes(peak, self.margin)

        assert self.capacity_bytes is not None
        assert self.batch_size is not None
        return largest_batch(needed, self.capacity_bytes, self.batch_size)

    def _lever_row(self, lever: Lever) -> dict[str, object]:
        row: dict[str, object] = dict.fromkeys(frames.names(LEVERS))
        row.update(lever=lever.name, note=lever.note)
        size = self.batch_size or 1
        if size < lever.parts:
            return row | {"note": f"a batch of {size} has no {lever.parts} parts"}
        try:
            peak = lever.peak(-(-size // lever.parts))
            row.update(peak_bytes=peak, fits=self._fits(peak))
            if lever.name == AS_IT_IS:
                row["largest_batch"] = self.largest_batch
            elif self.capacity_bytes is not None and self.batch_size is not None:
                row["largest_batch"] = self._largest(lever) * lever.parts
        except NbprofError as error:
            row["note"] = str(error)
        return row

    def _sentences(self) -> list[str]:
        peak = size_text(self.peak_bytes)
        of_batch = ""
        if self.batch_size is not None:
            of_batch = f" of batch {self.batch_size:,}"
        step = f"{self.step[0].upper()}{self.step[1:]}{of_batch}"
        if self.capacity_bytes is None:
            return [f"{step} needs {peak}. Pass device= to know whether it fits."]
        margin = ""
        if self.margin_bytes:
            margin = f" with a margin of {size_text(self.margin_bytes)}"
        missing = self.peak_bytes + self.margin_bytes - self.capacity_bytes
        verdict = f"fits in {self.device}{margin}."
        if missing > 0:
            verdict = f"does not fit in {self.device}{margin}: {size_text(missing)} are missing."
        return [
            f"{step} needs {peak} and {verdict}",
            *self._largest_sentence(),
            *self._lever_sentences(),
        ]

    def _largest_sentence(self) -> list[str]:
        largest = self.largest_batch
        if largest is None:
            return []
        if largest == 0:
            return ["A batch of 1 does not fit either."]
        if largest == LARGEST:
            return [f"Any batch up to {LARGEST:,} fits."]
        return [f"The largest batch that fits is {largest:,}; {largest + 1:,} does not."]

    def _lever_sentences(self) -> list[str]:
        if "levers" not in vars(self):
            return []
        texts = []
        for lever, size in zip(self.levers["lever"], self.levers["largest_batch"], strict=True):
            if lever != AS_IT_IS and size is not pd.NA:
                texts.append(f"with {lever} {size:,}")
        if not texts:
            return []
        return [f"Largest batches: {', '.join(texts)}."]

    def __repr__(self) -> str:
        rows = _texts(FRAME, self.frame)
        table = pd.DataFrame(rows, columns=[col.label for col in frames.SCHEMA[FRAME]])
        lines = [" ".join(self._sentences()), table.to_string(index=False)]
        return "\n".join([*lines, *self.assumptions])

    def _repr_html_(self) -> str:
        heads = [col.label for col in frames.SCHEMA[FRAME]]
        rows = _escaped(_texts(FRAME, self.frame))
        html = markup.paragraph(escape(" ".join(self._sentences())))
        html += markup.table("Memory at the peak", size_text(self.peak_bytes), heads, rows, "lrr")
        if "levers" in vars(self):
            heads = [col.label for col in frames.SCHEMA[LEVERS]]
            rows = _escaped(_texts(LEVERS, self.levers))
            html += markup.table("With less memory", "", heads, rows, "lrlrl")
        return html + markup.paragraph(escape(" ".join(self.assumptions)))


def _escaped(rows: list[list[str]]) -> list[list[str]]:
    return [list(map(escape, row)) for row in rows]


def _texts(frame: str, rows: pd.DataFrame) -> list[list[str]]:
    columns: list[Sequence[str]] = []
    for col in frames.SCHEMA[frame]:
        columns.append([_text(col.kind, value) for value in rows[col.name]])
    return [list(row) for row in zip(*columns, strict=True)]


def _text(kind: str, value: Any) -> str:
    if pd.isna(value):
        return "–"
    if kind == "bytes":
        return size_text(float(value))
    if kind == "percent":
        return f"{value:.1f}%"
    if kind == "bool":
        return ("no", "yes")[bool(value)]
    if kind == "number":
        return f"{value:,}"
    return str(value)
