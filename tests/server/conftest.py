"""A real Jupyter Server with the extension, on a folder of the test's own."""

from __future__ import annotations

import json

import pytest

from nbprof.views import codec
from tests.support.profiles import needed
from tests.support.xspace import training_run

try:
    # Here rather than as a plugin of all tests: it cleans up after each, whether that had a server or not.
    from pytest_jupyter.jupyter_server import *  # noqa: F403
except ImportError:
    needed("pytest-jupyter is not installed")


@pytest.fixture
def options():
    """Of the extension; a test module or class overrides it."""
    return {}


@pytest.fixture
def jp_server_config(options):
    return {"ServerApp": {"jpserver_extensions": {"nbprof": True}}, "NbprofServer": options}


@pytest.fixture
def extension(jp_serverapp):
    return jp_serverapp.extension_manager.extension_points["nbprof"].app


@pytest.fixture
def profile(jp_root_dir):
    (jp_root_dir / "logs").mkdir()
    path = jp_root_dir / "logs" / "host-a.xplane.pb"
    path.write_bytes(training_run(6))
    return path


class Reply:
    """An answer to `open`: what was told on the way, and the payload or the sentence why there is none."""

    def __init__(self, body):
        self.progress = []
        self.payload = self.version = self.message = None
        while body:
            line, _, body = body.partition(b"\n")
            head = json.loads(line)
            if "bytes" in head:
                assert len(body) == head["bytes"]
                self.payload, self.version = codec.unpack(body), head["version"]
                return
            if "message" in head:
                self.message = head["message"]
            else:
                self.progress.append(head["progress"])


@pytest.fixture
def post(jp_fetch, jp_serverapp):
    """Posts JSON to `nbprof/api/<name>`; (status, body)."""

    async def post(name, request, **options):
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        answer = await jp_fetch("nbprof", "api", name, method="POST", body=body, raise_error=False, **options)
        return answer.code, answer.body

    return post


@pytest.fixture
def open_profile(post):
    async def open_profile(path, **options):
        status, body = await post("open", {"path": path}, **options)
        return status, Reply(body)

    return open_profile
