"""Columns of the time of devices."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, percent, text, us


def _gbs(name: str, label: str, help: str) -> Col:
    return Col(
        name, "float64", "gb_per_second", label, f"{help} In 10⁹ bytes per second.", "number", 2
    )


_KEYS = [
    text("host", "Host", "Machine that recorded the row, or rank of a PyTorch job."),
    count("rank", "Rank", "Rank number, if the file or its name states it.", "Int64"),
    count("device", "Device", "Ordinal of the device on its host."),
]
_STEP = count("step", "Step", "Step number; missing for the whole recording.", "Int64")
_WINDOW = [
    *_KEYS,
    _STEP,
    text("name", "Name", "Name of the step; empty for the whole recording."),
    ms("start_ms", "Start ms", "Start of the step, or of the first activity on the device."),
]
_STREAM = text("stream", "Stream", "Queue of the device that runs activities one after another.")
_CLASS = text("class", "Class", "compute, communication or memory.")
_KERNEL = text("kernel", "Kernel", "Name of the kernel, copy or fill; on a TPU, of the op.", "code")

SCHEMA: dict[str, list[Col]] = {
    "device_time.frame": [
        *_WINDOW,
        ms(
            "time_ms",
            "Time ms",
            "Duration of the step, or from the first to the last activity on the device.",
        ),
        ms("compute_ms", "Compute ms", "Time in which any compute kernel ran, whatever else ran."),
        ms(
            "communication_ms",
            "Communication ms",
            "Time in which collectives ran and no compute kernel.",
        ),
        ms("memory_ms", "Memory ms", "Time in which only copies and fills ran."),
        ms("idle_ms", "Idle ms", "Time in which nothing ran."),
        percent(
            "compute_percent", "Compute %", "Share of the time in which any compute kernel ran."
        ),
        percent(
            "communication_percent",
            "Communication %",
            "Share of the time in which collectives ran and no compute kernel.",
        ),
        percent(
            "memory_percent", "Memory %", "Share of the time in which only copies and fills ran."
        ),
        percent("idle_percent", "Idle %", "Share of the time in which nothing ran."),
    ],
    "device_time.overlap": [
        *_WINDOW,
        ms("compute_ms", "Compute ms", "Time in which any compute kernel ran."),
        ms(
            "communication_ms",
            "Communication ms",
            "Time in which any collective ran, whatever else ran.",
        ),
        ms("memory_ms", "Memory ms", "Time in which any copy or fill ran, whatever else ran."),
        ms(
            "compute_communication_ms",
            "Comm. + comp. ms",
            "Time in which computation and communication overlapped.",
        ),
        ms(
            "compute_memory_ms",
            "Mem. + comp. ms",
            "Time in which computation and copies overlapped.",
        ),
        ms(
            "communication_memory_ms",
            "Comm. + mem. ms",
            "Time in which communication and copies overlapped.",
        ),
        ms(
            "exposed_communication_ms",
            "Exposed ms",
            "Time in which communication ran and no computation.",
        ),
        ms("exposed_memory_ms", "Memory only ms", "Time in which only copies and fills ran."),
        percent(
            "communication_overlap_percent",
            "Hidden %",
            "Share of communication that overlapped computation.",
        ),
        percent(
            "memory_overlap_percent",
            "Hidden copies %",
            "Share of copies and fills that overlapped something else.",
        ),
    ],
    "device_time.idle": [
        *_KEYS,
        text("stream", "Stream", "Queue of the device; empty for all of them combined."),
        text(
            "category",
            "Category",
            "host_wait: not launched yet; kernel_wait: under 30 µs between two activities; other.",
        ),
        count("gaps", "Gaps", "Number of idle gaps."),
        ms("idle_ms", "Idle ms", "Total time of these gaps."),
        percent("percent", "%", "Share of the stream's idle time."),
        us("mean_us", "Mean µs", "Mean length of a gap."),
        us("median_us", "Median µs", "Median length of a gap."),
        us("max_us", "Max µs", "Longest gap."),
    ],
    "device_time.idle_causes": [
        *_KEYS,
        text(
            "cause", "The host was", "What the host was doing while the device waited for a launch."
        ),
        ms("idle_ms", "Idle ms", "Device idle time in which the host was doing this."),
        percent("percent", "%", "Share of the idle time spent waiting for the host."),
    ],
    "device_time.kernels": [
        *_KEYS,
        _CLASS,
        _KERNEL,
        count("occurrences", "Count", "Number of runs."),
        us("total_us", "Total µs", "Total time of all runs."),
        us("avg_us", "Avg µs", "Mean time per run."),
        us(
            "sd_us", "SD µs", "Sample standard deviation (n - 1) of the runs; missing with one run."
        ),
        us("min_us", "Min µs", "Shortest run."),
        us("median_us", "Median µs", "Median of the runs."),
        us("max_us", "Max µs", "Longest run."),
        percent("percent", "%", "Share of the total time of all activities on the device."),
        percent("cumulative_percent", "cum. %", "This row and those above it."),
    ],
    "device_time.queue": [
        *_KEYS,
        _STREAM,
        count("works", "Launched", "Kernels, copies and fills whose launch was recorded."),
        Col(
            "mean_length",
            "float64",
            "",
            "Mean queue",
            "Activities launched but not yet started, mean over time.",
            "number",
            1,
        ),
        Col(
            "median_length",
            "float64",
            "",
            "Median queue",
            "The same, median over time.",
            "number",
            0,
        ),
        count("max_length", "Max queue", "Largest number of activities waiting at once."),
        percent("empty_percent", "Empty %", "Share of the time in which nothing was waiting."),
        ms(
            "full_ms",
            "Full ms",
            "Time in which 1,024 or more were waiting, so that the next launch blocks the host.",
        ),
        percent("full_percent", "Full %", "Share of the time in which 1,024 or more were waiting."),
    ],
    "device_time.queue_series": [
        *_KEYS,
        _STREAM,
        ms("time_ms", "Time ms", "When the length changes; it holds until the stream's next row."),
        count("queue_length", "Queue", "Activities launched but not yet started."),
    ],
    "device_time.launches": [
        *_KEYS,
        _CLASS,
        text(
            "kernel",
            "Kernel",
            "Name of the (first) activity launched; empty for all of them combined.",
            "code",
        ),
        count("launches", "Launches", "Calls that launched device activities."),
        count("kernels", "Kernels", "Activities launched; a graph has many."),
        us("call_us", "Call µs", "Mean duration of the call on the host."),
        us("median_call_us", "Call median µs", "Median duration of the call."),
        us("max_call_us", "Call max µs", "Longest call."),
        us("kernel_us", "Kernel µs", "Mean duration of what a call launched."),
        us("median_kernel_us", "Kernel median µs", "Median duration of what a call launched."),
        us(
            "delay_us",
            "Delay µs",
            "Mean time from the end of the call to the start of its activity; 0 if that started"
            " sooner.",
        ),
        us("median_delay_us", "Delay median µs", "Median of the delays."),
        us("max_delay_us", "Delay max µs", "Longest delay."),
        count("short", "Short", "Launches whose activity took less time than the call itself."),
        count("slow_calls", "Slow calls", "Calls of more than 50 µs."),
        count("long_delays", "Long delays", "Delays of more than 100 µs."),
    ],
    "device_time.each_launch": [
        *_KEYS,
        text("call", "Call", "Name of the call on the host.", "code"),
        _CLASS,
        _KERNEL,
        count("kernels", "Kernels", "Activities that the call launched."),
        ms("start_ms", "Start ms", "Start of the call."),
        us("call_us", "Call µs", "Duration of the call."),
        us("kernel_us", "Kernel µs", "Total duration of the activities."),
        us("delay_us", "Delay µs", "From the end of the call to the start of the first activity."),
        flag("short", "Short", "Whether the activities took less time than the call."),
    ],
    "device_time.bandwidth": [
        *_KEYS,
        text("copy", "Copy", "Direction of the copy."),
        count("copies", "Copies", "Number of copies."),
        Col(
            "bytes",
            "Int64",
            "bytes",
            "Size",
            "Bytes of all copies whose size is known.",
            "bytes",
            None,
        ),
        ms("time_ms", "Time ms", "Total time of all copies."),
        _gbs("gb_per_second", "GB/s", "Bytes of all copies divided by their time."),
        _gbs("min_gb_per_second", "Min GB/s", "Slowest copy."),
        _gbs("median_gb_per_second", "Median GB/s", "Median of the copies."),
        _gbs("max_gb_per_second", "Max GB/s", "Fastest copy."),
        _gbs(
            "peak_gb_per_second",
            "Peak GB/s",
            "Highest combined rate of the copies running at once.",
        ),
        count("unknown", "Unknown", "Copies of unknown size or time."),
    ],
    "device_time.bandwidth_series": [
        *_KEYS,
        text("copy", "Copy", "Direction of the copy."),
        ms(
            "time_ms",
            "Time ms",
            "When the rate changes; it holds until the next row of the same device and kind.",
        ),
        _gbs("gb_per_second", "GB/s", "Combined rate of all running copies of this kind."),
    ],
    "device_time.collectives": [
        text("collective", "Collective", "Collective operation."),
        text("process_group", "Group", "Name of the process group, if recorded."),
        count("group_size", "Ranks", "Number of ranks in the group, if recorded.", "Int64"),
        Col(
            "bytes",
            "Int64",
            "bytes",
            "Size",
            "Bytes of one collective, counted as in nccl-tests.",
            "bytes",
            None,
        ),
        count(
            "collectives", "Count", "Collectives whose calls were matched across ranks.", "Int64"
        ),
        count("calls", "Calls", "Calls of all ranks."),
        ms("time_ms", "Time ms", "Total time of all calls."),
        ms("wait_ms", "Waiting ms", "Part of it spent waiting for the last rank."),
        percent("wait_percent", "Waiting %", "The same as a share of the time of matched calls."),
        us(
            "real_us",
            "Own µs",
            "Mean time of the collective itself, once the last rank had arrived.",
        ),
        us("min_real_us", "Min µs", "Shortest of these."),
        us("max_real_us", "Max µs", "Longest of these."),
        _gbs(
            "algorithm_gb_per_second",
            "Algorithm GB/s",
            "Size divided by the time of the collective itself.",
        ),
        _gbs(
            "bus_gb_per_second",
            "Bus GB/s",
            "Algorithm bandwidth times nccl-tests' factor: 2(n-1)/n for all-reduce, (n-1)/n for"
            " gather.",
        ),
    ],
    "device_time.each_collective": [
        *_KEYS,
        _STEP,
        text("collective", "Collective", "Collective operation."),
        text("process_group", "Group", "Name of the process group, if recorded."),
        text(
            "description", "Description", "What the program calls the process group, if recorded."
        ),
        count("group_size", "Ranks", "Number of ranks in the group, if recorded.", "Int64"),
        count(
            "sequence", "Sequence", "Number of the collective in its group, if recorded.", "Int64"
        ),
        Col(
            "bytes",
            "Int64",
            "bytes",
            "Size",
            "Bytes of the collective, counted as in nccl-tests.",
            "bytes",
            None,
        ),
        ms("start_ms", "Start ms", "When this rank entered it."),
        us("time_us", "Time µs", "How long this rank spent in it."),
        count("ranks_seen", "Seen", "Ranks in this profile with this collective."),
        us(
            "real_us",
            "Own µs",
            "Shortest time of any rank in it: the collective itself, once the last rank had"
            " arrived.",
        ),
        us("wait_us", "Waiting µs", "Time this rank spent in it beyond that."),
        us("late_us", "Late µs", "How much later than the first rank this one arrived."),
        flag("last", "Last", "Whether this rank arrived last."),
        _gbs(
            "algorithm_gb_per_second",
            "Algorithm GB/s",
            "Size divided by the time of the collective itself.",
        ),
        _gbs("bus_gb_per_second", "Bus GB/s", "Algorithm bandwidth times nccl-tests' factor."),
        count(
            "match",
            "Match",
            "Same number for all ranks of one collective; -1 if the others were not found.",
        ),
    ],
    "device_time.stragglers": [
        _STEP,
        *_KEYS,
        count(
            "collectives", "Collectives", "The rank's collectives that were matched across ranks."
        ),
        count("last_in", "Last in", "Collectives in which the rank arrived last."),
        ms(
            "late_ms",
            "Late ms",
            "How much later than the first rank it arrived, summed over its collectives.",
        ),
        ms("wait_ms", "Waited ms", "Time spent waiting for other ranks."),
        percent("wait_percent", "Waited %", "Share of its time in collectives."),
        ms(
            "cost_ms",
            "Cost ms",
            "Where this rank arrived last: wait of the rank that waited longest, summed.",
        ),
        Col(
            "straggler",
            "boolean",
            "",
            "Straggler",
            "Whether p.pods.stragglers names the rank: it is behind by more than chance explains."
            " In a step, also whether it was the one waited for. Missing if ranks cannot be"
            " compared step by step.",
            "bool",
            None,
        ),
        flag(
            "waited_for",
            "Waited for",
            "Whether waiting for it cost the most time, and more than 1% of the step, if only by"
            " chance.",
        ),
    ],
    "device_time.critical_path": [
        text("kind", "Kind", "Kind of segment; see p.device_time."),
        text("name", "Name", "Kernel, call, op or function.", "code"),
        text("op", "Op", "Framework op of the kernel or call.", "code"),
        count("pieces", "Pieces", "Number of times the path runs through it."),
        us("total_us", "Total µs", "Time that the path spends in it."),
        percent("percent", "%", "Share of the path, whose length is the step time."),
        us("longest_us", "Longest µs", "Longest segment."),
    ],
    "device_time.critical_path_pieces": [
        text("kind", "Kind", "Kind of segment; see p.device_time."),
        text("name", "Name", "Kernel, call, op or function.", "code"),
        text("op", "Op", "Framework op of the kernel or call.", "code"),
        text("where", "Where", "Stream or thread."),
        ms("start_ms", "Start ms", "Start of the segment; the next one starts where it ends."),
        us("duration_us", "Duration µs", "Duration of the segment."),
    ],
}
