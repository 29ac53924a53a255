"""The MCP endpoint of the server: asked by the SDK's own client, and by whoever would misuse it."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from nbprof.assistant import NO_SDK
from nbprof.core.errors import NbprofError
from nbprof.server import mcp_handler, process
from tests.assistant.asked import DATA
from tests.server.conftest import place, until
from tests.server.test_attacks import SECRET, escapes, outside, strangers
from tests.server.test_pool import STAND_IN

__all__ = ["outside"]

PAGE = (Path(__file__).parents[2] / "docs" / "assistants.md").read_text("utf-8")
SLOW = (DATA / "xspace" / "tf_slow.xplane.pb").read_bytes()


@pytest.fixture
def options():
    return {"ahead": False, "analysed": 0}


@pytest.fixture
def endpoint(http_server_client, http_server_port, jp_base_url):
    """Its URL; the server runs."""
    return f"http://127.0.0.1:{http_server_port[1]}{jp_base_url}nbprof/mcp"


@pytest.fixture
def send(http_server_client, jp_base_url, jp_auth_header):
    """Posts a message; the status, and the answer as JSON."""

    async def send(body):
        body = body if isinstance(body, bytes) else json.dumps({"jsonrpc": "2.0", **body}).encode()
        answer = await http_server_client.fetch(
            f"{jp_base_url}nbprof/mcp",
            method="POST",
            body=body,
            headers={**jp_auth_header, "Content-Type": "application/json"},
            raise_error=False,
            request_timeout=300,
        )
        return answer.code, json.loads(answer.body) if answer.body else None

    return send


@pytest.fixture
def call(send):
    """Calls a tool; its answer, and whether it is an error."""

    async def call(tool, **arguments):
        status, answer = await send(
            {"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        )
        assert status == 200, answer
        (content,) = answer["result"]["content"]
        return json.loads(content["text"]), answer["result"]["isError"]

    return call


async def session(client):
    """The tools, and answers to calls of each."""
    told = [tool.model_dump() for tool in (await client.list_tools()).tools]

    async def call(tool, **arguments):
        result = await client.call_tool(tool, arguments)
        (content,) = result.content
        told.append(
            (tool, result.is_error, re.sub(r"\b([pc]\d)-[0-9a-f]{6}\b", r"\1", content.text))
        )
        return json.loads(content.text)

    first = (await call("open", path="logs"))["id"]
    second = (await call("open", path="slow"))["id"]
    await call("brief", id=first, tokens=600)
    await call("advice", id=second)
    await call("frame", id=first, name="steps.summary")
    await call("events", id=first, from_ms=0, to_ms=50, limit=3)
    await call("compare", before=first, after=second)
    await call("explain", term="self_us")
    await call("open", path="nothing")
    await call("brief", id="p9")
    return told


def documented(endpoint, token):
    """The URL and the headers in the documentation, for this server."""
    texts = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (text,) = [text for text in texts if '"url"' in text]
    text = text.replace("http://localhost:8888/nbprof/mcp", endpoint).replace("TOKEN", token)
    settings = json.loads(text)["mcpServers"]["nbprof"]
    return settings["url"], settings["headers"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_answers_are_those_of_the_command(
    mode, endpoint, profile, jp_root_dir, jp_serverapp
):
    place(jp_root_dir / "slow", "host-a.xplane.pb", SLOW)
    url, headers = documented(endpoint, jp_serverapp.identity_provider.token)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        assert client.server_info.name == "nbprof"
        here = await session(client)
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "nbprof", "mcp", "--root", str(jp_root_dir)]
    )
    async with Client(command) as client:
        there = await session(client)
    assert "Input-bound" in str(here)
    assert here == there


async def test_ids_of_a_process_that_has_ended_mean_nothing(call, profile, extension):
    first, _ = await call("open", path="logs")
    assert not (await call("brief", id=first["id"]))[1]
    extension.assistants.process.end("it was killed.")
    again, _ = await call("open", path="logs")
    assert again["id"] != first["id"]
    answer, failed = await call("brief", id=first["id"])
    assert failed
    assert "nothing is open as" in answer["error"]


async def test_nothing_outside_is_read(call, outside, jp_root_dir, extension):
    hidden = 0
    for path in [*escapes(jp_root_dir, outside), *strangers(outside)]:
        answer, failed = await call("open", path=path)
        if path == "logs/./host-a.xplane.pb":
            # Here, a path may have dots.
            assert answer["run"] == "host-a"
            continue
        assert failed, (path, answer)
        assert SECRET.decode() not in str(answer), path
        assert "secret" not in answer["error"].replace(path, ""), answer
        hidden += "hidden" in answer["error"]
    assert hidden >= 4


class TestHidden:
    """A server whose person sees names that begin with a dot."""

    @pytest.fixture
    def jp_server_config(self, options):
        return {
            "ServerApp": {"jpserver_extensions": {"nbprof": True}},
            "ContentsManager": {"allow_hidden": True},
            "NbprofServer": options,
        }

    async def test_they_are_read_as_by_jupyter(self, call, jp_root_dir):
        place(jp_root_dir / ".hidden", "host-a.xplane.pb", SLOW)
        answer, failed = await call("open", path=".hidden")
        assert not failed, answer
        assert answer["steps"] == 12


class TestLargest:
    @pytest.fixture
    def options(self):
        return {"ahead": False, "analysed": 0, "largest": 1000}

    async def test_a_larger_profile_is_not_read(self, call, profile):
        answer, failed = await call("open", path="logs")
        assert failed
        assert "c.NbprofServer.largest" in answer["error"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"jsonrpc": "2.0", "id": 4', 400, -32700),
        (b"[]", 400, -32700),
        (b'{"jsonrpc": "2.0", "id": 4, "method": "x"}', 200, -32601),
        (b'{"jsonrpc": "2.0", "id": 4, "method": "tools/call"}', 200, -32602),
        (b'{"jsonrpc": "1.0", "id": 4, "method": "tools/list"}', 400, -32602),
        (b'{"id": 4, "method": "tools/list", "x": "%s"}' % (b"a" * (1 << 20)), 413, -32600),
    ],
)
async def test_errors_are_those_of_json_rpc(send, body, status, code):
    told, answer = await send(body)
    assert (told, answer["error"]["code"]) == (status, code), answer
    assert answer["jsonrpc"] == "2.0"
    assert answer["error"]["message"]


async def test_no_stream_is_begun(http_server_client, jp_base_url, jp_auth_header):
    """It would never end."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"_meta": meta},
    }
    headers = {
        **jp_auth_header,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }
    answer = await http_server_client.fetch(
        f"{jp_base_url}nbprof/mcp",
        method="POST",
        body=json.dumps(message),
        headers=headers,
        raise_error=False,
    )
    assert answer.code == 406


