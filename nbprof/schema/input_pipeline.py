"""The input pipeline on the host, and tf.data."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, percent, size, text, us

_HOST = text("host", "Host", "Machine that recorded the row.")

_LOADER = text("loader", "Loader", "Class of the dataset that the loader reads, or tf.data.")

SCHEMA: dict[str, list[Col]] = {
    "input_pipeline.frame": [
        text(
            "op", "Iterator", "Input op; iterators are named by their path from the root.", "code"
        ),
        text("category", "Category", "Kind of input work."),
        count("occurrences", "Count", "Runs of the op."),
        ms("total_ms", "Total ms", "Total duration, including nested iterators."),
        percent(
            "total_percent", "Total %", "Total time as a share of the self time of all input ops."
        ),
        ms(
            "self_ms",
            "Self ms",
            "Total duration, excluding nested iterators on the same thread; of the whole"
            " recording.",
        ),
        percent("self_percent", "Self %", "Share of the self time of all input ops."),
    ],
    "input_pipeline.categories": [
        text("category", "Category", "Key of the kind of input work."),
        text("label", "Kind of work", "Kind of input work."),
        ms(
            "time_ms",
            "ms",
            "Self time of these ops, as recorded; missing if the profile does not show whether"
            " there were any.",
        ),
        percent("percent", "% of input time", "Share of the self time of all input ops."),
        text("advice", "What helps", "What to try; empty if no time was spent."),
    ],
    "input_pipeline.summary.breakdown": [
        text("category", "Category", "Key of the kind of input work."),
        us(
            "us",
            "µs",
            "Time in this kind of work, scaled by the share of the time between enqueues that is"
            " spent enqueuing.",
        ),
        us("us_per_step", "µs / step", "The same, divided by the number of steps."),
        percent("percent", "%", "Share of the time of all kinds."),
    ],
    "input_pipeline.workers": [
        _LOADER,
        text(
            "worker",
            "Worker",
            "Number of the worker in its loader, from 0; of threads of the process, with thread"
            " before it; main process: the loop makes the batches itself, with num_workers=0.",
        ),
        count(
            "items",
            "Items",
            "Items that it made while the recording ran; missing where a batch is made as a whole.",
            "Int64",
        ),
        count("batches", "Batches", "Batches that it made."),
        ms("busy_ms", "Busy ms", "Time in which it made batches: items and collation."),
        percent("busy_percent", "Busy %", "Busy time, as a share of busy and waiting time."),
        ms("batch_ms", "Batch ms", "Busy time per batch."),
        ms(
            "waiting_ms",
            "Waiting ms",
            "Time in which the loader asked it for nothing, as all batches that it prefetches were"
            " ready or asked of others. Of the main process: time between its batches.",
        ),
        ms(
            "delayed_ms",
            "No core ms",
            "Time in which its main thread could have run but had no core; 0 where that is not"
            " counted, as in the main process.",
        ),
        count("restarts", "Restarts", "Processes started for it after the first one."),
        ms(
            "start_ms",
            "Start ms",
            "From when the loader began to start its workers until this one was ready: mean of its"
            " processes.",
        ),
        ms("pickle_ms", "Pickle ms", "CPU time in which it pickled batches."),
        size("pickled_bytes", "Pickled", "Bytes that it sent through the queue of the loader."),
        size("shared_bytes", "Shared", "Bytes of tensors that it handed over in shared memory."),
        size(
            "memory_bytes",
            "Memory",
            "Largest resident memory seen, pages that it shares with other processes included.",
            "Int64",
        ),
    ],
    "input_pipeline.transforms": [
        _LOADER,
        text(
            "kind",
            "Kind",
            "dataset, transform or collate; function or generator: Python that tf.data calls.",
        ),
        text("stage", "Stage", "Class or function that takes part in making an item.", "code"),
        text("where", "Where", "File and line at which its code begins.", "code"),
        count(
            "calls",
            "Calls",
            "Calls that were timed, in all workers or in the main process; of tf.data, all calls.",
        ),
        ms(
            "per_call_ms",
            "ms / call",
            "Time in it per call, without that of the other stages that it calls.",
            3,
        ),
        ms(
            "per_item_ms",
            "ms / item",
            "Time in it per item, without that of the other stages that it calls; missing where the"
            " number of items is unknown.",
            3,
        ),
        percent("percent", "% of work", "Share of the time in which batches were made."),
        ms("longest_ms", "Longest ms", "Longest call, with the stages that it calls."),
        text(
            "inside",
            "Inside",
            "Line with at least half of the samples of the stage, and its share; else empty.",
            "code",
        ),
    ],
    "tf_data.pipelines": [
        _HOST,
        text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        count("calls", "Calls", "Calls of the root iterator."),
        count("slow_calls", "Slow calls", "Calls of the root over 50 µs."),
        us("mean_us", "Mean µs", "Mean duration of a call."),
        us("min_us", "Min µs", "Shortest call."),
        us("max_us", "Max µs", "Longest call."),
        text(
            "bottleneck",
            "Bottleneck",
            "Blocking iterator with the largest self time in the longest call.",
        ),
        text("advice", "Advice", "What limits the pipeline, and what to try."),
        text("bottleneck_path", "Path", "Path of the bottleneck from the root.", "code"),
        us("bottleneck_us", "Bottleneck µs", "Self time of the bottleneck in the longest call."),
        text("fix", "Fix", "Diff lines: - removed, + added.", "code"),
    ],
    "tf_data.calls": [
        _HOST,
        text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        count("rank", "Rank", "Position among the calls of the pipeline: 0 is the longest."),
        ms("start_ms", "Start ms", "Start of the call, from the start of the profile."),
        us("duration_us", "Duration µs", "Duration of the call."),
        text(
            "bottleneck", "Bottleneck", "Blocking iterator with the largest self time in the call."
        ),
        text("bottleneck_path", "Path", "Path of the bottleneck from the root.", "code"),
        us("bottleneck_us", "Bottleneck µs", "Its self time in the call."),
    ],
    "tf_data.nodes": [
        text("iterator", "Iterator", "Kind of iterator."),
        text("long_name", "Path", "Path from the root.", "code"),
        text("parent", "Parent", "`id` of the iterator that consumes this one."),
        ms("start_ms", "Start ms", "Start of the first call, from the start of the profile."),
        ms("total_ms", "Total ms", "Duration of all calls."),
        ms("self_ms", "Self ms", "Duration of all calls minus the overlap with their inputs."),
        count("calls", "Calls", "Calls of the iterator."),
        Col(
            "critical",
            "bool",
            "",
            "Critical",
            "On the path from the root through the bottleneck to a source.",
            "bool",
            None,
        ),
        Col(
            "bottleneck",
            "bool",
            "",
            "Bottleneck",
            "Blocking iterator with the largest self time.",
            "bool",
            None,
        ),
        text("pipeline", "Pipeline", "Host or device pipeline with its number."),
        _HOST,
        text(
            "note",
            "Note",
            "Parameters stated in the iterator's metadata: threads, batch, buffer, cycle.",
        ),
        text("id", "Id", "Number of the iterator."),
        Col(
            "blocking",
            "bool",
            "",
            "Blocking",
            "Whether any of its calls blocked a call of the root.",
            "bool",
            None,
        ),
        count(
            "buffered_elements",
            "Buffered",
            "The most elements in its buffer at any recorded call, as TensorFlow states it.",
            "Int64",
        ),
        size(
            "buffered_bytes",
            "Buffered bytes",
            "Their memory by the shapes and types of an element; missing if these leave it open.",
            "Int64",
        ),
    ],
}
