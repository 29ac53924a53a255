"""Output of Ascend's profilers (msprof, torch_npu, MindSpore) as a format: folders of tables in
CSV, timelines in JSON, databases.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from nbprof.formats.chrome.format import sniff as sniff_json
from nbprof.formats.format import Format, Head, Kind, is_text
from nbprof.formats.msprof import recordings
from nbprof.formats.msprof.columns import header_of, kind_of
from nbprof.formats.msprof.recordings import NAME, cache_of, use_of
from nbprof.formats.names import SUFFIXES
from nbprof.frameworks.framework import Framework
from nbprof.frameworks.register import PYTORCH, UNKNOWN

_HEADER = re.compile(
    r"task[ _]id|op[ _]name|op type|device[_ ]id|kernel name|model name|total"
    r" time\(us\)|hbm|aicore",
    re.IGNORECASE,
)
_TIMELINE = re.compile(
    rb'"name"\s*:\s*"(Step Trace|HCCL|Communication|Ascend Hardware|CANN)"|"Iteration ID"|"Task'
    rb' Type"'
)
MARKS = {
    *(
        "STRING_IDS",
        "SESSION_TIME_INFO",
        "CANN_API",
        "COMPUTE_TASK_INFO",
        "COMMUNICATION_OP",
        "PYTORCH_API",
        "MEMORY_RECORD",
        "OP_MEMORY",
    ),
    *("CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix", "StepTraceTime"),
}
"""Tables that tell whose a database is, whatever its name."""
_FOUND = re.compile(
    rb'"Communication (Time|Bandwidth) Info"|"Transit Size\(MB\)"|"Rule (Type|Suggestion)"'
)


def sniff(head: Head) -> Kind | None:
    """The kind of a table or database; of a file that is named also of their other files."""
    if head.named and (by_name := _by_name(head)):
        return by_name
    if head.data.startswith(b"SQLite format 3\0"):
        # With numpy and pandas behind it, which no format may need to be looked for.
        from nbprof.core.sqlite import tables_named

        if how := cache_of(head.name):
            return Kind(
                "", "a database of MindStudio Insight (SQLite)", f"nbprof does not read it. {how}"
            )
        ours = use_of(head.name) == "database" or not MARKS.isdisjoint(tables_named(head.data))
        if ours:
            return Kind(NAME, "a database of Ascend's profilers (SQLite)")
        return None
    if head.json or not is_text(head.data[:4096]):
        return None
    line = (head.data[:4096].splitlines() or [b""])[0]
    if line.count(b",") < 2:
        return None
    if kind_of(header_of(line)):
        return Kind(NAME, "a table of Ascend's profiler (CSV)")
    if _HEADER.search(line.decode("utf-8", "replace")):
        return Kind("", "a table of Ascend's profiler (CSV) without columns that nbprof knows")
    return None


def _by_name(head: Head) -> Kind | None:
    """A part of a timeline, which tells less of who wrote it than the whole; or what the tools
    found.
    """
    use = use_of(head.name)
    if use not in ("partial", "analysed"):
        return None
    kind = sniff_json(head)
    trace = kind is not None and kind.format != ""
    if use == "partial" and kind is not None and trace and _TIMELINE.search(head.data):
        return replace(kind, format=NAME)
    if use == "analysed" and not trace and _FOUND.search(head.data):
        return Kind(NAME, "the findings of Ascend's tools")
    return None


def _framework(path: Path) -> Framework:
    return PYTORCH if "_ascend_pt" in str(path) else UNKNOWN


FORMAT = Format(
    name=NAME,
    label="tables written by Ascend's profilers (CSV with commas, UTF-8; databases of SQLite)",
    sniff=sniff,
    reader="nbprof.formats.msprof.msprof:read",
    dialect="nbprof.dialects.msprof.msprof:interpret",
    suffixes=SUFFIXES["msprof"],
    recordings=recordings,
    bounded=True,
    framework=_framework,
)
