"""The whole profile: overview, advice, devices and runs."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, percent, rate, size, text, us

_HOST = text("host", "Host", "Machine that recorded the row.")

SCHEMA: dict[str, list[Col]] = {
    "overview.checks": [
        text("check", "Check", "What was checked."),
        percent("percent", "%", "The measured share: of step time, compute or op time."),
        text("level", "Level", "Result: high, moderate, no or unknown."),
        text("statement", "Finding", "What the result means, with the figure."),
        text("view", "View", "Tab with the details."),
    ],
    "overview.host_parts": [
        text(
            "category",
            "Category",
            "Category of the step that it is a part of: host_compute or other.",
        ),
        text(
            "part",
            "Part",
            "compute, overhead, python, waiting, or host for time that is not split further.",
        ),
        text(
            "text",
            "What",
            "What the host did, with the op, function or line that takes most of the time.",
        ),
        percent("percent", "%", "Share of the unit's time."),
        ms("ms", "ms", "Time per unit."),
    ],
    "overview.tf_functions": [
        text("function", "Function", "Name of the tf.function.", "code"),
        count("calls", "Calls", "Number of calls."),
        count("tracings", "Tracings", "How often it had been traced by its last call."),
        us("self_us", "Self µs", "Total duration, excluding nested functions."),
        percent(
            "expensive_percent",
            "Expensive %",
            "Share of that in calls that traced it or ran it eagerly.",
        ),
        ms(
            "expensive_ms_per_step",
            "Expensive / step",
            "Time in such calls per step, over the steps in the averages.",
        ),
    ],
    "overview.top_ops": [
        count("rank", "#", "Position by self time."),
        text("op", "Operation", "Full name of the op, with name scopes.", "code"),
        text("type", "Type", "Type of the op."),
        ms("self_ms", "ms", "Self time in the whole profile, summed over devices and threads.", 3),
        ms(
            "ms_per_step",
            "ms / step",
            "Self time per step, summed over devices and threads: it may exceed the step time.",
            3,
        ),
        percent(
            "percent",
            "% of side",
            "Share of all self time on the same side (device or host), idle time excluded.",
        ),
        percent("cumulative_percent", "cum. %", "% of this row and all above it."),
    ],
    "advice": [
        text("rule", "Rule", "Name of the check."),
        text("severity", "Severity", "high, medium or low."),
        text("title", "Advice", "What to change."),
        text("evidence", "Evidence", "The figures behind it; **bold** where it matters."),
        ms(
            "gain_ms_per_step",
            "Gain ms",
            "Time per step that the change could save, without a profiler where gain_of_ms is"
            " known, else as recorded; missing if unknown.",
        ),
        text(
            "gain_is",
            "Gain is",
            "Kind of gain: up to (a bound), about (an estimate) or at least; empty if there is"
            " none.",
        ),
        text("fix", "Fix", "Diff lines: - removed, + added.", "code"),
        text("view", "View", "Tab with the details."),
        text("link", "Link", "Label of the link to that tab."),
        text(
            "certainty",
            "Certainty",
            "measured (the time of recorded events), estimated (from names, shapes or peaks) or"
            " inferred (its cause was not recorded).",
        ),
        text("refuted_by", "Wrong if", "What an experiment would show if the finding were wrong."),
        ms(
            "gain_of_ms",
            "Of ms",
            "The step without a profiler that the gain is a part of; missing where the gain is"
            " recorded time, or no part of a step.",
        ),
    ],
    "compiles": [
        text("framework", "Framework", "JAX, PyTorch (`torch.compile`) or TensorFlow."),
        text("function", "Function", "The function that was compiled.", "code"),
        text("where", "Where", "File and line at which its code begins.", "code"),
        count(
            "step",
            "Step",
            "The step that waited; missing outside of steps, and where none is known.",
            "Int64",
        ),
        ms("start_ms", "Start ms", "From the start of the cell."),
        ms(
            "duration_ms",
            "Duration ms",
            "Time from the start to the end of the compilation; that of a function which it calls,"
            " and which is compiled on its own meanwhile, is included.",
        ),
        ms(
            "trace_ms",
            "Trace ms",
            "Running the Python code to get the program: JAX's trace, Dynamo, the graph of a"
            " `tf.function`.",
        ),
        ms(
            "lower_ms",
            "Lower ms",
            "From there to the compiler's input: JAX's lowering, AOTAutograd, or another backend of"
            " `torch.compile`.",
        ),
        ms("compile_ms", "Compile ms", "The compiler itself: XLA of JAX, or Inductor."),
        text("cache", "Cache", "`hit` or `miss` of JAX's cache on disk; empty if not asked."),
        text("cause", "Cause", "The kind of cause; `unknown` if the framework does not say it."),
        text("argument", "What differs", "Argument, variable, setting; empty if unknown.", "code"),
        text("before", "Before", "Its value in an earlier compilation, where known.", "code"),
        text("after", "Now", "Its value in this one, where known.", "code"),
        text("why", "Why", "The cause as a sentence, with the values; empty if unknown."),
        text(
            "graph_breaks",
            "Graph breaks",
            "Graph breaks of PyTorch in this compilation: file, line and reason.",
        ),
    ],
    "graph_breaks": [
        text("function", "Function", "The function of `torch.compile` that breaks.", "code"),
        text("where", "Where", "File and line of the statement that breaks it.", "code"),
        text("reason", "Reason", "Dynamo's reason; empty if unknown."),
        Col(
            "per_step",
            "float64",
            "",
            "Per step",
            "How often it breaks in a step, without breaks at which something is compiled.",
            "number",
            2,
        ),
        Col(
            "ops_per_step",
            "float64",
            "",
            "Ops / step",
            "Ops that run one by one there, between the compiled code of two graphs.",
            "number",
            1,
        ),
        Col(
            "kernels_per_step",
            "float64",
            "",
            "Kernels / step",
            "Kernels and copies that are launched there; missing without a device.",
            "number",
            1,
        ),
        ms(
            "ms_per_step",
            "ms / step",
            "Time of the host there: from the end of the compiled code of one graph to the begin of"
            " that of the next, guards included.",
        ),
        text("cost_reason", "Why no cost", "Why its cost is unknown; empty if it is known."),
    ],
    "tried": [
        text("experiment", "Experiment", "Name of the experiment, for --try."),
        text("title", "Change", "What was changed."),
        text("rule", "Rule", "Rule of the finding that it was run for; empty if there is none."),
        ms("baseline_ms", "Step ms", "Step of the unchanged program, without a profiler."),
        ms("gain_ms", "Gain ms", "Time per step that the change saves; negative if it is slower."),
        ms("gain_low_ms", "Gain from", "Lower end of the 95 % interval of the gain."),
        ms("gain_high_ms", "Gain to", "Upper end of the 95 % interval of the gain."),
        ms("first_ms", "First steps ms", "How much longer the first steps take with the change."),
        count(
            "pays_after",
            "Pays after",
            "Steps after which the gain has made up for the longer first steps; missing if it is"
            " not known to.",
            "Int64",
        ),
        size(
            "memory_before_bytes",
            "Memory before",
            "Most memory of the GPU that PyTorch had in use without the change; missing elsewhere.",
            "Int64",
        ),
        size("memory_after_bytes", "Memory after", "The same with the change.", "Int64"),
        Col(
            "equal",
            "boolean",
            "",
            "Equal",
            "Whether losses and outputs are equal; missing if none could be compared.",
            "bool",
            None,
        ),
        Col(
            "difference",
            "float64",
            "fraction",
            "Difference",
            "Largest relative difference of losses and outputs from the unchanged program's.",
            "number",
            8,
        ),
        Col(
            "spread",
            "float64",
            "fraction",
            "Spread",
            "The same between two runs of the unchanged program.",
            "number",
            8,
        ),
        count("pairs", "Turns", "How often the program ran with and without the change."),
        Col(
            "took_s",
            "float64",
            "s",
            "Took s",
            "How long it took to try it; missing if it was not, or by an earlier version.",
            "number",
            1,
        ),
        flag(
            "recommended", "Recommended", "It is significantly faster, and the results are equal."
        ),
        text("why", "Why", "Why it is recommended, or is not."),
        text("code", "Code", "The change as diff lines: - removed, + added.", "code"),
        text(
            "diff",
            "Diff",
            "The change of the recorded cell, or of the one that defines the function, as diff"
            " lines; empty if it is not recommended, or its place is not known.",
            "code",
        ),
    ],
    "devices": [
        _HOST,
        count("device", "Device", "Device number on its host."),
        text("kind", "Kind", "GPU, TPU, or SparseCore (attached to a TPU core)."),
        text("name", "Name", "Model or architecture."),
        text("compute_capability", "Compute capability", "NVIDIA compute capability."),
        size("memory_bytes", "Memory", "Memory of the device."),
        rate(
            "memory_bytes_per_second",
            "bytes_per_second",
            "Memory B/s",
            "Peak bandwidth of main memory.",
        ),
        rate(
            "peak_flops_per_second",
            "flops_per_second",
            "Peak FLOP/s",
            "Peak compute rate, in fp32 or fp16, without sparsity.",
        ),
        *(
            rate(
                f"{level}_bytes_per_second",
                "bytes_per_second",
                f"{label} B/s",
                f"Peak bandwidth of {meaning}.",
            )
            for level, label, meaning in (
                ("cmem_read", "CMEM read", "reads from CMEM, on-chip memory of a TPU"),
                ("cmem_write", "CMEM write", "writes to CMEM, on-chip memory of a TPU"),
                ("vmem_read", "VMEM read", "reads from VMEM, the vector memory of a TPU"),
                ("vmem_write", "VMEM write", "writes to VMEM, the vector memory of a TPU"),
                (
                    "shared_memory",
                    "Shared memory",
                    "shared memory, all multiprocessors of the GPU together",
                ),
            )
        ),
        count("chip", "Chip", "Number of the TPU core's chip on its host."),
        count("chip_core", "Core of chip", "Number of the TPU core on its chip."),
        Col(
            "megacore",
            "bool",
            "",
            "Megacore",
            "Whether the two cores of a TPU chip act as one.",
            "bool",
            None,
        ),
        count("sparse_cores", "SparseCores", "SparseCores of a TPU core that were recorded."),
        count(
            "core", "Core", "Number of the SparseCore on its TPU core; missing for a whole device."
        ),
    ],
    "runs": [
        text("run", "Run", "Name of the run's folder."),
        count(
            "first_step",
            "First step",
            "Step number, counted from 1; missing if no steps were marked.",
            "Int64",
        ),
        count(
            "last_step",
            "Last step",
            "Step number, counted from 1; missing if no steps were marked.",
            "Int64",
        ),
        flag("shown", "Shown", "Whether it is the profile shown."),
        text("path", "Path", "Path of the folder, for `nbprof.load`.", "code"),
    ],
}
