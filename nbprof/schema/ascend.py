"""Profiles of NPUs."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, part, size, text, us

_HOST = text("host", "Recording", "Recording that the row is of: a process, or a rank.")
_DEVICE = count("device", "Device", "Number of the device; -1 where the file does not tell it.")
_MODEL = count("model", "Model", "Model ID: number of the graph; missing where the file has none.", "Int64")
_ON = [_HOST, _DEVICE]
_CORE = text("core", "Runs on", "Kind of core: AI Core (matrices), vector core, both mixed, AI CPU, communication, copy or other.")
_TASK_TYPE = text("task_type", "Task type", "Type of the task in the words of the file: AI_CORE, AI_VECTOR_CORE, MIX_AIC, AI_CPU …")
_TYPE = text("op_type", "Type", "Type of the op.")
_OP = text("op", "Op", "Name of the op.", "code")
_TASKS = count("tasks", "Count", "Tasks that ran.")
_TIMES = [
    us("total_us", "Total µs", "Duration of all of them."),
    us("avg_us", "Avg µs", "Total time divided by their number."),
    us("min_us", "Min", "The shortest, in µs."),
    us("max_us", "Max", "The longest, in µs."),
]
_DATA_AUG = ms(
    "data_aug_ms",
    "Data Aug Bound",
    "From the end of the iteration before to FP Start: the device waits for the next batch, or for the host. In ms.",
)
_PARTS = [
    _DATA_AUG,
    ms("fp_to_bp_ms", "FP to BP", "From FP Start to BP End: forward and backward pass. In ms."),
    ms("all_reduce_ms", "All-reduce", "All-reduce of gradients after BP End: communication that nothing hides. In ms."),
    ms("update_ms", "Update", "The rest of the Grad Refresh: the update of the weights. In ms; missing where no all-reduce is recorded."),
]
_REFRESH = ms("grad_refresh_ms", "Grad Refresh Bound", "From BP End to the end of the iteration: Iteration Refresh in newer files. In ms.")
_HIDDEN = ms("hidden_all_reduce_ms", "Hidden all-reduce", "All-reduce of gradients that runs behind the backward pass. In ms.")
_ITERATION = ms("iteration_ms", "Iteration", "From the end of the iteration before to its own; of the first one from its start. In ms.")
_SAID = ms("reported_iteration_ms", "As reported", "Iteration Time as the file states it, which has several meanings. In ms.")
_PIPES = [
    part("cube_fraction", "Cube", "Part of the cycles in which the cube multiplied matrices (mac)."),
    part("vector_fraction", "Vector", "Part of the cycles in which the vector unit computed (vec)."),
    part("scalar_fraction", "Scalar", "Part of the cycles of the scalar unit: addresses, branches."),
    part("mte1_fraction", "MTE1", "Part of the cycles of moves from L1 to L0."),
    part("mte2_fraction", "MTE2", "Part of the cycles of moves from the memory of the device to the core."),
    part("mte3_fraction", "MTE3", "Part of the cycles of moves from the core to the memory of the device."),
    part("fixpipe_fraction", "Fixpipe", "Part of the cycles of moves of results out of L0C."),
]
_BOUND = [
    text("bound_by", "Bound by", "The pipe that is busy most."),
    part("bound_fraction", "Busy", "Part of the cycles in which that pipe is busy; above 80% the op is bound by it."),
]
_COUNTERS = [
    Col("memory_bound", "float64", "", "Memory bound", "MTE2 by the larger of cube and vector: above 1 moving takes longer.", "number", 2),
    part("cube_utilization_fraction", "Cube use", "Cycles of the cores by those that all cores had while the task ran."),
    part("icache_miss_fraction", "Icache miss", "Part of the accesses that miss the instruction cache."),
    part("bank_group_conflict_fraction", "Bank groups", "Part of the cycles lost to conflicts of bank groups of the vector unit."),
    part("bank_conflict_fraction", "Banks", "Part of the cycles lost to conflicts of banks of the vector unit."),
    part("cache_hit_fraction", "L2 hit", "Part of the accesses that hit the L2 cache."),
    Col(
        "read_bytes_per_second",
        "float64",
        "bytes_per_second",
        "Read B/s",
        "Bytes a second read from the device's memory.",
        "number",
        1,
    ),
    Col("write_bytes_per_second", "float64", "bytes_per_second", "Write B/s", "Bytes a second written to that memory.", "number", 1),
]

SCHEMA: dict[str, list[Col]] = {
    "ascend.iterations.frame": [
        *_ON,
        _MODEL,
        count("iteration", "Iteration", "Iteration ID: executions of the graph, which may be other than steps of the script."),
        ms("start_ms", "From", "Begin, since the begin of the recording, in ms."),
        _ITERATION,
        *_PARTS[:2],
        _REFRESH,
        *_PARTS[2:],
        _HIDDEN,
        ms("lead_in_ms", "Lead-in", "From the iteration's own start to FP Start, within the Data Aug Bound. In ms."),
        ms("get_next_ms", "GetNext", "Time of GetNext, which takes the next batch. In ms."),
        _SAID,
        ms("reported_data_aug_ms", "Data Aug as reported", "Data Aug Bound as the file states it. In ms."),
        flag("warmup", "Warm-up", "Among the first iterations of its model, which averages leave out."),
        flag("main", "Main", "Of the model that most iterations of the device are of."),
    ],
    "ascend.iterations.summary": [
        *_ON,
        _MODEL,
        flag("main", "Main", "Model that most iterations of the device are of."),
        count("iterations", "Iterations", "Iterations that were recorded."),
        count("counted", "Counted", "Those that the means are of: without warm-up."),
        _ITERATION,
        ms("sd_ms", "sd", "Sample standard deviation of the iterations, in ms."),
        *_PARTS,
        _REFRESH,
        _HIDDEN,
        _SAID,
        part("data_aug_fraction", "Data Aug %", "Data Aug Bound as a part of the iteration."),
        part("fp_to_bp_fraction", "FP to BP %", "FP to BP Time as a part of the iteration."),
        part("all_reduce_fraction", "All-reduce %", "All-reduce after BP End as a part of the iteration."),
        part("update_fraction", "Update %", "The rest of the Grad Refresh as a part of the iteration."),
        part("grad_refresh_fraction", "Grad Refresh %", "Grad Refresh Bound as a part of the iteration."),
        text("convention", "Reported from", "What the file's Iteration Time counts: end to end, from its own start, or from FP Start."),
    ],
    "ascend.op_types.frame": [
        *_ON,
        text("model", "Model", "Name of the graph; empty where the file has none."),
        _TYPE,
        _TASK_TYPE,
        _CORE,
        _TASKS,
        *_TIMES,
        part("fraction", "%", "Part of the time of all tasks of the device; communication is not in it."),
        text("source", "Source", "Table that it is from: op_statistic, or op_summary where that is not there."),
    ],
    "ascend.ops.frame": [
        *_ON,
        _MODEL,
        count("stream", "Stream", "Stream that it ran on; communication has none.", "Int64"),
        count("task", "Task", "Number of the task on its stream.", "Int64"),
        _OP,
        _TYPE,
        _TASK_TYPE,
        _CORE,
        text("op_state", "State", "Whether its shapes are static or dynamic."),
        count("iteration", "Iteration", "Iteration of the main model that it began in; missing where none is known.", "Int64"),
        ms("start_ms", "Start", "Begin, since the begin of the recording, in ms.", 3),
        us("duration_us", "µs", "Duration, with scheduling."),
        us("wait_us", "Wait µs", "From the end of all tasks of the stream before it; missing of the first."),
        us("reported_wait_us", "Wait as reported", "Task Wait Time of the file, in µs: from the row before, on any stream or device."),
        count("block_num", "Blocks", "Blocks that it was divided into: one core runs one at a time.", "Int64"),
        count("mix_block_num", "Mix blocks", "Blocks of the other kind of core, of mixed ops.", "Int64"),
        text("hf32_eligible", "HF32", "Whether it may compute floats in HF32."),
        *(text(f"{side}_{what}", f"{side.capitalize()} {word}", f"{word.capitalize()} of the tensors it {does}.", "code")
          for side, does in (("input", "reads"), ("output", "writes"))
          for what, word in (("shapes", "shapes"), ("data_types", "types"), ("formats", "formats"))),
    ],
    "ascend.op_types.cores": [*_ON, _CORE, _TASKS, _TIMES[0],
        us("busy_us", "Busy µs", "Time in which at least one such task ran."),
        us("alone_us", "Alone µs", "Time in which no task of another kind ran."),
        part("fraction", "%", "Part of the duration of all tasks of the device."),
    ],
    "ascend.pmu.frame": [
        *_ON,
        _OP,
        _TYPE,
        _TASK_TYPE,
        _CORE,
        count("stream", "Stream", "Stream that it ran on.", "Int64"),
        count("task", "Task", "Number of the task on its stream.", "Int64"),
        count("iteration", "Iteration", "Iteration that it began in.", "Int64"),
        ms("start_ms", "Start", "Begin, since the begin of the recording, in ms.", 3),
        us("duration_us", "µs", "Duration, with scheduling."),
        count("block_num", "Blocks", "Blocks that it was divided into.", "Int64"),
        us("core_us", "Core µs", "Time on the cores, without scheduling."),
        *_PIPES,
        *_BOUND,
        *_COUNTERS,
    ],
    "ascend.pmu.types": [
        _TYPE,
        _CORE,
        _TASKS,
        us("duration_us", "Total µs", "Duration of all tasks with counters."),
        us("core_us", "Core µs", "Their time on the cores, without scheduling."),
        *_BOUND,
        part("saturated_fraction", "Bound %", "Part of the time in tasks that keep a pipe busy for more than 80%."),
        *_PIPES,
        *_COUNTERS[1:6],
        _COUNTERS[0],
        *_COUNTERS[6:],
    ],
    "ascend.waits.frame": [
        *_ON,
        count("stream", "Stream", "Stream; missing of the row that is all streams of the device together.", "Int64"),
        _TASKS,
        us("busy_us", "Busy µs", "Time in which at least one task ran."),
        us("wait_us", "Wait µs", "Time between its first and last task in which none ran."),
        part("wait_fraction", "Wait %", "Wait as a part of busy and wait."),
        us("input_wait_us", "In Data Aug µs", "What of the wait lies in a Data Aug Bound; missing where none is recorded."),
        count("long_waits", "Waits > 10 µs", "Waits of more than 10 µs."),
        us("long_wait_us", "Long µs", "What those take together, in µs."),
        us("longest_us", "Longest µs", "The longest wait."),
        ms("longest_at_ms", "At ms", "Begin of that, since the begin of the recording.", 3),
        text("longest_before", "Before", "Op that ended it.", "code"),
    ],
    "ascend.fusion.frame": [
        _HOST,
        count("device", "Device", "Number of the device; missing where the graph is not of one.", "Int64"),
        _MODEL,
        text("fused_op", "Op", "Op of the compiled graph.", "code"),
        text("original_ops", "Made of", "Ops of the graph before fusion.", "code"),
        count("originals", "Ops before", "How many those are."),
        count("tasks", "Count", "Tasks of its name that ran; missing where none did.", "Int64"),
        _TIMES[0],
        size("memory_input_bytes", "Input", "Memory of its inputs.", "Int64"),
        size("memory_output_bytes", "Output", "Memory of its outputs.", "Int64"),
        size("memory_weight_bytes", "Weights", "Memory of its weights.", "Int64"),
        size("memory_workspace_bytes", "Workspace", "Memory that it needs besides.", "Int64"),
        size("memory_total_bytes", "Memory", "All of these.", "Int64"),
    ],
    "ascend.api.frame": [
        _HOST,
        count("device", "Device", "Number of the device; missing of the host.", "Int64"),
        text("level", "Level", "Layer of the software: acl, model, node, runtime or communication. They lie inside one another."),
        text("api", "API", "Name of the call.", "code"),
        count("count", "Count", "Calls."),
        us("total_us", "Total µs", "Duration of all calls."),
        us("avg_us", "Avg µs", "Total time divided by calls."),
        *_TIMES[2:],
        us("sd_us", "sd", "Standard deviation of the calls, in µs."),
        part("fraction", "%", "Part of the time of all calls of the level."),
    ],
    "ascend.rules.frame": [
        text("rule", "Rule", "Name of the rule."),
        text("about", "About", "What the rule is about."),
        text("title", "What to do", "What it advises, when it is found."),
        text("state", "Found", "found, not found, or not known because something was not recorded."),
        text("severity", "Severity", "High from a fifth of the time on, Medium from a twentieth on, else Low."),
        Col("value", "float64", "", "Value", "What the rule measured, in its unit.", "number", 3),
        Col("limit", "float64", "", "Limit", "From which value on it is found.", "number", 3),
        text("unit", "Unit", "Unit of value and limit: fraction, us, ms, times, MiB; empty for a count."),
        part("share", "% of time", "Part of the time that the finding concerns; missing where that is not known."),
        text("evidence", "Evidence", "What was found, in numbers."),
        text("fix", "How", "What helps."),
        text("ops", "Ops", "Ops that it concerns most.", "code"),
        text("source", "Source", "computed from the tables, or prof_rule: stated by msprof."),
    ],
}  # fmt: skip
