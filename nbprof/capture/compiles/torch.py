"""Compilations of `torch.compile`, and their causes: PyTorch's own metrics of each compilation.

They name the guard that failed; the values of now are in the frame that is compiled.
"""

from __future__ import annotations

import contextlib
import re
import sys
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from nbprof.capture.compiles.seen import seen
from nbprof.capture.patches import Patches
from nbprof.core.compile_times import (
    AGAIN,
    BACKWARD,
    FIRST,
    MOST_EARLIER,
    UNKNOWN,
    Compilation,
    listed,
)
from nbprof.display.wording import shortened

if TYPE_CHECKING:
    from nbprof.capture.compiles.recorder import Compiles

METRICS = "log_compilation_event"
"""The function that PyTorch hands the metrics of each compilation."""
_DEEPEST = 30
_GUARD = re.compile(r"^(?:\d+/\d+(?:_\d+)?: )?(?P<path>[A-Za-z_][\w.\[\]'\"]*) (?:==|is) ")
_LENGTH = re.compile(r"^(?:\d+/\d+(?:_\d+)?: )?len\((?P<path>[A-Za-z_][\w.\[\]'\"]*)\) (?:==|!=) ")
_STEP = re.compile(r"""\.(\w+)|\[(?:'([^']*)'|"([^"]*)"|(\d+))\]""")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LONGEST_VALUE, _LONGEST_REASON = 60, 200
_MOST_REASONS = 1_000
_REGION = "Torch-Compiled Region: "
"""How Dynamo begins the names of regions in traces."""
_EXPLANATION = "Explanation:"


def follow(module: ModuleType, patches: Patches, compiles: Compiles) -> None:
    """Follow the compilations of Dynamo until `patches` are restored."""
    with contextlib.suppress(Exception):
        compiles.earlier += earlier_breaks(module)
    original = getattr(module, METRICS)
    watch = Watch(module, compiles)

    def log_compilation_event(metrics: Any) -> Any:
        with contextlib.suppress(Exception):
            watch.compiled(metrics)
        return original(metrics)

    patches.replace(module, METRICS, log_compilation_event)


class Watch:
    """Stores the compilations of Dynamo.

    Parameters
    ----------
    module : module
        ``torch._dynamo.utils``.
    compiles : Compiles
    """

    def __init__(self, module: ModuleType, compiles: Compiles) -> None:
        self._module, self._compiles = module, compiles
        self._last_break: Any = next(reversed(self._all_breaks()), None)
        self._of_forward: dict[str, dict[str, Any]] = {}

    def compiled(self, metrics: Any) -> None:
        """Store the compilation with these metrics."""
        breaks = self._new_breaks()
        if self._compiles.full:
            self._compiles.add("torch", 0, 0)
            return
        start_us = getattr(metrics, "start_time_us", None)
        if start_us is None:
            start_us = (getattr(metrics, "start_time", None) or 0.0) * 1e6
        total = _ns(metrics, "dynamo_cumulative_compile_time_us", "entire_frame_compile_time_s")
        backend = _ns(metrics, "aot_autograd_cumulative_compile_time_us", "backend_compile_time_s")
        inductor = _ns(metrics, "inductor_cumulative_compile_time_us", "inductor_compile_time_s")
        duration_us = getattr(metrics, "duration_us", None)
        duration = total
        if duration_us is not None:
            duration = int(duration_us * 1000)
        phases = {
            "trace_ns": _less(total, backend),
            "lower_ns": _less(backend, inductor or 0),
            "compile_ns": inductor,
        }
        self._compiles.add(
            "torch",
            int(start_us * 1000),
            duration or 0,
            breaks=breaks,
            **phases,
            **self._why(metrics),
        )

    def _why(self, metrics: Any) -> dict[str, Any]:
        """The function, and what is known of why it was compiled."""
        number = str(getattr(metrics, "compile_id", "") or "")
        name = getattr(metrics, "co_name", None)
        if not name:
            # The backward pass, which is compiled when it first runs.
            forward = self._of_forward.get(number, {"function": ""})
            return {**forward, "function": f"{forward['function']}{BACKWARD}".strip()}
        facts: dict[str, Any] = {
            "function": str(name),
            "file": str(getattr(metrics, "co_filename", "") or ""),
            "line": int(getattr(metrics, "co_firstlineno", 0) or 0),
            "number": number,
        }
        reason = getattr(metrics, "recompile_reason", None)
        code, values = _compiled_frame()
        if getattr(metrics, "cache_size", 0):
            facts["state"] = UNKNOWN
            if reason:
                reason = str(reason).partition("\nUser stack trace")[0]
                facts |= {"state": AGAIN, "reason": reason, "after": _now(reason, values)}
        elif code is not None:
            facts["state"] = seen.state(code, code)
        else:
            facts["state"] = FIRST
        if len(self._of_forward) < 1000:
            self._of_forward[number] = facts
        return facts

    def _all_breaks(self) -> list[Any]:
        return getattr(self._module, "graph_break_reasons", [])

    def _new_breaks(self) -> str:
        """The graph breaks since the last compilation, as `Compilation` has them."""
        new: list[Any] = []
        # `torch._dynamo.reset` clears the list.
        for each in reversed(self._all_breaks()):
            if each is self._last_break:
                break
            new.append(each)
        if new:
            self._last_break = new[0]
        return listed(map(_break_line, reversed(new)))


