"""Tools for assistants in JupyterLab, by `jupyter-server-mcp`.

It reads the entry points of the group `jupyter_server_mcp.tools`: names of functions, whose
signatures and docstrings are all that a model is told. Profiles are read below the folder of the
server, and nothing else; what runs code is said so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import Signature, signature
from typing import Annotated, Any, get_type_hints

from jupyter_server.serverapp import ServerApp
from pydantic import Field

from nbprof.assistant.answer import encode
from nbprof.assistant.roots import Roots
from nbprof.assistant.tools import Tools, described
from nbprof.core.errors import NbprofError
from nbprof.server import kernels

_Notebook = Annotated[
    str, Field(description="The path of a notebook that is open, below the server's folder.")
]
_Seconds = Annotated[float, Field(description="After which the kernel is interrupted.")]


@cache
def _tools() -> Tools:
    root = ServerApp.instance().root_dir
    return Tools(Roots([root], elsewhere="Copy the profile there."))


def _of_profiles(name: str) -> Callable[..., Any]:
    """A tool on profiles as a function, with the prefix nbprof."""
    method = getattr(Tools, name)
    hints = get_type_hints(method, include_extras=True)
    parameters = list(signature(method).parameters.values())[1:]

    async def call(*args: Any, **kwargs: Any) -> str:
        answer = await getattr(_tools(), name)(*args, **kwargs)
        return str(answer.text)

    call.__name__ = call.__qualname__ = f"nbprof_{name}"
    call.__doc__ = described(method).replace("`open`", "`nbprof_open`")
    call.__annotations__ = {each.name: hints[each.name] for each in parameters} | {"return": str}
    vars(call)["__signature__"] = Signature(
        [each.replace(annotation=hints[each.name]) for each in parameters], return_annotation=str
    )
    return call


nbprof_open = _of_profiles("open")
nbprof_brief = _of_profiles("brief")
nbprof_advice = _of_profiles("advice")
nbprof_frame = _of_profiles("frame")
nbprof_events = _of_profiles("events")
nbprof_compare = _of_profiles("compare")
nbprof_explain = _of_profiles("explain")


async def nbprof_record(
    notebook: _Notebook,
    cell: Annotated[str, Field(description="The id of a saved code cell, or its number from 0.")],
    steps: Annotated[
        str, Field(description="auto (until enough is known), all, or from and to such as 10:20.")
    ] = "auto",
    stacks: Annotated[bool, Field(description="Also the time of each line.")] = False,
    seconds: _Seconds = 600.0,
) -> str:
    """Runs a code cell of a notebook in its kernel under %%nbprof, and answers with the brief of
    its profile as Markdown. The cell runs as if the person had run it, and its variables stay.
    """
    try:
        return await kernels.record(
            notebook, cell, steps=steps, stacks=stacks, seconds=seconds, tokens=1500
        )
    except NbprofError as error:
        return encode({"error": str(error)})


async def nbprof_try(
    notebook: _Notebook,
    rule: Annotated[str, Field(description="A rule of the advice, or all.")] = "all",
    budget: Annotated[float, Field(description="Seconds for all experiments.")] = 60.0,
) -> str:
    """Tries the remedies of findings on the cell that nbprof_record recorded last: it runs again in
    turns with a change and without, and its variables are given back; files that it writes are
    not. Answers with a row for each change: what it saves per step with its 95 % interval, and
    whether the results are equal.
    """
    try:
        return await kernels.tried(notebook, rule, budget)
    except NbprofError as error:
        return encode({"error": str(error)})


TOOLS = [
    f"{__name__}:{function.__name__}"
    for function in (
        nbprof_open,
        nbprof_brief,
        nbprof_advice,
        nbprof_frame,
        nbprof_events,
        nbprof_compare,
        nbprof_explain,
        nbprof_record,
        nbprof_try,
    )
]
