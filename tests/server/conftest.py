"""A real Jupyter Server with the extension, on a folder of the test's own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from types import SimpleNamespace

import pytest

from nbprof.display import codec
from nbprof.server import process
from tests.support.kineto import Kineto
from tests.support.profiles import needed
from tests.support.programs import FORKS, LIMIT_S, Forked
from tests.support.xspace import training_run

try:
    # Here rather than as a plugin of all tests: it cleans up after each, whether that had a server
    # or not.
    from pytest_jupyter.jupyter_server import *  # noqa: F403
except ImportError:
    needed("pytest-jupyter is not installed")


READS = (
    "nbprof.server.worker",
    "nbprof.profiles.load",
    "nbprof.profiles.profile",
    "nbprof.profiles.comparison",
)


async def until(condition):
    """Wait for a condition; fail rather than wait for ever."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def forked(command, **options):
    """Start a process of the server that has imported already what reads profiles."""
    _, _, code, *arguments = command
    return Forked.piped(READS, code, tuple(arguments))


@pytest.fixture(autouse=True)
def ready_processes(monkeypatch):
    """Each server begins with a process of its own, of which most tests ask little or nothing."""
    if FORKS:
        monkeypatch.setattr(
            process, "subprocess", SimpleNamespace(Popen=forked, PIPE=subprocess.PIPE)
        )


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
    """An answer to `open`: what was told and shown on the way, and the payload or the sentence why
    there is none.
    """

    def __init__(self, body):
        self.progress = []
        self.pictures = []
        self.head = {}
        self.payload = self.version = self.message = None
        while body:
            line, _, body = body.partition(b"\n")
            head = self.head = json.loads(line)
            if "bytes" in head:
                assert len(body) == head["bytes"]
                self.payload, self.version = codec.unpack(body), head["version"]
                return
            if "message" in head:
                self.message = head["message"]
            else:
                self.progress.append(head["progress"])
                early = head.get("early", 0)
                if early:
                    self.pictures.append(codec.unpack(body[:early]))
                    body = body[early:]


@pytest.fixture
def post(jp_fetch, jp_serverapp):
    """Posts JSON to `nbprof/api/<name>`; (status, body)."""

    async def post(name, request, **options):
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        answer = await jp_fetch(
            "nbprof", "api", name, method="POST", body=body, raise_error=False, **options
        )
        return answer.code, answer.body

    return post


@pytest.fixture
def open_profile(post):
    async def open_profile(path, **more):
        status, body = await post("open", {"path": path, **more})
        return status, Reply(body)

    return open_profile


def torch_trace():
    """Four steps, as PyTorch writes them."""
    trace = Kineto()
    for i in range(4):
        trace.step(i, i * 1000.0, 900.0)
    return trace.encode()


def place(folder, name, data=None):
    """A file in a folder that is made for it, by default a profile."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(training_run(4) if data is None else data)
    return folder / name


class Listed:
    """An answer to `runs`: each run as it was told first and last, and the problems."""

    def __init__(self, body):
        self.lines = [json.loads(line) for line in body.decode().splitlines()]
        self.first = {}
        self.runs = {}
        self.problems = {}
        for line in self.lines:
            if "run" in line:
                self.first.setdefault(line["run"]["path"], line["run"])
                self.runs[line["run"]["path"]] = line["run"]
            elif "problem" in line:
                self.problems[line["problem"]["path"]] = line["problem"]["message"]
        assert self.lines[-1] == {"done": True}

    @property
    def paths(self):
        return sorted(self.runs)


@pytest.fixture
def listed(post):
    async def listed(*folders, **more):
        status, body = await post("runs", {"folders": list(folders), **more})
        assert status == 200, body
        return Listed(body)

    return listed
