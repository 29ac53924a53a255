"""Iterations of inference engines."""

from __future__ import annotations

from nbprof.schema.columns import Col, count, flag, ms, percent, rate, text

PARTS = ("attention", "gemm", "moe", "norm", "communication", "sampling", "copies", "other")
"""Parts of a model in which device time is counted."""

_KIND = text(
    "kind",
    "Kind",
    "prefill, decode, mixed of both, or idle without a request; NA where the annotation does not"
    " say.",
)
_BY_PART = {
    "attention": ("Attention ms", "Attention, rotary embedding and the KV cache."),
    "gemm": ("GEMM ms", "Other matrix products."),
    "moe": ("MoE ms", "Routing to experts, and their products."),
    "norm": ("Norm ms", "Normalization."),
    "communication": ("Communication ms", "Collectives."),
    "sampling": ("Sampling ms", "Sampling of the next tokens."),
    "copies": ("Copies ms", "Copies and fills."),
    "other": ("Other ms", "All other kernels."),
}

SCHEMA: dict[str, list[Col]] = {
    "serving.frame": [
        text("host", "Host", "Machine that recorded the row."),
        count(
            "step", "Step", "Number of the iteration, from 0; that of the step in `p.steps.frame`."
        ),
        _KIND,
        text("name", "Annotation", "The engine's annotation.", "code"),
        count(
            "requests",
            "Requests",
            "Sequences in the batch; NA, as all below, where the annotation does not say.",
            "Int64",
        ),
        count(
            "prefill_requests",
            "Prefill requests",
            "Sequences whose prompt, or a chunk of it, was processed.",
            "Int64",
        ),
        count(
            "prefill_tokens", "Prefill tokens", "Tokens of prompts that were processed.", "Int64"
        ),
        count("decode_requests", "Decode requests", "Sequences that were continued.", "Int64"),
        count(
            "decode_tokens",
            "Decode tokens",
            "Tokens computed for these, including drafted ones.",
            "Int64",
        ),
        ms("start_ms", "Start ms", "Start of the iteration, from the start of the profile."),
        ms(
            "time_ms",
            "Time ms",
            "From its start on the host, or the end of the previous iteration's work where that is"
            " later, to the end of its work; NA for one that ended in the time of the previous.",
        ),
        ms(
            "token_ms",
            "Token ms",
            "Latency of a token: time of an iteration that computes one for each sequence that it"
            " decodes; else NA.",
        ),
        ms(
            "gap_ms",
            "Gap ms",
            "Device idle between the work of earlier iterations and its first; waiting for requests"
            " included.",
        ),
        ms(
            "busy_ms",
            "Busy ms",
            "Time in which a device ran its work, overlaps counted once; mean over the host's"
            " devices.",
        ),
        *(
            ms(f"{part}_ms", label, f"{about} Sum of kernel times.")
            for part, (label, about) in _BY_PART.items()
        ),
        flag(
            "cut",
            "Cut",
            "Cut off by the end of the recording: excluded from `p.serving.summary` and"
            " `p.serving.parts`.",
        ),
    ],
    "serving.summary": [
        _KIND,
        count(
            "iterations",
            "Iterations",
            "Iterations of this kind, on all hosts, without those cut off.",
        ),
        ms("total_ms", "Total ms", "Their time."),
        percent("percent", "%", "Share of the time of all iterations."),
        ms("mean_ms", "Mean ms", "Mean time of an iteration."),
        ms("median_ms", "Median ms", "Median time of an iteration."),
        ms("p99_ms", "p99 ms", "99th percentile of their times, linearly interpolated."),
        rate(
            "requests",
            "requests",
            "Requests",
            "Mean number of sequences in the batch, where known.",
        ),
        count("prefill_tokens", "Prefill tokens", "Sum; NA where one is not known.", "Int64"),
        count("decode_tokens", "Decode tokens", "Sum; NA where one is not known.", "Int64"),
        rate(
            "tokens_per_s",
            "tokens/s",
            "Tokens/s",
            "Tokens of prefill and decode per second of iteration time of a host.",
        ),
        ms("token_ms", "Token ms", "Median latency of a token."),
        ms("gap_ms", "Gap ms", "Median of the device's idle time before an iteration."),
        ms("gaps_ms", "Gaps ms", "Sum of these."),
        percent("busy_percent", "Busy", "Share of their time in which the device worked."),
    ],
    "serving.parts": [
        _KIND,
        text(
            "part",
            "Part",
            "Part of the model, by the names of kernels or, if these are ambiguous, of the ops that"
            " launched them.",
        ),
        ms("total_ms", "Total ms", "Sum of kernel times."),
        ms("mean_ms", "Per iteration ms", "Mean per iteration of the kind."),
        percent("percent", "%", "Share of the kernel time of the kind."),
    ],
}
