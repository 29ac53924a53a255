"""Several hosts or ranks beside each other."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, percent, text, us
from nbprof.schema.steps import CATEGORIES

_RANK = [
    text("host", "Host", "Machine that recorded the row, or rank of a PyTorch job."),
    count("rank", "Rank", "Rank number, if the file or its name states it.", "Int64"),
    count(
        "device",
        "Device",
        "Ordinal of the device on its host; missing where whole hosts are compared.",
        "Int64",
    ),
]

SCHEMA: dict[str, list[Col]] = {
    "pods.frame": [
        count(
            "step",
            "Step",
            "Step number on the host with the shortest recording; counted from 0 if its numbers"
            " repeat.",
        ),
        text(
            "worker",
            "Worker",
            "Host, or host:device if the devices of a host have their own steps.",
        ),
        ms("step_time_ms", "Step ms", "Duration of the step on this worker."),
        *CATEGORIES,
        text("bottleneck", "Bottleneck", "Category with the most time."),
        text("name", "Name", "Name of the step marker on the worker's host."),
        ms(
            "start_ms",
            "Start ms",
            "Start of the step on this worker, from the start of the profile.",
        ),
    ],
    "pods.summary": [
        count("step", "Step", "Step number, as in p.pods.frame."),
        count("workers", "Workers", "Workers that recorded the step."),
        text("slowest", "Slowest", "Worker with the longest step."),
        ms("slowest_ms", "Slowest ms", "Its step time."),
        ms("fastest_ms", "Fastest ms", "Step time of the fastest worker."),
        percent(
            "spread_percent",
            "Spread %",
            "Slowest minus fastest, in percent of the slowest; missing with one worker.",
        ),
    ],
    "pods.cores": [
        Col("step", "int64", "", "Step", "Step number, as counted by the framework.", "number", 0),
        Col(
            "worker",
            "object",
            "",
            "Worker",
            "Host and TPU, plus the SparseCore if the row is one.",
            "text",
        ),
        Col("chip", "Int64", "", "Chip", "Chip number on its host.", "number", 0),
        ms("step_time_ms", "Step ms", "Duration of the step on this core."),
        ms("compute_ms", "Compute", "All other ops, including copies within the device."),
        ms("infeed_ms", "Infeed", "The core waits for data from the host's infeed queue."),
        ms("outfeed_ms", "Outfeed", "The core sends data to the host's outfeed queue."),
        ms(
            "all_reduce_compute_ms",
            "All-reduce compute",
            "Collectives: the time each took on the core where it was shortest.",
        ),
        ms(
            "all_reduce_sync_ms",
            "All-reduce sync",
            "The rest of collectives: waiting for the other cores.",
        ),
        ms("send_ms", "Send", "Ops that send to another core."),
        ms("recv_ms", "Receive", "Ops that receive from another core."),
        ms(
            "host_transfer_ms",
            "Host transfer",
            "Sends, receives and copies between device and host memory.",
        ),
        ms("idle_ms", "Idle", "No op ran."),
        Col("name", "object", "", "Name", "Name of the step marker on the core's host.", "text"),
        ms(
            "start_ms", "Start ms", "Start of the step on this core, from the start of the profile."
        ),
    ],
    "pods.stragglers": [
        *_RANK,
        text(
            "by",
            "Compared by",
            "collectives: time without exposed communication; steps: full steps, because there was"
            " no communication.",
        ),
        count("steps", "Steps", "Counted steps that were compared."),
        ms(
            "own_ms", "Own ms", "Mean step time without exposed communication: the rank's own work."
        ),
        ms(
            "excess_ms",
            "Behind ms",
            "Mean excess over the median of the other ranks, step by step.",
        ),
        count("slowest_in", "Slowest in", "Steps in which it was the slowest of all."),
        Col(
            "chance",
            "float64",
            "",
            "Chance",
            "Probability that equal ranks would have one that is the slowest as often, or as far"
            " behind; corrected for their number.",
            "number",
            4,
        ),
        count(
            "pauses",
            "Pauses",
            "Steps in which it was behind, more than usual, by over 10 % of a step and 8"
            " deviations.",
        ),
        count("worst_step", "Worst step", "The step in which it was furthest behind.", "Int64"),
        ms("worst_ms", "By ms", "How far it was behind in that step."),
        count(
            "collectives", "Collectives", "Its collectives that were matched across ranks.", "Int64"
        ),
        count(
            "last_in",
            "Last in",
            "Collectives in which it arrived last, whatever the reason.",
            "Int64",
        ),
        ms(
            "cost_ms",
            "Cost ms",
            "Exposed waiting of the other ranks for it, summed over them, per step; missing if"
            " unknown.",
        ),
        ms(
            "saved_ms",
            "Saved ms",
            "How much shorter steps would be if it were as fast as the median of the others: an"
            " estimate; missing without communication.",
        ),
        ms("step_time_ms", "Step then ms", "The mean step time in that case."),
        flag(
            "straggler",
            "Straggler",
            "Whether it is behind by more than 1 % of the step and the residual of clocks, and not"
            " by chance.",
        ),
        text("pattern", "Pattern", "steady, or pauses in single steps; empty for other ranks."),
        text(
            "cause",
            "Cause",
            "Step category, kernel, every_kernel, clock or memory; empty for other ranks, or if"
            " nothing explains half of it.",
        ),
        ms(
            "cause_ms",
            "Cause ms",
            "How much more it takes than the median of the others, per step (of a pause, in its"
            " steps).",
        ),
        text("why", "Why", "The cause in a sentence."),
    ],
    "pods.what_if": [
        text(
            "what",
            "What if",
            "measured, slowest_host (as fast as the others), slow_group (as fast as its like) or"
            " network_free.",
        ),
        text(
            "which",
            "Which",
            "The host, as host:device if several devices of it are compared, or the ranks of the"
            " group.",
        ),
        ms("step_time_ms", "Step ms", "Mean step time in that case."),
        ms("saved_ms", "Saved ms", "Difference from the measured one; missing if unknown."),
        percent("saved_percent", "Saved %", "The same, in percent of the measured one."),
        text(
            "how",
            "Bound",
            "about: an estimate; at most: a bound; empty for what was measured or is unknown.",
        ),
        text("reason", "Reason", "Why it is unknown."),
    ],
    "pods.outliers": [
        text("name", "Name", "Op or kernel.", "code"),
        text("where", "Where", "device or host."),
        text("kind", "Kind", "op or kernel."),
        *_RANK[:2],
        ms("time_ms", "ms / step", "Self time per counted step on this host.", 3),
        ms("median_ms", "Median", "The same: median over all hosts.", 3),
        ms("excess_ms", "Excess", "Difference between the two.", 3),
        Col("ratio", "float64", "", "Ratio", "Time divided by the median.", "number", 2),
        Col(
            "deviations",
            "float64",
            "",
            "Deviations",
            "Excess in deviations (of the median absolute deviation over hosts).",
            "number",
            1,
        ),
        count("hosts_out", "Hosts out", "Hosts on which this op or kernel is out of line."),
        count("hosts", "Hosts", "Hosts that were compared."),
    ],
    "pods.collectives": [
        text("collective", "Collective", "Collective operation."),
        text("process_group", "Group", "Names of the process group, if recorded."),
        text(
            "description",
            "Description",
            "What the program calls it, such as a dimension of its device mesh, if recorded.",
        ),
        text("members", "Members", "Ranks that take part, or hosts where ranks are not known."),
        count("ranks", "Ranks", "How many these are."),
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
        text("last", "Last", "Host that arrived last most often; empty if all arrived together."),
        count("last_rank", "Last rank", "Its rank.", "Int64"),
        count("last_in", "Last in", "Collectives in which it arrived last."),
        us("spread_us", "Spread µs", "Mean time between the first and the last arrival."),
        ms("time_ms", "Time ms", "Total time of all calls."),
        ms(
            "wait_ms",
            "Waiting ms",
            "Part of it spent waiting for the last rank, summed over ranks.",
        ),
        percent("wait_percent", "Waiting %", "The same as a share of the time."),
        us(
            "real_us",
            "Own µs",
            "Mean time of the collective itself, once the last rank had arrived.",
        ),
        us(
            "usual_us",
            "Usual µs",
            "Median of that over the other groups of as many ranks with the same collective and"
            " size.",
        ),
        Col(
            "bus_gb_per_second",
            "float64",
            "gb_per_second",
            "Bus GB/s",
            "As in p.device_time.collectives. In 10⁹ bytes per second.",
            "number",
            2,
        ),
        flag(
            "slow",
            "Slow",
            "Whether the collective itself is out of line with these groups: a slow link between"
            " its ranks.",
        ),
    ],
    "pods.missing": [
        text("host", "Host", "Host or rank that is missing from the run, or incomplete."),
        text("file", "File", "Its file, if there is one."),
        text("reason", "Reason", "Why it is missing, or which part was read."),
    ],
    "pods.clocks": [
        text("host", "Host", "Machine that recorded the row, or rank of a PyTorch job."),
        ms(
            "offset_ms",
            "Offset ms",
            "How far its clock is ahead of that of the first host that has an offset.",
        ),
        Col(
            "drift_ppm",
            "float64",
            "ppm",
            "Drift ppm",
            "How much faster it runs: microseconds per second; missing if below the noise.",
            "number",
            2,
        ),
        ms(
            "residual_ms",
            "Residual ms",
            "Residual difference between collective ends after correcting offset and drift: 95 %"
            " are below it.",
            4,
        ),
        text(
            "by",
            "By",
            "collectives; steps, which determine it only to within a step; empty if unknown.",
        ),
        count("matched", "Matched", "Collectives, or steps, that it is estimated from."),
        text("reason", "Reason", "Why it is unknown; empty if known."),
    ],
}
