"""The schema of the frames about the time of devices, as nbprof/frames.py has those of the other views."""

from __future__ import annotations

from nbprof.frames import Col


def _text(name: str, label: str, help: str, kind: str = "text") -> Col:
    return Col(name, "object", "", label, help, kind, None)


def _count(name: str, label: str, help: str, dtype: str = "int64") -> Col:
    return Col(name, dtype, "", label, help, "number", 0)


def _ms(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "ms", label, help, "number", 2)


def _us(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "us", label, help, "number", 1)


def _percent(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "percent", label, help, "percent", 1)


def _gbs(name: str, label: str, help: str) -> Col:
    return Col(name, "float64", "gb_per_second", label, f"{help} In 10⁹ bytes a second.", "number", 2)


def _flag(name: str, label: str, help: str) -> Col:
    return Col(name, "bool", "", label, help, "bool", None)


_KEYS = [
    _text("host", "Host", "Machine, or rank of a PyTorch job, that recorded."),
    _count("rank", "Rank", "Number of the rank, where the file or its name states it.", "Int64"),
    _count("device", "Device", "Ordinal of the device on its host."),
]
_STEP = _count("step", "Step", "Number of the step; missing for the whole recording.", "Int64")
_WINDOW = [
    *_KEYS,
    _STEP,
    _text("name", "Name", "Name of the step; empty for the whole recording."),
    _ms("start_ms", "Start ms", "Begin of the step, or of the first work of the device."),
]
_STREAM = _text("stream", "Stream", "Queue of the device that works one after another.")
_CLASS = _text("class", "Class", "compute, communication or memory.")
_KERNEL = _text("kernel", "Kernel", "Name of the kernel, copy or fill; of a TPU the op.", "code")

