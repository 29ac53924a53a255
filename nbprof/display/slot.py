"""The one place among the outputs of a cell where nbprof writes."""

from __future__ import annotations

import contextlib
import html
import sys
import threading
import time
import uuid
from typing import Any

from IPython.display import display, update_display

AGAIN_S = 1.0
"""How long a cell that clears its output, such as one that redraws each epoch, keeps it to
itself.
"""

FIRST_LINE_S = 10.0
"""In a terminal, a line is written after this time, and again each time the interval has
doubled.
"""


class Slot:
    """The one place among a cell's outputs where nbprof writes.

    The live status first; when the cell has ended, a line stays there, and the place moves behind
    what the cell itself has shown: the dashboard follows there, by display id. A cell that clears
    its output takes the place away with it; then what comes next is displayed anew.

    Parameters
    ----------
    shell : InteractiveShell
        In a terminal there are no places to rewrite: what is final is shown there, and a line now
        and then before it.
    """

    def __init__(self, shell: Any) -> None:
        self._id: str | None = None
        self._publisher: Any = shell.display_pub if hasattr(shell, "kernel") else None
        self._hooked = False
        # Also what a thread of ours shows belongs to this cell.
        self._parent: Any = getattr(self._publisher, "parent_header", None)
        self._began = time.monotonic()
        self._cleared = float("-inf")
        self._next_line = FIRST_LINE_S

    @property
    def rewrites(self) -> bool:
        """Whether what is drawn can be followed by something else in its place; in a terminal it
        cannot.
        """
        return self._publisher is not None

    @property
    def ident(self) -> str:
        """The display id of what is shown; empty before anything is."""
        return self._id or ""

    def close(self, ident: str, text: str) -> None:
        """Put a line of text in place of what an earlier kernel showed under that id; front ends
        that do not know the id show nothing.
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
        """Show what something else will follow, from any thread.

        It is sent past what a cell does with outputs: one that captures some gets no strips among
        them, and its streams are not flushed.
        """
        publisher = self._publisher
        if publisher is None:
            self._write_line(data["text/plain"])
            return
        if (
            getattr(publisher, "pub_socket", None) is None
            or getattr(publisher, "session", None) is None
        ):
            # Everything is being kept, or this is another kind of kernel.
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
        # A progress bar that stands there draws itself again below.
        stream.write(f"\r\x1b[K{text}\n")
        stream.flush()

    def line(self, text: str) -> None:
        """Show a line that something else will follow."""
        if self._publisher is not None:
            self._put(*_line(text))

    def move(self, text: str) -> None:
        """Leave a line of text where the place was; what follows comes last among the outputs."""
        if self._id is not None:
            # What the cell printed last may still wait to be sent.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            self.draw(_line(text)[0])
            self._id = None

    def final(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Show what stays."""
        self._put(data, metadata)
        self._unhook()

    def sentence(self, text: str) -> None:
        """Show a sentence that stays."""
        self.final(*_line(text))

    def _put(self, data: dict[str, Any], metadata: dict[str, Any]) -> None:
        if self._id is not None and self._publisher is not None:
            update_display(  # type: ignore[no-untyped-call]
                data, metadata=metadata, raw=True, display_id=self._id
            )
            return
        self._id = uuid.uuid4().hex
        self._hook()
        display(data, metadata=metadata, raw=True, display_id=self._id)  # type: ignore[no-untyped-call]

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
