"""A process that records workers for one dialog by `nbprof.capture`, and reports their states.

It accepts "stop" (the data is saved) and "cancel" (it is not). When its standard input closes, the
server has ended, which cancels the recording, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nbprof.capture.place import DEFAULT, ignore_by_git
from nbprof.core.errors import NbprofError
from nbprof.server import pipes

if TYPE_CHECKING:
    from nbprof.capture.remote.workers import State, Workers

_LEAVE_S = 10.0
"""Time for a recording to end after the server is gone."""

_OPTIONS = (
    ("choose another location with --logdir DIR", "choose another folder"),
    ("choose a --logdir that", "choose a folder that"),
    ("--logdir", "folder"),
    ("--duration", "duration"),
    (
        "pip install 'nbprof[remote]'",
        "pip install 'nbprof[remote]' where Jupyter Server runs, and try again",
    ),
)
"""Options of a cell, and the fields of the dialog for them."""


class CancelledError(BaseException):
    """The recording was cancelled. Like `KeyboardInterrupt`, it is not an `Exception`."""


class Recorder:
    """Records once. `send` sends a message to the server, about the request with id `number`."""

    def __init__(self, send: Any, number: int) -> None:
        self._send = send
        self._number = number
        self._cancelled = threading.Event()
        self._stopped = threading.Event()
        self._states: list[State] = []
        self._folder_names = ("", "")

    def take(self, order: str) -> None:
        """Handle "stop" and "cancel"; called on another thread than `run`."""
        (self._stopped if order == "stop" else self._cancelled).set()

    def run(self, head: dict[str, Any]) -> None:
        """Record, then send "done" with the result in JSON or "failed" with a message."""
        folder = Path(head["sampling"]["logdir"])
        self._folder_names = (str(folder), head["shown"])
        is_new = not folder.exists()
        try:
            answer = self._record(head)
        except NbprofError as error:
            failed = self._in_dialog(str(error))
        except CancelledError:
            failed = "the recording was cancelled; nothing was saved."
        except KeyboardInterrupt:
            failed = "the recording was stopped before anything was recorded."
        # The user sees the dialog, not the log of the server.
        except Exception as error:
            traceback.print_exc()
            failed = (
                f"{type(error).__name__}: {error}. This is a bug in nbprof; the server's log has"
                " the details."
            )
        else:
            failed = ""
        # Before the answer, because the server ends this process then.
        with contextlib.suppress(OSError):
            if failed and is_new:
                folder.rmdir()
            elif is_new and folder.name == DEFAULT:
                ignore_by_git(folder)
        if failed:
            self._say("failed", failed)
        else:
            self._say("done", data=json.dumps(answer).encode())

    def _record(self, head: dict[str, Any]) -> dict[str, Any]:
        from nbprof.capture.remote.sample import record
        from nbprof.capture.remote.sampling import Sampling

        sampling = Sampling(**head["sampling"])
        recording = record(head["addresses"], sampling, self._tell, self._watch)
        name = recording.path.name
        notes = [self._in_dialog(note.text) for note in recording.info.notes]
        if sampling.name and name != sampling.name:
            notes.append(f"there is already a run named {sampling.name}, so this one is {name}")
        below = "/".join(recording.path.parts[-3:])
        return {
            "path": f"{head['shown']}/{below}".lstrip("/"),
            "name": name,
            "workers": [self._row(state) for state in self._states],
            "notes": notes,
        }

    def _tell(self, text: str) -> None:
        self._line({"progress": self._in_dialog(text[:1].upper() + text[1:])})

    def _watch(self, workers: Workers) -> None:
        if self._cancelled.is_set():
            raise CancelledError
        states = workers.states()
        for state in states:
            if state not in self._states:
                self._line({"worker": self._row(state)})
        self._states = states
        if self._stopped.is_set():
            self._stopped.clear()
            raise KeyboardInterrupt

    def _row(self, state: State) -> dict[str, str]:
        return {"address": state.address, "state": state.state, "text": self._in_dialog(state.text)}

    def _line(self, line: dict[str, Any]) -> None:
        self._say("progress", json.dumps(line))

    def _say(self, kind: str, text: str = "", data: bytes = b"") -> None:
        self._send({"is": kind, "id": self._number, "text": text}, data)

    def _in_dialog(self, text: str) -> str:
        """A message with fields of the dialog in place of options, and the folder's path in the
        file browser.
        """
        real, browser_path = self._folder_names
        pattern = rf"{re.escape(real)}(?:/\.recording-[^\s:;)]*)?(?=[\s:;,.)/]|$)"
        text = re.sub(pattern, lambda _: browser_path or "the folder that Jupyter serves", text)
        for option, field in _OPTIONS:
            text = text.replace(option, field)
        return text


def main() -> None:
    """Record as the first message says, and listen for messages that end it."""
    requests, answers = pipes.take_standard_streams()
    lock = threading.Lock()

    def send(head: dict[str, Any], body: bytes = b"") -> None:
        # If the server is gone, the listening thread ends this process.
        with lock, contextlib.suppress(OSError, ValueError):
            pipes.write(answers, head, body)

    first = pipes.read(requests)
    if first is None:
        return
    recorder = Recorder(send, first[0]["id"])
    listener = threading.Thread(target=_listen, args=(requests, recorder, send), daemon=True)
    listener.start()
    recorder.run(first[0])
    # The server ends this process: if it ended by itself, that would look like a crash.
    listener.join()
    _leave()


def _listen(requests: BinaryIO, recorder: Recorder, send: Any) -> None:
    while (message := pipes.read(requests)) is not None:
        recorder.take(message[0]["do"])
        send({"is": "done", "id": message[0]["id"], "text": ""})
    recorder.take("cancel")
    last = threading.Timer(_LEAVE_S, _leave)
    last.daemon = True
    last.start()


def _leave() -> None:
    sys.stderr.flush()
    os._exit(0)
