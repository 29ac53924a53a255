"""`p.serving`: iterations of an inference engine, and the part of the tab that shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from nbprof.analysis import serving
from nbprof.schema import frames
from nbprof.schema.serving import PARTS
from nbprof.tools.accessor import Framed, Shown
from nbprof.tools.parts import Table
from nbprof.tools.steps.parts import ServingTables
from nbprof.tools.tables import table, table_of

if TYPE_CHECKING:
    from nbprof.run.run import Run

_UNKNOWN = "unknown kind"
_SHOWN = (
    "kind",
    "iterations",
    "median_ms",
    "p99_ms",
    "percent",
    "requests",
    "tokens_per_s",
    "token_ms",
    "gap_ms",
    "busy_percent",
)


class Serving(Framed):
    """Iterations of an inference engine, as vLLM and SGLang annotate them in traces of
    torch.profiler.

    `frame` has a row per annotation, and these are the steps of `p.steps`. An annotation states how
    many sequences and tokens the iteration has, for prefill and decode apart, from which its kind
    follows: `execute_context_2(40)_generation_3(3)` and, of vLLM, its longer and older forms;
    `step[DECODE bs=64]` of SGLang, or its `run_batch`. What it does not state is NA: SGLang has the
    tokens of mixed batches in roofline annotations alone, vLLM's `execute_new_1_cached_3` tells new
    requests from others, but not those that decode.

    What the host launched from an annotation to the next, as it does to sample, is part of the
    iteration before; what SGLang launches after the longest pause between them prepares the next.
    Device work belongs to the iteration that launched it, so that with overlap scheduling, where
    the host runs ahead, an iteration lasts from the end of the work of the previous one to that of
    its own.

    Traces of a trainer that generates with an engine have the steps of the trainer.
    """

    _none = "No annotations of an inference engine (vLLM, SGLang) were recorded in this profile."

    def __init__(self, profile: Shown) -> None:
        super().__init__(profile, "input", "serving")

    @property
    def frame(self) -> pd.DataFrame:
        """One row per iteration, host by host in time order; times of parts of the model are NA
        without a device.
        """
        return super().frame

    @property
    def summary(self) -> pd.DataFrame:
        """One row per kind of iteration: how long it takes, its batch, the rate and latency of
        tokens, and idle time before it.
        """
        return serving.summary(self._profile.run.serving)

    @property
    def parts(self) -> pd.DataFrame:
        """Kernel time by kind of iteration and part of the model; empty without a device.

        Parts follow from the names of kernels and, where these say nothing, of the ops that
        launched them: a fused kernel whose name tells no part is in `other`. Kernels may overlap,
        so the parts add up to more than the busy time where they do.
        """
        return serving.parts(self._profile.run.serving)


def payload(run: Run) -> ServingTables:
    """The tables of iterations by kind and by part of the model."""
    rows = run.serving
    return ServingTables(
        kinds=table(serving.summary(rows), "serving.summary", _SHOWN),
        parts=_by_part(serving.parts(rows)),
    )


def _by_part(parts: pd.DataFrame) -> Table:
    """A row per part of the model, a column per kind of iteration."""
    kinds = parts["kind"].fillna(_UNKNOWN)
    wide = parts.assign(kind=kinds).pivot(index="part", columns="kind", values="mean_ms")
    wide = wide.reindex(
        index=[part for part in PARTS if part in wide.index], columns=pd.unique(kinds)
    ).fillna(0.0)
    mean = frames.column("serving.parts", "mean_ms")
    columns = [mean._replace(name=kind, label=f"{kind} ms") for kind in wide.columns]
    return table_of(wide.reset_index(), [frames.column("serving.parts", "part"), *columns])
