"""Cells of notebooks that are open, run in their own kernels under `%%nbprof`."""

from __future__ import annotations

import asyncio
import re
from math import inf
from typing import Any, NamedTuple

from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import ensure_async

from nbprof.core.errors import NbprofError

PROFILE = "nbprof_profile"
"""The variable of the kernel that holds what was recorded last."""
_READY_S = 10.0
_BESIDES_S = 120.0
"""For what runs besides the cell: imports, and the analysis of what was recorded."""
_STEPS = re.compile(r"auto|all|[0-9]*:[0-9]*")
_MAGIC = re.compile(r"\A\s*%%nbprof\b.*(?:\n|\Z)")


class Ran(NamedTuple):
    """Printed text, and the error of the code; empty without one."""

    text: str
    error: str


async def record(
    notebook: str, cell: str, *, steps: str, stacks: bool, seconds: float, tokens: int
) -> str:
    """Record a cell and return the brief.

    Parameters
    ----------
    notebook : str
        Its path below the folder of the server.
    cell : str
        The id of a code cell, or its number from 0 among all cells.
    steps : str
        As ``--steps`` takes them.
    stacks : bool
        Record the time of each line.
    seconds : float
        After which the kernel is interrupted.
    tokens : int
        Of the brief.

    Raises
    ------
    NbprofError
        There is no such notebook, cell or kernel; the kernel is busy; or nothing was recorded.
    """
    if not _STEPS.fullmatch(steps):
        raise NbprofError("steps are auto, all, or two numbers such as 10:20.")
    source = _MAGIC.sub("", await _source(notebook, cell), count=1)
    if source.lstrip().startswith("%%"):
        raise NbprofError("the cell has a magic of its own, whose code is not that of the kernel.")
    # Some of the other options write files.
    options = f"--steps {steps}{' --stacks' if stacks else ''}"
    code = f"%%nbprof -o {PROFILE} {options}\n{source}"
    setup = f"get_ipython().run_line_magic('load_ext', 'nbprof')\n{PROFILE} = None"
    async with _Kernel(await _kernel_of(notebook)) as kernel:
        ready = await kernel.run(setup, _BESIDES_S)
        if ready.error:
            raise NbprofError(f"nbprof cannot be loaded in this kernel: {ready.error}")
        ran = await kernel.run(code, seconds)
        brief = await kernel.run(f"print({PROFILE}.brief({tokens}))", _BESIDES_S)
    if brief.error:
        raise NbprofError(f"nothing was recorded: {ran.error or brief.error}")
    return f"The cell failed: {ran.error}\n\n{brief.text}" if ran.error else brief.text


async def tried(notebook: str, rule: str, budget: float) -> str:
    """Try remedies on the profile that `record` left in a kernel, and return what came of them.

    Raises
    ------
    NbprofError
        Nothing was recorded in the kernel, or nothing can be tried.
    """
    if not 0 < budget < inf:
        raise NbprofError(f"the budget is {budget:g} s; it is a number of seconds above 0.")
    code = (
        f"print({PROFILE}.try_({rule!r}, budget={budget!r})"
        ".drop(columns='code').to_json(orient='records'))"
    )
    async with _Kernel(await _kernel_of(notebook)) as kernel:
        # Runs begin and end, and the state is copied, besides the time of the experiments.
        ran = await kernel.run(code, 2 * budget + _BESIDES_S)
    if ran.error.startswith("NameError"):
        raise NbprofError("nothing was recorded in this kernel: nbprof_record comes first.")
    if ran.error:
        raise NbprofError(ran.error)
    return ran.text


async def _source(notebook: str, cell: str) -> str:
    contents = ServerApp.instance().contents_manager
    try:
        model: Any = await ensure_async(
            contents.get(notebook, content=True, type="notebook")  # type: ignore[no-untyped-call]
        )
    except Exception as error:
        raise NbprofError(f"{notebook} cannot be read: {error}") from None
    cells = model["content"]["cells"]
    for number, each in enumerate(cells):
        if cell in (each.get("id"), str(number)):
            if each["cell_type"] != "code":
                raise NbprofError(f"cell {cell} of {notebook} has no code.")
            return str(each["source"])
    raise NbprofError(
        f"{notebook} has no cell {cell}: as it was saved last, it has {len(cells)} cells."
    )


async def _kernel_of(notebook: str) -> Any:
    server = ServerApp.instance()
    for session in await ensure_async(server.session_manager.list_sessions()):
        if session.get("path") == notebook.lstrip("/"):
            return server.kernel_manager.get_kernel(session["kernel"]["id"])
    raise NbprofError(f"{notebook} has no kernel: open it in JupyterLab first.")


class _Kernel:
    """A client of a kernel that others use, too."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._client = manager.client()

    async def __aenter__(self) -> _Kernel:
        self._client.start_channels()
        try:
            await self._client.wait_for_ready(timeout=_READY_S)
        except RuntimeError:
            self._client.stop_channels()
            raise NbprofError(
                "the kernel does not answer, as it runs a cell, starts or has ended: call again"
                " later."
            ) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.stop_channels()

    async def run(self, code: str, seconds: float) -> Ran:
        """Run code, and interrupt it after the time limit."""
        printed: list[str] = []
        errors: list[str] = []
        begun = False

        def hook(message: dict[str, Any]) -> None:
            nonlocal begun
            begun = True
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                printed.append(content["text"])
            elif message["msg_type"] == "error":
                errors.append(f"{content['ename']}: {content['evalue']}")

        running = self._client.execute_interactive(
            code, allow_stdin=False, output_hook=hook, store_history=False
        )
        try:
            reply = await asyncio.wait_for(running, seconds)
        except asyncio.TimeoutError:
            if not begun:
                # What runs now is another's, and is not interrupted.
                raise NbprofError(
                    f"the kernel was busy with another cell for {seconds:g} s; this one runs when"
                    " that has ended."
                ) from None
            await ensure_async(self._manager.interrupt_kernel())
            raise NbprofError(
                f"the cell did not end within {seconds:g} s and was interrupted; give it more"
                " seconds, or fewer steps."
            ) from None
        if reply["content"]["status"] == "aborted":
            raise NbprofError("another cell failed, and the kernel dropped this one: call again.")
        return Ran("".join(printed), errors[0] if errors else "")
