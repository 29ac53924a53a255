"""The extension of Jupyter Server: options, handlers, and shutdown."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.utils import url_path_join
from traitlets import Bool, Float, Integer, default
from traitlets.config.loader import Config, LazyConfigValue

from nbprof.profiles.report import sanitized
from nbprof.server.capture import CaptureHandler
from nbprof.server.files import DeleteHandler, DownloadHandler, RenameHandler
from nbprof.server.handlers import AskHandler, CompareHandler, OpenHandler, ReadyHandler
from nbprof.server.listing import RunsHandler
from nbprof.server.mcp_handler import Assistants, McpHandler
from nbprof.server.pool import Limits, Pool
from nbprof.server.recordings import Recordings
from nbprof.server.summaries import Summaries
from nbprof.server.threads import Threads

_SMALLEST = 2 << 30
_AT_DISKS = 4
"""Threads that search folders. A disk that does not answer must not block threads that open
profiles.
"""


class NbprofServer(ExtensionApp):
    """Opens profiles in JupyterLab; set in jupyter_server_config.py as
    `c.NbprofServer.<option>`.
    """

    name = "nbprof"
    description = "Reads profiles for JupyterLab in separate processes."
    open_browser = False
    load_other_extensions = True

    profiles: Any = Integer(
        4, min=1, help="Maximum number of analysed profiles kept in memory."
    ).tag(config=True)
    memory: Any = Integer(
        min=1,
        help=(
            "Maximum memory, in bytes, for all profiles together. By default half the memory of the"
            " machine or its container."
        ),
    ).tag(config=True)
    largest: Any = Integer(8 << 30, min=1, help="Largest profile to open, in bytes.").tag(
        config=True
    )
    idle_s: Any = Float(
        1800.0,
        help=(
            "Seconds without a request after which a profile is closed; the next request"
            " reopens it."
        ),
    ).tag(config=True)
    open_s: Any = Float(600.0, help="Time limit for opening a profile, in seconds.").tag(
        config=True
    )
    ask_s: Any = Float(
        60.0, help="Time limit for answering a request about the trace, in seconds."
    ).tag(config=True)
    ahead: Any = Bool(
        True,
        help=(
            "Whether to start a process as soon as the file browser shows a profile, so that it"
            " opens without delay."
        ),
    ).tag(config=True)
    analysed: Any = Integer(
        256 << 20,
        min=0,
        help=(
            "Largest run, in bytes, that is analysed in the background for the list of runs before"
            " it is opened; 0 for none."
        ),
    ).tag(config=True)
    nodelay: Any = Bool(
        True,
        help=(
            "Whether messages from kernels are sent at once (TCP_NODELAY). Without it, an answer"
            " may wait up to 40 ms for the browser to acknowledge the previous message, in every"
            " front end of this server."
        ),
    ).tag(config=True)
    capture: Any = Bool(
        True, help="Whether programs that run elsewhere may be recorded from JupyterLab."
    ).tag(config=True)
    follow_links: Any = Bool(
        False, help="Whether links may point outside the folder that Jupyter serves."
    ).tag(config=True)

    @default("memory")
    def _half_of_the_machine(self) -> int:
        return max(machine_memory() // 2, _SMALLEST)

    def initialize_settings(self) -> None:
        """Create the pool; no process starts before it is needed."""
        limits = Limits(
            self.profiles, self.memory, self.idle_s, self.open_s, self.ask_s, self.ahead
        )
        self.pool = Pool(limits, self.log)
        self.threads = Threads(_AT_DISKS)
        self.summaries = Summaries(self.pool, self.log, self.analysed)
        self.assistants = Assistants(limits, self.log)
        self.recordings = Recordings(self.memory, self.log)
        # The page offers recording only if it is turned on.
        self.settings.setdefault("page_config_data", {})["nbprofCapture"] = bool(self.capture)
        connection = self.settings.get("kernel_websocket_connection_class")
        if self.nodelay and isinstance(connection, type):
            self.settings["kernel_websocket_connection_class"] = at_once(connection)
        if self.serverapp is not None:
            export_static(self.serverapp.config)

    def initialize_handlers(self) -> None:
        """Add the handlers for requests of JupyterLab and of assistants."""
        api = [
            ("open", OpenHandler),
            ("ask", AskHandler),
            ("ready", ReadyHandler),
            ("runs", RunsHandler),
        ]
        api += [("rename", RenameHandler), ("delete", DeleteHandler), ("download", DownloadHandler)]
        api.append(("capture", CaptureHandler))
        api.append(("compare", CompareHandler))
        self.handlers.extend(
            [
                (url_path_join("nbprof", "api", name), handler, {"app": self})
                for name, handler in api
            ]
        )
        self.handlers.append((url_path_join("nbprof", "mcp"), McpHandler, {"app": self}))

    async def stop_extension(self) -> None:
        """End the processes with the server."""
        self.threads.close()
        self.summaries.close()
        self.pool.close()
        self.assistants.close()
        await self.recordings.close()


def export_static(config: Config) -> None:
    """Have sanitized HTML exports of a server show static dashboards.

    Preprocessors that are configured run before.
    """
    used: list[Any] = []
    for name in ("Exporter", "TemplateExporter", "HTMLExporter"):
        preprocessors = config[name].get("preprocessors", used)
        if isinstance(preprocessors, LazyConfigValue):
            preprocessors = preprocessors.get_value(used)
        used = list(preprocessors)
    # By its name: nbconvert is imported by the first export.
    config.HTMLExporter.preprocessors = [*used, sanitized.NAME]


def at_once(connection: type) -> type:
    """A connection of a kernel to a browser that sends messages at once (TCP_NODELAY).

    A kernel sends three small messages: "busy", the answer, and "idle". Nagle's algorithm holds the
    second until the first is acknowledged, which the browser's system delays by 40 ms: longer than
    most requests about the trace take.
    """

    class AtOnce(connection):  # type: ignore[misc]
        async def connect(self) -> Any:
            # The page may be gone, and other servers have other handlers.
            with contextlib.suppress(Exception):
                self.websocket_handler.set_nodelay(True)
            return await super().connect()

    return AtOnce


def machine_memory() -> int:
    """Bytes of memory of the machine or of its container; 4 GiB if unknown."""
    limits = []
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        limits.append(4 << 30)
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(file).read_text()))
        except (OSError, ValueError):
            continue
    return min(limits)
