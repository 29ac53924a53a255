"""A process that reads one profile and answers requests about it, so that the server never blocks.

It ends with the server, which closes its standard input.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from nbprof.core.errors import NbprofError, RawError, ReadError
from nbprof.server import pipes
from nbprof.server.paths import confinement_of

if TYPE_CHECKING:
    from nbprof.core.confinement import Confinement
    from nbprof.core.files import RunFiles
    from nbprof.run.run import Run
    from nbprof.server.reading import Say

_CONNECT_S = 10
"""How long a Dask scheduler may take to answer."""

Send = Callable[[dict[str, Any], bytes], None]


class Desk:
    """Handles the messages of the server. `send` sends a message to it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._run: Run | None = None
        self._names = ("", "")
        self._client: Any = None

    def handle(self, head: dict[str, Any], body: bytes) -> None:
        """Answer one message: "done" with bytes, or "failed" with an error message."""
        number = head["id"]

        def send(kind: str, text: str = "", data: bytes = b"", **more: Any) -> None:
            self._send({"is": kind, "id": number, "text": text, **more}, data)

        def say(text: str, fraction: float | None = None) -> None:
            send("progress", text[:1].upper() + text[1:], fraction=fraction)

        def show(text: str, picture: bytes) -> None:
            send("progress", text, picture)

        try:
            if head["do"] == "find":
                answer = self.find(head, say)
            elif head["do"] == "open":
                answer = self.open(head, say, show)
            elif head["do"] == "compare":
                answer = self.compare(head, say)
            elif head["do"] == "summary":
                answer = self.summary(head)
            else:
                answer = self.ask(body)
        except RawError as error:
            send("failed", self._for_user(str(error)), raw=error.recorder)
        except NbprofError as error:
            send("failed", self._for_user(str(error)))
        except MemoryError:
            send(
                "failed",
                f"{self._names[1]}: there is not enough memory to read it. Open it on a larger"
                " machine.",
            )
        # The process must survive to report the error.
        except Exception as error:
            traceback.print_exc()
            send(
                "failed",
                f"{self._names[1]}: nbprof could not read it: {type(error).__name__}: {error}. This"
                " is a bug in nbprof; the server's log has the details.",
            )
        else:
            send("done", data=answer)

    def find(self, head: dict[str, Any], say: Say) -> bytes:
        """The named run of a folder and a list of all its runs, as JSON."""
        from nbprof.server.folders import choose

        self._names = (head["path"], head["shown"])
        say(f"Looking for runs in {head['shown']}")
        return json.dumps(
            asdict(choose(Path(head["path"]), head["run"], _confinement(head)))
        ).encode()

    def open(self, head: dict[str, Any], say: Say, show: Callable[[str, bytes], None]) -> bytes:
        """Read a profile and return the packed payload of its dashboard.

        `show` is called with the payload of the first picture, if there is one.
        """
        from nbprof.display import codec, wording
        from nbprof.profiles.load import read
        from nbprof.server import summary
        from nbprof.server.reading import followed
        from nbprof.tools import dashboard as payload

        path = Path(head["path"])
        say(f"Reading {path.name}")
        files = self._find(head)
        state = summary.state_of(files)
        files, say_read = followed(files, say)
        profile = read(files, progress=say_read, read_all=True, executor=self._workers(head, files))
        self._run = profile.run
        events = int(profile.run.receipt.events)
        doing = f"Analysing {wording.plural(events, 'event')} of {path.name}"
        say(doing)
        if payload.large(self._run) and (early := payload.early(self._run)) is not None:
            show(doing, codec.pack(early))
        answer = codec.pack(payload.dashboard(self._run))
        if state is not None:
            # The facts for the list of runs are known now.
            summary.note(summary.key(state), summary.facts_of(self._run))
        return answer

    def compare(self, head: dict[str, Any], say: Say) -> bytes:
        """Read two profiles and return the packed payload of the second, with the tab Compare."""
        from nbprof.display import codec, wording
        from nbprof.profiles.comparison import Comparison
        from nbprof.profiles.load import read
        from nbprof.server.reading import followed

        both = []
        for place in (head["before"], head):
            name = Path(place["path"]).name
            say(f"Reading {name}")
            files, say_read = followed(self._find(place), say)
            both.append(
                read(files, progress=say_read, read_all=True, executor=self._workers(place, files))
            )
            say(f"Analysing {wording.plural(int(both[-1].run.receipt.events), 'event')} of {name}")
        comparison = Comparison(both)
        return codec.pack(comparison.payload())

    def summary(self, head: dict[str, Any]) -> bytes:
        """The facts of a profile for the list of runs; the profile is closed at once."""
        from nbprof.run.many import open_run
        from nbprof.server import summary
        from nbprof.sources.recording import CaptureInfo

        files = self._find(head)
        # The user has not opened it: the cache is used, but not filled.
        run = open_run(files, CaptureInfo.of(files.sidecar), write=False)
        return json.dumps(summary.facts_of(run)).encode()

    def _find(self, head: dict[str, Any]) -> RunFiles:
        from nbprof.sources.budget import Budget
        from nbprof.sources.locate import OpenOptions, find

        path, confinement = Path(head["path"]), _confinement(head)
        self._names = (str(path), head["shown"])
        files = find(
            path, head.get("run") or None, OpenOptions(confinement=confinement, budget=Budget)
        )
        if confinement is not None:
            confine(files, confinement)
        return files

    def _workers(self, head: dict[str, Any], files: RunFiles) -> Any:
        """The executor for files of many hosts: a client of the scheduler in the settings, or None
        for processes of this machine.
        """
        from nbprof.run.many import reads_separately

        address = head.get("scheduler")
        if not address or not reads_separately(files):
            return None
        if self._client is None:
            self._client = dask_client(address)
        return self._client

    def ask(self, body: bytes) -> bytes:
        """A packed answer of the timeline."""
        from nbprof.profiles.comms import answer

        if self._run is None:
            raise ReadError("no profile is open here.")
        return answer(self._run, json.loads(body))

    def _for_user(self, text: str) -> str:
        """A message with the path in the file browser in place of the path on the disk."""
        real, browser_path = self._names
        return text.replace(real, browser_path) if real else text


