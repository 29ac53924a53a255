"""Requests and tokens of the iterations of inference engines, by their annotations.

vLLM (`annotate_profile` in vllm/v1/worker/gpu_worker.py, around the model's run, without sampling):

- `execute_context_2(40)_generation_3(3)`: requests and tokens of prefill, then of decode. With
  `detailed_trace_annotation` `execute_43_context_2(sq40sk…)_generation_3(sq3sk…)`: `sq` counts the
  tokens that are computed, the number in front is their sum.
- `execute_new_1_cached_3` in older versions: requests that are new, and others, which decode or go
  on with their prompt.
- `gpu_model_runner: forward`, with `VLLM_CUSTOM_SCOPES_FOR_PROFILING`, where nothing else is there.

SGLang (`build_step_span_name` in python/sglang/srt/utils/profile_utils.py, around the forward pass;
modes are those of `ForwardMode`):

- `step[EXTEND bs=4 toks=100]`, `step[DECODE bs=64]`, `step[MIXED bs=5 c=1 g=4 c_sq=100 … g_sq=4
  …]`, of which all behind `bs` is there with roofline annotations alone. Those of a draft model
  begin with `draft` and are parts of an iteration.
- `run_batch` of the scheduler, an annotation or a call of Python, with `forward_extend` or
  `forward_decode` in it, in traces of versions that annotate no steps.

What is not annotated is not known: nothing is taken from the shapes of tensors or the names of
kernels.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

PREFILL, DECODE, MIXED, IDLE = "prefill", "decode", "mixed", "idle"


class Iteration(NamedTuple):
    """Facts in the annotation of an iteration; "" and -1 for those that are missing.

    Attributes
    ----------
    kind : str
        `PREFILL`, `DECODE`, `MIXED` of both, `IDLE` without a request.
    requests : int
        Sequences in the batch.
    prefill_requests, prefill_tokens, decode_requests, decode_tokens : int
        Tokens are those that the iteration computes.
    """

    kind: str = ""
    requests: int = -1
    prefill_requests: int = -1
    prefill_tokens: int = -1
    decode_requests: int = -1
    decode_tokens: int = -1


# Numbers of more digits count nothing.
_N = r"(\d{1,12})"
_VLLM = re.compile(
    rf"execute_(?:\d{{1,12}}_)?context_{_N}\((?:sq)?{_N}(?:sk[a-z\d]*)?\)"
    rf"_generation_{_N}\((?:sq)?{_N}(?:sk[a-z\d]*)?\)\Z"
)
_VLLM_KINDS = {
    (True, True): MIXED,
    (True, False): PREFILL,
    (False, True): DECODE,
    (False, False): IDLE,
}
"""Kind of an iteration by whether it has requests of prefill and of decode."""
_VLLM_OLD = re.compile(rf"execute_new_{_N}_cached_{_N}\Z")
_SGLANG = re.compile(rf"step\[([A-Z][A-Z_\d]*) bs={_N}((?: \w{{1,12}}=\d{{1,18}})*)\]\Z")
_SGLANG_MODES = {
    "EXTEND": PREFILL,
    "SPLIT_PREFILL": PREFILL,
    "DECODE": DECODE,
    "TARGET_VERIFY": DECODE,
    "MIXED": MIXED,
    "IDLE": IDLE,
}


@lru_cache(maxsize=1 << 16)
def annotated(name: str) -> Iteration | None:
    """The iteration that an annotation's name describes; None for another name."""
    if name.startswith("execute_"):
        return _of_vllm(name)
    if name.startswith("step["):
        return _of_sglang(name)
    return None


def _of_vllm(name: str) -> Iteration | None:
    if match := _VLLM.match(name):
        context, context_tokens, generation, generation_tokens = map(int, match.groups())
        kind = _VLLM_KINDS[bool(context), bool(generation)]
        return Iteration(
            kind, context + generation, context, context_tokens, generation, generation_tokens
        )
    if match := _VLLM_OLD.match(name):
        new, cached = map(int, match.groups())
        if cached:
            return Iteration("", new + cached)
        if new:
            return Iteration(PREFILL, new, new, -1, 0, 0)
        return Iteration(IDLE, 0, 0, 0, 0, 0)
    return None


def _of_sglang(name: str) -> Iteration | None:
    match = _SGLANG.match(name)
    if match is None or match[1].startswith("DRAFT"):
        return None
    kind, requests = _SGLANG_MODES.get(match[1], ""), int(match[2])
    counts: dict[str, int] = {}
    for pair in match[3].split():
        key, _, value = pair.partition("=")
        counts[key] = int(value)
    if kind == PREFILL:
        return Iteration(kind, requests, requests, counts.get("toks", counts.get("c_sq", -1)), 0, 0)
    if kind == DECODE:
        # Verification computes the tokens of a draft; a decoding sequence computes one.
        tokens = requests if match[1] == "DECODE" else -1
        return Iteration(kind, requests, 0, 0, requests, tokens)
    if kind == MIXED:
        return Iteration(
            kind,
            requests,
            prefill_requests=counts.get("c", -1),
            prefill_tokens=counts.get("c_sq", -1),
            decode_requests=counts.get("g", -1),
            decode_tokens=counts.get("g_sq", -1),
        )
    if kind == IDLE:
        return Iteration(kind, requests, 0, 0, 0, 0)
    return Iteration(kind, requests)


def labels(iterations: list[Iteration]) -> list[str]:
    """Names of the steps: `decode 12`, or `iteration 12` for an unknown kind."""
    return [f"{iteration.kind or 'iteration'} {i}" for i, iteration in enumerate(iterations)]


COUNTS = Iteration._fields[1:]