@pytest.mark.parametrize("found", [None, "1.29.0"])
async def test_without_the_sdk_it_says_what_to_install(send, extension, monkeypatch, found):
    def version(name):
        assert name == "mcp"
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(mcp_handler, "version", version)
    status, answer = await send({"id": 7, "method": "tools/list"})
    assert (status, answer["id"]) == (501, 7)
    assert answer["error"]["message"] == NO_SDK
    assert 'pip install "nbprof[mcp]"' in NO_SDK
    assert extension.assistants.process is None


async def test_files_that_are_on_no_disk_are_told(send, jp_serverapp, monkeypatch):
    class Elsewhere:
        allow_hidden = False

    monkeypatch.setitem(jp_serverapp.web_app.settings, "contents_manager", Elsewhere())
    status, answer = await send({"id": 1, "method": "tools/list"})
    assert status == 501
    assert "Download" in answer["error"]["message"]


class TestProcess:
    """With a stand-in that does what the message says."""

    @pytest.fixture
    def options(self):
        return {"ahead": False, "analysed": 0, "memory": 200_000_000, "idle_s": 1.0, "ask_s": 1.0}

    @pytest.fixture(autouse=True)
    def stand_in(self, monkeypatch):
        monkeypatch.setattr(process, "_START", STAND_IN)
        monkeypatch.setattr(mcp_handler, "_BESIDES_S", 1.0)

    @pytest.mark.parametrize(
        ("word", "sentence"),
        [
            ("crash", "ended unexpectedly (code 3)"),
            ("large", "190.73 MiB of memory that this server allows"),
            ("slow", "took longer than 2 s and was stopped"),
        ],
    )
    async def test_one_that_cannot_answer_is_an_error(self, send, extension, word, sentence):
        if word == "large":
            # Time is not what ends it.
            mcp_handler._BESIDES_S = 300.0
        status, answer = await send({"id": "a", "method": word})
        assert (status, answer["id"], answer["error"]["code"]) == (500, "a", -32603)
        assert sentence in answer["error"]["message"]
        await until(lambda: extension.assistants.process is None)

    async def test_one_that_is_not_asked_ends(self, extension):
        assert await extension.assistants.call({}, b"200\n{}") == b"200\n{}"
        assert extension.assistants.process is not None
        await until(lambda: extension.assistants.process is None)

    async def test_it_ends_with_the_server(self, extension):
        await extension.assistants.call({}, b"200\n{}")
        running = extension.assistants.process
        await extension.stop_extension()
        assert not running.alive
        with pytest.raises(NbprofError, match="being stopped"):
            await extension.assistants.call({}, b"200\n{}")