def dask_client(address: str) -> Any:
    """A client of a Dask scheduler.

    Raises
    ------
    NbprofError
    """
    clear = "or clear the address in the settings of nbprof: then this server reads all hosts."
    try:
        from distributed import Client
    except ImportError:
        raise NbprofError(
            "a Dask scheduler needs distributed: pip install nbprof[dask] where Jupyter Server"
            f" runs, {clear}"
        ) from None
    try:
        return Client(  # type: ignore[no-untyped-call]
            address, timeout=_CONNECT_S, set_as_default=False
        )
    except (OSError, ValueError) as error:
        raise NbprofError(
            f"there is no Dask scheduler at {address} ({error}). Start it, correct its address,"
            f" {clear}"
        ) from None


def _confinement(head: dict[str, Any]) -> Confinement | None:
    root = None if head["root"] is None else Path(head["root"])
    return confinement_of(root, hidden=head.get("hidden", True))


def confine(files: RunFiles, confinement: Confinement) -> None:
    """Refuse a run with a file that is a link out of the root, before anything of it is shown.

    Raises
    ------
    ReadError
        Names the file.
    """
    # Imported late: the worker starts faster.
    from nbprof.core.files import could_not_open
    from nbprof.core.packed import Unpacked
    from nbprof.formats.beside import beside

    for piece in (*files.with_sidecar, *beside(files)):
        file = piece.packed if isinstance(piece, Unpacked) else piece
        path = getattr(file, "path", None)
        if isinstance(path, Path):
            try:
                confinement.check(path)
            except (OSError, ValueError) as error:
                raise could_not_open(error, path) from None


def main() -> None:
    """Answer messages on standard input with messages on standard output, until the input ends."""
    requests, answers = pipes.take_standard_streams()
    waiting: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, waiting), daemon=True).start()
    lock = threading.Lock()

    def send(head: dict[str, Any], body: bytes) -> None:
        with lock:
            try:
                pipes.write(answers, head, body)
            except OSError:
                os._exit(0)

    import nbprof.profiles.load
    import nbprof.tools.dashboard  # noqa: F401  imported before it is needed

    send({"is": "ready"}, b"")
    desk = Desk(send)
    with ThreadPoolExecutor(pipes.AT_ONCE) as threads:
        while True:
            threads.submit(desk.handle, *waiting.get())


def _listen(pipe: BinaryIO, waiting: queue.SimpleQueue[tuple[dict[str, Any], bytes]]) -> None:
    while (message := pipes.read(pipe)) is not None:
        waiting.put(message)
    # The server has ended, or ends this process.
    sys.stderr.flush()
    os._exit(0)
