"""The Jupyter Server extension: opens the profiles that JupyterLab shows in its file browser, without a kernel."""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from nbprof.server.extension import NbprofServer

    return [{"module": "nbprof.server.extension", "app": NbprofServer}]
