"""Servers that behave as vLLM and SGLang are documented to, with real traces of PyTorch."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.remote import endpoints
from nbprof.core.errors import CaptureError
from tests.capture.notes import text_of
from tests.support.ctrl_c import ctrl_c

TRACE = Path(__file__).resolve().parents[2] / "data" / "kineto" / "cpu_train.pt.trace.json.gz"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Servers have written all ranks that their traces state, without a wait for further ones."""
    monkeypatch.setattr(endpoints, "QUIET_S", 0.0)


class Model:
    """A server of a model."""

    def __init__(self, folder, *, key="", missing=False, ranks=2, fails=False):
        self.folder, self.key, self.missing = folder, key, missing
        self.ranks, self.fails = ranks, fails
        self.calls = []

    def answer(self, path, body, headers):
        self.calls.append((path, body))
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            return 401, b""
        if self.missing or path not in ("/start_profile", "/stop_profile"):
            return 404, b'{"detail": "Not Found"}'
        if self.fails:
            return 500, b"profiler   is\nbroken"
        if path == "/stop_profile":
            threading.Thread(target=self.write, daemon=True).start()
        return 200, b""

    def write(self):
        for rank in range(self.ranks):
            path = self.folder / f"machine_rank{rank}.1795000000000.pt.trace.json.gz"
            data = json.loads(gzip.decompress(TRACE.read_bytes()))
            about = {"distributedInfo": {"rank": rank, "world_size": self.ranks}}
            # In parts, as a file that is being written is seen.
            packed = gzip.compress(json.dumps(about | data).encode())
            with path.open("wb") as file:
                file.write(packed[: len(packed) // 2])
                file.flush()
                file.write(packed[len(packed) // 2 :])


@contextlib.contextmanager
def serving(model):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, text = model.answer(self.path, body, self.headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "traces of a server"
    path.mkdir()
    # Of an earlier recording.
    shutil.copy(TRACE, path / "machine_rank0.1700000000000.pt.trace.json.gz")
    return path


def capture(scheme, address, folder, duration_ms=50, **options):
    return nbprof.capture(
        f"{scheme}://{address}",
        duration_ms,
        folder=folder and str(folder),
        progress=False,
        **options,
    )


@pytest.mark.parametrize("scheme", ["vllm", "sglang"])
def test_all_ranks_of_a_server_are_recorded(folder, scheme):
    model = Model(folder)
    with serving(model) as address:
        profile = capture(scheme, address, folder)
    started = {} if scheme == "vllm" else {"output_dir": str(folder)}
    assert [(path, json.loads(body or b"{}")) for path, body in model.calls] == [
        ("/start_profile", started),
        ("/stop_profile", {}),
    ]
    assert len(profile.hosts) == 2
    names = sorted(file.name for file in Path(profile.path).glob("*.gz"))
    assert [name.partition(".")[0] for name in names] == ["machine_rank0", "machine_rank1"]
    # The server keeps its files.
    assert len(list(folder.iterdir())) == 3
    assert "profile endpoints" in text_of(profile.run.capture.notes, "workers_sampled")
    assert nbprof.load(profile.path).hosts == profile.hosts


def test_ctrl_c_stops_the_profiler_and_gives_what_it_has_recorded(folder):
    model = Model(folder)

    def when_started(over):
        while not model.calls:
            if over.wait(0.01):
                return False
        return not over.wait(0.3)

    with serving(model) as address, ctrl_c(when_started):
        profile = capture("vllm", address, folder, duration_ms=600_000)
    assert model.calls[-1][0] == "/stop_profile"
    assert len(profile.hosts) == 2


def test_its_key_comes_from_the_environment(folder, monkeypatch):
    model = Model(folder, key="secret of the server")
    with serving(model) as address:
        with pytest.raises(CaptureError, match=r"it wants its API key in .* NBPROF_API_KEY"):
            capture("vllm", address, folder)
        monkeypatch.setenv(endpoints.KEY_VARIABLE, "secret of the server")
        profile = capture("vllm", address, folder)
    assert "secret" not in (Path(profile.path) / "nbprof.json").read_text()


def test_servers_that_cannot_profile_are_explained(folder, short):
    with (
        serving(Model(folder, missing=True)) as address,
        pytest.raises(CaptureError, match="was it started with a folder for traces"),
    ):
        capture("vllm", address, folder)
    with (
        serving(Model(folder, fails=True)) as address,
        pytest.raises(CaptureError, match="/start_profile answered 500: profiler is broken"),
    ):
        capture("sglang", address, folder)
    with serving(Model(folder, ranks=0)) as address:
        with pytest.raises(CaptureError, match="it wrote no complete trace to"):
            capture("vllm", address, folder)
        with pytest.raises(CaptureError, match="--folder DIR is missing"):
            capture("vllm", address, None)
        with pytest.raises(CaptureError, match="there is no folder"):
            capture("vllm", address, folder / "none")
    with pytest.raises(CaptureError, match="nothing listens on this port"):
        capture("vllm", "127.0.0.1:1", folder, retries=0)


def test_a_trace_that_is_being_written_is_not_complete(tmp_path):
    whole = TRACE.read_bytes()
    part = tmp_path / "part.trace.json.gz"
    part.write_bytes(whole[:-100])
    assert not endpoints.is_complete(part)
    part.write_bytes(whole)
    assert endpoints.is_complete(part)
    plain = tmp_path / "plain.trace.json"
    plain.write_bytes(gzip.decompress(whole)[:-50])
    assert not endpoints.is_complete(plain) or plain.read_bytes().rstrip().endswith((b"}", b"]"))
    assert sorted(endpoints.traces(tmp_path)) == [part, plain]
