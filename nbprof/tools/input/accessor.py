"""`p.input_pipeline` and `p.tf_data`: the time for input, and what limits the pipeline."""

from __future__ import annotations

from typing import Any

import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.tools.accessor import Framed, View


class InputPipeline(Framed):
    """Time for input, in the steps and on the host.

    TensorFlow Profiler's input pipeline analyzer, and its twin for PyTorch. `frame` has one row per
    input op of the host: iterators of tf.data, stages of other pipelines that state `_ipl_stage_id`
    and `_ipl_stage_cat`, infeed enqueues and copies to the device; total and self time as in
    `Profile.ops`. Percentages are of the self time of all input ops (0…100; XProf has 0…1), so that
    those of total time add up to more than 100 where iterators lie in each other.

    Unlike XProf: loops over a dataset inside a tf.function (`ReduceIterator::…`) are input ops, and
    what is enqueued scales the other kinds only where an enqueue was recorded on the host (XProf
    scales by the copies of a step then too, which leaves 0 of all of them).
    """

    @property
    def frame(self) -> pd.DataFrame:
        """One row per input op of the host, self time descending, then by name.

        `total_ms` sums the durations of its runs, `self_ms` leaves out the ops inside them on the
        thread; `total_percent` and `self_percent` are parts of the self time of all rows.
        """
        return super().frame

    @property
    def categories(self) -> pd.DataFrame:
        """The five kinds of input work: self time of their ops as recorded, and a remedy.

        Enqueuing is infeed enqueues and copies to the device. A read is of a file (`…::TFRecord`,
        `TextLine`, `FixedLengthRecord`, `SSTable`, `RecordIO`, `ArrayRecord`): in advance where its
        path holds a prefetch, interleave, parallel map, or memory reader or writer, else on demand.
        All other iterators preprocess.

        JAX has no input pipeline and does not record which calls copy to a device: kinds without an
        op in such a profile are missing, except that reading and preprocessing are 0 where another
        stage of a pipeline was recorded.
        """
        categories: pd.DataFrame = self._profile.run.input_categories
        return categories.copy()

    @property
    def summary(self) -> dict[str, Any]:
        """The share of input in a step, its kinds, and the next step to take.

        Of the steps that averages use: `input_percent` (sum of input by sum of step times), and
        over the steps `mean_percent` `sd_percent` (n - 1; None of one step) `min_percent`
        `max_percent`; `bound` (host, both, device, unknown) and `level` (high from 20 %, moderate
        from 5 %, potential where less is input but 3 % or more is in nothing recorded, no,
        unknown), the `statement` and the `next_step`.

        Of the host: `enqueue_ratio` r (Σ durations of infeed enqueues by Σ times between their
        starts; else copies by step time), what it came `enqueue_ratio_from`, and the `breakdown`
        (`category` `us` `us_per_step` `percent`): enqueuing E as recorded, and E (1 - r) / r shared
        out among the other kinds by self time; the self times themselves where r is 0.
        `copy_percent` is enqueuing's part of that, `copy_level` dominant from 90 %, significant
        from 10 %, else small. None for what was not recorded.
        """
        summary = dict(self._profile.run.input_summary)
        return {**summary, "breakdown": summary["breakdown"].copy()}

    @property
    def workers(self) -> pd.DataFrame:
        """One row per worker, a process or a thread, of a DataLoader, a PyDataset or a loader of
        grain that was iterated over while nbprof recorded; the main process where the loop makes
        the batches.

        `busy_ms` in which it made `batches` of `items`, `waiting_ms` in which the loader asked for
        none (with all workers busy, the steps wait for them; with much waiting, the loader keeps
        up), `delayed_ms` without a core, `restarts`, `start_ms`, `pickle_ms` with `pickled_bytes`
        and `shared_bytes`, `memory_bytes`. `items` is missing of a PyDataset, which makes batches.
        Empty for other loaders, and if no worker or iteration
        started during the recording.
        """
        return self._profile.run.input_workers.copy()

    @property
    def transforms(self) -> pd.DataFrame:
        """One row per stage of a loader's items, by loader, most time first.

        A stage is the dataset, each transform that is found in its attributes (the parts of a
        `Compose` each on its own) and the collation; also a Python function or generator that
        tf.data calls. `per_call_ms`, `per_item_ms` and `percent` leave out the
        stages that a stage calls; `where` is the file and line of its code, `inside` the line in
        which most of its samples were.
        """
        return self._profile.run.input_transforms.copy()


