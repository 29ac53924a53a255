"""The page docs/numbers.md: every public frame with its formulas, its columns, and where a peer's figures differ.

It is made of the docstrings, the schema and the table of deviations, so that it says what the code does. To write it anew:
`python -m tests.support.numbers_page`.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from nbprof.schema import allocator as frames_allocator
from nbprof.schema import ascend as frames_ascend
from nbprof.schema import cores as frames_cores
from nbprof.schema import device_time as frames_device_time
from nbprof.schema import hlo as frames_hlo
from nbprof.schema import memory_viewer as frames_memory_viewer
from nbprof.schema.columns import Col
from nbprof.schema.frames import SCHEMA
from nbprof.tools.allocator.accessor import Allocator
from nbprof.tools.ascend import accessor as ascend
from nbprof.tools.device_time.accessor import DeviceTime
from nbprof.tools.hlo.accessor import Hlo
from nbprof.tools.hlo.roofline import Roofline
from nbprof.tools.input.accessor import InputPipeline, TfData
from nbprof.tools.kernels.accessor import Kernels
from nbprof.tools.memory.accessor import Memory
from nbprof.tools.memory_viewer.accessor import MemoryViewer, ModuleMemory
from nbprof.tools.op_profile.accessor import OpProfile
from nbprof.tools.ops.accessor import Ops
from nbprof.tools.pods.accessor import Pods
from nbprof.tools.steps.accessor import Steps
from tests.parity.deviations import DEVIATIONS
from tests.parity.peer import GUIDE, XPROF

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numbers.md"
VIEWS = {
    "steps": Steps,
    "pods": Pods,
    "input_pipeline": InputPipeline,
    "tf_data": TfData,
    "ops": Ops,
    "kernels": Kernels,
    "device_time": DeviceTime,
    "memory": Memory,
    "allocator": Allocator,
    "memory_viewer": MemoryViewer,
    "hlo": Hlo,
    "op_profile": OpProfile,
    "roofline": Roofline,
    "ascend.iterations": ascend.Iterations,
    "ascend.op_types": ascend.OpTypes,
    "ascend.ops": ascend.Ops,
    "ascend.pmu": ascend.Pmu,
    "ascend.waits": ascend.Waits,
    "ascend.fusion": ascend.Fusion,
    "ascend.api": ascend.Api,
    "ascend.rules": ascend.Rules,
}
COLUMNS = {
    "steps.frame": "steps",
    "steps.summary": "steps_summary",
    "pods.frame": "pods",
    "pods.summary": "pods_summary",
    "pods.cores": "pods_cores",
    "input_pipeline.frame": "input_ops",
    "input_pipeline.categories": "input_categories",
    "tf_data.pipelines": "tf_data_pipelines",
    "tf_data.nodes": "tf_data_nodes",
    "ops.frame": "ops",
    "kernels.frame": "kernels",
    "device_time.frame": "device_time",
    **{f"device_time.{name.removeprefix('device_')}": name for name in frames_device_time.SCHEMA if name != "device_time"},
    "memory.summary": "memory_summary",
    "memory.timeline": "memory_timeline",
    "memory.peak": "memory_peak",
    "memory.ops": "memory_ops",
    "hlo.frame": "hlo",
    "op_profile.frame": "op_profile",
    "roofline.frame": "roofline",
    "roofline.steps": "roofline_steps",
}
COLUMNS |= {
    f"ascend.{name}.frame": f"ascend_{name}" for name in ("iterations", "op_types", "ops", "pmu", "waits", "fusion", "api", "rules")
}
COLUMNS |= {
    "ascend.iterations.summary": "ascend_iterations_summary",
    "ascend.op_types.cores": "ascend_cores",
    "ascend.pmu.types": "ascend_pmu_types",
}
ASCEND = {f"ascend_{name}": columns for name, columns in frames_ascend.SCHEMA.items()}
ALLOCATOR = {f"allocator.{name}": columns for name, columns in frames_allocator.SCHEMA.items()}
COLUMNS |= {name: name for name in ALLOCATOR}
PEERS = {XPROF: "XProf 2.24", GUIDE: "TensorFlow 2.3/2.4"}
HEAD = """# How each number is made

Every figure on screen comes from one of these frames. This page is written from the code's own docstrings and schema; `tests/parity` holds the
frames against what XProf 2.24 and TensorFlow 2.3/2.4 say of real profiles, row by row and column by column. What differs on purpose stands in
the table at the end, each with the test that holds our value.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for name, face in VIEWS.items():
        parts.append(f"## `p.{name}`\n\n{inspect.getdoc(face)}\n")
        for member in _members(face):
            # What a frame holds that every view has is told above, in the docstring of its view.
            doc = inspect.getdoc(getattr(face, member)) if member in vars(face) else ""
            call = "" if isinstance(inspect.getattr_static(face, member), property) else "(…)"
            parts.append(f"### `p.{name}.{member}{call}`\n\n{_prose(doc or '')}\n")
            if columns := COLUMNS.get(f"{name}.{member}"):
                parts.append(
                    _columns(
                        {**SCHEMA, **frames_device_time.SCHEMA, **frames_cores.SCHEMA, **frames_hlo.SCHEMA, **ALLOCATOR, **ASCEND}[columns]
                    )
                )
        parts += _more(name)
    parts.append(_deviations())
    return "\n".join(parts)


def _more(name: str) -> list[str]:
    """Frames of what a view is a mapping of."""
    if name != "memory_viewer":
        return []
    parts = [_columns(frames_memory_viewer.SCHEMA["modules"])]
    for member in ("timeline", "at_peak"):
        doc = inspect.getdoc(getattr(ModuleMemory, member)) or ""
        parts += [f"### `p.memory_viewer[module].{member}`\n\n{_prose(doc)}\n", _columns(frames_memory_viewer.SCHEMA[member])]
    return parts


def _members(face: type) -> list[str]:
    """Public frames and tables of a view in the order in which they are written; what every view has is left out."""
    own = [n for n in vars(face) if not n.startswith("_") and n not in ("figure", "widget")]
    return (["frame"] if hasattr(face, "frame") and "frame" not in own else []) + own


def _prose(doc: str) -> str:
    """A numpydoc docstring as Markdown: heads of sections become bold, parameters a list."""
    lines, out = doc.splitlines(), []
    for at, line in enumerate(lines):
        if set(line.strip()) == {"-"}:
            continue
        head = at + 1 < len(lines) and lines[at + 1].strip() and set(lines[at + 1].strip()) == {"-"}
        out.append(f"**{line.strip()}**\n" if head else line)
    return "\n".join(out).strip()


def _columns(columns: list[Col]) -> str:
    rows = [f"| `{c.name}` | {c.unit or '–'} | {_cell(c.help)} |" for c in columns]
    return "\n".join(["| column | unit | |", "|---|---|---|", *rows, ""])


def _deviations() -> str:
    """The table of deviations; columns that differ for one reason share a row."""
    columns: dict[tuple[str, str, str], list[str]] = {}
    for d in DEVIATIONS:
        found = columns.setdefault((d.tool, d.reason, d.test), [])
        found += [c for c in (f"{d.column} ({PEERS[d.peer]})",) if c not in found]
    rows = [f"| {tool} | {_cell(', '.join(what))} | {_cell(why)} | `{test}` |" for (tool, why, test), what in sorted(columns.items())]
    return "\n".join(
        ["## Where nbprof differs on purpose", "", "| tool | what (from whom) | why | held by |", "|---|---|---|---|", *rows, ""]
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
