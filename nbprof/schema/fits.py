"""A prediction of `nbprof.fits`."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, percent, size, text

SCHEMA: dict[str, list[Col]] = {
    "fits.frame": [
        text(
            "role",
            "Role",
            "parameters, buffers, gradients, optimizer state, inputs, activations (kept for the"
            " backward pass), outputs, or temporaries; of JAX arguments, outputs, temporaries and"
            " program code.",
        ),
        size("bytes", "At the peak", "Memory of this role at the peak of the step."),
        percent("percent", "Share", "Share of the peak."),
    ],
    "fits.levers": [
        text("lever", "With", "What is changed in the step; the first row has no change."),
        size("peak_bytes", "Peak", "Predicted peak for the batch that was passed.", "Int64"),
        Col("fits", "boolean", "", "Fits", "Whether the peak and the margin fit.", "bool"),
        count(
            "largest_batch",
            "Largest batch",
            "The largest batch that fits; with accumulation, of all parts together.",
            "Int64",
        ),
        text("note", "", "Why a figure is missing, or what the change is."),
    ],
}