SCHEMA: dict[str, list[Col]] = {
    "device_time": [
        *_WINDOW,
        _ms("time_ms", "Time ms", "Length of the step, or from the first work of the device to its last."),
        _ms("compute_ms", "Compute ms", "Time in which any kernel computed, whatever ran beside it."),
        _ms("communication_ms", "Communication ms", "Time in which collectives ran and nothing computed."),
        _ms("memory_ms", "Memory ms", "Time in which only copies and fills ran."),
        _ms("idle_ms", "Idle ms", "Time in which nothing ran."),
        _percent("compute_percent", "Compute %", "Part of the time in which any kernel computed."),
        _percent("communication_percent", "Communication %", "Part of the time in which collectives ran and nothing computed."),
        _percent("memory_percent", "Memory %", "Part of the time in which only copies and fills ran."),
        _percent("idle_percent", "Idle %", "Part of the time in which nothing ran."),
    ],
    "device_overlap": [
        *_WINDOW,
        _ms("compute_ms", "Compute ms", "Time in which any kernel computed."),
        _ms("communication_ms", "Communication ms", "Time in which any collective ran, whatever ran beside it."),
        _ms("memory_ms", "Memory ms", "Time in which any copy or fill ran, whatever ran beside it."),
        _ms("compute_communication_ms", "Comm. + comp. ms", "Time in which computation and communication ran at once."),
        _ms("compute_memory_ms", "Mem. + comp. ms", "Time in which computation and copies ran at once."),
        _ms("communication_memory_ms", "Comm. + mem. ms", "Time in which communication and copies ran at once."),
        _ms("exposed_communication_ms", "Exposed ms", "Time in which communication ran and nothing computed."),
        _ms("exposed_memory_ms", "Only memory ms", "Time in which copies and fills alone ran."),
        _percent("communication_overlap_percent", "Hidden %", "Part of the communication that ran beside computation."),
        _percent("memory_overlap_percent", "Hidden copies %", "Part of the copies and fills that ran beside something else."),
    ],
    "device_idle": [
        *_KEYS,
        _text("stream", "Stream", "Queue of the device; empty for all of them together."),
        _text("category", "Category", "host_wait: not launched yet; kernel_wait: less than 30 µs between two works; other."),
        _count("gaps", "Gaps", "How often the stream stood still."),
        _ms("idle_ms", "Idle ms", "Time of these gaps."),
        _percent("percent", "%", "Part of the idle time of the stream."),
        _us("mean_us", "Mean µs", "Mean length of a gap."),
        _us("median_us", "Median µs", "Median length of a gap."),
        _us("max_us", "Max µs", "Longest gap."),
    ],
    "device_idle_causes": [
        *_KEYS,
        _text("cause", "The host was", "What the host did while the device waited for a launch."),
        _ms("idle_ms", "Idle ms", "Idle time of the device in which the host did that."),
        _percent("percent", "%", "Part of the idle time in which the host was waited for."),
    ],
    "device_kernels": [
        *_KEYS,
        _CLASS,
        _KERNEL,
        _count("occurrences", "Count", "How often it ran."),
        _us("total_us", "Total µs", "Time of all runs."),
        _us("avg_us", "Avg µs", "Mean time of a run."),
        _us("sd_us", "SD µs", "Standard deviation (n - 1) of the runs; missing of one."),
        _us("min_us", "Min µs", "Shortest run."),
        _us("median_us", "Median µs", "Median of the runs."),
        _us("max_us", "Max µs", "Longest run."),
        _percent("percent", "%", "Part of the summed time of all work of the device."),
        _percent("cumulative_percent", "cum. %", "This row and those above it."),
    ],
    "device_queue": [
        *_KEYS,
        _STREAM,
        _count("works", "Launched", "Kernels, copies and fills whose launch is known."),
        Col("mean_length", "float64", "", "Mean queue", "Works that are launched and have not begun, mean over time.", "number", 1),
        Col("median_length", "float64", "", "Median queue", "The same, median over time.", "number", 0),
        _count("max_length", "Max queue", "Most works that waited at a time."),
        _percent("empty_percent", "Empty %", "Part of the time in which nothing waited."),
        _ms("full_ms", "Full ms", "Time in which 1,024 or more waited, so that the next launch blocks the host."),
        _percent("full_percent", "Full %", "Part of the time in which 1,024 or more waited."),
    ],
    "device_queue_series": [
        *_KEYS,
        _STREAM,
        _ms("time_ms", "Time ms", "When the length changes; it holds until the next row of the stream."),
        _count("queue_length", "Queue", "Works that are launched and have not begun."),
    ],
    "device_launches": [
        *_KEYS,
        _CLASS,
        _text("kernel", "Kernel", "Name of the (first) work that was launched; empty for all together.", "code"),
        _count("launches", "Launches", "Calls that started work."),
        _count("kernels", "Kernels", "Works that they started; a graph has many."),
        _us("call_us", "Call µs", "Mean time of the call on the host."),
        _us("median_call_us", "Call median µs", "Median time of the call."),
        _us("max_call_us", "Call max µs", "Longest call."),
        _us("kernel_us", "Kernel µs", "Mean time of what a call launched."),
        _us("median_kernel_us", "Kernel median µs", "Median time of what a call launched."),
        _us("delay_us", "Delay µs", "Mean time from the end of the call to the begin of its work; 0 where that began sooner."),
        _us("median_delay_us", "Delay median µs", "Median of the delays."),
        _us("max_delay_us", "Delay max µs", "Longest delay."),
        _count("short", "Short", "Launches whose work took less time than the call itself."),
        _count("slow_calls", "Slow calls", "Calls of more than 50 µs."),
        _count("long_delays", "Long delays", "Delays of more than 100 µs."),
    ],
    "device_each_launch": [
        *_KEYS,
        _text("call", "Call", "Name of the call on the host.", "code"),
        _CLASS,
        _KERNEL,
        _count("kernels", "Kernels", "Works that the call started."),
        _ms("start_ms", "Start ms", "Begin of the call."),
        _us("call_us", "Call µs", "Time of the call."),
        _us("kernel_us", "Kernel µs", "Time of the works together."),
        _us("delay_us", "Delay µs", "From the end of the call to the begin of the first work."),
        _flag("short", "Short", "Whether the works took less time than the call."),
    ],
    "device_bandwidth": [
        *_KEYS,
        _text("copy", "Copy", "From where to where."),
        _count("copies", "Copies", "How many there were."),
        Col("bytes", "Int64", "bytes", "Size", "Bytes of all copies whose size is known.", "bytes", None),
        _ms("time_ms", "Time ms", "Time of all copies."),
        _gbs("gb_per_second", "GB/s", "Bytes of all copies by their time."),
        _gbs("min_gb_per_second", "Min GB/s", "Slowest copy."),
        _gbs("median_gb_per_second", "Median GB/s", "Median of the copies."),
        _gbs("max_gb_per_second", "Max GB/s", "Fastest copy."),
        _gbs("peak_gb_per_second", "Peak GB/s", "Most that copies moved at a time, those that ran at once added up."),
        _count("unknown", "Unknown", "Copies whose size or time is not known."),
    ],
    "device_bandwidth_series": [
        *_KEYS,
        _text("copy", "Copy", "From where to where."),
        _ms("time_ms", "Time ms", "When the rate changes; it holds until the next row of the device and kind."),
        _gbs("gb_per_second", "GB/s", "Rate of all copies of the kind that run then."),
    ],
    "device_collectives": [
        _text("collective", "Collective", "What the ranks did together."),
        _text("process_group", "Group", "Name of the process group, where it was recorded."),
        _count("group_size", "Ranks", "Ranks of the group, where it was recorded.", "Int64"),
        Col("bytes", "Int64", "bytes", "Size", "Bytes of one collective, as NCCL's tests count them.", "bytes", None),
        _count("collectives", "Count", "Collectives whose calls were found on several ranks.", "Int64"),
        _count("calls", "Calls", "Calls of all ranks."),
        _ms("time_ms", "Time ms", "Time of all calls."),
        _ms("wait_ms", "Waiting ms", "Part of it in which a rank waited for the last one."),
        _percent("wait_percent", "Waiting %", "The same as a part of the time of calls that were matched."),
        _us("real_us", "Itself µs", "Mean time that a collective took once the last rank was there."),
        _us("min_real_us", "Min µs", "Shortest of these."),
        _us("max_real_us", "Max µs", "Longest of these."),
        _gbs("algorithm_gb_per_second", "Algorithm GB/s", "Size by the time of the collective itself."),
        _gbs("bus_gb_per_second", "Bus GB/s", "The same times what a link must carry: 2(n-1)/n of an all-reduce, (n-1)/n of a gather."),
    ],
    "device_each_collective": [
        *_KEYS,
        _STEP,
        _text("collective", "Collective", "What the ranks did together."),
        _text("process_group", "Group", "Name of the process group, where it was recorded."),
        _count("group_size", "Ranks", "Ranks of the group, where it was recorded.", "Int64"),
        _count("sequence", "Sequence", "Number of the collective in its group, where it was recorded.", "Int64"),
        Col("bytes", "Int64", "bytes", "Size", "Bytes of the collective, as NCCL's tests count them.", "bytes", None),
        _ms("start_ms", "Start ms", "When this rank entered."),
        _us("time_us", "Time µs", "How long this rank was in it."),
        _count("ranks_seen", "Seen", "Ranks of this profile in which the collective was found."),
        _us("real_us", "Itself µs", "Least time of a rank in it: what it took once the last was there."),
        _us("wait_us", "Waiting µs", "What this rank spent beyond that."),
        _us("late_us", "Late µs", "How much later than the first rank this one came."),
        _flag("last", "Last", "Whether this rank came last."),
        _gbs("algorithm_gb_per_second", "Algorithm GB/s", "Size by the time of the collective itself."),
        _gbs("bus_gb_per_second", "Bus GB/s", "The same times what a link must carry."),
        _count("match", "Match", "The same number for all ranks of one collective; -1 where the others were not found."),
    ],
    "device_stragglers": [
        _STEP,
        *_KEYS,
        _count("collectives", "Collectives", "Collectives of the rank that were found on others too."),
        _count("last_in", "Last in", "In how many of them the rank came last."),
        _ms("late_ms", "Late ms", "How much later than the first rank it came, all collectives together."),
        _ms("wait_ms", "Waited ms", "How long it waited for others."),
        _percent("wait_percent", "Waited %", "Part of its time in collectives."),
        _ms("cost_ms", "Cost ms", "How long the longest waiting rank stood still in those in which this one came last."),
        _flag("straggler", "Straggler", "Whether it cost the most, and more than 1 % of the step."),
    ],
    "device_critical_path": [
        _text("kind", "Kind", "What the pieces are; see p.device_time."),
        _text("name", "Name", "Kernel, call, op or function.", "code"),
        _text("op", "Op", "Framework op that the kernel or call belongs to.", "code"),
        _count("pieces", "Pieces", "How often the path runs through it."),
        _us("total_us", "Total µs", "Time of the path in it."),
        _percent("percent", "%", "Part of the path, which is the step."),
        _us("longest_us", "Longest µs", "Longest piece."),
    ],
    "device_critical_path_pieces": [
        _text("kind", "Kind", "What the piece is; see p.device_time."),
        _text("name", "Name", "Kernel, call, op or function.", "code"),
        _text("op", "Op", "Framework op that the kernel or call belongs to.", "code"),
        _text("where", "Where", "Stream or thread."),
        _ms("start_ms", "Start ms", "Begin of the piece; the next one begins where it ends."),
        _us("duration_us", "Duration µs", "Length of the piece."),
    ],
}
"""The frames of `p.device_time`."""


def column(frame: str, name: str) -> Col:
    """The declaration of one column.

    Raises
    ------
    KeyError
        No such frame or column.
    """
    for col in SCHEMA[frame]:
        if col.name == name:
            return col
    raise KeyError(f"frame {frame!r} has no column {name!r}; it has {', '.join(col.name for col in SCHEMA[frame])}")
