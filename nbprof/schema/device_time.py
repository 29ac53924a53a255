"""The schema of the frames about the time of devices, as nbprof/schema/frames.py has those of the other views."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, declared, flag, ms, percent, text, us


def _gbs(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "gb_per_second", label, f"{help} In 10⁹ bytes a second.", "number", 2)


_KEYS = [
    text("host", "Host", "Machine, or rank of a PyTorch job, that recorded."),
    count("rank", "Rank", "Number of the rank, where the file or its name states it.", "Int64"),
    count("device", "Device", "Ordinal of the device on its host."),
]
_STEP = count("step", "Step", "Number of the step; missing for the whole recording.", "Int64")
_WINDOW = [
    *_KEYS,
    _STEP,
    text("name", "Name", "Name of the step; empty for the whole recording."),
    ms("start_ms", "Start ms", "Begin of the step, or of the first work of the device."),
]
_STREAM = text("stream", "Stream", "Queue of the device that works one after another.")
_CLASS = text("class", "Class", "compute, communication or memory.")
_KERNEL = text("kernel", "Kernel", "Name of the kernel, copy or fill; of a TPU the op.", "code")

SCHEMA: dict[str, list[Col]] = {
    "device_time": [
        *_WINDOW,
        ms("time_ms", "Time ms", "Length of the step, or from the first work of the device to its last."),
        ms("compute_ms", "Compute ms", "Time in which any kernel computed, whatever ran beside it."),
        ms("communication_ms", "Communication ms", "Time in which collectives ran and nothing computed."),
        ms("memory_ms", "Memory ms", "Time in which only copies and fills ran."),
        ms("idle_ms", "Idle ms", "Time in which nothing ran."),
        percent("compute_percent", "Compute %", "Part of the time in which any kernel computed."),
        percent("communication_percent", "Communication %", "Part of the time in which collectives ran and nothing computed."),
        percent("memory_percent", "Memory %", "Part of the time in which only copies and fills ran."),
        percent("idle_percent", "Idle %", "Part of the time in which nothing ran."),
    ],
    "device_overlap": [
        *_WINDOW,
        ms("compute_ms", "Compute ms", "Time in which any kernel computed."),
        ms("communication_ms", "Communication ms", "Time in which any collective ran, whatever ran beside it."),
        ms("memory_ms", "Memory ms", "Time in which any copy or fill ran, whatever ran beside it."),
        ms("compute_communication_ms", "Comm. + comp. ms", "Time in which computation and communication ran at once."),
        ms("compute_memory_ms", "Mem. + comp. ms", "Time in which computation and copies ran at once."),
        ms("communication_memory_ms", "Comm. + mem. ms", "Time in which communication and copies ran at once."),
        ms("exposed_communication_ms", "Exposed ms", "Time in which communication ran and nothing computed."),
        ms("exposed_memory_ms", "Only memory ms", "Time in which copies and fills alone ran."),
        percent("communication_overlap_percent", "Hidden %", "Part of the communication that ran beside computation."),
        percent("memory_overlap_percent", "Hidden copies %", "Part of the copies and fills that ran beside something else."),
    ],
    "device_idle": [
        *_KEYS,
        text("stream", "Stream", "Queue of the device; empty for all of them together."),
        text("category", "Category", "host_wait: not launched yet; kernel_wait: less than 30 µs between two works; other."),
        count("gaps", "Gaps", "How often the stream stood still."),
        ms("idle_ms", "Idle ms", "Time of these gaps."),
        percent("percent", "%", "Part of the idle time of the stream."),
        us("mean_us", "Mean µs", "Mean length of a gap."),
        us("median_us", "Median µs", "Median length of a gap."),
        us("max_us", "Max µs", "Longest gap."),
    ],
    "device_idle_causes": [
        *_KEYS,
        text("cause", "The host was", "What the host did while the device waited for a launch."),
        ms("idle_ms", "Idle ms", "Idle time of the device in which the host did that."),
        percent("percent", "%", "Part of the idle time in which the host was waited for."),
    ],
    "device_kernels": [
        *_KEYS,
        _CLASS,
        _KERNEL,
        count("occurrences", "Count", "How often it ran."),
        us("total_us", "Total µs", "Time of all runs."),
        us("avg_us", "Avg µs", "Mean time of a run."),
        us("sd_us", "SD µs", "Standard deviation (n - 1) of the runs; missing of one."),
        us("min_us", "Min µs", "Shortest run."),
        us("median_us", "Median µs", "Median of the runs."),
        us("max_us", "Max µs", "Longest run."),
        percent("percent", "%", "Part of the summed time of all work of the device."),
        percent("cumulative_percent", "cum. %", "This row and those above it."),
    ],
    "device_queue": [
        *_KEYS,
        _STREAM,
        count("works", "Launched", "Kernels, copies and fills whose launch is known."),
        Col("mean_length", "float64", "", "Mean queue", "Works that are launched and have not begun, mean over time.", "number", 1),
        Col("median_length", "float64", "", "Median queue", "The same, median over time.", "number", 0),
        count("max_length", "Max queue", "Most works that waited at a time."),
        percent("empty_percent", "Empty %", "Part of the time in which nothing waited."),
        ms("full_ms", "Full ms", "Time in which 1,024 or more waited, so that the next launch blocks the host."),
        percent("full_percent", "Full %", "Part of the time in which 1,024 or more waited."),
    ],
    "device_queue_series": [
        *_KEYS,
        _STREAM,
        ms("time_ms", "Time ms", "When the length changes; it holds until the next row of the stream."),
        count("queue_length", "Queue", "Works that are launched and have not begun."),
    ],
    "device_launches": [
        *_KEYS,
        _CLASS,
        text("kernel", "Kernel", "Name of the (first) work that was launched; empty for all together.", "code"),
        count("launches", "Launches", "Calls that started work."),
        count("kernels", "Kernels", "Works that they started; a graph has many."),
        us("call_us", "Call µs", "Mean time of the call on the host."),
        us("median_call_us", "Call median µs", "Median time of the call."),
        us("max_call_us", "Call max µs", "Longest call."),
        us("kernel_us", "Kernel µs", "Mean time of what a call launched."),
        us("median_kernel_us", "Kernel median µs", "Median time of what a call launched."),
        us("delay_us", "Delay µs", "Mean time from the end of the call to the begin of its work; 0 where that began sooner."),
        us("median_delay_us", "Delay median µs", "Median of the delays."),
        us("max_delay_us", "Delay max µs", "Longest delay."),
        count("short", "Short", "Launches whose work took less time than the call itself."),
        count("slow_calls", "Slow calls", "Calls of more than 50 µs."),
        count("long_delays", "Long delays", "Delays of more than 100 µs."),
    ],
    "device_each_launch": [
        *_KEYS,
        text("call", "Call", "Name of the call on the host.", "code"),
        _CLASS,
        _KERNEL,
        count("kernels", "Kernels", "Works that the call started."),
        ms("start_ms", "Start ms", "Begin of the call."),
        us("call_us", "Call µs", "Time of the call."),
        us("kernel_us", "Kernel µs", "Time of the works together."),
        us("delay_us", "Delay µs", "From the end of the call to the begin of the first work."),
        flag("short", "Short", "Whether the works took less time than the call."),
    ],
    "device_bandwidth": [
        *_KEYS,
        text("copy", "Copy", "From where to where."),
        count("copies", "Copies", "How many there were."),
        Col("bytes", "Int64", "bytes", "Size", "Bytes of all copies whose size is known.", "bytes", None),
        ms("time_ms", "Time ms", "Time of all copies."),
        _gbs("gb_per_second", "GB/s", "Bytes of all copies by their time."),
        _gbs("min_gb_per_second", "Min GB/s", "Slowest copy."),
        _gbs("median_gb_per_second", "Median GB/s", "Median of the copies."),
        _gbs("max_gb_per_second", "Max GB/s", "Fastest copy."),
        _gbs("peak_gb_per_second", "Peak GB/s", "Most that copies moved at a time, those that ran at once added up."),
        count("unknown", "Unknown", "Copies whose size or time is not known."),
    ],
    "device_bandwidth_series": [
        *_KEYS,
        text("copy", "Copy", "From where to where."),
        ms("time_ms", "Time ms", "When the rate changes; it holds until the next row of the device and kind."),
        _gbs("gb_per_second", "GB/s", "Rate of all copies of the kind that run then."),
    ],
    "device_collectives": [
        text("collective", "Collective", "What the ranks did together."),
        text("process_group", "Group", "Name of the process group, where it was recorded."),
        count("group_size", "Ranks", "Ranks of the group, where it was recorded.", "Int64"),
        Col("bytes", "Int64", "bytes", "Size", "Bytes of one collective, as NCCL's tests count them.", "bytes", None),
        count("collectives", "Count", "Collectives whose calls were found on several ranks.", "Int64"),
        count("calls", "Calls", "Calls of all ranks."),
        ms("time_ms", "Time ms", "Time of all calls."),
        ms("wait_ms", "Waiting ms", "Part of it in which a rank waited for the last one."),
        percent("wait_percent", "Waiting %", "The same as a part of the time of calls that were matched."),
        us("real_us", "Itself µs", "Mean time that a collective took once the last rank was there."),
        us("min_real_us", "Min µs", "Shortest of these."),
        us("max_real_us", "Max µs", "Longest of these."),
        _gbs("algorithm_gb_per_second", "Algorithm GB/s", "Size by the time of the collective itself."),
        _gbs("bus_gb_per_second", "Bus GB/s", "The same times what a link must carry: 2(n-1)/n of an all-reduce, (n-1)/n of a gather."),
    ],
    "device_each_collective": [
        *_KEYS,
        _STEP,
        text("collective", "Collective", "What the ranks did together."),
        text("process_group", "Group", "Name of the process group, where it was recorded."),
        count("group_size", "Ranks", "Ranks of the group, where it was recorded.", "Int64"),
        count("sequence", "Sequence", "Number of the collective in its group, where it was recorded.", "Int64"),
        Col("bytes", "Int64", "bytes", "Size", "Bytes of the collective, as NCCL's tests count them.", "bytes", None),
        ms("start_ms", "Start ms", "When this rank entered."),
        us("time_us", "Time µs", "How long this rank was in it."),
        count("ranks_seen", "Seen", "Ranks of this profile in which the collective was found."),
        us("real_us", "Itself µs", "Least time of a rank in it: what it took once the last was there."),
        us("wait_us", "Waiting µs", "What this rank spent beyond that."),
        us("late_us", "Late µs", "How much later than the first rank this one came."),
        flag("last", "Last", "Whether this rank came last."),
        _gbs("algorithm_gb_per_second", "Algorithm GB/s", "Size by the time of the collective itself."),
        _gbs("bus_gb_per_second", "Bus GB/s", "The same times what a link must carry."),
        count("match", "Match", "The same number for all ranks of one collective; -1 where the others were not found."),
    ],
    "device_stragglers": [
        _STEP,
        *_KEYS,
        count("collectives", "Collectives", "Collectives of the rank that were found on others too."),
        count("last_in", "Last in", "In how many of them the rank came last."),
        ms("late_ms", "Late ms", "How much later than the first rank it came, all collectives together."),
        ms("wait_ms", "Waited ms", "How long it waited for others."),
        percent("wait_percent", "Waited %", "Part of its time in collectives."),
        ms("cost_ms", "Cost ms", "How long the longest waiting rank stood still in those in which this one came last."),
        flag("straggler", "Straggler", "Whether it cost the most, and more than 1 % of the step."),
    ],
    "device_critical_path": [
        text("kind", "Kind", "What the pieces are; see p.device_time."),
        text("name", "Name", "Kernel, call, op or function.", "code"),
        text("op", "Op", "Framework op that the kernel or call belongs to.", "code"),
        count("pieces", "Pieces", "How often the path runs through it."),
        us("total_us", "Total µs", "Time of the path in it."),
        percent("percent", "%", "Part of the path, which is the step."),
        us("longest_us", "Longest µs", "Longest piece."),
    ],
    "device_critical_path_pieces": [
        text("kind", "Kind", "What the piece is; see p.device_time."),
        text("name", "Name", "Kernel, call, op or function.", "code"),
        text("op", "Op", "Framework op that the kernel or call belongs to.", "code"),
        text("where", "Where", "Stream or thread."),
        ms("start_ms", "Start ms", "Begin of the piece; the next one begins where it ends."),
        us("duration_us", "Duration µs", "Length of the piece."),
    ],
}
"""The frames of `p.device_time`."""


def column(frame: str, name: str) -> Col:
    """The declaration of one column; a KeyError names those that exist."""
    return declared(SCHEMA, frame, name)
