"""Advice on a TPU's premapped buffer, the host memory of transfers, from the runtime's messages.

Source: the troubleshooting and performance pages of Cloud TPU. The buffer has 4 GiB unless
`TPU_PREMAPPED_BUFFER_SIZE` sets it; the size must be a multiple of 4,096 bytes. A buffer that is
too small fails, or copies larger transfers in pieces; a large one takes long to map when the
program starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from nbprof.analysis.advice.facts import TRACE, AdviceRule, Facts
from nbprof.analysis.rule import ANY, TPU, TPU_GUIDE_CHOICE, Found, Rule, Shown, Threshold
from nbprof.core.remedies import TPU_LOG
from nbprof.core.trace import Trace
from nbprof.core.units import duration_text, size_text

DEFAULT_BYTES = 4 * 2**30
PAGE = 4096

_ABOUT = "premapped"
_FAILURE = re.compile(r"RESOURCE_EXHAUSTED|out of memory|attempting to allocate", re.IGNORECASE)
_ASKED = re.compile(r"allocate\s+([\d.,]+)\s*([KMGT]i?B?|B|bytes)?\b", re.IGNORECASE)
_STATED = re.compile(r"premapped buffer of size\s+([\d.,]+)\s*([KMGT]i?B?|B|bytes)?", re.IGNORECASE)
_START = re.compile(r"CreateTpuSystemState.*?took\s+([\d.]+)\s*s", re.IGNORECASE | re.DOTALL)
_START_EVENT = re.compile(r"CreateTpuSystemState\b|InitializeTpuSystem\b")
_SETTING = (
    "+import os  # before JAX or TensorFlow starts\n"
    "+os.environ['TPU_PREMAPPED_BUFFER_SIZE'] = '{}'  # bytes, a multiple of 4096"
)
_TO_CONSOLE = (
    "+import os  # before JAX or TensorFlow starts\n+os.environ['TPU_STDERR_LOG_LEVEL'] = '0'"
)
PRICE = "uses that much more host memory and makes the TPU system start more slowly"
"""What a larger buffer costs."""
_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def speaks_of_it(texts: Iterable[str]) -> tuple[str, ...]:
    """Those of some texts that are about the premapped buffer or the start of the TPU system."""
    return tuple(text for text in texts if _ABOUT in text.lower() or "CreateTpuSystemState" in text)


def started(trace: Trace) -> float | None:
    """Start time of the TPU system in s; None if no event is one."""
    codes = [
        code
        for code, name in enumerate(trace.names)
        if "TpuSystem" in name and _START_EVENT.search(name)
    ]
    if not codes:
        return None
    rows = np.flatnonzero(np.isin(trace.events.name, codes))
    return float(trace.events.duration[rows].max()) / 1e12 if len(rows) else None


def _bytes(match: re.Match[str] | None) -> int | None:
    """The size that a pattern found in a text; None without one."""
    if match is None:
        return None
    number = match.group(1).replace(",", "").rstrip(".")
    unit = (match.group(2) or "").upper()
    unit = "" if unit.startswith("BYTE") else unit[:1]
    try:
        return int(float(number) * _UNITS[unit])
    except (ValueError, KeyError):
        return None


def _sizes(texts: Iterable[str], pattern: re.Pattern[str]) -> list[int]:
    """The sizes that a pattern finds in texts."""
    sizes = []
    for text in texts:
        size = _bytes(pattern.search(text))
        if size is not None:
            sizes.append(size)
    return sizes


def _buffer_bytes(texts: Iterable[str]) -> int | None:
    """Bytes of the buffer, if a text has them."""
    return next(iter(_sizes(texts, _STATED)), None)


def _rounded(count: int) -> int:
    return -(-count // PAGE) * PAGE


def _failed(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if _ABOUT in text.lower() and _FAILURE.search(text)]


def _too_small(facts: Facts, _: Threshold) -> Found | None:
    texts = facts.evidence.texts
    size, failed = _buffer_bytes(texts), _failed(texts)
    if not failed:
        return None
    asked = max(_sizes(failed, _ASKED), default=0)
    count = len(failed)
    plural = "s" if count > 1 else ""
    text = (
        "The premapped buffer, through which host and TPU exchange data, ran out"
        f" **{count}** time{plural}"
    )
    if asked:
        text += f"; a transfer requested **{size_text(asked)}**"
    default = "" if size else " by default"
    text += f". Its size is **{size_text(size or DEFAULT_BYTES)}**{default}. A larger one {PRICE}."
    proposed = _rounded(max(2 * (size or DEFAULT_BYTES), 2 * asked))
    fix = (
        f"{_SETTING.format(proposed)}\n"
        f"+os.environ['TPU_PREMAPPED_BUFFER_TRANSFER_THRESHOLD_BYTES'] = '{proposed}'"
    )
    return Found(text, severity="high", fix=fix)


def _start_s(facts: Facts) -> float:
    """Start time of the TPU system in s; 0 if unknown."""
    matches = [_START.search(text) for text in facts.evidence.texts]
    reported = [float(match.group(1)) for match in matches if match is not None]
    return max(reported, default=facts.evidence.tpu_start_s or 0.0)


def _too_large(facts: Facts, limit: Threshold) -> Found | None:
    texts = facts.evidence.texts
    size, start_s = _buffer_bytes(texts), _start_s(facts)
    if start_s <= limit["start_s"] or not size or _failed(texts):
        return None
    text = (
        f"The TPU system took **{duration_text(start_s)}** to start. The larger the premapped"
        f" buffer, the longer the start; its size is **{size_text(size)}**."
    )
    return Found(text, severity="low", fix=_SETTING.format(_rounded(max(size // 2, PAGE))))


def _slow_start(facts: Facts, limit: Threshold) -> Found | None:
    texts, start_s = facts.evidence.texts, _start_s(facts)
    if start_s <= limit["start_s"] or _buffer_bytes(texts) or _failed(texts):
        return None
    text = (
        f"The TPU system took **{duration_text(start_s)}** to start; the profile does not show why."
        " A large premapped buffer is one reason: its size is in the log of the TPU's runtime,"
        f" {TPU_LOG}, which also goes to the console with TPU_STDERR_LOG_LEVEL=0."
    )
    return Found(text, severity="low")


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "premapped_small",
        _too_small,
        threshold=ANY,
        source="Cloud TPU troubleshooting",
        target=TRACE,
        applies=TPU,
        looks_at="Messages that the premapped buffer is exhausted (RESOURCE_EXHAUSTED)",
        title="Increase the premapped buffer",
        refuted_by="the messages remain with a larger buffer",
        gain_is="",
        done=Shown("No such message"),
    ),
    Rule(
        "premapped_large",
        _too_large,
        threshold=Threshold("> {start_s:g} s", start_s=15.0),
        source=TPU_GUIDE_CHOICE,
        target=TRACE,
        applies=TPU,
        looks_at="Start time of the TPU system, if the size of the premapped buffer is known",
        title="Reduce the premapped buffer",
        refuted_by="the TPU system takes as long to start with a smaller buffer",
        gain_is="",
        done=Shown("The start is short"),
    ),
    Rule(
        "tpu_start",
        _slow_start,
        threshold=Threshold("> {start_s:g} s", start_s=15.0),
        source=TPU_GUIDE_CHOICE,
        target=TRACE,
        applies=TPU,
        looks_at="Start time of the TPU system, if the size of the premapped buffer is unknown",
        title="Check the log for what delays the TPU start",
        fix=_TO_CONSOLE,
        refuted_by="the log shows nothing that takes long",
        gain_is="",
        done=Shown("The size of the buffer is in the log"),
    ),
)
