"""A TPU by its name: its workers as the Cloud TPU API lists them, asked with what the metadata
server has. Both stand in here.
"""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import nbprof
from nbprof.capture.remote import cloud_tpu
from nbprof.capture.remote.addresses import parse
from nbprof.core.errors import CaptureError
from tests.support.profiler_server import answer, standing_in

TOKEN = "ya29.secret"
METADATA = "/computeMetadata/v1/"
TOLD = {
    f"{METADATA}project/project-id": "proj-1",
    f"{METADATA}instance/zone": "projects/12/zones/us-east5-b",
    f"{METADATA}instance/service-accounts/default/token": json.dumps(
        {"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"}
    ),
}
NODE = "/v2/projects/proj-1/locations/us-east5-b/nodes/pod"


class Cloud(ThreadingHTTPServer):
    """Answers by path: a text, or the code of an error; remembers what was asked, and with which
    token.
    """

    def __init__(self, **nodes: object) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, object] = {**TOLD, **nodes}
        self.asked: list[tuple[str, str | None]] = []


class Handler(BaseHTTPRequestHandler):
    server: Cloud

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        found = self.server.answers.get(self.path, 404)
        if self.path.startswith(METADATA) and self.headers["Metadata-Flavor"] != "Google":
            found = 403
        elif self.path.startswith("/v2/") and self.headers["Authorization"] != f"Bearer {TOKEN}":
            found = 401
        self.send_response(found if isinstance(found, int) else 200)
        self.end_headers()
        self.wfile.write((found if isinstance(found, str) else json.dumps(found)).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cloud(monkeypatch):
    with Cloud() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        monkeypatch.setattr(cloud_tpu, "API", f"http://{host}/v2")
        yield server
        server.shutdown()


def node(*hosts, state="READY"):
    return {
        "name": "projects/proj-1/locations/us-east5-b/nodes/pod",
        "state": state,
        "networkEndpoints": [{"ipAddress": h} for h in hosts],
    }


def found(text):
    return [str(one) for one in cloud_tpu.workers_of(parse(text)[0], lambda _: None)]


def test_the_workers_of_a_tpu_in_the_zone_of_this_machine(cloud):
    cloud.answers[NODE] = node("10.0.0.2", "10.0.0.3", "fd00::4")
    assert found("tpu://pod") == ["10.0.0.2:8466", "10.0.0.3:8466", "[fd00::4]:8466"]
    assert cloud.asked[-1] == (NODE, f"Bearer {TOKEN}")
    assert all(token is None for path, token in cloud.asked if path.startswith(METADATA))
    # Each once, with others, in the order given.
    assert found("a:1,tpu://pod:6009,10.0.0.3:6009,b:2") == [
        "a:1",
        "10.0.0.2:6009",
        "10.0.0.3:6009",
        "[fd00::4]:6009",
        "b:2",
    ]


def test_zone_and_project_that_are_given_are_not_asked_for(cloud):
    cloud.answers["/v2/projects/example.com%3Aother/locations/eu-a/nodes/t"] = node("10.1.1.1")
    assert found("tpu://example.com:other/eu-a/t") == ["10.1.1.1:8466"]
    assert [path for path, _ in cloud.asked if path.startswith(METADATA)] == [
        f"{METADATA}instance/service-accounts/default/token"
    ]


def test_addresses_alone_ask_nobody(cloud):
    assert found("a:1,grpc://b:2") == ["a:1", "b:2"]
    assert cloud.asked == []


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (
            {},
            "no such TPU in zone us-east5-b of project proj-1: name them as tpu://PROJECT/ZONE/pod",
        ),
        ({NODE: 403}, r"may not look it up in project proj-1 \(HTTP 403\).*roles/tpu.viewer"),
        ({NODE: 500}, "answered with HTTP 500; elsewhere, give the addresses"),
        ({NODE: node("10.0.0.2", state="CREATING")}, "in the state CREATING"),
        ({NODE: node()}, "lists no worker"),
        ({NODE: {"networkEndpoints": [{"port": 8470}, 3, {"ipAddress": 5}]}}, "lists no worker"),
        ({NODE: []}, "lists no worker"),
        ({NODE: "<html>"}, "did not answer"),
        (
            {f"{METADATA}instance/service-accounts/default/token": 404},
            "metadata server of Google Cloud did not answer",
        ),
        ({f"{METADATA}instance/service-accounts/default/token": "{}"}, "no service account"),
        (
            {f"{METADATA}project/project-id": 404},
            "from a machine of Google Cloud; elsewhere, give the addresses of its workers",
        ),
    ],
)
def test_what_hinders_is_a_sentence_that_never_has_the_token(cloud, told, says):
    cloud.answers.update(told)
    with pytest.raises(CaptureError, match=says) as error:
        found("tpu://pod")
    assert str(error.value).startswith("tpu://pod:8466: ")
    assert TOKEN not in str(error.value)


def test_a_machine_outside_of_the_cloud(monkeypatch):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(
            CaptureError,
            match=r"did not answer \(.*refused.*found by name only from a machine of Google Cloud",
        ):
            found("tpu://pod")


def test_a_capture_by_name(cloud):
    cloud.answers[NODE] = node("127.0.0.1")
    said = []
    with standing_in(answer("trainer-0")) as server:
        p = nbprof.capture(f"tpu://pod:{server.port}", 20, progress=said.append)
    assert p.hosts == ["trainer-0"]
    assert p.run.capture.options["addresses"] == [f"tpu://pod:{server.port}"]
    assert said[0] == "nbprof: looking up the workers of pod"
    assert not any(TOKEN in text for text in [*said, str(p.run.capture.notes)])
