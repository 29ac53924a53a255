"""Ascend NPU profiles."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, part, size, text, us

_HOST = text("host", "Recording", "Recording the row belongs to: a process or a rank.")
_DEVICE = count("device", "Device", "Device number; -1 if the file does not say.")
_MODEL = count(
    "model", "Model", "Model ID: number of the graph; missing if the file has none.", "Int64"
)
_ON = [_HOST, _DEVICE]
_CORE = text(
    "core",
    "Runs on",
    "Kind of core: AI Core (matrix), vector core, both mixed, AI CPU, communication, copy or"
    " other.",
)
_TASK_TYPE = text(
    "task_type", "Task type", "Task type as in the file: AI_CORE, AI_VECTOR_CORE, MIX_AIC, AI_CPU …"
)
_TYPE = text("op_type", "Type", "Type of the op.")
_OP = text("op", "Op", "Name of the op.", "code")
_TASKS = count("tasks", "Count", "Tasks that ran.")
_TIMES = [
    us("total_us", "Total µs", "Total duration."),
    us("avg_us", "Avg µs", "Total time divided by count."),
    us("min_us", "Min", "The shortest, in µs."),
    us("max_us", "Max", "The longest, in µs."),
]
_DATA_AUG = ms(
    "data_aug_ms",
    "Data Aug Bound",
    "From the end of the previous iteration to FP Start: the device waits for the next batch, or"
    " for the host. In ms.",
)
_PARTS = [
    _DATA_AUG,
    ms("fp_to_bp_ms", "FP to BP", "From FP Start to BP End: forward and backward pass. In ms."),
    ms(
        "all_reduce_ms",
        "All-reduce",
        "All-reduce of gradients after BP End: exposed communication. In ms.",
    ),
    ms(
        "update_ms",
        "Update",
        "The rest of Grad Refresh: weight update. In ms; missing if no all-reduce was recorded.",
    ),
]
_REFRESH = ms(
    "grad_refresh_ms",
    "Grad Refresh Bound",
    "From BP End to the end of the iteration; Iteration Refresh in newer files. In ms.",
)
_HIDDEN = ms(
    "hidden_all_reduce_ms",
    "Hidden all-reduce",
    "All-reduce of gradients overlapped with the backward pass. In ms.",
)
_ITERATION = ms(
    "iteration_ms",
    "Iteration",
    "From the end of the previous iteration to its own end; the first, from its own start. In ms.",
)
_SAID = ms(
    "reported_iteration_ms",
    "As reported",
    "Iteration Time as stated in the file, where its definition varies. In ms.",
)
_PIPES = [
    part(
        "cube_fraction", "Cube", "Share of cycles in which the cube unit multiplied matrices (mac)."
    ),
    part("vector_fraction", "Vector", "Share of cycles in which the vector unit computed (vec)."),
    part(
        "scalar_fraction",
        "Scalar",
        "Share of cycles spent in the scalar unit: addresses, branches.",
    ),
    part("mte1_fraction", "MTE1", "Share of cycles spent moving data from L1 to L0."),
    part(
        "mte2_fraction", "MTE2", "Share of cycles spent moving data from device memory to the core."
    ),
    part(
        "mte3_fraction", "MTE3", "Share of cycles spent moving data from the core to device memory."
    ),
    part("fixpipe_fraction", "Fixpipe", "Share of cycles spent moving results out of L0C."),
]
_BOUND = [
    text("bound_by", "Busiest pipe", "The pipe with the most busy cycles, however few they are."),
    part(
        "bound_fraction",
        "Busy",
        "Share of cycles in which that pipe is busy; above 80% the op is bound by it.",
    ),
]
_COUNTERS = [
    Col(
        "memory_bound",
        "float64",
        "",
        "Memory bound",
        "MTE2 by the larger of cube and vector; above 1, moving takes longer.",
        "number",
        2,
    ),
    part(
        "cube_utilization_fraction",
        "Cube use",
        "Cycles used divided by the cycles available on all cores while the task ran.",
    ),
    part(
        "icache_miss_fraction", "Icache miss", "Share of accesses that miss the instruction cache."
    ),
    part(
        "bank_group_conflict_fraction",
        "Bank groups",
        "Share of cycles lost to bank group conflicts in the vector unit.",
    ),
    part(
        "bank_conflict_fraction",
        "Banks",
        "Share of cycles lost to bank conflicts in the vector unit.",
    ),
    part("cache_hit_fraction", "L2 hit", "Share of accesses that hit the L2 cache."),
    Col(
        "read_bytes_per_second",
        "float64",
        "bytes_per_second",
        "Read B/s",
        "Bytes per second read from device memory.",
        "number",
        1,
    ),
    Col(
        "write_bytes_per_second",
        "float64",
        "bytes_per_second",
        "Write B/s",
        "Bytes per second written to device memory.",
        "number",
        1,
    ),
]


def _tensors(side: str, does: str) -> list[Col]:
    """The columns on the tensors that an op reads or writes."""
    return [
        text(
            f"{side}_{name}",
            f"{side.capitalize()} {word}",
            f"{word.capitalize()} of the tensors it {does}.",
            "code",
        )
        for name, word in (("shapes", "shapes"), ("data_types", "types"), ("formats", "formats"))
    ]


SCHEMA: dict[str, list[Col]] = {
    "ascend.iterations.frame": [
        *_ON,
        _MODEL,
        count(
            "iteration",
            "Iteration",
            "Iteration ID: an execution of the graph, which need not be a step of the script.",
        ),
        ms("start_ms", "Start", "Start time, from the start of the recording, in ms."),
        _ITERATION,
        *_PARTS[:2],
        _REFRESH,
        *_PARTS[2:],
        _HIDDEN,
        ms(
            "lead_in_ms",
            "Lead-in",
            "From the iteration's own start to FP Start, within the Data Aug Bound. In ms.",
        ),
        ms("get_next_ms", "GetNext", "Time in GetNext, which fetches the next batch. In ms."),
        _SAID,
        ms(
            "reported_data_aug_ms",
            "Data Aug as reported",
            "Data Aug Bound as stated in the file. In ms.",
        ),
        flag(
            "warmup", "Warm-up", "Among the first iterations of its model, which averages exclude."
        ),
        flag("main", "Main", "Whether it belongs to the model with most iterations on the device."),
    ],
    "ascend.iterations.summary": [
        *_ON,
        _MODEL,
        flag("main", "Main", "Whether it is the model with most iterations on the device."),
        count("iterations", "Iterations", "Iterations recorded."),
        count("counted", "Counted", "Iterations in the averages: without warm-up."),
        _ITERATION,
        ms("sd_ms", "sd", "Sample standard deviation of the iterations, in ms."),
        *_PARTS,
        _REFRESH,
        _HIDDEN,
        _SAID,
        part("data_aug_fraction", "Data Aug %", "Data Aug Bound as a share of the iteration."),
        part("fp_to_bp_fraction", "FP to BP %", "FP to BP Time as a share of the iteration."),
        part(
            "all_reduce_fraction",
            "All-reduce %",
            "All-reduce after BP End as a share of the iteration.",
        ),
        part(
            "update_fraction", "Update %", "The rest of Grad Refresh as a share of the iteration."
        ),
        part(
            "grad_refresh_fraction",
            "Grad Refresh %",
            "Grad Refresh Bound as a share of the iteration.",
        ),
        text(
            "convention",
            "Reported from",
            "What the file's Iteration Time measures: end to end, from its own start, or from FP"
            " Start.",
        ),
    ],
    "ascend.op_types.frame": [
        *_ON,
        text("model", "Model", "Name of the graph; empty if the file has none."),
        _TYPE,
        _TASK_TYPE,
        _CORE,
        _TASKS,
        *_TIMES,
        part(
            "fraction", "%", "Share of the time of all tasks on the device, communication excluded."
        ),
        text("source", "Source", "Source table: op_statistic, or op_summary if that is missing."),
    ],
    "ascend.ops.frame": [
        *_ON,
        _MODEL,
        count("stream", "Stream", "Stream the task ran on; communication has none.", "Int64"),
        count("task", "Task", "Task number on its stream.", "Int64"),
        _OP,
        _TYPE,
        _TASK_TYPE,
        _CORE,
        text("op_state", "State", "Whether the shapes are static or dynamic."),
        count(
            "iteration",
            "Iteration",
            "Iteration of the main model in which it started; missing if unknown.",
            "Int64",
        ),
        ms("start_ms", "Start", "Start time, from the start of the recording, in ms.", 3),
        us("duration_us", "µs", "Duration, including scheduling."),
        us(
            "wait_us",
            "Wait µs",
            "Time since all earlier tasks on the stream ended; missing for the first.",
        ),
        us(
            "reported_wait_us",
            "Wait as reported",
            "Task Wait Time in the file, in µs: since the previous row, on any stream or device.",
        ),
        count(
            "block_num",
            "Blocks",
            "Blocks the task is divided into; a core runs one at a time.",
            "Int64",
        ),
        count(
            "mix_block_num",
            "Mix blocks",
            "For mixed ops: blocks on the other kind of core.",
            "Int64",
        ),
        text("hf32_eligible", "HF32", "Whether the op may compute floats in HF32."),
        *_tensors("input", "reads"),
        *_tensors("output", "writes"),
    ],
    "ascend.op_types.cores": [
        *_ON,
        _CORE,
        _TASKS,
        _TIMES[0],
        us("busy_us", "Busy µs", "Time in which at least one such task ran."),
        us("alone_us", "Alone µs", "Time in which no task of another kind ran."),
        part("fraction", "%", "Share of the duration of all tasks on the device."),
    ],
    "ascend.pmu.frame": [
        *_ON,
        _OP,
        _TYPE,
        _TASK_TYPE,
        _CORE,
        count("stream", "Stream", "Stream the task ran on.", "Int64"),
        count("task", "Task", "Task number on its stream.", "Int64"),
        count("iteration", "Iteration", "Iteration in which it started.", "Int64"),
        ms("start_ms", "Start", "Start time, from the start of the recording, in ms.", 3),
        us("duration_us", "µs", "Duration, including scheduling."),
        count("block_num", "Blocks", "Blocks the task is divided into.", "Int64"),
        us("core_us", "Core µs", "Time on the cores, excluding scheduling."),
        *_PIPES,
        *_BOUND,
        *_COUNTERS,
    ],
    "ascend.pmu.types": [
        _TYPE,
        _CORE,
        _TASKS,
        us("duration_us", "Total µs", "Duration of all tasks with counters."),
        us("core_us", "Core µs", "Their time on the cores, excluding scheduling."),
        *_BOUND,
        part(
            "saturated_fraction",
            "Bound %",
            "Share of the time in tasks that keep a pipe busy for more than 80%.",
        ),
        *_PIPES,
        *_COUNTERS[1:6],
        _COUNTERS[0],
        *_COUNTERS[6:],
    ],
    "ascend.waits.frame": [
        *_ON,
        count(
            "stream",
            "Stream",
            "Stream; missing for the row that combines all streams of the device.",
            "Int64",
        ),
        _TASKS,
        us("busy_us", "Busy µs", "Time in which at least one task ran."),
        us("wait_us", "Wait µs", "Time between its first and last task in which none ran."),
        part("wait_fraction", "Wait %", "Wait divided by busy plus wait."),
        us(
            "input_wait_us",
            "In Data Aug µs",
            "Part of the wait within a Data Aug Bound; missing if none was recorded.",
        ),
        count("long_waits", "Waits > 10 µs", "Waits of more than 10 µs."),
        us("long_wait_us", "Long µs", "Total of these waits, in µs."),
        us("longest_us", "Longest µs", "The longest wait."),
        ms("longest_at_ms", "At ms", "Start of that wait, from the start of the recording.", 3),
        text("longest_before", "Before", "Op that ended it.", "code"),
    ],
    "ascend.fusion.frame": [
        _HOST,
        count("device", "Device", "Device number; missing if the graph belongs to none.", "Int64"),
        _MODEL,
        text("fused_op", "Op", "Op of the compiled graph.", "code"),
        text("original_ops", "Fused from", "Ops of the graph before fusion.", "code"),
        count("originals", "Ops before", "Number of those ops."),
        count("tasks", "Count", "Tasks with this name that ran; missing if none did.", "Int64"),
        _TIMES[0],
        size("memory_input_bytes", "Input", "Memory for inputs.", "Int64"),
        size("memory_output_bytes", "Output", "Memory for outputs.", "Int64"),
        size("memory_weight_bytes", "Weights", "Memory for weights.", "Int64"),
        size("memory_workspace_bytes", "Workspace", "Additional working memory.", "Int64"),
        size("memory_total_bytes", "Memory", "All of these together.", "Int64"),
    ],
    "ascend.api.frame": [
        _HOST,
        count("device", "Device", "Device number; missing for the host.", "Int64"),
        text(
            "level",
            "Level",
            "Software layer: acl, model, node, runtime or communication. Layers nest, so their"
            " times overlap.",
        ),
        text("api", "API", "Name of the call.", "code"),
        count("count", "Count", "Calls."),
        us("total_us", "Total µs", "Duration of all calls."),
        us("avg_us", "Avg µs", "Total time divided by calls."),
        *_TIMES[2:],
        us("sd_us", "sd", "Standard deviation of the calls, in µs."),
        part("fraction", "%", "Share of the time of all calls at this level."),
    ],
    "ascend.rules.frame": [
        text("rule", "Rule", "Name of the rule."),
        text("about", "About", "What the rule is about."),
        text("title", "What to do", "The advice, if the rule applies."),
        text(
            "state", "Found", "found, not found, or not known because something was not recorded."
        ),
        text("severity", "Severity", "High from 20 % of the time, Medium from 5 %, otherwise Low."),
        Col(
            "value", "float64", "", "Value", "Value measured by the rule, in its unit.", "number", 3
        ),
        Col("limit", "float64", "", "Limit", "Threshold from which the rule applies.", "number", 3),
        text(
            "unit",
            "Unit",
            "Unit of value and limit: fraction, us, ms, times, MiB; empty for a count.",
        ),
        part(
            "share", "% of time", "Share of the time that the finding concerns; missing if unknown."
        ),
        text("evidence", "Evidence", "What was found, in numbers."),
        text("fix", "How", "What helps."),
        text("ops", "Ops", "Ops affected most.", "code"),
        text("source", "Source", "computed (from the tables), or prof_rule (stated by msprof)."),
    ],
}