def earlier_breaks(module: ModuleType) -> list[Compilation]:
    """The code that PyTorch has compiled behind graph breaks so far, the latest last.

    Parameters
    ----------
    module : module
        ``torch._dynamo.utils``.
    """
    resuming = sys.modules["torch._dynamo.resume_execution"]
    entries = sys.modules["torch._C._dynamo.eval_frame"]
    lines = {}
    for each in getattr(module, "graph_break_reasons", [])[-_MOST_REASONS:]:
        if each.user_stack:
            lines[each.user_stack[0].filename, each.user_stack[0].lineno] = _break_line(each)
    rows = []
    references = list(resuming.ContinueExecutionCache.generated_code_metadata.refs.values())
    for reference in references[-MOST_EARLIER:]:
        code = reference()
        if code is None:
            continue
        file, name, line = code.co_filename, code.co_name, code.co_firstlineno
        breaks = lines.get((file, line), "")
        for entry in entries._debug_get_cache_entry_list(code):
            number = entry.trace_annotation.removeprefix(_REGION)
            row = Compilation("torch", name, file, line, number=number, breaks=breaks)
            rows.append(row)
    return rows[-MOST_EARLIER:]


def _break_line(broken: Any) -> str:
    """A graph break as ``file:line: reason``."""
    reason, stack = _break_reason(str(broken.reason)), getattr(broken, "user_stack", None)
    if not stack:
        return reason
    first, last = stack[0], stack[-1]
    if len(stack) > 1:
        # The function breaks where it calls one that does.
        reason = f"in {last.name}, line {last.lineno}: {reason}"
    return f"{first.filename}:{first.lineno}: {reason}"


def _break_reason(text: str) -> str:
    """A reason of Dynamo in one line: its explanation, where it has one."""
    lines = text.strip().splitlines() or [""]
    for line in lines[1:]:
        if line.strip().startswith(_EXPLANATION):
            explanation = line.strip().removeprefix(_EXPLANATION).strip()
            return shortened(explanation, _LONGEST_REASON)
    return shortened(lines[0], _LONGEST_REASON)


def _ns(metrics: Any, in_us: str, in_s: str) -> int | None:
    """A time of the metrics in ns, by its name in microseconds or else, as earlier, in seconds."""
    value = getattr(metrics, in_us, None)
    if value is not None:
        return int(value * 1000)
    value = getattr(metrics, in_s, None)
    return None if value is None else int(value * 1e9)


def _less(total: int | None, part: int | None) -> int | None:
    if total is None:
        return None
    return max(total - (part or 0), 0)


def _compiled_frame() -> tuple[CodeType | None, dict[str, Any]]:
    """The code that is being compiled and the variables of its frame, as Dynamo's function has
    them whose end is being reported.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None:
            break
        if frame.f_code.co_name == "_compile":
            code, compiled = frame.f_locals.get("code"), frame.f_locals.get("frame")
            values = getattr(compiled, "f_locals", None)
            if not isinstance(values, dict):
                values = {}
            scope = {**values, "G": getattr(compiled, "f_globals", {})}
            return (code if isinstance(code, CodeType) else None), scope
        frame = frame.f_back
    return None, {}


def _now(reason: str, values: dict[str, Any]) -> str:
    """The current value that a failed guard compares; "" unless it is a plain value.

    Nothing of the person's is called: attributes are read from the objects' dictionaries.
    """
    equal = _GUARD.match(reason)
    length = None if equal is not None else _LENGTH.match(reason)
    path = equal or length
    if path is None:
        return ""
    try:
        value = _value(path["path"], values)
    except (KeyError, IndexError, TypeError):
        return ""
    if length is not None:
        return str(len(value)) if type(value) in (list, tuple, dict) else ""
    if type(value) in _PLAIN:
        return repr(value)[:_LONGEST_VALUE]
    return ""


def _value(path: str, values: dict[str, Any]) -> Any:
    name = re.match(r"\w+", path)
    if name is None:
        raise KeyError(path)
    value, position = values[name[0]], name.end()
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise KeyError(path)
        attribute, single, double, index = step.groups()
        if attribute is not None:
            value = vars(value)[attribute]
        elif type(value) in (list, tuple) and index is not None:
            value = value[int(index)]
        elif type(value) is dict:
            value = value[int(index) if index is not None else single or double or ""]
        else:
            raise KeyError(path)
        position = step.end()
    return value
