"""How does JupyterLab open a profile without a kernel? The Jupyter Server extension behind its file
browser.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from nbprof.server.extension import NbprofServer

    return [{"module": "nbprof.server.extension", "app": NbprofServer}]