class TfData(View):
    """tf.data bottleneck analysis: which iterator of which pipeline limits the input.

    After TensorFlow Profiler's tool of that name, which XProf 2.24 no longer shows. A pipeline is a
    root iterator (`Iterator::Root`) with all that its calls reach: by nesting on a thread, and by
    the elements that iterators made ahead on other threads. `Device:<n>` only hands on to a device
    what `Host:<n>` makes. Also read is the loop over a dataset inside a tf.function
    (`ReduceIterator::Root`), which TensorFlow Profiler leaves out.

    Self time of a call is its duration less the time in which any call directly below it ran (never
    below zero; TensorFlow Profiler takes off the overlap with each, which counts an instant twice
    where inputs ran at once). A call blocks when it overlaps the blocking call above it. The
    bottleneck of a call of the root is the blocking iterator with the largest self time in it;
    calls up to 50 µs are none.
    """

    _none = "No tf.data pipeline was recorded in this profile."

    def _there(self) -> bool:
        return len(self._profile.run.tf_data.pipelines) > 0

    def _name_of(self) -> str:
        return "tf_data"

    @property
    def pipelines(self) -> pd.DataFrame:
        """Pipelines of all hosts, the one with the longest call first.

        `bottleneck` (with `bottleneck_path`, and its self time `bottleneck_us`) is that of the
        longest call; `advice` says what helps it and `fix` gives the code. `slow_calls` took over
        50 µs.
        """
        return self._profile.run.tf_data.pipelines.copy()

    @property
    def nodes(self) -> pd.DataFrame:
        """Iterators of the pipelines, with the times of all calls summed up.

        `bottleneck` marks the blocking iterator with the most self time over all calls, `critical`
        the path from the root through it to a source. One call alone is in `call`.
        """
        return self._profile.run.tf_data.nodes.copy()

    @property
    def calls(self) -> pd.DataFrame:
        """One row per call of a root, by pipeline, longest first (`rank` 0): its begin, duration,
        and bottleneck with its self time.
        """
        return self._profile.run.tf_data.calls.copy()

    @property
    def summary(self) -> dict[str, Any]:
        """The slowest host pipeline, and whether it limits the program.

        `input_bound` (longest call over 50 µs; None without tf.data), `host` `pipeline` `max_us`
        `bottleneck` `bottleneck_us` of the slowest host pipeline, a `statement` and the
        `next_step`.
        """
        return dict(self._profile.run.tf_data.summary)

    def call(self, pipeline: str, rank: int = 0, host: str | None = None) -> pd.DataFrame:
        """The graph of one call: each iterator with its time, self time and calls in it; the
        columns of `nodes`.

        Parameters
        ----------
        pipeline : str
            As in `pipelines`: "Host:0".
        rank : int
            0 for the longest call of the pipeline, 1 for the next …
        host : str, optional
            Which host; by default the one whose pipeline of that name is the slowest.

        Raises
        ------
        NbprofError
            No such pipeline, or it has fewer calls.
        """
        pipelines = self._profile.run.tf_data.pipelines
        rows = pipelines[pipelines["pipeline"] == pipeline]
        if host is not None:
            rows = rows[rows["host"] == host]
        if not len(rows):
            names = [
                f"{name} of {recorder}"
                for recorder, name in zip(pipelines["host"], pipelines["pipeline"], strict=True)
            ]
            on = f" on {host!r}" if host else ""
            raise NbprofError(
                f"there is no pipeline {pipeline!r}{on}; there are: {', '.join(names) or 'none'}"
            )
        count = int(rows["calls"].iloc[0])
        if not 0 <= rank < count:
            raise NbprofError(
                f"pipeline {pipeline} has {count} calls: rank must be 0 to {count - 1}"
            )
        return self._profile.run.tf_data.call(str(rows["host"].iloc[0]), pipeline, rank).copy()
