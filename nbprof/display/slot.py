"""The position among the outputs of a cell where nbprof writes."""

from __future__ import annotations

import contextlib
import html
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import display, update_display

AGAIN_S = 1.0
"""Time after a cell has cleared its output, as after each epoch, in which nothing is drawn."""

FIRST_LINE_S = 10.0
"""In a terminal, a line is written after this time, and again whenever the time has doubled."""


@contextmanager
def saying() -> Iterator[Callable[[str], None]]:
    """Give a function that shows what is being done, in the output of the cell that runs.

    Each text takes the place of the one before, and how long all took that of the last. Outside of
    a notebook nothing is shown.
    """
    shell = get_ipython()
    if shell is None:
        yield lambda _: None
        return
    slot, began = Slot(shell), time.monotonic()
    try:
        yield lambda text: slot.line(f"nbprof: {text}")
    finally:
        if slot.ident:
            slot.line(f"nbprof: the experiments took {time.monotonic() - began:.0f} s")


class Slot:
    """The position among a cell's outputs where nbprof writes.

    The live status comes first. When the cell has ended, a line replaces it, and the position moves
    to the end of the outputs, where the dashboard is shown. A cell that clears its outputs removes
    the position, and the next output creates a new one.

    Parameters
    ----------
    shell : InteractiveShell
        In a terminal outputs cannot be replaced: only the final one is shown there, and a line now
        and then before it.
    """

    def __init__(self, shell: Any) -> None:
        self._id: str | None = None
        self._publisher: Any = shell.display_pub if hasattr(shell, "kernel") else None
        self._hooked = False
        # Outputs from threads of nbprof belong to this cell, too.
        self._parent: Any = getattr(self._publisher, "parent_header", None)
        self._began = time.monotonic()
        self._cleared = float("-inf")
        self._next_line = FIRST_LINE_S

    @property
    def rewrites(self) -> bool:
        """True if an output can be replaced; False in a terminal."""
        return self._publisher is not None

    @property
    def ident(self) -> str:
        """The display id of the current output; empty if there is none."""
        return self._id or ""

    def close(self, ident: str, text: str) -> None:
        """Replace the output of an earlier kernel by a line of text; front ends that do not know
        the display id show nothing.
        """
        publisher = self._publisher
        if publisher is None or not ident or getattr(publisher, "pub_socket", None) is None:
            return
        content = {"data": _line(text)[0], "metadata": {}, "transient": {"display_id": ident}}
        publisher.session.send(
            publisher.pub_socket,
            "update_display_data",
            content,
            parent=self._parent,
            ident=publisher.topic,
        )

    def draw(self, data: dict[str, Any]) -> None:
        """Show an output that will be replaced; may be called on any thread.

        It bypasses the output machinery of the cell: code that captures outputs does not get it,
        and streams are not flushed.
        """
        publisher = self._publisher
        if publisher is None:
            self._write_line(data["text/plain"])
            return
        if (
            getattr(publisher, "pub_socket", None) is None
            or getattr(publisher, "session", None) is None
        ):
            # All outputs are captured, or this is another kind of kernel.
            return
        ident, update = self._id, True
        if ident is None:
            if time.monotonic() - self._cleared < AGAIN_S:
                return
            ident, update = uuid.uuid4().hex, False
            self._id = ident
            if threading.current_thread() is threading.main_thread():
                self._hook()
        publisher.session.send(
            publisher.pub_socket,
            "update_display_data" if update else "display_data",
            {"data": data, "metadata": {}, "transient": {"display_id": ident}},
            parent=self._parent,
            ident=publisher.topic,
        )

    def _write_line(self, text: str) -> None:
        waited = time.monotonic() - self._began
        stream = sys.stderr
        if waited < self._next_line or stream is None or not stream.isatty():
            return
        self._next_line = 2 * waited
        # A progress bar on this line draws itself again below.
        stream.write(f"\r\x1b[K{text}\n")
        stream.flush()

    def line(self, text: str) -> None:
        """Show a line that will be replaced."""
        if self._publisher is not None:
            self._put(*_line(text))

    def move(self, text: str) -> None:
        """Leave a line of text at the position, which moves to the end of the outputs."""
        if self._id is not None:
            # Send what the cell has printed before.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            self.draw(_line(text)[0])
            self._id = None

    def final(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Show the final output."""
        self._put(data, metadata)
        self._unhook()

    def sentence(self, text: str) -> None:
        """Show a message as the final output."""
        self.final(*_line(text))

    def _put(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        if self._id is not None and self._publisher is not None:
            update_display(  # type: ignore[no-untyped-call]
                data, metadata=metadata, raw=True, display_id=self._id
            )
            return
        self._id = uuid.uuid4().hex
        self._hook()
        display(  # type: ignore[no-untyped-call]
            data, metadata=metadata, raw=True, display_id=self._id
        )

    def _hook(self) -> None:
        if not self._hooked and hasattr(self._publisher, "register_hook"):
            self._publisher.register_hook(self._watch)
            self._hooked = True

    def _unhook(self) -> None:
        if self._hooked and self._publisher is not None:
            with contextlib.suppress(Exception):
                self._publisher.unregister_hook(self._watch)
            self._hooked = False

    def _watch(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["header"]["msg_type"] == "clear_output":
            self._id = None
            self._cleared = time.monotonic()
        return message


def _line(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    style = "font-size:12px;line-height:20px;opacity:.75;font-variant-numeric:tabular-nums"
    return {"text/plain": text, "text/html": f'<div style="{style}">{html.escape(text)}</div>'}, {}
