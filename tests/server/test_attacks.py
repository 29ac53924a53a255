"""Every attack on every handler, also on those that are added later: a route that is not in the
table here fails the first test.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass, field
from urllib.parse import urlencode

import pytest

from nbprof.server.handlers import MOST_BYTES
from tests.server.conftest import place

SECRET = b"what nobody may see"
GOOD = "logs/host-a.xplane.pb"


@dataclass(frozen=True)
class Route:
    """What a handler takes, and whose leave it needs."""

    name: str
    request: dict = field(default_factory=dict)
    """One that it answers; each value that is GOOD, or a list of it, is a path."""
    leaves: tuple = (("read", "contents"),)
    """Actions on resources that the person must be allowed, all of them."""
    method: str = "POST"
    types: tuple = ()
    """Keys whose values are of one type only, beside the paths."""
    optional: tuple = ()
    """Keys that may be left out."""
    makes: bool = False
    """Whether its paths need not be there: it makes them."""
    folder: str = "nbprof/api"
    """Where it is."""

    @property
    def paths(self):
        """Keys of paths."""
        return [key for key, value in self.request.items() if value in (GOOD, [GOOD])]

    def with_path(self, key, path):
        """The request with another path."""
        return {**self.request, key: [path] if isinstance(self.request[key], list) else path}


WRITE = (("write", "contents"),)
ROUTES = {
    route.name: route
    for route in (
        Route("open", {"path": GOOD}),
        Route("ask", {"path": GOOD, "version": "x", "request": {"ask": "hello"}}),
        Route("ready"),
        Route("runs", {"folders": [GOOD], "depth": 2}, types=("depth",), optional=("depth",)),
        Route("rename", {"path": GOOD, "name": "other"}, leaves=WRITE, types=("name",)),
        Route("delete", {"paths": [GOOD]}, leaves=WRITE),
        Route("download", {"path": GOOD}, method="GET"),
        Route("compare", {"a": GOOD, "b": GOOD}),
        Route(
            "capture",
            {"addresses": "127.0.0.1:1", "duration_ms": 10, "retries": 0, "folder": GOOD},
            leaves=(("execute", "kernels"), *WRITE),
            types=("addresses", "duration_ms", "retries"),
            optional=("duration_ms", "retries", "folder"),
            makes=True,
        ),
        Route(
            "mcp",
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "open", "arguments": {"path": GOOD}},
            },
            folder="nbprof",
        ),
    )
}


@pytest.fixture
def options():
    return {"analysed": 0, "ahead": False}


@pytest.fixture
def installed(extension):
    """The names of the routes that the server has."""
    return {
        url.rstrip("/").rpartition("nbprof/")[2].removeprefix("api/"): rule
        for url, *rule in extension.handlers
        if "nbprof/" in url and "/static/" not in url
    }


@pytest.fixture(params=ROUTES.values(), ids=ROUTES)
def route(request, installed):
    assert request.param.name in installed, "a route that is not there is attacked by nobody"
    return request.param


def those(which):
    """For a test of some routes only."""
    some = [route for route in ROUTES.values() if which(route)]
    return pytest.mark.parametrize("route", some, ids=[route.name for route in some], indirect=True)


@pytest.fixture
def ask(http_server_client, jp_base_url, jp_auth_header):
    """Asks a route; the whole answer. A request that is bytes is sent as it is."""

    async def ask(route, request, headers=None, method=None):
        url, body, method = (
            f"{jp_base_url}{route.folder}/{route.name}",
            None,
            method or route.method,
        )
        if route.method == "GET":
            url += "?" + urlencode(request)
            body = b"" if method == "POST" else None
        elif method == "POST":
            body = request if isinstance(request, bytes) else json.dumps(request).encode()
        headers = jp_auth_header if headers is None else headers
        headers = {"Content-Type": "application/json", **headers}
        return await http_server_client.fetch(
            url, method=method, body=body, headers=headers, raise_error=False, request_timeout=300
        )

    return ask


def sentences(answer):
    """What an answer says went wrong."""
    out = []
    for line in answer.body.splitlines():
        told = json.loads(line)
        problem = told.get("problem", told)
        if "message" in problem:
            out.append(problem["message"])
    return out


def sentence(answer):
    """The one sentence of an answer; JSON-RPC has it in an object."""
    told = json.loads(answer.body)
    return told.get("error", told)["message"]


def everything(folder):
    return {
        str(path): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


async def test_every_route_is_attacked_here(installed):
    assert installed.keys() <= ROUTES.keys(), "a new route: describe it in ROUTES"
    assert {"open", "ask", "ready", "runs", "rename", "delete", "download"} <= installed.keys()


@pytest.fixture
def outside(jp_root_dir, tmp_path, profile):
    """What lies beside the folder that Jupyter serves, and links that lead there, or to what is
    hidden.
    """
    outside = tmp_path / "outside"
    for name in ("secret.xplane.pb", "host.xplane.pb", "secret.trace.json"):
        place(outside, name, SECRET)
    place(jp_root_dir.parent, "beside.xplane.pb", SECRET)
    place(jp_root_dir.parent / f"{jp_root_dir.name}-2", "host.xplane.pb", SECRET)
    place(jp_root_dir / ".hidden", "host.xplane.pb", SECRET)
    place(jp_root_dir / "logs", ".host.xplane.pb", SECRET)
    (jp_root_dir / "file.xplane.pb").symlink_to(outside / "secret.xplane.pb")
    (jp_root_dir / "folder").symlink_to(outside)
    (jp_root_dir / "neighbour.xplane.pb").symlink_to(
        jp_root_dir.parent / f"{jp_root_dir.name}-2" / "host.xplane.pb"
    )
    (jp_root_dir / "seen.xplane.pb").symlink_to(jp_root_dir / ".hidden" / "host.xplane.pb")
    (jp_root_dir / "logs" / "loop").symlink_to(jp_root_dir / "logs" / "loop")
    run = jp_root_dir / "linked" / "plugins" / "profile" / "run"
    run.mkdir(parents=True)
    (run / "host.xplane.pb").symlink_to(outside / "host.xplane.pb")
    return outside


def escapes(jp_root_dir, outside):
    """Paths that lead out of the root, to what is hidden, or nowhere that a file could be."""
    return [
        "..", "../beside.xplane.pb", "/../beside.xplane.pb", "logs/../../beside.xplane.pb", "logs/./host-a.xplane.pb",
        f"../{jp_root_dir.name}-2/host.xplane.pb", f"..{outside}", ".hidden", ".hidden/host.xplane.pb", "logs/.host.xplane.pb",
        "file.xplane.pb", "folder", "folder/secret.xplane.pb", "folder/secret.trace.json", "neighbour.xplane.pb", "seen.xplane.pb",
        "logs/host-a.xplane.pb\0", "\0", "logs/host-a.xplane.pb/x", "logs/host-a.xplane.pb/../..", "a" * 5000, "a/" * 2000,
        "\ud800.xplane.pb",
    ]  # fmt: skip


def strangers(outside):
    """Paths that mean something elsewhere, and here are names that no file has."""
    return [
        "logs/%2e%2e/%2e%2e/beside.xplane.pb", str(outside / "secret.xplane.pb"), str(outside), f"/{outside}", "/etc/passwd", "~", "~root",
        "C:\\Windows", "..\\beside.xplane.pb", "file:///etc/passwd", "https://example.invalid/x.xplane.pb", "s3://bucket/x",
        "linked/plugins/profile/run", "linked/plugins/profile/run/host.xplane.pb", "logs/loop", "logs/loop/x", "nothing.xplane.pb",
        "-rf", "$(id)", "`id`", "|id", "<script>",
    ]  # fmt: skip


@those(lambda route: route.paths)
async def test_no_path_leads_anywhere_else(route, ask, jp_root_dir, outside, extension):
    before = everything(jp_root_dir.parent)
    for key in route.paths:
        for path in [*escapes(jp_root_dir, outside), *([] if route.makes else strangers(outside))]:
            if path.startswith("\ud800") and route.method == "GET":
                # No URL can have it; Tornado sees to that.
                continue
            answer = await ask(route, route.with_path(key, path))
            told = f"{route.name}, {key}={path[:80]!r}: {answer.code} {answer.body[:300]!r}"
            assert answer.code in (200, 400, 403, 404, 413, 422), told
            assert SECRET not in answer.body, told
            assert str(jp_root_dir).encode() not in answer.body, told
            said = sentences(answer)
            assert said, told
            assert all(text.endswith(".") for text in said), told
            assert b'{"run"' not in answer.body, told
    assert everything(jp_root_dir.parent) == before
    assert not extension.pool.opened


@those(lambda route: route.paths and not route.makes and route.name != "runs")
async def test_the_root_itself_is_no_run(route, ask, jp_root_dir, profile, extension):
    """It is a folder to list runs of, and to record into, and nothing else."""
    before = everything(jp_root_dir)
    for path in ("", "/", "//", ".", "./"):
        for key in route.paths:
            answer = await ask(route, route.with_path(key, path))
            assert answer.code in (400, 404), f"{path!r}: {answer.code} {answer.body!r}"
    assert everything(jp_root_dir) == before
    assert not extension.pool.opened


async def test_nothing_is_answered_without_the_token(route, ask, profile, extension):
    for headers in (
        {},
        {"Authorization": "token wrong"},
        {"Authorization": "token "},
        {"Authorization": "Basic eDp5"},
        {"Cookie": "_xsrf=x"},
    ):
        answer = await ask(route, route.request, headers=headers)
        assert answer.code == 403, f"{headers}: {answer.code}"
    assert not extension.pool.processes
    assert profile.exists()


def http_server_url(port):
    return f"http://127.0.0.1:{port[1]}"


async def test_a_page_of_another_site_may_not_ask(
    route, ask, profile, http_server_client, jp_base_url, http_server_port, jp_serverapp, extension
):
    """A browser that is logged in sends its cookie from any page; the XSRF token it does not."""
    token = jp_serverapp.identity_provider.token
    login = await http_server_client.fetch(
        f"{jp_base_url}api/me?token={token}", follow_redirects=False, raise_error=False
    )
    cookies = "; ".join(cookie.split(";")[0] for cookie in login.headers.get_list("Set-Cookie"))
    if "_xsrf" not in cookies:
        page = await http_server_client.fetch(
            f"{jp_base_url}lab?token={token}", follow_redirects=False, raise_error=False
        )
        cookies = "; ".join(cookie.split(";")[0] for cookie in page.headers.get_list("Set-Cookie"))
    me = await http_server_client.fetch(
        f"{jp_base_url}api/me", headers={"Cookie": cookies}, raise_error=False
    )
    assert me.code == 200, "the cookie logs in"
    evil = {"Referer": "https://example.invalid/page"}
    for headers in (
        {},
        evil,
        {"X-XSRFToken": "wrong"},
        {"X-XSRFToken": "wrong", **evil},
        {"Origin": "https://example.invalid", **evil},
    ):
        answer = await ask(route, route.request, headers={"Cookie": cookies, **headers})
        assert answer.code in (403, 404), f"{headers}: {answer.code} {answer.body!r}"
    assert not extension.pool.opened
    assert profile.exists()
    xsrf = next(part.split("=", 1)[1] for part in cookies.split("; ") if part.startswith("_xsrf"))
    answer = await ask(route, route.request, headers={"Cookie": cookies, "X-XSRFToken": xsrf})
    assert answer.code not in (403, 404), answer.body
    if route.method == "GET":
        # A link of JupyterLab's own page brings no header, but says where it is.
        answer = await ask(
            route,
            route.request,
            headers={"Cookie": cookies, "Referer": f"{http_server_url(http_server_port)}/lab"},
        )
        assert answer.code == 200, answer.body


async def test_another_method_does_nothing(route, ask, profile):
    for method in {"GET", "POST", "DELETE", "HEAD", "OPTIONS"} - {route.method}:
        answer = await ask(route, route.request, method=method)
        # Jupyter itself answers OPTIONS, with nothing.
        assert answer.code == 405 or (method == "OPTIONS" and not answer.body), method
    assert profile.exists()


@those(lambda route: route.method == "POST" and route.name != "ready")
async def test_a_request_that_is_none_is_refused(route, ask, profile, extension):
    deep = b'{"path": ' + b"[" * 100_000
    for body in (
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"1",
        b"null",
        b'"x"',
        b"[" * 100_000,
        deep,
        b'{"path": NaN',
    ):
        answer = await ask(route, body)
        assert answer.code == 400, f"{body[:40]!r}: {answer.code}"
        assert sentence(answer).endswith(".")
    for size in (MOST_BYTES + 1, 20 * MOST_BYTES):
        answer = await ask(route, b'{"path": "' + b"a" * size + b'"}')
        assert answer.code == 413
        assert sentence(answer).endswith(".")
    assert not extension.pool.opened
    assert profile.exists()


@those(lambda route: route.paths)
async def test_a_value_of_another_type_is_refused(route, ask, profile, extension):
    if route.method == "GET":
        for request in ({}, {"path": ""}, {"other": GOOD}):
            assert (await ask(route, request)).code in (400, 404)
        return
    for key in (*route.paths, *route.types):
        without = {name: value for name, value in route.request.items() if name != key}
        for request in (
            without,
            *(
                {**route.request, key: value}
                for value in (None, True, -1, 1.5, {"a": 1}, [1], [[GOOD]], [{}], [None])
            ),
        ):
            if key in route.optional and request.get(key) is None:
                continue
            answer = await ask(route, request)
            assert answer.code == 400, f"{request}: {answer.code} {answer.body!r}"
            assert json.loads(answer.body)["message"]
    assert not extension.pool.opened
    assert profile.exists()


@those(lambda route: route.paths)
async def test_files_that_are_on_no_disk_are_told(route, ask, jp_serverapp, monkeypatch):
    class Elsewhere:
        """A contents manager without a folder."""

        allow_hidden = False

    monkeypatch.setitem(jp_serverapp.web_app.settings, "contents_manager", Elsewhere())
    answer = await ask(route, route.request)
    assert answer.code == 501
    assert "Download" in json.loads(answer.body)["message"]


async def test_no_answer_is_taken_for_a_page(route, ask, profile):
    for request in (route.request, dict.fromkeys(route.request, "nothing")):
        answer = await ask(route, request)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "text/html" not in answer.headers.get("Content-Type", "")
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


class Allowed:
    """An authoriser that allows as much as a test says."""

    @pytest.fixture
    def jp_server_config(self, options):
        from jupyter_server.auth import Authorizer

        allows = self.allows

        class Some(Authorizer):
            def is_authorized(self, handler, user, action, resource):
                return allows(action, resource)

        return {
            "ServerApp": {"jpserver_extensions": {"nbprof": True}, "authorizer_class": Some},
            "NbprofServer": options,
        }


class TestReading(Allowed):
    """Who may only read, as a guest or a reviewer."""

    @staticmethod
    def allows(action, resource):
        return action == "read"

    async def test_who_may_read_may_change_and_run_nothing(
        self, route, ask, profile, jp_root_dir, extension
    ):
        before = everything(jp_root_dir)
        answer = await ask(route, route.request)
        assert (answer.code == 403) == any(action != "read" for action, _ in route.leaves), (
            answer.code
        )
        assert everything(jp_root_dir) == before


class TestNoContents(Allowed):
    """Who may do all but this."""

    @staticmethod
    def allows(action, resource):
        return resource not in ("contents", "kernels")

    async def test_who_may_not_do_it_is_refused(self, route, ask, profile, extension):
        assert (await ask(route, route.request)).code == 403
        assert not extension.pool.processes
        assert profile.exists()


class TestOther(Allowed):
    """Each route asks for its own leaves, and for no other's."""

    leaves: tuple = ()

    @staticmethod
    def allows(action, resource):
        return (action, resource) in TestOther.leaves

    async def test_its_own_leaves_are_enough_and_needed(self, route, ask, profile, monkeypatch):
        for missing in route.leaves:
            monkeypatch.setattr(
                TestOther, "leaves", tuple(leave for leave in route.leaves if leave != missing)
            )
            assert (await ask(route, route.request)).code == 403
        monkeypatch.setattr(TestOther, "leaves", route.leaves)
        # What is not there is looked for, and soon not found.
        answer = await ask(route, {**route.request, **dict.fromkeys(route.paths, "nothing")})
        assert answer.code != 403, answer.body


@those(lambda route: route.paths)
async def test_a_link_that_changes_while_it_is_resolved_is_a_sentence(
    route, ask, profile, monkeypatch
):
    """Python's realpath raises where a link is gone between its two looks at it."""
    real_path = os.path.realpath

    def realpath(path, **options):
        if str(path).endswith("host-a.xplane.pb"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        return real_path(path, **options)

    monkeypatch.setattr(os.path, "realpath", realpath)
    answer = await ask(route, route.request)
    assert answer.code != 500
    assert answer.code == 422 or b'"message"' in answer.body
