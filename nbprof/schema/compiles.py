"""Compilations."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, ms, text

SCHEMA: dict[str, list[Col]] = {
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
}
